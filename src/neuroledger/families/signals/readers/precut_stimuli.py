"""What windows that were cut elsewhere show: each stimulus once, with the coordinates that tell what it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.errors import DataError
from neuroledger.spec.registry import stimuli

__all__ = ["stimuli_of_windows"]

TOLD = ("text", "context", "filename", "start", "duration")


@stimuli("prepared_signals")
def stimuli_of_windows(files: Mapping[str, Path], *, file: str = "signals.nc") -> pd.DataFrame:
    """`stimulus_id` of the windows, in the order in which they first come, with `text`, `filename`, … where they have it.

    Windows that have none of these show images, or texts, that are called as the stimulus is.

    Raises
    ------
    DataError
        The file is missing or no windows, or one stimulus is told in two ways.
    """
    if file not in files:
        raise DataError(f"{file!r} is not among the files: {', '.join(sorted(files)[:20])}")
    try:
        with xr.open_dataset(files[file], engine="netcdf4") as opened:
            held = {
                name: opened[name].values.astype(str)
                for name in ("stimulus_id", *TOLD)
                if name in opened and opened[name].dims == ("presentation",)
            }
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as netCDF ({error}); fetch it again") from error
    if "stimulus_id" not in held:
        raise DataError(f"{file} has no coordinate `stimulus_id` of presentations")
    if len(held) == 1:
        held |= {"text": held["stimulus_id"], "filename": held["stimulus_id"]}
    table = pd.DataFrame(held).drop_duplicates(ignore_index=True)
    twice = table["stimulus_id"][table["stimulus_id"].duplicated()]
    if len(twice):
        raise DataError(
            f"{file}: stimulus {twice.iloc[0]!r} is told in two ways ({', '.join(name for name in held if name in TOLD)} "
            "differ between its windows): give the two different names"
        )
    return table.replace({np.nan: ""})
