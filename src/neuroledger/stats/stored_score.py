"""Scores as a record stores them, and read from it: number, interval, ceiling, counts, facts, and deviations by item."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from neuroledger.data.facts import Fact
from neuroledger.errors import MetricError
from neuroledger.stats.packed_deviations import packed_deviations, unpacked_deviations
from neuroledger.stats.score import LIMITS, Score, natural_scale, number
from neuroledger.stats.uncertainty import NOWHERE, Part, Uncertainty

__all__ = [
    "JUDGED",
    "by_item",
    "judged_in",
    "limits_in",
    "plain_score",
    "score_of",
    "uncertainty_in",
    "version_in",
]

# Of the deviations of a refreshed headline: the version by whose intervals its controls were judged.
JUDGED: Final = "controls"

# Largest deviation that is read from draws: the square of its variance is finite, too.
FARTHEST: Final = 1e50
# Between the two factors of an interaction in records that store draws.
CROSS: Final = " × "


def plain_score(score: Score) -> dict[str, Any]:
    """Return plain data for a record; NaN becomes None.

    Of the deviations of the score and of its ceiling, the sum of squares of each factor is kept, from which the interval
    follows; :func:`by_item` has single deviations.
    """
    plain: dict[str, Any] = {
        "value": number(score.value),
        "low": number(score.low),
        "high": number(score.high),
        "error": number(score.error),
        "scale": score.scale,
        "direction": score.direction,
        "raw": number(score.raw),
        "ceiling": None if score.ceiling is None else _plain_ceiling(score.ceiling),
        "n": {key: score.n[key] for key in sorted(score.n)},
        **_summed(score),
    }
    optional: dict[str, Any] = {
        "unit": score.unit,
        "id": score.id,
        "status": "" if score.status == "scored" else score.status,
        "reason": score.reason,
        "covers": score.interval_covers,
        "facts": {name: fact.to_dict() for name, fact in score.facts.items()},
        "notes": list(score.notes),
    }
    return plain | {name: content for name, content in optional.items() if content}


def _plain_ceiling(ceiling: Score) -> dict[str, Any]:
    return {
        "id": ceiling.id,
        "value": number(ceiling.value),
        "low": number(ceiling.low),
        "high": number(ceiling.high),
        "error": number(ceiling.error),
        "scale": ceiling.scale,
        "n": {key: ceiling.n[key] for key in sorted(ceiling.n)},
        **_summed(ceiling),
    }


def by_item(score: Score) -> dict[str, Any]:
    """Return the deviations of a score by group of items, as a record stores those of its headline."""
    known = score.uncertainty
    return (
        {}
        if known is None
        else {
            "uncertainty": {**packed_deviations(known), "limits": _plain_limits(score)}
        }
    )


def _summed(score: Score) -> dict[str, Any]:
    """Return the uncertainty of a score without single deviations: one group of each factor, which has no name."""
    known = score.uncertainty
    if known is None:
        return {}
    plain = packed_deviations(known, private=True)
    parts = [{**part, "keys": 1} for part in plain["parts"]]
    return {"uncertainty": {**plain, "parts": parts, "limits": _plain_limits(score)}}


def _plain_limits(score: Score) -> list[float | None]:
    return [number(end) for end in score.limits]


def version_in(plain: Mapping[str, Any]) -> int | None:
    """Return the version of the method of a stored interval, 0 before methods had one; None without deviations."""
    if plain.get("uncertainty") is not None:
        return int(plain["uncertainty"]["version"])
    return int(plain["spread"].get("version", 0)) if plain.get("spread") else None


def judged_in(plain: Mapping[str, Any]) -> int | None:
    """Return the version by whose intervals the controls of a refreshed headline were judged; None for its own."""
    known = plain.get("uncertainty") or {}
    return int(known[JUDGED]) if JUDGED in known else None


def limits_in(plain: Mapping[str, Any]) -> tuple[float, float]:
    """Return the smallest and largest possible value of a stored score; earlier records store none.

    Raises
    ------
    MetricError
        They are no interval.
    """
    stored = (plain.get("uncertainty") or {}).get("limits")
    if stored is None:
        return _earlier_limits(plain)
    try:
        low, high = stored
        ends = (
            -math.inf if low is None else float(low),
            math.inf if high is None else float(high),
        )
    except (TypeError, ValueError) as error:
        raise MetricError(
            f"the limits of a record cannot be read ({error}); run it again"
        ) from error
    if not ends[0] <= ends[1]:
        raise MetricError(
            f"{ends[0]} and {ends[1]} are no limits of a score; run it again"
        )
    return ends


def _earlier_limits(plain: Mapping[str, Any]) -> tuple[float, float]:
    """Return the limits of a score in a record that stores none, which follow from its scale and normalisation."""
    scale = LIMITS.get(str(plain.get("scale", "score")), NOWHERE)
    dummy, value, raw = (
        (plain.get("n") or {}).get("dummy"),
        plain.get("value"),
        plain.get("raw"),
    )
    if plain.get("ceiling") is not None:
        return NOWHERE
    if dummy is None:
        return scale
    if not value or raw is None:
        return NOWHERE
    span = (raw - dummy) / value  # from the dummy to perfection
    low, high = sorted((end - dummy) / span for end in scale) if span else NOWHERE
    return low, high


def score_of(plain: Mapping[str, Any], population: str, name: str = "") -> Score:
    """Return the score in a record, without samples; its items belong to ``population``.

    A score that stores no deviations, as those of earlier records of private data, gets the standard error that its
    interval tells, and shares nothing with other scores; ``name`` tells it from these.

    Raises
    ------
    MetricError
        The deviations are damaged.
    """
    scale = str(plain.get("scale", "score"))
    value = plain["value"]
    return Score(
        math.nan if value is None else value,
        scale=scale,
        direction=plain.get("direction", "higher"),
        unit=plain.get("unit"),
        raw=math.nan if plain.get("raw") is None else plain["raw"],
        n=plain.get("n") or {},
        facts={key: Fact(**fact) for key, fact in plain.get("facts", {}).items()},
        notes=tuple(plain.get("notes", ())),
        limits=limits_in(plain),
        id=plain.get("id", ""),
        population=population,
        varies=uncertainty_in(plain, population, name),
    )


def uncertainty_in(
    plain: Mapping[str, Any], population: str, name: str = ""
) -> Uncertainty | None:
    """Return the uncertainty of a stored score, or None if it has no interval.

    Deviations that were summed over the items of a factor belong to this score alone; ``name`` tells it from others.

    Raises
    ------
    MetricError
        The deviations are damaged.
    """
    if plain.get("uncertainty") is not None:
        found = unpacked_deviations(plain["uncertainty"], population)
        parts = [
            replace(part, keys=(name,)) if len(part.keys) == 1 else part
            for part in found.parts
        ]
        return replace(found, parts=tuple(parts))
    if (plain.get("spread") or {}).get("draws"):
        return _of_draws(plain, population)
    low, high = plain.get("low"), plain.get("high")
    if low is None or high is None:
        return None
    return Uncertainty.alone(name, (high - low) / (2 * 1.959964))


def _of_draws(plain: Mapping[str, Any], population: str) -> Uncertainty:
    """Return the uncertainty of a record that stores joint draws of the deviation, as earlier versions wrote them."""
    spread, parts = plain["spread"], []
    try:
        counts = {str(name): int(count) for name, count in spread["items"].items()}
        for factors, text in spread["draws"].items():
            values = np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(
                np.float64
            )
            deviation, power = (
                float(spread["deviation"][factors]),
                float(values @ values),
            )
            if (
                not (np.isfinite(values).all() and 0 <= deviation <= FARTHEST)
                or not values.size
            ):
                raise ValueError("a draw is not a finite number")
            over = tuple(factors.split(CROSS))
            if not set(over) <= counts.keys() or min(counts.values()) < 1:
                raise ValueError("draws of no items")
            exact = values * (deviation / math.sqrt(power) if power > 0 else 0.0)
            freedom = float(max(1, min(counts[name] for name in over) - 1))
            keys = tuple(f"#{at}" for at in range(len(exact)))
            if len(set(over)) == len(over):
                parts.append(Part(population, over, keys, exact, freedom))
        scale, limits = str(plain.get("scale", "score")), limits_in(plain)
        if limits != NOWHERE and "dummy" in (plain.get("n") or {}):
            # A change of units keeps the natural scale.
            limits = LIMITS.get(scale, NOWHERE)
        outcome = float(spread.get("step", 0.0))
        return Uncertainty(
            tuple(parts), counts, natural_scale(scale, limits), outcome, method="draws"
        )
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise MetricError(
            f"the draws of a record cannot be read ({error}); run it again"
        ) from error
