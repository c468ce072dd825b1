"""Controls of a benchmark: which are computed, their bounds, their verdicts, and the data that they use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.engine import controls as module
from neuroledger.engine.control import SHUFFLES, Control, in_words, undefined
from neuroledger.engine.controls import (
    chance_control,
    controlled,
    itself_control,
    mismatched,
    require_passed,
)
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError, UnavailableError
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score
from neuroledger.stats.splits import Split
from tests.engine.given_interval import between

VALUES = np.arange(20.0).reshape(10, 2)
TARGET = xr.DataArray(
    VALUES,
    dims=("presentation", "neuroid"),
    coords={
        "stimulus_id": ("presentation", [f"s{i}" for i in range(10)]),
        "neuroid_id": ("neuroid", ["n0", "n1"]),
    },
)
MEASURED = Measurement(
    -TARGET, TARGET, repeated=TARGET, splits=[Split(np.arange(5), np.arange(5, 10))]
)


class Session:
    """What controls use of a session, and the number of the shuffle."""

    def __init__(self, number: int = 0) -> None:
        self.controls: dict[tuple[str, str], Control] = {}
        self.request = SimpleNamespace(seed=3)
        self.number = number

    def reshuffled(self, number: int) -> Session:
        return Session(number)


def exactly(value: float) -> Score:
    """A score with an interval of no length."""
    return between(value, value)


class Case:
    """A job with controls whose values are given; the arguments of every headline are recorded."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        value: float = 0.5,
        half: float = 0.0,
        **fields: Any,
    ) -> None:
        known = {
            "id": "lab.b", "version": 1, "title": "A benchmark", "dataset": "lab", "parent": "V4", "metric": "m",
            "paradigm": {"name": "recording"}, "ceiling": None, "normalise": "none",
            "controls": {"positive": ["good"], "negative": ["bad"]},
        }  # fmt: skip
        self.headlines: list[tuple[Any, ...]] = []
        self.session: Any = Session()
        self.job: Any = SimpleNamespace(
            benchmark=BenchmarkSpec.model_validate(known | fields), first="m", metrics={}, control=False,
            model=SimpleNamespace(id="ant"), paradigm=SimpleNamespace(itself=False, permuted=None),
        )  # fmt: skip
        self.values = {"good": 0.9, "bad": 0.05}
        self.shuffling: set[str] = set()
        self.asked: list[str] = []
        self.own = exactly(0.95)

        def headline(*given: Any) -> Score:
            self.headlines.append(given)
            return between(value - half, value + half, value)

        def model_of(session: Any, id: str) -> Any:
            return SimpleNamespace(shuffles_labels=id in self.shuffling)

        monkeypatch.setattr(module, "headline", headline)
        monkeypatch.setattr(module, "model_of", model_of)

    def outcomes(self, measured: Measurement = MEASURED) -> dict[str, Control]:
        return controlled(
            self.job, measured, self.session, 0.25, self.own, self.score_of
        )

    def score_of(self, session: Any, id: str) -> Score:
        self.asked.append(f"{id} {session.number}" if session.number else id)
        if session.number:
            return Score(self.values[id] + (0.01 if session.number % 2 else -0.01))
        return exactly(self.values[id])


def test_declared_models_are_judged_by_the_bounds_of_their_role_once_per_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch)
    expected = {
        "good": Control("positive", 0.9, 0.8, "passed", 0.9, 0.9),
        "bad": Control("negative", 0.05, 0.1, "passed", 0.05, 0.05),
    }
    assert case.outcomes() == case.outcomes() == expected
    assert case.asked == ["good", "bad"] and list(expected) == list(case.outcomes())
    case.job.control, case.job.model = True, SimpleNamespace(id="good")
    case.job.benchmark = case.job.benchmark.model_copy(update={"id": "lab.c"})
    assert case.outcomes()["good"].value == 0.95, (
        "a control is judged by the score of the job"
    )
    assert case.asked == ["good", "bad", "bad"], (
        "another benchmark has values of its own"
    )
    case.job.control, case.job.benchmark = (
        False,
        case.job.benchmark.model_copy(update={"id": "lab.d"}),
    )
    assert case.outcomes()["good"].value == 0.9, (
        "a model in memory may have the id of a control"
    )


def test_models_that_shuffle_labels_are_scored_with_further_seeds_until_they_are_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, controls={"negative": ["bad"]})
    case.shuffling.add("bad")
    assert case.outcomes()["bad"].shuffles == 1 and case.asked == ["bad"], (
        "the first shuffle is enough"
    )
    case.values["bad"], case.session.controls = 0.3, {}
    result = case.outcomes()["bad"]
    assert (result.verdict, result.shuffles) == ("failed", 8)
    assert case.asked[1:] == ["bad", *(f"bad {number}" for number in range(1, 8))]
    case.outcomes()
    assert len(case.asked) == 9, "once per session"


