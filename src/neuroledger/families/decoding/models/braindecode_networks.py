"""Networks of braindecode by the name of their class, with weights from a pinned file where there are any."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import numpy as np
from pydantic import JsonValue

from neuroledger.errors import ModelError, UnavailableError
from neuroledger.families.decoding.models.network_decoders import (
    ANYTHING,
    PUBLISHED,
    built,
    network_to_decoder,
)
from neuroledger.families.decoding.protocols.decoder import Decoder, Signature
from neuroledger.families.decoding.training.decoding_recipes import Recipe
from neuroledger.models.torch_weights import load_weights
from neuroledger.spec.registry import builder

__all__ = ["braindecode_decoder"]

# What a class is called before and after version 1.
RENAMED: Mapping[str, str] = {"EEGNet": "EEGNetv4", "EEGNetv4": "EEGNet"}
# braindecode imports all its networks at once, some of which filter or resample with torchaudio.
AUDIO = ("torchaudio", "torchaudio.functional", "torchaudio.transforms")


@builder("braindecode_decoder", version=2)
def braindecode_decoder(
    *,
    id: str,
    architecture: str,
    parameters: dict[str, JsonValue] | None = None,
    weights: Mapping[str, Path] = MappingProxyType({}),
    fresh: tuple[str, ...] = (),
    recipe: Recipe = PUBLISHED,
    device: str = "cpu",
) -> Decoder:
    """A network of braindecode by the name of its class, trained by `recipe`.

    The constructor gets `n_chans`, `n_times`, `n_outputs`, `sfreq` and `chs_info` (names, and places in metres where
    the signals know them), those of them that it takes, then `parameters`. Answers (window, output, time) are averaged
    over time; of texts, (window, time, symbol) are read. Where torchaudio cannot be imported, the networks that do not use
    it work all the same.

    Parameters
    ----------
    weights
        Pretrained tensors, safetensors, pinned in the model's spec; the training starts from them. Every tensor must
        have its place and every place its tensor: nothing is left out silently.
    fresh
        Parts of the network, by the beginning of their tensors' names, that start from random values whatever the
        file holds: `final_layer`, as a rule, since it has as many outputs as there were classes.

    Raises
    ------
    UnavailableError
        braindecode is not installed, or the network needs a torchaudio that is not.
    ModelError
        It has no such class, the class does not fit the windows, or the weights do not fit the class.
    """

    def make(signature: Signature) -> Any:
        models = _models(id)
        name = architecture if hasattr(models, architecture) else RENAMED.get(architecture, architecture)
        if not hasattr(models, name):
            near = ", ".join(_like(architecture, models)) or "see braindecode.models"
            raise ModelError(f"model {id!r}: braindecode has no network {architecture!r}; near: {near}")
        known = {"chs_info": _channels(signature)}
        network = built(getattr(models, name), signature, parameters or {}, id, known)
        if weights:
            load_weights(network, weights, id, fresh=fresh)
        elif fresh:
            raise ModelError(
                f"model {id!r}: `fresh` says what pretrained weights leave out, and there are none"
            )
        return _one_answer(network, signature)

    return network_to_decoder(id, make, recipe, True, device, False, ANYTHING)


def _models(id: str) -> ModuleType:
    """`braindecode.models`."""
    if "braindecode.models" in sys.modules and sys.modules["braindecode.models"] is not None:
        return sys.modules["braindecode.models"]
    try:
        with warnings.catch_warnings(), _audio():
            warnings.simplefilter("ignore")
            return importlib.import_module("braindecode.models")
    except (ImportError, OSError) as error:
        raise UnavailableError(
            f"model {id!r} needs braindecode, which does not import here ({error}): pip install 'neuroledger[braindecode]'"
        ) from error


@contextmanager
def _audio() -> Iterator[None]:
    """Stand-ins for torchaudio within, where it is missing or was built for another torch; gone afterwards."""
    importlib.import_module("torch")  # it must not be imported first while the stand-ins are there
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError) as error:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchaudio"]:
            del sys.modules[name]
        whole, *parts = (_Absent(name, str(error)) for name in AUDIO)
        for part in parts:
            setattr(whole, part.__name__.rpartition(".")[2], part)
        sys.modules.update(zip(AUDIO, (whole, *parts), strict=True))
        try:
            yield
        finally:
            for name in AUDIO:
                sys.modules.pop(name, None)
    else:
        yield


class _Absent(ModuleType):
    """A module whose parts can be imported and not be used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.reason = reason
        self.__path__: list[str] = []

    def __getattr__(self, part: str) -> Any:
        if part.startswith("__"):
            raise AttributeError(part)
        reason = (
            f"this network uses {self.__name__}.{part}, and torchaudio does not import here ({self.reason})"
        )

        class Missing:
            """What is said when it is used."""

            def __new__(cls, *_: Any, **__: Any) -> Any:
                raise UnavailableError(f"{reason}: install the torchaudio that was built for this torch")

        return Missing


def _channels(signature: Signature) -> list[dict[str, Any]]:
    """What is known about each channel, in MNE's words; the place is that of MNE's `loc`."""
    channels: list[dict[str, Any]] = [{"ch_name": name} for name in signature.channel_ids]
    for channel, place in zip(channels, signature.positions or (), strict=False):
        if np.isfinite(place).all():
            channel["loc"] = np.array([*place, *[0.0] * 9])
    return channels


def _like(name: str, models: ModuleType) -> list[str]:
    import difflib

    return difflib.get_close_matches(name, [key for key in dir(models) if key[:1].isupper()], 3)


def _one_answer(network: Any, signature: Signature) -> Any:
    """The network, told the names of its channels where it asks for them, with one answer per window."""
    from torch import nn

    asks = "ch_names" in inspect.signature(network.forward).parameters
    names: Sequence[str] = signature.channel_ids

    class OneAnswer(nn.Module):  # type: ignore[misc]
        """Answers over time are averaged."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, windows: Any) -> Any:
            try:
                found = network(windows, ch_names=list(names)) if asks else network(windows)
            except (ValueError, LookupError) as error:
                raise ModelError(f"{type(network).__name__} does not take these windows: {error}") from error
            over_time = signature.objective != "sequence" and found.ndim == 3
            return found.mean(dim=2) if over_time and found.shape[1] == signature.outputs else found

    return OneAnswer()
