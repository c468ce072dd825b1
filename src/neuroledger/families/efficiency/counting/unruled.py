"""Torch's functions and operators that multiply and accumulate without a counting rule: they are reported, not ignored.

A test compares these names, and those of the rules, with all functions of the installed torch.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

__all__ = ["BLIND", "DECOMPOSED", "ENDS_PROCESS", "LEAVES", "SINGLE", "UNSEEN_BELOW", "refuse_unsafe_product"]

_FFT = frozenset(
    f"fft_{inverse}{kind}fft{rank}"
    for inverse in ("", "i")
    for kind in ("", "r", "h")
    for rank in ("", "2", "n")
) | {"_fft_r2c", "_fft_c2c", "_fft_c2r", "stft", "istft"}

# Factorisations, solvers that use them, and powers.
_ALGEBRA = frozenset(
    {
        "linalg_cholesky", "linalg_cholesky_ex", "linalg_cond", "linalg_det", "_linalg_det", "linalg_eig", "linalg_eigh",
        "_linalg_eigh", "linalg_eigvals", "_linalg_eigvals", "linalg_eigvalsh", "linalg_householder_product", "linalg_inv",
        "linalg_inv_ex", "linalg_ldl_factor", "linalg_ldl_factor_ex", "linalg_ldl_solve", "linalg_lstsq", "linalg_lu",
        "linalg_lu_factor", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_matrix_exp", "linalg_matrix_power",
        "linalg_matrix_rank", "linalg_multi_dot", "linalg_pinv", "linalg_qr", "linalg_slogdet", "_linalg_slogdet",
        "linalg_solve", "linalg_solve_ex", "_linalg_solve_ex", "linalg_solve_triangular", "linalg_svd", "_linalg_svd",
        "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve", "linalg_vecdot", "cholesky", "cholesky_inverse",
        "cholesky_solve", "_cholesky_solve_helper", "det", "logdet", "slogdet", "geqrf", "orgqr", "ormqr", "inverse",
        "pinverse", "lobpcg", "pca_lowrank", "svd_lowrank", "lu", "lu_solve", "_lu_with_info", "matrix_exp", "matrix_power",
        "qr", "svd", "triangular_solve", "_spsolve", "chain_matmul",
    }
)  # fmt: skip

# Distances and products of vectors.
_PAIRS = frozenset(
    {
        "cdist", "_cdist_forward", "_euclidean_dist", "pdist", "_pdist_forward", "dist", "pairwise_distance",
        "cosine_similarity", "cov", "corrcoef", "kron", "outer", "ger", "addr", "addr_", "cross", "linalg_cross",
        "trapezoid", "trapz", "cumulative_trapezoid", "_trilinear", "_compute_linear_combination",
    }
)  # fmt: skip

# Matrix products in types or layouts without a rule, grouped products, and losses that include products.
_PACKED = frozenset(
    {
        "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_with_scales_and_zeros",
        "_dyn_quant_matmul_4bit", "_mixed_dtypes_linear", "_wrapped_quantized_linear_prepacked", "fbgemm_linear_fp16_weight",
        "fbgemm_linear_fp16_weight_fp32_activation", "_grouped_mm", "grouped_mm", "_scaled_grouped_mm",
        "_scaled_grouped_mm_v2", "scaled_grouped_mm", "scaled_mm", "_scaled_mm_v2", "_foreach_mm", "_foreach_addmm",
        "sparse_sampled_addmm", "smm", "hspmm", "dsmm", "hsmm", "_sparse_mm_reduce_impl",
        "_cslt_sparse_mm", "_sparse_semi_structured_addmm",
        "_sparse_semi_structured_linear", "_sparse_semi_structured_mm", "_sparse_semi_structured_apply",
        "_sparse_semi_structured_apply_dense", "linear_cross_entropy",
    }
)  # fmt: skip

# Convolutions, recurrent layers and attention under the names of their implementations.
_KERNELS = frozenset(
    {
        "conv_tbc", "thnn_conv2d", "_slow_conv2d_forward", "slow_conv3d", "slow_conv3d_forward", "slow_conv_dilated2d",
        "slow_conv_dilated3d", "slow_conv_transpose2d", "slow_conv_transpose3d", "_nnpack_spatial_convolution",
        "_conv_depthwise2d", "conv_depthwise3d", "convolution_overrideable", "_mps_convolution",
        "_mps_convolution_transpose", "cudnn_convolution", "cudnn_convolution_add_relu", "cudnn_convolution_relu",
        "cudnn_convolution_transpose", "miopen_convolution", "miopen_convolution_add_relu", "miopen_convolution_relu",
        "miopen_convolution_transpose",
        "miopen_depthwise_convolution", "mkldnn_convolution", "miopen_rnn", "_cudnn_rnn", "mkldnn_rnn_layer", "_lstm_mps",
        "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "quantized_lstm", "quantized_gru", "quantized_lstm_cell",
        "quantized_gru_cell", "quantized_rnn_relu_cell", "quantized_rnn_tanh_cell", "_native_multi_head_attention",
        "_transformer_encoder_layer_fwd", "_triton_multi_head_attention", "_triton_scaled_dot_attention", "flex_attention",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_efficient_attention", "_cudnn_attention_forward",
        "_scaled_dot_product_attention_math_for_mps", "_scaled_dot_product_fused_attention_overrideable",
        "_efficient_attention_forward", "_flash_attention_forward", "_flash_attention_forward_no_dropout_inplace",
    }
)  # fmt: skip

# Gradient functions, which compute such products wherever they are called.
_BACKWARDS = frozenset(
    f"{name}_backward"
    for name in (
        "_cdist", "_convolution_double", "_cudnn_attention", "_cudnn_rnn", "_efficient_attention",
        "_embedding_bag_per_sample_weights", "_flash_attention", "_pdist", "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_fused_attention_overrideable",
        "_slow_conv2d", "_sparse_mm_reduce_impl", "_thnn_differentiable_gru_cell", "_thnn_differentiable_lstm_cell",
        "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "conv_tbc", "convolution", "dist", "linear", "lstm_mps", "matmul",
        "matrix_exp", "miopen_rnn", "mkldnn_linear", "mkldnn_rnn_layer", "mps_convolution", "mps_convolution_transpose",
    )
) | {
    "_thnn_fused_lstm_cell_backward_impl", "convolution_backward_overrideable", "mkldnn_linear_backward_input",
    "mkldnn_linear_backward_weights",
}  # fmt: skip

# Functions that multiply and accumulate without a rule.
BLIND: Final = _FFT | _ALGEBRA | _PAIRS | _PACKED | _KERNELS | _BACKWARDS | {"grad", "backward"}

# Those that call matrix products, which can be counted as operators.
DECOMPOSED: Final = frozenset(
    {"chain_matmul", "linalg_multi_dot", "matrix_power", "linalg_matrix_power", "cov", "corrcoef"}
)

# Operators below torch's functions that multiply and accumulate in a single call.
UNSEEN_BELOW: Final = BLIND - DECOMPOSED - {"grad", "backward"}

# Functions through which values leave torch: computations with these are not observed.
LEAVES: Final = frozenset(
    {
        "numpy", "__array__", "__dlpack__", "tolist", "storage", "untyped_storage", "data_ptr", "const_data_ptr", "apply_",
        "map_", "map2_",
    }
)  # fmt: skip

# Functions through which single numbers leave torch, including the numbers of a tensor one by one.
SINGLE: Final = frozenset({"item", "__float__", "__complex__"})

# Functions that crash the process for some arguments.
ENDS_PROCESS: Final = frozenset({"_weight_int8pack_mm", "_weight_int8pack_mm.default"})
# The CPU kernel of torch 2.13 reads this many bfloat16 values of a row at once, also beyond its end.
AT_ONCE: Final = 16


def refuse_unsafe_product(values: Tensor, weight: Tensor) -> None:
    """Refuse a product of 8-bit weights ``(out, in)`` for which torch's kernel reads beyond the end of memory.

    Raises
    ------
    ValueError
        ``values`` are bfloat16 on a CPU, in rows whose length is not a multiple of 16.
    """
    if values.dtype is torch.bfloat16 and values.is_cpu and weight.shape[-1] % AT_ONCE:
        raise ValueError(
            f"_weight_int8pack_mm ends the process on rows of {weight.shape[-1]} values of bfloat16: pad them, and the "
            f"weights, with zeros to a multiple of {AT_ONCE}, or use float32"
        )
