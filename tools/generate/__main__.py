"""Build all reference data deterministically: ``python -m tools.generate [FOLDER]``.

Writes every simulated data set and every trained network to FOLDER (default ``data``), and prints size and SHA-256
of each file in the form of the pins in ``specs/``. After a change, ``dvc add`` the files, ``dvc push``, and increase the
version of the data set.
"""

from __future__ import annotations

from pathlib import Path

from tools.generate import (
    independent_sets,
    motor_imagery,
    population,
    small_tasks,
    temporal,
    temporal_models,
    vision,
)
from tools.generate.pins import build_and_print


def build(folder: Path) -> list[Path]:
    """Write all files under ``folder``, and return those to be pinned."""
    written = [
        *vision.build(folder),
        *motor_imagery.build(folder),
        *temporal.build(folder),
    ]
    written += (
        small_tasks.build(folder)
        + independent_sets.build(folder)
        + population.build(folder)
    )
    for name in temporal_models.MODELS:
        path = folder / "models" / name / "model.safetensors"
        temporal_models.train(name, folder, path)
        written.append(path)
    return written


if __name__ == "__main__":
    build_and_print(build)
