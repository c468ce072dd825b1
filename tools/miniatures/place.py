"""A temporary repository with the spec of one miniature and its benchmark, and the steps from its files to scores."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from neuroledger.cli import main
from neuroledger.engine.check import (
    benchmark_problems,
    dataset_problems,
    foreseen,
)
from neuroledger.engine.record import read_record, record_path
from neuroledger.errors import NeuroLedgerError
from neuroledger.spec.catalog import Catalog
from tools.miniatures.folders import Written, write
from tools.miniatures.published import Published

__all__ = ["BASELINES", "Row", "run"]

KEPT = frozenset(
    {"dims", "values_finite", "values_vary", "sampling_rate", "equal_set", "in_set"}
)
"""Expectations that do not count."""
BASELINES: Mapping[str, str] = {
    "classification": "covariance_logistic_search",
    "regression": "covariance_ridge",
    "retrieval": "covariance_ridge",
}
"""The suite's handcrafted decoder by objective."""
WIDTH = 200


class Row(NamedTuple):
    """What became of one miniature: each step with its result, in order, and the step that refused, if one did."""

    id: str
    steps: Mapping[str, str]
    refused: str | None

    def __str__(self) -> str:
        said = "  ".join(f"{step} {what}".strip() for step, what in self.steps.items())
        return f"{self.outcome:8}{self.id:34}{said}"

    @property
    def outcome(self) -> str:
        """`runs`, `fails`, or `unread` if the spec declares that no reader reads these files."""
        if self.refused == "unread":
            return "unread"
        return "fails" if self.refused else "runs"


def run(
    catalog: Catalog, one: Published, place: Path, models: Sequence[str] = ()
) -> Row:
    """Write the stand-in of a set, pin it, validate it, and score `dummy`, the baseline and these models on it."""
    if "unread" in one.spec:
        return Row(one.id, {"unread": str(one.spec["unread"])}, "unread")
    steps = {"checked": _foreseen(catalog, one)}
    objective = one.benchmark["paradigm"].get("objective", "classification")
    scored = ["dummy", *([BASELINES[objective]] if objective in BASELINES else [])]
    scored += models
    try:
        downloads = place / "downloads"
        written = write(one, downloads)
        steps["written"] = f"{written.recordings}"
        id, benchmark = derive(catalog, one, place, written, scored)
        _command(place, "pin", id, "--from", str(downloads))
        steps["pinned"] = ""
        _command(place, "validate", id)
        steps["validated"] = ""
        # Together, so that the benchmark's controls are scored once.
        _try(place, "run", "--benchmark", benchmark, *scored)
        # A constant has no correlation: the floor of such a benchmark is another model.
        constant = "fallback" in (one.benchmark.get("floor") or {})
        for model in scored:
            undefined = constant and model == "dummy"
            steps[model] = "–" if undefined else _score(place, benchmark, model)
    except NeuroLedgerError as error:
        names = ["checked", "written", "pinned", "validated", *scored]
        step = names[len(steps)]
        return Row(one.id, {**steps, step: f"— {short(str(error))}"}, step)
    return Row(one.id, steps, "checked" if steps["checked"] else None)


def _foreseen(catalog: Catalog, one: Published) -> str:
    """What `check` says of the published set and its benchmark; empty if nothing is wrong."""
    stated = foreseen(catalog, one.id)
    benchmark = catalog.benchmark(one.benchmark["id"])
    problems = [*dataset_problems(stated), *benchmark_problems(benchmark, stated)]
    return "".join(f"— {problem.code}: {problem.what}" for problem in problems)


def derive(
    catalog: Catalog,
    one: Published,
    place: Path,
    written: Written,
    models: Sequence[str],
) -> tuple[str, str]:
    """Write the specs of the miniature into a repository of its own; return the ids of data set and benchmark.

    The reader, its windows and its preprocessing are those of the published set. Expectations that count are replaced by
    the numbers of the miniature, and files are pinned again.
    """
    id, benchmark = f"miniature.{one.id}", f"miniature.{one.benchmark['id']}"
    dataset = _dataset(one, id, written)
    scored = {
        name: value
        for name, value in one.benchmark.items()
        if name not in ("published", "superseded_by")
    }
    scored |= {"id": benchmark, "dataset": id}
    scored |= {"title": f"Simulated stand-in: {scored['title']}"}
    controls = scored.get("controls", {})
    named = [*models, *controls.get("negative", ()), *controls.get("positive", ())]
    floor = scored.get("floor") or {}
    named += [floor[name] for name in ("dummy", "fallback") if floor.get(name)]
    specs = place / "specs"
    for kind in ("datasets", "benchmarks", "models"):
        (specs / kind).mkdir(parents=True)
    for name in dict.fromkeys(named):
        path = catalog.path("models", name)
        assert path is not None
        shutil.copy(path, specs / "models")
    shutil.copytree(catalog.root / "specs" / "metrics", specs / "metrics")
    shutil.copy(catalog.root / "specs" / "references.bib", specs)
    shutil.copy(catalog.root / "params.yaml", place)
    (place / "dvc.yaml").write_text("stages: {}\n")
    _write_yaml(specs / "datasets" / f"{id}.yaml", dataset)
    _write_yaml(specs / "benchmarks" / f"{benchmark}.yaml", scored)
    return id, benchmark


def _dataset(one: Published, id: str, written: Written) -> dict[str, Any]:
    fields = dict(one.spec)
    for name in ("lists", "files", "downloads"):
        fields.pop(name, None)
    fields |= {
        "id": id,
        "title": f"Simulated stand-in of {one.id}",
        "description": f"Simulated: {written.recordings} recordings with planted effects, in the layout of {one.id}.",
        "unavailable": "not pinned yet",
        "reader": dict(one.reader),
    }
    if "recordings" in one.reader or one.reader["name"] == "mne_epochs":
        fields["reader"]["recordings"] = []
    declared = one.spec.get("expectations", {}).get("assembly", [])
    kept = [check for check in declared if check["check"] in KEPT]
    counted = {"check": "distinct", "column": "subject", "count": written.people}
    rows = {"check": "row_count", "low": written.windows, "high": written.windows}
    fields["expectations"] = {"assembly": [*kept, counted, rows]}
    return fields


def _write_yaml(path: Path, fields: Mapping[str, Any]) -> None:
    first = f"# yaml-language-server: $schema=../schema/{path.parent.name[:-1]}.json\n"
    text = yaml.safe_dump(_plain(fields), sort_keys=False, allow_unicode=True)
    path.write_text(first + text, encoding="utf-8")


def _plain(value: Any) -> Any:
    """Containers of the parser as those of YAML."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _command(place: Path, *words: str) -> None:
    """Run a command of neuroledger in a repository.

    Raises
    ------
    NeuroLedgerError
        It failed; the message is what it said.
    """
    status, said = _try(place, *words)
    if status:
        raise NeuroLedgerError(said)


def _try(place: Path, *words: str) -> tuple[int, str]:
    """The exit status of a command and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        status = main(["--root", str(place), *words])
    return status, said.getvalue()


def _score(place: Path, benchmark: str, model: str) -> str:
    """The value of a record.

    Raises
    ------
    NeuroLedgerError
        There is no record, or it has no score; the message is its error.
    """
    path = record_path(place, benchmark, model)
    if not path.is_file():
        raise NeuroLedgerError("no record was written")
    record = read_record(path)
    if record.value is None:
        raise NeuroLedgerError(record.reason or "no score")
    return f"{record.value:.2f}"


def short(said: str) -> str:
    """What a command said, in one line without the path of the temporary repository."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", said)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines)
