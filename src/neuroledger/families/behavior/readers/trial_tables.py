"""Trials of people in the tables of the model-vs-human toolbox, with the images if their archive is part of the data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet, safe_members
from neuroledger.errors import DataError
from neuroledger.families.behavior.tasks.trial_tables import read_trial_tables
from neuroledger.spec.registry import reader

__all__ = ["trial_tables"]

# Coordinates of trials that describe the image.
OF_IMAGES = ("condition", "truth", "texture")


@reader("trial_tables", version=2)
def trial_tables(files: Mapping[str, Path], *, archive: str | None = None) -> Dataset:
    """Read answers ``(presentation,)`` of all observers with ``stimulus_id``, ``subject``, ``condition`` and ``truth``.

    Parameters
    ----------
    files
        Paths by the names in the spec: the tables, and the archive if there is one.
    archive
        Zip of the images. The name of an image, without folders, is the part of ``stimulus_id`` after the experiment.
        Without it, only models with stored answers can be compared.

    Raises
    ------
    DataError
        A file is not a table of this format, the archive is not among the files, or it does not contain exactly the images
        that were shown.
    """
    if archive is not None and archive not in files:
        raise DataError(
            f"the reader needs the file {archive!r}; declared files are {', '.join(sorted(files))}"
        )
    trials = read_trial_tables(
        [files[name] for name in sorted(files) if name != archive]
    )
    if archive is None:
        stimuli = None
    else:
        stimuli = _images(trials, files[archive])
    return Dataset(stimuli=stimuli, assembly=trials)


def _images(trials: xr.DataArray, archive: Path) -> StimulusSet:
    """Return the images that were shown, sorted by id, with those coordinates of the trials that describe an image."""
    members = [member.filename for member in safe_members(archive)]
    by_name = {PurePosixPath(member).name: member for member in members}
    ids, first = np.unique(trials["stimulus_id"].values.astype(str), return_index=True)
    names = [id.partition(":")[2] for id in ids.tolist()]
    missing = sorted(set(names) - set(by_name))
    if missing:
        raise DataError(
            f"{archive.name} lacks {len(missing)} images that were shown, first {missing[0]!r}"
        )
    if len(members) != len(names):
        unseen = sorted(set(by_name) - set(names))
        words = (
            f"first {unseen[0]!r}"
            if unseen
            else "some of one name, in different folders"
        )
        raise DataError(
            f"{archive.name} has {len(members)} files, but {len(names)} images were shown: {words}"
        )
    table = pd.DataFrame(
        {"stimulus_id": ids, "filename": [by_name[name] for name in names]}
    )
    for name in OF_IMAGES:
        table[name] = trials[name].values[first]
    return StimulusSet(archive.name, table, archive)
