"""A measure inside a component: a registered metric or ceiling of assemblies, named with its parameters."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import xarray as xr
from pydantic import ValidationError

from neuroledger.engine.context import MetricContext
from neuroledger.errors import CeilingError, MetricError
from neuroledger.spec import registry
from neuroledger.spec.base import Component
from neuroledger.spec.components import Ceiling, Metric
from neuroledger.stats.samples import Samples

__all__ = ["Compare", "nested", "nested_ceiling"]

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
    if not isinstance(metric, Metric) or not _fits(metric, trials):
        what = "single trials" if trials else "two assemblies"
        example = "crossnobis" if trials else "procrustes"
        raise error(
            f"`measure: {measure.name}` does not compare {what} without splits; choose a similarity, such as {example}"
        )
    parameters = _bound(metric, measure, error)

    def compare(source: xr.DataArray, target: xr.DataArray) -> Samples:
        return Samples.of(metric.call(context, (source, target), parameters))

    return compare


def nested_ceiling(
    measure: Component, context: MetricContext
) -> Callable[[xr.DataArray], Samples]:
    """Return a function that computes a registered ceiling of an assembly; each call has the same random numbers.

    Raises
    ------
    CeilingError
        There is no such ceiling, or a parameter is wrong.
    """
    ceiling = registry.get("ceiling", measure.name)
    if not isinstance(ceiling, Ceiling) or ceiling.input != "assemblies":
        raise CeilingError(
            f"`measure: {measure.name}` is not computed from an assembly; choose a ceiling such as rdm_consistency"
        )
    parameters = _bound(ceiling, measure, CeilingError)

    def compute(assembly: xr.DataArray) -> Samples:
        again = replace(context, rng=copy.deepcopy(context.rng))
        return Samples.of(ceiling.call(again, (assembly,), parameters))

    return compute


def _fits(metric: Metric, trials: bool) -> bool:
    of_assemblies = metric.input == "assemblies" and not metric.takes("splits")
    return of_assemblies and metric.trials is trials


def _bound(
    component: Metric | Ceiling, measure: Component, error: type[MetricError]
) -> dict[str, Any]:
    try:
        return component.bind(measure.parameters)
    except ValidationError as invalid:
        raise error(f"`measure: {measure.name}`: {invalid}") from None
