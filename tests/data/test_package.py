"""A lab's files become a pinned, validated data set with two commands, and scaffolds pass `check`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from neuroledger.cli import main
from neuroledger.cli.lab_files import reader_of
from neuroledger.data.gate.validate import validate
from neuroledger.data.load import load_dataset
from neuroledger.data.package import Terms, from_long_table
from neuroledger.errors import AssemblyError, RequestError
from neuroledger.spec.catalog import open_catalog
from tests.engine.lab import Lab
from tests.engine.tiny_repository import IDS, image, table

TERMS = Terms(reader_of, "CC0-1.0", "public")


def long_table() -> pd.DataFrame:
    rows = [
        {
            "stimulus_id": s,
            "repetition": r,
            "neuroid_id": n,
            "region": "V4" if n == "a" else "IT",
            "value": i + 10 * r + 100 * k,
        }
        for i, s in enumerate(IDS)
        for r in range(3)
        for k, n in enumerate("ab")
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "from the lab"
    (folder / "images").mkdir(parents=True)
    for i, id in enumerate(IDS):
        (folder / "images" / f"{id}.png").write_bytes(image(i))
    table().to_csv(folder / "table.csv", index=False)
    long_table().to_csv(folder / "responses.csv", index=False)
    return folder


def test_two_commands_give_a_valid_data_set(lab: Lab, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lab.root)
    stated = ["--license", "CC0-1.0", "--access", "public"]
    arguments = ["package", "stimuli", "mine", str(files / "table.csv"), "--files", str(files / "images")]
    assert main([*arguments, *stated]) == 0
    assert main(["package", "assembly", "mine", str(files / "responses.csv")]) == 0
    report = validate(lab.open(), "mine")
    assert report.success, str(report)
    data = load_dataset(lab.open(), "mine")
    assert data.stimuli is not None and data.assembly is not None
    assert dict(data.assembly.sizes) == {"presentation": 12, "neuroid": 2}
    assert data.assembly["region"].values.tolist() == ["V4", "IT"]
    assert data.stimuli.bytes("im2") == image(2)


def test_packaging_again_gives_the_same_bytes_and_keeps_the_spec(lab: Lab, files: Path) -> None:
    from neuroledger.data.package import package_stimuli

    package_stimuli(lab.open(), "mine", files / "table.csv", files / "images", TERMS)
    spec = lab.root / "specs" / "datasets" / "mine.yaml"
    spec.write_text(spec.read_text() + "notes: [mine]   # a remark\n")
    before = spec.read_text()
    package_stimuli(lab.open(), "mine", files / "table.csv", files / "images", TERMS)
    assert spec.read_text() == before


def test_a_missing_image_and_a_doubled_value_are_told(lab: Lab, files: Path) -> None:
    from neuroledger.data.package import package_stimuli

    (files / "images" / "im1.png").unlink()
    with pytest.raises(RequestError, match=r"lacks 1 of 4 files, first 'im1\.png'"):
        package_stimuli(lab.open(), "mine", files / "table.csv", files / "images", TERMS)
    with pytest.raises(AssemblyError, match="number them in a column 'repetition'"):
        from_long_table(long_table().drop(columns="repetition"))
    with pytest.raises(AssemblyError, match="missing: \\['value'\\]"):
        from_long_table(long_table().drop(columns="value"))


def test_a_long_table_keeps_every_value() -> None:
    assembly = from_long_table(long_table())
    for _, row in long_table().iterrows():
        at = (assembly["stimulus_id"] == row.stimulus_id) & (assembly["repetition"] == row.repetition)
        assert assembly.values[np.flatnonzero(at), list("ab").index(row.neuroid_id)] == row.value


@pytest.mark.parametrize("kind", ["dataset", "metric", "ceiling", "benchmark", "model", "suite"])
def test_scaffolds_pass_check(repository: Path, tmp_path: Path, kind: str) -> None:
    from neuroledger.cli.catalogue import scaffold
    from neuroledger.engine.check import check

    shutil.copytree(repository / "specs", tmp_path / "specs")
    shutil.copy(repository / "dvc.yaml", tmp_path)
    path = scaffold(open_catalog(tmp_path), kind, "fresh.scaffold")
    problems, count = check(open_catalog(tmp_path), [path])
    assert count == 1 and not problems
    with pytest.raises(RequestError, match="already"):
        scaffold(open_catalog(tmp_path), kind, "fresh.scaffold")


def test_a_new_benchmark_starts_from_the_data_set_that_its_id_names(repository: Path, tmp_path: Path) -> None:
    from neuroledger.cli.catalogue import scaffold
    from neuroledger.spec.catalog import open_catalog

    shutil.copytree(repository / "specs", tmp_path / "specs")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    path = scaffold(open_catalog(tmp_path), "benchmark", "Digits.simulated.time.V4-mine")
    assert "dataset: Digits.simulated.time #" in path.read_text()
    signals = scaffold(open_catalog(tmp_path), "benchmark", "EEGLAB.sample-mine")
    assert "dataset: EEGLAB.sample " in signals.read_text()
    spec = open_catalog(tmp_path).benchmark("EEGLAB.sample-mine")
    assert (spec.paradigm.name, spec.parent, spec.floor.dummy) == ("decoding", "decoding", "dummy")


def test_a_new_repository_is_filled_by_scaffolds_that_pass_check(tmp_path: Path) -> None:
    from neuroledger.cli.catalogue import scaffold
    from neuroledger.engine.check import check

    (tmp_path / "specs").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    with pytest.raises(
        RequestError, match=r"no dataset yet that .*: make one first, `neuroledger new dataset ID`"
    ):
        scaffold(open_catalog(tmp_path), "benchmark", "Ours-mine")
    for kind, id in (("dataset", "Ours"), ("benchmark", "Ours-mine"), ("suite", "ours"), ("metric", "closeness"),
                     ("ceiling", "limit"), ("model", "small")):  # fmt: skip
        scaffold(open_catalog(tmp_path), kind, id)
    catalog = open_catalog(tmp_path)
    assert catalog.benchmark("Ours-mine").dataset == "Ours"
    assert check(catalog)[0] == []
