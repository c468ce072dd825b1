"""What a set of signals is known by: evoked responses, changes of power in a band, and spectra of responses to flicker.

Each is computed for each person first: means and 95 % intervals of Student are over people. Of one person, the interval is
over windows, by the jackknife. A data set names those that its page shows under `signatures`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import RequestError
from neuroledger.families.signals.signals import DIMS
from neuroledger.spec.registry import signature

__all__ = ["band_change", "evoked_response", "flicker_spectrum", "power_spectrum"]

LEVEL: Final = 0.95
ORDER: Final = 4
"""Order of the band-pass filter, which is applied forwards and backwards."""

Windows = Floats
"""Windows of one person and class, (window, channel, sample)."""
Span = tuple[float, float]


@signature(
    "evoked_response",
    version=1,
    title="Evoked response",
    quantity="amplitude",
    place="time from the event (s)",
)
def evoked_response(
    assembly: xr.DataArray,
    *,
    by: str = "label",
    baseline: Span | None = None,
    classes: tuple[str, ...] | None = None,
    channels: tuple[str, ...] | None = None,
    between: Span | None = None,
) -> xr.Dataset:
    """The mean window of each class, in the units of the signals.

    Parameters
    ----------
    assembly
        Signals, (presentation, channel, sample), with the coordinate `subject`.
    by
        The coordinate of the classes.
    classes
        Values of this coordinate; default: all.
    baseline
        Seconds from the event, as start and end; the mean between them is subtracted from each channel of each window.
    channels
        Names of channels; default: all.
    between
        First and last time that is returned, in seconds from the event; default: all.

    Returns
    -------
    xr.Dataset
        `mean`, `low` and `high`, (class, channel, sample), and, (class,), the number of `people` and what the interval is
        `over`: people, or windows if a class is of one person. Of one window, `low` and `high` are not numbers.

    Raises
    ------
    RequestError
        A coordinate or a channel is missing, or no sample lies in the baseline.
    """
    before = None if baseline is None else _samples(assembly, baseline)

    def response(mean: Floats) -> Floats:
        if before is None:
            return mean
        return np.asarray(mean - mean[:, before].mean(axis=1, keepdims=True))

    course = Course(floats, response, "sample", _seconds(assembly))
    chosen = Chosen(by, classes, channels, between)
    return _over_people(assembly, chosen, course)


@signature(
    "band_change",
    version=1,
    title="Change of power in a band",
    quantity="change of power",
    unit="%",
    place="time from the event (s)",
)
def band_change(
    assembly: xr.DataArray,
    *,
    band: Span,
    baseline: Span,
    by: str = "label",
    classes: tuple[str, ...] | None = None,
    channels: tuple[str, ...] | None = None,
    between: Span | None = None,
) -> xr.Dataset:
    """Change of the power in a frequency band over time, in percent of a baseline [pfurtscheller1999].

    Negative values are desynchronisation (ERD), positive ones synchronisation (ERS). Power is the square of the signal after
    a Butterworth filter without delay, averaged over the windows of a person.

    Parameters
    ----------
    band
        Lowest and highest frequency in Hz.
    assembly, baseline, by, classes, channels, between
        As in `evoked_response`.

    Returns
    -------
    xr.Dataset
        As in `evoked_response`.

    Raises
    ------
    RequestError
        A coordinate or a channel is missing, no sample lies in the baseline, or the band is not below half the rate.
    """
    from scipy.signal import butter, sosfiltfilt

    rate, (low, high) = _rate(assembly), band
    if not 0 < low < high < rate / 2:
        raise RequestError(
            f"the band {low:g} to {high:g} Hz is not between 0 and {rate / 2:g} Hz, half the sampling rate"
        )
    before = _samples(assembly, baseline)
    sections = butter(ORDER, band, "bandpass", fs=rate, output="sos")

    def power(windows: Windows) -> Floats:
        return np.asarray(sosfiltfilt(sections, windows, axis=2) ** 2)

    def change(mean: Floats) -> Floats:
        level = mean[:, before].mean(axis=1, keepdims=True)
        return np.asarray(100.0 * (mean - level) / level)

    course = Course(power, change, "sample", _seconds(assembly))
    chosen = Chosen(by, classes, channels, between)
    return _over_people(assembly, chosen, course)


@signature(
    "power_spectrum",
    version=1,
    title="Power spectrum",
    quantity="power density",
    unit="dB",
    place="frequency (Hz)",
)
def power_spectrum(
    assembly: xr.DataArray,
    *,
    by: str = "label",
    classes: tuple[str, ...] | None = None,
    channels: tuple[str, ...] | None = None,
    between: Span | None = None,
) -> xr.Dataset:
    """Power density at each frequency, in decibel relative to the square of one unit per Hz.

    A rhythm that is weaker in one class than in another is a lower peak (ERD without a baseline in the windows). Windows are
    tapered by Hann's function, and their power is averaged over the windows of a person.

    Parameters
    ----------
    assembly, by, classes, channels
        As in `evoked_response`.
    between
        First and last frequency that is returned, in Hz; default: all above zero.

    Returns
    -------
    xr.Dataset
        As in `evoked_response`, with the dimension `frequency` (Hz) instead of `sample`.

    Raises
    ------
    RequestError
        A coordinate or a channel is missing.
    """
    rate = _rate(assembly)
    samples = assembly.sizes["sample"]
    taper = np.hanning(samples + 1)[:-1]
    frequencies = np.fft.rfftfreq(samples, 1 / rate)[1:].astype(float)
    # Half the rate has no negative counterpart.
    sides = np.where(frequencies < rate / 2, 2.0, 1.0)
    density = sides / (rate * np.sum(taper**2))

    def power(windows: Windows) -> Floats:
        level = windows.mean(axis=2, keepdims=True)
        spectra = np.fft.rfft((windows - level) * taper, axis=2)[:, :, 1:]
        return np.asarray(density * np.abs(spectra) ** 2)

    def in_decibel(mean: Floats) -> Floats:
        return np.asarray(10.0 * np.log10(mean))

    course = Course(power, in_decibel, "frequency", frequencies)
    chosen = Chosen(by, classes, channels, between)
    return _over_people(assembly, chosen, course)


@signature(
    "flicker_spectrum",
    version=1,
    title="Spectrum relative to its neighbours",
    quantity="relative power",
    unit="dB",
    place="frequency (Hz)",
)
def flicker_spectrum(
    assembly: xr.DataArray,
    *,
    by: str = "label",
    width: float = 1.0,
    classes: tuple[str, ...] | None = None,
    channels: tuple[str, ...] | None = None,
    between: Span | None = None,
) -> xr.Dataset:
    """Power at each frequency relative to the frequencies around it, in decibel.

    A response to flicker is a peak at its frequency and the multiples of it. Power is averaged over the windows of a person,
    and compared with the mean power within `width` Hz on both sides, without the two neighbouring frequencies.

    Parameters
    ----------
    assembly, by, classes, channels
        As in `evoked_response`.
    width
        In Hz; windows must be long enough to resolve at least two frequencies within it.
    between
        First and last frequency that is returned, in Hz; default: all.

    Returns
    -------
    xr.Dataset
        As in `evoked_response`, with the dimension `frequency` (Hz) instead of `sample`.

    Raises
    ------
    RequestError
        A coordinate or a channel is missing, or windows are too short for the width.
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

    def power(windows: Windows) -> Floats:
        level = windows.mean(axis=2, keepdims=True)
        return np.asarray(np.abs(np.fft.rfft(windows - level, axis=2)) ** 2)

    def relative(mean: Floats) -> Floats:
        around = mean[:, places[:, None] + offsets].mean(axis=2)
        return np.asarray(10.0 * np.log10(mean[:, places] / around))

    course = Course(power, relative, "frequency", frequencies)
    chosen = Chosen(by, classes, channels, between)
    return _over_people(assembly, chosen, course)


