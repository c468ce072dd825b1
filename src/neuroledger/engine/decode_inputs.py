"""What is decoded, checked before anything is trained: signals, truth, facts about the windows, and what is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.core.decoding.decoder import Objective
from neuroledger.core.decoding.signals import check as check_signals
from neuroledger.core.decoding.signals import is_signals, signals
from neuroledger.errors import RequestError
from neuroledger.spec.catalog import open_definitions

__all__ = ["assembled", "cluster_of", "facts_of", "objective_of", "training_seeds"]

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


def facts_of(x: Array | xr.DataArray, groups: Any) -> tuple[dict[str, Array], list[str]]:
    """What is known about each window, as coordinates, and what a reader of the score must be told about it.

    Raises
    ------
    RequestError
        A fact has not one value for each window, or a missing one.
    """
    count = len(x)
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
    facts.setdefault("stimulus_id", np.array([f"window{row}" for row in range(count)]))
    facts.setdefault("recording", facts["subject"].astype(str))
    if "onset" in facts:
        return facts, []
    return facts, ["no onsets given: overlap was checked by shared samples only, not by time"]


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
        assembly = _from_array(np.asarray(x), facts, rate, start)
    truth = np.asarray(y)
    if truth.ndim == 0 or len(truth) != assembly.sizes["presentation"]:
        found = "is one value" if truth.ndim == 0 else f"has {len(truth)} values"
        raise RequestError(f"y {found} for {assembly.sizes['presentation']} windows")
    _check_truth(truth, objective, measure)
    return assembly, truth


def _from_array(values: Array, facts: dict[str, Array], rate: float, start: float) -> xr.DataArray:
    values = values[:, :, None] if values.ndim == 2 else values
    if values.ndim != 3:
        raise RequestError(f"x is (window, channel, sample) or (window, feature), not {values.shape}")
    if 0 in values.shape:
        raise RequestError(f"x is {values.shape}: there is nothing to decode from")
    if not rate > 0:
        raise RequestError(f"sampling_rate is {rate}: give it in Hz, above zero")
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


def cluster_of(assembly: xr.DataArray) -> str:
    """What was drawn independently: subjects if there are several, else recordings, trials, or single windows."""
    for name in ("subject", "recording", "trial"):
        if name in assembly.coords and len(np.unique(assembly[name].values.astype(str))) > 1:
            return name
    return "row"
