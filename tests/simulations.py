"""Simulated experiments with known truth that share no generator with the calibration of benchmarks.

    python -m tests.simulations                         # print all rows: some ten minutes on one core
    python -m tests.simulations "ridge" "cka" --runs 50  # rows of some scores
    python -m tests.simulations --page                  # and write them to docs/calibration.md

Stimuli are points of a latent space with heavy tails; neurons rectify random projections of them, with weights of unequal
size, and add noise. The neurons of a person share a subspace and a level of noise. People and models discriminate objects by
log odds from the stimulus and the person. Decoders classify trials of people whose patterns differ. Models see the stimuli
through the same random features, each with noise of its own, and are therefore equal, except in rows whose second model is
worse. An experiment draws all items anew that the claim generalises over. No constant of the intervals was chosen on these
experiments.
"""

from __future__ import annotations

import argparse
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.stats import ttest_rel

import neuroledger as nl
from neuroledger.errors import CeilingError
from neuroledger.stats.calibration import Rate, rate, share
from neuroledger.stats.differences import clearly_better, difference, joint_mean
from neuroledger.stats.score import Score

Floats = npt.NDArray[np.float64]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "calibration.md"
START, END = "<!-- simulations -->", "<!-- /simulations -->"
HEAD = "| score | experiment | runs | coverage | length | interval score | equal models differ | false ranks | found |"
RULE = "|---|---|--:|---|--:|--:|---|---|---|"
LATENT, UNITS = 12, 40
ALPHA, NORMAL = 0.05, 1.959964
# Ceilings of fewer experiments are refused too often to be described.
FEWEST = 10


class Drawn(NamedTuple):
    """Scores of the models of one experiment, and the values of their items for a paired t test."""

    scores: Sequence[Score]
    items: Sequence[Floats] = ()


class Cell(NamedTuple):
    """A kind of experiment; ``draw`` simulates the one with a number, with the seeds of the cell."""

    label: str
    words: str
    draw: Callable[[str, int], Drawn]
    equal: bool = True

    @property
    def name(self) -> tuple[str, str]:
        return self.label, self.words


class Row(NamedTuple):
    """One row of the table: the cells that name it, and those that were measured."""

    name: tuple[str, str]
    cells: tuple[str, ...]

    def __str__(self) -> str:
        return "| " + " | ".join((*self.name, *self.cells)) + " |"


def seeded(cell: str, run: int, part: int = 0) -> np.random.Generator:
    """Return random numbers of a part of an experiment, which no other cell has."""
    return np.random.default_rng([zlib.crc32(cell.encode()), run, part])


