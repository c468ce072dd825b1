"""Simulated solution times are distributed as the measured ones, and the responses of models shift with them."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.stats import spearmanr

from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.alignment.simulated import simulated_recordings
from neuroledger.families.alignment.simulated_solving import shift_times

COUNT, OBJECTS, SESSIONS, NOISE = 120, 4, 4, 15.0


def solving(related: bool = True) -> Measurement:
    rng = np.random.default_rng(0)
    latency = 140 + 20 * rng.standard_normal(COUNT)
    own = np.arange(COUNT) % OBJECTS
    starts = np.arange(70.0, 230, 10)
    rise = 1 / (
        1
        + np.exp(
            -(starts - (latency if related else rng.permutation(latency))[:, None]) / 8
        )
    )
    values = 0.1 * rng.standard_normal((COUNT, OBJECTS, len(starts)))
    values[np.arange(COUNT), own] += rise
    coords = {
        "stimulus_id": ("presentation", [f"d{i}" for i in range(COUNT)]),
        "image_label": ("presentation", np.array(list("abcd"))[own]),
        "i1": ("presentation", np.ones(COUNT)),
    }
    time = {
        "time_bin_start": ("time_bin", starts),
        "time_bin_end": ("time_bin", starts + 10),
    }
    source = xr.DataArray(
        values, dims=("presentation", "neuroid", "time_bin"), coords=coords | time
    )
    times = latency[:, None] + NOISE * rng.standard_normal((COUNT, SESSIONS))
    times[:10] = np.nan
    target = xr.DataArray(times.mean(axis=1), dims="presentation", coords=coords)
    again = {
        name: (dim, np.repeat(np.asarray(c), SESSIONS))
        for name, (dim, c) in coords.items()
    }
    again["repetition"] = ("presentation", np.tile(np.arange(SESSIONS), COUNT))
    return Measurement(
        source, target, xr.DataArray(times.ravel(), dims="presentation", coords=again)
    )


def test_times_are_new_and_distributed_as_those_measured() -> None:
    measured = solving()
    draw = simulated_recordings(measured, ("stimulus",))
    drawn = [draw(np.random.default_rng(seed), 2) for seed in range(12)]
    targets = [one.models[0].target for one in drawn]
    values = np.concatenate([target.values for target in targets])
    real = measured.target.values
    assert np.nanmean(values) == pytest.approx(np.nanmean(real), abs=4)
    assert np.nanstd(values) == pytest.approx(np.nanstd(real), rel=0.15)
    assert np.isnan(values).mean() == pytest.approx(np.isnan(real).mean(), abs=0.04)
    whole = drawn[0].models[0].repeated
    assert whole is not None and whole.sizes["presentation"] == COUNT * SESSIONS
    table = whole.values.reshape(COUNT, SESSIONS)
    assert np.sqrt(
        table[np.isfinite(table).all(axis=1)].var(axis=1, ddof=1).mean()
    ) == pytest.approx(NOISE, rel=0.15)
    np.testing.assert_allclose(table.mean(axis=1), targets[0].values)
    assert set(targets[0]["image_label"].values) == set("abcd")


def test_equal_models_rise_late_where_the_brain_solves_late() -> None:
    draw = simulated_recordings(solving(), ("stimulus",))
    one, two = draw(np.random.default_rng(3), 2).models
    assert one.target is two.target and not np.array_equal(one.source, two.source)
    place = {"a": 0, "b": 1, "c": 2, "d": 3}
    own = [place[label] for label in one.target["image_label"].values]
    known = np.isfinite(one.target.values)
    late = []
    for model in (one, two):
        height = model.source.values[np.arange(len(own)), own].mean(axis=1)
        late.append(spearmanr(-height[known], one.target.values[known]).statistic)
    assert min(late) > 0.2 and abs(late[0] - late[1]) < 0.3


def test_responses_unrelated_to_the_times_are_refused() -> None:
    with pytest.raises(MetricError, match="are not related to when stimuli are solved"):
        simulated_recordings(solving(related=False), ("stimulus",))
    measured = solving()
    bare = Measurement(measured.source, measured.target.drop_vars("image_label"))
    with pytest.raises(MetricError, match="no object"):
        simulated_recordings(bare, ("stimulus",))
    turned = Measurement(
        measured.source.isel(time_bin=slice(None, None, -1)), measured.target
    )
    with pytest.raises(MetricError, match="time bins do not follow one another"):
        simulated_recordings(turned, ("stimulus",))


def test_responses_move_in_time_and_keep_their_ends() -> None:
    starts = np.array([0.0, 10, 20, 40])
    values = np.array([[[0.0, 1, 2, 4]], [[5.0, 5, 7, 7]]])
    moved = shift_times(values, starts, np.array([5.0, -10.0]))
    np.testing.assert_allclose(moved, [[[0, 0.5, 1.5, 3.5]], [[5, 7, 7, 7]]])
    np.testing.assert_allclose(shift_times(values, starts, np.zeros(2)), values)
