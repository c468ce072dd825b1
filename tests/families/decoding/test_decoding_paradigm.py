"""Tests of the paradigm `decoding`: folds, seeds, controls and gates."""

import numpy as np
import pytest
import xarray as xr
from pydantic import TypeAdapter

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.families.decoding.metrics.decoding import decoding as score
from neuroledger.families.decoding.models.classical_decoders import (
    dummy_decoder,
    shrinkage_lda,
    sklearn_decoder,
)
from neuroledger.families.decoding.paradigms.decoding import (
    _training_truth,
    decoding,
)
from neuroledger.families.decoding.protocols.decoder import Decoder
from neuroledger.families.decoding.protocols.splits import Fold, SplitRule
from tests.families.decoding.decoding_cases import windows


def rule(**fields):
    return TypeAdapter(SplitRule).validate_python(fields)


def measured(model, assembly, seed=0, **options):
    options = {"splits": rule(name="cross_subject")} | options
    return decoding(
        model,
        Dataset(None, assembly, "test"),
        rng=np.random.default_rng(seed),
        **options,
    )


def accuracy(measurement):
    return float(score(measurement.source, measurement.target).values.mean())


def test_every_window_is_predicted_once_by_who_never_saw_it():
    assembly = windows(strength=3.0)
    result = measured(shrinkage_lda(id="lda", every=4), assembly)
    assert sorted(result.source["row"].values.tolist()) == list(range(40))
    assert (
        result.target.values == assembly["label"].values[result.source["row"].values]
    ).all()
    assert accuracy(result) > 0.95
    assert "splits cross_subject, 4 folds, sha256" in result.notes[0]


def test_noise_and_permuted_labels_are_at_chance():
    assembly = windows(subjects=6, trials=40)
    assert abs(accuracy(measured(shrinkage_lda(id="lda"), assembly)) - 0.5) < 0.12
    strong = windows(subjects=6, trials=40, strength=5.0)
    shuffled = measured(shrinkage_lda(id="shuffled", shuffles_labels=True), strong)
    assert abs(accuracy(shuffled) - 0.5) < 0.2
    assert "control: the training labels were permuted" in shuffled.notes


def test_a_permuted_fact_about_people_does_not_survive_in_one_validated_person():
    """Regressions are fitted on the validation part too, where a permutation alone would leave the age of one person."""
    person = np.repeat(np.arange(4), 20)
    rows = np.arange(80)
    fold = Fold(rows[20:60], rows[60:], rows[:20])
    control = shrinkage_lda(id="shuffled", shuffles_labels=True)
    rng = np.random.default_rng(0)
    age = 10.0 + person
    taught = _training_truth(control, age, person.astype(str), fold, rng)
    assert set(taught[60:]) == {11.0, 12.0, 13.0}
    assert sorted(taught) == sorted(age)
    # What varies within people is permuted within each part, whose shares of it stay equal.
    words = np.tile(["a", "b"], 40)
    taught = _training_truth(control, words, person.astype(str), fold, rng)
    assert (taught[60:] == "a").sum() == 10


def test_a_planted_signal_is_found_in_noise():
    result = measured(shrinkage_lda(id="planted", plants=3.0), windows())
    assert accuracy(result) > 0.95
    assert any("planted" in note for note in result.notes)


def test_a_planted_number_is_found_in_noise():
    ridge = sklearn_decoder(
        id="ridge",
        path="sklearn.linear_model.Ridge",
        objective="regression",
        plants=3.0,
        parameters={"alpha": 10.0},
    )
    result = measured(
        ridge, windows(subjects=6), target="number", objective="regression"
    )
    r = score(result.source, result.target, measure="pearson_r", pool=True)
    assert float(r.values.mean()) > 0.8


def seeing(assembly_rows):
    """An estimator that remembers which windows it was shown."""

    class Seeing:
        def fit(self, x, y):
            assembly_rows.append(("fit", x[:, 0, 0].tolist(), list(y)))

        def predict(self, x):
            assembly_rows.append(("predict", x[:, 0, 0].tolist(), None))
            return np.full(len(x), "a")

    return Decoder(
        id="seeing", make=lambda signature: Seeing(), objectives=("classification",)
    )