class Course(NamedTuple):
    """How a signature is computed: a quantity of each window, and what follows from its mean over windows."""

    of_windows: Callable[[Windows], Floats]
    of_mean: Callable[[Floats], Floats]
    axis: str
    """The dimension of the result."""
    places: Floats
    """Its coordinate, in seconds or Hz."""


class _Summary(NamedTuple):
    """A class: the mean and its interval, (channel, place), the number of people, and what the interval is over."""

    mean: Floats
    low: Floats
    high: Floats
    people: int
    over: str


class Chosen(NamedTuple):
    """What is returned: classes of a coordinate, channels, and a span of seconds or Hz; all if not given."""

    by: str
    classes: Sequence[str] | None
    channels: Sequence[str] | None
    between: Span | None


def _over_people(assembly: xr.DataArray, chosen: Chosen, course: Course) -> xr.Dataset:
    """Mean and interval over people of the course of each person and class; over windows if there is one person."""
    for name in (chosen.by, "subject"):
        if name not in assembly.coords or assembly[name].dims != ("presentation",):
            raise RequestError(
                f"presentations have no coordinate {name!r}; name the classes in `by`"
            )
    labels, people = (
        np.asarray(assembly[name].values).astype(str) for name in (chosen.by, "subject")
    )
    channels = assembly["channel_id"].values.astype(str)
    columns = _places_of(chosen.channels, channels.tolist(), "channel")
    names = np.unique(labels)
    names = names[_places_of(chosen.classes, names.tolist(), chosen.by)]
    values = assembly.transpose(*DIMS).values
    summaries = []
    for name in names:
        ours = labels == name
        persons = [
            values[np.flatnonzero(ours & (people == person))][:, columns]
            for person in np.unique(people[ours])
        ]
        summaries.append(_summary(persons, course))
    mean, low, high, counts, over = map(np.stack, zip(*summaries, strict=True))
    dims = ("class", "channel", course.axis)
    whole = xr.Dataset(
        {
            "mean": (dims, mean),
            "low": (dims, low),
            "high": (dims, high),
            "people": ("class", counts),
            "over": ("class", over),
        },
        {"class": names, "channel": channels[columns], course.axis: course.places},
    )
    if chosen.between is None:
        return whole
    return whole.isel({course.axis: _within(course, chosen.between)})


