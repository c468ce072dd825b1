"""Splits: presentations that train a readout and presentations that test it, drawn by declared, seeded rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.data.arrays import Array, Indices
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError, UnavailableError, some_of
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.workspace import Memo

__all__ = [
    "Split",
    "draw",
    "first_values",
    "given",
    "predefined",
    "rows_of_stimuli",
    "stimuli_of",
    "testing",
]


# What scikit-learn's splitters yield: (train, test) positions; its modules are not typed.
_Parts: TypeAlias = Any

DEFAULT_TRAIN = 0.9


class Split(NamedTuple):
    """Row numbers of the train part and of the test part."""

    train: Indices
    test: Indices


class _Units(NamedTuple):
    """Units to divide: the first row of each unit, and the unit of each row."""

    first: Indices
    of_row: Indices


def draw(spec: SplitsSpec, assembly: xr.DataArray) -> list[Split]:
    """Draw splits of the rows of ``assembly`` with :func:`_draw` and remove the train rows that ``disjoint`` excludes."""
    splits = _draw(spec, assembly)
    if spec.disjoint is None:
        return splits
    values = as_text(_coordinate(assembly, spec.disjoint.by))
    bound = np.ones(len(values), dtype=bool)
    for name, exempt in spec.disjoint.except_.items():
        bound &= ~np.isin(
            as_text(_coordinate(assembly, name)),
            [str(as_text(value)) for value in exempt],
        )
    disjoint = []
    for train, test in splits:
        train_rows = train[
            ~(bound[train] & np.isin(values[train], values[test[bound[test]]]))
        ]
        if not len(train_rows):
            raise MetricError(
                f"every train presentation shares a value of {spec.disjoint.by!r} with the test part: use fewer test "
                "presentations, or another coordinate in `disjoint`"
            )
        disjoint.append(Split(train_rows, test))
    return disjoint


def _draw(spec: SplitsSpec, assembly: xr.DataArray) -> list[Split]:
    """Draw splits of the rows of ``assembly``, with scikit-learn's splitters and the seed of ``spec``.

    The units are the values of coordinate ``spec.by`` in row order, or with ``unique: true`` the distinct values in
    sorted order. Rows with the same value stay together, so a stimulus is never in both parts. With ``repeats: apart``,
    rows are divided individually and all rows of a drawn value are added, so a repeated value may be in both parts, as
    in Brain-Score. The train part has 90 % by default; ``stratify`` keeps the share of every class.

    Raises
    ------
    MetricError
        A coordinate is missing, or there are too few units for the rule.
    """
    if spec.name == "predefined":
        raise MetricError(
            "predefined splits are not drawn: pass source_train, source_test, target_train and target_test"
        )
    if spec.name == "coordinate":
        return [_by_values(spec, assembly)]
    values = _coordinate(assembly, spec.by)
    if _apart(spec):
        units = _Units(*[np.arange(len(values))] * 2)
    else:
        units = _units(values, sort=spec.unique)
    if spec.stratify is None:
        classes = None
    else:
        classes = _coordinate(assembly, spec.stratify)[units.first]
    if spec.groups is None:
        groups = None
    else:
        groups = _coordinate(assembly, spec.groups)[units.first]
    try:
        parts = _divided(spec, len(units.first), classes, groups)
    except ValueError as error:
        raise MetricError(
            f"splits {spec.name!r} over {len(units.first)} values of {spec.by!r}: {error}; "
            "use fewer folds, another train share or no stratification"
        ) from error
    if _apart(spec):
        return [
            Split(*(np.flatnonzero(np.isin(values, values[part])) for part in split))
            for split in parts
        ]
    if len(units.first) == len(units.of_row) and not spec.unique:
        return parts
    return [Split(_rows(units, train), _rows(units, test)) for train, test in parts]


def _divided(
    spec: SplitsSpec, count: int, classes: Array | None, groups: Array | None
) -> list[Split]:
    """Divide units by the rule of ``spec``; the latest divisions are kept, because all layers of a model need the same."""
    labels = [None if each is None else each.tolist() for each in (classes, groups)]
    key = (spec.model_dump_json(), str(count), repr(labels))

    def divide() -> list[Split]:
        return [
            Split(np.asarray(train), np.asarray(test))
            for train, test in _RULES[spec.name](spec, count, classes, groups)
        ]

    return list(_DIVIDED.get(key, divide, _bytes))


def _bytes(splits: Iterable[Split]) -> int:
    return sum(part.nbytes for split in splits for part in split)


def given(splits: Iterable[tuple[object, object]], rows: int) -> list[Split]:
    """Check pairs of train and test row numbers (or masks), as scikit-learn's splitters yield them.

    Raises
    ------
    MetricError
        There are no pairs, a part is empty, or a row number is not below ``rows``.
    """
    checked = []
    for at, (train, test) in enumerate(splits):
        parts = [np.asarray(part) for part in (train, test)]
        parts = [
            np.flatnonzero(part) if part.dtype.kind == "b" else part for part in parts
        ]
        for name, part in zip(Split._fields, parts, strict=True):
            if part.ndim != 1 or part.size == 0 or part.dtype.kind not in "iu":
                raise MetricError(
                    f"splits[{at}]: the {name} part is not a list of row numbers"
                )
            if part.min() < 0 or part.max() >= rows:
                raise MetricError(
                    f"splits[{at}]: the {name} part asks for row {part.max()}; there are {rows} rows, from 0"
                )
        checked.append(Split(*(part.astype(np.intp) for part in parts)))
    if not checked:
        raise MetricError("`splits` contains no split")
    return checked


def rows_of_stimuli(assembly: xr.DataArray, stimuli: Collection[str]) -> Indices:
    """Return the row numbers of the presentations of some stimuli.

    Raises
    ------
    MetricError
        The assembly has no stimuli on its presentations.
    """
    return np.flatnonzero(np.isin(stimuli_of(assembly), list(stimuli)))


def testing(
    splits: Iterable[Split], assembly: xr.DataArray, tested: Collection[str]
) -> list[Split]:
    """Return the splits with only presentations of ``tested`` stimuli in their test parts; splits without any are dropped.

    Raises
    ------
    MetricError
        No test part has a presentation of these stimuli.
    """
    inside = np.isin(stimuli_of(assembly), list(tested))
    kept = [Split(split.train, split.test[inside[split.test]]) for split in splits]
    kept = [split for split in kept if len(split.test)]
    if not kept:
        raise MetricError(
            "no split tests any of these stimuli; use more of them, or another rule of `splits`"
        )
    return kept


def stimuli_of(assembly: xr.DataArray) -> NDArray[np.str_]:
    """Return the stimulus of each presentation.

    Raises
    ------
    MetricError
        The assembly has no stimuli on its presentations.
    """
    if "stimulus_id" not in assembly.coords or assembly["stimulus_id"].dims != (
        "presentation",
    ):
        raise MetricError(
            "the data have no presentations of single stimuli, and cannot be divided by stimuli"
        )
    return as_text(assembly["stimulus_id"].values)


def predefined(train: int, test: int) -> list[Split]:
    """Return the single split of ``train`` rows followed by ``test`` rows."""
    return [Split(np.arange(train), np.arange(train, train + test))]


def first_values(assembly: xr.DataArray, by: str, count: int) -> xr.DataArray:
    """Return the rows of ``assembly`` whose coordinate ``by`` is among its first ``count`` distinct, sorted values.

    Raises
    ------
    MetricError
        The coordinate is missing, or has fewer values.
    """
    values = _coordinate(assembly, by)
    distinct = np.unique(values)
    if not 1 <= count <= len(distinct):
        raise MetricError(
            f"{count} values of {by!r} were asked for; the assembly has {len(distinct)}"
        )
    rows = np.flatnonzero(np.isin(values, distinct[:count]))
    if len(rows) == len(values):
        return assembly
    return assembly.isel({assembly[by].dims[0]: rows})


def _shuffle(
    spec: SplitsSpec, count: int, classes: Array | None, groups: Array | None
) -> _Parts:
    from sklearn.model_selection import (
        GroupShuffleSplit,
        ShuffleSplit,
        StratifiedShuffleSplit,
    )

    train = DEFAULT_TRAIN if spec.train is None and spec.test is None else spec.train
    sizes = {
        "n_splits": spec.folds,
        "train_size": train,
        "test_size": spec.test,
        "random_state": spec.seed,
    }
    rows = np.zeros(count)
    if groups is not None:
        return GroupShuffleSplit(**sizes).split(rows, groups=groups)
    if classes is not None:
        return StratifiedShuffleSplit(**sizes).split(rows, classes)
    return ShuffleSplit(**sizes).split(rows)


def _kfold(
    spec: SplitsSpec, count: int, classes: Array | None, groups: Array | None
) -> _Parts:
    from sklearn.model_selection import KFold, StratifiedKFold

    if groups is not None:
        return _group(spec, count, classes, groups)
    rows = np.zeros(count)
    rule = {"n_splits": spec.folds, "shuffle": True, "random_state": spec.seed}
    if classes is None:
        return KFold(**rule).split(rows)
    return StratifiedKFold(**rule).split(rows, classes)


def _group(
    spec: SplitsSpec, count: int, classes: Array | None, groups: Array | None
) -> _Parts:
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    if groups is None:
        raise ValueError("`groups` must name the coordinate whose values stay together")
    rule = {"n_splits": spec.folds, "shuffle": True, "random_state": spec.seed}
    if classes is not None:
        return StratifiedGroupKFold(**rule).split(np.zeros(count), classes, groups)
    try:
        return GroupKFold(**rule).split(np.zeros(count), groups=groups)
    except TypeError as error:
        raise UnavailableError(
            "folds of groups in a drawn order need scikit-learn 1.6 or later"
        ) from error


def _leave_one_out(
    spec: SplitsSpec, count: int, classes: Array | None, groups: Array | None
) -> _Parts:
    labels = np.arange(count) if groups is None else groups
    values = np.unique(labels)
    if len(values) < 2:
        raise ValueError("leaving one out needs at least two units")
    return (
        (np.flatnonzero(labels != value), np.flatnonzero(labels == value))
        for value in values
    )


_DIVIDED = Memo(limit=1 << 24)

_Rule = Callable[[SplitsSpec, int, "Array | None", "Array | None"], _Parts]
_RULES: dict[str, _Rule] = {
    "shuffle": _shuffle,
    "kfold": _kfold,
    "group": _group,
    "leave_one_out": _leave_one_out,
}


def _by_values(spec: SplitsSpec, assembly: xr.DataArray) -> Split:
    if spec.coordinate is None:
        raise MetricError(
            "splits 'coordinate' need `coordinate`, the name of the coordinate that divides the rows"
        )
    values = _coordinate(assembly, spec.coordinate)
    for named in (spec.train_values, spec.test_values):
        for name in named:
            if not np.isin(values, _typed((name,), values)).any():
                raise MetricError(
                    f"splits by {spec.coordinate!r}: no row has {name!r}; {_hint(name, values)}"
                )
    test = np.isin(values, _typed(spec.test_values, values))
    if spec.train_values:
        train = np.isin(values, _typed(spec.train_values, values))
    else:
        train = ~test
    if (train & test).any():
        raise MetricError(
            f"splits by {spec.coordinate!r}: a value is in both `train_values` and `test_values`"
        )
    if not train.any() or not test.any():
        raise MetricError(
            f"splits by {spec.coordinate!r} leave no rows in one part; its values are {_few(values)}"
        )
    return Split(np.flatnonzero(train), np.flatnonzero(test))


def _typed(names: tuple[str | int | float, ...], values: Array) -> Array:
    return np.asarray(
        list(map(str, names)) if values.dtype.kind in "UO" else list(names)
    )


def _coordinate(assembly: xr.DataArray, name: str) -> Array:
    if name not in assembly.coords:
        raise MetricError(
            f"splits use the coordinate {name!r}; the assembly has {_few(np.array(list(assembly.coords)))}"
        )
    values = np.asarray(assembly[name].values)
    if values.ndim != 1:
        raise MetricError(
            f"splits use the coordinate {name!r}, which lies along {values.ndim} dimensions, not one"
        )
    if values.dtype.kind == "O":
        return values.astype(str)
    return values


def _apart(spec: SplitsSpec) -> bool:
    return spec.repeats == "apart" and not spec.unique


def _units(values: Array, *, sort: bool) -> _Units:
    _, first, of_row = np.unique(values, return_index=True, return_inverse=True)
    if sort:
        return _Units(first, of_row)
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return _Units(first[order], place[of_row])


def _rows(units: _Units, chosen: Indices) -> Indices:
    inside = np.zeros(len(units.first), bool)
    inside[chosen] = True
    return np.flatnonzero(inside[units.of_row])


def _hint(name: str | int | float, values: Array) -> str:
    """Return the value that is probably meant, or the first values."""
    known = {str(value): value for value in np.unique(values).tolist()}
    near = get_close_matches(str(name), known, n=1)
    with suppress(ValueError):
        near = [
            text for text, value in known.items() if float(name) == float(value)
        ] or near
    if near:
        return f"did you mean {known[near[0]]!r}?"
    return f"its values are {_few(values)}"


def _few(values: Array) -> str:
    names = sorted(set(map(str, values)))
    return some_of(names, 8)
