"""Mixed precision and threads that read ahead change no bit on a processor, and the notes state them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuroledger.data.memory import LazyRows
from neuroledger.display import NoDisplay
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import RequestError
from neuroledger.families.decoding.models.network_decoders import network_decoder
from neuroledger.families.decoding.protocols.decoder import Decoder, Signature
from neuroledger.families.decoding.training.decoding_recipes import Laptop
from neuroledger.families.decoding.training.read_ahead import read_ahead
from neuroledger.models.devices import Training
from neuroledger.spec.catalog import open_catalog
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


def test_epochs_are_told_until_the_last_or_until_training_stops() -> None:
    told: list[tuple[str, int, int]] = []
    x = windows()
    training = Training(tell=lambda *done: told.append(done))
    network = trained(training, x)
    assert told == [("training", epoch, 3) for epoch in (1, 2, 3)]
    assert network.notes_ == ()
    told.clear()
    stopped = Laptop(epochs=9, patience=1, learning_rate=1e-12)
    network_decoder(
        id="e", architecture="eegnet", recipe=stopped, training=training
    ).make(SIGNATURE).fit(x, np.tile(["a", "b"], 60))
    assert told[-1] == ("training", 9, 9)
    assert len(told) < 9


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


def test_a_run_reports_epochs_and_passes_on_how_to_train() -> None:
    told: list[str] = []

    class Told(NoDisplay):
        """Notes what progresses."""

        def progress(self, label: str, done: int, total: int) -> None:
            told.append(f"{label} {done} of {total}")

    session = Session(
        open_catalog(), Request(training=Training(workers=2)), None, display=Told()
    )
    decoder = model_of(session, "eegnet")
    assert isinstance(decoder, Decoder)
    network = decoder.make(SIGNATURE)
    network.recipe = Laptop(epochs=2)
    network.fit(windows(), np.tile(["a", "b"], 60))
    assert told == ["training 1 of 2", "training 2 of 2"]
    assert network.training.workers == 2
