"""What a job is given: the selected data, cut to its limit, and a model that takes what its spec states."""

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
    found = resolved(valid, select={"repetition": [0, 2]}).data.assembly
    assert found is not None and set(found["repetition"].values) == {0, 2}
    assert found.sizes["presentation"] == 2 * IMAGES


def test_the_controls_of_a_benchmark_are_known_as_such(valid: Lab) -> None:
    valid.spec("models", "pixels2", builder={"name": "pixels", "size": 2})
    known = {model: resolved(valid, model=model).control for model in ("pixels4", "noise", "pixels2")}
    assert known == {"pixels4": True, "noise": True, "pixels2": False}


def test_what_is_unavailable_is_refused_with_the_reason(valid: Lab) -> None:
    with pytest.raises(
        UnavailableError, match=r"benchmark 'lab\.V4-ridge' is unavailable: the data are withdrawn"
    ):
        resolved(valid, unavailable="the data are withdrawn")
    valid.spec("models", "away", builder={"name": "pixels"}, unavailable="its weights are not public")
    with pytest.raises(UnavailableError, match="model 'away' is unavailable: its weights are not public"):
        model_of(Session(valid.open(), Request()), "away")


@pytest.mark.parametrize("field", [{"layers": ["units"]}, {"readout": "units"}, {"logits": "units"}])
def test_a_builder_is_not_given_what_it_would_not_use(valid: Lab, field: dict[str, Any]) -> None:
    valid.spec("models", "more", builder={"name": "noise"}, **field)
    with pytest.raises(RequestError, match=f"builder 'noise' does not use `{next(iter(field))}`; remove it"):
        model_of(Session(valid.open(), Request()), "more")


def test_a_model_is_built_once_in_a_session(valid: Lab) -> None:
    session = Session(valid.open(), Request())
    assert model_of(session, "pixels4") is model_of(session, "pixels4")


def test_data_that_were_not_validated_are_refused(lab: Lab) -> None:
    with pytest.raises(NeuroLedgerError, match="it has not been validated; run `neuroledger validate lab`"):
        resolved(lab)
