"""Figures of the pages: every mark is at its value, has a tooltip, and is inside the axes."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import xarray as xr

from neuroledger.report import drawings
from neuroledger.report.drawings import (
    Axis,
    Point,
    axis_over,
    bars,
    details,
    layer_curve,
    scatter,
)

LEFT, RIGHT, TOP, BOTTOM = (
    58.0,
    448.0,
    14.0,
    208.0,
)  # of the plotted area, in units of the picture


def test_positions_are_percentages_clipped_to_the_axis() -> None:
    axis = Axis(-1.0, 3.0, ())
    assert [axis.place(value) for value in (-1.0, 0.0, 1.0, 3.0)] == [
        "0.00",
        "25.00",
        "50.00",
        "100.00",
    ]
    assert (axis.place(-2.0), axis.place(9.0)) == ("0.00", "100.00")
    assert (axis.width(0.0, 1.0), axis.width(-9.0, 0.0), axis.width(2.0, 99.0)) == (
        "25.00",
        "25.00",
        "25.00",
    )


@pytest.mark.parametrize(
    ("values", "options", "low", "high", "ticks"),
    [
        ([0.5, 1.0], {}, 0.0, 1.02, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        ([0.5], {"one": True}, 0.0, 1.02, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        ([2.0], {"one": True}, 0.0, 2.04, (0.0, 0.5, 1.0, 1.5, 2.0)),
        ([-1.0, 1.0], {}, -1.04, 1.04, (-1.0, -0.5, 0.0, 0.5, 1.0)),
        ([10.0, 20.0], {"zero": False}, 9.8, 20.2, (10.0, 12.0, 14.0, 16.0, 18.0, 20.0)),
        ([10.0, 20.0], {}, 0.0, 20.4, (0.0, 5.0, 10.0, 15.0, 20.0)),
        ([], {}, 0.0, 0.02, (0.0, 0.005, 0.01, 0.015, 0.02)),
    ],
)  # fmt: skip
def test_an_axis_contains_its_values_and_has_round_ticks(
    values: list[float],
    options: dict[str, bool],
    low: float,
    high: float,
    ticks: tuple[float, ...],
) -> None:
    axis = axis_over(values, **options)
    assert [axis.low, axis.high] == pytest.approx([low, high])
    assert axis.ticks == ticks


def drawn(markup: object) -> ElementTree.Element:
    return ElementTree.fromstring(str(markup))


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.attrib[name])


def place(x: float, y: float, across: Axis, up: Axis) -> tuple[float, float]:
    """Return the expected position of a point, computed from the edges of the plotted area."""
    share_x, share_y = (
        (x - across.low) / (across.high - across.low),
        (y - up.low) / (up.high - up.low),
    )
    return LEFT + (RIGHT - LEFT) * share_x, BOTTOM - (BOTTOM - TOP) * share_y


def test_points_intervals_and_rules_are_at_their_values() -> None:
    points = [
        Point(1.0, 0.5, "ant: 0.5", "ant", 0.4, 0.6), Point(4.0, 1.0, "<bee>", "<bee>", control=True),
        Point(2.0, 0.2, "cat", low=0.1),
    ]  # fmt: skip
    picture = scatter(points, "layers & more", "score", rules={"ceiling": 0.9})
    root, across, up = drawn(picture), axis_over([1.0, 4.0, 2.0]), axis_over([0.1, 1.0])
    assert root.attrib == {
        "viewBox": "0 0 460 250",
        "role": "img",
        "aria-label": "score against layers & more: 3 points",
    }
    circles = root.findall("circle")
    for circle, point in zip(circles, points, strict=True):
        expected = place(point.x, point.y, across, up)
        assert (number(circle, "cx"), number(circle, "cy")) == pytest.approx(
            expected, abs=0.1
        )
        assert circle.findtext("title") == point.tooltip and circle.attrib["r"] == "4"
    assert [circle.attrib.get("class") for circle in circles] == [None, "control", None]
    (span,) = (line for line in root.findall("line") if line.attrib["class"] == "span")
    assert number(span, "x1") == number(span, "x2") == number(circles[0], "cx")
    ends = [place(1.0, value, across, up)[1] for value in (0.4, 0.6)]
    assert [number(span, "y1"), number(span, "y2")] == pytest.approx(ends, abs=0.1)
    (rule,) = (
        line for line in root.findall("line") if line.attrib["class"] == "ceiling"
    )
    assert (
        number(rule, "y1")
        == number(rule, "y2")
        == pytest.approx(place(0, 0.9, across, up)[1], abs=0.1)
    )
    assert (number(rule, "x1"), number(rule, "x2")) == (LEFT, RIGHT)
    labels = [
        text for text in root.findall("text") if text.attrib.get("class") == "label"
    ]
    assert [(text.text, text.attrib["text-anchor"]) for text in labels] == [
        ("ant", "start"),
        ("<bee>", "end"),
    ]
    shifts = [
        number(text, "x") - number(circle, "cx")
        for text, circle in zip(labels, circles[:2], strict=True)
    ]
    assert shifts == pytest.approx([7, -7], abs=0.11)
    assert [
        number(text, "y") - number(c, "cy")
        for text, c in zip(labels, circles[:2], strict=True)
    ] == pytest.approx([-6, -6], abs=0.11)
    grid = [line for line in root.findall("line") if line.attrib["class"] == "grid"]
    heights = [place(0, tick, across, up)[1] for tick in up.ticks]
    assert [number(line, "y1") for line in grid] == [
        number(line, "y2") for line in grid
    ]
    assert [number(line, "y1") for line in grid] == pytest.approx(heights, abs=0.06)
    words = [text.text for text in root.findall("text")]
    assert words[: len(up.ticks)] == [f"{tick:g}" for tick in up.ticks]
    assert words[len(up.ticks) : len(up.ticks) + len(across.ticks)] == [
        f"{tick:g}" for tick in across.ticks
    ]
    below = root.findall("text")[len(up.ticks) : len(up.ticks) + len(across.ticks)]
    assert [number(text, "x") for text in below] == pytest.approx(
        [place(t, 0, across, up)[0] for t in across.ticks], abs=0.1
    )
    assert {number(text, "y") for text in below} == {BOTTOM + 16}
    assert words[-2:] == ["layers & more", "score"] and "ceiling" in words
    assert root.find("polyline") is None


def test_points_are_joined_in_their_order() -> None:
    points = [Point(x, y, "") for x, y in ((0.0, 0.0), (2.0, 1.0), (1.0, 0.5))]
    root = drawn(scatter(points, "x", "y", joined=True))
    (line,) = root.findall("polyline")
    marks = [
        f"{circle.attrib['cx']},{circle.attrib['cy']}"
        for circle in root.findall("circle")
    ]
    assert line.attrib["points"].split() == marks


def below(root: ElementTree.Element) -> list[str | None]:
    """Return the labels of the ticks of the horizontal axis."""
    return [
        text.text for text in root.findall("text") if text.attrib.get("y") == "224.0"
    ]


def test_a_logarithmic_axis_has_powers_of_ten_and_needs_positive_numbers() -> None:
    points = [Point(x, 0.5, "") for x in (1.0, 10.0, 1000.0)]
    root = drawn(scatter(points, "x", "y", logarithmic=True))
    xs = [number(circle, "cx") for circle in root.findall("circle")]
    assert (xs[1] - xs[0]) * 2 == pytest.approx(xs[2] - xs[1], abs=0.3)
    assert below(root) == ["1", "10", "100", "1e+03"]
    assert xs[0] == pytest.approx(
        LEFT + (RIGHT - LEFT) * 0.18 / 3.36, abs=0.1
    )  # 6 % of the span beside both ends
    zero = drawn(scatter([*points, Point(0.0, 0.5, "")], "x", "y", logarithmic=True))
    xs = [number(circle, "cx") for circle in zero.findall("circle")]
    assert xs[0] - xs[3] == pytest.approx((xs[1] - xs[3]) / 10, abs=0.2)
    alone = drawn(scatter([Point(3.0, 0.5, "")], "x", "y", logarithmic=True))
    assert number(alone.findall("circle")[0], "cx") == pytest.approx(
        (LEFT + RIGHT) / 2, abs=0.1
    )
    assert below(alone) == ["1"]
    near = drawn(
        scatter([Point(x, 0.5, "") for x in (2.0, 3.0)], "x", "y", logarithmic=True)
    )
    assert below(near) == ["2", "3"]  # no power of ten lies between
    wide = drawn(
        scatter([Point(x, 0.5, "") for x in (1.0, 1e12)], "x", "y", logarithmic=True)
    )
    assert (
        len([text for text in wide.findall("text") if text.attrib.get("y") == "224.0"])
        == 7
    )  # every second power


@pytest.mark.parametrize(("count", "radius"), [(59, "4"), (60, "2.2")])
def test_many_points_are_small(count: int, radius: str) -> None:
    root = drawn(scatter([Point(float(i), 0.5, "") for i in range(count)], "x", "y"))
    assert {circle.attrib["r"] for circle in root.findall("circle")} == {radius}


def test_bars_have_proportional_lengths_longest_first() -> None:
    root = drawn(bars({"ant": 1.0, "b<c": 4.0, "nil": 0.0, "tie": 1.0}, "joules"))
    assert root.attrib["viewBox"] == "0 0 460 114"
    assert root.attrib["aria-label"] == "joules: b<c 4, ant 1, tie 1, nil 0"
    boxes = root.findall("rect")
    assert [box.attrib["width"] for box in boxes] == ["202.4", "50.6", "50.6", "1.0"]
    assert [box.attrib["y"] for box in boxes] == ["8", "34", "60", "86"]
    assert [text.text for text in root.findall("text")] == [
        "b<c",
        "4",
        "ant",
        "1",
        "tie",
        "1",
        "nil",
        "0",
    ]
    assert [text.attrib["y"] for text in root.findall("text")][::2] == [
        "21",
        "47",
        "73",
        "99",
    ]
    ends = [number(text, "x") for text in root.findall("text")[1::2]]
    assert ends == pytest.approx(
        [460 * 0.39 + w for w in (202.4, 50.6, 50.6, 0.0)], abs=0.06
    )
    assert drawn(bars({}, "joules")).attrib["viewBox"] == "0 0 460 10"
    assert drawn(bars({"a": 0.0}, "j")).findall("rect")[0].attrib["width"] == "1.0"


def marks(markup: object) -> list[str]:
    return re.findall("<title>(.*?)</title>", str(markup))


def test_each_dimension_except_split_is_drawn_from_best_to_worst() -> None:
    values = np.array(
        [
            [[0.1, np.nan], [0.5, np.nan], [0.3, np.nan]],
            [[0.3, np.nan], [0.7, np.nan], [0.5, np.nan]],
        ]
    )
    samples = xr.DataArray(
        values,
        dims=("split", "neuroid", "stimulus"),
        coords={"neuroid": ["a", "b", "c"], "stimulus": ["s", "t"]},
    )
    found = details(samples, "explained_variance")
    assert [words for words, _ in found] == [
        "Each neuroid: 3 of 3 have a value.", "Each stimulus: 1 of 2 have a value.",
    ]  # fmt: skip
    assert marks(found[0][1]) == ["b: 0.600", "c: 0.400", "a: 0.200"]
    assert marks(found[1][1]) == ["s: 0.400"]
    text = str(found[0][1])
    assert (
        "neuroid, from best to worst" in text
        and "explained variance, before the ceiling" in text
    )
    assert "polyline" not in text


def test_items_are_numbered_by_rank_and_time_bins_by_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    xs: list[list[float]] = []
    monkeypatch.setattr(
        drawings,
        "scatter",
        lambda points, *_, **__: xs.append([point.x for point in points]),
    )
    details(xr.DataArray([0.1, 0.3, np.nan, 0.2], dims=("neuroid",)), "correlation")
    details(xr.DataArray([0.1, 0.3, np.nan, 0.2], dims=("time_bin",)), "correlation")
    details(xr.DataArray(np.arange(401.0), dims=("neuroid",)), "correlation")
    assert xs[:2] == [[1.0, 2.0, 3.0], [0.0, 1.0, 3.0]]
    assert xs[2] == [float(rank) for rank in range(1, 402, 2)]


def test_time_bins_stay_in_their_order_and_are_joined() -> None:
    samples = xr.DataArray([0.3, 0.1, np.nan, 0.2], dims=("time_bin",))
    ((words, picture),) = details(samples, "correlation")
    assert words == "Each time bin: 3 of 4 have a value."
    assert marks(picture) == ["0: 0.300", "1: 0.100", "3: 0.200"]
    assert "polyline" in str(picture) and ">time bin<" in str(picture)


def test_single_items_have_no_figure_and_many_points_are_thinned() -> None:
    assert (
        details(xr.DataArray([[0.3]], dims=("neuroid", "split")), "correlation") == []
    )
    assert (
        details(xr.DataArray([np.nan, np.nan], dims=("neuroid",)), "correlation") == []
    )
    assert details(xr.DataArray(np.ones(9), dims=("split",)), "correlation") == []
    for count, shown in ((400, 400), (401, 201), (1000, 334)):
        ((words, picture),) = details(
            xr.DataArray(np.arange(count) / count, dims=("neuroid",)), "correlation"
        )
        assert (
            words == f"Each neuroid: {count} of {count} have a value."
            and len(marks(picture)) == shown
        )
        assert marks(picture)[0] == f"{count - 1}: {(count - 1) / count:.3f}"


def test_labels_are_beside_the_lines_that_they_name() -> None:
    root = drawn(
        scatter(
            [Point(1.0, 0.5, ""), Point(2.0, 1.0, "")],
            "cost",
            "score",
            rules={"floor": 0.3},
        )
    )
    rows = [line for line in root.findall("line") if line.attrib["class"] == "grid"]
    names = [text for text in root.findall("text") if text.attrib.get("x") == "51.0"]
    assert len(names) == len(rows) and {
        text.attrib["text-anchor"] for text in names
    } == {"end"}
    shifts = [
        number(text, "y") - number(row, "y1")
        for text, row in zip(names, rows, strict=True)
    ]
    assert shifts == pytest.approx(
        [4] * len(rows), abs=0.11
    )  # the middle of a digit is on the line
    (rule,) = (line for line in root.findall("line") if line.attrib["class"] == "floor")
    (name,) = (text for text in root.findall("text") if text.text == "floor")
    assert number(name, "y") - number(rule, "y1") == pytest.approx(-4, abs=0.11)
    assert (number(name, "x"), name.attrib["text-anchor"]) == (RIGHT, "end")
    below, left = root.findall("text")[-2:]
    assert (below.text, number(below, "x"), number(below, "y")) == (
        "cost",
        (LEFT + RIGHT) / 2,
        244.0,
    )
    assert (left.text, left.attrib["transform"]) == (
        "score",
        "translate(13 111.0) rotate(-90)",
    )


def stage(
    layer: str, depth: float, value: float, untrained: float | None = None
) -> dict[str, object]:
    below = (
        None
        if untrained is None
        else {"value": untrained, "low": untrained - 0.1, "high": untrained + 0.1}
    )
    own = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return {"layer": layer, "depth": depth, **own, "untrained": below}


CURVE = {
    "model": "net <b>", "benchmark": "bench", "scale": "correlation", "chosen": "two",
    "layers": [stage("one", 0.25, 0.3, 0.2), stage("two", 0.5, 0.5, 0.2), stage("three", 1.0, 0.4, 0.1)],
    "ceiling": {"value": 1.0, "low": 0.9, "high": 1.1}, "nested": {"value": 0.45, "low": 0.35, "high": 0.55},
}  # fmt: skip


def test_a_layer_curve_marks_the_choice_the_untrained_network_and_the_ceiling() -> None:
    picture = drawn(layer_curve(CURVE))
    axis = axis_over([0.0, 1.1])
    height = 320 - 96 - TOP

    def y_of(value: float) -> float:
        return TOP + height * (1 - (value - axis.low) / (axis.high - axis.low))

    trained = [
        circle
        for circle in picture.iter("circle")
        if circle.attrib["class"] == "trained"
    ]
    assert [number(circle, "cx") for circle in trained] == pytest.approx(
        [155.5, 253.0, 448.0], abs=0.1
    )
    assert [number(circle, "cy") for circle in trained] == pytest.approx(
        [y_of(v) for v in (0.3, 0.5, 0.4)], abs=0.1
    )
    grey = [
        circle
        for circle in picture.iter("circle")
        if circle.attrib["class"] == "untrained"
    ]
    assert [number(circle, "cy") for circle in grey] == pytest.approx(
        [y_of(v) for v in (0.2, 0.2, 0.1)], abs=0.1
    )
    ring = next(
        circle
        for circle in picture.iter("circle")
        if circle.attrib["class"] == "chosen"
    )
    assert (number(ring, "cx"), number(ring, "cy")) == pytest.approx(
        (253.0, y_of(0.5)), abs=0.1
    )
    band = next(
        rect for rect in picture.iter("rect") if rect.attrib["class"] == "ceiling-band"
    )
    assert number(band, "y") == pytest.approx(y_of(1.1), abs=0.1)
    assert number(band, "height") == pytest.approx(y_of(0.9) - y_of(1.1), abs=0.1)
    diamond = next(
        mark for mark in picture.iter("polygon") if mark.attrib["class"] == "nested"
    )
    corners = [
        tuple(map(float, corner.split(",")))
        for corner in diamond.attrib["points"].split()
    ]
    assert sum(y for _, y in corners) / 4 == pytest.approx(y_of(0.45), abs=0.1)
    assert (
        diamond.findtext("title")
        == "two, chosen on other stimuli than these: 0.450 [0.350, 0.550]"
    )
    floor = next(
        line for line in picture.iter("line") if line.attrib["class"] == "floor"
    )
    assert number(floor, "y1") == pytest.approx(y_of(0.0), abs=0.1)
    assert "net <b>" in picture.attrib["aria-label"]


def test_a_layer_curve_without_twin_ceiling_intervals_or_nested_score_is_drawn_without_them() -> (
    None
):
    bare = {
        "layer": "a",
        "depth": 1.0,
        "value": 0.2,
        "low": None,
        "high": None,
        "untrained": None,
    }
    picture = drawn(
        layer_curve(
            {**CURVE, "layers": [bare], "ceiling": None, "nested": None, "chosen": "a"}
        )
    )
    kinds = [part.attrib.get("class", "") for part in picture.iter()]
    assert not {"untrained", "ceiling", "ceiling-band", "nested", "band trained"} & set(
        kinds
    )
    assert (
        kinds.count("trained") == 2 and kinds.count("chosen") == 1
    )  # a line and a point


def test_names_of_crowded_layers_are_left_out_except_the_chosen_one() -> None:
    crowd = [stage(f"layer{i}", i / 100, 0.2) for i in range(101)]
    picture = drawn(layer_curve({**CURVE, "layers": crowd, "chosen": "layer51"}))
    texts = [text.text for text in picture.iter("text")]
    assert "layer51" in texts and "layer50" not in texts
    assert (
        sum(text is not None and text.startswith("layer") for text in texts) <= 390 / 13
    )
