"""Compatibility of models and benchmarks follows from declared channels, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.gate.validate import validate
from neuroledger.data.integrity import absent
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.measurement import Measurement
from neuroledger.engine.plan import (
    Plan,
    fits,
    interface,
    lacking,
    plan,
    require_compatible,
    some,
)
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import ModelError, RequestError, UnavailableError
from neuroledger.models.model import Model, Task, perform, record
from neuroledger.spec import registry
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.components import Builder
from neuroledger.stats.score import Score
from tests.engine.lab import Lab

BUILDERS = {
    "seer": ({"images"}, {"responses:V4"}),
    "hearer": ({"sound"}, {"responses"}),
    "decider": ({"images"}, {"decisions:label"}),
    "learner": ({"signals", "training"}, {"decoded:classification"}),
}


@pytest.fixture
def plugins(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Builders of a plugin that must not be called, one model of each, and a paradigm that records responses."""
    for kind in registry.FOLDERS:
        registry.discover(kind)
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    def never(*, id: str) -> Model:
        raise AssertionError(f"{id} was built")

    for name, (takes, gives) in BUILDERS.items():
        registry.builder(name, version=1, takes=takes, gives=gives)(never)
        lab.spec("models", name, builder={"name": name})

    @registry.paradigm(
        "watching",
        version=1,
        shows={"stimuli"},
        asks={"responses:V4"},
        itself=True,
        permuted="target",
    )
    def watching(model: Model, data: Dataset) -> Measurement:
        assert data.stimuli is not None and data.assembly is not None
        target = (
            data.assembly.groupby("stimulus_id")
            .mean()
            .rename(stimulus_id="presentation")
        )
        target = target.assign_coords(
            stimulus_id=("presentation", target["presentation"].values)
        )
        target = target.drop_vars("presentation").assign_coords(
            {n: data.assembly[n] for n in ("neuroid_id", "region")}
        )
        text = data.stimuli.select([str(id) for id in target["stimulus_id"].values])
        return Measurement(record(model, text, "V4"), target, data.assembly)

    yield lab


def test_incompatible_pairs_are_reported_once_per_model_and_missing_channel() -> None:
    lacks = {("m", f"b{number}"): "images" for number in range(4)}
    (line,) = Plan((), lacks | {("n", "b0"): "text"}).notes()
    assert (
        line
        == "skipped 5 incompatible pairs: m lacks images for b0, b1, b2 and 1 more; n lacks text for b0"
    )
    (line,) = Plan((), {("n", "b0"): "text"}).notes()
    assert line == "skipped 1 incompatible pair: n lacks text for b0"
    assert list(Plan(()).notes()) == [] and some(["a", "b", "c"]) == "a, b, c"


def test_pairs_are_decided_without_building_anything(plugins: Lab) -> None:
    catalog = plugins.open()
    assert fits(catalog, "seer", "lab.V4-ridge")
    assert lacking(catalog, "hearer", "lab.V4-ridge") == ["images"]
    assert lacking(catalog, "decider", "lab.V4-ridge") == ["responses:V4"]
    requested = plan(
        catalog, models=list(BUILDERS), benchmarks=["lab.V4-ridge"], request=Request()
    )
    assert [job.model for job in requested.jobs] == ["seer"]
    assert set(requested.incompatible) == {
        (name, "lab.V4-ridge") for name in ("hearer", "decider", "learner")
    }
    (line,) = requested.notes()
    assert line.startswith(
        "skipped 3 incompatible pairs: hearer lacks images for lab.V4-ridge; "
    )
    validate(catalog, "lab")
    with pytest.raises(
        RequestError,
        match="it takes sound and gives responses; the benchmark shows images",
    ):
        evaluate(Session(catalog), catalog.benchmark("lab.V4-ridge"), "hearer")
    with pytest.raises(AssertionError, match="seer was built"):
        evaluate(Session(catalog), catalog.benchmark("lab.V4-ridge"), "seer")


def test_a_new_modality_is_a_declared_channel(plugins: Lab) -> None:
    """A data set of sounds is for models that take sound, with the paradigm and methods that images have."""
    plugins.dataset(stimuli="sound")
    catalog = plugins.open()
    fitting = {
        name for name in catalog.ids("models") if fits(catalog, name, "lab.V4-ridge")
    }
    assert fitting == {"hearer", "noise"}
    assert lacking(catalog, "seer", "lab.V4-ridge") == ["sound"]


def test_the_kind_of_stimuli_does_not_change_the_identity_of_a_record(lab: Lab) -> None:
    def identity() -> str:
        return (
            plan(
                lab.open(),
                models=["noise"],
                benchmarks=["lab.V4-ridge"],
                request=Request(),
            )
            .jobs[0]
            .id
        )

    before = identity()
    lab.dataset(stimuli="film")
    assert identity() == before


def test_a_region_without_a_layer_is_another_channel(lab: Lab) -> None:
    lab.spec(
        "models",
        "other",
        builder={"name": "pixels", "size": 4},
        regions={"IT": "pixels"},
    )
    catalog = lab.open()
    assert not plan(
        catalog, models=["other"], benchmarks=["lab.V4-ridge"], request=Request()
    ).jobs
    with pytest.raises(
        RequestError,
        match=r"gives .*responses:IT; .* commit a layer .*`regions: {V4: <layer>}`",
    ):
        require_compatible(catalog, "lab.V4-ridge", "other")


