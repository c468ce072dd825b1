"""Do two halves of the people confuse the same objects."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.confusions import answers_and_truths, confusions, off_diagonal
from neuroledger.families.behavior.tasks.discrimination import pearson
from neuroledger.spec.registry import ceiling

__all__ = ["confusion_similarity"]


@ceiling("confusion_similarity", version=1, input="behaviour")
def confusion_similarity(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    draws: Annotated[int, Field(ge=1)] = 100,
) -> xr.DataArray:
    """Correlation of the off-diagonal confusions of random halves of the subjects, corrected: ``(draw,)``.

    Spearman-Brown ``2r / (1 + r)``, since the metric compares with all people.

    Parameters
    ----------
    assembly
        Human trials ``(presentation,)``: answers with ``subject`` and the right answers.
    draws
        How many random halves.

    Raises
    ------
    CeilingError
        Fewer than two subjects, or halves without confusions.
    """
    answers, truth = answers_and_truths(assembly, error=CeilingError)
    subject = coordinate(assembly, "subject", "subject_id")
    if subject is None:
        raise CeilingError("trials of people need the coordinate subject")
    people, labels = encode(subject), encode(truth).labels
    n = len(people.labels)
    if n < 2:
        raise CeilingError("one subject: halves of the people need at least two")
    each = np.stack(
        [off_diagonal(confusions(answers[rows], truth[rows], labels)) for rows in _rows(people.codes, n)]
    )
    values = np.full(draws, np.nan)
    for i in range(draws):
        order = rng.permutation(n)
        r = pearson(each[order[: n // 2]].mean(axis=0), each[order[n // 2 :]].mean(axis=0))
        values[i] = 2 * r / (1 + r) if r > -1 else np.nan
    if np.isnan(values).all():
        raise CeilingError("halves of the people confuse nothing, so there is no pattern to compare")
    return xr.DataArray(values, dims=("draw",), attrs={"replicates": values})


def _rows(
    codes: np.ndarray[tuple[int], np.dtype[np.intp]], n: int
) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    return [np.flatnonzero(codes == person) for person in range(n)]
