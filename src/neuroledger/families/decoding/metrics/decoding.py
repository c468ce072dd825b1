"""Decoding scores: predictions on held-out windows against the truth, with an interval over subjects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.decoding.metrics.decoding_measures import (
    MEASURES,
    Measure,
    Rows,
    retrieval_hits,
)
from neuroledger.families.decoding.metrics.shared_training import Taught, training_variance
from neuroledger.families.decoding.protocols.decoder import TRAINED, TrainingAnswers
from neuroledger.families.rare_outcomes import added_to_each, unseen
from neuroledger.families.same_rows import require_same_rows
from neuroledger.spec.registry import metric
from neuroledger.stats.spread import Influence, Items, centred, from_left_out, moved

__all__ = ["decoding"]


FEW_CLUSTERS = 6
# Number of folds on which the decoders that were trained on them are compared.
MOST_FOLDS = 16
FEWEST = 3
# Additional variance by the correlation of folds that train on each other's clusters, as a share of the variance of the
# tested clusters: 1 for a decoder that has learnt only noise. Without the scores of training windows it follows from the
# score: 1 at chance, LEAST for the best decoders, half-way at sqrt(FAR) standard errors above chance; SOME
# if chance is unknown. What the training data do to one decoder they do in part to all of them, so that the additional
# variance of a difference is the square of this share, or the share TAUGHT_APART of the variance by what folds teach, less
# half of its error, which differences of stable decoders would contain. Decoders that change much with each fold, such as
# those that select features, leave this variance so uncertain that the share UNSURE of its error beyond that of stable
# decoders (STABLE times the variance of the tested clusters) is assumed, up to MOST_UNSURE times the latter. All of this was
# determined with simulated subjects.
LEAST, SOME, FAR = 0.3, 0.5, 40.0
TAUGHT_APART = 0.5
UNSURE, STABLE, MOST_UNSURE = 0.7, 2.0, 4.0
SINGLE_LABEL = ("accuracy", "balanced_accuracy", "auroc")
# Shares of right answers.
PROPORTIONS = ("accuracy", "balanced_accuracy")
LABELLED = (*SINGLE_LABEL, "macro_f1")
# The range of measures that have one.
BOUNDED = {"pearson_r": (-1.0, 1.0), **dict.fromkeys((*LABELLED, "retrieval"), (0.0, 1.0))}


@metric("decoding", version=13, input="predictions")
def decoding(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    measure: Literal[
        "accuracy",
        "balanced_accuracy",
        "macro_f1",
        "auroc",
        "pearson_r",
        "rmse",
        "r2",
        "mae",
        "binned_mae",
        "bits_per_spike",
        "retrieval",
        "word_error_rate",
    ] = "balanced_accuracy",
    per: Literal["window", "recording", "subject"] = "window",
    cluster: str = "subject",
    pool: bool = False,
    k: int | None = None,
    symbols: Literal["word", "character"] | None = None,
    edges: tuple[float, ...] | None = None,
) -> xr.DataArray:
    r"""Score predictions: one value of the `measure` per training seed and split, (seed, split).

    Parameters
    ----------
    source
        Predictions: (presentation,), or (presentation, choice) scores, or (presentation, neuroid) embeddings; in
        the order of `target`, with coordinates `seed`, `split`, `subject` and `recording` if there are several.
    target
        The true values of the same rows.
    per
        The scored unit: every window, or one prediction per recording or subject. The latter is the share of windows
        that voted for each choice, or the mean of the predicted numbers.
    cluster
        The coordinate that is resampled for the interval: the unit of independent sampling, usually the subject.
    pool
        Score all splits of a seed together instead of averaging their scores; needed if a split tests only one class.
    k, symbols, edges
        Number of candidates that count as a hit (retrieval); unit of an error rate; bins of the true values.

    Returns
    -------
    xr.DataArray
        attrs["influence"]: the influence of each cluster on the mean over splits and seeds, from the measure without it
        (Tukey's jackknife); a split is weighted by its clusters. Splits that train on each other's clusters are correlated
        [bengio2004]: for a decoder that has learnt only noise, each pair of clusters contributes the same product,
        whichever of the two is tested, so that the variance is twice that of the tested clusters. A decoder
        whose training generalises fully has no such term: the share of the training score that tested windows lack
        determines it. Where training does not maximise the measure itself, as with F1 or with recalls of rare classes,
        clusters change it by being trained on, too (:func:`training_variance`); the larger of the two is added. Decoders
        that change much with each cluster have at least a share of the standard error of that variance. A part of
        the term is common to all decoders of the same data: a difference of two scores has less. Recalls and accuracies
        of 0 or 1 have the variance of :func:`~neuroledger.families.rare_outcomes.unseen`, and so have predictions without
        any error in other measures of labels. If several clusters are asked for the same stimuli, retrieval also depends on
        these (the factor `stimulus`).
        attrs["skewed"]: intervals of measures with a range are computed in log odds between its ends, because people with
        high scores differ less than those with low ones.
        attrs["step"]: change of a measure of labels by one more right answer, in the class where it is largest.
        attrs["notes"]: the unit, the cluster and their numbers.

    Raises
    ------
    MetricError
        The rows do not match, predictions are not finite, or the true values vary within a unit.
    """
    rows, seeds, splits, clusters = _units(source, target, per, cluster, measure)
    options = {
        name: value for name, value in (("k", k), ("symbols", symbols), ("edges", edges)) if value is not None
    }
    folds = _folds_together(source, splits, cluster)
    if pool:
        splits = np.zeros(len(splits), dtype=int)
    cells = {
        (seed, split): np.flatnonzero((seeds == seed) & (splits == split))
        for seed in np.unique(seeds)
        for split in np.unique(splits[seeds == seed])
    }
    scorers = {cell: MEASURES[measure](_take(rows, at), **options) for cell, at in cells.items()}
    seed_names, split_names = np.unique(seeds), np.unique(splits)
    values = np.full((len(seed_names), len(split_names)), np.nan)
    for (seed, split), at in cells.items():
        position = np.searchsorted(seed_names, seed), np.searchsorted(split_names, split)
        values[position] = scorers[seed, split](np.ones(len(at)))
    constant = _constant(rows, cells, scorers) if measure == "pearson_r" else []
    for seed, split in constant if np.isfinite(values).any() else []:
        values[np.searchsorted(seed_names, seed), np.searchsorted(split_names, split)] = 0.0
        scorers[seed, split] = lambda weights: 0.0
    samples = xr.DataArray(values, dims=("seed", "split"), coords={"seed": seed_names, "split": split_names})
    names = np.unique(clusters)
    samples.attrs["notes"] = _notes(per, cluster, len(names), folds) + _undefined(values, len(constant))
    samples.attrs["n"] = {"windows": _windows(source), cluster: len(names)}
    samples.attrs["predictions"] = _predictions(source, target)
    if measure in BOUNDED:
        samples.attrs |= {"limits": BOUNDED[measure], "skewed": True}
    if measure in (*LABELLED, "retrieval"):
        samples.attrs["step"] = {cluster: _step(measure, rows, len(seed_names))}
    if len(names) > 1 and np.isfinite(values).any(axis=1).all():
        level = _chance(measure, rows, k)
        trained = source.attrs.get(TRAINED)
        noise = 0.0 if TRAINED in source.attrs and trained is None else None
        if trained is not None and level is not None and measure != "retrieval":
            noise = _noise_share(source, target, trained, level, measure, options)

        def influence() -> Influence:
            gain = None if level is None else float(np.nanmean(values)) - level
            rare = _rare(measure, rows, cells, clusters, perfect=bool(np.nanmin(values) == 1))
            items = _items(cells, scorers, clusters)
            taught = Taught(0.0, 0.0)
            if trained is not None and folds > 1 and not pool:
                tested = {
                    split: float(np.nanmean(own))
                    for split, own in zip(split_names.tolist(), values.T, strict=True)
                    if np.isfinite(own).any()
                }
                taught = _taught(tested, trained, items.variance, per, measure, options)
            result = _influence(items, cluster, folds, gain, noise, taught, rare)
            if measure != "retrieval":
                return result
            return _with_stimuli(result, cells, scorers, rows, clusters, cluster, k or 5)

        samples.attrs["influence"] = influence
    else:
        samples.attrs["influence"] = lambda: None
    return samples


def _folds_together(source: xr.DataArray, splits: Array, cluster: str) -> int:
    """The number of folds that train on the same data; with one decoder per subject, only folds of one subject do."""
    if "decoder" not in source.coords:
        return len(np.unique(splits))
    if cluster == "subject":
        return 1
    owners, numbers = np.asarray(source["decoder"].values), np.asarray(source["split"].values)
    return max(len(np.unique(numbers[owners == owner])) for owner in np.unique(owners))


def _influence(
    items: Items,
    factor: str,
    folds: int,
    gain: float | None,
    noise: float | None,
    taught: Taught,
    rare: Floats,
) -> Influence:
    """The influence of each cluster on the mean over splits and seeds, of which ``items`` is that of the tested clusters.

    ``gain`` is the score minus chance, if chance is known; ``noise`` is the share of the learnt that does not generalise, if
    known; ``taught`` the variance by training data; ``rare`` (cluster,) is added to the deviations of the clusters.
    """
    whole = 0.0
    if folds > 1 and noise is not None:
        whole = noise
    elif folds > 1 and items.variance > 0:
        distance = 0.0 if gain is None else max(0.0, gain) ** 2 / items.variance
        whole = SOME if gain is None else LEAST + (1 - LEAST) / (1 + distance / FAR)
    paired = whole**2
    if items.variance > 0:
        whole = max(whole, min(1.0, taught.variance / items.variance))
        certain = min(1.0, (taught.variance - taught.error / 2) / items.variance)
        unsure = min(MOST_UNSURE, UNSURE * max(0.0, taught.error / items.variance - STABLE))
        whole, paired = max(whole, unsure), max(paired, TAUGHT_APART * certain, unsure)
    single = Items(items.ids, np.sqrt(1 + paired) * items.deviation + rare)
    common = {factor: float(np.sqrt((whole - paired) * items.variance))} if whole else {}
    return Influence({factor: single}, common=common)


def _noise_share(
    source: xr.DataArray,
    target: xr.DataArray,
    trained: TrainingAnswers,
    level: float,
    measure: str,
    options: dict[str, Any],
) -> float:
    """The share of the training windows' score above chance that the tested windows lack, 0 to 1; 1 at chance."""
    train_gain = _window_score(trained.source, trained.target, measure, options) - level
    if train_gain <= 0:
        return 1.0
    return float(
        np.clip(1 - (_window_score(source, target, measure, options) - level) / train_gain, 0.0, 1.0)
    )


def _taught(
    tested: dict[Any, float],
    trained: TrainingAnswers,
    variance: float,
    per: str,
    measure: str,
    options: dict[str, Any],
) -> Taught:
    """The variance by training data, from the score of each split and from what its decoder recalls of the others.

    ``variance`` is that by the tested data.
    """
    rows, _, decoders, folds = _units(trained.source, trained.target, per, "tested_in", measure)
    names = np.array(list(tested))
    recalled = np.full((len(names), len(names)), np.nan)
    for column in range(0, len(names), -(-len(names) // MOST_FOLDS)):
        (of_fold,) = np.nonzero(folds == str(names[column]))
        by_decoder = [of_fold[decoders[of_fold] == name] for name in names]
        most = max(map(len, by_decoder))
        for row, at in enumerate(by_decoder):
            # Decoders that were trained on a part of the fold only, or stopped by it, are not compared.
            if 0 < len(at) == most:
                recalled[row, column] = MEASURES[measure](_take(rows, at), **options)(np.ones(len(at)))
    return training_variance(np.array(list(tested.values())), recalled, variance)


def _window_score(source: xr.DataArray, target: xr.DataArray, measure: str, options: dict[str, Any]) -> float:
    """The measure over single windows, averaged over seeds and splits; 0 if it is undefined in all of them."""
    rows, seeds, splits, _ = _units(source, target, "window", "split", measure)
    values = []
    for seed in np.unique(seeds):
        for split in np.unique(splits[seeds == seed]):
            at = np.flatnonzero((seeds == seed) & (splits == split))
            values.append(MEASURES[measure](_take(rows, at), **options)(np.ones(len(at))))
    defined = [value for value in values if np.isfinite(value)]
    return float(np.mean(defined)) if defined else 0.0


def _rare(
    measure: str, rows: Rows, cells: dict[tuple[Any, Any], Array], clusters: Array, perfect: bool
) -> Floats:
    """Additional deviations of clusters, in the order of their names, if nearly all predictions of a class are alike.

    Measures of labels that are no proportions get those of recalls without a miss if their values are ``perfect``.
    Classes are considered over all splits of a training seed: these test different rows, and the uncertainty of a recall
    depends on all of them.
    """
    names, codes = np.unique(clusters.astype(str), return_inverse=True)
    added = np.zeros(len(names))
    if measure not in LABELLED or rows.truth.ndim > 1:
        return added
    truth = as_text(rows.truth)
    hit = (rows.labels == truth).astype(float)
    if measure not in PROPORTIONS:
        if not perfect:
            return added
        hit = np.ones(len(truth))
    kind = np.full(len(truth), "") if measure == "accuracy" else truth
    seeds = {seed for seed, _ in cells}
    for seed in seeds:
        splits = [at for (own, _), at in cells.items() if own == seed]
        tested = np.concatenate(splits)
        kinds = [tested[kind[tested] == name] for name in np.unique(kind[tested])]
        weights = [
            np.mean([(kind[at] == kind[own[0]]).any() / len(np.unique(kind[at])) for at in splits])
            for own in kinds
        ]
        pseudo = added_to_each(
            np.array([hit[own].sum() for own in kinds]),
            np.array([float(len(own)) for own in kinds]),
            np.array(weights),
        )
        for weight, own in zip(weights, kinds, strict=True):
            added += weight / len(seeds) * unseen(hit[own], codes.ravel()[own], len(names), pseudo)
    return added


def _step(measure: str, rows: Rows, seeds: int) -> float:
    """The change of the score by one more right answer of the class with the fewest rows; 0 for several labels of a row."""
    if measure in ("accuracy", "retrieval"):
        return seeds / len(rows.truth)
    if rows.truth.ndim > 1:
        return 0.0
    sizes = np.unique(as_text(rows.truth), return_counts=True)[1] / seeds
    # A recall of one or two rows says nothing, and its class does not weigh more than another.
    return float(1 / (len(sizes) * max(sizes.min(), FEWEST)))


def _chance(measure: str, rows: Rows, k: int | None) -> float | None:
    """The expected score of predictions without information, if it is known."""
    if measure in ("auroc", "pearson_r", "r2", "bits_per_spike"):
        return 0.5 if measure == "auroc" else 0.0
    if measure in LABELLED:
        return 1 / max(1, len(np.unique(rows.truth)))
    return (k or 1) / max(1, len(np.unique(rows.stimulus))) if measure == "retrieval" else None


def _items(
    cells: dict[tuple[Any, Any], Array], scorers: dict[tuple[Any, Any], Measure], items: Array
) -> Items:
    """The influence of items, of which one belongs to each row, by leaving out each of them."""
    names, codes = np.unique(items.astype(str), return_inverse=True)
    return moved(names, from_left_out(_without_each(cells, scorers, codes.ravel(), len(names))))


def _without_each(
    cells: dict[tuple[Any, Any], Array], scorers: dict[tuple[Any, Any], Measure], codes: Array, count: int
) -> Floats:
    """The mean over splits and seeds with each cluster left out, (cluster,), with splits weighted by their clusters."""
    total, shares = np.zeros(count), np.zeros(count)
    for cell, at in cells.items():
        cluster_codes = codes[at]
        present = np.unique(cluster_codes)
        score = scorers[cell](np.ones(len(at)))
        values, weight = np.full(count, score), np.ones(count)
        for code in present:
            weights = (cluster_codes != code).astype(float)
            values[code] = scorers[cell](weights) if len(present) > 1 else np.nan
            weight[code] = 1 - 1 / len(present)
        weight = np.where(np.isfinite(values), weight, 0.0)
        total += np.where(np.isfinite(values), values, 0.0) * weight
        shares += weight
    out = np.full(count, np.nan)
    np.divide(total, shares, out=out, where=shares > 0)
    return out


def _with_stimuli(
    influence: Influence,
    cells: dict[tuple[Any, Any], Array],
    scorers: dict[tuple[Any, Any], Measure],
    rows: Rows,
    clusters: Array,
    factor: str,
    k: int,
) -> Influence:
    """The influence with that of the stimuli asked for, if several clusters are asked for the same ones.

    Candidates are taken as given: their influence, from the ranks without each, would contain the interactions of a
    prediction with all better candidates, once for each of these.
    """
    names, codes = np.unique(rows.stimulus.astype(str), return_inverse=True)
    columns, column_codes = np.unique(clusters.astype(str), return_inverse=True)
    if not 1 < len(names) < len(np.unique(np.stack([codes.ravel(), column_codes.ravel()]), axis=1).T):
        return influence
    table = np.zeros((len(names), len(columns)))
    for at in cells.values():
        hit, pair = retrieval_hits(_take(rows, at), k)
        moves = (hit - hit.mean()) / np.bincount(pair) / len(hit) / len(cells)
        np.add.at(table, (codes.ravel()[at], column_codes.ravel()[at]), moves[pair])
    factors = {"stimulus": _items(cells, scorers, rows.stimulus), **influence.factors}
    return replace(influence, factors=factors, crossed={("stimulus", factor): centred(table)})


def _constant(
    rows: Rows, cells: dict[tuple[Any, Any], Array], scorers: dict[tuple[Any, Any], Measure]
) -> list[tuple[Any, Any]]:
    """The seeds and splits with an undefined correlation although the true values vary."""
    truth = np.asarray(rows.truth, dtype=float).reshape(len(rows.truth), -1)
    return [
        cell
        for cell, at in cells.items()
        if (np.ptp(truth[at], axis=0) > 0).all() and not np.isfinite(scorers[cell](np.ones(len(at))))
    ]


def _undefined(values: Floats, constant: int) -> list[str]:
    """Notes about splits without a score of their own."""
    missing = int((~np.isfinite(values)).sum())
    if missing == values.size:
        reason = f"{constant} predict a constant" if constant else "what each tests must vary"
        return [f"none of {missing} trainings has a score: {reason}"]
    notes = [
        f"{missing} of {values.size} trainings have no score, since what they test does not vary: left out"
    ]
    note = f"{constant} of {values.size} trainings predict a constant, which has no correlation: counted as 0"
    return (notes if missing else []) + ([note] if constant else [])


def _units(
    source: xr.DataArray, target: xr.DataArray, unit: str, cluster: str, measure: str
) -> tuple[Rows, Array, Array, Array]:
    """The scored units, with the seed, split and cluster of each."""
    require_same_rows(source, target)
    count = target.sizes["presentation"]
    answer, truth = np.asarray(source.values), np.asarray(target.values)
    if answer.dtype.kind in "fc" and not np.isfinite(answer).all():
        raise MetricError(
            f"{int((~np.isfinite(answer)).sum())} predictions are not finite: the model diverged"
        )
    if truth.ndim > 1 and measure in SINGLE_LABEL:
        raise MetricError(
            f"{measure} needs one true label for each row, and the truth has {truth.shape[1]}; macro_f1 scores several"
        )
    choices = as_text(source["choice"].values) if "choice" in source.dims else None
    subject, stimulus = _along(target, "subject", count), _along(target, "stimulus_id", count)
    seeds, splits = _along(source, "seed", count, 0), _along(source, "split", count, 0)
    clusters = _along(target if cluster in target.coords else source, cluster, count)
    if unit == "window":
        return Rows(truth, answer, choices, subject, stimulus), seeds, splits, clusters
    groups = np.stack([seeds.astype(str), splits.astype(str), subject, _along(target, unit, count)], axis=1)
    _, first, group = np.unique(groups, axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    if measure in LABELLED and truth.ndim == 1:
        truth = as_text(truth)
        if (truth != truth[first][group]).any():
            raise MetricError(f"the truth varies within a {unit}: score windows, or choose another unit")
        truth = truth[first]
        labels = Rows(truth, answer, choices, subject, stimulus).labels
        choices = np.unique(labels) if choices is None else choices
        votes = (labels[:, None] == choices).astype(float)
    else:
        votes, truth = answer, _mean_of(truth.astype(float), group)
    return (
        Rows(truth, _mean_of(votes.astype(float), group), choices, subject[first], stimulus[first]),
        seeds[first],
        splits[first],
        clusters[first],
    )


def _windows(source: xr.DataArray) -> int:
    """The number of distinct tested windows; each is predicted once per training seed."""
    return len(np.unique(source["row"].values)) if "row" in source.coords else source.sizes["presentation"]


def _take(rows: Rows, at: Array) -> Rows:
    return replace(
        rows,
        truth=rows.truth[at],
        answer=rows.answer[at],
        subject=rows.subject[at],
        stimulus=rows.stimulus[at],
    )


def _mean_of(values: Array, group: Array) -> Array:
    total = np.zeros((int(group.max()) + 1, *values.shape[1:]))
    np.add.at(total, group, values)
    return total / np.bincount(group).reshape(-1, *([1] * (values.ndim - 1)))


def _along(array: xr.DataArray, name: str, count: int, default: Any = None) -> Array:
    """A coordinate of the presentations, as text unless a default is given for a missing one."""
    if name in array.coords and array[name].dims == ("presentation",):
        values = np.asarray(array[name].values)
        return values if default is not None else values.astype(str)
    if name in array.coords and array[name].ndim == 0:
        return np.full(count, array[name].item() if default is not None else str(array[name].item()))
    if default is not None:
        return np.full(count, default)
    if name in ("subject", "stimulus_id", "recording"):
        return np.full(count, "1")
    raise MetricError(f"no coordinate {name!r} on the presentations: name one that was drawn independently")


def _notes(unit: str, cluster: str, clusters: int, folds: int) -> list[str]:
    scored = {
        "window": "every window is scored",
        "recording": "one answer per recording",
        "subject": "one answer per subject",
    }
    if clusters < 2:
        return [f"{scored[unit]}; no interval: all rows have one {cluster}"]
    few = ", too few to trust its ends" if clusters < FEW_CLUSTERS else ""
    shared = f", widened because {folds} folds learn from the same data" if folds > 1 else ""
    return [f"{scored[unit]}; interval over {clusters} values of {cluster}{shared}{few}"]


def _predictions(source: xr.DataArray, target: xr.DataArray) -> xr.DataArray:
    """The predictions, with the true values as coordinate `truth`."""
    source = source.copy(deep=False)
    source.attrs = {name: value for name, value in source.attrs.items() if name != TRAINED}
    truth = (target.dims, np.asarray(target.values))
    if target.dims == ("presentation",):
        return source.assign_coords(truth=truth)
    return source
