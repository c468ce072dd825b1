"""A recording consists of its own files: a header cannot include other files of the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.open_recordings import open_recording
from tests.families.signals.brainvision_files import brainvision

pytest.importorskip("mne")

PATHS = ["/usr/bin/env", "../other/x.eeg", "..\\other\\x.eeg", "/proc/self/environ"]


def recording(folder: Path) -> Path:
    brainvision(folder, "x", ["Cz"], np.arange(100.0)[None], 100)
    return folder / "x.vhdr"


@pytest.mark.parametrize("key", ["DataFile", "MarkerFile"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "written", ["{key}={path}", "  {key} = {path} ", "{key}: {path}"]
)
def test_a_header_that_names_a_file_outside_its_folder_is_refused(
    tmp_path: Path, key: str, path: str, written: str
) -> None:
    header = recording(tmp_path / "own")
    recording(tmp_path / "other")
    lines = header.read_text(encoding="utf-8").splitlines()
    lines = [
        written.format(key=key, path=path) if line.startswith(key) else line
        for line in lines
    ]
    header.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(DataError, match=f"outside its folder: correct line {key}="):
        open_recording(header)


def test_a_header_that_names_files_in_its_folder_is_read(tmp_path: Path) -> None:
    header = recording(tmp_path)
    header.write_text(
        header.read_text(encoding="utf-8").replace("DataFile=", "DataFile=./"),
        encoding="utf-8",
    )
    np.testing.assert_allclose(
        open_recording(header).get_data()[0] * 1e6, np.arange(100.0), atol=0.06
    )
