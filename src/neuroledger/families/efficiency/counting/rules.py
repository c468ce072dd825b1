"""Counting rules of matrix products, convolutions, attention, packed layers and tables."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from neuroledger.families.efficiency.counting.counter import (
    Call,
    Counter,
    counting_rule,
    first_two,
    ternary_items,
)
from neuroledger.families.efficiency.counting.free import names_in
from neuroledger.families.efficiency.counting.origins import tensors_in
from neuroledger.families.efficiency.counting.rows import (
    as_values,
    axis_uses,
    has_no_zeros,
    kernel_uses,
    nonzero,
    signs_only,
)

__all__: list[str] = []

# A share of attention is not zero if its score is less than this below the largest: e to this power is a normal number.
VANISHES: Final = {torch.float32: 80.0, torch.float64: 700.0}


@counting_rule(
    "mm",
    "bmm",
    "mv",
    "dot",
    "vdot",
    "_int_mm",
    "_scaled_mm",
    "_sparse_sparse_matmul",
    "_sparse_mm_reduce_impl",
)
def products(counter: Counter, call: Call) -> None:
    """Count a product of the first two tensors."""
    counter.product(*first_two(call.args))


@counting_rule(
    "addmm",
    "addmm_",
    "addmv",
    "addmv_",
    "addbmm",
    "addbmm_",
    "_addmm_activation",
    "_sparse_addmm",
    "sspaddmm",
)
def added_products(counter: Counter, call: Call) -> None:
    """Count a product of the two tensors after one that is added."""
    counter.product(*first_two(call.args[1:]))


@counting_rule("baddbmm", "baddbmm_")
def masked_products(counter: Counter, call: Call) -> None:
    """Count a product of batches to which a mask may be added: pairs that are masked with -∞ are not computed."""
    added, left, right = tensors_in(call.args)
    if not bool(added.isneginf().any()):
        counter.product(left, right)
        return
    allowed = (
        added.isneginf().logical_not().expand(len(left), left.shape[1], right.shape[2])
    )
    name = counter.running_name("matmul")
    inner = counter.origins.inner_rows(left, left.shape[1] * left.shape[2])
    count_pairs(counter, left, right.transpose(1, 2), allowed, inner, name)
    counter.tally.layer(name).dense += float(allowed.sum()) * left.shape[2]
    counter.masked = (tuple(allowed.shape[-2:]), float(allowed.logical_not().sum()))


@counting_rule("linear", "mkldnn_linear", "_mkldnn_linear")
def linear(counter: Counter, call: Call) -> None:
    """Count a linear layer that is one operator, ``(input, weight, …)``."""
    counter.linear(call.args[0], call.args[1])


@counting_rule("_weight_int8pack_mm")
def product_of_bytes(counter: Counter, call: Call) -> None:
    """Count a linear layer with weights of 8 bits, ``(input, weight, scale)``."""
    counter.linear(call.args[0], call.args[1], data_type="int8")


@counting_rule("_trilinear")
def bilinear(counter: Counter, call: Call) -> None:
    """Count ``y_o = Σ_ij x_i W_oij z_j`` of ``(x, W, z, …)``: one operation for each pair of inputs and weight."""
    left, weight, right = call.args[:3]
    name = counter.name_of(weight, "bilinear")
    counter.tally.reach(weight, counter.tally.pieces(weight), name)
    driven = as_values(weight).ne(0).sum(0, dtype=torch.float64)
    per_row = ((left.ne(0).to(driven.dtype) @ driven) * right.ne(0)).sum(1)
    ternary = signs_only(as_values(left)) & signs_only(as_values(right))
    counter.items(
        per_row, ternary, counter.origins.inner_rows(left, left.shape[-1]), name
    )
    counter.tally.layer(name).dense += float(len(left)) * weight.numel()


class Geometry(NamedTuple):
    """What a kernel reaches: stride, padding and dilation by axis, whether it is transposed, and its groups."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    groups: int


@counting_rule("convolution", "_convolution", "mkldnn_convolution")
def convolution(counter: Counter, call: Call) -> None:
    """Count a convolution ``(input, weight, bias, stride, padding, dilation, transposed, output padding, groups)``.

    Dense operations are output values times weights per output value, including padded positions; those of a transposed
    one are input values times weights per input value, including cropped ones.
    """
    x, weight = call.args[:2]
    rank = weight.dim() - 2
    names = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    *numbers, transposed, _, groups = (
        call.argument(3 + n, name) for n, name in enumerate(names)
    )
    stride, padding, dilation = (_per_axis(value, rank) for value in numbers)
    geometry = Geometry(stride, padding, dilation, bool(transposed), groups)
    name = "conv_transpose" if transposed else "conv"
    count_convolution(counter, x, weight, call.result, geometry, name)


