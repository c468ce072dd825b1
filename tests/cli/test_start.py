"""One command turns folders of many file formats into scored benchmarks; nothing is guessed."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pynwb
import pytest
import scipy.io
import xarray as xr
from PIL import Image

import neuroledger as nl
from neuroledger.cli import main
from neuroledger.cli.lab_files import layouts, survey
from neuroledger.cli.start import start
from neuroledger.cli.start_signals import license_in
from neuroledger.data import assembly as assemblies
from neuroledger.data.load import load_dataset
from neuroledger.errors import AssemblyError, DataError, RequestError, UnavailableError
from neuroledger.spec.catalog import open_catalog
from tests.cli.bids_people import people_of_bids

IMAGES, NEUROIDS, REPETITIONS = 60, 7, 4
NAMES = [f"im{i}" for i in range(IMAGES)]  # im10 comes before im2 by name
ANSWERS = {"license": "CC0-1.0", "access": "public", "region": "V4"}


def nwb(
    path: Path,
    starts: np.ndarray[Any, Any],
    shown: list[Any],
    spikes: list[np.ndarray[Any, Any]],
    places: list[str] | None = None,
) -> None:
    """Write a file of pynwb whose trials name the image that was shown, by number or by text."""
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    content = pynwb.NWBFile("passive viewing", "one", begun)
    content.add_trial_column("image", "what was shown")
    for begin, image in zip(starts, shown, strict=True):
        content.add_trial(start_time=begin, stop_time=begin + 0.5, image=image)
    if places is not None:
        content.add_unit_column("location", "region of the unit")
    for number, times in enumerate(spikes):
        place = {} if places is None else {"location": places[number]}
        content.add_unit(spike_times=times, **place)
    with pynwb.NWBHDF5IO(str(path), "w") as io:
        io.write(content)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in NAMES:
        blocks = rng.integers(0, 256, (4, 4), dtype=np.uint8)
        Image.fromarray(np.kron(blocks, np.ones((4, 4), np.uint8))).save(
            folder / "images" / f"{name}.png"
        )
    return folder


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Return a repository without DVC, which is faster because files get no pointers."""
    (tmp_path / "repository" / "specs").mkdir(parents=True)
    (tmp_path / "repository" / "dvc.yaml").write_text("stages: {}\n")
    return tmp_path / "repository"


def truth(folder: Path) -> np.ndarray[Any, Any]:
    """Return responses (image, neuroid, repetition) that are linear in the pixels, with images as in NAMES."""
    rng = np.random.default_rng(1)
    pixels = (
        np.stack(
            [np.asarray(Image.open(folder / "images" / f"{n}.png")) for n in NAMES]
        )
        / 255.0
    )
    signal = (
        pixels.reshape(IMAGES, 4, 4, 4, 4).mean((2, 4)).reshape(IMAGES, 16) - 0.5
    ) @ rng.normal(size=(16, NEUROIDS))
    return (
        signal[..., None] * 20 + rng.normal(size=(IMAGES, NEUROIDS, REPETITIONS)) * 0.5
    )


def mean_by_image(root: Path, id: str) -> np.ndarray[Any, Any]:
    data = load_dataset(open_catalog(root), id)
    assert data.assembly is not None and data.stimuli is not None
    frame = pd.DataFrame(
        data.assembly.values, index=data.assembly["stimulus_id"].values
    )
    return frame.groupby(level=0).mean().loc[NAMES].to_numpy()


