"""The data and the words of pages: packed boards, short names, references, sizes, and components in one line."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neuroledger.data.gate.validate import validate
from neuroledger.engine.checked import Evidence, Origin
from neuroledger.engine.control import in_words
from neuroledger.engine.record import read_record, record_path
from neuroledger.report.board import Cell, Column, Leaderboard, Row
from neuroledger.report.pages import (
    Page,
    _blocks,
    _deviations,
    axis,
    gather,
    packed,
    pages,
)
from neuroledger.report.site import (
    command_of,
    counted,
    in_bytes,
    in_one_line,
    json_of,
    prose,
    record_text,
)
from neuroledger.spec.base import Component
from neuroledger.spec.kinds import Aggregation
from neuroledger.spec.suites import Group
from tests.engine.lab import Lab
from tests.report.ledger import CONTROLS, altered, record


def column(id: str, **fields: Any) -> Column:
    given: dict[str, Any] = {
        "id": id, "title": f"Benchmark {id}", "parent": "V4", "dataset": "lab", "weight": 1.0, "scale": "correlation",
        "unit": None, "direction": "higher", "normalise": "ceiling", "counts": True, "simulated": False,
        "private": False, "unavailable": "", "floor": 0.0123456, "ceiling": None,
    }  # fmt: skip
    return Column(**given | fields)


def board(*columns: Column, rows: tuple[Row, ...] = ()) -> Leaderboard:
    groups = (Group("V4", "neural", {each.id: 1 / len(columns) for each in columns}),)
    return Leaderboard("lab", 3, "The lab", columns, groups, rows)


def test_a_packed_board_has_short_cells_and_each_reason_once() -> None:
    cells = (
        Cell("scored", 0.1234567, 0.1, None, top=True, evidence=Evidence(Origin.SIGNED, "ada")),
        Cell("failed", reason="broken"),
        Cell("missing", reason="not run yet"), Cell("partial", 0.5, reason="broken"), Cell("stale", reason="old"),
        Cell("edited", reason="old"), Cell("unavailable", reason="gone"),
    )  # fmt: skip
    columns = tuple(column(f"lab.V4-m{i}") for i in range(len(cells)))
    mean, none = (
        Cell("scored", 0.7, 0.65, 0.75),
        Cell("partial", reason="without lab.V4-m1"),
    )
    rows = (
        Row("ant", "The ant", "model", False, cells, (mean,), mean, (1, 2)),
        Row("noise", "Noise", "negative", False, cells[:1] * 7, (none,), none, None),
    )
    plain = packed(board(*columns, rows=rows), [("models", "1")])
    assert plain["rows"][0] == {
        "model": "ant", "title": "The ant", "role": "model", "place": "1–2", "score": [0.7, 0.65, 0.75], "why": "",
        "top": True,
        "groups": [[0.7, 0.65, 0.75]],
        "cells": [[0.12346, 0.1, None, 1, "ada"], "f0", "m1", "p0", "s2", "e2", "u3"],
    }  # fmt: skip
    assert plain["texts"] == ["broken", "not run yet", "old", "gone"]
    assert (plain["rows"][1]["score"], plain["rows"][1]["why"]) == (
        None,
        "without lab.V4-m1",
    )
    assert (
        plain["rows"][1]["groups"] == [None] and plain["rows"][1]["role"] == "negative"
    )
    assert (plain["suite"], plain["version"], plain["title"]) == ("lab", 3, "The lab")
    assert plain["numbers"] == [("models", "1")]
    assert plain["groups"] == [{"name": "V4", "part": "neural", "size": 7}]
    first = plain["columns"][0]
    assert (first["id"], first["parent"], first["dataset"], first["counts"]) == (
        "lab.V4-m0",
        "V4",
        "lab",
        True,
    )
    assert (first["floor"], first["ceiling"], first["direction"]) == (
        0.012346,
        None,
        "higher",
    )


def test_equal_short_names_are_extended_until_they_differ() -> None:
    columns = [
        column("Lab.one.V4-ridge", dataset="Lab.one"), column("Lab.two.V4-ridge", dataset="Lab.two"),
        column("other.IT-pls", dataset="other"),
    ]  # fmt: skip
    names = [each["short"] for each in packed(board(*columns), [])["columns"]]
    assert names == ["one.V4-ridge", "two.V4-ridge", "IT-pls"]


def test_an_axis_ends_at_one_only_if_all_scales_do() -> None:
    cells = [Cell("scored", 0.2, 0.1, 0.3)]
    assert axis(cells, [column("a")]).high == pytest.approx(1.02)
    assert axis(cells, [column("a"), column("b", counts=False)]).high == pytest.approx(
        0.306
    )
    assert axis(cells, [column("a", floor=-0.5, counts=False)]).low == pytest.approx(
        -0.516
    )


def test_sizes_change_their_unit_at_a_thousand() -> None:
    assert [in_bytes(size) for size in (0, 999, 1000, 1_234_000, 5e9, 2e12, 2e15)] == [
        "0 bytes", "999 bytes", "1 kB", "1.23 MB", "5 GB", "2 TB", "2e+03 TB",
    ]  # fmt: skip


def test_counts_are_plural_except_of_one() -> None:
    assert [counted("neuroid", n) for n in (1, 2, 12345)] == [
        "1 neuroid",
        "2 neuroids",
        "12,345 neuroids",
    ]
    assert [counted(name, 3) for name in ("stimuli", "classes")] == [
        "3 stimuli",
        "3 classes",
    ]
    assert counted("trial", 2.5) == "trial 2.5"


def test_a_component_is_one_line() -> None:
    assert (
        in_one_line({"name": "ridge", "folds": 5, "seed": None, "list": [0.5, "x"]})
        == "ridge (folds: 5, list: [0.5, x])"
    )
    assert (
        in_one_line({"name": "ridge", "seed": None}) == "ridge"
        and in_one_line({"a": 1.0, "b": {}}) == "a: 1, b: "
    )
    assert in_one_line("text") == "text" and in_one_line(1e-7) == "1e-07"
    assert (
        in_one_line(Component(name="ridge", alphas=[1, 2.5]))
        == "ridge (alphas: [1, 2.5])"
    )
    assert (
        in_one_line(Aggregation.model_validate({"over": "neuroid", "with": "median"}))
        == "over: neuroid, with: median"
    )


def test_data_in_a_page_cannot_end_its_element() -> None:
    value = {"a": "</script><!-- & é", "b": [1, None]}
    text = str(json_of(value))
    assert not set("<>&") & set(text) and json.loads(text) == value and ": " not in text
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_of(float("nan"))
    assert (
        str(prose("run `a <b>` & `c`"))
        == "run <code>a &lt;b&gt;</code> &amp; <code>c</code>"
    )


def test_a_record_names_the_command_and_everything_that_determined_it() -> None:
    given = record("ant", "lab.V4-ridge", 0.5, request={"seed": 7})
    assert command_of(given) == "neuroledger score ant lab.V4-ridge --seed 7"
    assert (
        command_of(altered(given, request={}))
        == "neuroledger score ant lab.V4-ridge --seed 0"
    )
    text = record_text(given)
    plain = json.loads(text)
    assert text == json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)
    assert list(plain) == [
        "environment",
        "error",
        "inputs",
        "record",
        "request",
        "status",
    ]
    assert plain["request"] == {"device": "cpu", "limit": None, "seed": 7} and plain[
        "inputs"
    ]["model"] == {"id": "ant"}


def test_the_sources_of_uncertainty_are_those_of_the_record_or_its_interval(
    repository: Path,
) -> None:
    known = read_record(record_path(repository, "Digits.simulated.IT-ridge", "gabor"))
    varies = known.as_score().uncertainty
    assert varies is not None and len(varies.parts) > 1
    names = [" × ".join(part.over) for part in varies.parts]
    errors = [math.sqrt(part.variance) for part in varies.parts]
    assert _deviations(known) == pytest.approx(dict(zip(names, errors, strict=True)))
    half = 0.02 / 1.959964
    assert _deviations(record("ant", "lab.V4-ridge", 0.5)) == {
        "score": pytest.approx(half)
    }
    assert _deviations(record("ant", "lab.V4-ridge", 0.5, half=None)) == {}


def test_of_the_permuted_controls_a_benchmark_shows_the_one_closest_to_its_bound(
    lab: Lab,
) -> None:
    def permuted(value: float | None, verdict: str = "passed") -> dict[str, Any]:
        reason = "it is constant" if value is None else ""
        return {
            "role": "negative",
            "value": value,
            "bound": 0.1,
            "verdict": verdict,
            "reason": reason,
        }

    def shown(*controls: dict[str, Any]) -> list[str]:
        names = ("ant", "bee", "cat", "dog")
        records = [
            record(
                name,
                "lab.V4-ridge",
                0.5,
                controls={"noise": CONTROLS["noise"], "permuted": control},
            )
            for name, control in zip(names, controls, strict=False)
        ]
        world = gather(
            lab.open(), "lab", [*records, record("dog", "lab.V4-ridge", 0.5)]
        )
        page = next(
            one for one in pages(world) if one.path == "benchmarks/lab.V4-ridge.html"
        )
        assert isinstance(page, Page)
        return [
            f"{name}: {in_words(control)}" for name, control in page.context["controls"]
        ]

    end = "its uncertainty is unknown"
    positive, noise = (
        f"pixels4: 0.970, must be at least 0.8, {end}",
        f"noise: 0.010, must be at most 0.1, {end}",
    )
    assert shown() == [noise, positive]
    found = shown(permuted(0.01), permuted(0.05))
    assert found == [noise, f"permuted: 0.050, must be at most 0.1, {end}", positive]
    unsure = permuted(0.04, "undecided") | {"low": 0.0, "high": 0.2}
    found = shown(permuted(0.01), unsure, permuted(0.05))
    assert found[1].startswith("permuted: 0.040 [0.000, 0.200]"), (
        "one that is undecided comes first"
    )
    found = shown(unsure, permuted(None, "failed"), permuted(0.05))
    assert found == [noise, "permuted: it is constant", positive], (
        "one that failed comes before it"
    )


def test_the_numbers_above_a_board_count_models_scores_failures_data_sets_and_controls(
    lab: Lab,
) -> None:
    failed = CONTROLS["noise"] | {"value": 0.3, "verdict": "failed"}
    unsure = CONTROLS["noise"] | {"low": -0.1, "high": 0.12, "verdict": "undecided"}
    records = [
        record("ant", "lab.V4-ridge", 0.9), record("bee", "lab.V4-ridge", None, controls={}),
        record("ant", "lab.V4-pls", 0.8, controls={"noise": failed, "permuted": unsure}),
        record("noise", "lab.V4-ridge", 0.0, controls={}),
    ]  # fmt: skip
    world = gather(lab.open(), "lab", records)
    index = next(one for one in pages(world) if one.path == "index.html")
    assert isinstance(index, Page)
    ((_, data),) = index.context["data"]
    assert data["numbers"] == [
        ("models", "4"), ("benchmarks", "2"), ("scores", "3"), ("failed or partial", "1"),
        ("data sets validated", "0 of 1"), ("control checks passed", "2 of 4, 1 undecided"),
    ]  # fmt: skip


def test_lists_name_the_state_of_benchmarks_models_and_data_sets(lab: Lab) -> None:
    lab.benchmark("lab.V4-closed", unavailable="withdrawn")
    lab.spec("models", "gone", unavailable="its weights are lost")
    closed: dict[str, Any] = {
        "license": "CC0-1.0",
        "access_steps": ["ask"],
        "files": {},
    }
    lab.spec("datasets", "asked", **closed, unavailable="on request")
    pins = {name: {"size": 1, "sha256": "0" * 64} for name in ("a.mat",)}
    lab.spec(
        "datasets", "odd", **closed | {"files": pins}, unread="no reader has its format"
    )
    validate(lab.open(), "lab")
    records = [record("ant", "lab.V4-ridge", 0.9), record("bee", "lab.V4-ridge", None)]
    world = gather(lab.open(), "lab", records)
    lists = {
        one.path: one.context["items"]
        for one in pages(world)
        if isinstance(one, Page) and "items" in one.context
    }
    assert {item["id"]: item["title"] for item in lists["datasets.html"]} == {
        id: world.catalog.dataset(id).title for id in ("asked", "lab", "odd")
    }
    states = {
        path: {item["id"]: (item["state"], item["tone"]) for item in items}
        for path, items in lists.items()
    }
    assert states["benchmarks.html"] == {
        "lab.V4-closed": ("unavailable", "warn"), "lab.V4-pls": ("no record", ""), "lab.V4-ridge": ("1 score", "good"),
    }  # fmt: skip
    assert states["datasets.html"] == {
        "asked": ("unavailable", "warn"), "lab": ("valid", "good"), "odd": ("unread", "warn")
    }  # fmt: skip
    models = states["models.html"]
    assert (models["ant"], models["bee"]) == (("1 score", "good"), ("no record", ""))
    assert models["gone"] == ("unavailable", "warn") and "noise" not in models, (
        "only own models, or with records"
    )
    (lab.data / "stimuli.zip").write_bytes(b"no longer a zip")
    lab.dataset()  # pinned as it is
    validate(lab.open(), "lab")
    listed = next(
        one
        for one in pages(gather(lab.open(), "lab", []))
        if one.path == "datasets.html"
    )
    assert isinstance(listed, Page)
    assert {item["id"]: item["state"] for item in listed.context["items"]}[
        "lab"
    ] == "invalid"


def test_benchmarks_that_do_not_count_have_an_axis_of_their_own(lab: Lab) -> None:
    world = gather(lab.open(), "lab", [])
    apart = {"counts": False, "scale": "error", "unit": "ms"}
    columns = (
        column("a"),
        column("b", **apart),
        column("c", scale="reliability"),
        column("d", **apart),
    )
    none = Cell("missing")
    row = Row(
        "ant",
        "The ant",
        "model",
        False,
        (Cell("scored", 0.5),) * 4,
        (none,),
        none,
        None,
    )
    world = replace(world, everything=board(*columns, rows=(row,)))
    groups = [[each.id for each, _ in cells] for _, _, cells in _blocks(world, row)]
    assert groups == [["a", "c"], ["b", "d"]]


def test_partial_scores_are_counted_with_the_failures(lab: Lab) -> None:
    records = [
        record("ant", "lab.V4-ridge", 0.9, status="partial"),
        record("bee", "lab.V4-ridge", None),
    ]
    index = next(
        one
        for one in pages(gather(lab.open(), "lab", records))
        if one.path == "index.html"
    )
    assert isinstance(index, Page)
    ((_, data),) = index.context["data"]
    assert ("failed or partial", "2") in data["numbers"]
