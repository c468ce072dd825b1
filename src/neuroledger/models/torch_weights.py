"""Weights are tensors and nothing else, read from files by a process with limits, or values drawn from a seed."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.threads import exclusive
from neuroledger.errors import DataError, ModelError, UnavailableError
from neuroledger.models.model import unknown
from neuroledger.store.hashes import sha256_of

if TYPE_CHECKING:
    import torch

__all__ = ["checkpoint_tensors", "load_weights", "safetensors", "seeded", "weights_identity"]

# Torch's names for those of safetensors.
TYPES: Final = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16",
    "I32": "int32", "U32": "uint32", "F32": "float32", "I64": "int64", "U64": "uint64", "F64": "float64",
    "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip


def safetensors(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file by name, which lie in the file's own pages until they are used.

    Raises
    ------
    DataError
        It is not a whole safetensors file, or crashes or exhausts the process that parses it.
    UnavailableError
        The package is not installed.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise UnavailableError("weights need safetensors: pip install 'neuroledger[torch]'") from error

    def laid_out() -> dict[str, tuple[str, tuple[int, ...], int]]:
        try:
            with safe_open(path, framework="np"), path.open("rb") as file:  # it refuses whatever does not fit
                (length,) = struct.unpack("<Q", file.read(8))
                header: Mapping[str, Any] = json.loads(file.read(length))
        except SafetensorError as error:
            raise DataError(f"{path.name} is not a whole safetensors file ({error})") from error
        held = {name: one for name, one in header.items() if name != "__metadata__"}
        odd = [name for name, one in held.items() if one["dtype"] not in TYPES]
        if odd:
            raise DataError(
                f"{path.name}: {odd[0]!r} is of the type {held[odd[0]]['dtype']}, which is not read"
            )
        first = 8 + length
        return {
            name: (TYPES[one["dtype"]], tuple(one["shape"]), first + one["data_offsets"][0])
            for name, one in held.items()
        }

    places = confined(laid_out, limits_for([path]), path.name)
    file = np.memmap(path, np.uint8, mode="c") if places else np.empty(0, np.uint8)
    return {name: _tensor(file, *one) for name, one in places.items()}


def checkpoint_tensors(path: Path, inside: tuple[str, ...] = ()) -> dict[str, torch.Tensor]:
    """The tensors of a file that torch saved, by name; ``inside`` are keys under which they may lie.

    Raises
    ------
    DataError
        It is damaged, holds more than tensors, or crashes or exhausts the process that parses it.
    ModelError
        It holds something else than tensors by name.
    """
    import pickle

    import torch

    def unpacked() -> dict[str, tuple[np.ndarray, str, tuple[int, ...]]]:
        try:
            held: Any = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        except (pickle.UnpicklingError, RuntimeError, EOFError, LookupError, ValueError, TypeError) as error:
            raise DataError(
                f"{path.name} is not a checkpoint of tensors alone; save `model.state_dict()` with torch.save, and use that"
            ) from error
        for name in inside:
            held = held[name] if isinstance(held, dict) and isinstance(held.get(name), dict) else held
        if (
            not isinstance(held, dict)
            or not held
            or not all(isinstance(x, torch.Tensor) for x in held.values())
        ):
            raise ModelError(f"{path.name} holds no state dict (tensors by name): save `model.state_dict()`")
        return {
            str(name): (
                value.detach().contiguous().reshape(-1).view(torch.uint8).numpy(),
                str(value.dtype).removeprefix("torch."),
                tuple(value.shape),
            )
            for name, value in held.items()
        }

    return {name: _tensor(*one) for name, one in confined(unpacked, limits_for([path]), path.name).items()}


def _tensor(buffer: np.ndarray, kind: str, shape: tuple[int, ...], start: int = 0) -> torch.Tensor:
    """``shape`` values of a type from byte ``start`` on, which stay where they are."""
    import torch

    dtype: torch.dtype = getattr(torch, kind)
    if not prod(shape):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=prod(shape), offset=start).reshape(shape)


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
