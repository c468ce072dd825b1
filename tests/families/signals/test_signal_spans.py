"""Annotations in a separate file: how the file is found and read, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest
from pydantic import ValidationError

from neuroledger.errors import DataError
from neuroledger.families.signals.readers.mne_epochs import mne_epochs
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_spans import (
    AnnotationFile,
    Span,
    annotation_file_of,
    fields_in,
)
from neuroledger.families.signals.recordings.signal_windows import Window, lay
from tests.families.signals.recording_files import edf, edf_annotations

RULE = AnnotationFile(
    recording="SC4{subject:2}{session:1}??-PSG.edf",
    file="SC4{subject:2}{session:1}??-Hypnogram.edf",
    ignore=("Sleep stage ?", "Movement time"),
)
STAGES = {
    "Sleep stage W": "W",
    "Sleep stage 1": "N1",
    "Sleep stage 2": "N2",
    "Sleep stage 4": "N3",
}
NIGHT = Window(start=0.0, duration=30.0, stride=30.0, labels=STAGES)
SPANS = [
    (0, 120, "Sleep stage W"),
    (120, 30, "Sleep stage 1"),
    (150, 90, "Sleep stage 2"),
    (240, 15, "Movement time"),
    (255, 45, "Sleep stage 4"),
    (300, 86100, "Sleep stage ?"),
]
ONE = (Recording(file="SC4001E0-PSG.edf", subject="00"),)


def signals(seconds: int = 300, rate: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "EEG Fpz-Cz": rng.normal(size=seconds * rate) * 10,
        "EEG Pz-Oz": np.arange(seconds * rate) / rate,
        "EOG horizontal": rng.normal(size=seconds * rate),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    edf(tmp_path / "SC4001E0-PSG.edf", signals(), 100)
    edf_annotations(tmp_path / "SC4001EC-Hypnogram.edf", SPANS)
    return tmp_path


def files(folder: Path) -> dict[str, Path]:
    return {
        p.relative_to(folder).as_posix(): p
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


PICKED = Preprocessing(strip=("EEG ",), channels=("pz-oz",))


def windows(
    folder: Path,
    window: Window = NIGHT,
    rule: AnnotationFile = RULE,
    steps: Preprocessing = PICKED,
) -> Any:
    data = mne_epochs(
        files(folder),
        recordings=ONE,
        window=window,
        preprocessing=steps,
        annotations=rule,
    )
    return data.assembly


def test_windows_of_a_separate_hypnogram_cover_the_recording(folder: Path) -> None:
    found = windows(folder)
    assert found["label"].values.tolist() == ["W"] * 4 + ["N1"] + ["N2"] * 3 + ["N3"]
    assert found["onset"].values.tolist() == [0, 30, 60, 90, 120, 150, 180, 210, 255]
    assert found["channel_id"].values.tolist() == ["pz-oz"]
    assert found["stimulus_id"].values[-1] == "Sleep stage 4"
    np.testing.assert_allclose(found.values[:, 0, 0], found["onset"].values, atol=0.01)


def test_wake_far_from_sleep_is_left_out_and_time_to_sleep_is_recorded(
    folder: Path,
) -> None:
    edges = Window.model_validate(
        NIGHT.model_dump() | {"edges": {"label": "W", "keep": 60.0}}
    )
    assert windows(folder, edges)["onset"].values[:3].tolist() == [60, 90, 120]
    rule = RULE.model_copy(
        update={
            "ignore": (*RULE.ignore, "Sleep stage W", "Sleep stage 1", "Sleep stage 4")
        }
    )
    countdown = {
        "to": ["Sleep stage 2"],
        "name": "seconds_to_sleep",
        "within": 92.0,
        "cap": 60.0,
    }
    window = Window.model_validate(
        {"start": 0, "duration": 5, "stride": 5, "countdown": countdown}
    )
    found = windows(folder, window, rule)
    assert found["onset"].values[[0, -1]].tolist() == [58, 143]
    assert found["seconds_to_sleep"].values[[0, 6, 7, -1]].tolist() == [60, 57, 52, 2]
    without = Window.model_validate(
        window.model_dump() | {"countdown": countdown | {"to": ["N2"]}}
    )
    edf_annotations(folder / "SC4001EC-Hypnogram.edf", [(0, 300, "Movement time")])
    with pytest.raises(DataError, match="no recording has a window"):
        windows(folder, without, rule)


def test_annotations_are_shifted_if_the_files_start_at_different_times(
    folder: Path,
) -> None:
    edf_annotations(
        folder / "SC4001EC-Hypnogram.edf", SPANS[:1], started=("01.01.20", "22.01.00")
    )
    with pytest.raises(
        DataError,
        match="begins 60 s after its recording by the clock: declare under `annotations`",
    ):
        windows(folder)
    clock = windows(folder, rule=RULE.model_copy(update={"aligned": "clock"}))
    assert clock["onset"].values.tolist() == [60, 90, 120, 150]
    start = windows(folder, rule=RULE.model_copy(update={"aligned": "start"}))
    assert start["onset"].values.tolist() == [0, 30, 60, 90]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda f: (f / "SC4001EC-Hypnogram.edf").unlink(),
            r"SC4001E0-PSG\.edf has no annotations: the file SC4001\?\?-Hypnogram\.edf is missing",
        ),
        (
            lambda f: edf_annotations(f / "SC4001EH-Hypnogram.edf", SPANS),
            r"has 2 files of annotations, SC4001EC-Hypnogram\.edf, SC4001EH-Hypnogram\.edf: keep one",
        ),
        (
            lambda f: edf_annotations(
                f / "SC4001EC-Hypnogram.edf", [(270, 60, "Sleep stage W")]
            ),
            r"'Sleep stage W' from 270 to 330 s reaches beyond the recording of 300 s",
        ),
        (
            lambda f: edf_annotations(
                f / "SC4001EC-Hypnogram.edf", [(0, 60, "Sleep stage 3")]
            ),
            r"Hypnogram\.edf: the annotation 'Sleep stage 3' at 0 s is unknown",
        ),
        (
            lambda f: (f / "SC4001EC-Hypnogram.edf").write_bytes(b"no"),
            r"SC4001EC-Hypnogram\.edf cannot be read as annotations of EDF\+",
        ),
        (
            lambda f: edf_annotations(
                f / "SC4001EC-Hypnogram.edf", [(0, 20, "Sleep stage W")]
            ),
            "no window of 30 s is within the recording",
        ),
    ],
)
def test_an_invalid_pair_of_files_raises_one_error(
    folder: Path, change: Any, message: str
) -> None:
    change(folder)
    with pytest.raises(DataError, match=message):
        windows(folder)


def test_annotations_beyond_the_recording_can_be_cut(folder: Path) -> None:
    edf_annotations(
        folder / "SC4001EC-Hypnogram.edf",
        [(255, 60, "Sleep stage W"), (310, 60, "Sleep stage W")],
    )
    found = windows(folder, rule=RULE.model_copy(update={"beyond": "cut"}))
    assert found["onset"].values.tolist() == [255]


def test_annotation_files_are_matched_by_the_declared_pattern() -> None:
    deep = AnnotationFile(
        recording="{split}/{subject}/{name}.edf", file="{split}/{subject}/{name}.rec"
    )
    assert fields_in(deep, "edf/train/aaa/aaa_01.edf") == {
        "split": "train",
        "subject": "aaa",
        "name": "aaa_01",
    }
    names = ["edf/train/aaa/aaa_01.rec", "edf/eval/aaa/aaa_01.rec"]
    assert annotation_file_of(deep, "edf/train/aaa/aaa_01.edf", names) == names[0]
    stem = AnnotationFile(recording="{name}.edf", file="{name}_sleepscoring.edf")
    assert fields_in(stem, "SN001_sleepscoring.edf") is None
    assert annotation_file_of(
        stem, "a/SN001.edf", ["SN001_sleepscoring.edf", "a/SN001_sleepscoring.edf"]
    ).startswith("a/")
    with pytest.raises(DataError, match=r"recording x\.edf does not match SC4"):
        annotation_file_of(RULE, "x.edf", ["x.txt"])


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            {"recording": "{name}.edf", "file": "{stem}.rec"},
            r"needs \{stem\}, which '\{name\}.edf' does not have",
        ),
        (
            {"recording": "{name}.edf", "file": "all.rec"},
            "all recordings would share one file",
        ),
        ({"recording": "{Name}.edf", "file": "{Name}.rec"}, "write a placeholder as"),
        (
            {"recording": "{name}.edf", "file": "{name}.csv", "format": "table"},
            "a table needs `columns`",
        ),
        (
            {
                "recording": "{name}.edf",
                "file": "{name}.csv",
                "format": "table",
                "columns": {"onset": 0, "stop": "b", "description": 2},
            },
            "all names, or all positions",
        ),
        (
            {"recording": "{name}.edf", "file": "{name}.csv", "columns": {"onset": 0}},
            "apply to `format: table`",
        ),
    ],
)
def test_invalid_declarations_of_annotation_files_are_refused(
    rule: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        AnnotationFile.model_validate(rule)


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ({"over": "events"}, "need a `stride`"),
        (
            {"stride": 1, "over": "recording", "labels": {"a": "b"}},
            "the label of all other windows",
        ),
        ({"stride": 1, "otherwise": "x"}, "the label of all other windows"),
        (
            {"stride": 1, "labels": {"a": "b"}, "edges": {"label": "a", "keep": 3}},
            "no event is labelled 'a'",
        ),
        (
            {"stride": 1, "labels": {"a": "b"}, "trial_starts_with": "a"},
            "cannot be used with a `stride`",
        ),
        (
            {
                "stride": 1,
                "labels": {"a": "b"},
                "countdown": {"to": ["a"], "name": "t"},
            },
            "defines its own windows",
        ),
    ],
)
def test_contradictory_windows_are_refused(
    window: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        Window.model_validate({"start": 0, "duration": 1, **window})


def table(folder: Path, text: str, name: str = "SC4001E0-PSG.csv") -> None:
    (folder / "SC4001EC-Hypnogram.edf").unlink(missing_ok=True)
    (folder / name).write_text(text)


ARTEFACTS = AnnotationFile(
    recording="{name}.edf",
    file="{name}.csv",
    format="table",
    columns={"onset": "start_time", "stop": "stop_time", "description": "label"},
    split="_",
    merge=True,
    ignore=("bckg",),
)
TABLE = """# version = csv_v1.0.0
# duration = 300.0000 secs
#
channel,start_time,stop_time,label,confidence
FP1-F7,10.0000,11.5000,eyem,1.0000
F7-T3,10.5000,12.0000,eyem_musc,1.0000
FP1-F7,20.0000,20.5000,chew,1.0000
TERM,0.0,300.0,bckg,1.0
"""


def test_artefacts_on_any_channel_mark_the_windows_that_they_overlap(
    folder: Path,
) -> None:
    table(folder, TABLE)
    window = Window(
        start=-1,
        duration=3,
        stride=1,
        marks={"eyem": ("eyem",), "musc": ("musc",), "chew": ("chew",)},
    )
    found = windows(folder, window, ARTEFACTS)
    assert found.sizes["presentation"] == 298
    onsets = found["onset"].values
    for name, start, stop in (
        ("eyem", 10.0, 12.0),
        ("musc", 10.5, 12.0),
        ("chew", 20.0, 20.5),
    ):
        expected = (onsets - 1 < stop) & (onsets + 2 > start)
        np.testing.assert_array_equal(found[name].values, expected.astype(int))
    events = Window(
        start=-1,
        duration=3,
        stride=1,
        over="events",
        marks={"eyem": ("eyem",), "rest": ("musc", "chew")},
    )
    laid = windows(folder, events, ARTEFACTS)
    assert laid["onset"].values.tolist() == [10, 10.5, 11]
    assert laid["rest"].values.tolist() == [1, 1, 1]
    assert laid["eyem"].values.tolist() == [1, 1, 1]


def test_a_table_without_header_is_read_by_position(folder: Path) -> None:
    table(
        folder,
        "13,90.4,91.4,6\n14,90.4,91.4,6\n13,91.4,93.4,6\n3,200,201,1\n",
        "SC4001E0-PSG.rec",
    )
    rule = AnnotationFile(
        recording="{name}.edf",
        file="{name}.rec",
        format="table",
        merge=True,
        columns={"onset": 1, "stop": 2, "description": 3},
    )
    window = Window(
        start=-1,
        duration=3,
        stride=1,
        over="events",
        marks={"bckg": ("6",), "spsw": ("1",)},
    )
    found = windows(folder, window, rule)
    np.testing.assert_allclose(found["onset"].values, [90.4, 91.4, 92.4, 200])
    assert found["bckg"].values.tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TABLE.replace("stop_time", "end"),
            r"PSG\.csv has no column stop_time; it has channel, start_time, end",
        ),
        (
            TABLE.replace("20.5000", "x"),
            r"PSG\.csv:7: 'FP1-F7,20\.0000,x,chew,1\.0000' is not an annotation",
        ),
        (
            TABLE.replace("20.5000", "19"),
            r"PSG\.csv:7: an annotation that begins at 20 s lasts -1 s",
        ),
        (
            TABLE.replace("20.5000", "nan"),
            r"PSG\.csv:7: an annotation that begins at 20 s lasts nan s",
        ),
        ("", r"PSG\.csv is empty"),
    ],
)
def test_invalid_annotation_tables_are_reported_with_file_and_line(
    folder: Path, text: str, message: str
) -> None:
    table(folder, text)
    with pytest.raises(DataError, match=message):
        windows(
            folder,
            Window(
                start=0, duration=1, stride=1, marks={"eyem": ("eyem", "musc", "chew")}
            ),
            ARTEFACTS,
        )


def test_windows_over_a_recording_take_the_label_with_the_longest_overlap() -> None:
    window = Window(
        start=0,
        duration=5,
        stride=5,
        over="recording",
        labels={"sz*": "seizure", "a": "other"},
        otherwise="background",
    )
    spans = [Span(7, 5, "sz*"), Span(10, 4, "a"), Span(21, 0, "sz*")]
    laid = lay(window, spans, 30, {}, "x", complete=False)
    assert laid.extra["label"] == [
        "background",
        "seizure",
        "other",
        "background",
        "seizure",
        "background",
    ]


def test_channels_are_selected_by_name_and_filters_beyond_the_rate_are_refused(
    folder: Path,
) -> None:
    with pytest.raises(
        DataError, match="has no channel Oz; it has Fpz-Cz, Pz-Oz, EOG horizontal"
    ):
        windows(folder, steps=Preprocessing(strip=("EEG ",), channels=("Oz",)))
    with pytest.raises(
        DataError, match="100 samples per second, and nothing above 50 Hz"
    ):
        windows(
            folder,
            steps=Preprocessing(strip=("EEG ",), channels=("Fpz-Cz",), low_pass=75.0),
        )
    edf(
        folder / "SC4001E0-PSG.edf",
        {"EEG A-REF": np.zeros(100), "EEG A-LE": np.ones(100)},
        100,
    )
    edf_annotations(folder / "SC4001EC-Hypnogram.edf", [(0, 1, "Sleep stage ?")])
    with pytest.raises(DataError, match="two channels are named A"):
        windows(folder, steps=Preprocessing(strip=("EEG ", "-REF", "-LE")))


@pytest.mark.parametrize("dated", [False, True])
def test_annotation_times_start_at_the_first_sample_with_or_without_a_date(
    tmp_path: Path, dated: bool
) -> None:
    info = mne.create_info(["Cz"], 100.0, "eeg")
    raw = mne.io.RawArray(
        np.arange(1000.0)[None] * 1e-6, info, first_samp=500, verbose="ERROR"
    )
    if dated:
        raw.set_meas_date(1_000_000_000)
    raw.set_annotations(mne.Annotations([2.0], [0.0], ["left"]))
    raw.save(tmp_path / "one_raw.fif", verbose="ERROR")
    data = mne_epochs(
        {"one_raw.fif": tmp_path / "one_raw.fif"},
        recordings=(Recording(file="one_raw.fif", subject="1"),),
        window=Window(start=0.0, duration=0.5, labels={"left": "L"}),
    )
    assert data.assembly["onset"].values.tolist() == pytest.approx([2.0])
    assert data.assembly.values[0, 0, 0] == pytest.approx(200.0)
