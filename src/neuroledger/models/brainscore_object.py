"""Use objects written for Brain-Score's model interface unchanged, and work around their known defects."""

from __future__ import annotations

import copy
import hashlib
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
from neuroledger.data.threads import with_variables
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.model import Perform, Record, Task, of_layers, shown_to
from neuroledger.models.neuroids import Bin
from neuroledger.spec.channels import Channels

WHOLE_RESPONSE: Final = (70, 170)
"""Time bin in ms that is requested if a benchmark has no time bins, because the interface requires one."""
REGIONS: Final = ("V1", "V2", "V4", "IT")
"""The interface's recording targets."""
SEPARATOR: Final = "|"
UNCACHED: Final = {"RESULTCACHING_DISABLE": "1"}
"""Disables Brain-Score's disk cache."""
_PNG: Final = b"\x89PNG\r\n\x1a\n"


@runtime_checkable
class BrainModel(Protocol):
    """The interface that Brain-Score submissions implement."""

    def visual_degrees(self) -> float:
        """Visual angle of the model's input."""

    def start_task(self, task: object, *arguments: object) -> None:
        """Prepare for decisions."""

    def start_recording(self, recording_target: object, time_bins: object) -> None:
        """Prepare for responses of a region."""

    def look_at(self, stimuli: object, number_of_trials: int = 1) -> Any:
        """Show stimuli and return the prepared kind of answer."""


