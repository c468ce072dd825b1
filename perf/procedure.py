"""A reimplementation of Brain-Score's procedure, step by step, on assemblies whose labels form an index.

Each split selects rows by their ids in all four parts, sorts them, fits, labels the predictions again, sorts both
sides by stimulus and neuroid, and correlates neuroid by neuroid; the scores of the splits are merged by their
labels. All these steps, not only the fit, contribute to the time of that library. All functions take assemblies that
are :func:`indexed`, as in that library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr
from scipy import linalg, stats

from perf import peers


def indexed(assembly: xr.DataArray) -> xr.DataArray:
    """All coordinates of a dimension as the levels of its index."""
    levels = {
        dim: [name for name, coord in assembly.coords.items() if coord.dims == (dim,)]
        for dim in assembly.dims
    }
    return assembly.set_index({dim: names for dim, names in levels.items() if names})


def _levels(assembly: xr.DataArray) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Every level of every index, unpacked: name to dimensions and values."""
    return {
        str(name): (coord.dims, coord.values)  # type: ignore[misc]
        for name, coord in assembly.coords.items()
        if name not in assembly.dims
    }


def _relabelled(
    values: Any, levels: dict[str, tuple[tuple[str, ...], Any]], dims: tuple[str, ...]
) -> Any:
    return indexed(xr.DataArray(values, dims=dims, coords=levels))


def _rows(assembly: xr.DataArray, coordinate: str, wanted: Any) -> xr.DataArray:
    """Rows whose label is among ``wanted``, by a linear search for each label."""
    keep = np.array([label in wanted for label in assembly[coordinate].values])
    return assembly.isel(presentation=np.flatnonzero(keep))


def ordered(assembly: xr.DataArray, *names: str) -> xr.DataArray:
    """The assembly sorted by these labels, each along its dimension."""
    for name in names:
        (dim,) = assembly[name].dims
        assembly = assembly.isel(
            {dim: np.argsort(assembly[name].values, kind="stable")}
        )
    return assembly


def correlated(prediction: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """Pearson correlation, neuroid by neuroid, of two sides sorted by their labels."""
    names = ("stimulus_id", "neuroid_id")
    prediction, target = ordered(prediction, *names), ordered(target, *names)
    for name in names:
        if not (prediction[name].values == target[name].values).all():
            raise ValueError(f"the sides differ in {name}")
    correlations = []
    for number in range(target.sizes["neuroid"]):
        target_column, predicted_column = (
            target.isel(neuroid=number),
            prediction.isel(neuroid=number),
        )
        correlations.append(
            stats.pearsonr(target_column.values, predicted_column.values).statistic
        )
    levels = {
        name: level
        for name, level in _levels(target).items()
        if level[0] == ("neuroid",)
    }
    return xr.DataArray(_relabelled(correlations, levels, ("neuroid",)))


def merged(scores: list[xr.DataArray]) -> xr.DataArray:
    """Scores of the splits, concatenated and matched by their labels."""
    arrays = [
        score.expand_dims(split=[at]).rename("score") for at, score in enumerate(scores)
    ]
    return xr.merge(arrays, join="outer", compat="no_conflicts")["score"]


def _summary(scores: xr.DataArray) -> float:
    """Median over neuroids, then mean over splits; the error is computed too."""
    center = scores.median("neuroid")
    center.std("split") / np.sqrt(center.sizes["split"])
    return float(center.mean("split"))


class OneByOne(peers.BestUnit):
    """The unit with the highest correlation: all units are centred again for every target."""

    def fit(self, X: np.ndarray, Y: np.ndarray) -> OneByOne:
        """Find each target's unit."""
        table = np.zeros((Y.shape[1], X.shape[1]))
        for number in range(Y.shape[1]):
            table[number] = self._with_all(X, Y[:, number : number + 1])
        self.best = np.nanargmax(table, axis=1)
        return self

    @staticmethod
    def _with_all(X: np.ndarray, y: np.ndarray) -> Any:
        X, y = X - X.mean(axis=0, keepdims=True), y - y.mean(axis=0, keepdims=True)
        unit = X / linalg.norm(X, axis=0, keepdims=True)
        return (unit * (y / linalg.norm(y, axis=0, keepdims=True))).sum(axis=0)


def _fitted(
    make: Callable[[], Any], source: xr.DataArray, target: xr.DataArray
) -> tuple[Any, dict[str, Any]]:
    """A readout of sorted train rows, and the labels of the neuroids that it predicts."""
    source, target = (
        ordered(side.transpose("presentation", "neuroid"), "stimulus_id")
        for side in (source, target)
    )
    model = make().fit(source.values, target.values)
    return model, {
        name: level for name, level in _levels(target).items() if "neuroid" in level[0]
    }


def regressed(
    make: Callable[[], Any], source: xr.DataArray, target: xr.DataArray, folds: int
) -> np.ndarray:
    """Cross-validated readout: the samples of the first ``folds`` splits of 90 %, stratified by object."""
    from sklearn.model_selection import StratifiedShuffleSplit

    for name in ("stimulus_id", "object_name"):
        if sorted(source[name].values) != sorted(target[name].values):
            raise ValueError(f"the sides differ in {name}")
    ids, objects = target["stimulus_id"].values, target["object_name"].values
    scores = []
    draws = StratifiedShuffleSplit(folds, train_size=0.9, random_state=1).split(
        np.zeros(len(ids)), objects
    )
    for train, test in draws:
        parts = [
            _rows(side, "stimulus_id", ids[rows])
            for rows in (train, test)
            for side in (source, target)
        ]
        model, neuroids = _fitted(make, parts[0], parts[1])
        test_source = parts[2].transpose("presentation", "neuroid")
        rows = {
            name: level
            for name, level in _levels(test_source).items()
            if level[0] == ("presentation",)
        }
        prediction = _relabelled(
            model.predict(test_source.values),
            rows | neuroids,
            ("presentation", "neuroid"),
        )
        scores.append(correlated(prediction, parts[3]))
    joined = merged(scores)
    _summary(joined)
    return np.asarray(joined.transpose("split", "neuroid").values)


class _LabelTuple:
    """All labels of a row as one comparable label."""

    def __init__(self, labels: tuple[Any, ...]) -> None:
        self.labels = labels

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _LabelTuple) and self.labels == other.labels

    def __lt__(self, other: _LabelTuple) -> bool:
        return self.labels < other.labels

    def __hash__(self) -> int:
        return hash(self.labels)

    def __deepcopy__(self, _: Any) -> _LabelTuple:
        return self  # newer releases of xarray would copy each of them several times


