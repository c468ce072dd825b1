"""The neural cases: each metric compared with Brain-Score's procedure and with lean loops, at each size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np

import neuroledger as nl
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import draw
from neuroledger.stats.workspace import Memo, Workspace
from perf import peers, procedure
from perf.assemblies import SIZES, WARM, Size, arrays, assembly, recorded, repeated

__all__ = ["SIZES", "WARM", "Case", "Options", "arrays", "assembly", "cases"]

PEER = "Brain-Score's procedure"
LEAN = "lean loop"
PACKAGES = ("himalaya", "rsatoolbox")
# Cases whose peer needs minutes; they run only with --all.
SLOW = {
    ("fMRI 9k", "linear"),
    ("fMRI 9k", "ridge cv per target"),
    ("MJ 9k", "linear"),
    ("MJ 25k", "best unit"),
    ("MJ 25k", "linear"),
    ("MJ 25k", "rdm (rsatoolbox)"),
    ("MJ 25k", "ridge cv"),
    ("MJ 25k", "ridge cv per target"),
}
# At fMRI size, the peer finds the best unit of this number of targets; its time is scaled to all targets.
FEW_TARGETS = 100


@dataclass(frozen=True)
class Options:
    """Selection of cases: names (all if empty), splits of the peer, our precision, and whether to include slow ones."""

    names: frozenset[str] = frozenset()
    peer_splits: int = 1
    dtype: str = "float64"
    everything: bool = False


@dataclass(frozen=True)
class Case:
    """One comparison: our call, the peer's, the share of the task that the peer runs, and the necessary operations."""

    name: str
    peer: str
    ours: Callable[[], np.ndarray]
    theirs: Callable[[], np.ndarray]
    share: float
    operations: float


def cases(size: Size, options: Options) -> Iterator[Case]:
    """The cases of one size."""
    for case in (
        *_readouts(size, options),
        *_similarities(size, options),
        *_ceilings(size, options),
    ):
        name = case.name.split(",")[0]
        slow = (size.label, name) in SLOW or (
            case.peer == LEAN and size.label in ("MJ 25k", "fMRI 9k")
        )
        if is_installed(case.peer) and (
            (not options.names or name in options.names)
            and (options.everything or not slow)
        ):
            yield case


def is_installed(peer: str) -> bool:
    """Whether the package of a peer is here; those of the extra ``perf`` may not be."""
    package = peer.partition(" ")[0]
    return package not in PACKAGES or find_spec(package) is not None


def _rule(size: Size) -> dict[str, Any]:
    return {"stratify": "object_name"} | ({"folds": 2} if size.wide else {})


def _metric(
    name: str, size: Size, options: Options, precision: str, **overrides: Any
) -> Callable[[], Any]:
    source, target = recorded(size, precision)
    workspace = Workspace(dtype=options.dtype, memo=Memo(0))  # type: ignore[arg-type]
    bound = replace(nl.metric(name, **overrides), workspace=workspace)
    return lambda: np.asarray(bound(source, target).samples.values)


def _readouts(size: Size, options: Options) -> Iterator[Case]:
    X, Y = arrays(size)
    rule = _rule(size)
    splits = draw(SplitsSpec(**rule), recorded(size, "float32")[1])
    folds = min(options.peer_splits, len(splits))
    gram = float(size.stimuli) ** 2 * size.features
    plain: dict[str, tuple[str, Any, Any, tuple[str, ...]]] = {
        "pls": ("pls", peers.pls, peers.pls, ("float32",)),
        "ridge": ("ridge", peers.ridge, peers.ridge, ("float32", "float64")),
        "linear": ("linear_predictivity", peers.linear, peers.linear, ("float32",)),
        "best unit": (
            "neuron_to_neuron",
            procedure.OneByOne,
            peers.BestUnit,
            ("float32",),
        ),
    }
    for name, (id, whole, lean, precisions) in plain.items():
        best = name == "best unit"
        operations = 2.0 * size.stimuli * size.features * size.targets if best else gram
        for precision in precisions:
            source, target = (
                procedure.indexed(side) for side in recorded(size, precision)
            )
            share = folds / len(splits)
            if best and size.wide:
                share *= FEW_TARGETS / size.targets
                target = target.isel(neuroid=slice(FEW_TARGETS))
            ours = _metric(id, size, options, precision, splits=rule)

            def run(
                make: Any = whole, source: Any = source, target: Any = target
            ) -> np.ndarray:
                return procedure.regressed(make, source, target, folds)

            title = name if precision == "float32" else f"{name}, float64 features"
            yield Case(title, PEER, ours, run, share, operations)
        ours = _metric(id, size, options, "float32", splits=rule)

        def loop(make: Any = lean) -> np.ndarray:
            return peers.readout_loop(make, X, Y, splits[:folds])

        yield Case(name, LEAN, ours, loop, folds / len(splits), operations)
    yield from _selected_penalty(size, options, gram)


