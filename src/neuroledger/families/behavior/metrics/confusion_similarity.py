"""Whether the model confuses the same objects as people."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans
from neuroledger.data.factorize import encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.confusions import (
    answers_and_truths,
    cells_of,
    confusions,
    off_diagonal,
)
from neuroledger.families.behavior.agreement.trial_items import TrialItems, ids_of
from neuroledger.families.behavior.tasks.discrimination import pearson
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples, Variation

__all__ = ["confusion_similarity"]


@metric("confusion_similarity", version=1, input="behaviour")
def confusion_similarity(source: xr.DataArray, target: xr.DataArray) -> Samples:
    """Return the Pearson correlation of the off-diagonal entries of two confusion matrices: ``()``.

    Parameters
    ----------
    source
        Model behaviour: probabilities ``(presentation, choice)`` (the most probable choice is the answer) or
        labels ``(presentation,)``, with the right answers as ``truth`` or ``image_label``.
    target
        Trials of people ``(presentation,)``: answers as values or as the coordinate ``prediction``, with right answers.

    Raises
    ------
    MetricError
        Objects differ between the sides, or one side confuses all pairs equally often.

    Notes
    -----
    Maniquet et al. (2024). Counts, not rates: the sides may have different numbers of presentations.
    """
    model, model_truth = answers_and_truths(source)
    people, truth = answers_and_truths(target)
    has_choices = "choice" in source.dims and source.sizes["choice"] > 1
    labels = encode(
        source["choice"].values if has_choices else np.concatenate([model, model_truth])
    ).labels
    known = encode(truth).labels
    if set(map(str, labels.tolist())) != set(map(str, known.tolist())):
        unshared = sorted(
            set(map(str, labels.tolist())) ^ set(map(str, known.tolist()))
        )
        raise MetricError(
            f"model and people do not have the same objects; only one side has {', '.join(unshared[:3])}"
        )
    cells = [cells_of(a, t, labels) for a, t in ((people, truth), (model, model_truth))]
    trials = TrialItems.of(
        [ids_of(target), (ids_of(source)[0], None)], list(map(len, cells))
    )

    def correlation(rows: list[Booleans]) -> xr.DataArray:
        counts = [
            confusions(side[stay], len(labels))
            for side, stay in zip(cells, rows, strict=True)
        ]
        return xr.DataArray(pearson(off_diagonal(counts[0]), off_diagonal(counts[1])))

    value = correlation(trials.rows({}))
    if value.isnull():
        raise MetricError(
            "one side confuses every pair of objects equally often (or never), or there are only two objects: no correlation"
        )
    # The model may have answered stimuli that people did not see, and the other way around.
    return Samples(
        value, Variation(trials.items, lambda keep: correlation(trials.rows(keep)))
    )
