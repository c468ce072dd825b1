"""Dissimilarities, comparisons and two-factor errors are those of rsatoolbox (see golden/rsatoolbox_cases.py)."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from tests.golden.rsatoolbox_cases import (
    COMPARISONS,
    DISTANCES,
    FILE,
    SUBJECTS,
    patterns,
)

GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))


def assembly(values: np.ndarray, subjects: np.ndarray | None = None) -> xr.DataArray:
    ids = [f"s{i:02d}" for i in range(len(values))]
    coords = {
        "stimulus_id": ("presentation", ids),
        "neuroid_id": ("neuroid", np.arange(values.shape[1])),
    }
    if subjects is not None:
        coords["subject"] = ("neuroid", subjects)
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def scored(distance: str, comparison: str) -> nl.Score:
    model, people = patterns()
    subject = np.repeat([f"p{i}" for i in range(SUBJECTS)], people.shape[2])
    target = assembly(np.concatenate(list(people), axis=1), subject)
    return nl.metric("rdm_subjects", distance=distance, comparison=comparison)(
        assembly(model), target
    )


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_every_subject_equals_rsatoolbox(distance: str, comparison: str) -> None:
    samples = scored(distance, comparison).samples
    assert samples.values.tolist() == pytest.approx(
        GOLDEN[distance]["values"][comparison], abs=1e-12
    )


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("comparison", ["pearson", "cosine"])
def test_the_error_over_stimuli_and_subjects_is_that_of_the_dual_bootstrap(
    distance: str, comparison: str
) -> None:
    """Its 500 draws have an error of 3 %; it also draws stimuli twice and leaves out their pairs."""
    score = scored(distance, comparison)
    assert (
        score.interval_covers == "the 95 % interval covers new stimuli and new subjects"
    )
    assert score.uncertainty.error == pytest.approx(
        GOLDEN[distance]["errors"][comparison], rel=0.25
    )
