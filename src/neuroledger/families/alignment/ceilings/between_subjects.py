"""Similarity of the representations of different subjects, by any measure of two assemblies."""

from __future__ import annotations

import xarray as xr

from neuroledger.engine.context import MetricContext
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.nested import nested
from neuroledger.families.alignment.similarity.subject_pairs import in_pairs
from neuroledger.spec.base import Component
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples

__all__ = ["between_subjects"]


@ceiling("between_subjects", version=1)
def between_subjects(
    assembly: xr.DataArray, *, context: MetricContext, measure: Component
) -> Samples:
    """Mean similarity of each subject with the other subjects, over the stimuli shown to both.

    ``measure`` is a registered metric of two assemblies that needs no splits, with its parameters, such as
    ``{name: svcca, adjusted: true}``. A measure with a direction compares each pair in the order of the subjects. Both
    patterns of a pair are noisy: a model of what subjects share can exceed this ceiling.

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
        There is only one subject, two subjects cannot be compared, or the measure is not a metric of two assemblies.
    """
    return in_pairs(assembly, nested(measure, context, error=CeilingError))
