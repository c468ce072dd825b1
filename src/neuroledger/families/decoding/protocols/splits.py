"""Partitions of signals into train, validation and test parts by declared rules, deterministic given their seeds."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    model_validator,
)

from neuroledger.data.arrays import Array, Booleans, Indices
from neuroledger.data.assembly import among
from neuroledger.errors import DataError, RequestError, some_of
from neuroledger.families.fields import AtLeastOne, AtLeastTwo, OpenShare
from neuroledger.families.signals.signals import extents
from neuroledger.spec.base import Frozen, Sha256

__all__ = ["Declared", "Fold", "SplitRule", "Train", "Within", "draw_folds", "unit_of"]

HALF = 0.5
Fraction = OpenShare
Value = str | int | float | bool
Order = Literal["sorted", "natural"]


NONE: Indices = np.empty(0, dtype=np.intp)
Train = Literal["pooled", "each"]
"""One decoder for all subjects of a training part, or one for each subject (or session, if a rule divides sessions)."""


class Fold(NamedTuple):
    """Row numbers of one division into parts.

    `validation` stops the training early. `calibration` contains windows of the tested subjects that are available
    before the test. Both may be empty.
    """

    train: Indices
    validation: Indices
    test: Indices
    calibration: Indices = NONE


class Validation(Frozen):
    """The validation part of the training rows: groups of `by`, single rows, or the last ones in time."""

    fraction: Fraction = 0.2
    by: str | None = None
    last: bool = False
    seed: NonNegativeInt = 33


class Calibration(Frozen):
    """The first `share` of each session of a tested subject, available before the rest is tested.

    Without `labels`, they are passed to steps that adapt to a subject (`recentre`); with `labels`, they are added to the
    training part. With a share of 1, all windows of the subject are available without labels, and all are tested.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.2
    labels: bool = False

    @model_validator(mode="after")
    def _not_all(self) -> Calibration:
        if self.labels and self.share > HALF:
            raise ValueError(
                "calibration with labels takes a share of 0.5 at most: the rest is tested"
            )
        return self


class _Rule(Frozen):
    """Fields of every rule: the validation part, the pinned digest of the partition, and waived gates.

    `sha256` pins the partition. `waive` names gates that are not applied; every score states them.

    `order` is the order of the groups from which shares are drawn: `sorted` as text, or `natural` as NeuralBench draws
    them: numbers in names count (S2 before S10), and a validation part of the same groups is drawn from the order in
    which the first draw left them. Another order tests other people with the same seed.
    """

    order: Annotated[Order, Field(exclude_if=lambda order: order == "sorted")] = (
        "sorted"
    )
    validation: Validation | None = None
    sha256: Sha256 | None = None
    waive: tuple[Literal["overlap", "duplicates"], ...] = ()

    @property
    def disjoint(self) -> tuple[str, ...]:
        """Coordinates that may not have a value on both sides."""
        return ()


class Declared(_Rule):
    """Parts by the values of a coordinate of the data; rows with other values are used for training unless `train` is given.

    With `purge`, training rows within this many seconds of a test window of the same recording are excluded; 0 excludes
    those that overlap with one.
    """

    name: Literal["declared"]
    column: str = "split"
    train: tuple[Value, ...] | None = None
    test: tuple[Value, ...] = ("test",)
    apart: tuple[str, ...] = ()
    purge: NonNegativeFloat | None = None

    @property
    def disjoint(self) -> tuple[str, ...]:
        """The coordinates declared in `apart`."""
        return self.apart


