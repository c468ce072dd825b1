"""``python -m perf.decoding``: cross-subject Riemannian pipelines compared with MOABB's loop, alternately, in one process.

MOABB fits a clone of each scikit-learn pipeline of pyriemann's steps on every fold and scores the held-out subjects; the
peer is this loop without MOABB's loading and bookkeeping. With `--shared`, the peer computes covariances once for all
folds. Ours is `nl.decode`, including leakage checks and intervals; the cache is cleared before every round.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import neuroledger as nl
from neuroledger.families.decoding.protocols.array_cache import clear_cache
from neuroledger.spec.catalog import open_catalog
from perf.measure import Runs
from perf.table import in_turn

NAMES = ("MDM", "TangentSpace_LR", "TangentSpace_SVM", "FgMDM", "CSP_LDA")


def windows(
    count: int, subject_count: int, channels: int, samples: int
) -> tuple[Any, Any, Any]:
    """Simulated windows of two classes that differ in the power of a channel, with a mixing matrix per subject."""
    rng = np.random.default_rng(0)
    y = np.tile(["left", "right"], count // 2)
    subjects = np.repeat(
        [f"S{number}" for number in range(subject_count)], count // subject_count
    )
    x = rng.standard_normal((count, channels, samples))
    x[:, 0] *= np.where(y == "right", 1.4, 1.0)[:, None]
    mixing = np.eye(channels) + 0.3 * rng.standard_normal(
        (subject_count, channels, channels)
    )
    return np.repeat(mixing, count // subject_count, axis=0) @ x, y, subjects


def peer(name: str) -> Any:
    """The pipeline in MOABB's file of this name."""
    from pyriemann.classification import MDM, FgMDM
    from pyriemann.estimation import Covariances
    from pyriemann.spatialfilters import CSP
    from pyriemann.tangentspace import TangentSpace
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    steps = {
        "MDM": [MDM()],
        "TangentSpace_LR": [TangentSpace(), LogisticRegression()],
        "TangentSpace_SVM": [TangentSpace(), SVC(kernel="linear")],
        "FgMDM": [FgMDM()],
        "CSP_LDA": [CSP(6), LinearDiscriminantAnalysis()],
    }
    return make_pipeline(Covariances("oas"), *steps[name])


@dataclass(frozen=True)
class Task:
    """Windows, their labels and people, and how they are divided."""

    x: Any
    y: Any
    subjects: Any
    folds: int | None
    """Number of folds; None tests one person at a time."""
    shared: bool
    """Whether the peer computes covariances once."""

    def peer_folds(self) -> Iterator[tuple[Any, Any]]:
        """Rows of training and of test, as scikit-learn divides people."""
        from sklearn.model_selection import GroupKFold, LeaveOneGroupOut

        rule = LeaveOneGroupOut() if self.folds is None else GroupKFold(self.folds)
        return iter(rule.split(self.x, self.y, self.subjects))


def run_peer(names: tuple[str, ...], task: Task) -> Any:
    """Area under the curve of each pipeline and fold, by the peer."""
    from pyriemann.estimation import Covariances

    shared = Covariances("oas").fit_transform(task.x) if task.shared else None
    return np.array([_peer_areas(peer(name), task, shared) for name in names])


def _peer_areas(pipeline: Any, task: Task, shared: Any) -> list[float]:
    from sklearn.base import clone
    from sklearn.metrics import get_scorer

    inputs = task.x if shared is None else shared
    steps = pipeline if shared is None else pipeline[1:]
    areas = []
    for train, test in task.peer_folds():
        fitted = clone(steps).fit(inputs[train], task.y[train])
        areas.append(get_scorer("roc_auc")(fitted, inputs[test], task.y[test]))
    return areas


def run_ours(names: tuple[str, ...], task: Task) -> Any:
    """Area under the curve of each pipeline and fold, by NeuroLedger."""
    clear_cache()
    options: dict[str, Any] = {} if task.folds is None else {"splits": task.folds}
    scores = [
        nl.decode(
            f"moabb.{name}",
            task.x,
            task.y,
            groups=task.subjects,
            metric="auroc",
            **options,
        )
        for name in names
    ]
    return np.array([np.asarray(score.samples)[0] for score in scores])


def main() -> None:
    """Measure each pipeline separately, then all of them together."""
    parser = argparse.ArgumentParser(
        prog="python -m perf.decoding", description=__doc__
    )
    parser.add_argument("--windows", type=int, default=3000)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--samples", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="cpu")
    parser.add_argument("--folds", type=int, help="default: one person at a time")
    parser.add_argument("--shared", action="store_true", help="see above")
    parser.add_argument("--pipelines", nargs="*", default=list(NAMES), choices=NAMES)
    options = parser.parse_args()
    names = tuple(options.pipelines)
    open_catalog()
    with threadpool_limits(1):
        warm = Task(*windows(80, 4, 8, 80), None, options.shared)
        run_peer(names, warm)
        run_ours(names, warm)
        data = windows(
            options.windows, options.people, options.channels, options.samples
        )
        task = Task(*data, options.folds, options.shared)
        print(f"windows: {data[0].nbytes / 1e6:.0f} MB\n")
        print(
            "| pipelines | peer s | ours s | ratio | peer MB | ours MB | largest difference |\n|---|--:|--:|--:|--:|--:|--:|"
        )
        together = [names] if len(names) > 1 else []
        for some in (*((name,) for name in names), *together):
            our_runs, peer_runs = in_turn(
                partial(run_ours, some, task),
                partial(run_peer, some, task),
                options.rounds,
                options.clock,
            )
            _line(", ".join(some), our_runs, peer_runs)


def _line(name: str, our_runs: Runs, peer_runs: Runs) -> None:
    seconds, peer_seconds = our_runs.median, peer_runs.median
    # Both divide people into the same folds, in another order.
    areas = [np.sort(runs.values, axis=1) for runs in (our_runs, peer_runs)]
    largest = float(np.abs(areas[0] - areas[1]).max())
    megabytes = f"{peer_runs.megabytes:.0f} | {our_runs.megabytes:.0f}"
    print(
        f"| {name} | {peer_seconds:.2f} | {seconds:.2f} | {peer_seconds / seconds:.1f} | {megabytes} | {largest:.1g} |"
    )


if __name__ == "__main__":
    main()
