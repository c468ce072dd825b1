"""Checks that no information about the test part is in the training part: shared samples, times, groups and labels."""

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

from neuroledger.data.arrays import Array, Floats, Indices, Strings, floats
from neuroledger.data.memory import found_once, release
from neuroledger.errors import DataError, some_of
from neuroledger.families.decoding.protocols.splits import NONE, Fold
from neuroledger.families.signals.signals import DIMS, blocks, extents
from neuroledger.store.files import write_text

__all__ = [
    "Sharing",
    "gate",
    "partition_sha256",
    "read_partition",
    "run_length",
    "runs",
    "label_channels",
    "telling_channels",
    "write_partition",
]


MOST_STEPS: Final = 1 << 20
"""Largest number of differences between consecutive samples that are used."""
BY_CHANCE: Final = 1e-6
"""Accepted probability that any two runs of all windows agree by chance."""
FINE: Final = 1e6
"""Steps are equal up to this fraction (1/FINE) of a channel's standard deviation."""


def run_length(assembly: xr.DataArray) -> int | None:
    r"""The number of consecutive samples that identifies a piece of signal; None if the windows are too short for it.

    One sample is enough for three or more channels of floating-point numbers. Fewer channels, and integers, repeat by
    chance: if a share :math:`q` of the steps between consecutive samples is equal, and there are :math:`n` samples, a run
    of :math:`\ln(n^2/10^{-6}) / \ln(1/q)` samples does not repeat, provided that steps are independent. Twice this length
    is used.
    """
    windows, channels, samples = (
        assembly.sizes[dim] for dim in ("presentation", "channel", "sample")
    )
    if samples < 3:
        return None
    if channels >= 3 and assembly.dtype.kind == "f":
        return 1
    steps = _steps(assembly)
    _, often = np.unique(steps, return_counts=True)
    pairs = len(steps) * (len(steps) - 1)
    equal = max(
        float((often * (often - 1.0)).sum()) / max(pairs, 1), 1.0 / max(pairs, 1)
    )
    if equal >= 1:
        return None
    length = 2 * math.ceil(
        math.log((windows * samples) ** 2 / BY_CHANCE) / -math.log(equal)
    )
    if length + 3 <= samples:
        return length
    return None


def runs(codes: Floats, length: int, seed: int) -> Floats:
    """A code for each run of `length` codes, (window, run): equal for equal runs, unique for constant runs.

    Constant runs come from saturation or padding, and are no evidence of a common origin.
    """
    if length == 1:
        return codes
    rng = np.random.default_rng(length)
    weights = rng.standard_normal(length).tolist()
    count = codes.shape[1] - length + 1
    codes_of_runs = np.zeros((len(codes), count))
    lowest = np.full(codes_of_runs.shape, np.inf)
    highest = np.full(codes_of_runs.shape, -np.inf)
    for place, weight in enumerate(weights):
        part = codes[:, place : place + count]
        codes_of_runs += weight * part
        np.minimum(lowest, part, out=lowest)
        np.maximum(highest, part, out=highest)
    constant = lowest == highest
    codes_of_runs[constant] = np.random.default_rng([length, seed]).standard_normal(
        int(constant.sum())
    )
    return codes_of_runs


def _steps(assembly: xr.DataArray) -> Floats:
    """One number for each difference between consecutive samples, of some of the windows."""
    weights = (
        np.random.default_rng(1).standard_normal(assembly.sizes["channel"]).tolist()
    )
    steps_of_windows: list[Floats] = []
    for _, values in blocks(assembly):
        steps = np.diff(values.astype(np.float64), axis=2)
        size = steps.std(axis=(0, 2))
        coded = np.zeros((len(values), steps.shape[2]))
        for channel, weight in enumerate(weights):
            if size[channel] > 0:
                coded += weight * np.round(steps[:, channel] / size[channel] * FINE)
        steps_of_windows.append(
            coded.ravel()[: MOST_STEPS - sum(map(len, steps_of_windows))]
        )
        if sum(map(len, steps_of_windows)) >= MOST_STEPS:
            break
    return np.concatenate(steps_of_windows)


