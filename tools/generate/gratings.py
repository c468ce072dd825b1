"""Simulated V1 neurons with known orientation tuning, and their gratings."""

from __future__ import annotations

import io
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from neuroledger.families.alignment.tuning.studies import property_table

Floats = NDArray[np.float64]

SEED: Final = 20_260_111
PIXELS: Final = 64
DEGREES: Final = 4.0
ORIENTATIONS: Final = tuple(np.arange(0, 180, 22.5).tolist())
FREQUENCIES: Final = (0.5, 1.0, 2.0, 4.0)
PHASES: Final = (0.0, 90.0, 180.0, 270.0)
NEURONS: Final = 150
MODEL_NEURONS: Final = 300
BINS: Final = {
    "circular_variance": np.linspace(0, 1, 11),
    "bandwidth": np.linspace(0, 90, 10),
    "orthogonal_preferred_ratio": np.linspace(0, 1, 11),
    "modulation_ratio": np.linspace(0, 2, 11),
}


class Gratings(NamedTuple):
    """Tables of the gratings and of the blank screen, and all files by name."""

    table: pd.DataFrame
    blank: pd.DataFrame
    files: dict[str, bytes]


def _png(luminance: Floats) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.rint(luminance * 255).astype(np.uint8), mode="L").save(
        buffer, format="PNG", compress_level=9
    )
    return buffer.getvalue()


def gratings() -> Gratings:
    """Full-contrast sinusoidal gratings in a circular window, all orientations × frequencies × phases, and a grey screen."""
    axis = (np.arange(PIXELS) + 0.5) / PIXELS * DEGREES - DEGREES / 2
    x, y = np.meshgrid(axis, axis)
    window = np.hypot(x, y) <= DEGREES / 2
    rows, files = [], {}
    for number, (angle, frequency, phase) in enumerate(
        product(ORIENTATIONS, FREQUENCIES, PHASES)
    ):
        along = x * np.cos(np.deg2rad(angle)) + y * np.sin(np.deg2rad(angle))
        wave = np.sin(2 * np.pi * frequency * along + np.deg2rad(phase))
        name = f"grating_{number:03d}"
        files[f"{name}.png"] = _png(0.5 + 0.5 * wave * window)
        rows.append(
            (name, f"{name}.png", angle, frequency, phase, DEGREES / 2, 1.0, 0.0, 0.0)
        )
    columns = [
        "stimulus_id",
        "filename",
        "orientation",
        "spatial_frequency",
        "phase",
        "radius",
        "contrast",
    ]
    table = pd.DataFrame(rows, columns=[*columns, "position_y", "position_x"])
    files["blank.png"] = _png(np.full((PIXELS, PIXELS), 0.5))
    blank = pd.DataFrame({"stimulus_id": ["blank"], "filename": ["blank.png"]})
    return Gratings(table, blank, files)


def population(
    table: pd.DataFrame, count: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Rates in spikes/s for the gratings ``(stimulus, neuron)`` and for the blank screen ``(neuron,)``.

    A neuron's rate is ``base + gain · exp(κ (cos 2(θ − θ₀) − 1)) · exp(−log₂²(f / f₀) / 2) · (1 + m cos(φ − φ₀))``, with
    uniform preferred orientation, log frequency and phase, log κ normal around 0.5, and modulation m uniform in 0 … 1.
    """
    theta, frequency, phase = (
        table[name].to_numpy(dtype=float)[:, None]
        for name in ("orientation", "spatial_frequency", "phase")
    )
    preferred = rng.uniform(0, 180, count)
    best = 2 ** rng.uniform(-1, 2, count)
    start, depth = rng.uniform(0, 360, count), rng.uniform(0, 1, count)
    kappa = np.exp(rng.normal(0.5, 0.8, count))
    gain, base = np.exp(rng.normal(np.log(36), 0.3, count)), rng.gamma(2.0, 0.41, count)
    tuned = np.exp(kappa * (np.cos(2 * np.deg2rad(theta - preferred)) - 1))
    passed = np.exp(-0.5 * np.log2(frequency / best) ** 2)
    modulated = 1 + depth * np.cos(np.deg2rad(phase - start))
    return base + gain * tuned * passed * modulated, base


def neurons(table: pd.DataFrame) -> xr.DataArray:
    """Orientation properties of 150 simulated neurons, ``(neuroid, property)``, with the bins of each as attributes."""
    rates, base = population(table, NEURONS, np.random.default_rng(SEED))
    properties = property_table("orientation", _responses(table, rates, "neuron"), base)
    table_of_properties = properties.assign_coords(
        region=("neuroid", np.full(properties.sizes["neuroid"], "V1"))
    )
    table_of_properties.attrs = {f"{name}_bins": edges for name, edges in BINS.items()}
    return table_of_properties


def model(table: pd.DataFrame) -> xr.DataArray:
    """Responses of 300 other neurons of the same distribution to all gratings and the blank screen."""
    rates, base = population(table, MODEL_NEURONS, np.random.default_rng(SEED + 1))
    responses = _responses(
        table, np.concatenate([rates, base[None]]), "model", extra=["blank"]
    )
    return responses.drop_vars(
        [
            name
            for name in ("orientation", "spatial_frequency", "phase")
            if name in responses.coords
        ]
    )


def _responses(
    table: pd.DataFrame, rates: Floats, name: str, extra: list[str] | None = None
) -> xr.DataArray:
    ids = [*table["stimulus_id"], *(extra or [])]
    coords: dict[str, Any] = {
        "stimulus_id": ("presentation", np.asarray(ids)),
        "neuroid_id": ("neuroid", [f"{name}_{i:03d}" for i in range(rates.shape[1])]),
    }
    if not extra:
        coords |= {
            c: ("presentation", table[c].to_numpy())
            for c in ("orientation", "spatial_frequency", "phase", "radius")
        }
    return xr.DataArray(rates, dims=("presentation", "neuroid"), coords=coords)


def truth() -> dict[str, Any]:
    """The facts of the simulation."""
    return {
        "about": "Simulated neurons of known tuning. No animal was recorded.",
        "best_model": "tuned_population: other neurons of the same distribution",
        "formula": "base + gain exp(k (cos 2(t - t0) - 1)) exp(-log2(f / f0)^2 / 2) (1 + m cos(p - p0))",
    }
