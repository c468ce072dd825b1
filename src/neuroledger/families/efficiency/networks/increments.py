"""Class-incremental learning from few examples: after each session, all classes met so far are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, ModelError
from neuroledger.families.efficiency.counting.counts import Mode, Need, Trace
from neuroledger.families.efficiency.networks.answers import answered, coordinates, parts_of
from neuroledger.families.efficiency.networks.presentations import shown
from neuroledger.families.efficiency.networks.trainable_model import Examples, Learner

__all__ = ["incremental", "sessions_of"]

Rows = npt.NDArray[np.intp]


def incremental(
    model: Learner,
    assembly: xr.DataArray,
    targets: Sequence[str],
    split: str,
    increments: str | Sequence[Sequence[str]],
    shots: int,
    count: tuple[Need, ...],
    mode: Mode,
) -> tuple[Measurement, Trace | None]:
    """Answers after every session to the test presentations of all classes met so far.

    The base session shows all its training presentations; each later one the first ``shots`` of every new class, and
    nothing old again. Answers are rows (session, presentation) with scores by class; a class that was not met yet
    has none (minus infinity). The coordinate ``session`` tells when a row was asked, ``introduced`` when its class
    was new. Costs are those of the last session, when all classes are known.

    Raises
    ------
    DataError
        Classes of an increment are unknown, appear twice, or lack training or test presentations.
    ModelError
        The model cannot learn further, or answers another shape.
    """
    if len(targets) != 1:
        raise DataError(f"incremental learning has one target, not {', '.join(targets)}")
    if model.learn is None:
        raise ModelError(f"model {model.id!r} cannot learn further classes: it has no `learn`")
    rows = parts_of(assembly, split, targets)
    labels = assembly[targets[0]].values.astype(str)
    sessions = sessions_of(assembly, labels, increments)
    every = [name for session in sessions for name in session]
    known: list[str] = []
    parts: list[xr.DataArray] = []
    counted: Trace | None = None
    module = None
    for number, fresh in enumerate(sessions):
        known += fresh
        seen = _shown(labels, rows["train"], fresh, shots if number else None)
        asked = rows["test"][np.isin(labels[rows["test"]], known)]
        lacking = [name for name in fresh if name not in labels[asked]]
        if lacking:
            raise DataError(f"class {lacking[0]!r} has no test presentation")
        places = {name: place for place, name in enumerate(known)}
        numbers = np.array([places[name] for name in labels[seen]])
        examples = Examples(shown(assembly, seen, model.prepare), numbers, tuple(known))
        module = model.ready(examples) if module is None else model.learn(module, examples)
        last = number == len(sessions) - 1
        asking = shown(assembly, asked, model.prepare)
        given, counted = answered(model, module, asking, count if last else (), mode)
        if given.shape != (len(asked), len(known)):
            raise ModelError(f"model {model.id!r} answered {given.shape}, not {(len(asked), len(known))}")
        scores = np.full((len(asked), len(every)), -np.inf)
        scores[:, : len(known)] = given
        met = [next(s for s, names in enumerate(sessions) if name in names) for name in labels[asked]]
        coords = coordinates(assembly, asked) | {
            "session": ("presentation", np.full(len(asked), number)),
            "introduced": ("presentation", np.array(met)),
            "truth": ("presentation", labels[asked]),
        }
        if "stimulus_id" in coords:
            ids = [f"{name}.s{number}" for name in coords["stimulus_id"][1].astype(str)]
            coords["stimulus_id"] = ("presentation", np.asarray(ids, dtype=object))
        coords["choice"] = every
        parts.append(xr.DataArray(scores, dims=("presentation", "choice"), coords=coords))
    source = xr.concat(parts, "presentation")
    target = source["truth"].drop_vars("truth").astype(str)
    note = "costs are those of the last session, when all classes are known"
    traced = None if counted is None else replace(counted, notes=(*counted.notes, note))
    return Measurement(source.drop_vars("truth"), target), traced


def sessions_of(
    assembly: xr.DataArray, labels: npt.NDArray[np.str_], increments: str | Sequence[Sequence[str]]
) -> list[list[str]]:
    """The classes that each session brings: the base session's, then those of each increment.

    Raises
    ------
    DataError
        An increment names a class that does not exist or that another has too; or a coordinate gives one class to
        several sessions, or does not begin with session 0.
    """
    names = np.unique(labels).tolist()
    if not isinstance(increments, str):
        listed = [str(name) for group in increments for name in group]
        wrong = [name for name in listed if name not in names or listed.count(name) > 1]
        if wrong:
            raise DataError(f"class {wrong[0]!r} of an increment does not exist, or is in several")
        groups = [[name for name in names if name not in listed], *(list(map(str, g)) for g in increments)]
    else:
        if increments not in assembly.coords or assembly[increments].dims != ("presentation",):
            raise DataError(f"presentations have no coordinate {increments!r}, and no increments are listed")
        numbers = assembly[increments].values.astype(int)
        of = {name: set(numbers[labels == name].tolist()) for name in names}
        split = [name for name, found in of.items() if len(found) > 1]
        if split:
            raise DataError(f"class {split[0]!r} is in several sessions")
        groups = [[n for n in names if of[n] == {s}] for s in range(int(numbers.max()) + 1)]
    if len(groups) < 2 or not all(groups):
        raise DataError(
            "incremental learning needs a base session and at least one increment, none of them empty"
        )
    return groups


def _shown(labels: npt.NDArray[np.str_], train: Rows, fresh: Sequence[str], shots: int | None) -> Rows:
    """Training rows of new classes, in the order of the data; no more than ``shots`` of each."""
    found = []
    for name in fresh:
        own = train[labels[train] == name]
        if len(own) < (shots or 1):
            raise DataError(f"class {name!r} has {len(own)} training presentations, fewer than {shots or 1}")
        found.append(own[:shots])
    rows: Rows = np.sort(np.concatenate(found))
    return rows
