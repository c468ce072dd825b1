"""Calibration: experiments simulated from a model of a benchmark's own data, and what its intervals and tests do there."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.display import card
from neuroledger.errors import MetricError
from neuroledger.stats.differences import clearly_better, corrected, difference, joint_mean, rank_sets
from neuroledger.stats.score import Score

__all__ = ["Calibration", "Rate", "calibrate", "generator_of"]

Floats = npt.NDArray[np.float64]
# Draws an experiment: what each of so many exchangeable models gave, and the target that all are scored against.
Generator = Callable[[np.random.Generator, int], tuple[list[xr.DataArray], xr.DataArray]]

NOMINAL: Final = 0.95
LEAST_COVERED: Final = 0.93
MOST_FALSE: Final = 0.06
# A league is as many equal models; leagues are made of the models of one experiment.
LEAGUE: Final = 5
# Dimensions of what stimuli share, and of the most stimuli and neuroids that are simulated.
LATENT: Final = 10
MOST: Final = (150, 60)


@dataclass(frozen=True)
class Rate:
    """A share of simulated experiments with its exact 95 % interval (Clopper and Pearson)."""

    value: float
    low: float
    high: float
    runs: int

    @property
    def exact(self) -> bool:
        """Whether value and interval are those of a whole number of hits in as many runs."""
        hits = round(self.value * self.runs) if 0 <= self.value <= 1 and self.runs > 0 else -1
        if not 0 <= hits <= self.runs:
            return False
        again = rate(hits, self.runs)
        pairs = ((self.value, again.value), (self.low, again.low), (self.high, again.high))
        return all(math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9) for one, other in pairs)


@dataclass(frozen=True)
class Calibration:
    """How a benchmark's inference does where the truth is known.

    Attributes
    ----------
    coverage
        Intervals that hold the expected score over new experiments.
    width
        Mean standard error over the deviation of the score that there is.
    false_positives, false_ranks
        Comparisons of equal models with p below 0.05; leagues of five equal models with a rank that is not open.
    passed
        No rate is worse than it may be beyond the chance of the simulation.
    """

    covers: str
    sizes: dict[str, int]
    truth: float
    coverage: Rate
    width: float
    false_positives: Rate
    false_ranks: Rate

    @property
    def passed(self) -> bool:
        """Whether intervals may be shown."""
        return (
            self.coverage.high >= LEAST_COVERED
            and self.false_positives.low <= MOST_FALSE
            and self.false_ranks.low <= MOST_FALSE
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"passed": self.passed}

    def _repr_html_(self) -> str:
        rates = {
            "coverage": self.coverage,
            "equal models differ": self.false_positives,
            "false ranks": self.false_ranks,
        }
        rows = [(name, f"{r.value:.3f} [{r.low:.3f}, {r.high:.3f}]") for name, r in rates.items()]
        rows += [("mean error over true deviation", f"{self.width:.3f}")]
        return card(f"calibration {'passed' if self.passed else 'FAILED'}: {self.covers}", rows)


def rate(k: int, n: int) -> Rate:
    """The share of ``k`` hits in ``n`` runs."""
    from scipy.stats import beta

    low = float(beta.ppf(0.025, k, n - k + 1)) if k else 0.0
    high = float(beta.ppf(0.975, k + 1, n - k)) if k < n else 1.0
    return Rate(k / n, low, high, n)


def calibrate(
    score: Callable[[xr.DataArray, xr.DataArray], Score], generator: Generator, *, runs: int, seed: int
) -> Calibration:
    """What intervals and tests of ``score(source, target)`` do in ``runs`` simulated experiments.

    The truth is the mean score over all experiments and models: what the interval of a new experiment is about.

    Raises
    ------
    MetricError
        The scores have no interval.
    """
    found = []
    for run in range(runs):
        sources, target = generator(np.random.default_rng([seed, run]), LEAGUE)
        found.append([score(source, target) for source in sources])
    first = found[0][0]
    if first.spread is None:
        raise MetricError(f"{first.id} has no interval to calibrate")
    values = np.array([[each.value for each in league] for league in found])
    truth = float(values.mean())
    errors = np.array([league[0].spread.error if league[0].spread else np.nan for league in found])
    pairs = [corrected([difference("", league[0], league[1])])[0] for league in found]
    ranks = [rank_sets(clearly_better([joint_mean([(1.0, each)]) for each in league])) for league in found]
    return Calibration(
        first.interval_covers,
        {name: int(n) for name, n in first.spread.items.items()},
        truth,
        rate(sum(league[0].low <= truth <= league[0].high for league in found), runs),
        float(np.sqrt((errors**2).mean()) / values[:, 0].std(ddof=1)),
        rate(sum(each.better != "" for each in pairs), runs),
        rate(sum(any(rank != (1, LEAGUE) for rank in sets) for sets in ranks), runs),
    )


def generator_of(
    source: xr.DataArray, target: xr.DataArray, repeated: xr.DataArray | None = None
) -> Generator:
    """Experiments like the one measured: new stimuli and new neuroids, or new people, with the data's own variances.

    With ``repeated``, the responses before averaging, experiments have repetitions, whose noise is that of the data.

    Raises
    ------
    MetricError
        No generative model is known for such data.
    """
    if {"presentation", "neuroid"} <= set(target.dims) and target.ndim == 2:
        return _recordings(target, repeated)
    if "subject" in target.coords and target.dims == ("presentation",) and "split" in source.coords:
        return _answers(source, target)
    raise MetricError(
        f"no generative model of data with dimensions {tuple(map(str, target.dims))} is known here"
    )


def _recordings(target: xr.DataArray, repeated: xr.DataArray | None) -> Generator:
    """A factor model of the responses; models see the factors through noise of their own that is as strong."""
    Y = np.asarray(target.transpose("presentation", "neuroid").values, dtype=np.float64)
    usable = np.isfinite(Y).all(axis=0) & (np.ptp(Y, axis=0) > 0)
    Y = Y[:, usable]
    size = tuple(min(own, most) for own, most in zip(Y.shape, MOST, strict=True))
    centred = (Y - Y.mean(axis=0)) / Y.std(axis=0)
    U, s, V = np.linalg.svd(centred, full_matrices=False)
    kept = min(LATENT, min(Y.shape) - 1)
    factors = U[:, :kept] * np.sqrt(len(Y))
    loadings = (s[:kept, None] * V[:kept]).T / np.sqrt(len(Y))
    residual = (centred - factors @ loadings.T).std(axis=0)
    repetitions, noise = 1, np.zeros(len(residual))
    if repeated is not None:
        repetitions, noise = _noise(repeated, usable)
        noise /= Y.std(axis=0)
        residual = np.sqrt(np.maximum(residual**2 - noise**2 / repetitions, 0.0))

    def draw(rng: np.random.Generator, models: int) -> tuple[list[xr.DataArray], xr.DataArray]:
        chosen = rng.integers(0, len(loadings), size[1])
        own = loadings[chosen] + 0.3 * loadings.std(axis=0) * rng.standard_normal((size[1], kept))
        Z = rng.standard_normal((size[0], kept))
        responses = Z @ own.T + residual[chosen] * rng.standard_normal(size)
        seen = [_assembly(Z + rng.standard_normal(Z.shape), "feature") for _ in range(models)]
        if repetitions == 1:
            return seen, _assembly(responses, "neuroid")
        parts = [
            _assembly(responses + noise[chosen] * rng.standard_normal(size), "neuroid").assign_coords(
                repetition=("presentation", np.full(size[0], repetition))
            )
            for repetition in range(repetitions)
        ]
        return seen, xr.concat(parts, "presentation")

    return draw


def _noise(repeated: xr.DataArray, usable: npt.NDArray[np.bool_]) -> tuple[int, Floats]:
    """Repetitions of a stimulus, as most have, and the deviation of one from their mean, (neuroid,)."""
    ids = repeated["stimulus_id"].values.astype(str)
    values = np.asarray(repeated.transpose("presentation", "neuroid").values, dtype=np.float64)[:, usable]
    _, codes, counts = np.unique(ids, return_inverse=True, return_counts=True)
    means = np.zeros((len(counts), values.shape[1]))
    filled = np.nan_to_num(values)
    np.add.at(means, codes, filled)
    apart = filled - (means / counts[:, None])[codes]
    return int(np.median(counts)), np.sqrt((apart**2).sum(axis=0) / max(1, len(values) - len(counts)))


def _assembly(values: Floats, kind: str) -> xr.DataArray:
    coords = {
        "stimulus_id": ("presentation", [f"s{i}" for i in range(len(values))]),
        "object_name": ("presentation", [f"o{i % 8}" for i in range(len(values))]),
        "neuroid_id": ("neuroid", [f"{kind}{i}" for i in range(values.shape[1])]),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def _answers(source: xr.DataArray, target: xr.DataArray) -> Generator:
    """People who are answered right as often as here on average, with log odds that vary between people as they do here."""
    truth = np.asarray(target.values).astype(str)
    people, codes = np.unique(target["subject"].values.astype(str), return_inverse=True)
    labels = np.unique(truth)
    if len(labels) < 2 or len(people) < 3 or len(labels) > len(truth) / 4:
        raise MetricError(
            "no generative model of these predictions is known: they need classes and three people"
        )
    answers = (
        np.asarray(source["choice"].values).astype(str)[source.values.argmax(axis=1)]
        if "choice" in source.dims
        else np.asarray(source.values).astype(str)
    )
    if len(answers) != len(truth):
        raise MetricError("no generative model of these predictions is known: they are of several trainings")
    right, count = np.bincount(codes, answers == truth), np.bincount(codes)
    odds = np.log((right + 0.5) / (count - right + 0.5))
    noise = (1 / (right + 0.5) + 1 / (count - right + 0.5)).mean()
    between = np.sqrt(max(0.0, odds.var(ddof=1) - noise))
    coords = {
        "subject": ("presentation", codes.astype(str)),
        "stimulus_id": ("presentation", np.arange(len(truth))),
    }
    coords["split"] = ("presentation", np.asarray(source["split"].values))
    others = [labels[labels != label] for label in labels]

    def draw(rng: np.random.Generator, models: int) -> tuple[list[xr.DataArray], xr.DataArray]:
        place = np.searchsorted(labels, truth)
        sources = []
        for _ in range(models):
            person = odds.mean() + between * rng.standard_normal(len(people))
            hit = rng.random(len(truth)) < (1 / (1 + np.exp(-person)))[codes]
            wrong = np.array([rng.choice(others[i]) for i in place])
            sources.append(xr.DataArray(np.where(hit, truth, wrong), dims="presentation", coords=coords))
        kept = {name: value for name, value in coords.items() if name != "split"}
        return sources, xr.DataArray(truth, dims="presentation", coords=kept)

    return draw
