"""Tests that intervals of decoders include the correlation of folds by shared training data."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from neuroledger.families.decoding.metrics.shared_training import training_variance
from scipy.stats import ttest_1samp
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import neuroledger as nl
from neuroledger.stats.differences import difference
from neuroledger.stats.score import Score

Floats = npt.NDArray[np.float64]


def experiment(run: int, subjects: int, trials: int, features: int, effect: float) -> tuple[Floats, ...]:
    """Simulated windows (window, feature) of subjects; classes differ along a direction that most subjects share."""
    rng = np.random.default_rng([run, subjects, features])
    side = np.tile([-1.0, 1.0], (subjects, trials // 2))
    own = effect * (1 + 0.6 * rng.standard_normal((subjects, 1, features))) / np.sqrt(features)
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
        nl.decode(estimator or LinearDiscriminantAnalysis(), each, y, groups=names).replace(
            population=f"lab{run}"
        )
        for each in seen
    ]


def shared_variance(score: Score) -> float:
    """Ratio of the variance of the interval to that of the subjects' scores, minus one."""
    each = score.samples.values[0]
    return float(score.spread.variance / (each.var(ddof=1) / len(each))) - 1


@pytest.mark.parametrize(("subjects", "features", "effect"), [(6, 8, 0.6), (9, 60, 0.6), (20, 8, 0.0)])
def test_coverage_and_equal_decoders(subjects: int, features: int, effect: float) -> None:
    scores = [two_models(run, subjects, 20, features, effect) for run in range(60)]
    truth = np.mean([score.value for pair in scores for score in pair])
    covered = np.mean([score.low <= truth <= score.high for pair in scores for score in pair])
    false = np.mean([difference("b", *pair).p < 0.05 for pair in scores])
    assert covered >= 0.88 and false <= 0.12


def test_equal_decoders_that_change_much_with_each_subject_seldom_differ() -> None:
    """By what does not generalise alone, intervals of trees of two levels covered .82, and 10 of 60 trees differed."""
    pairs = [
        two_models(run, 20, 30, 8, 1.0, estimator=DecisionTreeClassifier(max_depth=2, random_state=0))
        for run in range(60)
    ]
    truth = np.mean([score.value for pair in pairs for score in pair])
    covered = np.mean([score.low <= truth <= score.high for pair in pairs for score in pair])
    false = np.mean([difference("b", *pair).p < 0.05 for pair in pairs])
    assert covered >= 0.88 and false <= 0.12


def test_a_better_decoder_is_found_nearly_as_often_as_by_a_paired_t_test() -> None:
    ours, paired = [], []
    for run in range(60):
        first, second = two_models(run, 20, 30, 8, 0.6, more=1.2)
        ours.append(difference("b", first, second).p < 0.05)
        paired.append(ttest_1samp((first.samples - second.samples).values[0], 0).pvalue < 0.05)
    assert np.mean(paired) > 0.5
    assert np.mean(ours) >= 0.9 * np.mean(paired)


def test_decoders_that_share_no_training_are_compared_by_the_paired_t_test_itself() -> None:
    for run in range(4):
        x, y, names = experiment(run, 9, 40, 8, 0.6)
        rng = np.random.default_rng([8, run])
        seen = (x + (0.7 + extra) * rng.standard_normal(x.shape) for extra in (0.0, 1.2))
        split = {"name": "blocked", "folds": 2}
        first, second = (
            nl.decode(LinearDiscriminantAnalysis(), each, y, splits=split, train="each", groups=names)
            for each in seen
        )
        people = [score.samples.values.reshape(9, 2).mean(axis=1) for score in (first, second)]
        expected = ttest_1samp(people[0] - people[1], 0)
        found = difference("b", first, second)
        assert (first.spread - second.spread).freedom == expected.df == 8
        # Joint draws give the variance of a difference to a few per cent.
        assert found.value / (first.spread - second.spread).error == pytest.approx(
            expected.statistic, rel=0.1
        )


def test_shared_training_counts_for_memorised_noise_but_not_for_generalisation() -> None:
    def variance(effect: float, estimator: object) -> float:
        x, y, names = experiment(1, 9, 30, 20, effect)
        return shared_variance(nl.decode(estimator, x, y, groups=names))

    assert variance(0.0, KNeighborsClassifier(1)) > 0.9  # all training windows right, chance on the others
    assert variance(1.6, LinearDiscriminantAnalysis()) < 0.1


def test_training_windows_change_neither_the_value_nor_the_predictions() -> None:
    x, y, names = experiment(3, 6, 20, 8, 0.6)
    score = nl.decode(LinearDiscriminantAnalysis(), x, y, groups=names)
    kept = score.samples.attrs["predictions"]
    assert kept.sizes["presentation"] == len(y) and "trained" not in kept.attrs
    values = []
    for name in np.unique(names):
        test = names == name
        fitted = LinearDiscriminantAnalysis().fit(x[~test], y[~test])
        values.append((fitted.predict(x[test]) == y[test]).mean())
    assert score.value == pytest.approx(np.mean(values))


def effects_and_noise(run: int, folds: int, effect: float, relation: float) -> tuple[Floats, Floats, float]:
    """Simulated scores of folds, what decoders recall of other folds, and the mean tested score.

    Each fold changes every decoder that is trained on it by ``effect`` (a standard deviation), which is correlated with its
    own score by ``relation``, and changes the score of every single fold by another number.
    """
    rng = np.random.default_rng([run, folds, 11])
    own = rng.standard_normal(folds)
    learnt = effect * (relation * own + np.sqrt(1 - relation**2) * rng.standard_normal(folds))
    single = 0.5 * effect * rng.standard_normal((folds, folds))  # (trained, scored)
    by_all = learnt.sum() + single.sum(axis=0)
    recalled = own + by_all - learnt[:, None] - single  # decoder k lacks fold k
    tested = recalled.diagonal().copy()
    np.fill_diagonal(recalled, np.nan)
    return tested, recalled, float(tested.mean())


