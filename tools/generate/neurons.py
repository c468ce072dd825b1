"""Simulated recordings with known signal, noise and repetitions, and hence a known ceiling and best model."""

from __future__ import annotations

from itertools import product
from math import comb
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEED: Final = 20_260_103
REPETITIONS: Final = 8
ABOUT: Final = (
    "Simulated neurons: signal, noise and repetitions were chosen, so the reliability follows from a "
    "formula. No animal was recorded."
)


class Recording(NamedTuple):
    """A simulated assembly and the facts of the simulation."""

    assembly: xr.DataArray
    truth: dict[str, Any]


def static(signals: dict[str, Floats], table: pd.DataFrame) -> Recording:
    """Responses of every region's neurons to all stimuli × 8 repetitions, with independent Gaussian noise.

    A neuron with signal variance 1 (over the stimuli) and noise variance s² has, after averaging R
    repetitions, the reliability 1 / (1 + s² / R): the split-half correlation after Spearman–Brown. s² is
    chosen for reliabilities from .50 to .95 in equal steps. The correlation of a model with the average is at
    most the square root of the reliability.
    """
    rng = np.random.default_rng(SEED)
    signal = np.concatenate(list(signals.values()), axis=1)
    reliability = np.concatenate(
        [rng.permutation(np.linspace(0.5, 0.95, s.shape[1])) for s in signals.values()]
    )
    noise = np.sqrt(REPETITIONS * (1 / reliability - 1))
    values = [
        signal + noise * rng.standard_normal(signal.shape) for _ in range(REPETITIONS)
    ]
    neuroids = _neuroids({region: s.shape[1] for region, s in signals.items()})
    assembly = _assembly(
        np.stack(values, axis=1).reshape(-1, signal.shape[1]),
        _presentations(
            table, np.repeat(np.arange(len(table)), REPETITIONS), REPETITIONS
        ),
        neuroids,
    )
    regions = {
        region: _reliabilities(
            neuroids["neuroid_id"], reliability, neuroids["region"] == region
        )
        for region in signals
    }
    formula = "reliability = var_signal / (var_signal + var_noise / repetitions)"
    return Recording(
        assembly,
        _truth(table, formula, regions, repetitions=REPETITIONS, noise="Gaussian"),
    )


def ragged(signal: Floats, table: pd.DataFrame) -> Recording:
    """Spike counts (Poisson) with 6 to 10 repetitions, which differ between stimuli.

    With rate λ(stimulus), the signal variance is var λ. Ten repetition numbers are halved at random; of the n
    repetitions of a stimulus, k are in a half with the hypergeometric probability of k. Hence a half-mean has
    the noise variance mean(λ · E[1/k]), and the expected split-half correlation is var λ /
    (var λ + mean(λ · E[1/k])), to be corrected by Spearman–Brown.
    """
    rng = np.random.default_rng(SEED + 1)
    counts = rng.permutation(np.resize(np.arange(6, 11), len(table)))
    low, high = signal.min(axis=0), signal.max(axis=0)
    rate = np.round(
        2 + np.linspace(1, 10, signal.shape[1]) * (signal - low) / (high - low), 4
    )
    stimulus = np.repeat(np.arange(len(table)), counts)
    repetition = np.concatenate([np.arange(count) for count in counts])
    neuroids = _neuroids({"IT": signal.shape[1]})
    presentations = _presentations(table, stimulus, 1) | {"repetition": repetition}
    assembly = _assembly(
        rng.poisson(rate[stimulus]).astype(np.float64), presentations, neuroids
    )
    weight = np.array([_mean_inverse(count, 10) for count in counts])
    half = rate.var(axis=0) / (rate.var(axis=0) + (rate * weight[:, None]).mean(axis=0))
    regions = {
        "IT": _reliabilities(
            neuroids["neuroid_id"], 2 * half / (1 + half), np.ones(len(half), bool)
        )
    }
    formula = "half = var(rate) / (var(rate) + mean(rate * E[1/k])); reliability = 2 half / (1 + half)"
    return Recording(
        assembly, _truth(table, formula, regions, repetitions=[6, 10], noise="Poisson")
    )


def timed(signal: Floats, table: pd.DataFrame) -> Recording:
    """Responses in seven bins of 20 ms from 70 ms, with an early and a late component.

    r(stimulus, t) = early(t) · own(stimulus) + late(t) · next(stimulus), with Gaussian noise of variance 2
    for each of 6 repetitions; the reliability in a bin is v / (v + 2 / 6), with v the variance of r(·, t)
    over the stimuli.
    """
    rng = np.random.default_rng(SEED + 2)
    starts = np.arange(70, 210, 20)
    early = np.exp(-(((starts - 90) / 30) ** 2))
    late = np.exp(-(((starts - 160) / 40) ** 2))
    drive = signal[:, :, None] * early + np.roll(signal, -1, axis=1)[:, :, None] * late
    repetitions, variance = 6, 2.0
    noise = rng.standard_normal((len(table), repetitions, *drive.shape[1:])) * np.sqrt(
        variance
    )
    values = (drive[:, None] + noise).reshape(-1, *drive.shape[1:])
    neuroids = _neuroids({"IT": signal.shape[1]})
    presentations = _presentations(
        table, np.repeat(np.arange(len(table)), repetitions), repetitions
    )
    bins = {"time_bin_start": starts, "time_bin_end": starts + 20}
    assembly = _assembly(values, presentations, neuroids, bins)
    power = drive.var(axis=0)
    reliability = power / (power + variance / repetitions)
    facts = {
        f"{start}-{start + 20} ms": _reliabilities(
            neuroids["neuroid_id"], column, np.ones(len(column), bool)
        )
        for start, column in zip(starts.tolist(), reliability.T, strict=True)
    }
    formula = (
        "reliability(t) = var_signal(t) / (var_signal(t) + var_noise / repetitions)"
    )
    truth = _truth(table, formula, {}, repetitions=repetitions, noise="Gaussian") | {
        "time_bins": facts
    }
    return Recording(assembly, truth)


