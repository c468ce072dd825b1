"""What a spec may not say together is refused in words; what it leaves out has a meaning."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from neuroledger.spec.kinds import KINDS

BARE: dict[str, dict[str, Any]] = {
    "benchmarks": {
        "dataset": "d", "paradigm": {"name": "neural"}, "metric": "m", "ceiling": None, "parent": "p",
        "controls": {"negative": ["n"], "positive": ["p"]},
    },
    "models": {"builder": {"name": "pixels"}},
    "suites": {"benchmarks": ["a"]},
}  # fmt: skip


def made(kind: str, **fields: Any) -> Any:
    known = {"id": "bare", "version": 1, "title": "A bare one"} | BARE[kind] | fields
    return KINDS[kind].model_validate({name: value for name, value in known.items() if value != "absent"})


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (
            "benchmarks",
            {"metrics": ["a"]},
            "give one `metric`, or several `metrics` of which the first is the headline",
        ),
        ("benchmarks", {"metric": None}, "give one `metric`, or several"),
        (
            "benchmarks",
            {"ceiling": "c", "floor": {"dummy": 0.1}},
            "normalise by a `ceiling` or by a `floor`, not by both",
        ),
        ("benchmarks", {"normalise": "ceiling"}, "`normalise: ceiling` needs a `ceiling`"),
        ("benchmarks", {"normalise": "floor"}, "`normalise: floor` needs a `floor`"),
        ("benchmarks", {"version": 0}, "greater than or equal to 1"),
        ("benchmarks", {"title": "ab"}, "at least 3"),
        ("models", {"builder": None}, "a model needs a `builder`, or the reason why it is `unavailable`"),
        (
            "models",
            {"weights": {"w.pt": {"size": 1, "sha256": "0" * 64}}},
            "w.pt has no source: give either `dvc: true`",
        ),
        ("models", {"visual_degrees": 0}, "greater than 0"),
        ("suites", {"benchmarks": []}, "a suite needs `benchmarks`, or other suites in `includes`"),
        ("suites", {"benchmarks": ["b", "a", {"id": "a"}, "b"]}, "listed twice: a, b"),
        ("suites", {"benchmarks": [{"id": "a", "weight": 0}]}, "greater than 0"),
        ("suites", {"hierarchy": {"a": "b", "b": "c", "c": "a"}}, "runs in a circle: a → b → c → a"),
        ("suites", {"hierarchy": {"a": "a"}}, "runs in a circle: a → a"),
    ],
)
def test_contradictory_fields_are_refused_with_the_reason(
    kind: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        made(kind, **fields)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "by"),
    [
        ({}, "none"),
        ({"ceiling": "c"}, "ceiling"),
        ({"floor": {"dummy": 0.1}}, "floor"),
        ({"ceiling": "c", "normalise": "none"}, "none"),
        ({"floor": {"dummy": 0.1}, "normalise": "floor"}, "floor"),
    ],
)
def test_a_score_is_normalised_by_what_is_declared(fields: dict[str, Any], by: str) -> None:
    assert made("benchmarks", **fields).normalised_by == by


def test_the_headline_is_first_and_a_bare_id_of_a_suite_weighs_one() -> None:
    assert made("benchmarks").all_metrics == ("m",)
    assert made("benchmarks", metric=None, metrics=["b", "a"]).all_metrics == ("b", "a")
    one, other = made("suites", benchmarks=["a", {"id": "b", "weight": 2, "version": 3}]).benchmarks
    assert (one.id, one.weight, one.version) == ("a", 1.0, None) and (other.weight, other.version) == (2.0, 3)
    suite = made("suites", benchmarks="absent", includes=["x"], hierarchy={"a": "c", "b": "c"})
    assert suite.benchmarks == () and suite.family == "suite" and suite.hierarchy == {"a": "c", "b": "c"}
    model = made("models", builder=None, unavailable="nobody has it")
    assert model.builder is None and model.weights == {} and not model.simulated and model.control is None
