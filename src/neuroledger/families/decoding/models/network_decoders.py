"""Networks as decoders: those of this package, of braindecode, and torch modules by import path."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from neuroledger.errors import ModelError, UnavailableError
from neuroledger.families.decoding.models.convolutional_decoders import (
    eegnet,
    shallow_fbcsp_net,
)
from neuroledger.families.decoding.models.position_table import table_of_positions
from neuroledger.families.decoding.models.pretrained_contract import (
    Contract,
    tensor_adapter,
)
from neuroledger.families.decoding.models.response_networks import residual_mlp
from neuroledger.families.decoding.models.window_inputs import Inputs, with_inputs
from neuroledger.families.decoding.protocols.decoder import (
    TAKES,
    Decoder,
    Objective,
    Signature,
    decoded,
)
from neuroledger.families.decoding.training.adaptation import Adapt, adaptation_of
from neuroledger.families.decoding.training.decoding_recipes import (
    NeuralBench,
    Recipe,
    TrainingRecipe,
)
from neuroledger.families.decoding.training.signal_training import TrainedNetwork
from neuroledger.families.signals.model_needs import Needs
from neuroledger.models.devices import ON_DEMAND, Training
from neuroledger.models.torch_weights import load_weights
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import (
    TORCH,
    Arguments,
    ModulePath,
    require_typed,
    trusted,
)

__all__ = [
    "ANYTHING",
    "braindecode_decoder",
    "build_network",
    "ctc_decoder",
    "network_decoder",
    "network_to_decoder",
    "torch_decoder",
]

OBJECTIVES: tuple[Objective, ...] = (
    "classification",
    "multilabel",
    "regression",
    "retrieval",
)
ANYTHING: tuple[Objective, ...] = (*OBJECTIVES, "sequence")
PUBLISHED = NeuralBench()
OWN: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "eegnet": eegnet,
        "shallow_fbcsp_net": shallow_fbcsp_net,
        "residual_mlp": residual_mlp,
    }
)
# Parameter names of other packages for the parts of a signature; the first one that a constructor has is used.
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
    training: Training = ON_DEMAND,
    shuffles_labels: bool = False,
    needs: Needs | None = None,
    inputs: Inputs | None = None,
    adapt: Adapt = "full",
) -> Decoder:
    """EEGNet, ShallowFBCSPNet or a residual perceptron, trained from random weights by `recipe`.

    An untrained one (`trained: false`) is a control at chance. The perceptron is for few samples of many channels, as in
    fMRI.

    Raises
    ------
    ModelError
        The architecture does not take a parameter, or the windows are too short for it.
    """

    def make(signature: Signature) -> Any:
        try:
            return OWN[architecture](
                signature.channels,
                signature.samples,
                signature.outputs,
                **(parameters or {}),
            )
        except TypeError as error:
            raise ModelError(
                f"model {id!r}: {architecture} does not take these parameters: {error}"
            ) from error

    return network_to_decoder(
        id,
        make,
        recipe,
        trained,
        device,
        shuffles_labels,
        needs=needs,
        inputs=inputs,
        adapt=adapt,
        training=training,
    )


def _typed(values: Any) -> None:
    require_typed(values.path, values.parameters)


@builder(
    "torch_decoder", version=2, takes=TAKES, gives=decoded(*ANYTHING), together=_typed
)
def torch_decoder(
    *,
    id: str,
    path: ModulePath,
    parameters: Arguments | None = None,
    recipe: Recipe = PUBLISHED,
    device: str = "cpu",
    training: Training = ON_DEMAND,
    needs: Needs | None = None,
    inputs: Inputs | None = None,
    adapt: Adapt = "full",
) -> Decoder:
    """A torch module by import path, from (window, channel, sample) to (window, output), trained by `recipe`.

    For texts, the module returns (window, time, output): a score for each symbol and, last, for the blank; see
    `ctc_decoder`.

    The parts of the signature are passed to the constructor under the names of its parameters: `channels`,
    `n_channels` or `n_chans`; `samples` or `n_times`; `outputs`, `n_outputs` or `n_classes`; `sampling_rate` or `sfreq`;
    and `positions` of the channels in metres, None if they are not known.

    Raises
    ------
    ModelError
        Nothing is found at the path, or the parameters are invalid.
    """

    def make(signature: Signature) -> Any:
        known = {"positions": signature.positions}
        constructor = trusted(path, TORCH, id)
        return build_network(constructor, signature, parameters or {}, id, known)

    return network_to_decoder(
        id,
        make,
        recipe,
        True,
        device,
        False,
        ANYTHING,
        needs=needs,
        inputs=inputs,
        adapt=adapt,
        training=training,
    )


def build_network(
    constructor: Any,
    signature: Signature,
    parameters: Mapping[str, Any],
    id: str,
    known: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Build a module from the signature, further `known` arguments that its constructor has, and `parameters`.

    Raises
    ------
    ModelError
        The constructor refuses the arguments or the shape of the windows.
    """
    parameters_taken = inspect.signature(constructor).parameters
    names_of_parts = {
        part: next((name for name in names if name in parameters_taken), None)
        for part, names in NAMES.items()
    }
    arguments = {
        name: getattr(signature, part)
        for part, name in names_of_parts.items()
        if name is not None
    }
    arguments |= {
        name: value for name, value in known.items() if name in parameters_taken
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return constructor(**{**arguments, **parameters})
    except (
        TypeError,
        ValueError,
        LookupError,
        RuntimeError,
        ArithmeticError,
        AssertionError,
    ) as error:
        name = getattr(constructor, "__name__", constructor)
        shape = f"{signature.channels} channels × {signature.samples} samples"
        raise ModelError(
            f"model {id!r}: {name} cannot be built for {shape}: {error}"
        ) from error


def network_to_decoder(
    id: str,
    make: Callable[[Signature], Any],
    recipe: TrainingRecipe,
    trained: bool,
    device: str,
    shuffles_labels: bool,
    objectives: tuple[Objective, ...] = OBJECTIVES,
    *,
    needs: Needs | None = None,
    inputs: Inputs | None = None,
    adapt: Adapt = "full",
    training: Training = ON_DEMAND,
) -> Decoder:
    """A decoder from a factory of networks; unless `trained`, its weights stay random.

    `needs` state how windows must be prepared, `inputs` what is done to each before the network sees it, `adapt` which
    parameters are trained, and `training` how this machine does it.
    """
    if not trained:
        recipe = recipe.model_copy(
            update={"learning_rate": 1e-12, "weight_decay": 0.0, "epochs": 1}
        )
    adaptation = adaptation_of(adapt)

    def built(signature: Signature) -> Any:
        return with_inputs(make, signature, needs, inputs, recipe, id)

    return Decoder(
        id=id,
        make=lambda signature: TrainedNetwork(
            built, signature, recipe, device, adapt=adaptation, training=training
        ),
        stochastic=True,
        objectives=objectives,
        shuffles_labels=shuffles_labels,
        needs=needs,
    )


@builder(
    "ctc_decoder", version=1, takes=TAKES, gives=decoded("sequence"), together=_typed
)
def ctc_decoder(
    *,
    id: str,
    path: ModulePath = (
        "neuroledger.families.decoding.models.time_depth_networks.typing_network"
    ),
    parameters: Arguments | None = None,
    symbols: str | None = None,
    breadth: Annotated[int, Field(ge=1)] = 1,
    recipe: Recipe = PUBLISHED,
    device: str = "cpu",
    training: Training = ON_DEMAND,
    shuffles_labels: bool = False,
) -> Decoder:
    """A torch module by import path that returns (window, time, symbol), trained with the CTC loss [graves2006].

    The module has one output per symbol, and a last one for the blank. The default is the network published with
    emg2qwerty [sivakumar2024]. Early stopping monitors the character error rate.

    Parameters
    ----------
    path, parameters
        The module and its parameters besides the shape of a window, as in `torch_decoder`.
    symbols
        The characters of the texts, in the order of the outputs; default: those that occur, sorted.
    breadth
        Number of prefixes in the beam search that decodes the trained network; 1 takes the best symbol at each time.

    Raises
    ------
    ModelError
        Nothing is found at the path, the parameters are invalid, the output has another shape, a text has more symbols than
        the network has steps in time, or a symbol is not among `symbols`.
    """
    if symbols is not None and len(set(symbols)) != len(symbols):
        twice = next(symbol for symbol in symbols if symbols.count(symbol) > 1)
        raise ModelError(
            f"model {id!r}: `symbols` contains {twice!r} twice: each output needs a different symbol"
        )

    def make(signature: Signature) -> Any:
        return build_network(trusted(path, TORCH, id), signature, parameters or {}, id)

    def estimator(signature: Signature) -> TrainedNetwork:
        if symbols is not None:
            signature = signature._replace(
                symbols=tuple(symbols), outputs=len(symbols) + 1
            )
        return TrainedNetwork(
            make, signature, recipe, device, breadth=breadth, training=training
        )

    return Decoder(
        id=id,
        make=estimator,
        stochastic=True,
        objectives=("sequence",),
        shuffles_labels=shuffles_labels,
    )


# Names of classes before and after version 1 of braindecode.
RENAMED: Mapping[str, str] = {"EEGNet": "EEGNetv4", "EEGNetv4": "EEGNet"}
# braindecode imports all its networks together, and some of them need torchaudio.
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
    training: Training = ON_DEMAND,
    needs: Needs | None = None,
    inputs: Inputs | None = None,
    adapt: Adapt = "full",
    positions: Literal["published", "data"] = "published",
) -> Decoder:
    """A network of braindecode by the name of its class, trained by `recipe`.

    The constructor receives those of `n_chans`, `n_times`, `n_outputs`, `sfreq` and `chs_info` (names, and positions in
    metres if known) that it has as parameters, and `parameters`. Outputs (window, output, time) are averaged over time;
    texts are decoded from (window, time, symbol). Without torchaudio, the networks that do not use it are still available.

    Parameters
    ----------
    weights
        Pretrained tensors in safetensors files, pinned in the model's spec; the training starts from them. The names of
        all tensors must match those of the network.
    fresh
        Prefixes of the names of tensors that are initialised randomly instead: usually `final_layer`, since its size
        depends on the number of classes.
    contract
        Tensors of the file that this network does not have, or has in another size.
    positions
        Where a network that looks up channels in a table (REVE) has it from: as published, which braindecode downloads, or
        from the positions of the data, and MNE's montage `standard_1005` for channels without.

    Raises
    ------
    UnavailableError
        braindecode is not installed, or the network needs torchaudio, which cannot be imported.
    ModelError
        The class is unknown, does not fit the windows, or the weights do not fit the class.
    """

    def make(signature: Signature) -> Any:
        models = _models(id)
        name = (
            architecture
            if hasattr(models, architecture)
            else RENAMED.get(architecture, architecture)
        )
        if not hasattr(models, name):
            suggestions = (
                ", ".join(_similar_names(architecture, models))
                or "see braindecode.models"
            )
            raise ModelError(
                f"model {id!r}: braindecode has no network {architecture!r}; similar names: {suggestions}"
            )
        known = {"chs_info": _channel_info(signature)}
        network_class = getattr(models, name)
        if not (isinstance(network_class, type) and hasattr(network_class, "forward")):
            raise ModelError(
                f"model {id!r}: {architecture!r} of braindecode is not a network"
            )
        with _table(positions, signature, id):
            network = build_network(
                network_class, signature, parameters or {}, id, known
            )
        if weights:
            fitted = dict if contract is None else tensor_adapter(contract, network, id)
            load_weights(network, weights, id, fresh=fresh, adapt=fitted)
        elif fresh or contract is not None:
            raise ModelError(
                f"model {id!r}: `fresh` and `contract` apply to pretrained weights, but `weights` is empty"
            )
        return _wrapped_network(network, signature)

    return network_to_decoder(
        id,
        make,
        recipe,
        True,
        device,
        False,
        ANYTHING,
        needs=needs,
        inputs=inputs,
        adapt=adapt,
        training=training,
    )


