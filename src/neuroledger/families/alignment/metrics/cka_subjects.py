"""Centred kernel alignment with each subject of an assembly."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.families.alignment.metrics.cka import Regularisation, cka
from neuroledger.families.alignment.similarity.subjects import (
    by_subject,
    by_subject_values,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.workspace import Workspace

__all__ = ["cka_subjects"]


@metric("cka_subjects", version=1)
def cka_subjects(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    unbiased: bool = True,
    regularisation: Regularisation = 0.0,
) -> Samples:
    """Alignment of the source with each subject's neuroids, as the metric ``cka``, over the stimuli shown to that subject.

    Parameters
    ----------
    source, target
        ``(presentation, neuroid)``, rows in the same order; the target has ``subject`` on its neuroids.

    Returns
    -------
    Samples
        One number per ``subject``.

    Raises
    ------
    MetricError
        The neuroids have no subject, or a subject's responses cannot be aligned.
    """
    parts = {}
    rows = {}
    for name, responses in by_subject(
        target, "for one alignment with all neuroids use `cka`"
    ).items():
        shown = (
            responses.notnull()
            .any([dim for dim in responses.dims if dim != "presentation"])
            .values
        )
        rows[name] = np.asarray(shown)
        sides = [
            side.isel(presentation=np.flatnonzero(shown))
            for side in (source, responses)
        ]
        parts[name] = cka(
            *sides,
            workspace=workspace,
            unbiased=unbiased,
            regularisation=regularisation,
        )
    return by_subject_values(parts, target, rows)
