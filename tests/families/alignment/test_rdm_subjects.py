"""One RDM per subject equals the comparison with each subject's neuroids separately."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.spatial.distance import pdist
from scipy.stats import spearmanr

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.families.alignment.metrics.rdm_subjects import rdm_subjects
from neuroledger.stats.workspace import Workspace


def _assembly(values, subjects=None):
    coords = {
        "stimulus_id": ("presentation", [f"s{row}" for row in range(len(values))]),
        "neuroid_id": ("neuroid", [f"n{column}" for column in range(values.shape[1])]),
    }
    if subjects is not None:
        coords["subject"] = ("neuroid", subjects)
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def _compare(source, target):
    return rdm_subjects(source, target, workspace=Workspace()).values


def test_each_subject_against_scipy():
    rng = np.random.default_rng(1)
    source, target = rng.standard_normal((12, 7)), rng.standard_normal((12, 9))
    subjects = np.array(["B", "A", "B", "A", "B", "A", "B", "A", "B"])
    found = _compare(_assembly(source), _assembly(target, subjects))
    assert found["subject"].values.tolist() == ["B", "A"]
    for name in ("A", "B"):
        other = pdist(target[:, subjects == name], "correlation")
        expected = spearmanr(pdist(source, "correlation"), other).statistic
        assert float(found.sel(subject=name)) == pytest.approx(expected, abs=1e-12)


def test_the_interval_covers_stimuli_and_subjects_and_contains_the_value():
    rng = np.random.default_rng(2)
    source = rng.standard_normal((30, 6))
    target = np.hstack(
        [source + rng.standard_normal((30, 6)), source + rng.standard_normal((30, 6))]
    )
    score = nl.metric("rdm_subjects")(
        _assembly(source), _assembly(target, ["A"] * 6 + ["B"] * 6)
    )
    assert score.uncertainty.factors == ("stimulus", "subject")
    assert (
        score.interval_covers == "the 95 % interval covers new stimuli and new subjects"
    )
    assert score.low < score.value < score.high
    # Two subjects leave one degree of freedom for the variance between them.
    assert score.uncertainty.freedom < 20


def test_subjects_are_needed():
    values = np.random.default_rng(3).standard_normal((5, 4))
    with pytest.raises(MetricError, match="have no coordinate 'subject'"):
        _compare(_assembly(values), _assembly(values))


def test_subjects_may_be_given_as_rdms():
    rng = np.random.default_rng(4)
    source, target = rng.standard_normal((12, 7)), rng.standard_normal((12, 8))
    subjects = np.array(["A", "B"] * 4)
    rdms = np.stack(
        [1 - np.corrcoef(target[:, subjects == name]) for name in ("A", "B")], axis=-1
    )
    coords = {
        "stimulus_id": ("stimulus", [f"s{row}" for row in range(12)]),
        "subject": ["A", "B"],
    }
    given = xr.DataArray(
        rdms, dims=("stimulus", "stimulus_b", "subject"), coords=coords
    )
    rows = _assembly(source).rename(presentation="stimulus")
    own = xr.DataArray(
        1 - np.corrcoef(source),
        dims=("stimulus", "stimulus_b"),
        coords=rows["stimulus_id"].coords,
    )
    found, expected = (
        _compare(own, given),
        _compare(_assembly(source), _assembly(target, subjects)),
    )
    np.testing.assert_allclose(found.values, expected.values, atol=1e-12)
    assert found["subject"].values.tolist() == ["A", "B"]
