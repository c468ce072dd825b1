"""Two decoders compared: each person is a pair, both are resampled alike, with and without what was kept."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest
import xarray as xr
from sklearn.metrics import balanced_accuracy_score

import neuroledger as nl
from neuroledger.display import NoDisplay
from neuroledger.engine.plan import plan
from neuroledger.engine.run import run
from neuroledger.engine.samples import Resampled
from neuroledger.engine.session import Request
from neuroledger.report.compare import compare
from neuroledger.report.paired import paired_predictions
from neuroledger.spec.catalog import open_catalog
from tests.families.decoding.decoding_cases import windows
from tests.families.decoding.test_decoding_specs import Repository

PEOPLE = np.repeat(np.arange(7), 20)


def scored(seed, noise):
    """Predictions of one class out of two for 7 people, wrong by chance."""
    truth = np.tile(["a", "b"], 70)
    wrong = np.random.default_rng(seed).random(140) < noise
    answer = np.where(wrong, np.where(truth == "a", "b", "a"), truth)
    at = {"subject": PEOPLE, "split": PEOPLE % 3, "stimulus_id": np.arange(140)}
    coords = {name: ("presentation", values) for name, values in at.items()}
    source, target = (xr.DataArray(each, dims=("presentation",), coords=coords) for each in (answer, truth))
    score = nl.metric("balanced_accuracy")(source, target)
    own = [balanced_accuracy_score(truth[who == PEOPLE], answer[who == PEOPLE]) for who in range(7)]
    return score, np.array(own)


def sides(*scores):
    return tuple(Resampled(s.samples.attrs["draws"], s.samples.attrs["clusters"]) for s in scores)


def test_each_person_is_a_pair_and_p_is_that_of_flipped_signs():
    (a, own_a), (b, own_b) = scored(1, 0.1), scored(2, 0.35)
    mine, theirs = sides(a, b)
    np.testing.assert_allclose(mine.clusters.values, own_a)
    found, draws = paired_predictions(mine, theirs, span=0.5, seed=0)
    each = (own_a - own_b) / 0.5
    patterns = [abs(np.dot(signs, each)) for signs in itertools.product((1, -1), repeat=7)]
    assert found["p"] == pytest.approx(np.mean(np.array(patterns) >= abs(each.sum()) - 1e-9))
    assert found["pairs"] == 7
    assert found["effect"] == pytest.approx(each.mean() / each.std(ddof=1))
    assert found["low"] < (a.value - b.value) / 0.5 < found["high"]
    assert draws.shape == (1000,)
    same, _ = paired_predictions(mine, mine, span=1.0, seed=0)
    assert (same["p"], same["low"], same["high"]) == (1.0, 0.0, 0.0)


def test_people_whose_own_score_is_undefined_leave_the_p_of_the_draws():
    mine, theirs = sides(scored(1, 0.1)[0], scored(2, 0.35)[0])
    lost = Resampled(mine.draws, xr.full_like(mine.clusters, np.nan))
    found, draws = paired_predictions(lost, theirs, span=1.0, seed=0)
    assert "pairs" not in found
    assert found["p"] == pytest.approx(2 * (min((draws <= 0).sum(), (draws >= 0).sum()) + 1) / 1001)


def test_decoders_are_compared_with_and_without_what_was_kept(tmp_path, repository):
    repo = Repository(tmp_path, repository)
    repo.data(windows(subjects=8, trials=20, strength=2.0))
    repo.benchmark()
    fields = {"id": "S", "version": 1, "title": "A suite", "benchmarks": ["B"], "models": ["lda", "dummy"]}
    repo.write("suites", fields)
    catalog = open_catalog(tmp_path)
    request = Request()
    jobs = plan(catalog, models=["lda", "dummy"], benchmarks=["B"], request=request).jobs
    run(catalog, jobs, request, NoDisplay())
    kept = compare("lda", "dummy", suite="S", catalog=catalog)
    (one,) = kept.differences
    assert one.pairs == 8
    assert one.p == pytest.approx(2 / 2**8)
    assert one.better == "a"
    assert 0 < one.low < one.value < one.high
    shutil.rmtree(tmp_path / ".cache" / "neuroledger" / "samples")
    told: list[str] = []
    assert compare("lda", "dummy", suite="S", catalog=catalog, tell=told.append) == kept
    assert told == [
        "B: no samples of lda and dummy are kept here; lda and dummy are trained and scored again"
    ]
