"""Brain-Score's files are read as by its own loader, and exports can be read again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from neuroledger.cli import main
from neuroledger.data.assembly import average_repetitions, check
from neuroledger.data.gate.validate import validate
from neuroledger.data.load import load_dataset
from neuroledger.errors import AssemblyError
from neuroledger.families.alignment.readers.brainio import brainio, read_assembly
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.registry import get
from tests.engine.lab import Lab, build

NAMES = {"stimuli": "stimulus_Demo2024.csv", "archive": "stimulus_Demo2024.zip"}


@pytest.fixture
def fixture(reference: Path) -> Path:
    return reference / "brainscore_oracle" / "fixture_brainio"


@pytest.fixture
def lab(tmp_path: Path, repository: Path) -> Lab:
    return build(tmp_path / "lab", repository)


@pytest.mark.parametrize(
    "name",
    ["assy_Demo2024.nc", "assy_Demo2024_uncompressed.nc", "assy_Demo2024_withgroup.nc"],
)
def test_merged_and_averaged_as_the_peer_does(fixture: Path, name: str) -> None:
    expected = json.loads((fixture / "expected.json").read_text())
    data = brainio(
        {path.name: path for path in fixture.iterdir()}, assembly=name, **NAMES
    )
    assembly, stimuli = data.assembly, data.stimuli
    assert assembly is not None and stimuli is not None
    check(assembly)
    assert list(assembly.dims) == expected["merged"]["dims"]
    levels = [n for n, c in assembly.coords.items() if c.dims == ("presentation",)]
    assert levels == expected["merged"]["presentation_levels"]
    assert assembly["object_name"].values.tolist() == expected["merged"]["object_name"]
    averaged = average_repetitions(assembly)
    assert (
        averaged["stimulus_id"].values.tolist() == expected["averaged"]["stimulus_id"]
    )
    np.testing.assert_allclose(
        averaged.values, expected["averaged"]["values"], rtol=1e-12
    )
    assert stimuli.bytes("stim1").startswith(b"\x89PNG")
    assert ("image_metadata" in data.metadata) == ("withgroup" in name)


def test_an_assembly_can_be_read_without_its_responses(fixture: Path) -> None:
    path = fixture / "assy_Demo2024_withgroup.nc"
    (whole, groups), (bare, named) = (
        read_assembly(path),
        read_assembly(path, values=False),
    )
    assert (
        bare.dims == whole.dims
        and bare.shape == whole.shape
        and bare.attrs == whole.attrs
        and set(named) == set(groups)
    )
    assert bare.coords.to_dataset().identical(whole.coords.to_dataset())
    assert not bare.values.any() and whole.values.any()


def test_choices_are_text(fixture: Path) -> None:
    data = brainio({"a.nc": fixture / "assy_DemoBehavior.nc"}, assembly="a.nc")
    assert data.assembly is not None and data.assembly.dtype.kind == "U"
    assert set(data.assembly.coords) == {"stimulus_id", "subject", "truth"}


def test_fitting_stimuli_are_a_separate_set(fixture: Path) -> None:
    files = {path.name: path for path in fixture.iterdir()}
    fit = {"stimuli": NAMES["stimuli"], "archive": NAMES["archive"]}
    reader = get("reader", "brainio")
    bound = reader.bind(
        {"assembly": "assy_DemoBehavior.nc", "fitting_stimuli": {"fit": fit}}
    )
    held = reader.function(files, **bound).extra_stimuli["fit"]
    assert held.bytes("stim1").startswith(b"\x89PNG")


def test_ids_of_several_stimuli_are_joined(fixture: Path) -> None:
    files = {"a.nc": fixture / "assy_DemoBehavior.nc"}
    data = brainio(files, assembly="a.nc", several=("subject", "truth"))
    assert data.assembly is not None
    both = zip(
        data.assembly["subject"].values, data.assembly["truth"].values, strict=True
    )
    assert data.assembly["stimulus_id"].values.tolist() == [
        "|".join(map(str, row)) for row in both
    ]
    with pytest.raises(AssemblyError, match="has no coordinate 'image_1'; it has"):
        brainio(files, assembly="a.nc", several=("image_1",))


def test_import_and_export_round_trip(
    lab: Lab, fixture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.root)
    files = [str(fixture / name) for name in ("assy_Demo2024.nc", *NAMES.values())]
    assert main(["import", "brainscore", "Demo2024", *files]) == 0
    spec = open_catalog(lab.root).dataset("Demo2024")
    sha1 = json.loads((fixture / "expected.json").read_text())["nc_sha1"]
    assert spec.files["assy_Demo2024.nc"].sha1 == sha1
    assert validate(open_catalog(lab.root), "Demo2024").success
    assert (
        main(["export", "brainscore", "Demo2024", "--out", str(tmp_path / "out")]) == 0
    )
    names = {p.suffix: p for p in (tmp_path / "out").iterdir()}
    again = brainio(
        {p.name: p for p in names.values()},
        assembly=names[".nc"].name,
        stimuli=names[".csv"].name,
    )
    data = load_dataset(open_catalog(lab.root), "Demo2024")
    assert again.assembly is not None and data.assembly is not None
    np.testing.assert_array_equal(again.assembly.values, data.assembly.values)
    assert list(again.assembly.coords) == list(data.assembly.coords)
    original = hashlib.sha256(
        (fixture / "stimulus_Demo2024.zip").read_bytes()
    ).hexdigest()
    assert hashlib.sha256(names[".zip"].read_bytes()).hexdigest() == original


def test_an_own_data_set_round_trips(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.root)
    assert main(["export", "brainscore", "lab", "--out", str(tmp_path / "out")]) == 0
    files = [str(path) for path in sorted((tmp_path / "out").iterdir())]
    assert main(["import", "brainscore", "back", *files]) == 0
    one, two = (
        load_dataset(open_catalog(lab.root), id).assembly for id in ("lab", "back")
    )
    assert one is not None and two is not None
    np.testing.assert_array_equal(one.values, two.values)
    assert main(["import", "brainscore", "back", *files]) == 2


def test_a_file_that_is_not_an_assembly_is_refused(lab: Lab, tmp_path: Path) -> None:
    broken = tmp_path / "assy_x.nc"
    broken.write_bytes(b"not netCDF")
    with pytest.raises(AssemblyError, match="cannot be read as netCDF"):
        brainio({broken.name: broken}, assembly=broken.name)
