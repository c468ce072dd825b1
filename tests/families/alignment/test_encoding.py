"""Continuous recordings: banded ridge against closed forms, time axes, blocks, nulls, and partitions of known truth."""

import math
from fractions import Fraction

import numpy as np
import pytest
import xarray as xr
from scipy.stats import gamma

import neuroledger as nl
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.encoding import banded_ridge
from neuroledger.families.alignment.encoding.banded_ridge import (
    DEFAULT_ALPHAS,
    BandedRidge,
    BandedSearch,
    banded_predictions,
)
from neuroledger.families.alignment.encoding.blocks import Blocks, segments
from neuroledger.families.alignment.encoding.events import in_bins
from neuroledger.families.alignment.encoding.time_axis import (
    convolved,
    delayed,
    haemodynamic_response,
    resampled,
    rows_of_runs,
)
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import Split, draw

FEW = {"candidates": 6, "alphas": (0.01, 0.1, 1.0, 10.0), "folds": 3}


def recording(values, *, width=1000.0, begin=0.0, prefix="v", **coords):
    """Runs (run × unit × bin) as an assembly."""
    values = np.asarray(values, dtype=float)
    edges = begin + width * np.arange(values.shape[2] + 1)
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", [f"run{i}" for i in range(len(values))]),
            "neuroid_id": ("neuroid", [f"{prefix}{i}" for i in range(values.shape[1])]),
            "time_bin_start": ("time_bin", edges[:-1]),
            "time_bin_end": ("time_bin", edges[1:]),
            **{name: ("neuroid", of) for name, of in coords.items()},
        },
    )


def slow(rng, *shape, width=4):
    """Noise that changes slowly along the last axis, with unit variance."""
    noise = rng.standard_normal((*shape[:-1], shape[-1] + 4 * width))
    kernel = np.exp(-0.5 * (np.arange(-2 * width, 2 * width + 1) / width) ** 2)
    kernel /= np.linalg.norm(kernel)
    return np.apply_along_axis(np.convolve, -1, noise, kernel, "valid")


# --- banded ridge -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", [(3, 5), (40, 25)])  # fewer and more than rows
def test_given_penalties_have_the_closed_form(features):
    rng = np.random.default_rng(0)
    band = np.repeat([0, 1], features)
    X, Y = rng.standard_normal((50, sum(features))) + 3, rng.standard_normal((50, 4))
    split = Split(np.arange(35), np.arange(35, 50))
    search = BandedSearch(penalties={"a": 0.7, "b": 20.0})
    found, penalties = banded_predictions(
        BandedRidge(search, ["a", "b"], band), X, Y, split
    )
    level, base = X[:35].mean(axis=0), Y[:35].mean(axis=0)
    A = X[:35] - level
    penalty = np.diag(np.where(band == 0, 0.7, 20.0))
    weights = np.linalg.solve(A.T @ A + penalty, A.T @ (Y[:35] - base))
    np.testing.assert_allclose(found, (X[35:] - level) @ weights + base, atol=1e-10)
    np.testing.assert_array_equal(penalties, [[0.7] * 4, [20.0] * 4])


@pytest.mark.parametrize("per_target", [True, False])
@pytest.mark.parametrize("features", [(3, 4), (30, 20)])
def test_penalties_are_those_with_the_least_error_in_inner_blocks(
    features, per_target, monkeypatch
):
    monkeypatch.setattr(banded_ridge, "TARGETS", 2)  # several blocks of targets
    rng = np.random.default_rng(1)
    band = np.repeat([0, 1], features)
    X = rng.standard_normal((60, sum(features))) * np.where(band == 0, 1.0, 9.0)
    Y = X[:, :5] @ rng.standard_normal((5, 5)) + 2 * rng.standard_normal((60, 5))
    split = Split(np.arange(48), np.arange(48, 60))
    search = BandedSearch(**FEW, per_target=per_target)
    readout = BandedRidge(search, ["a", "b"], band, gap=2)
    found, penalties = banded_predictions(readout, X, Y, split)

    def fitted(train, test, given):
        fixed = BandedSearch(penalties={"a": given[0], "b": given[1]})
        return banded_predictions(
            BandedRidge(fixed, ["a", "b"], band), X, Y, Split(train, test)
        )[0]

    variance = [X[:48][:, band == b].var(axis=0).sum() for b in (0, 1)]
    weights = banded_ridge.candidate_penalties(search, 2)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert len(weights) == 6
    errors = {}
    for each in weights:
        for alpha in search.alphas:
            given = alpha * np.array(variance) / np.maximum(each, 1e-13)
            error = 0
            for block in np.split(np.arange(48), 3):
                far = np.setdiff1d(
                    np.arange(48), np.arange(block[0] - 2, block[-1] + 3)
                )
                error += ((fitted(far, block, given) - Y[block]) ** 2).sum(axis=0)
            errors[tuple(given)] = error
    table = np.array(list(errors.values()))
    if not per_target:
        scale = Y[:48].var(axis=0)
        table = np.repeat((table / scale).sum(axis=1, keepdims=True), 5, axis=1)
    for target, at in enumerate(table.argmin(axis=0)):
        given = np.array(list(errors)[at])
        expected = fitted(split.train, split.test, given)[:, target]
        np.testing.assert_allclose(found[:, target], expected, atol=1e-6)
        used = np.isfinite(penalties[:, target])
        np.testing.assert_allclose(penalties[used, target], given[used], rtol=1e-9)