def test_the_data_predict_themselves_where_the_paradigm_records_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, value=0.9, controls={})
    assert case.outcomes() == {}
    case.job.paradigm.itself = True
    result = case.outcomes()["itself"]
    assert result == Control("positive", 0.9, 0.8, "passed", 0.9, 0.9, at_most=10.0)
    [(job, replaced, session, dummy)] = case.headlines
    assert (job, session, dummy) == (case.job, case.session, 0.25)
    np.testing.assert_array_equal(replaced.source, TARGET)
    assert (
        replaced.target is TARGET
        and replaced.repeated is TARGET
        and replaced.splits is MEASURED.splits
    )
    case.outcomes()
    assert len(case.headlines) == 1, "it does not depend on the model"
    case.job.benchmark = case.job.benchmark.model_copy(update={"id": "lab.c"})
    case.outcomes()
    assert len(case.headlines) == 2, "it depends on the benchmark"
    times = xr.DataArray(np.ones(4), dims="presentation")
    case.session.controls.clear()
    assert case.outcomes(Measurement(times, times)) == {}
    rdm = xr.DataArray(np.eye(3), dims=("stimulus", "stimulus_b"))
    assert list(case.outcomes(Measurement(rdm, rdm))) == ["itself"]


def test_a_ceiling_that_the_data_exceed_far_is_too_low(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, value=17.9, controls={})
    case.job.paradigm.itself = True
    result = case.outcomes()["itself"]
    assert result == Control("positive", 17.9, 0.8, "failed", 17.9, 17.9, at_most=10.0)
    words = "17.900 [17.900, 17.900], must be at most 10: the ceiling is too low to normalise by"
    assert in_words(result) == words


@pytest.mark.parametrize("side", ["source", "target"])
def test_permuted_stimuli_are_computed_for_every_model_with_the_seed_of_the_request(
    monkeypatch: pytest.MonkeyPatch, side: Any
) -> None:
    case = Case(monkeypatch, value=0.05, controls={})
    case.job.paradigm.permuted = side
    assert case.outcomes()["permuted"] == Control(
        "negative", 0.05, 0.1, "passed", 0.05, 0.05, shuffles=1
    )
    case.outcomes()
    assert len(case.headlines) == 2
    replaced = case.headlines[0][1]
    source, target = mismatched(MEASURED, side, 3)
    np.testing.assert_array_equal(replaced.source, source)
    np.testing.assert_array_equal(replaced.target, target)


@pytest.mark.parametrize(
    ("side", "other"), [("source", "target"), ("target", "source")]
)
def test_a_permutation_moves_the_values_of_one_side_and_leaves_the_labels(
    side: Any, other: str
) -> None:
    pair = dict(zip(("source", "target"), mismatched(MEASURED, side, 3), strict=True))
    assert pair[other] is getattr(MEASURED, other)
    before, after = getattr(MEASURED, side), pair[side]
    assert after["stimulus_id"].values.tolist() == before["stimulus_id"].values.tolist()
    assert not np.array_equal(after.values, before.values)
    assert sorted(map(tuple, after.values.tolist())) == sorted(
        map(tuple, before.values.tolist())
    )
    np.testing.assert_array_equal(
        mismatched(MEASURED, side, 3)[side == "target"], after
    )
    assert not np.array_equal(mismatched(MEASURED, side, 4)[side == "target"], after)


def test_a_dissimilarity_matrix_is_permuted_in_rows_and_columns_alike() -> None:
    values = np.abs(np.subtract.outer(np.arange(8.0) ** 2, np.arange(8.0) ** 2))
    names = list("abcdefgh")
    rdm = xr.DataArray(
        values,
        dims=("stimulus", "stimulus_b"),
        coords={"stimulus": names, "stimulus_b": names},
    )
    _, permuted = mismatched(Measurement(rdm, rdm), "target", 0)
    np.testing.assert_array_equal(np.diag(permuted.values), np.zeros(8))
    np.testing.assert_array_equal(permuted.values, permuted.values.T)
    assert sorted(permuted.values.ravel()) == sorted(values.ravel())
    assert not np.array_equal(permuted.values, values)
    assert (
        permuted["stimulus"].values.tolist()
        == permuted["stimulus_b"].values.tolist()
        == names
    )


def test_subjects_are_averaged_to_predict_themselves() -> None:
    each = xr.DataArray(
        np.stack([np.eye(3), 3 * np.eye(3)]), dims=("subject", "stimulus", "stimulus_b")
    )
    np.testing.assert_array_equal(
        itself_control(Measurement(each, each)), 2 * np.eye(3)
    )
    answers = xr.DataArray(np.ones(3), dims="stimulus")
    assert itself_control(Measurement(answers, answers)) is answers


def test_neuroids_with_missing_responses_do_not_predict_and_the_others_are_channels() -> (
    None
):
    missing = TARGET.copy()
    missing[4, 0] = np.nan
    source = itself_control(Measurement(TARGET, missing))
    assert source["neuroid_id"].values.tolist() == ["n1"]
    np.testing.assert_array_equal(source.values, VALUES[:, 1:])
    both = itself_control(Measurement(TARGET, TARGET))
    assert both["channel"].values.tolist() == [0, 1] and both["channel"].dims == (
        "neuroid",
    )
    assert (
        both["channel_x"].values.tolist() == both["channel_y"].values.tolist() == [0, 0]
    )
    missing[5, 1] = np.inf
    none_left = itself_control(Measurement(TARGET, missing))
    assert none_left.shape == (10, 2) and none_left.values[4, 0] == 0.0


