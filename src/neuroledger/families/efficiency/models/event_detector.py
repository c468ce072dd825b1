"""A detector for frames of an event camera: templates of the mean boxes, moved over the events of all channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models.shape_detector import mean_sizes
from neuroledger.families.efficiency.networks.trainable_model import Examples, Learner
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["event_detector"]

Positive = Annotated[int, Field(gt=0, le=4096)]


@builder("event_detector", version=1)
def event_detector(
    *,
    id: str,
    columns: Positive,
    rows: Positive,
    channels: Positive = 2,
    threshold: Annotated[float, Field(gt=0)] = 0.02,
    most: Positive = 16,
    device: str = "cpu",
) -> Learner:
    """Where there are more events inside of a box of the mean size of a class than around it, there is one.

    Frames are averaged over channels and time; from there on it is the ``shape_detector``.

    Parameters
    ----------
    columns, rows, channels
        The shape of a frame, whose values are the neuroids: channel by channel, row by row.
    threshold
        The least contrast of inside and outside, as a share of the most events that are told apart.
    most
        No more than so many boxes in a frame.

    Raises
    ------
    ModelError
        Frames have another shape, or no box of a class is in the training part.
    """
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        from neuroledger.families.efficiency.networks.templates import Templates

        if examples.inputs.shape[1] != channels * rows * columns:
            raise ModelError(
                f"model {id!r} takes frames of {channels} x {rows} x {columns} values, "
                f"the data have {examples.inputs.shape[1]}"
            )
        sizes = mean_sizes(examples, id)
        return Templates(columns, sizes, threshold, most, rows=rows, channels=channels).to(device)

    return Learner(id=id, tasks=("detection",), ready=ready)
