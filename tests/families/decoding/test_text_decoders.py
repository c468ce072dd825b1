"""Tests of decoders of texts: the published network, the CTC loss, decoding, and simulated typing."""

import itertools

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.network_decoders import (
    ctc_decoder,
    torch_decoder,
)
from neuroledger.families.decoding.models.time_depth_networks import (
    pose_network,
    typing_network,
)
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import Laptop
from neuroledger.families.decoding.training.text_reading import (
    Texts,
    beam,
    greedy,
    steps_needed,
)

SMALL = {
    "bands": 2,
    "window": 16,
    "hop": 8,
    "features": 24,
    "depths": [4, 4],
    "kernel": 5,
    "time_masks": 0,
    "frequency_masks": 0,
}
QUICK = Laptop(
    epochs=30,
    patience=30,
    learning_rate=3e-3,
    scale="none",
    batch=16,
    gradient_norm=1.0,
)
RATE = 400


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def typing(windows=160, seed=0, keys="abc"):
    """Simulated windows of 1 s with 8 electrodes; each key is a burst of 50 ms on its own pair of electrodes."""
    rng = np.random.default_rng(seed)
    x = 0.1 * rng.standard_normal((windows, 8, RATE))
    texts = []
    for window in x:
        pressed = rng.integers(0, len(keys), rng.integers(0, 5))
        for place, key in enumerate(pressed):
            first = 60 + 80 * place + rng.integers(0, 20)
            window[[key, key + 4], first : first + 20] += rng.standard_normal((2, 20))
        texts.append("".join(keys[key] for key in pressed))
    return x.astype(np.float32), np.array(texts)


def small(**changes):
    return ctc_decoder(**{"id": "ctc", "parameters": SMALL, "recipe": QUICK, **changes})


def score(decoder, x, texts, **changes):
    options = {
        "metric": "character_error_rate",
        "splits": [(np.arange(120), np.arange(120, 160))],
        "seeds": (33,),
    }
    return nl.decode(decoder, x, texts, sampling_rate=RATE, **{**options, **changes})


def test_the_published_network_has_as_many_parameters_as_published():
    network = typing_network(32, 10_000, 99)
    spectra, first, block = (
        2 * 32,
        2 * (16 * 33 * 384 + 384),
        (24 * 24 * 32 + 24) + 2 * (768 * 768 + 768) + 4 * 768,
    )
    assert (
        count(network) - count(network[-1]) == spectra + first + 4 * block == 5_217_184
    )
    assert count(network) == 5_293_315


