"""Models that learn from data and models that take stimuli are not confused."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroledger.data.gate.validate import validate
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import fits
from neuroledger.engine.session import Session
from neuroledger.errors import RequestError
from neuroledger.spec.catalog import open_catalog
from tests.engine.lab import Lab


@pytest.mark.parametrize("builder", ["constant", "dummy_decoder"])
def test_models_that_learn_from_data_are_refused_for_stimulus_benchmarks(
    lab: Lab, builder: str
) -> None:
    lab.spec("models", "floor", builder={"name": builder})
    catalog = lab.open()
    validate(catalog, "lab")
    with pytest.raises(
        RequestError,
        match=r"'floor' cannot be scored on 'lab.V4-ridge': it takes signals, training",
    ):
        evaluate(
            Session(catalog), catalog.benchmark("lab.V4-ridge"), "floor", controls=False
        )


def test_a_new_recording_benchmark_runs_only_models_that_take_stimuli(
    repository: Path,
) -> None:
    """`run --benchmark ID` without models takes those that fit."""
    catalog = open_catalog(repository)
    recording, inference = (
        catalog.benchmark("Digits.simulated.IT-ridge"),
        catalog.benchmark("Digits.spikes-accuracy"),
    )
    fitting = {id for id in catalog.ids("models") if fits(catalog, id, recording.id)}
    assert "gabor" in fitting and "constant" not in fitting
    assert fits(catalog, "constant", inference.id)
