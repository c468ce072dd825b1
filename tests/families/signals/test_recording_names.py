"""Subjects and logs of recordings, by patterns of names and exceptions."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.recording_names import (
    Naming,
    Rule,
    resolve,
)

PLAIN = Naming(
    folder="rec",
    recordings=("{subject}_{person}/{day}/block{block:1}.fif",),
    log_folder="logs",
    log="S{subject}-session{session}_block{block}*.mat",
    sessions_by="day",
)


def found(naming: Naming, *names: str) -> dict[str, tuple[str, ...]]:
    entries = resolve(naming, names).entries
    return {
        e["file"]: (e["subject"], e["session"], e["run"], e["log"]) for e in entries
    }


def test_sessions_are_numbered_by_day_even_if_no_recording_is_read() -> None:
    names = (
        "rec/02_7/230110/empty.fif",
        "rec/02_7/230220/block1.fif",
        "logs/deep/S2-session2_block1_list1.mat",
    )
    assert found(PLAIN, *names) == {
        "rec/02_7/230220/block1.fif": (
            "2",
            "2",
            "1",
            "logs/deep/S2-session2_block1_list1.mat",
        )
    }


def test_only_names_that_match_completely_and_have_a_log_are_read() -> None:
    names = (
        "rec/02_7/230110/block1-1.fif",
        "rec/02_7/230110/block12.fif",
        "rec/02_7/230110/block1.fif",
        "else/x.mat",
    )
    resolved = resolve(PLAIN, names)
    assert resolved.entries == [] and resolved.left_out == {
        "rec/02_7/230110/block1.fif": "it has no log"
    }


def test_an_exception_for_one_block_keeps_the_other_block(repository: Path) -> None:
    path = repository / "specs/datasets/Levy2026NoninvasiveEeg.yaml"
    naming = Naming.model_validate(yaml.safe_load(path.read_text())["reader"]["naming"])
    names = [f"EEG/EEG/009_DECOMEG_S1_9949_task{block}.vhdr" for block in (1, 2)]
    logs = [f"EEG/logs/S9_session1_block{block}_list1.mat" for block in (1, 2)]
    resolved = resolve(naming, [*names, *logs])
    assert [entry["file"] for entry in resolved.entries] == names[1:]
    assert resolved.left_out == {names[0]: "its log does not fit"}


def test_names_match_without_regard_to_case() -> None:
    names = (
        "rec/02_7/230110/Block1.fif",
        "rec/02_7/230110/BLOCK2.fif",
        "logs/S2-session1_block1.mat",
    )
    naming = PLAIN.model_copy(
        update={"rules": (Rule(file="*/block2.fif", leave_out="it is the second"),)}
    )
    resolved = resolve(naming, names)
    assert [entry["file"] for entry in resolved.entries] == [names[0]]
    assert resolved.left_out == {names[1]: "it is the second"}


def test_exceptions_use_the_values_set_by_earlier_ones() -> None:
    rules = (
        Rule(file="02_*", said={"log": "S2-{block}*.mat"}),
        Rule(file="02_*", when={"session": "2"}, said={"session": "9"}),
        Rule(file="02_*", when={"session": "9"}, leave_out="it is the ninth"),
    )
    naming = PLAIN.model_copy(update={"rules": rules})
    names = (
        "rec/02_7/230110/block1.fif",
        "rec/02_7/230220/block1.fif",
        "logs/S2-1.mat",
        "logs/S2-session1_block1.mat",
    )
    resolved = resolve(naming, names)
    assert [e["log"] for e in resolved.entries] == ["logs/S2-1.mat"]
    assert resolved.left_out == {"rec/02_7/230220/block1.fif": "it is the ninth"}


def test_two_logs_or_two_recordings_of_one_block_are_refused() -> None:
    names = (
        "rec/02_7/230110/block1.fif",
        "logs/S2-session1_block1_a.mat",
        "logs/S2-session1_block1_b.mat",
    )
    with pytest.raises(
        DataError,
        match=r"rec/02_7/230110/block1.fif has 2 logs, logs/S2-session1_block1_a.mat",
    ):
        resolve(PLAIN, names)
    names = (
        "rec/02_7/230110/block1.fif",
        "rec/2_8/230110/block1.fif",
        "logs/S2-session1_block1.mat",
    )
    with pytest.raises(DataError, match="are both block 1 of session 1 of subject 2"):
        resolve(PLAIN, names)
    nameless = PLAIN.model_copy(
        update={"recordings": ("{subject}_{person}/{day}/{name}.fif",)}
    )
    with pytest.raises(DataError, match="does not state its block"):
        resolve(nameless, names)


def test_a_rule_needs_either_leave_out_or_said() -> None:
    with pytest.raises(
        ValidationError, match="a rule needs either `leave_out` or `said`"
    ):
        Rule(file="x")
    with pytest.raises(
        ValidationError, match="a rule needs either `leave_out` or `said`"
    ):
        Rule(file="x", leave_out="why", said={"block": "1"})


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("Levy2026NoninvasiveEeg", name)
        for name in (
            "005/005_DECOMEG_S2_NOID_task1.vhdr", "008_DECOMEG_S1_9846_task1.vhdr", "008_DECOMEG_S2_9846_task2.vhdr",
            "x/y/012_DECOMEG_S1_11481_task1.vhdr", "013_DECOMEG_S1_11478_task1.vhdr", "003_DECOMEG_S1_9337_task2.vhdr",
            "004_DECOMEG_S2_noid_task2.vhdr", "022_DECOMEG_S2_9948_task1.vhdr", "009_DECOMEG_S1_9949.vhdr",
            "009_DECOMEG_S1_9949_tapping.vhdr", "022_DECOMEG_S2_9948_task2_2.vhdr", "001_DECOMEG_S1_9000_task1.vhdr",
        )
    ] + [
        ("Levy2026NoninvasiveMeg", name)
        for name in (
            "05_3660/230419/block1.fif", "18_9228/231116/block1.fif", "20_11966/231122/block2.fif",
            "20_11966/231122/block2-1.fif", "03_11123/230327/03_11123_block1.fif", "04_3660/230405/block1.fif",
            "05_3660/230405/block2.fif", "06_10216/230502/block2.fif", "06_10216/230502/block3.fif",
            "8_11374/231023/block2_1.fif", "8_11374/231023/block2.fif", "09_11482/230512/block1.fif",
            "23_9948/240514/block2fail.fif", "23_9948/240514/block22.fif", "13_1/230101/block1.fif",
            "11122024_1/241211/block1.fif", "07_10038/230503/testdavid.fif", "14_9876/231010/block1.fif",
        )
    ],
)  # fmt: skip
def test_specs_leave_out_the_recordings_that_the_publication_leaves_out(
    repository: Path, id: str, name: str
) -> None:
    fields = yaml.safe_load((repository / "specs/datasets" / f"{id}.yaml").read_text())[
        "reader"
    ]["naming"]
    naming = Naming.model_validate(fields)
    logs = [
        f"{naming.log_folder}/S{n}{sep}session{s}_block{b}.mat"
        for n in range(1, 26)
        for s in (1, 2)
        for b in (1, 2, 3)
        for sep in "_-"
    ]
    assert resolve(naming, [f"{naming.folder}/{name}", *logs]).entries == []
