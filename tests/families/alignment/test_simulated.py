"""Simulated recordings have the variances, subjects, time bins and splits of the data to which they are fitted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import MetricError
from neuroledger.families.alignment.simulated import (
    simulated_properties,
    simulated_recordings,
)
from neuroledger.stats.splits import Split

Floats = npt.NDArray[np.float64]
BOTH = ("stimulus", "neuroid")


def recorded(
    noise: float = 1.5, bins: int = 1, subjects: int = 1, seed: int = 0
) -> Measurement:
    """60 stimuli, 5 repetitions, 24 neuroids with a signal of unit variance, half of it shared."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((60, 4))
    signal = Z @ rng.standard_normal((4, 24 * bins)) / np.sqrt(8) + rng.standard_normal(
        (60, 24 * bins)
    ) / np.sqrt(2)
    values = (signal + noise * rng.standard_normal((5, *signal.shape))).reshape(
        300, 24, bins
    )
    coords = {
        "stimulus_id": ("presentation", [f"im{i:02d}" for i in range(60)] * 5),
        "object_name": ("presentation", [f"o{i % 3}" for i in range(60)] * 5),
        "repetition": ("presentation", np.repeat(np.arange(5), 60)),
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(24)]),
        "subject": ("neuroid", [f"p{i % subjects}" for i in range(24)]),
        "time_bin_start": ("time_bin", np.arange(bins) * 10),
    }
    repeated = xr.DataArray(
        values, dims=("presentation", "neuroid", "time_bin"), coords=coords
    )
    if bins == 1:
        repeated = repeated.isel(time_bin=0, drop=True)
    target = average_repetitions(repeated)
    ids = {"stimulus_id": ("presentation", target["stimulus_id"].values)}
    source = xr.DataArray(
        rng.standard_normal((60, 12)), dims=("presentation", "neuroid"), coords=ids
    )
    return Measurement(source, target, repeated)


def test_signal_noise_and_reliability_are_those_of_the_data() -> None:
    measured = recorded()
    assert measured.repeated is not None
    spread = measured.target.values.std(axis=0)
    noise = (
        measured.repeated.values.reshape(5, 60, 24).var(axis=0, ddof=1).mean(axis=0)
        / spread**2
    )
    draw = simulated_recordings(measured, BOTH)
    reliability, total, between = [], [], []
    for seed in range(8):
        one = draw(np.random.default_rng(seed), 1).models[0]
        assert one.repeated is not None and one.repeated.sizes == {
            "presentation": 300,
            "neuroid": 24,
        }
        reliability.append(nl.ceiling("internal_consistency")(one.repeated).value)
        total.append(float(one.target.var("presentation").mean()))
        between.append(
            float(one.repeated.values.reshape(60, 5, 24).var(axis=1, ddof=1).mean())
        )
    assert np.mean(reliability) == pytest.approx(
        nl.ceiling("internal_consistency")(measured.repeated).value, abs=0.05
    )
    assert np.mean(total) == pytest.approx(1.0, abs=0.08)
    assert np.mean(between) == pytest.approx(noise.mean(), rel=0.08)


def test_repetitions_vary_about_the_noiseless_responses() -> None:
    experiment = simulated_recordings(recorded(), BOTH)(np.random.default_rng(0), 2)
    true, one = experiment.noiseless, experiment.models[0]
    assert true is not None and true.target.identical(one.target)
    r = np.corrcoef(true.source.values.ravel(), true.target.values.ravel())[0, 1]
    assert r**2 == pytest.approx(1 / 1.45, abs=0.05)
    assert list(true.source["stimulus_id"].values) == list(
        true.target["stimulus_id"].values
    )


def test_models_are_equal_and_do_not_change_between_experiments() -> None:
    draw = simulated_recordings(recorded(), BOTH)
    weights = []
    for seed in range(2):
        experiment = draw(np.random.default_rng(seed), 2)
        assert not np.allclose(*(one.source.values for one in experiment.models))
        for one in experiment.models:
            assert one.source.sizes == {"presentation": 60, "neuroid": 12}
            weights.append(np.corrcoef(one.source.values.T)[np.triu_indices(12, 1)])
    alike = np.corrcoef(weights)[np.triu_indices(4, 1)]
    assert (alike > 0.8).all(), "one mixture of what they see"


def test_a_predefined_division_keeps_its_proportions_and_its_ceiling() -> None:
    measured = recorded()
    assert measured.repeated is not None
    tested = measured.repeated.isel(
        presentation=[i for i in range(300) if i % 60 >= 45]
    )
    measured = replace(
        measured, repeated=tested, splits=[Split(np.arange(45), np.arange(45, 60))]
    )
    one = simulated_recordings(measured, BOTH)(np.random.default_rng(0), 1).models[0]
    assert one.splits is not None and one.repeated is not None
    ((train, test),) = one.splits
    assert len(train) == 45 and len(test) == 15 and not set(train) & set(test)
    assert set(one.repeated["stimulus_id"].values) == set(
        one.target["stimulus_id"].values[test]
    )
    score = nl.metric("ridge_split")(one.source, one.target, splits=one.splits)
    assert np.isfinite(score.low)


