"""Checks for labels that belong to other windows, or that can be predicted without the signal."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Strings, floats
from neuroledger.families.decoding.audit_common import Problems, first_names, text_of

__all__ = [
    "events_in_another_unit",
    "labels_of_other_windows",
    "labels_predicted_by_subjects",
]

MOST_CHANNELS: Final = 16
"""Largest number of channels whose covariance is used; more are mixed by a fixed orthonormal matrix."""
FOLDS: Final = 10
KNOWN: Final = 0.01
LEAST_WINDOWS: Final = 20
MOST_WINDOWS: Final = 200
"""Largest number of windows of a recording that are used, from its beginning."""
BINS: Final = 8
ERROR: Final = 1e-3
"""Probability of a false report in recordings without a signal."""
TELLS: Final = 0.3
"""Cramér's V of subjects and labels above which the subject predicts the label."""
CERTAIN: Final = 1e-6
SLOWER: Final = 4.0
CLOSE: Final = 0.03


def labels_of_other_windows(assembly: xr.DataArray) -> Problems:
    """Recordings whose labels are shifted by one window, and recordings with two labels exchanged.

    The predictions of a decoder trained on other recordings are compared with the labels, with the labels shifted by one
    window, and with exchanged labels. Problems are reported only if most recordings agree with their own labels.
    """
    if "label" not in assembly.coords:
        return
    recordings = text_of(assembly, "recording")
    labels = text_of(assembly, "label")
    onset = assembly["onset"].values.astype(float)
    rows = {}
    for name in sorted(set(recordings.tolist())):
        rows_here = np.flatnonzero(recordings == name)
        rows_here = rows_here[np.argsort(onset[rows_here], kind="stable")][
            :MOST_WINDOWS
        ]
        counts = np.unique(labels[rows_here], return_counts=True)[1]
        if len(rows_here) >= LEAST_WINDOWS and len(counts) > 1 and counts.min() >= BINS:
            rows[name] = rows_here
    if len(rows) < 3:
        return
    labels_of = {name: labels[rows_here] for name, rows_here in rows.items()}
    sides = {
        name: _window_features(floats(assembly.values[rows_here]))
        for name, rows_here in rows.items()
    }
    shifted: dict[str, str] = {}
    exchanged: dict[str, str] = {}
    classes = sorted(set(np.concatenate(list(labels_of.values())).tolist()))
    for kind in range(2):
        predicted = _cross_predictions(
            {name: both[kind] for name, both in sides.items()}, labels_of
        )
        chances = {
            name: _agreement_by_chance(predicted[name], own_labels)
            for name, own_labels in labels_of.items()
        }
        if 2 * sum(own < KNOWN for own, _, _ in chances.values()) <= len(chances):
            continue
        level = ERROR / (6 * len(chances))
        for name, (own, before, after) in chances.items():
            if own > 0.05 and min(before, after) < level:
                shifted.setdefault(
                    name,
                    f"{name} ({'the next' if after < before else 'the previous'} one's)",
                )
            wrong = _agreement_by_chance(
                predicted[name],
                np.where(labels_of[name] == classes[0], classes[-1], classes[0]),
            )[0]
            if len(classes) == 2 and wrong < level:
                right = int((predicted[name] == labels_of[name]).sum())
                exchanged.setdefault(
                    name, f"{name} ({right} of {len(labels_of[name])} as labelled)"
                )
    if shifted and not set(shifted) <= set(exchanged):
        yield (
            "audit.labels",
            f"windows of {len(shifted)} recordings show the label of another window, to a decoder trained on the others: "
            f"{first_names(list(shifted.values()))}: their labels may be shifted by one trial",
            "Compare the order of their labels with the logs of the experiment",
        )
    if exchanged:
        yield (
            "audit.labels",
            f"{len(exchanged)} recordings look as if {classes[0]!r} and {classes[-1]!r} were exchanged, to a decoder "
            f"trained on the others: {first_names(list(exchanged.values()))}",
            "Compare their codes with those of the others",
        )


def labels_predicted_by_subjects(assembly: xr.DataArray) -> Problems:
    """Labels that the subject predicts because they are distributed unevenly, where subjects have several labels."""
    if "label" not in assembly.coords:
        return
    subjects, subject_of = np.unique(text_of(assembly, "subject"), return_inverse=True)
    classes, class_of = np.unique(text_of(assembly, "label"), return_inverse=True)
    if len(subjects) < 2 or len(classes) < 2:
        return
    table = np.zeros((len(subjects), len(classes)))
    np.add.at(table, (subject_of.ravel(), class_of.ravel()), 1)
    if not (np.sum(table > 0, axis=1) > 1).any():
        return
    from scipy.stats import chi2_contingency

    test = chi2_contingency(table, correction=False)
    strength = math.sqrt(test.statistic / (table.sum() * (min(table.shape) - 1)))
    if strength < TELLS or test.pvalue > CERTAIN:
        return
    shares = table / table.sum(axis=1, keepdims=True)
    at = int(np.argmax(shares.max(axis=0) - shares.min(axis=0)))
    least = int(shares[:, at].argmin())
    most = int(shares[:, at].argmax())
    yield (
        "audit.order",
        f"the subject predicts the label (Cramér's V {strength:.2f}): {str(classes[at])!r} are "
        f"{100 * shares[least, at]:.0f} % of the windows of {subjects[least]} and "
        f"{100 * shares[most, at]:.0f} % of those of {subjects[most]}",
        "Test on new subjects, and weight the classes of each subject",
    )


