"""Counting on torch's operators: one mode below all of torch's functions, and one rule for each kind of operator.

Every function of torch, layer, script or compiled graph is decomposed into operators before this mode sees them. An
operator has a rule (:func:`counting_rule`), is free by definition (:mod:`.free`), or is reported as uncounted with its
name. The mode belongs to one thread: concurrent passes do not affect each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode

from neuroledger.families.efficiency.counting.counts import Need
from neuroledger.families.efficiency.counting.free import (
    ACTIVATIONS,
    CONVERTS,
    JOINS,
    MULTIPLIES,
    SINGLE,
    SUMS,
    TABLE,
    is_free,
    leaves_torch,
)
from neuroledger.families.efficiency.counting.origins import (
    OUTSIDE,
    Sample,
    is_matrix,
    tensors_in,
)
from neuroledger.families.efficiency.counting.rows import (
    as_values,
    exact,
    nonzero,
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
NAMED_ACTIVATIONS: Final = ACTIVATIONS | set(CONVERTS.values())
NOTHING: Final[frozenset[Any]] = frozenset()
LEFT: Final = "values leave torch: what is computed from them is not seen"
NO_RULE: Final = "no rule counts this operator"
# The CPU kernel of torch 2.13 reads this many bfloat16 values of a row at once, also beyond its end.
BFLOAT16_AT_ONCE: Final = 16
# Operators that run programs, and have a plain implementation in which the programs' operators are seen.
RUNS_PROGRAMS: Final = frozenset({"cond", "while_loop", "map_impl", "associative_scan"})


class Call(NamedTuple):
    """One call of an operator: its name (``namespace::name`` outside of torch's own), arguments and result."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument that is passed by position or by name."""
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)


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
        _describe.cache_clear()
        return rule

    return register


class Operator(NamedTuple):
    """What is known of an operator before it is called.

    Attributes
    ----------
    rule
        Its counting rule.
    programs
        Whether it takes programs as arguments.
    opens
        Runs the operators that it consists of; None for operators with a rule, and for those that are not decomposed.
    note
        What is recorded of an operator without a rule.
    activation
        The name of the activation function that it is; else empty.
    writes
        Positions of the arguments into which it writes.
    """

    name: str
    rule: Rule | None = None
    programs: bool = False
    opens: Callable[..., Any] | None = None
    note: Callable[[Counter, Call], None] | None = None
    activation: str = ""
    writes: tuple[int, ...] = ()


