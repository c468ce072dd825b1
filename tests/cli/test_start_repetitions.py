"""What repeated rows of a folder mean: orders, trials, copies, missing trials and sessions are told apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from neuroledger.cli.start import start
from neuroledger.data.load import load_dataset
from neuroledger.errors import DataError, RequestError
from neuroledger.spec.catalog import open_catalog

IMAGES, NEUROIDS, REPETITIONS = 20, 5, 4
NAMES = [f"im{i}" for i in range(IMAGES)]
ANSWERS = {"license": "CC0-1.0", "access": "public", "region": "IT"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "lab"
    place.mkdir()
    for number, name in enumerate(NAMES):
        Image.fromarray(np.full((8, 8), 10 * number, np.uint8)).save(
            place / f"{name}.png"
        )
    return place


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repository" / "specs").mkdir(parents=True)
    (tmp_path / "repository" / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.setattr("neuroledger.cli.start._score", lambda *a, **k: None)
    return tmp_path / "repository"


def responses(seed: int = 0) -> np.ndarray[Any, Any]:
    """(image, neuroid, repetition)"""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(IMAGES, NEUROIDS, 1)) + 0.5 * rng.normal(
        size=(IMAGES, NEUROIDS, REPETITIONS)
    )


def told(folder: Path, root: Path, **answers: str) -> list[str]:
    lines: list[str] = []
    start(folder, root=root, tell=lines.append, **ANSWERS, **answers)
    return lines


def by_image(root: Path) -> pd.DataFrame:
    assembly = load_dataset(open_catalog(root), "lab").assembly
    assert assembly is not None
    return (
        pd.DataFrame(assembly.values, index=assembly["stimulus_id"].values)
        .groupby(level=0)
        .mean()
    )


@pytest.mark.parametrize(
    "order", [NAMES, NAMES[::-1]], ids=["in the order of names", "in another order"]
)
def test_a_list_that_names_each_image_once_is_the_order_of_an_axis(
    folder: Path, root: Path, order: list[str]
) -> None:
    values = responses()
    np.save(folder / "responses.npy", values[[NAMES.index(name) for name in order]])
    pd.DataFrame({"filename": [f"{name}.png" for name in order]}).to_csv(
        folder / "order.csv", index=False
    )
    with pytest.raises(
        RequestError, match=r"\(stimulus,neuroid,repetition \| "
    ) as error:
        told(folder, root)
    assert "order.csv:filename names the image of each row" in str(error.value)
    told(folder, root, dims="stimulus,neuroid,repetition")
    np.testing.assert_allclose(by_image(root).loc[NAMES], values.mean(2))


def test_a_list_of_some_images_is_their_order(folder: Path, root: Path) -> None:
    values = responses()
    np.save(folder / "responses.npy", values[::-1][1:])
    pd.DataFrame({"filename": [f"{name}.png" for name in NAMES[::-1][1:]]}).to_csv(
        folder / "order.csv", index=False
    )
    notes = told(folder, root, dims="stimulus,neuroid,repetition")
    assert "1 images have no responses and are left out" in notes
    np.testing.assert_allclose(by_image(root).loc[NAMES[:-1]], values.mean(2)[:-1])


@pytest.mark.parametrize("rows", [IMAGES * REPETITIONS, IMAGES - 1])
def test_a_list_that_fits_no_axis_is_said_not_to_be_used(
    folder: Path, root: Path, rows: int
) -> None:
    np.save(folder / "responses.npy", responses())
    names = [f"{NAMES[row % IMAGES]}.png" for row in range(rows)]
    pd.DataFrame({"filename": names}).to_csv(folder / "order.csv", index=False)
    with pytest.raises(
        RequestError,
        match=f"in each of {rows} rows, and no axis of responses.npy .* it is not used",
    ):
        told(folder, root, dims="stimulus,neuroid,repetition")
    told(folder, root, dims="stimulus,neuroid,repetition", order="number")
    np.testing.assert_allclose(by_image(root).loc[NAMES], responses().mean(2))


def test_a_list_as_long_as_the_trials_names_the_image_of_each(
    folder: Path, root: Path
) -> None:
    values = responses()
    np.save(folder / "responses.npy", np.moveaxis(values, 2, 0).reshape(-1, NEUROIDS))
    names = [f"{name}.png" for name in NAMES * REPETITIONS]
    pd.DataFrame({"filename": names}).to_csv(folder / "order.csv", index=False)
    told(folder, root)
    np.testing.assert_allclose(by_image(root).loc[NAMES], values.mean(2))


def test_trials_of_which_each_shows_another_image_can_be_stated(
    folder: Path, root: Path
) -> None:
    values = responses()
    np.save(folder / "responses.npy", values[::-1])
    pd.DataFrame({"trial": range(IMAGES), "image": NAMES[::-1]}).to_csv(
        folder / "trials.csv", index=False
    )
    told(folder, root, dims="trial,neuroid,time_bin", time_bins="0:400")
    assembly = load_dataset(open_catalog(root), "lab").assembly
    assert assembly is not None and assembly.sizes["time_bin"] == REPETITIONS
    assert assembly["stimulus_id"].values.tolist() == NAMES[::-1]


def long_table(values: np.ndarray[Any, Any]) -> pd.DataFrame:
    """One row per value, with the number of the trial."""
    rows = [
        {"trial": IMAGES * k + i, "image": f"{NAMES[i]}.png", "neuron": f"u{n}", "rate": values[i, n, k]}
        for k in range(REPETITIONS) for i in range(IMAGES) for n in range(NEUROIDS)
    ]  # fmt: skip
    return pd.DataFrame(rows)


@pytest.mark.parametrize("seed", range(4))
def test_doubled_rows_of_a_long_table_are_counted(
    folder: Path, root: Path, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table = long_table(responses(seed))
    chosen = np.sort(rng.choice(len(table), int(rng.integers(1, 60)), replace=False))
    doubled = pd.concat([table, table.iloc[chosen]])
    doubled.to_csv(folder / "trials.csv", index=False)
    first = table.iloc[chosen[0]]
    words = f"trials.csv: {len(chosen)} rows occur twice, first: trial {first.trial}, {first.image}, {first.neuron}"
    with pytest.raises(DataError, match=words):
        told(folder, root)
    doubled.reset_index(drop=True).to_csv(
        folder / "trials.csv"
    )  # with a column that counts the rows
    with pytest.raises(DataError, match=words):
        told(folder, root)
    table.to_csv(folder / "trials.csv", index=False)
    told(folder, root)


def test_two_values_of_one_trial_and_neuron_are_refused(
    folder: Path, root: Path
) -> None:
    table = long_table(responses())
    other = table.iloc[[7]].assign(rate=9.0)
    pd.concat([table, other]).to_csv(folder / "trials.csv", index=False)
    with pytest.raises(
        DataError,
        match=r"1 rows have the key of an earlier one and other values, first: trial 1, im1",
    ):
        told(folder, root)


def test_doubled_rows_of_wide_tables_and_of_choices_are_refused(
    folder: Path, root: Path
) -> None:
    values = np.moveaxis(responses(), 2, 0).reshape(-1, NEUROIDS)
    wide = pd.DataFrame(values, columns=[f"v{n}" for n in range(NEUROIDS)])
    wide.insert(0, "trial", range(len(wide)))
    wide.insert(1, "image", NAMES * REPETITIONS)
    pd.concat([wide, wide.iloc[3:6]]).to_csv(folder / "wide.csv", index=False)
    with pytest.raises(
        DataError, match=r"wide\.csv: 3 rows occur twice, first: trial 3, im3"
    ):
        told(folder, root)
    (folder / "wide.csv").unlink()
    answers = pd.DataFrame(
        {
            "subject": "p1",
            "trial": range(IMAGES),
            "image": NAMES,
            "choice": ["a", "b"] * (IMAGES // 2),
            "truth": "a",
        }
    )
    pd.concat([answers, answers.iloc[[8]].assign(choice="b")]).to_csv(
        folder / "answers.csv", index=False
    )
    with pytest.raises(
        DataError, match="1 rows have the key of an earlier one and other values"
    ):
        told(folder, root)


def sessions(offset: float, gain: float) -> pd.DataFrame:
    """Each image in each of four sessions, with an offset and a gain of every neuroid and session."""
    rng = np.random.default_rng(5)
    values = np.moveaxis(responses(), 2, 0)
    values = values * np.exp(gain * rng.normal(size=(REPETITIONS, 1, NEUROIDS)))
    values = values + offset * rng.normal(size=(REPETITIONS, 1, NEUROIDS))
    table = pd.DataFrame(
        values.reshape(-1, NEUROIDS), columns=[f"v{n}" for n in range(NEUROIDS)]
    )
    table.insert(0, "session", np.repeat(range(1, REPETITIONS + 1), IMAGES))
    table.insert(1, "image", NAMES * REPETITIONS)
    return table


@pytest.mark.parametrize(("offset", "gain"), [(0.0, 0.0), (3.0, 0.0), (0.0, 1.5)])
def test_sessions_are_kept_and_said_to_differ_only_if_they_do(
    folder: Path, root: Path, offset: float, gain: float
) -> None:
    sessions(offset, gain).to_csv(folder / "betas.csv", index=False)
    notes = told(folder, root)
    found = [note for note in notes if " sessions" in note]
    if offset or gain:
        assert "responses differ between the 4 sessions by more than chance" in found[0]
        assert "{step: standardise, over: presentation, by: session}" in found[0]
    else:
        assert found == [
            "repetitions of an image are from several sessions, which do not differ by more than chance"
        ]
    catalog = open_catalog(root)
    assembly = load_dataset(catalog, "lab").assembly
    assert assembly is not None and sorted(
        set(assembly["session"].values.tolist())
    ) == [1, 2, 3, 4]
    paradigm = catalog.benchmark("lab.IT-ridge").paradigm
    assert paradigm.parameters["prepare"] == [{"step": "drop", "coords": ["session"]}]


def test_a_neuron_that_lacks_a_trial_keeps_the_repetitions_of_its_session(
    folder: Path, root: Path
) -> None:
    table = long_table(responses())
    table["session"] = table["trial"] // IMAGES
    lacking = (table["neuron"] == "u2") & (table["session"] == 1)
    table[~lacking].to_csv(folder / "trials.csv", index=False)
    told(folder, root)
    assembly = load_dataset(open_catalog(root), "lab").assembly
    assert assembly is not None
    assert assembly.sizes["presentation"] == IMAGES * REPETITIONS
    assert (assembly["repetition"].values == assembly["session"].values).all()
    assert int(np.isnan(assembly.values).sum()) == IMAGES
