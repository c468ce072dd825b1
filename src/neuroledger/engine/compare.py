"""Comparison of two models on the same items, from records, scores in memory or new measurements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import NamedTuple, TypeVar

import pandas as pd

from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.record import Record, read_record, record_path
from neuroledger.engine.records.summary import Known, Summary, known
from neuroledger.engine.session import Request, Session
from neuroledger.errors import DataError, NeuroLedgerError, RequestError
from neuroledger.models.model import Model
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import BenchmarkSpec, SuiteSpec
from neuroledger.spec.load import read_params
from neuroledger.spec.suites import COMMENSURABLE, suites_of, weights_of
from neuroledger.stats.differences import (
    Difference,
    Joint,
    corrected,
    difference,
    joint_mean,
    overall,
)
from neuroledger.stats.score import Score

__all__ = ["Comparison", "Subject", "compare", "lacks_items", "pairwise"]

# An id, a model in memory, a score, or scores by benchmark.
Subject = str | Model | Score | Mapping[str, Score]


@dataclass(frozen=True)
class Comparison:
    """Differences between two models on every benchmark of a suite; ``overall`` is the difference of the suite scores."""

    a: str
    b: str
    suite: str
    version: int
    differences: tuple[Difference, ...]
    overall: Difference

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per benchmark, the suite last."""
        return pd.DataFrame(
            [
                asdict(item) | {"better": item.better}
                for item in (*self.differences, self.overall)
            ]
        )

    def to_dict(self) -> dict[str, object]:
        """Return the comparison as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        return _text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        columns = [
            "benchmark",
            "a",
            "b",
            "value",
            "low",
            "high",
            "p_corrected",
            "better",
            "reason",
        ]
        names = {"a": self.a, "b": self.b}
        frame = self.to_frame()[columns].rename(
            columns={**names, "value": "difference", "p_corrected": "p"}
        )
        frame["better"] = frame["better"].map(names).fillna("")
        return str(
            frame.to_html(
                index=False, na_rep="–", float_format="{:.3g}".format, escape=True
            )
        )


def compare(
    a: Subject,
    b: Subject,
    *,
    suite: str | None = None,
    benchmark: str | None = None,
    catalog: Catalog | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Comparison:
    """Compare ``a`` with ``b`` on a ``benchmark`` or on all benchmarks of a suite.

    Scores of ids are read from records. If a record does not contain the variation of the score, as for private data,
    the model is scored again. Models in memory are scored now.

    ``a`` and ``b`` are ids of models, models in memory, Scores, or Scores by benchmark. The default suite is that of
    ``params.yaml``. ``tell`` is called with a line of text for each model that is scored again.

    Raises
    ------
    RequestError
        A model, benchmark or suite is unknown, or both models are the same.

    Examples
    --------
    >>> import neuroledger as nl
    >>> found = nl.compare("efficientnet_lite0", "gabor", benchmark="Kriegeskorte2008.monkeyIT-rdm")
    >>> print(f"{found.overall.value:.3f} [{found.overall.low:.3f}, {found.overall.high:.3f}]")
    0.305 [0.237, 0.373]
    >>> found.overall.better
    'a'
    """
    for subject in (a, b):
        _require_subject(subject)
    name_a = _name(a, "A")
    name_b = _name(b, "B")
    if isinstance(a, str) and a == b:
        raise RequestError(f"{a!r} cannot be compared with itself; name two models")
    if isinstance(a, Score | Mapping) and isinstance(b, Score | Mapping):
        if suite is not None or benchmark is not None:
            raise RequestError(
                "scores are compared as they are given: omit `suite` and `benchmark`"
            )
        return _of_scores(name_a, name_b, a, b)
    catalog = catalog or open_catalog()
    for subject in (a, b):
        if isinstance(subject, str):
            catalog.model(subject)
    chosen = _suite(catalog, suite, benchmark, a, b)
    scorer = _Scorer(catalog, Session(catalog, Request()), tell)
    items = list(chosen.benchmarks)
    results = [scorer.on(catalog.benchmark(item.id), a, b) for item in items]
    return _compared(catalog, chosen, name_a, name_b, results, joint_mean)


def pairwise(
    catalog: Catalog,
    suite: SuiteSpec,
    records: Sequence[Record] | Sequence[Known],
    models: Sequence[str],
    withheld: Mapping[str, str] | None = None,
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
) -> Iterator[Comparison]:
    """Yield the comparison of each pair of ``models`` on a suite, from ``records`` alone, in the order of the models.

    If ``pairs`` are given, only these are compared.

    Each comparison is that of :func:`compare`, except that nothing is scored again: a pair whose records lack the
    variation of the score has the difference without an interval. ``withheld`` maps benchmarks whose intervals failed
    their calibration to the reason; their differences have no interval either.
    """
    kept = {
        (record.summary.benchmark, record.summary.model): record
        for record in known(records)
    }
    sides = {
        (item.id, model): _side(
            item.id, model, kept.get((item.id, model)), (withheld or {}).get(item.id)
        )
        for item in suite.benchmarks
        for model in (
            models if pairs is None else {each for both in pairs for each in both}
        )
    }
    means: dict[tuple[tuple[float, int], ...], Joint] = {}

    def mean(parts: Sequence[tuple[float, Score]]) -> Joint:
        key = tuple((weight, id(score)) for weight, score in parts)
        if key not in means:
            means[key] = joint_mean(parts)
        return means[key]

    for a, b in combinations(models, 2) if pairs is None else pairs:
        results = [
            _recorded_pair(
                catalog.benchmark(item.id), sides[item.id, a], sides[item.id, b]
            )
            for item in suite.benchmarks
        ]
        yield _compared(catalog, suite, a, b, results, mean)


Outcome = tuple[Difference, tuple[Score, Score] | None]


def _compared(
    catalog: Catalog,
    suite: SuiteSpec,
    a: str,
    b: str,
    results: Sequence[Outcome],
    mean: Callable[[Sequence[tuple[float, Score]]], Joint],
) -> Comparison:
    """Return the comparison with corrected p values and the difference of the suite means; one result per benchmark."""
    items = suite.benchmarks
    families = [
        catalog.benchmark(item.id).parent if suite.family == "parent" else ""
        for item in items
    ]
    differences = corrected([result for result, _ in results], families)
    usable = {
        item.id: item.weight
        for item, (_, pair) in zip(items, results, strict=True)
        if pair is not None and _can_be_averaged(pair)
    }
    shares = weights_of(
        usable, {id: catalog.benchmark(id).parent for id in usable}, suite.hierarchy
    )
    pairs = [
        (pair, shares[item.id])
        for item, (_, pair) in zip(items, results, strict=True)
        if pair is not None and item.id in shares
    ]
    return Comparison(a, b, suite.id, suite.version, differences, _overall(pairs, mean))


class _Side(NamedTuple):
    """The recorded score of a model on a benchmark, or the reason why it cannot be compared; and the seed of the run."""

    score: Score | None
    seed: int
    reason: str


def _side(
    benchmark: str, model: str, record: Known | None, withheld: str | None
) -> _Side:
    try:
        summary = None if record is None else record.summary
        found = _recorded(benchmark, model, summary)
        _require_defined(found)
    except DataError as error:
        return _Side(None, 0, str(error))
    assert record is not None
    score = record.score()
    seed = found.seed
    reason = ""
    if withheld is not None:
        return _Side(score.replace(varies=None), seed, withheld)
    if lacks_items(score):
        score = score.replace(varies=None)
        reason = f"the record of {model} lacks the variation of the score: `neuroledger compare` scores it again"
    return _Side(score, seed, reason)


def lacks_items(recorded: Score) -> bool:
    """Whether a recorded score has an interval, but no deviations by item, which pair it with another score."""
    known = recorded.uncertainty
    return known is not None and all(len(part.keys) == 1 for part in known.parts)


def _recorded_pair(spec: BenchmarkSpec, a: _Side, b: _Side) -> Outcome:
    if spec.unavailable is not None:
        return Difference(spec.id, reason=f"unavailable: {spec.unavailable}"), None
    if a.score is None or b.score is None:
        return Difference(
            spec.id, reason=a.reason if a.score is None else b.reason
        ), None
    if a.seed != b.seed:
        return Difference(spec.id, reason=_other_seeds({a.seed, b.seed})), None
    found = difference(spec.id, a.score, b.score)
    return replace(found, reason=a.reason or b.reason or found.reason), (
        a.score,
        b.score,
    )


def _other_seeds(seeds: Collection[int]) -> str:
    return (
        f"records with seeds {min(seeds)} and {max(seeds)} cannot be paired; rerun one"
    )


def _require_subject(subject: object) -> None:
    """Require an id, a model, a Score or scores.

    Raises
    ------
    RequestError
        It is something else, or contains no score.
    """
    if isinstance(subject, Mapping) and not subject:
        words = "no benchmark was scored, so there is nothing to compare"
        raise RequestError(
            f"an empty {type(subject).__name__}: {words}; print it to see what is pending or skipped"
        )
    if not isinstance(subject, str | Model | Score | Mapping):
        raise RequestError(
            f"{type(subject).__name__} is not a model: pass the id of a model, a model such as nl.models.torch(module, "
            "id=…, regions={…: …}), or scores of nl.evaluate"
        )


def _name(subject: Subject, fallback: str) -> str:
    if isinstance(subject, str):
        return subject
    if isinstance(subject, Score):
        return fallback
    known = "model" if isinstance(subject, Mapping) else "id"
    return str(getattr(subject, known, "") or fallback)


def _of_scores(
    name_a: str,
    name_b: str,
    a: Score | Mapping[str, Score],
    b: Score | Mapping[str, Score],
) -> Comparison:
    first, second = (
        {s.id or "score": s} if isinstance(s, Score) else dict(s) for s in (a, b)
    )
    if isinstance(a, Score) and isinstance(b, Score):
        second = dict(zip(first, second.values(), strict=True))
    shared = [name for name in first if name in second]
    if not shared:
        ids = f"A has {', '.join(first)}, B has {', '.join(second)}"
        raise RequestError(f"the scores share no benchmark: {ids}")
    differences = corrected(
        [difference(name, first[name], second[name]) for name in shared]
    )
    both = [(first[name], second[name]) for name in shared]
    pairs = [
        (x, y) for x, y in both if (x.scale, x.direction) == (y.scale, y.direction)
    ]
    if len(pairs) == 1:
        averaged = pairs
    else:
        averaged = [pair for pair in pairs if _can_be_averaged(pair)]
    weighted = [(pair, 1 / len(averaged)) for pair in averaged]
    return Comparison(
        name_a, name_b, "", 0, differences, _overall(weighted, joint_mean)
    )


def _can_be_averaged(pair: Sequence[Score]) -> bool:
    """Whether a mean over benchmarks may contain these scores."""
    return all(
        score.direction == "higher" and score.scale in COMMENSURABLE for score in pair
    )


def _suite(
    catalog: Catalog, suite: str | None, benchmark: str | None, a: Subject, b: Subject
) -> SuiteSpec:
    """Return the suite to compare on; one benchmark, or the benchmarks of given scores, become a suite."""
    if benchmark is None:
        scores = next(
            (subject for subject in (a, b) if isinstance(subject, Mapping)), None
        )
        if scores is None:
            score = next(
                (subject for subject in (a, b) if isinstance(subject, Score)), None
            )
            if score is not None:
                raise RequestError(
                    "the benchmark of the Score is unknown; name it with `benchmark=…`"
                )
            id = suite or read_params(catalog.root).suite
            if catalog.has("suites", id):
                return catalog.suite(id)
            return suites_of(catalog, id)[0]
        names = list(scores)
    else:
        if suite is not None:
            raise RequestError("name a suite or a benchmark, not both")
        names = [catalog.benchmark(benchmark).id]
    first = catalog.benchmark(names[0])
    fields = {"id": first.id, "version": first.version, "title": first.title}
    if len(names) > 1:
        fields = {"id": "benchmarks", "version": 1, "title": f"{len(names)} benchmarks"}
    return SuiteSpec.model_validate({**fields, "benchmarks": names})


@dataclass(frozen=True)
class _Scorer:
    """Scores both subjects on a benchmark; subjects without a score are measured."""

    catalog: Catalog
    session: Session
    tell: Callable[[str], None]

    def on(self, spec: BenchmarkSpec, a: Subject, b: Subject) -> Outcome:
        """Return the difference and the pair of scores; None instead of a pair that does not exist."""
        if spec.unavailable is not None:
            return Difference(spec.id, reason=f"unavailable: {spec.unavailable}"), None
        try:
            pair = self._pair(spec, a, b)
            return difference(spec.id, *pair), pair
        except NeuroLedgerError as error:
            return Difference(spec.id, reason=str(error)), None

    def _pair(self, spec: BenchmarkSpec, a: Subject, b: Subject) -> tuple[Score, Score]:
        sides = (a, b)
        records = [
            _record(self.catalog, spec.id, side) if isinstance(side, str) else None
            for side in sides
        ]
        seeds = {record.request.seed for record in records if record is not None}
        if len(seeds) > 1:
            raise DataError(_other_seeds(seeds))
        seed = next(iter(seeds), 0)
        scores = [
            self._score(spec, side, record, seed)
            for side, record in zip(sides, records, strict=True)
        ]
        unpaired = [
            record.model
            for score, record in zip(scores, records, strict=True)
            if record is not None and lacks_items(score)
        ]
        if unpaired:
            self.tell(
                f"{spec.id}: the record of {' and '.join(unpaired)} lacks the variation of the score; scored again"
            )
            for i, record in enumerate(records):
                if record is not None and record.model in unpaired:
                    scores[i] = self._now(spec, record.model, seed)
        return scores[0], scores[1]

    def _score(
        self, spec: BenchmarkSpec, subject: Subject, record: Record | None, seed: int
    ) -> Score:
        if record is not None:
            return _score_in(record)
        if isinstance(subject, Score):
            return subject
        if isinstance(subject, Mapping):
            return subject[spec.id]
        return self._now(spec, subject, seed)

    def _now(self, spec: BenchmarkSpec, model: Model | str, seed: int) -> Score:
        if seed == self.session.request.seed:
            session = self.session
        else:
            session = Session(self.catalog, Request(seed=seed))
        return evaluate(session, spec, model, controls=False).headline


def _record(catalog: Catalog, benchmark: str, model: str) -> Record:
    path = record_path(catalog.root, benchmark, model)
    return _recorded(benchmark, model, read_record(path) if path.exists() else None)


Found = TypeVar("Found", Record, Summary)


def _recorded(benchmark: str, model: str, record: Found | None) -> Found:
    """Return the record if it can be compared."""
    if record is None:
        raise DataError(
            f"{model} has no record on {benchmark}; run `neuroledger run {model} --benchmark {benchmark}`"
        )
    if record.status != "scored" or not record.intact:
        state = record.status if record.intact else "edited"
        raise DataError(
            f"the record of {model} on {benchmark} is {state}: it cannot be compared; run it again"
        )
    return record


def _score_in(record: Record) -> Score:
    """Return the recorded score if it is defined."""
    _require_defined(record)
    return record.as_score()


def _require_defined(record: Record | Summary) -> None:
    if record.value is None:
        raise DataError(
            f"the score of {record.model} on {record.benchmark} is undefined and cannot be compared"
        )


def _overall(
    weighted: Sequence[tuple[tuple[Score, Score], float]],
    mean: Callable[[Sequence[tuple[float, Score]]], Joint],
) -> Difference:
    """Return the difference of the weighted means, each computed by ``mean``."""
    if not weighted:
        return Difference("suite", reason="no benchmark on which both were scored")
    if len(weighted) == 1:
        alone = difference("suite", *weighted[0][0])
        return replace(alone, p_corrected=alone.p)
    means = [
        mean([(weight, pair[side]) for pair, weight in weighted]) for side in (0, 1)
    ]
    base = Difference(
        "suite", means[0].value, means[1].value, means[0].value - means[1].value
    )
    whole = overall(base, means[0], means[1])
    return replace(whole, p_corrected=whole.p)


def _text(comparison: Comparison) -> str:
    """Format the differences as a table, one line per benchmark, the suite last."""
    head = [
        "benchmark",
        "A",
        "B",
        "A − B",
        "95 % interval",
        "p",
        "effect",
        "pairs",
        "detectable",
        "better",
    ]
    differences = [*comparison.differences]
    if len(differences) > 1:
        differences.append(comparison.overall)
    lines = [head, *(_line(comparison, item) for item in differences)]
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
    covered = dict.fromkeys(
        item.covers for item in comparison.differences if item.covers
    )
    title = f"A = {comparison.a}, B = {comparison.b}"
    if comparison.suite:
        title += f" · suite {comparison.suite}, version {comparison.version}"
    notes = [
        "p: two-sided, paired over the same items, corrected by Holm. effect: difference / deviation of one item.",
        "detectable: the smallest difference that 80 % of experiments of this size detect.",
        *(f"Intervals and p cover {text}." for text in covered),
        *(f"{item.benchmark}: {item.reason}" for item in differences if item.reason),
    ]
    return "\n".join([title, "", text[0], rule, *text[1:], "", *notes])


def _line(comparison: Comparison, item: Difference) -> list[str]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.3f}"

    if item.low is None:
        interval = ""
    else:
        interval = f"[{number(item.low)}, {number(item.high)}]"
    p = item.p_corrected
    shown_p = "" if p is None else f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"
    effect = "" if item.effect is None else f"{item.effect:.2f}"
    winner = {"a": comparison.a, "b": comparison.b}.get(item.better, "")
    values = [number(item.a), number(item.b), number(item.value)]
    return [
        item.benchmark,
        *values,
        interval,
        shown_p,
        effect,
        str(item.pairs or ""),
        number(item.detectable),
        winner,
    ]