@pytest.mark.parametrize(("effect", "relation"), [(0.0, 0.0), (0.1, 0.0), (0.1, 0.7), (0.2, -0.5)])
def test_what_folds_add_to_decoders_is_the_variance_beyond_that_of_tested_folds(
    effect: float, relation: float
) -> None:
    found, errors, tested_only, means = [], [], [], []
    for run in range(4000):
        tested, recalled, mean = effects_and_noise(run, 8, effect, relation)
        variance = float(tested.var(ddof=1)) / len(tested)
        taught = training_variance(tested, recalled, 1e9)
        found.append(taught.variance)
        errors.append(taught.error)
        tested_only.append(variance)
        means.append(mean)
    truth = np.var(means)
    assert np.mean(found) + np.mean(tested_only) == pytest.approx(truth, rel=0.05)
    assert np.mean(found) == pytest.approx(6 * effect**2 + 2 * relation * effect, abs=0.01), "closed form"
    assert np.std(found) == pytest.approx(np.mean(errors), rel=0.35)


def test_some_of_many_folds_show_what_each_of_them_teaches() -> None:
    """With many folds, decoders are compared on some of these only: columns of the others are unknown."""
    found, some = [], []
    for run in range(1500):
        tested, recalled, _ = effects_and_noise(run, 20, 0.1, 0.3)
        found.append(training_variance(tested, recalled, 1e9).variance)
        recalled[:, np.arange(20) % 3 > 0] = np.nan
        some.append(training_variance(tested, recalled, 1e9).variance)
    expected = 18 * 0.1**2 + 2 * 0.3 * 0.1
    assert np.mean(found) == pytest.approx(expected, rel=0.06)
    assert np.mean(some) == pytest.approx(expected, rel=0.08)


def test_the_covariance_with_tested_folds_is_bounded_by_both_variances() -> None:
    for run in range(20):
        tested, recalled, _ = effects_and_noise(run, 6, 0.3, 0.9)
        alone = training_variance(0 * tested, recalled, 1e9).variance
        assert training_variance(tested, recalled, 0.0).variance == pytest.approx(alone), (
            "no variance, no covariance"
        )
        most = 2 * np.sqrt(max(alone, 0.0) * 0.01)
        assert abs(training_variance(tested, recalled, 0.01).variance - alone) <= most + 1e-12


def test_few_folds_and_folds_without_others_add_nothing() -> None:
    tested, recalled, _ = effects_and_noise(1, 3, 0.3, 0.5)
    assert training_variance(tested, recalled, 1.0) == (0.0, 0.0)
    tested, recalled, _ = effects_and_noise(1, 6, 0.3, 0.5)
    later = np.where(np.arange(6)[:, None] > np.arange(6), recalled, np.nan)  # trained on earlier folds only
    assert np.isfinite(training_variance(tested, later, 1.0)).all()
    assert training_variance(tested, np.full((6, 6), np.nan), 1.0) == (0.0, 0.0)


def rare_classes(run: int, subjects: int, trials: int) -> tuple[Floats, ...]:
    """Simulated windows of four classes of unequal size, whose means differ between subjects."""
    rng = np.random.default_rng([run, subjects, trials, 12])
    means = 0.5 * np.random.default_rng(5).standard_normal((4, 8))
    parts = []
    for _ in range(subjects):
        label = rng.choice(4, trials, p=[0.1, 0.2, 0.3, 0.4])
        own = means + 0.3 * rng.standard_normal((4, 8))
        parts.append((label, own[label] + 1.2 * rng.standard_normal((trials, 8))))
    labels, x = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    return x, np.array(list("abcd"))[labels], np.repeat([f"{run}p{i}" for i in range(subjects)], trials)


def test_the_error_of_an_f1_contains_what_each_subject_teaches() -> None:
    larger = 0
    for run in range(6):
        x, y, names = rare_classes(run, 7, 40)
        score = nl.decode(LinearDiscriminantAnalysis(), x, y, groups=names, metric="macro_f1")
        people = np.unique(names)
        recalled = np.full((7, 7), np.nan)
        train_scores = []
        for i, left in enumerate(people):
            train = names != left
            fitted = LinearDiscriminantAnalysis().fit(x[train], y[train])
            train_scores.append(f1_score(y[train], fitted.predict(x[train]), average="macro"))
            for j, other in enumerate(people):
                if i != j:
                    of = names == other
                    recalled[i, j] = f1_score(y[of], fitted.predict(x[of]), average="macro")
        tested = score.samples.values[0]
        variance = tested.var(ddof=1) / 7
        lacking = 1 - (tested.mean() - 0.25) / (np.mean(train_scores) - 0.25)
        taught = training_variance(tested, recalled, variance)
        learnt = taught.variance / variance
        unsure = np.clip(0.7 * (taught.error / variance - 2), 0, 4)
        share = max(np.clip(lacking, 0, 1), min(learnt, 1.0), unsure)
        larger += learnt > lacking
        assert score.spread.variance == pytest.approx((1 + share) * variance, rel=1e-6)
        # A difference has the square of the one term, or half of what is certain of the other, or what is uncertain of it.
        certain = min(learnt - taught.error / variance / 2, 1.0)
        apart = max(np.clip(lacking, 0, 1) ** 2, certain / 2, unsure)
        alone = score.influence().factors["subject"].variance
        assert alone == pytest.approx((1 + apart) * variance, rel=1e-6)
    assert 0 < larger < 6, "both terms occur"
