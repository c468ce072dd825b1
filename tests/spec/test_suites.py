"""The score of a suite with a hierarchy is a mean of means; every benchmark's share in it is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from neuroledger.errors import CircleError, RequestError
from neuroledger.spec.kinds import SuiteSpec
from neuroledger.spec.suites import (
    groups_of,
    suite_problems,
    suites_of,
    to_score,
    unlisted,
    weights_of,
)
from tests.engine.lab import Lab

WEIGHTS = {"a": 1.0, "b": 3.0, "c": 1.0, "d": 1.0}
PARENTS = {"a": "V4", "b": "V4", "c": "IT", "d": "behavior"}
ABOVE = {"V4": "neural", "IT": "neural", "neural": "average", "behavior": "average"}


def test_without_a_hierarchy_the_weights_alone_count() -> None:
    assert weights_of(WEIGHTS, PARENTS, {}) == {
        "a": 1 / 6,
        "b": 1 / 2,
        "c": 1 / 6,
        "d": 1 / 6,
    }
    assert not list(groups_of(WEIGHTS, PARENTS, {}))


def test_each_level_is_a_mean_of_its_members() -> None:
    # behavior is half of the whole; V4 and IT share the other half; in V4, b weighs three times as much as a.
    shares = weights_of(WEIGHTS, PARENTS, ABOVE)
    assert shares == pytest.approx({"a": 1 / 16, "b": 3 / 16, "c": 1 / 4, "d": 1 / 2})


def test_groups_come_before_what_is_in_them_and_a_lone_top_is_the_suite_itself() -> (
    None
):
    groups = list(groups_of(WEIGHTS, PARENTS, ABOVE))
    assert [group.name for group in groups] == ["neural", "V4", "IT", "behavior"]
    assert [group.part_of for group in groups] == [
        "average",
        "neural",
        "neural",
        "average",
    ]
    assert groups[0].shares == pytest.approx({"a": 1 / 8, "b": 3 / 8, "c": 1 / 2})


def test_a_group_without_a_benchmark_that_counts_is_left_out() -> None:
    shares = weights_of({"a": 1.0, "c": 1.0}, PARENTS, ABOVE)
    assert shares == {"a": 0.5, "c": 0.5}
    assert weights_of({}, {}, ABOVE) == {}


def test_a_benchmark_beside_groups_weighs_as_one_of_them() -> None:
    shares = weights_of(
        {"a": 1.0, "b": 1.0, "n": 1.0}, PARENTS | {"n": "neural"}, {"V4": "neural"}
    )
    assert shares == {"a": 0.25, "b": 0.25, "n": 0.5}


@given(
    st.dictionaries(
        st.text("abcdef", min_size=1, max_size=3), st.floats(0.1, 10), min_size=1
    ),
    st.data(),
)
def test_shares_are_positive_and_sum_to_one(
    weights: dict[str, float], data: st.DataObject
) -> None:
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


def test_a_suite_is_scored_with_all_that_it_includes_each_once(lab: Lab) -> None:
    lab.benchmark("lab.other")
    lab.spec("suites", "low", benchmarks=["lab.other"])
    lab.spec("suites", "middle", includes=["low", "lab"])
    lab.spec("suites", "top", benchmarks=["lab.V4-ridge"], includes=["middle", "low"])
    assert [spec.id for spec in suites_of(lab.open(), "top")] == ["top", "low", "lab"]
    assert [spec.id for spec in suites_of(lab.open(), "middle")] == ["low", "lab"]


def test_suites_that_include_each_other_are_refused(lab: Lab) -> None:
    lab.spec("suites", "a", includes=["b"])
    lab.spec("suites", "b", includes=["a"])
    with pytest.raises(
        CircleError, match=r"^suites include each other in a circle: a → b → a$"
    ):
        suites_of(lab.open(), "a")
    catalog = lab.open()
    assert list(suite_problems(catalog, catalog.suite("a"))) == [
        (
            ("includes",),
            "suites include each other in a circle: a → b → a",
            "remove one of the includes",
        )
    ]


def tracked(lab: Lab, **fields: str) -> None:
    """The files of the data set are in the repository's DVC remote."""
    files = {
        name: {**pin, "url": None, "dvc": True} for name, pin in lab.pins().items()
    }
    lab.dataset(files=files, **fields)


