"""Alternating runs of both sides of a case, and their result as a row of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perf.measure import Runs

# A peer that takes longer than this number of seconds runs once, whatever the number of rounds.
LONG = 5.0
# From this number of seconds on, the overhead of monitoring memory is negligible, and that run counts as a round.
SHORT = 1.0

HEADER = (
    "| size | metric | against | peer s | ours s | ratio | peer MB | ours MB | largest difference | × limit |\n"
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|"
)


def in_turn(
    ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int, clock: str
) -> tuple[Runs, Runs]:
    """Run each side once to measure memory, then time both alternately: ``rounds`` times, or once for a long peer.

    Unless a side is short, its run with measured memory is its first round.
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
    """The largest difference of samples, over the splits and neuroids that the peer ran."""
    ours, theirs = np.atleast_1d(mine), np.atleast_1d(peer)
    ours = ours[tuple(slice(length) for length in theirs.shape)]
    return float(np.nanmax(np.abs(ours - theirs)))


def line(
    first: str,
    name: str,
    against: str,
    sides: tuple[Runs, Runs],
    share: float,
    limit: float,
) -> str:
    """A row: the peer's time scaled by the ``share`` of the task that it ran; ``limit`` in seconds, or 0."""
    mine, peer = sides
    seconds = peer.median / share
    return (
        f"| {first} | {name} | {against} | {seconds:.3g} | {mine.median:.3g} | {seconds / mine.median:.1f}× "
        f"| {peer.megabytes:.0f} | {mine.megabytes:.0f} | {difference(mine.values, peer.values):.0e} "
        f"| {f'{mine.median / limit:.1f}' if limit else '–'} |"
    )
