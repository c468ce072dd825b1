"""Networks of transformers with published weights from pinned files, and their hidden states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field, NonNegativeInt

from neuroledger.errors import DataError, ModelError
from neuroledger.models.devices import available, reproducible
from neuroledger.models.hub import UNBUILDABLE, configured
from neuroledger.models.torch_layers import REFUSALS
from neuroledger.models.torch_module import hub_package, version_of
from neuroledger.models.torch_weights import (
    checkpoint_tensors,
    safetensors,
    weights_identity,
)
from neuroledger.spec.trusted import Arguments

if TYPE_CHECKING:
    import torch

__all__ = [
    "Pretrained",
    "States",
    "described",
    "other_files",
    "pretrained",
    "require_tensors_only",
]

TENSORS: Final = (".safetensors", ".bin")
"""Suffixes of files with tensors; `.bin` is torch's own format, from which only tensors are read."""

States = Annotated[tuple[NonNegativeInt, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Pretrained:
    """A network in evaluation mode on its device."""

    id: str
    module: torch.nn.Module
    blocks: int
    device: str

    def hidden(self, states: Sequence[int], **inputs: torch.Tensor) -> torch.Tensor:
        """Mean over hidden states, (stimulus, token, feature).

        State 0 is the input of the first block, state k the output of block k, as transformers numbers them; the last
        one is normalised if transformers does so.

        Raises
        ------
        ModelError
            The network refuses the inputs, or returns no hidden states.
        """
        import torch

        device = available(self.device)
        moved = {name: value.to(device) for name, value in inputs.items()}
        try:
            with torch.inference_mode(), reproducible(device, 0):
                answer = self.module(**moved, output_hidden_states=True)
        except REFUSALS as error:
            raise ModelError(f"model {self.id!r} refuses the input: {error}") from error
        hidden_states = getattr(answer, "hidden_states", None)
        if hidden_states is None or len(hidden_states) != self.blocks + 1:
            count = "none" if hidden_states is None else len(hidden_states)
            raise ModelError(
                f"model {self.id!r}: {count} hidden states for {self.blocks} blocks, not {self.blocks + 1}: this version of "
                f"transformers ({version_of('transformers')}) does not return those of {type(self.module).__name__}"
            )
        return torch.stack([hidden_states[state].float() for state in states]).mean(
            dim=0
        )

    def logits(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Logits (stimulus, token, entry of the vocabulary) of a network with a language head.

        Raises
        ------
        ModelError
            The network refuses the inputs, or has no language head.
        """
        import torch

        device = available(self.device)
        try:
            with torch.inference_mode(), reproducible(device, 0):
                answer = self.module(
                    **{name: value.to(device) for name, value in inputs.items()}
                )
        except REFUSALS as error:
            raise ModelError(f"model {self.id!r} refuses the input: {error}") from error
        logits = getattr(answer, "logits", None)
        if logits is None:
            raise ModelError(
                f"model {self.id!r}: {type(self.module).__name__} has no language head: choose a class with one, such as "
                "GPT2LMHeadModel"
            )
        return torch.as_tensor(logits)

    def checked(self, states: Sequence[int]) -> tuple[int, ...]:
        """The states, if the network has all of them and none is repeated.

        Raises
        ------
        ModelError
            A state does not exist or is repeated, or there are none.
        """
        invalid = [state for state in states if not 0 <= state <= self.blocks]
        if invalid or len(set(states)) != len(states) or not states:
            raise ModelError(
                f"model {self.id!r}: hidden states {', '.join(map(str, states)) or '(none)'}: name states from 0 to "
                f"{self.blocks}, each once"
            )
        return tuple(states)


def pretrained(
    id: str,
    architecture: str,
    config: Arguments,
    weights: Mapping[str, Path],
    *,
    states: Sequence[int],
    unused: Sequence[str] = (),
    device: str = "cpu",
) -> Pretrained:
    """The network that ``architecture`` and ``config`` describe, with all parameters from the pinned files.

    transformers maps old names of tensors to new ones. ``unused`` lists prefixes of the tensors that the network does not
    use, such as heads for its training.

    Raises
    ------
    ModelError
        A class or a field does not exist, or weights are missing or do not fit.
    UnavailableError
        transformers or torch is not installed.
    """
    hub = hub_package("transformers")
    import torch

    try:
        network_class, settings = configured(architecture, config, id)
        state = {
            name: value
            for name, value in _tensors(weights, id).items()
            if not name.startswith(tuple(unused))
        }
        with _quiet(hub):
            module, loading = network_class.from_pretrained(
                None,
                config=settings,
                state_dict=state,
                output_loading_info=True,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
            )
    except UNBUILDABLE as error:
        raise ModelError(
            f"model {id!r}: {architecture} cannot be built from `config` and `weights`: {error}"
        ) from error
    problems = [f"no value for {name!r}" for name in sorted(loading["missing_keys"])]
    problems += [
        f"the network does not use {name!r}"
        for name in sorted(loading["unexpected_keys"])
    ]
    problems += [
        f"{name!r} is {tuple(stored)}, the network has {tuple(expected)}"
        for name, stored, expected in sorted(loading["mismatched_keys"])
    ]
    if problems:
        if len(problems) > 5:
            more = f"; and {len(problems) - 5} more"
        else:
            more = ""
        raise ModelError(
            f"model {id!r}: weights do not fit: {'; '.join(problems[:5])}{more}"
        )
    module.eval().requires_grad_(requires_grad=False)
    network = Pretrained(
        id, module.to(available(device)), int(settings.num_hidden_layers), device
    )
    network.checked(states)
    return network


def described(
    architecture: str,
    config: Arguments,
    weights: Mapping[str, Path],
    device: str,
    packages: Sequence[str] = (),
    **how: Any,
) -> dict[str, object]:
    """Plain data that determine the embeddings of a network: architecture, weights, packages and settings."""
    return {
        "architecture": architecture,
        "config": json.loads(json.dumps(config)),
        "weights": weights_identity(weights),
        "device": available(device).type,
        "packages": {
            name: version_of(name)
            for name in sorted({"torch", "transformers", *packages})
        },
        **how,
    }


def other_files(weights: Mapping[str, Path]) -> dict[str, Path]:
    """The pinned files that do not contain tensors."""
    return {name: path for name, path in weights.items() if not name.endswith(TENSORS)}


def _tensors(weights: Mapping[str, Path], model: str) -> dict[str, torch.Tensor]:
    files = {name: path for name, path in weights.items() if name.endswith(TENSORS)}
    if not files:
        raise ModelError(
            f"model {model!r} has no weights: pin a file that ends in {' or '.join(TENSORS)} under `weights`"
        )
    state: dict[str, torch.Tensor] = {}
    for _, path in sorted(files.items()):
        try:
            state |= (
                safetensors(path)
                if path.suffix == ".safetensors"
                else checkpoint_tensors(path)
            )
        except DataError as error:
            raise ModelError(
                f"model {model!r}: weights: {error}; fetch them again"
            ) from error
    return state


@contextmanager
def _quiet(hub: ModuleType) -> Iterator[None]:
    """Suppress progress bars and loading reports; problems with loading become errors here."""
    logging = hub.utils.logging
    before = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def require_tensors_only(files: Mapping[str, Path], model: str) -> None:
    """Return if only tensors are pinned.

    Raises
    ------
    ModelError
        Another file is pinned, which would not be used.
    """
    if others := sorted(other_files(files)):
        raise ModelError(
            f"model {model!r}: {others[0]!r} under `weights` is not used: remove it"
        )
