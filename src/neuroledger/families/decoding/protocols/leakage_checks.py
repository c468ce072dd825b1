"""What stops a wrong partition: shared groups, windows that overlap in time, equal content, classes never trained."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.errors import DataError
from neuroledger.families.decoding.protocols.overlap_detection import Sharing, numbered_windows
from neuroledger.families.decoding.protocols.splits import Fold, Indices
from neuroledger.families.signals.signals import extents

__all__ = ["gate", "partition_sha256", "read_partition", "write_partition"]

PARTS = ("train", "validation", "test")


def gate(
    folds: Sequence[Fold],
    assembly: xr.DataArray,
    *,
    disjoint: Sequence[str] = (),
    labels: npt.NDArray[np.str_] | None = None,
    waive: Sequence[str] = (),
) -> None:
    """Pass if every fold keeps its test part apart from all that the training sees, validation included.

    Checked: the three parts share no row and none but validation is empty; no value of a `disjoint` coordinate is on
    both sides, nor one person in two spellings, nor one file under two people's names; no window overlaps with a tested
    one, in the time of a recording or by sharing samples with it; no window has the very samples of a tested one;
    every tested class of `labels` is trained, and at least two are.

    Raises
    ------
    DataError
        Naming every gate that failed, with the fold and the first things that overlap.
    """
    if not folds:
        raise DataError("splits: no fold was drawn")
    starts, ends = extents(assembly)
    recordings = assembly["recording"].values.astype(str)
    windows = numbered_windows(assembly) if not {"duplicates", "overlap"} <= set(waive) else None
    sharing = Sharing(assembly, folds) if "overlap" not in waive else None
    half_sample = 0.5 / float(assembly.attrs["sampling_rate"])
    problems: list[str] = []
    for number, fold in enumerate(folds):
        found = _rows(fold, assembly.sizes["presentation"])
        if found:
            problems += [f"fold {number}: {problem}" for problem in found]
            continue
        seen = np.concatenate([fold.train, fold.validation])
        for name in disjoint:
            found += _shared(assembly, name, seen, fold.test)
        again = np.empty(0, dtype=np.intp)
        if windows is not None:
            again = fold.test[np.isin(windows[fold.test], windows[seen])]
        if sharing is not None:
            hits = _overlaps(recordings, starts, ends, half_sample, seen, fold.test)
            found += hits or _common_samples(assembly, np.setdiff1d(sharing.hits(number), again))
        if len(again) and "duplicates" not in waive:
            names = assembly["stimulus_id"].values.astype(str)[again].tolist()
            found += [f"{len(again)} tested windows have the samples of a trained one: {_first(names)}"]
        found += [] if labels is None else _classes(labels, fold)
        problems += [f"fold {number}: {problem}" for problem in found]
    if problems:
        more = f"; and {len(problems) - 6} more" if len(problems) > 6 else ""
        raise DataError("the splits let the test part leak: " + "; ".join(problems[:6]) + more)


def _rows(fold: Fold, count: int) -> list[str]:
    problems = [f"no {part} rows" for part in ("train", "test") if len(getattr(fold, part)) == 0]
    every = np.concatenate(fold)
    if len(every) and (every.min() < 0 or every.max() >= count):
        return [*problems, f"rows outside 0…{count - 1}"]
    unique, times = np.unique(every, return_counts=True)
    if (times > 1).any():
        problems.append(
            f"{int((times > 1).sum())} rows in two parts or twice: {_first(unique[times > 1].astype(str).tolist())}"
        )
    return problems


def _shared(assembly: xr.DataArray, name: str, seen: Indices, test: Indices) -> list[str]:
    """Values of a coordinate that are on both sides; of people also when they are spelt in another way."""
    values = assembly[name].values.astype(str)
    trained, tested = set(values[seen].tolist()), set(values[test].tolist())
    shared = sorted(trained & tested)
    if shared:
        return [f"{name} on both sides: {_first(shared)}"]
    if name != "subject":
        return []
    plain = {_plainly(value): value for value in trained}
    twins = [
        f"{value!r} and {plain[_plainly(value)]!r}" for value in sorted(tested) if _plainly(value) in plain
    ]
    problems = [f"one subject in two spellings on both sides: {_first(twins)}"] if twins else []
    if "recording_sha256" in assembly.coords:
        files = assembly["recording_sha256"].values.astype(str)
        same = sorted(set(files[seen].tolist()) & set(files[test].tolist()))
        people = [sorted(set(values[files == file].tolist())) for file in same]
        names = [" and ".join(who) for who in people if len(who) > 1]
        problems += [f"one recording under the names of several subjects: {_first(names)}"] if names else []
    return problems


def _plainly(subject: str) -> str:
    """A person's name without what files and tables write in different ways: `sub-01`, `SUB-1`, `01` and `1` are one."""
    plain = unicodedata.normalize("NFKC", subject).strip().casefold()
    return re.sub(r"^0+(?=\d)", "", re.sub(r"^(?:subject|subj|sub)[-_ ]*(?=\S)", "", plain))


