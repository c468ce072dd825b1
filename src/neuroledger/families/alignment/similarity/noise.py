"""Effect of noise on the agreement between dissimilarities."""

from __future__ import annotations

import math

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.families.alignment.similarity.rdm import Comparison

__all__ = ["NOISELESS", "rank_agreement"]

# Above this reliability, dissimilarities are treated as noiseless.
NOISELESS = 0.999
# Number of points of the density of noiseless dissimilarities, and of steps of its deconvolution.
POINTS, STEPS = 240, 200


def rank_agreement(
    d: Floats, reliability: float, comparison: Comparison, slope: float = 0.0
) -> float:
    """Expected rank agreement of noiseless dissimilarities with measured ones.

    The density of the noiseless values is deconvolved from that of the measured values [richardson1972, lucy1974],
    assuming Gaussian noise with the unreliable share of the variance.

    Parameters
    ----------
    d
        Measured dissimilarities, condensed.
    reliability
        Share of the variance of ``d`` that is not noise, between 0 and 1.
    comparison
        ``spearman``, ``rho_a`` (the same without ties) or ``kendall_tau_a``.
    slope
        Relative change of the noise's variance with the value.
    """
    if reliability >= NOISELESS:
        return math.sqrt(reliability)
    mean = float(d.mean())
    variance = float(d.var())
    average = math.sqrt((1 - reliability) * variance)

    def noise(values: Floats) -> Floats:
        return np.asarray(
            average * np.sqrt(np.maximum(0.05, 1 + slope * (values - mean)))
        )

    edges = np.linspace(d.min(), d.max(), POINTS + 1)
    at = (edges[1:] + edges[:-1]) / 2
    measured = np.histogram(d, edges)[0] / len(d)
    kernel = np.exp(-0.5 * ((at[:, None] - at) / noise(at)) ** 2)
    kernel /= kernel.sum(axis=0)
    density = (
        np.interp(
            at, mean + math.sqrt(reliability) * (at - mean), measured, left=0, right=0
        )
        + 1e-12
    )
    for _ in range(STEPS):
        density *= kernel.T @ (measured / np.maximum(kernel @ density, 1e-300))
        density /= density.sum()
    level = float(density @ at)
    spread = math.sqrt(float(density @ (at - level) ** 2))
    true = level + (at - level) * (math.sqrt(reliability * variance) / spread)
    width = noise(true)[:, None]
    beyond = 4 * average
    observed = np.linspace(true[0] - beyond, true[-1] + beyond, 2 * POINTS)
    joint = np.exp(-0.5 * ((observed - true[:, None]) / width) ** 2)
    joint *= (density / joint.sum(axis=1))[:, None]
    marginal = joint.sum(axis=0)
    if comparison == "kendall_tau_a":
        below = np.cumsum(np.cumsum(joint, axis=0), axis=1)
        # Mass strictly below in both, plus half of the mass in the same row or column.
        inner = np.pad(below, ((1, 0), (1, 0)))
        upper = inner[1:, 1:] + inner[:-1, 1:]
        mid = (upper + inner[1:, :-1] + inner[:-1, :-1]) / 4
        return 4 * float((joint * mid).sum()) - 1
    a = np.cumsum(density) - density / 2 - 0.5
    b = np.cumsum(marginal) - marginal / 2 - 0.5
    return float(a @ joint @ b) / math.sqrt(
        float(density @ a**2) * float(marginal @ b**2)
    )
