"""Texts in a structure array are streamed and agree with SciPy, whatever else the file contains."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from neuroledger.errors import DataError
from neuroledger.families.signals.language.matlab_texts import texts_of

TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=["Cs"]),
    max_size=40,
)


def write(
    path: Path,
    texts: list[str | None],
    *,
    compressed: bool,
    size: int = 9,
    before: bool = True,
) -> None:
    rows = np.empty(
        (1, len(texts)),
        dtype=[(field, object) for field in ("rawData", "content", "word")],
    )
    rng = np.random.default_rng(0)
    for at, text in enumerate(texts):
        word = np.empty((1, 2), dtype=[("content", object), ("x", object)])
        word[0, 0], word[0, 1] = ("inner", 1.0), ("words", np.zeros(3))
        rows[0, at] = (
            rng.standard_normal((3, size)),
            np.nan if text is None else text,
            word,
        )
    held: dict[str, Any] = {"first": np.arange(5), "note": "content"} if before else {}
    savemat(path, {**held, "sentenceData": rows}, do_compression=compressed)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    texts=st.lists(st.none() | TEXT, min_size=1, max_size=6), compressed=st.booleans()
)
def test_texts_equal_those_read_by_scipy(
    tmp_path: Path, texts: list[str | None], compressed: bool
) -> None:
    path = tmp_path / "some.mat"
    write(path, texts, compressed=compressed)
    cells = loadmat(path, chars_as_strings=True)["sentenceData"]["content"].ravel()
    wanted = [
        str(cell.ravel()[0]) if cell.dtype.kind == "U" and cell.size else ""
        for cell in cells
    ]
    # SciPy takes blanks at the end off.
    assert [
        text.rstrip(" ") for text in texts_of(path, "x", "sentenceData", "content")
    ] == [text.rstrip(" ") for text in wanted]


def test_sixteen_bit_characters_and_both_byte_orders_are_read(tmp_path: Path) -> None:
    import struct

    def element(type: int, content: bytes) -> bytes:
        return (
            struct.pack(">II", type, len(content))
            + content
            + b"\0" * (-len(content) % 8)
        )

    def array(kind: int, name: bytes, dims: tuple[int, int], rest: bytes) -> bytes:
        head = (
            element(6, struct.pack(">II", kind, 0))
            + element(5, struct.pack(">ii", *dims))
            + element(1, name)
        )
        return element(14, head + rest)

    text = array(4, b"", (1, 4), element(4, "Käse".encode("utf-16-be")))
    fields = struct.pack(">HHi", 4, 5, 8) + element(1, b"content\0")
    path = tmp_path / "some.mat"
    header = b"MATLAB 5.0 MAT-file, Platform: SOL2".ljust(124) + b"\x01\x00MI"
    path.write_bytes(header + array(2, b"sentenceData", (1, 1), fields + text))
    assert texts_of(path, "x", "sentenceData", "content") == ["Käse"]


def test_a_large_file_is_not_loaded_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "some.mat"
    write(
        path, [f"sentence {n}" for n in range(20)], compressed=True, size=100_000
    )  # 48 MB unpacked
    tracemalloc.start()
    assert texts_of(path, "x", "sentenceData", "content")[-1] == "sentence 19"
    assert tracemalloc.get_traced_memory()[1] < 8e6
    tracemalloc.stop()


def test_missing_and_damaged_content_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "some.mat"
    write(path, ["a", "b"], compressed=True)
    with pytest.raises(DataError, match=r"x has no variable 'other'"):
        texts_of(path, "x", "other", "content")
    with pytest.raises(DataError, match=r"'first' is not a structure"):
        texts_of(path, "x", "first", "content")
    with pytest.raises(
        DataError, match=r"no field 'text'; it has rawData, content, word"
    ):
        texts_of(path, "x", "sentenceData", "text")
    whole = path.read_bytes()
    for size in (50, 200, len(whole) // 2, len(whole) - 40):
        path.write_bytes(whole[:size])
        with pytest.raises(
            DataError,
            match=r"not a MATLAB file|cannot be read as a MATLAB file|has no variable",
        ):
            texts_of(path, "x", "sentenceData", "content")
