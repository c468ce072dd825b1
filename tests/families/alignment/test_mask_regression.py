"""A mask readout finds planted windows, gives the peer's numbers for the same draws, and says what it cannot use."""

import json

import numpy as np
import pytest
import torch
import xarray as xr

import neuroledger as nl
from neuroledger.errors import MetricError, NeuroLedgerError
from neuroledger.families.alignment.regression.feature_maps import grid
from neuroledger.families.alignment.regression.mask import Mask, Weights, slopes_of
from neuroledger.families.alignment.regression.problem import Problem, Targets
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace
from tests.conftest import REPOSITORY
from tests.devices import DEVICES

CHANNELS, WIDTH, HEIGHT = 5, 7, 6
LIMIT = 1 / np.sqrt(
    1.25
)  # correlation of a response with its noiseless part, for noise of half its deviation
LONG = {"epochs": 60, "decay": 45, "batch": 20}


def mapped(maps: np.ndarray) -> xr.DataArray:
    """Features (presentation, channel, x, y) laid out along neuroids that know where they lie."""
    channel, x, y = (index.ravel() for index in np.indices(maps.shape[1:]))
    places = {"channel": channel, "channel_x": x, "channel_y": y}
    ids = [f"s{i:04d}" for i in range(len(maps))]
    coords = {"stimulus_id": ("presentation", ids)} | {
        n: ("neuroid", v) for n, v in places.items()
    }
    return xr.DataArray(
        maps.reshape(len(maps), -1), dims=("presentation", "neuroid"), coords=coords
    )


def measured(values: np.ndarray) -> xr.DataArray:
    ids = [f"s{i:04d}" for i in range(len(values))]
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={"stimulus_id": ("presentation", ids)},
    )


def planted(rows: int = 400, neuroids: int = 6, seed: int = 0):
    """A model's maps, noisy responses that read them through round windows, and the windows' centres."""
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((rows, CHANNELS, WIDTH, HEIGHT))
    centres = rng.uniform(1, [WIDTH - 2, HEIGHT - 2], (neuroids, 2))
    x, y = np.indices((WIDTH, HEIGHT))
    windows = np.exp(
        -((x - centres[:, 0, None, None]) ** 2 + (y - centres[:, 1, None, None]) ** 2)
        / 2
    )
    responses = np.einsum(
        "bcxy,nxy,nc->bn", maps, windows, rng.standard_normal((neuroids, CHANNELS))
    )
    responses /= responses.std(0)
    return (
        mapped(maps),
        measured(responses + 0.5 * rng.standard_normal(responses.shape)),
        centres,
    )


@pytest.fixture(scope="module")
def case():
    return planted()


def test_planted_windows_predict_up_to_the_noise(case):
    score = nl.metric("mask_regression", splits={"folds": 4}, estimator=LONG)(*case[:2])
    assert score.value == pytest.approx(LIMIT, abs=0.03)
    assert score.samples.dims == ("split", "neuroid") and score.samples.shape == (4, 6)
    assert not any("training is short" in note for note in score.notes)


def test_masks_lie_where_they_were_planted(case):
    source, target, centres = case
    X, Y = source.values, target.values
    rows = np.arange(len(X))
    readout = Mask(**LONG).over(source)
    maps = X.reshape(len(X), CHANNELS, -1)
    weights = readout._trained(
        lambda at: maps[at], Y, Split(rows, rows), np.random.RandomState(0), Workspace()
    )
    power = (weights.masks**2).reshape(-1, WIDTH, HEIGHT)
    found = np.stack(
        [
            (power * index).sum((1, 2)) / power.sum((1, 2))
            for index in np.indices((WIDTH, HEIGHT))
        ],
        1,
    )
    assert np.abs(found - centres).max() < 0.5


def test_permuted_stimuli_predict_nothing(case):
    source, target, _ = case
    order = np.random.default_rng(1).permutation(len(source))
    shuffled = source.copy(data=source.values[order])
    assert (
        abs(
            nl.metric("mask_regression", splits={"folds": 4}, estimator=LONG)(
                shuffled, target
            ).value
        )
        < 0.12
    )


def test_one_seed_one_result(case):
    def score(**options):
        return nl.metric(
            "mask_regression", splits={"folds": 2}, estimator=LONG | options
        )(*case[:2])

    first, again, other = score(), score(), score(seed=1)
    assert first.samples.values.tobytes() == again.samples.values.tobytes()
    assert first.samples.values.tobytes() != other.samples.values.tobytes()
    assert first.value == pytest.approx(other.value, abs=0.02)


def test_neither_rows_nor_neuroids_need_an_order(case):
    source, target, _ = case
    rng = np.random.default_rng(2)
    mixed = source[rng.permutation(source.shape[0])][
        :, rng.permutation(source.shape[1])
    ]
    metric = nl.metric("mask_regression", splits={"folds": 2}, estimator={"epochs": 5})
    assert (
        metric(source, target).samples.values.tobytes()
        == metric(mixed, target).samples.values.tobytes()
    )


