"""Which records are computed, in which order, and what a record says of an evaluation or an error."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neuroledger.display import NoDisplay
from neuroledger.engine import run as module
from neuroledger.engine.control import undefined
from neuroledger.engine.evaluate import Evaluation
from neuroledger.engine.outcome import Pending
from neuroledger.engine.plan import Job, Mismatch
from neuroledger.engine.record import (
    Failure,
    Record,
    RecordedRequest,
    read_record,
    record_path,
    write_record,
)
from neuroledger.engine.records.environment import Environment
from neuroledger.engine.records.inputs import Inputs, ModelIdentity, SpecIdentity
from neuroledger.engine.records.summary import Known
from neuroledger.engine.run import (
    Done,
    Work,
    closed,
    current,
    grouped,
    not_ready,
    run,
    run_job,
    run_object,
)
from neuroledger.engine.session import Request
from neuroledger.errors import DataError, Finding, MetricError, UnavailableError
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import Uncertainty
from tests.report.ledger import record
from tests.varying import of_items

DATASETS = {"lab.V4": "one", "lab.IT": "two", "lab.V1": "one"}


def job(model: str = "ant", benchmark: str = "lab.V4", **inputs: Any) -> Job:
    content = Inputs(
        benchmark=SpecIdentity(id=benchmark, version=1),
        model=ModelIdentity(id=model),
        **inputs,
    )
    return Job(model, benchmark, content.sha256, content)


def catalog(root: Path, access: str = "public") -> Any:
    return SimpleNamespace(
        root=root, benchmark=lambda id: SimpleNamespace(id=id, dataset=DATASETS[id]),
        dataset=lambda id: SimpleNamespace(access=access),
    )  # fmt: skip


class Lines(NoDisplay):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[tuple[str, int, int]] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def progress(self, what: str, number: int, total: int) -> None:
        self.steps.append((what, number, total))


def pending(reason: str) -> Pending:
    return Pending(reason, "mend it", "data.missing")


class Bench:
    """A repository whose jobs are scored 0.5 without any work."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.display = root, Lines()
        self.catalog = catalog(root)
        self.computed: list[Job] = []
        self.missing: dict[tuple[str, str], Pending] = {}
        self.damaged: set[tuple[str, str]] = set()
        self.executed: list[Any] = []
        monkeypatch.setattr(module, "open_store", lambda *given: None)
        monkeypatch.setattr(module, "Session", lambda *given, **_: given)
        monkeypatch.setattr(module, "execute", self.execute)
        monkeypatch.setattr(module, "_needed", lambda catalog, job: iter(()))
        monkeypatch.setattr(module, "_invalid", lambda catalog, kind, id: None)
        monkeypatch.setattr(
            module, "not_ready", lambda catalog, kind, id: self.missing.get((kind, id))
        )
        monkeypatch.setattr(
            module,
            "_damaged",
            lambda catalog, kind, id: (
                pending("x.nc differs") if (kind, id) in self.damaged else None
            ),
        )

    def execute(
        self, executor: str, jobs: list[Job], calls: Any, *, device: str
    ) -> Any:
        self.executed.append((executor, calls.work, device))
        for item in jobs:
            self.computed.append(item)
            yield (
                item,
                (
                    record(
                        item.model,
                        item.benchmark,
                        0.5,
                        inputs=item.inputs.model_dump(mode="json"),
                    ),
                    "0.500",
                ),
            )

    def run(
        self, *jobs: Job, request: Request | None = None, **options: Any
    ) -> list[Done]:
        self.computed.clear()
        return run(self.catalog, jobs, request or Request(), self.display, **options)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


JOBS = (job("bee", "lab.IT"), job("ant"), job("bee"))


