"""Diagnosis of a suite from its records, published figures or a table: as text, plain data and a page."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from neuroledger.engine.record import Record
from neuroledger.engine.records.summary import Known
from neuroledger.errors import DataError, RequestError
from neuroledger.report.table import board_of
from neuroledger.spec.base import id_of
from neuroledger.spec.catalog import Catalog
from neuroledger.stats.diagnosis import Diagnosis, Pair, Table
from neuroledger.stats.task_ranks import published_table
from neuroledger.store.git import git

__all__ = [
    "diagnosis_page",
    "diagnosis_text",
    "from_csv",
    "from_published",
    "from_records",
    "plain",
]

MAX_LOADINGS: Final = 12
STATES: Final = {"scored": "scored", "failed": "failed"}


def from_records(
    catalog: Catalog, suite: str, records: Sequence[Record] | Sequence[Known]
) -> Table:
    """Return the scores of the models of a suite without controls; lower-is-better scores change their sign."""
    board = board_of(catalog, catalog.suite(suite), records)
    columns = [column for column in board.columns if not column.unavailable]
    rows = [row for row in board.rows if row.role == "model"]
    indices = {column.id: board.columns.index(column) for column in columns}
    values, halves = (
        pd.DataFrame(math.nan, [row.model for row in rows], list(indices))
        for _ in range(2)
    )
    states = pd.DataFrame("never run", values.index, values.columns)
    for column in columns:
        if column.direction == "lower" and column.normalise == "none":
            sign = -1
        else:
            sign = 1
        for row in rows:
            cell = row.cells[indices[column.id]]
            states.loc[row.model, column.id] = STATES.get(cell.status, "never run")
            if cell.status == "scored" and cell.value is not None:
                values.loc[row.model, column.id] = sign * cell.value
                if cell.half_width is not None:
                    halves.loc[row.model, column.id] = cell.half_width
    ids = list(indices)
    return Table(
        values, halves, states, _attributes(catalog, ids), _by_age(catalog, ids)
    )


def from_published(catalog: Catalog, suite: str) -> Table:
    """Return the published figures of the benchmarks of a suite, in the order of the suite."""
    figures = published_table(suite, catalog)
    if not figures:
        raise RequestError(
            f"suite {suite!r} has no published figures: omit --published"
        )
    lower = {id for id in figures if _direction(catalog, id) == "lower"}
    values = pd.DataFrame(
        {
            id: {
                model: -value if id in lower else value for model, value in row.items()
            }
            for id, row in figures.items()
        }
    )
    states = pd.DataFrame(
        np.where(values.notna(), "scored", "never run"), values.index, values.columns
    )
    return Table(values, values * math.nan, states, _attributes(catalog, list(figures)))


def from_csv(path: Path) -> Table:
    """Return the table in a CSV file with a row for each model and a column for each benchmark.

    The first column names the models. A finite number is a score, an empty cell was never run, any other text is a failure.
    A row whose first cell begins with ``#`` gives an attribute of each benchmark (``#metric``, ``#region``, …).

    Raises
    ------
    DataError
        The file cannot be read, has no scores, a row differs from the header in length, or a name occurs twice.
    """
    rows = _csv_rows(path)
    header = rows[0]
    benchmarks = header[1:]
    models = [row for row in rows[1:] if not row[0].startswith("#")]
    if not models:
        raise DataError(f"{path} has no scores: it needs a row for each model")
    names = [row[0] for row in models]
    for kind, labels in (("benchmark", benchmarks), ("model", names)):
        duplicates = sorted({name for name in labels if labels.count(name) > 1})
        if duplicates:
            raise DataError(f"{path} names the {kind} {duplicates[0]!r} twice")
    cells = pd.DataFrame([row[1:] for row in models], index=names, columns=benchmarks)
    numbers = {name: pd.to_numeric(cells[name], errors="coerce") for name in benchmarks}
    values = pd.DataFrame(numbers)
    values = values.where(np.isfinite(values.astype(float)))
    empty = np.array([[cell.strip() == "" for cell in row[1:]] for row in models])
    missing = np.where(empty, "never run", "failed")
    states = pd.DataFrame(
        np.where(values.notna(), "scored", missing), values.index, values.columns
    )
    attributes: dict[str, dict[str, str]] = {name: {} for name in benchmarks}
    for row in rows[1:]:
        if row[0].startswith("#"):
            _add_attribute(attributes, row)
    return Table(values, values * math.nan, states, attributes)


def _csv_rows(path: Path) -> list[list[str]]:
    """Return the rows of a table, the header first, which all have as many cells."""
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read as a table ({error}); give a CSV file in UTF-8"
        ) from error
    if len(rows) < 2 or len(rows[0]) < 2:
        raise DataError(
            f"{path} has no scores: it needs a header of benchmarks and a row for each model"
        )
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}:{number} has {len(row)} cells, the header has {len(rows[0])}"
            )
    return rows


def _add_attribute(
    attributes: Mapping[str, dict[str, str]], row: Sequence[str]
) -> None:
    """Add the labels of a row ``#attribute``; benchmarks without a label have nothing in common."""
    attribute = row[0][1:].strip()
    for name, label in zip(attributes, row[1:], strict=True):
        if label.strip():
            attributes[name][attribute] = label


