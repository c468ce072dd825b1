"""Files crafted to read another file or to expand without limit: one clear error, and no other file is read."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import mne
import netCDF4
import nibabel as nib
import numpy as np
import pytest
from scipy.io import savemat

from neuroledger.data.hdf5 import cell, opened, variable
from neuroledger.data.sandbox import Limits, confined, confines
from neuroledger.errors import DataError, NeuroLedgerError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.open_recordings import open_recording
from neuroledger.families.signals.recordings.signal_preprocessing import Recording
from neuroledger.spec import registry
from tests.families.signals.brainvision_files import brainvision
from tests.families.signals.test_crafted_recordings import RATE, WHOLE, noise
from tests.families.signals.xdf_files import Samples, xdf

SECONDS, MEMORY = 10, 2 << 30
SECRET = 0.123456789


def sizes(data: Any) -> dict[str, int]:
    assert data.assembly is not None
    return {str(name): size for name, size in data.assembly.sizes.items()}


def read(files: Mapping[str, Path], reader: str, **fields: Any) -> dict[str, int]:
    """What the reader finds in these files alone, in a child with limits, as every data set is read."""
    component = registry.get("reader", reader)
    limits = Limits(tuple(files.values()), (), SECONDS, MEMORY)
    return confined(
        lambda: sizes(component.function(files, **component.bind(fields))),
        limits,
        next(iter(files)),
    )


def recorded(path: Path, *more: Path) -> dict[str, int]:
    """The sizes of a recording, with only these files within reach."""
    recordings = (Recording(file=path.name, subject="1"),)
    limits = Limits((path, *more), (), SECONDS, MEMORY)
    return confined(
        lambda: sizes(
            mne_epochs({path.name: path}, recordings=recordings, window=WHOLE)
        ),
        limits,
        path.name,
    )


def alone(path: Path, work: Callable[[], Any]) -> None:
    """The work is refused with one error of the project about this file."""
    with pytest.raises(NeuroLedgerError, match=path.name.replace(".", r"\.")) as told:
        work()
    assert len(str(told.value)) < 2000
    assert str(SECRET) not in str(told.value)


# Recordings that name another file


@pytest.mark.parametrize("key", ["DataFile", "MarkerFile"])
@pytest.mark.parametrize(
    "place",
    ["../outside/lie{ending}", "{outside}/lie{ending}", "..\\outside\\lie{ending}"],
)
def test_brainvision_headers_cannot_read_files_of_another_folder(
    tmp_path: Path, key: str, place: str
) -> None:
    for folder in ("outside", "inside"):
        (tmp_path / folder).mkdir()
        brainvision(tmp_path / folder, "lie", ["a", "b", "c"], noise(), RATE)
    path = tmp_path / "inside" / "lie.vhdr"
    ending = {"DataFile": ".eeg", "MarkerFile": ".vmrk"}[key]
    text = path.read_text()
    assert f"{key}=lie{ending}" in text
    path.write_text(
        text.replace(
            f"{key}=lie",
            f"{key}=" + place.format(ending="", outside=tmp_path / "outside"),
        )
    )
    held = [one for one in path.parent.iterdir() if one != path]
    alone(path, lambda: recorded(path, *held))


@pytest.mark.skipif(
    not confines(), reason="files are out of reach in a process of its own"
)
def test_samples_that_are_not_pinned_are_not_read(tmp_path: Path) -> None:
    """The samples lie beside the header, whole and valid, and are none of the files of the data set."""
    brainvision(tmp_path, "lie", ["a", "b", "c"], noise(), RATE)
    path = tmp_path / "lie.vhdr"
    assert (
        recorded(path, tmp_path / "lie.eeg", tmp_path / "lie.vmrk")["presentation"]
        == 10
    )
    alone(path, lambda: recorded(path, tmp_path / "lie.vmrk"))


@pytest.mark.parametrize("place", ["../outside/lie.fdt", "/etc/passwd", "other.fdt"])
def test_eeglab_files_cannot_read_samples_of_an_unpinned_file(
    tmp_path: Path, place: str
) -> None:
    fields = {
        "nbchan": 3,
        "pnts": 1000,
        "trials": 1,
        "srate": 100.0,
        "xmin": 0.0,
        "xmax": 9.99,
        "data": place,
    }
    empty = {name: np.array([]) for name in ("chanlocs", "event", "epoch")}
    for folder in ("outside", "inside"):
        (tmp_path / folder).mkdir()
        noise().astype("<f4").tofile(
            tmp_path / folder / ("lie.fdt" if folder == "outside" else "other.fdt")
        )
    path = tmp_path / "inside" / "lie.set"
    savemat(path, {"EEG": fields | empty})
    alone(path, lambda: recorded(path))


def test_a_split_fif_recording_without_its_second_part_is_refused(
    tmp_path: Path,
) -> None:
    raw = mne.io.RawArray(
        np.random.default_rng(0).normal(0, 1e-5, (40, 20_000)),
        mne.create_info(40, RATE, "eeg"),
        verbose="ERROR",
    )
    path = tmp_path / "lie_raw.fif"
    raw.save(
        path, split_size="2MB", buffer_size_sec=5.0, overwrite=True, verbose="ERROR"
    )
    parts = sorted(set(tmp_path.iterdir()) - {path})
    assert parts

    def length(*files: Path) -> int:
        limits = Limits(files, (), SECONDS, MEMORY)
        return confined(lambda: int(open_recording(path).n_times), limits, path.name)

    assert length(path, *parts) == 20_000
    alone(path, lambda: length(path))


@pytest.mark.parametrize("place", ["../outside/lie.dat", "/etc/passwd"])
def test_physionet_records_cannot_read_signals_of_another_folder(
    tmp_path: Path, place: str
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "inside").mkdir()
    np.zeros(3000, "<i2").tofile(tmp_path / "outside" / "lie.dat")
    path = tmp_path / "inside" / "lie.hea"
    path.write_text(f"lie 1 100 3000\n{place} 16 200 16 0 0 0 0 MLII\n")
    (path.parent / "lie.atr").write_bytes(b"\0\0")
    files = {one.name: one for one in path.parent.iterdir()}
    with pytest.raises(NeuroLedgerError, match="lie"):
        read(files, "wfdb_beats", parts={"train": ["lie"]})
    alone(path, lambda: recorded(path))


def hidden(path: Path, secret: Path) -> None:
    """A data set that no group names, only a reference in a cell, and whose values lie in another file."""
    with h5py.File(path, "w", libver="earliest") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_external(str(secret).encode(), 0, 80)
        space = h5py.h5s.create_simple((10,))
        held = h5py.h5d.create(file.id, b"held", h5py.h5t.NATIVE_DOUBLE, space, layout)
        at = h5py.h5o.get_info(held).addr
        cells = file.create_dataset("cells", (1, 1), dtype=h5py.ref_dtype)
        cells[0, 0] = file["held"].ref
    content = bytearray(path.read_bytes())
    assert struct.unpack("<I", content[at + 4 : at + 8]) == (1,)
    content[at + 4 : at + 8] = struct.pack(
        "<I", 2
    )  # so that it stays when its name goes
    path.write_bytes(content)
    with h5py.File(path, "r+") as file:
        del file["held"]


def test_matlab_cells_cannot_read_values_of_another_file(tmp_path: Path) -> None:
    secret, path = tmp_path / "secret.bin", tmp_path / "lie.mat"
    np.full(10, SECRET).tofile(secret)
    hidden(path, secret)
    with h5py.File(path, "r") as file:
        assert list(file) == ["cells"]
        assert file[file["cells"][0, 0]][0] == SECRET

    def values() -> Any:
        with opened(path) as file:
            return cell(file, variable(file, "cells", path)[0, 0], path)

    with pytest.raises(
        DataError,
        match=r"lie\.mat.* stores its values in another file, which no pin covers",
    ):
        values()


def test_a_circular_soft_link_raises_one_error(tmp_path: Path) -> None:
    path = tmp_path / "lie.mat"
    with h5py.File(path, "w") as file:
        file["a"], file["b"] = h5py.SoftLink("/b"), h5py.SoftLink("/a")

    def values() -> Any:
        with opened(path) as file:
            return variable(file, "a", path)

    alone(path, values)


# Files that become more than they are


def laughs(levels: int = 12) -> str:
    """Entities of XML, each ten times the one before; the last is `x`."""
    lines = ['<!ENTITY l0 "lol">']
    lines += [f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, levels)]
    return f'{"".join(lines)}<!ENTITY x "&l{levels - 1};">'


@pytest.mark.parametrize("bomb", [True, False])
def test_xml_entities_in_xdf_headers_are_not_expanded(
    tmp_path: Path, bomb: bool
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(str(SECRET))
    samples = Samples(
        noise().T,
        RATE,
        50.0 + np.arange(1000) / RATE,
        labels=["a", "b", "c"],
        units=["uV"] * 3,
    )
    entities = laughs() if bomb else f'<!ENTITY x SYSTEM "file://{secret}">'
    begin = "<?xml version='1.0'?>"
    samples.header = samples.header.replace(
        begin, f"{begin}<!DOCTYPE info [{entities}]>"
    ).replace(">amp<", ">&x;<")
    path = xdf(tmp_path / "lie.xdf", samples)
    alone(path, lambda: recorded(path, secret))


def test_a_decompression_bomb_raises_one_error(tmp_path: Path) -> None:
    path = tmp_path / "lie_raw.fif.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(3000):
            file.write(bytes(1 << 20))
    alone(path, lambda: recorded(path))


@pytest.mark.parametrize("packed", [True, False])
def test_a_small_image_file_that_states_terabytes_raises_one_error(
    tmp_path: Path, packed: bool
) -> None:
    header = nib.Nifti1Header()
    header.set_data_dtype(np.float64)
    header["dim"] = [4, 32767, 32767, 32767, 32767, 1, 1, 1]
    header["magic"], header["vox_offset"] = b"n+1", 352
    path = tmp_path / ("lie.nii.gz" if packed else "lie.nii")
    content = header.binaryblock + bytes(4 + 1000)
    path.write_bytes(gzip.compress(content) if packed else content)
    labels = tmp_path / "labels.txt"
    labels.write_text("labels chunks\nrest 0\nface 0\n")
    files = {path.name: path, labels.name: labels}
    with pytest.raises(NeuroLedgerError, match=r"lie\.nii"):
        read(
            files,
            "nifti_blocks",
            bold=path.name,
            mask=path.name,
            labels=labels.name,
            seconds=2.5,
        )


class Executed:
    """Unpickling it would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return (Path.touch, (self.trace,))


