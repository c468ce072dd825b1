"""braindecode itself: networks found by name, built from the windows, trained, and filled with pretrained weights."""

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import ModelError, UnavailableError
from neuroledger.families.decoding.models import network_decoders
from neuroledger.families.decoding.models.convolutional_decoders import (
    eegnet,
    shallow_fbcsp_net,
)
from neuroledger.families.decoding.models.network_decoders import braindecode_decoder
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import Laptop

# Its networks warn about paddings, its imports about names of their own.
pytestmark = [pytest.mark.braindecode, pytest.mark.filterwarnings("ignore")]

ONCE = Laptop(epochs=1)
NAMES = "Fp1 Fp2 F7 F3 Fz F4 F8 T7 C3 Cz C4 T8 P7 P3 Pz P4 P8 O1 Oz O2 FC1 FC2".split()  # noqa: SIM905
# Parameters without the last layer, for 22 channels, 256 samples and 4 classes, as published.
BACKBONES = {
    "EEGNet": 1_456,
    "ShallowFBCSPNet": 36_320,
    "Deep4Net": 146_025,
    "BDTCN": 26_974,
    "EEGConformer": 277_440,
    "ATCNet": 28_960,
    "CTNet": 150_280,
}
# Networks that are built for 22 channels and 5 s at 200 Hz without further parameters and do not need torchaudio.
FITTING = (
    "ATCNet", "AttentionBaseNet", "BDTCN", "BIOT", "CBraMod", "CTNet", "ContraWR", "DGCNN", "Deep4Net",
    "EEGConformer", "EEGITNet", "EEGInceptionERP", "EEGInceptionMI", "EEGNeX", "EEGNet", "EEGNetv4",
    "EEGTCNet", "HybridNet", "LUNA", "InterpolatedBENDR", "InterpolatedBIOT", "InterpolatedLaBraM", "Labram",
    "MSVTNet", "SCCNet", "SPARCNet", "ShallowFBCSPNet", "SignalJEPA_PreLocal", "SincShallowNet",
    "SleepStagerBlanco2020", "SleepStagerChambon2018", "SyncNet", "TCN", "TIDNet", "TSception",
)  # fmt: skip


def signature(samples=1000, rate=200.0, outputs=4):
    places = np.random.default_rng(0).normal(size=(22, 3))
    places *= 0.09 / np.linalg.norm(places, axis=1, keepdims=True)
    return Signature(
        "classification",
        22,
        samples,
        outputs,
        rate,
        tuple(NAMES),
        33,
        tuple(map(tuple, places.tolist())),
    )


def make(name, wanted=None, **options):
    decoder = braindecode_decoder(id=name, architecture=name, recipe=ONCE, **options)
    wanted = wanted or signature()
    return decoder.make(wanted).make(wanted)


@pytest.mark.parametrize(("name", "backbone"), sorted(BACKBONES.items()))
def test_networks_have_the_published_sizes(name, backbone):
    network = make(name, signature(256, 256.0)).network
    sizes = {key: value.numel() for key, value in network.named_parameters()}
    assert (
        sum(size for key, size in sizes.items() if not key.startswith("final_layer"))
        == backbone
    )


@pytest.mark.parametrize(
    ("name", "own"), [("EEGNet", eegnet), ("ShallowFBCSPNet", shallow_fbcsp_net)]
)
def test_our_own_two_have_as_many_parameters(name, own):
    theirs = sum(p.numel() for p in make(name, signature(256, 256.0)).parameters())
    assert sum(p.numel() for p in own(22, 256, 4).parameters()) == theirs


@pytest.mark.parametrize("name", FITTING)
def test_a_network_by_name_answers_once_for_each_window(name):
    import torch

    network = make(name).eval()
    with torch.inference_mode():
        assert tuple(network(torch.randn(2, 22, 1000)).shape) == (2, 4)


