"""Figures are written atomically, in supported formats only."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroledger import plot as plots
from neuroledger.errors import DataError, RequestError
from neuroledger.report.plots import style


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
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.PNG", "deep", "file"]
