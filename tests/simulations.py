"""Simulations with known truth that share nothing with the calibration: other stimuli, neurons, models, people and sizes.

    python -m tests.simulations                       # print all rows: about an hour on one core
    python -m tests.simulations ridge cka --runs 100  # some subjects of the table
    python -m tests.simulations --page                # and replace these rows in docs/calibration.md

Stimuli are points of a latent space with heavy tails; neurons rectify random projections of them, with weights of unequal
size, and add noise. In rows of counts, stimuli are normal, and neurons fire as Poisson processes with exponential rates. In
rows of tuning, stimuli belong to ten categories, and neurons are tuned to single points, with noise that grows with the
response. In rows of subjects, the neurons of a subject share a subspace and a level of noise. People and models
discriminate objects by log odds from the object, the pair, and images with heavy tails. Two models see the stimuli
through the same random features, each with noise of its own, and are therefore equal, except in rows whose second model is
worse. An experiment draws what the claim generalises over anew; the rest is the same in all experiments.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import ndtr, ndtri
from scipy.stats import beta, ttest_1samp

import neuroledger as nl
from neuroledger.errors import CeilingError
from neuroledger.stats.differences import clearly_better, difference, joint_mean
from neuroledger.stats.score import Score, mean_of

Floats = npt.NDArray[np.float64]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "calibration.md"
START, END = "<!-- simulations -->", "<!-- /simulations -->"
HEAD = "| score | experiment | new | runs | coverage | width | equal models differ | false ranks | found |"
RULE = "|---|---|---|--:|---|--:|---|---|---|"
LATENT, UNITS = 12, 40


class Row(NamedTuple):
    """One row of the table: the cells that name it, and those that were measured."""

    name: tuple[str, str, str]
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return "| " + " | ".join((*self.name, *self.cells)) + " |"


class World:
    """Stimuli, neurons and equal models; ``fixed`` is ``stimuli``, ``neurons`` or empty."""

    def __init__(self, stimuli: int, neurons: int, features: int, fixed: str) -> None:
        self.size, self.fixed = (stimuli, neurons), fixed
        always = np.random.default_rng([stimuli, neurons])
        self.projection = always.standard_normal((LATENT, UNITS)) / np.sqrt(LATENT)
        self.threshold = 0.3 * always.standard_normal(UNITS)
        self.seen = always.standard_normal((LATENT, features)) / np.sqrt(LATENT)
        self.latent, self.neurons = self.new_stimuli(always), self.new_neurons(always)

    def new_stimuli(self, rng: np.random.Generator) -> Floats:
        return rng.standard_t(6, (self.size[0], LATENT)) / np.sqrt(1.5)

    def new_neurons(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        count = self.size[1]
        sizes = np.exp(0.6 * rng.standard_normal((1, count)))
        return rng.standard_normal((UNITS, count)) * sizes, rng.uniform(0.5, 1.5, count)

    def experiment(
        self, run: int, models: int = 2, worse: float = 0.0
    ) -> tuple[list[xr.DataArray], xr.DataArray]:
        rng = np.random.default_rng([1, run])
        latent = self.latent if self.fixed == "stimuli" else self.new_stimuli(rng)
        weights, noise = self.neurons if self.fixed == "neurons" else self.new_neurons(rng)
        responses = self.measured(latent, weights, noise, rng)
        own = [np.random.default_rng([2, 0 if self.fixed == "stimuli" else run, at]) for at in range(models)]
        features = [np.tanh(latent @ self.seen) for _ in own]
        seen = [
            one + (0.5 + at * worse) * each.standard_normal(one.shape)
            for at, (one, each) in enumerate(zip(features, own, strict=True))
        ]
        of = "" if self.fixed == "stimuli" else run
        return [self.labelled(values, of, "f") for values in seen], self.labelled(responses, of, f"{run}n")

    def measured(self, latent: Floats, weights: Floats, noise: Floats, rng: np.random.Generator) -> Floats:
        signal = np.maximum(latent @ self.projection + self.threshold, 0) @ weights
        level = 2 * noise * np.abs(weights).mean(axis=0)
        return np.asarray(signal + level * rng.standard_normal(signal.shape))

    def labelled(self, values: Floats, run: Any, kind: str) -> xr.DataArray:
        kind = "n" if kind.endswith("n") and self.fixed == "neurons" else kind
        coords = {
            "stimulus_id": ("presentation", [f"{run}s{i}" for i in range(len(values))]),
            "neuroid_id": ("neuroid", [f"{kind}{i}" for i in range(values.shape[1])]),
        }
        return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


class Counts(World):
    """Neurons that fire as Poisson processes, whose rate is an exponential function of a projection of the stimulus."""

    def new_stimuli(self, rng: np.random.Generator) -> Floats:
        return rng.standard_normal((self.size[0], LATENT))

    def new_neurons(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        return rng.standard_normal((LATENT, self.size[1])) / np.sqrt(LATENT), np.ones(self.size[1])

    def measured(self, latent: Floats, weights: Floats, noise: Floats, rng: np.random.Generator) -> Floats:
        return rng.poisson(2 * np.exp(0.7 * latent @ weights)).astype(np.float64)


class Tuned(World):
    """Neurons tuned to single points of the space of stimuli, which belong to ten categories."""

    def __init__(self, stimuli: int, neurons: int, features: int, fixed: str) -> None:
        self.categories = 1.2 * np.random.default_rng(99).standard_normal((10, LATENT))
        super().__init__(stimuli, neurons, features, fixed)

    def new_stimuli(self, rng: np.random.Generator) -> Floats:
        category = self.categories[rng.integers(0, 10, self.size[0])]
        return np.asarray(category + 0.7 * rng.standard_normal(category.shape))

    def new_neurons(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        return 1.2 * rng.standard_normal((LATENT, self.size[1])), rng.gamma(2, 0.5, self.size[1])

    def measured(self, latent: Floats, weights: Floats, noise: Floats, rng: np.random.Generator) -> Floats:
        away = ((latent[:, None] - weights.T) ** 2).sum(axis=2)
        rates = 5 * noise * np.exp(-away / (2 * LATENT))
        return np.asarray(rates + (0.075 + 0.25 * np.sqrt(rates)) * rng.standard_normal(rates.shape))


class Subjects(World):
    """Neurons of several subjects: those of a subject share a subspace of the stimuli and a level of noise."""

    def __init__(self, stimuli: int, people: int, each: int, features: int) -> None:
        self.people = people
        super().__init__(stimuli, people * each, features, "")

    def new_stimuli(self, rng: np.random.Generator) -> Floats:
        return rng.standard_normal((self.size[0], LATENT))

    def new_neurons(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        each = self.size[1] // self.people
        own = [
            rng.standard_normal((LATENT, 6)) @ rng.standard_normal((6, each)) / np.sqrt(6)
            for _ in range(self.people)
        ]
        return np.concatenate(own, axis=1), np.repeat(
            3 * np.exp(0.4 * rng.standard_normal(self.people)), each
        )

    def measured(self, latent: Floats, weights: Floats, noise: Floats, rng: np.random.Generator) -> Floats:
        signal = latent @ weights
        return np.asarray(signal + noise * rng.standard_normal(signal.shape))

    def labelled(self, values: Floats, run: Any, kind: str) -> xr.DataArray:
        labelled = super().labelled(values, run, kind)
        if not kind.endswith("n"):
            return labelled
        names = np.repeat([f"{kind}p{i}" for i in range(self.people)], self.size[1] // self.people)
        return labelled.assign_coords(subject=("neuroid", names))


class SameSubjects(Subjects):
    """Subjects of which new neurons are drawn: their subspaces and levels of noise stay the same."""

    def new_neurons(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        each, always = self.size[1] // self.people, np.random.default_rng([5, self.people])
        spaces = always.standard_normal((self.people, LATENT, 6))
        noise = 3 * np.exp(0.4 * always.standard_normal(self.people))
        own = [space @ rng.standard_normal((6, each)) / np.sqrt(6) for space in spaces]
        sizes = np.exp(0.5 * rng.standard_normal(self.size[1]))
        return np.concatenate(own, axis=1) * sizes, np.repeat(noise, each)


NEW = {
    "": ("stimuli, neuroids", None),
    "neurons": ("stimuli", ("stimulus",)),
    "stimuli": ("neuroids", ("neuroid",)),
}
SIZES = ((60, 15, 200), (100, 150, 30), (100, 150, 200), (200, 25, 60))
COUNTS = ((60, 100, 40), (100, 40, 40), (100, 200, 40), (240, 60, 40))
TUNED = ((40, 20, 50), (100, 200, 60))
KINDS = ((World, SIZES, ""), (Counts, COUNTS, ", counts"), (Tuned, TUNED, ", tuning"))
FOUR = (0.1, 0.2, 0.3, 0.4)
UNEQUAL = (
    ("balanced_accuracy", 10, 60, (0.2, 0.8), None),
    ("balanced_accuracy", 10, 60, FOUR, None),
    ("macro_f1", 10, 60, FOUR, None),
    ("macro_f1", 20, 40, FOUR, None),
    ("macro_f1", 20, 40, FOUR, 5),
)
SUITES = (
    ("ridge, rdm and cka", ("ridge", "rdm", "cka"), (60, 20, 60), True),
    ("3 of ridge and 1 of cka", ("ridge", "ridge", "ridge", "cka"), (60, 15, 60), False),
    ("8 of rdm", ("rdm",) * 8, (40, 12, 40), False),
)
# Between the experiments of one benchmark and those of another.
FAR_APART = 1_000_000
PEOPLE = ((100, 6, 15, 50), (60, 10, 10, 50), (150, 4, 30, 50))


def of_responses(
    label: str, metric: nl.BoundMetric, runs: range, kinds: Any = KINDS, worse: float = 0.0
) -> Iterator[Row]:
    """Rows of a metric of responses: each kind of neurons and size, for each claim."""
    for kind, size, words in [(kind, size, words) for kind, sizes, words in kinds for size in sizes]:
        for fixed, (new, over) in NEW.items():
            world, scores = kind(*size, fixed), []
            for run in runs:
                models, target = world.experiment(run, worse=worse)
                both = [metric(model, target).replace(population=str(run)) for model in models]
                scores.append([score.replace(generalise=over) if over else score for score in both])
            kept = f"{size[0]} stimuli, {size[1]} neuroids, {size[2]} features{words}" + unequal(worse)
            yield summary((label, kept, new), scores, own_truth=fixed == "stimuli" or bool(worse))


def unequal(worse: float) -> str:
    return f", second model worse by {worse}" if worse else ""


def of_subjects(runs: range) -> Iterator[Row]:
    """Rows of claims about new subjects."""
    for label in ("ridge", "cka", "rdm", "cka_subjects", "rdm_subjects"):
        for size in PEOPLE:
            world, scores = Subjects(*size), []
            for run in runs:
                models, target = world.experiment(run)
                both = [nl.metric(label)(model, target).replace(population=str(run)) for model in models]
                scores.append([score.replace(generalise=("stimulus", "subject")) for score in both])
            kept = f"{size[0]} stimuli, {size[1]} subjects with {size[2]} neuroids, {size[3]} features"
            yield summary((label, kept, "stimuli, subjects"), scores)


def of_suites(runs: range) -> Iterator[Row]:
    """Rows of means over benchmarks: of the same data, of different data, and over subjects that stay the same."""
    for words, names, size, shared in SUITES:
        count, scores = 1 if shared else len(names), []
        for run in runs:
            data = [World(*size, "").experiment(run + at * FAR_APART) for at in range(count)]
            both = []
            for model in range(2):
                parts = [
                    nl.metric(name)(models[model], target).replace(population=f"{run} {at % count}")
                    for at, (name, (models, target)) in enumerate(zip(names, cycle(data), strict=False))
                ]
                mean = joint_mean([(1 / len(parts), part) for part in parts])
                both.append(Score(mean.value, spread=mean.spread))
            scores.append(both)
        kept = f"{words}, {'the same' if shared else 'each'} {size[0]} stimuli, {size[1]} neuroids"
        yield summary(("suite mean", kept, "stimuli, neuroids"), scores)
    for size in ((80, 4, 15, 50), (100, 8, 10, 50)):
        world, scores = SameSubjects(*size), []
        for run in runs:
            models, target = world.experiment(run)
            owners = target["subject"].values
            scores.append(
                [
                    mean_of(
                        {
                            str(name): nl.metric("rdm")(model, target[:, owners == name]).replace(
                                population=str(run)
                            )
                            for name in np.unique(owners)
                        },
                        "subject",
                        ("stimulus", "neuroid"),
                    )
                    for model in models
                ]
            )
        kept = f"{size[0]} stimuli, {size[1]} subjects with {size[2]} neuroids, {size[3]} features"
        yield summary(("rdm, mean over subjects", kept, "stimuli, neuroids"), scores)


def league(label: str, metric: nl.BoundMetric, size: tuple[int, int, int], models: int, runs: range) -> Row:
    """One row: how often the board ranks any of many equal models before another."""
    world, false = World(*size, ""), 0
    for run in runs:
        sources, target = world.experiment(run, models)
        scores = [metric(source, target).replace(population=str(run)) for source in sources]
        false += bool(clearly_better([joint_mean([(1.0, score)]) for score in scores]).any())
    name = (label, f"{size[0]} stimuli, {size[1]} neuroids, {models} models", "stimuli, neuroids")
    return Row(name, (str(len(runs)), "", "", "", share(false, len(runs)), ""))


def summary(name: tuple[str, str, str], scores: Sequence[Sequence[Score]], *, own_truth: bool = False) -> Row:
    """Measure one row. With ``own_truth`` the models are equal only up to their difference on what is fixed."""
    values = np.array([[score.value for score in run] for run in scores])
    truth = np.broadcast_to(values.mean(axis=0) if own_truth else values.mean(), values.shape[1:])
    ends = np.array([[(score.low, score.high) for score in run] for run in scores])
    covered = (ends[..., 0] <= truth) & (truth <= ends[..., 1])
    errors = np.array([[score.spread.error if score.spread else np.nan for score in run] for run in scores])
    width = errors.mean() / values.std(axis=0, ddof=1).mean()
    # Intervals of two models of one experiment are not independent, so each experiment counts once.
    counts = share(round(float(covered.mean()) * len(scores)), len(scores))
    if values.shape[1] == 1:
        return Row(name, (str(len(scores)), counts, f"{width:.2f}", "", "", ""))
    apart = truth[0] - truth[1]
    differ = 0
    for run in scores:
        between = difference("simulated", run[0], run[1])
        assert between.low is not None and between.high is not None
        differ += not between.low <= apart <= between.high
    ranked = sum(clearly_better([joint_mean([(1.0, score)]) for score in run]).any() for run in scores)
    ranks = "" if own_truth else share(int(ranked), len(scores))
    return Row(name, (str(len(scores)), counts, f"{width:.2f}", share(differ, len(scores)), ranks, ""))


def share(count: int, runs: int) -> str:
    low = beta.ppf(0.025, count, runs - count + 1) if count else 0.0
    high = beta.ppf(0.975, count + 1, runs - count) if count < runs else 1.0
    return f"{count / runs:.3f} [{low:.3f}, {high:.3f}]"


def decoded(
    people: int,
    trials: int,
    run: int,
    noise: float,
    folds: int | None = None,
    *,
    signal: float = 1.0,
    own: bool = False,
    depth: int = 0,
    unlike: float = 0.0,
) -> list[Score]:
    """Two decoders of simulated trials of people; the second sees the trials with additional noise.

    They are linear, or trees of a ``depth``. ``unlike`` is the deviation of the logarithm of the people's signal strengths.
    ``own`` trains one decoder for each person, on half of the trials, so that no two people share training data.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=depth or None, random_state=0)
    estimator = tree if depth else LinearDiscriminantAnalysis()
    rng, parts = np.random.default_rng([people, trials, run]), []
    pattern = np.full(8, signal) / np.sqrt(8)
    for _ in range(people):
        mean = pattern + 0.6 * rng.standard_normal(8) / np.sqrt(8)
        mean *= np.exp(unlike * rng.standard_normal()) if unlike else 1.0
        label = np.resize([0, 1], trials)
        rng.shuffle(label)
        offset = 0.3 * rng.standard_normal(8)
        parts.append((label, (2 * label - 1)[:, None] * mean / 2 + offset + rng.standard_normal((trials, 8))))
    labels, X = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    person = np.repeat([f"{run}p{i}" for i in range(people)], trials)
    scores = []
    for at in range(2):
        seeded = np.random.default_rng([3, run, at])
        seen = X + (0.7 + at * noise) * seeded.standard_normal(X.shape)
        kept: dict[str, Any] = {"splits": folds} if folds else {"groups": person}
        kept |= {"splits": {"name": "blocked", "folds": 2}, "train": "each"} if own else {}
        classes = np.where(labels, "left", "right")
        scores.append(nl.decode(estimator, seen, classes, **kept).replace(population=str(run)))
    return scores


