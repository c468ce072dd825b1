"""Scoring of measurements: inputs of metrics, and normalisation of the headline."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.engine.measurement import Measurement
from neuroledger.engine.resolve import Resolved
from neuroledger.engine.score import headline, measure, score
from neuroledger.engine.session import Request, Session
from neuroledger.errors import MetricError
from neuroledger.spec.components import CONTEXT_FIELDS, Paradigm
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import Uncertainty
from tests.engine.given_interval import between
from tests.varying import exactly

TARGET = xr.DataArray(np.arange(4.0)[:, None], dims=("presentation", "neuroid"))
REPEATED = xr.concat([TARGET, TARGET], "presentation")


class Metric:
    """A metric that records its arguments."""

    def __init__(
        self,
        value: float = 0.3,
        *,
        trials: bool = False,
        input: str = "arrays",
        **fields: Any,
    ) -> None:
        self.component = SimpleNamespace(input=input, trials=trials)
        self.given: list[tuple[Any, Any, Any]] = []
        self._score = Score(value, error=0.03, scale="correlation", **fields)

    def __call__(
        self, source: Any, target: Any, *, splits: Any, tested: Any = None
    ) -> Score:
        self.given.append((source, target, splits))
        return self._score


class Ceiling:
    """A ceiling of 0.6 that counts its calls and records their arguments."""

    def __init__(self) -> None:
        self.of: list[Any] = []

    def __call__(self, assembly: Any) -> Score:
        self.of.append(assembly)
        return between(0.5, 0.7, 0.6, scale="correlation")


def job(
    *metrics: Metric,
    bound: Any = None,
    pretraining: tuple[str, ...] = (),
    **fields: Any,
) -> Resolved:
    benchmark = BenchmarkSpec.model_validate(
        {
            "id": "lab.b", "version": 1, "title": "A benchmark", "dataset": "lab", "paradigm": {"name": "recording"},
            "metrics": [f"m{i}" for i in range(len(metrics))], "parent": "V4", "ceiling": None,
            "controls": {"positive": ["p"], "negative": ["n"]}, **fields,
        }
    )  # fmt: skip
    named: Any = {f"m{i}": item for i, item in enumerate(metrics)}
    unused: Any = None
    return Resolved(
        benchmark, unused, False, pretraining, unused, unused, {}, named, bound
    )


@pytest.fixture
def session() -> Session:
    catalog: Any = SimpleNamespace(root=None)
    return Session(catalog, Request(seed=7))


def measured(**fields: Any) -> Measurement:
    return Measurement(TARGET * 2, TARGET, **fields)


def test_a_paradigm_gets_all_that_it_asks_for(session: Session) -> None:
    def paradigm(model: str, data: str, **given: Any) -> Any:
        return model, data, given

    asks_for = frozenset(CONTEXT_FIELDS["paradigm"])
    requested = Paradigm("p", 1, paradigm, asks_for)
    item: Any = SimpleNamespace(
        paradigm=requested, model="the model", data="the data", pretraining=("A",), parameters={"region": "V4"},
        benchmark=SimpleNamespace(all_metrics=("m",)),
    )  # fmt: skip
    result: Any = measure(item, session)
    model, data, given = result
    rng, context = given.pop("rng"), given.pop("context")
    assert context.rng is rng and context.catalog is session.catalog
    assert (model, data) == ("the model", "the data")
    assert given == {
        "workspace": session.workspace, "store": session.store, "pretraining": ("A",), "metrics": ("m",),
        "catalog": session.catalog, "region": "V4",
    }  # fmt: skip
    assert rng.random() == np.random.default_rng(7).random()


def test_only_metrics_of_single_trials_get_repetitions(session: Session) -> None:
    averaged, single = Metric(), Metric(trials=True)
    score(
        job(averaged, single, normalise="none"),
        measured(repeated=REPEATED, splits=[]),
        session,
        None,
    )
    (source, target, splits), (_, trials, _) = averaged.given[0], single.given[0]
    assert target is TARGET and trials is REPEATED and splits == []
    np.testing.assert_array_equal(source, TARGET * 2)
    score(job(single, normalise="none"), measured(), session, None)
    assert single.given[1][1] is TARGET, "there are no others"


RATIO = {"ceiling": {"name": "c"}, "normalise": {"formula": "ratio"}}


def test_the_headline_is_normalised_by_the_ceiling_of_the_repetitions_and_further_metrics_are_not(
    session: Session,
) -> None:
    ceiling = Ceiling()
    for data in (measured(repeated=REPEATED), measured(repeated=REPEATED), measured()):
        scores = score(
            job(Metric(), Metric(0.2), bound=ceiling, **RATIO), data, session, None
        )
        assert list(scores) == ["m0", "m1"]
        assert scores["m0"].value == pytest.approx(0.5) and scores["m0"].raw == 0.3
        assert scores["m1"].value == 0.2 and scores["m1"].ceiling is None
        assert (
            scores["m0"].ceiling is not None
            and scores["m0"].ceiling.population == "lab"
        )
    assert [len(item) for item in ceiling.of] == [8, 4], "each is computed once"
    other = job(
        Metric(),
        bound=ceiling,
        **RATIO | {"ceiling": {"name": "c", "splits": {"folds": 3}}},
    )
    headline(other, measured(), session, None)
    assert len(ceiling.of) == 3, "another ceiling of the same data"


@pytest.mark.parametrize(("clip", "value"), [(False, 1.5), (True, 1.0)])
def test_a_score_above_its_ceiling_is_clipped_only_where_that_is_declared(
    session: Session, clip: bool, value: float
) -> None:
    high = job(
        Metric(0.9),
        bound=Ceiling(),
        **RATIO | {"normalise": {"formula": "ratio", "clip": clip}},
    )
    assert headline(high, measured(), session, None).value == pytest.approx(value)


def test_a_score_is_normalised_by_the_dummy_and_the_perfect_score(
    session: Session,
) -> None:
    item = job(Metric(0.3), floor={"dummy": 0.1, "perfect": 0.5})
    assert headline(item, measured(), session, 0.1).value == pytest.approx(0.5)
    assert headline(item, measured(), session, None).value == 0.3, (
        "there is no dummy of the dummy"
    )
    assert (
        headline(job(Metric(0.3), normalise="none"), measured(), session, 0.1).value
        == 0.3
    )


def test_each_value_of_a_coordinate_is_scored_separately(session: Session) -> None:
    subject = {"subject": ("presentation", list("aabb"))}
    target, metric = TARGET.assign_coords(subject), Metric()
    result = headline(
        job(metric, normalise="none", each="subject"),
        Measurement(target, target),
        session,
        None,
    )
    assert [given[1].values.ravel().tolist() for given in metric.given] == [
        [0, 1],
        [2, 3],
    ]
    assert result.value == pytest.approx(0.3) and result.error == pytest.approx(
        0.03 / np.sqrt(2)
    )


def test_costs_of_the_same_pass_are_not_computed_again(session: Session) -> None:
    metric, cost = Metric(), Score(42.0, scale="operations")
    data = measured(costs={"m0": cost})
    assert headline(job(metric), data, session, None) is cost
    scores = score(
        job(Metric(), metric, normalise="none"),
        measured(costs={"m1": cost}),
        session,
        None,
    )
    assert scores["m1"].value == 42.0 and metric.given == []


def test_notes_are_ordered_by_model_measurement_and_metric(session: Session) -> None:
    item = job(Metric(notes=("third",)), normalise="none", pretraining=("lab",))
    result = score(item, measured(notes=("second",)), session, None)["m0"]
    assert result.notes == (
        "pretraining overlap: the model was pretrained on lab",
        "second",
        "third",
    )


def test_a_trace_metric_needs_a_paradigm_with_a_trace(session: Session) -> None:
    with pytest.raises(
        MetricError,
        match="m0 is read from a pass of a network, and this paradigm counted none",
    ):
        headline(job(Metric(input="trace")), measured(), session, None)


def test_a_score_varies_over_the_factors_that_the_benchmark_names_or_else_over_those_of_the_metric(
    session: Session,
) -> None:
    asked: list[Any] = []

    def varies(factors: Sequence[str] | None) -> Uncertainty:
        asked.append(factors)
        return exactly(0.1)

    both = Metric(generalise=("stimulus", "neuroid"), varies=varies)
    own = headline(job(both), measured(), session, None)
    named = headline(job(both, generalise=["stimulus"]), measured(), session, None)
    assert (own.generalise, named.generalise) == (
        ("stimulus", "neuroid"),
        ("stimulus",),
    )
    assert asked == [], "nothing is computed before it is asked for"
    for result in (own, named):
        assert result.population == "lab"
        assert (
            result.uncertainty is not None
            and result.uncertainty.parts[0].population == "lab"
        )
    assert asked == [own.generalise, named.generalise]
