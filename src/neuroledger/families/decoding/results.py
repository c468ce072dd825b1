"""Results of decoding as a table of subject × session × pipeline, and what follows from it over data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Array, Floats
from neuroledger.engine.record import read_all
from neuroledger.engine.samples import predictions_of
from neuroledger.errors import MetricError, RequestError
from neuroledger.families.decoding.decode_inputs import objective_of
from neuroledger.families.decoding.metrics.decoding_measures import MEASURES, Rows
from neuroledger.spec.catalog import open_catalog
from neuroledger.stats.score import Score

__all__ = ["meta_analysis", "patterns", "recorded", "statistics", "table"]

COLUMNS: Final = (
    "dataset", "pipeline", "subject", "session", "score", "time", "samples", "samples_test", "n_classes",
)  # fmt: skip
FEW: Final = 20
"""People from which on pipelines are compared by Wilcoxon's test, and fewer by permuting signs."""
EXACT: Final = 13
"""People up to whom all signs are permuted, and of more a sample."""
DRAWS: Final = 10_000


def table(
    scores: Mapping[str, Score] | Score, *, dataset: str = "", metric: str = "balanced_accuracy"
) -> pd.DataFrame:
    """One row for each subject, session and pipeline, in MOABB's column names.

    Parameters
    ----------
    scores
        Of `nl.decode`, by the name of the pipeline.
    dataset
        What the column `dataset` says.
    metric
        The decoding metric that is computed within each subject and session; a mean over folds and training seeds.

    Returns
    -------
    pandas.DataFrame
        `score`; `time`, seconds to train one fold; `samples`, windows that were trained on; `samples_test`; `n_classes`. Of
        a learning curve, one row for each size of the training part too.

    Raises
    ------
    MetricError
        A score holds no predictions.
    """
    named = {"decoder": scores} if isinstance(scores, Score) else dict(scores)
    parts = []
    for pipeline, score in named.items():
        held = None if score.samples is None else score.samples.attrs.get("predictions")
        if not isinstance(held, xr.DataArray):
            raise MetricError(f"{pipeline}: the score holds no predictions; decode with nl.decode")
        parts.append(_rows(held, pipeline, dataset, metric))
    return pd.concat(parts, ignore_index=True)


def recorded(benchmark: str, *, metric: str | None = None) -> pd.DataFrame:
    """The same table from the records of a benchmark, of every model whose predictions are kept on this machine.

    Raises
    ------
    RequestError
        No record of the benchmark has predictions here.
    """
    catalog = open_catalog()
    spec = catalog.benchmark(benchmark)
    names = [one if isinstance(one, str) else one.name for one in spec.all_metrics]
    wanted = metric or names[0]
    parts = []
    for record in read_all(catalog.root / "results" / "records"):
        if record.benchmark == benchmark and record.status == "scored":
            held = predictions_of(catalog.root, record.id, names[0])
            if held is not None and "truth" in held.coords:
                parts.append(_rows(held, record.model, str(spec.dataset), wanted))
    if not parts:
        raise RequestError(
            f"no predictions of {benchmark} are kept here: score it once more on this machine, "
            f"`neuroledger run --benchmark {benchmark} --force`, or `nl.score` and `table`"
        )
    return pd.concat(parts, ignore_index=True)


