"""Networks of transformers with published weights from pinned files, read at their hidden states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from neuroledger.errors import DataError, ModelError
from neuroledger.models.hub import UNBUILDABLE, configured
from neuroledger.models.torch_layers import REFUSALS, available
from neuroledger.models.torch_module import hub_package, version_of
from neuroledger.models.torch_weights import checkpoint_tensors, safetensors, weights_identity
from neuroledger.spec.trusted import Arguments

if TYPE_CHECKING:
    import torch

__all__ = ["Pretrained", "States", "described", "other_files", "pretrained", "require_tensors_only"]

TENSORS: Final = (".safetensors", ".bin")
"""Ends of the names of files with tensors; `.bin` is torch's own format, of which nothing but tensors is read."""

States = Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]


@dataclass(frozen=True)
class Pretrained:
    """A network in evaluation mode on its device."""

    id: str
    module: torch.nn.Module
    blocks: int
    device: str

    def hidden(self, states: Sequence[int], **inputs: torch.Tensor) -> torch.Tensor:
        """Mean over hidden states, (stimulus, token, feature): 0 is what the first block receives, k what the k-th gives.

        They are counted, and in the last one normalised, as transformers does.

        Raises
        ------
        ModelError
            The network refuses the inputs, or gives no hidden states.
        """
        import torch

        place = available(self.device)
        sent = {name: value.to(place) for name, value in inputs.items()}
        try:
            with torch.inference_mode():
                answer = self.module(**sent, output_hidden_states=True)
        except REFUSALS as error:
            raise ModelError(f"model {self.id!r} cannot be shown this: {error}") from error
        found = getattr(answer, "hidden_states", None)
        if found is None or len(found) != self.blocks + 1:
            given = "none" if found is None else len(found)
            raise ModelError(
                f"model {self.id!r}: {given} hidden states for {self.blocks} blocks, not {self.blocks + 1}: this version "
                f"of transformers ({version_of('transformers')}) does not give those of {type(self.module).__name__}"
            )
        return torch.stack([found[state].float() for state in states]).mean(dim=0)

    def logits(self, **inputs: torch.Tensor) -> torch.Tensor:
        """(stimulus, token, entry of the vocabulary), of a network with a language head.

        Raises
        ------
        ModelError
            The network refuses the inputs, or has no such head.
        """
        import torch

        place = available(self.device)
        try:
            with torch.inference_mode():
                answer = self.module(**{name: value.to(place) for name, value in inputs.items()})
        except REFUSALS as error:
            raise ModelError(f"model {self.id!r} cannot be shown this: {error}") from error
        found = getattr(answer, "logits", None)
        if found is None:
            raise ModelError(
                f"model {self.id!r}: {type(self.module).__name__} has no language head: name a class that has one, such as "
                "GPT2LMHeadModel"
            )
        return torch.as_tensor(found)

    def checked(self, states: Sequence[int]) -> tuple[int, ...]:
        """The states, each once and all of the network.

        Raises
        ------
        ModelError
            They are not.
        """
        wrong = [state for state in states if not 0 <= state <= self.blocks]
        if wrong or len(set(states)) != len(states) or not states:
            raise ModelError(
                f"model {self.id!r}: hidden states {', '.join(map(str, states)) or '(none)'}: they are counted from 0 to "
                f"{self.blocks}, each named once"
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
    """The network that ``architecture`` and ``config`` describe, every parameter of it from the pinned files.

    transformers puts older names of tensors into their places; the beginnings ``unused`` name what the files hold beyond
    the network, such as heads of its training.

    Raises
    ------
    ModelError
        No such class or field, no weights, or they do not fit.
    UnavailableError
        transformers or torch is not installed.
    """
    hub = hub_package("transformers")
    import torch

    try:
        found, settings = configured(architecture, config, id)
        held = {
            name: value for name, value in _tensors(weights, id).items() if not name.startswith(tuple(unused))
        }
        with _quiet(hub):
            module, told = found.from_pretrained(
                None,
                config=settings,
                state_dict=held,
                output_loading_info=True,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
            )
    except UNBUILDABLE as error:
        raise ModelError(f"model {id!r}: {architecture} cannot be built of these: {error}") from error
    problems = [f"no value for {name!r}" for name in sorted(told["missing_keys"])]
    problems += [f"nothing takes {name!r}" for name in sorted(told["unexpected_keys"])]
    problems += [
        f"{name!r} is {tuple(given)}, the network has {tuple(own)}"
        for name, given, own in sorted(told["mismatched_keys"])
    ]
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ModelError(f"model {id!r}: weights do not fit: {'; '.join(problems[:5])}{more}")
    module.eval().requires_grad_(requires_grad=False)
    made = Pretrained(id, module.to(available(device)), int(settings.num_hidden_layers), device)
    made.checked(states)
    return made


def described(
    architecture: str,
    config: Arguments,
    weights: Mapping[str, Path],
    device: str,
    packages: Sequence[str] = (),
    **how: Any,
) -> dict[str, Any]:
    """Plain data that determines the embeddings of a network: what it is, its weights, and how it is asked."""
    named = sorted({"torch", "transformers", *packages})
    return {
        "architecture": architecture,
        "config": json.loads(json.dumps(config)),
        "weights": weights_identity(weights),
        "device": available(device).type,
        "packages": {name: version_of(name) for name in named},
        **how,
    }


def other_files(weights: Mapping[str, Path]) -> dict[str, Path]:
    """The pinned files that hold no tensors."""
    return {name: path for name, path in weights.items() if not name.endswith(TENSORS)}


def _tensors(weights: Mapping[str, Path], model: str) -> dict[str, torch.Tensor]:
    files = {name: path for name, path in weights.items() if name.endswith(TENSORS)}
    if not files:
        raise ModelError(f"model {model!r} has no weights: pin a file {' or '.join(TENSORS)} under `weights`")
    state: dict[str, torch.Tensor] = {}
    for _, path in sorted(files.items()):
        try:
            state |= safetensors(path) if path.suffix == ".safetensors" else checkpoint_tensors(path)
        except DataError as error:
            raise ModelError(f"model {model!r}: weights: {error}; fetch them again") from error
    return state


@contextmanager
def _quiet(hub: Any) -> Iterator[None]:
    """Without bars of progress and reports of loading; what they would say becomes an error here."""
    logging = hub.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def require_tensors_only(files: Mapping[str, Path], model: str) -> None:
    """Return if nothing but tensors is pinned.

    Raises
    ------
    ModelError
        Another file is, which nothing would read.
    """
    if others := sorted(other_files(files)):
        raise ModelError(f"model {model!r}: nothing reads {others[0]!r} under `weights`: leave it out")