def events_in_another_unit(assembly: xr.DataArray) -> Problems:
    """Recordings whose intervals between events suggest another unit of time than in the others."""
    recordings = text_of(assembly, "recording")
    onset = assembly["onset"].values.astype(float)
    rate = float(assembly.attrs["sampling_rate"])
    pace = {}
    for name in sorted(set(recordings.tolist())):
        apart = np.diff(np.sort(onset[recordings == name]))
        if len(apart) >= 5 and np.median(apart) > 0:
            pace[name] = float(np.median(apart))
    if len(pace) < 3:
        return
    usual = float(np.median(list(pace.values())))

    def odd(interval: float) -> bool:
        ratio = interval / usual
        samples = (
            min(abs(ratio / (rate / 1000) - 1), abs(ratio / (1000 / rate) - 1)) < CLOSE
        )
        return max(ratio, 1 / ratio) >= SLOWER or (
            samples and max(ratio, 1 / ratio) > 1.2
        )

    affected = [
        f"{name} (every {interval:.3g} s)"
        for name, interval in pace.items()
        if odd(interval)
    ]
    if affected and 2 * len(affected) < len(pace):
        yield (
            "audit.shifted",
            f"events of {len(affected)} recordings are in another unit of time than those of the others, every "
            f"{usual:.3g} s: {first_names(affected)}",
            "Find out whether their times are in samples, milliseconds or seconds",
        )


def _window_features(values: Floats) -> tuple[Floats, Floats]:
    """Standardised log-covariances and binned amplitudes of windows (window, channel, sample)."""
    count = values.shape[1]
    if count > MOST_CHANNELS:
        mixing = np.linalg.qr(
            np.random.default_rng(0).standard_normal((count, MOST_CHANNELS))
        )[0]
        values = np.einsum("cd,wcs->wds", mixing, values)
    values = values - values.mean(axis=2, keepdims=True)
    covariance = np.einsum("wcs,wds->wcd", values, values) / values.shape[2]
    size = np.trace(covariance, axis1=1, axis2=2)[:, None, None] / covariance.shape[1]
    weights, vectors = np.linalg.eigh(
        covariance + 1e-3 * np.maximum(size, 1e-300) * np.eye(covariance.shape[1])
    )
    logarithms = np.einsum(
        "wce,we,wde->wcd", vectors, np.log(np.maximum(weights, 1e-300)), vectors
    )
    upper = np.triu_indices(covariance.shape[1])
    parts = np.array_split(np.arange(values.shape[2]), min(BINS, values.shape[2]))
    amplitudes = np.concatenate(
        [values[:, :, part].mean(axis=2) for part in parts], axis=1
    )
    return _standardised(logarithms[:, upper[0], upper[1]]), _standardised(amplitudes)


def _standardised(features: Floats) -> Floats:
    features = features - features.mean(axis=0)
    return np.asarray(features / np.maximum(features.std(axis=0), 1e-12))


def _cross_predictions(
    features: dict[str, Floats], labels: dict[str, Strings]
) -> dict[str, Strings]:
    """Predicted labels of each recording's windows, by decoders trained on other recordings in ten folds."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    names = list(features)
    predictions: dict[str, Strings] = {}
    for fold in range(min(FOLDS, len(names))):
        tested = names[fold::FOLDS]
        others = [name for name in names if name not in tested]
        model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        model.fit(
            np.concatenate([features[o] for o in others]),
            np.concatenate([labels[o] for o in others]),
        )
        predictions |= {name: model.predict(features[name]) for name in tested}
    return predictions


def _agreement_by_chance(
    predicted: Strings, labels: Strings
) -> tuple[float, float, float]:
    """Probabilities of this many agreements by chance: with each window's label, the previous one's and the next one's."""
    from scipy.stats import binom, hypergeom

    candidates = (labels, np.roll(labels, 1), np.roll(labels, -1))
    classes = np.unique(labels)
    if len(classes) == 2:
        # With two classes and given numbers of each, agreements follow from the hits of one class, which are exact.
        positive = predicted == classes[1]
        own, before, after = (
            float(
                hypergeom.sf(
                    int((positive & (label == classes[1])).sum()) - 1,
                    len(labels),
                    int((label == classes[1]).sum()),
                    int(positive.sum()),
                )
            )
            for label in candidates
        )
        return own, before, after
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    guess = max(
        float(shares.max()),
        float(
            (
                shares * np.array([np.mean(predicted == label) for label in classes])
            ).sum()
        ),
    )
    own, before, after = (
        float(binom.sf(int((predicted == label).sum()) - 1, len(labels), guess))
        for label in candidates
    )
    return own, before, after
