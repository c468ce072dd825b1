"""How many samples in a row two windows must share before chance cannot be the reason, and a number for each such run."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats, Indices, Strings
from neuroledger.data.memory import found_once, release
from neuroledger.errors import DataError
from neuroledger.families.decoding.protocols.splits import NONE, Fold
from neuroledger.families.signals.signals import DIMS, blocks, extents
from neuroledger.store.files import write_text

__all__ = [
    "Sharing", "gate", "partition_sha256", "read_partition", "run_length", "runs", "telling_channels",
    "write_partition",
]  # fmt: skip


MOST_STEPS: Final = 1 << 20
"""Steps from a sample to the next that are looked at."""
BY_CHANCE: Final = 1e-6
"""Chance that any two runs of all windows agree."""
FINE: Final = 1e6
"""Parts of a channel's standard deviation below which steps are the same."""


def run_length(assembly: xr.DataArray) -> int | None:
    r"""Samples in a row that tell one piece of signal from all others; None where the windows are too short for that.

    One sample of three or more channels of fractions does. Fewer channels, and whole numbers, repeat by chance: with the
    share :math:`q` of steps (from a sample to the next) that are equal, and :math:`n` samples in all, a run of
    :math:`\ln(n^2/10^{-6}) / \ln(1/q)` samples does not, if steps were independent. Twice as many are asked for.
    """
    windows, channels, samples = (assembly.sizes[dim] for dim in ("presentation", "channel", "sample"))
    if samples < 3:
        return None
    if channels >= 3 and assembly.dtype.kind == "f":
        return 1
    steps = _steps(assembly)
    _, often = np.unique(steps, return_counts=True)
    pairs = len(steps) * (len(steps) - 1)
    equal = max(float((often * (often - 1.0)).sum()) / max(pairs, 1), 1.0 / max(pairs, 1))
    if equal >= 1:
        return None
    length = 2 * math.ceil(math.log((windows * samples) ** 2 / BY_CHANCE) / -math.log(equal))
    return length if length + 3 <= samples else None


def runs(codes: Floats, length: int, seed: int) -> Floats:
    """A number for each run of `length` codes, (window, run): equal for equal runs, unique for those that do not vary.

    Signals that stay where an amplifier ends, and padding, are no sign of a common origin.
    """
    if length == 1:
        return codes
    rng = np.random.default_rng(length)
    weights = rng.standard_normal(length).tolist()
    count = codes.shape[1] - length + 1
    found = np.zeros((len(codes), count))
    low, high = np.full(found.shape, np.inf), np.full(found.shape, -np.inf)
    for place, weight in enumerate(weights):
        part = codes[:, place : place + count]
        found += weight * part
        np.minimum(low, part, out=low)
        np.maximum(high, part, out=high)
    still = low == high
    found[still] = np.random.default_rng([length, seed]).standard_normal(int(still.sum()))
    return found


def _steps(assembly: xr.DataArray) -> Floats:
    """One number for each step from a sample to the next, of some of the windows."""
    weights = np.random.default_rng(1).standard_normal(assembly.sizes["channel"]).tolist()
    found: list[Floats] = []
    for _, values in blocks(assembly):
        steps = np.diff(values.astype(np.float64), axis=2)
        size = steps.std(axis=(0, 2))
        coded = np.zeros((len(values), steps.shape[2]))
        for channel, weight in enumerate(weights):
            if size[channel] > 0:
                coded += weight * np.round(steps[:, channel] / size[channel] * FINE)
        found.append(coded.ravel()[: MOST_STEPS - sum(map(len, found))])
        if sum(map(len, found)) >= MOST_STEPS:
            break
    return np.concatenate(found)


MIN_COMMON: Final = 3
"""Samples that two windows may have in common by chance."""
COARSE: Final = 1e-3
"""Share of samples that repeat within their window, above which sharing samples says nothing."""
IN_MEMORY: Final = 1 << 22
"""Samples that are compared at a time."""
MOST_PARTS: Final = 256
PAIR: Final = np.dtype([("code", "<f8"), ("window", "<i4")])


def numbered_windows(assembly: xr.DataArray) -> Indices:
    """A number for each window, (presentation,): equal for windows of equal samples in single precision, and only those."""
    return found_once(assembly.transpose(*DIMS).values, "numbered windows", lambda: _numbered(assembly))


def _numbered(assembly: xr.DataArray) -> Indices:
    known: dict[bytes, int] = {}
    numbers = [
        known.setdefault(hashlib.sha256(window.astype("<f4").tobytes()).digest(), len(known))
        for _, values in blocks(assembly)
        for window in values
    ]
    return np.array(numbers, dtype=np.intp)


