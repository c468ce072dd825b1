"""Regression: how well a readout from one assembly predicts another, neuroid by neuroid, on held-out presentations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from pydantic import Field

from neuroledger.core.registry import metric
from neuroledger.core.splits import Split
from neuroledger.core.workspace import Array, Workspace
from neuroledger.errors import MetricError
from neuroledger.metrics.best_unit import BestUnit
from neuroledger.metrics.linear import Linear
from neuroledger.metrics.pls import Pls
from neuroledger.metrics.problem import Problem, Readout, column_correlation
from neuroledger.metrics.ridge import Ridge
from neuroledger.metrics.ridge_cv import RidgeCv

__all__ = ["regression"]

Estimator = Annotated[Pls | Ridge | RidgeCv | Linear | BestUnit, Field(discriminator="name")]
Correlation = Literal["pearson", "spearman"]


class _Usable(NamedTuple):
    """The target's columns that can be predicted, and why others cannot."""

    columns: NDArray[np.bool_]
    notes: tuple[str, ...]


@metric("regression", version=1)
def regression(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Estimator = Pls(),  # noqa: B008 - a frozen default
    correlation: Correlation = "pearson",
    time: Literal["none", "shared", "separate"] = "none",
    reverse: bool = False,
) -> xr.DataArray:
    """Correlation of predicted with measured responses on each split's test presentations.

    ``estimator`` is fitted on the train presentations from ``source`` (presentation, neuroid) to ``target``
    (presentation, neuroid), and predicts the test presentations; each neuroid's prediction is correlated with its
    responses. With a ``time_bin`` dimension on both sides, ``time`` says whether one set of weights serves all bins
    (``shared``: bins are further rows of the fit) or each bin has its own (``separate``). ``reverse`` predicts the
    source from the target.

    Returns
    -------
    xr.DataArray
        Correlations ``(split, neuroid)`` or ``(split, time_bin, neuroid)``. Neuroids whose responses are constant
        or have missing values are NaN and counted in the notes.

    Raises
    ------
    MetricError
        The sides do not fit together, features are missing, or no neuroid can be predicted.
    """
    if reverse:
        source, target = target, source
    source, target = _ordered(source, time), _ordered(target, time)
    if source.sizes["presentation"] != target.sizes["presentation"]:
        raise MetricError(
            f"source has {source.sizes['presentation']} presentations and target "
            f"{target.sizes['presentation']}; both sides need one row for each stimulus_id"
        )
    if time != "none" and source.sizes["time_bin"] != target.sizes["time_bin"]:
        raise MetricError(
            f"source has {source.sizes['time_bin']} time bins and target {target.sizes['time_bin']}; "
            "record both in the same bins"
        )
    facts = _Facts([], {})
    if time == "separate":
        bins = [
            _correlations(
                source[..., t].values,
                target[..., t].values,
                splits,
                workspace,
                estimator,
                correlation,
                1,
                facts,
            )
            for t in range(target.sizes["time_bin"])
        ]
        values = np.concatenate(bins, axis=1)
    else:
        count = 1 if time == "none" else target.sizes["time_bin"]
        values = _correlations(
            _stacked(source),
            _stacked(target),
            _repeated(splits, count),
            workspace,
            estimator,
            correlation,
            count,
            facts,
        )
    return _labelled(values, target, time, facts)


class _Facts(NamedTuple):
    notes: list[str]
    attrs: dict[str, Any]


