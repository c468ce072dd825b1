"""What a network is shown, taken from an assembly batch by batch, so that data larger than memory can be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Singles
from neuroledger.data.memory import WHOLE, LazyRows, Rows
from neuroledger.errors import DataError, ModelError
from neuroledger.spec.channels import Channels

if TYPE_CHECKING:
    from torch import nn

__all__ = ["TAKES", "Examples", "Learner", "Presentations", "Task", "answering", "in_batches", "shown"]

Prepare = Callable[[Singles, float], Array]
"""From (presentation, neuroid, time_bin) and the time bins per second to what the network is shown."""


class Presentations(LazyRows):
    """Some presentations of an assembly as 32-bit numbers (presentation, neuroid, time_bin), each time made anew.

    Integers are divided by the assembly's attribute ``full_scale``, where it has one, and ``prepare`` is applied to what
    is taken.
    """

    def __init__(self, assembly: xr.DataArray, rows: Rows, prepare: Prepare | None = None) -> None:
        super().__init__(np.asarray(assembly.variable.values), rows, np.float32)
        integers = assembly.dtype.kind in "iu"
        self._full_scale = float(assembly.attrs.get("full_scale", 1.0)) if integers else 1.0
        self._rate = _rate(assembly) if prepare is not None else 0.0
        self._prepare = prepare
        if prepare is not None:
            self.shape = (len(rows), *self._taken(np.zeros(1, dtype=np.intp)).shape[1:])

    def _taken(self, rows: Rows) -> Singles:
        taken = super()._taken(rows)
        if self._full_scale != 1.0:
            taken /= np.float32(self._full_scale)
        if self._prepare is not None:
            taken = np.asarray(self._prepare(taken, self._rate), dtype=np.float32)
        return taken


def shown(assembly: xr.DataArray, rows: Rows, prepare: Prepare | None = None) -> Singles | Presentations:
    """Presentations ``rows`` of (presentation, neuroid, time_bin): an array, or more than 256 MiB as a view.

    Raises
    ------
    DataError
        Something is to be prepared, and the time bins are not even.
    """
    found = Presentations(assembly, rows, prepare)
    return np.asarray(found) if found.nbytes <= WHOLE else found


def in_batches(inputs: Singles | Presentations, size: int) -> Iterator[Singles]:
    """Arrays of ``size`` presentations, in order; the last may be smaller."""
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


def _rate(assembly: xr.DataArray) -> float:
    """Time bins per second."""
    starts = np.asarray(assembly["time_bin_start"].values, dtype=np.float64)
    steps = np.diff(starts)
    if len(steps) == 0 or steps.min() <= 0 or steps.max() - steps.min() > 1e-3 * steps.mean():
        raise DataError("time bins are not even: what the model is shown cannot be prepared from them")
    return float(1000.0 / steps.mean())


TAKES: Final = frozenset({"signals", "training"})
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

    inputs: Array | Presentations
    truth: Array
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

    takes = TAKES

    @property
    def gives(self) -> Channels:
        """Answers to its tasks, and what they cost."""
        return answering(*self.tasks)

    def answer(self, question: Any) -> nn.Module:
        """The network made ready on examples, or one that has learned more; see :func:`neuroledger.models.model.fit`.

        Raises
        ------
        ModelError
            It cannot learn further.
        """
        if question.before is None:
            return self.ready(question.training)
        if self.learn is None:
            raise ModelError(f"model {self.id!r} cannot learn further classes: it has no `learn`")
        return self.learn(question.before, question.training)


def answering(*tasks: Task) -> Channels:
    """Channels of a network that is asked for these tasks."""
    return frozenset({"costs", *(f"answers:{task}" for task in tasks)})
