"""MATLAB recordings: all published specs read files of their layout, and missing content is one clear error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
import yaml

from neuroledger.data.pin.downloads import Downloads
from neuroledger.data.pin.pin import pin
from neuroledger.errors import DataError
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.registry import get
from tests.data.test_pin import place
from tests.families.signals.matlab_files import cells, hdf5, mat5, structs

__all__ = ["place"]

RNG = np.random.default_rng(5)
SECONDS = 40


def noise(*shape: int) -> np.ndarray:
    """Simulated EEG in µV."""
    return RNG.normal(0, 10, shape)


def leeb(folder: Path) -> dict[str, Path]:
    def run() -> dict[str, Any]:
        return {
            "X": noise(SECONDS * 250, 6),
            "fs": 250.0,
            "trial": np.array([[500.0], [3000.0]]),
            "y": np.array([[1.0], [2.0]]),
        }

    return {
        f"sourcedata/B01{s}.mat": mat5(
            folder / f"B01{s}.mat", data=cells([structs([run()]), structs([run()])])
        )
        for s in "TE"
    }


def arico(folder: Path) -> dict[str, Path]:
    def run() -> dict[str, Any]:
        codes = np.zeros((SECONDS * 256, 1))
        codes[1000:1032], codes[2000:2032] = 1, 2
        return {
            "X": noise(SECONDS * 256, 4) * 10,
            "y": codes,
            "channels": cells(["Fz", "Cz", "Pz", "Oz"]),
        }

    return {
        "sourcedata/A01S.mat": mat5(
            folder / "A01S.mat", data=structs([run(), run(), run()])
        )
    }


def haufe(folder: Path) -> dict[str, Path]:
    names = [
        "Fz",
        "Cz",
        "EOGv",
        "EOGh",
        "EMGf",
        "lead_gas",
        "lead_brake",
        "dist_to_lead",
        "wheel_X",
        "wheel_Y",
        "gas",
        "brake",
    ]
    path = hdf5(
        folder / "VPae.mat",
        cnt={"x": noise(SECONDS * 200, len(names)), "fs": 200.0, "clab": names},
        mrk={
            "time": np.array([[5000.0, 10000.0, 15000.0]]),
            "y": np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]]),
            "className": [
                "car_normal",
                "car_brake",
                "car_hold",
                "car_collision",
                "react_emg",
            ],
        },
    )
    return {"sourcedata/VPae.mat": path}


def cho(folder: Path) -> dict[str, Path]:
    rate = 512
    events = np.zeros((1, SECONDS * rate))
    events[0, [2 * rate, 20 * rate]] = 1
    eeg = {
        "imagery_left": noise(68, SECONDS * rate) + 50,
        "imagery_right": noise(68, SECONDS * rate) - 50,
        "imagery_event": events,
        "srate": 512.0,
    }
    return {"sourcedata/s01.mat": mat5(folder / "s01.mat", eeg=eeg)}


def lee(folder: Path) -> dict[str, Path]:
    def phase() -> dict[str, Any]:
        return {
            "x": noise(SECONDS * 250, 5),
            "fs": 250.0,
            "chan": cells(["Fz", "Cz", "Pz", "O1", "O2"]),
            "t": np.array([[1000, 2500, 5000, 7500]]),
            "y_dec": np.array([[1, 2, 3, 4]]),
        }

    made = {}
    for session in (1, 2):
        name = f"sess{session:02d}_subj01_EEG_SSVEP.mat"
        made[f"sourcedata/session{session}/s1/{name}"] = mat5(
            folder / name, EEG_SSVEP_train=phase(), EEG_SSVEP_test=phase()
        )
    return made


def nakanishi(folder: Path) -> dict[str, Path]:
    return {"sourcedata/s1.mat": mat5(folder / "s1.mat", eeg=noise(12, 8, 1114, 2))}


def acqualagna(folder: Path) -> dict[str, Path]:
    """Of the second person, one of the channels is missing."""
    made = {}
    for who, names in (("fat", ["Fz", "Cz", "Pz", "F9"]), ("gce", ["Fz", "Pz", "Cz"])):

        def run(names: list[str] = names) -> dict[str, Any]:
            trial = np.array([[400.0], [2400.0]])
            return {
                "X": noise(SECONDS * 200, len(names)),
                "fs": 200.0,
                "channels": cells(names),
                "trial": trial,
                "y": np.array([[1.0], [2.0]]),
            }

        made[f"sourcedata/RSVP_VP{who}.mat"] = mat5(
            folder / f"RSVP_VP{who}.mat", data=structs([run(), run()])
        )
    return made


def reichert(folder: Path) -> dict[str, Path]:
    """Trials of 16 s, and what each says as text; muscles of the eyes are fields of their own."""
    names = ["Fz", "Cz", "Pz", "Oz", "O9", "O10"]
    trials = {
        "data": noise(len(names), 4000, 4),
        "srate": 250.0,
        "label": cells(names),
        "heog": noise(4000, 4),
        "veog": noise(4000, 4),
        "intention": cells(["yes", "no", "no", "yes"]),
    }
    return {"sourcedata/P01.mat": mat5(folder / "P01.mat", bciexp=trials)}


def columns(count: int, events: dict[int, dict[int, float]], rate: int) -> np.ndarray:
    made = noise(SECONDS * rate, count)
    made[:, 0] = np.arange(len(made)) / rate
    for column, marks in events.items():
        made[:, column] = 0
        for at, code in marks.items():
            made[at, column] = code
    return made


def van_veen(folder: Path) -> dict[str, Path]:
    table = columns(20, {18: {500: 2.0}, 19: {1000: 1.0}}, 128)
    return {
        "sourcedata/subject_01/training.mat": mat5(
            folder / "training.mat", training=table
        )
    }


def korczowski(folder: Path) -> dict[str, Path]:
    table = columns(66, {65: {5000: 2.0, 9000: 1.0}}, 512)
    return {
        f"sourcedata/group_01/group_01_sujet_0{n}.mat": mat5(
            folder / f"group_01_sujet_0{n}.mat", samples=table + 0
        )
        for n in (1, 2)
    }


def shin(folder: Path) -> dict[str, Path]:
    names = [f"E{n}" for n in range(30)] + ["VEOG", "HEOG"]
    cnt = cells(
        [
            structs(
                [{"x": noise(SECONDS * 200, 32), "clab": cells(names), "fs": 200.0}]
            )
            for _ in range(6)
        ]
    )
    mrk = cells(
        [
            structs(
                [
                    {
                        "time": np.array([[5001.0, 20001.0]]),
                        "event": {"desc": np.array([[16.0], [32.0]])},
                    }
                ]
            )
            for _ in range(6)
        ]
    )
    home = "sourcedata/subject_01/with_occular_artifact"
    return {
        f"{home}/cnt.mat": mat5(folder / "cnt.mat", cnt=cnt),
        f"{home}/mrk.mat": mat5(folder / "mrk.mat", mrk=mrk),
    }


LAYOUTS: dict[str, tuple[Callable[[Path], dict[str, Path]], int, list[tuple[str, str, str, float]]]] = {
    # The builder; channels; of the first file's first part: subject, session, label and onset of its first events.
    "Leeb2007Brain": (leeb, 3, [("01", "E1", "left_hand", 499 / 250 + 3), ("01", "E1", "right_hand", 2999 / 250 + 3)]),
    "Arico2014Influence": (arico, 4, [("01", "1", "NonTarget", 1000 / 256), ("01", "1", "Target", 2000 / 256)]),
    "Haufe2011Eeg": (haufe, 2, [("ae", "1", "NonTarget", 5.0), ("ae", "1", "Target", 10.0)]),
    "Cho2017Supporting": (cho, 64, [("01", "1", "left_hand", 2.0), ("01", "1", "left_hand", 20.0)]),
    "Lee2019EegSsvep": (lee, 5, [("01", "01", "12.0", 4.0), ("01", "01", "8.57", 10.0)]),
    "Nakanishi2015Comparison": (nakanishi, 8, [("1", "1", "9.25", 0.15), ("1", "1", "9.25", 1114 / 256 + 0.15)]),
    "Acqualagna2013Gaze": (acqualagna, 3, [("fat", "1", "Target", 399 / 200), ("fat", "1", "NonTarget", 2399 / 200)]),
    "Reichert2020Impact": (reichert, 6, [("01", "1", "right", 0.0), ("01", "1", "left", 16.0)]),
    "VanVeen2019Building": (van_veen, 16, [("01", "1", "Target", 500 / 128), ("01", "1", "NonTarget", 1000 / 128)]),
    "Korczowski2019BrainBi2014B": (
        korczowski, 32, [("01_sujet_01", "1", "Target", 5000 / 512), ("01_sujet_01", "1", "NonTarget", 9000 / 512)]
    ),
    "Shin2017OpenA": (shin, 30, [("01", "1", "left_hand", 5.0), ("01", "1", "right_hand", 20.0)]),
    "Shin2017OpenB": (shin, 30, [("01", "2", "subtraction", 5.0), ("01", "2", "subtraction", 10.0)]),
}  # fmt: skip


def reader_of(repository: Path, id: str, **changed: Any) -> dict[str, Any]:
    told: dict[str, Any] = yaml.safe_load(
        (repository / "specs" / "datasets" / f"{id}.yaml").read_text()
    )["reader"]
    assert told.pop("name") == "matlab_epochs"
    return told | changed


def read(files: dict[str, Path], told: dict[str, Any]) -> xr.DataArray:
    component = get("reader", "matlab_epochs")
    found: xr.DataArray = component.function(files, **component.bind(told)).assembly
    return found


@pytest.mark.parametrize("id", sorted(LAYOUTS))
def test_published_specs_read_files_of_their_layout(
    repository: Path, tmp_path: Path, id: str
) -> None:
    build, channels, expected = LAYOUTS[id]
    windows = read(build(tmp_path), reader_of(repository, id))
    assert windows.sizes["channel"] == channels
    assert windows.attrs["sampling_rate"] == 120
    first = windows.isel(presentation=slice(0, len(expected)))
    for number, (subject, session, label, onset) in enumerate(expected):
        one = first.isel(presentation=number)
        said = tuple(str(one[name].values) for name in ("subject", "session", "label"))
        assert said == (subject, session, label)
        assert float(one["onset"]) == pytest.approx(onset, abs=1e-6)
    parameters = reader_of(repository, id)["window"]["labels"]
    assert set(windows["label"].values) == set(parameters.values())


def test_every_spec_that_uses_the_reader_is_tested(repository: Path) -> None:
    used = {
        path.stem
        for path in (repository / "specs" / "datasets").glob("*.yaml")
        if "name: matlab_epochs" in path.read_text()
    }
    assert used == set(LAYOUTS)


@pytest.mark.parametrize("id", sorted(LAYOUTS))
def test_windows_contain_the_samples_of_the_file(
    repository: Path, tmp_path: Path, id: str
) -> None:
    """Without filters, a window holds the file's own numbers from the event on, in µV."""
    build, _, expected = LAYOUTS[id]
    parameters = reader_of(repository, id)
    files = build(tmp_path)
    kept = {
        key: value
        for key, value in parameters["preprocessing"].items()
        if key in ("pick", "types", "drop", "stated", "channels")
    }
    window = parameters["window"] | {"start": 0.0, "duration": 0.5}
    window = {key: value for key, value in window.items() if key != "stride"}
    windows = read(files, parameters | {"preprocessing": kept, "window": window})
    rate = windows.attrs["sampling_rate"]
    at = round(expected[0][3] * rate)
    truth = _truth(id, files)[:, at : at + windows.sizes["sample"]]
    np.testing.assert_allclose(windows.values[0][: len(truth)], truth, atol=2e-4)


