"""Trainable models and their inputs, read from an assembly batch by batch, so that data may be larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Singles, floats
from neuroledger.data.memory import WHOLE, LazyRows, Rows
from neuroledger.errors import DataError, ModelError
from neuroledger.models.model import Fit
from neuroledger.spec.channels import Channels

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "TAKES",
    "Examples",
    "Learner",
    "Presentations",
    "Task",
    "answering",
    "in_batches",
    "select_presentations",
]

Prepare = Callable[[Singles, float], Array]
"""From (presentation, neuroid, time_bin) and the time bins per second to the input of the network."""


class Presentations(LazyRows):
    """Presentations of an assembly as 32-bit numbers (presentation, neuroid, time_bin), computed at each access.

    Integers are divided by the assembly's attribute ``full_scale``, if it has one, and ``prepare`` is applied to the
    selected presentations.
    """

    def __init__(
        self, assembly: xr.DataArray, rows: Rows, prepare: Prepare | None = None
    ) -> None:
        super().__init__(
            np.asarray(assembly.variable.values), rows, np.float32, self._convert
        )
        integers = assembly.dtype.kind in "iu"
        self._full_scale = (
            float(assembly.attrs.get("full_scale", 1.0)) if integers else 1.0
        )
        if prepare is not None:
            self._rate = _bins_per_second(assembly)
        else:
            self._rate = 0.0
        self._prepare = prepare
        if prepare is not None:
            first = np.array(self._values[:1], dtype=np.float32)
            self.shape = (
                len(rows),
                *self._convert(first, np.zeros(1, dtype=np.intp)).shape[1:],
            )

    def _convert(self, values: Singles, rows: Rows) -> Singles:
        if self._full_scale != 1.0:
            values /= np.float32(self._full_scale)
        if self._prepare is not None:
            values = np.asarray(self._prepare(values, self._rate), dtype=np.float32)
        return values


def select_presentations(
    assembly: xr.DataArray, rows: Rows, prepare: Prepare | None = None
) -> Singles | Presentations:
    """Return presentations ``rows`` of (presentation, neuroid, time_bin): an array, or a view if larger than 256 MiB.

    Raises
    ------
    DataError
        ``prepare`` is given and the time bins are not evenly spaced.
    """
    presentations = Presentations(assembly, rows, prepare)
    if presentations.nbytes <= WHOLE:
        return np.asarray(presentations)
    return presentations


def in_batches(inputs: Singles | Presentations, size: int) -> Iterator[Singles]:
    """Yield arrays of ``size`` presentations, in order; the last may be smaller."""
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


def _bins_per_second(assembly: xr.DataArray) -> float:
    """Return the number of time bins per second."""
    starts = floats(assembly["time_bin_start"].values)
    steps = np.diff(starts)
    if (
        len(steps) == 0
        or steps.min() <= 0
        or steps.max() - steps.min() > 1e-3 * steps.mean()
    ):
        raise DataError(
            "time bins are not evenly spaced, which the preparation of the model's input needs"
        )
    return float(1000.0 / steps.mean())


TAKES: Final = frozenset({"signals", "training"})
Task = Literal["classification", "regression", "forecast", "detection", "incremental"]


class Examples(NamedTuple):
    """Training examples of a learner.

    ``inputs`` are (presentation, neuroid, time_bin): an array, or a view of the same shape if the data are larger than 256
    MiB; slices and ``numpy.asarray`` convert a view to arrays. ``truth`` is (presentation,) class numbers, or numbers
    (presentation, output). For a forecast, ``inputs`` is one series (1, neuroid, time) and ``truth`` its next values. For
    a detection, ``truth`` are boxes (box, 6): presentation number, x1, y1, x2, y2, class number.
    ``classes`` are the names of the classes, in order of their numbers.
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
        The tasks that the model supports.
    ready
        Returns a torch module, trained on the examples or with stored weights. The module maps (batch, neuroid, time_bin)
        to (batch, class) scores or (batch, output) numbers. For a detection it returns (batch, box, 4 + class): corners
        x1, y1, x2, y2 and a score for each class, 0 or less if there is no box. For a forecast it maps each value
        (1, neuroid) to the next, and its state includes all earlier values, also those of the training part.
    learn
        For incremental learning: returns a new module that also knows further classes, from the previous module, which is
        not changed, and examples of the new classes, which follow the known ones in ``classes``.
    batch
        Number of presentations in a batch.
    prepare
        Preprocessing of presentations for the network, such as band energies of a sound, from (presentation, neuroid,
        time_bin) and the time bins per second. It is applied in training and testing. Costs exclude it.
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
        """Channels of the model: answers to its tasks, and costs."""
        return answering(*self.tasks)

    def answer(self, question: Fit) -> nn.Module:
        """Return the network, trained on examples, or after further learning; see :func:`neuroledger.models.model.fit`.

        Raises
        ------
        ModelError
            The model cannot learn further classes.
        """
        if question.before is None:
            return self.ready(question.training)
        if self.learn is None:
            raise ModelError(
                f"model {self.id!r} cannot learn further classes: it has no `learn`"
            )
        return self.learn(question.before, question.training)


def answering(*tasks: Task) -> Channels:
    """Return the channels of a network that supports these tasks."""
    return frozenset({"costs", *(f"answers:{task}" for task in tasks)})
