"""The gallery shows what its scripts make: each picture and text is of the present source, and every script runs."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.docs import gallery

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
EXAMPLES = gallery.examples()


def test_there_is_one_thing_to_show_in_each_of_many_scripts() -> None:
    assert len(EXAMPLES) >= 25
    for one in EXAMPLES:
        lines = [line for line in one.code.splitlines() if line.strip()]
        assert 2 <= len(lines) <= 30, f"{one.name}: {len(lines)} lines"
        assert one.title and one.words, one.name


@pytest.mark.parametrize("one", EXAMPLES, ids=lambda one: one.name)
def test_what_a_page_shows_was_made_by_the_present_script(one: gallery.Example) -> None:
    """Made anew by `python -m tests.docs.gallery NAME`."""
    kept = gallery.made()
    assert one.name in kept and kept[one.name].sha256 == one.sha256, (
        f"{one.name}.py changed: run `python -m tests.docs.gallery {one.name}`"
    )
    content = gallery.source_of(one.name).with_suffix(".png").read_bytes()
    assert len(content) < gallery.LARGEST, f"{one.name}.png has {len(content)} bytes"
    assert Image.open(io.BytesIO(content)).width == gallery.WIDE


def test_the_index_lists_every_script_once() -> None:
    """Written by `python -m tests.docs.gallery`."""
    text = gallery.INDEX.read_text(encoding="utf-8")
    assert text == gallery.index()
    shown = re.findall(r"\]\((\w+)\.py\)", text)
    assert sorted(shown) == sorted(one.name for one in EXAMPLES)


def test_nothing_is_left_of_scripts_that_are_gone() -> None:
    names = {one.name for one in EXAMPLES}
    assert gallery.made().keys() == names
    assert {path.stem for path in gallery.FOLDER.glob("*.png")} == names


def alike(first: str, second: str) -> bool:
    """Whether two texts have the same words, and numbers that differ by rounding at most."""
    if NUMBER.sub("#", first).split() != NUMBER.sub("#", second).split():
        return False
    numbers = [
        [float(each) for each in NUMBER.findall(text)] for text in (first, second)
    ]
    return bool(np.allclose(*numbers, rtol=0.02, atol=0.002))


def test_a_changed_number_is_noticed_and_rounding_is_not() -> None:
    assert alike("0.3706 of 10 splits", "0.3707 of 10 splits")
    assert not alike("0.3706 of 10 splits", "0.4706 of 10 splits")
    assert not alike("0.3706 of 10 splits", "0.3706 of 10 folds")


@pytest.mark.slow
def test_every_script_prints_what_its_page_shows(
    repository: Path, tmp_path: Path
) -> None:
    """All in one process of their own: some register metrics."""
    command = [sys.executable, "-m", "tests.docs.gallery", "--into", str(tmp_path)]
    done = subprocess.run(
        command, cwd=repository, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    now = gallery.made(tmp_path / "made.json")
    for name, kept in gallery.made().items():
        assert alike(now[name].text, kept.text), f"{name}:\n{now[name].text}"
        assert now[name].figure is kept.figure, name
