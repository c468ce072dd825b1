"""Tests of nl.decode on arrays and signals: scores against a manual computation, gates, and no stale results."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import LeaveOneGroupOut, StratifiedKFold

import neuroledger as nl
from neuroledger.errors import DataError, RequestError
from neuroledger.families.decoding.protocols.leakage_checks import write_partition
from neuroledger.families.decoding.protocols.splits import Fold
from tests.families.decoding.decoding_cases import windows


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    y = np.tile(["rest", "move"], 45)
    x = rng.standard_normal((90, 5)) + 0.7 * (y == "move")[:, None]
    return x, y, np.repeat(list("abcdef"), 15)


def test_the_number_is_scikit_learns(arrays):
    x, y, people = arrays
    score = nl.decode(LogisticRegression(), x, y, groups=people)
    values = [
        balanced_accuracy_score(
            y[test], LogisticRegression().fit(x[train], y[train]).predict(x[test])
        )
        for train, test in LeaveOneGroupOut().split(x, y, people)
    ]
    assert score.value == pytest.approx(np.mean(values))
    np.testing.assert_allclose(score.samples.values[0], values)
    assert score.low < score.value < score.high
    assert score.n["subject"] == 6
    predictions = score.predictions
    assert predictions.sizes["presentation"] == 90
    assert set(predictions["truth"].values) == {"rest", "move"}
    assert score.scale == "accuracy"


def test_zero_is_the_dummy(arrays):
    x, y, people = arrays
    plain = nl.decode(LogisticRegression(), x, y, groups=people)
    score = nl.decode(LogisticRegression(), x, y, groups=people, normalise=True)
    dummy = score.n["dummy"]
    assert score.value == pytest.approx((plain.value - dummy) / (1 - dummy))
    assert score.raw == pytest.approx(plain.value)
    assert score.low == pytest.approx((plain.low - dummy) / (1 - dummy))


def test_changed_data_seed_or_splits_give_a_new_score(arrays):
    x, y, people = arrays
    one = nl.decode(LogisticRegression(), x, y, groups=people)
    assert nl.decode(LogisticRegression(), x, y, groups=people).value == one.value
    moved = x.copy()
    moved[:30] *= -1
    assert nl.decode(LogisticRegression(), moved, y, groups=people).value != one.value
    assert nl.decode(LogisticRegression(), x, y, splits=5).value != one.value
    first = nl.decode(LogisticRegression(), x, y, groups=people, shuffle_labels=True)
    second = nl.decode(
        LogisticRegression(), x, y, groups=people, shuffle_labels=True, seed=1
    )
    assert first.value != second.value


def test_the_given_estimator_is_not_changed(arrays):
    x, y, people = arrays
    estimator = LogisticRegression()
    nl.decode(estimator, x, y, groups=people)
    assert not hasattr(estimator, "coef_")


def test_subjects_on_both_sides_are_a_leak(arrays):
    x, y, people = arrays
    with pytest.raises(DataError, match="rows in two parts"):
        nl.decode(LogisticRegression(), x, y, splits=[(range(40), range(30, 90))])
    twin = x.copy()
    twin[80] = twin[3]
    with pytest.raises(DataError, match="samples of a trained one"):
        nl.decode(LogisticRegression(), twin, y, groups=people)


def test_a_subject_on_both_sides_is_a_leak_for_any_kind_of_split(arrays, tmp_path):
    x, y, people = arrays
    wrong = [(np.arange(0, 90, 2), np.arange(1, 90, 2))]
    with pytest.raises(DataError, match="subject on both sides: a, b, c"):
        nl.decode(LogisticRegression(), x, y, groups=people, splits=wrong)
    with pytest.raises(DataError, match="subject on both sides"):
        nl.decode(LogisticRegression(), x, y, groups=people, splits=StratifiedKFold(4))
    empty = np.empty(0, int)
    write_partition(
        tmp_path / "s.json",
        [Fold(wrong[0][0], empty, wrong[0][1])],
        [str(i) for i in range(90)],
    )
    with pytest.raises(DataError, match="subject on both sides"):
        nl.decode(LogisticRegression(), x, y, groups=people, splits=tmp_path / "s.json")
    facts = {"subject": people, "mood": np.tile(["gay", "sad", "odd"], 30)}
    with pytest.raises(DataError, match="mood on both sides: gay"):
        nl.decode(LogisticRegression(), x, y, groups=facts, apart=["mood"])


def test_splitters_of_scikit_learn_are_accepted(arrays):
    x, y, people = arrays
    ours = nl.decode(LogisticRegression(), x, y, groups=people)
    theirs = nl.decode(
        LogisticRegression(), x, y, groups=people, splits=LeaveOneGroupOut()
    )
    assert ours.value == theirs.value
    assert (
        nl.decode(LogisticRegression(), x, y, groups=people, splits=3).samples.sizes[
            "split"
        ]
        == 3
    )


def test_masks_are_row_numbers(arrays):
    x, y, _ = arrays
    mask = np.arange(90) < 60
    masked = nl.decode(LogisticRegression(), x, y, splits=[(mask, ~mask)])
    assert (
        masked.value
        == nl.decode(
            LogisticRegression(), x, y, splits=[(range(60), range(60, 90))]
        ).value
    )


def test_windows_that_overlap_in_time_are_a_leak():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 2, 50))
    y = np.tile(["a", "b"], 20)
    onset = np.arange(40) * 0.25
    ridge = LogisticRegression()
    flat = Flat(ridge)
    groups = {"onset": onset}
    with pytest.raises(DataError, match="overlap in time"):
        nl.decode(
            flat,
            x,
            y,
            groups=groups,
            splits=[(range(20), range(20, 40))],
            sampling_rate=50,
        )
    nl.decode(
        flat, x, y, groups=groups, splits=[(range(16), range(20, 40))], sampling_rate=50
    )
    purged = {"name": "blocked", "folds": 4, "purge": 1.0}
    score = nl.decode(flat, x, y, groups=groups, splits=purged, sampling_rate=50)
    assert 0 <= score.value <= 1


class Flat:
    """A linear classifier on windows (channel, sample)."""

    def __init__(self, inner):
        self.inner = inner

    def fit(self, x, y):
        self.inner.fit(x.reshape(len(x), -1), y)
        self.classes_ = self.inner.classes_
        return self

    def predict(self, x):
        return self.inner.predict(x.reshape(len(x), -1))


def test_partition_files_are_used_and_checked(arrays, tmp_path):
    x, y, _ = arrays
    folds = [Fold(np.arange(60), np.empty(0, int), np.arange(60, 90))]
    write_partition(tmp_path / "splits.json", folds, [str(i) for i in range(90)])
    score = nl.decode(LogisticRegression(), x, y, splits=tmp_path / "splits.json")
    assert score.n["windows"] == 30
    assert (
        score.value
        == nl.decode(
            LogisticRegression(), x, y, splits=[(range(60), range(60, 90))]
        ).value
    )


def test_numbers_are_decoded_as_numbers(arrays):
    x, _, people = arrays
    score = nl.decode(
        Ridge(), x, 3 * x[:, 0] + 1, groups=people, metric="decoding_pearson_r"
    )
    assert score.value > 0.99
    assert score.scale == "correlation"
    error = nl.decode(
        Ridge(),
        x,
        3 * x[:, 0] + 1,
        groups=people,
        metric="decoding_rmse",
        normalise=True,
    )
    assert error.value > 0.9


def test_signals_and_names_of_decoders():
    assembly = windows(subjects=4, trials=20, strength=2.0)
    score = nl.decode("shrinkage_lda", assembly, "label", splits="cross_subject")
    assert score.value > 0.9
    assert score.n["subject"] == 4
    dummy = nl.decode("dummy", assembly, "label", splits="cross_subject")
    assert dummy.value == 0.5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "pls"}, "does not score predictions"),
        ({"splits": {"name": "cross_mood"}}, "cross_mood"),
        ({"splits": {"name": "cross_subject", "fold": 3}}, "fold"),
        ({"groups": np.arange(3)}, "one value for each of 90"),
        ({"splits": [(range(3),)]}, "row numbers"),
        (
            {
                "splits": {"name": "cross_subject", "sha256": "0" * 64},
                "groups": np.repeat(list("abcdef"), 15),
            },
            "pinned is",
        ),
    ],
)
def test_wrong_requests_have_clear_errors(arrays, options, words):
    x, y, _ = arrays
    with pytest.raises(RequestError, match=words):
        nl.decode(LogisticRegression(), x, y, **options)


def test_fractions_are_not_classes(arrays):
    x, _, _ = arrays
    with pytest.raises(RequestError, match="decoding_pearson_r"):
        nl.decode(LogisticRegression(), x, x[:, 0])
    with pytest.raises(RequestError, match="no fit and predict"):
        nl.decode(object(), x, np.tile(["a", "b"], 45))
