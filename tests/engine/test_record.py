"""Validation of records: every field, and every contradiction between fields, and paths in their texts."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroledger.engine.record import (
    read_all,
    read_record,
    record_of,
    record_path,
    relative,
    write_record,
)
from neuroledger.errors import DataError
from neuroledger.spec.base import sha256_of
from tests.report.ledger import record


def plain(**fields: Any) -> dict[str, Any]:
    return record("ant", "lab.V4", 0.5, **fields).model_dump(mode="json")


def change(*path: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def apply(content: dict[str, Any]) -> None:
        for name in path[:-1]:
            content = content[name]
        content[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (change("score", "value", to="0.5"), "number"),
        (change("score", "value", to=float("nan")), "should be"),
        (change("score", "value", to=1e101), "less than or equal"),
        (change("score", "value", to=0.6), "its headline is not among its scores"),
        (change("score", "low", to=0.4), "its headline is not among its scores"),
        (change("score", "direction", to="up"), "'higher' or 'lower'"),
        (change("scores", "ridge", "low", to=None), "is not an interval"),
        (change("scores", "ridge", "low", to=0.9), "0.9 to 0.52 is not an interval"),
        (change("scores", "ridge", "n", to={"stimulus": "many"}), "number"),
        (change("scores", "ridge", "ceiling", to={"value": None}), "number"),
        (change("controls", to={"c": {"role": "odd", "value": 1, "bound": 1, "passed": True, "says": ""}}), "role"),
        (change("request", "seed", to=-1), "greater than or equal to 0"),
        (change("request", "seed", to=1.0), "integer"),
        (change("request", "limit", to=0), "greater than 0"),
        (change("request", "device", to="x" * 101), "at most 100"),
        (change("environment", "secret", to="x"), "secret"),
        (change("environment", "dirty", to="no"), "boolean"),
        (change("timing", "wall_s", to=-1.0), "greater than or equal to 0"),
        (change("timing", "wall_s", to=2e12), "less than or equal"),
        (change("id", to="0" * 64), "its id is not the hash of its inputs"),
        (change("status", to="failed"), "status 'failed' contradicts its score"),
        (change("status", to="odd"), "status"),
        (change("schema_version", to=2), "schema_version"),
        (change("more", to=1), "more"),
    ],
)  # fmt: skip
def test_an_invalid_field_of_a_record_is_refused(
    changed: Callable[[dict[str, Any]], None], message: str
) -> None:
    content = plain()
    assert record_of(copy.deepcopy(content)).intact
    changed(content)
    with pytest.raises(ValueError, match=message):
        record_of(content)


@pytest.mark.parametrize(
    ("role", "value", "bound", "valid"),
    [
        ("positive", 0.8, 0.8, True),
        ("positive", 0.79, 0.8, False),
        ("negative", 0.1, 0.1, True),
        ("negative", 0.11, 0.1, False),
        ("negative", None, 0.1, False),
    ],
)
def test_a_control_cannot_have_passed_beyond_its_bound(
    role: str, value: float | None, bound: float, valid: bool
) -> None:
    control = {"role": role, "value": value, "bound": bound, "passed": True, "says": ""}
    if valid:
        assert record_of(plain(controls={"c": control})).controls["c"] == control
    else:
        with pytest.raises(ValueError, match=f"{value} does not pass a {role} control with bound {bound}"):
            record_of(plain(controls={"c": control}))
    assert record_of(plain(controls={"c": control | {"passed": False}})) is not None


def test_a_failed_record_has_a_reason_and_no_score() -> None:
    failed = record("ant", "lab.V4", None).model_dump(mode="json")
    assert record_of(failed).score is None
    with pytest.raises(ValueError, match="status 'scored' contradicts its score"):
        record_of(failed | {"status": "scored"})


def test_the_benchmark_in_the_inputs_is_a_mapping() -> None:
    content = plain()
    content["inputs"]["benchmark"] = "lab.V4"
    content["id"] = sha256_of(content["inputs"])
    with pytest.raises(ValueError, match="the benchmark in its inputs is not a mapping"):
        record_of(content)


def test_an_equal_record_is_not_written_again_and_an_edited_one_is(tmp_path: Path) -> None:
    path = record_path(tmp_path, "lab.V4", "ant")
    assert path == tmp_path / "results" / "records" / "lab.V4" / "ant.json"
    scratch = record_path(tmp_path, "lab.V4", "ant", scratch=True)
    assert scratch == tmp_path / "results" / "scratch" / "lab.V4" / "ant.json"
    first = record("ant", "lab.V4", 0.5)
    assert write_record(path, first) and read_record(path) == first
    before = path.read_bytes()
    later = first.model_copy(update={"timing": {"wall_s": 9.0}, "payload_sha256": ""})
    assert not write_record(path, later) and path.read_bytes() == before
    assert write_record(path, record("ant", "lab.V4", 0.6)) and read_record(path).intact
    path.write_text(path.read_text().replace("0.6", "0.7"))
    assert not read_record(path).intact
    assert write_record(path, record("ant", "lab.V4", 0.6)) and read_record(path).intact
    path.write_text("{}")
    with pytest.raises(DataError, match=r"ant\.json is not a record \(.*\); delete it and run again"):
        read_record(path)
    assert list(read_all(tmp_path)) == []
    assert write_record(path, first) and [each.model for each in read_all(tmp_path)] == ["ant"]


def test_paths_in_texts_are_relative_to_the_repository_or_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    root = tmp_path / "repository"
    text = f"{root}/data/a.nc and {tmp_path}/person/b.nc and {tmp_path}/c.nc"
    expected = f"data/a.nc and ~/b.nc and {tmp_path}/c.nc"
    assert relative({"a": [text, 3], "b": (text, None)}, root) == {"a": [expected, 3], "b": [expected, None]}
    assert relative(0.5, root) == 0.5
