"""Block-design fMRI: one pattern per block from a NIfTI series, a mask and a label for each volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from neuroledger.data.arrays import Array, Indices
from neuroledger.data.clocks import Clock, RecordingClocks
from neuroledger.data.dataset import Dataset
from neuroledger.data.facts import Fact
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.cut_windows import span_of
from neuroledger.families.signals.fmri.space import image, values_of
from neuroledger.families.signals.signals import signals
from neuroledger.spec.registry import reader

__all__ = ["nifti_blocks"]


class _Block(NamedTuple):
    """Consecutive volumes with the same label within a run."""

    label: str
    run: int
    first: int
    stop: int


@reader("nifti_blocks", version=1, prepares=True)
def nifti_blocks(
    files: Mapping[str, Path],
    *,
    bold: str,
    mask: str,
    labels: str,
    seconds: float,
    rest: str = "rest",
    subject: str = "S1",
) -> Dataset:
    """Patterns (presentation, channel, sample): for each block, the mean of its volumes minus the mean rest of its run.

    Parameters
    ----------
    bold, mask
        Names of the series (x, y, z, volume) and of the mask (x, y, z), NIfTI, gzipped or not. Channels are the
        voxels where the mask is not zero, in the order of the files.
    labels
        Name of a text file with one line "label run" for each volume.
    seconds
        Time from one volume to the next, in seconds.
    rest
        The label of the baseline; its blocks are not presentations.

    Raises
    ------
    DataError
        A file is not an image or truncated, shapes or counts do not match, or a run has no rest.
    UnavailableError
        nibabel is not installed.
    """
    series, inside = (
        values_of(image(files[name], name), name, np.float64) for name in (bold, mask)
    )
    if inside.ndim == series.ndim:
        inside = inside[..., 0]
    if series.ndim != 4 or series.shape[:3] != inside.shape:
        raise DataError(
            f"{bold} is {series.shape} and {mask} is {inside.shape}: a series and a mask of the same size are needed"
        )
    voxels = series[inside != 0].T
    names, runs = _labels(files[labels], len(voxels))
    blocks = [block for block in _blocks(names, runs) if block.label != rest]
    patterns = []
    for block in blocks:
        baseline = voxels[(runs == block.run) & (names == rest)]
        if not len(baseline):
            raise DataError(
                f"{labels}: run {block.run} has no volumes labelled {rest!r}"
            )
        patterns.append(
            voxels[block.first : block.stop].mean(axis=0) - baseline.mean(axis=0)
        )
    start = {int(run): int(np.argmax(runs == run)) for run in np.unique(runs)}
    length = min(block.stop - block.first for block in blocks)
    assembly = signals(
        np.array(patterns)[:, :, None],
        channels=[f"voxel_{number:04d}" for number in range(voxels.shape[1])],
        channel_types="fmri",
        sampling_rate=1 / (length * seconds),
        start=0.0,
        units="arbitrary",
        events={
            "stimulus_id": [block.label for block in blocks],
            "label": [block.label for block in blocks],
            "subject": [subject] * len(blocks),
            "recording": [f"run-{block.run:02d}" for block in blocks],
            "run": [block.run for block in blocks],
            "onset": [(block.first - start[block.run]) * seconds for block in blocks],
        },
    )
    clocks = tuple(
        _clocks(run, start[run], int((runs == run).sum()), blocks, seconds, subject)
        for run in start
    )
    return Dataset(stimuli=None, assembly=assembly, clocks=clocks)


def _clocks(
    run: int,
    first: int,
    volumes: int,
    blocks: Sequence[_Block],
    seconds: float,
    subject: str,
) -> RecordingClocks:
    """The clocks of a run's volumes and blocks, both by the declared repetition time."""
    onsets = np.array(
        [(block.first - first) * seconds for block in blocks if block.run == run]
    )
    start, stop = span_of(onsets)
    unit = Fact("s", "declared")
    samples = Clock(
        of="samples",
        unit=unit,
        start=0.0,
        stop=round(volumes * seconds, 6),
        rate=Fact(1 / seconds, "declared"),
        count=volumes,
    )
    shown = Clock(
        of="stimuli",
        unit=unit,
        start=start,
        stop=stop,
        count=len(onsets),
        aligned="by the numbers of volumes",
    )
    return RecordingClocks(
        recording=f"run-{run:02d}",
        subject=subject,
        clocks=(samples, shown),
        windows=len(onsets),
    )


def _labels(path: Path, volumes: int) -> tuple[Array, Indices]:
    rows = [
        line.split()
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    if len(rows) != volumes or any(
        len(row) != 2 or not row[1].isdigit() for row in rows
    ):
        raise DataError(
            f"{path.name} has {len(rows)} lines for {volumes} volumes, or lines other than 'label run'"
        )
    names = np.array([row[0] for row in rows])
    runs = np.array([int(row[1]) for row in rows])
    return names, runs


def _blocks(names: Array, runs: Indices) -> list[_Block]:
    other_name = names[1:] != names[:-1]
    other_run = runs[1:] != runs[:-1]
    new = np.flatnonzero(other_name | other_run) + 1
    edges = [0, *new.tolist(), len(names)]
    return [_Block(str(names[a]), int(runs[a]), a, b) for a, b in pairwise(edges)]
