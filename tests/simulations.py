"""Simulated experiments with known truth: what the inference of scores, ceilings, comparisons and ranks is worth.

    python -m tests.simulations                          # print all rows: about an hour on one core
    python -m tests.simulations "ridge" "cka" --runs 50  # rows of some scores
    python -m tests.simulations --page                   # and write them to the table of docs/calibration.md

Stimuli come in clusters of a latent space. Of the neurons, a third respond to the energy of a random feature, the others
rectify it; their gains are log-normal and their noise is skewed. People and models discriminate objects by log odds from
the cluster of a stimulus, the stimulus and the person. Decoders classify trials of people whose patterns differ. Models see
the stimuli through the same features, each with noise of its own, and are therefore equal, except in rows whose second
model is worse. An experiment draws all items anew that the claim generalises over. Nothing of the method was chosen on
these experiments.
"""

from __future__ import annotations

import argparse
import csv
import io
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.stats import ttest_rel

import neuroledger as nl
from neuroledger.errors import NeuroLedgerError
from neuroledger.stats.calibration import Rate, rate, share
from neuroledger.stats.differences import clearly_better, difference, joint_mean
from neuroledger.stats.score import Score, normalise
from tests.varying import mean_score

Floats = npt.NDArray[np.float64]
TABLE = Path(__file__).resolve().parents[1] / "docs" / "tables" / "simulations.csv"
"""The table that docs/calibration.md shows."""
HEAD = (
    "score", "experiment", "runs", "coverage", "length", "interval score", "equal models differ", "false ranks", "found",
)  # fmt: skip
ALPHA, NORMAL = 0.05, 1.959964
LEAGUES = (5, 10, 20)
# Ceilings of fewer experiments are refused too often to be described.
FEWEST = 10


class Drawn(NamedTuple):
    """Scores of the models of one experiment, values of their items for a paired t test, and the noiseless score."""

    scores: Sequence[Score]
    items: Sequence[Floats] = ()
    noiseless: float | None = None


class Cell(NamedTuple):
    """A kind of experiment; ``draw`` simulates the one with a number, with the seeds of the cell, ``times`` as often."""

    label: str
    words: str
    draw: Callable[[str, int], Drawn]
    equal: bool = True
    times: int = 1

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


LATENT, CLUSTERS, FEATURES = 9, 7, 24


class Neurons(NamedTuple):
    """Weights (latent, neuron) and gains of neurons."""

    weights: Floats
    gains: Floats

    def signal(self, latent: Floats) -> Floats:
        """Noiseless responses (stimulus, neuron)."""
        driven = latent @ self.weights
        energy = np.arange(len(self.gains)) % 3 == 0
        return np.asarray(
            self.gains * np.where(energy, np.abs(driven), np.maximum(driven, -0.2))
        )


