"""Dissimilarities that were computed elsewhere: a model that answers with the RDM of a pinned MATLAB file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data.parsing import matlab, parsing
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.models.model import unknown
from neuroledger.models.neuroids import Bin
from neuroledger.spec.channels import STIMULI
from neuroledger.spec.registry import builder

__all__ = ["RdmModel", "precomputed_rdm"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RdmModel:
    """A model of which only the dissimilarities between named stimuli are known, the same for every region."""

    id: str
    rdm: Floats = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)

    takes = STIMULI
    gives = frozenset({"responses"})

    def answer(self, question: Any) -> xr.DataArray:
        """The RDM of the stimuli; see :func:`neuroledger.models.model.record`."""
        return self.record(question.stimuli, question.time_bins)

    def record(self, stimuli: StimulusSet, time_bins: Sequence[Bin] | None = None) -> xr.DataArray:
        """The RDM of ``stimuli`` (stimulus, stimulus_b).

        Raises
        ------
        RequestError
            A stimulus is not among those it was computed for, or responses over time are asked for.
        """
        if time_bins is not None:
            raise RequestError(f"model {self.id!r} is one RDM and says nothing about time")
        place = {id: row for row, id in enumerate(self.ids)}
        missing = [id for id in stimuli.ids if id not in place]
        if missing:
            raise RequestError(f"model {self.id!r} has no {unknown('stimulus', missing[0], self.ids)}")
        rows = np.array([place[id] for id in stimuli.ids])
        names = np.array(stimuli.ids)
        return xr.DataArray(
            self.rdm[np.ix_(rows, rows)],
            dims=("stimulus", "stimulus_b"),
            coords={"stimulus_id": ("stimulus", names), "stimulus_id_b": ("stimulus_b", names)},
            attrs={"model": self.id},
        )


@builder("precomputed_rdm", version=1, takes=STIMULI, gives={"responses"})
def precomputed_rdm(
    *, id: str, variable: str, rdm: str, stimuli: str, weights: Mapping[str, Path] | None = None
) -> RdmModel:
    """The RDM called ``rdm`` in the MATLAB structure array ``variable`` (fields ``name`` and ``RDM``) of the one file.

    Rows belong to stimuli numbered from 1: ``stimuli`` gives their ids, such as ``object_{:02d}``.

    Raises
    ------
    ModelError
        There is not one file, or it does not hold a symmetric RDM of that name.
    """
    held = dict(weights or {})
    if len(held) != 1:
        raise ModelError(f"model {id!r}: `weights` must pin one file, not {len(held)}")
    (path,) = held.values()
    entries = confined(lambda: _entries(path, variable, id), limits_for([path]), f"model {id!r}: {path.name}")
    if rdm not in entries:
        raise ModelError(f"model {id!r}: {path.name} has no {unknown('RDM', rdm, tuple(entries))}")
    values = entries[rdm]
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not np.allclose(values, values.T):
        raise ModelError(f"model {id!r}: {rdm!r} in {path.name} is {values.shape}, not a symmetric matrix")
    return RdmModel(id, values, tuple(stimuli.format(number) for number in range(1, len(values) + 1)))


def _entries(path: Path, variable: str, id: str) -> dict[str, Floats]:
    try:
        with parsing(path, f"a MATLAB file with RDMs in {variable!r}"):
            return {
                str(entry["name"].item()): np.asarray(entry["RDM"], dtype=np.float64)
                for entry in matlab(path, variable)[variable].ravel()
            }
    except DataError as error:
        raise ModelError(f"model {id!r}: {error}") from error
