"""``python -m perf.behaviour``: behavioural metrics with their ceilings beside loops over labels, one line each."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import norm, pearsonr

import neuroledger as nl
from perf.measure import Runs

IMAGES, OBJECTS, TRIALS = 240, 24, 110_400
PEOPLE, SHOWN, CONDITIONS = 10, 1280, 8


def object_task(seed: int = 0) -> tuple[xr.DataArray, xr.DataArray]:
    """A model's probabilities and people's two-choice trials, at the size of Rajalingham et al. (2018)."""
    rng = np.random.default_rng(seed)
    names = np.array([f"object_{i:02d}" for i in range(OBJECTS)])
    ids = np.array([f"{rng.integers(2**62):040x}" for _ in range(IMAGES)])
    truth = np.arange(IMAGES) % OBJECTS
    p = rng.dirichlet(np.ones(OBJECTS), IMAGES) + 0.5 * np.eye(OBJECTS)[truth]
    p /= p.sum(axis=1, keepdims=True)
    image = rng.integers(0, IMAGES, TRIALS)
    other = (truth[image] + rng.integers(1, OBJECTS, TRIALS)) % OBJECTS
    right = p[image, truth[image]] / (p[image, truth[image]] + p[image, other])
    chosen = np.where(rng.random(TRIALS) < right, truth[image], other)
    source = xr.DataArray(
        p, dims=("presentation", "choice"), coords={"stimulus_id": ("presentation", ids), "choice": names}
    )
    columns = {"stimulus_id": ids[image], "sample_obj": names[truth[image]], "dist_obj": names[other]}
    columns["truth"] = columns["sample_obj"]
    target = xr.DataArray(
        names[chosen], dims=("presentation",), coords={n: ("presentation", c) for n, c in columns.items()}
    )
    return source, target


def naming_task(seed: int = 0) -> tuple[xr.DataArray, xr.DataArray]:
    """A model's and ten people's labels for the same images in eight conditions."""
    rng = np.random.default_rng(seed)
    names = np.array([f"category_{i:02d}" for i in range(16)])
    ids = np.array([f"n{rng.integers(10**8):08d}_{i}.png" for i in range(SHOWN)])
    condition = np.array([f"c{i % CONDITIONS:02d}" for i in range(SHOWN)])
    truth = names[rng.integers(0, 16, SHOWN)]
    answers = np.where(
        rng.random((PEOPLE + 1, SHOWN)) < 0.7, truth, names[rng.integers(0, 16, (PEOPLE + 1, SHOWN))]
    )
    common = {"stimulus_id": ids, "truth": truth, "condition": condition}
    source = xr.DataArray(
        answers[0], dims=("presentation",), coords={n: ("presentation", c) for n, c in common.items()}
    )
    columns = {n: np.tile(c, PEOPLE) for n, c in common.items()}
    columns["subject"] = np.repeat([f"person_{i:02d}" for i in range(PEOPLE)], SHOWN)
    target = xr.DataArray(
        answers[1:].ravel(),
        dims=("presentation",),
        coords={n: ("presentation", c) for n, c in columns.items()},
    )
    return source, target


def loop_pattern(rate: dict, truth: dict, objects: list, *, normalise: bool, mean: bool) -> np.ndarray:
    """The d-prime pattern, cell by cell."""
    alarms = defaultdict(list)
    for (image, choice), value in rate.items():
        alarms[truth[image], choice].append(value)
    alarms = {key: np.nanmean(values) for key, values in alarms.items()}
    cells = {
        (image, choice): float(np.clip(norm.ppf(1 - value) - norm.ppf(alarms[choice, truth[image]]), -5, 5))
        for (image, choice), value in rate.items()
    }
    if normalise:
        groups = defaultdict(list)
        for (image, choice), value in cells.items():
            groups[truth[image], choice].append(value)
        means = {key: np.nanmean(values) for key, values in groups.items()}
        cells = {
            (image, choice): value - means[truth[image], choice] for (image, choice), value in cells.items()
        }
    images = sorted(truth)
    if mean:
        return np.array([np.nanmean([cells[i, c] for c in objects if c != truth[i]]) for i in images])
    return np.array([cells[i, c] for i in images for c in objects if c != truth[i]])


def loop_object_task(
    source: xr.DataArray, target: xr.DataArray, *, normalise: bool, mean: bool
) -> np.ndarray:
    """Score and ceiling of two random halves, by dictionaries of labels."""
    objects = sorted(source["choice"].values.tolist())
    rows = list(
        zip(
            target["stimulus_id"].values.tolist(),
            target["sample_obj"].values.tolist(),
            target["dist_obj"].values.tolist(),
            target.values.tolist(),
            strict=True,
        )
    )
    truth = {row[0]: row[1] for row in rows}
    place = {name: i for i, name in enumerate(source["choice"].values.tolist())}
    model = {}
    for image, p in zip(source["stimulus_id"].values.tolist(), source.values, strict=True):
        own = p[place[truth[image]]]
        model |= {(image, c): p[place[c]] / (p[place[c]] + own) for c in objects if c != truth[image]}

    def pattern(rate: dict) -> np.ndarray:
        return loop_pattern(rate, truth, objects, normalise=normalise, mean=mean)

    def of_trials(part: list) -> dict:
        chosen, offered = Counter(), Counter()
        for image, sample, other, choice in part:
            chosen[image, choice] += 1
            offered[image, sample] += 1
            offered[image, other] += 1
        return {
            (image, c): chosen[image, c] / offered[image, c] if offered[image, c] else np.nan
            for image in truth
            for c in objects
            if c != truth[image]
        }

    random, out, wanted = np.random.RandomState(0), [], pattern(model)
    for _ in range(2):
        order = list(range(len(rows)))
        random.shuffle(order)
        halves = [
            pattern(of_trials([rows[i] for i in part]))
            for part in (order[: len(rows) // 2], order[len(rows) // 2 :])
        ]
        known = [~np.isnan(halves[0]), ~np.isnan(halves[0]) & ~np.isnan(halves[1])]
        out += [
            pearsonr(wanted[known[0]], halves[0][known[0]])[0],
            pearsonr(halves[0][known[1]], halves[1][known[1]])[0],
        ]
    return np.array([np.mean(out[::2]), np.mean(out[1::2])])


def loop_agreement(source: xr.DataArray, target: xr.DataArray) -> np.ndarray:
    """Score and ceiling by selecting each pair and condition from a data frame."""
    frame = target.to_dataframe(name="answer").reset_index(drop=True)
    model = source.to_dataframe(name="answer").reset_index(drop=True)

    def kappa(a: pd.DataFrame, b: pd.DataFrame) -> float:
        a, b = a.sort_values("stimulus_id"), b.sort_values("stimulus_id")
        one, two = (
            (a["answer"].to_numpy() == a["truth"].to_numpy()),
            (b["answer"].to_numpy() == b["truth"].to_numpy()),
        )
        expected = one.mean() * two.mean() + (1 - one.mean()) * (1 - two.mean())
        return ((one == two).mean() - expected) / (1 - expected)

    people, conditions = sorted(frame["subject"].unique()), sorted(frame["condition"].unique())

    def part(table: pd.DataFrame, condition: str, person: str | None = None) -> pd.DataFrame:
        keep = table["condition"] == condition
        return table[keep & (table["subject"] == person)] if person else table[keep]

    score = [[kappa(part(model, c), part(frame, c, p)) for c in conditions] for p in people]
    pairs = itertools.combinations(people, 2)
    ceiling = [[kappa(part(frame, c, p), part(frame, c, q)) for c in conditions] for p, q in pairs]
    return np.array([np.mean(score), np.mean(ceiling)])


def ours(name: str, source: xr.DataArray, target: xr.DataArray) -> np.ndarray:
    """Score and ceiling by their ids."""
    return np.array([nl.metric(name)(source, target).value, nl.ceiling(name)(target).value])


def main() -> None:
    """Both sides in turn, three rounds, medians."""
    objects, naming = object_task(), naming_task()
    cases = {
        "i1": (objects, lambda s, t: loop_object_task(s, t, normalise=False, mean=True)),
        "i2n": (objects, lambda s, t: loop_object_task(s, t, normalise=True, mean=False)),
        "error_consistency": (naming, loop_agreement),
    }
    print(
        "| score and ceiling | trials | loop s | ours s | ratio | largest difference |\n|---|--:|--:|--:|--:|--:|"
    )
    for name, ((source, target), loop) in cases.items():
        ours(name, source, target)
        mine, theirs = Runs(), Runs()
        for _ in range(3):
            mine.add(lambda n=name, s=source, t=target: ours(n, s, t))
            theirs.add(lambda run=loop, s=source, t=target: run(s, t))
        difference = np.abs(mine.values - theirs.values).max()
        ratio = theirs.median / mine.median
        print(
            f"| {name} | {target.size:,} | {theirs.median:.3g} | {mine.median:.3g} | {ratio:.0f}× | {difference:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
