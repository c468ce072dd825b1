"""The general route of a score's uncertainty: its metric is computed again without groups of items of its assemblies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Strings
from neuroledger.data.normalise_input import as_text
from neuroledger.stats.groups import names_of
from neuroledger.stats.samples import Keep, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.variation import held_out_deviation, inflation

__all__ = ["general", "with_subjects"]

# Dimensions whose entries are single stimuli, or their trials.
STIMULI: Final = ("presentation", "stimulus", "stimulus_b")

Compute = Callable[[Sequence[xr.DataArray], Sequence[Split] | None], xr.DataArray]


def general(
    arrays: Sequence[xr.DataArray],
    splits: Sequence[Split] | None,
    compute: Compute,
    whole: xr.DataArray,
    *,
    halves: bool,
) -> Variation | None:
    """Return how the result of ``compute`` changes without items of the last assembly, or None if it has no items.

    Parameters
    ----------
    arrays
        Source and target, or one assembly. Items are the stimuli, neuroids and subjects of the last one; those of the
        same stimuli leave the source, too.
    splits
        Splits of the rows of the last assembly. Items leave the tested part only, and the variance is inflated, unless
        the splits are ``halves`` of repetitions, which lose their rows on both sides.
    compute
        Returns the samples of some of the assemblies' rows.
    whole
        The samples of all rows.
    """
    main = arrays[-1]
    ids = {
        "stimulus": _stimuli(main),
        "neuroid": names_of(main, "neuroid") if "neuroid" in main.dims else None,
        "subject": _subjects(main),
    }
    items: dict[str, Strings] = {
        name: of_all if name == "neuroid" else np.unique(of_all)
        for name, of_all in ids.items()
        if of_all is not None and len(set(of_all.tolist())) > 1
    }
    if not items:
        return None
    tested = splits is not None and not halves

    def without(keep: Keep) -> xr.DataArray:
        names = {
            name: set(np.asarray(items[name])[kept].tolist())
            for name, kept in keep.items()
        }
        rows = _rows(main, names)
        if tested and splits is not None:
            fewer = [
                Split(split.train, split.test[rows[split.test]]) for split in splits
            ]
            left = compute([_columns(each, main, names) for each in arrays], fewer)
            return _moved(whole, left, splits, fewer)
        place = np.cumsum(rows) - 1
        halved = splits and [
            Split(*(place[part[rows[part]]] for part in split)) for split in splits
        ]
        return _shaped(
            compute([_reduced(each, main, names, rows) for each in arrays], halved),
            whole,
        )

    if tested and splits is not None:
        factor = {"stimulus": inflation(splits)}
    else:
        factor = {}
    return Variation(items, without, inflation=factor)


def with_subjects(variation: Variation, assembly: xr.DataArray) -> Variation:
    """Return the variation with the subjects of its neuroids, if there are several, which can be left out in their place."""
    if "neuroid" not in variation.items or "subject" not in assembly.coords:
        return variation
    subjects = assembly["subject"]
    if subjects.dims != ("neuroid",) or len(np.unique(subjects.values)) < 2:
        return variation
    names = names_of(assembly, "neuroid").astype(str).tolist()
    owners = dict(zip(names, as_text(subjects.values).tolist(), strict=True))
    kept = list(map(str, variation.items["neuroid"]))
    if not set(kept) <= owners.keys():
        return variation
    of_kept = np.array([owners[name] for name in kept])
    return replace(variation, nested={"subject": ("neuroid", of_kept)})


def _shaped(left: xr.DataArray, whole: xr.DataArray) -> xr.DataArray:
    """Return samples with the entries of the whole: NaN for those that no item is left of, such as a person's."""
    lost = [
        dim
        for dim, index in left.indexes.items()
        if len(index) < whole.sizes.get(dim, 0)
    ]
    lost = [dim for dim in lost if whole.indexes[dim].is_unique]
    if lost:
        return left.reindex({dim: whole.indexes[dim] for dim in lost})
    return left


def _moved(
    whole: xr.DataArray,
    left: xr.DataArray,
    splits: Sequence[Split],
    fewer: Sequence[Split],
) -> xr.DataArray:
    """Return the samples of each split moved by the items that it no longer tests."""
    if "split" not in whole.dims or left.shape != whole.shape:
        return left
    share = [
        1 - len(rest.test) / len(split.test)
        for split, rest in zip(splits, fewer, strict=True)
    ]
    of_split = np.reshape(share, [-1 if dim == "split" else 1 for dim in whole.dims])
    return whole.copy(
        data=held_out_deviation(
            whole.values, left.transpose(*whole.dims).values, of_split
        )
    )


def _stimuli(assembly: xr.DataArray) -> Strings | None:
    """Return the stimulus of each row, or None without rows."""
    dim = next((dim for dim in STIMULI if dim in assembly.dims), None)
    if dim is None:
        return None
    if "stimulus_id" in assembly.coords and assembly["stimulus_id"].dims == (dim,):
        return as_text(assembly["stimulus_id"].values)
    return np.arange(assembly.sizes[dim]).astype(str)


def _subjects(assembly: xr.DataArray) -> Strings | None:
    """Return the subject of each row of trials, or the entries of a dimension ``subject``; None for neuroids' subjects."""
    subjects = assembly.coords.get("subject")
    if subjects is None or subjects.dims not in (("presentation",), ("subject",)):
        return None
    return as_text(subjects.values)


def _rows(assembly: xr.DataArray, names: Mapping[str, set[str]]) -> Booleans:
    """Return which rows of the assembly keep their stimulus and subject."""
    stimuli = _stimuli(assembly)
    subjects = _subjects(assembly)
    if stimuli is None:
        count = 0
    else:
        count = len(stimuli)
    rows = np.ones(count, dtype=bool)
    if "stimulus" in names and stimuli is not None:
        rows &= np.isin(stimuli, list(names["stimulus"]))
    if "subject" in names and subjects is not None and "subject" not in assembly.dims:
        rows &= np.isin(subjects, list(names["subject"]))
    return rows


def _columns(
    array: xr.DataArray, main: xr.DataArray, names: Mapping[str, set[str]]
) -> xr.DataArray:
    """Return the array without neuroids, and without entries of a dimension ``subject``, that are left out."""
    if array is not main:
        return array
    if "neuroid" in names:
        array = array.isel(
            neuroid=np.isin(names_of(array, "neuroid"), list(names["neuroid"]))
        )
    if "subject" in names and "subject" in array.dims:
        array = array.isel(
            subject=np.isin(as_text(array["subject"].values), list(names["subject"]))
        )
    return array


def _reduced(
    array: xr.DataArray,
    main: xr.DataArray,
    names: Mapping[str, set[str]],
    rows: Booleans,
) -> xr.DataArray:
    """Return the array without items that are left out; a source loses the stimuli that the main assembly lost."""
    array = _columns(array, main, names)
    own = _stimuli(array)
    stimuli = _stimuli(main)
    if own is None or stimuli is None:
        return array
    for dim in STIMULI:
        if dim not in array.dims:
            continue
        same = "stimulus_id" not in array.coords or np.array_equal(own, stimuli)
        if array.sizes[dim] == len(rows) and same:
            array = array.isel({dim: rows})
        elif "stimulus" in names:
            array = array.isel(
                {dim: ~np.isin(own, list(set(stimuli.tolist()) - names["stimulus"]))}
            )
    return array
