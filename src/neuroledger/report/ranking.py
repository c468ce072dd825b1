"""Means, ranks and tops of a board, each remembered by the records that it follows from.

The statistics are imported when something must be computed: that takes longer than a board that is remembered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from neuroledger.engine.records.summary import Known
from neuroledger.report.board import Cell, Column, Row
from neuroledger.store.derived import Derived, key_of, remembered

if TYPE_CHECKING:
    from neuroledger.stats.differences import Joint, JointMean, Pairs
    from neuroledger.stats.score import Score

__all__ = ["WITHOUT", "Means", "Sources", "means_of", "tops_of", "with_ranks"]

KEPT_SCORES: Final = 4096
"""Number of scores with their deviations in memory, of some 50 kB each; the others are read again."""


class _Grown(NamedTuple):
    """A mean of a model of which the scores on these benchmarks are known."""

    ids: list[str]
    mean: JointMean


@dataclass
class Sources:
    """The records of a board by benchmark and model, whose deviations are read where they are needed.

    Attributes
    ----------
    withheld
        Why the interval of a benchmark's scores is not shown, by benchmark.
    is_signed
        Whether the repository has allowed signers, so that records may be signed.
    derived
        What is remembered of files with the same content; None remembers nothing.
    shares
        Share of each benchmark in the mean of each group, and in the score of the suite, which is the last.
    """

    records: Mapping[str, Mapping[str, Known]]
    withheld: Mapping[str, str]
    is_signed: bool
    derived: Derived | None
    shares: Sequence[Mapping[str, float]] = ()

    def __post_init__(self) -> None:
        self._scores: dict[tuple[str, str], Score] = {}
        self._grown: dict[tuple[str, int], _Grown] = {}
        self._means: dict[tuple[str, int], Joint] = {}

    def score(self, benchmark: str, model: str) -> Score:
        """Return a score with its deviations, or without an interval if it is withheld.

        Raises
        ------
        DataError
            The file of the record was changed or removed meanwhile.
        """
        if (benchmark, model) in self._scores:
            return self._scores[benchmark, model]
        known = self.records[benchmark][model]
        score = known.score()
        if benchmark in self.withheld and known.summary.intact:
            score = score.replace(varies=None)
        if len(self._scores) >= KEPT_SCORES:
            self._scores.clear()
        self._scores[benchmark, model] = score
        return score

    def grow(self, benchmark: str, model: str) -> None:
        """Add a score to those means of its model that it is part of, while it is in memory for its column."""
        from neuroledger.stats.differences import JointMean

        for at, shares in enumerate(self.shares):
            if benchmark in shares:
                place = model, at
                grown = self._grown.setdefault(place, _Grown([], JointMean()))
                grown.ids.append(benchmark)
                grown.mean.add(shares[benchmark], self.score(benchmark, model))

    def mean(self, model: str, at: int) -> Joint:
        """Return a mean of a model by the shares at this place, which is computed once."""
        place = model, at
        if place not in self._means:
            grown = self._grown.pop(place, None)
            if grown is not None and grown.ids == list(self.shares[at]):
                self._means[place] = grown.mean.joint()
            else:
                self._means[place] = _joint(self, model, self.shares[at])
        return self._means[place]

    def key(self, kind: str, pairs: Sequence[tuple[str, str]], *more: object) -> str:
        """Return the key of what follows from the records of these pairs, and from ``more``; empty of records in memory."""
        contents = []
        for benchmark, model in pairs:
            known = self.records[benchmark].get(model)
            if known is not None and not known.sha256:
                return ""
            sha256 = "" if known is None else known.sha256
            contents.append((benchmark, model, sha256, self.withheld.get(benchmark)))
        return key_of(kind, json.dumps([contents, more], allow_nan=False))


class Means(NamedTuple):
    """The score of a row and the means of its groups; ``key`` is empty if they are not remembered."""

    groups: tuple[Cell, ...]
    mean: Cell
    key: str


WITHOUT: Final = Means((), Cell("missing", reason="means are not computed"), "")


def means_of(
    sources: Sources, cells: Mapping[str, Mapping[str, Cell]]
) -> dict[str, Means]:
    """Return the means of each model over the benchmarks that count.

    Parameters
    ----------
    cells
        The cells of each model by benchmark.
    """
    *shares, weights = sources.shares
    used = sorted({*weights, *(id for each in shares for id in each)})
    keys = {
        model: sources.key(
            "means",
            [(id, model) for id in used],
            {id: cells[model][id].status for id in used},
            [dict(each) for each in shares],
            dict(weights),
        )
        for model in cells
    }

    def compute(model: str) -> list[dict[str, Any]]:
        own = cells[model]
        return [
            _plain(_mean(sources, model, own, at)) for at in range(len(sources.shares))
        ]

    found = remembered(sources.derived, keys, compute)
    return {
        model: Means(
            tuple(Cell(**cell) for cell in plain[:-1]), Cell(**plain[-1]), keys[model]
        )
        for model, plain in found.items()
    }


def _plain(cell: Cell) -> dict[str, Any]:
    """Return a mean as plain data: nobody signs means, and none is marked."""
    plain = asdict(cell)
    del plain["evidence"]
    return plain


def _mean(sources: Sources, model: str, cells: Mapping[str, Cell], at: int) -> Cell:
    """Return the mean over benchmarks by their shares (which sum to 1), or a cell with the reason why it is missing."""
    shares = sources.shares[at]
    missing = [
        id for id in shares if cells[id].status != "scored" or cells[id].value is None
    ]
    if not shares:
        return Cell("missing", reason="the suite's benchmarks have no common scale")
    if missing:
        return Cell("partial", reason=f"without {', '.join(missing)}")
    joint = sources.mean(model, at)
    if joint.uncertainty is None:
        return Cell("scored", joint.value)
    low, high = joint.uncertainty.interval(joint.value)
    if len(shares) == 1:  # a mean of one score has its interval, on its natural scale
        (score,) = (sources.score(id, model) for id in shares)
        low = score.low
        high = score.high
    return Cell("scored", joint.value, low, high)


def _joint(sources: Sources, model: str, shares: Mapping[str, float]) -> Joint:
    from neuroledger.stats.differences import joint_mean

    return joint_mean(
        [(share, sources.score(id, model)) for id, share in shares.items()]
    )


def with_ranks(
    sources: Sources,
    rows: Sequence[Row],
    columns: Sequence[Column],
    means: Mapping[str, Means],
    tops: Mapping[str, frozenset[str]],
) -> list[Row]:
    """Return rows with ranks, and with cells marked that no model is clearly better than; controls are not compared."""
    models = [row for row in rows if row.role == "model"]
    ranks = _ranks(sources, models, means)
    return [
        replace(
            row,
            cells=tuple(
                replace(cell, top=True) if row.model in tops[column.id] else cell
                for cell, column in zip(row.cells, columns, strict=True)
            ),
            rank=ranks.get(row.model),
        )
        for row in rows
    ]


def _ranks(
    sources: Sources,
    rows: Sequence[Row],
    means: Mapping[str, Means],
) -> dict[str, tuple[int, int]]:
    """Return the first and last rank of each model with a score."""
    models = [row.model for row in rows if row.score.status == "scored"]
    if not models:
        return {}
    keys = [means[model].key for model in models]
    key = key_of("ranks", *keys) if all(keys) else ""

    def compute(_: str) -> list[tuple[int, int]]:
        from neuroledger.stats.differences import better_in, rank_sets

        return rank_sets(better_in(_pairs(sources, models, keys)))

    found = remembered(sources.derived, {"ranks": key}, compute)["ranks"]
    return {
        model: (first, last) for model, (first, last) in zip(models, found, strict=True)
    }


def _pairs(sources: Sources, models: Sequence[str], keys: Sequence[str]) -> Pairs:
    """Return the tests of all pairs of models; models whose key was tested before are compared with the others only.

    The last tests of a suite are remembered.
    """
    from neuroledger.stats.differences import packed, pairs_among, unpacked

    *_, weights = sources.shares
    derived = sources.derived if all(keys) else None
    place = key_of("pairs", json.dumps(dict(weights), allow_nan=False))
    plain = derived.recall([place]).get(place) if derived else None
    before = None if plain is None else unpacked(plain)
    held = {} if before is None else dict(zip(before.names, before.joints, strict=True))
    of_suite = len(sources.shares) - 1
    joints = [
        held.get(key) or sources.mean(model, of_suite)
        for model, key in zip(models, keys, strict=True)
    ]
    pairs = pairs_among(keys, joints, before)
    if derived:
        derived.remember({place: packed(pairs)})
    return pairs


def tops_of(
    sources: Sources,
    cells: Mapping[str, Mapping[str, Cell]],
    columns: Sequence[Column],
) -> dict[str, frozenset[str]]:
    """Return the models of each benchmark that no other is clearly better than.

    The scores of a column are in memory meanwhile, and the means of models grow by them.

    Parameters
    ----------
    cells
        The cells by benchmark of each model that is compared.
    """
    scored = {
        column.id: [
            model
            for model, own in cells.items()
            if own[column.id].status == "scored" and own[column.id].value is not None
        ]
        for column in columns
    }
    by_id = {column.id: column for column in columns}
    keys = {
        id: sources.key(
            "tops",
            [(id, model) for model in models],
            by_id[id].direction,
            by_id[id].counts,
        )
        for id, models in scored.items()
    }
    found = remembered(
        sources.derived, keys, lambda id: _tops(sources, by_id[id], scored[id])
    )
    return {id: frozenset(models) for id, models in found.items()}


def _tops(sources: Sources, column: Column, models: Sequence[str]) -> list[str]:
    """Return the models that no other is clearly better than; values without intervals are compared exactly."""
    from neuroledger.stats.differences import Joint, clearly_better

    scores = [sources.score(column.id, model) for model in models]
    joints = [Joint(score.value, score.uncertainty) for score in scores]
    for model in models:
        sources.grow(column.id, model)
    higher = column.direction == "higher"
    if not column.counts and all(joint.uncertainty is None for joint in joints):
        values = [joint.value for joint in joints]
        best = (max if higher else min)(values, default=0.0)
        return [
            model for model, value in zip(models, values, strict=True) if value == best
        ]
    better = clearly_better(joints, higher=higher)
    return [model for at, model in enumerate(models) if not better[:, at].any()]
