"""Bound metrics and ceilings: accepted inputs, refused inputs, and returned scores."""

import pickle

import numpy as np
import pytest
import xarray as xr
from sklearn.model_selection import ShuffleSplit

import neuroledger as nl
from neuroledger.errors import AssemblyError, CeilingError, MetricError, RequestError
from neuroledger.stats.splits import Split
from tests.families.alignment.neural_cases import (
    assembly,
    correlations,
    estimator,
    latent,
)
from tests.families.alignment.test_internal_consistency import recorded

X, Y = latent(60, 40, 5, seed=4)
METRICS = ("pls", "ridge", "linear_predictivity", "neuron_to_neuron", "rdm", "cka")


@pytest.mark.parametrize("id", METRICS)
def test_all_dtypes_give_the_score_of_float64(id):
    for kind in (np.float16, np.int16, bool, object):
        source = np.round(X).astype(kind)
        target = (Y > 0) if kind is bool else np.round(Y).astype(kind)
        result = nl.metric(id)(assembly(source), assembly(target)).value
        expected = nl.metric(id)(
            assembly(source.astype(float)), assembly(target.astype(float))
        ).value
        assert result == pytest.approx(expected, abs=1e-12), kind


@pytest.mark.parametrize("id", METRICS)
def test_invalid_assemblies_are_refused_with_the_name_of_the_argument(id):
    metric, good = nl.metric(id), assembly(Y)
    for bad, error, words in [
        ({"X": X}, RequestError, "source is a builtins.dict"),
        (
            assembly(X).to_dataset(name="data"),
            RequestError,
            "source is a xarray.Dataset",
        ),
        (assembly(X.astype(str)), AssemblyError, "values of type <U"),
        (assembly(X + 0j), AssemblyError, "complex128"),
        (assembly(X[:, :0]), AssemblyError, "source is empty: it has no neuroid"),
        (
            assembly(X).drop_vars("stimulus_id"),
            MetricError,
            "the source has no coordinate 'stimulus_id'",
        ),
        (
            assembly(np.where(X > 2, np.nan, X)),
            MetricError,
            "missing or infinite values",
        ),
        (assembly(X[:40]), AssemblyError, "no rows for 20 of 60 stimuli"),
        (
            xr.concat([assembly(X)] * 2, "presentation"),
            AssemblyError,
            "has 2 rows, but 1 on the other side",
        ),
    ]:
        with pytest.raises(error, match=words):
            metric(bad, good)
    with pytest.raises(MetricError, match="the target has no coordinate 'stimulus_id'"):
        metric(assembly(X), good.drop_vars("stimulus_id"))


def test_neuroids_of_train_and_test_are_matched_by_id():
    source, target = assembly(X), assembly(Y)
    parts = [
        side.isel(presentation=rows)
        for side in (source, target)
        for rows in (slice(40), slice(40, None))
    ]
    names = ("source_train", "source_test", "target_train", "target_test")
    expected = nl.metric("ridge_split")(**dict(zip(names, parts, strict=True))).value
    turned = [
        part.isel(neuroid=slice(None, None, -1)) if at % 2 else part
        for at, part in enumerate(parts)
    ]
    assert (
        nl.metric("ridge_split")(**dict(zip(names, turned, strict=True))).value
        == expected
    )
    other = parts[3].assign_coords(
        neuroid_id=("neuroid", parts[3]["neuroid_id"].values[::-1] + "x")
    )
    with pytest.raises(MetricError, match="train and test have different neuroids"):
        nl.metric("ridge_split")(**dict(zip(names, [*parts[:3], other], strict=True)))


@pytest.mark.parametrize(
    "id", ["pls", "ridge", "linear_predictivity", "neuron_to_neuron"]
)
@pytest.mark.parametrize("features", [3, 40])
def test_splits_may_share_rows(id, features):
    splits = [
        Split(np.arange(50), np.arange(40, 60)),
        Split(np.arange(30), np.arange(30)),
    ]
    result = nl.metric(id)(assembly(X[:, :features]), assembly(Y), splits=splits)
    expected = correlations(
        estimator(id, min(25, features)), X[:, :features], Y, splits
    )
    np.testing.assert_allclose(
        result.samples.values, expected, atol=1e-6 if id == "pls" else 1e-9
    )


