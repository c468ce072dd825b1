"""How scores changed from commit to commit: every version of each record that git holds."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from neuroledger.engine.git_trees import git
from neuroledger.errors import RequestError
from neuroledger.spec.document import json_object

__all__ = ["Step", "history"]

RAW = re.compile(
    r"^:\d+ \d+ [0-9a-f]+ (?P<blob>[0-9a-f]+) [AM]\t(?:.*/)?(?P<benchmark>[^/]+)/(?P<model>[^/]+)\.json$"
)


class Step(NamedTuple):
    """A commit that changed a score, with the score and its difference from the one before."""

    commit: str
    date: str
    benchmark: str
    model: str
    value: float | None
    change: str


def history(root: Path) -> Mapping[tuple[str, str], tuple[Step, ...]]:
    """The commits that changed the score of each (benchmark, model), oldest first; empty where there is no git."""
    words = ("log", "--reverse", "--no-color", "--format=%H %cs", "--raw", "--no-renames", "--abbrev=40")
    try:
        log = git(root, *words, "--", "results/records", may_fail=True)
    except RequestError:
        return {}
    found, commit, date = [], "", ""
    for line in log.decode(errors="replace").splitlines():
        if (raw := RAW.match(line)) is not None:
            found.append((commit, date, raw))
        elif line and not line.startswith(":"):
            commit, date = line.split(" ", 1)
    values = dict(_values(root, list(dict.fromkeys(raw["blob"] for _, _, raw in found))))
    steps: dict[tuple[str, str], list[Step]] = {}
    for commit, date, raw in found:
        held = steps.setdefault((raw["benchmark"], raw["model"]), [])
        value = values.get(raw["blob"])
        if held and held[-1].value == value:
            continue
        before = held[-1].value if held else None
        moved = "" if value is None or before is None else f"{value - before:+.4g}"
        held.append(Step(commit, date, raw["benchmark"], raw["model"], value, moved if held else "first"))
    return {pair: tuple(held) for pair, held in steps.items()}


def _values(root: Path, blobs: list[str]) -> Iterator[tuple[str, float | None]]:
    """Blob → the score that this version of a record holds; None where it failed or is not a record."""
    names = "".join(f"{blob}\n" for blob in blobs).encode()
    out = git(root, "cat-file", "--batch", stdin=names, may_fail=True)
    at = 0
    for blob in blobs:
        head = out[at : out.find(b"\n", at)]
        last = head.split()[-1:] or [b""]
        size = int(last[0]) if last[0].isdigit() else 0
        start = at + len(head) + 1
        at = start + size + 1
        try:
            value = float(json_object(out[start : start + size])["score"]["value"])
            yield blob, value if math.isfinite(value) else None
        except (ValueError, TypeError, KeyError):
            yield blob, None