@dataclass(frozen=True)
class BrainScoreModel:
    """Adapts a Brain-Score model object to :class:`neuroledger.models.model.Model`.

    Every question goes to a fresh shallow copy of ``wrapped``, because such objects stay in decision mode after their
    first task. Brain-Score's disk cache is switched off, because its keys contain neither the region nor the time bins
    nor the weights. Rows are reordered by stimulus id, because they may be in another order than the stimuli.
    """

    wrapped: Any
    id: str
    varies_in_time: bool = False

    takes = frozenset({"images"})

    @property
    def gives(self) -> Channels:
        """Responses of any region, decisions, and dynamics if responses vary in time."""
        return of_layers({}, dynamics=self.varies_in_time)

    def answer(self, question: Record | Perform) -> xr.DataArray:
        """Return responses or decisions for stimuli as they appear in the field of view."""
        return shown_to(self, question, self.visual_degrees)

    @property
    def visual_degrees(self) -> float | None:
        """Visual angle of the model's input."""
        degrees = self.wrapped.visual_degrees
        return float(degrees() if callable(degrees) else degrees)

    def record(
        self,
        stimuli: StimulusSet,
        region: str,
        time_bins: Sequence[Bin] | None = None,
        trials: int = 1,
    ) -> xr.DataArray:
        """Return responses of a region, presentation × neuroid[ × time_bin]; see :class:`neuroledger.models.model.Model`.

        Raises
        ------
        ModelError
            The model has no such region, or the answer is a decision, belongs to another region, lacks stimuli or time
            bins, or is not finite.
        """
        candidate = self._fresh()
        bins = (
            [WHOLE_RESPONSE]
            if time_bins is None
            else list(map(_integer_edges, time_bins))
        )
        with with_variables(UNCACHED), as_files(stimuli) as files:
            answer = self._responses(candidate, region, bins, files, trials)
            if "neuroid" not in answer.dims:
                # A shallow copy shares the wrapped models that an object delegates to, and with them their mode.
                candidate.start_task(_constant(candidate, "Task", "passive"))
                answer = self._responses(candidate, region, bins, files, trials)
        if "neuroid" not in answer.dims or "presentation" not in answer.dims:
            raise ModelError(
                f"model {self.id!r} returned the dimensions {answer.dims} for responses of {region}"
            )
        answer = _align_time_bins(answer, bins, self.id)
        if time_bins is None:
            answer = answer.isel(time_bin=0, drop=True)
        answer = _finite(
            _by_stimulus(answer, stimuli.ids, self.id),
            f"responses for {region}",
            self.id,
        )
        return _neuroids(answer, region, self.id)

    def _responses(
        self,
        candidate: Any,
        region: str,
        bins: Sequence[tuple[float, float]],
        files: PathTable,
        trials: int,
    ) -> xr.DataArray:
        try:
            candidate.start_recording(
                _constant(candidate, "RecordingTarget", region), time_bins=list(bins)
            )
            return _plain(candidate.look_at(files, number_of_trials=trials), self.id)
        except KeyError as error:
            if error.args != (region,):
                raise
            raise ModelError(
                f"model {self.id!r} has no layer for {region}: commit a layer to it"
            ) from error

    def perform(
        self,
        task: Task,
        stimuli: StimulusSet,
        fitting_stimuli: StimulusSet | None = None,
        trials: int = 1,
    ) -> xr.DataArray:
        """Return decisions, (presentation,) or (presentation, choice); see :class:`neuroledger.models.model.Model`."""
        candidate = self._fresh()
        name = _constant(candidate, "Task", task.name)
        if task.name == "odd_one_out":
            rows = [id for triplet in task.triplets for id in triplet]
        else:
            rows = []
        with with_variables(UNCACHED), as_files(stimuli, rows=rows) as files:
            if task.name == "label":
                # The interface takes one word for all 1,000 classes, and a list for anything else.
                candidate.start_task(
                    name,
                    "imagenet" if task.choices == ("imagenet",) else list(task.choices),
                )
            elif task.name == "odd_one_out":
                candidate.start_task(name)
            elif fitting_stimuli is None:
                raise RequestError(
                    f"model {self.id!r}: probabilities need fitting stimuli with labels"
                )
            else:
                with as_files(
                    fitting_stimuli, label_column=task.label_column
                ) as fitting:
                    candidate.start_task(name, fitting)
                    return self._decisions(
                        task, candidate.look_at(files, number_of_trials=trials), stimuli
                    )
            return self._decisions(
                task, candidate.look_at(files, number_of_trials=trials), stimuli
            )

    def _decisions(
        self, task: Task, answer: object, stimuli: StimulusSet
    ) -> xr.DataArray:
        plain = _plain(answer, self.id)
        if "presentation" not in plain.dims or "neuroid" in plain.dims:
            raise ModelError(
                f"model {self.id!r} returned the dimensions {plain.dims} for {task.name}"
            )
        if task.name == "probabilities":
            if "choice" not in plain.dims or "choice" not in plain.coords:
                raise ModelError(
                    f"model {self.id!r} returned probabilities without choices"
                )
            ordered = _by_stimulus(
                plain.transpose("presentation", "choice"), stimuli.ids, self.id
            )
            return _finite(ordered, "probabilities", self.id)
        if "choice" in plain.dims:
            plain = plain.isel(choice=0, drop=True)
        if task.name == "odd_one_out":
            return _odd_ones(plain, task.triplets, self.id)
        unknown = sorted(set(plain.values.astype(str).tolist()) - set(task.choices))
        if unknown and task.choices != ("imagenet",):
            raise ModelError(
                f"model {self.id!r} answered {unknown[0]!r}, which is not among the choices"
            )
        return _by_stimulus(plain, stimuli.ids, self.id)

    def _fresh(self) -> Any:
        try:
            candidate = copy.copy(self.wrapped)
        except RecursionError:
            # An object that delegates unknown attributes recurses while its copy has no attributes yet.
            candidate = object.__new__(type(self.wrapped))
            vars(candidate).update(vars(self.wrapped))
        if getattr(candidate, "do_behavior", False):
            candidate.do_behavior = False
        return candidate