def test_default_penalties_are_the_same_on_every_processor():
    for step, alpha in zip(range(-8, 9), DEFAULT_ALPHAS, strict=True):
        errors = [
            abs(Fraction(near) ** 2 - Fraction(10) ** step)
            for near in (math.nextafter(alpha, 0), alpha, math.nextafter(alpha, np.inf))
        ]
        assert min(errors) == errors[1]


def test_a_band_without_penalty_or_variance_is_refused():
    X, Y = np.ones((40, 2)), np.random.default_rng(0).standard_normal((40, 1))
    split, band = Split(np.arange(30), np.arange(30, 40)), np.array([0, 1])
    given = BandedRidge(BandedSearch(penalties={"a": 1.0}), ["a", "b"], band)
    with pytest.raises(MetricError, match="the band 'b' has no penalty"):
        banded_predictions(given, X, Y, split)
    with pytest.raises(MetricError, match="the band 'a' does not vary"):
        banded_predictions(BandedRidge(BandedSearch(), ["a", "b"], band), X, Y, split)


# --- time ---------------------------------------------------------------------------------------------------------


def test_the_haemodynamic_response_is_that_of_spm():
    """SPM samples gamma densities in steps of a sixteenth of a scan, takes every sixteenth, and divides by the sum."""
    repetition, parts = 2.0, 16
    step = repetition / parts
    u = np.arange(int(np.ceil(32 / step)) + 1)
    fine = gamma.pdf(u, 6, scale=1 / step) - gamma.pdf(u, 16, scale=1 / step) / 6
    scans = fine[np.arange(int(32 / repetition) + 1) * parts]
    np.testing.assert_allclose(
        haemodynamic_response(2000.0), scans / scans.sum(), atol=1e-12
    )
    with pytest.raises(MetricError, match="too long for a haemodynamic response"):
        haemodynamic_response(20_000.0)


def test_convolution_begins_with_the_stimulus():
    signal = np.zeros((1, 1, 40))
    signal[0, 0, 5] = 2.0
    response = haemodynamic_response(1000.0)
    found = convolved(recording(signal), response).values[0, 0]
    np.testing.assert_allclose(found[:5], 0, atol=1e-12)
    np.testing.assert_allclose(found[5:38], 2 * response, atol=1e-12)


def test_delays_are_earlier_features_of_the_same_run():
    rows = rows_of_runs(recording(np.arange(24).reshape(2, 2, 6)))
    X, kept = delayed(rows, (0, 2, -1))
    assert [(int(rows.run[i]), int(rows.bin[i])) for i in kept] == [
        (run, bin) for run in (0, 1) for bin in (2, 3, 4)
    ]
    np.testing.assert_array_equal(X[0], [2, 8, 0, 6, 3, 9])
    with pytest.raises(MetricError, match="fewer samples than delays"):
        delayed(rows, range(7))


def test_bins_of_the_target_are_means_of_finer_bins():
    fine = recording(np.arange(12.0)[None, None], width=250.0)
    coarse = recording(np.zeros((1, 1, 2)), width=500.0, begin=500.0)
    found = resampled(fine, coarse)
    np.testing.assert_array_equal(found.values, [[[2.5, 4.5]]])
    assert found["time_bin_start"].values.tolist() == [500.0, 1000.0]


