"""Small SVG figures of the pages, in the colours of the page; every mark has a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypedDict

import numpy as np
import xarray as xr
from markupsafe import Markup, escape

__all__ = [
    "Axis",
    "Point",
    "Strip",
    "axis_over",
    "bars",
    "details",
    "layer_curve",
    "scatter",
    "strips",
]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460.0, 250.0, 58.0, 42.0, 14.0
MAX_POINTS = 400
SMALL_POINTS_FROM = 60
CURVE_HEIGHT: Final = 320.0
NAMES_HEIGHT: Final = 96.0
"""Height under the axis of a layer curve, for the slanted names of the layers."""
NAME_APART: Final = 13.0
"""Smallest distance between two names of layers that are both drawn."""


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
    low, high = (
        min([*values, *([0.0] if zero else [])]),
        max([*values, *([0.0] if zero else [])]),
    )
    if one:
        high = max(1.0, high)
    span = (high - low) or 1.0
    low, high = (low - 0.02 * span if low < 0 or not zero else low), high + 0.02 * span
    ideal = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(ideal))
    step = min(
        (power * factor for factor in (1, 2, 2.5, 5, 10)),
        key=lambda step: abs(step - ideal),
    )
    first = int(low / step) - 1
    ticks = (
        round(i * step, 10) for i in range(first, first + 12) if low <= i * step <= high
    )
    return Axis(low, high, tuple(ticks))


def _logarithmic(values: Sequence[float]) -> Axis:
    """Return an axis of exponents, with a tick for each power of ten, or at the ends if there is none between."""
    ends = [math.log10(value) for value in values]
    low, high = min(ends), max(ends)
    pad = 0.06 * (high - low) or 0.5
    low, high = low - pad, high + pad
    ticks = tuple(float(i) for i in range(math.ceil(low), math.floor(high) + 1))
    return Axis(low, high, ticks[:: max(1, len(ticks) // 5)] or (min(ends), max(ends)))


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
    xs = [math.log10(point.x) if logarithmic else point.x for point in points]
    ys = [
        v for point in points for v in (point.y, point.low, point.high) if v is not None
    ]
    x_axis = (
        _logarithmic([point.x for point in points])
        if logarithmic
        else axis_over(xs, zero=min(xs) >= 0)
    )
    y_axis = axis_over([*ys, *rules.values()])
    right, width = WIDTH - 12, WIDTH - 12 - LEFT
    height = HEIGHT - TOP - BOTTOM

    def at_x(value: float) -> float:
        return LEFT + width * float(x_axis.place(value)) / 100

    def at_y(value: float) -> float:
        return TOP + height * (1 - float(y_axis.place(value)) / 100)

    parts = []
    for tick in y_axis.ticks:
        y = at_y(tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{tick:,.10g}</text>'
        )
    for tick in x_axis.ticks:
        text = f"{10**tick:,.3g}" if logarithmic else f"{tick:,.10g}"
        parts.append(
            f'<text x="{at_x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>'
        )
    for name, value in rules.items():
        y = at_y(value)
        parts.append(
            f'<line class="{escape(name)}" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{right}" y="{y - 4:.1f}" text-anchor="end">{escape(name)}</text>'
        )
    if joined:
        path = " ".join(
            f"{at_x(x):.1f},{at_y(point.y):.1f}"
            for x, point in zip(xs, points, strict=True)
        )
        parts.append(f'<polyline points="{path}"/>')
    for x, point in zip(xs, points, strict=True):
        px, py, kind = (
            at_x(x),
            at_y(point.y),
            ' class="control"' if point.control else "",
        )
        if point.low is not None and point.high is not None:
            parts.append(
                f'<line class="span" x1="{px:.1f}" x2="{px:.1f}" y1="{at_y(point.low):.1f}" y2="{at_y(point.high):.1f}"/>'
            )
        radius = 4 if len(points) < SMALL_POINTS_FROM else 2.2
        title = f"<title>{escape(point.tooltip)}</title>"
        parts.append(
            f'<circle{kind} cx="{px:.1f}" cy="{py:.1f}" r="{radius}">{title}</circle>'
        )
        if point.label:
            shift, anchor = (-7, "end") if px > LEFT + 0.7 * width else (7, "start")
            parts.append(
                f'<text class="label" x="{px + shift:.1f}" y="{py - 6:.1f}" text-anchor="{anchor}">'
                f"{escape(point.label)}</text>"
            )
    middle = TOP + height / 2
    parts.append(
        f'<text x="{LEFT + width / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(
        f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    return _svg(
        parts, f"{y_label} against {x_label}: {len(points)} points", WIDTH, HEIGHT
    )


def bars(shares: Mapping[str, float], unit: str) -> Markup:
    """Draw one horizontal bar for each name, the longest first."""
    order = sorted(shares.items(), key=lambda item: -item[1])
    top = max(shares.values(), default=0.0) or 1.0
    parts = []
    for i, (name, value) in enumerate(order):
        y, width = 8 + 26 * i, WIDTH * 0.44 * value / top
        parts.append(
            f'<text x="{WIDTH * 0.36}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
        )
        parts.append(
            f'<rect x="{WIDTH * 0.38}" y="{y}" width="{max(1.0, width):.1f}" height="17" rx="2"/>'
        )
        parts.append(
            f'<text x="{WIDTH * 0.39 + width:.1f}" y="{y + 13}">{value:.3g}</text>'
        )
    return _svg(
        parts,
        f"{unit}: {', '.join(f'{name} {value:.3g}' for name, value in order)}",
        WIDTH,
        10 + 26 * len(order),
    )


class Strip(NamedTuple):
    """A named row of intervals on a common axis, with a text for each of them."""

    name: str
    intervals: Sequence[tuple[float, float]]
    tooltip: str


def strips(rows: Sequence[Strip], unit: str) -> Markup:
    """Draw one row of intervals for each strip on one axis; an interval of no length is still visible."""
    times = [time for row in rows for interval in row.intervals for time in interval]
    axis = axis_over(times, zero=min(times) >= 0)
    height = 24.0 * len(rows)

    def at(time: float) -> float:
        return 8 + (WIDTH - 16) * float(axis.place(time)) / 100

    parts = []
    for tick in axis.ticks:
        parts.append(
            f'<line class="grid" x1="{at(tick):.1f}" x2="{at(tick):.1f}" y1="4" y2="{height + 4:.0f}"/>'
        )
        parts.append(
            f'<text x="{at(tick):.1f}" y="{height + 18:.0f}" text-anchor="middle">{tick:,.10g}</text>'
        )
    for number, row in enumerate(rows):
        y = 4 + 24 * number
        parts.append(
            f'<text class="label" x="8" y="{y + 11}">{escape(row.name)}</text>'
        )
        for begin, end in row.intervals:
            width = max(1.0, at(end) - at(begin))
            parts.append(
                f'<rect x="{at(begin):.1f}" y="{y + 14}" width="{width:.1f}" height="7" rx="1">'
                f"<title>{escape(row.tooltip)}</title></rect>"
            )
    words = f"time in {unit}: {'; '.join(f'{row.name}, {row.tooltip}' for row in rows)}"
    return _svg(parts, words, WIDTH, height + 24)


def details(samples: xr.DataArray, scale: str) -> list[tuple[str, Markup]]:
    """Draw a figure for each dimension of samples except ``split``: the mean of each item, in order of its value."""
    figures = []
    for dim in map(str, samples.dims):
        if dim == "split" or samples.sizes[dim] < 2:
            continue
        rest = [other for other in samples.dims if other != dim]
        values = samples.mean(rest, skipna=True) if rest else samples
        names = [
            str(name)
            for name in (
                samples[dim].values if dim in samples.coords else range(values.size)
            )
        ]
        means = np.asarray(values.values, dtype=np.float64)
        finite = [i for i in np.argsort(-means, kind="stable") if np.isfinite(means[i])]
        step = max(1, math.ceil(len(finite) / MAX_POINTS))
        ordered = dim != "time_bin"
        indices = finite[::step] if ordered else sorted(finite)
        points = [
            Point(
                float(rank * step + 1 if ordered else i),
                float(means[i]),
                f"{names[i]}: {means[i]:.3f}",
            )
            for rank, i in enumerate(indices)
        ]
        if points:
            label = dim.replace("_", " ")
            picture = scatter(
                points,
                f"{label}, from best to worst" if ordered else label,
                f"{scale.replace('_', ' ')}, before the ceiling",
                joined=not ordered,
            )
            figures.append(
                (f"Each {label}: {len(finite)} of {means.size} have a value.", picture)
            )
    return figures


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
    marks: list[_Mark] = [
        *stages,
        *untrained,
        *(mark for mark in (ceiling, nested) if mark is not None),
    ]
    axis = axis_over([number for mark in marks for number in _numbers(mark)])
    bottom = CURVE_HEIGHT - NAMES_HEIGHT
    width, height = WIDTH - 12 - LEFT, bottom - TOP

    def place(depth: float, value: float) -> tuple[float, float]:
        share = float(axis.place(value)) / 100
        return LEFT + width * depth, TOP + height * (1 - share)

    parts = []
    for tick in axis.ticks:
        y = place(0, tick)[1]
        kind = "floor" if tick == 0 else "grid"
        parts.append(
            f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{tick:,.10g}</text>'
        )
    if ceiling is not None:
        parts += _ceiling_band(ceiling, place)
    parts += _curve_of(untrained, "untrained", place)
    parts += _curve_of(stages, "trained", place)
    for stage in (stage for stage in stages if stage["layer"] == curve["chosen"]):
        parts += _choice(stage, nested, place)
    parts += _names(stages, curve["chosen"], place, bottom)
    scale = str(curve["scale"]).replace("_", " ")
    unit = f"{scale} after the ceiling" if ceiling is not None else scale
    middle = TOP + height / 2
    parts.append(
        f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">{escape(unit)}</text>'
    )
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
    (left, y), right = place(0, ceiling["value"]), place(1, 0)[0]
    parts = []
    if ceiling["low"] is not None and ceiling["high"] is not None:
        top, low = place(0, ceiling["high"])[1], place(0, ceiling["low"])[1]
        parts.append(
            f'<rect class="ceiling-band" x="{left}" y="{top:.1f}" width="{right - left:.1f}" height="{low - top:.1f}">'
            f"<title>ceiling: {escape(_in_words(ceiling))}</title></rect>"
        )
    parts.append(
        f'<line class="ceiling" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    )
    parts.append(f'<text x="{right}" y="{y + 13:.1f}" text-anchor="end">ceiling</text>')
    return parts


def _curve_of(stages: Sequence[_Stage], name: str, place: _Place) -> list[str]:
    """Draw one network: the band of intervals, the line, a point with a tooltip for each layer, and the name."""
    if not stages:
        return []
    upper, lower = [], []
    for stage in stages:
        low, high = stage["low"], stage["high"]
        if low is not None and high is not None:
            upper.append(place(stage["depth"], high))
            lower.append(place(stage["depth"], low))
    band = (
        f'<polygon class="band {name}" points="{_points([*upper, *reversed(lower)])}"/>'
    )
    at = [place(stage["depth"], stage["value"]) for stage in stages]
    parts = [
        band if upper else "",
        f'<polyline class="{name}" points="{_points(at)}"/>',
    ]
    for stage, (x, y) in zip(stages, at, strict=True):
        tooltip = f"{name}, {stage['layer']}: {_in_words(stage)}"
        parts.append(
            f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="3.2"><title>{escape(tooltip)}</title></circle>'
        )
    x, y = at[-1]
    parts.append(f'<text x="{x:.1f}" y="{y - 9:.1f}" text-anchor="end">{name}</text>')
    return parts


def _choice(stage: _Stage, nested: _Mark | None, place: _Place) -> list[str]:
    """Ring the chosen layer, and draw a diamond where its score on the stimuli that did not choose it is."""
    x, y = place(stage["depth"], stage["value"])
    parts = [f'<circle class="chosen" cx="{x:.1f}" cy="{y:.1f}" r="6.5"/>']
    if nested is None:
        return parts
    beside, middle = place(stage["depth"], nested["value"])
    beside += 11
    low, high = nested["low"], nested["high"]
    if low is not None and high is not None:
        ends = (place(0, low)[1], place(0, high)[1])
        parts.append(
            f'<line class="nested" x1="{beside:.1f}" x2="{beside:.1f}" y1="{ends[0]:.1f}" y2="{ends[1]:.1f}"/>'
        )
    diamond = [
        (beside, middle - 5),
        (beside + 5, middle),
        (beside, middle + 5),
        (beside - 5, middle),
    ]
    tooltip = (
        f"{stage['layer']}, chosen on other stimuli than these: {_in_words(nested)}"
    )
    parts.append(
        f'<polygon class="nested" points="{_points(diamond)}"><title>{escape(tooltip)}</title></polygon>'
    )
    return parts


def _names(
    stages: Sequence[_Stage],
    chosen: str | None,
    place: _Place,
    bottom: float,
) -> list[str]:
    """Write the names of the layers under the axis, the chosen one always, others where there is room."""
    at = {stage["layer"]: place(stage["depth"], 0)[0] for stage in stages}
    drawn: dict[str, float] = {layer: x for layer, x in at.items() if layer == chosen}
    for layer, x in at.items():
        if all(abs(x - other) >= NAME_APART for other in drawn.values()):
            drawn[layer] = x
    parts = []
    for layer, x in drawn.items():
        kind = ' class="label"' if layer == chosen else ""
        parts.append(
            f'<text{kind} transform="translate({x + 4:.1f} {bottom + 14:.1f}) rotate(-40)" text-anchor="end">'
            f"{escape(layer)}</text>"
        )
    return parts


def _points(at: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in at)


def _svg(parts: Sequence[str], label: str, width: float, height: float) -> Markup:
    inside = "".join(parts)
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">{inside}</svg>'
    )
