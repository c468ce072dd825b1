"""Networks as decoders: those of this package, and any torch module by import path."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.convolutional_decoders import eegnet, shallow_fbcsp_net
from neuroledger.families.decoding.models.response_networks import residual_mlp
from neuroledger.families.decoding.protocols.decoder import Decoder, Objective, Signature
from neuroledger.families.decoding.training.decoding_recipes import NeuralBench, Recipe, TrainingRecipe
from neuroledger.families.decoding.training.signal_training import TrainedNetwork
from neuroledger.spec.registry import builder

__all__ = ["ANYTHING", "built", "imported", "network_decoder", "network_to_decoder", "torch_decoder"]

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


@builder("network_decoder", version=2)
def network_decoder(
    *,
    id: str,
    architecture: Literal["eegnet", "shallow_fbcsp_net", "residual_mlp"],
    parameters: dict[str, JsonValue] | None = None,
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


@builder("torch_decoder", version=2)
def torch_decoder(
    *,
    id: str,
    path: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")],
    parameters: dict[str, JsonValue] | None = None,
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
        return built(imported(path, id), signature, parameters or {}, id)

    return network_to_decoder(id, make, recipe, True, device, False, ANYTHING)


def imported(path: str, id: str) -> Any:
    """What is at an import path.

    Raises
    ------
    ModelError
        Nothing is.
    """
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"model {id!r}: nothing can be imported from {path!r} ({error})") from error


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
    """A decoder around what makes networks; untrained, its weights stay as good as random."""
    if not trained:
        recipe = recipe.model_copy(update={"learning_rate": 1e-12, "weight_decay": 0.0, "epochs": 1})
    return Decoder(
        id=id,
        make=lambda signature: TrainedNetwork(make, signature, recipe, device),
        stochastic=True,
        objectives=objectives,
        shuffles_labels=shuffles_labels,
    )
