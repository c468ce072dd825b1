"""Steps that prepare an assembly for a comparison: derive labels, select neuroids, average and scale responses."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field, PositiveFloat

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.data.assembly import average_repetitions
from neuroledger.data.factorize import encode
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import AssemblyError, MetricError
from neuroledger.families.alignment.between_subjects import Align, aligned
from neuroledger.families.alignment.ceilings.internal_consistency import (
    internal_consistency,
)
from neuroledger.families.fields import Names
from neuroledger.spec.base import Frozen
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import draw

__all__ = ["Step", "prepared"]

Value = str | int | float | bool


class Rename(Frozen):
    """Rename dimensions and coordinates to the names that this project uses."""

    step: Literal["rename"]
    dims: dict[str, str] = Field(default_factory=dict)
    coords: dict[str, str] = Field(default_factory=dict)


class Label(Frozen):
    """Add a coordinate ``coord`` to dimension ``dim``: other coordinates joined as text, one value, or a running number."""

    step: Literal["label"]
    dim: str
    coord: str
    of: tuple[str, ...] = ()
    value: Value | None = None
    separator: str = "."


class Drop(Frozen):
    """Remove coordinates that are irrelevant to the comparison, such as a trial number."""

    step: Literal["drop"]
    coords: Names


class Take(Frozen):
    """Select one item of a dimension by the value of a coordinate, and drop the dimension."""

    step: Literal["take"]
    at: dict[str, Value]


class Complete(Frozen):
    """Leave out items of a dimension that have a missing value (``any``), or only missing values (``all``)."""

    step: Literal["complete"]
    over: str = "presentation"
    missing: Literal["any", "all"] = "any"


class Distinct(Frozen):
    """Keep the first of all presentations with the same values of the coordinates ``by``."""

    step: Literal["distinct"]
    by: tuple[str, ...] = ("stimulus_id",)


class Mean(Frozen):
    """Average over ``over``: over the time bins within a ``window`` (ms), or over the items that share a value of ``by``."""

    step: Literal["mean"]
    over: str = "time_bin"
    by: str | None = None
    window: tuple[float, float] | None = None


class Bins(Frozen):
    """Resample responses to bins of ``width`` ms from ``start`` on: means of the recorded bins, weighted by their overlap.

    The last bin is the last one within the recording; without ``last`` it is left out.
    """

    step: Literal["bins"]
    width: PositiveFloat
    start: float = 0.0
    last: bool = True


class Flatten(Frozen):
    """Make each time bin of each neuroid a separate neuroid; ``recording_time`` is the start of its bin."""

    step: Literal["flatten"]
    over: Literal["time_bin"] = "time_bin"


class Centre(Frozen):
    """Subtract the mean over dimensions, with ``by`` separately for each value of this coordinate."""

    step: Literal["centre"]
    over: tuple[str, ...] = ("presentation",)
    by: str | None = None


class Standardise(Frozen):
    """Subtract the mean over a dimension, and divide by the standard deviation (ddof 0).

    With ``by``, this is done separately for each value of a coordinate of that dimension; missing values are left out.
    """

    step: Literal["standardise"]
    over: str = "presentation"
    by: str | None = None


class Varying(Frozen):
    """Leave out neuroids with the same response to all presentations."""

    step: Literal["varying"]


class Responsive(Frozen):
    """Keep neuroids whose mean response is more than ``deviations`` standard deviations (over neuroids) from 0."""

    step: Literal["responsive"]
    deviations: PositiveFloat


class Reliable(Frozen):
    """Keep neuroids whose split-half correlation (Spearman–Brown corrected) exceeds ``above``.

    The halves are ``even`` and odd repetitions, or ``drawn``: the mean over ten random halves.
    """

    step: Literal["reliable"]
    above: Annotated[float, Field(ge=-1, lt=1)]
    halves: Literal["even", "drawn"] = "even"
    repetition: str = "repetition"


class Affine(Frozen):
    """Compute ``factor * value + offset``: ``{factor: -1, offset: 1}`` converts similarities to dissimilarities."""

    step: Literal["affine"]
    factor: float = 1.0
    offset: float = 0.0


Step = Annotated[
    Rename
    | Label
    | Drop
    | Take
    | Complete
    | Distinct
    | Mean
    | Bins
    | Flatten
    | Centre
    | Standardise
    | Varying
    | Responsive
    | Reliable
    | Affine
    | Align,
    Field(discriminator="step"),
]


def prepared(
    assembly: xr.DataArray, steps: Sequence[Any], *, name: str = "the assembly"
) -> xr.DataArray:
    """Apply the steps to the assembly, in order.

    Parameters
    ----------
    assembly
        Any dimensions; a step refuses an assembly without the dimensions that it needs.
    steps
        Instances of ``Step``.
    name
        Name of the assembly in error messages.

    Raises
    ------
    AssemblyError
        A dimension or coordinate is missing, or nothing is left; the message gives the number of the step.

    Examples
    --------
    >>> table = xr.DataArray([[1.0, 3.0], [5.0, 7.0]], dims=("presentation", "neuroid"))
    >>> prepared(table, [Centre(step="centre"), Affine(step="affine", factor=2)]).values.tolist()
    [[-4.0, -4.0], [4.0, 4.0]]
    """
    for number, step in enumerate(steps, 1):
        try:
            assembly = _FUNCTIONS[type(step)](assembly, step)
        except AssemblyError as error:
            raise AssemblyError(
                f"{name}: step {number} ({step.step}): {error}"
            ) from None
        if 0 in assembly.shape:
            raise AssemblyError(
                f"{name}: step {number} ({step.step}) leaves nothing: correct its parameters"
            )
    return assembly


def _coordinate(assembly: xr.DataArray, name: str, dim: str | None = None) -> Array:
    if name not in assembly.coords or assembly[name].ndim != 1:
        known = ", ".join(
            str(key) for key, coord in assembly.coords.items() if coord.ndim == 1
        )
        raise AssemblyError(
            f"there is no coordinate {name!r}; there are {known or 'none'}"
        )
    if dim is not None and assembly[name].dims != (dim,):
        raise AssemblyError(
            f"coordinate {name!r} belongs to {assembly[name].dims[0]!r}, not to {dim!r}"
        )
    return np.asarray(assembly[name].values)


def _require_dims(assembly: xr.DataArray, *dims: str) -> None:
    missing = [dim for dim in dims if dim not in assembly.dims]
    if missing:
        raise AssemblyError(
            f"there is no dimension {missing[0]!r}; there are {', '.join(map(str, assembly.dims))}"
        )


def _rename(assembly: xr.DataArray, step: Rename) -> xr.DataArray:
    _require_dims(assembly, *step.dims)
    for coord in step.coords:
        _coordinate(assembly, coord)

    # xarray's `rename` would rename a dimension together with the coordinate of the same name.
    def renamed(dims: tuple[Hashable, ...]) -> tuple[str, ...]:
        return tuple(step.dims.get(str(dim), str(dim)) for dim in dims)

    coords = {
        step.coords.get(str(name), str(name)): (renamed(coord.dims), coord.values)
        for name, coord in assembly.coords.items()
    }
    if len(coords) != len(assembly.coords):
        raise AssemblyError(
            "two coordinates would get the same name: `drop` one of them first"
        )
    return xr.DataArray(
        assembly.values,
        dims=renamed(assembly.dims),
        coords=coords,
        attrs=dict(assembly.attrs),
        name=assembly.name,
    )


def _label(assembly: xr.DataArray, step: Label) -> xr.DataArray:
    _require_dims(assembly, step.dim)
    if step.of and step.value is not None:
        raise AssemblyError("give `of` or `value`, not both")
    count = assembly.sizes[step.dim]
    if step.of:
        columns = [
            as_text(_coordinate(assembly, name, step.dim)).tolist() for name in step.of
        ]
        values: Array = np.asarray(
            [step.separator.join(row) for row in zip(*columns, strict=True)]
        )
    else:
        if step.value is None:
            values = np.arange(count)
        else:
            values = np.full(count, step.value)
    return assembly.assign_coords({step.coord: (step.dim, values)})


def _drop(assembly: xr.DataArray, step: Drop) -> xr.DataArray:
    for coord in step.coords:
        _coordinate(assembly, coord)
    return assembly.drop_vars(step.coords)


def _take(assembly: xr.DataArray, step: Take) -> xr.DataArray:
    for coord, value in step.at.items():
        values = as_text(_coordinate(assembly, coord))
        matches = np.flatnonzero(values == as_text([value])[0])
        if len(matches) != 1:
            raise AssemblyError(
                f"{len(matches)} items have {coord} = {value!r}, but exactly one can be taken; the values are "
                f"{', '.join(values.tolist()[:8])}"
            )
        assembly = assembly.isel({assembly[coord].dims[0]: int(matches[0])}, drop=True)
    return assembly


def _complete(assembly: xr.DataArray, step: Complete) -> xr.DataArray:
    _require_dims(assembly, step.over)
    missing = assembly.isnull()
    others = [dim for dim in assembly.dims if dim != step.over]
    if step.missing == "any":
        incomplete = missing.any(others)
    else:
        incomplete = missing.all(others)
    return assembly.isel({step.over: np.flatnonzero(~incomplete.values)})


def _distinct(assembly: xr.DataArray, step: Distinct) -> xr.DataArray:
    columns = [
        as_text(_coordinate(assembly, name, "presentation")).tolist()
        for name in step.by
    ]
    first: dict[tuple[str, ...], int] = {}
    for row, key in enumerate(zip(*columns, strict=True)):
        first.setdefault(key, row)
    return assembly.isel(presentation=list(first.values()))


def _mean(assembly: xr.DataArray, step: Mean) -> xr.DataArray:
    _require_dims(assembly, step.over)
    if step.window is not None:
        start, end = (
            _coordinate(assembly, f"{step.over}_{side}", step.over)
            for side in ("start", "end")
        )
        low, high = step.window
        assembly = assembly.isel(
            {step.over: np.flatnonzero((start >= low) & (end <= high))}
        )
        if not assembly.sizes[step.over]:
            raise AssemblyError(
                f"no bin is within {low:g} to {high:g} ms; bins start at {start.min():g} to {start.max():g}"
            )
    if step.by is not None:
        return _group_means(
            assembly, step.over, _coordinate(assembly, step.by, step.over)
        )
    averaged = assembly.mean(step.over, keep_attrs=True)
    if step.over != "time_bin":
        return averaged
    ends = {
        f"time_bin_{side}": (
            "time_bin",
            [extreme(_coordinate(assembly, f"time_bin_{side}", "time_bin"))],
        )
        for side, extreme in (("start", np.min), ("end", np.max))
    }
    axis = assembly.dims.index("time_bin")
    return averaged.expand_dims(time_bin=1, axis=axis).assign_coords(ends)


def _group_means(assembly: xr.DataArray, dim: str, labels: Array) -> xr.DataArray:
    """Mean over the items of ``dim`` with the same label, ignoring missing values; keeps coordinates equal in each group."""
    groups = encode(labels)
    first = np.unique(groups.codes, return_index=True)[1]
    axis = assembly.dims.index(dim)
    values = np.moveaxis(floats(assembly.values), axis, 0)
    present = np.isfinite(values)
    total = np.zeros((len(first), *values.shape[1:]))
    count = np.zeros_like(total)
    np.add.at(total, groups.codes, np.where(present, values, 0.0))
    np.add.at(count, groups.codes, present)
    with np.errstate(invalid="ignore"):
        mean = np.moveaxis(np.where(count > 0, total / count, np.nan), 0, axis)
    coords: dict[Hashable, object] = {}
    for name, coord in assembly.coords.items():
        if coord.dims != (dim,):
            coords[name] = coord
        elif (coord.values[first][groups.codes] == coord.values).all():
            coords[name] = (dim, coord.values[first])
    if dim == "neuroid" and "neuroid_id" not in coords:
        coords["neuroid_id"] = (dim, as_text(labels[first]))
    return xr.DataArray(
        mean,
        dims=assembly.dims,
        coords=coords,
        attrs=dict(assembly.attrs),
        name=assembly.name,
    )


def _bins(assembly: xr.DataArray, step: Bins) -> xr.DataArray:
    _require_dims(assembly, "time_bin")
    begin, end = (
        _coordinate(assembly, f"time_bin_{side}", "time_bin").astype(np.float64)
        for side in ("start", "end")
    )
    count = int(np.floor((end.max() - step.start) / step.width + 1e-9)) - (
        not step.last
    )
    if count < 1:
        raise AssemblyError(
            f"no bin of {step.width:g} ms from {step.start:g} ms on is within {begin.min():g} to {end.max():g} ms"
        )
    starts = step.start + step.width * np.arange(count)
    overlap = np.minimum(end, starts[:, None] + step.width) - np.maximum(
        begin, starts[:, None]
    )
    overlap = np.clip(overlap, 0, None)
    incomplete = np.flatnonzero(overlap.sum(axis=1) < step.width * (1 - 1e-9))
    if incomplete.size:
        start = starts[incomplete[0]]
        raise AssemblyError(
            f"nothing was recorded in a part of the bin {start:g} to {start + step.width:g} ms"
        )
    weights = overlap / (end - begin)
    values = (
        assembly.transpose(..., "time_bin").values
        @ (weights / weights.sum(axis=1, keepdims=True)).T
    )
    rest = assembly.isel(time_bin=0, drop=True)
    coords = {
        name: coord
        for name, coord in rest.coords.items()
        if "time_bin" not in assembly[name].dims
    }
    coords |= {
        "time_bin_start": ("time_bin", starts),
        "time_bin_end": ("time_bin", starts + step.width),
    }
    resampled = xr.DataArray(
        values.astype(assembly.dtype),
        dims=(*rest.dims, "time_bin"),
        coords=coords,
        attrs=assembly.attrs,
    )
    return resampled.transpose(*assembly.dims)


def _flatten(assembly: xr.DataArray, step: Flatten) -> xr.DataArray:
    _require_dims(assembly, "neuroid", step.over)
    array = assembly.transpose(..., "neuroid", step.over)
    start, end = (
        _coordinate(array, f"time_bin_{side}", step.over) for side in ("start", "end")
    )
    bins = len(start)
    neuroids = array.sizes["neuroid"]
    coords: dict[Any, Any] = {
        name: ("neuroid", np.repeat(coord.values, bins))
        if coord.dims == ("neuroid",)
        else coord
        for name, coord in array.coords.items()
        if step.over not in coord.dims
    }
    times = np.tile(start, neuroids)
    if "neuroid_id" in coords:
        ids = as_text(coords["neuroid_id"][1])
        coords["neuroid_id"] = (
            "neuroid",
            [f"{id}@{time:g}" for id, time in zip(ids, times, strict=True)],
        )
    coords |= {
        "recording_time": ("neuroid", times),
        "time_bin_start": (step.over, [start.min()]),
        "time_bin_end": (step.over, [end.max()]),
    }
    values = array.values.reshape(*array.shape[:-2], neuroids * bins, 1)
    return xr.DataArray(
        values,
        dims=array.dims,
        coords=coords,
        attrs=dict(assembly.attrs),
        name=assembly.name,
    )


def _centre(assembly: xr.DataArray, step: Centre) -> xr.DataArray:
    _require_dims(assembly, *step.over)
    if step.by is None:
        return assembly - assembly.mean(step.over)
    if step.by in assembly.coords:
        dim = str(assembly[step.by].dims[0])
    else:
        dim = ""
    codes = encode(_coordinate(assembly, step.by)).codes
    values: Floats = np.array(assembly.values, dtype=np.float64)
    by_first = np.moveaxis(
        values, assembly.dims.index(dim), 0
    )  # a view: `values` is changed in place
    others = [other for other in assembly.dims if other != dim]
    axes = tuple(0 if over == dim else 1 + others.index(over) for over in step.over)
    for code in range(int(codes.max()) + 1):
        rows = codes == code
        by_first[rows] -= np.nanmean(by_first[rows], axis=axes, keepdims=True)
    return assembly.copy(data=values)


def _standardise(assembly: xr.DataArray, step: Standardise) -> xr.DataArray:
    _require_dims(assembly, step.over)
    if step.by is not None:
        return _standardise_by(assembly, step.over, step.by)
    spread = assembly.std(step.over, ddof=0)
    if not bool((spread > 0).all()):
        raise AssemblyError(
            "some responses do not vary: leave them out first (`varying`)"
        )
    return (assembly - assembly.mean(step.over)) / spread


def _standardise_by(assembly: xr.DataArray, over: str, by: str) -> xr.DataArray:
    """z-scores over a dimension within each value of its coordinate ``by``; what was not recorded there stays missing."""
    groups = encode(_coordinate(assembly, by, over))
    values: Floats = np.array(assembly.values, dtype=np.float64)
    by_first = np.moveaxis(
        values, assembly.dims.index(over), 0
    )  # a view: `values` is changed in place
    for code, label in enumerate(groups.labels):
        rows = groups.codes == code
        block = by_first[rows]
        count = (~np.isnan(block)).sum(axis=0)
        total = np.maximum(count, 1)
        centred = block - np.nansum(block, axis=0) / total
        spread = np.sqrt(np.nansum(centred**2, axis=0) / total)
        if ((count > 0) & (spread == 0)).any():
            raise AssemblyError(
                f"some responses do not vary within {by} {label}, which has {int(rows.sum())} items of {over!r}: leave "
                f"these responses or this {by} out first"
            )
        by_first[rows] = centred / np.where(spread > 0, spread, 1.0)
    return assembly.copy(data=values)


def _varying(assembly: xr.DataArray, step: Varying) -> xr.DataArray:
    _require_dims(assembly, "presentation", "neuroid")
    others = [dim for dim in assembly.dims if dim != "neuroid"]
    return assembly.isel(
        neuroid=np.flatnonzero((assembly.max(others) > assembly.min(others)).values)
    )


def _responsive(assembly: xr.DataArray, step: Responsive) -> xr.DataArray:
    _require_dims(assembly, "neuroid")
    mean = np.asarray(
        assembly.mean([dim for dim in assembly.dims if dim != "neuroid"]).values
    )
    return assembly.isel(
        neuroid=np.flatnonzero(np.abs(mean) > step.deviations * mean.std())
    )


def _reliable(assembly: xr.DataArray, step: Reliable) -> xr.DataArray:
    _require_dims(assembly, "presentation", "neuroid")
    reliability = _even_odd_reliability if step.halves == "even" else _drawn_reliability
    return assembly.isel(
        neuroid=np.flatnonzero(reliability(assembly, step) > step.above)
    )


def _drawn_reliability(assembly: xr.DataArray, step: Reliable) -> Floats:
    """Mean reliability of each neuroid over ten random halves, by the ceiling ``internal_consistency``."""
    _coordinate(assembly, step.repetition, "presentation")
    rule = SplitsSpec(
        folds=10, train=0.5, by=step.repetition, unique=True, stratify=None, seed=1
    )
    try:
        ceiling = internal_consistency(
            assembly, splits=draw(rule, assembly), correction="spearman_brown"
        )
    except MetricError as error:
        raise AssemblyError(str(error)) from None
    others = [dim for dim in ceiling.values.dims if dim != "neuroid"]
    return np.asarray(ceiling.values.mean(others).values)


def _even_odd_reliability(assembly: xr.DataArray, step: Reliable) -> Floats:
    """Reliability of each neuroid, from the means of even and of odd repetitions."""
    odd = encode(_coordinate(assembly, step.repetition, "presentation")).codes % 2 == 1
    if not odd.any():
        raise AssemblyError(
            f"{step.repetition!r} has only one value, so there are no repetitions to compare"
        )
    ids = encode(_coordinate(assembly, "stimulus_id", "presentation")).codes
    array = assembly.transpose("presentation", "neuroid", ...)
    values = floats(array.values).reshape(*array.shape[:2], -1).mean(axis=2)
    plain = xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={"stimulus_id": ("presentation", ids)},
    )
    halves = [
        average_repetitions(plain.isel(presentation=np.flatnonzero(rows)))
        for rows in (~odd, odd)
    ]
    shared = np.intersect1d(
        halves[0]["stimulus_id"].values, halves[1]["stimulus_id"].values
    )
    if len(shared) < 3:
        raise AssemblyError(
            f"{len(shared)} stimuli have even and odd repetitions; a correlation needs 3"
        )
    values_of_shared = [
        half.values[np.isin(half["stimulus_id"].values, shared)] for half in halves
    ]
    a, b = (half - np.nanmean(half, axis=0) for half in values_of_shared)
    with np.errstate(invalid="ignore", divide="ignore"):
        r = np.nansum(a * b, axis=0) / np.sqrt(
            np.nansum(a**2, axis=0) * np.nansum(b**2, axis=0)
        )
        return np.asarray(2 * r / (1 + r))


def _affine(assembly: xr.DataArray, step: Affine) -> xr.DataArray:
    return assembly.copy(data=step.factor * floats(assembly.values) + step.offset)


_FUNCTIONS: dict[type, Callable[[xr.DataArray, Any], xr.DataArray]] = {
    Rename: _rename,
    Label: _label,
    Drop: _drop,
    Take: _take,
    Complete: _complete,
    Distinct: _distinct,
    Mean: _mean,
    Bins: _bins,
    Flatten: _flatten,
    Centre: _centre,
    Standardise: _standardise,
    Varying: _varying,
    Responsive: _responsive,
    Reliable: _reliable,
    Affine: _affine,
    Align: aligned,
}
