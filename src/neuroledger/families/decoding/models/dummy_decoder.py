"""The dummy: what can be answered without looking at a signal, the zero of every normalised decoding score."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroledger.families.decoding.protocols.decoder import Objective

__all__ = ["Dummy"]

Array = npt.NDArray[Any]
SEED = 33


class Dummy:
    """Answers the same whatever it is shown; several labels are drawn independently with their prevalence."""

    takes_rows = True

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def fit(self, x: Array, y: Array) -> Dummy:
        """Remember what is commonest in `y`, or its mean."""
        y = np.asarray(y)
        if self.objective == "classification":
            names, counts = np.unique(y, return_counts=True)
            self.classes_ = names
            self.constant_: Any = names[np.argmax(counts)]
        elif self.objective == "sequence":
            letters = Counter("".join(str(text) for text in y))
            commonest = max(sorted(letters), key=lambda letter: letters[letter]) if letters else ""
            self.constant_ = commonest * int(np.median([len(str(text)) for text in y]))
        else:
            self.constant_ = y.mean(axis=0)
        return self

    def predict(self, x: Array) -> Array:
        """The same answer for every window."""
        if self.objective == "multilabel":
            return self.predict_proba(x).astype(int)
        return np.array([self.constant_] * len(x))

    def predict_proba(self, x: Array) -> Array:
        """Zeros and ones, (window, class) or (window, label)."""
        if self.objective == "multilabel":
            rng = np.random.default_rng(SEED)
            return np.asarray(rng.random((len(x), len(self.constant_))) < self.constant_, dtype=float)
        return np.asarray(self.predict(x)[:, None] == self.classes_, dtype=float)
