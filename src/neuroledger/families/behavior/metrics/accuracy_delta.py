"""Whether a manipulation of the stimuli reduces the accuracy of the model as much as that of people."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.agreement.accuracies import over_conditions
from neuroledger.families.behavior.agreement.accuracy_drop import (
    drop_similarity,
    drops_of_model,
    drops_of_people,
    half_of,
    means_of_halves,
    trials_of,
)
from neuroledger.families.fields import AtLeastOne
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["accuracy_delta"]


@metric(
    "accuracy_delta", version=3, input="behaviour", example=examples.of_changed_images
)
def accuracy_delta(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    rng: np.random.Generator,
    image_types: tuple[str, str] = ("w", "f"),
    by: str = "image_type",
    category: str = "animal",
    draws: AtLeastOne = 100,
    subjects: Literal["all", "brainscore"] = "all",
) -> Samples:
    """Return the similarity of the losses of accuracy, for each random half of the people: ``(draw,)``.

    With the losses ``m`` of the model and ``h`` of half of the people, ``max(1 − |h − m| / |h|, 0)``.

    Parameters
    ----------
    source
        Model behaviour: labels ``(presentation,)`` with the coordinates ``by`` and ``category`` (the truth). The
        model's accuracy is averaged over categories.
    target
        Trials of people ``(presentation,)``: correct or not (0, 1; or labels with a truth), with ``subject`` and
        ``by``. The loss of people is the mean over subjects.
    image_types
        Values of ``by``: the intact stimuli, then the manipulated ones.
    draws
        Number of random halves of the subjects.
    subjects
        ``all``: halves of all subjects, drawn with the seed of the request. ``brainscore``: Brain-Score's draws from
        subjects numbered from 1, which never include the last one; the divisor is then ``h`` instead of ``|h|``.

    Raises
    ------
    MetricError
        A condition is missing, there are fewer than two subjects, or people lose no accuracy.

    Notes
    -----
    Baker and Elder (2022).
    """
    of_model = drops_of_model(source, image_types, by=by, category=category)
    people = drops_of_people(target, image_types, by=by)
    peer = subjects == "brainscore"
    halves = [
        half_of(people.names, peer=np.random.RandomState(i) if peer else None, rng=rng)
        for i in range(draws)
    ]

    def similarity(of_people: Floats, drops: Floats) -> xr.DataArray:
        half = means_of_halves(of_people, halves)[:, 0]
        return xr.DataArray(
            drop_similarity(over_conditions(drops), half, signed=peer), dims=("draw",)
        )

    if (means_of_halves(people.values, halves)[:, 0] == 0).any():
        raise MetricError(
            "half of the people lose no accuracy at all, so there is no loss to compare with"
        )
    trials = trials_of(people, of_model)

    def without(keep: Keep) -> xr.DataArray:
        of_people, rows = trials.rows(keep)
        return similarity(people.of(of_people), of_model.of(rows))

    # The halves are those of all people, without the people that are left out.
    return Samples(
        similarity(people.values, of_model.values), Variation(trials.items, without)
    )
