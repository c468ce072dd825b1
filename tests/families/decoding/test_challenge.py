"""The suite of the EEG/EMG challenge holds its tracks, and commands are decoded in later sessions of the same people."""

from __future__ import annotations

import numpy as np
import xarray as xr
from pydantic import TypeAdapter

from neuroledger.engine.plan import parameters_of
from neuroledger.families.decoding.protocols.splits import SplitRule, draw_folds
from neuroledger.spec.catalog import open_catalog


def test_the_suite_holds_the_tracks() -> None:
    catalog = open_catalog()
    suite = catalog.suite("challenge.2026")
    parents = {catalog.benchmark(entry.id).parent for entry in suite.benchmarks}
    assert parents == {"eeg.image", "eeg.motor_imagery", "eeg.sleep_onset", "emg.pose"}


def test_commands_are_decoded_in_later_sessions() -> None:
    catalog = open_catalog()
    parameters = parameters_of(
        catalog.entry("benchmarks", "challenge.2026.bci"), "paradigm"
    )
    sessions = np.repeat([str(number) for number in range(1, 12)], 40)
    people = np.tile(np.repeat(["S1", "S2"], 20), 11)
    recordings = np.char.add(np.char.add(people, "-"), sessions)
    columns = {"session": sessions, "subject": people, "recording": recordings}
    assembly = xr.DataArray(
        np.zeros((len(sessions), 1, 4)),
        dims=["presentation", "channel", "sample"],
        coords={name: ("presentation", values) for name, values in columns.items()},
    )
    rule = TypeAdapter(SplitRule).validate_python(parameters["splits"])
    (fold,) = draw_folds(rule, assembly)
    assert set(sessions[fold.test]) == {"4", "5", "6"}
    assert set(people[fold.test]) == set(people[fold.train]) == {"S1", "S2"}
    before = np.concatenate([fold.train, fold.validation])
    assert set(sessions[before]) == {"1", "2", "3"}
    assert not set(recordings[fold.train]) & set(recordings[fold.validation])
