"""The strict pass: every torch function that a network calls is intercepted, and those that multiply are counted.

Functions are intercepted, not modules. A layer, the same layer written with functions, a layer called twice and a layer
called with keyword arguments are therefore all counted for what they compute. An interception belongs to one pass and one
thread: concurrent passes over the same network do not affect each other.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _is_any_autocast_enabled
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.hooks import RemovableHandle

from neuroledger.families.efficiency.counting import attention, recurrent, rules
from neuroledger.families.efficiency.counting.counts import Layer, Need
from neuroledger.families.efficiency.counting.layer_counts import NESTED, Tally
from neuroledger.families.efficiency.counting.network import Network, hooks_of
from neuroledger.families.efficiency.counting.rows import FLOATS
from neuroledger.families.efficiency.counting.spiking import SpikingLayer, spikes
from neuroledger.families.efficiency.counting.state import is_custom
from neuroledger.families.efficiency.counting.static import compiled_graphs, packed_weights
from neuroledger.families.efficiency.counting.unruled import (
    BLIND,
    DECOMPOSED,
    ENDS_PROCESS,
    LEAVES,
    SINGLE,
    UNSEEN_BELOW,
    refuse_unsafe_product,
)

__all__ = ["LEFT", "FunctionWatch", "StrictPass"]

LEFT: Final = "values leave torch: what is computed from them is not seen"
_LAYER, _COUNT, _MISS, _ACTIVATE, _MULTIPLY, _ADD, _TABLE, _LEAVE, _SPREAD, _COPY, _LISTS = range(1, 12)

Rule = Callable[[Tally, Any, tuple[Any, ...], dict[str, Any]], None]

# Layers and attention under the names of their implementations.
FUSED: Mapping[str, Rule] = MappingProxyType(
    {
        **dict.fromkeys(("mkldnn_linear", "_weight_int8pack_mm"), rules.linear),
        **dict.fromkeys(
            ("fbgemm_linear_int8_weight", "fbgemm_linear_int8_weight_fp32_activation"), rules.shifted_linear
        ),
        "_scaled_dot_product_attention_math": attention.math_attention,
        "_scaled_dot_product_flash_attention_for_cpu": attention.fused_attention,
        "_scaled_dot_product_flash_attention": attention.fused_attention,
    }
)

# Names of matrix products: of the first two tensors, or of the two after an added one.
MATRIX_PRODUCTS = (
    "matmul", "__matmul__", "linalg_matmul", "mm", "bmm", "mv", "dot", "vdot", "_sparse_mm", "spmm", "_int_mm", "_scaled_mm",
)  # fmt: skip
ADDED_PRODUCTS = (
    "addmm", "addmm_", "addmv", "addmv_", "baddbmm", "baddbmm_", "addbmm", "addbmm_", "_sparse_addmm", "saddmm", "sspaddmm",
)  # fmt: skip

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "linear": rules.linear,
        "bilinear": rules.bilinear,
        **dict.fromkeys(("conv1d", "conv2d", "conv3d", "_convolution_mode"), rules.convolution),
        **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), rules.transposed),
        **dict.fromkeys(("convolution", "_convolution"), rules.general_convolution),
        **dict.fromkeys(MATRIX_PRODUCTS, rules.product(0)),
        **dict.fromkeys(ADDED_PRODUCTS, rules.product(1)),
        "__rmatmul__": lambda tally, result, args, kwargs: rules.products(tally, args[1], args[0]),
        "inner": rules.inner,
        "einsum": rules.einsum,
        "tensordot": rules.tensordot,
        **{kind: recurrent.stack(kind) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
        **{f"{kind}_cell": recurrent.cell(kind) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
        "multi_head_attention_forward": attention.multi_head,
        "scaled_dot_product_attention": attention.scaled_dot_product,
        **FUSED,
    }
)

# Functions of an input, a weight and a bias, most of whose calls repeat an earlier one.
LAYERS = frozenset(
    {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
)

# A function that is counted from its parts, which are recorded while it runs.
WHOLE = "multi_head_attention_forward"

# Rules of operators below torch's functions, by name.
BELOW: Mapping[str, Rule] = MappingProxyType(
    {
        **{
            name: rules.product(0)
            for name in ("mm", "bmm", "mv", "dot", "vdot", "_int_mm", "_scaled_mm", "_sparse_sparse_matmul")
        },
        **{
            name + suffix: rules.product(1)
            for name in ("addmm", "baddbmm", "addmv", "addbmm", "_addmm_activation", "sspaddmm")
            for suffix in ("", "_")
        },
        "linear": rules.linear,
        "convolution": rules.general_convolution,
        "_convolution": rules.general_convolution,
        **FUSED,
    }
)
GATED = frozenset({"lstm", "gru", "lstm_cell", "gru_cell"})
"""Layers of TorchScript whose products among the gates are elementwise, and not counted."""

ACTIVATIONS = frozenset(
    {
        "relu", "relu_", "relu6", "sigmoid", "sigmoid_", "tanh", "tanh_", "gelu", "elu", "elu_", "selu", "selu_", "celu",
        "celu_", "silu", "mish", "leaky_relu", "leaky_relu_", "hardtanh", "hardtanh_", "prelu", "threshold",
        "threshold_", "_threshold", "softplus", "softsign", "hardswish", "hardsigmoid", "hardshrink", "softshrink",
        "tanhshrink", "log_sigmoid", "logsigmoid", "rrelu", "rrelu_", "glu",
    }
)  # fmt: skip

# The code of torch's activation modules: an activation called from there is attributed to that module.
FORWARDS = frozenset(
    vars(kind)["forward"].__code__
    for kind in vars(nn.modules.activation).values()
    if isinstance(kind, type) and issubclass(kind, nn.Module) and "forward" in vars(kind)
)
FRAMES = 4

# Where torch computes weights from other weights, such as norms: not a cost per sample.
MAKES_WEIGHTS = "torch.nn.utils."
PRODUCTS = frozenset({"mul", "__mul__", "__rmul__", "__imul__", "mul_", "multiply"})
SUMS = frozenset(
    {"add", "__add__", "__radd__", "__iadd__", "add_", "sub", "__sub__", "__rsub__", "__isub__", "sub_"}
)

# Other functions that may broadcast a matrix over sample values.
SPREADS = frozenset(
    {
        "addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_", "where", "div", "div_", "divide", "true_divide",
        "__truediv__", "__rtruediv__", "__div__", "__rdiv__", "__itruediv__", "masked_fill", "pow", "__pow__", "__rpow__",
        "maximum", "minimum", "fmod", "remainder", "logical_and", "__and__", "xlogy", "hypot",
    }
)  # fmt: skip

# The first argument of these functions is added to the result.
ADDED = ("addcmul", "addcdiv", "_foreach_addc")

# The same for lists of tensors.
LISTS = frozenset(
    f"_foreach_{name}{inplace}"
    for name in ("mul", "div", "addcmul", "addcdiv", "lerp", "pow", "maximum", "minimum")
    for inplace in ("", "_")
)

# Functions that rearrange values; some repeat values.
COPIES = frozenset(
    {
        "repeat", "tile", "repeat_interleave", "expand", "expand_as", "broadcast_to", "contiguous", "clone", "reshape",
        "reshape_as", "view", "view_as", "flatten", "unflatten", "unsqueeze", "squeeze", "transpose", "swapaxes", "permute",
        "movedim", "t", "index_select", "__getitem__", "gather", "take", "take_along_dim", "stack", "cat", "concat",
        "concatenate", "hstack", "vstack", "unfold", "im2col", "to", "float", "double",
    }
)  # fmt: skip

OVERLOADS = ("default", "padding", "input", "data", "Tensor")

RULE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError)


@contextmanager
def _full_precision(result: Any) -> Iterator[None]:
    """Count in full precision and without gradients, whatever mode the network has set."""
    device = result.device.type if isinstance(result, torch.Tensor) else "cpu"
    with torch.no_grad(), torch.autocast(device, enabled=False), torch.autocast("cpu", enabled=False):
        yield


def _contiguous_input(name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of a linear layer with a contiguous input, which torch and the count would each copy."""
    x: Any = args[0] if args else None
    if name != "linear" or x.__class__ is not Tensor or x.layout is not torch.strided or x.is_contiguous():
        return args
    if x.dim() != 2 or not x.is_cpu:
        return args
    return args if 1 in x.stride() else (x.contiguous(), *args[1:])


