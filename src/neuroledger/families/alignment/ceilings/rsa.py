"""RSA ceiling: how well one subject's dissimilarities agree with those of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.gram import gram
from neuroledger.families.alignment.similarity.rdm import (
    ALIKE,
    Comparison,
    Distance,
    compare,
    condensed,
    dissimilarities,
    mean_ranks,
)
from neuroledger.spec.registry import ceiling
from neuroledger.stats.workspace import Workspace

__all__ = ["rsa_ceiling"]

Floats = NDArray[np.float64]


@ceiling("rsa", version=2)
def rsa_ceiling(
    assembly: xr.DataArray,
    *,
    workspace: Workspace,
    bound: Literal["upper", "lower"] = "upper",
    pool: Literal["mean", "matched"] = "mean",
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
) -> xr.DataArray:
    """Agreement of each subject's RDM with the mean RDM of all subjects (``upper``) or of the others (``lower``).

    The true ceiling lies between the two [nili2014]; the upper bound falls and the lower rises as subjects are
    added. ``pool: mean`` averages the RDMs as they are; ``matched`` first brings them to what the comparison sees
    (ranks for rank correlations, unit variance for ``pearson``, unit length for ``cosine``), which makes the upper
    bound the greatest agreement that any RDM can reach.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids, averaged over repetitions first where it has any,
        or RDMs ``(subject, stimulus, stimulus_b)``.

    Returns
    -------
    xr.DataArray
        The chosen bound for each ``subject``; the mean of the other bound in the notes and in ``attrs``.

    Raises
    ------
    CeilingError
        There is one subject, or fewer than 3 stimuli.
    """
    if "subject" not in assembly.coords:
        raise CeilingError("an RSA ceiling compares subjects; the assembly has no coordinate 'subject'")
    if "repetition" in assembly.coords:
        assembly = average_repetitions(assembly)
    names, rdms = _rdms(assembly, distance, workspace)
    if len(names) < 2:
        raise CeilingError("one subject cannot be compared with others: an RSA ceiling needs at least two")
    if rdms[0].size < 3:
        raise CeilingError("an RSA ceiling needs at least 3 stimuli")
    if not np.isfinite(rdms).all():
        raise CeilingError(
            "a subject's RDM has missing entries: some stimuli evoke no pattern there; drop them"
        )
    pooled = np.stack([_matched(one, comparison) for one in rdms]) if pool == "matched" else rdms
    total = pooled.sum(axis=0)
    upper = [compare(one, total / len(names), comparison) for one in rdms]
    lower = [
        compare(one, (total - own) / (len(names) - 1), comparison)
        for one, own in zip(rdms, pooled, strict=True)
    ]
    bounds = {"upper": float(np.mean(upper)), "lower": float(np.mean(lower))}
    other = "lower" if bound == "upper" else "upper"
    notes = [f"the {other} bound is {bounds[other]:.4f} ({len(names)} subjects)"]
    return xr.DataArray(
        upper if bound == "upper" else lower,
        dims="subject",
        coords={"subject": list(names)},
        attrs={"notes": notes, "upper_bound": bounds["upper"], "lower_bound": bounds["lower"]},
    )


def _rdms(assembly: xr.DataArray, distance: Distance, workspace: Workspace) -> tuple[Sequence[str], Floats]:
    subjects = np.unique(assembly["subject"].values.astype(str))
    own = assembly["subject"].values.astype(str)
    if "stimulus_b" in assembly.dims:
        if "subject" not in assembly.dims:
            return list(subjects), np.empty((len(subjects), 3))
        stacked = assembly.transpose("subject", "stimulus", "stimulus_b").values.astype(np.float64)
        return list(own), np.stack([condensed(one) for one in stacked])
    if set(assembly.dims) != {"presentation", "neuroid"} or assembly["subject"].dims != ("neuroid",):
        raise CeilingError("an RSA ceiling needs (presentation, neuroid) with `subject` on the neuroids")
    X = assembly.transpose("presentation", "neuroid").values
    X = np.where(np.isfinite(X).all(axis=0), X, np.nan)
    found = []
    for subject in subjects:
        part = X[:, (own == subject) & np.isfinite(X[0])]
        if part.shape[1] < 2:
            raise CeilingError(
                f"subject {str(subject)!r} has {part.shape[1]} complete neuroids; a pattern needs two"
            )
        found.append(dissimilarities(gram(part, workspace).on_host(workspace), distance))
    return list(subjects), np.stack(found)


def _matched(values: Floats, comparison: Comparison) -> Floats:
    if comparison in ("spearman", "rho_a", "kendall_tau_a"):
        return mean_ranks(values, ALIKE)
    if comparison == "pearson":
        return np.asarray((values - values.mean()) / values.std())
    return np.asarray(values / np.sqrt(values @ values))
