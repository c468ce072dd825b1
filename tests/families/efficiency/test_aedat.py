"""AEDAT 2 and 4: recordings written byte by byte, in the formats of jAER and DV, are read as the original events."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.efficiency.events.aedat import polarity_events
from neuroledger.families.efficiency.readers.aedat_gestures import aedat_gestures
from tests.families.efficiency.test_aedat_gestures import GRID, ROWS, events, written
from tests.families.signals.recorded_files import aedat

HEADER = b"#!AER-DAT2.0\r\n# This is a raw AE data file - do not edit\r\n# Timestamps tick is 1 us\r\n"
END = b"# End of ASCII Header\r\n"


def drawn(width, height, count=500, start=1_000):
    rng = np.random.default_rng(1)
    t = start + np.sort(rng.integers(0, 10_000, count))
    return list(
        zip(
            t.tolist(),
            rng.integers(0, width, count).tolist(),
            rng.integers(0, height, count).tolist(),
            rng.integers(0, 2, count).tolist(),
            strict=True,
        )
    )


def equal(actual, expected):
    assert (
        actual.t.tolist(),
        actual.x.tolist(),
        actual.y.tolist(),
        actual.on.astype(int).tolist(),
    ) == tuple(map(list, zip(*expected, strict=True)))


def aedat2(expected, height, *, davis, header=HEADER):
    """Write a recording with rows counted from below, and with external, frame and special events in between."""
    out = bytearray(header)
    for number, (t, x, y, p) in enumerate(expected):
        row = height - 1 - y
        address = row << 22 | x << 12 | p << 11 if davis else row << 8 | x << 1 | p
        out += struct.pack(">Ii", address, (t + 2**31) % 2**32 - 2**31)
        if number % 7 == 0:
            other = (
                address | (0x8000_0000 if number % 2 else 0x400)
                if davis
                else address | 0x8000
            )
            out += struct.pack(">Ii", other, (t + 2**31) % 2**32 - 2**31)
    return bytes(out)


@pytest.mark.parametrize(
    ("davis", "width", "height", "line", "declared"),
    [
        (False, 128, 128, b"# AEChip: ch.unizh.ini.jaer.chip.retina.DVS128\r\n", None),
        (False, 128, 128, b"", "dvs128"),
        (True, 240, 180, b"# AEChip: eu.seebetter.ini.chips.davis.DAVIS240C\r\n", None),
        (
            True,
            346,
            260,
            b"# AEChip: eu.seebetter.ini.chips.davis.Davis346blue\n",
            "davis",
        ),
    ],
)
@pytest.mark.parametrize("end", [b"", END])
def test_aedat_2_events_of_both_chips_are_read(
    davis, width, height, line, declared, end
):
    expected = drawn(width, height)
    content = aedat2(expected, height, davis=davis, header=HEADER + line + end)
    equal(polarity_events(content, "a.aedat", width, height, chip=declared), expected)


def test_an_address_that_begins_with_a_hash_is_not_part_of_the_header():
    first = (0x23 << 24 | 5 << 12, 9)  # row 140 from below
    content = HEADER + b"# AEChip: x.Davis346\r\n" + struct.pack(">Ii", *first)
    equal(polarity_events(content, "a.aedat", 346, 260), [(9, 5, 259 - 140, 0)])


def test_overflows_of_32_bit_times_are_removed():
    expected = drawn(128, 128, start=2**31 - 5_000)
    assert expected[0][0] < 2**31 < expected[-1][0]
    equal(
        polarity_events(
            aedat2(expected, 128, davis=False), "a.aedat", 128, 128, chip="dvs128"
        ),
        expected,
    )


def test_invalid_aedat_2_is_refused():
    content = aedat2(drawn(128, 128), 128, davis=False)
    with pytest.raises(DataError, match="does not state the chip: declare"):
        polarity_events(content, "a.aedat", 128, 128)
    with pytest.raises(DataError, match="within a record"):
        polarity_events(content[:-3], "a.aedat", 128, 128, chip="dvs128")
    with pytest.raises(DataError, match=r"outside of 16 x 16"):
        polarity_events(content, "a.aedat", 16, 16, chip="dvs128")
    with pytest.raises(DataError, match="chip 'davis240c', but dvs128 is declared"):
        polarity_events(
            HEADER + b"# AEChip: a.DAVIS240C\r\n", "a.aedat", 9, 9, chip="dvs128"
        )
    with pytest.raises(DataError, match="the unknown chip 'tcvs320'"):
        polarity_events(HEADER + b"# AEChip: a.tcvs320\r\n", "a.aedat", 9, 9)
    with pytest.raises(DataError, match="no polarity events"):
        polarity_events(HEADER, "a.aedat", 9, 9, chip="davis")
    for other in (b"", b"#!AER-DAT1.0\r\n", b"PK\x03\x04"):
        with pytest.raises(DataError, match=r"is not an AEDAT file"):
            polarity_events(other, "a.aedat", 9, 9)


def flat(fields, kind):
    """Return a size-prefixed FlatBuffer; fields of its table are ("<i" or "<q", value) or bytes of a vector."""
    index = struct.pack("<HH", 4 + 2 * len(fields), 4 + 8 * len(fields))
    index += b"".join(
        struct.pack("<H", 4 + 8 * number if f is not None else 0)
        for number, f in enumerate(fields)
    )
    index += b"\0" * (-len(index) % 8)
    table = 8 + len(index) + 4  # so that events, 20 bytes on, are aligned to 8
    body, behind = bytearray(struct.pack("<i", table - 8)), bytearray()
    for number, field in enumerate(fields):
        here = 4 + 8 * number
        if field is None:
            body += b"\0" * 8
        elif isinstance(field, tuple):
            body += struct.pack(field[0], field[1]).ljust(8, b"\0")
        else:
            body += struct.pack("<I", 4 + 8 * len(fields) + len(behind) - here).ljust(
                8, b"\0"
            )
            behind += field
    buffer = struct.pack("<I", table) + kind + index + b"\0" * 4 + body + behind
    return struct.pack("<I", len(buffer)) + buffer


def aedat4(
    expected,
    size,
    *,
    method=0,
    compress=bytes,
    together=60,
    table=True,
    stream=0,
    more=b"",
):
    node = lambda number, kind: (  # noqa: E731
        f'<node name="{number}"><attr key="compression" type="string">NONE</attr>'
        f'<attr key="typeIdentifier" type="string">{kind}</attr><node name="info">'
        f'<attr key="sizeX" type="int">{size[0]}</attr><attr key="sizeY" type="int">{size[1]}</attr></node></node>'
    )
    info = f'<dv version="2.0"><node name="outInfo">{node(stream, "EVTS")}{node(7, "TRIG")}</node></dv>'.encode()
    packets = bytearray(more)
    trigger = compress(flat([struct.pack("<I", 0)], b"TRIG"))
    packets += struct.pack("<II", 7, len(trigger)) + trigger
    for first in range(0, len(expected), together):
        rows = expected[first : first + together]
        vector = struct.pack("<I", len(rows)) + b"".join(
            struct.pack("<qhhB3x", *row) for row in rows
        )
        packet = compress(flat([vector], b"EVTS"))
        packets += struct.pack("<II", stream, len(packet)) + packet
    text = struct.pack("<I", len(info)) + info + b"\0"
    start = len(b"#!AER-DAT4.0\r\n") + len(flat([("<i", 0), ("<q", 0), text], b"IOHE"))
    end = start + len(packets) if table else -1
    header = flat([("<i", method) if method else None, ("<q", end), text], b"IOHE")
    tail = flat([struct.pack("<I", 0)], b"FTAB") if table else b""
    return b"#!AER-DAT4.0\r\n" + header + bytes(packets) + tail


def lz4(data):
    return pytest.importorskip("lz4.frame").compress(data)


def zstd(data):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


def zstd_streamed(data):  # without the size of the content in the frame
    buffer = io.BytesIO()
    with (
        pytest.importorskip("zstandard")
        .ZstdCompressor()
        .stream_writer(buffer, closefd=False) as file
    ):
        file.write(data)
    return buffer.getvalue()


UNIX = 1_700_000_000_000_000


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize(
    ("method", "compress"),
    [(0, bytes), (1, lz4), (2, lz4), (3, zstd), (4, zstd_streamed)],
)
def test_aedat_4_is_read_with_every_compression(tmp_path, method, compress, table):
    expected = drawn(346, 260, start=UNIX)
    content = aedat4(
        expected, (346, 260), method=method, compress=compress, table=table
    )
    equal(polarity_events(content, "a.aedat4", 346, 260), expected)


def test_events_equal_those_of_a_reference_decoder(tmp_path):
    aedat = pytest.importorskip("aedat")
    expected = drawn(346, 260, start=UNIX)
    for method, compress in ((0, bytes), (1, lz4), (3, zstd)):
        path = tmp_path / f"{method}.aedat4"
        path.write_bytes(aedat4(expected, (346, 260), method=method, compress=compress))
        decoder = aedat.Decoder(str(path))
        values = np.concatenate(
            [packet["events"] for packet in decoder if "events" in packet]
        )
        own = polarity_events(path.read_bytes(), path.name, 346, 260)
        for column, name in zip(own, ("t", "x", "y", "on"), strict=True):
            np.testing.assert_array_equal(column, values[name])


def test_one_of_several_streams_can_be_chosen():
    first, second = drawn(64, 64, 50, UNIX), drawn(32, 32, 70, UNIX)
    vector = struct.pack("<I", len(second)) + b"".join(
        struct.pack("<qhhB3x", *row) for row in second
    )
    packet = flat([vector], b"EVTS")
    content = aedat4(first, (64, 64), more=struct.pack("<II", 3, len(packet)) + packet)
    with pytest.raises(DataError, match="streams 0, 3: choose one"):
        polarity_events(content, "a.aedat4", 64, 64)
    equal(polarity_events(content, "a.aedat4", 64, 64, stream=0), first)
    equal(polarity_events(content, "a.aedat4", 64, 64, stream=3), second)
    with pytest.raises(DataError, match=r"streams \[0, 3\], not in 1"):
        polarity_events(content, "a.aedat4", 64, 64, stream=1)


def test_truncated_or_damaged_aedat_4_is_refused_at_every_byte():
    content = aedat4(drawn(64, 64, 30, UNIX), (64, 64), together=10)
    whole = polarity_events(content, "a.aedat4", 64, 64)
    for size in range(15, len(content) - 80, 13):
        with pytest.raises(DataError, match="it is damaged or incomplete"):
            polarity_events(content[:size], "a.aedat4", 64, 64)
    rng = np.random.default_rng(0)
    for _ in range(400):
        damaged = bytearray(content)
        damaged[int(rng.integers(14, len(content)))] ^= int(rng.integers(1, 256))
        try:
            kept_events = polarity_events(bytes(damaged), "a.aedat4", 64, 64)
        except DataError:
            continue
        assert len(kept_events.t) <= len(whole.t)


def test_a_packet_that_decompresses_beyond_the_limit_is_refused(monkeypatch):
    from neuroledger.families.efficiency.events import aedat4 as module

    expected = drawn(64, 64, 200, UNIX)
    monkeypatch.setattr(module, "MOST", 900)
    for method, compress in ((1, lz4), (3, zstd)):
        content = aedat4(expected, (64, 64), method=method, compress=compress)
        with pytest.raises(
            DataError, match=r"incomplete or larger than|cannot be read"
        ):
            polarity_events(content, "a.aedat4", 64, 64)


def test_a_missing_package_is_named_with_its_install_command(monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name in ("lz4.frame", "zstandard"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    for method, package in ((1, "lz4"), (4, "zstandard")):
        with pytest.raises(
            UnavailableError,
            match=rf"package {package} is not installed: run `pip install 'neuroledger\[events\]'`",
        ):
            polarity_events(
                aedat4(drawn(9, 9, 9, UNIX), (9, 9), method=method), "a.aedat4", 9, 9
            )
    with pytest.raises(DataError, match="method 9, which"):
        polarity_events(
            aedat4(drawn(9, 9, 9, UNIX), (9, 9), method=9), "a.aedat4", 9, 9
        )


def test_gestures_are_the_same_in_all_three_formats(tmp_path):
    files = written(tmp_path / "three")
    expected = aedat_gestures(files, grid=GRID).assembly
    for number, name in enumerate(
        ("user01_lab", "user02_fluorescent_led", "user24_natural")
    ):
        some = events(number)
        assert files[f"{name}.aedat"].read_bytes() != aedat(some)
        header = HEADER + b"# AEChip: ch.unizh.ini.jaer.chip.retina.DVS128\r\n"
        content = (
            aedat2(some, 128, davis=False, header=header)
            if number
            else aedat4(some, (128, 128))
        )
        files[f"{name}.aedat"].write_bytes(content)
    assembly = aedat_gestures(files, grid=GRID).assembly
    np.testing.assert_array_equal(assembly.values, expected.values)
    assert len(assembly) == 3 * len(ROWS)
