"""The ceiling of an RDM against the agreement that the noiseless RDM reaches, on simulated populations."""

import numpy as np
import pytest
import xarray as xr
from scipy.spatial.distance import pdist
from scipy.stats import kendalltau, spearmanr

import neuroledger as nl
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError, RequestError
from neuroledger.families.alignment.ceilings.rdm_consistency import (
    _patterns,
    _rdm_without_each_neuroid,
    _reliability,
)
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.score import normalise
from neuroledger.stats.splits import draw
from neuroledger.stats.spread import Influence, moved

NEUROIDS = 60


def population(kind: str, stimuli: int, rng: np.random.Generator) -> np.ndarray:
    """True responses of unit variance: of ten dimensions, of eight categories, or of patterns of unequal strength."""
    if kind == "category":
        own = 0.5 * rng.standard_normal((stimuli, 5)) @ rng.standard_normal((5, NEUROIDS)) / np.sqrt(5)
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
        "stimulus_id": ("presentation", [f"s{i:04d}" for i in range(stimuli)] * repetitions),
        "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
        "neuroid_id": ("neuroid", [f"n{i}" for i in range(neuroids)]),
    }
    flat = values.reshape(-1, neuroids)
    return xr.DataArray(flat, dims=("presentation", "neuroid"), coords=coords)


def simulated(kind, snr, repetitions, seed, stimuli=400, distance="correlation", agree=None):
    """Responses, and the score of the noiseless RDM."""
    rng = np.random.default_rng([seed, repetitions, round(100 * snr)])
    truth = population(kind, stimuli, rng) * np.sqrt(snr)
    values = truth + rng.standard_normal((repetitions, *truth.shape))
    agree = agree or (lambda a, b: spearmanr(a, b).statistic)
    return recorded(values), float(agree(pdist(truth, distance), pdist(values.mean(axis=0), distance)))


def deviation(score: nl.Score) -> float:
    return float(np.sqrt(sum(items.variance for items in score.influence().factors.values())))


@pytest.mark.parametrize("kind", ["dimensions", "category", "unequal"])
@pytest.mark.parametrize(
    ("snr", "repetitions"), [(0.05, 2), (0.05, 10), (0.2, 2), (0.2, 3), (0.2, 10), (1, 2), (1, 10)]
)
def test_the_noiseless_rdm_reaches_the_ceiling(kind, snr, repetitions):
    assembly, reached = simulated(kind, snr, repetitions, seed=0)
    ceiling = nl.ceiling("rdm_consistency")(assembly)
    assert abs(reached - ceiling.value) < 2.6 * deviation(ceiling) + 0.01
    if snr * repetitions >= 0.4:
        assert reached / ceiling.value == pytest.approx(1.0, abs=0.1 if snr < 1 else 0.03)


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
        ("cosine", "rho_a", lambda a, b: spearmanr(a, b).statistic),
    ],
)
def test_every_distance_and_comparison_has_its_own(distance, comparison, agree):
    name = {"squared_euclidean": "sqeuclidean"}.get(distance, distance)
    found = []
    for seed in range(3):
        assembly, reached = simulated("category", 0.3, 4, seed, stimuli=200, distance=name, agree=agree)
        found.append(
            reached / nl.ceiling("rdm_consistency", distance=distance, comparison=comparison)(assembly).value
        )
    assert np.mean(found) == pytest.approx(1.0, abs=0.05)


def test_noise_is_refused_and_its_reliability_is_zero_on_average():
    refused, values = 0, []
    for seed in range(40):
        noise = recorded(np.random.default_rng(seed).standard_normal((8, 60, 30)))
        values.append(reliability(noise).summary.reliability)
        try:
            nl.ceiling("rdm_consistency")(noise)
        except CeilingError as error:
            assert "includes 0" in str(error) or "noise may reach 2.58" in str(error)
            refused += 1
    assert refused == 40
    assert abs(np.mean(values)) < 3 * np.std(values) / np.sqrt(40)


def halves(assembly: xr.DataArray):
    return draw(SplitsSpec(train=0.5, by="repetition", unique=True, folds=4), assembly)


def reliability(assembly: xr.DataArray, distance: str = "correlation"):
    return _reliability(_patterns(assembly, halves(assembly), distance, []))


@pytest.mark.parametrize("distance", ["correlation", "cosine", "squared_euclidean"])
def test_deviations_are_those_of_leaving_each_item_out(distance):
    assembly, _ = simulated("unequal", 1.0, 4, seed=3, stimuli=60)
    found, ids = reliability(assembly, distance), assembly["stimulus_id"].values
    left = [reliability(assembly[ids != id], distance).summary for id in np.unique(ids)]
    assert correlations(found.by_stimulus, left, (0,)).max() < -0.99
    assert correlations(found.by_stimulus, left, (0, 1, 2, 5)).max() < -0.9
    left = [reliability(assembly[:, np.arange(NEUROIDS) != k], distance).summary for k in range(NEUROIDS)]
    assert correlations(found.by_neuroid, left, (0,)).max() < -0.99
    assert correlations(found.by_neuroid, left, (0, 1, 2, 5)).max() < -0.9
    patterns = _patterns(assembly, halves(assembly), distance, [])
    exact = _rdm_without_each_neuroid(patterns, distance != "squared_euclidean")[:, 0]
    np.testing.assert_allclose(exact, [each.reliability for each in left], atol=1e-12)