def averaged(assembly: xr.DataArray) -> xr.DataArray:
    """Mean of the rows with equal labels, except for the repetition."""
    levels = _levels(assembly)
    names = [
        n
        for n, (dims, _) in levels.items()
        if dims == ("presentation",) and n != "repetition"
    ]
    joined = np.empty(assembly.sizes["presentation"], dtype=object)
    columns = [levels[name][1].tolist() for name in names]
    joined[:] = [_LabelTuple(labels) for labels in zip(*columns, strict=True)]
    neuroid = {
        name: level for name, level in levels.items() if level[0] == ("neuroid",)
    }
    plain = xr.DataArray(
        assembly.values,
        dims=assembly.dims,
        coords={**neuroid, "together": ("presentation", joined)},
    )
    mean = plain.groupby("together").mean("presentation")
    rows = list(zip(*(label.labels for label in mean["together"].values), strict=True))
    again = {
        name: (("presentation",), np.array(column))
        for name, column in zip(names, rows, strict=True)
    }
    values = mean.transpose("together", "neuroid").values
    return xr.DataArray(
        _relabelled(values, again | neuroid, ("presentation", "neuroid"))
    )


def consistent(assembly: xr.DataArray, folds: int) -> np.ndarray:
    """Split-half reliability over the first ``folds`` divisions of the repetitions, Spearman-Brown corrected."""
    from sklearn.model_selection import ShuffleSplit

    repetitions = np.unique(assembly["repetition"].values)
    scores = []
    for halves in ShuffleSplit(folds, train_size=0.5, random_state=1).split(
        repetitions
    ):
        first, second = (
            averaged(_rows(assembly, "repetition", repetitions[half]))
            for half in halves
        )
        r = correlated(first, second)
        scores.append(xr.apply_ufunc(lambda value: 2 * value / (1 + value), r))
    joined = merged(scores)
    _summary(joined)
    return np.asarray(joined.transpose("split", "neuroid").values)


def _dissimilar(assembly: xr.DataArray) -> xr.DataArray:
    """One minus the correlation of all pairs of rows, with the rows' labels, sorted by stimulus."""
    ids = assembly["stimulus_id"].values
    similar = xr.DataArray(np.corrcoef(assembly.values), dims=("presentation", "other"))
    matrix = (1 - similar).values
    order = np.argsort(ids)
    return xr.DataArray(
        matrix[np.ix_(order, order)],
        dims=("presentation", "other"),
        coords={"stimulus_id": ("presentation", ids[order])},
    )


def rdm(source: xr.DataArray, target: xr.DataArray) -> np.ndarray:
    """Spearman correlation of the upper triangles of two RDMs, which are copied by index."""
    a, b = _dissimilar(source), _dissimilar(target)
    if not (a["stimulus_id"].values == b["stimulus_id"].values).all():
        raise ValueError("the sides differ in stimulus_id")
    triangles = []
    for matrix in (a.values, b.values):
        np.testing.assert_almost_equal(np.nan_to_num(np.diag(matrix)), 0)
        triangles.append(matrix[np.triu_indices(len(matrix), k=1)])
    return np.array(stats.spearmanr(*triangles).statistic)


def _hsic(X: np.ndarray, Y: np.ndarray) -> float:
    """Unbiased HSIC from the features, with both Gram matrices computed for it."""
    n = len(X)
    K, L = (X @ X.T).copy(), (Y @ Y.T).copy()
    np.fill_diagonal(K, 0)
    np.fill_diagonal(L, 0)
    ones = np.ones((n, 1), dtype=K.dtype)
    k, m = K @ ones, L @ ones
    total = float((K * L).sum()) + float(k.sum() * m.sum()) / ((n - 1) * (n - 2))
    return (total - 2 * float((k * m).sum()) / (n - 2)) / (n * (n - 3))


def cka(source: xr.DataArray, target: xr.DataArray) -> np.ndarray:
    """Unbiased linear CKA of two sides sorted by stimulus: three times two Gram matrices."""
    source, target = ordered(source, "stimulus_id"), ordered(target, "stimulus_id")
    if not (source["stimulus_id"].values == target["stimulus_id"].values).all():
        raise ValueError("the sides differ in stimulus_id")
    X, Y = (
        side.transpose("presentation", "neuroid").values for side in (source, target)
    )
    own = _hsic(X, X) * _hsic(Y, Y)
    return np.array(_hsic(X, Y) / (np.sqrt(own) + 1e-12) if own > 0 else 0.0)
