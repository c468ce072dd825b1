"""run, score, evaluate, cost, verify, refresh, sign: compute, check, refresh and sign records."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from neuroledger.cli.statuses import FAILED, PENDING, SUCCESS, WRONG, worst
from neuroledger.display import choose, say, say_json, say_table
from neuroledger.engine.check import spec_problems
from neuroledger.engine.checked import (
    Checked,
    Confirmed,
    Contradicted,
    NotChecked,
    Undefined,
    Verified,
    in_words,
)
from neuroledger.engine.control import in_words as control_in_words
from neuroledger.engine.outcome import pending_lines
from neuroledger.engine.plan import Job, plan, require_compatible
from neuroledger.engine.record import Record
from neuroledger.engine.run import current
from neuroledger.engine.run import run as run_jobs
from neuroledger.engine.session import Request, Session
from neuroledger.errors import SIGNS, RequestError, SpecError
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import SuiteSpec
from neuroledger.spec.load import Params, read_params
from neuroledger.spec.suites import suites_of, to_score
from neuroledger.stats.score import counts_in_words
from neuroledger.stats.stored_score import StoredScore

# How `verify --json` names what was found.
STATES: Mapping[type[Checked], str] = {
    Confirmed: "confirmed",
    NotChecked: "not checked",
    Contradicted: "contradicted",
    Undefined: "undefined",
}
# At most this many unavailable benchmarks are listed.
UNAVAILABLE_SHOWN = 8
# The argument of --suite that selects every suite.
ALL_SUITES = "all"


def _request(options: argparse.Namespace, params: Params) -> Request:
    if options.limit is not None and options.limit < 4:
        raise RequestError("--limit must be at least 4 stimuli")
    seed = params.seed if options.seed is None else options.seed
    return Request(
        seed=seed, limit=options.limit, device=options.device or params.device
    )


def run(options: argparse.Namespace) -> int:
    """Compute missing scores."""
    catalog = open_catalog(options.root)
    params = read_params(catalog.root)
    request = _request(options, params)
    models = options.models or list(params.models)
    suites: Sequence[SuiteSpec] = _suites(catalog, options.suites)
    if not options.suites and not options.benchmarks:
        suites = to_score(catalog, params.suite)
    _refuse_invalid(catalog, options.models, options.benchmarks)
    planned = plan(
        catalog,
        models=models,
        benchmarks=options.benchmarks,
        suites=suites,
        request=request,
    )
    jobs = planned.jobs
    for note in planned.notes():
        say(note)
    for line in pending_lines(planned.pending):
        say(line)
    if options.dry_run:
        return _show_plan(catalog, jobs, request, options)
    with choose() as display:
        outcomes = run_jobs(
            catalog,
            jobs,
            request,
            display,
            retry_failed=options.retry_failed,
            force=options.force,
            executor=options.executor,
        )
    ended = [done for done in outcomes if done.pending is None]
    waiting = len(outcomes) - len(ended) + len(planned.pending)
    states = Counter[str](done.record.status for done in ended)
    states["pending"] = waiting
    computed = sum(done.computed for done in ended)
    words = ", ".join(
        f"{count} {state}"
        for state, count in sorted(states.items(), reverse=True)
        if count
    )
    say(
        f"{len(outcomes) + len(planned.pending)} jobs: {computed} computed, {len(ended) - computed} up to date; "
        f"{words or 'nothing to do'}"
    )
    if options.suites or options.benchmarks or options.models:
        _say_unavailable(planned.unavailable)
    failed = [done.record for done in ended if done.record.status == "failed"]
    for record in failed:
        say(f"  failed: {record.benchmark} · {record.model}: {record.reason}")
    before = sum(done.record.status == "failed" and not done.computed for done in ended)
    if before:
        verb = "was" if before == 1 else "were"
        say(
            f"  {before} of them failed before and {verb} not tried again; --retry-failed tries them again"
        )
    return worst(failed=bool(failed) and not options.allow_failed, pending=waiting > 0)


def _refuse_invalid(
    catalog: Catalog, models: Sequence[str], benchmarks: Sequence[str]
) -> None:
    """Refuse a request that names an invalid spec, before anything is computed.

    Raises
    ------
    SpecError
        Every problem of the named specs, with file, line and column.
    """
    named = [("models", id) for id in models] + [
        ("benchmarks", id) for id in benchmarks
    ]
    findings = [
        finding for kind, id in named for finding in spec_problems(catalog, kind, id)
    ]
    if findings:
        raise SpecError(sorted(set(findings)))


def _suites(catalog: Catalog, names: Sequence[str]) -> list[SuiteSpec]:
    """Return the named suites and those that they include, each once; ``all`` means all, unless a suite has this id."""
    ids = list(catalog.ids("suites"))
    suite_ids = [
        id
        for name in names
        for id in (ids if name == ALL_SUITES and name not in ids else [name])
    ]
    return list(
        {
            suite.id: suite for id in suite_ids for suite in suites_of(catalog, id)
        }.values()
    )


def _say_unavailable(reasons: Mapping[str, str]) -> None:
    """List the selected benchmarks that have no job, with reasons."""
    for id, reason in list(reasons.items())[:UNAVAILABLE_SHOWN]:
        say(f"  unavailable: {id}: {reason}")
    if len(reasons) > UNAVAILABLE_SHOWN:
        say(
            f"  unavailable: {len(reasons) - UNAVAILABLE_SHOWN} more; `neuroledger show BENCHMARK` gives the reason"
        )


def _show_plan(
    catalog: Catalog, jobs: Sequence[Job], request: Request, options: argparse.Namespace
) -> int:
    rows = []
    for job in jobs:
        record = current(catalog, job, request, retry_failed=options.retry_failed)
        rows.append(
            (
                job.benchmark,
                job.model,
                "to do"
                if record is None or options.force
                else f"up to date ({record.status})",
                job.id[:12],
            )
        )
    say_table(("benchmark", "model", "state", "identity"), rows)
    todo = sum(row[2] == "to do" for row in rows)
    say(f"{len(rows)} jobs, {todo} to do; nothing was written")
    return 0


def score(options: argparse.Namespace) -> int:
    """Score one model on one benchmark."""
    catalog = open_catalog(options.root)
    request = _request(options, read_params(catalog.root))
    catalog.model(options.model)
    if options.out is not None and options.layers is None:
        raise RequestError("--out writes the figure of --layers: add --layers")
    if options.layers is not None:
        return _layers(catalog, request, options)
    _refuse_invalid(catalog, [options.model], [options.benchmark])
    planned = plan(
        catalog, models=[options.model], benchmarks=[options.benchmark], request=request
    )
    for id, reason in planned.unavailable.items():
        raise RequestError(f"{id!r} is unavailable: {reason}")
    require_compatible(catalog, options.benchmark, options.model)
    for _, pending in planned.pending:
        raise pending.error()
    with choose("none" if options.json else None) as display:
        # A user who names this pair has probably changed the code or the environment since it failed.
        (done,) = run_jobs(
            catalog,
            planned.jobs,
            request,
            display,
            retry_failed=True,
            write=options.record,
        )
    record = done.record
    if options.json:
        say_json(record.model_dump(mode="json"))
    else:
        _card(record)
        if done.computed and not options.record:
            say("  not recorded: `--record` writes the record")
    return FAILED if record.status == "failed" else SUCCESS


def _layers(catalog: Catalog, request: Request, options: argparse.Namespace) -> int:
    """Print the layer curve of a model, and write its figure where asked."""
    from neuroledger.families.alignment.layer_curves.curve import curve
    from neuroledger.models.activation_store import open_store

    asked = (
        options.layers if options.layers in ("", "all") else options.layers.split(",")
    )
    with choose("none" if options.json else None) as display:
        session = Session(catalog, request, open_store(catalog.root, display))
        layers = curve(
            session, catalog.benchmark(options.benchmark), options.model, asked
        )
    if options.json:
        say_json(layers.to_dict())
    else:
        say(str(layers))
        say("nothing was recorded; what the choice of a layer means: docs/models.md")
    if options.out is not None:
        from neuroledger.report.plots.style import save

        path = save(layers.plot(), options.out)
        if not options.json:
            say(str(path))
    return 0


def _card(record: Record) -> None:
    say(f"{record.model} on {record.benchmark}: {record.status}")
    if record.error is not None:
        say(f"  {record.error.type}: {record.error.message}")
    for name, score in record.scores.items():
        say(f"  {name:<28}{_describe(score)}")
    for name, control in record.controls.items():
        verdict = "FAILED" if control.verdict == "failed" else control.verdict
        say(f"  control {name:<20}{verdict}: {control_in_words(control)}")
    if record.score is not None:
        for name, fact in record.score.facts.items():
            say(f"  {name.replace('_', ' ')}: {fact}")
        for note in record.score.notes:
            say(f"  note: {note}")
    say(
        f"  identity {record.id[:16]}… · seed {record.request.seed} · {record.timing.wall_s or 0:g} s"
    )


def _describe(score: StoredScore) -> str:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:.4f}"

    text, ceiling = number(score.value), score.ceiling
    if score.interval is not None:
        text += f" [{number(score.low)}, {number(score.high)}]"
    if ceiling is not None:
        text += f" of ceiling · raw {number(score.raw)} · ceiling {number(ceiling.value)} ({ceiling.id})"
    else:
        text += f" {score.unit or score.scale}"
    return " · ".join([text, *counts_in_words(score.n)])


def evaluate(options: argparse.Namespace) -> int:
    """Score one model on a suite without recording."""
    import os

    from neuroledger.cli.own_models import evaluate as evaluate_model

    if options.root is not None:
        os.chdir(options.root)
    params = read_params(open_catalog(options.root).root)
    request = _request(options, params)
    evaluated = evaluate_model(
        options.model,
        suite=options.suite,
        benchmarks=options.benchmarks,
        seed=request.seed,
        limit=request.limit,
        device=request.device,
    )
    say(str(evaluated))
    if not (evaluated.scores or evaluated.failed or evaluated.pending):
        return WRONG  # the model fits none of the benchmarks, as each row says
    return worst(failed=bool(evaluated.failed), pending=bool(evaluated.pending))


def cost(options: argparse.Namespace) -> int:
    """Measure the costs of a model."""
    from neuroledger.families.efficiency.cost import model_cost

    catalog = open_catalog(options.root)
    benchmark, costs = model_cost(
        options.model, options.benchmark, catalog=catalog, device=options.device
    )
    if options.json:
        say_json(
            {
                "benchmark": benchmark,
                "costs": {
                    id: StoredScore.of(cost).model_dump(mode="json")
                    for id, cost in costs.items()
                },
            }
        )
        return 0
    say(f"{options.model} on {benchmark}")
    rows = [
        (
            id,
            "–" if cost.status == "failed" else f"{cost.value:,.6g}",
            cost.unit or cost.scale,
            cost.reason or "",
        )
        for id, cost in costs.items()
    ]
    say_table(("cost", "value", "unit", "note"), rows)
    return 0


def same(options: argparse.Namespace) -> int:
    """Compare a network with its exported graph; 1 if their answers differ."""
    import numpy as np
    import torch

    from neuroledger.families.efficiency.same import network_named
    from neuroledger.families.efficiency.same import same as compare_answers

    inputs = torch.from_numpy(np.load(options.inputs, allow_pickle=False)).float()
    result = compare_answers(
        network_named(options.network),
        options.graph,
        inputs,
        time_step=options.time_step,
        reset=options.reset,
    )
    if options.json:
        parted = None if result.parted is None else vars(result.parted)
        facts = {name: fact.to_dict() for name, fact in result.facts.items()}
        say_json(
            {
                "same": result.same,
                "difference": result.difference,
                "parted": parted,
                "facts": facts,
            }
        )
    else:
        say(str(result))
    return 0 if result.same else 1


def verify(options: argparse.Namespace) -> int:
    """Check records against their inputs."""
    from neuroledger.engine.verify import verify as verify_records

    catalog = open_catalog(options.root)
    with choose("none" if options.json else None) as display:
        results = verify_records(
            catalog,
            options.records,
            recompute=options.recompute,
            display=display,
            signers=options.signers,
            key=getattr(options, "key", None),
        )
    if options.json:
        say_json([_plain_result(result) for result in results])
    else:
        for result in results:
            say(f"{SIGNS[result.finding.severity]} {result.finding}")
        say(in_words(results, recomputed=options.recompute))
    # A contradiction is a fault whatever else could not be looked at.
    if any(isinstance(result.checked, Contradicted) for result in results):
        return FAILED
    return (
        PENDING
        if any(isinstance(result.checked, NotChecked) for result in results)
        else SUCCESS
    )


def _plain_result(result: Verified) -> dict[str, Any]:
    evidence = {
        "origin": result.evidence.origin.value,
        "signer": result.evidence.signer,
    }
    return {
        **result.finding.to_dict(),
        "checked": STATES[type(result.checked)],
        "evidence": evidence,
    }


def refresh(options: argparse.Namespace) -> int:
    """Compute the intervals of records again from the deviations that they store."""
    from neuroledger.engine.refresh import refresh as refresh_records

    catalog = open_catalog(options.root)
    with choose("none" if options.json else None) as display:
        findings = refresh_records(catalog, options.records, display=display)
    if options.json:
        say_json([finding.to_dict() for finding in findings])
    else:
        for finding in findings:
            if finding.code != "record.interval-current":
                say(f"{SIGNS[finding.severity]} {finding}")
        counts = Counter(finding.code for finding in findings)
        kept = counts["record.interval-kept"]
        say(
            f"{len(findings)} records: {counts['record.refreshed']} refreshed, "
            f"{counts['record.interval-current']} current, {kept} kept as they are"
        )
    return (
        FAILED if any(finding.severity == "error" for finding in findings) else SUCCESS
    )


def sign(options: argparse.Namespace) -> int:
    """Recompute records and sign the reproduced ones."""
    options.recompute, options.signers, options.json = True, None, False
    return verify(options)
