"""Representational similarity with each subject of an assembly."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.families.alignment.metrics.rdm import rdm
from neuroledger.families.alignment.similarity.rdm import Comparison, Distance
from neuroledger.families.alignment.similarity.subjects import (
    by_subject,
    by_subject_values,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.workspace import Workspace

__all__ = ["rdm_subjects"]


@metric("rdm_subjects", version=2)
def rdm_subjects(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
) -> Samples:
    """Agreement of the source's dissimilarities with those of each subject's neuroids [kriegeskorte2008].

    Parameters
    ----------
    source
        ``(presentation, neuroid)`` or an RDM ``(stimulus, stimulus_b)``.
    target
        ``(presentation, neuroid)`` with ``subject`` on the neuroids, or RDMs ``(stimulus, stimulus_b, subject)``.

    Returns
    -------
    Samples
        One number per ``subject``.

    Raises
    ------
    MetricError
        The neuroids have no subject, or a subject's dissimilarities cannot be compared.
    """
    hint = "for one RDM of all neuroids use `rdm`"
    parts = {
        name: rdm(
            source, part, workspace=workspace, distance=distance, comparison=comparison
        )
        for name, part in by_subject(target, hint).items()
    }
    stimuli = target.sizes["stimulus" if "stimulus" in target.dims else "presentation"]
    return by_subject_values(
        parts, target, dict.fromkeys(parts, np.ones(stimuli, dtype=bool))
    )
