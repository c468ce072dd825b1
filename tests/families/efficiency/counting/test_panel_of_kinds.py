"""Networks of ten more kinds: counts equal those of loops over every product, in batches of every size.

Each network writes down the products that its equations ask for, as pairs of matrices; the loops know nothing else of it.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.utils import prune

import neuroledger as nl

SAMPLES = 64
ASKED = ["effective_macs", "effective_acs", "dense_operations"]

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")


def drawn(*shape, kept=0.7, seed=0):
    """Normal numbers, some of which are exactly zero."""
    rng = np.random.default_rng([seed, *shape])
    return torch.from_numpy(
        (rng.normal(size=shape) * (rng.random(shape) < kept)).astype(np.float32)
    )


def inputs(*shape):
    """Analogue samples, with spikes in every fourth sample."""
    x = drawn(SAMPLES, *shape, kept=0.6, seed=9)
    x[::4] = (x[::4] > 0.3).float()
    return x


class Counted:
    """Products of one sample, layer by layer: a layer's are ACs if all its inputs are -1, 0 or 1."""

    def __init__(self):
        self.macs = self.acs = self.dense = 0
        self._layers = {}

    def rows(self, layer, x, w, places=None):
        """Count ``x (row, in)`` and ``w (out, in)``: each pair of non-zero values."""
        x, w = np.asarray(x, np.float64), np.asarray(w, np.float64)
        done = int(((x != 0).astype(int) @ (w != 0).T.astype(int)).sum())
        self.note(layer, x, done, x.shape[0] * w.size if places is None else places)

    def note(self, layer, x, done, dense):
        entry = self._layers.setdefault(layer, [True, 0])
        entry[0] &= bool(np.isin(x, (-1, 0, 1)).all())
        entry[1] += done
        self.dense += dense

    def gates(self, *pairs):
        """Count elementwise products: always MACs, one operation for each pair."""
        for a, b in pairs:
            a, b = np.asarray(a), np.asarray(b)
            self.macs += int(((a != 0) & (b != 0)).sum())
            self.dense += a.size

    def two(self, left, right):
        """Count ``left (n, k)`` times ``right (k, m)``, both from the sample: ACs if one of them is spikes."""
        left, right = np.asarray(left), np.asarray(right)
        done = int(((left != 0).sum(0) * (right != 0).sum(1)).sum())
        plain = np.isin(left, (-1, 0, 1)).all() or np.isin(right, (-1, 0, 1)).all()
        if plain:
            self.acs += done
        else:
            self.macs += done
        self.dense += left.shape[0] * left.shape[1] * right.shape[1]

    def result(self):
        for plain, done in self._layers.values():
            if plain:
                self.acs += done
            else:
                self.macs += done
        self._layers.clear()
        return np.array([self.macs, self.acs, self.dense])


class Kind(nn.Module):
    shape: tuple[int, ...] = (6,)

    def fill(self):
        for number, parameter in enumerate(self.parameters()):
            parameter.data = drawn(*parameter.shape, seed=number)
        return self


class Convolutions(Kind):
    """Groups, dilation, strides and padding; then transposed convolutions with other strides and cropping."""

    shape = (4, 6, 7)

    def __init__(self):
        super().__init__()
        self.there = nn.Conv2d(
            4, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(2, 3), groups=2
        )
        self.back = nn.ConvTranspose2d(
            6, 4, (2, 3), stride=(2, 3), padding=1, output_padding=(1, 2), groups=2
        )
        self.fill()

    def forward(self, x):
        return self.back(self.there(x).relu())

    def work(self, x, found):
        there, back = self.there, self.back
        y = there(x[None])[0]
        padded = F.pad(x, (1, 1, 2, 2)).numpy()
        done = 0
        for o, i, r, c in np.argwhere(there.weight.detach().numpy() != 0):
            channel = (o // 3) * 2 + i
            for a, b in itertools.product(range(y.shape[1]), range(y.shape[2])):
                done += padded[channel, 2 * a + 2 * r, b + 3 * c] != 0
        found.note("there", x.numpy(), int(done), y.numel() * there.weight[0].numel())
        h = y.relu().detach().numpy()
        z = back(y.relu()[None])[0]
        done = 0
        for i, _, r, c in np.argwhere(back.weight.detach().numpy() != 0):
            for a, b in np.argwhere(h[i] != 0):
                row, column = 2 * a + r - 1, 3 * b + c - 1
                done += 0 <= row < z.shape[1] and 0 <= column < z.shape[2]
        found.note("back", h, int(done), h.size * back.weight[0].numel())


class Attention(Kind):
    """Two heads; the mask hides the last two keys."""

    shape = (5, 8)

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fill()

    def forward(self, x):
        hidden = torch.tensor([False, False, False, True, True]).expand(len(x), 5)
        return self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)[0]

    def work(self, x, found):
        a = self.attention
        found.rows("attention", x, a.in_proj_weight.detach())
        q, k, v = (x @ a.in_proj_weight.T + a.in_proj_bias).detach().split(8, 1)
        mixed = []
        for head in (slice(0, 4), slice(4, 8)):
            found.two(q[:, head], k[:3, head].T)  # masked pairs are not computed
            scores = q[:, head] @ k[:, head].T / 2
            scores[:, 3:] = -torch.inf
            shares = scores.softmax(1)
            found.two(shares[:, :3], v[:3, head])
            mixed.append(shares @ v[:, head])
        found.rows("out", torch.cat(mixed, 1), a.out_proj.weight.detach())


