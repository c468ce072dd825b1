"""Decoding on arrays: an estimator, signals and what they show, to a Score; the same way as through specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.engine.bound_metric import BoundMetric, metric
from neuroledger.errors import MetricError, RequestError
from neuroledger.families.decoding.decode_inputs import (
    Splits,
    assembled,
    cluster_of,
    decoder_of,
    facts_of,
    objective_of,
    overlap_notes,
    partition,
    people_seen,
    told,
    training_seeds,
    trials_named,
)
from neuroledger.families.decoding.models.classical_decoders import dummy_decoder
from neuroledger.families.decoding.paradigms.decoding import measure_folds, people_left_out
from neuroledger.families.decoding.protocols.decoder import Decoder
from neuroledger.families.decoding.protocols.leakage_checks import gate, partition_sha256
from neuroledger.families.decoding.protocols.splits import Train
from neuroledger.families.signals.recordings.mne_objects import is_mne, windows
from neuroledger.stats.score import Score, normalise_by_floor

__all__ = ["decode"]


PERFECT = {"error": 0.0}
GATES = ("overlap", "duplicates", "concepts")


def decode(
    estimator: Any,
    x: Any,
    y: Array | Sequence[Any] | str,
    *,
    splits: Splits = None,
    train: Train = "pooled",
    groups: Array | Sequence[Any] | Mapping[str, Any] | None = None,
    metric: str = "balanced_accuracy",
    seed: int = 0,
    seeds: Sequence[int] = (33, 34, 35),
    sampling_rate: float = 1.0,
    start: float = 0.0,
    cluster: str | None = None,
    per: str = "window",
    normalise: bool = False,
    shuffle_labels: bool = False,
    apart: Sequence[str] = (),
    waive: Sequence[str] = (),
) -> Score:
    """Train on one part of the windows, predict the rest, and score the predictions.

    Parameters
    ----------
    estimator
        A scikit-learn estimator (a fresh copy is trained on each fold), a torch module (windows in, (window, output) out,
        trained from the weights that it has by the recipe `laptop`), a `Decoder`, or the id of a decoder's spec.
    x
        (window, channel, sample), or (window, feature); or signals with their coordinates; or `mne.Epochs`, or a mapping of
        them by subject, as `neuroledger.windows` takes them.
    y
        What each window shows; or, with signals, the name of the coordinate (of epochs:
        `label`, the name of their event). (window, dimension) for retrieval.
    splits
        A rule (`{"name": "cross_subject", "folds": 5}`, or its name alone), a number of folds, a file written by
        `write_partition`, a list of (train, test) or (train, validation, test) row numbers, or a scikit-learn splitter.
        Default: one group at a time where `groups` are given as an array, five contiguous blocks otherwise.
    train
        `each`: one decoder for each person, whose windows a rule divides (`cross_session`, `blocked`, …), or for each
        session (`within_session`, `learning_curve`); `pooled`: one of all people of a training part.
    groups
        An array: the subject of each window; a subject is never on both sides, unless a rule within subjects is named.
        Or several facts by name, as a mapping or a table: `subject`, `session`, `run`, `recording`, `trial`,
        `stimulus_id`, and `onset` in seconds; what may not be on both sides, the rule says, or `apart`. A trial of a
        recording never is. A score of people who were trained on too says so.
    metric
        Id of a decoding metric.
    seed, seeds
        Of the interval's resampling and of shuffled labels; of the training, for estimators that use chance.
    sampling_rate, start
        Hz, and seconds from the event to the first sample, for arrays (window, channel, sample). Windows without an
        `onset` are taken to follow each other; whether they overlap is then seen only by samples that they share.
    cluster, per
        What is resampled for the interval (default: the subject, the recording or the window, the first that varies),
        and what is scored: window, recording or subject.
    normalise
        Whether 0 is to be what a dummy reaches on the same splits, and 1 perfection.
    shuffle_labels
        Control: permute the training labels.
    apart
        Facts that may not have one value on both sides, such as `stimulus_id`.
    waive
        Gates not to apply, repeated in the notes: `overlap` (of windows, and of a trial), `duplicates`, and `concepts`,
        which keeps the stimuli of retrieval apart; without a `stimulus_id`, equal embeddings are one stimulus.

    Returns
    -------
    Score
        samples: (seed, split); samples.attrs["predictions"]: every prediction beside the truth.

    Raises
    ------
    DataError
        The data break the conventions, or the partition leaks.
    RequestError
        An argument is wrong.
    ModelError, MetricError
        The estimator fails, or the metric is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["rest", "move"], 30)
    >>> x = rng.standard_normal((60, 4)) + (y == "move")[:, None]
    >>> order = rng.permutation(60)
    >>> round(decode(LogisticRegression(), x[order], y[order]).value, 2) > 0.7
    True
    """
    if is_mne(x) or isinstance(x, Mapping):
        x = windows(x)
    objective, measure = objective_of(metric)
    seeds = training_seeds(seed, seeds)
    unknown = sorted(set(waive) - set(GATES))
    if unknown:
        raise RequestError(f"waive: no gate {', '.join(unknown)}; there are {', '.join(GATES)}")
    facts, notes = facts_of(x, groups, y if objective == "retrieval" else None)
    assembly, truth = assembled(x, y, facts, sampling_rate, start, objective, measure)
    if objective == "classification" and truth.ndim == 2:
        objective = "multilabel"
    labels = truth.astype(str) if objective == "classification" else None
    decoder = decoder_of(estimator, np.shape(x), objective, taught=truth if labels is not None else None)
    if shuffle_labels:
        decoder = replace(decoder, shuffles_labels=True)
    named = groups is not None and not isinstance(groups, Mapping)
    if labels is not None and "label" not in assembly.coords:
        assembly = assembly.assign_coords(label=("presentation", labels))
    folds, disjoint, said, unit, labelled = partition(splits, assembly, truth, grouped=named, train=train)
    concepts = ("stimulus_id",) if objective == "retrieval" and "concepts" not in waive else ()
    lost = [name for name in apart if name not in assembly.coords]
    if lost:
        raise RequestError(f"apart: windows have no {', '.join(lost)}; give it in groups")
    trials = ("trial",) if "overlap" not in (*waive, *said) and told(assembly, "trial") else ()
    apart = list(dict.fromkeys([*disjoint, *concepts, *trials, *apart]))
    gate(
        folds, trials_named(assembly), disjoint=apart, labels=labels, waive=[*waive, *said], labelled=labelled
    )
    digest = partition_sha256(folds, [str(row) for row in range(len(truth))])
    notes = [
        *overlap_notes(notes, assembly),
        f"{len(folds)} folds, sha256 {digest[:12]}",
        *(f"gate waived: {name}" for name in sorted({*waive, *said})),
        *(people_seen(folds, assembly) if not unit else ()),
        *people_left_out(folds, assembly),
    ]
    bound = _metric(metric, seed, cluster or cluster_of(assembly), per)

    def scored(model: Decoder) -> Score:
        rng = np.random.default_rng(seed)
        measured = measure_folds(
            model,
            assembly,
            truth,
            folds,
            objective=objective,
            seeds=seeds,
            rng=rng,
            unit=unit,
            labelled=labelled,
        )
        raw = bound(measured.source, measured.target)
        return raw.replace(notes=(*notes, *measured.notes, *raw.notes))

    score = scored(decoder)
    if not normalise:
        return score
    perfect = PERFECT.get(score.scale, 1.0)
    try:
        floor = scored(dummy_decoder(id="dummy")).value
    except MetricError as error:
        raise MetricError(
            f"normalise: the dummy has no score here ({error}); 0 of {metric} means nothing already"
        ) from error
    return normalise_by_floor(score, floor, perfect)


def _metric(name: str, seed: int, cluster: str, per: str) -> BoundMetric:
    return metric(name, seed=seed, cluster=cluster, per=per)
