"""seal, judge, unseal: benchmarks whose owner keeps the answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

from neuroledger.cli.options import BenchmarkId, Json, Root, argument, option
from neuroledger.cli.output import FAILED, SUCCESS, Output
from neuroledger.display import say, say_json
from neuroledger.errors import SIGNS, RequestError

__all__ = ["judge", "seal", "unseal"]

Answers = Annotated[
    Path, option("--answers", "FILE", "the sealed answers, which `seal` wrote")
]


def seal(
    table: Annotated[
        Path, argument("TABLE", "a CSV file with the columns stimulus_id and answer")
    ],
    out: Annotated[
        Path,
        option("--out", "FILE", "the sealed answers; keep them outside the repository"),
    ],
    steps: Annotated[
        int, option("--steps", "N", "number of steps of released scores from 0 to 1")
    ] = 20,
    looks: Annotated[
        int, option("--looks", "N", "number of predictions that may be scored")
    ] = 10_000,
    json: Json = False,
    root: Root = None,
) -> int:
    """Seal answers outside the repository, and print the field `answers` of the spec of their benchmark.

    JSON: written, notes, next, answers (sealed, items, steps, looks), leaked_bits and overstated_by.
    """
    import yaml

    from neuroledger.engine.sealed.judge import seal as seal_answers
    from neuroledger.stats.ladder import Ladder

    _refuse_inside(out, root)
    answers = seal_answers(table, out, steps=steps, looks=looks)
    ladder = Ladder(answers.items, answers.steps, answers.looks)
    plain = answers.model_dump(mode="json")
    output = Output(json)
    output.wrote(out)
    output.line(yaml.safe_dump({"answers": plain}, sort_keys=False).rstrip())
    leaked = ladder.leaked_bits
    above = ladder.overstated_by()
    output.note(
        f"{looks:,} looks tell at most {leaked:.0f} bits about the answers; with 95 %, no released score exceeds the "
        f"true one by more than {above:.3f}, however predictions are adapted to earlier looks"
    )
    output.end(answers=plain, leaked_bits=leaked, overstated_by=above)
    return SUCCESS


def _refuse_inside(out: Path, root: Path | None) -> None:
    """Refuse to write answers into the repository, from which they might be pushed."""
    from neuroledger.spec.catalog import find_repository

    try:
        repository = find_repository(root)
    except RequestError:
        if root is not None:
            raise
        return  # the owner may work elsewhere
    if out.resolve().is_relative_to(repository.resolve()):
        words = f"{out} is in the repository {repository}, where sealed answers may be committed"
        raise RequestError(f"{words}; write them to another folder")


def judge(
    benchmark: BenchmarkId,
    answers: Answers,
    key: Annotated[
        Path, option("--key", "FILE", "SSH key of the owner, which signs the looks")
    ],
    json: Json = False,
    root: Root = None,
) -> int:
    """Score proposed predictions with sealed answers, as their owner, and sign what each look returns.

    JSON: written, notes, next, looks (number, model, predictions, new_best, best, low, high) and overstated_by.
    """
    from neuroledger.engine.records.evidence import signature_path
    from neuroledger.engine.sealed.judge import judge as score_all
    from neuroledger.engine.sealed.state import state_path
    from neuroledger.spec.catalog import open_catalog

    catalog = open_catalog(root)
    found = score_all(catalog, benchmark, answers, key)
    output = Output(json)
    for look in found.added:
        is_new = "a new best" if look.new_best else "no new best"
        best = f"best so far {look.best:.4g} [{look.low:.4g}, {look.high:.4g}]"
        output.line(f"look {look.number}: {look.model}: {is_new}; {best}")
    for problem in found.unread:
        output.note(problem, label="not scored: ")
    if found.added:
        path = state_path(catalog.root, benchmark)
        output.wrote(path)
        output.wrote(signature_path(path))
    looks = [look.model_dump(mode="json") for look in found.added]
    output.end(looks=looks, overstated_by=found.state.overstated_by)
    return FAILED if found.unread else SUCCESS


def unseal(
    benchmark: BenchmarkId, answers: Answers, json: Json = False, root: Root = None
) -> int:
    """Check every look at sealed answers, with the answers and the predictions.

    JSON: a list of findings, each with code, severity, where, what and fix.
    """
    from neuroledger.engine.sealed.judge import unseal as check_all
    from neuroledger.spec.catalog import open_catalog

    findings = list(check_all(open_catalog(root), benchmark, answers))
    false = any(finding.severity == "error" for finding in findings)
    if json:
        say_json([finding.to_dict() for finding in findings])
        return FAILED if false else SUCCESS
    for finding in findings:
        say(f"{SIGNS[finding.severity]} {finding}")
    counts = Counter(finding.code for finding in findings)
    say(
        f"{counts['sealed.reproduced']} looks reproduced, {counts['sealed.false']} false"
    )
    return FAILED if false else SUCCESS