@dataclass(frozen=True)
class BrainScoreSubject:
    """Adapts an object with Brain-Score's `ArtificialSubject` interface, which reads texts.

    Every passage goes to a fresh copy of ``wrapped`` with empty lists, in the order of the stimuli.
    """

    wrapped: Any
    id: str

    takes = frozenset({"text"})
    gives = frozenset({"responses", "decisions:reading_times", "decisions:next_word"})

    def answer(self, question: Any) -> xr.DataArray:
        """Return responses (presentation, neuroid), or reading times or next words (presentation,), of texts in context.

        Raises
        ------
        ModelError
            The object does not return one answer per part of a text, or returns responses that are not finite.
        """
        stimuli: StimulusSet = question.stimuli
        region = getattr(question, "region", None)
        table = stimuli.table
        if "passage" not in table or "text" not in table:
            raise RequestError(
                f"model {self.id!r} reads texts by passage: present them with the paradigm `reading`"
            )
        answers = []
        order = []
        for _, rows in table.groupby("passage", sort=False).indices.items():
            candidate = self._fresh()
            if region is not None:
                target = _constant(candidate, "RecordingTarget", region)
                _start(candidate, "neural_recording", target, RECORDING_TYPE)
            else:
                _start(
                    candidate,
                    "behavioral_task",
                    _constant(candidate, "Task", question.task.name),
                )
            outputs = candidate.digest_text(list(map(str, table["text"].iloc[rows])))
            answer = outputs.get("behavior" if region is None else "neural")
            if not isinstance(answer, xr.DataArray) or answer.sizes.get(
                "presentation"
            ) != len(rows):
                raise ModelError(
                    f"model {self.id!r} did not return one answer for each of the {len(rows)} parts of the passage that "
                    f"begins with {stimuli.ids[rows[0]]!r}"
                )
            answers.append(answer.transpose("presentation", ...).values)
            order += [stimuli.ids[row] for row in rows]
        values = np.concatenate(answers)
        coords: dict[str, object] = {"stimulus_id": ("presentation", order)}
        dims = ("presentation",) if region is None else ("presentation", "neuroid")
        if values.ndim != len(dims):
            raise ModelError(
                f"model {self.id!r} returned {values.ndim} dimensions, not {dims}"
            )
        plain = xr.DataArray(values, dims=dims, coords=coords)
        if region is None:
            return plain
        return _neuroids(
            _finite(plain, f"responses for {region}", self.id), region, self.id
        )

    def _fresh(self) -> Any:
        candidate = copy.copy(self.wrapped)
        for name, value in vars(candidate).items():
            if isinstance(value, list):
                setattr(candidate, name, [])
        return candidate


RECORDING_TYPE: Final = "fMRI"
"""The required recording type of `ArtificialSubject`; answers do not depend on it."""


def _start(candidate: Any, mode: str, *arguments: object) -> None:
    """Call ``start_<mode>``, or ``perform_<mode>``, its name in early versions of the interface."""
    method = getattr(candidate, f"start_{mode}", None) or getattr(
        candidate, f"perform_{mode}"
    )
    method(*arguments)


def _constant(candidate: object, owner: str, name: str) -> Any:
    """Return the object's own constant for a task or region, by convention the name itself."""
    return getattr(getattr(candidate, owner, None), name, name)


def _integer_edges(bin_: Bin) -> tuple[float, float]:
    start, end = (
        int(edge) if float(edge).is_integer() else float(edge) for edge in bin_
    )
    return start, end


def _plain(answer: object, model: str) -> xr.DataArray:
    """Return a plain assembly in which the levels of multi-indices are coordinates.

    Brain-Score's assemblies turn the only coordinate of a dimension into the dimension's index and lose its name.
    """
    if not isinstance(answer, xr.DataArray):
        raise ModelError(
            f"model {model!r} returned {type(answer).__name__}, not an assembly (xarray.DataArray)"
        )
    coords: dict[str, object] = {}
    for dim in map(str, answer.dims):
        index = answer.indexes.get(dim)
        if isinstance(index, pd.MultiIndex):
            levels = {
                str(name): index.get_level_values(n)
                for n, name in enumerate(index.names)
            }
            coords |= {
                name: (dim, values.to_numpy()) for name, values in levels.items()
            }
        for name, values in answer.coords.items():
            if values.dims == (dim,) and not isinstance(
                answer.indexes.get(name), pd.MultiIndex
            ):
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
        raise ModelError(f"model {model!r} returned NaN or infinite {what}")
    return answer


def _odd_ones(
    plain: xr.DataArray, triplets: Sequence[tuple[str, str, str]], model: str
) -> xr.DataArray:
    """Return the id of the odd stimulus of each triplet; the model answers with an id or with an index from 0 to 2."""
    if plain.sizes["presentation"] != len(triplets):
        raise ModelError(
            f"model {model!r} returned {plain.sizes['presentation']} answers to {len(triplets)} triplets"
        )
    joined = [SEPARATOR.join(triplet) for triplet in triplets]
    values = plain.values.tolist()
    if "stimulus_id" in plain.coords:
        names = plain["stimulus_id"].values.astype(str).tolist()
        if set(names) == set(joined):
            by_name = dict(zip(names, values, strict=True))
            values = [by_name[name] for name in joined]
    odd = [
        triplet[int(value)]
        if isinstance(value, int | float) and value in (0, 1, 2)
        else str(value)
        for triplet, value in zip(triplets, values, strict=True)
    ]
    for triplet, value in zip(triplets, odd, strict=True):
        if value not in triplet:
            raise ModelError(
                f"model {model!r} answered {value!r}, not one of {', '.join(triplet)}"
            )
    return xr.DataArray(
        odd, dims=("presentation",), coords={"stimulus_id": ("presentation", joined)}
    )


