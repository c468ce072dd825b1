"""Activations are streamed out of a model, all layers in one pass over the stimuli, and checked on the way."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError

Array = NDArray[Any]

PROBE: Final = 2
MAX_BATCH: Final = 64
BATCH_BYTES: Final = 256 * 1024**2
REPEATABLE: Final = 1e-5
COMPANY: Final = 1e-2
"""How much an answer may depend on the size of the batch: what half precision adds up otherwise, and no more."""


class Trial(NamedTuple):
    """Which presentation of a stimulus it is, from 0, of how many."""

    number: int = 0
    of: int = 1


class Extract(Protocol):
    """What a model's activations are: a function of the stimuli, the layers and the trial, and of nothing else.

    It may have a method ``ahead(stimuli, stimulus_ids)``, which receives the next stimuli while a batch is computed.
    """

    def __call__(
        self, stimuli: StimulusSet, stimulus_ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> Mapping[str, Array]:
        """Layer name → array (stimulus, …) for the stimuli named, in that order."""
        ...


@dataclass(frozen=True)
class Probe:
    """What a look at the first stimuli tells about a pass over all of them."""

    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, np.dtype[Any]]
    seconds: float
    """Time per stimulus."""
    answers: Mapping[str, Array]
    """The activations of the first stimuli, to be found again after the pass."""

    @property
    def bytes_per_stimulus(self) -> int:
        """Bytes that all layers together take for one stimulus."""
        return sum(int(np.prod(shape)) * self.dtypes[layer].itemsize for layer, shape in self.shapes.items())


class Store(Protocol):
    """Keeps activations by content, so that benchmarks, layers and regions share one pass."""

    def get(
        self, identity: Mapping[str, Any], stimuli: StimulusSet, layers: Sequence[str]
    ) -> Mapping[str, Array]:
        """The layers that are kept already, as arrays (presentation, …) that need not be in memory."""
        ...

    def computing(self, identity: Mapping[str, Any], stimuli: StimulusSet) -> AbstractContextManager[None]:
        """Held by whoever computes the activations of these stimuli, so that others wait and then get them."""
        ...

    def put(
        self,
        identity: Mapping[str, Any],
        stimuli: StimulusSet,
        probe: Probe,
        rows: int,
        batches: Iterator[Mapping[str, Array]],
        *,
        model: str,
    ) -> Mapping[str, Array]:
        """Keep what the batches hold, ``rows`` in all, and return it as ``get`` would; ``model`` is its name."""
        ...

    def join(self, arrays: Sequence[Array]) -> Array:
        """Arrays (presentation, feature) side by side."""
        ...


def probe(
    extract: Extract, stimuli: StimulusSet, layers: Sequence[str], *, model: str, stochastic: bool = False
) -> Probe:
    """Shapes, types and time per stimulus, from two looks at the first stimuli.

    Raises
    ------
    ModelError
        A layer is missing, an answer is not a finite number, or the two looks differ.
    """
    ids = stimuli.ids[:PROBE]
    first = checked(extract(stimuli, ids, layers, Trial()), ids, layers, model)
    started = time.perf_counter()
    second = checked(extract(stimuli, ids, layers, Trial()), ids, layers, model)
    seconds = (time.perf_counter() - started) / len(ids)
    if not stochastic:
        _same(first, second, model)
    return Probe(
        shapes={layer: tuple(values.shape[1:]) for layer, values in first.items()},
        dtypes={layer: values.dtype for layer, values in first.items()},
        seconds=seconds,
        answers=first,
    )


def stream(
    extract: Extract,
    stimuli: StimulusSet,
    seen: Probe,
    *,
    model: str,
    trials: int = 1,
    batch: int | None = None,
    stochastic: bool = False,
) -> Iterator[Mapping[str, Array]]:
    """Checked batches, layer → (presentation, …): all stimuli of the first trial, then of the second, and so on.

    ``batch`` is chosen so that one batch of all layers takes at most ``BATCH_BYTES``, unless given. After the last
    batch the first stimuli are shown once more: a model whose answer depends on what it saw before is refused.

    Raises
    ------
    ModelError
        An answer has another shape than the first ones, is not finite, or changed between calls.
    """
    ids, layers = stimuli.ids, list(seen.shapes)
    size = batch or batch_size(seen)
    ahead = getattr(extract, "ahead", None)
    parts = [(trial, ids[at : at + size]) for trial in range(trials) for at in range(0, len(ids), size)]
    for number, (trial, part) in enumerate(parts, start=1):
        if ahead is not None and number < len(parts):
            ahead(stimuli, parts[number][1])
        values = checked(extract(stimuli, part, layers, Trial(trial, trials)), part, layers, model)
        _same_shape(values, seen, part, model)
        if number == 1 and size >= PROBE and not stochastic:
            _alone_as_together(seen.answers, values, model)
        yield values
    if not stochastic:
        part = ids[:PROBE]
        _same(seen.answers, checked(extract(stimuli, part, layers, Trial()), part, layers, model), model)


def batch_size(seen: Probe) -> int:
    """Stimuli per batch: at most ``MAX_BATCH``, and as many as fill ``BATCH_BYTES``."""
    return max(1, min(MAX_BATCH, BATCH_BYTES // max(1, seen.bytes_per_stimulus)))


def batch_bytes(seen: Probe) -> int:
    """Memory that one batch of all layers takes, twice: as the model made it and as it is written."""
    return 2 * batch_size(seen) * seen.bytes_per_stimulus


def collect(batches: Iterator[Mapping[str, Array]], seen: Probe, rows: int) -> dict[str, Array]:
    """The batches in memory: layer → (presentation, …)."""
    whole = {layer: np.empty((rows, *shape), seen.dtypes[layer]) for layer, shape in seen.shapes.items()}
    filled = 0
    for values in batches:
        count = len(next(iter(values.values())))
        for layer, array in values.items():
            whole[layer][filled : filled + count] = array
        filled += count
    return whole


def checked(
    answer: Mapping[str, Array], ids: Sequence[str], layers: Sequence[str], model: str
) -> dict[str, Array]:
    """The answer in the order of ``layers``, once it is known to be a finite number for each stimulus."""
    values = {}
    for layer in layers:
        if layer not in answer:
            raise ModelError(
                f"model {model!r} gave nothing for layer {layer!r}, only {', '.join(sorted(answer))}"
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
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            rows = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
            raise ModelError(
                f"model {model!r}, layer {layer!r}: NaN or infinite activations for {int(rows.sum())} of {len(ids)} "
                f"stimuli, first {ids[int(np.argmax(rows))]!r}: check its weights and its preprocessing"
            )
        values[layer] = array
    return values


def _same_shape(values: Mapping[str, Array], seen: Probe, ids: Sequence[str], model: str) -> None:
    for layer, array in values.items():
        if array.shape[1:] != tuple(seen.shapes[layer]):
            raise ModelError(
                f"model {model!r}, layer {layer!r}: {array.shape[1:]} features for stimuli {ids[0]!r}…{ids[-1]!r}, "
                f"{tuple(seen.shapes[layer])} before: give it a preprocessing that makes all images the same size"
            )


def _same(before: Mapping[str, Array], after: Mapping[str, Array], model: str) -> None:
    changed = differing(before, after)
    if changed is not None:
        share = _gap(before[changed], after[changed])
        raise ModelError(
            f"model {model!r}, layer {changed!r} answered differently to the same stimuli (by {share:.2g} of its largest "
            "response): put it in evaluation mode, remove what it remembers between calls, or declare it stochastic"
        )


def _alone_as_together(few: Mapping[str, Array], many: Mapping[str, Array], model: str) -> None:
    """Return if the first stimuli are answered alike in a small batch and in a large one."""
    for layer, array in few.items():
        share = _gap(array, many[layer][: len(array)])
        if share > COMPANY:
            raise ModelError(
                f"model {model!r}, layer {layer!r} answers a stimulus otherwise when others are shown with it (by "
                f"{share:.2g} of its largest response), so its score would depend on the batch: take out what is computed "
                "over the batch, show one stimulus at a time with `batch: 1`, or declare it stochastic if it draws at random"
            )


def differing(before: Mapping[str, Array], after: Mapping[str, Array]) -> str | None:
    """The first layer whose answer changed by more than rounding, if any."""
    for layer, array in before.items():
        if _gap(array, after[layer]) > REPEATABLE:
            return layer
    return None


def _gap(before: Array, after: Array) -> float:
    """Largest difference, as a share of the largest number before; infinite where there was none but zeros."""
    if before.shape != after.shape:
        return math.inf
    one, two = before.astype(np.float64), after.astype(np.float64)
    gap = float(np.abs(one - two).max(initial=0.0))
    return gap / scale if (scale := float(np.abs(one).max(initial=0.0))) else (math.inf if gap else 0.0)
