"""Generalisation of a readout: its correlation inside and outside of the distribution that it was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Booleans
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.metrics.regression import regression
from neuroledger.families.alignment.regression.held_out import Estimator
from neuroledger.families.alignment.regression.ridge_cv import RidgeCv
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["generalisation"]

Part = Literal["inside", "outside", "difference"]


@metric("generalisation", version=1, example=examples.of_distributions)
def generalisation(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    by: str = "distribution",
    fitted: Annotated[tuple[str | int | float, ...], Field(min_length=1)] = ("in",),
    part: Part = "difference",
    estimator: Estimator = RidgeCv(),  # noqa: B008 - a frozen default
) -> Samples:
    """Held-out correlation of a readout inside and outside of the distribution of stimuli that it was fitted to.

    The readout of each split is fitted to its train presentations whose coordinate ``by`` has one of the values
    ``fitted``. It is tested on the test presentations with these values (``inside``) and on those with other values
    (``outside``), by :func:`~neuroledger.families.alignment.metrics.regression.regression`. The ``difference`` is
    outside minus inside: below 0 if the model generalises less well than its score on similar stimuli says. The notes
    state both.

    Returns
    -------
    Samples
        Correlations or their difference, ``(split, neuroid)``. They vary over the stimuli of both distributions.

    Raises
    ------
    MetricError
        The coordinate is missing, or a test part has fewer than 3 presentations of either kind.
    """
    own = _inside(target, by, list(map(str, fitted)))
    found = {}
    for name, kind in (("inside", own), ("outside", ~own)):
        found[name] = regression(
            source,
            target,
            splits=_restricted(splits, own, kind),
            workspace=workspace,
            estimator=estimator,
            relative=True,
        )
    means = [f"{name} {float(each.values.mean()):.3f}" for name, each in found.items()]
    notes = [", ".join(means)]
    for name, each in found.items():
        notes += [f"{name}: {note}" for note in each.notes]
    if part != "difference":
        chosen = found[part]
        return Samples(chosen.values, chosen.variation, notes=notes)
    inside = found["inside"]
    outside = found["outside"]
    values = outside.values.copy(data=outside.values.values - inside.values.values)
    varies = _difference(outside, inside, values)
    return Samples(values, varies, limits=(-2.0, 2.0), notes=notes)


def _inside(target: xr.DataArray, by: str, fitted: Sequence[str]) -> Booleans:
    """Return which presentations are of the distribution that is fitted."""
    if by not in target.coords or target[by].dims != ("presentation",):
        raise MetricError(
            f"the presentations have no coordinate {by!r}, which says to which distribution a stimulus belongs"
        )
    own: Booleans = np.asarray(np.isin(as_text(target[by].values), fitted))
    if own.all() or not own.any():
        raise MetricError(
            f"{int(own.sum())} of {len(own)} presentations have {by!r} in {', '.join(fitted)}: stimuli inside and "
            "outside of the "
            "distribution are needed"
        )
    return own


def _restricted(
    splits: Sequence[Split], trained: Booleans, tested: Booleans
) -> list[Split]:
    """Return splits with some of their train presentations and some of their test presentations."""
    parts = []
    for split in splits:
        train = split.train[trained[split.train]]
        parts.append(Split(train, split.test[tested[split.test]]))
    return parts


def _difference(first: Samples, second: Samples, values: xr.DataArray) -> Variation:
    """Return how the difference changes without stimuli, each of which is in one of both distributions."""
    own = first.variation
    other = second.variation
    if not isinstance(own, Variation) or not isinstance(other, Variation):
        raise MetricError("the variation of a readout is not known")

    def without(keep: Keep) -> xr.DataArray:
        return values.copy(data=own.without(keep).values - other.without(keep).values)

    factor = max(own.inflation["stimulus"], other.inflation["stimulus"])
    return Variation(own.items, without, inflation={"stimulus": factor})
