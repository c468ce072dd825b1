"""Trials of a two-choice object task, encoded: which object was shown, offered and chosen for which image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.core.behaviour.discrimination import rates_from_trials
from neuroledger.core.coding import Coded, coordinate, encode, locate
from neuroledger.errors import MetricError

__all__ = ["ObjectTrials", "read_trials"]

Codes = npt.NDArray[np.intp]


@dataclass(frozen=True)
class ObjectTrials:
    """Trials as codes: ``image`` into ``images``, ``choice``/``sample``/``distractor`` and ``truth`` into ``objects``."""

    image: Codes
    choice: Codes
    sample: Codes
    distractor: Codes
    images: npt.NDArray[Any]
    objects: npt.NDArray[Any]
    truth: Codes

    def rates(self, rows: Codes) -> npt.NDArray[np.float64]:
        """Distractor rates ``(image, object)`` from some of the trials."""
        return rates_from_trials(
            self.image[rows],
            self.choice[rows],
            self.sample[rows],
            self.distractor[rows],
            self.truth,
            len(self.objects),
        )


def read_trials(
    assembly: xr.DataArray, *, objects: Any = None, error: type[MetricError] = MetricError
) -> ObjectTrials:
    """Encode human trials: ``(presentation,)`` chosen objects with the coordinates of a two-choice task.

    Parameters
    ----------
    assembly
        Choices, with ``stimulus_id``, ``sample_obj`` and ``dist_obj`` (the two objects on offer) and ``truth``
        (``sample_obj`` where there is no ``truth``).
    objects
        Allowed objects in the order of the result; by default all that occur.

    Raises
    ------
    MetricError
        No trials, a missing coordinate, an object outside ``objects``, or an image with two truths.
    """
    choices = np.asarray(assembly.values).ravel()
    if choices.size < 2:
        raise error(f"{choices.size} trials: an object task needs trials of people to compare with")
    columns = {}
    for name, others in {
        "stimulus_id": (),
        "sample_obj": (),
        "dist_obj": (),
        "truth": ("sample_obj",),
    }.items():
        found = coordinate(assembly, name, *others)
        if found is None or found.size != choices.size:
            raise error(
                f"trials have no coordinate {name!r}; each trial needs stimulus_id, sample_obj, dist_obj"
            )
        columns[name] = found
    ids = encode(columns["stimulus_id"])
    coded = {name: encode(columns[name]) for name in ("sample_obj", "dist_obj", "truth")} | {
        "choice": encode(choices)
    }
    if objects is None:
        objects = encode(
            np.concatenate([np.asarray(one.labels, dtype=object) for one in coded.values()])
        ).labels
    codes = {name: _into(one, objects, name, error) for name, one in coded.items()}
    truth = np.empty(len(ids.labels), dtype=np.intp)
    truth[ids.codes] = codes["truth"]
    torn = np.flatnonzero(truth[ids.codes] != codes["truth"])
    if torn.size:
        raise error(
            f"image {ids.labels[ids.codes[torn[0]]]!r} has trials with different truths; correct the trials"
        )
    return ObjectTrials(
        ids.codes,
        codes["choice"],
        codes["sample_obj"],
        codes["dist_obj"],
        ids.labels,
        np.asarray(objects),
        truth,
    )


def _into(coded: Coded, objects: Any, column: str, error: type[MetricError]) -> Codes:
    places = locate(coded.labels, objects)
    if (places < 0).any():
        absent = ", ".join(map(repr, coded.labels[places < 0][:3].tolist()))
        raise error(
            f"{column} {absent} is not among the model's choices; both sides must know the same objects"
        )
    return places[coded.codes]
