"""A waterfall of an explained difference: from one score to the other, one step for each field."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Final, NamedTuple

from markupsafe import Markup, escape

from neuroledger.engine.why import Explanation
from neuroledger.report.drawings import (
    Axis,
    axis_over,
    element,
    line,
    tenth,
    text,
    title,
)
from neuroledger.report.site import render_alone

__all__ = ["Bar", "bars_of", "explanation_page", "waterfall"]

NAMES: Final = 250.0
PLOT: Final = 380.0
NUMBERS: Final = 170.0
ROW: Final = 26.0
TOP: Final = 12.0
LONGEST: Final = 36
STYLE: Final = (
    "text{font:12px Verdana,Geneva,sans-serif;fill:#222}.up{fill:#1b6e3c}.down{fill:#a3262a}.end{fill:#5a5f66}"
    ".grid{stroke:#ddd}.join{stroke:#999;stroke-dasharray:2 2}.span{stroke:#222}"
)


class Bar(NamedTuple):
    """One row: from where to where the score moves, the interval of the end, and the number beside it."""

    name: str
    start: float
    stop: float
    low: float | None
    high: float | None
    number: str
    kind: str


def bars_of(found: Explanation) -> list[Bar]:
    """Return the rows of a waterfall: the first score, each share from where the former ended, and the second score."""
    at = found.first_value
    rows = [Bar(found.first, at, at, None, None, f"{at:.4g}", "end")]
    for share in found.shares:
        if share.low is None:
            low = None
        else:
            low = at + share.low
        if share.high is None:
            high = None
        else:
            high = at + share.high
        rows.append(_step(share.field, at, share.value, low, high))
        at += share.value
    if found.published is not None:
        rows.append(_step("not explained", at, found.left, None, None))
    end = found.second_value if found.published is None else found.published
    return [*rows, Bar(found.second, end, end, None, None, f"{end:.4g}", "end")]


def _step(
    name: str, start: float, share: float, low: float | None, high: float | None
) -> Bar:
    kind = "up" if share >= 0 else "down"
    return Bar(name, start, start + share, low, high, f"{share:+.4g}", kind)


def waterfall(found: Explanation) -> Markup:
    """Draw the waterfall of an explanation as an SVG file that needs no style sheet."""
    rows = bars_of(found)
    ends = [end for row in rows for end in (row.start, row.stop, row.low, row.high)]
    axis = axis_over([end for end in ends if end is not None], zero=False)
    height = TOP + ROW * len(rows)
    width = NAMES + PLOT + NUMBERS
    label = f"from {found.first} to {found.second}: {found.difference:+.4g}"
    parts = [*_grid(axis, height)]
    for number, row in enumerate(rows):
        is_last = number + 1 == len(rows)
        parts += _row(axis, row, TOP + ROW * number, is_last=is_last)
    shown_height = f"{height + 24:g}"
    drawing = element(
        "svg",
        f"{title(label)}<style>{STYLE}</style>{''.join(parts)}",
        xmlns="http://www.w3.org/2000/svg",
        width=f"{width:g}",
        height=shown_height,
        viewBox=f"0 0 {width:g} {shown_height}",
        role="img",
        aria_label=escape(label),
    )
    return Markup(f"{drawing}\n")


def explanation_page(found: Explanation, command: str) -> str:
    """Return the waterfall and the table of an explanation as a self-contained page; ``command`` makes it again."""
    end = found.second_value if found.published is None else found.published
    return render_alone(
        "explanation.html.j2",
        found=found,
        end=end,
        picture=b64encode(waterfall(found).encode()).decode(),
        command=command,
    )


def _x(axis: Axis, value: float) -> float:
    return NAMES + PLOT * float(axis.place(value)) / 100


def _grid(axis: Axis, height: float) -> Iterator[str]:
    for tick in axis.ticks:
        x = _x(axis, tick)
        yield line("grid", tenth(x), tenth(x), 4, f"{height:g}")
        yield text(tenth(x), f"{height + 16:g}", f"{tick:.10g}", "middle")


def _row(axis: Axis, row: Bar, y: float, *, is_last: bool) -> Iterator[str]:
    """Yield the name, the bar, its interval, its number, and the line to the next row."""
    left, right = sorted((_x(axis, row.start), _x(axis, row.stop)))
    middle = y + ROW / 2
    baseline = f"{middle + 4:g}"
    name = row.name
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 1]}…"
    yield text(f"{NAMES - 10:g}", baseline, name, "end")
    yield element(
        "rect",
        title(f"{row.name}: {row.number}"),
        class_=row.kind,
        x=tenth(left - 1),
        y=f"{y + 5:g}",
        width=tenth(right - left + 2),
        height=f"{ROW - 10:g}",
    )
    if row.low is not None and row.high is not None:
        low = tenth(_x(axis, row.low))
        high = tenth(_x(axis, row.high))
        yield line("span", low, high, f"{middle:g}", f"{middle:g}")
    yield text(f"{NAMES + PLOT + 12:g}", baseline, row.number)
    if not is_last:
        x = tenth(_x(axis, row.stop))
        yield line("join", x, x, f"{y + ROW - 5:g}", f"{y + ROW + 5:g}")
