"""PhysioNet's signal formats: numbers written bit by bit according to the manual are read as written, in every layout."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.wfdb import (
    files_of,
    read_header,
    read_leads,
)
from neuroledger.families.signals.recordings.wfdb_signals import MISSING


def bits(value: int, count: int) -> int:
    """The number in two's complement."""
    return value & ((1 << count) - 1)


def as_212(numbers: Sequence[int]) -> bytes:
    out = b""
    for at in range(0, len(numbers), 2):
        first = bits(numbers[at], 12)
        second = bits(numbers[at + 1], 12) if at + 1 < len(numbers) else None
        high = first >> 8 | ((second or 0) >> 8) << 4
        out += bytes([first & 255, high]) + (
            b"" if second is None else bytes([second & 255])
        )
    return out


def as_310(numbers: Sequence[int]) -> bytes:
    out = b""
    for at in range(0, len(numbers), 3):
        one, two, three = (bits(n, 10) for n in [*numbers[at : at + 3], 0, 0][:3])
        out += struct.pack(
            "<HH", one << 1 | (three & 31) << 11, two << 1 | (three >> 5) << 11
        )
    return out


def as_311(numbers: Sequence[int]) -> bytes:
    out = b""
    for at in range(0, len(numbers), 3):
        one, two, three = (bits(n, 10) for n in [*numbers[at : at + 3], 0, 0][:3])
        out += struct.pack("<I", one | two << 10 | three << 20)
    return out


def in_bytes(
    size: int, order: str, *, zero: int = 0
) -> Callable[[Sequence[int]], bytes]:
    return lambda numbers: b"".join(
        (n + zero).to_bytes(size, order, signed=zero == 0) for n in numbers
    )  # type: ignore[arg-type]


ENCODED: dict[int, tuple[int, Callable[[Sequence[int]], bytes]]] = {
    16: (16, in_bytes(2, "little")),
    24: (24, in_bytes(3, "little")),
    32: (32, in_bytes(4, "little")),
    61: (16, in_bytes(2, "big")),
    80: (8, in_bytes(1, "little", zero=128)),
    160: (16, in_bytes(2, "little", zero=32768)),
    212: (12, as_212),
    310: (10, as_310),
    311: (10, as_311),
}


