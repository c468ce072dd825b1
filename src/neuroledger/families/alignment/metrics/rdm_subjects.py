"""Representational similarity with each subject of an assembly on its own."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.errors import MetricError
from neuroledger.families.alignment.metrics.rdm import rdm
from neuroledger.families.alignment.similarity.rdm import Comparison, Distance
from neuroledger.spec.registry import metric
from neuroledger.stats.workspace import Workspace

__all__ = ["rdm_subjects"]


@metric("rdm_subjects", version=2)
def rdm_subjects(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    rng: np.random.Generator,
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
) -> xr.DataArray:
    """Agreement of the source's dissimilarities with those of each subject's neuroids [kriegeskorte2008].

    Parameters
    ----------
    source
        ``(presentation, neuroid)`` or an RDM ``(stimulus, stimulus_b)``.
    target
        ``(presentation, neuroid)`` with ``subject`` on the neuroids.

    Returns
    -------
    xr.DataArray
        One number per ``subject``; the interval resamples stimuli, the same for all subjects.

    Raises
    ------
    MetricError
        The neuroids have no subject, or a subject's dissimilarities cannot be compared.
    """
    if "subject" not in target.coords or target["subject"].dims != ("neuroid",):
        raise MetricError("the neuroids say no subject; for one RDM of all neuroids use `rdm`")
    of = target["subject"].values.astype(str)
    names = list(dict.fromkeys(of.tolist()))
    seed = int(rng.integers(2**63))
    parts = []
    for name in names:
        own = target.isel(neuroid=np.flatnonzero(of == name))
        parts.append(
            rdm(
                source,
                own,
                workspace=workspace,
                rng=np.random.default_rng(seed),
                distance=distance,
                comparison=comparison,
            )
        )

    def replicates() -> NDArray[np.float64]:
        return np.asarray(np.mean([part.attrs["replicates"]() for part in parts], axis=0))

    notes = [
        f"{name}: {note}" for name, part in zip(names, parts, strict=True) for note in part.attrs["notes"]
    ]
    return xr.DataArray(
        [float(part) for part in parts],
        dims="subject",
        coords={"subject": names},
        attrs={"notes": notes, "replicates": replicates},
    )
