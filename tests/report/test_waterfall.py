"""A waterfall leads from one score to the other, and each step has its share and interval."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from base64 import b64encode
from itertools import pairwise
from pathlib import Path

import pytest

from neuroledger.cli import main, results
from neuroledger.engine import why
from neuroledger.engine.why import Explanation, Share
from neuroledger.report.waterfall import bars_of, waterfall
from tests.engine.lab import Lab

SHARES = (
    Share("metric.splits", 10, 5, 0.051, 0.03, 0.07),
    Share("ceiling", "a", "b", -0.012, -0.02, -0.001),
    Share("seed <&>", 0, 1, 0.004, None, None),
)
FOUND = Explanation("ant on lab", "ant on <other>", 0.5, 0.543, SHARES, published=0.55)


def test_each_step_begins_where_the_former_ended() -> None:
    rows = bars_of(FOUND)
    assert [row.name for row in rows] == [
        "ant on lab", "metric.splits", "ceiling", "seed <&>", "not explained", "ant on <other>",
    ]  # fmt: skip
    for before, after in pairwise(rows):
        assert after.start == pytest.approx(before.stop)
    assert [row.kind for row in rows] == ["end", "up", "down", "up", "up", "end"]
    assert (rows[1].low, rows[1].high) == pytest.approx((0.53, 0.57))
    assert (rows[2].low, rows[2].high) == pytest.approx((0.531, 0.55))


def test_without_a_published_figure_everything_is_explained() -> None:
    found = Explanation("a", "b", 0.5, 0.543, SHARES)
    assert [row.name for row in bars_of(found)][-2:] == ["seed <&>", "b"]
    assert bars_of(found)[-1].start == pytest.approx(bars_of(found)[-2].stop)


def test_the_drawing_is_valid_and_in_proportion() -> None:
    picture = ET.fromstring(waterfall(FOUND))
    boxes = [element for element in picture.iter() if element.tag.endswith("rect")]
    widths = [float(box.attrib["width"]) - 2 for box in boxes]
    assert widths[1] / 0.051 == pytest.approx(widths[2] / 0.012, rel=0.05)
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"+0.051", "-0.012", "seed <&>", "0.55"} <= set(texts)
    spans = [one for one in picture.iter() if one.attrib.get("class") == "span"]
    assert len(spans) == 2


def test_the_command_writes_the_figure(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_definition", lambda *words: None)
    monkeypatch.setattr(why, "explain", lambda *words, **more: FOUND)
    path = tmp_path / "w.svg"
    words = ["why", "lab/a", "lab/b", "--figure", str(path), "--root", str(lab.root)]
    assert main(words) == 0
    assert path.read_text(encoding="utf-8") == str(waterfall(FOUND))


def test_the_command_writes_a_page_that_says_how_to_make_it_again(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "_definition", lambda *words: None)
    monkeypatch.setattr(why, "explain", lambda *words, **more: FOUND)
    path = tmp_path / "why.html"
    words = ["why", "lab/a", "HEAD~1:lab/b c", "--published", "0.55", "--seed", "2"]
    assert main([*words, "--page", str(path), "--root", str(lab.root)]) == 0
    text = path.read_text(encoding="utf-8")
    assert (
        "neuroledger why lab/a &#39;HEAD~1:lab/b c&#39; --published 0.55 --seed 2"
        in text
    )
    assert "ant on &lt;other&gt;" in text and "<other>" not in text
    assert text.count("<tr>") == 1 + len(SHARES)
    assert "+0.03 to +0.07" in text and "not known" in text and "+0.007 is left" in text
    picture = b64encode(str(waterfall(FOUND)).encode()).decode()
    assert f"data:image/svg+xml;base64,{picture}" in text
