"""Runs compute missing scores and isolate failures; records can be verified."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from neuroledger.data.facts import Fact
from neuroledger.data.gate.validate import validate
from neuroledger.display import NoDisplay
from neuroledger.engine import run as running
from neuroledger.engine.plan import plan
from neuroledger.engine.record import (
    Record,
    read_record,
    record_path,
    write_record,
)
from neuroledger.engine.records.environment import environment
from neuroledger.engine.run import Done, Work, grouped, run
from neuroledger.engine.session import Request, Session
from neuroledger.engine.verify import verify
from neuroledger.errors import Finding, PendingError, RequestError
from neuroledger.spec.suites import suites_of
from tests.engine.lab import Lab, make_files
from tests.report.ledger import altered


def findings(*given: Any, **options: Any) -> list[Finding]:
    return [verified.finding for verified in verify(*given, **options)]


def score_all(
    lab: Lab, request: Request | None = None, **options: Any
) -> dict[str, Done]:
    catalog, request = lab.open(), request or Request()
    jobs = plan(catalog, suites=suites_of(catalog, "lab"), request=request).jobs
    return {
        outcome.job.model: outcome
        for outcome in run(catalog, jobs, request, NoDisplay(), **options)
    }


def test_the_true_model_reaches_the_ceiling_and_noise_the_floor(valid: Lab) -> None:
    done = score_all(valid)
    true, noise = done["pixels4"].record, done["noise"].record
    assert true.status == noise.status == "scored"
    assert true.score is not None and noise.score is not None
    assert true.score.value > 0.8
    assert abs(noise.score.value) < 0.1
    assert true.score.low < true.score.value < true.score.high
    assert true.score.ceiling.scale == "reliability"
    r, ceiling = true.score.raw, true.score.ceiling.value
    assert true.score.value == pytest.approx(np.sign(r) * r**2 / ceiling)
    assert {"itself", "permuted", "noise"} <= set(true.controls)
    assert all(control.verdict == "passed" for control in true.controls.values())


def test_a_second_run_computes_nothing_and_touches_no_file(valid: Lab) -> None:
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    assert not any(outcome.computed for outcome in score_all(valid).values())
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_computing_again_gives_the_same_payload_byte_for_byte(valid: Lab) -> None:
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    before = path.read_bytes()
    assert all(outcome.computed for outcome in score_all(valid, force=True).values())
    assert path.read_bytes() == before


def test_a_changed_spec_recomputes_only_the_jobs_that_depend_on_it(valid: Lab) -> None:
    valid.benchmark(
        "lab.V4-pls",
        metric={"name": "pls", "compare": {"estimator": {"components": 5}}},
    )
    valid.spec(
        "suites", "lab", benchmarks=["lab.V4-ridge", "lab.V4-pls"], models=["pixels4"]
    )
    score_all(valid)
    valid.benchmark(
        "lab.V4-pls",
        metric={"name": "pls", "compare": {"estimator": {"components": 6}}},
    )
    catalog = valid.open()
    jobs = plan(catalog, suites=suites_of(catalog, "lab"), request=Request()).jobs
    outcomes = run(catalog, jobs, Request(), NoDisplay())
    assert {o.job.benchmark for o in outcomes if o.computed} == {"lab.V4-pls"}


def test_a_new_title_recomputes_nothing_and_a_new_seed_everything(valid: Lab) -> None:
    score_all(valid)
    valid.benchmark(title="Another title", cite=[])
    assert not any(outcome.computed for outcome in score_all(valid).values())
    assert all(
        outcome.computed for outcome in score_all(valid, Request(seed=1)).values()
    )


class Lines(NoDisplay):
    """What was displayed."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def line(self, text: str) -> None:
        self.said.append(text)


def test_unvalidated_data_give_one_line_and_no_record(lab: Lab) -> None:
    catalog, display = lab.open(), Lines()
    jobs = plan(catalog, suites=suites_of(catalog, "lab"), request=Request()).jobs
    assert len(jobs) == 2
    assert all(
        done.pending is not None and not done.computed
        for done in run(catalog, jobs, Request(), display)
    )
    assert display.said == [
        "pending: lab.V4-ridge · noise, lab.V4-ridge · pixels4: data set 'lab': it has not been validated: "
        "run `neuroledger validate lab`"
    ]
    assert not list((lab.root / "results" / "records").rglob("*.json"))
    validate(lab.open(), "lab")
    assert score_all(lab)["pixels4"].record.status == "scored"


