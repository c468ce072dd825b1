"""The maximum-correlation decoder of population studies: z-scored responses compared with class mean patterns."""

from __future__ import annotations

import numpy as np

from neuroledger.data.arrays import Array, Floats
from neuroledger.families.decoding.protocols.decoder import TAKES, Decoder, decoded
from neuroledger.spec.registry import builder

__all__ = ["MaxCorrelation", "max_correlation"]


class MaxCorrelation:
    """A classifier by Pearson correlation of a pattern with the mean pattern of each class.

    Features are standardised by mean and standard deviation of the training part; constant features become zero.
    """

    def fit(self, x: Array, y: Array) -> MaxCorrelation:
        """Compute means, standard deviations, and one template for each class."""
        flat = x.reshape(len(x), -1).astype(np.float64)
        self.mean_, deviation = (
            flat.mean(axis=0),
            flat.std(axis=0, ddof=1 if len(flat) > 1 else 0),
        )
        self.scale_ = np.where(deviation > 0, deviation, np.inf)
        self.classes_ = np.unique(y)
        scaled = (flat - self.mean_) / self.scale_
        self.templates_: Floats = _centred(
            np.stack([scaled[y == name].mean(axis=0) for name in self.classes_])
        )
        return self

    def decision_function(self, x: Array) -> Floats:
        """Correlations ``(window, class)``."""
        scaled = (x.reshape(len(x), -1).astype(np.float64) - self.mean_) / self.scale_
        scores: Floats = _centred(scaled) @ self.templates_.T
        if len(self.classes_) == 2:
            return np.asarray(scores[:, 1] - scores[:, 0])
        return scores

    def predict(self, x: Array) -> Array:
        """The class with the highest correlation."""
        scores = self.decision_function(x)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[best])


def _centred(patterns: Floats) -> Floats:
    centred = patterns - patterns.mean(axis=1, keepdims=True)
    norm = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(
        np.divide(centred, norm, out=np.zeros_like(centred), where=norm > 0)
    )


@builder("max_correlation", version=1, takes=TAKES, gives=decoded("classification"))
def max_correlation(
    *, id: str, shuffles_labels: bool = False, plants: float = 0.0
) -> Decoder:
    """A decoder that assigns each pattern to the class whose mean it correlates with most (Zhang et al., 2011).

    With ``shuffles_labels``, the training labels are permuted: a negative control at chance. With ``plants``, a signal of
    this many standard deviations encodes the label: a positive control.
    """
    return Decoder(
        id=id,
        make=lambda signature: MaxCorrelation(),
        shuffles_labels=shuffles_labels,
        inject_signal=plants,
        objectives=("classification",),
    )
