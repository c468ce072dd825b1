"""Examples in MATLAB files: simulated ones, and real motor cortex if the mirror is available."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.io import savemat

from neuroledger.errors import DataError
from neuroledger.families.efficiency.metrics.prediction_error import prediction_error
from neuroledger.families.efficiency.models.linear_readout import linear_readout
from neuroledger.families.efficiency.paradigms.inference import inference
from neuroledger.families.efficiency.readers.matlab_examples import matlab_examples

PARTS = {
    "inputs": {"train": "Ytr", "test": "Yte"},
    "outputs": {"train": "Xtr", "test": "Xte"},
}


def test_parts_outputs_and_conditions(tmp_path):
    path = tmp_path / "a.mat"
    savemat(
        path,
        {
            "Ytr": np.ones((3, 4)),
            "Yte": np.zeros((2, 4)),
            "Xtr": np.eye(3)[:, :2],
            "Xte": np.ones((2, 2)),
            "Ttr": [[1], [2], [3]],
            "Tte": [[1], [2]],
        },
    )
    assembly = matlab_examples(
        {"a.mat": path}, **PARTS, condition={"train": "Ttr", "test": "Tte"}
    ).assembly
    assert (
        assembly.shape == (5, 4, 1)
        and assembly["split"].values.tolist() == ["train"] * 3 + ["test"] * 2
    )
    assert assembly["output_1"].values.tolist() == [0, 1, 0, 1, 1] and assembly[
        "condition"
    ].values.tolist() == [
        1,
        2,
        3,
        1,
        2,
    ]


def test_mismatched_variables_are_refused(tmp_path):
    path = tmp_path / "a.mat"
    savemat(
        path,
        {
            "Ytr": np.ones((3, 4)),
            "Yte": np.zeros((2, 5)),
            "Xtr": np.eye(3)[:, :2],
            "Xte": np.ones((2, 2)),
        },
    )
    with pytest.raises(DataError, match="different numbers of neurons"):
        matlab_examples({"a.mat": path}, **PARTS)
    with pytest.raises(DataError, match="'Z'; it has Xte, Xtr, Yte, Ytr"):
        matlab_examples(
            {"a.mat": path}, inputs={"train": "Z"}, outputs={"train": "Xtr"}
        )
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read"):
        matlab_examples({"a.mat": path}, **PARTS)


def test_real_reaches_are_decoded_from_motor_cortex(mirror):
    folder = mirror / "dyer2017_m1_reach"
    data = matlab_examples({"chewie_demo.mat": folder / "chewie_demo.mat"}, **PARTS)
    assert data.assembly.shape == (3018, 71, 1)
    measurement = inference(
        linear_readout(id="r"), data, task="regression", target=("output_0", "output_1")
    )
    assert (
        float(
            prediction_error(
                measurement.source, measurement.target, measure="r2"
            ).values[0]
        )
        > 0.4
    )
    with pytest.raises(DataError, match=r"174.*187"):
        matlab_examples({"mihi_demo.mat": folder / "mihi_demo.mat"}, **PARTS)