def _align_time_bins(
    answer: xr.DataArray, bins: Sequence[tuple[float, float]], model: str
) -> xr.DataArray:
    """Return the time bins in the requested order; an answer without time is repeated in each."""
    starts = [start for start, _ in bins]
    if "time_bin" not in answer.dims:
        answer = answer.expand_dims(time_bin=len(bins), axis=-1)
    elif "time_bin_start" in answer.coords:
        names = [
            name for name in ("time_bin_start", "time_bin_end") if name in answer.coords
        ]
        returned = list(
            zip(
                *(answer[name].values.astype(float).tolist() for name in names),
                strict=True,
            )
        )
        requested = [tuple(map(float, bin_[: len(names)])) for bin_ in bins]
        missing = [
            bin_
            for bin_, edges in zip(bins, requested, strict=True)
            if edges not in returned
        ]
        if missing:
            raise ModelError(
                f"model {model!r} returned no time bin {missing[0][0]:g}-{missing[0][1]:g} ms"
            )
        answer = answer.isel(time_bin=[returned.index(edges) for edges in requested])
    elif answer.sizes["time_bin"] != len(bins):
        raise ModelError(
            f"model {model!r} returned {answer.sizes['time_bin']} time bins, not {len(bins)}"
        )
    edges: Mapping[Any, Any] = {
        "time_bin_start": ("time_bin", list(map(float, starts))),
        "time_bin_end": ("time_bin", [float(end) for _, end in bins]),
    }
    return answer.drop_vars(["time_bin", *edges], errors="ignore").assign_coords(edges)


def _by_stimulus(answer: xr.DataArray, ids: Sequence[str], model: str) -> xr.DataArray:
    """Return the rows in the order of ``ids``, one repetition of all stimuli after another."""
    if "stimulus_id" not in answer.coords:
        raise ModelError(
            f"model {model!r} returned an answer without the coordinate stimulus_id"
        )
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(answer["stimulus_id"].values.astype(str)):
        rows.setdefault(name, []).append(row)
    missing = [name for name in ids if name not in rows]
    if missing:
        raise ModelError(
            f"model {model!r} returned nothing for {len(missing)} stimuli, first {missing[0]!r}"
        )
    counts = {len(rows[name]) for name in ids}
    if len(counts) > 1:
        raise ModelError(
            f"model {model!r} answered some stimuli {min(counts)} times and others {max(counts)} times"
        )
    repetitions = counts.pop()
    order = [
        rows[name][repetition] for repetition in range(repetitions) for name in ids
    ]
    ordered = answer.isel(presentation=order)
    other = [
        name
        for name, values in ordered.coords.items()
        if values.dims == ("presentation",)
    ]
    ordered = ordered.drop_vars(other).assign_coords(
        stimulus_id=("presentation", list(ids) * repetitions)
    )
    if repetitions > 1:
        repetition = np.repeat(np.arange(repetitions), len(ids))
        ordered = ordered.assign_coords(repetition=("presentation", repetition))
    return ordered


def _neuroids(answer: xr.DataArray, region: str, model: str) -> xr.DataArray:
    """Add unique neuroid ids, a layer and the region.

    An answer from another region is refused: a model whose cache keys lack the region returns such answers.
    """
    if "region" in answer.coords:
        regions = set(answer["region"].values.astype(str))
    else:
        regions = set()
    other = sorted(regions & set(REGIONS) - {region})
    if other:
        raise ModelError(
            f"model {model!r} returned neuroids of {', '.join(other)} for {region}"
        )
    count = answer.sizes["neuroid"]
    if (
        "neuroid_id" not in answer.coords
        or len(set(answer["neuroid_id"].values.astype(str))) < count
    ):
        answer = answer.assign_coords(
            neuroid_id=("neuroid", [f"{model}.{region}.{n}" for n in range(count)])
        )
    if "layer" not in answer.coords:
        answer = answer.assign_coords(layer=("neuroid", [region] * count))
    ordered = answer.assign_coords(region=("neuroid", [region] * count)).transpose(
        "presentation", "neuroid", ...
    )
    ordered.attrs["model"] = model
    return ordered


