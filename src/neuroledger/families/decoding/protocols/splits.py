"""Partitions of signals into train, validation and test parts: declared rules, drawn without chance beyond a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field, model_validator

from neuroledger.data.arrays import Array, Booleans, Indices
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.signals import extents
from neuroledger.spec.base import Frozen, Sha256

__all__ = ["Declared", "Fold", "SplitRule", "Train", "Within", "draw_folds", "unit_of"]

HALF = 0.5
Fraction = Annotated[float, Field(gt=0, lt=1)]
Value = str | int | float | bool


NONE: Indices = np.empty(0, dtype=np.intp)
Train = Literal["pooled", "each"]
"""One decoder of all people of a training part, or one for each person (or session, where a rule divides sessions)."""


class Fold(NamedTuple):
    """Row numbers of one division.

    `validation` stops the training; windows for `calibration` are of the tested people, seen before they are tested. Both
    are empty where none are set apart.
    """

    train: Indices
    validation: Indices
    test: Indices
    calibration: Indices = NONE


class Validation(Frozen):
    """Which part of the training rows stops the training: groups of `by`, single rows, or the last ones in time."""

    fraction: Fraction = 0.2
    by: str | None = None
    last: bool = False
    seed: Annotated[int, Field(ge=0)] = 33


class Calibration(Frozen):
    """The first `share` of each session of a tested person, seen before the rest is tested.

    Without `labels`, a step that adapts to a person (`recentre`) sees them; with `labels`, they join the training part. With
    a share of 1, all windows of the person are seen without labels, and all are tested.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.2
    labels: bool = False

    @model_validator(mode="after")
    def _not_all(self) -> Calibration:
        if self.labels and self.share > HALF:
            raise ValueError("calibration with labels takes a share of 0.5 at most: the rest is tested")
        return self


class _Rule(Frozen):
    """What every rule may say: the validation part, the digest its partition must have, and what it waives openly.

    `sha256` pins the partition itself. `waive` names gates that are not applied, and is repeated beside every score.
    """

    validation: Validation | None = None
    sha256: Sha256 | None = None
    waive: tuple[Literal["overlap", "duplicates"], ...] = ()

    @property
    def disjoint(self) -> tuple[str, ...]:
        """Coordinates that may not have a value on both sides."""
        return ()


class Declared(_Rule):
    """Parts by the values of a coordinate that came with the data; the rest is trained on unless `train` says.

    With `purge`, training rows within this many seconds of a tested window of the same recording are left out; 0 leaves out
    those that share time with one.
    """

    name: Literal["declared"]
    column: str = "split"
    train: tuple[Value, ...] | None = None
    test: tuple[Value, ...] = ("test",)
    apart: tuple[str, ...] = ()
    purge: Annotated[float, Field(ge=0)] | None = None

    @property
    def disjoint(self) -> tuple[str, ...]:
        """The coordinates declared to be apart."""
        return self.apart


class Grouped(_Rule):
    """Whole groups held out: subjects, sessions or concepts.

    With `test`, one division: a share of the groups is drawn by `seed`. With `folds`, that many divisions that test
    every group once, groups dealt out in sorted order, or, with `balance`, each to the fold with the fewest windows, the
    largest first, as scikit-learn's `GroupKFold` does; with neither, one group at a time. `stratify` names a
    coordinate that each group has one value of, and keeps its shares, in a validation part of such groups too. With
    `purge`, training rows within this many seconds of a tested window of the same recording are left out; 0 leaves out
    those that share time with one, as words that follow one another do.
    """

    name: Literal["cross_subject", "cross_session", "leave_concept_out"]
    by: str | None = None
    folds: Annotated[int, Field(ge=2)] | None = None
    test: Fraction | None = None
    stratify: str | None = None
    seed: Annotated[int, Field(ge=0)] = 33
    purge: Annotated[float, Field(ge=0)] | None = None
    balance: bool = False
    calibration: Calibration | None = None

    @property
    def column(self) -> str:
        """The coordinate whose values are the groups."""
        usual = {"cross_subject": "subject", "cross_session": "session", "leave_concept_out": "stimulus_id"}
        return self.by or usual[self.name]

    @property
    def disjoint(self) -> tuple[str, ...]:
        """The held-out groups; sessions carry the same name in several subjects and are compared within each."""
        return () if self.name == "cross_session" else (self.column,)


