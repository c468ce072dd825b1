"""Deviations as a record stores them: half precision, divided by their largest; and read again, with every fault named."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, get_args

import numpy as np

from neuroledger.errors import MetricError
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.uncertainty import (
    PAIR,
    Method,
    NaturalScale,
    Part,
    Uncertainty,
)

__all__ = ["packed_deviations", "parts_in", "unpacked_deviations"]

PART_FIELDS: Final = frozenset({"over", "keys", "values", "freedom", "variance"})
# Largest variance that is read from a record: its square is finite, too.
LARGEST: Final = 1e100


def packed_deviations(
    uncertainty: Uncertainty, *, private: bool = False
) -> dict[str, Any]:
    """Return plain data for a record.

    Deviations by item tell about single items, so that of ``private`` data only their sum of squares is kept.
    """
    parts = (
        [_summed(part) for part in uncertainty.parts] if private else uncertainty.parts
    )
    return {
        "method": uncertainty.method,
        "version": inference.VERSION,
        "scale": uncertainty.scale,
        "items": dict(uncertainty.items),
        "outcome": uncertainty.outcome,
        "parts": [_packed(part) for part in parts],
    }


def unpacked_deviations(plain: Mapping[str, Any], population: str) -> Uncertainty:
    """Return the uncertainty in a record, whose items belong to ``population``.

    Raises
    ------
    MetricError
        The deviations are damaged.
    """
    try:
        _require_known(plain)
        found = Uncertainty(
            parts_in(plain["parts"], population),
            {str(name): int(count) for name, count in plain["items"].items()},
            plain["scale"],
            _number(plain["outcome"]),
            plain["method"],
        )
        _require_factors(found)
        return found
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise MetricError(
            f"the deviations of a record cannot be read ({error}); run it again"
        ) from error


def _require_factors(found: Uncertainty) -> None:
    """Require deviations of at least one factor, of one or two factors each, and of at least one item."""
    if not found.factors or any(len(part.over) not in (1, 2) for part in found.parts):
        raise ValueError("deviations of no factor")
    if min(found.items.values(), default=1) < 1:
        raise ValueError("fewer than no items")


def parts_in(
    plain: Sequence[Mapping[str, Any]], population: str = ""
) -> tuple[Part, ...]:
    """Return the parts of an uncertainty in a record, which :func:`unpacked_deviations` has accepted."""
    return tuple(_unpacked(part, population) for part in plain)


def _number(value: Any) -> float:
    """Return a number as a float; a text that looks like one is another record."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _require_known(plain: Mapping[str, Any]) -> None:
    """Require a method, a version and a scale that exist, and an outcome that is a size."""
    version = plain["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{version!r} is not a version")
    if plain["method"] not in get_args(Method) or plain["scale"] not in get_args(
        NaturalScale
    ):
        raise ValueError(
            f"no method {plain['method']!r}, or no scale {plain['scale']!r}"
        )
    if not 0 <= _number(plain["outcome"]) <= LARGEST:
        raise ValueError("an outcome is not a size")


def _summed(part: Part) -> Part:
    """Return a part with one group, whose name no other score has."""
    name = hashlib.sha256(part.values.tobytes()).hexdigest()[:12]
    return replace(
        part, keys=(f"private {name}",), values=np.array([math.sqrt(part.variance)])
    )


def _packed(part: Part) -> dict[str, Any]:
    size = float(np.abs(part.values).max(initial=0.0))
    raw = (part.values / (size or 1.0)).astype("<f2").tobytes()
    return {
        "over": list(part.over),
        "keys": _packed_keys(part.keys),
        "values": base64.b64encode(raw).decode("ascii"),
        "freedom": part.freedom if math.isfinite(part.freedom) else None,
        "variance": part.variance,
    }


def _packed_keys(keys: tuple[str, ...]) -> int | list[Any]:
    """Return the names of groups; their number if they are numbered; of pairs, the names of both sides."""
    if all(key == f"#{at}" for at, key in enumerate(keys)):
        return len(keys)
    pairs = [key.split(PAIR) for key in keys]
    rows, columns = (list(dict.fromkeys(pair[at] for pair in pairs)) for at in (0, -1))
    crossed = [f"{row}{PAIR}{column}" for row in rows for column in columns]
    return [rows, columns] if list(keys) == crossed else list(keys)


def _unpacked_keys(plain: int | list[Any], count: int) -> tuple[str, ...]:
    """Return the names of ``count`` groups, whose number is checked before they are made."""
    pairs = (
        isinstance(plain, list)
        and len(plain) == 2
        and all(isinstance(side, list) for side in plain)
    )
    if isinstance(plain, int):
        stated = plain
    else:
        stated = len(plain[0]) * len(plain[1]) if pairs else len(plain)
    if stated != count:
        raise ValueError("deviations without a group")
    if isinstance(plain, int):
        return tuple(f"#{at}" for at in range(plain))
    if pairs:
        return tuple(f"{row}{PAIR}{column}" for row in plain[0] for column in plain[1])
    return tuple(map(str, plain))


def _unpacked(plain: Mapping[str, Any], population: str) -> Part:
    if set(plain) != PART_FIELDS:
        raise ValueError(f"the fields of a part are {', '.join(sorted(PART_FIELDS))}")
    values = np.frombuffer(
        base64.b64decode(plain["values"], validate=True), "<f2"
    ).astype(np.float64)
    names = _unpacked_keys(plain["keys"], len(values))
    variance, power = _number(plain["variance"]), float(values @ values)
    if not np.isfinite(values).all() or not 0 <= variance <= LARGEST:
        raise ValueError("deviations that are no numbers")
    freedom = math.inf if plain["freedom"] is None else _number(plain["freedom"])
    if not freedom >= 0:
        raise ValueError(f"{freedom} degrees of freedom")
    # The variance is stored exactly, so that half precision changes no interval.
    exact = values * math.sqrt(variance / power) if power > 0 else values
    return Part(population, tuple(map(str, plain["over"])), names, exact, freedom)
