"""Scores after their ceilings: the peer's numbers where they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.stats.score import counts_in_words, normalise
from tests.golden.behaviour_cases import object_trials


@pytest.mark.parametrize("level", ["i1", "i2n", "o2"])
def test_halves_are_ceiled_one_by_one_as_the_peer_does(level: str) -> None:
    model, trials = object_trials(np.random.default_rng(1))
    raw, ceiling = nl.metric(level)(model, trials), nl.ceiling(level)(trials)
    assert raw.samples is not None and ceiling.samples is not None
    assert (ceiling.samples.values > 0).all()
    halves = raw.samples.values / np.sqrt(ceiling.samples.values)
    theirs = normalise(raw, ceiling, compat="brainscore")
    assert theirs.value == pytest.approx(halves.mean(), rel=1e-12)
    assert theirs.error == pytest.approx(halves.std(), rel=1e-12)
    ours = normalise(raw, ceiling)
    assert ours.value == pytest.approx(raw.value / np.sqrt(ceiling.value), rel=1e-12)
    assert ours.value != theirs.value


def test_counts_are_read_as_words():
    counts = {"stimuli": 100, "split": 10, "neuroid": 1, "time_bin": 7, "samples": 64, "dummy": 0.5}
    assert counts_in_words(counts) == [
        "100 stimuli", "10 splits", "1 neuroid", "7 time bins", "64 samples", "0.5 dummy",
    ]  # fmt: skip
