"""Signal reliability: the share of stimulus-driven variance in the mean responses."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, floats
from neuroledger.data.factorize import encode
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.scale import moderate_columns
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["signal_reliability"]

FEWEST_STIMULI = 4


@ceiling("signal_reliability", version=2)
def signal_reliability(assembly: xr.DataArray) -> Samples:
    """Reliability of each neuroid's mean responses, ``1 − noise / variance · (n − 3) / (n − 1)`` [sahani2003].

    ``variance`` is the variance over stimuli of the mean responses. ``noise`` is the mean over stimuli of the variance of a
    stimulus's repetitions divided by their number; stimuli presented once get the mean variance of the others. No random
    splits are involved, and stimuli may differ in their number of repetitions. The factor, for n stimuli, makes the ratio
    unbiased under normal noise: for pure noise the reliability is 0 on average, and about as often negative as positive.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` or ``(presentation, neuroid, time_bin)`` with ``stimulus_id``, not averaged; missing
        values are skipped.

    Returns
    -------
    Samples
        Reliability ``(neuroid,)`` or ``(neuroid, time_bin)``.

    Raises
    ------
    CeilingError
        No stimulus was repeated, or fewer than 4 stimuli have responses.
    """
    dims = (
        "presentation",
        "neuroid",
        *(dim for dim in ("time_bin",) if dim in assembly.dims),
    )
    if set(dims) != set(assembly.dims) or "stimulus_id" not in assembly.coords:
        raise CeilingError(
            f"signal reliability needs ({', '.join(dims)}) with stimulus_id, not {tuple(assembly.dims)}"
        )
    assembly = assembly.transpose(*dims)
    shape = assembly.shape[1:]
    values = moderate_columns(floats(assembly.values).reshape(len(assembly), -1))
    coded = encode(assembly["stimulus_id"].values)
    if len(coded.labels) == len(values):
        raise CeilingError(
            f"no repetitions: each of the {len(values)} stimuli was presented once; use an assembly with repetitions, or a "
            "constant ceiling with its source"
        )
    order = np.argsort(coded.codes, kind="stable")
    starts = np.searchsorted(coded.codes[order], np.arange(len(coded.labels)))
    present = np.isfinite(values[order])
    level = np.nan_to_num(np.nanmean(values, axis=0))
    filled = np.where(present, values[order] - level, 0.0)
    count = np.add.reduceat(present.astype(np.float64), starts, axis=0)
    mean = np.add.reduceat(filled, starts, axis=0) / np.maximum(count, 1)
    within = np.add.reduceat(
        np.where(present, filled - mean[coded.codes[order]], 0.0) ** 2, starts, axis=0
    )
    result = _ratio(mean, within, count)
    if not np.isfinite(result).any():
        raise CeilingError(
            f"no neuroid varies over at least {FEWEST_STIMULI} stimuli of which some were repeated"
        )
    coords = {
        name: c
        for name, c in assembly.coords.items()
        if c.dims in (("neuroid",), ("time_bin",))
    }
    undefined = int(np.isnan(result).sum())
    notes = (
        [
            f"{undefined} of {result.size} neuroids have no reliability: constant or missing responses"
        ]
        if undefined
        else []
    )

    samples = xr.DataArray(result.reshape(shape), dims=dims[1:], coords=coords)

    def without(keep: Keep) -> xr.DataArray:
        rows = keep["stimulus"]
        return samples.copy(
            data=_ratio(mean[rows], within[rows], count[rows]).reshape(shape)
        )

    return Samples(
        samples, Variation({"stimulus": coded.labels.astype(str)}, without), notes=notes
    )


def _ratio(mean: Floats, within: Floats, count: Floats) -> Floats:
    """Reliability of each column from means, sums of squares within and counts (stimulus × column); NaN if undefined."""
    present = count > 0
    repeated = count > 1
    stimuli = present.sum(axis=0)
    repeated_count = repeated.sum(axis=0)
    single = np.where(repeated, within / np.maximum(count - 1, 1), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        typical = single.sum(axis=0) / repeated_count
        of_mean = np.where(
            present, np.where(repeated, single, typical) / np.maximum(count, 1), 0.0
        )
        centre = np.where(present, mean, 0.0).sum(axis=0) / stimuli
        squares = np.where(present, (mean - centre) ** 2, 0.0).sum(axis=0)
        usable = (stimuli >= FEWEST_STIMULI) & (repeated_count > 0) & (squares > 0)
        noise = of_mean.sum(axis=0) / stimuli
        variance = squares / (stimuli - 1)
        return np.where(
            usable, 1 - noise / variance * ((stimuli - 3) / (stimuli - 1)), np.nan
        )
