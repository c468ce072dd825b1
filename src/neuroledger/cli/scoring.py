"""run, score, evaluate, cost, same, verify, refresh, sign: compute, check, refresh and sign records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from neuroledger.cli.options import (
    BenchmarkId,
    Benchmarks,
    Device,
    Json,
    Limit,
    Mixed,
    ModelId,
    Records,
    Root,
    Seed,
    Workers,
    argument,
    flag,
    option,
)
from neuroledger.cli.output import (
    FAILED,
    PENDING,
    SUCCESS,
    WRONG,
    plain_record,
    worst,
)
from neuroledger.display import choose, say, say_json, say_problem, say_table
from neuroledger.errors import SIGNS, RequestError, SpecError

if TYPE_CHECKING:
    from neuroledger.engine.checked import Verified
    from neuroledger.engine.plan import Job, Plan
    from neuroledger.engine.record import Record
    from neuroledger.engine.records.inputs import Request
    from neuroledger.engine.run import Done
    from neuroledger.spec.catalog import Catalog
    from neuroledger.spec.kinds import SuiteSpec
    from neuroledger.spec.load import Params
    from neuroledger.stats.stored_score import StoredScore

# At most this many unavailable benchmarks are listed.
UNAVAILABLE_SHOWN = 8
# The argument of --suite that selects every suite.
ALL_SUITES = "all"


def _request(
    params: Params,
    seed: int | None,
    limit: int | None,
    device: str | None,
    *,
    mixed: bool = False,
    workers: int = 0,
) -> Request:
    """Return the request: what is not given is taken from params.yaml."""
    from neuroledger.engine.records.inputs import Request
    from neuroledger.models.devices import Training

    if limit is not None and limit < 4:
        raise RequestError("--limit must be at least 4 stimuli")
    return Request(
        seed=params.seed if seed is None else seed,
        limit=limit,
        device=device or params.device,
        training=Training(mixed, workers),
    )


def run(
    models: Annotated[
        list[str] | None,
        argument(
            "MODEL", "ids of models (default: the models of the suite)", ids=("models",)
        ),
    ] = None,
    benchmarks: Benchmarks = None,
    suites: Annotated[
        list[str] | None,
        option(
            "--suite",
            "SUITE",
            "suite, or `all`; default: the suite in params.yaml; may be repeated",
            ids=("suites",),
        ),
    ] = None,
    seed: Seed = None,
    limit: Limit = None,
    device: Device = None,
    mixed: Mixed = False,
    workers: Workers = 0,
    executor: Annotated[
        str,
        option("--executor", "E", "local, processes[:N], dask[:ADDRESS] or dask:FILE"),
    ] = "local",
    dry_run: Annotated[
        bool,
        flag("--dry-run", "print the plan, compute and write nothing"),
    ] = False,
    retry_failed: Annotated[
        bool, flag("--retry-failed", "try failed jobs again")
    ] = False,
    force: Annotated[bool, flag("--force", "compute everything again")] = False,
    allow_failed: Annotated[
        bool,
        flag(
            "--allow-failed",
            "exit 0 even if jobs failed; jobs that are pending still exit 4",
        ),
    ] = False,
    json: Json = False,
    root: Root = None,
) -> int:
    """Compute the missing scores of models on benchmarks.

    JSON: jobs (benchmark, model, id, state, computed, score, reason), pending (name, reason, command), unavailable (reason
    by id) and notes. A state is scored, partial, failed or pending, and with --dry-run to do or up to date; then a job to do
    has needs, the resources that its specs declare, and the memory that earlier runs took.
    """
    from neuroledger.engine.plan import plan
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.spec.load import read_params

    catalog = open_catalog(root)
    params = read_params(catalog.root)
    request = _request(params, seed, limit, device, mixed=mixed, workers=workers)
    named_models = models or []
    named_benchmarks = benchmarks or []
    _refuse_invalid(catalog, named_models, named_benchmarks)
    planned = plan(
        catalog,
        models=named_models or list(params.models),
        benchmarks=named_benchmarks,
        suites=_suites(catalog, suites or [], named_benchmarks, params),
        request=request,
    )
    _say_plan(planned, say_problem if json else say)
    if dry_run:
        rows = _states(catalog, planned.jobs, request, retry_failed, force)
        _show_states(planned, rows, json=json)
        return SUCCESS
    from neuroledger.engine.run import run as run_jobs

    with choose() as display:
        outcomes = run_jobs(
            catalog,
            planned.jobs,
            request,
            display,
            retry_failed=retry_failed,
            force=force,
            executor=executor,
        )
    if json:
        say_json(_plain_run(planned, list(map(_plain_done, outcomes))))
    else:
        named = any([suites, benchmarks, models])
        _say_outcomes(planned, outcomes, with_unavailable=named)
    states = _states_of(planned, outcomes)
    failed = "failed" in states and not allow_failed
    return worst(failed=failed, pending="pending" in states)


def _states_of(planned: Plan, outcomes: Sequence[Done]) -> Counter[str]:
    """Return how many jobs are in each state; what the plan found pending is no job yet."""
    states = Counter[str](done.status for done in outcomes)
    states["pending"] += len(planned.pending)
    return +states


def _say_plan(planned: Plan, tell: Callable[[str], None]) -> None:
    from neuroledger.engine.outcome import pending_lines

    for line in (*planned.notes(), *pending_lines(planned.pending)):
        tell(line)


def _plain_run(
    planned: Plan, jobs: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """Return plain data about a run or a plan."""
    pending = [
        {"name": name, "reason": what.reason, "command": what.command}
        for name, what in planned.pending
    ]
    return {
        "jobs": jobs,
        "pending": pending,
        "unavailable": dict(planned.unavailable),
        "notes": list(planned.notes()),
    }


def _plain_done(done: Done) -> dict[str, object]:
    """Return plain data about the outcome of one job."""
    plain: dict[str, object] = {"id": done.job.id, "computed": done.computed}
    if done.pending is None:
        return plain | plain_record(done.record)
    pair = {"benchmark": done.job.benchmark, "model": done.job.model}
    reason = str(done.pending)
    return {**plain, **pair, "state": "pending", "score": None, "reason": reason}


def _say_outcomes(
    planned: Plan, outcomes: Sequence[Done], *, with_unavailable: bool
) -> None:
    """Say how many jobs ended in which way, and list those that failed."""
    ended = [done for done in outcomes if done.pending is None]
    computed = sum(done.computed for done in ended)
    states = sorted(_states_of(planned, outcomes).items(), reverse=True)
    counts = [f"{count} {state}" for state, count in states]
    say(
        f"{len(outcomes) + len(planned.pending)} jobs: {computed} computed, {len(ended) - computed} up to date; "
        f"{', '.join(counts) or 'nothing to do'}"
    )
    if with_unavailable:
        _say_unavailable(planned.unavailable)
    _say_failed([done for done in ended if done.status == "failed"])


def _say_failed(failed: Sequence[Done]) -> None:
    """List the jobs that failed, and say how many failed before."""
    for done in failed:
        say(f"  failed: {done.job.benchmark} · {done.job.model}: {done.record.reason}")
    before = sum(not done.computed for done in failed)
    if before:
        verb = "was" if before == 1 else "were"
        say(
            f"  {before} of them failed before and {verb} not tried again; --retry-failed tries them again"
        )


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
    if not named:
        return
    from neuroledger.engine.check import spec_problems

    findings = [
        finding for kind, id in named for finding in spec_problems(catalog, kind, id)
    ]
    if findings:
        raise SpecError(sorted(set(findings)))


def _suites(
    catalog: Catalog,
    names: Sequence[str],
    benchmarks: Sequence[str],
    params: Params,
) -> Sequence[SuiteSpec]:
    """Return the named suites and those that they include, each once; ``all`` means all, unless a suite has this id.

    If neither suites nor benchmarks are named, these are the suites of params.yaml.
    """
    from neuroledger.spec.suites import suites_of, to_score

    if not names and not benchmarks:
        return to_score(catalog, params.suite)
    ids = list(catalog.ids("suites"))
    selected: dict[str, SuiteSpec] = {}
    for name in names:
        for id in ids if name == ALL_SUITES and name not in ids else [name]:
            selected |= {suite.id: suite for suite in suites_of(catalog, id)}
    return list(selected.values())


def _say_unavailable(reasons: Mapping[str, str]) -> None:
    """List the selected benchmarks that have no job, with reasons."""
    for id, reason in list(reasons.items())[:UNAVAILABLE_SHOWN]:
        say(f"  unavailable: {id}: {reason}")
    if len(reasons) > UNAVAILABLE_SHOWN:
        say(
            f"  unavailable: {len(reasons) - UNAVAILABLE_SHOWN} more; `neuroledger show BENCHMARK` gives the reason"
        )


def _states(
    catalog: Catalog,
    jobs: Sequence[Job],
    request: Request,
    retry_failed: bool,
    force: bool,
) -> list[dict[str, str]]:
    """Return what would become of each job."""
    from neuroledger.engine.executors.sharing import machine_needs
    from neuroledger.engine.plan import current

    found = current(catalog, jobs, request, retry_failed=retry_failed)
    if force:
        found = {}
    needs = machine_needs(catalog, (job for job in jobs if job not in found))
    rows = []
    for job in jobs:
        row = {"benchmark": job.benchmark, "model": job.model, "id": job.id}
        if job in found:
            row |= {"state": f"up to date ({found[job].summary.status})", "needs": ""}
        else:
            row |= {"state": "to do", "needs": str(needs[job])}
        rows.append(row)
    return rows


def _show_states(
    planned: Plan, rows: Sequence[Mapping[str, str]], *, json: bool
) -> None:
    if json:
        say_json(_plain_run(planned, rows))
        return
    any_needs = any(row["needs"] for row in rows)
    cells = [
        (
            row["benchmark"],
            row["model"],
            row["state"],
            row["id"][:12],
            *([row["needs"]] * any_needs),
        )
        for row in rows
    ]
    headings = ("benchmark", "model", "state", "identity", *(["needs"] * any_needs))
    say_table(headings, cells)
    todo = sum(row["state"] == "to do" for row in rows)
    say(f"{len(rows)} jobs, {todo} to do; nothing was written")


def score(
    model: ModelId,
    benchmark: BenchmarkId,
    write: Annotated[
        bool,
        flag(
            "--record",
            "write the record; without it, nothing in the repository changes",
        ),
    ] = False,
    layers: Annotated[
        str | None,
        option(
            "--layers",
            "[all|NAME,NAME]",
            "score layers in place of the committed one, and choose one on half of the stimuli; without names: "
            "those of the spec, or 5 to 20 stages of the network; nothing is recorded",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "--out", "FIGURE", "also write the figure of --layers (.svg, .pdf, .png)"
        ),
    ] = None,
    seed: Seed = None,
    limit: Limit = None,
    device: Device = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Score one model on one benchmark and print the result.

    JSON: the record (docs/records.md), or with --layers the layer curve.
    """
    from neuroledger.engine.run import run as run_jobs
    from neuroledger.spec.catalog import open_catalog, open_catalog_with
    from neuroledger.spec.load import read_params

    if write or root is not None:
        catalog = open_catalog(root)
    else:
        catalog = open_catalog_with("benchmarks", benchmark)
    request = _request(read_params(catalog.root), seed, limit, device)
    catalog.model(model)
    if out is not None and layers is None:
        raise RequestError("--out writes the figure of --layers: add --layers")
    if layers is not None:
        return _layers(catalog, request, model, benchmark, layers, out, json)
    jobs = _job_of_pair(catalog, model, benchmark, request)
    with choose("none" if json else None) as display:
        # A user who names this pair has probably changed the code or the environment since it failed.
        (done,) = run_jobs(
            catalog, jobs, request, display, retry_failed=True, write=write
        )
    record = done.record
    if json:
        say_json(record.sealed().model_dump(mode="json"))
    else:
        _card(record)
        if done.computed and not write:
            say("  not recorded: `--record` writes the record")
    return FAILED if record.status == "failed" else SUCCESS


