"""Both sides of a case in turn, and what came of it as a line of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perf.measure import Runs

# A peer that takes longer than this runs once, whatever the number of rounds.
LONG = 5.0
# From here on, watching memory costs no time that would show, and the watched run counts as a round.
SHORT = 1.0

HEADER = (
    "| size | metric | against | peer s | ours s | ratio | peer MB | ours MB | largest difference | × limit |\n"
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|"
)


def in_turn(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int, clock: str) -> tuple[Runs, Runs]:
    """Each side once watched for its memory, then timed, one after the other: ``rounds`` times, a long peer once.

    Of a side that is not short, the watched run is its first round.
    """
    mine, peer = Runs(clock), Runs(clock)
    for side, run in ((mine, ours), (peer, theirs)):
        seconds = side.watch(run)
        if seconds >= SHORT:
            side.seconds.append(seconds)
    enough = 1 if peer.seconds and peer.seconds[0] >= LONG else rounds
    while len(mine.seconds) < rounds or len(peer.seconds) < enough:
        if len(mine.seconds) < rounds:
            mine.add(ours)
        if len(peer.seconds) < enough:
            peer.add(theirs)
    return mine, peer


def difference(mine: Any, peer: Any) -> float:
    """The largest difference of samples, of the splits and neuroids that the peer ran."""
    one, other = np.atleast_1d(mine), np.atleast_1d(peer)
    one = one[tuple(slice(length) for length in other.shape)]
    return float(np.nanmax(np.abs(one - other)))


def line(first: str, name: str, against: str, sides: tuple[Runs, Runs], share: float, limit: float) -> str:
    """A row: the peer's time scaled by the ``share`` of the task that it ran; ``limit`` in seconds, or 0."""
    mine, peer = sides
    seconds = peer.median / share
    return (
        f"| {first} | {name} | {against} | {seconds:.3g} | {mine.median:.3g} | {seconds / mine.median:.1f}× "
        f"| {peer.megabytes:.0f} | {mine.megabytes:.0f} | {difference(mine.values, peer.values):.0e} "
        f"| {f'{mine.median / limit:.1f}' if limit else '–'} |"
    )
