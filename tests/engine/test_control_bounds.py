"""Bounds of controls: pure noise is refused, and chance is that of the metric."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neuroledger.data import assembly as assemblies
from neuroledger.data.gate.validate import validate
from neuroledger.engine.check import check
from neuroledger.engine.control import bounded, floor_of, in_words
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Request, Session
from neuroledger.errors import CeilingError, MetricError
from neuroledger.models.activation_store import open_store
from neuroledger.spec.kinds import Controls
from neuroledger.stats.score import Score
from tests.engine.given_interval import between
from tests.engine.lab import Lab


def of_noise(lab: Lab, seed: int, level: float = 0.0) -> Session:
    """The lab's recordings with noise in their place, and a little signal where asked for."""
    path = lab.data / "responses.nc"
    recorded = assemblies.read(path)
    noise = np.random.default_rng(seed).standard_normal(recorded.shape)
    assemblies.write(recorded.copy(data=level * recorded.values + noise), path)
    lab.dataset()
    catalog = lab.open()
    validate(catalog, "lab")
    return Session(catalog, Request(), open_store(catalog.root))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("metric", "ceiling"),
    [("ridge", "internal_consistency"), ("rdm", "rdm_consistency")],
)
def test_pure_noise_data_fail_their_controls(
    lab: Lab, metric: str, ceiling: str, seed: int
) -> None:
    lab.benchmark(
        "lab.V4-ridge",
        metric=metric,
        ceiling=ceiling,
        controls={"negative": ["noise"], "floor_at_most": 50},
    )
    session = of_noise(lab, seed)
    with pytest.raises(
        (MetricError, CeilingError), match=r"includes 0|ceiling|controls|no geometry"
    ):
        evaluate(session, session.catalog.benchmark("lab.V4-ridge"), "pixels4")


def test_data_with_signal_pass_both_bounds_of_the_control_itself(lab: Lab) -> None:
    lab.benchmark("lab.V4-ridge")
    session = of_noise(lab, 0, level=3.0)
    result = evaluate(
        session, session.catalog.benchmark("lab.V4-ridge"), "pixels4"
    ).controls["itself"]
    assert result.verdict == "passed"
    assert result.value is not None
    assert 0.8 <= result.value <= 10


def test_itself_is_bounded_on_both_sides() -> None:
    rules = Controls()
    bounds = rules.ceiling_at_least, rules.itself_at_most
    for value, passed in (
        (0.7, False),
        (0.9, True),
        (9.9, True),
        (17.9, False),
        (math.nan, False),
    ):
        result = bounded("positive", Score(value), *bounds)
        assert (result.verdict == "passed") is passed
    for low, high, verdict in (
        (0.81, 9.9, "passed"),
        (9.0, 11.0, "undecided"),
        (10.1, 18.0, "failed"),
    ):
        result = bounded("positive", between(low, high), *bounds)
        assert result.verdict == verdict
        assert ("ceiling is too low" in in_words(result)) is (verdict == "failed")


def test_the_floor_is_counted_from_chance_unless_it_is_declared() -> None:
    assert floor_of(Controls(), 0.0) == pytest.approx(0.1)
    assert floor_of(Controls(), 0.5) == pytest.approx(0.55)
    assert floor_of(
        Controls.model_validate({"floor_at_most": 0.2}), 0.5
    ) == pytest.approx(0.2)


def test_a_floor_below_chance_is_refused_before_any_work(lab: Lab) -> None:
    fields = {"metric": "auroc", "ceiling": None, "controls": {"floor_at_most": 0.1}}
    lab.benchmark("lab.V4-auroc", **fields)
    result = [item for item in check(lab.open())[0] if item.code == "spec.chance"]
    assert len(result) == 1
    assert "chance level of the metric is 0.5" in result[0].what
    lines = (
        (lab.root / "specs" / "benchmarks" / "lab.V4-auroc.yaml")
        .read_text()
        .splitlines()
    )
    assert lines[result[0].line - 1][result[0].column - 1 :].startswith("0.1")
    lab.benchmark("lab.V4-auroc", **(fields | {"controls": {}}))
    assert not [item for item in check(lab.open())[0] if item.code == "spec.chance"]
