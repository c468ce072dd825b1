"""Runs in Brain-Score's own environment: the same packages in other sizes and number formats."""

import zlib

import numpy as np
from brainscore_core.supported_data_standards.brainio.assemblies import walk_coords

GROUPS = ("region", "roi", "subject", "animal", "subject_id")
REPETITION = ("repetition", "repetition_id")
# Benchmarks ask for a number of repetitions; of such recordings none is taken away.
ASKED = 20


def shaped(assembly, forms):
    """The assembly in each of the forms: fewer repetitions, some of them, one neuroid, whole numbers, single precision."""
    dims = list(assembly.dims)
    if dims.count("presentation") == 1 and "stimulus_id" in assembly.coords:
        assembly = along(assembly, "presentation", repeated(assembly, forms))
    if "neuroid" in dims and dims.count("presentation") == 1 and "one" in forms:
        assembly = along(assembly, "neuroid", first_of_each(assembly))
    if assembly.values.dtype.kind == "f" and "counts" in forms and not np.isnan(assembly.values).any():
        assembly = filled(assembly, np.round(assembly.values * 20).astype(np.int64))
    if assembly.values.dtype.kind == "f" and "single" in forms:
        assembly = filled(assembly, assembly.values.astype(np.float32))
    return assembly


def repeated(assembly, forms):
    """Which presentations stay."""
    name = next((one for one in REPETITION if one in assembly.coords), None)
    keep = np.ones(assembly.sizes["presentation"], dtype=bool)
    if name is None or assembly[name].values.max() >= ASKED:
        return keep
    number = assembly[name].values
    if "two" in forms:
        keep &= number < 2
    if "ragged" in forms:  # every stimulus keeps two, and of the others those that its name says
        ids = assembly["stimulus_id"].values.astype(str)
        drawn = np.array([zlib.crc32(f"{id}/{n}".encode()) % 3 for id, n in zip(ids, number, strict=True)])
        keep &= (number < 2) | (drawn > 0)
    return keep


def first_of_each(assembly):
    """The first neuroid of each group of neuroids."""
    held = [assembly[name].values.astype(str) for name in GROUPS if name in assembly.coords]
    held = [one for one in held if len(one) == assembly.sizes["neuroid"]]
    keys = ["/".join(one) for one in zip(*held, strict=True)] if held else ["all"] * assembly.sizes["neuroid"]
    return np.isin(np.arange(len(keys)), np.unique(keys, return_index=True)[1])


def along(assembly, dim, keep):
    """The assembly with those of a dimension that stay, its coordinates still levels of their index."""
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
