"""leaderboard, history, compare, ranks, report, doctor and related verbs: tables, tests and pages from records."""

from __future__ import annotations

import argparse
import functools
import http.server
import json
from pathlib import Path
from typing import Any

from neuroledger.display import choose, say, say_json, say_table
from neuroledger.errors import SIGNS, RequestError
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.load import read_params


def leaderboard(options: argparse.Namespace) -> int:
    """Print the leaderboards of a suite and of the suites that it includes."""
    from neuroledger.engine.record import read_all
    from neuroledger.report.board import as_text
    from neuroledger.report.table import boards_of

    catalog = open_catalog(options.root)
    suite = options.suite or read_params(catalog.root).suite
    records = list(read_all(catalog.root / "results" / "records"))
    boards = boards_of(catalog, suite, records, new=options.suite is None)
    say(as_text(options.format, boards).rstrip("\n"))
    return 0


def history(options: argparse.Namespace) -> int:
    """List every commit that changed a score of a benchmark, oldest first."""
    from neuroledger.report.board import number
    from neuroledger.report.history import history as history_of
    from neuroledger.store.git_trees import is_shallow

    catalog = open_catalog(options.root)
    benchmark = catalog.benchmark(options.benchmark).id
    model = None if options.model is None else catalog.model(options.model).id
    steps = [
        step
        for (id, name), changes in history_of(catalog.root).items()
        if id == benchmark and model in (None, name)
        for step in changes
    ]
    steps.sort(key=lambda step: (step.date, step.model))
    if options.json:
        say_json([step._asdict() for step in steps])
        return 0
    rows = [
        [
            step.date,
            step.commit[:10],
            step.model,
            "failed" if step.value is None else number(step.value),
            step.change,
        ]
        for step in steps
    ]
    say_table(("date", "commit", "model", "score", "change"), rows)
    if not rows:
        say(
            f"no commit of this repository contains a record of {benchmark}{'' if model is None else f' · {model}'}"
        )
    if is_shallow(catalog.root):
        say(
            "This clone is shallow: `git fetch --unshallow` fetches the earlier commits."
        )
    return 0


def compare(options: argparse.Namespace) -> int:
    """Compare two models."""
    from neuroledger.engine.compare import compare as compare_models

    with choose() as display:
        comparison = compare_models(
            options.a,
            options.b,
            suite=options.suite,
            benchmark=options.benchmark,
            catalog=open_catalog(options.root),
            tell=display.line,
        )
    if options.json:
        say_json(comparison.to_dict())
    else:
        say(str(comparison))
    return 0


def calibrate(options: argparse.Namespace) -> int:
    """Estimate coverage, length, interval score, false positives and false ranks in simulated experiments."""
    from neuroledger.engine.calibrate import calibrate_benchmark
    from neuroledger.errors import NeuroLedgerError

    catalog = open_catalog(options.root)
    if options.suite:
        ids = [item.id for item in catalog.suite(options.suite).benchmarks]
    else:
        ids = sorted(
            path.name
            for path in (catalog.root / "results" / "records").glob("*")
            if path.is_dir()
        )
    outcomes: dict[str, dict[str, Any]] = {}
    for id in options.benchmarks or ids:
        try:
            metrics = calibrate_benchmark(
                catalog, id, runs=options.runs, seed=options.seed
            )
        except NeuroLedgerError as error:
            if options.benchmarks and not options.json:
                raise
            outcomes[id] = {"reason": str(error)}
        else:
            outcomes[id] = {
                name: outcome if isinstance(outcome, str) else outcome.to_dict()
                for name, outcome in metrics.items()
            }
        if not options.json:
            _say_calibration(id, outcomes[id])
    if options.json:
        say_json(outcomes)
    headlines = [next(iter(plain.values())) for plain in outcomes.values()]
    return int(
        any(
            isinstance(headline, dict) and headline.get("passed") is False
            for headline in headlines
        )
    )


def _say_calibration(id: str, plain: dict[str, Any]) -> None:
    if "reason" in plain:
        say(f"not calibrated  {id}: {plain['reason']}")
        return
    for name, outcome in plain.items():
        if isinstance(outcome, str):
            say(f"not calibrated  {id} · {name}: {outcome}")
            continue
        shown = {
            "coverage": "coverage",
            "length": "length over needed",
            "interval_score": "interval score",
            "false_positives": "equal models differ",
            "false_ranks": "false ranks",
        }
        figures = [(label, outcome[key]) for key, label in shown.items()]
        cells = [
            f"{label} {one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"
            for label, one in figures
        ]
        more = [
            f"{label} {outcome[key]['value']:.3f}"
            for key, label in (
                ("ceiling", "ceiling covered"),
                ("recovered", "noiseless responses score"),
            )
            if outcome[key]
        ]
        verdict = "passed" if outcome["passed"] else "FAILED"
        say(f"{verdict}  {id} · {name}: {', '.join([*cells, *more])}")


