"""Labels that are not those of their windows, or that something beside the signal tells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Strings

__all__ = ["events_in_another_unit", "labels_of_other_windows", "people_tell"]

MOST_CHANNELS: Final = 16
"""Directions among the channels whose covariance is looked at; more are mixed by a fixed orthonormal matrix."""
FOLDS: Final = 10
KNOWN: Final = 0.01
LEAST_WINDOWS: Final = 20
MOST_WINDOWS: Final = 200
"""Windows of a recording that are looked at, evenly from all of them."""
BINS: Final = 8
ERROR: Final = 1e-3
"""Probability of a false report in a set of recordings that hold nothing."""
TELLS: Final = 0.3
"""Cramér's V of people and labels from which who it is tells the label."""
CERTAIN: Final = 1e-6
SLOWER: Final = 4.0
CLOSE: Final = 0.03


def labels_of_other_windows(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Recordings whose windows show the label of the window before or after, and recordings with two labels exchanged.

    A decoder that other recordings taught is held against the labels as they are, moved by one window, and exchanged. Both
    are reported only where most recordings show their own labels.
    """
    if "label" not in assembly.coords:
        return
    recordings, labels = _names(assembly, "recording"), _names(assembly, "label")
    onset = assembly["onset"].values.astype(float)
    rows = {}
    for name in sorted(set(recordings.tolist())):
        mine = np.flatnonzero(recordings == name)
        mine = mine[np.argsort(onset[mine], kind="stable")][:MOST_WINDOWS]
        counts = np.unique(labels[mine], return_counts=True)[1]
        if len(mine) >= LEAST_WINDOWS and len(counts) > 1 and counts.min() >= BINS:
            rows[name] = mine
    if len(rows) < 3:
        return
    told = {name: labels[mine] for name, mine in rows.items()}
    sides = {name: _features(np.asarray(assembly.values[mine], dtype=float)) for name, mine in rows.items()}
    shifted: dict[str, str] = {}
    exchanged: dict[str, str] = {}
    every = sorted(set(np.concatenate(list(told.values())).tolist()))
    for kind in range(2):
        said = _predicted({name: both[kind] for name, both in sides.items()}, told)
        chances = {name: _chances(said[name], held) for name, held in told.items()}
        if 2 * sum(own < KNOWN for own, _, _ in chances.values()) <= len(chances):
            continue
        level = ERROR / (6 * len(chances))
        for name, (own, before, after) in chances.items():
            if own > 0.05 and min(before, after) < level:
                shifted.setdefault(name, f"{name} ({'the next' if after < before else 'the previous'} one's)")
            wrong = _chances(said[name], np.where(told[name] == every[0], every[-1], every[0]))[0]
            if len(every) == 2 and wrong < level:
                right = int((said[name] == told[name]).sum())
                exchanged.setdefault(name, f"{name} ({right} of {len(told[name])} as said)")
    if shifted and not set(shifted) <= set(exchanged):
        yield (
            "audit.labels",
            f"windows of {len(shifted)} recordings show the label of another window, to a decoder that the others taught: "
            f"{_some(list(shifted.values()))}: their labels may be shifted by one trial",
            "Compare the order of their labels with the logs of the experiment",
        )
    if exchanged:
        yield (
            "audit.labels",
            f"{len(exchanged)} recordings look as if {every[0]!r} and {every[-1]!r} were exchanged, to a decoder that the "
            f"others taught: {_some(list(exchanged.values()))}",
            "Compare their codes with those of the others",
        )


def people_tell(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Labels that are so unevenly spread over people that who it is tells the label, where people have several."""
    if "label" not in assembly.coords:
        return
    people, whose = np.unique(_names(assembly, "subject"), return_inverse=True)
    every, what = np.unique(_names(assembly, "label"), return_inverse=True)
    if len(people) < 2 or len(every) < 2:
        return
    table = np.zeros((len(people), len(every)))
    np.add.at(table, (whose.ravel(), what.ravel()), 1)
    if not (np.sum(table > 0, axis=1) > 1).any():
        return
    from scipy.stats import chi2_contingency

    tested = chi2_contingency(table, correction=False)
    strength = math.sqrt(tested.statistic / (table.sum() * (min(table.shape) - 1)))
    if strength < TELLS or tested.pvalue > CERTAIN:
        return
    shares = table / table.sum(axis=1, keepdims=True)
    at = int(np.argmax(shares.max(axis=0) - shares.min(axis=0)))
    least, most = int(shares[:, at].argmin()), int(shares[:, at].argmax())
    yield (
        "audit.order",
        f"who it is tells the label (Cramér's V {strength:.2f}): {str(every[at])!r} are {100 * shares[least, at]:.0f} % of "
        f"the windows of {people[least]} and {100 * shares[most, at]:.0f} % of those of {people[most]}",
        "Test on new people, and weight the classes of each person",
    )


def events_in_another_unit(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Recordings whose events follow one another in another measure of time than those of the others."""
    recordings, onset = _names(assembly, "recording"), assembly["onset"].values.astype(float)
    rate = float(assembly.attrs["sampling_rate"])
    pace = {}
    for name in sorted(set(recordings.tolist())):
        apart = np.diff(np.sort(onset[recordings == name]))
        if len(apart) >= 5 and np.median(apart) > 0:
            pace[name] = float(np.median(apart))
    if len(pace) < 3:
        return
    usual = float(np.median(list(pace.values())))

    def odd(one: float) -> bool:
        ratio = one / usual
        samples = min(abs(ratio / (rate / 1000) - 1), abs(ratio / (1000 / rate) - 1)) < CLOSE
        return max(ratio, 1 / ratio) >= SLOWER or (samples and max(ratio, 1 / ratio) > 1.2)

    told = [f"{name} (every {one:.3g} s)" for name, one in pace.items() if odd(one)]
    if told and 2 * len(told) < len(pace):
        yield (
            "audit.shifted",
            f"events of {len(told)} recordings have another measure of time than those of the others, every "
            f"{usual:.3g} s: {_some(told)}",
            "Find out whether their times are samples, milliseconds or seconds",
        )


def _features(values: Floats) -> tuple[Floats, Floats]:
    """Of windows (window, channel, sample): logarithms of covariances, and amplitudes in bins of time, both standardised."""
    count = values.shape[1]
    if count > MOST_CHANNELS:
        mixing = np.linalg.qr(np.random.default_rng(0).standard_normal((count, MOST_CHANNELS)))[0]
        values = np.einsum("cd,wcs->wds", mixing, values)
    values = values - values.mean(axis=2, keepdims=True)
    covariance = np.einsum("wcs,wds->wcd", values, values) / values.shape[2]
    size = np.trace(covariance, axis1=1, axis2=2)[:, None, None] / covariance.shape[1]
    weights, vectors = np.linalg.eigh(
        covariance + 1e-3 * np.maximum(size, 1e-300) * np.eye(covariance.shape[1])
    )
    logarithms = np.einsum("wce,we,wde->wcd", vectors, np.log(np.maximum(weights, 1e-300)), vectors)
    upper = np.triu_indices(covariance.shape[1])
    parts = np.array_split(np.arange(values.shape[2]), min(BINS, values.shape[2]))
    amplitudes = np.concatenate([values[:, :, part].mean(axis=2) for part in parts], axis=1)
    return _standard(logarithms[:, upper[0], upper[1]]), _standard(amplitudes)


def _standard(found: Floats) -> Floats:
    found = found - found.mean(axis=0)
    return np.asarray(found / np.maximum(found.std(axis=0), 1e-12))


def _predicted(features: dict[str, Floats], labels: dict[str, Strings]) -> dict[str, Strings]:
    """What decoders say of each recording's windows that other recordings taught, in tenths of them."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    names = list(features)
    said: dict[str, Strings] = {}
    for fold in range(min(FOLDS, len(names))):
        tested = names[fold::FOLDS]
        others = [name for name in names if name not in tested]
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        model.fit(np.concatenate([features[o] for o in others]), np.concatenate([labels[o] for o in others]))
        said |= {name: model.predict(features[name]) for name in tested}
    return said


def _chances(said: Strings, labels: Strings) -> tuple[float, float, float]:
    """Probability that chance agrees as well with the labels as they are, of the window before, and of the one after."""
    from scipy.stats import binom

    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    guess = max(
        float(shares.max()),
        float((shares * np.array([np.mean(said == one) for one in np.unique(labels)])).sum()),
    )
    moved = (labels, np.roll(labels, 1), np.roll(labels, -1))
    own, before, after = (float(binom.sf(int((said == one).sum()) - 1, len(labels), guess)) for one in moved)
    return own, before, after


def _names(assembly: xr.DataArray, name: str) -> Strings:
    return np.asarray(assembly[name].values).astype(str)


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:6])}{f' and {len(names) - 6} more' if names[6:] else ''}"