def test_benchmarks_that_no_suite_lists_form_a_suite_if_their_data_are_in_the_repository(
    lab: Lab,
) -> None:
    tracked(lab)
    assert unlisted(lab.open(), ()) is None
    with pytest.raises(
        RequestError, match="every benchmark with data in the repository is listed"
    ):
        suites_of(lab.open(), "unlisted")
    lab.benchmark("lab.new")
    lab.benchmark("lab.closed", unavailable="withdrawn")
    extra = unlisted(lab.open(), ("pixels4",))
    assert extra is not None and (extra.id, extra.models) == ("unlisted", ("pixels4",))
    assert [item.id for item in extra.benchmarks] == ["lab.new"]
    ((only),) = suites_of(lab.open(), "unlisted")
    assert [item.id for item in only.benchmarks] == ["lab.new"] and only.models == ()
    lab.spec("suites", "unlisted", benchmarks=["lab.V4-ridge"])
    assert [item.id for item in suites_of(lab.open(), "unlisted")[0].benchmarks] == [
        "lab.V4-ridge"
    ]


def test_a_benchmark_on_data_that_must_be_fetched_is_in_no_suite(lab: Lab) -> None:
    lab.benchmark("lab.new")
    tracked(lab)
    assert unlisted(lab.open(), ()) is not None
    tracked(lab, unavailable="withdrawn")
    assert unlisted(lab.open(), ()) is None
    lab.dataset()  # its files have addresses
    assert unlisted(lab.open(), ()) is None


def test_an_unlisted_benchmark_is_scored_on_the_models_of_the_first_suite_with_its_paradigm(
    lab: Lab,
) -> None:
    tracked(lab)
    assert [spec.id for spec in to_score(lab.open(), "lab")] == ["lab"]
    lab.benchmark("lab.new")
    lab.benchmark("lab.newer")
    lab.spec(
        "suites",
        "more",
        benchmarks=["lab.V4-ridge"],
        models=["noise"],
        includes=["lab"],
    )
    scored = to_score(lab.open(), "more")
    assert [
        (spec.id, spec.models, [item.id for item in spec.benchmarks]) for spec in scored
    ] == [
        ("more", ("noise",), ["lab.V4-ridge"]),
        ("lab", ("pixels4",), ["lab.V4-ridge"]),
        ("unlisted", ("noise",), ["lab.new", "lab.newer"]),
    ]


def test_a_stated_version_of_a_benchmark_is_the_current_one(lab: Lab) -> None:
    fields = {
        "benchmarks": [
            {"id": "lab.V4-ridge", "version": 1},
            {"id": "lab.gone", "version": 3},
        ]
    }
    lab.spec("suites", "stated", **fields)
    catalog = lab.open()
    assert list(suite_problems(catalog, catalog.suite("stated"))) == []
    lab.benchmark(version=2)
    catalog = lab.open()
    assert list(suite_problems(catalog, catalog.suite("stated"))) == [
        (
            ("benchmarks", 0),
            "the suite states version 1 of 'lab.V4-ridge', which is at version 2",
            "make a new version of the suite",
        )
    ]


def test_a_group_of_the_hierarchy_has_members(lab: Lab) -> None:
    lab.benchmark("lab.IT", parent="IT")
    lab.spec(
        "suites",
        "grouped",
        benchmarks=["lab.V4-ridge", "lab.IT"],
        hierarchy={
            "V4": "neural",
            "IT": "neural",
            "neural": "average",
            "V44": "neural",
            "behavior": "average",
        },
    )
    catalog = lab.open()
    message = "no benchmark of the suite has the parent {!r}, and no group is in it"
    assert list(suite_problems(catalog, catalog.suite("grouped"))) == [
        (("hierarchy", "V44"), message.format("V44"), "did you mean 'V4'?"),
        (
            ("hierarchy", "behavior"),
            message.format("behavior"),
            "the parents are IT, V4",
        ),
    ]
