"""A number with its uncertainty as plain data, exactly: what is read again has the same bits."""

from __future__ import annotations

import base64
import math
from typing import TypedDict

import numpy as np

from neuroledger.stats.differences import Joint
from neuroledger.stats.uncertainty import Method, NaturalScale, Part, Uncertainty

__all__ = ["packed", "unpacked"]


class PlainPart(TypedDict):
    """A part of a variance; ``values`` are little-endian doubles in base64, an infinite ``freedom`` is None."""

    population: str
    over: tuple[str, ...]
    keys: tuple[str, ...]
    values: str
    freedom: float | None


class PlainUncertainty(TypedDict):
    """The deviations of a number by item."""

    items: dict[str, int]
    scale: NaturalScale
    outcome: float
    method: Method
    parts: list[PlainPart]


class PlainJoint(TypedDict):
    """A number, with its uncertainty if it is known."""

    value: float
    varies: PlainUncertainty | None


def packed(joint: Joint) -> PlainJoint:
    """Return a number with its uncertainty as plain data."""
    known = joint.uncertainty
    return {"value": joint.value, "varies": None if known is None else _varies(known)}


def _varies(known: Uncertainty) -> PlainUncertainty:
    return {
        "items": dict(known.items),
        "scale": known.scale,
        "outcome": known.outcome,
        "method": known.method,
        "parts": [_part(part) for part in known.parts],
    }


def _part(part: Part) -> PlainPart:
    raw = part.values.astype("<f8").tobytes()
    return {
        "population": part.population,
        "over": part.over,
        "keys": part.keys,
        "values": base64.b64encode(raw).decode("ascii"),
        "freedom": part.freedom if math.isfinite(part.freedom) else None,
    }


def unpacked(plain: PlainJoint) -> Joint:
    """Return the number with its uncertainty that :func:`packed` made plain."""
    varies = plain["varies"]
    if varies is None:
        return Joint(plain["value"], None)
    parts = tuple(_unpacked_part(part) for part in varies["parts"])
    known = Uncertainty(
        parts, varies["items"], varies["scale"], varies["outcome"], varies["method"]
    )
    return Joint(plain["value"], known)


def _unpacked_part(plain: PlainPart) -> Part:
    values = np.frombuffer(base64.b64decode(plain["values"]), "<f8")
    freedom = math.inf if plain["freedom"] is None else plain["freedom"]
    return Part(
        plain["population"],
        tuple(plain["over"]),
        tuple(plain["keys"]),
        values.astype(np.float64),
        freedom,
    )
