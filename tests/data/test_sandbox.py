"""Files made to crash, stall, flood or look outside become one error about one file, and the process goes on."""

from __future__ import annotations

import ctypes
import io
import itertools
import json
import mmap
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from neuroledger.data import sandbox
from neuroledger.data.dataset import Dataset
from neuroledger.data.gate import expectations as gate
from neuroledger.data.gate.validate import validate
from neuroledger.data.hdf5 import opened, refuse_outside_storage
from neuroledger.data.parsing import matlab, numpy_array, require_even_rows
from neuroledger.data.sandbox import Limits, confined, confines, limits_for
from neuroledger.data.stimuli import StimulusSet, read_table, safe_members
from neuroledger.errors import (
    DataError,
    NeuroLedgerError,
    RequestError,
    UnavailableError,
    about_pair,
)
from neuroledger.spec import expectations as say
from tests.engine.lab import Lab
from tests.text_storage import STORAGES

pytestmark = pytest.mark.skipif(not confines(), reason="readers are confined on Linux")


def landlock() -> bool:
    return (
        ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1)) >= 1
    )


def run(function: Any, *files: Path, **limits: Any) -> Any:
    return confined(function, Limits(readable=files, **limits), "data set 'x'")


# What comes back


@pd.option_context("mode.string_storage", "python")
def test_a_data_set_comes_back_equal_in_values_types_and_order() -> None:
    table = pd.DataFrame(
        {
            "stimulus_id": ["a", "b"],
            "n": [1, 2],
            "mixed": ["x", float("nan")],
            "flag": [True, False],
        }
    )
    table["kind"] = table["stimulus_id"].astype("category")
    assembly = xr.DataArray(
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", np.array(["a", "b"])),
            "mixed": ("presentation", np.array(["a", 1], dtype=object)),
            "neuroid_id": ("neuroid", np.array(["n0", "n1", "n2"])),
            "neuroid": np.array([3, 4, 5]),
        },
        attrs={"units": "Hz", "rate": 2.5, "list": [1, 2]},
        name="data",
    )
    assembly.encoding = {"content_sha256": "f"}
    made = Dataset(
        StimulusSet("s", table, contents={"a": b"1"}), assembly, notes=("left out",)
    )
    data = run(lambda: made)
    assert data.assembly.identical(made.assembly)
    assert data.assembly.encoding == assembly.encoding
    assert {str(k): v.dtype for k, v in data.assembly.coords.items()} == {
        str(k): v.dtype for k, v in assembly.coords.items()
    }
    pd.testing.assert_frame_equal(data.stimuli.table, table)
    assert data.stimuli.contents == {"a": b"1"}
    assert data.notes == ("left out",)
    data.assembly.values[0, 0] = (
        7.0  # arrays can be written to, and the next reading is not changed by it
    )
    assert run(lambda: made).assembly.values[0, 0] == 0.0


@pytest.mark.parametrize("storage", STORAGES)
def test_texts_come_back_however_pandas_keeps_them(storage: str) -> None:
    """Where pyarrow is installed, pandas keeps texts in Arrow, whose pickle calls functions that a result may not name."""
    with pd.option_context("mode.string_storage", storage):
        table = pd.DataFrame({"stimulus_id": ["a", "b", "c"], "word": ["x", None, "y"]})
        table["kind"] = table["stimulus_id"].astype("category")
        table["nullable"] = table["word"].astype("string")
        table = table.set_index("stimulus_id", drop=False)
        back = run(lambda: table)
    assert back.columns.tolist() == table.columns.tolist() and back.index.tolist() == [
        "a",
        "b",
        "c",
    ]
    for name in ("stimulus_id", "word", "kind", "nullable"):
        assert back[name].isna().tolist() == table[name].isna().tolist()
        assert back[name].dropna().tolist() == table[name].dropna().tolist()
    assert {name: str(dtype) for name, dtype in back.dtypes.items()} == {
        name: str(dtype) for name, dtype in table.dtypes.items()
    }
    assert (back["nullable"] == "x").sum() == 1