def test_a_paradigm_of_a_plugin_keeps_its_controls(plugins: Lab) -> None:
    plugins.benchmark("lab.watched", paradigm={"name": "watching"})
    catalog = plugins.open()
    validate(catalog, "lab")
    done = evaluate(Session(catalog), catalog.benchmark("lab.watched"), "pixels4")
    assert set(done.controls) >= {"noise", "itself", "permuted"}
    own = evaluate(Session(catalog), catalog.benchmark("lab.V4-ridge"), "pixels4")
    assert done.headline.value == pytest.approx(own.headline.value, rel=1e-9)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (
            {"takes": {"image"}, "gives": {"responses"}},
            r"builder 'x': no channel 'image'; did you mean 'images'",
        ),
        (
            {"takes": {"images"}, "gives": {"answer:forecast"}},
            "no channel 'answer:forecast'; did you mean 'answers'",
        ),
        ({"takes": {"images"}, "gives": {"responses:"}}, "no channel 'responses:'"),
        (
            {"takes": {"images:left"}, "gives": {"responses"}},
            "no channel 'images:left'",
        ),
        (
            {"takes": set(), "gives": {"responses"}},
            "builder 'x': no channel is declared",
        ),
    ],
)
def test_the_vocabulary_is_closed(declared: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        registry.builder("x", version=1, **declared)
    with pytest.raises(TypeError, match="gives"):
        registry.builder("x", version=1, takes={"images"})  # type: ignore[call-arg]


def test_declared_interface_functions_must_use_the_vocabulary() -> None:
    component = Builder(
        "x",
        1,
        print,
        frozenset(),
        inputs={"images"},
        outputs=lambda values: {f"sees:{values['a']}"},
    )
    with pytest.raises(RequestError, match="no channel 'sees:1'"):
        component.interface({"a": 1})


class Stranger:
    """A model written elsewhere: three properties and one method."""

    id = "stranger"
    takes = frozenset({"images"})
    gives = frozenset({"responses:V4"})

    def answer(self, question: Any) -> Any:
        values = np.stack(
            [np.frombuffer(item, np.uint8)[:40] for item in question.stimuli.read()]
        )
        return xr.DataArray(
            values.astype(float),
            dims=("presentation", "neuroid"),
            coords={
                "stimulus_id": ("presentation", question.stimuli.ids),
                "neuroid_id": ("neuroid", [f"n{i}" for i in range(40)]),
            },
        )


def test_an_external_model_needs_three_properties_and_one_method(lab: Lab) -> None:
    catalog = lab.open()
    validate(catalog, "lab")
    assert isinstance(Stranger(), Model)
    benchmark = catalog.benchmark("lab.V4-ridge")
    score = evaluate(Session(catalog), benchmark, Stranger(), controls=False).headline
    assert isinstance(score, Score) and np.isfinite(score.value)
    with pytest.raises(
        ModelError, match="does not give decisions:label; it gives responses:V4"
    ):
        perform(Stranger(), Task("label"), None)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match=r"Linear is not a model: .*nl.models.torch"):
        evaluate(Session(catalog), benchmark, type("Linear", (), {})(), controls=False)  # type: ignore[arg-type]


@pytest.mark.slow
def test_built_models_match_the_interface_of_their_builder(repository: Path) -> None:
    """Of every shipped model that can be built here."""
    catalog = open_catalog(repository)
    session, built = Session(catalog), 0
    for id in catalog.ids("models"):
        if catalog.model(id).unavailable or absent(catalog, "models", id):
            continue
        declared = interface(catalog, catalog.entry("models", id), "")
        assert declared is not None
        try:
            model = model_of(session, id)
        except UnavailableError:
            continue
        built += 1
        assert model.takes == declared.inputs, id
        # what a file of responses holds is known when it is read
        extra = declared.outputs - model.gives
        assert model.gives <= declared.outputs or extra <= {"responses", "dynamics"}, (
            id,
            model.gives,
            declared,
        )
    assert built > 40


def test_networks_are_not_tried_on_answers_without_their_images(
    repository: Path,
) -> None:
    """What the public data hold of these experiments are answers: images that are not there are no failed score."""
    catalog = open_catalog(repository)
    readers = {id: catalog.about(id).reader for id in catalog.ids("datasets")}
    ids = [
        id
        for id, reader in readers.items()
        if reader
        and reader.name == "trial_tables"
        and "archive" not in reader.parameters
    ]
    benchmarks = [
        id for id in catalog.ids("benchmarks") if catalog.benchmark(id).dataset in ids
    ]
    assert len(ids) >= 5 and len(benchmarks) >= 5
    assert {catalog.about(id).stimuli for id in ids} == {"names"}
    for id in benchmarks:
        assert "names" in lacking(catalog, "small_cnn.digits", id)
        assert not lacking(catalog, "Geirhos2021.subject-01", id)
