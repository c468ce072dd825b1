"""EEG and MEG of typing in the layout of the release, including oddities: pinned, validated, decoded, refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from neuroledger.data.pin.pin import Downloads, pin
from neuroledger.errors import DataError, RequestError
from neuroledger.spec.catalog import open_catalog
from tests.families.signals.published_places import (
    pinned,
    place_of,
    scored,
    spec_of,
    windows,
)
from tests.families.signals.typing_files import Session, brainvision, fif

EEG, MEG = "Levy2026NoninvasiveEeg", "Levy2026NoninvasiveMeg"
BENCHMARKS = {EEG: "neuralbench.eeg.typing", MEG: "neuralbench.meg.typing"}
MODELS = ["dummy", "shrinkage_lda", "shuffled_covariance"]
SPECS = {
    "datasets": [EEG, MEG],
    "benchmarks": [*BENCHMARKS.values()],
    "metrics": ["balanced_accuracy"],
    "models": MODELS,
}


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    return place_of(tmp_path / "place", repository, SPECS)


def eeg(root: Path, *, planted: bool = True) -> Path:
    """Twenty people, 002 to 021, and everything beside them that the release holds and nobody is to read."""

    def recording(name: str, seed: int, log: str | None, **said: bool | int) -> None:
        session = Session(
            seed,
            odd=bool(said.get("odd")),
            lost=int(said.get("lost", 0)),
            spare=int(said.get("spare", 0)),
        )
        path = root / "EEG/EEG" / name.split("_")[0] / name
        brainvision(
            path, session, planted=planted, port_test=bool(said.get("port_test"))
        )
        if log is not None:
            session.log(root / "EEG/logs" / f"S{int(name[:3])}" / log)

    for person in range(2, 22):
        odd = {
            2: {"odd": True},
            3: {"port_test": True},
            4: {"lost": 3, "spare": 2},
        }.get(person, {})
        task = "task" if person == 6 else "task1"
        recording(
            f"{person:03d}_DECOMEG_S{1 + person % 2}_{9000 + person}_{task}.vhdr",
            person,
            f"S{person}_session{1 + person % 2}_block1_list1.mat",
            **odd,
        )
    recording("007_DECOMEG_S2_9007_task2.vhdr", 70, "S7_session2_block2_list2.mat")
    recording(
        "008_DECOMEG_S1_9846_task2.vhdr", 71, "S8_session1_block2_list2.mat"
    )  # left out by name
    recording("009_DECOMEG_S1_9949.vhdr", 72, None)  # called otherwise
    recording(
        "010_DECOMEG_S1_9010_tapping.vhdr", 73, "S10_session1_tapping.mat"
    )  # another task
    recording(
        "001_DECOMEG_S1_9001_task1.vhdr", 74, "S1_session1_block1_list1.mat"
    )  # left out by name
    recording("011_DECOMEG_S1_9011_task2.vhdr", 75, None)  # it has no log
    recording("022_DECOMEG_S2_9948_task1_1.vhdr", 76, None)  # called otherwise
    (root / "README.md").write_text("DECOMEG\n")
    return root


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release, which tests copy before they change it."""
    return eeg(tmp_path_factory.mktemp("typing") / "SpanishBCBL")


def meg(root: Path, *, planted: bool = True) -> Path:
    """Twenty-three people, S1 to S25 without S13 and S23, with folders that stand twice and names that are misspelt."""
    made = iter(range(200, 400))

    def recording(name: str, log: str | None, *, split: bool = False) -> None:
        session = Session(next(made), trials=24 if split else 10)
        fif(root / "MEG/FIF" / name, session, planted=planted, split=split)
        if log is not None:
            session.log(root / "MEG/logs" / log)

    recording("01_9001/230301/block1.fif", "S1-session1-1_list1.mat")
    recording("01_9001/230301/block2.fif", None)  # its origin is unknown
    recording("01_9001/230301/block3.fif", "S1-session1-2_list1.mat")
    recording(
        "01_9001/230310/block1.fif", "S1-session2-2_list1.mat"
    )  # logs of this day are swapped
    recording("01_9001/230310/block3.fif", "S1-session2-1_list1.mat")
    recording("02_9002/230302/block1.fif", "S2-session1-1.mat")
    recording("02_9002_copy/230302/block1.fif", None)
    recording("03_11123/230313/block1.fif", "S3-session1_block1.mat", split=True)
    recording("03_11123/230327/03_11123_block1.fif", None)  # left out by name
    recording("03_11123/230327/03_11123_block2.fif", "S3-session2_block2.mat")
    recording("04_3660/230405/block1.fif", None)
    recording("04_9004/230405/block1.fif", "S4-session1_block1.mat")
    recording("05_3660/230405/Emptyroom.fif", None)
    recording("05_3660/230405/block2.fif", None)  # left out, but its day is the first
    recording("05_3660/230419/block2.fif", "S5-session2_block2.mat")
    recording("08_11374/230508/block1.fif", "S8-session1_block1.mat")
    recording("8_11374/231023/block1.fif", "S8-session2_block1.mat")
    recording("10_3660/231020/block1.fif", "S10-session1_block1.mat")
    recording("10_3660/231020/tapping.fif", "S10-session1_tapping.mat")
    recording("13_9013/230901/block1.fif", "S13-session1_block1.mat")
    recording("14_9875/230902/bolck2.fif", "S14-session1_block2.mat")
    recording("14_9876/230902/block1.fif", None)
    recording("21_9021/231201/block2.fif", None)
    recording("21_9021/231201/block2_2.fif", "S21-session1_block2.mat")
    recording("23_9948/240514/block1.fif", "S23-session1_block1.mat")
    for person in (6, 7, 9, 11, 12, 15, 16, 17, 18, 19, 20, 22, 24, 25):
        recording(
            f"{person:02d}_{9000 + person}/230515/block1.fif",
            f"S{person}-session1_block1.mat",
        )
    return root