def test_a_memory_map_comes_back_as_a_memory_map(tmp_path: Path) -> None:
    path = tmp_path / "values.bin"
    np.arange(1000, dtype=np.int32).tofile(path)

    def read() -> Any:
        return np.memmap(path, dtype=np.int32, mode="r", shape=(10, 100))[2:5]

    values = run(read, path)
    assert np.array_equal(values, np.arange(1000).reshape(10, 100)[2:5])
    assert not values.flags.writeable
    held = values
    while isinstance(held, np.ndarray):
        held = held.base
    assert type(held).__name__ == "mmap"


def test_errors_of_the_project_come_back_as_they_are() -> None:
    def refuse() -> None:
        raise RequestError("ask for less")

    with pytest.raises(RequestError, match=r"^ask for less$"):
        run(refuse)


@pytest.mark.parametrize(
    "kind",
    [MemoryError, ArithmeticError, AssertionError, Exception, SystemExit, KeyError],
)
def test_every_other_exception_is_one_error(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind("what")

    with pytest.raises(
        DataError, match=f"data set 'x' failed \\({kind.__name__}: .?what"
    ):
        run(fail)


class Evil:
    def __reduce__(self) -> Any:
        return os.environ.__setitem__, ("NEUROLEDGER_TAKEN_OVER", "1")


@pytest.mark.parametrize(
    "value", [Evil(), os.getcwd, np.load, pd.read_pickle, Path.read_text]
)
def test_a_child_cannot_make_the_caller_run_code(value: Any) -> None:
    with pytest.raises(DataError, match=r"invalid result|failed"):
        run(lambda: value)
    assert "NEUROLEDGER_TAKEN_OVER" not in os.environ


# Crashes and floods


def test_a_segmentation_fault_names_the_file_and_the_next_one_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bad.mat"
    path.write_bytes(b"x")

    def crash() -> None:
        path.read_bytes()
        ctypes.string_at(0)

    with pytest.raises(
        DataError, match=r"reading bad\.mat crashed .*SIGSEGV.*fetch the file again"
    ):
        run(crash, path)
    assert run(lambda: 7) == 7


def test_memory_is_bounded() -> None:
    with pytest.raises(DataError, match="MemoryError"):
        run(lambda: np.ones(1 << 30, dtype=np.uint8).sum(), memory=1 << 28)


def test_a_declared_size_of_terabytes_is_an_error_at_once(tmp_path: Path) -> None:
    path = tmp_path / "huge.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", shape=(1 << 40,), dtype="f8", chunks=(1 << 10,))

    def read() -> Any:
        with opened(path) as file:
            return file["data"][()]

    before = time.monotonic()
    with pytest.raises(
        DataError, match=r"huge\.h5 cannot be read as HDF5 \(.*Unable to allocate"
    ):
        confined(read, limits_for([path]), "data set 'x'")
    assert time.monotonic() - before < 20


def test_time_is_bounded_for_an_endless_regular_expression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEUROLEDGER_READER_SECONDS", "1")
    with pytest.raises(
        DataError, match=r"took more than 1 s of CPU time; .*NEUROLEDGER_READER_SECONDS"
    ):
        confined(
            lambda: re.fullmatch("(a+)+b", "a" * 60), limits_for([]), "data set 'x'"
        )


