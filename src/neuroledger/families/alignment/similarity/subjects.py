"""Comparisons with each subject separately: the assembly of each, and the influence of stimuli on all values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.stats.resampling import Cells

__all__ = ["by_subject", "by_subject_values", "moved_together"]


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
    dim = "subject" if {"stimulus_b", "subject"} <= set(target.dims) else "neuroid"
    if "subject" not in target.coords or target["subject"].dims != (dim,):
        raise error(f"the neuroids have no coordinate 'subject'; {hint}")
    labels = target["subject"].values.astype(str)
    parts = {}
    for name in dict.fromkeys(labels.tolist()):
        part = target.isel({dim: np.flatnonzero(labels == name)})
        parts[name] = part.isel(subject=0, drop=True) if dim == "subject" else part
    return parts


def by_subject_values(parts: dict[str, xr.DataArray]) -> xr.DataArray:
    """One value per ``subject`` from the separate results; notes are prefixed by the subject."""
    notes = [f"{name}: {note}" for name, part in parts.items() for note in part.attrs["notes"]]
    attrs: dict[str, Any] = {"notes": notes, "cells": lambda: moved_together(list(parts.values()))}
    values = [float(part) for part in parts.values()]
    return xr.DataArray(values, dims="subject", coords={"subject": list(parts)}, attrs=attrs)


def moved_together(parts: Sequence[xr.DataArray]) -> Cells | None:
    """Influence of each stimulus on the value of every subject; None if a result has no influence."""
    influences = [part.attrs["influence"]() for part in parts]
    if any(influence is None for influence in influences):
        return None
    ids = np.unique(np.concatenate([influence.factors["stimulus"].ids for influence in influences]))
    values, beyond = np.zeros((len(ids), len(influences))), np.zeros((len(ids), len(ids)))
    for column, influence in enumerate(influences):
        at = np.searchsorted(ids, influence.factors["stimulus"].ids)
        values[at, column] = influence.factors["stimulus"].deviation
        beyond[np.ix_(at, at)] += influence.crossed["stimulus", "stimulus"] / len(influences)
    return Cells(ids, [(np.arange(len(ids)), values)], pairs=beyond)
