"""Checks for copies: recordings with equal bytes, and windows that differ only by gain, sign or direction in time."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Floats, floats
from neuroledger.families.decoding.audit_common import Problems, first_names, text_of
from neuroledger.families.signals.signals import blocks, recording_digests

__all__ = ["SAME", "duplicated_events", "normalised", "same_recordings", "same_windows"]

# Two windows with a higher correlation are copies, whatever their gain: copies in 16-bit files are rounded.
SAME: Final = 0.9999
# Number of random projections of a window, and the largest distance between those of copies: four standard deviations.
PROJECTIONS: Final = 8
APART: Final = 0.06
# Kinds of copies: the factor of the samples, whether their order is reversed, and the description.
WAYS: Final = (
    (1, False, "up to gain"),
    (-1, False, "with the sign inverted"),
    (1, True, "reversed in time"),
    (-1, True, "reversed in time and with the sign inverted"),
)
# Two events closer than this share of a window are the same one; other events must be this many times farther apart.
NEAR: Final = 0.1
FARTHER: Final = 5.0


def same_recordings(assembly: xr.DataArray) -> Problems:
    """Recordings with the same bytes, of one subject or of several."""
    recordings = text_of(assembly, "recording")
    subjects = text_of(assembly, "subject")
    owners = dict(zip(recordings.tolist(), subjects.tolist(), strict=True))
    by_digest: dict[str, list[str]] = defaultdict(list)
    for recording, digest in recording_digests(assembly).items():
        by_digest[digest].append(recording)
    for same in by_digest.values():
        owner_ids = sorted({owners[recording] for recording in same})
        if len(same) > 1:
            subjects_text = (
                f"subjects {first_names(owner_ids)}"
                if len(owner_ids) > 1
                else f"subject {owner_ids[0]}"
            )
            yield (
                "audit.duplicate",
                f"recordings {first_names(same)} of {subjects_text} have the same bytes",
                "Find out to whom the recording belongs",
            )


def same_windows(assembly: xr.DataArray) -> Problems:
    """Windows that are equal up to offset, drift and gain, also inverted or reversed in time.

    Random projections find the candidates; their correlation confirms them.
    """
    forward, backward = _projections(assembly)
    values = assembly.values
    recordings = text_of(assembly, "recording")
    subjects = text_of(assembly, "subject")
    onset = assembly["onset"].values.astype(float)
    for sign, reverse, how in WAYS:
        pairs = []
        for a, b in _close_pairs(
            forward,
            sign * (backward if reverse else forward),
            own=sign > 0 and not reverse,
        ):
            first, second = normalised(values[[a, b]])
            if reverse:
                second = normalised(values[[b]][:, :, ::-1])[0]
            elsewhere = recordings[a] != recordings[b] or onset[a] != onset[b]
            if elsewhere and sign * (first @ second) / len(first) > SAME:
                pairs.append((a, b))
        if pairs:
            across = sum(subjects[a] != subjects[b] for a, b in pairs)
            examples = first_names(
                [
                    f"{recordings[a]} at {onset[a]:g} s and {recordings[b]} at {onset[b]:g} s"
                    for a, b in pairs
                ]
            )
            yield (
                "audit.duplicate",
                f"{len(pairs)} pairs of windows are the same samples {how}, {across} of them of two subjects: {examples}",
                "Remove the copies",
            )


def duplicated_events(assembly: xr.DataArray) -> Problems:
    """Recordings with windows that begin at or close to the onset of another one, while other events are far apart."""
    recordings = text_of(assembly, "recording")
    onset = assembly["onset"].values.astype(float)
    labels = text_of(assembly, "label") if "label" in assembly.coords else recordings
    seconds = assembly.sizes["sample"] / float(assembly.attrs["sampling_rate"])
    affected = []
    for recording in sorted(set(recordings.tolist())):
        rows = np.flatnonzero(recordings == recording)
        rows = rows[np.argsort(onset[rows], kind="stable")]
        apart = np.diff(onset[rows])
        close = (apart <= NEAR * seconds) & (labels[rows][1:] == labels[rows][:-1])
        far = apart[apart > NEAR * seconds]
        if not close.any():
            continue
        late = float(apart[close].max())
        # Sliding windows are close to each other too; duplicates are far from all other events.
        if late > 0 and (
            4 * len(far) < close.sum()
            or far.min() < FARTHER * max(late, NEAR * seconds / 2)
        ):
            continue
        first = rows[:-1][close]
        second = rows[1:][close]
        # Equal onsets may mean that the times are unknown: the samples must be equal as well.
        equal = apart[close] == 0
        alike = [
            bool((assembly.values[a] == assembly.values[b]).all())
            for a, b in zip(first[equal], second[equal], strict=True)
        ]
        if all(alike):
            affected.append(f"{recording} ({int(close.sum())} of {len(rows)})")
    if affected:
        yield (
            "audit.duplicate",
            f"{len(affected)} recordings have duplicated events, within {NEAR * seconds:.3g} s of one another and with the "
            f"same label: {first_names(affected)}",
            "Keep one of each pair: otherwise a window may be in training and test at once",
        )


def _projections(assembly: xr.DataArray) -> tuple[Floats, Floats]:
    """Random projections of every window, forwards and reversed in time, (window, projection)."""
    rng = np.random.default_rng(0)
    weights: Floats | None = None
    parts: tuple[list[Floats], list[Floats]] = ([], [])
    for _, values in blocks(assembly):
        for at, ordered in enumerate((values, values[:, :, ::-1])):
            flat = normalised(ordered)
            if weights is None:
                weights = rng.standard_normal((flat.shape[1], PROJECTIONS))
            parts[at].append(flat @ weights / np.sqrt(flat.shape[1]))
    return np.concatenate(parts[0]), np.concatenate(parts[1])


def _close_pairs(marks: Floats, others: Floats, *, own: bool) -> list[tuple[int, int]]:
    """Pairs of a row of `marks` and a close row of `others`; of several equal rows, each is paired with the next.

    With `own`, both arrays contain the same rows.
    """
    from scipy.spatial import cKDTree

    _, first, which = np.unique(
        marks.round(9), axis=0, return_index=True, return_inverse=True
    )
    tree = cKDTree(marks[first])
    if not own:
        _, second = np.unique(others.round(9), axis=0, return_index=True)
        hits = tree.query_ball_tree(cKDTree(others[second]), APART, p=np.inf)
        return sorted(
            {
                (int(min(first[a], second[b])), int(max(first[a], second[b])))
                for a, near in enumerate(hits)
                for b in near
                if first[a] != second[b]
            }
        )
    which = which.ravel()
    order = np.lexsort((np.arange(len(which)), which))
    equal = np.flatnonzero(which[order][1:] == which[order][:-1])
    pairs = [(int(order[at]), int(order[at + 1])) for at in equal]
    for a, b in tree.query_pairs(APART, p=np.inf, output_type="ndarray").tolist():
        pairs.append((int(min(first[a], first[b])), int(max(first[a], first[b]))))
    return sorted(pairs)


def normalised(values: npt.NDArray[np.generic]) -> Floats:
    """Windows as rows, (window, channel × sample), with mean and slope of each channel removed, scaled to a deviation of 1.

    Offsets and drifts of electrodes are up to a thousand times their signal, and would make all windows similar.
    """
    line = np.arange(values.shape[2], dtype=float)
    line = (line - line.mean()) / max(float(np.linalg.norm(line - line.mean())), 1e-30)
    normalised = floats(values)
    normalised = normalised - normalised.mean(axis=2, keepdims=True)
    normalised = normalised - (normalised @ line)[:, :, None] * line
    flat = normalised.reshape(len(normalised), -1)
    return np.asarray(flat / np.maximum(flat.std(axis=1, keepdims=True), 1e-30))