def test_training_and_test_windows_are_those_of_the_folds():
    assembly, seen = windows(), []
    measured(seeing(seen), assembly)
    first = np.float32(assembly.values[:, 0, 0])
    for i, subject in enumerate(["S0", "S1", "S2", "S3"]):
        own = assembly["subject"].values == subject
        fitted, tested = seen[2 * i : 2 * i + 2]
        np.testing.assert_array_equal(np.float32(fitted[1]), first[~own])
        np.testing.assert_array_equal(np.float32(tested[1]), first[own])
        assert (fitted[0], tested[0]) == ("fit", "predict")


def test_validation_windows_are_learnt_by_who_does_not_watch_them():
    assembly, seen = windows(), []
    splits = rule(name="cross_subject", validation={"fraction": 0.3, "by": "subject"})
    measured(seeing(seen), assembly, splits=splits)
    assert len(seen[0][1]) == 30


def test_seeds_are_handed_on_and_only_where_chance_plays():
    seeds = []

    def make(signature):
        seeds.append(signature.seed)
        return shrinkage_lda(id="lda").make(signature)

    assembly = windows(strength=2.0)
    stochastic = Decoder(id="seeded", make=make, stochastic=True)
    result = measured(stochastic, assembly, seeds=(1, 2))
    assert seeds == [1] * 4 + [2] * 4
    assert result.source.sizes["presentation"] == 80
    result = measured(Decoder(id="sure", make=make), assembly, seeds=(1, 2))
    assert result.source.sizes["presentation"] == 40
    with pytest.raises(RequestError, match="without repetitions"):
        measured(stochastic, assembly, seeds=(1, 1))


def test_the_partition_can_be_pinned():
    assembly = windows()
    digest = "0" * 64
    with pytest.raises(DataError, match="pinned is 000"):
        measured(
            dummy_decoder(id="d"),
            assembly,
            splits=rule(name="cross_subject", sha256=digest),
        )


def test_a_leak_stops_the_measurement_unless_it_is_waived_openly():
    assembly = windows(subjects=1, trials=40, gap=0.25)
    with pytest.raises(DataError, match="overlap in time"):
        measured(dummy_decoder(id="d"), assembly, splits=rule(name="random", folds=4))
    result = measured(
        dummy_decoder(id="d"),
        assembly,
        splits=rule(name="random", folds=4, waive=["overlap"]),
    )
    assert "gate waived: overlap" in result.notes


def test_the_same_person_in_two_data_sets_is_found_by_content():
    assembly = windows()
    twin = assembly.copy()
    twin.values[30:] = twin.values[:10]
    with pytest.raises(DataError, match="samples of a trained one"):
        measured(dummy_decoder(id="d"), twin)


def test_unsupported_objectives_and_missing_targets_are_refused():
    with pytest.raises(ModelError, match="does not support regression"):
        measured(
            shrinkage_lda(id="lda"), windows(), target="number", objective="regression"
        )
    with pytest.raises(ModelError, match="is not a decoder"):
        measured(object(), windows())
    with pytest.raises(DataError, match="no coordinate 'mood'"):
        measured(dummy_decoder(id="d"), windows(), target="mood")
    with pytest.raises(DataError, match="no embeddings"):
        measured(dummy_decoder(id="d"), windows(), target="clip", objective="retrieval")


def test_retrieval_finds_embeddings_of_the_extra_assembly():
    assembly = windows().assign_coords(
        stimulus_id=("presentation", np.tile([f"s{i}" for i in range(10)], 4))
    )
    rng = np.random.default_rng(0)
    embeddings = xr.DataArray(
        rng.standard_normal((10, 3)),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"s{i}" for i in range(10)]),
            "neuroid_id": ("neuroid", list("xyz")),
        },
    )
    data = Dataset(None, assembly, "test", extras={"clip": embeddings})
    result = decoding(
        dummy_decoder(id="d"),
        data,
        rng=rng,
        splits=rule(name="cross_subject"),
        target="clip",
        objective="retrieval",
    )
    top = score(result.source, result.target, measure="retrieval", k=5)
    assert float(top.values.mean()) == pytest.approx(0.5)


