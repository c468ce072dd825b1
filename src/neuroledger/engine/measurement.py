"""Measurements, which paradigms return, and notes on overlap between pretraining data and scored data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.assembly import part_of_rows
from neuroledger.data.facts import Fact
from neuroledger.errors import DataError, some_of
from neuroledger.spec.kinds import Pretraining
from neuroledger.stats.score import Score
from neuroledger.stats.splits import Split, rows_of_stimuli

__all__ = ["Measurement", "apart", "part_of", "recording_overlap"]


@dataclass(frozen=True)
class Measurement:
    """The answers of a model and the data that they are compared with, labelled but not scored.

    Attributes
    ----------
    source
        Answers of the model: responses ``(presentation, neuroid[, time_bin])``, choices, probabilities or predictions.
    target
        The recorded data; repetitions are averaged if the metric requires it.
    repeated
        The target before averaging, from which a ceiling is estimated; None if it is the target itself.
    splits
        Train and test rows of the target, if the paradigm defines them; None for the splits of the metric.
    costs
        Scores that are computed in the same pass (footprint, operations, …), by metric id.
    facts
        What the score depends on, by name, such as the hash of prepared data.
    notes
        Notes for readers of the score.
    trace
        Intermediate counts of the paradigm for inspection; the engine does not read them.
    tested
        Ids of the stimuli on which the metric is computed; the others may only train a readout. None for all stimuli.
    """

    source: xr.DataArray
    target: xr.DataArray
    repeated: xr.DataArray | None = None
    splits: Sequence[Split] | None = None
    costs: Mapping[str, Score] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trace: object | None = None
    tested: frozenset[str] | None = None


def apart(measured: Measurement, by: str) -> Iterator[tuple[str, Measurement]]:
    """Yield one measurement for each value of the target's coordinate ``by``, in sorted order.

    Presentations without any value in a part, such as those shown to other subjects, are removed from the part.

    Raises
    ------
    DataError
        The target has no such coordinate, or a part has no train or no test rows.
    """
    target = measured.target
    if by not in target.coords or target[by].ndim != 1:
        raise DataError(f"the data have no coordinate {by!r}; correct `each`")
    dim = str(target[by].dims[0])
    for value in np.unique(target[by].values.astype(str)).tolist():
        own = target.isel({dim: np.flatnonzero(target[by].values.astype(str) == value)})
        repeated = measured.repeated
        splits = measured.splits
        if repeated is not None:
            same = repeated[by].values.astype(str) == value
            repeated = _with_values(
                repeated.isel({repeated[by].dims[0]: np.flatnonzero(same)})
            )[0]
        source = measured.source
        if (
            by in source.coords and source[by].ndim == 1
        ):  # neuroids of a value, or answers in a condition
            source = source.isel(
                {
                    source[by].dims[0]: np.flatnonzero(
                        source[by].values.astype(str) == value
                    )
                }
            )
        own, rows = _with_values(own)
        if splits is not None and len(rows) < target.sizes.get("presentation", 0):
            position = np.full(target.sizes["presentation"], -1)
            position[rows] = np.arange(len(rows))
            splits = [
                Split(*(position[part][position[part] >= 0] for part in split))
                for split in splits
            ]
            if any(not len(part) for split in splits for part in split):
                raise DataError(
                    f"{by} {value!r} has no presentations in a train or test part"
                )
        yield (
            value,
            replace(
                measured, source=source, target=own, repeated=repeated, splits=splits
            ),
        )


def part_of(measured: Measurement, stimuli: Collection[str]) -> Measurement:
    """Return the measurement of some stimuli alone: nothing of the others is left in it.

    Raises
    ------
    MetricError
        An assembly has no stimuli on its presentations.
    DataError
        A predefined split has no train or test rows left.
    """

    def kept(assembly: xr.DataArray) -> xr.DataArray:
        return part_of_rows(assembly, rows_of_stimuli(assembly, stimuli))

    rows = rows_of_stimuli(measured.target, stimuli)
    splits = measured.splits
    if splits is not None:
        position = np.full(measured.target.sizes["presentation"], -1)
        position[rows] = np.arange(len(rows))
        splits = [
            Split(*(position[part][position[part] >= 0] for part in split))
            for split in splits
        ]
        if any(not len(part) for split in splits for part in split):
            raise DataError(
                "a predefined split has no train or test rows of these stimuli"
            )
    if measured.repeated is None:
        repeated = None
    else:
        repeated = kept(measured.repeated)
    return replace(
        measured,
        source=kept(measured.source),
        target=kept(measured.target),
        repeated=repeated,
        splits=splits,
    )


def _with_values(assembly: xr.DataArray) -> tuple[xr.DataArray, npt.NDArray[np.intp]]:
    """Return the presentations with at least one value, and their row numbers."""
    count = assembly.sizes.get("presentation", 0)
    others = [dim for dim in assembly.dims if dim != "presentation"]
    if not count or not others or assembly.dtype.kind != "f":
        return assembly, np.arange(count)
    rows = np.flatnonzero(assembly.notnull().any(others).values)
    if len(rows) < count:
        assembly = assembly.isel(presentation=rows)
    return assembly, rows


def recording_overlap(
    pretraining: Sequence[str | Pretraining],
    recordings: Callable[[], Mapping[str, str]],
) -> tuple[str, ...]:
    """Return notes on recordings whose content the model was pretrained on, whatever their names.

    ``recordings`` returns the SHA-256 of each recording by name; it is called only if the pretraining lists hashes.
    """
    known = {
        digest
        for entry in pretraining
        if isinstance(entry, Pretraining)
        for digest in entry.recordings
    }
    if not known:
        return ()
    present = recordings()
    shared = sorted(name for name, digest in present.items() if digest in known)
    if not shared:
        return ()
    names = some_of(shared, 3)
    return (
        f"pretraining overlap: {len(shared)} of {len(present)} recordings by content ({names})",
    )
