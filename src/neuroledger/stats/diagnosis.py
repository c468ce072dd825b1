"""Diagnosis of a suite: coverage, agreement, dominant axes, redundancy, panels, discriminative power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse.csgraph import connected_components
from scipy.stats import kendalltau, norm, rankdata

from neuroledger.data.arrays import Booleans, Floats, Indices
from neuroledger.errors import RequestError

__all__ = [
    "Axis",
    "diagnose",
    "Diagnosis",
    "Explained",
    "Pair",
    "rank_agreement",
    "Shift",
    "Table",
]

State = Literal["scored", "failed", "never run"]
FEWEST: Final = 5
"""Number of models that two benchmarks must share for their agreement to be reported."""
REDUNDANT: Final = 0.9
KEPT: Final = 0.95
"""Kendall's tau with the whole suite at which a panel is complete."""
PERMUTATIONS: Final = 999


@dataclass(frozen=True)
class Table:
    """Scores of models on benchmarks; higher is better.

    Attributes
    ----------
    values
        ``(model, benchmark)``; NaN without a score.
    half_widths
        Half of the width of each 95 % interval, of the same shape; NaN without an interval.
    states
        Of the same shape: ``scored``, ``failed`` or ``never run``.
    attributes
        Attributes of each benchmark by name: metric, region, modality, family, …
    order
        Benchmarks from the oldest to the newest; default: the order of ``values``.
    """

    values: pd.DataFrame
    half_widths: pd.DataFrame
    states: pd.DataFrame
    attributes: Mapping[str, Mapping[str, str]]
    order: tuple[str, ...] = ()


class Pair(NamedTuple):
    """Two benchmarks: Spearman's correlation over shared models, its 95 % interval, and the number of models."""

    first: str
    second: str
    rho: float
    low: float
    high: float
    models: int


class Explained(NamedTuple):
    """Mean agreement of benchmarks that share an attribute and of those that do not, with a permutation p value."""

    attribute: str
    same: float
    other: float
    pairs: int
    p: float


class Axis(NamedTuple):
    """A principal axis of the scores: its share of the variance, and the loading of each benchmark."""

    share: float
    loadings: dict[str, float]


class Shift(NamedTuple):
    """The suite up to a benchmark: Kendall's tau with the whole suite, and the largest change of a rank."""

    benchmarks: int
    last: str
    tau: float
    largest: int
    model: str


@dataclass(frozen=True)
class Diagnosis:
    """The result of :func:`diagnose`."""

    coverage: pd.DataFrame
    adjusted: dict[str, float]
    pairs: tuple[Pair, ...]
    explained: tuple[Explained, ...]
    explained_share: float
    axes: tuple[Axis, ...]
    redundant: tuple[Pair, ...]
    contrary: tuple[Pair, ...]
    panel: tuple[str, ...]
    panel_tau: float
    discriminative: dict[str, float]
    growth: tuple[Shift, ...]


def diagnose(table: Table, *, axes: int = 3, seed: int = 0) -> Diagnosis:
    """Diagnose a suite from its table of scores.

    * ``coverage``: the number of scored, failed and never run models of each benchmark.
    * ``adjusted``: each model's mean over all benchmarks, estimated by least squares of model and benchmark effects on the
      existing scores. A missing score is never counted as 0. Models that no chain of shared benchmarks connects with the
      largest group of models cannot be compared with it: NaN.
    * ``pairs``: Spearman's correlation of each pair of benchmarks that share at least five models; the interval uses
      Fisher's z with the variance of Bonett and Wright (2000).
    * ``explained``: whether pairs that share an attribute agree more; p permutes the attribute over benchmarks (a Mantel
      test). ``explained_share`` is R² of a regression of all pairs on all attributes.
    * ``axes``: eigenvectors of the correlation matrix, in which unknown pairs are 0.
    * ``redundant`` pairs have a correlation of at least .9 and an interval above .8; ``contrary`` pairs have a correlation
      below 0 at a level of .025 divided by the number of pairs (Bonferroni).
    * ``panel``: benchmarks selected greedily, each maximising Kendall's tau between the orders of models of the panel and
      of the whole suite, until tau reaches .95; pairs of models that the panel does not order count 0.
    * ``discriminative``: the share of pairs of models whose intervals on a benchmark separate them; NaN without intervals.
    * ``growth``: the order of models after each benchmark, compared with that of the whole suite.

    Raises
    ------
    RequestError
        Fewer than three models or two benchmarks have scores.
    """
    scored = table.values.dropna(how="all").dropna(how="all", axis=1)
    if len(scored) < 3 or scored.shape[1] < 2:
        raise RequestError(
            f"a diagnosis needs scores of three models on two benchmarks; there are {len(scored)} models on "
            f"{scored.shape[1]} benchmarks: run more of the suite, or name a table with --table"
        )
    scored = scored.set_axis(scored.columns.astype(str), axis=1)
    halves = table.half_widths.set_axis(table.half_widths.columns.astype(str), axis=1)
    names = list(scored.columns)
    pairs = tuple(_pairs(scored))
    explained, share = _explained(
        pairs, names, table.attributes, np.random.default_rng(seed)
    )
    panel, tau = _panel(scored)
    order = [name for name in (table.order or names) if name in names]
    states = ("scored", "failed", "never run")
    coverage = {state: (table.states == state).sum() for state in states}
    return Diagnosis(
        coverage=pd.DataFrame(coverage).rename_axis("benchmark"),
        adjusted=_adjusted(scored),
        pairs=pairs,
        explained=tuple(explained),
        explained_share=share,
        axes=tuple(_axes(pairs, names, axes)) if pairs else (),
        redundant=tuple(filter(_is_redundant, pairs)),
        contrary=_contrary(pairs),
        panel=panel,
        panel_tau=tau,
        discriminative={name: _separated(scored[name], halves[name]) for name in names},
        growth=tuple(_growth(scored, order)),
    )