def test_subjects_are_new_where_the_claim_is_about_them() -> None:
    measured = recorded(subjects=3)
    one = simulated_recordings(measured, ("stimulus", "subject"))(
        np.random.default_rng(0), 1
    ).models[0]
    assert sorted(set(one.target["subject"].values)) == ["p0", "p1", "p2"]
    assert nl.metric("rdm_subjects")(one.source, one.target).interval_covers.endswith(
        "stimuli and new subjects"
    )


def test_neuroids_stay_where_the_claim_is_not_about_them() -> None:
    draw = simulated_recordings(recorded(), ("stimulus",))
    both = [
        draw(np.random.default_rng(seed), 1).models[0].target.values
        for seed in range(2)
    ]
    shared, fresh = (
        np.abs(
            np.corrcoef(
                *(np.corrcoef(each.T)[np.triu_indices(24, 1)] for each in pair)
            )[0, 1]
        )
        for pair in (both, [both[0], _other()])
    )
    assert shared > 0.6 > fresh


def _other() -> Floats:
    drawn = simulated_recordings(recorded(), BOTH)(np.random.default_rng(7), 1)
    return np.asarray(drawn.models[0].target.values)


def test_time_bins_stay() -> None:
    measured = recorded(bins=3)
    source = xr.concat([measured.source] * 3, "time_bin").transpose(
        "presentation", "neuroid", "time_bin"
    )
    one = simulated_recordings(replace(measured, source=source), BOTH)(
        np.random.default_rng(0), 1
    ).models[0]
    assert one.target.sizes == {"presentation": 60, "neuroid": 24, "time_bin": 3}
    assert one.source.sizes["time_bin"] == 3 and list(
        one.target["time_bin_start"].values
    ) == [0, 10, 20]


def test_subjects_of_simulated_dissimilarities_agree_as_those_measured_do() -> None:
    rng = np.random.default_rng(0)
    places = rng.standard_normal((30, 4))
    rdms = []
    for _ in range(4):
        own = np.hstack([places, 0.8 * rng.standard_normal((30, 4))])
        rdms.append(((own[:, None] - own[None]) ** 2).sum(axis=2))
    coords = {
        "subject": list("abcd"),
        "stimulus_id": ("stimulus", [f"s{i}" for i in range(30)]),
    }
    target = xr.DataArray(
        np.stack(rdms), dims=("subject", "stimulus", "stimulus_b"), coords=coords
    )
    draw = simulated_recordings(
        Measurement(target, target, target), ("stimulus", "subject")
    )

    def agreement(table: Floats) -> float:
        pairs = np.stack([one[np.triu_indices(30, 1)] for one in table])
        return float(np.corrcoef(pairs)[np.triu_indices(4, 1)].mean())

    drawn = [
        agreement(draw(np.random.default_rng(seed), 1).models[0].target.values)
        for seed in range(10)
    ]
    assert np.mean(drawn) == pytest.approx(agreement(target.values), abs=0.1)


def test_the_noise_of_simulated_dissimilarities_does_not_depend_on_which_stimuli_are_drawn() -> (
    None
):
    """With noise in proportion to the drawn stimuli, every experiment would have the same share of signal."""
    rng = np.random.default_rng(0)
    places = (
        rng.standard_normal((12, 2)) * np.where(np.arange(12) < 2, 6.0, 1.0)[:, None]
    )
    table = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    coords = {"stimulus_id": ("stimulus", [f"s{i:02d}" for i in range(12)])}
    target = xr.DataArray(table, dims=("stimulus", "stimulus_b"), coords=coords)
    draw = simulated_recordings(Measurement(target, target, target), ("stimulus",))
    agreements, sizes = [], []
    for seed in range(80):
        drawn = draw(np.random.default_rng(seed), 1).models[0]
        upper = np.triu_indices(12, 1)
        distances = drawn.target.values[upper]
        agreements.append(
            np.corrcoef(distances, _square_distances(drawn.source.values)[upper])[0, 1]
        )
        sizes.append(distances.mean())
    assert np.corrcoef(sizes, agreements)[0, 1] > 0.3


def _square_distances(values: Floats) -> Floats:
    return np.asarray(((values[:, None] - values[None]) ** 2).sum(axis=2))


def test_properties_are_drawn_from_the_distribution_measured() -> None:
    rng = np.random.default_rng(0)
    target = xr.DataArray(
        rng.random((80, 1)),
        dims=("neuroid", "property"),
        coords={"property": ["cv"]},
        attrs={"a": 1},
    )
    source = xr.DataArray(
        rng.random((50, 1)) ** 2,
        dims=("neuroid", "property"),
        coords={"property": ["cv"]},
    )
    draw = simulated_properties(Measurement(source, target), ("neuroid",))
    one, two = (draw(np.random.default_rng(seed), 1).models[0] for seed in range(2))
    assert set(one.target.values.ravel()) <= set(
        target.values.ravel()
    ) and one.target.attrs == {"a": 1}
    assert not np.array_equal(one.target.values, two.target.values)
    assert np.array_equal(one.source.values, two.source.values), (
        "the claim is about new neurons, not new models"
    )


def test_data_without_a_generative_model_are_refused() -> None:
    odd = xr.DataArray(np.zeros((3, 3)), dims=("window", "label"))
    with pytest.raises(MetricError, match="no generative model"):
        simulated_recordings(Measurement(odd, odd), BOTH)
    with pytest.raises(MetricError, match="no generative model"):
        simulated_properties(Measurement(odd, odd), ("neuroid",))