def _rows(held: xr.DataArray, pipeline: str, dataset: str, metric: str) -> pd.DataFrame:
    _, measure = objective_of(metric)
    count = held.sizes["presentation"]

    def along(name: str, default: Any = "0") -> Array:
        return np.asarray(held[name].values) if name in held.coords else np.full(count, default)

    about = pd.DataFrame(
        {
            "subject": along("subject").astype(str),
            "session": along("session").astype(str),
            "samples": along("trained", -1),
        }
    )
    # Of folds that do not grow by design, sizes differ by rounding.
    own = about.assign(split=along("split", 0)).groupby(["subject", "session", "split"])["samples"].first()
    sizes = own.groupby(["subject", "session"]).agg(lambda values: values.max() > 1.5 * max(1, values.min()))
    curve = bool(sizes.any())
    keys = [*about.columns[:2], *(["samples"] if curve else [])]
    about["seed"], about["split"] = along("seed", 0), along("split", 0)
    choices = np.asarray(held["choice"].values).astype(str) if "choice" in held.dims else None
    truth = np.asarray(held["truth"].values)
    seconds = held.encoding.get("seconds")
    rows = []
    for names, part in about.groupby([*keys, "seed", "split"], sort=True):
        at = part.index.to_numpy()
        one = Rows(
            truth[at],
            held.values[at],
            choices,
            along("subject").astype(str)[at],
            along("stimulus_id").astype(str)[at],
        )
        value = MEASURES[measure](one)(np.ones(len(at)))
        rows.append(
            {
                **dict(zip(keys, names, strict=False)),
                "samples": part["samples"].iloc[0],
                "score": value,
                "samples_test": len(at),
            }
        )
    found = (
        pd.DataFrame(rows).groupby(keys, sort=True, as_index=False)
        if curve
        else pd.DataFrame(rows).groupby(keys, sort=True)
    )
    means = found.mean().reset_index(drop=curve)
    means[["samples", "samples_test"]] = means[["samples", "samples_test"]].round().astype(int)
    labelled = truth.ndim == 1 and truth.dtype.kind in "USOib"
    means["n_classes"] = len(np.unique(truth.astype(str))) if labelled else 0
    means["time"] = float(np.mean(seconds)) if seconds else np.nan
    means["dataset"], means["pipeline"] = dataset, pipeline
    return means[list(COLUMNS)]


def statistics(results: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Paired comparisons of every two pipelines on each data set, by MOABB's rules; one-sided, sessions averaged.

    Fewer than 20 people: the sum of the differences against that with permuted signs, all of them for up to 13 people,
    else 10,000 drawn by `seed`. From 20 people on, Wilcoxon's signed ranks, in the direction of the ranks (MOABB takes that
    of the mean, which one person can turn round). `smd` is the mean difference in its own standard deviations (divided
    by n - 1), and not a number for one person.

    Returns
    -------
    pandas.DataFrame
        `dataset`, `pipe1`, `pipe2`, `p` (that `pipe1` is not better), `smd`, `nsub`.

    Raises
    ------
    RequestError
        A pipeline lacks a person whom another one has, or a score is not a number.
    """
    means = results.groupby(["dataset", "pipeline", "subject"], sort=False)["score"].mean()
    rows = []
    for dataset, part in means.groupby("dataset", sort=False):
        wide = part.droplevel("dataset").unstack("pipeline")
        if wide.isna().to_numpy().any():
            lost = [
                f"{name}: {', '.join(wide.index[wide[name].isna()][:3])}"
                for name in wide
                if wide[name].isna().any()
            ]
            raise RequestError(
                f"{dataset}: pipelines are compared on the same people, and some lack a score: {'; '.join(lost)}"
            )
        rng = np.random.RandomState(seed)
        flips = rng.choice([1, -1], size=(DRAWS, len(wide))) if EXACT < len(wide) < FEW else None
        for one, other in product(wide.columns, repeat=2):
            difference = _ties((wide[one] - wide[other]).to_numpy())
            p = np.nan if one == other else _better(difference, flips)
            effect = np.nan if one == other else _effect(difference)
            rows.append(
                {"dataset": dataset, "pipe1": one, "pipe2": other, "p": p, "smd": effect, "nsub": len(wide)}
            )
    return pd.DataFrame(rows)


def _ties(difference: Floats) -> Floats:
    """Differences without the rounding that tells equal ones apart: shares of trials are often equal."""
    size = float(np.abs(difference).max())
    return np.round(difference / size, 12) * size if size > 0 else difference


def _effect(difference: Floats) -> float:
    """Mean difference in its own standard deviations: 0 where there is none, infinite where everybody's is the same."""
    if len(difference) < 2:
        return np.nan
    mean, deviation = float(difference.mean()), float(difference.std(ddof=1))
    if deviation > 1e-9 * abs(mean):
        return mean / deviation
    return float(np.sign(mean) * np.inf) if mean else 0.0


