"""Rows of both sides of a comparison in one order; train and test parts joined; repetitions checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.assembly import rows_of
from neuroledger.data.factorize import encode
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import CeilingError, MetricError
from neuroledger.spec.kinds import CeilingSpec, MetricSpec

__all__ = ["aligned", "check_repeated", "joined"]


def aligned(
    moved: xr.DataArray, kept: xr.DataArray, name: str, other: str, *, trials: bool = False
) -> xr.DataArray:
    """``moved`` with its rows in the order of ``kept``, by ``stimulus_id``; as it is where neither side has ids.

    ``trials``: one row of ``moved`` may serve several repetitions of ``kept``.

    Raises
    ------
    MetricError
        Only one side names its stimuli, or ``kept`` has repetitions that ``moved`` lacks.
    AssemblyError
        ``moved`` lacks a stimulus of ``kept``, or has a different number of rows for it.
    """
    if not all("presentation" in side.dims for side in (moved, kept)):
        return moved
    named = ["stimulus_id" in side.coords for side in (moved, kept)]
    if not any(named):
        return moved
    if not all(named):
        raise MetricError(
            f"the {other if named[0] else name} has no coordinate 'stimulus_id', so its rows cannot be matched; "
            "assign_coords(stimulus_id=('presentation', ids))"
        )
    ids = as_text(kept["stimulus_id"].values)
    own = as_text(moved["stimulus_id"].values)
    if np.array_equal(own, ids):
        return moved
    rows = rows_of(moved, ids, name=name)
    if not trials and "repetition" in kept.coords and len(np.unique(rows)) < len(rows):
        repeated, count = np.unique(ids, return_counts=True)
        raise MetricError(
            f"the {other} has {count.max()} repetitions of stimulus {str(repeated[count.argmax()])!r} and the {name} one "
            f"row: rows pair one to one; average them first with neuroledger.data.assembly.average_repetitions({other})"
        )
    return moved.isel(presentation=rows)


def check_repeated(assembly: xr.DataArray, spec: MetricSpec | CeilingSpec) -> None:
    """Splits over distinct values need at least two of them.

    Raises
    ------
    CeilingError
        Nothing was repeated.
    """
    if spec.splits is None or not spec.splits.unique:
        return
    by = spec.splits.by
    if by not in assembly.coords:
        raise CeilingError(
            f"{spec.id} compares halves of the {by!r} values, and the assembly has no such coordinate: "
            "give responses that are not averaged, or name another with splits={'by': …}"
        )
    distinct = encode(assembly[by].values).labels
    if len(distinct) < 2:
        raise CeilingError(
            f"no repetitions: {by!r} has the one value {str(distinct[0])!r}, so nothing says how reliable the responses "
            "are; use an assembly with repetitions, or a ceiling that is a constant with a source"
        )


def joined(train: xr.DataArray, test: xr.DataArray) -> xr.DataArray:
    """Train rows followed by test rows; both must have the same columns, those of ``test`` in any order.

    Raises
    ------
    MetricError
        The columns of train and test are not the same.
    """
    shared = [name for name in train.coords if name in test.coords]
    if train.dims != test.dims:
        test = test.transpose(*train.dims)
    for dim in train.dims:
        if dim != "presentation" and train.sizes[dim] != test.sizes[dim]:
            raise MetricError(
                f"train and test differ along {dim!r}: {train.sizes[dim]} and {test.sizes[dim]}"
            )
    test = _same_neuroids(train, test)
    axis = train.dims.index("presentation")
    coords: dict[Any, Any] = {}
    for name in shared:
        values = train[name]
        if values.dims == ("presentation",):
            coords[name] = ("presentation", np.concatenate([values.values, test[name].values]))
        elif "presentation" not in values.dims:
            coords[name] = (values.dims, values.values)
    joined = np.concatenate([train.values, test.values], axis=axis)
    return xr.DataArray(joined, dims=train.dims, coords=coords, attrs=dict(train.attrs))


def _same_neuroids(train: xr.DataArray, test: xr.DataArray) -> xr.DataArray:
    """``test`` with its neuroids in the order of ``train``."""
    if not all("neuroid" in side.dims and "neuroid_id" in side.coords for side in (train, test)):
        return test
    wanted, own = as_text(train["neuroid_id"].values), as_text(test["neuroid_id"].values)
    if np.array_equal(wanted, own):
        return test
    order, rank = np.argsort(own, kind="stable"), np.argsort(np.argsort(wanted, kind="stable"))
    columns = order[rank]
    if not np.array_equal(own[columns], wanted):
        strange = sorted(set(own.tolist()) ^ set(wanted.tolist()))
        raise MetricError(
            f"train and test hold different neuroids, such as {strange[0] if strange else own[0]!r}; "
            "select the same on both sides"
        )
    return test.isel(neuroid=columns)
