"""Detection of forged records and reports by recomputation, and signatures of recomputed records."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from neuroledger.cli import main
from neuroledger.data.gate.validate import validate
from neuroledger.data.gate.validation import (
    read_report,
    report_path,
    seal,
    write_report,
)
from neuroledger.display import NoDisplay
from neuroledger.engine.plan import plan
from neuroledger.engine.record import (
    PAYLOAD,
    Record,
    read_record,
    record_of,
    record_path,
    write_record,
)
from neuroledger.engine.records.reproduced import TOLERANCE, compared, differences
from neuroledger.engine.run import run
from neuroledger.engine.session import Request
from neuroledger.engine.verify import verify
from neuroledger.errors import Finding
from neuroledger.report.table import board_of
from neuroledger.spec.kinds import SuiteSpec
from tests.engine.lab import Lab
from tests.report.ledger import record, with_score

RIDGE = "lab.V4-ridge"


@pytest.fixture(scope="module")
def once(_validated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The laboratory after one score, for copies only."""
    created = Lab(
        shutil.copytree(_validated, tmp_path_factory.mktemp("scored") / "lab")
    )
    jobs = plan(
        created.open(), benchmarks=[RIDGE], models=["pixels4"], request=Request()
    ).jobs
    run(created.open(), jobs, Request(), NoDisplay())
    return created.root


@pytest.fixture
def lab(once: Path, tmp_path: Path) -> Lab:
    return Lab(shutil.copytree(once, tmp_path / "lab"))


@pytest.fixture
def scored(lab: Lab) -> Path:
    return record_path(lab.root, RIDGE, "pixels4")


def verified(lab: Lab, path: Path, **options: Any) -> Finding:
    options = {"recompute": True, "display": NoDisplay()} | options
    (result,) = verify(lab.open(), [path], **options)
    return result.finding


