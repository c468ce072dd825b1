"""Intervals of ceilings: new stimuli and new neuroids, in simulated experiments and against leaving each stimulus out."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.stats.score import Score


def simulated(run: int, stimuli=40, neuroids=25, repetitions=4, noise=1.4, subjects=1) -> xr.DataArray:
    """A new experiment: new stimuli, new neuroids, the same variances."""
    rng = np.random.default_rng([7, run])
    signal = rng.standard_normal((stimuli, 4)) @ rng.standard_normal((4, neuroids)) / 2
    values = signal + noise * rng.standard_normal((repetitions, *signal.shape))
    coords = {
        "stimulus_id": ("presentation", [f"{run}s{i:02d}" for i in range(stimuli)] * repetitions),
        "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
        "neuroid_id": ("neuroid", [f"{run}n{i:02d}" for i in range(neuroids)]),
        "subject": ("neuroid", [f"p{i % subjects}" for i in range(neuroids)]),
    }
    return xr.DataArray(values.reshape(-1, neuroids), dims=("presentation", "neuroid"), coords=coords)


def explained(run: int) -> Score:
    """Noise-corrected explained variance of responses with repetitions."""
    target = simulated(run, stimuli=100)
    rng = np.random.default_rng([7, run])
    seen = rng.standard_normal((100, 4))  # factors of the responses
    values = seen + 0.7 * rng.standard_normal(seen.shape)
    coords = {
        "stimulus_id": ("presentation", target["stimulus_id"].values[:100]),
        "neuroid_id": ("neuroid", list("abcd")),
    }
    source = xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)
    return nl.metric("r2_er", estimator={"components": 3})(source, target)


CASES = {
    "internal_consistency": lambda run: nl.ceiling("internal_consistency")(simulated(run)),
    "predictor_consistency": lambda run: nl.ceiling("predictor_consistency")(simulated(run)),
    "subject_predictivity": lambda run: nl.ceiling("subject_predictivity")(
        simulated(run, repetitions=1, noise=0.7, subjects=3)
    ),
    "r2_er": explained,
}


@pytest.mark.parametrize("name", CASES)
def test_an_interval_covers_new_stimuli_and_new_neuroids(name: str) -> None:
    found = [CASES[name](run) for run in range(60)]
    values = np.array([score.value for score in found])
    assert found[0].interval_covers == "the 95 % interval covers new stimuli and new neuroids"
    assert np.mean([score.low <= values.mean() <= score.high for score in found]) >= 0.85
    claimed = np.median([score.spread.error for score in found])
    assert 0.75 < claimed / values.std(ddof=1) < 1.4


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "name",
    ["internal_consistency", "internal_consistency_spearman", "internal_consistency_kendall"],
)
def test_the_influence_of_stimuli_is_that_of_leaving_each_out(name: str, missing: bool) -> None:
    """Aggregated by means over neuroids, because a median changes in steps."""
    assembly = simulated(0, stimuli=60, neuroids=6, noise=1.0)
    if missing:
        assembly = assembly.where(np.random.default_rng(3).random(assembly.shape) > 0.05)
    bound = nl.ceiling(
        name,
        aggregate=[{"over": "neuroid", "with": "mean"}, {"over": "split", "with": "mean"}],
    )
    influence = bound(assembly).influence()
    ids = assembly["stimulus_id"].values
    left = np.array([bound(assembly[ids != one]).value for one in influence.factors["stimulus"].ids])
    n = len(left)
    jackknife = np.sqrt((n - 1) / n) * (left.mean() - left)
    own = influence.factors["stimulus"].deviation
    assert np.corrcoef(own, jackknife)[0, 1] > 0.98
    assert own @ own == pytest.approx(jackknife @ jackknife, rel=0.15)


def binned() -> xr.DataArray:
    """Responses in three time bins."""
    parts = [simulated(run, stimuli=30, neuroids=5, noise=1.0) for run in range(3)]
    values = np.stack([part.values for part in parts], axis=2)
    coords = dict(parts[0].coords) | {
        "time_bin_start": ("time_bin", np.arange(3)),
        "time_bin_end": ("time_bin", np.arange(3) + 1),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid", "time_bin"), coords=coords)


def test_stimuli_move_each_time_bin() -> None:
    assembly = binned()
    temporal = nl.ceiling("internal_consistency_temporal")(assembly)
    assert set(temporal.spread.factors) == {"stimulus", "neuroid"}
    alone = nl.ceiling("internal_consistency")(assembly.isel(time_bin=[1]))
    assert set(alone.spread.factors) == {"stimulus", "neuroid"} and alone.low < alone.value < alone.high
