"""Responses from files are matched by stimulus id."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data import assembly as assemblies
from neuroledger.engine.resolve import build
from neuroledger.engine.session import Request, Session
from neuroledger.errors import AssemblyError, DataError, ModelError, RequestError
from neuroledger.models.activation_store import DiskStore
from neuroledger.models.precomputed import precomputed
from tests.engine.lab import Lab
from tests.models.drawn_stimuli import drawn


def responses(**coords: object) -> xr.DataArray:
    given = {
        "stimulus_id": ("presentation", ["s002", "s000", "s001"]),
        "neuroid_id": ("neuroid", ["a", "b", "c", "d"]),
        "layer": ("neuroid", ["V4", "IT", "V4", "IT"]),
    }
    return xr.DataArray(
        np.arange(12.0).reshape(3, 4),
        dims=("presentation", "neuroid"),
        coords={**given, **coords},
    )


def test_rows_are_matched_by_id_and_layers_by_coordinate(tmp_path: Path) -> None:
    assemblies.write(responses(), tmp_path / "r.nc")
    model = precomputed(id="p", weights={"r.nc": tmp_path / "r.nc"})
    assert np.array_equal(
        model.record(drawn(3), "IT").values, [[5, 7], [9, 11], [1, 3]]
    )
    assert np.array_equal(model.record(drawn(1), "V4").values, [[4, 6]])


def test_layers_named_like_regions_are_committed_to_them() -> None:
    regions = (
        responses()
        .drop_vars("layer")
        .assign_coords(region=("neuroid", ["V4", "IT", "V4", "IT"]))
    )
    model = nl.models.responses(regions, id="p")
    assert model.layers == ("V4", "IT")
    assert np.array_equal(model.record(drawn(1), "V4").values, [[4, 6]])
    alone = nl.models.responses(regions.drop_vars("region"), id="p")
    assert alone.layers == ("features",) and alone.regions == {}
    assert np.array_equal(alone.record(drawn(1), "V1").values, [[4, 5, 6, 7]])


def test_the_fields_of_a_spec_reach_the_model(tmp_path: Path) -> None:
    assemblies.write(responses(), tmp_path / "r.nc")
    store = DiskStore(tmp_path / "store")
    given: dict[str, Any] = {
        "readout": "V4",
        "visual_degrees": 8.0,
        "regions": {"PIT": "IT"},
        "store": store,
    }
    model = precomputed(id="p", weights={"r.nc": tmp_path / "r.nc"}, **given)
    assert (model.readout, model.visual_degrees, model.regions) == (
        "V4",
        8.0,
        {"PIT": "IT"},
    )
    model.record(drawn(2), "PIT")
    assert store.files.entries(), "its answers are kept"


def test_arrays_come_with_a_list_of_ids(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.arange(12.0).reshape(3, 2, 2))
    (tmp_path / "ids.txt").write_text("s002\ns000\ns001\n")
    held = {name: tmp_path / name for name in ("f.npy", "ids.txt")}
    model = precomputed(id="p", file="f.npy", stimulus_ids="ids.txt", weights=held)
    assert np.array_equal(
        model.record(drawn(2), "IT").values, [[4, 5, 6, 7], [8, 9, 10, 11]]
    )
    with pytest.raises(ModelError, match="name the `file` to read, one of f"):
        precomputed(id="p", weights=held)
    with pytest.raises(ModelError, match=r"no file 'f\.np' .did you mean f"):
        precomputed(id="p", file="f.np", weights=held)
    with pytest.raises(ModelError, match="needs `stimulus_ids`"):
        precomputed(id="p", file="f.npy", weights=held)
    (tmp_path / "ids.txt").write_text("s002\ns000\n")
    with pytest.raises(ModelError, match="but there are 2 stimulus ids"):
        precomputed(id="p", file="f.npy", stimulus_ids="ids.txt", weights=held)
    (tmp_path / "f.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(ModelError, match="not a complete array"):
        precomputed(id="p", file="f.npy", stimulus_ids="ids.txt", weights=held)


def test_responses_in_time_are_recorded_in_time() -> None:
    values = np.stack([responses().values, responses().values + 100], axis=2)
    timed = xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            **{
                name: responses()[name]
                for name in ("stimulus_id", "neuroid_id", "layer")
            },
            "time_bin_start": ("time_bin", [0, 50]),
            "time_bin_end": ("time_bin", [50, 100]),
        },
    )
    model = nl.models.responses(timed, id="p")
    assert "dynamics" in model.gives
    recorded = model.record(drawn(2), "IT", time_bins=[(50, 100), (0, 100)])
    assert np.array_equal(recorded.values[0], [[105, 55], [107, 57]])


def test_other_stimuli_and_doubled_rows_are_refused() -> None:
    model = nl.models.responses(responses(), id="p")
    with pytest.raises(
        RequestError, match=r"computed for other stimuli: it has no stimulus 's003'"
    ):
        model.record(drawn(5), "IT")
    with pytest.raises(ModelError, match="several rows for one stimulus"):
        nl.models.responses(
            responses(stimulus_id=("presentation", ["a", "a", "b"])), id="p"
        )
    with pytest.raises(AssemblyError, match="neuroid_id is not unique"):
        nl.models.responses(responses(neuroid_id=("neuroid", list("aacd"))), id="p")


def test_a_file_of_weights_that_refers_to_other_files_is_refused(lab: Lab) -> None:
    """The file is as pinned, and its answers would be whatever lies on the machine: the responses to be predicted, say."""
    folder = lab.root / "data" / "models" / "p"
    folder.mkdir(parents=True)
    secret = lab.root / "secret.bin"
    secret.write_bytes(bytes(800))
    with h5py.File(folder / "r.nc", "w") as file:
        file.create_dataset("data", (100,), "f8", external=[(str(secret), 0, 800)])
    content = (folder / "r.nc").read_bytes()
    pin = {
        "url": "https://example.org/r.nc",
        "size": len(content),
        "sha256": sha256(content).hexdigest(),
    }
    lab.spec(
        "models",
        "p",
        license="CC0-1.0",
        builder={"name": "precomputed"},
        weights={"r.nc": pin},
    )
    with pytest.raises(DataError, match="stores its values in another file"):
        build(Session(lab.open(), Request()), "p")


def test_the_identity_contains_the_hash_of_each_file(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.arange(6.0).reshape(3, 2))
    (tmp_path / "ids.txt").write_text("s002\ns000\ns001\n")
    files = {name: tmp_path / name for name in ("f.npy", "ids.txt")}
    identity = precomputed(
        id="p", file="f.npy", stimulus_ids="ids.txt", weights=files
    ).identity
    assert isinstance(identity, dict) and identity["file"] == "f.npy"
    assert identity["weights"] == {
        name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()
    }


def test_files_of_another_kind_or_shape_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("1,2")
    with pytest.raises(
        ModelError, match=r"model 'p': r\.csv is neither a netCDF assembly"
    ):
        precomputed(id="p", weights={"r.csv": tmp_path / "r.csv"})
    with pytest.raises(
        ModelError,
        match=r"model 'p': name the `file` to read, one of its weights \(none\)",
    ):
        precomputed(id="p")
    np.save(tmp_path / "f.npy", np.arange(3.0))
    (tmp_path / "ids.txt").write_text("s002\ns000\ns001\n")
    files = {name: tmp_path / name for name in ("f.npy", "ids.txt")}
    with pytest.raises(
        ModelError, match=r"f.npy has the shape \(3,\), but there are 3 stimulus ids"
    ):
        precomputed(id="p", file="f.npy", stimulus_ids="ids.txt", weights=files)
    with pytest.raises(
        ModelError, match=r"model 'p': no file 'id.txt' .did you mean ids.txt"
    ):
        precomputed(id="p", file="f.npy", stimulus_ids="id.txt", weights=files)


def test_arrays_of_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(
        tmp_path / "f.npy",
        np.array([["a", 1], ["b", 2]], dtype=object),
        allow_pickle=True,
    )
    (tmp_path / "ids.txt").write_text("s000\ns001\n")
    files = {name: tmp_path / name for name in ("f.npy", "ids.txt")}
    with pytest.raises(ModelError, match=r"f\.npy is not a complete array"):
        precomputed(id="p", file="f.npy", stimulus_ids="ids.txt", weights=files)


def test_neuroids_of_an_array_are_numbered(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.arange(4.0).reshape(2, 2))
    (tmp_path / "ids.txt").write_text("s000\ns001\n")
    files = {name: tmp_path / name for name in ("f.npy", "ids.txt")}
    model = precomputed(id="p", file="f.npy", stimulus_ids="ids.txt", weights=files)
    assert model.record(drawn(2), "IT")["neuroid_id"].values.tolist() == [
        "p.features.0",
        "p.features.1",
    ]
