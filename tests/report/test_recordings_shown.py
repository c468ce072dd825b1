"""The clocks on a data set's page: gaps interrupt a row of the timeline, and the table says what was left out and why."""

from __future__ import annotations

import re

from neuroledger.data.clocks import Clock, Gap, LeftOut, RecordingClocks
from neuroledger.data.facts import Fact
from neuroledger.report.recordings import SHOWN, clock_rows, timeline

SECONDS = Fact("s", "stated")


def recording(name: str = "gap.edf", **fields: object) -> RecordingClocks:
    samples = Clock(
        of="samples", unit=SECONDS, start=0.0, stop=35.0, rate=Fact(100.0, "declared"), count=3000,
        gaps=(Gap(begin=12.0, seconds=5.0),),
    )  # fmt: skip
    events = Clock(of="events", unit=SECONDS, start=2.0, stop=33.0, count=7)
    return RecordingClocks(
        recording=name, subject="a", clocks=(samples, events), windows=7, **fields
    )  # type: ignore[arg-type]


def test_a_gap_interrupts_the_row_of_its_clock() -> None:
    drawn = timeline([recording()])
    assert drawn is not None
    widths = [
        float(width)
        for width in re.findall(r'<rect x="[\d.]+" y="\d+" width="([\d.]+)"', drawn)
    ]
    assert len(widths) == 3
    # 12 s, 18 s after the gap, and 31 s of events.
    assert abs(widths[1] / widths[0] - 18 / 12) < 0.02
    assert abs(widths[2] / widths[0] - 31 / 12) < 0.02


def test_names_are_escaped() -> None:
    drawn = timeline([recording("<b>.edf")])
    assert drawn is not None
    assert "<b>" not in drawn


def test_only_the_first_recordings_are_drawn_and_nothing_without_times() -> None:
    many = timeline([recording(f"r{number:02d}.edf") for number in range(30)])
    assert many is not None
    assert f"r{SHOWN - 1:02d}.edf" in many
    assert f"r{SHOWN:02d}.edf" not in many
    assert (
        timeline([RecordingClocks(recording="x", subject="a", clocks=(), windows=3)])
        is None
    )


def test_rows_say_how_times_are_known_and_what_was_left_out() -> None:
    left_out = (LeftOut(reason="across a gap", label="go", windows=2),)
    second, first = clock_rows([recording("cut.edf", left_out=left_out), recording()])
    assert second.recording == "cut.edf"
    assert second.left_out == "2 across a gap (go)"
    assert first.gaps == "1 (5 s), first at 12 s"
    assert first.clocks.startswith(
        "3,000 samples, 0 to 35 s (stated), 100 Hz (declared); 7 events"
    )
