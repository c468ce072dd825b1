"""leaderboard, history, compare, ranks, report, doctor and related verbs: tables, tests and pages from records."""

from __future__ import annotations

import json as json_text
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, Literal

from neuroledger.cli.options import (
    BenchmarkId,
    Json,
    Published,
    Root,
    Suite,
    argument,
    flag,
    option,
)
from neuroledger.cli.output import FAILED, PENDING, SUCCESS, Output
from neuroledger.display import choose, say, say_json, say_table
from neuroledger.errors import SIGNS, NeuroLedgerError, RequestError

if TYPE_CHECKING:
    from neuroledger.engine.claims.standing import Standing
    from neuroledger.engine.why import Definition, Explanation
    from neuroledger.report.history import Step
    from neuroledger.report.table import Standings
    from neuroledger.spec.catalog import Catalog
    from neuroledger.spec.kinds import SuiteSpec
    from neuroledger.stats.diagnosis import Table

CLAIM_COLUMNS = ("claim", "status", "paths above", "look", "since", "title")
OnBenchmark = Annotated[
    str | None,
    option("--benchmark", "B", "compare on this benchmark only", ids=("benchmarks",)),
]


def leaderboard(
    suite: Suite = None,
    benchmarks: Annotated[
        list[str] | None,
        option(
            "--benchmark",
            "B",
            "rank on this benchmark instead of a suite; may be repeated",
            ids=("benchmarks",),
        ),
    ] = None,
    format: Annotated[
        Literal["text", "json", "csv", "markdown", "latex"],
        option("--format", None, "output format"),
    ] = "text",
    json: Json = False,
    root: Root = None,
) -> int:
    """Print the leaderboard of a suite or of single benchmarks, with ranks, floor and ceiling.

    JSON, the same as --format json: a list of boards, one for the suite and each that it includes.
    """
    from neuroledger.report.kept import text_of
    from neuroledger.spec.catalog import open_catalog

    if suite and benchmarks:
        raise RequestError("give --suite or --benchmark, not both")
    catalog = open_catalog(root)
    kind = "json" if json else format
    asked = [kind, str(get_terminal_size((160, 24)).columns), suite or ""]
    asked += benchmarks or ()
    make = partial(_boards, catalog, kind, suite, benchmarks or ())
    say(text_of(catalog, make, *asked).rstrip("\n"))
    return SUCCESS


def _boards(
    catalog: Catalog, kind: str, suite: str | None, benchmarks: Sequence[str]
) -> str:
    """Return the boards of a suite, or of benchmarks, as text of a kind."""
    from neuroledger.engine.records.summary import known_records
    from neuroledger.report.board import as_text
    from neuroledger.report.table import board_of, boards_of
    from neuroledger.spec.load import read_params

    if benchmarks:
        chosen = _suite_of(catalog, benchmarks)
        boards = [board_of(catalog, chosen, known_records(catalog.root))]
    else:
        name = suite or read_params(catalog.root).suite
        boards = list(boards_of(catalog, name, new=suite is None))
    return as_text(kind, boards)


def _suite_of(catalog: Catalog, benchmarks: Sequence[str]) -> SuiteSpec:
    """Return a suite of these benchmarks alone, which is not in the catalogue.

    Raises
    ------
    RequestError
        There is no such benchmark.
    """
    from neuroledger.spec.kinds import SuiteSpec

    first, *others = [catalog.benchmark(id) for id in dict.fromkeys(benchmarks)]
    title = first.title if not others else f"{len(others) + 1} benchmarks"
    ids = [spec.id for spec in (first, *others)]
    fields = {"id": first.id, "version": 1, "title": title, "benchmarks": ids}
    return SuiteSpec.model_validate(fields)


