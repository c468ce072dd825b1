"""Boxes around objects in the stream of an event camera, in the structured arrays of Prophesee's automotive sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.errors import DataError

__all__ = ["BoxRules", "boxes_by_frame", "read_boxes"]

Array = npt.NDArray[Any]

# Older files say `ts` and `confidence`.
FIELDS = ("t", "x", "y", "w", "h", "class_id", "track_id")
RENAMED = {"ts": "t", "confidence": "class_confidence"}
AUTOMOTIVE = ("pedestrian", "two wheeler", "car", "truck", "bus", "traffic sign", "traffic light")
# Thinner than this, a box that is cut off by the edge of the picture shows nothing.
THIN = 2.0


class BoxRules(BaseModel):
    """Which boxes count, in pixels of the stored frames.

    Attributes
    ----------
    labels
        Names of the classes, in the order of their numbers from 0.
    classes
        The classes that are asked for.
    skip
        Boxes in the first so many ms are left out: the camera has not seen enough yet.
    diagonal, side
        The least diagonal, and the least width and height.
    widest
        The greatest width, as a share of the frame's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: tuple[str, ...] = AUTOMOTIVE
    classes: tuple[str, ...] = ("pedestrian", "two wheeler", "car")
    skip: Annotated[float, Field(ge=0)] = 500.0
    diagonal: Annotated[float, Field(ge=0)] = 60.0
    side: Annotated[float, Field(ge=0)] = 20.0
    widest: Annotated[float, Field(gt=0, le=1)] = 0.8


def read_boxes(path: Path, rules: BoxRules) -> Array:
    """The boxes of a recording in time, with the fields t (µs), x, y, w, h (pixels of the camera), class_id and track_id.

    Raises
    ------
    DataError
        The file is no such array, or a class number has no name.
    """
    try:
        stored = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(
            f"{path.name} cannot be read as an array of boxes ({error}); fetch it again"
        ) from error
    names = {RENAMED.get(name, name): name for name in stored.dtype.names or ()}
    missing = [field for field in FIELDS if field not in names]
    if missing or stored.ndim != 1:
        raise DataError(
            f"{path.name} holds {stored.dtype.names or stored.dtype} of shape {stored.shape}, not boxes: "
            f"no {', '.join(missing) or 'single row of them'}"
        )
    boxes = np.zeros(
        len(stored), dtype=[(field, "i8" if field in "t class_id track_id" else "f8") for field in FIELDS]
    )
    for field in FIELDS:
        boxes[field] = stored[names[field]]
    if not all(np.isfinite(boxes[field]).all() for field in "xywh"):
        raise DataError(f"{path.name} has boxes whose place is no number")
    unknown = set(np.unique(boxes["class_id"]).tolist()) - set(range(len(rules.labels)))
    if unknown:
        raise DataError(
            f"{path.name} has boxes of class {min(unknown)}; classes are 0 to {len(rules.labels) - 1}"
        )
    return boxes[np.argsort(boxes["t"], kind="stable")]


def boxes_by_frame(
    boxes: Array,
    rules: BoxRules,
    *,
    frame_us: int,
    camera: Sequence[int],
    frame: Sequence[int],
    pool: int,
) -> Mapping[int, str]:
    """For every frame that anybody labelled, the boxes that count as JSON, ``[[label, x1, y1, x2, y2], …]``.

    Frame k holds the boxes with k · frame_us < t ≤ (k + 1) · frame_us, of each track the last one. Boxes are cut off at the
    edges of the ``camera`` (width, height), brought to the pixels of the ``frame`` (width, height), judged by the rules, and
    given in squares of ``pool`` pixels.
    """
    number = np.maximum(boxes["t"] - 1, 0) // frame_us
    late = number >= -(-rules.skip * 1000 // frame_us)
    boxes, number = boxes[late], number[late].astype(np.int64)
    # In time: of equal frames and tracks the last one is found first from behind.
    key = number * (int(boxes["track_id"].max(initial=0)) + 1) + boxes["track_id"]
    _, last = np.unique(key[::-1], return_index=True)
    rows = np.sort(len(key) - 1 - last)
    held: dict[int, list[list[Any]]] = {int(k): [] for k in np.unique(number)}
    scale = np.array([frame[0] / camera[0], frame[1] / camera[1]])
    low = np.stack([boxes["x"], boxes["y"]], axis=1)
    high = low + np.stack([boxes["w"], boxes["h"]], axis=1)
    low, high = (np.clip(corner, 0, np.asarray(camera, dtype=np.float64)) for corner in (low, high))
    seen = ((high - low) > THIN).all(axis=1)
    low, high = low * scale, high * scale
    size = high - low
    wanted = [rules.labels.index(name) for name in rules.classes]
    kept = (
        seen
        & np.isin(boxes["class_id"], wanted)
        & (np.square(size).sum(axis=1) >= rules.diagonal**2)
        & (size >= rules.side).all(axis=1)
        & (size[:, 0] <= rules.widest * frame[0])
    )
    corners = np.round(np.concatenate([low, high], axis=1) / pool, 3)
    for row in rows[kept[rows]]:
        held[int(number[row])].append([rules.labels[boxes["class_id"][row]], *corners[row].tolist()])
    return {k: json.dumps(found) for k, found in held.items()}
