"""Tests of inputs of `nl.decode`: each works or has one clear error, and planted leaks are detected."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, StratifiedKFold
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import neuroledger as nl
from neuroledger.errors import (
    AssemblyError,
    DataError,
    MetricError,
    ModelError,
    RequestError,
)

COUNT = 60
RNG = np.random.default_rng(0)
Y = np.repeat(["rest", "move"], COUNT // 2)[RNG.permutation(COUNT)]
X = RNG.standard_normal((COUNT, 4)) + (Y == "move")[:, None]
WAVE = np.sin(np.arange(32) / 3)
X3 = RNG.standard_normal((COUNT, 4, 32)) + 2 * (Y == "move")[:, None, None] * WAVE
SUBJECT = np.tile(["a", "b", "c"], COUNT // 3)
LABELS = (RNG.random((COUNT, 3)) < 0.4).astype(int)
XL = RNG.standard_normal((COUNT, 6))
XL[:, :3] += 3 * LABELS


class Nearest:
    """Predicts the target of the nearest training window, for labels and texts."""

    def fit(self, x, y):
        self.x, self.y = x.reshape(len(x), -1), y
        return self

    def predict(self, x):
        return np.array(
            [self.y[np.argmin(((self.x - row.ravel()) ** 2).sum(axis=1))] for row in x]
        )


class Answers:
    """Always returns the same predictions, or raises an exception."""

    def __init__(self, thing):
        self.thing = thing

    def fit(self, x, y):
        if isinstance(self.thing, Exception):
            raise self.thing
        return self

    def predict(self, x):
        return self.thing(x) if callable(self.thing) else self.thing


def torch_module():
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(4 * 32, 2))


@pytest.mark.parametrize(
    "y",
    [Y, list(Y), (Y == "move").astype(int), Y == "move", (Y == "move").astype(float)],
)
def test_labels_of_any_kind_give_one_score(y):
    assert nl.decode(LogisticRegression(), X, y).value == pytest.approx(
        nl.decode(LogisticRegression(), X, Y).value
    )


@pytest.mark.parametrize(
    "x", [X.tolist(), pd.DataFrame(X), X.astype("f4").astype(float)]
)
def test_windows_of_any_kind_give_one_score(x):
    expected = nl.decode(LogisticRegression(), X, Y).value
    assert nl.decode(LogisticRegression(), x, Y).value == pytest.approx(expected)


@pytest.mark.parametrize(
    "estimator",
    [make_pipeline(StandardScaler(), LogisticRegression()), SVC(), Nearest()],
)
def test_estimators_with_fit_and_predict_work(estimator):
    assert nl.decode(estimator, X, Y).value > 0.6


def test_a_torch_module_is_trained_on_each_fold_from_its_own_weights():
    module = torch_module()
    before = [value.clone() for value in module.state_dict().values()]
    first = nl.decode(module, X3, Y, seeds=(1, 2))
    assert first.value > 0.7
    assert first.samples.sizes == {"seed": 2, "split": 5}
    assert all(
        (a == b).all()
        for a, b in zip(before, module.state_dict().values(), strict=True)
    )
    np.testing.assert_array_equal(
        nl.decode(module, X3, Y, seeds=(1, 2)).samples.values, first.samples.values
    )
    from torch import nn

    assert nl.decode(nn.Linear(4, 2), X, Y, seeds=(1,)).samples.sizes == {
        "seed": 1,
        "split": 5,
    }


def changed(array, at, value):
    array = np.array(array)
    array[at] = value
    return array


LR = LogisticRegression()
WRONG = {
    "missing value": (AssemblyError, "1 values are missing or infinite", LR, changed(X, (3, 1), np.nan), Y, {}),
    "infinite value": (AssemblyError, "missing or infinite", "shrinkage_lda", changed(X3, (3, 1, 2), np.inf), Y, {}),
    "texts as signals": (AssemblyError, "not numbers", LR, np.full((COUNT, 2), "a"), Y, {}),
    "one dimension": (RequestError, r"not \(60,\)", LR, X[:, 0], Y, {}),
    "four dimensions": (RequestError, "x must be .window, channel, sample", LR, X3[None], Y, {}),
    "no windows": (RequestError, "there is nothing to decode", LR, X[:0], Y[:0], {}),
    "one class": (RequestError, "y has one class, 'rest'", LR, X, np.full(COUNT, "rest"), {}),
    "missing label": (RequestError, "y has 1 missing values", LR, X, changed(Y.astype(object), 0, None), {}),
    "fractions": (RequestError, "y has fractional values", LR, X, X[:, 0], {}),
    "y too short": (RequestError, "y has 59 values for 60 windows", LR, X, Y[:-1], {}),
    "y one value": (RequestError, "y is one value for 60 windows", LR, X, "rest", {}),
    "few windows": (DataError, "recording '1' has 4 trials for 5 folds", LR, X[:4], ["a", "b"] * 2, {}),
    "three dimensions": (ModelError, "x.reshape", LR, X3, Y, {}),
    "a class": (RequestError, "is a class: pass an instance", LogisticRegression, X, Y, {}),
    "nothing": (RequestError, "NoneType has no fit and predict", None, X, Y, {}),
    "unknown decoder": (RequestError, "did you mean 'covariance_logistic'", "covariance_logstic", X3, Y, {}),
    "image model": (RequestError, "it is not a decoder", "gabor", X3, Y, {}),
    "regressor": (ModelError, "classes need a classifier", Answers(lambda x: x[:, 0]), X, Y, {}),
    "raises": (ModelError, "could not be trained on 48 windows: KeyError: 'oops'", Answers(KeyError("oops")), X, Y, {}),
    "answers nothing": (ModelError, r"gave answers \(\)", Answers(None), X, Y, {}),
    "answers too few": (ModelError, "gave 1 answers for 12", Answers(np.array(["rest"])), X, Y, {}),
    "answers others": (ModelError, "is not a class of the training part", Answers(lambda x: np.full(len(x), "x")), X, Y, {}),
    "cannot answer": (ModelError, "could not predict 12 windows: ZeroDivisionError", Answers(lambda x: 1 / 0), X, Y, {}),
    "unknown metric": (RequestError, "no metric 'bal'", LR, X, Y, {"metric": "bal"}),
    "other metric": (RequestError, "does not score predictions", LR, X, Y, {"metric": "pls"}),
    "texts as numbers": (RequestError, "needs numbers", Ridge(), X, Y, {"metric": "decoding_rmse"}),
    "several labels": (RequestError, "use macro_f1", LR, X, LABELS, {}),
    "flat embedding": (RequestError, "y must be .window, dimension", Ridge(), X, X[:, 0], {"metric": "top5_retrieval"}),
    "no dummy": (MetricError, "normalise: the dummy has no score", Ridge(), X, X[:, 0],
                 {"metric": "decoding_pearson_r", "normalise": True}),
    "one fold": (RequestError, "greater than or equal to 2", LR, X, Y, {"splits": 1}),
    "share as splits": (RequestError, "splits is 0.3", LR, X, Y, {"splits": 0.3}),
    "unknown rule": (RequestError, "cross_subject", LR, X, Y, {"splits": "loso"}),
    "misspelt field": (RequestError, "fold: there is no such field", LR, X, Y, {"splits": {"name": "blocked", "fold": 3}}),
    "no file": (RequestError, "does not exist", LR, X, Y, {"splits": Path("/nowhere.json")}),
    "no pairs": (RequestError, "row numbers", LR, X, Y, {"splits": [np.arange(9)]}),
    "splitter": (RequestError, "KFold cannot divide", LR, X[:9], Y[:9], {"splits": KFold(30)}),
    "rows outside": (DataError, "rows outside 0…59", LR, X, Y, {"splits": [(range(50), [50, 99])]}),
    "one subject": (DataError, "1 values of 'subject'", LR, X, Y, {"splits": "cross_subject"}),
    "groups too short": (RequestError, "one value for each of 60", LR, X, Y, {"groups": SUBJECT[:-1]}),
    "missing group": (RequestError, "subject has missing values", LR, X, Y, {"groups": [None, *SUBJECT[1:]]}),
    "unknown cluster": (MetricError, "no coordinate 'subjct'", LR, X, Y, {"cluster": "subjct"}),
    "unknown unit": (RequestError, "per: 'person' is not one of", LR, X, Y, {"per": "person"}),
    "no seeds": (RequestError, "at least one training seed", LR, X, Y, {"seeds": ()}),
    "bare seed": (RequestError, r"a list of training seeds, such as \(3,\)", LR, X, Y, {"seeds": 3}),
    "negative seed": (RequestError, "non-negative whole numbers", LR, X, Y, {"seed": -1}),
    "unknown gate": (RequestError, "no gate ovrlap; there are overlap", LR, X, Y, {"waive": ["ovrlap"]}),
    "unknown fact": (RequestError, "windows have no word", LR, X, Y, {"apart": ["word"]}),
    "no rate": (RequestError, "sampling_rate is 0", "shrinkage_lda", X3, Y, {"sampling_rate": 0}),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(WRONG))
def test_invalid_inputs_have_one_clear_error(case):
    kind, words, estimator, x, y, options = WRONG[case]
    with warnings.catch_warnings(), pytest.raises(kind, match=words):
        warnings.simplefilter("ignore")
        nl.decode(estimator, x, y, **options)


@pytest.mark.parametrize("splitter", [GroupKFold(3), LeaveOneGroupOut()])
def test_splitters_that_know_groups_pass(splitter):
    assert nl.decode(LR, X, Y, groups=SUBJECT, splits=splitter).n["subject"] == 3


def test_splitters_that_do_not_know_groups_are_stopped():
    with pytest.raises(DataError, match="subject on both sides: a, b, c"):
        nl.decode(LR, X, Y, groups=SUBJECT, splits=StratifiedKFold(3))


def test_a_subject_in_two_spellings_is_one_subject():
    spelt = np.where(np.arange(COUNT) % 2, "S1", " s1")
    spelt[:20] = "S2"
    with pytest.raises(
        DataError, match=r"one subject in two spellings on both sides: .*'S1'"
    ):
        nl.decode(LR, X, Y, groups=spelt)


@pytest.mark.parametrize("twin", ["sub-01", "SUB-1", "01", "subject 1"])
def test_a_subject_with_and_without_prefix_and_zeros_is_one_subject(twin):
    people = np.where(np.arange(COUNT) < 30, "1", "2").astype("U9")
    people[:10] = twin
    with pytest.raises(DataError, match="one subject in two spellings on both sides"):
        nl.decode(LR, X, Y, groups=people)
    people[:10] = "11"
    assert nl.decode(LR, X, Y, groups=people).n["subject"] == 3


def overlapping():
    """Windows of 32 samples with a stride of 8 from one noise signal, labelled in blocks."""
    noise = np.random.default_rng(1).standard_normal((4, 32 + 8 * (COUNT - 1)))
    return np.stack([noise[:, 8 * k : 8 * k + 32] for k in range(COUNT)])


def stored(values, facts):
    from neuroledger.families.signals.signals import signals

    channels = [f"c{number}" for number in range(values.shape[1])]
    return signals(
        values,
        channels=channels,
        channel_types="eeg",
        sampling_rate=1,
        start=0,
        units="uV",
        events=facts,
    )


def test_windows_that_share_samples_are_found_without_any_onset():
    x = overlapping()
    with pytest.raises(
        DataError,
        match="tested windows overlap with trained ones, whose samples they hold",
    ):
        nl.decode("shrinkage_lda", x, Y, splits=KFold(5, shuffle=True, random_state=0))
    with pytest.raises(DataError, match="whose samples they hold"):
        nl.decode(
            "shrinkage_lda",
            x,
            Y,
            groups={"recording": np.arange(COUNT)},
            splits=KFold(5),
        )
    waived = nl.decode("shrinkage_lda", x, Y, splits=KFold(5), waive=["overlap"])
    assert "gate waived: overlap" in waived.notes


@pytest.mark.parametrize("at_once", [1 << 22, 40])
def test_shared_samples_are_found_at_every_offset_and_not_where_there_are_none(
    at_once, monkeypatch
):
    from neuroledger.families.decoding.protocols import leakage_checks as shared_samples
    from neuroledger.families.decoding.protocols.splits import Fold

    monkeypatch.setattr(shared_samples, "IN_MEMORY", at_once)
    none = np.empty(0, dtype=np.intp)
    noise = np.random.default_rng(2).standard_normal((7, 500)).astype("f4")
    for step in (1, 3, 17, 60, 61, 62):
        pair = np.stack([noise[:, :63], noise[:, step : step + 63]])
        facts = {
            "stimulus_id": ["x", "y"],
            "subject": "1",
            "recording": "1",
            "onset": [0.0, 9.0],
        }
        facts = {name: np.broadcast_to(value, 2) for name, value in facts.items()}
        for fold in (
            Fold(np.array([0]), none, np.array([1])),
            Fold(none, np.array([1]), np.array([0])),
        ):
            hits = shared_samples.Sharing(stored(pair, facts), [fold]).hits(0)
            assert hits.tolist() == (fold.test.tolist() if 63 - step >= 3 else [])
    counts = np.random.default_rng(3).poisson(0.3, (8, 5, 40)).astype(float)
    facts = {
        name: np.repeat(["1"], 8) for name in ("stimulus_id", "subject", "recording")
    }
    assembly = stored(counts, {**facts, "onset": np.arange(8.0)})
    fold = Fold(np.arange(4), none, np.arange(4, 8))
    assert shared_samples.Sharing(assembly, [fold]).hits(0).tolist() == []
    monkeypatch.setattr(
        shared_samples, "COARSE", 1.0
    )  # without the rule, chance would be taken for overlap
    assert len(shared_samples.Sharing(assembly, [fold]).hits(0)) > 0


def test_the_same_windows_under_other_names_are_found():
    x, y = np.concatenate([X3, X3]), np.concatenate([Y, Y])
    people = np.repeat(["first", "second"], COUNT)
    with pytest.raises(
        DataError, match="60 tested windows have the samples of a trained one"
    ):
        nl.decode("shrinkage_lda", x, y, groups=people)


def test_one_file_under_two_names_is_found():
    rng = np.random.default_rng(4)
    facts = {
        "subject": SUBJECT,
        "recording_sha256": np.where(SUBJECT == "c", "0" * 64, "1" * 64),
    }
    with pytest.raises(
        DataError, match="one recording under the names of several subjects: a and b"
    ):
        nl.decode(
            "shrinkage_lda",
            rng.standard_normal((COUNT, 4, 32)),
            Y,
            groups=facts,
            splits="cross_subject",
        )


def test_validation_is_kept_from_the_test_as_training_is():
    rows = np.arange(COUNT)
    with pytest.raises(DataError, match="rows in two parts"):
        nl.decode(LR, X, Y, splits=[(rows[:30], rows[30:45], rows[40:])])
    with pytest.raises(DataError, match="subject on both sides: c"):
        test, watched = (
            np.flatnonzero(SUBJECT == "c")[:10],
            np.flatnonzero(SUBJECT == "c")[10:],
        )
        nl.decode(
            LR,
            X,
            Y,
            groups=SUBJECT,
            splits=[(np.flatnonzero(SUBJECT != "c"), watched, test)],
        )


STIMULI = np.repeat(np.arange(20), 3)
EMBEDDINGS = np.random.default_rng(5).standard_normal((20, 6))
SHOWN = EMBEDDINGS[STIMULI] @ np.random.default_rng(6).standard_normal((6, 8))
SHOWN = SHOWN + 0.1 * np.random.default_rng(7).standard_normal(SHOWN.shape)


def retrieve(splits, **options):
    facts = {"stimulus_id": STIMULI, "subject": SUBJECT}
    metric = options.pop("metric", "top5_retrieval")
    return nl.decode(
        Ridge(),
        SHOWN,
        EMBEDDINGS[STIMULI],
        metric=metric,
        groups=facts,
        splits=splits,
        **options,
    )


def test_retrieval_keeps_concepts_apart_unless_waived():
    with pytest.raises(DataError, match="stimulus_id on both sides"):
        retrieve({"name": "random", "folds": 3})
    score = retrieve({"name": "leave_concept_out", "folds": 3})
    assert score.value > 0.9
    noise = nl.decode(
        Ridge(),
        np.random.default_rng(8).standard_normal((COUNT, 8)),
        EMBEDDINGS[STIMULI],
        metric="top1_retrieval",
        groups={"stimulus_id": STIMULI, "subject": SUBJECT},
        splits={"name": "leave_concept_out", "folds": 2},
    )
    assert noise.value < 0.4
    assert (
        "gate waived: concepts"
        in retrieve({"name": "random", "folds": 3}, waive=["concepts"]).notes
    )


def test_k_must_be_smaller_than_the_number_of_candidates():
    with pytest.raises(
        MetricError, match="any answer is among the best 5 of 5 candidates"
    ):
        retrieve({"name": "leave_concept_out", "folds": 4})


@pytest.mark.parametrize(
    "estimator",
    [
        MultiOutputClassifier(LogisticRegression()),
        RandomForestClassifier(30, random_state=0),
    ],
)
def test_several_labels_at_once_from_estimators_that_answer_in_lists(estimator):
    score = nl.decode(estimator, XL, LABELS, metric="macro_f1")
    shuffled = nl.decode(estimator, XL, LABELS, metric="macro_f1", shuffle_labels=True)
    assert score.value > 0.75
    assert score.low > shuffled.value


def test_texts_are_decoded_and_scored_by_edits():
    texts = np.array(["the dog ran", "a cat sat", "go home now"] * 20)
    x = 0.3 * np.random.default_rng(9).standard_normal((COUNT, 4))
    x[np.arange(COUNT), np.arange(COUNT) % 3] += 3
    assert nl.decode(Nearest(), x, texts, metric="word_error_rate").value == 0
    dummy = nl.decode("dummy", x, texts, metric="character_error_rate")
    assert 0.5 < dummy.value <= 1
    better = nl.decode(Nearest(), x, texts, metric="word_error_rate", normalise=True)
    assert better.value == 1


@pytest.mark.parametrize(
    "metric", ["decoding_rmse", "decoding_r2", "decoding_pearson_r", "decoding_mae"]
)
def test_several_numbers_at_once(metric):
    true = X[:, :2] @ np.array([[1.0, 0.5], [0.2, 2.0]])
    score = nl.decode(Ridge(alpha=1e-6), X, true, metric=metric)
    assert score.value == pytest.approx(
        1.0 if metric in ("decoding_r2", "decoding_pearson_r") else 0.0, abs=1e-3
    )
