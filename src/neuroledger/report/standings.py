"""Mean normalised ranks of a suite's models, from records or published figures, and how two suites agree on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neuroledger.engine.record import Record, read_all
from neuroledger.errors import RequestError
from neuroledger.report.table import board_of
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.stats.task_ranks import Agreement, agreement, mean_rank, normalised_ranks, published_table

__all__ = ["Basis", "Standings", "agreement_of", "basis_of", "standings"]


@dataclass(frozen=True)
class Standings:
    """Mean normalised ranks of the models of a suite, best first: 0 is always first, 1 always alone and last.

    Attributes
    ----------
    ranks
        The mean of each model: over the benchmarks of one parent, then over parents, by the weights of the suite.
    failed
        How many benchmarks have no score of a model; there it shares the place after the last that has one.
    scored, unscored
        Benchmarks with at least one score, and those with none, which say nothing about the order.
    dummies
        Models that do not look at the data. Their place is fixed, so that they lift the agreement of any two suites.
    """

    suite: str
    version: int
    published: bool
    ranks: Mapping[str, float]
    failed: Mapping[str, int]
    scored: tuple[str, ...]
    unscored: tuple[str, ...]
    dummies: tuple[str, ...]

    def __str__(self) -> str:
        source = "published figures" if self.published else "records"
        counts = f"{len(self.ranks)} models on {len(self.scored)} benchmarks, {source}"
        head = f"suite {self.suite}, version {self.version}: {counts}"
        width = max(map(len, self.ranks))
        lines = [head, "", f"{'model':<{width}}  mean rank  failed"]
        lines += [
            f"{model:<{width}}  {rank:9.3f}  {self.failed[model]:6d}" for model, rank in self.ranks.items()
        ]
        if self.unscored:
            lines += ["", f"{len(self.unscored)} benchmarks have no score of anybody and do not count"]
        return "\n".join(lines)


@dataclass(frozen=True)
class Basis:
    """What an agreement of two suites rests on: benchmarks with scores in each, of how many, and in both."""

    first: str
    first_scored: int
    first_all: int
    second: str
    second_scored: int
    second_all: int
    shared: int

    @property
    def trivial(self) -> bool:
        """Whether both orders come from the very same benchmarks: the agreement is that of a table with itself."""
        return self.shared == self.first_scored == self.second_scored

    def __str__(self) -> str:
        if self.trivial:
            return (
                f"no tau: {self.first} and {self.second} have figures on the same {self.shared} benchmarks (of "
                f"{self.first_all} and of {self.second_all}), so that it would compare a table with itself"
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
    """The standings of one suite.

    Every model of the suite is ranked on every benchmark that anybody has a score on; a score that failed, is missing
    or went stale is last. Controls are left out, save the dummies that the suite lists among its models.

    Raises
    ------
    RequestError
        No such suite, or fewer than two models have a score.
    """
    catalog = catalog or open_catalog()
    spec = catalog.suite(suite)
    ids = [item.id for item in spec.benchmarks]
    weights = {item.id: item.weight for item in spec.benchmarks}
    lower: list[str] = []
    if published:
        table = {id: dict(row) for id, row in published_table(suite, catalog).items()}
        dummies = [name for name in ("Dummy", "Chance") if any(name in row for row in table.values())]
    else:
        held = list(read_all(catalog.root / "results" / "records")) if records is None else records
        board = board_of(catalog, spec, held)
        rows = [
            row
            for row in board.rows
            if row.role == "model" or (row.role == "negative" and row.model in spec.models)
        ]
        table = {}
        for at, column in enumerate(board.columns):
            values = {row.model: row.cells[at].value for row in rows if row.cells[at].status == "scored"}
            table[column.id] = {
                model: math.nan if value is None else value for model, value in values.items()
            }
        # What a floor or ceiling normalises rises with what is better, whatever its metric does.
        lower = [c.id for c in board.columns if c.direction == "lower" and c.normalise == "none"]
        dummies = [row.model for row in rows if row.role == "negative"]
    told = {id: row for id, row in table.items() if any(map(math.isfinite, row.values()))}
    models = sorted({model for row in told.values() for model in row})
    if len(models) < 2:
        raise RequestError(
            f"suite {suite!r} has {'published figures' if published else 'scores'} of {len(models)} models; "
            + ("ranks need two" if published else f"ranks need two: `neuroledger run --suite {suite}`")
        )
    parents = {id: catalog.benchmark(id).parent for id in told}
    ranks = mean_rank(normalised_ranks(told, lower_is_better=lower), group=parents, weights=weights)
    failed = {m: sum(not math.isfinite(row.get(m, math.nan)) for row in told.values()) for m in models}
    unscored = tuple(id for id in ids if id not in told)
    return Standings(suite, spec.version, published, ranks, failed, tuple(told), unscored, tuple(dummies))


def agreement_of(first: Standings, second: Standings) -> tuple[Agreement, Agreement | None]:
    """Kendall's tau-b between the mean ranks of two suites: over all models of both, and without the dummies.

    The second is None where fewer than three models are left.

    Raises
    ------
    RequestError
        Fewer than three models are in both.
    """
    dummies = [model for model in {*first.dummies, *second.dummies} if model in first.ranks]
    whole = agreement(first.ranks, second.ranks)
    left = (set(first.ranks) & set(second.ranks)) - set(dummies)
    return whole, agreement(first.ranks, second.ranks, without=dummies) if dummies and len(left) > 2 else None


def basis_of(first: Standings, second: Standings) -> Basis:
    """How many benchmarks an agreement rests on; a benchmark counts once somebody has a score on it."""
    return Basis(
        first.suite,
        len(first.scored),
        len(first.scored) + len(first.unscored),
        second.suite,
        len(second.scored),
        len(second.scored) + len(second.unscored),
        len({*first.scored} & {*second.scored}),
    )
