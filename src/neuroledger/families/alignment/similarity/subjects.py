"""Comparisons with each subject separately: the assembly of each, and all values as one result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans
from neuroledger.errors import MetricError
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["by_subject", "by_subject_values"]


def by_subject(
    target: xr.DataArray, hint: str, error: type[MetricError] = MetricError
) -> dict[str, xr.DataArray]:
    """Part of the assembly for each subject, by name in order of appearance: its neuroids, or its RDM.

    Raises
    ------
    MetricError
        The neuroids have no subject; ``hint`` in the message names the component for such an assembly. ``error`` replaces
        the class.
    """
    if {"stimulus_b", "subject"} <= set(target.dims):
        dim = "subject"
    else:
        dim = "neuroid"
    if "subject" not in target.coords or target["subject"].dims != (dim,):
        raise error(f"the neuroids have no coordinate 'subject'; {hint}")
    labels = target["subject"].values.astype(str)
    parts = {}
    for name in dict.fromkeys(labels.tolist()):
        part = target.isel({dim: np.flatnonzero(labels == name)})
        parts[name] = part.isel(subject=0, drop=True) if dim == "subject" else part
    return parts


def by_subject_values(
    parts: Mapping[str, Samples], target: xr.DataArray, rows: Mapping[str, Booleans]
) -> Samples:
    """Return one value per ``subject`` from the separate results, which vary over the same stimuli.

    Parameters
    ----------
    parts
        Samples of each subject: one number, which varies over stimuli.
    target
        The assembly of all subjects.
    rows
        Mask of the stimuli of each subject's part, (stimulus,).
    """
    count = len(next(iter(rows.values())))
    values = [float(part.values) for part in parts.values()]
    samples = xr.DataArray(values, dims="subject", coords={"subject": list(parts)})

    def without(keep: Keep) -> xr.DataArray:
        left = [
            _without(parts[name], keep["stimulus"][own]) for name, own in rows.items()
        ]
        return samples.copy(data=left)

    notes = [f"{name}: {note}" for name, part in parts.items() for note in part.notes]
    return Samples(
        samples,
        Variation({"stimulus": stimulus_names(target, count)}, without),
        notes=notes,
    )


def _without(part: Samples, kept: Booleans) -> float:
    """Return the value of one subject without stimuli."""
    return float(cast(Variation, part.variation).without({"stimulus": kept}))
