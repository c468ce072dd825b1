"""RSA ceiling: agreement of each subject's dissimilarities with those of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.gram import gram
from neuroledger.families.alignment.similarity.noise import rank_agreement
from neuroledger.families.alignment.similarity.rdm import (
    ALIKE,
    RANKED,
    Comparison,
    Distance,
    compare,
    condensed,
    dissimilarities,
    mean_ranks,
)
from neuroledger.families.alignment.similarity.scale import moderate
from neuroledger.spec.registry import ceiling
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.workspace import Workspace

__all__ = ["rsa_ceiling"]

# Number of pairs of 4 stimuli.
FEWEST_PAIRS = 6
Bound = Literal["expected", "upper", "lower"]
Pool = Literal["mean", "matched"]


@ceiling("rsa", version=3)
def rsa_ceiling(
    assembly: xr.DataArray,
    *,
    workspace: Workspace,
    bound: Bound = "upper",
    pool: Pool = "mean",
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
) -> Samples:
    """Agreement of each subject's RDM with the geometry that all subjects share.

    ``upper`` is the agreement with the mean RDM of all subjects, ``lower`` the agreement with the mean of the others. The
    ceiling is between these bounds [nili2014], which converge as subjects are added. ``expected`` estimates it for any
    number of subjects: the covariance between subjects is the variance of the shared geometry, and its share in the
    variance of a subject's RDM is the reliability. For the bounds, ``pool: mean`` averages the unchanged RDMs;
    ``matched`` first transforms them as the comparison does (ranks for rank correlations, unit variance for ``pearson``,
    unit length for ``cosine``), so that no RDM can agree better than the upper bound.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids, whose repetitions are averaged first, or RDMs
        ``(subject, stimulus, stimulus_b)``.

    Returns
    -------
    Samples
        The chosen value for each ``subject``; the means of the other bounds are in the notes and in ``attrs``. The ceiling
        changes with the stimuli as the agreement of a model does, and in the same direction, so that their ratio changes
        less.

    Raises
    ------
    CeilingError
        There is only one subject, there are fewer than 4 stimuli, or (``expected``) the subjects' RDMs do not agree.
    """
    if "subject" not in assembly.coords:
        raise CeilingError(
            "an RSA ceiling compares subjects; the assembly has no coordinate 'subject'"
        )
    if "repetition" in assembly.coords:
        assembly = average_repetitions(assembly)
    names, rdms = _rdms(assembly, distance, workspace)
    if len(names) < 2:
        raise CeilingError(
            "one subject cannot be compared with others: an RSA ceiling needs at least two"
        )
    if rdms[0].size < FEWEST_PAIRS:
        raise CeilingError("an RSA ceiling needs at least 4 stimuli")
    rdms = moderate(rdms)
    if not np.isfinite(rdms).all():
        raise CeilingError(
            "a subject's RDM has missing entries: some stimuli evoke no pattern there; drop them"
        )
    values = {
        name: _bounds(rdms, name, pool, comparison) for name in ("upper", "lower")
    }
    bounds = {name: float(np.mean(each)) for name, each in values.items()}
    notes = [
        f"the {name} bound is {value:.4f} ({len(names)} subjects)"
        for name, value in bounds.items()
        if name != bound
    ]
    if bound == "expected":
        chosen = _expected(rdms, comparison)
    else:
        chosen = values[bound]
    attrs = {f"{name}_bound": value for name, value in bounds.items()}
    samples = xr.DataArray(
        chosen, dims="subject", coords={"subject": list(names)}, attrs=attrs
    )
    count = assembly.sizes[
        "stimulus" if "stimulus" in assembly.dims else "presentation"
    ]
    first, second = np.triu_indices(count, 1)

    def without(keep: Keep) -> xr.DataArray:
        kept = keep["stimulus"]
        fewer = rdms[:, kept[first] & kept[second]]
        return samples.copy(data=_chosen(fewer, bound, pool, comparison))

    return Samples(
        samples,
        Variation({"stimulus": stimulus_names(assembly, count)}, without),
        notes=notes,
    )


def _chosen(
    rdms: Floats, bound: Bound, pool: Pool, comparison: Comparison
) -> list[float]:
    """Value of each subject; NaN where it is undefined without some stimuli."""
    if bound != "expected":
        return _bounds(rdms, bound, pool, comparison)
    try:
        return _expected(rdms, comparison)
    except CeilingError:
        return [float("nan")] * len(rdms)


def _bounds(
    rdms: Floats, bound: str, pool: Pool, comparison: Comparison
) -> list[float]:
    """Agreement of each subject's RDM with the mean RDM of all subjects, or of the others."""
    pooled = (
        np.stack([_matched(rdm, comparison) for rdm in rdms])
        if pool == "matched"
        else rdms
    )
    total = pooled.sum(axis=0)
    count = len(rdms)
    if bound == "upper":
        return [compare(rdm, total / count, comparison) for rdm in rdms]
    return [
        compare(rdm, (total - own) / (count - 1), comparison)
        for rdm, own in zip(rdms, pooled, strict=True)
    ]


