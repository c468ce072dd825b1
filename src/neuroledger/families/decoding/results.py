"""Results of decoding as a table of subject × session × pipeline, and statistics over data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.engine.record import read_all
from neuroledger.engine.samples import predictions_of
from neuroledger.errors import MetricError, RequestError
from neuroledger.families.decoding.decode_inputs import objective_of
from neuroledger.families.decoding.metrics.decoding_measures import MEASURES, Rows
from neuroledger.spec.catalog import open_catalog
from neuroledger.stats.score import Score

__all__ = [
    "adjusted_chance",
    "meta_analysis",
    "patterns",
    "recorded",
    "statistics",
    "table",
]

COLUMNS: Final = (
    "dataset",
    "pipeline",
    "subject",
    "session",
    "score",
    "time",
    "samples",
    "samples_test",
    "n_classes",
)
FEW: Final = 20
"""From this number of subjects on, pipelines are compared by Wilcoxon's test; below it, by permuting signs."""
EXACT: Final = 13
"""Up to this number of subjects, all sign permutations are used; above it, a random sample."""
DRAWS: Final = 10_000


def adjusted_chance(windows: int, classes: int, *, alpha: float = 0.05) -> float:
    """The accuracy that a decoder at chance exceeds with a probability of at most `alpha` [combrisson2015].

    It is a quantile of the binomial distribution: windows are independent, and classes equally frequent. Windows of one
    person, session or trial are alike, so that the interval of a score over people is wider than this.

    Parameters
    ----------
    windows, classes
        Number of tested windows, and of classes.

    Raises
    ------
    RequestError
        There are no windows, fewer than two classes, or `alpha` is not between 0 and 1.

    Examples
    --------
    >>> import neuroledger as nl
    >>> nl.decoding.adjusted_chance(100, 2)
    0.58
    """
    from scipy.stats import binom

    if windows < 1 or classes < 2 or not 0 < alpha < 1:
        raise RequestError(
            f"{windows} windows of {classes} classes at {alpha}: at least one window and two classes are needed, and "
            "an alpha between 0 and 1"
        )
    return float(binom.isf(alpha, windows, 1 / classes)) / windows


def table(
    scores: Mapping[str, Score] | Score,
    *,
    dataset: str = "",
    metric: str = "balanced_accuracy",
) -> pd.DataFrame:
    """One row for each subject, session and pipeline, in MOABB's column names.

    Parameters
    ----------
    scores
        Scores of `nl.decode`, by the name of the pipeline.
    dataset
        The value of the column `dataset`.
    metric
        The decoding metric that is computed within each subject and session, averaged over folds and training seeds.

    Returns
    -------
    pandas.DataFrame
        `score`; `time`, seconds to train one fold; `samples`, number of training windows; `samples_test`; `n_classes`. For
        a learning curve, there is one row for each size of the training part.

    Raises
    ------
    MetricError
        A score has no predictions.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> labels, people = np.tile(["left", "right"], 30), np.repeat(["a", "b", "c"], 20)
    >>> windows = rng.standard_normal((60, 4)) + np.where(labels == "left", 0.0, 1.5)[:, None]
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> pipelines = {"linear": LogisticRegression(), "bayes": GaussianNB()}
    >>> scores = {name: nl.decode(one, windows, labels, groups=people) for name, one in pipelines.items()}
    >>> results = nl.decoding.table(scores)
    >>> list(results.columns[:4])
    ['dataset', 'pipeline', 'subject', 'session']
    >>> len(results)
    6
    """
    if isinstance(scores, Score):
        scores_by_name = {"decoder": scores}
    else:
        scores_by_name = dict(scores)
    parts = []
    for pipeline, score in scores_by_name.items():
        predictions = score.predictions
        if not isinstance(predictions, xr.DataArray):
            raise MetricError(
                f"{pipeline}: the score has no predictions; decode with nl.decode"
            )
        parts.append(_result_rows(predictions, pipeline, dataset, metric))
    return pd.concat(parts, ignore_index=True)


