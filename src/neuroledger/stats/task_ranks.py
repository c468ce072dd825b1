"""Ranks over many tasks: normalised and averaged, a failed cell last; agreement of suites; paired tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.errors import RequestError
from neuroledger.spec.base import id_of
from neuroledger.stats.resampling import holm

if TYPE_CHECKING:
    from neuroledger.spec.catalog import Catalog

__all__ = [
    "Agreement", "Difference", "agreement", "mean_normalised_score", "mean_rank", "normalised_ranks",
    "paired_differences", "published_table", "sign_flip_p",
]  # fmt: skip

Floats = npt.NDArray[np.float64]
Table = Mapping[str, Mapping[str, float]]
EXACT_UP_TO = 13
FLIPS = 10_000
BLOCK = 1000


class Agreement(NamedTuple):
    """How alike two orders of the same models are: Kendall's tau-b with its p value, and on how many models."""

    tau: float
    p: float
    models: int


class Difference(NamedTuple):
    """The mean paired difference of two models, its p value, and that p after Holm's correction."""

    first: str
    second: str
    mean: float
    pairs: int
    p: float
    corrected_p: float


def normalised_ranks(
    table: Table, *, lower_is_better: Sequence[str] = (), models: Sequence[str] = ()
) -> dict[str, dict[str, float]]:
    r"""Rank of every model on every task, from 0 (best) to 1, as `{task: {model: rank}}`.

    Models that tie share the smallest rank: :math:`(\\mathrm{rank} - 1)/(n - 1)` with `n` all models of the table
    [neuralbench2026]. A cell that is missing or not finite is a failure: all failures of a task share the place after
    the last success, so that failing on a hard task never helps.

    Parameters
    ----------
    table
        Scores as `{task: {model: score}}`.
    lower_is_better
        Tasks whose best score is the lowest.
    models
        All models; those that the table names when left out.

    Raises
    ------
    RequestError
        There are fewer than two models.
    """
    names = list(models) or sorted({model for row in table.values() for model in row})
    if len(names) < 2:
        raise RequestError("ranks need at least two models")
    ranks: dict[str, dict[str, float]] = {}
    for task, row in table.items():
        sign = -1.0 if task in lower_is_better else 1.0
        scores = {model: sign * row.get(model, math.nan) for model in names}
        scores = {model: score if math.isfinite(score) else -math.inf for model, score in scores.items()}
        ranks[task] = {
            model: sum(other > score for other in scores.values()) / (len(names) - 1)
            for model, score in scores.items()
        }
    return ranks


def mean_rank(
    ranks: Mapping[str, Mapping[str, float]],
    *,
    group: Mapping[str, str] | None = None,
    weights: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Mean normalised rank of every model, best first; within groups first where `group` names each row's task.

    Suites with several data sets per task average the data sets of a task before the tasks. A task weighs as much as
    its heaviest row in `weights`, 1 where they do not name it.
    """
    weight = {task: (weights or {}).get(task, 1.0) for task in ranks}
    grouped: dict[str, list[str]] = {}
    for task in ranks:
        grouped.setdefault((group or {}).get(task, task), []).append(task)
    models = {model for row in ranks.values() for model in row}
    shares = [max(weight[task] for task in tasks) for tasks in grouped.values()]
    means = {
        model: float(
            np.average(
                [
                    np.average([ranks[task][model] for task in tasks], weights=[weight[t] for t in tasks])
                    for tasks in grouped.values()
                ],
                weights=shares,
            )
        )
        for model in models
    }
    return dict(sorted(means.items(), key=lambda item: (item[1], item[0])))


def mean_normalised_score(
    table: Table,
    *,
    dummy: str = "Dummy",
    fallback: str = "Chance",
    perfect: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Mean over tasks of (score - dummy)/(perfect - dummy), best first; a failed cell counts as the dummy, 0.

    `fallback` stands in where the dummy has no score on a task. Perfection is 1 where `perfect` does not say otherwise.

    Raises
    ------
    RequestError
        A task has neither dummy nor fallback, or they are perfect.
    """
    models = sorted({model for row in table.values() for model in row})
    scores: dict[str, list[float]] = {model: [] for model in models}
    for task, row in table.items():
        floor = next((row[m] for m in (dummy, fallback) if math.isfinite(row.get(m, math.nan))), math.nan)
        top = (perfect or {}).get(task, 1.0)
        if not math.isfinite(floor) or abs(top - floor) < 1e-12:
            raise RequestError(f"task {task!r} has no usable score of {dummy} or {fallback} to normalise by")
        for model in models:
            score = row.get(model, math.nan)
            scores[model].append((score - floor) / (top - floor) if math.isfinite(score) else 0.0)
    means = {model: float(np.mean(values)) for model, values in scores.items()}
    return dict(sorted(means.items(), key=lambda item: (-item[1], item[0])))


def agreement(
    first: Mapping[str, float], second: Mapping[str, float], *, without: Sequence[str] = ()
) -> Agreement:
    """Kendall's tau-b between two suites' mean ranks of the models that both have.

    `without` leaves models out: dummies have their fixed last places in both suites and lift the agreement.

    Raises
    ------
    RequestError
        Fewer than three models are in both.
    """
    from scipy.stats import kendalltau

    shared = sorted((set(first) & set(second)) - set(without))
    if len(shared) < 3:
        raise RequestError(f"{len(shared)} models are in both suites; agreement needs three")
    found = kendalltau([first[model] for model in shared], [second[model] for model in shared])
    return Agreement(float(found.statistic), float(found.pvalue), len(shared))


def sign_flip_p(differences: Sequence[float] | Floats, *, seed: int = 0) -> float:
    """Two-sided p of the mean of paired differences when their signs are random.

    All :math:`2^n` sign patterns up to 13 pairs; the observed and 10,000 seeded ones beyond.

    Raises
    ------
    RequestError
        There are no pairs.
    """
    values = np.asarray(differences, dtype=np.float64)
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


def paired_differences(table: Table, *, seed: int = 0, models: Sequence[str] = ()) -> list[Difference]:
    """Every pair of models compared over the rows that both have (tasks or subjects), with Holm's correction.

    Raises
    ------
    RequestError
        Two models have no row in common.
    """
    names = list(models) or sorted({model for row in table.values() for model in row})
    found: list[tuple[str, str, Floats]] = []
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            pairs = [row[first] - row[second] for row in table.values() if first in row and second in row]
            values = np.array([pair for pair in pairs if math.isfinite(pair)])
            if values.size == 0:
                raise RequestError(f"{first} and {second} have no task in common")
            found.append((first, second, values))
    p = [sign_flip_p(values, seed=seed) for _, _, values in found]
    return [
        Difference(first, second, float(values.mean()), values.size, p_value, float(corrected))
        for (first, second, values), p_value, corrected in zip(found, p, holm(p), strict=True)
    ]


def published_table(suite: str, catalog: Catalog | None = None) -> dict[str, dict[str, float]]:
    """Published figures of a suite's benchmarks in their headline metrics, `{benchmark: {model: value}}`.

    They are never mixed with scores of this place.

    Raises
    ------
    RequestError
        There is no such suite.
    """
    from neuroledger.spec.catalog import open_catalog

    catalog = catalog or open_catalog()
    found: dict[str, dict[str, float]] = {}
    for item in catalog.suite(suite).benchmarks:
        spec = catalog.benchmark(item.id)
        headline = id_of(spec.all_metrics[0])
        figures = [each for each in spec.published if each.metric in (None, headline)]
        if figures:
            found[item.id] = {figure.model: figure.value for figure in figures}
    return found
