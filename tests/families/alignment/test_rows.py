"""Rows are paired one to one: repetitions on one side only, and several rows for one stimulus, are refused."""

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import MetricError
from tests.families.alignment.neural_cases import assembly, latent

X, Y = latent(20, 15, 6)


def repeated(values: np.ndarray, count: int) -> xr.DataArray:
    rows = np.tile(np.arange(len(values)), count)
    noisy = values[rows] + np.random.default_rng(0).standard_normal(
        (len(rows), values.shape[1])
    )
    own = assembly(noisy, repetition=np.repeat(np.arange(count), len(values)))
    return own.assign_coords(
        stimulus_id=("presentation", [f"s{row:04d}" for row in rows])
    )


@pytest.mark.parametrize("name", ["rdm", "cka", "cka_biased", "ridge", "pls"])
def test_repetitions_on_one_side_are_refused(name):
    with pytest.raises(
        MetricError,
        match=r"5 rows of stimulus 's0000' and the source has one row.*average",
    ):
        nl.metric(name)(assembly(X), repeated(Y, 5))
    splits = {} if name in ("rdm", "cka", "cka_biased") else {"splits": {"train": 0.7}}
    assert np.isfinite(
        nl.metric(name, **splits)(
            assembly(X), average_repetitions(repeated(Y, 5))
        ).value
    )


@pytest.mark.parametrize("name", ["rdm", "cka", "ridge", "pls"])
def test_several_rows_on_one_side_are_refused_whether_or_not_they_are_numbered(name):
    with pytest.raises(
        MetricError,
        match=r"the target has 5 rows of stimulus 's0000' and the source has one",
    ):
        nl.metric(name)(assembly(X), repeated(Y, 5).drop_vars("repetition"))
    once_more = xr.concat([assembly(Y), assembly(Y)[3:4]], "presentation")
    with pytest.raises(
        MetricError,
        match=r"the target has 2 rows of stimulus 's0003' and the source has one",
    ):
        nl.metric(name)(assembly(X), once_more)


@pytest.mark.parametrize("name", ["rdm", "cka", "cka_biased"])
def test_patterns_need_one_row_per_stimulus(name):
    both = repeated(X, 2), repeated(Y, 2)
    with pytest.raises(MetricError, match="stimulus 's0000' has 2 rows"):
        nl.metric(name)(*both)
    with pytest.raises(MetricError, match="stimulus 's0000' has 2 rows"):
        nl.metric(name)(*(side.drop_vars("repetition") for side in both))


@pytest.mark.parametrize(("name", "fewest"), [("rdm", 4), ("cka", 4)])
def test_too_few_stimuli_are_refused(name, fewest):
    with pytest.raises(MetricError, match="at least 4"):
        nl.metric(name)(assembly(X[: fewest - 1]), assembly(Y[: fewest - 1]))
    assert np.isfinite(
        nl.metric(name)(assembly(X[:fewest]), assembly(Y[:fewest])).value
    )


@pytest.mark.parametrize("name", ["rdm_cv", "cka_cv"])
def test_too_small_test_parts_are_refused(name):
    with pytest.raises(MetricError, match="at least 4"):
        nl.metric(name, splits={"test": 0.1})(assembly(X), assembly(Y))
