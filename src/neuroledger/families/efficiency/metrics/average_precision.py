"""Mean average precision of ranked class scores, or of boxes detected in scenes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.rare_outcomes import ADDED, shared, unseen
from neuroledger.families.same_rows import require_same_rows
from neuroledger.spec.registry import metric
from neuroledger.stats.resampling import Cells
from neuroledger.stats.spread import from_left_out

__all__ = ["average_precision", "box_overlap", "detection_average_precision"]


RECALLS = np.linspace(0, 1, 101)
THRESHOLDS = tuple(np.round(np.arange(0.5, 1.0, 0.05), 2).tolist())
BOX = ("x1", "y1", "x2", "y2")


@metric("average_precision", version=4, input="predictions")
def average_precision(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    r"""Average precision of every class, ``(class,)``: :math:`\sum_k (R_k - R_{k-1}) P_k` down the ranking.

    Presentations with equal scores enter the ranking together. Classes that never occur are left out and noted.

    Parameters
    ----------
    source
        Scores ``(presentation, choice)``.
    target
        True labels ``(presentation,)``, of the same rows.

    Returns
    -------
    xr.DataArray
        ``attrs["cells"]``: the influence of each presentation on each value, from the value without it. If every ranking is
        perfect, the values vary as a proportion without a miss, see :func:`~neuroledger.families.rare_outcomes.unseen`.

    Raises
    ------
    MetricError
        ``source`` has no scores by choice, rows do not match, or no class occurs.
    """
    if "choice" not in source.dims:
        raise MetricError("average precision needs scores (presentation, choice), not labels")
    scores = np.asarray(source.transpose("presentation", "choice").values, dtype=np.float64)
    truth = as_text(target.values)
    require_same_rows(source, target)
    if not np.isfinite(scores).all():
        raise MetricError(f"{int((~np.isfinite(scores)).sum())} scores are not finite: the model diverged")
    classes = as_text(source["choice"].values)
    present = np.isin(classes, truth)
    if not present.any():
        raise MetricError("none of the choices is ever the truth")
    columns = np.flatnonzero(present)
    values = [_ranked(scores[:, i], truth == classes[i]) for i in columns]

    def cells() -> Cells:
        left_out = np.stack(
            [_ranked_without_each(scores[:, i], truth == classes[i]) for i in columns], axis=1
        )
        moves, rows = from_left_out(left_out), np.arange(len(truth))
        if min(values) == 1:
            # Deviations are taken from their mean, so equal ones would vanish.
            signs = np.sign(rows % 2 - 0.5)
            moves += (signs * unseen(np.ones(len(truth)), rows, len(truth)))[:, None]
        ids = target["stimulus_id"].values if "stimulus_id" in target.coords else rows
        return Cells(np.asarray(ids), [(rows, moves)])

    samples = xr.DataArray(np.array(values), dims=("class",), coords={"class": classes[present]})
    samples.attrs |= {"cells": cells, "limits": (0.0, 1.0), "skewed": True}
    if not present.all():
        samples.attrs["notes"] = [f"{int((~present).sum())} choices that are never the truth were left out"]
    return samples


def _ranked(scores: Floats, right: Booleans) -> float:
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    recall = hits[ends] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * hits[ends] / (ends + 1)))


def _ranked_without_each(scores: Floats, right: Booleans) -> Floats:
    """Average precision with each presentation left out in turn, from sums over the ranking; NaN without any positive."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order]).astype(np.float64)
    starts = np.append(True, np.diff(scores[order]) != 0)
    group, ends = np.cumsum(starts) - 1, np.flatnonzero(np.append(starts[1:], True))
    group_hits, group_rank = hits[ends], ends + 1.0
    own = np.diff(group_hits, prepend=0.0)
    earlier = np.append(0.0, np.cumsum(own * group_hits / group_rank))[:-1]
    fewer = np.maximum(group_rank - 1, 1)  # a rank of 1 belongs to a group that is left out entirely
    later, share = (
        np.append(np.cumsum(terms[::-1])[::-1], 0.0)[1:] for terms in (own * group_hits / fewer, own / fewer)
    )
    y = right[order].astype(np.float64)
    current = (own[group] - y) * (group_hits[group] - y) / fewer[group]
    with np.errstate(invalid="ignore", divide="ignore"):
        left_out = (earlier[group] + current + later[group] - y * share[group]) / (hits[-1] - y)
    values = np.empty(len(order))
    values[order] = np.where(hits[-1] > y, left_out, np.nan)
    return values