def test_missing_data_give_one_line_and_keep_the_record(valid: Lab) -> None:
    score_all(valid)
    before = record_path(valid.root, "lab.V4-ridge", "pixels4").read_bytes()
    for path in valid.data.glob("*"):
        path.unlink()
    catalog, display = valid.open(), Lines()
    jobs = plan(catalog, suites=suites_of(catalog, "lab"), request=Request(seed=1)).jobs
    ended = run(catalog, jobs, Request(seed=1), display)
    assert {done.pending.code for done in ended if done.pending is not None} == {
        "data.missing"
    }
    (line,) = display.said
    assert "pixels4: data set 'lab': 3 of 3 files are missing" in line
    assert "`neuroledger fetch lab`" in line
    assert record_path(valid.root, "lab.V4-ridge", "pixels4").read_bytes() == before


def test_data_that_failed_validation_leave_a_failed_record(lab: Lab) -> None:
    lab.dataset(expectations={"assembly": [{"check": "repetitions", "count": 2}]})
    validate(lab.open(), "lab")
    record = score_all(lab)["pixels4"].record
    assert record.status == "failed" and record.score is None
    assert "failed validation" in record.reason


def test_missing_weights_give_no_record(valid: Lab) -> None:
    pin = {"w.npy": {"url": "https://example.org/w.npy", "size": 1, "sha256": "0" * 64}}
    valid.spec(
        "models",
        "away",
        builder={"name": "precomputed", "stimulus_ids": "w.npy"},
        weights=pin,
    )
    catalog, display = valid.open(), Lines()
    jobs = plan(
        catalog, models=["away"], benchmarks=["lab.V4-ridge"], request=Request()
    ).jobs
    (done,) = run(catalog, jobs, Request(), display)
    with pytest.raises(PendingError, match="1 of 1 files are missing"):
        _ = done.record
    assert (
        "model 'away': 1 of 1 files are missing" in display.said[0]
        and "`neuroledger fetch away`" in display.said[0]
    )


def test_only_what_a_job_needs_stays_in_memory(valid: Lab) -> None:
    """Jobs of a data set, and of a model within it, follow each other; then both are dropped."""
    shutil.copytree(valid.data, valid.root / "data" / "second")
    valid.spec(
        "datasets", "second",
        **{key: value for key, value in yaml.safe_load((valid.root / "specs/datasets/lab.yaml").read_text()).items()
           if key not in ("id", "version", "title")},
    )  # fmt: skip
    validate(valid.open(), "second")
    valid.spec("models", "other", builder={"name": "pixels", "size": 2})
    valid.benchmark("second.V4-ridge", dataset="second")
    valid.benchmark("lab.V4-again")
    catalog = valid.open()
    names = ["lab.V4-ridge", "second.V4-ridge", "lab.V4-again"]
    jobs = plan(
        catalog, models=["pixels4", "other"], benchmarks=names, request=Request()
    ).jobs
    order = grouped(catalog, jobs)
    assert [(job.benchmark.split(".")[0], job.model) for job in order] == [
        ("lab", "pixels4"), ("lab", "pixels4"), ("lab", "other"), ("lab", "other"),
        ("second", "pixels4"), ("second", "other"),
    ]  # fmt: skip
    session = Session(catalog)
    work = Work(catalog.root, Request(), session)
    for job in order:
        assert work(job)[0].status == "scored"
        assert set(session.datasets) == {catalog.benchmark(job.benchmark).dataset}
        assert set(session.models) <= {job.model, "pixels4", "noise"}


