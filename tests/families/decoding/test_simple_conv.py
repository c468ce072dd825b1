"""SimpleConvTimeAgg: the published size, and attention over positions as its definition says."""

import itertools

import numpy as np
import pytest

from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.network_decoders import torch_decoder
from neuroledger.families.decoding.models.simple_conv import simple_conv_time_agg
from neuroledger.families.decoding.protocols.decoder import Signature

torch = pytest.importorskip("torch")


@pytest.fixture
def positions():
    return np.random.default_rng(0).normal(size=(22, 3)) * 0.1


def test_it_has_the_published_size(positions):
    network = simple_conv_time_agg(22, 256, 4, positions)
    last = 512 * 4 + 4
    assert sum(part.numel() for part in network.parameters()) - last == 4_170_867


def test_channels_are_merged_by_the_harmonics_of_their_positions(positions):
    positions[3] = np.nan
    merger = simple_conv_time_agg(22, 256, 4, positions)[0].eval()
    low, high = np.nanmin(positions, 0), np.nanmax(positions, 0)
    unit = (positions - low) / (high - low) + 0.2
    harmonics = 2 * np.pi * np.arange(10) / 1.4
    rows = []
    for place in unit:
        sums = [
            place[0] * a + place[1] * b + place[2] * c
            for a, b, c in itertools.product(harmonics, repeat=3)
        ]
        rows.append([*np.cos(sums), *np.sin(sums)])
    scores = merger.heads.detach().numpy() @ np.array(rows).T
    scores[:, 3] = -np.inf
    weights = np.exp(scores - scores[:, [0]])
    weights /= weights.sum(axis=1, keepdims=True)
    x = np.random.default_rng(1).standard_normal((2, 22, 30)).astype(np.float32)
    with torch.inference_mode():
        found = merger(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, weights @ x, atol=1e-4)


def test_a_training_ignores_the_channels_around_a_point(positions):
    torch.manual_seed(0)
    network = simple_conv_time_agg(22, 64, 2, positions, dropout=0.6)
    x = torch.randn(3, 22, 64)
    assert not torch.equal(network[0](x), network[0](x))
    network.eval()
    assert torch.equal(network[0](x), network[0](x))
    assert network(x).shape == (3, 2)


def test_a_decoder_passes_the_positions_and_their_lack_is_said(positions):
    path = "neuroledger.families.decoding.models.simple_conv.simple_conv_time_agg"
    decoder = torch_decoder(id="m", path=path)
    names = tuple(f"C{number}" for number in range(22))
    signature = Signature("classification", 22, 64, 2, 64.0, names, 0)
    with pytest.raises(ModelError, match="none is known"):
        decoder.make(signature).make(signature)
    placed = signature._replace(positions=tuple(map(tuple, positions.tolist())))
    network = decoder.make(placed).make(placed)
    assert network[0].embedding.shape == (22, 2000)
