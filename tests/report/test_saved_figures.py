"""Figures are written atomically, in supported formats only."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from PIL import Image

from neuroledger import plot as plots
from neuroledger.errors import DataError, RequestError
from neuroledger.report.plots import style
from neuroledger.report.plots.style import axes, finish, legend, save


def test_a_figure_is_written_atomically(tmp_path: Path) -> None:
    ax = style.axes()
    with pytest.raises(RequestError, match=r"use one of \.svg, \.pdf, \.png"):
        plots.save(ax, tmp_path / "a.bmp")
    with pytest.raises(RequestError, match="has no suffix of a figure"):
        plots.save(ax, tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"):
        plots.save(ax, tmp_path / "file" / "a.svg")
    assert plots.save(ax, tmp_path / "deep" / "a.PNG").read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "a.PNG",
        "deep",
        "file",
    ]


def test_a_figure_has_the_requested_size_and_a_quiet_legend() -> None:
    assert axes().figure.get_size_inches().tolist() == [7.0, 4.0]
    ax: Any = axes(width=3.0, height=2.0)
    assert ax.figure.get_size_inches().tolist() == [3.0, 2.0]
    legend(ax)
    assert ax.get_legend() is None
    ax.plot([0, 1], label="ant")
    legend(ax)
    assert (
        not ax.get_legend().get_frame_on()
        and ax.get_legend().get_texts()[0].get_fontsize() == 8
    )
    finish(ax, {"ant": 1})
    assert [name for name, spine in ax.spines.items() if spine.get_visible()] == [
        "bottom"
    ]
    assert ax.data == {"ant": 1} and ax.title.get_fontsize() == 11
    assert {tick.get_fontsize() for tick in ax.get_xticklabels()} == {9.0}


def test_a_notebook_displays_a_picture_of_110_dots_per_inch() -> None:
    ax: Any = axes(width=3.0, height=2.0)
    picture = Image.open(io.BytesIO(ax._repr_png_()))
    assert picture.format == "PNG" and picture.info["dpi"] == pytest.approx(
        (110, 110), abs=0.1
    )


def test_axes_in_a_part_of_a_figure_are_saved_with_the_whole(tmp_path: Path) -> None:
    left, right = Figure(figsize=(4, 2)).subfigures(1, 2)
    first, second = left.subplots(), right.subplots()
    first.set_title("ant")
    second.set_title("bee")
    text = save(first, tmp_path / "f.svg").read_text()
    assert ">ant<" in text and ">bee<" in text
    assert save([first, second], tmp_path / "g.svg").read_text() == text
