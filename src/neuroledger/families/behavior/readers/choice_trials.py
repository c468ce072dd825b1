"""Trials of people in a table: one row per trial, one column with what was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusFiles, StimulusSet, further_sets, read_table
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
    """Choices ``(presentation,)`` with every other column of the table as a coordinate, and the stimuli.

    Parameters
    ----------
    files
        Paths by the names that the spec gives them.
    trials, values
        The CSV of trials, which has a column ``stimulus_id``, and its column of choices.
    stimuli, archive
        The CSV of stimuli and the zip of their files; null for what is not part of the data.
    fitting_stimuli
        Further stimulus sets, those that a readout is fitted to: name → its ``stimuli`` and ``archive``.

    Raises
    ------
    DataError
        A file is not declared under ``files``, or a column is missing.
    """
    for name in (trials, stimuli, archive):
        if name is not None and name not in files:
            raise DataError(f"the reader needs the file {name!r}; declared are {', '.join(sorted(files))}")
    table = read_table(files[trials])
    for column in ("stimulus_id", values):
        if column not in table:
            raise DataError(f"{trials} has no column {column!r}; it has {', '.join(map(str, table.columns))}")
    coords = {
        str(name): ("presentation", _column(table[name].to_numpy())) for name in table if name != values
    }
    assembly = xr.DataArray(_column(table[values].to_numpy()), dims=("presentation",), coords=coords)
    shown = None
    if stimuli is not None:
        zipped = files[archive] if archive is not None else None
        shown = StimulusSet(files[stimuli].stem, read_table(files[stimuli]), zipped)
    return Dataset(stimuli=shown, assembly=assembly, extra_stimuli=further_sets(files, fitting_stimuli))


def _column(
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Text as fixed-width text, numbers as they are."""
    return values.astype(str) if values.dtype.kind not in "biuf" else values
