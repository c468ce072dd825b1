"""Networks of the published classes, a few thousand random weights each, written as their files are published."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from neuroledger.models.torch_module import hub_package

GPT2 = {
    "n_embd": 16,
    "n_layer": 3,
    "n_head": 2,
    "n_positions": 32,
    "vocab_size": 300,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
DINO = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}
WAV2VEC = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "conv_dim": [8, 8],
    "conv_stride": [5, 4],
    "conv_kernel": [10, 4],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "do_stable_layer_norm": True,
    "feat_extract_norm": "layer",
}
HEADS = {"num_codevectors_per_group": 4, "codevector_dim": 8, "proj_codevector_dim": 8}
VJEPA = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "mlp_ratio": 2,
    "crop_size": 32,
    "frames_per_clip": 4,
    "patch_size": 16,
    "tubelet_size": 2,
    "pred_hidden_size": 16,
    "pred_num_attention_heads": 2,
    "pred_num_hidden_layers": 1,
}


def network(architecture: str, config: dict[str, Any], seed: int = 0) -> Any:
    """The module that transformers makes itself."""
    from neuroledger.models.torch_weights import seeded

    hub = hub_package("transformers")
    made = getattr(hub, architecture)
    return seeded(lambda: made(made.config_class(**config)), seed).eval()


def save(
    folder: Path, state: dict[str, Any], name: str = "model.safetensors"
) -> dict[str, Path]:
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    held = {key: value.clone().contiguous() for key, value in state.items()}
    if name.endswith(".bin"):
        torch.save(held, folder / name)
    else:
        save_file(held, folder / name)
    return {name: folder / name}


def published_gpt2(folder: Path) -> tuple[dict[str, Path], Any]:
    """With the masks that the published file holds, and a tokenizer of bytes and a few words."""
    import torch
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    module = network("GPT2Model", GPT2)
    state = dict(module.state_dict())
    state |= {f"h.{block}.attn.bias": torch.ones(1, 1, 32, 32) for block in range(3)}
    files = save(folder, state)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [
        ("t", "h"),
        ("th", "e"),
        ("Ġ", "the"),
        ("c", "a"),
        ("ca", "t"),
        ("Ġ", "cat"),
    ]
    vocabulary = {
        piece: number
        for number, piece in enumerate([*alphabet, *("".join(pair) for pair in merges)])
    }
    cut = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    cut.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    cut.decoder = decoders.ByteLevel()
    cut.save(str(folder / "tokenizer.json"))
    return files | {"tokenizer.json": folder / "tokenizer.json"}, module


def published_wav2vec(folder: Path) -> tuple[dict[str, Path], Any]:
    """As xlsr-53 is: torch's own format, older names of two tensors, the heads of its training, a beginning on each name."""
    full = network("Wav2Vec2ForPreTraining", {**WAV2VEC, **HEADS})
    names = {
        "parametrizations.weight.original0": "weight_g",
        "parametrizations.weight.original1": "weight_v",
    }
    state = {}
    for name, value in full.state_dict().items():
        for new, old in names.items():
            name = name.replace(new, old)
        state[name] = value
    return save(folder, state, "pytorch_model.bin"), full.wav2vec2


def wave(
    path: Path, seconds: float, rate: int = 16_000, channels: int = 1, seed: int = 0
) -> np.ndarray:
    import soundfile

    rng = np.random.default_rng(seed)
    samples = rng.uniform(-0.5, 0.5, (round(seconds * rate), channels)).astype(
        np.float32
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, subtype="FLOAT")
    return samples


def film(
    path: Path, greys: list[int], rate: int = 10, size: int = 64, codec: str = "ffv1"
) -> None:
    """Frames of one grey each, without loss unless a codec says otherwise."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = (
            size,
            size,
            "bgr0" if codec == "ffv1" else "yuv420p",
        )
        for grey in greys:
            pixels = np.full((size, size, 3), grey, dtype=np.uint8)
            for packet in stream.encode(
                av.VideoFrame.from_ndarray(pixels, format="rgb24")
            ):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)


def spacy_wheel(path: Path, vectors: dict[str, np.ndarray]) -> dict[str, Path]:
    """A package as spaCy publishes them: code, licence, and a folder of data inside."""
    import tempfile

    import spacy

    language = spacy.blank("en")
    for word, values in vectors.items():
        language.vocab.set_vector(word, values.astype(np.float32))
    language.add_pipe("sentencizer")
    language.meta["name"] = "tiny"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, zipfile.ZipFile(path, "w") as wheel:
        language.to_disk(place)
        wheel.writestr(
            "en_tiny/__init__.py",
            "raise RuntimeError('code of a package is never run')",
        )
        wheel.writestr("en_tiny/meta.json", json.dumps(language.meta))
        for file in sorted(Path(place).rglob("*")):
            if file.is_file():
                wheel.write(
                    file, f"en_tiny/en_tiny-1.0.0/{file.relative_to(place).as_posix()}"
                )
    return {path.name: path}