def test_a_record_reports_uncommitted_specs_and_contains_no_local_path(
    valid: Lab,
) -> None:
    def dirty() -> bool:
        return bool(environment(valid.root).dirty)

    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(
            ["git", *who, *words], cwd=valid.root, check=True, capture_output=True
        )

    git("init", "-q")
    (valid.root / ".gitignore").write_text(".cache\n")
    git("add", "-A")
    git("commit", "-qm", "all")
    assert not dirty()
    score_all(valid)
    assert not dirty(), "records that a run writes do not count"
    (valid.root / "notes.txt").write_text("mine")
    assert not dirty(), "a file that determines no score does not count"
    valid.spec("models", "new", builder={"name": "pixels", "size": 2})
    assert dirty(), "a spec that is in no commit"
    git("add", "-A")
    git("commit", "-qm", "new")
    assert not dirty()
    valid.benchmark(title="Another title")
    assert dirty(), "a spec that differs from the commit"
    valid.benchmark(controls={"positive": ["noise"], "negative": []})
    record = score_all(valid, force=True)["pixels4"].record
    assert record.status == "failed" and str(valid.root) not in record.model_dump_json()


@pytest.mark.parametrize("name", ["responses.nc", "stimuli.csv", "stimuli.zip"])
def test_one_flipped_byte_in_any_file_is_pending_and_leaves_the_record(
    valid: Lab, name: str
) -> None:
    path = valid.data / name
    original = path.read_bytes()
    before = score_all(valid)["pixels4"].record
    content = bytearray(original)
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    for force in (False, True):
        pending = score_all(valid, force=force)["pixels4"].pending
        assert (
            pending is not None
            and pending.code == "data.hash"
            and name in pending.reason
        )
    path.write_bytes(original)
    again = score_all(valid)["pixels4"]
    assert not again.computed and again.record.payload() == before.payload(), (
        "the record was not touched"
    )


def test_records_remain_valid_without_local_data(valid: Lab) -> None:
    score_all(valid)
    for path in valid.data.glob("*"):
        path.unlink()
    assert not any(outcome.computed for outcome in score_all(valid).values())


def test_a_failing_job_leaves_the_others_alone(valid: Lab) -> None:
    valid.spec("models", "broken", builder={"name": "precomputed"})
    valid.spec(
        "suites", "lab", benchmarks=["lab.V4-ridge"], models=["broken", "pixels4"]
    )
    done = score_all(valid)
    assert done["broken"].record.status == "failed"
    assert "name the `file`" in done["broken"].record.reason
    assert done["pixels4"].record.status == "scored"
    path = record_path(valid.root, "lab.V4-ridge", "broken")
    (verdict,) = findings(valid.open(), [path], recompute=False, display=NoDisplay())
    assert (verdict.code, verdict.severity) == ("record.failed", "note")
    assert verdict.what.startswith("model 'broken': name the `file`")
    record = read_record(path)
    for error, code, severity in (
        ({"type": "ModelError", "message": "other words"}, "record.failed", "note"),
        (
            {"type": "DataError", "message": "other words"},
            "record.not-reproduced",
            "error",
        ),
    ):
        path.unlink()
        write_record(path, altered(record, error=error))
        (verdict,) = findings(valid.open(), [path], recompute=True, display=NoDisplay())
        assert (verdict.code, verdict.severity) == (code, severity)
        assert ("fails again: model 'broken': name the" in verdict.what) == (
            severity == "note"
        )
    path.unlink()
    write_record(path, record)
    assert not score_all(valid)["broken"].computed
    assert score_all(valid, retry_failed=True)["broken"].computed


def test_a_failed_control_removes_the_score(valid: Lab) -> None:
    valid.benchmark(controls={"positive": ["noise"], "negative": []})
    record = score_all(valid)["pixels4"].record
    assert record.status == "failed"
    assert "controls of 'lab.V4-ridge' failed" in record.reason


def test_a_limited_run_is_partial_and_stored_in_scratch(valid: Lab) -> None:
    done = score_all(valid, Request(limit=30))
    assert done["pixels4"].record.status in {"partial", "failed"}
    assert not record_path(valid.root, "lab.V4-ridge", "pixels4").exists()
    assert record_path(valid.root, "lab.V4-ridge", "pixels4", scratch=True).exists()


