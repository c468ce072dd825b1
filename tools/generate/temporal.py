"""Build temporal data for inference deterministically: ``python -m tools.generate.temporal [FOLDER]``.

Digits as spike trains, simulated heartbeats, and Mackey-Glass series with fourteen delays. Prints size and SHA-256 of
each file in the form of the pins in ``specs/``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data import assembly
from tools.generate.pins import build_and_print

Floats = NDArray[np.float64]

# Delay: Lyapunov time and constant history, from the NeuroBench data card (CC-BY-4.0).
DELAYS: Final = {
    17: (197, 0.7206597), 18: (138, 0.774431), 19: (315, 0.778347), 20: (131, 0.922599), 21: (191, 0.947943),
    22: (119, 0.545596), 23: (106, 0.862225), 24: (97, 0.325966), 25: (98, 0.829783), 26: (104, 1.003349),
    27: (112, 0.649141), 28: (119, 1.09575), 29: (131, 0.925618), 30: (139, 0.271364),
}  # fmt: skip
# By our own integration, delay 19 ends in a periodic orbit, and delay 21 is only transiently chaotic.
NOT_CHAOTIC: Final = {19: "periodic", 21: "transient"}
PER_TIME: Final = 75
TIMES: Final = 50
NODES: Final = 1000
STEPS: Final = 10
BEATS: Final = 1200


def production(delayed: float) -> float:
    """0.2·x / (1 + x¹⁰), with the power by multiplications, which round equally on every machine."""
    square = delayed * delayed
    fourth = square * square
    return 0.2 * delayed / (1.0 + fourth * fourth * square)


def mackey_glass(delay: int) -> Floats:
    """Values of ``dx/dt = 0.2·x(t-τ) / (1 + x(t-τ)¹⁰) - 0.1·x``, 75 for each of 50 Lyapunov times [mackey1977].

    Fourth-order Runge-Kutta integration on a grid that contains all multiples of the delay, where the derivatives have
    jumps; between nodes, the delayed values and the output are cubic Hermite interpolations.
    """
    time, history = DELAYS[delay]
    count = PER_TIME * TIMES
    step = delay / NODES
    length = math.ceil((count - 1) * time / PER_TIME / step) + 2
    x, slope = [history], [production(history) - 0.1 * history]
    now = production(history)
    for node in range(length):
        past = node - NODES
        if past < 0:
            middle = following = production(history)
        else:
            between = 0.5 * (x[past] + x[past + 1]) + step * 0.125 * (
                slope[past] - slope[past + 1]
            )
            middle, following = production(between), production(x[past + 1])
        value = x[node]
        first = now - 0.1 * value
        second = middle - 0.1 * (value + 0.5 * step * first)
        third = middle - 0.1 * (value + 0.5 * step * second)
        fourth = following - 0.1 * (value + step * third)
        x.append(value + step / 6.0 * (first + 2.0 * second + 2.0 * third + fourth))
        slope.append(following - 0.1 * x[-1])
        now = following
    return np.array(
        [hermite(x, slope, step, place * time / PER_TIME) for place in range(count)]
    )


def hermite(x: list[float], slope: list[float], step: float, time: float) -> float:
    """The value at ``time`` of the cubic through two nodes with their slopes."""
    node = int(time / step)
    part = time / step - node
    square = part * part
    cube = square * part
    return (
        (2 * cube - 3 * square + 1) * x[node]
        + (cube - 2 * square + part) * step * slope[node]
        + (3 * square - 2 * cube) * x[node + 1]
        + (cube - square) * step * slope[node + 1]
    )


def series() -> xr.DataArray:
    """All fourteen series, (presentation, neuroid, time_bin); times are those of the equation, not milliseconds."""
    names = [f"tau{delay}" for delay in DELAYS]
    kinds = [NOT_CHAOTIC.get(delay, "chaotic") for delay in DELAYS]
    values = np.stack([mackey_glass(delay) for delay in DELAYS])[:, None]
    ends = np.arange(values.shape[2] + 1) / PER_TIME
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", names),
            "delay": ("presentation", list(DELAYS)),
            "lyapunov_time": (
                "presentation",
                [float(time) for time, _ in DELAYS.values()],
            ),
            "dynamics": ("presentation", kinds),
            "neuroid_id": ("neuroid", ["x"]),
            "time_bin_start": ("time_bin", ends[:-1]),
            "time_bin_end": ("time_bin", ends[1:]),
        },
        attrs={"units": "dimensionless", "time_unit": "Lyapunov time"},
    )


def spiking_digits() -> xr.DataArray:
    """The 1,797 digits of scikit-learn as spikes: brightness is the firing probability of a pixel in each of ten bins."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    brightness = (pixels / 16.0).astype(np.float32)
    rows = np.arange(len(labels))
    parts = train_test_split(rows, test_size=450, random_state=0, stratify=labels)
    spikes = []
    for seed, part in enumerate(parts, start=1):
        chance = np.random.default_rng(seed).random((len(part), STEPS, pixels.shape[1]))
        spikes.append((chance < brightness[part][:, None, :]).transpose(0, 2, 1))
    order = np.concatenate(parts)
    return _examples(
        np.concatenate(spikes).astype(np.uint8),
        ids=[f"digit_{row:04d}" for row in order],
        labels=labels[order].astype(str),
        split=np.repeat(["train", "test"], [len(part) for part in parts]),
        neuroids=[f"pixel_{row}_{column}" for row in range(8) for column in range(8)],
        width=1.0,
    )


