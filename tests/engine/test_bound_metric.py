"""Alignment of assemblies for a metric, and the Score that is made from a component's samples."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pydantic import BaseModel

import neuroledger as nl
from neuroledger.engine import bound_metric as module
from neuroledger.engine.bound_metric import (
    BoundMetric,
    _short,
    aligned,
    check_repeated,
    joined,
)
from neuroledger.engine.context import MetricContext
from neuroledger.errors import CeilingError, MetricError, RequestError
from neuroledger.spec.base import spec_sha256
from neuroledger.stats.samples import Keep, NotKnown, Samples, Variation
from neuroledger.stats.score import Score, normalise
from neuroledger.stats.uncertainty import NOWHERE
from tests.text_storage import STORAGES
from tests.varying import exactly

IDS = ["a", "b", "c"]


def rows(ids: list[str] | None, width: int = 2, **coords: Any) -> xr.DataArray:
    """An assembly with the values 0, 1, 2, … and the stimulus ids of its rows."""
    number = 3 if ids is None else len(ids)
    labels = {} if ids is None else {"stimulus_id": ("presentation", ids)}
    values = np.arange(float(number * width)).reshape(number, width)
    return xr.DataArray(
        values, dims=("presentation", "neuroid"), coords=labels | coords
    )


def repeated(*repetitions: int) -> xr.DataArray:
    return rows(["a", "a", "b"], repetition=("presentation", list(repetitions)))


def test_rows_come_in_the_order_of_the_reference() -> None:
    assert aligned(rows(IDS), rows(["c", "a", "b"]), "source", "target").values[
        :, 0
    ].tolist() == [4, 0, 2]


def test_rows_in_the_same_order_and_assemblies_without_ids_are_returned_unchanged() -> (
    None
):
    for array, reference in ((rows(IDS), rows(IDS)), (rows(None), rows(None))):
        assert aligned(array, reference, "source", "target") is array
    rdm = xr.DataArray(np.eye(3), dims=("stimulus", "stimulus_b"))
    for array, reference in ((rdm, rows(IDS)), (rows(IDS), rdm)):
        assert aligned(array, reference, "source", "target") is array


@pytest.mark.parametrize(
    ("own", "other", "side"), [(IDS, None, "target"), (None, IDS, "source")]
)
def test_ids_on_one_side_only_are_refused_with_the_side_that_lacks_them(
    own: list[str] | None, other: list[str] | None, side: str
) -> None:
    words = (
        rf"^the {side} has no coordinate 'stimulus_id', so its rows cannot be matched; "
        r"add it with assign_coords\(stimulus_id=\('presentation', ids\)\)$"
    )
    with pytest.raises(MetricError, match=words):
        aligned(rows(own), rows(other), "source", "target")


def test_one_row_matches_several_repetitions_only_for_metrics_of_single_trials() -> (
    None
):
    source, target = rows(["b", "a"]), repeated(0, 1, 0)
    result = aligned(source, target, "source", "target", trials=True)
    assert result.values[:, 0].tolist() == [2, 2, 0]
    words = (
        r"^the target has 2 rows of stimulus 'a' and the source has one row; rows must match one to one: average "
        r"the repetitions first with neuroledger\.data\.assembly\.average_repetitions\(target\)$"
    )
    with pytest.raises(MetricError, match=words):
        aligned(source, target, "source", "target")


def test_repetitions_that_both_sides_have_are_matched_one_to_one() -> None:
    source = rows(["b", "a", "a"], repetition=("presentation", [0, 0, 1]))
    assert aligned(source, repeated(0, 1, 0), "source", "target").values[
        :, 0
    ].tolist() == [2, 4, 0]


def test_a_ceiling_of_halves_needs_two_values_to_divide() -> None:
    spec = nl.ceiling("internal_consistency").spec
    check_repeated(repeated(0, 1, 0), spec)
    check_repeated(rows(IDS), nl.metric("ridge").spec)
    words = (
        r"^no repetitions: 'repetition' has only the value '4', so the reliability of the responses cannot be estimated; "
        r"use an assembly with repetitions, or a constant ceiling with a source$"
    )
    with pytest.raises(CeilingError, match=words):
        check_repeated(repeated(4, 4, 4), spec)
    words = (
        r"^internal_consistency compares halves of the 'repetition' values, and the assembly has no such coordinate: pass "
        r"responses that are not averaged, or choose another coordinate with splits=\{'by': …\}$"
    )
    with pytest.raises(CeilingError, match=words):
        check_repeated(rows(IDS), spec)


def test_train_and_test_rows_are_joined_with_the_coordinates_of_both() -> None:
    neuroids = ("neuroid", ["n0", "n1"])
    train = rows(
        IDS, neuroid_id=neuroids, only_train=("presentation", [1, 2, 3]), session="s"
    )
    test = rows(["d"], neuroid_id=neuroids, session="t")
    train.attrs["unit"] = "Hz"
    result = joined(train, test.transpose("neuroid", "presentation"))
    assert result.dims == ("presentation", "neuroid") and result.attrs == {"unit": "Hz"}
    assert result.values.tolist() == [[0, 1], [2, 3], [4, 5], [0, 1]]
    assert result["stimulus_id"].values.tolist() == ["a", "b", "c", "d"]
    assert (
        result["neuroid_id"].values.tolist() == ["n0", "n1"]
        and result["session"].item() == "s"
    )
    assert "only_train" not in result.coords
    across = joined(train.transpose("neuroid", "presentation"), test)
    assert across.shape == (2, 4) and across.values[:, 3].tolist() == [0, 1]


def test_neuroids_of_the_test_rows_are_put_in_the_order_of_the_train_rows() -> None:
    train, test = (
        rows(IDS, 3, neuroid_id=("neuroid", order))
        for order in (["n2", "n0", "n1"], ["n0", "n1", "n2"])
    )
    assert joined(train, test).values[3].tolist() == [2, 0, 1]


def test_other_neuroids_in_train_and_test_are_refused() -> None:
    with pytest.raises(
        MetricError, match=r"^train and test differ along 'neuroid': 2 and 3$"
    ):
        joined(rows(IDS), rows(IDS, 3))
    train, test = (
        rows(IDS, neuroid_id=("neuroid", order))
        for order in (["n0", "n1"], ["n1", "n5"])
    )
    words = "^train and test have different neuroids, such as 'n0'; select the same neuroids on both sides$"
    with pytest.raises(MetricError, match=words):
        joined(train, test)
    twice = rows(IDS, neuroid_id=("neuroid", ["n1", "n1"]))
    with pytest.raises(MetricError, match="different neuroids, such as 'n0'"):
        joined(train, twice)


def test_arguments_of_a_metric_are_complete() -> None:
    ridge, split = nl.metric("ridge"), nl.metric("ridge_split")
    both = "^ridge: give source and target, or source_train, source_test, target_train, target_test$"
    part = rows(IDS)
    every = dict.fromkeys(
        ("source_train", "source_test", "target_train", "target_test"), part
    )
    for given in (
        {"source_train": part},
        {**every, "source": part},
        {**every, "target": part},
        {**every, "target_test": None},
    ):
        with pytest.raises(RequestError, match=both):
            ridge(**given)
    for given in ({}, {"source": part}, {"target": part}):
        with pytest.raises(
            RequestError,
            match=r"^ridge compares two assemblies: give source and target$",
        ):
            ridge(**given)
    words = "^ridge_split has a predefined split: give source_train, source_test, target_train and target_test$"
    with pytest.raises(RequestError, match=words):
        split(part, part)


def test_a_workspace_is_a_workspace() -> None:
    words = r"^workspace is a int; pass neuroledger\.stats\.workspace\.Workspace\(device=…, dtype=…\)$"
    with pytest.raises(RequestError, match=words):
        nl.metric("ridge", workspace=3)  # type: ignore[arg-type]


def test_the_identity_of_a_metric_contains_its_overrides_and_the_version_of_its_function() -> (
    None
):
    plain, other = nl.metric("pls"), nl.metric("pls", splits={"folds": 4})
    version = plain.component.version
    assert plain.identity == {
        "id": "pls", "spec_sha256": spec_sha256(plain.spec), "component": "metric:regression", "component_version": version,
    }  # fmt: skip
    assert plain.identity["spec_sha256"] != other.identity["spec_sha256"]


class Size(BaseModel):
    side: int


class Group(BaseModel):
    name: str
    of: Size


def test_parameters_are_shown_briefly() -> None:
    assert (
        _short([1, 2, 3, 4]) == "[1, 2, 3, 4]"
        and _short((1, 2, 3, 4, 5)) == "(1, …, 5)"
    )
    assert _short("x") == "'x'"
    assert _short(Group(name="left", of=Size(side=2))) == "left(of=Size(side=2))"
    assert (
        repr(nl.metric("cka")) == "<metric cka: cka(unbiased=True, regularisation=0.0)>"
    )


class Given:
    """A metric that returns given samples in place of what its function computes, and records its arguments."""

    def __init__(
        self, values: Any, dims: tuple[str, ...] = ("split", "neuroid"), **fields: Any
    ) -> None:
        self.samples = Samples(
            xr.DataArray(np.asarray(values, dtype=float), dims=dims), **fields
        )
        self.given: dict[str, Any] = {}

    def __call__(self, *arrays: xr.DataArray, **given: Any) -> Samples:
        self.given = given
        return self.samples

    def bound(
        self, id: str = "ridge", asks_for: frozenset[str] = frozenset(), **fields: Any
    ) -> BoundMetric:
        known = nl.metric(id, seed=5)
        component = replace(known.component, function=self, asks_for=asks_for)
        return replace(
            known,
            component=component,
            parameters={},
            spec=known.spec.model_copy(update=fields),
        )

    def score(
        self, id: str = "ridge", array: xr.DataArray | None = None, **fields: Any
    ) -> Score:
        array = rows(IDS) if array is None else array
        return self.bound(id, **fields)(array, array)


TABLE = [[0.1, 0.2, 0.6], [0.3, 0.4, 0.5]]  # medians of neuroids 0.2 and 0.4


def test_a_score_has_the_value_error_and_counts_of_its_samples() -> None:
    result = Given(TABLE, notes=["one", "2"]).score(unit="bits")
    assert result.value == pytest.approx(0.3) and result.error == pytest.approx(
        np.std([0.2, 0.4]) / np.sqrt(2)
    )
    assert result.n == {"stimuli": 3, "split": 2, "neuroid": 3}
    assert (result.id, result.scale, result.direction, result.unit) == (
        "ridge",
        "correlation",
        "higher",
        "bits",
    )
    assert result.notes == ("one", "2") and result.limits == (-1.0, 1.0)
    np.testing.assert_array_equal(result.samples, TABLE)
    assert np.isnan(Given(TABLE).score(error=None).error)


def test_stimuli_are_counted_once_whatever_their_repetitions() -> None:
    samples = Given(TABLE)
    twice = rows(["a", "b", "a", "b"], repetition=("presentation", [0, 0, 1, 1]))
    assert samples.score(array=twice).n["stimuli"] == 2
    assert samples.score(array=rows(None)).n["stimuli"] == 3
    assert Given(TABLE, counts={"stimuli": 7, "trials": 9}).score().n == {
        "stimuli": 7, "split": 2, "neuroid": 3, "trials": 9,
    }  # fmt: skip


def test_undefined_samples_are_refused_with_the_reasons_of_the_metric() -> None:
    empty = np.full((2, 3), np.nan)
    start = r"^ridge is undefined on these data: no finite sample is left"
    with pytest.raises(
        MetricError,
        match=rf"{start} \(predictions or responses do not vary; rescale features .*\)$",
    ):
        Given(empty).score()
    with pytest.raises(MetricError, match=rf"{start} \(first; second\)$"):
        Given(empty, notes=["first", "second"]).score()


def test_limits_are_those_of_the_samples_or_of_the_scale() -> None:
    assert Given(TABLE, limits=(0.0, 0.8)).score().limits == (0.0, 0.8)
    assert Given(TABLE).score(scale="bits").limits == NOWHERE


def varying(factors: tuple[str, ...], **fields: Any) -> Variation:
    """Items a, b and c of each factor, each of which moves all samples."""
    effects = np.array([0.1, -0.2, 0.1])

    def without(keep: Keep) -> xr.DataArray:
        moved = sum(float(effects[kept].mean()) for kept in keep.values())
        return xr.DataArray(np.array(TABLE) + moved, dims=("split", "neuroid"))

    return Variation(dict.fromkeys(factors, IDS), without, **fields)


def test_a_score_varies_over_the_items_that_its_metric_names_and_the_dimensions_of_its_samples() -> (
    None
):
    result = Given(TABLE, variation=varying(("stimulus", "subject"))).score()
    known = result.uncertainty
    assert known is not None and known.factors == ("stimulus", "subject", "neuroid")
    assert (known.method, known.scale) == ("jackknife", "fisher"), (
        "the scale is a correlation"
    )
    stimuli = known.part(("", ("stimulus",)))
    assert stimuli is not None and stimuli.keys == ("a", "b", "c")
    assert stimuli.variance == pytest.approx(np.var([0.1, -0.2, 0.1], ddof=1) / 3)
    assert result.low < result.value < result.high
    held_out = varying(("stimulus",), inflation={"stimulus": 4.0})
    inflated = Given(TABLE, variation=held_out, limits=(0.0, 1.0)).score().uncertainty
    assert inflated is not None and (inflated.method, inflated.scale) == (
        "held-out",
        "logit",
    )
    ridge = nl.metric("ridge").spec.model_dump(by_alias=True) | {
        "interval": {"over": ["subject"]}
    }
    interval = type(nl.metric("ridge").spec).model_validate(ridge).interval
    one = (
        Given(TABLE, variation=varying(("stimulus", "subject")))
        .score(interval=interval)
        .uncertainty
    )
    assert one is not None and one.factors == ("subject",)


def test_splits_are_not_random_items() -> None:
    known = Given(TABLE).score().uncertainty
    assert known is not None and known.factors == ("neuroid",)


def test_a_metric_that_names_no_items_is_computed_again_without_those_of_its_assemblies() -> (
    None
):
    def mean(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
        if "d" not in target["stimulus_id"].values:
            raise MetricError("undefined without d")
        return xr.DataArray(float(target.mean()))

    bound = Given(TABLE).bound()
    bound = replace(bound, component=replace(bound.component, function=mean))
    array = rows([*IDS, "d"])
    stimuli = bound(array, array).uncertainty_over(["stimulus"])
    assert stimuli is not None and stimuli.items == {"stimulus": 4}
    # The last stimulus moves nothing, because the mean is undefined without it; the others move it as in a mean.
    moved = np.array([-0.75, -0.25, 0.25, 0.0])
    assert stimuli.variance == pytest.approx(
        4 / 3 * ((moved - moved.mean()) ** 2).sum()
    )


def test_the_deviations_of_a_ceiling_are_computed_once_for_all_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    original = module.uncertainty_of

    def counted(samples: Samples, *given: Any) -> Any:
        asked.append(samples.values.dims)
        return original(samples, *given)

    monkeypatch.setattr(module, "uncertainty_of", counted)
    rng = np.random.default_rng(0)
    ids = np.repeat([f"s{i}" for i in range(12)], 4)
    signal = np.repeat(rng.standard_normal((12, 3)), 4, axis=0)
    trials = xr.DataArray(
        signal + 0.3 * rng.standard_normal((48, 3)),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids),
            "repetition": ("presentation", np.tile(np.arange(4), 12)),
        },
    )
    top = nl.ceiling("internal_consistency")(trials)
    for value in (0.4, 0.5, 0.6):
        raw = Score(value, scale="correlation", varies=exactly(0.01))
        assert normalise(raw, top).low < normalise(raw, top).high
    assert (
        len(asked) == 2
    )  # for the check of the ceiling, and over the items of the scores


def test_a_metric_may_not_know_how_its_score_varies() -> None:
    result = Given(TABLE, variation=NotKnown("the system is simulated")).score()
    assert result.uncertainty is None and np.isnan(result.low)


def test_a_function_gets_what_it_asks_for() -> None:
    samples = Given(TABLE)
    bound = samples.bound(asks_for=frozenset({"rng", "workspace", "splits"}))
    bound(rows(IDS), rows(IDS), splits=[([0, 1], [2])])
    assert set(samples.given) == {"rng", "workspace", "splits"}
    assert samples.given["rng"].random() == np.random.default_rng(5).random()
    assert samples.given["workspace"] is bound.workspace
    [(train, test)] = samples.given["splits"]
    assert train.tolist() == [0, 1] and test.tolist() == [2]
    samples.score()
    assert samples.given == {}


def test_a_function_that_takes_the_whole_context_gets_the_splits_that_the_spec_declares() -> (
    None
):
    samples = Given(TABLE)
    samples.bound(asks_for=frozenset({"context"}), splits=None)(rows(IDS), rows(IDS))
    context = samples.given["context"]
    assert context.splits == () and isinstance(context, MetricContext)
    bound = samples.bound(asks_for=frozenset({"context"}))
    bound(rows(IDS), rows(IDS), splits=[([0, 1], [2])])
    [(train, test)] = samples.given["context"].splits
    assert train.tolist() == [0, 1] and test.tolist() == [2]


def test_a_function_that_needs_splits_is_refused_without_any() -> None:
    bound = Given(TABLE).bound(asks_for=frozenset({"splits"}), splits=None)
    with pytest.raises(
        MetricError,
        match=r"^ridge: regression needs `splits`, and the spec declares none$",
    ):
        bound(rows(IDS), rows(IDS))


def test_an_error_within_a_metric_of_assemblies_is_not_disguised() -> None:
    def fails(*arrays: Any, **given: Any) -> Any:
        raise ValueError("inside")

    bound = Given(TABLE).bound()
    with pytest.raises(ValueError, match=r"^inside$"):
        replace(bound, component=replace(bound.component, function=fails))(
            rows(IDS), rows(IDS)
        )


def test_in_reverse_the_source_is_predicted_and_splits_use_the_coordinates_of_the_target() -> (
    None
):
    calls: list[Any] = []

    def function(*arrays: Any, **given: Any) -> Samples:
        calls.append((*arrays, given["splits"]))
        return Given(TABLE).samples

    splits = {"by": "object_name", "folds": 2, "train": 0.5}
    known = nl.metric("ridge", splits=splits, estimator="ridge")
    component = replace(
        known.component, function=function, asks_for=frozenset({"splits"})
    )
    reverse = replace(known, parameters={"reverse": True}, component=component)
    target = rows(
        ["c", "a", "b", "d"], object_name=("presentation", ["x", "y", "x", "y"])
    )
    reverse(rows(["a", "b", "c", "d"]), target)
    [(source, matched, drawn)] = calls
    assert (
        source["stimulus_id"].values.tolist()
        == matched["stimulus_id"].values.tolist()
        == ["a", "b", "c", "d"]
    )
    assert source.values[:, 0].tolist() == [0, 2, 4, 6] and matched.values[
        :, 0
    ].tolist() == [2, 4, 0, 6]
    assert {tuple(sorted(part.tolist())) for split in drawn for part in split} == {
        (0, 3),
        (1, 2),
    }


@pytest.mark.parametrize("storage", STORAGES)
def test_coordinates_may_be_columns_of_a_table(storage: str) -> None:
    """However pandas keeps their texts, the score is that of the same coordinates as NumPy's arrays."""
    rng = np.random.default_rng(0)
    features, noise = rng.standard_normal((30, 8)), rng.standard_normal((30, 8))
    with pd.option_context("mode.string_storage", storage):
        stimuli = pd.DataFrame({"stimulus_id": [f"s{i}" for i in range(30)]})
        neuroids = pd.DataFrame(
            {"neuroid_id": list("abcdefgh"), "subject": ["m", "n"] * 4}
        )
        values = []
        for kept in (pd.Series.to_numpy, pd.Series.copy):
            own = {"stimulus_id": ("presentation", kept(stimuli["stimulus_id"]))}
            names = {name: ("neuroid", kept(neuroids[name])) for name in neuroids}
            source = xr.DataArray(
                features, dims=("presentation", "neuroid"), coords=own
            )
            target = xr.DataArray(
                features + noise, dims=("presentation", "neuroid"), coords=own | names
            )
            score = nl.metric("rdm_subjects")(source, target)
            values.append((score.value, score.low, score.high))
    assert values[0] == values[1]
