"""Mixed precision and threads that read ahead change no bit on a processor, and the notes state them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuroledger.data.memory import LazyRows
from neuroledger.engine.session import Request
from neuroledger.errors import RequestError
from neuroledger.families.decoding.models.network_decoders import network_decoder
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import Laptop
from neuroledger.families.decoding.training.read_ahead import read_ahead
from neuroledger.models.devices import Training
from tests.devices import CARD

SIGNATURE = Signature("classification", 3, 64, 2, 64.0, ("C0", "C1", "C2"), 33)


def trained(training: Training, x: Any, device: str = "cpu") -> Any:
    decoder = network_decoder(
        id="e",
        architecture="eegnet",
        recipe=Laptop(epochs=3),
        training=training,
        device=device,
    )
    return decoder.make(SIGNATURE).fit(x, np.tile(["a", "b"], len(x) // 2))


def windows() -> Any:
    return np.random.default_rng(0).standard_normal((120, 3, 64)).astype(np.float32)


@pytest.mark.parametrize("training", [Training(True, 0), Training(True, 3)])
def test_a_processor_computes_the_same_bits(training: Training) -> None:
    x = windows()
    rows = LazyRows(x, np.arange(len(x)), x.dtype, None)
    plain, other = trained(Training(), rows), trained(training, rows)
    np.testing.assert_array_equal(plain.predict_proba(x), other.predict_proba(x))
    assert plain.losses_ == other.losses_
    assert plain.notes_ == ()
    assert other.notes_ == (
        f"trained on cpu in full precision, {training.workers} workers read ahead",
    )


@pytest.mark.skipif(not CARD, reason="needs a graphics card")
def test_a_card_computes_in_mixed_precision_on_card() -> None:
    x = windows()
    full = trained(Training(), x, "cuda").predict_proba(x)
    mixed = trained(Training(mixed=True), x, "cuda").predict_proba(x)
    assert 0 < np.abs(full - mixed).max() < 0.1


def test_batches_are_read_ahead_in_their_order() -> None:
    read: list[int] = []

    class Windows:
        """Windows that note when they are read."""

        def __getitem__(self, rows: int) -> int:
            read.append(rows)
            return -rows

    ahead = read_ahead(Windows(), iter(range(6)), 2)
    assert next(ahead) == (0, 0)
    assert len(read) >= 1
    assert list(ahead) == [(rows, -rows) for rows in range(1, 6)]
    assert sorted(read) == list(range(6))


def test_the_request_takes_no_negative_number_of_workers() -> None:
    assert Request(training=Training(workers=2)).training.workers == 2
    with pytest.raises(RequestError, match="choose 0 or more"):
        Request(training=Training(workers=-1))
