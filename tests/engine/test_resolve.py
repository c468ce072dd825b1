"""Resolution of jobs: selected and limited data, and models built from specs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuroledger.engine.resolve import Resolved, model_of, resolve
from neuroledger.engine.session import Request, Session
from neuroledger.errors import NeuroLedgerError, RequestError, UnavailableError
from tests.engine.lab import IMAGES, NEUROIDS, REPETITIONS, Lab


def resolved(lab: Lab, request: Request | None = None, model: str = "pixels4", **benchmark: Any) -> Resolved:
    lab.benchmark(**benchmark)
    catalog = lab.open()
    session = Session(catalog, request or Request())
    return resolve(
        session, catalog.benchmark("lab.V4-ridge"), model, lambda *_: pytest.fail("nothing is scored")
    )


def test_a_limit_keeps_every_repetition_of_the_first_stimuli(valid: Lab) -> None:
    whole, cut = (resolved(valid, request).data.assembly for request in (Request(), Request(limit=7)))
    assert whole is not None and cut is not None
    assert whole.shape == (IMAGES * REPETITIONS, NEUROIDS) and cut.shape == (7 * REPETITIONS, NEUROIDS)
    assert set(cut["stimulus_id"].values) == {f"im{number:02d}" for number in range(7)}
    first = whole.isel(presentation=np.isin(whole["stimulus_id"], cut["stimulus_id"]))
    np.testing.assert_array_equal(cut.values, first.values)


def test_only_what_the_benchmark_selects_is_scored(valid: Lab) -> None:
    result = resolved(valid, select={"repetition": [0, 2]}).data.assembly
    assert result is not None and set(result["repetition"].values) == {0, 2}
    assert result.sizes["presentation"] == 2 * IMAGES


def test_control_models_are_recognised(valid: Lab) -> None:
    valid.spec("models", "pixels2", builder={"name": "pixels", "size": 2})
    known = {model: resolved(valid, model=model).control for model in ("pixels4", "noise", "pixels2")}
    assert known == {"pixels4": True, "noise": True, "pixels2": False}


def test_unavailable_benchmarks_and_models_are_refused_with_the_reason(valid: Lab) -> None:
    with pytest.raises(
        UnavailableError, match=r"benchmark 'lab\.V4-ridge' is unavailable: the data are withdrawn"
    ):
        resolved(valid, unavailable="the data are withdrawn")
    valid.spec("models", "away", builder={"name": "pixels"}, unavailable="its weights are not public")
    with pytest.raises(UnavailableError, match="model 'away' is unavailable: its weights are not public"):
        model_of(Session(valid.open(), Request()), "away")


@pytest.mark.parametrize("field", [{"layers": ["units"]}, {"readout": "units"}, {"logits": "units"}])
def test_fields_that_a_builder_does_not_use_are_refused(valid: Lab, field: dict[str, Any]) -> None:
    valid.spec("models", "more", builder={"name": "noise"}, **field)
    with pytest.raises(RequestError, match=f"builder 'noise' does not use `{next(iter(field))}`; remove it"):
        model_of(Session(valid.open(), Request()), "more")


def test_a_model_is_built_once_per_session(valid: Lab) -> None:
    session = Session(valid.open(), Request())
    assert model_of(session, "pixels4") is model_of(session, "pixels4")


def test_data_that_were_not_validated_are_refused(lab: Lab) -> None:
    with pytest.raises(NeuroLedgerError, match="it has not been validated; run `neuroledger validate lab`"):
        resolved(lab)
