"""Scores in NeuroBench's flat layout and in sc-neurocore's nested one, each with a field that says how they were counted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from neuroledger.engine.record import Record, read_all
from neuroledger.errors import RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.score import Score
from neuroledger.stats.stored_score import StoredScore
from neuroledger.store.files import write_text

__all__ = ["export_neurobench", "export_sc_neurocore", "flat", "nested"]

# Metric id: NeuroBench's class name (version 2), and its name in version 1.
NAMES: Final = {
    "parameter_count": ("ParameterCount", "parameter_count"),
    "footprint": ("Footprint", "footprint"),
    "connection_sparsity": ("ConnectionSparsity", "connection_sparsity"),
    "accuracy": ("ClassificationAccuracy", "classification_accuracy"),
    "activation_sparsity": ("ActivationSparsity", "activation_sparsity"),
    "membrane_updates": ("MembraneUpdates", "membrane_updates"),
    "mse": ("MSE", "mse"),
    "smape": ("SMAPE", "sMAPE"),
    "r2": ("R2", "r2"),
    "coco_map": ("CocoMap", "COCO_mAP"),
    "execution_rate": ("ModelExecutionRate", "model_execution_rate"),
}
OPERATIONS: Final = {
    "effective_macs": "Effective_MACs",
    "effective_acs": "Effective_ACs",
    "dense_operations": "Dense",
}
NEURONS: Final = {
    "neuron_operations": "Effective Neuron Ops",
    "dense_neuron_operations": "Neuron Dense Ops",
}
COUNTS: Final = frozenset({"parameter_count", "footprint"})
AnyScore = Score | StoredScore


def plain(score: AnyScore) -> float | None:
    """Return a score's raw value, before any floor or ceiling; None, never 0, for a failed score."""
    value = score.raw
    if value is None or score.status == "failed" or not math.isfinite(value):
        return None
    return float(value)


def flat(
    scores: Mapping[str, AnyScore],
    *,
    version: Literal["v1", "v2"] = "v2",
) -> dict[str, object]:
    """Return NeuroBench's result object: its keys, counts as integers, and only the metrics that it has.

    A metric that failed or is partly counted is null, because NeuroBench's layout has no field for a reason. If any
    cost was not counted in NeuroBench's mode, ``CountingMode`` states the mode (``strict``, or ``mixed``).
    """
    index = 0 if version == "v2" else 1
    result: dict[str, object] = {}
    for name, names in NAMES.items():
        if name in scores:
            value = _complete_value(scores[name])
            if name in COUNTS and value is not None:
                value = int(value)
            result[names[index]] = value
    further: dict[str, object] = {
        "ActivationSparsityByLayer": _by_layer(scores.get("activation_sparsity")),
        "SynapticOperations": _complete_values(scores, OPERATIONS),
        "NeuronOperations": _complete_values(scores, NEURONS),
    }
    modes = _modes(scores)
    if modes - {"neurobench-2.3"}:
        further["CountingMode"] = _common_mode(modes)
    for name, content in further.items():
        if content:
            # Version 1 writes ActivationSparsityByLayer as activation_sparsity_by_layer.
            old_name = re.sub(r"\B([A-Z])", r"_\1", name).lower()
            result[(name, old_name)[index]] = content
    return result


def _by_layer(activity: AnyScore | None) -> dict[str, float]:
    """Return the activation sparsity of each layer; empty if it is not known."""
    samples = activity.samples if isinstance(activity, Score) else None
    if samples is None or "layer" not in samples.dims:
        return {}
    layers = samples["layer"].values.tolist()
    return dict(zip(layers, samples.values.tolist(), strict=True))


def _complete_values(
    scores: Mapping[str, AnyScore], names: Mapping[str, str]
) -> dict[str, float | None]:
    """Return the values of those metrics that were scored, by other names."""
    present = {name: key for name, key in names.items() if name in scores}
    return {key: _complete_value(scores[name]) for name, key in present.items()}


def _common_mode(modes: set[str]) -> str:
    if len(modes) == 1:
        return next(iter(modes))
    return "mixed"


def _modes(scores: Mapping[str, AnyScore]) -> set[str]:
    """Return the modes in which costs were counted."""
    facts = (score.facts.get("counting_mode") for score in scores.values())
    return {str(fact.value) for fact in facts if fact is not None}


def _is_measured(score: AnyScore) -> bool:
    """Whether a score was measured, and not modelled from counts."""
    evidence = score.facts.get("evidence")
    return evidence is not None and evidence.value == "measured"


def _complete_value(score: AnyScore) -> float | None:
    if score.status == "scored":
        return plain(score)
    return None