def _job_of_pair(
    catalog: Catalog, model: str, benchmark: str, request: Request
) -> Sequence[Job]:
    """Return the one job of a pair.

    Raises
    ------
    RequestError
        The benchmark or model is unavailable, or they do not fit.
    PendingError
        Something is missing on this machine.
    """
    from neuroledger.engine.plan import plan, require_compatible

    _refuse_invalid(catalog, [model], [benchmark])
    planned = plan(catalog, models=[model], benchmarks=[benchmark], request=request)
    for id, reason in planned.unavailable.items():
        raise RequestError(f"{id!r} is unavailable: {reason}")
    require_compatible(catalog, benchmark, model)
    for _, pending in planned.pending:
        raise pending.error()
    return planned.jobs


def _layers(
    catalog: Catalog,
    request: Request,
    model: str,
    benchmark: str,
    named: str,
    out: Path | None,
    json: bool,
) -> int:
    """Print the layer curve of a model, and write its figure where asked."""
    from neuroledger.engine.session import Session
    from neuroledger.families.alignment.layer_curves.curve import curve
    from neuroledger.models.activation_store import open_store

    asked = named if named in ("", "all") else named.split(",")
    with choose("none" if json else None) as display:
        session = Session(catalog, request, open_store(catalog.root, display))
        layers = curve(session, catalog.benchmark(benchmark), model, asked)
    if json:
        say_json(layers.to_dict())
    else:
        say(str(layers))
        say("nothing was recorded; what the choice of a layer means: docs/models.md")
    if out is not None:
        from neuroledger.report.plots.style import save

        path = save(layers.plot(), out)
        if not json:
            say(str(path))
    return SUCCESS