def _expected(rdms: Floats, comparison: Comparison) -> list[float]:
    """Expected agreement of the shared geometry with the RDM of each subject."""
    if comparison == "cosine":
        products = rdms @ rdms.T
    else:
        products = np.cov(rdms, ddof=0)
    reliability = _reliability(products)
    if comparison in RANKED:
        return [
            rank_agreement(rdm, float(r), comparison)
            for rdm, r in zip(rdms, reliability, strict=True)
        ]
    return list(map(float, np.sqrt(reliability)))


def _reliability(products: Floats) -> Floats:
    """Share of the shared geometry in the variance of each subject's RDM, (subject,), from their covariances.

    Raises
    ------
    CeilingError
        The RDMs do not agree.
    """
    count = len(products)
    variances = products.diagonal()
    shared = float((products.sum() - variances.sum()) / (count * (count - 1)))
    if shared <= 0:
        raise CeilingError(
            "the subjects' RDMs do not agree with each other: there is no geometry to compare with"
        )
    return np.asarray(np.minimum(shared / variances, 1.0))


def _rdms(
    assembly: xr.DataArray, distance: Distance, workspace: Workspace
) -> tuple[Sequence[str], Floats]:
    subjects = np.unique(assembly["subject"].values.astype(str))
    labels = assembly["subject"].values.astype(str)
    if "stimulus_b" in assembly.dims:
        if "subject" not in assembly.dims:
            return list(subjects), np.empty((len(subjects), 3))
        stacked = assembly.transpose("subject", "stimulus", "stimulus_b").values.astype(
            np.float64
        )
        return list(labels), np.stack(list(map(condensed, stacked)))
    if set(assembly.dims) != {"presentation", "neuroid"} or assembly[
        "subject"
    ].dims != ("neuroid",):
        raise CeilingError(
            "an RSA ceiling needs (presentation, neuroid) with `subject` on the neuroids"
        )
    X = moderate(assembly.transpose("presentation", "neuroid").values)
    X = np.where(np.isfinite(X).all(axis=0), X, np.nan)
    rdms = []
    for subject in subjects:
        part = X[:, (labels == subject) & np.isfinite(X[0])]
        if part.shape[1] < 2:
            raise CeilingError(
                f"subject {str(subject)!r} has {part.shape[1]} complete neuroids; a pattern needs two"
            )
        rdms.append(dissimilarities(gram(part, workspace).on_host(workspace), distance))
    return list(subjects), np.stack(rdms)


def _matched(values: Floats, comparison: Comparison) -> Floats:
    if comparison in RANKED:
        return mean_ranks(values, ALIKE)
    if comparison == "pearson":
        return np.asarray((values - values.mean()) / values.std())
    return np.asarray(values / np.sqrt(values @ values))