class Grouped(_Rule):
    """Whole groups are held out: subjects, sessions or concepts.

    With `test`, there is one fold: a share of the groups is drawn by `seed`. With `folds`, every group is tested in one of
    that many folds: groups are assigned in sorted order, or with `balance` to the fold with the fewest windows, the largest
    first, as in scikit-learn's `GroupKFold`. With neither, one group is tested at a time. `stratify` names a coordinate
    with one value per group whose shares are preserved, also in a validation part of such groups. With `purge`, training
    rows within this many seconds of a test window of the same recording are excluded; 0 excludes those that overlap with
    one, as consecutive words may.
    """

    name: Literal["cross_subject", "cross_session", "leave_concept_out"]
    by: str | None = None
    folds: AtLeastTwo | None = None
    test: Fraction | None = None
    stratify: str | None = None
    seed: NonNegativeInt = 33
    purge: NonNegativeFloat | None = None
    balance: bool = False
    calibration: Calibration | None = None

    @property
    def column(self) -> str:
        """The coordinate whose values are the groups."""
        usual = {
            "cross_subject": "subject",
            "cross_session": "session",
            "leave_concept_out": "stimulus_id",
        }
        return self.by or usual[self.name]

    @property
    def disjoint(self) -> tuple[str, ...]:
        """The coordinate of the groups; none for sessions, whose names repeat between subjects."""
        if self.name == "cross_session":
            return ()
        return (self.column,)


class Within(_Rule):
    """Within subjects: the test part is the last share of each recording's time, or named sessions or runs."""

    name: Literal["within_subject"]
    test: Fraction | None = None
    column: str = "session"
    values: tuple[Value, ...] = ()
    purge: NonNegativeFloat = 0.0


class Blocked(_Rule):
    """Contiguous blocks of time within each recording, one per fold; trials are not divided.

    `trial` names the coordinate of the trials. Training rows whose event is less than `purge` seconds from the tested
    block are excluded.
    """

    name: Literal["blocked"]
    folds: AtLeastTwo = 5
    trial: str | None = None
    purge: NonNegativeFloat = 0.0


class Random(_Rule):
    """Single windows drawn at random, for validation too; in proportion for each class if `stratify` names a coordinate."""

    name: Literal["random"]
    folds: AtLeastTwo | None = None
    test: Fraction | None = None
    stratify: str | None = None
    seed: NonNegativeInt = 33


class Sessions(_Rule):
    """Folds within each session of each subject, stratified by class, shuffled by the seed (MOABB's within-session)."""

    name: Literal["within_session"]
    folds: AtLeastTwo = 5
    stratify: str = "label"
    seed: NonNegativeInt = 42


class LearningCurve(_Rule):
    """Within each session of each subject: a share is tested, and training parts of increasing size are drawn repeatedly.

    `sizes` are shares of the training part, or numbers of windows if `per_class`; `permutations` is the number of draws,
    for each size or for all.
    """

    name: Literal["learning_curve"]
    sizes: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]
    per_class: bool = False
    permutations: AtLeastOne | tuple[AtLeastOne, ...] = 5
    test: Fraction = 0.2
    stratify: str = "label"
    seed: NonNegativeInt = 42

    @model_validator(mode="after")
    def _growing(self) -> LearningCurve:
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError("sizes must be in increasing order")
        if not self.per_class and self.sizes[-1] > 1:
            raise ValueError(
                "sizes are shares of the training part, at most 1; set `per_class` for numbers of windows"
            )
        if self.per_class and any(size != int(size) for size in self.sizes):
            raise ValueError("sizes must be whole numbers of windows with `per_class`")
        times = self.times
        if len(times) != len(self.sizes) or list(times) != sorted(times, reverse=True):
            raise ValueError(
                "permutations must be one number, or one for each size in non-increasing order"
            )
        return self

    @property
    def times(self) -> tuple[int, ...]:
        """The number of draws for each size."""
        many = self.permutations
        if isinstance(many, tuple):
            return many
        return (many,) * len(self.sizes)


Rule = Declared | Grouped | Within | Blocked | Random | Sessions | LearningCurve
SplitRule = Annotated[Rule, Field(discriminator="name")]


def unit_of(rule: _Rule, train: Train) -> tuple[str, ...]:
    """The coordinates whose values each have their own decoder; none if training is pooled.

    Raises
    ------
    RequestError
        The rule holds out subjects, so that no decoder can be trained on the tested subject.
    """
    if train == "pooled":
        return ()
    if isinstance(rule, Grouped) and rule.column == "subject":
        raise RequestError(
            "train: each trains one decoder for each subject, but cross_subject tests subjects without training windows: "
            "write train: pooled, or another rule, such as within_session"
        )
    if isinstance(rule, Sessions | LearningCurve):
        return ("subject", "session")
    return ("subject",)


