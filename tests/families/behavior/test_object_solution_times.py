"""Object solution times: a model with a planted order, crossings by hand, an independent readout."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from scipy.stats import spearmanr

from neuroledger.engine import bound_metric as bind
from neuroledger.errors import MetricError
from neuroledger.families.behavior.tasks.solution_times import (
    PENALTY,
    crossing_times,
    softmax_readout,
)
from neuroledger.stats.splits import draw
from neuroledger.stats.variation import inflation


def test_crossings_by_hand():
    times = np.array([70.0, 80.0, 90.0, 100.0])
    curves = np.array(
        [[0.0, 1.0, 3.0, 2.0], [5.0, 0, 0, 0], [0, 0, 0, 0], [1.5, 0.5, 2.5, 0.0]]
    )
    np.testing.assert_allclose(
        crossing_times(curves, times, np.full(4, 2.0)),
        [85.0, 70.0, np.nan, 70 + 0.5 * 20],
        equal_nan=True,
    )


def test_a_time_bin_without_a_defined_performance_does_not_lose_the_solution():
    curves = np.array([[-np.inf, 3.0], [-np.inf, np.nan], [np.nan, 3.0]])
    times = crossing_times(curves, np.array([70.0, 90.0]), np.full(3, 2.0))
    np.testing.assert_allclose(times, [90.0, np.nan, 90.0], equal_nan=True)


@pytest.mark.parametrize("features", [4, 60])
def test_readout_minimises_the_stated_objective(features):
    rng = np.random.default_rng(0)
    labels = np.arange(30) % 3
    train, test = (
        rng.normal(size=(30, features)) + labels[:, None],
        rng.normal(size=(5, features)),
    )
    got, classes = softmax_readout(train, labels, test)
    x, held = ((part - train.mean(0)) / train.std(0) for part in (train, test))
    x, held = (np.hstack([part, np.ones((len(part), 1))]) for part in (x, held))

    def loss(w):
        w = w.reshape(features + 1, 3)
        scores = log_softmax(x @ w, axis=1)
        gradient = x.T @ (np.exp(scores) - np.eye(3)[labels]) / 30 + PENALTY * w
        return -scores[np.arange(30), labels].mean() + 0.5 * PENALTY * (
            w**2
        ).sum(), gradient.ravel()

    best = minimize(
        loss,
        np.zeros((features + 1) * 3),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-9},
    )
    np.testing.assert_allclose(
        got, softmax(held @ best.x.reshape(features + 1, 3), axis=1), atol=1e-5
    )
    assert classes.tolist() == [0, 1, 2]


def laboratory(seed=0, stimuli=200, bins=8):
    rng = np.random.default_rng(seed)
    labels = np.arange(stimuli) % 4
    onset = rng.uniform(0, bins - 2, stimuli)
    centre = rng.normal(size=(4, 20)) * 2
    rise = np.clip(np.arange(bins)[None, :] - onset[:, None], 0, 2) / 2
    values = rise[:, None, :] * centre[labels][:, :, None] + 0.3 * rng.normal(
        size=(stimuli, 20, bins)
    )
    ids = [f"s{i:03d}" for i in range(stimuli)]
    source = xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            "neuroid_id": ("neuroid", [f"n{i}" for i in range(20)]),
            "time_bin_start": ("time_bin", 70.0 + 10 * np.arange(bins)),
            "time_bin_end": ("time_bin", 80.0 + 10 * np.arange(bins)),
        },
    )
    target = xr.DataArray(
        70 + 10 * onset,
        dims=("presentation",),
        coords={
            "stimulus_id": ("presentation", ids),
            "image_label": ("presentation", [f"object{i}" for i in labels]),
            "i1": ("presentation", np.full(stimuli, 1.0)),
        },
    )
    return source, target


def test_planted_order_is_found_and_lost_when_permuted():
    source, target = laboratory()
    few = {"splits": {"folds": 3}}
    score = bind.metric("ost", **few)(source, target)
    assert score.value > 0.7
    order = np.random.default_rng(1).permutation(target.size)
    wrong = target.copy(data=target.values[order])
    assert abs(bind.metric("ost", **few)(source, wrong).value) < 0.4


def test_models_without_time_are_refused():
    source, target = laboratory()
    with pytest.raises(MetricError, match="over time"):
        bind.metric("ost")(source.isel(time_bin=0, drop=True), target)
    with pytest.raises(MetricError, match="'i1'"):
        bind.metric("ost")(source, target.drop_vars("i1"))


def test_stimuli_that_are_never_solved_cannot_be_ranked():
    source, target = laboratory(stimuli=60)
    hard = target.assign_coords(i1=("presentation", np.full(target.size, 6.0)))
    with pytest.raises(MetricError, match="in no split"):
        bind.metric("ost", splits={"folds": 2})(source, hard)


def test_tested_stimuli_are_left_out_of_each_split_and_the_readouts_stay(monkeypatch):
    from neuroledger.families.behavior.metrics import object_solution_times as metric

    source, target, own = solved_at(np.random.default_rng(0), 60, 0.7)
    monkeypatch.setattr(metric, "_times", lambda *given: own[given[-1].test])
    bound = bind.metric("ost", splits={"folds": 4})
    score, splits = bound(source, target), draw(bound.spec.splits, target)
    found = score.uncertainty
    assert found.factors == ("stimulus",) and found.method == "held-out"
    moved = np.zeros((4, 60))
    for number, split in enumerate(splits):
        rows = split.test
        for at in rows:
            rest = rows[rows != at]
            left = spearmanr(own[rest], target.values[rest]).statistic
            moved[number, at] = (1 - 1 / len(rows)) * (
                score.samples.values[number] - left
            )
    each = moved.mean(axis=0)
    expected = np.sqrt(60 / 59) * (each - each.mean()) * np.sqrt(inflation(splits))
    np.testing.assert_allclose(
        found.part(("", ("stimulus",))).values, expected, atol=1e-12
    )


def test_the_interval_covers_the_score_and_shrinks_with_stimuli():
    few, many = (
        bind.metric("ost", splits={"folds": 4})(*laboratory(stimuli=n))
        for n in (120, 480)
    )
    for score in (few, many):
        assert score.low < score.value < score.high
    assert many.high - many.low < few.high - few.low


def test_stimuli_that_the_model_never_solves_are_counted():
    source, target = laboratory()
    split = {"splits": {"folds": 2}}
    hard = target.assign_coords(
        i1=("presentation", np.where(np.arange(target.size) % 10 == 0, 9.0, 1.0))
    )
    score = bind.metric("ost", **split)(source, hard)
    assert any("never solved by the model" in note for note in score.notes)
    assert not any(
        "never solved" in note
        for note in bind.metric("ost", **split)(source, target).notes
    )


def by_hand(
    source: xr.DataArray, target: xr.DataArray, train: np.ndarray, test: np.ndarray
) -> float:
    """Solution times from the definitions, one number after another: readout, d-primes, crossings, ranks."""
    from scipy.stats import norm, spearmanr

    objects = np.unique(target["image_label"].values, return_inverse=True)[1]
    classes, bins = int(objects.max()) + 1, source.sizes["time_bin"]
    curves = np.zeros((len(test), bins))
    for t in range(bins):
        X = source.values[:, :, t]
        X = (X - X[train].mean(axis=0)) / X[train].std(axis=0)
        X = np.hstack([X, np.ones((len(X), 1))])
        Y = np.eye(classes)[objects[train]]

        def loss(flat, X=X, Y=Y):
            W = flat.reshape(X.shape[1], classes)
            P = softmax(X[train] @ W, axis=1)
            value = -np.log((P * Y).sum(axis=1)).mean() + 0.5 * 0.463 * (flat @ flat)
            return value, (X[train].T @ (P - Y) / len(train) + 0.463 * W).ravel()

        best = minimize(
            loss,
            np.zeros(X.shape[1] * classes),
            jac=True,
            method="L-BFGS-B",
            options={"ftol": 1e-16, "gtol": 1e-10},
        )
        P = softmax(X[test] @ best.x.reshape(-1, classes), axis=1)
        for i in range(len(test)):
            own, values = objects[test[i]], []
            for c in range(classes):
                if c == own:
                    continue
                hit = P[i, own] / (P[i, c] + P[i, own])
                others = [j for j in range(len(test)) if objects[test[j]] == c]
                alarm = np.mean([P[j, own] / (P[j, own] + P[j, c]) for j in others])
                values.append(np.clip(norm.ppf(hit) - norm.ppf(alarm), -5, 5))
            curves[i, t] = np.mean(values)
    starts, goal = source["time_bin_start"].values, target["i1"].values[test]
    model, brain = [], []
    for i in range(len(test)):
        hits = [t for t in range(bins) if curves[i, t] >= goal[i]]
        if not hits or np.isnan(target.values[test[i]]):
            continue
        time = starts[hits[0]]
        below = list(range(hits[0]))
        if below:
            last = max(below, key=lambda t: curves[i, t])
            share = (goal[i] - curves[i, last]) / (curves[i, hits[0]] - curves[i, last])
            time = starts[last] + share * (starts[hits[0]] - starts[last])
        model.append(time)
        brain.append(target.values[test[i]])
    return float(spearmanr(model, brain).statistic)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_score_follows_the_definitions(seed):
    source, target = laboratory(seed, stimuli=60, bins=5)
    rng = np.random.default_rng(seed)
    target = target.assign_coords(i1=("presentation", rng.uniform(0.3, 1.5, 60)))
    target[rng.integers(0, 60, 5)] = np.nan
    order = rng.permutation(60)
    train, test = np.sort(order[:36]), np.sort(order[36:])
    score = bind.metric("ost")(source, target, splits=[(train, test)])
    assert score.value == pytest.approx(by_hand(source, target, train, test), abs=1e-6)


def solved_at(rng, stimuli, agreement):
    """Responses and times of which only the stimuli matter, and the times at which a planted readout solves them."""
    late = rng.standard_normal(stimuli)
    own = agreement * late + np.sqrt(1 - agreement**2) * rng.standard_normal(stimuli)
    source, target = laboratory(stimuli=stimuli)
    return source, target.copy(data=150 + 20 * late), own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stimuli", "agreement"), [(120, 0.3), (120, 0.9), (300, 0.7), (300, 0.97)]
)
def test_intervals_cover_weak_and_strong_agreement(monkeypatch, stimuli, agreement):
    from neuroledger.families.behavior.metrics import object_solution_times as metric

    rng, found = np.random.default_rng(stimuli), []
    for run in range(40):
        source, target, own = solved_at(rng, stimuli, agreement)
        monkeypatch.setattr(
            metric, "_times", lambda *given, own=own: own[given[-1].test]
        )
        found.append(bind.metric("ost", splits={"seed": run})(source, target))
    truth = np.mean([score.value for score in found])
    assert np.mean([score.low <= truth <= score.high for score in found]) >= 0.85