class Sharing:
    """Tested windows of each fold that have samples in common with those that training sees.

    A sample is equal to another one if all channels are, in single precision. Of few channels, and of whole numbers, runs
    of samples are compared (`run_length`). They say nothing where the windows are too short for that, and where values
    are so coarse (counts, spikes, paddings) that they repeat within a window. Looked for when it is first asked for, for
    all folds at once; what does not fit into memory is sorted in a temporary file.
    """

    def __init__(self, assembly: xr.DataArray, folds: Sequence[Fold]) -> None:
        self._assembly, self._folds = assembly, folds

    def hits(self, fold: int) -> Indices:
        """Tested windows that share at least three samples (or runs) with those that training sees, or all."""
        return self._hits[fold]

    @cached_property
    def _hits(self) -> list[Indices]:
        rows = b"|".join(part.tobytes() for fold in self._folds for part in fold)
        key = ("shared samples", hashlib.sha256(rows).hexdigest())
        try:
            return found_once(self._assembly.transpose(*DIMS).values, key, self._found)
        except OSError as error:
            raise DataError(
                f"samples of {len(self._assembly):,} windows cannot be sorted in {tempfile.gettempdir()} "
                f"({error.strerror}): make room there, or name another folder in TMPDIR"
            ) from error

    def _found(self) -> list[Indices]:
        windows, samples = self._assembly.sizes["presentation"], self._assembly.sizes["sample"]
        none = np.empty(0, dtype=np.intp)
        length = run_length(self._assembly)
        if length is None:
            return [none for _ in self._folds]
        samples -= length - 1
        counts = [np.zeros(len(fold.test), dtype=np.int64) for fold in self._folds]
        with ExitStack() as stack:
            parts = min(MOST_PARTS, -(-windows * samples // IN_MEMORY))
            files: list[IO[bytes]] = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(parts - 1)]
            repeated = 0
            kept: list[Array] = []
            for start, values in blocks(self._assembly):
                codes = runs(_codes(values), length, start)
                ordered = np.sort(codes, axis=1)
                repeated += int((ordered[:, 1:] == ordered[:, :-1]).sum())
                _deal(codes, start, files, kept)
            if repeated / (windows * (samples - 1)) > COARSE:
                return [none for _ in self._folds]
            for pairs in _each(files, kept):
                _count(pairs, windows, self._folds, counts)
        return [fold.test[count >= MIN_COMMON] for fold, count in zip(self._folds, counts, strict=True)]


def _codes(values: Array) -> Floats:
    """A number for every sample of every window, (window, sample): a fixed weighting of the channels."""
    weights = np.random.default_rng(0).standard_normal((values.shape[1],)).tolist()
    codes = np.zeros((values.shape[0], values.shape[2]))
    for channel, weight in enumerate(weights):
        codes += weight * values[:, channel].astype(np.float32).astype(np.float64)
    return codes


def _deal(codes: Array, start: int, files: Sequence[IO[bytes]], kept: list[Array]) -> None:
    """Put each code, with its window, where all equal ones go: to one of the files, or to what is kept."""
    pairs = np.empty(codes.size, dtype=PAIR)
    pairs["code"] = codes.ravel()
    pairs["window"] = np.repeat(np.arange(start, start + len(codes)), codes.shape[1])
    if not files:
        kept.append(pairs)
        return
    # The lower bits of a fraction are effectively random; adding zero maps both zeros to one.
    place = ((pairs["code"] + 0.0).view(np.uint64) >> np.uint64(8)) % np.uint64(len(files) + 1)
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(len(files) + 1), side="right")
    *dealt, rest = np.split(pairs[order], ends[:-1])
    for file, some in zip(files, dealt, strict=True):
        file.write(some.tobytes())
    kept.append(rest.copy())


def _each(files: Sequence[IO[bytes]], kept: list[Array]) -> Iterator[Array]:
    yield np.concatenate(kept)
    for file in files:
        file.seek(0)
        yield np.frombuffer(file.read(), dtype=PAIR)


def _count(pairs: Array, windows: int, folds: Sequence[Fold], counts: Sequence[Array]) -> None:
    """Add to `counts` how many samples of each tested window are among those that training sees."""
    _, equal, often = np.unique(pairs["code"], return_inverse=True, return_counts=True)
    shared = often[equal] > 1
    equal, window = equal[shared], pairs["window"][shared]
    if not len(equal):
        return
    for fold, count in zip(folds, counts, strict=True):
        seen, place = np.zeros(windows, dtype=bool), np.full(windows, -1)
        seen[fold.train] = seen[fold.validation] = True
        place[fold.test] = np.arange(len(fold.test))
        trained = np.zeros(len(often), dtype=bool)
        trained[equal[seen[window]]] = True
        tested = place[window]
        hit = (tested >= 0) & trained[equal]
        count += np.bincount(tested[hit], minlength=len(count))


SHOWN: Final = 3
"""Folds whose problems a message names."""
PARTS = ("train", "validation", "test")


