"""A repository with invented records: clear and tied orders, failures, partial and edited records, hostile texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuroledger.engine.record import Record, record_path, write_record
from neuroledger.spec.base import sha256_of
from neuroledger.spec.catalog import Catalog
from tests.engine.lab import Lab, build

HOSTILE = "<script>alert('x')</script> & \"quotes\" {{ 7 * 7 }}"
CONTROLS = {
    "pixels4": {
        "role": "positive",
        "value": 0.97,
        "low": None,
        "high": None,
        "bound": 0.8,
        "at_most": None,
        "verdict": "passed",
        "shuffles": 0,
        "reason": "",
    },
    "noise": {
        "role": "negative",
        "value": 0.01,
        "low": None,
        "high": None,
        "bound": 0.1,
        "at_most": None,
        "verdict": "passed",
        "shuffles": 0,
        "reason": "",
    },
}


def score(value: float, half: float | None = 0.02, **fields: Any) -> dict[str, Any]:
    """Return a score as plain data, as stored in a record."""
    low, high = (None, None) if half is None else (value - half, value + half)
    ceiling = {
        "id": "internal_consistency",
        "value": 0.8,
        "low": 0.7,
        "high": 0.9,
        "scale": "reliability",
        "n": {},
    }
    plain = {
        "value": value, "low": low, "high": high, "error": None, "scale": "correlation", "direction": "higher",
        "raw": value * 0.9, "ceiling": ceiling, "n": {"neuroid": 30, "split": 10, "stimuli": 1}, "id": "ridge",
    }  # fmt: skip
    return plain | fields


def record(
    model: str,
    benchmark: str,
    value: float | None,
    *,
    half: float | None = 0.02,
    **fields: Any,
) -> Record:
    plain = None if value is None else score(value, half)
    inputs = {
        "benchmark": {"id": benchmark, "version": 1},
        "model": {"id": model},
    } | fields.pop("inputs", {})
    known: dict[str, Any] = {
        "id": sha256_of(inputs),
        "status": "failed" if value is None else "scored",
        "model": model,
        "benchmark": benchmark,
        "score": plain,
        "scores": {} if plain is None else {"ridge": plain},
        "controls": CONTROLS,
        "request": {"seed": 0, "limit": None, "device": "cpu"},
        "inputs": inputs,
        "error": {"type": "MetricError", "message": "it did not work"}
        if value is None
        else None,
        "environment": {"commit": "abc"},
        "timing": {"wall_s": 1.0},
    }
    return Record.model_validate(known | fields).sealed()


def altered(content: Record, **fields: Any) -> Record:
    """Return a copy of a record with some fields replaced, as plain data or as values; its hash stays."""
    return Record.model_validate({**content.model_dump(mode="json"), **fields})


def with_score(content: Record, **fields: Any) -> Record:
    """Return a copy of a record whose headline has some other fields."""
    assert content.score is not None
    return altered(content, score={**content.score.model_dump(mode="json"), **fields})


def ledger(root: Path, repository: Path) -> Lab:
    """Return two benchmarks, a suite of both, four models and two controls."""
    lab = build(root, repository)
    lab.spec(
        "models", "pixels4", builder={"name": "pixels", "size": 4}, control="positive"
    )
    for model in ("ant", "bee", "cat", "dog"):
        lab.spec("models", model, builder={"name": "pixels", "size": 8})
    lab.benchmark("lab.V4-ridge")
    lab.benchmark("lab.V4-pls", metric="pls")
    weighted = ["lab.V4-ridge", {"id": "lab.V4-pls", "weight": 3}]
    lab.spec("suites", "lab", benchmarks=weighted, models=["ant", "bee", "cat", "dog"])
    return lab


def keep(catalog: Catalog, *records: Record) -> None:
    for each in records:
        write_record(record_path(catalog.root, each.benchmark, each.model), each)
