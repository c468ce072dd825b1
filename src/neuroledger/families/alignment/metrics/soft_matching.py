"""Soft matching: how well single units of two representations correspond, whatever their numbers."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Booleans, Floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.measures import (
    Chance,
    Permutations,
    Sides,
    centred,
    sides,
    without_chance,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.workspace import Workspace

__all__ = ["Matching", "matched", "soft_matching"]

# A plan of transport has this many entries at most: a linear program of so many variables takes seconds.
MOST_ENTRIES = 100_000
# A unit whose variance is below this share of its power is constant.
CONSTANT = 1e-26


class Matching(NamedTuple):
    """The best plan of transport between units: ``plan`` (unit × neuroid) is the mass of each pair.

    ``value`` is the mean correlation of matched units.
    """

    value: float
    plan: Floats


@metric("soft_matching", version=1)
def soft_matching(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    rng: np.random.Generator,
    units: Annotated[int, Field(ge=2)] | None = None,
    adjusted: bool = False,
    permutations: Permutations = 5,
) -> Samples:
    """Mean correlation of the units of two ``(presentation, neuroid)`` assemblies under the best soft matching [khosla2024].

    The largest ``Σ_ij T_ij corr(x_i, y_j)`` over plans of transport ``T ≥ 0`` whose rows sum to ``1/p`` and columns to
    ``1/m``: each unit has the same mass and may be divided between several units of the other side. With equal numbers
    of units this is the best permutation. Unlike a regression, it changes when a side is rotated. ``units`` draws so
    many units of the source. ``adjusted`` subtracts the mean over ``permutations`` of the stimuli.

    Items are left out of the plan as it is. At an optimum that is exact to the first order for stimuli; for neuroids, the
    value is their mean correlation with the units that they are matched with, and varies as that mean.

    Returns
    -------
    Samples
        One number.

    Raises
    ------
    MetricError
        There are more than 100,000 pairs of units, no unit varies, or rows do not match.
    """
    both = _varying(
        sides(source, target, workspace=workspace, rotated=False), rng, units
    )
    pairs = both.source.shape[1] * both.target.shape[1]
    if pairs > MOST_ENTRIES:
        wanted = max(2, MOST_ENTRIES // both.target.shape[1])
        raise MetricError(
            f"soft matching of {both.source.shape[1]} units with {both.target.shape[1]} has {pairs:,} pairs, more than "
            f"{MOST_ENTRIES:,}: "
            f"draw some units of the source with `units: {wanted}`"
        )
    found = matched(both.source, both.target)
    chance = Chance()
    if adjusted:
        drawn = [rng.permutation(len(both.source)) for _ in range(permutations)]
        chance = without_chance(
            [matched(both.source[order], both.target).value for order in drawn]
        )
    samples = xr.DataArray(chance.applied(found.value))

    def without(keep: Keep) -> xr.DataArray:
        rows = keep.get("stimulus", np.ones(len(both.stimuli), dtype=bool))
        columns = keep.get("neuroid", np.ones(len(both.neuroids), dtype=bool))
        with np.errstate(invalid="ignore", divide="ignore"):
            correlation = _correlations(both.source[rows], both.target[rows])
        share = found.plan * np.nan_to_num(correlation)
        value = float(share[:, columns].sum()) * len(columns) / columns.sum()
        return xr.DataArray(chance.applied(value))

    items = {"stimulus": both.stimuli, "neuroid": both.neuroids}
    said = chance.notes(
        found.value, f"its mean over {permutations} permutations of stimuli"
    )
    return Samples(samples, Variation(items, without), notes=[*both.notes, *said])


def matched(X: Floats, Y: Floats) -> Matching:
    """Return the best soft matching of the units of ``X`` and ``Y`` (stimulus × unit), all of which vary."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    correlation = _correlations(X, Y)
    count, others = correlation.shape
    one = np.ones((1, others))
    other = np.ones((1, count))
    rows = kron(eye_array(count), one)
    columns = kron(other, eye_array(others))
    masses = np.concatenate([np.full(count, 1 / count), np.full(others, 1 / others)])
    # The stubs know no sparse constraints.
    solved = linprog(  # type: ignore[call-overload]
        -correlation.ravel(),
        A_eq=vstack([rows, columns]).tocsr(),
        b_eq=masses,
        bounds=(0, None),
        method="highs",
    )
    if solved.x is None:
        raise MetricError(f"the matching of units was not found: {solved.message}")
    plan = np.asarray(solved.x).reshape(count, others)
    return Matching(float((plan * correlation).sum()), plan)


def _correlations(X: Floats, Y: Floats) -> Floats:
    """Return the correlation of each unit of ``X`` with each of ``Y``, (unit × unit)."""
    A = centred(X)
    B = centred(Y)
    sizes = np.outer(np.linalg.norm(A, axis=0), np.linalg.norm(B, axis=0))
    return np.asarray(A.T @ B / sizes)


def _varying(both: Sides, rng: np.random.Generator, units: int | None) -> Sides:
    """Return both sides without constant units, and with a number of drawn units of the source.

    Raises
    ------
    MetricError
        No unit of a side varies.
    """
    source, target = (_varies(side) for side in (both.source, both.target))
    notes = list(both.notes)
    for name, mask in (("source", source), ("target", target)):
        if not mask.any():
            raise MetricError(f"no unit of the {name} varies over the stimuli")
        if not mask.all():
            notes.append(f"{int((~mask).sum())} constant units of the {name} left out")
    chosen = np.flatnonzero(source)
    if units is not None and units < len(chosen):
        notes.append(f"{units} of {len(chosen)} units of the source drawn")
        chosen = np.sort(rng.choice(chosen, units, replace=False))
    return both._replace(
        source=both.source[:, chosen],
        target=both.target[:, target],
        neuroids=both.neuroids[target],
        notes=notes,
    )


def _varies(values: Floats) -> Booleans:
    power = (centred(values) ** 2).sum(axis=0)
    return np.asarray(power > CONSTANT * (values**2).sum(axis=0))
