"""Recording: a model's responses to stimuli, and the recorded responses of a brain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.assembly import average_repetitions, select
from neuroledger.data.dataset import Dataset
from neuroledger.data.screen import spanning
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, RequestError
from neuroledger.families.alignment.preparation import Step, prepared
from neuroledger.families.alignment.responses import mean_responses
from neuroledger.families.alignment.simulated import simulated_recordings
from neuroledger.families.fields import AtLeastOne
from neuroledger.models.model import Model
from neuroledger.spec.registry import paradigm
from neuroledger.stats.splits import Split

__all__ = ["recording"]


def _asks(values: Mapping[str, object]) -> set[str]:
    return {f"responses:{values['region']}"} | (
        {"dynamics"} if values["varies_in_time"] else set()
    )


Condition = dict[
    str, str | int | float | list[str] | list[int] | list[float] | dict[str, float]
]


@paradigm(
    "recording",
    version=1,
    shows={"stimuli"},
    asks=_asks,
    itself=True,
    permuted="target",
    simulates=simulated_recordings,
)
def recording(
    model: Model,
    data: Dataset,
    *,
    region: str,
    time_bins: list[tuple[float, float]] | None = None,
    visual_degrees: PositiveFloat | None = None,
    trials: AtLeastOne = 1,
    screen: Literal["visual_degrees", "as_is"] = "visual_degrees",
    prepare: tuple[Step, ...] = (),
    prepare_model: tuple[Step, ...] = (),
    prepare_target: tuple[Step, ...] = (),
    train: Condition | None = None,
    test: Condition | None = None,
    ceiling_from: Literal["all", "test"] = "all",
    varies_in_time: bool = False,
) -> Measurement:
    """Record the model's ``region``, and pair the responses with those of the data, one row per stimulus.

    Parameters
    ----------
    model, data
        The model, and the data set. The model is shown the stimuli of the assembly, in the order of the assembly.
    region
        The model's region to record from.
    time_bins
        Bins in ms from stimulus onset. None: those of the assembly, if it has a time dimension.
    visual_degrees
        Size at which the stimuli were shown, if the stimulus set does not state it.
    trials
        Number of presentations of each stimulus to a model whose responses vary; the responses are averaged.
    screen
        ``as_is`` shows the unchanged stimulus files, regardless of the visual angle that they span.
    prepare, prepare_model, prepare_target
        Steps that are applied to the data before repetitions are averaged, to the model's responses, and to the averaged
        data. The ceiling does not use ``prepare_target``: it can average the subjects' voxels although the ceiling is
        estimated between subjects.
    train, test
        Conditions on presentation coordinates that select the train and the test rows, for a predefined split.
    ceiling_from
        ``test``: the ceiling of a predefined split is estimated from the test presentations only.
    varies_in_time
        Refuse models whose responses do not vary in time.

    Returns
    -------
    Measurement
        ``source`` and ``target`` ``(presentation, neuroid[, time_bin])`` with repetitions averaged, rows in the order
        of Brain-Score's averaged assemblies; ``repeated`` is the target before averaging.

    Raises
    ------
    RequestError
        The model's responses do not vary in time, or train and test are invalid.
    DataError
        The data set has no assembly, no presentations or no stimuli.
    """
    if data.assembly is None:
        raise DataError(f"data set {data.id!r} has no assembly to compare with")
    recorded = data.assembly
    steps = repr(prepare)
    repeated = data.once(
        f"prepared {steps}",
        lambda: prepared(recorded, prepare, name=f"data set {data.id!r}"),
    )
    if not {"presentation", "stimulus"} & set(repeated.dims):
        dims = ", ".join(map(str, repeated.dims))
        raise DataError(
            f"data set {data.id!r} has no presentations to compare responses to: its dimensions are ({dims})"
        )
    if "stimulus" in repeated.dims:
        if train is not None or test is not None:
            raise RequestError(
                "a data set of RDMs has no presentations to divide into train and test"
            )
        ids = list(map(str, repeated["stimulus_id"].values))
        target = repeated
        bins = time_bins
    else:
        target = repeated
        if "repetition" in repeated.coords:
            target = data.once(
                f"averaged {steps}", lambda: average_repetitions(repeated)
            )
        ids = list(dict.fromkeys(map(str, target["stimulus_id"].values)))
        bins = time_bins if time_bins is not None else _bins_of(target)
    if varies_in_time and len(bins or []) < 2:
        raise RequestError(
            "responses over time need at least two time bins: give the paradigm its `time_bins`"
        )
    if data.stimuli is None:
        raise DataError(f"data set {data.id!r} has no stimuli to show to a model")
    stimuli = spanning(data.stimuli.select(ids), visual_degrees, screen)
    source = mean_responses(model, stimuli, region, bins, trials)
    if varies_in_time and not _varies_over_time(source):
        raise RequestError(
            f"the responses of model {model.id!r} are the same in all {len(bins or [])} time bins, and this benchmark asks "
            "how responses develop: score a model that answers in steps, with its time bins as `times` "
            "(`varies_in_time=True` for a Brain-Score object)"
        )
    if bins is not None and len(bins) == 1 and "time_bin" not in target.dims:
        source = source.isel(time_bin=0)
    target = prepared(target, prepare_target, name=f"the means of data set {data.id!r}")
    source = prepared(
        source, prepare_model, name=f"the responses of model {model.id!r}"
    )
    if ceiling_from == "test":
        if test is None:
            raise RequestError("`ceiling_from: test` needs `train` and `test`")
        repeated = select(repeated, test, name="test")
    return Measurement(
        source, target, repeated, splits=_predefined_split(target, train, test)
    )


def _varies_over_time(response: xr.DataArray) -> bool:
    """Whether any response in a later time bin differs from that in the first."""
    ordered = response.transpose("time_bin", ...)
    return any(
        bool((ordered[later] != ordered[0]).any()) for later in range(1, len(ordered))
    )


def _bins_of(assembly: xr.DataArray) -> list[tuple[float, float]] | None:
    if "time_bin" not in assembly.dims:
        return None
    starts = assembly["time_bin_start"].values
    ends = assembly["time_bin_end"].values
    return [(float(start), float(end)) for start, end in zip(starts, ends, strict=True)]


def _predefined_split(
    target: xr.DataArray,
    train: Mapping[str, object] | None,
    test: Mapping[str, object] | None,
) -> list[Split] | None:
    if train is None and test is None:
        return None
    if train is None or test is None:
        raise RequestError("a predefined split needs both `train` and `test`")
    rows = target.assign_coords(
        row=("presentation", np.arange(target.sizes["presentation"]))
    )
    parts = [
        select(rows, part, name=name)["row"].values
        for part, name in ((train, "train"), (test, "test"))
    ]
    shared = np.intersect1d(
        target["stimulus_id"].values[parts[0]].astype(str),
        target["stimulus_id"].values[parts[1]].astype(str),
    )
    if shared.size:
        raise RequestError(
            f"{shared.size} stimuli are in both train and test (first {str(shared[0])!r})"
        )
    return [Split(parts[0].astype(np.intp), parts[1].astype(np.intp))]
