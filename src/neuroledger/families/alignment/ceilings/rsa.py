"""RSA ceiling: agreement of each subject's dissimilarities with those of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr
from scipy.spatial.distance import squareform

from neuroledger.data.arrays import Floats, Strings
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.gram import gram
from neuroledger.families.alignment.similarity.influence import (
    beyond_each,
    pair_influence,
    without_each_stimulus,
)
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
from neuroledger.stats.resampling import Cells
from neuroledger.stats.spread import from_left_out
from neuroledger.stats.workspace import Workspace

__all__ = ["rsa_ceiling"]

# Number of pairs of 4 stimuli.
FEWEST_PAIRS = 6
# Half the step of the numerical derivative by the reliability.
STEP = 1e-3


@ceiling("rsa", version=3)
def rsa_ceiling(
    assembly: xr.DataArray,
    *,
    workspace: Workspace,
    bound: Literal["expected", "upper", "lower"] = "upper",
    pool: Literal["mean", "matched"] = "mean",
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
) -> xr.DataArray:
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
    xr.DataArray
        The chosen value for each ``subject``; the means of the other bounds are in the notes and in ``attrs``.
        ``attrs["cells"]`` returns the influence of stimuli on each value: the ceiling changes with the stimuli as the
        agreement of a model does, and in the same direction, so that their ratio changes less.

    Raises
    ------
    CeilingError
        There is only one subject, there are fewer than 4 stimuli, or (``expected``) the subjects' RDMs do not agree.
    """
    if "subject" not in assembly.coords:
        raise CeilingError("an RSA ceiling compares subjects; the assembly has no coordinate 'subject'")
    if "repetition" in assembly.coords:
        assembly = average_repetitions(assembly)
    names, rdms = _rdms(assembly, distance, workspace)
    if len(names) < 2:
        raise CeilingError("one subject cannot be compared with others: an RSA ceiling needs at least two")
    if rdms[0].size < FEWEST_PAIRS:
        raise CeilingError("an RSA ceiling needs at least 4 stimuli")
    rdms = moderate(rdms)
    if not np.isfinite(rdms).all():
        raise CeilingError(
            "a subject's RDM has missing entries: some stimuli evoke no pattern there; drop them"
        )
    pooled = np.stack([_matched(rdm, comparison) for rdm in rdms]) if pool == "matched" else rdms
    total = pooled.sum(axis=0)
    upper = [compare(rdm, total / len(names), comparison) for rdm in rdms]
    lower = [
        compare(rdm, (total - own) / (len(names) - 1), comparison)
        for rdm, own in zip(rdms, pooled, strict=True)
    ]
    bounds = {"upper": float(np.mean(upper)), "lower": float(np.mean(lower))}
    notes = [
        f"the {name} bound is {value:.4f} ({len(names)} subjects)"
        for name, value in bounds.items()
        if name != bound
    ]
    chosen = {"upper": upper, "lower": lower}
    ids = _stimulus_ids(assembly)

    def cells() -> Cells:
        if bound == "expected":
            left, pairs = _expected_without_each(rdms, comparison), None
        else:
            others = [
                total / len(names) if bound == "upper" else (total - own) / (len(names) - 1) for own in pooled
            ]
            sides = [(squareform(rdm), squareform(other)) for rdm, other in zip(rdms, others, strict=True)]
            left = np.stack([without_each_stimulus(a, b, comparison) for a, b in sides], axis=1)
            pairs = np.mean([beyond_each(ids, pair_influence(a, b, comparison)) for a, b in sides], axis=0)
        return Cells(ids, [(np.arange(len(ids)), from_left_out(left))], pairs=pairs)

    return xr.DataArray(
        _expected(rdms, comparison) if bound == "expected" else chosen[bound],
        dims="subject",
        coords={"subject": list(names)},
        attrs={
            "notes": notes,
            "upper_bound": bounds["upper"],
            "lower_bound": bounds["lower"],
            "cells": cells,
        },
    )


def _stimulus_ids(assembly: xr.DataArray) -> Strings:
    dim = "stimulus" if "stimulus" in assembly.dims else "presentation"
    ids = assembly.coords.get("stimulus_id")
    return np.asarray(np.arange(assembly.sizes[dim]) if ids is None else ids.values).astype(str)


def _expected(rdms: Floats, comparison: Comparison) -> list[float]:
    """Expected agreement of the shared geometry with the RDM of each subject."""
    products = rdms @ rdms.T if comparison == "cosine" else np.cov(rdms, ddof=0)
    reliability = _reliability(products)
    if comparison in RANKED:
        return [rank_agreement(rdm, float(r), comparison) for rdm, r in zip(rdms, reliability, strict=True)]
    return [float(r) for r in np.sqrt(reliability)]


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


def _expected_without_each(rdms: Floats, comparison: Comparison) -> Floats:
    """Values of :func:`_expected` with each stimulus left out in turn, (stimulus, subject).

    For rank correlations, to first order in the reliability: the noiseless dissimilarities keep the distribution of all
    stimuli.
    """
    matrices = np.stack([squareform(rdm) for rdm in rdms])
    n, count = matrices.shape[1], len(rdms)
    left = np.empty((n, count))
    for stimulus in range(n):
        rows = matrices[:, stimulus]
        products = rdms @ rdms.T - rows @ rows.T
        if comparison != "cosine":
            pairs = (n - 1) * (n - 2) // 2
            sums = rdms.sum(axis=1) - rows.sum(axis=1)
            products = products / pairs - np.outer(sums, sums) / pairs**2
        left[stimulus] = _reliability(products)
    if comparison not in RANKED:
        return np.asarray(np.sqrt(left))
    products = rdms @ rdms.T if comparison == "cosine" else np.cov(rdms, ddof=0)
    for subject, (rdm, r) in enumerate(zip(rdms, _reliability(products), strict=True)):
        low, high = max(float(r) - STEP, STEP), min(float(r) + STEP, 1.0)
        slope = (rank_agreement(rdm, high, comparison) - rank_agreement(rdm, low, comparison)) / (high - low)
        left[:, subject] = rank_agreement(rdm, float(r), comparison) + slope * (left[:, subject] - r)
    return left


def _rdms(assembly: xr.DataArray, distance: Distance, workspace: Workspace) -> tuple[Sequence[str], Floats]:
    subjects = np.unique(assembly["subject"].values.astype(str))
    labels = assembly["subject"].values.astype(str)
    if "stimulus_b" in assembly.dims:
        if "subject" not in assembly.dims:
            return list(subjects), np.empty((len(subjects), 3))
        stacked = assembly.transpose("subject", "stimulus", "stimulus_b").values.astype(np.float64)
        return list(labels), np.stack([condensed(matrix) for matrix in stacked])
    if set(assembly.dims) != {"presentation", "neuroid"} or assembly["subject"].dims != ("neuroid",):
        raise CeilingError("an RSA ceiling needs (presentation, neuroid) with `subject` on the neuroids")
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
