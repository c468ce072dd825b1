"""Tests that intervals of decoders include the correlation of folds by shared training data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import ttest_1samp
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.tree import DecisionTreeClassifier

import neuroledger as nl
from neuroledger.stats.differences import difference
from neuroledger.stats.score import Score

Floats = npt.NDArray[np.float64]


def experiment(
    run: int, subjects: int, trials: int, features: int, effect: float
) -> tuple[Floats, ...]:
    """Simulated windows (window, feature) of subjects; classes differ along a direction that most subjects share."""
    rng = np.random.default_rng([run, subjects, features])
    side = np.tile([-1.0, 1.0], (subjects, trials // 2))
    own = (
        effect
        * (1 + 0.6 * rng.standard_normal((subjects, 1, features)))
        / np.sqrt(features)
    )
    x = side[..., None] * own + rng.standard_normal((subjects, trials, features))
    names = np.repeat([f"{run}p{i}" for i in range(subjects)], trials)
    return x.reshape(-1, features), np.where(side.ravel() > 0, "a", "b"), names


def two_models(
    run: int,
    subjects: int,
    trials: int,
    features: int,
    effect: float,
    more: float = 0,
    estimator: object = None,
) -> list[Score]:
    """Scores of two decoders with independent noise on the windows; ``more`` is added to the noise of the second."""
    x, y, names = experiment(run, subjects, trials, features, effect)
    rng = np.random.default_rng([7, run])
    seen = (x + (0.7 + extra) * rng.standard_normal(x.shape) for extra in (0.0, more))
    return [
        nl.decode(
            estimator or LinearDiscriminantAnalysis(), each, y, groups=names
        ).replace(population=f"lab{run}")
        for each in seen
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("subjects", "features", "effect"), [(6, 8, 0.6), (9, 60, 0.6), (20, 8, 0.0)]
)
def test_coverage_and_equal_decoders(
    subjects: int, features: int, effect: float
) -> None:
    scores = [two_models(run, subjects, 20, features, effect) for run in range(60)]
    truth = np.mean([score.value for pair in scores for score in pair])
    covered = np.mean(
        [score.low <= truth <= score.high for pair in scores for score in pair]
    )
    false = np.mean([difference("b", *pair).p < 0.05 for pair in scores])
    assert covered >= 0.88 and false <= 0.12


@pytest.mark.slow
def test_equal_decoders_that_change_much_with_each_subject_seldom_differ() -> None:
    pairs = [
        two_models(
            run,
            20,
            30,
            8,
            1.0,
            estimator=DecisionTreeClassifier(max_depth=2, random_state=0),
        )
        for run in range(60)
    ]
    truth = np.mean([score.value for pair in pairs for score in pair])
    covered = np.mean(
        [score.low <= truth <= score.high for pair in pairs for score in pair]
    )
    false = np.mean([difference("b", *pair).p < 0.05 for pair in pairs])
    assert covered >= 0.88 and false <= 0.12


def test_decoders_that_share_no_training_are_compared_by_the_paired_t_test_itself() -> (
    None
):
    for run in range(4):
        x, y, names = experiment(run, 9, 40, 8, 0.6)
        rng = np.random.default_rng([8, run])
        seen = (
            x + (0.7 + extra) * rng.standard_normal(x.shape) for extra in (0.0, 1.2)
        )
        split = {"name": "blocked", "folds": 2}
        first, second = (
            nl.decode(
                LinearDiscriminantAnalysis(),
                each,
                y,
                splits=split,
                train="each",
                groups=names,
            )
            for each in seen
        )
        people = [
            score.samples.values.reshape(9, 2).mean(axis=1) for score in (first, second)
        ]
        expected = ttest_1samp(people[0] - people[1], 0)
        found = difference("b", first, second)
        apart = first.uncertainty - second.uncertainty
        assert apart.freedom == pytest.approx(expected.df) == 8
        assert found.value / apart.error == pytest.approx(expected.statistic)


def test_folds_that_train_on_each_other_have_the_factor_of_nadeau_and_bengio() -> None:
    x, y, names = experiment(1, 9, 30, 20, 0.6)
    score = nl.decode(LinearDiscriminantAnalysis(), x, y, groups=names)
    people = score.samples.values[0]
    assert score.uncertainty.variance == pytest.approx(
        (1 + 9 / 8) * people.var(ddof=1) / 9
    )
    assert (
        score.uncertainty.freedom == pytest.approx(8)
        and score.uncertainty.method == "held-out"
    )


def test_training_windows_change_neither_the_value_nor_the_predictions() -> None:
    x, y, names = experiment(3, 6, 20, 8, 0.6)
    score = nl.decode(LinearDiscriminantAnalysis(), x, y, groups=names)
    kept = score.predictions
    assert (
        kept is not None
        and kept.sizes["presentation"] == len(y)
        and "trained" not in kept.attrs
    )
    values = []
    for name in np.unique(names):
        test = names == name
        fitted = LinearDiscriminantAnalysis().fit(x[~test], y[~test])
        values.append((fitted.predict(x[test]) == y[test]).mean())
    assert score.value == pytest.approx(np.mean(values))
