"""Equal dissimilarities are tied despite rounding; the peer's order is available as an option."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import neuroledger as nl
from neuroledger.engine.check import check
from neuroledger.errors import RequestError
from tests.families.alignment.neural_cases import assembly

COUNTS = np.random.default_rng(0).poisson(1.5, (30, 4)).astype(float)
OTHERS = np.random.default_rng(1).standard_normal((30, 6))


def peer(X, Y, decimals=None):
    found = [(1 - np.corrcoef(side))[np.triu_indices(len(side), 1)] for side in (X, Y)]
    if decimals is not None:
        found = [np.round(side, decimals) for side in found]
    return spearmanr(*found).statistic


@pytest.mark.parametrize("columns", [2, 3, 4])
def test_counts_of_few_neuroids(columns):
    X = COUNTS[:, :columns]
    X = X[np.ptp(X, axis=1) > 0]
    Y = OTHERS[: len(X)]
    assert nl.metric("rdm")(assembly(X), assembly(Y)).value == pytest.approx(
        peer(X, Y, 11), abs=1e-9
    )
    found = nl.metric("rdm", compat="brainscore")(assembly(X), assembly(Y))
    assert found.value == pytest.approx(peer(X, Y), abs=1e-12)


def test_two_neuroids_have_only_two_dissimilarities():
    X = np.random.default_rng(2).standard_normal((25, 2))
    signs = np.sign(X[:, 0] - X[:, 1])
    upper = np.triu_indices(25, 1)
    expected = spearmanr(
        (signs[:, None] != signs)[upper], (1 - np.corrcoef(OTHERS[:25]))[upper]
    ).statistic
    found = nl.metric("rdm")(assembly(X), assembly(OTHERS[:25]))
    assert found.value == pytest.approx(expected, abs=1e-9)


def test_repeated_rows():
    X = np.vstack([OTHERS[:12]] * 2)
    Y = np.random.default_rng(3).standard_normal((24, 9))
    assert nl.metric("rdm")(assembly(X), assembly(Y)).value == pytest.approx(
        peer(X, Y, 11), abs=1e-9
    )


def test_the_order_of_rounding_is_that_of_correlations():
    with pytest.raises(RequestError, match="ties: rounding"):
        nl.metric("rdm", ties="rounding", distance="cosine")(
            assembly(OTHERS), assembly(OTHERS)
        )


def test_check_refuses_a_compat_that_does_not_fit_the_parameters(lab):
    fields = {"compat": "brainscore", "ceiling": "rsa_ceiling"}
    lab.benchmark(
        "lab.V4-rdm", metric={"name": "rdm", "comparison": "pearson"}, **fields
    )
    problems = [
        one for one in check(lab.open())[0] if one.where.endswith("lab.V4-rdm.yaml")
    ]
    assert any(
        "ties: rounding" in one.what + one.fix and one.line > 1 for one in problems
    ), problems
    lab.benchmark(
        "lab.V4-rdm", metric={"name": "rdm", "comparison": "spearman"}, **fields
    )
    assert not [
        one for one in check(lab.open())[0] if one.where.endswith("lab.V4-rdm.yaml")
    ]
