"""Recordings with incorrect headers: each is one clear error, within limits of time and memory."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import h5py
import mne
import numpy as np
import pytest
from scipy.io import savemat

from neuroledger.data.hdf5 import refuse_outside_storage
from neuroledger.data.sandbox import Limits, confined
from neuroledger.errors import DataError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.open_recordings import samples_stated
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from tests.families.signals.brainvision_files import brainvision
from tests.families.signals.matlab_files import hdf5
from tests.families.signals.recording_files import edf
from tests.families.signals.xdf_files import Marker, Samples, xdf

RATE = 100
WHOLE = Window(start=0.0, duration=1.0, stride=1.0)
SECONDS, MEMORY = 10, 2 << 30


def noise() -> np.ndarray:
    """Simulated EEG of three channels in µV, ten seconds."""
    return np.random.default_rng(0).normal(0, 10, (3, 10 * RATE))


def read(path: Path, **fields: object) -> dict[str, int]:
    """The sizes of what the reader returns, in a child with limits, as every data set is read."""
    recordings = (Recording(file=path.name, subject="1"),)

    def windows() -> dict[str, int]:
        windows = mne_epochs(
            {path.name: path}, recordings=recordings, **({"window": WHOLE} | fields)
        ).assembly  # type: ignore[arg-type]
        assert windows is not None
        return {str(name): size for name, size in windows.sizes.items()}

    limits = Limits(tuple(path.parent.iterdir()), (), SECONDS, MEMORY)
    return confined(windows, limits, path.name)


def put(path: Path, at: int, text: object, width: int) -> Path:
    """Overwrite a field of a header with text."""
    content = bytearray(path.read_bytes())
    content[at : at + width] = str(text).ljust(width).encode()
    path.write_bytes(content)
    return path


def of_edf(folder: Path, at: int, text: object, width: int = 8) -> Path:
    edf(folder / "lie.edf", dict(zip("abc", noise(), strict=True)), RATE)
    return put(folder / "lie.edf", at, text, width)


def test_files_with_correct_headers_are_read(tmp_path: Path) -> None:
    edf(tmp_path / "true.edf", dict(zip("abc", noise(), strict=True)), RATE)
    assert read(tmp_path / "true.edf") == {
        "presentation": 10,
        "channel": 3,
        "sample": RATE,
    }
    # -1 records are what the format states of a recording that was not closed.
    assert read(of_edf(tmp_path, 236, -1))["presentation"] == 10


RANGE, COUNTS = 256 + 3 * (16 + 80 + 8), 256 + 3 * (16 + 80 + 8 * 5 + 80)


@pytest.mark.parametrize(
    ("at", "text", "width", "words"),
    [
        (236, 20, 8, "its header does not match the file.*Number of records"),
        (236, 99999999, 8, "its header does not match the file.*Number of records"),
        (244, 0, 8, "its header does not match the file.*record length"),
        (252, 9999, 4, "cannot be read as a recording by MNE"),
        (184, 99999999, 8, "cannot be read as a recording by MNE"),
        (COUNTS, 99999999, 8, "its header does not match the file|failed"),
        (COUNTS, 0, 8, "its header does not match the file"),
        (RANGE, 500, 8, "its header has no range of values for a"),
    ],
)
def test_an_incorrect_edf_header_is_refused(
    tmp_path: Path, at: int, text: int, width: int, words: str
) -> None:
    with pytest.raises(DataError, match=f"lie.edf.*({words})"):
        read(of_edf(tmp_path, at, text, width))


def test_a_channel_without_a_range_can_be_dropped(tmp_path: Path) -> None:
    path = of_edf(tmp_path, RANGE, 500)
    assert read(path, preprocessing=Preprocessing(drop=("a",)))["channel"] == 2


def of_fif(
    folder: Path, change: Callable[[bytearray, dict[int, list[int]]], None]
) -> Path:
    """A recording of MNE with changed tags; `change` is given the places of each kind of tag."""
    raw = mne.io.RawArray(
        noise() * 1e-6, mne.create_info(3, RATE, "eeg"), verbose="ERROR"
    )
    raw.save(folder / "lie_raw.fif", overwrite=True, verbose="ERROR")
    content = bytearray((folder / "lie_raw.fif").read_bytes())
    places: dict[int, list[int]] = {}
    at = 0
    while 0 <= at < len(content):
        kind, _, size, following = struct.unpack(">iIii", content[at : at + 16])
        places.setdefault(kind, []).append(at)
        at = at + 16 + size if following == 0 else following
    change(content, places)
    (folder / "lie_raw.fif").write_bytes(content)
    return folder / "lie_raw.fif"


def backwards(content: bytearray, places: dict[int, list[int]]) -> None:
    """No directory, and a tag whose successor is an earlier one: a reader that follows them never ends."""
    pointer, block = places[101][0], places[104][2]
    content[pointer + 16 : pointer + 20] = struct.pack(">i", -1)
    content[block + 12 : block + 16] = struct.pack(">i", places[104][0])


def itself(content: bytearray, places: dict[int, list[int]]) -> None:
    """A directory that is its own pointer."""
    content[places[101][0] + 16 : places[101][0] + 20] = struct.pack(
        ">i", places[101][0]
    )


def giant(content: bytearray, places: dict[int, list[int]]) -> None:
    """A buffer of two gigabytes in a file of kilobytes."""
    content[places[300][0] + 8 : places[300][0] + 12] = struct.pack(">i", 2**31 - 1)


@pytest.mark.parametrize("change", [backwards, itself, giant])
def test_fif_files_with_invalid_tags_are_refused(
    tmp_path: Path, change: Callable[[bytearray, dict[int, list[int]]], None]
) -> None:
    with pytest.raises(DataError, match=r"lie_raw\.fif"):
        read(of_fif(tmp_path, change))


@pytest.mark.parametrize(
    ("true", "lie"),
    [
        ("SamplingInterval=10000", "SamplingInterval=0"),
        ("NumberOfChannels=3", "NumberOfChannels=999999999"),
        ("INT_16", "INT_1600"),
        ("Ch1=a,,0.1", "Ch1=a,,nan"),
    ],
)
def test_an_incorrect_brainvision_header_is_refused(
    tmp_path: Path, true: str, lie: str
) -> None:
    brainvision(tmp_path, "lie", ["a", "b", "c"], noise(), RATE)
    path = tmp_path / "lie.vhdr"
    assert true in path.read_text()
    path.write_text(path.read_text().replace(true, lie))
    with pytest.raises(DataError, match=r"lie\.vhdr"):
        read(path)


def test_an_xdf_chunk_longer_than_its_file_is_refused(tmp_path: Path) -> None:
    samples = Samples(
        noise().T,
        RATE,
        50.0 + np.arange(1000) / RATE,
        labels=["a", "b", "c"],
        units=["uV"] * 3,
    )
    path = xdf(tmp_path / "lie.xdf", samples, Marker([(51.0, "go")]))
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\x08" + struct.pack("<Q", 2**62) + content[6:])
    with pytest.raises(DataError, match=r"lie\.xdf"):
        read(path)


@pytest.mark.parametrize("data", ["inside", "beside"])
def test_an_eeglab_file_with_fewer_samples_than_stated_is_refused(
    tmp_path: Path, data: str
) -> None:
    fields = {
        "nbchan": 3,
        "pnts": 10**9,
        "trials": 1,
        "srate": 100.0,
        "xmin": 0.0,
        "xmax": 1e7,
    }
    empty = {name: np.array([]) for name in ("chanlocs", "event", "epoch")}
    savemat(
        tmp_path / "lie.set",
        {"EEG": fields | empty | {"data": noise() if data == "inside" else "lie.fdt"}},
    )
    (tmp_path / "lie.fdt").write_bytes(b"\0" * 12000)
    with pytest.raises(DataError, match=r"lie\.set"):
        read(tmp_path / "lie.set")


def test_stated_samples_are_found_in_all_variants_of_eeglab_files(
    tmp_path: Path,
) -> None:
    """Fields are variables of their own, or those of one structure, in files before and of MATLAB 7.3."""
    savemat(tmp_path / "flat.set", {"pnts": 1000, "nbchan": 3})
    savemat(tmp_path / "struct.set", {"EEG": {"pnts": 1000}})
    hdf5(tmp_path / "new.set", EEG={"pnts": 1000.0})
    hdf5(tmp_path / "newest.set", pnts=1000.0)
    savemat(tmp_path / "silent.set", {"EEG": {"nbchan": 3}})
    names = ("flat", "struct", "new", "newest", "silent")
    assert [samples_stated(tmp_path / f"{name}.set") for name in names] == [
        1000
    ] * 4 + [None]


def test_an_nwb_file_with_externally_stored_samples_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["secret"] = np.arange(10)
    with h5py.File(tmp_path / "lie.nwb", "w") as file:
        file["acquisition/series"] = h5py.ExternalLink(
            str(tmp_path / "other.h5"), "secret"
        )
    with pytest.raises(
        DataError, match="is a link to another file, which no pin covers"
    ):
        refuse_outside_storage(tmp_path / "lie.nwb")
