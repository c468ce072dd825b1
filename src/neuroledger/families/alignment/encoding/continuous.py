"""A continuous recording as a regression problem: bins as rows, delayed features as columns, blocks of time as splits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats, Indices, Strings, floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.encoding.blocks import Blocks, segments
from neuroledger.families.alignment.encoding.nulls import Neighbours, Null
from neuroledger.families.alignment.encoding.time_axis import (
    bin_width,
    convolved,
    delayed,
    haemodynamic_response,
    resampled,
    rows_of_runs,
)
from neuroledger.stats.splits import Split

__all__ = ["Continuous", "Delays", "Response", "continuous"]

Delays = Annotated[tuple[int, ...], Field(min_length=1)]
Response = Literal["none", "haemodynamic"]


@dataclass(frozen=True)
class Continuous:
    """Rows that have all their delays, and what divides them.

    Attributes
    ----------
    X
        Features (row × feature).
    Y
        Responses (row × neuroid).
    splits
        Train and test rows.
    segments
        Segment of time of each row, (row,), an item over which scores vary.
    bands, band
        Names of the feature spaces, and the one of each feature, (feature,).
    """

    X: Floats
    Y: Floats
    splits: Sequence[Split]
    segments: Strings
    bands: tuple[str, ...]
    band: Indices

    def columns(self, names: Sequence[str]) -> tuple[Floats, Indices]:
        """Return the features of some bands (row × feature), and the position of each feature's band among ``names``."""
        at = [self.bands.index(name) for name in names]
        chosen = np.isin(self.band, at)
        place = np.full(len(self.bands), -1)
        place[at] = np.arange(len(at))
        return self.X[:, chosen], np.asarray(place[self.band[chosen]])


def continuous(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    blocks: Blocks,
    delays: Sequence[int] = (0,),
    response: Response = "none",
    bands: str | None = None,
    null: Null | None = None,
) -> Continuous:
    """Return the rows of continuous recordings.

    Parameters
    ----------
    source
        Features (presentation, neuroid, time_bin): a presentation is a run, such as a film or a story. Bins may be a
        whole number of times narrower than those of the target.
    target
        Responses (presentation, neuroid, time_bin) of the same runs.
    blocks
        The splits.
    delays
        Numbers of bins by which responses follow features.
    response
        ``haemodynamic`` convolves features with the canonical response, at their own rate, before they are resampled.
    bands
        Coordinate of the source's neuroids that names feature spaces; None: all features are one.
    null
        Features in place of those of the model.

    Raises
    ------
    MetricError
        The rates do not fit, runs are shorter than the delays, features are missing, or blocks do not fit.
    """
    _require_dims(source, "source")
    _require_dims(target, "target")
    runs = source.sizes["presentation"], target.sizes["presentation"]
    if runs[0] != runs[1]:
        raise MetricError(
            f"the source has {runs[0]} runs and the target {runs[1]}; both sides need the same"
        )
    if response == "haemodynamic":
        shape = haemodynamic_response(bin_width(source, "source"))
        source = convolved(source, shape)
    features = rows_of_runs(resampled(source, target))
    reach = max(0, *delays) - min(0, *delays)
    labels = _bands(source, bands)
    if null is not None:
        features = features._replace(values=null.features(features, reach))
    if isinstance(null, Neighbours):
        labels = np.full(features.values.shape[1], null.name)
        delays = (0,)
    if not np.isfinite(features.values).all():
        raise MetricError(
            "the source has missing or infinite values, and every feature is needed; drop those neuroids or runs"
        )
    names, band = np.unique(labels, return_inverse=True)
    X, kept = delayed(features, delays)
    measured = rows_of_runs(target)
    run = measured.run[kept]
    bin = measured.bin[kept]
    starts = floats(target["time_bin_start"].values)
    return Continuous(
        X,
        measured.values[kept],
        blocks.splits(run, bin, starts.tolist()),
        segments(run, bin),
        tuple(map(str, names)),
        np.tile(band, len(delays)),
    )


def _require_dims(assembly: xr.DataArray, name: str) -> None:
    wanted = {"presentation", "neuroid", "time_bin"}
    if set(assembly.dims) != wanted:
        raise MetricError(
            f"{name}: a continuous recording has (presentation, neuroid, time_bin), where a presentation is a run, not "
            f"{tuple(assembly.dims)}"
        )


def _bands(source: xr.DataArray, bands: str | None) -> Strings:
    if bands is None:
        return np.full(source.sizes["neuroid"], "features")
    if bands not in source.coords or source[bands].dims != ("neuroid",):
        raise MetricError(
            f"the source has no coordinate {bands!r} on `neuroid`, which names the feature space of each feature"
        )
    return np.asarray(source[bands].values).astype(str)
