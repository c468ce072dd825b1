"""What is decoded, checked before anything is trained: signals, truth, facts about the windows, and what is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.errors import RequestError
from neuroledger.families.decoding.protocols.decoder import Objective
from neuroledger.families.decoding.protocols.min_unique_run import run_length
from neuroledger.families.decoding.protocols.splits import Fold
from neuroledger.families.signals.signals import check as check_signals
from neuroledger.families.signals.signals import is_signals, signals
from neuroledger.spec.catalog import open_definitions

__all__ = [
    "assembled",
    "cluster_of",
    "facts_of",
    "objective_of",
    "overlap_said",
    "people_seen",
    "told",
    "training_seeds",
    "trials_named",
]

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
    """What is known about each window, as coordinates, and what a reader of the score must be told about it.

    Windows without a `recording` are told apart by subject, session and run, as far as these are known: the onsets of
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
        raise RequestError(f"y has one class, {str(truth[0])!r}: there is nothing to tell apart")


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


def overlap_said(notes: list[str], assembly: xr.DataArray) -> list[str]:
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
