"""Ceiling of continuous recordings: how well repetitions of a run agree over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Indices, floats
from neuroledger.data.factorize import encode
from neuroledger.errors import CeilingError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.encoding.blocks import segments
from neuroledger.families.alignment.regression.held_out_variation import without_groups
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split

__all__ = ["encoding_reliability"]


@ceiling("encoding_reliability", version=1, example=examples.repeated_runs)
def encoding_reliability(assembly: xr.DataArray, *, splits: Sequence[Split]) -> Samples:
    """Reliability over time of a recording of repeated runs, by the Spearman-Brown formula [spearman1910, brown1910].

    The repetitions of each run are divided in two and averaged, and the halves are correlated over all bins of all
    runs: r. The reliability of all repetitions is ``2 r / (1 + r)``.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid, time_bin)`` with ``stimulus_id`` (the run) and ``repetition``, not averaged.

    Returns
    -------
    Samples
        Reliabilities ``(split, neuroid)``; they vary over segments of time.

    Raises
    ------
    CeilingError
        There are no time bins, no run has repetitions in both halves, or responses are missing.
    """
    if "time_bin" not in assembly.dims or "stimulus_id" not in assembly.coords:
        raise CeilingError(
            "the reliability over time needs (presentation, neuroid, time_bin) with stimulus_id and repetitions"
        )
    values = floats(assembly.transpose("presentation", "time_bin", "neuroid").values)
    if not np.isfinite(values).all():
        raise CeilingError(
            "the reliability over time needs complete responses; drop neuroids with missing bins"
        )
    runs = encode(assembly["stimulus_id"].values).codes
    halves = [
        (_mean(values, runs, split.train), _mean(values, runs, split.test))
        for split in splits
    ]
    both = np.isfinite(halves[0][0]) & np.isfinite(halves[0][1])
    kept = np.flatnonzero(both.all(axis=(1, 2)))
    if not kept.size:
        raise CeilingError(
            "no run has repetitions in both halves, so its reliability cannot be estimated; use a constant "
            "ceiling with a source"
        )
    pairs = [(_rows(a[kept]), _rows(b[kept])) for a, b in halves]
    bins = values.shape[1]
    ids = segments(
        np.repeat(np.arange(len(kept)), bins), np.tile(np.arange(bins), len(kept))
    )

    def each(_: str, codes: Indices) -> Floats:
        count = int(codes.max()) + 1
        left = [without_groups(a, b, codes, count) for a, b in pairs]
        return _corrected(np.stack(left, axis=1))

    def without(keep: Keep) -> xr.DataArray:
        rows = keep["stimulus"]
        return samples.copy(data=_values([(a[rows], b[rows]) for a, b in pairs]))

    samples = xr.DataArray(
        _values(pairs),
        dims=("split", "neuroid"),
        coords={"split": np.arange(len(splits))},
    )
    return Samples(samples, Variation({"stimulus": ids}, without, each))


def _mean(values: Floats, runs: Indices, rows: Indices) -> Floats:
    """Return the mean of each run over some of its repetitions, (run × bin × neuroid); NaN for runs without any."""
    found = np.full((int(runs.max()) + 1, *values.shape[1:]), np.nan)
    for run in np.unique(runs[rows]):
        found[run] = values[rows[runs[rows] == run]].mean(axis=0)
    return found


def _rows(values: Floats) -> Floats:
    return values.reshape(-1, values.shape[-1])


def _values(pairs: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return the reliability of each split and neuroid."""
    found = [
        without_groups(a, b, np.zeros(len(a), dtype=np.intp) - 1, 1)[0]
        for a, b in pairs
    ]
    return _corrected(np.array(found))


def _corrected(r: Floats) -> Floats:
    return np.asarray(2 * r / (1 + r))
