"""Decoding on arrays in memory, with the same protocol as for specs."""

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
    assemble,
    cluster_of,
    decoder_of,
    facts_of,
    is_per_window,
    objective_of,
    overlap_notes,
    partition,
    people_seen,
    training_seeds,
    trials_named,
)
from neuroledger.families.decoding.models.classical_decoders import dummy_decoder
from neuroledger.families.decoding.paradigms.decoding import (
    measure_folds,
    people_left_out,
    prepared_notes,
)
from neuroledger.families.decoding.protocols.decoder import Decoder
from neuroledger.families.decoding.protocols.leakage_checks import (
    gate,
    partition_sha256,
)
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
    """Train on one part of the windows, predict the others, and score the predictions.

    Parameters
    ----------
    estimator
        A scikit-learn estimator (a clone is trained on each fold), a torch module (windows in, (window, output) out,
        trained from its current weights by the recipe `laptop`), a `Decoder`, or the id of a decoder's spec.
    x
        (window, channel, sample), or (window, feature); or signals with their coordinates; or `mne.Epochs`, or a mapping
        from subject to epochs, as in `neuroledger.windows`.
    y
        The target of each window; or, with signals, the name of the coordinate (for epochs:
        `label`, the name of their event). (window, dimension) for retrieval.
    splits
        A rule (`{"name": "cross_subject", "folds": 5}`, or its name alone), a number of folds, a file written by
        `write_partition`, a list of (train, test) or (train, validation, test) row numbers, or a scikit-learn splitter.
        Default: one group at a time where `groups` are given as an array, five contiguous blocks otherwise.
    train
        `each`: one decoder for each subject, within which the rule is applied (`cross_session`, `blocked`, …), or for each
        session (`within_session`, `learning_curve`); `pooled`: one decoder for all subjects of a training part.
    groups
        An array with the subject of each window: no subject is on both sides, unless the rule divides within subjects.
        Or several facts by name, as a mapping or a table: `subject`, `session`, `run`, `recording`, `trial`,
        `stimulus_id`, and `onset` in seconds. The rule and `apart` determine which facts may not have the same value on both
        sides; a trial of a recording is never divided. The score's notes state whether tested subjects were trained on.
    metric
        Id of a decoding metric.
    seed, seeds
        Seed of shuffled labels; seeds of the training, for stochastic estimators.
    sampling_rate, start
        In Hz, and in seconds from the event to the first sample, for arrays (window, channel, sample). Windows without an
        `onset` are assumed to be consecutive; overlap is then detected only by shared samples.
    cluster, per
        The unit that is left out for the interval (default: the subject, the recording or the window, the first that
        varies), and the unit that is scored: window, recording or subject.
    normalise
        Whether to scale the score so that a dummy on the same splits has 0 and a perfect decoder 1.
    shuffle_labels
        Control: permute the training labels.
    apart
        Facts that may not have the same value on both sides, such as `stimulus_id`.
    waive
        Gates that are not applied, stated in the notes: `overlap` (of windows and trials), `duplicates`, and `concepts`,
        which holds out the stimuli of retrieval; without a `stimulus_id`, equal embeddings are one stimulus.

    Returns
    -------
    Score
        samples: (seed, split); predictions: all predictions, with the targets as coordinate `truth`.

    Raises
    ------
    DataError
        The data violate the conventions, or the partition leaks.
    RequestError
        An argument is invalid.
    ModelError, MetricError
        The estimator fails, or the metric is undefined.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> import neuroledger as nl
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(["rest", "move"], 30)
    >>> x = rng.standard_normal((60, 4)) + (y == "move")[:, None]
    >>> order = rng.permutation(60)
    >>> nl.decode(LogisticRegression(), x[order], y[order]).value > 0.7
    True
    """
    if is_mne(x) or isinstance(x, Mapping):
        x = windows(x)
    objective, measure = objective_of(metric)
    seeds = training_seeds(seed, seeds)
    unknown_gates = sorted(set(waive) - set(GATES))
    if unknown_gates:
        raise RequestError(
            f"waive: no gate {', '.join(unknown_gates)}; there are {', '.join(GATES)}"
        )
    facts, notes = facts_of(x, groups, y if objective == "retrieval" else None)
    assembly, truth = assemble(x, y, facts, sampling_rate, start, objective, measure)
    if objective == "classification" and truth.ndim == 2:
        objective = "multilabel"
    labels = None
    if objective == "classification":
        labels = truth.astype(str)
    decoder = decoder_of(
        estimator, np.shape(x), objective, taught=truth if labels is not None else None
    )
    if shuffle_labels:
        decoder = replace(decoder, shuffles_labels=True)
    grouped = groups is not None and not isinstance(groups, Mapping)
    if labels is not None and "label" not in assembly.coords:
        assembly = assembly.assign_coords(label=("presentation", labels))
    folds, disjoint, waived, unit, labelled = partition(
        splits, assembly, truth, grouped=grouped, train=train
    )
    concepts = (
        ("stimulus_id",) if objective == "retrieval" and "concepts" not in waive else ()
    )
    missing = [name for name in apart if name not in assembly.coords]
    if missing:
        raise RequestError(
            f"apart: windows have no {', '.join(missing)}; add it to groups"
        )
    trials = (
        ("trial",)
        if "overlap" not in (*waive, *waived) and is_per_window(assembly, "trial")
        else ()
    )
    apart = list(dict.fromkeys([*disjoint, *concepts, *trials, *apart]))
    gate(
        folds,
        trials_named(assembly),
        disjoint=apart,
        labels=labels,
        waive=[*waive, *waived],
        labelled=labelled,
    )
    digest = partition_sha256(folds, list(map(str, range(len(truth)))))
    notes = [
        *overlap_notes(notes, assembly),
        f"{len(folds)} folds, sha256 {digest[:12]}",
        *(f"gate waived: {name}" for name in sorted({*waive, *waived})),
        *(people_seen(folds, assembly) if not unit else ()),
        *people_left_out(folds, assembly),
    ]
    bound = _metric(metric, seed, cluster or cluster_of(assembly), per)

    def scored(model: Decoder) -> Score:
        stated = prepared_notes(model, assembly, composed=False)
        rng = np.random.default_rng(seed)
        measurement = measure_folds(
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
        raw = bound(measurement.source, measurement.target)
        return raw.replace(notes=(*notes, *stated, *measurement.notes, *raw.notes))

    score = scored(decoder)
    if not normalise:
        return score
    perfect = PERFECT.get(score.scale, 1.0)
    try:
        floor = scored(dummy_decoder(id="dummy")).value
    except MetricError as error:
        raise MetricError(
            f"normalise: the dummy has no score ({error}); for {metric}, 0 already means no information"
        ) from error
    return normalise_by_floor(score, floor, perfect)


def _metric(name: str, seed: int, cluster: str, per: str) -> BoundMetric:
    return metric(name, seed=seed, cluster=cluster, per=per)