def _truth(id: str, files: dict[str, Path]) -> np.ndarray:
    """The first recording's channels, (channel, sample) in µV, taken from the file by hand."""
    from scipy.io import loadmat

    first = files[sorted(files)[0]]
    if id == "Haufe2011Eeg":
        with h5py.File(first, "r") as file:
            return np.asarray(file["cnt/x"])[:2]
    content = loadmat(first)
    if id == "Leeb2007Brain":
        return content["data"][0, 0]["X"][0, 0].T[:3]
    if id == "Arico2014Influence":
        return content["data"][0, 0]["X"].T / 10
    if id == "Cho2017Supporting":
        left = content["eeg"][0, 0]["imagery_left"]
        return (left - left.mean(axis=1, keepdims=True))[:64]
    if id == "Lee2019EegSsvep":
        return content["EEG_SSVEP_train"][0, 0]["x"].T
    if id == "Nakanishi2015Comparison":
        trial = content["eeg"][0, :, :, 0]
        return trial - trial.mean(axis=1, keepdims=True)
    if id == "Acqualagna2013Gaze":
        return content["data"][0, 0]["X"].T[:3]
    if id == "Reichert2020Impact":
        trial = content["bciexp"][0, 0]["data"][:, :, 0]
        return trial - trial.mean(axis=1, keepdims=True)
    if id == "VanVeen2019Building":
        return content["training"].T[1:3]  # F7 and F3; the third, Fz, is the ground
    if id == "Korczowski2019BrainBi2014B":
        return content["samples"].T[1:33]
    part = 0 if id == "Shin2017OpenA" else 1
    return content["cnt"][0, part]["x"][0, 0].T[:30]