class World(NamedTuple):
    """Sizes of experiments with stimuli, neurons and models of the same features."""

    stimuli: int
    neurons: int
    features: int = 60
    people: int = 1

    def experiment(
        self, cell: str, run: int, models: int = 2, worse: float = 0.0
    ) -> tuple[list[xr.DataArray], xr.DataArray]:
        """Return the features of each model and the responses to new stimuli of new neurons."""
        rng, latent = seeded(cell, run), self.new_stimuli(seeded(cell, run, 1))
        responses = self.respond(latent, self.new_neurons(rng), rng)
        seen = np.tanh(latent @ self.always(self.features))
        noisy = [
            seen + (0.5 + at * worse) * seeded(cell, run, 2 + at).standard_normal(seen.shape)
            for at in range(models)
        ]
        return [self.labelled(values, run, "f") for values in noisy], self.labelled(responses, run, "n")

    def always(self, columns: int) -> Floats:
        """Return projections of the latent space that are the same in all experiments."""
        return np.random.default_rng([LATENT, columns]).standard_normal((LATENT, columns)) / np.sqrt(LATENT)

    def new_stimuli(self, rng: np.random.Generator) -> Floats:
        return rng.standard_t(6, (self.stimuli, LATENT)) / np.sqrt(1.5)

    def new_neurons(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return weights (unit, neuron) and the level of noise of each neuron; those of a person share a subspace."""
        each = self.neurons // self.people
        sizes = np.exp(0.6 * rng.standard_normal((1, self.neurons)))
        if self.people == 1:
            return rng.standard_normal((UNITS, each)) * sizes, rng.uniform(1, 3, each)
        spaces = [rng.standard_normal((UNITS, 8)) for _ in range(self.people)]
        weights = [space @ rng.standard_normal((8, each)) / np.sqrt(8) for space in spaces]
        noise = 2 * np.exp(0.4 * rng.standard_normal(self.people))
        return np.concatenate(weights, axis=1) * sizes, np.repeat(noise, each)

    def respond(self, latent: Floats, neurons: tuple[Floats, Floats], rng: np.random.Generator) -> Floats:
        weights, noise = neurons
        signal = np.maximum(latent @ self.always(UNITS), 0) @ weights
        level = noise * np.abs(weights).mean(axis=0)
        return np.asarray(signal + level * rng.standard_normal(signal.shape))

    def labelled(self, values: Floats, run: int, kind: str) -> xr.DataArray:
        coords: dict[str, Any] = {
            "stimulus_id": ("presentation", [f"{run}s{i}" for i in range(len(values))]),
            "neuroid_id": ("neuroid", [f"{run}{kind}{i}" for i in range(values.shape[1])]),
        }
        if kind == "n" and self.people > 1:
            names = [f"{run}p{i}" for i in range(self.people)]
            coords["subject"] = ("neuroid", np.repeat(names, self.neurons // self.people))
        return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def of_responses(
    world: World, label: str, cell: str, run: int, *, models: int = 2, factors: tuple[str, ...] | None = None
) -> Drawn:
    """Scores of a metric of responses."""
    sources, target = world.experiment(cell, run, models)
    scores = [nl.metric(label)(source, target) for source in sources]
    if factors is not None:
        scores = [score.replace(generalise=factors) for score in scores]
    return Drawn(scores)


def over_neuroids(world: World, worse: float, cell: str, run: int) -> Drawn:
    """Means over neuroids of ridge regression, for a claim about new neuroids."""
    mean = [{"over": "neuroid", "with": "mean"}, {"over": "split", "with": "mean"}]
    sources, target = world.experiment(cell, run, worse=worse)
    metric = nl.metric("ridge", aggregate=mean)
    scores = [metric(source, target).replace(generalise=("neuroid",)) for source in sources]
    samples = [score.samples for score in scores if score.samples is not None]
    return Drawn(scores, [each.mean("split").values for each in samples])


def of_suite(labels: Sequence[str], cell: str, run: int) -> Drawn:
    """Means over metrics of the same data."""
    sources, target = World(60, 20).experiment(cell, run)
    scores = []
    for source in sources:
        parts = [nl.metric(label)(source, target).replace(population=f"{cell} {run}") for label in labels]
        mean = joint_mean([(1 / len(parts), part) for part in parts])
        scores.append(Score(mean.value, varies=mean.uncertainty))
    return Drawn(scores)


def of_answers(
    label: str, people: int, stimuli: int, level: float, cell: str, run: int, *, worse: float = 0.0
) -> Drawn:
    """Scores of a metric of answers: people and models find the same stimuli hard."""
    rng, metric = seeded(cell, run), nl.metric(label)
    odds = level + 1.2 * rng.standard_t(5, stimuli)
    own = 0.5 * rng.standard_normal((people, 1)) + 0.6 * rng.standard_normal((people, stimuli))
    right = rng.random((people, stimuli)) < 1 / (1 + np.exp(-odds - own))
    ids = [f"{run}s{i}" for i in range(stimuli)]
    owners = np.repeat([f"{run}p{i}" for i in range(people)], stimuli)
    target = answers(ids * people, right.ravel(), owners)
    of_models = []
    for at in range(2):
        each = seeded(cell, run, 1 + at)
        seen = level - at * worse + 0.7 * (odds - level) + each.standard_normal(stimuli)
        of_models.append(each.random(stimuli) < 1 / (1 + np.exp(-seen)))
    scores = [metric(answers(ids, given, None), target) for given in of_models]
    return Drawn(scores, [given.astype(float) for given in of_models] if worse else ())


def answers(ids: Sequence[str], right: Any, people: Any) -> xr.DataArray:
    coords: dict[str, Any] = {
        "stimulus_id": ("presentation", ids),
        "truth": ("presentation", np.full(len(ids), "cat")),
        "condition": ("presentation", np.full(len(ids), "noise")),
    }
    if people is not None:
        coords["subject"] = ("presentation", people)
    return xr.DataArray(np.where(right, "cat", "dog"), dims="presentation", coords=coords)


def decoded(people: int, trials: int, signal: float, worse: float, cell: str, run: int) -> Drawn:
    """Two linear decoders that are tested on each person in turn; the second sees its trials with additional noise."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng, parts = seeded(cell, run), []
    pattern = np.full(8, signal) / np.sqrt(8)
    for _ in range(people):
        mean = pattern + 0.6 * rng.standard_normal(8) / np.sqrt(8)
        label = rng.permutation(np.resize([0, 1], trials))
        seen = (2 * label - 1)[:, None] * mean / 2 + 0.3 * rng.standard_normal(8)
        parts.append((label, seen + rng.standard_normal((trials, 8))))
    labels, X = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    person = np.repeat([f"{run}p{i}" for i in range(people)], trials)
    classes, scores, items = np.where(labels, "left", "right"), list[Score](), list[Floats]()
    for at in range(2):
        noise = (0.7 + at * worse) * seeded(cell, run, 1 + at).standard_normal(X.shape)
        scores.append(nl.decode(LinearDiscriminantAnalysis(), X + noise, classes, groups=person))
        samples = scores[-1].samples
        assert samples is not None
        items.append(samples.values.reshape(people, -1).mean(axis=1))
    return Drawn(scores, items)


def of_ceiling(label: str, world: World, repetitions: int, cell: str, run: int) -> Drawn:
    """A ceiling from repeated measurements of new neurons with new stimuli; none if it is refused."""
    rng = seeded(cell, run)
    stimuli, neurons = world.new_stimuli(rng), world.new_neurons(rng)
    parts = []
    for repetition in range(repetitions):
        part = world.labelled(world.respond(stimuli, neurons, rng), run, "n")
        number = ("presentation", [repetition] * world.stimuli)
        parts.append(part.assign_coords(repetition=number))
    with suppress(CeilingError):
        return Drawn([nl.ceiling(label)(xr.concat(parts, "presentation"))])
    return Drawn([])


SMALL, PEOPLE = World(60, 20), World(60, 60, people=6)
CELLS = (
    Cell("ridge", "60 stimuli, 20 neuroids", partial(of_responses, SMALL, "ridge")),
    Cell(
        "ridge",
        "120 stimuli, 60 neuroids",
        partial(of_responses, World(120, 60), "ridge"),
    ),
    Cell("pls", "60 stimuli, 20 neuroids", partial(of_responses, SMALL, "pls")),
    Cell("rdm", "60 stimuli, 20 neuroids", partial(of_responses, SMALL, "rdm")),
    Cell("cka", "60 stimuli, 20 neuroids", partial(of_responses, SMALL, "cka")),
    Cell(
        "rdm_subjects", "60 stimuli, 6 people with 10 neuroids", partial(of_responses, PEOPLE, "rdm_subjects")
    ),
    Cell(
        "error_consistency", "10 people, 160 stimuli", partial(of_answers, "error_consistency", 10, 160, 0.3)
    ),
    Cell(
        "error_consistency",
        "6 people, 120 stimuli, errors in about 6 %",
        partial(of_answers, "error_consistency", 6, 120, 3.8),
    ),
    Cell("accuracy", "120 stimuli, about 97 % right", partial(of_answers, "accuracy", 2, 120, 4.5)),
    Cell(
        "accuracy",
        "120 stimuli, second model worse",
        partial(of_answers, "accuracy", 2, 120, 0.8, worse=0.7),
        equal=False,
    ),
    Cell(
        "ridge, mean over neuroids",
        "80 stimuli, 40 neuroids, second model worse; new neuroids",
        partial(over_neuroids, World(80, 40), 0.12),
        equal=False,
    ),
    Cell("decoding", "9 people, 40 trials", partial(decoded, 9, 40, 1.0, 0.0)),
    Cell("decoding", "9 people, 40 trials, no signal", partial(decoded, 9, 40, 0.0, 0.0)),
    Cell(
        "decoding",
        "9 people, 40 trials, second model worse",
        partial(decoded, 9, 40, 1.0, 1.0),
        equal=False,
    ),
    Cell(
        "internal_consistency",
        "60 stimuli, 20 neuroids, 4 repetitions",
        partial(of_ceiling, "internal_consistency", SMALL, 4),
    ),
    Cell(
        "rdm_consistency",
        "60 stimuli, 20 neuroids, 4 repetitions",
        partial(of_ceiling, "rdm_consistency", SMALL, 4),
    ),
    Cell(
        "suite mean",
        "ridge, rdm and cka of the same 60 stimuli, 20 neuroids",
        partial(of_suite, ("ridge", "rdm", "cka")),
    ),
    Cell(
        "board of rdm",
        "5 equal models, 60 stimuli, 20 neuroids",
        partial(of_responses, SMALL, "rdm", models=5),
    ),
)


def measured(cell: Cell, runs: range) -> Row | None:
    """Simulate the experiments of a cell; None if its score is refused in nearly all of them."""
    experiments = []
    for run in runs:
        drawn = cell.draw(" ".join(cell.name), run)
        named = [score.replace(population=f"{cell.name} {run}") for score in drawn.scores]
        _ = [score.low for score in named]
        if named:
            experiments.append(Drawn(named, drawn.items))
    return summary(cell, experiments) if len(experiments) >= min(FEWEST, len(runs)) else None


def summary(cell: Cell, experiments: Sequence[Drawn]) -> Row:
    """Describe the intervals and comparisons of experiments."""
    scores = [drawn.scores for drawn in experiments]
    values = np.array([[score.value for score in each] for each in scores])
    low = np.array([[score.low for score in each] for each in scores])
    high = np.array([[score.high for score in each] for each in scores])
    # Equal models have one truth.
    truth = values.mean() if cell.equal else values.mean(axis=0)
    needed = 2 * NORMAL * float(values.std(axis=0, ddof=1).mean())
    miss = np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0)
    length, loss = float((high - low).mean()), float((high - low + 2 / ALPHA * miss).mean())
    found = false = ranked = ""
    if values.shape[1] > 1:
        differ = [_differ(each) for each in scores]
        ranks = [clearly_better([joint_mean([(1.0, score)]) for score in each]).any() for each in scores]
        if cell.equal:
            false = in_words(share(sum(differ), len(differ), len(differ)))
            ranked = in_words(share(int(sum(ranks)), len(ranks), len(ranks)))
        else:
            found = f"{np.mean(differ):.2f}"
        if experiments[0].items:
            tested = [float(ttest_rel(*drawn.items).pvalue) < ALPHA for drawn in experiments]
            found = f"{np.mean(differ):.2f}; t test {np.mean(tested):.2f}"
    covered = in_words(rate((low <= truth) & (truth <= high)))
    numbers = (f"{length / needed:.2f}", f"{loss / needed:.2f}")
    return Row(cell.name, (str(len(scores)), covered, *numbers, false, ranked, found))


