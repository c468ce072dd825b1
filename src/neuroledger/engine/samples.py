"""Samples and predictions of scores, stored for later analysis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import xarray as xr

from neuroledger.data.assembly import read, write
from neuroledger.errors import AssemblyError
from neuroledger.stats.score import Score
from neuroledger.store.store import Store, Written, open_store

__all__ = [
    "keep_samples",
    "predictions_of",
    "samples_of",
    "states_of_samples",
]

KIND: Final = "samples"
SAMPLES: Final = "samples"
PREDICTIONS: Final = "predictions"


def keep_samples(root: Path, job: str, scores: Mapping[str, Score]) -> None:
    """Store the samples (and predictions) of each score of the job with identity ``job``.

    They are not part of the record: they stay on this machine and can be recomputed.

    Raises
    ------
    DataError
        The disk is full or read-only.
    """
    store = open_store(root)
    for metric, score in scores.items():
        if score.samples is None:
            continue
        if score.predictions is None:
            arrays = {}
        else:
            arrays = {PREDICTIONS: _plain(score.predictions)}
        if score.samples.dims:
            arrays[SAMPLES] = _plain(score.samples)
        if arrays:
            store.make_room(sum(array.nbytes for array in arrays.values()))
            store.put(KIND, _key(job, metric), partial(_write, arrays))


def _write(arrays: Mapping[str, xr.DataArray], folder: Path) -> Written:
    for part, array in arrays.items():
        write(array, folder / f"{part}.nc")
    return Written()


def _key(job: str, metric: str) -> dict[str, str]:
    return {"job": job, "metric": metric}


def _plain(array: xr.DataArray) -> xr.DataArray:
    """Return the array without attributes and without coordinates that netCDF cannot store."""
    plain = array.copy()
    plain.attrs = {}
    return plain.drop_vars(
        [
            name
            for name, c in plain.coords.items()
            if c.ndim != 1 or (c.dtype.kind == "O" and _mixed(c))
        ]
    )


def _mixed(coordinate: xr.DataArray) -> bool:
    return len({type(value) for value in coordinate.values.ravel().tolist()}) > 1


def samples_of(root: Path, job: str, metric: str) -> xr.DataArray | None:
    """Return the stored samples, or None."""
    return _stored(root, job, metric, SAMPLES)


def predictions_of(root: Path, job: str, metric: str) -> xr.DataArray | None:
    """Return the stored predictions and truth, or None."""
    return _stored(root, job, metric, PREDICTIONS)


def states_of_samples(store: Store, wanted: Iterable[tuple[str, str]]) -> list[str]:
    """Return, of each job and metric, a text that changes whenever the stored samples change; empty without any."""
    return store.states(KIND, (_key(job, metric) for job, metric in wanted))


def _stored(root: Path, job: str, metric: str, part: str) -> xr.DataArray | None:
    entry = open_store(root).get(KIND, _key(job, metric))
    path = None if entry is None else entry.place / f"{part}.nc"
    try:
        if path is not None and path.is_file():
            return read(path)
        return None
    except AssemblyError:  # removed by a process that needed room
        return None
