"""Pretrained weights start a network whose windows have the order, unit and length that they need, on a small stand-in."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.network_decoders import braindecode_decoder
from neuroledger.families.decoding.models.pretrained_contract import Contract
from neuroledger.families.decoding.models.window_inputs import Inputs
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import Laptop
from neuroledger.families.signals.model_needs import Needs
from neuroledger.families.signals.signals import signals

torch = pytest.importorskip("torch")

RATE = 100.0
KNOWN = ("FP1", "C3", "CZ", "C4", "OZ")
UNSCALED = Laptop(epochs=1, scale="none", clamp=0.0)


class Tiny(torch.nn.Module):
    """A network for windows of up to eight time steps of 50 samples, with an embedding of time steps."""

    def __init__(
        self, n_chans: int, n_times: int, n_outputs: int, sfreq: float
    ) -> None:
        super().__init__()
        self.mixed = torch.nn.Linear(n_chans, 4)
        self.moments = torch.nn.Parameter(torch.zeros(1, n_times // 50 + 1, 4))
        self.final_layer = torch.nn.Linear(4, n_outputs)

    def forward(self, windows: Any) -> Any:
        self.seen = windows.detach().clone()
        moments = windows.unfold(2, 50, 50).mean(dim=3).transpose(1, 2)
        return self.final_layer((self.mixed(moments) + self.moments[:, 1:]).mean(dim=1))


class Named(Tiny):
    """The same network, which receives the names of its channels."""

    def forward(self, windows: Any, ch_names: list[str]) -> Any:
        self.names = ch_names
        return super().forward(windows)


@pytest.fixture(autouse=True)
def zoo(monkeypatch: pytest.MonkeyPatch) -> None:
    models = types.ModuleType("braindecode.models")
    vars(models).update(Tiny=Tiny, Named=Named)
    monkeypatch.setitem(sys.modules, "braindecode.models", models)


def checkpoint(
    folder: Path, *, channels: int = len(KNOWN), rename: dict[str, str] | None = None
) -> dict[str, Path]:
    """Weights of a network for longer windows, with the head of its pretraining, as in published files."""
    from safetensors.torch import save_file

    torch.manual_seed(5)
    state = Tiny(channels, 400, 7, RATE).state_dict() | {
        "pretext.weight": torch.ones(3)
    }
    state["moments"] = torch.arange(36.0).reshape(1, 9, 4)
    state = {
        (rename or {}).get(name, name): value.contiguous()
        for name, value in state.items()
    }
    save_file(state, folder / "model.safetensors")
    return {"model.safetensors": folder / "model.safetensors"}


CONTRACT = Contract(unused=("pretext.",), cut={"moments": 1})
NEEDS = Needs(rate=RATE, unit="uV", one=100.0, channels=KNOWN, window_multiple=50)


def signature(
    names: tuple[str, ...] = ("Fp1", "C3", "Cz", "C4", "Oz"), **changed: Any
) -> Signature:
    told = Signature("classification", len(names), 100, 2, RATE, names, 33, units="uV")
    return told._replace(**changed)


def network(
    weights: dict[str, Path], about: Signature | None = None, **how: Any
) -> Any:
    given = {
        "contract": CONTRACT,
        "needs": NEEDS,
        "fresh": ("final_layer",),
        "recipe": UNSCALED,
        "architecture": "Tiny",
    } | how
    decoder = braindecode_decoder(id="tiny", weights=weights, **given)
    return decoder.make(about or signature()).make(about or signature())


def test_weights_are_loaded_and_windows_have_the_needed_unit_and_order(
    tmp_path: Path,
) -> None:
    weights = checkpoint(tmp_path)
    mixed = ("Oz", "C4", "Fp1", "Cz", "C3")
    made = network(weights, signature(mixed))
    loaded = made.network.network
    assert torch.equal(loaded.moments, torch.arange(36.0).reshape(1, 9, 4)[:, :3])
    windows = torch.arange(5.0)[None, :, None].expand(1, 5, 100) * 100.0
    made(windows)
    # Row by row Fp1, C3, Cz, C4, Oz, in hundreds of microvolts.
    assert loaded.seen[0, :, 0].tolist() == [2.0, 4.0, 3.0, 1.0, 0.0]
    volts = network(weights, signature(mixed, units="V"))
    volts(windows / 1e6)
    torch.testing.assert_close(volts.network.network.seen, loaded.seen)


def test_a_network_that_knows_names_receives_those_that_are_there(
    tmp_path: Path,
) -> None:
    weights = checkpoint(tmp_path, channels=3)
    about = signature(("C4", "X7", "C3", "Oz"))
    picked = {"name": "by_name", "channels": KNOWN, "missing": "leave_out"}
    how: dict[str, Any] = {
        "architecture": "Named",
        "needs": Needs(rate=RATE),
        "inputs": Inputs.model_validate({"channels": picked}),
    }
    made = network(weights, about, **how)
    assert made.notes == ("channels are not used: X7",)
    made(torch.zeros(1, 4, 100))
    assert made.network.network.names == ["C3", "C4", "OZ"]
    with pytest.raises(ModelError, match="none of the channels a, b is one of"):
        network(weights, signature(("a", "b")), **how)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (signature(("Fp1", "C3", "Cz", "Oz")), "the windows have no channels C4"),
        (signature(samples=120), "120 samples are not a multiple of 50"),
        (signature(samples=600), "windows are longer than the weights allow"),
    ],
)
def test_windows_that_do_not_fit_the_weights_are_refused(
    tmp_path: Path, about: Signature, said: str
) -> None:
    with pytest.raises(ModelError, match=r"model 'tiny': ") as refused:
        network(checkpoint(tmp_path), about)
    assert said in str(refused.value)


def test_a_recipe_that_scales_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="the recipe would scale them again"):
        network(checkpoint(tmp_path), recipe=Laptop())


def test_tensors_without_a_counterpart_are_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"the module has no tensor 'pretext\.weight'"):
        network(checkpoint(tmp_path), contract=Contract(cut={"moments": 1}))
    with pytest.raises(
        ModelError, match=r"'moments' is \(1, 9, 4\), but \(1, 3, 4\) in the module"
    ):
        network(checkpoint(tmp_path), contract=Contract(unused=("pretext.",)))
    wrong = checkpoint(tmp_path, rename={"mixed.weight": "encoder.weight"})
    with pytest.raises(
        ModelError,
        match=r"the module has no tensor 'encoder\.weight'.*no value for 'mixed\.weight'",
    ):
        network(wrong)
    with pytest.raises(
        ModelError, match=r"'mixed\.weight' is \(4, 3\), but \(4, 5\) in the module"
    ):
        network(checkpoint(tmp_path, channels=3))
    with pytest.raises(
        ModelError, match=r"the tensors decoder\. of its contract do not exist"
    ):
        network(
            checkpoint(tmp_path), contract=Contract(unused=("pretext.", "decoder."))
        )
    with pytest.raises(ModelError, match="`contract` apply to pretrained weights, but"):
        network({}, fresh=())


def test_needs_apply_to_training_and_scoring(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.tile(["left", "right"], 20)
    values = rng.normal(0, 10, (40, 5, 100)) + 300.0 * (labels == "left")[:, None, None]
    windows = signals(
        values.astype(np.float32),
        channels=["Oz", "C4", "Fp1", "Cz", "C3"],
        channel_types="eeg",
        sampling_rate=RATE,
        start=0.0,
        units="uV",
        events={
            "stimulus_id": labels,
            "subject": ["a"] * 40,
            "recording": ["a"] * 40,
            "onset": np.arange(40.0) * 2,
            "label": labels,
        },
    )
    decoder = braindecode_decoder(
        id="tiny",
        architecture="Tiny",
        weights=checkpoint(tmp_path),
        fresh=("final_layer",),
        contract=CONTRACT,
        needs=NEEDS,
        recipe=Laptop(epochs=60, scale="none", clamp=0.0, learning_rate=0.05),
    )
    score = nl.decode(decoder, windows, "label", splits=4, seeds=(33,))
    assert score.value > 0.9
    with pytest.raises(ModelError, match="50 samples per second instead of 100"):
        nl.decode(
            decoder,
            windows.isel(sample=slice(0, 50))
            .assign_attrs(sampling_rate=50.0)
            .assign_coords(
                time_bin_start=("sample", np.arange(50) * 20.0),
                time_bin_end=("sample", np.arange(1, 51) * 20.0),
            ),
            "label",
            splits=4,
            seeds=(33,),
        )
