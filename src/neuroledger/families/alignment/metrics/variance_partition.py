"""Variance partition of feature spaces: what each explains of a recording beyond the others, and what they share."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.encoding.banded_ridge import BandedSearch
from neuroledger.families.alignment.encoding.blocks import Blocks
from neuroledger.families.alignment.encoding.continuous import (
    Delays,
    Response,
    continuous,
)
from neuroledger.families.alignment.encoding.partition import (
    errors_of_models,
    explained,
    parts_of,
    without_each,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.variation import inflation

__all__ = ["variance_partition"]


@metric("variance_partition", version=1, timed=True, example=examples.of_continuous)
def variance_partition(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    bands: str = "feature_space",
    part: str = "whole",
    blocks: Blocks = Blocks(),  # noqa: B008 - a frozen default
    delays: Delays = (0,),
    response: Response = "none",
    search: BandedSearch = BandedSearch(),  # noqa: B008 - a frozen default
) -> Samples:
    """Held-out explained variance that one ``part`` of a model's feature spaces accounts for [lescroart2015, dupre2022].

    Models of all feature spaces, of each alone, and of all but one are fitted by banded ridge regression, as in
    :func:`~neuroledger.families.alignment.metrics.encoding.encoding`. With the explained variance ``R²`` of each in held-out
    blocks of time, ``part`` is

    - ``whole``: R² of all feature spaces
    - ``alone NAME``: R² of one
    - ``unique NAME``: R² of all minus R² of all others
    - ``shared``: the whole minus all unique parts

    Parts of held-out variance may be negative: a feature space of noise costs a little. The notes state all parts.

    Returns
    -------
    Samples
        Explained variance ``(split, neuroid)``; it varies over segments of time.

    Raises
    ------
    MetricError
        There are fewer than two feature spaces, no such part, or as in the metric ``encoding``.
    """
    rows = continuous(
        source, target, blocks=blocks, delays=delays, response=response, bands=bands
    )
    parts = parts_of(rows.bands)
    if part not in parts:
        raise MetricError(
            f"there is no part {part!r}; choose one of {', '.join(parts)}"
        )
    usable: Booleans = np.asarray(np.isfinite(rows.Y).all(axis=0))
    if not usable.any():
        raise MetricError("no neuroid has a response in every bin")
    errors = errors_of_models(rows, search, blocks.gap, np.flatnonzero(usable).tolist())
    means = {
        name: np.nanmean([explained(split, models) for split in errors])
        for name, models in parts.items()
    }
    notes = [", ".join(f"{name} {mean:.3f}" for name, mean in means.items())]
    if not usable.all():
        notes.append(
            f"{int((~usable).sum())} of {len(usable)} neuroids left out: responses are missing"
        )
    models = parts[part]
    samples = xr.DataArray(
        _of_all(np.array([explained(split, models) for split in errors]), usable),
        dims=("split", "neuroid"),
        coords={"split": np.arange(len(errors))},
    )

    def each(_: str, codes: Indices) -> Floats:
        count = int(codes.max()) + 1
        moved = [without_each(split, models, codes, count) for split in errors]
        return _of_all(np.stack(moved, axis=1), usable)

    def without(keep: Keep) -> xr.DataArray:
        lost = (~keep["stimulus"]).astype(np.intp)
        return samples.copy(data=each("stimulus", lost)[lost.max()])

    varies = Variation(
        {"stimulus": rows.segments},
        without,
        each,
        inflation={"stimulus": inflation(rows.splits)},
    )
    return Samples(samples, varies, notes=notes)


def _of_all(values: Floats, usable: Booleans) -> Floats:
    """Return values of all neuroids (… × neuroid) from those of the usable ones; NaN for the others."""
    whole = np.full((*values.shape[:-1], len(usable)), np.nan)
    whole[..., usable] = values
    return whole
