"""Networks for inference: shapes, weights and refusals."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models import ann, spiking
from neuroledger.families.efficiency.models.echo_state import echo_state, ridge
from neuroledger.families.efficiency.networks.layers import Lif
from neuroledger.families.efficiency.networks.trainable_model import Examples

NETWORKS = {
    "perceptron": lambda: ann.network("perceptron", 64, 8, 10),
    "convolution": lambda: ann.network("convolution", 64, 4, 10),
    "lstm": lambda: ann.network("lstm", 64, 8, 10),
    "line": lambda: ann.network("line", 64, 4, 10),
    "spiking": lambda: spiking.network((64, 16, 10)),
}
NOTHING = Examples(torch.zeros(0).numpy(), torch.zeros(0).numpy())


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_answers_each_presentation(name):
    torch.manual_seed(0)
    x = (torch.rand(5, 64, 40) < 0.5).float()
    module = NETWORKS[name]().eval()
    assert module(x).shape == (5, 10)
    assert torch.allclose(module(x)[2], module(x[2:3])[0], atol=1e-6)


def test_weights_are_loaded_by_name(tmp_path):
    module = spiking.network((6, 4, 3))
    path = tmp_path / "model.safetensors"
    save_file(dict(module.state_dict()), path)
    built = spiking.spiking(
        id="m", sizes=(6, 4, 3), weights={"model.safetensors": path}
    ).ready(NOTHING)
    assert all(
        torch.equal(a, b)
        for a, b in zip(module.parameters(), built.parameters(), strict=True)
    )
    assert sum(isinstance(part, Lif) for part in built.modules()) == 2
    other = spiking.spiking(
        id="m", sizes=(6, 5, 3), weights={"model.safetensors": path}
    )
    with pytest.raises(ModelError, match="do not fit"):
        other.ready(NOTHING)


def test_untrained_networks_and_wrong_shapes_are_refused():
    with pytest.raises(ModelError, match="no weights"):
        ann.ann(id="m", architecture="lstm", inputs=3, units=4, outputs=2)
    with pytest.raises(ModelError, match="square"):
        ann.network("convolution", 60, 4, 10)
    with pytest.raises(ModelError, match="at least inputs and outputs"):
        spiking.network((5,))
    model = echo_state(id="e", units=5)
    with pytest.raises(ModelError, match="one series"):
        model.ready(Examples(torch.zeros(2, 3, 90).numpy(), torch.zeros(90).numpy()))
    with pytest.raises(ModelError, match="more than 45"):
        model.ready(Examples(torch.zeros(1, 1, 40).numpy(), torch.zeros(40).numpy()))


def test_ridge_equals_scikit_learns():
    import numpy as np
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 2))
    expected = Ridge(alpha=0.3, fit_intercept=False).fit(x, y).coef_.T
    assert np.allclose(ridge(x, y, 0.3), expected)