def test_a_damaged_record_is_reported_by_verify_and_computed_again(valid: Lab) -> None:
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    plain = json.loads(path.read_text())
    plain["score"]["value"] = 0.99
    path.write_text(json.dumps(plain))
    (verdict,) = findings(valid.open(), [path], recompute=False, display=NoDisplay())
    assert (
        verdict.code == "record.unreadable" and "score" in verdict.what
    )  # none of its scores is this one
    plain["scores"]["ridge"]["value"] = 0.99
    path.write_text(json.dumps(plain))
    (verdict,) = findings(valid.open(), [path], recompute=False, display=NoDisplay())
    assert verdict.code == "record.edited"
    assert score_all(valid)["pixels4"].computed
    (verdict,) = findings(valid.open(), [path], recompute=True, display=NoDisplay())
    assert verdict.code == "record.reproduced"


@pytest.mark.parametrize(
    ("moved_by", "state", "words"),
    [
        (0.0, "reproduced", "same payload"),
        (1e-10, "reproduced", "within 1e-08"),
        (0.005, "reproduced", "within 0.01 standard errors: value was"),
        (0.05, "not-reproduced", "value was"),
    ],
)
def test_a_difference_of_a_small_share_of_the_error_is_reproduced(
    valid: Lab, moved_by: float, state: str, words: str
) -> None:
    """Processors round differently; shares of the standard error, but for the least, which is itself the distance."""
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    record = read_record(path)
    score = record.scores["ridge"]
    assert score.value is not None and score.error is not None and score.error > 1e-3
    value = score.value + moved_by * (score.error if moved_by > 1e-8 else 1.0)
    other = moved_to(record, value)
    write_record(path, other)
    (verdict,) = findings(valid.open(), [path], recompute=True, display=NoDisplay())
    assert (verdict.code, words in verdict.what) == (f"record.{state}", True), verdict


def moved_to(record: Record, value: float) -> Record:
    """A record with another value of its headline."""
    changed = {"value": value}
    assert record.score is not None
    scores = {"ridge": record.scores["ridge"].model_copy(update=changed)}
    headline = record.score.model_copy(update=changed)
    return record.model_copy(
        update={"score": headline, "scores": record.scores | scores}
    )


def computed_on(record: Record, processor: str) -> Record:
    """A record that was computed on another processor."""
    elsewhere = record.environment.model_copy(update={"processor": processor})
    return record.model_copy(update={"environment": elsewhere})


def test_a_score_that_is_not_reproduced_is_reported_with_both_processors(
    valid: Lab,
) -> None:
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    record = read_record(path)
    kinds = {
        item["architecture"] for item in threadpool_info() if "architecture" in item
    }
    assert record.environment.processor.split()[: len(kinds)] == sorted(kinds)
    assert record.value is not None
    moved = moved_to(record, record.value + 0.05)
    for kind, words in (
        ("Abacus", "processor Abacus, here "),
        (record.environment.processor, ""),
    ):
        path.unlink()
        write_record(path, computed_on(moved, kind))
        (verdict,) = findings(valid.open(), [path], recompute=True, display=NoDisplay())
        assert verdict.code == "record.not-reproduced"
        assert words in verdict.what and ("processor" in verdict.what) == bool(words)


@pytest.mark.parametrize(
    ("moved_by", "state"), [(0.005, "reproduced"), (0.05, "not-reproduced")]
)
def test_controls_have_the_tolerance_of_their_own_errors(
    valid: Lab, moved_by: float, state: str
) -> None:
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    record = read_record(path)
    assert record.score is not None
    name, control = next(
        (name, item) for name, item in record.controls.items() if item.low is not None
    )
    error = (control.high - control.low) / (2 * 1.96)
    moved = replace(control, value=control.value + moved_by * error)
    write_record(
        path, record.model_copy(update={"controls": record.controls | {name: moved}})
    )
    (verdict,) = findings(valid.open(), [path], recompute=True, display=NoDisplay())
    assert verdict.code == f"record.{state}", verdict


