"""Tasks here against what NeuralBench declares for them, field by field; `python -m tests.families.decoding.conformance`.

The declared facts are in `neuralbench_declared.jsonl` (see `tools/neuralbench.py`). A difference is allowed only with a
reason below, and a benchmark whose task differs may not carry published figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
import yaml
from pydantic import TypeAdapter

from neuroledger.families.decoding.protocols.splits import (
    Grouped,
    SplitRule,
    draw_folds,
)
from neuroledger.families.decoding.training.decoding_recipes import (
    NeuralBench,
    TaskRecipe,
)
from tools.long_tables import separated

ROOT = Path(__file__).parents[3]
DECLARED = Path(__file__).with_name("neuralbench_declared.jsonl")
PAGE = ROOT / "docs" / "neuralbench.md"
BEGIN, END = "<!-- conformance: begin -->", "<!-- conformance: end -->"
PERSON = re.compile(r"(?:^|/)sub-([A-Za-z0-9]+)")
HALF_SAMPLE = 0.004
"""The declared baselines end half a sample (of 120 Hz) before the published ones, which exclude their last sample."""

TASK_FIELDS = ("outputs", "window", "baseline", "split")
EVENT_SHIFT: Mapping[str, float] = {
    "Kappenman2021ErpErn": -0.8,
    "Kappenman2021ErpLrp": -0.6,
    "Kappenman2021ErpMmn": -0.2,
    "Kappenman2021ErpN170": -0.2,
    "Kappenman2021ErpN2pc": -0.2,
    "Kappenman2021ErpN400": -0.2,
    "Kappenman2021ErpP3": -0.2,
    "Haufe2011Eeg": -0.5,
    "Kojima2024ReplicationA": -0.5,
    "Kalunga2016Online": 2.0,
}
"""Seconds by which MOABB 1.7.2 moves events of a data set (the beginning of its `interval`) that is read here from files
with the times of the events themselves; trees that MOABB wrote contain moved events already."""
EQUAL_IN_EFFECT = "no recording has frequencies above 75 Hz to filter out"
UNKNOWN_TARGETS = "five targets are declared, of which four occur: the documentation counts from 0 or from 1"
ONE_PER_EVENT = "every event lasts one stride, so it has one window"
NOTHING_BEFORE = "the files hold single trials without what precedes them: windows begin with the trial, without baseline"
REASONS: Mapping[tuple[str, str], str] = {
    ("neuralbench.eeg.p3.vanveen2019", "band"): EQUAL_IN_EFFECT,
    ("neuralbench.eeg.sleep_onset", "band"): EQUAL_IN_EFFECT,
    ("neuralbench.eeg.sleep_stage", "band"): EQUAL_IN_EFFECT,
    ("neuralbench.eeg.mental_workload.hinss2021", "window"): ONE_PER_EVENT,
    ("neuralbench.eeg.n2pc.reichert2020", "window"): NOTHING_BEFORE,
    ("neuralbench.eeg.cvep.castillos2023burstcvep100", "outputs"): UNKNOWN_TARGETS,
    ("neuralbench.eeg.cvep.castillos2023burstvep100", "outputs"): UNKNOWN_TARGETS,
    ("neuralbench.eeg.cvep.castillos2023burstvep40", "outputs"): UNKNOWN_TARGETS,
    ("neuralbench.eeg.cvep.castillos2023cvep40", "outputs"): UNKNOWN_TARGETS,
}


class Difference(NamedTuple):
    """One field in which a task differs, as declared and as it is here."""

    field: str
    published: Any
    here: Any


def declared() -> dict[str, dict[str, Any]]:
    """The facts of NeuralBench by the id of the benchmark here."""
    lines = DECLARED.read_text("utf-8").splitlines()
    return {facts["id"]: facts for facts in map(json.loads, lines)}


def spec(kind: str, id: str) -> dict[str, Any]:
    """A spec of this repository as plain data."""
    path = ROOT / "specs" / kind / f"{id}.yaml"
    loaded: dict[str, Any] = yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)
    return loaded


def differences(
    benchmark: Mapping[str, Any], dataset: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[Difference]:
    """The fields in which a task differs from the declared one."""
    theirs, ours = published_view(facts), view_here(benchmark, dataset)
    return [
        Difference(field, theirs[field], value)
        for field, value in ours.items()
        if value is not None and theirs[field] != value
    ]


def published_view(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The declared facts in the form in which they are compared."""
    low, high = facts["band"] or (None, None)
    return {
        "outputs": facts["outputs"],
        "window": [facts["start"], facts["duration"], facts["stride"]],
        "last": facts["last"],
        "baseline": facts["baseline"],
        "rate": facts["rate"],
        "band": [low, high],
        "notch": facts["notch"],
        "scale": "recording, before baseline",
        "clamp": facts["clamp"],
        "split": _published_split(facts["split"]),
        "training": _published_training(facts),
    }