class Counter(TorchDispatchMode):  # type: ignore[misc]
    """Counts operators in its context, in this thread."""

    supports_higher_order_operators = True

    def __init__(self, tally: Tally, needs: frozenset[Need]) -> None:
        super().__init__()
        self.tally = tally
        self.origins = tally.origins
        self.counts_operations = "operations" in needs
        self.counts_activations = "activations" in needs
        self.inside_activation = self.suspended = 0
        # Names of running modules whose products have no weights with a name.
        self.running: list[str] = []
        # Of stored weights in this batch; a write into a weight discards them.
        self._fan_outs: dict[object, Tensor] = {}
        # Factors of the latest product of values, whether its items are signs, items of a sample, and its name.
        self.last_product: tuple[Tensor, Tensor, Tensor, int | None, str] | None = None
        # Queries and keys of scores with a mask, and the number of masked pairs, until values are weighted with the shares.
        self.masked: tuple[tuple[int, ...], float] | None = None
        self._rows_used: dict[object, dict[object, int]] = {}
        # Storages of values that were taken from their tensors, and are not yet in another one.
        self.storages_taken: dict[int, torch.UntypedStorage] = {}

    def suspend(self, *_: Any) -> None:
        """Stop seeing operators: what runs is counted as a whole, or multiplies only elementwise."""
        self.suspended += 1
        if self.suspended == 1:
            self.__exit__(None, None, None)

    def resume(self) -> None:
        """See operators again, once every suspension has ended."""
        self.suspended -= 1
        if self.suspended == 0:
            self.__enter__()

    def begin(self, inputs: Any, sample_axis: int) -> None:
        """Start a batch with these inputs, whose samples are along an axis."""
        self._fan_outs.clear()
        self.last_product = self.masked = None
        for tensor in tensors_in((inputs,)):
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
        operator = _describe(func)
        if operator.programs:
            with self:
                return self._run_programs(func, *args, **kwargs)
        if operator.opens is not None:
            with self:
                result = operator.opens(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if operator.name == "_weight_int8pack_mm":
            refuse_unsafe_product(*args[:2])
        if operator.rule is not None:
            args = tuple(map(self._read_once, args))
        result = func(*args, **kwargs)
        call = Call(operator.name, args, kwargs, result)
        if torch._C._is_any_autocast_enabled():
            with (
                torch.autocast("cpu", enabled=False),
                torch.autocast("cuda", enabled=False),
            ):
                self._note(operator, call)
        else:
            self._note(operator, call)
        return result

    def _read_once(self, value: Any) -> Any:
        """Return a slice of time, whose rows are spread over memory, in one place: it is multiplied and counted."""
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            return value
        if value.dim() != 2 or 1 in value.stride() or self.origins.weight(value):
            return value
        copied = value.contiguous()
        self.origins.follow("clone", (value,), [value], [copied])
        return copied

    def _run_programs(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a condition or a loop with its operators seen; report any other operator that takes programs."""
        if func.name() == "cond":
            condition, if_true, if_false, operands = args
            return (if_true if condition else if_false)(*operands)
        eager = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
        if func.name() in RUNS_PROGRAMS and eager is not None:
            return eager(*args, **kwargs)
        self.tally.add_uncounted(func.name(), NO_RULE)
        self.suspend()
        try:
            return func(*args, **kwargs)
        finally:
            self.resume()

    def _note(self, operator: Operator, call: Call) -> None:
        """Count a call, and record where its results come from."""
        given = (*call.args, *call.kwargs.values())
        sources = tensors_in(given)
        results = tensors_in((call.result,))
        if any(tensor.is_nested for tensor in (*sources, *results)):
            why = f"{call.name}: nested tensors are not counted"
            self.tally.add_uncounted(call.name, why)
            return
        if self.counts_operations:
            self._note_operations(operator, call)
        has_rule = operator.rule is not None
        self.origins.follow(call.name, given, sources, results, has_rule=has_rule)
        if operator.writes:
            self._note_writes(operator, call)
        if (
            operator.activation
            and self.counts_activations
            and not self.inside_activation
        ):
            self.tally.activations(f"functional.{operator.activation}", call.result)

    def _note_operations(self, operator: Operator, call: Call) -> None:
        if operator.rule is not None:
            try:
                operator.rule(self, call)
            except RULE_ERRORS as error:
                self.tally.add_uncounted(call.name, f"{call.name}: {error}")
        elif operator.note is not None:
            operator.note(self, call)

    def _note_writes(self, operator: Operator, call: Call) -> None:
        """Follow what an operator writes: a written weight is counted again, and a part of a tensor belongs to the whole."""
        given = [call.args[n] for n in operator.writes if n < len(call.args)]
        written = tensors_in((*given, *call.kwargs.values()))
        if any(map(self.origins.stored_view, written)):
            self._fan_outs.clear()
        for tensor in written:
            self.origins.follow_part(tensor)

    def note_unknown(self, call: Call) -> None:
        """Report an operator that no rule counts, unless it computes weights from weights."""
        numbers = [
            tensor
            for tensor in tensors_in(call.args)
            if tensor.is_floating_point() or tensor.is_complex()
        ]
        if not all(map(self.origins.weight, numbers)):
            plain = call.name.lstrip("_").removesuffix("_forward")
            name = self.running_name(plain)
            self.tally.add_uncounted(name, f"no rule counts torch's {plain}")

    def note_item(self, call: Call) -> None:
        """Report a number of a sample that leaves torch."""
        tensor = call.args[0]
        if isinstance(self.origins.of(tensor), Sample) and leaves_torch(tensor):
            self.tally.add_uncounted("item", LEFT)

    def note_storage(self, call: Call) -> None:
        """Record that a storage is that of a tensor again."""
        for source in call.args[1:2]:
            if isinstance(source, torch.UntypedStorage):
                self.storages_taken.pop(source._cdata, None)

    def note_table(self, call: Call) -> None:
        """Record that the rows of a table connect no neurons."""
        self.tally.exclude(call.args[0])

    def note_join(self, call: Call) -> None:
        """Record that weights repeated for each sample are joined with values: they are no connections."""
        for tensor in tensors_in(call.args):
            shared = self.origins.shared(tensor)
            if shared is not None:
                self.tally.exclude_pieces(shared.pieces)

    # What rules call

    def linear(
        self, x: Tensor, weight: Tensor, name: str = "linear", data_type: str = ""
    ) -> None:
        """Count ``x Wᵀ`` for inputs ``(…, in)`` and weights ``(out, in)``; biases are not synapses.

        Operations with matrices that are no weights of the network are listed by ``name``.
        """
        fan_out = self.fan_out_of(
            weight, ("columns",), lambda: nonzero_per_column(as_values(weight))
        )
        dense = float(x.numel()) * weight.shape[0]
        self.inputs(x, weight, fan_out, dense=dense, name=name, data_type=data_type)

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
        origin = self.origins.weight(weight)
        name, pieces = (name, NOTHING) if origin is None else origin[:2]
        self.tally.reach(weight, pieces, name, data_type)
        self.tally.layer(name).dense += dense
        if not x.numel():  # an expert that no sample uses
            return
        width = len(fan_out)
        rows = as_values(x).reshape(-1, width)
        inner = self.origins.inner_rows(x, width)
        if inner is None:
            self._add_rows(name, *operations(rows, fan_out, self.tally.space))
        else:
            sums = self.tally.sums(name, (pieces, width), x.device)
            sums.add(rows, fan_out, inner)

    def product(self, left: Tensor, right: Tensor, name: str = "matmul") -> None:
        """Count ``left @ right`` for ``(…, row, k)`` and ``(…, k, column)``.

        A factor that is a weight has no say in whether the other, whose values are the inputs, needs multipliers.
        """
        first = self.origins.weight(left)
        second = self.origins.weight(right)
        if first and second and not self.origins.is_state(left):
            return  # weights computed from weights are not a cost per sample
        left = left.unsqueeze(0) if left.dim() == 1 else left
        right = right.unsqueeze(1) if right.dim() == 1 else right
        left_is_input = second or (first is None and not self._is_value(right))
        if left_is_input and math.prod(right.shape[:-2]) == 1:
            matrix = self.origins.alias(_as_matrix(right).transpose(0, 1), second)
            self.linear(self._state_rows(left) if first else left, matrix, name)
        elif not self._is_value(left) and math.prod(left.shape[:-2]) == 1:
            turned = right.transpose(-1, -2)
            self.origins.follow("transpose", (right, -1, -2), [right], [turned])
            self.linear(turned, self.origins.alias(_as_matrix(left), first), name)
        else:
            self._product_of_values(left, right, name)

    def _product_of_values(self, left: Tensor, right: Tensor, name: str) -> None:
        """Count a product of values, or of values and weights that differ between the items of a batch."""
        name = self.running_name(name)
        first = as_values(left)
        second = as_values(right)
        batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        per_column = nonzero(first).sum(-2, dtype=torch.float64)
        per_row = nonzero(second).sum(-1, dtype=torch.float64)
        per_item = (per_column * per_row).sum(-1).expand(batch).reshape(-1)
        ternary = torch.zeros(len(per_item), dtype=torch.bool, device=left.device)
        inner = None
        for tensor, values in ((left, first), (right, second)):
            if self.origins.shared(tensor) or not self._is_value(tensor):
                name = self._reach_factor(tensor, name)
                continue
            ternary |= ternary_items(values).expand(batch).reshape(-1)
            if inner is None:
                size = values.shape[-2] * values.shape[-1]
                inner = self.origins.inner_rows(tensor, size)
        self.items(per_item, ternary, inner, name)
        self.last_product = (first, second, ternary, inner, name)
        layer = self.tally.layer(name)
        layer.data_type = layer.data_type or str(left.dtype).removeprefix("torch.")
        rows = left.shape[-2]
        columns = right.shape[-1]
        layer.dense += float(len(per_item)) * rows * left.shape[-1] * columns
        if self.masked is not None and self.masked[0] == tuple(left.shape[-2:]):
            layer.dense -= self.masked[1] * columns  # shares of masked pairs
            self.masked = None

    def _reach_factor(self, tensor: Tensor, name: str) -> str:
        """Record a factor that does not come from samples, and return the name of its layer."""
        shared = self.origins.shared(tensor)
        if shared is None:
            name = self.name_of(tensor, name)
            self.tally.reach(tensor, self.tally.pieces(tensor), name)
        elif shared.pieces:
            name = shared.name
            self.tally.reach_pieces(shared.pieces, name)
        return name

    def items(
        self,
        per_item: Tensor,
        ternary: Tensor,
        inner: int | None,
        name: str,
        role: str = "products",
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

    def _state_rows(self, state: Tensor) -> Tensor:
        """Return the rows of a state that is a factor; one that all samples share has one row for each."""
        rows = (
            state.expand(self.tally.samples, *state.shape[1:])
            if len(state) == 1
            else state.view_as(state)
        )
        self.origins.add_sample(rows)
        return rows

    def fan_out_of(
        self, weight: Tensor, role: tuple[object, ...], count: Callable[[], Tensor]
    ) -> Tensor:
        """Return the fan-out of a weight's inputs, counted once for each weight and batch: every write discards it."""
        view = self.origins.stored_view(weight)
        if view is None:  # computed in the pass: its values may differ at the next use
            return exact(count())
        key = (role, view)
        fan_out = self._fan_outs.get(key)
        if fan_out is None:
            fan_out = self._fan_outs[key] = exact(count())
        return fan_out

    def note_elementwise(self, call: Call) -> None:
        """Record a matrix that is added to values, scales them, or is multiplied with each of several values."""
        tensors = [x for x in call.args if isinstance(x, Tensor)]
        if call.name.startswith(("addcmul", "addcdiv")):
            tensors = tensors[1:]
        origins = [self.origins.of(tensor) for tensor in tensors]
        values = [o for o in origins if isinstance(o, Sample) and o.shared is None]
        most = max((origin.distinct for origin in values), default=0)
        multiplies = call.name.removesuffix("_") in MULTIPLIES
        for tensor, origin in zip(tensors, origins, strict=True) if most else ():
            if origin not in values and not self._is_own_state(tensor):
                self._note_factor(tensor, call.result, most, multiplies)

    def _is_own_state(self, tensor: Tensor) -> bool:
        """Return whether a buffer, or a matrix outside of modules, has one row for each sample."""
        if tensor.dim() < 2 or len(tensor) != self.tally.samples:
            return False
        return self.origins.of(tensor) is None or self.origins.is_state(tensor)

    def _note_factor(
        self, matrix: Tensor, result: Tensor, most: int, multiplies: bool
    ) -> None:
        """Record a factor of at most so many different values: one that meets several of them is a matrix of weights."""
        several = multiplies and most > 1
        if matrix.dim() < 2:
            if several:
                self._note_row(matrix)
        elif result.numel() <= most:
            self.tally.exclude(matrix)
        elif several and is_matrix(matrix):
            self.tally.mark_unreached(matrix)
            self._note_matrix(matrix, "value by value")

    def _note_matrix(self, matrix: Tensor, way: str) -> None:
        name = self._matrix_name(matrix)
        why = f"weights multiplied {way}"
        self.tally.add_uncounted(name, why, matrix.numel())

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
            self._note_matrix(whole, "row by row")

    def check_answer(self, answer: Any) -> None:
        """Report an answer that torch's operators did not compute, for example in NumPy, and values that were pickled."""
        if self.storages_taken:
            self.tally.add_uncounted("pickle", LEFT)
            self.storages_taken.clear()
        tensors = tensors_in((answer,))
        plain = all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors)
        # A subclass wraps the results of operators anew.
        if plain and self.counts_operations and not any(map(self._is_value, tensors)):
            self.tally.add_uncounted("the answer", LEFT)


@lru_cache(maxsize=4096)
def _describe(func: Any) -> Operator:
    """Return what is known of an operator."""
    if isinstance(func, HigherOrderOperator):
        return Operator(func.name(), programs=True)
    own = func.namespace in ("aten", "prim", "prims")
    name = func._opname if own else func.name().partition(".")[0]
    plain = CONVERTS.get(name, name.removesuffix("_"))
    rule = _RULES.get(name)
    arguments = enumerate(func._schema.arguments)
    return Operator(
        name,
        rule,
        opens=_parts_of(func) if rule is None else None,
        note=_note_of(func, name),
        activation=plain if plain in NAMED_ACTIVATIONS else "",
        writes=tuple(n for n, argument in arguments if argument.is_write),
    )


def _parts_of(func: Any) -> Callable[..., Any] | None:
    """Return what runs the operators of which an operator consists; None if it is not decomposed."""
    definition: Any = OPDEFS.get(func.name().partition(".")[0])
    if definition is not None and not set(definition._backend_fns) - {None}:
        run: Callable[..., Any] = definition._init_fn
        return run
    if func.namespace == "aten" and not is_free(func):
        decompose: Callable[..., Any] = func.decompose
        return decompose
    return None


def _note_of(func: Any, name: str) -> Callable[[Counter, Call], None] | None:
    """Return what is recorded of an operator without a rule."""
    plain = name.removesuffix("_")
    if not is_free(func):
        return Counter.note_unknown
    if plain in MULTIPLIES or plain in SUMS:
        return Counter.note_elementwise
    return {
        "set_": Counter.note_storage,
        SINGLE: Counter.note_item,
        TABLE: Counter.note_table,
        **dict.fromkeys(JOINS, Counter.note_join),
    }.get(name)


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


def ternary_items(values: Tensor) -> Tensor:
    """Return whether each item ``(…, row, column)`` has only -1, 0 and 1, ``(…)``."""
    *items, rows, columns = values.shape
    number = math.prod(items)
    first = signs_only(values[..., :1, :].reshape(number, min(1, rows) * columns))
    if not bool(first.any()):  # the first row of each says it already
        return first.reshape(items)
    return signs_only(values.reshape(number, rows * columns)).reshape(items)


def _as_matrix(factor: Tensor) -> Tensor:
    if factor.dim() == 2:
        return factor
    return factor.reshape(factor.shape[-2:])


def first_two(values: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Return the first two tensors among arguments."""
    left, right, *_ = tensors_in(values)
    return left, right
