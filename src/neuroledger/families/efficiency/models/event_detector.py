"""Detectors of bright rectangles: templates are moved over a scene, and each peak of their responses is a box."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveFloat

from neuroledger.data.arrays import floats
from neuroledger.errors import ModelError
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    answering,
)
from neuroledger.models.devices import available
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["event_detector", "shape_detector"]

Positive = Annotated[int, Field(gt=0, le=4096)]


@builder("shape_detector", version=1, takes=TAKES, gives=answering("detection"))
def shape_detector(
    *,
    id: str,
    side: Positive,
    threshold: PositiveFloat = 40.0,
    most: Positive = 8,
    device: str = "cpu",
) -> Learner:
    """Templates with a bright centre and a dark border, of the mean size of each class's boxes in the training part.

    A template's response is the contrast of its centre with a border of two pixels. A box is detected where the response
    exceeds ``threshold`` and all responses around it, of any class; its score is the contrast.

    Parameters
    ----------
    side
        Width and height of a scene, whose pixels are the neuroids, row by row.
    most
        Maximum number of boxes in a scene.
    """
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        from neuroledger.families.efficiency.networks.layers import Templates

        return Templates(side, mean_sizes(examples, id), threshold, most).to(
            available(device)
        )

    return Learner(id=id, tasks=("detection",), ready=ready)


def mean_sizes(examples: Examples, id: str) -> list[tuple[int, int]]:
    """Return mean width and height of each class's boxes in the training part, in whole pixels.

    Raises
    ------
    ModelError
        A class has no box in the training part.
    """
    boxes = floats(examples.truth)
    sizes = []
    for number, name in enumerate(examples.classes):
        own = boxes[boxes[:, 5] == number]
        if not len(own):
            raise ModelError(
                f"model {id!r}: the training part has no box of class {name!r}"
            )
        width = (own[:, 3] - own[:, 1]).mean()
        height = (own[:, 4] - own[:, 2]).mean()
        sizes.append((max(1, round(float(width))), max(1, round(float(height)))))
    return sizes


@builder("event_detector", version=1, takes=TAKES, gives=answering("detection"))
def event_detector(
    *,
    id: str,
    columns: Positive,
    rows: Positive,
    channels: Positive = 2,
    threshold: PositiveFloat = 0.02,
    most: Positive = 16,
    device: str = "cpu",
) -> Learner:
    """Detects a box of the mean size of a class where there are more events inside than around it.

    Frames are averaged over channels and time, and passed to the ``shape_detector``.

    Parameters
    ----------
    columns, rows, channels
        The shape of a frame, whose values are the neuroids: channel by channel, row by row.
    threshold
        Minimum contrast of inside and outside, as a share of the largest number of events that is distinguished.
    most
        Maximum number of boxes in a frame.

    Raises
    ------
    ModelError
        Frames have another shape, or the training part has no box of a class.
    """
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        from neuroledger.families.efficiency.networks.layers import Templates

        if examples.inputs.shape[1] != channels * rows * columns:
            raise ModelError(
                f"model {id!r} takes frames of {channels} x {rows} x {columns} values, "
                f"but the data have {examples.inputs.shape[1]}"
            )
        sizes = mean_sizes(examples, id)
        return Templates(
            columns, sizes, threshold, most, rows=rows, channels=channels
        ).to(available(device))

    return Learner(id=id, tasks=("detection",), ready=ready)
