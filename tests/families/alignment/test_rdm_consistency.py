"""The ceiling of an RDM against the agreement that the noiseless RDM reaches, on simulated populations."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr
from scipy.spatial.distance import pdist
from scipy.stats import kendalltau, rankdata, spearmanr

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.similarity.gram import gram
from neuroledger.families.alignment.similarity.missing import dissimilarities_of_present
from neuroledger.families.alignment.similarity.rdm import dissimilarities
from neuroledger.stats.samples import Variation
from neuroledger.stats.score import Score, normalise
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Memo, Workspace
from tests.long import long

NEUROIDS = 60


def population(kind: str, stimuli: int, rng: np.random.Generator) -> np.ndarray:
    """True responses of unit variance: of ten dimensions, of eight categories, or of patterns of unequal strength."""
    if kind == "category":
        own = (
            0.5
            * rng.standard_normal((stimuli, 5))
            @ rng.standard_normal((5, NEUROIDS))
            / np.sqrt(5)
        )
        found = rng.standard_normal((8, NEUROIDS))[np.arange(stimuli) % 8] + own
    else:
        found = rng.standard_normal((stimuli, 10)) @ rng.standard_normal((10, NEUROIDS))
    if kind == "unequal":
        found *= np.exp(0.5 * rng.standard_normal(stimuli))[:, None]
    found -= found.mean(axis=0)
    return found / found.std()


def recorded(values: np.ndarray) -> xr.DataArray:
    repetitions, stimuli, neuroids = values.shape
    coords = {
        "stimulus_id": (
            "presentation",
            [f"s{i:04d}" for i in range(stimuli)] * repetitions,
        ),
        "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(neuroids)]),
    }
    flat = values.reshape(-1, neuroids)
    return xr.DataArray(flat, dims=("presentation", "neuroid"), coords=coords)


def simulated(
    kind, snr, repetitions, seed, stimuli=200, distance="correlation", agree=None
):
    """Responses, and the score of the noiseless RDM."""
    rng = np.random.default_rng([seed, repetitions, round(100 * snr)])
    truth = population(kind, stimuli, rng) * np.sqrt(snr)
    values = truth + rng.standard_normal((repetitions, *truth.shape))
    agree = agree or (lambda a, b: spearmanr(a, b).statistic)
    return recorded(values), float(
        agree(pdist(truth, distance), pdist(values.mean(axis=0), distance))
    )


@pytest.mark.parametrize("kind", ["dimensions", "category", "unequal"])
@pytest.mark.parametrize(
    ("snr", "repetitions", "bias"),
    [(0.2, 2, 0.15), (0.2, 3, 0.13), (0.2, 10, 0.04), (1, 2, 0.03), (1, 10, 0.01)],
)
def test_the_noiseless_rdm_reaches_the_ceiling(
    kind: str, snr: float, repetitions: int, bias: float
) -> None:
    """At a signal-to-noise ratio of .2 with two or three repetitions, the ceiling of categories is high by a tenth."""
    assembly, reached = simulated(kind, snr, repetitions, seed=0)
    ceiling = nl.ceiling("rdm_consistency")(assembly)
    assert reached / ceiling.value == pytest.approx(1.0, abs=bias)


@pytest.mark.parametrize(
    ("distance", "comparison", "agree"),
    [
        ("correlation", "pearson", lambda a, b: np.corrcoef(a, b)[0, 1]),
        ("correlation", "kendall_tau_a", lambda a, b: kendalltau(a, b).statistic),
        ("correlation", "cosine", lambda a, b: a @ b / np.sqrt(a @ a * (b @ b))),
        ("squared_euclidean", "spearman", lambda a, b: spearmanr(a, b).statistic),
        ("squared_euclidean", "pearson", lambda a, b: np.corrcoef(a, b)[0, 1]),
        ("squared_euclidean", "cosine", lambda a, b: a @ b / np.sqrt(a @ a * (b @ b))),
        ("euclidean", "spearman", lambda a, b: spearmanr(a, b).statistic),
        ("euclidean", "pearson", lambda a, b: np.corrcoef(a, b)[0, 1]),
        ("cosine", "rho_a", lambda a, b: spearmanr(a, b).statistic),
    ],
)
def test_every_distance_and_comparison_has_its_own(distance, comparison, agree):
    name = {"squared_euclidean": "sqeuclidean"}.get(distance, distance)
    found = []
    for seed in range(3):
        assembly, reached = simulated(
            "category", 0.3, 4, seed, stimuli=200, distance=name, agree=agree
        )
        found.append(
            reached
            / nl.ceiling("rdm_consistency", distance=distance, comparison=comparison)(
                assembly
            ).value
        )
    assert np.mean(found) == pytest.approx(1.0, abs=0.05)


def small(
    seed: int, repetitions: int, snr: float, heavy: bool = False, ragged: bool = False
) -> tuple[xr.DataArray, xr.DataArray]:
    """An experiment with 70 stimuli and 18 rectified neurons, and its noiseless responses; ``snr`` 0 is noise alone."""
    rng = np.random.default_rng([seed, repetitions])
    latent = rng.standard_t(4, (70, 7)) if heavy else rng.standard_normal((70, 7))
    gains = np.exp((0.8 if heavy else 0.2) * rng.standard_normal(18))
    truth = np.maximum(latent @ rng.standard_normal((7, 18)), 0) * gains
    truth -= truth.mean(axis=0)
    shape = (repetitions, 70, 18)
    noise = (
        (rng.standard_gamma(2, shape) - 2) / np.sqrt(2)
        if heavy
        else rng.standard_normal(shape)
    )
    values = (truth if snr else 0) + truth.std(axis=0) / np.sqrt(snr or 1) * noise
    assembly = recorded(values)
    if ragged:
        count = rng.integers(2, repetitions + 1, 70)
        assembly = assembly[assembly["repetition"].values < np.tile(count, repetitions)]
    return assembly, recorded(truth[None]).drop_vars("repetition")


@pytest.mark.parametrize(
    ("repetitions", "snr", "heavy", "ragged", "bias"),
    [
        (3, 0.5, False, False, 0.03),
        (6, 0.5, True, True, 0.06),
        (4, 3, True, False, 0.03),
        (2, 30, False, False, 0.01),
    ],
)
def test_the_noiseless_responses_score_one_on_average(
    repetitions: int, snr: float, heavy: bool, ragged: bool, bias: float
) -> None:
    found = []
    for seed in range(20):
        assembly, truth = small(seed, repetitions, snr, heavy, ragged)
        raw = nl.metric("rdm")(truth, average_repetitions(assembly))
        found.append(raw.value / nl.ceiling("rdm_consistency")(assembly).value)
    assert abs(np.mean(found) - 1) < bias + np.std(found) / np.sqrt(len(found))


NOISE = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "skewed": lambda rng, shape: (rng.standard_gamma(2, shape) - 2) / 2**0.5,
    "Laplace": lambda rng, shape: rng.laplace(size=shape) / 2**0.5,
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize(
    ("comparison", "lowest", "highest"),
    [("pearson", -0.02, 0.02), ("spearman", 0, 0.06)],
)
def test_in_categories_the_ceiling_of_ranks_is_above_the_noiseless_rdm(
    noise: str, comparison: str, lowest: float, highest: float
) -> None:
    """Signal to noise .5, three repetitions, eight categories.

    By Pearson's correlation the ceiling is what the noiseless RDM reaches. By rank correlation it is higher, and a part of
    the difference can be reached: the mean of the ranks of many experiments agrees better than the noiseless RDM. Its
    agreement is the root of that of two experiments.
    """
    found = []
    for seed in range(8):
        rng = np.random.default_rng([seed, 40])
        truth = population("category", 100, rng)
        shape = (3, *truth.shape)
        draws = [truth + 2**0.5 * NOISE[noise](rng, shape) for _ in range(2)]
        a, b = (
            ranked(pdist(values.mean(axis=0), "correlation"), comparison)
            for values in draws
        )
        true = ranked(pdist(truth, "correlation"), comparison)
        ceiling = nl.ceiling("rdm_consistency", comparison=comparison)
        found.append((true @ a, a @ b, ceiling(recorded(draws[0])).value))
    noiseless, repeated, ceiling_of = np.mean(found, axis=0)
    best = np.sqrt(repeated)
    assert lowest < ceiling_of - noiseless < highest
    assert (best > noiseless + 0.01) == (comparison == "spearman")


def ranked(values: np.ndarray, comparison: str) -> np.ndarray:
    """Values or their ranks, without their mean and with length 1: the product of two is their correlation."""
    found = rankdata(values) if comparison == "spearman" else values
    centred = found - found.mean()
    return centred / np.linalg.norm(centred)


@pytest.mark.parametrize("repetitions", [2, long(4), long(8)])
def test_noise_is_refused(repetitions: int) -> None:
    for seed in range(8):
        noise, _ = small(seed, repetitions, 0)
        with pytest.raises(MetricError, match=r"noise|no signal|no geometry"):
            normalise(
                Score(0.1, scale="similarity"), nl.ceiling("rdm_consistency")(noise)
            )


def test_good_data_with_strong_neurons_are_not_refused() -> None:
    """Their reliability is .93, and strengths differ tenfold between neurons."""
    for seed in range(6):
        assembly, truth = small(seed, 4, 3, heavy=True)
        ceiling = nl.ceiling("rdm_consistency")(assembly)
        score = normalise(
            nl.metric("rdm")(truth, average_repetitions(assembly)), ceiling
        )
        assert 0.3 < ceiling.low < ceiling.value < ceiling.high < 1
        assert score.value == pytest.approx(1, abs=0.1)


def test_its_interval_covers_new_stimuli_and_neuroids() -> None:
    """By hand: variances without each stimulus and each neuroid, and Student's interval of Fisher's z."""
    assembly, _ = small(1, 3, 3.0)
    bound = nl.ceiling("rdm_consistency")
    ceiling = bound(assembly)
    known = ceiling.uncertainty
    assert known is not None and set(known.factors) == {"stimulus", "neuroid"}
    assert known.scale == "fisher" and known.items["neuroid"] == 18
    variation = bound.samples((assembly,), bound._splits(None, assembly)).variation
    assert isinstance(variation, Variation)
    left = np.array(
        [
            float(variation.without({"neuroid": np.arange(18) != one}))
            for one in range(18)
        ]
    )
    part = next(part for part in known.parts if part.over == ("neuroid",))
    assert part.variance == pytest.approx(17 * left.var(), rel=1e-6)
    assert ceiling.low < ceiling.value < ceiling.high < 1


def test_leaving_stimuli_out_equals_the_ceiling_of_the_others() -> None:
    """Up to the factor, which is that of all stimuli, and the random numbers of its simulation."""
    assembly, _ = small(2, 4, 3.0)
    bound = nl.ceiling("rdm_consistency")
    variation = bound.samples((assembly,), bound._splits(None, assembly)).variation
    assert isinstance(variation, Variation)
    ids = np.asarray(variation.items["stimulus"])
    for lost in (ids[:10], ids[30:45]):
        left = float(variation.without({"stimulus": ~np.isin(ids, lost)}))
        assert left == pytest.approx(
            bound(assembly[~np.isin(assembly["stimulus_id"], lost)]).value, abs=0.01
        )


def test_the_interval_of_nearly_noiseless_data_is_short() -> None:
    assembly, _ = small(1, 2, 30)
    ceiling = nl.ceiling("rdm_consistency")(assembly)
    assert ceiling.value > 0.96
    assert ceiling.high - ceiling.low < 0.06 and ceiling.high < 1


@pytest.mark.slow
def test_the_noiseless_rdm_over_its_ceiling_covers_one() -> None:
    """Metric and ceiling vary with the same stimuli and neurons."""
    covered = []
    for seed in range(10):
        assembly, truth = small(seed, 4, 1.0)
        score = normalise(
            nl.metric("rdm")(truth, average_repetitions(assembly)),
            nl.ceiling("rdm_consistency")(assembly),
        )
        covered.append(score.low <= 1 <= score.high)
    assert np.mean(covered) >= 0.8


def test_a_missing_response_leaves_no_neuroid_out() -> None:
    """One of 240 trials, then 5 % of all responses: the ceiling of the complete data changes by hundredths."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((1, 60, 20)) + 0.5 * rng.standard_normal((4, 60, 20))
    complete = nl.ceiling("rdm_consistency")(recorded(values)).value
    values[2, 3] = np.nan
    assert nl.ceiling("rdm_consistency")(recorded(values)).value == pytest.approx(
        complete, abs=0.01
    )
    values[rng.random(values.shape) < 0.05] = np.nan
    found = nl.ceiling("rdm_consistency")(recorded(values))
    assert found.value == pytest.approx(complete, abs=0.03)
    assert not any("left out" in note for note in found.notes)


