"""Experiments like boxes that were found in scenes: other scenes, in which boxes are found as well as in those."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.efficiency.metrics.average_precision import BOX, box_overlap
from neuroledger.families.simulated_predictions import simulated_predictions
from neuroledger.stats.calibration import Experiment

__all__ = ["simulated_answers"]

Draw = Callable[[np.random.Generator, int], Experiment[Measurement]]
# A box that overlaps a true one by less has nothing to do with it; a model that finds fewer of them has found nothing.
TOUCHING, FEWEST = 0.5, 0.1
# The share of what makes a box hard to find, in variance, that models have in common.
SHARED = 0.5
# Equal scores are made to differ by this share of their deviation.
TIES = 1e-3


class _Outcomes(NamedTuple):
    """What became of each true box, worst first: where it was found from it in units of its sides, its score, its label.

    ``found`` is false of those that were missed; ``swapped`` says that the label was another.
    """

    found: Array
    apart: Floats
    score: Floats
    swapped: Array


def simulated_answers(measured: Measurement, factors: Collection[str]) -> Draw:
    """Experiments like these answers of a network: boxes in scenes, or what :func:`simulated_predictions` knows.

    New scenes have the true boxes of those measured. What becomes of a box follows its difficulty, half of which models
    share and which is as alike within scenes as it is here; boxes where there is nothing come as those measured do.

    Raises
    ------
    MetricError
        Hardly any true box is found, or the predictions are of another kind.
    """
    if "corner" not in measured.target.dims:
        return simulated_predictions(measured, factors)
    true, given = (each.transpose("presentation", "corner") for each in (measured.target, measured.source))
    scenes, where = (np.asarray(each["scene"].values).astype(str) for each in (true, given))
    names = np.unique(np.concatenate([scenes, where]))
    boxes, found = (np.asarray(each.values, dtype=np.float64) for each in (true, given))
    labels, called = (np.asarray(each["label"].values).astype(str) for each in (true, given))
    scores = np.asarray(given["score"].values, dtype=np.float64)
    match, overlap = _matched(boxes, scenes, found, where, scores)
    met = match >= 0
    if met.mean() < FEWEST:
        raise MetricError(
            f"no generative model is fitted: {int(met.sum())} of {len(met)} true boxes are found at an overlap of {TOUCHING}"
        )
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    order = np.argsort(overlap, kind="stable")
    outcomes = _Outcomes(
        met[order],
        np.where(met[:, None], (found[match] - boxes) / sides, 0.0)[order],
        np.where(met, scores[match], 0.0)[order],
        (met & (called[match] != labels))[order],
    )
    alike = _within(overlap, np.searchsorted(names, scenes))
    spurious = np.setdiff1d(np.arange(len(found)), match[met])
    own = [np.flatnonzero(scenes == name) for name in names]
    empty = [spurious[where[spurious] == name] for name in names]
    kinds = np.unique(np.concatenate([labels, called]))
    tie = TIES * (float(scores.std()) or 1.0)

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        drawn = rng.integers(0, len(names), len(names))
        while not sum(len(own[i]) for i in drawn):  # scenes without anything to be found
            drawn = rng.integers(0, len(names), len(names))
        rows = np.concatenate([own[i] for i in drawn])
        scene = np.repeat(np.arange(len(names)), [len(own[i]) for i in drawn])
        common = _difficulty(rng, scene, len(names), alike)
        target = _rows(boxes[rows], names[scene], labels[rows], None)
        sources = []
        for _ in range(models):
            hard = np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * _difficulty(rng, scene, len(names), alike)
            at = np.minimum((ndtr(hard) * len(order)).astype(int), len(order) - 1)
            there = outcomes.found[at]
            others = kinds[(np.searchsorted(kinds, labels[rows]) + 1) % len(kinds)]
            false = [empty[i] for i in rng.integers(0, len(names), len(names))]
            extra = np.concatenate(false).astype(int)
            score = np.concatenate([outcomes.score[at][there], scores[extra]])
            sources.append(
                _rows(
                    np.concatenate([(boxes[rows] + outcomes.apart[at] * sides[rows])[there], found[extra]]),
                    np.concatenate([names[scene][there], np.repeat(names, [len(part) for part in false])]),
                    np.concatenate(
                        [np.where(outcomes.swapped[at], others, labels[rows])[there], called[extra]]
                    ),
                    score + tie * rng.standard_normal(len(score)),
                )
            )
        return Experiment([Measurement(source, target, splits=measured.splits) for source in sources])

    return draw


def _matched(
    boxes: Floats, scenes: Array, found: Floats, where: Array, scores: Floats
) -> tuple[Indices, Floats]:
    """For each true box the box found that meets it, best score first, or −1, and their overlap."""
    match, overlap = np.full(len(boxes), -1), np.zeros(len(boxes))
    for row in np.argsort(-scores, kind="stable"):
        free = np.flatnonzero((scenes == where[row]) & (match < 0))
        shares = box_overlap(found[row], boxes[free])
        if free.size and shares.max() >= TOUCHING:
            best = free[int(np.argmax(shares))]
            match[best], overlap[best] = row, shares.max()
    return match, overlap


def _within(overlap: Floats, scene: Indices) -> float:
    """How alike the boxes of one scene are in how well they are found: the intraclass correlation of normal scores."""
    z = ndtri((rankdata(overlap) - 0.5) / len(overlap))
    groups = [z[scene == s] for s in np.unique(scene)]
    sizes = np.array([len(group) for group in groups])
    if len(groups) < 2 or len(z) <= len(groups):
        return 0.0
    inside = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (len(z) - len(groups))
    means = np.array([group.mean() for group in groups])
    between = float((sizes * (means - z.mean()) ** 2).sum()) / (len(groups) - 1)
    size = (len(z) - (sizes**2).sum() / len(z)) / (len(groups) - 1)
    return float(np.clip((between - inside) / (between + (size - 1) * inside), 0.0, 0.9))


def _difficulty(rng: np.random.Generator, scene: Indices, scenes: int, alike: float) -> Floats:
    """A standard normal number for each box, which those of one scene have in common as far as they are alike."""
    shared = np.sqrt(alike) * rng.standard_normal(scenes)[scene]
    return np.asarray(shared + np.sqrt(1 - alike) * rng.standard_normal(len(scene)))


def _rows(corners: Floats, scenes: Array, labels: Array, scores: Floats | None) -> xr.DataArray:
    coords: dict[str, Any] = {
        "corner": list(BOX),
        "scene": ("presentation", scenes.astype(object)),
        "label": ("presentation", labels.astype(object)),
    }
    if scores is not None:
        coords["score"] = ("presentation", scores)
    return xr.DataArray(corners, dims=("presentation", "corner"), coords=coords)
