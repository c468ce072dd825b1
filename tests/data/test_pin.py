"""A folder of downloads becomes a data set that is checked, validated and scored, with one command and no code."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from neuroledger.cli import main
from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.data.pin.yaml_edit import inline, with_entries, with_field, without
from neuroledger.errors import DataError, IntegrityError, RequestError
from neuroledger.spec import registry
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.document import parse
from tests.families.signals.brainvision_files import brainvision

SCHEMA = "# yaml-language-server: $schema=../schema/{kind}.json\n"
SPEC = """\
id: Rest
version: 1
title: Resting EEG of two groups   # a remark
license: CC0-1.0
access_steps: ["`neuroledger pin Rest --from FOLDER --label Group`"]
# how it is cut
reader:
  name: mne_epochs
  recordings: []
  # seconds
  window: {start: 0.0, duration: 1.0, stride: 1.0}
  preprocessing: {pick: [eeg], units: uV}
expectations:
  assembly:
    - {check: dims, dims: [presentation, channel, sample]}
    - {check: distinct, column: subject, count: 6}
    - {check: values_finite}
unavailable: "Not pinned: follow access_steps."
"""
BENCHMARK = """\
id: Rest-group
version: 1
title: Which group a person belongs to
parent: eeg
dataset: Rest
paradigm: {name: decoding, splits: {name: cross_subject, folds: 3, stratify: null}}
metrics: [balanced_accuracy]
floor: {dummy: dummy}
"""
COPIED = {
    "models": ("dummy", "shrinkage_lda", "covariance_logistic"),
    "metrics": ("balanced_accuracy",),
}


def recording(seed: int, *, strong: bool, events: bool = False) -> Any:
    import mne

    rng = np.random.default_rng(seed)
    values = rng.standard_normal((3, 64 * 14)) * 1e-5
    values[0] *= 4.0 if strong else 1.0
    info = mne.create_info(["Cz", "Pz", "Oz"], 64.0, "eeg")
    info["line_freq"] = 50.0
    raw = mne.io.RawArray(values, info, verbose="ERROR")
    if events:
        onsets = np.arange(1, 12, 1.5)
        raw.set_annotations(
            mne.Annotations(onsets, 0.5, ["go", "stop"] * (len(onsets) // 2))
        )
    return raw


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    """A repository with the spec of a data set that is not here, a benchmark on it, and three decoders."""
    root = tmp_path / "place"
    for kind in ("datasets", "benchmarks", "models", "metrics"):
        (root / "specs" / kind).mkdir(parents=True)
    for kind, ids in COPIED.items():
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
            )
    shutil.copy(repository / "specs" / "references.bib", root / "specs")
    shutil.copy(repository / "params.yaml", root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    (root / "specs/datasets/Rest.yaml").write_text(SCHEMA.format(kind="dataset") + SPEC)
    (root / "specs/benchmarks/Rest-group.yaml").write_text(
        SCHEMA.format(kind="benchmark") + BENCHMARK
    )
    return root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Six people in two groups, written as BIDS by mne-bids."""
    return bids(tmp_path / "ds1")


def brain_vision(folder: Path, number: int, *, events: bool) -> Any:
    """One recording in the format of a BrainVision amplifier, read from disk as BIDS wants it."""
    import mne

    name, raw = f"raw{number}", recording(number, strong=number % 2 == 0, events=events)
    said = zip(raw.annotations.onset, raw.annotations.description, strict=True)
    markers = [(round(onset * 64), what) for onset, what in said]
    microvolts = raw.get_data() * 1e6
    brainvision(
        folder, name, raw.ch_names, microvolts, 64, markers, steps=None, kind="Comment"
    )
    read = mne.io.read_raw_brainvision(folder / f"{name}.vhdr", verbose="ERROR")
    read.info["line_freq"] = 50.0
    return read


