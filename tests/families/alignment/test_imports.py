"""Imported files: unreadable ones are refused with a reason and write nothing; others round-trip without loss."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr

from neuroledger.cli import main
from neuroledger.data.gate.validate import validate
from neuroledger.data.load import load_dataset
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Session
from neuroledger.errors import DataError, IntegrityError, RequestError, UnavailableError
from neuroledger.families.alignment.brainscore_files import (
    export_brainscore,
    fetch_brainscore,
    import_brainscore,
)
from tests.engine.lab import Lab, build
from tests.families.alignment.test_preparation import files_of, recorded

IDS = [f"im{i}" for i in range(4)]
ASSEMBLY, TABLES, ARCHIVE = "assy_x.nc", "stimulus_x.csv", "stimulus_x.zip"


@pytest.fixture
def lab(tmp_path: Path, repository: Path) -> Lab:
    return build(tmp_path / "lab", repository)


def package(
    folder: Path,
    name: str = "x",
    assembly: xr.DataArray | None = None,
    ids: list[str] | None = None,
) -> list[Path]:
    ids = ids or IDS
    if assembly is None:
        assembly = recorded(np.random.default_rng(0), ids)
    return [folder / file for file in files_of(folder, name, assembly, ids).values()]


def rezip(
    path: Path, change: Callable[[zipfile.ZipFile, dict[str, bytes]], None]
) -> None:
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        change(new, members)


def add_link(new: zipfile.ZipFile, members: dict[str, bytes]) -> None:
    for name, content in members.items():
        info = zipfile.ZipInfo(name)
        if name == "im1.png":
            info.external_attr, content = 0o120777 << 16, b"/etc/passwd"
        new.writestr(info, content)


def add_outside_member(new: zipfile.ZipFile, members: dict[str, bytes]) -> None:
    for name, content in (members | {"../im9.png": b"x"}).items():
        new.writestr(name, content)


def add_member(new: zipfile.ZipFile, members: dict[str, bytes]) -> None:
    for name, content in (members | {"readme.txt": b"x"}).items():
        new.writestr(name, content)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def repeat_member(new: zipfile.ZipFile, members: dict[str, bytes]) -> None:
    for name, content in [*members.items(), ("im1.png", b"other")]:
        new.writestr(name, content)


def truncate_members(new: zipfile.ZipFile, members: dict[str, bytes]) -> None:
    for name, content in members.items():
        new.writestr(name, content[: len(content) // 2])


def write_rows(path: Path, text: str) -> None:
    path.write_text("stimulus_id,filename\n" + text)


def write_variables(path: Path, **variables: Any) -> None:
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("presentation", 4)
        for name, values in variables.items():
            file.createVariable(name, values.dtype, ("presentation",))[:] = values


def write_ids(path: Path, ids: list[Any]) -> None:
    assembly = recorded(np.random.default_rng(0), IDS)
    values = np.repeat(
        np.asarray(ids, dtype=object if isinstance(ids[0], str) else None), 4
    )
    assembly.assign_coords(stimulus_id=("presentation", values)).rename(
        "data"
    ).to_netcdf(path)


def write_infinite(path: Path) -> None:
    assembly = recorded(np.random.default_rng(0), IDS)
    assembly.values[3] = np.inf
    assembly.rename("data").to_netcdf(path)


def write_renamed(path: Path, **dims: str) -> None:
    assembly = recorded(np.random.default_rng(0), IDS).isel(time_bin=0, drop=True)
    assembly.rename(dims).rename("data").to_netcdf(path)


def add_foreign_group(path: Path) -> None:
    with netCDF4.Dataset(path, "a") as file:
        group = file.createGroup("notes")
        group.createDimension("n", 2)
        group.createVariable("when", "f8", ("n",))[:] = [1, 2]


def write_group_only(path: Path) -> None:
    path.unlink()
    with netCDF4.Dataset(path, "w") as file:
        file.createGroup("main")


TABLE = "".join(f"{id},{id}.png\n" for id in IDS)
CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a row without its file": (lambda f: write_rows(f / TABLES, TABLE + "im9,im9.png\n"), "lacks 1 of 5 files"),
    "a stimulus that no row names": (lambda f: write_rows(f / TABLES, TABLE.replace("im3,", "im7,")), "first 'im3'"),
    "rows that differ": (lambda f: write_rows(f / TABLES, TABLE + "im1,im2.png\n"), "several rows that differ"),
    "an uneven table": (lambda f: write_rows(f / TABLES, "im0,im0.png,more\nim1\n"), "stimulus_x"),
    "a link": (lambda f: rezip(f / ARCHIVE, add_link), "'im1.png' is a link"),
    "a way out": (lambda f: rezip(f / ARCHIVE, add_outside_member), "points outside"),
    "a further member": (lambda f: rezip(f / ARCHIVE, add_member), "1 files that stimulus_x.csv does not name"),
    "a member twice": (lambda f: rezip(f / ARCHIVE, repeat_member), "'im1.png' occurs twice"),
    "images cut off": (lambda f: rezip(f / ARCHIVE, truncate_members), "im0"),
    "no zip": (lambda f: (f / ARCHIVE).write_bytes(b"PK nothing"), "not a readable zip"),
    "no netCDF": (lambda f: (f / ASSEMBLY).write_bytes(b"\x89HDF nothing"), "cannot be read as netCDF"),
    "no assembly": (lambda f: write_variables(f / ASSEMBLY, values=np.zeros(4)), "no variable data or __xarray_data"),
    "numbers for names": (lambda f: write_ids(f / ASSEMBLY, [0, 1, 2, 3]), "first '0'; the table has 'im0', 'im1'"),
    "a number between": (lambda f: write_ids(f / ASSEMBLY, [0.0, 1.5, 2.0, 3.0]), "first '0.0'; the table has 'im0'"),
    "one number twice": (
        lambda f: write_rows(f / TABLES, "1,im0.png\n1.0,im1.png\n2,im2.png\n3,im3.png\n"),
        "ids '1' and '1.0' are one number"),
    "dimensions of no class": (
        lambda f: write_renamed(f / ASSEMBLY, neuroid="electrode"), "dimensions are (presentation, electrode"),
    "a class without presentations": (
        lambda f: write_renamed(f / ASSEMBLY, presentation="trial"), "dimensions are (trial, neuroid"),
    "a group that is no assembly": (
        lambda f: add_foreign_group(f / ASSEMBLY), "assy_x.nc, group 'notes', has no variable data"),
    "a group alone": (lambda f: write_group_only(f / ASSEMBLY), "assy_x.nc has no variable data"),
    "infinite responses": (
        lambda f: write_infinite(f / ASSEMBLY), "cannot be imported, nothing was written: .* infinite values"),
    "no ids": (lambda f: write_variables(f / ASSEMBLY, data=np.zeros(4)), "no coordinate 'stimulus_id' to merge"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("case", CASES)
def test_unreadable_files_are_refused_and_nothing_is_written(
    lab: Lab, tmp_path: Path, case: str
) -> None:
    files = package(tmp_path / "files")
    change, words = CASES[case]
    change(tmp_path / "files")
    before = sorted(
        str(path) for path in lab.root.rglob("*") if ".cache" not in path.parts
    )
    with pytest.raises(DataError, match=words.replace("(", r"\(")) as refused:
        import_brainscore(lab.open(), "x", files)
    assert (
        sorted(str(path) for path in lab.root.rglob("*") if ".cache" not in path.parts)
        == before
    )
    assert "Traceback" not in str(refused.value) and "np." not in str(refused.value)


def test_ids_that_are_partly_numbers_are_not_changed(lab: Lab, tmp_path: Path) -> None:
    """A column of numbers and names is text; the peer drops leading zeros of numbers."""
    for name, ids, table in (
        ("mixed", ["0", "1", "im2", "im3"], ["0", "1", "im2", "im3"]),
        ("padded", [7, 8, 9, 10], ["007", "008", "009", "010"]),
    ):
        files = package(tmp_path / name, name)
        write_ids(files[0], ids)
        write_rows(
            files[1], "".join(f"{id},im{at}.png\n" for at, id in enumerate(table))
        )
        import_brainscore(lab.open(), name, files)
        assert validate(lab.open(), name).success
        data = load_dataset(lab.open(), name)
        assert data.assembly is not None and data.stimuli is not None
        assert data.stimuli.ids == table
        assert (
            data.assembly["stimulus_id"].values.astype(str).tolist()
            == np.repeat(table, 4).tolist()
        )


def test_a_data_set_that_does_not_fit_a_benchmark_is_one_clear_error(
    lab: Lab, tmp_path: Path
) -> None:
    """Properties and thresholds have no presentations."""
    rng = np.random.default_rng(1)
    own = {
        "neuroid_id": ("neuroid", list("abcde")),
        "neuronal_property_": ("neuronal_property", ["p", "q"]),
    }
    for name, assembly in (
        (
            "properties",
            xr.DataArray(
                rng.random((5, 2)), dims=("neuroid", "neuronal_property"), coords=own
            ),
        ),
        (
            "people",
            xr.DataArray(
                rng.random(4),
                dims="subject",
                coords={"subject_": ("subject", list("wxyz"))},
            ),
        ),
    ):
        import_brainscore(lab.open(), name, package(tmp_path / name, name, assembly))
        assert validate(lab.open(), name).success
        lab.benchmark(f"{name}.V4-ridge", dataset=name)
        session = Session(lab.open())
        with pytest.raises(
            DataError,
            match=f"data set '{name}' has no presentations to compare responses to",
        ):
            evaluate(
                session,
                session.catalog.benchmark(f"{name}.V4-ridge"),
                "pixels4",
                controls=False,
            )


def test_a_wrong_sha1_and_files_that_do_not_fit_are_refused(
    lab: Lab, tmp_path: Path
) -> None:
    files = package(tmp_path / "files")
    right = {path.name: hashlib.sha1(path.read_bytes()).hexdigest() for path in files}
    with pytest.raises(IntegrityError, match=r"assy_x\.nc has SHA-1"):
        import_brainscore(lab.open(), "x", files, sha1=right | {"assy_x.nc": "0" * 40})
    with pytest.raises(
        RequestError, match=r"'other\.nc', which is not among the files"
    ):
        import_brainscore(lab.open(), "x", files, sha1={"other.nc": "0" * 40})
    with pytest.raises(RequestError, match="give one of each"):
        import_brainscore(lab.open(), "x", [*files, package(tmp_path / "more", "y")[0]])
    import_brainscore(lab.open(), "x", files, sha1=right)
    assert {
        name: pin.sha1 for name, pin in lab.open().dataset("x").files.items()
    } == right
    with pytest.raises(RequestError, match="there is a dataset 'x' already"):
        import_brainscore(lab.open(), "x", files)
    with pytest.raises(
        RequestError, match="no benchmark, data set or stimulus set 'nothing'"
    ):
        fetch_brainscore(lab.open(), "nothing")


def test_a_data_set_of_a_key_that_cannot_be_fetched_does_not_stop_the_others(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, id in enumerate(("one", "two")):
        assembly = recorded(np.random.default_rng(number), IDS)
        import_brainscore(lab.open(), id, package(tmp_path / id, assembly=assembly))
        (lab.root / "data" / id / ASSEMBLY).unlink()
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(tmp_path / "two"))
    with pytest.raises(UnavailableError, match=r"^assy_x\.nc has no address"):
        fetch_brainscore(lab.open(), "x")
    assert [(lab.root / "data" / id / ASSEMBLY).exists() for id in ("one", "two")] == [
        False,
        True,
    ]
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(tmp_path / "one"))
    assert fetch_brainscore(lab.open(), "x") == ["one", "two"]


def test_odd_names_numeric_subjects_and_duplicate_files_are_imported(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = package(tmp_path / "files")
    odd = tmp_path / "files" / "assy weird, {name: x}.nc"
    files[0].rename(odd)
    with pytest.warns(UserWarning, match="Duplicate name"):
        rezip(
            files[2],
            lambda new, members: [
                new.writestr(n, c)
                for n, c in [*members.items(), *list(members.items())[:1]]
            ],
        )  # type: ignore[arg-type,return-value]
    monkeypatch.chdir(lab.root)
    assert (
        main(
            [
                "import",
                "brainscore",
                "x",
                str(odd),
                *map(str, files[1:]),
                "--degrees",
                "8",
            ]
        )
        == 0
    )
    spec = lab.open().dataset("x")
    assert "assy_weird___name__x_.nc" in spec.files and spec.degrees == 8
    data = load_dataset(lab.open(), "x")
    assert data.assembly is not None
    assert data.assembly["neuroid_id"].values.tolist()[2:4] == [
        "monkeyF.2",
        "monkeyN.0",
    ]
    assert validate(lab.open(), "x").success
    checks = [check.check for check in spec.expectations.stimuli]
    assert checks == ["row_count", "unique", "files_exist", "files_decode"]


def add_group(path: Path) -> None:
    with netCDF4.Dataset(path, "a") as file:
        group = file.createGroup("events")
        group.createDimension("event", 3)
        group.createVariable("onset", "f8", ("event",))[:] = [1, 2, 3]
        group.createVariable("data", "f8", ("event",))[:] = [4, 5, 6]


def test_export_and_import_round_trip(lab: Lab, tmp_path: Path) -> None:
    assembly = recorded(np.random.default_rng(0), IDS, bins=2)
    assembly.attrs = {
        "number_of_trials": 20,
        "bandwidth_bins": np.linspace(0, 1, 5),
        "bibtex": "@article{x}",
    }
    files = package(tmp_path / "files", assembly=assembly)
    add_group(files[0])
    import_brainscore(lab.open(), "one", files, degrees=6)
    assert validate(lab.open(), "one").success
    import_brainscore(
        lab.open(), "two", export_brainscore(lab.open(), "one", tmp_path / "out")
    )
    one, two = (load_dataset(lab.open(), id) for id in ("one", "two"))
    assert (
        one.assembly is not None
        and two.assembly is not None
        and two.stimuli is not None
    )
    np.testing.assert_array_equal(one.assembly.values, two.assembly.values)
    assert set(one.assembly.coords) == set(two.assembly.coords) - {"degrees"}
    assert (
        two.assembly.attrs["number_of_trials"] == 20
        and two.assembly.attrs["bibtex"] == "@article{x}"
    )
    np.testing.assert_array_equal(
        two.assembly.attrs["bandwidth_bins"], np.linspace(0, 1, 5)
    )
    np.testing.assert_array_equal(two.metadata["events"].values, [4, 5, 6])
    assert two.stimuli.table["degrees"].tolist() == [6.0] * 4


def test_a_relabelled_assembly_is_exported_as_its_original_file(
    lab: Lab, tmp_path: Path
) -> None:
    """Neuroids numbered per subject, and another name of repetitions, which Brain-Score's code needs."""
    assembly = recorded(np.random.default_rng(0), IDS).rename(
        repetition="repetition_id"
    )
    files = package(tmp_path / "files", assembly=assembly)
    add_group(files[0])
    import_brainscore(lab.open(), "one", files)
    reader = lab.open().dataset("one").reader
    assert reader is not None and [
        step["step"] for step in reader.parameters["prepare"]
    ] == [
        "rename",
        "label",
    ]
    out = export_brainscore(lab.open(), "one", tmp_path / "out")
    assert (
        out[-1].name == "assy_one.nc" and out[-1].read_bytes() == files[0].read_bytes()
    )
    folder = lab.root / "data" / "one"
    damaged = folder / files[0].name
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DataError, match="one"):
        export_brainscore(lab.open(), "one", tmp_path / "again")