def npy(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=True)
    return buffer.getvalue()


def npz(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def terabytes() -> bytes:
    said = str(
        {"descr": "<f8", "fortran_order": False, "shape": (1 << 20, 1 << 10, 1 << 10)}
    ).encode()
    said += b" " * (-(len(said) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said)) + said + bytes(64)


CASES: dict[str, Callable[[Path], bytes]] = {
    "a pickle": lambda folder: npy(
        np.array([[[Executed(folder / "trace")]]], dtype=object)
    ),
    "terabytes": lambda folder: terabytes(),
    "nothing": lambda folder: b"",
    "a negative shape": lambda folder: npy(np.zeros((2, 3, 1))).replace(
        b"(2, 3, 1)", b"(-2,3, 1)"
    ),
    "a shape that is code": lambda folder: npy(np.zeros((2, 3, 1))).replace(
        b"(2, 3, 1)", b"exit(2)  "
    ),
    "nothing but zeros": lambda folder: npy(np.zeros((1, 1 << 15, 1 << 14), np.uint8)),
}


@pytest.mark.parametrize("case", CASES)
def test_array_archives_can_contain_only_plain_arrays(
    tmp_path: Path, case: str
) -> None:
    path = tmp_path / "lie.npz"
    npz(path, x=CASES[case](tmp_path), y=npy(np.zeros(2, np.int64)))
    parts = {"train": {"examples": "lie.npz:x", "classes": "lie.npz:y"}}
    with pytest.raises(NeuroLedgerError, match=r"lie\.npz"):
        read({"lie.npz": path}, "array_examples", parts=parts, classes=["a"])
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "x\x00y"])
def test_member_names_of_an_array_archive_write_no_file(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "lie.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{name}.npy"), npy(np.zeros((2, 3, 1))))
    parts = {"train": {"examples": f"lie.npz:{name}", "classes": "lie.npz:y"}}
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(NeuroLedgerError, match="lie"):
        read({"lie.npz": path}, "array_examples", parts=parts, classes=["a"])
    assert sorted(tmp_path.rglob("*")) == before


