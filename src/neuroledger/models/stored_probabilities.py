"""A model known by the probabilities it once gave to each object, in the netCDF form of Brain-Score's packages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.core.assembly import read
from neuroledger.core.coding import coordinate, locate
from neuroledger.core.model import Task
from neuroledger.core.registry import builder
from neuroledger.core.stimuli import StimulusSet
from neuroledger.core.time_bins import Bin
from neuroledger.errors import ModelError, RequestError

__all__ = ["StoredProbabilities", "stored_probabilities"]


@dataclass(frozen=True)
class StoredProbabilities:
    """Probabilities ``(presentation, choice)`` by stimulus id; it cannot be asked about other stimuli or objects."""

    id: str
    probabilities: xr.DataArray = field(repr=False)
    visual_degrees: float | None = None
    varies_in_time: bool = False

    def record(
        self, stimuli: StimulusSet, region: str, time_bins: Sequence[Bin] | None = None, trials: int = 1
    ) -> xr.DataArray:
        """Refused: there are no responses.

        Raises
        ------
        RequestError
            Always.
        """
        raise RequestError(
            f"model {self.id!r} is a table of probabilities: there is nothing to record from {region!r}"
        )

    def perform(
        self, task: Task, stimuli: StimulusSet, fitting_stimuli: StimulusSet | None = None, trials: int = 1
    ) -> xr.DataArray:
        """The stored probabilities, or the most probable object for the task ``label``.

        Raises
        ------
        RequestError
            The task asks for something else.
        ModelError
            A stimulus, or an object to choose, is not in the table.
        """
        if task.name == "odd_one_out":
            raise RequestError(
                f"model {self.id!r} is a table of probabilities and cannot find the odd one out"
            )
        rows = locate(stimuli.ids, self.probabilities["stimulus_id"].values)
        if (rows < 0).any():
            first = stimuli.ids[int(np.flatnonzero(rows < 0)[0])]
            raise ModelError(
                f"model {self.id!r} has no stored probabilities for {(rows < 0).sum()} stimuli, first {first!r}"
            )
        shown = self.probabilities.isel(presentation=rows)
        if task.name == "probabilities":
            return shown
        columns = locate(task.choices, shown["choice"].values)
        if not task.choices or (columns < 0).any():
            raise ModelError(
                f"model {self.id!r} knows the objects {', '.join(map(str, shown['choice'].values[:5]))}, …"
            )
        best = shown.values[:, columns].argmax(axis=1)
        names = np.asarray(task.choices)[best]
        return xr.DataArray(
            names, dims=("presentation",), coords={"stimulus_id": ("presentation", stimuli.ids)}
        )


@builder("stored_probabilities", version=1)
def stored_probabilities(*, id: str, weights: Mapping[str, Path]) -> StoredProbabilities:
    """A model of the probabilities in one netCDF file, pinned like weights.

    The file holds one array ``(presentation, choice)``; stimuli are named by ``stimulus_id`` or ``image_id``, objects
    by ``choice`` or ``choice_``.

    Raises
    ------
    ModelError
        There is not exactly one file, or names are missing or doubled.
    """
    if len(weights) != 1:
        raise ModelError(f"model {id!r} needs one file of probabilities, {len(weights)} are declared")
    held = read(next(iter(weights.values()))).transpose("presentation", "choice")
    stimuli = coordinate(held, "stimulus_id", "image_id")
    objects = next((held[name].values for name in ("choice", "choice_") if name in held.coords), None)
    if stimuli is None or objects is None:
        raise ModelError(
            f"model {id!r}: its file does not name stimuli (stimulus_id, image_id) and objects (choice)"
        )
    if len(set(stimuli.tolist())) < stimuli.size or len(set(objects.tolist())) < objects.size:
        raise ModelError(f"model {id!r}: its file names a stimulus or an object twice")
    table = xr.DataArray(
        held.values.astype(np.float64),
        dims=("presentation", "choice"),
        coords={"stimulus_id": ("presentation", stimuli.astype(str)), "choice": objects.astype(str)},
    )
    return StoredProbabilities(id, table)
