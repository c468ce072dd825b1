"""Stimuli of a simulated recording that are retrieved: rows of its table of events, and embeddings of the stimuli."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.families.signals.recordings.signal_stimuli import Cell, Events, show
from neuroledger.families.signals.recordings.signal_windows import Window
from tools.miniatures.planned import LEAST_SECONDS, Plan
from tools.miniatures.simulated import Floats, Planted

__all__ = ["shown", "write_embeddings"]

STIMULI = 12
"""Stimuli of each part of the split."""
FEATURES = 4


def shown(
    events: Events, window: Window, entities: Mapping[str, str], turn: int
) -> Plan:
    """A plan whose events are rows with all columns that the spec names; each stimulus is shown once in a recording.

    Parameters
    ----------
    entities
        Task, session and run of the recording, which are columns too.
    turn
        Number of the recording, by which the order of stimuli differs.
    """
    count = STIMULI * max([1, *(len(values) for values in events.where.values())])
    order = np.random.default_rng(turn).permutation(count).tolist()
    rows = [
        {"onset": f"{1.0 + 1.3 * place:g}", "duration": "0.1"}
        | _columns(events, number)
        for place, number in enumerate(order)
    ]
    layout = show(events, [{**entities, **row} for row in rows], "simulated")
    planted = []
    for onset, stimulus in zip(layout.onsets, layout.names, strict=True):
        begin = onset + max(window.start, 0.0)
        end = onset + window.start + window.duration
        planted += [
            Planted(begin, end, pattern, float(strength))
            for pattern, strength in enumerate(_embedding(stimulus))
        ]
    seconds = max(LEAST_SECONDS, round(1.3 * count + 4))
    table = tuple(rows)
    return Plan((), tuple(planted), seconds, count, table, tuple(layout.names))


def _columns(events: Events, number: int) -> dict[str, str]:
    """The columns of one event: stimuli of different parts of the split are different."""
    row: dict[str, str] = {}
    for column, values in events.where.items():
        row[column] = values[number % len(values)].replace("*", "1")
    told = events.stimulus
    stimulus = told if isinstance(told, Cell) else Cell(column=told)
    for part in stimulus.parts:
        text = str(number + 1)
        if stimulus.pattern is not None:
            text = stimulus.pattern.replace("{value}", text).replace("*", "1")
        row.setdefault(part, text)
    for cell in events.coordinates.values():
        own = cell if isinstance(cell, Cell) else Cell(column=cell)
        for part in own.parts:
            row.setdefault(part, f"kind{number % 4}")
    return {name: text for name, text in row.items() if name not in ENTITIES}


ENTITIES = frozenset({"task", "session", "run"})


def _embedding(stimulus: str) -> Floats:
    rng = np.random.default_rng(list(stimulus.encode()))
    return rng.uniform(0.0, 1.0, FEATURES)


def write_embeddings(path: Path, stimuli: Iterable[str]) -> None:
    """A table (stimulus, feature) with a coordinate `stimulus_id`, netCDF."""
    ids = sorted(set(stimuli))
    values = np.stack([_embedding(stimulus) for stimulus in ids])
    coords = {"stimulus_id": ("stimulus", np.array(ids))}
    table = xr.DataArray(values, dims=("stimulus", "feature"), coords=coords)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_netcdf(path)
