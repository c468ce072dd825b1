"""The ceiling of ranks equals the rank correlation of a model without error, on simulated times."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import spearmanr

import neuroledger as nl
from neuroledger.errors import CeilingError, MetricError
from tests.long import long


def times(
    stimuli: int, repetitions: int, noise: float, seed: int
) -> tuple[xr.DataArray, float]:
    """Measured times, and the rank correlation of the true ones with the mean."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(stimuli)
    values = truth + noise * rng.standard_normal((repetitions, stimuli))
    coords = {
        "stimulus_id": (
            "presentation",
            [f"s{i}" for i in range(stimuli)] * repetitions,
        ),
        "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
    }
    measured = xr.DataArray(values.ravel(), dims="presentation", coords=coords)
    return measured, float(spearmanr(truth, values.mean(axis=0)).statistic)


@pytest.mark.parametrize("repetitions", [2, long(3), long(8)])
@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_a_model_without_error_reaches_it(noise, repetitions):
    found = []
    for seed in range(4):
        measured, reached = times(600, repetitions, noise, seed)
        ceiling = nl.ceiling("ost_consistency")(measured)
        assert ceiling.low < ceiling.value < ceiling.high
        found.append(reached / ceiling.value)
    assert np.mean(found) == pytest.approx(1.0, abs=0.08)


def test_times_of_noise_have_no_ceiling():
    refused = 0
    for seed in range(10):
        measured, _ = times(60, 4, 1.0, seed)
        measured.values[:] = np.random.default_rng(seed).standard_normal(measured.size)
        try:
            ceiling = nl.ceiling("ost_consistency")(measured)
        except CeilingError:
            refused += 1
        else:
            refused += ceiling.low <= 0
    assert refused >= 9


def test_too_few_stimuli_are_refused():
    with pytest.raises(CeilingError, match="only 3 stimuli"):
        nl.ceiling("ost_consistency")(times(3, 4, 0.5, 0)[0])


def test_a_ceiling_whose_interval_holds_zero_is_not_normalised_by():
    from neuroledger.stats.score import Score, normalise
    from neuroledger.stats.uncertainty import Uncertainty

    raw = Score(0.2, scale="correlation")
    normalise(raw, Score(0.3, scale="reliability", varies=Uncertainty.alone("c", 0.08)))
    with pytest.raises(MetricError, match=r"includes 0.*record more"):
        normalise(
            raw, Score(0.06, scale="reliability", varies=Uncertainty.alone("c", 0.05))
        )
    peer = normalise(
        raw,
        Score(0.06, scale="reliability", varies=Uncertainty.alone("c", 0.05)),
        compat="brainscore",
    )
    assert peer.value == pytest.approx(0.04 / 0.06)


@pytest.mark.slow
@pytest.mark.parametrize(("stimuli", "repetitions", "noise"), [(60, 6, 1.5)])
def test_the_interval_covers_the_ceiling_near_one_and_far_from_it(
    stimuli, repetitions, noise
):
    found = [
        nl.ceiling("ost_consistency")(times(stimuli, repetitions, noise, seed)[0])
        for seed in range(15)
    ]
    truth = np.mean([each.value for each in found])
    assert np.mean([each.low <= truth <= each.high for each in found]) >= 0.8
    assert all(each.high <= 1 for each in found)
    error = np.sqrt(np.mean([each.uncertainty.error**2 for each in found]))
    assert 0.6 < error / np.std([each.value for each in found]) < 1.7
