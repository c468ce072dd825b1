"""Ranks over many tasks, normalised and averaged, with failures last; agreement of suites; paired tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import RequestError
from neuroledger.spec.base import id_of
from neuroledger.stats.aggregate import holm

if TYPE_CHECKING:
    from neuroledger.spec.catalog import Catalog

__all__ = [
    "Agreement",
    "Difference",
    "agreement",
    "mean_normalised_score",
    "mean_rank",
    "normalised_ranks",
    "paired_differences",
    "published_table",
    "sign_flip_p",
]

Table = Mapping[str, Mapping[str, float]]
EXACT_UP_TO = 13
FLIPS = 10_000
BLOCK = 1000


class Agreement(NamedTuple):
    """Agreement of two orders of the same models: Kendall's tau-b, its p value, and the number of models."""

    tau: float
    p: float
    models: int


class Difference(NamedTuple):
    """The mean paired difference of two models, its p value, and the p value after Holm's correction."""

    first: str
    second: str
    mean: float
    pairs: int
    p: float
    corrected_p: float


def normalised_ranks(
    table: Table, *, lower_is_better: Sequence[str] = (), models: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    r"""Return the rank of every model on every task, from 0 (best) to 1, as `{task: {model: rank}}`.

    Tied models share the smallest rank; it is normalised as :math:`(\mathrm{rank} - 1)/(n - 1)` for `n` models in the
    table [neuralbench2026]. A missing or non-finite score is a failure. All failures of a task share the rank after the
    last success, so failing on a hard task never helps.

    Parameters
    ----------
    table
        Scores as `{task: {model: score}}`.
    lower_is_better
        Tasks whose best score is the lowest.
    models
        All models; default: those in the table.

    Raises
    ------
    RequestError
        There are fewer than two models.
    """
    names = list(models) or _models(table)
    if len(names) < 2:
        raise RequestError("ranks need at least two models")
    ranks: dict[str, dict[str, float]] = {}
    for task, row in table.items():
        sign = -1.0 if task in lower_is_better else 1.0
        values = {model: row.get(model, math.nan) for model in names}
        scores = {
            model: sign * value if math.isfinite(value) else -math.inf
            for model, value in values.items()
        }
        ranks[task] = {
            model: sum(other > score for other in scores.values()) / (len(names) - 1)
            for model, score in scores.items()
        }
    return ranks


def _models(table: Table) -> list[str]:
    return sorted({model for row in table.values() for model in row})


def mean_rank(
    ranks: Mapping[str, Mapping[str, float]],
    *,
    group: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return the mean normalised rank of every model, best first.

    `group` maps rows (such as data sets) to tasks: ranks are averaged within tasks, then over tasks. `weights` of rows
    are 1 by default; the weight of a task is that of its heaviest row.
    """
    weight = {task: (weights or {}).get(task, 1.0) for task in ranks}
    grouped: dict[str, list[str]] = {}
    for task in ranks:
        grouped.setdefault((group or {}).get(task, task), []).append(task)
    shares = [max(weight[task] for task in tasks) for tasks in grouped.values()]

    def mean_of(model: str) -> float:
        by_task = [
            np.average(
                [ranks[task][model] for task in tasks],
                weights=[weight[task] for task in tasks],
            )
            for tasks in grouped.values()
        ]
        return float(np.average(by_task, weights=shares))

    means = {model: mean_of(model) for model in _models(ranks)}
    return dict(sorted(means.items(), key=lambda item: (item[1], item[0])))


def mean_normalised_score(
    table: Table,
    *,
    dummy: str = "Dummy",
    fallback: str = "Chance",
    perfect: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return the mean over tasks of (score - dummy)/(perfect - dummy), best first; a failure counts as the dummy, 0.

    `fallback` replaces the dummy on tasks without a score of it. The perfect score of a task is 1 by default.

    Raises
    ------
    RequestError
        A task has a score of neither dummy nor fallback, or this score is perfect.
    """
    models = _models(table)
    scores: dict[str, list[float]] = {model: [] for model in models}
    for task, row in table.items():
        floors = (row.get(name, math.nan) for name in (dummy, fallback))
        floor = next(filter(math.isfinite, floors), math.nan)
        top = (perfect or {}).get(task, 1.0)
        if not math.isfinite(floor) or abs(top - floor) < 1e-12:
            raise RequestError(
                f"task {task!r} has no usable score of {dummy} or {fallback} to normalise by"
            )
        for model in models:
            score = row.get(model, math.nan)
            scores[model].append(
                (score - floor) / (top - floor) if math.isfinite(score) else 0.0
            )
    means = {model: float(np.mean(values)) for model, values in scores.items()}
    return dict(sorted(means.items(), key=lambda item: (-item[1], item[0])))


def agreement(
    first: Mapping[str, float],
    second: Mapping[str, float],
    *,
    without: Sequence[str] = (),
) -> Agreement:
    """Return Kendall's tau-b between two suites' mean ranks of their shared models.

    Models in `without` are ignored; dummies, for example, are last in both suites and increase the agreement.

    Raises
    ------
    RequestError
        The suites share fewer than three models.
    """
    from scipy.stats import kendalltau

    shared = sorted((set(first) & set(second)) - set(without))
    if len(shared) < 3:
        raise RequestError(
            f"{len(shared)} models are in both suites; agreement needs three"
        )
    result = kendalltau(
        [first[model] for model in shared], [second[model] for model in shared]
    )
    return Agreement(float(result.statistic), float(result.pvalue), len(shared))


def sign_flip_p(differences: Sequence[float] | Floats, *, seed: int = 0) -> float:
    """Return the two-sided p value of a sign-flip test of the mean of paired differences.

    The test uses all :math:`2^n` sign patterns for up to 13 pairs, otherwise the observed pattern and 10,000 seeded ones.

    Raises
    ------
    RequestError
        There are no pairs.
    """
    values = floats(differences)
    values = values[np.isfinite(values)]
    if values.size == 0:
        raise RequestError("a paired test needs at least one pair")
    observed = abs(values.sum()) * (1 - 1e-12)
    if values.size <= EXACT_UP_TO:
        patterns = (np.arange(2**values.size)[:, None] >> np.arange(values.size)) & 1
        return float((np.abs((1 - 2 * patterns) @ values) >= observed).mean())
    rng = np.random.default_rng(seed)
    hits = 1
    for _ in range(0, FLIPS, BLOCK):
        signs = rng.choice([-1.0, 1.0], size=(BLOCK, values.size))
        hits += int((np.abs(signs @ values) >= observed).sum())
    return hits / (FLIPS + 1)


def paired_differences(
    table: Table, *, seed: int = 0, models: Sequence[str] = ()
) -> list[Difference]:
    """Compare every pair of models over shared rows (tasks or subjects), with Holm's correction.

    Raises
    ------
    RequestError
        Two models have no row in common.
    """
    compared: list[tuple[str, str, Floats]] = []
    for first, second in combinations(list(models) or _models(table), 2):
        differences = np.array(
            [
                row.get(first, math.nan) - row.get(second, math.nan)
                for row in table.values()
            ]
        )
        values = differences[np.isfinite(differences)]
        if values.size == 0:
            raise RequestError(f"{first} and {second} have no task in common")
        compared.append((first, second, values))
    p = [sign_flip_p(values, seed=seed) for _, _, values in compared]
    return [
        Difference(
            first, second, float(values.mean()), values.size, p_value, float(corrected)
        )
        for (first, second, values), p_value, corrected in zip(
            compared, p, holm(p), strict=True
        )
    ]


def published_table(
    suite: str, catalog: Catalog | None = None
) -> dict[str, dict[str, float]]:
    """Return published figures of a suite's benchmarks in their headline metrics, as `{benchmark: {model: value}}`.

    Published figures are never mixed with computed scores.

    Raises
    ------
    RequestError
        The suite is unknown.
    """
    from neuroledger.spec.catalog import open_catalog

    catalog = catalog or open_catalog()
    table: dict[str, dict[str, float]] = {}
    for item in catalog.suite(suite).benchmarks:
        spec = catalog.benchmark(item.id)
        headline = id_of(spec.all_metrics[0])
        figures = [
            figure for figure in spec.published if figure.metric in (None, headline)
        ]
        if figures:
            table[item.id] = {figure.model: figure.value for figure in figures}
    return table
