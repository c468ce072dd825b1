"""Words shown one by one: triggers become sentences of several laboratories; invalid downloads are refused."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.errors import DataError
from neuroledger.families.signals.language.word_triggers import (
    Marker,
    Sentence,
    cleaned,
    read_in,
)
from neuroledger.spec.registry import get
from tests.families.signals.word_files import (
    RATE,
    RAW,
    SCALP,
    WORKBOOK,
    Trial,
    packed,
    record,
    stimuli,
    text,
    triggers,
)

TRIALS = [
    Trial("prediction", 3, "expected", 6.0),
    Trial("prediction", 4, "unexpected", 16.0),
    Trial("control", 4, "incorrect", 26.0),
]
LABORATORIES: dict[str, dict[str, Any]] = {
    "BIRM": {
        "archives": ["VHDR+VMRK.zip", "Extra.zip"],
        "recording": "birm{subject}*.eeg",
        "leave_out": [7],
    },
    "BRIS": {"recording": "bris{subject}_{task}.vhdr"},
    "EDIN": {"recording": "edin{subject}.bdf"},
    "KENT": {"recording": "kent{subject}.vhdr"},
    "YORK": {"archives": ["P1_to_P13_vmrk_vhdr.zip"], "recording": "YORK{subject}.eeg"},
}
TOLD: dict[str, Any] = {
    "archive": "Stimuli/Stimuli.zip",
    "workbook": WORKBOOK,
    "laboratories": {
        name: {"folder": f"{RAW}/{name}", **rule} for name, rule in LABORATORIES.items()
    },
    "window": {"start": -0.2, "duration": 0.4},
    "practice": 1,
    "preprocessing": {"units": "uV"},
}


def signal(trials: list[Trial]) -> np.ndarray:
    """Noise, and a pulse on Cz at each word."""
    values = np.random.default_rng(0).standard_normal((len(SCALP), 32 * RATE))
    for trial in trials:
        for position, _ in enumerate(text(*trial[:3])):
            values[SCALP.index("Cz"), round((trial.at + 0.5 * position) * RATE)] += (
                200.0
            )
    return values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "osfstorage"
    stimuli(root, range(1, 6))
    sent, values = triggers(TRIALS), signal(TRIALS)
    for laboratory, subject in (
        ("BIRM", 1),
        ("BIRM", 7),
        ("BIRM", 19),
        ("EDIN", 2),
        ("KENT", 3),
        ("YORK", 5),
    ):
        record(root, laboratory, subject, values, sent)
    for task, some in (("main", TRIALS[:2]), ("control", TRIALS[2:])):
        record(root, "BRIS", 1, signal(some), triggers(some), task)
    extra = [f"birm19.{part}" for part in ("vhdr", "vmrk", "eeg")]
    heads = [f"birm{n:02d}.{part}" for n in (1, 7) for part in ("vhdr", "vmrk")]
    packed(
        root,
        "BIRM",
        {"VHDR+VMRK.zip": ("VHDR+VMRK/", heads), "Extra.zip": ("Extra/", extra)},
    )
    packed(
        root, "YORK", {"P1_to_P13_vmrk_vhdr.zip": ("", ["YORK5.vmrk", "YORK5.vhdr"])}
    )
    (root / RAW / "BIRM/EPrime Output").mkdir()
    (root / RAW / "BIRM/EPrime Output/x-9-1.edat2").write_bytes(b"")
    return tmp_path


def files(folder: Path) -> dict[str, Path]:
    return {
        p.relative_to(folder).as_posix(): p
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".cache" not in p.parts
    }


def read(folder: Path, **changed: Any) -> Any:
    component = get("reader", "read_words")
    return component.function(files(folder), **component.bind({**TOLD, **changed}))


def test_words_of_every_laboratory_have_correct_onsets(folder: Path) -> None:
    data = read(folder)
    windows = data.assembly
    subjects = ["BIRM_1", "BIRM_19", "BRIS_1", "EDIN_2", "KENT_3", "YORK_5"]
    words = [word for trial in TRIALS for word in text(*trial[:3])]
    assert sorted(set(windows["subject"].values.tolist())) == subjects
    assert windows.sizes == {
        "presentation": 6 * len(words),
        "channel": 7,
        "sample": RATE * 2 // 5,
    }
    cz = windows.values[:, windows["channel_id"].values.tolist().index("Cz"), :]
    assert (cz.argmax(axis=1) == RATE // 5).all()
    for subject in subjects:
        mine = windows[windows["subject"].values == subject]
        mine = mine[np.argsort(mine["kind"].values == "control", kind="stable")]
        assert mine["word"].values.tolist() == words
    assert windows["stimulus_id"].values[3] == cleaned(words[3]) == "because"
    assert {"else's", "by", "loudly"} <= set(windows["stimulus_id"].values.tolist())
    assert set(windows["run"].values[windows["subject"].values == "BRIS_1"]) == {
        "main",
        "control",
    }
    assert set(windows["version"].values) == {"expected", "unexpected", "incorrect"}
    assert data.notes == ()
    clusters = dict(
        zip(
            windows["sentence"].values.tolist(),
            windows["sentence_cluster"].values.tolist(),
            strict=True,
        )
    )
    assert len(clusters) == 3 and len(set(clusters.values())) >= 2


def test_shared_channels_are_kept_with_the_names_of_the_montage(folder: Path) -> None:
    windows = read(folder).assembly
    # One cap has no Oz, others have further electrodes and eye channels; `Af3` and `FP1` are AF3 and Fp1.
    assert sorted(windows["channel_id"].values.tolist()) == sorted(set(SCALP) - {"Oz"})
    assert set(windows["channel_type"].values.tolist()) == {"eeg"}
    assert np.isfinite(windows["x"].values).all()


def test_every_word_of_the_list_is_one_stimulus(folder: Path) -> None:
    component = get("stimuli", "read_words")
    parameters = component.bind({"archive": TOLD["archive"], "workbook": WORKBOOK})
    table = component.function(files(folder), **parameters)
    assert (
        table["stimulus_id"].is_unique and (table["stimulus_id"] == table["text"]).all()
    )
    assert set(read(folder).assembly["stimulus_id"].values.tolist()) <= set(
        table["stimulus_id"]
    )
    assert "" not in set(table["stimulus_id"]) and "airplane5" in set(
        table["stimulus_id"]
    )


def test_only_required_files_are_selected(folder: Path) -> None:
    component = get("reader", "read_words")
    assert component.reads is not None
    chosen = component.reads(list(files(folder)), component.bind(TOLD))
    short = sorted(name.removeprefix(f"osfstorage/{RAW}/") for name in chosen)
    assert short == sorted(
        [
            "BIRM/Extra.zip",
            "BIRM/VHDR+VMRK.zip",
            "BIRM/birm01.eeg",
            "EDIN/edin2.bdf",
            *(
                f"BRIS/bris01_{task}.{part}"
                for task in ("main", "control")
                for part in ("eeg", "vhdr", "vmrk")
            ),
            *(f"KENT/kent0003.{part}" for part in ("eeg", "vhdr", "vmrk")),
            "YORK/P1_to_P13_vmrk_vhdr.zip",
            "YORK/YORK5.eeg",
            "osfstorage/Stimuli/Stimuli.zip",
        ]
    )


def test_samples_with_another_name_than_in_the_header_are_found_and_hashed(
    folder: Path,
) -> None:
    place = folder / "osfstorage" / RAW
    (place / "BIRM/birm01.eeg").rename(place / "BIRM/Birm01_second.eeg")
    (place / "KENT/kent0003.eeg").rename(place / "KENT/KENT0003.EEG")
    windows = read(folder).assembly
    hashes = dict(
        zip(
            windows["subject"].values.tolist(),
            windows["recording_sha256"].values.tolist(),
            strict=True,
        )
    )
    samples = {
        "BIRM_1": "BIRM/Birm01_second.eeg",
        "KENT_3": "KENT/KENT0003.EEG",
        "EDIN_2": "EDIN/edin2.bdf",
    }
    for subject, name in samples.items():
        assert (
            hashes[subject] == hashlib.sha256((place / name).read_bytes()).hexdigest()
        )
    with zipfile.ZipFile(place / "BIRM/Extra.zip") as held:
        assert (
            hashes["BIRM_19"]
            == hashlib.sha256(held.read("Extra/birm19.eeg")).hexdigest()
        )
    header = place / "KENT/kent0003.vhdr"
    header.write_text(
        header.read_text(encoding="utf-8").replace("DataFile", "Data"), encoding="utf-8"
    )
    with pytest.raises(DataError, match=r"kent0003\.vhdr has no line DataFile="):
        read(folder)


def test_left_out_sentences_are_counted_and_too_many_are_refused(folder: Path) -> None:
    lost = [pair for pair in triggers(TRIALS) if pair[0] != 6.5]  # one word's trigger
    record(folder / "osfstorage", "EDIN", 2, signal(TRIALS), lost)
    with pytest.raises(
        DataError,
        match=r"edin2\.bdf: of 3 sentences, 1 do not match the list.*9 words came, and item 3",
    ):
        read(folder)
    data = read(folder, tolerate=0.4)
    assert data.notes == (
        "1 sentences in 1 of 7 recordings were left out: their triggers are not those of a sentence of the list",
    )
    mine = data.assembly[data.assembly["subject"].values == "EDIN_2"]
    assert set(mine["item"].values.tolist()) == {"4"} and set(
        mine["left_out"].values.tolist()
    ) == {"1"}


def test_windows_that_exceed_memory_are_stored_with_the_counts_of_left_out_sentences(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = [pair for pair in triggers(TRIALS) if pair[0] != 6.5]
    record(folder / "osfstorage", "EDIN", 2, signal(TRIALS), lost)
    windows = read(folder, tolerate=0.4)
    monkeypatch.setattr(
        "neuroledger.families.signals.recordings.window_store.IN_MEMORY", 1
    )
    first = read(folder, tolerate=0.4)
    assert list(tmp_path.glob(".cache/neuroledger/windows/??/*/values.bin"))
    monkeypatch.setattr(
        "neuroledger.families.signals.readers.read_words.cut", None
    )  # nothing is cut a second time
    again = read(folder, tolerate=0.4)
    for kept in (first, again):
        assert kept.notes == windows.notes and len(kept.notes) == 1
        np.testing.assert_array_equal(kept.assembly.values, windows.assembly.values)
        assert (
            kept.assembly["word"].values.tolist()
            == windows.assembly["word"].values.tolist()
        )


def _trigger(code: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for who in (("EDIN", 2), ("KENT", 3)):
            record(
                folder / "osfstorage",
                *who,
                signal(TRIALS),
                [*triggers(TRIALS), (30.5, code), (31.0, 190)],
            )

    return change


def _removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "osfstorage" / name).unlink()


def _book(member: str, content: bytes = b"") -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        with zipfile.ZipFile(folder / "osfstorage/Stimuli/Stimuli.zip", "w") as held:
            held.writestr(member, content)

    return change


def _twice(folder: Path) -> None:
    place = folder / "osfstorage" / RAW / "EDIN"
    shutil.copy(place / "edin2.bdf", place / "edin02.bdf")


CASES: list[tuple[Callable[[Path], Any], str]] = [
    (
        _trigger(254),
        r"2 of 7 recordings have unknown triggers, first edin2\.bdf: 190 \(1 times\), 254 \(1 times\)",
    ),
    (_removed("Stimuli/Stimuli.zip"), r"Stimuli/Stimuli\.zip is not among the files"),
    (
        _removed(f"{RAW}/KENT/kent0003.vmrk"),
        r"kent0003\.vhdr lacks kent0003\.vmrk: it is neither .* nor in an archive",
    ),
    (
        _removed(f"{RAW}/BIRM/Extra.zip"),
        r"BIRM lacks Raw and Processed data/Raw data/BIRM/Extra\.zip",
    ),
    (
        lambda f: shutil.rmtree(f / "osfstorage" / RAW / "EDIN"),
        "EDIN has no recordings",
    ),
    (
        lambda f: packed(
            f / "osfstorage", "YORK", {"P1_to_P13_vmrk_vhdr.zip": ("", [])}
        ),
        r"YORK5\.eeg lacks YORK5\.vhdr: it is neither in the same folder nor in P1_to_P13_vmrk_vhdr\.zip",
    ),
    (
        _book("Stimuli/other.xlsx"),
        "Stimuli.zip has no Stimuli/Sentence Materials/REPLICATION_ITEMS.xlsx; it has",
    ),
    (_book(WORKBOOK, b"no workbook"), r"REPLICATION_ITEMS\.xlsx cannot be read"),
    (
        lambda f: record(
            f / "osfstorage", "EDIN", 2, signal(TRIALS), [(1.0, 300 % 256)]
        ),
        r"edin2\.bdf: of 0 sentences",
    ),
    (
        lambda f: record(f / "osfstorage", "EDIN", 2, signal(TRIALS), []),
        r"edin2\.bdf has no triggers",
    ),
    (
        _twice,
        "are both of subject 2: keep one",
    ),
    (
        lambda f: record(
            f / "osfstorage",
            "KENT",
            3,
            signal(TRIALS),
            [(at, 170 if code == 103 else code) for at, code in triggers(TRIALS)],
        ),
        r"kent0003\.vhdr: of 3 sentences, 1 do not match .* the list has no prediction item 70 \(expected\)",
    ),
]


@pytest.mark.parametrize(("change", "words"), CASES)
def test_inconsistent_downloads_raise_one_error(
    folder: Path, change: Callable[[Path], Any], words: str
) -> None:
    change(folder)
    with pytest.raises(DataError, match=words):
        read(folder)


def test_a_missing_sheet_or_column_is_named(folder: Path) -> None:
    import io

    import openpyxl

    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "Delong_Replication"
    sheet.append(["Item number", "Sentence context", "Expected", "Unexpected"])
    content = io.BytesIO()
    book.save(content)
    _book(WORKBOOK, content.getvalue())(folder)
    with pytest.raises(
        DataError,
        match=r"has no column expected_1, unexpected_1, sentence_ending; it has item_number",
    ):
        read(folder)


def test_a_sentence_is_identified_only_by_complete_and_unique_markers() -> None:
    one = Sentence("control", 2, "correct", ("The", "dog", "ran"))
    known = {("control", 2, "correct"): one}

    def why(*codes: int, practice: int = 0) -> list[tuple[str, bool]]:
        markers = [Marker(1.0 + 0.4 * n, code) for n, code in enumerate(codes)]
        return [
            (found.why, found.sentence is one)
            for found in read_in(markers, known, practice=practice)
        ]

    assert why(102, 255, 210, 255) == [("", True)]
    assert why(255, 255, 210, 255) == [("no item marker", False)]
    assert why(102, 255, 255, 255) == [
        ("no word or several words tell its version", False)
    ]
    assert why(102, 255, 210, 211) == [
        ("no word or several words tell its version", False)
    ]
    assert why(102, 255, 255, 210, 255) == [
        ("4 words came, and item 2 (correct) has 3", False)
    ]
    assert why(102, 255, 210, 255, practice=1) == [("practice", False)]
    assert why(200, 102, 255, 210, 255, practice=1) == [("", True)]
    assert why(251, 251, 251, 251) == [] and why(255, 255) == []
    # A pause of more than a second and a half ends a sentence, and what is sent in it belongs to the next.
    markers = [
        Marker(1.0, 102),
        Marker(1.5, 255),
        Marker(2.0, 210),
        Marker(2.5, 255),
        Marker(4.2, 102),
    ]
    markers += [Marker(4.6, 255), Marker(5.0, 255), Marker(5.5, 210)]
    assert [found.onsets for found in read_in(markers, known)] == [
        (1.5, 2.0, 2.5),
        (4.6, 5.0, 5.5),
    ]
