"""Whether a manipulation of the stimuli reduces the accuracy of the model as much as that of people."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.accuracy_drop import (
    drop_similarity,
    drops_of_model,
    drops_of_people,
    half_of,
    of_drops,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.spread import Influence

__all__ = ["accuracy_delta"]


# Draws of the similarity may be negative down to here: a similarity of 0 would otherwise hardly vary, although other stimuli
# might show a larger one. Determined with simulated experiments.
BELOW = -0.3


@metric("accuracy_delta", version=3, input="behaviour")
def accuracy_delta(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    rng: np.random.Generator,
    image_types: tuple[str, str] = ("w", "f"),
    by: str = "image_type",
    category: str = "animal",
    draws: Annotated[int, Field(ge=1)] = 100,
    subjects: Literal["all", "brainscore"] = "all",
) -> xr.DataArray:
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

    Returns
    -------
    xr.DataArray
        ``attrs["influence"]``: influence of stimuli and people on the mean, whose draws may be negative down to ``BELOW``.

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
    model, drops, names = float(of_model.values.mean()), people.values, people.names
    peer = subjects == "brainscore"
    values = np.empty(draws)
    halves = [half_of(names, peer=np.random.RandomState(i) if peer else None, rng=rng) for i in range(draws)]
    for i, members in enumerate(halves):
        half = float(drops[members].mean())
        if half == 0:
            raise MetricError(
                "half of the people lose no accuracy at all, so there is no loss to compare with"
            )
        values[i] = drop_similarity(model, half, signed=peer)

    def influence() -> Influence:
        return of_drops(
            (people, of_model),
            halves,
            lambda half, _, drop: drop_similarity(drop, half, signed=peer, least=BELOW),
        )

    return xr.DataArray(values, dims=("draw",), attrs={"influence": influence})
