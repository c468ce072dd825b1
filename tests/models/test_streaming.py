"""Activations are streamed in checked batches, and the next stimuli are announced while a batch is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError
from neuroledger.models import readout
from neuroledger.models.activations import (
    BATCH_BYTES,
    MAX_BATCH,
    Probe,
    Trial,
    batch_bytes,
    batch_size,
    probe,
    stream,
)
from tests.models.drawn_stimuli import drawn


class Numbers:
    """Each stimulus is answered with its number plus 100 for each trial; announced stimuli are stored."""

    def __init__(self) -> None:
        self.announced: list[tuple[StimulusSet, list[str]]] = []

    def __call__(
        self,
        stimuli: StimulusSet,
        ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> dict[str, Any]:
        values = np.array([[float(id[1:]) + 100 * trial.number] for id in ids])
        return dict.fromkeys(layers, values)

    def ahead(self, stimuli: StimulusSet, ids: Sequence[str]) -> None:
        self.announced.append((stimuli, list(ids)))


def test_batches_go_through_all_stimuli_once_per_trial_and_announce_the_next() -> None:
    extract, stimuli = Numbers(), drawn(5)
    seen = probe(extract, stimuli, ["units"], model="m")
    once = [
        batch["units"][:, 0].tolist()
        for batch in stream(extract, stimuli, seen, model="m", batch=2)
    ]
    assert once == [[0, 1], [2, 3], [4]]
    assert extract.announced == [(stimuli, ["s002", "s003"]), (stimuli, ["s004"])]
    twice = stream(extract, stimuli, seen, model="m", batch=5, trials=2)
    assert [batch["units"][:, 0].tolist() for batch in twice] == [
        [0, 1, 2, 3, 4],
        [100, 101, 102, 103, 104],
    ]


def test_only_a_deterministic_model_must_not_depend_on_the_batch() -> None:
    def extract(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> Any:
        return dict.fromkeys(layers, np.full((len(ids), 1), float(len(ids))))

    stimuli = drawn(4)
    seen = probe(extract, stimuli, ["units"], model="m")
    with pytest.raises(ModelError, match="when others are shown with it"):
        list(stream(extract, stimuli, seen, model="m"))
    (batch,) = stream(extract, stimuli, seen, model="m", stochastic=True)
    assert batch["units"].tolist() == [[4.0]] * 4


def test_a_probe_refuses_a_varying_model_unless_it_is_stochastic() -> None:
    calls = iter(range(10))

    def extract(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> Any:
        return dict.fromkeys(layers, np.full((len(ids), 1), next(calls) + 1.0))

    with pytest.raises(ModelError, match="declare it stochastic"):
        probe(extract, drawn(2), ["units"], model="m")
    assert probe(extract, drawn(2), ["units"], model="m", stochastic=True).shapes == {
        "units": (1,)
    }


def test_a_batch_fills_its_bytes_and_is_counted_twice() -> None:
    def of(features: int) -> Probe:
        return Probe(
            {"a": (features,), "b": (2, features)},
            dict.fromkeys("ab", np.dtype("f8")),
            0.0,
            {},
        )

    assert of(5).bytes_per_stimulus == 15 * 8
    assert batch_size(of(5)) == MAX_BATCH
    assert batch_bytes(of(5)) == 2 * MAX_BATCH * 15 * 8
    large = of(BATCH_BYTES // 24 // 10)
    assert batch_size(large) == 10
    assert batch_size(of(BATCH_BYTES)) == 1


def test_decisions_are_labelled_with_their_stimuli() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(6, 3))
    probabilities = readout.probabilities(
        features, ["b", "a"] * 3, features[:2], ["s1", "s2"]
    )
    assert probabilities.dims == ("presentation", "choice")
    assert probabilities["stimulus_id"].values.tolist() == ["s1", "s2"]
    assert probabilities["choice"].values.tolist() == ["b", "a"], (
        "in order of first occurrence"
    )
    labels = readout.label(
        np.array([[3, 9, 2], [1, 5, 7]]),
        ["s1", "s2"],
        ["z", "x"],
        model="m",
        labels=["x", "y", "z"],
    )
    assert labels.values.tolist() == ["x", "z"], "y is not among the choices"
    assert labels["stimulus_id"].values.tolist() == ["s1", "s2"]


def test_similarity_is_the_dot_product_unless_cosine_is_requested() -> None:
    # The third vector is long: it has the largest dot products, but another direction than the first two.
    features = np.array([[1.0, 0.1], [1.0, 0.0], [9.0, 9.0]])
    assert readout.odd_one_out(features, ["a", "b", "c"]).values.tolist() == ["b"]
    assert readout.odd_one_out(
        features, ["a", "b", "c"], similarity="cosine"
    ).values.tolist() == ["c"]


def test_ranges_of_classes_include_their_last() -> None:
    assert readout.CATEGORIES["bear"] == (294, 295, 296, 297)
    assert readout.CATEGORIES["bicycle"] == (444, 671)
    assert readout.CATEGORIES["elephant"] == (385, 386)
    assert len(readout.CATEGORIES["dog"]) == 40 + 11 + 22 + 14 + 8 + 6 + 1 + 3 + 4
