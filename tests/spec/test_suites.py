"""The score of a suite with a hierarchy is a mean of means; every benchmark's share in it is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from neuroledger.spec.kinds import SuiteSpec
from neuroledger.spec.suites import groups_of, weights_of

WEIGHTS = {"a": 1.0, "b": 3.0, "c": 1.0, "d": 1.0}
PARENTS = {"a": "V4", "b": "V4", "c": "IT", "d": "behavior"}
ABOVE = {"V4": "neural", "IT": "neural", "neural": "average", "behavior": "average"}


def test_without_a_hierarchy_the_weights_alone_count() -> None:
    assert weights_of(WEIGHTS, PARENTS, {}) == {"a": 1 / 6, "b": 1 / 2, "c": 1 / 6, "d": 1 / 6}
    assert not list(groups_of(WEIGHTS, PARENTS, {}))


def test_each_level_is_a_mean_of_its_members() -> None:
    # behavior is half of the whole; V4 and IT share the other half; in V4, b weighs three times as much as a.
    shares = weights_of(WEIGHTS, PARENTS, ABOVE)
    assert shares == pytest.approx({"a": 1 / 16, "b": 3 / 16, "c": 1 / 4, "d": 1 / 2})


def test_groups_come_before_what_is_in_them_and_a_lone_top_is_the_suite_itself() -> None:
    groups = list(groups_of(WEIGHTS, PARENTS, ABOVE))
    assert [group.name for group in groups] == ["neural", "V4", "IT", "behavior"]
    assert [group.part_of for group in groups] == ["average", "neural", "neural", "average"]
    assert groups[0].shares == pytest.approx({"a": 1 / 8, "b": 3 / 8, "c": 1 / 2})


def test_a_group_without_a_benchmark_that_counts_is_left_out() -> None:
    shares = weights_of({"a": 1.0, "c": 1.0}, PARENTS, ABOVE)
    assert shares == {"a": 0.5, "c": 0.5}
    assert weights_of({}, {}, ABOVE) == {}


def test_a_benchmark_beside_groups_weighs_as_one_of_them() -> None:
    shares = weights_of({"a": 1.0, "b": 1.0, "n": 1.0}, PARENTS | {"n": "neural"}, {"V4": "neural"})
    assert shares == {"a": 0.25, "b": 0.25, "n": 0.5}


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(0.1, 10), min_size=1),
    st.data(),
)
def test_shares_are_positive_and_sum_to_one(weights: dict[str, float], data: st.DataObject) -> None:
    names = ["r", "s", "t", "u"]
    parents = {id: data.draw(st.sampled_from(names)) for id in weights}
    above = {"s": "r", "t": "r", "u": "t"}
    shares = weights_of(weights, parents, above)
    assert set(shares) == set(weights) and min(shares.values()) > 0
    assert sum(shares.values()) == pytest.approx(1)
    for group in groups_of(weights, parents, above):
        assert sum(group.shares.values()) == pytest.approx(1)


def test_a_circle_of_groups_is_refused() -> None:
    fields = {"id": "s", "version": 1, "title": "S", "benchmarks": ["a"]}
    with pytest.raises(ValidationError, match="runs in a circle: V4 → IT → V4"):
        SuiteSpec.model_validate(fields | {"hierarchy": {"V4": "IT", "IT": "V4"}})
