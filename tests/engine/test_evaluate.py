"""The steps of an evaluation, and the score of a benchmark's dummy."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neuroledger.engine import evaluate as module
from neuroledger.engine.control import Control
from neuroledger.engine.evaluate import dummy_of, evaluate
from neuroledger.errors import MetricError, RequestError
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score

SESSION: Any = SimpleNamespace(catalog=SimpleNamespace(root=Path()))
FAILED = Control("positive", 0.1, 0.8, "failed")


def benchmark(**fields: Any) -> BenchmarkSpec:
    return BenchmarkSpec.model_validate(
        {
            "id": "lab.b", "version": 1, "title": "A benchmark", "dataset": "lab", "parent": "V4", "metric": "m",
            "paradigm": {"name": "recording", "region": "V4"}, "ceiling": None,
            "controls": {"positive": ["p"], "negative": ["n"]}, **fields,
        }
    )  # fmt: skip


class Steps:
    """The steps of an evaluation, each replaced by one that records its arguments."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, spec: BenchmarkSpec, **job: Any
    ) -> None:
        self.job: Any = SimpleNamespace(
            **{"benchmark": spec, "first": "m", "control": False, **job}
        )
        self.measured: Any = SimpleNamespace(costs={})
        self.calls: dict[str, tuple[Any, ...]] = {}
        self.scores = {"m": Score(0.4), "more": Score(0.1)}
        self.outcomes: dict[str, Control] = {}
        results: dict[str, Any] = {
            "resolve": self.job, "measure": self.measured, "score": self.scores, "controlled": self.outcomes,
            "dummy_of": 0.25,
        }  # fmt: skip
        for name, result in results.items():

            def step(*given: Any, name: str = name, result: Any = result) -> Any:
                self.calls[name] = given
                return result

            monkeypatch.setattr(module, name, step)


def test_an_evaluation_passes_each_result_to_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = benchmark(normalise="none")
    steps = Steps(monkeypatch, spec)
    result = evaluate(SESSION, spec, "ant")
    session, given, model, headline_of = steps.calls["resolve"]
    assert (session, given, model) == (SESSION, spec, "ant")
    assert headline_of(SESSION, spec, "bee").value == 0.4
    assert steps.calls["measure"] == (steps.job, SESSION)
    assert steps.calls["score"] == (steps.job, steps.measured, SESSION, None)
    job, measured, session, dummy, own, score_of = steps.calls["controlled"]
    assert (job, measured, session, dummy) == (steps.job, steps.measured, SESSION, None)
    assert own is steps.scores["m"]
    other: Any = SimpleNamespace(catalog=SESSION.catalog)
    assert score_of(other, "bee").value == 0.4 and steps.calls["resolve"][:3] == (
        other,
        spec,
        "bee",
    )
    assert result.headline.value == 0.4 and list(result.scores) == ["m", "more"]
    assert result.controls == {} and result.measured is steps.measured
    assert "dummy_of" not in steps.calls


def test_controls_are_computed_unless_they_are_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = benchmark(normalise="none")
    steps = Steps(monkeypatch, spec)
    steps.outcomes["p"] = FAILED
    with pytest.raises(
        MetricError,
        match=r"controls of 'lab\.b' failed.*p \(positive\): 0\.100, must be",
    ):
        evaluate(SESSION, spec, "ant")
    assert evaluate(SESSION, spec, "ant", controls=False).controls == {}
    steps.job.control = True
    assert evaluate(SESSION, spec, "p").controls == {"p": FAILED}, (
        "a control itself is only reported"
    )
    steps.job.control = False
    steps.outcomes["p"] = Control("positive", 0.8, 0.8, "undecided", 0.5, 1.1)
    assert evaluate(SESSION, spec, "ant").controls == steps.outcomes, (
        "what is undecided refuses nothing"
    )


def test_the_dummy_is_scored_only_to_normalise_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = benchmark(floor={"dummy": "guess", "perfect": 1.0})
    steps = Steps(monkeypatch, spec)
    evaluate(SESSION, spec, "ant")
    assert steps.calls["dummy_of"] == (SESSION, steps.job)
    assert steps.calls["score"][3] == steps.calls["controlled"][3] == 0.25
    del steps.calls["dummy_of"]
    steps.measured.costs["m"] = Score(3.0)
    evaluate(SESSION, spec, "ant")
    assert "dummy_of" not in steps.calls and steps.calls["score"][3] is None


def dummies(
    monkeypatch: pytest.MonkeyPatch, **values: float | MetricError
) -> list[tuple[str, Any]]:
    """Replace the scores of models; return the list of those that are asked for, with their benchmark."""
    asked: list[tuple[str, Any]] = []

    def headline(session: Any, spec: BenchmarkSpec, model: str) -> Score:
        asked.append((model, spec))
        value = values[model]
        if isinstance(value, MetricError):
            raise value
        return Score(value)

    monkeypatch.setattr(module, "headline_of", headline)
    return asked


def floored(**floor: Any) -> tuple[Any, Any]:
    return SimpleNamespace(dummies={}), SimpleNamespace(
        benchmark=benchmark(floor={"perfect": 1.0, **floor})
    )


def test_a_declared_number_is_the_score_of_the_dummy() -> None:
    assert dummy_of(*floored(dummy=0.25)) == 0.25
    with pytest.raises(RequestError, match=r"^benchmark 'lab\.b' has no floor$"):
        dummy_of(SESSION, SimpleNamespace(benchmark=benchmark(normalise="none")))  # type: ignore[arg-type]


def test_a_dummy_is_scored_once_and_without_normalisation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = dummies(monkeypatch, guess=0.3)
    session, job = floored(dummy="guess")
    assert dummy_of(session, job) == dummy_of(session, job) == 0.3
    [(_, spec)] = asked
    assert spec.id == "lab.b" and spec.floor is None and spec.normalised_by == "none"


@pytest.mark.parametrize(
    "unusable",
    [
        math.nan,
        math.inf,
        1.0,
        1.0 - 1e-13,
        1.0 + 1e-13,
        MetricError("constant predictions"),
    ],
)
def test_the_fallback_takes_the_place_of_an_undefined_or_perfect_dummy(
    monkeypatch: pytest.MonkeyPatch, unusable: float | MetricError
) -> None:
    dummies(monkeypatch, guess=unusable, mean=0.1)
    assert dummy_of(*floored(dummy="guess", fallback="mean")) == 0.1
    with pytest.raises(
        MetricError,
        match=r"^benchmark 'lab\.b': its dummy 'guess' has no usable score$",
    ):
        dummy_of(*floored(dummy="guess"))


@pytest.mark.parametrize("value", [1.1, 1 - 1e-6])
def test_any_other_score_of_the_dummy_is_used(
    monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    dummies(monkeypatch, guess=value, mean=0.1)
    assert dummy_of(*floored(dummy="guess", fallback="mean")) == value