def heartbeats() -> xr.DataArray:
    """1,200 simulated beats of 1 s at 128 Hz: four in five are normal; the others are early and wide, without a P wave."""
    rng = np.random.default_rng(20_260_105)
    wide = rng.permutation(BEATS) < BEATS // 5
    time = np.arange(128) / 128
    beats = np.empty((BEATS, 1, 128))
    for number in range(BEATS):
        middle = 0.45 + rng.normal(0, 0.03) - 0.06 * wide[number]
        size = 1 + 0.15 * rng.normal()
        waves = [
            (0.0, 0.24, 0.05),
            (-0.05, 0.02, 0.01),
            (1.0, 0.0, 0.03),
            (-0.35, -0.09, 0.03),
            (-0.25, -0.3, 0.07),
        ]
        if not wide[number]:
            waves = [
                (0.15, 0.17, 0.025),
                (-0.1, 0.025, 0.01),
                (1.0, 0.0, 0.018),
                (-0.2, -0.03, 0.012),
                (0.3, -0.26, 0.04),
            ]
        spread = 1 + 0.1 * rng.normal()
        beat = sum(
            high
            * size
            * np.exp(-0.5 * ((time - middle + before * spread) / (width * spread)) ** 2)
            for high, before, width in waves
        )
        drift = 0.15 * rng.normal() * np.sin(2 * np.pi * (0.3 * time + rng.random()))
        beats[number, 0] = beat + drift + 0.5 * rng.normal(size=128)
    return _examples(
        beats.astype(np.float32),
        ids=[f"beat_{number:04d}" for number in range(BEATS)],
        labels=np.where(wide, "ventricular", "normal"),
        split=np.where(np.arange(BEATS) < 800, "train", "test"),
        neuroids=["lead"],
        width=1000 / 128,
    )


def _examples(
    values: NDArray[np.generic],
    *,
    ids: list[str],
    labels: NDArray[np.str_],
    split: NDArray[np.str_],
    neuroids: list[str],
    width: float,
) -> xr.DataArray:
    ends = np.arange(values.shape[2] + 1) * width
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            "label": ("presentation", labels),
            "split": ("presentation", split),
            "neuroid_id": ("neuroid", neuroids),
            "time_bin_start": ("time_bin", ends[:-1]),
            "time_bin_end": ("time_bin", ends[1:]),
        },
    )


def build(folder: Path) -> list[Path]:
    """Write the three data sets under ``folder``."""
    datasets = {
        "MackeyGlass": series(),
        "Digits.spikes": spiking_digits(),
        "Heartbeats.simulated": heartbeats(),
    }
    written = []
    for name, dataset in datasets.items():
        path = folder / name / "responses.nc"
        path.parent.mkdir(parents=True, exist_ok=True)
        assembly.write(assembly.check(dataset, name=name), path)
        written.append(path)
    return written


if __name__ == "__main__":
    build_and_print(build)
