"""Operators of torch that are no synaptic operations by definition: everything else needs a rule, or is uncounted.

Elementwise operators, reductions and views carry a tag of torch. The names here are the others: they fill, move, select,
sort, normalise, pool, resample or compare values, or look up rows of a table.
"""

from __future__ import annotations

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

_FILLS: Final = names_in(
    """
    arange bernoulli bernoulli_ cauchy cauchy_ empty empty_like empty_permuted
    empty_strided exponential exponential_ eye fill fill_ full full_like geometric
    geometric_ hann_window linspace log_normal log_normal_ logspace multinomial
    native_dropout new_empty new_empty_strided new_full new_ones new_zeros normal
    normal_ ones ones_like poisson rand rand_like randint randint_like randn randn_like
    randperm scalar_tensor tril_indices triu_indices uniform uniform_ zero zero_ zeros
    zeros_like random_ _efficientzerotensor
    """
)
_MOVES: Final = names_in(
    """
    _pack_padded_sequence _pad_packed_sequence _pin_memory _reshape_copy
    _resize_output_ _to_copy _to_dense _to_sparse _unsafe_index _unsafe_index_put
    _unsafe_view block_diag cat channel_shuffle col2im constant_pad_nd copy_ copy
    detach_ diag_embed diagonal_scatter flip gather im2col index index_copy index_copy_
    index_fill index_fill_ index_put index_put_ index_select lift lift_fresh
    masked_fill_ masked_scatter masked_scatter_ masked_select nonzero nonzero_static
    pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d
    repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d
    resize_ roll rot90 scatter scatter_ select_scatter set_ slice_scatter stack take
    to_mkldnn tril tril_ triu triu_ unsafe_split unsafe_split_with_sizes dequantize
    quantize_per_tensor q_scale q_zero_point int_repr quantize_per_channel
    quantize_per_tensor_dynamic coalesce _coalesce is_coalesced _coalesced_ _indices
    _values indices values _to_sparse_csr _to_sparse_csc _to_sparse_bsr _to_sparse_bsc
    crow_indices col_indices ccol_indices row_indices sparse_dim dense_dim _nnz
    _sparse_coo_tensor_with_dims_and_tensors sparse_resize_and_clear_ _conj_physical
    _nested_tensor_size _nested_tensor_from_tensor_list _nested_tensor_strides set_data
    complex polar fill_diagonal_ put put_ trace _fused_moving_avg_obs_fq_helper
    _mkldnn_reshape _mkldnn_transpose _sparse_compressed_tensor_unsafe
    _sparse_csr_tensor_unsafe _copy_from _cast_Byte unfold_copy
    """
)
_COMPARES: Final = names_in(
    """
    _unique _unique2 allclose binary_cross_entropy binary_cross_entropy_with_logits
    bucketize cummax cummin cumprod cumprod_ cumsum cumsum_ equal huber_loss
    is_same_size isin item kthvalue l1_loss logcumsumexp median mode mse_loss
    multi_margin_loss nanmedian nll_loss2d_forward nll_loss_forward searchsorted
    smooth_l1_loss soft_margin_loss sort topk unique_consecutive unique_dim
    _assert_async _assert_scalar _assert_tensor_metadata histc _local_scalar_dense
    is_nonzero is_pinned argsort
    """
)
_NORMS: Final = names_in(
    """
    _batch_norm_no_update _batch_norm_with_update _log_softmax _masked_scale
    _native_batch_norm_legit _native_batch_norm_legit_no_training _safe_softmax
    _softmax batch_norm _weight_norm_interface native_batch_norm native_group_norm
    native_layer_norm renorm _fused_rms_norm rms_norm _prelu_kernel glu
    log_sigmoid_forward rrelu_with_noise rrelu_with_noise_ softmax
    """
)
_POOLS: Final = names_in(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d
    avg_pool2d avg_pool3d fractional_max_pool2d fractional_max_pool3d grid_sampler_2d
    grid_sampler_3d affine_grid_generator max_pool2d_with_indices
    max_pool3d_with_indices max_unpool2d max_unpool3d _upsample_bicubic2d_aa
    _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d upsample_bicubic2d upsample_bilinear2d upsample_linear1d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
    embedding embedding_renorm_ quantized_max_pool2d quantized_max_pool1d
    mkldnn_max_pool2d
    """
)
_FREE: Final = _FILLS | _MOVES | _COMPARES | _NORMS | _POOLS
# Operators of torchvision that select boxes or interpolate images, and of quantised layers that convert or add values.
_RESAMPLES: Final = frozenset(
    {"nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"}
)
_QUANTISED: Final = frozenset(
    {
        "embedding_byte",
        "embedding_4bit",
        "embedding_bag_byte",
        "add",
        "add_relu",
        "mul",
        "cat",
        "relu6",
    }
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
    return bool(named or operator.is_view or _TAGS.intersection(operator.tags))


def leaves_torch(tensor: Tensor) -> bool:
    """Return whether a number that leaves torch is one of several: the rest of the computation may follow it."""
    if not tensor.dtype.is_floating_point or tensor.layout is not torch.strided:
        return False
    return bool(tensor.untyped_storage().nbytes() > tensor.element_size())
