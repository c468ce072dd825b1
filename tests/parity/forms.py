"""Runs in Brain-Score's own environment: variants of the packages with other sizes and number formats."""

import zlib

import numpy as np
from brainscore_core.supported_data_standards.brainio.assemblies import walk_coords

GROUPS = ("region", "roi", "subject", "animal", "subject_id")
REPETITION = ("repetition", "repetition_id")
# Some benchmarks need a number of repetitions; none is removed from recordings with at least this many.
ASKED = 20


def shaped(assembly, forms):
    """The assembly in these forms: fewer or missing repetitions, one neuroid, whole numbers, single precision."""
    dims = list(assembly.dims)
    if dims.count("presentation") == 1 and "stimulus_id" in held_along(
        assembly, "presentation"
    ):
        assembly = along(assembly, "presentation", repeated(assembly, forms))
    if "neuroid" in dims and dims.count("presentation") == 1 and "one" in forms:
        assembly = along(assembly, "neuroid", last_of_each(assembly))
    if (
        assembly.values.dtype.kind == "f"
        and "counts" in forms
        and not np.isnan(assembly.values).any()
    ):
        assembly = filled(assembly, np.round(assembly.values * 20).astype(np.int64))
    if assembly.values.dtype.kind == "f" and "single" in forms:
        assembly = filled(assembly, assembly.values.astype(np.float32))
    return assembly


def repeated(assembly, forms):
    """A mask of the presentations to keep."""
    held = held_along(assembly, "presentation")
    keep = np.ones(assembly.sizes["presentation"], dtype=bool)
    number = next((np.asarray(held[name]) for name in REPETITION if name in held), None)
    if number is None or number.max() >= ASKED:
        return keep
    if "two" in forms:
        keep &= number < 2
    if (
        "ragged" in forms
    ):  # keep two of every stimulus, and others by a hash of the stimulus id
        drawn = [
            zlib.crc32(f"{id}/{n}".encode()) % 3
            for id, n in zip(held["stimulus_id"], number, strict=True)
        ]
        keep &= (number < 2) | (np.array(drawn) > 0)
    return keep


def last_of_each(assembly):
    """A mask of the last neuroid of each group."""
    held = held_along(assembly, "neuroid")
    named = [np.asarray(held[name]).astype(str) for name in GROUPS if name in held]
    keys = ["/".join(one) for one in zip(*named, strict=True)] or [
        "all"
    ] * assembly.sizes["neuroid"]
    return np.isin(
        np.arange(len(keys)), list({key: at for at, key in enumerate(keys)}.values())
    )


def held_along(assembly, dim):
    """Coordinates of a dimension by name, including the levels of its index."""
    return {
        name: held
        for name, dims, held in walk_coords(assembly)
        if tuple(dims) == (dim,)
    }


def along(assembly, dim, keep):
    """The assembly with a selection along a dimension, whose coordinates remain levels of their index."""
    if keep.all():
        return assembly
    coords = {
        name: (dims, np.asarray(held)[keep] if dims == (dim,) else held)
        for name, dims, held in walk_coords(assembly)
    }
    values = np.compress(keep, assembly.values, axis=assembly.dims.index(dim))
    found = type(assembly)(values, dims=assembly.dims, coords=coords)
    found.attrs.update(assembly.attrs)
    return found


def filled(assembly, values):
    """The assembly with other values."""
    coords = {name: (dims, held) for name, dims, held in walk_coords(assembly)}
    found = type(assembly)(values, dims=assembly.dims, coords=coords)
    found.attrs.update(assembly.attrs)
    return found