@pytest.mark.parametrize("said", ["soon", "0", "-1", "1e9"])
def test_an_unreadable_limit_is_refused(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROLEDGER_READER_SECONDS", said)
    with pytest.raises(DataError, match="not a whole number of seconds"):
        limits_for([])


# Files and network


@pytest.mark.skipif(not landlock(), reason="this kernel has no Landlock")
def test_only_named_files_are_reachable(tmp_path: Path) -> None:
    named, other, kept = (
        tmp_path / "a" / "named",
        tmp_path / "b" / "other",
        tmp_path / "kept",
    )
    for path in (named, other):
        path.parent.mkdir()
        path.write_text(path.name)
    kept.mkdir()
    assert run(named.read_text, named) == "named"
    for forbidden in (
        other.read_text,
        lambda: named.write_text("changed"),
        lambda: (kept / "x").write_text(""),
    ):
        with pytest.raises(DataError, match="PermissionError"):
            run(forbidden, named)
    run(lambda: (kept / "x").write_text("y"), named, writable=[kept])
    assert (kept / "x").read_text() == "y"
    assert named.read_text() == "named"


@pytest.mark.skipif(not landlock(), reason="this kernel has no Landlock")
def test_there_is_no_network_and_no_other_program() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(DataError, match="PermissionError"):
            run(
                lambda: socket.create_connection(("127.0.0.1", port), timeout=2).close()
            )
    with pytest.raises(DataError, match="PermissionError"):
        run(lambda: os.execv("/usr/bin/env", ["env"]))


@pytest.mark.skipif(not landlock(), reason="this kernel has no Landlock")
def test_a_file_cannot_refer_to_secrets_of_the_caller() -> None:
    """The environment of a process holds keys and passwords, and a path can name it."""
    for who in ("self", os.getpid()):
        with pytest.raises(DataError, match="PermissionError"):
            run(Path(f"/proc/{who}/environ").read_bytes)


@pytest.mark.skipif(sys.platform != "linux", reason="sockets are refused by Linux")
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6, socket.AF_UNIX])
def test_there_is_no_socket_of_any_kind(family: int) -> None:
    """Landlock refuses TCP alone: a datagram, or a question to a name server, would carry anything away."""
    with pytest.raises(DataError, match="PermissionError"):
        run(lambda: socket.socket(family, socket.SOCK_DGRAM).close())


def test_the_child_cannot_use_open_files_of_the_caller() -> None:
    """A connection or a file that was opened for writing needs no path and no new socket."""
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(DataError, match="OSError"):
        run(lambda: os.write(theirs.fileno(), b"values"))


def test_files_that_the_caller_read_before_do_not_spoil_those_of_the_child(
    tmp_path: Path,
) -> None:
    names = [tmp_path / f"{number}.zip" for number in range(12)]
    for path in names:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.png", path.name)
    sets = [
        StimulusSet(
            "set", pd.DataFrame({"stimulus_id": ["a"], "filename": ["a.png"]}), path
        )
        for path in names
    ]
    for one in sets[:6]:
        list(one.read())

    def contents() -> list[bytes]:
        held = [path.open("rb", buffering=0) for path in names * 6]
        read = [bytes(content) for one in sets for content in one.read()]
        assert all(file.read() for file in held)
        return read

    assert run(contents, *names) == [path.name.encode() for path in names]


def test_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        run(lambda: tempfile.mkdtemp())
        with pytest.raises(DataError):
            run(lambda: os.abort())
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


# HDF5 that refers to other files or to itself


def _external(file: Any, folder: Path) -> None:
    (folder / "outside.bin").write_bytes(bytes(80))
    file.create_dataset(
        "group/data",
        shape=(10,),
        dtype="f8",
        external=[(str(folder / "outside.bin"), 0, 80)],
    )


def _virtual(file: Any, folder: Path) -> None:
    with h5py.File(folder / "outside.h5", "w") as outside:
        outside["data"] = np.arange(10.0)
    layout = h5py.VirtualLayout(shape=(10,), dtype="f8")
    layout[:] = h5py.VirtualSource(str(folder / "outside.h5"), "data", shape=(10,))
    file.create_virtual_dataset("group/data", layout)


def _linked(file: Any, folder: Path) -> None:
    with h5py.File(folder / "outside.h5", "w") as outside:
        outside["data"] = np.arange(10.0)
    file["group/data"] = h5py.ExternalLink(str(folder / "outside.h5"), "/data")


