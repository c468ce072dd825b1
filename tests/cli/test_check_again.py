"""A check of what did not change is remembered, and says exactly what it would say again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from neuroledger.cli import catalogue, main
from neuroledger.errors import Finding
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog
from neuroledger.store import derived
from tests.engine.lab import Lab

NOTE = Finding("spec.schema-line", "note", "specs/x.yaml", "what", "fix", 1, 2)
ERROR = Finding("spec.value", "error", "specs/x.yaml", "what", "", 3, 4)


class Checks:
    """The checks of a laboratory, which find what they are told and are counted."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.found = [NOTE]
        self.count = 0

    def __call__(
        self, catalog: Catalog, paths: Sequence[Path], schemas: object
    ) -> tuple[list[Finding], int]:
        self.count += 1
        return self.found, 7

    def again(self, *words: str) -> int:
        """Check once more; return how often something was checked so far."""
        main(["check", *words, "--root", str(self.lab.root)])
        return self.count


@pytest.fixture
def checks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Checks:
    checks = Checks(lab)
    monkeypatch.setattr(catalogue, "_check_all", checks)
    monkeypatch.setattr(derived, "SETTLED_NS", -(10**18))
    return checks


def test_what_a_check_says_again_is_what_it_said(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(derived, "SETTLED_NS", -(10**18))
    lab.dataset(source="https://data.intranet/x")
    path = lab.benchmark()
    path.write_text(path.read_text().split("\n", 1)[1])
    words = ["check", "--root", str(lab.root)]

    def said() -> tuple[int, str, Any]:
        status = main(words)
        text = capsys.readouterr().out
        main([*words, "--json"])
        return status, text, json.loads(capsys.readouterr().out)

    first = said()
    assert first[2]["findings"]
    monkeypatch.setattr(catalogue, "_check_all", None)
    assert said() == first


def edit(path: Path) -> None:
    """Change a file, but neither its size nor its time of modification."""
    stat = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def linked(lab: Lab) -> Path:
    """Return a spec in a folder that is elsewhere, of which specs/ has a link."""
    away = lab.root.parent / "away"
    away.mkdir()
    (lab.root / "specs" / "models" / "more").symlink_to(away)
    path = away / "more.yaml"
    path.write_text("id: more\n")
    return path


def stored(lab: Lab) -> Path:
    path = lab.root / "results" / "records" / "lab.V4-ridge" / "noise.json"
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    return path


def pointer(lab: Lab) -> Path:
    path = lab.data / "stimuli.csv.dvc"
    path.write_text("outs: []\n")
    return path


FILES: dict[str, Callable[[Lab], Path]] = {
    "a spec": lambda lab: lab.root / "specs" / "models" / "pixels4.yaml",
    "a spec behind a link": linked,
    "references": lambda lab: lab.root / "specs" / "references.bib",
    "a schema": lambda lab: lab.root / "specs" / "schema" / "model.json",
    "a record of a control": stored,
    "a pointer": pointer,
}


@pytest.mark.parametrize("file", FILES)
def test_a_changed_or_missing_file_is_checked_again(checks: Checks, file: str) -> None:
    path = FILES[file](checks.lab)
    assert (checks.again(), checks.again()) == (1, 1)
    edit(path)
    assert (checks.again(), checks.again()) == (2, 2)
    path.unlink()
    assert (checks.again(), checks.again()) == (3, 3)


def test_each_request_is_checked_by_itself(checks: Checks, tmp_path: Path) -> None:
    specs = checks.lab.root / "specs"
    assert (checks.again(), checks.again(str(specs / "models"))) == (1, 2)
    assert (checks.again(str(specs / "models")), checks.again()) == (2, 2)
    assert checks.again("--write-schemas") == 3
    outside = tmp_path / "models"
    outside.mkdir()
    assert checks.again(str(outside)) == 4
    assert checks.again(str(outside)) == 5


def test_other_packages_and_trust_are_checked_again(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (checks.again(), checks.again()) == (1, 1)
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "mynets")
    assert (checks.again(), checks.again()) == (2, 2)
    monkeypatch.setattr(derived, "installed_sha256", lambda: "another torch")
    assert (checks.again(), checks.again()) == (3, 3)
    monkeypatch.setattr(registry, "only_shipped", lambda: False)
    assert (checks.again(), checks.again()) == (4, 5)


def test_an_error_is_looked_for_again(checks: Checks) -> None:
    checks.found = [NOTE, ERROR]
    assert (checks.again(), checks.again()) == (1, 2)


def test_a_file_that_changes_during_the_check_is_checked_again(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = checks.lab.root / "specs" / "models" / "pixels4.yaml"

    def changed(*given: Any) -> tuple[list[Finding], int]:
        edit(path)
        return checks(*given)

    monkeypatch.setattr(catalogue, "_check_all", changed)
    assert checks.again() == 1
    edit(path)
    monkeypatch.setattr(catalogue, "_check_all", checks)
    assert (checks.again(), checks.again()) == (2, 2)


def test_a_damaged_memory_is_made_again(checks: Checks) -> None:
    memory = checks.lab.root / ".cache" / "neuroledger" / derived.FILE
    assert (checks.again(), checks.again()) == (1, 1)
    memory.write_bytes(b"damaged" * 1000)
    assert (checks.again(), checks.again()) == (2, 2)
    memory.unlink()
    assert (checks.again(), checks.again()) == (3, 3)


def test_a_file_that_was_just_written_is_checked_again(
    checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "SETTLED_NS", 10**12)
    assert (checks.again(), checks.again()) == (1, 2)
