"""Simulated people have the accuracy and agreement of the people that they are fitted to."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import answers_of_people
from neuroledger.families.behavior.simulated import kappa_of, simulated_trials


def trials(hard: float, seed: int = 0) -> Measurement:
    rng = np.random.default_rng(seed)
    odds = 0.8 + 0.3 * rng.standard_normal((6, 1)) + hard * rng.standard_normal(150)
    right = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    truth = np.tile(np.array(["cat", "dog", "owl"])[np.arange(150) % 3], 6)
    wrong = np.tile(np.array(["cat", "dog", "owl"])[(np.arange(150) + 1) % 3], 6)
    coords = {
        "stimulus_id": ("presentation", np.tile([f"s{i}" for i in range(150)], 6)),
        "subject": ("presentation", np.repeat([f"p{i}" for i in range(6)], 150)),
        "truth": ("presentation", truth),
    }
    target = xr.DataArray(
        np.where(right.ravel(), truth, wrong), dims="presentation", coords=coords
    )
    source = target.isel(presentation=slice(0, 150)).drop_vars("subject")
    return Measurement(source, target, target)


@pytest.mark.parametrize("hard", [0.3, 1.5])
def test_people_are_right_and_agree_as_often_as_in_the_data(hard: float) -> None:
    measured = trials(hard)
    draw = simulated_trials(measured, ("stimulus", "subject"))
    people = answers_of_people(measured.target)
    drawn = [draw(np.random.default_rng(seed), 2) for seed in range(15)]
    each = [answers_of_people(one.models[0].target) for one in drawn]
    assert np.mean([one.correct.mean() for one in each]) == pytest.approx(
        people.correct.mean(), abs=0.04
    )
    assert np.mean([kappa_of(one) for one in each]) == pytest.approx(
        kappa_of(people), abs=0.04
    )
    one, two = drawn[0].models
    assert not np.array_equal(
        one.source.values, two.source.values
    ) and one.target.identical(two.target)


def test_models_answer_what_people_find_easy() -> None:
    experiment = simulated_trials(trials(2.0), ("stimulus", "subject"))(
        np.random.default_rng(0), 1
    )
    one = experiment.models[0]
    right = one.source.values == one.source["truth"].values
    found = answers_of_people(one.target)
    share = dict(
        zip(found.stimuli[found.stimulus], found.correct.mean(axis=0), strict=True)
    )
    people = np.array([share[name] for name in one.source["stimulus_id"].values])
    assert people[right].mean() > people[~right].mean() + 0.1


def test_other_behaviour_has_no_generative_model() -> None:
    measured = trials(1.0)
    for target in (
        measured.target.drop_vars("subject"),
        measured.target.drop_vars("truth"),
    ):
        with pytest.raises(MetricError, match="no generative model"):
            simulated_trials(Measurement(measured.source, target), ("stimulus",))
