"""What NeuralBench declares for each of its tasks, as facts in one line each: ``python -m tools.neuralbench FOLDER``.

`FOLDER` is its package `neuralbench`, unpacked; nothing of it is imported or run. The facts of a data set beside a task's
first one follow from defaults, task and data set, merged by its rules: mappings are merged, names with dots are paths, and
a mapping with `=replace=` replaces what was there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

DECLARED = Path("tests/families/decoding/neuralbench_declared.jsonl")
DEVICES = ("eeg", "meg", "emg", "fmri")
FACTS: Mapping[str, str] = {
    "dataset": "data.study.source.name",
    "outputs": "brain_model_output_size",
    "trigger": "data.trigger_event_type",
    "start": "data.start",
    "duration": "data.duration",
    "stride": "data.stride",
    "whole_strides": "data.stride_drop_incomplete",
    "rate": "data.neuro.frequency",
    "band": "data.neuro.filter",
    "notch": "data.neuro.notch_filter",
    "scaler": "data.neuro.scaler",
    "baseline": "data.neuro.baseline",
    "clamp": "data.neuro.clamp",
    "target": "data.target.event_field",
    "loss": "loss.name",
    "label_smoothing": "loss.kwargs.label_smoothing",
    "class_weights": "compute_class_weights",
    "sampler": "data.sampler.name",
    "target_scaler": "target_scaler.name",
    "learning_rate": "lightning_optimizer_config.optimizer.lr",
    "epochs": "trainer_config.n_epochs",
    "patience": "trainer_config.patience",
    "monitor": "trainer_config.monitor",
    "batch": "data.batch_size",
}
REPLACE = "=replace="
SPLITS = ("SklearnSplit", "PredefinedSplit", "SimilaritySplit")


class _Plain(yaml.SafeLoader):
    """Reads values that name Python objects or other files as texts."""


def _as_text(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> str:
    return suffix


_Plain.add_multi_constructor("tag:yaml.org,2002:python/", _as_text)
_Plain.add_multi_constructor("!", _as_text)


def read(path: Path) -> dict[str, Any]:
    """A file as plain data, with names that contain dots as nested mappings."""
    loaded: dict[str, Any] = yaml.load(path.read_text("utf-8"), _Plain) or {}
    return nested(loaded)


def nested(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The mapping with `a.b: c` written as `a: {b: c}`."""
    result: dict[str, Any] = {}
    for name, value in mapping.items():
        *path, last = [name] if name == REPLACE else str(name).split(".")
        place = result
        for part in path:
            place = place.setdefault(part, {})
        plain = nested(value) if isinstance(value, Mapping) else value
        if isinstance(plain, dict) and isinstance(place.get(last), dict):
            place[last] |= plain
        else:
            place[last] = plain
    return result


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Two mappings by the rules of NeuralBench."""
    result = {} if over.get(REPLACE) else dict(base)
    for name, value in over.items():
        if name == REPLACE:
            continue
        known = result.get(name)
        if isinstance(value, Mapping):
            value = merged(known if isinstance(known, Mapping) else {}, value)
        result[name] = value
    return result


def at(config: Any, path: str) -> Any:
    """The value at a path with dots; None if there is none."""
    for part in path.split("."):
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


def facts_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of one task and data set."""
    facts = {name: at(config, path) for name, path in FACTS.items()}
    steps = [
        step for step in config["data"]["study"].values() if isinstance(step, Mapping)
    ]
    splits = [step for step in steps if step.get("name") in SPLITS]
    facts["split"] = dict(splits[-1]) if splits else None
    queries = [
        step["query"]
        for step in steps
        if step.get("name") == "QueryEvents" and step.get("query")
    ]
    facts["queries"] = queries
    ends = [step for step in steps if step.get("name") == "OffsetEvents"]
    facts["last"] = -ends[0]["start_offset_from_end"] if ends else None
    return facts


def declared(package: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The id of each benchmark here, and the facts that NeuralBench declares for it."""
    defaults = read(package / "defaults" / "config.yaml")
    for device in DEVICES:
        for task in sorted((package / "tasks" / device).glob("*/config.yaml")):
            config = merged(defaults, read(task))
            name = f"neuralbench.{device}.{task.parent.name}"
            yield name, facts_of(config)
            for variant in sorted((task.parent / "datasets").glob("*.yaml")):
                yield (
                    f"{name}.{variant.stem}",
                    facts_of(merged(config, read(variant))),
                )


def main() -> None:
    """Write the facts."""
    lines = [
        json.dumps({"id": name, **facts}, ensure_ascii=False)
        for name, facts in declared(Path(sys.argv[1]))
    ]
    DECLARED.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} tasks: {DECLARED}")


if __name__ == "__main__":
    main()
