"""Commitment of regions to layers: fixed, or chosen by a rule on stimuli that are not scored."""

from __future__ import annotations

import hashlib
import io
import zipfile
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from neuroledger.data.gate.validate import validate
from neuroledger.engine import layer_commitment
from neuroledger.engine.check import check
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import inputs_of
from neuroledger.engine.resolve import resolve
from neuroledger.engine.session import Request, Session
from neuroledger.errors import RequestError
from neuroledger.models.model import LayeredModel, Model
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.spec.model_rules import Rule, rule_of
from neuroledger.stats.score import Score
from tests.engine.lab import Lab, make_files

PREPROCESSING = {"resize": 8, "colour": "grey", "mean": [0.5], "std": [0.5]}


def network(lab: Lab, **fields: Any) -> None:
    """A model whose first convolution sees the pixels, and whose ten random logits see little of them."""
    known = {
        "builder": {"name": "small_cnn", "channels": 1, "preprocessing": PREPROCESSING},
        "layers": ["logits", "conv1"],
    }
    lab.spec("models", "net", **(known | fields))


def other(lab: Lab, *, images: int, stored_as: str | None = None) -> None:
    """A second data set, of the images of another seed (the same for seed 0), with a benchmark on it."""
    folder = lab.root / "data" / "other"
    make_files(folder, seed=images)
    if stored_as is not None:
        with zipfile.ZipFile(folder / "stimuli.zip") as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(folder / "stimuli.zip", "w") as archive:
            for name, data in content.items():
                file = io.BytesIO()
                Image.open(io.BytesIO(data)).save(file, format=stored_as)
                archive.writestr(name, file.getvalue())
    pins = {
        path.name: {
            "url": f"https://example.org/other/{path.name}",
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.glob("*"))
    }
    lab.dataset()
    fields = (
        lab.open()
        .dataset("lab")
        .model_dump(mode="json", exclude_none=True, by_alias=True)
    )
    expected = ("license", "simulated", "reader", "expectations")
    lab.spec(
        "datasets", "other", files=pins, **{name: fields[name] for name in expected}
    )
    lab.benchmark("other.V4-ridge", dataset="other")


def session_of(lab: Lab) -> Session:
    catalog = lab.open()
    for id in catalog.ids("datasets"):
        validate(catalog, id)
    return Session(catalog, Request())


def choose(session: Session, scored: str) -> Any:
    def score(session: Session, benchmark: BenchmarkSpec, model: Model) -> Score:
        return evaluate(session, benchmark, model, controls=False).headline

    return resolve(session, session.catalog.benchmark(scored), "net", score).model


def test_the_best_layer_on_the_other_benchmark_is_chosen(lab: Lab) -> None:
    other(lab, images=1)
    network(lab, commit={"on": {"V4": "other.V4-ridge"}})
    session = session_of(lab)
    model = choose(session, "lab.V4-ridge")
    assert isinstance(model, LayeredModel)
    assert model.committed("V4") == ("conv1",)
    fixed = evaluate(
        session, session.catalog.benchmark("lab.V4-ridge"), model, controls=False
    ).headline
    by_rule = evaluate(
        session, session.catalog.benchmark("lab.V4-ridge"), "net", controls=False
    ).headline
    assert by_rule.value == fixed.value


def test_candidates_may_be_named(lab: Lab) -> None:
    other(lab, images=1)
    network(lab, commit={"on": {"V4": "other.V4-ridge"}, "layers": ["logits"]})
    assert choose(session_of(lab), "lab.V4-ridge").committed("V4") == ("logits",)


def test_a_choice_on_the_stimuli_that_are_scored_is_refused(lab: Lab) -> None:
    network(lab, commit={"on": {"V4": "lab.V4-ridge"}})
    with pytest.raises(
        RequestError,
        match=r"shares 60 stimuli with 'lab.V4-ridge'.*choose it on other stimuli",
    ):
        choose(session_of(lab), "lab.V4-ridge")


@pytest.mark.parametrize("stored_as", [None, "BMP"])
def test_the_same_images_under_another_name_are_found_by_their_content(
    lab: Lab, stored_as: str | None
) -> None:
    other(lab, images=0, stored_as=stored_as)
    network(lab, commit={"on": {"V4": "other.V4-ridge"}})
    with pytest.raises(RequestError, match="shares 60 stimuli"):
        choose(session_of(lab), "lab.V4-ridge")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            {"on": {"V4": "lab.V4-ridge"}},
            "chosen on stimuli of 'lab.V4-ridge', on which the model is scored",
        ),
        ({"on": {"V4": "lab.V4-rigde"}}, "did you mean lab.V4-ridge"),
        ({"on": {"V4": "other.V4-ridge"}, "layers": ["conv9"]}, "did you mean conv1"),
        ({"by": "hand"}, "commit must be {on:"),
    ],
)
def test_check_reports_shared_stimuli_without_data(
    lab: Lab, rule: dict[str, Any], words: str
) -> None:
    other(lab, images=1)
    network(lab, commit=rule)
    lab.spec("suites", "lab", benchmarks=["lab.V4-ridge"], models=["pixels4", "net"])
    problems, _ = check(lab.open())
    assert any(
        words in problem.what and problem.where.endswith("net.yaml")
        for problem in problems
    ), problems


def test_check_accepts_a_choice_on_other_data(lab: Lab) -> None:
    other(lab, images=1)
    network(lab, commit={"on": {"V4": "other.V4-ridge"}})
    lab.spec("suites", "lab", benchmarks=["lab.V4-ridge"], models=["pixels4", "net"])
    assert not [
        problem
        for problem in check(lab.open())[0]
        if problem.where.endswith("net.yaml")
    ]


def test_the_benchmark_of_the_choice_is_part_of_the_identity(lab: Lab) -> None:
    other(lab, images=1)
    network(lab, commit={"on": {"V4": "other.V4-ridge"}})
    catalog = lab.open()
    inputs = inputs_of(catalog, catalog.benchmark("lab.V4-ridge"), "net", Request())
    assert inputs.commitment["other.V4-ridge"].dataset.files == {
        name: pin.sha256 for name, pin in catalog.dataset("other").files.items()
    }
    assert rule_of(catalog.model("pixels4")) is None


def test_where_lower_is_better_the_layer_with_the_lowest_score_is_taken() -> None:
    benchmark = SimpleNamespace(paradigm=SimpleNamespace(parameters={"region": "V4"}))
    seen = frozenset({"images"})
    model = LayeredModel(
        id="net", takes=seen, extract=lambda *_: {}, layers=("first", "second")
    )
    values = {"first": 3.0, "second": 1.0}
    for direction, chosen in (("lower", "second"), ("higher", "first")):

        def score(_: Any, candidate: LayeredModel, direction: str = direction) -> Score:
            return Score(
                values[candidate.committed("V4")[0]],
                scale="distance",
                direction=direction,
            )

        rule = Rule(on={"V4": "other"})
        assert layer_commitment._best(benchmark, model, "V4", rule, score) == chosen