def test_halves_are_averages_over_the_responses_that_exist() -> None:
    """By hand with ``nanmean``: r is the mean over splits of the agreement of both halves' RDMs."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((1, 40, 10)) + 0.8 * rng.standard_normal((4, 40, 10))
    values[rng.random(values.shape) < 0.05] = np.nan
    assembly = recorded(values)
    bound = nl.ceiling("rdm_consistency")
    splits = bound._splits(None, assembly)
    agreements = []
    for split in splits:
        a, b = (by_hand(half) for half in halves_by_hand(values, assembly, split))
        known = np.isfinite(a) & np.isfinite(b)
        agreements.append(spearmanr(a[known], b[known]).statistic)
    r, c = np.mean(agreements), bound(assembly).value
    variation = bound.samples((assembly,), splits).variation
    assert isinstance(variation, Variation)
    k = c**2 * (1 - r) / (r * (1 - c**2))
    assert 1.5 < k < 4
    some = np.arange(40) < 30
    left = float(
        variation.without(
            {
                "stimulus": np.isin(
                    variation.items["stimulus"], [f"s{i:04d}" for i in range(30)]
                )
            }
        )
    )
    fewer = []
    for split in splits:
        a, b = (by_hand(half[some]) for half in halves_by_hand(values, assembly, split))
        fewer.append(spearmanr(a, b, nan_policy="omit").statistic)
    r = np.mean(fewer)
    assert left == pytest.approx(np.sqrt(k * r / (1 + (k - 1) * r)), abs=1e-9)


def halves_by_hand(
    values: np.ndarray, assembly: xr.DataArray, split: Split
) -> list[np.ndarray]:
    found = []
    for rows in split:
        half = np.full(values.shape, np.nan).reshape(-1, values.shape[2])
        half[rows] = assembly.values[rows]
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", RuntimeWarning
            )  # of a stimulus without a response in this half
            found.append(np.nanmean(half.reshape(values.shape), axis=0))
    return found


def by_hand(patterns: np.ndarray) -> np.ndarray:
    """Correlation distances of all pairs over the neuroids that have responses to both."""
    rows = [(i, j) for i in range(len(patterns)) for j in range(i + 1, len(patterns))]
    found = []
    for i, j in rows:
        both = np.isfinite(patterns[i]) & np.isfinite(patterns[j])
        found.append(1 - np.corrcoef(patterns[i, both], patterns[j, both])[0, 1])
    return np.array(found)


@pytest.mark.parametrize(
    "distance", ["correlation", "cosine", "squared_euclidean", "euclidean"]
)
def test_dissimilarities_of_complete_patterns_are_those_of_rdm(distance: str) -> None:
    X = np.random.default_rng(0).normal(2, 1, (12, 7))
    expected = dissimilarities(gram(X, Workspace(memo=Memo(0))), distance)
    np.testing.assert_allclose(
        dissimilarities_of_present(X, distance), expected, atol=1e-12
    )
    X[3, 2] = X[5, 1] = X[5, 2] = np.nan
    found = dissimilarities_of_present(X, distance)
    both = np.isfinite(X[3]) & np.isfinite(X[5])
    alone = dissimilarities(
        gram(X[[3, 5]][:, both], Workspace(memo=Memo(0))), distance
    )[0]
    place = 12 * 3 - 3 * 4 // 2 + 5 - 3 - 1
    scale = np.sqrt(7 / 5) if distance == "euclidean" else 1
    assert found[place] == pytest.approx(scale * alone, abs=1e-12)


def test_ragged_repetitions_and_missing_responses():
    assembly, reached = simulated("category", 1.0, 4, seed=1)
    kept = assembly[np.random.default_rng(0).random(len(assembly)) < 0.8].copy()
    kept[0, 5] = np.nan
    found = nl.ceiling("rdm_consistency")(kept)
    assert found.value == pytest.approx(reached, abs=0.05)
    assert any(
        "pairs of stimuli without a pattern in both halves are left out" in note
        for note in found.notes
    )


def test_units_do_not_matter():
    assembly, _ = simulated("category", 1.0, 4, seed=1, stimuli=60)
    expected = nl.ceiling("rdm_consistency")(assembly).value
    for factor in (1e-150, 1e-13, 1e13, 1e150):
        assert nl.ceiling("rdm_consistency")(assembly * factor).value == pytest.approx(
            expected, abs=1e-9
        )


def test_data_without_a_ceiling_are_refused():
    assembly, _ = simulated("category", 1.0, 4, seed=1, stimuli=20)
    with pytest.raises(CeilingError, match=r"only 3 of 3 stimuli .* at least 4"):
        nl.ceiling("rdm_consistency")(
            assembly[np.isin(assembly["stimulus_id"], ["s0001", "s0002", "s0003"])]
        )
    with pytest.raises(CeilingError, match="no repetitions"):
        nl.ceiling("rdm_consistency")(assembly[assembly["repetition"].values == 0])
    lacking = assembly.where(assembly["repetition"] == 0)
    with pytest.raises(
        CeilingError, match="60 of 60 neuroids lack a stimulus in a half"
    ):
        nl.ceiling("rdm_consistency")(lacking)


def test_the_order_of_trials_does_not_matter():
    assembly, _ = simulated("category", 1.0, 4, seed=1, stimuli=40)
    order = np.random.default_rng(0).permutation(len(assembly))
    expected = nl.ceiling("rdm_consistency")(assembly).value
    assert nl.ceiling("rdm_consistency")(assembly[order]).value == pytest.approx(
        expected, abs=1e-9
    )
