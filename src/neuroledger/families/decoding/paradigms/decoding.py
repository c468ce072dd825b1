"""Decoding: a decoder is trained on one part of the signals and predicts the targets of the rest."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.dataset import Dataset
from neuroledger.data.facts import Fact
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
from neuroledger.families.decoding.protocols.fold_windows import (
    Windows,
    standardised,
    truth_of,
)
from neuroledger.families.decoding.protocols.foreseen_folds import (
    divided_recordings,
    needed_coordinates,
)
from neuroledger.families.decoding.protocols.leakage_checks import (
    gate,
    label_channels,
    partition_sha256,
    telling_channels,
)
from neuroledger.families.decoding.protocols.splits import (
    Fold,
    SplitRule,
    Train,
    draw_folds,
    unit_of,
)
from neuroledger.families.decoding.training.decoding_recipes import TaskRecipe
from neuroledger.families.signals import signals
from neuroledger.families.signals.model_needs import unmet
from neuroledger.families.signals.signals import recording_digests
from neuroledger.families.simulated_predictions import simulated_predictions
from neuroledger.models.model import fit
from neuroledger.spec.kinds import Pretraining
from neuroledger.spec.registry import paradigm

__all__ = ["decoding", "measure_folds", "people_left_out", "prepared_notes"]


def _trains_on_tested(parameters: Any) -> None:
    """Raise ValueError if the rule tests subjects of whom each decoder would have no training windows."""
    try:
        unit_of(parameters.splits, parameters.train)
    except RequestError as error:
        raise ValueError(str(error)) from error


@paradigm(
    "decoding",
    version=2,
    shows={"signals", "training"},
    asks=lambda values: decoded(values["objective"]),
    itself=False,
    permuted=None,
    simulates=simulated_predictions,
    needs=needed_coordinates,
    divides=divided_recordings,
    together=_trains_on_tested,
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
    """Train a decoder per fold and seed, and return predictions and targets of every test window.

    Parameters
    ----------
    model
        A decoder; if its training does not depend on the seed, only the first seed is used.
    data
        Signals; for retrieval, also the embeddings of the candidates, as the extra assembly named by `target`.
    splits
        The rule of the partition. Its folds must pass the gates, and its SHA-256 must match, if one is pinned.
    target
        The coordinate that is decoded; several for `multilabel` and for several numbers at once. For numbers also an
        extra assembly with one row per stimulus, such as trajectories.
    objective
        The kind of prediction: one class, several labels, a number, an embedding among candidates, or a sequence.
    train
        `each`: one decoder for each subject, within which the rule is applied; or for each session if the rule divides
        sessions (`within_session`, `learning_curve`). `pooled`: one decoder for all subjects of a training part.
    seeds
        Seeds of the training.
    unseen_classes
        Whether tested classes may be missing from the training part (not needed for retrieval of new concepts).
    standardise_targets
        Whether each dimension of embeddings and numbers is standardised by the training part of the fold, before training
        and scoring.
    recipe
        The task's settings for the training of networks with a task-dependent recipe.

    Returns
    -------
    Measurement
        source: (presentation, choice) scores, or (presentation,) numbers, or (presentation, neuroid) embeddings, with
        `seed`, `split` and `row`; target: the targets. Notes state the SHA-256 of the partition and of the prepared
        signals, and waived gates.

    Raises
    ------
    DataError
        The data are not signals, lack the target, or the partition leaks.
    ModelError
        The model is not a decoder, does not support the objective, or returns invalid predictions.
    """
    if data.assembly is None:
        raise DataError(f"data set {data.id!r} has no signals to decode")
    assembly = signals.check(data.assembly, name=data.id or "signals")
    truth = truth_of(assembly, data, target, objective)
    folds = draw_folds(splits, assembly, train)
    digest = partition_sha256(
        folds, [str(row) for row in range(assembly.sizes["presentation"])]
    )
    if splits.sha256 is not None and digest != splits.sha256:
        raise DataError(
            f"splits {splits.name!r}: the partition's SHA-256 is {digest}, pinned is {splits.sha256}"
        )
    labels = (
        truth.astype(str)
        if objective == "classification" and not unseen_classes
        else None
    )
    calibration = getattr(splits, "calibration", None)
    labelled = calibration is not None and calibration.labels
    gate(
        folds,
        assembly,
        disjoint=splits.disjoint,
        labels=labels,
        waive=splits.waive,
        labelled=labelled,
    )
    notes = [f"splits {splits.name}, {len(folds)} folds, sha256 {digest[:12]}"]
    notes += people_left_out(folds, assembly)
    notes += data.notes
    notes += prepared_notes(model, assembly, composed=True)
    notes += recording_overlap(pretraining, partial(recording_digests, assembly))
    notes += _trained_content_notes(assembly, folds, objective)
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
    facts = {"prepared_sha256": Fact(data.content[:12], "stated")}
    return Measurement(
        source=measured.source,
        target=measured.target,
        facts=facts if data.content else {},
        notes=(*notes, *measured.notes),
    )


def prepared_notes(
    model: Decoder, assembly: xr.DataArray, *, composed: bool
) -> list[str]:
    """A note on what the model needs of the preparation of windows, if it needs anything.

    ``composed`` states that the windows were read with these needs; otherwise nothing is known of filters and baseline.

    Raises
    ------
    ModelError
        The windows have another rate, unit or scale.
    """
    needs = getattr(model, "needs", None)
    if needs is None:
        return []
    rate, units = (assembly.attrs[name] for name in ("sampling_rate", "units"))
    problems = unmet(needs, float(rate), str(units))
    if problems:
        raise ModelError(
            f"model {model.id!r}: the windows are not prepared as it needs: {'; '.join(problems)}"
        )
    stated = needs.model_dump(mode="json", exclude_defaults=True)
    words = json.dumps(stated, ensure_ascii=False).replace('"', "")
    unknown = "" if composed else "; filters and baseline were not checked"
    return [f"windows prepared as the model needs: {words}{unknown}"]


def people_left_out(folds: Sequence[Fold], assembly: xr.DataArray) -> list[str]:
    """A note about subjects that no fold tests, if there are any."""
    subjects = assembly["subject"].values.astype(str)
    untested = sorted(
        set(subjects.tolist())
        - {name for fold in folds for name in subjects[fold.test].tolist()}
    )
    if untested:
        return [
            f"{len(untested)} of {len(set(subjects.tolist()))} people are not tested: {', '.join(untested[:3])}"
        ]
    return []


def _trained_content_notes(
    assembly: xr.DataArray, folds: list[Fold], objective: Objective
) -> list[str]:
    """Notes about information on test windows that training had and no gate forbids."""
    notes = []
    if objective == "retrieval":
        stimuli = assembly["stimulus_id"].values.astype(str)
        tested = set[str]()
        trained = set[str]()
        for fold in folds:
            in_fold = set(stimuli[fold.test].tolist())
            tested |= in_fold
            trained |= in_fold & set(
                stimuli[np.concatenate([fold.train, fold.validation])].tolist()
            )
        if trained:
            notes.append(
                f"{len(trained)} of {len(tested)} tested stimuli were trained on too"
            )
    if assembly.attrs.get("units") in ("robust", "standard"):
        recordings = assembly["recording"].values.astype(str)
        if any(
            set(recordings[fold.test].tolist())
            & set(recordings[np.concatenate([fold.train, fold.validation])].tolist())
            for fold in folds
        ):
            notes.append(
                "each recording was scaled by its own statistics, tested windows included"
            )
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
    """Train on every fold with every seed, and concatenate the predictions.

    ``unit`` names the coordinates whose values each have their own decoder. Calibration windows are added to the training
    part if ``labelled``; without labels, they are passed to decoders that adapt to subjects.

    Raises
    ------
    ModelError
        The model is not a decoder, does not support the objective, or returns invalid predictions.
    RequestError
        There are no seeds.
    """
    if not isinstance(model, Decoder):
        raise ModelError(
            f"model {getattr(model, 'id', model)!r} is not a decoder: it takes stimuli and is not trained on signals"
        )
    if objective not in model.objectives:
        raise ModelError(
            f"decoder {model.id!r} does not support {objective}; it supports {', '.join(model.objectives)}"
        )
    if not seeds or len(set(seeds)) != len(seeds):
        raise RequestError(
            "decoding needs at least one training seed, without repetitions"
        )
    windows = Windows(assembly)
    people = assembly["subject"].values.astype(str)
    used = np.concatenate([rows for fold in folds for rows in fold])
    choices = (
        np.unique(truth[used].astype(str))
        if objective == "classification"
        else np.empty(0, dtype=str)
    )
    if objective == "classification":
        truth = truth.astype(str)
    leaking = label_channels(assembly, truth)
    if not leaking and objective == "classification":
        leaking = telling_channels(assembly, truth, folds[0].train)
    notes = (
        [f"the answer is written in the data: {', '.join(leaking[:3])} tells it alone"]
        if leaking
        else []
    )
    if model.inject_signal:
        windows.inject_signal(truth, model.inject_signal)
        notes.append(
            f"control: a signal of {model.inject_signal:g} standard deviations was planted in every window"
        )
    if model.shuffles_labels:
        notes.append("control: the training labels were permuted")
    if standardise and objective not in ("regression", "retrieval"):
        raise RequestError(
            f"standardise_targets applies to numbers and embeddings, not to {objective}"
        )
    trained: list[Any] = []
    seconds: list[float] = []
    columns: dict[str, list[Array]] = defaultdict(list)
    adapted = False
    calibrating = any(len(fold.calibration) for fold in folds)
    for seed in seeds if model.stochastic else seeds[:1]:
        for number, fold in enumerate(folds):
            signature = _signature(assembly, truth, choices, objective, seed, recipe)
            estimator = fit(model, f"decoded:{objective}", signature)
            targets = standardised(truth, fold.train) if standardise else truth
            part = fold
            if labelled:
                part = fold._replace(
                    train=np.sort(np.concatenate([fold.train, fold.calibration]))
                )
            taught = _training_truth(model, targets, people, part, rng)
            started = time.perf_counter()
            _fit(estimator, windows, taught, part, people, model.id)
            seconds.append(time.perf_counter() - started)
            if getattr(estimator, "adapts", False):
                adapted = True
                for subject in np.unique(people[fold.calibration]):
                    rows_of_subject = fold.calibration[
                        people[fold.calibration] == subject
                    ]
                    estimator.adapt(
                        windows.for_estimator(rows_of_subject, estimator, model.id),
                        str(subject),
                    )
            _set_subjects(estimator, people[fold.test])
            trained.append(estimator)
            columns["answers"].append(
                answer(
                    estimator,
                    windows.for_estimator(fold.test, estimator, model.id),
                    objective,
                    choices,
                    id=model.id,
                )
            )
            columns["targets"].append(targets[fold.test])
            columns["row"].append(fold.test)
            columns["split"].append(np.full(len(fold.test), number))
            columns["seed"].append(np.full(len(fold.test), seed))
            columns["trained"].append(
                np.full(len(fold.test), len(part.train) + len(part.validation))
            )
    if calibrating:
        uses = ["joined the training part"] if labelled else []
        uses += ["were shown without labels to the steps that adapt"] if adapted else []
        usage = " and ".join(uses) or "were left out for calibration; no step uses them"
        notes.append(
            f"{sum(len(fold.calibration) for fold in folds)} windows of tested people {usage}"
        )
    notes += _training_notes(trained, seeds if model.stochastic else ())
    row_numbers = np.concatenate(columns["row"])
    coords: dict[str, object] = {
        str(name): ("presentation", coordinate.values[row_numbers])
        for name, coordinate in assembly.coords.items()
        if coordinate.dims == ("presentation",)
    }
    target = _labelled(np.concatenate(columns["targets"]), np.empty(0), coords)
    coords |= {
        name: ("presentation", np.concatenate(columns[name]))
        for name in ("row", "split", "seed", "trained")
    }
    if unit:
        notes.append(f"one decoder for each {' and '.join(unit)}")
        names = zip(
            *(assembly[name].values[row_numbers].astype(str) for name in unit),
            strict=True,
        )
        coords["decoder"] = (
            "presentation",
            np.array([" ".join(name) for name in names]),
        )
    source = _labelled(np.concatenate(columns["answers"]), choices, coords)
    source.encoding["seconds"] = seconds
    return _Measured(source, target, tuple(notes))


def _set_subjects(estimator: Any, people: Array) -> None:
    """Set the subjects of the next windows, for an estimator that uses them."""
    if hasattr(estimator, "subjects"):
        estimator.subjects = people


def _fit(
    estimator: Any, windows: Windows, truth: Array, fold: Fold, people: Array, id: str
) -> None:
    """Train; without early stopping, the validation part is used for training too, as in the published baselines."""
    train_rows = np.sort(np.concatenate([fold.train, fold.validation]))
    _set_subjects(estimator, people[train_rows])
    try:
        if len(fold.validation) and isinstance(estimator, StoppedEarly):
            validation_rows = fold.validation
            estimator.fit_validated(
                windows.for_estimator(fold.train, estimator, id),
                truth[fold.train],
                windows.for_estimator(validation_rows, estimator, id),
                truth[validation_rows],
            )
        else:
            estimator.fit(
                windows.for_estimator(train_rows, estimator, id), truth[train_rows]
            )
    except FIT_ERRORS as error:
        raise failure(id, f"be trained on {len(train_rows)} windows", error) from error


def _training_notes(trained: list[Any], seeds: tuple[int, ...]) -> list[str]:
    """Notes on seeds, sizes of networks and epochs of training, and the estimators' own `notes_`."""
    sizes = {
        estimator.parameters_
        for estimator in trained
        if hasattr(estimator, "parameters_")
    }
    epochs = [
        estimator.epochs_ for estimator in trained if hasattr(estimator, "epochs_")
    ]
    notes = [f"training seeds {', '.join(map(str, seeds))}"] if seeds else []
    if sizes:
        notes.append(
            f"{max(sizes):,} parameters, {min(epochs)} to {max(epochs)} epochs, {trained[0].threads} threads"
        )
    return [
        *notes,
        *sorted(
            {note for estimator in trained for note in getattr(estimator, "notes_", ())}
        ),
    ]


