"""Whether two halves of the people confuse the same objects."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.confusions import (
    answers_and_truths,
    cells_of,
    off_diagonal,
    rows_pearson,
)
from neuroledger.families.behavior.agreement.trial_items import TrialItems, ids_of
from neuroledger.families.fields import AtLeastOne
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples, Variation

__all__ = ["confusion_similarity"]


@ceiling("confusion_similarity", version=1, input="behaviour")
def confusion_similarity(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    draws: AtLeastOne = 100,
) -> Samples:
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
    people = encode(subject)
    labels = encode(truth).labels
    n = len(people.labels)
    if n < 2:
        raise CeilingError("one subject: halves of the people need at least two")
    cells = cells_of(answers, truth, labels)
    orders = [rng.permutation(n) for _ in range(draws)]
    trials = TrialItems.of([(ids_of(assembly)[0], subject)], [len(cells)])

    def of_halves(rows: Booleans) -> xr.DataArray:
        stay = rows & (cells >= 0)
        counts = _of_people(people.codes[stay], cells[stay], n, len(labels))
        first, second = (
            np.stack([counts[half].sum(axis=0) for half in halves])
            for halves in (
                [order[: n // 2] for order in orders],
                [order[n // 2 :] for order in orders],
            )
        )
        r = rows_pearson(first, second)
        return xr.DataArray(np.where(r > -1, 2 * r / (1 + r), np.nan), dims=("draw",))

    values = of_halves(np.ones(len(cells), dtype=bool))
    if values.isnull().all():
        raise CeilingError(
            "halves of the people confuse nothing, so there is no pattern to compare"
        )
    # The halves are those of all people, without the people that are left out.
    return Samples(
        values, Variation(trials.items, lambda keep: of_halves(trials.rows(keep)[0]))
    )


def _of_people(person: Indices, cells: Indices, people: int, size: int) -> Floats:
    """Return the off-diagonal confusions of each person, (person, cell)."""
    counts = np.bincount(person * size**2 + cells, minlength=people * size**2)
    return np.stack(
        list(map(off_diagonal, counts.reshape(people, size, size).astype(np.float64)))
    )
