"""Linear predictivity in both directions: a model that contains more than the brain is not predicted by it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.metrics.regression import regression
from neuroledger.families.alignment.regression.held_out import Estimator
from neuroledger.families.alignment.regression.ridge_cv import RidgeCv
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["two_way_predictivity"]

DIRECTIONS = ("source to target", "target to source")


@metric("two_way_predictivity", version=1, example=examples.of_readouts)
def two_way_predictivity(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = RidgeCv(),  # noqa: B008 - a frozen default
) -> Samples:
    """Held-out correlation of a readout from the model to the brain, and of the same readout from the brain to the model.

    Each direction is :func:`~neuroledger.families.alignment.metrics.regression.regression` with the same splits of
    stimuli; the median over the predicted units is taken in each split. One direction alone rewards a model that
    contains everything: a model is like the brain if each predicts the other [muzellec2025].

    Returns
    -------
    Samples
        Correlations ``(direction, split)``; the directions are ``source to target`` and ``target to source``.

    Raises
    ------
    MetricError
        As in the regression; the message names the direction.
    """
    values = []
    notes = []
    for direction, (given, predicted) in zip(
        DIRECTIONS, ((source, target), (target, source)), strict=True
    ):
        try:
            found = regression(
                given,
                predicted,
                splits=splits,
                workspace=workspace,
                estimator=estimator,
                relative=True,
            )
        except MetricError as error:
            raise MetricError(f"{direction}: {error}") from None
        values.append(_median(found))
        notes.append(f"{direction}: {np.nanmean(values[-1]):.3f}")
        notes += [f"{direction}: {note}" for note in found.notes]
    samples = xr.DataArray(
        np.array(values),
        dims=("direction", "split"),
        coords={"direction": list(DIRECTIONS), "split": np.arange(len(splits))},
    )
    return Samples(samples, notes=notes)


def _median(found: Samples) -> Floats:
    """Return the median over units of each split, (split,)."""
    return np.asarray(np.nanmedian(found.values.values, axis=1))