def history(
    benchmark: BenchmarkId,
    model: Annotated[
        str | None,
        argument("MODEL", "id of a model (default: all models)", ids=("models",)),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """List how the scores of a benchmark changed from commit to commit.

    JSON: a list of changes, oldest first, each with date, commit, benchmark, model, value and change.
    """
    from neuroledger.report.history import history as history_of
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.store.git_trees import is_shallow

    catalog = open_catalog(root)
    id = catalog.benchmark(benchmark).id
    name = None if model is None else catalog.model(model).id
    steps: list[Step] = []
    for (of_benchmark, of_model), changes in history_of(catalog.root).items():
        if of_benchmark == id and name in (None, of_model):
            steps += changes
    steps.sort(key=lambda step: (step.date, step.model))
    if json:
        say_json([step._asdict() for step in steps])
        return SUCCESS
    _say_steps(steps)
    if not steps:
        pair = id if name is None else f"{id} · {name}"
        say(f"no commit of this repository contains a record of {pair}")
    if is_shallow(catalog.root):
        say(
            "This clone is shallow: `git fetch --unshallow` fetches the earlier commits."
        )
    return SUCCESS


def _say_steps(steps: Sequence[Step]) -> None:
    from neuroledger.report.board import number

    rows = []
    for step in steps:
        value = "failed" if step.value is None else number(step.value)
        rows.append([step.date, step.commit[:10], step.model, value, step.change])
    say_table(("date", "commit", "model", "score", "change"), rows)


def compare(
    a: Annotated[
        str,
        argument("A", "id of a model", ids=("models",)),
    ],
    b: Annotated[
        str,
        argument("B", "id of another model", ids=("models",)),
    ],
    suite: Suite = None,
    benchmark: OnBenchmark = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Compare two models: paired differences, intervals, corrected p values.

    JSON: the two models, and a difference with interval and p value for each benchmark.
    """
    from neuroledger.engine.compare import compare as compare_models
    from neuroledger.spec.catalog import open_catalog

    with choose() as display:
        comparison = compare_models(
            a,
            b,
            suite=suite,
            benchmark=benchmark,
            catalog=open_catalog(root),
            tell=display.line,
        )
    if json:
        say_json(comparison.to_dict())
    else:
        say(str(comparison))
    return SUCCESS


def why(
    a: Annotated[
        str,
        argument(
            "A",
            "[COMMIT:]BENCHMARK/MODEL, such as IT-ridge/alexnet; with --rank [COMMIT:]SUITE/MODEL",
        ),
    ],
    b: Annotated[str, argument("B", "the same for the other score or rank")],
    rank: Annotated[
        bool, flag("--rank", "explain why the rank of a model in a suite moved")
    ] = False,
    published: Annotated[
        float | None,
        option("--published", "VALUE", "a published figure that B should equal"),
    ] = None,
    compat: Annotated[
        str | None,
        option("--compat", "MODE", "compute B in the mode of another project"),
    ] = None,
    seed: Annotated[int, option("--seed", "N", "seed of both scores")] = 0,
    figure: Annotated[
        Path | None,
        option("--figure", "FILE", "also write the shares as a waterfall (svg)"),
    ] = None,
    page: Annotated[
        Path | None,
        option("--page", "FILE", "also write the shares as one page (html)"),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Explain by which fields of their definitions two scores differ, and how much each moves the score.

    With --rank: by which scores and weights two ranks differ, such as those of two commits.

    JSON: first and second (names), first_value, second_value, published, difference, left (of the published figure), and
    shares (field, first, second, value, low, high, sampling_error).
    """
    from dataclasses import asdict

    from neuroledger.engine.why import explain
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    if rank:
        if published is not None or compat is not None:
            raise RequestError("--published and --compat are of scores: omit --rank")
        found = _rank_explained(catalog, a, b, seed)
    else:
        first = _definition(catalog, a, seed, None)
        second = _definition(catalog, b, seed, compat)
        found = explain(first, second, published=published, catalog=catalog)
    if figure is not None or page is not None:
        from neuroledger.report.waterfall import explanation_page, waterfall
        from neuroledger.store.files import write_text

        if figure is not None:
            write_text(figure, waterfall(found))
        if page is not None:
            command = _again(a, b, published, compat, seed, rank=rank)
            write_text(page, explanation_page(found, command))
    if json:
        say_json(asdict(found) | {"difference": found.difference, "left": found.left})
    else:
        say(str(found))
    return SUCCESS


def _again(
    a: str,
    b: str,
    published: float | None,
    compat: str | None,
    seed: int,
    *,
    rank: bool,
) -> str:
    """Return the command that explains the same difference."""
    words = ["neuroledger", "why", a, b, *(["--rank"] if rank else [])]
    if published is not None:
        words += ["--published", repr(published)]
    if compat is not None:
        words += ["--compat", compat]
    if seed:
        words += ["--seed", str(seed)]
    return shlex.join(words)


def _rank_explained(catalog: Catalog, a: str, b: str, seed: int) -> Explanation:
    """Return what moved the rank of a model between two commits, or from one to the working tree."""
    from neuroledger.report.rank_moves import explain_rank, standing_at

    ends = [_named(text, "SUITE/MODEL") for text in (a, b)]
    models = {model for _, _, model in ends}
    if len(models) > 1:
        raise RequestError(f"the ranks are of {' and '.join(sorted(models))}: name one")
    first, second = (standing_at(catalog, suite, commit) for commit, suite, _ in ends)
    return explain_rank(models.pop(), first, second, seed=seed)


def _named(text: str, form: str) -> tuple[str, str, str]:
    """Return the commit, if any, the benchmark or suite, and the model that a text names."""
    commit, _, pair = text.rpartition(":")
    owner, _, model = pair.partition("/")
    if not model:
        raise RequestError(f"{text!r} names no score: give {form}, or COMMIT:{form}")
    return commit, owner, model


def _definition(
    catalog: Catalog, text: str, seed: int, compat: str | None
) -> Definition:
    """Return the definition that a text names."""
    from neuroledger.engine.why import definition_at, definition_of

    commit, benchmark, model = _named(text, "BENCHMARK/MODEL")
    if not commit:
        return definition_of(catalog, model, benchmark, seed=seed, compat=compat)
    if compat is not None:
        raise RequestError("--compat applies to the present specs: omit the commit")
    return definition_at(catalog, commit, model, benchmark, seed=seed)


def calibrate(
    benchmarks: Annotated[
        list[str] | None,
        argument(
            "BENCHMARK",
            "ids of benchmarks (default: all with records)",
            ids=("benchmarks",),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        option(
            "--suite",
            "SUITE",
            "calibrate the benchmarks of this suite",
            ids=("suites",),
        ),
    ] = None,
    runs: Annotated[
        int,
        option("--runs", "N", "simulated experiments for each benchmark"),
    ] = 200,
    seed: Annotated[int, option("--seed", "N", "seed of the simulation")] = 0,
    json: Json = False,
    root: Root = None,
) -> int:
    """Simulate experiments of a benchmark to check its intervals and tests.

    JSON: for each benchmark its calibration by metric, or the reason why there is none.
    """
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    outcomes: dict[str, dict[str, object]] = {}
    for id in benchmarks or _with_records(catalog, suite):
        outcomes[id] = _calibration(
            catalog, id, runs, seed, strict=bool(benchmarks) and not json
        )
        if not json:
            _say_calibration(id, outcomes[id])
    if json:
        say_json(outcomes)
    headlines = [next(iter(plain.values())) for plain in outcomes.values()]
    failed = any(
        isinstance(headline, dict) and headline.get("passed") is False
        for headline in headlines
    )
    return FAILED if failed else SUCCESS


def _with_records(catalog: Catalog, suite: str | None) -> list[str]:
    """Return the benchmarks of a suite, otherwise all that have records."""
    if suite:
        return [item.id for item in catalog.suite(suite).benchmarks]
    folder = catalog.root / "results" / "records"
    return sorted(path.name for path in folder.glob("*") if path.is_dir())


def _calibration(
    catalog: Catalog, id: str, runs: int, seed: int, *, strict: bool
) -> dict[str, object]:
    """Return the calibration of a benchmark as plain data, or the reason why there is none unless ``strict``."""
    from neuroledger.engine.calibrate import calibrate_benchmark

    try:
        metrics = calibrate_benchmark(catalog, id, runs=runs, seed=seed)
    except NeuroLedgerError as error:
        if strict:
            raise
        return {"reason": str(error)}
    return {
        name: outcome if isinstance(outcome, str) else outcome.to_dict()
        for name, outcome in metrics.items()
    }


# The rates of a calibration and what they are called, those that every calibration has and the others.
RATES = {
    "coverage": "coverage",
    "length": "length over needed",
    "interval_score": "interval score",
    "false_positives": "equal models differ",
    "false_ranks": "false ranks",
}
FURTHER_RATES = {
    "ceiling": "ceiling covered",
    "recovered": "noiseless responses score",
}


def _say_calibration(id: str, plain: Mapping[str, Any]) -> None:
    if "reason" in plain:
        say(f"not calibrated  {id}: {plain['reason']}")
        return
    for name, outcome in plain.items():
        if isinstance(outcome, str):
            say(f"not calibrated  {id} · {name}: {outcome}")
            continue
        verdict = "passed" if outcome["passed"] else "FAILED"
        say(f"{verdict}  {id} · {name}: {', '.join(_rates(outcome))}")


def _rates(outcome: Mapping[str, Any]) -> Iterator[str]:
    """Yield each rate of a calibration with its interval."""
    for key, label in RATES.items():
        rate = outcome[key]
        interval = f"[{rate['low']:.3f}, {rate['high']:.3f}]"
        yield f"{label} {rate['value']:.3f} {interval}"
    for key, label in FURTHER_RATES.items():
        if outcome[key]:
            yield f"{label} {outcome[key]['value']:.3f}"


def ranks(
    suite: Suite = None,
    against: Annotated[
        str | None,
        option(
            "--against",
            "SUITE",
            "also compute Kendall's tau between the ranks of the two suites",
            ids=("suites",),
        ),
    ] = None,
    published: Published = False,
    json: Json = False,
    root: Root = None,
) -> int:
    """Compute mean normalised ranks of models, and their agreement with another suite.

    JSON: standings (a list, one for each suite), and with --against basis, agreement and agreement_without_dummies (tau, p,
    models), where they are defined.
    """
    from dataclasses import asdict

    from neuroledger.report.table import standings
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.spec.load import read_params

    catalog = open_catalog(root)
    names = [suite or read_params(catalog.root).suite]
    if against:
        names += [against]
    tables = [standings(name, published=published, catalog=catalog) for name in names]
    if json:
        plain: dict[str, object] = {"standings": [asdict(table) for table in tables]}
        say_json(plain | (_plain_agreement(tables) if against else {}))
        return SUCCESS
    for table in tables:
        say(f"{table}\n")
    if against:
        _say_agreement(tables)
    return SUCCESS


def _plain_agreement(tables: Sequence[Standings]) -> dict[str, object]:
    """Return the agreement of two rankings as plain data."""
    from dataclasses import asdict

    from neuroledger.report.table import agreement_of, basis_of

    basis = basis_of(tables[0], tables[1])
    plain: dict[str, object] = {"basis": {**asdict(basis), "trivial": basis.trivial}}
    taus = (None, None) if basis.trivial else agreement_of(tables[0], tables[1])
    for name, tau in zip(("agreement", "agreement_without_dummies"), taus, strict=True):
        if tau is not None:
            plain[name] = tau._asdict()
    return plain


def _say_agreement(tables: Sequence[Standings]) -> None:
    """Print what two rankings are based on, and Kendall's tau between them unless it is trivial."""
    from neuroledger.report.table import agreement_of, basis_of

    basis = basis_of(tables[0], tables[1])
    say(str(basis))
    taus = (None, None) if basis.trivial else agreement_of(tables[0], tables[1])
    for suffix, tau in zip(("", ", without dummies"), taus, strict=True):
        if tau is not None:
            say(
                f"Kendall's tau {tau.tau:.3f} (p {tau.p:.2g}) over {tau.models} models{suffix}"
            )


def diagnose(
    suite: Annotated[
        str | None,
        argument(
            "SUITE",
            "id of a suite (default: the suite in params.yaml)",
            ids=("suites",),
        ),
    ] = None,
    published: Published = False,
    table: Annotated[
        Path | None,
        option(
            "--table", "CSV", "use this table: models in rows, benchmarks in columns"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option("--out", "FILE", "also write an HTML page"),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Analyse what a suite measures: coverage, agreement, axes, redundancy, panel, growth.

    JSON: the numbers of each part of the analysis.
    """
    from neuroledger.report.diagnosis import diagnosis_page, diagnosis_text, plain
    from neuroledger.stats.diagnosis import diagnose as diagnose_table
    from neuroledger.store.files import write_text

    if table is not None:
        title, scores = _scores_of_table(table, suite, published)
    else:
        title, scores = _scores_of_suite(suite, published, root)
    diagnosis = diagnose_table(scores)
    if out is not None:
        write_text(out, diagnosis_page(title, diagnosis))
    if json:
        say_json(plain(diagnosis))
    else:
        say(diagnosis_text(title, diagnosis).rstrip("\n"))
    return SUCCESS


def _scores_of_table(
    table: Path, suite: str | None, published: bool
) -> tuple[str, Table]:
    """Return the title and the scores of a table of a user."""
    from neuroledger.report.diagnosis import from_csv

    if suite or published:
        raise RequestError(
            "--table contains its own benchmarks: omit the suite and --published"
        )
    # A pipe or a device may never end.
    if table.exists() and not table.is_file():
        raise RequestError(f"{table} is not a file")
    return f"Diagnosis of {table.name}", from_csv(table)


def _scores_of_suite(
    suite: str | None, published: bool, root: Path | None
) -> tuple[str, Table]:
    """Return the title and the scores of a suite, recorded or published."""
    from neuroledger.engine.records.summary import known_records
    from neuroledger.report.diagnosis import from_published, from_records
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.spec.load import read_params

    catalog = open_catalog(root)
    name = suite or read_params(catalog.root).suite
    title = f"Diagnosis of suite {name}, version {catalog.suite(name).version}"
    if published:
        return f"{title}: published figures", from_published(catalog, name)
    return title, from_records(catalog, name, known_records(catalog.root))


# The columns of `pareto`.
PARETO_COLUMNS = ["model", "score", "low", "high", "reads", "counted_on", "front"]


def pareto(
    benchmark: BenchmarkId,
    cost: Annotated[
        str | None,
        option(
            "--cost",
            "METRIC",
            "cost metric (default: synaptic_operations and energy_45nm, in which all networks can be compared)",
            ids=("metrics",),
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option("--out", "FILE", "also write a figure (svg, pdf or png)"),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Compare score and cost of models, and find the Pareto front.

    JSON: a list of models, each with model, score, low, high, reads, counted_on and front; without --cost, such a list by
    metric.
    """
    from neuroledger.report.pareto import DEFAULT_COSTS, pareto_figure
    from neuroledger.report.pareto import pareto as front_of
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    costs = (cost,) if cost else DEFAULT_COSTS
    tables = {name: front_of(benchmark, name, catalog=catalog) for name in costs}
    if out is not None:
        from neuroledger.report.plots.style import save

        save(pareto_figure(tables[costs[0]]), out)
    if json:
        rows = {
            name: json_text.loads(table.to_json(orient="records"))
            for name, table in tables.items()
        }
        say_json(rows[costs[0]] if cost else rows)
        return SUCCESS
    for name, table in tables.items():
        say(f"{benchmark} and {name}")
        say(table[PARETO_COLUMNS].to_string(index=False))
    return SUCCESS


def report(
    out: Annotated[
        Path | None,
        option("--out", "DIR", "output folder (default: site, or site-SUITE)"),
    ] = None,
    suite: Annotated[
        str | None,
        option(
            "--suite",
            "SUITE",
            "write this suite alone, also as one file that can be mailed (default: all scores)",
            ids=("suites",),
        ),
    ] = None,
    serve: Annotated[
        bool, flag("--serve", "serve the pages on http://localhost")
    ] = False,
    json: Json = False,
    root: Root = None,
) -> int:
    """Write static pages of all scores, or of one suite.

    Example: neuroledger report --suite MyLab2026

    JSON: page (the first one), file (the one that can be mailed; null without --suite), written, notes and next.
    """
    from neuroledger.report.kept import (
        folder_of,
        inputs_of,
        one_file_of,
        remember_site,
        unchanged,
    )
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.spec.load import read_params

    catalog = open_catalog(root)
    name = suite or read_params(catalog.root).suite
    folder = out or folder_of(suite)
    asked = (name, "alone" if suite else "all", str(folder.resolve()))
    inputs = inputs_of(catalog, *asked)
    pages = unchanged(catalog, inputs, folder)
    if pages is None:
        pages = _written(catalog, suite, folder)
        if inputs == inputs_of(catalog, *asked):
            remember_site(catalog, inputs, folder)
    answer = Output(json)
    first = folder / "index.html"
    inside = str(first).removesuffix(first.name)
    file = folder / one_file_of(suite) if suite else None
    answer.written += [f"{inside}{page}" for page in pages]
    answer.line(f"wrote {len(pages)} files; open {first}")
    if file is not None:
        answer.line(f"to mail: {file}")
    answer.end(page=str(first), file=None if file is None else str(file))
    if serve:
        _serve(folder)
    return SUCCESS


def _written(catalog: Catalog, suite: str | None, folder: Path) -> list[str]:
    """Write the pages and the files that DVC shows as metrics; return the names of the pages."""
    from neuroledger.report.site import build_site
    from neuroledger.spec.load import read_params

    name = suite or read_params(catalog.root).suite
    return build_site(catalog, name, folder, alone=suite is not None, tracked=True)


def _serve(folder: Path) -> None:
    """Serve the pages on the loopback address until interrupted."""
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        say(f"http://127.0.0.1:{server.server_address[1]}/ (stop with Ctrl-C)")
        server.serve_forever()


def doctor(json: Json = False, root: Root = None) -> int:
    """Check versions, devices, remotes and data on this machine, and say how to fix problems.

    JSON: a list of findings, each with code, severity, where, what and fix.
    """
    from neuroledger.cli.doctor import examine
    from neuroledger.spec.catalog import open_catalog

    findings = examine(open_catalog(root))
    if json:
        say_json([finding.to_dict() for finding in findings])
    else:
        for finding in findings:
            say(f"{SIGNS[finding.severity]} {finding}")
    failed = any(finding.severity == "error" for finding in findings)
    return FAILED if failed else SUCCESS


def claims(
    ids: Annotated[
        list[str] | None,
        argument("CLAIM", "ids of claims (default: all, as a table)", ids=("claims",)),
    ] = None,
    bibtex: Annotated[
        bool, flag("--bibtex", "print BibTeX entries that cite the claims")
    ] = False,
    allow_pending: Annotated[
        bool, flag("--allow-pending", "exit 0 even if a claim is pending")
    ] = False,
    json: Json = False,
    root: Root = None,
) -> int:
    """Test claims on the records, and enter each look at changed records in results/claims.

    JSON: a list of claims, each with claim, version, title, status, look, level, agreeing, paths (benchmark, above, below,
    gain, low, high, p), pooled, since (a commit) and pending (record, reason, command).
    """
    from neuroledger.engine.claims.standing import look_at
    from neuroledger.engine.outcome import pending_lines
    from neuroledger.report.claims import bibtex as entry
    from neuroledger.report.claims import claim_text, plain_claim
    from neuroledger.spec.catalog import open_catalog

    if json and bibtex:
        raise RequestError("give either --json or --bibtex")
    catalog = open_catalog(root)
    found = [look_at(catalog, id) for id in ids or catalog.own("claims")]
    if json:
        say_json(list(map(plain_claim, found)))
    elif bibtex:
        say("\n\n".join(entry(one) for one in found))
    elif ids:
        say("\n\n".join(claim_text(one) for one in found))
    else:
        _say_claims(found)
    pending = [item for one in found for item in one.pending]
    if not json and not bibtex:
        for line in pending_lines(pending):
            say(line)
    if pending and not allow_pending:
        return PENDING
    return SUCCESS


def _say_claims(found: list[Standing]) -> None:
    from neuroledger.report.claims import since, words_of

    if not found:
        say("no claims: write one to specs/claims/ID.yaml")
    rows = [
        [
            one.claim.id,
            words_of(one),
            "" if one.look is None else f"{one.agreeing} of {len(one.paths)}",
            "" if one.look is None else str(one.look.number),
            since(one) or "–",
            one.claim.title,
        ]
        for one in found
    ]
    say_table(CLAIM_COLUMNS, rows)
