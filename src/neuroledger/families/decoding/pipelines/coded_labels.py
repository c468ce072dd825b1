"""Classes as numbers for an estimator of scikit-learn that mistakes texts such as `13` for numbers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from neuroledger.data.arrays import Array

__all__ = ["CodedLabels"]


class CodedLabels(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is trained on the numbers of the classes in sorted order, and answers with the classes.

    scikit-learn 1.9's `LogisticRegressionCV` refuses balanced weights for texts that look like integers.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, x: Array, y: Array) -> Self:
        """Fit to features (window, feature) and classes (window,)."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.estimator_ = clone(self.estimator).fit(x, codes)
        return self

    def predict(self, x: Array) -> Array:
        """The class of each row."""
        return np.asarray(self.classes_[self.estimator_.predict(x)])

    def predict_proba(self, x: Array) -> Array:
        """The probability of each class, (window, class), in the order of `classes_`."""
        return np.asarray(self.estimator_.predict_proba(x))
