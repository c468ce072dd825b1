"""Spike rasters of single neurons, one MATLAB file each, as a pseudo-population of trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Strings
from neuroledger.data.dataset import Dataset
from neuroledger.data.factorize import encode
from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["raster_trials"]

Positive = Annotated[int, Field(gt=0)]


@reader("raster_trials", version=1)
def raster_trials(
    files: Mapping[str, Path],
    *,
    onset: Annotated[int, Field(ge=0)] = 500,
    width: Positive = 150,
    step: Positive = 50,
    region: str = "IT",
    labels: tuple[str, str] = ("stimulus_ID", "stimulus_position"),
) -> Dataset:
    """Read binned firing rates, ``(presentation, neuroid, time_bin)``, from binary rasters at 1 ms.

    Each file contains one neuron: ``raster_data`` (trial, ms) and ``raster_labels``. The neurons were not recorded
    simultaneously: presentation ``k`` of a stimulus is each neuron's ``k``-th trial of it, NaN for a neuron with fewer
    trials. The value of a bin is the mean of the raster over ``[start, start + width)`` ms from onset.

    Parameters
    ----------
    files
        One MATLAB file for each neuron.
    onset
        Column of the raster at stimulus onset.
    width, step
        Width of the bins and interval between their starts, in ms; the first bin starts at the beginning of the raster.
    region
        The region of the neurons.
    labels
        Names of the fields of the labels with the object and the position.

    Raises
    ------
    DataError
        A file is not a MATLAB file, or contains no raster.
    """
    neurons = [_read_neuron(files[name], labels) for name in sorted(files)]
    if not neurons:
        raise DataError("there are no rasters to read")
    duration = min(raster.shape[1] for raster, _, _ in neurons)
    starts = np.arange(0, duration - width + 1, step)
    stimuli = encode(
        np.concatenate([np.char.add(np.char.add(a, "_"), b) for _, a, b in neurons])
    )
    repetitions = max(
        int(np.unique(_keys(a, b), return_counts=True)[1].max()) for _, a, b in neurons
    )
    values = np.full(
        (len(stimuli.labels), repetitions, len(neurons), len(starts)), np.nan
    )
    for column, (raster, objects, positions) in enumerate(neurons):
        sums = np.concatenate(
            [np.zeros((len(raster), 1)), np.cumsum(raster, axis=1, dtype=np.float64)],
            axis=1,
        )
        binned = (sums[:, starts + width] - sums[:, starts]) / width
        stimulus_rows = np.searchsorted(stimuli.labels, _keys(objects, positions))
        order = np.argsort(stimulus_rows, kind="stable")
        first = np.searchsorted(stimulus_rows[order], stimulus_rows[order])
        values[stimulus_rows[order], np.arange(len(order)) - first, column] = binned[
            order
        ]
    ids = np.repeat(stimuli.labels.astype(str), repetitions)
    parts = np.char.partition(ids, "_")
    assembly = xr.DataArray(
        values.reshape(-1, len(neurons), len(starts)),
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            "object_name": ("presentation", parts[:, 0]),
            "position": ("presentation", parts[:, 2]),
            "repetition": (
                "presentation",
                np.tile(np.arange(repetitions), len(stimuli.labels)),
            ),
            "neuroid_id": (
                "neuroid",
                [name.split("_raster")[0] for name in sorted(files)],
            ),
            "region": ("neuroid", np.full(len(neurons), region)),
            "time_bin_start": ("time_bin", (starts - onset).astype(np.float64)),
            "time_bin_end": ("time_bin", (starts - onset + width).astype(np.float64)),
        },
        attrs={"units": "spikes per ms"},
    )
    return Dataset(stimuli=None, assembly=assembly)


def _keys(objects: Strings, positions: Strings) -> Strings:
    return np.char.add(np.char.add(objects, "_"), positions)


def _read_neuron(
    path: Path, labels: tuple[str, str]
) -> tuple[npt.NDArray[np.uint8], Strings, Strings]:
    with parsing(path, f"a raster with the labels {' and '.join(labels)}"):
        variables = matlab(path, "raster_data", "raster_labels", structs="squeezed")
        raster = variables["raster_data"]
        label_columns = variables["raster_labels"]
        columns = [
            np.asarray(label_columns[name].item()).astype(str) for name in labels
        ]
    if raster.ndim != 2 or any(len(column) != len(raster) for column in columns):
        raise DataError(
            f"{path.name}: {raster.shape} raster for {list(map(len, columns))} labels"
        )
    return raster, columns[0], columns[1]