def _selected_penalty(size: Size, options: Options, gram: float) -> Iterator[Case]:
    """Readouts with a selected penalty, on one split."""
    from sklearn.linear_model import RidgeCV

    from neuroledger.families.alignment.regression.ridge_cv import DEFAULT_ALPHAS

    X, Y = arrays(size)
    splits = draw(SplitsSpec(folds=1), recorded(size, "float32")[1])
    alphas = tuple(float(a) for a in np.logspace(-1, 6, 20))
    ours = _metric("ridgecv", size, options, "float32", splits={"folds": 1})
    yield Case(
        "ridge cv",
        "scikit-learn RidgeCV",
        ours,
        lambda: peers.readout_loop(
            lambda: RidgeCV(DEFAULT_ALPHAS), X.astype(np.float64), Y, splits
        ),
        1,
        gram,
    )
    changes: dict[str, Any] = {"estimator": {"alphas": alphas}, "splits": {"folds": 1}}
    ours = _metric("ridgecv_per_target", size, options, "float32", **changes)
    yield Case(
        "ridge cv per target",
        "himalaya KernelRidgeCV",
        ours,
        lambda: peers.himalaya_ridge(X, Y, splits, alphas),
        1,
        gram,
    )


def _similarities(size: Size, options: Options) -> Iterator[Case]:
    X, Y = arrays(size)
    gram = float(size.stimuli) ** 2 * size.features
    for name, whole, lean in (
        ("rdm", procedure.rdm, peers.rdm_plain),
        ("cka", procedure.cka, peers.cka_plain),
    ):
        for precision in ("float32", "float64") if name == "cka" else ("float32",):
            source, target = (
                procedure.indexed(side) for side in recorded(size, precision)
            )
            ours = _metric(name, size, options, precision)

            def run(
                function: Any = whole, source: Any = source, target: Any = target
            ) -> np.ndarray:
                return np.asarray(function(source, target))

            title = name if precision == "float32" else f"{name}, float64 features"
            yield Case(title, PEER, ours, run, 1, gram)
        ours = _metric(name, size, options, "float32")
        yield Case(name, LEAN, ours, lambda function=lean: function(X, Y), 1, gram)  # type: ignore[misc]
    ours = _metric("rdm", size, options, "float32")
    yield Case(
        "rdm (rsatoolbox)",
        "rsatoolbox",
        ours,
        lambda: peers.rdm_rsatoolbox(X, Y),
        1,
        gram,
    )


def _ceilings(size: Size, options: Options) -> Iterator[Case]:
    if size.wide:
        return
    trials = repeated(size)
    labelled = procedure.indexed(trials)
    folds = min(options.peer_splits, 10)
    bound = nl.ceiling("internal_consistency")

    def ours() -> np.ndarray:
        return np.asarray(bound(trials).samples.values)

    by_neuroid = trials.transpose("neuroid", "presentation")
    by_neuroid = by_neuroid.copy(data=np.ascontiguousarray(by_neuroid.values))

    def by_columns() -> np.ndarray:
        return np.asarray(bound(by_neuroid).samples.values)

    name = "internal consistency"
    yield Case(
        name, PEER, ours, lambda: procedure.consistent(labelled, folds), folds / 10, 0.0
    )
    yield Case(
        name, LEAN, ours, lambda: peers.halves_loop(trials, folds), folds / 10, 0.0
    )
    yield Case(
        f"{name}, neuroids first",
        "our own, presentations first",
        by_columns,
        ours,
        1,
        0.0,
    )