def _table(
    positions: Literal["published", "data"], signature: Signature, id: str
) -> AbstractContextManager[None]:
    """Within the context, networks find the table of positions that is wanted."""
    if positions == "data":
        return table_of_positions(signature, id)
    return nullcontext()


def _models(id: str) -> ModuleType:
    """Import `braindecode.models`."""
    if (
        "braindecode.models" in sys.modules
        and sys.modules["braindecode.models"] is not None
    ):
        return sys.modules["braindecode.models"]
    try:
        with warnings.catch_warnings(), _torchaudio_stubs():
            warnings.simplefilter("ignore")
            return importlib.import_module("braindecode.models")
    except (ImportError, OSError) as error:
        raise UnavailableError(
            f"model {id!r} needs braindecode, which cannot be imported ({error})",
            "pip install 'neuroledger[braindecode]'",
        ) from error


@contextmanager
def _torchaudio_stubs() -> Iterator[None]:
    """Replace torchaudio by stubs within the context if it is missing or was built for another torch."""
    importlib.import_module(
        "torch"
    )  # torch must not be imported for the first time while the stubs are in place
    try:
        importlib.import_module("torchaudio")
    except (ImportError, OSError) as error:
        for name in [
            name for name in sys.modules if name.split(".")[0] == "torchaudio"
        ]:
            del sys.modules[name]
        package, *parts = (_StubModule(name, str(error)) for name in AUDIO)
        for part in parts:
            setattr(package, part.__name__.rpartition(".")[2], part)
        sys.modules.update(zip(AUDIO, (package, *parts), strict=True))
        try:
            yield
        finally:
            for name in AUDIO:
                sys.modules.pop(name, None)
    else:
        yield


