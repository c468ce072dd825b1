"""Proportion of stimuli that are answered correctly."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Indices
from neuroledger.data.factorize import coordinate, encode, locate, repeated
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import (
    TRUTHS,
    choices,
    same,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples, Variation

__all__ = ["accuracy"]


@metric("accuracy", version=4, input="behaviour")
def accuracy(source: Any, target: Any) -> Samples:
    """Return 1 where an answer equals the target, else 0: ``(presentation[, time_bin])``; the mean is the accuracy.

    Parameters
    ----------
    source
        Model behaviour: labels ``(presentation,)``, labels over time ``(presentation, time_bin)``, or probabilities
        ``(presentation, choice)``, whose most probable choice is the answer.
    target
        The right answers ``(presentation,)``. Rows are matched by ``stimulus_id`` if both sides have it, else by
        position. For trials of people (with ``subject`` and a truth), the right answers are the truths, and each stimulus
        counts once.

    Raises
    ------
    MetricError
        There are no answers, lengths differ without ids, or the model did not answer some stimuli.
    """
    if not isinstance(source, xr.DataArray):
        source = xr.DataArray(np.ravel(source), dims=("presentation",))
    if "time_bin" in source.dims:
        parts = [
            _correct(source.isel(time_bin=bin), target)
            for bin in range(source.sizes["time_bin"])
        ]
        over_time = xr.concat(parts, "time_bin").transpose("presentation", "time_bin")
        edges = {
            n: ("time_bin", c.values)
            for n, c in source.coords.items()
            if c.dims == ("time_bin",)
        }
        correct = over_time.assign_coords(edges)
    else:
        correct = _correct(source, target)
    # People who saw the same stimuli are no items of a model's accuracy: only the stimuli of the samples are.
    alone = Variation({}, lambda _: correct)
    return Samples(
        correct, alone, limits=(0.0, 1.0), outcome=1 / correct.sizes["presentation"]
    )


def _correct(source: xr.DataArray, target: Any) -> xr.DataArray:
    truth = None
    if (
        isinstance(target, xr.DataArray)
        and "subject" in target.coords
        and "subject" not in target.dims
    ):
        ids = coordinate(target, "stimulus_id")
        if ids is not None and coordinate(target, *TRUTHS) is not None:
            twice = repeated(encode(ids).codes)
            if twice.size:
                target = target.isel(presentation=np.delete(np.arange(ids.size), twice))
        truth = coordinate(target, *TRUTHS)
    answers = choices(source)
    right = (
        np.asarray(truth)
        if truth is not None
        else np.asarray(getattr(target, "values", target)).ravel()
    )
    answers = answers[_rows(source, target, answers, right)]
    correct = same(answers, right).astype(np.float64)
    ids = (
        coordinate(target, "stimulus_id") if isinstance(target, xr.DataArray) else None
    )
    if ids is not None:
        coords = {"stimulus_id": ("presentation", ids)}
    else:
        coords = {}
    return xr.DataArray(correct, dims=("presentation",), coords=coords)


def _rows(
    source: xr.DataArray, target: Any, answers: Array, right: Array
) -> Indices | slice:
    if right.size == 0 or answers.size == 0:
        raise MetricError("there are no answers to compare")
    ids = (
        coordinate(target, "stimulus_id") if isinstance(target, xr.DataArray) else None
    )
    if ids is not None and right.size != ids.size:
        raise MetricError(
            f"the target has {right.size} answers for {ids.size} stimuli; give one for each"
        )
    model_ids = coordinate(source, "stimulus_id")
    if ids is None or model_ids is None:
        if answers.size != right.size:
            raise MetricError(
                f"{answers.size} answers against {right.size} targets, and no stimulus_id on both sides to match them"
            )
        return slice(None)
    if model_ids.size == ids.size and same(model_ids, ids).all():
        return slice(None)
    twice = repeated(encode(model_ids).codes)
    if twice.size:
        raise MetricError(
            f"stimulus {str(model_ids[twice[0]])!r} has several answers; keep one per stimulus"
        )
    rows = locate(ids, model_ids)
    if (rows < 0).any():
        raise MetricError(
            f"{int((rows < 0).sum())} stimuli have no answer, among them {str(ids[rows < 0][0])!r}"
        )
    return rows
