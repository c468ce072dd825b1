"""Counting on torch's operators: one mode below all of torch's functions, and one rule for each kind of operator.

Every function of torch, layer, script or compiled graph is decomposed into operators before this mode sees them. An
operator has a rule (:func:`counting_rule`), is free by definition (:mod:`.free`), or is reported as uncounted with its
name. The mode belongs to one thread: concurrent passes do not affect each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from neuroledger.families.efficiency.counting.free import (
    ACTIVATIONS,
    CONVERTS,
    MULTIPLIES,
    SINGLE,
    SUMS,
    is_free,
    leaves_torch,
)
from neuroledger.families.efficiency.counting.network import tensors_of
from neuroledger.families.efficiency.counting.origins import (
    OUTSIDE,
    Sample,
    is_matrix,
    tensors_in,
)
from neuroledger.families.efficiency.counting.rows import (
    as_values,
    exact,
    nonzero_per_column,
    operations,
    signs_only,
)
from neuroledger.families.efficiency.counting.tally import Tally

__all__ = ["Call", "Counter", "counting_rule"]

RULE_ERRORS: Final = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
)
LEFT: Final = "values leave torch: what is computed from them is not seen"
NO_RULE: Final = "no rule counts this operator"
# The CPU kernel of torch 2.13 reads this many bfloat16 values of a row at once, also beyond its end.
BFLOAT16_AT_ONCE: Final = 16
# Operators that run programs, and have a plain implementation in which the programs' operators are seen.
RUNS_PROGRAMS: Final = frozenset({"cond", "while_loop", "map_impl", "associative_scan"})


@dataclass(frozen=True)
class Call:
    """One call of an operator: its name (``namespace::name`` outside of torch's own), arguments and result."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument that is passed by position or by name."""
        return (
            self.args[position]
            if len(self.args) > position
            else self.kwargs.get(name, default)
        )


Rule = Callable[["Counter", Call], None]
RuleType = TypeVar("RuleType", bound=Rule)
_RULES: dict[str, Rule] = {}


def counting_rule(*names: str) -> Callable[[RuleType], RuleType]:
    """Register the rule of operators: ``mm`` of torch's own, ``package::name`` of any other.

    A rule ``(counter, call)`` tells the counter which values are multiplied with which: :meth:`Counter.linear` for inputs
    and weights, :meth:`Counter.product` for two matrices, :meth:`Counter.inputs` if the fan-out of each input is known.
    """

    def register(rule: RuleType) -> RuleType:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


class Counter(TorchDispatchMode):  # type: ignore[misc]
    """Counts operators in its context, in this thread."""

    supports_higher_order_operators = True

    def __init__(self, tally: Tally, *, operations: bool, activations: bool) -> None:
        super().__init__()
        self.tally = tally
        self.origins = tally.origins
        self.counts_operations, self.counts_activations = operations, activations
        self.inside_activation = 0
        self.running: list[
            str
        ] = []  # names of running modules whose products have no weights with a name
        self._fan_outs: dict[
            object, Tensor
        ] = {}  # of weights in this batch; any write discards them
        # Factors of the latest product of values, whether its items are signs, items of a sample, and its name.
        self.last_product: tuple[Tensor, Tensor, Tensor, int | None, str] | None = None
        # Queries and keys of scores with a mask, and the number of masked pairs, until values are weighted with the shares.
        self.masked: tuple[tuple[int, ...], float] | None = None
        self._rows_used: dict[object, dict[object, int]] = {}

    def begin(self, inputs: Any, sample_axis: int) -> None:
        """Start a batch with these inputs, whose samples are along an axis."""
        self._fan_outs.clear()
        self.last_product = self.masked = None
        for tensor in tensors_of(inputs):
            known = (
                tensor.dim() > sample_axis
                and tensor.shape[sample_axis] == self.tally.samples
            )
            period = math.prod(tensor.shape[sample_axis + 1 :]) if known else None
            self.origins.add_sample(tensor, period)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run an operator, then count it."""
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return self._run_programs(func, args, kwargs)
        name = (
            func._opname
            if func.namespace in ("aten", "prim", "prims")
            else func.name().partition(".")[0]
        )
        rule = _RULES.get(name)
        if rule is None:
            opened = self._open(func, args, kwargs)
            if opened is not NotImplemented:
                return opened
        if name == "_weight_int8pack_mm":
            refuse_unsafe_product(*args[:2])
        result = func(*args, **kwargs)
        call = Call(name, args, kwargs, result)
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            with (
                torch.autocast("cpu", enabled=False),
                torch.autocast("cuda", enabled=False),
            ):
                self._note(func, rule, call)
        else:
            self._note(func, rule, call)
        return result

    def _open(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that consists of others, so that these are seen; ``NotImplemented`` for any other."""
        definition: Any = OPDEFS.get(func.name().partition(".")[0])
        if definition is not None and not set(definition._backend_fns) - {None}:
            with self:
                return definition._init_fn(*args, **kwargs)
        if func.namespace == "aten" and not is_free(func):
            with self:
                return func.decompose(*args, **kwargs)
        return NotImplemented

    def _run_programs(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a condition or a loop with its operators seen; report any other operator that takes programs."""
        if func.name() == "cond":
            condition, if_true, if_false, operands = args
            with self:
                return (if_true if condition else if_false)(*operands)
        eager = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        if func.name() not in RUNS_PROGRAMS or eager is None:
            self.tally.add_uncounted(func.name(), NO_RULE)
            return func(*args, **kwargs)
        with self:
            return eager(*args, **kwargs)

    def _note(self, func: Any, rule: Rule | None, call: Call) -> None:
        """Count a call, and record where its results come from."""
        if any(tensor.is_nested for tensor in tensors_in((*call.args, call.result))):
            self.tally.add_uncounted(
                call.name, f"{call.name}: nested tensors are not counted"
            )
            return
        if self.counts_operations:
            self._note_operations(func, rule, call)
        self.origins.follow(
            call.name,
            (*call.args, *call.kwargs.values()),
            call.result,
            has_rule=rule is not None,
        )
        if func._schema.is_mutable:
            self._fan_outs.clear()
        plain = CONVERTS.get(call.name, call.name.removesuffix("_"))
        if (
            self.counts_activations
            and not self.inside_activation
            and plain in ACTIVATIONS | set(CONVERTS.values())
        ):
            self.tally.activations(f"functional.{plain}", call.result)

    def _note_operations(self, func: Any, rule: Rule | None, call: Call) -> None:
        if rule is not None:
            try:
                rule(self, call)
            except RULE_ERRORS as error:
                self.tally.add_uncounted(call.name, f"{call.name}: {error}")
        elif not is_free(func):
            tensors = [
                x
                for x in tensors_in(call.args)
                if x.is_floating_point() or x.is_complex()
            ]
            if not all(self.origins.weight(x) for x in tensors):
                plain = call.name.lstrip("_").removesuffix("_forward")
                self.tally.add_uncounted(
                    self.running_name(plain), f"no rule counts torch's {plain}"
                )
        elif call.name == SINGLE:
            if isinstance(self.origins.of(call.args[0]), Sample) and leaves_torch(
                call.args[0]
            ):
                self.tally.add_uncounted("item", LEFT)
        elif (
            call.name.removesuffix("_") in MULTIPLIES
            or call.name.removesuffix("_") in SUMS
        ):
            self._note_elementwise(call)
        elif call.name == "embedding":
            self.tally.exclude(call.args[0])
        elif call.name in ("cat", "stack"):
            for tensor in tensors_in(call.args):
                self._exclude_shared(tensor)

    # What rules call

    def linear(
        self, x: Tensor, weight: Tensor, name: str = "linear", data_type: str = ""
    ) -> None:
        """Count ``x Wᵀ`` for inputs ``(…, in)`` and weights ``(out, in)``; biases are not synapses."""
        name = self.name_of(weight, name)
        fan_out = self.fan_out_of(
            weight, ("columns",), lambda: nonzero_per_column(as_values(weight))
        )
        self.inputs(
            x,
            weight,
            fan_out,
            dense=float(x.numel()) * len(weight),
            name=name,
            data_type=data_type,
        )

    def inputs(
        self,
        x: Tensor,
        weight: Tensor,
        fan_out: Tensor,
        *,
        dense: float,
        name: str,
        data_type: str = "",
    ) -> None:
        """Count inputs ``(…, feature)``, of which each value is multiplied with ``fan_out`` (feature,) non-zero weights."""
        self.tally.reach(weight, name, data_type)
        self.tally.layer(name).dense += dense
        if not x.numel():  # an expert that no sample uses
            return
        width = len(fan_out)
        rows, inner = as_values(x).reshape(-1, width), self.origins.inner_rows(x, width)
        role = (
            frozenset((root, which) for root, which, _ in self.tally.pieces(weight)),
            width,
        )
        if inner is None:
            self._add_rows(name, *operations(rows, fan_out))
        else:
            self.tally.sums(name, role, x.device).add(rows, fan_out, inner)

    def product(self, left: Tensor, right: Tensor, name: str = "matmul") -> None:
        """Count ``left @ right`` for ``(…, row, k)`` and ``(…, k, column)``.

        A factor that is a weight has no say in whether the other, whose values are the inputs, needs multipliers.
        """
        first, second = self.origins.weight(left), self.origins.weight(right)
        if first and second and not self.origins.is_state(left):
            return  # weights computed from weights are not a cost per sample
        left = left.unsqueeze(0) if left.dim() == 1 else left
        right = right.unsqueeze(1) if right.dim() == 1 else right
        left_is_input = second is not None or (
            first is None and not self._is_value(right)
        )
        if left_is_input and math.prod(right.shape[:-2]) == 1:
            matrix = _as_matrix(right).transpose(0, 1)
            self.origins.adopt(matrix, right)
            self.linear(self._state_rows(left), matrix, name)
        elif not self._is_value(left) and math.prod(left.shape[:-2]) == 1:
            turned = right.transpose(-1, -2)
            self.origins.follow("transpose", (right, -1, -2), turned)
            matrix = _as_matrix(left)
            self.origins.adopt(matrix, left)
            self.linear(turned, matrix, name)
        else:
            self._product_of_values(left, right, name)

    def _product_of_values(self, left: Tensor, right: Tensor, name: str) -> None:
        """Count a product of values, or of values and weights that differ between the items of a batch."""
        name = self.running_name(name)
        first, second = as_values(left), as_values(right)
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        per_column = first.ne(0).sum(-2, dtype=torch.float64)
        per_row = second.ne(0).sum(-1, dtype=torch.float64)
        per_item = (per_column * per_row).sum(-1).expand(batch).reshape(-1)
        ternary = torch.zeros(len(per_item), dtype=torch.bool, device=left.device)
        inner = None
        for tensor, values in ((left, first), (right, second)):
            shared = self.origins.shared(tensor)
            if shared is not None and shared.pieces:
                name = shared.name
                self.tally.reach_pieces(shared.pieces, name)
            if shared is not None:
                continue
            if not self._is_value(tensor):
                name = self.name_of(tensor, name)
                self.tally.reach(tensor, name)
                continue
            signs = signs_only(values.reshape(-1, values.shape[-2] * values.shape[-1]))
            ternary |= signs.reshape(values.shape[:-2]).expand(batch).reshape(-1)
            inner = (
                self.origins.inner_rows(tensor, values.shape[-2] * values.shape[-1])
                if inner is None
                else inner
            )
        self.items(per_item, ternary, inner, name)
        self.last_product = (first, second, ternary, inner, name)
        layer = self.tally.layer(name)
        layer.data_type = layer.data_type or str(left.dtype).removeprefix("torch.")
        layer.dense += (
            float(len(per_item)) * left.shape[-2] * left.shape[-1] * right.shape[-1]
        )
        if self.masked is not None and self.masked[0] == tuple(
            left.shape[-2:]
        ):  # shares of masked pairs
            layer.dense -= self.masked[1] * right.shape[-1]
            self.masked = None

    def items(
        self,
        per_item: Tensor,
        ternary: Tensor,
        inner: int | None,
        name: str,
        role: object = "products",
    ) -> None:
        """Count operations given by item, ``ternary`` where they need no multiplier; ``inner`` items belong to a sample."""
        if inner is None or len(per_item) % (self.tally.samples * inner):
            self._add_rows(name, per_item, ternary)
        else:
            self.tally.sums(name, role, per_item.device).fold(per_item, ternary, inner)

    def _add_rows(self, name: str, per_row: Tensor, ternary: Tensor | None) -> None:
        """Add operations of rows that cannot be assigned to samples: each decides for itself."""
        layer = self.tally.layer(name)
        accumulations = 0.0 if ternary is None else float(per_row[ternary].sum())
        layer.acs += accumulations
        layer.macs += float(per_row.sum()) - accumulations

    def name_of(self, weight: Tensor, otherwise: str) -> str:
        """Return the dotted name of a weight's module; ``otherwise`` for other matrices."""
        origin = self.origins.weight(weight)
        return origin.name if origin is not None else otherwise

    def running_name(self, otherwise: str) -> str:
        """Return the name of the running layer of attention or packed weights, or ``otherwise``."""
        return self.running[-1] if self.running else otherwise

    def _is_value(self, tensor: Tensor) -> bool:
        """Return whether a factor is a value of the samples, and neither a weight nor a matrix of the code."""
        return isinstance(self.origins.of(tensor), Sample)

    def _state_rows(self, left: Tensor) -> Tensor:
        """Return the rows of a factor; a state that all samples share has one row for each."""
        if self.origins.weight(left) is None:
            return left
        rows = (
            left.expand(self.tally.samples, *left.shape[1:])
            if len(left) == 1
            else left.view_as(left)
        )
        self.origins.add_sample(rows)
        return rows

    def fan_out_of(
        self, weight: Tensor, role: tuple[object, ...], count: Callable[[], Tensor]
    ) -> Tensor:
        """Return the fan-out of a weight's inputs, counted once for each weight and batch: every write discards it."""
        pieces = self.tally.pieces(weight)
        if len(pieces) != 1 or weight.layout != torch.strided or weight.is_quantized:
            return exact(count())
        view = (
            weight.untyped_storage()._cdata,
            weight.storage_offset(),
            weight.shape,
            weight.stride(),
        )
        key = (*role, view)
        if key not in self._fan_outs:
            self._fan_outs[key] = exact(count())
        return self._fan_outs[key]

    def _note_elementwise(self, call: Call) -> None:
        """Record a matrix that is added to values, scales them, or is multiplied with each of several values."""
        tensors = [x for x in call.args if isinstance(x, Tensor)]
        tensors = (
            tensors[1:] if call.name.startswith(("addcmul", "addcdiv")) else tensors
        )
        origins = [self.origins.of(tensor) for tensor in tensors]
        values = [
            origin
            for origin in origins
            if isinstance(origin, Sample) and origin.shared is None
        ]
        most = max((origin.distinct for origin in values), default=0)
        multiplies = call.name.removesuffix("_") in MULTIPLIES
        for tensor, origin in zip(tensors, origins, strict=True):
            if most and origin not in values and not self._is_own_state(tensor):
                self._note_factor(tensor, call.result, most, multiplies=multiplies)

    def _exclude_shared(self, tensor: Tensor) -> None:
        """Record that weights repeated for each sample are joined with values: they are no connections."""
        shared = self.origins.shared(tensor)
        if shared is not None:
            self.tally.exclude_pieces(shared.pieces)

    def _is_own_state(self, tensor: Tensor) -> bool:
        """Return whether a buffer, or a matrix outside of modules, has one row for each sample."""
        if tensor.dim() < 2 or len(tensor) != self.tally.samples:
            return False
        return self.origins.of(tensor) is None or self.origins.is_state(tensor)

    def _note_factor(
        self, matrix: Tensor, result: Tensor, most: int, *, multiplies: bool
    ) -> None:
        if matrix.dim() < 2:
            if multiplies and most > 1:
                self._note_row(matrix)
        elif result.numel() <= most:
            self.tally.exclude(matrix)
        elif multiplies and most > 1 and is_matrix(matrix):
            self.tally.mark_unreached(matrix)
            self.tally.add_uncounted(
                self._matrix_name(matrix),
                "weights multiplied value by value",
                matrix.numel(),
            )

    def _matrix_name(self, matrix: Tensor) -> str:
        origin = self.origins.shared(matrix) or self.origins.weight(matrix) or OUTSIDE
        return self.tally.weight_name(origin.pieces) or origin.name

    def _note_row(self, row: Tensor) -> None:
        """Record a row of a matrix that scales values: all rows, one after another, are a matrix product."""
        whole = row._base if row._base is not None else row
        if not is_matrix(whole) or row.dim() >= whole.dim():
            return
        used = self._rows_used.setdefault(whole.untyped_storage()._cdata, {})
        used[row.storage_offset(), row.stride()] = row.numel()
        if sum(used.values()) >= whole.numel():
            self.tally.add_uncounted(
                self._matrix_name(whole), "weights multiplied row by row", whole.numel()
            )

    def suspend(self) -> None:
        """Stop seeing operators: what runs is counted as a whole, or multiplies only elementwise."""
        self.__exit__(None, None, None)

    def resume(self) -> None:
        """See operators again."""
        self.__enter__()

    def check_answer(self, answer: Any) -> None:
        """Report a network whose answer was not computed by torch's operators, for example in NumPy or another thread."""
        tensors = list(tensors_of(answer))
        if any(type(tensor) not in (Tensor, torch.nn.Parameter) for tensor in tensors):
            return  # a subclass, which wraps the results of operators anew
        origins = [self.origins.of(tensor) for tensor in tensors]
        if self.counts_operations and not any(
            isinstance(origin, Sample) for origin in origins
        ):
            self.tally.add_uncounted("the answer", LEFT)


def refuse_unsafe_product(values: Tensor, weight: Tensor) -> None:
    """Refuse a product of 8-bit weights ``(out, in)`` for which torch's kernel reads beyond the end of memory.

    Raises
    ------
    ValueError
        ``values`` are bfloat16 on a CPU, in rows whose length is not a multiple of 16.
    """
    if (
        values.dtype is torch.bfloat16
        and values.is_cpu
        and weight.shape[-1] % BFLOAT16_AT_ONCE
    ):
        raise ValueError(
            f"_weight_int8pack_mm ends the process on rows of {weight.shape[-1]} values of bfloat16: pad them, and the "
            f"weights, with zeros to a multiple of {BFLOAT16_AT_ONCE}, or use float32"
        )


def _as_matrix(factor: Tensor) -> Tensor:
    return factor if factor.dim() == 2 else factor.reshape(factor.shape[-2:])


def first_two(values: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Return the first two tensors among arguments."""
    left, right, *_ = tensors_in(values)
    return left, right
