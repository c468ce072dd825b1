"""A lab's files become a pinned, validated data set with two commands, and scaffolds pass `check`."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml

from neuroledger.cli import main
from neuroledger.cli.lab_files import reader_of
from neuroledger.data import package as module
from neuroledger.data.dataset import Dataset
from neuroledger.data.gate.validate import validate
from neuroledger.data.load import load_dataset
from neuroledger.data.package import (
    UNTRACKED,
    Terms,
    expectations_text,
    from_long_table,
    observed,
    package_assembly,
    package_stimuli,
    package_trials,
    require_dvc,
    track,
)
from neuroledger.data.pin.yaml_edit import inline, with_field
from neuroledger.data.stimuli import StimulusSet
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


def test_two_commands_give_a_valid_data_set(
    lab: Lab, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.root)
    stated = ["--license", "CC0-1.0", "--access", "public"]
    arguments = [
        "package",
        "stimuli",
        "mine",
        str(files / "table.csv"),
        "--files",
        str(files / "images"),
    ]
    assert main([*arguments, *stated]) == 0
    assert main(["package", "assembly", "mine", str(files / "responses.csv")]) == 0
    report = validate(lab.open(), "mine")
    assert report.success, str(report)
    data = load_dataset(lab.open(), "mine")
    assert data.stimuli is not None and data.assembly is not None
    assert dict(data.assembly.sizes) == {"presentation": 12, "neuroid": 2}
    assert data.assembly["region"].values.tolist() == ["V4", "IT"]
    assert data.stimuli.bytes("im2") == image(2)


def test_packaging_again_gives_the_same_bytes_and_keeps_the_spec(
    lab: Lab, files: Path
) -> None:
    from neuroledger.data.package import package_stimuli

    package_stimuli(lab.open(), "mine", files / "table.csv", files / "images", TERMS)
    spec = lab.root / "specs" / "datasets" / "mine.yaml"
    spec.write_text(spec.read_text() + "notes: [mine]   # a remark\n")
    before = spec.read_text()
    package_stimuli(lab.open(), "mine", files / "table.csv", files / "images", TERMS)
    assert spec.read_text() == before


def test_missing_images_and_repeated_values_are_reported(lab: Lab, files: Path) -> None:
    from neuroledger.data.package import package_stimuli

    (files / "images" / "im1.png").unlink()
    with pytest.raises(RequestError, match=r"lacks 1 of 4 files, first 'im1\.png'"):
        package_stimuli(
            lab.open(), "mine", files / "table.csv", files / "images", TERMS
        )
    with pytest.raises(AssemblyError, match="number them in a column 'repetition'"):
        from_long_table(long_table().drop(columns="repetition"))
    with pytest.raises(AssemblyError, match="missing: \\['value'\\]"):
        from_long_table(long_table().drop(columns="value"))


def test_a_long_table_keeps_every_value() -> None:
    assembly = from_long_table(long_table())
    for _, row in long_table().iterrows():
        at = (assembly["stimulus_id"] == row.stimulus_id) & (
            assembly["repetition"] == row.repetition
        )
        assert (
            assembly.values[np.flatnonzero(at), list("ab").index(row.neuroid_id)]
            == row.value
        )


@pytest.mark.parametrize(
    "kind", ["dataset", "metric", "ceiling", "benchmark", "model", "suite"]
)
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


def test_a_new_spec_uses_the_registered_component_of_its_name(
    repository: Path, tmp_path: Path
) -> None:
    from neuroledger.cli.catalogue import scaffold
    from neuroledger.engine.check import check

    (tmp_path / "specs").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    for kind, id in (
        ("metric", "rdm_subsets"),
        ("ceiling", "rank_consistency"),
        ("model", "word_vectors"),
    ):
        scaffold(open_catalog(tmp_path), kind, id)
    catalog = open_catalog(tmp_path)
    assert catalog.metric("rdm_subsets").compare.name == "rdm_subsets"
    assert catalog.ceiling("rank_consistency").compare.name == "rank_consistency"
    assert catalog.model("word_vectors").builder.name == "word_vectors"
    assert check(catalog)[0] == []


def test_a_new_benchmark_starts_from_the_data_set_that_its_id_names(
    repository: Path, tmp_path: Path
) -> None:
    from neuroledger.cli.catalogue import scaffold
    from neuroledger.spec.catalog import open_catalog

    shutil.copytree(repository / "specs", tmp_path / "specs")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    path = scaffold(
        open_catalog(tmp_path), "benchmark", "Digits.simulated.time.V4-mine"
    )
    assert "dataset: Digits.simulated.time #" in path.read_text()
    signals = scaffold(open_catalog(tmp_path), "benchmark", "EEGLAB.sample-mine")
    assert "dataset: EEGLAB.sample " in signals.read_text()
    spec = open_catalog(tmp_path).benchmark("EEGLAB.sample-mine")
    assert (spec.paradigm.name, spec.parent, spec.floor.dummy) == (
        "decoding",
        "decoding",
        "dummy",
    )


def test_a_new_repository_is_filled_by_scaffolds_that_pass_check(
    tmp_path: Path,
) -> None:
    from neuroledger.cli.catalogue import scaffold
    from neuroledger.engine.check import check

    (tmp_path / "specs").mkdir()
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    with pytest.raises(
        RequestError,
        match=r"no dataset that .*: create one with `neuroledger new dataset ID`",
    ):
        scaffold(open_catalog(tmp_path), "benchmark", "Ours-mine")
    for kind, id in (
        ("dataset", "Ours"),
        ("benchmark", "Ours-mine"),
        ("suite", "ours"),
        ("metric", "closeness"),
        ("ceiling", "limit"),
        ("model", "small"),
    ):
        scaffold(open_catalog(tmp_path), kind, id)
    catalog = open_catalog(tmp_path)
    assert catalog.benchmark("Ours-mine").dataset == "Ours"
    assert check(catalog)[0] == []


# What is written, by itself


def observed_of(values: Any, **coords: Any) -> list[dict[str, Any]]:
    return observed(
        xr.DataArray(values, dims=("presentation", "neuroid"), coords=coords)
    )


def test_observed_expectations_describe_the_current_assembly() -> None:
    values = np.array([[1.0, np.nan], [2.0, 3.0], [4.0, 5.0]])
    coords = {
        "stimulus_id": ("presentation", ["a", "b", "a"]),
        "neuroid_id": ("neuroid", ["n", "m"]),
    }
    always = [
        {"check": "dims", "dims": ["presentation", "neuroid"]},
        {"check": "shape", "sizes": {"presentation": 3, "neuroid": 2}},
        {"check": "aligned"},
    ]
    assert observed_of(values) == [*always, {"check": "values_finite", "missing": 1}]
    assert observed_of(np.zeros((3, 2))) == [*always, {"check": "values_finite"}]
    assert observed_of(np.zeros((3, 2), dtype=int)) == always
    assert observed_of(np.zeros((3, 2), dtype=int), **coords) == [
        *always,
        {"check": "unique", "column": "neuroid_id"},
    ]
    numbered = {**coords, "repetition": ("presentation", [0, 0, 1])}
    assert observed_of(values, **numbered)[-1] == {
        "check": "repetitions",
        "low": 1,
        "high": 2,
    }
    numbered["stimulus_id"] = ("presentation", [7, 7, 7])
    assert observed_of(values, **numbered)[-1] == {"check": "repetitions", "count": 3}


def test_expectations_cover_the_parts_of_a_data_set(tmp_path: Path) -> None:
    frame = pd.DataFrame({"stimulus_id": ["a", "b"], "filename": ["a.PNG", "b.tiff"]})
    plain = StimulusSet("s", frame[["stimulus_id"]])
    assembly = xr.DataArray(
        [1, 2],
        dims="presentation",
        coords={"stimulus_id": ("presentation", ["a", "b"])},
    )
    head = "expectations:\n  stimuli:\n    - {check: row_count, count: 2}\n    - {check: unique, column: stimulus_id}\n"
    files = head + "    - {check: files_exist}\n"
    body = "  assembly:\n    - {check: dims, dims: [presentation]}\n    - {check: shape, sizes: {presentation: 2}}\n"
    archive = tmp_path / "s.zip"
    assert (
        expectations_text(Dataset(plain, assembly))
        == head + body + "    - {check: aligned}\n"
    )
    assert expectations_text(Dataset(None, assembly)) == "expectations:\n" + body
    assert (
        expectations_text(Dataset(plain, assembly.drop_vars("stimulus_id")))
        == head + body
    )
    assert (
        expectations_text(Dataset(StimulusSet("s", frame, archive), None))
        == files + "    - {check: files_decode}\n"
    )
    sounds = frame.assign(filename=["a.png", "b.wav"])
    assert expectations_text(Dataset(StimulusSet("s", sounds, archive), None)) == files


def test_a_long_table_becomes_rows_of_stimuli_in_order_with_the_coordinates_of_either_side() -> (
    None
):
    frame = long_table().assign(
        day=lambda rows: rows["repetition"] % 2,
        depth=lambda rows: (rows["region"] == "IT") * 1.5,
    )
    assembly = from_long_table(frame)
    assert set(assembly.coords) == {
        "stimulus_id",
        "repetition",
        "day",
        "neuroid_id",
        "region",
        "depth",
    }
    assert assembly["day"].dims == assembly["repetition"].dims == ("presentation",)
    assert assembly["region"].dims == assembly["depth"].dims == ("neuroid",)
    assert assembly["depth"].values.tolist() == [0.0, 1.5] and assembly[
        "neuroid_id"
    ].values.tolist() == [
        "a",
        "b",
    ]
    assert assembly["stimulus_id"].values.tolist() == np.repeat(IDS, 3).tolist()
    assert (
        assembly["repetition"].values.tolist() == [0, 1, 2] * 4
        and assembly["repetition"].dtype.kind == "i"
    )
    assert assembly["stimulus_id"].dtype.kind == "U" and assembly.dtype == float
    assert (
        from_long_table(frame.assign(repetition=5).iloc[:0].assign(value=[])).size == 0
    )
    holes = from_long_table(
        pd.DataFrame(
            {
                "stimulus_id": [2, 1],
                "neuroid_id": [10, 9],
                "value": [1, 2],
                "repetition": [0, 0],
            }
        )
    )
    assert np.array_equal(holes.values, [[2, np.nan], [np.nan, 1]], equal_nan=True)
    assert holes["neuroid_id"].values.tolist() == ["9", "10"] and holes[
        "repetition"
    ].dims == ("presentation",)
    with pytest.raises(
        AssemblyError,
        match=r"^a long table needs the columns neuroid_id, stimulus_id, value; missing: ",
    ):
        from_long_table(frame.drop(columns=["value", "neuroid_id"]))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A repository without DVC and without schemas."""
    (tmp_path / "own" / "specs").mkdir(parents=True)
    (tmp_path / "own" / "dvc.yaml").write_text("stages: {}\n")
    return tmp_path / "own"


