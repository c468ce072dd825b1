"""Stream the activations of all layers of a model in one pass over the stimuli, check every batch, and sum layers up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import numpy as np

from neuroledger.data.arrays import Array, Indices
from neuroledger.data.memory import Deferred
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError
from neuroledger.store.store import Entry, Written

PROBE: Final = 2
MAX_BATCH: Final = 64
BATCH_BYTES: Final = 256 * 1024**2
REPEATABLE: Final = 1e-5
COMPANY: Final = 1e-2
"""Largest relative difference between batch sizes that is accepted: the rounding error of half precision."""


class Trial(NamedTuple):
    """Zero-based number of a presentation of a stimulus, and the number of presentations."""

    number: int = 0
    of: int = 1


class Extract(Protocol):
    """A function that computes activations from the stimuli, the layers and the trial, and from nothing else.

    An optional method ``ahead(stimuli, stimulus_ids)`` receives the next stimuli while a batch is computed.
    """

    def __call__(
        self,
        stimuli: StimulusSet,
        stimulus_ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> Mapping[str, Array]:
        """Return layer name → array (stimulus, …) for ``stimulus_ids``, in that order."""
        ...


@runtime_checkable
class Writing(Protocol):
    """An :class:`Extract` that can write activations where they are collected, which saves their copies."""

    def write(
        self,
        stimuli: StimulusSet,
        stimulus_ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
        places: Mapping[str, Array],
    ) -> Mapping[str, Array]:
        """Return the same as a call; an answer of the shape and type of its layer's place is written there."""
        ...


class Passes(Protocol):
    """Starts a pass over all stimuli, and yields its batches, layer → (presentation, …)."""

    def __call__(
        self, places: Mapping[str, Array] | None = None
    ) -> Iterator[Mapping[str, Array]]:
        """A batch may be a part of ``places``, arrays for the presentations of the whole pass, and is written already."""
        ...


@dataclass(frozen=True)
class Probe:
    """Properties of the activations, measured on the first stimuli before a pass over all of them."""

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype[Any]]
    seconds: float
    """Time per stimulus."""
    answers: Mapping[str, Array]
    """The activations of the first stimuli, which are compared with those after the pass."""

    @property
    def bytes_per_stimulus(self) -> int:
        """Bytes that all layers together take for one stimulus."""
        return sum(
            int(np.prod(shape)) * self.dtypes[layer].itemsize
            for layer, shape in self.shapes.items()
        )


class Store(Protocol):
    """Stores activations by content, so that benchmarks, layers and regions share one pass."""

    def get(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        layers: Sequence[str],
    ) -> Mapping[str, Array]:
        """Return the layers that are already stored, as arrays (presentation, …) that may be memory-mapped."""
        ...

    def computing(
        self, identity: Mapping[str, object], stimuli: StimulusSet
    ) -> AbstractContextManager[None]:
        """Return the lock that serialises the computation of these activations between processes."""
        ...

    def put(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        probe: Probe,
        rows: int,
        passes: Passes,
        *,
        model: str,
    ) -> Mapping[str, Array]:
        """Store a pass of ``rows`` presentations, and return the layers as ``get`` does; ``model`` is its name."""
        ...

    def join(self, arrays: Sequence[Array]) -> Array:
        """Concatenate arrays (presentation, feature) along the features."""
        ...


@dataclass(frozen=True)
class Summary:
    """What a comparison needs of a layer instead of its activations, such as a matrix of stimuli by stimuli.

    Attributes
    ----------
    kind
        Kind of its entries in the store.
    made_of
        Plain data that determines it, beside the activations.
    write
        Writes its files from the activations (presentation, feature) into a folder.
    """

    kind: str
    made_of: Mapping[str, object]
    write: Callable[[Array, Path], Written]


