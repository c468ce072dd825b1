"""Metrics do not copy the features: they allocate a few row × row matrices, regardless of the number of features."""

import tracemalloc

import numpy as np
import pytest

import neuroledger as nl
from tests.families.alignment.neural_cases import assembly

ROWS, FEATURES = 600, 20_000


@pytest.mark.parametrize(
    "name", ["pls", "ridge", "linear_predictivity", "neuron_to_neuron", "rdm", "cka"]
)
def test_a_memory_map_is_never_whole_in_memory(name, tmp_path):
    rng = np.random.default_rng(0)
    np.save(
        tmp_path / "features.npy",
        rng.standard_normal((ROWS, FEATURES), dtype=np.float32),
    )
    source = assembly(np.load(tmp_path / "features.npy", mmap_mode="r"))
    target = assembly(rng.standard_normal((ROWS, 30)))
    metric = nl.metric(name)
    metric(
        source, target
    )  # the first call imports libraries, whose memory is not measured
    tracemalloc.start()
    metric(source, target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    square, widest = 8 * ROWS**2, 8 * ROWS * 2048
    assert peak < 8 * square + 2 * widest < 4 * ROWS * FEATURES
