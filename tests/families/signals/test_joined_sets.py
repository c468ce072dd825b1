"""A decoder is trained on one data set and tested on another, whose channels are in another order."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import NeuroLedgerError, RequestError
from neuroledger.families.signals.joined_sets import joined
from neuroledger.families.signals.signals import signals


def simulated(channels: list[str], seed: int, rate: float = 64.0) -> xr.DataArray:
    """Four people, of whom class b has more power at C3, whatever the order of the channels."""
    rng = np.random.default_rng(seed)
    labels = np.tile(["a", "b"], 80)
    people = np.repeat(["1", "2", "3", "4"], 40)
    values = rng.standard_normal((160, len(channels), 64))
    place = [name.lower() for name in channels].index("c3")
    values[labels == "b", place] *= 2.0
    events = {
        "stimulus_id": labels,
        "subject": people,
        "recording": people,
        "onset": np.tile(2.0 * np.arange(40), 4),
        "label": labels,
    }
    return signals(
        values,
        channels=channels,
        channel_types="eeg",
        sampling_rate=rate,
        start=0.0,
        units="uV",
        events=events,
    )


def both() -> xr.DataArray:
    one = simulated(["C3", "Cz", "C4"], 0)
    other = simulated(["C4", "Oz", "c3", "CZ"], 1)
    return joined({"A": one, "B": other.assign_coords(age=("presentation", [3] * 160))})


def test_channels_are_those_that_all_have_in_the_order_of_the_first() -> None:
    whole, other = both(), simulated(["C4", "Oz", "c3", "CZ"], 1)
    assert whole["channel_id"].values.tolist() == ["C3", "Cz", "C4"]
    np.testing.assert_array_equal(whole.values[160:], other.values[:, [2, 3, 0]])
    assert set(whole["dataset"].values[:160]) == {"A"}
    assert set(whole["subject"].values[160:]) == {"B/1", "B/2", "B/3", "B/4"}
    assert "age" not in whole.coords


def test_a_decoder_trained_on_one_set_is_tested_on_the_other() -> None:
    whole = both()
    facts = {name: whole[name].values for name in ("subject", "dataset", "recording")}
    rule = {"name": "declared", "column": "dataset", "train": ["A"], "test": ["B"]}
    score = nl.decode(
        "covariance_logistic",
        whole.values,
        whole["label"].values,
        groups={**facts, "onset": whole["onset"].values},
        sampling_rate=64,
        splits={**rule, "apart": ["subject"]},
    )
    assert score.value > 0.9
    assert score.predictions is not None
    assert set(score.predictions["subject"].values.ravel()) == {
        f"B/{number}" for number in range(1, 5)
    }


def test_what_cannot_be_joined_is_said() -> None:
    one = simulated(["C3", "Cz"], 0)
    with pytest.raises(RequestError, match="at least two"):
        joined({"A": one})
    with pytest.raises(RequestError, match=r"sampling_rate of A is 64\.0, of B 32\.0"):
        joined({"A": one, "B": simulated(["C3", "Cz"], 1, rate=32.0)})
    with pytest.raises(NeuroLedgerError, match="no channel is in all of A, B"):
        renamed = one.assign_coords(channel_id=("channel", ["O1", "O2"]))
        joined({"A": one, "B": renamed})
    moved = one.assign_coords(
        time_bin_start=("sample", one["time_bin_start"].values + 5)
    )
    with pytest.raises(RequestError, match="at other times"):
        joined({"A": one, "B": moved})
