"""Missing single trials: ceilings of subjects average what exists, scores leave neuroids without a trial out; both count."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.regression.missing_trials import (
    with_means_for_missing_trials,
)
from neuroledger.stats.splits import Split

STIMULI, REPETITIONS, NEUROIDS, SUBJECTS = 30, 3, 6, 3


def repeated(seed: int = 0) -> xr.DataArray:
    """Responses of three simulated subjects to 30 stimuli, each presented three times."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(4, SUBJECTS * NEUROIDS))
    signal = rng.normal(size=(STIMULI, 4)) @ weights
    shown = np.tile(np.arange(STIMULI), REPETITIONS)
    return xr.DataArray(
        signal[shown] + rng.normal(size=(len(shown), SUBJECTS * NEUROIDS)),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"s{number:02d}" for number in shown]),
            "repetition": ("presentation", np.repeat(np.arange(REPETITIONS), STIMULI)),
            "neuroid_id": (
                "neuroid",
                [f"n{number:02d}" for number in range(SUBJECTS * NEUROIDS)],
            ),
            "subject": ("neuroid", np.repeat(["a", "b", "c"], NEUROIDS)),
        },
    )


def with_gaps(
    assembly: xr.DataArray, share: float = 0.05, seed: int = 1
) -> xr.DataArray:
    """The responses without a share of the cells; the first repetition of every stimulus stays."""
    lost = np.random.default_rng(seed).random(assembly.shape) < share
    lost[:STIMULI] = False
    return assembly.where(~lost)


def averaged_by_pandas(assembly: xr.DataArray) -> xr.DataArray:
    """Missing cells replaced by the mean of the other trials of their stimulus, written independently."""
    table = pd.DataFrame(assembly.values)
    means = table.groupby(assembly["stimulus_id"].values).transform("mean")
    return assembly.copy(data=table.fillna(means).values)


CEILINGS = {
    "subject_predictivity": nl.ceiling("subject_predictivity"),
    "extrapolated_predictivity": nl.ceiling("extrapolated_predictivity", bootstraps=5),
}


@pytest.mark.parametrize("name", CEILINGS)
def test_missing_trials_change_the_prediction_of_subjects_by_little_and_are_counted(
    name: str,
) -> None:
    complete = repeated()
    gaps = with_gaps(complete)
    ceiling = CEILINGS[name]
    found = ceiling(gaps)
    assert found.value == pytest.approx(
        ceiling(averaged_by_pandas(gaps)).value, abs=1e-12
    )
    assert found.value == pytest.approx(ceiling(complete).value, abs=0.03)
    missing = int(gaps.isnull().sum())
    assert missing > 20
    assert (
        f"{missing} of {gaps.size} responses are missing: the mean of the neuroid's other responses to the stimulus stands "
        "for each"
    ) in found.notes


def test_complete_responses_are_the_same_object() -> None:
    complete = repeated()
    completed, notes = with_means_for_missing_trials(complete, [])
    assert completed is complete
    assert notes == []


def test_a_neuroid_without_any_trial_of_a_stimulus_is_left_out_and_counted() -> None:
    complete = repeated()
    without = complete.copy(deep=True)
    without.values[np.ix_(complete["stimulus_id"].values == "s07", [2])] = np.nan
    found = nl.ceiling("subject_predictivity")(without)
    others = complete.isel(neuroid=np.delete(np.arange(SUBJECTS * NEUROIDS), 2))
    expected = nl.ceiling("subject_predictivity")(others)
    left = np.delete(found.samples.values, 2, axis=found.samples.dims.index("neuroid"))
    np.testing.assert_allclose(left, expected.samples.values, atol=1e-12)
    assert any(
        note.startswith("1 of 18 neuroids lack every response to some stimulus")
        for note in found.notes
    )


def test_a_trial_whose_stimulus_is_in_both_parts_of_a_split_stays_missing() -> None:
    gaps = repeated()
    gaps.values[0, 0] = gaps.values[1, 1] = np.nan
    rows = np.arange(len(gaps))
    apart = Split(rows[rows % STIMULI != 1], rows[rows % STIMULI == 1])
    across = Split(rows[1:], rows[:1])
    completed, notes = with_means_for_missing_trials(gaps, [apart, across])
    assert np.isnan(completed.values).nonzero()[0].tolist() == [0]
    assert completed.values[1, 1] == pytest.approx(
        gaps.values[[1 + STIMULI, 1 + 2 * STIMULI], 1].mean()
    )
    assert [note.split(" ", 3)[:3] for note in notes] == [
        ["1", "of", "1620"],
        ["1", "of", "18"],
    ]


def test_subjects_of_whom_no_neuroid_can_be_completed_are_refused_with_their_number() -> (
    None
):
    gaps = repeated().isel(neuroid=np.arange(2 * NEUROIDS))
    gaps.values[np.ix_(gaps["stimulus_id"].values == "s07", np.arange(NEUROIDS))] = (
        np.nan
    )
    with pytest.raises(
        CeilingError, match=r"at least two .*1 subjects without a complete neuroid"
    ):
        nl.ceiling("subject_predictivity")(gaps)


@pytest.mark.parametrize("name", ["rdm", "cka", "pls", "ridge"])
def test_a_neuroid_without_a_response_to_a_stimulus_is_counted_in_the_score(
    name: str,
) -> None:
    target = repeated().isel(presentation=np.arange(STIMULI)).drop_vars("repetition")
    source = repeated(5).isel(presentation=np.arange(STIMULI)).drop_vars("repetition")
    lacking = target.copy(deep=True)
    lacking.values[3, 4] = lacking.values[7, 4] = lacking.values[3, 9] = np.nan
    found = nl.metric(name)(source, lacking)
    assert found.n["neuroids_with_missing_responses"] == 2
    assert any("2 of 18 neuroids left out" in note for note in found.notes)
    rest = np.delete(np.arange(SUBJECTS * NEUROIDS), [4, 9])
    assert found.value == pytest.approx(
        nl.metric(name)(source, target.isel(neuroid=rest)).value, abs=1e-9
    )
    assert "neuroids_with_missing_responses" not in nl.metric(name)(source, target).n