LAYOUT = {
    "samples": "cnt.x",
    "axes": ["sample", "channel"],
    "sampling_rate": "cnt.fs",
    "channels": "cnt.clab",
    "events": {"samples": "mrk.pos", "codes": "mrk.y"},
}
TOLD = {
    "named": {"S{subject}.mat": {}},
    "matlab": LAYOUT,
    "window": {"start": 0.0, "duration": 1.0, "labels": {"1": "a", "2": "b"}},
    "preprocessing": {"stated": "uV"},
}


def small(path: Path, write: Callable[..., Path], **changed: Any) -> dict[str, Path]:
    cnt = {
        "x": noise(1000, 2),
        "fs": 100.0,
        "clab": cells(["Cz", "Pz"]) if write is mat5 else ["Cz", "Pz"],
    }
    mrk = {"pos": np.array([[101.0, 301.0]]), "y": np.array([[1.0, 2.0]])}
    for name, value in changed.items():
        where, field = name.split("_")
        {"cnt": cnt, "mrk": mrk}[where][field] = value
    return {"S1.mat": write(path / "S1.mat", cnt=cnt, mrk=mrk)}


@pytest.mark.parametrize("write", [mat5, hdf5])
def test_both_file_versions_give_the_same_windows(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    windows = read(small(tmp_path, write), TOLD)
    assert windows["onset"].values.tolist() == [1.0, 3.0]
    assert windows["label"].values.tolist() == ["a", "b"]
    assert windows["channel_id"].values.tolist() == ["Cz", "Pz"]


@pytest.mark.parametrize("write", [mat5, hdf5])
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"cnt_fs": np.array([[100.0, 200.0]])},
            "'cnt.fs' contains 2 numbers, but one sampling rate is expected",
        ),
        ({"cnt_fs": 0.0}, "the sampling rate is 0 Hz"),
        ({"cnt_x": np.zeros((1000, 3)) + 1.0}, "2 names for 3 channels"),
        ({"cnt_x": np.full((1000, 2), np.nan)}, "2000 samples are missing or infinite"),
        ({"cnt_x": "text"}, "'cnt.x' contains a text, not numbers"),
        ({"mrk_pos": np.array([[0.0, 301.0]])}, "before the first sample"),
        ({"mrk_y": np.array([[1.0, 2.0, 1.0]])}, "2 events at 'mrk.pos', 3 at 'mrk.y'"),
        (
            {"mrk_y": np.array([[1.0, 1.0], [0.0, 1.0]])},
            "1 events at 'mrk.y' have no class or several",
        ),
        ({"mrk_pos": np.array([[101.0, 5001.0]])}, "no event 2"),
    ],
)
def test_a_file_without_the_declared_content_raises_one_error(
    tmp_path: Path, write: Callable[..., Path], changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words.replace(".", r"\.")) as raised:
        read(small(tmp_path, write, **changed), TOLD)
    assert "S1.mat" in str(raised.value)


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ({"samples": "cnt.y"}, r"has no 'cnt\.y': cnt has x, fs, clab"),
        ({"samples": "eeg.x"}, r"has no variable 'eeg'; it has cnt, mrk"),
        ({"parts": "cnt", "take": [2]}, r"1 parts at 'cnt', but no number 2"),
        (
            {"axes": ["trial", "channel", "sample"], "events": {"codes": "mrk.y"}},
            r"trials at 'cnt\.x', 2 at 'mrk\.y'",
        ),
        ({"columns": [1, 9]}, r"'cnt\.x' has 2 columns, but 1 to 9 are declared"),
        ({"events": {"channel": [7]}}, r"has 2 columns, but no number 7"),
        ({"kinds": {"eeg": 1}}, r"`kinds` declares 1 channels, but there are 2"),
    ],
)
def test_errors_for_a_wrong_layout_list_the_content_of_the_file(
    tmp_path: Path, layout: dict[str, Any], words: str
) -> None:
    with pytest.raises(DataError, match=words):
        read(small(tmp_path, mat5), TOLD | {"matlab": LAYOUT | layout})