def test_missing_records_are_computed_by_data_set_and_reported_in_the_order_asked_for(
    bench: Bench,
) -> None:
    outcomes = bench.run(*JOBS)
    assert [(item.job, item.computed) for item in outcomes] == [
        (item, True) for item in JOBS
    ]
    assert bench.display.lines == [
        "✓ lab.IT · bee: 0.500",
        "✓ lab.V4 · bee: 0.500",
        "✓ lab.V4 · ant: 0.500",
    ]
    assert bench.display.steps == [("scoring", number, 3) for number in (1, 2, 3)]
    [(executor, work, device)] = bench.executed
    assert (executor, device) == ("local", "cpu") and work.root == bench.root
    assert work.session == (bench.catalog, Request(), None)
    for item in JOBS:
        assert (
            read_record(record_path(bench.root, item.benchmark, item.model)).id
            == item.id
        )
    again = bench.run(*JOBS)
    assert [(item.job, item.computed) for item in again] == [
        (item, False) for item in JOBS
    ]
    assert bench.computed == [] and again[0].record.model == "bee"


def test_only_jobs_without_a_current_record_are_computed(bench: Bench) -> None:
    bench.run(*JOBS)
    changed = job("ant", seed=1)
    assert [item.computed for item in bench.run(JOBS[0], changed)] == [False, True]
    assert bench.computed == [changed]
    bench.run(*JOBS, force=True)
    assert len(bench.computed) == 3
    bench.run(*JOBS)
    for damaged, waiting in (
        (("models", "bee"), (JOBS[0], JOBS[2])),
        (("datasets", "one"), JOBS[1:]),
    ):
        bench.damaged = {damaged}
        ended = bench.run(*JOBS)
        assert bench.computed == [], "their records are not touched"
        assert [item.job for item in ended if item.pending is not None] == list(waiting)


def test_limited_runs_have_records_of_their_own(bench: Bench) -> None:
    bench.run(JOBS[0], request=Request(limit=3))
    assert record_path(bench.root, "lab.IT", "bee", scratch=True).exists()
    assert not record_path(bench.root, "lab.IT", "bee").exists()
    bench.run(JOBS[0], request=Request(limit=3))
    assert bench.computed == []
    part = record("bee", "lab.IT", 0.5, status="partial")
    assert module._sign(part) == "◐", "their lines are marked"
    bench.run(JOBS[0])
    assert bench.computed == [JOBS[0]]


def test_jobs_without_their_files_are_pending_with_one_line_per_reason(
    bench: Bench,
) -> None:
    bench.missing = {
        ("datasets", "one"): pending("no data"),
        ("models", "bee"): pending("no weights"),
    }
    outcomes = bench.run(
        job("bee", "lab.IT"),
        job("ant", "lab.V4"),
        job("ant", "lab.V1"),
        job("ant", "lab.IT"),
    )
    assert [item.pending is None for item in outcomes] == [False, False, False, True]
    assert bench.display.lines[1:] == [
        "pending: lab.IT · bee: no weights: run `mend it`",
        "pending: lab.V1 · ant, lab.V4 · ant: no data: run `mend it`",
    ]


def test_a_missing_device_is_refused_before_anything_is_computed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(name: str) -> None:
        asked.append(name)
        raise UnavailableError("no such device")

    monkeypatch.setattr(module, "require_device", refuse)
    with pytest.raises(UnavailableError, match="no such device"):
        bench.run(JOBS[0], request=Request(device="cuda:1"))
    assert asked == ["cuda:1"] and bench.computed == []
    monkeypatch.setattr(module, "machine_needs", lambda *_: {})
    monkeypatch.setattr(module, "imports_of", lambda *_: ())
    for executor in ("dask", "dask:tcp://host:1"):
        bench.run(
            JOBS[0], request=Request(device="cuda:1"), executor=executor, force=True
        )
        assert bench.computed == [JOBS[0]], "its workers have the device"
        assert (
            bench.executed[-1][1].session is None and bench.executed[-1][0] == executor
        )


def test_jobs_of_one_data_set_and_then_of_one_model_follow_each_other(
    tmp_path: Path,
) -> None:
    given = [
        job("a", "lab.V4"),
        job("b", "lab.IT"),
        job("b", "lab.V1"),
        job("a", "lab.IT"),
        job("a", "lab.V1"),
    ]
    assert [(item.benchmark, item.model) for item in grouped(catalog(tmp_path), given)] == [
        ("lab.V4", "a"), ("lab.V1", "a"), ("lab.V1", "b"), ("lab.IT", "a"), ("lab.IT", "b"),
    ]  # fmt: skip