def ranks(options: argparse.Namespace) -> int:
    """Print mean normalised ranks of a suite, and their agreement with another suite."""
    from dataclasses import asdict

    from neuroledger.report.table import agreement_of, basis_of, standings

    catalog = open_catalog(options.root)
    names = [
        options.suite or read_params(catalog.root).suite,
        *([options.against] if options.against else []),
    ]
    tables = [
        standings(name, published=options.published, catalog=catalog) for name in names
    ]
    basis = basis_of(tables[0], tables[1]) if options.against else None
    taus = (
        agreement_of(tables[0], tables[1])
        if basis is not None and not basis.trivial
        else (None, None)
    )
    if options.json:
        plain = {"standings": [asdict(table) for table in tables]}
        for name, tau in zip(
            ("agreement", "agreement_without_dummies"), taus, strict=True
        ):
            plain |= {name: tau._asdict()} if tau is not None else {}  # type: ignore[dict-item]
        if basis is not None:
            plain |= {"basis": {**asdict(basis), "trivial": basis.trivial}}  # type: ignore[dict-item]
        say_json(plain)
        return 0
    for table in tables:
        say(f"{table}\n")
    if basis is not None:
        say(str(basis))
    for suffix, tau in zip(("", ", without dummies"), taus, strict=True):
        if tau is not None:
            say(
                f"Kendall's tau {tau.tau:.3f} (p {tau.p:.2g}) over {tau.models} models{suffix}"
            )
    return 0


def diagnose(options: argparse.Namespace) -> int:
    """Analyse what a suite measures."""
    from neuroledger.engine.record import read_all
    from neuroledger.report.diagnosis import (
        diagnosis_page,
        diagnosis_text,
        from_csv,
        from_published,
        from_records,
        plain,
    )
    from neuroledger.stats.diagnosis import diagnose as diagnose_table
    from neuroledger.store.files import write_text

    if options.table is not None:
        if options.suite or options.published:
            raise RequestError(
                "--table contains its own benchmarks: omit the suite and --published"
            )
        if (
            options.table.exists() and not options.table.is_file()
        ):  # a pipe or a device, which may never end
            raise RequestError(f"{options.table} is not a file")
        table, title = from_csv(options.table), f"Diagnosis of {options.table.name}"
    else:
        catalog = open_catalog(options.root)
        suite = options.suite or read_params(catalog.root).suite
        title = f"Diagnosis of suite {suite}, version {catalog.suite(suite).version}"
        if options.published:
            table, title = from_published(catalog, suite), f"{title}: published figures"
        else:
            table = from_records(
                catalog, suite, list(read_all(catalog.root / "results" / "records"))
            )
    diagnosis = diagnose_table(table)
    if options.out is not None:
        write_text(options.out, diagnosis_page(title, diagnosis))
    if options.json:
        say_json(plain(diagnosis))
    else:
        say(diagnosis_text(title, diagnosis).rstrip("\n"))
    return 0


def pareto(options: argparse.Namespace) -> int:
    """Print score and cost of each model, and which models are on the Pareto front."""
    from neuroledger.report.pareto import DEFAULT_COSTS, pareto_figure
    from neuroledger.report.pareto import pareto as front_of

    catalog = open_catalog(options.root)
    costs = (options.cost,) if options.cost else DEFAULT_COSTS
    tables = {
        cost: front_of(options.benchmark, cost, catalog=catalog) for cost in costs
    }
    if options.out is not None:
        from neuroledger.report.plots.style import save

        save(pareto_figure(tables[costs[0]]), options.out)
    if options.json:
        rows = {
            cost: json.loads(table.to_json(orient="records"))
            for cost, table in tables.items()
        }
        say_json(rows[costs[0]] if options.cost else rows)
        return 0
    for cost, table in tables.items():
        say(f"{options.benchmark} and {cost}")
        say(
            table[
                ["model", "score", "low", "high", "reads", "counted_on", "front"]
            ].to_string(index=False)
        )
    return 0


def report(options: argparse.Namespace) -> int:
    """Write the pages, and the metrics files that DVC shows."""
    from neuroledger.engine.record import read_all
    from neuroledger.report.board import write_tracked
    from neuroledger.report.site import build_site
    from neuroledger.report.table import boards_of

    catalog = open_catalog(options.root)
    suite = options.suite or read_params(catalog.root).suite
    pages = build_site(catalog, suite, options.out)
    records = list(read_all(catalog.root / "results" / "records"))
    write_tracked(
        catalog.root, boards_of(catalog, suite, records, new=options.suite is None)
    )
    say(f"wrote {len(pages)} files; open {options.out / 'index.html'}")
    if options.serve:
        _serve(options.out)
    return 0


def _serve(folder: Path) -> None:
    """Serve the pages on the loopback address until interrupted."""
    handler = functools.partial(
        http.server.SimpleHTTPRequestHandler, directory=str(folder)
    )
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        say(f"http://127.0.0.1:{server.server_address[1]}/ (stop with Ctrl-C)")
        server.serve_forever()


def doctor(options: argparse.Namespace) -> int:
    """Check this machine."""
    from neuroledger.cli.doctor import examine

    findings = examine(open_catalog(options.root))
    if options.json:
        say_json([finding.to_dict() for finding in findings])
    else:
        for finding in findings:
            say(f"{SIGNS[finding.severity]} {finding}")
    return 1 if any(finding.severity == "error" for finding in findings) else 0
