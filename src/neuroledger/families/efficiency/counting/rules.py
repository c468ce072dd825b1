"""Counting rules of linear layers, convolutions and products of two factors.

Effective operations are products in which no factor is zero. Every input value is multiplied by a fixed number of non-zero
weights, its fan-out. Counting a call therefore takes one sum over its inputs, Σ 1[x ≠ 0] · fan-out, for any kernel; the
fan-out is computed once per layer and input shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuroledger.families.efficiency.counting.known_zeros import zeros_of
from neuroledger.families.efficiency.counting.layer_counts import Site, Tally
from neuroledger.families.efficiency.counting.rows import EXACT, FanOut, count_nonzero
from neuroledger.families.efficiency.counting.static import nonzero

__all__ = [
    "QUANTISED", "argument", "bilinear", "convolution", "count_linear", "einsum", "general_convolution",
    "inner", "is_packed", "linear", "packed", "ternary_items", "ternary_rows", "product", "products", "shifted_linear",
    "tensordot", "transposed",
]  # fmt: skip


def argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any = None
) -> Any:
    """Return an argument that is passed by position or by name."""
    return args[position] if len(args) > position else kwargs.get(name, default)


def ternary_rows(tally: Tally, values: Tensor) -> Tensor:
    """Return whether each item ``(item, …)`` has only -1, 0 and 1."""
    ternary = tally.scratch.ternary(values.flatten(1))
    return torch.full((len(values),), ternary, device=values.device) if isinstance(ternary, bool) else ternary


def ternary_items(tally: Tally, values: Tensor, batch: Sequence[int]) -> Tensor:
    """Return the same for matrices ``(…, row, column)`` broadcast to ``batch``; first rows are tested before the rest."""
    items = values.expand(*batch, *values.shape[-2:])
    if items.numel() and tally.scratch.analogue(items[..., 0, :].reshape(-1, items.shape[-1])):
        return torch.zeros(math.prod(batch), dtype=torch.bool)
    items = items.reshape(-1, *items.shape[-2:])
    return ternary_rows(tally, items if items.is_contiguous() else items.transpose(1, 2))


def exact(driven: Tensor, bound: float) -> FanOut:
    """Return the fan-out in the cheapest type in which sums up to ``bound`` are exact."""
    return FanOut(len(driven), driven.to(torch.float32 if bound < EXACT else torch.float64))


def count(
    tally: Tally,
    name: str,
    x: Tensor,
    leading: Sequence[int],
    weight: Tensor,
    dense: float,
    fan_out: Callable[[float], FanOut],
    key: tuple[Any, ...] | None = None,
) -> None:
    """Count a call on inputs with ``fan_out(most operations of a row)``; remember it if the weight is the model's."""
    tally.reach(weight, name)
    if not x.numel():  # an expert that no sample uses
        return
    shape = (math.prod(leading), x.numel() // math.prod(leading))
    bound = dense / max(1, shape[0])
    if key is None or weight.is_inference() or tally.owner(weight) is None:
        origin = tally.derived.origin(weight)
        temporary_role = ("fresh", origin.root if origin else None, x.shape[len(leading) :])
        row_buffer = tally.row_buffer(name, temporary_role, fan_out(bound), remade=origin is not None)
        row_buffer.add(x.reshape(shape), leading, tally.batch, tally.samples)
        tally.layer(name).dense += dense
        return
    site = tally.sites.get(key)
    if site is None or site.weight is not weight or site.version != weight._version:
        # The batch size is not part of the role: leading dimensions of an input do not change its fan-out.
        view = (
            weight.data_ptr(),
            weight.shape,
            weight.stride(),
        )  # another view of the same weights has another fan-out
        role = (key[0], *view, weight._version, x.shape[len(leading) :], key[3])
        row_buffer = tally.known_row_buffer(name, role) or tally.row_buffer(name, role, fan_out(bound))
        site = Site(weight, weight._version, tally.layer(name), row_buffer, shape, leading, dense)
        tally.sites[key] = site
    tally.count_at(site, x)


def linear(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count ``y = x Wᵀ + b``: dense operations = rows · in · out; the bias is not a synapse."""
    x, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    count_linear(tally, x, weight, tally.name(weight, "linear"))


def shifted_linear(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count a linear layer of 8-bit weights with a zero point: (input, weight, packed, offsets, scale, zero, bias)."""
    x, weight, zero = args[0], args[1], int(args[5])
    name = tally.name(weight, "linear")
    tally.packed = "int8"
    try:
        count_linear(tally, x, weight.to(torch.int16) - zero, name)
    finally:
        tally.packed = ""


def count_linear(tally: Tally, x: Tensor, weight: Tensor, name: str) -> None:
    """Count ``x Wᵀ`` for x ``(…, in)`` and W ``(out, in)``."""
    leading = tuple(x.shape[:-1])
    dense = float(math.prod(leading)) * weight.numel()
    key = ("linear", id(weight), x.shape, ())
    x = x if x.layout == torch.strided else x.to_dense()
    if weight.layout != torch.strided:
        tally.reach(weight, name)
        weight = weight.to_dense()
    count(tally, name, x, leading, weight, dense, lambda bound: column_sums(tally, weight, bound), key)


def column_sums(tally: Tally, weight: Tensor, bound: float) -> FanOut:
    """Return the number of non-zero weights of each input, for W ``(out, in)``; a large matrix is read once."""
    zeros = None if id(weight) in tally.full else zeros_of(weight)
    if zeros is not None and zeros.size:
        missing = np.bincount(zeros % weight.shape[1], minlength=weight.shape[1])
        return FanOut(
            weight.shape[1],
            torch.from_numpy(len(weight) - missing).to(torch.float32 if bound < EXACT else torch.float64),
        )
    if zeros is not None or tally.is_full(weight):
        return FanOut(weight.shape[1], each=float(len(weight)))
    return exact(nonzero(weight).sum(0), bound)


def convolution(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count a convolution of any rank: dense = output values · weights per output value, including padding."""
    x, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    stride, padding = argument(args, kwargs, 3, "stride", 1), argument(args, kwargs, 4, "padding", 0)
    dilation, groups = argument(args, kwargs, 5, "dilation", 1), argument(args, kwargs, 6, "groups", 1)
    name = tally.name(weight, "conv")
    key = (
        None if kwargs else (f"conv{weight.dim() - 2}d", id(weight), x.shape, tuple(map(_hashable, args[3:])))
    )
    count_convolution(tally, x, weight, name, result, stride, padding, dilation, groups, key)


def count_convolution(
    tally: Tally,
    x: Tensor,
    weight: Tensor,
    name: str,
    result: Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    key: tuple[Any, ...] | None = None,
) -> None:
    """Count a convolution of x ``(batch, in, *space)`` or ``(in, *space)`` with W ``(out, in/groups, *kernel)``."""
    x = x if x.layout == torch.strided else x.to_dense()
    if weight.layout != torch.strided:
        tally.reach(weight, name)
        weight, key = weight.to_dense(), None
    rank = weight.dim() - 2
    space, out = x.shape[-rank:], result.shape[-rank:]

    def fan_out(bound: float) -> FanOut:
        if weight.is_cpu and tally.is_full(weight):
            kernel, filters, channels = tuple(weight.shape[2:]), len(weight) // groups, x.shape[-rank - 1]
            geometry = (
                tuple(space),
                tuple(out),
                kernel,
                _hashable(stride),
                _hashable(padding),
                _hashable(dilation),
            )
            return _full_fan_out(*geometry, filters, channels, bound < EXACT)
        driven = (
            nonzero(weight).unflatten(0, (groups, -1)).sum(1, dtype=torch.float32).flatten(0, 1).unsqueeze(1)
        )
        return exact(_fan_out_map(driven, space, out, stride, padding, dilation), bound)

    leading = tuple(x.shape[:1]) if x.dim() == weight.dim() else (1,)
    count(tally, name, x, leading, weight, float(result.numel()) * math.prod(weight.shape[1:]), fan_out, key)


def transposed(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count a transposed convolution: dense = input values · weights per input value, including cropped ones."""
    x, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    stride, padding = argument(args, kwargs, 3, "stride", 1), argument(args, kwargs, 4, "padding", 0)
    extra, dilation = argument(args, kwargs, 5, "output_padding", 0), argument(args, kwargs, 7, "dilation", 1)
    rank = weight.dim() - 2
    space, out = x.shape[-rank:], result.shape[-rank:]
    name = tally.name(weight, "conv_transpose")

    def fan_out(bound: float) -> FanOut:
        driven = nonzero(weight).sum(1, keepdim=True, dtype=torch.float32)
        return exact(_fan_out_map(driven, space, out, stride, padding, dilation, extra), bound)

    leading = tuple(x.shape[:1]) if x.dim() == weight.dim() else (1,)
    kind = f"conv_transpose{rank}d"
    key = None if kwargs else (kind, id(weight), x.shape, tuple(map(_hashable, args[3:])))
    count(tally, name, x, leading, weight, float(x.numel()) * math.prod(weight.shape[1:]), fan_out, key)


@lru_cache(maxsize=256)
def _full_fan_out(
    space: tuple[int, ...],
    out: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
    filters: int,
    channels: int,
    small: bool,
) -> FanOut:
    """Return the fan-out of each value of a map ``(channel · position,)`` for weights without zeros, from geometry alone."""
    rank = len(space)
    steps, gaps = _per_axis(stride, rank), _per_axis(dilation, rank)
    before, _ = _padding(padding, kernel, gaps)
    uses = torch.ones(1)
    for axis in range(rank):
        line = [0.0] * space[axis]
        for start in range(out[axis]):
            for tap in range(kernel[axis]):
                position = start * steps[axis] - before[axis] + tap * gaps[axis]
                if 0 <= position < space[axis]:
                    line[position] += 1.0
        uses = torch.outer(uses, torch.tensor(line)).flatten()
    with torch.inference_mode(False):
        driven = (uses * filters).to(torch.float32 if small else torch.float64).repeat(channels)
    return FanOut(len(driven), driven, float(driven[0]) if bool(driven.eq(driven[0]).all()) else None)


def _hashable(value: Any) -> Any:
    """Return a stride, padding or dilation in hashable form."""
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _fan_out_map(
    driven: Tensor,
    space: Sequence[int],
    out: Sequence[int],
    stride: Any,
    padding: Any,
    dilation: Any,
    extra: Any = None,
) -> Tensor:
    """Return the number of non-zero weights of each value of a map ``(channel, *space)``: the adjoint applied to ones.

    ``driven`` (channel, 1, *kernel) are the non-zero weights from each channel, summed over its outputs; ``extra``
    is the output padding of a transposed convolution.
    """
    rank, channels = len(space), len(driven)
    exact = driven.to(torch.float64) if float(driven.sum()) >= EXACT else driven
    before, after = _padding(padding, driven.shape[2:], _per_axis(dilation, rank))
    ones = exact.new_ones((1, channels, *out))
    lengths = [n + a - b for n, a, b in zip(space, after, before, strict=True)]
    shape = exact.new_empty((1, channels, *lengths))
    fan_out = torch.ops.aten.convolution_backward(
        ones, shape, exact, None, _per_axis(stride, rank), before, _per_axis(dilation, rank), extra is not None,
        _per_axis(extra or 0, rank), channels, [True, False, False],
    )[0]  # fmt: skip
    for axis, length in enumerate(space):
        fan_out = fan_out.narrow(2 + axis, 0, length)
    return fan_out.flatten()


def _per_axis(value: Any, rank: int) -> list[int]:
    """Return one number for every spatial axis."""
    values = [int(v) for v in value] if isinstance(value, (tuple, list)) else [int(value)]
    return values * rank if len(values) == 1 else values


def _padding(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the numbers of zeros before and after each axis; ``same`` adds the odd one after."""
    if padding == "valid":
        return [0] * len(kernel), [0] * len(kernel)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [t // 2 for t in total], [t - t // 2 for t in total]
    both = _per_axis(padding, len(kernel))
    return both, both


def general_convolution(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count ``torch.convolution``, transposed or not: ``(input, weight, bias, stride, padding, dilation, …)``."""
    names = (
        "input",
        "weight",
        "bias",
        "stride",
        "padding",
        "dilation",
        "transposed",
        "output_padding",
        "groups",
    )
    x, weight, bias, stride, padding, dilation, is_transposed, extra, groups = (
        argument(args, kwargs, position, name) for position, name in enumerate(names)
    )
    if is_transposed:
        transposed(tally, result, (x, weight, bias, stride, padding, extra, groups, dilation), {})
    else:
        convolution(tally, result, (x, weight, bias, stride, padding, dilation, groups), {})


TINY = frozenset({torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz})

# Names of the two factors in torch's functions, in order; ``input`` is the first factor if there is no other.
NAMES = ("input", "mat", "mat1", "batch1", "tensor", "other", "vec", "vec2", "mat2", "batch2")


def bilinear(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count ``y_o = Σ_ij x_i W_oij z_j``: one operation for each pair of inputs and weight, none of them zero."""
    left, right = argument(args, kwargs, 0, "input1"), argument(args, kwargs, 1, "input2")
    weight = argument(args, kwargs, 2, "weight")
    name = tally.name(weight, "bilinear")
    tally.reach(weight, name)
    leading = left.shape[:-1]
    left, right = left.reshape(-1, left.shape[-1]), right.reshape(-1, right.shape[-1])
    driven = nonzero(weight).sum(0).to(torch.float32 if weight.numel() < EXACT else torch.float64)
    per_row = ((left.ne(0).to(driven.dtype) @ driven) * right.ne(0)).sum(1)
    ternary = ternary_rows(tally, left) & ternary_rows(tally, right)
    tally.add_row_operations(name, weight.data_ptr(), leading, per_row, ternary)
    tally.layer(name).dense += float(len(left)) * weight.numel()


def product(first: int) -> Callable[[Tally, Tensor, tuple[Any, ...], dict[str, Any]], None]:
    """Return the rule of a matrix product whose factors are the tensor arguments ``first`` and the next one."""

    def rule(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keyword_factors = [kwargs[name] for name in NAMES if name in kwargs] if kwargs else []
        factors = [value for value in (*args, *keyword_factors) if isinstance(value, torch.Tensor)]
        products(tally, factors[first], factors[first + 1])

    return rule


def products(tally: Tally, left: Tensor, right: Tensor, name: str = "matmul") -> None:
    """Count ``left @ right``: a factor that belongs to the model is a weight, and the rows of the other are its inputs."""
    if TINY & {left.dtype, right.dtype}:
        origins = [tally.derived.origin(factor) for factor in (left, right)]
        left, right = left.float(), right.float()  # torch supports few other operations on these types
        for factor, origin in zip((left, right), origins, strict=True):
            if origin is not None:
                tally.derived.adopt(factor, origin, origin.pieces)
    left = left.unsqueeze(0) if left.dim() == 1 else left
    right = right.unsqueeze(1) if right.dim() == 1 else right
    first_owner, second_owner = tally.weight_of(left), tally.weight_of(right)
    if first_owner is not None and second_owner is not None:
        return  # weights computed from weights are not a cost per sample
    if right.dim() == 2 and second_owner is not None:
        count_linear(tally, left, right.t(), second_owner)
        return
    if left.dim() == 2 and first_owner is not None:
        count_linear(tally, right.transpose(-1, -2), left, first_owner)
        return
    if left.dim() == right.dim() == 2 and not left.layout == right.layout == torch.strided:
        _sparse_products(tally, left, right, first_owner or second_owner or name)
        return
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    items = math.prod(batch)
    dense = float(items) * left.shape[-2] * left.shape[-1] * right.shape[-1]
    if left.is_cpu and all(count_nonzero(factor) == factor.numel() for factor in (left, right)):
        per_item = torch.full((items,), dense / max(1, items), dtype=torch.float64)
    else:
        first = left.expand(*batch, *left.shape[-2:]).reshape(-1, *left.shape[-2:])
        second = right.expand(*batch, *right.shape[-2:]).reshape(-1, *right.shape[-2:])
        nonzero_products = tally.scratch.per_row(first.transpose(1, 2)).to(
            torch.float64
        ) * tally.scratch.per_row(second)
        per_item = nonzero_products.sum(1)
    # A factor that is a weight does not decide whether its inputs need multiplying.
    ternary = torch.zeros(items, dtype=torch.bool, device=left.device)
    broadcast_owner = None
    for owner, values in ((first_owner, left), (second_owner, right)):
        if owner is None:
            ternary = ternary | ternary_items(tally, values, batch)
            owner = tally.owner(values)  # weights broadcast over samples
            broadcast_owner = broadcast_owner or owner
        if owner is not None:
            tally.reach(values, owner)
    name = first_owner or second_owner or broadcast_owner or name
    tally.add_row_operations(name, (name, "products"), batch, per_item, ternary)
    tally.layer(name).data_type = tally.layer(name).data_type or str(left.dtype).removeprefix("torch.")
    tally.layer(name).dense += dense


def _sparse_products(tally: Tally, left: Tensor, right: Tensor, name: str) -> None:
    """Count ``left @ right`` of two matrices, without making the sparse one dense: it may be huge."""
    nonzero_products = torch.dot(_nonzero_along(left, 1), _nonzero_along(right, 0)).reshape(1)
    stored = [
        x if x.layout == torch.strided else x.to_sparse_coo().coalesce().values() for x in (left, right)
    ]
    ternary = torch.stack([ternary_rows(tally, x.reshape(1, -1)) for x in stored]).any(0)
    tally.add_row_operations(name, (name, "products"), (), nonzero_products, ternary)
    tally.layer(name).dense += float(left.shape[0]) * float(left.shape[1]) * float(right.shape[1])


def _nonzero_along(matrix: Tensor, axis: int) -> Tensor:
    """Return the number of non-zero values of a matrix at each index along an axis, float64."""
    if matrix.layout == torch.strided:
        return matrix.ne(0).sum(1 - axis, dtype=torch.float64)
    stored = matrix.to_sparse_coo().coalesce()
    indices = stored.indices()[axis][stored.values().ne(0)]
    return torch.bincount(indices, minlength=matrix.shape[axis]).to(torch.float64)


def tensordot(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count ``tensordot`` as a matrix product, with the contracted axes joined."""
    left, right, axes = args[0], args[1], argument(args, kwargs, 2, "dims", 2)
    if isinstance(axes, int):
        axes = (list(range(left.dim() - axes, left.dim())), list(range(axes)))
    left_axes, right_axes = ([axis] if isinstance(axis, int) else list(axis) for axis in axes)
    count = len(left_axes)
    rows = left.movedim(left_axes, list(range(-count, 0))).flatten(-count) if count else left.unsqueeze(-1)
    columns = (
        right.movedim(right_axes, list(range(count))).flatten(0, count - 1) if count else right.unsqueeze(0)
    )
    owner, other = tally.weight_of(right), tally.weight_of(left)
    if owner is not None and other is None:
        tally.reach(right, owner)
        count_linear(tally, rows, columns.flatten(1).t(), owner)
    else:
        products(tally, rows.flatten(0, -2), columns.flatten(1), other or "tensordot")


def inner(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count ``inner``: a contraction of the last axes of both factors."""
    left, right = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "other")
    if left.dim() and right.dim():
        left, right = (x.unsqueeze(0) if x.dim() == 1 else x for x in (left, right))
        tensordot(tally, result, (left, right, ([-1], [-1])), {})


def einsum(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count ``einsum`` of two factors, item by item along the first index of the result.

    Raises
    ------
    ValueError
        There are more than two factors: the number of products depends on the order of evaluation.
    """
    equation, factors = args[0], args[1:]
    if len(factors) == 1 and isinstance(factors[0], (list, tuple)):
        factors = tuple(factors[0])
    if not isinstance(equation, str) or len(factors) > 2:
        raise ValueError("einsum is counted for two factors and an equation")
    if len(factors) < 2:  # a permutation or a sum: nothing is multiplied
        return
    equation = _expand_ellipsis(equation.replace(" ", ""), factors)
    inputs, _, output = equation.partition("->")
    left, right = inputs.split(",")
    if not output and "->" not in equation:
        output = "".join(sorted(i for i in set(left + right) if (left + right).count(i) == 1))
    item = output[:1]
    masks = [factor.ne(0).to(torch.float64) for factor in factors]
    per_item = torch.einsum(f"{left},{right}->{item}", *masks).reshape(-1)
    ternary = torch.zeros(len(per_item), dtype=torch.bool, device=result.device)
    for indices, factor in zip((left, right), factors, strict=True):
        owner = tally.weight_of(factor)
        if owner is not None:
            tally.reach(factor, owner)
        else:
            rows = factor.movedim(indices.index(item), 0) if item and item in indices else factor.unsqueeze(0)
            ternary = ternary | ternary_rows(tally, rows)
    name = next((owner for owner in map(tally.weight_of, factors) if owner), "einsum")
    sizes = dict(zip(left, factors[0].shape, strict=True)) | dict(zip(right, factors[1].shape, strict=True))
    ternary = ternary.expand(len(per_item))
    tally.add_row_operations(name, equation, per_item.shape, per_item, ternary)
    tally.layer(name).dense += float(math.prod(sizes.values()))


def _expand_ellipsis(equation: str, factors: Sequence[Tensor]) -> str:
    """Return the equation with an index for each axis of an ellipsis."""
    if "..." not in equation:
        return equation
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    free = [chr(code) for code in (*range(65, 91), *range(97, 123)) if chr(code) not in equation]
    widths = [
        x.dim() - len(term.replace("...", "")) if "..." in term else 0
        for term, x in zip(terms, factors, strict=True)
    ]
    axes = "".join(free[: max(widths)])
    filled = [
        term.replace("...", axes[len(axes) - width :]) for term, width in zip(terms, widths, strict=True)
    ]
    if not arrow:
        all_indices = "".join(filled)
        output = "..." + "".join(sorted(i for i in set(all_indices) - set(axes) if all_indices.count(i) == 1))
    return f"{','.join(filled)}->{output.replace('...', axes)}"


# Names of torch's functions on packed weights that functions of floats do not have.
QUANTISED = frozenset(
    {
        "linear_relu", "linear_dynamic", "linear_relu_dynamic", "linear_dynamic_fp16", "linear_relu_dynamic_fp16",
        "linear_leaky_relu", "linear_tanh", "conv1d_relu", "conv2d_relu", "conv3d_relu", "conv2d_add", "conv2d_add_relu",
        "conv1d_dynamic", "conv2d_dynamic", "conv3d_dynamic", "conv_transpose1d_dynamic", "conv_transpose2d_dynamic",
        "conv_transpose3d_dynamic",
    }
)  # fmt: skip


def is_packed(args: tuple[Any, ...]) -> bool:
    """Return whether one of the arguments of a function is a packed weight."""
    return torch.ScriptObject in map(type, args)


def packed(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count a linear layer or convolution, ``(input, …, packed weight, …)``, for the module whose code calls it."""
    packed_weight = next(value for value in args if isinstance(value, torch.ScriptObject))
    x = args[0].dequantize() if args[0].is_quantized else args[0]
    weight = packed_weight.unpack()[0]
    tally.packed = "int8" if weight.is_quantized else str(weight.dtype).removeprefix("torch.")
    try:
        _unpacked(
            tally, result, x, weight.dequantize() if weight.is_quantized else weight.float(), packed_weight
        )
    finally:
        tally.packed = ""


def _unpacked(tally: Tally, result: Tensor, x: Tensor, weight: Tensor, packed_weight: Any) -> None:
    if not hasattr(packed_weight, "stride"):
        count_linear(tally, x, weight, tally.name(weight, "linear"))
        return
    rank = x.dim() - 2
    weight = weight.squeeze(2) if weight.dim() > rank + 2 else weight  # 1-d kernels are stored as 2-d
    stride, padding, dilation = (
        list(values)[-rank:]
        for values in (packed_weight.stride(), packed_weight.padding(), packed_weight.dilation())
    )
    if packed_weight.transpose():
        extra = list(packed_weight.output_padding())[-rank:]
        transposed(
            tally,
            result,
            (x, weight, None, stride, padding, extra, packed_weight.groups(), dilation),
            {"name": ""},
        )
    else:
        name = tally.name(weight, "conv")
        count_convolution(tally, x, weight, name, result, stride, padding, dilation, packed_weight.groups())
