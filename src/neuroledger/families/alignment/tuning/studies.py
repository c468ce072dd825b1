"""Tuning properties of neuroids, computed from responses to gratings and textures as in published studies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Indices
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import DataError
from neuroledger.families.alignment.tuning import curves as tuning

__all__ = ["STUDIES", "Grid", "grating_grid", "property_table", "texture_grid"]

RESPONSE_THRESHOLD = (
    5.0  # spikes/s above baseline that a neuroid must reach to be included
)
ORIENTATION_LIMIT = 157.5  # degrees; orientations from here on are reported minus 180


class Grid(NamedTuple):
    """Responses on a full grid of stimulus parameters, and the values along its axes.

    Gratings: ``(neuroid, size, frequency, orientation, phase)``; textures: ``(neuroid, type, family, sample)``.
    """

    responses: Floats
    axes: Mapping[str, Array]


def _coded(assembly: xr.DataArray, name: str) -> tuple[Indices, Array]:
    values = coordinate(assembly, name)
    if values is None:
        raise DataError(
            f"stimuli have no column {name!r}, which the tuning property varies"
        )
    return encode(values)


def _on_grid(
    assembly: xr.DataArray, names: tuple[str, ...], rest: str | None
) -> tuple[Floats, dict[str, Array]]:
    """Responses ``(neuroid, rest, *names)`` and the axes; rows within a cell are sorted by the coordinate ``rest``."""
    coded = {name: _coded(assembly, name) for name in names}
    remaining = (
        encode(coordinate(assembly, rest))
        if rest and coordinate(assembly, rest) is not None
        else None
    )
    keys = [coded[name][0] for name in reversed(names)]
    keys.append(
        remaining.codes
        if remaining is not None
        else np.zeros(assembly.sizes["presentation"], dtype=np.intp)
    )
    cell = np.ravel_multi_index(
        [coded[name][0] for name in names], [len(coded[name][1]) for name in names]
    )
    counts = np.bincount(
        cell, minlength=int(np.prod([len(coded[name][1]) for name in names]))
    )
    if counts.min() != counts.max():
        raise DataError(
            f"stimuli are not a full grid of {', '.join(names)}: cells have {counts.min()} to {counts.max()}"
        )
    # Rows within a cell are sorted, not matched, by `rest`, because sizes may increase with the period.
    order = np.lexsort((keys[-1], cell))
    values = assembly.transpose("presentation", "neuroid").values.astype(np.float64)
    shape = [len(coded[name][1]) for name in names]
    cells = values[order].reshape(*shape, int(counts[0]), -1)
    grid = np.moveaxis(cells, (-1, -2), (0, 1))
    axes = {name: coded[name][1] for name in names}
    if remaining is not None and rest is not None:
        axes[rest] = remaining.labels
    return np.ascontiguousarray(grid), axes


def grating_grid(assembly: xr.DataArray) -> Grid:
    """Responses to gratings, ``(presentation, neuroid)``, as ``(neuroid, size, frequency, orientation, phase)``.

    Raises
    ------
    DataError
        A parameter is missing, or the stimuli do not form a full grid.
    """
    return Grid(
        *_on_grid(assembly, ("spatial_frequency", "orientation", "phase"), "radius")
    )


def texture_grid(assembly: xr.DataArray) -> Grid:
    """Responses to noise and textures as ``(neuroid, type, family, sample)``; type 0 is noise.

    Raises
    ------
    DataError
        A parameter is missing, the stimuli do not form a full grid, or there are not exactly two types.
    """
    responses, axes = _on_grid(assembly, ("type", "family", "sample"), None)
    if len(axes["type"]) != 2:
        raise DataError(
            f"textures have {len(axes['type'])} types; two are needed, noise before texture"
        )
    return Grid(responses[:, 0], axes)


def _best(responses: Floats) -> tuple[Indices, ...]:
    """Indices of the largest response of each neuroid, one array per axis."""
    return np.unravel_index(
        responses.reshape(len(responses), -1).argmax(axis=1), responses.shape[1:]
    )


Columns = dict[str, Floats]


def _orientation(grid: Grid, baseline: Floats) -> tuple[Columns, Booleans]:
    """Orientation tuning after Ringach et al. (2002)."""
    mean, modulation = tuning.mean_and_modulation(grid.responses)
    rows, (size, frequency, orientation) = np.arange(len(mean)), _best(mean)
    curves = mean[rows, size, frequency]
    angles = grid.axes["orientation"].astype(np.float64)
    width = tuning.orientation_bandwidth(
        curves, angles, smoothing="hanning", threshold=0.707, half=True
    ).width
    variance = tuning.circular_variance(curves, angles)
    ratio = tuning.orthogonal_preferred_ratio(curves)
    max_dc = curves.max(axis=1)
    max_ac = modulation[rows, size, frequency, orientation]
    with np.errstate(invalid="ignore", divide="ignore"):
        columns = {
            "baseline": baseline,
            "max_dc": max_dc,
            "min_dc": curves.min(axis=1),
            "max_ac": max_ac,
            "modulation_ratio": max_ac / max_dc,
            "circular_variance": variance,
            "bandwidth": width,
            "orthogonal_preferred_ratio": ratio,
            "orientation_selective": (~np.isnan(width)).astype(np.float64),
            "circular_variance_bandwidth_ratio": variance / width,
            "orthogonal_preferred_ratio_circular_variance_difference": ratio - variance,
            "orthogonal_preferred_ratio_bandwidth_ratio": ratio / width,
        }
    return columns, max_dc > baseline + RESPONSE_THRESHOLD


def _preferred_orientation(grid: Grid, baseline: Floats) -> tuple[Columns, Booleans]:
    """Preferred orientation after De Valois, Yund and Hepler (1982)."""
    mean = grid.responses.mean(axis=-1)
    rows, (size, frequency, _) = np.arange(len(mean)), _best(mean)
    angles = grid.axes["orientation"].astype(np.float64)
    preferred = tuning.orientation_bandwidth(
        mean[rows, size, frequency], angles, smoothing="smooth"
    ).preferred
    preferred = np.where(preferred >= ORIENTATION_LIMIT, preferred - 180, preferred)
    strongest = mean.reshape(len(mean), -1).max(axis=1)
    return {
        "preferred_orientation": preferred
    }, strongest > baseline + RESPONSE_THRESHOLD


def _components(grid: Grid, baseline: Floats) -> Floats:
    """Mean minus baseline, and modulation: ``(neuroid, size, frequency, orientation, 2)``."""
    mean, modulation = tuning.mean_and_modulation(grid.responses)
    return np.stack([mean - baseline[:, None, None, None], modulation], axis=-1)


def _peak_frequency(grid: Grid, baseline: Floats) -> tuple[Columns, Booleans]:
    """Peak spatial frequency after De Valois, Albrecht and Thorell (1982)."""
    components = _components(grid, baseline)
    rows, (size, _, orientation, component) = (
        np.arange(len(components)),
        _best(components),
    )
    curves = components[rows, size, :, orientation, component]
    frequencies = grid.axes["spatial_frequency"].astype(np.float64)
    peaks = tuning.spatial_frequency_tuning(
        curves, frequencies, smoothing="smooth"
    ).preferred
    return {"peak_spatial_frequency": peaks}, components.reshape(
        len(components), -1
    ).max(axis=1) > RESPONSE_THRESHOLD


def _frequency_selectivity(grid: Grid, baseline: Floats) -> tuple[Columns, Booleans]:
    """Selectivity for spatial frequency after Schiller, Finlay and Volman (1976)."""
    mean = grid.responses.mean(axis=-1)
    rows, (size, _, orientation) = np.arange(len(mean)), _best(mean)
    frequencies = grid.axes["spatial_frequency"].astype(np.float64)
    width = tuning.spatial_frequency_tuning(
        mean[rows, size, :, orientation], frequencies, smoothing="smooth"
    ).width
    columns = {
        "spatial_frequency_selective": (~np.isnan(width)).astype(np.float64),
        "spatial_frequency_bandwidth": width,
    }
    return columns, mean.reshape(len(mean), -1).max(
        axis=1
    ) > baseline + RESPONSE_THRESHOLD


def _size(grid: Grid, baseline: Floats) -> tuple[Columns, Booleans]:
    """Size tuning after Cavanaugh, Bair and Movshon (2002)."""
    if "radius" not in grid.axes or len(grid.axes["radius"]) != grid.responses.shape[1]:
        raise DataError(
            "size tuning needs gratings of the same radii at every frequency, orientation and phase"
        )
    components = _components(grid, baseline)
    rows, (_, frequency, orientation, component) = (
        np.arange(len(components)),
        _best(components),
    )
    curves = components[rows, :, frequency, orientation, component]
    sizes = tuning.size_tuning(curves, grid.axes["radius"].astype(np.float64))
    columns = {
        "surround_suppression_index": sizes.suppression,
        "strongly_suppressed": (sizes.suppression >= 0.1).astype(np.float64),
        "grating_summation_field": sizes.summation_field,
        "surround_diameter": sizes.surround_diameter,
        "surround_grating_summation_field_ratio": sizes.ratio,
    }
    return columns, components.reshape(len(components), -1).max(
        axis=1
    ) > RESPONSE_THRESHOLD


def _texture(grid: Grid, baseline: Floats) -> tuple[Columns, Booleans]:
    """Texture tuning after Freeman et al. (2013)."""
    above = grid.responses - baseline[:, None, None, None]
    families = above.mean(axis=3)
    scaled = grid.responses / 10
    variances = tuning.variance_components(
        (np.sqrt(scaled) + np.sqrt(scaled + 1))[:, 1]
    )
    modulation = tuning.texture_modulation(families[:, 0], families[:, 1])
    columns = {
        "texture_modulation_index": modulation,
        "absolute_texture_modulation_index": np.abs(modulation),
        "texture_selectivity": tuning.sparseness(families[:, 1]),
        "noise_selectivity": tuning.sparseness(families[:, 0]),
        "texture_sparseness": tuning.sparseness(above[:, 1]),
        "noise_sparseness": tuning.sparseness(above[:, 0]),
        "variance_ratio": variances.ratio,
        "sample_variance": variances.sample,
        "family_variance": variances.family,
        "max_texture": above[:, 1].max(axis=(1, 2)),
        "max_noise": above[:, 0].max(axis=(1, 2)),
    }
    return columns, above.max(axis=(1, 2, 3)) > RESPONSE_THRESHOLD


Study = Callable[[Grid, Floats], tuple[Columns, Booleans]]
STUDIES: Mapping[str, tuple[Callable[[xr.DataArray], Grid], Study]] = {
    "orientation": (grating_grid, _orientation),
    "preferred_orientation": (grating_grid, _preferred_orientation),
    "peak_frequency": (grating_grid, _peak_frequency),
    "frequency_selectivity": (grating_grid, _frequency_selectivity),
    "size": (grating_grid, _size),
    "texture": (texture_grid, _texture),
}


def property_table(
    study: str, responses: xr.DataArray, baseline: Floats
) -> xr.DataArray:
    """Properties ``(neuroid, property)`` of the neuroids whose responses exceed the threshold.

    Parameters
    ----------
    study
        One of :data:`STUDIES`, which determines the properties.
    responses
        Spikes/s ``(presentation, neuroid)`` with the stimulus parameters as coordinates.
    baseline
        Spikes/s of each neuroid to a blank screen.

    Raises
    ------
    DataError
        The stimuli do not form the grid that the study needs, or no neuroid responds.
    """
    arrange, compute = STUDIES[study]
    columns, usable = compute(arrange(responses), baseline)
    if not usable.any():
        raise DataError(
            f"no neuroid responds by more than {RESPONSE_THRESHOLD:g} spikes/s; there is no tuning to measure"
        )
    ids = np.asarray(responses["neuroid_id"].values)[usable]
    return xr.DataArray(
        np.stack(list(columns.values()), axis=1)[usable],
        dims=("neuroid", "property"),
        coords={"neuroid_id": ("neuroid", ids), "property": list(columns)},
    )
