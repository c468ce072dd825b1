"""Every torch function that a network calls passes by here; those that multiply are counted.

Functions are watched, not modules, so that a layer, the same layer written with functions, a layer called twice and a
layer called with keyword arguments all count as what they do. The watch belongs to one pass and one thread: other
passes over the same network, even at the same time, neither see it nor are seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from neuroledger.core.trace import attention, connections, recurrent
from neuroledger.core.trace.tally import Tally, storage_of

__all__ = ["ACTIVATIONS", "BLIND", "RULES", "Watch"]

_LAYER, _COUNT, _MISS, _ACTIVATE, _MULTIPLY = 1, 2, 3, 4, 5

Rule = Callable[[Tally, Any, tuple[Any, ...], dict[str, Any]], None]

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "linear": connections.linear,
        "bilinear": connections.bilinear,
        "conv1d": connections.convolution,
        "conv2d": connections.convolution,
        "conv3d": connections.convolution,
        "conv_transpose1d": connections.transposed,
        "conv_transpose2d": connections.transposed,
        "conv_transpose3d": connections.transposed,
        **{
            name: connections.product(0)
            for name in ("matmul", "__matmul__", "mm", "bmm", "mv", "dot", "vdot")
        },
        "__rmatmul__": lambda tally, result, args, kwargs: connections.products(tally, args[1], args[0]),
        **{
            name: connections.product(1)
            for name in ("addmm", "addmm_", "addmv", "addmv_", "baddbmm", "baddbmm_", "addbmm", "addbmm_")
        },
        "_sparse_mm": connections.product(0),
        "einsum": connections.einsum,
        "tensordot": connections.tensordot,
        **{kind: recurrent.stack(kind) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
        "lstm_cell": recurrent.cell("lstm"),
        "gru_cell": recurrent.cell("gru"),
        "rnn_tanh_cell": recurrent.cell("rnn_tanh"),
        "rnn_relu_cell": recurrent.cell("rnn_relu"),
        "multi_head_attention_forward": attention.multi_head,
        "scaled_dot_product_attention": attention.scaled_dot_product,
    }
)

# Functions of an input, a weight and a bias, most of whose calls are like one before.
LAYERS = frozenset(
    {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
)

# Functions that multiply and accumulate, and that no rule counts.
BLIND = frozenset(
    {
        "cdist", "chain_matmul", "multi_dot", "conv_tbc", "kron", "outer", "ger", "addr", "cov", "corrcoef",
        "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "matrix_power", "pairwise_distance", "solve",
        "lstsq", "flex_attention", "inner",
    }
)  # fmt: skip

ACTIVATIONS = frozenset(
    {
        "relu", "relu_", "relu6", "sigmoid", "sigmoid_", "tanh", "tanh_", "gelu", "elu", "elu_", "selu", "selu_", "celu",
        "celu_", "silu", "mish", "leaky_relu", "leaky_relu_", "hardtanh", "hardtanh_", "prelu", "threshold",
        "threshold_", "_threshold", "softplus", "softsign", "hardswish", "hardsigmoid", "hardshrink", "softshrink",
        "tanhshrink", "log_sigmoid", "logsigmoid", "rrelu", "rrelu_", "glu",
    }
)  # fmt: skip

# The code of torch's activation modules: an activation called from there goes by that module's name.
FORWARDS = frozenset(
    vars(kind)["forward"].__code__
    for kind in vars(nn.modules.activation).values()
    if isinstance(kind, type) and issubclass(kind, nn.Module) and "forward" in vars(kind)
)
FRAMES = 4

# Where torch makes weights of other weights, of norms for example: nothing that a sample takes.
MAKES_WEIGHTS = "torch.nn.utils."
PRODUCTS = frozenset({"mul", "__mul__", "__rmul__", "multiply"})

RULE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


@lru_cache(maxsize=4)
def _actions(operations: bool, activations: bool) -> Mapping[str, int]:
    """What is to be done about a function, by its name."""
    found: dict[str, int] = {}
    if operations:
        found = (
            dict.fromkeys(RULES, _COUNT)
            | dict.fromkeys(LAYERS, _LAYER)
            | dict.fromkeys(BLIND, _MISS)
            | dict.fromkeys(PRODUCTS, _MULTIPLY)
        )
    return MappingProxyType(found | dict.fromkeys(ACTIVATIONS, _ACTIVATE) if activations else found)


class Watch(TorchFunctionMode):  # type: ignore[misc]
    """Counts operations and activations of the functions called inside of it, in this thread."""

    def __init__(self, tally: Tally, *, operations: bool, activations: bool) -> None:
        super().__init__()
        self.tally = tally
        self.inside = 0
        self._actions = _actions(operations, activations)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, then count it if it is one that counts."""
        result = func(*args, **kwargs) if kwargs else func(*args)
        name = getattr(func, "__name__", "")
        action = self._actions.get(name)
        if action is not None:
            if action == _LAYER:
                if kwargs or not self.tally.again(name, args):
                    self._count(name, result, args, kwargs or {})
            elif action == _COUNT:
                self._count(name, result, args, kwargs or {})
            elif action == _MISS:
                self.tally.miss(name, f"no rule counts torch's {name}")
            elif action == _MULTIPLY:
                if len(args) == 2:
                    self.tally.multiplied(args[0], args[1], result)
            elif not self.inside:
                self.tally.activations(self._module() or f"functional.{name.strip('_')}", result)
        return result

    def _count(self, name: str, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if name not in LAYERS and sys._getframe(2).f_globals.get("__name__", "").startswith(MAKES_WEIGHTS):
            return
        try:
            RULES[name](self.tally, result, args, kwargs)
        except RULE_ERRORS as error:
            weights = [x for x in args if isinstance(x, torch.Tensor) and self.tally.owner(x) is not None]
            where = self.tally.owner(weights[0]) if weights else None
            for weight in weights:
                self.tally.reached.pop(storage_of(weight) or 0, None)
            why = "its values cannot be read here" if "data pointer" in str(error) else str(error)
            self.tally.miss(where or name, f"{name}: {why}", sum(w.numel() for w in weights if w.dim() > 1))

    def _module(self) -> str | None:
        """Dotted name of the activation module whose code is calling, found among the nearest callers."""
        frame = sys._getframe(2)
        for _ in range(FRAMES):
            if frame.f_code in FORWARDS:
                return self.tally.module(frame.f_locals.get("self"))
            if frame.f_back is None:
                break
            frame = frame.f_back
        return None