@metric("detection_average_precision", version=5, input="predictions")
def detection_average_precision(
    source: xr.DataArray, target: xr.DataArray, *, overlaps: Sequence[float] = THRESHOLDS
) -> xr.DataArray:
    """Average precision of boxes, ``(overlap, class)``, as COCO defines it: at 101 recalls, by overlap threshold.

    Boxes are matched in descending order of score. A box is correct if it overlaps an unmatched true box of its class
    and scene by at least the threshold; the true box with the best overlap is taken. Precision at a recall is the best
    precision at that recall or a higher one.

    Parameters
    ----------
    source
        Detected boxes, ``(presentation, corner)`` with corners x1, y1, x2, y2 and the coordinates ``scene``, ``label``
        and ``score`` on presentation.
    target
        True boxes, the same without ``score``.

    Returns
    -------
    xr.DataArray
        ``attrs["cells"]``: the influence of each scene on each value, from the value without that scene. If no true box
        is missed at an overlap, the influences do not reflect the misses that other scenes would have. In that case, the
        detection rate varies as it would with two more detected and two more missed boxes, after Agresti and Coull (1998);
        the mean over overlaps and classes needs fewer, see :func:`~neuroledger.families.rare_outcomes.shared`.

    Raises
    ------
    MetricError
        A coordinate is missing, or there are no true boxes.
    """
    boxes, scenes, labels = _boxes(target, "true boxes")
    found_boxes, found_scenes, found_labels = _boxes(source, "boxes found")
    if "score" not in source.coords:
        raise MetricError("boxes found have no coordinate 'score' to be ranked by")
    scores = np.asarray(source["score"].values, dtype=np.float64)
    if len(boxes) == 0:
        raise MetricError("there are no true boxes to be found")
    classes = np.unique(labels)
    values, matched = np.zeros((2, len(overlaps), len(classes)))
    names = np.unique(np.concatenate([scenes, found_scenes]))
    hits: dict[tuple[int, int], tuple[Booleans, Strings, Strings]] = {}
    for column, label in enumerate(classes):
        own, rows = np.flatnonzero(labels == label), np.flatnonzero(found_labels == label)
        rows = rows[np.argsort(-scores[rows], kind="stable")]
        for row, overlap in enumerate(overlaps):
            right = _match_boxes(found_boxes[rows], found_scenes[rows], boxes[own], scenes[own], overlap)
            values[row, column], matched[row, column] = _at_recalls(right, len(own)), right.sum()
            hits[row, column] = right, found_scenes[rows], scenes[own]

    def cells() -> Cells:  # matches in a scene do not depend on other scenes
        left_out = np.repeat(values[None], len(names), axis=0)
        for (row, column), (right, found_in, true_in) in hits.items():
            for at in np.searchsorted(names, np.unique(np.concatenate([found_in, true_in]))):
                remaining = len(true_in) - int((true_in == names[at]).sum())
                left_out[at, row, column] = (
                    _at_recalls(right[found_in != names[at]], remaining) if remaining else np.nan
                )
        moves = from_left_out(left_out)
        moves += _of_misses(moves, values, np.flatnonzero(matched.sum(axis=1) == len(boxes)))
        return Cells(names, [(np.arange(len(names)), moves)])

    def _of_misses(moves: Floats, values: Floats, complete: Indices) -> Floats:
        """Deviations (scene, overlap, class) that scenes add where no true box is missed."""
        class_codes, scene_codes = np.searchsorted(classes, labels), np.searchsorted(names, scenes)

        def with_misses(added: float) -> Floats:
            part = np.zeros_like(moves)
            rare = _deviations_of_misses(class_codes, scene_codes, len(names), added)
            part[:, complete] = values[complete] * rare[:, None]
            return part

        # The mean over overlaps varies with the misses of single overlaps and with the boxes at all others.
        parts = [(part.mean(axis=(1, 2)) ** 2).sum() for part in (moves, with_misses(ADDED))]
        return with_misses(shared(np.array(parts)))

    coords = {"overlap": list(overlaps), "class": classes}
    attrs = {"cells": cells, "limits": (0.0, 1.0), "skewed": True}
    return xr.DataArray(values, dims=("overlap", "class"), coords=coords, attrs=attrs)


def box_overlap(box: Floats, others: Floats) -> Floats:
    """Return the intersection over union of one box ``(corner,)`` with others ``(box, corner)``."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=1)
    union = (box[2:] - box[:2]).prod() + areas - shared
    shares: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return shares


def _match_boxes(
    found_boxes: Floats, found_scenes: Strings, boxes: Floats, scenes: Strings, overlap: float
) -> Booleans:
    """Return whether each detected box, best score first, matches a true box of its scene that was not matched before."""
    unmatched = np.ones(len(boxes), dtype=bool)
    right = np.zeros(len(found_boxes), dtype=bool)
    for number, box in enumerate(found_boxes):
        candidates = np.flatnonzero(unmatched & (scenes == found_scenes[number]))
        if candidates.size:
            shares = box_overlap(box, boxes[candidates])
            best = int(np.argmax(shares))
            if shares[best] >= overlap:
                right[number], unmatched[candidates[best]] = True, False
    return right


def _deviations_of_misses(classes: Indices, scenes: Indices, count: int, added: float) -> Floats:
    """Return the deviations (scene, class) that scenes add to each class's recall where no box is missed.

    Signs are drawn with a fixed seed, hence equal for all models, so that deviations of classes are independent.
    """
    boxes = np.zeros((count, int(classes.max()) + 1))
    np.add.at(boxes, (scenes, classes), 1.0)
    total = len(scenes)
    rate = (total + added) / (total + 2 * added)
    error = np.sqrt(rate * (1 - rate) * total / (total + 2 * added) / boxes.sum(axis=0))
    signs = np.random.default_rng(0).choice((-1.0, 1.0), boxes.shape)
    return np.asarray(signs * boxes * error / np.sqrt((boxes**2).sum(axis=0)))


def _at_recalls(right: Booleans, truths: int) -> float:
    hits = np.cumsum(right)
    recall, precision = hits / truths, hits / np.arange(1, len(hits) + 1)
    best_beyond = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, RECALLS, side="left")
    return float(np.mean(np.append(best_beyond, 0.0)[np.minimum(places, len(right))]))


def _boxes(array: xr.DataArray, role: str) -> tuple[Floats, Strings, Strings]:
    missing = [name for name in ("scene", "label") if name not in array.coords]
    if "corner" not in array.dims or array.sizes["corner"] != len(BOX) or missing:
        raise MetricError(
            f"{role} are (presentation, corner) with four corners and coordinates scene and label"
        )
    values = np.asarray(array.transpose("presentation", "corner").values, dtype=np.float64)
    return (
        values,
        np.asarray(array["scene"].values).astype(str),
        np.asarray(array["label"].values).astype(str),
    )