class Gated(Kind):
    """A GRU of two layers with a readout of its last state."""

    shape = (4, 5)

    def __init__(self):
        super().__init__()
        self.gru, self.out = nn.GRU(5, 3, 2, batch_first=True), nn.Linear(3, 2)
        self.fill()

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1])

    def work(self, x, found):
        weights = {name: value.detach() for name, value in self.gru.named_parameters()}
        for layer in range(2):
            w, u, b, c = (
                weights[f"{kind}_l{layer}"]
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            h, states = torch.zeros(3), []
            found.rows(f"in {layer}", x, w)
            befores = []
            for step in x:
                befores.append(h)
                gi, gh = w @ step + b, u @ h + c
                r, z = (gi[:3] + gh[:3]).sigmoid(), (gi[3:6] + gh[3:6]).sigmoid()
                n = (gi[6:] + r * gh[6:]).tanh()
                found.gates((r, gh[6:]), (1 - z, n), (z, h))
                h = (1 - z) * n + z * h
                states.append(h)
            found.rows(f"state {layer}", torch.stack(befores), u)
            x = torch.stack(states)
        found.rows("out", x[-1:], self.out.weight.detach())


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context, x, w):
        context.save_for_backward(x, w)
        return torch.addmm(x.new_zeros(1), x, w.t(), alpha=2.0)

    @staticmethod
    def backward(context, upstream):
        x, w = context.saved_tensors
        return 2 * upstream @ w, 2 * upstream.t() @ x


class Custom(Kind):
    """A function with a gradient of its own between two layers."""

    def __init__(self):
        super().__init__()
        self.w, self.out = nn.Parameter(torch.empty(7, 6)), nn.Linear(7, 3)
        self.fill()

    def forward(self, x):
        return self.out(Scaled.apply(x, self.w).relu())

    def work(self, x, found):
        found.rows("w", x[None], self.w.detach())
        found.rows(
            "out", (2 * self.w.detach() @ x).relu()[None], self.out.weight.detach()
        )


class Scripted(Kind):
    """A TorchScript layer, a compiled layer, and a layer mapped over samples."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (
            nn.Linear(6, 5),
            nn.Linear(5, 4),
            nn.Parameter(torch.empty(3, 4)),
        )
        self.fill()
        self.script = torch.jit.script(nn.Sequential(self.first, nn.ReLU()))
        self.compiled = torch.compile(self.second, backend="eager")

    def forward(self, x):
        h = self.compiled(self.script(x)).relu()
        return torch.vmap(lambda one: self.third @ one)(h)

    def work(self, x, found):
        h = self.first(x).relu().detach()
        found.rows("first", x[None], self.first.weight.detach())
        found.rows("second", h[None], self.second.weight.detach())
        found.rows("third", self.second(h).relu().detach()[None], self.third.detach())


class Shared(Kind):
    """A layer called twice, and its transposed weights."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.fill()

    def forward(self, x):
        return F.linear(self.layer(self.layer(x).relu()), self.layer.weight.t())

    def work(self, x, found):
        w = self.layer.weight.detach()
        once = self.layer(x).relu().detach()
        found.rows("layer", x[None], w)
        found.rows("layer", once[None], w)
        found.rows("back", self.layer(once).detach()[None], w.T)


class Indices(Kind):
    """Products written as sums over indices: with weights, and of a sample with itself."""

    shape = (3, 6)

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.empty(2, 6, 4))
        self.fill()

    def forward(self, x):
        heads = torch.einsum("bti,hio->bhto", x, self.w)
        return torch.einsum("bhto,bhso->bhts", heads, heads.relu())

    def work(self, x, found):
        w = self.w.detach()
        found.rows("w", x, w.permute(0, 2, 1).reshape(8, 6))
        for heads in torch.einsum("ti,hio->hto", x, w):
            found.two(heads, heads.relu().T)


