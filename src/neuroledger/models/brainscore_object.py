"""Objects written for Brain-Score's model interface answer as they are, their known defects kept out of the numbers."""

from __future__ import annotations

import copy
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.core.model import Task
from neuroledger.core.stimuli import StimulusSet
from neuroledger.core.time_bins import Bin
from neuroledger.errors import ModelError, RequestError

WHOLE_RESPONSE: Final = (70, 170)
"""Time bin, ms, that is asked of a model where a benchmark has no time: the interface has no other way."""


@runtime_checkable
class BrainModel(Protocol):
    """The interface that Brain-Score submissions implement."""

    def visual_degrees(self) -> float:
        """Visual angle of the model's input."""

    def start_task(self, task: Any, *arguments: Any) -> None:
        """Prepare for decisions."""

    def start_recording(self, recording_target: Any, time_bins: Any) -> None:
        """Prepare for responses of a region."""

    def look_at(self, stimuli: Any, number_of_trials: int = 1) -> Any:
        """Show stimuli and answer as prepared."""


@dataclass(frozen=True)
class BrainScoreModel:
    """A Brain-Score model object that answers as a :class:`neuroledger.core.model.Model`.

    Every question goes to a fresh shallow copy of ``subject``, because such objects keep deciding after their first
    task; results that the peer keeps on disk by name are switched off meanwhile, because the name says neither the
    region nor the time bins nor the weights; rows are put back by stimulus id, because their order is not that of
    the stimuli.
    """

    subject: Any
    id: str
    varies_in_time: bool = False

    @property
    def visual_degrees(self) -> float | None:
        """Visual angle of the model's input."""
        degrees = self.subject.visual_degrees
        return float(degrees() if callable(degrees) else degrees)

    def record(
        self, stimuli: StimulusSet, region: str, time_bins: Sequence[Bin] | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Responses of a region, presentation × neuroid[ × time_bin]; see :class:`neuroledger.core.model.Model`.

        Raises
        ------
        ModelError
            The answer is behaviour, lacks stimuli or time bins, or is not finite.
        """
        subject = self._fresh()
        asked = [WHOLE_RESPONSE] if time_bins is None else [_whole_numbers(bin_) for bin_ in time_bins]
        with _uncached(), _files(stimuli) as shown:
            subject.start_recording(_named(subject, "RecordingTarget", region), time_bins=asked)
            answer = _plain(subject.look_at(shown, number_of_trials=trials))
        if "neuroid" not in answer.dims:
            raise ModelError(f"model {self.id!r} gave {answer.dims} when asked for the responses of {region}")
        answer = _in_time(answer, asked, self.id)
        answer = answer.isel(time_bin=0, drop=True) if time_bins is None else answer
        answer = _by_stimulus(answer, stimuli.ids, self.id)
        if not np.isfinite(answer.values).all():
            raise ModelError(f"model {self.id!r} gave NaN or infinite responses for {region}")
        return _neuroids(answer, region, self.id)

    def perform(
        self, task: Task, stimuli: StimulusSet, fitting_stimuli: StimulusSet | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Decisions, (presentation,) or (presentation, choice); see :class:`neuroledger.core.model.Model`."""
        subject = self._fresh()
        name = _named(subject, "Task", task.name)
        rows = [id for triplet in task.triplets for id in triplet] if task.name == "odd_one_out" else []
        with _uncached(), _files(stimuli, rows=rows) as shown:
            if task.name == "label":
                subject.start_task(name, list(task.choices))
            elif task.name == "odd_one_out":
                subject.start_task(name)
            elif fitting_stimuli is None:
                raise RequestError(f"model {self.id!r}: probabilities need fitting stimuli with labels")
            else:
                with _files(fitting_stimuli, label_column=task.label_column) as fitting:
                    subject.start_task(name, fitting)
                    return self._decisions(task, subject.look_at(shown, number_of_trials=trials), stimuli)
            return self._decisions(task, subject.look_at(shown, number_of_trials=trials), stimuli)

    def _decisions(self, task: Task, answer: Any, stimuli: StimulusSet) -> xr.DataArray:
        plain = _plain(answer)
        if "presentation" not in plain.dims or "neuroid" in plain.dims:
            raise ModelError(f"model {self.id!r} gave {plain.dims} when asked for {task.name}")
        if task.name == "probabilities":
            if "choice" not in plain.dims:
                raise ModelError(f"model {self.id!r} gave no choices when asked for probabilities")
            return _by_stimulus(plain.transpose("presentation", "choice"), stimuli.ids, self.id)
        if "choice" in plain.dims:
            plain = plain.isel(choice=0, drop=True)
        if task.name == "odd_one_out":
            return plain
        return _by_stimulus(plain, stimuli.ids, self.id)

    def _fresh(self) -> Any:
        subject = copy.copy(self.subject)
        if getattr(subject, "do_behavior", False):
            subject.do_behavior = False
        return subject


class PathTable(pd.DataFrame):
    """A table of stimuli with the path of each one's file, as Brain-Score models read it."""

    _metadata = ["identifier", "stimulus_paths"]  # noqa: RUF012 (pandas reads the class attribute)

    identifier: str
    stimulus_paths: dict[str, Path]

    @property
    def _constructor(self) -> type[PathTable]:
        return PathTable

    def get_stimulus(self, stimulus_id: str) -> Path:
        """Path of one stimulus's file."""
        return self.stimulus_paths[stimulus_id]


@contextmanager
def _files(
    stimuli: StimulusSet, *, label_column: str | None = None, rows: Sequence[str] = ()
) -> Iterator[PathTable]:
    """The stimuli in a folder that lasts as long as the question, under a name that tells their content.

    ``rows``: the ids to show, in order and possibly several times; every stimulus once when empty.
    """
    table = PathTable(stimuli.table.assign(stimulus_id=stimuli.ids))
    if rows:
        place = {id: row for row, id in enumerate(stimuli.ids)}
        table = table.iloc[[place[id] for id in rows]].reset_index(drop=True)
    if label_column is not None and label_column != "image_label":
        table["image_label"] = table[label_column]
    with tempfile.TemporaryDirectory(prefix="neuroledger-") as folder:
        paths: dict[str, Path] = {}
        if "filename" in table.columns:
            names = [PurePosixPath(str(name)).name for name in stimuli.table["filename"]]
            plain = len(set(names)) == len(names)
            for number, (id, data) in enumerate(zip(stimuli.ids, stimuli.read(), strict=True)):
                name = names[number] if plain else f"{number:06d}{PurePosixPath(names[number]).suffix}"
                paths[id] = Path(folder) / name
                paths[id].write_bytes(data)
        table.stimulus_paths = paths
        asked = hashlib.sha256(" ".join(rows).encode()).hexdigest()[:8] if rows else "once"
        table.identifier = f"{stimuli.id}-{stimuli.content_sha256[:16]}-{asked}"
        yield table


@contextmanager
def _uncached() -> Iterator[None]:
    """The peer's own cache switched off, and back."""
    name = "RESULTCACHING_DISABLE"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _named(subject: Any, owner: str, name: str) -> Any:
    """The object's own word for a task or region, which by convention is the name itself."""
    return getattr(getattr(subject, owner, None), name, name)


def _whole_numbers(bin_: Bin) -> tuple[float, float]:
    start, end = (int(edge) if float(edge).is_integer() else float(edge) for edge in bin_)
    return start, end


def _plain(answer: Any) -> xr.DataArray:
    """An assembly with levels of indices turned into coordinates of their own."""
    coords: dict[str, Any] = {}
    for dim in answer.dims:
        index = answer.indexes.get(dim)
        if isinstance(index, pd.MultiIndex):
            levels = {str(name): index.get_level_values(n) for n, name in enumerate(index.names)}
            coords |= {name: (dim, values.to_numpy()) for name, values in levels.items()}
        for name, values in answer.coords.items():
            if values.dims == (dim,) and not isinstance(answer.indexes.get(name), pd.MultiIndex):
                coords[str(name)] = (dim, np.asarray(values.values))
    coords.pop("presentation", None)
    coords.pop("neuroid", None)
    return xr.DataArray(np.asarray(answer.values), dims=answer.dims, coords=coords)


def _in_time(answer: xr.DataArray, bins: Sequence[tuple[float, float]], model: str) -> xr.DataArray:
    """Time bins in the order they were asked for; a model without time answers alike in each."""
    starts = [start for start, _ in bins]
    if "time_bin" not in answer.dims:
        answer = answer.expand_dims(time_bin=len(bins), axis=-1)
    elif "time_bin_start" in answer.coords:
        there = [float(value) for value in answer["time_bin_start"].values]
        lost = [start for start in starts if float(start) not in there]
        if lost:
            raise ModelError(f"model {model!r} gave no time bin that starts at {lost[0]} ms")
        answer = answer.isel(time_bin=[there.index(float(start)) for start in starts])
    elif answer.sizes["time_bin"] != len(bins):
        raise ModelError(f"model {model!r} gave {answer.sizes['time_bin']} time bins for {len(bins)}")
    edges: Mapping[Any, Any] = {
        "time_bin_start": ("time_bin", [float(start) for start in starts]),
        "time_bin_end": ("time_bin", [float(end) for _, end in bins]),
    }
    return answer.drop_vars(["time_bin", *edges], errors="ignore").assign_coords(edges)


def _by_stimulus(answer: xr.DataArray, ids: Sequence[str], model: str) -> xr.DataArray:
    """Rows in the order of ``ids``, one repetition of all after another."""
    if "stimulus_id" not in answer.coords:
        raise ModelError(f"model {model!r} gave an answer without stimulus_id")
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(answer["stimulus_id"].values.astype(str)):
        rows.setdefault(name, []).append(row)
    lost = [name for name in ids if name not in rows]
    if lost:
        raise ModelError(f"model {model!r} gave nothing for {len(lost)} stimuli, first {lost[0]!r}")
    counts = {len(rows[name]) for name in ids}
    if len(counts) > 1:
        raise ModelError(
            f"model {model!r} answered to some stimuli {min(counts)}, to others {max(counts)} times"
        )
    repetitions = counts.pop()
    order = [rows[name][repetition] for repetition in range(repetitions) for name in ids]
    kept = answer.isel(presentation=order)
    other = [name for name, values in kept.coords.items() if values.dims == ("presentation",)]
    kept = kept.drop_vars(other).assign_coords(stimulus_id=("presentation", list(ids) * repetitions))
    if repetitions > 1:
        kept = kept.assign_coords(repetition=("presentation", np.repeat(np.arange(repetitions), len(ids))))
    return kept


def _neuroids(answer: xr.DataArray, region: str, model: str) -> xr.DataArray:
    """Neuroids with unique ids, a layer and the region."""
    count = answer.sizes["neuroid"]
    if "neuroid_id" not in answer.coords or len(set(answer["neuroid_id"].values.astype(str))) < count:
        answer = answer.assign_coords(neuroid_id=("neuroid", [f"{model}.{region}.{n}" for n in range(count)]))
    if "layer" not in answer.coords:
        answer = answer.assign_coords(layer=("neuroid", [region] * count))
    ordered = answer.assign_coords(region=("neuroid", [region] * count)).transpose(
        "presentation", "neuroid", ...
    )
    ordered.attrs["model"] = model
    return ordered
