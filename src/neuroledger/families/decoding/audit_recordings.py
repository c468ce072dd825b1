"""Recordings that do not look like what they are said to be: another person's, or with events at another time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats

__all__ = ["exchanged_people", "other_rates", "shifted_events"]

LEAST_CHANNELS: Final = 4
"""Channels from which covariances tell people apart."""
RECOGNISED: Final = 0.75
"""Share of the recordings that have to look like their own person's others before an exchange is reported."""
LEAST_WINDOWS: Final = 10
MAINS: Final = (50.0, 60.0)
# Share by which the mains may seem to differ between recordings.
ELSEWHERE: Final = 0.02
ALIKE: Final = 0.5
"""Correlation with the mean response of the others from which a recording has that response."""
LATER: Final = 0.3
"""How much higher that correlation has to be at another time than at the events."""
TWO_SAMPLES: Final = 2


def exchanged_people(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Two sessions (or recordings) that look exchanged between two people, by the covariance of their channels.

    A person's sessions are more alike than those of two people in most sets. Where that holds as soon as two sessions change
    places, and does not hold before, these two are reported.
    """
    people = np.asarray(assembly["subject"].values).astype(str)
    sessions = [
        np.asarray(assembly[name].values).astype(str)
        for name in ("session", "recording")
        if name in assembly.coords
    ]
    for unit in sessions:
        keys = sorted(set(zip(people.tolist(), unit.tolist(), strict=True)))
        owners = [person for person, _ in keys]
        if max(owners.count(person) for person in owners) > 1:
            break
    else:
        return
    if len(set(owners)) < 3 or assembly.sizes["channel"] < LEAST_CHANNELS:
        return
    forms = np.stack([_form(assembly, (people == person) & (unit == name)) for person, name in keys])
    forms = forms - forms.mean(axis=0)
    forms /= np.maximum(np.linalg.norm(forms, axis=1, keepdims=True), 1e-30)
    alike = forms @ forms.T
    np.fill_diagonal(alike, -np.inf)
    nearest = alike.argmax(axis=1)
    before = _own(owners, nearest)
    for a in range(len(keys)):
        for b in range(a + 1, len(keys)):
            if owners[a] == owners[b] or before[a] or before[b]:
                continue
            changed = list(owners)
            changed[a], changed[b] = owners[b], owners[a]
            after = _own(changed, nearest)
            theirs = np.isin(changed, [owners[a], owners[b]])
            if after[theirs].all() and after.mean() >= RECOGNISED and after.sum() >= before.sum() + 2:
                yield (
                    "audit.people",
                    f"{keys[a][1]!r} of {keys[a][0]} looks like the others of {keys[b][0]}, and {keys[b][1]!r} of "
                    f"{keys[b][0]} like those of {keys[a][0]}: they may be exchanged ({int(after.sum())} of {len(keys)} "
                    f"then look like their own person's, now {int(before.sum())})",
                    "Find out whose they are",
                )
                return


def _own(owners: Sequence[str], nearest: Floats) -> Floats:
    """Whether what is nearest to each is of the same owner."""
    return np.array([owner == owners[int(other)] for owner, other in zip(owners, nearest, strict=True)])


def _form(assembly: xr.DataArray, rows: Floats) -> Floats:
    """Logarithm of the mean covariance of these windows, freed of its size, as a vector."""
    values = np.asarray(assembly.values[rows], dtype=float)
    values = values - values.mean(axis=2, keepdims=True)
    covariance = np.einsum("wcs,wds->cd", values, values)
    covariance /= max(float(np.trace(covariance)), 1e-300)
    weights, vectors = np.linalg.eigh(covariance + 1e-6 * np.eye(len(covariance)) / len(covariance))
    logarithm = (vectors * np.log(np.maximum(weights, 1e-12))) @ vectors.T
    return np.asarray(logarithm[np.triu_indices(len(logarithm))])


def shifted_events(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Recordings whose mean response, or its power, is that of the other recordings at another time."""
    recordings = np.asarray(assembly["recording"].values).astype(str)
    names, counts = np.unique(recordings, return_counts=True)
    names = names[counts >= LEAST_WINDOWS]
    if len(names) < 3 or assembly.sizes["sample"] < 16:
        return
    rate = float(assembly.attrs["sampling_rate"])
    told: dict[str, float] = {}
    for power in (False, True):
        means = np.stack(
            [_response(np.asarray(assembly.values[recordings == name], dtype=float), power) for name in names]
        )
        everybody = set(range(len(names)))
        odd = _at_other_times(means, everybody, everybody)
        rest = everybody - set(odd)
        # The shifted ones blur the mean of all: they are held against the others alone, which have to agree.
        if len(rest) < max(2, len(names) / 2) or _agreement(means, rest) < ALIKE:
            continue
        for at, lag in _at_other_times(means, set(odd), rest).items():
            told.setdefault(str(names[at]), 1000.0 * lag / rate)
    if told:
        shown = ", ".join(f"{name} ({late:+.0f} ms)" for name, late in list(told.items())[:6])
        yield (
            "audit.shifted",
            f"{len(told)} recordings respond at another time than the others: {shown}: their events may be shifted",
            "Compare their events with a stimulus channel or the logs of the experiment",
        )


def other_rates(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Recordings whose mains hum lies elsewhere than in the others: mains keep their frequency, a wrong rate moves it."""
    recordings = np.asarray(assembly["recording"].values).astype(str)
    rate = float(assembly.attrs["sampling_rate"])
    if assembly.sizes["sample"] < rate / 2:
        return
    hums = {}
    for name in np.unique(recordings).tolist():
        found = _hum(np.asarray(assembly.values[recordings == name], dtype=float), rate)
        if found is not None:
            hums[name] = found
    if len(hums) < 3:
        return
    usual = float(np.median(list(hums.values())))

    def apart(one: float) -> bool:
        mains = all(min(abs(at / known - 1) for known in MAINS) < ELSEWHERE for at in (one, usual))
        return abs(one / usual - 1) > ELSEWHERE and not mains

    odd = {name: hum for name, hum in hums.items() if apart(hum)}
    if odd and 2 * len(odd) < len(hums):
        shown = ", ".join(f"{name} ({hum:.1f} Hz)" for name, hum in list(odd.items())[:6])
        yield (
            "audit.rate",
            f"{len(odd)} recordings have their mains hum elsewhere than the others, at {usual:.1f} Hz: {shown}: their "
            "sampling rate may be another than their files state",
            "Compare the length of these recordings with how long the experiment lasted",
        )


def _hum(values: Floats, rate: float) -> float | None:
    """Frequency of the sharpest peak of the mean spectrum above 20 Hz, in Hz; None where none stands ten times above it."""
    length = values.shape[2]
    tapered = (values - values.mean(axis=2, keepdims=True)) * np.hanning(length)
    spectra = np.abs(np.fft.rfft(tapered, n=8 * length, axis=2)) ** 2
    scale = spectra.mean(axis=(0, 2))
    power = np.log(np.maximum((spectra / np.maximum(scale, 1e-300)[:, None]).mean(axis=(0, 1)), 1e-300))
    frequencies = np.fft.rfftfreq(8 * length, 1.0 / rate)
    best, hum = np.log(10.0), None
    for at in np.flatnonzero((frequencies >= 20.0) & (frequencies <= 0.47 * rate)).tolist():
        # The taper spreads a line over two bins of a window on either side.
        near = np.abs(frequencies - frequencies[at])
        around = power[(near > 3.0 * rate / length) & (near < 3.0 * rate / length + 6.0)]
        if len(around) and power[at] - float(around.max()) > best:
            best, hum = power[at] - float(around.max()), float(frequencies[at])
    return hum


def _at_other_times(means: Floats, asked: set[int], others: set[int]) -> dict[int, int]:
    """Which of those asked are like the mean of the others at another time only, and how many samples later."""
    found = {}
    for at in sorted(asked):
        lag, there, best = _later(means[at], means[sorted(others - {at})].mean(axis=0))
        if abs(lag) >= TWO_SAMPLES and best >= ALIKE and best - there >= LATER:
            found[at] = lag
    return found


def _agreement(means: Floats, rest: set[int]) -> float:
    """Median correlation of each with the mean of the others, at no lag."""
    return float(
        np.median([_later(means[at], means[sorted(rest - {at})].mean(axis=0))[1] for at in sorted(rest)])
    )


def _response(values: Floats, power: bool) -> Floats:
    """Mean over windows of amplitudes or of their logarithmic power, (channel, sample), each channel with mean 0."""
    values = values - values.mean(axis=2, keepdims=True)
    mean = np.log(np.maximum((values**2).mean(axis=0), 1e-300)) if power else values.mean(axis=0)
    return np.asarray(mean - mean.mean(axis=1, keepdims=True))


def _later(one: Floats, other: Floats) -> tuple[int, float, float]:
    """How many samples later `one` is most like `other`, up to half a window, the correlation at no lag, and at that one."""
    half = one.shape[1] // 2
    found = {}
    for lag in range(-half, half + 1):
        a = one[:, max(lag, 0) : one.shape[1] + min(lag, 0)]
        b = other[:, max(-lag, 0) : other.shape[1] + min(-lag, 0)]
        size = float(np.sqrt((a**2).sum() * (b**2).sum()))
        found[lag] = float((a * b).sum()) / size if size > 0 else 0.0
    best = max(found, key=lambda lag: found[lag])
    return best, found[0], found[best]
