"""Similarity of representations as rsatoolbox computes it; run where that is installed to write rsatoolbox.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["COMPARISONS", "DISTANCES", "FILE", "patterns"]

Floats = npt.NDArray[np.float64]

FILE = Path(__file__).with_suffix("").with_name("rsatoolbox.json")
# This project's names and rsatoolbox's.
DISTANCES = {"correlation": "correlation", "squared_euclidean": "euclidean"}
COMPARISONS = {
    "pearson": "corr",
    "spearman": "spearman",
    "cosine": "cosine",
    "kendall_tau_a": "tau-a",
    "rho_a": "rho-a",
}
STIMULI, SUBJECTS, CHANNELS = 24, 8, 30
DRAWS = 500


def patterns() -> tuple[Floats, Floats]:
    """A model's patterns (stimulus, feature), and those of subjects (subject, stimulus, channel) who share its space."""
    rng = np.random.default_rng(2023)
    shared = rng.standard_normal((STIMULI, 6))
    own = rng.standard_normal((SUBJECTS, 6, CHANNELS)) * np.exp(
        0.5 * rng.standard_normal((SUBJECTS, 6, 1))
    )
    noise = rng.standard_normal((SUBJECTS, STIMULI, CHANNELS))
    return shared + 0.5 * rng.standard_normal(shared.shape), np.einsum(
        "sf,nfc->nsc", shared, own
    ) + noise


def _computed() -> dict[str, Any]:
    from rsatoolbox.data import Dataset
    from rsatoolbox.inference import eval_dual_bootstrap
    from rsatoolbox.model import ModelFixed
    from rsatoolbox.rdm import calc_rdm, compare, concat

    model, subjects = patterns()
    found: dict[str, Any] = {}
    for distance, theirs in DISTANCES.items():
        # Its euclidean distance is squared and divided by the number of channels.
        rdms = [calc_rdm(Dataset(each), method=theirs) for each in (model, *subjects)]
        rdms[0].rdm_descriptors["index"] = [0]
        people = concat(rdms[1:])
        values = {
            ours: compare(rdms[0], people, method)[0].tolist()
            for ours, method in COMPARISONS.items()
        }
        fixed = ModelFixed("model", rdms[0])
        errors = {}
        for ours in ("pearson", "cosine"):
            np.random.seed(0)  # noqa: NPY002 - the generator that it draws from
            result = eval_dual_bootstrap(
                fixed, people, method=COMPARISONS[ours], N=DRAWS
            )
            errors[ours] = float(np.sqrt(np.ravel(result.model_var)[0]))
        found[distance] = {
            "first_rdm": people.dissimilarities[0].tolist(),
            "values": values,
            "errors": errors,
        }
    return found


if __name__ == "__main__":
    FILE.write_text(json.dumps(_computed(), indent=1) + "\n", encoding="utf-8")
