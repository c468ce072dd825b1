"""A state of the machine is no result: nothing is written, one line says what mends it, then the same call works."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.cli import main
from neuroledger.data.gate.validate import validate
from neuroledger.engine import evaluate as evaluating
from neuroledger.engine import run as running
from neuroledger.engine.outcome import Pending, pending_for, pending_lines
from neuroledger.engine.record import read_record, record_path, write_record
from neuroledger.errors import (
    DataError,
    Finding,
    IntegrityError,
    MetricError,
    PendingError,
    SpecError,
    StorageError,
    UnavailableError,
    about_pair,
)
from tests.engine.lab import Lab, make_files
from tests.report.ledger import altered

Mend = Callable[[], None]
Break = Callable[[Lab, pytest.MonkeyPatch], Mend]
NET = """
import torch


class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Flatten())
"""


def tree(root: Path) -> dict[str, str]:
    """The hash of every file but those that are only cached."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".cache" not in path.relative_to(root).parts
    }


def restoring(path: Path) -> Mend:
    content = path.read_bytes()

    def restore() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return restore


def raising(place: Any, name: str, error: BaseException) -> Break:
    """Let a function raise an error until it is mended."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    def broken(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
        patch.setattr(place, name, fail)
        return patch.undo

    return broken


def file_missing(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    mend = restoring(lab.data / "responses.nc")
    (lab.data / "responses.nc").unlink()
    return mend


def file_damaged(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    path = lab.data / "stimuli.zip"
    mend, content = restoring(path), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    return mend


def weights_missing(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    path = lab.root / "data" / "models" / "stored" / "w.npy"
    mend = restoring(path)
    path.unlink()
    return mend


def mount_missing(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    elsewhere = lab.data.rename(lab.root / ".cache" / "unmounted")

    def mount() -> None:
        elsewhere.rename(lab.data)

    return mount


def report_missing(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    path = lab.root / "results" / "validation" / "lab.json"
    mend = restoring(path)
    path.unlink()
    return mend


def gate_package_missing(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    (lab.root / ".cache" / "validated" / "lab.json").unlink()  # as in a fresh clone
    patch.setitem(sys.modules, "neuroledger.data.gate.gx_suites", None)
    return patch.undo


def store_is_a_file(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    path = lab.root / ".cache" / "a file"
    path.write_text("")
    patch.setenv("NEUROLEDGER_ACTIVATIONS", str(path))
    return patch.undo


def typo(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    path = lab.root / "specs" / "benchmarks" / "lab.V4-ridge.yaml"
    mend = restoring(path)
    path.write_text(
        path.read_text().replace(
            "  name: recording\n", "  name: recording\n  seeds: 3\n"
        )
    )
    return mend


def typo_in_the_metric(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    path = lab.root / "specs" / "metrics" / "own.yaml"
    mend = restoring(path)
    path.write_text(path.read_text().replace("ridge", "rigde"))
    return mend


def untrusted(lab: Lab, patch: pytest.MonkeyPatch) -> Mend:
    patch.delenv("NEUROLEDGER_TRUSTED")
    return patch.undo


FAULTS: dict[str, tuple[Break, int, str]] = {
    "a file is missing": (file_missing, 4, "neuroledger fetch lab"),
    "a file is damaged": (file_damaged, 4, "neuroledger fetch lab --force"),
    "a mount is missing": (mount_missing, 4, "neuroledger fetch lab"),
    "weights are missing": (weights_missing, 4, "neuroledger fetch stored"),
    "the report is missing": (report_missing, 4, "neuroledger validate lab"),
    "the package of the gate is missing": (gate_package_missing, 4, "pip install 'neuroledger[pipeline]'"),
    "a package is missing": (
        raising(evaluating, "measure", ModuleNotFoundError("No module named 'x'")), 4, "neuroledger doctor",
    ),
    "the store is a file": (store_is_a_file, 4, "neuroledger doctor"),
    "the disk is full": (raising(os, "fsync", OSError(errno.ENOSPC, "No space left on device")), 4, "neuroledger doctor"),
    "the disk fails": (raising(os, "fsync", OSError(errno.EIO, "Input/output error")), 4, "neuroledger doctor"),
    "records cannot be replaced": (
        raising(running, "write_record", StorageError("results cannot be written")), 4, "neuroledger doctor",
    ),
    "samples cannot be kept": (
        raising(running, "keep_samples", OSError(errno.EROFS, "Read-only file system")), 4, "neuroledger doctor",
    ),
    "memory is exhausted": (raising(evaluating, "measure", MemoryError()), 4, "neuroledger run pixels4 --benchmark"),
    "the user interrupts": (raising(evaluating, "measure", KeyboardInterrupt()), 130, "Run the same command again"),
    "a worker dies": (
        raising(evaluating, "measure", BrokenProcessPool("killed")), 4, "neuroledger run pixels4 --benchmark",
    ),
    "the program crashes": (raising(evaluating, "measure", KeyError("name")), 4, "please report it"),
    "a spec has a typo": (typo, 4, "neuroledger check"),
    "the metric has a typo": (typo_in_the_metric, 4, "neuroledger check"),
    "a module is not trusted": (untrusted, 4, "NEUROLEDGER_TRUSTED"),
}  # fmt: skip


def rich_laboratory(lab: Lab) -> None:
    """Add a metric of its own, a model with weights, and one of a module that its owner trusts."""
    lab.spec(
        "metrics", "own", compare={"name": "regression", "estimator": {"name": "ridge", "alpha": 1}},
        splits={"name": "shuffle", "folds": 4, "train": 0.9, "by": "stimulus_id"}, scale="correlation",
        aggregate=[{"over": "neuroid", "with": "median"}, {"over": "split", "with": "mean"}],
    )  # fmt: skip
    lab.benchmark(metric="own")
    folder = lab.root / "data" / "models" / "stored"
    folder.mkdir(parents=True)
    ids = [f"im{i:02d}" for i in range(60)]
    np.save(folder / "w.npy", np.random.default_rng(3).normal(size=(60, 8)))
    (folder / "ids.txt").write_text("\n".join(ids) + "\n")
    pins = {
        path.name: {
            "url": f"https://example.org/{path.name}", "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.glob("*"))
    }  # fmt: skip
    builder = {"name": "precomputed", "file": "w.npy", "stimulus_ids": "ids.txt"}
    lab.spec("models", "stored", builder=builder, weights=pins)
    net = {"name": "torch", "module": "mynets:Net", "preprocessing": {"resize": 4}}
    lab.spec("models", "net", builder=net, layers=["0"], regions={"V4": "0"})
    lab.spec(
        "suites",
        "lab",
        benchmarks=["lab.V4-ridge"],
        models=["pixels4", "stored", "net"],
    )


@pytest.fixture
def trusting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's owner trusts the module ``mynets``."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "mynets.py").write_text(NET)
    monkeypatch.syspath_prepend(str(code))
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "mynets")


@pytest.fixture
def rich(valid: Lab, trusting: None, monkeypatch: pytest.MonkeyPatch) -> Lab:
    rich_laboratory(valid)
    monkeypatch.chdir(valid.root)
    return valid


@pytest.fixture(scope="module")
def _scored() -> list[Path]:
    """The place of the scored laboratory, after the first test that uses it."""
    return []


@pytest.fixture
def scored(
    request: pytest.FixtureRequest,
    _scored: list[Path],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    trusting: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Lab:
    """A copy of the rich laboratory with the records of all its models."""
    if not _scored:
        lab: Lab = request.getfixturevalue("rich")
        assert main(["run"]) == 0
        place = tmp_path_factory.mktemp("scored") / "lab"
        _scored.append(shutil.copytree(lab.root, place))
        return lab
    copy = Lab(shutil.copytree(_scored[0], tmp_path / "lab"))
    monkeypatch.chdir(copy.root)
    return copy


def test_the_laboratory_is_scored(
    rich: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run"]) == 0, capsys.readouterr()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_machine_changes_nothing_and_heals(
    scored: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    fault, status, command = FAULTS[name]
    good = tree(scored.root)
    capsys.readouterr()
    with monkeypatch.context() as patch:
        mend = fault(scored, patch)
        before = tree(scored.root)
        assert main(["run", "--force", "--allow-failed"]) == status
        said = "".join(capsys.readouterr())
        assert tree(scored.root) == before, "nothing is written, and nothing replaced"
        lines = [
            line
            for line in said.splitlines()
            if line.startswith("pending: ") or status != 4
        ]
        assert any(command in line for line in lines), said
        if status == 4:
            assert "✗" not in said and " pending" in said
        mend()
    assert main(["run", "--force"]) == 0, "".join(capsys.readouterr())
    assert tree(scored.root) == good, "the same call works, with the same bytes"


@pytest.mark.parametrize("name", ["a spec has a typo", "the metric has a typo"])
def test_an_invalid_spec_is_refused_with_its_place_before_anything_is_computed(
    scored: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    FAULTS[name][0](scored, monkeypatch)
    before = tree(scored.root)
    monkeypatch.setattr(
        evaluating, "resolve", lambda *_: pytest.fail("something was computed")
    )
    capsys.readouterr()
    status = main(["run", "pixels4", "--benchmark", "lab.V4-ridge", "--force"])
    said = "".join(capsys.readouterr())
    assert status == 2 and "specs/benchmarks/lab.V4-ridge.yaml:" in said, said
    assert ("'seeds'" if name == "a spec has a typo" else "'rigde'") in said, said
    assert tree(scored.root) == before


def test_a_missing_device_is_pending(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(valid.root)
    before = tree(valid.root)
    assert main(["run", "--device", "cuda:7"]) == 4
    assert tree(valid.root) == before


def test_what_is_pending_outranks_what_failed(
    rich: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    rich.spec("models", "broken", builder={"name": "precomputed"})
    rich.spec(
        "suites",
        "lab",
        benchmarks=["lab.V4-ridge"],
        models=["broken", "pixels4", "stored"],
    )
    assert main(["run"]) == 1
    assert main(["run", "--allow-failed"]) == 0
    (rich.root / "data" / "models" / "stored" / "w.npy").unlink()
    capsys.readouterr()
    assert main(["run", "--force"]) == 4
    assert main(["run", "--force", "--allow-failed"]) == 4
    said = "".join(capsys.readouterr())
    assert (
        said.count(
            "pending: lab.V4-ridge · stored: model 'stored': 1 of 2 files are missing"
        )
        == 2
    ), said
    assert "1 pending" in said


def test_a_recorded_failure_of_the_machine_is_computed_again_without_being_asked(
    scored: Lab,
) -> None:
    path = record_path(scored.root, "lab.V4-ridge", "pixels4")
    record = read_record(path)
    failed = altered(
        record, status="failed", score=None, scores={}, controls={},
        error={"type": "UnavailableError", "message": "h5py is not installed"},
    )  # fmt: skip
    write_record(path, failed)
    assert read_record(path).status == "failed"
    assert main(["run"]) == 0 and read_record(path).payload() == record.payload()


def test_a_fresh_clone_without_files_is_healed_by_their_arrival(
    valid: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first line of the README before the data are there, and after; no committed file changes."""
    monkeypatch.chdir(valid.root)
    (valid.root / ".cache" / "validated" / "lab.json").unlink()
    mends = [restoring(path) for path in valid.data.glob("*")]
    for path in valid.data.glob("*"):
        path.unlink()
    before = tree(valid.root)
    with pytest.raises(PendingError, match="3 of 3 files are missing") as caught:
        nl.score("pixels4", "lab.V4-ridge")
    assert caught.value.command == "neuroledger fetch lab"
    evaluated = nl.evaluate("pixels4", benchmarks=["lab.V4-ridge"])
    assert (
        not evaluated.failed
        and evaluated.pending["lab.V4-ridge"].command == "neuroledger fetch lab"
    )
    assert (
        "pending: data set 'lab': 3 of 3 files are missing"
        in evaluated.to_frame()["state"][0]
    )
    (pending,) = nl.run(["pixels4"], benchmarks=["lab.V4-ridge"])
    assert isinstance(pending, Pending) and pending.code == "data.missing"
    for verb in (
        ["validate", "lab"], ["run", "pixels4", "--benchmark", "lab.V4-ridge"], ["score", "pixels4", "lab.V4-ridge"],
        ["evaluate", "pixels4", "--benchmark", "lab.V4-ridge"],
    ):  # fmt: skip
        capsys.readouterr()
        assert main(verb) == 4, verb
        assert "neuroledger fetch lab" in "".join(capsys.readouterr()), verb
    assert tree(valid.root) == before
    for mend in mends:
        mend()
    complete = tree(valid.root)
    assert nl.score("pixels4", "lab.V4-ridge").status == "scored"
    assert tree(valid.root) == complete


