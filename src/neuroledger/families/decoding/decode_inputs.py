"""What is decoded, checked before anything is trained: signals, truth, facts about the windows, and what is asked."""

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
from neuroledger.families.decoding.protocols.decoder import Decoder, Objective, Signature
from neuroledger.families.decoding.protocols.leakage_checks import (
    partition_sha256,
    read_partition,
    run_length,
)
from neuroledger.families.decoding.protocols.splits import Fold, SplitRule, Train, draw_folds, unit_of
from neuroledger.families.signals.signals import check as check_signals
from neuroledger.families.signals.signals import is_signals, signals
from neuroledger.spec.base import worded
from neuroledger.spec.catalog import open_catalog, open_definitions

__all__ = [
    "Splits", "assembled", "cluster_of", "decoder_of", "facts_of", "objective_of", "overlap_notes",
    "partition", "people_seen", "told", "training_seeds", "trials_named",
]  # fmt: skip


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
UNCHECKED = (
    "no onsets given, and windows too short or coarse to tell by shared samples: overlap was not checked"
)


def objective_of(name: str) -> tuple[Objective, str]:
    """What a metric asks, and the measure that it applies.

    Raises
    ------
    RequestError
        There is no such metric, or it is not one of decoding.
    """
    spec = open_definitions().metric(name)
    if spec.compare.name != "decoding":
        raise RequestError(
            f"metric {name!r} does not score predictions; take balanced_accuracy, decoding_pearson_r, …"
        )
    measure = str(spec.compare.parameters.get("measure", "balanced_accuracy"))
    return OBJECTIVES.get(measure, "classification"), measure


def training_seeds(seed: int, seeds: Sequence[int]) -> tuple[int, ...]:
    """The seeds of the training, checked with the one of the resampling.

    Raises
    ------
    RequestError
        They are no numbers from zero on.
    """
    if isinstance(seeds, (int, np.integer)):
        raise RequestError(f"seeds is a list of training seeds: ({seeds},)")
    given = [seed, *seeds]
    if not all(isinstance(value, (int, np.integer)) and value >= 0 for value in given):
        raise RequestError(f"seed and seeds are whole numbers from 0 on, not {given}")
    return tuple(int(value) for value in seeds)


def facts_of(
    x: Array | xr.DataArray, groups: Any, embeddings: Any = None
) -> tuple[dict[str, Array], list[str]]:
    """What is known about each window, as coordinates, and what a reader of the score must know about it.

    Windows without a `recording` are distinguished by subject, session and run, as far as these are known: the onsets of
    one session say nothing about another. Windows without a `stimulus_id` that show equal `embeddings` show one stimulus.

    Raises
    ------
    RequestError
        A fact has not one value for each window, or a missing one.
    """
    count = _windows(x)
    if isinstance(groups, pd.DataFrame):
        groups = {str(name): groups[name].to_numpy() for name in groups.columns}
    given = dict(groups) if isinstance(groups, Mapping) else ({} if groups is None else {"subject": groups})
    facts = {name: np.asarray(values) for name, values in given.items()}
    wrong = [name for name, values in facts.items() if values.shape != (count,)]
    if wrong:
        raise RequestError(f"groups: {', '.join(wrong)} must hold one value for each of {count} windows")
    missing = [name for name, values in facts.items() if pd.isna(values).any()]
    if missing:
        raise RequestError(
            f"groups: {', '.join(missing)} has missing values: name every window's, or leave them out"
        )
    if isinstance(x, xr.DataArray):
        return facts, []
    facts.setdefault("subject", np.full(count, "1"))
    facts.setdefault("stimulus_id", _stimuli(count, embeddings))
    told = [facts[name].astype(str) for name in ("subject", "session", "run") if name in facts]
    facts.setdefault("recording", np.array([" ".join(names) for names in zip(*told, strict=True)]))
    if "onset" in facts:
        return facts, []
    return facts, [BY_SAMPLES]


