"""Checks for mislabelled recordings: exchanged subjects, shifted events, or wrong sampling rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, floats
from neuroledger.families.decoding.audit_common import (
    MAINS,
    Problems,
    first_names,
    text_of,
)

__all__ = ["exchanged_subjects", "wrong_sampling_rates", "shifted_events"]

LEAST_CHANNELS: Final = 4
"""Least number of channels whose covariance distinguishes subjects."""
RECOGNISED: Final = 0.75
"""Share of the recordings that must resemble their own subject's others before an exchange is reported."""
LEAST_WINDOWS: Final = 10
# Largest relative difference between recordings in the measured frequency of the mains.
ELSEWHERE: Final = 0.02
ALIKE: Final = 0.5
"""A recording has the response of the others if its correlation with their mean is higher."""
LATER: Final = 0.3
"""Least gain in that correlation at another time, compared with the events."""
TWO_SAMPLES: Final = 2


def exchanged_subjects(assembly: xr.DataArray) -> Problems:
    """Two sessions (or recordings) that seem to be exchanged between two subjects, by the covariance of their channels.

    In most data sets, sessions of one subject are more similar than sessions of two. Two sessions are reported if this
    is true only after they are exchanged.
    """
    subjects = text_of(assembly, "subject")
    unit_columns = [
        text_of(assembly, name)
        for name in ("session", "recording")
        if name in assembly.coords
    ]
    for unit in unit_columns:
        keys = sorted(set(zip(subjects.tolist(), unit.tolist(), strict=True)))
        owners = [subject for subject, _ in keys]
        if max(owners.count(subject) for subject in owners) > 1:
            break
    else:
        return
    if len(set(owners)) < 3 or assembly.sizes["channel"] < LEAST_CHANNELS:
        return
    forms = np.stack(
        [
            _log_covariance(assembly, (subjects == subject) & (unit == name))
            for subject, name in keys
        ]
    )
    forms = forms - forms.mean(axis=0)
    forms /= np.maximum(np.linalg.norm(forms, axis=1, keepdims=True), 1e-30)
    alike = forms @ forms.T
    np.fill_diagonal(alike, -np.inf)
    nearest = alike.argmax(axis=1)
    before = _same_owner(owners, nearest)
    for a in range(len(keys)):
        for b in range(a + 1, len(keys)):
            if owners[a] == owners[b] or before[a] or before[b]:
                continue
            changed = list(owners)
            changed[a] = owners[b]
            changed[b] = owners[a]
            after = _same_owner(changed, nearest)
            involved = np.isin(changed, [owners[a], owners[b]])
            if (
                after[involved].all()
                and after.mean() >= RECOGNISED
                and after.sum() >= before.sum() + 2
            ):
                yield (
                    "audit.people",
                    f"{keys[a][1]!r} of {keys[a][0]} looks like the others of {keys[b][0]}, and {keys[b][1]!r} of "
                    f"{keys[b][0]} like those of {keys[a][0]}: they may be exchanged ({int(after.sum())} of {len(keys)} "
                    f"then look like their own subject's, now {int(before.sum())})",
                    "Find out to whom they belong",
                )
                return


def _same_owner(owners: Sequence[str], nearest: Floats) -> Floats:
    """Whether the nearest other recording has the same owner, for each recording."""
    return np.array(
        [
            owner == owners[int(other)]
            for owner, other in zip(owners, nearest, strict=True)
        ]
    )


def _log_covariance(assembly: xr.DataArray, rows: Floats) -> Floats:
    """Logarithm of the mean covariance of these windows, scaled to a trace of 1, as a vector."""
    values = floats(assembly.values[rows])
    values = values - values.mean(axis=2, keepdims=True)
    covariance = np.einsum("wcs,wds->cd", values, values)
    covariance /= max(float(np.trace(covariance)), 1e-300)
    weights, vectors = np.linalg.eigh(
        covariance + 1e-6 * np.eye(len(covariance)) / len(covariance)
    )
    logarithm = (vectors * np.log(np.maximum(weights, 1e-12))) @ vectors.T
    return np.asarray(logarithm[np.triu_indices(len(logarithm))])


def shifted_events(assembly: xr.DataArray) -> Problems:
    """Recordings whose mean response, or its power, matches that of the others only at another time."""
    recordings = text_of(assembly, "recording")
    names, counts = np.unique(recordings, return_counts=True)
    names = names[counts >= LEAST_WINDOWS]
    if len(names) < 3 or assembly.sizes["sample"] < 16:
        return
    rate = float(assembly.attrs["sampling_rate"])
    lags: dict[str, float] = {}
    for power in (False, True):
        means = np.stack(
            [
                _mean_response(floats(assembly.values[recordings == name]), power)
                for name in names
            ]
        )
        everyone = set(range(len(names)))
        odd = _find_lags(means, everyone, everyone)
        rest = everyone - set(odd)
        # Shifted recordings blur the mean of all: compare them with the mean of the others, which must agree.
        if len(rest) < max(2, len(names) / 2) or _agreement(means, rest) < ALIKE:
            continue
        for at, lag in _find_lags(means, set(odd), rest).items():
            lags.setdefault(str(names[at]), 1000.0 * lag / rate)
    if lags:
        listed = first_names(
            [f"{name} ({late:+.0f} ms)" for name, late in lags.items()]
        )
        yield (
            "audit.shifted",
            f"{len(lags)} recordings respond at another time than the others: {listed}: their events may be shifted",
            "Compare their events with a stimulus channel or the logs of the experiment",
        )