def _is_redundant(pair: Pair) -> bool:
    return pair.rho >= REDUNDANT and pair.low > REDUNDANT - 0.1


def _contrary(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    return tuple(
        pair
        for pair in pairs
        if np.arctanh(pair.rho) < -_spread(pair.rho, pair.models, 0.025 / len(pairs))
    )


def _pairs(scored: pd.DataFrame) -> list[Pair]:
    pairs = []
    for at, first in enumerate(scored.columns):
        for second in scored.columns[at + 1 :]:
            values = scored[[first, second]].dropna().to_numpy(dtype=np.float64)
            if len(values) < FEWEST:
                continue
            first_ranks = rankdata(values[:, 0])
            second_ranks = rankdata(values[:, 1])
            if np.ptp(first_ranks) == 0 or np.ptp(second_ranks) == 0:
                continue
            rho = float(np.corrcoef(first_ranks, second_ranks)[0, 1])
            rho = float(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
            spread = _spread(rho, len(values), 0.025)
            z = np.arctanh(rho)
            low, high = np.tanh([z - spread, z + spread])
            pairs.append(
                Pair(str(first), str(second), rho, float(low), float(high), len(values))
            )
    return pairs


def _spread(rho: float, models: int, tail: float) -> float:
    """Return half the width of the interval of Fisher's z of a rank correlation (Bonett and Wright, 2000)."""
    variance = (1 + rho**2 / 2) / max(models - 3, 1)
    return float(norm.ppf(1 - tail) * np.sqrt(variance))


def _explained(
    pairs: Sequence[Pair],
    names: Sequence[str],
    attributes: Mapping[str, Mapping[str, str]],
    rng: np.random.Generator,
) -> tuple[list[Explained], float]:
    kinds = sorted(set[str]().union(*(attributes.get(name, {}) for name in names)))
    place = {name: at for at, name in enumerate(names)}
    ends = np.array(
        [(place[pair.first], place[pair.second]) for pair in pairs], dtype=np.intp
    ).reshape(-1, 2)
    rho = np.array([pair.rho for pair in pairs])
    explained = []
    columns = []
    for kind in kinds:
        labels = np.array(
            [attributes.get(name, {}).get(kind, f"?{name}") for name in names]
        )
        same = _share_label(labels, ends)
        if same.all() or not same.any():
            continue  # nothing to compare
        explained.append(
            Explained(
                kind,
                float(rho[same].mean()),
                float(rho[~same].mean()),
                int(same.sum()),
                _mantel_p(rho, labels, ends, rng),
            )
        )
        columns.append(same.astype(np.float64))
    return explained, _explained_share(rho, columns)


def _explained_share(rho: Floats, columns: Sequence[Floats]) -> float:
    """Return R² of the regression of the correlations on an intercept and the columns."""
    if not columns or np.ptp(rho) == 0:
        return 0.0
    design = np.column_stack([np.ones(len(rho)), *columns])
    fitted = design @ np.linalg.lstsq(design, rho, rcond=None)[0]
    unexplained = ((rho - fitted) ** 2).sum()
    whole = ((rho - rho.mean()) ** 2).sum()
    return float(1 - unexplained / whole)


def _mantel_p(
    rho: Floats,
    labels: npt.NDArray[np.str_],
    ends: Indices,
    rng: np.random.Generator,
) -> float:
    """Return p of a Mantel test, which permutes the labels over benchmarks."""
    observed = _contrast(rho, _share_label(labels, ends))
    hits = 1
    for _ in range(PERMUTATIONS):
        same = _share_label(labels[rng.permutation(len(labels))], ends)
        comparable = same.any() and not same.all()
        hits += bool(comparable and _contrast(rho, same) >= observed)
    return hits / (PERMUTATIONS + 1)


def _share_label(labels: npt.NDArray[np.str_], ends: Indices) -> Booleans:
    """Return whether both benchmarks of each pair, [pair, 2], have the same label."""
    return np.asarray(labels[ends[:, 0]] == labels[ends[:, 1]])


def _contrast(rho: Floats, same: Booleans) -> float:
    """Return how much higher the mean correlation of pairs that share a label is."""
    return float(rho[same].mean() - rho[~same].mean())


def _axes(pairs: Sequence[Pair], names: Sequence[str], count: int) -> list[Axis]:
    place = {name: at for at, name in enumerate(names)}
    matrix = np.eye(len(names))
    for pair in pairs:
        row = place[pair.first]
        column = place[pair.second]
        matrix[row, column] = matrix[column, row] = pair.rho
    values, vectors = np.linalg.eigh(matrix)
    axes = []
    for at in np.argsort(values)[::-1][:count]:
        vector = vectors[:, at]
        vector = vector * (np.sign(vector.sum()) or 1.0)
        loadings = dict(
            sorted(zip(names, vector.tolist(), strict=True), key=lambda item: -item[1])
        )
        axes.append(Axis(float(max(values[at], 0.0) / len(names)), loadings))
    return axes


def _adjusted(scored: pd.DataFrame) -> dict[str, float]:
    """Return each model's mean over all benchmarks in an additive model, best first."""
    values = scored.to_numpy(dtype=np.float64)
    models, benchmarks = values.shape
    known = np.isfinite(values)
    row, column = np.nonzero(known)
    design = np.zeros((len(row), models + benchmarks))
    design[np.arange(len(row)), row] = 1
    design[np.arange(len(row)), models + column] = 1
    effects = np.linalg.lstsq(design, values[row, column], rcond=None)[0]
    groups = connected_components(known @ known.T)[1]
    group = groups == np.bincount(groups).argmax()
    reached = known[group].any(axis=0)
    of_benchmarks = effects[models:][reached].mean()
    means = np.where(group, effects[:models] + of_benchmarks, np.nan)
    adjusted = dict(zip(map(str, scored.index), means.tolist(), strict=True))
    return dict(
        sorted(
            adjusted.items(), key=lambda item: (np.isnan(item[1]), -item[1], item[0])
        )
    )


def _standard(scored: pd.DataFrame) -> Floats:
    """Return scores in standard deviations of each benchmark, so that all benchmarks have equal weight."""
    spread = scored.std(ddof=0).replace(0.0, 1.0).fillna(1.0)
    return ((scored - scored.mean()) / spread).to_numpy(dtype=np.float64)


def rank_agreement(first: Floats, second: Floats) -> float:
    """Return Kendall's τ of the scores that both columns have; 0 if one of them does not vary."""
    known = np.isfinite(first) & np.isfinite(second)
    if known.sum() < 2 or np.ptp(first[known]) == 0 or np.ptp(second[known]) == 0:
        return 0.0
    return float(kendalltau(first[known], second[known]).statistic)


def _mean(values: Floats) -> Floats:
    """Return each model's mean over its scored benchmarks; NaN without any."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        mean: Floats = np.where(known, values, 0.0).sum(axis=1) / known.sum(axis=1)
    return mean


def _panel(scored: pd.DataFrame) -> tuple[tuple[str, ...], float]:
    values = _standard(scored)
    full = _mean(values)
    chosen: list[int] = []
    agreement = 0.0
    while agreement < KEPT and len(chosen) < values.shape[1]:
        remaining = [at for at in range(values.shape[1]) if at not in chosen]
        means = [_mean(values[:, [*chosen, at]]) for at in remaining]
        taus = [rank_agreement(mean, full) * _ordered_share(mean) for mean in means]
        best = int(np.argmax(taus))
        chosen.append(remaining[best])
        agreement = taus[best]
    return tuple(str(scored.columns[at]) for at in chosen), agreement


def _ordered_share(means: Floats) -> float:
    """Return the share of pairs of models that both have a mean."""
    known = int(np.isfinite(means).sum())
    count = len(means)
    return known * (known - 1) / (count * (count - 1))


def _separated(scores: pd.Series[float], half_widths: pd.Series[float]) -> float:
    """Return the share of pairs of models whose difference exceeds √(h₁² + h₂²)."""
    known = (
        pd.DataFrame({"value": scores, "half": half_widths})
        .dropna()
        .to_numpy(dtype=np.float64)
    )
    if len(known) < 2:
        return float("nan")
    upper = np.triu_indices(len(known), 1)
    values = known[:, 0]
    halves = known[:, 1]
    difference = np.abs(values[:, None] - values)[upper]
    apart = np.hypot(halves[:, None], halves)[upper]
    return float((difference > apart).mean())


def _growth(scored: pd.DataFrame, order: Sequence[str]) -> list[Shift]:
    whole = _mean(_standard(scored[list(order)]))
    shifts = []
    for count in range(1, len(order) + 1):
        part = _mean(_standard(scored[list(order[:count])]))
        known = np.isfinite(part)
        if known.sum() < 3:
            continue
        ranks = rankdata(-part[known])
        distance = np.abs(ranks - rankdata(-whole[known]))
        at = int(np.argmax(distance))
        model = str(scored.index[np.flatnonzero(known)[at]])
        shifts.append(
            Shift(
                count,
                order[count - 1],
                rank_agreement(part, whole),
                int(distance[at]),
                model,
            )
        )
    return shifts