def _card(record: Record) -> None:
    """Print a record for people."""
    from neuroledger.engine.control import in_words

    say(f"{record.model} on {record.benchmark}: {record.status}")
    if record.error is not None:
        say(f"  {record.error.type}: {record.error.message}")
    for name, score in record.scores.items():
        say(f"  {name:<28}{_describe(score)}")
    for name, control in record.controls.items():
        verdict = "FAILED" if control.verdict == "failed" else control.verdict
        say(f"  control {name:<20}{verdict}: {in_words(control)}")
    if record.score is not None:
        for name, fact in record.score.facts.items():
            say(f"  {name.replace('_', ' ')}: {fact}")
        for note in record.score.notes:
            say(f"  note: {note}")
    say(
        f"  identity {record.id[:16]}… · seed {record.request.seed} · {record.timing.wall_s or 0:g} s"
    )


def _describe(score: StoredScore) -> str:
    from neuroledger.stats.score import counts_in_words

    def number(value: float | None) -> str:
        if value is None:
            return "–"
        return f"{value:.4f}"

    text = number(score.value)
    ceiling = score.ceiling
    if score.interval is not None:
        text += f" [{number(score.low)}, {number(score.high)}]"
    if ceiling is not None:
        text += f" of ceiling · raw {number(score.raw)} · ceiling {number(ceiling.value)} ({ceiling.id})"
    else:
        text += f" {score.unit or score.scale}"
    return " · ".join([text, *counts_in_words(score.n)])