def wrong_sampling_rates(assembly: xr.DataArray) -> Problems:
    """Recordings whose mains hum is at another frequency than in the others: a wrong sampling rate shifts it."""
    recordings = text_of(assembly, "recording")
    rate = float(assembly.attrs["sampling_rate"])
    if assembly.sizes["sample"] < rate / 2:
        return
    hums = {}
    for name in np.unique(recordings).tolist():
        hum_frequency = _hum_frequency(
            floats(assembly.values[recordings == name]), rate
        )
        if hum_frequency is not None:
            hums[name] = hum_frequency
    if len(hums) < 3:
        return
    usual = float(np.median(list(hums.values())))

    def apart(frequency: float) -> bool:
        mains = all(
            min(abs(at / known - 1) for known in MAINS) < ELSEWHERE
            for at in (frequency, usual)
        )
        return abs(frequency / usual - 1) > ELSEWHERE and not mains

    odd = {name: hum for name, hum in hums.items() if apart(hum)}
    if odd and 2 * len(odd) < len(hums):
        listed = first_names([f"{name} ({hum:.1f} Hz)" for name, hum in odd.items()])
        yield (
            "audit.rate",
            f"{len(odd)} recordings have their mains hum at another frequency than the others, {usual:.1f} Hz: {listed}: "
            "their sampling rate may differ from the one that their files state",
            "Compare the length of these recordings with how long the experiment lasted",
        )


def _hum_frequency(values: Floats, rate: float) -> float | None:
    """Frequency in Hz of the sharpest spectral peak above 20 Hz; None if no peak exceeds its surroundings tenfold."""
    length = values.shape[2]
    tapered = (values - values.mean(axis=2, keepdims=True)) * np.hanning(length)
    spectra = np.abs(np.fft.rfft(tapered, n=8 * length, axis=2)) ** 2
    scale = spectra.mean(axis=(0, 2))
    power = np.log(
        np.maximum(
            (spectra / np.maximum(scale, 1e-300)[:, None]).mean(axis=(0, 1)), 1e-300
        )
    )
    frequencies = np.fft.rfftfreq(8 * length, 1.0 / rate)
    best = np.log(10.0)
    hum = None
    for at in np.flatnonzero(
        (frequencies >= 20.0) & (frequencies <= 0.47 * rate)
    ).tolist():
        # The taper spreads a line over two bins of a window on either side.
        near = np.abs(frequencies - frequencies[at])
        around = power[
            (near > 3.0 * rate / length) & (near < 3.0 * rate / length + 6.0)
        ]
        if len(around) and power[at] - float(around.max()) > best:
            best = power[at] - float(around.max())
            hum = float(frequencies[at])
    return hum


def _find_lags(means: Floats, candidates: set[int], others: set[int]) -> dict[int, int]:
    """The lags in samples of the candidates that match the mean of the others only at another time."""
    lags = {}
    for at in sorted(candidates):
        lag, at_zero, best = _best_lag(
            means[at], means[sorted(others - {at})].mean(axis=0)
        )
        if abs(lag) >= TWO_SAMPLES and best >= ALIKE and best - at_zero >= LATER:
            lags[at] = lag
    return lags


def _agreement(means: Floats, rest: set[int]) -> float:
    """Median correlation of each response with the mean of the others, at lag 0."""
    return float(
        np.median(
            [
                _best_lag(means[at], means[sorted(rest - {at})].mean(axis=0))[1]
                for at in sorted(rest)
            ]
        )
    )


def _mean_response(values: Floats, power: bool) -> Floats:
    """Mean over windows of the amplitudes or of their log power, (channel, sample), centred for each channel."""
    values = values - values.mean(axis=2, keepdims=True)
    mean = (
        np.log(np.maximum((values**2).mean(axis=0), 1e-300))
        if power
        else values.mean(axis=0)
    )
    return np.asarray(mean - mean.mean(axis=1, keepdims=True))


def _best_lag(response: Floats, reference: Floats) -> tuple[int, float, float]:
    """The lag in samples, up to half a window, with the highest correlation; the correlations at lag 0 and at that lag."""
    half = response.shape[1] // 2
    correlations = {}
    for lag in range(-half, half + 1):
        a = response[:, max(lag, 0) : response.shape[1] + min(lag, 0)]
        b = reference[:, max(-lag, 0) : reference.shape[1] + min(-lag, 0)]
        size = float(np.sqrt((a**2).sum() * (b**2).sum()))
        correlations[lag] = float((a * b).sum()) / size if size > 0 else 0.0
    best = max(correlations, key=lambda lag: correlations[lag])
    return best, correlations[0], correlations[best]
