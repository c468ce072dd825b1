"""The questions of `start`: all at once, in the words of the field, asked again after a wrong answer, answered by flags."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pandas as pd
import pytest
import scipy.io
import xarray as xr
import yaml

from neuroledger.cli import main
from neuroledger.cli.lab_files import dims_named, layouts, with_region
from neuroledger.cli.options import Answers
from neuroledger.cli.start import start
from neuroledger.data.load import load_dataset
from neuroledger.errors import RequestError
from neuroledger.spec.catalog import open_catalog
from tests.cli.test_start import (
    ANSWERS,
    IMAGES,
    NAMES,
    NEUROIDS,
    bare,
    images,
    long,
    nwb,
    truth,
)
from tests.families.signals.recording_files import edf_plus

__all__ = ["bare", "images"]

TERMS = {"license": "CC0-1.0", "access": "public"}
PLACES = ["V4"] * 3 + ["IT"] * 4


@pytest.fixture(autouse=True)
def unscored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuroledger.cli.start._score", lambda *a, **k: None)


def spec(root: Path, kind: str, id: str) -> dict[str, object]:
    text = (root / "specs" / kind / f"{id}.yaml").read_text()
    found: dict[str, object] = yaml.safe_load(text)
    return found


def with_areas(folder: Path) -> None:
    long(folder, truth(folder))
    table = pd.read_csv(folder / "long.csv")
    table["area"] = [PLACES[int(name[1:])] for name in table["neuron"]]
    table.to_csv(folder / "long.csv", index=False)


def test_a_column_of_areas_gives_the_regions(images: Path, bare: Path) -> None:
    with_areas(images)
    start(images, root=bare, **TERMS)
    data = load_dataset(open_catalog(bare), "lab").assembly
    assert data is not None
    assert sorted(data["region"].values.tolist()) == sorted(PLACES)
    benchmarks = sorted(path.stem for path in (bare / "specs/benchmarks").iterdir())
    assert benchmarks == ["lab.IT-rdm", "lab.IT-ridge", "lab.V4-rdm", "lab.V4-ridge"]


def test_a_region_that_contradicts_a_column_is_refused(
    images: Path, bare: Path
) -> None:
    with_areas(images)
    with pytest.raises(RequestError, match=r"--region V4 contradicts.*IT of 4"):
        start(images, root=bare, **ANSWERS)
    assert not (bare / "data").exists()


def test_a_column_that_differs_between_trials_is_no_region(
    images: Path, bare: Path
) -> None:
    long(images, truth(images))
    table = pd.read_csv(images / "long.csv")
    table["location"] = np.where(table["rep"] % 2, "left", "right")
    table.to_csv(images / "long.csv", index=False)
    with pytest.raises(RequestError, match="--region"):
        start(images, root=bare, **TERMS)


def test_all_questions_of_an_array_come_at_once(images: Path, bare: Path) -> None:
    np.save(images / "responses.npy", np.moveaxis(truth(images), 2, 0))
    with pytest.raises(RequestError) as refused:
        start(images, root=bare)
    asked = re.findall(r"--([a-z-]+):", str(refused.value))
    assert asked == ["dims", "order", "region", "license", "access"]
    assert "ordered by :" not in str(refused.value)


def test_axes_are_named_in_the_words_of_the_field(images: Path, bare: Path) -> None:
    assert dims_named("trial,image,unit") == "repetition,stimulus,neuroid"
    assert dims_named("Trials, neurons") == "trial,neuroid"
    assert layouts((4, 60, 7), 60, None, ("trial", "image", "unit")) == [
        ("repetition", "stimulus", "neuroid")
    ]
    assert layouts((4, 60, 7), 60, None, neuroids=7) == [
        ("repetition", "stimulus", "neuroid"),
        ("time_bin", "stimulus", "neuroid"),
    ]
    with pytest.raises(RequestError, match="'depth' names no axis"):
        dims_named("depth,unit")
    values = truth(images)
    np.save(images / "responses.npy", np.moveaxis(values, 2, 0))
    start(images, root=bare, dims="trial,image,unit", order="number", **ANSWERS)
    data = load_dataset(open_catalog(bare), "lab").assembly
    assert data is not None
    means = data.groupby("stimulus_id").mean().sel(stimulus_id=NAMES)
    np.testing.assert_allclose(means.values, values.mean(2))


def test_regions_of_a_matlab_struct_say_which_axis_is_that_of_neuroids(
    images: Path, bare: Path
) -> None:
    trials = np.moveaxis(truth(images), 2, 0)
    areas = np.array(PLACES, dtype=object)
    struct = {"spikes": trials, "image_names": np.array(NAMES, dtype=object)}
    scipy.io.savemat(images / "session.mat", {"data": {**struct, "unit_area": areas}})
    with pytest.raises(RequestError) as refused:
        start(images, root=bare, **TERMS)
    asked = "(repetition,stimulus,neuroid | time_bin,stimulus,neuroid)"
    assert asked in str(refused.value) and "--region" not in str(refused.value)


def test_a_stated_region_fills_what_is_not_stated_or_agrees() -> None:
    plain = xr.DataArray(np.zeros((2, 3)), dims=("presentation", "neuroid"))
    placed = with_region(plain, "V4")
    assert placed["region"].values.tolist() == ["V4"] * 3
    assert with_region(placed, "V4") is placed and with_region(placed, "") is placed
    with pytest.raises(RequestError, match="which state V4 of 3 neuroids"):
        with_region(placed, "IT")


def answering(*replies: str) -> tuple[list[str], Callable[[str], str]]:
    asked: list[str] = []
    left = iter(replies)

    def ask(question: str) -> str:
        asked.append(question)
        return next(left)

    return asked, ask


def test_a_wrong_answer_is_asked_again_and_a_number_chooses() -> None:
    asked, ask = answering("neither", "", "2")
    answers = Answers({}, ask)
    options = ("public", "private")
    assert answers.get("access", "who", options) == "private"
    assert "\n  1  public\n  2  private" in asked[0]
    assert "'neither' is not one of public, private" in asked[1]
    assert "an answer is needed" in asked[2]
    assert answers.get("access", "who", options) == "private" and len(asked) == 3
    asked, ask = answering("pri")
    assert Answers({}, ask).get("access", "who", options) == "private"
    asked, ask = answering("")
    taken = Answers({}, ask).get("license", "licence", suggestion="CC0-1.0")
    assert taken == "CC0-1.0" and "[CC0-1.0]" in asked[0]


def test_wrong_answers_end_after_some_tries_and_given_ones_at_once() -> None:
    _, ask = answering(*["x"] * 9)
    with pytest.raises(RequestError, match="nothing was written"):
        Answers({}, ask).get("order", "order", ("name", "number"))
    with pytest.raises(RequestError, match="--order 'x' is not one of name, number"):
        Answers({"order": "x"}, ask).get("order", "order", ("name", "number"))


def test_yes_takes_what_is_suggested_and_nothing_else(images: Path, bare: Path) -> None:
    np.save(images / "responses.npy", truth(images).mean(2))
    with pytest.raises(RequestError) as refused:
        start(images, root=bare, yes=True)
    assert re.findall(r"--([a-z-]+):", str(refused.value)) == ["region"]
    start(images, root=bare, yes=True, region="V4")
    made = spec(bare, "datasets", "lab")
    assert (made["license"], made["access"]) == ("LicenseRef-unstated", "private")


def test_text_columns_and_places_of_nwb_are_read(images: Path, bare: Path) -> None:
    starts, rng = np.arange(120) * 1.0, np.random.default_rng(0)
    shown = [f"{NAMES[i % IMAGES]}.png" for i in range(120)]
    spikes = [np.sort(rng.uniform(0, 120, 600)) for _ in range(NEUROIDS)]
    nwb(images / "session.nwb", starts, shown, spikes, PLACES)
    with pytest.raises(RequestError) as refused:
        start(images, root=bare)
    asked = re.findall(r"--([a-z-]+):", str(refused.value))
    assert asked == ["time-bins", "license", "access"]
    start(images, root=bare, time_bins="50:250", **TERMS)
    data = load_dataset(open_catalog(bare), "lab").assembly
    assert data is not None and data["region"].values.tolist() == PLACES
    assert data["stimulus_id"].values.tolist() == [name[:-4] for name in shown]
    first = ((spikes[0] >= 0.05) & (spikes[0] < 0.25)).sum()
    assert data.values[0, 0] == first


SAID = {second: ("left", "right")[second % 2] for second in range(1, 41)}


def fif(path: Path, values: np.ndarray[Any, Any]) -> None:
    info = mne.create_info(["C3", "C4", "Cz"], 128.0, "eeg")
    raw = mne.io.RawArray(values * 1e-6, info, verbose=0)
    raw.set_annotations(mne.Annotations(list(SAID), 0.0, list(SAID.values())))
    raw.save(path, verbose=0)


def with_edf(path: Path, values: np.ndarray[Any, Any]) -> None:
    edf_plus(path, dict(zip(("C3", "C4", "Cz"), values, strict=True)), 128, SAID)


def plain_folder(
    folder: Path, ending: str, write: Callable[[Path, np.ndarray[Any, Any]], None]
) -> None:
    """Write the recordings of two sessions of three people."""
    folder.mkdir()
    for subject, session in product((1, 2, 3), (1, 2)):
        values = np.random.default_rng(10 * subject + session).normal(size=(3, 5376))
        write(folder / f"S{subject:02}_ses{session}{ending}", values * 5)


@pytest.mark.parametrize(("ending", "write"), [("_raw.fif", fif), (".edf", with_edf)])
def test_a_plain_folder_of_recordings_is_read_by_a_pattern(
    tmp_path: Path,
    bare: Path,
    ending: str,
    write: Callable[[Path, np.ndarray[Any, Any]], None],
) -> None:
    folder = tmp_path / "imagery"
    plain_folder(folder, ending, write)
    with pytest.raises(RequestError) as refused:
        start(folder, root=bare)
    assert "--named" in str(refused.value) and f"S01_ses1{ending}" in str(refused.value)
    named = f"S{{subject}}_ses{{session}}{ending}"
    with pytest.raises(RequestError, match="no recording matches"):
        start(folder, root=bare, named="P{subject}.edf")
    with pytest.raises(
        RequestError, match=r"--events: events to decode, of right, left"
    ):
        start(folder, root=bare, named=named, **TERMS)
    start(folder, root=bare, named=named, events="left=left,right=right", window="0:0.5", filter="8:30", **TERMS)  # fmt: skip # noqa: E501
    made = spec(bare, "suites", "imagery")
    protocols = ("cross_subject", "cross_session", "within_session")
    assert made["benchmarks"] == [f"imagery-{name}" for name in protocols]
    assert len(made["models"]) >= 3
    data = load_dataset(open_catalog(bare), "imagery").assembly
    assert data is not None and data.sizes["presentation"] == 3 * 2 * 40
    assert set(data["session"].values.tolist()) == {"1", "2"}
    reader = spec(bare, "datasets", "imagery")["reader"]
    assert reader["preprocessing"] == {"high_pass": 8.0, "low_pass": 30.0}


def test_an_own_data_set_is_recognised_by_a_field_not_by_its_words(
    images: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long(images, truth(images))
    start(images, root=bare, **ANSWERS)
    path = bare / "specs" / "datasets" / "lab.yaml"
    fields = yaml.safe_load(path.read_text())
    assert len(fields["made_from"]) == 64
    assert fields["title"].startswith("60 images, 7 neuroids")
    fields["notes"], fields["title"] = ["my own words"], "My title"
    path.write_text(yaml.safe_dump(fields))
    told: list[str] = []
    start(images, root=bare, tell=told.append, **ANSWERS)
    assert "already made from these files" in told[0]


def test_a_question_shows_what_files_say_without_control_characters(
    tmp_path: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "imagery"
    folder.mkdir()
    (folder / "S1_\x1b[2J.edf").write_bytes(b"")
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        raise EOFError

    monkeypatch.setattr("builtins.input", answer)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    main(["start", str(folder), "--root", str(bare)])
    assert "S1_\\x1b[2J.edf" in asked[0] and "\x1b" not in asked[0]
