"""Overrides of metrics and ceilings: merging, compat modes, splits, and the advice for unknown or invalid fields."""

from __future__ import annotations

import re
from typing import Any

import pytest

import neuroledger as nl
from neuroledger.engine.overrides import in_compat, resolve
from neuroledger.errors import RequestError
from neuroledger.spec.base import Override
from neuroledger.spec.catalog import open_definitions


@pytest.mark.parametrize(
    ("id", "overrides", "message"),
    [
        (
            "pls",
            {"compat": "brainscor"},
            "metric 'pls' has no compat 'brainscor'; known: brainscore",
        ),
        (
            "auroc",
            {"compat": "x"},
            "metric 'auroc' has no compat 'x'; known: none: it already agrees",
        ),
        (
            "pls",
            {"fold": 3},
            "metric 'pls' has no field 'fold'; did you mean splits={'folds': …}?",
        ),
        (
            "pls",
            {"componets": 3},
            "has no field 'componets'; did you mean estimator={'components': …}?",
        ),
        (
            "pls",
            {"titel": "x"},
            "metric 'pls' has no field 'titel'; did you mean 'title'?",
        ),
        (
            "pls",
            {"zzz": 3},
            "has no field 'zzz'; parameters of regression: correlation, estimator, relative, reverse, time",
        ),
        (
            "pls",
            {"dtype": "float32"},
            "has no field 'dtype'; pass workspace=Workspace(dtype=…), from",
        ),
        (
            "pls",
            {"threads": 2},
            "has no field 'threads'; pass workspace=Workspace(threads=…), from",
        ),
        (
            "pls",
            {"splits": {"folds": 0}},
            "metric 'pls', overridden: splits.folds: 0 is not greater",
        ),
        (
            "ridge",
            {"correlation": "x"},
            "metric 'ridge', parameters of regression: correlation: 'x' is not one of",
        ),
        (
            "ridge",
            {"scale": "corelation"},
            "metric 'ridge', overridden: scale: 'corelation' is not one of",
        ),
        (
            "ridge",
            {"scale": 3.0},
            "metric 'ridge' has no field 'scale'; parameters of regression",
        ),
        (3, {}, "3 is not the id of a metric; see `neuroledger list metrics`"),
    ],
)
def test_an_invalid_override_is_refused_with_advice(
    id: Any, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        nl.metric(id, **overrides)


def test_an_invalid_override_of_a_ceiling_names_the_ceiling() -> None:
    with pytest.raises(
        RequestError, match="ceiling 'internal_consistency' has no field 'fold'"
    ):
        nl.ceiling("internal_consistency", fold=3)
    with pytest.raises(
        RequestError,
        match=re.escape("nl.ceiling('internal_consistency')(…, splits=pairs)"),
    ):
        nl.ceiling("internal_consistency", splits=[([0], [1])])


def test_a_nested_override_changes_only_its_own_fields() -> None:
    usual, fewer = nl.metric("pls"), nl.metric("pls", splits={"folds": 4})
    assert fewer.spec.splits == usual.spec.splits.model_copy(update={"folds": 4})
    assert fewer.parameters == usual.parameters
    strong = nl.metric("ridge", estimator={"alpha": 3})
    assert (
        strong.parameters["estimator"].alpha == 3.0
        and strong.parameters["correlation"] == "pearson"
    )
    assert nl.metric("ridge").parameters["estimator"].alpha == 1.0, (
        "the spec itself is unchanged"
    )


def test_another_component_replaces_the_parameters_of_the_old_one() -> None:
    for override in ("ridge", {"name": "ridge"}):
        estimator = nl.metric("pls", estimator=override).parameters["estimator"]
        assert estimator.model_dump() == {"name": "ridge", "alpha": 1.0}
    same = nl.metric("pls", estimator={"name": "pls", "components": 3}).parameters[
        "estimator"
    ]
    assert (same.components, same.iterations) == (3, 500)


def test_another_rule_of_splits_keeps_units_and_seed_but_not_the_size_of_parts() -> (
    None
):
    assert nl.metric("pls").spec.splits.train == 0.9
    for override in ("kfold", {"name": "kfold"}):
        splits = nl.metric("pls", compat="brainscore", splits=override).spec.splits
        assert (splits.name, splits.train, splits.seed) == ("kfold", None, 1)
        assert (splits.by, splits.repeats, splits.stratify) == (
            "stimulus_id",
            "apart",
            "object_name",
        )
    splits = nl.metric(
        "pls", splits={"name": "kfold", "seed": 7, "by": "object_name"}
    ).spec.splits
    assert (splits.seed, splits.by) == (7, "object_name")
    assert (
        nl.metric("pls", splits={"name": "shuffle", "folds": 3}).spec.splits.train
        == 0.9
    )
    assert nl.metric("pls", splits=None).spec.splits is None


def test_overrides_are_applied_on_top_of_a_compat_mode() -> None:
    peer = nl.metric("pls", compat="brainscore")
    assert (peer.spec.splits.repeats, peer.spec.splits.folds) == ("apart", 10)
    changed = nl.metric(
        "pls", compat="brainscore", splits={"folds": 3, "repeats": "together"}
    )
    assert (changed.spec.splits.repeats, changed.spec.splits.folds) == ("together", 3)
    assert changed.spec.splits.stratify == "object_name"


def test_scale_is_a_field_as_text_and_a_parameter_as_a_number() -> None:
    assert nl.metric("value_delta").parameters["scale"] == 1.0
    number = nl.metric("value_delta", scale=2)
    assert (
        number.parameters["scale"] == 2.0
        and number.spec.scale == nl.metric("value_delta").spec.scale
    )
    assert nl.metric("value_delta", scale="error").spec.scale == "error"


def test_fields_and_parameters_can_be_overridden_together() -> None:
    metric = nl.metric(
        "ridge",
        correlation="spearman",
        compare={"estimator": {"alpha": 2}},
        title="Mine",
    )
    assert (
        metric.parameters["correlation"] == "spearman" and metric.spec.title == "Mine"
    )
    assert metric.parameters["estimator"].alpha == 2.0


def test_parameters_of_an_override_are_changed_by_arguments() -> None:
    catalog = open_definitions()
    override = Override(name="ridge", estimator={"alpha": 5})
    spec, component, parameters = resolve("metrics", override, catalog, {})
    assert (spec.id, component.name, parameters["estimator"].alpha) == (
        "ridge",
        "regression",
        5.0,
    )
    changed = resolve("metrics", override, catalog, {"estimator": {"alpha": 6}})[2]
    assert changed["estimator"].alpha == 6.0


def test_a_compat_applies_only_to_specs_that_have_it() -> None:
    catalog = open_definitions()
    pls, auroc = catalog.metric("pls"), catalog.metric("auroc")
    assert in_compat(pls, "brainscore") == {"compat": "brainscore"}
    assert (
        in_compat(pls, None) == {}
        and in_compat(pls, "other") == {}
        and in_compat(auroc, "brainscore") == {}
    )
