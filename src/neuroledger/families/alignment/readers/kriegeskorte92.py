"""Reader of the 92 objects of Kriegeskorte et al.: images and RDMs of human and monkey IT, from MATLAB files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import matlab
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["kriegeskorte92"]

TRAITS = ("human", "face", "animal", "natural")


class _Subject(NamedTuple):
    """Name, species and RDM of one subject."""

    name: str
    species: str
    rdm: Floats


@reader("kriegeskorte92", version=1)
def kriegeskorte92(
    files: Mapping[str, Path], *, brains: str, supplement: str
) -> Dataset:
    """Read images and RDMs (subject, stimulus, stimulus_b) of IT: four people and one population of monkey neurons.

    The file ``brains`` contains 1 − Pearson for each person and session; the two sessions of a person are averaged. The
    file ``supplement`` contains the images, their categories, and the upper triangle for 674 neurons of monkey IT. The
    files contain no stimulus ids: these are ``object_01`` to ``object_92`` in the order of the files. The coordinate
    ``species`` is ``human`` or ``monkey``.

    Raises
    ------
    DataError
        A file is not a MATLAB file, or lacks expected contents.
    """
    pictures = _load(files[supplement], "stimuli_92objs").ravel()
    ids = np.array([f"object_{number:02d}" for number in range(1, len(pictures) + 1)])
    contents = {
        f"{id}.bmp": _bmp(picture["image"])
        for id, picture in zip(ids, pictures, strict=True)
    }
    table = pd.DataFrame({"stimulus_id": ids, "filename": list(contents)})
    table["object_name"] = [str(picture["category"].ravel()[0]) for picture in pictures]
    for trait in TRAITS:
        table[trait] = [int(picture[trait].item()) for picture in pictures]
    subjects = [*_read_people(files[brains]), _read_monkeys(files[supplement])]
    for subject in subjects:
        if subject.rdm.shape != (len(ids), len(ids)):
            raise DataError(
                f"the RDM of {subject.name} is {subject.rdm.shape}, for {len(ids)} stimuli"
            )
    assembly = xr.DataArray(
        np.stack([subject.rdm for subject in subjects]),
        dims=("subject", "stimulus", "stimulus_b"),
        coords={
            "subject": ("subject", np.array([subject.name for subject in subjects])),
            "species": ("subject", np.array([subject.species for subject in subjects])),
            "region": ("subject", np.full(len(subjects), "IT")),
            "stimulus_id": ("stimulus", ids),
            "stimulus_id_b": ("stimulus_b", ids),
        },
        attrs={"units": "1 - Pearson r"},
    )
    return Dataset(
        stimuli=StimulusSet(supplement, table, contents=contents), assembly=assembly
    )


def _read_people(path: Path) -> list[_Subject]:
    """Mean RDM of each person over sessions; the subject's name is ``BE`` of "hIT | BE | Session: 1"."""
    sessions = _load(path, "RDMs")
    sessions = sessions.reshape(sessions.shape[-2:])
    return [
        _Subject(
            str(person[0]["name"].item()).split("|")[1].strip(),
            "human",
            np.mean(
                [floats(session["RDM"]) for session in person],
                axis=0,
            ),
        )
        for person in sessions
    ]


def _read_monkeys(path: Path) -> _Subject:
    from scipy.spatial.distance import squareform

    for entry in _load(path, "RDMs_mIT_hIT_fig1").ravel():
        name = str(entry["name"].item())
        if name.startswith("mIT"):
            return _Subject(
                name,
                "monkey",
                squareform(floats(entry["RDM"]).ravel()),
            )
    raise DataError(f"{path.name} has no monkey RDM (a name that begins with 'mIT')")


def _load(path: Path, variable: str) -> Array:
    content: Array = matlab(path, variable)[variable]
    return content


def _bmp(pixels: NDArray[np.uint8]) -> bytes:
    """Encode an image without compression, so that its bytes (and the hash of the stimuli) depend on no library."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, format="BMP")
    return buffer.getvalue()
