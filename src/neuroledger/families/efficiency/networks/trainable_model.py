"""A learner is anything that can be made ready on labelled examples, or comes trained, and then answers as a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy.typing as npt

from neuroledger.families.efficiency.networks.presentations import Prepare, Presentations

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Examples", "Learner", "Task"]

Task = Literal["classification", "regression", "forecast", "detection", "incremental"]


class Examples(NamedTuple):
    """What a learner may learn from.

    ``inputs`` are (presentation, neuroid, time_bin): an array, or of large data, of data on the disk and of what is
    prepared a view of the same shape, which slices and ``numpy.asarray`` turn into arrays. ``truth`` is (presentation,)
    class numbers, or numbers (presentation, output). For a forecast, ``inputs`` is one series (1, neuroid, time) and
    ``truth`` its next values. For a detection, ``truth`` are boxes (box, 6): the number of their presentation, x1, y1,
    x2, y2, class number.
    ``classes`` are the names of the class numbers, in order.
    """

    inputs: npt.NDArray[Any] | Presentations
    truth: npt.NDArray[Any]
    classes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Learner:
    """A model for inference.

    Attributes
    ----------
    id
        The id under which scores are recorded.
    tasks
        What it can be asked for.
    ready
        Gives a torch module that answers (batch, neuroid, time_bin) with (batch, class) scores or (batch, output)
        numbers; for a detection with (batch, box, 4 + class), corners x1, y1, x2, y2 and a score for each class, 0 or
        less where there is none; for a forecast, one that answers each value (1, neuroid) with the next and remembers
        what it has seen, the training part included. It may look at the examples, or ignore them if it comes trained.
    learn
        For incremental learning: gives a module that has learned more, from the one before and the examples of new
        classes, which stand behind the known ones in ``classes``. The module before is not changed.
    batch
        Presentations shown at once.
    prepare
        What is done to presentations before the network is shown them, such as band energies of a sound, from
        (presentation, neuroid, time_bin) and the time bins per second. Learning is given the same. Costs leave it out.
    """

    id: str
    tasks: tuple[Task, ...]
    ready: Callable[[Examples], nn.Module]
    learn: Callable[[nn.Module, Examples], nn.Module] | None = None
    batch: int = 128
    prepare: Prepare | None = None

    # What every model answers; a learner is not shown stimuli one by one.
    visual_degrees: None = None
    varies_in_time: bool = False
