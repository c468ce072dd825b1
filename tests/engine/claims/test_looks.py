"""The file of looks only grows, is checked when it is read, and git tells since when a claim has its status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuroledger.engine.claims.looks import (
    Look,
    Looks,
    continues,
    looks_path,
    read_looks,
    turned,
    write_looks,
)
from neuroledger.errors import DataError
from neuroledger.stats.claims import Status, level_of
from tests.report.test_history import git

OPEN: Status = "not_distinguishable"


def look(number: int, evidence: str, status: Status = OPEN) -> Look:
    return Look(
        number=number,
        evidence=evidence * 64,
        level=level_of(number),
        status=status,
        paths=(),
    )


def test_looks_are_written_and_read(tmp_path: Path) -> None:
    looks = Looks(claim="c", looks=(look(1, "a"), look(2, "b"), look(1, "a")))
    assert write_looks(tmp_path, looks)
    assert not write_looks(tmp_path, looks)
    assert read_looks(tmp_path, "c") == looks
    assert read_looks(tmp_path, "other") == Looks(claim="other")


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        ((look(1, "a"), look(1, "b")), "look 2 has the number 1"),
        ((look(1, "a"), look(2, "a")), "look 2 has the number 2"),
        ((look(2, "a"),), "look 1 has the number 2"),
    ],
)
def test_looks_that_were_left_out_are_found(
    looks: tuple[Look, ...], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Looks(claim="c", looks=looks)


def test_a_level_that_does_not_belong_to_its_look_is_found(tmp_path: Path) -> None:
    looks = Looks(claim="c", looks=(look(1, "a"), look(2, "b")))
    write_looks(tmp_path, looks)
    path = looks_path(tmp_path, "c")
    plain = json.loads(path.read_text())
    plain["looks"][1]["level"] = level_of(1)
    path.write_text(json.dumps(plain))
    with pytest.raises(DataError, match="look 2 has the level"):
        read_looks(tmp_path, "c")


def test_looks_of_another_claim_are_refused(tmp_path: Path) -> None:
    write_looks(tmp_path, Looks(claim="c"))
    looks_path(tmp_path, "c").rename(looks_path(tmp_path, "d"))
    with pytest.raises(DataError, match="looks at 'c'"):
        read_looks(tmp_path, "d")


def test_earlier_looks_stay_the_first() -> None:
    before = Looks(claim="c", looks=(look(1, "a"),))
    assert continues(before, Looks(claim="c", looks=(look(1, "a"), look(2, "b"))))
    assert not continues(before, Looks(claim="c", looks=(look(1, "b"),)))
    assert not continues(before, Looks(claim="c"))
    assert not continues(before, Looks(claim="d", looks=(look(1, "a"),)))


def test_git_tells_the_commit_at_which_a_claim_turned(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert turned(tmp_path, "c") is None
    commits = []
    looks: tuple[Look, ...] = ()
    for number, status in enumerate((OPEN, "supported", "supported"), 1):
        looks = (*looks, look(number, "abc"[number - 1], status))
        write_looks(tmp_path, Looks(claim="c", looks=looks))
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-m", status)
        commits.append(git(tmp_path, "rev-parse", "HEAD").strip())
    found = turned(tmp_path, "c")
    assert found is not None
    assert (found.commit, found.status) == (commits[1], "supported")

    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "2", tmp_path.as_uri(), str(shallow))
    assert turned(shallow, "c") is None


def test_without_git_there_is_no_commit(tmp_path: Path) -> None:
    write_looks(tmp_path, Looks(claim="c", looks=(look(1, "a"),)))
    assert turned(tmp_path, "c") is None
