"""What a spec may not say together is refused in words; what it leaves out has a meaning."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from neuroledger.spec.kinds import KINDS

PIN = {"size": 1, "sha256": "0" * 64}
BARE: dict[str, dict[str, Any]] = {
    "datasets": {
        "license": "CC0-1.0", "files": {"a.nc": PIN | {"url": "https://example.org/a.nc"}}, "reader": {"name": "netcdf"}
    },
    "metrics": {"compare": {"name": "regression"}, "scale": "correlation"},
    "benchmarks": {
        "dataset": "d", "paradigm": {"name": "neural"}, "metric": "m", "ceiling": None, "parent": "p",
        "controls": {"negative": ["n"], "positive": ["p"]},
    },
    "models": {"builder": {"name": "pixels"}},
    "suites": {"benchmarks": ["a"]},
    "claims": {"pairs": [{"above": "a", "below": "b"}], "benchmarks": ["c"]},
}  # fmt: skip


def made(kind: str, **fields: Any) -> Any:
    known = {"id": "bare", "version": 1, "title": "A bare one"} | BARE[kind] | fields
    return KINDS[kind].model_validate(
        {name: value for name, value in known.items() if value != "absent"}
    )


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
        (
            "benchmarks",
            {"normalise": "ceiling"},
            "`normalise: ceiling` needs a `ceiling`",
        ),
        ("benchmarks", {"normalise": "floor"}, "`normalise: floor` needs a `floor`"),
        ("benchmarks", {"version": 0}, "greater than or equal to 1"),
        ("benchmarks", {"title": "ab"}, "at least 3"),
        (
            "models",
            {"builder": None},
            "a model needs a `builder`, or the reason why it is `unavailable`",
        ),
        (
            "models",
            {"weights": {"w.pt": {"size": 1, "sha256": "0" * 64}}},
            "w.pt has no source: give either `dvc: true`",
        ),
        ("models", {"visual_degrees": 0}, "greater than 0"),
        (
            "datasets",
            {"unavailable": "lost", "unread": "odd"},
            "a data set is `unavailable` or `unread`, not both",
        ),
        (
            "datasets",
            {"unread": "odd", "files": {}},
            "a data set that is `unread` needs `files`",
        ),
        (
            "datasets",
            {"files": {}},
            "a data set needs `files` and a `reader`, or the reason why it is `unavailable`",
        ),
        (
            "datasets",
            {"reader": None},
            "a data set needs `files` and a `reader`, or the reason",
        ),
        (
            "datasets",
            {"files": {"a.nc": PIN}},
            "a.nc has neither `dvc: true` nor a `url`: give one, or state in",
        ),
        (
            "datasets",
            {"downloads": {"a/../../b": {}}},
            "'a/../../b' leads out of the folder of downloads",
        ),
        (
            "datasets",
            {"downloads": {"*.nc": {"size": 3}}},
            "'*.nc' matches many files, which have no common checksum",
        ),
        ("datasets", {"degrees": 0}, "greater than 0"),
        ("metrics", {"chance_level": 1}, "less than 1"),
        ("metrics", {"chance_level": -0.1}, "greater than or equal to 0"),
        ("metrics", {"chance_level": "1/2"}, "1/classes"),
        ("metrics", {"splits": {"folds": 0}}, "greater than or equal to 1"),
        ("metrics", {"splits": {"seed": -1}}, "greater than or equal to 0"),
        ("metrics", {"splits": {"train": 1.0}}, "less than 1"),
        ("metrics", {"splits": {"test": 0}}, "greater than or equal to 1"),
        ("benchmarks", {"controls": {"ceiling_at_least": 0}}, "greater than 0"),
        (
            "benchmarks",
            {"controls": {"itself_at_most": 0.9}},
            "greater than or equal to 1",
        ),
        (
            "benchmarks",
            {"controls": {"floor_at_most": -0.1}},
            "greater than or equal to 0",
        ),
        (
            "suites",
            {"benchmarks": [{"id": "a", "version": 0}]},
            "greater than or equal to 1",
        ),
        (
            "suites",
            {"benchmarks": []},
            "a suite needs `benchmarks`, or other suites in `includes`",
        ),
        ("suites", {"benchmarks": ["b", "a", {"id": "a"}, "b"]}, "listed twice: a, b"),
        ("suites", {"benchmarks": [{"id": "a", "weight": 0}]}, "greater than 0"),
        (
            "suites",
            {"hierarchy": {"a": "b", "b": "c", "c": "a"}},
            "runs in a circle: a → b → c → a",
        ),
        ("suites", {"hierarchy": {"a": "a"}}, "runs in a circle: a → a"),
        ("claims", {"pairs": []}, "at least 1 item"),
        ("claims", {"benchmarks": ["c", "c"]}, "`benchmarks` is listed twice"),
        ("claims", {"at_least": -0.1}, "greater than or equal to 0"),
        (
            "claims",
            {"pairs": [{"above": "a", "below": "a"}]},
            "'a' cannot be above itself",
        ),
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
def test_a_score_is_normalised_by_what_is_declared(
    fields: dict[str, Any], by: str
) -> None:
    assert made("benchmarks", **fields).normalised_by == by


def test_a_closed_data_set_says_why_and_needs_only_what_is_there() -> None:
    bare = made("datasets")
    assert bare.closed is None and (bare.access, bare.stimuli, bare.simulated) == (
        "public",
        "images",
        False,
    )
    lost = made("datasets", files={}, reader=None, unavailable="lost")
    assert lost.closed == "lost"
    odd = made("datasets", reader=None, unread="no reader has its format")
    assert odd.closed == "no reader has its format"
    listed = {"files": {"table": "bare.jsonl", "sha256": "0" * 64, "rows": 2}}
    assert made("datasets", files={}, lists=listed).closed is None, (
        "files may be listed in a table"
    )
    by_hand = made("datasets", files={"a.nc": PIN}, access_steps=["ask the lab"])
    assert by_hand.files["a.nc"].by_hand
    stated = {"a..b.nc": {"size": 3}, "*.nc": {}, "deep/?.nc": {}}
    assert set(made("datasets", downloads=stated).downloads) == set(stated)


def test_splits_scores_and_controls_that_a_spec_leaves_out_have_a_meaning() -> None:
    splits = made("metrics", splits={}).splits
    assert (splits.name, splits.folds, splits.train, splits.test, splits.by) == (
        "shuffle",
        10,
        None,
        None,
        "stimulus_id",
    )
    assert (splits.unique, splits.repeats, splits.seed, splits.disjoint) == (
        False,
        "together",
        1,
        None,
    )
    assert made("metrics", splits={"seed": 0}).splits.seed == 0
    metric = made(
        "metrics",
        error={"over": "neuroid"},
        aggregate=[{"over": "neuroid", "with": "median"}],
    )
    assert (metric.chance_level, metric.direction, metric.splits, metric.unit) == (
        0.0,
        "higher",
        None,
        None,
    )
    assert metric.error.with_ == "sem" and metric.aggregate[0].with_ == "median"
    assert made("metrics", chance_level="1/classes").chance_level == "1/classes"
    benchmark = made(
        "benchmarks", controls="absent", floor={"dummy": 0.1}, normalise={"by": "floor"}
    )
    controls = benchmark.controls
    assert (controls.positive, controls.negative) == ((), ())
    assert (
        controls.ceiling_at_least,
        controls.itself_at_most,
        controls.floor_at_most,
    ) == (0.8, 10.0, 0.1)
    assert (benchmark.floor.perfect, benchmark.floor.fallback) == (1.0, None)
    assert benchmark.normalise.formula == "scales" and not benchmark.normalise.clip
    assert benchmark.normalised_by == "floor"


def test_the_headline_is_first_and_a_bare_id_of_a_suite_weighs_one() -> None:
    assert made("benchmarks").all_metrics == ("m",)
    assert made("benchmarks", metric=None, metrics=["b", "a"]).all_metrics == ("b", "a")
    one, other = made(
        "suites", benchmarks=["a", {"id": "b", "weight": 2, "version": 3}]
    ).benchmarks
    assert (one.id, one.weight, one.version) == ("a", 1.0, None) and (
        other.weight,
        other.version,
    ) == (2.0, 3)
    suite = made(
        "suites", benchmarks="absent", includes=["x"], hierarchy={"a": "c", "b": "c"}
    )
    assert (
        suite.benchmarks == ()
        and suite.family == "suite"
        and suite.hierarchy == {"a": "c", "b": "c"}
    )
    model = made("models", builder=None, unavailable="nobody has it")
    assert (
        model.builder is None
        and model.weights == {}
        and not model.simulated
        and model.control is None
    )


@pytest.mark.parametrize(
    ("id", "file"),
    [
        ("models", "a.nc"),
        ("Models", "a.nc"),
        ("nul", "a.nc"),
        ("lab", "a.py"),
        ("lab", "a.pth"),
    ],
)
def test_a_data_set_has_a_folder_of_its_own_in_which_nothing_is_obeyed(
    id: str, file: str
) -> None:
    def made(id: str, file: str) -> Any:
        pin = {"dvc": True, "size": 1, "sha256": "0" * 64}
        plain = {
            "id": id,
            "version": 1,
            "title": "Data",
            "license": "CC0-1.0",
            "files": {file: pin},
        }
        return KINDS["datasets"].model_validate(plain | {"reader": {"name": "netcdf"}})

    assert made("models2", "sub/a.nc").id == "models2"
    with pytest.raises(ValidationError):
        made(id, file)


def test_a_checkpoint_of_torch_may_be_weights() -> None:
    pin = {"dvc": True, "size": 1, "sha256": "0" * 64}
    plain = {
        "id": "net",
        "version": 1,
        "title": "A network",
        "builder": {"name": "x"},
        "weights": {"a.pth": pin},
    }
    assert "a.pth" in KINDS["models"].model_validate(plain).weights
    with pytest.raises(ValidationError, match="obeys"):
        KINDS["models"].model_validate(plain | {"weights": {"a.so": pin}})
