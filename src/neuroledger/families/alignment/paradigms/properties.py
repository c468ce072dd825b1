"""Properties: the tuning of a model's neuroids, measured as in a study of neurons, and the neurons' tuning."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.arrays import Floats, floats
from neuroledger.data.dataset import Dataset
from neuroledger.data.factorize import coordinate
from neuroledger.data.screen import spanning
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError
from neuroledger.families.alignment.responses import mean_responses
from neuroledger.families.alignment.simulated import simulated_properties
from neuroledger.families.alignment.tuning.receptive_fields import centres
from neuroledger.families.alignment.tuning.studies import grating_grid, property_table
from neuroledger.families.fields import AtLeastOne
from neuroledger.models.model import Model
from neuroledger.spec.registry import paradigm

__all__ = ["properties"]

Bins = list[tuple[float, float]]
# Spikes/s of V1 neurons (Ringach et al., 2002): medians of the largest and of the spontaneous rate, and the largest rate
# of all; and the response above baseline from which a neuron counts as responsive.
MEDIAN_MAXIMUM, MEDIAN_SPONTANEOUS, MAXIMUM, RESPONSIVE = 33.8, 0.82, 243.1, 5.0


@paradigm(
    "properties",
    version=1,
    shows={"stimuli"},
    asks=lambda values: {f"responses:{values['region']}"},
    itself=False,
    permuted=None,
    simulates=simulated_properties,
)
def properties(
    model: Model,
    data: Dataset,
    *,
    study: Literal[
        "orientation",
        "preferred_orientation",
        "peak_frequency",
        "frequency_selectivity",
        "size",
        "texture",
    ],
    region: str = "V1",
    blank: str = "blank",
    receptive_fields: str | None = None,
    within: PositiveFloat = 0.15,
    rates: str | None = None,
    time_bins: Bins | None = None,
    trials: AtLeastOne = 1,
    visual_degrees: PositiveFloat | None = None,
) -> Measurement:
    """Measure properties of the model's neuroids, and pair them with those of the neurons, both ``(neuroid, property)``.

    Parameters
    ----------
    model, data
        The model, and the data set: its stimuli are those of the study, with their parameters in the table; its assembly
        contains the neurons' properties. Additional stimulus sets are named below.
    study
        The study, which determines the properties and their definitions.
    region
        The model's region to record from.
    blank
        The stimulus set with a blank screen, for the baseline.
    receptive_fields, within
        The stimulus set of small gratings at many positions that maps receptive fields; neuroids whose centre is more
        than ``within`` degrees from the study's stimuli are left out. None: all neuroids are used.
    rates
        The stimulus set of gratings (``study``: the study's stimuli) for scaling responses to spikes/s, such that the
        medians of the largest and the spontaneous response are those of V1. None: responses are in spikes/s already.
    time_bins, trials, visual_degrees
        As in the paradigm ``recording``; time bins are averaged.

    Raises
    ------
    DataError
        A stimulus set or a parameter is missing, or no neuroid can be measured.

    Notes
    -----
    Marques, Schrimpf and DiCarlo (2021).
    """
    if data.assembly is None or data.stimuli is None:
        raise DataError(
            f"data set {data.id!r} lacks the neurons' properties or the stimuli to measure a model's with"
        )

    def record(stimuli: StimulusSet) -> xr.DataArray:
        return _record(model, stimuli, region, time_bins, trials, visual_degrees)

    measured = record(data.stimuli)
    empty = record(_extra_stimuli(data, blank))
    notes: tuple[str, ...] = ()
    keep = np.arange(measured.sizes["neuroid"])
    if receptive_fields is not None:
        positions = centres(
            record(_extra_stimuli(data, receptive_fields)), _mean(empty)
        )
        distance = np.hypot(*(positions - _position(data.stimuli)).T)
        keep = np.flatnonzero(distance <= within)
        notes = (
            f"{keep.size} of {len(positions)} neuroids are within {within:g} degrees of the stimuli",
        )
        if not keep.size:
            raise DataError(
                f"no neuroid of model {model.id!r} is centred within {within:g} degrees of the stimuli"
            )
    measured = measured.isel(neuroid=keep)
    empty = empty.isel(neuroid=keep)
    slope, offset = 1.0, 0.0
    if rates is not None:
        gratings = (
            measured
            if rates == "study"
            else record(_extra_stimuli(data, rates)).isel(neuroid=keep)
        )
        slope, offset = _fit_spike_rates(gratings, _mean(empty))
    responses = measured.copy(data=np.maximum(slope * measured.values + offset, 0.0))
    baseline = np.maximum(slope * _mean(empty) + offset, 0.0)
    source = property_table(study, responses, baseline)
    return Measurement(source, data.assembly, data.assembly, notes=notes)


def _extra_stimuli(data: Dataset, name: str) -> StimulusSet:
    if name not in data.extra_stimuli:
        known = ", ".join(data.extra_stimuli) or "none"
        raise DataError(
            f"data set {data.id!r} has no stimulus set {name!r}; known: {known}"
        )
    return data.extra_stimuli[name]


def _record(
    model: Model,
    stimuli: StimulusSet,
    region: str,
    bins: Bins | None,
    trials: int,
    visual_degrees: float | None,
) -> xr.DataArray:
    """Responses ``(presentation, neuroid)`` without negative values, with the columns of the stimulus table."""
    presented = spanning(stimuli, visual_degrees)
    recorded = mean_responses(model, presented, region, bins, trials, over_time=True)
    recorded = recorded.transpose("presentation", "neuroid")
    rows = stimuli.table.set_index(stimuli.table["stimulus_id"].astype(str)).loc[
        recorded["stimulus_id"].values.astype(str)
    ]
    columns = [
        str(name) for name in rows.columns if name not in {"stimulus_id", "filename"}
    ]
    recorded = recorded.assign_coords(
        {name: ("presentation", rows[name].to_numpy()) for name in columns}
    )
    return recorded.copy(data=np.maximum(floats(recorded.values), 0.0))


def _mean(assembly: xr.DataArray) -> Floats:
    return floats(assembly.values.mean(axis=0))


def _position(stimuli: StimulusSet) -> Floats:
    """Position of the study's stimuli, ``(y, x)`` in degrees."""
    position = []
    for name in ("position_y", "position_x"):
        if name in stimuli.table:
            values = stimuli.table[name].unique()
        else:
            values = np.zeros(1)
        if len(values) != 1:
            raise DataError(
                f"stimuli {stimuli.id!r} have {len(values)} values of {name}; a study needs one position"
            )
        position.append(float(values[0]))
    return np.asarray(position)


def _fit_spike_rates(gratings: xr.DataArray, blank: Floats) -> tuple[float, float]:
    """Slope and offset that map the model's median responses to those of V1 neurons.

    Raises
    ------
    DataError
        No neuroid responds to the gratings.
    """
    if coordinate(gratings, "phase") is None:
        raise DataError("scaling to spikes/s needs gratings of several phases")
    mean = grating_grid(gratings).responses.mean(axis=-1)
    strongest = mean.reshape(len(mean), -1).max(axis=1)
    above = strongest - blank
    responsive = above > RESPONSIVE / MAXIMUM * above.max()
    rise = (
        float(np.median(strongest[responsive]) - np.median(blank[responsive]))
        if responsive.any()
        else 0.0
    )
    if not rise > 0:
        raise DataError(
            "no neuroid responds to gratings more than to a blank screen, so there is no scale to spikes/s"
        )
    slope = (MEDIAN_MAXIMUM - MEDIAN_SPONTANEOUS) / rise
    return slope, MEDIAN_SPONTANEOUS - slope * float(np.median(blank[responsive]))