def unequal_classes(
    label: str, people: int, trials: int, run: int, shares: Sequence[float], folds: int | None
) -> list[Score]:
    """Two linear decoders with equal noise; classes of unequal size have other means in each person.

    Training maximises the likelihood of labels and not `label`, so that each person changes it by being trained on.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng, parts = np.random.default_rng([people, trials, len(shares), run]), []
    means = 0.5 * np.random.default_rng(5).standard_normal((len(shares), 8))
    for _ in range(people):
        label_of = rng.choice(len(shares), trials, p=shares)
        own = means + 0.3 * rng.standard_normal(means.shape) + 0.3 * rng.standard_normal(8)
        parts.append((label_of, own[label_of] + rng.standard_normal((trials, 8))))
    labels, X = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    person = np.repeat([f"{run}p{i}" for i in range(people)], trials)
    kept: dict[str, Any] = {"groups": {"subject": person}}
    kept |= {"splits": {"name": "cross_subject", "folds": folds or people}}
    scores = []
    for at in range(2):
        seen = X + 0.7 * np.random.default_rng([4, run, at]).standard_normal(X.shape)
        score = nl.decode(
            LinearDiscriminantAnalysis(), seen, np.array(list("abcd"))[labels], metric=label, **kept
        )
        scores.append(score.replace(population=str(run)))
    return scores


def of_decoders(runs: range) -> Iterator[Row]:
    """Rows of decoders: equal ones, and how often a difference is found, beside a paired t test over people.

    The t test is valid where each person has an own decoder; people that train each other's decoders are not independent.
    Trees of few levels change much with each person that they are trained on.
    """
    for people, trials, folds in ((6, 30, None), (9, 40, None), (20, 30, None), (9, 30, 5)):
        scores = [decoded(people, trials, run, 0.0, folds) for run in runs]
        kept = f"{people} people, {trials} trials" + (f", {folds} folds" if folds else "")
        row = summary(("decoding", kept, "trials" if folds else "people"), scores)
        yield row if folds else row._replace(cells=(*row.cells[:-1], found(scores, people)))
    varied: dict[str, Any] = {"no signal": {"signal": 0.0}}
    varied |= {f"trees of depth {depth}": {"depth": depth} for depth in (3, 2, 1)}
    for label, options in varied.items():
        scores = [decoded(20, 30, run, 0.0, None, **options) for run in runs]
        row = summary(("decoding", f"20 people, 30 trials, {label}", "people"), scores)
        yield row._replace(cells=(*row.cells[:-1], found(scores, 20)))
    for people, trials in ((6, 40), (10, 60), (20, 40)):
        scores = [decoded(people, trials, run, 0.0, None, signal=4.0, unlike=0.3) for run in runs]
        yield summary(("decoding", f"{people} people, {trials} trials, strong signal", "people"), scores)
    for label, people, trials, sizes, folds in UNEQUAL:
        scores = [unequal_classes(label, people, trials, run, sizes, folds) for run in runs]
        kept = f"{people} people, {trials} trials, {len(sizes)} classes of unequal size, {label}"
        yield summary(("decoding", kept + (f", {folds} folds" if folds else ""), "people"), scores)
    for people, trials in ((9, 40), (20, 30)):
        for noise in (0.6, 1.2):
            scores = [decoded(people, trials, run, noise) for run in runs]
            name = ("decoding", f"{people} people, {trials} trials, noise + {noise}", "people")
            yield Row(name, (str(len(runs)), "", "", "", "", found(scores, people)))
    for people, trials in ((9, 40), (20, 40)):
        for noise in (0.0, 0.6, 1.2):
            scores = [decoded(people, trials, run, noise, own=True) for run in runs]
            name = ("decoding", f"{people} people, {trials} trials, own decoders, noise + {noise}", "people")
            yield Row(name, (str(len(runs)), "", "", "", "", found(scores, people)))


def found(scores: Sequence[Sequence[Score]], people: int) -> str:
    """How often two scores of people differ at 5 %, and how often the people's own scores do in a paired t test."""
    items = [
        [score.samples.values.reshape(people, -1).mean(axis=1) for score in pair if score.samples is not None]
        for pair in scores
    ]
    return beside_t_test(scores, items)


