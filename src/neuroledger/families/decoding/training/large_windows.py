"""Classical decoders on windows that need not fit into memory: their first step block by block, in double precision."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from neuroledger.data.lazy_rows import WHOLE, LazyRows, part_of, row_blocks
from neuroledger.data.memory import empty_array, require_memory
from neuroledger.families.decoding.training.linear_heads import chosen_rows

__all__ = ["Doubles", "features_of", "fit_first"]

Array = npt.NDArray[Any]


class Doubles:
    """A pipeline that computes in double precision, whatever the signals are stored as; `notes_` tell what it gave up.

    Of a view of windows on the disk, the first step makes its features block by block, and the other steps learn from
    those of all windows at once; answers are given block by block. A pipeline of one step sees all windows at once, if
    memory has room. `bytes_each` is what it makes of a window, where that is known beforehand: memory without room for it
    is told before anything is made.
    """

    takes_rows = True

    def __init__(self, pipeline: Any, most: int | None = None, bytes_each: int = 0) -> None:
        self.pipeline, self.most, self.bytes_each = pipeline, most, bytes_each
        for name in ("predict", "predict_proba", "decision_function"):
            if hasattr(pipeline, name) or (name == "predict_proba" and hasattr(pipeline[-1], name)):
                setattr(self, name, self._asked(name))

    def fit(self, x: Array | LazyRows, y: Array) -> Doubles:
        """Learn from at most `most` windows."""
        rows = chosen_rows(np.asarray(y), self.most)
        fewer = len(rows) < len(y)
        if fewer:
            x, y = part_of(x, rows), y[rows]
        if self.bytes_each:
            require_memory(
                len(rows) * self.bytes_each,
                f"what a decoder makes of {len(rows):,} windows of {x.shape[1]:,} channels",
                "take a decoder of amplitudes, fewer windows (`most`) or fewer channels",
            )
        with warnings.catch_warnings():
            ignored = ".*(Convergence|lbfgs|penalty|l1_ratio|legacy|least populated).*"
            warnings.filterwarnings("ignore", message=ignored)
            if self._by_blocks(x):
                first = self.pipeline[0]
                fit_first(first, x, y)
                self.pipeline[1:].fit(features_of(first, x), y)
            else:
                self.pipeline.fit(_in_doubles(x), y)
        self.notes_ = (
            [f"fitted on {len(rows):,} windows, drawn from all of the training part"] if fewer else []
        )
        for _, step in self.pipeline.steps:
            self.notes_ += getattr(step, "notes_", [])
        if hasattr(self.pipeline, "classes_"):
            self.classes_ = self.pipeline.classes_
        return self

    def _by_blocks(self, x: Array | LazyRows) -> TypeGuard[LazyRows]:
        return isinstance(x, LazyRows) and x.nbytes > WHOLE and len(self.pipeline.steps) > 1

    def _asked(self, name: str) -> Callable[[Array | LazyRows], Any]:
        # Of several labels at once, scikit-learn gives a list of probabilities, one item for each.
        def asked(x: Array | LazyRows) -> Any:
            if not self._by_blocks(x):
                found = getattr(self.pipeline, name)(_in_doubles(x))
                return found if isinstance(found, list) else np.asarray(found)
            parts = [getattr(self.pipeline, name)(block) for _, block in _blocks(x)]
            if isinstance(parts[0], list):
                return [np.concatenate(label) for label in zip(*parts, strict=True)]
            return np.concatenate(parts)

        return asked


def _in_doubles(x: Array | LazyRows) -> Array:
    return np.asarray(x, dtype=np.float64) if isinstance(x, LazyRows) else x.astype(np.float64)


def fit_first(step: Any, x: Array | LazyRows, y: Array) -> Any:
    """The fitted step: one that looks at each window by itself, or Xdawn, which needs means and one covariance of all.

    Xdawn's filters follow from the mean window of each class and the covariance of all samples [rivet2009]; of a view both
    are added up over its blocks and handed to pyriemann, the means as classes of one window each.
    """
    from pyriemann.estimation import XdawnCovariances

    if not isinstance(x, LazyRows) or getattr(step, "takes_rows", False):
        return step.fit(x, y)
    if not isinstance(step, XdawnCovariances):
        return step.fit(x[:1].astype(np.float64), y[:1])
    classes = np.unique(y) if step.classes is None else np.asarray(step.classes)
    means = np.stack([_mean(x.part(np.flatnonzero(y == name))) for name in classes])
    step.set_params(baseline_cov=_covariance(x))
    return step.fit(means, classes)


def features_of(step: Any, x: LazyRows) -> Array:
    """What the step makes of the windows, (window, …), without holding more than a block of them.

    Raises
    ------
    RequestError
        Memory has no room for what it makes.
    """
    found = np.empty(0)
    for rows, block in _blocks(x):
        made = np.asarray(step.transform(block))
        if rows.start == 0:
            what = f"what a decoder makes of {len(x):,} windows"
            change = "learn from fewer windows (`most`), fewer channels or a shorter window"
            found = empty_array((len(x), *made.shape[1:]), made.dtype, what, change)
        found[rows] = made
    return found


def _blocks(x: LazyRows) -> Iterator[tuple[slice, Array]]:
    for rows in row_blocks(x):
        yield rows, x[rows].astype(np.float64)


def _mean(x: LazyRows) -> Array:
    """(channel, sample) mean of the windows."""
    return np.asarray(sum(block.sum(axis=0) for _, block in _blocks(x)) / len(x))


def _covariance(x: LazyRows) -> Array:
    """(channel, channel) covariance of all samples of all windows, divided by their number."""
    centre = _mean(x).mean(axis=1)[:, None]
    total = np.zeros((x.shape[1], x.shape[1]))
    for _, block in _blocks(x):
        samples = (block - centre).transpose(1, 0, 2).reshape(x.shape[1], -1)
        total += samples @ samples.T
    return total / (x.shape[0] * x.shape[2])
