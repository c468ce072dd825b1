"""Shares of fields in the difference of two scores: they add up, and each field gets what it does."""

import itertools
import math

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.engine.why import (
    Definition,
    definition_at,
    definition_of,
    explain,
)
from neuroledger.errors import RequestError
from neuroledger.spec.catalog import open_catalog
from neuroledger.stats.score import Score

RIDGE = ("small_cnn.digits", "Digits.simulated.IT-ridge")
PLS = ("small_cnn.digits", "Digits.simulated.IT-pls")
PIXELS = ("pixels16", "Digits.simulated.IT-ridge")


@pytest.fixture(scope="module")
def validated(readers_store=None):
    from neuroledger.data.gate.validate import validate

    validate(open_catalog(), "Digits.simulated")


def planted(monkeypatch, value_of):
    """Scores are a function of the fields that were switched, so that the truth of each share is known."""
    from neuroledger.engine import why

    def score(self, switched):
        return Score(value_of(switched), scale="correlation", direction="higher")

    monkeypatch.setattr(why._Mixtures, "score", score)


def definitions(count):
    first = {f"field{number}": 0 for number in range(count)}
    second = {f"field{number}": 1 for number in range(count)}
    same = {"model": "m", "seed": 0}
    return Definition("a", first | same), Definition("b", second | same)


def test_one_field_gets_all_of_what_one_field_did(monkeypatch):
    planted(monkeypatch, lambda switched: 0.5 + 0.25 * ("field2" in switched))
    found = explain(*definitions(4))
    shares = {share.field: share.value for share in found.shares}
    assert shares.pop("field2") == pytest.approx(0.25, abs=1e-15)
    assert max(map(abs, shares.values())) < 1e-15


@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_shares_are_means_over_all_orders_and_add_up(monkeypatch, count):
    rng = np.random.default_rng(count)
    names = [f"field{number}" for number in range(count)]
    table = {
        frozenset(chosen): rng.standard_normal()
        for size in range(count + 1)
        for chosen in itertools.combinations(names, size)
    }
    planted(monkeypatch, table.__getitem__)
    found = explain(*definitions(count))
    expected = dict.fromkeys(names, 0.0)
    for order in itertools.permutations(names):
        before = frozenset()
        for name in order:
            step = table[before | {name}] - table[before]
            expected[name] += step / math.factorial(count)
            before |= {name}
    shares = {share.field: share.value for share in found.shares}
    assert shares == pytest.approx(expected, abs=1e-12)
    assert sum(shares.values()) == pytest.approx(found.difference, abs=1e-12)


def test_many_fields_are_sampled_with_a_stated_error_and_still_add_up(monkeypatch):
    effects = {f"field{number}": 0.1 * number for number in range(9)}

    def value(switched):
        both = {"field7", "field8"} <= switched
        return sum(effects[name] for name in switched) + both

    planted(monkeypatch, value)
    found = explain(*definitions(9))
    assert sum(share.value for share in found.shares) == pytest.approx(
        found.difference, abs=1e-12
    )
    shares = {share.field: share for share in found.shares}
    assert shares["field1"].value == pytest.approx(0.1, abs=1e-12)
    assert shares["field1"].sampling_error == pytest.approx(0, abs=1e-12)
    joint = shares["field8"]
    assert abs(joint.value - 1.3) < 3 * joint.sampling_error
    assert joint.sampling_error > 0.05


def test_what_is_left_of_a_published_figure(monkeypatch):
    planted(monkeypatch, lambda switched: 0.5 + 0.1 * len(switched))
    found = explain(*definitions(2), published=0.75)
    assert found.left == pytest.approx(0.05)
    total = sum(share.value for share in found.shares) + found.left
    assert total == pytest.approx(found.difference)
    assert "is left: no field of the definition explains it" in str(found)


def test_two_metrics_differ_by_their_readout_only(validated):
    found = explain(RIDGE, PLS)
    (share,) = found.shares
    assert share.field == "metric.compare"
    assert found.first_value == pytest.approx(nl.score(*RIDGE).value, abs=1e-12)
    assert found.second_value == pytest.approx(nl.score(*PLS).value, abs=1e-12)
    assert share.value == pytest.approx(found.difference, abs=1e-12)
    assert share.low < share.value < share.high
    assert "alpha: 1.0" in str(found)


def test_a_share_has_the_paired_interval_of_the_difference(validated):
    from neuroledger.stats.differences import difference

    found = explain(RIDGE, PIXELS)
    (share,) = found.shares
    paired = difference("", nl.score(*PIXELS), nl.score(*RIDGE))
    assert share.field == "model"
    assert (share.low, share.high) == pytest.approx((paired.low, paired.high))


def test_the_same_definition_differs_in_nothing(validated):
    found = explain(RIDGE, RIDGE)
    assert found.shares == ()
    assert found.difference == 0
    assert "nothing: both have the same definition" in str(found)


def test_an_unknown_pair_is_refused_with_a_near_miss():
    with pytest.raises(RequestError, match=r"IT-ridge"):
        explain(RIDGE, ("small_cnn.digits", "Digits.simulated.IT-rigde"))


def test_a_definition_holds_what_determines_the_score():
    fields = definition_of(open_catalog(), *RIDGE).fields
    assert fields["model"] == "small_cnn.digits"
    assert fields["metric.splits"]["stratify"] == "object_name"
    assert not any("title" in name or "notes" in name for name in fields)


def test_specs_of_a_commit_define_a_score_too():
    catalog = open_catalog()
    now = definition_of(catalog, *RIDGE)
    then = definition_at(catalog, "HEAD", *RIDGE)
    assert then.fields == now.fields
    assert then.name.endswith("at HEAD")


def test_a_compat_mode_is_explained_by_what_it_changes(validated):
    catalog = open_catalog()
    ours = definition_of(catalog, "small_cnn.digits", "Digits.simulated.IT-pls")
    theirs = definition_of(
        catalog, "small_cnn.digits", "Digits.simulated.IT-pls", compat="brainscore"
    )
    found = explain(ours, theirs)
    assert {share.field.split(".")[0] for share in found.shares} <= {
        "ceiling",
        "compat",
        "metric",
    }
    total = sum(share.value for share in found.shares)
    assert total == pytest.approx(found.difference, abs=1e-12)
