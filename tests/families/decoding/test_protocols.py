"""Tests of one decoder per subject or session, and of the folds of MOABB's protocols."""

import json

import numpy as np
import pytest
from pyriemann.classification import MDM
from pyriemann.estimation import Covariances
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline

import neuroledger as nl
from neuroledger.errors import DataError, RequestError
from tests.golden import moabb_cases

X, Y, SUBJECT, SESSION = moabb_cases.people()
FACTS = {"subject": SUBJECT, "session": SESSION}
KNOWN = json.loads(moabb_cases.GOLDEN.read_text())["folds"]
RULES = {
    "within_session": ({"name": "within_session"}, "each"),
    "cross_session": ({"name": "cross_session"}, "each"),
    "cross_subject": ({"name": "cross_subject"}, "pooled"),
    "cross_subject_folds": (
        {"name": "cross_subject", "folds": 2, "balance": True},
        "pooled",
    ),
    "calibration": ({"name": "cross_subject", "calibration": {"share": 0.2}}, "pooled"),
    "learning_curve": (
        {"name": "learning_curve", "sizes": [0.3, 1.0], "permutations": 2},
        "each",
    ),
}


def folds(name):
    from neuroledger.families.decoding.decode_inputs import (
        assemble,
        facts_of,
        partition,
    )

    facts, _ = facts_of(X, FACTS)
    assembly, truth = assemble(
        X, Y, facts, 128.0, 0.0, "classification", "balanced_accuracy"
    )
    assembly = assembly.assign_coords(label=("presentation", truth))
    rule, train = RULES[name]
    return partition(rule, assembly, truth, grouped=False, train=train).folds


@pytest.mark.parametrize("name", RULES)
def test_folds_are_those_of_moabb(name):
    parts = (
        ("train", "calibration", "test") if name == "calibration" else ("train", "test")
    )
    actual = [[getattr(fold, part).tolist() for part in parts] for fold in folds(name)]
    assert sorted(actual) == sorted(KNOWN[name]) and len(actual) > 1


@pytest.mark.parametrize("name", ["within_session", "cross_session"])
def test_each_subject_has_its_own_decoder(name):
    estimator = make_pipeline(Covariances("oas"), MDM())
    score = nl.decode(
        estimator, X, Y, groups=FACTS, splits=RULES[name][0], train="each"
    )
    trained = score.predictions
    known = {}
    for train, test in KNOWN[name]:
        fitted = clone(estimator).fit(X[train], Y[train])
        known |= dict(zip(test, fitted.predict(X[test]).tolist(), strict=True))
        assert len(set(SUBJECT[[*train, *test]])) == 1
    labels = trained["choice"].values[trained.values.argmax(axis=1)]
    assert {
        int(row): str(label)
        for row, label in zip(trained["row"].values, labels, strict=True)
    } == known
    assert (
        f"one decoder for each {'subject and session' if name == 'within_session' else 'subject'}"
        in score.notes
    )


def test_different_subjects_are_decoded_by_their_own_decoders_but_not_by_a_pooled_one():
    rng = np.random.default_rng(0)
    y = np.tile(["a", "b"], 40)
    person, session = np.repeat(["1", "2"], 40), np.tile(np.repeat(["x", "y"], 20), 2)
    x = rng.standard_normal((80, 3))
    x[:, 0] += np.where(y == "a", 1, -1) * np.where(person == "1", 2.0, -2.0)
    asked = {
        "groups": {"subject": person, "session": session},
        "splits": "cross_session",
    }
    assert nl.decode(LinearDiscriminantAnalysis(), x, y, **asked).value < 0.75
    each = nl.decode(LinearDiscriminantAnalysis(), x, y, train="each", **asked)
    assert each.value > 0.9
    # Subjects share no training data, so that the interval is not widened.
    assert not any("widened" in note for note in each.notes)


def test_subjects_with_one_session_are_excluded_from_cross_session_and_named():
    keep = ~((SUBJECT == "2") & (SESSION == "1"))
    facts = {name: values[keep] for name, values in FACTS.items()}
    score = nl.decode(
        make_pipeline(Covariances("oas"), MDM()),
        X[keep],
        Y[keep],
        groups=facts,
        splits="cross_session",
        train="each",
    )
    assert "1 of 3 people are not tested: 2" in score.notes
    alone = SESSION == "0"
    with pytest.raises(DataError, match="no subject has more than one session"):
        nl.decode(
            "shrinkage_lda",
            X[alone],
            Y[alone],
            groups={k: v[alone] for k, v in FACTS.items()},
            splits="cross_session",
            train="each",
        )


def test_a_rule_that_holds_out_subjects_refuses_one_decoder_for_each():
    with pytest.raises(RequestError, match="tests subjects without training windows"):
        nl.decode(
            "shrinkage_lda", X, Y, groups=FACTS, splits="cross_subject", train="each"
        )
    with pytest.raises(RequestError, match="train: each needs a rule"):
        nl.decode(
            "shrinkage_lda",
            X,
            Y,
            groups=FACTS,
            splits=[(np.arange(60), np.arange(60, 120))],
            train="each",
        )


def test_labelled_calibration_may_not_overlap_with_test_windows():
    facts = {**FACTS, "onset": np.tile(np.arange(20) * 0.1, 6)}
    rule = {"name": "cross_subject", "calibration": {"share": 0.5, "labels": True}}
    with pytest.raises(DataError, match="overlap in time"):
        nl.decode("shrinkage_lda", X, Y, groups=facts, splits=rule, sampling_rate=128.0)
    nl.decode(
        "shrinkage_lda",
        X,
        Y,
        groups=facts,
        splits={**rule, "calibration": {"share": 0.5}},
        sampling_rate=128.0,
    )