def gate(
    folds: Sequence[Fold],
    assembly: xr.DataArray,
    *,
    disjoint: Sequence[str] = (),
    labels: Strings | None = None,
    waive: Sequence[str] = (),
    labelled: bool = False,
) -> None:
    """Pass if every fold keeps its test part apart from all that the training sees, validation included.

    Checked: the three parts share no row and none but validation is empty; no value of a `disjoint` coordinate is on
    both sides, nor one person in two spellings, nor one file under two people's names; no window overlaps with a tested
    one, in the time of a recording or by sharing samples with it; no window has the very samples of a tested one;
    every tested class of `labels` is trained, and at least two are. Windows for calibration are of the tested people; if
    they are `labelled`, none may overlap with a tested one either.

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
    taught = [
        fold._replace(validation=np.concatenate([fold.validation, fold.calibration]), calibration=NONE)
        if labelled
        else fold._replace(calibration=NONE)
        for fold in folds
    ]
    sharing = Sharing(assembly, taught) if "overlap" not in waive else None
    half_sample = 0.5 / float(assembly.attrs["sampling_rate"])
    problems: list[str] = []
    for number, fold in enumerate(folds):
        found = _rows(fold, assembly.sizes["presentation"])
        if found:
            problems += [f"fold {number}: {problem}" for problem in found]
            continue
        for name in disjoint:
            found += _shared(assembly, name, np.concatenate([fold.train, fold.validation]), fold.test)
        seen = np.concatenate([taught[number].train, taught[number].validation])
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
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        overlap = any("windows overlap" in problem for problem in problems)
        remedy = (
            ". Divide by blocks of time (`splits: {name: blocked, purge: SECONDS}`), make windows shorter than the time "
            "between events, or say `waive: [overlap]` in the splits, which every score then states"
        )
        said = "; ".join(problems[:SHOWN]) + more + (remedy if overlap else "")
        raise DataError("the splits let the test part leak: " + said)


def _rows(fold: Fold, count: int) -> list[str]:
    problems = [f"no {part} rows" for part in ("train", "test") if len(getattr(fold, part)) == 0]
    every = np.concatenate(fold[:3] if np.array_equal(fold.calibration, fold.test) else fold)
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
    recordings: Strings,
    starts: Floats,
    ends: Floats,
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


def _classes(labels: Strings, fold: Fold) -> list[str]:
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
    write_text(path, content.decode("utf-8"))
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
        named = [
            {part: [str(key) for key in fold.get(part, ())] for part in Fold._fields} for fold in content
        ]
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path.name} is not a partition: a JSON list of folds, each with train and test keys ({error})"
        ) from error
    row_of = {key: row for row, key in enumerate(keys)}
    lost = sorted({key for fold in named for key in chain(*fold.values()) if key not in row_of})
    if lost:
        raise DataError(f"{path.name} names {len(lost)} keys that no window has: {_first(lost)}")
    folds = [
        Fold(*(np.array(sorted(row_of[key] for key in rows), dtype=np.intp) for rows in fold.values()))
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
        {
            part: sorted(keys[row] for row in rows)
            for part, rows in fold._asdict().items()
            if part in PARTS or len(rows)
        }
        for fold in folds
    ]
    return (json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n").encode()


FEWEST: Final = 20
"""Windows below which a channel may agree with the labels by chance."""
MOST_WINDOWS: Final = 2000


def telling_channels(assembly: xr.DataArray, truth: Array) -> list[str]:
    """Names of the channels whose largest or smallest value in a window is a code of what the window shows.

    Of classes: one value for each class, another for each. Of numbers: a straight line, to nine digits. Up to 2,000 windows
    are looked at, evenly chosen; fewer than 20 tell nothing.

    Parameters
    ----------
    truth
        (window,) classes as texts, or numbers.
    """
    count = assembly.sizes["presentation"]
    if truth.ndim != 1 or count < FEWEST or truth.dtype.kind not in "USiuf":
        return []
    rows = (
        np.unique(np.linspace(0, count - 1, MOST_WINDOWS).astype(int))
        if count > MOST_WINDOWS
        else np.arange(count)
    )
    values = assembly.transpose(*DIMS).values
    ends = np.empty((2, len(rows), values.shape[1]))
    for place, row in enumerate(rows):
        ends[0, place], ends[1, place] = values[row].min(axis=1), values[row].max(axis=1)
        release(values)
    shown = truth[rows]
    codes = _is_code if shown.dtype.kind in "US" else _is_line
    names = assembly["channel_id"].values.astype(str)
    return [str(names[k]) for k in range(len(names)) if any(codes(end[:, k], shown) for end in ends)]


def _is_code(values: Array, labels: Array) -> bool:
    """Each class has one value, and no two classes the same."""
    classes = np.unique(labels)
    levels = np.unique(values)
    pairs = len(set(zip(values.tolist(), labels.tolist(), strict=True)))
    return len(classes) > 1 and len(levels) == len(classes) == pairs


def _is_line(values: Array, numbers: Array) -> bool:
    """The numbers lie on a straight line over the values."""
    if np.ptp(values) == 0 or np.ptp(numbers) == 0 or len(np.unique(numbers)) < 3:
        return False
    return abs(float(np.corrcoef(values.astype(float), numbers.astype(float))[0, 1])) > 1 - 1e-9
