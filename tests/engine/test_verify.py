"""Findings on records: state of the file, its inputs and data, its recomputation and its signature."""

from __future__ import annotations

import base64
import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from neuroledger.display import NoDisplay
from neuroledger.engine import record as recording
from neuroledger.engine import run as running
from neuroledger.engine import session as sessions
from neuroledger.engine import verify as module
from neuroledger.engine.checked import (
    AGAIN,
    Confirmed,
    Contradicted,
    Evidence,
    NotChecked,
    Origin,
    Undefined,
    Verified,
    in_words,
)
from neuroledger.engine.outcome import Pending
from neuroledger.engine.plan import Job
from neuroledger.engine.record import (
    PAYLOAD,
    Record,
    record_of,
    record_path,
    write_record,
)
from neuroledger.engine.records.inputs import Inputs, ModelIdentity, SpecIdentity
from neuroledger.engine.records.reproduced import compared
from neuroledger.engine.records.signatures import Signer
from neuroledger.engine.session import Request
from neuroledger.engine.verify import verify
from neuroledger.errors import (
    Finding,
    IntegrityError,
    MissingError,
    RequestError,
    SpecError,
)
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from neuroledger.stats.uncertainty import Uncertainty
from tests.report.ledger import altered, record
from tests.varying import of_items

WHERE = "results/records/lab.V4/ant.json"


class Progress(NoDisplay):
    def __init__(self) -> None:
        self.shown: list[tuple[str, int, int]] = []

    def progress(self, what: str, number: int, total: int) -> None:
        self.shown.append((what, number, total))


