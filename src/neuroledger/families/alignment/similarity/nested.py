"""A measure inside a component: a registered metric of two assemblies, named with its parameters."""

from __future__ import annotations

from collections.abc import Callable

import xarray as xr
from pydantic import ValidationError

from neuroledger.engine.context import MetricContext
from neuroledger.errors import MetricError
from neuroledger.spec import registry
from neuroledger.spec.base import Component
from neuroledger.spec.components import Metric
from neuroledger.stats.samples import Samples

__all__ = ["Compare", "nested"]

Compare = Callable[[xr.DataArray, xr.DataArray], Samples]


def nested(
    measure: Component,
    context: MetricContext,
    *,
    trials: bool = False,
    error: type[MetricError] = MetricError,
) -> Compare:
    """Return a function that compares two assemblies by a registered metric that needs no splits.

    Parameters
    ----------
    measure
        The name under which the metric is registered, and its parameters.
    trials
        Whether the metric compares with single trials.
    error
        Class of the errors.

    Raises
    ------
    MetricError
        There is no such metric, it needs splits, or a parameter is wrong.
    """
    metric = registry.get("metric", measure.name)
    fits = isinstance(metric, Metric) and metric.input == "assemblies"
    if not fits or metric.takes("splits") or metric.trials is not trials:  # type: ignore[attr-defined]
        what = "single trials" if trials else "two assemblies"
        example = "crossnobis" if trials else "procrustes"
        raise error(
            f"`measure: {measure.name}` does not compare {what} without splits; choose a similarity, such as {example}"
        )
    try:
        parameters = metric.bind(measure.parameters)
    except ValidationError as invalid:
        raise error(f"`measure: {measure.name}`: {invalid}") from None

    def compare(source: xr.DataArray, target: xr.DataArray) -> Samples:
        return Samples.of(metric.call(context, (source, target), parameters))

    return compare