@pytest.mark.parametrize("settings", ["the peer's settings", "others"])
def test_gives_the_peers_numbers_for_the_same_draws(settings):
    """Made once by Brain-Score's steps in TensorFlow (float32), NumPy's global generator seeded with 11 before them."""
    random = np.random.RandomState(5)
    maps = random.standard_normal((130, 4, 3, 2))
    responses = maps[:, :, 1, 1] @ random.standard_normal(
        (4, 3)
    ) + random.standard_normal((130, 3))
    order = random.permutation(130)
    tests = [np.sort(order[:30]), np.sort(order[30:60])]
    splits = [(np.setdiff1d(np.arange(130), test), test) for test in tests]
    options = {"seed": 11}
    if settings == "others":
        options |= {
            "learning_rate": 0.02,
            "epochs": 30,
            "tolerance": 0.0,
            "batch": 32,
            "decay": 12,
        }
        options |= {"spatial_penalty": 0.3, "channel_penalty": 0.05}
    metric = nl.metric("mask_regression", estimator=options)
    expected = json.loads((REPOSITORY / "tests/golden/mask.json").read_text())[settings]
    score = metric(mapped(maps), measured(responses), splits=splits)
    np.testing.assert_allclose(score.samples.values, expected, atol=2e-6)


@pytest.mark.parametrize("shape", [(3, 4, 5), (9, 2, 3), (1, 3, 3), (4, 1, 1)])
def test_slopes_are_those_of_the_loss(shape):
    """Against torch's own differentiation, and its convolution with the Laplacian."""
    rng = np.random.default_rng(3)
    maps, Y = rng.standard_normal((8, *shape)), rng.standard_normal((8, 2))
    rule, layout = Mask(spatial_penalty=0.3, channel_penalty=0.2), grid(mapped(maps))
    parts = (
        rng.standard_normal((2, layout.places)),
        rng.standard_normal((2, shape[0])),
        rng.standard_normal(2),
    )
    X = maps.reshape(8, -1)[:, layout.order].reshape(8, *layout.shape)
    error, slopes = slopes_of(Weights(*parts), X, Y, rule, layout)

    s, d, b = (torch.tensor(part, requires_grad=True) for part in parts)
    windows = s.reshape(2, 1, *shape[1:])
    predicted = (
        torch.einsum("bcxy,nxy,nc->bn", torch.tensor(maps), windows[:, 0], d) + b
    )
    norm = (predicted - torch.tensor(Y)).norm()
    kernel = torch.tensor([[0.0, -1, 0], [-1, 4, -1], [0, -1, 0]], dtype=torch.float64)[
        None, None
    ]
    rough = (
        torch.nn.functional.conv2d(windows, kernel, padding=1)
        .flatten(1)
        .norm(dim=1)
        .sum()
    )
    (norm + 0.3 * ((s**2).sum() + rough) + 0.2 * (d**2).sum()).backward()
    assert error == pytest.approx(norm.item(), rel=1e-12)
    for ours, theirs in zip(slopes, (s, d, b), strict=True):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), atol=1e-12)


def test_training_stops_once_the_error_is_small(case):
    source, target, _ = case
    one = nl.metric("mask_regression", splits={"folds": 1}, estimator={"epochs": 1})(
        source, target
    )
    stopped = nl.metric(
        "mask_regression", splits={"folds": 1}, estimator={"tolerance": 1e9}
    )(source, target)
    assert one.samples.values.tobytes() == stopped.samples.values.tobytes()


@pytest.mark.parametrize("device", DEVICES[1:])
def test_devices_and_precisions_agree(case, device):
    def samples(workspace):
        metric = nl.metric(
            "mask_regression", splits={"folds": 1}, estimator=LONG, workspace=workspace
        )
        return metric(*case[:2]).samples.values

    plain = samples(Workspace())
    np.testing.assert_allclose(samples(Workspace(device=device)), plain, atol=1e-9)
    single = samples(Workspace(dtype="float32"))
    np.testing.assert_allclose(single, plain, atol=1e-3)
    assert single.tobytes() != plain.tobytes()


def test_features_too_many_to_hold_are_read_by_batch(case, monkeypatch):
    metric = nl.metric("mask_regression", splits={"folds": 1}, estimator={"epochs": 3})
    held = metric(*case[:2]).samples.values
    monkeypatch.setattr("neuroledger.families.alignment.regression.mask.HELD", 0)
    assert metric(*case[:2]).samples.values.tobytes() == held.tobytes()


