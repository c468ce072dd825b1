"""Style of all figures: frame, palette, saving, and the plotted numbers in ``ax.data``."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from neuroledger.errors import RequestError, naming_extras
from neuroledger.store.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "ACCENT",
    "INK",
    "LIGHT",
    "PALETTE",
    "SOFT",
    "Panels",
    "axes",
    "finish",
    "legend",
    "save",
]

FORMATS: Final = ("svg", "pdf", "png", "eps", "jpg", "webp")
INK: Final = "#1d2124"
SOFT: Final = "#8b939a"
ACCENT: Final = "#0b6e6e"
LIGHT: Final = "#2aa5a0"
# Okabe and Ito's palette, which is distinguishable with any colour vision.
PALETTE: Final = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#F0E442",
    "#000000",
)


class Panels(list["Axes"]):
    """The axes of one figure; a notebook displays the figure."""

    def _repr_png_(self) -> bytes:
        return _png(self[0])


@naming_extras()
def save(ax: Axes | Sequence[Axes], path: Path | str) -> Path:
    """Write the figure of ``ax`` in the format of the suffix and return its path; SVG contains text and no date.

    Raises
    ------
    RequestError
        The suffix is not a supported format.
    DataError
        The disk is full or read-only; the old file is unchanged.

    Examples
    --------
    >>> import tempfile
    >>> import neuroledger as nl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = nl.plot.save(nl.plot.bars("Kriegeskorte2008.IT-rdm"), f"{folder}/bars.svg")
    ...     path.name, path.stat().st_size > 1000
    ('bars.svg', True)
    """
    import matplotlib as mpl

    path = Path(path)
    figure: Any = (ax[0] if isinstance(ax, Sequence) else ax).get_figure(root=True)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise RequestError(
            f"{path} has no suffix of a figure: use one of .{', .'.join(FORMATS)}"
        )
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "neuroledger"}):
        if kind == "svg":
            options = {"metadata": {"Date": None}}
        else:
            options = {}
        figure.savefig(buffer, format=kind, bbox_inches="tight", **options)
    with replacing(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
    return path


@naming_extras()
def axes(*, width: float = 7.0, height: float = 4.0) -> Axes:
    """Return the axes of a new figure; size in inches."""
    from matplotlib.figure import Figure

    # Without pyplot there is no window and no global state that could affect figures of the user.
    ax: Axes = Figure(figsize=(width, height), layout="constrained").add_subplot(
        axes_class=_displayed()
    )
    return ax


@cache
def _displayed() -> type[Axes]:
    """Return a class of axes that notebooks display; by default they display figures of pyplot only."""
    from matplotlib.axes import Axes

    class DisplayedAxes(Axes):
        """The axes of one figure; a notebook displays the figure."""

        def _repr_png_(self) -> bytes:
            return _png(self)

    return DisplayedAxes


def _png(ax: Axes) -> bytes:
    figure: Any = ax.get_figure(root=True)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    return buffer.getvalue()


def legend(ax: Axes) -> None:
    """Add a legend if a line has a label, where it overlaps the data least."""
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, fontsize=8, loc="best")


def finish(ax: Axes, data: Mapping[str, object], *, spines: bool = True) -> Axes:
    """Apply the style and store the plotted numbers in ``ax.data``."""
    for name in (
        ("top", "right", "left") if spines else ("top", "right", "left", "bottom")
    ):
        ax.spines[name].set_visible(False)
    ax.tick_params(colors=INK, labelsize=9)
    ax.title.set_fontsize(11)
    ax.title.set_color(INK)
    ax.data = data  # type: ignore[attr-defined]
    return ax