class Within(_Rule):
    """Within subjects: the last share of each recording's time, or named sessions or runs, are the test part."""

    name: Literal["within_subject"]
    test: Fraction | None = None
    column: str = "session"
    values: tuple[Value, ...] = ()
    purge: Annotated[float, Field(ge=0)] = 0.0


class Blocked(_Rule):
    """Contiguous blocks of time within each recording, one per fold; trials stay whole.

    `trial` names the coordinate whose rows travel together. Training rows whose event is less than `purge` seconds
    from the tested block are left out.
    """

    name: Literal["blocked"]
    folds: Annotated[int, Field(ge=2)] = 5
    trial: str | None = None
    purge: Annotated[float, Field(ge=0)] = 0.0


class Random(_Rule):
    """Single windows, for validation too, drawn by chance; each class in proportion where `stratify` names a coordinate."""

    name: Literal["random"]
    folds: Annotated[int, Field(ge=2)] | None = None
    test: Fraction | None = None
    stratify: str | None = None
    seed: Annotated[int, Field(ge=0)] = 33


class Sessions(_Rule):
    """Folds within each session of each person, stratified by the class, shuffled by the seed (MOABB's within-session)."""

    name: Literal["within_session"]
    folds: Annotated[int, Field(ge=2)] = 5
    stratify: str = "label"
    seed: Annotated[int, Field(ge=0)] = 42


class LearningCurve(_Rule):
    """Within each session of each person: a share is tested, growing parts of the rest are trained on, again and again.

    `sizes` are shares of the training part, or numbers of windows `per_class`; `permutations` how often the division is
    drawn, for each size or for all.
    """

    name: Literal["learning_curve"]
    sizes: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]
    per_class: bool = False
    permutations: Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=1)], ...] = 5
    test: Fraction = 0.2
    stratify: str = "label"
    seed: Annotated[int, Field(ge=0)] = 42

    @model_validator(mode="after")
    def _growing(self) -> LearningCurve:
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError("sizes grow from one to the next")
        if not self.per_class and self.sizes[-1] > 1:
            raise ValueError(
                "sizes are shares of the training part, 1 at most; numbers of windows are `per_class`"
            )
        if self.per_class and any(size != int(size) for size in self.sizes):
            raise ValueError("sizes are whole numbers of windows where they are `per_class`")
        times = self.times
        if len(times) != len(self.sizes) or list(times) != sorted(times, reverse=True):
            raise ValueError("permutations are one number, or one for each size that does not grow")
        return self

    @property
    def times(self) -> tuple[int, ...]:
        """How often the division is drawn for each size."""
        many = self.permutations
        return many if isinstance(many, tuple) else (many,) * len(self.sizes)


Rule = Declared | Grouped | Within | Blocked | Random | Sessions | LearningCurve
SplitRule = Annotated[Rule, Field(discriminator="name")]


def unit_of(rule: _Rule, train: Train) -> tuple[str, ...]:
    """The coordinates whose values have a decoder of their own; none where training is pooled.

    Raises
    ------
    RequestError
        The rule holds out people, so that no decoder can be one person's own.
    """
    if train == "pooled":
        return ()
    if isinstance(rule, Grouped) and rule.column == "subject":
        raise RequestError(
            "train: each has one decoder for each person, and cross_subject tests people it never saw"
        )
    return ("subject", "session") if isinstance(rule, Sessions | LearningCurve) else ("subject",)


