"""A network in any form that costs are counted for: a torch module, or a graph of NIR or ONNX, as a file or in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from neuroledger.errors import RequestError
from neuroledger.families.efficiency.graphs.nir_graph import from_nir
from neuroledger.families.efficiency.graphs.onnx_graph import from_onnx

__all__ = ["module_from"]

READERS: Final[Mapping[str, Callable[[Any], Any]]] = {"nir": from_nir, "onnx": from_onnx}


def module_from(source: Any) -> Any:
    """The torch module of a graph; anything that is no graph unchanged.

    Raises
    ------
    RequestError
        A file has another suffix than ``.nir`` or ``.onnx``.
    ModelError
        The graph cannot be read, or a node of it is not supported.
    """
    if isinstance(source, (str, Path)):
        kind = Path(source).suffix[1:]
        if kind not in READERS:
            raise RequestError(f"{source} is not a graph: files of networks end in .nir or .onnx")
        return READERS[kind](source)
    package = type(source).__module__.partition(".")[0]
    return READERS[package](source) if package in READERS else source