def trials_of(
    values: np.ndarray[Any, Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return shuffled trials (trial, neuroid) and the index of the image of each."""
    index = np.tile(np.arange(IMAGES), REPETITIONS)
    flat = np.moveaxis(values, 2, 0).reshape(-1, NEUROIDS)
    order = np.random.default_rng(2).permutation(len(index))
    return flat[order], index[order]


def npy(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    np.save(folder / "responses.npy", values.mean(2))
    return {"order": "number"}


def npy_across(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    order = np.argsort(NAMES)
    np.save(folder / "responses.npy", values.mean(2)[order].T)
    return {"order": "name"}


def npy_repeated(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    np.save(folder / "responses.npy", np.moveaxis(values, 1, 0))
    return {"order": "number", "dims": "neuroid,stimulus,repetition"}


def mat_trials(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    flat, index = trials_of(values)
    scipy.io.savemat(folder / "session.mat", {"R": flat.T, "stim": index + 1})
    return {"order": "number"}


def mat_new(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    flat, index = trials_of(values)
    with h5py.File(folder / "session.mat", "w", userblock_size=512) as file:
        file["R"], file["stim"] = (
            flat.T,
            index[None].astype(float),
        )  # HDF5 keeps MATLAB's axes reversed
    with (folder / "session.mat").open("r+b") as opened:
        opened.write(b"MATLAB 7.3 MAT-file".ljust(128))
    return {"order": "number"}


def npy_and_table_of_trials(
    folder: Path, values: np.ndarray[Any, Any]
) -> dict[str, str]:
    flat, index = trials_of(values)
    np.save(folder / "spikes.npy", flat)
    pd.DataFrame({"image": [f"{NAMES[i]}.png" for i in index]}).to_csv(
        folder / "trials.csv", index=False
    )
    return {}


def wide(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    flat, index = trials_of(values)
    table = pd.DataFrame(flat, columns=[f"unit{k}" for k in range(NEUROIDS)])
    table.insert(0, "trial", range(len(table)))
    table.insert(1, "filename", [f"{NAMES[i]}.png" for i in index])
    table.to_csv(folder / "wide.csv", index=False)
    return {}


def long(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    rows = [
        {"image": name, "rep": r, "neuron": f"c{k}", "rate": values[i, k, r]}
        for i, name in enumerate(NAMES) for k in range(NEUROIDS) for r in range(REPETITIONS)
    ]  # fmt: skip
    pd.DataFrame(rows).sample(frac=1, random_state=0).to_csv(
        folder / "long.csv", index=False
    )
    return {}


def long_of_two_people(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    """Write a table in which neurons of both subjects have the same names."""
    long(folder, values)
    table = pd.read_csv(folder / "long.csv")
    table["subject"] = np.where(table["neuron"] < "c4", "A", "B")
    table["neuron"] = table["neuron"].where(
        table["neuron"] < "c4",
        "c" + (table["neuron"].str[1:].astype(int) - 4).astype(str),
    )
    table.to_csv(folder / "long.csv", index=False)
    return {}


def parquet(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    pytest.importorskip("pyarrow")
    wide(folder, values)
    pd.read_csv(folder / "wide.csv").to_parquet(folder / "wide.parquet")
    (folder / "wide.csv").unlink()
    return {}


def netcdf(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    flat, index = trials_of(values)
    assembly = xr.DataArray(
        flat, dims=("presentation", "neuroid"),
        coords={"stimulus_id": ("presentation", np.array(NAMES)[index]), "neuroid_id": ("neuroid", list("abcdefg")),
                "repetition": ("presentation", pd.Series(index).groupby(index).cumcount().to_numpy())},
    )  # fmt: skip
    assemblies.write(assembly, folder / "responses.nc")
    return {}


def described(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    order = np.random.default_rng(3).permutation(IMAGES)
    kinds = pd.DataFrame(
        {"image": np.array(NAMES)[order], "category": np.where(order % 2, "a", "b")}
    )
    kinds.to_csv(folder / "stimuli.csv", index=False)
    np.save(folder / "responses.npy", values.mean(2)[order])
    return {}


SHUFFLED = np.random.default_rng(4).permutation(IMAGES)
SITES = [f"site {k}" for k in range(NEUROIDS)]


def mat_struct(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    """Write a struct with an array and a cell array with the names of its images in their order."""
    shown = np.array([f"{NAMES[i]}.png" for i in SHUFFLED], dtype=object)
    held = {
        "resp": values[SHUFFLED].transpose(1, 0, 2),
        "img": shown,
        "site": np.array(SITES, dtype=object),
        "by": "me",
    }
    scipy.io.savemat(folder / "session.mat", {"data": held})
    return {"dims": "neuroid,stimulus,repetition"}


def mat_struct_new(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    """Write the same as MATLAB 7.3 does: a group, reversed axes, and references to numeric text."""
    with h5py.File(folder / "session.mat", "w", userblock_size=512) as file:
        file["data/resp"] = values[SHUFFLED].transpose(1, 0, 2).T
        for field, texts in {
            "img": [f"{NAMES[i]}.png" for i in SHUFFLED],
            "site": SITES,
        }.items():
            cells = file.create_dataset(
                f"data/{field}", (1, len(texts)), dtype=h5py.ref_dtype
            )
            for k, text in enumerate(texts):
                kept = file.create_dataset(
                    f"#refs#/{field}{k}",
                    data=np.array([[ord(c)] for c in text], dtype=np.uint16),
                )
                cells[0, k] = kept.ref
    with (folder / "session.mat").open("r+b") as opened:
        opened.write(b"MATLAB 7.3 MAT-file".ljust(128))
    return {"dims": "neuroid,stimulus,repetition"}


def hdf5(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    flat, index = trials_of(values)
    with h5py.File(folder / "session.h5", "w") as file:
        file["spikes/counts"] = flat
        file["spikes/image"] = [f"{NAMES[i]}.png" for i in index]
    return {}


def npz(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    names = np.array(NAMES)[SHUFFLED]
    np.savez(
        folder / "all.npz",
        responses=values[SHUFFLED].mean(2),
        images=names,
        area=["V4"] * 3 + ["IT"] * 4,
    )
    return {"region": ""}


def netcdf_of_others(folder: Path, values: np.ndarray[Any, Any]) -> dict[str, str]:
    """Write an array with named axes, which are not asked for."""
    coords = {"stim": np.array(NAMES)[SHUFFLED], "cell": SITES}
    rates = xr.DataArray(
        values[SHUFFLED].transpose(2, 1, 0), dims=("rep", "cell", "stim"), coords=coords
    )
    xr.Dataset({"rates": rates, "depth": ("cell", np.arange(7.0))}).to_netcdf(
        folder / "rates.nc"
    )
    return {}


SHAPES: list[Callable[[Path, np.ndarray[Any, Any]], dict[str, str]]] = [
    npy, npy_across, npy_repeated, mat_trials, mat_new, npy_and_table_of_trials, wide, parquet, long,
    long_of_two_people, netcdf, described, mat_struct, mat_struct_new, hdf5, npz, netcdf_of_others,
]  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_every_shape_gives_each_image_its_own_responses(
    images: Path,
    bare: Path,
    shape: Callable[[Path, Any], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = truth(images)
    answers = ANSWERS | shape(images, values)
    monkeypatch.setattr(
        "neuroledger.cli.start._score",
        lambda catalog, goal, **k: (catalog.root, goal.id),
    )
    start(images, root=bare, **answers)
    np.testing.assert_allclose(mean_by_image(bare, "lab"), values.mean(2), rtol=1e-6)


@pytest.mark.parametrize("shape", [mat_struct, mat_struct_new, netcdf_of_others, npz])
def test_names_and_regions_of_neuroids_are_those_of_the_file(
    images: Path,
    bare: Path,
    shape: Callable[[Path, Any], dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = ANSWERS | shape(images, truth(images))
    monkeypatch.setattr("neuroledger.cli.start._score", lambda *a, **k: None)
    start(images, root=bare, **answers)
    assembly = load_dataset(open_catalog(bare), "lab").assembly
    assert assembly is not None
    if shape is npz:
        assert list(assembly["region"].values) == ["V4"] * 3 + ["IT"] * 4
    else:
        assert list(assembly["neuroid_id"].values) == SITES


def test_repetitions_and_time_bins_of_one_array_are_distinguished(
    images: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = truth(images)
    time = np.array([0.0, 1.0, 0.5])
    np.save(images / "r.npy", values.transpose(0, 2, 1)[..., None] * time)
    monkeypatch.setattr("neuroledger.cli.start._score", lambda *a, **k: None)
    dims = "stimulus,repetition,neuroid,time_bin"
    start(images, root=bare, dims=dims, order="number", time_bins="0:300", **ANSWERS)
    assembly = load_dataset(open_catalog(bare), "lab").assembly
    assert assembly is not None and assembly.sizes == {
        "presentation": 240,
        "neuroid": 7,
        "time_bin": 3,
    }
    assert list(assembly["time_bin_start"].values) == [0, 100, 200]
    one = assembly.values[
        (assembly["stimulus_id"] == "im7").values & (assembly["repetition"] == 2).values
    ]
    np.testing.assert_allclose(one[0], values[7, :, 2][:, None] * time, rtol=1e-6)


def test_a_folder_without_responses_is_refused_with_its_content(
    images: Path, tmp_path: Path
) -> None:
    np.save(images / "weights.npy", np.zeros(9))
    with pytest.raises(
        RequestError, match=r"no responses \(found weights.npy with weights 9\)"
    ):
        start(images, root=tmp_path / "repository", **ANSWERS)


def test_one_command_scores_and_a_second_one_changes_nothing(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide(images, truth(images))
    root = tmp_path / "repository"
    flags = [
        "--license",
        "CC0-1.0",
        "--access",
        "public",
        "--region",
        "V4",
        "--root",
        str(root),
        "--no-questions",
    ]
    assert main(["start", str(images), *flags]) == 0
    said = capsys.readouterr().out
    assert (
        "60 images, 7 neuroids, 4 presentations of each image" in said
        and "pixels16" in said
    )
    page = root / "site-lab" / "index.html"
    assert str(page) in said and "pixels16" in page.read_text()
    records = {
        record.model: record
        for record in nl.records(root / "results" / "records")
        if "ridge" in record.benchmark
    }
    assert records["pixels16"].score is not None and records["noise"].score is not None
    assert records["pixels16"].value > 0.8 > 0.2 > records["noise"].value
    spec = open_catalog(root).dataset("lab")
    assert (spec.license, spec.access) == ("CC0-1.0", "public")
    before = {
        p: hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(root.rglob("*"))
        if p.is_file() and ".cache" not in p.parts
    }
    assert main(["start", str(images), "--root", str(root), "--no-questions"]) == 0
    assert {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in before} == before
    assert main(["--root", str(root), "check"]) == 0


def test_responses_of_several_subjects_in_one_column_are_refused(
    images: Path, tmp_path: Path
) -> None:
    wide(images, truth(images))
    table = pd.read_csv(images / "wide.csv")
    table.assign(subject=["A", "B"] * (len(table) // 2)).to_csv(
        images / "wide.csv", index=False
    )
    with pytest.raises(AssemblyError, match="several subjects"):
        start(images, root=tmp_path / "repository", **ANSWERS)


def test_other_files_under_the_same_id_are_refused(
    images: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neuroledger.cli.start._score", lambda *a, **k: None)
    wide(images, truth(images))
    start(images, root=bare, **ANSWERS)
    wide(images, truth(images) + 1)
    with pytest.raises(RequestError, match="was not made from these files"):
        start(images, root=bare, **ANSWERS)


def test_all_missing_answers_are_listed_and_nothing_is_written(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(images / "responses.npy", truth(images))
    root = tmp_path / "repository"
    assert main(["start", str(images), "--root", str(root), "--no-questions"]) == 2
    said = capsys.readouterr().err
    assert all(flag in said for flag in ("--dims", "--license", "--access"))
    assert "stimulus,neuroid,repetition" in said and "neuroid,stimulus" not in said
    assert not (root / "specs" / "datasets").exists() and not (root / "data").exists()
    with pytest.raises(RequestError, match=r"(?s)--license.*--access"):
        start(
            images,
            root=root,
            dims="stimulus,neuroid,repetition",
            order="number",
            region="V4",
        )
    with pytest.raises(RequestError, match="--order"):
        start(images, root=root, dims="stimulus,neuroid,repetition", **ANSWERS)


def test_the_user_is_asked_and_may_refuse(images: Path, tmp_path: Path) -> None:
    wide(images, truth(images))
    asked: list[str] = []
    answers = {"licence": "CC0-1.0", "who": "private", "brain": "V4", "write": "n"}

    def ask(question: str) -> str:
        asked.append(question)
        return next(value for key, value in answers.items() if question.startswith(key))

    with pytest.raises(RequestError, match="nothing was written"):
        start(images, root=tmp_path / "repository", ask=ask)
    assert len(asked) == 4 and not (tmp_path / "repository" / "data").exists()


def test_ambiguous_axes_and_numbers_are_not_guessed(
    images: Path, tmp_path: Path
) -> None:
    np.save(images / "responses.npy", np.zeros((IMAGES, IMAGES)))
    with pytest.raises(RequestError, match="--dims"):
        start(images, root=tmp_path / "repository", order="number", **ANSWERS)
    (images / "responses.npy").unlink()
    scipy.io.savemat(
        images / "s.mat",
        {
            "R": np.random.default_rng(0).normal(size=(90, 5)),
            "stim": np.arange(90) % 40 + 5,
        },
    )
    with pytest.raises(RequestError, match="--first"):
        start(images, root=tmp_path / "repository", order="number", **ANSWERS)


def test_responses_without_images_and_images_without_names_are_refused(
    images: Path, tmp_path: Path
) -> None:
    pd.DataFrame({"image": ["im1", "elsewhere"], "u": [1.0, 2.0]}).to_csv(
        images / "r.csv", index=False
    )
    with pytest.raises(
        DataError, match=r"1 stimuli that have no image, the first is 'elsewhere'"
    ):
        start(images, root=tmp_path / "repository", **ANSWERS)
    (images / "r.csv").unlink()
    np.save(images / "r.npy", np.zeros((240, 5)))
    with pytest.raises(RequestError, match=r"240 × 5, and there are 60 images"):
        start(images, root=tmp_path / "repository", **ANSWERS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(RequestError, match="contains neither images"):
        start(tmp_path / "empty", root=tmp_path / "repository", **ANSWERS)


def test_spikes_of_nwb_are_counted_in_the_window(
    images: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = np.arange(120) * 1.0
    shown = np.arange(120) % IMAGES
    rng = np.random.default_rng(0)
    spikes = [np.sort(rng.uniform(0, 120, 600)) for _ in range(3)]
    nwb(images / "session.nwb", starts, shown.tolist(), spikes)
    monkeypatch.setattr("neuroledger.cli.start._score", lambda *a, **k: None)
    root = bare
    with pytest.raises(RequestError, match="--time-bins"):
        start(images, root=root, order="number", **ANSWERS)
    start(images, root=root, order="number", time_bins="50:250", **ANSWERS)
    data = load_dataset(open_catalog(root), "lab").assembly
    assert data is not None
    expected = [
        [((one >= s + 0.05) & (one < s + 0.25)).sum() for one in spikes] for s in starts
    ]
    np.testing.assert_array_equal(data.values, expected)
    assert data["stimulus_id"].values.tolist() == [NAMES[i] for i in shown]


def test_a_bids_tree_becomes_benchmarks_within_and_across_sessions_and_subjects(
    tmp_path: Path, bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "recordings"
    people_of_bids(tree, sessions=2)
    flags = [
        "--root",
        str(bare),
        "--no-questions",
        "--license",
        "CC0-1.0",
        "--access",
        "public",
    ]
    assert (
        main(["start", str(tree), *flags]) != 0
    )  # which events are decoded, and when, nobody can know
    said = capsys.readouterr().err
    assert "--events" in said and "go" in said and "stop" in said and "--window" in said
    assert license_in(survey(tree)) == "CC0", "the description of the tree states it"
    answers = {
        "task": "react",
        "events": "go=go,stop=stop",
        "start": "0:0.5",
        "licence": "CC0-1.0",
        "who": "public",
    }
    with pytest.raises(RequestError, match="nothing was written"):
        start(
            tree, root=bare, ask=lambda question: answers.get(question.split()[0], "n")
        )
    assert not list((bare / "specs").rglob("*.yaml"))
    done = start(
        tree,
        root=bare,
        license="CC0-1.0",
        access="public",
        events="go=go,stop=stop",
        window="0:0.5",
        ask=None,
    )
    assert (
        done.notes[0] == "eeg of 3 subjects, tasks react"
        and "splits cross_subject, cross_session, within_session" in done.notes[1]
    )
    splits = ("cross_subject", "cross_session", "within_session")
    assert done.benchmarks == tuple(f"recordings-{split}" for split in splits)
    told = capsys.readouterr().err
    assert "120 windows" in told and "stimuli" not in told, "labels are not stimuli"
    values = {record.model: record.value for record in done.records if record.score}
    best = max(
        value
        for model, value in values.items()
        if "shuffled" not in model and model != "planted_lda"
    )
    assert best > 0.7 and abs(values["dummy"]) < 0.2
    table = done.by_session
    assert table is not None and set(table["benchmark"]) == set(done.benchmarks)
    within = table[table["benchmark"] == "recordings-within_session"]
    places = set(zip(within["subject"], within["session"], strict=True))
    assert places == set(product(("01", "02", "03"), ("01", "02")))
    assert {"dummy", "shrinkage_lda", "covariance_logistic"} <= set(within["pipeline"])
    data = load_dataset(open_catalog(bare), done.dataset)
    assert sorted(set(data.assembly["subject"].values.tolist())) == ["01", "02", "03"]
    assert data.assembly.sizes["presentation"] == 3 * 40
    before = {path: path.read_bytes() for path in (bare / "specs").rglob("*.yaml")}
    again = start(tree, root=bare, ask=None)
    assert str(again.page) in repr(again) and "recordings-cross" in repr(again)
    capsys.readouterr()
    assert main(["start", str(tree), "--root", str(bare), "--no-questions"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"recordings-within_session\nsubject +session +cov", said)
    assert f"to mail: {again.file}" in said
    assert not again.written and {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_choices_of_subjects_become_a_behavioural_benchmark(
    images: Path, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    kinds = np.array(["cat", "dog", "car"])[np.arange(IMAGES) % 3]
    shared = np.where(
        rng.random(IMAGES) < 0.6, kinds, "car"
    )  # what all people see, who then slip now and then
    rows = [
        {"image": f"{name}.png", "participant": p, "category": kinds[i],
         "choice": shared[i] if rng.random() < 0.95 else rng.choice(["cat", "dog", "car"])}
        for p in ("p1", "p2", "p3", "p4", "p5", "p6") for i, name in enumerate(NAMES)
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(images / "choices.csv", index=False)
    done = start(
        images, root=tmp_path / "repository", license="CC0-1.0", access="public"
    )
    assert done.benchmarks == ("lab.naming",)
    assert {record.model for record in done.records} >= {"gabor", "pixels16", "noise"}
    assert all(record.status == "scored" for record in done.records), [
        record.error for record in done.records
    ]


def test_parquet_without_its_library_names_it(
    images: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (images / "wide.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnavailableError, match=r"pip install .neuroledger\[parquet\]"):
        start(images, root=bare, **ANSWERS)


def test_layouts_follow_from_the_shape() -> None:
    assert layouts((200, 40), 200, None) == [("stimulus", "neuroid")]
    assert layouts((40, 1200), 200, 1200) == [("neuroid", "trial")]
    assert len(layouts((200, 200), 200, None)) == 2
    assert layouts((7, 8), 200, None) == []


def test_new_then_package_pins_what_was_packaged(
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "repository"
    (root / "specs").mkdir(parents=True)
    (root / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(root)
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], check=True)
    np.save(images / "responses.npy", truth(images)[np.argsort(NAMES)])
    assert main(["new", "dataset", "mine"]) == 0
    path = root / "specs" / "datasets" / "mine.yaml"
    path.write_text(
        path.read_text().replace("What was recorded", "My own recording  # kept\n#")
    )
    assert main(["package", "stimuli", "mine", str(images / "images")]) == 0
    dims = ["--dims", "stimulus,neuroid,repetition"]
    assert (
        main(["package", "assembly", "mine", str(images / "responses.npy"), *dims]) == 0
    )
    assert "the responses have no region" in capsys.readouterr().out
    assert (
        main(
            [
                "package",
                "assembly",
                "mine",
                str(images / "responses.npy"),
                *dims,
                "--region",
                "V4",
            ]
        )
        == 0
    )
    spec = open_catalog(root).dataset("mine")
    assert (
        set(spec.files) == {"stimuli.csv", "stimuli.zip", "responses.nc"}
        and spec.unavailable is None
    )
    assert "# kept" in path.read_text() and spec.access == "private"
    assert "never to the embedded remote" in capsys.readouterr().out
    assert main(["validate", "mine"]) == 0 and "✓" in capsys.readouterr().out
    assert main(["check"]) == 0
    np.testing.assert_allclose(
        mean_by_image(root, "mine"), truth(images).mean(2), rtol=1e-6
    )
    assert main(["new", "benchmark", "mine.V4-pls"]) == 0
    score = nl.score("noise", "mine.V4-pls")
    assert abs(float(score.value)) < 0.5


def test_package_does_not_invent_a_licence(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    (tmp_path / "r" / "specs").mkdir(parents=True)
    (tmp_path / "r" / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(tmp_path / "r")
    assert main(["package", "stimuli", "mine", str(images / "images")]) == 2
    assert "give --license and --access" in capsys.readouterr().err
    assert not (tmp_path / "r" / "data").exists()


@pytest.mark.parametrize("interrupted", ["datasets", "benchmarks", "suites"])
def test_a_call_that_was_interrupted_before_its_suite_is_made_whole_by_the_next(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    module = sys.modules["neuroledger.cli.start"]
    answers = ANSWERS | npy(images, truth(images))
    write = module.write_text

    def failing(path: Path, text: str) -> bool:
        if path.parent.name == interrupted:
            raise KeyboardInterrupt
        return bool(write(path, text))

    def specs(root: Path) -> dict[str, str]:
        return {
            path.relative_to(root).as_posix(): path.read_text()
            for path in sorted(root.rglob("*.yaml"))
        }

    monkeypatch.setattr(module, "_score", lambda *_, **__: None)
    roots = [tmp_path / "whole", tmp_path / "interrupted"]
    for root in roots:
        (root / "specs").mkdir(parents=True)
        (root / "dvc.yaml").write_text("stages: {}\n")
    start(images, root=roots[0], id="mine", **answers)
    monkeypatch.setattr(module, "write_text", failing)
    monkeypatch.setattr("neuroledger.data.package.write_text", failing)
    with pytest.raises(KeyboardInterrupt):
        start(images, root=roots[1], id="mine", **answers)
    monkeypatch.setattr(module, "write_text", write)
    monkeypatch.setattr("neuroledger.data.package.write_text", write)
    told: list[str] = []
    start(images, root=roots[1], id="mine", tell=told.append, **answers)
    assert specs(roots[1]) == specs(roots[0])
    assert any("was made by a call that was interrupted" in line for line in told) == (
        interrupted != "datasets"
    )


def test_a_repository_whose_set_up_was_interrupted_is_set_up_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["neuroledger.cli.start"]
    tried: list[list[str]] = []

    def initialise(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        tried.append(command[-3:])
        if len(tried) == 1:
            raise KeyboardInterrupt
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(module.subprocess, "run", initialise)
    with pytest.raises(KeyboardInterrupt):
        module._repository(tmp_path / "new", "mine")
    assert module._repository(tmp_path / "new", "mine").root == tmp_path / "new"
    assert tried == [["init", "--quiet", "--no-scm"]] * 2
    assert (tmp_path / "new" / "params.yaml").read_text() == "suite: mine\n"


def test_a_suite_of_somebody_else_is_not_taken_for_that_of_a_start(
    images: Path, bare: Path
) -> None:
    answers = ANSWERS | npy(images, truth(images))
    (bare / "specs" / "suites").mkdir()
    text = "id: mine\nversion: 1\ntitle: Ours\nbenchmarks: []\n"
    (bare / "specs" / "suites" / "mine.yaml").write_text(text)
    with pytest.raises(
        RequestError, match="suite 'mine' already exists: give another --id"
    ):
        start(images, root=bare, id="mine", **answers)
    assert [path.name for path in bare.rglob("*.yaml")] == ["dvc.yaml", "mine.yaml"]
