"""Pinned numbers: when one of these moves, the component's version must rise."""

import json

import pytest

import neuroledger as nl
from neuroledger.spec import registry
from tests.families.alignment.neural_cases import assembly
from tests.families.alignment.test_internal_consistency import recorded
from tests.golden.neural_cases import FILE, READOUTS, arrays

PINNED = json.loads(FILE.read_text())


@pytest.mark.parametrize("name", sorted(PINNED))
def test_the_pinned_number_has_not_moved(name):
    X, Y = arrays()
    if name == "internal_consistency":
        score = nl.ceiling(name)(recorded(seed=11))
    elif name == "cka":
        score = nl.metric(name)(assembly(X[:9]), assembly(Y[:9]))
    else:
        score = nl.metric(name)(assembly(X), assembly(Y))
    assert score.value == pytest.approx(PINNED[name], abs=1e-9)


def test_versions_of_the_pinned_components():
    """Raise the number here, and pin anew, when a component's numbers are meant to change."""
    metrics = {"regression": 11, "rdm": 6, "rdm_subsets": 6, "cka": 6, "cka_subsets": 6}
    ceilings = {
        "internal_consistency": 6,
        "predictor_consistency": 5,
        "rdm_consistency": 7,
        "rsa": 3,
        "constant": 1,
    }
    assert {name: registry.get("metric", name).version for name in metrics} == metrics
    assert {
        name: registry.get("ceiling", name).version for name in ceilings
    } == ceilings
    assert set(READOUTS) <= set(PINNED)
