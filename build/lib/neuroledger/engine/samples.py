"""Per-neuroid, per-split samples of a score, kept beside the activations: what paired comparisons need."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import xarray as xr

from neuroledger.core.assembly import read, write
from neuroledger.core.score import Score
from neuroledger.errors import AssemblyError, DataError

__all__ = ["keep_samples", "samples_of"]


def _path(root: Path, job: str, metric: str) -> Path:
    return root / ".cache" / "samples" / job[:2] / job / f"{metric}.nc"


def keep_samples(root: Path, job: str, scores: Mapping[str, Score]) -> None:
    """Write the samples of each score of the job with identity ``job``; they can be computed again at any time.

    Raises
    ------
    DataError
        The disk is full or read-only.
    """
    for metric, score in scores.items():
        if score.samples is None or not score.samples.dims:
            continue
        plain = score.samples.copy()
        plain.attrs = {}
        plain = plain.drop_vars(
            [name for name, c in plain.coords.items() if c.ndim != 1 or (c.dtype.kind == "O" and _mixed(c))]
        )
        path = _path(root, job, metric)
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
    path = _path(root, job, metric)
    if not path.is_file():
        return None
    try:
        return read(path)
    except AssemblyError:
        return None
