"""Logs are aligned to triggers despite lost and additional events and a drifting clock, and refused if they differ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.event_alignment import Alignment, align

STRICT, LOOSE = Alignment(tolerance=0.02), Alignment(tolerance=0.02, unmatched=40)
SAID = {"name": "a.fif", "log": "a.mat"}


def events(seed: int, count: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    times = 1000.0 + np.cumsum(rng.uniform(0.08, 0.5, count))
    return rng.integers(65, 80, count), times


def heard(times: np.ndarray, offset: float, drift: float, seed: int = 0) -> np.ndarray:
    jitter = np.random.default_rng(seed).uniform(-0.005, 0.005, len(times))
    return offset + (times - times[0]) * (1 + drift) + jitter


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    offset=st.floats(-50, 5000),
    drift=st.floats(-2e-4, 2e-4),
    lost=st.integers(0, 20),
    spare=st.integers(0, 20),
)
def test_every_recorded_event_is_matched_with_its_own_trigger(
    seed: int, offset: float, drift: float, lost: int, spare: int
) -> None:
    codes, times = events(seed)
    found = heard(times, offset, drift, seed)
    rng = np.random.default_rng(seed + 1)
    kept = np.sort(rng.permutation(len(codes))[lost:])
    # Triggers from nowhere have a code that the log does not know.
    extra = offset + rng.uniform(0, times[-1] - times[0], spare)
    order = np.argsort(np.concatenate([found[kept], extra]), kind="stable")
    triggers = np.concatenate([found[kept], extra])[order]
    numbers = np.concatenate([codes[kept], np.full(spare, 200)])[order]
    origin = np.concatenate([kept, np.full(spare, -1)])[order]
    pairs = align(codes, times, numbers, triggers, LOOSE, **SAID)
    assert pairs.logged.tolist() == kept.tolist()
    assert origin[pairs.found].tolist() == kept.tolist()
    assert pairs.residual < 0.012


def test_unmatched_events_are_refused_by_default() -> None:
    codes, times = events(0)
    found = heard(times, 3.0, 1e-5)
    assert len(align(codes, times, codes, found, STRICT, **SAID).logged) == 300
    with pytest.raises(
        DataError,
        match=r"a.fif: 1 of 300 events of its log a.mat have no trigger within 0.02 s, and 0 of 299",
    ):
        align(codes, times, codes[1:], found[1:], STRICT, **SAID)
    with pytest.raises(
        DataError,
        match=r"a.fif: 0 of 299 events .* and 1 of 300 triggers have no event",
    ):
        align(codes[1:], times[1:], codes, found, STRICT, **SAID)


def test_an_event_with_a_late_trigger_remains_unmatched() -> None:
    codes, times = events(0)
    found = heard(times, 3.0, 0.0)
    found[150] += 0.05
    with pytest.raises(DataError, match="1 of 300 events"):
        align(codes, times, codes, found, STRICT, **SAID)
    pairs = align(codes, times, codes, found, LOOSE, **SAID)
    assert 150 not in pairs.logged and len(pairs.logged) == 299


@pytest.mark.parametrize("seed", range(5))
def test_the_log_of_another_recording_is_refused(seed: int) -> None:
    codes, times = events(seed, 2900)
    others, theirs = events(seed + 100, 2900)
    with pytest.raises(DataError, match=r"a.fif.*a.mat"):
        align(
            codes,
            times,
            others,
            heard(theirs, 3.0, 0.0),
            Alignment(tolerance=0.05, unmatched=650),
            **SAID,
        )


def test_missing_triggers_and_disjoint_codes_raise_one_error() -> None:
    codes, times = events(0)
    nothing = np.array([], dtype=np.int64)
    with pytest.raises(
        DataError, match=r"a.fif has no triggers to match with the events of a.mat"
    ):
        align(codes, times, nothing, nothing.astype(float), STRICT, **SAID)
    with pytest.raises(DataError, match="no code in common"):
        align(codes, times, codes + 100, times, STRICT, **SAID)
    with pytest.raises(DataError, match="cannot be aligned in time"):
        align(codes, times, codes, times * 1.01, LOOSE, **SAID)
