"""Responses as one NumPy array of neuroid × stimulus × repetition, padded with NaN, beside a zip of the images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import numpy_array
from neuroledger.data.stimuli import StimulusSet, safe_members
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["numpy_repetitions"]


@reader("numpy_repetitions", version=1)
def numpy_repetitions(
    files: Mapping[str, Path],
    *,
    responses: str,
    archive: str,
    region: str,
    subject: str,
    session: str,
    units: str = "spikes",
) -> Dataset:
    """A stimulus set and an assembly (presentation, neuroid), one presentation for each repetition that took place.

    The array is (neuroid, stimulus, repetition); the files of the zip, sorted by name, are its stimuli, and a
    stimulus is called after its file, without folder and ending. A repetition in which every neuroid is NaN did
    not take place. Presentations are sorted by stimulus, then by repetition, counted from 0; the coordinate
    ``session`` is the same everywhere.

    Raises
    ------
    DataError
        The array is not three-dimensional and real, does not have a column for every file, or a stimulus was
        never presented.
    """
    members = sorted(member.filename for member in safe_members(files[archive]))
    values = _array(files[responses], stimuli=len(members), archive=archive)
    shown = ~np.isnan(values).all(axis=0)
    if not shown.any(axis=1).all():
        never = members[int(np.argmin(shown.any(axis=1)))]
        raise DataError(f"{responses}: stimulus {never!r} was never presented; take it out of {archive}")
    stimulus, repetition = np.nonzero(shown)
    ids = np.array([PurePosixPath(name).stem for name in members])
    assembly = xr.DataArray(
        values[:, stimulus, repetition].T,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids[stimulus]),
            "session": ("presentation", np.full(len(stimulus), session)),
            "repetition": ("presentation", repetition),
            "neuroid_id": ("neuroid", np.array([f"{session}.{number:03d}" for number in range(len(values))])),
            "region": ("neuroid", np.full(len(values), region)),
            "subject": ("neuroid", np.full(len(values), subject)),
        },
        attrs={"units": units},
    )
    table = pd.DataFrame({"stimulus_id": ids, "filename": members})
    return Dataset(stimuli=StimulusSet(archive, table, files[archive]), assembly=assembly)


def _array(path: Path, *, stimuli: int, archive: str) -> NDArray[Any]:
    values = numpy_array(path)
    if values.ndim != 3 or values.dtype.kind != "f":
        raise DataError(
            f"{path.name} holds {values.dtype} of shape {values.shape}, not real numbers (neuroid, stimulus, repetition)"
        )
    if values.shape[1] != stimuli:
        raise DataError(f"{path.name} has {values.shape[1]} stimuli, but {archive} has {stimuli} files")
    return values