@pytest.mark.slow
def test_properties_behaviour_and_triplets_round_trip(lab: Lab, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shapes = {
        "properties": xr.DataArray(
            rng.random((5, 2)),
            dims=("neuroid", "neuronal_property"),
            coords={
                "neuroid_id": ("neuroid", list("abcde")),
                "neuronal_property_": ("neuronal_property", ["p", "q"]),
            },
        ),
        "people": xr.DataArray(
            rng.random(4),
            dims="subject",
            coords={"subject_": ("subject", list("wxyz"))},
        ),
        "rsm": xr.DataArray(
            rng.random((4, 2)),
            dims=("presentation", "neuroid"),
            coords={
                "stimulus_id": ("presentation", IDS),
                "neuroid_id": ("neuroid", [0, 1]),
            },
        ),
        "triplets": xr.DataArray(
            ["im0", "im3"],
            dims="presentation",
            coords={
                "image_1": ("presentation", ["im0", "im1"]),
                "image_2": ("presentation", ["im1", "im2"]),
                "image_3": ("presentation", ["im2", "im3"]),
                "stimulus_id": ("presentation", ["im2", "im3"]),
            },
        ),
    }
    for name, assembly in shapes.items():
        files = package(tmp_path / name, name, assembly)
        import_brainscore(lab.open(), name, files)
        assert validate(lab.open(), name).success, name
        import_brainscore(
            lab.open(),
            f"{name}.2",
            export_brainscore(lab.open(), name, tmp_path / "out" / name),
        )
        one, two = (load_dataset(lab.open(), id).assembly for id in (name, f"{name}.2"))
        assert one is not None and two is not None and one.dims == two.dims
        np.testing.assert_array_equal(one.values, two.values)
        for coord in one.coords:
            assert one[coord].values.tolist() == two[coord].values.tolist(), (
                name,
                coord,
            )


def test_numeric_ids_are_exported_as_the_peer_reads_them(
    lab: Lab, tmp_path: Path
) -> None:
    ids = [str(n) for n in range(4)]
    trials = xr.DataArray(
        [2, 0],
        dims="presentation",
        coords={
            f"image_{n + 1}": ("presentation", names)
            for n, names in enumerate(([0, 3], [1, 2], [2, 0]))
        }
        | {"stimulus_id": ("presentation", [2, 0])},
    )
    import_brainscore(
        lab.open(), "triplets", package(tmp_path / "files", "triplets", trials, ids)
    )
    assert load_dataset(lab.open(), "triplets").assembly[
        "stimulus_id"
    ].values.tolist() == ["0|1|2", "3|2|0"]  # type: ignore[index]
    out = export_brainscore(lab.open(), "triplets", tmp_path / "out")
    with netCDF4.Dataset(out[-1]) as file:
        assert file["stimulus_id"].dtype == np.int64 and file["stimulus_id"][
            :
        ].tolist() == [2, 0]
    assert pd.read_csv(out[0])["stimulus_id"].dtype == np.int64
    import_brainscore(lab.open(), "again", out)
    again = load_dataset(lab.open(), "again").assembly
    assert again is not None and again["image_2"].values.tolist() == [1, 2]


def test_additional_and_joined_stimulus_sets_are_exported(
    lab: Lab, tmp_path: Path
) -> None:
    for name in ("train", "test"):
        ids = [f"{name}{i}" for i in range(3)]
        package(
            lab.root / "data" / "joined",
            name,
            recorded(np.random.default_rng(0), ids, 2),
            ids,
        )
    folder = lab.root / "data" / "joined"
    pins = {
        path.name: {
            "url": f"https://example.org/{path.name}",
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in folder.iterdir()
    }
    part = {
        n: {
            "assembly": f"assy_{n}.nc",
            "stimuli": f"stimulus_{n}.csv",
            "archive": f"stimulus_{n}.zip",
        }
        for n in ("train", "test")
    }
    label = {
        "step": "label",
        "dim": "neuroid",
        "coord": "neuroid_id",
        "of": ["subject", "neuroid_id"],
    }
    reader = {
        "name": "brainio",
        "parts": part,
        "prepare": [label],
        "fitting_stimuli": {
            "fit": {"stimuli": "stimulus_train.csv", "archive": "stimulus_train.zip"}
        },
    }
    lab.spec("datasets", "joined", license="CC0-1.0", files=pins, reader=reader)
    out = export_brainscore(lab.open(), "joined", tmp_path / "out")
    assert [path.name for path in out] == [
        "stimulus_joined.csv",
        "stimulus_joined.zip",
        "stimulus_joined_fit.csv",
        "stimulus_joined_fit.zip",
        "assy_joined.nc",
    ]
    table = pd.read_csv(out[0])
    with zipfile.ZipFile(out[1]) as archive:
        assert set(archive.namelist()) == set(table["filename"]) and not any(
            "/" in name for name in archive.namelist()
        )
        assert archive.read("test_test1.png") == zipfile.ZipFile(
            folder / "stimulus_test.zip"
        ).read("test1.png")
    import_brainscore(lab.open(), "again", [out[0], out[1], out[4]])
