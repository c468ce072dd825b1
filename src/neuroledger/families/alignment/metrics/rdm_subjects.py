"""Representational similarity with each subject of an assembly on its own."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.families.alignment.metrics.rdm import rdm
from neuroledger.families.alignment.similarity.rdm import Comparison, Distance
from neuroledger.spec.registry import metric
from neuroledger.stats.resampling import Cells
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
) -> xr.DataArray:
    """Agreement of the source's dissimilarities with those of each subject's neuroids [kriegeskorte2008].

    Parameters
    ----------
    source
        ``(presentation, neuroid)`` or an RDM ``(stimulus, stimulus_b)``.
    target
        ``(presentation, neuroid)`` with ``subject`` on the neuroids, or RDMs ``(stimulus, stimulus_b, subject)``.

    Returns
    -------
    xr.DataArray
        One number per ``subject``; ``attrs["cells"]`` says how stimuli move each.

    Raises
    ------
    MetricError
        The neuroids have no subject, or a subject's dissimilarities cannot be compared.
    """
    dim = "subject" if {"stimulus_b", "subject"} <= set(target.dims) else "neuroid"
    if "subject" not in target.coords or target["subject"].dims != (dim,):
        raise MetricError("the neuroids say no subject; for one RDM of all neuroids use `rdm`")
    of = target["subject"].values.astype(str)
    names = list(dict.fromkeys(of.tolist()))
    parts = []
    for name in names:
        own = target.isel({dim: np.flatnonzero(of == name)})
        own = own.isel(subject=0, drop=True) if dim == "subject" else own
        parts.append(
            rdm(
                source,
                own,
                workspace=workspace,
                distance=distance,
                comparison=comparison,
            )
        )

    def cells() -> Cells:
        found = [part.attrs["influence"]() for part in parts]
        ids = np.unique(np.concatenate([each.factors["stimulus"].ids for each in found]))
        values, beyond = np.zeros((len(ids), len(found))), np.zeros((len(ids), len(ids)))
        for column, each in enumerate(found):
            at = np.searchsorted(ids, each.factors["stimulus"].ids)
            values[at, column] = each.factors["stimulus"].deviation
            beyond[np.ix_(at, at)] += each.crossed["stimulus", "stimulus"] / len(found)
        return Cells(ids, [(np.arange(len(ids)), values)], pairs=beyond)

    notes = [
        f"{name}: {note}" for name, part in zip(names, parts, strict=True) for note in part.attrs["notes"]
    ]
    return xr.DataArray(
        [float(part) for part in parts],
        dims="subject",
        coords={"subject": names},
        attrs={"notes": notes, "cells": cells},
    )