def test_splits_as_scikit_learn_yields_them():
    divide = ShuffleSplit(4, random_state=3)
    result = nl.metric("ridge")(assembly(X), assembly(Y), splits=divide.split(X))
    assert result.samples.sizes["split"] == 4
    for bad, words in [
        ([], "no split"),
        ([([], [1])], "train part"),
        ([([0, 1], [60])], "asks for row 60; there are 60 rows"),
    ]:
        with pytest.raises(MetricError, match=words):
            nl.metric("ridge")(assembly(X), assembly(Y), splits=bad)


@pytest.mark.parametrize("splits", [[([0, 1], [2, 3])], iter([]), 5])
def test_pairs_of_rows_as_a_spec_override_are_refused_with_the_right_place(splits):
    with pytest.raises(
        RequestError, match=r"with the data: nl.metric\('ridge'\)\(…, splits=pairs\)"
    ):
        nl.metric("ridge", splits=splits)


def test_misplaced_overrides_are_refused_with_the_right_place():
    for id, overrides, words in [
        ("pls", {"components": 10}, "estimator={'components'"),
        ("ridge", {"alpha": 3}, "estimator={'alpha'"),
        ("pls", {"folds": 5}, "splits={'folds'"),
        ("pls", {"device": "cuda"}, "workspace=Workspace"),
        ("pls", {"estimator": {"component": 5}}, "there is no such field"),
        ("pls", {"workspace": 3}, "workspace is a int"),
    ]:
        with pytest.raises(RequestError, match=words):
            nl.metric(id, **overrides)
    with pytest.raises(RequestError, match="there is a ceiling of that name"):
        nl.metric("internal_consistency")
    with pytest.raises(RequestError, match="did you mean 'pls"):
        nl.metric("PLS")


def test_components_are_chosen_by_name_and_keep_the_units_of_splits():
    metric = nl.metric("pls", compat="brainscore", splits="kfold", estimator="ridge")
    assert (metric.spec.splits.name, metric.spec.splits.stratify) == (
        "kfold",
        "object_name",
    )
    assert repr(metric) == (
        "<metric pls: regression(estimator=ridge(alpha=1.0), correlation='pearson', time='none', reverse=False, "
        "relative=False), "
        "splits kfold × 10, seed 1>"
    )


def test_a_score_and_a_metric_can_be_sent_to_another_process():
    for id in ("ridge", "rdm", "cka"):
        score = pickle.loads(pickle.dumps(nl.metric(id)))(assembly(X), assembly(Y))
        again = pickle.loads(pickle.dumps(score))
        assert (again.value, again.low, again.high) == (
            score.value,
            score.low,
            score.high,
        )
        assert again.samples.equals(score.samples)


def test_ceilings_report_missing_coordinates_and_repetitions():
    content = recorded(stimuli=12, repetitions=4)
    for bad, error, words in [
        (content.drop_vars("repetition"), CeilingError, "no such coordinate"),
        (
            content.isel(presentation=content["repetition"].values == 0),
            CeilingError,
            "no repetitions",
        ),
        (content.drop_vars("stimulus_id"), CeilingError, "needs 'stimulus_id'"),
        (content.isel(neuroid=slice(0)), AssemblyError, "it has no neuroid"),
        (content.values, AssemblyError, "repetition, stimulus, neuroid"),
    ]:
        with pytest.raises(error, match=words):
            nl.ceiling("internal_consistency")(bad)


def test_behavioural_metrics_refuse_bare_arrays():
    with pytest.raises(RequestError, match="i2n cannot be computed from a ndarray"):
        nl.metric("i2n")(X, Y)
