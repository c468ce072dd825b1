"""Predictions and true values that are compared row by row, whose rows must be of the same stimuli."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError

__all__ = ["require_same_rows"]


def require_same_rows(source: xr.DataArray, target: xr.DataArray) -> None:
    """Return if both sides have as many rows, of the same stimuli in the same order where both name them.

    Raises
    ------
    MetricError
        The numbers of rows differ, or a row of the predictions names another stimulus than that of the true values.
    """
    count, known = (side.sizes.get("presentation") for side in (source, target))
    if count != known:
        raise MetricError(f"{count} predictions for {known} presentations")
    names = [
        as_text(side["stimulus_id"].values)
        for side in (source, target)
        if "stimulus_id" in side.coords
        and side["stimulus_id"].dims == ("presentation",)
    ]
    if len(names) < 2 or np.array_equal(names[0], names[1]):
        return
    row = int(np.argmax(names[0] != names[1]))
    raise MetricError(
        f"row {row + 1} is a prediction of stimulus {str(names[0][row])!r} and the truth of {str(names[1][row])!r}: they "
        "are compared row by row; give both in the same order"
    )