def _reason(name: str, args: tuple[Any, ...], error: Exception) -> str:
    """Return the reason why a rule did not count a call."""
    nested = any(isinstance(x, torch.Tensor) and x.is_nested for x in args)
    return f"{name}: {'nested tensors are not counted' if nested else error}"


def _leaves_torch(name: str, values: Tensor) -> bool:
    """Return whether more than a summary of a tensor leaves torch: several values, or one of several."""
    if name not in SINGLE:
        return values.numel() > 1 and (name != "tolist" or values.dtype.is_floating_point)
    if not values.dtype.is_floating_point or values.layout is not torch.strided:
        return False
    return bool(values.untyped_storage().nbytes() > values.element_size())


def _is_copied() -> bool:
    """Return whether Python's ``copy`` requests the values: its result is again a tensor."""
    frame = sys._getframe(3)
    for _ in range(FRAMES):
        if frame.f_globals.get("__name__") == "copy":
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


@lru_cache(maxsize=4)
def _actions(operations: bool, activations: bool) -> Mapping[str, int]:
    """Return the action for each function name."""
    actions: dict[str, int] = {}
    if activations:
        actions |= dict.fromkeys(ACTIVATIONS, _ACTIVATE)
    if operations:
        actions |= dict.fromkeys(RULES, _COUNT)
        actions |= dict.fromkeys(LAYERS, _LAYER) | dict.fromkeys(rules.QUANTISED, _COUNT)
        actions |= dict.fromkeys(BLIND, _MISS)
        actions |= dict.fromkeys(PRODUCTS, _MULTIPLY) | dict.fromkeys(SUMS, _ADD)
        actions |= (
            dict.fromkeys(SPREADS, _SPREAD) | dict.fromkeys(LISTS, _LISTS) | dict.fromkeys(COPIES, _COPY)
        )
        actions |= dict.fromkeys(LEAVES | SINGLE, _LEAVE) | {"embedding": _TABLE, "embedding_bag": _TABLE}
    # Exported graphs call the same functions by an overload of their operator.
    plain = [name for name in actions if not name.startswith("__")]
    overloads = {f"{name}.{which}": actions[name] for name in plain for which in OVERLOADS}
    return MappingProxyType(
        actions | {name: _COUNT if action == _LAYER else action for name, action in overloads.items()}
    )


