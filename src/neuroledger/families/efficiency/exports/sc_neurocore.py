"""Scores in sc-neurocore's nested layout, in which extra values have a place of their own and can overwrite nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from neuroledger.engine.record import Record
from neuroledger.families.efficiency.exports.neurobench import plain
from neuroledger.report.exports import export_records
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.score import Score

__all__ = ["export_sc_neurocore", "nested"]

CORRECTNESS: Final = (
    "accuracy",
    "balanced_accuracy",
    "macro_f1",
    "incremental_accuracy",
    "mean_average_precision",
    "coco_map",
    "mse",
    "rmse",
    "r2",
    "smape",
)


def nested(
    task: str,
    model: str,
    scores: Mapping[str, Score | Mapping[str, Any]],
    *,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """sc-neurocore's result object: correctness, complexity and system, and beside ``metrics`` what is ``extra``.

    Operations and sparsity are per sample and by the definitions of this repository, not by sc-neurocore's, which
    divides spikes by parameters. What was not measured is null, never 0; so is a number that is none.
    """
    values = {name: plain(score) for name, score in scores.items()}

    def milli(name: str, factor: float) -> float | None:
        value = values.get(name)
        return None if value is None else value * factor

    operations = [values.get(name) for name in ("effective_macs", "effective_acs")]
    counted = [value for value in operations if value is not None]
    steps = next((n["time_steps"] for n in map(_counts, scores.values()) if "time_steps" in n), 1)
    parameters = values.get("parameter_count")
    result: dict[str, Any] = {
        "task": task,
        "model": model,
        "metrics": {
            "correctness": {name: values[name] for name in CORRECTNESS if name in values},
            "complexity": {
                "total_parameters": None if parameters is None else int(parameters),
                "synaptic_operations": sum(counted) if len(counted) == len(operations) else None,
                "activation_sparsity": values.get("activation_sparsity"),
                "total_spikes": _total(scores.get("spikes")),
                "timesteps": int(steps),
            },
            "system": {
                "latency_ms": milli("latency", 1e3),
                "energy_nj": milli("energy", 1e9) if "energy" in values else milli("energy_45nm", 1e9),
            },
        },
        "framework": "neuroledger",
    }
    if extra:
        result["extra"] = {str(key): _json(value) for key, value in extra.items()}
    return result


def _counts(score: Score | Mapping[str, Any]) -> Mapping[str, Any]:
    return score.n if isinstance(score, Score) else score.get("n", {})


def _total(score: Score | Mapping[str, Any] | None) -> int | None:
    """A number per sample times the samples."""
    each = None if score is None else plain(score)
    samples = None if score is None else _counts(score).get("samples")
    return None if each is None or samples is None else round(each * samples)


def _json(value: Any) -> Any:
    """Plain data without NaN."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def export_sc_neurocore(catalog: Catalog, benchmark: str, out: Path) -> list[Path]:
    """Write ``out/sc-neurocore/<benchmark>/<model>.json`` for every record of the benchmark.

    Raises
    ------
    RequestError
        No such benchmark, or no model was scored on it.
    """

    def text(record: Record) -> str:
        extra = {"record": record.id, "seed": record.request.get("seed")}
        content = nested(benchmark, record.model, record.scores, extra=extra)
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    return export_records(catalog, benchmark, out / "sc-neurocore", text)
