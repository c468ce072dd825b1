"""The gate refuses clocks that do not belong together and counts windows without an event, whatever reader cut them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.clocks import (
    Clock,
    Empty,
    LeftOut,
    RecordingClocks,
    left_out_notes,
)
from neuroledger.data.facts import Fact
from neuroledger.data.gate.clocks import count_empty, judge


def counts(empty: int, windows: int = 20, recording: str = "a") -> xr.DataArray:
    """Windows of spike counts, of which the first are empty; labels alternate."""
    values = np.ones((windows, 3, 4))
    values[:empty] = 0
    coords = {
        "recording": ("presentation", np.full(windows, recording)),
        "subject": ("presentation", np.full(windows, "s")),
        "label": ("presentation", np.array(["l", "r"])[np.arange(windows) % 2]),
    }
    return xr.DataArray(
        values,
        dims=("presentation", "channel", "sample"),
        coords=coords,
        attrs={"units": "count"},
    )


def recording(spikes: float, trials: float, **fields: object) -> RecordingClocks:
    clocks = tuple(
        Clock(of=of, unit=Fact("s", "stated"), start=0.0, stop=stop, count=50)  # type: ignore[arg-type]
        for of, stop in (("spikes", spikes), ("trials", trials))
    )
    return RecordingClocks(
        recording="a", subject="s", clocks=clocks, windows=20, **fields
    )  # type: ignore[arg-type]


def test_windows_without_an_event_are_counted_by_recording_and_label() -> None:
    (counted,) = count_empty(counts(3), [recording(80, 80)])
    assert counted.empty == (
        Empty(label="l", windows=10, empty=2),
        Empty(label="r", windows=10, empty=1),
    )
    assert list(judge([counted], "x")) == []


def test_counts_of_a_reader_without_clocks_are_judged_too() -> None:
    (counted,) = count_empty(counts(11, recording="b"), [])
    (finding,) = judge([counted], "data set x")
    assert finding.where == "data set x, b"
    assert finding.what.startswith(
        "no clock is known; 11 of 20 windows hold no event in any channel"
    )


def test_half_of_the_windows_may_be_empty_and_more_if_declared() -> None:
    assert list(judge(count_empty(counts(10), []), "x")) == []
    assert (
        list(judge(count_empty(counts(19), [recording(80, 80, most_empty=0.95)]), "x"))
        == []
    )


def test_signals_are_not_counted() -> None:
    signals = counts(20)
    signals.attrs["units"] = "uV"
    assert count_empty(signals, []) == ()


@pytest.mark.parametrize(
    ("spikes", "trials", "refused"),
    [(80.0, 80.0, 0), (4000.0, 80.0, 0), (80_000.0, 80.0, 1), (80.0, 80_000.0, 1)],
)
def test_clocks_of_another_unit_are_refused(
    spikes: float, trials: float, refused: int
) -> None:
    assert len(list(judge([recording(spikes, trials)], "x"))) == refused
    assert list(judge([recording(spikes, trials, any_time=True)], "x")) == []


def test_a_report_of_a_recording_contains_only_what_was_found() -> None:
    plain = recording(80, 80).model_dump(mode="json")
    assert sorted(plain) == ["clocks", "recording", "subject", "windows"]
    left_out = (LeftOut(reason="across a gap", label="l", windows=2),)
    cut = recording(80, 80, left_out=left_out)
    assert RecordingClocks.model_validate(cut.model_dump(mode="json")) == cut


def test_equal_remarks_of_many_recordings_are_one_note() -> None:
    remarks = [recording(80, 80, notes=("channels are resampled",)) for _ in range(3)]
    assert left_out_notes(remarks) == ("channels are resampled (in 3 recordings)",)