def view_here(
    benchmark: Mapping[str, Any], dataset: Mapping[str, Any]
) -> dict[str, Any]:
    """A task of this repository in the form in which it is compared; None where nothing can be compared."""
    reader = dataset.get("reader") or {}
    window = reader.get("window") or {}
    steps = reader.get("preprocessing") or {}
    shift = EVENT_SHIFT.get(dataset["id"], 0.0)
    start = window.get("start", 0.0) - shift
    is_last = window.get("anchor") == "end"
    baseline = steps.get("baseline")
    notch = steps.get("notch")
    has_steps = bool(steps)
    return {
        "outputs": _outputs(benchmark, reader),
        "window": [
            0.0 if is_last else round(start, 6),
            window.get("duration"),
            window.get("stride"),
        ],
        "last": -window["start"] if is_last else None,
        "baseline": None if baseline is None else _relative(baseline, window["start"]),
        "rate": steps.get("resample") if has_steps else None,
        "band": [steps.get("high_pass"), steps.get("low_pass")] if has_steps else None,
        "notch": notch["at"] if isinstance(notch, Mapping) else notch,
        "scale": _scale(steps.get("scale")) if has_steps else None,
        "clamp": steps.get("clamp") if has_steps else None,
        "split": _split(benchmark["paradigm"]["splits"]),
        "training": _training(benchmark),
    }


def _relative(baseline: list[float], start: float) -> list[float]:
    """A baseline from the beginning of the window, with its end as published."""
    return [
        round(baseline[0] - start, 6),
        round(baseline[1] + HALF_SAMPLE - start, 6),
    ]


def _scale(scale: Any) -> str | None:
    if isinstance(scale, Mapping):
        return f"{scale['of']}, before {scale['before']}"
    return None if scale is None else "windows"


def _outputs(benchmark: Mapping[str, Any], reader: Mapping[str, Any]) -> int | None:
    """The number of outputs, where labels declare it."""
    paradigm = benchmark["paradigm"]
    objective = paradigm.get("objective", "classification")
    if objective == "multilabel":
        return len(paradigm["target"])
    if objective == "regression":
        return 1
    if objective != "classification":
        return None
    window = reader.get("window") or {}
    names = set((window.get("labels") or {}).values())
    names |= {window["otherwise"]} if "otherwise" in window else set()
    names |= {
        facts["label"]
        for facts in (reader.get("named") or {}).values()
        if "label" in facts
    }
    return len(names) or None


def _published_split(split: Mapping[str, Any]) -> dict[str, Any]:
    """How the tested part is found, its share and that of the validation part, and their seeds."""
    if split["name"] == "PredefinedSplit":
        return {
            "test": "declared",
            "validation": split["valid_split_ratio"],
            "seeds": [split["valid_random_state"]],
            "stratified": False,
        }
    rest = 1 - split["test_split_ratio"]
    return {
        "test": split["test_split_ratio"],
        "validation": round(split["valid_split_ratio"] / rest, 4),
        "seeds": [split["test_random_state"], split["valid_random_state"]],
        "stratified": "stratify_by" in split,
    }


def _split(rule: Mapping[str, Any]) -> dict[str, Any]:
    is_declared = rule["name"] in ("declared", "within_subject")
    validation = rule.get("validation") or {}
    seeds = [] if is_declared else [rule.get("seed", 33)]
    return {
        "test": "declared" if is_declared else rule.get("test"),
        "validation": validation.get("fraction"),
        "seeds": [*seeds, validation.get("seed")],
        "stratified": "stratify" in rule,
    }


MONITORS: Mapping[str, str] = {
    "bal_acc": "headline",
    "f1_score_macro": "headline",
    "pearsonr": "headline",
    "CER": "headline",
    "bmae": "binned_mae",
    "batch_top5_acc": "batch_top5",
}


def _published_training(facts: Mapping[str, Any]) -> dict[str, Any]:
    is_classification = facts["loss"] in ("CrossEntropyLoss", "BCEWithLogitsLoss")
    return {
        "learning_rate": facts["learning_rate"],
        "epochs": facts["epochs"],
        "patience": facts["patience"],
        "batch": facts["batch"],
        "monitor": MONITORS[facts["monitor"].removeprefix("val/")],
        "label_smoothing": facts["label_smoothing"] or 0.0,
        "class_weights": bool(facts["class_weights"]) if is_classification else None,
    }


