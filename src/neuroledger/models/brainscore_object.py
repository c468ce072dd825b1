"""Objects written for Brain-Score's model interface answer as they are, their known defects kept out of the numbers."""

from __future__ import annotations

import copy
import hashlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol, cast, runtime_checkable

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.model import Task, of_layers, shown_to
from neuroledger.models.neuroids import Bin
from neuroledger.spec.channels import Channels

WHOLE_RESPONSE: Final = (70, 170)
"""Time bin, ms, that is asked of a model where a benchmark has no time: the interface has no other way."""
REGIONS: Final = ("V1", "V2", "V4", "IT")
"""The interface's recording targets."""
SEPARATOR: Final = "|"
_PNG: Final = b"\x89PNG\r\n\x1a\n"


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
    """A Brain-Score model object that answers as a :class:`neuroledger.models.model.Model`.

    Every question goes to a fresh shallow copy of ``wrapped``, because such objects keep deciding after their first
    task; results that the peer keeps on disk by name are switched off meanwhile, because the name says neither the
    region nor the time bins nor the weights; rows are put back by stimulus id, because their order is not that of
    the stimuli.
    """

    wrapped: Any
    id: str
    varies_in_time: bool = False

    takes = frozenset({"images"})

    @property
    def gives(self) -> Channels:
        """Responses of any region, decisions, and dynamics where its responses vary in time."""
        return of_layers({}, dynamics=self.varies_in_time)

    def answer(self, question: Any) -> xr.DataArray:
        """Responses or decisions, of stimuli as they appear in its field of view."""
        return shown_to(self, question, self.visual_degrees)

    @property
    def visual_degrees(self) -> float | None:
        """Visual angle of the model's input."""
        degrees = self.wrapped.visual_degrees
        return float(degrees() if callable(degrees) else degrees)

    def record(
        self, stimuli: StimulusSet, region: str, time_bins: Sequence[Bin] | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Responses of a region, presentation × neuroid[ × time_bin]; see :class:`neuroledger.models.model.Model`.

        Raises
        ------
        ModelError
            The model has no such region, the answer is behaviour or of another region, lacks stimuli or time bins, or
            is not finite.
        """
        candidate = self._fresh()
        asked = [WHOLE_RESPONSE] if time_bins is None else [_whole_numbers(bin_) for bin_ in time_bins]
        with _uncached(), as_files(stimuli) as shown:
            answer = self._recorded(candidate, region, asked, shown, trials)
            if "neuroid" not in answer.dims:
                # a copy does not reach the mode of what the object only passes questions on to
                candidate.start_task(_named(candidate, "Task", "passive"))
                answer = self._recorded(candidate, region, asked, shown, trials)
        if "neuroid" not in answer.dims or "presentation" not in answer.dims:
            raise ModelError(f"model {self.id!r} gave {answer.dims} when asked for the responses of {region}")
        answer = _in_time(answer, asked, self.id)
        answer = answer.isel(time_bin=0, drop=True) if time_bins is None else answer
        answer = _finite(_by_stimulus(answer, stimuli.ids, self.id), f"responses for {region}", self.id)
        return _neuroids(answer, region, self.id)

    def _recorded(
        self, candidate: Any, region: str, bins: Sequence[tuple[float, float]], shown: PathTable, trials: int
    ) -> xr.DataArray:
        try:
            candidate.start_recording(_named(candidate, "RecordingTarget", region), time_bins=list(bins))
            return _plain(candidate.look_at(shown, number_of_trials=trials), self.id)
        except KeyError as error:
            if error.args != (region,):
                raise
            raise ModelError(f"model {self.id!r} has no layer for {region}: commit one to it") from error

    def perform(
        self, task: Task, stimuli: StimulusSet, fitting_stimuli: StimulusSet | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Decisions, (presentation,) or (presentation, choice); see :class:`neuroledger.models.model.Model`."""
        candidate = self._fresh()
        name = _named(candidate, "Task", task.name)
        rows = [id for triplet in task.triplets for id in triplet] if task.name == "odd_one_out" else []
        with _uncached(), as_files(stimuli, rows=rows) as shown:
            if task.name == "label":
                # all 1,000 classes are asked for by one word, everything else by a list
                candidate.start_task(
                    name, "imagenet" if task.choices == ("imagenet",) else list(task.choices)
                )
            elif task.name == "odd_one_out":
                candidate.start_task(name)
            elif fitting_stimuli is None:
                raise RequestError(f"model {self.id!r}: probabilities need fitting stimuli with labels")
            else:
                with as_files(fitting_stimuli, label_column=task.label_column) as fitting:
                    candidate.start_task(name, fitting)
                    return self._decisions(task, candidate.look_at(shown, number_of_trials=trials), stimuli)
            return self._decisions(task, candidate.look_at(shown, number_of_trials=trials), stimuli)

    def _decisions(self, task: Task, answer: Any, stimuli: StimulusSet) -> xr.DataArray:
        plain = _plain(answer, self.id)
        if "presentation" not in plain.dims or "neuroid" in plain.dims:
            raise ModelError(f"model {self.id!r} gave {plain.dims} when asked for {task.name}")
        if task.name == "probabilities":
            if "choice" not in plain.dims or "choice" not in plain.coords:
                raise ModelError(f"model {self.id!r} gave no choices when asked for probabilities")
            ordered = _by_stimulus(plain.transpose("presentation", "choice"), stimuli.ids, self.id)
            return _finite(ordered, "probabilities", self.id)
        if "choice" in plain.dims:
            plain = plain.isel(choice=0, drop=True)
        if task.name == "odd_one_out":
            return _odd_ones(plain, task.triplets, self.id)
        strange = sorted(set(plain.values.astype(str).tolist()) - set(task.choices))
        if strange and task.choices != ("imagenet",):
            raise ModelError(f"model {self.id!r} answered {strange[0]!r}, which was not among the choices")
        return _by_stimulus(plain, stimuli.ids, self.id)

    def _fresh(self) -> Any:
        try:
            candidate = copy.copy(self.wrapped)
        except RecursionError:
            # an object that passes on every name it lacks: half-made, its copy lacks all
            candidate = object.__new__(type(self.wrapped))
            vars(candidate).update(vars(self.wrapped))
        if getattr(candidate, "do_behavior", False):
            candidate.do_behavior = False
        return candidate


@dataclass(frozen=True)
class BrainScoreSubject:
    """An object written to Brain-Score's `ArtificialSubject`, which reads texts, as a model of this project.

    Every question goes to a fresh copy of ``wrapped``, lists that it collects in included; each passage is digested on its
    own, in the order of the stimuli.
    """

    wrapped: Any
    id: str

    takes = frozenset({"text"})
    gives = frozenset({"responses", "decisions:reading_times", "decisions:next_word"})

    def answer(self, question: Any) -> xr.DataArray:
        """Responses (presentation, neuroid), or reading times or next words (presentation,), of texts in their context.

        Raises
        ------
        ModelError
            The object answers nothing, another number of parts, or responses that are not finite.
        """
        stimuli: StimulusSet = question.stimuli
        region = getattr(question, "region", None)
        table = stimuli.table
        if "passage" not in table or "text" not in table:
            raise RequestError(
                f"model {self.id!r} reads texts by passage: show them by the paradigm `reading`"
            )
        answers, order = [], []
        for _, rows in table.groupby("passage", sort=False).indices.items():
            candidate = self._fresh()
            if region is not None:
                _told(
                    candidate, "neural_recording", _named(candidate, "RecordingTarget", region), RECORDED_AS
                )
            else:
                _told(candidate, "behavioral_task", _named(candidate, "Task", question.task.name))
            given = candidate.digest_text([str(text) for text in table["text"].iloc[rows]])
            answer = given.get("behavior" if region is None else "neural")
            if not isinstance(answer, xr.DataArray) or answer.sizes.get("presentation") != len(rows):
                raise ModelError(
                    f"model {self.id!r} did not answer the {len(rows)} parts of a passage one by one, first "
                    f"{stimuli.ids[rows[0]]!r}"
                )
            answers.append(answer.transpose("presentation", ...).values)
            order += [stimuli.ids[row] for row in rows]
        values = np.concatenate(answers)
        coords: dict[str, Any] = {"stimulus_id": ("presentation", order)}
        dims = ("presentation",) if region is None else ("presentation", "neuroid")
        if values.ndim != len(dims):
            raise ModelError(f"model {self.id!r} gave {values.ndim} dimensions, not {dims}")
        plain = xr.DataArray(values, dims=dims, coords=coords)
        if region is None:
            return plain
        return _neuroids(_finite(plain, f"responses for {region}", self.id), region, self.id)

    def _fresh(self) -> Any:
        candidate = copy.copy(self.wrapped)
        for name, value in vars(candidate).items():
            if isinstance(value, list):
                setattr(candidate, name, [])
        return candidate


RECORDED_AS: Final = "fMRI"
"""The method of recording that is named to an object that reads: its answers do not depend on it."""


def _told(candidate: Any, what: str, *words: Any) -> None:
    """Call ``start_…``, or ``perform_…`` as the interface named it first."""
    method = getattr(candidate, f"start_{what}", None) or getattr(candidate, f"perform_{what}")
    method(*words)


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


def _named(candidate: Any, owner: str, name: str) -> Any:
    """The object's own word for a task or region, which by convention is the name itself."""
    return getattr(getattr(candidate, owner, None), name, name)


def _whole_numbers(bin_: Bin) -> tuple[float, float]:
    start, end = (int(edge) if float(edge).is_integer() else float(edge) for edge in bin_)
    return start, end


def _plain(answer: Any, model: str) -> xr.DataArray:
    """An assembly with levels of indices turned into coordinates of their own.

    The peer's assemblies turn the only coordinate of a dimension into the dimension's index and lose its name.
    """
    if not isinstance(answer, xr.DataArray):
        raise ModelError(
            f"model {model!r} gave {type(answer).__name__}, which is no assembly (xarray.DataArray)"
        )
    coords: dict[str, Any] = {}
    for dim in map(str, answer.dims):
        index = answer.indexes.get(dim)
        if isinstance(index, pd.MultiIndex):
            levels = {str(name): index.get_level_values(n) for n, name in enumerate(index.names)}
            coords |= {name: (dim, values.to_numpy()) for name, values in levels.items()}
        for name, values in answer.coords.items():
            if values.dims == (dim,) and not isinstance(answer.indexes.get(name), pd.MultiIndex):
                coords[str(name)] = (dim, np.asarray(values.values))
        only = {"presentation": "stimulus_id", "neuroid": "neuroid_id"}.get(dim)
        if only is not None:
            alone = coords.pop(dim, None)
            if alone is not None and only not in coords:
                coords[only] = alone
    if "stimulus_id" not in coords and "image_id" in coords:
        coords["stimulus_id"] = coords["image_id"]  # its name until 2021
    return xr.DataArray(np.asarray(answer.values), dims=answer.dims, coords=coords)


def _finite(answer: xr.DataArray, what: str, model: str) -> xr.DataArray:
    if answer.dtype.kind not in "biuf" or not np.isfinite(answer.values).all():
        raise ModelError(f"model {model!r} gave NaN or infinite {what}")
    return answer


def _odd_ones(plain: xr.DataArray, triplets: Sequence[tuple[str, str, str]], model: str) -> xr.DataArray:
    """The id of the odd stimulus of each triplet, where the model named it, or said which of the three it is."""
    if plain.sizes["presentation"] != len(triplets):
        raise ModelError(
            f"model {model!r} gave {plain.sizes['presentation']} answers to {len(triplets)} triplets"
        )
    joined = [SEPARATOR.join(triplet) for triplet in triplets]
    values = plain.values.tolist()
    if "stimulus_id" in plain.coords:
        named = plain["stimulus_id"].values.astype(str).tolist()
        if set(named) == set(joined):
            values = [dict(zip(named, values, strict=True))[name] for name in joined]
    odd = [
        triplet[int(value)] if isinstance(value, int | float) and value in (0, 1, 2) else str(value)
        for triplet, value in zip(triplets, values, strict=True)
    ]
    for triplet, value in zip(triplets, odd, strict=True):
        if value not in triplet:
            raise ModelError(f"model {model!r} answered {value!r}, not one of {', '.join(triplet)}")
    return xr.DataArray(odd, dims=("presentation",), coords={"stimulus_id": ("presentation", joined)})


def _in_time(answer: xr.DataArray, bins: Sequence[tuple[float, float]], model: str) -> xr.DataArray:
    """Time bins in the order they were asked for; a model without time answers alike in each."""
    starts = [start for start, _ in bins]
    if "time_bin" not in answer.dims:
        answer = answer.expand_dims(time_bin=len(bins), axis=-1)
    elif "time_bin_start" in answer.coords:
        names = [name for name in ("time_bin_start", "time_bin_end") if name in answer.coords]
        there = list(zip(*(answer[name].values.astype(float).tolist() for name in names), strict=True))
        wanted = [tuple(map(float, bin_[: len(names)])) for bin_ in bins]
        lost = [bin_ for bin_, edges in zip(bins, wanted, strict=True) if edges not in there]
        if lost:
            raise ModelError(f"model {model!r} gave no time bin {lost[0][0]:g}-{lost[0][1]:g} ms")
        answer = answer.isel(time_bin=[there.index(edges) for edges in wanted])
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
    """Neuroids with unique ids, a layer and the region.

    A model that keeps answers under a name that does not say the region gives one region's for another's.
    """
    said = set(answer["region"].values.astype(str)) if "region" in answer.coords else set()
    other = sorted(said & set(REGIONS) - {region})
    if other:
        raise ModelError(f"model {model!r} gave neuroids of {', '.join(other)} when asked for {region}")
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


class PathTable(pd.DataFrame):
    """A table of stimuli with the path of each one's file, as Brain-Score models read it."""

    _metadata = ["identifier", "stimulus_paths"]  # noqa: RUF012 (pandas reads the class attribute)

    identifier: str
    stimulus_paths: dict[str, Path]

    @property
    def _constructor(self) -> type[PathTable]:
        return type(self)

    def get_stimulus(self, stimulus_id: str) -> Path:
        """Path of one stimulus's file."""
        return self.stimulus_paths[stimulus_id]


def table_class() -> type[PathTable]:
    """The class of tables that Brain-Score's code takes for stimuli, in this process.

    Its activation extractor asks ``isinstance(stimuli, StimulusSet)`` and reads anything else as a list of paths. The
    class has lived in several packages (brainio, brainscore_core) and lies in copies of them: the table is one of every
    loaded class of tables with that name.
    """
    named = (
        vars(module).get("StimulusSet")
        for module in list(sys.modules.values())
        if hasattr(module, "__dict__")
    )
    found = dict.fromkeys(
        kind
        for kind in named
        if isinstance(kind, type) and issubclass(kind, pd.DataFrame) and kind is not PathTable
    )
    # a base beside a class derived from it has no order of resolution
    leaves = [
        kind for kind in found if not any(other is not kind and issubclass(other, kind) for other in found)
    ]
    return _derived(tuple(leaves))


@lru_cache
def _derived(kinds: tuple[type[pd.DataFrame], ...]) -> type[PathTable]:
    return cast(type[PathTable], type("StimulusSet", (PathTable, *kinds), {})) if kinds else PathTable


@contextmanager
def as_files(
    stimuli: StimulusSet, *, label_column: str | None = None, rows: Sequence[str] = ()
) -> Iterator[PathTable]:
    """The stimuli in a folder that lasts as long as the question, under a name that tells their content.

    ``rows``: the ids to show, in order and possibly several times; every stimulus once when empty. ``label_column`` is
    also given as ``image_label``, which is where the peer looks for labels.
    """
    columns = stimuli.table.assign(stimulus_id=stimuli.ids)
    # text as Python objects: what the peer's code was written for, whatever pandas makes of text by itself
    columns = columns.astype(
        {name: object for name in columns if pd.api.types.is_string_dtype(columns[name])}
    )
    if label_column is not None:
        columns["image_label"] = columns[label_column]
    if rows:
        place = {id: row for row, id in enumerate(stimuli.ids)}
        columns = columns.iloc[[place[id] for id in rows]].reset_index(drop=True)
    table = table_class()(columns)
    with tempfile.TemporaryDirectory(prefix="neuroledger-") as folder:
        table.stimulus_paths = _written(stimuli, Path(folder)) if "filename" in columns else {}
        asked = hashlib.sha256(" ".join(rows).encode()).hexdigest()[:8] if rows else "once"
        table.identifier = f"{stimuli.id}-{stimuli.content_sha256[:16]}-{asked}"
        yield table


def _written(stimuli: StimulusSet, folder: Path) -> dict[str, Path]:
    """Each stimulus's file, under its own name where names differ."""
    names = [PurePosixPath(str(name)).name for name in stimuli.table["filename"]]
    plain = len({PurePosixPath(name).stem for name in names}) == len(names)
    paths: dict[str, Path] = {}
    for number, (id, data) in enumerate(zip(stimuli.ids, stimuli.read(), strict=True)):
        name = PurePosixPath(names[number] if plain else f"{number:06d}{PurePosixPath(names[number]).suffix}")
        if data.startswith(_PNG):
            name = name.with_suffix(".png")  # placed on a screen, whatever it was before
        paths[id] = folder / str(name)
        paths[id].write_bytes(data)
    return paths
