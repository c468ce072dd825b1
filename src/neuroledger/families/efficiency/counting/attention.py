"""Counting rules of attention.

For ``nn.MultiheadAttention``, the functions that torch calls inside it are recorded, so nothing is computed a second time.
Where attention is a single function, its shares are not visible: they are computed again only if some may be exactly zero.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.overrides import TorchFunctionMode

from neuroledger.families.efficiency.counting.layer_counts import Tally
from neuroledger.families.efficiency.counting.rows import FLOATS, count_nonzero
from neuroledger.families.efficiency.counting.rules import argument, count_linear, products, ternary_items

__all__ = ["fused_attention", "multi_head", "record_parts", "scaled_dot_product", "math_attention"]

PARTS = frozenset({"linear", "bmm", "baddbmm", "scaled_dot_product_attention"})

# If scores differ by less, no share of a softmax is zero: e⁻⁶⁰ is far above the smallest number of either type.
NEAR = 60.0

_SIGNATURE = inspect.signature(F.multi_head_attention_forward)


class _PartRecorder(TorchFunctionMode):  # type: ignore[misc]
    """Records the arguments of the parts of a function."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in PARTS:
            self.calls.append((name, args))
        return result


@lru_cache(maxsize=4)
def _body(function: Any) -> Callable[..., Any]:
    """Return a torch function without its dispatch to function modes, so that its parts are dispatched instead."""
    if not isinstance(function, FunctionType) or "has_torch_function" not in function.__code__.co_names:
        return function  # type: ignore[no-any-return]
    namespace = {**function.__globals__, "has_torch_function": lambda _: False}
    body = FunctionType(function.__code__, namespace, function.__name__, function.__defaults__)
    body.__kwdefaults__ = function.__kwdefaults__
    return body


def record_parts(tally: Tally, function: Any) -> Callable[..., Any]:
    """Wrap a function so that the arguments of its parts are stored in ``tally.recorded_parts``."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with _PartRecorder() as inside:
            result = _body(function)(*args, **kwargs)
        tally.recorded_parts = inside.calls
        return result

    return run


def multi_head(tally: Tally, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count ``nn.MultiheadAttention``: query, key and value projections, scores, mixture, output projection.

    Dense operations per sample, with L queries, S keys and width E: (L + 2S)·E² + 2·L·S·E + L·E².

    Raises
    ------
    ValueError
        Keys or values are precomputed (``static_k``, ``static_v``), or this torch version has other parts.
    """
    calls, tally.recorded_parts = tally.recorded_parts, []
    bound = _SIGNATURE.bind(*args, **kwargs)
    bound.apply_defaults()
    a = bound.arguments
    if a["static_k"] is not None or a["static_v"] is not None:
        raise ValueError(
            "its keys or values are handed in ready-made (static_k, static_v), which is not counted"
        )
    *projected, mixed = [args for part, args in calls if part == "linear"] or [()]
    attended = [(part, args) for part, args in calls if part != "linear"]
    if not projected or not attended:
        raise ValueError("its parts are not those that are known of torch")
    query = a["query"]
    length, samples = query.shape[0], 1 if query.dim() == 2 else query.shape[1]
    whole = a["q_proj_weight"] if a["use_separate_proj_weight"] else a["in_proj_weight"]
    name = tally.name(whole, "attention")
    for x, weight, *_ in projected:
        count_linear(tally, x.transpose(0, 1), weight, name)  # samples first, then positions
    for weight in (whole, a["bias_k"], a["bias_v"]):  # learned extra key and value
        if weight is not None:
            tally.reach(weight, name)
    heads = (samples, a["num_heads"])
    for part, values in attended:
        if part == "scaled_dot_product_attention":
            q, k, v, mask, _, causal = values
            count_attention(tally, name, q, k, v, _additive(mask, causal, q, k), 1 / math.sqrt(q.shape[-1]))
        else:
            left, right = values[-2:]
            products(tally, left.unflatten(0, heads), right.unflatten(0, heads), name)
    mixed_values, out, *_ = mixed
    count_linear(tally, mixed_values.unflatten(0, (length, samples)).transpose(0, 1), out, name)


