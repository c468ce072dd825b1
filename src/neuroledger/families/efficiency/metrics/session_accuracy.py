"""Accuracy after each session of incremental learning."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.efficiency import examples
from neuroledger.families.same_rows import require_same_rows
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples

__all__ = ["session_accuracy"]


@metric(
    "session_accuracy", version=1, input="predictions", example=examples.of_sessions
)
def session_accuracy(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    of: Literal["all", "base", "new"] = "all",
) -> Samples:
    """Share of correct answers after each session, ``(session,)``, over all classes seen so far [yik2025].

    Parameters
    ----------
    source
        Scores ``(presentation, choice)``, minus infinity for classes not seen yet; the highest is the answer.
    target
        True labels ``(presentation,)`` of the same rows, with the coordinates ``session`` (in which a row was tested)
        and ``introduced`` (the session that introduced its class).
    of
        ``all`` rows; ``base``: only the first session, before classes were added; ``new``: in every later session,
        only the classes that it introduced.

    Raises
    ------
    MetricError
        Rows do not match, a coordinate is missing, a score is NaN, or no row is left.
    """
    if "choice" not in source.dims:
        raise MetricError(
            "session accuracy needs scores (presentation, choice) for the rows of the truth"
        )
    require_same_rows(source, target)
    missing = [name for name in ("session", "introduced") if name not in target.coords]
    if missing:
        raise MetricError(
            f"the truth has no coordinate {missing[0]!r}: the task is not incremental learning"
        )
    scores = source.transpose("presentation", "choice").values
    if np.isnan(scores).any():
        raise MetricError(
            f"{int(np.isnan(scores).sum())} scores are NaN: the model diverged"
        )
    choices = as_text(source["choice"].values)
    right = choices[scores.argmax(axis=1)] == as_text(target.values)
    session = target["session"].values.astype(int)
    introduced = target["introduced"].values.astype(int)
    selected = np.ones(len(right), dtype=bool)
    if of == "base":
        selected = session == 0
    elif of == "new":
        selected = (session > 0) & (introduced == session)
    numbers = np.unique(session[selected])
    if not numbers.size:
        raise MetricError("there are no answers to compare")
    values = [float(right[selected & (session == number)].mean()) for number in numbers]
    samples = xr.DataArray(values, dims=("session",), coords={"session": numbers})
    return Samples(
        samples,
        outcome=1 / int(selected.sum()),
        counts={"answers": int(selected.sum()), "sessions": len(numbers)},
    )
