"""Time of a stimulus and of a recording: bins, rates, delays and the haemodynamic response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Indices, floats
from neuroledger.errors import MetricError

__all__ = [
    "Rows",
    "bin_width",
    "convolved",
    "delayed",
    "haemodynamic_response",
    "resampled",
    "rows_of_runs",
]

MILLISECONDS: Final = 1000.0
# Length of the haemodynamic response, in s.
RESPONSE_LENGTH: Final = 32.0
# Shapes of the gamma densities of the response and of its undershoot, and the ratio of both.
RESPONSE, UNDERSHOOT, RATIO = 6.0, 16.0, 6.0
# Bins whose widths differ by less than this share are equal.
ROUNDING = 1e-6


class Rows(NamedTuple):
    """Bins of all runs one after the other: values (row × unit), and the run and bin of each row."""

    values: Floats
    run: Indices
    bin: Indices


def bin_width(assembly: xr.DataArray, name: str) -> float:
    """Return the width of the time bins in ms; they follow each other without gaps.

    Raises
    ------
    MetricError
        The bins have no start and end, differ in width, or leave gaps.
    """
    for edge in ("time_bin_start", "time_bin_end"):
        if edge not in assembly.coords:
            raise MetricError(
                f"the {name} needs the coordinates time_bin_start and time_bin_end (ms) on `time_bin`"
            )
    start, end = (
        floats(assembly[f"time_bin_{edge}"].values) for edge in ("start", "end")
    )
    widths = end - start
    width = float(widths[0])
    slack = ROUNDING * abs(width)
    differ = np.abs(widths - width).max()
    gap = np.abs(start[1:] - end[:-1]).max(initial=0.0)
    if width <= 0 or differ > slack or gap > slack:
        raise MetricError(
            f"the time bins of the {name} must follow each other and be equally wide; prepare it with bins of one width"
        )
    return width


def resampled(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Return the source (presentation, neuroid, time_bin) in the bins of the target: means over the bins within each.

    Raises
    ------
    MetricError
        The rates do not fit: a bin of the target is not a whole number of bins of the source, or the source ends
        earlier or begins later.
    """
    factor = _factor(source, target)
    first = _offset(source, target)
    wanted = target.sizes["time_bin"] * factor
    if first is None or first + wanted > source.sizes["time_bin"]:
        raise MetricError(
            f"the source lasts {_extent(source)} and the target {_extent(target)}: the source must cover the "
            "target, with edges "
            "of bins in common"
        )
    part = source.isel(time_bin=slice(first, first + wanted))
    if factor == 1:
        return part
    return _averaged(part, factor, target)


def _factor(source: xr.DataArray, target: xr.DataArray) -> int:
    """Return the number of bins of the source in a bin of the target."""
    fine = bin_width(source, "source")
    coarse = bin_width(target, "target")
    factor = round(coarse / fine)
    rest = abs(factor * fine - coarse)
    if factor < 1 or rest > ROUNDING * coarse:
        raise MetricError(
            f"rates do not fit: bins of the source last {fine:g} ms and bins of the target {coarse:g} ms; record "
            "or average the "
            "features so that a bin of the target is a whole number of theirs"
        )
    return factor


def _offset(source: xr.DataArray, target: xr.DataArray) -> int | None:
    """Return the bin of the source with which the target begins, or None if none begins there."""
    width = bin_width(source, "source")
    begin = float(source["time_bin_start"].values[0])
    late = float(target["time_bin_start"].values[0]) - begin
    offset = round(late / width)
    is_edge = abs(offset * width - late) <= ROUNDING * width
    if offset >= 0 and is_edge:
        return offset
    return None


def _extent(assembly: xr.DataArray) -> str:
    start = float(assembly["time_bin_start"].values[0])
    end = float(assembly["time_bin_end"].values[-1])
    return f"from {start:g} to {end:g} ms"


def _averaged(part: xr.DataArray, factor: int, target: xr.DataArray) -> xr.DataArray:
    """Return means over ``factor`` bins each, with the bins of the target."""
    ordered = part.transpose("presentation", "neuroid", "time_bin")
    runs, units, _ = ordered.shape
    by_bin = ordered.values.reshape(runs, units, -1, factor)
    coords = {}
    for name, coord in part.coords.items():
        if "time_bin" not in coord.dims:
            coords[name] = coord
    for edge in ("time_bin_start", "time_bin_end"):
        coords[edge] = target[edge]
    return xr.DataArray(by_bin.mean(axis=-1), dims=ordered.dims, coords=coords)


def haemodynamic_response(width: float) -> Floats:
    """Return SPM's canonical haemodynamic response in bins of ``width`` ms, with the sum 1, (bin,).

    The difference of two gamma densities of shapes 6 and 16 (1 s), the second divided by 6, over 32 s [friston1998].

    Raises
    ------
    MetricError
        A bin is longer than the response.
    """
    from scipy.stats import gamma

    seconds = width / MILLISECONDS
    count = int(RESPONSE_LENGTH / seconds)
    if count < 2:
        raise MetricError(
            f"bins of {seconds:g} s are too long for a haemodynamic response, which lasts {RESPONSE_LENGTH:g} s"
        )
    times = np.arange(count + 1) * seconds
    response = gamma.pdf(times, RESPONSE) - gamma.pdf(times, UNDERSHOOT) / RATIO
    return np.asarray(response / response.sum())


def convolved(source: xr.DataArray, response: Floats) -> xr.DataArray:
    """Return the source (presentation, neuroid, time_bin) convolved with a response (bin,), which begins at each bin."""
    from scipy.signal import fftconvolve

    ordered = source.transpose("presentation", "neuroid", "time_bin")
    values = floats(ordered.values)
    length = values.shape[-1]
    whole = fftconvolve(values, response[None, None, :], axes=-1)
    return ordered.copy(data=whole[..., :length])


def rows_of_runs(assembly: xr.DataArray) -> Rows:
    """Return the bins of all presentations (runs) one after the other."""
    ordered = assembly.transpose("presentation", "time_bin", "neuroid")
    values = floats(ordered.values)
    runs, bins, units = values.shape
    return Rows(
        values.reshape(-1, units),
        np.repeat(np.arange(runs), bins),
        np.tile(np.arange(bins), runs),
    )


def delayed(rows: Rows, delays: Sequence[int]) -> tuple[Floats, Indices]:
    """Return features with their earlier (and, for negative delays, later) values, and the rows that have all of them.

    Parameters
    ----------
    rows
        Features of each bin.
    delays
        Numbers of bins by which the response follows the features.

    Returns
    -------
    features
        (kept row × (delay × unit)): all units of the first delay, then of the next.
    kept
        The rows that have all delays within their run.

    Raises
    ------
    MetricError
        A run has no more bins than the delays reach.
    """
    low = min(0, *delays)
    high = max(0, *delays)
    bins = int(rows.bin.max()) + 1
    if bins <= high - low:
        raise MetricError(
            f"fewer samples than delays: runs have {bins} bins, and the delays reach over {high - low}; use "
            "longer runs, or "
            "fewer delays"
        )
    kept = np.flatnonzero((rows.bin >= high) & (rows.bin < bins + low))
    return np.concatenate([rows.values[kept - delay] for delay in delays], axis=1), kept
