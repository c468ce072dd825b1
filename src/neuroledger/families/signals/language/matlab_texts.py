"""The texts in one field of a MATLAB structure array, read as a stream that skips the rest of a large file."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, Protocol

from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError

__all__ = ["texts_of"]

HEADER: Final = 128
BLOCK: Final = 1 << 20
MATRIX, COMPRESSED = 14, 15
STRUCTURE, CHARACTERS = 2, 4
# The encoding of a text by the type of its element.
ENCODINGS: Final = {1: "utf-8", 2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16"}


class _Stream(Protocol):
    def read(self, count: int) -> bytes: ...

    def skip(self, count: int) -> None: ...


class _Plain:
    """Bytes of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file

    def read(self, count: int) -> bytes:
        content = self.file.read(count)
        if len(content) != count:
            raise EOFError("it is truncated")
        return content

    def skip(self, count: int) -> None:
        self.file.seek(count, 1)


class _Inflated:
    """Bytes of a compressed section of a file, decompressed block by block."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.file, self.left = file, size
        self.inflater = zlib.decompressobj()
        self.block, self.at = b"", 0

    def read(self, count: int) -> bytes:
        parts = []
        while count:
            parts.append(self.block[self.at : self.at + count])
            self.at += len(parts[-1])
            count -= len(parts[-1])
            if count:
                self._more()
        return b"".join(parts)

    def skip(self, count: int) -> None:
        while count > len(self.block) - self.at:
            count -= len(self.block) - self.at
            self._more()
        self.at += count

    def _more(self) -> None:
        self.block, self.at = b"", 0
        while not self.block:
            source = self.inflater.unconsumed_tail or self.file.read(
                min(BLOCK, self.left)
            )
            if not self.inflater.unconsumed_tail:
                self.left -= len(source)
            if not source or self.inflater.eof:
                raise EOFError("it is truncated")
            self.block = self.inflater.decompress(source, BLOCK)


class _Element(NamedTuple):
    """The content of a tag: the type, the number of bytes that follow, and the bytes of a small element."""

    type: int
    size: int
    small: bytes | None


def texts_of(path: Path, name: str, variable: str, field: str) -> list[str]:
    """The texts in `field` of the structure array `variable`, in MATLAB's order; elements without a text give "".

    Reads files of version 5 (`-v6` and `-v7`, compressed or not) with either byte order.

    Raises
    ------
    DataError
        The file has another format, is truncated, or lacks the structure or field.
    """
    with path.open("rb") as file:
        head = file.read(HEADER)
        if len(head) < HEADER or head[126:128] not in (b"IM", b"MI"):
            raise DataError(
                f"{name} is not a MATLAB file of version 5: it is damaged or incomplete"
            )
        if head[126:128] == b"IM":
            order = "<"
        else:
            order = ">"
        if struct.unpack(f"{order}H", head[124:126])[0] >> 8 != 1:
            raise DataError(
                f"{name} is a MATLAB file of version 7.3; this data set has files of version 5"
            )
        with parsing(name, "a MATLAB file"):
            for stream in _matrices(file, order):
                texts = _texts(stream, order, variable, field, name)
                if texts is not None:
                    return texts
    raise DataError(f"{name} has no variable {variable!r}")


def _matrices(file: BinaryIO, order: str) -> Iterator[_Stream]:
    """Yield a stream for each variable of a file, positioned at its first element."""
    while True:
        tag = file.read(8)
        if not tag:
            return
        if len(tag) < 8:
            raise EOFError("it is truncated")
        type, size = struct.unpack(f"{order}II", tag)
        start = file.tell()
        if type == COMPRESSED:
            inflated = _Inflated(file, size)
            inner = _element(inflated, order)
            if inner.type == MATRIX:
                yield inflated
        elif type == MATRIX and size:
            yield _Plain(file)
        file.seek(start + size)


def _element(stream: _Stream, order: str) -> _Element:
    first = stream.read(4)
    second = stream.read(4)
    type = struct.unpack(f"{order}I", first)[0]
    if type >> 16:
        return _Element(type & 0xFFFF, type >> 16, second[: type >> 16])
    return _Element(type, struct.unpack(f"{order}I", second)[0], None)


def _content(stream: _Stream, order: str) -> tuple[int, bytes]:
    """The type and the bytes of an element; elements are padded to multiples of eight bytes."""
    element = _element(stream, order)
    if element.small is not None:
        return element.type, element.small
    content = stream.read(element.size)
    stream.skip(-element.size % 8)
    return element.type, content


def _head(stream: _Stream, order: str) -> tuple[int, tuple[int, ...], str]:
    """Class, dimensions and name of an array."""
    flags = struct.unpack(f"{order}I", _content(stream, order)[1][:4])[0]
    sizes = _content(stream, order)[1]
    dimensions = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    return flags & 0xFF, dimensions, _content(stream, order)[1].decode("latin-1")


def _texts(
    stream: _Stream, order: str, variable: str, field: str, name: str
) -> list[str] | None:
    """The texts in a field of the array; None if the array is not `variable`."""
    kind, dimensions, called = _head(stream, order)
    if called != variable:
        return None
    if kind != STRUCTURE:
        raise DataError(f"{name}: {variable!r} is not a structure")
    width = struct.unpack(f"{order}i", _content(stream, order)[1])[0]
    names = _content(stream, order)[1]
    fields = [
        names[at : at + width].split(b"\0")[0].decode("latin-1")
        for at in range(0, len(names), width)
    ]
    if field not in fields:
        raise DataError(
            f"{name}: {variable!r} has no field {field!r}; it has {', '.join(fields)}"
        )
    texts = []
    for _ in range(math.prod(dimensions)):
        for key in fields:
            element = _element(stream, order)
            if key == field:
                texts.append(_text(stream, order, element.size))
            else:
                stream.skip(element.size)
    return texts


def _text(stream: _Stream, order: str, size: int) -> str:
    """The first row of an array as text; "" if the array is not text."""
    if not size:
        return ""
    memory = _Memory(stream.read(size))
    kind, dimensions, _ = _head(memory, order)
    if kind != CHARACTERS or not math.prod(dimensions):
        return ""
    type, content = _content(memory, order)
    encoding = ENCODINGS.get(type)
    if encoding is None:
        return ""
    if encoding == "utf-16":
        encoding = "utf-16-le" if order == "<" else "utf-16-be"
    return content.decode(encoding)[:: dimensions[0]]


class _Memory(_Plain):
    """Bytes in memory."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def read(self, count: int) -> bytes:
        self.at += count
        if self.at > len(self.content):
            raise EOFError("it is truncated")
        return self.content[self.at - count : self.at]

    def skip(self, count: int) -> None:
        self.at += count