def forge(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    plain = read_record(path).model_dump(mode="json")
    change(plain)
    write_record(path, Record.model_validate(plain))


def interval(plain: dict[str, Any]) -> None:
    for score in (plain["score"], plain["scores"]["ridge"]):
        score["low"] = score["value"] - 1e-4


FORGERIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "value": lambda plain: (
        [one.update(value=0.95) for one in (plain["score"], plain["scores"]["ridge"])]
        and None
    ),
    "headline only": lambda plain: plain["score"].update(value=0.95),
    "interval": interval,
    "ceiling": lambda plain: plain["scores"]["ridge"]["ceiling"].update(value=0.99),
    "count": lambda plain: plain["scores"]["ridge"]["n"].update(neuroid=500),
    "controls": lambda plain: plain["controls"].clear(),
    "note": lambda plain: plain["scores"]["ridge"].update(notes=["state of the art"]),
    "reason of a control": lambda plain: plain["controls"]["noise"].update(
        reason="certified"
    ),
    "number of items": lambda plain: plain["score"]["uncertainty"]["items"].update(
        stimulus=9000
    ),
    "degrees of freedom": lambda plain: plain["score"]["uncertainty"]["parts"][
        0
    ].update(freedom=9000.0),
    "limits of the interval": lambda plain: plain["score"]["uncertainty"].update(
        limits=[0.0, 0.9]
    ),
    "error of the ceiling": lambda plain: (
        [
            score["ceiling"]["uncertainty"]["parts"][0].update(variance=1e-9)
            for score in (plain["score"], plain["scores"]["ridge"])
        ]
        and None
    ),
    "shuffles of a control": lambda plain: plain["controls"]["noise"].update(
        shuffles=128
    ),
    "end of the interval of a control": lambda plain: plain["controls"]["noise"].update(
        low=-0.5
    ),
    "failure": lambda plain: plain.update(
        status="failed", score=None, scores={}, error={"type": "X", "message": "x"}
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_record_is_never_confirmed(
    lab: Lab, scored: Path, forgery: str
) -> None:
    forge(scored, FORGERIES[forgery])
    result = verified(lab, scored, recompute=False)
    if forgery in {"headline only", "ceiling"}:
        assert result.code == verified(lab, scored).code == "record.unreadable"
        return
    assert result.code in {"record.current", "record.failed"}
    assert "self-reported" in result.what or forgery == "failure"
    assert verified(lab, scored).code == "record.not-reproduced"


def leaves(plain: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every value of plain data, and of every list and mapping in it."""
    yield at
    parts = (
        plain.items()
        if isinstance(plain, dict)
        else enumerate(plain)
        if isinstance(plain, list)
        else ()
    )
    for name, part in parts:
        yield from leaves(part, (*at, name))


def other(value: Any) -> list[Any]:
    """What somebody may write in the place of a value."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, -value - 1, str(value), None]
    if isinstance(value, str):
        return [f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}", "", None]
    if isinstance(value, dict):
        return [value | {"more": 1}, {}, None]
    return [[*value, "more"], [], None] if isinstance(value, list) else [1.0, "more"]


def test_any_change_of_a_record_is_detected_by_recomputation(scored: Path) -> None:
    """Each value of the payload is replaced and the hash recomputed."""
    true = read_record(scored)
    plain = true.model_dump(mode="json")
    payload = {name: plain[name] for name in PAYLOAD}
    tried = 0
    for at in [item for item in leaves(payload) if item]:
        content = reduce(lambda part, name: part[name], at, payload)
        for instead in other(content):
            plain = true.model_dump(mode="json")
            reduce(lambda part, name: part[name], at[:-1], plain)[at[-1]] = instead
            if instead == content:
                continue
            tried += 1
            try:
                forged = record_of(plain | {"payload_sha256": ""})
            except ValueError:
                continue
            if forged.payload() == true.payload():
                continue  # what is left out has its default, and that is the same
            forged = forged.sealed()
            assert compared("it", forged, true).finding.code in {
                "record.not-reproduced",
                "record.failed",
            }, (
                at,
                instead,
            )
    assert tried > 300


def with_fields(**fields: Any) -> Record:
    """A record whose headline has no interval, and these fields."""
    return with_score(record("ant", "lab.V4", 0.5, half=None), **fields)


def test_values_in_a_record_do_not_increase_the_tolerance() -> None:
    """The raw score has other units: a value next to 0 that is claimed would make them as large as one likes."""
    again = with_fields(value=1e-4, raw=1e-4, error=0.1)
    claimed = with_fields(value=1e-12, raw=0.9, error=0.1)
    refused = [words for words, share in differences(claimed, again) if share is None]
    assert refused == ["raw was 0.9, is 0.0001"]


@pytest.mark.parametrize(
    ("was", "now", "shares"),
    [
        ({"n": {"x": 0.5}}, {"n": {"x": 0.5}}, []),
        ({"n": {"x": 0.5}}, {"n": {"x": 0.5 + 0.5 * TOLERANCE}}, [0.5]),
        ({"n": {"x": 0.5}}, {"n": {"x": 0.5 - 2 * TOLERANCE}}, [None]),
        ({"n": {"x": 200.0}}, {"n": {"x": 200.0 + 100 * TOLERANCE}}, [0.5]),
        ({"n": {"x": 200.0}}, {"n": {"x": 200.0 + 300 * TOLERANCE}}, [None]),
        ({"n": {"x": 1}}, {"n": {"x": 2}}, [None]),
        ({"n": {}}, {"n": {"x": 1.0}}, [None]),
        ({"raw": 1.0}, {"raw": None}, [None]),
        ({"ceiling": None}, {}, [None]),
        (
            {"value": 0.5, "error": 0.1},
            {"value": 0.5009, "error": 0.1},
            [9e-4 / TOLERANCE],
        ),
        ({"value": 0.5, "error": 0.1}, {"value": 0.5011, "error": 0.1}, [None]),
        (
            {"value": 0.5, "low": 0.3, "high": 0.692},
            {"value": 0.5009, "low": 0.3, "high": 0.692},
            [9e-4 / TOLERANCE],
        ),
        (
            {"value": 0.5, "raw": 5.0, "error": 0.1},
            {"value": 0.5, "raw": 5.009, "error": 0.1},
            [9e-3 / TOLERANCE / 5],
        ),
        (
            {"value": 0.5, "raw": 5.0, "error": 0.1},
            {"value": 0.5, "raw": 5.011, "error": 0.1},
            [None],
        ),
        ({"notes": ["0.501"]}, {"notes": ["0.502"]}, [None]),
        ({"notes": ["a"]}, {"notes": ["a", "b"]}, [None]),
        (
            {"facts": {"rate": {"value": 1.0, "origin": "stated"}}},
            {"facts": {"rate": {"value": 1.0, "origin": "assumed"}}},
            [None],
        ),
    ],
)
def test_differences_are_reported_in_units_of_rounding(
    was: dict[str, Any], now: dict[str, Any], shares: list[float | None]
) -> None:
    found = differences(with_fields(**was), with_fields(**now))
    assert [share for _, share in found] == [
        None if item is None else pytest.approx(item, rel=1e-3) for item in shares
    ]


def test_signed_records_are_distinguished_from_self_reported_ones(
    lab: Lab, scored: Path, tmp_path: Path
) -> None:
    key, other = tmp_path / "key", tmp_path / "other"
    for item in (key, other):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(item)], check=True
        )
    signers, strangers = tmp_path / "signers", tmp_path / "strangers"
    signers.write_text(f"maintainer@example.org {key.with_suffix('.pub').read_text()}")
    strangers.write_text(
        f"stranger@example.org {other.with_suffix('.pub').read_text()}"
    )
    assert (
        verified(lab, scored, recompute=False, signers=signers).code == "record.current"
    )
    assert main(["--root", str(lab.root), "sign", str(scored), "--key", str(key)]) == 0
    result = verified(lab, scored, recompute=False, signers=signers)
    assert result.code == "record.signed" and "maintainer@example.org" in result.what
    assert (
        verified(lab, scored, recompute=False, signers=strangers).code
        == "record.signature"
    )
    shutil.copy(signers, lab.root / "allowed_signers")
    assert signed_on_board(lab, scored) == "maintainer@example.org"
    assert verified(lab, scored, recompute=False).code == "record.signed"
    shutil.copy(strangers, lab.root / "allowed_signers")
    assert signed_on_board(lab, scored) == ""
    forge(scored, FORGERIES["value"])
    shutil.copy(signers, lab.root / "allowed_signers")
    assert signed_on_board(lab, scored) == ""
    assert verified(lab, scored, recompute=False).code == "record.signature"


def signed_on_board(lab: Lab, path: Path) -> str:
    """Who the board names as the signer of the record at ``path``."""
    record = read_record(path)
    fields = {
        "id": "one",
        "version": 1,
        "title": "One",
        "benchmarks": [{"id": record.benchmark}],
        "models": [record.model],
    }
    board = board_of(lab.open(), SuiteSpec.model_validate(fields), [record])
    signers = {row.model: row.cells[0].evidence.signer for row in board.rows}
    counted = sum(bool(signer) for signer in signers.values())
    assert f"{counted} of 1 scores are recomputed and signed" in str(board)
    return signers[record.model]


def test_a_record_that_is_not_reproduced_is_not_signed(
    lab: Lab, scored: Path, tmp_path: Path
) -> None:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")],
        check=True,
    )
    forge(scored, FORGERIES["value"])
    assert (
        main(
            [
                "--root",
                str(lab.root),
                "sign",
                str(scored),
                "--key",
                str(tmp_path / "key"),
            ]
        )
        == 1
    )
    assert not list((lab.root / "results").rglob("*.sig*"))


def test_a_forged_validation_report_is_refused(lab: Lab) -> None:
    shutil.rmtree(lab.root / "results")
    expectations = {"assembly": [{"check": "repetitions", "count": 99}]}
    lab.dataset(expectations=expectations)
    catalog = lab.open()
    report = validate(catalog, "lab")
    assert not report.success
    stages = dict.fromkeys(report.stages, "passed")
    checks = tuple(
        check.model_copy(update={"success": True}) for check in report.checks
    )
    forged = seal(
        report.model_copy(update={"stages": stages, "findings": (), "checks": checks})
    )
    path = report_path(catalog.root, "lab")
    write_report(path, forged)
    assert (read_report(path) or report).success
    jobs = plan(catalog, benchmarks=[RIDGE], models=["pixels4"], request=Request()).jobs
    (outcome,) = run(catalog, jobs, Request(), NoDisplay())
    assert outcome.record.status == "failed" and outcome.record.score is None
    assert not json.loads(path.read_text())["success"]
