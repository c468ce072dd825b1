"""Recordings that do not look like what they are said to be: another person's, or with events at another time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats

__all__ = ["exchanged_people", "shifted_events"]

LEAST_CHANNELS: Final = 4
"""Channels from which covariances tell people apart."""
RECOGNISED: Final = 0.75
"""Share of the recordings that have to look like their own person's others before an exchange is reported."""
LEAST_WINDOWS: Final = 10
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
