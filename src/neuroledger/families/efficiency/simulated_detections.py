"""Simulated detection experiments: new scenes, in which boxes are detected as well as in the measured ones."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import xarray as xr
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from neuroledger.data.arrays import Array, Floats, Indices, floats
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.efficiency.metrics.average_precision import BOX, box_overlap
from neuroledger.families.simulated_predictions import simulated_predictions
from neuroledger.stats.calibration import Experiment

__all__ = ["simulated_answers"]

Draw = Callable[[np.random.Generator, int], Experiment[Measurement]]
# The minimum overlap of a detected box with a true one, and the minimum share of true boxes that a model must detect.
TOUCHING, FEWEST = 0.5, 0.1
# The share of the variance of difficulty that models have in common.
SHARED = 0.5
# Ties are broken by noise of this share of the scores' deviation.
TIES = 1e-3


class _Outcomes(NamedTuple):
    """The outcome of each true box, worst first: displacement of the detected box in units of the true sides, and score.

    ``detected`` is false for missed boxes; ``swapped`` is true if the detected box had another label.
    """

    detected: Array
    offset: Floats
    score: Floats
    swapped: Array


def simulated_answers(measured: Measurement, factors: Collection[str]) -> Draw:
    """Return a function that draws experiments like a network's answers: boxes, or see :func:`simulated_predictions`.

    Simulated scenes have the true boxes of measured scenes. The outcome of a box follows its difficulty: models share half
    of its variance, and its correlation within scenes is the measured one. False detections are resampled by scene.

    Raises
    ------
    MetricError
        Hardly any true box is detected, or the predictions are of another kind.
    """
    if "corner" not in measured.target.dims:
        return simulated_predictions(measured, factors)
    truth, predictions = (
        array.transpose("presentation", "corner")
        for array in (measured.target, measured.source)
    )
    scenes, found_scenes = (
        np.asarray(array["scene"].values).astype(str) for array in (truth, predictions)
    )
    names = np.unique(np.concatenate([scenes, found_scenes]))
    boxes, found_boxes = (floats(array.values) for array in (truth, predictions))
    labels, found_labels = (
        np.asarray(array["label"].values).astype(str) for array in (truth, predictions)
    )
    scores = floats(predictions["score"].values)
    match, overlap = _match_boxes(boxes, scenes, found_boxes, found_scenes, scores)
    matched = match >= 0
    if matched.mean() < FEWEST:
        raise MetricError(
            f"no generative model is fitted: {int(matched.sum())} of {len(matched)} true boxes are found at "
            f"an overlap of {TOUCHING}"
        )
    sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
    order = np.argsort(overlap, kind="stable")
    outcomes = _Outcomes(
        matched[order],
        np.where(matched[:, None], (found_boxes[match] - boxes) / sides, 0.0)[order],
        np.where(matched, scores[match], 0.0)[order],
        (matched & (found_labels[match] != labels))[order],
    )
    alike = _within(overlap, np.searchsorted(names, scenes))
    spurious = np.setdiff1d(np.arange(len(found_boxes)), match[matched])
    box_rows = [np.flatnonzero(scenes == name) for name in names]
    empty = [spurious[found_scenes[spurious] == name] for name in names]
    kinds = np.unique(np.concatenate([labels, found_labels]))
    tie = TIES * (float(scores.std()) or 1.0)

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        drawn = rng.integers(0, len(names), len(names))
        while not sum(
            len(box_rows[i]) for i in drawn
        ):  # none of the scenes has a true box
            drawn = rng.integers(0, len(names), len(names))
        rows = np.concatenate([box_rows[i] for i in drawn])
        scene = np.repeat(np.arange(len(names)), [len(box_rows[i]) for i in drawn])
        common = _difficulty(rng, scene, len(names), alike)
        target = _rows(boxes[rows], names[scene], labels[rows], None)
        sources = []
        for _ in range(models):
            difficulty = np.sqrt(SHARED) * common + np.sqrt(1 - SHARED) * _difficulty(
                rng, scene, len(names), alike
            )
            at = np.minimum((ndtr(difficulty) * len(order)).astype(int), len(order) - 1)
            detected = outcomes.detected[at]
            others = kinds[(np.searchsorted(kinds, labels[rows]) + 1) % len(kinds)]
            spurious_rows = [empty[i] for i in rng.integers(0, len(names), len(names))]
            extra = np.concatenate(spurious_rows).astype(int)
            score = np.concatenate([outcomes.score[at][detected], scores[extra]])
            sources.append(
                _rows(
                    np.concatenate(
                        [
                            (boxes[rows] + outcomes.offset[at] * sides[rows])[detected],
                            found_boxes[extra],
                        ]
                    ),
                    np.concatenate(
                        [
                            names[scene][detected],
                            np.repeat(names, list(map(len, spurious_rows))),
                        ]
                    ),
                    np.concatenate(
                        [
                            np.where(outcomes.swapped[at], others, labels[rows])[
                                detected
                            ],
                            found_labels[extra],
                        ]
                    ),
                    score + tie * rng.standard_normal(len(score)),
                )
            )
        return Experiment(
            [Measurement(source, target, splits=measured.splits) for source in sources]
        )

    return draw


def _match_boxes(
    boxes: Floats,
    scenes: Array,
    found_boxes: Floats,
    found_scenes: Array,
    scores: Floats,
) -> tuple[Indices, Floats]:
    """Return for each true box the index of the detected box that matches it (best score first; or −1), and the overlap."""
    match = np.full(len(boxes), -1)
    overlap = np.zeros(len(boxes))
    for row in np.argsort(-scores, kind="stable"):
        free = np.flatnonzero((scenes == found_scenes[row]) & (match < 0))
        shares = box_overlap(found_boxes[row], boxes[free])
        if free.size and shares.max() >= TOUCHING:
            best = free[int(np.argmax(shares))]
            match[best] = row
            overlap[best] = shares.max()
    return match, overlap


def _within(overlap: Floats, scene: Indices) -> float:
    """Return the intraclass correlation, within scenes, of the normal scores of overlaps."""
    z = ndtri((rankdata(overlap) - 0.5) / len(overlap))
    groups = [z[scene == s] for s in np.unique(scene)]
    sizes = np.array(list(map(len, groups)))
    if len(groups) < 2 or len(z) <= len(groups):
        return 0.0
    inside = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (
        len(z) - len(groups)
    )
    means = np.array([group.mean() for group in groups])
    between = float((sizes * (means - z.mean()) ** 2).sum()) / (len(groups) - 1)
    size = (len(z) - (sizes**2).sum() / len(z)) / (len(groups) - 1)
    return float(
        np.clip((between - inside) / (between + (size - 1) * inside), 0.0, 0.9)
    )


def _difficulty(
    rng: np.random.Generator, scene: Indices, scenes: int, alike: float
) -> Floats:
    """Draw a standard normal number for each box, with correlation ``alike`` within scenes."""
    shared = np.sqrt(alike) * rng.standard_normal(scenes)[scene]
    return np.asarray(shared + np.sqrt(1 - alike) * rng.standard_normal(len(scene)))


def _rows(
    corners: Floats, scenes: Array, labels: Array, scores: Floats | None
) -> xr.DataArray:
    coords: dict[str, object] = {
        "corner": list(BOX),
        "scene": ("presentation", scenes.astype(object)),
        "label": ("presentation", labels.astype(object)),
    }
    if scores is not None:
        coords["score"] = ("presentation", scores)
    return xr.DataArray(corners, dims=("presentation", "corner"), coords=coords)
