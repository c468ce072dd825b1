"""Intervals of ceilings: new stimuli and new neuroids, in simulated experiments and against leaving each stimulus out."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.stats.score import Score, normalise
from tests.long import long


def simulated(
    run: int, stimuli=40, neuroids=25, repetitions=4, noise=1.4, subjects=1
) -> xr.DataArray:
    """A new experiment: new stimuli, new neuroids, the same variances."""
    rng = np.random.default_rng([7, run])
    signal = rng.standard_normal((stimuli, 4)) @ rng.standard_normal((4, neuroids)) / 2
    values = signal + noise * rng.standard_normal((repetitions, *signal.shape))
    coords = {
        "stimulus_id": (
            "presentation",
            [f"{run}s{i:02d}" for i in range(stimuli)] * repetitions,
        ),
        "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
        "neuroid_id": ("neuroid", [f"{run}n{i:02d}" for i in range(neuroids)]),
        "subject": ("neuroid", [f"p{i % subjects}" for i in range(neuroids)]),
    }
    return xr.DataArray(
        values.reshape(-1, neuroids), dims=("presentation", "neuroid"), coords=coords
    )


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
    "internal_consistency": lambda run: nl.ceiling("internal_consistency")(
        simulated(run)
    ),
    "predictor_consistency": lambda run: nl.ceiling("predictor_consistency")(
        simulated(run)
    ),
    "subject_predictivity": lambda run: nl.ceiling("subject_predictivity")(
        simulated(run, repetitions=1, noise=0.7, subjects=3)
    ),
    "r2_er": explained,
}


@pytest.mark.parametrize(
    "name",
    [
        "internal_consistency",
        *(long(name) for name in CASES if name != "internal_consistency"),
    ],
)
def test_an_interval_covers_new_stimuli_and_new_neuroids(name: str) -> None:
    found = [CASES[name](run) for run in range(30)]
    values = np.array([score.value for score in found])
    same = " of the same subjects" if name == "subject_predictivity" else ""
    assert (
        found[0].interval_covers
        == f"the 95 % interval covers new stimuli and new neuroids{same}"
    )
    assert (
        np.mean([score.low <= values.mean() <= score.high for score in found]) >= 0.85
    )
    claimed = np.median([score.uncertainty.error for score in found])
    assert 0.75 < claimed / values.std(ddof=1) < 1.4


def binned() -> xr.DataArray:
    """Responses in three time bins."""
    parts = [simulated(run, stimuli=30, neuroids=5, noise=1.0) for run in range(3)]
    values = np.stack([part.values for part in parts], axis=2)
    coords = dict(parts[0].coords) | {
        "time_bin_start": ("time_bin", np.arange(3)),
        "time_bin_end": ("time_bin", np.arange(3) + 1),
    }
    return xr.DataArray(
        values, dims=("presentation", "neuroid", "time_bin"), coords=coords
    )


def test_stimuli_move_each_time_bin() -> None:
    assembly = binned()
    temporal = nl.ceiling("internal_consistency_temporal")(assembly)
    assert set(temporal.uncertainty.factors) == {"stimulus", "neuroid"}
    alone = nl.ceiling("internal_consistency")(assembly.isel(time_bin=[1]))
    assert (
        set(alone.uncertainty.factors) == {"stimulus", "neuroid"}
        and alone.low < alone.value < alone.high
    )


def rdms_of_people(run: int, stimuli: int = 30, people: str = "abc") -> xr.DataArray:
    """Dissimilarities of people who share four of eight dimensions."""
    rng = np.random.default_rng([11, run])
    shared = rng.standard_normal((stimuli, 4))
    matrices = []
    for _ in people:
        places = np.hstack([shared, rng.standard_normal(shared.shape)])
        matrices.append(((places[:, None] - places[None]) ** 2).sum(axis=2))
    coords = {
        "subject": list(people),
        "stimulus_id": ("stimulus", [f"{run}s{i:02d}" for i in range(stimuli)]),
    }
    return xr.DataArray(
        np.stack(matrices), dims=("subject", "stimulus", "stimulus_b"), coords=coords
    )


@pytest.mark.parametrize("name", ["rsa_ceiling", "rsa_ceiling_lower"])
def test_an_rsa_ceiling_covers_new_stimuli_and_new_subjects(name: str) -> None:
    found = [nl.ceiling(name, pool="matched")(rdms_of_people(run)) for run in range(40)]
    values = np.array([score.value for score in found])
    assert (
        found[0].interval_covers
        == "the 95 % interval covers new stimuli and new subjects"
    )
    assert np.mean([score.low <= values.mean() <= score.high for score in found]) >= 0.9
    claimed = np.sqrt(np.mean([score.uncertainty.variance for score in found]))
    assert 0.8 < claimed / values.std(ddof=1) < 1.35


@pytest.mark.slow
def test_a_ratio_to_an_rsa_ceiling_of_the_same_stimuli_varies_less_than_with_a_constant_ceiling() -> (
    None
):
    ratios, errors, apart = [], [], []
    for run in range(40):
        target = rdms_of_people(run, 60, "mabcde")
        model, others = (
            target.isel(subject=0, drop=True),
            target.isel(subject=range(1, 6)),
        )
        raw, top = (
            nl.metric("rdm")(model, others),
            nl.ceiling("rsa_ceiling", pool="matched")(others),
        )
        ratio = normalise(raw, top)
        ratios.append(ratio.value)
        errors.append(ratio.uncertainty.variance)
        apart.append(raw.uncertainty.variance / top.value**2)
    assert np.mean(errors) < 0.95 * np.mean(apart)
    assert 0.8 < np.sqrt(np.mean(errors)) / np.std(ratios, ddof=1) < 1.35
