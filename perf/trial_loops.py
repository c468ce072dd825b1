"""Behavioural metrics as lean loops over labels, with dictionaries and data frames."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import xarray as xr
from scipy.stats import norm, pearsonr


def loop_pattern(
    rate: dict, truth: dict, objects: list, *, normalise: bool, mean: bool
) -> np.ndarray:
    """The d-prime pattern, cell by cell."""
    alarms = defaultdict(list)
    for (image, choice), value in rate.items():
        alarms[truth[image], choice].append(value)
    alarms = {key: np.nanmean(values) for key, values in alarms.items()}
    cells = {
        (image, choice): float(
            np.clip(norm.ppf(1 - value) - norm.ppf(alarms[choice, truth[image]]), -5, 5)
        )
        for (image, choice), value in rate.items()
    }
    if normalise:
        groups = defaultdict(list)
        for (image, choice), value in cells.items():
            groups[truth[image], choice].append(value)
        means = {key: np.nanmean(values) for key, values in groups.items()}
        cells = {
            (image, choice): value - means[truth[image], choice]
            for (image, choice), value in cells.items()
        }
    images = sorted(truth)
    if mean:
        return np.array(
            [
                np.nanmean([cells[i, c] for c in objects if c != truth[i]])
                for i in images
            ]
        )
    return np.array([cells[i, c] for i in images for c in objects if c != truth[i]])


def loop_object_task(
    source: xr.DataArray, target: xr.DataArray, *, normalise: bool, mean: bool
) -> np.ndarray:
    """Score and ceiling of two random halves, with dictionaries of labels."""
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
    for image, p in zip(
        source["stimulus_id"].values.tolist(), source.values, strict=True
    ):
        own = p[place[truth[image]]]
        model |= {
            (image, c): p[place[c]] / (p[place[c]] + own)
            for c in objects
            if c != truth[image]
        }

    def pattern(rate: dict) -> np.ndarray:
        return loop_pattern(rate, truth, objects, normalise=normalise, mean=mean)

    def of_trials(part: list) -> dict:
        chosen, offered = Counter(), Counter()
        for image, sample, other, choice in part:
            chosen[image, choice] += 1
            offered[image, sample] += 1
            offered[image, other] += 1
        return {
            (image, c): chosen[image, c] / offered[image, c]
            if offered[image, c]
            else np.nan
            for image in truth
            for c in objects
            if c != truth[image]
        }

    random, correlations, model_pattern = np.random.RandomState(0), [], pattern(model)
    for _ in range(2):
        order = list(range(len(rows)))
        random.shuffle(order)
        halves = [
            pattern(of_trials([rows[i] for i in part]))
            for part in (order[: len(rows) // 2], order[len(rows) // 2 :])
        ]
        known = [~np.isnan(halves[0]), ~np.isnan(halves[0]) & ~np.isnan(halves[1])]
        correlations += [
            pearsonr(model_pattern[known[0]], halves[0][known[0]])[0],
            pearsonr(halves[0][known[1]], halves[1][known[1]])[0],
        ]
    return np.array([np.mean(correlations[::2]), np.mean(correlations[1::2])])


def loop_agreement(source: xr.DataArray, target: xr.DataArray) -> np.ndarray:
    """Score and ceiling by selecting each pair and condition from a data frame."""
    frame = target.to_dataframe(name="answer").reset_index(drop=True)
    model = source.to_dataframe(name="answer").reset_index(drop=True)

    def kappa(a: pd.DataFrame, b: pd.DataFrame) -> float:
        a, b = a.sort_values("stimulus_id"), b.sort_values("stimulus_id")
        first_correct, second_correct = (
            (a["answer"].to_numpy() == a["truth"].to_numpy()),
            (b["answer"].to_numpy() == b["truth"].to_numpy()),
        )
        expected = first_correct.mean() * second_correct.mean() + (
            1 - first_correct.mean()
        ) * (1 - second_correct.mean())
        return ((first_correct == second_correct).mean() - expected) / (1 - expected)

    subjects, conditions = (
        sorted(frame["subject"].unique()),
        sorted(frame["condition"].unique()),
    )

    def part(
        table: pd.DataFrame, condition: str, subject: str | None = None
    ) -> pd.DataFrame:
        keep = table["condition"] == condition
        return table[keep & (table["subject"] == subject)] if subject else table[keep]

    score = [
        [kappa(part(model, c), part(frame, c, p)) for c in conditions] for p in subjects
    ]
    pairs = itertools.combinations(subjects, 2)
    ceiling = [
        [kappa(part(frame, c, p), part(frame, c, q)) for c in conditions]
        for p, q in pairs
    ]
    return np.array([np.mean(score), np.mean(ceiling)])
