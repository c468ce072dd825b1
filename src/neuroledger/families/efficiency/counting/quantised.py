"""The counting rule of quantised layers, whose weights torch hands to a function in packed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neuroledger.families.efficiency.counting.connections import count_convolution, count_linear, transposed
from neuroledger.families.efficiency.counting.layer_counts import Tally

__all__ = ["QUANTISED", "is_packed", "packed"]

# Names of torch's functions on packed weights beyond those that functions of floats have too.
QUANTISED = frozenset(
    {
        "linear_relu", "linear_dynamic", "linear_relu_dynamic", "linear_dynamic_fp16", "linear_relu_dynamic_fp16",
        "linear_leaky_relu", "linear_tanh", "conv1d_relu", "conv2d_relu", "conv3d_relu", "conv2d_add", "conv2d_add_relu",
        "conv1d_dynamic", "conv2d_dynamic", "conv3d_dynamic", "conv_transpose1d_dynamic", "conv_transpose2d_dynamic",
        "conv_transpose3d_dynamic",
    }
)  # fmt: skip


def is_packed(args: tuple[Any, ...]) -> bool:
    """Whether one of the arguments of a function is a packed weight."""
    return torch.ScriptObject in map(type, args)


def packed(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A linear layer or convolution, ``(input, …, packed weight, …)``, of the module whose code calls it."""
    held = next(given for given in args if isinstance(given, torch.ScriptObject))
    x = args[0].dequantize() if args[0].is_quantized else args[0]
    weight = held.unpack()[0]
    weight = weight.dequantize() if weight.is_quantized else weight.float()
    if not hasattr(held, "stride"):
        count_linear(tally, x, weight, tally.name(weight, "linear"))
        return
    rank = x.dim() - 2
    weight = weight.squeeze(2) if weight.dim() > rank + 2 else weight  # one dimension is kept as two
    stride, padding, dilation = (
        list(found)[-rank:] for found in (held.stride(), held.padding(), held.dilation())
    )
    if held.transpose():
        extra = list(held.output_padding())[-rank:]
        transposed(
            tally, result, (x, weight, None, stride, padding, extra, held.groups(), dilation), {"name": ""}
        )
    else:
        name = tally.name(weight, "conv")
        count_convolution(tally, x, weight, name, result, stride, padding, dilation, held.groups())