class _StubModule(ModuleType):
    """A stub module whose attributes can be imported but not used."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.reason = reason
        self.__path__: list[str] = []

    def __getattr__(self, part: str) -> Any:
        if part.startswith("__"):
            raise AttributeError(part)
        reason = f"this network uses {self.__name__}.{part}, but torchaudio cannot be imported ({self.reason})"

        class Missing:
            """Raises the error on use."""

            def __new__(cls, *_: Any, **__: Any) -> Any:
                raise UnavailableError(
                    f"{reason}: install the torchaudio that was built for this torch"
                )

        return Missing


def _channel_info(signature: Signature) -> list[dict[str, Any]]:
    """Names and known positions of the channels in the format of MNE's `info["chs"]`."""
    channels: list[dict[str, Any]] = [
        {"ch_name": name} for name in signature.channel_ids
    ]
    for channel, place in zip(channels, signature.positions or (), strict=False):
        if np.isfinite(place).all():
            channel["loc"] = np.array([*place, *[0.0] * 9])
    return channels


def _similar_names(name: str, models: ModuleType) -> list[str]:
    import difflib

    return difflib.get_close_matches(
        name, [key for key in dir(models) if key[:1].isupper()], 3
    )


def _wrapped_network(network: Any, signature: Signature) -> Any:
    """Wrap a network: pass channel names if it needs them, and average outputs over time."""
    from torch import nn

    takes_names = "ch_names" in inspect.signature(network.forward).parameters
    names: Sequence[str] = signature.channel_ids

    class OneAnswer(nn.Module):  # type: ignore[misc]
        """A network with one output per window."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, windows: Any) -> Any:
            try:
                outputs = (
                    network(windows, ch_names=list(names))
                    if takes_names
                    else network(windows)
                )
            except (ValueError, LookupError) as error:
                raise ModelError(
                    f"{type(network).__name__} refuses these windows: {error}"
                ) from error
            over_time = signature.objective != "sequence" and outputs.ndim == 3
            if over_time and outputs.shape[1] == signature.outputs:
                return outputs.mean(dim=2)
            return outputs

    return OneAnswer()
