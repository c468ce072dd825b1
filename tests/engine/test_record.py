"""Validation of records: every field, and every contradiction between fields, and paths in their texts."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.data.facts import Fact
from neuroledger.engine.control import Control, in_words, undefined
from neuroledger.engine.record import (
    Record,
    payload_of,
    read_all,
    read_record,
    record_again,
    record_of,
    record_path,
    relative,
    with_relative_paths,
    write_record,
)
from neuroledger.engine.records import environment as module
from neuroledger.engine.records.environment import environment, versions
from neuroledger.errors import DataError
from neuroledger.spec.base import sha256_of
from neuroledger.stats.stored_score import StoredScore
from neuroledger.store.shared import model_of_processor
from tests.report.ledger import altered, record, with_score


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
    earlier = {"role": role, "value": value, "bound": bound, "passed": True, "says": ""}
    present = {"role": role, "value": value, "bound": bound, "verdict": "passed"}
    for control in (earlier, present):
        if valid:
            found = record_of(plain() | {"controls": {"c": control}}).controls["c"]
            assert found == Control(role, value, bound, "passed")
        else:
            with pytest.raises(
                ValueError, match=f"passed does not follow for a {role} control"
            ):
                record_of(plain() | {"controls": {"c": control}})


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"role": "negative", "low": 0.0, "high": 0.1}, "passed"),
        ({"role": "negative", "low": 0.0, "high": 0.11}, "undecided"),
        ({"role": "negative", "low": 0.1, "high": 0.3}, "undecided"),
        ({"role": "negative", "low": 0.11, "high": 0.3}, "failed"),
        ({"role": "positive", "low": 0.1, "high": 0.3}, "passed"),
        ({"role": "positive", "low": 0.09, "high": 0.3}, "undecided"),
        ({"role": "positive", "low": 0.0, "high": 0.09}, "failed"),
        ({"role": "positive", "low": 0.2, "high": 0.5, "at_most": 0.4}, "undecided"),
        ({"role": "positive", "low": 0.5, "high": 0.6, "at_most": 0.4}, "failed"),
        ({"role": "negative", "value": None}, "failed"),
    ],
)
def test_a_stored_verdict_must_follow_from_the_numbers(
    fields: dict[str, Any], verdict: str
) -> None:
    middle = (fields.get("low", 0.0) + fields.get("high", 0.0)) / 2
    control = {"value": middle, "bound": 0.1, **fields}
    for stored in ("passed", "undecided", "failed"):
        content = plain() | {"controls": {"c": control | {"verdict": stored}}}
        if stored == verdict:
            assert record_of(content).controls["c"].verdict == verdict
        else:
            with pytest.raises(ValueError, match=f"{stored} does not follow"):
                record_of(content)


def test_controls_of_earlier_records_are_read_as_controls_whose_uncertainty_is_unknown(
    tmp_path: Path,
) -> None:
    earlier = {
        "good": {
            "role": "positive",
            "value": 0.9,
            "bound": 0.8,
            "passed": True,
            "says": "0.900, …",
        },
        "high": {
            "role": "positive",
            "value": 17.9,
            "bound": 10.0,
            "passed": False,
            "says": "17.900, …",
        },
        "bad": {
            "role": "negative",
            "value": 0.3,
            "bound": 0.1,
            "passed": False,
            "says": "0.300, …",
        },
        "none": {
            "role": "negative",
            "value": None,
            "bound": 0.1,
            "passed": False,
            "says": "it is constant",
        },
    }
    content = plain() | {"controls": earlier}
    content["payload_sha256"] = payload_of(content)
    (tmp_path / "r.json").write_text(json.dumps(content))
    again = read_record(tmp_path / "r.json")
    assert again.intact and again.has_earlier_form
    assert again.signed_sha256 == content["payload_sha256"], (
        "a signature covers what is stored"
    )
    assert {name: in_words(control) for name, control in again.controls.items()} == {
        "good": "0.900, must be at least 0.8, its uncertainty is unknown",
        "high": "17.900, must be at most 10: the ceiling is too low to normalise by, its uncertainty is unknown",
        "bad": "0.300, must be at most 0.1, its uncertainty is unknown",
        "none": "it is constant",
    }
    verdicts = {name: control.verdict for name, control in again.controls.items()}
    assert verdicts == {
        "good": "passed",
        "high": "failed",
        "bad": "failed",
        "none": "failed",
    }


def test_judged_controls_are_stored_and_read_unchanged(tmp_path: Path) -> None:
    controls = {
        "permuted": Control("negative", 0.02, 0.1, "passed", -0.01, 0.05, shuffles=8),
        "itself": Control("positive", 9.0, 0.8, "undecided", 7.0, 11.0, at_most=10.0),
        "noise": undefined("negative", 0.1, "the target is constant"),
    }
    stored = {name: asdict(control) for name, control in controls.items()}
    write_record(tmp_path / "r.json", record("ant", "lab.V4", 0.5, controls=stored))
    assert read_record(tmp_path / "r.json").controls == controls


def test_a_failed_record_has_a_reason_and_no_score() -> None:
    failed = record("ant", "lab.V4", None).model_dump(mode="json")
    assert record_of(failed).score is None
    with pytest.raises(ValueError, match="status 'scored' contradicts its score"):
        record_of(failed | {"status": "scored"})


def test_the_benchmark_in_the_inputs_is_a_mapping() -> None:
    content = plain()
    content["inputs"]["benchmark"] = "lab.V4"
    content["id"] = sha256_of(content["inputs"])
    with pytest.raises(ValueError, match=r"inputs\.benchmark\n"):
        record_of(content)


def test_an_equal_record_is_not_written_again_and_an_edited_one_is(
    tmp_path: Path,
) -> None:
    path = record_path(tmp_path, "lab.V4", "ant")
    assert path == tmp_path / "results" / "records" / "lab.V4" / "ant.json"
    scratch = record_path(tmp_path, "lab.V4", "ant", scratch=True)
    assert scratch == tmp_path / "results" / "scratch" / "lab.V4" / "ant.json"
    first = record("ant", "lab.V4", 0.5)
    assert write_record(path, first) and read_record(path) == first
    before = path.read_bytes()
    later = altered(first, timing={"wall_s": 9.0}, payload_sha256="")
    assert not write_record(path, later) and path.read_bytes() == before
    assert write_record(path, record("ant", "lab.V4", 0.6)) and read_record(path).intact
    path.write_text(path.read_text().replace("0.6", "0.7"))
    assert not read_record(path).intact
    assert write_record(path, record("ant", "lab.V4", 0.6)) and read_record(path).intact
    path.write_text("{}")
    with pytest.raises(
        DataError, match=r"ant\.json is not a record \(.*\); delete it and run again"
    ):
        read_record(path)
    assert list(read_all(tmp_path)) == []
    assert write_record(path, first) and [
        each.model for each in read_all(tmp_path)
    ] == ["ant"]


def test_paths_in_texts_are_relative_to_the_repository_or_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    root = tmp_path / "repository"
    text = f"{root}/data/a.nc and {tmp_path}/person/b.nc and {tmp_path}/c.nc"
    expected = f"data/a.nc and ~/b.nc and {tmp_path}/c.nc"
    assert relative(text, root) == expected
    stored = StoredScore(
        value=0.5,
        scale="correlation",
        direction="higher",
        reason=text,
        notes=(text,),
        facts={"file": Fact(text, "stated"), "rate": Fact(2.0, "declared")},
    )
    found = with_relative_paths(stored, root)
    assert (found.reason, found.notes) == (expected, (expected,))
    assert found.facts == {
        "file": Fact(expected, "stated"),
        "rate": Fact(2.0, "declared"),
    }


def test_a_notebook_shows_score_interval_controls_and_state() -> None:
    whole = record("<ant>", "lab.V4", 0.54321)
    whole = with_score(whole, covers="new stimuli").sealed()
    page = whole._repr_html_()
    for text in (
        "&lt;ant&gt; on lab.V4 (scored)", "0.5432", "0.5232 – 0.5632", "new stimuli", "passed: 0.970, must be at least 0.8",
        whole.id[:12], "yes",
    ):  # fmt: skip
        assert text in page
    assert whole.id[:13] not in page and "edited" not in page and "error" not in page
    assert (
        "no: it was edited"
        in whole.model_copy(update={"status": "partial"})._repr_html_()
    )
    bare = record("ant", "lab.V4", 0.5, half=None)._repr_html_()
    assert "0.5" in bare and "interval" not in bare
    failed = record("ant", "lab.V4", None)._repr_html_()
    assert (
        "it did not work" in failed
        and "ant on lab.V4 (failed)" in failed
        and "score" not in failed
    )


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    command = ["git", *identity, *words]
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_the_environment_contains_the_commit_and_whether_sources_differ_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    outside = environment(tmp_path)
    assert outside.commit is None and outside.dirty is None
    git(tmp_path, "init", "--quiet")
    for name in ("specs/a.yaml", "dvc.lock", "results/records/a.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "First")
    clean = environment(tmp_path)
    assert clean.commit == git(tmp_path, "rev-parse", "HEAD") and clean.dirty is False
    for name in (
        "dvc.lock",
        "results/records/a.json",
        "results/records/b.json",
        "notes.txt",
    ):
        (tmp_path / name).write_text("2")
    assert environment(tmp_path).dirty is False, (
        "a run writes records and the lock; notes change no score"
    )
    (tmp_path / "specs" / "new.yaml").write_text("2")
    assert environment(tmp_path).dirty is True
    (tmp_path / "specs" / "new.yaml").unlink()
    (tmp_path / "specs" / "a.yaml").write_text("2")
    assert environment(tmp_path).dirty is True


def test_the_model_of_the_processor_is_read_from_the_system(tmp_path: Path) -> None:
    """Two processors of one BLAS architecture can give a network other digits."""
    info = tmp_path / "cpuinfo"
    one = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {}\nmodel name\t: Xeon\n\n"
    info.write_text(one.format(106) + one.format(207))
    assert model_of_processor(info) == "GenuineIntel 6.106"
    info.write_text("processor\t: 0\nCPU part\t: 0xd40\n")
    assert model_of_processor(info) == platform.processor()
    assert model_of_processor(tmp_path / "nothing") == platform.processor()


def test_the_environment_contains_versions_platform_and_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(module, "PACKAGES", ("numpy", "no-such-package"))
    versions.cache_clear()
    created = environment(tmp_path)
    versions.cache_clear()
    assert set(created.model_dump()) == {
        "commit",
        "dirty",
        "packages",
        "platform",
        "processor",
        "python",
        "threads",
    }
    assert (
        created.packages["numpy"] == np.__version__
        and "neuroledger" in created.packages
    )
    assert "no-such-package" not in created.packages
    assert created.platform == f"{platform.system()}-{platform.machine()}"
    assert created.python == platform.python_version() and created.threads == "3"
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert environment(tmp_path).threads == str(os.cpu_count())


@pytest.mark.parametrize(
    "error", [OSError("no git"), subprocess.TimeoutExpired("git", 20)]
)
def test_a_missing_or_hanging_git_leaves_the_commit_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*given: Any, **options: Any) -> Any:
        assert options["timeout"] <= 60
        raise error

    monkeypatch.setattr(subprocess, "run", fails)
    found = environment(tmp_path)
    assert found.commit is None and found.dirty is None


def test_invalid_files_among_records_are_logged_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for model in ("bee", "ant"):
        write_record(
            record_path(tmp_path, "lab.V4", model), record(model, "lab.V4", 0.5)
        )
    (tmp_path / "results" / "odd.json").write_text("{}")
    assert [each.model for each in read_all(tmp_path)] == ["ant", "bee"]
    [entry] = caplog.records
    assert (entry.name, entry.levelname) == ("neuroledger", "WARNING")
    assert (
        "record.unreadable" in entry.getMessage()
        and "odd.json is not a record" in entry.getMessage()
    )


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    def apply(content: dict[str, Any]) -> None:
        for name in path[:-1]:
            content = content[name]
        del content[path[-1]]

    return apply


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        (change("score", "vallue", to=0.5), "score.vallue: Extra inputs"),
        (change("scores", "ridge", "ceiling", "hight", to=1.0), "scores.ridge.ceiling.hight: Extra inputs"),
        (change("controls", "noise", "says", to=""), "controls.noise.says: Unexpected keyword"),
        (change("inputs", "dataset", to={"sha": "x"}), "inputs.dataset.sha: Extra inputs"),
        (change("scores", "ridge", "facts", to={"rate": {"value": 1.0, "origin": "guessed"}}),
         "scores.ridge.facts.rate.origin: Input should be"),
        (without("scores", "ridge", "direction"), "scores.ridge.direction: Field required"),
    ],
)  # fmt: skip
def test_a_misspelt_or_missing_field_is_refused_with_its_path(
    tmp_path: Path, changed: Callable[[dict[str, Any]], None], place: str
) -> None:
    content = plain()
    changed(content)
    (tmp_path / "r.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=re.escape(f"r.json is not a record ({place}")):
        read_record(tmp_path / "r.json")


def test_every_record_of_the_repository_is_written_with_the_same_bytes(
    repository: Path,
) -> None:
    paths = sorted((repository / "results" / "records").rglob("*.json"))
    assert len(paths) > 200
    for path in paths:
        content = read_record(path)
        assert content.intact and not content.has_earlier_form, path
        text = json.dumps(
            content.model_dump(mode="json"),
            indent=2,
            sort_keys=True,
            ensure_ascii=False,
            allow_nan=False,
        )
        assert text + "\n" == path.read_text(encoding="utf-8"), path


def earlier() -> dict[str, Any]:
    """A record in the form of an earlier version: a control with a text, draws, and facts in notes."""
    content = plain()
    draws = np.random.default_rng(0).standard_normal(64).astype("<f2").tobytes()
    notes = ["mode strict", "evidence: measured, by RAPL", "prepared signals, sha256 0123456789ab", "more"]  # fmt: skip
    for score in (content["score"], content["scores"]["ridge"]):
        score["notes"] = notes
    content["score"]["spread"] = {
        "draws": {"stimulus": base64.b64encode(draws).decode()},
        "deviation": {"stimulus": 0.02},
        "items": {"stimulus": 41},
    }
    content["controls"]["noise"] = {
        "role": "negative",
        "value": 0.01,
        "bound": 0.1,
        "passed": True,
        "says": "0.010, must be at most 0.1",
    }
    return content | {"payload_sha256": payload_of(content)}


def test_an_earlier_record_keeps_identity_values_intervals_and_verdicts(
    tmp_path: Path,
) -> None:
    path, before = tmp_path / "r.json", earlier()
    path.write_text(json.dumps(before))
    content = read_record(path)
    assert content.intact and content.has_earlier_form
    assert write_record(path, content) and not write_record(path, content)
    after = json.loads(path.read_text())
    again = read_record(path)
    assert again.intact and not again.has_earlier_form
    assert again.model_dump() == content.sealed().model_dump()
    for name in ("id", "status", "inputs", "request", "environment", "timing", "error"):
        assert after[name] == before[name], name
    for was, now in (
        (before["score"], after["score"]),
        (before["scores"]["ridge"], after["scores"]["ridge"]),
    ):
        kept = was.keys() - {"spread", "notes"}
        assert {name: was[name] for name in kept} == {name: now[name] for name in kept}
        assert now["notes"] == ["mode strict", "evidence: measured, by RAPL", "more"]
        assert now["facts"] == {
            "counting_mode": {"value": "strict", "origin": "declared"},
            "evidence": {"value": "measured", "origin": "stated"},
            "prepared_sha256": {"value": "0123456789ab", "origin": "stated"},
        }
    assert again.controls["noise"] == Control("negative", 0.01, 0.1, "passed")
    known = again.as_score().uncertainty
    assert known is not None and known.method == "draws"
    assert known.error == pytest.approx(0.02) and known.freedom == pytest.approx(40)


def test_whether_a_record_is_intact_is_known_without_writing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    for content in (record("ant", "lab.V4", 0.5).sealed().model_dump(), earlier()):
        path.write_text(json.dumps(content, default=asdict))
        with monkeypatch.context() as patch:
            patch.delattr(Record, "_payload")
            read = read_record(path)
            assert read.intact and read.signed_sha256 == content["payload_sha256"]
            again = record_again(path.read_bytes(), read.signed_sha256)
            assert again == read and again.intact
        copied = read.model_copy(update={"status": "partial"})
        assert not copied.intact and copied.signed_sha256 == copied.payload()
        assert read.sealed().signed_sha256 == read.payload()
        assert pickle.loads(pickle.dumps(read)).signed_sha256 == read.signed_sha256


def test_an_edited_record_of_an_earlier_version_stays_edited(tmp_path: Path) -> None:
    content = earlier()
    content["score"]["notes"] = content["scores"]["ridge"]["notes"] = ["mode strict"]
    (tmp_path / "r.json").write_text(json.dumps(content))
    assert not read_record(tmp_path / "r.json").intact


def test_every_field_of_a_record_is_described() -> None:
    schema = Record.model_json_schema()
    for name, part in {"Record": schema, **schema["$defs"]}.items():
        if "properties" not in part:
            continue  # any JSON value
        assert part["description"], name
        for field, content in part["properties"].items():
            assert content.get("description"), f"{name}.{field}"
