"""Mean average precision of ranked class scores, or of boxes detected in scenes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Strings, floats
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.efficiency import examples
from neuroledger.families.same_rows import require_same_rows
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["average_precision", "box_overlap", "detection_average_precision"]


RECALLS = np.linspace(0, 1, 101)
THRESHOLDS = tuple(np.round(np.arange(0.5, 1.0, 0.05), 2).tolist())
BOX = ("x1", "y1", "x2", "y2")


@metric("average_precision", version=4, input="predictions")
def average_precision(source: xr.DataArray, target: xr.DataArray) -> Samples:
    r"""Average precision of every class, ``(class,)``: :math:`\sum_k (R_k - R_{k-1}) P_k` down the ranking.

    Presentations with equal scores enter the ranking together. Classes that never occur are left out and noted.

    Parameters
    ----------
    source
        Scores ``(presentation, choice)``.
    target
        True labels ``(presentation,)``, of the same rows.

    Raises
    ------
    MetricError
        ``source`` has no scores by choice, rows do not match, or no class occurs.
    """
    if "choice" not in source.dims:
        raise MetricError(
            "average precision needs scores (presentation, choice), not labels"
        )
    scores = floats(source.transpose("presentation", "choice").values)
    truth = as_text(target.values)
    require_same_rows(source, target)
    if not np.isfinite(scores).all():
        raise MetricError(
            f"{int((~np.isfinite(scores)).sum())} scores are not finite: the model diverged"
        )
    classes = as_text(source["choice"].values)
    present = np.isin(classes, truth)
    if not present.any():
        raise MetricError("none of the choices is ever the truth")
    columns = np.flatnonzero(present)
    values = [_ranked(scores[:, i], truth == classes[i]) for i in columns]

    samples = xr.DataArray(
        np.array(values), dims=("class",), coords={"class": classes[present]}
    )
    missing = int((~present).sum())
    notes = (
        [f"{missing} choices that are never the truth were left out"] if missing else []
    )
    return Samples(samples, limits=(0.0, 1.0), outcome=1 / len(truth), notes=notes)


def _ranked(scores: Floats, right: Booleans) -> float:
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    recall = hits[ends] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * hits[ends] / (ends + 1)))


@metric(
    "detection_average_precision",
    version=5,
    input="predictions",
    example=examples.of_boxes,
)
def detection_average_precision(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    overlaps: Sequence[float] = THRESHOLDS,
) -> Samples:
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

    Raises
    ------
    MetricError
        A coordinate is missing, or there are no true boxes.
    """
    boxes, scenes, labels = _boxes(target, "true boxes")
    found_boxes, found_scenes, found_labels = _boxes(source, "boxes found")
    if "score" not in source.coords:
        raise MetricError("boxes found have no coordinate 'score' to be ranked by")
    scores = floats(source["score"].values)
    if len(boxes) == 0:
        raise MetricError("there are no true boxes to be found")
    classes = np.unique(labels)
    values = np.zeros((len(overlaps), len(classes)))
    names = np.unique(np.concatenate([scenes, found_scenes]))
    hits: dict[tuple[int, int], tuple[Booleans, Strings, Strings]] = {}
    for column, label in enumerate(classes):
        own = np.flatnonzero(labels == label)
        rows = np.flatnonzero(found_labels == label)
        rows = rows[np.argsort(-scores[rows], kind="stable")]
        for row, overlap in enumerate(overlaps):
            right = _match_boxes(
                found_boxes[rows], found_scenes[rows], boxes[own], scenes[own], overlap
            )
            values[row, column] = _at_recalls(right, len(own))
            hits[row, column] = right, found_scenes[rows], scenes[own]

    coords = {"overlap": list(overlaps), "class": classes}
    samples = xr.DataArray(values, dims=("overlap", "class"), coords=coords)

    def without(
        keep: Keep,
    ) -> xr.DataArray:  # matches in a scene do not depend on other scenes
        kept = names[keep["scene"]]
        left = np.full_like(values, np.nan)
        for place, (right, found_in, true_in) in hits.items():
            remaining = int(np.isin(true_in, kept).sum())
            if remaining:
                left[place] = _at_recalls(right[np.isin(found_in, kept)], remaining)
        return samples.copy(data=left)

    variation = Variation({"scene": names}, without)
    return Samples(samples, variation, limits=(0.0, 1.0), outcome=1 / len(boxes))


def box_overlap(box: Floats, others: Floats) -> Floats:
    """Return the intersection over union of one box ``(corner,)`` with others ``(box, corner)``."""
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=1)
    areas = (others[:, 2:] - others[:, :2]).prod(axis=1)
    union = (box[2:] - box[:2]).prod() + areas - shared
    shares: Floats = np.divide(
        shared, union, out=np.zeros_like(shared), where=union > 0
    )
    return shares


def _match_boxes(
    found_boxes: Floats,
    found_scenes: Strings,
    boxes: Floats,
    scenes: Strings,
    overlap: float,
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


def _at_recalls(right: Booleans, truths: int) -> float:
    hits = np.cumsum(right)
    recall = hits / truths
    precision = hits / np.arange(1, len(hits) + 1)
    best_beyond = np.maximum.accumulate(precision[::-1])[::-1]
    places = np.searchsorted(recall, RECALLS, side="left")
    return float(np.mean(np.append(best_beyond, 0.0)[np.minimum(places, len(right))]))


def _boxes(array: xr.DataArray, role: str) -> tuple[Floats, Strings, Strings]:
    missing = [name for name in ("scene", "label") if name not in array.coords]
    if "corner" not in array.dims or array.sizes["corner"] != len(BOX) or missing:
        raise MetricError(
            f"{role} are (presentation, corner) with four corners and coordinates scene and label"
        )
    values = floats(array.transpose("presentation", "corner").values)
    return (
        values,
        np.asarray(array["scene"].values).astype(str),
        np.asarray(array["label"].values).astype(str),
    )
