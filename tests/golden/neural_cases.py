"""Small seeded cases whose numbers are pinned in ``neural.json``: they move only with a component's version.

The numbers were computed by Brain-Score's procedure written as loops over scikit-learn and SciPy, which agrees with
that package's own code to 1e-9 on the reference arrays. Run this file to compute them anew from those loops.
"""

import json
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.spatial.distance import pdist

from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import draw
from tests.families.alignment.neural_cases import (
    assembly,
    correlations,
    estimator,
    latent,
)
from tests.families.alignment.test_cka import biased, unbiased
from tests.families.alignment.test_internal_consistency import loop, recorded

FILE = Path(__file__).with_name("neural.json")
READOUTS = ("pls", "ridge", "linear_predictivity", "neuron_to_neuron", "ridgecv")


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return latent(48, 70, 6, seed=11)


def peer_values() -> dict[str, float]:
    """Every case by the plain loop."""
    from neuroledger.families.alignment.regression.ridge_cv import DEFAULT_ALPHAS

    X, Y = arrays()
    splits = draw(SplitsSpec(), assembly(Y))
    found = {}
    for name in READOUTS:
        options = {"alphas": DEFAULT_ALPHAS} if name == "ridgecv" else {}
        found[name] = np.median(
            correlations(estimator(name, **options), X, Y, splits), axis=1
        ).mean()
    found["rdm"] = stats.spearmanr(
        pdist(X, "correlation"), pdist(Y, "correlation")
    ).statistic
    found["cka"] = unbiased(X[:9], Y[:9])
    found["cka_biased"] = biased(X, Y)
    found["internal_consistency"] = np.median(loop(recorded(seed=11)), axis=1).mean()
    return {name: float(value) for name, value in found.items()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(peer_values(), indent=1) + "\n")