def test_windows_do_not_cross_joints(repository: Path, tmp_path: Path) -> None:
    parameters = reader_of(repository, "Nakanishi2015Comparison")
    with pytest.raises(
        DataError,
        match=r"a window from 0\.15 to 5\.15 s crosses the ends of an array or trial",
    ):
        read(
            nakanishi(tmp_path),
            parameters | {"window": parameters["window"] | {"duration": 5.0}},
        )


def test_a_file_with_circular_references_or_stated_terabytes_raises_one_error(
    tmp_path: Path,
) -> None:
    path = small(tmp_path, hdf5)["S1.mat"]
    with h5py.File(path, "r+") as file:
        del file["cnt/clab"]
        made = file["cnt"].create_dataset("clab", shape=(1, 1), dtype=h5py.ref_dtype)
        made[0, 0] = made.ref
        made.attrs["MATLAB_class"] = np.bytes_("cell")
    with pytest.raises(DataError, match=r"refers to itself"):
        read({"S1.mat": path}, TOLD)
    other = small(tmp_path / "other", hdf5)["S1.mat"]
    with h5py.File(other, "r+") as file:
        del file["cnt/x"]
        file["cnt"].create_dataset("x", shape=(2, 10**12), dtype="f8", chunks=(2, 1000))
    with pytest.raises(
        DataError, match=r"states 16,000,000,000,000 bytes in a file of"
    ):
        read({"S1.mat": other}, TOLD)