class Sparse(Kind):
    """A matrix that is stored sparse, and one that is pruned."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 3, bias=False)
        self.fill()
        self.w = nn.Parameter(
            drawn(8, 6, kept=0.3, seed=5).to_sparse_csr(), requires_grad=False
        )
        prune.l1_unstructured(self.out, "weight", amount=0.5)

    def forward(self, x):
        return self.out((self.w @ x.t()).t().relu())

    def work(self, x, found):
        w = self.w.to_dense()
        found.rows("w", x[None], w)
        found.rows("out", (w @ x).relu()[None], self.out.weight.detach())


class Remembering(Kind):
    """A trace in an attribute, a membrane in a buffer and a list of past values, none of which is reset."""

    shape = (5, 6)

    def __init__(self):
        super().__init__()
        self.w, self.u = nn.Linear(6, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.fill()
        self.trace, self.past = None, []
        self.register_buffer("membrane", torch.zeros(1, 4))

    def forward(self, x):
        for step in x.unbind(1):
            fired = (self.membrane > 0.5).float()
            self.membrane = (
                0.8 * self.membrane * (1 - fired) + self.w(step) + self.u(fired)
            )
            self.trace = (
                fired
                if self.trace is None or len(self.trace) != len(fired)
                else self.trace + fired
            )
            self.past.append(float(len(self.past)))
        return self.trace

    def work(self, x, found):
        m = torch.zeros(4)
        for step in x:
            fired = (m > 0.5).float()
            m = 0.8 * m * (1 - fired) + self.w(step).detach() + self.u(fired).detach()
            found.rows("w", step[None], self.w.weight.detach())
            found.rows("u", fired[None], self.u.weight.detach())


class TimeFirst(Kind):
    """Spiking neurons over ``(time, sample, feature)``."""

    shape = (7, 6)

    def __init__(self):
        super().__init__()
        self.w, self.out = nn.Linear(6, 5), nn.Linear(5, 3)
        self.fill()

    def forward(self, x):
        m, total = x.new_zeros(x.shape[1], 5), 0.0
        for step in x:
            m = 0.9 * m + self.w(step)
            fired = (m > 1).float()
            m = m - fired
            total = total + self.out(fired)
        return total

    def work(self, x, found):
        m = torch.zeros(5)
        for step in x:
            m = 0.9 * m + self.w(step).detach()
            fired = (m > 1).float()
            m = m - fired
            found.rows("w", step[None], self.w.weight.detach())
            found.rows("out", fired[None], self.out.weight.detach())


KINDS = (
    Convolutions, Attention, Gated, Custom, Scripted, Shared, Indices, Sparse, Remembering, TimeFirst,
)  # fmt: skip


def counted(network, batches):
    axis = {"sample_axis": 1} if isinstance(network, TimeFirst) else {}
    scores = nl.cost(network, batches, ASKED, **axis)
    assert {score.status for score in scores.values()} == {"scored"}, [
        s.reason for s in scores.values()
    ]
    assert scores["effective_macs"].n["coverage"] == 1
    return np.array([scores[name].value for name in ASKED])


def expected_of(kind, network, x):
    each = []
    with torch.no_grad():
        for sample in x:
            result = Counted()
            kind.work(network, sample, result)
            each.append(result.result())
    return np.mean(each, axis=0)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_counts_equal_those_of_loops(kind):
    network, x = kind(), inputs(*kind.shape)[:12]
    shown, axis = (x.transpose(0, 1), 1) if kind is TimeFirst else (x, 0)
    expected = expected_of(kind, network, x)
    assert (expected > 0)[[0, 2]].all()
    for size in (12, 1, 5):
        batches = [part.contiguous() for part in shown.split(size, axis)]
        np.testing.assert_allclose(
            counted(network, batches),
            expected,
            rtol=1e-12,
            err_msg=f"batches of {size}",
        )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_counts_equal_those_of_loops_in_batches_of_every_size(kind):
    network, x = kind(), inputs(*kind.shape)
    shown, axis = (x.transpose(0, 1), 1) if kind is TimeFirst else (x, 0)
    expected = expected_of(kind, network, x)
    for size in range(1, SAMPLES + 1):
        batches = [part.contiguous() for part in shown.split(size, axis)]
        np.testing.assert_allclose(
            counted(network, batches),
            expected,
            rtol=1e-12,
            err_msg=f"batches of {size}",
        )


class Start(Kind):
    """A start state of one row that all samples share, and a row of the network that no sample changes."""

    def __init__(self):
        super().__init__()
        self.w, self.u, self.v = (
            nn.Linear(6, 4),
            nn.Linear(4, 4, bias=False),
            nn.Linear(3, 4, bias=False),
        )
        self.fill()
        self.register_buffer("h", drawn(1, 4, seed=7))
        self.register_buffer("place", drawn(1, 3, seed=8))
        self.register_buffer("line", drawn(1, 4, seed=6))

    def forward(self, x):
        h = torch.tanh(self.w(x) + self.u(self.h.clamp(-1, 1)) + self.v(self.place))
        return self.line @ h.t()


def test_a_state_shared_by_samples_counts_for_each_in_any_batch():
    network, x = Start(), inputs(6)
    w, u, v = (layer.weight.detach() for layer in (network.w, network.u, network.v))
    each = []
    for sample in x:
        result = Counted()
        h, place = network.h.clamp(-1, 1), network.place
        result.rows("w", sample[None], w)
        result.rows("u", h, u)
        result.rows("v", place, v)
        after = torch.tanh(
            sample @ w.T + network.w.bias.detach() + h @ u.T + place @ v.T
        )
        result.rows("line", after, network.line)
        each.append(result.result())
    for size in (64, 1, 2, 7, 33):
        np.testing.assert_allclose(
            counted(network, list(x.split(size))),
            np.mean(each, axis=0),
            rtol=1e-12,
            err_msg=f"batches of {size}",
        )
