"""Tests that channels that encode the label are named, but not noise, planted signals and good features."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import neuroledger as nl
from neuroledger.errors import AssemblyError, RequestError
from neuroledger.families.decoding.protocols.leakage_checks import label_channels
from tests.families.decoding.decoding_cases import windows

RNG = np.random.default_rng(4)


def with_channel(assembly, channel, values):
    changed = assembly.copy()
    changed.values[:, channel] = values
    return changed


def test_triggers_and_targets_are_named():
    clean = windows(subjects=3, trials=20, strength=3.0)
    labels = clean["label"].values.astype(str)
    assert label_channels(clean, labels) == []
    code = np.where(labels == "a", 5.0, 9.0)
    assert label_channels(with_channel(clean, 2, code[:, None]), labels) == ["C2"]
    pulse = np.zeros((60, 16))
    pulse[:, 7] = code
    assert label_channels(with_channel(clean, 1, pulse), labels) == ["C1"]
    numbers = RNG.standard_normal(60)
    assert label_channels(clean, numbers) == []
    assert label_channels(
        with_channel(clean, 0, 3 - 2 * numbers[:, None]), numbers
    ) == ["C0"]
    assert label_channels(with_channel(clean, 0, code[:, None])[:15], labels[:15]) == []
    assert label_channels(with_channel(clean, 0, 1.0), labels) == []


def test_the_score_says_that_the_answer_is_in_the_data():
    y = np.tile(["a", "b", "c"], 20)
    x = RNG.standard_normal((60, 4))
    x[:, 1] = np.unique(y, return_inverse=True)[1]
    score = nl.decode(LogisticRegression(C=100), x, y)
    assert "the answer is written in the data: channel1 tells it alone" in score.notes
    assert not any(
        "written in the data" in note
        for note in nl.decode(LogisticRegression(), x[:, 2:], y).notes
    )
    numbers = nl.decode(Ridge(), x, 2.0 * x[:, 3], metric="decoding_pearson_r")
    assert "the answer is written in the data: channel3 tells it alone" in numbers.notes


def test_imaginary_numbers_and_numbers_for_texts_are_refused():
    y = np.tile(["a", "b"], 30)
    with pytest.raises(AssemblyError, match="complex128, not real numbers"):
        nl.decode(LogisticRegression(), RNG.standard_normal((60, 4)) + 1j, y)
    with pytest.raises(RequestError, match="needs one text for each window"):
        nl.decode(
            "dummy",
            RNG.standard_normal((60, 4)),
            np.arange(60),
            metric="word_error_rate",
        )
