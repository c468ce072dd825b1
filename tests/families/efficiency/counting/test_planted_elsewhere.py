"""Operations planted outside of modules: packed weights, sparse matrices, closures, globals, operators, scripts."""

from __future__ import annotations

import copy
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._higher_order_ops.map import map as higher_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import neuroledger as nl
from neuroledger.families.efficiency.counting.free import is_free
from tests.families.efficiency.counting.test_planted_panel import (
    ASKED,
    WIDTH,
    Host,
    by_loops,
    counted,
    data,
    first_layer,
    matrix,
    weights,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse", "ignore:.*is deprecated", "ignore:The PyTorch API of nested"
)
KEPT = weights(WIDTH, WIDTH)
SCATTERED = KEPT.to_sparse()
BOX = {"list": [KEPT]}


@torch.jit.script
def scripted(h, w: torch.Tensor):
    return h @ w.t()


@torch.jit.script
def clamped(h):
    return h.clamp(min=0)


@torch.jit.script
def forked(h, w: torch.Tensor):
    return torch.jit.wait(torch.jit.fork(torch.mm, h, w.t()))


@torch.library.custom_op("neuroledger_tests::kept", mutates_args=())
def kept_product(h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return h @ w.t()


FOREIGN = torch.library.Library("neuroledger_tests_foreign", "FRAGMENT")
FOREIGN.define("product(Tensor h, Tensor w) -> Tensor")
FOREIGN.impl("product", lambda h, w: h @ w.t(), "CPU")


def higher_scan(h):
    return scan(
        lambda kept, row: (kept @ KEPT.t(), row + 0), torch.zeros(1, WIDTH), h, dim=0
    )[1]


def buffers(plant, **held):
    host = Host(plant)
    for name, tensor in held.items():
        host.register_buffer(name, tensor)
    return host


def eight_bits(dtype=torch.float32):
    """8-bit weights with one scale for each output and a zero point of 0."""
    scale = KEPT.abs().amax(1) / 127
    return buffers(
        lambda s, h: torch._weight_int8pack_mm(h.to(dtype), s.w8, s.scale).float(),
        w8=(KEPT / scale[:, None]).round().to(torch.int8), scale=scale.to(dtype),
    )  # fmt: skip


def shifted_bits():
    """8-bit weights with a non-zero zero point."""
    values, offsets, scale, zero = torch.fbgemm_linear_quantize_weight(KEPT)
    assert zero
    packed = torch.fbgemm_pack_quantized_matrix(values)
    return Host(
        true=values.int() - zero,
        plant=lambda s, h: torch.fbgemm_linear_int8_weight_fp32_activation(
            h, values, packed, offsets, scale, zero, torch.zeros(WIDTH)
        ),
    )


def blocked():
    """A layer in the layout of oneDNN, which is a module of TorchScript."""
    from torch.utils import mkldnn

    layer = nn.Linear(WIDTH, WIDTH, bias=False)
    layer.weight.data = KEPT.clone()
    return Host(
        lambda s, h: s.inner(h.to_mkldnn()).to_dense(), inner=mkldnn.to_mkldnn(layer)
    )


def traced_in_a_box():
    box = {"f": torch.jit.trace(lambda h: h @ KEPT.t(), torch.zeros(3, WIDTH))}
    return Host(lambda s, h: box["f"](h))


def float8():
    one = torch.tensor(1.0)
    eighth = torch.float8_e4m3fn
    return Host(
        lambda s, h: torch._scaled_mm(
            torch.cat([h, h.new_zeros(len(h), 10)], 1).to(eighth),
            s.w8.t(),
            one,
            one,
            out_dtype=torch.bfloat16,
        ),
        w8=nn.Parameter(F.pad(KEPT, (0, 10, 0, 10)).to(eighth), requires_grad=False),
    )


PRODUCTS = {
    "8 bits": eight_bits,
    "8 bits, half precision": lambda: eight_bits(torch.float16),
    "8 bits of floats": float8,
    "layout of oneDNN": blocked,
    "closure": lambda: (lambda w: Host(lambda s, h: h @ w.t()))(KEPT),
    "global": lambda: Host(lambda s, h: h @ KEPT.t()),
    "list in a global": lambda: Host(lambda s, h: h @ BOX["list"][0].t()),
    "sparse global": lambda: Host(lambda s, h: (SCATTERED @ h.t()).t()),
    "sparse inputs and weights": lambda: Host(
        lambda s, h: (h.to_sparse() @ s.w.t().to_sparse()).to_dense(), **matrix()
    ),
    "sparse by columns": lambda: Host(lambda s, h: (s.w.to_sparse_csc() @ h.t()).t(), **matrix()),
    "sparse in blocks": lambda: Host(lambda s, h: (s.w.to_sparse_bsr((2, 2)) @ h.t()).t(), **matrix()),
    "sparse and reduced": lambda: Host(
        lambda s, h: torch.sparse.mm(s.w.to_sparse_csr(), h.t(), reduce="sum").t(), **matrix()
    ),
    "added to sparse": lambda: Host(
        lambda s, h: torch.sspaddmm(torch.zeros(WIDTH, len(h)).to_sparse(), s.w.to_sparse(), h.t()).to_dense().t(),
        **matrix(),
    ),
    "scripted function in a list": lambda: (lambda fs: Host(lambda s, h: fs[0](h, KEPT)))([scripted]),
    "traced function in a mapping": traced_in_a_box,
    "operator of one's own": lambda: Host(
        lambda s, h: torch.ops.neuroledger_tests.kept(h, KEPT)
    ),
    "compiled function": lambda: (lambda f: Host(lambda s, h: f(h)))(
        torch.compile(lambda h: h @ KEPT.t(), backend="eager")
    ),
    "into memory, by an operator": lambda: Host(
        lambda s, h: torch.ops.aten.mm.out(h, KEPT.t(), out=h.new_empty(len(h), WIDTH))
    ),
    "layer into memory, by an operator": lambda: Host(
        lambda s, h: torch.ops.aten.linear.out(h, KEPT, out=h.new_empty(len(h), WIDTH))
    ),
    "added into memory, by an operator": lambda: Host(
        lambda s, h: torch.ops.aten.addmm.out(torch.zeros(1), h, KEPT.t(), out=h.new_empty(len(h), WIDTH))
    ),
    "einsum with lists of axes": lambda: Host(lambda s, h: torch.einsum(h, [0, 1], KEPT, [2, 1], [0, 2])),
    "condition": lambda: Host(
        lambda s, h: torch.cond(h.sum() >= 0, lambda y: y @ KEPT.t(), lambda y: y.clone(), (h,))
    ),
    "loop": lambda: Host(
        lambda s, h: while_loop(lambda i, y: i < 1, lambda i, y: (i + 1, y @ KEPT.t()), (torch.tensor(0), h))[1]
    ),
    "map": lambda: Host(lambda s, h: higher_map(lambda row: KEPT @ row, h)),
    "kept from those who watch": lambda: Host(lambda s, h: unwatched(h)),
    "of copies": lambda: Host(lambda s, h: copy.copy(h) @ copy.deepcopy(copy.copy(KEPT)).t()),
    "forked in TorchScript": lambda: Host(lambda s, h: forked(h, KEPT)),
}  # fmt: skip


@pytest.mark.parametrize("way", PRODUCTS)
def test_products_outside_of_modules_equal_those_of_loops(way):
    module, x = PRODUCTS[way]().eval(), data(32)
    with torch.no_grad():
        h = module.hidden(x)
    true = first_layer(x) + by_loops(h, getattr(module, "true", KEPT))
    for sizes in ([32], [1] * 32, [2] * 16, [7, 25], [31, 1]):
        result, total = counted(module, x.split(sizes))
        assert total * 32 == pytest.approx(true, rel=1e-12), sizes
        assert result["effective_macs"].status == "scored", result[
            "effective_macs"
        ].reason


def test_a_product_that_would_crash_the_process_is_refused():
    costs = nl.cost(eight_bits(torch.bfloat16).eval(), [data(9)], ASKED)
    for score in costs.values():
        assert (
            score.status == "failed"
            and "_weight_int8pack_mm ends the process" in score.reason
        )
        assert "multiple of 16" in score.reason


def unwatched(h):
    with torch._C.DisableTorchFunction():
        return h @ KEPT.t()


def in_another_thread(h):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: h @ KEPT.t()).result()


