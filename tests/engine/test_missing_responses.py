"""Single missing trials are averaged over; neuroids that lack a response to a stimulus are counted in the printed score."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions

STIMULI, REPETITIONS, NEUROIDS = 40, 4, 10
RNG = np.random.default_rng(0)
SIGNAL = RNG.normal(size=(STIMULI, NEUROIDS))
IDS = [f"im{n:02d}" for n in range(STIMULI)]


def recorded(missing: float) -> xr.DataArray:
    rng = np.random.default_rng(1)
    values = np.repeat(SIGNAL, REPETITIONS, axis=0) + rng.normal(
        size=(STIMULI * REPETITIONS, NEUROIDS)
    )
    values[rng.random(values.shape) < missing] = np.nan
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", np.repeat(IDS, REPETITIONS)),
            "repetition": ("presentation", np.tile(np.arange(REPETITIONS), STIMULI)),
            "neuroid_id": ("neuroid", [f"u{n}" for n in range(NEUROIDS)]),
        },
    )


def features() -> xr.DataArray:
    rng = np.random.default_rng(2)
    values = SIGNAL @ rng.normal(size=(NEUROIDS, 15)) + 0.5 * rng.normal(
        size=(STIMULI, 15)
    )
    coords: dict[str, Any] = {
        "stimulus_id": ("presentation", IDS),
        "neuroid_id": ("neuroid", [f"f{n}" for n in range(15)]),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


@pytest.mark.parametrize("metric", ["rdm", "cka", "pls", "ridge"])
def test_means_over_the_trials_that_exist_are_compared(metric: str) -> None:
    complete, some = (average_repetitions(recorded(share)) for share in (0.0, 0.05))
    plain = recorded(0.05).values.reshape(STIMULI, REPETITIONS, NEUROIDS)
    np.testing.assert_allclose(some.values, np.nanmean(plain, axis=1))
    whole, part = (nl.metric(metric)(features(), target) for target in (complete, some))
    assert part.value == pytest.approx(whole.value, abs=0.05)
    assert "missing" not in str(part) and part.n == whole.n


@pytest.mark.parametrize("metric", ["rdm", "cka", "pls", "ridge"])
def test_a_printed_score_says_how_many_neuroids_lack_a_response(metric: str) -> None:
    target = average_repetitions(recorded(0.0))
    target[3, [1, 4, 5]] = np.nan
    score = nl.metric(metric)(features(), target)
    assert str(score).endswith(" · 3 neuroids with missing responses")
    assert score.notes[0] == "3 of 10 neuroids left out: responses are missing"


@pytest.mark.parametrize(
    "ceiling", ["internal_consistency", "signal_reliability", "predictor_consistency"]
)
def test_ceilings_average_over_the_trials_that_exist(ceiling: str) -> None:
    whole, part = (nl.ceiling(ceiling)(recorded(share)) for share in (0.0, 0.05))
    assert part.value == pytest.approx(whole.value, abs=0.04)
    assert "missing" not in str(part)