def _cyclic(file: Any, folder: Path) -> None:
    inner = file.create_group("group/inner")
    inner["again"] = file["group"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_external, "group/data stores its values in another file"),
        (_virtual, "group/data stores its values in another file"),
        (_linked, "group/data is a link to another file"),
        (_cyclic, "the group /group/inner/again occurs more than once"),
    ],
)
@pytest.mark.parametrize("block", [0, 512])
def test_storage_outside_the_file_is_refused_before_it_is_read(
    make: Any, message: str, block: int, tmp_path: Path
) -> None:
    path = tmp_path / "x.nc"
    with h5py.File(path, "w", userblock_size=block) as file:
        make(file, tmp_path)
    for read in (
        lambda: refuse_outside_storage(path),
        lambda: opened(path).__enter__(),
    ):
        with pytest.raises(DataError, match=message):
            read()


def test_ordinary_files_pass(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file["a/b"] = np.arange(3)
        file["a/alias"] = file["a/b"]
        file["soft"] = h5py.SoftLink("/a/b")
    refuse_outside_storage(path)
    (tmp_path / "x.txt").write_text("no HDF5")
    refuse_outside_storage(tmp_path / "x.txt")


def test_a_packed_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    from neuroledger.data import hdf5

    monkeypatch.setattr(hdf5, "MIN_UNPACKED", 1 << 20)
    path = tmp_path / "x.h5.gz"
    path.write_bytes(gzip.compress(bytes(8 << 20)))
    with pytest.raises(DataError, match="unpacks to more than"), opened(path):
        pass


# Archives, and patterns of specs


def _zip(path: Path, declared: int) -> Path:
    """A zip with a member of 64 MiB that is declared to have fewer."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(64 << 20))
    content = path.read_bytes()
    path.write_bytes(
        content.replace(
            (64 << 20).to_bytes(4, "little"), declared.to_bytes(4, "little")
        )
    )
    return path


def test_a_member_is_not_inflated_beyond_its_declared_size(tmp_path: Path) -> None:
    path = _zip(tmp_path / "x.zip", 10)
    stimuli = StimulusSet(
        "s", pd.DataFrame({"stimulus_id": ["a"], "filename": ["a.png"]}), path
    )
    with pytest.raises(DataError, match=r"x\.zip cannot be read"):
        run(lambda: stimuli.bytes("a"), path, memory=16 << 20)


def test_a_member_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with (
        warnings.catch_warnings(action="ignore"),
        zipfile.ZipFile(path, "w") as archive,
    ):
        archive.writestr("a.png", b"one")
        archive.writestr("a.png", b"two")
    with pytest.raises(DataError, match=r"'a\.png' occurs twice"):
        safe_members(path)


def test_an_endless_pattern_of_a_spec_is_one_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gate, "PATTERN_SECONDS", 1)
    stimuli = StimulusSet("s", pd.DataFrame({"stimulus_id": ["a" * 60]}))
    check = say.Matches(check="matches", column="stimulus_id", pattern="(a+)+b")
    with pytest.raises(
        gate.UnaskableError, match=r"the pattern '\(a\+\)\+b' took more than 1 s"
    ) as refused:
        gate.inquire(check, "stimuli", gate.Subject(stimuli, None))
    assert "repetition inside a repetition" in refused.value.do


# Damaged tables and arrays


def test_a_row_with_more_fields_than_the_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "stimuli.csv"
    path.write_text("stimulus_id,filename\nimg0,b.png\nimg1,a.png,x\n")
    with pytest.raises(
        DataError, match=r"stimuli\.csv, line 3: 3 fields where the header has 2"
    ):
        read_table(path)
    path.write_text('stimulus_id,filename\nimg1,"a,\nb.png"\n')
    require_even_rows(path)


def test_damaged_arrays_are_one_error(tmp_path: Path) -> None:
    good = tmp_path / "good.npy"
    np.save(good, np.arange(100.0))
    content, rng = good.read_bytes(), np.random.default_rng(0)
    for trial in range(200):
        damaged = bytearray(content)
        for place in rng.integers(0, 128, size=3):
            damaged[place] = rng.integers(256)
        path = tmp_path / f"{trial}.npy"
        path.write_bytes(bytes(damaged))
        try:
            numpy_array(path)
        except DataError as error:
            assert f"{trial}.npy cannot be read as a NumPy array" in str(error)


def test_mutated_matlab_files_never_end_the_process(tmp_path: Path) -> None:
    from scipy.io import savemat

    good, path = tmp_path / "good.mat", tmp_path / "bad.mat"
    savemat(
        good,
        {
            "a": {"b": np.arange(5.0), "c": "text"},
            "d": np.array(["x", 1], dtype=object),
        },
    )
    content, rng, refused = good.read_bytes(), np.random.default_rng(1), 0
    for _ in range(40):
        damaged = bytearray(content)
        for place in rng.integers(128, len(content), size=4):
            damaged[place] = rng.integers(256)
        path.write_bytes(bytes(damaged))
        try:
            run(lambda: sorted(matlab(path)), path)
        except DataError as error:
            refused += 1
            assert "bad.mat" in str(error)
    assert refused > 5


def test_libraries_that_start_inside_say_nothing_of_the_limits() -> None:
    program = (
        "import importlib\nfrom neuroledger.data.sandbox import Limits, confined\n"
        "print(confined(lambda: importlib.import_module('joblib').__name__, Limits(readable=()), 'x'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "joblib\n" and not done.stderr


# Limits, names and results, by themselves


def test_limits_grow_with_the_files_and_leave_a_tenth_of_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEUROLEDGER_READER_SECONDS", raising=False)
    monkeypatch.setattr(sandbox, "available_bytes", lambda: 1000)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(5 * sandbox.BYTES_PER_SECOND + 1)
    limits = limits_for([large, tmp_path / "gone"], [tmp_path])
    assert limits == Limits((large, tmp_path / "gone"), (tmp_path,), 305, 900)
    monkeypatch.setenv("NEUROLEDGER_READER_SECONDS", "7")
    monkeypatch.setattr(sandbox, "available_bytes", lambda: None)
    assert limits_for([large]) == Limits((large,), (), 7, None)
    assert Limits() == Limits((), (), 300, None)
    monkeypatch.setenv("NEUROLEDGER_READER_SECONDS", "1000000000")
    with pytest.raises(
        DataError,
        match=r"^NEUROLEDGER_READER_SECONDS is '1000000000', not a whole number of seconds",
    ):
        limits_for([])


def receive(message: bytes | None, status: int = 0, name: bytes = b"") -> Any:
    with mmap.mmap(-1, sandbox.NOTE_BYTES) as note:
        note[: len(name)] = name
        result = os.memfd_create("test")
        try:
            return sandbox._receive(
                message, status, result, note, Limits(seconds=2), None, "it"
            )
        finally:
            os.close(result)


def sent(kind: str, machine: str = "", command: str = "") -> bytes:
    described = {"kind": kind, "text": "x", "command": command, "machine": machine}
    return json.dumps({"error": described, "trace": ""}).encode()


@pytest.mark.parametrize(
    ("message", "status", "about"),
    [
        (None, 0, False), (b"", -signal.SIGXCPU, False), (b"", -signal.SIGKILL, False), (b"", -signal.SIGSEGV, True),
        (sent("KeyError"), 0, True), (sent("DataError"), 0, True), (sent("DataError", "StorageError"), 0, False),
        (sent("MemoryError", "LimitError"), 0, False), (sent("UnavailableError"), 0, False),
    ],
)  # fmt: skip
def test_what_the_machine_did_to_a_child_says_nothing_about_the_file(
    message: bytes | None, status: int, about: bool
) -> None:
    with pytest.raises(NeuroLedgerError) as caught:
        receive(message, status)
    assert about_pair(caught.value) is about


def test_a_child_that_a_file_took_over_cannot_advise_a_command() -> None:
    for command, kept in (
        ("pip install 'neuroledger[nwb]'", True),
        ("pip install evil", False),
        ("rm -r /", False),
    ):
        with pytest.raises(UnavailableError) as caught:
            receive(sent("UnavailableError", command=command), 0)
        assert caught.value.command == (command if kept else "")


@pytest.mark.parametrize(
    ("message", "status", "expected"),
    [
        (None, 0, "@ did not end in 40 s; if the files need more time, set NEUROLEDGER_READER_SECONDS"),
        (b"", -signal.SIGXCPU, "@ took more than 2 s of CPU time; if the files need more time, set "
                               "NEUROLEDGER_READER_SECONDS"),
        (b"", -signal.SIGKILL, "@: its process was stopped (signal SIGKILL); free memory and try again"),
        (b"", -signal.SIGSEGV, "@ crashed the process that parses it (signal SIGSEGV): the file is damaged; "
                               "fetch the file again"),
        (b"", 3, "@ crashed the process that parses it (exit status 3): the file is damaged; fetch the file "
                 "again"),
        (sent("KeyError"), 0, "@ failed (KeyError: x): a file is damaged or of another format"),
        (sent("SpecError"), 0, "@ failed (SpecError: x): a file is damaged or of another format"),
        (sent("DataError"), 0, "x"),
        (sent("OSError", machine="StorageError"), 0, "@ failed (OSError: x)"),
        (sent("MemoryError", machine="LimitError"), 0, "@ failed (MemoryError: x)"),
        (sent("DataError", machine="StorageError"), 0, "x"),
        (sent("KeyError", machine="SystemExit"), 0, "@ failed (KeyError: x): a file is damaged or of another format"),
        (b"{}", 0, "@ returned an invalid result (KeyError: 'imported'): the file is damaged"),
        (b"[]", 0, None), (b"no JSON", 0, None), (b'{"error": 3}', 0, None), (b'{"imported": [3], "buffers": []}', 0, None),
    ],
)  # fmt: skip
def test_every_end_of_a_child_is_one_error_that_says_what_to_do(
    message: bytes | None, status: int, expected: str | None
) -> None:
    with pytest.raises((DataError, UnavailableError)) as caught:
        receive(message, status, b"a.mat")
    text = str(caught.value).replace("it: reading a.mat", "@", 1)
    assert text == expected or (
        expected is None and "returned an invalid result (" in text
    )
    with pytest.raises(DataError) as caught:
        receive(None)
    assert str(caught.value).startswith("it did not end in 40 s")


def test_libraries_that_a_child_imported_are_imported_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names: set[str] = set()
    monkeypatch.setattr(sandbox, "_TO_IMPORT", names)
    monkeypatch.setattr(sandbox, "_unpack", lambda *_: 5)
    assert (
        receive(b'{"imported": ["scipy.io", "os", "mne", "evil.scipy"], "buffers": []}')
        == 5
    )
    assert names == {"scipy.io", "mne"}
    imported: list[str] = []
    monkeypatch.undo()
    monkeypatch.setattr(sandbox, "_TO_IMPORT", {"first", "second"})
    monkeypatch.setattr(sandbox, "import_module", imported.append)
    assert run(lambda: 3) == 3 and sorted(imported) == ["first", "second"]


def test_libraries_behind_a_link_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of a checkout can be a link to the one of another checkout."""
    checkout, elsewhere, work = (
        tmp_path / "checkout",
        tmp_path / "environment" / "libraries",
        tmp_path / "work",
    )
    for folder in (checkout, elsewhere, work):
        folder.mkdir(parents=True)
    (elsewhere / "library.py").write_text("ANSWER = 7\n")
    (checkout / "environment").symlink_to(elsewhere.parent)
    monkeypatch.chdir(work)
    folders = [str(checkout), str(checkout / "environment" / "libraries")]
    monkeypatch.setattr(sys, "path", [*folders, *sys.path])

    def imported() -> int:
        return int(__import__("library").ANSWER)

    assert run(imported) == 7


def test_a_link_to_a_folder_around_the_working_directory_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "home" / "work"
    work.mkdir(parents=True)
    (tmp_path / "home" / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "home")
    monkeypatch.chdir(work)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "link"), *sys.path])
    if landlock():
        with pytest.raises(DataError, match="PermissionError"):
            run((tmp_path / "home" / "secret").read_text)


