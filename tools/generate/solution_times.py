"""Simulated solution times of digits, and a population in which object identity emerges at these times."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

from tools.generate.images import NAMES, Digits, on_canvas
from tools.generate.training import same_bytes
from tools.generate.tuning import object_match

Floats = NDArray[np.float64]

SEED: Final = 20_260_107
SESSIONS: Final = 4
RELIABILITY: Final = 0.8
MIDDLE_MS, SPREAD_MS, RISE_MS = 140.0, 20.0, 2.0
UNSOLVED: Final = 20
DPRIME: Final = 1.0
BINS: Final = tuple((float(start), float(start + 10)) for start in range(70, 250, 10))
ABOUT: Final = "Simulated solution times: when a digit is solved was chosen. No animal and no person took part."
EPOCHS, BATCH, RATE = 40, 64, 3e-3


class Solving(NamedTuple):
    """Solution times in every session, the facts of the simulation, and two populations over time."""

    times: xr.DataArray
    truth: dict[str, Any]
    population: xr.DataArray
    scrambled: xr.DataArray


def solving(source: Digits, table: pd.DataFrame) -> Solving:
    """Solution times of the 500 digits in each of four sessions; more difficult digits are solved later.

    The true time of a digit is 140 ms + 20 ms · z, with z the normal score of its rank in difficulty: the similarity to
    exemplars of the most similar other class, minus that to its own class. A session measures it with Gaussian noise of
    variance s² = 4 σ² (1 / ρ − 1), so that the mean of four sessions has the reliability ρ = .8. True times and this
    mean are then jointly normal with correlation √ρ, and the Spearman correlation of a model with the mean is at
    most (6 / π) asin(√ρ / 2) = .886. Twenty digits, drawn at random, are never solved.

    The human d-prime is 1 for every digit, since Kar et al. (2019) matched their images for human performance. In the
    population, ten units, one for each object, respond to their object, and reach half of their response at the
    digit's true time. The scrambled population does so at the times of other digits.
    """
    rng = np.random.default_rng(SEED)
    labels = source.labels[source.shown]
    rows = np.arange(len(labels))
    match = object_match(source)
    own = match[rows, labels]
    match[rows, labels] = -1
    difficulty = rankdata(match.max(axis=1) - own, method="ordinal")
    latency = MIDDLE_MS + SPREAD_MS * ndtri((difficulty - 0.5) / len(labels))
    noise = SPREAD_MS * np.sqrt(SESSIONS * (1 / RELIABILITY - 1))
    measured = latency[:, None] + noise * rng.standard_normal((len(labels), SESSIONS))
    measured[rng.permutation(len(labels))[:UNSOLVED]] = np.nan
    return Solving(
        _times(measured, table),
        _truth(noise),
        _population(latency, labels, table),
        _population(rng.permutation(latency), labels, table),
    )


def _times(measured: Floats, table: pd.DataFrame) -> xr.DataArray:
    count, sessions = measured.shape
    ids = table["stimulus_id"].to_numpy().astype(str)
    objects = table["object_name"].to_numpy().astype(str)
    return xr.DataArray(
        np.round(measured, 3).ravel(),
        dims=("presentation",),
        coords={
            "stimulus_id": ("presentation", np.repeat(ids, sessions)),
            "image_label": ("presentation", np.repeat(objects, sessions)),
            "i1": ("presentation", np.full(count * sessions, DPRIME)),
            "repetition": ("presentation", np.tile(np.arange(sessions), count)),
        },
        attrs={"about": ABOUT, "units": "ms"},
    )


def _population(
    latency: Floats, labels: NDArray[np.intp], table: pd.DataFrame
) -> xr.DataArray:
    """Responses of ten units to their object, 1 / (1 + exp(−(t − latency) / 2 ms)), with t the centre of a bin."""
    starts, ends = np.array(BINS).T
    rise = 1 / (1 + np.exp(-((starts + ends) / 2 - latency[:, None]) / RISE_MS))
    values = np.eye(len(NAMES))[labels][:, :, None] * rise[:, None, :]
    return xr.DataArray(
        np.round(values, 4).astype(np.float32),
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": (
                "presentation",
                table["stimulus_id"].to_numpy().astype(str),
            ),
            "neuroid_id": ("neuroid", np.asarray(NAMES)),
            "layer": ("neuroid", np.full(len(NAMES), "IT")),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", ends),
        },
        attrs={"about": ABOUT, "units": "share of the full response"},
    )


def _truth(noise: float) -> dict[str, Any]:
    return {
        "about": ABOUT,
        "simulated": True,
        "best_model": "generator.solving",
        "best_spearman": round(
            float(6 / np.pi * np.arcsin(np.sqrt(RELIABILITY) / 2)), 8
        ),
        "formula": "best Spearman = (6 / pi) asin(sqrt(reliability) / 2)",
        "reliability": RELIABILITY,
        "session_noise_ms": round(float(noise), 8),
        "sessions": SESSIONS,
        "unsolved": UNSOLVED,
    }


@same_bytes()
def train(source: Digits, path: Path) -> float:
    """Train the recurrent network to name held-out digits from its sixth step on; return the accuracy on the shown ones.

    With one thread and seeded generators, the bytes are the same on every run with the same versions of torch and its
    libraries.
    """
    import torch
    from safetensors.torch import save_file
    from torch.nn.functional import cross_entropy

    from neuroledger.families.alignment.networks.recurrent import Recurrent
    from tools.generate.network import screen

    torch.manual_seed(SEED)
    module = Recurrent()
    optimiser = torch.optim.Adam(module.parameters(), lr=RATE)
    digits, numbers = source.luminance[source.held_out], source.labels[source.held_out]
    labels = torch.from_numpy(numbers.astype(np.int64))
    batches = -(-len(digits) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
        optimiser, T_max=EPOCHS * batches
    )
    rng = np.random.default_rng(SEED)
    late = module.steps - 5
    for _ in range(EPOCHS):
        images = torch.from_numpy(
            screen(on_canvas(digits, rng.integers(0, 9, size=(len(digits), 2))))
        )
        for rows in np.array_split(rng.permutation(len(digits)), batches):
            optimiser.zero_grad()
            answers = module(images[rows])[:, -late:].flatten(0, 1)
            cross_entropy(answers, labels[rows].repeat_interleave(late)).backward()
            optimiser.step()
            schedule.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(
        module.state_dict(),
        path,
        metadata={"trained_on": "digits that are not in Digits.simulated"},
    )
    with torch.no_grad():
        last = module(
            torch.from_numpy(
                screen(on_canvas(source.luminance[source.shown], source.places))
            )
        )[:, -1]
    return float((last.argmax(dim=1).numpy() == source.labels[source.shown]).mean())