def in_a_pool_that_is_held():
    pool = ThreadPoolExecutor(1)
    return Host(
        lambda s, h: next(s.run(lambda x: x @ KEPT.t(), [h])), run=pool.map, pool=pool
    )


def shown_again(h):
    """Each sample repeated for each output, in memory of its own."""
    return h[:, None].repeat(1, WIDTH, 1)


def shown_to_each(h):
    return KEPT.expand(len(h), -1, -1).contiguous()


def in_place(one, other):
    torch._foreach_mul_([one], [other])
    return one.sum(2)


def four_bits():
    codes = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
        torch.ones(32, 32, dtype=torch.int32), 1
    )
    return buffers(
        lambda s, h: torch.ops.aten._weight_int4pack_mm_for_cpu(
            F.pad(h, (0, 26)).bfloat16(), s.codes, 32, s.scales
        ),
        codes=codes,
        scales=torch.ones(1, 32, 2, dtype=torch.bfloat16),
    )


def half_packed():
    packed = torch.fbgemm_pack_gemm_matrix_fp16(KEPT)
    return Host(
        lambda s, h: torch.fbgemm_linear_fp16_weight_fp32_activation(
            h, packed, torch.zeros(WIDTH)
        )
    )


def ragged(s, h):
    parts = torch.nested.nested_tensor([h[:1], h[1:]] if len(h) > 1 else [h])
    return torch.cat(F.linear(parts, s.w).unbind())


