"""Decoding on arrays: an estimator, signals and what they show, to a Score; the same way as through specs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.core.decoding.decoder import Decoder, Objective
from neuroledger.core.decoding.gates import gate, partition_sha256
from neuroledger.core.decoding.signals import check as check_signals
from neuroledger.core.decoding.signals import is_signals, signals
from neuroledger.core.score import Score, normalise_by_floor
from neuroledger.engine.bind import BoundMetric, metric
from neuroledger.engine.partition import Splits, partition
from neuroledger.errors import RequestError
from neuroledger.models.classical_decoders import dummy_decoder
from neuroledger.paradigms.decoding import measure_folds
from neuroledger.spec.catalog import open_catalog

__all__ = ["decode"]

Array = npt.NDArray[Any]

OBJECTIVES: Mapping[str, Objective] = {
    "pearson_r": "regression",
    "rmse": "regression",
    "r2": "regression",
    "mae": "regression",
    "binned_mae": "regression",
    "retrieval": "retrieval",
    "word_error_rate": "sequence",
}
PERFECT = {"error": 0.0}


def decode(
    estimator: Any,
    x: Array | xr.DataArray,
    y: Array | Sequence[Any] | str,
    *,
    splits: Splits = None,
    groups: Array | Sequence[Any] | Mapping[str, Any] | None = None,
    metric: str = "balanced_accuracy",
    seed: int = 0,
    seeds: Sequence[int] = (33, 34, 35),
    sampling_rate: float = 1.0,
    start: float = 0.0,
    cluster: str | None = None,
    per: str = "window",
    normalise: bool = False,
    shuffle_labels: bool = False,
    apart: Sequence[str] = (),
    waive: Sequence[str] = (),
) -> Score:
    """Train on one part of the windows, predict the rest, and score the predictions.

    Parameters
    ----------
    estimator
        A scikit-learn estimator (a fresh copy is trained on each fold), a `Decoder`, or the id of a decoder's spec.
    x
        (window, channel, sample), or (window, feature); or signals with their coordinates.
    y
        What each window shows; or, with signals, the name of the coordinate. (window, dimension) for retrieval.
    splits
        A rule (`{"name": "cross_subject", "folds": 5}`, or its name alone), a number of folds, a file written by
        `write_partition`, a list of (train, test) or (train, validation, test) row numbers, or a scikit-learn splitter.
        Default: one group at a time where `groups` are given as an array, five contiguous blocks otherwise.
    groups
        An array: the subject of each window; a subject is never on both sides, unless a rule within subjects is named.
        Or several facts by name: `subject`, `session`, `recording`, `trial`, `stimulus_id`, and `onset` in seconds.
    metric
        Id of a decoding metric.
    seed, seeds
        Of the interval's resampling and of shuffled labels; of the training, for estimators that use chance.
    sampling_rate, start
        Hz, and seconds from the event to the first sample, for arrays (window, channel, sample). Windows without an
        `onset` are taken to follow each other without overlap, and the notes say that this was not checked.
    cluster, per
        What is resampled for the interval (default: the subject, the recording or the window, the first that varies),
        and what is scored: window, recording or subject.
    normalise
        Whether 0 is to be what a dummy reaches on the same splits, and 1 perfection.
    shuffle_labels
        Control: permute the training labels.
    apart
        Facts that may not have one value on both sides, such as `stimulus_id`.
    waive
        Gates not to apply (`overlap`, `duplicates`); repeated in the notes.

    Returns
    -------
    Score
        samples: (seed, split); samples.attrs["predictions"]: every prediction beside the truth.

    Raises
    ------
    DataError
        The data break the conventions, or the partition leaks.
    RequestError
        An argument is wrong.
    ModelError, MetricError
        The estimator fails, or the metric is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["rest", "move"], 30)
    >>> x = rng.standard_normal((60, 4)) + (y == "move")[:, None]
    >>> order = rng.permutation(60)
    >>> round(decode(LogisticRegression(), x[order], y[order]).value, 2) > 0.7
    True
    """
    objective = _objective(metric)
    facts, notes = _facts(x, groups)
    assembly, truth = _assembled(x, y, facts, sampling_rate, start, objective)
    if objective == "classification" and truth.ndim == 2:
        objective = "multilabel"
    decoder = _decoder(estimator, np.shape(x), objective)
    if shuffle_labels:
        decoder = replace(decoder, shuffles_labels=True)
    named = groups is not None and not isinstance(groups, Mapping)
    folds, disjoint, said = partition(splits, assembly, truth, grouped=named)
    labels = truth.astype(str) if objective == "classification" else None
    gate(folds, assembly, disjoint=[*disjoint, *apart], labels=labels, waive=[*waive, *said])
    digest = partition_sha256(folds, [str(row) for row in range(len(truth))])
    notes += [
        f"{len(folds)} folds, sha256 {digest[:12]}",
        *(f"gate waived: {name}" for name in sorted({*waive, *said})),
    ]
    bound = _metric(metric, seed, cluster or _cluster(assembly), per)

    def scored(model: Decoder) -> Score:
        rng = np.random.default_rng(seed)
        measured = measure_folds(
            model, assembly, truth, folds, objective=objective, seeds=tuple(seeds), rng=rng
        )
        raw = bound(measured.source, measured.target)
        return raw.replace(notes=(*notes, *measured.notes, *raw.notes))

    score = scored(decoder)
    if not normalise:
        return score
    perfect = PERFECT.get(score.scale, 1.0)
    return normalise_by_floor(score, scored(dummy_decoder(id="dummy")).value, perfect)


def _metric(name: str, seed: int, cluster: str, per: str) -> BoundMetric:
    return metric(name, seed=seed, cluster=cluster, per=per)


def _objective(name: str) -> Objective:
    spec = open_catalog().metric(name)
    if spec.compare.name != "decoding":
        raise RequestError(
            f"metric {name!r} does not score predictions; take balanced_accuracy, decoding_pearson_r, …"
        )
    return OBJECTIVES.get(str(spec.compare.parameters.get("measure")), "classification")


def _facts(x: Array | xr.DataArray, groups: Any) -> tuple[dict[str, Array], list[str]]:
    """What is known about each window, as coordinates."""
    count = len(x)
    given = dict(groups) if isinstance(groups, Mapping) else ({} if groups is None else {"subject": groups})
    facts = {name: np.asarray(values) for name, values in given.items()}
    wrong = [name for name, values in facts.items() if values.shape != (count,)]
    if wrong:
        raise RequestError(f"groups: {', '.join(wrong)} must hold one value for each of {count} windows")
    if isinstance(x, xr.DataArray):
        return facts, []
    facts.setdefault("subject", np.full(count, "1"))
    facts.setdefault("stimulus_id", np.array([f"window{row}" for row in range(count)]))
    facts.setdefault("recording", facts["subject"].astype(str))
    if "onset" in facts:
        return facts, []
    return facts, ["no onsets given: overlap in time was not checked"]


def _assembled(
    x: Array | xr.DataArray, y: Any, facts: dict[str, Array], rate: float, start: float, objective: Objective
) -> tuple[xr.DataArray, Array]:
    """Signals and the truth."""
    if isinstance(x, xr.DataArray):
        if not is_signals(x):
            raise RequestError(
                f"x has dimensions {tuple(x.dims)}; signals are (presentation, channel, sample)"
            )
        assembly = check_signals(
            x.assign_coords({name: ("presentation", values) for name, values in facts.items()})
        )
        if isinstance(y, str):
            if y not in assembly.coords:
                raise RequestError(f"x has no coordinate {y!r} to decode")
            y = assembly[y].values
    else:
        values = np.asarray(x)
        values = values[:, :, None] if values.ndim == 2 else values
        if values.ndim != 3:
            raise RequestError(f"x is (window, channel, sample) or (window, feature), not {values.shape}")
        if "onset" not in facts:
            facts["onset"] = np.arange(len(values)) * (values.shape[2] / rate)
        channels = [f"channel{number}" for number in range(values.shape[1])]
        assembly = signals(
            values,
            channels=channels,
            channel_types="misc",
            sampling_rate=rate,
            start=start,
            units="arbitrary",
            events=facts,
        )
    truth = np.asarray(y)
    if len(truth) != assembly.sizes["presentation"]:
        raise RequestError(f"y has {len(truth)} values for {assembly.sizes['presentation']} windows")
    if (
        objective == "classification"
        and truth.ndim == 1
        and truth.dtype.kind == "f"
        and (truth != np.round(truth)).any()
    ):
        raise RequestError("y holds fractions: take a metric of numbers, such as decoding_pearson_r")
    return assembly, truth


def _decoder(estimator: Any, shape: tuple[int, ...], objective: Objective) -> Decoder:
    if isinstance(estimator, Decoder):
        return estimator
    if isinstance(estimator, str):
        from neuroledger.engine.session import Session

        model: Any = Session(open_catalog()).model(estimator)
        if not isinstance(model, Decoder):
            raise RequestError(f"model {estimator!r} is shown stimuli; it is no decoder")
        return model
    if not (hasattr(estimator, "fit") and hasattr(estimator, "predict")):
        raise RequestError(
            f"{type(estimator).__name__} has no fit and predict; give a scikit-learn estimator or a decoder's id"
        )
    flat = len(shape) == 2
    return Decoder(
        id=type(estimator).__name__, make=lambda signature: _Copy(estimator, flat), objectives=(objective,)
    )


class _Copy:
    """A fresh copy of somebody's estimator, which sees features flat if they were given flat."""

    def __init__(self, estimator: Any, flat: bool) -> None:
        try:
            from sklearn.base import clone

            self.estimator = clone(estimator)
        except TypeError:
            self.estimator = copy.deepcopy(estimator)
        self.flat = flat
        for name in ("predict_proba", "decision_function"):
            if hasattr(self.estimator, name):
                setattr(self, name, self._asked(name))

    def fit(self, x: Array, y: Array) -> _Copy:
        self.estimator.fit(self._seen(x), y)
        if hasattr(self.estimator, "classes_"):
            self.classes_ = self.estimator.classes_
        return self

    def predict(self, x: Array) -> Array:
        return np.asarray(self.estimator.predict(self._seen(x)))

    def _asked(self, name: str) -> Any:
        return lambda x: np.asarray(getattr(self.estimator, name)(self._seen(x)))

    def _seen(self, x: Array) -> Array:
        x = x.astype(np.float64)
        return x[:, :, 0] if self.flat else x


def _cluster(assembly: xr.DataArray) -> str:
    """What was drawn independently: subjects if there are several, else recordings, trials, or single windows."""
    for name in ("subject", "recording", "trial"):
        if name in assembly.coords and len(np.unique(assembly[name].values.astype(str))) > 1:
            return name
    return "row"
