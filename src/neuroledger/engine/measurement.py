"""What a paradigm returns, what the model gave beside what the brain gave, and whether the model knew the data before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.errors import DataError
from neuroledger.spec.kinds import Pretraining
from neuroledger.stats.score import Score
from neuroledger.stats.splits import Split

__all__ = ["Measurement", "apart", "overlap_notes", "recording_overlap"]


@dataclass(frozen=True)
class Measurement:
    """A model's answer and the data it is compared with, labelled, not scored.

    Attributes
    ----------
    source
        What the model gave: ``(presentation, neuroid[, time_bin])``, choices, probabilities or predictions.
    target
        What it is compared with; repetitions averaged where the metric needs that.
    repeated
        The target before averaging: what a ceiling is estimated from. None: the target itself.
    splits
        Fixed train/test divisions of the target's rows, where the paradigm defines them; the metric's own otherwise.
    costs
        Scores that come out of the same pass (footprint, operations, …), by metric id.
    notes
        What a reader of the score must know.
    trace
        What the paradigm counted on the way, for closer looks; the engine does not read it.
    """

    source: xr.DataArray
    target: xr.DataArray
    repeated: xr.DataArray | None = None
    splits: Sequence[Split] | None = None
    costs: Mapping[str, Score] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trace: object | None = None


def apart(measured: Measurement, by: str) -> Iterator[tuple[str, Measurement]]:
    """The measurement for each value of a coordinate of the target apart, in sorted order.

    Presentations for which a part has no value at all, such as those that were shown to other subjects, are left out of it.

    Raises
    ------
    DataError
        The target has no such coordinate, or the splits leave a part without train or test rows.
    """
    target = measured.target
    if by not in target.coords or target[by].ndim != 1:
        raise DataError(f"the data have no coordinate {by!r} to score each value of; correct `each`")
    dim = str(target[by].dims[0])
    for value in np.unique(target[by].values.astype(str)).tolist():
        own = target.isel({dim: np.flatnonzero(target[by].values.astype(str) == value)})
        repeated, splits = measured.repeated, measured.splits
        if repeated is not None:
            same = repeated[by].values.astype(str) == value
            repeated = _shown(repeated.isel({repeated[by].dims[0]: np.flatnonzero(same)}))[0]
        source = measured.source
        if by in source.coords and source[by].ndim == 1:  # of its neuroids, or the answers under a condition
            source = source.isel({source[by].dims[0]: np.flatnonzero(source[by].values.astype(str) == value)})
        own, rows = _shown(own)
        if splits is not None and len(rows) < target.sizes.get("presentation", 0):
            place = np.full(target.sizes["presentation"], -1)
            place[rows] = np.arange(len(rows))
            splits = [Split(*(place[part][place[part] >= 0] for part in split)) for split in splits]
            if any(not len(part) for split in splits for part in split):
                raise DataError(f"{by} {value!r} has no presentations in a train or test part")
        yield value, replace(measured, source=source, target=own, repeated=repeated, splits=splits)


def _shown(assembly: xr.DataArray) -> tuple[xr.DataArray, npt.NDArray[np.intp]]:
    """The presentations that have any value, and their rows."""
    count = assembly.sizes.get("presentation", 0)
    others = [dim for dim in assembly.dims if dim != "presentation"]
    if not count or not others or assembly.dtype.kind != "f":
        return assembly, np.arange(count)
    rows = np.flatnonzero(assembly.notnull().any(others).values)
    return (assembly if len(rows) == count else assembly.isel(presentation=rows)), rows


def overlap_notes(pretraining: Sequence[str | Pretraining], dataset: str) -> tuple[str, ...]:
    """Notes on data sets that the model was pretrained on and is scored on; `X.motor` is a part of `X`.

    Examples
    --------
    >>> overlap_notes(["Stieger2021"], "Stieger2021.motor")
    ('pretraining overlap: the model was pretrained on Stieger2021',)
    """
    ids = {entry if isinstance(entry, str) else entry.dataset for entry in pretraining}
    named = sorted(id for id in ids if _same_or_part(id, dataset) or _same_or_part(dataset, id))
    return (f"pretraining overlap: the model was pretrained on {', '.join(named)}",) if named else ()


def recording_overlap(
    pretraining: Sequence[str | Pretraining], recordings: Callable[[], Mapping[str, str]]
) -> tuple[str, ...]:
    """Notes on recordings with the content of those that the model was pretrained on, whatever they are called.

    ``recordings`` gives the SHA-256 of each recording by name; it is called only where the pretraining states hashes.
    """
    known = {digest for entry in pretraining if isinstance(entry, Pretraining) for digest in entry.recordings}
    if not known:
        return ()
    present = recordings()
    shared = sorted(name for name, digest in present.items() if digest in known)
    if not shared:
        return ()
    shown = ", ".join(shared[:3]) + (", …" if len(shared) > 3 else "")
    return (f"pretraining overlap: {len(shared)} of {len(present)} recordings by content ({shown})",)


def _same_or_part(whole: str, part: str) -> bool:
    return part == whole or part.startswith(f"{whole}.")
