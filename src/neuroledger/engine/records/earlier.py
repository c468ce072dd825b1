"""Records of earlier versions in the present form: the same values, with fields where there were texts and random draws."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from neuroledger.stats.score import LIMITS, natural_scale, number
from neuroledger.stats.stored_score import StoredScore
from neuroledger.stats.uncertainty import NOWHERE

__all__ = ["in_present_form"]

Plain = Mapping[str, Any]
# Notes of earlier records that state facts. The hash of prepared signals is a fact only; the others are notes, too.
PREPARED: Final = re.compile(r"prepared signals, sha256 ([0-9a-f]{12})")
MODE: Final = re.compile(r"mode (strict|neurobench-2\.3)")
EVIDENCE: Final = re.compile(r"evidence: (measured|modelled|declared)\b.*")
# Between the two factors of an interaction.
CROSS: Final = " × "
# Largest deviation of draws that is read: the square of its variance is finite, too.
LARGEST: Final = 1e50


def in_present_form(plain: Plain) -> Plain:
    """Return the plain data of a record in the present form; a record that has it already is returned unchanged.

    Controls stored ``passed`` and a text instead of an interval and a verdict: their uncertainty is unknown. Scores stored
    random draws of their deviation as ``spread``: they become deviations of numbered groups, of version 0 of the method.
    Notes stated facts. Identity, values, intervals and verdicts stay.

    Raises
    ------
    ValueError
        The earlier form is damaged.
    """
    try:
        return {
            **plain,
            "score": _score(plain["score"]),
            "scores": {name: _score(score) for name, score in plain["scores"].items()},
            "controls": {
                name: _control(control) for name, control in plain["controls"].items()
            },
        }
    except (KeyError, TypeError, AttributeError):
        return plain  # not a record of any version: its fields say what is wrong


def _control(plain: Plain) -> Plain:
    """Return a control with a verdict."""
    if not isinstance(plain, dict) or plain.keys() != {
        "role",
        "value",
        "bound",
        "passed",
        "says",
    }:
        return plain
    role = plain["role"]
    value = plain["value"]
    bound = plain["bound"]
    text = plain["says"]
    if not isinstance(plain["passed"], bool):
        raise ValueError(
            f"passed of a control is {plain['passed']!r}, not true or false"
        )
    if value is None and not plain["passed"]:
        return {
            "role": role,
            "value": None,
            "bound": bound,
            "verdict": "failed",
            "reason": text,
        }
    verdict = "passed" if plain["passed"] else "failed"
    # A positive control can fail above its bound only if that is the bound beyond which a ceiling is too low.
    is_above = verdict == "failed" and role == "positive" and value > bound
    at_most = bound if is_above else None
    return {
        "role": role,
        "value": value,
        "bound": bound,
        "verdict": verdict,
        "at_most": at_most,
    }


def _score(plain: Plain) -> Plain:
    """Return a score whose facts are fields, and whose draws are deviations of numbered groups."""
    if not isinstance(plain, dict):
        return plain
    kept = {name: content for name, content in plain.items() if name != "spread"}
    spread = plain.get("spread")
    if kept.get("uncertainty") is None and spread and spread.get("draws"):
        kept["uncertainty"] = _uncertainty(StoredScore.model_validate(kept), spread)
    notes = plain.get("notes", ())
    facts = dict(_facts(notes))
    if facts:
        kept["facts"] = facts | plain.get("facts", {})
        kept["notes"] = [note for note in notes if PREPARED.fullmatch(note) is None]
    return kept


def _facts(notes: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the facts that records stated in notes only."""
    for note in notes:
        if found := PREPARED.fullmatch(note):
            yield "prepared_sha256", {"value": found[1], "origin": "stated"}
        elif found := MODE.fullmatch(note):
            yield "counting_mode", {"value": found[1], "origin": "declared"}
        elif found := EVIDENCE.match(note):
            origin = "stated" if found[1] == "measured" else "declared"
            yield "evidence", {"value": found[1], "origin": origin}


def _uncertainty(score: StoredScore, spread: Plain) -> dict[str, object]:
    """Return draws as deviations; ``score`` is the score without them."""
    limits = score.limits
    natural = limits
    if limits != NOWHERE and "dummy" in score.n:
        natural = LIMITS.get(
            score.scale, NOWHERE
        )  # a change of units keeps the natural scale
    items = spread["items"]
    return {
        "method": "draws",
        "version": spread.get("version", 0),
        "scale": natural_scale(score.scale, natural),
        "items": items,
        "outcome": float(spread.get("step", 0.0)),
        "parts": [
            _part(factors.split(CROSS), text, spread["deviation"][factors], items)
            for factors, text in spread["draws"].items()
        ],
        "limits": [number(end) for end in limits],
    }


def _part(
    over: list[str], draws: str, deviation: float, items: Plain
) -> dict[str, object]:
    """Return the draws of one factor, or of the interaction of two, as deviations of as many groups."""
    values = np.frombuffer(base64.b64decode(draws, validate=True), "<f2")
    if not 0 <= deviation <= LARGEST:
        raise ValueError(f"{deviation} is not a deviation of draws")
    freedom = max(1, min(items[name] for name in over) - 1)
    return {
        "over": over,
        "keys": len(values),
        "values": draws,
        "freedom": freedom,
        "variance": deviation**2 if np.any(values) else 0.0,
    }
