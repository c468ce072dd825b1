"""Files of common formats give plain values, or one error that names the file, the reason and the remedy."""

from __future__ import annotations

import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from neuroledger.data import parsing as module
from neuroledger.data.parsing import (
    ADVICE,
    matlab,
    numpy_array,
    parsing,
    require_even_rows,
    table_rows,
    zip_member,
)
from neuroledger.errors import DataError, RequestError, UnavailableError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("odd"), "ValueError: odd"),
        (AssertionError(), "AssertionError"),
        (Exception("bare"), "Exception: bare"),
    ],
)
def test_every_exception_of_a_parser_becomes_one_data_error(
    error: Exception, reason: str
) -> None:
    for path in (Path("folder/x.bin"), "x.bin"):
        with pytest.raises(DataError) as caught, parsing(path, "a table"):
            raise error
        assert (
            str(caught.value) == f"x.bin cannot be read as a table ({reason}): {ADVICE}"
        )


@pytest.mark.parametrize(
    "error", [RequestError("ours"), DataError("ours"), ImportError("no package")]
)
def test_own_errors_and_missing_packages_are_not_blamed_on_the_file(
    error: Exception,
) -> None:
    with pytest.raises(type(error)) as caught, parsing("x", "a table"):
        raise error
    assert caught.value is error


def test_each_file_that_is_parsed_is_announced_to_the_sandbox(tmp_path: Path) -> None:
    events: list[tuple[Any, ...]] = []
    recording = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if recording and event == "neuroledger.open":
            events.append(arguments)

    sys.addaudithook(hook)
    path = tmp_path / "x.npy"
    np.save(path, np.arange(3))
    numpy_array(path)
    recording.clear()
    assert events == [(str(path),)]


def test_variables_of_matlab_are_returned_in_the_requested_form(tmp_path: Path) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"a": np.arange(3.0), "s": {"field": np.array([[1.0, 2.0]])}, "z": 1})
    assert set(matlab(path)) == {"a", "s", "z"}, (
        "without the header fields of the format"
    )
    assert matlab(path, "a")["a"].shape == (1, 3) and set(matlab(path, "a", "z")) == {
        "a",
        "z",
    }
    records = matlab(path, "s")["s"]
    assert records.shape == (1, 1) and records["field"][0, 0].tolist() == [[1.0, 2.0]]
    squeezed = matlab(path, "s", structs="squeezed")["s"]
    assert squeezed.shape == () and squeezed["field"].item().tolist() == [1.0, 2.0]
    assert matlab(path, "s", structs="objects")["s"].field.tolist() == [1.0, 2.0]
    assert matlab(path, "s", structs="dicts")["s"]["field"].tolist() == [1.0, 2.0]
    inside = matlab(Path("member.mat"), "z", content=path.read_bytes())
    assert inside["z"].item() == 1


def test_a_missing_variable_of_matlab_is_reported_with_the_existing_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.mat"
    savemat(path, {"b": 1, "a": 2})
    with pytest.raises(DataError, match=r"^x\.mat has no variable 'c'; it has a, b$"):
        matlab(path, "a", "c", "d")
    savemat(path, {})
    with pytest.raises(
        DataError, match=r"^x\.mat has no variable 'c'; it has nothing$"
    ):
        matlab(path, "c")
    with pytest.raises(
        DataError,
        match=r"^x\.mat cannot be read as a MATLAB file up to version 7\.2 \(.*\): it is damaged or incomplete",
    ):
        matlab(write(path, "not MATLAB"), "c")


def test_arrays_of_numbers_and_text_are_read_and_python_objects_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.npy"
    for values in (np.arange(6).reshape(2, 3), np.array(["a", "b"])):
        np.save(path, values)
        assert numpy_array(path).tolist() == values.tolist()
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(
        DataError, match=r"^x\.npy cannot be read as a NumPy array \(.*allow_pickle"
    ):
        numpy_array(path)


def test_a_table_is_read_by_column_with_the_number_of_each_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", '\ufeffa,b\r\n1,"x,y"\r\n\r\n"two\nlines",z\r\n')
    columns, rows = table_rows(path, "a", "b")
    assert columns == ("a", "b")
    assert rows == [(2, {"a": "1", "b": "x,y"}), (5, {"a": "two\nlines", "b": "z"})]


