"""Whether two halves of the people confuse the same objects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats, Indices
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.confusions import (
    answers_and_truths,
    confusions,
    off_diagonal,
    rows_pearson,
)
from neuroledger.spec.registry import ceiling
from neuroledger.stats.spread import reweighted

__all__ = ["confusion_similarity"]

# Number of halves over which the influence of people is averaged.
HALVES = 20


@ceiling("confusion_similarity", version=1, input="behaviour")
def confusion_similarity(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    draws: Annotated[int, Field(ge=1)] = 100,
) -> xr.DataArray:
    """Return the corrected correlation of the off-diagonal confusions of random halves of the subjects: ``(draw,)``.

    The Spearman-Brown correction ``2r / (1 + r)`` is used because the metric compares with all people.

    Parameters
    ----------
    assembly
        Trials of people ``(presentation,)``: answers with ``subject`` and the right answers.
    draws
        Number of random halves.

    Raises
    ------
    CeilingError
        There are fewer than two subjects, or halves without confusions.
    """
    answers, truth = answers_and_truths(assembly, error=CeilingError)
    subject = coordinate(assembly, "subject", "subject_id")
    if subject is None:
        raise CeilingError("trials of people need the coordinate subject")
    people, labels = encode(subject), encode(truth).labels
    n = len(people.labels)
    if n < 2:
        raise CeilingError("one subject: halves of the people need at least two")
    counts = np.stack(
        [off_diagonal(confusions(answers[rows], truth[rows], labels)) for rows in _rows(people.codes, n)]
    )
    orders = [rng.permutation(n) for _ in range(draws)]

    def of_order(weights: Floats, order: Indices) -> Floats:
        first, second = (weights[:, half] @ counts[half] for half in (order[: n // 2], order[n // 2 :]))
        r = rows_pearson(first, second)
        return np.where(r > -1, 2 * r / (1 + r), np.nan)

    values = np.concatenate([of_order(np.ones((1, n)), order) for order in orders])
    if np.isnan(values).all():
        raise CeilingError("halves of the people confuse nothing, so there is no pattern to compare")

    def score(weights: Mapping[str, Floats]) -> Floats:
        scores = [of_order(weights["subject"], order) for order in orders[:HALVES]]
        return np.asarray(np.mean(scores, axis=0))

    influence = partial(reweighted, {"subject": people.labels}, score)
    return xr.DataArray(values, dims=("draw",), attrs={"influence": influence})


def _rows(
    codes: np.ndarray[tuple[int], np.dtype[np.intp]], n: int
) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    return [np.flatnonzero(codes == person) for person in range(n)]
