"""A real recording through all steps agrees with MNE, pyriemann, scikit-learn and braindecode."""

import json

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.data.load import read_dataset
from neuroledger.families.decoding.models.classical_decoders import covariance_decoder
from neuroledger.families.decoding.pipelines.declare import declared_step
from neuroledger.spec.catalog import open_catalog

BLOCKED = {"name": "blocked", "folds": 5, "trial": "trial", "purge": 1.0}
RANDOM = {
    "name": "random",
    "folds": 5,
    "stratify": "label",
    "seed": 33,
    "waive": ["overlap"],
}
WATCHED = {"fraction": 0.2, "by": "trial", "seed": 33}
NAMES = {
    "dummy": "dummy_most_frequent",
    "covariance_logistic": "cov_ts_lr",
    "xdawn_logistic": "xdawn_ts_lr",
    "shrinkage_lda": "shrink_lda_amp",
}


@pytest.fixture(scope="module")
def recording(mirror):
    catalog = open_catalog()
    names = catalog.dataset("EEGLAB.sample").files
    files = {name: mirror / "eeglab_sample" / name for name in names}
    return read_dataset(catalog, "EEGLAB.sample", files).assembly


@pytest.fixture(scope="module")
def oracle(reference):
    return json.loads(
        (reference / "neuralbench_oracle" / "oracle_eeglab.json").read_text()
    )["rows"]


@pytest.mark.parametrize("decoder", sorted(NAMES))
@pytest.mark.parametrize(("splits", "how"), [(BLOCKED, "blocked"), (RANDOM, "random")])
def test_classical_decoders_reproduce_every_fold(
    recording, oracle, decoder, splits, how
):
    (row,) = [
        row for row in oracle if (row["split"], row["model"]) == (how, NAMES[decoder])
    ]
    score = nl.decode(
        decoder,
        recording,
        "label",
        splits=splits,
        cluster="trial",
        normalise=decoder != "dummy",
    )
    np.testing.assert_allclose(score.samples.values[0], row["folds"], atol=1e-4)
    assert score.raw == pytest.approx(row["bal_acc"], abs=1e-6)
    if decoder != "dummy":
        assert score.value == pytest.approx(row["norm_score"], abs=1e-6)
        assert score.low <= score.value <= score.high


def test_overlapping_windows_stop_random_folds_unless_waived(recording):
    with pytest.raises(
        nl.errors.DataError, match="tested windows overlap in time with trained ones"
    ):
        nl.decode("shrinkage_lda", recording, "label", splits={**RANDOM, "waive": []})
    waived = nl.decode(
        "shrinkage_lda", recording, "label", splits=RANDOM, cluster="trial"
    )
    assert "gate waived: overlap" in waived.notes


def test_position_decoding_reproduces_the_reference_figures(recording, reference):
    known = json.loads(
        (reference / "neuralbench_oracle" / "oracle_extra.json").read_text()
    )["position"]
    squares = recording.isel(
        presentation=np.flatnonzero(recording["label"].values == "square")
    )
    for decoder in ("covariance_logistic", "shrinkage_lda"):
        score = nl.decode(decoder, squares, "position", splits=BLOCKED, cluster="trial")
        mean, spread = known[NAMES[decoder]]
        assert score.value == pytest.approx(mean, abs=1e-6)
        assert score.samples.values[0].std() == pytest.approx(spread, abs=1e-6)
    # That script weighted no classes after Xdawn; with weights, one window each of the last two blocks falls otherwise.
    mean, spread = known["xdawn_ts_lr"]
    head = declared_step("logistic", balanced=False)
    unweighted = covariance_decoder(
        id="unweighted", xdawn=4, estimator="lwf", head=head
    )
    score = nl.decode(unweighted, squares, "position", splits=BLOCKED, cluster="trial")
    assert score.value == pytest.approx(mean, abs=1e-9)
    assert score.samples.values[0].std() == pytest.approx(spread, abs=1e-9)
    weighted = nl.decode(
        "xdawn_logistic", squares, "position", splits=BLOCKED, cluster="trial"
    )
    np.testing.assert_allclose(
        weighted.samples.values[0][:3], score.samples.values[0][:3]
    )
    assert weighted.value == pytest.approx(0.642, abs=5e-4)
    shuffled = nl.decode(
        "shrinkage_lda",
        squares,
        "position",
        splits=BLOCKED,
        cluster="trial",
        shuffle_labels=True,
    )
    assert shuffled.low < 0.5 < shuffled.high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decoder", "name"),
    [("eegnet", "EEGNet"), ("shallow_fbcsp_net", "ShallowFBCSPNet")],
)
def test_networks_reproduce_the_reference_figures_within_their_spread(
    recording, oracle, decoder, name
):
    known = [
        row["bal_acc"]
        for row in oracle
        if (row["split"], row["model"]) == ("blocked", name)
    ]
    splits = {**BLOCKED, "validation": WATCHED}
    score = nl.decode(decoder, recording, "label", splits=splits, cluster="trial")
    spread = np.hypot(np.std(known, ddof=1), score.error)
    assert abs(score.value - np.mean(known)) < 2 * spread