@pytest.mark.parametrize(
    ("width", "begin", "bins", "message"),
    [
        (300.0, 0.0, 9, "rates do not fit: bins of the source last 300 ms and bins of"),
        (2000.0, 0.0, 9, "rates do not fit"),
        (500.0, 250.0, 40, "the source must cover"),
        (500.0, 0.0, 15, "the source lasts from 0 to 7500 ms"),
    ],
)
def test_rates_that_do_not_fit_are_refused(width, begin, bins, message):
    source = recording(np.ones((1, 1, bins)), width=width, begin=begin)
    with pytest.raises(MetricError, match=message):
        resampled(source, recording(np.ones((1, 1, 9))))


def test_uneven_bins_are_refused():
    uneven = recording(np.ones((1, 1, 9)))
    uneven["time_bin_end"].values[3] += 100
    with pytest.raises(MetricError, match="must follow each other"):
        resampled(uneven, recording(np.ones((1, 1, 9))))
    with pytest.raises(MetricError, match="time_bin_start"):
        resampled(uneven.drop_vars("time_bin_start"), uneven)


@pytest.mark.parametrize("combine", ["sum", "mean"])
def test_words_with_onsets_become_features_in_bins(combine):
    rng = np.random.default_rng(0)
    onsets, words = np.sort(rng.uniform(500, 4500, 20)), rng.standard_normal((20, 3))
    runs = {"story1": (onsets, words), "story2": (onsets[:5], words[:5])}
    found = in_bins(runs, width=250.0, begin=500.0, bins=16, combine=combine)
    assert found["stimulus_id"].values.tolist() == ["story1", "story2"]
    for bin, start in enumerate(found["time_bin_start"].values):
        inside = words[(onsets >= start) & (onsets < start + 250)]
        expected = getattr(inside, combine)(axis=0) if len(inside) else np.zeros(3)
        np.testing.assert_allclose(found.values[0, :, bin], expected)
    with pytest.raises(MetricError, match="outside of the bins from 500 to 1500 ms"):
        in_bins(runs, width=250.0, begin=500.0, bins=4)
    with pytest.raises(MetricError, match="one row for each onset"):
        in_bins({"story": (onsets, words[:3])}, width=250.0, begin=500.0, bins=16)
    with pytest.raises(MetricError, match="all need the same"):
        in_bins(
            {"a": (onsets, words), "b": (onsets, words[:, :2])}, width=500.0, bins=9
        )


# --- blocks -------------------------------------------------------------------------------------------------------


def test_blocks_are_contiguous_and_their_neighbours_train_nothing():
    run, bin = np.repeat([0, 1], 60), np.tile(np.arange(60), 2)
    splits = Blocks(folds=3, gap=4).splits(run, bin, range(60))
    assert np.concatenate([s.test for s in splits]).size == 120
    for fold, split in enumerate(splits):
        for each in (0, 1):
            tested = bin[split.test][run[split.test] == each]
            assert tested.tolist() == list(range(20 * fold, 20 * fold + 20))
            trained = bin[split.train][run[split.train] == each]
            assert trained.tolist() == [
                t for t in range(60) if t < tested[0] - 4 or t > tested[-1] + 4
            ]