def stored(
    root: Path,
    content: Record,
    item: Job,
    request: Request | None = None,
    **options: Any,
) -> Known | None:
    path = record_path(root, item.benchmark, item.model)
    write_record(path, content)
    return existing(root, item, request, **options)


def existing(
    root: Path, item: Job, request: Request | None = None, **options: Any
) -> Known | None:
    asked = {"retry_failed": False, **options}
    return current(catalog(root), [item], request or Request(), **asked).get(item)


def test_a_record_is_current_if_it_is_intact_and_of_the_same_job(
    tmp_path: Path,
) -> None:
    item = job()
    assert existing(tmp_path, item) is None
    assert stored(tmp_path, record("ant", "lab.V4", 0.5), item) is not None
    assert (
        stored(tmp_path, record("ant", "lab.V4", 0.5), item, retry_failed=True)
        is not None
    )
    assert stored(tmp_path, record("ant", "lab.V4", 0.5), job(seed=1)) is None
    assert (
        stored(tmp_path, record("ant", "lab.V4", 0.5), item, Request(limit=3)) is None
    )
    path = record_path(tmp_path, "lab.V4", "ant")
    path.write_text(path.read_text().replace("0.97,", "0.99,"))
    assert existing(tmp_path, item) is None
    path.write_text("{")
    assert existing(tmp_path, item) is None


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        ("MetricError", True),
        ("ModelError", True),
        ("DataError", False),
        ("MemoryError", False),
    ],
)
def test_failures_of_the_machine_are_always_retried_and_others_on_request(
    tmp_path: Path, kind: str, kept: bool
) -> None:
    failed = record("ant", "lab.V4", None, error={"type": kind, "message": "why"})
    assert (stored(tmp_path, failed, job()) is not None) is kept
    assert stored(tmp_path, failed, job(), retry_failed=True) is None


def test_data_that_failed_validation_are_ready_because_they_give_a_failed_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = Finding(
        "data.missing", "error", "data/lab", "2 files are missing", "fetch them"
    )
    unseen = Finding(
        "data.not-validated", "error", "lab", "it has not been validated", "validate it"
    )
    invalid = Finding("data.invalid", "error", "lab", "it is invalid", "correct it")
    fetch, validate = "neuroledger fetch lab", "neuroledger validate lab"
    files = Pending("data/lab: 2 files are missing", fetch, "data.missing")
    for absent, refused, reason in (
        (None, None, None), (missing, None, files),
        (missing, unseen, Pending("data/lab: 2 files are missing", f"{fetch} && {validate}", "data.missing")),
        (None, unseen, Pending("lab: it has not been validated", validate, "data.not-validated")),
        (None, invalid, None), (missing, invalid, files),
    ):  # fmt: skip
        monkeypatch.setattr(module, "absent", lambda *given, absent=absent: absent)
        monkeypatch.setattr(module, "mending", lambda *given: fetch)
        monkeypatch.setattr(module, "refusal", lambda *given, refused=refused: refused)
        assert not_ready(SimpleNamespace(), "datasets", "lab") == reason  # type: ignore[arg-type]
        weights = None if absent is None else files
        assert not_ready(SimpleNamespace(), "models", "lab") == weights, (
            "models are not validated"
        )  # type: ignore[arg-type]


def test_a_pair_is_closed_by_its_channels_its_data_or_a_missing_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf: Any = catalog(Path())

    for name in ("mismatch", "unavailable", "not_ready", "_invalid"):
        monkeypatch.setattr(module, name, lambda *given: None)
    assert closed(shelf, "lab.V4", "ant") is None
    monkeypatch.setattr(
        module, "not_ready", lambda catalog, kind, id: pending(f"{kind} {id} missing")
    )
    assert closed(shelf, "lab.V4", "ant") == pending("datasets one missing")
    monkeypatch.setattr(
        module, "_invalid", lambda catalog, kind, id: pending(f"{kind} {id} invalid")
    )
    assert closed(shelf, "lab.V4", "ant") == pending("benchmarks lab.V4 invalid")
    monkeypatch.setattr(module, "unavailable", lambda *given: "withdrawn")
    assert closed(shelf, "lab.V4", "ant") == "withdrawn"
    monkeypatch.setattr(
        module, "mismatch", lambda *given: Mismatch("it gives V1", "it asks for V4", "")
    )
    assert closed(shelf, "lab.V4", "ant") == "it asks for V4"
    monkeypatch.setattr(
        module,
        "mismatch",
        lambda *given: Mismatch("it gives V1", "it asks for V4", "add V4"),
    )
    assert closed(shelf, "lab.V4", "ant") == "it asks for V4; add V4"


