"""Functional alignment: rotations of the neuroids of each subject into a space that all subjects share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Booleans, Floats, floats
from neuroledger.errors import AssemblyError
from neuroledger.spec.base import Frozen

__all__ = ["Align", "aligned", "hyperalignment", "shared_response"]

# Passes over the subjects after which the shared response changes no more in practice.
ITERATIONS = 20


class Align(Frozen):
    """Replace the neuroids of each subject by ``dimensions`` that all subjects share, fitted to some presentations.

    ``procrustes`` rotates subjects to their mean (hyperalignment [haxby2011]); ``shared_response`` fits orthonormal
    dimensions [chen2015srm]. The rotations are fitted to the presentations whose coordinate ``fitted_by`` has one of
    ``fitted_values``, and applied to all: score the other presentations only. ``average`` takes the mean over subjects.
    """

    step: Literal["align"]
    method: Literal["procrustes", "shared_response"] = "procrustes"
    dimensions: Annotated[int, Field(ge=1)]
    fitted_by: str
    fitted_values: Annotated[tuple[str | int | float, ...], Field(min_length=1)]
    average: bool = False


def hyperalignment(responses: Sequence[Floats], dimensions: int) -> list[Floats]:
    """Return a rotation (neuroid × dimension) of each subject, by Procrustes to a common template [haxby2011].

    The template begins with the principal components of the first subject and is averaged with each next one after its
    rotation; in a second pass, each subject is rotated to the mean of the others, and then to the mean of all.

    Parameters
    ----------
    responses
        Of each subject, (presentation × neuroid), of the same presentations; centred here.
    dimensions
        Number of dimensions of the common space, at most the number of neuroids of each subject.
    """
    centred = [each - each.mean(axis=0) for each in responses]
    template = centred[0] @ _principal(centred[0], dimensions)
    for count, each in enumerate(centred[1:], 1):
        rotated = each @ _rotation(each, template)
        template = (count * template + rotated) / (count + 1)
    first_pass = [each @ _rotation(each, template) for each in centred]
    total = np.sum(first_pass, axis=0)
    second_pass = []
    for each, own in zip(centred, first_pass, strict=True):
        others = (total - own) / (len(centred) - 1)
        second_pass.append(each @ _rotation(each, others))
    mean = np.mean(second_pass, axis=0)
    return [_rotation(each, mean) for each in centred]


def shared_response(responses: Sequence[Floats], dimensions: int) -> list[Floats]:
    """Return orthonormal dimensions (neuroid × dimension) of each subject that fit a shared response best [chen2015srm].

    Minimises ``Σ_s |X_s − S·W_sᵀ|²`` over the shared response ``S`` (presentation × dimension) and ``W_sᵀW_s = I``,
    alternating between both from the principal components of all subjects together. Parameters are those of
    :func:`hyperalignment`.
    """
    centred = [each - each.mean(axis=0) for each in responses]
    together = np.concatenate(centred, axis=1)
    shared = np.linalg.svd(together, full_matrices=False)[0][:, :dimensions]
    for _ in range(ITERATIONS):
        weights = [_rotation(each, shared) for each in centred]
        projected = [each @ own for each, own in zip(centred, weights, strict=True)]
        shared = np.mean(projected, axis=0)
    return [_rotation(each, shared) for each in centred]


def aligned(assembly: xr.DataArray, step: Align) -> xr.DataArray:
    """Return the assembly in the space that subjects share, (presentation, neuroid).

    Neuroids are the dimensions of each subject, or with ``average`` those of the mean over subjects.

    Raises
    ------
    AssemblyError
        There are fewer than two subjects, responses are missing, too few presentations are fitted, or a subject has
        fewer neuroids than dimensions.
    """
    if set(assembly.dims) != {"presentation", "neuroid"}:
        raise AssemblyError(
            f"alignment needs (presentation, neuroid), not {tuple(assembly.dims)}: take a time bin, or the mean over bins"
        )
    ordered = assembly.transpose("presentation", "neuroid")
    parts = _by_subject(ordered, step.dimensions)
    fitted = _fitted(ordered, step)
    fit = hyperalignment if step.method == "procrustes" else shared_response
    rotations = fit([part[fitted] for part in parts.values()], step.dimensions)
    found = []
    for part, rotation in zip(parts.values(), rotations, strict=True):
        level = part[fitted].mean(axis=0)
        found.append((part - level) @ rotation)
    rows = {
        str(name): coord
        for name, coord in ordered.coords.items()
        if coord.dims == ("presentation",)
    }
    numbers = [f"dimension{number}" for number in range(step.dimensions)]
    if step.average:
        ids = {"neuroid_id": ("neuroid", numbers)}
        return _labelled(np.mean(found, axis=0), rows | ids)
    owners = np.repeat(list(parts), step.dimensions).tolist()
    own_names = numbers * len(parts)
    names = [f"{a}.{b}" for a, b in zip(owners, own_names, strict=True)]
    ids = {"neuroid_id": ("neuroid", names), "subject": ("neuroid", owners)}
    return _labelled(np.concatenate(found, axis=1), rows | ids)


def _by_subject(assembly: xr.DataArray, dimensions: int) -> dict[str, Floats]:
    """Return the responses of each subject by name, (presentation × neuroid)."""
    subjects = _coordinate(assembly, "subject", "neuroid")
    names = list(dict.fromkeys(subjects.tolist()))
    if len(names) < 2:
        raise AssemblyError("subjects are aligned with each other; there is only one")
    values = floats(assembly.values)
    if not np.isfinite(values).all():
        raise AssemblyError(
            "responses are missing; alignment needs every subject's response to every presentation"
        )
    parts = {name: values[:, subjects == name] for name in names}
    smallest = min(part.shape[1] for part in parts.values())
    if smallest < dimensions:
        raise AssemblyError(
            f"a subject has {smallest} neuroids, fewer than {dimensions} dimensions: use fewer"
        )
    return parts


def _fitted(assembly: xr.DataArray, step: Align) -> Booleans:
    """Return which presentations rotations are fitted to."""
    wanted = list(map(str, step.fitted_values))
    labels = _coordinate(assembly, step.fitted_by, "presentation")
    fitted: Booleans = np.asarray(np.isin(labels, wanted))
    if fitted.sum() <= step.dimensions:
        raise AssemblyError(
            f"{int(fitted.sum())} presentations have {step.fitted_by!r} in {', '.join(wanted)}; {step.dimensions} "
            "dimensions need "
            "more to be fitted"
        )
    return fitted


def _labelled(values: Floats, coords: dict[str, object]) -> xr.DataArray:
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def _coordinate(
    assembly: xr.DataArray, name: str, dim: str
) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    if name not in assembly.coords or assembly[name].dims != (dim,):
        raise AssemblyError(f"there is no coordinate {name!r} on `{dim}`")
    return np.asarray(assembly[name].values).astype(str)


def _rotation(values: Floats, template: Floats) -> Floats:
    """Return the orthonormal (neuroid × dimension) matrix that takes values closest to the template."""
    left, _, right = np.linalg.svd(values.T @ template, full_matrices=False)
    return np.asarray(left @ right)


def _principal(values: Floats, dimensions: int) -> Floats:
    """Return the first principal axes, (neuroid × dimension)."""
    axes = np.linalg.svd(values, full_matrices=True)[2]
    return np.asarray(axes[:dimensions].T)
