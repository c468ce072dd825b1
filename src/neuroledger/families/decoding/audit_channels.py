"""Checks for mislabelled channels: wrong names, duplicated samples, mains hum only, or another unit in some recordings."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Indices, floats
from neuroledger.families.decoding.audit_common import (
    MAINS,
    Problems,
    first_names,
    text_of,
)

__all__ = [
    "channels_in_another_order",
    "mains_only_channels",
    "same_channels",
    "inconsistent_units",
]

LEAST_CHANNELS: Final = 6
SAME: Final = 0.9999
"""Two channels with a higher correlation have the same signal."""
ALONE: Final = 0.9
"""A channel with a larger share of its power at the mains has no signal, if the median share is at most one half."""
AGREE: Final = 0.6
"""Least median correlation of subjects' channel correlations with those of the others, for a comparison of orders."""
GAIN: Final = 0.3
"""Least gain in that correlation for another order of the channels to be reported."""
STARTS: Final = 30
UNITS: Final = (1e-6, 1e-3, 1e3, 1e6)
WITHIN: Final = 5.0


def same_channels(assembly: xr.DataArray) -> Problems:
    """Pairs of channels with the same signal in a recording: a reference stored twice, a copy, or a gel bridge."""
    channels = text_of(assembly, "channel_id")
    recordings = text_of(assembly, "recording")
    names = sorted(set(recordings.tolist()))
    pairs: dict[tuple[int, int], list[str]] = defaultdict(list)
    for recording in names:
        alike = np.abs(_correlation(assembly, recordings == recording))
        for a, b in np.argwhere(np.triu(alike, 1) > SAME).tolist():
            pairs[a, b].append(recording)
    affected = [
        f"{channels[a]} and {channels[b]} (in {len(places)} of {len(names)} recordings, first {places[0]})"
        for (a, b), places in pairs.items()
    ]
    if affected:
        yield (
            "audit.channels",
            f"{len(affected)} pairs of channels have the same signal: {first_names(affected)}",
            "Drop one of each pair: one may be a copy, or both the reference",
        )


def channels_in_another_order(assembly: xr.DataArray) -> Problems:
    """Subjects whose channels covary like those of the others only after they are reordered."""
    subject_of = text_of(assembly, "subject")
    channels = text_of(assembly, "channel_id")
    subjects = sorted(set(subject_of.tolist()))
    if len(subjects) < 3 or len(channels) < LEAST_CHANNELS:
        return
    forms = np.stack(
        [_correlation(assembly, subject_of == subject) for subject in subjects]
    )
    off = np.triu_indices(len(channels), 1)
    usual = np.median(forms, axis=0)
    agree = np.array([np.corrcoef(form[off], usual[off])[0, 1] for form in forms])
    median = float(np.median(agree))
    if not median >= AGREE:
        return
    affected = []
    for at in np.flatnonzero(agree < median - GAIN).tolist():
        others = np.median(forms[np.delete(np.arange(len(subjects)), at)], axis=0)
        order = _match_channels(others, forms[at])
        reordered = float(
            np.corrcoef(forms[at][np.ix_(order, order)][off], others[off])[0, 1]
        )
        if reordered - agree[at] >= GAIN and reordered >= median - GAIN / 3:
            moved = [
                f"{channels[was]} is called {channels[now]}"
                for now, was in zip(order.tolist(), range(len(order)), strict=True)
                if now != was
            ]
            affected.append(
                f"{subjects[at]} ({len(moved)} of {len(channels)}: {', '.join(moved[:3])})"
            )
    if affected:
        yield (
            "audit.channels",
            f"channels of {len(affected)} subjects covary like the others' in another order: {first_names(affected)}",
            "Compare the order of their channels with the publisher's",
        )


