"""Figures of maps: one value for each vertex, on the surface of the fsaverage brain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import RequestError, naming_extras
from neuroledger.report.plots.style import finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["fsaverage"]

VERTICES: Final = 10_242
"""Vertices of a hemisphere of fsaverage5, which nilearn contains."""


@naming_extras()
def fsaverage(
    values: Floats,
    *,
    hemisphere: Literal["left", "right"] = "left",
    view: Literal["lateral", "medial", "ventral", "dorsal"] = "lateral",
) -> Axes:
    """Draw a value for each vertex of fsaverage5, (10,242,), on the inflated surface; NaN shows the surface.

    Returns
    -------
    Axes
        The axes of a new figure; ``ax.data`` contains the values.

    Raises
    ------
    RequestError
        There is another number of values.
    """
    from matplotlib.figure import Figure
    from nilearn import datasets, plotting

    if np.shape(values) != (VERTICES,):
        raise RequestError(
            f"fsaverage5 has {VERTICES} vertices in a hemisphere, and there are {np.shape(values)} values: "
            "resample them first"
        )
    mesh: Any = datasets.fetch_surf_fsaverage("fsaverage5")
    figure = Figure(figsize=(4.5, 3.6))
    ax = figure.add_subplot(projection="3d")
    plotting.plot_surf_stat_map(
        mesh[f"infl_{hemisphere}"],
        floats(values),
        bg_map=mesh[f"sulc_{hemisphere}"],
        hemi=hemisphere,
        view=view,
        axes=ax,
        figure=figure,
        colorbar=True,
    )
    return finish(ax, {"value": np.asarray(values).tolist()}, spines=False)
