"""Build the sample that is part of the package: ``python -m tools.generate.sample [FOLDER]``.

It has the first ten digits of each kind and half of the neurons of ``Digits.simulated``, with four of eight repetitions.
FOLDER is by default that of the package; the pins that are printed belong in its ``specs/datasets/sample.yaml``.
"""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pandas as pd

from neuroledger.data import assembly
from tools.generate import write

HERE = Path(__file__).resolve().parents[2]
SOURCE = HERE / "data" / "Digits.simulated"
TARGET = HERE / "src" / "neuroledger" / "sample" / "data" / "sample"
DIGITS, NEURONS, REPETITIONS = 10, 15, 4


def build(folder: Path) -> list[Path]:
    """Write the files of the sample to a folder, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    stimuli = pd.read_csv(SOURCE / "stimuli.csv")
    chosen = stimuli.groupby("object_name", sort=False).head(DIGITS)
    write.table(folder / "stimuli.csv", chosen)
    with zipfile.ZipFile(SOURCE / "stimuli.zip") as images:
        members = {name: images.read(name) for name in chosen["filename"]}
    write.archive(folder / "stimuli.zip", members)
    recorded = assembly.read(SOURCE / "responses.nc")
    is_shown = recorded["stimulus_id"].isin(chosen["stimulus_id"])
    part = recorded.isel(presentation=is_shown & (recorded["repetition"] < REPETITIONS))
    number = part["neuroid_id"].str.split("_", sep="_").isel(_=1).astype(int)
    part = part.isel(neuroid=number < NEURONS)
    assembly.write(assembly.check(part, name="sample"), folder / "responses.nc")
    return sorted(folder.iterdir())


if __name__ == "__main__":
    for path in build(TARGET):
        content = path.read_bytes()
        sha256 = hashlib.sha256(content).hexdigest()
        print(f"{path.name}: {{size: {len(content)}, sha256: {sha256}}}")