def _correlations(
    X: Array,
    Y: Array,
    splits: Sequence[Split],
    workspace: Workspace,
    estimator: Readout,
    correlation: Correlation,
    bins: int,
    facts: _Facts,
) -> NDArray[np.float64]:
    """Correlations (split × bin × target column)."""
    if X.ndim != 2 or Y.ndim != 2:
        raise MetricError(
            "regression needs (presentation, neuroid); choose `time: shared` or `separate` for time bins"
        )
    usable = _usable(Y)
    facts.notes.extend(note for note in usable.notes if note not in facts.notes)
    if not usable.columns.any():
        raise MetricError(f"no neuroid can be predicted: {'; '.join(usable.notes)}")
    Y = np.ascontiguousarray(Y[:, usable.columns] if not usable.columns.all() else Y, dtype=np.float64)
    problem = Problem(X, Y, splits, workspace)
    result = np.full((len(splits), bins, len(usable.columns)), np.nan)
    alphas = []
    xp = workspace.xp
    for at, (split, predicted) in enumerate(zip(splits, estimator.predictions(problem), strict=True)):
        facts.notes.extend(note for note in predicted.notes if note not in facts.notes)
        if predicted.alpha is not None:
            alphas.append(predicted.alpha)
        measured = workspace.put(Y[split.test])
        idle = workspace.put(np.ptp(Y[split.train], axis=0)) == 0
        each = len(split.test) // bins
        for t in range(bins):
            a, b = predicted.values[t * each : (t + 1) * each], measured[t * each : (t + 1) * each]
            if correlation == "spearman":
                a, b = workspace.put(_ranks(workspace.take(a))), workspace.put(_ranks(workspace.take(b)))
            r = xp.where(idle, xp.nan, column_correlation(a, b, xp))
            result[at, t, usable.columns] = workspace.take(r)
    if alphas:
        facts.attrs["alpha"] = np.stack(alphas).tolist()
    short = [len(split.test) // bins for split in splits if len(split.test) // bins < 3]
    if short:
        facts.notes.append(f"{len(short)} of {len(splits)} splits test on fewer than 3 presentations")
    return result


def _usable(Y: Array) -> _Usable:
    missing = ~np.isfinite(Y).all(axis=0)
    with np.errstate(invalid="ignore"):
        constant = ~missing & (np.ptp(Y, axis=0) == 0)
    notes = [
        f"{int(which.sum())} of {Y.shape[1]} neuroids left out: {why}"
        for which, why in ((missing, "responses are missing"), (constant, "responses are constant"))
        if which.any()
    ]
    return _Usable(~missing & ~constant, tuple(notes))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=0), dtype=np.float64)


def _ordered(assembly: xr.DataArray, time: str) -> xr.DataArray:
    wanted = ("presentation", "neuroid") if time == "none" else ("presentation", "neuroid", "time_bin")
    if "time_bin" in assembly.dims and time == "none" and assembly.sizes["time_bin"] == 1:
        assembly = assembly.isel(time_bin=0)
    if set(assembly.dims) != set(wanted):
        raise MetricError(
            f"regression needs dimensions ({', '.join(wanted)}), not ({', '.join(map(str, assembly.dims))})"
            + ("; `time: shared` or `separate` scores time bins" if "time_bin" in assembly.dims else "")
        )
    return assembly if assembly.dims == wanted else assembly.transpose(*wanted)


def _stacked(assembly: xr.DataArray) -> Array:
    """Rows of all time bins under one another (time-bin major); a two-dimensional assembly as it is."""
    if assembly.ndim == 2:
        return assembly.values
    return np.concatenate([assembly[..., t].values for t in range(assembly.sizes["time_bin"])])


def _repeated(splits: Sequence[Split], bins: int) -> Sequence[Split]:
    """The same presentations in every time bin; the test rows stay grouped by bin."""
    if bins == 1:
        return splits
    rows = max(int(np.concatenate(split).max()) for split in splits) + 1
    return [
        Split(*(np.concatenate([part + t * rows for t in range(bins)]) for part in split)) for split in splits
    ]


def _labelled(values: NDArray[np.float64], target: xr.DataArray, time: str, facts: _Facts) -> xr.DataArray:
    coords = {
        name: coord
        for name, coord in target.coords.items()
        if coord.dims == ("neuroid",) or (time != "none" and coord.dims == ("time_bin",))
    }
    dims = ("split", "time_bin", "neuroid")
    if time == "none":
        values, dims = values[:, 0], ("split", "neuroid")  # type: ignore[assignment]
    attrs = {**facts.attrs, "notes": facts.notes}
    return xr.DataArray(values, dims=dims, coords={**coords, "split": np.arange(len(values))}, attrs=attrs)
