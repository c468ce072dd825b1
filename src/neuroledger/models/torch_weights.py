"""Weights: tensors read from files by a process with resource limits, or drawn from a seed."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.threads import exclusive
from neuroledger.errors import DataError, ModelError, package_missing
from neuroledger.models.model import unknown
from neuroledger.store.hashes import sha256_of

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

__all__ = [
    "checkpoint_tensors",
    "load_weights",
    "safetensors",
    "seeded",
    "weights_identity",
]

# Name of a type in safetensors → name in torch.
TYPES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "I64": "int64",
    "U64": "uint64",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}


CHECKPOINTS: Final = frozenset({".pth", ".pt"})
"""Suffixes of files saved by torch, whose pickles are only read for tensors."""


def safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a safetensors file by name, memory-mapped.

    Raises
    ------
    DataError
        The file is not a complete safetensors file, or crashes or exhausts the process that parses it.
    UnavailableError
        The package ``safetensors`` is not installed.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise package_missing("safetensors") from error

    def layout() -> dict[str, tuple[str, tuple[int, ...], int]]:
        try:
            with (
                safe_open(path, framework="np"),
                path.open("rb") as file,
            ):  # safe_open validates the header
                (length,) = struct.unpack("<Q", file.read(8))
                header: Mapping[str, Any] = json.loads(file.read(length))
        except SafetensorError as error:
            raise DataError(
                f"{path.name} is not a complete safetensors file ({error})"
            ) from error
        entries = {
            name: entry for name, entry in header.items() if name != "__metadata__"
        }
        for name, entry in entries.items():
            if entry["dtype"] not in TYPES:
                raise DataError(
                    f"{path.name}: {name!r} has the unsupported type {entry['dtype']}"
                )
        first = 8 + length
        return {
            name: (
                TYPES[entry["dtype"]],
                tuple(entry["shape"]),
                first + entry["data_offsets"][0],
            )
            for name, entry in entries.items()
        }

    tensors = confined(layout, limits_for([path]), path.name)
    file = np.memmap(path, np.uint8, mode="c") if tensors else np.empty(0, np.uint8)
    return {name: _tensor(file, *tensor) for name, tensor in tensors.items()}


def checkpoint_tensors(
    path: Path, inside: tuple[str, ...] = ()
) -> dict[str, torch.Tensor]:
    """Return the tensors of a file saved by torch, by name; ``inside`` are keys that may contain the state dict.

    Raises
    ------
    DataError
        The file is damaged, contains objects other than tensors, or crashes or exhausts the process that parses it.
    ModelError
        The file does not contain tensors by name.
    """
    import pickle

    import torch

    def unpack() -> dict[str, tuple[np.ndarray, str, tuple[int, ...]]]:
        try:
            state: object = torch.load(
                path,
                map_location="cpu",
                weights_only=True,
                mmap=zipfile.is_zipfile(path),
            )
        except (
            pickle.UnpicklingError,
            RuntimeError,
            EOFError,
            LookupError,
            ValueError,
            TypeError,
        ) as error:
            raise DataError(
                f"{path.name} is not a checkpoint that contains only tensors: save `model.state_dict()` with torch.save"
            ) from error
        for name in inside:
            if isinstance(state, dict) and isinstance(state.get(name), dict):
                state = state[name]
        if (
            not isinstance(state, dict)
            or not state
            or not all(isinstance(value, torch.Tensor) for value in state.values())
        ):
            raise ModelError(
                f"{path.name} contains no state dict (tensors by name): save `model.state_dict()`"
            )
        return {
            str(name): (
                value.detach().contiguous().reshape(-1).view(torch.uint8).numpy(),
                str(value.dtype).removeprefix("torch."),
                tuple(value.shape),
            )
            for name, value in state.items()
        }

    tensors = confined(unpack, limits_for([path]), path.name)
    return {name: _tensor(*tensor) for name, tensor in tensors.items()}


def _tensor(
    buffer: np.ndarray, kind: str, shape: tuple[int, ...], start: int = 0
) -> torch.Tensor:
    """Return a tensor that shares the memory of ``buffer`` from byte ``start`` on."""
    import torch

    dtype: torch.dtype = getattr(torch, kind)
    if not prod(shape):
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(
        buffer, dtype=dtype, count=prod(shape), offset=start
    ).reshape(shape)


def load_weights(
    module: torch.nn.Module,
    weights: Mapping[str, Path],
    model: str,
    *,
    fresh: tuple[str, ...] = (),
    adapt: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]] = dict,
) -> None:
    """Load the tensors of one or several files into a module; names and shapes must match exactly.

    Files are safetensors, or state dicts saved by torch if their names end in ``.pth`` or ``.pt``. Tensors whose names
    begin with one of ``fresh`` are ignored on both sides and keep their random values. ``adapt``
    converts the tensors of the files to those of the module.

    Raises
    ------
    ModelError
        A file contains no tensors by name, or its tensors do not match those of the module by name and shape.
    """
    state = adapt(_tensors_of(weights, model))
    own = module.state_dict()
    for part in fresh:
        if not any(name.startswith(part) for name in own):
            raise ModelError(
                f"model {model!r}: no tensor of the module begins with {part!r} (fresh)"
            )
    given = _without(state, fresh)
    problems = _mismatches(given, _without(own, fresh))
    if problems:
        if len(problems) > 5:
            more = f"; and {len(problems) - 5} more"
        else:
            more = ""
        raise ModelError(
            f"model {model!r}: weights do not fit: {'; '.join(problems[:5])}{more}"
        )
    module.load_state_dict({**own, **given})


def _tensors_of(weights: Mapping[str, Path], model: str) -> dict[str, torch.Tensor]:
    """Return the tensors of all files by name."""
    state: dict[str, torch.Tensor] = {}
    for _, path in sorted(weights.items()):
        read = checkpoint_tensors if path.suffix in CHECKPOINTS else safetensors
        try:
            state |= read(path)
        except DataError as error:
            raise ModelError(
                f"model {model!r}: weights: {error}; fetch them again"
            ) from error
    return state


def _without(
    tensors: Mapping[str, torch.Tensor], parts: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    """Return the tensors whose names begin with none of the parts."""
    kept = {}
    for name, tensor in tensors.items():
        if not name.startswith(parts):
            kept[name] = tensor
    return kept


def _mismatches(
    given: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]
) -> list[str]:
    """Return how tensors differ by name and shape from those of a module."""
    problems = []
    for name in sorted(given.keys() - expected.keys()):
        problems.append(f"the module has no {unknown('tensor', name, list(expected))}")
    for name in sorted(expected.keys() - given.keys()):
        # The number of training batches of a normalisation changes no answer, and many published files omit it.
        if not name.endswith("num_batches_tracked"):
            problems.append(f"no value for {name!r}")
    for name in sorted(expected.keys() & given.keys()):
        has = tuple(given[name].shape)
        needed = tuple(expected[name].shape)
        if has != needed:
            problems.append(f"{name!r} is {has}, but {needed} in the module")
    return problems


def weights_identity(weights: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of every file, by name."""
    return {name: sha256_of(path) for name, path in sorted(weights.items())}


def seeded(make: Callable[[], T], seed: int) -> T:
    """Call ``make`` with torch's generator seeded by ``seed``; restore the generator afterwards."""
    import torch

    with exclusive(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()
