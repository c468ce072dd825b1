"""Every torch function that a network calls passes by here; those that multiply are counted.

Functions are watched, not modules, so that a layer, the same layer written with functions, a layer called twice and a
layer called with keyword arguments all count as what they do. The watch belongs to one pass and one thread: other
passes over the same network, even at the same time, neither see it nor are seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch._C import _is_any_autocast_enabled
from torch.overrides import TorchFunctionMode

from neuroledger.families.efficiency.counting import attention, connections, products, quantised, recurrent
from neuroledger.families.efficiency.counting.derived_weights import NESTED
from neuroledger.families.efficiency.counting.layer_counts import Tally, storage_of

__all__ = ["ACTIVATIONS", "BLIND", "RULES", "Watch"]

_LAYER, _COUNT, _MISS, _ACTIVATE, _MULTIPLY = 1, 2, 3, 4, 5

Rule = Callable[[Tally, Any, tuple[Any, ...], dict[str, Any]], None]

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "linear": connections.linear,
        "bilinear": products.bilinear,
        "conv1d": connections.convolution,
        "conv2d": connections.convolution,
        "conv3d": connections.convolution,
        "conv_transpose1d": connections.transposed,
        "conv_transpose2d": connections.transposed,
        "conv_transpose3d": connections.transposed,
        **{
            name: products.product(0)
            for name in (
                "matmul",
                "__matmul__",
                "linalg_matmul",
                "mm",
                "bmm",
                "mv",
                "dot",
                "vdot",
                "_sparse_mm",
            )
        },
        "__rmatmul__": lambda tally, result, args, kwargs: products.products(tally, args[1], args[0]),
        **{
            name: products.product(1)
            for name in (
                "addmm",
                "addmm_",
                "addmv",
                "addmv_",
                "baddbmm",
                "baddbmm_",
                "addbmm",
                "addbmm_",
                "_sparse_addmm",
            )
        },
        "inner": products.inner,
        "convolution": connections.general_convolution,
        "_convolution": connections.general_convolution,
        "einsum": products.einsum,
        "tensordot": products.tensordot,
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
        "cdist", "chain_matmul", "linalg_multi_dot", "conv_tbc", "kron", "outer", "ger", "addr", "cov", "corrcoef",
        "_native_multi_head_attention", "_transformer_encoder_layer_fwd", "matrix_power", "linalg_matrix_power",
        "matrix_exp", "linalg_matrix_exp", "pairwise_distance", "cosine_similarity", "linalg_vecdot", "linalg_solve",
        "linalg_solve_triangular", "linalg_lstsq", "linalg_inv", "inverse", "cholesky_solve", "flex_attention",
        "sparse_sampled_addmm", "smm", "hspmm", "_int_mm", "_scaled_mm", "stft", "istft", "grad", "backward",
        *(f"fft_{inverse}{kind}fft{rank}" for inverse in ("", "i") for kind in ("", "r", "h") for rank in ("", "2", "n")),
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

OVERLOADS = ("default", "padding", "input", "data", "Tensor")

RULE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


@contextmanager
def _exact(result: Any) -> Iterator[None]:
    """Whatever the network has switched on around a call, counting is done in full precision and without gradients."""
    device = result.device.type if isinstance(result, torch.Tensor) else "cpu"
    with torch.no_grad(), torch.autocast(device, enabled=False), torch.autocast("cpu", enabled=False):
        yield


@lru_cache(maxsize=4)
def _actions(operations: bool, activations: bool) -> Mapping[str, int]:
    """What is to be done about a function, by its name."""
    found: dict[str, int] = {}
    if activations:
        found |= dict.fromkeys(ACTIVATIONS, _ACTIVATE)
    if operations:
        found |= dict.fromkeys(RULES, _COUNT)
        found |= dict.fromkeys(LAYERS, _LAYER) | dict.fromkeys(quantised.QUANTISED, _COUNT)
        found |= dict.fromkeys(BLIND, _MISS)
        found |= dict.fromkeys(PRODUCTS, _MULTIPLY)
    # Exported graphs call the same functions by an overload of their operator.
    plain = [name for name in found if not name.startswith("__")]
    overloads = {f"{name}.{which}": found[name] for name in plain for which in OVERLOADS}
    return MappingProxyType(found | {name: _COUNT if do == _LAYER else do for name, do in overloads.items()})


class Watch(TorchFunctionMode):  # type: ignore[misc]
    """Counts operations and activations of the functions called inside of it, in this thread."""

    def __init__(self, tally: Tally, *, operations: bool, activations: bool) -> None:
        super().__init__()
        self.tally = tally
        self.inside = 0
        self._has = tally.made.has
        self._actions = _actions(operations, activations)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, then count it if it is one that counts."""
        result = func(*args, **kwargs) if kwargs else func(*args)
        name = getattr(func, "__name__", "")
        action = self._actions.get(name)
        first = args[0] if args else None
        if (self._has(id(first)) or first.__class__ in NESTED) and self._of_weights(
            name, args, kwargs, result
        ):
            return result
        if action is not None:
            if action == _LAYER:
                if kwargs or _is_any_autocast_enabled() or not self.tally.again(name, args):
                    self._count(name, result, args, kwargs or {})
            elif action == _COUNT:
                self._count(name, result, args, kwargs or {})
            elif action == _MISS:
                self._miss(name, args)
            elif action == _MULTIPLY:
                if len(args) == 2:
                    self.tally.multiplied(args[0], args[1], result)
            elif not self.inside:
                self.tally.activations(
                    self._module() or f"functional.{name.partition('.')[0].strip('_')}", result
                )
        return result

    def _of_weights(self, name: str, args: tuple[Any, ...], kwargs: Any, result: Any) -> bool:
        """Whether a call made weights of weights, which is nothing that a sample takes."""
        if torch.compiler.is_compiling():
            return False
        if self._actions.get(name) in (_LAYER, _COUNT) and self.tally.made.state(args[0], self.tally.samples):
            return False
        return self.tally.made.follow(name, args, kwargs, result)

    def _count(self, name: str, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = name.partition(".")[0]
        if name not in LAYERS and self._makes_weights():
            return
        try:
            rule = quantised.packed if quantised.is_packed(args) else RULES[name]
            if torch.is_grad_enabled() or _is_any_autocast_enabled():
                with _exact(result):
                    rule(self.tally, result, args, kwargs)
            else:
                rule(self.tally, result, args, kwargs)
        except RULE_ERRORS as error:
            why = "its values cannot be read here" if "data pointer" in str(error) else str(error)
            self._miss(name, args, f"{name}: {why}")

    def _miss(self, name: str, args: tuple[Any, ...], why: str = "") -> None:
        """Name a function that is not counted, by the module whose weights it was handed."""
        if torch.compiler.is_compiling():
            self.tally.miss(name, f"no rule counts torch's {name}")
            return
        if self._makes_weights():
            return
        several = [x for given in args for x in (given if isinstance(given, (list, tuple)) else (given,))]
        weights = [x for x in several if isinstance(x, torch.Tensor) and self.tally.weight_of(x) is not None]
        where = self.tally.weight_of(weights[0]) if weights and why else None
        for weight in weights:
            self.tally.reached.pop(storage_of(weight) or 0, None)
        size = sum(weight.numel() for weight in weights if weight.dim() > 1)
        self.tally.miss(where or name, why or f"no rule counts torch's {name}", size)

    @staticmethod
    def _makes_weights() -> bool:
        return str(sys._getframe(3).f_globals.get("__name__", "")).startswith(MAKES_WEIGHTS)

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