def of_answers(label: str, people: int, stimuli: int, level: float, runs: range, worse: float = 0.0) -> Row:
    """One row of a metric of answers: people and models that find the same stimuli hard, and some conditions."""
    metric, scores = nl.metric(label), []
    conditions = (1.5, 0.5, -0.5, -1.5) if label == "condition_accuracy" else (0.0,)
    for run in runs:
        rng = np.random.default_rng([people, stimuli, run])
        group = np.arange(stimuli) % len(conditions)
        odds = level + 1.2 * rng.standard_t(5, stimuli) + np.asarray(conditions)[group]
        ids = np.array([f"{run}s{i}" for i in range(stimuli)])
        own = 0.5 * rng.standard_normal((people, 1)) + 0.6 * rng.standard_normal((people, stimuli))
        right = rng.random((people, stimuli)) < 1 / (1 + np.exp(-odds - own))
        persons = np.repeat(np.arange(people), stimuli)
        target = answers(np.tile(ids, people), right.ravel(), persons, run, np.tile(group, people))
        pair = []
        for at in range(2):
            each = np.random.default_rng([4, run, at])
            seen = level - at * worse + 0.7 * (odds - level) + each.standard_normal(stimuli)
            given = answers(ids, each.random(stimuli) < 1 / (1 + np.exp(-seen)), None, run, group)
            pair.append(metric(given, target).replace(population=str(run)))
        scores.append(pair)
    new = "stimuli, people" if "subject" in scores[0][0].spread.factors else "stimuli"
    kept = f"{people} people, {stimuli} stimuli" + unequal(worse)
    return summary((label, kept, new), scores, own_truth=bool(worse))


