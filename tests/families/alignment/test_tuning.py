"""Tuning curves: reference values, curves whose tuning is known, grids that are not full."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
import xarray as xr
from scipy.special import iv

from neuroledger.errors import DataError
from neuroledger.families.alignment.tuning import curves as tuning
from neuroledger.families.alignment.tuning.receptive_fields import centres
from neuroledger.families.alignment.tuning.studies import (
    STUDIES,
    grating_grid,
    property_table,
)


@pytest.fixture(scope="module")
def cases(reference):
    return json.loads((reference / "brainscore_oracle" / "properties.json").read_text())


def test_reference_orientation(cases):
    angles, curve = (
        np.array(cases["orientation"]),
        np.array([cases["orientation_curve"]]),
    )
    assert tuning.circular_variance(curve, angles)[0] == pytest.approx(
        cases["circular_variance"], abs=1e-12
    )
    assert tuning.orthogonal_preferred_ratio(curve)[0] == pytest.approx(
        cases["orth_pref_ratio"], abs=1e-12
    )
    for key, smoothing, threshold, half in (
        ("bandwidth filt=hanning thr=0.707 mode=half", "hanning", 0.707, True),
        ("bandwidth filt=hanning thr=0.5 mode=full", "hanning", 0.5, False),
        ("bandwidth filt=smooth thr=0.5 mode=full", "smooth", 0.5, False),
        ("bandwidth filt=None thr=0.5 mode=full", None, 0.5, False),
    ):
        got = tuning.orientation_bandwidth(
            curve, angles, smoothing=smoothing, threshold=threshold, half=half
        )
        assert [got.width[0], got.preferred[0]] == cases[key]


@pytest.mark.parametrize("smoothing", ["triangle", "smooth", None])
@pytest.mark.parametrize("mode", ["ratio", "octaves"])
def test_reference_spatial_frequency(cases, smoothing, mode):
    expected = cases[
        f"sf_tuning filt={smoothing} mode={'oct' if mode == 'octaves' else mode}"
    ]
    got = tuning.spatial_frequency_tuning(
        np.array([cases["sf_curve"]]),
        np.array(cases["sf"]),
        smoothing=smoothing,
        mode=mode,
    )
    for ours, theirs in zip(got, ("bandwidth", "peak", "r2"), strict=True):
        assert ours[0] == pytest.approx(expected[theirs], abs=1e-9)


def test_reference_size_texture_and_phase(cases):
    got = tuning.size_tuning(np.array([cases["size_curve"]]), np.array(cases["radius"]))
    for ours, theirs in zip(
        got, ("gsf", "surround_diameter", "ratio", "ssi"), strict=True
    ):
        assert ours[0] == pytest.approx(cases["size_tuning"][theirs], abs=1e-12)
    noise, texture = np.array(cases["texture_resp (row0 noise,row1 texture)"])
    assert tuning.texture_modulation(noise[None], texture[None])[0] == pytest.approx(
        cases["texture_modulation"]
    )
    assert tuning.sparseness(texture[None])[0] == pytest.approx(
        cases["sparseness(texture_resp[1])"], abs=1e-12
    )
    flat, nested = (
        np.array(cases[k])
        for k in (
            "variance_input(family x sample)",
            "variance_input3(family,sample,rep)",
        )
    )
    np.testing.assert_allclose(
        np.ravel(tuning.variance_components(flat[None])),
        cases["variance_ratio 2d"],
        atol=1e-12,
    )
    np.testing.assert_allclose(
        np.ravel(tuning.variance_components(nested[None])),
        cases["variance_ratio 3d"],
        atol=1e-12,
    )
    mean, modulation = tuning.mean_and_modulation(np.array([cases["phase_response"]]))
    assert mean[0] == pytest.approx(cases["F0"], abs=1e-12)
    assert modulation[0] == pytest.approx(cases["F1 (2*|fft[1]|/n)"], abs=1e-12)


def test_von_mises_tuning_has_a_known_circular_variance():
    angles = np.arange(0, 180, 5.0)
    for kappa in (0.5, 2.0, 5.0):
        curve = np.exp(kappa * np.cos(2 * np.deg2rad(angles - 40)))
        expected = 1 - iv(1, kappa) / iv(0, kappa)
        assert tuning.circular_variance(curve[None], angles)[0] == pytest.approx(
            expected, abs=1e-6
        )


def test_flat_curves_have_no_bandwidth():
    got = tuning.orientation_bandwidth(
        np.ones((1, 8)), np.arange(0, 180, 22.5), smoothing=None
    )
    assert np.isnan(got.width[0])
    assert np.isnan(
        tuning.spatial_frequency_tuning(
            np.ones((1, 6)), 2.0 ** np.arange(6), smoothing=None
        ).width[0]
    )
    assert np.isnan(
        tuning.size_tuning(np.ones((1, 5)), np.arange(1.0, 6)).summation_field[0]
    )


def gratings(neurons=4, radii=(1.0,)):
    rows = list(
        product(
            radii,
            (0.5, 1.0, 2.0, 4.0),
            np.arange(0, 180, 22.5),
            (0.0, 90.0, 180.0, 270.0),
        )
    )
    radius, frequency, angle, phase = np.array(rows).T
    best = np.arange(neurons) * 45.0
    tuned = np.exp(2 * (np.cos(2 * np.deg2rad(angle[:, None] - best)) - 1)) * np.exp(
        -(np.log2(frequency[:, None]) ** 2)
    )
    values = 40 * tuned * (1 + 0.5 * np.cos(np.deg2rad(phase[:, None])))
    coords = {
        "radius": radius,
        "spatial_frequency": frequency,
        "orientation": angle,
        "phase": phase,
    }
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={
            **{name: ("presentation", column) for name, column in coords.items()},
            "stimulus_id": ("presentation", [f"g{i}" for i in range(len(rows))]),
            "neuroid_id": ("neuroid", [f"n{i}" for i in range(neurons)]),
        },
    )


def test_grid_is_found_in_any_order_of_rows():
    responses = gratings()
    moved = responses.isel(
        presentation=np.random.default_rng(0).permutation(
            responses.sizes["presentation"]
        )
    )
    np.testing.assert_array_equal(
        grating_grid(responses).responses, grating_grid(moved).responses
    )
    assert grating_grid(responses).responses.shape == (4, 1, 4, 8, 4)


def test_incomplete_grids_are_refused():
    with pytest.raises(DataError, match="not a full grid"):
        grating_grid(gratings().isel(presentation=slice(1, None)))
    with pytest.raises(DataError, match="no column 'phase'"):
        grating_grid(gratings().drop_vars("phase"))


def test_planted_preferences_are_measured():
    responses, baseline = gratings(), np.full(4, 0.5)
    preferred = property_table("preferred_orientation", responses, baseline)
    np.testing.assert_allclose(
        preferred.sel(property="preferred_orientation"), [0, 45, 90, 135], atol=1
    )
    peak = property_table("peak_frequency", responses, baseline)
    np.testing.assert_allclose(
        peak.sel(property="peak_spatial_frequency"), 1.0, rtol=0.15
    )
    table = property_table("orientation", responses, baseline)
    np.testing.assert_allclose(table.sel(property="modulation_ratio"), 0.5, atol=1e-12)
    assert set(STUDIES) >= {"orientation", "size", "texture", "frequency_selectivity"}


def test_size_study_finds_the_surround():
    radii = np.array([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0])
    responses = gratings(neurons=1, radii=tuple(radii))
    gain = np.array([5.0, 18, 30, 29, 22, 20.5, 20]) / 30
    scaled = (
        responses * gain[np.searchsorted(radii, responses["radius"].values)][:, None]
    )
    table = property_table("size", scaled, np.zeros(1)).isel(neuroid=0)
    assert table.sel(property="surround_suppression_index").item() == pytest.approx(
        1 / 3, abs=1e-9
    )
    assert table.sel(property="grating_summation_field").item() == pytest.approx(1.5)
    assert table.sel(property="surround_diameter").item() == pytest.approx(4.0)


def test_silent_neuroids_are_left_out():
    responses = gratings()
    responses.values[:, 0] = 0
    assert property_table("orientation", responses, np.zeros(4)).sizes["neuroid"] == 3
    with pytest.raises(DataError, match="no neuroid responds"):
        property_table("orientation", responses * 0, np.zeros(4))


def test_receptive_field_centres():
    places = np.linspace(-1, 1, 9)
    y, x = (a.ravel() for a in np.meshgrid(places, places, indexing="ij"))
    planted = np.array([[0.25, -0.5], [0.0, 0.0]])
    fields = np.exp(
        -((y[:, None] - planted[:, 0]) ** 2 + (x[:, None] - planted[:, 1]) ** 2)
        / (2 * 0.2**2)
    )
    responses = xr.DataArray(
        np.concatenate([fields, np.zeros((len(y), 1))], axis=1) + 1.0,
        dims=("presentation", "neuroid"),
        coords={"position_y": ("presentation", y), "position_x": ("presentation", x)},
    )
    got = centres(responses, np.ones(3))
    np.testing.assert_allclose(got[:2], planted, atol=0.02)
    assert np.isnan(got[2]).all()
    with pytest.raises(DataError, match="not a full grid"):
        centres(responses.isel(presentation=slice(1, None)), np.ones(3))
