"""Tests that scores on real recordings are those computed with the peers' own code."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.assembly import average_repetitions, select
from neuroledger.data.fetch import fetch_files
from neuroledger.data.integrity import folder_of
from neuroledger.data.load import load_dataset
from neuroledger.engine.bound_metric import ceiling, metric
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Session

V4 = "cowley2023_v4_210325"
OBJECTS = "kriegeskorte2008_92images"
# PLS ends where its iterations converge, to about 1e-7 in a component; ridge has a closed form.
TOLERANCE = {"ridge": 1e-9, "pls": 1e-6}
RDMS = {
    "animacy": "animacy",
    "categories": "FaceBodyManmadeNatobj",
    "eva": "EVA",
    "hmax": "HMAX",
    "v1": "V1",
    "silhouette": "Silhouette",
    "radon": "RADON",
}


def _fetch(catalog, kind, id):
    spec = catalog.entry(kind, id).spec
    fetch_files(
        catalog.root,
        folder_of(catalog.root, kind, id),
        spec.files if kind == "datasets" else spec.weights,
    )


@pytest.fixture(scope="module")
def fetched(catalog, mirror):
    """The public data sets, fetched from the mirror as by a user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEUROLEDGER_MIRROR", str(mirror))
        for id in ("Cowley2023.210325", "Kriegeskorte2008", "Haxby2001.slice"):
            _fetch(catalog, "datasets", id)
        for name in RDMS:
            _fetch(catalog, "models", f"kriegeskorte92.{name}")
    return catalog


@pytest.fixture(scope="module")
def v4(fetched, mirror):
    return load_dataset(fetched, "Cowley2023.210325"), json.loads(
        (mirror / V4 / "expected.json").read_text()
    )


@pytest.fixture(scope="module")
def objects(fetched, mirror):
    expected = json.loads((mirror / OBJECTS / "expected.json").read_text())
    return load_dataset(fetched, "Kriegeskorte2008"), expected


def _per_neuroid(expected):
    values = expected["per_neuroid_mean_over_splits"]
    return np.array([values[f"n{number}"] for number in range(len(values))])


@pytest.mark.parametrize(
    ("name", "repetitions"),
    [("ceiling_first6reps", {"max": 5}), ("ceiling_all_ragged_reps", {"max": 9})],
)
def test_v4_ceiling_is_the_peers(fetched, v4, name, repetitions):
    data, expected = v4
    chosen = select(data.assembly, {"repetition": repetitions})
    score = ceiling("internal_consistency", catalog=fetched, compat="brainscore")(
        chosen
    )
    assert score.value == pytest.approx(expected[name]["value"], abs=1e-9)
    assert score.error == pytest.approx(expected[name]["error"], abs=1e-9)
    found = score.samples.mean("split").values
    np.testing.assert_allclose(found, _per_neuroid(expected[name]), atol=1e-9)


@pytest.mark.parametrize("name", ["pls", "ridge"])
@pytest.mark.parametrize("features", ["pixels16", "compact40"])
def test_v4_scores_are_the_peers(fetched, v4, mirror, features, name):
    data, expected = v4
    values = np.load(mirror / V4 / "model_outputs" / f"{features}_features.npy")
    source = xr.DataArray(
        values,
        dims=("presentation", "neuroid"),
        coords={"stimulus_id": ("presentation", data.stimuli.ids)},
    )
    target = average_repetitions(data.assembly)
    score = metric(name, catalog=fetched, splits={"stratify": "session"})(
        source, target
    )
    known = expected[features][name]
    assert score.value == pytest.approx(known["value"], abs=TOLERANCE[name])
    assert score.error == pytest.approx(known["error"], abs=TOLERANCE[name])
    found = score.samples.mean("split").values
    np.testing.assert_allclose(found, _per_neuroid(known), atol=TOLERANCE[name])


