"""Decoding: a decoder is trained on part of the signals and asked what the rest of them show."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.dataset import Dataset
from neuroledger.engine.measurement import Measurement, recording_overlap
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.families.decoding.protocols.decoder import (
    FIT_ERRORS,
    Decoder,
    Objective,
    Signature,
    StoppedEarly,
    answer,
    decoded,
    failure,
)
from neuroledger.families.decoding.protocols.fold_windows import Windows, standardised, truth_of
from neuroledger.families.decoding.protocols.leakage_checks import gate, partition_sha256, telling_channels
from neuroledger.families.decoding.protocols.splits import Fold, SplitRule, Train, draw_folds, unit_of
from neuroledger.families.decoding.training.decoding_recipes import TaskRecipe
from neuroledger.families.signals import signals
from neuroledger.families.signals.signals import recording_digests
from neuroledger.families.simulated_predictions import simulated_predictions
from neuroledger.models.model import fit
from neuroledger.spec.kinds import Pretraining
from neuroledger.spec.registry import paradigm

__all__ = ["decoding", "measure_folds", "people_left_out"]


@paradigm(
    "decoding",
    version=2,
    shows={"signals", "training"},
    asks=lambda values: decoded(values["objective"]),
    itself=False,
    permuted=None,
    simulates=simulated_predictions,
)
def decoding(
    model: Decoder,
    data: Dataset,
    *,
    rng: np.random.Generator,
    splits: SplitRule,
    target: str | tuple[str, ...] = "label",
    objective: Objective = "classification",
    train: Train = "pooled",
    seeds: tuple[int, ...] = (33, 34, 35),
    unseen_classes: bool = False,
    standardise_targets: bool = False,
    recipe: TaskRecipe | None = None,
    pretraining: Sequence[str | Pretraining] = (),
) -> Measurement:
    """Predictions for every tested window beside the truth, from one training per fold and seed.

    Parameters
    ----------
    model
        A decoder; one whose training does not depend on the seed is trained with the first seed only.
    data
        Signals; for retrieval, also the embeddings to be found, as the extra assembly named by `target`.
    splits
        The rule of the partition. Its folds pass the gates, and its SHA-256 must be the pinned one, if one is pinned.
    target
        The coordinate that is decoded; several for `multilabel` and for several numbers at once. For numbers also an
        extra assembly, one row for each stimulus, such as trajectories.
    objective
        What is asked: one class, several labels, a number, an embedding among candidates, or a sequence.
    train
        `each`: one decoder for each person, whom the rule divides by themselves; each session, where it divides sessions
        (`within_session`, `learning_curve`). `pooled`: one decoder of all people of a training part.
    seeds
        Seeds of the training.
    unseen_classes
        Whether tested classes may be missing from the training part (retrieval over new concepts needs no such leave).
    standardise_targets
        Whether embeddings and numbers are standardised, each dimension by the training part of the fold, before anything
        is learnt or scored.
    recipe
        What this task asks of the training of networks whose recipe follows tasks.

    Returns
    -------
    Measurement
        source: (presentation, choice) scores, or (presentation,) numbers, or (presentation, neuroid) embeddings, with
        `seed`, `split` and `row`; target: the truth. Notes tell the SHA-256 of the partition and of the prepared signals,
        and what was waived.

    Raises
    ------
    DataError
        The data are no signals, lack the target, or the partition leaks.
    ModelError
        The model is not a decoder, does not support the objective, or gives a wrong answer.
    """
    if data.assembly is None:
        raise DataError(f"data set {data.id!r} has no signals to decode")
    assembly = signals.check(data.assembly, name=data.id or "signals")
    truth = truth_of(assembly, data, target, objective)
    folds = draw_folds(splits, assembly, train)
    digest = partition_sha256(folds, [str(row) for row in range(assembly.sizes["presentation"])])
    if splits.sha256 is not None and digest != splits.sha256:
        raise DataError(
            f"splits {splits.name!r}: the partition's SHA-256 is {digest}, pinned is {splits.sha256}"
        )
    labels = truth.astype(str) if objective == "classification" and not unseen_classes else None
    calibration = getattr(splits, "calibration", None)
    labelled = calibration is not None and calibration.labels
    gate(folds, assembly, disjoint=splits.disjoint, labels=labels, waive=splits.waive, labelled=labelled)
    notes = [f"splits {splits.name}, {len(folds)} folds, sha256 {digest[:12]}"]
    notes += people_left_out(folds, assembly)
    notes += [f"prepared signals, sha256 {data.content[:12]}"] if data.content else []
    notes += data.notes
    notes += recording_overlap(pretraining, partial(recording_digests, assembly))
    notes += _what_was_seen(assembly, folds, objective)
    notes += [f"gate waived: {name}" for name in splits.waive]
    measured = measure_folds(
        model,
        assembly,
        truth,
        folds,
        objective=objective,
        seeds=seeds,
        rng=rng,
        recipe=recipe,
        standardise=standardise_targets,
        unit=unit_of(splits, train),
        labelled=labelled,
    )
    return Measurement(source=measured.source, target=measured.target, notes=(*notes, *measured.notes))


def people_left_out(folds: Sequence[Fold], assembly: xr.DataArray) -> list[str]:
    """What a score says of people whom no fold tests."""
    people = assembly["subject"].values.astype(str)
    lost = sorted(set(people.tolist()) - {name for fold in folds for name in people[fold.test].tolist()})
    return (
        [f"{len(lost)} of {len(set(people.tolist()))} people are not tested: {', '.join(lost[:3])}"]
        if lost
        else []
    )


def _what_was_seen(assembly: xr.DataArray, folds: list[Fold], objective: Objective) -> list[str]:
    """What training knew of the tested windows although no gate forbids it."""
    notes = []
    if objective == "retrieval":
        stimuli = assembly["stimulus_id"].values.astype(str)
        tested, known = set[str](), set[str]()
        for fold in folds:
            here = set(stimuli[fold.test].tolist())
            tested |= here
            known |= here & set(stimuli[np.concatenate([fold.train, fold.validation])].tolist())
        if known:
            notes.append(f"{len(known)} of {len(tested)} tested stimuli were trained on too")
    if assembly.attrs.get("units") in ("robust", "standard"):
        recordings = assembly["recording"].values.astype(str)
        if any(
            set(recordings[fold.test].tolist())
            & set(recordings[np.concatenate([fold.train, fold.validation])].tolist())
            for fold in folds
        ):
            notes.append("each recording was scaled by its own statistics, tested windows included")
    return notes


@dataclass(frozen=True)
class _Measured:
    source: xr.DataArray
    target: xr.DataArray
    notes: tuple[str, ...]


def measure_folds(
    model: Decoder,
    assembly: xr.DataArray,
    truth: Array,
    folds: list[Fold],
    *,
    objective: Objective,
    seeds: tuple[int, ...],
    rng: np.random.Generator,
    recipe: TaskRecipe | None = None,
    standardise: bool = False,
    unit: tuple[str, ...] = (),
    labelled: bool = False,
) -> _Measured:
    """Train on every fold with every seed and put the predictions one below the other.

    ``unit`` names the coordinates whose values have a decoder of their own. Windows for calibration join the training part
    if they are ``labelled``; without labels, they are shown to a decoder that adapts to people.

    Raises
    ------
    ModelError
        The model is not a decoder, does not support the objective, or gives a wrong answer.
    RequestError
        There are no seeds.
    """
    if not isinstance(model, Decoder):
        raise ModelError(
            f"model {getattr(model, 'id', model)!r} is not a decoder: it is shown stimuli, not trained on signals"
        )
    if objective not in model.objectives:
        raise ModelError(
            f"decoder {model.id!r} cannot be asked for {objective}; it can for {', '.join(model.objectives)}"
        )
    if not seeds or len(set(seeds)) != len(seeds):
        raise RequestError("decoding needs at least one training seed, each once")
    windows = Windows(assembly)
    people = assembly["subject"].values.astype(str)
    used = np.concatenate([rows for fold in folds for rows in fold])
    choices = np.unique(truth[used].astype(str)) if objective == "classification" else np.empty(0, dtype=str)
    truth = truth.astype(str) if objective == "classification" else truth
    told = telling_channels(assembly, truth)
    notes = [f"the answer is written in the data: {', '.join(told[:3])} tells it alone"] if told else []
    if model.inject_signal:
        windows.inject_signal(truth, model.inject_signal)
        notes.append(
            f"control: a signal of {model.inject_signal:g} standard deviations was planted in every window"
        )
    if model.shuffles_labels:
        notes.append("control: the training labels were permuted")
    if standardise and objective not in ("regression", "retrieval"):
        raise RequestError(f"standardise_targets is for numbers and embeddings, and {objective} is asked")
    answers, truths, rows, split_of, seed_of, trained, learnt_from, seconds = [], [], [], [], [], [], [], []
    adapted, calibrating = False, any(len(fold.calibration) for fold in folds)
    for seed in seeds if model.stochastic else seeds[:1]:
        for number, fold in enumerate(folds):
            signature = _signature(assembly, truth, choices, objective, seed, recipe)
            estimator = fit(model, f"decoded:{objective}", signature)
            wanted = standardised(truth, fold.train) if standardise else truth
            part = fold
            if labelled:
                part = fold._replace(train=np.sort(np.concatenate([fold.train, fold.calibration])))
            begun = time.perf_counter()
            _fit(estimator, windows, _training_truth(model, wanted, part, rng), part, people, model.id)
            seconds.append(time.perf_counter() - begun)
            if getattr(estimator, "adapts", False):
                adapted = True
                for person in np.unique(people[fold.calibration]):
                    own = fold.calibration[people[fold.calibration] == person]
                    estimator.adapt(windows.handed(own, estimator, model.id), str(person))
            _tell_people(estimator, people[fold.test])
            trained.append(estimator)
            answers.append(
                answer(
                    estimator, windows.handed(fold.test, estimator, model.id), objective, choices, id=model.id
                )
            )
            truths.append(wanted[fold.test])
            rows.append(fold.test)
            split_of.append(np.full(len(fold.test), number))
            seed_of.append(np.full(len(fold.test), seed))
            learnt_from.append(np.full(len(fold.test), len(part.train) + len(part.validation)))
    if calibrating:
        uses = ["joined the training part"] if labelled else []
        uses += ["were shown without labels to the steps that adapt"] if adapted else []
        what = " and ".join(uses) or "were left out for calibration; no step uses them"
        notes.append(f"{sum(len(fold.calibration) for fold in folds)} windows of tested people {what}")
    notes += _training_notes(trained, seeds if model.stochastic else ())
    at = np.concatenate(rows)
    coords: dict[str, Any] = {
        str(name): ("presentation", coordinate.values[at])
        for name, coordinate in assembly.coords.items()
        if coordinate.dims == ("presentation",)
    }
    true = _labelled(np.concatenate(truths), np.empty(0), coords)
    coords |= {
        "row": ("presentation", at),
        "split": ("presentation", np.concatenate(split_of)),
        "seed": ("presentation", np.concatenate(seed_of)),
        "trained": ("presentation", np.concatenate(learnt_from)),
    }
    if unit:
        notes.append(f"one decoder for each {' and '.join(unit)}")
        names = zip(*(assembly[name].values[at].astype(str) for name in unit), strict=True)
        coords["decoder"] = ("presentation", np.array([" ".join(name) for name in names]))
    source = _labelled(np.concatenate(answers), choices, coords)
    source.encoding["seconds"] = seconds
    return _Measured(source, true, tuple(notes))


def _tell_people(estimator: Any, people: Array) -> None:
    """Tell an estimator that asks whose the windows are that it is given next."""
    if hasattr(estimator, "people"):
        estimator.people = people


def _fit(estimator: Any, windows: Windows, truth: Array, fold: Fold, people: Array, id: str) -> None:
    """Train; who does not watch a validation part learns from it too, as the published baselines do."""
    seen = np.sort(np.concatenate([fold.train, fold.validation]))
    _tell_people(estimator, people[seen])
    try:
        if len(fold.validation) and isinstance(estimator, StoppedEarly):
            watched = fold.validation
            estimator.fit_validated(
                windows.handed(fold.train, estimator, id),
                truth[fold.train],
                windows.handed(watched, estimator, id),
                truth[watched],
            )
        else:
            estimator.fit(windows.handed(seen, estimator, id), truth[seen])
    except FIT_ERRORS as error:
        raise failure(id, f"be trained on {len(seen)} windows", error) from error


def _training_notes(trained: list[Any], seeds: tuple[int, ...]) -> list[str]:
    """How large the networks were, how long they were trained, and what an estimator says of itself in `notes_`."""
    sizes = {estimator.parameters_ for estimator in trained if hasattr(estimator, "parameters_")}
    epochs = [estimator.epochs_ for estimator in trained if hasattr(estimator, "epochs_")]
    notes = [f"training seeds {', '.join(map(str, seeds))}"] if seeds else []
    if sizes:
        notes.append(
            f"{max(sizes):,} parameters, {min(epochs)} to {max(epochs)} epochs, {trained[0].threads} threads"
        )
    return [*notes, *sorted({note for estimator in trained for note in getattr(estimator, "notes_", ())})]


def _training_truth(model: Decoder, truth: Array, fold: Fold, rng: np.random.Generator) -> Array:
    if not model.shuffles_labels:
        return truth
    shuffled = truth.copy()
    for part in (fold.train, fold.validation):
        shuffled[part] = truth[rng.permutation(part)]
    return shuffled


def _signature(
    assembly: xr.DataArray,
    truth: Array,
    choices: Array,
    objective: Objective,
    seed: int,
    recipe: TaskRecipe | None,
) -> Signature:
    outputs = len(choices) if objective == "classification" else (truth.shape[1] if truth.ndim == 2 else 1)
    symbols = tuple(sorted(set("".join(truth.tolist())))) if objective == "sequence" else None
    return Signature(
        objective=objective,
        channels=assembly.sizes["channel"],
        samples=assembly.sizes["sample"],
        outputs=outputs if symbols is None else len(symbols) + 1,
        sampling_rate=float(assembly.attrs["sampling_rate"]),
        channel_ids=tuple(assembly["channel_id"].values.astype(str).tolist()),
        seed=seed,
        positions=_positions(assembly),
        symbols=symbols,
        recipe=recipe,
        units=str(assembly.attrs["units"]),
    )


def _positions(assembly: xr.DataArray) -> tuple[tuple[float, float, float], ...] | None:
    """(channel, 3) as plain numbers, None where no channel has a place."""
    if not all(axis in assembly.coords for axis in "xyz"):
        return None
    places = np.stack([assembly[axis].values.astype(float) for axis in "xyz"], axis=1)
    return tuple((x, y, z) for x, y, z in places.tolist()) if np.isfinite(places).any() else None


def _labelled(values: Array, choices: Array, coords: dict[str, Any]) -> xr.DataArray:
    if values.ndim == 1:
        return xr.DataArray(values, dims=("presentation",), coords=coords)
    if len(choices):
        return xr.DataArray(values, dims=("presentation", "choice"), coords={**coords, "choice": choices})
    numbered = np.arange(values.shape[1])
    return xr.DataArray(
        values, dims=("presentation", "neuroid"), coords={**coords, "neuroid_id": ("neuroid", numbered)}
    )
