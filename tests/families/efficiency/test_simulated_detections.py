"""Simulated detections: rates of hits, misses and false detections equal those of the fitted scenes."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.efficiency.simulated_detections import (
    _within,
    simulated_answers,
)
from neuroledger.stats.calibration import Calibration, calibrate

SCENES = 40


def boxes(
    rows: list[tuple[float, ...]],
    scenes: list[str],
    labels: list[str],
    scores: list[float] | None,
) -> xr.DataArray:
    coords: dict[str, object] = {
        "scene": ("presentation", scenes),
        "label": ("presentation", labels),
    }
    if scores is not None:
        coords["score"] = ("presentation", scores)
    return xr.DataArray(
        np.array(rows, dtype=float), dims=("presentation", "corner"), coords=coords
    )


def detected(miss: float = 0.2, seed: int = 0) -> Measurement:
    """Scenes with one to three separate boxes, detected with an offset; every third scene has a false detection."""
    rng = np.random.default_rng(seed)
    true, result = ([], [], [], []), ([], [], [], [])
    for scene in range(SCENES):
        for slot in range(int(rng.integers(1, 4))):
            corner = np.array([30.0 * slot, 0.0])
            sides = rng.uniform(6, 12, 2)
            label = str(rng.choice(["tall", "wide"]))
            _add(true, (*corner, *(corner + sides)), scene, label, 0.0)
            if rng.random() > miss:
                off = rng.normal(0, 0.06, 4) * np.tile(sides, 2)
                _add(
                    result,
                    np.array([*corner, *(corner + sides)]) + off,
                    scene,
                    label,
                    rng.uniform(0.4, 1),
                )
        if scene % 3 == 0:
            _add(result, (100.0, 0.0, 110.0, 10.0), scene, "tall", rng.uniform(0, 0.7))
    return Measurement(boxes(*result), boxes(*true[:3], None))


def _add(
    table: tuple[list, ...], row: object, scene: int, label: str, score: float
) -> None:
    for column, value in zip(
        table, (tuple(row), f"s{scene}", label, score), strict=True
    ):
        column.append(value)


def test_boxes_are_detected_as_well_as_in_the_data() -> None:
    measured = detected()
    bound = nl.metric("coco_map")
    draw = simulated_answers(measured, ("stimulus",))
    drawn = [draw(np.random.default_rng(seed), 2) for seed in range(30)]
    values = [
        bound(each.source, each.target).value for item in drawn for each in item.models
    ]
    assert np.mean(values) == pytest.approx(
        bound(measured.source, measured.target).value, abs=0.05
    )
    counts = [
        each.source.sizes["presentation"] / each.target.sizes["presentation"]
        for item in drawn
        for each in item.models
    ]
    real = measured.source.sizes["presentation"] / measured.target.sizes["presentation"]
    assert np.mean(counts) == pytest.approx(real, rel=0.06)
    item, two = drawn[0].models
    assert item.target is two.target and not np.array_equal(
        item.source.values, two.source.values
    )


@pytest.mark.slow
def test_difficult_scenes_are_difficult_for_all_models() -> None:
    rng = np.random.default_rng(5)
    scene = np.repeat(np.arange(200), 3)
    quality = rng.standard_normal(200)[scene] + rng.standard_normal(600)
    assert _within(quality, scene) == pytest.approx(0.5, abs=0.12)
    assert _within(rng.standard_normal(600), scene) < 0.12
    bound, draw = nl.metric("coco_map"), simulated_answers(detected(), ("stimulus",))
    pairs = [draw(np.random.default_rng(seed), 2).models for seed in range(40)]
    values = np.array(
        [[bound(each.source, each.target).value for each in pair] for pair in pairs]
    )
    assert np.corrcoef(values.T)[0, 1] > 0.1


@pytest.mark.slow
def test_average_precision_of_boxes_is_calibrated_on_them() -> None:
    bound = nl.metric("coco_map")

    def score(one: Measurement) -> dict[str, object]:
        return {"coco_map": bound(one.source, one.target)}

    result = calibrate(
        score, simulated_answers(detected(), ("stimulus",)), runs=40, seed=1
    )["coco_map"]
    assert isinstance(result, Calibration)
    assert result.passed and result.covers == "the 95 % interval covers new stimuli"


def test_detections_without_matches_are_refused() -> None:
    measured = detected()
    away = measured.source + 1000.0
    with pytest.raises(
        MetricError, match=r"0 of 80 true boxes are found at an overlap of 0\.5"
    ):
        simulated_answers(Measurement(away, measured.target), ("stimulus",))
