"""Counting rules of products of two factors: matrix products, tensor products, sums by Einstein, bilinear layers.

A factor that is a weight, or made of weights alone, is met by the rows of the other one; of two factors that samples
bring about, every pair that is multiplied is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from neuroledger.families.efficiency.counting.buffers import EXACT
from neuroledger.families.efficiency.counting.connections import argument, count_linear, plain_rows
from neuroledger.families.efficiency.counting.layer_counts import Tally
from neuroledger.families.efficiency.counting.static import nonzero

__all__ = ["bilinear", "einsum", "inner", "product", "products", "tensordot"]

# The names of two factors in the order in which torch's functions have them; ``input`` is the first where no other is.
NAMES = ("input", "mat", "mat1", "batch1", "tensor", "other", "vec", "vec2", "mat2", "batch2")


def bilinear(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``y_o = Σ_ij x_i W_oij z_j``: one operation for each pair of inputs and weight, none of them zero."""
    left, right = argument(args, kwargs, 0, "input1"), argument(args, kwargs, 1, "input2")
    weight = argument(args, kwargs, 2, "weight")
    name = tally.name(weight, "bilinear")
    tally.reach(weight, name)
    leading = left.shape[:-1]
    left, right = left.reshape(-1, left.shape[-1]), right.reshape(-1, right.shape[-1])
    driven = nonzero(weight).sum(0).to(torch.float32 if weight.numel() < EXACT else torch.float64)
    per_row = ((left.ne(0).to(driven.dtype) @ driven) * right.ne(0)).sum(1)
    plain = plain_rows(tally, left) & plain_rows(tally, right)
    tally.amounts(name, weight.data_ptr(), leading, per_row, plain)
    tally.layer(name).dense += float(len(left)) * weight.numel()


def product(first: int) -> Callable[[Tally, Tensor, tuple[Any, ...], dict[str, Any]], None]:
    """The rule of a matrix product whose factors are the arguments ``first`` and the next."""

    def rule(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        named = [kwargs[name] for name in NAMES if name in kwargs] if kwargs else []
        factors = [value for value in (*args, *named) if isinstance(value, torch.Tensor)]
        products(tally, factors[first], factors[first + 1])

    return rule


def products(tally: Tally, left: Tensor, right: Tensor, name: str = "matmul") -> None:
    """Count ``left @ right``: a factor that belongs to the model is a weight, and the other's rows its inputs."""
    left = left.unsqueeze(0) if left.dim() == 1 else left
    right = right.unsqueeze(1) if right.dim() == 1 else right
    first_owner, second_owner = tally.weight_of(left), tally.weight_of(right)
    if first_owner is not None and second_owner is not None:
        return  # weights made of weights: nothing that a sample takes
    if right.dim() == 2 and second_owner is not None:
        count_linear(tally, left, right.t(), second_owner)
        return
    if left.dim() == 2 and first_owner is not None:
        count_linear(tally, right.transpose(-1, -2), left, first_owner)
        return
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    first = left.expand(*batch, *left.shape[-2:]).reshape(-1, *left.shape[-2:])
    second = right.expand(*batch, *right.shape[-2:]).reshape(-1, *right.shape[-2:])
    met = tally.scratch.per_row(first.transpose(1, 2)).to(torch.float64) * tally.scratch.per_row(second)
    per_item = met.sum(1)
    # A factor that is a weight does not decide whether its inputs need multiplying.
    plain = torch.zeros(len(first), dtype=torch.bool, device=first.device)
    for factor, own, given in ((first, first_owner, left), (second, second_owner, right)):
        if own is None:
            plain = plain | plain_rows(tally, factor)
        else:
            tally.reach(given, own)
    name = first_owner or second_owner or name
    tally.amounts(name, (name, "products"), batch, per_item, plain)
    tally.layer(name).dense += float(first.numel()) * second.shape[-1]


def tensordot(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``tensordot`` as the matrix product that it is, axes brought together."""
    left, right, axes = args[0], args[1], argument(args, kwargs, 2, "dims", 2)
    if isinstance(axes, int):
        axes = (list(range(left.dim() - axes, left.dim())), list(range(axes)))
    one, two = ([axis] if isinstance(axis, int) else list(axis) for axis in axes)
    count = len(one)
    rows = left.movedim(one, list(range(-count, 0))).flatten(-count) if count else left.unsqueeze(-1)
    columns = right.movedim(two, list(range(count))).flatten(0, count - 1) if count else right.unsqueeze(0)
    owner, other = tally.weight_of(right), tally.weight_of(left)
    if owner is not None and other is None:
        tally.reach(right, owner)
        count_linear(tally, rows, columns.flatten(1).t(), owner)
    else:
        products(tally, rows.flatten(0, -2), columns.flatten(1), other or "tensordot")


def inner(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``inner``: the last axes of both factors brought together."""
    left, right = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "other")
    if left.dim() and right.dim():
        left, right = (x.unsqueeze(0) if x.dim() == 1 else x for x in (left, right))
        tensordot(tally, result, (left, right, ([-1], [-1])), {})


def einsum(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``einsum`` of two factors, item by item along the first index of the result.

    Raises
    ------
    ValueError
        More than two factors: how many products that takes depends on the order in which it is carried out.
    """
    equation, factors = args[0], args[1:]
    if len(factors) == 1 and isinstance(factors[0], (list, tuple)):
        factors = tuple(factors[0])
    if not isinstance(equation, str) or len(factors) > 2:
        raise ValueError("einsum is counted for two factors and an equation")
    if len(factors) < 2:  # axes in another order, or sums: nothing is multiplied
        return
    equation = _written_out(equation.replace(" ", ""), factors)
    inputs, _, output = equation.partition("->")
    left, right = inputs.split(",")
    if not output and "->" not in equation:
        output = "".join(sorted(i for i in set(left + right) if (left + right).count(i) == 1))
    item = output[:1]
    masks = [factor.ne(0).to(torch.float64) for factor in factors]
    per_item = torch.einsum(f"{left},{right}->{item}", *masks).reshape(-1)
    plain = torch.zeros(len(per_item), dtype=torch.bool, device=result.device)
    for indices, factor in zip((left, right), factors, strict=True):
        owner = tally.weight_of(factor)
        if owner is not None:
            tally.reach(factor, owner)
        else:
            rows = factor.movedim(indices.index(item), 0) if item and item in indices else factor.unsqueeze(0)
            plain = plain | plain_rows(tally, rows)
    name = next((owner for owner in map(tally.weight_of, factors) if owner), "einsum")
    sizes = dict(zip(left, factors[0].shape, strict=True)) | dict(zip(right, factors[1].shape, strict=True))
    plain = plain.expand(len(per_item))
    tally.amounts(name, equation, per_item.shape, per_item, plain)
    tally.layer(name).dense += float(math.prod(sizes.values()))


def _written_out(equation: str, factors: Sequence[Tensor]) -> str:
    """The equation with an index for each axis that an ellipsis stands for."""
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
        every = "".join(filled)
        output = "..." + "".join(sorted(i for i in set(every) - set(axes) if every.count(i) == 1))
    return f"{','.join(filled)}->{output.replace('...', axes)}"
