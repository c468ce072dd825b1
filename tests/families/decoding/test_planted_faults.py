"""Tests that folders with a planted fault are refused with the right message in any format, and clean ones are accepted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from neuroledger.cli import main
from tests.families.decoding.recorded_folders import (
    CHANNELS,
    FORMATS,
    RATE,
    Format,
    place_of,
)

PEOPLE = ("anna", "bela", "carl", "dora", "emil", "fred")
SESSIONS = ("1", "2")
TRIALS, EVERY = 40, 1.5
Events = list[tuple[int, int]]
Recordings = dict[tuple[str, str], tuple[np.ndarray, Events]]
# XDF and tables of 72,000 rows are slow to write; what they lack is that others have it.
TRIED = [
    "gdf",
    "cnt",
    "kit",
    "ctf",
    "epochs-fif",
    "bdf-status",
    "bdf-annotations",
    "brainvision-dat",
    "parquet",
    "nwb",
]


def simulated() -> Recordings:
    """(channel, sample) in µV, with a response 300 ms after each event, larger after the second kind."""
    made: Recordings = {}
    after = (np.arange(RATE) / RATE - 0.3) / 0.05
    bump = 48 * np.exp(-0.5 * after**2) * np.linspace(0.5, 1.5, len(CHANNELS))[:, None]
    for number, who in enumerate(PEOPLE):
        mixing = np.eye(len(CHANNELS)) + 0.6 * np.random.default_rng(number).normal(
            size=(len(CHANNELS),) * 2
        )
        for when in SESSIONS:
            rng = np.random.default_rng([number, int(when)])
            kinds = rng.permutation(np.arange(TRIALS) % 2)
            events = [
                (round((1 + EVERY * trial) * RATE), int(kind))
                for trial, kind in enumerate(kinds)
            ]
            x = mixing @ rng.normal(
                0, 20, (len(CHANNELS), round((TRIALS * EVERY + 2) * RATE))
            )
            for at, kind in events:
                x[:, at : at + RATE] += bump * (1.3 if kind else 1.0)
            made[who, when] = rng.uniform(0.8, 1.25) * x, events
    return made


def nothing(made: Recordings) -> None:
    pass


def exchanged(made: Recordings) -> None:
    made["bela", "2"], made["emil", "2"] = made["emil", "2"], made["bela", "2"]


def copied(made: Recordings) -> None:
    """Ten windows of one person are put into another's recording, at half the gain and other times."""
    x, events = made["anna", "1"]
    other, later = made["carl", "2"]
    other = other.copy()
    for (at, _), (to, _) in zip(events[:10], later[20:30], strict=True):
        other[:, to - RATE // 4 : to + RATE] = 0.5 * x[:, at - RATE // 4 : at + RATE]
    made["carl", "2"] = other, later


def shifted(made: Recordings) -> None:
    x, events = made["dora", "1"]
    made["dora", "1"] = x, [(at + round(0.1 * RATE), kind) for at, kind in events]


def in_another_unit(made: Recordings) -> None:
    x, events = made["fred", "2"]
    made["fred", "2"] = x / 120, events


def in_blocks(made: Recordings) -> None:
    for who, (x, events) in list(made.items()):
        made[who] = (
            x,
            [(at, int(number >= TRIALS // 2)) for number, (at, _) in enumerate(events)],
        )


FAULTS: dict[str, tuple[Callable[[Recordings], None], str, int]] = {
    "none": (nothing, "Nothing suspicious was found.", 0),
    "swapped people": (exchanged, "they may be exchanged", 1),
    "copied windows": (
        copied,
        "10 pairs of windows are the same samples up to gain, 10 of them of two subjects",
        1,
    ),
    "shifted events": (
        shifted,
        "1 recordings respond at another time than the others: {dora_1} (-",
        1,
    ),
    "another unit": (
        in_another_unit,
        "1 recordings vary at least 100 times more or less than the others",
        1,
    ),
    "labels in blocks": (in_blocks, "labels come in blocks: 12 changes", 0),
}


def written(folder: Path, one: Format, made: Recordings) -> Path:
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (who, when), recording in made.items():
            one.write(folder / one.ending.format(f"{who}_{when}"), *recording)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", TRIED)
def test_an_audit_finds_the_fault_that_was_planted_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, fault: str
) -> None:
    one, (plant, words, code) = FORMATS[name], FAULTS[fault]
    made = simulated()
    plant(made)
    folder = written(tmp_path / "downloads", one, made)
    place = place_of(tmp_path / "place", one, people=len(PEOPLE))
    command = ["--root", str(place)]
    assert main([*command, "pin", "Mine", "--from", str(folder)]) == 0
    capsys.readouterr()
    assert main([*command, "audit", "Mine"]) == code
    page = capsys.readouterr().out
    assert words.format(dora_1=one.ending.format("dora_1")) in page
    assert page.count("`audit.") == (fault != "none")


@pytest.mark.parametrize("name", [name for name in TRIED if name != "nwb"])
def test_one_recording_under_two_names_is_refused_where_it_is_pinned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Files of NWB state whose they are inside, and differ in that: an audit finds their windows."""
    one = FORMATS[name]
    x, events = simulated()["anna", "1"]
    folder = written(
        tmp_path / "downloads",
        one,
        {("anna", "1"): (x, events), ("bela", "1"): (x, events)},
    )
    place = place_of(tmp_path / "place", one, people=2)
    assert main(["--root", str(place), "pin", "Mine", "--from", str(folder)]) != 0
    message = capsys.readouterr().err
    files = [one.ending.format(f"{who}_1") for who in ("anna", "bela")]
    assert (
        f"{files[0]} of anna and {files[1]} of bela contain the same bytes" in message
    ), message


@pytest.mark.parametrize("name", ["gdf", "cnt", "xdf", "parquet"])
def test_a_folder_in_another_unit_is_refused_with_what_was_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Values are nanovolts where the file, or the spec of a table, says microvolts."""
    one = FORMATS[name]
    x, events = simulated()["anna", "1"]
    folder = written(tmp_path / "downloads", one, {("anna", "1"): (1000 * x, events)})
    place = place_of(tmp_path / "place", one, people=1)
    assert main(["--root", str(place), "pin", "Mine", "--from", str(folder)]) != 0
    said = capsys.readouterr().err
    assert "channels vary by" in said and "0.05 to 5000 µV are plausible" in said, said