def _stimuli(count: int, embeddings: Any) -> Array:
    """A name for what each window shows: its own, or that of the first window with an equal embedding."""
    shown = np.arange(count)
    rows = np.empty(0) if embeddings is None else np.asarray(embeddings)
    if rows.ndim == 2 and len(rows) == count:
        _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        shown = first[which.ravel()]
    return np.array([f"window{row}" for row in shown])


def _windows(x: Array | xr.DataArray) -> int:
    """How many windows there are, whatever the order of the dimensions of signals."""
    if isinstance(x, xr.DataArray):
        if not is_signals(x):
            raise RequestError(
                f"x has dimensions {tuple(x.dims)}; signals are (presentation, channel, sample)"
            )
        return x.sizes["presentation"]
    if hasattr(x, "toarray"):
        raise RequestError("x is a sparse matrix; give it dense, x.toarray()")
    return len(x)


def assembled(
    x: Array | xr.DataArray,
    y: Any,
    facts: dict[str, Array],
    rate: float,
    start: float,
    objective: Objective,
    measure: str,
) -> tuple[xr.DataArray, Array]:
    """Signals and the truth.

    Raises
    ------
    RequestError
        Shapes, lengths or kinds do not go together.
    """
    if isinstance(x, xr.DataArray):
        assembly = check_signals(
            x.assign_coords({name: ("presentation", values) for name, values in facts.items()})
        )
        if isinstance(y, str):
            if y not in assembly.coords:
                raise RequestError(f"x has no coordinate {y!r} to decode")
            y = assembly[y].values
    else:
        assembly = _from_array(np.asarray(x), facts, rate, start)
    truth = np.asarray(y)
    if truth.ndim == 2 and truth.shape[1] == 1 and objective == "classification" and measure != "macro_f1":
        truth = truth[:, 0]
    if truth.ndim == 0 or len(truth) != assembly.sizes["presentation"]:
        found = "is one value" if truth.ndim == 0 else f"has {len(truth)} values"
        raise RequestError(f"y {found} for {assembly.sizes['presentation']} windows")
    _check_truth(truth, objective, measure)
    return assembly, truth.astype(str) if objective == "sequence" else truth


def _from_array(values: Array, facts: dict[str, Array], rate: float, start: float) -> xr.DataArray:
    values = values[:, :, None] if values.ndim == 2 else values
    if values.ndim != 3:
        raise RequestError(f"x is (window, channel, sample) or (window, feature), not {values.shape}")
    if 0 in values.shape:
        raise RequestError(f"x is {values.shape}: there is nothing to decode from")
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
    """The truth is of the kind that the metric asks for."""
    missing = int(pd.isna(truth).sum())
    if missing:
        raise RequestError(f"y has {missing} missing values: leave these windows out")
    if objective == "retrieval" and truth.ndim != 2:
        raise RequestError("y is (window, dimension) for retrieval: the embedding of what each window shows")
    if objective in ("regression", "retrieval") and truth.dtype.kind not in "iufb":
        raise RequestError(
            f"y holds {truth.dtype} values and metric {measure} needs numbers: take one of classes"
        )
    if objective == "sequence" and (
        truth.ndim != 1 or not all(isinstance(text, str) for text in truth.tolist())
    ):
        raise RequestError(
            f"y holds {truth.dtype} values and metric {measure} needs one text for each window"
        )
    if objective != "classification":
        return
    if truth.ndim == 2 and measure != "macro_f1":
        raise RequestError("y has several labels for each window: take macro_f1, which scores them")
    if truth.ndim == 2 and not np.isin(truth, (0, 1)).all():
        raise RequestError("y with several labels for each window holds zeros and ones")
    if truth.ndim > 2:
        raise RequestError(f"y is (window,) or (window, label), not {truth.shape}")
    if truth.dtype.kind == "f" and (truth != np.round(truth)).any():
        raise RequestError("y holds fractions: take a metric of numbers, such as decoding_pearson_r")
    if truth.ndim == 1 and len(np.unique(truth.astype(str))) < 2:
        raise RequestError(f"y has one class, {str(truth[0])!r}: there is nothing to classify")


