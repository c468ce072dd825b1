"""Build small simulated tasks for inference deterministically: ``python -m tools.generate.small_tasks [FOLDER]``.

Detection of boxes in scenes, and decoding of the velocity of a hand from neurons. Prints size and SHA-256 of each file in
the form of the pins in ``specs/``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data import assembly
from tools.generate.pins import build_and_print

SCENES: Final = 120
SIDE: Final = 24
SHAPES: Final = {"tall": (4, 9), "wide": (9, 4)}
REACHES: Final = 80
NEURONS: Final = 32
BIN: Final = 50.0


def scenes() -> xr.DataArray:
    """120 scenes of 24 × 24 pixels with one to three separate bright rectangles, tall or wide, in noise."""
    rng = np.random.default_rng(20_261_121)
    images, boxes = np.empty((SCENES, SIDE, SIDE)), []
    for number in range(SCENES):
        image = rng.normal(40, 12, (SIDE, SIDE))
        free, boxes_of_scene = np.ones((SIDE, SIDE), dtype=bool), []
        for _ in range(int(rng.integers(1, 4))):
            label = str(rng.choice(list(SHAPES)))
            width, height = SHAPES[label]
            places = [
                (x, y)
                for x in range(SIDE - width + 1)
                for y in range(SIDE - height + 1)
                if free[y : y + height, x : x + width].all()
            ]
            if not places:
                continue
            x, y = places[int(rng.integers(len(places)))]
            image[y : y + height, x : x + width] += rng.uniform(90, 160)
            free[max(0, y - 2) : y + height + 2, max(0, x - 2) : x + width + 2] = False
            boxes_of_scene.append([label, x, y, x + width, y + height])
        images[number] = image
        boxes.append(json.dumps(boxes_of_scene))
    pixels = np.clip(np.rint(images), 0, 255).astype(np.uint8)
    return _examples(
        pixels.reshape(SCENES, SIDE * SIDE, 1),
        ids=[f"scene_{number:03d}" for number in range(SCENES)],
        coords={
            "boxes": boxes,
            "split": np.where(np.arange(SCENES) < 60, "train", "test"),
        },
        neuroids=[
            f"pixel_{row}_{column}" for row in range(SIDE) for column in range(SIDE)
        ],
    )


def reaching() -> xr.DataArray:
    """80 reaches to eight targets in bins of 50 ms: Poisson counts of 32 neurons whose rates are linear in velocity.

    In the order of time, the first half of the reaches is for training, a quarter for validation, and the last quarter
    for the test.
    """
    rng = np.random.default_rng(20_261_122)
    angles = np.arange(8) * np.pi / 4
    velocity, reach = [], []
    for number in range(REACHES):
        target = int(rng.integers(8))
        bins = int(rng.integers(12, 17))
        profile = np.sin(np.pi * (np.arange(bins) + 0.5) / bins) ** 2 * rng.uniform(
            20, 30
        )
        heading = angles[target] + rng.normal(0, 0.08)
        velocity.append(
            profile[:, None] * [np.cos(heading), np.sin(heading)]
            + rng.normal(0, 0.5, (bins, 2))
        )
        reach.append(np.full(bins, number))
    speeds, numbers = np.concatenate(velocity), np.concatenate(reach)
    preferred = rng.uniform(0, 2 * np.pi, NEURONS)
    gains = rng.uniform(0.05, 0.12, NEURONS)
    tuning = np.stack([np.cos(preferred), np.sin(preferred)]) * gains
    counts = rng.poisson(np.clip(3.0 + speeds @ tuning, 0.05, None))
    parts = np.select(
        [numbers < REACHES // 2, numbers < REACHES * 3 // 4],
        ["train", "validate"],
        "test",
    )
    return _examples(
        counts.astype(np.uint8)[:, :, None],
        ids=[f"bin_{number:04d}" for number in range(len(counts))],
        coords={
            "velocity_x": speeds[:, 0],
            "velocity_y": speeds[:, 1],
            "reach": numbers,
            "split": parts,
        },
        neuroids=[f"neuron_{number:02d}" for number in range(NEURONS)],
    )


def _examples(
    values: NDArray[np.uint8],
    *,
    ids: list[str],
    coords: dict[str, Any],
    neuroids: list[str],
) -> xr.DataArray:
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            **{name: ("presentation", value) for name, value in coords.items()},
            "neuroid_id": ("neuroid", neuroids),
            "time_bin_start": ("time_bin", [0.0]),
            "time_bin_end": ("time_bin", [BIN]),
        },
    )


def build(folder: Path) -> list[Path]:
    """Write both data sets under ``folder``."""
    written = []
    for name, dataset in {
        "Scenes.simulated": scenes(),
        "Reaching.simulated": reaching(),
    }.items():
        path = folder / name / "responses.nc"
        path.parent.mkdir(parents=True, exist_ok=True)
        assembly.write(assembly.check(dataset, name=name), path)
        written.append(path)
    return written


if __name__ == "__main__":
    build_and_print(build)
