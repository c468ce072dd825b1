"""A tidy table of records, the leaderboard with ties and unranked models, and mean ranks of models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from neuroledger.engine.records.evidence import ALLOWED
from neuroledger.engine.records.summary import Known, Summary, known, known_records
from neuroledger.errors import RequestError
from neuroledger.report.board import Cell, Column, Leaderboard, Role, Row
from neuroledger.report.ranking import (
    WITHOUT,
    Means,
    Sources,
    means_of,
    tops_of,
    with_ranks,
)
from neuroledger.spec import registry
from neuroledger.spec.base import id_of, spec_sha256
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import MetricSpec, SuiteSpec, Weighted
from neuroledger.spec.load import read_params
from neuroledger.spec.model_rules import overlap_notes
from neuroledger.spec.suites import (
    COMMENSURABLE,
    Group,
    groups_of,
    suites_of,
    to_score,
    weights_of,
)
from neuroledger.spec.trusted import owner_trusts
from neuroledger.store.derived import derived_at, key_of, remembered

if TYPE_CHECKING:
    import pandas as pd

    from neuroledger.engine.record import Record
    from neuroledger.stats.stored_score import StoredScore
    from neuroledger.stats.task_ranks import Agreement

__all__ = [
    "Basis",
    "Standings",
    "agreement_of",
    "basis_of",
    "board_of",
    "boards_of",
    "leaderboard",
    "pretrained_on",
    "standings",
    "tidy",
    "withheld_in",
]


def tidy(records: Iterable[Record]) -> pd.DataFrame:
    """Return one row per model, benchmark and metric: status, value with interval, raw value, ceiling, counts, id."""
    import pandas as pd

    rows = [
        {
            "model": record.model,
            "benchmark": record.benchmark,
            "metric": metric,
            "headline": metric == next(iter(record.scores), ""),
            "status": record.status,
            **_columns_of(score),
            "seed": record.request.seed,
            "limit": record.request.limit,
            "reason": record.reason,
            "id": record.id,
        }
        for record in records
        for metric, score in _scores_of(record)
    ]
    return pd.DataFrame(rows)


def _scores_of(record: Record) -> Iterable[tuple[str, StoredScore | None]]:
    """Return every metric with its score; of a failed record, one metric without a name."""
    return record.scores.items() or [("", None)]


def _columns_of(score: StoredScore | None) -> dict[str, object]:
    """Return the columns that a score fills; without a score they are empty."""
    numbers = ("value", "low", "high", "error", "raw")
    if score is None:
        return {**dict.fromkeys((*numbers, "ceiling")), "scale": "", "direction": ""}
    return {
        **{name: getattr(score, name) for name in numbers},
        "ceiling": None if score.ceiling is None else score.ceiling.value,
        "scale": score.scale,
        "direction": score.direction,
        **{f"n_{name}": count for name, count in score.n.items()},
    }


def leaderboard(
    records: Sequence[Record] | None = None,
    *,
    suite: str | None = None,
    benchmarks: Sequence[str] = (),
    catalog: Catalog | None = None,
) -> Leaderboard:
    """Return the leaderboard of a suite (default: that of ``params.yaml``) from records (default: all).

    With ``benchmarks``, return a board of these benchmarks only.

    The score of a model is the weighted mean over the benchmarks with a common scale (0 to 1), or the mean of the means of
    the groups if the suite declares a hierarchy. Its interval accounts for items shared by benchmarks of one data set;
    different data sets are independent. Ranks are sets: all pairs of models are compared simultaneously, paired over shared
    items, at a family-wise level of 5 % [mogstad2024]. A score without an interval is never clearly better or worse than
    another. A model without a score on one of these benchmarks is shown but not ranked; controls are shown separately.

    Raises
    ------
    RequestError, DataError
        The suite or a benchmark does not exist; a record cannot be read.

    Examples
    --------
    >>> import neuroledger as nl
    >>> board = nl.leaderboard(benchmarks=["Kriegeskorte2008.IT-rdm", "Kriegeskorte2008.monkeyIT-rdm"])
    >>> board.to_frame().columns[:3].to_list()
    ['rank', 'model', 'role']
    >>> [row.model for row in board.rows[:2]]
    ['kriegeskorte92.animacy', 'efficientnet_lite0']
    """
    catalog = catalog or open_catalog()
    spec = catalog.suite(suite or read_params(catalog.root).suite)
    if benchmarks:
        items = tuple(
            Weighted(id=catalog.benchmark(id).id) for id in dict.fromkeys(benchmarks)
        )
        spec = SuiteSpec(
            id="chosen", version=1, title=", ".join(benchmarks), benchmarks=items
        )
    return board_of(
        catalog, spec, known_records(catalog.root) if records is None else records
    )


def boards_of(
    catalog: Catalog,
    suite: str,
    records: Sequence[Record] | None = None,
    *,
    new: bool = False,
) -> tuple[Leaderboard, ...]:
    """Return the boards of a suite and of the suites that it includes, each with its own ranks.

    With ``new``, also return a board of the benchmarks in no suite, if there are any.
    """
    suites = to_score(catalog, suite) if new else suites_of(catalog, suite)
    shown = known_records(catalog.root) if records is None else records
    withheld = withheld_in(catalog)
    return tuple(board_of(catalog, spec, shown, withheld) for spec in suites)


def board_of(
    catalog: Catalog,
    suite: SuiteSpec,
    records: Sequence[Record] | Sequence[Known],
    withheld: Mapping[str, str] | None = None,
    *,
    ranked: bool = True,
) -> Leaderboard:
    """Return the board of a suite, which need not be in the catalogue.

    Parameters
    ----------
    withheld
        Result of :func:`withheld_in`, if known.
    ranked
        Whether models have means and ranks; without, only scores, of which those are marked that none is clearly better
        than.
    """
    if withheld is None:
        withheld = withheld_in(catalog)
    sources = _sources(catalog, suite, records, withheld)
    columns = tuple(
        _column(catalog, item.id, item.weight, sources.records[item.id])
        for item in suite.benchmarks
    )
    column_weights = {column.id: column.weight for column in columns if column.counts}
    parents = {column.id: column.parent for column in columns}
    groups: tuple[Group, ...] = ()
    if ranked:
        groups = tuple(groups_of(column_weights, parents, suite.hierarchy))
        weights = weights_of(column_weights, parents, suite.hierarchy)
        sources.shares = (*(group.shares for group in groups), weights)
    models = _models(catalog, suite, sources)
    fitting = _fitting(catalog, models, columns, sources)
    by_column = {
        column.id: _cells(catalog, models, sources, column, fitting)
        for column in columns
    }
    cells = {
        model: {id: each[model] for id, each in by_column.items()} for model in models
    }
    entrants = {
        model: cells[model] for model in cells if not catalog.model(model).control
    }
    tops = tops_of(sources, entrants, columns)
    means = means_of(sources, cells) if ranked else dict.fromkeys(cells, WITHOUT)
    rows = [_row(catalog, model, cells[model], means[model]) for model in cells]
    rows = with_ranks(sources, rows, columns, means, tops)
    return Leaderboard(
        suite.id, suite.version, suite.title, columns, groups, _ordered(rows)
    )


def withheld_in(catalog: Catalog) -> dict[str, str]:
    """Return the benchmarks whose intervals failed their calibration, with the reason."""
    if not any((catalog.root / "results" / "calibration").glob("*.json")):
        return {}
    from neuroledger.engine.records.calibrations import refuted

    return refuted(catalog)


def _sources(
    catalog: Catalog,
    suite: SuiteSpec,
    records: Sequence[Record] | Sequence[Known],
    withheld: Mapping[str, str],
) -> Sources:
    """Return the records of the benchmarks of a suite."""
    shown: dict[str, dict[str, Known]] = {item.id: {} for item in suite.benchmarks}
    for record in known(records):
        if record.summary.benchmark in shown:
            shown[record.summary.benchmark][record.summary.model] = record
    is_stored = all(each.sha256 for row in shown.values() for each in row.values())
    is_signed = (catalog.root / ALLOWED).is_file()
    derived = derived_at(catalog.root) if is_stored else None
    return Sources(shown, withheld, is_signed, derived)


def _models(catalog: Catalog, suite: SuiteSpec, sources: Sources) -> list[str]:
    """Return the models of a suite, and the others of the repository that have a record on one of its benchmarks."""
    recorded = sorted({model for each in sources.records.values() for model in each})
    known = set(catalog.ids("models"))
    return [
        model for model in dict.fromkeys([*suite.models, *recorded]) if model in known
    ]


def _column(
    catalog: Catalog, id: str, weight: float, records: Mapping[str, Known]
) -> Column:
    spec = catalog.benchmark(id)
    dataset = catalog.about(spec.dataset)
    name = id_of(spec.all_metrics[0])
    unavailable = spec.unavailable or catalog.closed(spec.dataset) or ""
    # The metric of an unavailable benchmark may be unknown.
    if not unavailable or name in catalog.ids("metrics"):
        metric = catalog.metric(name)
    else:
        metric = None
    summaries = [record.summary for record in records.values()]
    scored = [summary for summary in summaries if summary.has_score]
    scale, direction = _scale_of(scored, metric, name)
    ceilings = [each.ceiling for each in scored if each.ceiling is not None]
    floors = [each.floor for each in summaries if each.floor is not None]
    return Column(
        id=id,
        title=spec.title,
        parent=spec.parent,
        dataset=spec.dataset,
        weight=weight,
        scale=scale,
        unit=metric.unit if metric else None,
        direction=direction,
        normalise=spec.normalised_by,
        counts=not unavailable
        and (
            spec.normalised_by == "floor"
            or (direction == "higher" and scale in COMMENSURABLE)
        ),
        simulated=dataset.simulated,
        private=dataset.access == "private",
        unavailable=unavailable,
        floor=max(floors, default=None),
        ceiling=ceilings[0] if ceilings else None,
    )


def _scale_of(
    scored: Sequence[Summary], metric: MetricSpec | None, name: str
) -> tuple[str, str]:
    """Return scale and direction of a column: those of its scores, or of its metric."""
    if scored:
        return scored[0].scale, scored[0].direction
    if metric is None:
        return (name, "higher")
    return (metric.scale, metric.direction)


def _row(catalog: Catalog, model: str, cells: Mapping[str, Cell], means: Means) -> Row:
    spec = catalog.model(model)
    role: Role = spec.control or "model"
    return Row(
        model,
        spec.title,
        role,
        spec.simulated,
        tuple(cells.values()),
        means.groups,
        means.mean,
        None,
    )


Pair = tuple[str, str]


def _fitting(
    catalog: Catalog,
    models: Sequence[str],
    columns: Sequence[Column],
    sources: Sources,
) -> dict[Pair, bool]:
    """Return whether each model fits each benchmark that it has no record on.

    This is remembered, because it needs the modules of builders and paradigms, which may take seconds to import.
    """
    pairs = [
        (model, column.id)
        for model in models
        for column in columns
        if not column.unavailable and model not in sources.records[column.id]
    ]
    is_known = bool(pairs) and sources.derived is not None and registry.only_shipped()
    keys: dict[Pair, str] = dict.fromkeys(pairs, "")
    if is_known:
        ids = {column.id: catalog.benchmark(column.id) for column in columns}
        targets = {
            id: (spec_sha256(spec), spec_sha256(catalog.about(spec.dataset)))
            for id, spec in ids.items()
        }
        without = dict.fromkeys(model for model, _ in pairs)
        owners = {model: spec_sha256(catalog.model(model)) for model in without}
        trusted = ",".join(owner_trusts())
        keys = {
            (model, id): key_of("fits", trusted, owners[model], *targets[id])
            for model, id in pairs
        }

    def compute(pair: Pair) -> bool:
        from neuroledger.engine.plan import fits

        return fits(catalog, *pair)

    return remembered(sources.derived, keys, compute)


def _cells(
    catalog: Catalog,
    models: Sequence[str],
    sources: Sources,
    column: Column,
    fitting: Mapping[Pair, bool],
) -> dict[str, Cell]:
    """Return the cell of each model in a column."""
    if column.unavailable:
        absent = Cell("unavailable", reason=column.unavailable)
        return dict.fromkeys(models, absent)
    version = catalog.benchmark(column.id).version
    withheld = sources.withheld.get(column.id)
    cells: dict[str, Cell] = {}
    for model in models:
        found = sources.records[column.id].get(model)
        if found is None:
            cells[model] = _missing(is_fitting=fitting[model, column.id])
            continue
        cells[model] = _recorded(found.summary, version, withheld)
        if sources.is_signed:
            from neuroledger.engine.checked import evidence_of

            evidence = evidence_of(catalog.root, found.summary)
            cells[model] = replace(cells[model], evidence=evidence)
    return cells


def _missing(*, is_fitting: bool) -> Cell:
    words = "not run yet" if is_fitting else "the model does not fit this benchmark"
    return Cell("missing", reason=words)


def _recorded(summary: Summary, version: int, withheld: str | None) -> Cell:
    """Return the cell of a record, without who stands for it.

    Parameters
    ----------
    version
        Present version of the benchmark.
    withheld
        Why its intervals failed their calibration; None if they did not.
    """
    if not summary.intact:
        return Cell("edited", reason="the record was edited: run it again")
    if summary.version != version:
        return Cell("stale", reason="the benchmark has a new version: run it again")
    if not summary.has_score:
        return Cell("failed", reason=summary.reason)
    if withheld is not None:
        return Cell(summary.status, summary.value, raw=summary.raw, reason=withheld)
    return Cell(
        summary.status,
        summary.value,
        summary.low,
        summary.high,
        summary.raw,
        summary.reason,
        covers=summary.covers,
    )


def _ordered(rows: Sequence[Row]) -> tuple[Row, ...]:
    def key(row: Row) -> tuple[int, float, int, str]:
        group = {"model": 0 if row.rank else 1, "positive": 2, "negative": 3}[row.role]
        if row.score.value is not None:
            value = row.score.value
        else:
            value = -math.inf
        return (
            group,
            -value,
            -sum(cell.status == "scored" for cell in row.cells),
            row.model,
        )

    return tuple(sorted(rows, key=key))


@dataclass(frozen=True)
class Standings:
    """Mean normalised ranks of the models of a suite, best first: 0 is always first, 1 is always last without ties.

    Attributes
    ----------
    ranks
        Mean rank of each model: over the benchmarks of one parent, then over parents, with the weights of the suite.
    failed
        Number of benchmarks without a score of the model; there it shares the rank after the last scored model.
    scored, unscored
        Benchmarks with at least one score, and benchmarks without any, which do not affect the ranks.
    dummies
        Models that do not use the data. Their rank is fixed, so they increase the agreement of any two suites.
    pretrained
        Of each model, the benchmarks whose data it was pretrained on, as its spec states; models without any are left out.
    """

    suite: str
    version: int
    published: bool
    ranks: Mapping[str, float]
    failed: Mapping[str, int]
    scored: tuple[str, ...]
    unscored: tuple[str, ...]
    dummies: tuple[str, ...]
    pretrained: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        source = "published figures" if self.published else "records"
        counts = f"{len(self.ranks)} models on {len(self.scored)} benchmarks, {source}"
        head = f"suite {self.suite}, version {self.version}: {counts}"
        width = max(map(len, self.ranks))
        title = "  pretrained on" if self.pretrained else ""
        lines = [head, "", f"{'model':<{width}}  mean rank  failed{title}"]
        for model, rank in self.ranks.items():
            overlap = len(self.pretrained.get(model, ()))
            known = f"the data of {overlap}" if overlap else ""
            line = f"{model:<{width}}  {rank:9.3f}  {self.failed[model]:6d}  {known}"
            lines.append(line.rstrip())
        if self.unscored:
            lines += [
                "",
                f"{len(self.unscored)} benchmarks have no score of any model and do not count",
            ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Basis:
    """Benchmarks behind the agreement of two suites: how many are scored in each, in total, and in both."""

    first: str
    first_scored: int
    first_all: int
    second: str
    second_scored: int
    second_all: int
    shared: int

    @property
    def trivial(self) -> bool:
        """Whether both suites have scores on the same benchmarks only, so that a table would be compared with itself."""
        return self.shared == self.first_scored == self.second_scored

    def __str__(self) -> str:
        if self.trivial:
            return (
                f"no tau: {self.first} and {self.second} have figures on the same {self.shared} benchmarks (of "
                f"{self.first_all} and of {self.second_all}), so it would compare a table with itself"
            )
        return (
            f"compared: {self.first} on {self.first_scored} of its {self.first_all} benchmarks with {self.second} on "
            f"{self.second_scored} of its {self.second_all}; {self.shared} are in both"
        )


def standings(
    suite: str,
    *,
    published: bool = False,
    catalog: Catalog | None = None,
    records: Sequence[Record] | None = None,
) -> Standings:
    """Return the standings of one suite.

    Every model of the suite is ranked on every benchmark with at least one score; a failed, missing or stale score is
    last. Controls are excluded, except the dummies that the suite lists among its models.

    Raises
    ------
    RequestError
        The suite does not exist, or fewer than two models have a score.
    """
    catalog = catalog or open_catalog()
    spec = catalog.suite(suite)
    if published:
        figures = _published_figures(catalog, suite)
    else:
        figures = _recorded_figures(catalog, spec, records)
    scored = {id: row for id, row in figures.values.items() if any(_finite(row))}
    models = sorted({model for row in scored.values() for model in row})
    if len(models) < 2:
        raise RequestError(_too_few(suite, len(models), published=published))
    from neuroledger.stats.task_ranks import mean_rank, normalised_ranks

    ranks = mean_rank(
        normalised_ranks(scored, lower_is_better=figures.lower),
        group={id: catalog.benchmark(id).parent for id in scored},
        weights={item.id: item.weight for item in spec.benchmarks},
    )
    unscored = tuple(item.id for item in spec.benchmarks if item.id not in scored)
    names = [f"published.{m}" if published else m for m in models]
    overlaps = {
        model: pretrained_on(catalog, name, list(scored))
        for model, name in zip(models, names, strict=True)
    }
    return Standings(
        suite,
        spec.version,
        published,
        ranks,
        {model: _failures(scored.values(), model) for model in models},
        tuple(scored),
        unscored,
        tuple(figures.dummies),
        {model: found for model, found in overlaps.items() if found},
    )


def pretrained_on(
    catalog: Catalog, model: str, benchmarks: Sequence[str]
) -> tuple[str, ...]:
    """Return the benchmarks whose data a model was pretrained on, as its spec states; none without a spec."""
    if not catalog.has("models", model):
        return ()
    pretraining = catalog.model(model).pretraining
    return tuple(
        id
        for id in benchmarks
        if overlap_notes(pretraining, catalog.benchmark(id).dataset)
    )


def _finite(row: Mapping[str, float]) -> Iterable[bool]:
    return map(math.isfinite, row.values())


def _failures(rows: Iterable[Mapping[str, float]], model: str) -> int:
    """Return the number of benchmarks without a value of a model."""
    return sum(not math.isfinite(row.get(model, math.nan)) for row in rows)


class _Figures(NamedTuple):
    """What models are ranked by: values by benchmark and model, benchmarks where lower is better, and dummies."""

    values: Mapping[str, Mapping[str, float]]
    lower: Sequence[str]
    dummies: Sequence[str]


def _published_figures(catalog: Catalog, suite: str) -> _Figures:
    """Return the published figures of a suite."""
    from neuroledger.stats.task_ranks import published_table

    table = {id: dict(row) for id, row in published_table(suite, catalog).items()}
    known = {model for row in table.values() for model in row}
    return _Figures(table, (), [name for name in ("Dummy", "Chance") if name in known])


def _recorded_figures(
    catalog: Catalog, suite: SuiteSpec, records: Sequence[Record] | None
) -> _Figures:
    """Return the recorded scores of a suite; of controls, only of the dummies that the suite lists among its models."""
    board = board_of(
        catalog, suite, known_records(catalog.root) if records is None else records
    )
    dummies = [row for row in board.rows if _is_dummy(row, suite)]
    rows = [row for row in board.rows if row.role == "model" or row in dummies]
    columns = list(enumerate(board.columns))
    values = {column.id: dict(_scored_values(rows, at)) for at, column in columns}
    lower = [column.id for _, column in columns if _is_better_when_lower(column)]
    return _Figures(values, lower, [row.model for row in dummies])


def _is_dummy(row: Row, suite: SuiteSpec) -> bool:
    return row.role == "negative" and row.model in suite.models


def _is_better_when_lower(column: Column) -> bool:
    """Whether lower scores are better; those normalised by a floor or ceiling are better when higher."""
    return column.direction == "lower" and column.normalise == "none"


def _scored_values(rows: Sequence[Row], at: int) -> Iterator[tuple[str, float]]:
    """Yield the models with a score in a column, and their values; NaN if a value is undefined."""
    for row in rows:
        cell = row.cells[at]
        if cell.status == "scored":
            yield row.model, math.nan if cell.value is None else cell.value


def _too_few(suite: str, count: int, *, published: bool) -> str:
    """Say that there are too few models to rank."""
    kind = "scores"
    fix = f"ranks need two: `neuroledger run --suite {suite}`"
    if published:
        kind, fix = "published figures", "ranks need two"
    return f"suite {suite!r} has {kind} of {count} models; {fix}"


def agreement_of(
    first: Standings, second: Standings
) -> tuple[Agreement, Agreement | None]:
    """Return Kendall's tau-b between the mean ranks of two suites: over all shared models, and without dummies.

    The second is None if there are no dummies or fewer than three other models.

    Raises
    ------
    RequestError
        The suites share fewer than three models.
    """
    from neuroledger.stats.task_ranks import agreement

    dummies = [
        model for model in {*first.dummies, *second.dummies} if model in first.ranks
    ]
    all_models = agreement(first.ranks, second.ranks)
    others = (set(first.ranks) & set(second.ranks)) - set(dummies)
    if not dummies or len(others) < 3:
        return all_models, None
    return all_models, agreement(first.ranks, second.ranks, without=dummies)


def basis_of(first: Standings, second: Standings) -> Basis:
    """Return the numbers of benchmarks behind an agreement; a benchmark counts if it has at least one score."""
    return Basis(
        first.suite,
        len(first.scored),
        len(first.scored) + len(first.unscored),
        second.suite,
        len(second.scored),
        len(second.scored) + len(second.unscored),
        len({*first.scored} & {*second.scored}),
    )
