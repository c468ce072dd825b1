"""Simulated observers who name digits in noise, with a known psychometric function and error consistency."""

from __future__ import annotations

import hashlib
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from tools.generate.images import NAMES, Digits, on_canvas, png
from tools.generate.tuning import object_match

Floats = NDArray[np.float64]

SEED: Final = 20_260_105
CONTRASTS: Final = (0.1, 0.2, 0.4, 0.8)
GUESS, LAPSE, THRESHOLD, SLOPE = 0.1, 0.02, 0.3, 2.0
COPIED: Final = 0.6
OBSERVERS: Final = 6
NOISE: Final = 0.08
ABOUT: Final = (
    "Simulated observers: accuracy and agreement were chosen. No person took part."
)


class Naming(NamedTuple):
    """Stimuli with their files, trials of the observers, the facts of the simulation, and the shared decisions."""

    table: pd.DataFrame
    files: dict[str, bytes]
    trials: pd.DataFrame
    truth: dict[str, Any]
    shared: xr.DataArray


def naming(source: Digits, table: pd.DataFrame) -> Naming:
    """Ten-alternative naming of 200 digits at four contrasts, and 300 other digits for fitting a model's readout.

    The shared decision is correct for a share p(c) = γ + (1 − γ − λ)(1 − exp(−(c / α)^β)) of the digits at
    contrast c: for each name, those most similar to exemplars of their own class. Otherwise it is the most similar
    other class. An observer copies the shared decision with probability q = 0.6; else the observer is correct with
    probability p(c), or names a random other digit. Two observers then have the expected error
    consistency (kappa) q² = 0.36; the shared decision has q = 0.6 with each of them, more than any observer.
    """
    rng = np.random.default_rng(SEED)
    labels = source.labels[source.shown]
    fitting = np.sort(
        np.concatenate([np.flatnonzero(labels == label)[:30] for label in range(10)])
    )
    tested = np.setdiff1d(np.arange(len(labels)), fitting)
    match = object_match(source)[tested]
    own = match[np.arange(len(tested)), labels[tested]]
    others = match.copy()
    others[np.arange(len(tested)), labels[tested]] = -1
    order = _easiest_first(own - others.max(axis=1), labels[tested])
    rows, trials, shared = [_clean(table.iloc[fitting])], [], [labels[fitting]]
    files = {
        name: png(canvas)
        for name, canvas in zip(
            rows[0]["filename"], _canvas(source, fitting), strict=True
        )
    }
    for contrast in CONTRASTS:
        right = np.zeros(len(tested), dtype=bool)
        right[order[: round(psychometric(contrast) * len(tested))]] = True
        decision = np.where(right, labels[tested], others.argmax(axis=1))
        screens = _noisy(_canvas(source, tested), contrast, rng)
        part = _shown(table.iloc[tested], contrast)
        files |= {
            name: png(screen)
            for name, screen in zip(part["filename"], screens, strict=True)
        }
        rows.append(part)
        shared.append(decision)
        accuracy = float(right.mean())
        trials += [
            (part, subject, _answers(decision, labels[tested], accuracy, rng))
            for subject in range(OBSERVERS)
        ]
    everything = pd.concat(rows, ignore_index=True)
    everything["sha256"] = [
        hashlib.sha256(files[name]).hexdigest() for name in everything["filename"]
    ]
    return Naming(
        everything,
        files,
        _trials(trials),
        _truth(len(tested)),
        _decisions(everything, np.concatenate(shared)),
    )


def _easiest_first(margin: Floats, labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """The easiest digit of every name, then the next one of every name, so that all names are equally difficult."""
    rank = np.array(
        [
            ((labels == labels[i]) & (margin > margin[i])).sum()
            for i in range(len(labels))
        ]
    )
    return np.lexsort((-margin, rank))


def psychometric(contrast: float) -> float:
    """Probability of a correct answer at a contrast (Weibull, with guesses and lapses)."""
    return float(
        GUESS + (1 - GUESS - LAPSE) * (1 - np.exp(-((contrast / THRESHOLD) ** SLOPE)))
    )


def _answers(
    shared: NDArray[Any],
    labels: NDArray[Any],
    accuracy: float,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    wrong = (labels + rng.integers(1, 10, size=len(labels))) % 10
    alone = np.where(rng.random(len(labels)) < accuracy, labels, wrong)
    return np.asarray(
        np.where(rng.random(len(labels)) < COPIED, shared, alone), dtype=np.intp
    )


def _canvas(source: Digits, chosen: NDArray[np.intp]) -> Floats:
    return on_canvas(source.luminance[source.shown[chosen]], source.places[chosen])


def _noisy(canvas: Floats, contrast: float, rng: np.random.Generator) -> Floats:
    """Digits of a contrast on the dark canvas, with Gaussian noise of standard deviation 0.08, clipped to the range."""
    return np.asarray(
        np.clip(contrast * canvas + NOISE * rng.standard_normal(canvas.shape), 0, 1)
    )


def _clean(table: pd.DataFrame) -> pd.DataFrame:
    columns = ["stimulus_id", "filename", "object_name"]
    return table[columns].assign(split="train", contrast=1.0, condition="fitting")


def _shown(table: pd.DataFrame, contrast: float) -> pd.DataFrame:
    ids = [f"{id}_c{round(100 * contrast):02d}" for id in table["stimulus_id"]]
    return pd.DataFrame(
        {
            "stimulus_id": ids,
            "filename": [f"{id}.png" for id in ids],
            "object_name": table["object_name"].to_numpy(),
            "split": "test",
            "contrast": contrast,
            "condition": f"c{round(100 * contrast):02d}",
        }
    )


def _trials(trials: list[tuple[pd.DataFrame, int, NDArray[np.intp]]]) -> pd.DataFrame:
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "stimulus_id": part["stimulus_id"].to_numpy(),
                    "subject": f"O{subject + 1}",
                    "condition": part["condition"].to_numpy(),
                    "truth": part["object_name"].to_numpy(),
                    "choice": [NAMES[number] for number in answer],
                }
            )
            for part, subject, answer in trials
        ],
        ignore_index=True,
    )


def _decisions(table: pd.DataFrame, decision: NDArray[Any]) -> xr.DataArray:
    """The shared decision for every stimulus as a one-hot vector of ten units; the true class for fitting stimuli."""
    return xr.DataArray(
        np.eye(10, dtype=np.float32)[decision],
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": (
                "presentation",
                table["stimulus_id"].to_numpy().astype(str),
            ),
            "neuroid_id": ("neuroid", np.asarray(NAMES)),
            "layer": ("neuroid", np.full(10, "decision")),
        },
        attrs={"about": ABOUT},
    )


def _truth(stimuli: int) -> dict[str, Any]:
    right = {
        f"c{round(100 * c):02d}": round(psychometric(c) * stimuli) / stimuli
        for c in CONTRASTS
    }
    return {
        "about": ABOUT,
        "simulated": True,
        "stimuli": stimuli,
        "observers": OBSERVERS,
        "formula": "kappa between observers = q^2; kappa of the shared decision with an observer = q",
        "error_consistency": round(COPIED**2, 8),
        "error_consistency_of_best_model": COPIED,
        "best_model": "generator.naming",
        "accuracy": right,
        "psychometric": {
            "guess": GUESS,
            "lapse": LAPSE,
            "threshold": THRESHOLD,
            "slope": SLOPE,
        },
    }
