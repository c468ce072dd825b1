"""Predictor consistency: split-half reliability for stimuli with different numbers of repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np
import xarray as xr
from pydantic import NonNegativeInt

from neuroledger.data.arrays import Booleans, Floats, Indices, Reals, floats
from neuroledger.data.factorize import encode
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.halves import halves_without_groups
from neuroledger.families.alignment.similarity.scale import moderate_columns
from neuroledger.families.fields import AtLeastOne
from neuroledger.spec.registry import ceiling
from neuroledger.stats.reliability import of_all
from neuroledger.stats.samples import Keep, Samples, Variation

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["predictor_consistency"]

FEWEST_STIMULI = 10
# Maximum number of values in the columns that are processed at a time.
TOGETHER = 2_000_000


@ceiling("predictor_consistency", version=5)
def predictor_consistency(
    assembly: xr.DataArray,
    *,
    halves: AtLeastOne = 10,
    seed: NonNegativeInt = 0,
    by: str = "stimulus_id",
    correction: Literal["horst", "spearman_brown"] = "horst",
) -> Samples:
    """Reliability of each neuroid, from halves drawn separately for every stimulus.

    For each of ``halves`` draws and each value of ``by`` in sorted order, the distinct repetitions of that stimulus
    are permuted and divided in two (the smaller half first); halves are averaged, correlated over stimuli, and
    corrected to all repetitions [horst1951]; ``spearman_brown`` assumes equal halves. Stimuli with one repetition are
    left out.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``repetition``, not averaged.

    Returns
    -------
    Samples
        Reliability ``(split, neuroid)``. Without some stimuli, the halves of the others stay.

    Raises
    ------
    CeilingError
        A coordinate is missing, or fewer than 10 stimuli were repeated.
    """
    for name in (by, "repetition"):
        if name not in assembly.coords:
            hint = (
                "; it has 'image_id': by='image_id'"
                if name == by and "image_id" in assembly.coords
                else ""
            )
            raise CeilingError(
                f"predictor consistency needs the coordinate {name!r}, the assembly has none{hint}"
            )
    if set(assembly.dims) != {"presentation", "neuroid"}:
        raise CeilingError(
            f"predictor consistency needs (presentation, neuroid), not {tuple(assembly.dims)}"
        )
    values = moderate_columns(assembly.transpose("presentation", "neuroid").values)
    stimulus = encode(assembly[by].values).codes
    repetition = encode(assembly["repetition"].values).codes
    order = np.argsort(stimulus, kind="stable")
    bounds = np.flatnonzero(np.diff(stimulus[order])) + 1
    groups = [(rows, np.unique(repetition[rows])) for rows in np.split(order, bounds)]
    repeated = [
        (rows, repetitions) for rows, repetitions in groups if len(repetitions) > 1
    ]
    if len(repeated) < FEWEST_STIMULI:
        raise CeilingError(
            f"{len(repeated)} of {len(groups)} stimuli were repeated; predictor consistency needs {FEWEST_STIMULI}"
        )
    notes = []
    if len(repeated) < len(groups):
        notes.append(
            f"{len(groups) - len(repeated)} of {len(groups)} stimuli left out: presented once"
        )
    rng = np.random.default_rng(seed)
    draws = [_halves(len(values), repetition, repeated, rng) for _ in range(halves)]
    width = max(1, TOGETHER // len(values))
    parts = [
        values[:, start : start + width] for start in range(0, values.shape[1], width)
    ]
    result = np.concatenate(
        [
            np.stack([_correlation(*pair) for pair in _means(part, draws)])
            for part in parts
        ],
        axis=1,
    )
    counts = np.array([[half.sum(axis=1) for half in pair] for pair in draws])
    ids = np.asarray([assembly[by].values[rows[0]] for rows, _ in repeated]).astype(str)

    def corrected(r: Floats, keep: Booleans | slice = slice(None)) -> Floats:
        if correction == "horst":
            return of_all(r, counts[:, 0, keep], counts[:, 1, keep])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(r == -1, np.nan, 2 * r / (1 + r))

    coords = {n: c for n, c in assembly.coords.items() if c.dims == ("neuroid",)}
    coords["split"] = xr.DataArray(np.arange(halves), dims="split")
    samples = xr.DataArray(corrected(result), dims=("split", "neuroid"), coords=coords)

    def without_each(codes: Indices, count: int) -> Floats:
        of_parts = [
            np.stack(
                [
                    halves_without_groups(*pair, codes, count)
                    for pair in _means(part, draws)
                ],
                axis=1,
            )
            for part in parts
        ]
        left = np.concatenate(of_parts, axis=2)  # (group, split, neuroid)
        return np.stack(
            [corrected(left[group], codes != group) for group in range(count)]
        )

    def each(_: str, codes: Indices) -> Floats:
        return without_each(codes, int(codes.max()) + 1)

    def without(keep: Keep) -> xr.DataArray:
        return samples.copy(data=without_each(np.where(keep["stimulus"], -1, 0), 1)[0])

    return Samples(samples, Variation({"stimulus": ids}, without, each), notes=notes)


def _halves(
    count: int,
    repetition: Indices,
    repeated: list[tuple[Indices, Indices]],
    rng: np.random.Generator,
) -> tuple[csr_array, csr_array]:
    """Membership (stimulus × presentation, sparse) in the two halves of one draw."""
    from scipy.sparse import csr_array

    half = np.full(count, -1)
    position = np.zeros(count, np.intp)
    for at, (rows, repetitions) in enumerate(repeated):
        shuffled = rng.permutation(repetitions)
        position[rows] = at
        half[rows] = (
            ~np.isin(repetition[rows], shuffled[: len(repetitions) // 2])
        ).astype(int)
    sides = [np.flatnonzero(half == side) for side in (0, 1)]
    first, second = (
        csr_array(
            (np.ones(len(rows)), (position[rows], rows)), shape=(len(repeated), count)
        )
        for rows in sides
    )
    return first, second


def _correlation(A: Floats, B: Floats) -> Floats:
    """Correlation of each column over the stimuli present in both halves."""
    A, B, count = _centred(A, B)
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.sqrt((A * A).sum(axis=0) * (B * B).sum(axis=0))
        return np.where((size > 0) & (count > 2), (A * B).sum(axis=0) / size, np.nan)


def _centred(A: Floats, B: Floats) -> tuple[Floats, Floats, Indices]:
    """Centre both over the stimuli present in both halves (0 elsewhere); returns them and the number of these stimuli."""
    present = np.isfinite(A) & np.isfinite(B)
    count = present.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        A = np.where(present, A, 0.0)
        B = np.where(present, B, 0.0)
        A, B = (np.where(present, X - X.sum(axis=0) / count, 0.0) for X in (A, B))
    return A, B, count


def _means(
    values: Reals, draws: list[tuple[csr_array, csr_array]]
) -> Iterator[tuple[Floats, Floats]]:
    """Yield the means of both halves of each draw (stimulus × column), ignoring missing values; NaN without any."""
    values = floats(values)
    present = np.isfinite(values)
    complete = bool(present.all())
    filled = values if complete else np.where(present, values, 0.0)
    if complete:
        presence = np.ones((len(values), 1))
    else:
        presence = present.astype(np.float64)
    for first, second in draws:
        with np.errstate(invalid="ignore"):
            yield (
                (first @ filled) / (first @ presence),
                (second @ filled) / (second @ presence),
            )