def _direction(catalog: Catalog, id: str) -> str:
    name = id_of(catalog.benchmark(id).all_metrics[0])
    if name in catalog.ids("metrics"):
        return catalog.metric(name).direction
    return "higher"


def _attributes(catalog: Catalog, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    attributes: dict[str, dict[str, str]] = {}
    for id in ids:
        spec = catalog.benchmark(id)
        dataset = catalog.about(spec.dataset)
        values = {
            "metric": id_of(spec.all_metrics[0]),
            "dataset": spec.dataset,
            "modality": dataset.modality,
            "family": spec.paradigm.name,
            "region": spec.select.get("region"),
            "parent": spec.parent,
        }
        attributes[id] = {
            name: str(value) for name, value in values.items() if value is not None
        }
    return attributes


def _by_age(catalog: Catalog, ids: Sequence[str]) -> tuple[str, ...]:
    """Return benchmarks by the commit that added their file, oldest first; in the given order without git."""
    arguments = (
        "log",
        "--reverse",
        "--diff-filter=A",
        "--name-only",
        "--format=",
        "--",
        "specs/benchmarks",
    )
    try:
        log = git(catalog.root, *arguments, may_fail=True).decode(errors="replace")
    except RequestError:
        return tuple(ids)
    added = {Path(line).stem: i for i, line in enumerate(log.splitlines()) if line}
    return tuple(sorted(ids, key=lambda id: (added.get(id, len(added)), ids.index(id))))


def plain(diagnosis: Diagnosis) -> dict[str, object]:
    """Return plain data for JSON; NaN becomes None."""
    data = asdict(diagnosis) | {
        name: [item._asdict() for item in getattr(diagnosis, name)]
        for name in ("pairs", "explained", "axes", "redundant", "contrary", "growth")
    }
    data["coverage"] = diagnosis.coverage.to_dict(orient="index")
    data["discriminative"] = {
        name: None if math.isnan(value) else value
        for name, value in diagnosis.discriminative.items()
    }
    return data


def _sections(
    diagnosis: Diagnosis,
) -> Iterator[tuple[str, str, list[str], list[list[str]]]]:
    """Yield the title, description, header and rows of each section."""
    coverage = diagnosis.coverage
    rows = [
        [str(id), *map(str, counts)]
        for id, counts in zip(coverage.index, coverage.to_numpy(), strict=True)
    ]
    yield (
        "Coverage",
        "Numbers of models scored, failed and never run.",
        ["benchmark", *map(str, coverage)],
        rows,
    )
    yield (
        "Models",
        "Mean score adjusted for missing benchmarks (model + benchmark effects).",
        ["model", "adjusted mean"],
        [
            [name, "not comparable" if value != value else f"{value:.3f}"]
            for name, value in diagnosis.adjusted.items()
        ],
    )
    yield (
        "Agreement",
        f"Attributes explain {diagnosis.explained_share:.0%} of the agreement of {len(diagnosis.pairs)} pairs.",
        ["shared attribute", "mean rho if shared", "if not shared", "pairs", "p"],
        [
            [
                row.attribute,
                f"{row.same:.2f}",
                f"{row.other:.2f}",
                str(row.pairs),
                f"{row.p:.3f}",
            ]
            for row in diagnosis.explained
        ],
    )
    for number, axis in enumerate(diagnosis.axes, 1):
        names = list(axis.loadings.items())
        if len(names) <= MAX_LOADINGS:
            ends = names
        else:
            ends = [*names[: MAX_LOADINGS // 2], *names[-MAX_LOADINGS // 2 :]]
        yield (
            f"Axis {number}",
            f"{axis.share:.0%} of the variance.",
            ["benchmark", "loading"],
            [[name, f"{loading:+.2f}"] for name, loading in ends],
        )
    yield (
        "Redundant",
        "Benchmarks that rank models in the same order.",
        PAIR,
        _rows(diagnosis.redundant),
    )
    yield (
        "Contrary",
        "Benchmarks that rank models in the opposite order.",
        PAIR,
        _rows(diagnosis.contrary),
    )
    yield (
        "Panel",
        f"The smallest panel found that preserves the order of models (Kendall's tau {diagnosis.panel_tau:.2f}).",
        ["benchmark"],
        [[name] for name in diagnosis.panel],
    )
    yield (
        "Discriminative power",
        "Share of pairs of models with separated intervals.",
        ["benchmark", "separated"],
        [
            [name, "no intervals" if math.isnan(value) else f"{value:.0%}"]
            for name, value in diagnosis.discriminative.items()
        ],
    )
    yield (
        "Growth",
        "The order of models after each benchmark, compared with that of the whole suite.",
        ["benchmarks", "last added", "tau", "largest change of rank", "of"],
        [
            [
                str(step.benchmarks),
                step.last,
                f"{step.tau:.2f}",
                str(step.largest),
                step.model,
            ]
            for step in diagnosis.growth
        ],
    )


PAIR: Final = ["first", "second", "rho", "95 % interval", "models"]


def _rows(pairs: Sequence[Pair]) -> list[list[str]]:
    return [
        [
            pair.first,
            pair.second,
            f"{pair.rho:.2f}",
            f"{pair.low:.2f} to {pair.high:.2f}",
            str(pair.models),
        ]
        for pair in pairs
    ]


def diagnosis_text(title: str, diagnosis: Diagnosis) -> str:
    """Return all sections as text tables."""
    parts = [title]
    for name, sentence, head, rows in _sections(diagnosis):
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) for cell, width in zip(row, widths, strict=True)
            ).rstrip()
            for row in ([head, *rows] if rows else [])
        ]
        parts.append("\n".join([f"{name}: {sentence}", *(lines or ["(none)"])]))
    return "\n\n".join(parts) + "\n"


def diagnosis_page(title: str, diagnosis: Diagnosis) -> str:
    """Return all sections as a self-contained page, with a heat map of the correlations of benchmarks."""
    from neuroledger.report.site import render_alone

    return render_alone(
        "diagnosis.html.j2",
        title=title,
        sections=list(_sections(diagnosis)),
        cells=_cells(diagnosis),
        names=list(diagnosis.discriminative),
    )


def _cells(diagnosis: Diagnosis) -> list[list[Mapping[str, object] | None]]:
    names = list(diagnosis.discriminative)
    known = {(pair.first, pair.second): pair for pair in diagnosis.pairs}
    return [
        [
            None
            if (pair := known.get((row, column)) or known.get((column, row))) is None
            else {"rho": pair.rho, "models": pair.models}
            for column in names
        ]
        for row in names
    ]