def answers(ids: Any, right: Any, people: Any, run: int, group: Any) -> xr.DataArray:
    coords = {
        "stimulus_id": ("presentation", ids),
        "truth": ("presentation", np.full(len(ids), "cat")),
        "condition": ("presentation", np.array([f"noise {i}" for i in group])),
    }
    if people is not None:
        coords["subject"] = ("presentation", [f"{run}p{i}" for i in people])
    return xr.DataArray(np.where(right, "cat", "dog"), dims="presentation", coords=coords)


def of_objects(label: str, objects: int, images: int, trials: int, runs: range, worse: float = 0.0) -> Row:
    """One row of a metric of object choices: people and models that find some images and pairs of objects hard."""
    always, metric = np.random.default_rng(1), nl.metric(label)
    scores: list[list[Score]] = []
    own, names = 0.5 * always.standard_normal(objects), np.array([f"o{i}" for i in range(objects)])
    pairs = 0.5 * always.standard_normal((objects, objects))
    bias = 0.5 * own + 0.4 * always.standard_normal(objects)
    confused = 0.5 * (pairs + pairs.T) / 2 + 0.3 * always.standard_normal((objects, objects))
    truth = np.repeat(np.arange(objects), images)
    image, other = (part.ravel() for part in np.indices((len(truth), objects)))
    offered = np.repeat(np.flatnonzero(other != truth[image]), trials)
    image, other = image[offered], other[offered]
    for run in runs:
        rng = np.random.default_rng([5, run])
        level = 0.8 * rng.standard_t(5, len(truth))
        odds = 1.2 + (own[truth] + level)[:, None] + (pairs + pairs.T)[truth] / 2
        odds = odds + 0.5 * rng.standard_normal(odds.shape)
        right = rng.random(len(image)) < 1 / (1 + np.exp(-odds[image, other]))
        ids, shown = np.array([f"{run}i{i}" for i in range(len(truth))]), names[truth[image]]
        target = xr.DataArray(
            np.where(right, shown, names[other]),
            dims="presentation",
            coords={
                "stimulus_id": ("presentation", ids[image]),
                "truth": ("presentation", shown),
                "sample_obj": ("presentation", shown),
                "dist_obj": ("presentation", names[other]),
                "subject": ("presentation", np.full(len(image), "pooled")),
            },
        )
        pair = []
        for at in range(2):
            each = np.random.default_rng([6, run, at])
            seen = (
                1 - at * worse + (bias[truth] + 0.6 * level + 0.6 * each.standard_normal(len(truth)))[:, None]
            )
            seen = -(seen + confused[truth] + 0.5 * each.standard_normal(odds.shape))
            seen[np.arange(len(truth)), truth] = 0
            coords = {"stimulus_id": ("presentation", ids), "choice": ("choice", names)}
            source = xr.DataArray(np.exp(seen), dims=("presentation", "choice"), coords=coords)
            pair.append(metric(source / source.sum("choice"), target).replace(population=str(run)))
        scores.append(pair)
    kept = f"{objects} objects with {images} images, {trials} trials of each pair" + unequal(worse)
    return summary((label, kept, "stimuli"), scores, own_truth=bool(worse))


