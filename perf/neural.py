"""The neural cases: sizes of well-known data sets, and each metric with its peer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import xarray as xr

import neuroledger as nl
from neuroledger.core.splits import draw
from neuroledger.core.workspace import Memo, Workspace
from neuroledger.spec.kinds import SplitsSpec
from perf import peers


@dataclass(frozen=True)
class Size:
    """Stimuli × features → targets, and repetitions for ceilings."""

    label: str
    stimuli: int
    features: int
    targets: int
    repetitions: int


SIZES = {
    size.label: size
    for size in (
        Size("FZ 9k", 135, 9216, 102, 20),
        Size("MJ 9k", 2560, 9216, 168, 46),
        Size("MJ 25k", 2560, 25088, 168, 46),
        Size("fMRI 9k", 1000, 9216, 20_000, 3),
    )
}


# Imports and caches are not what is measured: every case runs once on this first.
WARM = Size("warm", 100, 200, 20, 4)


@dataclass(frozen=True)
class Case:
    """One comparison: our call, the peer's, over how many of the splits the peer runs, and the operations needed."""

    name: str
    peer: str
    ours: Callable[[], np.ndarray]
    theirs: Callable[[], np.ndarray]
    share: float
    operations: float


@cache
def arrays(size: Size) -> tuple[np.ndarray, np.ndarray]:
    """Rectified features (float32) and targets that share causes of falling strength."""
    rng = np.random.default_rng(0)
    rank = min(300, size.stimuli - 1)
    Z = rng.standard_normal((size.stimuli, rank)) / np.sqrt(np.arange(1, rank + 1))
    X = Z @ rng.standard_normal((rank, size.features)) + 0.3 * rng.standard_normal(
        (size.stimuli, size.features)
    )
    Y = Z @ rng.standard_normal((rank, size.targets)) + rng.standard_normal((size.stimuli, size.targets))
    return np.maximum(X, 0).astype(np.float32), Y


def assembly(values: np.ndarray) -> xr.DataArray:
    """Rows with ids, eight objects in turn."""
    ids = np.array([f"s{i:05d}" for i in range(len(values))])
    coords = {
        "stimulus_id": ("presentation", ids),
        "object_name": ("presentation", np.arange(len(values)) % 8),
        "neuroid_id": ("neuroid", np.arange(values.shape[1])),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


@cache
def repeated(size: Size) -> xr.DataArray:
    """Noisy repetitions of the targets, in random order."""
    rng = np.random.default_rng(1)
    _, Y = arrays(size)
    rows = rng.permutation(np.repeat(np.arange(size.stimuli), size.repetitions))
    repetition = np.empty(len(rows), int)
    order = np.argsort(rows, kind="stable")
    repetition[order] = np.tile(np.arange(size.repetitions), size.stimuli)
    values = Y[rows] + 2 * rng.standard_normal((len(rows), size.targets))
    ids = np.array([f"s{i:05d}" for i in range(size.stimuli)])
    coords = {
        "stimulus_id": ("presentation", ids[rows]),
        "repetition": ("presentation", repetition),
        "neuroid_id": ("neuroid", np.arange(size.targets)),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def cases(size: Size, names: set[str], peer_splits: int, dtype: str) -> list[Case]:
    """The cases of one size."""
    X, Y = arrays(size)
    source, target = assembly(X), assembly(Y)
    rule: dict[str, Any] = {"stratify": "object_name"}
    if size.targets > 1000:
        rule["folds"] = 2
    splits = draw(SplitsSpec(**rule), target)
    some = splits[:peer_splits]
    gram = float(size.stimuli) ** 2 * size.features

    def metric(name: str, **overrides: Any) -> Callable[[], np.ndarray]:
        bound = nl.metric(name, **overrides)

        def run() -> np.ndarray:
            fresh = replace(bound, workspace=Workspace(dtype=dtype, memo=Memo(0)))  # type: ignore[arg-type]
            return np.asarray(fresh(source, target).samples.values)

        return run

    def loop(make: Any) -> Callable[[], np.ndarray]:
        return lambda: peers.readout_loop(make, X, Y, some)

    share = len(some) / len(splits)
    one = draw(SplitsSpec(folds=1), target)
    wide = size.targets > 1000
    alphas = tuple(float(a) for a in np.logspace(-1, 6, 20))
    per_target = {"estimator": {"alphas": alphas}, "splits": {"folds": 1}}
    best = 2.0 * size.stimuli * size.features * size.targets
    every = [
        Case("pls", "scikit-learn PLSRegression", metric("pls", splits=rule), loop(peers.pls), share, gram),
        Case("ridge", "scikit-learn Ridge", metric("ridge", splits=rule), loop(peers.ridge), share, gram),
        Case(
            "linear",
            "scikit-learn LinearRegression",
            metric("linear_predictivity", splits=rule),
            loop(peers.linear),
            share,
            gram,
        ),
        Case(
            "best unit",
            "loop over targets",
            metric("neuron_to_neuron", splits=rule),
            loop(peers.BestUnit),
            share,
            best,
        ),
        Case("rdm", "corrcoef + spearmanr", metric("rdm"), lambda: peers.rdm_plain(X, Y), 1, gram),
        Case("rdm (rsatoolbox)", "rsatoolbox", metric("rdm"), lambda: peers.rdm_rsatoolbox(X, Y), 1, gram),
        Case("cka", "formula", metric("cka"), lambda: peers.cka_plain(X, Y), 1, gram),
        Case(
            "ridge cv",
            "scikit-learn RidgeCV",
            metric("ridgecv", splits={"folds": 1}),
            _ridge_cv(X, Y, one),
            1,
            gram,
        ),
        Case(
            "ridge cv per target",
            "himalaya KernelRidgeCV",
            metric("ridgecv_per_target", **per_target),
            lambda: peers.himalaya_ridge(X, Y, one, alphas),
            1,
            gram,
        ),
    ]
    if not wide:
        trials = repeated(size)
        few = max(1, peer_splits)
        reliability = nl.ceiling("internal_consistency")
        halves = Case(
            "internal consistency",
            "xarray groupby",
            lambda: np.asarray(reliability(trials).samples.values),
            lambda: peers.halves_loop(trials, few),
            few / 10,
            0.0,
        )
        every.append(halves)
    return [case for case in every if not names or case.name in names]


def _ridge_cv(X: np.ndarray, Y: np.ndarray, splits: Any) -> Callable[[], np.ndarray]:
    from sklearn.linear_model import RidgeCV

    from neuroledger.core.regressions.ridge_cv import DEFAULT_ALPHAS

    wide = X.astype(np.float64)
    return lambda: peers.readout_loop(lambda: RidgeCV(DEFAULT_ALPHAS), wide, Y, splits)
