"""Which windows hold each other's samples: found without knowing where they were cut, and without all of them in memory."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.lazy_rows import found_once
from neuroledger.errors import DataError
from neuroledger.families.decoding.protocols.min_unique_run import run_length, runs
from neuroledger.families.decoding.protocols.splits import Fold, Indices
from neuroledger.families.signals.signals import DIMS, blocks

__all__ = ["MIN_COMMON", "Sharing", "numbered_windows"]

Array = npt.NDArray[Any]

MIN_COMMON: Final = 3
"""Samples that two windows may have in common by chance."""
COARSE: Final = 1e-3
"""Share of samples that repeat within their window, above which sharing samples says nothing."""
IN_MEMORY: Final = 1 << 22
"""Samples that are compared at a time."""
MOST_PARTS: Final = 256
PAIR: Final = np.dtype([("code", "<f8"), ("window", "<i4")])


def numbered_windows(assembly: xr.DataArray) -> npt.NDArray[np.intp]:
    """A number for each window, (presentation,): equal for windows of equal samples in single precision, and only those."""
    return found_once(assembly.transpose(*DIMS).values, "numbered windows", lambda: _numbered(assembly))


def _numbered(assembly: xr.DataArray) -> npt.NDArray[np.intp]:
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


def _codes(values: Array) -> npt.NDArray[np.float64]:
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
    # The lower bits of a fraction are as good as random; adding zero makes both zeros one.
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