def varying() -> Score:
    items = of_items(np.array([0.1, -0.2, 0.1]), ["a", "b", "c"])
    return Score(0.5, varies=items, population="one", scale="correlation")


class Case:
    """A session in which an evaluation is given."""

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        access: str = "public",
        **request: Any,
    ) -> None:
        self.session: Any = SimpleNamespace(
            catalog=catalog(root, access),
            request=Request(**request),
            environment={"commit": "abc"},
        )
        control = undefined("positive", 0.8, f"{root}/x.nc is constant")
        measured: Any = None
        self.result: Any = Evaluation(
            {"m": varying(), "n": Score(0.1)}, {"p": control}, measured
        )
        self.given: list[Any] = []
        monkeypatch.setattr(module, "evaluate", self.evaluate)

    def evaluate(self, session: Any, benchmark: Any, model: Any) -> Any:
        self.given.append((session, benchmark.id, model))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def test_a_record_contains_scores_controls_and_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case, item = Case(tmp_path, monkeypatch, seed=4), job()
    content, evaluation = run_job(case.session, item)
    assert evaluation is case.result and case.given == [(case.session, "lab.V4", "ant")]
    assert (content.id, content.status, content.model, content.benchmark) == (
        item.id,
        "scored",
        "ant",
        "lab.V4",
    )
    assert (
        list(content.scores) == ["m", "n"]
        and content.error is None
        and content.inputs == item.inputs
    )
    assert content.score is not None and content.score.value == 0.5
    without = {"uncertainty": None}
    assert content.score.model_copy(update=without) == content.scores["m"].model_copy(
        update=without
    )
    own, summed = content.score.uncertainty, content.scores["m"].uncertainty
    assert own is not None and summed is not None
    assert [part.keys for part in own.parts] == [("a", "b", "c")]
    assert [part.keys for part in summed.parts] == [1]
    assert own.parts[0].variance == pytest.approx(summed.parts[0].variance)
    assert content.scores["n"].uncertainty is None, "how it varies is not known"
    assert content.controls["p"] == undefined("positive", 0.8, "x.nc is constant")
    assert content.request == RecordedRequest(seed=4)
    assert content.environment == Environment(commit="abc")
    assert content.timing.wall_s is not None and 0 <= content.timing.wall_s < 60
    assert content.timing.cpu_s is not None and 0 <= content.timing.cpu_s < 60


def test_of_private_data_no_deviation_of_an_item_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch, access="private")
    content, _ = run_job(case.session, job())
    assert (
        content.score == content.scores["m"] and '"b"' not in content.model_dump_json()
    )
    again = content.as_score().uncertainty
    assert again is not None and again.error == pytest.approx(
        case.result.headline.uncertainty.error
    )
    assert again.parts[0].keys == ("ant on lab.V4",), "it is paired with no other score"


def test_a_score_whose_variation_is_not_known_is_recorded_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch)
    case.result = Evaluation({"n": Score(0.1)}, {}, case.result.measured)
    content, _ = run_job(case.session, job())
    assert content.score is not None and content.score.uncertainty is None
    assert content.score.low is None and content.as_score().uncertainty is None


def test_a_limited_run_is_partial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, _ = run_job(Case(tmp_path, monkeypatch, limit=2).session, job())
    assert content.status == "partial" and content.request.limit == 2