def _training_truth(
    model: Decoder, truth: Array, people: Array, fold: Fold, rng: np.random.Generator
) -> Array:
    """The targets to train on; of a control, permuted within its training and its validation part.

    A fact about people is permuted over both parts at once: within a validation part of one person it would stay as it was.
    """
    if not model.shuffles_labels:
        return truth
    parts = [fold.train, fold.validation]
    known = np.concatenate(parts)
    if _is_of_people(truth[known], people[known]):
        parts = [known]
    shuffled = truth.copy()
    for part in parts:
        shuffled[part] = truth[rng.permutation(part)]
    return shuffled


def _is_of_people(truth: Array, people: Array) -> bool:
    """Whether all windows of a person have the same target."""
    _, first, person = np.unique(people, return_index=True, return_inverse=True)
    return bool((truth == truth[first][person]).all())


def _signature(
    assembly: xr.DataArray,
    truth: Array,
    choices: Array,
    objective: Objective,
    seed: int,
    recipe: TaskRecipe | None,
) -> Signature:
    outputs = (
        len(choices)
        if objective == "classification"
        else (truth.shape[1] if truth.ndim == 2 else 1)
    )
    symbols = (
        tuple(sorted(set("".join(truth.tolist())))) if objective == "sequence" else None
    )
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
    """Positions of the channels, (channel, 3), as plain numbers; None if no position is known."""
    if not all(axis in assembly.coords for axis in "xyz"):
        return None
    places = np.stack([assembly[axis].values.astype(float) for axis in "xyz"], axis=1)
    if np.isfinite(places).any():
        return tuple((x, y, z) for x, y, z in places.tolist())
    return None


def _labelled(values: Array, choices: Array, coords: dict[str, object]) -> xr.DataArray:
    if values.ndim == 1:
        return xr.DataArray(values, dims=("presentation",), coords=coords)
    if len(choices):
        return xr.DataArray(
            values,
            dims=("presentation", "choice"),
            coords={**coords, "choice": choices},
        )
    numbered = np.arange(values.shape[1])
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={**coords, "neuroid_id": ("neuroid", numbered)},
    )
