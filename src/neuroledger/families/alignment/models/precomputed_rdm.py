"""A model given by precomputed dissimilarities: the RDM in a pinned MATLAB file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, floats
from neuroledger.data.parsing import matlab, parsing
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.models.model import Record, unknown
from neuroledger.models.neuroids import Bin
from neuroledger.spec.channels import STIMULI
from neuroledger.spec.registry import builder

__all__ = ["RdmModel", "precomputed_rdm"]


@dataclass(frozen=True)
class RdmModel:
    """Model given by the dissimilarities between stimuli, which are the same for every region."""

    id: str
    rdm: Floats = field(repr=False)
    ids: tuple[str, ...] = field(repr=False)

    takes = STIMULI
    gives = frozenset({"responses"})

    def answer(self, question: Record) -> xr.DataArray:
        """RDM of the stimuli of ``question``; see :func:`neuroledger.models.model.record`."""
        return self.record(question.stimuli, question.time_bins)

    def record(
        self, stimuli: StimulusSet, time_bins: Sequence[Bin] | None = None
    ) -> xr.DataArray:
        """RDM of ``stimuli`` (stimulus, stimulus_b).

        Raises
        ------
        RequestError
            The RDM does not contain a stimulus, or responses in time bins are requested.
        """
        if time_bins is not None:
            raise RequestError(
                f"model {self.id!r} is a single RDM and has no responses over time"
            )
        row_of = {id: row for row, id in enumerate(self.ids)}
        missing = [id for id in stimuli.ids if id not in row_of]
        if missing:
            raise RequestError(
                f"model {self.id!r} has no {unknown('stimulus', missing[0], self.ids)}"
            )
        rows = np.array([row_of[id] for id in stimuli.ids])
        names = np.array(stimuli.ids)
        return xr.DataArray(
            self.rdm[np.ix_(rows, rows)],
            dims=("stimulus", "stimulus_b"),
            coords={
                "stimulus_id": ("stimulus", names),
                "stimulus_id_b": ("stimulus_b", names),
            },
            attrs={"model": self.id},
        )


@builder("precomputed_rdm", version=1, takes=STIMULI, gives={"responses"})
def precomputed_rdm(
    *,
    id: str,
    variable: str,
    rdm: str,
    stimuli: str,
    weights: Mapping[str, Path] | None = None,
) -> RdmModel:
    """Model from the RDM named ``rdm`` in the MATLAB structure array ``variable`` (fields ``name``, ``RDM``) of one file.

    Rows belong to stimuli numbered from 1; ``stimuli`` is the format of their ids, such as ``object_{:02d}``.

    Raises
    ------
    ModelError
        ``weights`` does not name exactly one file, or the file has no symmetric RDM of this name.
    """
    files = dict(weights or {})
    if len(files) != 1:
        raise ModelError(f"model {id!r}: `weights` must pin one file, not {len(files)}")
    (path,) = files.values()
    entries = confined(
        lambda: _read_rdms(path, variable, id),
        limits_for([path]),
        f"model {id!r}: {path.name}",
    )
    if rdm not in entries:
        raise ModelError(
            f"model {id!r}: {path.name} has no {unknown('RDM', rdm, tuple(entries))}"
        )
    values = entries[rdm]
    if (
        values.ndim != 2
        or values.shape[0] != values.shape[1]
        or not np.allclose(values, values.T)
    ):
        raise ModelError(
            f"model {id!r}: {rdm!r} in {path.name} is {values.shape}, not a symmetric matrix"
        )
    return RdmModel(
        id,
        values,
        tuple(stimuli.format(number) for number in range(1, len(values) + 1)),
    )


def _read_rdms(path: Path, variable: str, id: str) -> dict[str, Floats]:
    """RDMs of the structure array ``variable``, by name."""
    try:
        with parsing(path, f"a MATLAB file with RDMs in {variable!r}"):
            return {
                str(entry["name"].item()): floats(entry["RDM"])
                for entry in matlab(path, variable)[variable].ravel()
            }
    except DataError as error:
        raise ModelError(f"model {id!r}: {error}") from error
