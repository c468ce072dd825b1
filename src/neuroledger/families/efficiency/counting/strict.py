"""Every torch function that a network calls passes by here; those that multiply are counted.

Functions are watched, not modules, so that a layer, the same layer written with functions, a layer called twice and a
layer called with keyword arguments all count as what they do. The watch belongs to one pass and one thread: other
passes over the same network, even at the same time, neither see it nor are seen.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _is_any_autocast_enabled
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from neuroledger.families.efficiency.counting import recurrent, rules
from neuroledger.families.efficiency.counting.counts import Need
from neuroledger.families.efficiency.counting.layer_counts import NESTED, Tally, storage_of
from neuroledger.families.efficiency.counting.network import Network, hooks_of
from neuroledger.families.efficiency.counting.rows import FLOATS
from neuroledger.families.efficiency.counting.spiking import membrane, operations_per_update, spikes
from neuroledger.families.efficiency.counting.static import CONNECTIONS, packed_weights

__all__ = ["StrictPass", "Watch"]

_LAYER, _COUNT, _MISS, _ACTIVATE, _MULTIPLY = 1, 2, 3, 4, 5

Rule = Callable[[Tally, Any, tuple[Any, ...], dict[str, Any]], None]

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "linear": rules.linear,
        "bilinear": rules.bilinear,
        "conv1d": rules.convolution,
        "conv2d": rules.convolution,
        "conv3d": rules.convolution,
        "conv_transpose1d": rules.transposed,
        "conv_transpose2d": rules.transposed,
        "conv_transpose3d": rules.transposed,
        **{
            name: rules.product(0)
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
        "__rmatmul__": lambda tally, result, args, kwargs: rules.products(tally, args[1], args[0]),
        **{
            name: rules.product(1)
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
        "inner": rules.inner,
        "convolution": rules.general_convolution,
        "_convolution": rules.general_convolution,
        "einsum": rules.einsum,
        "tensordot": rules.tensordot,
        **{kind: recurrent.stack(kind) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
        "lstm_cell": recurrent.cell("lstm"),
        "gru_cell": recurrent.cell("gru"),
        "rnn_tanh_cell": recurrent.cell("rnn_tanh"),
        "rnn_relu_cell": recurrent.cell("rnn_relu"),
        "multi_head_attention_forward": rules.multi_head,
        "scaled_dot_product_attention": rules.scaled_dot_product,
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
        found |= dict.fromkeys(LAYERS, _LAYER) | dict.fromkeys(rules.QUANTISED, _COUNT)
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
            rule = rules.packed if rules.is_packed(args) else RULES[name]
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


UNCOUNTED_QUANTISED = ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention")


class StrictPass:
    """What a strict pass hangs on a network: a watch over functions, and hooks on the few modules that need one.

    Hooks are there for spiking layers. They do something only while this pass itself runs the network, in its own
    thread, and are removed when the pass ends.
    """

    def __init__(self, network: Network, needs: frozenset[Need]) -> None:
        self.network = network
        self.tally = Tally(network)
        self.watch = Watch(self.tally, operations="operations" in needs, activations="activations" in needs)
        self.needs = needs
        self._thread: int | None = None
        self._before: dict[nn.Module, Tensor | None] = {}
        # Membranes as they were handed over, to find out layers that write into theirs; those that do not are kept.
        self._versions: dict[nn.Module, tuple[Tensor, int]] = {}
        self._replaces: set[nn.Module] = set()
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> StrictPass:
        if self.network.spiking:
            with hooks_of(self.network):
                self._register()
        return self

    def _register(self) -> None:
        watched = {"operations", "activations", "membranes"} & self.needs
        for name, child in self.network.parts if watched else ():
            label = name or type(child).__name__
            if name in self.network.spiking:
                self._hooks.append(child.register_forward_pre_hook(self._spiking_starts()))
                self._hooks.append(child.register_forward_hook(self._spiking_ends(label), always_call=True))

    def __exit__(self, *_: object) -> None:
        if self._hooks:
            with hooks_of(self.network):
                for hook in self._hooks:
                    hook.remove()
            self._hooks.clear()

    def begin(self, size: int) -> None:
        """Count what this thread does from here on to a batch of ``size`` samples."""
        self.tally.begin(size)
        self._before.clear()
        self._versions.clear()
        self._thread = threading.get_ident()
        self.watch.__enter__()

    def end(self) -> None:
        """Count no more."""
        self.watch.__exit__(None, None, None)
        self._thread = None
        self.watch.inside = 0

    def settle(self) -> None:
        """Settle the counts of the batch."""
        self.tally.settle()

    def finish(self) -> None:
        """Name what ran out of sight: weights that no operation used, in modules whose code cannot be watched."""
        self.tally.settle(last=True)
        if "operations" not in self.needs:
            return
        if not self.tally.uncounted and not any(layer.dense for layer in self.tally.layers.values()):
            for name, child in self.network.parts:
                if isinstance(child, CONNECTIONS):
                    why = "none of its operations was seen: it is not called, or runs in another thread"
                    self.tally.miss(name or type(child).__name__, why, self.tally.unreached(child))
                elif unseen := _own_weights(child):
                    why = "none of its operations was seen: its weights met none, or one in compiled code"
                    self.tally.miss(name or type(child).__name__, why, unseen)
        scripted = torch.jit.ScriptModule
        for name, child in self.network.parts:
            if isinstance(child, scripted):
                unseen = self.tally.unreached(child)
                frozen = not hasattr(child, "training") and _multiplies(
                    child
                )  # its weights are part of its code
                if unseen or frozen:
                    self.tally.miss(name, "compiled code cannot be watched", unseen)
            elif type(child).__name__ in UNCOUNTED_QUANTISED and ".quantized" in type(child).__module__:
                weights = sum(weight.numel() for weight in packed_weights(child).values())
                self.tally.miss(name, f"no rule counts a quantised {type(child).__name__}", weights)

    def _mine(self) -> bool:
        return self._thread == threading.get_ident()

    def _spiking_starts(self) -> Callable[..., None]:
        def start(layer: nn.Module, *_: Any) -> None:
            if self._mine():
                self.watch.inside += 1
                self._before[layer] = self._membrane(layer)

        return start

    def _membrane(self, layer: nn.Module) -> Tensor | None:
        """The membrane as it stands, out of reach of a layer that may write into it."""
        found = membrane(layer)
        if found is None or layer in self._replaces:
            return found
        with torch._C.DisableTorchFunction():
            if not found.is_inference():
                self._versions[layer] = (found, found._version)
            return found.clone()

    def _spiking_ends(self, label: str) -> Callable[..., None]:
        def end(layer: nn.Module, _: Any, output: Any) -> None:
            if not self._mine():
                return
            self.watch.inside -= 1
            before = self._before.pop(layer, None)
            handed, version = self._versions.pop(layer, (None, 0))
            if handed is not None and handed._version == version:
                self._replaces.add(layer)
            if output is None:
                return
            with torch._C.DisableTorchFunction():
                self._spikes(label, layer, before, output)

        return end

    def _spikes(self, label: str, layer: nn.Module, before: Tensor | None, output: Any) -> None:
        """Zeros among the spikes, and membranes that the step changed; the first step writes every one of them."""
        counts = self.tally.layer(label)
        fired = spikes(output)
        if "activations" in self.needs:
            self.tally.activations(label, fired)
        after = membrane(layer)
        if "membranes" in self.needs and after is not None:
            counts.membranes += after.numel()
            counts.neuron, counts.per_update = type(layer).__name__, operations_per_update(layer)
            if before is None or before.shape != after.shape:
                counts.updates += after.numel()
            elif after.is_cpu and after.dtype in FLOATS and before.dtype == after.dtype:
                changed = np.not_equal(after.detach().numpy(), before.detach().numpy())
                counts.updates += int(np.count_nonzero(changed))
            else:
                self.tally.add(counts, "updates", after.ne(before).sum())


def _own_weights(module: nn.Module) -> int:
    """Number of weights in matrices that a module of the user's own holds itself; one row alone connects nothing."""
    if type(module).__module__.startswith("torch.nn."):
        return 0
    own = module.parameters(recurse=False)
    return sum(weight.numel() for weight in own if sum(size > 1 for size in weight.shape) > 1)


def _multiplies(scripted: torch.jit.ScriptModule) -> bool:
    """Whether the code of a TorchScript module calls a function that multiplies and accumulates."""
    kinds = (node.kind().partition("::")[2] for node in scripted.inlined_graph.nodes())
    return any(kind in RULES or kind in BLIND for kind in kinds)
