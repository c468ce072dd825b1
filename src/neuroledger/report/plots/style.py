"""How every figure looks: a quiet frame, one palette, and the plotted numbers kept with it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuroledger.errors import RequestError
from neuroledger.store.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ACCENT", "INK", "LIGHT", "PALETTE", "SOFT", "axes", "finish", "save"]

FORMATS: Final = ("svg", "pdf", "png", "eps", "jpg", "webp")
INK: Final = "#1d2124"
SOFT: Final = "#8b939a"
ACCENT: Final = "#0b6e6e"
LIGHT: Final = "#2aa5a0"
# Okabe and Ito's colours, told apart by people with any kind of colour vision.
PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")


def save(ax: Axes, path: Path) -> Path:
    """Write the figure of ``ax``: SVG with text kept as text and no date inside, or what the suffix says.

    Raises
    ------
    RequestError
        The suffix is none of a figure.
    DataError
        The disk is full or read-only; what was there is still there.
    """
    import matplotlib as mpl

    figure: Any = ax.get_figure(root=True)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise RequestError(f"{path}: name a figure with one of the endings .{', .'.join(FORMATS)}")
    held = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "neuroledger"}):
        options = {"metadata": {"Date": None}} if kind == "svg" else {}
        figure.savefig(held, format=kind, bbox_inches="tight", **options)
    with replacing(path) as temporary:
        temporary.write_bytes(held.getvalue())
    return path


def axes(*, width: float = 7.0, height: float = 4.0) -> Axes:
    """An empty figure of its own; size in inches."""
    from matplotlib.figure import Figure

    # A figure of its own, without pyplot: no window, no global state, safe beside a user's own figures.
    ax: Axes = Figure(figsize=(width, height), layout="constrained").add_subplot()
    return ax


def finish(ax: Axes, data: dict[str, Any], *, spines: bool = True) -> Axes:
    """Quiet lines, and the plotted numbers at ``ax.data``."""
    for name in ("top", "right", "left") if spines else ("top", "right", "left", "bottom"):
        ax.spines[name].set_visible(False)
    ax.tick_params(colors=INK, labelsize=9)
    ax.title.set_fontsize(11)
    ax.title.set_color(INK)
    ax.data = data  # type: ignore[attr-defined]
    return ax
