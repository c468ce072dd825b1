"""How classical decoders are fitted: copies for several labels, choice of windows, windows that do not fit into memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import numpy as np

from neuroledger.data.arrays import Array, Integers
from neuroledger.data.memory import WHOLE, LazyRows, empty_array, part_of, require_memory, row_blocks
from neuroledger.errors import ModelError
from neuroledger.families.decoding.protocols.decoder import Signature

__all__ = ["Doubles", "chosen_rows", "fit_first", "for_objective", "one_vs_rest"]


def for_objective(estimator: Any, signature: Signature, name: str) -> Any:
    """An estimator, copied for each label or number if it supports only one.

    Raises
    ------
    ModelError
        It is a classifier that is asked for numbers, or a regressor that is asked for labels; `name` is what it is called.
    """
    from sklearn.base import is_classifier, is_regressor
    from sklearn.multioutput import MultiOutputRegressor
    from sklearn.utils import get_tags

    objective = signature.objective
    if not hasattr(estimator, "__sklearn_tags__"):
        return estimator
    if is_regressor(estimator) and objective in ("multilabel", "sequence"):
        raise ModelError(
            f"{name} answers numbers, and {objective} needs a classifier: take one, or leave it out"
        )
    if is_classifier(estimator) and objective in ("regression", "retrieval"):
        raise ModelError(
            f"{name} answers classes, and {objective} needs a regressor: take one, or leave it out"
        )
    tags = get_tags(estimator)
    if objective == "multilabel" and not (tags.classifier_tags and tags.classifier_tags.multi_label):
        return one_vs_rest(estimator)
    several = objective in ("regression", "retrieval") and signature.outputs > 1
    if several and not tags.target_tags.multi_output:
        return MultiOutputRegressor(estimator)
    return estimator


def one_vs_rest(estimator: Any, least: int = 1) -> Any:
    """A copy of a classifier for each label; after `fit`, `notes_` tell which labels could not be learnt.

    A label that all training windows have, or none, or that fewer than `least` windows have (or lack), teaches nothing
    and is answered with what the training windows mostly say.
    """
    from sklearn.base import BaseEstimator, clone

    class OneVsRest(BaseEstimator):  # type: ignore[misc]
        """One against the rest, (window, label) zeros and ones."""

        def __init__(self, estimator: Any, least: int) -> None:
            self.estimator, self.least = estimator, least

        def fit(self, x: Array, y: Array) -> OneVsRest:
            """Learn (window, label) zeros and ones."""
            labels = np.asarray(y).astype(int)
            self.parts_: list[Any] = []
            self.notes_: list[str] = []
            for column, given in enumerate(labels.T):
                ones = int(given.sum())
                if min(ones, len(given) - ones) < self.least:
                    answer = float(2 * ones > len(given))
                    self.parts_.append(answer)
                    self.notes_.append(
                        f"label {column + 1} of {labels.shape[1]} is in {ones} of {len(given)} training windows: "
                        f"always answered {'yes' if answer else 'no'}"
                    )
                else:
                    self.parts_.append(clone(self.estimator).fit(x, given))
            return self

        def predict_proba(self, x: Array) -> Array:
            """Probability of each label, (window, label)."""
            return np.stack([_probability(part, x) for part in self.parts_], axis=1)

        def predict(self, x: Array) -> Array:
            """Zeros and ones, (window, label)."""
            return (self.predict_proba(x) > 0.5).astype(int)

    return OneVsRest(estimator, least)


def _probability(part: Any, x: Array) -> Array:
    if isinstance(part, float):
        return np.full(len(x), part)
    if hasattr(part, "predict_proba"):
        return np.asarray(part.predict_proba(x)[:, 1])
    return np.asarray(part.predict(x), dtype=float)


def chosen_rows(y: Array, most: int | None) -> Integers:
    """At most ``most`` rows, in order: all, or a sample stratified by class, seed 0.

    Of numbers, embeddings, several labels at once and more classes than rows, every row is as likely as any other.
    """
    if most is None or len(y) <= most:
        return np.arange(len(y))
    rng = np.random.default_rng(0)
    numbers = y.ndim > 1 or y.dtype.kind == "f"
    _, codes, counts = np.unique(np.zeros(len(y)) if numbers else y, return_inverse=True, return_counts=True)
    if numbers or len(counts) > most:
        return np.sort(rng.choice(len(y), most, replace=False))
    shares = counts * (most / len(y))
    quota = np.maximum(1, np.floor(shares)).astype(int)
    for code in np.argsort(np.floor(shares) - shares, kind="stable")[: max(0, most - int(quota.sum()))]:
        quota[code] += 1
    picked = [
        rng.choice(np.flatnonzero(codes == code), number, replace=False) for code, number in enumerate(quota)
    ]
    return np.sort(np.concatenate(picked))


class Doubles:
    """A pipeline that computes in double precision, whatever the type of the signals; `notes_` list what was left out.

    Of a view of windows on the disk, the first step makes its features block by block, and the other steps learn from
    those of all windows at once; answers are given block by block. A first step that learns from windows (other than Xdawn)
    sees all of them at once, if memory has room, as does a pipeline of one step.

    Parameters
    ----------
    most
        At most this many windows are learnt from.
    bytes_each
        What it makes of a window, where that is known beforehand: too little memory is reported before anything is computed.
    shared
        How many steps at the beginning learn nothing, and a name for what they make of a window: the windows may then be
        handed over as what these steps make of them, which `takes_features` tells.
    """

    takes_rows = True

    def __init__(
        self,
        pipeline: Any,
        most: int | None = None,
        bytes_each: int = 0,
        shared: tuple[int, str] | None = None,
    ) -> None:
        self.pipeline, self.most, self.bytes_each, self.shared = pipeline, most, bytes_each, shared
        self.takes_features = False
        # Whose each window is that is handed over next, for steps that ask; set by whoever knows.
        self.people: Array | None = None
        for name in ("predict", "predict_proba", "decision_function"):
            if hasattr(pipeline, name) or (name == "predict_proba" and hasattr(pipeline[-1], name)):
                setattr(self, name, self._delegate(name))

    def shared_features(self, x: Array) -> Array:
        """What the shared steps make of windows."""
        x = _in_doubles(x)
        for _, step in self.pipeline.steps[: self.shared[0] if self.shared else 0]:
            x = step.transform(x)
        return x

    @property
    def adapts(self) -> bool:
        """Whether a step learns from windows of a tested person without labels."""
        return any(hasattr(step, "adapt") for _, step in self.pipeline.steps)

    def adapt(self, x: Array | LazyRows, person: str) -> None:
        """Show windows of one person, without labels, to the steps that adapt to people."""
        made = _in_doubles(x)
        for _, step in self._rest.steps:
            if hasattr(step, "adapt"):
                step.adapt(made, person)
                return
            made = step.transform(made)

    def _tell(self, rows: Any = slice(None)) -> None:
        for _, step in self.pipeline.steps:
            if hasattr(step, "adapt"):
                step.people = None if self.people is None else self.people[rows]

    @property
    def _rest(self) -> Any:
        return self.pipeline[self.shared[0] :] if self.takes_features and self.shared else self.pipeline

    def fit(self, x: Array | LazyRows, y: Array) -> Doubles:
        """Learn from at most `most` windows."""
        rows = chosen_rows(np.asarray(y), self.most)
        fewer = len(rows) < len(y)
        if fewer:
            x, y = part_of(x, rows), y[rows]
        self._tell(rows)
        if self.bytes_each:
            require_memory(
                len(rows) * self.bytes_each,
                f"what a decoder makes of {len(rows):,} windows of {x.shape[1]:,} channels",
                "take a decoder of amplitudes, fewer windows (`most`) or fewer channels",
            )
        with warnings.catch_warnings():
            ignored = ".*(Convergence|lbfgs|penalty|l1_ratio|legacy|least populated|max_iter).*"
            warnings.filterwarnings("ignore", message=ignored)
            if self._by_blocks(x):
                first = self.pipeline[0]
                fit_first(first, x, y)
                self.pipeline[1:].fit(features_of(first, x), y)
            else:
                self._rest.fit(_in_doubles(x), y)
        self.notes_ = (
            [f"fitted on {len(rows):,} windows, drawn from all of the training part"] if fewer else []
        )
        for _, step in self.pipeline.steps:
            self.notes_ += getattr(step, "notes_", [])
        if hasattr(self._rest, "classes_"):
            self.classes_ = self._rest.classes_
        return self

    def _by_blocks(self, x: Array | LazyRows) -> TypeGuard[LazyRows]:
        blockwise = (
            self.shared is not None
            or getattr(self.pipeline[0], "takes_rows", False)
            or _is_xdawn(self.pipeline[0])
        )
        return blockwise and isinstance(x, LazyRows) and x.nbytes > WHOLE and len(self.pipeline.steps) > 1

    def _delegate(self, name: str) -> Callable[[Array | LazyRows], Any]:
        # Of several labels at once, scikit-learn gives a list of probabilities, one item for each.
        def delegate(x: Array | LazyRows) -> Any:
            self._tell()
            if not self._by_blocks(x):
                found = getattr(self._rest, name)(_in_doubles(x))
                return found if isinstance(found, list) else np.asarray(found)
            parts = []
            for rows, block in _blocks(x):
                self._tell(rows)
                parts.append(getattr(self.pipeline, name)(block))
            if isinstance(parts[0], list):
                return [np.concatenate(label) for label in zip(*parts, strict=True)]
            return np.concatenate(parts)

        return delegate


def _is_xdawn(step: Any) -> bool:
    return any(kind.__name__ == "XdawnCovariances" for kind in type(step).__mro__)


def _in_doubles(x: Array | LazyRows) -> Array:
    return np.asarray(x, dtype=np.float64) if isinstance(x, LazyRows) else x.astype(np.float64)


def fit_first(step: Any, x: Array | LazyRows, y: Array) -> Any:
    """The fitted step: one that looks at each window by itself, or Xdawn, which needs means and one covariance of all.

    Xdawn's filters follow from the mean window of each class and the covariance of all samples [rivet2009]; of a view both
    are added up over its blocks and handed to pyriemann, the means as classes of one window each.
    """
    if not isinstance(x, LazyRows) or getattr(step, "takes_rows", False):
        return step.fit(x, y)
    if not _is_xdawn(step):
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
