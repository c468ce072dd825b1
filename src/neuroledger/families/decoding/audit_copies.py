"""Copies in a set of signals: recordings of equal bytes; windows that are others with another gain, sign or direction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Floats, Strings
from neuroledger.families.signals.signals import blocks, recording_digests

__all__ = ["doubled_events", "same_recordings", "same_windows"]

# Correlation from which two windows are the same samples, whatever their gain: copies in files of 16 bits are rounded.
SAME: Final = 0.9999
# Random projections of windows, and how far apart those of copies are at most: four of their deviations.
PROJECTIONS: Final = 8
APART: Final = 0.06
SHOWN: Final = 6
# How a copy was made: the sign that its samples were given, and whether their order was reversed.
WAYS: Final = ((1, False, "up to gain"), (-1, False, "upside down"), (1, True, "backwards in time"),
               (-1, True, "backwards in time and upside down"))  # fmt: skip
# Share of a window within which two events are the same one, and how much rarer than others such pairs are at most.
NEAR: Final = 0.1
FARTHER: Final = 5.0


def same_recordings(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Recordings of the same bytes, of one person or of two."""
    recordings, subjects = _names(assembly, "recording"), _names(assembly, "subject")
    owners = dict(zip(recordings.tolist(), subjects.tolist(), strict=True))
    by_digest: dict[str, list[str]] = defaultdict(list)
    for recording, digest in recording_digests(assembly).items():
        by_digest[digest].append(recording)
    for same in by_digest.values():
        people = sorted({owners[recording] for recording in same})
        if len(same) > 1:
            whose = f"people {_some(people)}" if len(people) > 1 else f"person {people[0]}"
            yield (
                "audit.duplicate",
                f"recordings {_some(same)} of {whose} hold the same bytes",
                "Find out whose it is",
            )