def draw_folds(
    rule: Rule, assembly: xr.DataArray, train: Train = "pooled"
) -> list[Fold]:
    """The folds of `rule` over the rows of `assembly`, in a fixed order; a row may be in no part.

    With ``train="each"``, the folds of each subject's (or session's) rows, one subject after the other. If sessions are
    held out, subjects with one session are excluded.

    Raises
    ------
    DataError
        A coordinate is missing, or there are too few groups for the rule.
    RequestError
        The rule contradicts itself.
    """
    columns = unit_of(rule, train)
    if columns:
        names = np.stack([_column(assembly, name) for name in columns], axis=1)
        units = [
            np.flatnonzero((names == name).all(axis=1))
            for name in np.unique(names, axis=0)
        ]
        if isinstance(rule, Grouped):
            units = [
                rows
                for rows in units
                if len(np.unique(_column(assembly, rule.column)[rows])) > 1
            ]
            if not units:
                raise DataError(
                    f"splits {rule.name!r}: no subject has more than one {rule.column}"
                )
        return [
            Fold(*(rows[part] for part in fold))
            for rows in units
            for fold in draw_folds(rule, assembly.isel(presentation=rows))
        ]
    divided = _DIVIDE[type(rule)](rule, assembly)
    if isinstance(rule, Declared | Grouped) and rule.purge is not None:
        divided = [
            (_purged(train, test, assembly, rule.purge), test)
            for train, test in divided
        ]
    folds = [
        _with_validation(rule, assembly, np.sort(train), np.sort(test))
        for train, test in divided
    ]
    calibration = getattr(rule, "calibration", None)
    if calibration is None:
        return folds
    return [_with_calibration(fold, calibration, assembly) for fold in folds]


def _with_calibration(
    fold: Fold, calibration: Calibration, assembly: xr.DataArray
) -> Fold:
    """The fold with a calibration part: the first windows of each tested session, but not all of them."""
    if calibration.share == 1:
        return fold._replace(calibration=fold.test)
    columns = [name for name in ("subject", "session") if name in assembly.coords]
    sessions = np.stack(
        [_column(assembly, name)[fold.test] for name in columns], axis=1
    )
    chosen = np.zeros(len(fold.test), bool)
    for session in np.unique(sessions, axis=0):
        (rows,) = np.nonzero((sessions == session).all(axis=1))
        if len(rows) < 2:
            raise DataError(
                f"splits: {' '.join(session)} has one window, which cannot calibrate and be tested"
            )
        chosen[
            rows[: min(max(int(calibration.share * len(rows)), 1), len(rows) - 1)]
        ] = True
    return fold._replace(calibration=fold.test[chosen], test=fold.test[~chosen])


Parts = list[tuple[Indices, Indices]]


def _declared(rule: Declared, assembly: xr.DataArray) -> Parts:
    parts = _column(assembly, rule.column)
    known = set(parts.tolist())
    test = set(map(str, rule.test))
    train = known - test if rule.train is None else set(map(str, rule.train))
    if (train | test) - known:
        absent = ", ".join(sorted((train | test) - known))
        raise DataError(
            f"splits: {rule.column!r} has no value {absent}; its values are {_first_few(known)}"
        )
    return [
        (
            np.flatnonzero(np.isin(parts, sorted(train))),
            np.flatnonzero(np.isin(parts, sorted(test))),
        )
    ]


def _grouped(rule: Grouped, assembly: xr.DataArray) -> Parts:
    if rule.folds is not None and rule.test is not None:
        raise RequestError(f"splits {rule.name!r}: give `folds` or `test`, not both")
    groups = _column(assembly, rule.column)
    names = _in_order(groups, rule.order)
    if len(names) < max(2, rule.folds or 0):
        raise DataError(
            f"splits {rule.name!r}: {len(names)} values of {rule.column!r}, at least {max(2, rule.folds or 0)} needed"
        )
    if rule.test is not None:
        labels = _labels_of_groups(rule, assembly, groups, names)
        test_groups = [_draw_share(names, rule.test, rule.seed, labels)]
    else:
        test_groups = [
            names[fold :: rule.folds or len(names)]
            for fold in range(rule.folds or len(names))
        ]
        if rule.balance and rule.folds is not None:
            from sklearn.model_selection import GroupKFold

            parts = GroupKFold(rule.folds).split(np.zeros(len(groups)), groups=groups)
            test_groups = [np.unique(groups[test]) for _, test in parts]
    return [
        _train_and_test(np.isin(groups, names_of_fold)) for names_of_fold in test_groups
    ]