def _better(difference: Floats, flips: Array | None) -> float:
    """The chance of so large a difference if signs were chance; strictly between 0 and 1, as Stouffer's method needs."""
    from scipy.stats import wilcoxon

    if len(difference) >= FEW:
        if not difference.any():
            return 0.5
        better, worse = (float(wilcoxon(difference, alternative=side).pvalue) for side in ("greater", "less"))
        p = better if better <= worse else 1 - worse
        return float(min(max(p, np.nextafter(0.0, 1.0)), np.nextafter(1.0, 0.0)))
    # Sums of equal shares are equal but for rounding.
    least = difference.sum() - 1e-9 * np.abs(difference).sum()
    if flips is None:
        signs = np.array(list(product([-1, 1], repeat=len(difference))))
        hits, draws = int(((difference * signs).sum(axis=1) >= least).sum()), len(signs)
    else:
        hits, draws = 1 + int(((difference * flips).sum(axis=1) >= least).sum()), len(flips)
    return min(hits, draws - 1) / draws


def meta_analysis(results: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Every two pipelines over the data sets that have both: Stouffer's p and the mean effect, weights the root of people.

    Data sets of one person have no effect, and count for `p` alone.

    Returns
    -------
    pandas.DataFrame
        `pipe1`, `pipe2`, `p`, `smd`, `datasets`, `nsub`.
    """
    from scipy.stats import norm

    each = statistics(results, seed=seed)
    rows = []
    for (one, other), part in each[each["pipe1"] != each["pipe2"]].groupby(["pipe1", "pipe2"]):
        weights = np.sqrt(part["nsub"].to_numpy())
        z = norm.isf(part["p"].to_numpy())
        p = norm.sf(weights @ z / np.linalg.norm(weights)) if len(part) > 1 else float(part["p"].iloc[0])
        effects = part["smd"].to_numpy()
        has = ~np.isnan(effects)
        smd = float(weights[has] @ effects[has] / weights[has].sum()) if has.any() else np.nan
        rows.append(
            {
                "pipe1": one,
                "pipe2": other,
                "p": float(p),
                "smd": smd,
                "datasets": len(part),
                "nsub": part["nsub"].sum(),
            }
        )
    return pd.DataFrame(rows)


def patterns(estimator: Any, x: Array) -> Floats:
    r"""What a fitted linear decoder of amplitudes reads, as activity: (class, channel, sample) or (1, channel, sample).

    Weights say what is subtracted as much as what is read; the pattern :math:`\Sigma_x W \Sigma_s^{-1}` is what the channels
    show of the decoded signal [haufe2014]. Of one output, its sign is that of the second class.

    Parameters
    ----------
    estimator
        Fitted, with `coef_`; or a scikit-learn pipeline of scalers and such an estimator.
    x
        The windows that it was fitted to, (window, channel, sample) or (window, feature).

    Raises
    ------
    RequestError
        The estimator is not linear in the values of the windows.
    """
    x = np.asarray(x, dtype=float)
    flat = x.reshape(len(x), -1)
    steps: Sequence[Any] = [step for _, step in getattr(estimator, "steps", [("", estimator)])]
    scale = np.ones(flat.shape[1])
    for step in steps[:-1]:
        if not hasattr(step, "scale_") or hasattr(step, "components_"):
            raise RequestError(
                f"patterns: {type(step).__name__} is no scaler: give a linear estimator of the windows' values"
            )
        scale = scale / step.scale_
    if not hasattr(steps[-1], "coef_"):
        raise RequestError(
            f"patterns: {type(steps[-1]).__name__} has no coef_: it is not a linear estimator, or not fitted"
        )
    weights = np.atleast_2d(steps[-1].coef_) * scale
    if weights.shape[1] != flat.shape[1]:
        raise RequestError(f"patterns: {weights.shape[1]} weights for {flat.shape[1]} values of a window")
    centred = flat - flat.mean(axis=0)
    signals = centred @ weights.T
    # The covariance of values and signals, without that of all values.
    found = (centred.T @ signals) @ np.linalg.pinv(signals.T @ signals)
    return np.asarray(found.T.reshape(len(weights), x.shape[1], -1))
