"""Checks of metrics and ceilings on small simulated inputs."""

from __future__ import annotations

import errno
import json
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Integers
from neuroledger.errors import ContractError, NeuroLedgerError, about_pair
from neuroledger.stats.score import Score
from neuroledger.stats.splits import Split
from neuroledger.stats.stored_score import StoredScore
from neuroledger.testing.case import Case

__all__ = ["SCORE_CHECKS", "TRACE_CHECKS"]

# Relative differences of equal values: of another order of sums, and of inputs of single precision.
ORDER, SINGLE = 1e-9, 1e-4


def _equal(found: float, expected: float, tolerance: float) -> bool:
    return abs(found - expected) <= tolerance * max(1.0, abs(expected))


def _value(case: Case) -> None:
    """A finite score in double precision, with the scale, direction and unit that the spec declares."""
    score = case.scored
    spec = case.bound.spec
    if not math.isfinite(score.value):
        raise ContractError(f"the score of the example is {score.value}")
    declared = (spec.scale, spec.direction, spec.unit)
    if (score.scale, score.direction, score.unit) != declared:
        raise ContractError(
            f"the score has {score.scale}, {score.direction}, {score.unit}; the spec declares {declared}"
        )


def _repeatable(case: Case) -> None:
    first = case.scored
    again = case.score(case.example.inputs)
    if first.value != again.value:
        raise ContractError(
            f"two calls with the same inputs and seed give {first.value} and {again.value}: draw random numbers from `rng`"
        )


def _rows(case: Case) -> None:
    """The rows of the source are matched by stimulus; permuted stimuli have their score."""
    if not case.assemblies:
        return
    rng = np.random.default_rng(1)
    by_id = _matched_by_id(case)
    orders = [
        rng.permutation(each.sizes["presentation"]) for each in case.example.inputs
    ]
    if len(orders) > 1 and by_id:
        _require_matched(case, orders)
    draws_splits = case.splits is None and case.component.takes("splits")
    if not case.draws_randomly and not draws_splits:
        _require_equivariant(case, orders if by_id else [orders[0]] * len(orders))


def _require_matched(case: Case, orders: list[Integers]) -> None:
    """Require the same score where only the side without splits has another order."""
    place = 1 if case.reference == 0 else 0
    moved = case.changed(
        lambda array, at: array.isel(presentation=orders[at]) if at == place else array
    )
    _require_equal(case, case.score(moved), ORDER, "the rows of one side")


def _require_equivariant(case: Case, orders: list[Integers]) -> None:
    """Require the same score where all sides have other orders, with the same splits of stimuli."""
    permuted = case.changed(lambda array, at: array.isel(presentation=orders[at]))
    splits = _moved(case.splits, orders[case.reference])
    _require_equal(case, case.score(permuted, splits), ORDER, "the rows of all sides")


def _matched_by_id(case: Case) -> bool:
    """Whether rows are matched by the id of their stimulus; predictions have the order of the truth."""
    return case.component.input != "predictions" and all(
        "stimulus_id" in each.coords for each in case.example.inputs
    )


def _moved(splits: list[Split] | None, order: Integers) -> list[Split] | None:
    """Return the splits of rows in a new order."""
    if splits is None:
        return None
    place = np.argsort(order)
    return [Split(*(place[part] for part in split)) for split in splits]


def _require_equal(case: Case, found: Score, tolerance: float, what: str) -> None:
    if not _equal(found.value, case.scored.value, tolerance):
        raise ContractError(
            f"{case.scored.value!r} becomes {found.value!r} where {what} change"
        )


def _precision(case: Case) -> None:
    def single(array: xr.DataArray, _: int) -> xr.DataArray:
        if array.dtype.kind == "f":
            return array.astype(np.float32)
        return array

    rounded = case.score(case.changed(single))
    _require_equal(case, rounded, SINGLE, "inputs of single precision")
    samples = case.scored.samples
    if samples is not None and samples.dtype != np.float64:
        raise ContractError(f"samples are {samples.dtype}, not float64")


def _missing(case: Case) -> None:
    """A missing value of the data is refused, or the score says what it left out."""
    target = case.example.inputs[-1]
    is_array = isinstance(target, xr.DataArray) and target.ndim > 0
    if not is_array or target.dtype.kind != "f":
        return
    values = target.values.copy()
    values[(0,) * values.ndim] = np.nan
    inputs = (*case.example.inputs[:-1], target.copy(data=values))
    try:
        score = case.score(inputs)
    except NeuroLedgerError as error:
        _require_about_pair(error, "a missing value")
        return
    if not math.isfinite(score.value):
        raise ContractError(f"a missing value gives {score.value}")
    told = score.notes != case.scored.notes or score.n != case.scored.n
    if _undefined(score) > _undefined(case.scored) and not told:
        raise ContractError(
            "a missing value leaves samples undefined, and neither a note nor a count says so"
        )


def _undefined(score: Score) -> int:
    if score.samples is None:
        return 0
    return int(score.samples.isnull().sum())


def _require_about_pair(error: NeuroLedgerError, what: str) -> None:
    if not about_pair(error):
        raise ContractError(
            f"{what} raises {type(error).__name__}, which is not about the data"
        ) from error


