"""Embeddings are what transformers and spaCy give when they are asked directly; `make test-hub`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from neuroledger.errors import DataError, ModelError
from neuroledger.families.signals.embeddings.film_frames import clips, seconds_of
from neuroledger.families.signals.models.film_embedder import moments
from neuroledger.models.embedder import Embedder, Shown
from neuroledger.models.torch_module import hub_package
from neuroledger.spec.registry import get
from tests.hub.tiny_networks import (
    DINO,
    GPT2,
    VJEPA,
    WAV2VEC,
    film,
    network,
    published_gpt2,
    published_wav2vec,
    save,
    spacy_wheel,
    wave,
)

pytestmark = pytest.mark.hub

RAMP = [10, 50, 90, 130, 170, 210, 250, 30, 70, 110]


def embedder(name: str, weights: dict[str, Path], **fields: Any) -> Embedder:
    component = get("builder", name)
    made = component.function(id="tiny", weights=weights, **component.bind(fields))
    assert isinstance(made, Embedder)
    return made


def states_of(module: Any, **inputs: Any) -> list[np.ndarray]:
    import torch

    with torch.no_grad():
        return [
            state.numpy()
            for state in module(**inputs, output_hidden_states=True).hidden_states
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


@pytest.fixture(scope="module")
def gpt2(folder: Path) -> tuple[dict[str, Path], Any]:
    return published_gpt2(folder / "gpt2")


@pytest.fixture(scope="module")
def wav2vec(folder: Path) -> tuple[dict[str, Path], Any]:
    return published_wav2vec(folder / "wav2vec")


TEXT = {"architecture": "GPT2Model", "config": GPT2, "states": [2], "longest": 32}
SOUND = {
    "architecture": "Wav2Vec2Model",
    "config": WAV2VEC,
    "states": [1, 2, 3],
    "frames_per_second": 120.0,
    "groups": 4,
    "beyond": "zeros",
    "unused": ["quantizer.", "project_"],
}
FILM = {
    "architecture": "VJEPA2Model",
    "config": VJEPA,
    "states": [2],
    "frames": 4,
    "clips_per_second": 2.0,
    "preprocessing": {"resize": 36, "fit": "shorter", "crop": 32},
}


def test_a_text_is_the_mean_of_its_own_tokens(
    gpt2: tuple[dict[str, Path], Any],
) -> None:
    import torch
    from tokenizers import Tokenizer

    files, module = gpt2
    cut = Tokenizer.from_file(str(files["tokenizer.json"]))
    texts = ["the cat", "null", "the cat sat: é"]
    rows = (
        embedder("text_embedder", files, **TEXT)
        .embed([Shown(text, text=text) for text in texts], None, print)
        .rows
    )
    assert rows.dtype == np.float32
    for text, row in zip(texts, rows, strict=True):
        state = states_of(module, input_ids=torch.tensor([cut.encode(text).ids]))[2][0]
        np.testing.assert_allclose(row, state.mean(axis=0), rtol=1e-5, atol=1e-6)
    shown = [
        Shown("a", text="cat", context="the cat"),
        Shown("b", text="cat", context="a cat"),
    ]
    made = (
        embedder("text_embedder", files, **TEXT | {"contextual": True})
        .embed(shown, None, print)
        .rows
    )
    state = states_of(module, input_ids=torch.tensor([cut.encode("the cat").ids]))[2][0]
    np.testing.assert_allclose(
        made[0], state[-1], rtol=1e-5, atol=1e-6
    )  # " cat" is one token
    assert not np.allclose(made[0], made[1])


def test_long_texts_lose_their_beginnings_and_say_so(
    gpt2: tuple[dict[str, Path], Any],
) -> None:
    files, _ = gpt2
    made = embedder("text_embedder", files, **TEXT | {"longest": 4})
    whole = made.embed(
        [Shown("a", text="wxyz"), Shown("b", text="abcd wxyz")], None, print
    )
    assert whole.notes == (
        "1 texts are longer than 4 tokens: their beginnings were left out",
    )
    np.testing.assert_allclose(whole.rows[0], whole.rows[1], rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match="ends in 'a dog', not in 'cat'"):
        embedder("text_embedder", files, **TEXT | {"contextual": True}).embed(
            [Shown("a", "cat", "a dog")], None, print
        )


def test_states_are_averaged_and_asked_for_by_number(
    gpt2: tuple[dict[str, Path], Any],
) -> None:
    files, _ = gpt2
    made, shown = embedder("text_embedder", files, **TEXT), [Shown("a", text="the cat")]
    one, three = (made.embed(shown, (state,), print).rows for state in (1, 3))
    both = (
        embedder("text_embedder", files, **TEXT | {"states": [1, 3]})
        .embed(shown, None, print)
        .rows
    )
    np.testing.assert_allclose(both, (one + three) / 2, rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match="hidden states 4: name states from 0 to 3"):
        made.embed(shown, (4,), print)


def test_images_are_what_the_published_processor_and_the_network_make_of_them(
    folder: Path,
) -> None:
    import torch

    hub = hub_package("transformers")
    module = network("Dinov2Model", DINO)
    files = save(folder / "dino", module.state_dict())
    rng = np.random.default_rng(0)
    smooth = Image.fromarray(rng.integers(0, 256, (8, 12, 3), dtype=np.uint8)).resize(
        (120, 80), Image.Resampling.BICUBIC
    )
    smooth.save(folder / "a.png")
    steps = {"resize": 32, "fit": "shorter", "interpolation": "bicubic", "crop": 28}
    made = embedder(
        "image_embedder",
        files,
        architecture="Dinov2Model",
        config=DINO,
        states=[2],
        preprocessing=steps,
    )
    row = made.embed([Shown("a", path=folder / "a.png")], None, print).rows[0]
    processor = hub.BitImageProcessor(
        size={"shortest_edge": 32},
        crop_size={"height": 28, "width": 28},
        resample=3,
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )
    pixels = processor(
        images=[np.array(smooth)],
        return_tensors="pt",
        input_data_format="channels_last",
    )
    state = states_of(
        module, pixel_values=torch.as_tensor(pixels["pixel_values"]).float()
    )[2][0]
    np.testing.assert_allclose(row, state.mean(axis=0), rtol=0.02, atol=0.02)
    first = embedder(
        "image_embedder",
        files,
        architecture="Dinov2Model",
        config=DINO,
        states=[2],
        preprocessing=steps,
        tokens="first",
        resize_first=64,
    )
    assert not np.allclose(
        first.embed([Shown("a", path=folder / "a.png")], None, print).rows[0], row
    )


def test_a_stretch_of_sound_is_cut_out_of_what_is_heard_of_the_whole(
    wav2vec: tuple[dict[str, Path], Any], tmp_path: Path
) -> None:
    import torch

    files, module = wav2vec
    samples = wave(tmp_path / "a.wav", 2.0, channels=2).mean(axis=1)
    made = embedder("sound_embedder", files, **SOUND)
    shown = [
        Shown("in", path=tmp_path / "a.wav", start=0.5, duration=1.0),
        Shown("before", path=tmp_path / "a.wav", start=-0.5, duration=1.0),
    ]
    embedded = made.embed(shown, None, print)
    assert embedded.rows.shape == (2, 64)
    heard = hub_package("transformers").Wav2Vec2FeatureExtractor(do_normalize=True)(
        samples, sampling_rate=16_000, return_tensors="pt"
    )
    states = states_of(module, input_values=heard["input_values"].float())
    layers = np.mean([states[number][0] for number in (1, 2, 3)], axis=0)
    raster = (
        torch.nn.functional.interpolate(torch.from_numpy(layers.T)[None], 240)[0]
        .numpy()
        .T
    )
    groups = [part.mean(axis=0) for part in np.array_split(raster[60:180], 4)]
    np.testing.assert_allclose(
        embedded.rows[0], np.concatenate(groups), rtol=1e-4, atol=1e-5
    )
    padded = np.concatenate([np.zeros((60, 16)), raster[:60]])
    groups = [part.mean(axis=0) for part in np.array_split(padded, 4)]
    np.testing.assert_allclose(
        embedded.rows[1], np.concatenate(groups), rtol=1e-4, atol=1e-5
    )
    assert embedded.notes == ("1 stimuli go beyond their recording: zeros stand there",)
    refusing = embedder("sound_embedder", files, **SOUND | {"beyond": "refuse"})
    with pytest.raises(
        DataError, match=r"'before' is -0.5 to 0.5 s of a.wav, which lasts 2 s"
    ):
        refusing.embed(shown, None, print)
    with pytest.raises(DataError, match=r"3 to 4 s of a\.wav, which lasts 2 s"):
        made.embed(
            [Shown("x", path=tmp_path / "a.wav", start=3.0, duration=1.0)], None, print
        )


def test_weights_with_heads_that_nobody_left_out_are_refused(
    wav2vec: tuple[dict[str, Path], Any],
    gpt2: tuple[dict[str, Path], Any],
    folder: Path,
) -> None:
    files, _ = wav2vec
    with pytest.raises(
        ModelError, match=r"weights do not fit: nothing takes 'project_hid\.bias'"
    ):
        embedder("sound_embedder", files, **SOUND | {"unused": []})
    state = dict(gpt2[1].state_dict())
    lost = state.pop("h.0.ln_1.weight")
    torn = save(folder / "torn", state) | {"tokenizer.json": gpt2[0]["tokenizer.json"]}
    with pytest.raises(ModelError, match=r"no value for 'h.0.ln_1.weight'"):
        embedder("text_embedder", torn, **TEXT)
    other = save(folder / "other", {**state, "h.0.ln_1.weight": lost[:4]})
    with pytest.raises(
        ModelError, match=r"'h.0.ln_1.weight' is \(4,\), the network has \(16,\)"
    ):
        embedder(
            "text_embedder",
            other | {"tokenizer.json": gpt2[0]["tokenizer.json"]},
            **TEXT,
        )
    with pytest.raises(ModelError, match=r"pin its tokenizer\.json"):
        embedder(
            "text_embedder", {"model.safetensors": gpt2[0]["model.safetensors"]}, **TEXT
        )
    with pytest.raises(
        ModelError, match=r"'tokenizer\.json' under `weights` is not used"
    ):
        embedder("sound_embedder", gpt2[0], **SOUND)


def test_frames_are_those_on_the_screen_at_each_moment(tmp_path: Path) -> None:
    film(tmp_path / "a.mkv", RAMP)
    path = tmp_path / "a.mkv"
    assert seconds_of(path) == pytest.approx(1.0, abs=0.01)
    when = moments(
        0.2, 0.6, clips_per_second=5, span=0.2, frames=4, one=Shown("a", path=path)
    )
    np.testing.assert_allclose(when[0], [0.25, 0.3, 0.35, 0.4])
    np.testing.assert_allclose(when[-1], [0.65, 0.7, 0.75, 0.8])
    seen = [
        clip[:, 0].tolist()
        for clip in clips(
            path, when, lambda image: np.asarray(image)[0, :1, 0].astype(np.float32)
        )
    ]
    assert seen == [[90, 130, 130, 170], [170, 210, 210, 250], [250, 30, 30, 70]]
    beyond = moments(
        0.8, 0.6, clips_per_second=5, span=0.2, frames=4, one=Shown("a", path=path)
    )
    with pytest.raises(DataError, match=r"ends at 1 s, before the requested 1.2 s"):
        list(clips(path, beyond, lambda image: np.zeros(1, dtype=np.float32)))
    film(
        tmp_path / "long.mp4",
        [(7 * number) % 256 for number in range(60)],
        codec="mpeg4",
    )
    late = moments(
        4.05, 1.0, clips_per_second=2, span=0.4, frames=4, one=Shown("a", path=path)
    )
    seen = partial(
        clips,
        tmp_path / "long.mp4",
        prepare=lambda image: np.asarray(image).astype(np.float32),
    )
    sought = list(seen(late))
    early = np.concatenate(
        [np.zeros((1, 4)), late]
    )  # a first clip at the beginning: nothing is skipped
    whole = list(seen(early))[1:]
    np.testing.assert_array_equal(np.stack(sought), np.stack(whole))
    greys = np.array([(7 * number) % 256 for number in range(60)])
    np.testing.assert_allclose(sought[0][:, 32, 32, 0], greys[[42, 43, 44, 45]], atol=6)
    (tmp_path / "no.mkv").write_bytes(b"this is no film")
    with pytest.raises(DataError, match="cannot be opened as a film"):
        seconds_of(tmp_path / "no.mkv")


def test_a_film_is_the_mean_over_the_tokens_of_its_clips(
    folder: Path, tmp_path: Path
) -> None:
    import torch

    hub = hub_package("transformers")
    module = network("VJEPA2Model", VJEPA)
    files = save(folder / "vjepa", module.state_dict())
    film(tmp_path / "a.mkv", RAMP)
    made = embedder("film_embedder", files, **FILM)
    row = made.embed([Shown("a", path=tmp_path / "a.mkv")], None, print).rows[0]
    processor = hub.VJEPA2VideoProcessor(
        size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}
    )
    rows = []
    for end in (0.5, 1.0):
        greys = [
            RAMP[min(9, int((end - 0.5 * k / 4) * 10 + 1e-6))] for k in (3, 2, 1, 0)
        ]
        frames = torch.stack(
            [torch.full((3, 64, 64), grey, dtype=torch.uint8) for grey in greys]
        )
        inputs = processor(frames, return_tensors="pt")
        rows.append(states_of(module, **inputs)[2][0].mean(axis=0))
    np.testing.assert_allclose(row, np.mean(rows, axis=0), rtol=1e-3, atol=1e-3)


def test_word_vectors_are_those_of_spacy_without_running_its_package(
    tmp_path: Path,
) -> None:
    import spacy

    rng = np.random.default_rng(0)
    vectors = {word: rng.standard_normal(5) for word in ("cat", "The", "the", ".")}
    files = spacy_wheel(tmp_path / "en_tiny-1.0.0-py3-none-any.whl", vectors)
    made = embedder("word_vectors", files)
    texts = ["cat", "The cat.", "quark", "cat quark"]
    embedded = made.embed([Shown(text, text=text) for text in texts], None, print)
    reference = spacy.blank("en")
    for word, values in vectors.items():
        reference.vocab.set_vector(word, values.astype(np.float32))
    np.testing.assert_allclose(
        embedded.rows, [reference(text).vector for text in texts], rtol=1e-6
    )
    np.testing.assert_allclose(embedded.rows[3], embedded.rows[0] / 2)
    assert embedded.notes == ("1 texts have no vector and are zeros, first 'quark'",)
    with pytest.raises(ModelError, match="has no word vectors"):
        embedder("word_vectors", spacy_wheel(tmp_path / "bare.whl", {}))
    (tmp_path / "x.whl").write_bytes(b"no wheel")
    with pytest.raises(ModelError, match="cannot be read as a spaCy package"):
        embedder("word_vectors", {"x.whl": tmp_path / "x.whl"})
