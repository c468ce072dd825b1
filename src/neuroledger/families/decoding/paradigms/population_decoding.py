"""Population decoding: the stimulus is decoded in every time bin from neurons that were recorded separately."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Strings
from neuroledger.data.dataset import Dataset
from neuroledger.data.factorize import coordinate, encode
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, ModelError
from neuroledger.families.decoding.protocols.decoder import (
    Decoder,
    Signature,
    answer,
    decoded,
)
from neuroledger.families.fields import AtLeastOne, AtLeastTwo
from neuroledger.models.model import fit
from neuroledger.spec.registry import paradigm

__all__ = ["population_decoding"]


@paradigm(
    "population_decoding",
    version=1,
    shows={"signals", "training"},
    asks=decoded("classification"),
    itself=False,
    permuted=None,
)
def population_decoding(
    model: Decoder,
    data: Dataset,
    *,
    rng: np.random.Generator,
    label: str = "object_name",
    folds: AtLeastTwo = 18,
    resamples: AtLeastOne = 2,
) -> Measurement:
    """Decode pseudo-trials in every time bin.

    For each resample, ``folds`` trials of each label are drawn for every neuron, without replacement and independently
    of the other neurons; trial ``k`` of all neurons is one pseudo-trial. Each fold tests one pseudo-trial of each label
    and trains on the others.

    Parameters
    ----------
    model
        A decoder; a new one is trained for each fold and time bin, on ``(trial, neuroid, 1)``.
    data
        Responses ``(presentation, neuroid[, time_bin])``, NaN where a neuron has no trial, with the coordinate
        ``label``.
    label
        The coordinate that is decoded.
    folds, resamples
        Number of pseudo-trials of each label, and number of draws.

    Returns
    -------
    Measurement
        ``source``: predictions ``(presentation, time_bin)``; ``target``: the labels ``(presentation,)``.

    Raises
    ------
    ModelError
        The model is not a decoder.
    DataError
        The coordinate is missing, or a neuron has fewer than ``folds`` trials of a label.

    Notes
    -----
    Zhang et al. (2011).
    """
    if not isinstance(model, Decoder):
        raise ModelError(
            f"model {getattr(model, 'id', model)!r} is not a decoder: it cannot be trained on neurons"
        )
    assembly = data.assembly
    if assembly is None:
        raise DataError(f"data set {data.id!r} has no responses to decode from")
    if "time_bin" not in assembly.dims:
        assembly = assembly.expand_dims("time_bin", axis=2)
    values = np.asarray(
        assembly.transpose("presentation", "neuroid", "time_bin").values,
        dtype=np.float64,
    )
    label_values = coordinate(assembly, label)
    if label_values is None:
        raise DataError(
            f"data set {data.id!r}: presentations have no coordinate {label!r} to decode"
        )
    labels = encode(label_values)
    usable = [
        _trials_of_label(values, labels.codes == code)
        for code in range(len(labels.labels))
    ]
    fewest = min(int(mask.sum(axis=0).min()) for mask, _ in usable)
    if fewest < folds:
        raise DataError(
            f"a neuron has {fewest} trials of a {label}, fewer than the {folds} folds"
        )
    names = labels.labels.astype(str)
    answers = [
        _decode_resample(model, values, usable, names, folds, rng)
        for _ in range(resamples)
    ]
    split = np.tile(np.repeat(np.arange(folds), len(names)), resamples)
    truth = np.tile(names, folds * resamples)
    ids = [
        f"{r}-{f}-{name}"
        for r in range(resamples)
        for f in range(folds)
        for name in names
    ]
    coords: dict[str, object] = {
        "stimulus_id": ("presentation", ids),
        "split": ("presentation", split),
    }
    times = {
        name: ("time_bin", assembly[name].values)
        for name in ("time_bin_start", "time_bin_end")
        if name in assembly.coords
    }
    source = xr.DataArray(
        np.concatenate(answers),
        dims=("presentation", "time_bin"),
        coords={**coords, **times},
    )
    target = xr.DataArray(
        truth,
        dims=("presentation",),
        coords={**coords, "truth": ("presentation", truth)},
    )
    notes = (
        ("control: the training labels were permuted",) if model.shuffles_labels else ()
    )
    if model.inject_signal:
        notes = (
            *notes,
            f"control: a signal of {model.inject_signal:g} standard deviations was planted in every trial",
        )
    return Measurement(source, target, target, notes=notes)


def _trials_of_label(values: Floats, rows: Booleans) -> tuple[Booleans, Floats]:
    """A mask of the trials of a label that each neuron has, ``(trial, neuroid)``, and the responses."""
    part = values[rows]
    return np.asarray(~np.isnan(part).any(axis=2)), part


def _decode_resample(
    model: Decoder,
    values: Floats,
    usable: list[tuple[Booleans, Floats]],
    names: Array,
    folds: int,
    rng: np.random.Generator,
) -> Strings:
    """Predictions ``(fold × label, time_bin)`` for one draw of pseudo-trials."""
    neurons, bins = values.shape[1:]
    trials = np.empty((folds, len(names), neurons, bins))
    for position, (present, part) in enumerate(usable):
        keys = np.where(
            present, rng.random(present.shape), np.inf
        )  # an independent order for each neuron
        chosen = np.argsort(keys, axis=0)[:folds]
        trials[:, position] = part[chosen, np.arange(neurons)]
    if (
        model.inject_signal
    ):  # control: add a label-specific pattern to all pseudo-trials
        patterns = np.random.default_rng(0).choice(
            (-1.0, 1.0), (len(names), neurons, 1)
        )
        trials += model.inject_signal * trials.std() * patterns
    predictions = np.empty((folds, len(names), bins), dtype=names.dtype)
    signature = Signature(
        "classification",
        neurons,
        1,
        len(names),
        1.0,
        tuple(str(i) for i in range(neurons)),
        0,
    )
    for fold in range(folds):
        training_folds = np.delete(np.arange(folds), fold)
        y = np.tile(names, len(training_folds))
        if model.shuffles_labels:
            y = rng.permutation(y)
        for bin in range(bins):
            estimator = fit(model, "decoded:classification", signature)
            estimator.fit(trials[training_folds, :, :, bin].reshape(-1, neurons, 1), y)
            scores = answer(
                estimator,
                trials[fold, :, :, bin][:, :, None],
                "classification",
                names,
                id=model.id,
            )
            predictions[fold, :, bin] = names[scores.argmax(axis=1)]
    return predictions.reshape(-1, bins)
