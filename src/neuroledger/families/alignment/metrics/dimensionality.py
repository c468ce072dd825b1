"""Share of a representation's dimensions that encode each factor of the stimuli."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Indices, floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.similarity.scale import moderate
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["factor_dimensionality"]


RESIDUAL = "residual"


@metric(
    "factor_dimensionality", version=1, input="behaviour", example=examples.of_pairs
)
def factor_dimensionality(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    factor: str | None = None,
    by: str = "factor",
) -> Samples:
    """Estimated share of dimensions that encode ``factor``: one number.

    For pairs of stimuli that share a factor ``f``, ``s_f`` is the covariance of their responses (about the mean of both
    sides) summed over neuroids and divided by the total variance. A softmax over all ``s_f`` and 1 for the residual
    divides the ``N`` neuroids: ``⌊N · softmax_f⌋`` dimensions for each factor, the remainder for the residual.

    Parameters
    ----------
    source, target
        Responses ``(presentation, neuroid)`` of the same model to the first and second stimulus of each pair, paired by
        position. The coordinate ``by`` names the factor that the pair shares.
    factor
        The factor whose share is returned, or ``residual``; optional if there is only one factor.

    Raises
    ------
    MetricError
        The rows of source and target do not form pairs, the factor is missing, or the responses do not vary.

    Notes
    -----
    Islam et al. (2021).
    """
    a, b = (
        floats(side.transpose("presentation", "neuroid").values)
        for side in (source, target)
    )
    labels = coordinate(source, by)
    if labels is None:
        raise MetricError(
            f"responses have no coordinate {by!r} that names the factor each pair shares"
        )
    other = coordinate(target, by)
    if a.shape != b.shape or (
        other is not None and (other.astype(str) != labels.astype(str)).any()
    ):
        raise MetricError(
            f"pairs do not match: {a.shape} and {b.shape} responses must share {by!r} row by row"
        )
    factors = encode(labels)
    names = list(map(str, factors.labels.tolist()))
    if factor is None and len(names) == 1:
        factor = names[0]
    if factor not in (*names, RESIDUAL):
        raise MetricError(
            f"no pair shares the factor {factor!r}; give one of {', '.join(names)} or {RESIDUAL!r}"
        )
    if RESIDUAL in names:
        raise MetricError("a factor may not be called 'residual': that is the rest")
    a, b = moderate(np.stack([a, b]))
    asked = [*names, RESIDUAL].index(str(factor))
    value = _share(a, b, factors.codes, len(names))[asked]
    if not np.isfinite(value):
        raise MetricError(
            "the responses do not vary (or are missing), so no dimension encodes anything"
        )

    def without(keep: Keep) -> xr.DataArray:
        rows = keep["stimulus"]
        return xr.DataArray(
            _share(a[rows], b[rows], factors.codes[rows], len(names))[asked]
        )

    # The two stimuli of a pair stay together; neuroids are those of the model.
    pairs = np.arange(len(a)).astype(str)
    return Samples(xr.DataArray(value), Variation({"stimulus": pairs}, without))


def _share(a: Floats, b: Floats, codes: Indices, count: int) -> Floats:
    """Return the share of dimensions of each factor and of the residual, (factor + 1,); NaN if responses do not vary.

    ``a`` and ``b`` are the responses to both stimuli of each pair, (pair × neuroid); ``codes`` the factor of each pair.
    """
    variance = float(np.concatenate([a, b]).var(axis=0).sum())
    if not variance > 0 or len(np.unique(codes)) < count:
        return np.full(count + 1, np.nan)
    scores = np.ones(count + 1)
    for f in range(count):
        rows = codes == f
        mean = 0.5 * (a[rows].mean(axis=0) + b[rows].mean(axis=0))
        scores[f] = (
            float(((a[rows] - mean) * (b[rows] - mean)).mean(axis=0).sum()) / variance
        )
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    n = a.shape[1]
    counts = [int(share * n) for share in shares[:-1]]
    counts.append(n - sum(counts))
    return np.asarray(np.array(counts) / n)
