"""Untrusted graphs of NIR and ONNX: any failure of the parser is one clear error about the file."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import h5py
import nir
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.graphs.files import module_from
from neuroledger.families.efficiency.models.graph_file import onnx as build_onnx
from neuroledger.families.efficiency.networks.answers import Examples

TERABYTES = 8 * 1024**4


def graph(path: Path) -> Path:
    nodes = {
        "input": nir.Input(np.array([4])),
        "linear": nir.Linear(np.ones((2, 4))),
        "output": nir.Output(np.array([2])),
    }
    nir.write(path, nir.NIRGraph(nodes, [("input", "linear"), ("linear", "output")]))
    return path


def edited(path: Path, edit: Callable[[h5py.File], object]) -> Path:
    with h5py.File(graph(path), "a") as file:
        edit(file)
    return path


def vast(file: h5py.File) -> None:
    del file["node/nodes/linear/weight"]
    file.create_dataset(
        "node/nodes/linear/weight", (2, TERABYTES // 16), "f8", chunks=(2, 1024)
    )


def cyclic(file: h5py.File) -> None:
    file["node/nodes/again"] = file["node"]


def outside(file: h5py.File) -> None:
    del file["node/nodes/linear/weight"]
    file["node/nodes/linear/weight"] = h5py.ExternalLink("/etc/hostname", "/")


def deep(file: h5py.File) -> None:
    group = file["node/nodes"]
    for _ in range(3000):
        group = group.create_group("a")


NIR: dict[str, Callable[[Path], Path]] = {
    "terabytes": lambda path: edited(path, vast),
    "a cycle of groups": lambda path: edited(path, cyclic),
    "values in another file": lambda path: edited(path, outside),
    "groups without end": lambda path: edited(path, deep),
    "a kind that is none": lambda path: edited(
        path, lambda file: file["node/type"].write_direct(np.array(b"os"))
    ),
    "half of a graph": lambda path: (
        path.write_bytes(graph(path).read_bytes()[:900]),
        path,
    )[1],
    "nothing": lambda path: (path.write_bytes(b""), path)[1],
}


@pytest.mark.parametrize("name", NIR)
def test_a_crafted_nir_file_is_one_error_that_names_it(
    name: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"evil\.nir"):
        module_from(NIR[name](tmp_path / "evil.nir"))


def model(weight: TensorProto, kind: str = "Gemm") -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(kind, ["x", "w"], ["y"], transB=1)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [weight],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10
    )


def weight(**fields: object) -> TensorProto:
    tensor = numpy_helper.from_array(np.ones((2, 4), np.float32), "w")
    for name, value in fields.items():
        tensor.ClearField(name)
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return tensor


def written(path: Path, one: onnx.ModelProto) -> Path:
    path.write_bytes(one.SerializeToString())
    return path


def kept_in(path: Path, place: str) -> Path:
    one = weight(data_location=TensorProto.EXTERNAL, raw_data=b"")
    one.external_data.add(key="location", value=place)
    return written(path, model(one))


ONNX: dict[str, Callable[[Path], Path]] = {
    "terabytes": lambda path: written(path, model(weight(dims=[TERABYTES // 4]))),
    "terabytes that overflow": lambda path: written(
        path, model(weight(dims=[2**62, 2**62]))
    ),
    "a negative size": lambda path: written(path, model(weight(dims=[-2, 4]))),
    "an unknown type": lambda path: written(path, model(weight(data_type=99))),
    "values of an absolute path": lambda path: kept_in(path, "/etc/hostname"),
    "values above": lambda path: kept_in(path, "../secret.bin"),
    "values of a link": lambda path: (
        path.with_name("w.bin").symlink_to("/etc/hostname"),
        kept_in(path, "w.bin"),
    )[1],
    "a nested bomb": lambda path: (
        path.write_bytes(b"\x3a" + b"\xff\xff\xff\x7f" * 100_000),
        path,
    )[1],
    "nothing": lambda path: (path.write_bytes(b""), path)[1],
}


@pytest.mark.parametrize("name", ONNX)
def test_a_crafted_onnx_file_is_one_error_that_names_it(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (tmp_path / "in").mkdir()
    with pytest.raises(ModelError, match=r"evil\.onnx"):
        module_from(ONNX[name](tmp_path / "in" / "evil.onnx"))


def test_a_pinned_graph_must_not_store_values_in_an_unpinned_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "w.bin").write_bytes(np.ones((2, 4), np.float32).tobytes())
    path = kept_in(tmp_path / "evil.onnx", "w.bin")
    assert module_from(path) is not None  # of somebody's own folder
    built = build_onnx(id="evil", shape=(4,), weights={"evil.onnx": path})
    with pytest.raises(ModelError, match=r"evil\.onnx.*'w\.bin', which no pin covers"):
        built.ready(Examples(np.ones((1, 4)), np.ones(1)))


def test_a_crash_of_the_graph_parser_is_an_error_and_does_not_end_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "a.onnx": written(tmp_path / "a.onnx", model(weight())),
        "a.nir": graph(tmp_path / "a.nir"),
    }
    for package, name, path in (
        (onnx.checker, "check_model", files["a.onnx"]),
        (nir, "dict2NIRNode", files["a.nir"]),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(
                package, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGSEGV)
            )
            with pytest.raises(ModelError, match=rf"{path.name}.*SIGSEGV"):
                module_from(path)
        assert module_from(path) is not None
