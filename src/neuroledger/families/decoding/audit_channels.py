"""Channels that are not what they are called: another's name or samples, mains alone, or another unit in some recordings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Floats, Strings

__all__ = ["channels_in_another_order", "mains_alone", "same_channels", "units_of_some"]

LEAST_CHANNELS: Final = 6
SAME: Final = 0.9999
"""Correlation from which two channels hold one signal."""
MAINS: Final = (50.0, 60.0)
ALONE: Final = 0.9
"""Share of a channel's power at the mains from which nothing else is in it, where half of it is usual at most."""
AGREE: Final = 0.6
"""Correlation with the others' from which people have one order of channels, and how much another order has to gain."""
GAIN: Final = 0.3
STARTS: Final = 30
UNITS: Final = (1e-6, 1e-3, 1e3, 1e6)
WITHIN: Final = 5.0


def same_channels(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Pairs of channels that hold one signal in most recordings: a reference that was stored twice, or a bridge of gel."""
    channels, recordings = _names(assembly, "channel_id"), _names(assembly, "recording")
    every = sorted(set(recordings.tolist()))
    pairs: dict[tuple[int, int], int] = defaultdict(int)
    for recording in every:
        alike = np.abs(_correlation(assembly, recordings == recording))
        for a, b in np.argwhere(np.triu(alike, 1) > SAME).tolist():
            pairs[a, b] += 1
    told = [f"{channels[a]} and {channels[b]}" for (a, b), count in pairs.items() if 2 * count > len(every)]
    if told:
        yield (
            "audit.channels",
            f"{len(told)} pairs of channels hold one signal: {_some(told)}",
            "One may be a copy, or both the reference; drop one of each",
        )


def channels_in_another_order(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """People whose channels covary as those of all others do, once they are put into another order."""
    people, channels = _names(assembly, "subject"), _names(assembly, "channel_id")
    every = sorted(set(people.tolist()))
    if len(every) < 3 or len(channels) < LEAST_CHANNELS:
        return
    forms = np.stack([_correlation(assembly, people == person) for person in every])
    off = np.triu_indices(len(channels), 1)
    usual = np.median(forms, axis=0)
    agree = np.array([np.corrcoef(form[off], usual[off])[0, 1] for form in forms])
    middle = float(np.median(agree))
    if not middle >= AGREE:
        return
    told = []
    for at in np.flatnonzero(agree < middle - GAIN).tolist():
        others = np.median(forms[np.delete(np.arange(len(every)), at)], axis=0)
        order = _matched(others, forms[at])
        there = float(np.corrcoef(forms[at][np.ix_(order, order)][off], others[off])[0, 1])
        if there - agree[at] >= GAIN and there >= middle - GAIN / 3:
            moved = [
                f"{channels[was]} is called {channels[now]}"
                for now, was in zip(order.tolist(), range(len(order)), strict=True)
                if now != was
            ]
            told.append(f"{every[at]} ({len(moved)} of {len(channels)}: {', '.join(moved[:3])})")
    if told:
        yield (
            "audit.channels",
            f"channels of {len(told)} people covary like those of the others in another order: {_some(told)}",
            "Compare the order of their channels with the publisher's",
        )


def _matched(wanted: Floats, form: Floats) -> npt.NDArray[np.intp]:
    """The order of channels in which one matrix is most like another: the best of several searches, swapped to its end."""
    from scipy.optimize import quadratic_assignment

    rng = np.random.default_rng(0)
    wanted, form = wanted - np.diag(np.diag(wanted)), form - np.diag(np.diag(form))
    found = [quadratic_assignment(wanted, form, options={"maximize": True, "rng": rng})]
    for _ in range(STARTS):
        tried = quadratic_assignment(wanted, form, options={"maximize": True, "rng": rng, "P0": "randomized"})
        found.append(tried)
    best = max(found, key=lambda one: float(one.fun)).col_ind
    guess = np.stack([np.arange(len(best)), best], axis=1)
    ended = quadratic_assignment(
        wanted, form, method="2opt", options={"maximize": True, "rng": rng, "partial_guess": guess}
    )
    return np.asarray(ended.col_ind)


def mains_alone(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Channels in which hardly anything is but the hum of the mains, while the others have a signal."""
    rate, length = float(assembly.attrs["sampling_rate"]), assembly.sizes["sample"]
    channels, recordings = _names(assembly, "channel_id"), _names(assembly, "recording")
    frequencies = np.fft.rfftfreq(length, 1.0 / rate)
    wide = 2.5 * rate / length
    known = [line for line in MAINS if line + wide < rate / 2]
    if not known or wide > 10.0:
        return
    held: dict[str, list[str]] = defaultdict(list)
    for recording in sorted(set(recordings.tolist())):
        values = np.asarray(assembly.values[recordings == recording], dtype=float)
        values = (values - values.mean(axis=2, keepdims=True)) * np.hanning(length)
        power = (np.abs(np.fft.rfft(values, axis=2)) ** 2).mean(axis=0)
        whole = np.maximum(power.sum(axis=1), 1e-300)
        shares = [power[:, np.abs(frequencies - line) <= wide].sum(axis=1) / whole for line in known]
        most = np.max(shares, axis=0)
        if np.median(most) <= 0.5:
            for at in np.flatnonzero(most > ALONE).tolist():
                held[str(channels[at])].append(recording)
    if held:
        shown = [f"{name} in {len(where)} recordings, first {where[0]}" for name, where in held.items()]
        yield (
            "audit.channels",
            f"{len(held)} channels hold hardly anything but the hum of the mains: {_some(shown)}",
            "Mark them as bad: an electrode was off",
        )


def units_of_some(
    spread: dict[tuple[str, str], Floats], assembly: xr.DataArray
) -> Iterator[tuple[str, str, str]]:
    """Channels that vary by a power of 1,000 more or less than the same channel elsewhere, in the fewer of the recordings.

    `spread` are standard deviations of each channel by (recording, type of channel).
    """
    channels, kinds = _names(assembly, "channel_id"), _names(assembly, "channel_type")
    told: dict[str, list[str]] = defaultdict(list)
    for kind in sorted({kind for _, kind in spread}):
        held = {recording: values for (recording, one), values in spread.items() if one == kind}
        if len(held) < 3:
            continue
        table = np.stack(list(held.values()))
        # Freed of how loud a recording is as a whole, and of how loud a channel is everywhere.
        table = table / np.maximum(np.median(table, axis=1, keepdims=True), 1e-300)
        ratios = table / np.maximum(np.median(table, axis=0), 1e-300)
        for at, channel in enumerate(channels[kinds == kind].tolist()):
            for recording, ratio in zip(held, ratios[:, at].tolist(), strict=True):
                if any(1 / WITHIN < ratio / unit < WITHIN for unit in UNITS):
                    told[channel].append(f"{recording} ({ratio:.1g} times)")
    if told:
        shown = [f"{channel} in {len(where)} recordings, first {where[0]}" for channel, where in told.items()]
        yield (
            "audit.units",
            f"{len(told)} channels vary by a power of 1,000 more or less in some recordings than in others: {_some(shown)}",
            "Find the unit of these channels; they may also be broken",
        )


def _correlation(assembly: xr.DataArray, rows: Floats) -> Floats:
    """Correlations of channels over the samples of windows, each window without its mean, (channel, channel)."""
    values = np.asarray(assembly.values[rows], dtype=float)
    values = values - values.mean(axis=2, keepdims=True)
    covariance = np.einsum("wcs,wds->cd", values, values)
    size = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    return np.asarray(covariance / np.outer(size, size))


def _names(assembly: xr.DataArray, name: str) -> Strings:
    return np.asarray(assembly[name].values).astype(str)


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:6])}{f' and {len(names) - 6} more' if names[6:] else ''}"
