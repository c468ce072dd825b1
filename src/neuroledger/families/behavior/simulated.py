"""Simulated trials of people, drawn from a model of their ability and of the stimuli's difficulty."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np
import xarray as xr
from scipy.special import expit, logit

from neuroledger.data.arrays import Array, Booleans, Floats, Indices
from neuroledger.data.factorize import coordinate, encode
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import (
    TRUTHS,
    Answers,
    answers_of_people,
    compare,
)
from neuroledger.families.behavior.agreement.error_agreement import (
    measured as agreement_measured,
)
from neuroledger.stats.calibration import Experiment

__all__ = ["kappa_of", "simulated_trials"]

Draw = Callable[[np.random.Generator, int], Experiment[Measurement]]
# Share of the variance of a model's difficulties that people share.
SHARED = 0.5
# Largest absolute log odds that are simulated.
EXTREME = 6.0
# Scale at which a normal distribution function approximates the logistic function.
SCALE = 1.702
# To estimate the deviation of difficulties: simulations per step, steps of the bisection, and its upper limit.
SAMPLES, STEPS, HARDEST = 4, 12, 8.0


def simulated_trials(measured: Measurement, factors: Collection[str]) -> Draw:
    """Return a generator of simulated experiments: new stimuli and new people, in the layout of the measured trials.

    Raises
    ------
    MetricError
        The target does not contain trials of people whose answers can be scored.
    """
    target = measured.target
    if target.dims != ("presentation",) or coordinate(target, "stimulus_id") is None:
        raise MetricError(
            f"no generative model of behaviour with dimensions {tuple(target.dims)} is known"
        )
    if coordinate(target, "dist_obj") is not None:
        return _discriminations(measured)
    if (
        coordinate(target, *TRUTHS) is None
        or coordinate(target, "subject", "subject_id") is None
    ):
        raise MetricError(
            "no generative model of behaviour without subjects and right answers is known"
        )
    return _answers(measured)


def _answers(measured: Measurement) -> Draw:
    target = measured.target
    people = answers_of_people(target)
    truth = np.asarray(coordinate(target, *TRUTHS)).astype(str)
    labels = np.unique(np.concatenate([truth, np.asarray(target.values).astype(str)]))
    subjects, stimuli = (
        encode(coordinate(target, *names))
        for names in (("subject", "subject_id"), ("stimulus_id",))
    )
    conditions = encode(
        coordinate(target, "condition")
        if "condition" in target.coords
        else np.zeros(len(truth))
    )
    level, between = _abilities(people)
    deviation = _difficulty(people, level, between)
    model_level, level = (
        _marginal(level, deviation),
        _marginal(level, np.hypot(deviation, between)),
    )
    source = measured.source
    stimulus_ids = np.asarray(source["stimulus_id"].values).astype(str)
    order = np.argsort(stimuli.labels.astype(str))
    stimulus_codes = order[
        np.minimum(
            np.searchsorted(stimuli.labels.astype(str)[order], stimulus_ids),
            len(order) - 1,
        )
    ]
    source_conditions = coordinate(source, "condition")
    known = conditions.labels.astype(str).tolist()
    condition_codes = (
        [known.index(str(c)) if str(c) in known else 0 for c in source_conditions]
        if source_conditions is not None
        else [0] * len(stimulus_ids)
    )
    truths = dict(
        zip(
            np.asarray(coordinate(target, "stimulus_id")).astype(str),
            truth,
            strict=True,
        )
    )
    right = np.array([truths.get(name, labels[0]) for name in stimulus_ids])
    choices = labels if "choice" in source.dims else None

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        difficulty = deviation * rng.standard_normal(len(stimuli.labels))
        ability = between * rng.standard_normal(len(subjects.labels))
        odds = (
            level[conditions.codes]
            + ability[subjects.codes]
            + difficulty[stimuli.codes]
        )
        answers = _simulated_choices(
            truth, rng.random(len(truth)) < expit(odds), labels, rng
        )
        simulated = target.copy(data=answers)
        whole = simulated if measured.repeated is not None else None
        measurements = []
        for _ in range(models):
            effect = np.sqrt(SHARED) * difficulty + np.sqrt(
                1 - SHARED
            ) * deviation * rng.standard_normal(len(difficulty))
            correct = rng.random(len(stimulus_ids)) < expit(
                model_level[condition_codes] + effect[stimulus_codes]
            )
            predictions = _simulated_choices(right, correct, labels, rng)
            measurements.append(
                Measurement(
                    _as_predictions(source, predictions, choices), simulated, whole
                )
            )
        return Experiment(measurements)

    return draw


def _as_predictions(
    source: xr.DataArray, answers: Array, choices: Array | None
) -> xr.DataArray:
    """Return the answers of a simulated model, as probabilities if ``choices`` is given."""
    coords = {
        name: c for name, c in source.coords.items() if c.dims == ("presentation",)
    }
    if choices is None:
        return xr.DataArray(answers, dims="presentation", coords=coords)
    table = np.where(answers[:, None] == choices, 0.9, 0.1 / max(1, len(choices) - 1))
    return xr.DataArray(
        table, dims=("presentation", "choice"), coords=coords | {"choice": choices}
    )


def _simulated_choices(
    truth: Array, right: Booleans, labels: Array, rng: np.random.Generator
) -> Array:
    """Return the right label where ``right`` is true, and a random other label elsewhere."""
    place = np.searchsorted(labels, truth)
    wrong = labels[
        (place + rng.integers(1, max(2, len(labels)), len(place))) % len(labels)
    ]
    return np.where(right, truth, wrong)


def _abilities(people: Answers) -> tuple[Floats, float]:
    """Return the log odds of a right answer per condition, and their deviation between people beyond sampling noise."""
    right = people.correct.sum(axis=1)
    answered = people.seen.sum(axis=1)
    odds = np.log((right + 0.5) / (answered - right + 0.5))
    noise = (1 / (right + 0.5) + 1 / (answered - right + 0.5)).mean()
    if len(odds) > 1:
        between = float(np.sqrt(max(0.0, odds.var(ddof=1) - noise)))
    else:
        between = 0.0
    level = []
    for c in range(len(people.conditions)):
        cells = people.condition == c
        share = (people.correct[:, cells].sum() + 0.5) / (
            people.seen[:, cells].sum() + 1
        )
        level.append(float(np.clip(logit(share), -EXTREME, EXTREME)))
    return np.array(level), between


def _difficulty(people: Answers, level: Floats, between: float) -> float:
    """Return the deviation of difficulty between stimuli at which simulated people have the measured mean kappa."""
    observed = kappa_of(people)

    def agreement(deviation: float) -> float:
        rng = np.random.default_rng(0)
        kappas = []
        for _ in range(SAMPLES):
            ability = between * rng.standard_normal((len(people.correct), 1))
            odds = (
                _marginal(level, np.hypot(deviation, between))[people.condition]
                + ability
                + (deviation * rng.standard_normal(len(people.stimuli)))[
                    people.stimulus
                ]
            )
            correct = (rng.random(odds.shape) < expit(odds)) * people.seen
            kappas.append(kappa_of(replace(people, correct=correct)))
        return float(np.mean(kappas))

    low = 0.0
    high = HARDEST
    for _ in range(STEPS if np.isfinite(observed) and len(people.correct) > 1 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if agreement(middle) < observed else (low, middle)
    if high < HARDEST:
        return (low + high) / 2
    return 1.0


def _marginal(level: Floats, deviation: float) -> Floats:
    """Return the mean log odds at which normal log odds with this deviation give the same proportion on average."""
    return np.asarray(level * np.sqrt(1 + (deviation / SCALE) ** 2))


def kappa_of(people: Answers) -> float:
    """Return the mean error consistency of the pairs of people."""
    values = agreement_measured(compare(people, people), "error_consistency")
    pairs = np.triu_indices(len(people.correct), 1)
    kappas = values[:, pairs[0], pairs[1]]
    if np.isfinite(kappas).any():
        return float(np.nanmean(kappas))
    return float("nan")


def _discriminations(measured: Measurement) -> Draw:
    """Return the generator for two-choice trials: new images of the same objects, with a difficulty per distractor."""
    target = measured.target
    source = measured.source
    if "choice" not in source.dims:
        raise MetricError(
            "no generative model of two-choice trials is known where models give labels alone"
        )
    names = {
        name: np.asarray(target[name].values).astype(str)
        for name in ("sample_obj", "dist_obj", "stimulus_id")
    }
    truth = np.asarray(coordinate(target, "truth", "sample_obj")).astype(str)
    other = np.where(
        names["sample_obj"] == truth, names["dist_obj"], names["sample_obj"]
    )
    hit: Booleans = np.asarray(target.values).astype(str) == truth
    objects = np.asarray(source["choice"].values).astype(str)
    place: dict[str, int] = {name: i for i, name in enumerate(objects.tolist())}
    images = encode(names["stimulus_id"])
    object_codes: Indices = np.zeros(len(images.labels), dtype=np.intp)
    object_codes[images.codes] = [place[name] for name in truth]
    distractors = np.array([place[name] for name in other])
    count = len(objects)
    pairs = object_codes[images.codes] * count + distractors
    level = _odds(hit, pairs, count * count)[0].reshape(count, count)
    _, deviation = _odds(hit, images.codes, len(images.labels))
    _, finer = _odds(
        hit, images.codes * count + distractors, len(images.labels) * count
    )
    fine = float(np.sqrt(max(0.0, finer**2 - deviation**2)))
    at = {str(name): i for i, name in enumerate(images.labels)}
    rows = [at.get(str(name), -1) for name in source["stimulus_id"].values]

    def table(rng: np.random.Generator) -> Floats:
        shape = (len(images.labels), count)
        return deviation * rng.standard_normal(
            (shape[0], 1)
        ) + fine * rng.standard_normal(shape)

    def draw(rng: np.random.Generator, models: int) -> Experiment[Measurement]:
        effect = table(rng)
        odds = (level[object_codes] + effect)[images.codes, distractors]
        chosen = np.where(rng.random(len(odds)) < expit(odds), truth, other)
        simulated = target.copy(data=chosen)
        measurements = []
        for _ in range(models):
            model_effect = np.sqrt(SHARED) * effect + np.sqrt(1 - SHARED) * table(rng)
            weight = np.exp(
                -np.clip(level[object_codes] + model_effect, -EXTREME, EXTREME)
            )
            weight[np.arange(len(object_codes)), object_codes] = 1.0
            share = weight / weight.sum(axis=1, keepdims=True)
            probabilities = np.where(
                np.array(rows)[:, None] >= 0, share[rows], 1 / count
            )
            whole = simulated if measured.repeated is not None else None
            measurements.append(
                Measurement(source.copy(data=probabilities), simulated, whole)
            )
        return Experiment(measurements)

    return draw


def _odds(hit: Booleans, codes: Indices, size: int) -> tuple[Floats, float]:
    """Return the log odds of a hit per group, and their deviation beyond sampling noise."""
    right = np.bincount(codes, hit, minlength=size)
    count = np.bincount(codes, minlength=size)
    odds = np.log((right + 0.5) / (count - right + 0.5))
    known = count > 0
    hits = right[known]
    misses = count[known] - hits
    noise = (1 / (hits + 0.5) + 1 / (misses + 0.5)).mean()
    return odds, float(np.sqrt(max(0.05, odds[known].var() - noise)))
