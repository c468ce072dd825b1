"""Decisions are read out from a model's features: labels, probabilities, the odd one out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from neuroledger.errors import ModelError, RequestError
from neuroledger.models.imagenet import CATEGORIES, CLASSES, SYNSETS

Array = NDArray[Any]

PENALTY: Final = 1e-3
TRIPLET: Final = 3
PAIRS: Final = ((0, 1), (0, 2), (1, 2))


def probabilities(
    fitting: Array, labels: Sequence[str], features: Array, stimulus_ids: Sequence[str]
) -> xr.DataArray:
    """Probability of each label for each stimulus, (presentation, choice), by logistic regression.

    ``fitting`` (stimulus, feature) carries ``labels``; it is standardised, and the regression is multinomial with
    C = 0.001, as in Brain-Score; of two labels too, where the weights of both are penalised. Choices are in the order
    in which the labels first occur.

    Raises
    ------
    RequestError
        Fewer than two labels to choose from.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    choices = list(dict.fromkeys(labels))
    if len(choices) < 2:
        raise RequestError(f"a readout needs at least two labels, the fitting stimuli have {choices}")
    scaler = StandardScaler().fit(fitting)
    codes = np.array([choices.index(label) for label in labels])
    # Two weights of equal size and opposite sign cost half of what their difference does.
    penalty = PENALTY * 2 if len(choices) == 2 else PENALTY
    model = LogisticRegression(C=penalty, solver="newton-cg", max_iter=100)
    model.fit(scaler.transform(fitting), codes)
    values = model.predict_proba(scaler.transform(features))
    return xr.DataArray(
        values,
        dims=("presentation", "choice"),
        coords={
            "stimulus_id": ("presentation", np.asarray(stimulus_ids, dtype=object)),
            "choice": np.asarray(choices, dtype=object),
        },
    )


def odd_one_out(
    features: Array,
    stimulus_ids: Sequence[str],
    *,
    similarity: Literal["dot", "cosine"] = "dot",
    triplets: Sequence[tuple[str, str, str]] = (),
) -> xr.DataArray:
    """The stimulus unlike the other two of each triplet: (presentation,) stimulus ids.

    The most similar pair is kept, the third is odd; among equals the first pair (1–2, then 1–3, then 2–3) wins.
    ``stimulus_id`` of a presentation names its three stimuli, joined by ``|``. Without ``triplets`` the rows come
    in threes; with them every stimulus is a row, and similarities are those of one Gram matrix.

    Raises
    ------
    RequestError
        The number of rows is not a multiple of three, or a triplet names a stimulus that has no row.
    """
    names = np.asarray(stimulus_ids, dtype=object)
    if triplets:
        place = {str(id): row for row, id in enumerate(names)}
        missing = sorted({id for triplet in triplets for id in triplet if id not in place})
        if missing:
            raise RequestError(
                f"{len(missing)} stimuli of the triplets have no features, first {missing[0]!r}"
            )
        rows = np.asarray([[place[id] for id in triplet] for triplet in triplets], dtype=np.intp)
    else:
        if len(features) % TRIPLET:
            raise RequestError(f"odd one out needs stimuli in threes, {len(features)} were given")
        rows = np.arange(len(features), dtype=np.intp).reshape(-1, TRIPLET)
    first, second, third = rows.T
    if triplets:
        gram = features @ features.T
        pairs = np.stack([gram[first, second], gram[first, third], gram[second, third]], axis=1)
    else:
        threes = features[rows]
        pairs = np.stack([np.einsum("tf,tf->t", threes[:, i], threes[:, j]) for i, j in PAIRS], axis=1)
    if similarity == "cosine":
        norms = np.sqrt(np.einsum("nf,nf->n", features, features))[rows]
        pairs = pairs / np.stack([norms[:, i] * norms[:, j] for i, j in PAIRS], axis=1)
    odd = rows[np.arange(len(rows)), 2 - np.argmax(pairs, axis=1)]
    joined = np.array(["|".join(map(str, names[triplet])) for triplet in rows], dtype=object)
    return xr.DataArray(names[odd], dims="presentation", coords={"stimulus_id": ("presentation", joined)})


def label(
    logits: Array,
    stimulus_ids: Sequence[str],
    choices: Sequence[str],
    *,
    model: str,
    labels: Sequence[str] = (),
) -> xr.DataArray:
    """The chosen label of each stimulus, (presentation,), from logits of ``labels``, or of the 1,000 ImageNet classes.

    With ``labels``, one for each logit, the largest logit among ``choices`` wins. Of ImageNet, a category's
    probability is the mean over its classes of the softmax, and the largest wins (geirhos2018); the only choice
    ``imagenet`` stands for all classes: the answer is then the WordNet id of the largest logit.

    Raises
    ------
    ModelError
        The readout layer does not hold one logit for each label.
    RequestError
        A choice is not among the labels, or not a category whose ImageNet classes are known.
    """
    if labels:
        return _own_label(logits, stimulus_ids, choices, labels, model)
    if logits.shape[1] != CLASSES:
        raise ModelError(
            f"model {model!r}: labels need the {CLASSES} ImageNet logits, its readout layer has {logits.shape[1]} "
            "features; name the layer of `logits` (`output` is what a network gives) and their `labels`"
        )
    if tuple(choices) == ("imagenet",):
        return _decided(np.asarray(SYNSETS, dtype=object)[np.argmax(logits, axis=1)], stimulus_ids)
    strange = sorted(set(choices) - set(CATEGORIES))
    if strange or not choices:
        raise RequestError(
            f"no ImageNet classes are known for {strange or 'no choices'}; known: {sorted(CATEGORIES)}"
        )
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    softmax = powers / powers.sum(axis=1, keepdims=True)
    means = np.stack([softmax[:, list(CATEGORIES[choice])].mean(axis=1) for choice in choices], axis=1)
    return _decided(np.asarray(list(choices), dtype=object)[np.argmax(means, axis=1)], stimulus_ids)


def _own_label(
    logits: Array, stimulus_ids: Sequence[str], choices: Sequence[str], labels: Sequence[str], model: str
) -> xr.DataArray:
    if logits.shape[1] != len(labels):
        raise ModelError(
            f"model {model!r}: {logits.shape[1]} features in its readout layer for {len(labels)} labels"
        )
    strange = [choice for choice in choices if choice not in labels]
    if strange or not choices:
        raise RequestError(
            f"model {model!r} does not know {strange or 'what to choose from'}; it knows {list(labels)}"
        )
    among = logits[:, [list(labels).index(choice) for choice in choices]]
    return _decided(np.asarray(list(choices), dtype=object)[np.argmax(among, axis=1)], stimulus_ids)


def _decided(labels: Array, stimulus_ids: Sequence[str]) -> xr.DataArray:
    coords = {"stimulus_id": ("presentation", np.asarray(stimulus_ids, dtype=object))}
    return xr.DataArray(labels, dims="presentation", coords=coords)