class Form(NamedTuple):
    """What is known of a layer before a pass: shape of its answer to one stimulus, and type.

    Of a model in memory, also its answers to the first stimuli, and a text that is new whenever these were asked for.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    first: Array | None = None
    asked: str = ""


@runtime_checkable
class SummaryStore(Store, Protocol):
    """A store that also keeps summaries of layers, so that activations need not be kept.

    A layer with at most as many features as presentations has no summary: its activations are smaller.
    """

    def forms(
        self, identity: Mapping[str, object], stimuli: StimulusSet, layer: str
    ) -> Form | None:
        """Return what is known of a layer before a pass, or None."""
        ...

    def keep_forms(
        self, identity: Mapping[str, object], stimuli: StimulusSet, probe: Probe
    ) -> None:
        """Keep what a probe found, in place of what is known."""
        ...

    def summaries(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        layers: Sequence[str],
        made: Summary,
    ) -> Mapping[str, Entry | None]:
        """Return the layers that are already summed up; None for one whose activations are kept instead."""
        ...

    def sum_up(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        probe: Probe,
        rows: int,
        passes: Passes,
        made: Summary,
        *,
        model: str,
    ) -> None:
        """Keep the summary of each layer of a pass of ``rows`` presentations, and no activations."""
        ...

    def sum_up_kept(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        layer: str,
        values: Array,
        made: Summary,
    ) -> None:
        """Keep the summary of a layer whose activations (presentation, …) are kept."""
        ...


class Recorded(Deferred):
    """Activations of one layer (presentation, feature), of which only a summary may have been kept.

    The values are read from the store or, if they are not there, recorded in a pass that stores them. ``rows`` are those
    of a part of the presentations; None for all.
    """

    def __init__(
        self,
        whole: Deferred,
        summary: Callable[[Summary], Entry | None],
        rows: Indices | None = None,
    ) -> None:
        if rows is None:
            shape, content = whole.shape, whole.content
        else:
            shape = (len(rows), *whole.shape[1:])
            content = f"{whole.content} {rows.tobytes().hex()}"
        super().__init__(shape, whole.dtype, self._read, content)
        self.rows = rows
        self.summary = summary
        self._whole = whole

    def _read(self) -> Array:
        values = np.asarray(self._whole)
        return values if self.rows is None else values[self.rows]

    def part(self, rows: Indices) -> Recorded:
        """The same rows, of which a summary follows from that of all rows."""
        at = rows if self.rows is None else self.rows[rows]
        return Recorded(self._whole, self.summary, at)


def as_recorded(values: object) -> Recorded | None:
    """Return values that are activations of a layer, of which a summary may do; None for all others."""
    return values if isinstance(values, Recorded) else None


class Repeated(Deferred):
    """Responses that are the same in every time bin: (presentation, feature, time bin)."""

    def __init__(self, once: Recorded, bins: int) -> None:
        shape = (*once.shape, bins)
        super().__init__(shape, once.dtype, self._read)
        self._once = once

    def _read(self) -> Array:
        return np.broadcast_to(np.asarray(self._once)[:, :, None], self.shape)

    def part(self, rows: Indices) -> Repeated:
        """The same rows, in every time bin."""
        return Repeated(self._once.part(rows), self.shape[2])

    def __getitem__(self, at: Any) -> Any:
        """The values there; those of one time bin stay deferred."""
        chosen = self.chosen(at)
        if chosen is not None and chosen[:2] == (None, None) and chosen[2] is not None:
            bin = chosen[2]
            if (
                isinstance(bin, int | np.integer)
                and -self.shape[2] <= bin < self.shape[2]
            ):
                return self._once
        return super().__getitem__(at)


def probe(
    extract: Extract,
    stimuli: StimulusSet,
    layers: Sequence[str],
    *,
    model: str,
    stochastic: bool = False,
) -> Probe:
    """Measure shapes, types and time per stimulus by showing the first stimuli twice.

    Raises
    ------
    ModelError
        A layer is missing, an activation is not a finite number, or the two answers differ.
    """
    ids = stimuli.ids[:PROBE]
    first = checked(extract(stimuli, ids, layers, Trial()), ids, layers, model)
    started = time.perf_counter()
    second = checked(extract(stimuli, ids, layers, Trial()), ids, layers, model)
    seconds = (time.perf_counter() - started) / len(ids)
    if not stochastic:
        _require_repeatable(first, second, model)
    return Probe(
        shapes={layer: tuple(values.shape[1:]) for layer, values in first.items()},
        dtypes={layer: values.dtype for layer, values in first.items()},
        seconds=seconds,
        answers=first,
    )


def stream(
    extract: Extract,
    stimuli: StimulusSet,
    probed: Probe,
    places: Mapping[str, Array] | None = None,
    *,
    model: str,
    trials: int = 1,
    batch: int | None = None,
    stochastic: bool = False,
) -> Iterator[Mapping[str, Array]]:
    """Yield checked batches, layer → (presentation, …): all stimuli of the first trial, then of the second, and so on.

    If ``batch`` is None, it is chosen so that one batch of all layers takes at most ``BATCH_BYTES``. After the last
    batch the first stimuli are shown once more: a model whose answer depends on earlier stimuli is refused. Batches are
    parts of ``places``, arrays for all presentations, where ``extract`` can write there.

    Raises
    ------
    ModelError
        An answer has a different shape than the first one, is not finite, or changed between calls.
    """
    ids = stimuli.ids
    layers = list(probed.shapes)
    size = batch or batch_size(probed)
    ahead = getattr(extract, "ahead", None)
    parts = [
        (trial, ids[at : at + size])
        for trial in range(trials)
        for at in range(0, len(ids), size)
    ]
    shown = 0
    for number, (trial, part) in enumerate(parts, start=1):
        if ahead is not None and number < len(parts):
            ahead(stimuli, parts[number][1])
        now = Trial(trial, trials)
        if places is None or not isinstance(extract, Writing):
            answer = extract(stimuli, part, layers, now)
        else:
            rows = slice(shown, shown + len(part))
            own = {layer: array[rows] for layer, array in places.items()}
            answer = extract.write(stimuli, part, layers, now, own)
        shown += len(part)
        values = checked(answer, part, layers, model)
        _require_shape(values, probed, part, model)
        if number == 1 and size >= PROBE and not stochastic:
            _require_batch_independence(probed.answers, values, model)
        yield values
        del values, answer  # their memory is used again by the next batch
    if not stochastic:
        part = ids[:PROBE]
        again = checked(extract(stimuli, part, layers, Trial()), part, layers, model)
        _require_repeatable(probed.answers, again, model)


def batch_size(probed: Probe) -> int:
    """Return the number of stimuli that fill ``BATCH_BYTES``, at most ``MAX_BATCH``."""
    return max(1, min(MAX_BATCH, BATCH_BYTES // max(1, probed.bytes_per_stimulus)))


def batch_bytes(probed: Probe) -> int:
    """Return the memory for one batch of all layers, counted twice: the model's output and the copy being written."""
    return 2 * batch_size(probed) * probed.bytes_per_stimulus