def told(assembly: xr.DataArray, name: str) -> bool:
    """Whether each window has its own value of a coordinate."""
    return name in assembly.coords and assembly[name].dims == ("presentation",)


def trials_named(assembly: xr.DataArray) -> xr.DataArray:
    """The signals with trials named by recording, session and run as well: each counts its trials from the first."""
    if not told(assembly, "trial"):
        return assembly
    known = [name for name in ("recording", "session", "run") if told(assembly, name)]
    homes = zip(*(assembly[name].values.astype(str) for name in known), strict=True)
    named = [
        f"{' '.join(dict.fromkeys(home))} trial {trial}"
        for home, trial in zip(homes, assembly["trial"].values.astype(str), strict=True)
    ]
    return assembly.assign_coords(trial=("presentation", np.array(named)))


def overlap_notes(notes: list[str], assembly: xr.DataArray) -> list[str]:
    """The notes, with what was really checked where no onsets were given."""
    blind = BY_SAMPLES in notes and run_length(assembly) is None
    return [UNCHECKED if blind and note == BY_SAMPLES else note for note in notes]


def people_seen(folds: Sequence[Fold], assembly: xr.DataArray) -> list[str]:
    """What a score says of people who were tested after they had been trained on; nothing where there is one person."""
    people = assembly["subject"].values.astype(str)
    tested, known = set[str](), set[str]()
    for fold in folds:
        here = set(people[fold.test].tolist())
        tested |= here
        known |= here & set(people[np.concatenate([fold.train, fold.validation])].tolist())
    if not known or len(set(people.tolist())) < 2:
        return []
    return [f"{len(known)} of {len(tested)} tested people were trained on too"]


def cluster_of(assembly: xr.DataArray) -> str:
    """What was drawn independently: subjects if there are several, else recordings, trials, or single windows."""
    for name in ("subject", "recording", "trial"):
        if told(assembly, name) and len(np.unique(assembly[name].values.astype(str))) > 1:
            return name
    return "row"


Splits = Any
"""A rule or its name, a number of folds, a path, (train[, validation], test) row numbers, or a scikit-learn splitter."""


class Partition(NamedTuple):
    """Folds, the coordinates that may not have a value on both sides, and the gates that a rule waives itself.

    ``unit`` names the coordinates whose values have a decoder of their own; windows for calibration are trained on if they
    are ``labelled``.
    """

    folds: list[Fold]
    apart: tuple[str, ...]
    waived: tuple[str, ...]
    unit: tuple[str, ...] = ()
    labelled: bool = False


