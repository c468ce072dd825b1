"""Small SVG figures of the pages, in the colours of the page; every mark has a text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr
from markupsafe import Markup, escape

__all__ = ["Axis", "Line", "Point", "alone", "axis_over", "bars", "details", "forest", "scatter"]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 460.0, 250.0, 58.0, 42.0, 14.0
MAX_POINTS = 400
MAX_LABEL = 38  # characters of a name beside a line
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


class Line(NamedTuple):
    """A line of a forest plot: a name, its value and 95 % interval; ``grey`` for what is no competitor."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    grey: bool = False

    @property
    def text(self) -> str:
        """The value with its interval, or with the statement that there is none."""
        if self.low is None or self.high is None:
            return f"{self.value:.3f}, no interval"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class _Layout(NamedTuple):
    """Sizes of a forest plot in units of the picture: ``left`` to ``right`` is the axis, ``row`` the height of a line."""

    width: float
    left: float
    right: float
    row: float
    top: float = 22.0
    bottom: float = 40.0


# Beside each other on a wide page; on a phone, the name and the value are above their line.
BESIDE = _Layout(width=760, left=252, right=612, row=26)
ABOVE = _Layout(width=360, left=6, right=354, row=40)


def forest(
    lines: Sequence[Line],
    label: str,
    *,
    ceiling: tuple[float, float] | None = None,
    floor: float | None = None,
    names: tuple[str, str] = ("ceiling", "floor"),
    narrow: bool = False,
) -> Markup:
    """Draw one line per model: its value as a dot, its 95 % interval as a bar.

    Parameters
    ----------
    label
        What the axis shows.
    ceiling
        Ends of a grey band, equal if the ceiling has no interval.
    floor
        Place of a dotted line.
    names
        The words at the band and at the dotted line.
    narrow
        Names and values above their lines, for a screen of 360 pixels.
    """
    form = ABOVE if narrow else BESIDE
    values = [v for line in lines for v in (line.value, line.low, line.high) if v is not None]
    values += [*(ceiling or ()), *([] if floor is None else [floor])]
    axis = axis_over(values, one=ceiling is not None)
    bottom = form.top + form.row * len(lines)

    def at(value: float) -> float:
        return form.left + (form.right - form.left) * float(axis.place(value)) / 100

    parts = []
    if ceiling is not None:
        start, end = at(ceiling[0]), at(ceiling[1])
        start, width = (start - 1, 2.0) if end - start < 2 else (start, end - start)
        parts.append(
            f'<rect class="band" x="{start:.1f}" y="{form.top}" width="{width:.1f}" height="{bottom - form.top:g}"/>'
        )
    for tick in axis.ticks:
        x = at(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{form.top}" y2="{bottom:g}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15:g}" text-anchor="middle">{tick:,.10g}</text>')
    if floor is not None:
        x = at(floor)
        parts.append(f'<line class="floor" x1="{x:.1f}" x2="{x:.1f}" y1="{form.top}" y2="{bottom:g}"/>')
    parts += _limit_names(form, at, ceiling, floor, names)
    parts += [_line(form, i, line, at) for i, line in enumerate(lines)]
    middle = (form.left + form.right) / 2
    parts.append(f'<text x="{middle:g}" y="{bottom + 33:g}" text-anchor="middle">{escape(label)}</text>')
    told = "; ".join(f"{line.label} {line.text}" for line in lines)
    return _svg(parts, f"{label}: {told}", form.width, bottom + form.bottom, "forest")


def _limit_names(
    form: _Layout,
    at: Callable[[float], float],
    ceiling: tuple[float, float] | None,
    floor: float | None,
    names: tuple[str, str],
) -> Iterator[str]:
    """Yield the words above the band and the dotted line, which must not overlap or leave the picture."""
    top = None if ceiling is None else at(sum(ceiling) / 2)
    low = None if floor is None else at(floor)
    close = top is not None and low is not None and abs(top - low) < CLOSE
    for x, name, side in ((top, names[0], "start"), (low, names[1], "end")):
        if x is None:
            continue
        anchor = side if close else "middle"
        anchor = "start" if x - form.left < CLOSE / 2 and anchor != "start" else anchor
        anchor = "end" if form.width - x < CLOSE / 2 else anchor
        yield f'<text x="{x:.1f}" y="{form.top - 7:g}" text-anchor="{anchor}">{escape(name)}</text>'


CLOSE = 64.0  # the width of a word, in units of the picture


def _line(form: _Layout, index: int, line: Line, at: Callable[[float], float]) -> str:
    """Return one line: name, bar, dot and value."""
    y = form.top + form.row * (index + 0.5)
    words = y - 5
    mark, across, end = y + 8, 0.0, form.width
    if form is BESIDE:
        words, mark, across = y + 4, y, form.left - 12
    name = line.label if len(line.label) <= MAX_LABEL else f"{line.label[: MAX_LABEL - 1]}…"
    anchor, kind = ("end", "label") if form is BESIDE else ("start", "label")
    control = " control" if line.grey else ""
    parts = [
        f'<text class="{kind}{control}" x="{across:g}" y="{words:g}" text-anchor="{anchor}">{escape(name)}</text>'
    ]
    if line.low is not None and line.high is not None:
        parts.append(
            f'<line class="span{control}" x1="{at(line.low):.1f}" x2="{at(line.high):.1f}" y1="{mark:g}" y2="{mark:g}"/>'
        )
    parts.append(
        f'<circle class="dot{control}" cx="{at(line.value):.1f}" cy="{mark:g}" r="4.5">'
        f"<title>{escape(line.label)}: {line.text}</title></circle>"
    )
    parts.append(
        f'<text class="value{control}" x="{end:g}" y="{words:g}" text-anchor="end">{line.text}</text>'
    )
    return "".join(parts)


STYLE = (
    "svg{font:11.5px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    ".page{fill:#fdfdfc}text{fill:#565e65}text.label{fill:#1d2124}text.control{fill:#626a71}.band{fill:#0002}"
    ".grid{stroke:#e2e2dc}.floor{stroke:#626a71;stroke-dasharray:1.5 3}"
    ".span{stroke:#2aa5a0;stroke-width:5;stroke-opacity:.5}.dot{fill:#0b6e6e}.span.control{stroke:#8a9299}"
    ".dot.control{fill:#7a828a}"
    "@media (prefers-color-scheme:dark){.page{fill:#15181a}text{fill:#aab2b9}text.label{fill:#e6e8e9}"
    "text.control{fill:#98a1a9}.band{fill:#fff3}.grid{stroke:#2f353a}.dot{fill:#5cc8c2}}"
)


def alone(picture: Markup) -> str:
    """Return a drawing as an SVG file with its own colours, light and dark, which needs no page around it."""
    size = re.match(r'<svg[^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"', picture)
    assert size is not None, "a drawing has a viewBox"
    width, height = size.groups()
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    page = f'<style>{STYLE}</style><rect class="page" width="{width}" height="{height}" rx="8"/>'
    start, rest = str(picture).split(">", 1)
    return f"{head}{start.removeprefix('<svg')}>{page}{rest}\n"


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


def _svg(parts: Sequence[str], label: str, width: float, height: float, kind: str = "") -> Markup:
    inside = "".join(parts)
    name = f' class="{kind}"' if kind else ""
    return Markup(
        f'<svg{name} viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">{inside}</svg>'
    )