def of_shares(label: str, items: int, level: float, runs: range, worse: float = 0.0) -> Row:
    """One row of a share of items: decisions for shape, or items in which a formula holds."""
    formulas = ["(1;%low%) < (1;%high%)"]
    metric = nl.metric(label, formulas=formulas) if label == "formula" else nl.metric(label)
    scores = []
    for run in runs:
        rng, pair = np.random.default_rng([7, run]), []
        ids, level_of = [f"{run}s{i}" for i in range(items)], 0.7 * rng.standard_t(5, items)
        for at in range(2):
            each = np.random.default_rng([8, run, at])
            margin = ndtri(level) * 1.1 - at * worse + level_of + 0.7 * each.standard_normal(items)
            if label == "formula":
                coords = {
                    "item": ("presentation", ids * 2),
                    "condition": ("presentation", np.repeat(["low", "high"], items)),
                    "region": ("presentation", ["1"] * (2 * items)),
                }
                source = xr.DataArray(np.append(0 * margin, margin), dims="presentation", coords=coords)
                pair.append(metric(source, source).replace(population=str(run)))
            else:
                neither = each.random(items) < 0.3
                said = np.where(neither, "neither", np.where(margin > 0, "shape", "texture"))
                source = xr.DataArray(
                    said, dims="presentation", coords={"stimulus_id": ("presentation", ids)}
                )
                cues = {
                    name: ("presentation", [cue] * items)
                    for name, cue in (("truth", "shape"), ("texture", "texture"))
                }
                pair.append(metric(source, source.assign_coords(cues)).replace(population=str(run)))
        scores.append(pair)
    kept = f"{items} items, mean {level}" + unequal(worse)
    return summary((label, kept, "items"), scores, own_truth=bool(worse))