def recorded(
    benchmark: str, *, metric: str | None = None, root: Path | None = None
) -> pd.DataFrame:
    """The same table from the records of a benchmark, for every model whose predictions are stored on this machine.

    ``root`` is the folder of the repository, by default the one that contains the working directory.

    Raises
    ------
    RequestError
        No record of the benchmark has stored predictions.
    """
    catalog = open_catalog(root)
    spec = catalog.benchmark(benchmark)
    names = [
        spec_or_name if isinstance(spec_or_name, str) else spec_or_name.name
        for spec_or_name in spec.all_metrics
    ]
    metric_name = metric or names[0]
    parts = []
    for record in read_all(catalog.root / "results" / "records"):
        if record.benchmark == benchmark and record.status == "scored":
            predictions = predictions_of(catalog.root, record.id, names[0])
            if predictions is not None and "truth" in predictions.coords:
                parts.append(
                    _result_rows(
                        predictions, record.model, str(spec.dataset), metric_name
                    )
                )
    if not parts:
        raise RequestError(
            f"no predictions of {benchmark} are stored on this machine: score it again with "
            f"`neuroledger run --benchmark {benchmark} --force`, or use `nl.score` and `table`"
        )
    return pd.concat(parts, ignore_index=True)


def _result_rows(
    predictions: xr.DataArray, pipeline: str, dataset: str, metric: str
) -> pd.DataFrame:
    _, measure = objective_of(metric)
    count = predictions.sizes["presentation"]

    def along(name: str, default: Any = "0") -> Array:
        if name in predictions.coords:
            return np.asarray(predictions[name].values)
        return np.full(count, default)

    facts = pd.DataFrame(
        {
            "subject": along("subject").astype(str),
            "session": along("session").astype(str),
            "samples": along("trained", -1),
        }
    )
    # Sizes of folds that are not part of a learning curve differ only by rounding.
    fold_sizes = (
        facts.assign(split=along("split", 0))
        .groupby(["subject", "session", "split"])["samples"]
        .first()
    )
    growing = fold_sizes.groupby(["subject", "session"]).agg(
        lambda values: values.max() > 1.5 * max(1, values.min())
    )
    curve = bool(growing.any())
    keys = list(facts.columns[:2])
    if curve:
        keys.append("samples")
    facts["seed"], facts["split"] = along("seed", 0), along("split", 0)
    choices = (
        np.asarray(predictions["choice"].values).astype(str)
        if "choice" in predictions.dims
        else None
    )
    truth = np.asarray(predictions["truth"].values)
    seconds = predictions.encoding.get("seconds")
    rows = []
    for names, part in facts.groupby([*keys, "seed", "split"], sort=True):
        row_numbers = part.index.to_numpy()
        fold_rows = Rows(
            truth[row_numbers],
            predictions.values[row_numbers],
            choices,
            along("subject").astype(str)[row_numbers],
            along("stimulus_id").astype(str)[row_numbers],
        )
        value = MEASURES[measure](fold_rows)(np.ones(len(row_numbers)))
        rows.append(
            {
                **dict(zip(keys, names, strict=False)),
                "samples": part["samples"].iloc[0],
                "score": value,
                "samples_test": len(row_numbers),
            }
        )
    grouped = (
        pd.DataFrame(rows).groupby(keys, sort=True, as_index=False)
        if curve
        else pd.DataFrame(rows).groupby(keys, sort=True)
    )
    means = grouped.mean().reset_index(drop=curve)
    means[["samples", "samples_test"]] = (
        means[["samples", "samples_test"]].round().astype(int)
    )
    labelled = truth.ndim == 1 and truth.dtype.kind in "USOib"
    means["n_classes"] = len(np.unique(truth.astype(str))) if labelled else 0
    means["time"] = float(np.mean(seconds)) if seconds else np.nan
    means["dataset"], means["pipeline"] = dataset, pipeline
    return means[list(COLUMNS)]


