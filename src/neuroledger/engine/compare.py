"""Two models compared on the same items: scores from records, from memory or measured now, and their differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.record import Record, read_record, record_path
from neuroledger.engine.session import Request, Session
from neuroledger.errors import DataError, NeuroLedgerError, RequestError
from neuroledger.models.model import Model
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import BenchmarkSpec, SuiteSpec
from neuroledger.spec.load import read_params
from neuroledger.spec.suites import suites_of, weights_of
from neuroledger.stats.differences import Difference, corrected, difference, joint_mean, overall
from neuroledger.stats.score import COMMENSURABLE, Score

__all__ = ["Comparison", "Subject", "compare"]

# An id, a model in memory, a score, or scores by benchmark.
Subject = str | Model | Score | Mapping[str, Score]


@dataclass(frozen=True)
class Comparison:
    """Two models on every benchmark of a suite; ``overall`` is the difference of their scores on it, if there is one."""

    a: str
    b: str
    suite: str
    version: int
    differences: tuple[Difference, ...]
    overall: Difference

    def to_frame(self) -> pd.DataFrame:
        """One row per benchmark, the suite last."""
        return pd.DataFrame(
            [asdict(each) | {"better": each.better} for each in (*self.differences, self.overall)]
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        return _text(self)

    def _repr_html_(self) -> str:
        columns = ["benchmark", "a", "b", "value", "low", "high", "p_corrected", "better", "reason"]
        frame = self.to_frame()[columns].rename(columns={"a": self.a, "b": self.b, "value": "difference"})
        return str(frame.to_html(index=False, na_rep="–", float_format="{:.3g}".format, escape=True))


def compare(
    a: Subject,
    b: Subject,
    *,
    suite: str | None = None,
    benchmark: str | None = None,
    catalog: Catalog | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """``a`` against ``b`` on one ``benchmark``, or on those of a suite (that of ``params.yaml`` when none is named).

    Each is the id of a model, a model in memory, a Score, or Scores by benchmark. Scores of ids come from their records,
    unless the record does not hold how the score varies, as of private data: then both models are scored again, and
    ``tell`` is called with a line that says so. Models in memory are scored now.

    Raises
    ------
    RequestError
        A model, benchmark or suite is unknown, or both models are the same.
    """
    named_a, named_b = _name(a, "A"), _name(b, "B")
    if isinstance(a, str) and a == b:
        raise RequestError(f"{a!r} cannot be compared with itself; name two models")
    if isinstance(a, Score | Mapping) and isinstance(b, Score | Mapping):
        return _of_scores(named_a, named_b, a, b)
    catalog = catalog or open_catalog()
    for each in (a, b):
        if isinstance(each, str):
            catalog.model(each)
    chosen = _suite(catalog, suite, benchmark, a, b)
    measured = _Measured(catalog, Session(catalog, Request()), tell)
    items = list(chosen.benchmarks)
    found = [measured.on(catalog.benchmark(item.id), a, b) for item in items]
    families = [catalog.benchmark(item.id).parent if chosen.family == "parent" else "" for item in items]
    differences = corrected([each for each, _ in found], families)
    usable = {
        item.id: item.weight
        for item, (_, pair) in zip(items, found, strict=True)
        if pair is not None and all(s.direction == "higher" and s.scale in COMMENSURABLE for s in pair)
    }
    shares = weights_of(usable, {id: catalog.benchmark(id).parent for id in usable}, chosen.hierarchy)
    counted = [
        (pair, shares[item.id])
        for item, (_, pair) in zip(items, found, strict=True)
        if pair is not None and item.id in shares
    ]
    return Comparison(named_a, named_b, chosen.id, chosen.version, differences, _overall(counted))


def _name(subject: Subject, fallback: str) -> str:
    if isinstance(subject, str):
        return subject
    return (
        str(getattr(subject, "id", "") or fallback) if not isinstance(subject, Score | Mapping) else fallback
    )


def _of_scores(
    named_a: str, named_b: str, a: Score | Mapping[str, Score], b: Score | Mapping[str, Score]
) -> Comparison:
    first, second = ({each.id or "score": each} if isinstance(each, Score) else dict(each) for each in (a, b))
    if isinstance(a, Score) and isinstance(b, Score):
        second = dict(zip(first, second.values(), strict=True))
    shared = [name for name in first if name in second]
    if not shared:
        raise RequestError(
            f"the scores share no benchmark: A has {', '.join(first)}, B has {', '.join(second)}"
        )
    found = corrected([difference(name, first[name], second[name]) for name in shared])
    counted = [((first[name], second[name]), 1 / len(shared)) for name in shared]
    return Comparison(named_a, named_b, "", 0, found, _overall(counted))


def _suite(catalog: Catalog, suite: str | None, benchmark: str | None, a: Subject, b: Subject) -> SuiteSpec:
    """What is compared: one benchmark, those that scores were given of, or a suite."""
    if benchmark is None:
        given = next((each for each in (a, b) if isinstance(each, Mapping)), None)
        if given is None:
            single = next((each for each in (a, b) if isinstance(each, Score)), None)
            if single is not None:
                raise RequestError(
                    "a Score is compared with a model on one benchmark: name it, `benchmark=…`"
                )
            chosen = suite or read_params(catalog.root).suite
            return catalog.suite(chosen) if catalog.has("suites", chosen) else suites_of(catalog, chosen)[0]
        names = list(given)
    else:
        if suite is not None:
            raise RequestError("name a suite or a benchmark, not both")
        names = [catalog.benchmark(benchmark).id]
    title = f"benchmark {names[0]}" if len(names) == 1 else "benchmarks"
    return SuiteSpec.model_validate(
        {"id": names[0], "version": catalog.benchmark(names[0]).version, "title": title, "benchmarks": names}
    )


@dataclass(frozen=True)
class _Measured:
    """Scores of both sides on a benchmark, measured where they are not recorded."""

    catalog: Catalog
    session: Session
    tell: Callable[[str], None]

    def on(
        self, spec: BenchmarkSpec, a: Subject, b: Subject
    ) -> tuple[Difference, tuple[Score, Score] | None]:
        """The difference, and the scores if there are two."""
        if spec.unavailable is not None:
            return Difference(spec.id, reason=f"unavailable: {spec.unavailable}"), None
        try:
            pair = self._pair(spec, a, b)
            return difference(spec.id, *pair), pair
        except NeuroLedgerError as error:
            return Difference(spec.id, reason=str(error)), None

    def _pair(self, spec: BenchmarkSpec, a: Subject, b: Subject) -> tuple[Score, Score]:
        records = [_record(self.catalog, spec.id, each) if isinstance(each, str) else None for each in (a, b)]
        seeds = {int(record.request.get("seed", 0)) for record in records if record is not None}
        if len(seeds) > 1:
            raise DataError(f"the records have seeds {min(seeds)} and {max(seeds)}: not paired")
        seed = next(iter(seeds), 0)
        scores = [self._score(spec, each, record, seed) for each, record in zip((a, b), records, strict=True)]
        lost = [
            record.model
            for score, record in zip(scores, records, strict=True)
            if record is not None and score.spread is None and score.low == score.low
        ]
        if lost:
            self.tell(
                f"{spec.id}: the record of {' and '.join(lost)} does not hold how its score varies; scored again"
            )
            for i, record in enumerate(records):
                if record is not None and record.model in lost:
                    scores[i] = self._now(spec, record.model, seed)
        return scores[0], scores[1]

    def _score(self, spec: BenchmarkSpec, subject: Subject, record: Record | None, seed: int) -> Score:
        if record is not None and record.score is not None and record.score["value"] is None:
            raise DataError(f"the score of {record.model} is undefined: there is nothing to compare")
        if record is not None:
            return Score.of_record(record.score or {})
        if isinstance(subject, Score):
            return subject
        if isinstance(subject, Mapping):
            return subject[spec.id]
        return self._now(spec, subject, seed)

    def _now(self, spec: BenchmarkSpec, model: Model | str, seed: int) -> Score:
        session = (
            self.session if seed == self.session.request.seed else Session(self.catalog, Request(seed=seed))
        )
        return evaluate(session, spec, model, controls=False).headline


def _record(catalog: Catalog, benchmark: str, model: str) -> Record:
    path = record_path(catalog.root, benchmark, model)
    if not path.exists():
        raise DataError(f"{model} has no record; run `neuroledger run {model} --benchmark {benchmark}`")
    record = read_record(path)
    if record.status != "scored" or not record.intact:
        state = record.status if record.intact else "edited"
        raise DataError(f"the record of {model} is {state}: nothing to compare")
    return record


def _overall(counted: Sequence[tuple[tuple[Score, Score], float]]) -> Difference:
    """The difference of the weighted means."""
    if not counted:
        return Difference("suite", reason="no benchmark on which both were scored")
    means = [joint_mean([(weight, pair[side]) for pair, weight in counted]) for side in (0, 1)]
    base = Difference("suite", means[0].value, means[1].value, means[0].value - means[1].value)
    found = overall(base, means[0], means[1])
    return replace(found, p_corrected=found.p)


def _text(comparison: Comparison) -> str:
    """The differences in lines, one per benchmark, the suite last."""
    head = ["benchmark", "A", "B", "A − B", "95 % interval", "p", "effect", "pairs", "detectable", "better"]
    shown = [*comparison.differences]
    if len(shown) > 1:
        shown.append(comparison.overall)
    lines = [head, *(_line(comparison, each) for each in shown)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    left = (0, len(head) - 1)
    text = [
        "  ".join(
            cell.ljust(w) if i in left else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    rule = "─" * max(map(len, text))
    covered = dict.fromkeys(each.covers for each in comparison.differences if each.covers)
    title = f"A = {comparison.a}, B = {comparison.b}"
    if comparison.suite:
        title += f" · suite {comparison.suite}, version {comparison.version}"
    notes = [
        "p: two-sided, paired over the same items, corrected by Holm. effect: difference / deviation of one item.",
        "detectable: the smallest difference found in 80 % of experiments of this size.",
        *(f"Intervals and p cover {what}." for what in covered),
        *(f"{each.benchmark}: {each.reason}" for each in shown if each.reason),
    ]
    return "\n".join([title, "", text[0], rule, *text[1:], "", *notes])


def _line(comparison: Comparison, each: Difference) -> list[str]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    interval = "" if each.low is None else f"[{number(each.low)}, {number(each.high)}]"
    p = each.p_corrected
    shown_p = "" if p is None else f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"
    effect = "" if each.effect is None else f"{each.effect:.2f}"
    winner = {"a": comparison.a, "b": comparison.b}.get(each.better, "")
    values = [number(each.a), number(each.b), number(each.value)]
    return [
        each.benchmark, *values, interval, shown_p, effect, str(each.pairs or ""), number(each.detectable), winner,
    ]  # fmt: skip
