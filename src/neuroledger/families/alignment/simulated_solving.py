"""Simulated solution times of stimuli, with responses over time, drawn from a generative model of measured ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.stats.calibration import Experiment

__all__ = ["shift_times", "simulated_solving"]

Draw = Callable[[np.random.Generator, int], Experiment[Measurement]]
# Maximum number of simulated stimuli and neuroids.
STIMULI, NEUROIDS = 200, 60
# Shift in time of a measured stimulus, as a share of the stimuli's standard deviation; and the additional shift of each
# model, as a share of their variance.
MOVED, OWN = 0.5, 0.5
# Number of directions of responses that explain times, and the minimum share (adjusted R²) that they must explain.
DIRECTIONS, LEAST = 10, 0.1


def simulated_solving(measured: Measurement) -> Draw:
    """Simulate experiments with new stimuli, whose responses and solution times are shifted together.

    A new stimulus is a measured one whose responses are shifted in time, such that the variance of times over stimuli stays
    the same; the noise of single sessions is added to its time. The responses of each model get an additional shift that is
    independent of the brain.

    Raises
    ------
    MetricError
        Stimuli have no object, time bins are not ascending, or the responses do not explain the times.
    """
    source = measured.source.transpose("presentation", "neuroid", "time_bin")
    target = measured.target
    labels = coordinate(target, "image_label", "object_name", "truth")
    if labels is None or source.sizes["presentation"] != target.sizes["presentation"]:
        raise MetricError(
            "no generative model of times is known where stimuli have no object (`image_label`)"
        )
    objects = encode(labels)
    chosen = np.random.default_rng(0).permutation(source.sizes["neuroid"])[:NEUROIDS]
    responses = floats(source.isel(neuroid=np.sort(chosen)).values)
    times = floats(target.values)
    solved = np.isfinite(times)
    course = np.stack(
        [responses[objects.codes == k].mean(axis=0) for k in range(len(objects.labels))]
    )
    _refuse_unrelated((responses - course[objects.codes])[solved], times[solved])
    mean = float(times[solved].mean())
    delays = np.where(solved, times - mean, 0.0)
    starts = floats(source["time_bin_start"].values)
    if (np.diff(starts) <= 0).any():
        raise MetricError(
            "no generative model of times is known where time bins do not follow one another"
        )
    sessions, noise = _sessions(measured.repeated)
    if noise and delays[solved].var() > 0:  # subtract the variance due to noise
        delays *= np.sqrt(max(0.0, 1 - noise**2 / len(sessions) / delays[solved].var()))
    spread = float(delays[solved].std())
    stimulus_coords = {
        str(n): c for n, c in target.coords.items() if c.dims == ("presentation",)
    }
    neuroids = {
        n: c.isel(neuroid=np.sort(chosen))
        for n, c in source.coords.items()
        if "neuroid" in c.dims
    }
    bins = {n: c for n, c in source.coords.items() if c.dims == ("time_bin",)}

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        first = rng.integers(0, len(times), min(len(times), STIMULI))
        drawn = np.sqrt(1 - MOVED**2) * delays[
            first
        ] + MOVED * spread * rng.standard_normal(len(first))
        true = mean + drawn
        true[~solved[first]] = np.nan
        ids = np.array([f"s{i:04d}" for i in range(len(first))])
        coords = {
            n: ("presentation", np.asarray(c.values)[first])
            for n, c in stimulus_coords.items()
        }
        coords["stimulus_id"] = ("presentation", ids)
        observed = true[:, None] + noise * rng.standard_normal(
            (len(first), len(sessions))
        )
        averaged = xr.DataArray(
            observed.mean(axis=1),
            dims=("presentation",),
            coords=_without(coords, "repetition"),
            attrs=target.attrs,
        )
        repeated = None
        if measured.repeated is not None:
            repeated_coords = {
                name: (dim, np.repeat(column, len(sessions)))
                for name, (dim, column) in coords.items()
            }
            repeated_coords["repetition"] = (
                "presentation",
                np.tile(sessions, len(first)),
            )
            repeated = xr.DataArray(
                observed.ravel(),
                dims=("presentation",),
                coords=repeated_coords,
                attrs=target.attrs,
            )
        measurement = Measurement(averaged, averaged, repeated)
        sources = []
        for _ in range(models):
            model_noise = np.sqrt(OWN) * spread * rng.standard_normal(len(first))
            shifted = shift_times(
                responses[first], starts, drawn - delays[first] + model_noise
            )
            values = xr.DataArray(shifted, dims=("presentation", "neuroid", "time_bin"))
            sources.append(
                values.assign_coords(neuroids | bins | _without(coords, "repetition"))
            )
        return Experiment([replace(measurement, source=source) for source in sources])

    return draw


Columns = dict[str, tuple[str, Array]]


def _without(coords: Columns, name: str) -> Columns:
    return {key: value for key, value in coords.items() if key != name}


def shift_times(responses: Floats, starts: Floats, later: Floats) -> Floats:
    """Shift responses (stimulus, neuroid, bin) by ``later`` ms, by linear interpolation; values at the ends are repeated."""
    positions = np.interp(starts - later[:, None], starts, np.arange(len(starts)))
    below = np.minimum(positions.astype(int), max(0, len(starts) - 2))
    above = np.minimum(below + 1, len(starts) - 1)
    share = (positions - below)[:, None]
    rows, neuroids = np.ogrid[: responses.shape[0], : responses.shape[1]]
    at = rows[:, :, None], neuroids[:, :, None]
    return np.asarray(
        (1 - share) * responses[(*at, below[:, None])]
        + share * responses[(*at, above[:, None])]
    )


def _refuse_unrelated(deviations: Floats, times: Floats) -> None:
    """Raise MetricError if a linear regression on the responses' deviations explains too little of the times."""
    flat = deviations.reshape(len(deviations), -1)
    U, s, _ = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    U = (
        U[:, : min(DIRECTIONS, int((s > 1e-9 * s[0]).sum()))]
        if s.size and s[0] > 0
        else U[:, :0]
    )
    count = len(times)
    free = len(times) - U.shape[1] - 1
    centred = times - times.mean()
    spread = float(centred @ centred)
    unexplained = spread - float(((U.T @ centred) ** 2).sum())
    if (
        free < 1
        or spread == 0
        or 1 - (unexplained / free) / (spread / (count - 1)) < LEAST
    ):
        raise MetricError(
            "no generative model is fitted: the responses are not related to when stimuli are solved"
        )


def _sessions(repeated: xr.DataArray | None) -> tuple[Array, float]:
    """Names of the repetitions, and the standard deviation about the stimulus mean (0 if there is only one repetition)."""
    if repeated is None or "repetition" not in repeated.coords:
        return np.array(["0"]), 0.0
    values = floats(repeated.values)
    stimuli = encode(repeated["stimulus_id"].values)
    known = np.isfinite(values)
    count = np.bincount(stimuli.codes[known], minlength=len(stimuli.labels))
    sums = np.bincount(
        stimuli.codes[known], values[known], minlength=len(stimuli.labels)
    )
    deviations = values[known] - (sums / np.maximum(count, 1))[stimuli.codes[known]]
    free = np.maximum(count - 1, 0).sum()
    names = np.unique(repeated["repetition"].values)
    if not free:
        return names, 0.0
    return names, float(np.sqrt((deviations**2).sum() / free))