def test_a_path_is_below_a_folder_where_it_resolves_to(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    below = sandbox._is_below
    assert below(tmp_path / "link" / "x", [tmp_path / "b", tmp_path / "a"]) and below(
        tmp_path / "a", [tmp_path / "link"]
    )
    assert not below(tmp_path / "a" / ".." / "b", [tmp_path / "a"]) and not below(
        tmp_path / "ab", [tmp_path / "a"]
    )
    assert not below(tmp_path, [])


def test_values_that_are_written_come_back_aligned_and_only_those_that_may_be_named(
    tmp_path: Path,
) -> None:
    def through(value: Any) -> tuple[Any, list[list[int]]]:
        result = os.memfd_create("test")
        try:
            parts = sandbox._pack(value, result, [tmp_path], tmp_path / "scratch")
            return sandbox._unpack(result, parts, [tmp_path], None), parts
        finally:
            os.close(result)

    arrays = [np.arange(5.0), np.zeros((0, 3)), np.arange(7, dtype=np.uint8)]
    got, parts = through({"arrays": arrays, "text": "é"})
    assert got["text"] == "é" and all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for a, b in zip(got["arrays"], arrays, strict=True)
    )
    assert [size for _, size in parts[1:]] == [40, 0, 7] and all(
        start % 64 == 0 for start, _ in parts
    )
    assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(parts))
    for wrong in (os.getcwd, zipfile.ZipFile, pickle.Unpickler):
        with pytest.raises(pickle.UnpicklingError, match="is not part of a data set"):
            through(wrong)
    np.arange(6.0).tofile(tmp_path / "x")
    held = np.memmap(tmp_path / "x", dtype=float, mode="r", shape=(2, 3))
    got, parts = through(held[1, ::2])
    assert got.tolist() == [3.0, 5.0] and len(parts) == 1, "as its place"
    written = np.memmap(tmp_path / "x", dtype=float, mode="r+", shape=(2, 3))
    assert len(through(written)[1]) == 2, "what may be written to is a copy"
    (tmp_path / "scratch").mkdir()
    np.arange(2.0).tofile(tmp_path / "scratch" / "y")
    assert (
        len(through(np.memmap(tmp_path / "scratch" / "y", dtype=float, mode="r"))[1])
        == 2
    ), "it goes with the child"


def test_a_result_that_names_another_module_does_not_even_import_it() -> None:
    for name in (b"mailcap", b"not_a_module"):
        with pytest.raises(pickle.UnpicklingError, match="is not part of a data set"):
            sandbox._Unpacker(
                io.BytesIO(b"c" + name + b"\nfindmatch\n."), [], None, []
            ).load()
    assert "mailcap" not in sys.modules


def test_a_file_that_is_not_there_is_no_obstacle_to_reading_the_others(
    tmp_path: Path,
) -> None:
    (tmp_path / "here").write_text("text")
    assert (
        run(
            (tmp_path / "here").read_text,
            tmp_path / "absent" / "gone",
            tmp_path / "here",
        )
        == "text"
    )


def test_a_file_that_declares_more_than_any_memory_is_the_one_that_is_blamed(
    lab: Lab,
) -> None:
    """HDF5 opens files unseen by Python; the archive that was opened before is not the culprit."""
    path = lab.data / "responses.nc"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", (1_000_000, 1_000_000), "f8", chunks=(1000, 1000))
    lab.dataset()
    report = validate(lab.open(), "lab")
    assert not report.success
    assert "responses.nc declares 7450.6 GiB" in str(report)
