"""The data sets of simulated vision (recordings, behaviour and tuning), with their known best models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from neuroledger.data import assembly
from tools.generate import (
    behaviour,
    gratings,
    images,
    network,
    neurons,
    observers,
    solution_times,
    tuning,
    write,
)


def build(folder: Path) -> list[Path]:
    """Write all files under ``folder``, and return those to be pinned: all except truth.json, which is in git."""
    source = images.digits()
    table, files = images.stimulus_set(source)
    signals = {
        "V4": tuning.standardised(tuning.v4(source)),
        "IT": tuning.standardised(tuning.it(source)),
    }
    twenty, six = _first(table, 20), _first(table, 6)
    recordings = {
        "Digits.simulated": (neurons.static(signals, table), table),
        "Digits.simulated.ragged": (
            neurons.ragged(signals["IT"][twenty], table.iloc[twenty]),
            table.iloc[twenty],
        ),
        "Digits.simulated.time": (
            neurons.timed(signals["IT"][twenty, :20], table.iloc[twenty]),
            table.iloc[twenty],
        ),
        "Digits.simulated.subjects": (
            neurons.subjects(signals["IT"][six], table.iloc[six]),
            table.iloc[six],
        ),
    }
    written: list[Path] = []
    for name, (recording, rows) in recordings.items():
        home = folder / name
        home.mkdir(parents=True, exist_ok=True)
        write.table(home / "stimuli.csv", rows)
        write.archive(
            home / "stimuli.zip", {file: files[file] for file in rows["filename"]}
        )
        assembly.write(
            assembly.check(recording.assembly, name=name), home / "responses.nc"
        )
        write.truth(home / "truth.json", recording.truth)
        written += [home / "stimuli.csv", home / "stimuli.zip", home / "responses.nc"]
    generator = folder / "models" / "generator" / "responses.nc"
    generator.parent.mkdir(parents=True, exist_ok=True)
    rates = neurons.noise_free(signals, table)
    assembly.write(rates, generator)
    written += _behaviour(
        folder, rates.isel(neuroid=rates["region"].values == "IT").values, table, files
    )
    written += _naming(folder, source, table)
    written += _gratings(folder)
    written += _solving(folder, source, table, files)
    weights = folder / "models" / "small_cnn.digits" / "model.safetensors"
    network.train(source, weights)
    return [*written, generator, weights]


def _behaviour(
    folder: Path,
    features: NDArray[np.float64],
    table: pd.DataFrame,
    files: Mapping[str, bytes],
) -> list[Path]:
    """Simulated subjects who discriminate digits."""
    trials = behaviour.two_choices(features, table)
    home = folder / "Digits.simulated.choices"
    home.mkdir(parents=True, exist_ok=True)
    write.table(home / "stimuli.csv", table)
    write.archive(home / "stimuli.zip", files)
    write.table(home / "trials.csv", trials.table)
    write.truth(home / "truth.json", trials.truth)
    return [home / name for name in ("stimuli.csv", "stimuli.zip", "trials.csv")]


def _naming(folder: Path, source: images.Digits, table: pd.DataFrame) -> list[Path]:
    """Simulated observers who name digits in noise, and their shared decision as a model."""
    naming = observers.naming(source, table)
    home = folder / "Digits.simulated.naming"
    home.mkdir(parents=True, exist_ok=True)
    write.table(home / "stimuli.csv", naming.table)
    write.archive(home / "stimuli.zip", naming.files)
    write.table(home / "trials.csv", naming.trials)
    write.truth(home / "truth.json", naming.truth)
    decision = folder / "models" / "generator.naming" / "decision.nc"
    decision.parent.mkdir(parents=True, exist_ok=True)
    assembly.write(assembly.check(naming.shared), decision)
    return [
        *(home / name for name in ("stimuli.csv", "stimuli.zip", "trials.csv")),
        decision,
    ]


def _solving(
    folder: Path, source: images.Digits, table: pd.DataFrame, files: Mapping[str, bytes]
) -> list[Path]:
    """Simulated solution times of digits, populations that solve them at these and at other times, and a network."""
    solving = solution_times.solving(source, table)
    home = folder / "Digits.simulated.solving"
    home.mkdir(parents=True, exist_ok=True)
    write.table(home / "stimuli.csv", table)
    write.archive(home / "stimuli.zip", files)
    assembly.write(assembly.check(solving.times), home / "times.nc")
    write.truth(home / "truth.json", solving.truth)
    written = [home / name for name in ("stimuli.csv", "stimuli.zip", "times.nc")]
    for name, population in (
        ("generator", solving.population),
        ("scrambled", solving.scrambled),
    ):
        written.append(folder / "models" / f"{name}.solving" / "responses.nc")
        written[-1].parent.mkdir(parents=True, exist_ok=True)
        assembly.write(assembly.check(population), written[-1])
    weights = folder / "models" / "recurrent.digits" / "model.safetensors"
    solution_times.train(source, weights)
    return [*written, weights]


def _gratings(folder: Path) -> list[Path]:
    """The tuning of simulated V1 neurons, gratings, and another population as a model."""
    stimuli = gratings.gratings()
    home = folder / "Gratings.simulated"
    home.mkdir(parents=True, exist_ok=True)
    write.table(home / "stimuli.csv", stimuli.table)
    write.table(home / "blank.csv", stimuli.blank)
    write.archive(home / "stimuli.zip", stimuli.files)
    assembly.write(gratings.neurons(stimuli.table), home / "properties.nc")
    write.truth(home / "truth.json", gratings.truth())
    responses = folder / "models" / "tuned_population" / "responses.nc"
    responses.parent.mkdir(parents=True, exist_ok=True)
    assembly.write(assembly.check(gratings.model(stimuli.table)), responses)
    names = ("stimuli.csv", "blank.csv", "stimuli.zip", "properties.nc")
    return [*(home / name for name in names), responses]


def _first(table: pd.DataFrame, count: int) -> list[int]:
    """Row numbers of the first ``count`` stimuli of each object, in table order."""
    return sorted(
        row
        for rows in table.reset_index().groupby("label").indices.values()
        for row in rows[:count]
    )