@pytest.mark.parametrize("format", sorted(ENCODED))
@given(seed=st.integers(0, 2**16), leads=st.integers(1, 4), samples=st.integers(1, 40))
@settings(max_examples=15, deadline=None)
def test_numbers_are_read_as_written(
    tmp_path_factory: pytest.TempPathFactory,
    format: int,
    seed: int,
    leads: int,
    samples: int,
) -> None:
    folder = tmp_path_factory.mktemp("wfdb")
    width, encode = ENCODED[format]
    limit = 1 << (width - 1)
    numbers = np.random.default_rng(seed).integers(-limit + 1, limit, (samples, leads))
    (folder / "r.dat").write_bytes(encode([int(n) for n in numbers.ravel()]))
    lines = [
        f"r.dat {format} 200(5)/mV 0 0 0 {int(numbers[:, n].sum()) % 65536} 0 lead{n}"
        for n in range(leads)
    ]
    (folder / "r.hea").write_text(
        f"r {leads} 250 {samples}\n" + "\n".join(lines) + "\n"
    )
    values = read_leads(folder / "r.hea", read_header(folder / "r.hea"))
    np.testing.assert_allclose(
        values, (numbers.T - 5) / 200 * 1e-3, rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("format", sorted(ENCODED))
def test_the_mark_of_a_missing_sample_has_no_value(tmp_path: Path, format: int) -> None:
    _, encode = ENCODED[format]
    (tmp_path / "r.dat").write_bytes(encode([1, MISSING[format], 3]))
    (tmp_path / "r.hea").write_text(f"r 1 250 3\nr.dat {format} 200\n")
    values = read_leads(tmp_path / "r.hea", read_header(tmp_path / "r.hea"))
    assert np.isnan(values).tolist() == [[False, True, False]]


def test_differences_are_summed_from_the_first_value(tmp_path: Path) -> None:
    (tmp_path / "r.dat").write_bytes(
        np.array([[0, 1], [-3, 2], [5, 3]], dtype="i1").tobytes()
    )
    (tmp_path / "r.hea").write_text(
        "r 2 250 3\nr.dat 8 1 8 0 10 29 0 a\nr.dat 8 1 8 0 -4 -2 0 b\n"
    )
    values = read_leads(tmp_path / "r.hea", read_header(tmp_path / "r.hea")) * 1e3
    np.testing.assert_allclose(values, [[10, 7, 12], [-3, -1, 2]])


def test_leads_in_several_files_with_several_samples_per_frame_and_a_skew(
    tmp_path: Path,
) -> None:
    slow, fast = np.arange(8), np.arange(24) * 2
    frames = np.concatenate(
        [np.concatenate([[a], fast[3 * n : 3 * n + 3]]) for n, a in enumerate(slow)]
    )
    (tmp_path / "a.dat").write_bytes(b"head" + frames.astype("<i2").tobytes())
    (tmp_path / "b.xyz").write_bytes((100 + np.arange(8)).astype("<i2").tobytes())
    (tmp_path / "r.hea").write_text(
        "r 3 100/300(0) 8 10:00:00\na.dat 16+4 1 16 0 0 28 0 slow\na.dat 16x3+4 1 16 0 0 552 0 fast\n"
        "b.xyz 16:2 1 16 0 0 828 0 late lead\n# a comment\n"
    )
    header = read_header(tmp_path / "r.hea")
    values = read_leads(tmp_path / "r.hea", header) * 1e3
    np.testing.assert_allclose(values[0], slow)
    np.testing.assert_allclose(values[1], fast.reshape(8, 3).mean(axis=1))
    np.testing.assert_allclose(
        values[2], [102, 103, 104, 105, 106, 107, np.nan, np.nan]
    )
    assert files_of(tmp_path / "r.hea") == ["a.dat", "b.xyz"]


def test_compressed_samples_are_read_as_written(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    numbers = np.random.default_rng(0).integers(-32000, 32000, (200, 2)).astype("<i2")
    soundfile.write(tmp_path / "r.dat", numbers, 96000, format="FLAC", subtype="PCM_16")
    (tmp_path / "r.hea").write_text(
        "r 2 100 50\nr.dat 516x4 200/mV\nr.dat 516x4 200/mV\n"
    )
    values = read_leads(tmp_path / "r.hea", read_header(tmp_path / "r.hea"))
    np.testing.assert_allclose(
        values, numbers.T.reshape(2, 50, 4).mean(axis=2) / 200 * 1e-3
    )


def test_an_unknown_format_is_refused_with_those_that_work(tmp_path: Path) -> None:
    (tmp_path / "r.hea").write_text("r 1 100 50\nr.dat 999 200/mV\n")
    with pytest.raises(DataError, match=r"only 8, 16, 24, 32, 61, .*by `wfdb\.wrsamp`"):
        read_header(tmp_path / "r.hea")


def read(path: Path, window: Window) -> Dataset:
    files = {other.name: other for other in path.parent.iterdir()}
    one = (Recording(file=path.name, subject="1"),)
    return mne_epochs(
        files,
        recordings=one,
        window=window,
        preprocessing=Preprocessing(units="arbitrary"),
    )


def annotated(path: Path, notes: Sequence[tuple[int, int, str]]) -> None:
    """Annotations as sample, code and text, in order."""
    words, last = b"", 0
    for sample, code, text in notes:
        words += struct.pack("<H", code << 10 | (sample - last))
        if text:
            words += (
                struct.pack("<H", 63 << 10 | len(text))
                + text.encode()
                + b"\0" * (len(text) % 2)
            )
        last = sample
    path.write_bytes(words + b"\0\0")


def test_beats_beside_a_record_are_events(tmp_path: Path) -> None:
    (tmp_path / "r.dat").write_bytes(np.arange(1000).astype("<i2").tobytes())
    checksum = sum(range(1000)) % 65536
    (tmp_path / "r.hea").write_text(
        f"r 1 100 1000\nr.dat 16 1/mV 16 0 0 {checksum} 0 MLII\n"
    )
    annotated(
        tmp_path / "r.atr",
        [(10, 28, "(N"), (200, 1, ""), (400, 5, ""), (500, 28, "(AFIB"), (600, 1, "")],
    )
    beats = read(
        tmp_path / "r.hea",
        Window(start=0.0, duration=0.5, labels={"N": "normal", "V": "ventricular"}),
    )
    assert beats.assembly is not None
    # The rhythm `(N`, from sample 10 on, is not a beat.
    assert beats.assembly["onset"].values.tolist() == [2.0, 4.0, 6.0]
    rhythm = read(
        tmp_path / "r.hea",
        Window(start=0.0, duration=0.5, stride=0.5, labels={"(AFIB": "fibrillation"}),
    )
    assert rhythm.assembly is not None
    assert rhythm.assembly["onset"].values.tolist() == [5.0, 5.5]


def test_no_window_crosses_a_gap_between_segments(tmp_path: Path) -> None:
    for name, first in (("s1", 0), ("s2", 700)):
        numbers = first + np.arange(500)
        (tmp_path / f"{name}.dat").write_bytes(numbers.astype("<i2").tobytes())
        (tmp_path / f"{name}.hea").write_text(
            f"{name} 1 100 500\n{name}.dat 16 1/mV 16 0 0 {int(numbers.sum()) % 65536} 0 I\n"
        )
    (tmp_path / "r.hea").write_text("r/3 1 100 1200\ns1 500\n~ 200\ns2 500\n")
    data = read(tmp_path / "r.hea", Window(start=0.0, duration=2.0, stride=2.0))
    assert data.assembly is not None
    assert data.assembly["onset"].values.tolist() == [0.0, 2.0, 8.0, 10.0]
    assert (data.assembly.values[:, 0, 0] * 1e3).round().tolist() == [
        0.0,
        200.0,
        800.0,
        1000.0,
    ]
    assert [(gap.begin, gap.seconds) for gap in data.clocks[0].gaps] == [(5.0, 2.0)]
    assert files_of(tmp_path / "r.hea") == ["s1.hea", "s1.dat", "s2.hea", "s2.dat"]
