"""Validation of the arguments of `nl.decode` before training: signals, targets, facts about windows, splits, estimator."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import TypeAdapter, ValidationError

from neuroledger.data.arrays import Array
from neuroledger.errors import RequestError
from neuroledger.families.decoding.protocols.decoder import (
    Decoder,
    Objective,
    Signature,
)
from neuroledger.families.decoding.protocols.leakage_checks import (
    partition_sha256,
    read_partition,
    run_length,
)
from neuroledger.families.decoding.protocols.splits import (
    Fold,
    SplitRule,
    Train,
    draw_folds,
    unit_of,
)
from neuroledger.families.signals.signals import check as check_signals
from neuroledger.families.signals.signals import is_signals, signals
from neuroledger.spec.base import worded
from neuroledger.spec.catalog import open_catalog, open_definitions

__all__ = [
    "Splits",
    "assemble",
    "cluster_of",
    "decoder_of",
    "facts_of",
    "is_per_window",
    "objective_of",
    "overlap_notes",
    "partition",
    "people_seen",
    "training_seeds",
    "trials_named",
]


OBJECTIVES: Mapping[str, Objective] = {
    "pearson_r": "regression",
    "rmse": "regression",
    "r2": "regression",
    "mae": "regression",
    "binned_mae": "regression",
    "bits_per_spike": "regression",
    "retrieval": "retrieval",
    "word_error_rate": "sequence",
}
BY_SAMPLES = "no onsets given: overlap was checked by shared samples only, not by time"
UNCHECKED = "no onsets given, and windows too short or coarse to tell by shared samples: overlap was not checked"


def objective_of(name: str) -> tuple[Objective, str]:
    """The objective and the measure of a decoding metric.

    Raises
    ------
    RequestError
        The metric is unknown, or it is not a decoding metric.
    """
    spec = open_definitions().metric(name)
    if spec.compare.name != "decoding":
        raise RequestError(
            f"metric {name!r} does not score predictions; use balanced_accuracy, decoding_pearson_r, …"
        )
    measure = str(spec.compare.parameters.get("measure", "balanced_accuracy"))
    return OBJECTIVES.get(measure, "classification"), measure


def training_seeds(seed: int, seeds: Sequence[int]) -> tuple[int, ...]:
    """The seeds of the training as integers.

    Raises
    ------
    RequestError
        A seed is not a non-negative integer.
    """
    if isinstance(seeds, (int, np.integer)):
        raise RequestError(
            f"seeds must be a list of training seeds, such as ({seeds},)"
        )
    values = [seed, *seeds]
    if not all(
        isinstance(number, (int, np.integer)) and number >= 0 for number in values
    ):
        raise RequestError(
            f"seed and seeds must be non-negative whole numbers, not {values}"
        )
    return tuple(map(int, seeds))


def facts_of(
    x: Array | xr.DataArray, groups: Any, embeddings: Any = None
) -> tuple[dict[str, Array], list[str]]:
    """Facts about each window as coordinates, and notes for the score.

    The `recording` defaults to subject, session and run, as far as they are known, since onsets of different sessions
    are unrelated. The `stimulus_id` defaults to one stimulus per window, and one for windows with equal `embeddings`.

    Raises
    ------
    RequestError
        A fact does not have one value for each window, or has missing values.
    """
    count = _windows(x)
    if isinstance(groups, pd.DataFrame):
        groups = {str(name): groups[name].to_numpy() for name in groups.columns}
    groups_by_name = (
        dict(groups)
        if isinstance(groups, Mapping)
        else ({} if groups is None else {"subject": groups})
    )
    facts = {name: np.asarray(values) for name, values in groups_by_name.items()}
    misshapen = [name for name, values in facts.items() if values.shape != (count,)]
    if misshapen:
        raise RequestError(
            f"groups: {', '.join(misshapen)} must have one value for each of {count} windows"
        )
    missing = [name for name, values in facts.items() if pd.isna(values).any()]
    if missing:
        raise RequestError(
            f"groups: {', '.join(missing)} has missing values: complete them, or exclude these windows"
        )
    if isinstance(x, xr.DataArray):
        return facts, []
    facts.setdefault("subject", np.full(count, "1"))
    facts.setdefault("stimulus_id", _stimuli(count, embeddings))
    identifiers = [
        facts[name].astype(str)
        for name in ("subject", "session", "run")
        if name in facts
    ]
    facts.setdefault(
        "recording",
        np.array([" ".join(parts) for parts in zip(*identifiers, strict=True)]),
    )
    if "onset" in facts:
        return facts, []
    return facts, [BY_SAMPLES]


def _stimuli(count: int, embeddings: Any) -> Array:
    """A stimulus id for each window: its own, or that of the first window with an equal embedding."""
    first_rows = np.arange(count)
    if embeddings is None:
        rows = np.empty(0)
    else:
        rows = np.asarray(embeddings)
    if rows.ndim == 2 and len(rows) == count:
        _, first, inverse = np.unique(
            rows, axis=0, return_index=True, return_inverse=True
        )
        first_rows = first[inverse.ravel()]
    return np.array([f"window{row}" for row in first_rows])


def _windows(x: Array | xr.DataArray) -> int:
    """The number of windows, for signals with dimensions in any order."""
    if isinstance(x, xr.DataArray):
        if not is_signals(x):
            raise RequestError(
                f"x has dimensions {tuple(x.dims)}; signals have (presentation, channel, sample)"
            )
        return x.sizes["presentation"]
    if hasattr(x, "toarray"):
        raise RequestError("x is a sparse matrix; make it dense, x.toarray()")
    return len(x)


def assemble(
    x: Array | xr.DataArray,
    y: Any,
    facts: dict[str, Array],
    rate: float,
    start: float,
    objective: Objective,
    measure: str,
) -> tuple[xr.DataArray, Array]:
    """The signals and their targets.

    Raises
    ------
    RequestError
        Shapes, lengths or types do not match.
    """
    if isinstance(x, xr.DataArray):
        assembly = check_signals(
            x.assign_coords(
                {name: ("presentation", values) for name, values in facts.items()}
            )
        )
        if isinstance(y, str):
            if y not in assembly.coords:
                raise RequestError(f"x has no coordinate {y!r} to decode")
            y = assembly[y].values
    else:
        assembly = _from_array(np.asarray(x), facts, rate, start)
    truth = np.asarray(y)
    if (
        truth.ndim == 2
        and truth.shape[1] == 1
        and objective == "classification"
        and measure != "macro_f1"
    ):
        truth = truth[:, 0]
    if truth.ndim == 0 or len(truth) != assembly.sizes["presentation"]:
        if truth.ndim == 0:
            problem = "is one value"
        else:
            problem = f"has {len(truth)} values"
        raise RequestError(f"y {problem} for {assembly.sizes['presentation']} windows")
    _check_truth(truth, objective, measure)
    return assembly, truth.astype(str) if objective == "sequence" else truth


def _from_array(
    values: Array, facts: dict[str, Array], rate: float, start: float
) -> xr.DataArray:
    if values.ndim == 2:
        values = values[:, :, None]
    if values.ndim != 3:
        raise RequestError(
            f"x must be (window, channel, sample) or (window, feature), not {values.shape}"
        )
    if 0 in values.shape:
        raise RequestError(f"x is empty, {values.shape}: there is nothing to decode")
    if not isinstance(rate, (int, float, np.number)) or not 0 < rate < np.inf:
        raise RequestError(f"sampling_rate is {rate!r}: give it in Hz, above zero")
    if not isinstance(start, (int, float, np.number)) or not np.isfinite(start):
        raise RequestError(f"start is {start!r}: give it in seconds from the event")
    if "onset" not in facts:
        facts["onset"] = np.arange(len(values)) * (values.shape[2] / rate)
    return signals(
        values,
        channels=[f"channel{number}" for number in range(values.shape[1])],
        channel_types="misc",
        sampling_rate=rate,
        start=start,
        units="arbitrary",
        events=facts,
    )


def _check_truth(truth: Array, objective: Objective, measure: str) -> None:
    """Check that the targets have the type that the metric needs."""
    missing = int(pd.isna(truth).sum())
    if missing:
        raise RequestError(f"y has {missing} missing values: exclude these windows")
    if objective == "retrieval" and truth.ndim != 2:
        raise RequestError(
            "y must be (window, dimension) for retrieval: the embedding of each window's stimulus"
        )
    if objective in ("regression", "retrieval") and truth.dtype.kind not in "iufb":
        raise RequestError(
            f"y has {truth.dtype} values, but metric {measure} needs numbers: use a metric of classes"
        )
    if objective == "sequence" and (
        truth.ndim != 1 or not all(isinstance(text, str) for text in truth.tolist())
    ):
        raise RequestError(
            f"y has {truth.dtype} values, but metric {measure} needs one text for each window"
        )
    if objective != "classification":
        return
    if truth.ndim == 2 and measure != "macro_f1":
        raise RequestError("y has several labels for each window: use macro_f1")
    if truth.ndim == 2 and not np.isin(truth, (0, 1)).all():
        raise RequestError(
            "y with several labels for each window must contain only zeros and ones"
        )
    if truth.ndim > 2:
        raise RequestError(f"y must be (window,) or (window, label), not {truth.shape}")
    if truth.dtype.kind == "f" and (truth != np.round(truth)).any():
        raise RequestError(
            "y has fractional values: use a metric of numbers, such as decoding_pearson_r"
        )
    if truth.ndim == 1 and len(np.unique(truth.astype(str))) < 2:
        raise RequestError(
            f"y has one class, {str(truth[0])!r}: there is nothing to classify"
        )


def is_per_window(assembly: xr.DataArray, name: str) -> bool:
    """Whether a coordinate exists with one value for each window."""
    return name in assembly.coords and assembly[name].dims == ("presentation",)


def trials_named(assembly: xr.DataArray) -> xr.DataArray:
    """The signals with trials named by recording, session and run, which each number their trials from the first."""
    if not is_per_window(assembly, "trial"):
        return assembly
    columns = [
        name
        for name in ("recording", "session", "run")
        if is_per_window(assembly, name)
    ]
    prefixes = zip(
        *(assembly[name].values.astype(str) for name in columns), strict=True
    )
    names = [
        f"{' '.join(dict.fromkeys(prefix))} trial {trial}"
        for prefix, trial in zip(
            prefixes, assembly["trial"].values.astype(str), strict=True
        )
    ]
    return assembly.assign_coords(trial=("presentation", np.array(names)))


def overlap_notes(notes: list[str], assembly: xr.DataArray) -> list[str]:
    """The notes, corrected if overlap could not be checked by shared samples either."""
    blind = BY_SAMPLES in notes and run_length(assembly) is None
    return [UNCHECKED if blind and note == BY_SAMPLES else note for note in notes]


def people_seen(folds: Sequence[Fold], assembly: xr.DataArray) -> list[str]:
    """A note about tested subjects that were trained on too; none if there is only one subject."""
    subjects = assembly["subject"].values.astype(str)
    tested = set[str]()
    trained = set[str]()
    for fold in folds:
        in_fold = set(subjects[fold.test].tolist())
        tested |= in_fold
        trained |= in_fold & set(
            subjects[np.concatenate([fold.train, fold.validation])].tolist()
        )
    if not trained or len(set(subjects.tolist())) < 2:
        return []
    return [f"{len(trained)} of {len(tested)} tested people were trained on too"]


def cluster_of(assembly: xr.DataArray) -> str:
    """The unit of independent sampling: subjects if there are several, else recordings, trials, or single windows."""
    for name in ("subject", "recording", "trial"):
        if (
            is_per_window(assembly, name)
            and len(np.unique(assembly[name].values.astype(str))) > 1
        ):
            return name
    return "row"


Splits = Any
"""A rule or its name, a number of folds, a path, (train[, validation], test) row numbers, or a scikit-learn splitter."""


class Partition(NamedTuple):
    """Folds, coordinates that may not have the same value on both sides, and gates that the rule waives.

    ``unit`` names the coordinates whose values each have their own decoder; calibration windows are used for training if
    they are ``labelled``.
    """

    folds: list[Fold]
    apart: tuple[str, ...]
    waived: tuple[str, ...]
    unit: tuple[str, ...] = ()
    labelled: bool = False


def partition(
    splits: Splits,
    assembly: xr.DataArray,
    truth: Array,
    *,
    grouped: bool,
    train: Train = "pooled",
) -> Partition:
    """The folds over the rows of `assembly`.

    Parameters
    ----------
    splits
        See `neuroledger.decode`. None: one subject at a time if `grouped`, else five contiguous blocks.
    truth
        The targets of the rows, for scikit-learn splitters.
    grouped
        Whether the caller gave the subjects as an array; unless a rule is given, no subject may then be on both sides.

    Raises
    ------
    RequestError
        This is not a valid partition, or not the pinned one.
    DataError
        A coordinate or key is missing.
    """
    if splits is None:
        splits = "cross_subject" if grouped else 5
    if isinstance(splits, (bool, float, np.bool_)):
        raise RequestError(
            f"splits is {splits!r}: give a number of folds, a rule, a file, row numbers or a scikit-learn splitter"
        )
    if isinstance(splits, (int, np.integer)):
        splits = {
            "name": "cross_subject" if grouped else "blocked",
            "folds": int(splits),
        }
    if isinstance(splits, str):
        splits = Path(splits) if splits.endswith(".json") else {"name": splits}
    apart = ("subject",) if grouped else ()
    if isinstance(splits, Mapping):
        partition_of_rule = _by_rule(splits, assembly, train)
        if splits.get("name") == "random":
            return partition_of_rule._replace(apart=apart)
        return partition_of_rule
    if train == "each":
        raise RequestError(
            "train: each needs a rule that divides the windows of each subject, such as 'cross_session'"
        )
    if isinstance(splits, Path):
        keys = list(map(str, range(assembly.sizes["presentation"])))
        if not splits.is_file():
            raise RequestError(f"splits: file {splits} does not exist")
        return Partition(read_partition(splits, keys), apart, ())
    if hasattr(splits, "split"):
        subjects = assembly["subject"].values.astype(str)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The groups parameter is ignored")
            try:
                splits = list(splits.split(np.zeros((len(truth), 1)), truth, subjects))
            except ValueError as error:
                raise RequestError(
                    f"splits: {type(splits).__name__} cannot divide these windows: {error}"
                ) from error
    try:
        listed = list(map(_fold, splits))
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"splits: each fold must be (train, test) or (train, validation, test) row numbers ({error})"
        ) from error
    return Partition(listed, apart, ())


def _by_rule(
    fields: Mapping[str, Any], assembly: xr.DataArray, train: Train
) -> Partition:
    try:
        rule = TypeAdapter[Any](SplitRule).validate_python(dict(fields))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'][1:])) or 'name'}: {worded(item)}"
            for item in error.errors(include_url=False)
        )
        raise RequestError(f"splits: {problems}") from None
    folds = draw_folds(rule, assembly, train)
    digest = partition_sha256(
        folds, list(map(str, range(assembly.sizes["presentation"])))
    )
    if rule.sha256 is not None and rule.sha256 != digest:
        raise RequestError(
            f"splits: the partition's SHA-256 is {digest}, pinned is {rule.sha256}"
        )
    calibration = getattr(rule, "calibration", None)
    labelled = calibration is not None and calibration.labels
    return Partition(folds, rule.disjoint, rule.waive, unit_of(rule, train), labelled)


def _fold(parts: Sequence[Sequence[int] | Array]) -> Fold:
    rows = [np.asarray(part) for part in parts]
    if len(rows) not in (2, 3):
        raise RequestError(
            "splits: each fold must be (train, test) or (train, validation, test) row numbers"
        )
    for part in rows:
        if part.ndim != 1 or (part.size and part.dtype.kind not in "iub"):
            raise TypeError(f"{part.dtype} of shape {part.shape} are not row numbers")
    rows = [
        np.flatnonzero(part) if part.dtype.kind == "b" else part.astype(np.intp)
        for part in rows
    ]
    return Fold(
        rows[0], rows[1] if len(rows) == 3 else np.empty(0, dtype=np.intp), rows[-1]
    )


def decoder_of(
    estimator: Any,
    shape: tuple[int, ...],
    objective: Objective,
    taught: Array | None = None,
) -> Decoder:
    """A decoder that trains a new copy of the estimator on each fold.

    Estimators receive labels of the type of `taught`, such as numbers. A torch module takes windows in the shape of `x` and
    returns (window, output); each training starts from its current weights, by the recipe `laptop`.

    Raises
    ------
    RequestError
        The estimator has an unsupported type, or is a class instead of an instance.
    """
    if isinstance(estimator, Decoder):
        return estimator
    if isinstance(estimator, str):
        from neuroledger.engine.resolve import model_of
        from neuroledger.engine.session import Session

        model = model_of(Session(open_catalog()), estimator)
        if not isinstance(model, Decoder):
            raise RequestError(
                f"model {estimator!r} takes stimuli; it is not a decoder"
            )
        return model
    if isinstance(estimator, type):
        raise RequestError(
            f"{estimator.__name__} is a class: pass an instance, {estimator.__name__}(…)"
        )
    flat = len(shape) == 2
    name = type(estimator).__name__
    if hasattr(estimator, "fit") and hasattr(estimator, "predict"):
        labels = (
            None
            if taught is None or taught.dtype.kind not in "iufb"
            else np.unique(taught)
        )
        return Decoder(
            id=name,
            make=lambda signature: _EstimatorCopy(estimator, flat, labels),
            objectives=(objective,),
        )
    if hasattr(estimator, "state_dict") and hasattr(estimator, "forward"):
        return _network(estimator, flat, name)
    raise RequestError(
        f"{name} has no fit and predict; pass a scikit-learn estimator, a torch module, or a decoder's id"
    )


def _network(module: Any, flat: bool, name: str) -> Decoder:
    from neuroledger.families.decoding.models.network_decoders import (
        ANYTHING,
        network_to_decoder,
    )
    from neuroledger.families.decoding.training.decoding_recipes import Laptop

    def make(signature: Signature) -> Any:
        from torch import nn

        fresh = copy.deepcopy(module)
        if flat:
            return nn.Sequential(nn.Flatten(), fresh)
        return fresh

    return network_to_decoder(name, make, Laptop(), True, "cpu", False, ANYTHING)


class _EstimatorCopy:
    """A copy of an estimator that receives flat features if `x` was flat, and labels of their original type."""

    def __init__(self, estimator: Any, flat: bool, labels: Array | None = None) -> None:
        try:
            from sklearn.base import clone

            self.estimator = clone(estimator)
        except TypeError:
            self.estimator = copy.deepcopy(estimator)
        self.flat, self.labels = flat, labels
        self.takes_features = False
        self._before: Any
        self._rest: Any
        self._before, self._rest = (
            (None, None) if flat else _split_pipeline(self.estimator)
        )
        self.shared = (
            None if self._before is None else (1, f"covariances {self._before}")
        )
        for name in ("predict_proba", "decision_function"):
            if hasattr(self.estimator, name):
                setattr(self, name, self._delegate(name))

    def shared_features(self, x: Array) -> Array:
        """The covariances that the first step of the pipeline would compute."""
        from neuroledger.families.decoding.pipelines.covariances import covariances

        return covariances(self._as_input(x), self._before or "oas")

    def fit(self, x: Array, y: Array) -> _EstimatorCopy:
        if self.labels is not None:
            order = np.argsort(self.labels.astype(str))
            y = self.labels[order][np.searchsorted(self.labels.astype(str)[order], y)]
        try:
            self._active.fit(self._as_input(x), y)
        except ValueError as error:
            if self.flat:
                raise
            raise ValueError(
                f"{error} (x is (window, channel, sample); estimators of features take x.reshape(len(x), -1))"
            ) from error
        if hasattr(self._active, "classes_"):
            self.classes_ = self._active.classes_
        elif self.labels is not None:
            self.classes_ = np.unique(y)
        return self

    def predict(self, x: Array) -> Array:
        return np.asarray(self._active.predict(self._as_input(x)))

    def _delegate(self, name: str) -> Any:
        return lambda x: getattr(self._active, name)(self._as_input(x))

    @property
    def _active(self) -> Any:
        if self.takes_features:
            return self._rest
        return self.estimator

    def _as_input(self, x: Array) -> Array:
        x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)
        if self.flat:
            return x[:, :, 0]
        return x


def _split_pipeline(estimator: Any) -> tuple[Any, Any]:
    """The covariance estimator and the remaining steps of a pipeline or search that begins with pyriemann's."""
    pipeline = getattr(estimator, "estimator", estimator)
    first: Any = (
        pipeline[0]
        if type(pipeline).__name__ == "Pipeline" and len(pipeline) > 1
        else None
    )
    if (
        type(first).__module__ != "pyriemann.estimation"
        or type(first).__name__ != "Covariances"
    ):
        return None, None
    name = pipeline.steps[0][0]
    grids = getattr(
        estimator, "param_grid", getattr(estimator, "param_distributions", {})
    )
    tried = {
        key
        for grid in ([grids] if isinstance(grids, Mapping) else grids)
        for key in grid
    }
    if (
        first.kwds
        or not isinstance(first.estimator, str)
        or any(key.split("__")[0] == name for key in tried)
    ):
        return None, None
    if pipeline is estimator:
        return first.estimator, pipeline[1:]
    if not hasattr(estimator, "param_grid") and not hasattr(
        estimator, "param_distributions"
    ):
        return None, None
    rest = copy.deepcopy(estimator)
    return first.estimator, rest.set_params(estimator=pipeline[1:])
