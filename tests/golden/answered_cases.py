"""Trials with answers that were not given, made from seeds; Brain-Score 2.4.2 gave the numbers in ``answered.json`` once."""

from __future__ import annotations

from typing import Any

import numpy as np

Side = tuple[Any, dict[str, Any]]
LABELS = np.array(["dog", "cat", "chair", "boat"])


def _trials(
    seed: int,
    *,
    people: int = 5,
    stimuli: int = 60,
    silent: float = 0.2,
    of_model: float = 0.3,
    conditions: int = 3,
) -> tuple[Side, Side]:
    """Answers of a model and of people to the same stimuli; ``silent`` of a person's are '' or 'NaN'."""
    rng = np.random.default_rng(seed)
    ids = np.array([f"image{i:03d}" for i in rng.permutation(stimuli)])
    truth = rng.integers(0, 4, stimuli)
    condition = np.arange(stimuli) % conditions
    size = np.where(rng.random(stimuli) < 0.5, "small", "large")
    ease = rng.random(stimuli)

    def answers(share: float) -> Any:
        right = rng.random(stimuli) < 0.35 + 0.5 * ease
        given = LABELS[
            np.where(right, truth, (truth + rng.integers(1, 4, stimuli)) % 4)
        ].astype("U5")
        given[rng.random(stimuli) < share] = "NaN"
        given[(rng.random(stimuli) < 0.1) & (given == "NaN")] = ""
        return given

    def coords(order: Any, **more: Any) -> dict[str, Any]:
        columns = {
            "stimulus_id": ids,
            "truth": LABELS[truth],
            "condition": condition,
            "size": size,
        }
        return {name: values[order] for name, values in columns.items()} | more

    mine = rng.permutation(stimuli)
    everyone = np.tile(np.arange(stimuli), people)
    names = np.repeat([f"s{i}" for i in range(people)], stimuli)
    target = np.concatenate([answers(silent) for _ in range(people)])
    return (answers(of_model)[mine], coords(mine)), (
        target,
        coords(everyone, subject=names),
    )


def cases() -> dict[str, tuple[tuple[Side, Side], tuple[str, ...]]]:
    """Name → (model and people, the variables whose combinations are compared one by one)."""
    return {
        "some silent": (_trials(1), ()),
        "by condition": (_trials(2), ("condition",)),
        "by two variables": (_trials(3, stimuli=90), ("condition", "size")),
        "all answer": (_trials(4, silent=0.0, of_model=0.0), ()),
        "mostly silent model": (_trials(5, of_model=0.8, stimuli=120), ("condition",)),
        "three people, one condition": (_trials(6, people=3, conditions=1), ()),
    }
