"""Operators of torch that are no synaptic operations by definition: everything else needs a rule, or is uncounted.

Elementwise operators, reductions, views and random numbers carry a tag of torch, and operators without a tensor among their
arguments or results multiply none. The names here are the others: they fill, move, select, sort, normalise, pool, resample
or compare values, or look up rows of a table.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

__all__ = [
    "ACTIVATIONS",
    "CONVERTS",
    "JOINS",
    "MULTIPLIES",
    "SINGLE",
    "SUMS",
    "TABLE",
    "is_free",
    "leaves_torch",
    "names_in",
]


def names_in(text: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(text.split())


_TAGS: Final = frozenset(
    {
        torch.Tag.pointwise,
        torch.Tag.reduction,
        torch.Tag.view_copy,
        torch.Tag.inplace_view,
    }
)

# Random numbers depend on two tensors at most; attention with dropout has more.
MEAN_AND_DEVIATION: Final = 2
_MOVES: Final = names_in(
    """
    block_diag _cast_Byte cat channel_shuffle _coalesce _coalesced col2im complex
    constant_pad_nd copy _copy_from dequantize diag_embed diagonal_scatter
    empty_like fill fill_diagonal flip full_like _fused_moving_avg_obs_fq_helper
    gather im2col index index_copy index_fill index_put index_select int_repr lift
    masked_fill masked_scatter masked_select _mkldnn_reshape _mkldnn_transpose
    _nested_tensor_from_tensor_list _nested_tensor_size _nested_tensor_strides
    new_empty new_empty_strided new_full new_ones new_zeros nonzero nonzero_static
    ones_like _pack_padded_sequence _pad_packed_sequence _pin_memory pixel_shuffle
    pixel_unshuffle polar put quantize_per_channel quantize_per_tensor
    quantize_per_tensor_dynamic reflection_pad1d reflection_pad2d reflection_pad3d
    repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d
    _reshape_copy _resize_output roll rot90 scatter select_scatter
    _sparse_compressed_tensor_unsafe _sparse_coo_tensor_with_dims_and_tensors
    _sparse_csr_tensor_unsafe sparse_resize_and_clear stack take _to_copy _to_dense
    to_mkldnn _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr
    trace tril triu _unsafe_index _unsafe_index_put unsafe_split
    unsafe_split_with_sizes _unsafe_view zero zeros_like
    linspace logspace set_data
    """
)
_COMPARES: Final = names_in(
    """
    argsort binary_cross_entropy binary_cross_entropy_with_logits bucketize cummax
    cummin cumprod cumsum histc huber_loss isin kthvalue l1_loss logcumsumexp median
    mode mse_loss multi_margin_loss nanmedian nll_loss2d_forward nll_loss_forward
    searchsorted smooth_l1_loss soft_margin_loss sort topk _unique _unique2
    unique_consecutive unique_dim
    """
)
_NORMS: Final = names_in(
    """
    batch_norm _batch_norm_no_update _batch_norm_with_update _fused_rms_norm glu
    log_sigmoid_forward _log_softmax _masked_scale native_batch_norm
    _native_batch_norm_legit _native_batch_norm_legit_no_training native_group_norm
    native_layer_norm _prelu_kernel renorm rms_norm _safe_softmax softmax _softmax
    _weight_norm_interface
    """
)
_POOLS: Final = names_in(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d
    adaptive_max_pool3d affine_grid_generator avg_pool2d avg_pool3d embedding
    embedding_renorm fractional_max_pool2d fractional_max_pool3d grid_sampler_2d
    grid_sampler_3d max_pool2d_with_indices max_pool3d_with_indices max_unpool2d
    max_unpool3d mkldnn_max_pool2d quantized_max_pool1d quantized_max_pool2d
    upsample_bicubic2d _upsample_bicubic2d_aa upsample_bilinear2d
    _upsample_bilinear2d_aa upsample_linear1d upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d upsample_trilinear3d
    """
)
_FREE: Final = _MOVES | _COMPARES | _NORMS | _POOLS
# Operators of torchvision that select boxes or interpolate images, and of quantised layers that convert or add values.
_RESAMPLES: Final = names_in("nms roi_align roi_pool ps_roi_align ps_roi_pool")
_QUANTISED: Final = names_in(
    "embedding_byte embedding_4bit embedding_bag_byte add add_relu mul cat relu6"
)

ACTIVATIONS: Final = names_in(
    """
    relu relu6 sigmoid tanh gelu elu selu celu silu mish leaky_relu hardtanh threshold
    softplus hardswish hardsigmoid hardshrink softshrink glu
    """
)
CONVERTS: Final = {
    "_prelu_kernel": "prelu",
    "log_sigmoid_forward": "logsigmoid",
    "rrelu_with_noise": "rrelu",
}
"""Activations whose operator has another name than torch's function."""

SUMS: Final = frozenset({"add", "sub", "rsub"})
MULTIPLIES: Final = names_in(
    """
    mul addcmul addcdiv lerp where div true_divide masked_fill pow maximum minimum fmod
    remainder logical_and bitwise_and xlogy hypot
    """
)
"""Elementwise operators that can multiply each of several values with each weight of a matrix."""

SINGLE: Final = "_local_scalar_dense"
TABLE: Final = "embedding"
JOINS: Final = ("cat", "stack")


@lru_cache(maxsize=4096)
def is_free(operator: Any) -> bool:
    """Return whether an operator is no synaptic operation by definition."""
    name = operator._opname
    if operator.namespace == "torchvision":
        return name in _RESAMPLES
    if operator.namespace == "quantized":
        return name in _QUANTISED
    if operator.namespace not in ("aten", "prim", "prims"):
        return False
    named = name in _FREE or name.removesuffix("_") in _FREE
    tagged = operator.is_view or _TAGS.intersection(operator.tags)
    return bool(named or tagged or _fills(operator))


def _fills(operator: Any) -> bool:
    """Return whether an operator takes no tensor, makes and writes none, or draws random numbers."""
    given = [a for a in operator._schema.arguments if "Tensor" in str(a.type)]
    taken = sum(not argument.is_out for argument in given)
    makes = any("Tensor" in str(value.type) for value in operator._schema.returns)
    writes = any(argument.is_write for argument in given)
    draws = torch.Tag.nondeterministic_seeded in operator.tags
    few = taken <= MEAN_AND_DEVIATION
    return not taken or not (makes or writes) or (draws and few)


def leaves_torch(tensor: Tensor) -> bool:
    """Return whether a number that leaves torch is one of several: the rest of the computation may follow it."""
    if not tensor.dtype.is_floating_point or tensor.layout is not torch.strided:
        return False
    return bool(tensor.untyped_storage().nbytes() > tensor.element_size())
