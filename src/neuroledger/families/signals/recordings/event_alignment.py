"""Alignment of a program's log to the triggers of a recording, by codes and a linear map between the clocks."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, NonNegativeInt

from neuroledger.data.arrays import Floats, Indices, Integers
from neuroledger.errors import DataError
from neuroledger.spec.base import Frozen

__all__ = ["Aligned", "Alignment", "align"]

Times = Floats
Codes = Integers
COARSE = 0.5
"""Tolerance in seconds before the relative rate of the clocks is known."""
DRIFT = 1e-3
"""Largest relative difference between the rates of two clocks."""


class Alignment(Frozen):
    """How well a log must match its recording.

    After a linear map from the log's clock to the recording's, an event and its trigger have the same code and differ by at
    most `tolerance` seconds. At most `unmatched` events may have no trigger, and at most as many triggers no event.
    """

    tolerance: Annotated[float, Field(gt=0, le=COARSE)]
    unmatched: NonNegativeInt = 0


class Aligned(NamedTuple):
    """Pairs in order: positions in the log and among the triggers, and the largest difference in seconds."""

    logged: Indices
    found: Indices
    residual: float


def align(
    codes: Codes,
    times: Times,
    found_codes: Codes,
    found_times: Times,
    rule: Alignment,
    *,
    name: str,
    log: str,
) -> Aligned:
    """Match the events of a log with the triggers of a recording.

    The first estimate of the clocks' difference is the one on which most pairs with equal codes agree. Then the times of
    triggers are fitted as $a + b t$ of those of the log, by least squares over mutually nearest pairs, with a tolerance
    that decreases. Pairs do not cross.

    Parameters
    ----------
    codes, times
        Codes and times (s) of the events in the log, in order of time.
    found_codes, found_times
        Codes and times (s) of the triggers in the recording, in order of time.

    Raises
    ------
    DataError
        No linear map matches them, or more events or triggers are unmatched than the rule allows.
    """
    if not len(found_codes):
        raise DataError(f"{name} has no triggers to match with the events of {log}")
    by_code = [
        np.subtract.outer(
            found_times[found_codes == code], times[codes == code]
        ).ravel()
        for code in np.intersect1d(codes, found_codes)
    ]
    if not by_code:
        raise DataError(
            f"{name} and its log {log} have no code in common: the log is of another recording"
        )
    differences = np.sort(np.concatenate(by_code))
    within = np.searchsorted(
        differences, differences + COARSE, side="right"
    ) - np.arange(len(differences))
    best = int(np.argmax(within))
    offset = float(np.median(differences[best : best + int(within[best])]))
    rate = 1.0
    middle = float(times.mean())
    for limit in (
        COARSE,
        COARSE / 2,
        max(rule.tolerance, COARSE / 5),
        rule.tolerance,
        rule.tolerance,
    ):
        expected = offset + middle + rate * (times - middle)
        logged, matched = _pairs(codes, expected, found_codes, found_times, limit)
        if len(logged) > 2:
            rate, offset = np.polyfit(
                times[logged] - middle, found_times[matched] - middle, 1
            )
    if not len(logged) or abs(rate - 1) > DRIFT:
        raise DataError(
            f"{name} and its log {log} cannot be aligned in time: the log is of another recording"
        )
    expected = offset + middle + rate * (times - middle)
    logged, matched = _pairs(codes, expected, found_codes, found_times, rule.tolerance)
    without_trigger = len(codes) - len(logged)
    without_event = len(found_codes) - len(matched)
    if max(without_trigger, without_event) > rule.unmatched:
        raise DataError(
            f"{name}: {without_trigger} of {len(codes)} events of its log {log} have no trigger within "
            f"{rule.tolerance:g} s, and "
            f"{without_event} of {len(found_codes)} triggers have no event; `alignment.unmatched` allows "
            f"{rule.unmatched}: declare the right log under `naming.rules`, or leave the recording out there"
        )
    residual = (
        float(np.abs(expected[logged] - found_times[matched]).max())
        if len(logged)
        else 0.0
    )
    return Aligned(logged, matched, residual)


def _pairs(
    codes: Codes, expected: Times, found_codes: Codes, found_times: Times, limit: float
) -> tuple[Indices, Indices]:
    """Mutually nearest events and triggers with equal codes that differ by at most `limit`, without crossing pairs."""
    logged = []
    matched = []
    for code in np.unique(codes):
        events = np.flatnonzero(codes == code)
        triggers = np.flatnonzero(found_codes == code)
        if not len(triggers):
            continue
        nearest = _nearest(found_times[triggers], expected[events])
        back = _nearest(expected[events], found_times[triggers])
        mutual = back[nearest] == np.arange(len(events))
        near = np.abs(found_times[triggers[nearest]] - expected[events]) <= limit
        logged += events[mutual & near].tolist()
        matched += triggers[nearest[mutual & near]].tolist()
    order = np.argsort(logged, kind="stable")
    first = np.array(logged, dtype=np.intp)[order]
    second = np.array(matched, dtype=np.intp)[order]
    # A pair that crosses the one before it comes from two keys at almost the same time.
    before = (
        np.maximum.accumulate(np.concatenate([[-1], second[:-1]]))
        if len(second)
        else second
    )
    return first[second > before], second[second > before]


def _nearest(sorted_times: Times, times: Times) -> Indices:
    """Index of the nearest of the sorted times for each wanted time."""
    if len(sorted_times) == 1:
        return np.zeros(len(times), dtype=np.intp)
    right = np.clip(np.searchsorted(sorted_times, times), 1, len(sorted_times) - 1)
    left = right - 1
    closer = np.abs(sorted_times[left] - times) <= np.abs(sorted_times[right] - times)
    return np.where(closer, left, right).astype(np.intp)
