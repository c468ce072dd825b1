"""Files of tensors become tensors: a process with limits finds out what they hold, the caller runs no parser."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError, ModelError, UnavailableError

if TYPE_CHECKING:
    import torch

__all__ = ["checkpoint_tensors", "safetensors"]

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
