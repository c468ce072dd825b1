"""Scores as a record stores them, and read from it: number, interval, ceiling, counts, facts, and deviations by item."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from neuroledger.errors import MetricError
from neuroledger.stats.facts import Fact
from neuroledger.stats.score import LIMITS, Score, natural_scale, number
from neuroledger.stats.uncertainty import LARGEST, NOWHERE, NaturalScale, Part, Uncertainty

__all__ = ["plain_score", "score_of", "uncertainty_in"]

# Between the two factors of an interaction in records that store draws.
CROSS: Final = " × "


def plain_score(score: Score) -> dict[str, Any]:
    """Return plain data for a record, without deviations by item; NaN becomes None."""
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
    }


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
        limits=LIMITS.get(scale, NOWHERE) if plain.get("ceiling") is None else NOWHERE,
        id=plain.get("id", ""),
        population=population,
        varies=uncertainty_in(plain, population, name),
    )


def uncertainty_in(plain: Mapping[str, Any], population: str, name: str = "") -> Uncertainty | None:
    """Return the uncertainty of a stored score, or None if it has no interval.

    Raises
    ------
    MetricError
        The deviations are damaged.
    """
    if plain.get("uncertainty") is not None:
        return Uncertainty.from_dict(plain["uncertainty"], population)
    if plain.get("spread"):
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
            values = np.frombuffer(base64.b64decode(text, validate=True), "<f2").astype(np.float64)
            deviation, power = float(spread["deviation"][factors]), float(values @ values)
            if not np.isfinite(values).all() or not 0 <= deviation <= LARGEST or not values.size:
                raise ValueError("a draw is not a finite number")
            over = tuple(factors.split(CROSS))
            if not set(over) <= counts.keys() or min(counts.values()) < 1:
                raise ValueError("draws of no items")
            exact = values * (deviation / math.sqrt(power) if power > 0 else 0.0)
            freedom = float(max(1, min(counts[name] for name in over) - 1))
            keys = tuple(f"#{at}" for at in range(len(exact)))
            if len(set(over)) == len(over):
                parts.append(Part(population, over, keys, exact, freedom))
        scale = str(plain.get("scale", "score"))
        natural: NaturalScale = "identity"
        if plain.get("ceiling") is None:
            natural = natural_scale(scale, LIMITS.get(scale, NOWHERE))
        if not parts:
            raise ValueError("no draws")
        return Uncertainty(tuple(parts), counts, natural, float(spread.get("step", 0.0)), method="draws")
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise MetricError(f"the draws of a record cannot be read ({error}); run it again") from error
