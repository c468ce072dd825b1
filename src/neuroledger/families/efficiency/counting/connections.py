"""Counting rules of linear layers, convolutions and transposed convolutions.

Effective operations of a connection are the products of which both factors are not zero. Every input value is
multiplied by a fixed number of non-zero weights, its fan-out, so that a call costs one sum over its inputs,
Σ 1[x ≠ 0] · fan-out, whatever the kernel; the fan-out is found once per layer and input shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from neuroledger.families.efficiency.counting.buffers import EXACT, Fan
from neuroledger.families.efficiency.counting.layer_counts import Site, Tally
from neuroledger.families.efficiency.counting.static import nonzero

__all__ = [
    "argument",
    "convolution",
    "count_convolution",
    "count_linear",
    "general_convolution",
    "linear",
    "plain_rows",
    "transposed",
]


def argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], place: int, name: str, default: Any = None
) -> Any:
    """An argument given by place or by name."""
    return args[place] if len(args) > place else kwargs.get(name, default)


def plain_rows(tally: Tally, values: Tensor) -> Tensor:
    """Whether each item ``(item, …)`` holds nothing but -1, 0 and 1."""
    found = tally.scratch.plain(values.flatten(1))
    return torch.full((len(values),), found, device=values.device) if isinstance(found, bool) else found


def exact(driven: Tensor, bound: float) -> Fan:
    """The fan-out in the cheapest type in which sums up to ``bound`` are exact."""
    return Fan(len(driven), driven.to(torch.float32 if bound < EXACT else torch.float64))


def count(
    tally: Tally,
    name: str,
    x: Tensor,
    leading: Sequence[int],
    weight: Tensor,
    dense: float,
    fan: Callable[[float], Fan],
    key: tuple[Any, ...] | None = None,
) -> None:
    """Count a call on inputs that drive ``fan(most operations of a row)``; remember it if the weight is the model's."""
    tally.reach(weight, name)
    if not x.numel():  # an expert that no sample chose
        return
    shape = (math.prod(leading), x.numel() // math.prod(leading))
    bound = dense / max(1, shape[0])
    if key is None or weight.is_inference() or tally.owner(weight) is None:
        made = tally.made.origin(weight)
        fresh = ("fresh", made.root if made else None, x.shape[len(leading) :])
        inbox = tally.inbox(name, fresh, fan(bound), remade=made is not None)
        inbox.take(x.reshape(shape), leading, tally.batch, tally.samples)
        tally.layer(name).dense += dense
        return
    site = tally.sites.get(key)
    if site is None or site.weight is not weight or site.version != weight._version:
        # The batch's size is no part of the role: the first dimensions of an input do not change its fan-out.
        role = (key[0], weight.data_ptr(), weight._version, x.shape[len(leading) :], key[3])
        inbox = tally.known_inbox(name, role) or tally.inbox(name, role, fan(bound))
        site = Site(weight, weight._version, tally.layer(name), inbox, shape, leading, dense)
        tally.sites[key] = site
    tally.at(site, x)


def linear(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``y = x Wᵀ + b``: dense operations = rows · in · out; the bias is no synapse."""
    x, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    count_linear(tally, x, weight, tally.name(weight, "linear"))


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


def column_sums(tally: Tally, weight: Tensor, bound: float) -> Fan:
    """Non-zero weights of each input, for W ``(out, in)``."""
    if tally.is_full(weight):
        return Fan(weight.shape[1], each=float(len(weight)))
    return exact(nonzero(weight).sum(0), bound)


def convolution(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A convolution of any rank: dense = output values · weights per output value, padding included."""
    x, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    stride, padding = argument(args, kwargs, 3, "stride", 1), argument(args, kwargs, 4, "padding", 0)
    dilation, groups = argument(args, kwargs, 5, "dilation", 1), argument(args, kwargs, 6, "groups", 1)
    name = tally.name(weight, "conv")
    key = None if kwargs else (f"conv{weight.dim() - 2}d", id(weight), x.shape, tuple(map(_fixed, args[3:])))
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
    rank = weight.dim() - 2
    space, out = x.shape[-rank:], result.shape[-rank:]

    def fan(bound: float) -> Fan:
        if weight.is_cpu and tally.is_full(weight):
            kernel, filters, channels = tuple(weight.shape[2:]), len(weight) // groups, x.shape[-rank - 1]
            met = (tuple(space), tuple(out), kernel, _fixed(stride), _fixed(padding), _fixed(dilation))
            return _coverage(*met, filters, channels, bound < EXACT)
        driven = (
            nonzero(weight).unflatten(0, (groups, -1)).sum(1, dtype=torch.float32).flatten(0, 1).unsqueeze(1)
        )
        return exact(_adjoint(driven, space, out, stride, padding, dilation), bound)

    leading = tuple(x.shape[:1]) if x.dim() == weight.dim() else (1,)
    count(tally, name, x, leading, weight, float(result.numel()) * math.prod(weight.shape[1:]), fan, key)


def transposed(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A transposed convolution: dense = input values · weights per input value, cropped ones included."""
    x, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    stride, padding = argument(args, kwargs, 3, "stride", 1), argument(args, kwargs, 4, "padding", 0)
    extra, dilation = argument(args, kwargs, 5, "output_padding", 0), argument(args, kwargs, 7, "dilation", 1)
    rank = weight.dim() - 2
    space, out = x.shape[-rank:], result.shape[-rank:]
    name = tally.name(weight, "conv_transpose")

    def fan(bound: float) -> Fan:
        driven = nonzero(weight).sum(1, keepdim=True, dtype=torch.float32)
        return exact(_adjoint(driven, space, out, stride, padding, dilation, extra), bound)

    leading = tuple(x.shape[:1]) if x.dim() == weight.dim() else (1,)
    kind = f"conv_transpose{rank}d"
    key = None if kwargs else (kind, id(weight), x.shape, tuple(map(_fixed, args[3:])))
    count(tally, name, x, leading, weight, float(x.numel()) * math.prod(weight.shape[1:]), fan, key)


@lru_cache(maxsize=256)
def _coverage(
    space: tuple[int, ...],
    out: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
    filters: int,
    channels: int,
    small: bool,
) -> Fan:
    """Weights that each value of a map ``(channel · place,)`` meets where none of them is zero: it is geometry."""
    rank = len(space)
    steps, gaps = _each(stride, rank), _each(dilation, rank)
    before, _ = _padding(padding, kernel, gaps)
    met = torch.ones(1)
    for axis in range(rank):
        line = [0.0] * space[axis]
        for start in range(out[axis]):
            for tap in range(kernel[axis]):
                place = start * steps[axis] - before[axis] + tap * gaps[axis]
                if 0 <= place < space[axis]:
                    line[place] += 1.0
        met = torch.outer(met, torch.tensor(line)).flatten()
    with torch.inference_mode(False):
        driven = (met * filters).to(torch.float32 if small else torch.float64).repeat(channels)
    return Fan(len(driven), driven, float(driven[0]) if bool(driven.eq(driven[0]).all()) else None)


def _fixed(value: Any) -> Any:
    """A stride, padding or dilation as something that can be remembered by."""
    return tuple(value) if isinstance(value, (list, tuple)) else value


def _adjoint(
    driven: Tensor,
    space: Sequence[int],
    out: Sequence[int],
    stride: Any,
    padding: Any,
    dilation: Any,
    extra: Any = None,
) -> Tensor:
    """How many non-zero weights each value of a map ``(channel, *space)`` meets: the adjoint applied to ones.

    ``driven`` (channel, 1, *kernel) holds the non-zero weights from each channel, summed over its outputs; ``extra``
    is the output padding of a transposed convolution.
    """
    rank, channels = len(space), len(driven)
    exact = driven.to(torch.float64) if float(driven.sum()) >= EXACT else driven
    before, after = _padding(padding, driven.shape[2:], _each(dilation, rank))
    ones = exact.new_ones((1, channels, *out))
    lengths = [n + a - b for n, a, b in zip(space, after, before, strict=True)]
    shape = exact.new_empty((1, channels, *lengths))
    fan = torch.ops.aten.convolution_backward(
        ones, shape, exact, None, _each(stride, rank), before, _each(dilation, rank), extra is not None,
        _each(extra or 0, rank), channels, [True, False, False],
    )[0]  # fmt: skip
    for axis, length in enumerate(space):
        fan = fan.narrow(2 + axis, 0, length)
    return fan.flatten()


def _each(value: Any, rank: int) -> list[int]:
    """One number for every axis of space."""
    values = [int(v) for v in value] if isinstance(value, (tuple, list)) else [int(value)]
    return values * rank if len(values) == 1 else values


def _padding(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[list[int], list[int]]:
    """Zeros before and after each axis; ``same`` puts the odd one behind."""
    if padding == "valid":
        return [0] * len(kernel), [0] * len(kernel)
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return [t // 2 for t in total], [t - t // 2 for t in total]
    both = _each(padding, len(kernel))
    return both, both


def general_convolution(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``torch.convolution``: of any rank, transposed or not, ``(input, weight, bias, stride, padding, dilation, …)``."""
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
    x, weight, bias, stride, padding, dilation, other_way, extra, groups = (
        argument(args, kwargs, place, name) for place, name in enumerate(names)
    )
    if other_way:
        transposed(tally, result, (x, weight, bias, stride, padding, extra, groups, dilation), {})
    else:
        convolution(tally, result, (x, weight, bias, stride, padding, dilation, groups), {})
