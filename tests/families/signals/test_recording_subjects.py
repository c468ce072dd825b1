"""Subjects of recordings are stated or refused; events are annotations, or the codes of a stimulus channel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.data.load import load_dataset
from neuroledger.data.memory import mapped
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import RequestError
from neuroledger.families.signals.pinning.scan_downloads import recordings_in
from neuroledger.families.signals.recordings.signal_spans import own_spans
from neuroledger.spec.catalog import open_catalog
from neuroledger.store.store import open_store
from tests.data.test_pin import place
from tests.families.signals.recording_files import edf

__all__ = ["place"]

RATE = 64


def folder_of_edf(folder: Path, *names: str) -> Path:
    for seed, name in enumerate(names):
        rng = np.random.default_rng(seed)
        edf(
            folder / name,
            {one: rng.normal(0, 10, RATE * 14) for one in ("Cz", "Pz", "Oz")},
            RATE,
        )
    return folder


def without(place: Path, *pairs: tuple[str, str]) -> None:
    path = place / "specs" / "datasets" / "Rest.yaml"
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def test_file_names_are_not_used_as_subjects(place: Path, tmp_path: Path) -> None:
    folder = folder_of_edf(tmp_path / "download", "left.edf", "right.edf", "rest.edf")
    path = place / "specs" / "datasets" / "Rest.yaml"
    before = path.read_text()
    with pytest.raises(
        RequestError,
        match=r"does not state the subjects of 3 recordings: left\.edf, .*--named",
    ) as refused:
        pin(open_catalog(place), "Rest", Downloads(folder=folder))
    assert "recordings.tsv" in str(refused.value)
    assert path.read_text() == before
    assert not (place / "data").exists()


def test_a_declared_pattern_gives_subjects_and_labels(
    place: Path, tmp_path: Path
) -> None:
    names = [f"S{person:02d}_{part}.edf" for person in range(6) for part in (1, 2)]
    folder = folder_of_edf(tmp_path / "download", *names, "notes.edf")
    without(
        place,
        (
            "  recordings: []",
            "  recordings: []\n  named:\n    S{subject}_1.edf: {label: rest}\n    S{subject}_2.edf: {label: task}",
        ),
    )
    done = pin(open_catalog(place), "Rest", Downloads(folder=folder))
    assert done.subjects == 6
    assert any(
        "1 recordings do not match" in remark and "notes.edf" in remark
        for remark in done.remarks
    )
    data = load_dataset(open_catalog(place), "Rest").assembly
    assert data is not None
    known = set(
        zip(data["subject"].values.tolist(), data["label"].values.tolist(), strict=True)
    )
    assert known == {
        (f"{person:02d}", label) for person in range(6) for label in ("rest", "task")
    }


def test_a_pattern_from_the_command_is_stored_in_the_spec(
    place: Path, tmp_path: Path
) -> None:
    folder = folder_of_edf(
        tmp_path / "download",
        *(f"S{person}_{label}.edf" for person in range(6) for label in "ab"),
    )
    done = pin(
        open_catalog(place),
        "Rest",
        Downloads(folder=folder, named=("S{subject}_{label}.edf",)),
    )
    assert done.subjects == 6
    assert "S{subject}_{label}.edf" in done.after
    again = pin(open_catalog(place), "Rest", Downloads(folder=folder))
    assert again.after == done.after


def test_identical_files_of_two_subjects_raise_an_error_that_names_both(
    place: Path, tmp_path: Path
) -> None:
    folder = folder_of_edf(
        tmp_path / "download",
        *(f"S{person}_{label}.edf" for person in range(6) for label in "ab"),
    )
    (folder / "S4_a.edf").write_bytes((folder / "S1_a.edf").read_bytes())
    with pytest.raises(
        RequestError, match=r"S1_a\.edf of 1 and S4_a\.edf of 4 contain the same bytes"
    ):
        pin(
            open_catalog(place),
            "Rest",
            Downloads(folder=folder, named=("S{subject}_{label}.edf",)),
        )


def test_all_problems_of_a_folder_are_reported_at_once(
    place: Path, tmp_path: Path
) -> None:
    folder = folder_of_edf(
        tmp_path / "download", *(f"S{person}.edf" for person in range(5))
    )
    (folder / "S3.edf").write_bytes((folder / "S2.edf").read_bytes())
    without(place, (", stride: 1.0", ""))
    with pytest.raises(RequestError) as refused:
        pin(
            open_catalog(place),
            "Rest",
            Downloads(folder=folder, named=("S{subject}.edf",)),
        )
    said = str(refused.value)
    for problem in (
        "contain the same bytes",
        "--event DESCRIPTION=LABEL",
        "expects 6 subjects",
        "needs label",
    ):
        assert problem in said, problem


def test_other_mne_files_are_not_recordings_and_samples_can_have_the_suffix_dat(
    tmp_path: Path,
) -> None:
    names = [
        "sub-1_task-x_meg.fif",
        "sub-1_task-x_meg-eve.fif",
        "sub-1_task-x_epo.fif",
        "sub-2_eeg.vhdr",
        "sub-2_eeg.dat",
        "sub-2_eeg.vmrk",
    ]
    recordings = recordings_in(tmp_path, names)
    assert [(item.file, item.companions) for item in recordings] == [
        ("sub-1_task-x_meg.fif", ()),
        ("sub-2_eeg.vhdr", ("sub-2_eeg.dat", "sub-2_eeg.vmrk")),
    ]
    with pytest.raises(
        RequestError,
        match=r"sub-2_eeg.vhdr cannot be opened without sub-2_eeg\.eeg\n.*sub-3_eeg.vhdr",
    ):
        recordings_in(tmp_path, ["sub-2_eeg.vhdr", "sub-2_eeg.vmrk", "sub-3_eeg.vhdr"])


def stimulated(
    codes: dict[int, int], annotations: tuple[str, ...] = (), first: int = 0
) -> Any:
    import mne

    values = np.zeros((2, RATE * 10))
    for sample, code in codes.items():
        values[1, sample : sample + 3] = code
    info = mne.create_info(["Cz", "STI 014"], RATE, ["eeg", "stim"])
    raw = mne.io.RawArray(values, info, first_samp=first, verbose="ERROR")
    raw.set_annotations(
        mne.Annotations([1.0] * len(annotations), 0.5, list(annotations))
    )
    return raw


@pytest.mark.parametrize("first", [0, 1000])
def test_stimulus_channel_codes_are_events_if_there_are_no_annotations(
    first: int,
) -> None:
    codes = {64: 1, 128: 2, 320: 1}
    expected = [(1.0, "1"), (2.0, "2"), (5.0, "1")]
    assert [
        (span.onset, span.description)
        for span in own_spans(stimulated(codes, first=first))
    ] == expected
    spoiled = own_spans(stimulated(codes, ("BAD_segment",), first=first))
    assert [(span.onset, span.description) for span in spoiled][1:] == expected
    annotated = own_spans(stimulated(codes, ("go",)))
    assert [span.description for span in annotated] == ["go"]


def test_codes_are_preserved_in_a_fif_file(tmp_path: Path) -> None:
    import mne

    path = tmp_path / "x_raw.fif"
    stimulated({64: 1, 128: 40000}, first=500).save(path, fmt="double", verbose="ERROR")
    spans = own_spans(mne.io.read_raw_fif(path, verbose="ERROR"))
    assert [(span.onset, span.description) for span in spans] == [
        (1.0, "1"),
        (2.0, "40000"),
    ]


def test_stored_windows_are_memory_mapped_and_not_evicted_while_in_use(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"S{person}_{label}.edf" for person in range(6) for label in "ab"]
    folder = folder_of_edf(tmp_path / "download", *names)
    pin(
        open_catalog(place),
        "Rest",
        Downloads(folder=folder, named=("S{subject}_{label}.edf",), check=False),
    )
    expected = load_dataset(open_catalog(place), "Rest").assembly
    monkeypatch.setattr(
        "neuroledger.families.signals.recordings.window_store.IN_MEMORY", 100
    )
    data = load_dataset(open_catalog(place), "Rest").assembly
    assert expected is not None and data is not None
    assert mapped(expected.variable._data) is None
    assert mapped(data.variable._data) is not None
    assert data.identical(expected)
    store = open_store(place)
    (entry,) = (one.place for one in store.entries())
    assert store.make_room(1 << 60) >= 0
    assert entry.is_dir(), "it is in use"
    del data
    store.make_room(1 << 60)
    assert not entry.is_dir()
