"""What each document presupposes: the names that its Python blocks use and that a reader has."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import xarray as xr
from sklearn.linear_model import LogisticRegression

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions
from neuroledger.data.stimuli import StimulusSet
from tests.models.test_brainscore_object import Submission


def assembly(
    stimuli: int = 60, neuroids: int = 5, repetitions: int = 4
) -> xr.DataArray:
    """Simulated responses with repetitions."""
    rng = np.random.default_rng(0)
    names = np.repeat([f"image{i:03d}" for i in range(stimuli)], repetitions)
    signal = np.repeat(rng.standard_normal((stimuli, neuroids)), repetitions, axis=0)
    coords = {
        "stimulus_id": ("presentation", names),
        "object_name": (
            "presentation",
            np.repeat([f"o{i % 6}" for i in range(stimuli)], repetitions),
        ),
        "repetition": ("presentation", np.tile(np.arange(repetitions), stimuli)),
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(neuroids)]),
    }
    noise = 0.3 * rng.standard_normal(signal.shape)
    return xr.DataArray(signal + noise, dims=("presentation", "neuroid"), coords=coords)


def averaged() -> xr.DataArray:
    """One row for each stimulus."""
    return assembly().isel(presentation=slice(None, None, 4)).drop_vars("repetition")


def _named(
    start: torch.nn.Module, layers: dict[str, torch.nn.Module]
) -> torch.nn.Module:
    whole = torch.nn.Sequential()
    whole.add_module("start", start)
    for name, layer in layers.items():
        whole.add_module(name, layer)
    return whole


def recordings() -> dict[str, Any]:
    """Simulated windows of eight people in two sessions, with what is known of each."""
    rng = np.random.default_rng(0)
    people, trials = 8, 12
    y = np.tile(["left", "right"], people * trials // 2)
    x = (
        rng.standard_normal((people * trials, 6, 32))
        * (1 + 0.8 * (y == "left"))[:, None, None]
    )
    subjects = np.repeat([f"s{i}" for i in range(people)], trials)
    sessions = np.tile(np.repeat(["a", "b"], trials // 2), people)
    return {
        "x": x,
        "y": y,
        "subjects": subjects,
        "sessions": sessions,
        "recordings": np.char.add(subjects, sessions),
        "trials": np.tile(np.arange(trials), people).astype(str),
        "onsets": np.tile(np.arange(trials) * 2.0, people),
    }


def _flat(held: dict[str, Any]) -> dict[str, Any]:
    """One vector of features for each window."""
    return held | {"x": held["x"].reshape(len(held["x"]), -1)}


class Transcriber(torch.nn.Module):
    """A letter or a blank for each of four stretches of a window."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = torch.nn.Linear(6 * 8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(window, time, symbols + 1)``."""
        return self.letters(x.reshape(len(x), 6, 4, 8).transpose(1, 2).flatten(2))


class MyNeuron(torch.nn.Module):
    """A neuron that leaks and fires."""

    def __init__(self) -> None:
        super().__init__()
        self.v = torch.zeros(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Spikes."""
        self.v = 0.5 * self.v.detach().mean() + x
        return (self.v > 0.5).float()


def presupposed(document: str) -> dict[str, Any]:
    """The names that a reader of the document has before its first block."""
    linear = {"layer4": torch.nn.Linear(16 * 16 * 3, 32)}
    torch.manual_seed(0)
    module = _named(
        torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(16), torch.nn.Flatten()), linear
    )
    images = [torch.rand(4, 3, 32, 32)]
    if document == "README.md":
        return {
            "source": averaged(),
            "target": averaged(),
            "assembly": assembly(),
            "module": module,
            "batches": images,
            "estimator": LogisticRegression(),
            **_flat(recordings()),
        }
    if document == "docs/decoding.md":
        held = recordings()
        texts = np.where(held["y"] == "left", "ab", "ba")
        angles = np.linspace(0, 2 * np.pi, held["x"].shape[1], endpoint=False)
        positions = 0.05 * np.column_stack([np.cos(angles), np.sin(angles)])
        return held | {
            "module": Transcriber(),
            "windows": held["x"].astype(np.float32),
            "texts": texts,
            "positions": positions,
        }
    if document == "docs/efficiency.md":
        stimuli = nl.load("Digits.simulated").stimuli
        assert isinstance(stimuli, StimulusSet)
        spiking = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 8), MyNeuron()
        )
        model = nl.models.torch(
            module,
            regions={"V4": "layer4"},
            preprocessing={"resize": 32},
            id="my_model",
        )
        return {
            "module": spiking,
            "MyNeuron": MyNeuron,
            "batches": images,
            "model": model,
            "stimuli": stimuli.select(stimuli.ids[:8]),
        }
    if document == "docs/models.md":
        grey = {
            f"block{i}": torch.nn.Linear(256 if i == 1 else 32, 32) for i in (1, 2, 3)
        }
        mine = _named(
            torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(16), torch.nn.Flatten()),
            grey,
        )
        data = nl.load("Digits.simulated").assembly
        assert data is not None
        theirs = average_repetitions(data[:, data["region"].values == "IT"])
        return {"my_module": mine, "assembly": theirs, "submission": Submission()}
    if document == "docs/signals.md":
        held = recordings()
        return {
            "stimuli": np.array([f"w{i}" for i in range(len(held["y"]))]),
            "subjects": held["subjects"],
            "recordings": held["recordings"],
            "onsets": held["onsets"],
            "labels": held["y"],
            "values": held["x"],
            "names": [f"C{i}" for i in range(6)],
        }
    return {}