@pytest.mark.slow
def test_key_decoding_from_eeg_works_through_the_command_line(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = pinned(place, EEG, eeg(tmp_path / "SpanishBCBL"))
    output = capsys.readouterr().out
    assert "it has no log: EEG/EEG/011/011_DECOMEG_S1_9011_task2.vhdr" in output
    assert (
        "its log was swapped with another one: EEG/EEG/008/008_DECOMEG_S1_9846_task2.vhdr"
        in output
    )
    assert len(files) == 21 * 4 and not {
        name for name in files if "tapping" in name or "/001" in name
    }
    entry = spec_of(place, EEG)["reader"]["recordings"][0]
    assert entry == {
        "file": "EEG/EEG/002/002_DECOMEG_S1_9002_task1.vhdr",
        "subject": "2",
        "run": "1",
        "session": "1",
        "log": "EEG/logs/S2/S2_session1_block1_list1.mat",
    }
    again = pin(
        open_catalog(place),
        EEG,
        Downloads(folder=tmp_path / "SpanishBCBL", check=False),
    )
    assert again.before == again.after and again.placed == 0
    records = scored(place, BENCHMARKS[EEG], EEG, MODELS)
    raw = {model: record["score"]["raw"] for model, record in records.items()}
    assert (
        raw["shrinkage_lda"] > 0.8
        and raw["shuffled_covariance"] < 0.15
        and raw["dummy"] < 0.15
    )
    data = windows(place, EEG)
    # The recordings have no places; those of the montage that the spec names are taken.
    assert all(np.isfinite(data[axis].values.astype(float)).all() for axis in "xyz")
    assert (
        abs(float(data["x"].sel(channel=data["channel_id"].values == "Cz").item()))
        < 5e-3
    )
    assert data.sizes["channel"] == 8 and not {"VEOG", "HEOG"} & set(
        data["channel_id"].values.tolist()
    )
    odd = data.isel(presentation=data["subject"].values == "2")
    assert odd["label"].values[:6].tolist() == [
        "n",
        "<special>",
        "<number>",
        "<special>",
        "x",
        odd["label"].values[5],
    ]
    assert odd["trial"].values[0] == "2" and set(odd["sentence"].values[0]) <= set(
        "abcdefghijklmnopqrstuvwxyz "
    )
    assert (
        "<backspace>" not in data["label"].values
        and len(set(data["label"].values.tolist())) < 29
    )
    lost = data["keys_left_out"].values[data["subject"].values == "4"].astype(int)
    assert 0 < lost[0] <= 3
    notes = " ".join(records["dummy"]["score"]["notes"])
    assert f"{lost[0]} keys in 1 of 21 recordings were left out" in notes


@pytest.mark.slow
def test_key_decoding_from_meg_works_through_the_command_line(
    place: Path, tmp_path: Path
) -> None:
    files = pinned(place, MEG, meg(tmp_path / "SpanishBCBL"))
    assert (
        "MEG/FIF/03_11123/230313/block1-1.fif" in files
    )  # a recording goes on in a second file
    entries = {
        entry["file"].removeprefix("MEG/FIF/"): entry
        for entry in spec_of(place, MEG)["reader"]["recordings"]
    }
    log = {
        name: entry["log"].removeprefix("MEG/logs/") for name, entry in entries.items()
    }
    assert log["01_9001/230310/block1.fif"] == "S1-session2-2_list1.mat"
    assert log["01_9001/230310/block3.fif"] == "S1-session2-1_list1.mat"
    assert entries["05_3660/230419/block2.fif"] == {
        "file": "MEG/FIF/05_3660/230419/block2.fif",
        "subject": "5",
        "session": "2",
        "run": "2",
        "log": "MEG/logs/S5-session2_block2.mat",
        "facts": {"person": "3660"},
    }
    assert (
        entries["14_9875/230902/bolck2.fif"]["run"] == "2"
        and "21_9021/231201/block2_2.fif" in entries
    )
    read = {name.split("/")[0] for name in entries}
    assert (
        not read & {"02_9002_copy", "04_3660", "13_9013", "14_9876", "23_9948"}
        and len(read) == 24
    )
    records = scored(place, BENCHMARKS[MEG], MEG, ["dummy", "shrinkage_lda"])
    assert records["shrinkage_lda"]["score"]["raw"] > 0.8
    data = windows(place, MEG)
    assert len(set(data["subject"].values.tolist())) == 23
    # A person with two numbers is one person.
    assert set(data["subject"].values[data["person"].values == "3660"].tolist()) == {
        "5",
        "10",
    }
    # Times count from the first sample that is stored, whatever its number.
    assert data["onset"].values.max() < 300 and set(
        data["channel_type"].values.tolist()
    ) == {"mag", "grad"}


@pytest.mark.parametrize("id", [EEG, MEG])
@pytest.mark.slow
def test_keys_without_a_planted_response_are_decoded_at_chance(
    place: Path, tmp_path: Path, id: str
) -> None:
    folder = {EEG: eeg, MEG: meg}[id](tmp_path / "SpanishBCBL", planted=False)
    pinned(place, id, folder)
    score = scored(place, BENCHMARKS[id], id, ["shrinkage_lda"])["shrinkage_lda"][
        "score"
    ]
    assert score["raw"] < 0.15


LOG = "EEG/logs/S5/S5_session2_block1_list1.mat"
FILE = "EEG/EEG/005/005_DECOMEG_S2_9005_task1.vhdr"


def _swap(folder: Path) -> None:
    shutil.copy(folder / "EEG/logs/S7/S7_session2_block1_list1.mat", folder / LOG)


def _empty(folder: Path) -> None:
    savemat(folder / LOG, {"something": 1})


def _broken(folder: Path) -> None:
    (folder / LOG).write_bytes((folder / LOG).read_bytes()[:300])


def _fieldless(folder: Path) -> None:
    content = loadmat(folder / LOG, struct_as_record=True)["pr_trials"]
    savemat(
        folder / LOG,
        {"pr_trials": {"rsvp": content["rsvp"][0, 0], "key": np.zeros((1, 0))}},
    )


def _cut(folder: Path) -> None:
    marks = (folder / FILE).with_suffix(".vmrk")
    marks.write_text(
        "\n".join(marks.read_text(encoding="utf-8").splitlines()[:6]) + "\n",
        encoding="utf-8",
    )


def _twice(folder: Path) -> None:
    shutil.copy(folder / LOG, folder / "EEG/logs/S5/S5_session2_block1_list2.mat")


def _same(folder: Path) -> None:
    for suffix in (".vhdr", ".vmrk", ".eeg"):
        shutil.copy(
            (folder / FILE).with_suffix(suffix),
            folder / f"EEG/EEG/005/005_DECOMEG_S2_9995_task1{suffix}",
        )


def _gone(folder: Path) -> None:
    (folder / FILE).with_suffix(".vmrk").unlink()


def _alone(folder: Path) -> None:
    shutil.rmtree(folder / "EEG/logs/S5")


def _deeper(folder: Path) -> None:
    (folder / "EEG").rename(folder / "more")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            _swap,
            rf"{FILE}: \d+ of \d+ events of its log {LOG} have no trigger"
            rf"|{FILE} and its log .* cannot be aligned in time",
        ),
        (
            _empty,
            f"{PurePosixPath(LOG).name} has no variable 'pr_trials'; it has something",
        ),
        (_broken, f"{PurePosixPath(LOG).name} cannot be read as a MATLAB file"),
        (_fieldless, f"{LOG}: no key was pressed in any trial"),
        (_cut, f"{FILE} has no triggers to match with the events of {LOG}"),
        (_twice, f"{FILE} has 2 logs, {LOG}, .*list2.mat: keep one"),
        (
            _same,
            "are both block 1 of session 2 of subject 5: declare under `naming.rules` which one to leave out",
        ),
        (
            _gone,
            r"005_DECOMEG_S2_9005_task1.vhdr names 005_DECOMEG_S2_9005_task1.vmrk, which is not here",
        ),
        (_alone, f"{EEG} expects 20 subjects, .* contains 19"),
        (
            _deeper,
            "contains no recording below EEG/EEG that matches .* and has a log below EEG/logs",
        ),
    ],
)
def test_pin_refuses_invalid_downloads_and_writes_nothing(
    place: Path,
    released: Path,
    tmp_path: Path,
    change: Callable[[Path], None],
    words: str,
) -> None:
    folder = tmp_path / "SpanishBCBL"
    shutil.copytree(released, folder)
    change(folder)
    path = place / f"specs/datasets/{EEG}.yaml"
    # So few events as a stand-in has must fit more strictly than the two thousand of a recording.
    path.write_text(path.read_text().replace("unmatched: 650", "unmatched: 20"))
    before = path.read_text()
    with pytest.raises((DataError, RequestError), match=words):
        pin(open_catalog(place), EEG, Downloads(folder=folder))
    assert path.read_text() == before and not (place / "data").exists()