def _summary(persons: Sequence[Windows], course: Course) -> _Summary:
    quantities = (course.of_windows(windows.astype(float)) for windows in persons)
    if len(persons) > 1:
        each = np.stack([course.of_mean(many.mean(axis=0)) for many in quantities])
        error = each.std(axis=0, ddof=1) / np.sqrt(len(each))
        return _student(each.mean(axis=0), error, len(each), len(each), "people")
    (windows,) = quantities
    total = windows.sum(axis=0)
    count = len(windows)
    mean = course.of_mean(total / count)
    if count < 2:
        error = np.full_like(mean, np.nan)
    else:
        error = _jackknifed(windows, total, course)
    return _student(mean, error, count, 1, "windows")


def _jackknifed(windows: Floats, total: Floats, course: Course) -> Floats:
    """The standard error of a course of one person's windows, each of which is left out once."""
    rest = len(windows) - 1
    without = [course.of_mean((total - one) / rest) for one in windows]
    return np.asarray(np.sqrt(rest) * np.std(without, axis=0))


def _student(
    mean: Floats, error: Floats, count: int, people: int, over: str
) -> _Summary:
    """The mean with the limits of its interval, from the standard error over `count` items."""
    from scipy.stats import t

    reach = t.ppf(0.5 + LEVEL / 2, max(count - 1, 1)) * error
    return _Summary(mean, mean - reach, mean + reach, people, over)


def _places_of(
    chosen: Sequence[str] | None, known: Sequence[str], what: str
) -> list[int]:
    """The places of names among those that are known; of all if none are chosen."""
    if chosen is None:
        return list(range(len(known)))
    missing = [name for name in chosen if name not in known]
    if missing:
        raise RequestError(
            f"the signals have no {what} {', '.join(missing)}; they have {', '.join(known)}"
        )
    return [known.index(name) for name in chosen]


def _within(course: Course, between: Span) -> slice:
    """The places of a course within a span of seconds or Hz."""
    first, last = between
    start = int(np.searchsorted(course.places, first - 1e-9))
    stop = int(np.searchsorted(course.places, last + 1e-9))
    if start == stop:
        ends = f"{course.places[0]:g} to {course.places[-1]:g}"
        raise RequestError(
            f"nothing lies between {first:g} and {last:g}; {course.axis} is from {ends}"
        )
    return slice(start, stop)


def _seconds(assembly: xr.DataArray) -> Floats:
    """Seconds from the event to the start of each sample."""
    return floats(assembly["time_bin_start"].values) / 1000.0


def _rate(assembly: xr.DataArray) -> float:
    return float(assembly.attrs["sampling_rate"])


def _samples(assembly: xr.DataArray, span: Span) -> slice:
    """The samples that start within a span of seconds from the event."""
    seconds = _seconds(assembly)
    first, last = np.searchsorted(seconds, np.asarray(span) - 1e-9)
    if first == last:
        raise RequestError(
            f"no sample lies between {span[0]:g} and {span[1]:g} s: windows are from {seconds[0]:g} to {seconds[-1]:g} s"
        )
    return slice(int(first), int(last))
