"""Networks as decoders: those of this package, and any torch module by import path."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from neuroledger.errors import ModelError, UnavailableError
from neuroledger.families.decoding.models.convolutional_decoders import eegnet, shallow_fbcsp_net
from neuroledger.families.decoding.models.pretrained_contract import Arranged, Contract, adapted, arranged
from neuroledger.families.decoding.models.response_networks import residual_mlp
from neuroledger.families.decoding.protocols.decoder import TAKES, Decoder, Objective, Signature, decoded
from neuroledger.families.decoding.training.decoding_recipes import NeuralBench, Recipe, TrainingRecipe
from neuroledger.families.decoding.training.signal_training import TrainedNetwork
from neuroledger.models.torch_weights import load_weights
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import TORCH, Arguments, ModulePath, trusted

__all__ = [
    "ANYTHING", "braindecode_decoder", "built", "ctc_decoder", "network_decoder",
    "network_to_decoder", "torch_decoder",
]  # fmt: skip

OBJECTIVES: tuple[Objective, ...] = ("classification", "multilabel", "regression", "retrieval")
ANYTHING: tuple[Objective, ...] = (*OBJECTIVES, "sequence")
PUBLISHED = NeuralBench()
OWN: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {"eegnet": eegnet, "shallow_fbcsp_net": shallow_fbcsp_net, "residual_mlp": residual_mlp}
)
# What modules of other packages call the parts of a signature; the first name that is taken is used, once.
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "channels": ("n_chans", "channels", "n_channels", "in_chans", "num_channels"),
        "samples": ("n_times", "samples", "n_samples", "input_window_samples"),
        "outputs": ("n_outputs", "outputs", "n_classes", "num_classes"),
        "sampling_rate": ("sfreq", "sampling_rate"),
    }
)


@builder("network_decoder", version=2, takes=TAKES, gives=decoded(*OBJECTIVES))
def network_decoder(
    *,
    id: str,
    architecture: Literal["eegnet", "shallow_fbcsp_net", "residual_mlp"],
    parameters: Arguments | None = None,
    recipe: Recipe = PUBLISHED,
    trained: bool = True,
    device: str = "cpu",
    shuffles_labels: bool = False,
) -> Decoder:
    """EEGNet, ShallowFBCSPNet or a residual perceptron, trained from random weights by `recipe`.

    Untrained (`trained: false`), it is the chance level. The perceptron is for few samples of many channels, such as fMRI.

    Raises
    ------
    ModelError
        The architecture does not take a parameter, or the windows are too short for it.
    """

    def make(signature: Signature) -> Any:
        try:
            return OWN[architecture](
                signature.channels, signature.samples, signature.outputs, **(parameters or {})
            )
        except TypeError as error:
            raise ModelError(
                f"model {id!r}: {architecture} does not take these parameters: {error}"
            ) from error

    return network_to_decoder(id, make, recipe, trained, device, shuffles_labels)


@builder("torch_decoder", version=2, takes=TAKES, gives=decoded(*ANYTHING))
def torch_decoder(
    *,
    id: str,
    path: ModulePath,
    parameters: Arguments | None = None,
    recipe: Recipe = PUBLISHED,
    device: str = "cpu",
) -> Decoder:
    """Any torch module by import path, windows (window, channel, sample) in, (window, output) out, trained by `recipe`.

    For texts, (window, time, output) out: a score for each symbol and, last, the blank; `ctc_decoder` says more of it.

    The parts of the signature are handed to the constructor under the names that it has for them: `channels`,
    `n_channels` or `n_chans`; `samples` or `n_times`; `outputs`, `n_outputs` or `n_classes`; `sampling_rate` or `sfreq`.

    Raises
    ------
    ModelError
        There is nothing at the path, or it does not take the parameters.
    """

    def make(signature: Signature) -> Any:
        return built(trusted(path, TORCH, id), signature, parameters or {}, id)

    return network_to_decoder(id, make, recipe, True, device, False, ANYTHING)


def built(
    constructor: Any,
    signature: Signature,
    parameters: Mapping[str, Any],
    id: str,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """The module, given the signature and what else is `known` under the constructor's own names, then `parameters`.

    Raises
    ------
    ModelError
        The constructor does not take them, or refuses the shape of the windows.
    """
    taken = inspect.signature(constructor).parameters
    named = {part: next((name for name in names if name in taken), None) for part, names in NAMES.items()}
    given = {name: getattr(signature, part) for part, name in named.items() if name is not None}
    given |= {name: value for name, value in known.items() if name in taken}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return constructor(**{**given, **parameters})
    except (TypeError, ValueError, LookupError, RuntimeError, ArithmeticError, AssertionError) as error:
        name = getattr(constructor, "__name__", constructor)
        shape = f"{signature.channels} channels × {signature.samples} samples"
        raise ModelError(f"model {id!r}: {name} cannot be built for {shape}: {error}") from error


def network_to_decoder(
    id: str,
    make: Callable[[Signature], Any],
    recipe: TrainingRecipe,
    trained: bool,
    device: str,
    shuffles_labels: bool,
    objectives: tuple[Objective, ...] = OBJECTIVES,
) -> Decoder:
    """A decoder around a factory of networks; if untrained, its weights stay random."""
    if not trained:
        recipe = recipe.model_copy(update={"learning_rate": 1e-12, "weight_decay": 0.0, "epochs": 1})
    return Decoder(
        id=id,
        make=lambda signature: TrainedNetwork(make, signature, recipe, device),
        stochastic=True,
        objectives=objectives,
        shuffles_labels=shuffles_labels,
    )


@builder("ctc_decoder", version=1, takes=TAKES, gives=decoded("sequence"))
def ctc_decoder(
    *,
    id: str,
    path: ModulePath = ("neuroledger.families.decoding.models.time_depth_networks.typing_network"),
    parameters: Arguments | None = None,
    symbols: str | None = None,
    breadth: Annotated[int, Field(ge=1)] = 1,
    recipe: Recipe = PUBLISHED,
    device: str = "cpu",
    shuffles_labels: bool = False,
) -> Decoder:
    """Any torch module by import path that gives (window, time, symbol), trained with the CTC loss [graves2006].

    The module has as many outputs as there are symbols, and one more, the last, for the blank. The default is the network
    that was published with emg2qwerty [sivakumar2024]. Early stopping watches the character error rate.

    Parameters
    ----------
    path, parameters
        The module and what it is given besides the shape of a window, as in `torch_decoder`.
    symbols
        The characters that texts are made of, in the order of the outputs; without them, those that occur, sorted.
    breadth
        How many beginnings of a text are followed while the trained network is read; 1 takes the best symbol at each time.

    Raises
    ------
    ModelError
        There is nothing at the path, it does not take the parameters, it answers otherwise, a text has more symbols than
        the network has steps in time, or one that is not among `symbols`.
    """
    if symbols is not None and len(set(symbols)) != len(symbols):
        twice = next(symbol for symbol in symbols if symbols.count(symbol) > 1)
        raise ModelError(f"model {id!r}: `symbols` has {twice!r} twice: each output stands for one of them")

    def make(signature: Signature) -> Any:
        return built(trusted(path, TORCH, id), signature, parameters or {}, id)

    def estimator(signature: Signature) -> TrainedNetwork:
        if symbols is not None:
            signature = signature._replace(symbols=tuple(symbols), outputs=len(symbols) + 1)
        return TrainedNetwork(make, signature, recipe, device, breadth=breadth)

    return Decoder(
        id=id,
        make=estimator,
        stochastic=True,
        objectives=("sequence",),
        shuffles_labels=shuffles_labels,
    )


# What a class is called before and after version 1.
RENAMED: Mapping[str, str] = {"EEGNet": "EEGNetv4", "EEGNetv4": "EEGNet"}
# braindecode imports all its networks at once, some of which filter or resample with torchaudio.
AUDIO = ("torchaudio", "torchaudio.functional", "torchaudio.transforms")


@builder("braindecode_decoder", version=2, takes=TAKES, gives=decoded(*ANYTHING))
def braindecode_decoder(
    *,
    id: str,
    architecture: str,
    parameters: Arguments | None = None,
    weights: Mapping[str, Path] = MappingProxyType({}),
    fresh: tuple[str, ...] = (),
    contract: Contract | None = None,
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
    contract
        What the weights were made for: channels by name, rate, length and unit of windows, and which of the file's
        tensors this network does not take. Windows that break it are refused before anything is trained.

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
        seen = Arranged(signature, tuple(range(signature.channels)), 1.0)
        if contract is not None:
            seen = arranged(contract, signature, recipe, id)
        signature = seen.signature
        known = {"chs_info": _channels(signature)}
        made = getattr(models, name)
        if not (isinstance(made, type) and hasattr(made, "forward")):
            raise ModelError(f"model {id!r}: {architecture!r} of braindecode is not a network")
        network = built(made, signature, parameters or {}, id, known)
        if weights:
            adapt = dict if contract is None else adapted(contract, network, id)
            load_weights(network, weights, id, fresh=fresh, adapt=adapt)
        elif fresh or contract is not None:
            raise ModelError(
                f"model {id!r}: `fresh` and `contract` are about pretrained weights, and there are none"
            )
        return _one_answer(network, seen)

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
            """The warning when it is used."""

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


def _one_answer(network: Any, seen: Arranged) -> Any:
    """The network, told the names of its channels where it asks for them, with one answer per window."""
    from torch import nn

    signature, rows, factor = seen
    asks = "ch_names" in inspect.signature(network.forward).parameters
    names: Sequence[str] = signature.channel_ids

    class OneAnswer(nn.Module):  # type: ignore[misc]
        """Answers over time are averaged."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, windows: Any) -> Any:
            if rows != tuple(range(windows.shape[1])):
                windows = windows[:, list(rows)]
            windows = windows if factor == 1.0 else windows * factor
            try:
                found = network(windows, ch_names=list(names)) if asks else network(windows)
            except (ValueError, LookupError) as error:
                raise ModelError(f"{type(network).__name__} does not take these windows: {error}") from error
            over_time = signature.objective != "sequence" and found.ndim == 3
            return found.mean(dim=2) if over_time and found.shape[1] == signature.outputs else found

    return OneAnswer()