def subjects(signal: Floats, table: pd.DataFrame) -> Recording:
    """Responses of four subjects with 60 voxels each and the same geometry, with 4 repetitions and Gaussian noise.

    Voxels are the centred IT signal, rotated by an orthonormal matrix whose columns sum to zero, a different one
    for each subject: without noise, 1 − Pearson between voxel patterns equals 1 − Pearson between the IT
    neurons, in every subject. Therefore the neurons' RDM is the best possible model, and without noise its
    correlation would be 1.
    """
    rng = np.random.default_rng(SEED + 3)
    centred = signal - signal.mean(axis=1, keepdims=True)
    voxels, repetitions, people = 60, 4, 4
    patterns = [
        centred @ _rotation(rng, signal.shape[1], voxels) for _ in range(people)
    ]
    drive = np.concatenate(patterns, axis=1)
    variance = 1.5 * float(drive.var())
    noise = rng.standard_normal((len(table), repetitions, drive.shape[1])) * np.sqrt(
        variance
    )
    values = (drive[:, None] + noise).reshape(-1, drive.shape[1])
    names = [f"S{person + 1}" for person in range(people)]
    neuroids = {
        "neuroid_id": np.array(
            [f"{name}.voxel_{v:02d}" for name, v in product(names, range(voxels))]
        ),
        "region": np.full(people * voxels, "IT"),
        "subject": np.repeat(names, voxels),
    }
    presentations = _presentations(
        table, np.repeat(np.arange(len(table)), repetitions), repetitions
    )
    truth = _truth(
        table,
        "RDM of every subject without noise = RDM of the IT neurons",
        {},
        repetitions,
        "Gaussian",
    )
    truth |= {"noise_variance": round(variance, 8), "subjects": names}
    return Recording(_assembly(values, presentations, neuroids), truth)


def noise_free(signals: dict[str, Floats], table: pd.DataFrame) -> xr.DataArray:
    """The generator as a model: the noise-free response of every neuron, one row per stimulus."""
    neuroids = _neuroids(
        {region: signal.shape[1] for region, signal in signals.items()}
    )
    neuroids["layer"] = neuroids["region"]
    presentations = {"stimulus_id": table["stimulus_id"].to_numpy().astype(str)}
    return _assembly(
        np.concatenate(list(signals.values()), axis=1), presentations, neuroids
    )


def _rotation(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """Orthonormal rows (rows, columns), each summing to zero."""
    free = rng.standard_normal((columns, rows))
    basis, _ = np.linalg.qr(free - free.mean(axis=0))
    return np.asarray(basis.T)


def _mean_inverse(count: int, numbers: int) -> float:
    """E[1/k], where k of ``count`` repetitions are in a random half of ``numbers``."""
    half = numbers // 2
    ways = {
        k: comb(count, k) * comb(numbers - count, half - k)
        for k in range(1, min(count, half) + 1)
    }
    return sum(w / k for k, w in ways.items()) / sum(ways.values())


def _neuroids(counts: dict[str, int]) -> dict[str, NDArray[Any]]:
    pairs = [
        (region, number) for region, count in counts.items() for number in range(count)
    ]
    return {
        "neuroid_id": np.array([f"{region}_{number:02d}" for region, number in pairs]),
        "region": np.array([region for region, _ in pairs]),
        "subject": np.full(len(pairs), "simulated"),
    }


def _presentations(
    table: pd.DataFrame, rows: NDArray[np.intp], repetitions: int
) -> dict[str, NDArray[Any]]:
    chosen = table.iloc[rows]
    columns = {
        name: chosen[name].to_numpy().astype(str)
        for name in ("stimulus_id", "object_name", "split")
    }
    return columns | {
        "repetition": np.tile(np.arange(repetitions), len(rows) // repetitions)
    }


def _assembly(
    values: Floats,
    presentations: dict[str, NDArray[Any]],
    neuroids: dict[str, NDArray[Any]],
    bins: dict[str, NDArray[Any]] | None = None,
) -> xr.DataArray:
    dims = ("presentation", "neuroid", "time_bin")[: values.ndim]
    coords = {name: ("presentation", column) for name, column in presentations.items()}
    coords |= {name: ("neuroid", column) for name, column in neuroids.items()}
    coords |= {name: ("time_bin", column) for name, column in (bins or {}).items()}
    stored = np.round(values, 4).astype(np.float32)
    return xr.DataArray(
        stored, dims=dims, coords=coords, attrs={"about": ABOUT, "units": "arbitrary"}
    )


def _reliabilities(
    ids: NDArray[Any], reliability: Floats, chosen: NDArray[Any]
) -> dict[str, Any]:
    values = reliability[chosen]
    return {
        "median_reliability": round(float(np.median(values)), 8),
        "median_best_correlation": round(float(np.median(np.sqrt(values))), 8),
        "reliability": {
            str(id): round(float(v), 8)
            for id, v in zip(ids[chosen], values, strict=True)
        },
    }


def _truth(
    table: pd.DataFrame,
    formula: str,
    regions: dict[str, Any],
    repetitions: int | list[int],
    noise: str,
) -> dict[str, Any]:
    return {
        "about": ABOUT,
        "simulated": True,
        "stimuli": len(table),
        "repetitions": repetitions,
        "noise": noise,
        "formula": formula,
        "best_model": "generator",
        "regions": regions,
    }
