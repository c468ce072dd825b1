"""``python -m perf.decoding``: cross-subject Riemannian pipelines beside the loop that MOABB runs, in turn, in one process.

MOABB fits a clone of each scikit-learn pipeline of pyriemann's steps on every fold and scores the held-out person; that loop
is run here without MOABB's loading and bookkeeping. Ours is `nl.decode`, checks for leakage and intervals included; nothing
that is kept between pipelines outlives a round.
"""

from __future__ import annotations

import argparse
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


def windows(count: int, people: int, channels: int, samples: int) -> tuple[Any, Any, Any]:
    """Simulated: two classes that differ in the power of a channel, mixed differently in each person."""
    rng = np.random.default_rng(0)
    y = np.tile(["left", "right"], count // 2)
    person = np.repeat([f"S{number}" for number in range(people)], count // people)
    x = rng.standard_normal((count, channels, samples))
    x[:, 0] *= np.where(y == "right", 1.4, 1.0)[:, None]
    mixing = np.eye(channels) + 0.3 * rng.standard_normal((people, channels, channels))
    return np.repeat(mixing, count // people, axis=0) @ x, y, person


def peer(name: str) -> Any:
    """The pipeline of MOABB's file of this name."""
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


def theirs(names: tuple[str, ...], x: Any, y: Any, person: Any) -> Any:
    """Area under the curve of each pipeline and held-out person."""
    from sklearn.base import clone
    from sklearn.metrics import get_scorer
    from sklearn.model_selection import LeaveOneGroupOut

    scorer, folds = get_scorer("roc_auc"), list(LeaveOneGroupOut().split(x, y, person))
    return np.array(
        [
            [scorer(clone(peer(name)).fit(x[train], y[train]), x[test], y[test]) for train, test in folds]
            for name in names
        ]
    )


def ours(names: tuple[str, ...], x: Any, y: Any, person: Any) -> Any:
    """The same, from the specs of these pipelines."""
    clear_cache()
    scores = [nl.decode(f"moabb.{name}", x, y, groups=person, metric="auroc") for name in names]
    return np.array([np.asarray(score.samples)[0] for score in scores])


def main() -> None:
    """Measure each pipeline alone, then all of them together."""
    parser = argparse.ArgumentParser(prog="python -m perf.decoding", description=__doc__)
    parser.add_argument("--windows", type=int, default=3000)
    parser.add_argument("--people", type=int, default=10)
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--samples", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="cpu")
    given = parser.parse_args()
    open_catalog()
    with threadpool_limits(1):
        warm = windows(80, 4, given.channels, given.samples)
        theirs(NAMES, *warm)
        ours(NAMES, *warm)
        data = windows(given.windows, given.people, given.channels, given.samples)
        print(
            "| pipelines | peer s | ours s | ratio | peer MB | ours MB | largest difference |\n|---|--:|--:|--:|--:|--:|--:|"
        )
        for names in (*((name,) for name in NAMES), NAMES):
            mine, other = in_turn(
                partial(ours, names, *data), partial(theirs, names, *data), given.rounds, given.clock
            )
            _line(", ".join(names), mine, other)


def _line(name: str, mine: Runs, other: Runs) -> None:
    seconds, against = mine.median, other.median
    apart = float(np.abs(mine.values - other.values).max())
    megabytes = f"{other.megabytes:.0f} | {mine.megabytes:.0f}"
    print(f"| {name} | {against:.2f} | {seconds:.2f} | {against / seconds:.1f} | {megabytes} | {apart:.1g} |")


if __name__ == "__main__":
    main()
