"""Intervals of average precision: leaving each image out, and coverage of new images in simulated experiments."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.stats.score import Score
from tests.long import long


def ranked(
    run: int, count: int = 60, ties: bool = False
) -> tuple[xr.DataArray, xr.DataArray]:
    rng = np.random.default_rng([3, run])
    truth = rng.integers(0, 3, count)
    scores = 1.5 * (truth[:, None] == np.arange(3)) + rng.standard_normal((count, 3))
    ids = ("presentation", [f"{run}s{i:03d}" for i in range(count)])
    source = xr.DataArray(
        np.round(scores) if ties else scores,
        dims=("presentation", "choice"),
        coords={"choice": list("abc"), "stimulus_id": ids},
    )
    target = xr.DataArray(
        np.array(list("abc"))[truth], dims="presentation", coords={"stimulus_id": ids}
    )
    return source, target


def scenes(run: int, count: int = 40) -> tuple[xr.DataArray, xr.DataArray]:
    """Scenes with one to three boxes; some are detected approximately, and some detections are false."""
    rng = np.random.default_rng([4, run])
    true, result = [], []
    for scene in range(count):
        for _ in range(rng.integers(1, 4)):
            low, label = rng.uniform(0, 80, 2), rng.choice(["disc", "square"])
            true.append(([*low, *(low + 20)], f"{run}s{scene:03d}", label))
            if rng.random() < 0.8:
                moved = low + rng.normal(0, 2.5, 2)
                result.append(
                    (
                        [*moved, *(moved + 20)],
                        f"{run}s{scene:03d}",
                        label,
                        rng.normal(1, 1),
                    )
                )
        if rng.random() < 0.5:
            low = rng.uniform(0, 80, 2)
            result.append(
                ([*low, *(low + 20)], f"{run}s{scene:03d}", "disc", rng.normal(0, 1))
            )

    def boxes(rows: list[tuple]) -> xr.DataArray:
        names = ("scene", "label", "score")[: len(rows[0]) - 1]
        coords = {
            name: ("presentation", [row[1 + at] for row in rows])
            for at, name in enumerate(names)
        }
        return xr.DataArray(
            np.array([row[0] for row in rows]),
            dims=("presentation", "corner"),
            coords=coords,
        )

    return boxes(result), boxes(true)


def map_of(run: int) -> Score:
    return nl.metric("mean_average_precision")(*ranked(run))


def coco_of(run: int) -> Score:
    return nl.metric("coco_map")(*scenes(run))


@pytest.mark.parametrize("ties", [False, True])
def test_ranked_scores_without_each_image(ties: bool) -> None:
    source, target = ranked(0, ties=ties)
    bound = nl.metric("mean_average_precision")
    rows = np.arange(len(target))
    left = [
        bound(
            source.isel(presentation=rows != i), target.isel(presentation=rows != i)
        ).value
        for i in rows
    ]
    own = bound(source, target).uncertainty.parts[0].values
    n = len(rows)
    np.testing.assert_allclose(
        own, np.sqrt((n - 1) / n) * (np.mean(left) - left), atol=1e-12
    )


def test_boxes_without_each_scene() -> None:
    source, target = scenes(0)
    bound, names = nl.metric("coco_map"), np.unique(target["scene"].values)
    left = [
        bound(source[source["scene"] != name], target[target["scene"] != name]).value
        for name in names
    ]
    own = bound(source, target).uncertainty.parts[0].values
    n = len(names)
    np.testing.assert_allclose(
        own, np.sqrt((n - 1) / n) * (np.mean(left) - left), atol=1e-12
    )


@pytest.mark.parametrize(
    ("score", "items"), [long(map_of, "stimuli"), long(coco_of, "scenes")]
)
def test_intervals_cover_new_images(score, items) -> None:
    scores = [score(run) for run in range(80)]
    values = np.array([each.value for each in scores])
    assert scores[0].interval_covers == f"the 95 % interval covers new {items}"
    assert np.mean([each.low <= values.mean() <= each.high for each in scores]) >= 0.87
    claimed = np.sqrt(np.mean([each.uncertainty.variance for each in scores]))
    assert claimed / values.std(ddof=1) == pytest.approx(1.05, abs=0.25)


@pytest.mark.parametrize("score", [map_of, coco_of])
def test_intervals_are_asymmetric_near_the_limits(score) -> None:
    for each in map(score, range(5)):
        far, near = each.value - each.low, each.high - each.value
        assert 0 < each.low < each.high < 1
        assert (far > near) == (each.value > 0.5)


def few_missed(run: int, count: int = 40) -> tuple[xr.DataArray, xr.DataArray]:
    """Scenes of two boxes, of which one in fifty is missed: in one of five experiments no box is missed."""
    rng = np.random.default_rng([6, run])
    corners = np.concatenate(
        [low := rng.uniform(0, 80, (2 * count, 2)), low + 20], axis=1
    )
    coords = {
        "scene": (
            "presentation",
            np.repeat([f"{run}s{i:03d}" for i in range(count)], 2),
        ),
        "label": ("presentation", np.tile(["disc", "square"], count)),
    }
    true = xr.DataArray(corners, dims=("presentation", "corner"), coords=coords)
    result = true[rng.random(2 * count) < 0.98]
    return result.assign_coords(score=("presentation", rng.random(len(result)))), true


@pytest.mark.slow
def test_intervals_stay_wide_enough_if_no_box_is_missed() -> None:
    """Without two more misses, 74 of 100 intervals contain the truth; intervals of scenes with misses do not change."""
    bound = nl.metric("coco_map", overlaps=[0.5])
    result = [bound(*few_missed(run)) for run in range(120)]
    values = np.array([each.value for each in result])
    assert 10 < (values == 1).sum() < 40
    assert np.mean([each.low <= values.mean() <= each.high for each in result]) >= 0.92
    claimed = np.sqrt(np.mean([each.uncertainty.variance for each in result]))
    assert claimed / values.std(ddof=1) == pytest.approx(1.1, abs=0.2)


def test_without_a_miss_the_error_is_that_of_one_more_outcome_and_shared_by_models() -> (
    None
):
    _, true = few_missed(0)
    first, second = (
        true.assign_coords(score=("presentation", np.random.default_rng(i).random(80)))
        for i in (1, 2)
    )
    a, b = (
        nl.metric("coco_map", overlaps=[0.5])(each, true) for each in (first, second)
    )
    assert a.uncertainty.error == pytest.approx(1 / 80)
    assert (a.uncertainty - b.uncertainty).variance == pytest.approx(0, abs=1e-12)


def test_perfect_rankings_are_as_uncertain_as_answers_without_an_error() -> None:
    source, target = ranked(0)
    perfect = source.copy(
        data=np.stack([target == label for label in "abc"], axis=1) * 1.0
    )
    score = nl.metric("mean_average_precision")(perfect, target)
    assert score.value == score.high == 1
    assert score.low == pytest.approx(
        nl.metric("accuracy")(perfect, target).low, abs=1e-3
    )
    assert 0.9 < score.low < 0.99
