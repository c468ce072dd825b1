"""Untrusted texts are displayed safely, and an invalid record hides no other."""

from __future__ import annotations

import json
import logging
from importlib import metadata
from pathlib import Path

import pytest

from neuroledger.cli import main
from neuroledger.display import PlainDisplay, RichDisplay, visible
from neuroledger.engine.record import read_all, relative
from neuroledger.engine.records.environment import PACKAGES, versions
from tests.engine.lab import Lab
from tests.report.ledger import keep, record, score

RIDGE = "lab.V4-ridge"
ODD = [{"value": "abc"}, {"value": True}, {"value": 0.5, "low": "x"}, {}, "abc", [0.5]]


def test_a_record_contains_no_local_path(tmp_path: Path) -> None:
    assert relative(f"{tmp_path}/data/x", tmp_path) == "data/x"
    text = f"{Path.home()}/x and {tmp_path}/y"
    assert relative(text, tmp_path) == "~/x and y"
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    for place in ("real", "link"):
        assert relative(f"{tmp_path}/{place}/x", tmp_path / "link") == "x"
    assert relative("/a/b", Path("/")) == "/a/b"


def test_a_record_lists_the_versions_of_installed_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        if name in ("scipy", "dvc"):
            raise metadata.PackageNotFoundError(name)
        return f"{name} 1"

    monkeypatch.setattr(metadata, "version", version)
    versions.cache_clear()
    try:
        result = versions()
    finally:
        versions.cache_clear()
    assert (
        result == {name: f"{name} 1" for name in result}
        and not {"scipy", "dvc"} & result.keys()
    )
    assert {*PACKAGES} - {"scipy", "dvc"} <= result.keys()


def test_hidden_characters_are_escaped_and_others_unchanged() -> None:
    assert (
        visible("a\x1b[2Jb\u202ec\rd\u200be\U000e0041")
        == "a\\x1b[2Jb\\u202ec\\rd\\u200be\\U000e0041"
    )
    assert visible("größer → 5 µV\n\tё") == "größer → 5 µV\n\tё"


def test_a_title_cannot_write_to_the_terminal(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.benchmark("lab.V4-pls", metric="pls", title="good\x1b]0;evil\x07\u202egnp")
    for words in (
        ["list"],
        ["list", "--json"],
        ["show", "lab.V4-pls"],
        ["show", "lab.V4-pls", "--json"],
    ):
        main(["--root", str(lab.root), *words])
        reported = capsys.readouterr()
        assert not {"\x1b", "\x07", "\u202e"} & set(reported.out + reported.err)
        if "--json" in words:
            assert "\u202e" in json.dumps(json.loads(reported.out), ensure_ascii=False)
    PlainDisplay().line("a\x1b[1m")
    assert "\x1b" not in capsys.readouterr().err


def test_a_file_name_is_shown_unchanged_next_to_a_progress_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    display = RichDisplay()
    display.start()
    display.progress("sub-01[/red]\x1b]0;evil\x07.edf", 1, 2)
    display.stop()
    reported = capsys.readouterr().err
    assert "sub-01[/red]\\x1b]0;evil\\x07.edf" in reported and "\x07" not in reported


def test_an_undefined_score_is_not_compared(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    undefined = score(0.5, None) | {"value": None, "raw": None}
    keep(
        lab.open(),
        record("pixels4", RIDGE, 0.5, score=undefined, scores={"ridge": undefined}),
        record("noise", RIDGE, 0.0),
    )
    main(["--root", str(lab.root), "compare", "pixels4", "noise", "--benchmark", RIDGE])
    assert (
        "the score of pixels4 on lab.V4-ridge is undefined" in capsys.readouterr().out
    )


@pytest.mark.parametrize("score", ODD, ids=str)
def test_one_invalid_record_is_one_finding_and_others_are_shown(
    lab: Lab,
    score: object,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep(lab.open(), record("pixels4", RIDGE, 0.5), record("noise", RIDGE, 0.0))
    path = lab.root / "results" / "records" / RIDGE / "noise.json"
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {"score": score}))
    with caplog.at_level(logging.WARNING):
        assert [item.model for item in read_all(lab.root / "results" / "records")] == [
            "pixels4"
        ]
    assert "record.unreadable" in caplog.text
    assert main(["--root", str(lab.root), "leaderboard"]) == 0
    assert "pixels4" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[" * 100_000,
        json.dumps(
            {"benchmark": "gone", "passed": False, "identity": {"benchmark": "x"}}
        ),
        json.dumps({"benchmark": RIDGE, "passed": False, "identity": []}),
    ],
    ids=["cut", "deep", "of a benchmark that is gone", "without identity"],
)
def test_an_invalid_calibration_hides_no_other(
    lab: Lab,
    content: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keep(lab.open(), record("pixels4", RIDGE, 0.5), record("noise", RIDGE, 0.0))
    path = lab.root / "results" / "calibration" / "odd.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert main(["--root", str(lab.root), "leaderboard"]) == 0
    assert (
        "0.500" in capsys.readouterr().out
        and "odd.json: not a calibration" in caplog.text
    )
