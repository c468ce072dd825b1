"""Small vector figures of the pages: drawn as SVG in the colours of the page, every mark with its own words."""

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
MOST_POINTS, MANY = 400, 60


@dataclass(frozen=True)
class Axis:
    """A horizontal axis from ``low`` to ``high``, in percent of the width."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> str:
        """Where a value stands, 0 to 100; what lies outside stands at the edge."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(1.0, max(0.0, share)):.2f}"

    def width(self, low: float, high: float) -> str:
        """How wide an interval is, as far as it lies inside."""
        return f"{float(self.place(high)) - float(self.place(low)):.2f}"


class Point(NamedTuple):
    """A mark at (x, y) with the words that are shown for it; an interval in y where there is one."""

    x: float
    y: float
    words: str
    label: str = ""
    low: float | None = None
    high: float | None = None
    control: bool = False


def axis_over(values: Sequence[float], *, zero: bool = True, one: bool = False) -> Axis:
    """An axis that holds the values, and 0 and 1 where asked, with round ticks."""
    low, high = min([*values, *([0.0] if zero else [])]), max([*values, *([0.0] if zero else [])])
    if one:
        high = max(1.0, high)
    span = (high - low) or 1.0
    low, high = (low - 0.02 * span if low < 0 or not zero else low), high + 0.02 * span
    raw = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(raw))
    step = min((size * factor for factor in (1, 2, 2.5, 5, 10)), key=lambda each: abs(each - raw))
    first = int(low / step) - 1
    ticks = (round(i * step, 10) for i in range(first, first + 12) if low <= i * step <= high)
    return Axis(low, high, tuple(ticks))


def _logarithmic(values: Sequence[float]) -> Axis:
    """Of the exponents; a tick for each power of ten, or the ends where there is none between."""
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
    """Points with their intervals over two axes; ``rules`` are horizontal lines by name (``ceiling``, ``floor``)."""
    logarithmic = logarithmic and all(point.x > 0 for point in points)
    rules = rules or {}
    xs = [math.log10(point.x) if logarithmic else point.x for point in points]
    held = [v for point in points for v in (point.y, point.low, point.high) if v is not None]
    x_axis = _logarithmic([point.x for point in points]) if logarithmic else axis_over(xs, zero=min(xs) >= 0)
    y_axis = axis_over([*held, *rules.values()])
    right, wide = WIDTH - 12, WIDTH - 12 - LEFT
    tall = HEIGHT - TOP - BOTTOM

    def at_x(value: float) -> float:
        return LEFT + wide * float(x_axis.place(value)) / 100

    def at_y(value: float) -> float:
        return TOP + tall * (1 - float(y_axis.place(value)) / 100)

    parts = []
    for tick in y_axis.ticks:
        y = at_y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{tick:,.10g}</text>')
    for tick in x_axis.ticks:
        words = f"{10**tick:,.3g}" if logarithmic else f"{tick:,.10g}"
        parts.append(
            f'<text x="{at_x(tick):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{words}</text>'
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
        radius = 4 if len(points) < MANY else 2.2
        title = f"<title>{escape(point.words)}</title>"
        parts.append(f'<circle{kind} cx="{px:.1f}" cy="{py:.1f}" r="{radius}">{title}</circle>')
        if point.label:
            shift, anchor = (-7, "end") if px > LEFT + 0.7 * wide else (7, "start")
            parts.append(
                f'<text class="label" x="{px + shift:.1f}" y="{py - 6:.1f}" text-anchor="{anchor}">'
                f"{escape(point.label)}</text>"
            )
    middle = TOP + tall / 2
    parts.append(
        f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(
        f'<text transform="translate(13 {middle}) rotate(-90)" text-anchor="middle">{escape(y_label)}</text>'
    )
    words = f"{y_label} against {x_label}: {len(points)} points"
    return _svg(parts, words, WIDTH, HEIGHT)


def bars(shares: Mapping[str, float], unit: str) -> Markup:
    """One horizontal bar for each name, longest first."""
    order = sorted(shares.items(), key=lambda item: -item[1])
    top = max(shares.values(), default=0.0) or 1.0
    parts = []
    for i, (name, value) in enumerate(order):
        y = 8 + 26 * i
        parts.append(f'<text x="{WIDTH * 0.36}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect x="{WIDTH * 0.38}" y="{y}" width="{max(1.0, WIDTH * 0.44 * value / top):.1f}" height="17" rx="2"/>'
        )
        parts.append(
            f'<text x="{WIDTH * 0.39 + WIDTH * 0.44 * value / top:.1f}" y="{y + 13}">{value:.3g}</text>'
        )
    return _svg(
        parts,
        f"{unit}: {', '.join(f'{name} {value:.3g}' for name, value in order)}",
        WIDTH,
        10 + 26 * len(order),
    )


def details(samples: xr.DataArray, scale: str) -> list[tuple[str, Markup]]:
    """A figure for each dimension of samples but the split: every item's mean over the rest, in order of its value."""
    found = []
    for dim in map(str, samples.dims):
        if dim == "split" or samples.sizes[dim] < 2:
            continue
        rest = [other for other in samples.dims if other != dim]
        values = samples.mean(rest, skipna=True) if rest else samples
        names = [str(name) for name in (samples[dim].values if dim in samples.coords else range(values.size))]
        held = np.asarray(values.values, dtype=np.float64)
        kept = [i for i in np.argsort(-held, kind="stable") if np.isfinite(held[i])]
        step = max(1, math.ceil(len(kept) / MOST_POINTS))
        ordered = dim != "time_bin"
        places = kept[::step] if ordered else sorted(kept)
        points = [
            Point(float(rank * step + 1 if ordered else i), float(held[i]), f"{names[i]}: {held[i]:.3f}")
            for rank, i in enumerate(places)
        ]
        if points:
            words = dim.replace("_", " ")
            picture = scatter(
                points,
                f"{words}, from best to worst" if ordered else words,
                f"{scale.replace('_', ' ')}, before the ceiling",
                joined=not ordered,
            )
            found.append((f"Each {words}: {len(kept)} of {held.size} have a value.", picture))
    return found


def _svg(parts: Sequence[str], words: str, width: float, height: float) -> Markup:
    inside = "".join(parts)
    return Markup(
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(words)}">{inside}</svg>'
    )