def test_an_assembly_with_deeply_nested_groups_raises_one_error(tmp_path: Path) -> None:
    path = tmp_path / "lie.nc"
    with netCDF4.Dataset(path, "w") as file:
        group = file
        for depth in range(300):
            group = group.createGroup(f"g{depth}")
    with pytest.raises(NeuroLedgerError, match=r"lie\.nc"):
        read({"lie.nc": path}, "netcdf")


def test_an_assembly_that_states_terabytes_raises_one_error(tmp_path: Path) -> None:
    path = tmp_path / "lie.nc"
    with netCDF4.Dataset(path, "w") as file:
        for dim in ("presentation", "neuroid"):
            file.createDimension(dim, 1 << 21)
        chunks = {"chunksizes": (1 << 10, 1 << 10), "zlib": True}
        file.createVariable("data", "f8", ("presentation", "neuroid"), **chunks)
    with pytest.raises(NeuroLedgerError, match=r"lie\.nc"):
        read({"lie.nc": path}, "netcdf")


def test_a_table_with_more_fields_than_memory_raises_one_error(tmp_path: Path) -> None:
    path = tmp_path / "lie.csv"
    path.write_text(
        "stimulus_id,"
        + ",".join(f"c{n}" for n in range(200_000))
        + "\n"
        + "1"
        + "," * 200_001
        + "\n"
    )
    held = tmp_path / "responses.nc"
    with netCDF4.Dataset(held, "w") as file:
        file.createDimension("presentation", 1)
    with pytest.raises(NeuroLedgerError, match=r"lie\.csv|responses\.nc"):
        read({"stimuli.csv": path, "responses.nc": held}, "netcdf")


def test_file_names_in_errors_contain_no_terminal_control_characters(
    tmp_path: Path,
) -> None:
    """A header whose texts obey the terminal is quoted, not shown."""
    brainvision(tmp_path, "lie", ["a", "b", "c"], noise(), RATE)
    path = tmp_path / "lie.vhdr"
    path.write_text(
        path.read_text().replace("DataFile=lie.eeg", "DataFile=../\x1b[2J\u202elie.eeg")
    )
    with pytest.raises(NeuroLedgerError) as told:
        recorded(path)
    assert json.dumps("\x1b[2J")[1:-1] not in str(told.value) or "\x1b" not in str(
        told.value
    )
    assert "\x1b" not in str(told.value)
