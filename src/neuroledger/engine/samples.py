"""Samples of a score and its predictions, kept in the store for whoever analyses them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

import xarray as xr

from neuroledger.data.assembly import read, write
from neuroledger.errors import AssemblyError
from neuroledger.stats.score import Score
from neuroledger.store.store import Written, open_store

__all__ = ["keep_samples", "predictions_of", "samples_of"]

KIND: Final = "samples"
SAMPLES: Final = "samples"
PREDICTIONS: Final = "predictions"


def keep_samples(root: Path, job: str, scores: Mapping[str, Score]) -> None:
    """Keep the samples (and predictions) of each score of the job with identity ``job``.

    They are not part of the record: they can be computed again at any time, and stay on this machine.

    Raises
    ------
    DataError
        The disk is full or read-only.
    """
    store = open_store(root)
    for metric, score in scores.items():
        if score.samples is None:
            continue
        predicted = score.samples.attrs.get(PREDICTIONS)
        arrays = {PREDICTIONS: _plain(predicted)} if isinstance(predicted, xr.DataArray) else {}
        if score.samples.dims:
            arrays[SAMPLES] = _plain(score.samples)
        if arrays:
            store.make_room(sum(array.nbytes for array in arrays.values()))
            store.put(KIND, _made_of(job, metric), partial(_write, arrays))


def _write(arrays: Mapping[str, xr.DataArray], folder: Path) -> Written:
    for part, array in arrays.items():
        write(array, folder / f"{part}.nc")
    return Written()


def _made_of(job: str, metric: str) -> dict[str, str]:
    return {"job": job, "metric": metric}


def _plain(array: xr.DataArray) -> xr.DataArray:
    """The array without attributes and without coordinates that a file cannot hold."""
    plain = array.copy()
    plain.attrs = {}
    return plain.drop_vars(
        [name for name, c in plain.coords.items() if c.ndim != 1 or (c.dtype.kind == "O" and _mixed(c))]
    )


def _mixed(coordinate: xr.DataArray) -> bool:
    return len({type(value) for value in coordinate.values.ravel().tolist()}) > 1


def samples_of(root: Path, job: str, metric: str) -> xr.DataArray | None:
    """The samples that were kept, or None."""
    return _kept(root, job, metric, SAMPLES)[0]


def predictions_of(root: Path, job: str, metric: str) -> xr.DataArray | None:
    """The predictions that were kept, with the truth beside them, or None."""
    return _kept(root, job, metric, PREDICTIONS)[0]


def _kept(root: Path, job: str, metric: str, *parts: str) -> list[xr.DataArray | None]:
    entry = open_store(root).get(KIND, _made_of(job, metric))
    found: list[xr.DataArray | None] = []
    for part in parts:
        path = entry.place / f"{part}.nc" if entry is not None else None
        try:
            found.append(read(path) if path is not None and path.is_file() else None)
        except AssemblyError:  # removed by a process that needed room
            found.append(None)
    return found
