"""Tests of a seeded sample of the crash points of every writer and verb; ``make hostile`` runs all of them."""

from __future__ import annotations

import pytest

from tests.hostile import verbs
from tests.hostile.crash_points import (
    FAILURES,
    Point,
    enumerate_points,
    operations_of,
    try_point,
)
from tests.hostile.writers import Writer, all_writers


@pytest.mark.parametrize("writer", [writer.name for writer in all_writers()])
def test_a_failed_file_operation_leaves_the_old_or_the_new_content(writer: str) -> None:
    tested, problems = enumerate_points((writer,), sample=4, seed=20261122)
    assert tested[writer] == 4
    assert problems == []


IN_PART = {"verb sign": 2}
"""Points of the verbs that every run of the tests tries; those of the others take minutes."""


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(
            verb.name, marks=[] if verb.name in IN_PART else [pytest.mark.slow]
        )
        for verb in verbs.all_verbs()
    ],
)
def test_a_failed_file_operation_of_a_verb_leaves_a_repository_that_the_next_call_mends(
    verb: str,
) -> None:
    count = IN_PART.get(verb, 4)
    tested, problems = enumerate_points((verb,), sample=count, seed=20261129)
    assert tested[verb] == count
    assert problems == []


def test_a_writer_that_is_not_atomic_is_detected(tmp_path) -> None:
    def careless(folder) -> None:
        (folder / "a.txt").write_text("new" * 10)

    def prepare(folder) -> None:
        (folder / "a.txt").write_text("old" * 10)

    def leaving(folder) -> None:
        (folder / f"left{len(list(folder.iterdir()))}.txt").write_text("left")
        (folder / "a.txt").write_text("new" * 10)

    before = tmp_path / "before"
    before.mkdir()
    prepare(before)
    old, new = {"a.txt": b"old" * 10}, {"a.txt": b"new" * 10}
    writer = Writer("careless", prepare, careless)
    names = operations_of(writer, before, tmp_path / "counted")
    assert names == ["open", "write"]
    points = [Point("careless", at, failure) for at in range(2) for failure in FAILURES]
    problems = {
        point: try_point(point, writer, before, old, new, tmp_path / "tried")
        for point in points
    }
    assert all(
        problem == "a.txt has neither the old nor the new bytes"
        for point, problem in problems.items()
        if point.operation == 1
    )
    writer = Writer("leaving", prepare, leaving)
    assert "left behind" in try_point(
        Point("leaving", 2, "EIO"), writer, before, old, new, tmp_path / "tried"
    )
