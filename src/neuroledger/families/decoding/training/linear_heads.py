"""Fitting of classical decoders: copies for several labels, subsampling, and windows that exceed the memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeGuard

import numpy as np

from neuroledger.data.arrays import Array, Integers, floats
from neuroledger.data.memory import (
    WHOLE,
    LazyRows,
    empty_array,
    part_of,
    require_memory,
    row_blocks,
)
from neuroledger.errors import ModelError
from neuroledger.families.decoding.protocols.decoder import Signature

__all__ = [
    "DoublePrecisionPipeline",
    "sample_rows",
    "fit_first_step",
    "for_objective",
    "one_vs_rest",
]


def for_objective(estimator: Any, signature: Signature, name: str) -> Any:
    """An estimator, copied for each label or number if it supports only one.

    Raises
    ------
    ModelError
        The objective is numeric and the estimator a classifier, or vice versa. The message contains `name`.
    """
    from sklearn.base import is_classifier, is_regressor
    from sklearn.multioutput import MultiOutputRegressor
    from sklearn.utils import get_tags

    objective = signature.objective
    if not hasattr(estimator, "__sklearn_tags__"):
        return estimator
    if is_regressor(estimator) and objective in ("multilabel", "sequence"):
        raise ModelError(
            f"{name} predicts numbers, but {objective} needs a classifier: use one, or remove this objective"
        )
    if is_classifier(estimator) and objective in ("regression", "retrieval"):
        raise ModelError(
            f"{name} predicts classes, but {objective} needs a regressor: use one, or remove this objective"
        )
    tags = get_tags(estimator)
    if objective == "multilabel" and not (
        tags.classifier_tags and tags.classifier_tags.multi_label
    ):
        return one_vs_rest(estimator)
    several = objective in ("regression", "retrieval") and signature.outputs > 1
    if several and not tags.target_tags.multi_output:
        return MultiOutputRegressor(estimator)
    return estimator


def one_vs_rest(estimator: Any, least: int = 1) -> Any:
    """A copy of a classifier for each label; after `fit`, `notes_` lists the labels that could not be learnt.

    A label that all or no training windows have, or that fewer than `least` windows have (or lack), is always predicted
    as in the majority of the training windows.
    """
    from sklearn.base import BaseEstimator, clone

    class OneVsRest(BaseEstimator):  # type: ignore[misc]
        """One-versus-rest classifiers for (window, label) zeros and ones."""

        def __init__(self, estimator: Any, least: int) -> None:
            self.estimator, self.least = estimator, least

        def fit(self, x: Array, y: Array) -> OneVsRest:
            """Fit one classifier per label to (window, label) zeros and ones."""
            labels = np.asarray(y).astype(int)
            self.parts_: list[Any] = []
            self.notes_: list[str] = []
            for column, column_values in enumerate(labels.T):
                ones = int(column_values.sum())
                if min(ones, len(column_values) - ones) < self.least:
                    answer = float(2 * ones > len(column_values))
                    self.parts_.append(answer)
                    self.notes_.append(
                        f"label {column + 1} of {labels.shape[1]} is in {ones} of {len(column_values)} training windows: "
                        f"always answered {'yes' if answer else 'no'}"
                    )
                else:
                    self.parts_.append(clone(self.estimator).fit(x, column_values))
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
    return floats(part.predict(x))


def sample_rows(y: Array, most: int | None) -> Integers:
    """At most ``most`` row numbers, in order: all, or a sample stratified by class with seed 0.

    For numbers, embeddings, several labels, and more classes than rows, the sample is not stratified.
    """
    if most is None or len(y) <= most:
        return np.arange(len(y))
    rng = np.random.default_rng(0)
    numbers = y.ndim > 1 or y.dtype.kind == "f"
    _, codes, counts = np.unique(
        np.zeros(len(y)) if numbers else y, return_inverse=True, return_counts=True
    )
    if numbers or len(counts) > most:
        return np.sort(rng.choice(len(y), most, replace=False))
    shares = counts * (most / len(y))
    quota = np.maximum(1, np.floor(shares)).astype(int)
    for code in np.argsort(np.floor(shares) - shares, kind="stable")[
        : max(0, most - int(quota.sum()))
    ]:
        quota[code] += 1
    rows_by_class = [
        rng.choice(np.flatnonzero(codes == code), number, replace=False)
        for code, number in enumerate(quota)
    ]
    return np.sort(np.concatenate(rows_by_class))


class DoublePrecisionPipeline:
    """A pipeline that computes in double precision, whatever the type of the signals; `notes_` states a subsampling.

    For a view of windows on disk, the first step computes features block by block, and the other steps are fitted to the
    features of all windows; predictions are computed block by block. A first step that is fitted to windows (other than
    Xdawn), and a pipeline of one step, need all windows in memory.

    Parameters
    ----------
    most
        Largest number of windows used for training.
    bytes_each
        Bytes of the features of a window, if known, so that too little memory is reported before any computation.
    shared
        The number of leading steps that are not fitted, and a name for their output. If `takes_features` is set, the
        pipeline receives this output instead of windows.
    """

    takes_rows = True

    def __init__(
        self,
        pipeline: Any,
        most: int | None = None,
        bytes_each: int = 0,
        shared: tuple[int, str] | None = None,
    ) -> None:
        self.pipeline, self.most, self.bytes_each, self.shared = (
            pipeline,
            most,
            bytes_each,
            shared,
        )
        self.takes_features = False
        # The subject of each window in the next call; set by the paradigm for steps that adapt.
        self.subjects: Array | None = None
        for name in ("predict", "predict_proba", "decision_function"):
            if hasattr(pipeline, name) or (
                name == "predict_proba" and hasattr(pipeline[-1], name)
            ):
                setattr(self, name, partial(self._delegate, name))

    def shared_features(self, x: Array) -> Array:
        """The output of the shared steps for windows."""
        x = _in_doubles(x)
        for _, step in self.pipeline.steps[: self.shared[0] if self.shared else 0]:
            x = step.transform(x)
        return x

    @property
    def adapts(self) -> bool:
        """Whether a step adapts to unlabelled windows of a tested subject."""
        return any(hasattr(step, "adapt") for _, step in self.pipeline.steps)

    def adapt(self, x: Array | LazyRows, subject: str) -> None:
        """Pass unlabelled windows of one subject to the step that adapts to subjects."""
        features = _in_doubles(x)
        for _, step in self._rest.steps:
            if hasattr(step, "adapt"):
                step.adapt(features, subject)
                return
            features = step.transform(features)

    def _set_subjects(self, rows: Any = slice(None)) -> None:
        for _, step in self.pipeline.steps:
            if hasattr(step, "adapt"):
                if self.subjects is None:
                    step.subjects = None
                else:
                    step.subjects = self.subjects[rows]

    @property
    def _rest(self) -> Any:
        if self.takes_features and self.shared:
            return self.pipeline[self.shared[0] :]
        return self.pipeline

    def fit(self, x: Array | LazyRows, y: Array) -> DoublePrecisionPipeline:
        """Fit to at most `most` windows."""
        rows = sample_rows(np.asarray(y), self.most)
        sampled = len(rows) < len(y)
        if sampled:
            x, y = part_of(x, rows), y[rows]
        self._set_subjects(rows)
        if self.bytes_each:
            require_memory(
                len(rows) * self.bytes_each,
                f"computing the features of {len(rows):,} windows of {x.shape[1]:,} channels",
                "use a decoder of amplitudes, fewer windows (`most`) or fewer channels",
            )
        with warnings.catch_warnings():
            ignored = ".*(Convergence|lbfgs|penalty|l1_ratio|legacy|least populated|max_iter).*"
            warnings.filterwarnings("ignore", message=ignored)
            if self._by_blocks(x):
                first = self.pipeline[0]
                fit_first_step(first, x, y)
                self.pipeline[1:].fit(transform_blockwise(first, x), y)
            else:
                self._rest.fit(_in_doubles(x), y)
        self.notes_ = (
            [f"fitted on {len(rows):,} windows, drawn from all of the training part"]
            if sampled
            else []
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
        return (
            blockwise
            and isinstance(x, LazyRows)
            and x.nbytes > WHOLE
            and len(self.pipeline.steps) > 1
        )

    def _delegate(self, name: str, x: Array | LazyRows) -> Any:
        # For several labels, scikit-learn returns a list of probabilities, one array per label.
        self._set_subjects()
        if not self._by_blocks(x):
            predictions = getattr(self._rest, name)(_in_doubles(x))
            is_list = isinstance(predictions, list)
            if is_list:
                return predictions
            return np.asarray(predictions)
        parts = []
        for rows, block in _blocks(x):
            self._set_subjects(rows)
            parts.append(getattr(self.pipeline, name)(block))
        if isinstance(parts[0], list):
            return [np.concatenate(label) for label in zip(*parts, strict=True)]
        return np.concatenate(parts)


def _is_xdawn(step: Any) -> bool:
    return any(kind.__name__ == "XdawnCovariances" for kind in type(step).__mro__)


def _in_doubles(x: Array | LazyRows) -> Array:
    if isinstance(x, LazyRows):
        return floats(x)
    return x.astype(np.float64)


def fit_first_step(step: Any, x: Array | LazyRows, y: Array) -> Any:
    """Fit the first step of a pipeline: one that transforms each window independently, or Xdawn.

    Xdawn's filters depend on the mean window of each class and the covariance of all samples [rivet2009]; for a view, both
    are accumulated over its blocks and passed to pyriemann, the means as classes of one window each.
    """
    if not isinstance(x, LazyRows) or getattr(step, "takes_rows", False):
        return step.fit(x, y)
    if not _is_xdawn(step):
        return step.fit(x[:1].astype(np.float64), y[:1])
    if step.classes is None:
        classes = np.unique(y)
    else:
        classes = np.asarray(step.classes)
    means = np.stack([_mean(x.part(np.flatnonzero(y == name))) for name in classes])
    step.set_params(baseline_cov=_covariance(x))
    return step.fit(means, classes)


def transform_blockwise(step: Any, x: LazyRows) -> Array:
    """The output of a step for windows, (window, …), with at most one block of windows in memory.

    Raises
    ------
    RequestError
        The output exceeds the memory.
    """
    features = np.empty(0)
    for rows, block in _blocks(x):
        block_features = np.asarray(step.transform(block))
        if rows.start == 0:
            description = f"computing the features of {len(x):,} windows"
            change = "use fewer windows (`most`), fewer channels or a shorter window"
            features = empty_array(
                (len(x), *block_features.shape[1:]),
                block_features.dtype,
                description,
                change,
            )
        features[rows] = block_features
    return features


def _blocks(x: LazyRows) -> Iterator[tuple[slice, Array]]:
    for rows in row_blocks(x):
        yield rows, x[rows].astype(np.float64)


def _mean(x: LazyRows) -> Array:
    """Mean of the windows, (channel, sample)."""
    return np.asarray(sum(block.sum(axis=0) for _, block in _blocks(x)) / len(x))


def _covariance(x: LazyRows) -> Array:
    """Covariance of all samples of all windows, divided by their number, (channel, channel)."""
    centre = _mean(x).mean(axis=1)[:, None]
    total = np.zeros((x.shape[1], x.shape[1]))
    for _, block in _blocks(x):
        samples = (block - centre).transpose(1, 0, 2).reshape(x.shape[1], -1)
        total += samples @ samples.T
    return total / (x.shape[0] * x.shape[2])
