"""Searchlights: the neuroids around each neuroid, by declared coordinates of a volume, a surface or sensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import xarray as xr
from pydantic import Field, model_validator

from neuroledger.data.arrays import Floats, Indices, Strings, floats
from neuroledger.errors import MetricError
from neuroledger.spec.base import Frozen

__all__ = ["Lights", "coordinates_of", "spacing"]


class Lights(Frozen):
    """Which neuroids are in the searchlight of each.

    Attributes
    ----------
    coordinates
        Coordinates of the neuroids, one for each axis, in one unit: of voxels, of vertices on a sphere, or of sensors.
    radius
        Largest distance from the centre.
    neighbours
        Number of neuroids of each searchlight, the nearest ones and the centre: the radius adapts to the density.
    fewest
        Smallest number of neuroids of a searchlight.
    within
        Coordinate whose values are boundaries: neuroids with another value than the centre are not in its searchlight.
    """

    coordinates: Annotated[tuple[str, ...], Field(min_length=1, max_length=3)] = (
        "x",
        "y",
        "z",
    )
    radius: Annotated[float, Field(gt=0)] | None = None
    neighbours: Annotated[int, Field(ge=3)] | None = None
    fewest: Annotated[int, Field(ge=3)] = 5
    within: str | None = None

    @model_validator(mode="after")
    def _one_size(self) -> Lights:
        if (self.radius is None) == (self.neighbours is None):
            raise ValueError("give `radius`, or `neighbours` for a radius that adapts")
        return self

    def members(self, assembly: xr.DataArray) -> list[Indices]:
        """Return the positions of the neuroids in the searchlight of each neuroid, ascending.

        Raises
        ------
        MetricError
            A coordinate is missing or not finite, or a searchlight has too few neuroids.
        """
        from scipy.spatial import cKDTree

        places = coordinates_of(assembly, self.coordinates)
        regions = self._regions(assembly)
        found: list[Indices] = [np.zeros(0, dtype=np.intp)] * len(places)
        for region in np.unique(regions):
            own = np.flatnonzero(regions == region)
            tree = cKDTree(places[own])
            near: Any
            if self.radius is not None:
                near = tree.query_ball_point(places[own], self.radius)
            else:
                count = min(self.neighbours or 1, len(own))
                near = tree.query(places[own], k=list(range(1, count + 1)))[1]
            for centre, members in zip(own.tolist(), near, strict=True):
                found[centre] = np.sort(own[np.asarray(members, dtype=np.intp)])
        self._require_enough(found)
        return found

    def _regions(self, assembly: xr.DataArray) -> Strings:
        if self.within is None:
            return np.full(assembly.sizes["neuroid"], "")
        if self.within not in assembly.coords:
            raise MetricError(
                f"the neuroids have no coordinate {self.within!r}, which `within` names as boundary"
            )
        return np.asarray(assembly[self.within].values).astype(str)

    def _require_enough(self, found: Sequence[Indices]) -> None:
        sizes = np.array(list(map(len, found)))
        if (lacking := int((sizes < self.fewest).sum())) == 0:
            return
        raise MetricError(
            f"{lacking} of {len(found)} searchlights have fewer than {self.fewest} neuroids, that of neuroid "
            f"{int(sizes.argmin())} "
            f"only {sizes.min()}, and patterns of so few mean little: use a larger `radius`, `neighbours` in "
            "place of it, or "
            "leave out isolated neuroids"
        )


def coordinates_of(assembly: xr.DataArray, names: Sequence[str]) -> Floats:
    """Return the coordinates of the neuroids, (neuroid × axis).

    Raises
    ------
    MetricError
        One is missing, or not finite.
    """
    missing = [name for name in names if name not in assembly.coords]
    if missing:
        raise MetricError(
            f"the neuroids have no coordinate {missing[0]!r}; a searchlight needs {', '.join(names)}: name those "
            "of the data in "
            "`coordinates`"
        )
    places = np.stack([floats(assembly[name].values) for name in names], axis=1)
    if not np.isfinite(places).all():
        raise MetricError("coordinates of neuroids must be finite")
    return places


def spacing(places: Floats) -> float:
    """Return the distance at which points (point × axis) are neighbours: 1 % more than the usual distance to the nearest."""
    from scipy.spatial import cKDTree

    nearest = np.asarray(cKDTree(places).query(places, k=[2])[0])
    return 1.01 * float(np.median(nearest))
