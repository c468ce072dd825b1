"""Data plugins of Brain-Score are imported without running them; the error for an unknown key lists similar ids."""

from pathlib import Path

import pytest

from neuroledger.cli import main
from neuroledger.data.load import load_dataset
from neuroledger.errors import RequestError
from neuroledger.families.alignment.brainscore_data_plugins import read_data_plugin
from neuroledger.families.alignment.brainscore_files import fetch_brainscore
from neuroledger.spec.catalog import open_catalog
from tests.engine.lab import Lab, build
from tests.families.alignment.test_imports import package

SOURCE = """
import os
open(os.environ['PLANTED'], 'w').write('ran')
BUCKET = "brainscore-storage/brainio-brainscore"
data_registry['Lab2026'] = lambda: load_assembly_from_s3(identifier='lab.Lab2026', version_id="abc", sha1="{nc}",
    bucket=BUCKET, cls=NeuroidAssembly, stimulus_set_loader=lambda: load_stimulus_set('Lab2026_stimuli'))
stimulus_set_registry['Lab2026_stimuli'] = lambda: load_stimulus_set_from_s3(identifier='Lab2026_stimuli',
    bucket=BUCKET, csv_sha1="{csv}", zip_sha1="{zip}", csv_version_id="null", zip_version_id="null")
data_registry['Lab2026.other'] = make_loader('other')
"""


@pytest.fixture
def lab(tmp_path: Path, repository: Path) -> Lab:
    return build(tmp_path / "lab", repository)


def plugin(folder: Path, **sha1: str) -> Path:
    folder.mkdir()
    stated = {name: sha1.get(name, "0" * 40) for name in ("nc", "csv", "zip")}
    (folder / "__init__.py").write_text(SOURCE.format(**stated), encoding="utf-8")
    return folder


def test_registrations_are_read_without_running_the_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", str(tmp_path / "planted"))
    registrations = read_data_plugin(plugin(tmp_path / "lab2026"))
    assert not (tmp_path / "planted").exists()
    at = "https://brainscore-storage.s3.amazonaws.com/brainio-brainscore/"
    own, stimuli = (
        registrations["assembly", "Lab2026"],
        registrations["stimuli", "Lab2026_stimuli"],
    )
    assert own.files == {
        "assy_lab_Lab2026.nc": {
            "url": f"{at}assy_lab_Lab2026.nc",
            "sha1": "0" * 40,
            "version_id": "abc",
        }
    }
    assert own.stimuli == "Lab2026_stimuli" and own.merge
    assert [*stimuli.files] == [
        "stimulus_Lab2026_stimuli.csv",
        "stimulus_Lab2026_stimuli.zip",
    ]
    assert (
        "version_id" not in stimuli.files["stimulus_Lab2026_stimuli.csv"]
    )  # "null" is none
    assert registrations["assembly", "Lab2026.other"].files == {}


def test_an_imported_data_plugin_is_fetched_by_its_key(
    lab: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The files are in the local mirror; the plugin states the SHA-1 of their bytes."""
    import hashlib

    mirror = tmp_path / "mirror" / "Lab2026"
    packaged = package(mirror, "lab_Lab2026")
    names = [
        "assy_lab_Lab2026.nc",
        "stimulus_Lab2026_stimuli.csv",
        "stimulus_Lab2026_stimuli.zip",
    ]
    files = [
        old.rename(mirror / name) for old, name in zip(packaged, names, strict=True)
    ]
    sha1 = [hashlib.sha1(path.read_bytes()).hexdigest() for path in files]
    source = plugin(
        tmp_path / "lab2026", **dict(zip(("nc", "csv", "zip"), sha1, strict=True))
    )
    command = ["--root", str(lab.root), "import", "brainscore", "Lab2026"]
    assert main([*command, "--from", str(source)]) == 0
    spec = open_catalog(lab.root).dataset("Lab2026")
    assert spec.unavailable is not None and [*spec.downloads] == names
    assert (
        main(
            [
                "--root",
                str(lab.root),
                "check",
                str(lab.root / "specs/datasets/Lab2026.yaml"),
            ]
        )
        == 0
    )
    assert main([*command, "--from", str(source)]) != 0
    assert "there is a dataset 'Lab2026' already" in capsys.readouterr().err
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(tmp_path / "mirror"))
    assert main(command) == 0
    data = load_dataset(lab.open(), "Lab2026")
    assert (
        data.assembly is not None
        and lab.open().dataset("Lab2026").files[names[0]].sha1 == sha1[0]
    )


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("Lab2025", "registers no 'Lab2025'; of 3 keys: Lab2026"),
        ("Lab2026.other", "nothing is executed here"),
    ],
)
def test_computed_registrations_are_refused_and_nothing_is_written(
    lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, words: str
) -> None:
    command = [
        "--root",
        str(lab.root),
        "import",
        "brainscore",
        key,
        "--from",
        str(plugin(tmp_path / "x")),
    ]
    assert main(command) != 0
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (lab.root / "specs" / "datasets" / f"{key}.yaml").exists()


def test_a_folder_without_registrations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="contains no data plugin"):
        read_data_plugin(tmp_path)
    (tmp_path / "__init__.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(RequestError, match="registers no data"):
        read_data_plugin(tmp_path)


def test_the_error_for_an_unknown_key_lists_similar_ids(repository: Path) -> None:
    catalog = open_catalog(repository)
    with pytest.raises(RequestError, match=r"similar ids: .*MajajHong2015"):
        fetch_brainscore(catalog, "majajhong2015.pubic")
    with pytest.raises(
        RequestError, match=r"'Nothing of the kind' has a spec here.*--from FOLDER"
    ):
        fetch_brainscore(catalog, "Nothing of the kind")