def _match_channels(target: Floats, form: Floats) -> Indices:
    """The order of channels in which `form` is most similar to `target`: the best of several searches, refined by 2-opt."""
    from scipy.optimize import quadratic_assignment

    rng = np.random.default_rng(0)
    target = target - np.diag(np.diag(target))
    form = form - np.diag(np.diag(form))
    results = [
        quadratic_assignment(target, form, options={"maximize": True, "rng": rng})
    ]
    for _ in range(STARTS):
        result = quadratic_assignment(
            target, form, options={"maximize": True, "rng": rng, "P0": "randomized"}
        )
        results.append(result)
    best = max(results, key=lambda result: float(result.fun)).col_ind
    guess = np.stack([np.arange(len(best)), best], axis=1)
    refined = quadratic_assignment(
        target,
        form,
        method="2opt",
        options={"maximize": True, "rng": rng, "partial_guess": guess},
    )
    return np.asarray(refined.col_ind)


def mains_only_channels(assembly: xr.DataArray) -> Problems:
    """Channels that contain little except mains hum, while the others have a signal."""
    rate = float(assembly.attrs["sampling_rate"])
    length = assembly.sizes["sample"]
    channels = text_of(assembly, "channel_id")
    recordings = text_of(assembly, "recording")
    frequencies = np.fft.rfftfreq(length, 1.0 / rate)
    wide = 2.5 * rate / length
    known = [line for line in MAINS if line + wide < rate / 2]
    if not known or wide > 10.0:
        return
    affected: dict[str, list[str]] = defaultdict(list)
    for recording in sorted(set(recordings.tolist())):
        values = floats(assembly.values[recordings == recording])
        values = (values - values.mean(axis=2, keepdims=True)) * np.hanning(length)
        power = (np.abs(np.fft.rfft(values, axis=2)) ** 2).mean(axis=0)
        total_power = np.maximum(power.sum(axis=1), 1e-300)
        shares = [
            power[:, np.abs(frequencies - line) <= wide].sum(axis=1) / total_power
            for line in known
        ]
        most = np.max(shares, axis=0)
        if np.median(most) <= 0.5:
            for at in np.flatnonzero(most > ALONE).tolist():
                affected[str(channels[at])].append(recording)
    if affected:
        channel_names = [
            f"{name} in {len(places)} recordings, first {places[0]}"
            for name, places in affected.items()
        ]
        yield (
            "audit.channels",
            f"{len(affected)} channels contain little except mains hum: {first_names(channel_names)}",
            "Mark them as bad: an electrode was detached",
        )


def inconsistent_units(
    spread: dict[tuple[str, str], Floats], assembly: xr.DataArray
) -> Problems:
    """Channels whose scale differs by a power of 1,000 from the same channel in other recordings.

    `spread` contains the standard deviation of each channel by (recording, channel type).
    """
    channels = text_of(assembly, "channel_id")
    kinds = text_of(assembly, "channel_type")
    affected: dict[str, list[str]] = defaultdict(list)
    for kind in sorted({kind for _, kind in spread}):
        by_recording = {
            recording: values
            for (recording, of_kind), values in spread.items()
            if of_kind == kind
        }
        if len(by_recording) < 3:
            continue
        table = np.stack(list(by_recording.values()))
        # Remove the scale of each recording, and the scale of each channel over recordings.
        table = table / np.maximum(np.median(table, axis=1, keepdims=True), 1e-300)
        ratios = table / np.maximum(np.median(table, axis=0), 1e-300)
        for at, channel in enumerate(channels[kinds == kind].tolist()):
            for recording, ratio in zip(
                by_recording, ratios[:, at].tolist(), strict=True
            ):
                if any(1 / WITHIN < ratio / unit < WITHIN for unit in UNITS):
                    affected[channel].append(f"{recording} ({ratio:.1g} times)")
    if affected:
        channel_names = [
            f"{channel} in {len(places)} recordings, first {places[0]}"
            for channel, places in affected.items()
        ]
        yield (
            "audit.units",
            f"{len(affected)} channels differ in scale by a power of 1,000 between recordings: {first_names(channel_names)}",
            "Find the unit of these channels; they may also be broken",
        )


def _correlation(assembly: xr.DataArray, rows: Floats) -> Floats:
    """Correlations between channels over the samples of centred windows, (channel, channel)."""
    values = floats(assembly.values[rows])
    values = values - values.mean(axis=2, keepdims=True)
    covariance = np.einsum("wcs,wds->cd", values, values)
    size = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    return np.asarray(covariance / np.outer(size, size))