def of_retrieval(people: int, stimuli: int, k: int, runs: range) -> Row:
    """One row of retrieval: people see the same stimuli, some of which are harder for all."""
    metric, scores = nl.metric(f"top{k}_retrieval"), []
    for run in runs:
        rng, pair = np.random.default_rng([9, run]), []
        embeddings = rng.standard_normal((stimuli, 20))
        gain = np.exp(
            0.3 * rng.standard_normal((people, 1, 1)) + 0.3 * rng.standard_normal((stimuli, 1)) - 0.3
        )
        noise = rng.standard_normal((people, stimuli, 20))
        coords = {
            "subject": ("presentation", np.repeat([f"{run}p{i}" for i in range(people)], stimuli)),
            "stimulus_id": ("presentation", [f"{run}s{i}" for i in range(stimuli)] * people),
        }
        target = xr.DataArray(
            np.tile(embeddings, (people, 1)), dims=("presentation", "neuroid"), coords=coords
        )
        for at in range(2):
            own = np.random.default_rng([10, run, at]).standard_normal(noise.shape)
            source = target.copy(data=(gain * embeddings + noise + own).reshape(-1, 20))
            pair.append(metric(source, target).replace(population=str(run)))
        scores.append(pair)
    return summary((f"top{k}_retrieval", f"{people} people, {stimuli} stimuli", "stimuli, people"), scores)


def of_elevations(people: int, trials: int, runs: range) -> Row:
    """One row of the elevation of thresholds: a model with new trials in both conditions, and new people."""
    metric, scores = nl.metric("threshold_elevation", independent_variable="size"), []
    for run in runs:
        rng, pair = np.random.default_rng([11, run]), []
        elevations = xr.DataArray(1.45 * np.exp(0.3 * rng.standard_normal(people)), dims="subject")
        shown = {
            name: (rng.choice(np.arange(1, 9.0), trials), rng.standard_normal(trials))
            for name in ("baseline", "test")
        }
        for at in range(2):
            each, sides = np.random.default_rng([12, run, at]), []
            for (name, (size, level)), middle in zip(shown.items(), (3.5, 5.25), strict=True):
                right = each.random(trials) < 0.5 + 0.48 * ndtr((size - middle) / 1.5 + 0.35 * level)
                coords = {
                    "stimulus_id": ("presentation", [f"{run}{name}{i}" for i in range(trials)]),
                    "truth": ("presentation", ["left"] * trials),
                    "condition": ("presentation", [name] * trials),
                    "size": ("presentation", size),
                }
                said = np.where(right, "left", "right")
                sides.append(xr.DataArray(said, dims="presentation", coords=coords))
            source = xr.concat(sides, "presentation")
            pair.append(metric(source, elevations).replace(population=str(run)))
        scores.append(pair)
    return summary(("threshold_elevation", f"{people} people, {trials} trials", "stimuli, people"), scores)


