"""Channels and windows reach a network as declared: by name, by position, as differences, learned, scaled and padded."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.channel_adapters import (
    ChannelAdapter,
    adapt_channels,
)
from neuroledger.families.decoding.models.position_table import (
    FILE,
    FOLDER,
    channel_positions,
    table_of_positions,
)
from neuroledger.families.decoding.models.window_inputs import Inputs, with_inputs
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import Laptop
from neuroledger.families.signals.model_needs import Needs

torch = pytest.importorskip("torch")
OWN = ("Fp1", "C3", "Cz", "C4", "O1", "O2")
PLAIN = Laptop(scale="none", clamp=0)


def montage(names):
    import mne

    info = mne.create_info(list(names), 1.0, "eeg")
    info.set_montage("standard_1005")
    return tuple(tuple(map(float, channel["loc"][:3])) for channel in info["chs"])


@pytest.fixture(scope="module")
def signature():
    return Signature(
        "classification", 6, 50, 2, 100.0, OWN, 0, positions=montage(OWN), units="mV"
    )


def adapted(signature, **fields):
    adapter = TypeAdapter(ChannelAdapter).validate_python(fields)
    return adapt_channels(adapter, signature, "m")


def test_channels_are_picked_and_reordered_by_name(signature):
    found = adapted(signature, name="by_name", channels=["CZ", "fp1"])
    np.testing.assert_array_equal(found.matrix, np.eye(6)[[2, 0]])
    assert found.signature.channel_ids == ("CZ", "fp1")
    assert found.signature.positions == (signature.positions[2], signature.positions[0])
    with pytest.raises(ModelError, match="no channels Fz; they have Fp1, C3"):
        adapted(signature, name="by_name", channels=["Fz", "Cz"])
    zero = adapted(signature, name="by_name", channels=["Fz", "Cz"], missing="zero")
    np.testing.assert_array_equal(zero.matrix, [np.zeros(6), np.eye(6)[2]])
    assert zero.missing == ("Fz",)
    assert np.isnan(zero.signature.positions[0]).all()


def test_differences_of_pairs(signature):
    found = adapted(signature, name="bipolar", channels=["C3-O1", "C4-O2", "Cz"])
    expected = np.eye(6)[[1, 3, 2]] - [np.eye(6)[4], np.eye(6)[5], np.zeros(6)]
    np.testing.assert_array_equal(found.matrix, expected)
    assert found.signature.positions is None
    with pytest.raises(ModelError, match="no channels F7-T7"):
        adapted(signature, name="bipolar", channels=["F7-T7", "C3-O1"])


def test_missing_channels_are_interpolated_as_mne_does(signature):
    import mne

    names = ["C4", "Pz", "Cz", "Fz"]
    found = adapted(signature, name="by_position", channels=names)
    np.testing.assert_array_equal(found.matrix[[0, 2]], np.eye(6)[[3, 2]])
    values = np.random.default_rng(0).standard_normal((6, 40))
    info = mne.create_info([*OWN, "Pz", "Fz"], 1.0, "eeg")
    info.set_montage("standard_1005")
    raw = mne.io.RawArray(np.vstack([values, np.zeros((2, 40))]), info, verbose="ERROR")
    raw.info["bads"] = ["Pz", "Fz"]
    raw.interpolate_bads(origin=(0.0, 0.0, 0.04), verbose="ERROR")
    expected = raw.get_data(picks=["C4", "Pz", "Cz", "Fz"])
    np.testing.assert_allclose(found.matrix @ values, expected, atol=1e-12)
    stated = adapted(
        signature,
        name="by_position",
        channels=["X", "Cz"],
        positions={"X": montage(["Pz"])[0], "Cz": montage(["Cz"])[0]},
    )
    one = adapted(signature, name="by_position", channels=["Pz"])
    np.testing.assert_allclose(stated.matrix[0], one.matrix[0], atol=1e-12)


def test_positions_must_be_known(signature):
    bare = signature._replace(positions=None)
    with pytest.raises(ModelError, match=r"0 channels have a position, .* Pz"):
        adapted(bare, name="by_position", channels=["Pz"])
    with pytest.raises(ModelError, match="no position is known of Q7"):
        adapted(signature, name="by_position", channels=["Q7"])
    with pytest.raises(ModelError, match="no montage 'nowhere'"):
        adapted(signature, name="by_position", channels=["Pz"], positions="nowhere")


def seen(signature, windows, needs=None, inputs=None, recipe=PLAIN):
    """What a network sees of windows, and the signature that it is built for."""
    built = []

    def make(wanted):
        built.append(wanted)
        return torch.nn.Identity()

    declared = None if inputs is None else Inputs.model_validate(inputs)
    module = with_inputs(make, signature, needs, declared, recipe, "m")
    return module(torch.from_numpy(windows)).detach().numpy(), built[0], module


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((5, 6, 50)).astype(np.float32)


def test_a_network_without_declarations_is_not_wrapped(signature):
    network = torch.nn.Identity()
    assert with_inputs(lambda _: network, signature, None, None, PLAIN, "m") is network


def test_amplitudes_are_in_the_unit_of_the_network(signature, x):
    found, _, _ = seen(signature, x, Needs(unit="uV", one=100.0))
    np.testing.assert_allclose(found, x * 10.0, rtol=1e-6)


def test_needed_channels_are_picked_by_name(signature, x):
    found, wanted, _ = seen(signature, x, Needs(channels=("O2", "Fp1")))
    np.testing.assert_array_equal(found, x[:, [5, 0]])
    assert (wanted.channels, wanted.channel_ids) == (2, ("O2", "Fp1"))
    renamed, _, _ = seen(
        signature, x, Needs(channels=("POz",)), {"rename": {"O1": "POz"}}
    )
    np.testing.assert_array_equal(renamed, x[:, [4]])
    other = {"channels": {"name": "by_name", "channels": ["Cz"]}}
    with pytest.raises(ModelError, match="gives channels Cz, but it needs C3"):
        seen(signature, x, Needs(channels=("C3",)), other)


def test_windows_are_padded_only_where_this_is_declared(signature, x):
    with pytest.raises(ModelError, match="50 samples are not a multiple of 40"):
        seen(signature, x, Needs(window_multiple=40))
    needs = Needs(window_multiple=40)
    found, wanted, _ = seen(signature, x, needs, {"pad": "zeros"})
    assert (wanted.samples, found.shape) == (80, (5, 6, 80))
    np.testing.assert_array_equal(found[..., :50], x)
    assert not found[..., 50:].any()
    found, _, _ = seen(signature, x, needs, {"pad": "edge"})
    np.testing.assert_array_equal(found[..., 50:], np.repeat(x[..., -1:], 30, axis=2))
    exact, _, _ = seen(signature, x, Needs(window_multiple=25))
    np.testing.assert_array_equal(exact, x)


def test_each_window_is_scaled_as_declared(signature, x):
    found, _, _ = seen(signature, x, inputs={"scale": "standard"})
    spread = x.std(axis=2, keepdims=True)
    np.testing.assert_allclose(
        found, (x - x.mean(2, keepdims=True)) / spread, atol=1e-5
    )
    found, _, _ = seen(signature, x, inputs={"scale": "quantile"})
    limit = np.quantile(np.abs(x), 0.95, axis=2, keepdims=True)
    np.testing.assert_allclose(found, x / limit, rtol=1e-5)


def test_a_window_is_scaled_to_its_range_which_a_channel_states(signature, x):
    declared = {"scale": "range", "amplitude": 10.0}
    found, wanted, _ = seen(signature, x, inputs=declared)
    assert (wanted.channels, wanted.channel_ids[-1]) == (7, "SCALE")
    low, high = (f(x, axis=(1, 2), keepdims=True) for f in (np.min, np.max))
    expected = 2 * (x - low) / (high - low) - 1
    np.testing.assert_allclose(found[:, :6], expected, atol=1e-6)
    share = np.broadcast_to(2 * (high - low) / 10.0 - 1, (5, 1, 50))
    np.testing.assert_allclose(found[:, 6:], share, atol=1e-6)


def test_a_recipe_may_not_scale_declared_amplitudes_again(signature, x):
    with pytest.raises(ModelError, match="would scale them again"):
        seen(signature, x, Needs(unit="uV"), recipe=Laptop())


def test_zero_channels_are_noted(signature, x):
    adapter = {"name": "by_name", "channels": ["Fz", "Cz"], "missing": "zero"}
    found, _, module = seen(signature, x, inputs={"channels": adapter})
    assert not found[:, 0].any()
    unused = "channels are not used: Fp1, C3, C4, O1, O2"
    assert module.notes == ("channels are zero: Fz", unused)


def test_a_learned_adapter_starts_as_declared(signature, x):
    adapter = {"name": "learned", "channels": ["O1", "Fz"], "start": "names"}
    found, wanted, module = seen(signature, x, inputs={"channels": adapter})
    np.testing.assert_allclose(found[:, 0], x[:, 4], atol=1e-6)
    assert not found[:, 1].any()
    assert wanted.channel_ids == ("O1", "Fz")
    assert sum(part.numel() for part in module.parameters()) == 2 * 6 + 2
    torch.manual_seed(0)
    base = torch.nn.Conv1d(6, 1, 1).weight.detach().numpy()[0, :, 0]
    torch.manual_seed(0)
    pair = {"name": "learned", "channels": ["C3-C4"], "start": "pairs"}
    _, _, module = seen(signature, x, inputs={"channels": pair})
    start = module.adapter.weight.detach().numpy()[0, :, 0]
    np.testing.assert_allclose(start - base, np.eye(6)[1] - np.eye(6)[3], atol=1e-6)
    limited = {"name": "learned", "channels": 4, "largest_norm": 1.0}
    _, wanted, module = seen(signature, x, inputs={"channels": limited})
    assert (wanted.channels, module.adapter.largest_norm) == (4, 1.0)


def test_a_table_of_positions_is_that_of_the_data_and_of_the_montage():
    place = (0.01, 0.02, 0.09)
    unknown = (np.nan, np.nan, np.nan)
    two = Signature("classification", 2, 8, 2, 8.0, ("E1", "CZ"), 0)
    two = two._replace(positions=(place, unknown))
    before = os.environ.get(FOLDER)
    with table_of_positions(two, "m"):
        table = json.loads(Path(os.environ[FOLDER], FILE).read_text())
    assert os.environ.get(FOLDER) == before
    assert table["E1"] == list(place)
    x, _, z = table["CZ"]
    assert abs(x) < 0.005 and z > 0.08
    with pytest.raises(ModelError, match="no position is known of E1"):
        channel_positions(two._replace(positions=None), "m")
