"""Correlation of image- or object-level patterns of discrimination difficulty between model and people."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Floats, floats
from neuroledger.data.factorize import encode, locate, repeated
from neuroledger.errors import MetricError
from neuroledger.families.behavior.tasks.discrimination import (
    FREE,
    halves,
    independent,
    pattern,
    pearson,
    rates_from_probabilities,
    without_images,
)
from neuroledger.families.behavior.tasks.trials import ObjectTrials, read_trials
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples

__all__ = ["discrimination"]


@metric("discrimination", version=4, input="behaviour")
def discrimination(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    level: Literal["image", "object"] = "image",
    distractors: Literal["each", "mean"] = "each",
    normalise: bool = False,
    repetitions: int = 2,
    seed: int = 0,
) -> Samples:
    """Return the correlation of the model's and people's d-prime patterns, for each random half of trials: ``(split,)``.

    Parameters
    ----------
    source
        Model behaviour ``(presentation, choice)``: probability of each object, one row per stimulus in any order,
        with coordinates ``stimulus_id`` and ``choice``.
    target
        Trials of people ``(presentation,)``: the chosen object, with ``stimulus_id``, ``sample_obj``, ``dist_obj``,
        ``truth``.
    level
        ``image``: one value per image; ``object``: one value per pair of objects.
    distractors
        ``each``: a value per distractor (i2, o2); ``mean``: averaged over distractors (i1, o1).
    normalise
        Subtract the mean over the images of an object, so that only differences within objects remain (n).
    repetitions, seed
        Each repetition compares the model with the first random half of the trials; the ceiling compares the two halves,
        so that ``r / √ceiling`` corrects for the noise of a half.

    Raises
    ------
    MetricError
        Trials or stimuli are missing, duplicated or contradictory, or a pattern is constant.

    Notes
    -----
    Rajalingham et al. (2018), as modified by Schrimpf et al. (2018): the response matrix of the model is fixed.
    """
    trials = read_trials(target, objects=_choices(source))
    rates, notes = _model_rates(source, trials)
    model = pattern(
        rates, trials.truth, level=level, distractors=distractors, normalise=normalise
    )
    pairs = []
    scores = []
    undefined = 0
    for half, _ in halves(len(trials.image), repetitions=repetitions, seed=seed):
        people_rates = trials.rates(half)
        people = pattern(
            people_rates,
            trials.truth,
            level=level,
            distractors=distractors,
            normalise=normalise,
        )
        known = ~np.isnan(people)
        undefined += int((known & np.isnan(model)).sum())
        known &= ~np.isnan(model)
        by_image = normalise and level == "image"
        score = np.nan
        if independent(known, trials.truth, normalise=by_image) >= FREE:
            score = pearson(model[known], people[known])
        scores.append(score)
        pairs.append((rates, people_rates))
    if undefined:
        notes.append(
            f"{undefined} cells where the model's d-prime is undefined were left out"
        )
    if np.isnan(scores).any():
        raise MetricError(
            "a pattern of d-primes is constant, or fewer than two of its values vary independently of the means that are "
            "subtracted: no correlation; show more images or objects"
        )
    out = xr.DataArray(
        np.asarray(scores), dims=("split",), coords={"split": np.arange(repetitions)}
    )
    kind: dict[str, Any] = {
        "level": level,
        "distractors": distractors,
        "normalise": normalise,
    }
    variation = without_images(trials.images, trials.truth, pairs, **kind)
    return Samples(out, variation, counts={"stimuli": len(trials.images)}, notes=notes)


def _choices(source: xr.DataArray) -> npt.NDArray[np.object_]:
    if set(source.dims) != {"presentation", "choice"} or "choice" not in source.coords:
        raise MetricError(
            f"model behaviour has dimensions {source.dims}; give probabilities (presentation, choice)"
        )
    labels = encode(source["choice"].values).labels
    if len(labels) != source.sizes["choice"]:
        raise MetricError(
            "two columns of the model's probabilities have the same choice; name each object once"
        )
    return np.asarray(labels)


def _model_rates(
    source: xr.DataArray, trials: ObjectTrials
) -> tuple[Floats, list[str]]:
    """Return the model's distractor rates on the images that people saw, ``(image, object)``, and notes."""
    probabilities = source.transpose("presentation", "choice")
    if "stimulus_id" not in source.coords:
        raise MetricError(
            "model behaviour has no stimulus_id; give one row per stimulus with its id"
        )
    rows = locate(trials.images, source["stimulus_id"].values)
    if (rows < 0).any():
        absent = ", ".join(map(repr, trials.images[rows < 0][:3].tolist()))
        raise MetricError(
            f"the model has no answer for {int((rows < 0).sum())} stimuli that people saw ({absent})"
        )
    ids = encode(source["stimulus_id"].values)
    twice = repeated(ids.codes)
    if twice.size:
        name = ids.labels[ids.codes[twice[0]]]
        raise MetricError(
            f"stimulus {str(name)!r} has several rows of model behaviour; average them first"
        )
    columns = locate(trials.objects, source["choice"].values)
    values = floats(probabilities.values)[np.ix_(rows, columns)]
    if np.isnan(values).any() or (values < 0).any():
        raise MetricError(
            "model probabilities are negative or missing for some stimuli; give p ≥ 0 for every choice"
        )
    extra = source.sizes["presentation"] - len(rows)
    return rates_from_probabilities(values, trials.truth), (
        [f"{extra} stimuli of the model without human trials were left out"]
        if extra
        else []
    )
