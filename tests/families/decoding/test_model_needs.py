"""A model states how its windows must be prepared: the data set is read in this way, in the same rows, or refused."""

from dataclasses import replace

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.data.gate.validate import validate
from neuroledger.data.integrity import verified_files
from neuroledger.data.load import load_dataset, load_prepared, read_dataset
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import needs_of, parameters_of, plan
from neuroledger.engine.session import Request, Session
from neuroledger.errors import DataError, ModelError, RequestError, SpecError
from neuroledger.families.decoding.models.network_decoders import (
    network_to_decoder,
    torch_decoder,
)
from neuroledger.families.decoding.training.decoding_recipes import Laptop
from neuroledger.families.decoding.training.signal_training import TrainedNetwork
from neuroledger.families.signals.model_needs import FilterNeed, Needs
from neuroledger.families.signals.recordings import window_store
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    RecordingScale,
)
from neuroledger.spec.base import sha256_of
from neuroledger.store.store import open_store
from tests.families.decoding.recorded_repository import (
    LABRAM,
    ONCE,
    dataset,
    with_recordings,
)


@pytest.fixture
def recorded(lab):
    return with_recordings(lab)


def jobs_of(lab, *models):
    return plan(lab.open(), models=models, benchmarks=["press-side"], request=Request())


def test_the_data_are_read_again_as_the_model_needs_in_the_same_rows(recorded):
    catalog = recorded.open()
    own = load_dataset(catalog, "press")
    assert own.assembly.attrs == {"sampling_rate": 100.0, "units": "robust"}
    needs = needs_of(catalog, "needy")
    assert needs == Needs.model_validate(LABRAM)
    prepared = load_prepared(catalog, own, needs)
    assert prepared.assembly.attrs == {"sampling_rate": 200.0, "units": "uV"}
    assert prepared.assembly.sizes == {"presentation": 44, "channel": 4, "sample": 200}
    for name in ("label", "subject", "onset", "recording", "recording_sha256"):
        np.testing.assert_array_equal(
            prepared.assembly[name].values, own.assembly[name].values
        )
    assert prepared.content != own.content
    # The same windows as a data set gives that declares all of this itself.
    declared = {**LABRAM["filter"], "resample": 200.0, "units": "uV"}
    dataset(recorded, preprocessing=declared)
    same = load_dataset(recorded.open(), "press")
    assert same.content == prepared.content
    np.testing.assert_array_equal(same.assembly.values, prepared.assembly.values)


def test_the_inputs_of_a_record_state_the_preparation_and_others_stay_as_they_were(
    recorded,
):
    (plain,) = jobs_of(recorded, "plain").jobs
    (needy,) = jobs_of(recorded, "needy").jobs
    assert "preparation" not in plain.inputs.model_dump(mode="json")
    steps = needy.inputs.preparation["preprocessing"]
    assert (steps["resample"], steps["units"], steps["scale"]) == (200.0, "uV", None)
    assert (steps["high_pass"], steps["notch"]) == (0.5, [50.0])
    assert needy.inputs.benchmark == plain.inputs.benchmark
    assert needy.inputs.dataset == plain.inputs.dataset
    without = needy.inputs.model_dump(mode="json")
    del without["preparation"]
    assert sha256_of(without) != needy.id


def test_a_score_is_computed_on_the_prepared_windows_and_says_so(recorded, monkeypatch):
    catalog = recorded.open()
    session = Session(catalog, Request())
    benchmark = catalog.benchmark("press-side")
    shapes = []
    fit = TrainedNetwork._train
    monkeypatch.setattr(
        TrainedNetwork,
        "_train",
        lambda self, x, *rest: (
            shapes.append((x.shape[1:], float(np.std(x)))),
            fit(self, x, *rest),
        )[1],
    )
    validate(catalog, "press")
    plain = evaluate(session, benchmark, "plain")
    needy = evaluate(session, benchmark, "needy")
    assert [shape for shape, _ in shapes] == [(4, 100)] * 2 + [(4, 200)] * 2
    assert all(deviation > 15 for shape, deviation in shapes if shape == (4, 200))
    (note,) = [note for note in needy.headline.notes if "prepared as" in note]
    assert "rate: 200.0, unit: uV, one: 100.0, scale: none" in note
    contents = {
        score.headline.facts["prepared_sha256"].value for score in (plain, needy)
    }
    assert len(contents) == 2
    rows = [score.measured.source["row"].values.tolist() for score in (plain, needy)]
    assert rows[0] == rows[1]
    # Each form is read once in a session.
    assert len(session.prepared) == 1
    evaluate(session, benchmark, "needy")
    assert len(session.prepared) == 1