def bids(root: Path, *, events: bool = False, people: int = 6) -> Path:
    import mne_bids

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(people):
            where = mne_bids.BIDSPath(
                subject=f"{number + 1:02d}", task="rest", datatype="eeg", root=root
            )
            raw = brain_vision(root.with_name("amplifier"), number, events=events)
            mne_bids.write_raw_bids(raw, where, overwrite=True, verbose="ERROR")
    lines = ["participant_id\tGroup\tAge\tHandedness"]
    lines += [
        f"sub-{n + 1:02d}\t{'AC'[n % 2]}\t{50 + n}\t{'n/a' if n == 3 else 'R'}"
        for n in range(people)
    ]
    (root / "participants.tsv").write_text("\n".join(lines) + "\n")
    derived = root / "derivatives" / "sub-01" / "eeg"
    derived.mkdir(parents=True)
    shutil.copy(root / "sub-01/eeg/sub-01_task-rest_eeg.vhdr", derived)
    return root


@pytest.mark.slow
def test_a_bids_folder_becomes_a_scored_benchmark_through_the_command_line(
    place: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    assert main(["pin", "Rest", "--from", str(tree), "--label", "Group"]) == 0
    shown = capsys.readouterr().out
    assert "pinned 18 files of 6 subjects, placed 18 of them in data/Rest/" in shown
    assert "column 'Handedness' left out: 1 of 6 recordings have no value" in shown
    assert '-unavailable: "Not pinned: follow access_steps."' in shown
    assert main(["check", "--write-schemas"]) == 0
    assert main(["validate"]) == 0
    assert (
        main(
            [
                "run",
                "shrinkage_lda",
                "covariance_logistic",
                "dummy",
                "--benchmark",
                "Rest-group",
            ]
        )
        == 0
    )
    records = place / "results" / "records" / "Rest-group"
    scores = {
        path.stem: json.loads(path.read_text())["score"]["value"]
        for path in records.glob("*.json")
    }
    assert scores["covariance_logistic"] > 0.9
    assert scores["dummy"] == 0
    spec = open_catalog(place).dataset("Rest")
    assert spec.unavailable is None
    assert spec.reader is not None
    first = spec.reader.parameters["recordings"][0]
    assert first["subject"] == "01"
    assert first["facts"] == {"group": "A", "age": 50, "label": "A"}
    assert spec.files["sub-01/eeg/sub-01_task-rest_eeg.vhdr"].by_hand
    assert not any("derivatives" in name for name in spec.files)


def test_pinning_again_changes_nothing_and_comments_stay(
    place: Path, tree: Path
) -> None:
    wanted = Downloads(folder=tree, label="Group")
    first = pin(open_catalog(place), "Rest", wanted)
    second = pin(open_catalog(place), "Rest", wanted)
    assert second.before == second.after == first.after
    assert second.placed == 0
    for kept in ("# a remark", "# how it is cut", "  # seconds\n  window:"):
        assert kept in first.after
    fields = [
        line.split(":")[0] for line in first.after.splitlines() if line[0].isalpha()
    ]
    assert fields == [
        "id",
        "version",
        "title",
        "license",
        "access_steps",
        "files",
        "reader",
        "expectations",
    ]


def test_an_edited_spec_keeps_its_remarks_and_sources_when_a_recording_changes(
    place: Path, tree: Path
) -> None:
    prefix = "https://data.example.org/ds1/"
    pin(
        open_catalog(place),
        "Rest",
        Downloads(folder=tree, label="Group", url_prefix=prefix),
    )
    path = place / "specs/datasets/Rest.yaml"
    text = path.read_text()
    entry = next(
        line for line in text.splitlines() if "sub-02_task-rest_eeg.eeg:" in line
    )
    path.write_text(text.replace(entry, f"  # noisy at the end\n{entry}"))
    changed = tree / "sub-02/eeg/sub-02_task-rest_eeg.eeg"
    other = changed.read_bytes()[:-12] + bytes(12)
    changed.unlink()
    changed.write_bytes(other)
    with pytest.raises(
        IntegrityError, match=r"it is another file; .* pin it with --renew"
    ):
        pin(open_catalog(place), "Rest", Downloads(folder=tree, label="Group"))
    meant = Downloads(folder=tree, label="Group", url_prefix=prefix, renew=True)
    with pytest.raises(IntegrityError, match="move it away, then pin again"):
        pin(open_catalog(place), "Rest", meant)
    (place / "data/Rest/sub-02/eeg/sub-02_task-rest_eeg.eeg").unlink()
    done = pin(open_catalog(place), "Rest", meant)
    assert (
        "  # noisy at the end\n  sub-02/eeg/sub-02_task-rest_eeg.eeg: {url: https://data.example.org/ds1/sub-02"
        in done.after
    )
    assert (
        len([line for line in done.after.splitlines() if line not in text.splitlines()])
        == 2
    )


def test_a_dry_run_shows_and_writes_nothing(
    place: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    before = (place / "specs/datasets/Rest.yaml").read_text()
    assert (
        main(["pin", "Rest", "--from", str(tree), "--label", "Group", "--dry-run"]) == 0
    )
    assert (
        "18 files of 6 subjects would be pinned; nothing was written"
        in capsys.readouterr().out
    )
    assert (place / "specs/datasets/Rest.yaml").read_text() == before
    assert not (place / "data").exists()


def test_others_bring_the_files_by_hand_through_their_own_folder(
    place: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    pin(open_catalog(place), "Rest", Downloads(folder=tree, label="Group"))
    shutil.rmtree(place / "data")
    assert main(["fetch", "Rest"]) == 4
    assert (
        "has no address: follow the data set's access_steps" in capsys.readouterr().err
    )
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(tree))
    assert main(["fetch", "Rest"]) == 0


@pytest.mark.parametrize(
    ("break_it", "options", "message"),
    [
        (lambda tree: None, {}, "benchmark Rest-group needs label of each window"),
        (
            lambda tree: None,
            {"label": "Diagnosis"},
            "has no column 'Diagnosis'; it has participant_id, Group, Age",
        ),
        (
            lambda tree: None,
            {"label": "Handedness"},
            "has no 'Handedness' in participants.tsv",
        ),
        (
            lambda tree: None,
            {"label": "Group", "task": "sleep"},
            "contains no recording of task 'sleep'",
        ),
        (lambda tree: None, {"label": "Group", "bids": True}, "--bids needs --task"),
        (
            lambda tree: shutil.rmtree(tree / "sub-06"),
            {"label": "Group"},
            "expects 6 subjects, .* contains 5",
        ),
        (
            lambda tree: (tree / "sub-01/eeg/sub-01_task-rest_eeg.vmrk").unlink(),
            {"label": "Group"},
            r"sub-01_task-rest_eeg\.vhdr names sub-01_task-rest_eeg\.vmrk, which is not here: add it",
        ),
        (
            lambda tree: (tree / "participants.tsv").unlink(),
            {"label": "Group"},
            "--label Group needs a table",
        ),
        (
            lambda tree: (tree / "participants.tsv").write_text(
                "participant_id\tGroup\nsub-01\tA\n"
            ),
            {"label": "Group"},
            "participants.tsv has no row for 02, 03",
        ),
        (shutil.rmtree, {"label": "Group"}, "is not a folder"),
    ],
)
def test_missing_facts_are_reported_and_nothing_is_written(
    place: Path, tree: Path, break_it: Any, options: dict[str, Any], message: str
) -> None:
    break_it(tree)
    before = (place / "specs/datasets/Rest.yaml").read_text()
    with pytest.raises(RequestError, match=message):
        pin(open_catalog(place), "Rest", Downloads(folder=tree, **options))
    assert (place / "specs/datasets/Rest.yaml").read_text() == before
    assert not (place / "data").exists()


def test_links_without_content_are_refused(place: Path, tree: Path) -> None:
    header = tree / "sub-03/eeg/sub-03_task-rest_eeg.vhdr"
    header.unlink()
    header.symlink_to("../../.git/annex/objects/nowhere")
    with pytest.raises(
        RequestError, match=r"1 recordings .* are links without content, first sub-03"
    ):
        pin(open_catalog(place), "Rest", Downloads(folder=tree, label="Group"))


def around_events(place: Path) -> Path:
    path = place / "specs/datasets/Rest.yaml"
    path.write_text(
        path.read_text()
        .replace(", stride: 1.0", "")
        .replace("duration: 1.0", "duration: 0.5")
    )
    return path


def test_events_of_the_recordings_are_listed_until_they_are_named(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = around_events(place)
    folder = tmp_path / "plain"
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(6):
            recording(number, strong=False, events=True).save(
                folder / f"P{number} a_raw.fif", verbose="ERROR"
            )
    monkeypatch.chdir(place)
    named = ["--named", "{subject} a_raw.fif"]
    assert main(["pin", "Rest", "--from", str(folder), *named]) == 2
    assert "give their labels by --event DESCRIPTION=LABEL" in (
        said := capsys.readouterr().err
    )
    assert "has 'go', 'stop'" in said
    assert main(["pin", "Rest", "--from", str(folder), *named, "--event", "go"]) == 2
    assert (
        main(
            [
                "pin",
                "Rest",
                "--from",
                str(folder),
                *named,
                "--event",
                "go=left",
                "--event",
                "stop=right",
            ]
        )
        == 0
    )
    assert (
        "window: {start: 0.0, duration: 0.5, labels: {go: left, stop: right}}"
        in path.read_text()
    )
    assert "file: P0_a_raw.fif, subject: P0}" in path.read_text().replace('"', "")
    assert main(["validate", "Rest"]) == 0


def test_a_table_states_the_subjects_of_plain_files(
    place: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    rows = ["file\tsubject\tsession\tlabel"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(6):
            for session in ("am", "pm"):
                name = f"r{number}{session}_raw.fif"
                recording(number, strong=False).save(folder / name, verbose="ERROR")
                rows.append(f"{name}\tP{number}\t{session}\t{'xy'[number % 2]}")
    (folder / "recordings.tsv").write_text("\n".join(rows) + "\n")
    done = pin(open_catalog(place), "Rest", Downloads(folder=folder))
    assert done.subjects == 6
    assert done.files == 12
    assert (
        "    - {file: r0am_raw.fif, subject: P0, session: am, facts: {label: x}}"
        in done.after
    )


def test_through_mne_bids_events_and_facts_come_from_the_tables(
    place: Path, tmp_path: Path
) -> None:
    around_events(place)
    tree = bids(tmp_path / "ds2", events=True)
    wanted = Downloads(
        folder=tree,
        task="rest",
        bids=True,
        events={"Comment/go": "left", "Comment/stop": "right"},
    )
    done = pin(open_catalog(place), "Rest", wanted)
    assert "  name: bids_epochs\n" in done.after
    assert "recordings:" not in done.after
    assert "  facts: {group: Group, age: Age}" in done.after
    from neuroledger.data.load import load_dataset

    data = load_dataset(open_catalog(place), "Rest")
    assert data.assembly is not None
    assert sorted(set(data.assembly["label"].values.tolist())) == ["left", "right"]
    assert sorted(set(data.assembly["age"].values.tolist())) == [50, 51, 52, 53, 54, 55]
    assert pin(open_catalog(place), "Rest", wanted).after == done.after


def test_windows_that_are_cut_already_are_pinned_by_name(
    place: Path, tmp_path: Path
) -> None:
    from neuroledger.data import assembly
    from tests.families.decoding.decoding_cases import windows

    path = place / "specs/datasets/Rest.yaml"
    spec = yaml.safe_load(path.read_text())
    spec["reader"] = {"name": "prepared_signals"}
    path.write_text(
        SCHEMA.format(kind="dataset") + yaml.safe_dump(spec, sort_keys=False)
    )
    with pytest.raises(RequestError, match=r"lacks signals\.nc"):
        pin(open_catalog(place), "Rest", Downloads(folder=tmp_path))
    (tmp_path / "down").mkdir()
    assembly.write(windows(), tmp_path / "down" / "signals.nc")
    with pytest.raises(DataError, match=r"'subject': 4 different values, 6 declared"):
        pin(open_catalog(place), "Rest", Downloads(folder=tmp_path / "down"))
    assert "unavailable" in path.read_text()
    path.write_text(path.read_text().replace("count: 6", "count: 4"))
    assert (
        pin(open_catalog(place), "Rest", Downloads(folder=tmp_path / "down")).files == 1
    )
    assert list(open_catalog(place).dataset("Rest").files) == ["signals.nc"]


def test_pinning_reproduces_the_pins_of_the_real_recording(
    place: Path, repository: Path, mirror: Path, tmp_path: Path
) -> None:
    original = (repository / "specs/datasets/EEGLAB.sample.yaml").read_text()
    held = parse(original, "original").data
    bare = without(original, "files").replace(
        "  recordings: [{file: eeglab_data.set, subject: S1}]", "  recordings: []"
    )
    bare = (
        bare.replace("license:", "access_steps: [by hand]\nlicense:")
        + "unavailable: not here\n"
    )
    (place / "specs/datasets/EEGLAB.sample.yaml").write_text(bare)
    folder = tmp_path / "eeglab"
    folder.mkdir()
    for ending in ("set", "fdt"):
        shutil.copy(next(mirror.rglob(f"eeglab_data.{ending}")), folder)
    (folder / "recordings.tsv").write_text("file\tsubject\neeglab_data.set\tS1\n")
    prefix = held["files"]["eeglab_data.set"]["url"].removesuffix("/eeglab_data.set")
    pin(
        open_catalog(place),
        "EEGLAB.sample",
        Downloads(folder=folder, url_prefix=prefix),
    )
    found = parse(
        (place / "specs/datasets/EEGLAB.sample.yaml").read_text(), "pinned"
    ).data
    assert found["files"] == {
        name: {k: v for k, v in pin.items() if k != "dvc"}
        for name, pin in held["files"].items()
    }
    assert found["reader"] == held["reader"]


def test_every_set_that_is_not_here_names_a_command_that_exists(
    repository: Path,
) -> None:
    catalog = open_catalog(repository)
    for id in catalog.ids("datasets"):
        spec = catalog.dataset(id)
        if spec.unavailable and "neuralbench2026" in spec.cite:
            assert any(
                f"neuroledger pin {id} --from FOLDER" in step
                for step in spec.access_steps
            ), id
            assert spec.reader is not None
            assert spec.reader.name in registry.names("reader"), id


@pytest.mark.parametrize(
    "text",
    [
        "01",
        "1e5",
        "a b",
        "n/a",
        "yes",
        "12:30",
        "0x1f",
        "-1",
        "#x",
        "a: b",
        "é",
        "~",
        "",
        'a"b',
        "[x]",
        "A",
    ],
)
def test_texts_are_written_so_that_they_are_read_as_texts(text: str) -> None:
    assert parse(f"a: [{inline(text)}]", "x").data == {"a": [text]}
    assert yaml.safe_load(f"a: [{inline(text)}]") == {"a": [text]}


def test_fields_and_entries_of_any_layout_are_replaced() -> None:
    text = "id: x\nreader: {name: a, window: {start: 0}}  # w\nfiles:\n  a.set:\n    size: 1\n  # b\n  b.set: {size: 2}\n"
    assert parse(with_field(text, ("reader", "name"), "b"), "x").data["reader"] == {
        "name": "b",
        "window": {"start": 0},
    }
    found = with_entries(text, ("files",), {"a.set": {"size": 1}, "c.set": {"size": 3}})
    assert found.endswith("files:\n  a.set:\n    size: 1\n  # b\n  c.set: {size: 3}\n")
    listed = with_entries(
        text, ("reader", "recordings"), [{"file": "a"}, {"file": "b"}]
    )
    assert parse(listed, "x").data["reader"]["recordings"] == [
        {"file": "a"},
        {"file": "b"},
    ]
    assert (
        without(text, "files") == "id: x\nreader: {name: a, window: {start: 0}}  # w\n"
    )


def test_a_full_disk_leaves_no_half_file(
    place: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.link", full)
    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(DataError, match="No space left on device"):
        pin(open_catalog(place), "Rest", Downloads(folder=tree, label="Group"))
    assert not [path for path in (place / "data").rglob("*") if path.is_file()]
    assert "unavailable" in (place / "specs/datasets/Rest.yaml").read_text()


def test_scoring_missing_data_says_how_to_fetch_them(
    place: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    pin(open_catalog(place), "Rest", Downloads(folder=tree, label="Group"))
    shutil.rmtree(place / "data")
    assert main(["check", "--write-schemas"]) == 0
    assert main(["validate"]) == 0
    assert main(["run", "dummy", "--benchmark", "Rest-group"]) == 4
    assert "data set 'Rest': 18 of 18 files are missing" in (
        said := "".join(capsys.readouterr())
    )
    assert "`neuroledger fetch Rest && " in said