def statistics(results: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Paired one-sided comparisons of all pairs of pipelines on each data set, by MOABB's rules, with sessions averaged.

    With fewer than 20 subjects, the sum of the differences is compared with sums under permuted signs: all permutations for
    up to 13 subjects, else 10,000 drawn by `seed`. From 20 subjects on, Wilcoxon's signed-rank test is used, in the
    direction of the ranks (MOABB uses that of the mean, which one subject can reverse). `smd` is the mean difference in its
    own standard deviations (with n - 1), and NaN for one subject.

    Returns
    -------
    pandas.DataFrame
        `dataset`, `pipe1`, `pipe2`, `p` (that `pipe1` is not better), `smd`, `nsub`.

    Raises
    ------
    RequestError
        A pipeline lacks a subject that another one has, or a score is NaN.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> labels, people = np.tile(["left", "right"], 30), np.repeat(["a", "b", "c"], 20)
    >>> windows = rng.standard_normal((60, 4)) + np.where(labels == "left", 0.0, 1.5)[:, None]
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> pipelines = {"linear": LogisticRegression(), "bayes": GaussianNB()}
    >>> scores = {name: nl.decode(one, windows, labels, groups=people) for name, one in pipelines.items()}
    >>> results = nl.decoding.table(scores)
    >>> list(nl.decoding.statistics(results).columns)
    ['dataset', 'pipe1', 'pipe2', 'p', 'smd', 'nsub']
    """
    means = results.groupby(["dataset", "pipeline", "subject"], sort=False)[
        "score"
    ].mean()
    rows = []
    for dataset, part in means.groupby("dataset", sort=False):
        wide = part.droplevel("dataset").unstack("pipeline")
        if wide.isna().to_numpy().any():
            missing = [
                f"{name}: {', '.join(wide.index[wide[name].isna()][:3])}"
                for name in wide
                if wide[name].isna().any()
            ]
            raise RequestError(
                f"{dataset}: pipelines must have scores of the same subjects; missing are {'; '.join(missing)}"
            )
        rng = np.random.RandomState(seed)
        flips = (
            rng.choice([1, -1], size=(DRAWS, len(wide)))
            if EXACT < len(wide) < FEW
            else None
        )
        for first, second in product(wide.columns, repeat=2):
            difference = _without_rounding((wide[first] - wide[second]).to_numpy())
            p = np.nan if first == second else _p_better(difference, flips)
            effect = np.nan if first == second else _effect(difference)
            rows.append(
                {
                    "dataset": dataset,
                    "pipe1": first,
                    "pipe2": second,
                    "p": p,
                    "smd": effect,
                    "nsub": len(wide),
                }
            )
    return pd.DataFrame(rows)


def _without_rounding(difference: Floats) -> Floats:
    """Differences rounded to 12 digits, so that equal shares of trials are ties."""
    size = float(np.abs(difference).max())
    if size > 0:
        return np.round(difference / size, 12) * size
    return difference


def _effect(difference: Floats) -> float:
    """Mean difference in its own standard deviations: 0 for no difference, infinite if all differences are equal."""
    if len(difference) < 2:
        return np.nan
    mean = float(difference.mean())
    deviation = float(difference.std(ddof=1))
    if deviation > 1e-9 * abs(mean):
        return mean / deviation
    if mean:
        return float(np.sign(mean) * np.inf)
    return 0.0


def _p_better(difference: Floats, flips: Array | None) -> float:
    """The one-sided p-value of the difference under random signs, strictly between 0 and 1 as Stouffer's method needs."""
    from scipy.stats import wilcoxon

    if len(difference) >= FEW:
        if not difference.any():
            return 0.5
        better, worse = (
            float(wilcoxon(difference, alternative=side).pvalue)
            for side in ("greater", "less")
        )
        p = better if better <= worse else 1 - worse
        return float(min(max(p, np.nextafter(0.0, 1.0)), np.nextafter(1.0, 0.0)))
    # Tolerate rounding: sums of equal shares may differ in the last digits.
    least = difference.sum() - 1e-9 * np.abs(difference).sum()
    if flips is None:
        signs = np.array(list(product([-1, 1], repeat=len(difference))))
        hits = int(((difference * signs).sum(axis=1) >= least).sum())
        draws = len(signs)
    else:
        hits = 1 + int(((difference * flips).sum(axis=1) >= least).sum())
        draws = len(flips)
    return min(hits, draws - 1) / draws


def meta_analysis(results: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Stouffer's p and the mean effect of all pairs of pipelines over data sets, weighted by the root of subjects.

    Data sets with one subject have no effect, and contribute to `p` only.

    Returns
    -------
    pandas.DataFrame
        `pipe1`, `pipe2`, `p`, `smd`, `datasets`, `nsub`.

    Examples
    --------
    >>> import pandas as pd
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> labels, people = np.tile(["left", "right"], 30), np.repeat(["a", "b", "c"], 20)
    >>> windows = rng.standard_normal((60, 4)) + np.where(labels == "left", 0.0, 1.5)[:, None]
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.naive_bayes import GaussianNB
    >>> pipelines = {"linear": LogisticRegression(), "bayes": GaussianNB()}
    >>> scores = {name: nl.decode(one, windows, labels, groups=people) for name, one in pipelines.items()}
    >>> results = nl.decoding.table(scores)
    >>> both = pd.concat([results.assign(dataset="mine"), results.assign(dataset="theirs")])
    >>> nl.decoding.meta_analysis(both)[["pipe1", "pipe2"]].to_dict("records")
    [{'pipe1': 'bayes', 'pipe2': 'linear'}, {'pipe1': 'linear', 'pipe2': 'bayes'}]
    """
    from scipy.stats import norm

    by_dataset = statistics(results, seed=seed)
    rows = []
    for (first, second), part in by_dataset[
        by_dataset["pipe1"] != by_dataset["pipe2"]
    ].groupby(["pipe1", "pipe2"]):
        weights = np.sqrt(part["nsub"].to_numpy())
        z = norm.isf(part["p"].to_numpy())
        p = (
            norm.sf(weights @ z / np.linalg.norm(weights))
            if len(part) > 1
            else float(part["p"].iloc[0])
        )
        effects = part["smd"].to_numpy()
        has = ~np.isnan(effects)
        smd = (
            float(weights[has] @ effects[has] / weights[has].sum())
            if has.any()
            else np.nan
        )
        rows.append(
            {
                "pipe1": first,
                "pipe2": second,
                "p": float(p),
                "smd": smd,
                "datasets": len(part),
                "nsub": part["nsub"].sum(),
            }
        )
    return pd.DataFrame(rows)


def patterns(estimator: Any, x: Array) -> Floats:
    r"""Activation patterns of a fitted linear decoder of amplitudes, (class, channel, sample) or (1, channel, sample).

    Weights of a decoder also suppress noise; the pattern :math:`\Sigma_x W \Sigma_s^{-1}` is the activity of the channels
    that belongs to the decoded signal [haufe2014]. With one output, its sign is that of the second class.

    Parameters
    ----------
    estimator
        A fitted estimator with `coef_`, or a scikit-learn pipeline of scalers and such an estimator.
    x
        The windows that it was fitted to, (window, channel, sample) or (window, feature).

    Raises
    ------
    RequestError
        The estimator is not linear in the values of the windows.

    Examples
    --------
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> labels, people = np.tile(["left", "right"], 30), np.repeat(["a", "b", "c"], 20)
    >>> windows = rng.standard_normal((60, 4)) + np.where(labels == "left", 0.0, 1.5)[:, None]
    >>> from sklearn.linear_model import LogisticRegression
    >>> fitted = LogisticRegression().fit(windows, labels)
    >>> nl.decoding.patterns(fitted, windows).shape
    (1, 4, 1)
    """
    x = floats(x)
    flat = x.reshape(len(x), -1)
    steps: Sequence[Any] = [
        step for _, step in getattr(estimator, "steps", [("", estimator)])
    ]
    scale = np.ones(flat.shape[1])
    for step in steps[:-1]:
        if not hasattr(step, "scale_") or hasattr(step, "components_"):
            raise RequestError(
                f"patterns: {type(step).__name__} is not a scaler: pass a linear estimator of the windows' values"
            )
        scale = scale / step.scale_
    if not hasattr(steps[-1], "coef_"):
        raise RequestError(
            f"patterns: {type(steps[-1]).__name__} has no coef_: it is not a linear estimator, or not fitted"
        )
    weights = np.atleast_2d(steps[-1].coef_) * scale
    if weights.shape[1] != flat.shape[1]:
        raise RequestError(
            f"patterns: {weights.shape[1]} weights for {flat.shape[1]} values of a window"
        )
    centred = flat - flat.mean(axis=0)
    signals = centred @ weights.T
    # The covariance of values and signals avoids the covariance matrix of all values.
    activity = (centred.T @ signals) @ np.linalg.pinv(signals.T @ signals)
    return np.asarray(activity.T.reshape(len(weights), x.shape[1], -1))