OPERATORS = frozenset({OpOverload, OpOverloadPacket})
# Operators that run parts of a program without visible calls of torch's functions.
RUNS_PARTS = frozenset({"cond", "while_loop", "scan", "associative_scan", "map_impl"})
# Operators of torchvision that select boxes, or interpolate images.
RESAMPLING = frozenset(
    f"torchvision::{name}" for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
)


class FunctionWatch(TorchFunctionMode):  # type: ignore[misc]
    """Counts operations and activations of the torch functions that are called in its context, in this thread."""

    def __init__(self, tally: Tally, *, operations: bool, activations: bool) -> None:
        super().__init__()
        self.tally = tally
        self.inside = 0
        self.operators_below: OperatorWatch | None = None
        self.uncounted: set[str] = (
            set()
        )  # functions without a successful rule, which may be counted by their operators
        self.operators: set[str] = set()  # custom operators that were called
        self._has = tally.derived.has
        self._actions = _actions(operations, activations)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call the function, then count it if there is an action for it."""
        name = getattr(func, "__name__", "")
        action = self._actions.get(name)
        if (
            action is None and func.__class__ is OpOverload and func.namespace == "aten"
        ):  # such as in-place overloads
            name = func._opname
            action = self._actions.get(name)
            action = _COUNT if action == _LAYER else action
        below = self.operators_below
        if action == _COUNT and name == WHOLE:
            func = attention.record_parts(self.tally, func)
        elif action == _COUNT and name in ENDS_PROCESS:
            refuse_unsafe_product(*args[:2])
        elif action == _LAYER:
            args = _contiguous_input(name, args)
            # An input of a known site is counted before its layer runs, whose weights evict it from the cache.
            if below is None and not kwargs and not self._has(id(args[0])) and not _is_any_autocast_enabled():
                if self.tally.count_again(name, args):
                    return func(*args)
                result = func(*args)
                self._count(name, result, args, {})
                return result
        if below is not None:
            action, result = below.under(func, name, action, args, kwargs or {})
            with below.paused():
                self._note(name, action, args, kwargs, result)
            return result
        result = func(*args, **kwargs) if kwargs else func(*args)
        if action is None and (func.__class__ in OPERATORS or isinstance(func, HigherOrderOperator)):
            self._operator(func)
        self._note(name, action, args, kwargs, result)
        if self.tally.outside:
            self.tally.outside.add_derived(args, result)
        return result

    def _operator(self, func: Any) -> None:
        """Record a custom operator, which is reported if nothing counts it."""
        if isinstance(func, HigherOrderOperator):
            if func.name() in RUNS_PARTS:
                self.operators.add(func.name())
            return
        name = func.name() if isinstance(func, OpOverload) else str(func._qualified_op_name)
        if not name.startswith(("aten::", "prims::", "quantized::")) and name not in RESAMPLING:
            self.operators.add(name)

    def _note(
        self, name: str, action: int | None, args: tuple[Any, ...], kwargs: dict[str, Any] | None, result: Any
    ) -> None:
        """Count a call whose result is known."""
        first = args[0] if args else None
        if self._has(id(first)) or first.__class__ in NESTED:
            if self._is_derived_from_weights(name, args, kwargs, result):
                return
            if action in (_LAYER, _COUNT):
                args, result = self._expand_shared_state(args, result)
        if action is not None:
            if action == _LAYER:
                if kwargs or _is_any_autocast_enabled() or not self.tally.count_again(name, args):
                    self._count(name, result, args, kwargs or {})
            elif action == _COUNT:
                self._count(name, result, args, kwargs or {})
            elif action == _MISS:
                self._add_uncounted(name, args)
            elif action in (_MULTIPLY, _ADD):
                if len(args) == 2 and (self._has(id(first)) or self._has(id(args[1]))):
                    self.tally.note_elementwise(args[0], args[1], result, product=action == _MULTIPLY)
                elif action == _MULTIPLY:
                    self._spread(args, kwargs, result)
            elif action == _SPREAD:
                self._spread(args[1:] if name.startswith(ADDED) else args, kwargs, result)
            elif action == _COPY:
                self.tally.outside.repeated.add(first if first.__class__ in NESTED else args[:1], result)
            elif action == _LISTS:
                answers, *lists = (x for x in (result, *args) if isinstance(x, (list, tuple)))
                lists = [answers, *lists] if result is None else lists  # written into the first list
                for answer, *factors in zip(answers, *lists[name.startswith(ADDED) :], strict=False):
                    self._spread(tuple(factors), None, answer)
            elif action == _TABLE:
                for table in args[:2]:
                    if isinstance(table, torch.Tensor) and self.tally.weight_of(table) is not None:
                        self.tally.exclude(table)
                # Weights of the rows of a bag, if any, follow its sixth argument.
                weighted = (kwargs or {}).get("per_sample_weights")
                if weighted is not None or any(isinstance(value, torch.Tensor) for value in args[6:]):
                    self._add_uncounted(name, args, f"no rule counts the weighted rows of torch's {name}")
            elif action == _LEAVE:
                if isinstance(first, torch.Tensor) and _leaves_torch(name, first) and not _is_copied():
                    self.tally.add_uncounted(name, LEFT)
            elif not self.inside:
                self.tally.activations(
                    self._module() or f"functional.{name.partition('.')[0].strip('_')}", result
                )

    def _spread(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None, result: Any) -> None:
        """Record a matrix outside of modules if sample values are combined with it elementwise."""
        if self.tally.outside:
            keyword_values = [value for key, value in kwargs.items() if key != "out"] if kwargs else []
            self.tally.check_outside_product((*args, *keyword_values), result)

    def _is_derived_from_weights(self, name: str, args: tuple[Any, ...], kwargs: Any, result: Any) -> bool:
        """Return whether a call computed weights from weights, which is not a cost per sample."""
        if torch.compiler.is_compiling():
            return False
        if self._actions.get(name) in (_LAYER, _COUNT) and self.tally.derived.is_state(
            args[0], self.tally.samples
        ):
            return False
        return self.tally.derived.follow(name, args, kwargs, result)

    def _expand_shared_state(self, args: tuple[Any, ...], result: Any) -> tuple[tuple[Any, ...], Any]:
        """Return arguments and result of a layer on a state shared by all samples, expanded to one row per sample."""
        first, samples = args[0], self.tally.samples
        derived = self.tally.derived
        if (
            not derived.is_state(first, samples)
            or len(first) == samples
            or not derived.uses_weights_only(args)
        ):
            return args, result
        if isinstance(result, torch.Tensor) and result.shape[:1] == (1,):
            result = result.expand(samples, *result.shape[1:])
        return (first.expand(samples, *first.shape[1:]), *args[1:]), result

    def _count(self, name: str, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = name.partition(".")[0]
        if name not in LAYERS and self._is_called_by_weight_utilities():
            return
        try:
            rule = rules.packed if rules.is_packed(args) else RULES[name]
            if torch.is_grad_enabled() or _is_any_autocast_enabled():
                with _full_precision(result):
                    rule(self.tally, result, args, kwargs)
            else:
                rule(self.tally, result, args, kwargs)
        except RULE_ERRORS as error:
            self.uncounted.add(name)
            self._add_uncounted(name, args, _reason(name, args, error))

    def _add_uncounted(self, name: str, args: tuple[Any, ...], why: str = "") -> None:
        """Report a function that is not counted, under the module of its weights if ``why`` is given."""
        if torch.compiler.is_compiling():
            self.tally.add_uncounted(name, f"no rule counts torch's {name}")
            return
        if self._is_called_by_weight_utilities():
            return
        if name in DECOMPOSED:
            self.uncounted.add(name)
        arguments = [
            x for argument in args for x in (argument if isinstance(argument, (list, tuple)) else (argument,))
        ]
        weights = [
            x for x in arguments if isinstance(x, torch.Tensor) and self.tally.weight_of(x) is not None
        ]
        where = self.tally.weight_of(weights[0]) if weights and why else None
        for weight in weights:
            self.tally.mark_unreached(weight)
        size = sum(weight.numel() for weight in weights if weight.dim() > 1)
        self.tally.add_uncounted(where or name, why or f"no rule counts torch's {name}", size)

    @staticmethod
    def _is_called_by_weight_utilities() -> bool:
        return str(sys._getframe(4).f_globals.get("__name__", "")).startswith(MAKES_WEIGHTS)

    def _module(self) -> str | None:
        """Return the dotted name of the calling activation module, found among the nearest callers."""
        frame = sys._getframe(3)
        for _ in range(FRAMES):
            if frame.f_code in FORWARDS:
                return self.tally.module(frame.f_locals.get("self"))
            if frame.f_back is None:
                break
            frame = frame.f_back
        return None


UNCOUNTED_QUANTISED = ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention")


class OperatorWatch(TorchDispatchMode):  # type: ignore[misc]
    """Counts products in the dispatcher that no rule of a function counts.

    These come from TorchScript, ``vmap``, custom operators, and functions whose rule fails. Intercepting every operator is
    slow, so it is enabled only if something is uncounted without it.
    """

    supports_higher_order_operators = True  # conditions and loops of a traced program

    def __init__(self, tally: Tally, uncounted: frozenset[str]) -> None:
        super().__init__()
        self.tally, self.uncounted = tally, uncounted
        self.products = 0
        self._claimed = 0

    def under(
        self, func: Any, name: str, action: int | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int | None, Any]:
        """Return the remaining action for a function, and its result; its operators count unless it has a rule."""
        if action in (_LAYER, _COUNT) and name.partition(".")[0] in self.uncounted:
            return None, func(*args, **kwargs)
        if action not in (_LAYER, _COUNT) and (action != _MISS or name in DECOMPOSED):
            before = self.products
            result = func(*args, **kwargs)
            return (
                None if action == _MISS and name in DECOMPOSED and self.products > before else action
            ), result
        self._claimed += 1
        try:
            return action, func(*args, **kwargs)
        finally:
            self._claimed -= 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, then count it if it multiplies and accumulates."""
        kwargs = kwargs or {}
        if self._claimed:
            return func(*args, **kwargs)
        if isinstance(func, HigherOrderOperator):
            return self._run_higher_order(func, args, kwargs)
        if func.namespace not in ("aten", "prim", "prims"):
            return self._run_custom_operator(func, args, kwargs)
        name = func._opname
        if name in ENDS_PROCESS:
            refuse_unsafe_product(*args[:2])
        if name in GATED:
            self.tally.add_uncounted(
                name, f"the products among the gates of a compiled {name} are not counted"
            )
        if name not in BELOW and func._can_decompose():  # inside a custom operator
            with torch._C.DisableTorchFunction(), self:
                return func.decompose(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # without a calling function, the function watch is active
            result = func(*args, **kwargs)
        rule = BELOW.get(name)
        if rule is not None or name in PRODUCTS or name in SUMS:
            with torch._C.DisableTorchFunction(), _full_precision(result):
                for value in args:
                    if isinstance(value, torch.Tensor):
                        self.tally.adopt(value)
                if rule is None:
                    self.tally.note_elementwise(args[0], args[1], result, product=name in PRODUCTS)
                    return result
                try:
                    rule(self.tally, result, args, kwargs)
                    self.products += 1
                except RULE_ERRORS as error:
                    self.tally.add_uncounted(name, _reason(name, args, error))
        elif name in UNSEEN_BELOW:
            self.tally.add_uncounted(name, f"no rule counts torch's {name}")
        return result

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count operators within this context: they are not the network's."""
        self._claimed += 1
        try:
            yield
        finally:
            self._claimed -= 1

    def _run_higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a condition or loop with its parts observed; report any other operator that takes programs."""
        if func.name() == "cond":
            condition, if_true, if_false, operands = args
            with self:
                return (if_true if condition else if_false)(*operands)
        eager = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        if func.name() not in RUNS_PARTS - {"scan"} or eager is None:  # scan cannot run under this mode
            self.tally.add_uncounted(func.name(), "no rule counts this operator")
            return func(*args, **kwargs)
        with self:
            return eager(*args, **kwargs)

    def _run_custom_operator(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a custom operator: observed if it is written in Python, otherwise reported."""
        definition: Any = OPDEFS.get(f"{func.namespace}::{func._opname}")
        if definition is None or set(definition._backend_fns) - {None}:
            if any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args):
                self.tally.add_uncounted(func.name(), "no rule counts this operator")
            return func(*args, **kwargs)
        with self:
            return definition._init_fn(*args, **kwargs)


