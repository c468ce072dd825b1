"""Small SVG figures of the pages, in the colours of the page; every mark has a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypedDict

import numpy as np
import xarray as xr
from markupsafe import Markup, escape

from neuroledger.data.arrays import Floats, floats

__all__ = [
    "COLOURS",
    "Axis",
    "Line",
    "Point",
    "Strip",
    "axis_over",
    "bars",
    "details",
    "element",
    "layer_curve",
    "line",
    "lines",
    "scatter",
    "strips",
    "tenth",
    "text",
    "title",
]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460.0, 250.0, 58.0, 42.0, 14.0
MAX_POINTS = 400
SMALL_POINTS_FROM = 60
CURVE_HEIGHT: Final = 320.0
NAMES_HEIGHT: Final = 96.0
"""Height under the axis of a layer curve, for the slanted names of the layers."""
NAME_APART: Final = 13.0
"""Smallest distance between two names of layers that are both drawn."""


def tenth(value: float) -> str:
    """Return a coordinate to a tenth of a unit."""
    return f"{value:.1f}"


def element(name: str, content: str | None = None, **attributes: object) -> str:
    """Return an element with its attributes in the given order; those with the value None are left out.

    ``class_`` stands for the attribute ``class``, and ``text_anchor`` for ``text-anchor``.

    Examples
    --------
    >>> element("circle", class_="dot", r=4)
    '<circle class="dot" r="4"/>'
    """
    head = name
    for key, value in attributes.items():
        if value is not None:
            written = key.removesuffix("_").replace("_", "-")
            head += f' {written}="{value}"'
    if content is None:
        return f"<{head}/>"
    return f"<{head}>{content}</{name}>"


def line(
    kind: str, x1: float | str, x2: float | str, y1: float | str, y2: float | str
) -> str:
    """Return a line from (x1, y1) to (x2, y2)."""
    return element("line", class_=kind, x1=x1, x2=x2, y1=y1, y2=y2)


def text(
    x: float | str,
    y: float | str,
    words: str,
    anchor: str | None = None,
    kind: str | None = None,
) -> str:
    """Return words at a place, which are escaped."""
    content = escape(words)
    return element("text", content, class_=kind, x=x, y=y, text_anchor=anchor)


def title(words: str) -> str:
    """Return the tooltip of the element that contains it."""
    return f"<title>{escape(words)}</title>"


@dataclass(frozen=True)
class Axis:
    """A horizontal axis from ``low`` to ``high``, in percent of the width."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> str:
        """Return the position of a value in percent; values outside the axis are clipped."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(1.0, max(0.0, share)):.2f}"

    def width(self, low: float, high: float) -> str:
        """Return the width of an interval in percent, clipped to the axis."""
        return f"{float(self.place(high)) - float(self.place(low)):.2f}"


class Point(NamedTuple):
    """A mark at (x, y) with its tooltip, and optionally a label and an interval in y."""

    x: float
    y: float
    tooltip: str
    label: str = ""
    low: float | None = None
    high: float | None = None
    control: bool = False


def axis_over(values: Sequence[float], *, zero: bool = True, one: bool = False) -> Axis:
    """Return an axis with round ticks that contains the values, 0 if ``zero``, and 1 if ``one``."""
    shown = [*values, 0.0] if zero else values
    low = min(shown)
    high = max(shown)
    if one:
        high = max(1.0, high)
    span = (high - low) or 1.0
    margin = 0.02 * span
    if low < 0 or not zero:
        low -= margin
    high += margin
    ideal = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(ideal))
    steps = (power * factor for factor in (1, 2, 2.5, 5, 10))
    step = min(steps, key=lambda step: abs(step - ideal))
    first = int(low / step) - 1
    multiples = range(first, first + 12)
    ticks = (round(i * step, 10) for i in multiples if low <= i * step <= high)
    return Axis(low, high, tuple(ticks))


def _logarithmic(values: Sequence[float]) -> Axis:
    """Return an axis of exponents, with a tick for each power of ten, or at the ends if there is none between."""
    ends = [math.log10(value) for value in values]
    low = min(ends)
    high = max(ends)
    pad = 0.06 * (high - low) or 0.5
    low = low - pad
    high = high + pad
    ticks = tuple(map(float, range(math.ceil(low), math.floor(high) + 1)))
    return Axis(low, high, ticks[:: max(1, len(ticks) // 5)] or (min(ends), max(ends)))


class _Frame(NamedTuple):
    """The axes of a scatter plot, in whose rectangle its points are drawn."""

    x: Axis
    y: Axis
    logarithmic: bool
    right: float = WIDTH - 12
    width: float = WIDTH - 12 - LEFT
    height: float = HEIGHT - TOP - BOTTOM

    def at_x(self, value: float) -> float:
        """Return the place of a value, which is an exponent on a logarithmic axis."""
        return LEFT + self.width * float(self.x.place(value)) / 100

    def at_y(self, value: float) -> float:
        return TOP + self.height * (1 - float(self.y.place(value)) / 100)


def scatter(
    points: Sequence[Point],
    x_label: str,
    y_label: str,
    *,
    rules: Mapping[str, float] | None = None,
    logarithmic: bool = False,
    joined: bool = False,
) -> Markup:
    """Draw points with their intervals; ``rules`` are horizontal lines by name (``ceiling``, ``floor``)."""
    logarithmic = logarithmic and all(point.x > 0 for point in points)
    rules = rules or {}
    xs = [point.x for point in points]
    if logarithmic:
        x_axis = _logarithmic(xs)
        xs = [math.log10(x) for x in xs]
    else:
        x_axis = axis_over(xs, zero=min(xs) >= 0)
    ys = [end for point in points for end in (point.y, point.low, point.high)]
    known = [end for end in ys if end is not None]
    frame = _Frame(x_axis, axis_over([*known, *rules.values()]), logarithmic)
    parts = [*_ticks(frame), *_rules(frame, rules)]
    if joined:
        places = [
            (frame.at_x(x), frame.at_y(point.y))
            for x, point in zip(xs, points, strict=True)
        ]
        parts.append(f'<polyline points="{_points(places)}"/>')
    radius = 4 if len(points) < SMALL_POINTS_FROM else 2.2
    for x, point in zip(xs, points, strict=True):
        parts += _dot(frame, frame.at_x(x), point, radius)
    middle = TOP + frame.height / 2
    parts.append(text(LEFT + frame.width / 2, HEIGHT - 6, x_label, "middle"))
    parts.append(_beside_axis(middle, y_label))
    words = f"{y_label} against {x_label}: {len(points)} points"
    return _svg(parts, words, WIDTH, HEIGHT)


def _ticks(frame: _Frame) -> Iterator[str]:
    """Yield the lines and numbers of both axes of a scatter plot."""
    for tick in frame.y.ticks:
        yield from _tick_beside("grid", frame.at_y(tick), tick)
    for tick in frame.x.ticks:
        if frame.logarithmic:
            number = f"{10**tick:,.3g}"
        else:
            number = f"{tick:,.10g}"
        x = tenth(frame.at_x(tick))
        yield text(x, HEIGHT - BOTTOM + 16, number, "middle")


def _tick_beside(kind: str, y: float, tick: float) -> tuple[str, str]:
    """Return the line of a tick of the vertical axis, and its number."""
    number = text(LEFT - 7, tenth(y + 4), f"{tick:,.10g}", "end")
    return _across(kind, y), number


def _across(kind: str, y: float) -> str:
    """Return a line across the plot."""
    height = tenth(y)
    return line(kind, LEFT, WIDTH - 12, height, height)


def _beside_axis(middle: float, label: str) -> str:
    """Return the label of the vertical axis."""
    turned = f"translate(13 {middle}) rotate(-90)"
    return element("text", escape(label), transform=turned, text_anchor="middle")


def _rules(frame: _Frame, rules: Mapping[str, float]) -> Iterator[str]:
    """Yield horizontal lines with their names."""
    for name, value in rules.items():
        y = frame.at_y(value)
        yield _across(escape(name), y)
        yield text(frame.right, tenth(y - 4), name, "end")


def _dot(frame: _Frame, x: float, point: Point, radius: float) -> Iterator[str]:
    """Yield the interval, the circle and the label of a point."""
    y = frame.at_y(point.y)
    if point.low is not None and point.high is not None:
        low = tenth(frame.at_y(point.low))
        high = tenth(frame.at_y(point.high))
        yield line("span", tenth(x), tenth(x), low, high)
    yield element(
        "circle",
        title(point.tooltip),
        class_="control" if point.control else None,
        cx=tenth(x),
        cy=tenth(y),
        r=radius,
    )
    if not point.label:
        return
    # Labels of points at the right are to their left, so that they stay inside.
    is_right = x > LEFT + 0.7 * frame.width
    shift, anchor = (-7, "end") if is_right else (7, "start")
    yield text(tenth(x + shift), tenth(y - 6), point.label, anchor, "label")


def bars(shares: Mapping[str, float], unit: str) -> Markup:
    """Draw one horizontal bar for each name, the longest first."""
    order = sorted(shares.items(), key=lambda item: -item[1])
    top = max(shares.values(), default=0.0) or 1.0
    parts = []
    for i, (name, value) in enumerate(order):
        y = 8 + 26 * i
        width = WIDTH * 0.44 * value / top
        drawn = tenth(max(1.0, width))
        end = tenth(WIDTH * 0.39 + width)
        parts += [
            text(WIDTH * 0.36, y + 13, name, "end"),
            element("rect", x=WIDTH * 0.38, y=y, width=drawn, height=17, rx=2),
            text(end, y + 13, f"{value:.3g}"),
        ]
    values = ", ".join(f"{name} {value:.3g}" for name, value in order)
    return _svg(parts, f"{unit}: {values}", WIDTH, 10 + 26 * len(order))


COLOURS: Final = 6
"""Colours of lines in the style sheet; further lines have the same ones, and are dashed."""


class Line(NamedTuple):
    """A named line, and the limits around it; these are empty if there are none."""

    name: str
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def lines(
    places: Sequence[float], shown: Sequence[Line], x_label: str, y_label: str
) -> Markup:
    """Draw lines over the same places, each with a band between its limits."""
    ends = [end for one in shown for part in one[1:] for end in part]
    x_axis = axis_over(places, zero=False)
    frame = _Frame(x_axis, axis_over(ends), logarithmic=False)
    parts = [*_ticks(frame), *_zeros(frame)]
    xs = [frame.at_x(place) for place in places]

    def at(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(x, frame.at_y(value)) for x, value in zip(xs, values, strict=True)]

    for number, one in enumerate(shown):
        if one.low:
            around = _points([*at(one.high), *reversed(at(one.low))])
            kind = f"band c{number % COLOURS}"
            parts.append(element("polygon", class_=kind, points=around))
    for number, one in enumerate(shown):
        dashed = " dashed" if number >= COLOURS else ""
        mark = element(
            "polyline",
            title(one.name),
            class_=f"c{number % COLOURS}{dashed}",
            points=_points(at(one.values)),
        )
        parts.append(mark)
    parts.append(text(LEFT + frame.width / 2, HEIGHT - 6, x_label, "middle"))
    parts.append(_beside_axis(TOP + frame.height / 2, y_label))
    names = ", ".join(one.name for one in shown)
    return _svg(parts, f"{y_label} against {x_label}: {names}", WIDTH, HEIGHT)


def _zeros(frame: _Frame) -> Iterator[str]:
    """Yield a line at zero of each axis that contains it."""
    yield _across("floor", frame.at_y(0.0))
    if frame.x.low < 0 < frame.x.high:
        x = tenth(frame.at_x(0.0))
        yield line("floor", x, x, TOP, HEIGHT - BOTTOM)


class Strip(NamedTuple):
    """A named row of intervals on a common axis, with a text for each of them."""

    name: str
    intervals: Sequence[tuple[float, float]]
    tooltip: str


def strips(rows: Sequence[Strip], unit: str) -> Markup:
    """Draw one row of intervals for each strip on one axis; an interval of no length is still visible."""
    intervals = [interval for row in rows for interval in row.intervals]
    times = [time for interval in intervals for time in interval]
    axis = axis_over(times, zero=min(times) >= 0)
    height = 24.0 * len(rows)

    def at(time: float) -> float:
        return 8 + (WIDTH - 16) * float(axis.place(time)) / 100

    parts = []
    for tick in axis.ticks:
        x = tenth(at(tick))
        parts += [
            line("grid", x, x, 4, f"{height + 4:.0f}"),
            text(x, f"{height + 18:.0f}", f"{tick:,.10g}", "middle"),
        ]
    for number, row in enumerate(rows):
        y = 4 + 24 * number
        parts.append(text(8, y + 11, row.name, kind="label"))
        for begin, end in row.intervals:
            width = max(1.0, at(end) - at(begin))
            mark = element(
                "rect",
                title(row.tooltip),
                x=tenth(at(begin)),
                y=y + 14,
                width=tenth(width),
                height=7,
                rx=1,
            )
            parts.append(mark)
    tooltips = "; ".join(f"{row.name}, {row.tooltip}" for row in rows)
    return _svg(parts, f"time in {unit}: {tooltips}", WIDTH, height + 24)


def details(samples: xr.DataArray, scale: str) -> list[tuple[str, Markup]]:
    """Draw a figure for each dimension of samples except ``split``: the mean of each item, in order of its value."""
    figures = []
    for dim in map(str, samples.dims):
        if dim == "split" or samples.sizes[dim] < 2:
            continue
        names, means = _means_along(samples, dim)
        finite = [i for i in np.argsort(-means, kind="stable") if np.isfinite(means[i])]
        label = dim.replace("_", " ")
        # Bins of time keep their order; other items have none.
        ordered = dim != "time_bin"
        points = _ranked(names, means, finite) if ordered else []
        if not ordered:
            for i in sorted(finite):
                points.append(_item(float(i), names[i], means[i]))
        if not points:
            continue
        picture = scatter(
            points,
            f"{label}, from best to worst" if ordered else label,
            f"{scale.replace('_', ' ')}, before the ceiling",
            joined=not ordered,
        )
        caption = f"Each {label}: {len(finite)} of {means.size} have a value."
        figures.append((caption, picture))
    return figures


def _means_along(samples: xr.DataArray, dim: str) -> tuple[list[str], Floats]:
    """Return the names of the items of a dimension, and their means over all others."""
    rest = [other for other in samples.dims if other != dim]
    values = samples.mean(rest, skipna=True) if rest else samples
    labels = samples[dim].values if dim in samples.coords else range(values.size)
    return list(map(str, labels)), floats(values.values)


def _ranked(names: Sequence[str], means: Floats, finite: Sequence[int]) -> list[Point]:
    """Return points of items by rank, at most ``MAX_POINTS``."""
    step = max(1, math.ceil(len(finite) / MAX_POINTS))
    points = []
    for rank, i in enumerate(finite[::step]):
        points.append(_item(float(rank * step + 1), names[i], means[i]))
    return points


def _item(x: float, name: str, mean: float) -> Point:
    return Point(x, float(mean), f"{name}: {mean:.3f}")


class _Mark(TypedDict):
    """A value, and the ends of its interval where they are known."""

    value: float
    low: float | None
    high: float | None


class _Stage(_Mark):
    """The score of a layer, and that of the same layer of the untrained network."""

    layer: str
    depth: float
    untrained: _Mark | None


def layer_curve(curve: Mapping[str, Any]) -> Markup:
    """Draw the score of each layer over its depth, with the untrained network and the ceiling.

    The trained network is a line with points and a band of 95 % intervals, the untrained one the same in grey. The grey
    band at the top is the ceiling with its interval, the dotted line is zero. The chosen layer is a ring; the score of
    the choice on other stimuli is a diamond with its interval.

    Parameters
    ----------
    curve
        Plain data, as ``neuroledger score MODEL BENCHMARK --layers --json`` prints them: ``model``, ``benchmark``,
        ``scale``; ``layers``, a list of ``layer``, ``depth`` from 0 to 1, ``value``, ``low``, ``high`` and ``untrained``
        (``value``, ``low`` and ``high`` of the same layer of the untrained network, or None); ``ceiling`` and ``nested``
        (``value``, ``low``, ``high``, or None); and ``chosen``, the name of a layer. A missing end of an interval is None.

    Examples
    --------
    >>> one = {"layer": "conv1", "depth": 0.5, "value": 0.2, "low": None, "high": None, "untrained": None}
    >>> text = layer_curve({"model": "net", "benchmark": "V4", "scale": "correlation", "layers": [one],
    ...                     "ceiling": None, "nested": None, "chosen": "conv1"})
    >>> "conv1: 0.200" in text
    True
    """
    stages: list[_Stage] = curve["layers"]
    untrained = _untrained(stages)
    ceiling: _Mark | None = curve["ceiling"]
    nested: _Mark | None = curve["nested"]
    numbers: list[float] = []
    for mark in (*stages, *untrained, ceiling, nested):
        if mark is not None:
            numbers += _numbers(mark)
    axis = axis_over(numbers)
    bottom = CURVE_HEIGHT - NAMES_HEIGHT
    width = WIDTH - 12 - LEFT
    height = bottom - TOP

    def place(depth: float, value: float) -> tuple[float, float]:
        share = float(axis.place(value)) / 100
        return LEFT + width * depth, TOP + height * (1 - share)

    parts: list[str] = []
    for tick in axis.ticks:
        y = place(0, tick)[1]
        kind = "floor" if tick == 0 else "grid"
        parts += _tick_beside(kind, y, tick)
    if ceiling is not None:
        parts += _ceiling_band(ceiling, place)
    parts += _curve_of(untrained, "untrained", place)
    parts += _curve_of(stages, "trained", place)
    for stage in stages:
        if stage["layer"] == curve["chosen"]:
            parts += _choice(stage, nested, place)
    parts += _names(stages, curve["chosen"], place, bottom)
    scale = str(curve["scale"]).replace("_", " ")
    unit = f"{scale} after the ceiling" if ceiling is not None else scale
    parts.append(_beside_axis(TOP + height / 2, unit))
    label = f"{curve['model']} on {curve['benchmark']}: {unit} of {len(stages)} layers by depth"
    return _svg(parts, label, WIDTH, CURVE_HEIGHT)


_Place = Callable[[float, float], tuple[float, float]]


def _untrained(stages: Sequence[_Stage]) -> list[_Stage]:
    """Return the layers of the untrained network that have a score."""
    found: list[_Stage] = []
    for stage in stages:
        mark = stage["untrained"]
        if mark is not None:
            found.append(
                {
                    "layer": stage["layer"],
                    "depth": stage["depth"],
                    "value": mark["value"],
                    "low": mark["low"],
                    "high": mark["high"],
                    "untrained": None,
                }
            )
    return found


def _numbers(mark: _Mark) -> list[float]:
    """Return the value and the known ends of the interval of a mark."""
    numbers = (mark["value"], mark["low"], mark["high"])
    return [float(number) for number in numbers if number is not None]


def _in_words(mark: _Mark) -> str:
    """Format a value with its interval."""
    text = f"{mark['value']:.3f}"
    if mark["low"] is not None and mark["high"] is not None:
        text += f" [{mark['low']:.3f}, {mark['high']:.3f}]"
    return text


def _ceiling_band(ceiling: _Mark, place: _Place) -> list[str]:
    """Draw the ceiling over the whole width: its interval as a band, its value as a line."""
    left, y = place(0, ceiling["value"])
    right = place(1, 0)[0]
    parts = []
    if ceiling["low"] is not None and ceiling["high"] is not None:
        top = place(0, ceiling["high"])[1]
        low = place(0, ceiling["low"])[1]
        band = element(
            "rect",
            title(f"ceiling: {_in_words(ceiling)}"),
            class_="ceiling-band",
            x=left,
            y=tenth(top),
            width=tenth(right - left),
            height=tenth(low - top),
        )
        parts.append(band)
    parts.append(line("ceiling", left, right, tenth(y), tenth(y)))
    parts.append(text(right, tenth(y + 13), "ceiling", "end"))
    return parts


def _curve_of(stages: Sequence[_Stage], name: str, place: _Place) -> list[str]:
    """Draw one network: the band of intervals, the line, a point with a tooltip for each layer, and the name."""
    if not stages:
        return []
    upper = []
    lower = []
    for stage in stages:
        low = stage["low"]
        high = stage["high"]
        if low is not None and high is not None:
            upper.append(place(stage["depth"], high))
            lower.append(place(stage["depth"], low))
    parts = []
    if upper:
        around = _points([*upper, *reversed(lower)])
        parts.append(element("polygon", class_=f"band {name}", points=around))
    at = [place(stage["depth"], stage["value"]) for stage in stages]
    parts.append(element("polyline", class_=name, points=_points(at)))
    for stage, (x, y) in zip(stages, at, strict=True):
        tooltip = f"{name}, {stage['layer']}: {_in_words(stage)}"
        parts.append(_circle(name, x, y, 3.2, title(tooltip)))
    x, y = at[-1]
    parts.append(text(tenth(x), tenth(y - 9), name, "end"))
    return parts


def _circle(
    kind: str, x: float, y: float, radius: float, content: str | None = None
) -> str:
    return element("circle", content, class_=kind, cx=tenth(x), cy=tenth(y), r=radius)


def _choice(stage: _Stage, nested: _Mark | None, place: _Place) -> list[str]:
    """Ring the chosen layer, and draw a diamond where its score on the stimuli that did not choose it is."""
    x, y = place(stage["depth"], stage["value"])
    parts = [_circle("chosen", x, y, 6.5)]
    if nested is None:
        return parts
    beside, middle = place(stage["depth"], nested["value"])
    beside += 11
    low = nested["low"]
    high = nested["high"]
    if low is not None and high is not None:
        bottom = tenth(place(0, low)[1])
        top = tenth(place(0, high)[1])
        parts.append(line("nested", tenth(beside), tenth(beside), bottom, top))
    diamond = [
        (beside, middle - 5),
        (beside + 5, middle),
        (beside, middle + 5),
        (beside - 5, middle),
    ]
    words = f"{stage['layer']}, chosen on other stimuli than these: {_in_words(nested)}"
    parts.append(
        element("polygon", title(words), class_="nested", points=_points(diamond))
    )
    return parts


def _names(
    stages: Sequence[_Stage],
    chosen: str,
    place: _Place,
    bottom: float,
) -> list[str]:
    """Write the names of the layers under the axis, the chosen one always, others where there is room."""
    at = {stage["layer"]: place(stage["depth"], 0)[0] for stage in stages}
    drawn: dict[str, float] = {}
    if chosen in at:
        drawn[chosen] = at[chosen]
    for layer, x in at.items():
        if all(abs(x - other) >= NAME_APART for other in drawn.values()):
            drawn[layer] = x
    parts = []
    for layer, x in drawn.items():
        place_of_name = f"translate({x + 4:.1f} {bottom + 14:.1f}) rotate(-40)"
        name = element(
            "text",
            escape(layer),
            class_="label" if layer == chosen else None,
            transform=place_of_name,
            text_anchor="end",
        )
        parts.append(name)
    return parts


def _points(at: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)


def _svg(parts: Sequence[str], label: str, width: float, height: float) -> Markup:
    inside = "".join(parts)
    size = f"0 0 {width:g} {height:g}"
    words = escape(label)
    return Markup(element("svg", inside, viewBox=size, role="img", aria_label=words))
