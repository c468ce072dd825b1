"""The other ceilings of neural data: halves drawn per stimulus, agreement between subjects, published constants."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.spatial.distance import pdist, squareform

import neuroledger as nl
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.ceilings.constant import constant
from tests.families.alignment.test_internal_consistency import recorded


def drawn_halves(assembly: xr.DataArray, draws: int, seed: int) -> np.ndarray:
    """Reliability by a loop over permutations of repetitions."""
    rng = np.random.default_rng(seed)
    values, ids, repetition = (
        assembly.values,
        assembly["stimulus_id"].values,
        assembly["repetition"].values,
    )
    reliabilities = []
    for _ in range(draws):
        first, second = [], []
        for stimulus in np.unique(ids):
            own = np.unique(repetition[ids == stimulus])
            if len(own) < 2:
                continue
            order = rng.permutation(own)
            for half, side in (
                (order[: len(own) // 2], first),
                (order[len(own) // 2 :], second),
            ):
                side.append(
                    values[(ids == stimulus) & np.isin(repetition, half)].mean(axis=0)
                )
        r = np.array(
            [
                np.corrcoef(a, b)[0, 1]
                for a, b in zip(np.array(first).T, np.array(second).T, strict=True)
            ]
        )
        reliabilities.append(2 * r / (1 + r))
    return np.array(reliabilities)


def test_halves_are_drawn_within_each_stimulus():
    assembly = recorded(stimuli=15, repetitions=5)
    assembly = assembly[np.random.default_rng(0).random(75) < 0.8]
    score = nl.ceiling("predictor_consistency", compat="brainscore")(assembly)
    expected = drawn_halves(assembly, 10, 0)
    np.testing.assert_allclose(score.samples.values, expected, atol=1e-12)
    assert score.value == pytest.approx(np.median(expected, axis=1).mean())


def test_too_few_repeated_stimuli_are_refused():
    with pytest.raises(
        CeilingError,
        match="9 of 9 stimuli were repeated; predictor consistency needs 10",
    ):
        nl.ceiling("predictor_consistency")(recorded(stimuli=9))
    with pytest.raises(CeilingError, match="'repetition'"):
        nl.ceiling("predictor_consistency")(
            recorded(stimuli=12).drop_vars("repetition")
        )


def subjects(count=4, stimuli=20) -> xr.DataArray:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((stimuli, 6))
    X = Z @ rng.standard_normal((6, 30 * count)) + rng.standard_normal(
        (stimuli, 30 * count)
    )
    return xr.DataArray(
        X,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"s{i:03d}" for i in range(stimuli)]),
            "neuroid_id": ("neuroid", [f"n{i}" for i in range(30 * count)]),
            "subject": (
                "neuroid",
                np.repeat([f"subject{i}" for i in range(count)], 30),
            ),
        },
    )


def test_subjects_agree_with_the_group():
    assembly = subjects()
    rdms = np.stack(
        [
            pdist(assembly.values[:, 30 * i : 30 * i + 30], "correlation")
            for i in range(4)
        ]
    )
    upper = [stats.spearmanr(rdm, rdms.mean(axis=0)).statistic for rdm in rdms]
    lower = [
        stats.spearmanr(rdms[i], np.delete(rdms, i, 0).mean(axis=0)).statistic
        for i in range(4)
    ]
    ceiling = nl.ceiling("rsa_ceiling")(assembly)
    np.testing.assert_allclose(ceiling.samples.values, upper, atol=1e-12)
    below = nl.ceiling("rsa_ceiling_lower")(assembly)
    np.testing.assert_allclose(below.samples.values, lower, atol=1e-12)
    assert below.value < ceiling.value
    assert any(f"{np.mean(lower):.4f}" in note for note in ceiling.notes)


def test_given_rdms_have_the_same_ceiling():
    assembly = subjects()
    ids = assembly["stimulus_id"].values
    stacked = np.stack(
        [
            squareform(pdist(assembly.values[:, 30 * i : 30 * i + 30], "correlation"))
            for i in range(4)
        ]
    )
    rdms = xr.DataArray(
        stacked,
        dims=("subject", "stimulus", "stimulus_b"),
        coords={
            "subject": list("abcd"),
            "stimulus_id": ("stimulus", ids),
            "stimulus_id_b": ("stimulus_b", ids),
        },
    )
    assert nl.ceiling("rsa_ceiling")(rdms).value == pytest.approx(
        nl.ceiling("rsa_ceiling")(assembly).value, abs=1e-12
    )


@pytest.mark.parametrize("comparison", ["spearman", "pearson", "cosine"])
def test_no_rdm_agrees_better_than_the_matched_upper_bound(comparison):
    assembly = subjects()
    bound = nl.ceiling("rsa_ceiling", pool="matched", comparison=comparison)(
        assembly
    ).value
    rng = np.random.default_rng(1)
    rdms = np.stack(
        [
            pdist(assembly.values[:, 30 * i : 30 * i + 30], "correlation")
            for i in range(4)
        ]
    )
    from neuroledger.families.alignment.similarity.rdm import compare

    for _ in range(50):
        other = rdms.mean(axis=0) + 0.05 * rng.standard_normal(rdms.shape[1])
        assert (
            np.mean([compare(rdm, other, comparison) for rdm in rdms]) <= bound + 1e-12
        )


@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize(
    "comparison", ["spearman", "pearson", "cosine", "kendall_tau_a"]
)
def test_the_shared_geometry_reaches_the_expected_ceiling(comparison, count):
    """Simulated subjects share a geometry of categories, and each has its own additional geometry."""
    from neuroledger.families.alignment.similarity.rdm import compare

    rng, reached, expected = np.random.default_rng(count), [], []
    for _ in range(3):
        Z = rng.standard_normal((6, 8))[np.arange(60) % 6] + 0.4 * rng.standard_normal(
            (60, 8)
        )
        shared = pdist(Z, "correlation")
        rdms = [
            shared + 0.6 * shared.std() * rng.standard_normal(shared.size)
            for _ in range(count)
        ]
        assembly = xr.DataArray(
            np.stack([squareform(rdm) for rdm in rdms]),
            dims=("subject", "stimulus", "stimulus_b"),
            coords={"subject": [f"p{i}" for i in range(count)]},
        )
        reached.append(np.mean([compare(shared, rdm, comparison) for rdm in rdms]))
        expected.append(
            nl.ceiling("rsa_ceiling", bound="expected", comparison=comparison)(
                assembly
            ).value
        )
    assert np.mean(reached) / np.mean(expected) == pytest.approx(1.0, abs=0.02)


def test_subjects_who_share_nothing_have_no_expected_ceiling():
    rng = np.random.default_rng(1)
    rdm = squareform(pdist(rng.standard_normal((6, 3))))
    rdms = np.stack([rdm, -rdm])
    assembly = xr.DataArray(
        rdms, dims=("subject", "stimulus", "stimulus_b"), coords={"subject": ["a", "b"]}
    )
    with pytest.raises(CeilingError, match="do not agree"):
        nl.ceiling("rsa_ceiling", bound="expected", comparison="pearson")(assembly)


def test_one_subject_has_no_ceiling():
    assembly = subjects()
    with pytest.raises(CeilingError, match="at least two"):
        nl.ceiling("rsa_ceiling")(assembly[:, :30])
    with pytest.raises(CeilingError, match="no coordinate 'subject'"):
        nl.ceiling("rsa_ceiling")(assembly.drop_vars("subject"))


def test_a_constant_names_its_source():
    ceiling = constant(subjects(), value=0.79, source="Kar et al. 2019, figure 4")
    assert float(ceiling.values) == 0.79
    assert "Kar et al. 2019" in ceiling.notes[0]


def test_each_subject_is_predicted_from_the_others():
    assembly = subjects(count=3, stimuli=30)
    score = nl.ceiling("subject_predictivity")(assembly)
    for subject in range(3):
        own = np.arange(90) // 30 == subject
        alone = nl.metric("ridge")(assembly[:, ~own], assembly[:, own])
        np.testing.assert_allclose(
            score.samples.values[:, own], alone.samples.values, atol=1e-12
        )
    assert score.scale == "correlation"
    with pytest.raises(CeilingError, match="at least two"):
        nl.ceiling("subject_predictivity")(assembly[:, :30])
    with pytest.raises(CeilingError, match="'subject' on the neuroids"):
        nl.ceiling("subject_predictivity")(assembly.drop_vars("subject"))


@pytest.mark.parametrize("name", ["subject_predictivity", "extrapolated_predictivity"])
@pytest.mark.slow
def test_subjects_without_a_complete_neuroid_are_left_out(name):
    assembly = subjects(count=4, stimuli=30)
    keep = np.flatnonzero(np.arange(120) % 30 < 6)
    whole = assembly.isel(neuroid=keep[6:])
    missing = assembly.isel(neuroid=keep).copy()
    missing[3, :6] = np.nan
    expected, actual = nl.ceiling(name)(whole), nl.ceiling(name)(missing)
    assert actual.value == pytest.approx(expected.value, abs=1e-12)
    assert any("1 subjects without a complete neuroid" in note for note in actual.notes)
    with pytest.raises(
        CeilingError, match="3 subjects without a complete neuroid were left out"
    ):
        lonely = missing.copy()
        lonely[3, :18] = np.nan
        nl.ceiling(name)(lonely)


@pytest.mark.slow
def test_new_stimuli_move_the_extrapolated_ceiling():
    """The variance that stimuli claim is about that of experiments with new stimuli and the same neuroids."""
    always = np.random.default_rng(8)
    weights, subject = always.normal(size=(4, 18)), np.repeat(list("abc"), 6)
    values, claims = [], []
    for run in range(16):
        rng = np.random.default_rng([9, run])
        responses = np.tanh(rng.normal(size=(60, 4))) @ weights + 1.5 * rng.normal(
            size=(60, 18)
        )
        data = xr.DataArray(
            responses,
            dims=("presentation", "neuroid"),
            coords={
                "stimulus_id": ("presentation", [f"{run}s{i:02d}" for i in range(60)]),
                "neuroid_id": ("neuroid", [f"n{i:02d}" for i in range(18)]),
                "subject": ("neuroid", subject),
            },
        )
        score = nl.ceiling("extrapolated_predictivity", bootstraps=1)(data)
        values.append(score.value)
        known = score.uncertainty
        claims.append(
            next(part.variance for part in known.parts if part.over == ("stimulus",))
        )
    assert 0.4 < np.mean(claims) / np.var(values, ddof=1) < 2.5
    assert set(known.factors) == {"stimulus", "neuroid"}
