"""Coverage of intervals, false positives and false ranks in simulations with known truth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from scipy import stats

import neuroledger as nl
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.alignment.simulated import simulated_recordings
from neuroledger.families.simulated_predictions import simulated_predictions
from neuroledger.stats.aggregate import aggregate
from neuroledger.stats.calibration import Calibration, calibrate, rate, share
from neuroledger.stats.differences import (
    Joint,
    clearly_better,
    difference,
    joint_mean,
    rank_sets,
)
from neuroledger.stats.samples import Samples
from neuroledger.stats.score import Score, normalise
from neuroledger.stats.variation import uncertainty_of
from tests.long import long
from tests.varying import mean_score

Floats = npt.NDArray[np.float64]
# The chance that a right procedure fails one of these bounds is below one in a thousand for the numbers of runs below.
RUNS = 60


def assembly(values: Floats, kind: str = "neuroid") -> xr.DataArray:
    coords = {
        "stimulus_id": ("presentation", [f"s{i}" for i in range(len(values))]),
        "neuroid_id": ("neuroid", [f"{kind}{i}" for i in range(values.shape[1])]),
    }
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)


class World:
    """Stimuli with latent features, neurons that weight them, and models that see them through noise of their own."""

    def __init__(self, stimuli: int, neurons: int, seed: int, fixed: str = "") -> None:
        self.shape, self.rng, self.fixed = (
            (stimuli, neurons),
            np.random.default_rng(seed),
            fixed,
        )
        self.stimuli, self.neurons, self.noise = (
            self._stimuli(),
            self._neurons(),
            self._noise(),
        )

    def _stimuli(self) -> Floats:
        return self.rng.standard_normal((self.shape[0], 8))

    def _neurons(self) -> Floats:
        return self.rng.standard_normal((8, self.shape[1])) / np.sqrt(8)

    def _noise(self) -> Floats:
        return self.rng.standard_normal((2, self.shape[0], 16))

    def experiment(self) -> tuple[list[xr.DataArray], xr.DataArray]:
        """Two exchangeable models and the responses, with new stimuli, new neurons or both."""
        if self.fixed != "stimuli":
            self.stimuli, self.noise = self._stimuli(), self._noise()
        if self.fixed != "neurons":
            self.neurons = self._neurons()
        Y = self.stimuli @ self.neurons + self.rng.standard_normal(self.shape)
        features = np.concatenate([self.stimuli, np.zeros_like(self.stimuli)], axis=1)
        return [
            assembly(features + 0.7 * noise, "f") for noise in self.noise
        ], assembly(Y)


def scores(
    world: World, metric: str, runs: int, over: tuple[str, ...] | None
) -> list[list[Score]]:
    bound = nl.metric(metric)
    result = []
    for _ in range(runs):
        models, target = world.experiment()
        result.append(
            [bound(model, target).replace(generalise=over) for model in models]
        )
    return result


@pytest.mark.parametrize(
    ("fixed", "over"),
    [("", None), ("neurons", ("stimulus",)), ("stimuli", ("neuroid",))],
)
@pytest.mark.parametrize("metric", [long("ridge"), long("rdm"), "cka"])
def test_intervals_cover_new_stimuli_new_neurons_and_both(
    metric: str, fixed: str, over: tuple[str, ...] | None
) -> None:
    result = scores(World(50, 30, 7, fixed), metric, RUNS, over)
    values = np.array([[score.value for score in pair] for pair in result])
    errors = np.array(
        [
            [
                pair[0].uncertainty.error,
                (pair[0].uncertainty - pair[1].uncertainty).error,
            ]
            for pair in result
        ]
    )
    truth = values[:, 0].mean()
    content = np.mean([pair[0].low <= truth <= pair[0].high for pair in result])
    assert content >= 0.85
    # The mean variance that is claimed against the variance that there is, of the score and of the difference.
    there = np.array(
        [values[:, 0].var(ddof=1), (values[:, 0] - values[:, 1]).var(ddof=1)]
    )
    ratio = np.sqrt((errors**2).mean(axis=0) / there)
    assert (ratio > 0.78).all() and (ratio < 1.35).all(), ratio


@pytest.mark.parametrize(("subsets", "whole"), [("cka_cv", "cka"), ("rdm_cv", "rdm")])
def test_means_over_subsets_of_stimuli_vary_as_all_stimuli_do(
    subsets: str, whole: str
) -> None:
    models, target = World(50, 30, 5).experiment()
    result = [nl.metric(name)(models[0], target) for name in (subsets, whole)]
    assert result[0].uncertainty.error == pytest.approx(
        result[1].uncertainty.error, rel=0.02
    )
    assert result[0].low < result[1].value < result[0].high


def test_a_reliability_covers_new_stimuli_and_new_neurons() -> None:
    rng, result = np.random.default_rng(31), []
    for run in range(100):
        signal = rng.standard_normal((40, 4)) @ rng.standard_normal((4, 25)) / 2
        values = signal + rng.standard_normal((5, *signal.shape))
        coords = {
            "stimulus_id": ("presentation", [f"{run}s{i}" for i in range(40)] * 5),
            "repetition": ("presentation", np.repeat(np.arange(5), 40)),
            "neuroid_id": ("neuroid", [f"{run}n{i}" for i in range(25)]),
        }
        target = xr.DataArray(
            values.reshape(-1, 25), dims=("presentation", "neuroid"), coords=coords
        )
        result.append(nl.ceiling("signal_reliability")(target))
    values = np.array([score.value for score in result])
    assert (
        result[0].interval_covers
        == "the 95 % interval covers new stimuli and new neuroids"
    )
    assert (
        np.mean([score.low <= values.mean() <= score.high for score in result]) >= 0.87
    )
    claimed = np.sqrt(np.mean([score.uncertainty.variance for score in result]))
    assert claimed / values.std(ddof=1) == pytest.approx(1.05, abs=0.25)


@pytest.mark.parametrize("metric", [long("ridge"), long("rdm"), "cka"])
def test_equal_models_differ_no_more_often_than_they_may(metric: str) -> None:
    result = scores(World(50, 30, 11), metric, RUNS, None)
    p = [difference("b", a, b).p for a, b in result]
    assert np.mean(np.array(p) < 0.05) <= 0.15
    assert np.mean(np.array(p) < 0.5) > 0.2, (
        "not so wide that nothing could ever be found"
    )


def leagues(models: int, runs: int, correlation: float, seed: int) -> list[list[Joint]]:
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(runs):
        common = rng.standard_normal(60) * np.sqrt(correlation)
        own = rng.standard_normal((models, 60)) * np.sqrt(1 - correlation)
        result.append([joint_mean([(1.0, mean_score(common + item))]) for item in own])
    return result


@pytest.mark.parametrize(
    ("models", "correlation"),
    [(5, 0.0), (5, 0.9), (20, 0.0), long(20, 0.9), long(50, 0.5)],
)
def test_leagues_of_equal_models_have_no_false_ranks(
    models: int, correlation: float
) -> None:
    false = [
        any(rank != (1, models) for rank in rank_sets(clearly_better(league)))
        for league in leagues(models, 100, correlation, models)
    ]
    assert np.mean(false) <= 0.12


def test_a_difference_is_detected_as_by_a_paired_t_test() -> None:
    rng = np.random.default_rng(3)
    mine, theirs = [], []
    for _ in range(200):
        common = rng.standard_normal(40)
        a, b = common + rng.normal(0.15, 0.3, 40), common + rng.normal(0, 0.3, 40)
        mine.append(difference("b", mean_score(a), mean_score(b)).p < 0.05)
        theirs.append(stats.ttest_rel(a, b).pvalue < 0.05)
    assert np.mean(mine) >= np.mean(theirs) - 0.03
    assert np.mean(theirs) > 0.5


def test_the_detectable_difference_is_detected_in_four_of_five_experiments() -> None:
    rng = np.random.default_rng(4)
    sd, n = 0.3, 40
    result, claimed = [], []
    for _ in range(200):
        common = rng.standard_normal(n)
        shift = (
            (stats.t.ppf(0.975, n - 1) + stats.t.ppf(0.8, n - 1)) * sd * np.sqrt(2 / n)
        )
        a, b = common + rng.normal(shift, sd, n), common + rng.normal(0, sd, n)
        item = difference("b", mean_score(a), mean_score(b))
        result.append(item.p < 0.05)
        claimed.append(item.detectable)
    assert 0.7 < np.mean(result) < 0.9
    assert np.mean(claimed) == pytest.approx(shift, rel=0.05)


def recorded(values: Floats) -> Measurement:
    return Measurement(assembly(values, "f"), assembly(values))


@pytest.mark.slow
def test_calibration_passes_valid_intervals_and_fails_invalid_ones() -> None:
    target = World(60, 30, 1).experiment()[1]
    bound = nl.metric("cka")
    draw = simulated_recordings(recorded(target.values), ("stimulus", "neuroid"))

    def plain(one: Measurement) -> dict[str, Score]:
        return {"cka": bound(one.source, one.target)}

    def stubborn(one: Measurement) -> dict[str, Score]:
        return {
            "cka": plain(one)["cka"].replace(generalise=("neuroid",))
        }  # says nothing about new stimuli

    good, bad = (
        calibrate(item, draw, runs=40, seed=1)["cka"] for item in (plain, stubborn)
    )
    assert isinstance(good, Calibration) and isinstance(bad, Calibration)
    assert (
        good.passed
        and good.covers == "the 95 % interval covers new stimuli and new neuroids"
    )
    assert 0.8 < good.length.value < 1.25 and good.sizes == {
        "stimulus": 60,
        "neuroid": 30,
    }
    assert (
        good.length.low < good.length.value < good.length.high
        and good.recovered is None
    )
    assert not bad.passed and bad.coverage.value < 0.9 and bad.length.high < 0.9


def test_calibration_reports_what_it_cannot_calibrate() -> None:
    draw = simulated_recordings(
        recorded(World(40, 20, 2).experiment()[1].values), ("stimulus", "neuroid")
    )
    assert calibrate(lambda one: {"x": Score(0.5)}, draw, runs=20, seed=0) == {
        "x": "the score has no interval"
    }

    def fails(one: Measurement) -> dict[str, Score]:
        raise MetricError("a ceiling holds 0")

    with pytest.raises(
        MetricError,
        match=r"20 of 20 simulated experiments cannot be scored.*a ceiling holds 0",
    ):
        calibrate(fails, draw, runs=20, seed=0)


def test_correlated_hits_of_one_experiment_count_as_fewer_trials() -> None:
    rng = np.random.default_rng(0)
    hits = rng.random((200, 1)) < 0.9
    alone, copied = rate(hits), rate(np.repeat(hits, 5, axis=1))
    assert copied.value == alone.value and copied.low == pytest.approx(
        alone.low, abs=0.01
    )
    free = rate(rng.random((200, 5)) < 0.9)
    assert free.high - free.low < 0.6 * (alone.high - alone.low)
    exact = stats.binomtest(int(hits.sum()), 200).proportion_ci(method="exact")
    assert (alone.low, alone.high) == pytest.approx((exact.low, exact.high), abs=0.002)
    assert rate(np.ones((30, 2))).high == 1.0 and rate(np.zeros((30, 2))).low == 0.0


@pytest.mark.parametrize("hits", [0, 1, 7, 19, 20])
def test_rates_have_exact_intervals(hits: int) -> None:
    exact = stats.binomtest(hits, 20).proportion_ci(method="exact")
    result = share(hits, 20, 20)
    assert (result.value, result.low, result.high) == pytest.approx(
        (hits / 20, exact.low, exact.high), abs=1e-12
    )


@pytest.mark.slow
def test_people_are_simulated_as_they_answer() -> None:
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(12), 20)
    coords = {
        "subject": ("presentation", person.astype(str)),
        "split": ("presentation", person % 3),
        "stimulus_id": ("presentation", np.arange(240)),
    }
    truth = np.tile(["a", "b"], 120)
    answer = np.where(rng.random(240) < 0.7, truth, np.where(truth == "a", "b", "a"))
    source, target = (
        xr.DataArray(item, dims="presentation", coords=coords)
        for item in (answer, truth)
    )
    bound = nl.metric("balanced_accuracy")
    draw = simulated_predictions(Measurement(source, target), ("subject",))
    result = calibrate(
        lambda one: {"b": bound(one.source, one.target)}, draw, runs=60, seed=2
    )["b"]
    assert isinstance(result, Calibration)
    assert result.passed and result.truth == pytest.approx(
        (answer == truth).mean(), abs=0.05
    )
    with pytest.raises(MetricError, match="no generative model"):
        simulated_predictions(
            Measurement(source, target.rename(presentation="window")), ()
        )


def test_spikes_are_simulated_by_the_course_of_a_trial() -> None:
    """20 trials of 10 windows with 3 neurons: new counts have the mean course of those measured; models know the rates."""
    rng = np.random.default_rng(6)
    course = rng.uniform(0.5, 6, (10, 3))
    coords = {"trial": ("presentation", np.repeat(np.arange(20), 10).astype(str))}
    dims = ("presentation", "neuroid")
    target = xr.DataArray(
        rng.poisson(np.tile(course, (20, 1))).astype(float), dims=dims, coords=coords
    )
    draw = simulated_predictions(Measurement(target.copy(), target), ("trial",))
    drawn = [draw(np.random.default_rng(run), 2) for run in range(60)]
    mean = np.mean(
        [
            item.models[0].target.values.reshape(20, 10, 3).mean(axis=0)
            for item in drawn
        ],
        axis=0,
    )
    np.testing.assert_allclose(
        mean, target.values.reshape(20, 10, 3).mean(axis=0), rtol=0.1
    )
    first, second = drawn[0].models
    assert first.target is second.target and not np.array_equal(
        first.source, second.source
    )
    assert (
        np.corrcoef(first.source.values.ravel(), second.source.values.ravel())[0, 1]
        > 0.7
    )
    with pytest.raises(MetricError, match="only counts in items of one length"):
        simulated_predictions(Measurement(target[:-1], target[:-1]), ("trial",))


def test_time_bins_of_a_temporal_regression_have_an_interval() -> None:
    rng = np.random.default_rng(5)
    features = rng.standard_normal((40, 6))
    responses = np.stack(
        [features[:, :4] + rng.standard_normal((40, 4)) for _ in range(3)], axis=2
    )
    bins = {
        "time_bin_start": ("time_bin", [0, 10, 20]),
        "time_bin_end": ("time_bin", [10, 20, 30]),
    }
    ids = {"stimulus_id": ("presentation", [f"s{i}" for i in range(40)])}
    target = xr.DataArray(
        responses, dims=("presentation", "neuroid", "time_bin"), coords=ids | bins
    )
    source = xr.DataArray(
        np.repeat(features[:, :, None], 3, axis=2),
        dims=("presentation", "neuroid", "time_bin"),
        coords=ids | bins,
    )
    score = nl.metric("spantime_ridge", time="separate")(source, target)
    assert score.low < score.value < score.high


def median_score(values: Floats, ids: list[str], scale: str) -> Score:
    steps = [("neuroid", "median"), ("split", "mean")]
    samples = xr.DataArray(
        values, dims=("split", "neuroid"), coords={"neuroid_id": ("neuroid", ids)}
    )
    known = uncertainty_of(Samples(samples), steps, None, "identity")
    return Score(aggregate(samples, steps), scale=scale, varies=known, population="lab")


@pytest.mark.parametrize("neurons", [30, long(90)])
def test_medians_over_medians_cover_new_neurons(neurons: int) -> None:
    """Metric and ceiling rank neurons almost alike; what is left of their difference is not what their slopes leave."""
    rng = np.random.default_rng(neurons)
    result = []
    for _ in range(120):
        reliability = rng.beta(4, 4, neurons) * 0.9 + 0.05
        noise = 0.05 * rng.standard_normal((2, 5, neurons))
        ids = rng.permutation([f"n{i}" for i in range(neurons)]).tolist()
        r = median_score(np.sqrt(reliability) + noise[0], ids, "correlation")
        result.append(
            normalise(r, median_score(reliability + noise[1], ids, "reliability"))
        )
    values = np.array([score.value for score in result])
    content = np.mean([score.low <= values.mean() <= score.high for score in result])
    width = np.sqrt(
        np.mean([score.uncertainty.variance for score in result])
    ) / values.std(ddof=1)
    assert content >= 0.88 and 0.8 < width < 1.45


def decoded(
    rng: np.random.Generator, signal: float
) -> tuple[xr.DataArray, xr.DataArray]:
    """Ten people's windows, each fifth of the people read by the direction that the others' windows give."""
    people, windows, folds = 10, 30, 5
    label = np.tile([1.0, -1.0], windows // 2)
    x = rng.standard_normal((people, windows, 8)) + signal * label[:, None]
    given = (x * label[:, None]).sum(axis=1)
    fold = np.arange(people) % folds
    weights = np.stack([given[fold != k].sum(axis=0) for k in fold])
    answer = np.sign((x * weights[:, None]).sum(axis=2))
    coords = {
        "subject": ("presentation", np.repeat(np.arange(people).astype(str), windows)),
        "split": ("presentation", np.repeat(fold, windows)),
        "stimulus_id": ("presentation", np.arange(people * windows)),
    }
    names = (
        np.where(item.ravel() > 0, "a", "b")
        for item in (answer, np.tile(label, (people, 1)))
    )
    source, target = (
        xr.DataArray(item, dims="presentation", coords=coords) for item in names
    )
    return source, target


@pytest.mark.parametrize("signal", [0.0, 0.3])
def test_people_who_train_for_one_another_vary_together(signal: float) -> None:
    rng = np.random.default_rng(17)
    bound = nl.metric("balanced_accuracy")
    result = [bound(*decoded(rng, signal)) for _ in range(120)]
    values = np.array([score.value for score in result])
    claimed = np.sqrt(np.mean([score.uncertainty.variance for score in result]))
    content = np.mean([score.low <= values.mean() <= score.high for score in result])
    # The deviation of 120 experiments has an error of 6 %.
    assert content >= 0.89 and 0.8 < claimed / values.std(ddof=1) < 1.35


def crossed_means(
    rng: np.random.Generator, people: int, stimuli: int, run: int
) -> Score:
    """The mean of every person's answer to every stimulus, whose noise is in the deviations of both."""
    effects = 0.5 * rng.standard_normal((people, 1)) + 0.3 * rng.standard_normal(
        stimuli
    )
    table = effects + 2 * rng.standard_normal((people, stimuli))

    names = {
        "stimulus": ("stimulus", [f"{run}s{i}" for i in range(stimuli)]),
        "subject": ("subject", [f"{run}p{i}" for i in range(people)]),
    }
    samples = xr.DataArray(table, dims=("subject", "stimulus"), coords=names)
    steps = [("subject", "mean"), ("stimulus", "mean")]
    known = uncertainty_of(Samples(samples), steps, None, "identity")
    return Score(float(table.mean()), varies=known, population="lab")


def test_means_of_crossed_items_cover_new_people_and_new_stimuli() -> None:
    rng = np.random.default_rng(21)
    result = [crossed_means(rng, 8, 40, run) for run in range(120)]
    values = np.array([score.value for score in result])
    assert (
        result[0].interval_covers
        == "the 95 % interval covers new stimuli and new subjects"
    )
    assert np.mean([score.low <= 0 <= score.high for score in result]) >= 0.89
    claimed = np.sqrt(np.mean([score.uncertainty.variance for score in result]))
    assert claimed / values.std(ddof=1) == pytest.approx(1.0, abs=0.2)
