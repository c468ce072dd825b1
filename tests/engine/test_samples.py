"""Samples and predictions are stored by job and metric, without coordinates that netCDF cannot store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.engine.samples import keep_samples, predictions_of, samples_of
from neuroledger.stats.score import Score


def test_samples_are_read_back_by_job_and_metric(tmp_path: Path) -> None:
    mixed = np.array([1, "b"], dtype=object)
    texts = np.array(["a", "b"], dtype=object)
    samples = xr.DataArray(
        [[0.1, 0.2], [0.3, np.nan]], dims=("split", "neuroid"),
        coords={
            "neuroid_id": ("neuroid", texts), "odd": ("neuroid", mixed), "flat": (("split", "neuroid"), np.ones((2, 2))),
            "alone": 3,
        },
    )  # fmt: skip
    predicted = xr.DataArray([1.0, 2.0], dims=("presentation",), attrs={"a": 1})
    samples.attrs = {"raw": object()}
    scores = {
        "first": Score(0.1, samples=samples, predictions=predicted),
        "none": Score(0.1),
    }
    keep_samples(tmp_path, "job", scores)
    stored = samples_of(tmp_path, "job", "first")
    assert stored is not None and stored.dims == ("split", "neuroid")
    np.testing.assert_array_equal(stored.values, samples.values)
    assert set(stored.coords) == {"neuroid_id"} and stored[
        "neuroid_id"
    ].values.tolist() == ["a", "b"]
    result = predictions_of(tmp_path, "job", "first")
    assert result is not None and result.values.tolist() == [1.0, 2.0]
    assert (
        set(samples.attrs) == {"raw"}
        and predicted.attrs == {"a": 1}
        and "odd" in samples.coords
    )  # what was handed over is left as it was
    for job, metric in (("other", "first"), ("job", "none"), ("job", "other")):
        assert (
            samples_of(tmp_path, job, metric) is None
            and predictions_of(tmp_path, job, metric) is None
        )


def test_a_score_without_samples_stores_nothing(tmp_path: Path) -> None:
    keep_samples(tmp_path, "job", {"one": Score(0.1, samples=xr.DataArray(0.1))})
    assert samples_of(tmp_path, "job", "one") is None
    assert not list(tmp_path.rglob("*.nc"))
    predicted = xr.DataArray([1.0], dims=("presentation",))
    keep_samples(
        tmp_path,
        "job",
        {"two": Score(0.1, samples=xr.DataArray(0.1), predictions=predicted)},
    )
    assert (
        samples_of(tmp_path, "job", "two") is None
        and predictions_of(tmp_path, "job", "two") is not None
    )
