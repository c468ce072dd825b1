"""Events of a program's log found again among the triggers of a recording, by their codes and by one straight clock."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from neuroledger.errors import DataError
from neuroledger.spec.base import Frozen

__all__ = ["Aligned", "Alignment", "align"]

Times = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
COARSE = 0.5
"""Seconds within which the clocks agree before their rate is known."""
DRIFT = 1e-3
"""How far the rates of two clocks may differ."""


class Alignment(Frozen):
    """How well a log must fit its recording.

    Once the clock of the log is put on the recording's by one straight line, an event and its trigger have the same code
    and lie within `tolerance` seconds. At most `unmatched` events may have no trigger, and as many triggers no event.
    """

    tolerance: Annotated[float, Field(gt=0, le=COARSE)]
    unmatched: Annotated[int, Field(ge=0)] = 0


class Aligned(NamedTuple):
    """Pairs in order: positions in the log and among the triggers, and the largest distance in seconds."""

    logged: npt.NDArray[np.intp]
    found: npt.NDArray[np.intp]
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
    """Events of a log beside their triggers.

    The clocks' difference is that on which most pairs of one code agree; then times of triggers are
    $a + b t$ of those of the log, by least squares over pairs that are nearest to each other, ever nearer ones. No pair
    crosses another one.

    Parameters
    ----------
    codes, times
        Of the events in the log, in order of time, s.
    found_codes, found_times
        Of the triggers in the recording, in order of time, s.

    Raises
    ------
    DataError
        No line makes them agree, or more is left over than the rule allows: the message names the recording.
    """
    if not len(found_codes):
        raise DataError(f"{name} has no triggers to find the events of {log} by")
    shared = np.intersect1d(codes, found_codes)
    away = [
        np.subtract.outer(found_times[found_codes == code], times[codes == code]).ravel() for code in shared
    ]
    if not away:
        raise DataError(f"{name} and its log {log} have no code in common: it is another recording's log")
    differences = np.sort(np.concatenate(away))
    within = np.searchsorted(differences, differences + COARSE, side="right") - np.arange(len(differences))
    best = int(np.argmax(within))
    offset, rate = float(np.median(differences[best : best + int(within[best])])), 1.0
    middle = float(times.mean())
    for limit in (COARSE, COARSE / 2, max(rule.tolerance, COARSE / 5), rule.tolerance, rule.tolerance):
        expected = offset + middle + rate * (times - middle)
        logged, found = _pairs(codes, expected, found_codes, found_times, limit)
        if len(logged) > 2:
            rate, offset = np.polyfit(times[logged] - middle, found_times[found] - middle, 1)
    if not len(logged) or abs(rate - 1) > DRIFT:
        raise DataError(f"{name} and its log {log} agree on no clock: it is another recording's log")
    expected = offset + middle + rate * (times - middle)
    logged, found = _pairs(codes, expected, found_codes, found_times, rule.tolerance)
    lost, spare = len(codes) - len(logged), len(found_codes) - len(found)
    if max(lost, spare) > rule.unmatched:
        raise DataError(
            f"{name}: {lost} of {len(codes)} events of its log {log} have no trigger within {rule.tolerance:g} s, and "
            f"{spare} of {len(found_codes)} triggers no event; `alignment.unmatched` allows {rule.unmatched}: name the "
            "right log under `naming.rules`, or leave the recording out there"
        )
    residual = float(np.abs(expected[logged] - found_times[found]).max()) if len(logged) else 0.0
    return Aligned(logged, found, residual)


def _pairs(
    codes: Codes, expected: Times, found_codes: Codes, found_times: Times, limit: float
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Events and triggers of one code that are each other's nearest, no farther apart than `limit`, in one order."""
    logged, found = [], []
    for code in np.unique(codes):
        here, there = np.flatnonzero(codes == code), np.flatnonzero(found_codes == code)
        if not len(there):
            continue
        at = _nearest(found_times[there], expected[here])
        back = _nearest(expected[here], found_times[there])
        mutual = back[at] == np.arange(len(here))
        near = np.abs(found_times[there[at]] - expected[here]) <= limit
        logged += here[mutual & near].tolist()
        found += there[at[mutual & near]].tolist()
    order = np.argsort(logged, kind="stable")
    first, second = np.array(logged, dtype=np.intp)[order], np.array(found, dtype=np.intp)[order]
    # A pair that crosses the one before it is a coincidence of two keys at almost one moment.
    before = np.maximum.accumulate(np.concatenate([[-1], second[:-1]])) if len(second) else second
    return first[second > before], second[second > before]


def _nearest(sorted_times: Times, wanted: Times) -> npt.NDArray[np.intp]:
    """Position of the nearest time."""
    right = (
        np.clip(np.searchsorted(sorted_times, wanted), 1, len(sorted_times) - 1)
        if len(sorted_times) > 1
        else None
    )
    if right is None:
        return np.zeros(len(wanted), dtype=np.intp)
    left = right - 1
    closer = np.abs(sorted_times[left] - wanted) <= np.abs(sorted_times[right] - wanted)
    return np.where(closer, left, right).astype(np.intp)