def correlations(deviations, left, numbers) -> np.ndarray:
    """Rank correlations, because responses are divided by the largest, which leaving out one item changes."""
    return np.array([spearmanr(deviations[:, at], [each[at] for each in left]).statistic for at in numbers])


def test_its_interval_contains_the_mean_ceiling_of_new_stimuli_and_neuroids():
    """Neurons that fire as Poisson processes have noise that grows with the response."""
    ceilings = []
    for seed in range(80):
        rng = np.random.default_rng([seed, 8])
        latent, weights = rng.standard_normal((100, 12)), rng.standard_normal((12, 40))
        rates = 2 * np.exp(0.7 * latent @ weights / np.sqrt(12))
        ceilings.append(
            nl.ceiling("rdm_consistency")(recorded(rng.poisson(rates, (6, 100, 40)).astype(float)))
        )
    values = np.array([ceiling.value for ceiling in ceilings])
    error = np.sqrt(np.mean([ceiling.spread.error**2 for ceiling in ceilings]))
    assert 0.8 < error / values.std(ddof=1) < 1.3
    assert np.mean([ceiling.low <= values.mean() <= ceiling.high for ceiling in ceilings]) > 0.88


def test_its_interval_allows_for_few_strong_neuroids():
    """With one degree of freedom for each neuroid, .89 of the intervals contained the mean."""
    ceilings = []
    for seed in range(80):
        rng = np.random.default_rng([seed, 9])
        strengths = np.exp(0.6 * rng.standard_normal(60))
        noise = strengths * rng.uniform(0.5, 1.5, 60)
        truth = rng.standard_normal((60, 8)) @ rng.standard_normal((8, 60)) / np.sqrt(8) * strengths
        ceilings.append(
            nl.ceiling("rdm_consistency")(recorded(truth + 0.5 * noise * rng.standard_normal((3, 60, 60))))
        )
    mean = np.mean([ceiling.value for ceiling in ceilings])
    assert np.mean([ceiling.low <= mean <= ceiling.high for ceiling in ceilings]) > 0.91
    assert np.median([ceiling.spread.sure["neuroid"] for ceiling in ceilings]) < 10


def test_its_interval_widens_that_of_the_score():
    assembly, _ = simulated("dimensions", 0.2, 4, seed=2, stimuli=100)
    ceiling = nl.ceiling("rdm_consistency")(assembly)
    assert ceiling.high - ceiling.low == pytest.approx(2 * 1.96 * deviation(ceiling), rel=0.1)
    assert ceiling.interval_covers == "the 95 % interval covers new stimuli and new neuroids"
    flat = Influence({"stimulus": moved(["a", "b"], np.zeros(2))})
    raw = nl.Score(0.5 * ceiling.value, scale="similarity", influence=flat)
    scored = normalise(raw, ceiling)
    assert scored.value == pytest.approx(0.5)
    assert scored.low < 0.5 * ceiling.value / (ceiling.value + deviation(ceiling)) < 0.5 < scored.high


def test_the_noiseless_rdm_over_its_ceiling_covers_one():
    """Metric and ceiling vary with the same stimuli and neurons, and are drawn together."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng([99, seed])
        truth = population("dimensions", 60, rng) * np.sqrt(0.5)
        assembly = recorded(truth + rng.standard_normal((4, *truth.shape)))
        model = recorded(truth[None]).drop_vars("repetition")
        raw = nl.metric("rdm")(model, average_repetitions(assembly))
        ceiling = nl.ceiling("rdm_consistency")(assembly)
        score = normalise(raw, ceiling)
        apart = np.hypot(raw.spread.error, ceiling.spread.error) / ceiling.value
        found.append((score.value, score.low, score.high, score.spread.error, apart))
    value, low, high, error, apart = np.array(found).T
    assert np.mean((low <= 1) & (high >= 1)) >= 0.88
    assert value.std(ddof=1) < np.sqrt((error**2).mean()) < 0.8 * np.sqrt((apart**2).mean())


def test_missing_repetitions_and_responses():
    assembly, reached = simulated("category", 1.0, 4, seed=1)
    kept = assembly[np.random.default_rng(0).random(len(assembly)) < 0.9].copy()
    kept[0, 5] = np.nan
    found = nl.ceiling("rdm_consistency")(kept)
    assert found.value == pytest.approx(reached, abs=0.04)
    assert any("1 of 60 neuroids left out" in note for note in found.notes)


def test_units_do_not_matter():
    assembly, _ = simulated("category", 1.0, 4, seed=1, stimuli=60)
    expected = nl.ceiling("rdm_consistency")(assembly).value
    for factor in (1e-150, 1e-13, 1e13, 1e150):
        assert nl.ceiling("rdm_consistency")(assembly * factor).value == pytest.approx(expected, abs=1e-9)


def test_data_without_a_ceiling_are_refused():
    assembly, _ = simulated("category", 1.0, 4, seed=1, stimuli=20)
    with pytest.raises(RequestError, match="squared_euclidean"):
        nl.ceiling("rdm_consistency", distance="euclidean", comparison="pearson")
    with pytest.raises(CeilingError, match="at least 4"):
        nl.ceiling("rdm_consistency")(assembly[np.isin(assembly["stimulus_id"], ["s0001", "s0002", "s0003"])])
    with pytest.raises(CeilingError, match="no repetitions"):
        nl.ceiling("rdm_consistency")(assembly[assembly["repetition"].values == 0])
