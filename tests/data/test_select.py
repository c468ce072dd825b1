"""Selecting rows and neuroids: what is named must be there."""

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.assembly import select
from neuroledger.errors import AssemblyError


def trials(contrast) -> xr.DataArray:
    coords = {
        "contrast": ("presentation", np.asarray(contrast)),
        "region": ("presentation", ["IT", "V4", "IT", "V1"]),
    }
    return xr.DataArray(np.arange(4.0), dims="presentation", coords=coords)


def test_an_absent_value_is_an_error_with_near_misses():
    with pytest.raises(
        AssemblyError,
        match=r"select region: no row has 'It' \(did you mean 'IT'\?\); the values are IT, V1, V4",
    ):
        select(trials([3, 1, 3, 1]), {"region": ["V4", "It"]})
    with pytest.raises(
        AssemblyError, match=r"no row has '1.5', '9'; the values are 1, 3"
    ):
        select(trials([3, 1, 3, 1]), {"contrast": ["3.0", "1.5", 9]})


@pytest.mark.parametrize(
    "contrast", [[3, 1, 2, 1], [3.0, 1.0, 2.0, 1.5], ["3.0", "1.0", "2", "1.5"]]
)
@pytest.mark.parametrize("wanted", [3, 3.0, [3, 2]])
def test_numbers_are_compared_as_numbers(contrast, wanted):
    found = select(trials(contrast), {"contrast": wanted})
    assert found.values.tolist() == ([0.0, 2.0] if isinstance(wanted, list) else [0.0])


def test_text_that_is_the_same_number_is_suggested():
    with pytest.raises(AssemblyError, match=r"'3.0' \(did you mean '3'\?\)"):
        select(trials(["3", "1", "2", "1"]), {"contrast": "3.0"})


def test_limits_and_nothing_left():
    assert select(
        trials([3, 1, 2, 0]), {"contrast": {"min": 1, "below": 3}}
    ).values.tolist() == [1.0, 2.0]
    with pytest.raises(AssemblyError, match="nothing has contrast"):
        select(trials([3, 1, 2, 0]), {"contrast": {"above": 3}})
    with pytest.raises(AssemblyError, match="nothing has region"):
        select(trials([3, 1, 2, 0]), {"region": []})


def test_excluded_values_are_left_out_and_must_occur() -> None:
    shown = ("presentation", ["0.0", "0.55", "inf", "0.55"])
    coords = {"stimulus_id": ("presentation", list("abcd")), "condition": shown}
    data = xr.DataArray(np.arange(4.0), dims="presentation", coords=coords)
    assert select(data, {"condition": {"not": [0.55, "inf"]}})[
        "stimulus_id"
    ].values.tolist() == ["a"]
    assert select(data, {"condition": {"not": "inf"}}).size == 3
    with pytest.raises(AssemblyError, match="no row has"):
        select(data, {"condition": {"not": [0.6]}})
    with pytest.raises(AssemblyError, match="unknown"):
        select(data, {"condition": {"not": [0.55], "min": 0}})
