"""Plans: the jobs of suites and benchmarks, the pairs without a job, and messages on missing channels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neuroledger.engine import plan as module
from neuroledger.engine.plan import (
    Plan,
    files_of,
    fits,
    inputs_of,
    interface,
    lacking,
    other_models,
    parameters_of,
    plan,
    require_compatible,
    some,
    unavailable,
)
from neuroledger.engine.records.inputs import ModelIdentity
from neuroledger.engine.session import Request
from neuroledger.errors import RequestError, SpecError
from neuroledger.models.model import LayeredModel
from neuroledger.spec.base import sha256_of
from neuroledger.spec.channels import Interface
from tests.engine.lab import Lab


@pytest.fixture
def shelf(lab: Lab) -> Lab:
    """The laboratory with a second benchmark, two more models, and one model without responses."""
    lab.benchmark("lab.V4-pls", metric="pls", controls={"negative": ["noise"]})
    for model in ("ant", "bee"):
        lab.spec("models", model, builder={"name": "pixels", "size": 2})
    lab.spec("models", "net", builder={"name": "small_cnn"}, layers=["logits", "conv1"])
    return lab


def pairs(lab: Lab, **fields: Any) -> list[tuple[str, str]]:
    catalog = lab.open()
    suites = [catalog.suite(id) for id in fields.pop("suites", ())]
    return [
        (job.benchmark, job.model)
        for job in plan(catalog, suites=suites, request=Request(), **fields).jobs
    ]


def test_a_suite_gives_its_models_after_the_controls_of_each_benchmark(
    shelf: Lab,
) -> None:
    shelf.spec(
        "suites",
        "both",
        benchmarks=["lab.V4-pls", "lab.V4-ridge"],
        models=["bee", "ant"],
    )
    expected = [("lab.V4-pls", model) for model in ("noise", "bee", "ant")]
    expected += [
        ("lab.V4-ridge", model) for model in ("pixels4", "noise", "bee", "ant")
    ]
    assert pairs(shelf, suites=["both"]) == expected
    assert pairs(shelf, suites=["both", "lab"]) == expected, "each pair is one job"
    assert pairs(shelf, suites=["both"], models=["ant"]) == [
        ("lab.V4-pls", "ant"),
        ("lab.V4-ridge", "ant"),
    ]


def test_without_named_models_all_that_fit_are_scored(shelf: Lab) -> None:
    shelf.spec("suites", "open", benchmarks=["lab.V4-pls"])
    expected = [("lab.V4-pls", model) for model in ("noise", "ant", "bee", "pixels4")]
    assert (
        pairs(shelf, benchmarks=["lab.V4-pls"])
        == pairs(shelf, suites=["open"])
        == expected
    )
    assert (
        plan(shelf.open(), benchmarks=["lab.V4-pls"], request=Request()).incompatible
        == {}
    )
    with pytest.raises(
        RequestError, match=r"^nothing to run: name a suite or benchmarks$"
    ):
        plan(shelf.open(), models=["ant"], request=Request())


def test_a_job_is_identified_by_its_inputs(shelf: Lab) -> None:
    catalog = shelf.open()
    [job] = plan(
        catalog, benchmarks=["lab.V4-ridge"], models=["ant"], request=Request(seed=3)
    ).jobs
    assert job.inputs == inputs_of(
        catalog, catalog.benchmark("lab.V4-ridge"), "ant", Request(seed=3)
    )
    assert job.id == job.inputs.sha256 and job.inputs.seed == 3


def test_requested_pairs_without_a_job_are_listed_with_the_reason(shelf: Lab) -> None:
    shelf.spec(
        "models", "away", builder={"name": "pixels"}, unavailable="its weights are lost"
    )
    shelf.benchmark("lab.V4-closed", unavailable="the data are withdrawn")
    catalog = shelf.open()
    result = plan(
        catalog,
        models=["ant", "net", "away"],
        benchmarks=["lab.V4-closed", "lab.V4-ridge"],
        request=Request(),
    )
    assert [(job.benchmark, job.model) for job in result.jobs] == [
        ("lab.V4-ridge", "ant")
    ]
    assert result.incompatible == {("net", "lab.V4-ridge"): "responses:V4"}
    assert result.unavailable == {
        "away": "its weights are lost",
        "lab.V4-closed": "the data are withdrawn",
    }
    assert list(result.notes()) == [
        "skipped 1 incompatible pair: net lacks responses:V4 for lab.V4-ridge"
    ]
    assert list(Plan(()).notes()) == []
    with pytest.raises(RequestError, match="'atn'"):
        plan(catalog, models=["atn"], benchmarks=["lab.V4-ridge"], request=Request())


def test_incompatible_pairs_are_counted_and_grouped_by_model_and_reason() -> None:
    lacks = {("a", f"b{i}"): "sound" for i in range(4)} | {
        ("a", "c"): "images",
        ("z", "c"): "images",
    }
    assert list(Plan((), lacks).notes()) == [
        "skipped 6 incompatible pairs: a lacks sound for b0, b1, b2 and 1 more; a lacks images for c; "
        "z lacks images for c"
    ]
    assert (
        some(["a", "b", "c"]) == "a, b, c"
        and some(list("abcde")) == "a, b, c and 2 more"
        and some([]) == ""
    )


@pytest.mark.parametrize(
    ("names", "fitting"),
    [
        ([], True), (["lab.V4-ridge"], True), (["lab"], True), (["V4"], True), (["recording"], True),
        (["recording.V4"], True), (["lab.V4-pls"], False), (["IT", "recording.IT"], False), (["IT", "V4"], True),
    ],
)  # fmt: skip
def test_a_model_may_be_restricted_to_benchmarks(
    shelf: Lab, names: list[str], fitting: bool
) -> None:
    shelf.spec("models", "ant", builder={"name": "pixels", "size": 2}, benchmarks=names)
    assert fits(shelf.open(), "ant", "lab.V4-ridge") is fitting


def test_unavailable_and_incompatible_models_fit_nothing(shelf: Lab) -> None:
    shelf.spec(
        "models",
        "ant",
        builder={"name": "pixels"},
        unavailable="lost",
        benchmarks=["lab"],
    )
    catalog = shelf.open()
    assert not fits(catalog, "ant", "lab.V4-ridge") and not fits(
        catalog, "net", "lab.V4-ridge"
    )
    assert lacking(catalog, "net", "lab.V4-ridge") == ["responses:V4"]
    assert lacking(catalog, "bee", "lab.V4-ridge") == []
    shelf.dataset(stimuli="sound")
    assert lacking(shelf.open(), "bee", "lab.V4-ridge") == ["sound"]


def test_the_reason_of_a_benchmark_precedes_that_of_its_data(lab: Lab) -> None:
    def reason() -> str | None:
        catalog = lab.open()
        return unavailable(catalog, catalog.benchmark("lab.V4-ridge"))

    assert reason() is None
    lab.dataset(access="private")
    assert reason() is None, "the files are here"
    (lab.data / "responses.nc").unlink()
    words = "the data are private and missing; with access to them, run `neuroledger fetch lab`"
    assert reason() == words
    lab.dataset(
        files={
            "x.nc": {"url": "https://example.org/x.nc", "size": 1, "sha256": "0" * 64}
        }
    )
    assert reason() is None, "public data can be fetched"
    lab.dataset(unavailable="the data are withdrawn", access="private")
    assert reason() == "the data are withdrawn"
    lab.benchmark(unavailable="the task was wrong")
    assert reason() == "the task was wrong"


def stub(takes: set[str], **fields: Any) -> Any:
    return LayeredModel(
        id="mine",
        takes=frozenset(takes),
        extract=lambda *_: {},
        layers=("one", "two"),
        **fields,
    )


def test_a_model_in_memory_without_a_channel_is_refused_with_the_channels_of_both(
    shelf: Lab,
) -> None:
    catalog = shelf.open()
    require_compatible(catalog, "lab.V4-ridge", "ant")
    require_compatible(catalog, "lab.V4-ridge", stub({"images"}, regions={"V4": "one"}))
    with pytest.raises(RequestError) as caught:
        require_compatible(
            catalog,
            "lab.V4-ridge",
            stub({"sound"}, regions={"V4": "one"}, decisions=()),
        )
    assert str(caught.value) == (
        "model 'mine' cannot be scored on 'lab.V4-ridge': it takes sound and gives responses:V4; the benchmark shows images "
        "and asks for responses:V4; `neuroledger run --benchmark lab.V4-ridge` scores all models that are compatible"
    )
    with pytest.raises(
        RequestError, match=r"commit a layer to the region: `regions: \{V4: <layer>\}`$"
    ):
        require_compatible(
            catalog, "lab.V4-ridge", stub({"images"}, regions={"IT": "one"})
        )
    with pytest.raises(
        RequestError,
        match=r"^model 'net' cannot be scored.*it takes images and gives decisions",
    ):
        require_compatible(catalog, "lab.V4-ridge", "net")
    words = r"^int is not a model: pass the id of a model, or declare inputs and outputs with nl\.models\.torch"
    with pytest.raises(RequestError, match=words):
        require_compatible(catalog, "lab.V4-ridge", 3)  # type: ignore[arg-type]


def test_a_model_without_time_steps_is_refused_with_the_way_to_declare_them(
    shelf: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Interface(frozenset({"images"}), frozenset({"dynamics"}))
    monkeypatch.setattr(module, "interface", lambda catalog, entry, stimuli: asked)
    model = stub({"images"}, regions={"V4": "one"})
    with pytest.raises(
        RequestError,
        match=r"; score a model with several time steps, whose time bins are its `times`$",
    ):
        require_compatible(shelf.open(), "lab.V4-ridge", model)


def test_the_stimuli_of_a_benchmark_are_those_of_its_data(shelf: Lab) -> None:
    shelf.spec("models", "bad", builder={"name": "pixels", "sise": 2})
    shelf.spec("models", "away", unavailable="lost")
    catalog = shelf.open()
    entry = catalog.entry("benchmarks", "lab.V4-ridge")
    for stimuli in ("images", "sound"):
        assert interface(catalog, entry, stimuli) == Interface(
            frozenset({stimuli}), frozenset({"responses:V4"})
        )
    assert interface(catalog, catalog.entry("models", "bad"), "") is None
    assert interface(catalog, catalog.entry("models", "away"), "") is None
    assert interface(catalog, catalog.entry("datasets", "lab"), "") is None
    own = interface(catalog, catalog.entry("models", "net"), "")
    assert own is not None and own.inputs == {"images"}
    with pytest.raises(SpecError, match="sise"):
        parameters_of(catalog.entry("models", "bad"), "builder")
    assert parameters_of(catalog.entry("models", "ant"), "builder")["size"] == 2


def test_many_pins_are_recorded_as_their_number_and_one_hash() -> None:
    def dataset(count: int) -> Any:
        pins = {
            f"f{number:04d}": SimpleNamespace(sha256=f"{number:x}")
            for number in reversed(range(count))
        }
        return SimpleNamespace(files=pins)

    few = files_of(dataset(1000))
    assert len(few) == 1000 and list(few) == sorted(few) and few["f0010"] == "a"
    many = {f"f{number:04d}": f"{number:x}" for number in range(1001)}
    assert files_of(dataset(1001)) == {"count": 1001, "sha256": sha256_of(many)}


def test_a_score_depends_on_controls_and_dummies(shelf: Lab) -> None:
    floor = {"dummy": "ant", "fallback": "bee", "perfect": 1.0}
    fields = {
        "ceiling": None,
        "floor": floor,
        "controls": {"positive": ["pixels4"], "negative": ["noise"]},
    }
    shelf.benchmark("lab.V4-floor", **fields)
    shelf.benchmark(
        "lab.V4-number", **fields | {"floor": {"dummy": 0.25, "perfect": 1.0}}
    )
    catalog = shelf.open()
    assert other_models(catalog.benchmark("lab.V4-floor")) == {
        "ant",
        "bee",
        "pixels4",
        "noise",
    }
    assert other_models(catalog.benchmark("lab.V4-number")) == {"pixels4", "noise"}
    inputs = inputs_of(catalog, catalog.benchmark("lab.V4-floor"), "ant", Request())
    assert list(inputs.controls) == ["ant", "bee", "noise", "pixels4"]
    assert inputs.controls["ant"] == inputs.model and inputs.ceiling is None
    lab = catalog.dataset("lab")
    assert inputs.dataset.id == "lab"
    assert inputs.dataset.files == {name: pin.sha256 for name, pin in lab.files.items()}
    shared = inputs_of(catalog, catalog.benchmark("lab.V4-floor"), None, Request())
    assert "model" not in shared.model_dump(mode="json")


def test_descriptions_and_restrictions_of_a_model_are_not_part_of_its_identity(
    shelf: Lab,
) -> None:
    def own() -> ModelIdentity:
        catalog = shelf.open()
        benchmark = catalog.benchmark("lab.V4-ridge")
        return inputs_of(catalog, benchmark, "ant", Request()).model

    before = own()
    builder = {"name": "pixels", "size": 2}
    shelf.spec(
        "models",
        "ant",
        builder=builder,
        benchmarks=["lab"],
        pretraining=["ImageNet"],
        license="MIT",
    )
    assert own() == before
    shelf.spec("models", "ant", builder=builder, regions={"V4": "x"})
    assert own() != before


def test_jobs_on_unavailable_data_or_models_have_no_inputs(shelf: Lab) -> None:
    shelf.spec("models", "away", unavailable="its weights are lost")
    catalog = shelf.open()
    with pytest.raises(
        RequestError, match=r"^model 'away' is unavailable: its weights are lost$"
    ):
        inputs_of(catalog, catalog.benchmark("lab.V4-ridge"), "away", Request())
    shelf.dataset(unavailable="the data are withdrawn", reader=None, files={})
    catalog = shelf.open()
    with pytest.raises(
        RequestError, match=r"^data set 'lab' is unavailable: the data are withdrawn$"
    ):
        inputs_of(catalog, catalog.benchmark("lab.V4-ridge"), "ant", Request())