class Desk:
    """A repository with records, whose inputs, files and recomputations are given."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.inputs = Inputs(
            benchmark=SpecIdentity(id="lab.V4", version=1),
            model=ModelIdentity(id="ant"),
        )
        self.again: Record | None = None
        self.hashed: list[tuple[str, str, bool]] = []
        self.jobs: list[Any] = []
        self.results: list[Verified] = []
        self.problem: dict[str, Exception] = {}
        self.catalog: Any = SimpleNamespace(
            root=root, shown=lambda path: path.relative_to(root.resolve()).as_posix(),
            benchmark=lambda id: SimpleNamespace(dataset="lab"),
        )  # fmt: skip
        monkeypatch.setattr(
            module, "Identities", lambda catalog, request: SimpleNamespace(job=self.job)
        )
        monkeypatch.setattr(module, "verified_files", self.verified_files)
        monkeypatch.setattr(running, "run_job", self.run_job)
        monkeypatch.setattr(
            sessions, "Session", lambda catalog, request: (catalog, request)
        )

    def job(self, benchmark: Any, model: str) -> Job:
        if "inputs" in self.problem:
            raise self.problem["inputs"]
        inputs = self.inputs.model_copy(update={"model": ModelIdentity(id=model)})
        return Job(model, "lab.V4", inputs.sha256, inputs)

    def verified_files(
        self, catalog: Any, kind: str, id: str, *, trust_memory: bool
    ) -> None:
        self.hashed.append((kind, id, trust_memory))
        if kind in self.problem:
            raise self.problem[kind]

    def run_job(self, session: Any, job: Any) -> tuple[Record, None]:
        self.jobs.append((session, job))
        assert self.again is not None
        return self.again, None

    def store(self, content: Record, model: str = "ant") -> Path:
        path = record_path(self.root, "lab.V4", model)
        write_record(path, content)
        return path

    def verify(
        self, *paths: Path, recompute: bool = False, **fields: Any
    ) -> list[Finding]:
        results = verify(
            self.catalog, paths, recompute=recompute, display=NoDisplay(), **fields
        )
        self.results = results
        return [result.finding for result in results]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def test_a_current_record_is_ok_and_its_numbers_are_called_self_reported(
    desk: Desk,
) -> None:
    desk.store(record("ant", "lab.V4", 0.5))
    words = "its inputs are current; its numbers are self-reported"
    assert desk.verify() == [Finding("record.current", "ok", WHERE, words)]
    assert (
        desk.hashed == [("datasets", "lab", False), ("models", "ant", False)]
        and desk.jobs == []
    )


def test_all_records_are_verified_in_order_and_each_file_is_hashed_once(
    desk: Desk,
) -> None:
    for model in ("bee", "ant"):
        desk.store(record(model, "lab.V4", 0.5), model)
    progress = Progress()
    results = verify(desk.catalog, [], recompute=False, display=progress)
    assert [result.finding.where for result in results] == [
        WHERE,
        WHERE.replace("ant", "bee"),
    ]
    assert progress.shown == [
        ("verifying", 0, 2),
        ("verifying", 1, 2),
        ("verifying", 2, 2),
    ]
    assert [item[:2] for item in desk.hashed] == [
        ("datasets", "lab"),
        ("models", "ant"),
        ("models", "bee"),
    ]
    missing = desk.root / "nothing.json"
    with pytest.raises(RequestError, match=rf"^{missing} does not exist$"):
        desk.verify(missing)


def test_a_file_that_is_no_intact_record_of_its_place_is_an_error(desk: Desk) -> None:
    content = record("ant", "lab.V4", 0.5)
    path = desk.store(content)
    text = path.read_text()
    path.write_text("{}")
    [finding] = desk.verify()
    assert (finding.code, finding.severity, finding.fix) == (
        "record.unreadable",
        "error",
        AGAIN,
    )
    path.write_text(
        text.replace("it did not", "it did").replace('"id": "ridge"', '"id": "other"')
    )
    words = "its content does not match its own hash"
    assert desk.verify() == [Finding("record.edited", "error", WHERE, words, AGAIN)]
    path.unlink()
    other = desk.store(content, "bee")
    words = "the file contains the record of lab.V4 · ant"
    fix = "restore both records from git"
    assert desk.verify(other) == [
        Finding("record.misplaced", "error", WHERE.replace("ant", "bee"), words, fix)
    ]


def test_every_file_is_read_but_parsed_once_for_each_content(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = desk.store(record("ant", "lab.V4", 0.5))
    first = desk.verify()
    with monkeypatch.context() as patch:
        patch.setattr(recording, "record_in", None)
        assert desk.verify() == first
    times = path.stat()
    path.write_bytes(path.read_bytes().replace(b"ridge", b"other"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert desk.verify()[0].code == "record.edited", "its size and time are the same"


def test_the_other_records_of_a_folder_stay_known_when_one_changes(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("ant", "bee"):
        path = desk.store(record(model, "lab.V4", 0.5), model)
    desk.verify()
    desk.store(record("bee", "lab.V4", 0.6), "bee")
    monkeypatch.chdir(desk.root)
    changed = desk.verify(path.relative_to(desk.root))
    monkeypatch.setattr(recording, "record_in", None)
    assert desk.verify()[1:] == changed


def test_a_record_that_cannot_be_read_is_not_called_anything_else(desk: Desk) -> None:
    path = record_path(desk.root, "lab.V4", "ant")
    path.parent.mkdir(parents=True)
    path.symlink_to(path)
    [finding] = desk.verify()
    assert (finding.code, finding.severity) == ("record.not-checked", "warning")
    assert finding.what.startswith(f"not checked: {path} cannot be read: ")
    assert desk.results[0].checked == NotChecked("the record cannot be read")


def test_a_stale_record_lists_what_changed(desk: Desk) -> None:
    desk.store(record("ant", "lab.V4", 0.5))
    desk.inputs = Inputs(
        seed=1,
        benchmark=SpecIdentity(id="lab.V4", version=2),
        model=desk.inputs.model,
    )
    assert desk.verify() == [
        Finding("record.stale", "error", WHERE, "changed since: benchmark, seed", AGAIN)
    ]
    desk.problem["inputs"] = RequestError("no benchmark 'lab.V4'")
    assert desk.verify() == [
        Finding("record.stale", "error", WHERE, "no benchmark 'lab.V4'", AGAIN)
    ]


@pytest.mark.parametrize("kind", ["datasets", "models"])
def test_a_record_whose_files_are_missing_or_damaged_is_not_checked(
    desk: Desk, kind: str
) -> None:
    desk.store(record("ant", "lab.V4", 0.5))
    command = f"neuroledger fetch {'lab' if kind == 'datasets' else 'ant'}"
    named = "data" if kind == "datasets" else "weights"
    for error, code, words, reason in (
        (
            IntegrityError("x.nc differs", command),
            "record.data-changed",
            "x.nc differs",
            f"{named} damaged",
        ),
        (
            MissingError("x.nc is missing", command),
            "record.data-missing",
            "x.nc is missing",
            f"{named} missing",
        ),
    ):
        desk.problem[kind] = error
        for recompute in (False, True):
            what = f"not checked: {words}; its numbers are self-reported"
            assert desk.verify(recompute=recompute) == [
                Finding(code, "warning", WHERE, what, f"`{command}`")
            ]
            assert desk.results[0].checked == NotChecked(reason) and desk.jobs == []
    desk.store(record("ant", "lab.V4", None))
    assert desk.verify()[0].code == "record.failed", "its data are not needed to say so"
    assert desk.verify(recompute=True)[0].code == "record.data-missing", (
        "but to see that it fails again"
    )


def test_a_record_that_cannot_be_recomputed_now_is_not_checked(desk: Desk) -> None:
    desk.store(record("ant", "lab.V4", 0.5))
    desk.again = Pending("memory is exhausted", "neuroledger run", "machine.memory")  # type: ignore[assignment]
    [finding] = desk.verify(recompute=True)
    assert (finding.code, finding.severity, finding.fix) == (
        "record.not-checked", "warning", "`neuroledger run`",
    )  # fmt: skip
    assert isinstance(desk.results[0].checked, NotChecked)
    desk.problem["inputs"] = SpecError(
        [Finding("spec.value", "error", "specs/x.yaml", "wrong", "", 3, 1)]
    )
    [finding] = desk.verify()
    assert (
        finding.code == "record.not-checked"
        and "specs/x.yaml:3:1: wrong" in finding.what
    )


def test_the_summary_counts_four_things_apart() -> None:
    finding = Finding("record.current", "ok", WHERE, "")
    kinds = (
        Confirmed(),
        Confirmed(),
        NotChecked("data missing"),
        Contradicted("x"),
        Undefined("y"),
    )
    results = [Verified(finding, kind) for kind in kinds]
    words = "5 records: 2 current, 1 not checked (data missing), 1 contradicted, 1 undefined"
    assert in_words(results, recomputed=False) == words
    assert in_words(results[:1], recomputed=True) == (
        "1 record: 1 reproduced, 0 not checked, 0 contradicted, 0 undefined"
    )


def test_evidence_is_one_field_that_cannot_contradict_itself() -> None:
    assert [str(item) for item in (
        Evidence(), Evidence(Origin.SIGNED, "ann"), Evidence(Origin.RECOMPUTED), Evidence(Origin.RECOMPUTED, "ann"),
    )] == [
        "self-reported", "recomputed and signed by ann", "recomputed here", "recomputed here, and signed by ann",
    ]  # fmt: skip
    for origin, signer in ((Origin.SIGNED, ""), (Origin.SELF_REPORTED, "ann")):
        with pytest.raises(ValueError, match="signed by somebody"):
            Evidence(origin, signer)


def test_a_failed_record_is_a_note_with_its_reason(desk: Desk) -> None:
    failed = record("ant", "lab.V4", None)
    desk.store(failed)
    note = Finding("record.failed", "note", WHERE, "it did not work")
    assert desk.verify() == [note]
    desk.again = changed(failed, "error", "message", to="it failed elsewhere")
    assert desk.verify(recompute=True) == [
        Finding("record.failed", "note", WHERE, "fails again: it failed elsewhere")
    ]
    desk.again = changed(failed, "error", "type", to="ModelError")
    assert desk.verify(recompute=True)[0].code == "record.not-reproduced"


def changed(base: Record, *at: str, to: Any) -> Record:
    """A copy of a record with another value at a place."""
    content = copy.deepcopy(base.model_dump(mode="json"))
    place: dict[str, Any] = content
    for name in at[:-1]:
        place = place[name]
    place[at[-1]] = to
    return Record.model_validate(content)


def numbers(base: Record, field: str, to: Any) -> Record:
    """A copy with another number in the headline, which is also in the scores."""
    return changed(
        changed(base, "score", field, to=to), "scores", "ridge", field, to=to
    )


def recomputed(desk: Desk, again: Record, was: Record | None = None) -> Finding:
    desk.store(was or record("ant", "lab.V4", 0.5))
    desk.again = again
    [finding] = desk.verify(recompute=True)
    return finding


def test_the_job_of_a_record_is_computed_again_with_its_request(desk: Desk) -> None:
    again = record(
        "ant", "lab.V4", 0.5, request={"seed": 4, "limit": None, "device": "cpu"}
    )
    finding = recomputed(desk, again, again)
    assert finding == Finding(
        "record.reproduced",
        "ok",
        WHERE,
        "recomputed: same payload; its numbers are recomputed here",
    )
    [((catalog, request), job)] = desk.jobs
    assert catalog is desk.catalog and request == Request(seed=4)
    assert (job.model, job.benchmark, job.id, job.inputs) == (
        "ant",
        "lab.V4",
        again.id,
        desk.inputs,
    )


ERROR = 0.04 / (2 * 1.96)  # of an interval of ± 0.02


@pytest.mark.parametrize(
    ("distance", "what"),
    [
        (9e-9, "recomputed: within 1e-08"),
        (0.009 * ERROR, "recomputed: within 0.01 standard errors: value was 0.5, is "),
        (0.011 * ERROR, None),
    ],
)
def test_a_hundredth_of_the_standard_error_is_allowed(
    desk: Desk, distance: float, what: str | None
) -> None:
    for sign in (1, -1):
        again = numbers(record("ant", "lab.V4", 0.5), "value", to=0.5 + sign * distance)
        finding = recomputed(desk, again)
        if what is not None:
            assert finding.code == "record.reproduced" and finding.what.startswith(what)
        else:
            words = f"value was 0.5, is {0.5 + sign * distance}, and 1 more"
            assert (finding.code, finding.what) == ("record.not-reproduced", words)
            assert (finding.severity, finding.fix) == ("error", AGAIN)


def test_the_declared_error_is_used_rather_than_the_interval(desk: Desk) -> None:
    base = numbers(record("ant", "lab.V4", 0.5), "error", to=0.1)
    assert (
        recomputed(desk, numbers(base, "value", to=0.5009), base).code
        == "record.reproduced"
    )
    assert (
        recomputed(desk, numbers(base, "value", to=0.5011), base).code
        == "record.not-reproduced"
    )
    edited = numbers(record("ant", "lab.V4", 0.5), "error", to=9.0)
    finding = recomputed(
        desk, numbers(record("ant", "lab.V4", 0.5), "value", to=0.51), edited
    )
    assert finding.code == "record.not-reproduced", (
        "a record cannot widen its own tolerance"
    )


def test_raw_scores_have_the_tolerance_in_their_own_units(desk: Desk) -> None:
    base = numbers(record("ant", "lab.V4", 0.5), "raw", to=50.0)
    assert (
        recomputed(desk, numbers(base, "raw", to=50.0 + 0.9 * ERROR), base).code
        == "record.reproduced"
    )
    assert (
        recomputed(desk, numbers(base, "raw", to=50.0 + 1.1 * ERROR), base).code
        == "record.not-reproduced"
    )
    small = numbers(base, "raw", to=0.005)
    finding = recomputed(desk, numbers(small, "raw", to=0.005 + 0.011 * ERROR), small)
    assert finding.code == "record.not-reproduced"
    assert (
        recomputed(desk, numbers(small, "raw", to=0.005 + 0.009 * ERROR), small).code
        == "record.reproduced"
    )


def test_values_that_are_not_numbers_must_be_equal(desk: Desk) -> None:
    base = record("ant", "lab.V4", 0.5)
    for again, words in (
        (
            numbers(base, "direction", to="lower"),
            "direction was higher, is lower, and 1 more",
        ),
        (numbers(base, "error", to=0.0), "error was None, is 0.0, and 1 more"),
        (
            changed(base, "controls", "noise", "verdict", to="failed"),
            "noise verdict was passed, is failed",
        ),
        (
            changed(base, "controls", "noise", "shuffles", to=8),
            "noise shuffles was 0, is 8",
        ),
        (
            changed(base, "controls", "noise", "low", to=0.0),
            "noise low was None, is 0.0",
        ),
        (changed(base, "status", to="partial"), "status was scored, is partial"),
    ):
        finding = recomputed(desk, again)
        assert (finding.code, finding.what) == ("record.not-reproduced", words)


def test_different_processors_are_named(desk: Desk) -> None:
    base = record("ant", "lab.V4", 0.5, environment={"processor": "Abacus"})
    again = altered(changed(base, "status", to="partial"), environment={})
    words = "status was scored, is partial (computed for the processor Abacus, here unknown)"
    assert recomputed(desk, again, base).what == words


def test_controls_have_the_tolerance_of_the_standard_error_of_the_score(
    desk: Desk,
) -> None:
    base = record("ant", "lab.V4", 0.5)
    for distance, code in ((0.9, "record.reproduced"), (1.1, "record.not-reproduced")):
        again = changed(
            base, "controls", "noise", "value", to=0.01 + distance * 0.01 * ERROR
        )
        assert recomputed(desk, again).code == code


def test_a_control_with_an_interval_has_the_tolerance_of_its_own_error(
    desk: Desk,
) -> None:
    base = changed(record("ant", "lab.V4", 0.5), "controls", "noise", "low", to=-0.0292)
    base = changed(
        base, "controls", "noise", "high", to=0.0492
    )  # a standard error of 0.02
    for distance, code in ((0.9, "record.reproduced"), (1.1, "record.not-reproduced")):
        again = changed(
            base, "controls", "noise", "value", to=0.01 + distance * 0.01 * 0.02
        )
        assert recomputed(desk, again, base).code == code


def test_records_from_before_controls_had_intervals_are_not_reproduced(
    desk: Desk,
) -> None:
    plain = record("ant", "lab.V4", 0.5).model_dump(mode="json")
    plain["controls"]["noise"] = {
        "role": "negative",
        "value": 0.01,
        "bound": 0.1,
        "passed": True,
        "says": "0.010, must be at most 0.1",
    }
    base = record("ant", "lab.V4", 0.5)
    again = changed(base, "controls", "noise", "low", to=0.0)
    again = changed(again, "controls", "noise", "high", to=0.02)
    finding = recomputed(desk, again, record_of(plain))
    assert finding.code == "record.not-reproduced" and finding.what.startswith("noise ")


def prepared(base: Record, name: str, letter: str, processor: str) -> Record:
    """A record that states the hash of prepared data, computed on a processor."""
    fact = {name: {"value": letter * 12, "origin": "stated"}}
    stated = numbers(base, "facts", to=fact)
    return altered(stated, environment={"processor": processor})


def test_hashes_of_prepared_data_may_differ_between_processors(desk: Desk) -> None:
    base = record("ant", "lab.V4", 0.5)
    was = prepared(base, "prepared_sha256", "a", "Abacus")
    here = prepared(base, "prepared_sha256", "b", "Abacus")
    assert recomputed(desk, here, was).code == "record.not-reproduced"
    elsewhere = prepared(base, "prepared_sha256", "b", "Other")
    assert recomputed(desk, elsewhere, was).code == "record.reproduced"
    other = prepared(base, "other_sha256", "a", "Other")
    assert recomputed(desk, other, was).code == "record.not-reproduced"
    longer = numbers(elsewhere, "notes", to=["more"])
    assert recomputed(desk, longer, was).code == "record.not-reproduced"


def stored(*parts: Uncertainty) -> dict[str, Any]:
    """Deviations over one or more factors, as a record stores them."""
    known = Uncertainty(
        tuple(part for each in parts for part in each.parts), parts[0].items
    )
    return StoredUncertainty.of(known, (-1.0, 1.0)).model_dump(mode="json")


def deviating(shift: float = 0.0, factor: str = "stimulus", ids: str = "s") -> Record:
    """A record with deviations by item, to which others are added, multiplied by ``shift``; the error stays."""
    values, others = np.random.default_rng(0).normal(size=(2, 30))
    moved = values + shift * others
    moved = (moved - moved.mean()) / moved.std()
    known = of_items(0.1 * moved, [f"{ids}{i}" for i in range(30)], factor=factor)
    return changed(
        record("ant", "lab.V4", 0.5), "score", "uncertainty", to=stored(known)
    )


def with_rounding(seed: int, size: float) -> Record:
    """A record with deviations of stimuli, and those of ``size`` of neuroids, which are next to nothing beside them."""
    values, small = (np.random.default_rng(at).normal(size=30) for at in (0, seed))
    known = stored(of_items(values), of_items(size * small, factor="neuroid"))
    return changed(record("ant", "lab.V4", 0.5), "score", "uncertainty", to=known)


@pytest.mark.parametrize(
    ("size", "code"), [(1e-14, "record.reproduced"), (0.1, "record.not-reproduced")]
)
def test_deviations_that_are_rounding_errors_may_be_others(
    desk: Desk, size: float, code: str
) -> None:
    assert recomputed(desk, with_rounding(2, size), with_rounding(1, size)).code == code


@pytest.mark.parametrize(
    ("again", "what"),
    [
        (deviating(1e-3), None), (deviating(0.1), "uncertainty has other deviations over stimulus"),
        (deviating(factor="neuroid"), "uncertainty has other factors"),
        (deviating(ids="im"), "uncertainty has other groups over stimulus"),
    ],
    ids=["rounded", "moved", "factor", "names"],
)  # fmt: skip
def test_deviations_may_differ_by_their_rounding(
    desk: Desk, again: Record, what: str | None
) -> None:
    finding = recomputed(desk, again, deviating())
    assert finding.code == (
        "record.reproduced" if what is None else "record.not-reproduced"
    )
    assert what is None or what in finding.what


def test_a_record_with_an_interval_of_an_earlier_version_is_current(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = deviating()
    desk.store(base)
    monkeypatch.setattr(inference, "VERSION", 3)
    [finding] = desk.verify()
    assert (finding.code, finding.severity, finding.fix) == (
        "record.current",
        "ok",
        "`neuroledger refresh`",
    )
    assert (
        "its inputs are current; its interval is of version 1, the current one is version 3"
        in finding.what
    )
    again = numbers(deviating(), "low", to=0.3)  # another method has other ends
    finding = recomputed(desk, again, base)
    assert (finding.code, finding.fix) == (
        "record.not-checked",
        "`neuroledger refresh`",
    )
    assert finding.what.startswith(
        "recomputed: within 1e-08; not checked: its interval is of version 1"
    )
    assert isinstance(desk.results[0].checked, NotChecked)
    finding = recomputed(desk, numbers(again, "value", to=0.9), base)
    assert finding.code == "record.not-reproduced", "its value must be the same"


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("passed", "record.value-reproduced"), ("undecided", "record.not-checked")],
)
def test_controls_that_an_earlier_version_judged_have_the_same_verdicts(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, code: str
) -> None:
    base = changed(deviating(), "score", "uncertainty", "controls", to=1)
    again = deviating()
    for name, number in {
        "low": -0.05,
        "high": 0.05,
        "value": 0.0,
        "shuffles": 8,
        "verdict": verdict,
    }.items():
        again = changed(again, "controls", "noise", name, to=number)
    signed = signing(monkeypatch, Signer())
    desk.store(base)
    desk.again = again
    [finding] = desk.verify(recompute=True, key=tmp_path / "key")
    assert (finding.code, signed) == (code, [])
    assert (
        "not checked: the intervals of its controls, which are of version 1"
        in finding.what
    )
    assert (
        recomputed(desk, numbers(again, "high", to=0.6), base).code
        == "record.not-reproduced"
    )


def test_the_interval_of_an_earlier_version_is_not_signed(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.store(deviating())
    monkeypatch.setattr(inference, "VERSION", 2)
    desk.again = deviating()
    signed = signing(monkeypatch, Signer())
    assert (
        desk.verify(recompute=True, key=tmp_path / "key")[0].code
        == "record.not-checked"
    )
    assert signed == []


def test_of_a_record_that_stores_draws_the_value_is_compared(desk: Desk) -> None:
    drawn = base64.b64encode(np.arange(-8.0, 9.0).astype("<f2").tobytes()).decode()
    spread = {
        "draws": {"stimulus": drawn},
        "deviation": {"stimulus": 0.01},
        "items": {"stimulus": 30},
    }
    plain = record("ant", "lab.V4", 0.5).model_dump(mode="json")
    plain["score"]["spread"] = spread
    was = record_of(plain)
    finding = recomputed(desk, deviating(), was)
    assert (finding.code, finding.fix) == ("record.not-checked", AGAIN)
    assert desk.results[0].checked == NotChecked(
        "its interval, which is of earlier methods"
    )
    assert (
        recomputed(desk, numbers(deviating(), "value", to=0.9), was).code
        == "record.not-reproduced"
    )


def leaves(
    content: Any, at: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each place of plain data that contains no others, with its value."""
    if isinstance(content, dict) and content:
        for name, part in content.items():
            yield from leaves(part, (*at, name))
    else:
        yield at, content


