"""Small SVG figures of the pages, in the colours of the page; every mark has a text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from markupsafe import Markup, escape

__all__ = ["Axis", "Point", "axis_over", "bars", "details", "scatter"]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460.0, 250.0, 58.0, 42.0, 14.0
MAX_POINTS = 400
SMALL_POINTS_FROM = 60


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
    low, high = min([*values, *([0.0] if zero else [])]), max([*values, *([0.0] if zero else [])])
    if one:
        high = max(1.0, high)
    span = (high - low) or 1.0
    low, high = (low - 0.02 * span if low < 0 or not zero else low), high + 0.02 * span
    ideal = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(ideal))
    step = min((power * factor for factor in (1, 2, 2.5, 5, 10)), key=lambda step: abs(step - ideal))
    first = int(low / step) - 1
    ticks = (round(i * step, 10) for i in range(first, first + 12) if low <= i * step <= high)
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
    ys = [v for point in points for v in (point.y, point.low, point.high) if v is not None]
    x_axis = _logarithmic([point.x for point in points]) if logarithmic else axis_over(xs, zero=min(xs) >= 0)
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
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{tick:,.10g}</text>')
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
        path = " ".join(f"{at_x(x):.1f},{at_y(point.y):.1f}" for x, point in zip(xs, points, strict=True))
        parts.append(f'<polyline points="{path}"/>')
    for x, point in zip(xs, points, strict=True):
        px, py, kind = at_x(x), at_y(point.y), ' class="control"' if point.control else ""
        if point.low is not None and point.high is not None:
            parts.append(
                f'<line class="span" x1="{px:.1f}" x2="{px:.1f}" y1="{at_y(point.low):.1f}" y2="{at_y(point.high):.1f}"/>'
            )
        radius = 4 if len(points) < SMALL_POINTS_FROM else 2.2
        title = f"<title>{escape(point.tooltip)}</title>"
        parts.append(f'<circle{kind} cx="{px:.1f}" cy="{py:.1f}" r="{radius}">{title}</circle>')
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
    return _svg(parts, f"{y_label} against {x_label}: {len(points)} points", WIDTH, HEIGHT)


def bars(shares: Mapping[str, float], unit: str) -> Markup:
    """Draw one horizontal bar for each name, the longest first."""
    order = sorted(shares.items(), key=lambda item: -item[1])
    top = max(shares.values(), default=0.0) or 1.0
    parts = []
    for i, (name, value) in enumerate(order):
        y, width = 8 + 26 * i, WIDTH * 0.44 * value / top
        parts.append(f'<text x="{WIDTH * 0.36}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{WIDTH * 0.38}" y="{y}" width="{max(1.0, width):.1f}" height="17" rx="2"/>')
        parts.append(f'<text x="{WIDTH * 0.39 + width:.1f}" y="{y + 13}">{value:.3g}</text>')
    return _svg(
        parts,
        f"{unit}: {', '.join(f'{name} {value:.3g}' for name, value in order)}",
        WIDTH,
        10 + 26 * len(order),
    )


def details(samples: xr.DataArray, scale: str) -> list[tuple[str, Markup]]:
    """Draw a figure for each dimension of samples except ``split``: the mean of each item, in order of its value."""
    figures = []
    for dim in map(str, samples.dims):
        if dim == "split" or samples.sizes[dim] < 2:
            continue
        rest = [other for other in samples.dims if other != dim]
        values = samples.mean(rest, skipna=True) if rest else samples
        names = [str(name) for name in (samples[dim].values if dim in samples.coords else range(values.size))]
        means = np.asarray(values.values, dtype=np.float64)
        finite = [i for i in np.argsort(-means, kind="stable") if np.isfinite(means[i])]
        step = max(1, math.ceil(len(finite) / MAX_POINTS))
        ordered = dim != "time_bin"
        indices = finite[::step] if ordered else sorted(finite)
        points = [
            Point(float(rank * step + 1 if ordered else i), float(means[i]), f"{names[i]}: {means[i]:.3f}")
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
            figures.append((f"Each {label}: {len(finite)} of {means.size} have a value.", picture))
    return figures


def _svg(parts: Sequence[str], label: str, width: float, height: float) -> Markup:
    inside = "".join(parts)
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">{inside}</svg>'
    )
