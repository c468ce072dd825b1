"""Operations planted after a layer, in all forms of torch: equal to loops, or reported, and independent of batches."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
from torch.utils.checkpoint import checkpoint

import neuroledger as nl
from tests.contractions import from_right_to_left

WIDTH, SAMPLES = 6, 64

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
ASKED = ["effective_macs", "effective_acs", "dense_operations"]


def weights(*shape):
    """A third of them zero."""
    rng = np.random.default_rng(sum(shape))
    return torch.from_numpy(
        (rng.normal(size=shape) * (rng.random(shape) < 2 / 3)).astype(np.float32)
    )


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, w):
        ctx.save_for_backward(h, w)
        return h.mm(w.t())

    @staticmethod
    def backward(ctx, upstream):
        h, w = ctx.saved_tensors
        return upstream @ w, upstream.t() @ h


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(weights(WIDTH, WIDTH))

    def forward(self, h):
        return h @ self.w.t()


class Marked(torch.Tensor):
    pass


@torch.jit.script
def looped(h, w: torch.Tensor, times: int):
    for _ in range(times):
        if bool(h.sum() >= 0):
            h = h @ w.t()
    return h


def unseen(s, h):
    with torch._C.DisableTorchFunction():
        return h @ s.w.t()


def frozen():
    return torch.jit.freeze(torch.jit.script(Inner().eval()))


class Host(nn.Module):
    """A layer, rectifiers, and the planted operation with its attributes."""

    def __init__(self, plant: Any, **held: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.plant = nn.Linear(WIDTH, WIDTH), plant
        for name, value in held.items():
            setattr(self, name, value)

    def hidden(self, x):
        return torch.relu(self.first(x))

    def forward(self, x):
        return self.plant(self, self.hidden(x))


def matrix(**more):
    return {"w": nn.Parameter(weights(WIDTH, WIDTH)), **more}


PRODUCTS = {
    "scripted module": lambda: Host(
        lambda s, h: s.inner(h), inner=torch.jit.script(Inner())
    ),
    "traced module": lambda: Host(
        lambda s, h: s.inner(h), inner=torch.jit.trace(Inner(), torch.zeros(2, WIDTH))
    ),
    "frozen module": lambda: Host(lambda s, h: s.inner(h), inner=frozen()),
    "vmap": lambda: Host(lambda s, h: torch.vmap(lambda row: s.w @ row)(h), **matrix()),
    "autograd function": lambda: Host(lambda s, h: Double.apply(h, s.w), **matrix()),
    "einsum": lambda: Host(lambda s, h: torch.einsum("bi,oi->bo", h, s.w), **matrix()),
    "einsum of three": lambda: Host(
        lambda s, h: torch.einsum("bi,oi,->bo", h, s.w, torch.tensor(2.0)), **matrix()
    ),
    "sparse product": lambda: Host(
        lambda s, h: torch.sparse.mm(s.w.to_sparse(), h.t()).t(), **matrix()
    ),
    "rows of columns": lambda: Host(
        lambda s, h: h @ s.w.to_sparse_csr().t(), **matrix()
    ),
    "operator": lambda: Host(lambda s, h: torch.ops.aten.mm(h, s.w.t()), **matrix()),
    "functional call": lambda: Host(
        lambda s, h: torch.func.functional_call(s.inner, {"w": s.inner.w}, (h,)),
        inner=Inner(),
    ),
    "convolution of one pixel": lambda: Host(
        lambda s, h: F.conv1d(h[:, :, None], s.w[:, :, None])[:, :, 0], **matrix()
    ),
    "weights shown to each sample": lambda: Host(
        lambda s, h: torch.bmm(h[:, None], s.w.t().expand(len(h), WIDTH, WIDTH))[:, 0],
        **matrix(),
    ),
    "weights shown to each sample, added": lambda: Host(
        lambda s, h: torch.baddbmm(
            torch.zeros(1), h[:, None], s.w.t().expand(len(h), -1, -1)
        ),
        **matrix(),
    ),
    "one product at a time": lambda: Host(
        lambda s, h: torch.stack(
            [torch.stack([torch.dot(row, out) for out in s.w]) for row in h]
        ),
        **matrix(),
    ),
    "condition": lambda: Host(
        lambda s, h: torch.cond(
            h.sum() >= 0, lambda y: y @ s.w.t(), lambda y: y.clone(), (h,)
        ),
        **matrix(),
    ),
    "loop": lambda: Host(
        lambda s, h: while_loop(
            lambda i, y: i < 1, lambda i, y: (i + 1, y @ s.w.t()), (torch.tensor(0), h)
        )[1],
        **matrix(),
    ),
    "script with a loop and a condition": lambda: Host(
        lambda s, h: looped(h, s.w, 1), **matrix()
    ),
    "subclass of tensors": lambda: Host(
        lambda s, h: h.as_subclass(Marked) @ s.w.t(), **matrix()
    ),
    "out of sight of functions": lambda: Host(unseen, **matrix()),
    "checkpoint": lambda: Host(
        lambda s, h: checkpoint(lambda y: y @ s.w.t(), h, use_reentrant=False),
        **matrix(),
    ),
    "into memory of others": lambda: Host(
        lambda s, h: torch.mm(h, s.w.t(), out=torch.empty(len(h), WIDTH)), **matrix()
    ),
    "recurrent cell from rest": lambda: Host(lambda s, h: s.cell(h), cell=cell()),
}


def cell():
    rnn_cell = nn.RNNCell(WIDTH, WIDTH, bias=False)
    with torch.no_grad():
        rnn_cell.weight_ih.copy_(weights(WIDTH, WIDTH))
    return rnn_cell


def first_layer(x):
    return (x.ne(0).sum() * WIDTH).item()


def counted(module, batches):
    costs = nl.cost(module, batches, ASKED)
    return costs, (costs["effective_macs"].value + costs["effective_acs"].value)


def data(samples=SAMPLES):
    return torch.randn(samples, WIDTH, generator=torch.Generator().manual_seed(5))


def by_loops(h, w):
    """Count products of two non-zero factors, one by one."""
    h, w = h.tolist(), w.tolist()
    return sum(
        1
        for row, out in itertools.product(h, w)
        for value, weight in zip(row, out, strict=True)
        if value != 0 and weight != 0
    )


@pytest.mark.parametrize("way", PRODUCTS)
def test_a_planted_product_equals_a_count_by_loops(way):
    module, x = PRODUCTS[way]().eval(), data(9)
    with torch.no_grad():
        h = module.hidden(x)
    result, total = counted(module, [x])
    assert total * 9 == first_layer(x) + by_loops(h, weights(WIDTH, WIDTH))
    assert (
        result["effective_macs"].status == "scored"
        and result["effective_macs"].n["coverage"] == 1
    )


@pytest.mark.parametrize("way", PRODUCTS)
def test_planted_products_do_not_depend_on_batch_size(way):
    module, x = PRODUCTS[way]().eval(), data()
    expected = [counted(module, [x])[0][name].value for name in ASKED]
    for sizes in ([1] * 64, [64], [2] * 32, [7, 57], [63, 1], [16, 3, 45]):
        result, _ = counted(module, x.split(sizes))
        assert [result[name].value for name in ASKED] == pytest.approx(
            expected, rel=1e-12
        ), sizes


def bilinear():
    module = Host(
        lambda s, h: F.bilinear(h, h, s.w), w=nn.Parameter(weights(3, WIDTH, WIDTH))
    )
    return module, lambda h: int(
        torch.einsum(
            "bi,oij,bj->",
            h.ne(0).float(),
            module.w.detach().ne(0).float(),
            h.ne(0).float(),
        )
    )


def attention():
    module = Host(
        lambda s, h: F.scaled_dot_product_attention(*[h.view(-1, 1, 3, 2)] * 3)
    )

    def loops(h):
        total = 0
        for q in h.view(-1, 3, 2):
            shares = torch.softmax(q @ q.t() / 2**0.5, -1)
            total += sum(
                1
                for a, b in itertools.product(q, q)
                for s, t in zip(a, b, strict=True)
                if s and t
            )
            total += sum(
                1
                for row in shares
                for s, v in zip(row, q, strict=True)
                for t in v
                if s and t
            )
        return total

    return module, loops


def transposed():
    module = Host(
        lambda s, h: s.up(h.view(-1, 2, 3)),
        up=nn.ConvTranspose1d(2, 4, 3, stride=2, bias=False),
    )
    with torch.no_grad():
        module.up.weight.copy_(weights(2, 4, 3))

    def loops(h):
        w = module.up.weight.detach()
        return sum(
            1
            for sample in h.view(-1, 2, 3)
            for c, t in itertools.product(range(2), range(3))
            for o, k in itertools.product(range(4), range(3))
            if sample[c, t] and w[c, o, k]
        )

    return module, loops


@pytest.mark.parametrize(
    "make", [bilinear, attention, transposed], ids=lambda f: f.__name__
)
def test_other_products_equal_a_count_by_loops(make):
    module, loops = make()
    x = data(9)
    with torch.no_grad():
        expected = first_layer(x) + loops(module.hidden(x))
    result, total = counted(module.eval(), [x])
    assert total * 9 == expected and result["effective_macs"].status == "scored"
    for sizes in ([1] * 9, [4, 5]):
        assert counted(module, x.split(sizes))[1] == pytest.approx(total, rel=1e-12)


def leaves(s, h):
    return torch.from_numpy(h.detach().numpy() @ s.w.detach().numpy().T)


NAMED = {
    "fft": (lambda: Host(lambda s, h: torch.fft.rfft(h).abs()), "fft"),
    "distances": (lambda: Host(lambda s, h: torch.cdist(h, s.w), **matrix()), "cdist"),
    "weighted bags": (
        lambda: Host(
            lambda s, h: F.embedding_bag(
                torch.arange(WIDTH).repeat(len(h), 1),
                s.w,
                mode="sum",
                per_sample_weights=h,
            ),
            **matrix(),
        ),
        "embedding_bag",
    ),
    "NumPy": (lambda: Host(leaves, **matrix()), "leave torch"),
    "values one by one": (
        lambda: Host(lambda s, h: (h[:, None] * s.w).sum(2), **matrix()),
        "value by value",
    ),
    "masked sums": (
        lambda: Host(
            lambda s, h: torch.where(h[:, None] > 0, s.w, 0.0).sum(2), **matrix()
        ),
        "w",
    ),
    "solve": (
        lambda: Host(
            lambda s, h: torch.linalg.solve(s.w + 9 * torch.eye(WIDTH), h.t()).t(),
            **matrix(),
        ),
        "solve",
    ),
}


@pytest.mark.parametrize("way", NAMED)
def test_planted_work_without_a_rule_is_reported(way):
    make, words = NAMED[way]
    for requested in ASKED:
        costs = nl.cost(make().eval(), [data(9)], [requested])[requested]
        assert costs.status == "partial" and words in costs.reason, (
            costs.status,
            costs.reason,
        )


def test_embedding_bags_have_no_products():
    module = Host(
        lambda s, h: F.embedding_bag(h.gt(0).long(), s.w, mode="mean"), **matrix()
    )
    result, total = counted(module.eval(), [data(9)])
    assert (
        total * 9 == first_layer(data(9))
        and result["effective_macs"].status == "scored"
    )


def test_work_planted_in_or_on_a_spiking_layer_is_counted():
    snntorch = pytest.importorskip("snntorch")

    class Planted(snntorch.Leaky):
        def forward(self, x, mem=None):
            return super().forward(x @ weights(WIDTH, WIDTH).t(), mem)

    def net(layer):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), layer).eval()

    x = data(9)
    with torch.no_grad():
        h = net(nn.Identity())(x)
    plain, hooked = (
        snntorch.Leaky(0.9, init_hidden=True),
        snntorch.Leaky(0.9, init_hidden=True),
    )
    hooked.register_forward_pre_hook(
        lambda _, args: (args[0] @ weights(WIDTH, WIDTH).t(),)
    )
    patched = snntorch.Leaky(0.9, init_hidden=True)
    whole = patched.forward
    patched.forward = lambda x, mem=None: whole(x @ weights(WIDTH, WIDTH).t())
    planted = by_loops(h, weights(WIDTH, WIDTH))
    for layer, more in (
        (plain, 0),
        (Planted(0.9, init_hidden=True), planted),
        (hooked, planted),
        (patched, planted),
    ):
        assert counted(net(layer), [x])[1] * 9 == first_layer(x) + more


def test_an_optional_package_of_torch_does_not_change_the_count(monkeypatch):
    """With it, torch multiplies three tensors in another order, which takes another number of products."""
    module, x = (
        Host(
            lambda s, h: torch.einsum("bi,oi,o->b", h, s.w, torch.ones(WIDTH)),
            **matrix(),
        ).eval(),
        data(9),
    )
    _, total = counted(module, [x])
    setting = from_right_to_left(monkeypatch)
    assert counted(module, [x])[1] == total
    assert setting.enabled
