"""Scores of layers are remembered by what they follow from, and computed again when any of it changes."""

from __future__ import annotations

import math
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.data.gate.validate import validate
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import DataError, MetricError
from neuroledger.families.alignment.layer_curves import choice, plain_score, remembered
from neuroledger.families.alignment.layer_curves.choice import (
    Choice,
    choose,
    score_layers,
)
from neuroledger.models.activation_store import open_store
from neuroledger.models.model import LayeredModel
from neuroledger.spec import registry
from neuroledger.stats.score import Score
from neuroledger.store import derived
from tests.engine.lab import Lab, build, make_files
from tests.engine.test_commit import PREPROCESSING, network
from tests.families.alignment.test_layer_choice import answering

LAYERS = ("conv1", "logits")
METRIC = {"name": "ridge", "splits": {"folds": 5, "train": 0.7}}


@pytest.fixture(scope="module")
def _scored(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A laboratory in which the layers of a network were scored once."""
    lab = build(tmp_path_factory.mktemp("scored") / "lab", repository)
    network(lab)
    lab.benchmark(metric=METRIC)
    validate(lab.open(), "lab")
    # Other test modules may have registered components, with which nothing is remembered.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "only_shipped", lambda: True)
        curve(session_of(lab))
    return lab.root


@pytest.fixture
def scored(_scored: Path, tmp_path: Path) -> Lab:
    """A copy of it."""
    return Lab(Path(shutil.copytree(_scored, tmp_path / "lab")))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The layers whose scores were computed, and ``choice`` for each choice."""
    seen: list[str] = []
    headline_of = choice.headline_of
    chosen = choice._chosen

    def watched(session: Session, benchmark: Any, model: Any) -> Score:
        seen.append(*model.regions.values())
        return headline_of(session, benchmark, model)

    def watched_choice(*given: Any) -> Choice:
        seen.append("choice")
        return chosen(*given)

    monkeypatch.setattr(choice, "headline_of", watched)
    monkeypatch.setattr(choice, "_chosen", watched_choice)
    return seen


def session_of(lab: Lab, **request: Any) -> Session:
    catalog = lab.open()
    return Session(catalog, Request(**request), open_store(catalog.root))


def curve(session: Session) -> tuple[dict[str, Score], Choice]:
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    model = model_of(session, "net")
    assert isinstance(model, LayeredModel)
    scores = score_layers(session, benchmark, model, LAYERS)
    for score in scores.values():
        assert math.isfinite(score.low)
    chosen = choose(session, benchmark, model, scores)
    assert chosen.nested is not None
    assert math.isfinite(chosen.nested.high)
    return scores, chosen


def bits(score: Score) -> str:
    """Everything that a score says, with all digits."""
    plain = plain_score.plain_score(score)
    known = plain_score.plain_uncertainty(score.uncertainty)
    ends = [score.low, score.high, score.varies_over, str(score)]
    return plain_score.text_of([plain, known, ends])


def forgotten(lab: Lab) -> None:
    (lab.root / ".cache" / "neuroledger" / "derived.sqlite").unlink()


def test_a_second_process_reads_the_same_scores_and_shows_no_image(
    scored: Lab, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(*_: object) -> None:
        raise AssertionError("a network was run")

    with monkeypatch.context() as patch:
        patch.setattr("neuroledger.models.torch_layers.TorchExtract._run", shown)
        again, chosen_again = curve(session_of(scored))
    assert computed == []
    forgotten(scored)
    fresh, chosen = curve(session_of(scored))
    assert computed == [*LAYERS, "choice"]
    assert list(again) == list(fresh)
    assert {name: bits(score) for name, score in again.items()} == {
        name: bits(score) for name, score in fresh.items()
    }
    for name, score in again.items():
        assert score.samples is not None
        assert fresh[name].samples is not None
        assert score.samples.identical(fresh[name].samples)
    assert again["conv1"].ceiling is not None
    assert again["conv1"].ceiling.low == fresh["conv1"].ceiling.low  # type: ignore[union-attr]
    assert chosen_again.nested is not None
    assert chosen.nested is not None
    assert bits(chosen_again.nested) == bits(chosen.nested)
    assert {**vars(chosen_again), "nested": 0} == {**vars(chosen), "nested": 0}


def test_an_uncertainty_that_was_not_asked_for_is_computed_when_it_is(
    scored: Lab, computed: list[str]
) -> None:
    only = ("stimulus",)
    known = curve(session_of(scored))[0]["conv1"].uncertainty_over(only)
    assert computed == ["conv1"]
    assert known is not None
    assert known.factors == only
    again = curve(session_of(scored))[0]["conv1"].uncertainty_over(only)
    assert computed == ["conv1"]
    first, second = map(plain_score.plain_uncertainty, (known, again))
    assert plain_score.text_of(first) == plain_score.text_of(second)


def _weights(lab: Lab) -> None:
    builder = {"name": "small_cnn", "channels": 1, "preprocessing": PREPROCESSING}
    network(lab, builder={**builder, "seed": 3})


def _preprocessing(lab: Lab) -> None:
    steps = {**PREPROCESSING, "std": [0.25]}
    network(lab, builder={"name": "small_cnn", "channels": 1, "preprocessing": steps})


def _data(lab: Lab) -> None:
    make_files(lab.data, seed=5)
    lab.dataset()
    validate(lab.open(), "lab")


def _metric(lab: Lab) -> None:
    lab.benchmark(metric={"name": "ridge", "splits": {"folds": 5, "train": 0.6}})


def _ceiling(lab: Lab) -> None:
    ceiling = {"name": "internal_consistency", "splits": {"folds": 7}}
    lab.benchmark(metric=METRIC, ceiling=ceiling)


def _field_of_view(lab: Lab) -> None:
    network(lab, visual_degrees=8)
    paradigm = {"name": "recording", "region": "V4", "visual_degrees": 4}
    lab.benchmark(metric=METRIC, paradigm=paradigm)


@pytest.mark.parametrize(
    "change", [_weights, _preprocessing, _data, _metric, _ceiling, _field_of_view]
)
def test_what_follows_from_changed_inputs_is_computed_again(
    scored: Lab, computed: list[str], change: Callable[[Lab], None]
) -> None:
    before = curve(session_of(scored))[0]
    assert computed == []
    change(scored)
    after = curve(session_of(scored))[0]
    assert computed == [*LAYERS, "choice"]
    assert after["logits"].value != before["logits"].value


@pytest.mark.parametrize("request_", [{"seed": 1}, {"limit": 50}])
def test_another_request_is_computed_again(
    scored: Lab, computed: list[str], request_: dict[str, int]
) -> None:
    curve(session_of(scored, **request_))
    assert computed == [*LAYERS, "choice"]


@pytest.mark.parametrize(
    "place", ["store.derived.code_sha256", "remembered.installed_sha256", "threads"]
)
def test_other_code_or_libraries_compute_again(
    scored: Lab,
    computed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    if place == "store.derived.code_sha256":
        monkeypatch.setattr(derived, "code_sha256", lambda: "another state")
    elif place == "threads":
        monkeypatch.setattr(remembered, "rounding", lambda _: {"threads": 7})
    else:
        monkeypatch.setattr(remembered, "installed_sha256", lambda: "other packages")
    curve(session_of(scored))
    assert computed == [*LAYERS, "choice"]


def test_a_layer_more_computes_that_layer(scored: Lab, computed: list[str]) -> None:
    session = session_of(scored)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    model = model_of(session, "net")
    assert isinstance(model, LayeredModel)
    score_layers(session, benchmark, model, [*LAYERS, "conv2"])
    assert computed == ["conv2"]


def _one_digit(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute("SELECT key, value FROM derived").fetchall()
        for key, value in rows:
            changed = value.replace('\\"value\\": 0.', '\\"value\\": 0.9')
            connection.execute(
                "UPDATE derived SET value = ? WHERE key = ?", (changed, key)
            )


def _other_form(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE derived SET value = '[1, {}]'")


def _of_another(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        rows = connection.execute("SELECT key, value FROM derived").fetchall()
        for (key, _), (_, value) in zip(rows, rows[1:] + rows[:1], strict=True):
            connection.execute(
                "UPDATE derived SET value = ? WHERE key = ?", (value, key)
            )


def _no_database(path: Path) -> None:
    path.write_bytes(b"no database")


@pytest.mark.parametrize("damage", [_one_digit, _of_another, _other_form, _no_database])
def test_a_damaged_entry_is_computed_again(
    scored: Lab, computed: list[str], damage: Callable[[Path], None]
) -> None:
    before = curve(session_of(scored))[0]
    damage(scored.root / ".cache" / "neuroledger" / "derived.sqlite")
    after = curve(session_of(scored))[0]
    assert computed == [*LAYERS, "choice"]
    assert {name: bits(score) for name, score in after.items()} == {
        name: bits(score) for name, score in before.items()
    }


def test_damaged_data_are_an_error_although_the_scores_are_remembered(
    scored: Lab,
) -> None:
    path = scored.data / "responses.nc"
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(DataError):
        curve(session_of(scored))


def test_failures_models_in_memory_and_sessions_without_a_store_are_not_remembered(
    scored: Lab, computed: list[str]
) -> None:
    session = session_of(scored)
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    rng = np.random.default_rng(0)
    drawn = answering({"drawn": rng.standard_normal((60, 5))})
    constant = answering({"flat": np.ones((60, 5))})
    for _ in range(2):
        with pytest.raises(MetricError):
            score_layers(session, benchmark, constant, ["flat"])
        score_layers(session, benchmark, drawn, ["drawn"])
    assert computed == ["flat", "drawn"] * 2
    without = Session(session.catalog, Request())
    curve(without)
    assert computed[4:] == [*LAYERS, "choice"]


def test_what_is_run_and_verified_does_not_read_what_is_remembered(
    scored: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recalled(*_: object) -> None:
        raise AssertionError("a remembered score was read")

    monkeypatch.setattr(remembered.Memory, "recall", recalled)
    session = session_of(scored)
    network(scored, regions={"V4": "conv1"})
    benchmark = session.catalog.benchmark("lab.V4-ridge")
    model = model_of(session, "net")
    assert isinstance(model, LayeredModel)
    committed = choice._committed(model, "conv1", benchmark)
    assert math.isfinite(evaluate(session, benchmark, committed).headline.value)
