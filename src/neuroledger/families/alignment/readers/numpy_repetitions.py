"""Reader of one NumPy array of responses, neuroid × stimulus × repetition, padded with NaN, and a zip of the images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Reals
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
    """Read a stimulus set and an assembly (presentation, neuroid) with one presentation per recorded repetition.

    The array is (neuroid, stimulus, repetition). The files of the zip, sorted by name, are its stimuli; the id of a
    stimulus is the name of its file without folder and suffix. Repetitions in which every neuroid is NaN were not
    recorded. Presentations are sorted by stimulus, then by repetition, counted from 0; all have the same ``session``.

    Raises
    ------
    DataError
        The array is not a three-dimensional array of floats, its number of stimuli differs from that of the files, or a
        stimulus was never presented.
    """
    members = sorted(member.filename for member in safe_members(files[archive]))
    values = _read_responses(files[responses], stimuli=len(members), archive=archive)
    recorded = ~np.isnan(values).all(axis=0)
    presented = np.any(recorded, axis=1)
    if not presented.all():
        unseen = members[int(np.argmin(presented))]
        raise DataError(
            f"{responses}: stimulus {unseen!r} was never presented; remove it from {archive}"
        )
    stimulus, repetition = np.nonzero(recorded)
    ids = np.array([PurePosixPath(name).stem for name in members])
    assembly = xr.DataArray(
        values[:, stimulus, repetition].T,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids[stimulus]),
            "session": ("presentation", np.full(len(stimulus), session)),
            "repetition": ("presentation", repetition),
            "neuroid_id": (
                "neuroid",
                np.array([f"{session}.{number:03d}" for number in range(len(values))]),
            ),
            "region": ("neuroid", np.full(len(values), region)),
            "subject": ("neuroid", np.full(len(values), subject)),
        },
        attrs={"units": units},
    )
    table = pd.DataFrame({"stimulus_id": ids, "filename": members})
    return Dataset(
        stimuli=StimulusSet(archive, table, files[archive]), assembly=assembly
    )


def _read_responses(path: Path, *, stimuli: int, archive: str) -> Reals:
    values = numpy_array(path)
    if values.ndim != 3 or values.dtype.kind != "f":
        raise DataError(
            f"{path.name} contains {values.dtype} of shape {values.shape}, not floats (neuroid, stimulus, repetition)"
        )
    if values.shape[1] != stimuli:
        raise DataError(
            f"{path.name} has {values.shape[1]} stimuli, but {archive} has {stimuli} files"
        )
    return values
