"""Networks that NeuroBench ships, and examples in NumPy files: published sizes and operations, and the order of classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, ModelError
from neuroledger.families.efficiency.models.published_network import (
    network,
    published_network,
)
from neuroledger.families.efficiency.networks.trainable_model import Examples
from neuroledger.families.efficiency.paradigms.inference import inference
from neuroledger.families.efficiency.readers.array_examples import Part, array_examples
from neuroledger.models.model import fit

snntorch = pytest.importorskip("snntorch")

# Parameters, bytes and dense operations that were computed by NeuroBench 2.3.0 from the shipped weights.
PUBLISHED = {
    "imagery": ((1, 62, 250), 49_282, 197_188, 12_224_000),
    "activity": ((1, 6, 40), 57_647, 230_648, None),
    "commands": ((1, 1, 8000), 26_915, 109_228, 1_880_256),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_and_dense_operations_are_the_published_ones(name):
    shape, parameters, footprint, dense = PUBLISHED[name]
    batch = torch.randn(shape)
    requested = ["parameter_count", "footprint", "dense_operations"]
    costs = nl.cost(network(name), batch, requested, mode="neurobench-2.3")
    assert (costs["parameter_count"].value, costs["footprint"].value) == (
        parameters,
        footprint,
    )
    if dense is not None:
        assert costs["dense_operations"].value == dense


def firing(module):
    """With weights large enough that outputs spike."""
    with torch.no_grad():
        for weight in (module.fc1.weight, module.fc2.weight, module.fc3.weight):
            weight *= 4
    return module.eval()


def test_imagery_equals_neurobenchs_network_step_by_step():
    torch.manual_seed(0)
    module = firing(network("imagery"))
    x = 3 * torch.randn(4, 62, 9)
    membranes, counts = [torch.zeros(1)] * 3, torch.zeros(4, 2)
    with torch.no_grad():
        for t in range(9):
            now = x[:, :, t]
            for number, (linear, size) in enumerate(
                ((module.fc1, 256), (module.fc2, 128), (module.fc3, 2))
            ):
                before = membranes[number].expand(4, size)
                membranes[number] = 0.9 * before + linear(now) - (before > 1).float()
                now = (membranes[number] > 1).float()
            counts += now
        assert torch.equal(module(x), counts) and counts.sum() > 0
        assert torch.equal(module(x), counts)  # from rest, each time


def weights_of(module, folder):
    path = folder / "model.safetensors"
    save_file(
        {name: value.contiguous() for name, value in module.state_dict().items()}, path
    )
    return {"model.safetensors": path}


def test_outputs_are_in_the_order_of_the_datas_classes(tmp_path):
    torch.manual_seed(1)
    module = firing(network("imagery"))
    model = published_network(
        id="m",
        architecture="imagery",
        classes=("right_hand", "left_hand"),
        weights=weights_of(module, tmp_path),
    )
    x = 3 * np.random.default_rng(0).normal(size=(5, 62, 20)).astype(np.float32)
    learnt = fit(
        model,
        "answers:classification",
        Examples(x, np.zeros(5), ["left_hand", "right_hand"]),
    )
    with torch.no_grad():
        expected = module(torch.from_numpy(x))
        assert torch.equal(
            learnt(torch.from_numpy(x)), expected[:, [1, 0]]
        ) and not torch.equal(*expected.T)
    with pytest.raises(ModelError, match="has no output for class 'feet'"):
        fit(
            model,
            "answers:classification",
            Examples(x, np.zeros(5), ["feet", "left_hand"]),
        )
    with pytest.raises(ModelError, match="has no weights"):
        published_network(id="m", architecture="imagery", classes=("a",))


def arrays(folder, **changed):
    rng = np.random.default_rng(2)
    arrays_by_name = {
        "train_X.npy": rng.normal(size=(6, 20, 62)),
        "train_y.npy": np.array([0, 1, 1, 0, 1, 0]),
        "val_X.npy": rng.normal(size=(4, 20, 62)).astype(np.float32),
        "val_y.npy": np.array([1, 0, 1, 1]),
    } | changed
    folder.mkdir(exist_ok=True)
    for name, value in arrays_by_name.items():
        np.save(folder / name, value)
    return {name: folder / name for name in arrays_by_name}, arrays_by_name


PARTS = {
    "train": Part(examples="train_X.npy", classes="train_y.npy"),
    "test": Part(examples="val_X.npy", classes="val_y.npy"),
}
HANDS = ("right_hand", "left_hand")


def test_arrays_are_read_as_labelled_examples_and_answered(tmp_path):
    files, held = arrays(tmp_path / "npy")
    assembly = array_examples(files, parts=PARTS, classes=HANDS, step=10).assembly
    assert assembly.sizes == {"presentation": 10, "neuroid": 62, "time_bin": 20}
    np.testing.assert_array_equal(
        assembly.values[6:], held["val_X.npy"].transpose(0, 2, 1)
    )
    assert assembly["label"].values[6:].tolist() == [
        "left_hand",
        "right_hand",
        "left_hand",
        "left_hand",
    ]
    assert assembly["split"].values.tolist() == ["train"] * 6 + ["test"] * 4
    assert assembly["time_bin_start"].values[-1] == 190
    model = published_network(
        id="m",
        architecture="imagery",
        classes=HANDS,
        weights=weights_of(network("imagery"), tmp_path),
    )
    measured = inference(
        model, Dataset(None, assembly, "test"), metrics=["dense_operations"]
    )
    assert (
        measured.source.shape == (4, 2)
        and measured.costs["dense_operations"].value == 48_896 * 20
    )


def test_archives_of_columns_are_the_same_examples(tmp_path):
    files, held = arrays(tmp_path / "npy")
    plain = array_examples(files, parts=PARTS, classes=HANDS)
    path = tmp_path / "all.npz"
    columns = [np.eye(2)[held[name]] for name in ("train_y.npy", "val_y.npy")]
    np.savez(
        path,
        held["train_X.npy"].transpose(0, 2, 1),
        held["val_X.npy"].transpose(0, 2, 1),
        *columns,
    )
    parts = {
        part: Part(examples=f"all.npz:arr_{n}", classes=f"all.npz:arr_{n + 2}")
        for n, part in enumerate(("train", "test"))
    }
    packed = array_examples(
        {"all.npz": path}, parts=parts, classes=HANDS, axes="channel first"
    )
    assert packed.assembly.identical(plain.assembly)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"val_X.npy": np.zeros((3, 20, 62))},
            r"val_X.npy is \(3, 20, 62\) float64 with 4 classes",
        ),
        ({"val_X.npy": np.zeros((4, 20))}, "not numbers"),
        ({"val_X.npy": np.zeros((4, 21, 62))}, "2 shapes"),
        (
            {"val_X.npy": np.full((4, 20, 62), np.nan)},
            "4960 values that are not finite",
        ),
        ({"val_y.npy": np.array([0, 1, 2, 0])}, "the classes 0 to 2, and 2 have names"),
        ({"val_y.npy": np.array([0.5, 1, 0, 0])}, "not one of 2 classes"),
        ({"val_y.npy": np.eye(3)[[0, 1, 1, 0]]}, "not one of 2 classes"),
        ({"val_y.npy": np.array([{}] * 4)}, "cannot be read as NumPy arrays"),
    ],
)
def test_invalid_arrays_are_refused_by_name(tmp_path, changed, words):
    files, _ = arrays(tmp_path / "npy", **changed)
    with pytest.raises(DataError, match=words):
        array_examples(files, parts=PARTS, classes=HANDS)


def test_missing_files_and_members_are_refused_by_name(tmp_path):
    files, _ = arrays(tmp_path / "npy")
    with pytest.raises(DataError, match=r"val_y\.npy is not among the files"):
        array_examples(
            {k: v for k, v in files.items() if k != "val_y.npy"},
            parts=PARTS,
            classes=HANDS,
        )
    for where in ("val_y.npy:x", "a.npz:x", "a.npz"):
        np.savez(tmp_path / "a.npz", y=np.zeros(4))
        parts = PARTS | {"test": Part(examples="val_X.npy", classes=where)}
        with pytest.raises(DataError, match=r"contains (one array|the arrays y), not"):
            array_examples(
                files | {"a.npz": tmp_path / "a.npz"}, parts=parts, classes=HANDS
            )