def collect(
    passes: Passes,
    probed: Probe,
    rows: int,
    new: Callable[[tuple[int, ...], np.dtype[Any]], Array] = np.empty,
) -> dict[str, Array]:
    """Return the batches of a pass as arrays made by ``new`` (default: in memory), layer → (presentation, …)."""
    arrays = {
        layer: new((rows, *shape), probed.dtypes[layer])
        for layer, shape in probed.shapes.items()
    }
    filled = 0
    for values in passes(arrays):
        count = len(next(iter(values.values())))
        for layer, array in values.items():
            place = arrays[layer][filled : filled + count]
            if not np.may_share_memory(place, array):
                place[...] = array
        filled += count
        del values, array  # see `stream`
    return arrays


def checked(
    answer: Mapping[str, Array], ids: Sequence[str], layers: Sequence[str], model: str
) -> dict[str, Array]:
    """Return the answer in the order of ``layers``; refuse one that lacks a layer, a stimulus or finite numbers."""
    values = {}
    for layer in layers:
        if layer not in answer:
            raise ModelError(
                f"model {model!r} returned no layer {layer!r}, only {', '.join(sorted(answer))}"
            )
        array = np.asarray(answer[layer])
        if array.ndim < 2 or len(array) != len(ids):
            raise ModelError(
                f"model {model!r}, layer {layer!r}: expected an array ({len(ids)} stimuli, features), got {array.shape}"
            )
        if array.dtype.kind not in "fiub":
            raise ModelError(
                f"model {model!r}, layer {layer!r}: activations are {array.dtype}, not real numbers"
            )
        if array.dtype.kind == "f" and not _is_finite(array):
            rows = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
            raise ModelError(
                f"model {model!r}, layer {layer!r}: NaN or infinite activations for {int(rows.sum())} of {len(ids)} "
                f"stimuli, first {ids[int(np.argmax(rows))]!r}: check its weights and its preprocessing"
            )
        values[layer] = array
    return values


def _is_finite(array: Array) -> bool:
    """Whether all values are finite: a finite sum, which needs no memory, shows it."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.add.reduce(array, axis=None)
    return bool(np.isfinite(total)) or bool(np.isfinite(array).all())


def _require_shape(
    values: Mapping[str, Array], probed: Probe, ids: Sequence[str], model: str
) -> None:
    for layer, array in values.items():
        if array.shape[1:] != tuple(probed.shapes[layer]):
            raise ModelError(
                f"model {model!r}, layer {layer!r}: {array.shape[1:]} features for stimuli {ids[0]!r}…{ids[-1]!r}, but "
                f"{tuple(probed.shapes[layer])} for earlier ones: choose a preprocessing that makes all images the same size"
            )


def _require_repeatable(
    before: Mapping[str, Array], after: Mapping[str, Array], model: str
) -> None:
    changed = differing(before, after)
    if changed is not None:
        share = _relative_change(before[changed], after[changed])
        raise ModelError(
            f"model {model!r}, layer {changed!r} answered the same stimuli differently (by {share:.2g} of its largest "
            "response): put it in evaluation mode, remove its state between calls, or declare it stochastic"
        )


def _require_batch_independence(
    few: Mapping[str, Array], many: Mapping[str, Array], model: str
) -> None:
    """Refuse a model that answers the first stimuli differently in a small batch and in a large one."""
    for layer, array in few.items():
        share = _relative_change(array, many[layer][: len(array)])
        if share > COMPANY:
            raise ModelError(
                f"model {model!r}, layer {layer!r} answers a stimulus differently when others are shown with it (by "
                f"{share:.2g} of its largest response), so its score would depend on the batch: remove what is computed "
                "over the batch, show one stimulus at a time with `batch: 1`, or declare it stochastic if it draws at random"
            )


def differing(before: Mapping[str, Array], after: Mapping[str, Array]) -> str | None:
    """Return the first layer whose answer changed by more than rounding, or None."""
    for layer, array in before.items():
        if _relative_change(array, after[layer]) > REPEATABLE:
            return layer
    return None


def _relative_change(before: Array, after: Array) -> float:
    """Return the largest difference relative to the largest value before; infinite if all those were zero."""
    if before.shape != after.shape:
        return math.inf
    first = before.astype(np.float64)
    second = after.astype(np.float64)
    change = float(np.abs(first - second).max(initial=0.0))
    scale = float(np.abs(first).max(initial=0.0))
    if scale == 0:
        return math.inf if change else 0.0
    return change / scale
