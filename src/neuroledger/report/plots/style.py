"""How every figure looks: a quiet frame, one palette, and the plotted numbers kept with it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuroledger.errors import RequestError
from neuroledger.store.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["ACCENT", "INK", "LIGHT", "PALETTE", "SOFT", "Panels", "axes", "finish", "legend", "save"]

FORMATS: Final = ("svg", "pdf", "png", "eps", "jpg", "webp")
INK: Final = "#1d2124"
SOFT: Final = "#8b939a"
ACCENT: Final = "#0b6e6e"
LIGHT: Final = "#2aa5a0"
# Okabe and Ito's colours, told apart by people with any kind of colour vision.
PALETTE: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")


class Panels(list["Axes"]):
    """The axes of one figure; a notebook displays the figure."""

    def _repr_png_(self) -> bytes:
        return _png(self[0])


def save(ax: Axes | Sequence[Axes], path: Path | str) -> Path:
    """Write the figure of ``ax``, one or several: SVG with text kept as text and no date inside, or as the suffix says.

    Raises
    ------
    RequestError
        The suffix is none of a figure.
    DataError
        The disk is full or read-only; what was there is still there.
    """
    import matplotlib as mpl

    path = Path(path)
    figure: Any = (ax[0] if isinstance(ax, Sequence) else ax).get_figure(root=True)
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
    ax: Axes = Figure(figsize=(width, height), layout="constrained").add_subplot(axes_class=_displayed())
    return ax


@cache
def _displayed() -> type[Axes]:
    """Axes whose figure a notebook displays; it shows figures of pyplot alone by itself."""
    from matplotlib.axes import Axes

    class DisplayedAxes(Axes):
        """The axes of one figure; a notebook displays the figure."""

        def _repr_png_(self) -> bytes:
            return _png(self)

    return DisplayedAxes


def _png(ax: Axes) -> bytes:
    figure: Any = ax.get_figure(root=True)
    held = io.BytesIO()
    figure.savefig(held, format="png", dpi=110, bbox_inches="tight")
    return held.getvalue()


def legend(ax: Axes) -> None:
    """Name the lines that have a name, outside the data where there is room."""
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize=8, loc="best")


def finish(ax: Axes, data: dict[str, Any], *, spines: bool = True) -> Axes:
    """Quiet lines, and the plotted numbers at ``ax.data``."""
    for name in ("top", "right", "left") if spines else ("top", "right", "left", "bottom"):
        ax.spines[name].set_visible(False)
    ax.tick_params(colors=INK, labelsize=9)
    ax.title.set_fontsize(11)
    ax.title.set_color(INK)
    ax.data = data  # type: ignore[attr-defined]
    return ax
