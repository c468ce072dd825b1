"""Measures of decoding: each prepares the predictions once, and returns a function from weights of rows to a score."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from neuroledger.data.arrays import Array, Booleans, Floats, Indices, floats
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.decoding.training.text_reading import edit_distance

__all__ = ["MEASURES", "Measure", "Rows", "edit_distance", "retrieval_hits"]

Measure = Callable[[Floats], float]

# Variation below this share of the range of numbers, or of the size of predictions, is rounding.
_NARROW, _ROUNDING = 1e-12, 1e-14
# The correlation of two rows is always 1 or -1.
FEWEST_CORRELATED = 3


@dataclass(frozen=True)
class Rows:
    """Predictions and true values.

    Attributes
    ----------
    truth
        Labels, numbers or texts (row,); zeros and ones (row, choice) for several labels; embeddings (row, dimension).
    answer
        Predictions (row,) of the same kind, or scores of `choices` (row, choice), or embeddings (row, dimension).
    choices
        The labels of the columns of `answer`, if it contains scores.
    subject, stimulus
        The subject and the stimulus of each row; used by retrieval.
    """

    truth: Array
    answer: Array
    choices: Array | None
    subject: Array
    stimulus: Array

    @property
    def labels(self) -> Array:
        """The predicted label of each row: the prediction itself, or the choice with the highest score."""
        if self.choices is None:
            return as_text(self.answer)
        return np.asarray(as_text(self.choices)[np.argmax(self.answer, axis=1)])


def accuracy(rows: Rows) -> Measure:
    r"""Share of rows whose predicted label is the true one: :math:`\sum w_i [\hat y_i = y_i] / \sum w_i`."""
    hit = (rows.labels == as_text(rows.truth)).astype(float)
    return lambda weights: _mean(hit, weights)


def balanced_accuracy(rows: Rows) -> Measure:
    r"""Mean recall over the classes that occur: :math:`\frac{1}{K} \sum_k P(\hat y = k \mid y = k)` [brodersen2010]."""
    hit = (rows.labels == as_text(rows.truth)).astype(float)
    names, codes = np.unique(as_text(rows.truth), return_inverse=True)

    def score(weights: Floats) -> float:
        total = np.bincount(codes, weights, len(names))
        right = np.bincount(codes, weights * hit, len(names))
        if (total > 0).any():
            return float(np.mean(right[total > 0] / total[total > 0]))
        return float("nan")

    return score


def cohen_kappa(rows: Rows) -> Measure:
    r"""Agreement beyond chance, :math:`\kappa = (p_o - p_e) / (1 - p_e)` [cohen1960].

    :math:`p_o` is the share of right labels and :math:`p_e` that of independent labels with the same frequencies; undefined
    if there is one label only.
    """
    truth = as_text(rows.truth)
    labels = rows.labels
    names, codes = np.unique(np.concatenate([truth, labels]), return_inverse=True)
    true, predicted = np.split(codes, 2)
    hit = (true == predicted).astype(float)

    def score(weights: Floats) -> float:
        total = weights.sum()
        if total <= 0:
            return float("nan")
        of_truth = np.bincount(true, weights, len(names)) / total
        of_labels = np.bincount(predicted, weights, len(names)) / total
        by_chance = float(of_truth @ of_labels)
        if by_chance >= 1:
            return float("nan")
        return (_mean(hit, weights) - by_chance) / (1 - by_chance)

    return score


def macro_f1(rows: Rows) -> Measure:
    r"""Mean over classes of :math:`2 TP / (2 TP + FP + FN)`; classes neither true nor predicted are excluded.

    With several labels per row, a label is predicted if its score is above one half.
    """
    true, predicted = _indicators(rows)

    def score(weights: Floats) -> float:
        hits = weights @ (true & predicted)
        total = weights @ true + weights @ predicted
        if (total > 0).any():
            return float(np.mean(2 * hits[total > 0] / total[total > 0]))
        return float("nan")

    return score


def auroc(rows: Rows) -> Measure:
    r"""Area under the receiver operating characteristic, :math:`P(s^+ > s^-) + P(s^+ = s^-)/2`.

    For two choices, that of the second one; for more, the mean over one-versus-rest areas. Classes that all or no rows of
    a resample have are excluded.

    Raises
    ------
    MetricError
        The predictions are labels, not scores for each choice.
    """
    if rows.choices is None:
        raise MetricError(
            "the area under the curve needs a score for each choice; this model answers with labels only"
        )
    truth = as_text(rows.truth)
    columns = (
        range(len(rows.choices)) if len(rows.choices) > 2 else [len(rows.choices) - 1]
    )
    choices = as_text(rows.choices)
    curves = [
        _area(rows.answer[:, k].astype(float), truth == choices[k]) for k in columns
    ]

    def score(weights: Floats) -> float:
        areas = np.array([curve(weights) for curve in curves])
        if np.isfinite(areas).any():
            return float(np.nanmean(areas))
        return float("nan")

    return score


def pearson_r(rows: Rows) -> Measure:
    """Pearson correlation of predictions and true values, mean over columns; undefined if either is constant.

    Raises
    ------
    MetricError
        There are fewer than 3 rows.
    """
    truth, answer = _columns(rows)
    if len(truth) < FEWEST_CORRELATED:
        raise MetricError(
            f"a correlation of {len(truth)} predictions is always 1 or -1; at least {FEWEST_CORRELATED} are needed: test "
            "more at once (fewer folds, or `pool`)"
        )
    truth = truth - truth[:1]
    narrow = _NARROW * np.abs(truth).max(axis=0)

    def score(weights: Floats) -> float:
        share = weights / weights.sum() if weights.sum() > 0 else weights
        x = answer - share @ answer
        y = truth - share @ truth
        own = np.sqrt(share @ x**2)
        spread = np.sqrt(share @ y**2)
        floor = np.maximum(_ROUNDING * np.sqrt(share @ answer**2), _NARROW * spread)
        with np.errstate(divide="ignore", invalid="ignore"):
            r = share @ (x * y) / (own * spread)
            return float(
                np.mean(np.where((own > floor) & (spread > narrow), r, np.nan))
            )

    return score


def rmse(rows: Rows) -> Measure:
    r"""Root of the mean squared error :math:`\sqrt{\overline{(\hat y - y)^2}}`, over all columns, in units of the truth."""
    truth, answer = _columns(rows)
    squares = ((answer - truth) ** 2).mean(axis=1)
    return lambda weights: float(np.sqrt(_mean(squares, weights)))


def mae(rows: Rows) -> Measure:
    r"""Mean absolute error :math:`\overline{|\hat y - y|}`, over all columns, in units of the truth."""
    truth, answer = _columns(rows)
    errors = np.abs(answer - truth).mean(axis=1)
    return lambda weights: _mean(errors, weights)


def binned_mae(rows: Rows, edges: tuple[float, ...] = ()) -> Measure:
    r"""Mean over bins of the true values, with these `edges`, of the mean absolute error in each, in units of the truth.

    All bins have the same weight; rows outside the edges and empty bins are excluded. A bin includes its lower edge; the
    last one includes its upper edge too, since values may be capped there.
    """
    truth, answer = _columns(rows)
    errors = np.abs(answer - truth).mean(axis=1)
    bins = np.digitize(truth[:, 0], edges[1:-1])
    inside = (truth[:, 0] >= edges[0]) & (truth[:, 0] <= edges[-1])
    if not inside.any():
        raise MetricError(f"no true value is between the edges {edges}")

    def score(weights: Floats) -> float:
        counted = np.where(inside, weights, 0.0)
        total = np.bincount(np.where(inside, bins, 0), counted, len(edges) - 1)
        error_sums = np.bincount(
            np.where(inside, bins, 0), counted * errors, len(edges) - 1
        )
        if (total > 0).any():
            return float(np.mean(error_sums[total > 0] / total[total > 0]))
        return float("nan")

    return score


def r2(rows: Rows) -> Measure:
    r"""Variance explained :math:`1 - \sum (\hat y - y)^2 / \sum (y - \bar y)^2`, mean over columns."""
    truth, answer = _columns(rows)
    squares = (answer - truth) ** 2
    truth = truth - truth[:1]
    narrow = (_NARROW * np.abs(truth).max(axis=0)) ** 2

    def score(weights: Floats) -> float:
        share = weights / weights.sum() if weights.sum() > 0 else weights
        spread = share @ (truth - share @ truth) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(
                np.mean(np.where(spread > narrow, 1 - share @ squares / spread, np.nan))
            )

    return score


def bits_per_spike(rows: Rows) -> Measure:
    r"""Co-smoothing: the gain in log-likelihood of spikes under predicted rates over each neuron's mean rate, in bits.

    :math:`\sum [(y \log \lambda - \lambda) - (y \log \bar y - \bar y)] / (\ln 2 \sum y)` over windows and neurons, for
    counts :math:`y`, predicted rates :math:`\lambda` and the mean :math:`\bar y` of the tested windows [peiye2021]. Rates
    are at least 1e-9.

    Raises
    ------
    MetricError
        A true count is negative.
    """
    truth, answer = _columns(rows)
    if (truth < 0).any():
        raise MetricError(
            "spike counts cannot be negative: bits per spike need counts of spikes as truth"
        )
    rates = np.maximum(answer, 1e-9)
    explained = truth * np.log(rates) - rates

    def score(weights: Floats) -> float:
        counts = weights @ truth
        spikes = float(counts.sum())
        if spikes <= 0:
            return float("nan")
        mean = np.maximum(counts / weights.sum(), 1e-9)
        null = counts * np.log(mean) - weights.sum() * mean
        return float(((weights @ explained) - null).sum() / (np.log(2) * spikes))

    return score


def retrieval(rows: Rows, k: int = 5) -> Measure:
    r"""Share of (subject, stimulus) pairs whose stimulus is among the `k` candidates most similar to the prediction.

    Candidates are the mean true embedding :math:`y_c` of each stimulus; predictions are averaged within a pair;
    the score is :math:`x \cdot y_c / |y_c|`; ties count half: the rank is
    :math:`(\#\{s > s^*\} + \#\{s \ge s^*\} - 1)/2` from zero, and a hit is a rank below `k`. A constant prediction
    scores `k`/candidates only by chance of ties. The weight of a pair is the mean weight of its rows.
    """
    hit, pair = retrieval_hits(rows, k)
    count = np.bincount(pair, minlength=len(hit))
    return lambda weights: _mean(hit, np.bincount(pair, weights, len(hit)) / count)


def retrieval_hits(rows: Rows, k: int = 5) -> tuple[Floats, Indices]:
    """Return whether each pair of :func:`retrieval` is a hit, (pair,), and the pair of each row, (row,)."""
    truth, answer = _columns(rows)
    stimuli, stimulus_codes = np.unique(rows.stimulus.astype(str), return_inverse=True)
    if len(stimuli) <= k:
        raise MetricError(
            f"retrieval: any answer is among the best {k} of {len(stimuli)} candidates; score more stimuli at once "
            "(fewer folds, or `pool`), or take a smaller k"
        )
    candidates = _group_mean(truth, stimulus_codes, len(stimuli))
    norms = np.linalg.norm(candidates, axis=1)
    if (norms == 0).any():
        raise MetricError("retrieval: a candidate embedding is zero everywhere")
    pairs, pair = np.unique(
        np.stack([rows.subject.astype(str), stimulus_codes.astype(str)], axis=1),
        axis=0,
        return_inverse=True,
    )
    pair = pair.ravel()
    own = pairs[:, 1].astype(int)
    scores = _group_mean(answer, pair, len(pairs)) @ (candidates / norms[:, None]).T
    true = scores[np.arange(len(pairs)), own][:, None]
    rank = ((scores > true).sum(axis=1) + (scores >= true).sum(axis=1) - 1) / 2
    return (rank < k).astype(float), pair


def word_error_rate(rows: Rows, symbols: str = "word") -> Measure:
    """Edits (substitutions, insertions, deletions) from predicted to true texts, per true word or character."""
    pairs = [
        (_symbols(t, symbols), _symbols(a, symbols))
        for t, a in zip(rows.truth, rows.answer, strict=True)
    ]
    edits = np.array(
        [edit_distance(true, predicted) for true, predicted in pairs], dtype=float
    )
    length = np.array([len(true) for true, _ in pairs], dtype=float)

    def score(weights: Floats) -> float:
        total = float(weights @ length)
        if total > 0:
            return float(weights @ edits) / total
        return float("nan")

    return score


MEASURES: Mapping[str, Callable[..., Measure]] = MappingProxyType(
    {
        "accuracy": accuracy,
        "balanced_accuracy": balanced_accuracy,
        "macro_f1": macro_f1,
        "cohen_kappa": cohen_kappa,
        "auroc": auroc,
        "pearson_r": pearson_r,
        "rmse": rmse,
        "r2": r2,
        "mae": mae,
        "binned_mae": binned_mae,
        "bits_per_spike": bits_per_spike,
        "retrieval": retrieval,
        "word_error_rate": word_error_rate,
    }
)


def _mean(values: Floats, weights: Floats) -> float:
    total = weights.sum()
    if total > 0:
        return float(weights @ values / total)
    return float("nan")


def _columns(rows: Rows) -> tuple[Array, Array]:
    """True values and predictions as arrays (row, column) of 64-bit numbers."""
    truth, answer = (
        floats(part).reshape(len(part), -1) for part in (rows.truth, rows.answer)
    )
    if truth.shape != answer.shape:
        raise MetricError(
            f"predictions have {answer.shape[1]} values per row, the truth has {truth.shape[1]}"
        )
    return truth, answer


def _indicators(rows: Rows) -> tuple[Array, Array]:
    """True and predicted membership (row, class)."""
    if rows.truth.ndim == 2:
        return rows.truth > 0, rows.answer > 0.5
    truth = as_text(rows.truth)
    predicted = rows.labels
    names = np.union1d(truth, predicted)
    return truth[:, None] == names, predicted[:, None] == names


def _area(scores: Floats, positive: Booleans) -> Measure:
    levels, level = np.unique(scores, return_inverse=True)

    def area(weights: Floats) -> float:
        up = np.bincount(level, weights * positive, len(levels))
        down = np.bincount(level, weights * ~positive, len(levels))
        pairs = up.sum() * down.sum()
        below = np.cumsum(down) - down
        if pairs > 0:
            return float(up @ (below + down / 2) / pairs)
        return float("nan")

    return area


def _group_mean(values: Array, group: Array, count: int) -> Array:
    total = np.zeros((count, values.shape[1]))
    np.add.at(total, group, values)
    return total / np.bincount(group, minlength=count)[:, None]


def _symbols(text: object, kind: str) -> list[str]:
    if kind == "word":
        return str(text).split()
    return list(str(text))
