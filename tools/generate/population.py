"""Build a simulated population in an NWB file deterministically: ``python -m tools.generate.population [FOLDER]``.

Three latent time courses drive the rates of forty Poisson neurons, so that neurons predict each other better than their
mean rates do. Prints size and SHA-256 in the form of the pins in ``specs/``.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tools.generate import write
from tools.generate.pins import build_and_print

NAME: Final = "Population.simulated"
SEED: Final = 20_261_123
NEURONS: Final = 40
LATENTS: Final = 3
TRIALS: Final = 60
SECONDS: Final = 1.0
PAUSE: Final = 1.5
BIN: Final = 0.05
HELD_OUT: Final = 4
STARTED: Final = datetime(2026, 1, 1, tzinfo=UTC)

Floats = NDArray[np.float64]


def rates(rng: np.random.Generator) -> Floats:
    """Rates in spikes/s, (trial, bin, neuron): exponentials of weighted latent sines with random phases."""
    moments = (np.arange(round(SECONDS / BIN)) + 0.5) * BIN
    hertz = rng.uniform(0.5, 2.0, LATENTS)
    phases = rng.uniform(0.0, 2 * np.pi, (TRIALS, 1, LATENTS))
    courses = np.sin(2 * np.pi * hertz * moments[None, :, None] + phases)
    weights = rng.normal(0.0, 0.6, (LATENTS, NEURONS))
    return np.asarray(
        np.exp(np.log(rng.uniform(8.0, 25.0, NEURONS)) + courses @ weights)
    )


def spikes(rng: np.random.Generator, rate: Floats) -> list[Floats]:
    """Spike times of each neuron in seconds, uniformly distributed within their bins."""
    counts = rng.poisson(rate * BIN)
    trial, at, neuron = (
        np.repeat(index, counts[counts > 0]) for index in np.nonzero(counts)
    )
    times = trial * PAUSE + (at + rng.uniform(0.02, 0.98, len(at))) * BIN
    return [np.sort(times[neuron == number]) for number in range(NEURONS)]


def attainable(rate: Floats, times: list[Floats]) -> float:
    """Bits per spike of the true rates, compared with the mean of each held-out neuron over all bins [peiye2021]."""
    edges = (
        np.arange(TRIALS)[:, None] * PAUSE + np.arange(round(SECONDS / BIN) + 1) * BIN
    ).ravel()
    gained = total = 0.0
    for number in range(HELD_OUT - 1, NEURONS, HELD_OUT):
        below = np.searchsorted(times[number], edges).reshape(TRIALS, -1)
        counts = np.diff(below, axis=1).ravel().astype(float)
        expected = rate[:, :, number].ravel() * BIN
        mean = counts.mean()
        gained += float((counts * np.log(expected / mean) - expected + mean).sum())
        total += float(counts.sum())
    return gained / (np.log(2) * total)


def build(folder: Path) -> list[Path]:
    """Write the session under `folder` and return the file to be pinned."""
    import pynwb

    home = folder / NAME
    home.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(SEED)
    rate = rates(rng)
    times = spikes(rng, rate)
    numbers = np.random.default_rng(SEED)

    def seeded_uuid() -> uuid.UUID:
        return uuid.UUID(bytes=numbers.bytes(16), version=4)

    # Seed the identifiers of the file's objects, which would be random otherwise.
    with mock.patch("hdmf.container.uuid4", seeded_uuid):
        nwb_file = pynwb.NWBFile(
            "Simulated: forty Poisson neurons driven by three latent courses", NAME, STARTED,
            session_id="1", file_create_date=STARTED, timestamps_reference_time=STARTED,
        )  # fmt: skip
        nwb_file.subject = pynwb.file.Subject(subject_id="simulated", species="none")
        for spiked in times:
            nwb_file.add_unit(spike_times=spiked)
        for trial in range(TRIALS):
            nwb_file.add_trial(
                start_time=trial * PAUSE, stop_time=trial * PAUSE + SECONDS
            )
        path = home / "session.nwb"
        with pynwb.NWBHDF5IO(str(path), "w") as io:
            io.write(nwb_file, cache_spec=False)
    facts = {
        "seed": SEED,
        "neurons": NEURONS,
        "latents": LATENTS,
        "attainable_bits_per_spike": attainable(rate, times),
    }
    write.truth(home / "truth.json", facts)
    return [path]


if __name__ == "__main__":
    build_and_print(build)
