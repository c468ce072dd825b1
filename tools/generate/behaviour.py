"""Simulated subjects in a two-choice task on digits, with known probabilities and a known best model."""

from __future__ import annotations

from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from neuroledger.models import readout

SEED: Final = 20_260_110
PEOPLE: Final = 10
REPETITIONS: Final = 2
LAPSES: Final = 0.02
SHARPNESS: Final = 3.0


class Trials(NamedTuple):
    """A table with one row per trial, and the facts of the simulation."""

    table: pd.DataFrame
    truth: dict[str, Any]


def two_choices(features: NDArray[np.float64], stimuli: pd.DataFrame) -> Trials:
    """Trials of every test digit against every other object, twice for each of ten subjects, in random order.

    A logistic readout of the noise-free IT signals, fitted on the train digits, yields the probability ``p`` of each
    object; a subject chooses the shown object with probability ``p(shown)³ / (p(shown)³ + p(other)³)``, and guesses in
    2 % of the trials.
    """
    rng = np.random.default_rng(SEED)
    names, train = (
        stimuli["object_name"].to_numpy(dtype=str),
        (stimuli["split"] == "train").to_numpy(),
    )
    ids = stimuli["stimulus_id"].to_numpy(dtype=str)
    fitted = readout.probabilities(
        features[train], names[train].tolist(), features[~train], ids[~train].tolist()
    )
    objects, truth = fitted["choice"].values.astype(str), names[~train]
    shown = np.array([objects.tolist().index(name) for name in truth])
    rows = [
        (image, other, person)
        for image, other, person, _ in product(
            range(len(shown)), range(len(objects)), range(PEOPLE), range(REPETITIONS)
        )
        if other != shown[image]
    ]
    image, other, person = np.array(rows).T[:, rng.permutation(len(rows))]
    p = fitted.values
    target_strength, other_strength = (
        p[image, shown[image]] ** SHARPNESS,
        p[image, other] ** SHARPNESS,
    )
    p_correct = target_strength / (target_strength + other_strength)
    p_correct = LAPSES / 2 + (1 - LAPSES) * p_correct
    correct = rng.random(len(image)) < p_correct
    order = np.lexsort((np.arange(len(image)), person))
    table = pd.DataFrame(
        {
            "stimulus_id": ids[~train][image],
            "subject": [f"person_{number:02d}" for number in person],
            "sample_obj": truth[image],
            "dist_obj": objects[other],
            "truth": truth[image],
            "choice": np.where(correct, truth[image], objects[other]),
        }
    ).iloc[order]
    return Trials(
        table.reset_index(drop=True),
        {
            "about": "Simulated people: their choices follow from known probabilities. Nobody was asked.",
            "best_model": "generator, by its layer IT",
            "formula": "p(correct) = lapses / 2 + (1 - lapses) p(shown)^3 / (p(shown)^3 + p(other)^3)",
            "lapses": LAPSES,
            "expected_accuracy": round(float(p_correct.mean()), 8),
        },
    )