def other(value: Any) -> Any:
    """Another value; numbers a tenth larger, and more."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value * 1.1 + 1
    if isinstance(value, str):
        return f"{value}!"
    return [*value, "one more"] if isinstance(value, list) else {"one": "more"}


def with_another_part(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*parts, *stored(of_items(np.arange(5.0), factor="neuroid"))["parts"]]


# What may be read in the place of deviations, a version and a method.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "parts": with_another_part, "version": lambda version: version + 1, "method": lambda method: "held-out",
    "scale": lambda scale: "logit",
}  # fmt: skip


def test_every_part_of_the_payload_is_compared(desk: Desk) -> None:
    base = deviating()
    for name, value in {"notes": ["two neuroids left out"], "error": 0.01}.items():
        base = changed(
            changed(base, "score", name, to=value), "scores", "ridge", name, to=value
        )
    base = base.sealed()
    assert recomputed(desk, base, base).code == "record.reproduced"
    parts = [
        (at, value)
        for at, value in leaves(base.model_dump(mode="json"))
        if at[0] in PAYLOAD[1:]
    ]
    assert len(parts) >= 60
    count = 0
    for at, value in parts:
        try:
            again = changed(base, *at, to=OTHERS.get(at[-1], other)(value))
        except ValidationError:
            continue  # no record has such a field
        finding = compared(WHERE, base, again).finding
        assert finding.code == "record.not-reproduced", at
        assert not again.intact, at
        count += 1
    assert count >= 45


def signing(monkeypatch: pytest.MonkeyPatch, signer: Signer) -> list[tuple[Any, ...]]:
    signed: list[tuple[Any, ...]] = []

    def sign(root: Path, records: list[Record], key: Path) -> None:
        signed.extend((root, record.model, key) for record in records)

    monkeypatch.setattr(module, "sign", sign)
    monkeypatch.setattr(module, "signer_in", lambda root, record, signers, path: signer)
    return signed


def test_only_reproduced_records_are_signed(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed, key = signing(monkeypatch, Signer()), tmp_path / "key"
    base = record("ant", "lab.V4", 0.5)
    desk.store(base)
    desk.again = base
    assert desk.verify(key=key)[0].code == "record.current" and signed == []
    [finding] = desk.verify(recompute=True, key=key)
    assert (finding.code, finding.what) == (
        "record.reproduced",
        "recomputed: same payload; signed with key; its numbers are recomputed here",
    )
    assert signed == [(tmp_path, "ant", key)]
    desk.again = numbers(base, "value", to=0.9)
    assert (
        desk.verify(recompute=True, key=key)[0].code == "record.not-reproduced"
        and len(signed) == 1
    )


def test_a_signature_is_reported_with_its_signer_or_refused(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.store(record("ant", "lab.V4", 0.5))
    signers = tmp_path / "signers"
    signing(monkeypatch, Signer("ann@lab.org"))
    [finding] = desk.verify(signers=signers)
    assert (
        finding.what
        == "its inputs are current; its numbers are recomputed and signed by ann@lab.org"
    )
    assert desk.results[0].evidence == Evidence(Origin.SIGNED, "ann@lab.org")
    assert (finding.code, finding.severity) == ("record.signed", "ok")
    signing(monkeypatch, Signer())
    assert desk.verify(signers=signers)[0].code == "record.current", (
        "there is no signature"
    )
    signing(monkeypatch, Signer(broken=True))
    words = "the signature does not match the record, or its signer is not among the allowed signers"
    assert desk.verify(signers=signers) == [
        Finding("record.signature", "error", WHERE, words, "sign it again")
    ]
