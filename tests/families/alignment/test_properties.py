"""The properties paradigm: a model with known tuning, receptive fields, spikes per second, refusals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError
from neuroledger.families.alignment.paradigms.properties import properties

ANGLES = np.arange(0, 180, 22.5)


@dataclass
class Tuned:
    """Neuroids with von Mises tuning of growing sharpness, in units of its own."""

    gain: float = 40.0
    id: str = "tuned"

    takes = frozenset({"images"})
    gives = frozenset({"responses"})

    def answer(self, question):
        stimuli = question.stimuli
        table = stimuli.table
        kappa = np.linspace(0.2, 4, 20)
        if "position_x" in table and table["position_x"].nunique() > 1:
            places = np.linspace(-0.5, 0.5, 20)
            distance = (table["position_x"].to_numpy()[:, None] - places) ** 2 + table[
                "position_y"
            ].to_numpy()[:, None] ** 2
            values = self.gain * np.exp(-distance / 0.02)
        elif "orientation" in table:
            angle, phase = (
                table[name].to_numpy()[:, None] for name in ("orientation", "phase")
            )
            values = (
                self.gain
                * np.exp(kappa * (np.cos(2 * np.deg2rad(angle)) - 1))
                * (1 + 0.3 * np.cos(np.deg2rad(phase)))
            )
        else:
            values = np.full((len(table), 20), self.gain / 400)
        return xr.DataArray(
            values,
            dims=("presentation", "neuroid"),
            coords={
                "stimulus_id": ("presentation", stimuli.ids),
                "neuroid_id": ("neuroid", [f"n{i:02d}" for i in range(20)]),
            },
        )


def laboratory():
    rows = list(product(ANGLES, (1.0, 2.0, 4.0, 8.0), (0.0, 90.0, 180.0, 270.0)))
    table = pd.DataFrame(rows, columns=["orientation", "spatial_frequency", "phase"])
    table["stimulus_id"] = [f"g{i}" for i in range(len(rows))]
    grid = pd.DataFrame(
        list(product(np.linspace(-0.5, 0.5, 11), repeat=2)),
        columns=["position_y", "position_x"],
    )
    grid["stimulus_id"] = [f"p{i}" for i in range(len(grid))]
    neurons = xr.DataArray(
        np.random.default_rng(0).random((30, 1)),
        dims=("neuroid", "property"),
        coords={
            "neuroid_id": ("neuroid", [f"v{i}" for i in range(30)]),
            "property": ["circular_variance"],
        },
    )
    return Dataset(
        StimulusSet("gratings", table),
        neurons,
        id="lab",
        extra_stimuli={
            "blank": StimulusSet("blank", pd.DataFrame({"stimulus_id": ["blank"]})),
            "places": StimulusSet("places", grid),
        },
    )


def measured(model=None, **settings):
    return properties(model or Tuned(), laboratory(), study="orientation", **settings)


def variance(result):
    return result.source.sel(property="circular_variance").values


def test_sharper_tuning_has_less_circular_variance():
    result = measured()
    assert (np.diff(variance(result)) < 0).all()
    assert result.target is result.repeated


def test_scaling_to_spikes_makes_units_of_the_model_irrelevant():
    np.testing.assert_allclose(
        variance(measured(Tuned(gain=40.0), rates="study")),
        variance(measured(Tuned(gain=0.4), rates="study")),
        atol=1e-12,
    )
    with pytest.raises(DataError, match="no neuroid responds"):
        measured(Tuned(gain=0.4))  # its responses are far below five spikes per second


def test_medians_are_those_of_v1():
    table = measured(rates="study").source
    assert np.median(table.sel(property="max_dc")) == pytest.approx(33.8, rel=1e-6)
    assert np.median(table.sel(property="baseline")) == pytest.approx(0.82, rel=1e-6)


def test_neuroids_with_distant_receptive_fields_are_left_out():
    result = measured(receptive_fields="places", within=0.15)
    expected = [
        f"n{i:02d}"
        for i, at in enumerate(np.linspace(-0.5, 0.5, 20))
        if abs(at) <= 0.15
    ]
    assert set(result.source["neuroid_id"].values) == set(expected)
    assert "of 20 neuroids" in result.notes[0]
    with pytest.raises(DataError, match="is centred within"):
        measured(receptive_fields="places", within=0.001)


def test_missing_sets_are_named():
    with pytest.raises(DataError, match="no stimulus set 'grey'; known: blank, places"):
        measured(blank="grey")
    with pytest.raises(DataError, match="lacks the neurons' properties"):
        properties(Tuned(), replace(laboratory(), assembly=None), study="orientation")


def test_a_study_has_one_position():
    data = laboratory()
    spread = data.stimuli.table.assign(
        position_y=0.0, position_x=np.arange(len(data.stimuli))
    )
    moved = replace(data, stimuli=StimulusSet("gratings", spread))
    with pytest.raises(DataError, match="one position"):
        properties(Tuned(), moved, study="orientation", receptive_fields="places")
