"""Correlation of one number per part of a text, such as reading times, between a model and people."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import xarray as xr

from neuroledger.data.arrays import floats
from neuroledger.data.factorize import locate
from neuroledger.errors import MetricError
from neuroledger.spec.registry import Example, metric
from neuroledger.stats.samples import Samples

__all__ = ["correlated", "reading_correlation"]

FEWEST = 3


def _example(rng: np.random.Generator, _: Mapping[str, object]) -> Example:
    """Reading times of the parts of a text, and surprisal that follows them."""
    ids = [f"part{i:02d}" for i in range(40)]
    times = rng.gamma(4.0, 60.0, 40)
    source, target = (
        xr.DataArray(
            values, dims="presentation", coords={"stimulus_id": ("presentation", ids)}
        )
        for values in (times / 50 + rng.standard_normal(40), times)
    )
    return Example((source, target))


@metric("reading_correlation", version=2, input="behaviour", example=_example)
def reading_correlation(
    source: xr.DataArray, target: xr.DataArray, *, absolute: bool = False
) -> Samples:
    """Pearson correlation over the parts of the text that have a number on both sides.

    Parameters
    ----------
    source, target
        One number per part, ``(presentation,)`` with ``stimulus_id``; rows are matched by it. The interval is for new parts,
        which are taken as independent, and the same readers, whose mean is given.
    absolute
        Return the absolute value, as Brain-Score does.

    Raises
    ------
    MetricError
        A side is not one number per part, a stimulus is missing or repeated, or fewer than three parts vary.
    """
    for side in (source, target):
        if (
            side.dims != ("presentation",)
            or "stimulus_id" not in side.coords
            or side.dtype.kind not in "biuf"
        ):
            raise MetricError(
                f"reading times are one number per part with `stimulus_id`; a side has {tuple(side.dims)} of {side.dtype}"
            )
    source_ids, ids = (
        side["stimulus_id"].values.astype(str) for side in (source, target)
    )
    if (
        len(set(ids.tolist())) != ids.size
        or len(set(source_ids.tolist())) != source_ids.size
    ):
        raise MetricError(
            "a part of the text has several rows: average its readers (`average`) or repetitions first"
        )
    rows = locate(ids, source_ids)
    if (rows < 0).any():
        raise MetricError(
            f"the model gave no number for {int((rows < 0).sum())} parts, first {str(ids[rows < 0][0])!r}"
        )
    a = floats(source.values)[rows]
    b = floats(target.values)
    r = correlated(a, b)
    if np.isnan(r):
        raise MetricError(
            "reading times of a side do not vary, or fewer than three parts have one on both sides"
        )
    return Samples(xr.DataArray(abs(r) if absolute else r))


def correlated(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson correlation over finite pairs; NaN if there are fewer than three pairs, or one side does not vary."""
    valid = np.isfinite(a) & np.isfinite(b)
    if valid.sum() < FEWEST or np.ptp(a[valid]) == 0 or np.ptp(b[valid]) == 0:
        return float("nan")
    return float(np.corrcoef(a[valid], b[valid])[0, 1])