@pytest.mark.parametrize("name", ["pls", "ridge"])
def test_v4_benchmark_scores_pixels_from_the_images(fetched, v4, name):
    session = Session(fetched)
    session.valid.update(session.catalog.ids("datasets"))
    result = evaluate(
        session, fetched.benchmark(f"Cowley2023.210325.V4-{name}"), "pixels16"
    )
    _, expected = v4
    known, top = (
        expected["pixels16"][name]["value"],
        expected["ceiling_all_ragged_reps"]["value"],
    )
    assert result.headline.raw == pytest.approx(known, abs=TOLERANCE[name])
    # The peer's formula is for equal halves; of odd numbers of repetitions the corrected ceiling is a little higher.
    assert top < result.headline.ceiling.value < top + 0.02
    assert result.headline.value == pytest.approx(
        known**2 / result.headline.ceiling.value, abs=TOLERANCE[name]
    )
    # With partial least squares, the data's own score is .907 and its interval holds the bound of .8: undecided.
    assert all(control.verdict != "failed" for control in result.controls.values())
    assert result.controls["permuted"].verdict == "passed"


@pytest.mark.parametrize(
    ("comparison", "key"), [("spearman", "spearman"), ("pearson", "corr")]
)
def test_human_it_against_monkey_it_and_its_noise_ceiling(
    fetched, objects, comparison, key
):
    data, expected = objects
    people = select(data.assembly, {"species": "human"})
    monkey = select(data.assembly, {"species": "monkey"}).isel(subject=0, drop=True)
    known = expected["models_vs_hIT4"][key]
    score = metric("rdm", catalog=fetched, comparison=comparison)(monkey, people)
    assert score.value == pytest.approx(known["mean"]["mIT_674neurons"], abs=1e-9)
    np.testing.assert_allclose(
        score.samples.values, known["per_data_rdm"]["mIT_674neurons"], atol=1e-9
    )
    for id, bound in (("rsa_ceiling", "upper"), ("rsa_ceiling_lower", "lower")):
        top = ceiling(id, catalog=fetched, comparison=comparison, pool="matched")(
            people
        )
        assert top.value == pytest.approx(known[f"noise_ceiling_{bound}"], abs=1e-9)


@pytest.mark.parametrize(("model", "key"), RDMS.items())
def test_models_that_are_rdms_score_as_the_peers_do(fetched, objects, model, key):
    _, expected = objects
    session = Session(fetched)
    session.valid.update(session.catalog.ids("datasets"))
    benchmark = fetched.benchmark("Kriegeskorte2008.IT-rdm")
    raw = evaluate(session, benchmark, f"kriegeskorte92.{model}").headline.raw
    assert raw == pytest.approx(
        expected["models_vs_hIT4"]["spearman"]["mean"][key], abs=1e-9
    )


def test_fmri_of_objects_is_decoded_in_the_run_held_out(fetched):
    """The nearest class mean by correlation, implemented here, is far above chance; the discriminant is above that."""
    patterns = load_dataset(fetched, "Haxby2001.slice").assembly
    values, labels, runs = (
        patterns.values[:, :, 0],
        patterns["label"].values,
        patterns["run"].values,
    )
    kinds = np.unique(labels)
    right = []
    for run in np.unique(runs):
        means = [
            values[(runs != run) & (labels == kind)].mean(axis=0) for kind in kinds
        ]
        tested = values[runs == run]
        nearest = [
            kinds[np.argmax([np.corrcoef(one, mean)[0, 1] for mean in means])]
            for one in tested
        ]
        right += list(np.array(nearest) == labels[runs == run])
    assert 0.3 < np.mean(right) < 0.6
    session = Session(fetched)
    session.valid.update(session.catalog.ids("datasets"))
    result = evaluate(
        session, fetched.benchmark("Haxby2001.slice-category"), "shrinkage_lda"
    )
    assert result.headline.raw > np.mean(right) + 0.2
    assert all(control.verdict == "passed" for control in result.controls.values())
