"""Costs of networks change only with a metric's version: comparison with stored numbers."""

from __future__ import annotations

import json

import pytest

from tests.golden.cost_cases import FILE, NETWORKS, found, versions

GOLDEN = json.loads(FILE.read_text())


def test_the_pinned_costs_are_those_of_the_present_versions():
    assert versions() == GOLDEN["versions"]


@pytest.mark.filterwarnings(
    "ignore:Sparse CSR tensor support is in beta", "ignore:torch.quantize_per_tensor"
)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_cost_changes_only_with_the_version_of_its_metric(name):
    costs, pinned = found(name), GOLDEN["costs"][name]
    assert costs.keys() == pinned.keys()
    for metric, value in costs.items():
        expected = pinned[metric]
        assert value == (
            expected
            if isinstance(expected, str)
            else pytest.approx(expected, rel=1e-12)
        ), metric
