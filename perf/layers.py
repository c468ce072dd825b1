"""Many layers, several assemblies, three metrics: all from one pass of Gram matrices over recorded activations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import neuroledger as nl
from neuroledger.core.gram import gram
from neuroledger.core.workspace import Memo, Workspace
from perf.measure import Runs
from perf.neural import SIZES, arrays, assembly

LAYERS = [25088] * 2 + [9216] * 6 + [4096] * 6 + [1024] * 4 + [512] * 2
METRICS = ("pls", "ridge", "rdm")
ASSEMBLIES = 4


def layers(clock: str, counts: Sequence[int] = LAYERS) -> tuple[Runs, Runs]:
    """Time of one pass of Gram matrices over all layers, and of all metrics on all assemblies."""
    X, Y = arrays(SIZES["MJ 25k"])
    X.flags.writeable = False
    recorded = [
        X[:, 100 * at : 100 * at + count] if count < X.shape[1] else X for at, count in enumerate(counts)
    ]
    targets = [assembly(part) for part in np.array_split(Y, ASSEMBLIES, axis=1)]

    def one_pass() -> None:
        for features in recorded:
            gram(features, Workspace(memo=Memo(0)))

    def score_all() -> list[float]:
        found = []
        for features in recorded:
            # One layer's matrices and the brain's ranks are kept, then forgotten for the next layer's.
            workspace = Workspace(memo=memo)
            source = assembly(features)
            for target in targets:
                found += [nl.metric(name, workspace=workspace)(source, target).value for name in METRICS]
        return found

    memo = Memo(1 << 30)
    grams, scores = Runs(clock), Runs(clock)
    grams.add(one_pass)
    scores.add(score_all)
    return grams, scores