def test_a_committed_report_of_another_version_of_the_gates_library_stays(
    valid: Lab,
) -> None:
    path = valid.root / "results" / "validation" / "lab.json"
    from neuroledger.data.gate.validation import read_report, seal, write_report

    report = read_report(path)
    assert report is not None
    write_report(path, seal(report.model_copy(update={"great_expectations": "0.0.1"})))
    committed = path.read_bytes()
    (valid.root / ".cache" / "validated" / "lab.json").unlink()
    assert validate(valid.open(), "lab").success and path.read_bytes() == committed


def test_a_report_on_a_missing_file_is_no_verdict(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote such reports."""
    from neuroledger.data.gate.validation import (
        read_report,
        refusal,
        report_path,
        seal,
        write_report,
    )

    path = report_path(valid.root, "lab")
    report = read_report(path)
    assert report is not None
    stages = {
        "hash": "failed",
        "structure": "not reached",
        "expectations": "not reached",
    }
    finding = Finding("data.hash", "error", "data/lab/x", "the file is missing")
    write_report(
        path, seal(report.model_copy(update={"stages": stages, "findings": (finding,)}))
    )
    refused = refusal(valid.open(), "lab")
    assert refused is not None and refused.code == "data.not-validated"
    monkeypatch.chdir(valid.root)
    assert main(["validate", "lab"]) == 0 and main(["run"]) == 0


def test_a_look_changes_nothing_and_record_writes(
    valid: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(valid.root)
    assert main(["run"]) == 0
    before = tree(valid.root)
    assert main(["score", "pixels4", "lab.V4-ridge", "--seed", "3"]) == 0
    assert tree(valid.root) == before
    assert "not recorded: `--record` writes the record" in capsys.readouterr().out
    assert main(["score", "pixels4", "lab.V4-ridge", "--seed", "3", "--record"]) == 0
    assert tree(valid.root) != before
    assert (
        read_record(record_path(valid.root, "lab.V4-ridge", "pixels4")).request.seed
        == 3
    )


def test_errors_are_about_the_pair_or_the_machine_by_their_types() -> None:
    def raised(outer: Exception, inner: BaseException) -> Exception:
        try:
            raise outer from inner
        except Exception as error:
            return error

    assert about_pair(MetricError("undefined")) and about_pair(
        DataError("a column lacks")
    )
    assert about_pair(
        raised(
            DataError("not a file of this kind"), OSError("file signature not found")
        )
    )
    assert about_pair(
        raised(DataError("damaged"), OSError(errno.EINVAL, "Invalid argument"))
    )
    for error in (
        KeyError("x"), MemoryError(), OSError(errno.EIO, "no"), SpecError([]), UnavailableError("x"),
        IntegrityError("x"), raised(DataError("no"), OSError(errno.EIO, "no")),
        raised(MetricError("no"), MemoryError()), raised(MetricError("no"), ImportError("no")),
        raised(DataError("no"), raised(ValueError("no"), OSError(errno.ENOSPC, "full"))),
    ):  # fmt: skip
        assert not about_pair(error), repr(error)


def test_pending_lines_are_grouped_by_reason_and_name_the_command() -> None:
    first, second = (
        Pending("no data", "fetch one", "data.missing"),
        Pending("no weights", "fetch two", "data.missing"),
    )
    names = [
        ("b", first),
        ("a", first),
        ("c", second),
        *((f"x{i}", second) for i in range(4)),
    ]
    assert list(pending_lines(names)) == [
        "pending: a, b: no data: run `fetch one`", "pending: c, x0, x1 and 2 more: no weights: run `fetch two`",
    ]  # fmt: skip
    with pytest.raises(KeyError):
        Pending("x", "y", "no.code")


def test_a_crash_is_shown_with_type_and_place() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        pending = pending_for(error, again="neuroledger run")
    assert pending.code == "machine.crash" and pending.command == "neuroledger run"
    assert (
        pending.reason.startswith("JSONDecodeError: ")
        and "decoder.py:" in pending.reason
    )
    assert "please report it" in pending.reason


def test_other_data_are_a_statement_about_the_data(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pinned bytes that break an expectation still give a report and a failed record."""
    make_files(lab.data)
    lab.dataset(expectations={"assembly": [{"check": "repetitions", "count": 99}]})
    monkeypatch.chdir(lab.root)
    assert main(["validate", "lab"]) == 1
    assert main(["run"]) == 1
    record = read_record(record_path(lab.root, "lab.V4-ridge", "pixels4"))
    assert (
        record.status == "failed"
        and record.error is not None
        and record.error.type == "DataError"
    )
