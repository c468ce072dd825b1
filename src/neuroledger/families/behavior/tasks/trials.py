"""Encode the trials of a two-choice object task: the shown, offered and chosen object for each image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Indices
from neuroledger.data.factorize import (
    Coded,
    coordinate,
    encode,
    first_rows,
    locate,
    words,
)
from neuroledger.data.threads import pool
from neuroledger.errors import MetricError
from neuroledger.families.behavior.tasks.discrimination import (
    cells,
    counts_of_cells,
    rates_from_cells,
    rates_from_counts,
)

__all__ = ["ObjectTrials", "read_trials"]

Words = npt.NDArray[np.unsignedinteger[Any]] | None


@dataclass(frozen=True)
class ObjectTrials:
    """Trials as codes: ``image`` refers to ``images``; ``choice``, ``sample``, ``distractor``, ``truth`` to ``objects``."""

    image: Indices
    choice: Indices
    sample: Indices
    distractor: Indices
    images: Array
    objects: Array
    truth: Indices

    def rates(self, rows: Indices) -> Floats:
        """Return distractor rates ``(image, object)`` from some of the trials."""
        return rates_from_cells(self._cells, self.truth, len(self.objects), rows)

    def rates_of_both(self, rows: Indices) -> tuple[Floats, Floats]:
        """Return distractor rates from some of the trials and from all others, whose counts are obtained by subtraction."""
        choices = len(self.objects)
        some = counts_of_cells(self._cells, self.truth.size * choices, rows)
        return (
            rates_from_counts(some, self.truth, choices),
            rates_from_counts(self._counts - some, self.truth, choices),
        )

    @cached_property
    def _counts(self) -> Indices:
        return counts_of_cells(self._cells, self.truth.size * len(self.objects))

    @cached_property
    def _cells(self) -> Indices:
        return cells(
            self.image, self.choice, self.sample, self.distractor, len(self.objects)
        )


def read_trials(
    assembly: xr.DataArray,
    *,
    objects: object = None,
    error: type[MetricError] = MetricError,
) -> ObjectTrials:
    """Encode trials of people: chosen objects ``(presentation,)`` with the coordinates of a two-choice task.

    Parameters
    ----------
    assembly
        Choices, with ``stimulus_id``, ``sample_obj`` and ``dist_obj`` (the two offered objects) and ``truth``
        (by default ``sample_obj``).
    objects
        Allowed objects, in the order of the result; by default all that occur.

    Raises
    ------
    MetricError
        Trials or a coordinate are missing, an object is not in ``objects``, or an image has two truths.
    """
    choices = np.asarray(assembly.values).ravel()
    if choices.size < 2:
        raise error(
            f"{choices.size} trials: an object task needs trials of people to compare with"
        )
    columns = {}
    for name, alternatives in {
        "stimulus_id": (),
        "sample_obj": (),
        "dist_obj": (),
        "truth": ("sample_obj",),
    }.items():
        values = coordinate(assembly, name, *alternatives)
        if values is None or values.size != choices.size:
            raise error(
                f"trials have no coordinate {name!r}; each trial needs stimulus_id, sample_obj, dist_obj"
            )
        columns[name] = values
    # NumPy compares text without Python's lock, so the offered objects are encoded in parallel with the image ids.
    offer = pool().submit(_encode_offer, choices, columns)
    ids = encode(columns["stimulus_id"])
    coded = _objects(choices, columns, ids, offer.result())
    if objects is None:
        objects = encode(
            np.concatenate(
                [np.asarray(column.labels, dtype=object) for column in coded.values()]
            )
        ).labels
    codes = {
        name: _codes_in(column, objects, name, error) for name, column in coded.items()
    }
    truth = codes["truth"][first_rows(ids.codes, len(ids.labels))]
    inconsistent = np.flatnonzero(truth[ids.codes] != codes["truth"])
    if inconsistent.size:
        raise error(
            f"image {ids.labels[ids.codes[inconsistent[0]]]!r} has trials with different truths; correct the trials"
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


def _encode_offer(
    choices: Array, columns: Mapping[str, Array]
) -> tuple[Coded, Booleans | None]:
    """Return the encoded distractors, and where the sample was chosen (``None`` if some choice is neither object)."""
    sample, other = (
        words(np.asarray(columns[name]).ravel()) for name in ("sample_obj", "dist_obj")
    )
    return encode(columns["dist_obj"]), _chosen(words(choices), sample, other)


def _objects(
    choices: Array,
    columns: Mapping[str, Array],
    ids: Coded,
    offer: tuple[Coded, Booleans | None],
) -> dict[str, Coded]:
    """Encode the four columns of objects.

    In most experiments the image determines the shown object, ``truth`` equals it, and the choice is one of the two
    offered objects. Checking this is much faster than encoding each column, which is done only if a check fails.
    """
    distractor, right = offer
    encoded = {"dist_obj": distractor}
    sample, truth = (
        words(np.asarray(columns[name]).ravel()) for name in ("sample_obj", "truth")
    )
    if sample is not None:
        first = first_rows(ids.codes, len(ids.labels))
        if np.array_equal(sample[first].take(ids.codes, axis=0), sample):
            distinct = encode(columns["sample_obj"][first])
            encoded["sample_obj"] = Coded(distinct.codes[ids.codes], distinct.labels)
    if "sample_obj" not in encoded:
        encoded["sample_obj"] = encode(columns["sample_obj"])
    same = truth is not None and sample is not None and np.array_equal(truth, sample)
    encoded["truth"] = encoded["sample_obj"] if same else encode(columns["truth"])
    if right is None:
        encoded["choice"] = encode(choices)
    else:
        labels = encode(
            np.concatenate([encoded["sample_obj"].labels, distractor.labels])
        ).labels
        sample_codes, distractor_codes = (
            _moved(encoded[name], locate(encoded[name].labels, labels))
            for name in ("sample_obj", "dist_obj")
        )
        encoded["choice"] = Coded(
            np.where(right, sample_codes, distractor_codes), labels
        )
    return encoded


def _moved(coded: Coded, places: Indices) -> Indices:
    """Return the codes of a column after moving its labels to ``places``; the same array if no label moved."""
    if np.array_equal(places, np.arange(len(places))):
        return coded.codes
    return places[coded.codes]


def _chosen(chosen: Words, sample: Words, distractor: Words) -> Booleans | None:
    """Return where the sample was chosen, or ``None`` if some choice is not one of the two offered objects."""
    if chosen is None or sample is None or distractor is None:
        return None
    if not chosen.shape == sample.shape == distractor.shape:
        return None
    differs = chosen[:, 0] ^ sample[:, 0]
    for column in range(1, chosen.shape[1]):
        differs |= chosen[:, column] ^ sample[:, column]
    rows = np.flatnonzero(differs)
    if not np.array_equal(chosen.take(rows, axis=0), distractor.take(rows, axis=0)):
        return None
    equal: Booleans = differs == 0
    return equal


def _codes_in(
    coded: Coded, objects: object, column: str, error: type[MetricError]
) -> Indices:
    places = locate(coded.labels, objects)
    if (places < 0).any():
        absent = ", ".join(map(repr, coded.labels[places < 0][:3].tolist()))
        raise error(
            f"{column} {absent} is not among the model's choices; both sides must know the same objects"
        )
    return _moved(coded, places)