def _purged(
    train: Indices, test: Indices, assembly: xr.DataArray, seconds: float
) -> Indices:
    """The training rows at least `seconds` before or after every test window of their recording."""
    starts, ends = extents(assembly)
    recordings = _column(assembly, "recording")
    half = 0.5 / float(assembly.attrs["sampling_rate"])
    far = np.ones(len(train), bool)
    for recording in np.unique(recordings[test]):
        tested = test[recordings[test] == recording]
        tested = tested[np.argsort(starts[tested], kind="stable")]
        latest = np.maximum.accumulate(ends[tested]) - half + seconds
        rows = np.flatnonzero(recordings[train] == recording)
        # Of the test windows that begin before the end of a row, only the one that ends last matters.
        before = np.searchsorted(
            starts[tested], ends[train[rows]] - half + seconds, side="left"
        )
        far[rows] = (before == 0) | (
            latest[np.maximum(before - 1, 0)] <= starts[train[rows]]
        )
    return train[far]


def _within(rule: Within, assembly: xr.DataArray) -> Parts:
    if (rule.test is None) == (not rule.values):
        raise RequestError(
            "splits 'within_subject': give the share of time to `test`, or the `values` of a column"
        )
    if rule.values:
        return [
            _train_and_test(
                among(
                    _column(assembly, rule.column),
                    rule.values,
                    f"splits: {rule.column}",
                )
            )
        ]
    onset = assembly["onset"].values.astype(float)
    recordings = _column(assembly, "recording")
    test = np.zeros(len(onset), bool)
    train = np.zeros(len(onset), bool)
    for recording in np.unique(recordings):
        rows = np.flatnonzero(recordings == recording)
        rows = rows[np.argsort(onset[rows], kind="stable")]
        cut = len(rows) - max(1, round(len(rows) * (rule.test or 0)))
        before = rows[:cut]
        test[rows[cut:]] = True
        train[before] = onset[before] <= onset[rows[cut]] - rule.purge
    return [(np.flatnonzero(train), np.flatnonzero(test))]


def _blocked(rule: Blocked, assembly: xr.DataArray) -> Parts:
    onset = assembly["onset"].values.astype(float)
    recordings = _column(assembly, "recording")
    trials = (
        np.arange(len(onset)).astype(str)
        if rule.trial is None
        else _column(assembly, rule.trial)
    )
    fold_of = np.full(len(onset), -1)
    near = np.zeros((rule.folds, len(onset)), bool)
    for recording in np.unique(recordings):
        rows = np.flatnonzero(recordings == recording)
        rows = rows[np.argsort(onset[rows], kind="stable")]
        order = list(dict.fromkeys(trials[rows].tolist()))
        if len(order) < rule.folds:
            raise DataError(
                f"splits 'blocked': recording {str(recording)!r} has {len(order)} trials for {rule.folds} folds"
            )
        for fold, block in enumerate(np.array_split(np.array(order), rule.folds)):
            inside = rows[np.isin(trials[rows], block)]
            fold_of[inside] = fold
            low = onset[inside].min() - rule.purge
            high = onset[inside].max() + rule.purge
            near[fold, rows] = (onset[rows] > low) & (onset[rows] < high)
    return [
        (
            np.flatnonzero((fold_of != fold) & ~near[fold]),
            np.flatnonzero(fold_of == fold),
        )
        for fold in range(rule.folds)
    ]


def _random(rule: Random, assembly: xr.DataArray) -> Parts:
    if (rule.folds is None) == (rule.test is None):
        raise RequestError("splits 'random': give `folds` or the share to `test`")
    count = assembly.sizes["presentation"]
    if rule.stratify is None:
        labels = None
    else:
        labels = _column(assembly, rule.stratify)
    if rule.test is not None:
        chosen = _draw_share(np.arange(count), rule.test, rule.seed, labels)
        return [_train_and_test(np.isin(np.arange(count), chosen))]
    from sklearn.model_selection import KFold, StratifiedKFold

    splitter = (KFold if labels is None else StratifiedKFold)(
        rule.folds, shuffle=True, random_state=rule.seed
    )
    try:
        return [
            (train, test) for train, test in splitter.split(np.zeros(count), labels)
        ]
    except ValueError as error:
        raise DataError(f"splits 'random': {error}") from error