def same_windows(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Windows of equal form, freed of offset, drift and gain, also upside down or backwards in time.

    Random projections find them, correlation confirms.
    """
    forward, backward = _marks(assembly)
    values = assembly.values
    recordings, subjects = _names(assembly, "recording"), _names(assembly, "subject")
    onset = assembly["onset"].values.astype(float)
    for sign, reverse, how in WAYS:
        pairs = []
        for a, b in _near(forward, sign * (backward if reverse else forward), own=sign > 0 and not reverse):
            one, other = _free(values[[a, b]])
            if reverse:
                other = _free(values[[b]][:, :, ::-1])[0]
            elsewhere = recordings[a] != recordings[b] or onset[a] != onset[b]
            if elsewhere and sign * (one @ other) / len(one) > SAME:
                pairs.append((a, b))
        if pairs:
            people = sum(subjects[a] != subjects[b] for a, b in pairs)
            shown = _some(
                [f"{recordings[a]} at {onset[a]:g} s and {recordings[b]} at {onset[b]:g} s" for a, b in pairs]
            )
            yield (
                "audit.duplicate",
                f"{len(pairs)} pairs of windows are the same samples {how}, {people} of them of two people: {shown}",
                "Remove the copies",
            )


def doubled_events(assembly: xr.DataArray) -> Iterator[tuple[str, str, str]]:
    """Recordings with windows that begin where another one does, or next to it, while other events are far apart."""
    recordings, onset = _names(assembly, "recording"), assembly["onset"].values.astype(float)
    labels = _names(assembly, "label") if "label" in assembly.coords else recordings
    seconds = assembly.sizes["sample"] / float(assembly.attrs["sampling_rate"])
    told = []
    for recording in sorted(set(recordings.tolist())):
        rows = np.flatnonzero(recordings == recording)
        rows = rows[np.argsort(onset[rows], kind="stable")]
        apart = np.diff(onset[rows])
        close = (apart <= NEAR * seconds) & (labels[rows][1:] == labels[rows][:-1])
        far = apart[apart > NEAR * seconds]
        if not close.any():
            continue
        late = float(apart[close].max())
        # Windows that follow one another by a stride are near as well: here other events are far from these.
        if late > 0 and (4 * len(far) < close.sum() or far.min() < FARTHER * max(late, NEAR * seconds / 2)):
            continue
        first, second = rows[:-1][close], rows[1:][close]
        # Where it is not known when windows were recorded, equal times mean nothing: the samples have to agree as well.
        equal = apart[close] == 0
        alike = [
            bool((assembly.values[a] == assembly.values[b]).all())
            for a, b in zip(first[equal], second[equal], strict=True)
        ]
        if all(alike):
            told.append(f"{recording} ({int(close.sum())} of {len(rows)})")
    if told:
        yield (
            "audit.duplicate",
            f"{len(told)} recordings have events twice, within {NEAR * seconds:.3g} s of one another and with the same "
            f"label: {_some(told)}",
            "Keep one of each two: else a window is in training and test at once",
        )


def _marks(assembly: xr.DataArray) -> tuple[Floats, Floats]:
    """Random projections of every window as it is and backwards in time, (window, projection)."""
    rng = np.random.default_rng(0)
    weights: Floats | None = None
    parts: tuple[list[Floats], list[Floats]] = ([], [])
    for _, values in blocks(assembly):
        for at, ordered in enumerate((values, values[:, :, ::-1])):
            flat = _free(ordered)
            weights = rng.standard_normal((flat.shape[1], PROJECTIONS)) if weights is None else weights
            parts[at].append(flat @ weights / np.sqrt(flat.shape[1]))
    return np.concatenate(parts[0]), np.concatenate(parts[1])


def _near(marks: Floats, others: Floats, *, own: bool) -> list[tuple[int, int]]:
    """Pairs of a row of the one and a row of the others that are near; of many equal ones, each with the next.

    `own` says that both are the same rows.
    """
    from scipy.spatial import cKDTree

    _, first, which = np.unique(marks.round(9), axis=0, return_index=True, return_inverse=True)
    tree = cKDTree(marks[first])
    if not own:
        _, second = np.unique(others.round(9), axis=0, return_index=True)
        hits = tree.query_ball_tree(cKDTree(others[second]), APART, p=np.inf)
        found = {
            (int(min(first[a], second[b])), int(max(first[a], second[b])))
            for a, near in enumerate(hits)
            for b in near
            if first[a] != second[b]
        }
        return sorted(found)
    which = which.ravel()
    order = np.lexsort((np.arange(len(which)), which))
    equal = np.flatnonzero(which[order][1:] == which[order][:-1])
    pairs = [(int(order[at]), int(order[at + 1])) for at in equal]
    for a, b in tree.query_pairs(APART, p=np.inf, output_type="ndarray").tolist():
        pairs.append((int(min(first[a], first[b])), int(max(first[a], first[b]))))
    return sorted(pairs)


def _free(values: npt.NDArray[np.generic]) -> Floats:
    """Windows as rows, (window, channel × sample), each channel without mean and slope, with standard deviation 1.

    Electrodes have offsets that are a thousand times their signal, and drift: windows would be alike by these alone.
    """
    line = np.arange(values.shape[2], dtype=float)
    line = (line - line.mean()) / max(float(np.linalg.norm(line - line.mean())), 1e-30)
    each = np.asarray(values, dtype=float)
    each = each - each.mean(axis=2, keepdims=True)
    each = each - (each @ line)[:, :, None] * line
    flat = each.reshape(len(each), -1)
    return np.asarray(flat / np.maximum(flat.std(axis=1, keepdims=True), 1e-30))


def _names(assembly: xr.DataArray, name: str) -> Strings:
    return np.asarray(assembly[name].values).astype(str)


def _some(names: list[str]) -> str:
    return f"{', '.join(names[:SHOWN])}{f' and {len(names) - SHOWN} more' if names[SHOWN:] else ''}"
