"""Why the rank of a model moved between two commits: by its own scores, by those of others, or by the suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from neuroledger.engine.records.summary import known_records
from neuroledger.engine.why import Definition, Explanation, shares_of
from neuroledger.errors import RequestError
from neuroledger.report.table import board_of
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.suites import weights_of
from neuroledger.stats.score import Score
from neuroledger.store.git_trees import catalog_at

__all__ = ["Standing", "explain_rank", "standing_at"]

ROUNDING: Final = 1e-6
"""Scores that differ by less are equal."""
SUITE: Final = "weights of the suite"
OTHERS: Final = "other models"

Values = Mapping[str, float]


@dataclass(frozen=True)
class Standing:
    """What ranks in a suite follow from.

    Attributes
    ----------
    weights
        Share of each benchmark in the score of the suite; they sum to 1.
    scores
        Score of each model by benchmark; of controls none.
    """

    name: str
    weights: Values
    scores: Mapping[str, Values]


def standing_at(catalog: Catalog, suite: str, commit: str = "") -> Standing:
    """Return what the ranks of a suite follow from, at a commit or, without one, in the working tree.

    Raises
    ------
    RequestError
        There is no such commit, or it had no such suite.
    SpecError
        The specs of the commit cannot be read by this version.
    """
    if not commit:
        return _standing(catalog, suite, suite)
    with catalog_at(catalog, commit, "results/records") as past:
        return _standing(past, suite, f"{suite} at {commit[:10]}")


def _standing(catalog: Catalog, suite: str, name: str) -> Standing:
    spec = catalog.suite(suite)
    board = board_of(catalog, spec, known_records(catalog.root))
    counted = {column.id: column.weight for column in board.columns if column.counts}
    parents = {column.id: column.parent for column in board.columns}
    scores = {
        row.model: {
            column.id: cell.value
            for column, cell in zip(board.columns, row.cells, strict=True)
            if cell.status == "scored" and cell.value is not None
        }
        for row in board.rows
        if row.role == "model"
    }
    return Standing(name, weights_of(counted, parents, spec.hierarchy), scores)


def explain_rank(
    model: str, first: Standing, second: Standing, *, seed: int = 0
) -> Explanation:
    """Explain the change of a model's rank by what changed between two standings.

    A rank is 1 plus the number of models with a higher score. What changed is the weights of the suite, and of each
    benchmark the score of the model and those of the others. The shares add up, over the orders in which these can be
    changed, as those of :func:`neuroledger.engine.why.explain`. A rank has no interval here: the sets of ranks on the
    board say which are certain.

    Raises
    ------
    RequestError
        The model has no rank in one of the standings.
    """
    moves = _Moves(model, first, second)
    for standing in (first, second):
        if _mean(standing.weights, standing.scores.get(model, {})) is None:
            raise RequestError(f"{model} has no rank in {standing.name}")
    groups = [(name,) for name in moves.first.fields]
    shares = sorted(shares_of(moves, groups, seed), key=lambda each: -abs(each.value))
    everything = frozenset(moves.first.fields)
    ends = [moves.score(chosen).value for chosen in (frozenset[str](), everything)]
    names = [f"rank of {model} in {standing.name}" for standing in (first, second)]
    return Explanation(names[0], names[1], ends[0], ends[1], tuple(shares))


class _Moves:
    """The rank of a model in mixtures of two standings.

    Attributes
    ----------
    first, second
        The values of what changed, by name.
    """

    def __init__(self, model: str, before: Standing, after: Standing) -> None:
        self.model = model
        self.standings = (before, after)
        self._known: dict[frozenset[str], Score] = {}
        fields = _changes(model, before, after)
        self.first = Definition(
            before.name, {name: was for name, (was, _) in fields.items()}
        )
        self.second = Definition(
            after.name, {name: now for name, (_, now) in fields.items()}
        )

    def score(self, switched: frozenset[str]) -> Score:
        """Return the rank with these fields of the second standing and all others of the first."""
        if switched not in self._known:
            self._known[switched] = Score(float(self._rank(switched)), scale="rank")
        return self._known[switched]

    def _rank(self, switched: frozenset[str]) -> int:
        weights = self.standings[SUITE in switched].weights
        models = {*self.standings[0].scores, *self.standings[1].scores}
        means = {
            model: _mean(weights, self._scores(model, weights, switched))
            for model in models
        }
        own = means.pop(self.model)
        if own is None:
            raise RequestError(
                f"{self.model} has no score on a benchmark of one of the suites"
            )
        return 1 + sum(mean is not None and mean > own for mean in means.values())

    def _scores(self, model: str, weights: Values, switched: frozenset[str]) -> Values:
        """Return the scores of a model in a mixture; where a standing lacks a benchmark, those of the other."""
        found: dict[str, float] = {}
        for id in weights:
            name = f"{id}: {self.model if model == self.model else OTHERS}"
            chosen = self.standings[name in switched]
            if id not in chosen.weights:
                chosen = next(each for each in self.standings if each is not chosen)
            value = chosen.scores.get(model, {}).get(id)
            if value is not None:
                found[id] = value
        return found


def _mean(weights: Values, scores: Values) -> float | None:
    """Return the weighted mean, or None without a score on one of the benchmarks."""
    if not weights or not weights.keys() <= scores.keys():
        return None
    return sum(weight * scores[id] for id, weight in weights.items())


def _changes(
    model: str, before: Standing, after: Standing
) -> dict[str, tuple[object, object]]:
    """Return what changed, by name: its values before and after."""
    fields: dict[str, tuple[object, object]] = {}
    if not _equal(before.weights, after.weights):
        fields[SUITE] = dict(before.weights), dict(after.weights)
    models = sorted({*before.scores, *after.scores} - {model})
    for id in sorted(before.weights.keys() & after.weights.keys()):
        was, now = (each.scores.get(model, {}).get(id) for each in (before, after))
        if not _equal({id: was}, {id: now}):
            fields[f"{id}: {model}"] = was, now
        others = [_column(each, models, id) for each in (before, after)]
        if not _equal(*others):
            fields[f"{id}: {OTHERS}"] = others[0], others[1]
    return fields


def _column(standing: Standing, models: Sequence[str], id: str) -> dict[str, float]:
    return {
        model: standing.scores[model][id]
        for model in models
        if id in standing.scores.get(model, {})
    }


def _equal(
    first: Mapping[str, float | None], second: Mapping[str, float | None]
) -> bool:
    """Whether two columns have the same entries, but for rounding."""
    if first.keys() != second.keys():
        return False
    return all(_are_close(value, second[name]) for name, value in first.items())


def _are_close(first: float | None, second: float | None) -> bool:
    if first is None or second is None:
        return first == second
    return first == second or abs(first - second) <= ROUNDING