def _training(benchmark: Mapping[str, Any]) -> dict[str, Any]:
    paradigm = benchmark["paradigm"]
    task = TaskRecipe.model_validate(paradigm.get("recipe") or {})
    recipe = NeuralBench().for_task(task)
    objective = paradigm.get("objective", "classification")
    has_classes = objective in ("classification", "multilabel")
    smoothing = recipe.label_smoothing if objective == "classification" else 0.0
    return {
        "learning_rate": recipe.learning_rate,
        "epochs": recipe.epochs,
        "patience": recipe.patience,
        "batch": recipe.batch,
        "monitor": recipe.monitor,
        "label_smoothing": smoothing,
        "class_weights": recipe.class_weights if has_classes else None,
    }


def compared() -> Iterator[tuple[str, list[Difference], dict[str, Any]]]:
    """Each task with its differences and its benchmark."""
    for id, facts in declared().items():
        if not (ROOT / "specs" / "benchmarks" / f"{id}.yaml").exists():
            continue
        benchmark = spec("benchmarks", id)
        dataset = spec("datasets", benchmark["dataset"])
        yield id, differences(benchmark, dataset, facts), benchmark


def people_of(dataset: Mapping[str, Any]) -> list[str]:
    """The people of a pinned BIDS tree, by the names of its files; none for other layouts and left-out people."""
    table = (dataset.get("lists") or {}).get("files")
    if table is None:
        return []
    path = ROOT / "specs" / "datasets" / table["table"]
    names = [json.loads(line)["name"] for line in path.read_text("utf-8").splitlines()]
    reader = dataset.get("reader") or {}
    chosen = set(reader.get("subjects") or ())
    found = {match[1] for match in map(PERSON.search, names) if match is not None}
    return sorted(found & chosen if chosen else found)


def by_number(name: str) -> tuple[int, str]:
    """A key that orders names by the number in them."""
    digits = re.sub(r"\D", "", name)
    return int(digits or 0), name


def people_tested(
    benchmark: Mapping[str, Any], dataset: Mapping[str, Any]
) -> list[str]:
    """The people who are tested, where the names of files and the rule alone decide it."""
    rule = TypeAdapter(SplitRule).validate_python(benchmark["paradigm"]["splits"])
    people = people_of(dataset)
    if not isinstance(rule, Grouped) or rule.column != "subject" or len(people) < 5:
        return []
    if rule.stratify not in (None, "session"):
        return []
    coords = {
        "subject": ("presentation", people),
        "session": ("presentation", ["1"] * len(people)),
    }
    table = xr.DataArray(np.zeros(len(people)), dims="presentation", coords=coords)
    (fold,) = draw_folds(rule.model_copy(update={"validation": None}), table)
    return [people[row] for row in fold.test]


def table() -> str:
    """The table of the page, as Markdown."""
    lines = [
        "| task | outputs | window (s) | baseline (s) | published figures | differences | tested people |",
        "|---|--:|---|---|--:|---|---|",
    ]
    for id, found, benchmark in compared():
        dataset = spec("datasets", benchmark["dataset"])
        here = view_here(benchmark, dataset)
        start, duration, stride = here["window"]
        window = f"{start:g} to {start + duration:g}" + (
            f", every {stride:g}" if stride else ""
        )
        if here["last"]:
            window += f" of the last {here['last']:g}"
        baseline = here["baseline"]
        words = [f"{one.field}: {REASONS[id, one.field]}" for one in found]
        reason = dataset.get("unavailable") or dataset.get("unread")
        if reason:
            words.append(
                f"not scored: {'no files' if dataset.get('unavailable') else 'unread'}"
            )
        cells = [
            f"`{id.removeprefix('neuralbench.')}`",
            str(here["outputs"] or ""),
            window,
            "" if baseline is None else f"{baseline[0]:g} to {baseline[1]:g}",
            str(len(benchmark.get("published") or []) or ""),
            "; ".join(words) or "none",
            ", ".join(sorted(people_tested(benchmark, dataset), key=by_number)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def files(text: str) -> dict[str, str]:
    """The page with the table written anew, which is a file of its own."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    page = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    return separated(PAGE.relative_to(ROOT).as_posix(), page)


if __name__ == "__main__":
    for name, text in files(PAGE.read_text("utf-8")).items():
        (ROOT / name).write_text(text, encoding="utf-8")
