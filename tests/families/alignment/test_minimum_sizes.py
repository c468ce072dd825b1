"""Metrics and ceilings refuse too little data, and accept the minimum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import CeilingError, MetricError


def responses(
    stimuli: int,
    neuroids: int = 12,
    seed: int = 0,
    *,
    repetitions: int = 1,
    **coords: Any,
) -> xr.DataArray:
    rng = np.random.default_rng([seed, stimuli])
    signal = rng.standard_normal((stimuli, neuroids))
    values = np.concatenate(
        [signal + 0.5 * rng.standard_normal(signal.shape) for _ in range(repetitions)]
    )
    ids = [f"s{i}" for i in range(stimuli)] * repetitions
    known = {
        "stimulus_id": ("presentation", ids),
        "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(neuroids)]),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=known | coords)


@pytest.mark.parametrize(("name", "fewest"), [("rdm", 4), ("cka", 4)])
def test_similarities_need_a_fewest_number_of_stimuli(name: str, fewest: int) -> None:
    metric = nl.metric(name)
    with pytest.raises(MetricError, match=str(fewest)):
        metric(responses(fewest - 1), responses(fewest - 1, seed=1))
    assert np.isfinite(metric(responses(fewest), responses(fewest, seed=1)).value)


@pytest.mark.parametrize("level", [0.0, 3.0])
def test_a_source_without_signal_does_not_match(level: float) -> None:
    flat = responses(20) * 0 + level
    with pytest.raises(MetricError):
        nl.metric("cka")(flat, responses(20, seed=1))
    with pytest.raises(MetricError):
        nl.metric("cka")(responses(20, seed=1), flat)


def test_an_rsa_ceiling_needs_four_stimuli_and_two_subjects() -> None:
    subjects = {"subject": ("neuroid", ["a"] * 6 + ["b"] * 6)}
    ceiling = nl.ceiling("rsa_ceiling")
    with pytest.raises(CeilingError, match="at least 4 stimuli"):
        ceiling(responses(3, **subjects))
    assert np.isfinite(ceiling(responses(4, **subjects)).value)
    with pytest.raises(CeilingError, match="at least two"):
        ceiling(responses(8, subject=("neuroid", ["a"] * 12)))


def test_predictor_consistency_needs_ten_repeated_stimuli() -> None:
    ceiling = nl.ceiling("predictor_consistency")
    with pytest.raises(CeilingError, match="9 of 9 stimuli were repeated"):
        ceiling(responses(9, repetitions=4))
    assert np.isfinite(ceiling(responses(10, repetitions=4)).value)


def test_internal_consistency_needs_repetitions() -> None:
    with pytest.raises(CeilingError):
        nl.ceiling("internal_consistency")(responses(20))
