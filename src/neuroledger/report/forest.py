"""Forest plots: one line per model with its 95 % interval, beside the ceiling and the floor; on a page or as a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from neuroledger.report.drawings import (
    axis_over,
    element,
    line,
    tenth,
    text,
    title,
)

__all__ = ["Line", "alone", "forest"]

MAX_LABEL: Final = 38  # characters of a name
CHARACTER: Final = 6.6  # width of a character, in units of the picture
CLOSE: Final = 64.0  # the width of a word, in units of the picture


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
    top: float = 24.0
    bottom: float = 40.0


# Beside each other on a wide page; on a phone, the name and the value are above their line.
# The names take the room of the longest, up to `left`.
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
    form = ABOVE if narrow else _beside(lines)
    values: list[float] = []
    for drawn in lines:
        ends = (drawn.value, drawn.low, drawn.high)
        values += [end for end in ends if end is not None]
    values += ceiling or ()
    if floor is not None:
        values.append(floor)
    axis = axis_over(values, one=ceiling is not None)
    bottom = form.top + form.row * len(lines)

    def at(value: float) -> float:
        return form.left + (form.right - form.left) * float(axis.place(value)) / 100

    def upright(kind: str, x: float) -> str:
        return line(kind, tenth(x), tenth(x), form.top, f"{bottom:g}")

    parts = []
    if ceiling is not None:
        parts.append(_band(at(ceiling[0]), at(ceiling[1]), form.top, bottom))
    for tick in axis.ticks:
        x = at(tick)
        parts.append(upright("grid", x))
        parts.append(text(tenth(x), f"{bottom + 15:g}", f"{tick:,.10g}", "middle"))
    if floor is not None:
        parts.append(upright("floor", at(floor)))
    parts += _limit_names(form, at, ceiling, floor, names)
    parts += [_line(form, i, drawn, at) for i, drawn in enumerate(lines)]
    middle = (form.left + form.right) / 2
    parts.append(text(f"{middle:g}", f"{bottom + 33:g}", label, "middle"))
    told = "; ".join(f"{drawn.label} {drawn.text}" for drawn in lines)
    drawing = element(
        "svg",
        "".join(parts),
        class_="lines",
        viewBox=f"0 0 {form.width:g} {bottom + form.bottom:g}",
        role="img",
        aria_label=f"{escape(label)}: {escape(told)}",
    )
    return Markup(drawing)


def _band(start: float, end: float, top: float, bottom: float) -> str:
    """Return the band of a ceiling, which is visible also where it has no interval."""
    width = end - start
    if width < 2:
        start, width = start - 1, 2.0
    return element(
        "rect",
        class_="band",
        x=tenth(start),
        y=top,
        width=tenth(width),
        height=f"{bottom - top:g}",
    )


def _beside(lines: Sequence[Line]) -> _Layout:
    longest = max((min(len(line.label), MAX_LABEL) for line in lines), default=0)
    return BESIDE._replace(left=min(BESIDE.left, 26 + CHARACTER * longest))


def _limit_names(
    form: _Layout,
    at: Callable[[float], float],
    ceiling: tuple[float, float] | None,
    floor: float | None,
    names: tuple[str, str],
) -> Iterator[str]:
    """Yield the words above the band and the dotted line, which must not overlap or leave the picture."""
    if ceiling is None:
        top = None
    else:
        top = at(sum(ceiling) / 2)
    if floor is None:
        low = None
    else:
        low = at(floor)
    close = top is not None and low is not None and abs(top - low) < CLOSE
    for x, name, side in ((top, names[0], "start"), (low, names[1], "end")):
        if x is None:
            continue
        anchor = side if close else "middle"
        if x - form.left < CLOSE / 2 and anchor != "start":
            anchor = "start"
        if form.width - x < CLOSE / 2:
            anchor = "end"
        yield text(tenth(x), f"{form.top - 7:g}", name, anchor)


def _line(form: _Layout, index: int, drawn: Line, at: Callable[[float], float]) -> str:
    """Return one line: name, bar, dot and value."""
    y = form.top + form.row * (index + 0.5)
    words = y - 5
    mark = y + 8
    across = 0.0
    end = form.width
    if form.row == BESIDE.row:
        words = y + 4
        mark = y
        across = form.left - 12
        end = form.width - 10
    name = drawn.label
    if len(name) > MAX_LABEL:
        name = f"{name[: MAX_LABEL - 1]}…"
    if form.row == BESIDE.row:
        anchor = "end"
    else:
        anchor = "start"
    control = " control" if drawn.grey else ""
    height = f"{words:g}"
    parts = [text(f"{across:g}", height, name, anchor, f"label{control}")]
    if drawn.low is not None and drawn.high is not None:
        low = tenth(at(drawn.low))
        high = tenth(at(drawn.high))
        parts.append(line(f"span{control}", low, high, f"{mark:g}", f"{mark:g}"))
    dot = element(
        "circle",
        title(f"{drawn.label}: {drawn.text}"),
        class_=f"dot{control}",
        cx=tenth(at(drawn.value)),
        cy=f"{mark:g}",
        r=4.5,
    )
    parts.append(dot)
    parts.append(text(f"{end:g}", height, drawn.text, "end", f"value{control}"))
    return "".join(parts)


STYLE: Final = (
    "svg{font:11.5px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    ".page{fill:#fdfdfc}text{fill:#565e65}text.label{fill:#1d2124}text.control{fill:#626a71}.band{fill:#0002}"
    ".grid{stroke:#e2e2dc}.floor{stroke:#626a71;stroke-dasharray:1.5 3}"
    ".span{stroke:#2aa5a0;stroke-width:5;stroke-opacity:.7}.dot{fill:#0b6e6e}.span.control{stroke:#8a9299}"
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
