"""Values that leave torch in the middle of a network are reported; copies within torch are not."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import neuroledger as nl

MATRIX = np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32)


class Beside(nn.Module):
    """A layer, and what a function computes from its answer beside it."""

    def __init__(self, beside):
        super().__init__()
        self.layer, self.beside = nn.Linear(6, 6), beside

    def forward(self, x):
        h = self.layer(x).relu()
        return h + self.beside(h)


def tensor(values):
    return torch.as_tensor(np.asarray(values), dtype=torch.float32)


def saved(h):
    file = io.BytesIO()
    torch.save(h, file)
    file.seek(0)
    return torch.load(file)


LEAVES = {
    "numpy": ("numpy", lambda h: tensor(h.numpy() @ MATRIX)),
    "detached": ("numpy", lambda h: tensor(h.detach().cpu().numpy() @ MATRIX)),
    "asarray": ("numpy", lambda h: tensor(np.asarray(h) @ MATRIX)),
    "whether": ("numpy", lambda h: tensor(h.gt(0).numpy() * 1.0)),
    "universal function": ("numpy", lambda h: tensor(np.multiply(h, 2))),
    "tolist": ("tolist", lambda h: tensor(MATRIX @ np.array(h.T.tolist())).T),
    "pickle": ("pickle", lambda h: pickle.loads(pickle.dumps(h)) * 2),
    "saved": ("pickle", saved),
    "dlpack": ("dlpack", lambda h: tensor(np.from_dlpack(h) * 2)),
    "value by value": ("apply_", lambda h: h.clone().apply_(lambda value: value * 2)),
}
STAYS = {
    "operators": lambda h: h * 2,
    "shallow copy": copy.copy,
    "deep copy": copy.deepcopy,
    "positions": lambda h: h[:, h.argmax(1).tolist()][:, :1],
    "a largest value": lambda h: h / max(1.0, h.max().item()),
    "text": lambda h: h + len(str(h.shape)),
    "weights": lambda h: h * float(np.abs(MATRIX).max()),
}


def cost_of(beside):
    return nl.cost(Beside(beside).eval(), [torch.randn(5, 6)], ["effective_macs"])[
        "effective_macs"
    ]


@pytest.mark.parametrize("way", LEAVES)
@pytest.mark.filterwarnings("ignore:__array_wrap__")
def test_values_that_leave_torch_make_a_count_partial(way):
    name, beside = LEAVES[way]
    score = cost_of(beside)
    assert score.status == "partial"
    assert f"{name} (values leave torch" in score.reason


@pytest.mark.parametrize("way", STAYS)
def test_values_that_stay_in_torch_do_not(way):
    score = cost_of(STAYS[way])
    assert (score.status, score.reason) == ("scored", "")


def test_an_answer_written_step_by_step_stays_in_torch():
    class Series(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            answer = torch.zeros(x.shape)
            for step in range(x.shape[1]):
                answer[:, step] = self.layer(x[:, step])
            return answer

    score = nl.cost(Series(), [torch.ones(5, 4, 6)], ["effective_acs"])["effective_acs"]
    assert (score.status, score.reason, score.value) == ("scored", "", 4 * 36)


def test_nothing_remains_on_torch_after_an_error():
    def fails(h):
        h.numpy()
        raise RuntimeError("no")

    assert cost_of(fails).status == "failed"
    assert torch._C._len_torch_function_stack() == 0