def _differ(scores: Sequence[Score]) -> bool:
    p = difference("simulated", scores[0], scores[1]).p
    return p is not None and p < ALPHA


def in_words(figure: Rate) -> str:
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def rows(labels: Sequence[str], runs: range) -> Iterator[Row]:
    """Return the rows of the named scores, or all."""
    for cell in CELLS:
        if not labels or cell.label in labels:
            row = measured(cell, runs)
            if row is not None:
                yield row


def replaced(text: str, new: Sequence[Row]) -> str:
    """Return the page with these rows in place of those of the same names; all are in the order of the cells."""
    before, rest = text.split(START)
    block, after = rest.split(END)
    lines = [line for line in block.splitlines() if line.startswith("| ") and line != HEAD]
    known = {tuple(line.strip("| ").split(" | ")[:2]): line for line in lines}
    known |= {row.name: str(row) for row in new}
    ordered = [known[cell.name] for cell in CELLS if cell.name in known]
    return f"{before}{START}\n" + "\n".join([HEAD, RULE, *ordered]) + f"\n{END}{after}"


def main() -> None:
    """Simulate, print the rows, and write them to the page if asked."""
    labels = list(dict.fromkeys(cell.label for cell in CELLS))
    parser = argparse.ArgumentParser(prog="python -m tests.simulations", description=__doc__.splitlines()[0])
    parser.add_argument("score", nargs="*", help=f"of {', '.join(labels)} (default: all)")
    parser.add_argument("--runs", type=int, default=100, help="experiments of each row (default: 100)")
    parser.add_argument(
        "--first", type=int, default=0, help="number of the first experiment, which seeds it (default: 0)"
    )
    parser.add_argument("--page", action="store_true", help="write the rows to docs/calibration.md")
    options = parser.parse_args()
    unknown = [name for name in options.score if name not in labels]
    if unknown:
        parser.error(f"no score {', '.join(unknown)}; known are {', '.join(labels)}")
    warnings.simplefilter("ignore")
    print(HEAD, RULE, sep="\n", flush=True)
    for row in rows(options.score, range(options.first, options.first + options.runs)):
        print(row, flush=True)
        if options.page:
            PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), [row]), encoding="utf-8")


if __name__ == "__main__":
    main()
