"""A model given by an RDM responds to its stimuli in any order, and refuses other stimuli by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from scipy.spatial.distance import squareform

from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError, RequestError
from neuroledger.families.alignment.models.precomputed_rdm import precomputed_rdm
from neuroledger.models.model import Model, Task, perform, record

RDM = squareform(np.random.default_rng(0).random(10))


def _file(folder, rdm=RDM):
    entries = np.empty((1, 2), dtype=[("RDM", "O"), ("name", "O")])
    entries[0, 0] = (rdm, "HMAX")
    entries[0, 1] = (np.zeros((5, 5)), "other")
    savemat(folder / "models.mat", {"Models": entries})
    return {"models.mat": folder / "models.mat"}


def _model(weights, rdm="HMAX", variable="Models"):
    return precomputed_rdm(
        id="m", variable=variable, rdm=rdm, stimuli="s{:02d}", weights=weights
    )


def _stimuli(*ids):
    return StimulusSet("set", pd.DataFrame({"stimulus_id": ids}))


def test_answers_in_the_order_of_the_stimuli(tmp_path):
    model = _model(_file(tmp_path))
    assert isinstance(model, Model)
    answer = record(model, _stimuli("s03", "s01", "s05"), "IT")
    np.testing.assert_allclose(answer.values, RDM[np.ix_([2, 0, 4], [2, 0, 4])])
    assert answer["stimulus_id_b"].values.tolist() == ["s03", "s01", "s05"]


def test_refuses_other_stimuli_time_and_tasks(tmp_path):
    model = _model(_file(tmp_path))
    with pytest.raises(RequestError, match="'s06'"):
        record(model, _stimuli("s01", "s06"), "IT")
    with pytest.raises(RequestError, match="has no responses over time"):
        record(model, _stimuli("s01"), "IT", [(0.0, 100.0)])
    with pytest.raises(
        ModelError, match="does not give decisions:label; it gives responses"
    ):
        perform(model, Task("label"), _stimuli("s01"))


def test_wrong_files_are_named(tmp_path):
    with pytest.raises(ModelError, match="must pin one file, not 0"):
        _model({})
    with pytest.raises(ModelError, match=r"RDM 'HMAXX' \(did you mean HMAX"):
        _model(_file(tmp_path), rdm="HMAXX")
    with pytest.raises(
        ModelError, match=r"models\.mat has no variable 'Nothing'; it has Models"
    ):
        _model(_file(tmp_path), variable="Nothing")
    with pytest.raises(ModelError, match="not a symmetric matrix"):
        _model(_file(tmp_path, np.arange(25.0).reshape(5, 5)))
    (tmp_path / "models.mat").write_bytes(b"cut")
    with pytest.raises(ModelError, match=r"models\.mat cannot be read"):
        _model({"models.mat": tmp_path / "models.mat"})