def _single(case: Case) -> None:
    """One presentation has a finite score, or one clear error."""
    if not case.assemblies:
        return

    def first(array: xr.DataArray, _: int) -> xr.DataArray:
        names = array.coords.get("stimulus_id")
        if names is None:
            return array.isel(presentation=slice(0, 1))
        wanted = str(case.example.inputs[-1]["stimulus_id"].values[0])
        rows = np.flatnonzero(np.asarray(names.values).astype(str) == wanted)
        return array.isel(presentation=rows)

    if case.splits is not None:
        one = [Split(np.array([0]), np.array([0]))]
    else:
        one = None
    try:
        value = case.score(case.changed(first), one).value
    except NeuroLedgerError as error:
        _require_about_pair(error, "one stimulus")
    except Exception as error:
        raise ContractError(
            f"one stimulus raises {type(error).__name__}: {error}; raise a MetricError that says how many are needed"
        ) from error
    else:
        if not math.isfinite(value):
            raise ContractError(f"one stimulus gives {value}")


def _dimensions(case: Case) -> None:
    samples = case.scored.samples
    words = set(re.findall(r"\w+", case.component.function.__doc__ or ""))
    absent = [
        dim for dim in (samples.dims if samples is not None else ()) if dim not in words
    ]
    if absent:
        raise ContractError(
            f"the docstring does not name the dimension {absent[0]!r} of the samples {tuple(samples.dims)}"  # type: ignore[union-attr]
        )


def _limits(case: Case) -> None:
    score = case.scored
    low, high = score.limits
    slack = ORDER * max(1.0, abs(score.value))
    if not low - slack <= score.value <= high + slack:
        raise ContractError(f"{score.value} is outside of the limits {low} to {high}")
    interval = (score.low, score.high)
    if math.isfinite(score.low) and not (low <= interval[0] <= interval[1] <= high):
        raise ContractError(
            f"the interval {interval} is outside of the limits {low} to {high}"
        )


def _json(case: Case) -> None:
    score = case.scored
    plain = StoredScore.of(score, by_item=True).model_dump(mode="json")
    text = json.dumps(plain, allow_nan=False)
    read = StoredScore.model_validate(json.loads(text)).score(score.population)
    kept = ("value", "low", "high", "scale", "direction", "unit", "notes")
    for name in kept:
        before = getattr(score, name)
        after = getattr(read, name)
        if isinstance(before, float) and math.isfinite(before):
            same = _equal(after, before, ORDER)
        else:
            same = after == before or before != before
        if not same:
            raise ContractError(f"{name} is {before!r}, and {after!r} after JSON")


def _pending(case: Case) -> None:
    """An error of the machine inside the component leaves it as such, so that no record fails."""
    for error in (
        OSError(errno.EIO, "input/output error"),
        MemoryError(),
        ImportError("no module"),
    ):
        _require_passed_on(case, error)


def _require_passed_on(case: Case, error: BaseException) -> None:
    failing = case.changed(lambda array, _: array.copy(data=_Unreadable(array, error)))
    try:
        case.bound.samples(failing, case.splits)
    except Exception as raised:
        if about_pair(raised):
            raise ContractError(
                f"{type(error).__name__} inside becomes {type(raised).__name__}, and so a failed record: catch no error of "
                "the machine"
            ) from raised


class _Unreadable:
    """An array whose values cannot be read, such as those of a file on a failing disk."""

    def __init__(self, like: xr.DataArray, error: BaseException) -> None:
        self.shape = like.shape
        self.dtype = like.dtype
        self.ndim = like.ndim
        self.error = error

    def _fail(self, *_: object, **__: object) -> object:
        raise self.error

    __array__ = __array_ufunc__ = __array_function__ = __getitem__ = astype = _fail


SCORE_CHECKS: Final[Mapping[str, Callable[[Case], None]]] = MappingProxyType(
    {
        "contract.value": _value,
        "contract.repeatable": _repeatable,
        "contract.rows": _rows,
        "contract.precision": _precision,
        "contract.missing": _missing,
        "contract.single": _single,
        "contract.dimensions": _dimensions,
        "contract.limits": _limits,
        "contract.json": _json,
        "contract.pending": _pending,
    }
)


def _reading(case: Case) -> Any:
    trace = case.example.inputs[0]
    return case.component.function(trace, **case.bound.parameters)


def _read_value(case: Case) -> None:
    """A finite number that is not negative, or a failure with its reason."""
    reading = _reading(case)
    if reading.status != "failed" and not reading.value >= 0:
        raise ContractError(f"the cost of the example is {reading.value}")
    if reading.status != "scored" and not reading.reason:
        raise ContractError(f"the cost is {reading.status}, without a reason")


def _read_again(case: Case) -> None:
    first = _reading(case)
    again = _reading(case)
    if repr(first) != repr(again):
        raise ContractError(f"the same counts give {first} and {again}")


def _read_parts(case: Case) -> None:
    reading = _reading(case)
    wrong = {name: part for name, part in reading.parts.items() if not part >= 0}
    if wrong:
        raise ContractError(
            f"a part of the cost is not a number of at least 0: {wrong}"
        )


def _read_json(case: Case) -> None:
    reading = _reading(case)
    json.dumps([dict(reading.parts), dict(reading.n), list(reading.notes)])


TRACE_CHECKS: Final[Mapping[str, Callable[[Case], None]]] = MappingProxyType(
    {
        "contract.value": _read_value,
        "contract.repeatable": _read_again,
        "contract.limits": _read_parts,
        "contract.json": _read_json,
    }
)