def uses_torchscript(part: nn.Module) -> bool:
    """Return whether a module is TorchScript, or uses a TorchScript function, whose operators are not visible."""
    if isinstance(part, torch.jit.ScriptModule):
        return True
    if not is_custom(part):
        return False
    kinds = {type(value) for value in vars(part).values()}
    code = getattr(type(part).forward, "__code__", None)
    namespace = getattr(type(part).forward, "__globals__", {})
    kinds |= {type(namespace.get(name)) for name in code.co_names} if code is not None else set()
    return torch.jit.ScriptFunction in kinds


class StrictPass:
    """A strict pass over a network: a watch over functions, and hooks on the spiking layers.

    Hooks are active only while this pass runs the network, in its own thread, and are removed at the end. With
    ``uncounted`` (names of functions that no rule counts), operators below torch's functions are counted too.
    """

    def __init__(
        self, network: Network, needs: frozenset[Need], uncounted: frozenset[str] | None = None
    ) -> None:
        self.network = network
        self.tally = Tally(network)
        self.watch = FunctionWatch(
            self.tally, operations="operations" in needs, activations="activations" in needs
        )
        if uncounted is None and any(uses_torchscript(part) for _, part in network.parts):
            uncounted = frozenset()
        if uncounted is not None and "operations" in needs:
            self.watch.operators_below = OperatorWatch(self.tally, uncounted)
        self.needs = needs
        self._thread: int | None = None
        self._before: dict[nn.Module, Tensor | None] = {}
        # Membranes before each step, to detect layers that modify them in place; ``_replaces`` are layers that do not.
        self._versions: dict[nn.Module, tuple[Tensor, int]] = {}
        self._replaces: set[nn.Module] = set()
        self._single: set[str] = set()  # layers that took a single step in their first call of this batch
        self._hooks: list[RemovableHandle] = []
        self._undo: list[Callable[[], None]] = []
        self.called = False  # whether a call of a spiking layer was observed
        self._suspensions: list[Any] = []  # contexts that suspend the watch while elementwise layers run

    def __enter__(self) -> StrictPass:
        if self.network.spiking:
            with hooks_of(self.network):
                self._register()
        return self

    def _register(self) -> None:
        trace_functions = {"operations", "activations", "membranes"} & self.needs
        for name, layer in self.network.spiking.items() if trace_functions else ():
            child, quiet = layer.module, layer.is_elementwise()
            start = self._spiking_starts(layer, quiet)
            self._hooks.append(child.register_forward_pre_hook(start))
            end = self._spiking_ends(name or type(child).__name__, layer, quiet)
            self._undo.append(layer.watch_functional_calls(start, end, self._is_active))
            self._hooks.append(child.register_forward_hook(end, always_call=True))

    def __exit__(self, *_: object) -> None:
        if self._hooks:
            with hooks_of(self.network):
                for hook in self._hooks:
                    hook.remove()
                for undo in self._undo:
                    undo()
            self._hooks.clear()
            self._undo.clear()

    def begin(self, size: int, shape: tuple[int, ...] = ()) -> None:
        """Start counting in this thread, for a batch of ``size`` samples."""
        if not self.tally.batch and self.network.state is not None and "operations" in self.needs:
            self.tally.outside.add(
                x for x in self.network.state.tensors if self.tally.derived.origin(x) is None
            )
            if self.watch.operators_below is None and (
                self.network.state.scripted or self.network.state.hides_functions
            ):
                self.watch.operators_below = OperatorWatch(self.tally, frozenset())
        self.tally.begin(size, shape)
        self._before.clear()
        self._versions.clear()
        self._single.clear()
        self._thread = threading.get_ident()
        if self.watch.operators_below is not None:
            self.watch.operators_below.__enter__()
        self.watch.__enter__()

    def end(self) -> None:
        """Stop counting."""
        while self._suspensions:  # a user's hook failed between the hooks of this pass
            self._suspensions.pop().__exit__(None, None, None)
        self.watch.__exit__(None, None, None)
        if self.watch.operators_below is not None:
            self.watch.operators_below.__exit__(None, None, None)
        self._thread = None
        self.watch.inside = 0

    def settle(self) -> None:
        """Complete the counts of the batch."""
        self.tally.settle()

    def hidden(self) -> frozenset[str] | None:
        """Return, after the first batch, the functions whose operators a second pass should count; None if not needed."""
        if "operations" not in self.needs:
            return None
        below = self.watch.operators_below
        if below is not None:  # the first batch also reveals functions whose rules fail
            more = self.watch.uncounted - below.uncounted
            return below.uncounted | more if more else None
        met, reached, _ = self.tally.coverage()
        hides = self.watch.uncounted or self.watch.operators or reached < met
        return frozenset(self.watch.uncounted) if hides else None

    def finish(self) -> None:
        """Complete the counts of the pass, and report layers that no rule counts completely."""
        self.tally.settle(last=True)
        if self.network.state is not None and "operations" in self.needs:
            for name in sorted(self.network.state.concurrency):
                self.tally.add_uncounted(name, "what other threads and processes compute is not seen")
        for operator in sorted(self.watch.operators):
            self.tally.add_uncounted(operator, "no rule counts this operator")
        for name, child in self.network.parts if "operations" in self.needs else ():
            for graph in compiled_graphs(child):
                for kind in sorted(kind for kind in GATED if graph.findAllNodes(f"aten::{kind}")):
                    why = f"the products among the gates of a compiled {kind} are not counted"
                    self.tally.add_uncounted(name or type(child).__name__, why)
            if type(child).__name__ in UNCOUNTED_QUANTISED and ".quantized" in type(child).__module__:
                weights = sum(weight.numel() for weight in packed_weights(child).values())
                self.tally.uncounted.pop(
                    f"quantized_{type(child).__name__.lower()}", None
                )  # reported here, with its name
                self.tally.add_uncounted(name, f"no rule counts a quantised {type(child).__name__}", weights)

    def _is_active(self) -> bool:
        return self._thread == threading.get_ident()

    def _spiking_starts(self, layer: SpikingLayer, quiet: bool) -> Callable[..., None]:
        membranes = "membranes" in self.needs

        def start(module: nn.Module, arguments: Any) -> None:
            if self._is_active():
                self.watch.inside += 1
                if membranes:
                    self._before[module] = self._membrane(layer.membrane(arguments), module)
                    layer.record_membrane()
                if quiet:
                    self._suspensions.append(torch._C.DisableTorchFunction())
                    self._suspensions[-1].__enter__()

        return start

    def _membrane(self, membrane: Tensor | None, layer: nn.Module) -> Tensor | None:
        """Return the membrane before a step, as a copy if the layer may modify it in place."""
        if membrane is None or layer in self._replaces:
            return membrane
        with torch._C.DisableTorchFunction():
            if not membrane.is_inference():
                self._versions[layer] = (membrane, membrane._version)
            return membrane.clone()

    def _spiking_ends(self, label: str, layer: SpikingLayer, quiet: bool) -> Callable[..., None]:
        operations_alone = self.needs == {"operations"}

        def end(module: nn.Module, _: Any, output: Any) -> None:
            if not self._is_active():
                return
            self.called = True
            if quiet and self._suspensions:
                self._suspensions.pop().__exit__(None, None, None)
            self.watch.inside -= 1
            if operations_alone and output is not None and label in self._single:
                self.tally.note_steps(label, spikes(output))
                return
            before = self._before.pop(module, None)
            membrane, version = self._versions.pop(module, (None, 0))
            if membrane is not None and membrane._version == version:
                self._replaces.add(module)
            if output is None:
                return
            with torch._C.DisableTorchFunction(), self._unobserved():
                self._spikes(label, layer, before, output)

        return end

    def _unobserved(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.watch.operators_below is None else self.watch.operators_below.paused()

    def _spikes(self, label: str, layer: SpikingLayer, before: Tensor | None, output: Any) -> None:
        """Count zeros among the spikes, and membranes that the step changed; the first step writes all."""
        counts = self.tally.layer(label)
        spiked = spikes(output)
        if "activations" in self.needs:
            self.tally.activations(label, spiked)
        if label in self._single and "membranes" not in self.needs:
            self.tally.note_steps(label, spiked)
            return
        after, over_time = layer.membrane(output), layer.membrane_over_time(output)
        self.tally.note_spiking_call(
            label, spiked, after, 1 if over_time is None else over_time[0].shape[over_time[1]]
        )
        counts.neuron, counts.per_update = type(layer.module).__name__, layer.operations_per_update()
        counts.state_bytes = layer.state_bytes(output, spiked.numel() if after is None else after.numel())
        if over_time is None:
            self._single.add(label)
        if "membranes" not in self.needs:
            return
        if over_time is not None and over_time[0].numel() == spiked.numel():
            membranes, axis = over_time
            self._updates(counts, before, membranes.select(axis, 0))
            self.tally.add(counts, "updates", membranes.diff(dim=axis).ne(0).sum())
            counts.membranes += membranes.numel() - membranes.select(axis, 0).numel()
        elif after is None or spiked.numel() != after.numel():
            self.tally.unreadable_membranes.add(label)
        else:
            self._updates(counts, before, after)

    def _updates(self, counts: Layer, before: Tensor | None, after: Tensor) -> None:
        """Count the membranes that one step changed."""
        counts.membranes += after.numel()
        if before is None or before.shape != after.shape:
            counts.updates += after.numel()
        elif after.is_cpu and after.dtype in FLOATS and before.dtype == after.dtype:
            changed = np.not_equal(after.detach().numpy(), before.detach().numpy())
            counts.updates += int(np.count_nonzero(changed))
        else:
            self.tally.add(counts, "updates", after.ne(before).sum())
