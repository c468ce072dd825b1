"""Features of hypnograms in closed form, and their differences between predicted and true nights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.families.decoding.hypnograms import STAGES, Hypnogram, hypnogram
from neuroledger.families.decoding.metrics.hypnogram import hypnogram_difference

# Twenty windows of 30 s: ten minutes in bed, of which six are asleep.
NIGHT = [
    "W",
    "W",
    "W",
    "W",
    "N1",
    "N1",
    "N2",
    "N2",
    "W",
    "N2",
    "N3",
    "N3",
    "R",
    "R",
    "R",
    "R",
    "W",
    "W",
    "W",
    "N2",
]


def test_features_of_a_night_by_hand() -> None:
    night = hypnogram(np.array(NIGHT))
    assert night == Hypnogram(
        total_sleep_time_min=6.0,
        sleep_efficiency_percent=60.0,
        sleep_latency_min=2.0,
        rem_latency_min=4.0,
        wake_after_sleep_onset_min=2.0,
        n1_percent=100 * 1 / 6,
        n2_percent=100 * 2 / 6,
        n3_percent=100 * 1 / 6,
        rem_percent=100 * 2 / 6,
        transitions=8.0,
    )
    # Time in bed is latency, sleep and wake after sleep onset; wake after the last sleep is of the last of these.
    longer = hypnogram(np.array([*NIGHT, "W", "W"]))
    assert longer.wake_after_sleep_onset_min == 3.0
    assert longer.sleep_efficiency_percent == pytest.approx(100 * 6 / 11)
    assert longer.total_sleep_time_min == 6.0


def test_nights_without_sleep_or_dreams_have_no_latency() -> None:
    awake = hypnogram(np.array(["W"] * 4), window_s=20.0)
    assert (awake.total_sleep_time_min, awake.sleep_efficiency_percent) == (0.0, 0.0)
    assert awake.transitions == awake.wake_after_sleep_onset_min == 0.0
    assert all(
        math.isnan(number)
        for number in (
            awake.sleep_latency_min,
            awake.rem_latency_min,
            awake.rem_percent,
        )
    )
    dreamless = hypnogram(np.array(["N2"]))
    assert (dreamless.sleep_latency_min, dreamless.rem_percent) == (0.0, 0.0)
    assert math.isnan(dreamless.rem_latency_min)


def test_windows_without_a_stage_count_for_the_recorded_time_only() -> None:
    starts = np.array([1000.0, 1030.0, 1120.0, 1150.0])
    night = hypnogram(np.array(["W", "N1", "R", "W"]), onsets_s=starts)
    assert night.total_sleep_time_min == 1.0
    assert night.sleep_efficiency_percent == pytest.approx(100 * 60 / 180)
    assert (night.sleep_latency_min, night.rem_latency_min) == (0.5, 1.5)
    assert night.wake_after_sleep_onset_min == 0.5


@pytest.mark.parametrize(
    ("stages", "starts", "words"),
    [
        (["W", "REM"], None, "REM: the stages of sleep are W, N1"),
        (["W", "N1"], [30.0, 0.0], "do not increase"),
        (["W", "N1"], [0.0, 0.0], "do not increase"),
        (["W", "N1"], [0.0], "as many starts as stages"),
        ([], None, "at least one"),
    ],
)
def test_what_is_no_night_is_said(
    stages: list[str], starts: list[float] | None, words: str
) -> None:
    onsets = None if starts is None else np.array(starts)
    with pytest.raises(MetricError, match=words):
        hypnogram(np.array(stages, dtype=str), onsets_s=onsets)


def nights(*people: list[str], choice: bool = False) -> xr.DataArray:
    """Windows of one night of each person, in reversed order of time; labels, or scores of all stages."""
    labels = np.concatenate([person[::-1] for person in people])
    names = np.repeat(np.arange(len(people)).astype(str), [len(p) for p in people])
    onsets = np.concatenate([30.0 * np.arange(len(p))[::-1] for p in people])
    columns = {
        "onset": onsets,
        "recording": names,
        "subject": names,
        "stimulus_id": [f"{row:04d}" for row in range(len(labels))],
    }
    coords = {name: ("presentation", values) for name, values in columns.items()}
    if not choice:
        return xr.DataArray(labels, dims="presentation", coords=coords)
    scores = (labels[:, None] == np.array(STAGES)).astype(float)
    return xr.DataArray(
        scores,
        dims=("presentation", "choice"),
        coords={**coords, "choice": list(STAGES)},
    )


def test_differences_are_predicted_minus_true_over_nights() -> None:
    later = ["W"] * 6 + NIGHT[6:]
    earlier = ["N1"] * 4 + NIGHT[4:]
    target = nights(NIGHT, NIGHT, NIGHT)
    source = nights(later, earlier, NIGHT, choice=True)
    # The first is 1 min too short, the second 2 min too long.
    for signed, expected in ((True, 1 / 3), (False, 1.0)):
        found = hypnogram_difference(
            source, target, feature="total_sleep_time_min", signed=signed
        )
        assert found.values.item() == pytest.approx(expected)
        assert found.counts == {"windows": 60, "subject": 3}
    score = nl.metric("total_sleep_time_error")(source, target)
    assert score.value == pytest.approx(1.0)
    assert score.low < 1.0 < score.high
    assert (score.direction, score.scale) == ("lower", "error")
    bias = nl.metric(
        "total_sleep_time_error", compare={"signed": True, "feature": "rem_latency_min"}
    )(source, target)
    # Sleep that begins 1 min later is 1 min nearer to REM sleep.
    assert bias.value == pytest.approx((-1 + 2 + 0) / 3)


def test_nights_without_the_feature_are_counted_and_left_out() -> None:
    dreamless = ["N2" if stage == "R" else stage for stage in NIGHT]
    source = nights(NIGHT, dreamless, ["W"] * 4 + NIGHT[4:])
    found = hypnogram_difference(
        source, nights(NIGHT, NIGHT, NIGHT), feature="rem_latency_min"
    )
    assert found.values.item() == 0.0
    assert "1 of 3 recordings have no value and are left out" in found.notes
    nowhere = hypnogram_difference(
        nights(dreamless, dreamless), nights(NIGHT, NIGHT), feature="rem_latency_min"
    )
    assert math.isnan(nowhere.values.item())


def test_labels_of_other_words_are_translated() -> None:
    words = {"wake": "W", "rem": "R"}
    other = [{"W": "wake", "R": "rem"}.get(stage, stage) for stage in NIGHT]
    source = nights(["wake"] * 5 + other[5:], other)
    with pytest.raises(MetricError, match="rem, wake: the stages of sleep are"):
        hypnogram_difference(source, nights(other, other), feature="transitions")
    found = hypnogram_difference(
        source, nights(other, other), feature="sleep_latency_min", stages=words
    )
    assert found.values.item() == pytest.approx(0.25)