def test_fields_of_a_plain_table_keep_their_quotation_marks(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", 'a\tb\n"\t1\n')
    assert table_rows(path, delimiter="\t", plain=True)[1] == [
        (2, {"a": '"', "b": "1"})
    ]
    with pytest.raises(
        DataError,
        match=r"^x\.tsv, line 2: 1 fields where the header has 2; quote fields",
    ):
        table_rows(path, delimiter="\t")


def test_missing_columns_and_fields_are_reported_under_the_name_of_the_table(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "x.csv", "a,b,c\n1,2\n")
    with pytest.raises(DataError, match=r"^x\.csv has no column d, e; it has a, b, c$"):
        table_rows(path, "a", "d", "e")
    with pytest.raises(DataError, match=r"^the list has no column d; it has a, b, c$"):
        table_rows(path, "d", name="the list")
    with pytest.raises(
        DataError,
        match=r"^x\.csv, line 2: 2 fields where the header has 3; quote fields",
    ):
        table_rows(path)
    assert table_rows(path, short=True)[1] == [(2, {"a": "1", "b": "2", "c": ""})]
    write(path, "a\n1,2\n")
    with pytest.raises(DataError, match="line 2: 2 fields where the header has 1"):
        table_rows(path, short=True)
    write(path, "")
    assert table_rows(path) == ((), [])
    with pytest.raises(DataError, match=r"^x\.csv has no column a; it has none$"):
        table_rows(path, "a")
    with pytest.raises(
        DataError, match=r"^x\.csv cannot be read as a table \(UnicodeDecodeError: "
    ):
        table_rows(write(path, b"a\n\xff\n"))


def test_a_row_may_be_shorter_than_the_header_and_not_longer(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", '\ufeff"a,b",c\n1,2\n1\n\n')
    require_even_rows(path)
    require_even_rows(write(path, "a;b\n1,2,3;4\n"), ";")
    with pytest.raises(
        DataError,
        match=r"^x\.csv, line 3: 3 fields where the header has 2; quote fields",
    ):
        require_even_rows(write(path, "a,b\n1,2\n1,2,3\n"))
    with pytest.raises(
        DataError, match=r"^x\.csv cannot be read as a table \(UnicodeDecodeError: "
    ):
        require_even_rows(write(path, b"a\n\xff\n"))


def archive_of(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", content)
    return path


def test_a_member_of_a_zip_is_read_up_to_the_largest_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_MEMBER_BYTES", 3 << 20)
    with zipfile.ZipFile(archive_of(tmp_path / "x.zip", b"ab" * (3 << 19))) as archive:
        assert (
            zip_member(archive, "x")
            == zip_member(archive, archive.getinfo("x"))
            == b"ab" * (3 << 19)
        )
        monkeypatch.setattr(module, "MAX_MEMBER_BYTES", (3 << 20) - 1)
        with pytest.raises(zipfile.BadZipFile, match=r"^'x' is larger than 2 MiB$"):
            zip_member(archive, "x")


def test_a_member_never_unpacks_more_than_the_archive_declares(tmp_path: Path) -> None:
    with zipfile.ZipFile(archive_of(tmp_path / "x.zip", bytes(1 << 25))) as archive:
        info = archive.getinfo("x")
        info.file_size = 10
        tracemalloc.start()
        with pytest.raises(zipfile.BadZipFile):
            zip_member(archive, info)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 23


def test_a_member_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(archive_of(tmp_path / "x.zip", b"short")) as archive:
        info = archive.getinfo("x")
        info.file_size = 6
        with pytest.raises(
            zipfile.BadZipFile,
            match=r"^'x' does not have the size that the archive declares$",
        ):
            zip_member(archive, info)


@pytest.mark.parametrize(
    ("message", "package"),
    [
        (
            "For reading EGI MFF data to work, the module mffpy is needed, but it could not be imported.",
            "mffpy",
        ),
        (
            "For reading ANT files to work, the module antio>=0.5.0 is needed, but it could not be imported.",
            "antio",
        ),
    ],
)
def test_a_package_that_a_format_needs_is_named_and_the_file_is_not_blamed(
    message: str, package: str
) -> None:
    with (
        pytest.raises(
            UnavailableError, match=f"^x.bin needs the package {package}, "
        ) as caught,
        parsing("x.bin", "a recording"),
    ):
        raise RuntimeError(message)
    assert caught.value.command == f"pip install {package}"
