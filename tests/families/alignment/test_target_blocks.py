"""Readouts predict targets in blocks: as all at once, in less memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data import memory
from neuroledger.families.alignment.ceilings import internal_consistency
from neuroledger.families.alignment.regression import problem
from neuroledger.families.alignment.similarity import gram
from neuroledger.stats import variation
from neuroledger.stats.score import Score

ROWS, TARGETS, WIDE = 60, 90, (5000, 160)
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


def sides(
    units: int, targets: int = TARGETS, rows: int = ROWS
) -> tuple[xr.DataArray, xr.DataArray]:
    rng = np.random.default_rng(units)
    X = rng.standard_normal((rows, units))
    Y = X[:, :5] @ rng.standard_normal((5, targets))
    Y += 2 * rng.standard_normal(Y.shape)
    Y[:, 3] = 1.0
    Y[5, 7] = np.nan
    coords = {"stimulus_id": ("presentation", [f"s{i:03d}" for i in range(rows)])}
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


def most_bytes(work: Callable[[], object]) -> int:
    nl.metric("rdm")(*sides(12))  # imports libraries, whose memory is not measured
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (problem, variation, memory):
        monkeypatch.setattr(module, "BLOCK", 1 << 18)
    monkeypatch.setattr(memory, "LARGE", 1 << 18)
    monkeypatch.setattr(internal_consistency, "TOGETHER", 1 << 18)
    monkeypatch.setattr(gram, "BLOCK", 64)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["ridge", "one penalty", "pls", "unit"])
def test_a_readout_with_its_interval_takes_little_more_memory_than_its_responses(
    name: str,
) -> None:
    source, target = (side[:, 8:] for side in sides(80, *WIDE))
    most = most_bytes(lambda: deviations(scored(name, (source, target))))
    assert most < 1.3 * target.nbytes


@pytest.mark.usefixtures("small_blocks")
def test_rdms_do_not_copy_responses_to_double_precision() -> None:
    source, target = (side[:, 8:] for side in sides(80, *WIDE))
    most = most_bytes(lambda: deviations(nl.metric("rdm")(source, target)))
    assert most < 3 * target.nbytes


@pytest.mark.usefixtures("small_blocks")
def test_neither_do_split_halves() -> None:
    trials = sides(80, *WIDE)[1][:, 8:]
    rows = np.arange(len(trials))
    repeated = trials.assign_coords(
        stimulus_id=("presentation", [f"s{row // 2:03d}" for row in rows]),
        repetition=("presentation", rows % 2),
    )
    ceiling = nl.ceiling("internal_consistency")
    assert most_bytes(lambda: deviations(ceiling(repeated))) < 2.5 * trials.nbytes
