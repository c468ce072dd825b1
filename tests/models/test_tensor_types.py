"""Every tensor type of safetensors is read as the torch type."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroledger.models.torch_weights import TYPES, safetensors

torch = pytest.importorskip("torch")
files = pytest.importorskip("safetensors.torch")


@pytest.mark.parametrize("name", sorted(set(TYPES.values())))
def test_a_tensor_of_each_type_comes_back(name: str, tmp_path: Path) -> None:
    kind = getattr(torch, name)
    held = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, 0.0]]).to(kind)
    files.save_file({"a": held, "b": held[:1].clone()}, tmp_path / "w.safetensors")
    found = safetensors(tmp_path / "w.safetensors")
    assert {one: tensor.dtype for one, tensor in found.items()} == {
        "a": kind,
        "b": kind,
    }
    assert torch.equal(found["a"].view(torch.uint8), held.view(torch.uint8)) and found[
        "b"
    ].shape == (1, 3)


def test_types_are_named_as_the_format_names_them() -> None:
    assert set(TYPES) == {
        "BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "I64", "U64", "F64", "C64",
        "F8_E4M3", "F8_E5M2",
    }  # fmt: skip
