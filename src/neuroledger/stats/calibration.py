"""Calibration: performance of a benchmark's intervals and tests in simulated experiments with a known truth."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from neuroledger.data.arrays import Floats, floats
from neuroledger.display import card
from neuroledger.errors import MetricError
from neuroledger.stats.differences import (
    clearly_better,
    corrected,
    difference,
    joint_mean,
    rank_sets,
)
from neuroledger.stats.score import Score

__all__ = [
    "LEAGUE",
    "Calibration",
    "Experiment",
    "Figure",
    "Rate",
    "calibrate",
    "rate",
    "share",
]

Measured = TypeVar("Measured")

# An interval is withheld where it is shown to contain the truth less often than this.
LEAST_COVERED = 0.90
# Equal models per experiment (a league); the smallest number of experiments from which a rate is estimated.
LEAGUE, FEWEST = 5, 20
NORMAL_95 = 1.959964


class Experiment(NamedTuple, Generic[Measured]):
    """A simulated experiment: measurements of several equal models, and of a model that returns the noiseless responses."""

    models: Sequence[Measured]
    noiseless: Measured | None = None


@dataclass(frozen=True)
class Figure:
    """A number from simulated experiments, with its 95 % interval."""

    value: float
    low: float
    high: float
    runs: int


@dataclass(frozen=True)
class Rate(Figure):
    """A share with its Clopper–Pearson interval for ``n``, the effective number of independent trials."""

    n: float

    @property
    def exact(self) -> bool:
        """Whether the interval is the Clopper–Pearson interval of the share in ``n`` trials."""
        if not (0 <= self.value <= 1 and 0 < self.n <= LEAGUE * self.runs):
            return False
        expected = share(self.value * self.n, self.n, self.runs)
        pairs = ((self.low, expected.low), (self.high, expected.high))
        return all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5) for a, b in pairs)


@dataclass(frozen=True)
class Calibration:
    """Performance of the inference of one metric of a benchmark when the truth is known.

    Attributes
    ----------
    truth, coverage
        Mean score of all experiments and models, the target of the intervals; the share of intervals that contain it.
    length
        Mean length of the printed interval divided by 2 · 1.96 true standard deviations of the score.
    interval_score
        Mean of length + (2/α) · miss over the same length (Gneiting and Raftery 2007, equation 43); smaller is better, and
        1.2 is that of a normal interval with known deviation.
    false_positives, false_ranks
        Share of comparisons of equal models with p below 0.05; share of leagues of five equal models with any rank set
        smaller than 1 to 5.
    ceiling
        Share of intervals of the ceiling that contain the mean ceiling.
    recovered
        Mean score of the noiseless responses; 1 minus it is the loss of a perfect model from the limited number of stimuli.
    """

    covers: str
    sizes: dict[str, int]
    truth: float
    coverage: Rate
    length: Figure
    interval_score: Figure
    false_positives: Rate
    false_ranks: Rate
    ceiling: Rate | None = None
    recovered: Figure | None = None

    @property
    def passed(self) -> bool:
        """Whether intervals may be shown: their coverage is not shown to be below 0.90."""
        return self.coverage.high >= LEAST_COVERED

    def to_dict(self) -> dict[str, object]:
        """Return the calibration as plain data."""
        # Rounded, so that different processors give equal files.
        text = json.dumps(asdict(self))

        def few(digits: str) -> float:
            return float(f"{float(digits):.6g}")

        return {**json.loads(text, parse_float=few), "passed": self.passed}

    def _repr_html_(self) -> str:
        rates: dict[str, Figure] = {
            "coverage": self.coverage,
            "length over needed": self.length,
            "interval score": self.interval_score,
            "equal models differ": self.false_positives,
            "false ranks": self.false_ranks,
        }
        rows = [
            (name, f"{r.value:.3f} [{r.low:.3f}, {r.high:.3f}]")
            for name, r in rates.items()
        ]
        return card(
            f"calibration {'passed' if self.passed else 'FAILED'}: {self.covers}", rows
        )


def share(k: float, n: float, runs: int) -> Rate:
    """Return the share of ``k`` hits in ``n`` trials, from ``runs`` experiments."""
    from scipy.stats import beta

    if k > 0:
        low = float(beta.ppf(0.025, k, n - k + 1))
    else:
        low = 0.0
    if k < n:
        high = float(beta.ppf(0.975, k + 1, n - k))
    else:
        high = 1.0
    return Rate(k / n, low, high, runs, n)


def rate(hits: npt.ArrayLike) -> Rate:
    """Return the share of hits ``(experiment, …)``; correlated hits of one experiment count as fewer trials."""
    table = floats(hits)
    means = table.reshape(len(table), -1).mean(axis=1)
    mean = float(means.mean())
    runs = len(means)
    if runs > 1:
        between = float(means.var(ddof=1)) / runs
    else:
        between = 0.0
    if between > 0:
        n = min(table.size, mean * (1 - mean) / between)
    else:
        n = runs
    return share(mean * n, n, runs)


def calibrate(
    score: Callable[[Measured], Mapping[str, Score]],
    draw: Callable[[np.random.Generator, int], Experiment[Measured]],
    *,
    runs: int,
    seed: int,
) -> dict[str, Calibration | str]:
    """Calibrate each score in ``runs`` simulated experiments; a score that cannot be calibrated gets the reason instead.

    ``score`` returns scores by metric id; ``draw`` draws an experiment with the given number of equal models.

    Raises
    ------
    MetricError
        More than a tenth of the experiments cannot be scored; fewer are left out.
    """
    leagues: list[list[Mapping[str, Score]]] = []
    true: list[float] = []
    reason = ""
    for run in range(runs):
        experiment = draw(np.random.default_rng([seed, run]), LEAGUE)
        try:
            league = list(map(score, experiment.models))
            if experiment.noiseless is not None:
                true.append(next(iter(score(experiment.noiseless).values())).value)
        except MetricError as error:
            reason = str(error)
            continue
        _compute_intervals(league)
        leagues.append(league)
    if len(leagues) < max(FEWEST, 0.9 * runs):
        raise MetricError(
            f"{runs - len(leagues)} of {runs} simulated experiments cannot be scored: {reason}"
        )
    calibrations: dict[str, Calibration | str] = {}
    for name in leagues[0][0]:
        scores = [[models[name] for models in league] for league in leagues]
        # The noiseless data give the true value of the first score only.
        calibrations[name] = _calibrated(scores, [] if calibrations else true)
    return calibrations


def _compute_intervals(league: Sequence[Mapping[str, Score]]) -> None:
    """Compute the intervals, which scores then keep, so that the experiment can be freed."""
    for scores in league:
        for result in scores.values():
            _ = result.low, result.ceiling and result.ceiling.low


def _calibrated(
    leagues: Sequence[Sequence[Score]], true: Sequence[float]
) -> Calibration | str:
    first = leagues[0][0]
    if first.uncertainty is None:
        return "the score has no interval"
    low, values, high = (_of_each(leagues, name) for name in ("low", "value", "high"))
    if not np.isfinite(low).all():
        return "the score has no interval"
    truth = float(values.mean())
    needed = 2 * NORMAL_95 * float(values.std(axis=0, ddof=1).mean())
    length = high - low
    miss = np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0)
    penalised = length + 2 / 0.05 * miss
    pairs = [[_differ(*league[:2]), _differ(*league[2:4])] for league in leagues]
    return Calibration(
        covers=first.interval_covers,
        sizes={name: int(n) for name, n in first.uncertainty.items.items()},
        truth=truth,
        coverage=rate((low <= truth) & (truth <= high)),
        length=_mean((length / needed).mean(axis=1).tolist()),
        interval_score=_mean((penalised / needed).mean(axis=1).tolist()),
        false_positives=rate(pairs),
        false_ranks=rate(list(map(_separates, leagues))),
        ceiling=_of_ceiling([league[0].ceiling for league in leagues]),
        recovered=_mean(true) if true else None,
    )


def _of_each(leagues: Sequence[Sequence[Score]], name: str) -> Floats:
    """Return an attribute of all scores, [experiment, model]."""
    return np.array([[getattr(score, name) for score in league] for league in leagues])


def _separates(league: Sequence[Score]) -> bool:
    """Return whether a rank set leaves out a place, although the models are equal."""
    sets = rank_sets(clearly_better([joint_mean([(1.0, score)]) for score in league]))
    return any(ranks != (1, len(sets)) for ranks in sets)


def _differ(a: Score, b: Score) -> bool:
    return corrected([difference("", a, b)])[0].better != ""


def _of_ceiling(ceilings: Sequence[Score | None]) -> Rate | None:
    tops = [top for top in ceilings if top is not None and np.isfinite(top.low)]
    if len(tops) < FEWEST or np.ptp([top.value for top in tops]) == 0:
        return None
    mean = float(np.mean([top.value for top in tops]))
    return rate([top.low <= mean <= top.high for top in tops])


def _mean(values: Sequence[float]) -> Figure:
    mean = float(np.mean(values))
    half = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return Figure(mean, mean - half, mean + half, len(values))