def test_neuroids_without_responses_are_left_out_and_counted(case):
    source, target, _ = case
    broken = target.copy(deep=True)
    broken[3, 1] = np.nan
    broken[:, 4] = 2.0
    score = nl.metric("mask_regression", splits={"folds": 2}, estimator=LONG)(
        source, broken
    )
    assert np.isnan(score.samples.values[:, [1, 4]]).all()
    assert np.isfinite(np.delete(score.samples.values, [1, 4], axis=1)).all()
    assert any(
        "1 of 6 neuroids left out: responses are missing" in note
        for note in score.notes
    )
    assert score.value == pytest.approx(LIMIT, abs=0.04)


def test_short_training_is_noted(case):
    score = nl.metric("mask_regression", splits={"folds": 1})(*case[:2])
    assert score.value < LIMIT / 2
    assert any(
        "training is short: 320 steps" in note and "about 2.2" in note
        for note in score.notes
    )


def test_given_train_and_test_sides(case):
    source, target, _ = case
    metric = nl.metric("mask_regression", splits="predefined", estimator=LONG)
    score = metric(
        source_train=source[:300],
        source_test=source[300:],
        target_train=target[:300],
        target_test=target[300:],
    )
    assert (
        score.value == pytest.approx(LIMIT, abs=0.06)
        and score.samples.sizes["split"] == 1
    )


def test_one_neuroid_and_time_bins():
    source, target, _ = planted(rows=60, neuroids=1)
    metric = nl.metric("mask_regression", splits={"folds": 2}, estimator={"epochs": 2})
    assert metric(source, target).samples.shape == (2, 1)
    bins = {
        "time_bin_start": ("time_bin", [0, 10]),
        "time_bin_end": ("time_bin", [10, 20]),
    }
    twice = [
        xr.concat([side, side], "time_bin").assign_coords(bins)
        for side in (source, target)
    ]
    steps = [
        {"over": over, "with": "mean"} for over in ("neuroid", "time_bin", "split")
    ]
    for time in ("shared", "separate"):
        timed = nl.metric(
            "mask_regression",
            splits={"folds": 2},
            estimator={"epochs": 2},
            time=time,
            aggregate=steps,
        )
        assert timed(*twice).samples.dims == ("split", "time_bin", "neuroid")


def test_models_give_maps_that_know_their_places():
    """What a torch model's convolution gives fits as it is; two layers side by side do not."""
    from neuroledger.models.neuroids import labelled

    rng = np.random.default_rng(4)
    ids = [f"s{i:04d}" for i in range(40)]
    target = measured(rng.standard_normal((40, 2)))
    metric = nl.metric("mask_regression", splits={"folds": 1}, estimator={"epochs": 1})

    def recorded(**shapes):
        count = sum(int(np.prod(shape)) for shape in shapes.values())
        values = rng.standard_normal((40, count))
        return labelled(values, shapes, ids, model="net", region="V1", time_bins=None)

    assert np.isfinite(metric(recorded(conv1=(3, 4, 5)), target).value)
    with pytest.raises(
        MetricError,
        match=r"2 neuroids .* channel 0\.0.* layer conv1 .* layer conv2; select one",
    ):
        metric(recorded(conv1=(3, 4, 5), conv2=(3, 4, 5)), target)
    with pytest.raises(
        MetricError,
        match=r"7 of 67 neuroids .* no channel .* layer hidden.*select one layer",
    ):
        metric(recorded(conv1=(3, 4, 5), hidden=(7,)), target)
    with pytest.raises(
        MetricError,
        match=r"no channel, channel_x, channel_y \(they have: .*record a convolutional",
    ):
        metric(recorded(hidden=(7,)), target)


def test_incomplete_maps_and_invalid_values_are_refused(case):
    source, target, _ = case
    metric = nl.metric("mask_regression")
    with pytest.raises(
        MetricError,
        match=r"209 neuroids .* 5 channels × 7 × 6 .* 1 are missing.*channel 0, channel_x 1",
    ):
        metric(source.isel(neuroid=np.delete(np.arange(210), 9)), target)
    with pytest.raises(MetricError, match="missing or infinite"):
        metric(source.where(source < 2), target)
    with pytest.raises(MetricError, match=r"overflowed in epoch 1 .*divide both sides"):
        metric(source * 1e300, target)


@pytest.mark.parametrize(
    "field",
    [{"epochs": 0}, {"batch": 0}, {"learning_rate": 0}, {"seed": -1}, {"rate": 1}],
)
def test_settings_that_make_no_sense_are_refused(field):
    with pytest.raises(NeuroLedgerError, match=next(iter(field))):
        nl.metric("mask_regression", estimator=field)


def test_memory_of_a_problem_is_not_changed(case):
    source, target, _ = case
    X, Y = source.values.copy(), target.values.copy()
    rows = np.arange(len(X))
    splits = [Split(rows[:300], rows[300:])]
    problem = Problem(X, Targets(Y), splits, Workspace())
    list(Mask(epochs=2).over(source).predictions(problem))
    np.testing.assert_array_equal(X, source.values)
    np.testing.assert_array_equal(Y, target.values)