def test_blocks_by_run_and_by_intervals():
    run, bin = np.repeat([0, 1], 30), np.tile(np.arange(30), 2)
    splits = Blocks(by="run", gap=5).splits(run, bin, range(30))
    assert [s.test.tolist() for s in splits] == [list(range(30)), list(range(30, 60))]
    assert [len(s.train) for s in splits] == [30, 30]
    (only,) = Blocks(by="intervals", intervals=((0, 100),)).splits(
        run, bin, 10.0 * np.arange(30)
    )
    assert set(bin[only.test]) == set(range(10))


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        (Blocks(by="intervals", intervals=((0, 20), (15, 40))), "blocks overlap: 0 to"),
        (Blocks(by="intervals", intervals=((20, 20),)), "is empty"),
        (Blocks(by="intervals"), "need `intervals`"),
        (Blocks(by="run"), "at least two runs"),
        (Blocks(folds=7), "fewer than 10 bins"),
        (Blocks(folds=2, gap=30), "0 train rows"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(blocks, message):
    with pytest.raises(MetricError, match=message):
        blocks.splits(np.zeros(60, int), np.arange(60), np.arange(60.0))


def test_segments_are_at_most_sixty_stretches_of_time():
    run, bin = np.repeat([0, 1], 500), np.tile(np.arange(500), 2)
    found = segments(run, bin)
    assert len(set(found)) == 60
    assert all(np.ptp(bin[found == name]) < 17 for name in set(found))


# --- the metric ---------------------------------------------------------------------------------------------------


def film(rng, *, runs=2, bins=200, voxels=4, noise=1.0, shared=0.0):
    """Two feature spaces, of which the first two voxels follow one each by two bins, the third both, and the fourth none.

    ``shared`` is the share of variance that both spaces have in common.
    """
    common = slow(rng, runs, 3, bins)
    spaces = [
        np.sqrt(shared) * common + np.sqrt(1 - shared) * slow(rng, runs, 3, bins)
        for _ in range(2)
    ]
    late = [np.roll(space[:, 0], 2, axis=1) for space in spaces]
    signal = np.stack(
        [late[0], late[1], (late[0] + late[1]) / np.sqrt(2), 0 * late[0]], axis=1
    )
    responses = signal[:, :voxels] + noise * slow(rng, runs, voxels, bins, width=1)
    names = ["sound"] * 3 + ["words"] * 3
    return (
        recording(np.concatenate(spaces, axis=1), prefix="f", feature_space=names),
        recording(responses),
    )


def test_the_score_is_the_correlation_of_held_out_blocks():
    rng = np.random.default_rng(0)
    source, target = film(rng)
    score = nl.metric(
        "encoding",
        delays=(0, 1, 2),
        blocks={"folds": 4, "gap": 3},
        bands="feature_space",
        search={"penalties": {"sound": 5.0, "words": 50.0}},
    )(source, target)
    X, Y = (each.values.transpose(0, 2, 1) for each in (source, target))
    X = np.concatenate(
        [np.stack([X[:, 2 - d : 200 - d] for d in (0, 1, 2)], axis=2)], axis=0
    ).reshape(2 * 198, 18)
    Y = Y[:, 2:].reshape(2 * 198, 4)
    bin = np.tile(np.arange(198), 2)
    penalty = np.diag(np.tile(np.repeat([5.0, 50.0], 3), 3))
    expected = []
    for fold in range(4):
        test = bin * 4 // 198 == fold
        first, last = bin[test].min(), bin[test].max()
        train = (bin < first - 3) | (bin > last + 3)
        level, base = X[train].mean(axis=0), Y[train].mean(axis=0)
        A = X[train] - level
        W = np.linalg.solve(A.T @ A + penalty, A.T @ (Y[train] - base))
        predicted = (X[test] - level) @ W
        expected.append(
            [
                np.corrcoef(p, y)[0, 1]
                for p, y in zip(predicted.T, Y[test].T, strict=True)
            ]
        )
    np.testing.assert_allclose(score.samples.values, expected, atol=1e-9)
    assert score.value == pytest.approx(np.median(expected, axis=1).mean())
    assert score.low < score.value < score.high


def test_a_shift_loses_and_neighbours_in_time_are_the_floor():
    rng = np.random.default_rng(0)
    source, target = film(rng, voxels=3, bins=400)
    options = {"delays": (0, 1, 2), "search": FEW}
    near = {"folds": 5, "gap": 20}
    value = nl.metric("encoding", blocks=near, **options)(source, target)
    lost = nl.metric("encoding_shifted", blocks=near, **options)(source, target)
    floor = nl.metric("encoding_neighbours", blocks=near, **options)(source, target)
    assert value.low > 0.4
    assert lost.high < value.low
    assert floor.high < value.low
    # In scattered test rows, the time alone predicts slow responses: that is what the floor shows.
    rows = rows_of_runs(target)
    scattered = [
        Split(np.flatnonzero(rows.bin % 4 != 0), np.flatnonzero(rows.bin % 4 == 0))
    ]
    from neuroledger.families.alignment.encoding.nulls import Neighbours

    X = Neighbours(bins=3).features(rows, 0)
    time = BandedRidge(
        BandedSearch(penalties={"t": 0.01}), ["t"], np.zeros(X.shape[1], int)
    )
    predicted, _ = banded_predictions(time, X, rows.values, scattered[0])
    measured = rows.values[scattered[0].test]
    assert np.corrcoef(predicted[:, 0], measured[:, 0])[0, 1] > 0.5


def test_a_shift_within_reach_of_the_delays_is_refused():
    source, target = film(np.random.default_rng(0), bins=80)
    for bins in (3, 78):
        metric = nl.metric(
            "encoding_shifted", null={"name": "shifted", "bins": bins}, delays=(0, 3)
        )
        with pytest.raises(MetricError, match="within reach of delays over 3 bins"):
            metric(source, target)


def test_bad_recordings_are_refused():
    source, target = film(np.random.default_rng(0), bins=80)
    with pytest.raises(MetricError, match="no coordinate 'space'"):
        nl.metric("encoding", bands="space")(source, target)
    with pytest.raises(MetricError, match="at least two feature spaces"):
        nl.metric("variance_partition", bands="neuroid_id")(
            source.isel(neuroid=[0]), target
        )
    with pytest.raises(MetricError, match="no part 'unique smell'"):
        nl.metric("variance_partition", part="unique smell")(source, target)
    with pytest.raises(MetricError, match="fewer samples than delays"):
        nl.metric("encoding", delays=tuple(range(90)))(source, target)
    broken = source.copy(deep=True)
    broken[0, 0, 0] = np.nan
    with pytest.raises(MetricError, match="missing or infinite"):
        nl.metric("encoding")(broken, target)


def test_features_at_their_own_rate_follow_the_haemodynamic_response():
    rng = np.random.default_rng(2)
    events = (rng.random((1, 2, 1600)) < 0.05).astype(float)
    source = recording(events, width=500.0)
    smooth = convolved(source, haemodynamic_response(500.0))
    scans = smooth.values.reshape(1, 2, 400, 4).mean(axis=-1)
    noise = 0.5 * scans.std() * rng.standard_normal(scans.shape)
    target = recording(scans + noise, width=2000.0)
    found = nl.metric("encoding", response="haemodynamic", search=FEW)(source, target)
    without = nl.metric("encoding", search=FEW)(source, target)
    assert found.value > 0.85
    assert without.value < 0.5


def repeated(rng, noise=1.0):
    """Two runs, each shown four times: the signal has unit variance."""
    signal = slow(rng, 2, 3, 300)
    trials = [signal + noise * rng.standard_normal(signal.shape) for _ in range(4)]
    target = recording(np.concatenate(trials))
    return target.assign_coords(
        stimulus_id=("presentation", ["a", "b"] * 4),
        repetition=("presentation", np.repeat(np.arange(4), 2)),
    )


def test_the_ceiling_is_the_reliability_of_repeated_runs():
    target = repeated(np.random.default_rng(0))
    found = nl.ceiling("encoding_reliability", splits={"folds": 3})(target)
    assert found.value == pytest.approx(
        1 / (1 + 1 / 4), abs=0.05
    )  # of four repetitions
    assert found.low < 0.8 < found.high
    (split, *_) = draw(
        SplitsSpec(train=0.5, folds=3, by="repetition", unique=True), target
    )
    halves = [
        np.stack(
            [
                target.values[[i for i in part if i % 2 == k]].mean(axis=0)
                for k in (0, 1)
            ]
        )
        for part in split
    ]
    a, b = (half[:, 1].ravel() for half in halves)
    r = np.corrcoef(a, b)[0, 1]
    assert float(found.samples[0, 1]) == pytest.approx(2 * r / (1 + r))
    varies = nl.ceiling("encoding_reliability", splits={"folds": 3})
    samples = varies.samples([target], [split])
    ids = samples.variation.items["stimulus"]
    names, codes = np.unique(ids, return_inverse=True)
    each = samples.variation.each("stimulus", codes)
    one = samples.variation.without({"stimulus": ids != names[5]})
    np.testing.assert_allclose(each[5], one.values, atol=1e-12)
    with pytest.raises(CeilingError, match="no repetitions"):
        nl.ceiling("encoding_reliability")(target.isel(presentation=slice(2)))


# --- variance partition -------------------------------------------------------------------------------------------


def partition(source, target, part, **options):
    metric = nl.metric(
        "variance_partition",
        part=part,
        delays=(2,),
        search={"penalties": {"sound": 1.0, "words": 1.0}},
        **options,
    )
    return metric(source, target)


def test_unique_parts_and_the_shared_one_add_up_to_the_whole():
    source, target = film(np.random.default_rng(0), shared=0.5)
    parts = {
        name: partition(source, target, name).samples.values
        for name in ("whole", "shared", "unique sound", "unique words", "alone sound")
    }
    np.testing.assert_allclose(
        parts["shared"] + parts["unique sound"] + parts["unique words"],
        parts["whole"],
        atol=1e-12,
    )
    np.testing.assert_allclose(
        parts["alone sound"], parts["whole"] - parts["unique words"], atol=1e-12
    )
    late = source.values.transpose(0, 2, 1)[:, :-2].reshape(-1, 6)
    Y = target.values.transpose(0, 2, 1)[:, 2:].reshape(-1, 4)
    bin = np.tile(np.arange(198), 2)
    split = Split(
        np.flatnonzero(bin * 5 // 198 != 0), np.flatnonzero(bin * 5 // 198 == 0)
    )
    readout = BandedRidge(
        BandedSearch(penalties={"all": 1.0}), ["all"], np.zeros(6, int)
    )
    predicted, _ = banded_predictions(readout, late, Y, split)
    tested = Y[split.test]
    lost = ((tested - predicted) ** 2).sum(axis=0)
    total = ((tested - tested.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(parts["whole"][0], 1 - lost / total, atol=1e-10)


def test_the_partition_has_the_known_shares():
    rng = np.random.default_rng(4)
    source, target = film(rng, bins=3000, shared=0.0)
    for part, expected in {
        "unique sound": [0.5, 0.0, 0.25, 0.0],
        "unique words": [0.0, 0.5, 0.25, 0.0],
        "shared": [0.0, 0.0, 0.0, 0.0],
    }.items():
        found = partition(source, target, part).samples.mean("split").values
        np.testing.assert_allclose(found, expected, atol=0.05)
    source, target = film(rng, bins=3000, shared=1 - 1e-9)
    shared = partition(source, target, "shared").samples.mean("split").values
    np.testing.assert_allclose(shared[:2], [0.5, 0.5], atol=0.05)


def test_leaving_out_segments_is_computed_as_without_them():
    source, target = film(np.random.default_rng(0), bins=100)
    metric = nl.metric(
        "variance_partition",
        part="unique sound",
        search={"penalties": {"sound": 1.0, "words": 1.0}},
    )
    samples = metric.samples([source, target], None)
    ids = samples.variation.items["stimulus"]
    names, codes = np.unique(ids, return_inverse=True)
    each = samples.variation.each("stimulus", codes)
    assert each.shape == (len(names), *samples.values.shape)
    one = samples.variation.without({"stimulus": ids != names[7]})
    np.testing.assert_allclose(each[7], one.values, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["whole", "unique words", "shared"])
def test_intervals_of_parts_cover_the_truth(part):
    covered = coverage(part, 60)
    assert 0.85 <= covered <= 1


def test_intervals_of_a_part_cover_the_truth_in_a_few_experiments():
    assert coverage("unique words", 8) >= 0.75


def coverage(part, experiments):
    """Share of intervals that contain the mean over many experiments."""
    rng = np.random.default_rng(0)
    found = [
        partition(*film(rng, bins=240, shared=0.3), part) for _ in range(experiments)
    ]
    many = [
        partition(*film(rng, bins=240, shared=0.3), part).value
        for _ in range(3 * experiments)
    ]
    truth = np.mean(many)
    return np.mean([score.low <= truth <= score.high for score in found])


# --- a real recording ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sound", "value"), [(0, 0.4354), (1, 0.3273)])
def test_the_spikes_of_a_receptor_follow_its_sound(sound, value):
    recorded = nl.load("Rokem2006.receptor")
    source = recorded.extras["envelope"].isel(presentation=[sound])
    target = recorded.assembly.isel(presentation=[sound])
    declared = {"delays": tuple(range(20)), "blocks": {"gap": 20}}
    score = nl.metric("encoding", **declared)(source, target)
    assert score.value == pytest.approx(value, abs=2e-3)
    late = {"name": "shifted", "bins": 200}
    shifted = nl.metric("encoding_shifted", null=late, **declared)(source, target)
    assert shifted.low < 0 < shifted.high < score.low


@pytest.mark.slow
def test_the_benchmark_of_the_receptor_passes_its_controls():
    outcome = nl.score("Rokem2006.envelope", "Rokem2006.receptor-encoding")
    assert outcome.value == pytest.approx(0.3869, abs=2e-3)