def count_convolution(
    counter: Counter,
    x: Tensor,
    weight: Tensor,
    result: Tensor,
    geometry: Geometry,
    name: str,
    data_type: str = "",
) -> None:
    """Count a convolution of x ``(batch, in, *space)`` with W ``(out, in/groups, *kernel)`` or ``(in, out, …)``."""
    origins = counter.origins
    transposed = geometry.transposed
    if weight.dim() > 2 and origins.weight(x) and origins.weight(weight):
        return  # weights computed from weights are not a cost per sample
    space = tuple(x.shape[2:])
    out = tuple(result.shape[2:])

    def fan_out() -> Tensor:
        used = nonzero(as_values(weight), torch.float64)
        per_group = (geometry.groups, -1, *weight.shape[1:])
        grouped = used if transposed else used.view(per_group)
        kernel = tuple(weight.shape[2:])
        driven = grouped.sum(1).view(x.shape[1], *kernel)
        axes = zip(space, out, kernel, *geometry[:3], strict=True)
        uses = [axis_uses(*axis, transposed) for axis in axes]
        return kernel_uses(driven, uses)

    values = float(x.numel() if transposed else result.numel())
    dense = values * math.prod(weight.shape[1:])
    role = ("convolution", geometry, x.shape[1:], out)
    driven = counter.fan_out_of(weight, role, fan_out)
    name = counter.name_of(weight, name)
    counter.inputs(x, weight, driven, dense=dense, name=name, data_type=data_type)


def _per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """Return one number for every spatial axis."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    numbers = tuple(map(int, values))
    return numbers * rank if len(numbers) == 1 else numbers


@counting_rule(
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
def attention(counter: Counter, call: Call) -> None:
    """Count attention in one operator, ``(q, k, v, …)``: q·kᵀ and softmax(scores)·v of the pairs that are not masked."""
    q, k, v = call.args[:3]
    keyword = "attn_mask" if "flash" in call.name else "attn_bias"
    position = 3 if "efficient" in call.name or "cudnn" in call.name else 99
    mask = call.argument(position, keyword)
    causal = call.kwargs.get(
        "is_causal", next((x for x in call.args[3:] if isinstance(x, bool)), False)
    )
    scale = call.kwargs.get("scale") or 1 / math.sqrt(q.shape[-1])
    repeats = q.shape[-3] // k.shape[-3]
    if repeats > 1:
        k, v = (x.repeat_interleave(repeats, -3) for x in (k, v))
    allowed = _allowed(q, k, mask, causal)
    inner = counter.origins.inner_rows(q, q.shape[-2] * q.shape[-1])
    name = counter.running_name("attention")
    count_pairs(counter, q, k, allowed, inner, name)
    used = allowed
    # Where a query attends to one key, its share is 1.
    single = allowed.sum(-1).le(1).all(-1).expand(q.shape[:-2])
    if _may_vanish(q, k, mask, scale):
        scores = (q @ k.transpose(-1, -2)) * scale
        scores = scores if mask is None else scores + mask
        shares = torch.softmax(scores.masked_fill(~allowed, -math.inf), -1).nan_to_num()
        used = shares.ne(0)
        single = ternary_items(as_values(shares))
    per_row = nonzero(v).sum(-1, dtype=torch.float64)
    per_item = (used.sum(-2) * per_row).sum(-1).reshape(-1)
    ternary = ternary_items(as_values(v)).reshape(-1) | single.reshape(-1)
    counter.items(per_item, ternary, inner, name, "mixture")
    dense = float(allowed.sum((-1, -2)).expand(q.shape[:-2]).sum())
    counter.tally.layer(name).dense += dense * (q.shape[-1] + v.shape[-1])


def _may_vanish(q: Tensor, k: Tensor, mask: Tensor | None, scale: float) -> bool:
    """Return whether the share of a pair that is not masked may be zero: its score is too far below the largest one.

    By Cauchy and Schwarz, no score is larger than the product of the largest norms of a query and a key.
    """
    if mask is not None and bool((mask.ne(0) & ~mask.isneginf()).any()):
        return True
    ones = q.new_ones(q.shape[-1])
    squares = [float((x.square() @ ones).max()) for x in (q, k)]
    distance = 2 * abs(scale) * math.sqrt(math.prod(squares)) + math.log(k.shape[-2])
    return not distance < VANISHES.get(q.dtype, 0.0)


@counting_rule("_safe_softmax")
def masked_scores(counter: Counter, call: Call) -> None:
    """Take the pairs with a score of -∞ from the product before: attention that torch decomposes does not compute them."""
    masked = call.args[0].isneginf()
    if counter.last_product is None or not bool(masked.any()):
        return
    left, right, ternary, inner, name = counter.last_product
    if masked.numel() != math.prod(left.shape[:-1]) * right.shape[-1]:
        return
    pairs = masked.reshape(*left.shape[:-1], right.shape[-1])
    both = nonzero(left) @ nonzero(right)
    products = (both * pairs).sum((-1, -2), dtype=torch.float64).reshape(-1)
    counter.items(-products, ternary, inner, name)
    counter.tally.layer(name).dense -= float(pairs.sum()) * left.shape[-1]
    counter.masked = (tuple(pairs.shape[-2:]), float(pairs.sum()))


def count_pairs(
    counter: Counter,
    q: Tensor,
    k: Tensor,
    allowed: Tensor,
    inner: int | None,
    name: str,
) -> None:
    """Count the products q·k of the pairs of query and key ``allowed``: masked pairs are not computed."""
    if has_no_zeros(q) and has_no_zeros(k):
        pairs = allowed.sum((-1, -2), dtype=torch.float64).expand(q.shape[:-2])
        per_item = pairs.reshape(-1) * q.shape[-1]
    else:
        both = nonzero(q) @ nonzero(k).transpose(-1, -2)
        per_item = (both * allowed).sum((-1, -2), dtype=torch.float64).reshape(-1)
    counter.items(
        per_item,
        ternary_items(as_values(q)).reshape(-1)
        | ternary_items(as_values(k)).reshape(-1),
        inner,
        name,
        "scores",
    )


def _allowed(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return which keys each query attends to, ``(…, query, key)``."""
    allowed = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    allowed = allowed.tril() if causal else allowed
    if mask is None:
        return allowed
    return allowed & mask.isneginf().logical_not()


