"""Similarity of the representations of different subjects, by any measure of two assemblies."""

from __future__ import annotations

import xarray as xr
from pydantic import ValidationError

from neuroledger.engine.context import MetricContext
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.subject_pairs import in_pairs
from neuroledger.spec import registry
from neuroledger.spec.base import Component
from neuroledger.spec.components import Metric
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples

__all__ = ["between_subjects"]


@ceiling("between_subjects", version=1)
def between_subjects(
    assembly: xr.DataArray, *, context: MetricContext, measure: Component
) -> Samples:
    """Mean similarity of each subject with the other subjects, over the stimuli shown to both.

    ``measure`` is a registered metric of two assemblies that needs no splits, with its parameters, such as ``{name:
    svcca, adjusted: true}``. A measure with a direction compares each pair in the order of the subjects. Both patterns
    of a pair are noisy: a model of what subjects share can exceed this ceiling.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids; repetitions are averaged first.

    Returns
    -------
    Samples
        One number per ``subject``, as in :func:`~neuroledger.families.alignment.ceilings.cka_subjects.cka_subjects`.

    Raises
    ------
    CeilingError
        There is only one subject, two subjects cannot be compared, or the measure is no metric of two assemblies.
    """
    metric = registry.get("metric", measure.name)
    if not isinstance(metric, Metric) or metric.takes("splits") or metric.trials:
        raise CeilingError(
            f"`measure: {measure.name}` does not compare two assemblies without splits; choose a "
            "similarity, such as procrustes"
        )
    try:
        parameters = metric.bind(measure.parameters)
    except ValidationError as error:
        raise CeilingError(f"`measure: {measure.name}`: {error}") from None

    def compare(first: xr.DataArray, second: xr.DataArray) -> Samples:
        return Samples.of(metric.call(context, (first, second), parameters))

    return in_pairs(assembly, compare)
