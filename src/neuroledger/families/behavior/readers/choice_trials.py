"""Trials of people in a table: one row per trial, one column of choices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import (
    StimulusFiles,
    StimulusSet,
    further_sets,
    read_table,
)
from neuroledger.errors import DataError
from neuroledger.spec.registry import reader

__all__ = ["choice_trials"]


@reader("choice_trials", version=1)
def choice_trials(
    files: Mapping[str, Path],
    *,
    trials: str = "trials.csv",
    values: str = "choice",
    stimuli: str | None = "stimuli.csv",
    archive: str | None = "stimuli.zip",
    fitting_stimuli: Mapping[str, StimulusFiles] | None = None,
) -> Dataset:
    """Read choices ``(presentation,)``, with all other columns of the table as coordinates, and the stimuli.

    Parameters
    ----------
    files
        Paths by the names in the spec.
    trials, values
        CSV file of trials with a column ``stimulus_id``, and the name of its column of choices.
    stimuli, archive
        CSV file of stimuli, and zip archive of their files; null if the data do not contain it.
    fitting_stimuli
        Additional stimulus sets that a readout is fitted to: name → its ``stimuli`` and ``archive``.

    Raises
    ------
    DataError
        A file is not declared under ``files``, or a column is missing.
    """
    for name in (trials, stimuli, archive):
        if name is not None and name not in files:
            raise DataError(
                f"the reader needs the file {name!r}; declared files are {', '.join(sorted(files))}"
            )
    table = read_table(files[trials])
    for column in ("stimulus_id", values):
        if column not in table:
            raise DataError(
                f"{trials} has no column {column!r}; it has {', '.join(map(str, table.columns))}"
            )
    coords = {
        str(name): ("presentation", _column(table[name].to_numpy()))
        for name in table
        if name != values
    }
    assembly = xr.DataArray(
        _column(table[values].to_numpy()), dims=("presentation",), coords=coords
    )
    stimulus_set = None
    if stimuli is not None:
        zipped = None
        if archive is not None:
            zipped = files[archive]
        stimulus_set = StimulusSet(
            files[stimuli].stem, read_table(files[stimuli]), zipped
        )
    return Dataset(
        stimuli=stimulus_set,
        assembly=assembly,
        extra_stimuli=further_sets(files, fitting_stimuli),
    )


def _column(
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Convert text to fixed-width text; return numbers unchanged."""
    if values.dtype.kind not in "biuf":
        return values.astype(str)
    return values
