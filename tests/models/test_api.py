"""Objects in memory become models; incomplete objects are refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.errors import AssemblyError, ModelError, RequestError
from neuroledger.models.api import brainscore, responses, torch, wrapped
from neuroledger.models.brainscore_object import BrainScoreModel, BrainScoreSubject


class Vision:
    """The interface of Brain-Score's models of vision, which is never asked here."""

    identifier = "mine"

    def look_at(self, stimuli: Any, number_of_trials: int = 1) -> Any: ...
    def start_recording(self, region: Any, time_bins: Any) -> None: ...
    def start_task(self, task: Any, fitting: Any = None) -> None: ...
    def visual_degrees(self) -> int:
        return 8


class Reader:
    def digest_text(self, text: Any) -> Any: ...
    def identifier(self) -> str:
        return "reader"


def test_objects_of_brain_score_have_the_interface_and_a_name() -> None:
    assert (
        isinstance(brainscore(Vision()), BrainScoreModel)
        and brainscore(Vision()).id == "mine"
    )
    assert brainscore(Vision(), id="other").id == "other"
    reader = brainscore(Reader())
    assert isinstance(reader, BrainScoreSubject) and reader.id == "reader"

    class Half:
        def look_at(self) -> None: ...
        def start_task(self) -> None: ...

    with pytest.raises(
        ModelError,
        match="Half is not a Brain-Score model: it has no start_recording, visual_degrees",
    ):
        brainscore(Half())
    for name in ("", None, 3):
        odd = Vision()
        odd.identifier = name  # type: ignore[assignment]
        with pytest.raises(
            ModelError, match="Vision has no `identifier`: give it an id"
        ):
            brainscore(odd)


def test_models_are_returned_unchanged_and_other_objects_are_refused() -> None:
    assert wrapped("an-id") == "an-id"
    model = brainscore(Vision())
    assert wrapped(model) is model
    found = wrapped(Vision())
    assert isinstance(found, BrainScoreModel) and found.id == "mine"
    words = "int is not a model: give an id, a torch module, or a model of nl.models"
    with pytest.raises(RequestError, match=words):
        wrapped(3)
    with pytest.raises(
        RequestError,
        match="id, regions: only a torch module takes declarations; 'an-id' has its own",
    ):
        wrapped("an-id", regions={}, id="x")


def test_a_module_needs_declarations_and_its_layers_are_listed() -> None:
    nn = pytest.importorskip("torch").nn
    module = nn.Sequential(*[nn.Identity() for _ in range(8)])
    with pytest.raises(RequestError, match=r"its layers are 0, 1, 2, 3, 4, 5, 6, 7$"):
        wrapped(module)
    with pytest.raises(RequestError, match=r"Sequential is a torch module.* 6, 7, …$"):
        wrapped(nn.Sequential(*[nn.Identity() for _ in range(9)]), id="x")
    made = wrapped(module, regions={"IT": "3"}, preprocessing={"resize": 8})
    assert not isinstance(made, str) and made.id == "sequential"
    for field in ("readout", "logits"):
        assert (
            wrapped(module, id="named", preprocessing={"resize": 8}, **{field: "3"}).id
            == "named"
        )  # type: ignore[union-attr]
    assert (
        wrapped(module, id="named", preprocessing={"resize": 8}, layers=["3"]).id
        == "named"
    )  # type: ignore[union-attr]


def test_preprocessing_is_declared_in_fields_that_exist() -> None:
    nn = pytest.importorskip("torch").nn
    with pytest.raises(
        ModelError, match=r"model 'x': preprocessing has no field 'resise'.*resize"
    ):
        torch(nn.Identity(), id="x", layers=["output"], preprocessing={"resise": 8})
    with pytest.raises(ModelError, match=r"model 'x': preprocessing: resize.*: "):
        torch(
            nn.Identity(), id="x", layers=["output"], preprocessing={"resize": "wide"}
        )
    odd: Any = object()
    with pytest.raises(
        ModelError, match=r"model 'x': object is not a torch module \(torch.nn.Module\)"
    ):
        torch(odd, id="x")


def test_responses_are_checked_and_identified_by_their_content() -> None:
    rows = xr.DataArray(
        np.arange(6.0).reshape(3, 2), dims=("presentation", "neuroid"),
        coords={"stimulus_id": ("presentation", ["a", "b", "c"]), "neuroid_id": ("neuroid", ["n", "m"])},
    )  # fmt: skip
    model = responses(rows, id="r", visual_degrees=8.0)
    assert model.id == "r" and model.visual_degrees == 8.0
    assert responses(rows, id="r").identity == model.identity
    assert responses(rows + 1, id="r").identity != model.identity
    with pytest.raises(AssemblyError, match="responses of 'r'"):
        responses(rows.rename(presentation="other"), id="r")


def test_an_object_with_half_the_interface_of_a_module_is_not_a_module() -> None:
    class Named:
        def named_modules(self) -> list[tuple[str, object]]:
            return []

    class Stateful:
        def state_dict(self) -> dict[str, object]:
            return {}

    for half in (Named(), Stateful()):
        with pytest.raises(
            RequestError,
            match="is not a model: give an id, a torch module, or a model of",
        ):
            wrapped(half)