def test_a_network_by_name_is_trained_and_scored():
    rng = np.random.default_rng(0)
    y = np.tile(["left", "right"], 40)
    x = rng.standard_normal((80, 22, 128)) + 2.0 * (y == "left")[
        :, None, None
    ] * np.sin(np.arange(128) / 5)
    decoder = braindecode_decoder(
        id="d", architecture="EEGNet", recipe=Laptop(epochs=40)
    )
    score = nl.decode(decoder, x, y, splits=4, seeds=(33,), sampling_rate=128)
    assert score.value > 0.8
    again = nl.decode(decoder, x, y, splits=4, seeds=(33,), sampling_rate=128)
    np.testing.assert_array_equal(again.samples.values, score.samples.values)


@pytest.mark.parametrize(
    "name",
    [
        "InterpolatedBENDR",
        "InterpolatedBIOT",
        "InterpolatedLaBraM",
        "Labram",
        "BIOT",
        "CBraMod",
    ],
)
def test_a_foundation_model_starts_from_the_weights_of_a_file(tmp_path, name):
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(5)
    trained = make(name, signature(outputs=7)).network.state_dict()
    path = tmp_path / "model.safetensors"
    save_file({key: value.clone().contiguous() for key, value in trained.items()}, path)
    weights = {"model.safetensors": path}
    heads = (
        ("final_layer",)
        if any(key.startswith("final_layer") for key in trained)
        else ("head",)
    )
    with pytest.raises(ModelError, match="weights do not fit"):
        make(name, weights=weights)
    torch.manual_seed(6)
    filled = make(name, weights=weights, fresh=heads).network.state_dict()
    taken = [key for key in trained if not key.startswith(heads)]
    assert len(taken) > 10
    assert all(torch.equal(filled[key], trained[key]) for key in taken)
    assert any(
        filled[key].shape != trained[key].shape
        for key in trained
        if key.startswith(heads)
    )
    with pytest.raises(
        ModelError, match="no tensor of the module begins with 'nowhere'"
    ):
        make(name, weights=weights, fresh=("nowhere",))


def test_what_does_not_fit_is_said():
    with pytest.raises(
        ModelError, match="braindecode has no network 'EEGNett'; similar names: EEGNet"
    ):
        make("EEGNett")
    with pytest.raises(
        ModelError,
        match=r"EEGNet cannot be built for 22 channels × 1000 samples: .*wings",
    ):
        make("EEGNet", parameters={"wings": 2})
    with pytest.raises(
        ModelError, match="BENDR requires chs_info to match BENDR_CHANNEL_ORDER exactly"
    ):
        make("BENDR")
    assert make("BENDR", parameters={"chs_info": None}) is not None
    with pytest.raises(
        ModelError,
        match="SensingDynamics cannot be built for 22 channels × 1000 samples",
    ):
        make("SensingDynamics")
    with pytest.raises(ModelError, match="`weights` is empty"):
        make("EEGNet", fresh=("final_layer",))


def test_networks_that_need_torchaudio_say_so_where_it_does_not_import():
    try:
        import torchaudio  # noqa: F401
    except (ImportError, OSError):
        with pytest.raises(
            UnavailableError,
            match="install the torchaudio that was built for this torch",
        ):
            make("EEGSimpleConv")
    else:
        assert make("EEGSimpleConv") is not None


