"""Samples of a score, its predictions and how it is resampled, kept beside the activations for later comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import xarray as xr

from neuroledger.data.assembly import read, write
from neuroledger.errors import AssemblyError, DataError
from neuroledger.stats.score import Score

__all__ = ["Resampled", "keep_samples", "predictions_of", "resampled_of", "samples_of"]

PREDICTIONS = ".predictions"


class Resampled(NamedTuple):
    """A score of predictions under resampling of what was drawn independently, (draw,), and of each of these, (cluster,).

    Both are raw: before a floor normalises them.
    """

    draws: xr.DataArray
    clusters: xr.DataArray


def _path(root: Path, job: str, metric: str) -> Path:
    return root / ".cache" / "samples" / job[:2] / job / f"{metric}.nc"


def keep_samples(root: Path, job: str, scores: Mapping[str, Score]) -> None:
    """Write the samples (and predictions) of each score of the job with identity ``job``.

    They are not part of the record: they can be computed again at any time, and stay on this machine.

    Raises
    ------
    DataError
        The disk is full or read-only.
    """
    for metric, score in scores.items():
        if score.samples is None:
            continue
        predictions = score.samples.attrs.get("predictions")
        if isinstance(predictions, xr.DataArray):
            _keep(predictions, _path(root, job, metric + PREDICTIONS))
        for part in Resampled._fields:
            kept = score.samples.attrs.get(part)
            if isinstance(kept, xr.DataArray):
                _keep(kept, _path(root, job, f"{metric}.{part}"))
        if score.samples.dims:
            _keep(score.samples, _path(root, job, metric))


def _keep(array: xr.DataArray, path: Path) -> None:
    plain = array.copy()
    plain.attrs = {}
    plain = plain.drop_vars(
        [name for name, c in plain.coords.items() if c.ndim != 1 or (c.dtype.kind == "O" and _mixed(c))]
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(plain, path)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror}); free space or rights on that disk"
        ) from error


def _mixed(coordinate: xr.DataArray) -> bool:
    return len({type(value) for value in coordinate.values.ravel().tolist()}) > 1


def samples_of(root: Path, job: str, metric: str) -> xr.DataArray | None:
    """The samples that were kept, or None."""
    return _kept(_path(root, job, metric))


def predictions_of(root: Path, job: str, metric: str) -> xr.DataArray | None:
    """The predictions that were kept, with the truth beside them, or None."""
    return _kept(_path(root, job, metric + PREDICTIONS))


def resampled_of(root: Path, job: str, metric: str) -> Resampled | None:
    """How the score of predictions was resampled, if that was kept."""
    parts = [_kept(_path(root, job, f"{metric}.{part}")) for part in Resampled._fields]
    return Resampled(parts[0], parts[1]) if parts[0] is not None and parts[1] is not None else None


def _kept(path: Path) -> xr.DataArray | None:
    if not path.is_file():
        return None
    try:
        return read(path)
    except AssemblyError:
        return None