def _sessions(rule: Sessions, assembly: xr.DataArray) -> Parts:
    """Folds of several sessions are combined by their number."""
    from sklearn.model_selection import StratifiedKFold

    labels = _column(assembly, rule.stratify)
    sessions = np.stack(
        [_column(assembly, name) for name in ("subject", "session")], axis=1
    )
    test_rows: list[list[Indices]] = [[] for _ in range(rule.folds)]
    for session in np.unique(sessions, axis=0):
        rows = np.flatnonzero((sessions == session).all(axis=1))
        splitter = StratifiedKFold(rule.folds, shuffle=True, random_state=rule.seed)
        fewest = np.unique(labels[rows], return_counts=True)[1].min()
        if fewest < rule.folds:
            raise DataError(
                f"splits 'within_session': {' '.join(session)} has a class of {fewest} windows for {rule.folds} folds: "
                "use fewer folds"
            )
        for place, (_, test) in enumerate(
            splitter.split(np.zeros(len(rows)), labels[rows])
        ):
            test_rows[place].append(rows[test])
    return [
        _train_and_test(np.isin(np.arange(len(labels)), np.concatenate(parts)))
        for parts in test_rows
    ]


def _learning_curve(rule: LearningCurve, assembly: xr.DataArray) -> Parts:
    from sklearn.model_selection import StratifiedShuffleSplit

    labels = _column(assembly, rule.stratify)
    draws = StratifiedShuffleSplit(
        max(rule.times), test_size=rule.test, random_state=rule.seed
    )
    parts: Parts = []
    try:
        divisions = list(draws.split(np.zeros(len(labels)), labels))
    except ValueError as error:
        raise DataError(f"splits 'learning_curve': {error}") from error
    for number, (train, test) in enumerate(divisions):
        for size, repetitions in zip(rule.sizes, rule.times, strict=True):
            if number >= repetitions:
                continue
            if rule.per_class:
                rows = [
                    np.flatnonzero(labels[train] == name)
                    for name in np.unique(labels[train])
                ]
                fewest = min(map(len, rows))
                if fewest < size:
                    raise DataError(
                        f"splits 'learning_curve': {size:g} windows of each class, and one has {fewest}"
                    )
                chosen = np.concatenate([part[: int(size)] for part in rows])
            else:
                chosen = np.arange(int(np.ceil(size * len(train))))
            if len(np.unique(labels[train[chosen]])) > 1:
                parts.append((train[chosen], test))
    return parts


_DIVIDE: dict[type, Callable[[Any, xr.DataArray], Parts]] = {
    Declared: _declared,
    Grouped: _grouped,
    Within: _within,
    Blocked: _blocked,
    Random: _random,
    Sessions: _sessions,
    LearningCurve: _learning_curve,
}


def _with_validation(
    rule: _Rule, assembly: xr.DataArray, train: Indices, test: Indices
) -> Fold:
    """The fold with its validation part taken from the training rows."""
    validation = rule.validation
    if validation is None:
        return Fold(train, NONE, test)
    if validation.last:
        order = train[
            np.argsort(assembly["onset"].values[train].astype(float), kind="stable")
        ]
        chosen = order[len(order) - max(1, round(len(order) * validation.fraction)) :]
    else:
        keys = (
            np.arange(len(train)).astype(str)
            if validation.by is None
            else _column(assembly, validation.by)[train]
        )
        names = _validation_groups(rule, assembly, keys)
        if len(names) < 2:
            raise DataError(
                f"splits: one value of {validation.by!r} in the training part cannot be divided for validation"
            )
        labels = (
            None
            if (name := _validation_strata(rule)) is None
            else _first_value(_column(assembly, name)[train], keys, names)
        )
        chosen = train[
            np.isin(
                keys, _draw_share(names, validation.fraction, validation.seed, labels)
            )
        ]
    return Fold(np.setdiff1d(train, chosen), np.sort(chosen), test)


