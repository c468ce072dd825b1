"""Keyword parameters of a component become the fields of its YAML, whatever they are called."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from neuroledger.spec.components import parameter_model


def test_a_parameter_may_be_called_like_a_method_of_its_model(
    recwarn: pytest.WarningsRecorder,
) -> None:
    def similarity(
        source: object,
        target: object,
        *,
        copy: bool = True,
        json: str = "x",
        validate: float = 0.5,
    ) -> None: ...

    model = parameter_model("metric", similarity)
    assert not recwarn.list
    given = model.model_validate({"copy": False, "validate": 0.25})
    assert given.model_dump(mode="json") == {
        "copy": False,
        "json": "x",
        "validate": 0.25,
    }
    with pytest.raises(ValidationError):
        model.model_validate({"validat": 0.25})