def test_five_seconds_give_the_published_steps_whatever_the_turn():
    import torch

    network = typing_network(32, 10_000, 99).eval()
    x = torch.randn(1, 32, 10_000, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        said = network(x)
        all_turns = typing_network(32, 10_000, 99, turns=tuple(range(16))).eval()
        all_turns.load_state_dict(network.state_dict())
        turned = torch.cat(
            [x[:, :16].roll(3, dims=1), x[:, 16:].roll(3, dims=1)], dim=1
        )
        np.testing.assert_allclose(all_turns(x), all_turns(turned), atol=1e-5)
    assert said.shape == (1, 498, 99)


def test_the_spectrogram_is_that_of_the_fourier_transform():
    import torch

    x = np.random.default_rng(0).standard_normal((1, 32, 10_000))
    network = typing_network(32, 10_000, 99).double()
    taper = np.hanning(65)[:-1]
    frames = np.lib.stride_tricks.sliding_window_view(x[0], 64, axis=-1)[:, ::16]
    power = np.abs(np.fft.rfft(frames * taper / np.sqrt((taper**2).sum()))) ** 2
    expected = np.log10(power + 1e-6).transpose(0, 2, 1)
    np.testing.assert_allclose(
        network[0][0](torch.from_numpy(x))[0].numpy(), expected, atol=2e-4
    )


@pytest.mark.parametrize(
    ("shape", "changes", "words"),
    [
        ((31, 10_000), {}, "31 channels cannot be divided into 2 bands"),
        ((32, 2_047), {}, "at least 2048 samples, these have 2047"),
        ((32, 10_000), {"depths": (7,)}, "must divide"),
    ],
)
def test_windows_that_do_not_fit_the_network_are_refused(shape, changes, words):
    with pytest.raises(ModelError, match=words):
        typing_network(*shape, 99, **changes)


def test_masks_are_applied_only_in_training():
    import torch

    masks = typing_network(32, 10_000, 99)[0][1]
    x = torch.ones(4, 32, 33, 100)
    assert (masks.eval()(x) == 1).all()
    torch.manual_seed(0)
    shares = [float((masks.train()(x) == 0).float().mean()) for _ in range(20)]
    assert 0 < max(shares) < 0.7
    assert len(set(shares)) > 10


@pytest.mark.slow
def test_simulated_typing_is_decoded_and_its_shuffle_is_not():
    x, texts = typing()
    read = score(small(), x, texts)
    dummy = score("dummy", x, texts)
    shuffled = score(small(), x, texts, shuffle_labels=True)
    assert read.value < 0.15 < 0.5 < dummy.value
    assert shuffled.value > 0.8 * dummy.value
    assert score(small(), x, texts, normalise=True).value > 0.8
    assert any("parameters" in note for note in read.notes)


def test_results_are_reproducible_given_the_seed():
    x, texts = typing(60)
    signature = Signature(
        "sequence", 8, RATE, 4, RATE, tuple("12345678"), 33, symbols=("a", "b", "c")
    )
    decoder = small(recipe=QUICK.model_copy(update={"epochs": 3}))
    first, again = (decoder.make(signature).fit(x[:40], texts[:40]) for _ in range(2))
    other = decoder.make(signature._replace(seed=34)).fit(x[:40], texts[:40])
    weights = [
        fitted.network_.state_dict()["1.weight"].numpy()
        for fitted in (first, again, other)
    ]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert (weights[0] != weights[2]).any()
    assert first.predict(x[40:]).tolist() == again.predict(x[40:]).tolist()


@pytest.mark.slow
def test_any_module_that_answers_over_time_can_be_given():
    from torch import nn

    x, texts = typing(500)
    parts = [(np.arange(420), np.arange(420, 500))]

    class Over(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)
            self.last = nn.Sequential(
                nn.Conv1d(8, 48, 5), nn.ReLU(), nn.Conv1d(48, 4, 1)
            )

        def forward(self, windows):
            power = nn.functional.avg_pool1d(windows**2, 10, 5).add(1e-3).log()
            return self.last(self.norm(power)).transpose(1, 2)

    assert (
        score(Over(), x, texts, splits=parts).value
        < 0.4
        < score("dummy", x, texts, splits=parts).value - 0.1
    )
    with pytest.raises(
        ModelError,
        match=r"returns \(.*\); \(window, time, 4\) is needed: scores of 3 symbols and of the blank",
    ):
        score(nn.Sequential(nn.Flatten(), nn.Linear(8 * RATE, 4)), x, texts)


@pytest.mark.slow
def test_symbols_that_were_never_trained_are_only_errors():
    x, texts = typing()
    texts = texts.copy()
    texts[120:] = [text.replace("a", "z") for text in texts[120:]]
    unseen = score(small(), x, texts)
    others = sum(text.count("z") for text in texts[120:]) / sum(map(len, texts[120:]))
    assert others - 0.1 < unseen.value < others + 0.25
    fixed = score(small(symbols="abcdefg"), x, texts)
    assert fixed.value < 0.6
    with pytest.raises(
        ModelError, match=r"'c' is in a text but not among the 2 symbols of the decoder"
    ):
        score(small(symbols="ab"), x, texts)
    with pytest.raises(ModelError, match=r"`symbols` contains 'a' twice"):
        small(symbols="aba")


def test_texts_longer_than_the_networks_time_are_one_error():
    x, texts = typing(40)
    texts = texts.astype("U60")
    texts[3] = "ab" * 30
    with pytest.raises(
        ModelError,
        match=r"needs 60 steps in time, but the network has 41: use longer windows",
    ):
        score(small(), x, texts, splits=[(np.arange(30), np.arange(30, 40))])


def test_steps_include_a_blank_between_equal_symbols():
    assert [steps_needed(text) for text in ([], [1], [1, 1], [1, 2, 2, 2])] == [
        0,
        1,
        3,
        6,
    ]


def brute_force(scores, blank):
    """The most probable text by enumeration of all paths."""
    chances = {}
    for path in itertools.product(range(scores.shape[1]), repeat=len(scores)):
        collapsed = [symbol for symbol, _ in itertools.groupby(path)]
        text = tuple(symbol for symbol in collapsed if symbol != blank)
        chance = np.exp(sum(scores[step, symbol] for step, symbol in enumerate(path)))
        chances[text] = chances.get(text, 0.0) + chance
    return list(max(chances, key=lambda text: chances[text]))


def test_a_broad_beam_finds_the_most_probable_text():
    rng = np.random.default_rng(0)
    differ = 0
    for _ in range(30):
        scores = np.log(rng.dirichlet(np.ones(3), size=5))
        best = brute_force(scores, 2)
        assert beam(scores, 2, 100) == best
        differ += greedy(scores, 2) != best
    assert differ > 3
    spiky = np.log(np.eye(3)[[0, 0, 2, 0, 1, 2]] * 0.98 + 0.01)
    assert greedy(spiky, 2) == beam(spiky, 2, 4) == [0, 0, 1]


@pytest.mark.slow
def test_a_beam_reads_planted_typing():
    x, texts = typing()
    assert score(small(breadth=4), x, texts).value < 0.2


def test_the_loss_is_minus_the_logarithm_of_all_ways_to_write_a_text():
    import torch

    rng = np.random.default_rng(1)
    scores = np.log(rng.dirichlet(np.ones(3), size=(2, 4)))
    signature = Signature("sequence", 1, 4, 3, 1.0, ("1",), 0, symbols=("a", "b"))
    texts = Texts(signature, QUICK, np.array(["ab", "a"]))
    targets = texts.targets(np.array(["ab", "a"]))
    assert targets.tolist() == [[0, 1], [0, 2]]
    expected = []
    for window, text in zip(scores, ((0, 1), (0,)), strict=True):
        total = sum(
            np.exp(sum(window[step, symbol] for step, symbol in enumerate(path)))
            for path in itertools.product(range(3), repeat=4)
            if tuple(symbol for symbol, _ in itertools.groupby(path) if symbol != 2)
            == text
        )
        expected.append(-np.log(total) / len(text))
    loss = texts.loss(targets)(torch.from_numpy(scores), targets)
    np.testing.assert_allclose(float(loss), np.mean(expected), atol=1e-6)


def test_poses_are_predicted_after_the_context():
    import torch

    network = pose_network(16, 11_790, 5_000, context=1_790)
    assert network.encoder(torch.zeros(1, 16, 11_790)).shape == (1, 625, 384)
    place = network.before + network.share
    np.testing.assert_allclose(place[1:], (40 * np.arange(1, 250) - 1) / 16, atol=1e-4)
    assert float(place[0]) == 0
    assert network(torch.zeros(2, 16, 11_790)).shape == (2, 5_000)
    with pytest.raises(
        ModelError, match="5000 outputs are not a multiple of 21 joints"
    ):
        pose_network(16, 11_790, 5_000, joints=21)
    with pytest.raises(ModelError, match="must be shorter than the window of 11790"):
        pose_network(16, 11_790, 5_000, context=11_790)


def test_electrodes_are_rotated_only_in_training():
    import torch

    rolled = pose_network(16, 11_790, 5_000).encoder[1]
    x = torch.arange(16.0).reshape(1, 16, 1, 1).expand(2, 16, 3, 4)
    assert (rolled.eval()(x) == x).all()
    torch.manual_seed(0)
    firsts = {float(rolled.train()(x)[0, 0, 0, 0]) for _ in range(30)}
    assert firsts == {15.0, 0.0, 1.0}


@pytest.mark.slow
def test_planted_trajectories_are_followed():
    rng = np.random.default_rng(0)
    time = np.arange(400) / 400
    phase, speed = rng.uniform(0, 6, (300, 2, 1)), rng.uniform(3, 9, (300, 2, 1))
    angles = np.sin(phase + speed * time)
    x = rng.standard_normal((300, 4, 400)) * np.exp(np.repeat(angles, 2, axis=1))
    y = angles[:, :, 100::10].reshape(300, -1)
    decoder = torch_decoder(
        id="pose",
        path="neuroledger.families.decoding.models.time_depth_networks.pose_network",
        parameters={
            "joints": 2,
            "rolls": [0],
            "turns": [0],
            "context": 100,
            "window": 16,
            "hop": 8,
            "features": 24,
            "depths": [4, 4],
            "kernel": 5,
        },
        recipe=QUICK.model_copy(
            update={"loss": "absolute", "monitor": "mae", "target_scale": "none"}
        ),
    )
    parts = [(np.arange(240), np.arange(240, 300))]
    options = {
        "metric": "decoding_mae",
        "splits": parts,
        "seeds": (33,),
        "sampling_rate": 400,
    }
    followed = nl.decode(decoder, x.astype(np.float32), y, **options)
    constant = nl.decode("dummy", x.astype(np.float32), y, **options)
    assert followed.value < 0.5 * constant.value
