"""Tests of ceilings and scores against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.assembly import average_repetitions, read, select
from neuroledger.data.load import load_dataset
from neuroledger.engine.bound_metric import ceiling, metric
from neuroledger.stats.score import normalise

STATIC = [
    ("Digits.simulated", "V4"),
    ("Digits.simulated", "IT"),
    ("Digits.simulated.ragged", "IT"),
]


@pytest.fixture(scope="module")
def generator(clone):
    return read(clone / "data" / "models" / "generator" / "responses.nc")


def _recorded(catalog, id, region):
    return select(load_dataset(catalog, id).assembly, {"region": region})


def _true(facts, assembly):
    return np.array(
        [
            facts["reliability"][str(neuroid)]
            for neuroid in assembly["neuroid_id"].values
        ]
    )


@pytest.mark.parametrize(("id", "region"), STATIC)
def test_estimated_ceiling_is_the_closed_form(catalog, truth, id, region):
    """The estimate is unbiased over neurons, and within the sampling error for each neuron.

    A split-half correlation r of n stimuli has a standard error of about (1 - r²) / sqrt(n); stepping it up to
    the reliability multiplies that by 2 / (1 + r)².
    """
    assembly = _recorded(catalog, id, region)
    facts = truth(id)["regions"][region]
    true = _true(facts, assembly)
    score = ceiling("internal_consistency", catalog=catalog)(assembly)
    found = score.samples.mean("split").values
    half = true / (2 - true)
    error = (1 - half**2) / np.sqrt(truth(id)["stimuli"]) * 2 / (1 + half) ** 2
    assert abs((found - true).mean()) < 3 * error.mean() / np.sqrt(len(true))
    assert (abs(found - true) < 4 * error).all()
    assert score.low < facts["median_reliability"] < score.high


def test_a_wrong_closed_form_would_be_detected(catalog, truth):
    """The closed form without the factor for repetitions is far outside the tolerance of the test above."""
    assembly = _recorded(catalog, "Digits.simulated", "IT")
    true = _true(truth("Digits.simulated")["regions"]["IT"], assembly)
    single = true / (true + 8 * (1 - true))
    score = ceiling("internal_consistency", catalog=catalog)(assembly)
    assert abs(score.samples.mean("split").values - single).min() > 0.1


@pytest.mark.parametrize("name", ["pls", "ridge"])
@pytest.mark.parametrize(("id", "region"), STATIC)
def test_generator_reaches_the_ceiling_and_no_more(
    catalog, truth, generator, id, region, name
):
    assembly = _recorded(catalog, id, region)
    facts = truth(id)["regions"][region]
    bound = metric(name, catalog=catalog, splits={"stratify": "object_name"})
    raw = bound(select(generator, {"region": region}), average_repetitions(assembly))
    score = normalise(raw, ceiling("internal_consistency", catalog=catalog)(assembly))
    assert 0.95 < score.value < 1.06
    assert score.low < 1 and score.high > 1
    best = np.sqrt(_true(facts, assembly))
    reached = raw.samples.mean("split").values / best
    assert 0.95 < reached.mean() < 1.03


def test_shuffled_generator_is_at_the_floor(catalog, generator):
    assembly = _recorded(catalog, "Digits.simulated", "IT")
    target = average_repetitions(assembly)
    source = select(generator, {"region": "IT"})
    order = np.random.default_rng(0).permutation(source.sizes["presentation"])
    wrong = source.copy(data=source.values[order])
    bound = metric("ridge", catalog=catalog, splits={"stratify": "object_name"})
    score = normalise(
        bound(wrong, target), ceiling("internal_consistency", catalog=catalog)(assembly)
    )
    assert abs(score.value) < 0.02
    assert score.raw < 0.1


def test_time_bins_have_the_declared_reliability(catalog, truth):
    assembly = load_dataset(catalog, "Digits.simulated.time").assembly
    found = ceiling("internal_consistency_temporal", catalog=catalog)(
        assembly
    ).samples.mean("split")
    bins = truth("Digits.simulated.time")["time_bins"]
    for number, start in enumerate(assembly["time_bin_start"].values.astype(int)):
        true = _true(bins[f"{start}-{start + 20} ms"], assembly)
        assert abs((found.isel(time_bin=number).values - true).mean()) < 0.03


def test_subjects_share_the_geometry_of_the_generator(catalog, truth, generator):
    """RDMs of single subjects are noisy; their mean over subjects and repetitions approaches the generator's."""
    assembly = average_repetitions(
        load_dataset(catalog, "Digits.simulated.subjects").assembly
    )
    ids = assembly["stimulus_id"].values.astype(str)
    rows = {str(id): i for i, id in enumerate(generator["stimulus_id"].values)}
    true = np.corrcoef(
        select(generator, {"region": "IT"}).values[[rows[id] for id in ids]]
    )
    at = np.triu_indices(len(ids), 1)
    agreement = []
    names = truth("Digits.simulated.subjects")["subjects"]
    for count in range(1, len(names) + 1):
        chosen = [
            np.corrcoef(select(assembly, {"subject": name}).values)
            for name in names[:count]
        ]
        agreement.append(np.corrcoef(np.mean(chosen, axis=0)[at], true[at])[0, 1])
    assert agreement == sorted(agreement)
    assert agreement[0] > 0.5
    assert agreement[-1] > 0.85


def test_predefined_division_is_balanced(catalog):
    table = load_dataset(catalog, "Digits.simulated").stimuli.table
    counts = table.groupby(["object_name", "split"]).size().unstack()
    assert (counts["train"] == 40).all()
    assert (counts["test"] == 10).all()


def test_generator_and_data_have_the_same_stimuli(catalog, generator):
    data = load_dataset(catalog, "Digits.simulated")
    assert isinstance(data.assembly, xr.DataArray)
    assert set(data.stimuli.ids) == set(generator["stimulus_id"].values.astype(str))
