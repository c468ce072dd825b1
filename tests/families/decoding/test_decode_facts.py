"""Tests of facts about windows, types of labels, and forms of splits in `nl.decode`."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold

import neuroledger as nl
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.signals import signals

COUNT = 96
RNG = np.random.default_rng(8)
Y = np.tile(["a", "b"], COUNT // 2)
X = RNG.standard_normal((COUNT, 4)) + (Y == "a")[:, None]
X3 = RNG.standard_normal((COUNT, 3, 20))
SUBJECT = np.repeat([1, 2, 3, 4], COUNT // 4)
SESSION = np.tile(np.repeat(["early", "late"], COUNT // 8), 4)
LR = LogisticRegression()


def test_facts_may_be_a_table_and_sessions_are_separate_recordings():
    table = pd.DataFrame(
        {"subject": SUBJECT, "session": SESSION, "run": 0}, index=range(7, 7 + COUNT)
    )
    score = nl.decode("shrinkage_lda", X3, Y, groups=table, splits="cross_session")
    assert score.n["subject"] == 4
    onset = np.tile(np.arange(COUNT // 8) * 1.0, 8)
    facts = {"subject": SUBJECT, "session": SESSION, "onset": onset}
    timed = nl.decode(
        "shrinkage_lda", X3, Y, groups=facts, splits="cross_session", sampling_rate=20
    )
    assert timed.value == score.value
    with pytest.raises(DataError, match="overlap in time"):
        facts |= {"recording": SUBJECT}
        nl.decode(
            "shrinkage_lda",
            X3,
            Y,
            groups=facts,
            splits="cross_session",
            sampling_rate=20,
        )


def test_the_order_of_dimensions_does_not_matter_to_groups():
    facts = {
        "stimulus_id": np.arange(COUNT),
        "subject": SUBJECT,
        "recording": SUBJECT,
        "onset": np.arange(COUNT),
    }
    x = signals(
        X3,
        channels=list("abc"),
        channel_types="eeg",
        sampling_rate=20,
        start=0,
        units="uV",
        events=facts,
    )
    turned = x.transpose("channel", "sample", "presentation")
    assert (
        nl.decode("shrinkage_lda", turned, Y, groups=SUBJECT).value
        == nl.decode("shrinkage_lda", X3, Y, groups=SUBJECT).value
    )


class Numbers(LogisticRegression):
    """A classifier that accepts only numeric labels, and has no `classes_`."""

    def fit(self, x, y):
        if y.dtype.kind not in "if":
            raise TypeError("labels are numbers")
        self.inner_ = LogisticRegression().fit(x, y)
        return self

    def predict(self, x):
        return self.inner_.predict(x)

    def predict_proba(self, x):
        return self.inner_.predict_proba(x)


def test_labels_that_are_numbers_are_learnt_as_numbers():
    digits = np.arange(COUNT) % 12
    x = np.eye(12)[digits] + 0.1 * RNG.standard_normal((COUNT, 12))
    assert nl.decode(Numbers(), x, digits, splits=4).value == 1.0
    search = GridSearchCV(LR, {"C": [0.1, 1.0]}, scoring="f1", error_score="raise")
    assert nl.decode(search, X, (Y == "a").astype(int), groups=SUBJECT).value > 0.7


def test_windows_of_single_precision_are_not_made_double():
    seen = []

    class Sees(LogisticRegression):
        def fit(self, x, y):
            seen.append(x.dtype)
            return super().fit(x, y)

    for kind in ("f4", "f8", "f2", "i2"):
        nl.decode(Sees(), (10 * X).astype(kind), Y, groups=SUBJECT, splits=2)
    assert [dtype.name for dtype in seen[::2]] == [
        "float32",
        "float64",
        "float64",
        "float64",
    ]


def test_a_column_of_labels_is_labels():
    assert (
        nl.decode(LR, X, Y[:, None], groups=SUBJECT).value
        == nl.decode(LR, X, Y, groups=SUBJECT).value
    )


def test_a_trial_is_on_both_sides_only_if_waived():
    facts = {
        "subject": SUBJECT,
        "trial": np.tile(np.repeat(np.arange(COUNT // 8), 2), 4),
    }
    mixed = KFold(4, shuffle=True, random_state=0)
    with pytest.raises(DataError, match="trial on both sides: 1 trial "):
        nl.decode(LR, X, Y, groups=facts, splits=mixed)
    waived = nl.decode(LR, X, Y, groups=facts, splits=mixed, waive=["overlap"])
    assert "gate waived: overlap" in waived.notes
    assert nl.decode(LR, X, Y, groups=facts, splits="cross_subject").n["subject"] == 4
    again = {
        "subject": SUBJECT,
        "recording": SUBJECT,
        "session": SESSION,
        "trial": np.tile(np.arange(12), 8),
    }
    assert nl.decode(LR, X, Y, groups=again, splits="cross_session").n["subject"] == 4


def test_tested_subjects_that_were_trained_on_are_noted():
    known = nl.decode(
        LR,
        X,
        Y,
        groups={"subject": SUBJECT},
        splits=KFold(3, shuffle=True, random_state=0),
    )
    assert "4 of 4 tested people were trained on too" in known.notes
    for splits in (GroupKFold(2), "cross_subject"):
        new = nl.decode(LR, X, Y, groups={"subject": SUBJECT}, splits=splits)
        assert not any("trained on too" in note for note in new.notes)
    with pytest.raises(DataError, match="subject on both sides"):
        nl.decode(LR, X, Y, groups=SUBJECT, splits={"name": "random", "folds": 3})


def test_equal_embeddings_are_one_stimulus_in_retrieval():
    embeddings = RNG.standard_normal((24, 5))
    stimulus = np.arange(COUNT) % 24
    x = embeddings[stimulus] @ RNG.standard_normal((5, 9)) + 0.1 * RNG.standard_normal(
        (COUNT, 9)
    )
    options = {
        "metric": "top5_retrieval",
        "splits": {"name": "leave_concept_out", "folds": 2},
    }
    score = nl.decode(LinearRegression(), x, embeddings[stimulus], **options)
    assert score.n["stimuli"] == 24
    with pytest.raises(DataError, match="stimulus_id on both sides: window"):
        nl.decode(
            LinearRegression(),
            x,
            embeddings[stimulus],
            groups=SUBJECT,
            metric="top5_retrieval",
        )


def test_a_number_of_numpy_and_the_name_of_a_file_are_splits(tmp_path):
    from neuroledger.families.decoding.protocols.leakage_checks import write_partition
    from neuroledger.families.decoding.protocols.splits import Fold

    folds = nl.decode(LR, X, Y, groups=SUBJECT, splits=2)
    assert nl.decode(LR, X, Y, groups=SUBJECT, splits=np.int64(2)).value == folds.value
    tested = np.isin(SUBJECT, [1, 3])
    parts = [
        Fold(np.flatnonzero(~part), np.empty(0, int), np.flatnonzero(part))
        for part in (tested, ~tested)
    ]
    write_partition(tmp_path / "folds.json", parts, [str(row) for row in range(COUNT)])
    assert (
        nl.decode(LR, X, Y, groups=SUBJECT, splits=str(tmp_path / "folds.json")).value
        == folds.value
    )


@pytest.mark.parametrize(
    ("x", "options", "words"),
    [
        (sparse.csr_matrix(X), {}, "sparse"),
        (X3, {"sampling_rate": "128"}, "sampling_rate is '128'"),
        (X3, {"sampling_rate": float("inf")}, "sampling_rate is inf"),
        (X3, {"start": float("nan")}, "start is nan"),
        (
            X,
            {"splits": [(np.arange(40) + 0.5, np.arange(50, 60))]},
            "are not row numbers",
        ),
        (
            X,
            {"splits": [(np.ones((4, 2), int), np.arange(50, 60))]},
            "are not row numbers",
        ),
    ],
)
def test_invalid_arguments_are_refused(x, options, words):
    with pytest.raises(RequestError, match=words):
        nl.decode("shrinkage_lda", x, Y, **options)


def test_a_score_notes_how_overlap_was_checked():
    def first(x):
        return nl.decode("shrinkage_lda", x, Y, groups=SUBJECT).notes[0]

    assert "shared samples only" in first(X3)
    assert "overlap was not checked" in first(X3[:, :1, :5])
    assert "overlap was not checked" in nl.decode(LR, X, Y, groups=SUBJECT).notes[0]


def test_a_class_of_unused_rows_is_not_a_choice():
    y = np.where(np.arange(COUNT) < 90, Y, "never")
    folds = [(np.arange(60), np.arange(60, 90))]
    x = X3 + 2.0 * (Y == "a")[:, None, None]
    for decoder in ("shrinkage_lda", network()):
        score = nl.decode(decoder, x, y, splits=folds, seeds=(1,))
        assert score.value > 0.7
        assert score.predictions["choice"].values.tolist() == ["a", "b"]


def network():
    import torch
    from torch import nn

    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(60, 2))


def test_row_numbers_of_a_partition_file_may_be_numbers(tmp_path):
    (tmp_path / "folds.json").write_text(
        json.dumps([{"train": list(range(60)), "test": list(range(60, 96))}]),
        encoding="utf-8",
    )
    score = nl.decode(LR, X, Y, splits=tmp_path / "folds.json")
    assert score.value == nl.decode(LR, X, Y, splits=[(range(60), range(60, 96))]).value
