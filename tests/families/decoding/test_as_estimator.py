"""Declared decoders and metrics as parts of scikit-learn: they pass its checks, and give the numbers that it gives."""

from __future__ import annotations

import doctest
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import estimator_checks_generator

import neuroledger as nl
from neuroledger.engine import bound_metric
from neuroledger.errors import RequestError
from neuroledger.families.decoding import as_estimator


def windows(seed: int = 0) -> tuple[Any, Any]:
    """60 windows of 4 channels and 50 samples; the power of one channel tells the label."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(["left", "right"], 30)
    signals = rng.normal(size=(60, 4, 50))
    signals[labels == "left", 1] *= 2
    return signals, labels


def test_a_decoder_passes_the_checks_of_scikit_learn() -> None:
    estimator = nl.as_estimator("shrinkage_lda")
    for one, check in estimator_checks_generator(estimator):
        check(one)


def test_a_declared_pipeline_is_cross_validated_with_a_declared_metric() -> None:
    signals, labels = windows()
    estimator = nl.as_estimator("moabb.CSP_LDA")
    scorer = nl.metric("balanced_accuracy").as_scorer()
    scores = cross_val_score(estimator, signals, labels, cv=3, scoring=scorer)
    assert scores.mean() > 0.9
    fitted = estimator.fit(signals, labels)
    assert fitted.predict(signals[:2]).tolist() == ["left", "left"]
    assert fitted.predict_proba(signals).shape == (60, 2)


def test_scorers_agree_with_those_of_scikit_learn() -> None:
    x, y = make_classification(90, 8, n_informative=4, n_classes=3, random_state=0)
    for estimator in (LogisticRegression(), LinearSVC()):
        ours = nl.metric("balanced_accuracy").as_scorer()
        found = cross_val_score(estimator, x, y, scoring=ours)
        expected = cross_val_score(estimator, x, y, scoring="balanced_accuracy")
        np.testing.assert_allclose(found, expected)
    x, y = make_regression(60, 5, noise=30, random_state=0)
    found = cross_val_score(
        Ridge(), x, y, scoring=nl.metric("decoding_rmse").as_scorer()
    )
    expected = cross_val_score(Ridge(), x, y, scoring="neg_root_mean_squared_error")
    np.testing.assert_allclose(found, expected)
    fitted = Ridge().fit(x, np.stack([y, -y, x[:, 0]], axis=1))
    scorer = nl.metric("rdm").as_scorer()
    assert scorer(fitted, x, fitted.predict(x)) == pytest.approx(1)


@pytest.mark.parametrize("module", [as_estimator, bound_metric])
def test_the_examples_hold(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted >= 4 and found.failed == 0


def test_what_is_no_decoder_of_classes_is_refused() -> None:
    with pytest.raises(RequestError, match="decodes no classes"):
        nl.as_estimator("pixels16")
    with pytest.raises(ValueError, match="one class"):
        nl.as_estimator("shrinkage_lda").fit(np.ones((4, 2)), np.ones(4))
