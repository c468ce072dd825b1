"""An own network, as a module, a class or a file, is trained and scored on benchmarks without a spec."""

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.data.gate.validate import validate
from neuroledger.errors import RequestError
from neuroledger.families.decoding.own_decoders import loaded, own_decoder
from neuroledger.families.decoding.protocols.decoder import Signature
from tests.families.decoding.recorded_repository import ONCE, with_recordings

torch = pytest.importorskip("torch")
FILE = """
from torch import nn
import sizes


class Small(nn.Module):
    def __init__(self, n_chans, n_times, n_outputs, width=sizes.WIDTH):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(n_chans * n_times, width), nn.Linear(width, n_outputs)
        )

    def forward(self, x):
        return self.layers(x)
"""
SIGNATURE = Signature("classification", 4, 10, 2, 10.0, ("A", "B", "C", "D"), 0)


@pytest.fixture
def file(tmp_path):
    (tmp_path / "sizes.py").write_text("WIDTH = 3\n")
    (tmp_path / "own.py").write_text(FILE)
    return f"{tmp_path / 'own.py'}:Small"


def test_a_network_in_a_file_is_scored_on_a_benchmark(lab, file, monkeypatch):
    recorded = with_recordings(lab)
    validate(recorded.open(), "press")
    monkeypatch.chdir(recorded.root)
    needs = {"rate": 200, "unit": "uV", "one": 30, "scale": "none"}
    (record,) = nl.evaluate_decoder(
        file, benchmarks=["press-side"], recipe=ONCE, needs=needs, id="mine"
    )
    assert (record.model, record.benchmark) == ("mine", "press-side")
    assert record.status == "scored", record.error
    assert record.inputs.preparation["preprocessing"]["resample"] == 200.0
    assert "prepared as the model needs: {rate: 200.0, unit: uV" in str(record.score)
    assert not list((recorded.root / "results").rglob("*mine*"))


def test_a_class_is_built_for_the_windows_and_a_module_starts_as_it_is(file):
    decoder = own_decoder(file, recipe=ONCE, parameters={"width": 5})
    assert decoder.id == "Small"
    network = decoder.make(SIGNATURE).make(SIGNATURE)
    assert [tuple(part.shape) for part in network.parameters()][0] == (5, 40)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(40, 2))
    before = module[1].weight.detach().clone()
    estimator = own_decoder(module, recipe=ONCE, adapt="frozen").make(SIGNATURE)
    x = np.random.default_rng(0).standard_normal((8, 4, 10))
    estimator.fit(x, np.tile(["a", "b"], 4))
    assert torch.equal(module[1].weight, before)
    assert not torch.equal(estimator.network_[1].weight, before)


def test_an_import_path_names_a_module_and_something_in_it():
    assert loaded("torch.nn:Linear") is torch.nn.Linear


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("Small", "names no network: write FILE.py:NAME"),
        ("nowhere.py:Small", "nowhere.py cannot be imported"),
        ("torch.nn:Lineer", "torch.nn has no 'Lineer'"),
    ],
)
def test_what_is_not_there_is_said(place, words):
    with pytest.raises(RequestError, match=words):
        own_decoder(place)


def test_invalid_arguments_are_refused(file):
    with pytest.raises(RequestError, match="adapt"):
        own_decoder(file, adapt="half")
    with pytest.raises(RequestError, match=r"needs\.hertz: there is no such field"):
        own_decoder(file, needs={"hertz": 200})
    with pytest.raises(RequestError, match="neither a torch module nor"):
        own_decoder(3)
    with pytest.raises(RequestError, match="is built already"):
        own_decoder(torch.nn.Flatten(), parameters={"width": 3})