def of_ceilings(runs: range) -> Iterator[Row]:
    """Rows of ceilings from repeated measurements of new neurons with new stimuli; refused ceilings do not count."""
    for label in ("internal_consistency", "rdm_consistency"):
        for kind, size, words in (
            (World, (100, 100), ""),
            (Counts, (100, 60), ", counts"),
            (Tuned, (60, 40), ", tuning"),
        ):
            for repetitions in (3, 8):
                world, scores = kind(*size, 1, ""), []
                for run in runs:
                    rng = np.random.default_rng([13, run])
                    stimuli, neurons = world.new_stimuli(rng), world.new_neurons(rng)
                    parts = [
                        world.labelled(world.measured(stimuli, *neurons, rng), run, f"{run}n").assign_coords(
                            repetition=("presentation", [repetition] * size[0])
                        )
                        for repetition in range(repetitions)
                    ]
                    with suppress(CeilingError):
                        scores.append([nl.ceiling(label)(xr.concat(parts, "presentation"))])
                name = f"{size[0]} stimuli, {size[1]} neuroids, {repetitions} repetitions{words}"
                yield summary((label, name, "stimuli, neuroids"), scores)


def of_power(runs: range) -> Iterator[Row]:
    """Rows of how often a worse second model is found, beside Student's paired t test over the items of the claim.

    The t test is one of means. A median over neuroids is a less certain number, so less is found of its differences.
    """
    mean = [{"over": "neuroid", "with": "mean"}, {"over": "split", "with": "mean"}]
    for label, options in (("ridge", {}), ("ridge, mean over neuroids", {"aggregate": mean})):
        metric, world = nl.metric("ridge", **options), World(80, 40, 40, "stimuli")
        for worse in (0.12, 0.25):
            scores, items = [], []
            for run in runs:
                models, target = world.experiment(run, worse=worse)
                both = [metric(model, target).replace(population=str(run)) for model in models]
                scores.append([score.replace(generalise=("neuroid",)) for score in both])
                items.append(
                    [score.samples.mean("split").values for score in both if score.samples is not None]
                )
            name = (label, "80 stimuli, 40 neuroids, 40 features" + unequal(worse), "neuroids")
            yield Row(name, (str(len(runs)), "", "", "", "", beside_t_test(scores, items)))
    for worse in (0.5, 1.0):
        scores, items = [], []
        for run in runs:
            rng = np.random.default_rng([14, run])
            odds, ids = 0.5 + 1.2 * rng.standard_t(5, 100), np.array([f"{run}s{i}" for i in range(100)])
            right = [
                rng.random(100) < 1 / (1 + np.exp(at * worse - odds - 0.7 * rng.standard_normal(100)))
                for at in range(2)
            ]
            given = [answers(ids, each, None, run, np.zeros(100, int)) for each in right]
            target = answers(ids, np.ones(100, bool), None, run, np.zeros(100, int))
            scores.append(
                [nl.metric("accuracy")(each, target).replace(population=str(run)) for each in given]
            )
            items.append([each.astype(float) for each in right])
        name = ("accuracy", "100 stimuli" + unequal(worse), "stimuli")
        yield Row(name, (str(len(runs)), "", "", "", "", beside_t_test(scores, items)))


def beside_t_test(scores: Sequence[Sequence[Score]], items: Sequence[Sequence[Floats]]) -> str:
    """How often two scores differ at 5 %, and how often the values of their items do in a paired t test."""
    ours = [difference("simulated", a, b).p for a, b in scores]
    tested = [ttest_1samp(a - b, 0).pvalue for a, b in items]
    shares = [np.mean([p is not None and p < 0.05 for p in each]) for each in (ours, tested)]
    return f"{shares[0]:.2f}; t test {shares[1]:.2f}"


def of_unequal(runs: range) -> Iterator[Row]:
    """Rows of two models of which the second is worse, so that intervals of a difference are not about zero."""
    for label in ("ridge", "rdm", "cka"):
        yield from of_responses(label, nl.metric(label), runs, ((World, ((80, 40, 40),), ""),), 1.0)
    for people, trials, folds in ((9, 40, None), (20, 30, None), (9, 30, 5)):
        scores = [decoded(people, trials, run, 1.2, folds) for run in runs]
        kept = f"{people} people, {trials} trials" + (f", {folds} folds" if folds else "") + unequal(1.2)
        yield summary(("decoding", kept, "trials" if folds else "people"), scores, own_truth=True)
    for label in ("error_consistency", "accuracy", "accuracy_difference", "accuracy_distance"):
        for worse in (0.5, 1.5):
            yield of_answers(label, 10, 160, 0.8, runs, worse)
    for label in ("i1n", "i2n"):
        yield of_objects(label, 8, 10, 4, runs, 1.0)
    for label in ("formula", "shape_bias"):
        for items, level, worse in ((40, 0.99, 0.6), (40, 0.99, 1.5), (100, 0.8, 0.5)):
            yield of_shares(label, items, level, runs, worse)