def export_neurobench(catalog: Catalog, benchmark: str, out: Path) -> list[Path]:
    """Write ``out/neurobench/<benchmark>/<model>.json`` for every record of the benchmark.

    Raises
    ------
    RequestError
        There is no such benchmark, the layout has none of its metrics, or no model was scored on it.
    """
    metrics = [
        m if isinstance(m, str) else m.name
        for m in catalog.benchmark(benchmark).all_metrics
    ]
    supported = {*NAMES, *OPERATIONS, *NEURONS}
    if supported.isdisjoint(metrics):
        raise RequestError(
            f"benchmark {benchmark!r} has no metric of NeuroBench's layout: it lists {', '.join(metrics)}, and the "
            f"layout has {', '.join(sorted(supported))}"
        )

    def text(record: Record) -> str:
        return json.dumps(flat(record.scores), indent=4, allow_nan=False) + "\n"

    return _export(catalog, benchmark, out / "neurobench", text)


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
    scores: Mapping[str, AnyScore],
    *,
    extra: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Return sc-neurocore's result object: correctness, complexity and system under ``metrics``, and ``extra``.

    Spikes and operations are totals over all samples, as in sc-neurocore; latency and energy are per sample; ``units``
    states this. Definitions are those of this repository, in the stated ``counting_mode``: sc-neurocore divides spikes
    by parameters. Values that were not measured, are NaN or were only partly counted are null, never 0. Modelled
    energy is included in ``extra`` only.
    """
    values = {name: _complete_value(score) for name, score in scores.items()}
    energies = {
        name: value
        for name, value in values.items()
        if value is not None and name.startswith("energy")
    }
    metered = [name for name in energies if _is_measured(scores[name])]
    parts = [
        scores[name] for name in ("effective_macs", "effective_acs") if name in scores
    ]
    totals = list(map(_total_count, parts))
    # Networks without time steps state none; if nothing was counted, their number is unknown.
    steps = [
        score.n["time_steps"] for score in scores.values() if "time_steps" in score.n
    ]
    steps += [1 for name in OPERATIONS if values.get(name) is not None]
    parameters = values.get("parameter_count")
    latency = values.get("latency")
    result: dict[str, object] = {
        "task": task,
        "model": model,
        "metrics": {
            "correctness": {
                name: values[name] for name in CORRECTNESS if name in values
            },
            "complexity": {
                "total_parameters": None if parameters is None else int(parameters),
                "synaptic_operations": sum(filter(None, totals))
                if len(totals) == 2 and None not in totals
                else None,
                "activation_sparsity": values.get("activation_sparsity"),
                "total_spikes": _total_count(scores.get("spikes")),
                "timesteps": int(steps[0]) if steps else None,
            },
            "system": {
                "latency_ms": None if latency is None else latency * 1e3,
                "energy_nj": energies[metered[0]] * 1e9 if metered else None,
            },
        },
        "units": {
            "synaptic_operations": "all samples",
            "total_spikes": "all samples",
            "timesteps": "one sample",
            "latency_ms": "one sample",
            "energy_nj": "one sample, measured",
        },
        "framework": "neuroledger",
    }
    if modes := _modes(scores):
        result["counting_mode"] = _common_mode(modes)
    modelled = {
        f"{name}_nj": value * 1e9
        for name, value in energies.items()
        if name not in metered
    }
    if extra or modelled:
        details = {str(key): _json(value) for key, value in (extra or {}).items()}
        result["extra"] = details | ({"modelled": modelled} if modelled else {})
    return result


def _total_count(score: AnyScore | None) -> int | None:
    """Return a count per sample times the number of samples."""
    if score is None:
        return None
    per_sample = _complete_value(score)
    samples = score.n.get("samples")
    if per_sample is None or samples is None:
        return None
    return round(per_sample * samples)


def _json(value: object) -> Any:
    """Convert to plain data, with None for NaN and infinity."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_json, value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def export_sc_neurocore(catalog: Catalog, benchmark: str, out: Path) -> list[Path]:
    """Write ``out/sc-neurocore/<benchmark>/<model>.json`` for every record of the benchmark.

    Raises
    ------
    RequestError
        There is no such benchmark, or no model was scored on it.
    """

    def text(record: Record) -> str:
        extra = {"record": record.id, "seed": record.request.seed}
        content = nested(benchmark, record.model, record.scores, extra=extra)
        return json.dumps(content, indent=2, allow_nan=False) + "\n"

    return _export(catalog, benchmark, out / "sc-neurocore", text)


def _export(
    catalog: Catalog, benchmark: str, folder: Path, text: Callable[[Record], str]
) -> list[Path]:
    """Write ``folder/<benchmark>/<model>.json`` with the ``text`` of each record that did not fail.

    Raises
    ------
    RequestError
        There is no such benchmark, or no model was scored on it.
    """
    catalog.benchmark(benchmark)
    written = []
    for record in read_all(catalog.root / "results" / "records"):
        if record.benchmark == benchmark and record.status != "failed":
            path = folder / benchmark / f"{record.model}.json"
            write_text(path, text(record))
            written.append(path)
    if not written:
        raise RequestError(
            f"no model has a score on {benchmark!r}; run `neuroledger run --benchmark {benchmark}`"
        )
    return sorted(written)
