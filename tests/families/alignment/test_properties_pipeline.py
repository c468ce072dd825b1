"""All six studies, from activations to properties, equal the peer's pipeline on the same population."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.families.alignment.paradigms.properties import properties
from tests.golden.tuned_population import NEUROIDS, responses, stimulus_tables

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "properties_pipeline.json").read_text()
)["studies"]


@dataclass
class Population:
    """The model: it answers every stimulus by the formula."""

    id: str = "population"

    takes = frozenset({"images"})
    gives = frozenset({"responses"})

    def answer(self, question):
        stimuli = question.stimuli
        return xr.DataArray(
            responses(stimuli.table),
            dims=("presentation", "neuroid"),
            coords={
                "stimulus_id": ("presentation", stimuli.ids),
                "neuroid_id": ("neuroid", [f"n{i}" for i in range(NEUROIDS)]),
            },
        )


@pytest.mark.parametrize("study", sorted(GOLDEN))
def test_the_whole_pipeline_is_the_peers(study):
    sets = {
        # the peer needs its own row order
        name: StimulusSet(
            name, table.sample(frac=1, random_state=1).reset_index(drop=True)
        )
        for name, table in stimulus_tables().items()
    }
    data = Dataset(
        sets[GOLDEN[study]["stimuli"]],
        xr.DataArray([0.0]),
        extra_stimuli=sets,
        id="lab",
    )
    table = properties(
        Population(),
        data,
        study=study,
        receptive_fields="receptive_field",
        rates="orientation",
    ).source
    for name, expected in GOLDEN[study]["properties"].items():
        wanted = np.array([np.nan if value is None else value for value in expected])
        np.testing.assert_allclose(
            table.sel(property=name).values, wanted, rtol=1e-9, atol=1e-9, err_msg=name
        )
