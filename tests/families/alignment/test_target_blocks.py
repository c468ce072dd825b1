"""Readouts predict targets in blocks: as all at once, in less memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data import memory
from neuroledger.families.alignment.regression import problem
from neuroledger.stats.score import Score

ROWS, TARGETS = 60, 90
READOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ridge": ("ridge", {}),
    "heavy ridge": ("ridge", {"alpha": 1e6}),
    "singular ridge": ("ridge", {"alpha": 1e-14}),
    "one penalty": ("ridge_cv", {}),
    "own penalties": ("ridge_cv", {"name": "ridge_cv", "per_target": True}),
    "pls": ("pls", {"components": 5}),
    "linear": ("linear_predictivity", {}),
    "lapack": ("linear_predictivity", {"solver": "lapack"}),
    "unit": ("neuron_to_neuron", {}),
}


def sides(units: int, targets: int = TARGETS) -> tuple[xr.DataArray, xr.DataArray]:
    rng = np.random.default_rng(units)
    X = rng.standard_normal((ROWS, units))
    Y = X[:, :5] @ rng.standard_normal((5, targets))
    Y += 2 * rng.standard_normal(Y.shape)
    Y[:, 3] = 1.0
    Y[5, 7] = np.nan
    coords = {"stimulus_id": ("presentation", [f"s{i:03d}" for i in range(ROWS)])}
    dims = ("presentation", "neuroid")
    return (
        xr.DataArray(X.astype(np.float32), dims=dims, coords=coords),
        xr.DataArray(Y.astype(np.float32), dims=dims, coords=coords),
    )


def scored(
    name: str, given: tuple[xr.DataArray, xr.DataArray], **compare: Any
) -> Score:
    metric, options = READOUTS[name]
    spec = {"estimator": options, **compare} if options else compare
    more: dict[str, Any] = {}
    if "time" in compare:
        over = ("neuroid", "time_bin", "split")
        more["aggregate"] = [{"over": dim, "with": "mean"} for dim in over]
    return nl.metric(metric, compare=spec, splits={"folds": 3}, **more)(*given)


def deviations(score: Score) -> np.ndarray:
    found = score.varies(None) if score.varies else None
    assert found is not None
    return np.concatenate([part.values for part in found.parts])


def require_alike(
    name: str,
    given: tuple[xr.DataArray, xr.DataArray],
    patch: pytest.MonkeyPatch,
    **compare: Any,
) -> None:
    whole = scored(name, given, **compare)
    expected = deviations(whole)
    patch.setattr(problem, "BLOCK", 8 * ROWS * 7)
    patch.setattr(memory, "LARGE", 64)
    divided = scored(name, given, **compare)
    np.testing.assert_allclose(divided.samples, whole.samples, rtol=0, atol=1e-9)
    np.testing.assert_allclose(deviations(divided), expected, rtol=0, atol=1e-9)
    assert divided.notes == whole.notes
    for coordinate in whole.samples.coords:
        np.testing.assert_array_equal(
            divided.samples[coordinate], whole.samples[coordinate]
        )


@pytest.mark.parametrize("units", [12, 200])
@pytest.mark.parametrize("name", READOUTS)
def test_blocks_of_targets_give_the_correlations_of_all_at_once(
    name: str, units: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_alike(name, sides(units), monkeypatch)


@pytest.mark.parametrize("name", ["one penalty", "pls"])
def test_so_do_blocks_of_fewer_targets_than_stimuli(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_alike(name, sides(200, 31), monkeypatch)


def test_so_do_blocks_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    require_alike("ridge", sides(200), monkeypatch, correlation="spearman")


@pytest.mark.parametrize("time", ["shared", "separate"])
def test_so_do_blocks_in_time(time: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = sides(200)
    bins = [
        xr.concat([side, side[::-1].values + 0.5 * side], "time_bin").transpose(
            "presentation", "neuroid", "time_bin"
        )
        for side in (source, target)
    ]
    starts = {
        "time_bin_start": ("time_bin", [0.0, 50.0]),
        "time_bin_end": ("time_bin", [50.0, 100.0]),
    }
    given = (bins[0].assign_coords(starts), bins[1].assign_coords(starts))
    require_alike("ridge", given, monkeypatch, time=time)