def test_permuted_stimuli_are_permuted_again_while_their_interval_contains_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, value=0.0625, half=0.2, controls={})
    case.job.paradigm.permuted = "target"
    assert case.outcomes()["permuted"] == Control(
        "negative", 0.0625, 0.1, "passed", shuffles=SHUFFLES[-1]
    )
    assert len(case.headlines) == SHUFFLES[-1], (
        "equal values do not show how shuffles vary"
    )
    targets = [given[1].target.values for given in case.headlines]
    for number, values in enumerate(targets[:9]):
        expected = mismatched(MEASURED, "target", 3, number)[1]
        np.testing.assert_array_equal(values, expected)
    assert len({values.tobytes() for values in targets}) == len(targets), (
        "every shuffle is another"
    )


def test_a_control_that_no_metric_can_score_fails_and_other_errors_are_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(monkeypatch, controls={"positive": ["good"]})
    case.job.paradigm.permuted = "target"

    def fails(error: Exception) -> Any:
        def score_of(*given: Any) -> Score:
            raise error

        return score_of

    monkeypatch.setattr(case, "score_of", fails(MetricError("the target is constant")))
    monkeypatch.setattr(
        module, "headline", fails(MetricError("no stimulus was shown twice"))
    )
    assert case.outcomes() == {
        "good": undefined("positive", 0.8, "the target is constant"),
        "permuted": undefined("negative", 0.1, "no stimulus was shown twice"),
    }
    assert case.outcomes()["good"].verdict == "failed"
    case.session.controls.clear()
    monkeypatch.setattr(
        case, "score_of", fails(UnavailableError("a package is missing"))
    )
    with pytest.raises(UnavailableError, match="a package is missing"):
        case.outcomes()
    assert case.session.controls == {}, (
        "an outcome that says nothing about the control is not kept"
    )


def test_failed_controls_are_listed_with_a_hint_on_chance_where_a_negative_one_has_a_value() -> (
    None
):
    good = Control("positive", 0.9, 0.8, "passed", 0.85, 0.95)
    unsure = Control("positive", 0.7, 0.8, "undecided", 0.5, 0.9)
    low = Control("positive", 0.1, 0.8, "failed", 0.0, 0.2)
    high = Control("negative", 0.3, 0.1, "failed", 0.2, 0.4, shuffles=8)
    constant = undefined("negative", 0.1, "its score is undefined")
    require_passed("lab.b", {"a": good, "e": unsure})
    require_passed("lab.b", {})
    start = "controls of 'lab.b' failed, so its scores mean nothing: "
    hint = (
        "; if chance reaches this value, declare it in `controls: {floor_at_most: …}`"
    )
    for failed, words in (
        (
            {"a": good, "b": low, "e": unsure},
            "b (positive): 0.100 [0.000, 0.200], must be at least 0.8",
        ),
        ({"c": constant}, "c (negative): its score is undefined"),
        (
            {"b": low, "d": high},
            f"b (positive): {in_words(low)}; d (negative): {in_words(high)}{hint}",
        ),
    ):
        with pytest.raises(MetricError) as caught:
            require_passed("lab.b", failed)
        assert str(caught.value) == start + words


def chance(metric: str, target: xr.DataArray, first: str | None = None) -> float:
    job: Any = SimpleNamespace(
        first=first or metric, metrics={metric: nl.metric(metric)}
    )
    return chance_control(job, Measurement(target, target))


def test_chance_is_that_of_the_metric_or_one_in_the_number_of_classes() -> None:
    labels = xr.DataArray(["a", "b", "c", "d", "a"], dims="presentation")
    assert chance("auroc", labels) == 0.5
    assert chance("accuracy", labels) == 0.25
    assert chance("accuracy", xr.DataArray([1, 2, 2, 1], dims="presentation")) == 0.5
    choices = xr.DataArray(np.ones((3, 2)), dims=("presentation", "choice"))
    truth = choices.assign_coords(truth=("presentation", ["a", "b", "c"]))
    assert chance("accuracy", truth) == pytest.approx(1 / 3)
    assert chance("accuracy", choices) == 0.0, "probabilities are not classes"
    assert chance("accuracy", labels[:0]) == 0.0
    assert chance("accuracy", labels, first="cost") == 0.0


def test_the_floor_is_counted_from_chance_only_for_scores_that_are_not_normalised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for normalise, bound in (("none", 0.55), ("floor", 0.1)):
        floor = (
            {}
            if normalise == "none"
            else {"normalise": {"by": "floor"}, "floor": {"dummy": 0.1, "perfect": 1.0}}
        )
        case = Case(monkeypatch, **{"controls": {"negative": ["bad"]}, **floor})
        case.job.first, case.job.metrics = "auroc", {"auroc": nl.metric("auroc")}
        assert case.outcomes()["bad"].bound == pytest.approx(bound)