MIN_COMMON: Final = 3
"""Samples that two windows may have in common by chance."""
COARSE: Final = 1e-3
"""Shared samples are ignored if a larger share of the samples repeats within its window."""
IN_MEMORY: Final = 1 << 22
"""Number of samples that are compared at a time."""
MOST_PARTS: Final = 256
PAIR: Final = np.dtype([("code", "<f8"), ("window", "<i4")])


def numbered_windows(assembly: xr.DataArray) -> Indices:
    """A number for each window, (presentation,): equal if and only if their samples are equal in single precision."""
    return found_once(
        assembly.transpose(*DIMS).values,
        "numbered windows",
        lambda: _numbered(assembly),
    )


def _numbered(assembly: xr.DataArray) -> Indices:
    known: dict[bytes, int] = {}
    numbers = [
        known.setdefault(
            hashlib.sha256(window.astype("<f4").tobytes()).digest(), len(known)
        )
        for _, values in blocks(assembly)
        for window in values
    ]
    return np.array(numbers, dtype=np.intp)


class Sharing:
    """Test windows of each fold that share samples with windows of its training or validation part.

    Two samples are equal if all channels are equal in single precision. For few channels and for integers, runs of samples
    are compared (`run_length`). No window is reported if windows are too short for that, or if values are so coarse (counts,
    spikes, padding) that they repeat within a window. The comparison is done on first use, for all folds at once; data
    that exceed the memory are sorted in temporary files.
    """

    def __init__(self, assembly: xr.DataArray, folds: Sequence[Fold]) -> None:
        self._assembly, self._folds = assembly, folds

    def hits(self, fold: int) -> Indices:
        """Test windows that share at least three samples (or runs) with the training or validation part."""
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
        windows = self._assembly.sizes["presentation"]
        samples = self._assembly.sizes["sample"]
        nothing = np.empty(0, dtype=np.intp)
        length = run_length(self._assembly)
        if length is None:
            return [nothing for _ in self._folds]
        samples -= length - 1
        counts = [np.zeros(len(fold.test), dtype=np.int64) for fold in self._folds]
        with ExitStack() as stack:
            parts = min(MOST_PARTS, -(-windows * samples // IN_MEMORY))
            files: list[IO[bytes]] = [
                stack.enter_context(tempfile.TemporaryFile()) for _ in range(parts - 1)
            ]
            repeated = 0
            in_memory: list[Array] = []
            for start, values in blocks(self._assembly):
                codes = runs(_codes(values), length, start)
                ordered = np.sort(codes, axis=1)
                repeated += int((ordered[:, 1:] == ordered[:, :-1]).sum())
                _distribute(codes, start, files, in_memory)
            if repeated / (windows * (samples - 1)) > COARSE:
                return [nothing for _ in self._folds]
            for pairs in _partitions(files, in_memory):
                _count_shared(pairs, windows, self._folds, counts)
        return [
            fold.test[count >= MIN_COMMON]
            for fold, count in zip(self._folds, counts, strict=True)
        ]


def _codes(values: Array) -> Floats:
    """A code for every sample of every window, (window, sample): a fixed weighted sum of the channels."""
    weights = np.random.default_rng(0).standard_normal((values.shape[1],)).tolist()
    codes = np.zeros((values.shape[0], values.shape[2]))
    for channel, weight in enumerate(weights):
        codes += weight * values[:, channel].astype(np.float32).astype(np.float64)
    return codes


def _distribute(
    codes: Array, start: int, files: Sequence[IO[bytes]], in_memory: list[Array]
) -> None:
    """Distribute codes with their windows over the files and the memory, so that equal codes are together."""
    pairs = np.empty(codes.size, dtype=PAIR)
    pairs["code"] = codes.ravel()
    pairs["window"] = np.repeat(np.arange(start, start + len(codes)), codes.shape[1])
    if not files:
        in_memory.append(pairs)
        return
    # The lower bits of a fraction are effectively random; adding zero maps both zeros to one.
    place = ((pairs["code"] + 0.0).view(np.uint64) >> np.uint64(8)) % np.uint64(
        len(files) + 1
    )
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(len(files) + 1), side="right")
    *dealt, rest = np.split(pairs[order], ends[:-1])
    for file, part in zip(files, dealt, strict=True):
        file.write(part.tobytes())
    in_memory.append(rest.copy())


def _partitions(files: Sequence[IO[bytes]], in_memory: list[Array]) -> Iterator[Array]:
    yield np.concatenate(in_memory)
    for file in files:
        file.seek(0)
        yield np.frombuffer(file.read(), dtype=PAIR)


def _count_shared(
    pairs: Array, windows: int, folds: Sequence[Fold], counts: Sequence[Array]
) -> None:
    """Add to `counts` the number of samples of each test window that also occur in the training or validation part."""
    _, equal, often = np.unique(pairs["code"], return_inverse=True, return_counts=True)
    shared = often[equal] > 1
    equal = equal[shared]
    window = pairs["window"][shared]
    if not len(equal):
        return
    for fold, count in zip(folds, counts, strict=True):
        seen = np.zeros(windows, dtype=bool)
        place = np.full(windows, -1)
        seen[fold.train] = seen[fold.validation] = True
        place[fold.test] = np.arange(len(fold.test))
        trained = np.zeros(len(often), dtype=bool)
        trained[equal[seen[window]]] = True
        tested = place[window]
        hit = (tested >= 0) & trained[equal]
        count += np.bincount(tested[hit], minlength=len(count))


SHOWN: Final = 3
"""Number of problems that a message names."""
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
    """Check that no fold leaks its test part into training or validation.

    The checks: the three parts share no row, and only the validation part may be empty; no value of a `disjoint`
    coordinate is on both sides, nor one subject in two spellings, nor one file under the names of two subjects; no
    training window overlaps with a test window in time or shares samples with it; no training window has the same samples
    as a test window; all tested classes of `labels` are trained, and at least two classes. Windows for calibration belong to
    the tested subjects; if they are `labelled`, none may overlap with a test window either.

    Raises
    ------
    DataError
        A check failed; the message names each failed check with the fold and the first overlapping items.
    """
    if not folds:
        raise DataError("splits: no fold was drawn")
    starts, ends = extents(assembly)
    recordings = assembly["recording"].values.astype(str)
    windows = (
        numbered_windows(assembly)
        if not {"duplicates", "overlap"} <= set(waive)
        else None
    )
    training = [
        fold._replace(
            validation=np.concatenate([fold.validation, fold.calibration]),
            calibration=NONE,
        )
        if labelled
        else fold._replace(calibration=NONE)
        for fold in folds
    ]
    sharing = None
    if "overlap" not in waive:
        sharing = Sharing(assembly, training)
    half_sample = 0.5 / float(assembly.attrs["sampling_rate"])
    problems: list[str] = []
    for number, fold in enumerate(folds):
        fold_problems = _row_problems(fold, assembly.sizes["presentation"])
        if fold_problems:
            problems += [f"fold {number}: {problem}" for problem in fold_problems]
            continue
        for name in disjoint:
            fold_problems += _shared_values(
                assembly, name, np.concatenate([fold.train, fold.validation]), fold.test
            )
        trained_rows = np.concatenate(
            [training[number].train, training[number].validation]
        )
        repeated = np.empty(0, dtype=np.intp)
        if windows is not None:
            repeated = fold.test[np.isin(windows[fold.test], windows[trained_rows])]
        if sharing is not None:
            hits = _overlapping_windows(
                recordings, starts, ends, half_sample, trained_rows, fold.test
            )
            fold_problems += hits or _common_samples(
                assembly, np.setdiff1d(sharing.hits(number), repeated)
            )
        if len(repeated) and "duplicates" not in waive:
            names = assembly["stimulus_id"].values.astype(str)[repeated].tolist()
            fold_problems += [
                f"{len(repeated)} tested windows have the samples of a trained one: {some_of(names, 3)}"
            ]
        fold_problems += [] if labels is None else _class_problems(labels, fold)
        problems += [f"fold {number}: {problem}" for problem in fold_problems]
    if problems:
        if len(problems) > SHOWN:
            more = f"; and {len(problems) - SHOWN} more"
        else:
            more = ""
        overlap = any("windows overlap" in problem for problem in problems)
        remedy = (
            ". Divide by blocks of time (`splits: {name: blocked, purge: SECONDS}`), make windows shorter than the time "
            "between events, or say `waive: [overlap]` in the splits, which every score then states"
        )
        summary = "; ".join(problems[:SHOWN]) + more + (remedy if overlap else "")
        raise DataError("the splits let the test part leak: " + summary)


def _row_problems(fold: Fold, count: int) -> list[str]:
    problems = [
        f"no {part} rows" for part in ("train", "test") if len(getattr(fold, part)) == 0
    ]
    rows = np.concatenate(
        fold[:3] if np.array_equal(fold.calibration, fold.test) else fold
    )
    if len(rows) and (rows.min() < 0 or rows.max() >= count):
        return [*problems, f"rows outside 0…{count - 1}"]
    unique, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        doubled = unique[counts > 1].astype(str).tolist()
        problems.append(
            f"{len(doubled)} rows in two parts or twice: {some_of(doubled, 3)}"
        )
    return problems


def _shared_values(
    assembly: xr.DataArray, name: str, seen: Indices, test: Indices
) -> list[str]:
    """Values of a coordinate that occur on both sides; subjects also in another spelling."""
    values = assembly[name].values.astype(str)
    trained = set(values[seen].tolist())
    tested = set(values[test].tolist())
    shared = sorted(trained & tested)
    if shared:
        return [f"{name} on both sides: {some_of(shared, 3)}"]
    if name != "subject":
        return []
    plain = {_normalised_subject(value): value for value in trained}
    spellings = [
        f"{value!r} and {plain[_normalised_subject(value)]!r}"
        for value in sorted(tested)
        if _normalised_subject(value) in plain
    ]
    problems = (
        [f"one subject in two spellings on both sides: {some_of(spellings, 3)}"]
        if spellings
        else []
    )
    if "recording_sha256" in assembly.coords:
        files = assembly["recording_sha256"].values.astype(str)
        same = sorted(set(files[seen].tolist()) & set(files[test].tolist()))
        owners = [sorted(set(values[files == file].tolist())) for file in same]
        names = [" and ".join(subjects) for subjects in owners if len(subjects) > 1]
        problems += (
            [f"one recording under the names of several subjects: {some_of(names, 3)}"]
            if names
            else []
        )
    return problems


def _normalised_subject(subject: str) -> str:
    """A subject's name in a normal form: `sub-01`, `SUB-1`, `01` and `1` are equal."""
    plain = unicodedata.normalize("NFKC", subject).strip().casefold()
    return re.sub(
        r"^0+(?=\d)", "", re.sub(r"^(?:subject|subj|sub)[-_ ]*(?=\S)", "", plain)
    )


def _common_samples(assembly: xr.DataArray, hits: Indices) -> list[str]:
    """The problem of test windows that share samples with training windows, if there are any."""
    if not len(hits):
        return []
    names = assembly["stimulus_id"].values.astype(str)[hits].tolist()
    return [
        f"{len(hits)} tested windows overlap with trained ones, whose samples they hold: {some_of(names, 3)}"
    ]


def _overlapping_windows(
    recordings: Strings,
    starts: Floats,
    ends: Floats,
    slack: float,
    seen: Indices,
    test: Indices,
) -> list[str]:
    """The problem of test windows that overlap with a training window in time, if there are any."""
    # Among the training windows that start before the end of a test window, only the latest end matters.
    hits: list[int] = []
    for recording in np.unique(recordings[test]):
        train = seen[recordings[seen] == recording]
        if len(train) == 0:
            continue
        train = train[np.argsort(starts[train], kind="stable")]
        latest = np.maximum.accumulate(ends[train]) - slack
        tested = test[recordings[test] == recording]
        before = np.searchsorted(starts[train], ends[tested] - slack, side="left")
        hits += tested[
            (before > 0) & (latest[np.maximum(before - 1, 0)] > starts[tested])
        ].tolist()
    if not hits:
        return []
    places = [
        f"{recordings[row]} at {starts[row]:.2f}–{ends[row]:.2f} s" for row in hits
    ]
    return [
        f"{len(hits)} tested windows overlap in time with trained ones: {some_of(places, 3)}"
    ]


def _class_problems(labels: Strings, fold: Fold) -> list[str]:
    trained = set(labels[fold.train].tolist())
    tested = set(labels[fold.test].tolist())
    problems = (
        [f"classes tested but never trained: {some_of(sorted(tested - trained), 3)}"]
        if tested - trained
        else []
    )
    return problems + (
        ["fewer than two classes to train on"] if len(trained) < 2 else []
    )


def partition_sha256(folds: Sequence[Fold], keys: Sequence[str]) -> str:
    """SHA-256 over the keys in each part of each fold, independent of the order of rows."""
    return hashlib.sha256(_canonical(folds, keys)).hexdigest()


def write_partition(path: Path, folds: Sequence[Fold], keys: Sequence[str]) -> str:
    """Write the partition as JSON (a list of folds, each `part: [key, …]`) and return its SHA-256.

    Raises
    ------
    DataError
        The keys are not unique.
    """
    if len(set(keys)) != len(keys):
        raise DataError("a partition cannot be written: its keys are not unique")
    content = _canonical(folds, keys)
    write_text(path, content.decode("utf-8"))
    return hashlib.sha256(content).hexdigest()


def read_partition(
    path: Path, keys: Sequence[str], *, sha256: str | None = None
) -> list[Fold]:
    """Read the folds of a partition file, as numbers of the rows with these `keys`.

    Raises
    ------
    DataError
        The file is not a list of folds, contains unknown keys, or its SHA-256 differs from the pinned one.
    """
    try:
        content = json.loads(path.read_bytes())
        keys_of_folds = [
            {part: list(map(str, fold.get(part, ()))) for part in Fold._fields}
            for fold in content
        ]
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(
            f"{path.name} is not a partition: a JSON list of folds, each with train and test keys ({error})"
        ) from error
    row_of = {key: row for row, key in enumerate(keys)}
    unknown = sorted(
        {
            key
            for fold in keys_of_folds
            for key in chain(*fold.values())
            if key not in row_of
        }
    )
    if unknown:
        raise DataError(
            f"{path.name} names {len(unknown)} keys that no window has: {some_of(unknown, 3)}"
        )
    folds = [
        Fold(
            *(
                np.array(sorted(row_of[key] for key in rows), dtype=np.intp)
                for rows in fold.values()
            )
        )
        for fold in keys_of_folds
    ]
    digest = partition_sha256(folds, keys)
    if sha256 is not None and digest != sha256:
        raise DataError(
            f"{path.name}: the partition's SHA-256 is {digest}, pinned is {sha256}; pin the new one or restore the file"
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
    return (
        json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        + "\n"
    ).encode()


FEWEST: Final = 20
"""With fewer windows, a channel may encode the labels by chance."""
MOST_WINDOWS: Final = 2000
TELLS: Final = (0.99, 0.999, 0.999)
"""Areas under the curve from which one threshold on the mean, the smallest or the largest sample of a channel tells a class.
Extremes grow with the power of a channel, which rhythms of the brain change: they must tell almost every window."""
FEWEST_OF_CLASS: Final = 5


def label_channels(assembly: xr.DataArray, truth: Array) -> list[str]:
    """Names of the channels whose largest or smallest value in a window encodes the target.

    For classes, each class has one distinct value; for numbers, the relation is linear to nine digits. At most 2,000 evenly
    spaced windows are used; with fewer than 20 windows, no channel is reported.

    Parameters
    ----------
    truth
        Targets, (window,): classes as text, or numbers.
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
        ends[0, place], ends[1, place] = (
            values[row].min(axis=1),
            values[row].max(axis=1),
        )
        release(values)
    labels = truth[rows]
    encodes = _is_code if labels.dtype.kind in "US" else _is_linear
    names = assembly["channel_id"].values.astype(str)
    return [
        str(names[k])
        for k in range(len(names))
        if any(encodes(end[:, k], labels) for end in ends)
    ]


def telling_channels(
    assembly: xr.DataArray, labels: Array, rows: Indices | None = None
) -> list[str]:
    """Names of the channels of which one value and one threshold tell a class from the others.

    The value is the mean, the smallest or the largest sample of a window. A channel tells a class if the area under the
    curve is at least `TELLS`, for values that also are the answer with a little noise. At most 2,000 evenly spaced windows
    are used; with fewer than 20, or fewer than `FEWEST_OF_CLASS` of a class, no channel is reported.

    Parameters
    ----------
    labels
        Classes as text, (window,).
    rows
        The windows to look at, such as the training part; by default all.
    """
    if rows is None:
        rows = np.arange(assembly.sizes["presentation"])
    classes, sizes = np.unique(labels[rows], return_counts=True)
    if len(rows) < FEWEST or len(classes) < 2 or sizes.min() < FEWEST_OF_CLASS:
        return []
    rows = rows[
        np.unique(
            np.linspace(0, len(rows) - 1, min(len(rows), MOST_WINDOWS)).astype(int)
        )
    ]
    values = assembly.transpose(*DIMS).values
    summaries = np.empty((3, len(rows), values.shape[1]))
    for place, row in enumerate(rows):
        window = floats(values[row])
        summaries[:, place] = (
            window.mean(axis=1),
            window.min(axis=1),
            window.max(axis=1),
        )
        release(values)
    names = assembly["channel_id"].values.astype(str)
    # Where most channels tell the classes, the classes differ plainly, and no channel was written.
    telling = [
        k
        for k in range(len(names))
        if any(
            _tells(each[:, k], labels[rows], least)
            for each, least in zip(summaries, TELLS, strict=True)
        )
    ]
    if 2 * len(telling) <= max(len(names), 2):
        return [str(names[k]) for k in telling]
    return []


def _tells(values: Floats, labels: Array, least: float) -> bool:
    """Whether thresholds on the values tell every class but at most one from the others, with at least this area."""
    from scipy.stats import rankdata

    ranks = rankdata(values)
    classes, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        return False
    totals = np.bincount(codes.ravel(), weights=ranks)
    others = len(values) - sizes
    area = (totals - sizes * (sizes + 1) / 2) / (sizes * others)
    told = np.maximum(area, 1 - area) >= least
    return bool(told.sum() >= max(len(classes) - 1, 1))


def _is_code(values: Array, labels: Array) -> bool:
    """Whether each class has exactly one value, different from those of the others."""
    classes = np.unique(labels)
    levels = np.unique(values)
    pairs = len(set(zip(values.tolist(), labels.tolist(), strict=True)))
    return len(classes) > 1 and len(levels) == len(classes) == pairs


def _is_linear(values: Array, numbers: Array) -> bool:
    """Whether the numbers are a linear function of the values."""
    if np.ptp(values) == 0 or np.ptp(numbers) == 0 or len(np.unique(numbers)) < 3:
        return False
    return (
        abs(float(np.corrcoef(values.astype(float), numbers.astype(float))[0, 1]))
        > 1 - 1e-9
    )