def evaluate(
    model: Annotated[
        str,
        argument(
            "MODEL",
            "id of a model, or a network of your own that is trained on decoding benchmarks: FILE.py:NAME or MODULE:NAME",
            ids=("models",),
        ),
    ],
    suite: Annotated[
        str | None,
        option(
            "--suite",
            "SUITE",
            "id of a suite (default: the suite in params.yaml), or `unlisted`: all benchmarks in no suite",
            ids=("suites",),
        ),
    ] = None,
    benchmarks: Benchmarks = None,
    seed: Seed = None,
    limit: Limit = None,
    device: Device = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Score one model on every benchmark of a suite that fits it; nothing is recorded.

    The code of a network of your own is run: a class or function that builds a torch module from the shape of the windows.

    Benchmarks are scored with the suite, or alone if no suite is given.

    JSON: model, scores and costs (a score by benchmark and by metric), skipped, failed and pending (reason by benchmark).
    """
    import os

    from neuroledger.cli.own_models import evaluate as evaluate_model
    from neuroledger.spec.catalog import open_definitions
    from neuroledger.spec.load import read_params

    if root is not None:
        os.chdir(root)
    params = read_params(open_definitions().root)
    request = _request(params, seed, limit, device)
    subject: object = model
    if ":" in model:
        from neuroledger.families.decoding.own_decoders import own_decoder

        subject = own_decoder(model, device=request.device)
    evaluated = evaluate_model(
        subject,
        suite=suite,
        benchmarks=benchmarks or (),
        seed=request.seed,
        limit=request.limit,
        device=request.device,
    )
    if json:
        say_json(evaluated.to_dict())
    else:
        say(str(evaluated))
    if not (evaluated.scores or evaluated.failed or evaluated.pending):
        return WRONG  # the model fits none of the benchmarks, as each row says
    return worst(failed=bool(evaluated.failed), pending=bool(evaluated.pending))


def cost(
    model: ModelId,
    benchmark: Annotated[
        str | None,
        option(
            "--benchmark",
            "B",
            "id of a benchmark (default: the first that fits and whose data are on this machine)",
            ids=("benchmarks",),
        ),
    ] = None,
    device: Annotated[str, option("--device", "DEVICE", "cpu, cuda or mps")] = "cpu",
    json: Json = False,
    root: Root = None,
) -> int:
    """Measure costs of a model: operations, sparsity, or the costs that a benchmark lists.

    JSON: benchmark, and costs (a score by metric).
    """
    from neuroledger.families.efficiency.cost import model_cost
    from neuroledger.spec.catalog import open_catalog
    from neuroledger.stats.stored_score import StoredScore

    catalog = open_catalog(root)
    used, costs = model_cost(model, benchmark, catalog=catalog, device=device)
    if json:
        plain = {
            id: StoredScore.of(cost).model_dump(mode="json")
            for id, cost in costs.items()
        }
        say_json({"benchmark": used, "costs": plain})
        return SUCCESS
    say(f"{model} on {used}")
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
    return SUCCESS


def same(
    network: Annotated[
        str,
        argument(
            "NETWORK",
            "package.module:NAME of a torch module (or a function that makes it), or a graph file",
        ),
    ],
    graph: Annotated[Path, argument("GRAPH", "graph file (.nir or .onnx)")],
    inputs: Annotated[
        Path,
        option(
            "--inputs", "NPY", "array (sample, time, …) for neurons, else (sample, …)"
        ),
    ],
    time_step: Annotated[
        float | None,
        option("--time-step", "SECONDS", "time step of a NIR graph that states none"),
    ] = None,
    reset: Annotated[
        Literal["value", "subtract"] | None,
        option("--reset", None, "what a spike does to a membrane of a NIR graph"),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Compare the answers of a network and of its exported NIR or ONNX graph, layer by layer.

    JSON: same, difference, parted (where the answers part, or null) and facts.
    """
    import numpy as np
    import torch

    from neuroledger.families.efficiency.same import network_named
    from neuroledger.families.efficiency.same import same as compare_answers

    array = np.load(inputs, allow_pickle=False)
    result = compare_answers(
        network_named(network),
        graph,
        torch.from_numpy(array).float(),
        time_step=time_step,
        reset=reset,
    )
    if json:
        if result.parted is None:
            parted = None
        else:
            parted = vars(result.parted)
        facts = {name: fact.to_dict() for name, fact in result.facts.items()}
        plain = {"same": result.same, "difference": result.difference}
        say_json({**plain, "parted": parted, "facts": facts})
    else:
        say(str(result))
    return SUCCESS if result.same else FAILED


def verify(
    records: Records = None,
    recompute: Annotated[
        bool,
        flag("--recompute", "also recompute the scores and compare them"),
    ] = False,
    signers: Annotated[
        Path | None,
        option(
            "--signers",
            "FILE",
            "file of allowed signers, to distinguish signed from self-reported records",
        ),
    ] = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Check whether records still agree with their inputs.

    JSON: a list of findings, each with code, severity, where, what, fix, checked and evidence (origin, signer).
    """
    return _verify(records, root, recompute=recompute, signers=signers, json=json)


def sign(
    key: Annotated[
        Path,
        option("--key", "FILE", "SSH key, such as ~/.ssh/id_ed25519"),
    ],
    records: Records = None,
    json: Json = False,
    root: Root = None,
) -> int:
    """Recompute records and sign the reproduced ones with an SSH key.

    JSON: a list of findings, each with code, severity, where, what, fix, checked and evidence (origin, signer).
    """
    return _verify(records, root, recompute=True, key=key, json=json)


def _verify(
    records: Sequence[Path] | None,
    root: Path | None,
    *,
    recompute: bool,
    json: bool,
    signers: Path | None = None,
    key: Path | None = None,
) -> int:
    """Check records, report each, and return the exit status."""
    from neuroledger.engine.checked import Contradicted, NotChecked, in_words
    from neuroledger.engine.verify import verify as verify_records
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    with choose("none" if json else None) as display:
        results = verify_records(
            catalog,
            records or (),
            recompute=recompute,
            display=display,
            signers=signers,
            key=key,
        )
    if json:
        say_json(list(map(_plain_result, results)))
    else:
        for result in results:
            say(f"{SIGNS[result.finding.severity]} {result.finding}")
        say(in_words(results, recomputed=recompute))
    # A contradiction is a fault whatever else could not be looked at.
    if any(isinstance(result.checked, Contradicted) for result in results):
        return FAILED
    unchecked = any(isinstance(result.checked, NotChecked) for result in results)
    return PENDING if unchecked else SUCCESS


def _plain_result(result: Verified) -> dict[str, object]:
    from neuroledger.engine import checked

    names = {
        checked.Confirmed: "confirmed",
        checked.NotChecked: "not checked",
        checked.Contradicted: "contradicted",
        checked.Undefined: "undefined",
    }
    evidence = {
        "origin": result.evidence.origin.value,
        "signer": result.evidence.signer,
    }
    return {
        **result.finding.to_dict(),
        "checked": names[type(result.checked)],
        "evidence": evidence,
    }


def refresh(records: Records = None, json: Json = False, root: Root = None) -> int:
    """Compute intervals of records again by the current method, from the records alone.

    JSON: a list of findings, each with code, severity, where, what and fix.
    """
    from neuroledger.engine.records.refresh import refresh as refresh_records
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    with choose("none" if json else None) as display:
        findings = refresh_records(catalog, records or (), display=display)
    if json:
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
    failed = any(finding.severity == "error" for finding in findings)
    return FAILED if failed else SUCCESS