def draw_folds(rule: Rule, assembly: xr.DataArray, train: Train = "pooled") -> list[Fold]:
    """The folds that `rule` makes of the rows of `assembly`, in a fixed order; rows in neither part are left out.

    With ``train="each"``, those that it makes of each person's (or session's) rows, one person after the other. A person
    with one session is left out where sessions are held out.

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
        units = [np.flatnonzero((names == name).all(axis=1)) for name in np.unique(names, axis=0)]
        if isinstance(rule, Grouped):
            units = [rows for rows in units if len(np.unique(_column(assembly, rule.column)[rows])) > 1]
            if not units:
                raise DataError(f"splits {rule.name!r}: nobody has more than one {rule.column}")
        return [
            Fold(*(rows[part] for part in fold))
            for rows in units
            for fold in draw_folds(rule, assembly.isel(presentation=rows))
        ]
    divided = _DIVIDE[type(rule)](rule, assembly)
    if isinstance(rule, Declared | Grouped) and rule.purge is not None:
        divided = [(_away(train, test, assembly, rule.purge), test) for train, test in divided]
    folds = [_set_apart(rule, assembly, np.sort(train), np.sort(test)) for train, test in divided]
    wanted = getattr(rule, "calibration", None)
    return folds if wanted is None else [_calibrated(fold, wanted, assembly) for fold in folds]


def _calibrated(fold: Fold, wanted: Calibration, assembly: xr.DataArray) -> Fold:
    """The fold with the first windows of each tested session set apart, at least one, and at least one left."""
    if wanted.share == 1:
        return fold._replace(calibration=fold.test)
    known = [name for name in ("subject", "session") if name in assembly.coords]
    homes = np.stack([_column(assembly, name)[fold.test] for name in known], axis=1)
    chosen = np.zeros(len(fold.test), bool)
    for home in np.unique(homes, axis=0):
        (rows,) = np.nonzero((homes == home).all(axis=1))
        if len(rows) < 2:
            raise DataError(f"splits: {' '.join(home)} has one window, which cannot calibrate and be tested")
        chosen[rows[: min(max(int(wanted.share * len(rows)), 1), len(rows) - 1)]] = True
    return fold._replace(calibration=fold.test[chosen], test=fold.test[~chosen])


Parts = list[tuple[Indices, Indices]]


def _declared(rule: Declared, assembly: xr.DataArray) -> Parts:
    parts = _column(assembly, rule.column)
    known = set(parts.tolist())
    test = {str(value) for value in rule.test}
    train = known - test if rule.train is None else {str(value) for value in rule.train}
    if (train | test) - known:
        absent = ", ".join(sorted((train | test) - known))
        raise DataError(f"splits: {rule.column!r} never is {absent}; it is {_some(known)}")
    return [(np.flatnonzero(np.isin(parts, sorted(train))), np.flatnonzero(np.isin(parts, sorted(test))))]


def _grouped(rule: Grouped, assembly: xr.DataArray) -> Parts:
    if rule.folds is not None and rule.test is not None:
        raise RequestError(f"splits {rule.name!r}: give `folds` or `test`, not both")
    groups = _column(assembly, rule.column)
    names = np.unique(groups)
    if len(names) < max(2, rule.folds or 0):
        raise DataError(
            f"splits {rule.name!r}: {len(names)} values of {rule.column!r}, at least {max(2, rule.folds or 0)} needed"
        )
    if rule.test is not None:
        labels = (
            None
            if rule.stratify is None
            else _label_of_group(assembly, rule.stratify, groups, names, rule.column)
        )
        held = [_share(names, rule.test, rule.seed, labels)]
    else:
        held = [names[fold :: rule.folds or len(names)] for fold in range(rule.folds or len(names))]
        if rule.balance and rule.folds is not None:
            from sklearn.model_selection import GroupKFold

            parts = GroupKFold(rule.folds).split(np.zeros(len(groups)), groups=groups)
            held = [np.unique(groups[test]) for _, test in parts]
    return [_both(np.isin(groups, some)) for some in held]


def _away(train: Indices, test: Indices, assembly: xr.DataArray, seconds: float) -> Indices:
    """The training rows that begin no less than `seconds` after, and end so long before, every tested window."""
    starts, ends = extents(assembly)
    recordings = _column(assembly, "recording")
    half = 0.5 / float(assembly.attrs["sampling_rate"])
    kept = np.ones(len(train), bool)
    for recording in np.unique(recordings[test]):
        tested = test[recordings[test] == recording]
        tested = tested[np.argsort(starts[tested], kind="stable")]
        latest = np.maximum.accumulate(ends[tested]) - half + seconds
        here = np.flatnonzero(recordings[train] == recording)
        # Among the tested windows that begin before a row ends, the one that ends last decides.
        before = np.searchsorted(starts[tested], ends[train[here]] - half + seconds, side="left")
        kept[here] = (before == 0) | (latest[np.maximum(before - 1, 0)] <= starts[train[here]])
    return train[kept]


def _within(rule: Within, assembly: xr.DataArray) -> Parts:
    if (rule.test is None) == (not rule.values):
        raise RequestError(
            "splits 'within_subject': give the share of time to `test`, or the `values` of a column"
        )
    if rule.values:
        return [_both(np.isin(_column(assembly, rule.column), [str(value) for value in rule.values]))]
    onset, recordings = assembly["onset"].values.astype(float), _column(assembly, "recording")
    tested, kept = np.zeros(len(onset), bool), np.zeros(len(onset), bool)
    for recording in np.unique(recordings):
        rows = np.flatnonzero(recordings == recording)
        rows = rows[np.argsort(onset[rows], kind="stable")]
        cut = len(rows) - max(1, round(len(rows) * (rule.test or 0)))
        tested[rows[cut:]] = True
        kept[rows[:cut]] = onset[rows[:cut]] <= onset[rows[cut]] - rule.purge
    return [(np.flatnonzero(kept), np.flatnonzero(tested))]


def _blocked(rule: Blocked, assembly: xr.DataArray) -> Parts:
    onset, recordings = assembly["onset"].values.astype(float), _column(assembly, "recording")
    trials = np.arange(len(onset)).astype(str) if rule.trial is None else _column(assembly, rule.trial)
    fold_of, near = np.full(len(onset), -1), np.zeros((rule.folds, len(onset)), bool)
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
            low, high = onset[inside].min() - rule.purge, onset[inside].max() + rule.purge
            near[fold, rows] = (onset[rows] > low) & (onset[rows] < high)
    return [
        (np.flatnonzero((fold_of != fold) & ~near[fold]), np.flatnonzero(fold_of == fold))
        for fold in range(rule.folds)
    ]


def _random(rule: Random, assembly: xr.DataArray) -> Parts:
    if (rule.folds is None) == (rule.test is None):
        raise RequestError("splits 'random': give `folds` or the share to `test`")
    count = assembly.sizes["presentation"]
    labels = None if rule.stratify is None else _column(assembly, rule.stratify)
    if rule.test is not None:
        chosen = _share(np.arange(count), rule.test, rule.seed, labels)
        return [_both(np.isin(np.arange(count), chosen))]
    from sklearn.model_selection import KFold, StratifiedKFold

    splitter = (KFold if labels is None else StratifiedKFold)(
        rule.folds, shuffle=True, random_state=rule.seed
    )
    try:
        return [(train, test) for train, test in splitter.split(np.zeros(count), labels)]
    except ValueError as error:
        raise DataError(f"splits 'random': {error}") from error


def _sessions(rule: Sessions, assembly: xr.DataArray) -> Parts:
    """Of several sessions, the same fold of each together."""
    from sklearn.model_selection import StratifiedKFold

    labels = _column(assembly, rule.stratify)
    homes = np.stack([_column(assembly, name) for name in ("subject", "session")], axis=1)
    tested: list[list[Indices]] = [[] for _ in range(rule.folds)]
    for home in np.unique(homes, axis=0):
        rows = np.flatnonzero((homes == home).all(axis=1))
        splitter = StratifiedKFold(rule.folds, shuffle=True, random_state=rule.seed)
        fewest = np.unique(labels[rows], return_counts=True)[1].min()
        if fewest < rule.folds:
            raise DataError(
                f"splits 'within_session': {' '.join(home)} has a class of {fewest} windows for {rule.folds} folds: "
                "take fewer"
            )
        for place, (_, test) in enumerate(splitter.split(np.zeros(len(rows)), labels[rows])):
            tested[place].append(rows[test])
    return [_both(np.isin(np.arange(len(labels)), np.concatenate(parts))) for parts in tested]


def _learning_curve(rule: LearningCurve, assembly: xr.DataArray) -> Parts:
    from sklearn.model_selection import StratifiedShuffleSplit

    labels = _column(assembly, rule.stratify)
    draws = StratifiedShuffleSplit(max(rule.times), test_size=rule.test, random_state=rule.seed)
    found: Parts = []
    try:
        divided = list(draws.split(np.zeros(len(labels)), labels))
    except ValueError as error:
        raise DataError(f"splits 'learning_curve': {error}") from error
    for number, (train, test) in enumerate(divided):
        for size, times in zip(rule.sizes, rule.times, strict=True):
            if number >= times:
                continue
            if rule.per_class:
                rows = [np.flatnonzero(labels[train] == name) for name in np.unique(labels[train])]
                fewest = min(map(len, rows))
                if fewest < size:
                    raise DataError(
                        f"splits 'learning_curve': {size:g} windows of each class, and one has {fewest}"
                    )
                chosen = np.concatenate([part[: int(size)] for part in rows])
            else:
                chosen = np.arange(int(np.ceil(size * len(train))))
            if len(np.unique(labels[train[chosen]])) > 1:
                found.append((train[chosen], test))
    return found


_DIVIDE: dict[type, Callable[[Any, xr.DataArray], Parts]] = {
    Declared: _declared,
    Grouped: _grouped,
    Within: _within,
    Blocked: _blocked,
    Random: _random,
    Sessions: _sessions,
    LearningCurve: _learning_curve,
}


def _set_apart(whole: _Rule, assembly: xr.DataArray, train: Indices, test: Indices) -> Fold:
    """The fold with its validation part taken from the training rows."""
    rule = whole.validation
    if rule is None:
        return Fold(train, NONE, test)
    if rule.last:
        order = train[np.argsort(assembly["onset"].values[train].astype(float), kind="stable")]
        chosen = order[len(order) - max(1, round(len(order) * rule.fraction)) :]
    else:
        keys = np.arange(len(train)).astype(str) if rule.by is None else _column(assembly, rule.by)[train]
        names, first = np.unique(keys, return_index=True)
        if len(names) < 2:
            raise DataError(
                f"splits: one value of {rule.by!r} in the training part cannot be divided for validation"
            )
        labels = None if (name := _kept_shares(whole)) is None else _column(assembly, name)[train][first]
        chosen = train[np.isin(keys, _share(names, rule.fraction, rule.seed, labels))]
    return Fold(np.setdiff1d(train, chosen), np.sort(chosen), test)


def _kept_shares(rule: _Rule) -> str | None:
    """By what the validation part is stratified: as the tested one, if it is a share of the same groups or rows."""
    if not isinstance(rule, Grouped | Random) or rule.test is None or rule.validation is None:
        return None
    return rule.stratify if rule.validation.by == getattr(rule, "column", None) else None


def _share(names: Array, fraction: float, seed: int, labels: Array | None) -> Array:
    """A share of `names` by chance, drawn as scikit-learn's `train_test_split` does; the same share of each label."""
    from sklearn.model_selection import train_test_split

    try:
        _, chosen = train_test_split(names, test_size=fraction, random_state=seed, stratify=labels)
    except ValueError as error:
        raise DataError(
            f"splits: no share of {fraction:g} can be drawn from {len(names)} groups: {error}"
        ) from error
    return np.asarray(chosen)


def _label_of_group(assembly: xr.DataArray, stratify: str, groups: Array, names: Array, column: str) -> Array:
    labels = _column(assembly, stratify)
    found = [np.unique(labels[groups == name]) for name in names]
    mixed = [str(name) for name, values in zip(names, found, strict=True) if len(values) > 1]
    if mixed:
        raise DataError(
            f"splits: {column} {_some(mixed)} has several values of {stratify!r}; stratify by one it has once"
        )
    return np.array([values[0] for values in found])


def _both(tested: Booleans) -> tuple[Indices, Indices]:
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def _column(assembly: xr.DataArray, name: str) -> Array:
    if name not in assembly.coords or assembly[name].dims != ("presentation",):
        known = sorted(
            str(key) for key, values in assembly.coords.items() if values.dims == ("presentation",)
        )
        raise DataError(f"splits: presentations have no coordinate {name!r}; they have {', '.join(known)}")
    return np.asarray(assembly[name].values).astype(str)


def _some(values: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(values)[:5]) + (", …" if len(values) > 5 else "")