class PathTable(pd.DataFrame):
    """A table of stimuli with the paths of their files, as Brain-Score models read it."""

    _metadata = ["identifier", "stimulus_paths"]  # noqa: RUF012 (pandas reads the class attribute)

    identifier: str
    stimulus_paths: dict[str, Path]

    @property
    def _constructor(self) -> type[PathTable]:
        return type(self)

    def get_stimulus(self, stimulus_id: str) -> Path:
        """Return the path of a stimulus's file."""
        return self.stimulus_paths[stimulus_id]


def table_class() -> type[PathTable]:
    """Return a table class that Brain-Score's code in this process accepts as stimuli.

    Its activation extractor tests ``isinstance(stimuli, StimulusSet)`` and reads anything else as a list of paths.
    Several packages (brainio, brainscore_core, and copies of them) define the class: the returned one derives from
    every loaded table class with that name.
    """
    candidates = (
        vars(module).get("StimulusSet")
        for module in list(sys.modules.values())
        if hasattr(module, "__dict__")
    )
    kinds = dict.fromkeys(
        kind
        for kind in candidates
        if isinstance(kind, type)
        and issubclass(kind, pd.DataFrame)
        and kind is not PathTable
    )
    # Python cannot order the bases if one of them derives from another, so only the most derived classes are used.
    leaves = [
        kind
        for kind in kinds
        if not any(other is not kind and issubclass(other, kind) for other in kinds)
    ]
    return _derived(tuple(leaves))


@lru_cache
def _derived(kinds: tuple[type[pd.DataFrame], ...]) -> type[PathTable]:
    if kinds:
        return cast(type[PathTable], type("StimulusSet", (PathTable, *kinds), {}))
    return PathTable


@contextmanager
def as_files(
    stimuli: StimulusSet, *, label_column: str | None = None, rows: Sequence[str] = ()
) -> Iterator[PathTable]:
    """Write the stimuli to a folder that exists while the context is open; their name contains a hash of the content.

    ``rows`` are the ids to show, in order and possibly repeated; by default every stimulus once. ``label_column`` is
    copied to ``image_label``, where Brain-Score's code looks for labels.
    """
    columns = stimuli.table.assign(stimulus_id=stimuli.ids)
    # Brain-Score's code expects text columns of Python objects, which newer versions of pandas no longer create.
    columns = columns.astype(
        {
            name: object
            for name in columns
            if pd.api.types.is_string_dtype(columns[name])
        }
    )
    if label_column is not None:
        columns["image_label"] = columns[label_column]
    if rows:
        positions = {id: row for row, id in enumerate(stimuli.ids)}
        columns = columns.iloc[[positions[id] for id in rows]].reset_index(drop=True)
    table = table_class()(columns)
    with tempfile.TemporaryDirectory(prefix="neuroledger-") as folder:
        table.stimulus_paths = (
            _write_files(stimuli, Path(folder)) if "filename" in columns else {}
        )
        if rows:
            order = hashlib.sha256(" ".join(rows).encode()).hexdigest()[:8]
        else:
            order = "once"
        table.identifier = f"{stimuli.id}-{stimuli.content_sha256[:16]}-{order}"
        yield table


def _write_files(stimuli: StimulusSet, folder: Path) -> dict[str, Path]:
    """Write the file of each stimulus and return the paths; file names are kept if their stems are unique."""
    names = [PurePosixPath(str(name)).name for name in stimuli.table["filename"]]
    plain = len({PurePosixPath(name).stem for name in names}) == len(names)
    paths: dict[str, Path] = {}
    for number, (id, data) in enumerate(zip(stimuli.ids, stimuli.read(), strict=True)):
        name = PurePosixPath(
            names[number]
            if plain
            else f"{number:06d}{PurePosixPath(names[number]).suffix}"
        )
        if data.startswith(_PNG):
            name = name.with_suffix(".png")  # stimuli placed on a screen are PNG files
        paths[id] = folder / str(name)
        paths[id].write_bytes(data)
    return paths
