"""Weights are tensors and nothing else: safetensors files, or values drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroledger.data.threads import exclusive
from neuroledger.errors import DataError, ModelError
from neuroledger.models.model import unknown
from neuroledger.models.tensor_files import safetensors
from neuroledger.store.hashes import sha256_of

if TYPE_CHECKING:
    import torch


def load_weights(
    module: torch.nn.Module,
    weights: Mapping[str, Path],
    model: str,
    *,
    fresh: tuple[str, ...] = (),
    adapt: Callable[[Mapping[str, Any]], dict[str, Any]] = dict,
) -> None:
    """Fill a module with the tensors of one or several safetensors files, each of which it must have.

    Tensors whose names begin with one of `fresh` are left out on both sides and keep their random values. `adapt` makes of
    the files' tensors those that the module is to have.

    Raises
    ------
    ModelError
        A file is not safetensors, or its tensors are not those of the module by name and shape.
    """
    state: dict[str, torch.Tensor] = {}
    for _, path in sorted(weights.items()):
        try:
            state |= safetensors(path)
        except DataError as error:
            raise ModelError(f"model {model!r}: weights: {error}; fetch them again") from error
    state, own = adapt(state), module.state_dict()
    unused = [part for part in fresh if not any(name.startswith(part) for name in own)]
    if unused:
        raise ModelError(f"model {model!r}: no tensor of the module begins with {unused[0]!r} (fresh)")
    state, wanted = ({n: v for n, v in held.items() if not n.startswith(fresh)} for held in (state, own))
    lost = sorted({*state} - {*wanted})
    problems = [f"nothing takes {unknown('tensor', name, list(wanted))}" for name in lost]
    # How many batches a normalisation was trained on changes no answer, and many published files leave it out.
    missing = {name for name in wanted.keys() - state.keys() if not name.endswith("num_batches_tracked")}
    problems += [f"no value for {name!r}" for name in sorted(missing)]
    problems += [
        f"{name!r} is {tuple(state[name].shape)}, the module has {tuple(wanted[name].shape)}"
        for name in sorted(wanted.keys() & state.keys())
        if state[name].shape != wanted[name].shape
    ]
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ModelError(f"model {model!r}: weights do not fit: {'; '.join(problems[:5])}{more}")
    module.load_state_dict({**own, **state})


def weights_identity(weights: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of every file, by name."""
    return {name: sha256_of(path) for name, path in sorted(weights.items())}


def seeded(make: Callable[[], Any], seed: int) -> Any:
    """What ``make`` returns when torch's generator starts at ``seed``; the generator is put back afterwards."""
    import torch

    with exclusive(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()
