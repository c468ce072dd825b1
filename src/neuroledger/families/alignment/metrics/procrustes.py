"""Procrustes: the distance of two representations after the best rotation, and its similarity, which is that of Bures."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.families.alignment.similarity.measures import (
    Permutations,
    centred,
    measured,
    sides,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.workspace import Workspace

__all__ = ["procrustes", "shape_similarity"]

Form = Literal["similarity", "angular", "euclidean"]
# Below this share of its power, what is left of a representation without its mean is rounding.
CONSTANT = 1e-26


def _fits(parameters: Any) -> None:
    if parameters.adjusted and parameters.form != "similarity":
        raise ValueError(
            f"`adjusted` subtracts the chance level of a similarity; remove it, or use `form: similarity`, not "
            f"{parameters.form}"
        )


@metric("procrustes", version=1, together=_fits)
def procrustes(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    rng: np.random.Generator,
    form: Form = "angular",
    adjusted: bool = False,
    permutations: Permutations = 20,
) -> Samples:
    """Shape distance or similarity of ``(presentation, neuroid)`` assemblies up to rotation, scale and shift.

    Of centred ``X`` and ``Y`` (stimulus × unit), with the nuclear norm (the sum of singular values),

        c = ‖XᵀY‖_* / (‖X‖·‖Y‖)

    is the largest cosine that a rotation of one side reaches [williams2021]. ``form: similarity`` returns ``c``, which
    equals the normalised Bures similarity ``tr(√(√K·L·√K)) / √(tr K · tr L)`` of the Gram matrices over stimuli
    [harvey2024]; ``angular`` returns the distance ``arccos c`` (0 to π/2), and ``euclidean`` the distance ``√(2 −
    2c)`` of both sides scaled to unit norm. Unlike CKA, ``c`` is large for unrelated representations of many
    dimensions: ``adjusted`` subtracts its mean over ``permutations`` of the stimuli, see
    :class:`~neuroledger.families.alignment.similarity.measures.Chance`.

    Returns
    -------
    Samples
        One number.

    Raises
    ------
    MetricError
        Fewer than 4 stimuli, several rows for one stimulus, or a side that does not vary.
    """
    both = sides(source, target, workspace=workspace, rotated=True)

    def measure(X: Floats, Y: Floats) -> float:
        return _formed(shape_similarity(X, Y), form)

    found = measured(
        both, measure, rng=rng, adjusted=adjusted, permutations=permutations
    )
    limits = {"similarity": None, "angular": (0.0, math.pi / 2)}
    return Samples(
        found.values,
        found.variation,
        limits=limits.get(form, (0.0, math.sqrt(2))),
        notes=found.notes,
    )


def shape_similarity(X: Floats, Y: Floats) -> float:
    """Return the cosine ``c`` of :func:`procrustes` of two arrays (stimulus × unit); NaN if one does not vary."""
    A = centred(X)
    B = centred(Y)
    power = float((A * A).sum()), float((B * B).sum())
    level = float((X * X).sum()), float((Y * Y).sum())
    if any(own <= CONSTANT * whole for own, whole in zip(power, level, strict=True)):
        return math.nan
    nuclear = float(np.linalg.svd(A.T @ B, compute_uv=False).sum())
    return min(nuclear / math.sqrt(power[0] * power[1]), 1.0)


def _formed(cosine: float, form: Form) -> float:
    if form == "similarity":
        return cosine
    if form == "angular":
        return math.acos(cosine)
    return math.sqrt(2 - 2 * cosine)
