"""Criteria that are formulas over regions and conditions, such as those of SyntaxGym on surprisal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.tasks.formulas import Formula, parse
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples, Variation

__all__ = ["formula"]


def _readable(parameters: Any) -> None:
    try:
        logical = {parse(text).logical for text in parameters.formulas}
    except MetricError as error:
        raise ValueError(str(error)) from None
    if len(logical) > 1:
        raise ValueError(
            "`formulas` mixes comparisons and numbers: declare a metric for each"
        )


@metric(
    "formula",
    version=3,
    input="behaviour",
    together=_readable,
    example=examples.of_formulas,
)
def formula(
    source: xr.DataArray,
    target: object = None,
    *,
    formulas: tuple[str, ...] = (),
    criterion: str = "criterion",
    item: str = "item",
    condition: str = "condition",
    region: str = "region",
) -> Samples:
    """Return the value of each formula for each item ``(formula, item)``: a number, or 1 or 0 for a comparison.

    ``(6;%match%) < (6;%mismatch%)`` compares the model's values in region 6 of two conditions of the same item;
    ``(*;%match%)`` is the sum over all regions. The proportion of items in which comparisons are true is SyntaxGym's
    score [gauthier2020].

    Parameters
    ----------
    source
        One number per presentation, such as surprisal, with the coordinates ``item``, ``condition`` and ``region``.
    target
        Not used: the formulas define the right answers.
    formulas, criterion
        The formulas; by default those in the coordinate ``criterion`` of the data.

    Raises
    ------
    MetricError
        A formula names a region or condition that does not exist, an item has no value or several values for it, or a part
        of a formula is undefined for an item.
    """
    del target
    columns = {name: coordinate(source, name) for name in (item, condition, region)}
    _require_places(source, columns, f"{item!r}, {condition!r} and {region!r}")
    formulas = formulas or _stored(source, criterion)
    parsed = list(map(parse, formulas))
    items = encode(columns[item])
    values = _places(
        source,
        parsed,
        items.codes,
        len(items.labels),
        columns[condition],
        columns[region],
    )
    results = np.stack(
        [np.broadcast_to(evaluate(values), len(items.labels)) for evaluate in parsed]
    ).astype(np.float64)
    coords = {"formula": list(formulas), "item": items.labels}
    count = len(items.labels)
    out = xr.DataArray(results, dims=("formula", "item"), coords=coords)
    shares = all(parsed_formula.logical for parsed_formula in parsed)
    return Samples(
        out,
        Variation({}, lambda _: out),  # only the items of the samples are random
        limits=(0.0, 1.0) if shares else None,
        outcome=shares / count,
        counts={"items": count},
    )


def _places(
    source: xr.DataArray,
    read: list[Formula],
    item: Array,
    count: int,
    condition: Array | None,
    region: Array | None,
) -> dict[tuple[str, str], Array]:
    """Return the values of every place in the formulas, for each item."""
    numbers = floats(source.values)
    conditions = np.asarray(condition).astype(str)
    regions = np.asarray(region).astype(str)
    known = dict.fromkeys(zip(regions.tolist(), conditions.tolist(), strict=True))
    values: dict[tuple[str, str], Array] = {place: np.empty(0) for place in known}
    for where, name in dict.fromkeys(
        place for parsed in read for place in parsed.places
    ):
        rows = np.flatnonzero(
            (conditions == name) & ((regions == where) | (where == "*"))
        )
        if not rows.size:
            continue  # reported when the formula is evaluated, with similar names
        counts = np.bincount(item[rows], minlength=count)
        if (counts != 1).any() and where != "*":
            incomplete = int((counts != 1).argmax())
            raise MetricError(
                f"item number {incomplete + 1} has {counts[incomplete]} values for ({where};%{name}%); "
                "every item needs one: average trials, or remove incomplete items"
            )
        if not counts.all():
            raise MetricError(
                f"{int((counts == 0).sum())} items have no value in condition {name!r}"
            )
        if counts.min() < counts.max():
            raise MetricError(
                f"item number {int(counts.argmin()) + 1} has {counts.min()} regions in condition {name!r}, others have "
                f"{counts.max()}: a sum over all regions needs the same regions of every item"
            )
        values[where, name] = np.bincount(
            item[rows], weights=numbers[rows], minlength=count
        )
    return values


def _require_places(
    source: xr.DataArray, columns: Mapping[str, Array | None], needed: str
) -> None:
    absent = [name for name, values in columns.items() if values is None]
    if source.dims == ("presentation",) and not absent:
        return
    found = f"dimensions are {tuple(source.dims)}"
    if absent:
        found = f"absent: {', '.join(absent)}"
    raise MetricError(
        f"formulas need one number per presentation with {needed}; {found}"
    )


def _stored(source: xr.DataArray, criterion: str) -> tuple[str, ...]:
    stored = coordinate(source, criterion)
    if stored is None:
        raise MetricError(
            f"no `formulas` are given, and the data carry no {criterion!r} with them"
        )
    return tuple(dict.fromkeys(stored.astype(str).tolist()))