def _in_order(values: Array, order: Order) -> Array:
    """The different values in the order from which shares are drawn."""
    names = np.unique(values)
    if order == "sorted":
        return names
    return np.array(sorted(names.tolist(), key=_natural), dtype=names.dtype)


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key that compares the numbers within names by their value."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts]


def _validation_groups(rule: _Rule, assembly: xr.DataArray, keys: Array) -> Array:
    """The groups of the training part, in the order from which the validation part is drawn.

    `keys` are the groups of the training rows. In natural order, groups that were also drawn for the test keep the
    order in which that draw left them, as NeuralBench shuffles its people twice.
    """
    names = _in_order(keys, rule.order)
    if rule.validation is None:
        by = None
    else:
        by = rule.validation.by
    if rule.order == "sorted" or not isinstance(rule, Grouped):
        return names
    if by != rule.column or rule.test is None:
        return names
    groups = _column(assembly, rule.column)
    known = _in_order(groups, rule.order)
    labels = _labels_of_groups(rule, assembly, groups, known)
    left, _ = _draw(known, rule.test, rule.seed, labels)
    return left[np.isin(left, names)]


def _labels_of_groups(
    rule: Grouped, assembly: xr.DataArray, groups: Array, names: Array
) -> Array | None:
    """The label of each group by which its shares are preserved, if the rule names one."""
    if rule.stratify is None:
        return None
    return _label_of_group(assembly, rule.stratify, groups, names, rule.column)


def _first_value(values: Array, keys: Array, names: Array) -> Array:
    """The value of the first row of each named group."""
    known, first = np.unique(keys, return_index=True)
    return np.asarray(values[first[np.searchsorted(known, names)]])


def _validation_strata(rule: _Rule) -> str | None:
    """The coordinate that stratifies the validation part: that of the test part, if both consist of the same groups."""
    if (
        not isinstance(rule, Grouped | Random)
        or rule.test is None
        or rule.validation is None
    ):
        return None
    if rule.validation.by == getattr(rule, "column", None):
        return rule.stratify
    return None


def _draw_share(
    names: Array, fraction: float, seed: int, labels: Array | None
) -> Array:
    """A random share of `names`, the same share of each label."""
    return _draw(names, fraction, seed, labels)[1]


def _draw(
    names: Array, fraction: float, seed: int, labels: Array | None
) -> tuple[Array, Array]:
    """What a draw by scikit-learn's `train_test_split` leaves, in its order, and the share that it takes."""
    from sklearn.model_selection import train_test_split

    try:
        left, chosen = train_test_split(
            names, test_size=fraction, random_state=seed, stratify=labels
        )
    except ValueError as error:
        raise DataError(
            f"splits: no share of {fraction:g} can be drawn from {len(names)} groups: {error}"
        ) from error
    return np.asarray(left), np.asarray(chosen)


def _label_of_group(
    assembly: xr.DataArray, stratify: str, groups: Array, names: Array, column: str
) -> Array:
    labels = _column(assembly, stratify)
    values_of_groups = [np.unique(labels[groups == name]) for name in names]
    mixed = [
        str(name)
        for name, values in zip(names, values_of_groups, strict=True)
        if len(values) > 1
    ]
    if mixed:
        raise DataError(
            f"splits: {column} {_first_few(mixed)} has several values of {stratify!r}; "
            "stratify by a coordinate with one value each"
        )
    return np.array([values[0] for values in values_of_groups])


def _train_and_test(is_test: Booleans) -> tuple[Indices, Indices]:
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


def _column(assembly: xr.DataArray, name: str) -> Array:
    if name not in assembly.coords or assembly[name].dims != ("presentation",):
        known = sorted(
            str(key)
            for key, values in assembly.coords.items()
            if values.dims == ("presentation",)
        )
        raise DataError(
            f"splits: presentations have no coordinate {name!r}; they have {', '.join(known)}"
        )
    return np.asarray(assembly[name].values).astype(str)


def _first_few(values: Sequence[str] | set[str]) -> str:
    return some_of(sorted(values), 5)