def test_the_shipped_labram_takes_the_tensors_that_are_published(tmp_path):
    import torch
    from safetensors.torch import save_file

    from neuroledger.families.decoding.models.pretrained_contract import Contract
    from neuroledger.families.decoding.models.window_inputs import Inputs
    from neuroledger.families.decoding.training.decoding_recipes import NeuralBench
    from neuroledger.families.signals.model_needs import Needs
    from neuroledger.spec.catalog import open_catalog

    told = dict(
        open_catalog().model("braindecode.Labram.pretrained").builder.parameters
    )
    contract = Contract.model_validate(told["contract"])
    inputs = Inputs.model_validate(told["inputs"])
    models = network_decoders._models("labram")
    # As published: 128 channels, 15 s, no head; 221 tensors and 5,819,936 parameters.
    torch.manual_seed(5)
    published = models.Labram(
        n_chans=128, n_times=3000, n_outputs=0, sfreq=200
    ).state_dict()
    assert len(published) == 221
    assert sum(value.numel() for value in published.values()) == 5_819_936
    assert [name.upper() for name in inputs.channels.channels] == [
        n.upper() for n in models.labram.LABRAM_CHANNEL_ORDER
    ]
    save_file(
        {key: value.clone().contiguous() for key, value in published.items()},
        tmp_path / "model.safetensors",
    )

    def labram(about):
        decoder = braindecode_decoder(
            id="labram",
            architecture="Labram",
            weights={"model.safetensors": tmp_path / "model.safetensors"},
            fresh=tuple(told["fresh"]),
            contract=contract,
            needs=Needs.model_validate(told["needs"]),
            inputs=inputs,
            recipe=NeuralBench(scale="none", clamp=0.0),
        )
        return decoder.make(about).make(about)

    microvolts = signature()._replace(units="uV")
    network = labram(microvolts).eval()
    state = network.network.network.state_dict()
    assert torch.equal(
        state["temporal_embedding"], published["temporal_embedding"][:, :6]
    )
    taken = [key for key in published if key != "temporal_embedding"]
    assert all(torch.equal(state[key], published[key]) for key in taken)
    with torch.inference_mode():
        assert tuple(network(torch.randn(2, 22, 1000) * 20).shape) == (2, 4)
    with pytest.raises(ModelError, match="1100 samples are not a multiple of 200"):
        labram(microvolts._replace(samples=1100))
    some = labram(microvolts._replace(channel_ids=("E1", *NAMES[1:])))
    assert some.notes == ("channels are not used: E1",)


NAMED = {
    "BENDR": 256.0,
    "BIOT": 200.0,
    "CBraMod": 200.0,
    "LUNA": 256.0,
    "LaBraM": 200.0,
    "REVE": 200.0,
}


@pytest.mark.parametrize(("name", "rate"), NAMED.items())
def test_a_foundation_model_by_name_is_trained_on_windows_as_it_needs_them(name, rate):
    from neuroledger.engine.resolve import model_of
    from neuroledger.engine.session import Session
    from neuroledger.spec.catalog import open_catalog

    decoder = model_of(Session(open_catalog()), f"braindecode.{name}")
    assert decoder.needs.rate == rate
    wanted = signature(round(1.5 * rate), rate, 2)._replace(units="uV")
    estimator = decoder.make(wanted)
    estimator.recipe = estimator.recipe.model_copy(update={"epochs": 1, "batch": 4})
    rng = np.random.default_rng(0)
    x = 30 * rng.standard_normal((12, 22, wanted.samples)).astype(np.float32)
    y = np.tile(["a", "b"], 6)
    estimator.fit_validated(x[:8], y[:8], x[8:], y[8:])
    assert estimator.predict_proba(x).shape == (12, 2)
    assert np.isfinite(estimator.losses_[0])


@pytest.mark.parametrize(
    "adapt",
    [
        "frozen",
        "ridge_probe",
        {"name": "linear_probe", "layer": "norm", "pool": "mean"},
        {"name": "lora", "rank": 4, "only": ("attn",)},
    ],
)
def test_a_foundation_model_is_adapted_as_declared(adapt):
    from neuroledger.families.decoding.training.adaptation import Adaptation

    declared = adapt if isinstance(adapt, str) else Adaptation(**adapt)
    wanted = signature(400)
    decoder = braindecode_decoder(
        id="m", architecture="Labram", recipe=Laptop(epochs=1, batch=4), adapt=declared
    )
    estimator = decoder.make(wanted)
    x = np.random.default_rng(0).standard_normal((12, 22, 400))
    y = np.tile(["a", "b", "c", "d"], 3)
    before = {}
    make = estimator.make

    def kept(wanted):
        network = make(wanted)
        before.update({k: v.clone() for k, v in network.state_dict().items()})
        return network

    estimator.make = kept
    estimator.fit_validated(x[:8], y[:8], x[8:], y[8:])
    after = estimator.network_.state_dict()
    inner = "network.network." if "probe" in str(adapt) else "network."
    name = "blocks.0.mlp.0.weight"
    again = after.get(
        inner + name,
        after.get(inner + "blocks.0.mlp.0.parametrizations.weight.original"),
    )
    assert (again == before["network." + name]).all()
    assert "parameters trained" in estimator.notes_[-1]