def partition(
    splits: Splits, assembly: xr.DataArray, truth: Array, *, grouped: bool, train: Train = "pooled"
) -> Partition:
    """The folds over the rows of `assembly`.

    Parameters
    ----------
    splits
        See `neuroledger.decode`. None: one subject at a time where `grouped`, else five contiguous blocks.
    truth
        What the rows show; handed to a splitter.
    grouped
        Whether the caller named the groups that are to stay together; they then must in every partition that is
        not drawn by a rule of its own.

    Raises
    ------
    RequestError
        This is no partition, or not the pinned one.
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
        splits = {"name": "cross_subject" if grouped else "blocked", "folds": int(splits)}
    if isinstance(splits, str):
        splits = Path(splits) if splits.endswith(".json") else {"name": splits}
    apart = ("subject",) if grouped else ()
    if isinstance(splits, Mapping):
        drawn = _by_rule(splits, assembly, train)
        return drawn._replace(apart=apart) if splits.get("name") == "random" else drawn
    if train == "each":
        raise RequestError(
            "train: each needs a rule that divides each person's windows, such as 'cross_session'"
        )
    if isinstance(splits, Path):
        keys = [str(row) for row in range(assembly.sizes["presentation"])]
        if not splits.is_file():
            raise RequestError(f"splits: there is no file {splits}")
        return Partition(read_partition(splits, keys), apart, ())
    if hasattr(splits, "split"):
        people = assembly["subject"].values.astype(str)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The groups parameter is ignored")
            try:
                splits = list(splits.split(np.zeros((len(truth), 1)), truth, people))
            except ValueError as error:
                raise RequestError(
                    f"splits: {type(splits).__name__} cannot divide these windows: {error}"
                ) from error
    try:
        listed = [_fold(parts) for parts in splits]
    except (TypeError, ValueError) as error:
        raise RequestError(
            f"splits: each is (train, test) or (train, validation, test) row numbers ({error})"
        ) from error
    return Partition(listed, apart, ())


def _by_rule(fields: Mapping[str, Any], assembly: xr.DataArray, train: Train) -> Partition:
    try:
        rule = TypeAdapter[Any](SplitRule).validate_python(dict(fields))
    except ValidationError as error:
        words = "; ".join(
            f"{'.'.join(map(str, item['loc'][1:])) or 'name'}: {worded(item)}"
            for item in error.errors(include_url=False)
        )
        raise RequestError(f"splits: {words}") from None
    folds = draw_folds(rule, assembly, train)
    found = partition_sha256(folds, [str(row) for row in range(assembly.sizes["presentation"])])
    if rule.sha256 is not None and rule.sha256 != found:
        raise RequestError(f"splits: the partition's SHA-256 is {found}, pinned is {rule.sha256}")
    calibration = getattr(rule, "calibration", None)
    labelled = calibration is not None and calibration.labels
    return Partition(folds, rule.disjoint, rule.waive, unit_of(rule, train), labelled)


def _fold(parts: Sequence[Sequence[int] | Array]) -> Fold:
    rows = [np.asarray(part) for part in parts]
    if len(rows) not in (2, 3):
        raise RequestError("splits: each is (train, test) or (train, validation, test) row numbers")
    for part in rows:
        if part.ndim != 1 or (part.size and part.dtype.kind not in "iub"):
            raise TypeError(f"{part.dtype} of shape {part.shape} are no row numbers")
    rows = [np.flatnonzero(part) if part.dtype.kind == "b" else part.astype(np.intp) for part in rows]
    return Fold(rows[0], rows[1] if len(rows) == 3 else np.empty(0, dtype=np.intp), rows[-1])


def decoder_of(
    estimator: Any, shape: tuple[int, ...], objective: Objective, taught: Array | None = None
) -> Decoder:
    """A decoder that trains a fresh copy of the estimator on each fold.

    An estimator learns labels of the kind that `taught` has, numbers as numbers. A torch module takes windows in the
    shape of `x` and gives (window, output); each training starts from the weights that it has, by the recipe `laptop`.

    Raises
    ------
    RequestError
        It is none of these, or a class instead of an instance.
    """
    if isinstance(estimator, Decoder):
        return estimator
    if isinstance(estimator, str):
        from neuroledger.engine.resolve import model_of
        from neuroledger.engine.session import Session

        model = model_of(Session(open_catalog()), estimator)
        if not isinstance(model, Decoder):
            raise RequestError(f"model {estimator!r} takes stimuli; it is not a decoder")
        return model
    if isinstance(estimator, type):
        raise RequestError(f"{estimator.__name__} is a class: give an instance, {estimator.__name__}(…)")
    flat = len(shape) == 2
    name = type(estimator).__name__
    if hasattr(estimator, "fit") and hasattr(estimator, "predict"):
        labels = None if taught is None or taught.dtype.kind not in "iufb" else np.unique(taught)
        return Decoder(
            id=name, make=lambda signature: _Copy(estimator, flat, labels), objectives=(objective,)
        )
    if hasattr(estimator, "state_dict") and hasattr(estimator, "forward"):
        return _network(estimator, flat, name)
    raise RequestError(
        f"{name} has no fit and predict; give a scikit-learn estimator, a torch module, or a decoder's id"
    )


def _network(module: Any, flat: bool, name: str) -> Decoder:
    from neuroledger.families.decoding.models.network_decoders import ANYTHING, network_to_decoder
    from neuroledger.families.decoding.training.decoding_recipes import Laptop

    def make(signature: Signature) -> Any:
        from torch import nn

        fresh = copy.deepcopy(module)
        return nn.Sequential(nn.Flatten(), fresh) if flat else fresh

    return network_to_decoder(name, make, Laptop(), True, "cpu", False, ANYTHING)


class _Copy:
    """A fresh copy of an estimator, which receives flat features if they were given flat, and numeric `labels`."""

    def __init__(self, estimator: Any, flat: bool, labels: Array | None = None) -> None:
        try:
            from sklearn.base import clone

            self.estimator = clone(estimator)
        except TypeError:
            self.estimator = copy.deepcopy(estimator)
        self.flat, self.labels = flat, labels
        self.begun = False
        self._before: Any
        self._rest: Any
        self._before, self._rest = (None, None) if flat else _divided(self.estimator)
        self.shared = None if self._before is None else (1, f"covariances {self._before}")
        for name in ("predict_proba", "decision_function"):
            if hasattr(self.estimator, name):
                setattr(self, name, self._asked(name))

    def first(self, x: Array) -> Array:
        """What the first step makes of windows, where it is one that learns nothing."""
        from neuroledger.families.decoding.pipelines.covariances import covariances

        return covariances(self._seen(x), self._before or "oas")

    def fit(self, x: Array, y: Array) -> _Copy:
        if self.labels is not None:
            order = np.argsort(self.labels.astype(str))
            y = self.labels[order][np.searchsorted(self.labels.astype(str)[order], y)]
        try:
            self._used.fit(self._seen(x), y)
        except ValueError as error:
            if self.flat:
                raise
            raise ValueError(
                f"{error} (x is (window, channel, sample); estimators of features take x.reshape(len(x), -1))"
            ) from error
        if hasattr(self._used, "classes_"):
            self.classes_ = self._used.classes_
        elif self.labels is not None:
            self.classes_ = np.unique(y)
        return self

    def predict(self, x: Array) -> Array:
        return np.asarray(self._used.predict(self._seen(x)))

    def _asked(self, name: str) -> Any:
        return lambda x: getattr(self._used, name)(self._seen(x))

    @property
    def _used(self) -> Any:
        return self._rest if self.begun else self.estimator

    def _seen(self, x: Array) -> Array:
        x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)
        return x[:, :, 0] if self.flat else x


def _divided(estimator: Any) -> tuple[Any, Any]:
    """Of a pipeline, or a search over one, that begins with pyriemann's covariances: their estimator, and the rest."""
    pipeline = getattr(estimator, "estimator", estimator)
    first: Any = pipeline[0] if type(pipeline).__name__ == "Pipeline" and len(pipeline) > 1 else None
    if type(first).__module__ != "pyriemann.estimation" or type(first).__name__ != "Covariances":
        return None, None
    name = pipeline.steps[0][0]
    grids = getattr(estimator, "param_grid", getattr(estimator, "param_distributions", {}))
    tried = {key for grid in ([grids] if isinstance(grids, Mapping) else grids) for key in grid}
    if first.kwds or not isinstance(first.estimator, str) or any(key.split("__")[0] == name for key in tried):
        return None, None
    if pipeline is estimator:
        return first.estimator, pipeline[1:]
    if not hasattr(estimator, "param_grid") and not hasattr(estimator, "param_distributions"):
        return None, None
    rest = copy.deepcopy(estimator)
    return first.estimator, rest.set_params(estimator=pipeline[1:])
