"""Internal consistency: how well two halves of the repetitions agree, corrected to all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field

from neuroledger.core.registry import ceiling
from neuroledger.core.splits import Split
from neuroledger.errors import CeilingError

__all__ = ["internal_consistency"]

Floats = NDArray[np.float64]

# Columns are halved together while their repetitions stay below this many numbers.
TOGETHER = 16_000_000


class _Halves(NamedTuple):
    """Which presentations form each half: the halves as sets of rows, and where each row's stimulus is."""

    rows: NDArray[np.bool_]  # (2·split, row)
    stimulus: NDArray[np.intp]
    stimuli: int


@ceiling("internal_consistency", version=1)
def internal_consistency(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    repetitions: Literal["all"] | Annotated[int, Field(ge=2)] = "all",
    correction: Literal["spearman_brown", "none"] = "spearman_brown",
) -> xr.DataArray:
    """Split-half reliability of each neuroid.

    Every split divides the repetitions in two; each half is averaged per stimulus over the repetitions that are
    there, and the halves are correlated over stimuli. ``correction: spearman_brown`` gives ``2r / (1 + r)``, the
    reliability of all repetitions [spearman1910, brown1910]. ``repetitions`` uses only the first so many values of
    the coordinate that the splits divide; the splits are then drawn over those.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` or ``(presentation, neuroid, time_bin)`` with ``stimulus_id`` and ``repetition``,
        not averaged. Stimuli may have different numbers of repetitions, and values may be missing.

    Returns
    -------
    xr.DataArray
        Reliability ``(split, neuroid)`` or ``(time_bin, split, neuroid)``.

    Raises
    ------
    CeilingError
        There are no repetitions, or too few stimuli were repeated to correlate the halves.
    """
    dims = ("presentation", "neuroid", *(d for d in ("time_bin",) if d in assembly.dims))
    if set(dims) != set(assembly.dims):
        raise CeilingError(f"internal consistency needs ({', '.join(dims)}), not {tuple(assembly.dims)}")
    assembly = assembly.transpose(*dims)
    values = assembly.values.reshape(assembly.sizes["presentation"], -1)
    halves = _halves(assembly, splits)
    notes: list[str] = []
    r = np.concatenate([_agreement(part, halves, notes) for part in _parts(values)], axis=1)
    if not np.isfinite(r).any():
        raise CeilingError(
            "no neuroid varies over at least 3 stimuli that were repeated in both halves; "
            "a ceiling needs repeated presentations of the same stimuli"
        )
    negative = int((r < 0).sum())
    if negative and correction == "spearman_brown":
        notes.append(
            f"{negative} of {r.size} split-half correlations are negative, where the Spearman-Brown correction "
            "has no meaning as a reliability"
        )
    undefined = int(np.isnan(r).all(axis=0).sum())
    if undefined:
        notes.append(
            f"{undefined} of {r.shape[1]} neuroids have no reliability: constant or missing responses"
        )
    if correction == "spearman_brown":
        with np.errstate(divide="ignore", invalid="ignore"):
            r = np.where(r == -1, np.nan, 2 * r / (1 + r))
    return _labelled(r, assembly, notes)


def _halves(assembly: xr.DataArray, splits: Sequence[Split]) -> _Halves:
    count = assembly.sizes["presentation"]
    rows = np.zeros((2 * len(splits), count), bool)
    for at, split in enumerate(splits):
        rows[2 * at, split.train] = True
        rows[2 * at + 1, split.test] = True
    distinct, stimulus = np.unique(assembly["stimulus_id"].values.astype(str), return_inverse=True)
    if len(distinct) == count:
        raise CeilingError(
            f"no repetitions: each of the {count} stimuli was presented once, so nothing says how reliable "
            "the responses are; use an assembly with repetitions, or a ceiling that is a constant with a source"
        )
    return _Halves(rows, stimulus.ravel().astype(np.intp), len(distinct))


def _parts(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    width = max(1, TOGETHER // max(1, len(values)))
    for start in range(0, values.shape[1], width):
        yield values[:, start : start + width]


def _agreement(values: NDArray[Any], halves: _Halves, notes: list[str]) -> Floats:
    """Correlation over stimuli of the means of both halves (split × column)."""
    # Rows sorted so that those of one stimulus follow one another: means are then products with small matrices.
    from scipy.sparse import csr_array

    columns = values.shape[1]
    present = np.isfinite(values)
    complete = bool(present.all())
    filled = values.astype(np.float64) if complete else np.where(present, values, 0.0).astype(np.float64)
    half, row = np.nonzero(halves.rows)
    shape = (len(halves.rows) * halves.stimuli, len(values))
    members = csr_array(
        (np.ones(len(half)), (half * halves.stimuli + halves.stimulus[row], row)), shape=shape
    )
    total = members @ filled
    if complete:
        count = np.asarray(members.sum(axis=1), dtype=np.float64).reshape(-1, 1)
    else:
        count = members @ present.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (total / count).reshape(len(halves.rows) // 2, 2, halves.stimuli, columns)
    both = np.isfinite(mean).all(axis=1)
    if not both.all():
        pairs = both.sum(axis=1)
        note = f"stimuli without a response in both halves are left out: at least {int(pairs.min())} of {halves.stimuli} stay"
        if note not in notes:
            notes.append(note)
    return _correlation(mean[:, 0], mean[:, 1], both)


def _correlation(A: Floats, B: Floats, both: NDArray[np.bool_]) -> Floats:
    """Pearson correlation over axis 1 where both are there; NaN below 3 stimuli or without variation."""
    if not both.all():
        A, B = np.where(both, A, np.nan), np.where(both, B, np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        constant = (
            np.nanmax(np.where(both, A, -np.inf), axis=1) == np.nanmin(np.where(both, A, np.inf), axis=1)
        ) | (np.nanmax(np.where(both, B, -np.inf), axis=1) == np.nanmin(np.where(both, B, np.inf), axis=1))
        count = both.sum(axis=1, keepdims=True)
        A, B = (np.where(both, X, 0.0) for X in (A, B))
        A, B = (np.where(both, X - X.sum(axis=1, keepdims=True) / count, 0.0) for X in (A, B))
        r = (A * B).sum(axis=1) / np.sqrt((A * A).sum(axis=1) * (B * B).sum(axis=1))
    return np.where(constant | (count[:, 0] < 3), np.nan, r)


def _labelled(r: Floats, assembly: xr.DataArray, notes: list[str]) -> xr.DataArray:
    coords = {n: c for n, c in assembly.coords.items() if c.dims in (("neuroid",), ("time_bin",))}
    coords["split"] = xr.DataArray(np.arange(len(r)), dims="split")
    if "time_bin" not in assembly.dims:
        return xr.DataArray(r, dims=("split", "neuroid"), coords=coords, attrs={"notes": notes})
    shaped = r.reshape(len(r), assembly.sizes["neuroid"], assembly.sizes["time_bin"]).transpose(2, 0, 1)
    return xr.DataArray(shaped, dims=("time_bin", "split", "neuroid"), coords=coords, attrs={"notes": notes})