QUANTISED = tuple(
    f"quantized::{name}"
    for name in names_in(
        """
    linear linear_relu linear_dynamic linear_relu_dynamic linear_dynamic_fp16
    linear_relu_dynamic_fp16 linear_leaky_relu linear_tanh conv1d conv2d conv3d
    conv1d_relu conv2d_relu conv3d_relu conv2d_add conv2d_add_relu conv1d_dynamic
    conv2d_dynamic conv3d_dynamic conv_transpose1d conv_transpose2d conv_transpose3d
    """
    )
)


@counting_rule(*QUANTISED)
def packed(counter: Counter, call: Call) -> None:
    """Count a linear layer or convolution with packed weights, ``(input, …, packed, …)``, for the module that runs."""
    parameters = next(
        value for value in call.args if isinstance(value, torch.ScriptObject)
    )
    x = call.args[0]
    weight = parameters.unpack()[0]
    data_type = "int8" if weight.is_quantized else "float16"
    values = weight.dequantize() if weight.is_quantized else weight.float()
    name = counter.running_name("linear")
    if not hasattr(parameters, "stride"):
        counter.linear(x, values, name, data_type)
        return
    rank = x.dim() - 2
    if values.dim() > rank + 2:  # 1-d kernels are stored as 2-d
        values = values.squeeze(2)
    numbers = (parameters.stride(), parameters.padding(), parameters.dilation())
    stride, padding, dilation = (tuple(value)[-rank:] for value in numbers)
    transposed = bool(parameters.transpose())
    groups = parameters.groups()
    geometry = Geometry(stride, padding, dilation, transposed, groups)
    count_convolution(counter, x, values, call.result, geometry, name, data_type)


@counting_rule("_embedding_bag", "_embedding_bag_forward_only")
def bags(counter: Counter, call: Call) -> None:
    """Sums of a table's rows have no products; weighted ones are not counted.

    Raises
    ------
    ValueError
        The rows are weighted.
    """
    counter.tally.exclude(call.args[0])
    if call.argument(6, "per_sample_weights") is not None:
        raise ValueError("no rule counts the weighted rows of an embedding_bag")