def few_components() -> nl.BoundMetric:
    estimator = {"name": "pls", "components": 5}
    return nl.metric("pls", compare={"name": "regression", "estimator": estimator, "correlation": "pearson"})


def subjects() -> dict[str, Callable[[range], Iterator[Row]]]:
    """What can be asked for by name, as rows for some experiments."""
    metrics: dict[str, Callable[[], nl.BoundMetric]] = {
        name: partial(nl.metric, name) for name in ("ridge", "ridgecv", "pls", "rdm", "cka")
    }
    metrics["pls, 5 components"] = few_components
    known: dict[str, Callable[[range], Iterator[Row]]] = {
        name: (lambda runs, name=name, make=make: of_responses(name, make(), runs))  # type: ignore[misc]
        for name, make in metrics.items()
    }
    known["leagues"] = lambda runs: (
        league(name, nl.metric(name), (80, 30, 30), models, runs if models <= 20 else runs[: len(runs) // 2])
        for name in ("ridge", "rdm", "cka")
        for models in (5, 20, 50)
    )
    known["subjects"] = of_subjects
    known["suites"] = of_suites
    known["unequal"] = of_unequal
    known["ceilings"] = of_ceilings
    known["power"] = of_power
    known["decoding"] = of_decoders
    for label in ("i1", "i1n", "i2", "i2n", "o1", "o2"):
        known[label] = lambda runs, label=label: (  # type: ignore[misc]
            of_objects(label, *size, runs)
            for size in ((8, 10, 4), (4, 24, 8))
            if label != "o1" or size[0] > 4  # four objects have three degrees of freedom
        )
    for label in (
        "linear_predictivity",
        "ridgecv_per_target",
        "neuron_to_neuron",
        "reverse_pls",
        "cka_biased",
    ):
        known[label] = lambda runs, label=label: of_responses(  # type: ignore[misc]
            label, nl.metric(label), runs, ((World, ((80, 30, 40),), ""),)
        )
    for label in (
        "error_consistency",
        "accuracy",
        "accuracy_difference",
        "accuracy_distance",
        "kato_accuracy_distance",
        "condition_accuracy",
    ):
        known[label] = lambda runs, label=label: (  # type: ignore[misc]
            of_answers(label, *size, runs)
            for size in ((4, 80, 1.0), (10, 160, 0.3), (6, 40, 0.0))
            if label != "condition_accuracy"
            or size[1] > 40  # a model may find ten stimuli of each condition equally hard
        )
    for label in ("shape_bias", "formula"):
        known[label] = lambda runs, label=label: (  # type: ignore[misc]
            of_shares(label, *size, runs) for size in ((24, 0.97), (80, 0.8))
        )
    for k, stimuli in ((1, 50), (5, 100)):
        known[f"top{k}_retrieval"] = lambda runs, k=k, stimuli=stimuli: iter(  # type: ignore[misc]
            [of_retrieval(10, stimuli, k, runs)]
        )
    known["threshold_elevation"] = lambda runs: iter([of_elevations(12, 300, runs)])
    return known


def replaced(text: str, rows: Sequence[Row]) -> str:
    """The page with these rows in place of those of the same names; new ones come last."""
    before, rest = text.split(START)
    block, after = rest.split(END)
    lines = [line for line in block.splitlines() if line.startswith("| ") and line != HEAD]
    known = {tuple(line.strip("| ").split(" | ")[:3]): line for line in lines}
    known |= {row.name: str(row) for row in rows}
    return f"{before}{START}\n" + "\n".join([HEAD, RULE, *known.values()]) + f"\n{END}{after}"


def main() -> None:
    """Simulate, print the rows, and write them to the page if asked."""
    known = subjects()
    parser = argparse.ArgumentParser(prog="python -m tests.simulations", description=__doc__.splitlines()[0])
    parser.add_argument("subject", nargs="*", help=f"of {', '.join(known)} (default: all)")
    parser.add_argument("--runs", type=int, default=200, help="experiments of each row (default: 200)")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first experiment, which seeds it (default: 0)"
    )
    parser.add_argument("--page", action="store_true", help="write the rows to docs/calibration.md")
    options = parser.parse_args()
    unknown = [name for name in options.subject if name not in known]
    if unknown:
        parser.error(f"no subject {', '.join(unknown)}; known are {', '.join(known)}")
    warnings.simplefilter("ignore")
    print(HEAD, RULE, sep="\n", flush=True)
    for name in options.subject or known:
        for row in known[name](range(options.first, options.first + options.runs)):
            print(row, flush=True)
            if options.page:
                PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), [row]), encoding="utf-8")


if __name__ == "__main__":
    main()
