"""Population decoding: what neurons that were recorded one by one tell about the stimulus, moment by moment."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Array, Booleans, Floats, Strings
from neuroledger.data.dataset import Dataset
from neuroledger.data.factorize import coordinate, encode
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, ModelError
from neuroledger.families.decoding.protocols.decoder import Decoder, Signature, answer, decoded
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
    folds: Annotated[int, Field(ge=2)] = 18,
    resamples: Annotated[int, Field(ge=1)] = 2,
) -> Measurement:
    """Answers of a decoder to pseudo-trials, for every time bin.

    For each resample, every neuron gives ``folds`` of its own trials of each label, drawn without replacement and
    independently of the other neurons; row ``k`` of all neurons is one pseudo-trial. Each fold tests one pseudo-trial
    of each label and trains on the others.

    Parameters
    ----------
    model
        A decoder; it is trained anew for each fold and time bin, on ``(trial, neuroid, 1)``.
    data
        Responses ``(presentation, neuroid[, time_bin])``, NaN where a neuron has no trial, with the coordinate
        ``label``.
    label
        What is decoded.
    folds, resamples
        Pseudo-trials of each label, and how often they are drawn.

    Returns
    -------
    Measurement
        ``source``: answers ``(presentation, time_bin)``; ``target``: the labels ``(presentation,)``.

    Raises
    ------
    ModelError
        The model is not a decoder.
    DataError
        There is no such label, or a neuron has fewer than ``folds`` trials of one.

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
    values = np.asarray(assembly.transpose("presentation", "neuroid", "time_bin").values, dtype=np.float64)
    named = coordinate(assembly, label)
    if named is None:
        raise DataError(f"data set {data.id!r}: presentations have no coordinate {label!r} to decode")
    labels = encode(named)
    usable = [_trials(values, labels.codes == code) for code in range(len(labels.labels))]
    short = min(int(mask.sum(axis=0).min()) for mask, _ in usable)
    if short < folds:
        raise DataError(f"some neuron has {short} trials of a {label}, fewer than the {folds} folds")
    names = labels.labels.astype(str)
    answers = [_one_resample(model, values, usable, names, folds, rng) for _ in range(resamples)]
    split = np.tile(np.repeat(np.arange(folds), len(names)), resamples)
    truth = np.tile(names, folds * resamples)
    ids = [f"{r}-{f}-{name}" for r in range(resamples) for f in range(folds) for name in names]
    coords: dict[str, Any] = {"stimulus_id": ("presentation", ids), "split": ("presentation", split)}
    times = {
        n: ("time_bin", assembly[n].values)
        for n in ("time_bin_start", "time_bin_end")
        if n in assembly.coords
    }
    source = xr.DataArray(
        np.concatenate(answers), dims=("presentation", "time_bin"), coords={**coords, **times}
    )
    target = xr.DataArray(truth, dims=("presentation",), coords={**coords, "truth": ("presentation", truth)})
    notes = ("control: the training labels were permuted",) if model.shuffles_labels else ()
    if model.inject_signal:
        notes = (
            *notes,
            f"control: a signal of {model.inject_signal:g} standard deviations was planted in every trial",
        )
    return Measurement(source, target, target, notes=notes)


def _trials(values: Floats, rows: Booleans) -> tuple[Booleans, Floats]:
    """Which trials of a label each neuron has, ``(trial, neuroid)``, and the responses in them."""
    part = values[rows]
    return np.asarray(~np.isnan(part).any(axis=2)), part


def _one_resample(
    model: Decoder,
    values: Floats,
    usable: list[tuple[Booleans, Floats]],
    names: Array,
    folds: int,
    rng: np.random.Generator,
) -> Strings:
    """Answers ``(fold × label, time_bin)`` to one draw of pseudo-trials."""
    neurons, bins = values.shape[1:]
    drawn = np.empty((folds, len(names), neurons, bins))
    for place, (there, part) in enumerate(usable):
        keys = np.where(there, rng.random(there.shape), np.inf)  # each neuron's own order of its trials
        chosen = np.argsort(keys, axis=0)[:folds]
        drawn[:, place] = part[chosen, np.arange(neurons)]
    if model.inject_signal:  # control: a pattern of each label's own is added to all its pseudo-trials
        patterns = np.random.default_rng(0).choice((-1.0, 1.0), (len(names), neurons, 1))
        drawn += model.inject_signal * drawn.std() * patterns
    out = np.empty((folds, len(names), bins), dtype=names.dtype)
    signature = Signature(
        "classification", neurons, 1, len(names), 1.0, tuple(str(i) for i in range(neurons)), 0
    )
    for fold in range(folds):
        rest = np.delete(np.arange(folds), fold)
        y = np.tile(names, len(rest))
        if model.shuffles_labels:
            y = rng.permutation(y)
        for bin in range(bins):
            estimator = fit(model, "decoded:classification", signature)
            estimator.fit(drawn[rest, :, :, bin].reshape(-1, neurons, 1), y)
            scores = answer(
                estimator, drawn[fold, :, :, bin][:, :, None], "classification", names, id=model.id
            )
            out[fold, :, bin] = names[scores.argmax(axis=1)]
    return out.reshape(-1, bins)
