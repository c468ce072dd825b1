"""A linear readout of more data than fit into memory: training and answers in batches equal those of an array."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.families.efficiency.models import linear_readout as readouts
from neuroledger.families.efficiency.networks import trainable_model
from neuroledger.families.efficiency.networks.trainable_model import (
    Examples,
    Presentations,
    select_presentations,
)
from neuroledger.families.efficiency.paradigms.inference import inference


def windowed(samples: int = 600) -> xr.DataArray:
    """Overlapping windows as views of one array, and a truth that is linear in them."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(2, (samples + 9, 4)).astype(np.uint8)
    views = np.lib.stride_tricks.sliding_window_view(counts, 10, axis=0)
    truth = views.reshape(samples, -1) @ rng.normal(size=40) + 3
    return xr.DataArray(
        views,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", [str(row) for row in range(samples)]),
            "speed": ("presentation", truth),
            "split": (
                "presentation",
                np.where(np.arange(samples) < 400, "train", "test"),
            ),
        },
    )


def test_large_windows_are_read_by_batches_and_never_copied_whole(monkeypatch):
    assembly, rows = windowed(), np.arange(20, 60)
    whole = select_presentations(assembly, rows)
    monkeypatch.setattr(trainable_model, "WHOLE", 4 * 40 * 40 - 1)
    view = select_presentations(assembly, rows)
    assert isinstance(whole, np.ndarray) and isinstance(view, Presentations)
    assert view.shape == whole.shape and np.array_equal(np.asarray(view), whole)
    assert np.array_equal(view[5:9], whole[5:9]) and view[5:9].dtype == np.float32


def test_learning_by_batches_gives_the_weights_of_least_squares(monkeypatch):
    assembly = windowed()
    data = Dataset(stimuli=None, assembly=assembly, id="d")
    requested = {"task": "regression", "target": "speed"}
    model = readouts.linear_readout(id="r", penalty=1e-9)
    at_once = inference(model, data, **requested)
    monkeypatch.setattr(trainable_model, "WHOLE", 0)
    monkeypatch.setattr(readouts, "AT_ONCE", 40 * 7)
    by_batches = inference(model, data, **requested)
    np.testing.assert_allclose(
        by_batches.source.values, at_once.source.values, atol=1e-4
    )
    np.testing.assert_allclose(
        by_batches.source.values, by_batches.target.values, atol=1e-3
    )
    assert by_batches.trace.layers.keys() == at_once.trace.layers.keys()
    x = assembly.values[:400].reshape(400, -1).astype(float)
    design, truth = np.c_[x, np.ones(400)], assembly["speed"].values[:400]
    expected = np.linalg.lstsq(design, truth, rcond=None)[0]
    module = model.ready(
        Examples(select_presentations(assembly, np.arange(400)), truth[:, None])
    )
    result = [
        *module[1].weight.detach().numpy().ravel(),
        float(module[1].bias.detach()),
    ]
    np.testing.assert_allclose(result, expected, rtol=1e-4)