@pytest.mark.parametrize(
    "content", [b"", b"MATLAB 5.0 MAT-file", b"MATLAB 7.3 MAT-file" + b"\0" * 600]
)
def test_a_file_in_another_format_raises_one_error(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "S1.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"S1\.mat cannot be read as"):
        read({"S1.mat": tmp_path / "S1.mat"}, TOLD)


def test_files_are_pinned_with_their_events(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "download"
    for number in (1, 2):
        shin(folder / f"subject_{number:02d}" / "with_occular_artifact")
    path = place / "specs" / "datasets" / "Rest.yaml"
    spec = yaml.safe_load(path.read_text())
    parameters = reader_of(Path(__file__).parents[3], "Shin2017OpenA")
    spec["reader"] = {"name": "matlab_epochs", **parameters, "recordings": []}
    spec["expectations"] = {
        "assembly": [{"check": "distinct", "column": "subject", "count": 2}]
    }
    head = path.read_text().splitlines()[0]
    path.write_text(f"{head}\n{yaml.safe_dump(spec, sort_keys=False)}")
    pin(open_catalog(place), "Rest", Downloads(folder=folder))
    pinned = yaml.safe_load(path.read_text())
    assert len(pinned["files"]) == 4
    assert [one["subject"] for one in pinned["reader"]["recordings"]] == ["01", "02"]


def test_a_file_without_a_subject_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no \{subject\}"):
        read(small(tmp_path, mat5), TOLD | {"named": {"S{run}.mat": {}}})
    with pytest.raises(DataError, match=r"no file matches T\{subject\}\.mat: S1\.mat"):
        read(small(tmp_path, mat5), TOLD | {"named": {"T{subject}.mat": {}}})


def test_codes_can_be_the_last_row_of_the_samples(tmp_path: Path) -> None:
    """As in the recordings of fourteen electrodes of Oikonomou et al., whose names alone do not say whose they are."""
    codes = np.zeros(128 * 30)
    codes[[256, 1280, 2560]] = [33025, 33029, 33025]
    path = mat5(tmp_path / "U001ai.mat", eeg=np.vstack([noise(14, 128 * 30), codes]))
    told = {
        "named": {"U{subject:3}{session:1}{run}.mat": {}},
        "matlab": {
            "samples": "eeg",
            "axes": ["channel", "sample"],
            "sampling_rate": 128,
            "channels": [f"E{number}" for number in range(14)],
            "columns": [1, 14],
            "events": {"channel": [-1]},
        },
        "window": {
            "start": 0.0,
            "duration": 4.0,
            "labels": {"33025": "12.00", "33029": "6.66"},
        },
        "preprocessing": {"stated": "uV"},
    }
    windows = read({"U001ai.mat": path}, told)
    assert windows["label"].values.tolist() == ["12.00", "6.66", "12.00"]
    assert (
        windows["onset"].values.tolist() == [2.0, 10.0, 20.0]
        and windows.sizes["channel"] == 14
    )
    assert [str(windows[name].values[0]) for name in ("subject", "session", "run")] == [
        "001",
        "a",
        "i",
    ]


@pytest.mark.parametrize("write", [mat5, hdf5])
def test_trials_in_a_cell_array_are_read_in_the_layout_of_fieldtrip(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    trials = [noise(3, length) for length in (120, 100, 130)]
    if write is mat5:
        data: Any = {"trial": cells(trials), "label": cells(["C3", "Cz", "C4"])}
    else:
        data = {"trial": trials, "label": ["C3", "Cz", "C4"]}
    data |= {"fsample": 100.0, "trialinfo": np.array([[1.0], [2.0], [1.0]])}
    layout = {
        "samples": "data.trial",
        "axes": ["channel", "sample", "trial"],
        "sampling_rate": "data.fsample",
        "channels": "data.label",
        "events": {"codes": "data.trialinfo"},
    }
    windows = read(
        {"S1.mat": write(tmp_path / "S1.mat", data=data)}, TOLD | {"matlab": layout}
    )
    expected = [
        (trial - trial.mean(axis=1, keepdims=True))[:, :100] for trial in trials
    ]
    np.testing.assert_allclose(windows.values, expected, rtol=1e-5, atol=1e-5)
    assert windows["label"].values.tolist() == ["a", "b", "a"]
    data["trial"] = (
        cells([noise(3, 100), noise(2, 100), noise(3, 100)])
        if write is mat5
        else [noise(3, 100), noise(2, 100), noise(3, 100)]
    )
    with pytest.raises(DataError, match=r"trials at 'data.trial' have 2 to 3 channels"):
        read(
            {"S1.mat": write(tmp_path / "S1.mat", data=data)}, TOLD | {"matlab": layout}
        )
