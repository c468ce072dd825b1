"""Torch modules from graphs of NIR or ONNX, as files or in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neuroledger.errors import RequestError
from neuroledger.families.efficiency.graphs.nir_graph import from_nir
from neuroledger.families.efficiency.graphs.onnx_graph import from_onnx

if TYPE_CHECKING:
    from torch import nn

__all__ = ["module_from"]

READERS: Final[Mapping[str, Callable[..., nn.Module]]] = {
    "nir": from_nir,
    "onnx": from_onnx,
}


def module_from(source: object, **dynamics: object) -> nn.Module:
    """Return the torch module of a graph; anything that is not a graph is returned unchanged.

    ``dynamics`` are the time step and reset of a NIR graph.

    Raises
    ------
    RequestError
        A file has a suffix other than ``.nir`` or ``.onnx``, or ``dynamics`` are given for anything but a NIR graph.
    ModelError
        The graph cannot be read, or one of its nodes is not supported.
    """
    if isinstance(source, (str, Path)):
        kind = Path(source).suffix[1:]
        if kind not in READERS:
            raise RequestError(
                f"{source} is not a graph file: graph files end in .nir or .onnx"
            )
    else:
        kind = type(source).__module__.partition(".")[0]
    given = {name: value for name, value in dynamics.items() if value is not None}
    if given and kind != "nir":
        raise RequestError(
            f"{', '.join(given)}: only neurons of a NIR graph take these from the caller; a torch module has its own"
        )
    if kind in READERS:
        return READERS[kind](source, **given)
    return source