def spec_of(root: Path) -> tuple[str, Any]:
    text = (root / "specs" / "datasets" / "mine.yaml").read_text()
    return text, yaml.safe_load(text)


def test_stimuli_without_dvc_are_pinned_with_a_note_that_others_cannot_fetch_them(
    own: Path, files: Path
) -> None:
    terms = Terms(
        reader_of, "CC0-1.0", "public", "Our images", ("new",), {"cite": ["us2026"]}
    )
    written = package_stimuli(
        open_catalog(own), "mine", files / "table.csv", files / "images", terms
    )
    folder = own / "data" / "mine"
    assert written == [folder / "stimuli.csv", folder / "stimuli.zip"]
    assert (folder / "stimuli.csv").read_bytes() == table().to_csv(
        index=False, lineterminator="\n"
    ).encode()
    with zipfile.ZipFile(folder / "stimuli.zip") as archive:
        held = archive.infolist()
        assert [(one.filename, one.date_time, one.compress_type) for one in held] == [
            (f"{id}.png", (1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED) for id in IDS
        ]
        assert [archive.read(one) for one in held] == [image(i) for i in range(4)]
    text, spec = spec_of(own)
    assert (
        text.startswith('id: mine\nversion: 1\ntitle: "Our images"\n')
        and "unavailable" not in spec
    )
    assert list(spec) == [
        "id",
        "version",
        "title",
        "access_steps",
        "license",
        "access",
        "cite",
        "notes",
        "files",
        "reader",
        "expectations",
    ]
    assert (
        spec["access_steps"] == [UNTRACKED]
        and spec["notes"] == ["new"]
        and spec["cite"] == ["us2026"]
    )
    assert (spec["license"], spec["access"]) == ("CC0-1.0", "public")
    assert spec["files"] == {
        path.name: {
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in written
    }
    assert spec["expectations"]["stimuli"] == [
        {"check": "row_count", "count": 4},
        {"check": "unique", "column": "stimulus_id"},
        {"check": "files_exist"},
        {"check": "files_decode"},
    ]


def test_a_second_part_keeps_the_fields_of_the_first(own: Path, files: Path) -> None:
    package_stimuli(open_catalog(own), "mine", table()[["stimulus_id"]], None, TERMS)
    text, first = spec_of(own)
    assert (
        list(first["files"]) == ["stimuli.csv"]
        and text.splitlines()[2] == "title: mine"
    )
    assert first["expectations"] == {
        "stimuli": [
            {"check": "row_count", "count": 4},
            {"check": "unique", "column": "stimulus_id"},
        ]
    }
    path = own / "specs" / "datasets" / "mine.yaml"
    path.write_text(
        text.replace("size: ", "url: https://example.org/a, size: ")
        + "unavailable: not yet\n"
    )
    (path_written,) = package_assembly(
        open_catalog(own), "mine", from_long_table(long_table()), Terms(reader_of)
    )
    assert path_written == own / "data" / "mine" / "responses.nc"
    _, second = spec_of(own)
    assert (
        list(second["files"]) == ["stimuli.csv", "responses.nc"]
        and "unavailable" not in second
    )
    assert second["files"]["stimuli.csv"]["url"] == "https://example.org/a"
    assert second["expectations"]["stimuli"] == first["expectations"]["stimuli"]
    assert second["expectations"]["assembly"] == observed(from_long_table(long_table()))
    package_stimuli(
        open_catalog(own), "mine", table()[["stimulus_id"]], None, Terms(reader_of)
    )
    assert spec_of(own)[1] == second, "what was pinned with its address keeps it"
    (path_written,) = package_trials(
        open_catalog(own), "mine", pd.DataFrame({"a": [1, 2]}), Terms(reader_of)
    )
    assert (
        path_written.read_bytes() == b"a\n1\n2\n"
        and "trials.csv" in spec_of(own)[1]["files"]
    )


def test_trials_are_a_table_of_presentations(own: Path) -> None:
    (written,) = package_trials(
        open_catalog(own), "mine", pd.DataFrame({"a": [1, 2, 3]}), TERMS
    )
    assert (
        written == own / "data" / "mine" / "trials.csv"
        and written.read_bytes() == b"a\n1\n2\n3\n"
    )
    assert spec_of(own)[1]["expectations"] == {
        "assembly": [
            {"check": "dims", "dims": ["presentation"]},
            {"check": "shape", "sizes": {"presentation": 3}},
        ]
    }


@pytest.mark.parametrize(
    ("license", "access", "lost"),
    [
        (None, None, "--license and --access"),
        ("CC0-1.0", None, "--access"),
        (None, "public", "--license"),
    ],
)
def test_a_new_data_set_without_terms_is_refused_before_anything_is_written(
    own: Path, files: Path, license: str | None, access: Any, lost: str
) -> None:
    terms = Terms(reader_of, license, access)
    for package in (
        lambda: package_stimuli(
            open_catalog(own), "mine", files / "table.csv", files / "images", terms
        ),
        lambda: package_assembly(
            open_catalog(own), "mine", from_long_table(long_table()), terms
        ),
        lambda: package_trials(open_catalog(own), "mine", long_table(), terms),
    ):
        with pytest.raises(
            RequestError,
            match=f"'mine' is new, and its licence and access are not stated: give {lost} ",
        ):
            package()
    assert not (own / "data").exists() and not (own / "specs" / "datasets").exists()


def test_files_outside_their_folder_or_without_one_are_refused(
    own: Path, files: Path
) -> None:
    for folder in (None, files / "nowhere"):
        with pytest.raises(
            RequestError, match="give the folder of the files with --files FOLDER"
        ):
            package_stimuli(open_catalog(own), "mine", table(), folder, TERMS)
    (files / "secret.png").write_bytes(image(0))
    away = table().assign(filename=["../secret.png", *table()["filename"][1:]])
    with pytest.raises(
        RequestError, match=r"file name '\.\./secret\.png' points outside"
    ):
        package_stimuli(open_catalog(own), "mine", away, files / "images", TERMS)
    with pytest.raises(AssemblyError, match=r"^responses of 'mine': dimensions are"):
        package_assembly(
            open_catalog(own), "mine", xr.DataArray([1.0], dims="x"), TERMS
        )
    assert not (own / "specs" / "datasets").exists()


def test_private_files_are_never_tracked_where_all_others_are(
    own: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own / ".dvc").mkdir()
    tracked: list[list[str]] = []
    monkeypatch.setattr(
        module,
        "track",
        lambda root, written: tracked.append([path.name for path in written]),
    )
    package_trials(
        open_catalog(own), "mine", long_table(), Terms(reader_of, "CC0-1.0", "private")
    )
    steps = ["Ask the owner of these private data for the files."]
    assert tracked == [] and spec_of(own)[1]["access_steps"] == steps
    path = own / "specs" / "datasets" / "mine.yaml"
    path.write_text(path.read_text().replace(inline(steps), '["Write to us."]'))
    package_trials(open_catalog(own), "mine", long_table(), Terms(reader_of))
    assert tracked == [] and spec_of(own)[1]["access_steps"] == ["Write to us."], (
        "as the spec says"
    )
    (own / "data" / "mine" / ".dvc").mkdir()
    package_trials(open_catalog(own), "mine", long_table(), Terms(reader_of))
    assert (
        tracked == [["trials.csv"]]
        and spec_of(own)[1]["files"]["trials.csv"]["dvc"] is True
    ), "to a remote of its own"
    package_trials(open_catalog(own), "other", long_table(), TERMS)
    assert tracked == [["trials.csv"]] * 2
    assert "access_steps" not in yaml.safe_load(
        (own / "specs" / "datasets" / "other.yaml").read_text()
    )


def test_dvc_is_required_and_its_error_is_reported(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        RequestError,
        match=r"is not a DVC repository, .*`dvc init` there first .*nothing was written$",
    ):
        require_dvc(own)
    (own / ".dvc").mkdir()
    require_dvc(own)
    asked: list[tuple[list[str], Path]] = []

    def failing(
        command: list[str], *, cwd: Path, **_: Any
    ) -> subprocess.CompletedProcess[str]:
        asked.append((command, cwd))
        return subprocess.CompletedProcess(command, 1, "", said.pop())

    monkeypatch.setattr(module.subprocess, "run", failing)
    said = ["", "ERROR: first\nERROR: disk full\n"]
    for told in ("ERROR: disk full", "no message"):
        with pytest.raises(RequestError, match=f"^`dvc add` failed: {told}$"):
            track(own, [own / "a", own / "b"])
    assert asked[0] == (
        [
            sys.executable,
            "-P",
            "-m",
            "dvc",
            "add",
            "--quiet",
            str(own / "a"),
            str(own / "b"),
        ],
        own,
    )


def test_a_declared_reader_with_further_parameters_is_kept(own: Path) -> None:
    package_assembly(open_catalog(own), "mine", from_long_table(long_table()), TERMS)
    text, spec = spec_of(own)
    declared = spec["reader"] | {"degrees": 4}
    path = own / "specs" / "datasets" / "mine.yaml"
    path.write_text(with_field(text, ("reader",), declared))
    package_assembly(open_catalog(own), "mine", from_long_table(long_table()), TERMS)
    assert spec_of(own)[1]["reader"] == declared
