"""Names of devices."""

from __future__ import annotations

import pytest

from neuroledger.engine.public import score
from neuroledger.engine.records.inputs import Request, named_device
from neuroledger.engine.session import device_for_metrics
from neuroledger.errors import RequestError
from tests.devices import CARD
from tests.engine.lab import Lab


def test_auto_is_an_available_device() -> None:
    assert named_device("auto") in {"cpu", "cuda", "mps"}
    assert Request(device="auto") == Request(device=named_device("auto"))


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "", "CPU", "cuda:"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match="use auto, cpu, cuda, cuda:1 or mps"):
        Request(device=name)


def test_metrics_need_double_precision() -> None:
    assert [device_for_metrics(name) for name in ("cpu", "cuda:1", "mps")] == [
        "cpu",
        "cuda:1",
        "cpu",
    ]


@pytest.mark.skipif(not CARD, reason="needs a graphics card")
def test_a_score_on_the_card_is_that_of_the_processor(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(valid.root)
    card, processor = (
        score("pixels4", "lab.V4-ridge", device=name) for name in ("cuda", "cpu")
    )
    assert card.low is not None and card.high is not None
    assert [card.value, card.low, card.high] == pytest.approx(
        [processor.value, processor.low, processor.high], abs=1e-9
    )
