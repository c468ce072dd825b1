"""Figures of representational geometry: dissimilarity matrices of brain and models, next to each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Indices, floats
from neuroledger.errors import RequestError
from neuroledger.families.alignment.similarity.gram import gram
from neuroledger.families.alignment.similarity.rdm import Distance, dissimilarities
from neuroledger.report.plots.style import SOFT, Panels, finish
from neuroledger.stats.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["rdm"]


def rdm(
    assemblies: Mapping[str, xr.DataArray],
    *,
    by: str | None = None,
    distance: Distance = "correlation",
) -> Panels:
    """Draw the rank percentiles of the dissimilarities of all pairs of stimuli, one matrix per assembly.

    Parameters
    ----------
    assemblies
        By label: responses ``(presentation, neuroid)``, one row per stimulus, or RDMs ``(stimulus, stimulus_b)``.
    by
        Coordinate that groups the stimuli (such as ``object_name``); lines divide the groups.
    distance
        Dissimilarity of responses, as in the metric ``rdm``.

    Returns
    -------
    Panels
        The axes, one per assembly, of one figure, which a notebook displays; ``ax.data`` contains the percentiles in
        the order drawn.

    Raises
    ------
    RequestError
        There are no assemblies, an assembly has other dimensions, or the coordinate is missing.

    Examples
    --------
    >>> import neuroledger as nl
    >>> rdms = nl.load("Kriegeskorte2008").assembly
    >>> panels = nl.plot.rdm({"human": rdms[:4], "monkey": rdms[4:]})
    >>> len(panels)
    2
    """
    from matplotlib.figure import Figure

    if not assemblies:
        raise RequestError("no assembly to draw")
    figure = Figure(figsize=(3.1 * len(assemblies) + 0.6, 3.4), layout="constrained")
    panels = []
    image = None
    for i, (label, assembly) in enumerate(assemblies.items(), 1):
        ax: Axes = figure.add_subplot(1, len(assemblies), i)
        dim, matrix = _matrix(label, assembly, distance)
        order, edges = _grouped(label, assembly, dim, by)
        percentiles = _percentiles(matrix[np.ix_(order, order)])
        image = ax.imshow(
            percentiles, cmap="viridis", vmin=0, vmax=100, interpolation="nearest"
        )
        for edge in edges:
            ax.axhline(edge - 0.5, color="white", linewidth=0.6)
            ax.axvline(edge - 0.5, color="white", linewidth=0.6)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.set_title(label)
        panels.append(finish(ax, {"percentile": percentiles.tolist()}, spines=False))
    bar = figure.colorbar(image, ax=panels, shrink=0.8)  # type: ignore[arg-type]
    bar.set_label("dissimilarity, rank percentile", color=SOFT, fontsize=9)
    bar.ax.tick_params(labelsize=8)
    return Panels(panels)


def _matrix(
    label: str, assembly: xr.DataArray, distance: Distance
) -> tuple[str, Floats]:
    if set(assembly.dims) == {"presentation", "neuroid"}:
        values = floats(assembly.transpose("presentation", "neuroid").values)
        condensed = dissimilarities(gram(values, Workspace()), distance)
        full = np.zeros((len(values), len(values)))
        full[np.triu_indices(len(values), 1)] = condensed
        return "presentation", full + full.T
    if set(assembly.dims) in (
        {"stimulus", "stimulus_b"},
        {"subject", "stimulus", "stimulus_b"},
    ):
        mean = assembly.mean("subject") if "subject" in assembly.dims else assembly
        return "stimulus", floats(mean.transpose("stimulus", "stimulus_b").values)
    raise RequestError(
        f"{label!r} has dims {assembly.dims}; an RDM is drawn of (presentation, neuroid) or (stimulus, stimulus_b)"
    )


def _grouped(
    label: str, assembly: xr.DataArray, dim: str, by: str | None
) -> tuple[Indices, list[int]]:
    if by is None:
        return np.arange(assembly.sizes[dim]), []
    if by not in assembly.coords or assembly[by].dims != (dim,):
        raise RequestError(
            f"{label!r} has no coordinate {by!r} on {dim!r}; it has {', '.join(map(str, assembly.coords))}"
        )
    groups = assembly[by].values.astype(str)
    order = np.argsort(groups, kind="stable")
    return order, (np.flatnonzero(groups[order][1:] != groups[order][:-1]) + 1).tolist()


def _percentiles(matrix: Floats) -> Floats:
    """Ranks of the pairs (ties share a rank) from 0 to 100; the diagonal is 0, undefined pairs are NaN."""
    from scipy.stats import rankdata

    upper = np.triu_indices(len(matrix), 1)
    values = matrix[upper]
    ranks = np.full(values.shape, np.nan)
    defined = np.isfinite(values)
    count = int(defined.sum())
    ranks[defined] = 100 * (rankdata(values[defined]) - 1) / max(1, count - 1)
    full = np.zeros(matrix.shape)
    full[upper] = ranks
    return full + full.T
