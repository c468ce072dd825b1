"""Tests that pieces of one signal are detected for any number of channels and type, but not chance or saturation."""

from __future__ import annotations

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import DataError
from neuroledger.families.decoding.protocols.leakage_checks import (
    Sharing,
    gate,
    run_length,
)
from neuroledger.families.decoding.protocols.splits import Fold
from neuroledger.families.signals.signals import signals

NONE = np.empty(0, dtype=np.intp)


def stored(values):
    count = len(values)
    facts = {
        "stimulus_id": np.arange(count),
        "subject": np.repeat("1", count),
        "recording": np.arange(count),
    }
    return signals(
        values,
        channels=[f"c{number}" for number in range(values.shape[1])],
        channel_types="misc",
        sampling_rate=100,
        start=0,
        units="arbitrary",
        events={**facts, "onset": np.zeros(count)},
    )


def cut(signal, step, length=120):
    starts = range(0, signal.shape[1] - length, step)
    return np.stack([signal[:, at : at + length] for at in starts])


def halves(assembly):
    rows = np.arange(assembly.sizes["presentation"])
    return Fold(rows[::2], NONE, rows[1::2])


def smooth(channels, seed=0, count=6000):
    noise = np.random.default_rng(seed).standard_normal((channels, count + 20))
    return np.stack(
        [np.convolve(row, np.ones(20) / 4.0, mode="valid") for row in noise]
    )


@pytest.mark.parametrize("channels", [1, 2, 3, 7])
@pytest.mark.parametrize("kind", ["f4", "f8", "f2", "i2", "i4"])
def test_windows_of_one_signal_are_detected_for_any_type(channels, kind):
    assembly = stored(cut(300 * smooth(channels), 60).astype(kind))
    fold = halves(assembly)
    assert Sharing(assembly, [fold]).hits(0).tolist() == fold.test.tolist()
    apart = stored(cut(300 * smooth(channels), 120).astype(kind))
    fold = halves(apart)
    assert Sharing(apart, [fold]).hits(0).tolist() == []


def test_a_window_that_lies_within_its_two_neighbours_is_found():
    assembly = stored(cut(smooth(4), 60))
    inner = Fold(np.array([0, 2]), NONE, np.array([1]))
    with pytest.raises(
        DataError,
        match="1 tested windows overlap with trained ones, whose samples they hold: 1",
    ):
        gate([inner], assembly)
    gate([inner], assembly, waive=["overlap"])


def test_a_repeated_window_is_a_duplicate_and_not_an_overlap():
    values = cut(smooth(4), 120)
    assembly = stored(np.concatenate([values, values[:1]]))
    fold = Fold(np.arange(len(values)), NONE, np.array([len(values)]))
    with pytest.raises(DataError, match="have the samples of a trained one") as raised:
        gate([fold], assembly)
    assert "overlap" not in str(raised.value)
    gate([fold], assembly, waive=["duplicates"])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("cells", [1, 2, 40])
def test_spike_counts_that_agree_by_chance_are_accepted(seed, rate, cells):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(rate, (400, cells, 60))
    counts[:, 0, 0] += rng.integers(1, 3, 400)  # no window is empty
    assembly = stored(counts)
    assert Sharing(assembly, [halves(assembly)]).hits(0).tolist() == []


@pytest.mark.parametrize("levels", [1.0, 4.0, 30.0])
def test_coarse_and_saturated_signals_are_accepted(levels):
    """A converter with few levels, and saturated segments, in windows that do not overlap."""
    values = np.round(levels * smooth(1, count=120 * 300) / 2)
    top = np.quantile(values, 0.9)
    assembly = stored(cut(np.minimum(values, top), 120))
    assert Sharing(assembly, [halves(assembly)]).hits(0).tolist() == []


def test_the_length_of_runs_depends_on_chance():
    assert run_length(stored(cut(smooth(3), 120))) == 1
    assert run_length(stored(cut(smooth(1), 120))) < 10
    assert 8 < run_length(stored(cut(np.round(40 * smooth(1)), 120))) < 60
    assert run_length(stored(cut(smooth(1), 120)[:, :, :5])) is None


def test_the_refusal_suggests_a_remedy_and_names_few_folds():
    rng = np.random.default_rng(0)
    facts = {"subject": np.full(60, "1"), "onset": np.arange(60) * 0.5}
    y = np.tile(["a", "b"], 30)
    with pytest.raises(DataError) as refused:
        nl.decode(
            "shrinkage_lda",
            rng.normal(size=(60, 4, 64)),
            y,
            groups=facts,
            sampling_rate=64.0,
            splits={"name": "random", "folds": 10},
        )
    message = str(refused.value)
    assert message.count("fold ") == 3 and "and 7 more" in message
    assert (
        "`splits: {name: blocked, purge: SECONDS}`" in message
        and "`waive: [overlap]`" in message
    )
