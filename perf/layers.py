"""Scores of many layers on several assemblies with three metrics, from one pass of Gram matrices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

import neuroledger as nl
from neuroledger.families.alignment.similarity.gram import gram
from neuroledger.stats.workspace import Memo, Workspace
from perf.measure import CLOCKS, peak_memory
from perf.neural import assembly

METRICS = ("pls", "ridge", "rdm")
STIMULI, TARGETS, ASSEMBLIES = 2560, 168, 4
# Bytes of the memo between calls: matrices and ranks of the brain, of the current layer and of the previous one.
KEPT = 600_000_000


@dataclass(frozen=True)
class Network:
    """A network, by the number of features of each layer."""

    label: str
    counts: tuple[int, ...]


NETWORKS = {
    network.label: network
    for network in (
        # All modules of AlexNet at 224 pixels, from the first convolution to the logits, without pooling.
        Network(
            "alexnet",
            (193600, 193600, 46656, 139968, 139968, 32448, 64896, 64896, 43264, 43264, 43264, 43264,
             9216, 9216, 9216, 4096, 4096, 4096, 4096, 1000),
        ),
        # Layers after spatial pooling: an eighth of the features, and as many scores.
        Network("pooled", (25088,) * 2 + (9216,) * 6 + (4096,) * 6 + (1024,) * 4 + (512,) * 2),
    )
}  # fmt: skip


@dataclass
class Timed:
    """Seconds of one pass of Gram matrices and of each part of the scoring, and memory beyond the features."""

    network: Network
    one_pass: float = 0.0
    parts: Counter[str] = field(default_factory=Counter)
    megabytes: float = 0.0

    @property
    def scoring(self) -> float:
        """Seconds of all scores."""
        return sum(self.parts.values())


def layers(clock: str, label: str) -> Timed:
    """Time one pass of Gram matrices over all layers, and all metrics on all assemblies, alternating by layer.

    Both sides use the same code with the same threads. The scoring recomputes each Gram matrix, including those of the
    brain, which are cached from the second layer on.
    """
    network = NETWORKS[label]
    X, Y = _recorded(network)
    targets = [assembly(part) for part in np.array_split(Y, ASSEMBLIES, axis=1)]
    memo, timing = Memo(KEPT), Timed(network)
    with peak_memory() as peak:
        for at, count in enumerate(network.counts):
            features = X[:, 64 * at : 64 * at + count]
            with _clock(clock) as seconds:
                gram(features, Workspace(memo=Memo(0)))
            timing.one_pass += seconds()
            workspace, source = Workspace(memo=memo), assembly(features)
            with _clock(clock) as seconds:
                gram(features, workspace)
            timing.parts["gram"] += seconds()
            for name in METRICS:
                for target in targets:
                    with _clock(clock) as seconds:
                        nl.metric(name, workspace=workspace)(source, target)
                    timing.parts[name] += seconds()
    timing.megabytes = peak.megabytes
    return timing


@contextmanager
def _clock(name: str) -> Iterator[Callable[[], float]]:
    now = CLOCKS[name]
    start = now()
    seconds: list[float] = []
    yield lambda: seconds[0]
    seconds.append(now() - start)


def _recorded(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Read-only rectified float32 features, wide enough for every layer to be a different slice."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((STIMULI, 300), dtype=np.float32) / np.sqrt(
        np.arange(1, 301, dtype=np.float32)
    )
    X = np.empty((STIMULI, max(network.counts) + 64 * len(network.counts)), np.float32)
    for start in range(0, X.shape[1], 4096):
        part = X[:, start : start + 4096]
        part[:] = Z @ rng.standard_normal((300, part.shape[1]), dtype=np.float32)
        part += 0.3 * rng.standard_normal(part.shape, dtype=np.float32)
        np.maximum(part, 0, out=part)
    X.flags.writeable = False
    Y = Z @ rng.standard_normal((300, TARGETS)) + rng.standard_normal(
        (STIMULI, TARGETS)
    )
    return X, Y