class World(NamedTuple):
    """Sizes of experiments with stimuli, neurons and models; tails of stimuli, spread of gains, and levels of noise."""

    stimuli: int
    neurons: int
    people: int = 1
    tails: float = 8.0
    gains: float = 0.4
    noise: float = 1.0
    models: float = 0.6

    def experiment(
        self, cell: str, run: int, models: int = 2, worse: float = 0.0
    ) -> tuple[list[xr.DataArray], xr.DataArray]:
        """Return the features of each model and the responses to new stimuli of new neurons."""
        rng = seeded(cell, run)
        latent = self.new_stimuli(rng)
        neurons = self.new_neurons(rng)
        responses = neurons.signal(latent) + self.new_noise(neurons, rng)
        fixed = np.random.default_rng([LATENT, FEATURES])
        seen = np.maximum(
            latent @ fixed.standard_normal((LATENT, FEATURES))
            + fixed.standard_normal(FEATURES),
            0,
        )
        noisy = [
            seen
            + (self.models + at * worse)
            * seeded(cell, run, 1 + at).standard_normal(seen.shape)
            for at in range(models)
        ]
        return [self.labelled(values, run, "f") for values in noisy], self.labelled(
            responses, run, "n"
        )

    def new_stimuli(self, rng: np.random.Generator, count: int = 0) -> Floats:
        count = count or self.stimuli
        centres = np.random.default_rng([CLUSTERS, LATENT]).standard_normal(
            (CLUSTERS, LATENT)
        )
        own = rng.standard_t(self.tails, (count, LATENT))
        return np.asarray(
            centres[rng.integers(0, CLUSTERS, count)] + 0.8 * own
        ) / np.sqrt(LATENT)

    def new_neurons(self, rng: np.random.Generator) -> Neurons:
        """Neurons, of which those of a person share a subspace."""
        weights = rng.standard_normal((LATENT, self.neurons))
        if self.people > 1:
            spaces = rng.standard_normal((self.people, LATENT, 4))
            each = (
                rng.standard_normal((self.people, 4, self.neurons // self.people)) / 2
            )
            weights = np.concatenate(list(spaces @ each), axis=1)
        return Neurons(weights, np.exp(self.gains * rng.standard_normal(self.neurons)))

    def new_noise(self, neurons: Neurons, rng: np.random.Generator) -> Floats:
        """Skewed noise of single responses, relative to the deviation of each neuron's signal over many stimuli."""
        many = self.new_stimuli(np.random.default_rng(LATENT), count=1000)
        level = self.noise * neurons.signal(many).std(axis=0)
        skewed = (rng.standard_gamma(3, (self.stimuli, self.neurons)) - 3) / np.sqrt(3)
        return np.asarray(level * skewed)

    def labelled(self, values: Floats, run: int, kind: str) -> xr.DataArray:
        coords: dict[str, Any] = {
            "stimulus_id": ("presentation", [f"{run}s{i}" for i in range(len(values))]),
            "neuroid_id": (
                "neuroid",
                [f"{run}{kind}{i}" for i in range(values.shape[1])],
            ),
        }
        if kind == "n" and self.people > 1:
            names = [f"{run}p{i}" for i in range(self.people)]
            coords["subject"] = (
                "neuroid",
                np.repeat(names, self.neurons // self.people),
            )
        return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


def of_responses(
    world: World,
    label: str,
    cell: str,
    run: int,
    *,
    models: int = 2,
    worse: float = 0.0,
    factors: tuple[str, ...] | None = None,
) -> Drawn:
    """Scores of a metric of responses, for a claim about the factors (default: that of the metric)."""
    sources, target = world.experiment(cell, run, models, worse)
    scores = [nl.metric(label)(source, target) for source in sources]
    if factors is not None:
        scores = [score.replace(generalise=factors) for score in scores]
    return Drawn(scores)


def over_neuroids(world: World, worse: float, cell: str, run: int) -> Drawn:
    """Means over neuroids of ridge regression, for a claim about new neuroids."""
    mean = [{"over": "neuroid", "with": "mean"}, {"over": "split", "with": "mean"}]
    sources, target = world.experiment(cell, run, worse=worse)
    metric = nl.metric("ridge", aggregate=mean)
    scores = [
        metric(source, target).replace(generalise=("neuroid",)) for source in sources
    ]
    samples = [score.samples for score in scores if score.samples is not None]
    return Drawn(scores, [each.mean("split").values for each in samples])


def of_answers(
    label: str,
    people: int,
    stimuli: int,
    level: float,
    cell: str,
    run: int,
    *,
    worse: float = 0.0,
) -> Drawn:
    """Scores of a metric of answers: people and models find the same clusters of stimuli, and stimuli, hard."""
    rng, metric = seeded(cell, run), nl.metric(label)
    cluster = np.random.default_rng([CLUSTERS, 1]).standard_normal(12)
    odds = (
        level
        + 0.9 * cluster[rng.integers(0, 12, stimuli)]
        + 0.6 * rng.standard_t(4, stimuli)
    )
    own = 0.5 * rng.standard_normal((people, 1)) + 0.8 * rng.standard_normal(
        (people, stimuli)
    )
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


def of_means(items: int, cell: str, run: int, *, models: int = 20) -> Drawn:
    """Means over items, which are harder or easier for all models: a board that costs next to nothing."""
    rng = seeded(cell, run)
    level = 2 * rng.standard_normal(items)
    values = level + rng.standard_normal((models, items))
    return Drawn([mean_score(each, f"{run}") for each in values])


def answers(ids: Sequence[str], right: Any, people: Any) -> xr.DataArray:
    coords: dict[str, Any] = {
        "stimulus_id": ("presentation", ids),
        "truth": ("presentation", np.full(len(ids), "cat")),
        "condition": ("presentation", np.full(len(ids), "noise")),
    }
    if people is not None:
        coords["subject"] = ("presentation", people)
    return xr.DataArray(
        np.where(right, "cat", "dog"), dims="presentation", coords=coords
    )


def of_choices(images: int, trials: int, cell: str, run: int) -> Drawn:
    """Image-level consistency of models with the choices of people between an object and a distractor."""
    rng, objects = seeded(cell, run), np.array(list("ABCDE"))
    shown = np.repeat(np.arange(5), images)
    names = np.array([f"{run}{objects[o]}{i}" for i, o in enumerate(shown)])
    hard = rng.standard_t(4, len(names))[:, None] * 0.6 + 0.4 * rng.standard_normal(
        (len(names), 5)
    )
    odds = 1.3 - hard + 0.4 * np.random.default_rng(6).standard_normal((5, 5))[shown]
    image = np.repeat(np.arange(len(names)), trials)
    other = (shown[image] + rng.integers(1, 5, len(image))) % 5
    right = rng.random(len(image)) < 1 / (1 + np.exp(-odds[image, other]))
    coords = {"stimulus_id": names[image], "truth": objects[shown[image]]}
    coords |= {"sample_obj": objects[shown[image]], "dist_obj": objects[other]}
    chosen = np.where(right, coords["sample_obj"], coords["dist_obj"])
    target = xr.DataArray(
        chosen,
        dims="presentation",
        coords={k: ("presentation", v) for k, v in coords.items()},
    )
    scores = []
    for at in range(2):
        seen = -0.7 * (odds + seeded(cell, run, 1 + at).standard_normal(odds.shape))
        seen[np.arange(len(names)), shown] = 0
        p = np.exp(seen) / np.exp(seen).sum(axis=1, keepdims=True)
        of_model = {"stimulus_id": ("presentation", names), "choice": objects}
        source = xr.DataArray(p, dims=("presentation", "choice"), coords=of_model)
        scores.append(nl.metric("i1n")(source, target))
    return Drawn(scores)


def decoded(
    people: int,
    trials: tuple[int, int],
    signal: float,
    cell: str,
    run: int,
    *,
    models: int = 2,
    worse: float = 0.0,
) -> Drawn:
    """Linear decoders that are tested on each person in turn; the second may see its trials with additional noise."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng, parts = seeded(cell, run), []
    pattern = np.random.default_rng(13).standard_normal(8) / np.sqrt(8)
    counts = rng.integers(trials[0], trials[1] + 1, people)
    for count in counts.tolist():
        gain = signal * np.exp(0.4 * rng.standard_normal())
        mean = gain * (pattern + 0.5 * rng.standard_normal(8) / np.sqrt(8))
        label = rng.permutation(np.resize([0, 1], count))
        parts.append(
            (label, (2 * label - 1)[:, None] * mean / 2 + rng.standard_t(5, (count, 8)))
        )
    labels, X = (np.concatenate([part[at] for part in parts]) for at in (0, 1))
    person = np.repeat([f"{run}p{i:02d}" for i in range(people)], counts)
    classes, scores, items = (
        np.where(labels, "left", "right"),
        list[Score](),
        list[Floats](),
    )
    for at in range(models):
        noise = (0.7 + at * worse) * seeded(cell, run, 1 + at).standard_normal(X.shape)
        scores.append(
            nl.decode(LinearDiscriminantAnalysis(), X + noise, classes, groups=person)
        )
        samples = scores[-1].samples
        assert samples is not None
        items.append(samples.values.reshape(people, -1).mean(axis=1))
    return Drawn(scores, items)


def of_ceiling(
    label: str, world: World, repetitions: int, cell: str, run: int
) -> Drawn:
    """A ceiling from repeated responses, and the normalised RDM score of the noiseless responses; none if refused."""
    rng = seeded(cell, run)
    latent, neurons = world.new_stimuli(rng), world.new_neurons(rng)
    signal = neurons.signal(latent)
    parts = [
        world.labelled(signal + world.new_noise(neurons, rng), run, "n").assign_coords(
            repetition=("presentation", [repetition] * world.stimuli)
        )
        for repetition in range(repetitions)
    ]
    try:
        top = nl.ceiling(label)(xr.concat(parts, "presentation"))
        if label != "rdm_consistency":
            return Drawn([top])
        mean = parts[0].copy(data=np.mean([part.values for part in parts], axis=0))
        raw = nl.metric("rdm")(world.labelled(signal, run, "f"), mean)
        return Drawn([top], noiseless=normalise(raw, top).value)
    except NeuroLedgerError:
        return Drawn([])


HEAVY, SMALL = World(80, 16, tails=3, gains=1.0), World(60, 16)
NEAR = World(60, 16, noise=0.1, models=0.05)
CELLS = (
    Cell("cka", "60 stimuli, 16 neuroids", partial(of_responses, SMALL, "cka")),
    Cell(
        "cka",
        "60, 20, heavy tails",
        partial(of_responses, HEAVY._replace(stimuli=60, neurons=20), "cka"),
    ),
    Cell("rdm", "50 stimuli, 12 neuroids", partial(of_responses, World(50, 12), "rdm")),
    Cell("rdm", "60, 16, near the ceiling", partial(of_responses, NEAR, "rdm")),
    Cell(
        "rdm",
        "30 stimuli, 6 people with 10 neuroids; new people",
        partial(
            of_responses,
            World(30, 60, people=6),
            "rdm",
            factors=("stimulus", "subject"),
        ),
    ),
    Cell(
        "rdm_subjects",
        "30 stimuli, 6 people with 10 neuroids",
        partial(of_responses, World(30, 60, people=6), "rdm_subjects"),
    ),
    Cell("ridge", "60 stimuli, 16 neuroids", partial(of_responses, SMALL, "ridge")),
    Cell("ridge", "80, 16, heavy tails", partial(of_responses, HEAVY, "ridge")),
    Cell(
        "ridge",
        "80, 16, near the ceiling",
        partial(of_responses, NEAR._replace(stimuli=80), "ridge"),
    ),
    Cell("pls", "60 stimuli, 16 neuroids", partial(of_responses, SMALL, "pls")),
    Cell(
        "error_consistency",
        "5 people, 120 stimuli",
        partial(of_answers, "error_consistency", 5, 120, 0.8),
    ),
    Cell(
        "error_consistency",
        "5 people, 120 stimuli, rare errors",
        partial(of_answers, "error_consistency", 5, 120, 3.6),
    ),
    Cell(
        "accuracy",
        "100 stimuli, about 96 % right",
        partial(of_answers, "accuracy", 2, 100, 4.0),
    ),
    Cell("i1n", "5 objects with 12 images, 20 trials", partial(of_choices, 12, 20)),
    Cell("decoding", "10 people, 30 trials", partial(decoded, 10, (30, 30), 0.9)),
    Cell("decoding", "10 people, no signal", partial(decoded, 10, (30, 30), 0.0)),
    Cell("decoding", "10 people, 15 to 60 trials", partial(decoded, 10, (15, 60), 0.9)),
    Cell("decoding", "6 people, strong signal", partial(decoded, 6, (30, 30), 2.5)),
    Cell(
        "rdm_consistency",
        "70, 18, signal to noise 0.5, 3 repetitions",
        partial(of_ceiling, "rdm_consistency", World(70, 18, noise=2**0.5), 3),
    ),
    Cell(
        "rdm_consistency",
        "70, 18, heavy tails, 3, 4 repetitions",
        partial(
            of_ceiling,
            "rdm_consistency",
            World(70, 18, tails=4, gains=0.8, noise=3**-0.5),
            4,
        ),
    ),
    Cell(
        "rdm_consistency",
        "70, 18, 30, 2 repetitions",
        partial(of_ceiling, "rdm_consistency", World(70, 18, noise=30**-0.5), 2),
    ),
    Cell(
        "internal_consistency",
        "60, 16, 0.5, 4 repetitions",
        partial(of_ceiling, "internal_consistency", SMALL._replace(noise=2**0.5), 4),
    ),
    Cell(
        "board of cka",
        "20 equal models, 60, 16",
        partial(of_responses, SMALL, "cka", models=20),
    ),
    Cell(
        "board of decoding",
        "20 equal models, 10 people",
        partial(decoded, 10, (20, 20), 0.9, models=20),
    ),
    *(
        Cell(
            "board of means",
            f"20 equal models, {items} items",
            partial(of_means, items),
            times=20,
        )
        for items in (8, 20, 60)
    ),
    Cell(
        "cka",
        "80, 40, second worse",
        partial(of_responses, World(80, 40), "cka", worse=0.4),
        False,
    ),
    Cell(
        "ridge",
        "80, 40, second worse; new neuroids",
        partial(over_neuroids, World(80, 40), 0.15),
        False,
    ),
    Cell(
        "accuracy",
        "120, second worse",
        partial(of_answers, "accuracy", 2, 120, 0.8, worse=0.7),
        False,
    ),
    Cell(
        "decoding",
        "10 people, second worse",
        partial(decoded, 10, (30, 30), 1.5, worse=1.0),
        False,
    ),
)


def measured(cell: Cell, runs: range) -> Row | None:
    """Simulate the experiments of a cell; None if its score is refused in nearly all of them."""
    experiments = []
    runs = range(cell.times * runs.start, cell.times * runs.stop)
    for run in runs:
        drawn = cell.draw(" ".join(cell.name), run)
        named = [
            score.replace(population=f"{cell.name} {run}") for score in drawn.scores
        ]
        _ = [score.low for score in named]
        if named:
            experiments.append(drawn._replace(scores=named))
    return (
        summary(cell, experiments, len(runs))
        if len(experiments) >= min(FEWEST, len(runs))
        else None
    )


def summary(cell: Cell, experiments: Sequence[Drawn], tried: int) -> Row:
    """Describe the intervals and comparisons of experiments, of which ``tried`` were drawn."""
    scores = [drawn.scores for drawn in experiments]
    values = np.array([[score.value for score in each] for each in scores])
    low = np.array([[score.low for score in each] for each in scores])
    high = np.array([[score.high for score in each] for each in scores])
    # Equal models have one truth.
    truth = values.mean() if cell.equal else values.mean(axis=0)
    needed = 2 * NORMAL * float(values.std(axis=0, ddof=1).mean())
    miss = np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0)
    length, loss = (
        float((high - low).mean()),
        float((high - low + 2 / ALPHA * miss).mean()),
    )
    numbers = (f"{length / needed:.2f}", f"{loss / needed:.2f}")
    found = false = ranked = ""
    if values.shape[1] > 1:
        differ = [_differ(each) for each in scores]
        if cell.equal:
            false = in_words(share(sum(differ), len(differ), len(differ)))
            ranked = "; ".join(
                _ranked(scores, size) for size in LEAGUES if size <= values.shape[1]
            )
        else:
            found = f"{np.mean(differ):.2f}"
            if experiments[0].items:
                tested = [
                    float(ttest_rel(*drawn.items).pvalue) < ALPHA
                    for drawn in experiments
                ]
                found += f"; t test {np.mean(tested):.2f}"
    noiseless = [
        drawn.noiseless for drawn in experiments if drawn.noiseless is not None
    ]
    if noiseless:
        found = f"noiseless {np.mean(noiseless):.3f} ± {np.std(noiseless):.3f}; refused {tried - len(scores)}"
    covered = in_words(rate((low <= truth) & (truth <= high)))
    return Row(cell.name, (str(len(scores)), covered, *numbers, false, ranked, found))


def _differ(scores: Sequence[Score]) -> bool:
    p = difference("simulated", scores[0], scores[1]).p
    return p is not None and p < ALPHA


def _ranked(scores: Sequence[Sequence[Score]], size: int) -> str:
    """Share of leagues of so many equal models with a rank."""
    boards = [[joint_mean([(1.0, score)]) for score in each[:size]] for each in scores]
    return (
        f"of {size}: {np.mean([clearly_better(board).any() for board in boards]):.3f}"
    )


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
    """Return the CSV table with these rows in place of those of the same names; all are in the order of the cells."""
    known = {(row[0], row[1]): row for row in csv.reader(text.splitlines()[1:])}
    known |= {row.name: [*row.name, *row.cells] for row in new}
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerows([HEAD, *(known[cell.name] for cell in CELLS if cell.name in known)])
    return written.getvalue()


def main() -> None:
    """Simulate, print the rows, and write them to the page if asked."""
    labels = list(dict.fromkeys(cell.label for cell in CELLS))
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulations", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "score", nargs="*", help=f"of {', '.join(labels)} (default: all)"
    )
    parser.add_argument(
        "--runs", type=int, default=100, help="experiments of each row (default: 100)"
    )
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        help="number of the first experiment, which seeds it (default: 0)",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="write the rows to docs/tables/simulations.csv",
    )
    options = parser.parse_args()
    unknown = [name for name in options.score if name not in labels]
    if unknown:
        parser.error(f"no score {', '.join(unknown)}; known are {', '.join(labels)}")
    warnings.simplefilter("ignore")
    print(
        "| " + " | ".join(HEAD) + " |", "|---" * len(HEAD) + "|", sep="\n", flush=True
    )
    for row in rows(options.score, range(options.first, options.first + options.runs)):
        print(row, flush=True)
        if options.page:
            TABLE.write_text(
                replaced(TABLE.read_text(encoding="utf-8"), [row]), encoding="utf-8"
            )


if __name__ == "__main__":
    main()
