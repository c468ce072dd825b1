"""A layered model answers for its committed layers, its answers are checked, and it has no state between questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import LimitError, ModelError, RequestError
from neuroledger.models.activations import (
    MAX_BATCH,
    REPEATABLE,
    Passes,
    Probe,
    Trial,
    differing,
)
from neuroledger.models.model import LayeredModel, Model, Task
from neuroledger.spec.channels import STIMULI
from tests.models.drawn_stimuli import drawn

Array = NDArray[Any]


def answers(
    stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
) -> dict[str, Array]:
    """Number of the stimulus times 1000 plus place in the layer; ``maps`` is (2, 3, 4), ``units`` is (5,)."""
    numbers = np.array([int(name[1:]) for name in ids], dtype=float)
    every = {
        "maps": numbers[:, None, None, None] * 1000 + np.arange(24).reshape(2, 3, 4),
        "units": numbers[:, None] * 1000 + np.arange(5),
    }
    return {layer: every[layer] for layer in layers}


def layered(extract: Any = answers, **options: Any) -> LayeredModel:
    given: dict[str, Any] = {
        "layers": ("maps", "units"),
        "regions": {"V4": "maps", "IT": "units"},
        **options,
    }
    return LayeredModel(id="m", takes=STIMULI, extract=extract, **given)


def test_two_answers_differ_by_their_largest_difference_in_units_of_the_largest_number() -> (
    None
):
    one, same = (
        {"a": np.zeros((2, 2)), "b": np.array([[4.0, -8.0]])},
        np.array([[4.0, -8.0]]),
    )
    assert differing(one, {"a": np.zeros((2, 2)), "b": same}) is None, (
        "silence is repeated silence"
    )
    assert (
        differing(one, {"a": np.zeros((2, 2)), "b": same + 8 * 0.99 * REPEATABLE})
        is None
    )
    assert (
        differing(one, {"a": np.zeros((2, 2)), "b": same + 8 * 1.01 * REPEATABLE})
        == "b"
    )
    assert differing(one, {"a": np.full((2, 2), 1e-30), "b": same}) == "a"
    assert differing(one, {"a": np.zeros((2, 3)), "b": same}) == "a"


def test_it_is_a_model() -> None:
    assert isinstance(layered(), Model)


def test_responses_have_the_position_of_every_neuroid() -> None:
    response = layered().record(drawn(3), "V4")
    assert response.dims == ("presentation", "neuroid")
    assert list(response["stimulus_id"].values) == ["s000", "s001", "s002"]
    row = response.isel(presentation=2)
    for neuroid in (0, 7, 23):
        channel, x, y = (
            int(response[name].values[neuroid])
            for name in ("channel", "channel_x", "channel_y")
        )
        assert (
            row.values[neuroid] == 2000 + np.arange(24).reshape(2, 3, 4)[channel, x, y]
        )
    assert response["neuroid_id"].values[23] == "m.maps.23"
    assert set(response["region"].values) == {"V4"}


def test_several_layers_are_concatenated() -> None:
    response = layered(regions={"IT": ("units", "maps")}).record(drawn(2), "IT")
    assert list(response["layer"].values) == ["units"] * 5 + ["maps"] * 24
    assert np.isnan(response["channel"].values[:5]).all()
    assert list(response.values[1, 4:7]) == [1004, 1000, 1001]


def test_stimuli_come_in_batches_of_bounded_size_and_in_order() -> None:
    sizes: list[int] = []

    def extract(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> dict[str, Array]:
        sizes.append(len(ids))
        return answers(stimuli, ids, layers, trial)

    response = layered(extract).record(drawn(2 * MAX_BATCH + 3, size=(2, 2)), "IT")
    assert max(sizes) == MAX_BATCH
    assert list(response.values[:, 0]) == [1000 * n for n in range(2 * MAX_BATCH + 3)]


def test_a_single_layer_answers_for_every_region() -> None:
    model = layered(layers=("units",), regions={})
    assert model.record(drawn(1), "V1").sizes["neuroid"] == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"regions": {"V4": "map"}},
            "region V4: it records no layer 'map' .did you mean maps",
        ),
        (
            {"readout": "unit"},
            "readout: it records no layer 'unit' .did you mean units",
        ),
        ({"layers": ()}, "has no layers"),
    ],
)
def test_layers_that_do_not_exist_are_refused_with_near_misses(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        layered(**change)


def test_regions_without_commitment_are_refused() -> None:
    with pytest.raises(
        RequestError, match=r"commits no layer to region 'V44' .did you mean V4"
    ):
        layered().record(drawn(1), "V44")


def broken(change: Callable[[Array], Array], *, after: int = 0) -> Any:
    """Answers to which ``change`` is applied from the call number ``after`` on."""
    calls = iter(range(1000))

    def extract(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> dict[str, Array]:
        good = answers(stimuli, ids, layers, trial)
        return (
            good
            if next(calls) < after
            else {layer: change(values) for layer, values in good.items()}
        )

    return extract


def spoilt(values: Array) -> Array:
    values = values.copy()
    values[-1, 0] = np.nan
    return values


@pytest.mark.parametrize(
    ("change", "after", "words"),
    [
        (spoilt, 0, "NaN or infinite activations for 1 of 2 stimuli, first 's001'"),
        (spoilt, 2, "NaN or infinite activations"),
        (
            lambda a: a[:1],
            0,
            r"expected an array \(2 stimuli, features\), got \(1, 5\)",
        ),
        (lambda a: a[:, 0], 0, "expected an array"),
        (lambda a: a.astype(str), 0, "not real numbers"),
        (lambda a: a[:, :-1], 2, "preprocessing that makes all images the same size"),
        (lambda a: a + 1, 1, "answered the same stimuli differently"),
        (lambda a: a + 1, 3, "answered the same stimuli differently"),
    ],
)
def test_unusable_answers_are_refused(
    change: Callable[[Array], Array], after: int, words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        layered(broken(change, after=after)).record(drawn(3), "IT")


def test_an_answer_without_the_layer_is_refused() -> None:
    with pytest.raises(ModelError, match="returned no layer 'units', only other"):
        layered(lambda *_: {"other": np.ones((2, 2))}).record(drawn(3), "IT")


def test_stochastic_models_answer_once_per_trial() -> None:
    def extract(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> dict[str, Array]:
        return {
            layer: values + trial.number / 10
            for layer, values in answers(stimuli, ids, layers, trial).items()
        }

    response = layered(extract, stochastic=True).record(drawn(2), "IT", trials=3)
    assert list(response["repetition"].values) == [0, 0, 1, 1, 2, 2]
    assert list(response["stimulus_id"].values) == ["s000", "s001"] * 3
    assert np.allclose(response.values[:, 0], [0, 1000, 0.1, 1000.1, 0.2, 1000.2])
    assert "repetition" not in layered().record(drawn(2), "IT", trials=3).coords


def test_a_model_without_time_gives_the_same_answer_in_every_bin() -> None:
    response = layered().record(drawn(2), "IT", time_bins=[(70, 90), (90, 110)])
    assert response.dims == ("presentation", "neuroid", "time_bin")
    assert (response.values[..., 0] == response.values[..., 1]).all()
    assert list(response["time_bin_end"].values) == [90, 110]
    assert "dynamics" not in layered().gives


def test_a_model_in_time_is_resampled_to_the_requested_bins() -> None:
    def extract(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> dict[str, Array]:
        units = answers(stimuli, ids, ["units"], trial)["units"]
        return {"units": np.stack([units, units + 100, units + 200], axis=1)}

    model = layered(
        extract, layers=("units",), regions={}, times=((0, 50), (50, 100), (100, 150))
    )
    assert "dynamics" in model.gives
    response = model.record(drawn(2), "IT", time_bins=[(0, 100), (75, 125)])
    assert np.allclose(response.values[1, 3], [1003 + 50, 1003 + 150])
    assert np.allclose(model.record(drawn(2), "IT").values[1, 3], 1003 + 100)
    with pytest.raises(
        ModelError,
        match="gives no response for 100–200 ms; its time bins cover 0–150 ms",
    ):
        model.record(drawn(2), "IT", time_bins=[(100, 200)])
    with pytest.raises(ModelError, match="3 time steps for 2 declared"):
        layered(
            extract, layers=("units",), regions={}, times=((0, 50), (50, 100))
        ).record(drawn(2), "IT")


class Memory:
    """A store in memory that counts what it is given."""

    def __init__(self) -> None:
        self.kept: dict[Any, Array] = {}
        self.passes: list[list[str]] = []

    def get(
        self, identity: Mapping[str, Any], stimuli: StimulusSet, layers: Sequence[str]
    ) -> dict[str, Array]:
        found = {
            layer: self.kept.get((repr(identity), stimuli.content_sha256, layer))
            for layer in layers
        }
        return {layer: values for layer, values in found.items() if values is not None}

    def put(
        self,
        identity: Mapping[str, Any],
        stimuli: StimulusSet,
        probe: Probe,
        rows: int,
        passes: Passes,
        *,
        model: str,
    ) -> dict[str, Array]:
        self.passes.append(list(probe.shapes))
        parts = list(passes())
        for layer in probe.shapes:
            values = np.concatenate([part[layer] for part in parts])
            self.kept[repr(identity), stimuli.content_sha256, layer] = values
        return self.get(identity, stimuli, list(probe.shapes))

    def join(self, arrays: Sequence[Array]) -> Array:
        return np.concatenate(arrays, axis=1)

    def computing(
        self, identity: Mapping[str, Any], stimuli: StimulusSet
    ) -> AbstractContextManager[None]:
        return nullcontext()


def test_one_pass_serves_all_layers_regions_and_tasks() -> None:
    store = Memory()
    model = layered(store=store, identity={"builder": "test"})
    stimuli = drawn(6)
    for region in ("V4", "IT", "V4"):
        model.record(stimuli, region)
    model.perform(Task("odd_one_out"), stimuli)
    assert store.passes == [["maps", "units"]]
    model.record(drawn(6, seed=1), "V4")
    assert len(store.passes) == 2


def test_a_model_in_memory_that_has_changed_is_asked_again() -> None:
    store, shift = Memory(), [0.0]

    def extract(
        stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> dict[str, Array]:
        return {
            layer: values + shift[0]
            for layer, values in answers(stimuli, ids, layers, trial).items()
        }

    model = layered(extract, store=store, identity=lambda: {"process": "here"})
    model.record(drawn(3), "IT")
    model.record(drawn(3), "IT")
    assert len(store.passes) == 1
    shift[0] = 7.0
    assert model.record(drawn(3), "IT").values[0, 0] == 7.0
    assert len(store.passes) == 2


def test_probabilities_are_read_out_from_fitting_stimuli() -> None:
    labels = ["low"] * 10 + ["high"] * 10
    model = layered(readout="units")
    fitting = drawn(20, id="fit", columns={"object_name": labels})
    given = model.perform(
        Task("probabilities", label_column="object_name"), drawn(20), fitting
    )
    assert list(given["choice"].values) == ["low", "high"]
    assert np.allclose(given.sum("choice"), 1)
    chosen = given["choice"].values[given.values.argmax(axis=1)]
    assert list(chosen) == labels
    with pytest.raises(RequestError, match="need fitting stimuli"):
        model.perform(Task("probabilities"), drawn(3))
    with pytest.raises(RequestError, match="no column 'image_label'"):
        model.perform(Task("probabilities"), drawn(3), fitting)


def test_the_odd_one_out_uses_the_triplets_and_the_similarity_of_the_task() -> None:
    features = np.array([[1.0, 0], [10, 10], [2, 0], [9, 11]])

    def extract(
        stimuli: Any, ids: Sequence[str], layers: Any, trial: Any
    ) -> dict[str, Array]:
        return {"units": features[[int(name[1:]) for name in ids]]}

    model = layered(extract, layers=("units",), regions={})
    triplets = (("s000", "s001", "s002"), ("s003", "s001", "s000"))
    chosen = {
        similarity: model.perform(
            Task("odd_one_out", triplets=triplets, similarity=similarity), drawn(4)
        ).values.tolist()
        for similarity in ("cosine", "dot")
    }
    assert chosen == {"cosine": ["s001", "s000"], "dot": ["s000", "s000"]}


def test_labels_come_from_the_logits_and_other_decisions_from_the_readout() -> None:
    asked: list[str] = []

    def extract(
        stimuli: Any, ids: Sequence[str], layers: Sequence[str], trial: Any
    ) -> dict[str, Array]:
        asked.extend(layers)
        return {layer: np.tile(np.arange(1000.0), (len(ids), 1)) for layer in layers}

    model = layered(
        extract, layers=("a", "b", "c"), regions={}, readout="a", logits="b"
    )
    for task, layer in (
        (Task("label", choices=("imagenet",)), "b"),
        (Task("odd_one_out"), "a"),
    ):
        asked.clear()
        model.perform(task, drawn(3))
        assert set(asked) == {layer}


def test_responses_in_time_that_do_not_fit_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def extract(stimuli: Any, ids: Any, layers: Any, trial: Any) -> dict[str, Any]:
        return {
            "state": np.ones((len(ids), 2, 1000), dtype=np.float32)
            * np.arange(2)[:, None]
        }

    model = LayeredModel(
        id="m",
        takes=STIMULI,
        extract=extract,
        layers=("state",),
        times=((0, 10), (10, 20)),
    )
    monkeypatch.setattr("neuroledger.data.memory.available_bytes", lambda: 100_000)
    with pytest.raises(
        LimitError,
        match="1,000 features in 3 time bins for 5 presentations needs about",
    ):
        model.record(drawn(5), "IT", [(0, 10), (0, 20), (10, 20)])


def noisy(
    stimuli: StimulusSet, ids: Sequence[str], layers: Sequence[str], trial: Trial
) -> dict[str, Array]:
    """Answers that grow by 1 from trial to trial."""
    return {
        layer: values + trial.number
        for layer, values in answers(stimuli, ids, layers, trial).items()
    }


def test_a_stochastic_model_answers_once_unless_trials_are_requested() -> None:
    model = layered(noisy, stochastic=True)
    assert model.activations(drawn(2), ["units"])["units"][:, 0].tolist() == [0, 1000]
    assert model.record(drawn(2), "IT").sizes["presentation"] == 2
    assert model.activations(drawn(2), ["units"], 2)["units"][:, 0].tolist() == [
        0,
        1000,
        1,
        1001,
    ]


def test_decisions_average_the_features_over_trials() -> None:
    turns = {
        "s000": [[1, 0], [1, 0]],
        "s001": [[1, 0], [0, 9]],
        "s002": [[1, 0], [1, 1]],
    }

    def extract(
        stimuli: Any, ids: Sequence[str], layers: Any, trial: Trial
    ) -> dict[str, Array]:
        return {
            "units": np.array([turns[name][trial.number] for name in ids], dtype=float)
        }

    model = layered(extract, layers=("units",), regions={}, stochastic=True)
    task = Task(
        "odd_one_out", similarity="cosine", triplets=(("s000", "s001", "s002"),)
    )
    # The means are (1, 0), (0.5, 4.5) and (1, 0.5): the second is odd. All are equal in the first trial.
    assert model.perform(task, drawn(3), trials=2).values.tolist() == ["s001"]
    assert model.perform(task, drawn(3)).values.tolist() == ["s002"]


@pytest.mark.parametrize(
    ("identity", "stochastic", "calls"),
    [
        ({"builder": "x"}, False, 0),
        ({"process": "x"}, True, 0),
        ({"process": "x"}, False, 1),
    ],
)
def test_only_a_deterministic_model_in_memory_is_compared_with_its_stored_answers(
    identity: dict[str, Any], stochastic: bool, calls: int
) -> None:
    asked: list[int] = []

    def extract(*question: Any) -> dict[str, Array]:
        asked.append(1)
        return answers(*question)

    model = layered(extract, store=Memory(), identity=identity, stochastic=stochastic)
    first = model.record(drawn(3), "IT")
    asked.clear()
    assert np.array_equal(model.record(drawn(3), "IT"), first)
    assert len(asked) == calls
