"""What a set of signals is known by: evoked responses, changes of power in a band, and spectra of responses to flicker.

Each is computed for each person first. Means and 95 % intervals of Student are over people, not over windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import RequestError
from neuroledger.families.signals.signals import DIMS

__all__ = ["band_change", "evoked_response", "flicker_spectrum"]

LEVEL: Final = 0.95
ORDER: Final = 4
"""Order of the band-pass filter, which is applied forwards and backwards."""

Windows = Floats
"""Windows of one person and class, (window, channel, sample)."""


def evoked_response(
    assembly: xr.DataArray,
    *,
    by: str = "label",
    baseline: tuple[float, float] | None = None,
) -> xr.Dataset:
    """The mean window of each class, in the units of the signals.

    Parameters
    ----------
    assembly
        Signals, (presentation, channel, sample), with the coordinate `subject`.
    by
        The coordinate of the classes.
    baseline
        Seconds from the event, as start and end; the mean between them is subtracted from each channel of each window.

    Returns
    -------
    xr.Dataset
        `mean`, `low` and `high`, (class, channel, sample), and the number of `people`, (class,). With fewer than two people
        there is no interval: `low` and `high` are not numbers.

    Raises
    ------
    RequestError
        A coordinate is missing, or no sample lies in the baseline.
    """
    if baseline is None:
        before = None
    else:
        before = _samples(assembly, baseline)

    def response(windows: Windows) -> Floats:
        mean = windows.mean(axis=0)
        level = 0.0 if before is None else mean[:, before].mean(axis=1, keepdims=True)
        return np.asarray(mean - level)

    return _over_people(assembly, by, response, "sample", _seconds(assembly))


def band_change(
    assembly: xr.DataArray,
    *,
    band: tuple[float, float],
    baseline: tuple[float, float],
    by: str = "label",
) -> xr.Dataset:
    """Change of the power in a frequency band over time, in percent of a baseline [pfurtscheller1999].

    Negative values are desynchronisation (ERD), positive ones synchronisation (ERS). Power is the square of the signal after
    a Butterworth filter without delay, averaged over the windows of a person.

    Parameters
    ----------
    band
        Lowest and highest frequency in Hz.
    assembly, baseline, by
        As in `evoked_response`.

    Returns
    -------
    xr.Dataset
        As in `evoked_response`.

    Raises
    ------
    RequestError
        A coordinate is missing, no sample lies in the baseline, or the band is not below half the rate.
    """
    from scipy.signal import butter, sosfiltfilt

    rate, (low, high) = _rate(assembly), band
    if not 0 < low < high < rate / 2:
        raise RequestError(
            f"the band {low:g} to {high:g} Hz is not between 0 and {rate / 2:g} Hz, half the sampling rate"
        )
    before = _samples(assembly, baseline)
    sections = butter(ORDER, band, "bandpass", fs=rate, output="sos")

    def change(windows: Windows) -> Floats:
        power = (sosfiltfilt(sections, windows, axis=2) ** 2).mean(axis=0)
        level = power[:, before].mean(axis=1, keepdims=True)
        return np.asarray(100.0 * (power - level) / level)

    return _over_people(assembly, by, change, "sample", _seconds(assembly))


def flicker_spectrum(
    assembly: xr.DataArray, *, by: str = "label", width: float = 1.0
) -> xr.Dataset:
    """Power at each frequency relative to the frequencies around it, in decibel.

    A response to flicker is a peak at its frequency and the multiples of it. Power is averaged over the windows of a person,
    and compared with the mean power within `width` Hz on both sides, without the two neighbouring frequencies.

    Parameters
    ----------
    assembly, by
        As in `evoked_response`.
    width
        In Hz; windows must be long enough to resolve at least two frequencies within it.

    Returns
    -------
    xr.Dataset
        As in `evoked_response`, with the dimension `frequency` (Hz) instead of `sample`.

    Raises
    ------
    RequestError
        A coordinate is missing, or windows are too short for the width.
    """
    rate = _rate(assembly)
    samples = assembly.sizes["sample"]
    reach = int(width * samples / rate)
    if reach < 2:
        raise RequestError(
            f"windows of {samples / rate:g} s resolve {rate / samples:g} Hz, too little for a width of {width:g} Hz: use "
            "longer windows or a larger width"
        )
    offsets = np.concatenate([np.arange(-reach, -1), np.arange(2, reach + 1)])
    frequencies = np.fft.rfftfreq(samples, 1 / rate)[reach:-reach].astype(float)
    places = np.arange(len(frequencies)) + reach

    def relative(windows: Windows) -> Floats:
        spectra = np.fft.rfft(windows - windows.mean(axis=2, keepdims=True), axis=2)
        power = (np.abs(spectra) ** 2).mean(axis=0)
        around = power[:, places[:, None] + offsets].mean(axis=2)
        return np.asarray(10.0 * np.log10(power[:, places] / around))

    return _over_people(assembly, by, relative, "frequency", frequencies)


def _over_people(
    assembly: xr.DataArray,
    by: str,
    of: Callable[[Windows], Floats],
    axis: str,
    places: Floats,
) -> xr.Dataset:
    """Mean and interval over people of what a function returns for the windows of each person and class."""
    for name in (by, "subject"):
        if name not in assembly.coords or assembly[name].dims != ("presentation",):
            raise RequestError(
                f"presentations have no coordinate {name!r}; name the classes in `by`"
            )
    values = assembly.transpose(*DIMS).values
    labels, people = (
        np.asarray(assembly[name].values).astype(str) for name in (by, "subject")
    )
    names = np.unique(labels)
    summaries = []
    for name in names:
        ours = labels == name
        persons = [ours & (people == person) for person in np.unique(people[ours])]
        each = np.stack([of(values[rows].astype(float)) for rows in persons])
        summaries.append((*_student(each), len(each)))
    mean, low, high, counts = (
        np.stack(column) for column in zip(*summaries, strict=True)
    )
    dims = ("class", "channel", axis)
    channels = assembly["channel_id"].values
    return xr.Dataset(
        {
            "mean": (dims, mean),
            "low": (dims, low),
            "high": (dims, high),
            "people": ("class", counts),
        },
        {"class": names, "channel": channels, axis: places},
    )


def _student(each: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean over people and the limits of its interval, each (channel, place)."""
    from scipy.stats import t

    count = len(each)
    mean = each.mean(axis=0)
    if count < 2:
        return mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan)
    error = each.std(axis=0, ddof=1) / np.sqrt(count)
    reach = t.ppf(0.5 + LEVEL / 2, count - 1) * error
    return mean, mean - reach, mean + reach


def _seconds(assembly: xr.DataArray) -> Floats:
    """Seconds from the event to the start of each sample."""
    return floats(assembly["time_bin_start"].values) / 1000.0


def _rate(assembly: xr.DataArray) -> float:
    return float(assembly.attrs["sampling_rate"])


def _samples(assembly: xr.DataArray, span: tuple[float, float]) -> slice:
    """The samples that start within a span of seconds from the event."""
    seconds = _seconds(assembly)
    first, last = np.searchsorted(seconds, np.asarray(span) - 1e-9)
    if first == last:
        raise RequestError(
            f"no sample lies between {span[0]:g} and {span[1]:g} s: windows are from {seconds[0]:g} to {seconds[-1]:g} s"
        )
    return slice(int(first), int(last))
