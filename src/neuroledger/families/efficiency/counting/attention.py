"""Counting rules of attention: projections by their weights, scores and mixtures by what they multiply."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from neuroledger.families.efficiency.counting.connections import argument, count_linear
from neuroledger.families.efficiency.counting.layer_counts import Tally
from neuroledger.families.efficiency.counting.products import products

__all__ = ["multi_head", "scaled_dot_product"]

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


def multi_head(tally: Tally, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``nn.MultiheadAttention``: query, key and value projections, scores, mixture, output projection.

    Dense, with L queries, S keys and width E: (L + 2S)·E² + 2·L·S·E + L·E², each per sample.

    Raises
    ------
    ValueError
        Keys or values are handed in ready-made (``static_k``, ``static_v``).
    """
    given = _SIGNATURE.bind(*args, **kwargs)
    given.apply_defaults()
    a = given.arguments
    if a["static_k"] is not None or a["static_v"] is not None:
        raise ValueError(
            "its keys or values are handed in ready-made (static_k, static_v), which is not counted"
        )
    query, key, value = (x.unsqueeze(1) if x.dim() == 2 else x for x in (a["query"], a["key"], a["value"]))
    if a["use_separate_proj_weight"]:
        weights = [a["q_proj_weight"], a["k_proj_weight"], a["v_proj_weight"]]
    else:
        weights = list(a["in_proj_weight"].chunk(3))
    biases = a["in_proj_bias"].chunk(3) if a["in_proj_bias"] is not None else (None, None, None)
    name = tally.name(weights[0], "attention")
    projected = []
    for x, weight, bias in zip((query, key, value), weights, biases, strict=True):
        count_linear(tally, x.transpose(0, 1), weight, name)  # by sample first, then by place
        projected.append(F.linear(x, weight, bias))
    if a["in_proj_weight"] is not None:
        tally.reach(a["in_proj_weight"], name)
    q, k, v = projected
    added = 0
    if a["bias_k"] is not None:
        k = torch.cat([k, a["bias_k"].expand(1, *k.shape[1:])])
        v = torch.cat([v, a["bias_v"].expand(1, *v.shape[1:])])
        added += 1
    if a["add_zero_attn"]:
        k, v = (torch.cat([x, x.new_zeros(1, *x.shape[1:])]) for x in (k, v))
        added += 1
    heads = a["num_heads"]
    q, k, v = (x.unflatten(2, (heads, -1)).permute(1, 2, 0, 3) for x in (q, k, v))
    mixed = count_attention(tally, name, q, k, v, _mask(a, q, added), 1 / math.sqrt(q.shape[-1]))
    count_linear(tally, mixed.transpose(1, 2).flatten(2), a["out_proj_weight"], name)


def scaled_dot_product(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``scaled_dot_product_attention`` of q ``(…, L, E)``, k ``(…, S, E)``, v ``(…, S, Ev)``: L·S·(E + Ev), dense."""
    q, k, v = (argument(args, kwargs, place, name) for place, name in enumerate(("query", "key", "value")))
    mask = argument(args, kwargs, 3, "attn_mask")
    scale = argument(args, kwargs, 6, "scale") or 1 / math.sqrt(q.shape[-1])
    if argument(args, kwargs, 7, "enable_gqa", False):
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    if argument(args, kwargs, 5, "is_causal", False):
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, -math.inf)
    count_attention(tally, "attention", q, k, v, mask, scale)


def count_attention(
    tally: Tally, name: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
) -> Tensor:
    """Count q·kᵀ and softmax(scores)·v, and return the mixture; a masked key has weight zero and is not mixed in."""
    products(tally, q, k.transpose(-1, -2), name)
    scores = q @ k.transpose(-1, -2) * scale
    shares = torch.softmax(scores if mask is None else scores + mask, -1)
    shares = torch.nan_to_num(shares)
    products(tally, shares, v, name)
    return shares @ v


def _mask(a: dict[str, Any], q: Tensor, added: int) -> Tensor | None:
    """The additive mask that broadcasts over ``(batch, head, query, key)``; True and -inf both mean: do not look."""
    total: Tensor | None = None
    padding, attention = a["key_padding_mask"], a["attn_mask"]
    if padding is not None and padding.dim() == 1:
        padding = padding.unsqueeze(0)
    shaped = []
    if padding is not None:
        shaped.append(padding[:, None, None, :])
    if attention is not None:
        shaped.append(attention if attention.dim() == 2 else attention.unflatten(0, (q.shape[0], -1)))
    for part in shaped:
        if part.dtype == torch.bool:
            part = torch.zeros(part.shape, dtype=q.dtype, device=q.device).masked_fill(part, -math.inf)
        part = F.pad(part, (0, added))
        total = part if total is None else total + part
    return total