def scaled_dot_product(tally: Tally, result: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count ``scaled_dot_product_attention`` of q ``(…, L, E)``, k ``(…, S, E)``, v ``(…, S, Ev)``: dense L·S·(E + Ev)."""
    q, k, v = (
        argument(args, kwargs, position, name) for position, name in enumerate(("query", "key", "value"))
    )
    scale = argument(args, kwargs, 6, "scale")
    if argument(args, kwargs, 7, "enable_gqa", False):
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    mask = _additive(
        argument(args, kwargs, 3, "attn_mask"), argument(args, kwargs, 5, "is_causal", False), q, k
    )
    count_attention(tally, "attention", q, k, v, mask, 1 / math.sqrt(q.shape[-1]) if scale is None else scale)


def fused_attention(tally: Tally, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count the operators below ``scaled_dot_product_attention``: (q, k, v, dropout, causal, …)."""
    causal = argument(args, kwargs, 4, "is_causal", False)
    mask, scale = kwargs.get("attn_mask"), kwargs.get("scale")
    arguments = (*args[:3], mask, 0.0, causal, scale)
    scaled_dot_product(tally, result[0], arguments, {})


def math_attention(tally: Tally, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count the operator that also returns its shares: (q, k, v, mask, dropout, causal, …)."""
    scaled_dot_product(tally, result[0], args[:6], kwargs)  # the seventh is the dropout mask


def _additive(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
    """Return the mask to add to the scores: -inf where a query does not attend to a key."""
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, -math.inf)
    return mask


def count_attention(
    tally: Tally, name: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
) -> None:
    """Count q·kᵀ and softmax(scores)·v; a masked key has weight zero and adds nothing."""
    products(tally, q, k.transpose(-1, -2), name)
    if _count_nonzero_shares(tally, name, q, k, v, mask, scale):
        return
    scores = q @ k.transpose(-1, -2) * scale
    shares = torch.softmax(scores if mask is None else scores + mask, -1)
    products(tally, torch.nan_to_num(shares), v, name)


def _largest_norm(vectors: Tensor) -> float:
    """Return the largest norm of vectors ``(…, feature)``, without copying them; not finite if one of them is not."""
    if not vectors.is_cpu:
        return float(vectors.norm(dim=-1).amax())
    values = vectors.detach().resolve_neg().numpy()
    with np.errstate(all="ignore"):
        return math.sqrt(np.einsum("...i,...i->...", values, values).max())


def _count_nonzero_shares(
    tally: Tally, name: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float
) -> bool:
    """Count softmax(scores)·v if only masked shares can be zero and none can be one; return whether this holds."""
    if q.dtype not in FLOATS or k.dtype not in FLOATS or not q.numel() or not k.numel():
        return False
    spread = 2 * _largest_norm(q) * _largest_norm(k) * abs(scale)
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    rows = float(q.shape[-2])
    if mask is None:
        queries_per_key, most_keys = torch.tensor(rows, device=q.device), k.shape[-2]
    else:
        visible = mask.isneginf().logical_not()
        mask_values = mask[visible]
        spread += float(mask_values.max() - mask_values.min()) if mask_values.numel() else 0.0
        visible = visible.expand(*visible.shape[:-2], q.shape[-2], k.shape[-2])
        queries_per_key = visible.sum(-2, dtype=torch.float64)  # (…, key): queries that attend to each key
        most_keys = int(visible.sum(-1).amax(-1).min())
    if not spread < NEAR or most_keys < 2:  # a single key has the share 1, which needs no multiplication
        return False
    if v.is_cpu and count_nonzero(v) == v.numel():
        values_per_row = torch.full(v.shape[:-1], float(v.shape[-1]), dtype=torch.float64)
    else:
        values_per_row = tally.scratch.per_row(v)
    per_item = (queries_per_key * values_per_row).sum(-1, dtype=torch.float64).expand(batch).reshape(-1)
    tally.add_row_operations(name, (name, "products"), batch, per_item, ternary_items(tally, v, batch))
    tally.layer(name).dense += rows * len(per_item) * v.shape[-2] * v.shape[-1]
    return True