@pytest.mark.parametrize("objective", ["multilabel", "sequence"])
def test_other_objectives_have_a_dummy(objective):
    assembly = windows().assign_coords(
        spike=("presentation", np.tile([0, 1], 20)),
        blink=("presentation", np.tile([1, 1, 0, 1], 10)),
        text=("presentation", np.tile(["aab", "ab"], 20)),
    )
    target = ("spike", "blink") if objective == "multilabel" else "text"
    result = measured(
        dummy_decoder(id="d"), assembly, target=target, objective=objective
    )
    name = "macro_f1" if objective == "multilabel" else "word_error_rate"
    options = {} if objective == "multilabel" else {"symbols": "character"}
    value = score(result.source, result.target, measure=name, **options)
    assert 0 < float(value.values.mean()) <= 1


def test_several_numbers_are_decoded_at_once():
    assembly = windows(subjects=6)
    assembly = assembly.assign_coords(
        other=("presentation", -assembly["number"].values)
    )
    ridge = sklearn_decoder(
        id="ridge",
        path="sklearn.linear_model.Ridge",
        objective="regression",
        plants=3.0,
        parameters={"alpha": 10.0},
    )
    result = measured(
        ridge, assembly, target=("number", "other"), objective="regression"
    )
    assert result.source.sizes["neuroid"] == 2
    error = score(result.source, result.target, measure="mae", pool=True)
    plain = np.abs(result.source.values - result.target.values).mean()
    assert float(error.values.mean()) == pytest.approx(plain)


def test_numbers_beside_the_windows_are_found_by_their_stimulus_and_standardised_by_the_training_part():
    assembly = windows(subjects=4, trials=20)
    names = [f"window{row}" for row in range(assembly.sizes["presentation"])]
    assembly = assembly.assign_coords(stimulus_id=("presentation", names))
    rng = np.random.default_rng(0)
    stimuli = assembly["stimulus_id"].values
    paths = xr.DataArray(
        10 + 3 * rng.standard_normal((len(stimuli), 2, 3)),
        dims=("stimulus", "joint", "time"),
        coords={"stimulus_id": ("stimulus", stimuli[::-1])},
    )
    data = Dataset(None, assembly, "test", extras={"paths": paths})
    ridge = sklearn_decoder(
        id="r", path="sklearn.linear_model.Ridge", objective=("regression", "retrieval")
    )
    options = {
        "target": "paths",
        "objective": "regression",
        "rng": rng,
        "splits": rule(name="cross_subject"),
    }
    plain = decoding(ridge, data, **options)
    assert plain.target.shape == (len(stimuli), 6)
    measurement = dict(
        zip(plain.target["stimulus_id"].values, plain.target.values, strict=True)
    )
    np.testing.assert_array_equal(measurement[stimuli[0]], paths.values[-1].ravel())
    scaled = decoding(ridge, data, standardise_targets=True, **options)
    first = np.isin(scaled.source["split"].values, [0])
    train = ~np.isin(scaled.source["row"].values, scaled.source["row"].values[first])
    values = plain.target.values
    expected = (values[first] - values[train].mean(axis=0)) / values[train].std(axis=0)
    np.testing.assert_allclose(scaled.target.values[first], expected)
    with pytest.raises(
        RequestError, match="standardise_targets applies to numbers and embeddings"
    ):
        measured(shrinkage_lda(id="lda"), assembly, standardise_targets=True)


def test_the_recipe_of_a_benchmark_reaches_the_network():
    from neuroledger.families.decoding.models.network_decoders import network_decoder
    from neuroledger.families.decoding.training.decoding_recipes import TaskRecipe

    network = network_decoder(id="e", architecture="eegnet")
    result = measured(
        network, windows(samples=64), recipe=TaskRecipe(epochs=1), seeds=(33,)
    )
    assert any("1 to 1 epochs" in note for note in result.notes)