def _common_samples(assembly: xr.DataArray, hits: Indices) -> list[str]:
    """Tested windows that have samples in common with trained ones: pieces of the same signal."""
    if not len(hits):
        return []
    names = assembly["stimulus_id"].values.astype(str)[hits].tolist()
    return [f"{len(hits)} tested windows overlap with trained ones, whose samples they hold: {_first(names)}"]


def _overlaps(
    recordings: npt.NDArray[np.str_],
    starts: npt.NDArray[np.float64],
    ends: npt.NDArray[np.float64],
    slack: float,
    seen: Indices,
    test: Indices,
) -> list[str]:
    """Tested windows that share time with a trained one: among windows that start before the end, the latest end decides."""
    hits: list[int] = []
    for recording in np.unique(recordings[test]):
        train = seen[recordings[seen] == recording]
        if len(train) == 0:
            continue
        train = train[np.argsort(starts[train], kind="stable")]
        latest = np.maximum.accumulate(ends[train]) - slack
        tested = test[recordings[test] == recording]
        before = np.searchsorted(starts[train], ends[tested] - slack, side="left")
        hits += tested[(before > 0) & (latest[np.maximum(before - 1, 0)] > starts[tested])].tolist()
    if not hits:
        return []
    shown = [f"{recordings[row]} at {starts[row]:.2f}–{ends[row]:.2f} s" for row in hits]
    return [f"{len(hits)} tested windows overlap in time with trained ones: {_first(shown)}"]


def _classes(labels: npt.NDArray[np.str_], fold: Fold) -> list[str]:
    trained, tested = set(labels[fold.train].tolist()), set(labels[fold.test].tolist())
    problems = (
        [f"classes tested but never trained: {_first(sorted(tested - trained))}"] if tested - trained else []
    )
    return problems + (["fewer than two classes to train on"] if len(trained) < 2 else [])


def _first(items: Sequence[str]) -> str:
    return ", ".join(items[:3]) + (", …" if len(items) > 3 else "")


def partition_sha256(folds: Sequence[Fold], keys: Sequence[str]) -> str:
    """SHA-256 of which keys are in which part of which fold; the order of rows does not enter."""
    return hashlib.sha256(_canonical(folds, keys)).hexdigest()


def write_partition(path: Path, folds: Sequence[Fold], keys: Sequence[str]) -> str:
    """Write the partition as JSON (a list of folds, each `part: [key, …]`) and return its SHA-256.

    Raises
    ------
    DataError
        The keys are not unique.
    """
    if len(set(keys)) != len(keys):
        raise DataError("a partition is written by key, and these keys are not unique")
    content = _canonical(folds, keys)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def read_partition(path: Path, keys: Sequence[str], *, sha256: str | None = None) -> list[Fold]:
    """The folds of a partition file over rows that carry `keys`.

    Raises
    ------
    DataError
        The file is not such a list, names keys that no row has, or its partition is not the pinned one.
    """
    try:
        content = json.loads(path.read_bytes())
        named = [{part: [str(key) for key in fold.get(part, ())] for part in PARTS} for fold in content]
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path.name} is not a partition: a JSON list of folds, each with train and test keys ({error})"
        ) from error
    row_of = {key: row for row, key in enumerate(keys)}
    lost = sorted({key for fold in named for key in chain(*fold.values()) if key not in row_of})
    if lost:
        raise DataError(f"{path.name} names {len(lost)} keys that no window has: {_first(lost)}")
    folds = [
        Fold(*(np.array(sorted(row_of[key] for key in fold[part]), dtype=np.intp) for part in PARTS))
        for fold in named
    ]
    found = partition_sha256(folds, keys)
    if sha256 is not None and found != sha256:
        raise DataError(
            f"{path.name}: the partition's SHA-256 is {found}, pinned is {sha256}; pin the new one or restore the file"
        )
    return folds


def _canonical(folds: Sequence[Fold], keys: Sequence[str]) -> bytes:
    plain = [
        {part: sorted(keys[row] for row in rows) for part, rows in zip(PARTS, fold, strict=True)}
        for fold in folds
    ]
    return (json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n").encode()