def test_an_error_about_the_pair_gives_a_failed_record_and_a_crash_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch, limit=2)
    case.result = MetricError(f"{tmp_path}/x.nc is constant")
    content, evaluation = run_job(case.session, job())
    assert (content.status, content.score, content.scores, content.controls) == (
        "failed",
        None,
        {},
        {},
    )
    assert evaluation is None
    assert content.error == Failure(type="MetricError", message="x.nc is constant")
    case.result = KeyError("name")
    waiting, evaluation = run_job(case.session, job())
    assert isinstance(waiting, Pending) and evaluation is None
    assert waiting.code == "machine.crash" and "please report it" in waiting.reason
    assert (
        waiting.reason.startswith("KeyError: 'name' (test_run_steps.py:")
        and " in evaluate)" in waiting.reason
    )
    assert waiting.command == "neuroledger run ant --benchmark lab.V4"


def test_an_error_while_intervals_are_computed_also_gives_a_failed_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(factors: Sequence[str] | None) -> Uncertainty:
        raise MetricError("one neuroid only")

    case = Case(tmp_path, monkeypatch)
    case.result = Evaluation(
        {"m": varying().replace(varies=fails)}, {}, case.result.measured
    )
    content, evaluation = run_job(case.session, job())
    assert (content.status, evaluation) == ("failed", None)
    assert content.reason == "one neuroid only"


def test_a_model_in_memory_is_recorded_by_id_and_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, monkeypatch)
    asked: list[Any] = []
    monkeypatch.setattr(
        module, "inputs_of", lambda *given: asked.append(given[2:]) or Inputs(seed=0)
    )
    model: Any = SimpleNamespace(id="mine")
    content, line = run_object(case.session, "lab.V4", model)
    assert asked == [(None, case.session.request, None)]
    assert case.given[0][2] is model
    assert content.inputs.model_dump(mode="json") == {
        "seed": 0,
        "model": {"id": "mine", "in_memory": "SimpleNamespace"},
    }
    assert content.id == content.inputs.sha256 and content.model == "mine"
    assert line.startswith("✓ lab.V4 · mine: 0.5")
    case.result = DataError("lost")
    assert run_object(case.session, "lab.V4", model)[1] == "✗ lab.V4 · mine: lost"
    case.result = UnavailableError("no torch", "install it")
    waiting, line = run_object(case.session, "lab.V4", model)
    assert waiting == Pending("no torch", "install it", "machine.package")
    assert line == "pending: lab.V4 · mine: no torch: run `install it`"


def test_a_worker_forgets_other_data_and_stores_samples_of_whole_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[Any] = []
    forgotten: list[Any] = []
    monkeypatch.setattr(module, "keep_samples", lambda *given: stored.append(given))
    monkeypatch.setattr(module, "other_models", lambda benchmark: {"noise"})
    case = Case(tmp_path, monkeypatch)
    case.session.forget = lambda **given: forgotten.append(given)
    content, words = Work(tmp_path, Request(), case.session)(job())
    assert content.status == "scored" and words == str(case.result.headline)
    assert forgotten == [{"but_datasets": {"one"}, "but_models": {"ant", "noise"}}]
    assert stored == [(tmp_path, job().id, case.result.scores)]
    Work(tmp_path, Request(limit=2), case.session)(job())
    case.result = MetricError("why")
    assert (
        Work(tmp_path, Request(), case.session)(job())[1] == "why" and len(stored) == 1
    )


def test_a_job_that_a_worker_lost_is_pending() -> None:
    for error, code, words in (
        (MemoryError("too much"), "machine.memory", "MemoryError: too much"),
        (BrokenProcessPool("killed"), "machine.worker", "BrokenProcessPool: killed"),
        (
            KeyError("x"),
            "machine.crash",
            "KeyError: 'x': an error of the program; please report it, then try again",
        ),
    ):
        waiting, line = module._lost(job(), error)
        assert waiting == Pending(
            f"on a worker: {words}", "neuroledger run ant --benchmark lab.V4", code
        )
        assert line == str(waiting)


def test_samples_that_cannot_be_kept_leave_the_job_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "keep_samples", full)
    monkeypatch.setattr(module, "other_models", lambda benchmark: set())
    case = Case(tmp_path, monkeypatch)
    case.session.forget = lambda **given: None
    waiting, _ = Work(tmp_path, Request(), case.session)(job())
    assert isinstance(waiting, Pending) and waiting.code == "machine.disk"
