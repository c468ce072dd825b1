"""Tests that a fold must train at least two classes, and every class that it tests."""

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.decoding.protocols.leakage_checks import gate
from neuroledger.families.decoding.protocols.splits import Fold
from tests.families.decoding.decoding_cases import windows


def fold(train: np.ndarray, test: np.ndarray) -> Fold:
    return Fold(train, np.empty(0, dtype=np.intp), test)


def test_training_on_one_class_is_refused() -> None:
    assembly = windows()
    labels = assembly["label"].values.astype(str)
    first = assembly["subject"].values == "S0"
    (a,) = np.nonzero(~first & (labels == "a"))
    (tested,) = np.nonzero(first & (labels == "a"))
    with pytest.raises(DataError, match="fewer than two classes to train on"):
        gate([fold(a, tested)], assembly, labels=labels)
    both = np.flatnonzero(~first)
    gate([fold(both, tested)], assembly, labels=labels)


def test_a_class_that_is_only_tested_is_named() -> None:
    assembly = windows()
    labels = assembly["label"].values.astype(str)
    labels[assembly["subject"].values == "S0"] = "c"
    train, test = np.flatnonzero(labels != "c"), np.flatnonzero(labels == "c")
    with pytest.raises(DataError, match="classes tested but never trained: c"):
        gate([fold(train, test)], assembly, labels=labels)
