"""Reader of spikes of one neuron during long sounds, as text, with the envelope of each sound in the same time bins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.arrays import Floats, Indices, floats
from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import parsing
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import reader

__all__ = ["Recording", "envelope_spikes"]


MICROSECONDS: Final = 1000
"""Microseconds in a millisecond."""
HEADER: Final = re.compile(r"#\s*([^:]+?)\s*:\s*(.*?)\s*$")
REPETITION: Final = "repetition number"


class Recording(Frozen):
    """Names of the two files of a recording: the envelope of its sound, and the spike times."""

    envelope: str
    spikes: str


class Spikes(NamedTuple):
    """Fields of the header by name, and the spike times (µs) of each repetition."""

    header: dict[str, str]
    repetitions: list[Floats]


@reader("envelope_spikes", version=1)
def envelope_spikes(
    files: Mapping[str, Path],
    *,
    recordings: Mapping[str, Recording],
    neuroid: str,
    region: str,
    subject: str,
    bin_width: PositiveFloat = 5.0,
    properties: Mapping[str, str] | None = None,
) -> Dataset:
    """Read spike counts (presentation, neuroid, time_bin), and the mean envelope of each sound in the same bins.

    A file of an envelope has two columns: the time (µs) in equal steps from 0, and the amplitude. A file of spikes has one
    time (µs) in each line, and lines ``# name: value``, of which ``# repetition number: …`` begins the next repetition.

    Parameters
    ----------
    files
        Paths by the names in the spec.
    recordings
        The files of each recording; its name is the id of the sound.
    neuroid, region, subject
        Id of the neuron, and the coordinates of the same names.
    bin_width
        Width of a time bin in ms: a whole number of samples of the envelope, and a whole fraction of its duration.
    properties
        Coordinates of presentations from headers of the spikes, all numbers: ``{intensity_db: intensity (dB)}``.

    Returns
    -------
    Dataset
        The assembly; the sounds as a table without files; and under ``extras["envelope"]`` the envelopes (presentation,
        neuroid, time_bin), one presentation for each sound and one "neuroid", ``envelope``.

    Raises
    ------
    DataError
        A file is not declared or has another format, the sounds differ in duration, a bin does not fit, a spike is outside
        the sound, or a header lacks a property.
    """
    if not recordings:
        raise DataError("`recordings` names no recording")
    wanted = {
        name
        for recording in recordings.values()
        for name in (recording.envelope, recording.spikes)
    }
    if missing := sorted(wanted - set(files)):
        known = ", ".join(sorted(files))
        raise DataError(
            f"the reader needs the file {missing[0]!r}; declared files are {known}"
        )
    envelopes = [
        _read_envelope(files[each.envelope], bin_width) for each in recordings.values()
    ]
    sizes = sorted(set(map(len, envelopes)))
    if len(sizes) > 1:
        raise DataError(
            f"the sounds last from {sizes[0] * bin_width:g} to {sizes[-1] * bin_width:g} ms: "
            "read those of one duration"
        )
    bins = sizes[0]
    counts = []
    rows = []
    for id, recording in recordings.items():
        path = files[recording.spikes]
        spikes = _read_spikes(path)
        described = {
            name: _number(spikes.header, field, path)
            for name, field in (properties or {}).items()
        }
        for repetition, times in enumerate(spikes.repetitions):
            counts.append(_count(times, bin_width, bins, path))
            rows.append({"stimulus_id": id, "repetition": repetition, **described})
    table = pd.DataFrame(rows)
    assembly = xr.DataArray(
        np.stack(counts)[:, None, :].astype(np.float64),
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            **{str(name): ("presentation", _column(table[name])) for name in table},
            "neuroid_id": ("neuroid", [neuroid]),
            "region": ("neuroid", [region]),
            "subject": ("neuroid", [subject]),
            **_bins(bins, bin_width),
        },
        attrs={"units": "spikes"},
    )
    envelope = xr.DataArray(
        np.stack(envelopes)[:, None, :],
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", list(recordings)),
            "neuroid_id": ("neuroid", ["envelope"]),
            **_bins(bins, bin_width),
        },
    )
    sounds = (
        table.drop_duplicates("stimulus_id")
        .drop(columns="repetition")
        .reset_index(drop=True)
    )
    return Dataset(
        StimulusSet("sounds", sounds), assembly, extras={"envelope": envelope}
    )


def _read_envelope(path: Path, bin_width: float) -> Floats:
    """Return the mean amplitude in each bin."""
    with parsing(path, "two columns of numbers"):
        times, amplitudes = np.loadtxt(path, dtype=np.float64, ndmin=2, unpack=True)
    if len(times) < 2 or times[0] != 0 or not np.isfinite(amplitudes).all():
        raise DataError(
            f"{path.name} is not an envelope: times begin at 0 µs, and all amplitudes are finite"
        )
    step = times[1]
    if step <= 0 or not np.array_equal(times, np.arange(len(times)) * step):
        raise DataError(f"{path.name} has times that are not in equal steps from 0 µs")
    samples = round(bin_width * MICROSECONDS / step)
    if (
        samples < 1
        or samples * step != bin_width * MICROSECONDS
        or len(times) % samples
    ):
        raise DataError(
            f"bins of {bin_width:g} ms do not divide {path.name}: {len(times)} samples, one in {step:g} µs"
        )
    means: Floats = amplitudes.reshape(-1, samples).mean(axis=1)
    return means


def _read_spikes(path: Path) -> Spikes:
    header: dict[str, str] = {}
    repetitions: list[list[float]] = []
    with parsing(path, "spike times"):
        for line in path.read_text(encoding="ascii").splitlines():
            if field := HEADER.match(line):
                if field[1] == REPETITION:
                    repetitions.append([])
                else:
                    header[field[1]] = field[2]
            elif line.strip():
                if not repetitions:
                    raise DataError(
                        f"{path.name} has a spike before the line '# {REPETITION}: …'"
                    )
                repetitions[-1].append(float(line))
    if not repetitions:
        raise DataError(f"{path.name} has no line '# {REPETITION}: …'")
    return Spikes(header, list(map(floats, repetitions)))


def _count(times: Floats, bin_width: float, bins: int, path: Path) -> Indices:
    """Return the number of spikes in each bin; a spike at the edge of two bins belongs to the later one."""
    duration = bins * bin_width * MICROSECONDS
    outside = ~((times >= 0) & (times < duration))
    if outside.any():
        first = times[int(outside.argmax())]
        raise DataError(
            f"{path.name} has a spike at {first:g} µs, but the sound lasts {duration:g} µs"
        )
    rows = np.floor_divide(times, bin_width * MICROSECONDS).astype(np.intp)
    return np.bincount(rows, minlength=bins)


def _number(header: Mapping[str, str], field: str, path: Path) -> float:
    if field not in header:
        raise DataError(
            f"{path.name} has no header {field!r}; it has {', '.join(header) or 'none'}"
        )
    try:
        return float(header[field])
    except ValueError:
        raise DataError(
            f"{path.name}: the header {field!r} is {header[field]!r}, not a number"
        ) from None


def _column(values: pd.Series) -> npt.NDArray[np.generic]:
    """Return numbers unchanged, and text with a fixed width."""
    column = values.to_numpy()
    if column.dtype.kind in "if":
        return column
    return column.astype(str)


def _bins(bins: int, bin_width: float) -> dict[str, tuple[str, Floats]]:
    edges: Floats = np.arange(bins + 1, dtype=np.float64) * bin_width
    return {
        "time_bin_start": ("time_bin", edges[:-1]),
        "time_bin_end": ("time_bin", edges[1:]),
    }