def outer(h):
    return h[:, :, None] * h[:, None] + 9 * torch.eye(WIDTH)


def one_by_one(s, h):
    return torch.tensor(
        [
            [
                sum(float(a) * b for a, b in zip(row, out, strict=True))
                for out in NUMBERS
            ]
            for row in h
        ]
    )


NUMBERS = KEPT.tolist()
ALONE = "a matrix outside of modules"
NAMED = {
    "4 bits": (four_bits, "int4pack"),
    "packed halves": (half_packed, "leave torch"),
    "8 bits around a number": (shifted_bits, "leave torch"),
    "ragged": (lambda: Host(ragged, **matrix()), "nested tensors are not counted"),
    "global, value by value": (lambda: Host(lambda s, h: (h[:, None] * KEPT).sum(2)), ALONE),
    "closure, value by value": (
        lambda: (lambda w: Host(lambda s, h: (h[:, None] * w).sum(2)))(KEPT.clone()), ALONE,
    ),
    "list, value by value": (lambda: Host(lambda s, h: (h[:, None] * s.ws[0]).sum(2), ws=[KEPT.clone()]), ALONE),
    "sums, value by value": (lambda: Host(lambda s, h: torch.addcmul(torch.zeros(1), h[:, None], KEPT).sum(2)), ALONE),
    "mixtures": (lambda: Host(lambda s, h: torch.lerp(torch.zeros(1), h[:, None], KEPT).sum(2)), ALONE),
    "quotients": (lambda: Host(lambda s, h: (h[:, None] / (KEPT + 9)).sum(2)), ALONE),
    "weights that spikes select": (lambda: Host(lambda s, h: torch.where(h[:, None] > 0, KEPT, 0.0).sum(2)), ALONE),
    "row after row": (lambda: Host(lambda s, h: torch.stack([(h * row).sum(1) for row in KEPT], 1)), ALONE),
    "spread beforehand": (
        lambda: Host(lambda s, h: torch._refs.mul(h[:, None].expand(-1, WIDTH, -1), s.w).sum(2), **matrix()),
        "value by value",
    ),
    "shown again": (lambda: Host(lambda s, h: (shown_again(h) * KEPT).sum(2)), ALONE),
    "shown again, a parameter": (lambda: Host(lambda s, h: (shown_again(h) * s.w).sum(2), **matrix()), "value by value"),
    "stacked again": (lambda: Host(lambda s, h: (torch.stack([h] * WIDTH, 1) * KEPT).sum(2)), ALONE),
    "joined again": (
        lambda: Host(lambda s, h: (torch.cat([h] * WIDTH, 1).view(-1, WIDTH, WIDTH) * KEPT).sum(2)), ALONE,
    ),
    "chosen again": (
        lambda: Host(lambda s, h: (h[:, list(range(WIDTH)) * WIDTH].view(-1, WIDTH, WIDTH) * KEPT).sum(2)), ALONE,
    ),
    "windows": (lambda: Host(lambda s, h: (h.unfold(1, 3, 1) * KEPT[:2, :3].reshape(2, 1, 1, 3)).sum(3)), ALONE),
    "both shown again": (
        lambda: Host(lambda s, h: torch.ops.prims.mul(shown_again(h), shown_to_each(h)).sum(2)), ALONE,
    ),
    "into memory": (
        lambda: Host(lambda s, h: torch.mul(h[:, None], KEPT, out=h.new_empty(len(h), WIDTH, WIDTH)).sum(2)), ALONE,
    ),
    "added to memory": (
        lambda: Host(lambda s, h: torch.addcmul(torch.zeros(len(h), WIDTH, WIDTH), h[:, None], KEPT).sum(2)), ALONE,
    ),
    "lists of tensors": (
        lambda: Host(lambda s, h: torch._foreach_mul([shown_again(h)], [shown_to_each(h)])[0].sum(2)), "foreach",
    ),
    "lists of tensors, in place": (lambda: Host(lambda s, h: in_place(shown_again(h), shown_to_each(h))), "foreach"),
    "lists of tensors, added": (
        lambda: Host(
            lambda s, h: torch._foreach_addcmul([0 * shown_again(h)], [shown_again(h)], [shown_to_each(h)])[0].sum(2)
        ),
        "foreach",
    ),
    "gradients of a layer": (
        lambda: Host(lambda s, h: torch.nn.grad.conv1d_input((len(h), WIDTH, 1), KEPT[:, :, None], h[:, :, None])),
        "convolution_backward",
    ),
    "scan": (lambda: Host(lambda s, h: higher_scan(h)), "scan"),
    "another thread": (lambda: Host(lambda s, h: in_another_thread(h)), "leave torch"),
    "a pool that is held": (in_a_pool_that_is_held, "leave torch"),
    "numbers one by one": (lambda: Host(one_by_one), "leave torch"),
    "operator of others": (
        lambda: Host(lambda s, h: torch.ops.neuroledger_tests_foreign.product(h, KEPT)),
        "neuroledger_tests_foreign::product",
    ),
    "grouped": (
        lambda: Host(lambda s, h: torch.ops.aten._foreach_mm([h], [KEPT.t()])[0]), "foreach_mm",
    ),
    "singular values": (lambda: Host(lambda s, h: torch.linalg.svdvals(outer(h))), "linalg_svd"),
    "eigenvalues": (lambda: Host(lambda s, h: torch.linalg.eigvalsh(outer(h))), "linalg_eigh"),
    "determinant": (lambda: Host(lambda s, h: torch.linalg.det(outer(h))[:, None]), "det"),
    "triangle": (lambda: Host(lambda s, h: torch.linalg.cholesky(outer(h) + outer(h).mT)), "cholesky"),
    "spectrum by its operator": (
        lambda: Host(lambda s, h: torch.view_as_real(torch.ops.aten._fft_r2c(h, [1], 0, True)).sum(2)), "fft_r2c",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", NAMED)
def test_uncounted_work_outside_of_modules_is_reported(way):
    make, words = NAMED[way]
    module, x = make().eval(), data(9)
    for batches in ([x], x.split(1), x.split(4)):
        for requested, score in nl.cost(module, batches, ASKED).items():
            assert score.status == "partial" and words in score.reason, (
                requested,
                score.status,
                score.reason,
            )


HARMLESS = {
    "a gain for each place": lambda: Host(lambda s, h: h.view(-1, 2, 3) * KEPT[:2, :3]),
    "a matrix divided by its sums": lambda: Host(lambda s, h: h + (KEPT / KEPT.abs().sum(1, keepdim=True)).sum()),
    "a term for each place": lambda: Host(lambda s, h: h[:, None] + KEPT),
    "rows of a table": lambda: Host(lambda s, h: KEPT[h.gt(0).long().sum(1) % WIDTH]),
    "a gain for each place of what is shown again": lambda: Host(
        lambda s, h: (shown_again(h) + 1).amax(1) * KEPT[0]
    ),
    "an upsampled map with gains": lambda: Host(
        lambda s, h: F.interpolate(h.view(-1, 1, 2, 3), scale_factor=2) * KEPT[:4, :6]
    ),
    "a summary": lambda: Host(lambda s, h: h * float(h.amax() > -1)),
    "lengths": lambda: Host(lambda s, h: torch.stack(h.split(h.new_ones(len(h)).long().tolist()))),
    "a scripted function that multiplies nothing": lambda: (lambda fs: Host(lambda s, h: fs[0](h)))([clamped]),
}  # fmt: skip


@pytest.mark.parametrize("way", HARMLESS)
def test_operations_without_matrix_products_do_not_make_a_score_partial(way):
    result, total = counted(HARMLESS[way]().eval(), [data(9)])
    assert result["effective_macs"].status == "scored", result["effective_macs"].reason
    assert total * 9 == first_layer(data(9))


def test_a_state_in_a_list_is_not_a_weight_matrix():
    class Leaky(nn.Module):
        def __init__(self, samples):
            super().__init__()
            self.layer, self.states = (
                nn.Linear(WIDTH, WIDTH),
                [torch.zeros(samples, WIDTH)],
            )

        def forward(self, x):
            for _ in range(3):
                drive = self.layer(x)
                self.states[0] = self.states[0] * drive.sigmoid()[:, :1] + drive
            return self.states[0]

    for samples in (1, 9):
        result, total = counted(Leaky(samples).eval(), [data(samples)])
        assert (
            result["effective_macs"].status == "scored" and total == 3 * WIDTH * WIDTH
        )


def test_attention_operators_count_like_attention():
    ways = {
        "function": lambda q: F.scaled_dot_product_attention(q, q, q),
        "in sight": lambda q: torch.ops.aten._scaled_dot_product_attention_math(
            q, q, q
        )[0],
        "fused": lambda q: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, q, q
        )[0],
    }
    trace = {
        way: counted(Host(lambda s, h, f=f: f(h.view(-1, 1, 3, 2))).eval(), [data(9)])
        for way, f in ways.items()
    }
    assert len({total for _, total in trace.values()}) == 1
    assert {costs["dense_operations"].value for costs, _ in trace.values()} == {
        WIDTH * WIDTH + 2 * 3 * 3 * 2
    }


# How functions of torch are named that multiply and accumulate.
SOUNDS = re.compile(
    r"(^|_|a|b|d|h|m|s|sp)mm(_|$)|matmul|conv|attention|linear(_|$)|lstm|gru|rnn|bilinear|(^|_|v)dot_?$|einsum|[cp]dist|_?dist$"
    r"|fft_|stft|solve|inverse|mv_?$|addr|outer|^ger$|kron|trap|corrcoef|^cov$|linalg|svd|(^|_)qr$|(^|_)lu(_|$)|eig|chol|(^|_)det$"
    r"|cross_?$|lobpcg|pca|multi_head|tensordot|geqrf|orgqr|ormqr|matrix_(exp|power)"
)
# What only sounds so: it packs, arranges, checks, interpolates or scales values.
DIFFERENT = frozenset(
    {
        "__upsample_bilinear", "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo",
        "_convert_weight_to_int4pack", "_convert_weight_to_int4pack_for_cpu", "_cslt_sparse_mm_search",
        "_cudnn_rnn_flatten_weight", "_cufft_clear_plan_cache", "_cufft_get_plan_cache_max_size",
        "_cufft_get_plan_cache_size", "_cufft_set_plan_cache_max_size", "_dyn_quant_pack_4bit_weight",
        "_linalg_check_errors", "_saturate_weight_to_fp16", "_upsample_bilinear2d_aa",
        "_use_cudnn_rnn_flatten_weight", "_weight_norm", "_weight_norm_interface",
        "_wrapped_linear_prepack", "fbgemm_linear_quantize_weight", "fft_fftfreq", "fft_fftshift",
        "fft_ifftshift", "fft_rfftfreq", "linalg__powsum", "linalg_diagonal", "linalg_matrix_norm",
        "linalg_norm", "linalg_vander", "linalg_vector_norm", "lu_unpack", "mkldnn_reorder_conv2d_weight",
        "mkldnn_reorder_conv3d_weight", "resolve_conj", "resolve_neg", "slice_inverse", "swapcase",
        "upsample_bilinear2d", "_upsample_bilinear2d_aa_backward", "upsample_bilinear2d_backward",
        "_weight_norm_differentiable_backward", "_weight_norm_interface_backward",
    }
)  # fmt: skip


def test_no_operator_of_torch_that_multiplies_and_accumulates_is_free():
    """Every other operator has a rule, consists of others, or is reported with its name."""
    operators = [
        getattr(packet, overload)
        for name in dir(torch.ops.aten)
        if hasattr(packet := getattr(torch.ops.aten, name), "overloads")
        for overload in packet.overloads()
    ]
    free = {operator._opname for operator in operators if is_free(operator)}
    sounding = {
        operator._opname
        for operator in operators
        if SOUNDS.search(operator._opname.replace("_backward", ""))
    }
    assert len(sounding) > 140
    assert (sounding & free) - DIFFERENT == set()
