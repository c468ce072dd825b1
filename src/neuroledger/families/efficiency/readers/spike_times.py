"""Reader of labelled spike trains as times and units in HDF5, counted in bins, in a temporary file if they are many."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field, PositiveFloat, PositiveInt

from neuroledger.data.arrays import Array, Floats, Indices, Strings
from neuroledger.data.dataset import Dataset
from neuroledger.data.hdf5 import array, opened, variable
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

if TYPE_CHECKING:
    import h5py

__all__ = ["spike_times"]

Counts = npt.NDArray[np.uint8]

IN_MEMORY: Final = 1 << 28
"""Maximum bytes of counts in memory."""
AT_ONCE: Final = 256
MOST: Final = 255


class Trains(NamedTuple):
    """The spike trains of one open file, read a few at a time, with their labels and speakers."""

    path: Path
    part: str
    times: h5py.Dataset | Sequence[Array]
    units: h5py.Dataset | Sequence[Array]
    labels: Strings
    speakers: Strings


@reader("spike_times", version=1)
def spike_times(
    files: Mapping[str, Path],
    *,
    parts: Mapping[str, str],
    units: Annotated[int, Field(gt=0, le=100_000)] = 700,
    pool: PositiveInt = 1,
    bin_width: PositiveFloat = 10.0,
    duration: PositiveFloat = 1400.0,
    count: Literal["spikes", "presence"] = "spikes",
) -> Dataset:
    """Read counts (presentation, neuroid, time_bin) of files in the layout of the Spiking Heidelberg Digits [cramer2022].

    A file has ``spikes/times`` (s) and ``spikes/units``, a row of any length for each presentation, ``labels`` with class
    numbers, ``extra/keys`` with the names of the classes and optionally ``extra/speaker``. Its name may end in ``.gz``.
    Counts are limited to 255. More than 256 MiB of counts are stored in an unnamed temporary file and read on demand.

    Parameters
    ----------
    files, parts
        The file of each part: ``{train: a.h5, test: b.h5}``.
    units, pool
        Number of units, and the number of neighbours that are summed to one neuroid.
    bin_width, duration
        Width of a time bin, and the duration of all bins, in ms.
    count
        ``spikes`` in a bin, or their ``presence``: 0 or 1.

    Raises
    ------
    DataError
        A file is damaged or has another layout, a unit or a time exceeds the declared range, a presentation has no
        label, or there is no space for the counts.
    """
    bins = round(duration / bin_width)
    if abs(bins * bin_width - duration) > 1e-6 or bins < 1:
        raise DataError(
            f"`duration` must be a multiple of `bin_width`: {duration:g} ms are not a number of bins of {bin_width:g} ms"
        )
    if units % pool:
        raise DataError(
            f"`pool` must divide the number of units: {units} units do not form groups of {pool}"
        )
    mismatch = sorted(set(parts.values()) ^ set(files))
    if mismatch:
        raise DataError(
            f"`parts` and the spec's `files` must name the same files, but differ in {', '.join(mismatch)}"
        )
    with ExitStack() as stack:
        trains = [
            _open_trains(stack.enter_context(opened(files[name])), files[name], part)
            for part, name in parts.items()
        ]
        shape = (
            sum(len(part_trains.labels) for part_trains in trains),
            units // pool,
            bins,
        )
        counts = _allocate(shape)
        offset = 0
        for part_trains in trains:
            for first in range(0, len(part_trains.labels), AT_ONCE):
                batch = _count_spikes(
                    part_trains,
                    first,
                    units,
                    pool,
                    bin_width,
                    bins,
                    count == "presence",
                )
                counts[offset : offset + len(batch)] = batch
                offset += len(batch)
    neuroids = np.arange(0, units, pool)
    starts = np.arange(bins) * bin_width
    ids = [
        f"{part_trains.part}_{row:05d}"
        for part_trains in trains
        for row in range(len(part_trains.labels))
    ]
    assembly = xr.DataArray(
        counts,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            "label": (
                "presentation",
                np.concatenate([part_trains.labels for part_trains in trains]),
            ),
            "speaker": (
                "presentation",
                np.concatenate([part_trains.speakers for part_trains in trains]),
            ),
            "split": (
                "presentation",
                np.repeat(
                    [part_trains.part for part_trains in trains],
                    [len(part_trains.labels) for part_trains in trains],
                ),
            ),
            "neuroid_id": ("neuroid", [f"unit_{first:03d}" for first in neuroids]),
            "first_unit": ("neuroid", neuroids),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + bin_width),
        },
    )
    return Dataset(stimuli=None, assembly=assembly)


def _open_trains(file: h5py.File, path: Path, part: str) -> Trains:
    import h5py

    times = variable(file, "spikes/times", path)
    units = variable(file, "spikes/units", path)
    for dataset in (times, units):
        if h5py.check_vlen_dtype(dataset.dtype) is None or dataset.ndim != 1:
            raise DataError(
                f"{path.name}: {dataset.name} does not have rows of variable length"
            )
    numbers = array(variable(file, "labels", path), path)
    if (
        numbers.ndim != 1
        or numbers.dtype.kind not in "iu"
        or not len(times) == len(units) == len(numbers)
    ):
        raise DataError(
            f"{path.name}: {len(times)} rows of times, {len(units)} of units and labels {numbers.shape} of type "
            f"{numbers.dtype}: each presentation needs one of each"
        )
    names = [
        key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
        for key in array(variable(file, "extra/keys", path), path).ravel().tolist()
    ]
    if not len(numbers) or numbers.min() < 0 or numbers.max() >= len(names):
        raise DataError(
            f"{path.name}: labels are not within 0 to {len(names) - 1}, the numbers of its classes"
        )
    speaker_data = file.get("extra/speaker")
    speakers = (
        array(speaker_data, path).astype(str)
        if speaker_data is not None
        else np.full(len(numbers), "unknown", dtype=np.str_)
    )
    if speakers.shape != numbers.shape:
        raise DataError(
            f"{path.name}: {speakers.shape} speakers for {len(numbers)} presentations"
        )
    return Trains(path, part, times, units, np.array(names)[numbers], speakers)


def _count_spikes(
    trains: Trains,
    first: int,
    units: int,
    pool: int,
    bin_width: float,
    bins: int,
    presence: bool,
) -> Counts:
    """Return the counts (presentation, neuroid, bin) of up to ``AT_ONCE`` presentations from ``first`` on."""
    rows = slice(first, first + AT_ONCE)
    try:
        times = trains.times[rows]
        units_of_rows = trains.units[rows]
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{trains.path.name}: presentations from {first} on cannot be read ({error}); fetch the file again"
        ) from error
    counts = np.empty((len(times), units // pool, bins), dtype=np.uint8)
    most = 1 if presence else MOST
    for row, (train_times, train_units) in enumerate(
        zip(times, units_of_rows, strict=True)
    ):
        unit = train_units.astype(np.int64)
        ms = train_times.astype(np.float64) * 1000
        where = f"{trains.path.name}: presentation {first + row}"
        _require_in_range(unit, ms, units, bins * bin_width, where)
        time_bin = np.minimum(ms / bin_width, bins - 1).astype(np.int64)
        flat_index = unit // pool * bins + time_bin
        unit_counts = np.bincount(flat_index, minlength=counts[row].size)
        counts[row] = np.minimum(unit_counts, most).reshape(counts[row].shape)
    return counts


def _require_in_range(
    unit: Indices, ms: Floats, units: int, duration: float, where: str
) -> None:
    """Require a unit for each time, and that all are within the declared ranges."""
    if len(ms) != len(unit):
        raise DataError(f"{where} has {len(ms)} times for {len(unit)} units")
    if not len(unit):
        return
    if unit.min() < 0 or unit.max() >= units:
        wrong = int(unit.max() if unit.max() >= units else unit.min())
        raise DataError(
            f"{where} has a spike of unit {wrong}; units are 0 to {units - 1}"
        )
    if not (ms.min() >= 0 and ms.max() < duration):
        raise DataError(
            f"{where} has spikes from {ms.min():g} to {ms.max():g} ms; `duration` is {duration:g} ms"
        )


def _allocate(shape: tuple[int, int, int]) -> Counts:
    """Return an array of zeros: in memory, or a map of a file that is deleted with its last reference."""
    size = int(np.prod(shape))
    if size <= IN_MEMORY:
        return np.zeros(shape, dtype=np.uint8)
    try:
        with tempfile.TemporaryFile(prefix="neuroledger-") as file:
            if hasattr(
                os, "posix_fallocate"
            ):  # detects a full disk here, not while writing
                os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype=np.uint8, mode="w+", shape=shape)
    except OSError as error:
        raise DataError(
            f"{size / 1024**3:.1f} GiB of counts do not fit into {tempfile.gettempdir()} ({error.strerror}): set "
            "TMPDIR to a folder on a larger disk, or use wider bins or a higher `pool`"
        ) from error