@pytest.mark.parametrize(
    ("fact", "processor", "state"),
    [
        ("prepared_sha256", "", "not-reproduced"),
        ("prepared_sha256", "Abacus", "reproduced"),
        ("other_sha256", "Abacus", "not-reproduced"),
    ],
)
def test_hashes_of_prepared_data_may_differ_only_between_processors(
    valid: Lab, fact: str, processor: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    record = read_record(path)
    assert record.score is not None

    def prepared(record: Record, sha256: str) -> Record:
        stated = {"facts": {fact: Fact(sha256, "stated")}}
        scores = {
            name: one.model_copy(update=stated) for name, one in record.scores.items()
        }
        assert record.score is not None
        headline = record.score.model_copy(update=stated)
        return record.model_copy(update={"score": headline, "scores": scores})

    run_job = running.run_job

    def prepared_here(*given: Any) -> tuple[Record, Any]:
        again, result = run_job(*given)
        return prepared(again, "218731d6e591"), result

    monkeypatch.setattr(running, "run_job", prepared_here)
    path.unlink()
    kind = processor or record.environment.processor
    write_record(path, computed_on(prepared(record, "0123456789ab"), kind))
    (verdict,) = findings(valid.open(), [path], recompute=True, display=NoDisplay())
    assert verdict.code == f"record.{state}", verdict


def test_verify_hashes_every_file_again(valid: Lab) -> None:
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    (valid.data / "responses.nc").write_bytes(b"other bytes")
    (verdict,) = findings(valid.open(), [path], recompute=False, display=NoDisplay())
    assert verdict.code == "record.data-changed" and "responses.nc" in verdict.what


def test_a_stale_record_names_the_changed_inputs(valid: Lab) -> None:
    score_all(valid)
    valid.benchmark(version=2)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    (verdict,) = findings(valid.open(), [path], recompute=False, display=NoDisplay())
    assert verdict.code == "record.stale" and verdict.what == "changed since: benchmark"


def test_new_data_never_return_an_old_score(valid: Lab) -> None:
    before = score_all(valid)["pixels4"].record
    make_files(valid.data, seed=1)
    valid.dataset()
    validate(valid.open(), "lab")
    after = score_all(valid)["pixels4"]
    assert after.computed and after.record.id != before.id
    assert after.record.score != before.score


def test_records_are_sorted_json_and_can_be_read_back(valid: Lab) -> None:
    score_all(valid)
    path = record_path(valid.root, "lab.V4-ridge", "pixels4")
    text = path.read_text()
    assert (
        text
        == json.dumps(json.loads(text), indent=2, sort_keys=True, ensure_ascii=False)
        + "\n"
    )
    assert read_record(path).intact


def test_an_unknown_model_raises_a_request_error(valid: Lab) -> None:
    with pytest.raises(RequestError, match="did you mean 'pixels4'"):
        plan(
            valid.open(),
            models=["pixel4"],
            benchmarks=["lab.V4-ridge"],
            request=Request(),
        )


def test_a_read_only_results_folder_gives_one_clear_error(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    before = sorted((valid.root / "results").rglob("*"))
    for done in score_all(valid).values():
        assert done.pending is not None and done.pending.code == "machine.disk"
        assert "No space left on device" in done.pending.reason
    assert [
        path for path in (valid.root / "results").rglob("*.json") if path not in before
    ] == []
    assert not list(valid.root.rglob("*.tmp"))


@pytest.mark.parametrize(
    "executor", ["processes:2", pytest.param("dask", marks=pytest.mark.slow)]
)
def test_other_processes_give_the_same_records(valid: Lab, executor: str) -> None:
    score_all(valid)
    before = {
        path: path.read_bytes()
        for path in (valid.root / "results").rglob("lab.V4-ridge/*.json")
    }
    done = score_all(valid, force=True, executor=executor)
    assert all(
        outcome.computed and outcome.record.status == "scored"
        for outcome in done.values()
    )
    assert {path: path.read_bytes() for path in before} == before


def test_an_unknown_executor_and_an_unreachable_scheduler_are_reported(
    valid: Lab,
) -> None:
    with pytest.raises(RequestError, match="no executor 'spark'"):
        score_all(valid, executor="spark")
    with pytest.raises(RequestError, match="number of processes"):
        score_all(valid, executor="processes:many")