def test_each_form_is_stored_once_whichever_model_needs_it(recorded, monkeypatch):
    monkeypatch.setattr(window_store, "TINY", 0)
    catalog = recorded.open()
    own = load_dataset(catalog, "press")
    needs = Needs.model_validate(LABRAM)
    for same in (needs, needs, needs.model_copy(update={"one": 1.0})):
        load_prepared(catalog, own, same)
    assert len(list(open_store(catalog.root).folder.rglob("values.bin"))) == 2


def test_what_a_data_set_cannot_give_is_refused_before_anything_is_read(recorded):
    dataset(recorded, epoched=True, preprocessing={})
    found = jobs_of(recorded, "needy")
    assert not found.jobs
    assert found.incompatible == {
        ("needy", "press-side"): "windows prepared as it needs"
    }
    session = Session(recorded.open(), Request())
    needs = needs_of(session.catalog, "needy")
    files = verified_files(session.catalog, "datasets", "press")
    with pytest.raises(RequestError, match=r"'press' cannot be .* contain epochs"):
        read_dataset(session.catalog, "press", files, needs)


def test_recordings_with_fewer_samples_than_the_model_needs_are_refused(recorded):
    catalog = recorded.open()
    validate(catalog, "press")
    session = Session(catalog, Request())
    decoder = torch_decoder(
        id="fast",
        path="torch.nn.Flatten",
        recipe=Laptop(**{**ONCE, "clamp": 0.0}),
        needs=Needs(rate=500),
    )
    words = "s1_raw.fif was recorded with 250 samples per second, and 500 are needed"
    with pytest.raises(DataError, match=words):
        evaluate(session, catalog.benchmark("press-side"), decoder)


def test_other_rows_are_refused(recorded, monkeypatch):
    catalog = recorded.open()
    own = load_dataset(catalog, "press")
    fewer = own.assembly.isel(presentation=slice(0, 40))
    with pytest.raises(DataError, match="44 presentations instead of 40"):
        load_prepared(catalog, replace(own, assembly=fewer), Needs(rate=200))
    moved = own.assembly.assign_coords(onset=own.assembly["onset"] + 0.1)
    with pytest.raises(DataError, match="'onset' of its presentations differs"):
        load_prepared(catalog, replace(own, assembly=moved), Needs(rate=200))


def test_what_is_not_stated_stays_and_none_removes():
    own = Preprocessing(
        resample=120, high_pass=0.1, low_pass=50, notch=(60,), scale="robust",
        clamp=20, baseline=(-0.1, 0.0),
    )  # fmt: skip
    assert Needs().applied_to(own) == own
    bare = Needs(rate=256, filter="none", scale="none", clamp="none", baseline="none")
    assert bare.applied_to(own) == Preprocessing(resample=256, upsample=False)
    band = Needs(filter=FilterNeed(low_pass=75)).applied_to(own)
    assert (band.high_pass, band.low_pass, band.notch) == (None, 75, ())
    assert (band.scale, band.baseline) == ("robust", (-0.1, 0.0))


def test_needs_that_contradict_themselves_are_refused(recorded):
    network = {"name": "network_decoder", "architecture": "eegnet"}
    wrong = {**network, "needs": {"unit": "uV", "scale": "robust"}}
    recorded.spec("models", "odd", builder=wrong)
    with pytest.raises(SpecError, match="scaled windows have no `unit`"):
        parameters_of(recorded.open().entry("models", "odd"), "builder")
    with pytest.raises(ValueError, match="`one` is an amplitude"):
        Needs(one=100)


def flat_layer():
    import torch

    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 2))


def test_windows_that_are_cut_already_must_be_as_needed():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 3, 64))
    y = np.tile(["a", "b"], 20)
    recipe = Laptop(**ONCE)
    decoder = network_to_decoder(
        "m", lambda _: flat_layer(), recipe, True, "cpu", False, needs=Needs(rate=128)
    )
    with pytest.raises(ModelError, match="64 samples per second instead of 128"):
        nl.decode(decoder, x, y, sampling_rate=64, seeds=(0,), splits=2)
    score = nl.decode(
        replace(decoder, needs=Needs(rate=64)), x, y, sampling_rate=64, seeds=(0,), splits=2,
        metric="balanced_accuracy",
    )  # fmt: skip
    assert any("filters and baseline were not checked" in note for note in score.notes)


def test_a_needed_scale_keeps_what_the_data_set_scales():
    own = Preprocessing(scale={"of": "recording", "before": "baseline"})
    standard = Needs(scale="standard").applied_to(own).scale
    assert standard == RecordingScale(of="recording", how="standard")
    assert Needs(scale="none").applied_to(own).scale is None
    assert Needs(scale="robust").applied_to(Preprocessing()).scale == "robust"
