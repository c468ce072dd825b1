"""Downloads of any reader are compared with what their publisher states, read once, and pinned."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from neuroledger.cli import main
from neuroledger.data.gate.validate import validate
from neuroledger.data.load import load_dataset
from neuroledger.data.pin.pin import Downloads, fetch_and_pin, pin
from neuroledger.errors import DataError, IntegrityError, RequestError, SpecError
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.load import read_spec
from tests.engine.tiny_repository import image

SPEC = """\
# yaml-language-server: $schema=../schema/dataset.json
id: Cells
version: 1
title: Six neurons of one monkey   # a remark
license: CC0-1.0
access_steps: ["`neuroledger pin Cells --from FOLDER`"]
downloads:
  responses.npy: {url: https://example.org/responses.npy, md5: MD5}
  images/*.zip: {}
reader: {name: numpy_repetitions, responses: responses.npy, archive: images/all.zip, region: V4, subject: A, session: "1"}
expectations:
  stimuli: [{check: unique, column: stimulus_id}]
  assembly: [{check: shape, sizes: {neuroid: 6}}]
unavailable: "not fetched: follow access_steps"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    root = tmp_path / "place"
    (root / "specs" / "datasets").mkdir(parents=True)
    (root / "dvc.yaml").write_text("stages: {}\n")
    (root / "specs" / "references.bib").write_text("")
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the publisher gives: responses, a zip of images, and a file that the spec does not name."""
    folder = tmp_path / "download"
    (folder / "images").mkdir(parents=True)
    with (folder / "responses.npy").open("wb") as file:
        np.save(file, np.random.default_rng(1).normal(size=(6, 4, 3)))
    with zipfile.ZipFile(folder / "images" / "all.zip", "w") as archive:
        for number in range(4):
            archive.writestr(f"{number}.png", bytes([number]))
    (folder / "README").write_text("not data")
    return folder


def write(place: Path, folder: Path, *changes: tuple[str, str]) -> Path:
    md5 = hashlib.md5(
        (folder / "responses.npy").read_bytes(), usedforsecurity=False
    ).hexdigest()
    text = SPEC.replace("MD5", md5)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = place / "specs" / "datasets" / "Cells.yaml"
    path.write_text(text)
    return path


def untouched(place: Path, path: Path) -> bool:
    return "unavailable" in path.read_text() and not (place / "data").exists()


def test_a_set_of_any_reader_is_pinned_validated_and_read(
    place: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write(place, folder)
    monkeypatch.chdir(place)
    assert main(["check", "--write-schemas"]) == 0
    assert main(["pin", "Cells", "--from", str(folder), "--dry-run"]) == 0
    assert "2 files would be pinned; nothing was written" in capsys.readouterr().out
    assert untouched(place, path)
    assert main(["pin", "Cells", "--from", str(folder)]) == 0
    assert "pinned 2 files, placed 2 of them in data/Cells/" in capsys.readouterr().out
    assert main(["check"]) == 0
    assert main(["validate", "Cells"]) == 0
    spec = open_catalog(place).dataset("Cells")
    assert list(spec.files) == ["images/all.zip", "responses.npy"]
    assert spec.files["responses.npy"].url == "https://example.org/responses.npy"
    assert spec.files["images/all.zip"].by_hand
    assert spec.unavailable is None
    assert "title: Six neurons of one monkey   # a remark\n" in path.read_text()
    data = load_dataset(open_catalog(place), "Cells")
    assert data.assembly is not None
    assert dict(data.assembly.sizes) == {"presentation": 12, "neuroid": 6}
    before = path.read_text()
    assert main(["pin", "Cells", "--from", str(folder)]) == 0
    assert "2 files: already pinned and in place" in capsys.readouterr().out
    assert path.read_text() == before


def test_without_names_all_files_are_pinned_and_with_pins_those(
    place: Path, folder: Path
) -> None:
    stated = SPEC[SPEC.index("downloads:") : SPEC.index("reader:")]
    path = place / "specs" / "datasets" / "Cells.yaml"
    path.write_text(SPEC.replace(stated, ""))
    done = pin(
        open_catalog(place),
        "Cells",
        Downloads(folder=folder, url_prefix="https://example.org/v1"),
    )
    spec = open_catalog(place).dataset("Cells")
    assert done.files == 3
    assert spec.files["images/all.zip"].url == "https://example.org/v1/images/all.zip"
    (folder / "later.txt").write_text("came later")
    assert pin(open_catalog(place), "Cells", Downloads(folder=folder)).files == 3


def test_statements_about_downloads_do_not_change_the_identity(
    place: Path, folder: Path
) -> None:
    path = write(place, folder)
    one = spec_sha256(read_spec(path, "datasets")[0])
    write(place, folder, ("  images/*.zip: {}\n", "  images/all.zip: {size: 3}\n"))
    assert spec_sha256(read_spec(path, "datasets")[0]) == one


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            "{md5: 00000000000000000000000000000000}",
            "has MD5 [0-9a-f]{32} where its publisher states 0{32}",
        ),
        (
            "{sha1: 0000000000000000000000000000000000000000}",
            "has SHA-1 .* where its publisher states 0{40}",
        ),
        (
            "{sha256_begins: '000000'}",
            "has SHA-256 [0-9a-f]{64} where its publisher states 000000…:",
        ),
        ("{size: 7}", r"responses\.npy has 704 bytes where its publisher states 7:"),
    ],
)
def test_a_download_that_differs_from_its_statement_is_refused(
    place: Path, folder: Path, stated: str, message: str
) -> None:
    old = next(line for line in SPEC.splitlines() if line.startswith("  responses.npy"))
    path = write(place, folder)
    path.write_text(
        "\n".join(
            f"  responses.npy: {stated}" if line.startswith(old[:16]) else line
            for line in path.read_text().splitlines()
        )
        + "\n"
    )
    with pytest.raises(IntegrityError, match=message):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    assert untouched(place, path)


def test_a_download_that_differs_from_its_pin_is_refused_until_that_is_meant(
    place: Path, folder: Path
) -> None:
    path = write(place, folder, (", md5: MD5".replace("MD5", _md5(folder)), ""))
    pin(open_catalog(place), "Cells", Downloads(folder=folder))
    shutil.rmtree(place / "data")
    with (folder / "responses.npy").open("wb") as file:
        np.save(file, np.random.default_rng(2).normal(size=(6, 4, 3)))
    before = path.read_text()
    with pytest.raises(
        IntegrityError, match=r"pins responses\.npy as .*pin it with --renew"
    ):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    assert path.read_text() == before
    assert (
        pin(open_catalog(place), "Cells", Downloads(folder=folder, renew=True)).after
        != before
    )


def _md5(folder: Path) -> str:
    return hashlib.md5(
        (folder / "responses.npy").read_bytes(), usedforsecurity=False
    ).hexdigest()


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink()


def test_two_downloads_that_would_have_one_name_are_refused(
    place: Path, folder: Path
) -> None:
    path = write(
        place, folder, ("  images/*.zip: {}\n", "  images/*.zip: {}\n  more/*: {}\n")
    )
    (folder / "more").mkdir()
    for name in ("a b.txt", "a_b.txt"):
        (folder / "more" / name).write_text(name)
    with pytest.raises(
        RequestError,
        match=r"two files would be called more/a_b\.txt: rename one in .*download",
    ):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    assert untouched(place, path)
    (folder / "more" / "a_b.txt").unlink()
    pin(
        open_catalog(place),
        "Cells",
        Downloads(folder=folder, url_prefix="https://example.org/v1/"),
    )
    held = open_catalog(place).dataset("Cells").files["more/a_b.txt"]
    assert held.url == "https://example.org/v1/more/a%20b.txt"
    assert (place / "data" / "Cells" / "more" / "a_b.txt").read_text() == "a b.txt"


def test_a_pin_keeps_its_source_and_a_version_as_long_as_the_bytes_are_the_same(
    place: Path, folder: Path
) -> None:
    source = (
        "{url: s3://lab/v1/responses.npy, version_id: v1, region: eu-lab-1, md5: MD5}"
    )
    md5 = _md5(folder)
    path = write(
        place,
        folder,
        (
            f"{{url: https://example.org/responses.npy, md5: {md5}}}",
            source.replace("MD5", md5),
        ),
    )
    pin(open_catalog(place), "Cells", Downloads(folder=folder))

    def held() -> tuple[str | None, str | None, str | None]:
        pinned = open_catalog(place).dataset("Cells").files["responses.npy"]
        return pinned.url, pinned.version_id, pinned.region

    assert held() == ("s3://lab/v1/responses.npy", "v1", "eu-lab-1")
    pin(open_catalog(place), "Cells", Downloads(folder=folder))
    assert held() == ("s3://lab/v1/responses.npy", "v1", "eu-lab-1")
    pin(
        open_catalog(place), "Cells", Downloads(folder=folder, url_prefix="s3://lab/v1")
    )
    assert held() == ("s3://lab/v1/responses.npy", "v1", "eu-lab-1")
    pin(
        open_catalog(place), "Cells", Downloads(folder=folder, url_prefix="s3://lab/v2")
    )
    assert held() == ("s3://lab/v2/responses.npy", None, None)
    text = path.read_text().replace(f", md5: {md5}", "")
    assert "v2/responses.npy, size" in text
    path.write_text(
        text.replace("v2/responses.npy, size", "v2/responses.npy, version_id: v7, size")
    )
    with (folder / "responses.npy").open("wb") as file:
        np.save(file, np.random.default_rng(2).normal(size=(6, 4, 3)))
    shutil.rmtree(place / "data")
    pin(
        open_catalog(place),
        "Cells",
        Downloads(folder=folder, renew=True, url_prefix="s3://lab/v2"),
    )
    assert held() == ("s3://lab/v2/responses.npy", None, None), (
        "the version of the old bytes is not that of the new"
    )


def test_files_that_are_missing_are_named_with_the_folder_that_holds_them(
    place: Path, folder: Path
) -> None:
    path = write(place, folder)
    with pytest.raises(
        RequestError,
        match=r"contains download/responses\.npy: give the folder .*download",
    ):
        pin(open_catalog(place), "Cells", Downloads(folder=folder.parent))
    (folder / "images" / "all.zip").rename(folder / "all.zip")
    with pytest.raises(RequestError, match=r"contains no file like images/\*\.zip"):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    more = "  absent.npy: {url: https://example.org/absent.npy}\n  responses.npy:"
    write(place, folder, ("  responses.npy:", more))
    (folder / "responses.npy").unlink()
    names = r"absent\.npy, responses\.npy; unpack all\.zip first"
    with pytest.raises(RequestError, match=rf"lacks 2 files .*: {names}"):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    _unlink(p for p in folder.rglob("*") if p.is_file())
    with pytest.raises(RequestError, match="contains no files"):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    assert untouched(place, path)


def test_errors_of_reader_and_expectations_are_reported_before_anything_is_written(
    place: Path, folder: Path
) -> None:
    path = write(place, folder, ("neuroid: 6", "neuroid: 7"))
    with pytest.raises(
        DataError, match=r"with 1 error; nothing was written\n.*neuroid"
    ):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    with pytest.raises(DataError, match=r"error; nothing was written"):
        pin(open_catalog(place), "Cells", Downloads(folder=folder), dry_run=True)
    assert untouched(place, path)
    assert (
        pin(open_catalog(place), "Cells", Downloads(folder=folder, check=False)).placed
        == 2
    )
    shutil.rmtree(place / "data")
    path = write(place, folder, ("all.zip", "none.zip"))
    with pytest.raises(DataError, match=r"the reader needs the file 'images/none.zip'"):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    assert untouched(place, path)


def test_options_for_recordings_are_refused_for_other_readers(
    place: Path, folder: Path
) -> None:
    write(place, folder)
    with pytest.raises(
        RequestError,
        match="--label only applies to recordings, but Cells is read by numpy_repetitions",
    ):
        pin(open_catalog(place), "Cells", Downloads(folder=folder, label="x"))


def test_without_a_reader_the_error_lists_the_readers(
    place: Path, folder: Path
) -> None:
    path = write(place, folder)
    kept = [
        line for line in path.read_text().splitlines() if not line.startswith("reader:")
    ]
    path.write_text("\n".join(kept) + "\n")
    with pytest.raises(
        RequestError, match=r"'Cells' has no reader: .*numpy_repetitions"
    ):
        pin(open_catalog(place), "Cells", Downloads(folder=folder))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../other.npy: {}", "downloads"),
        ("a/../../other.npy: {}", "leads out of the folder"),
        ("/etc/passwd: {}", "downloads"),
        ("'*.npy': {size: 3}", "matches many files"),
        ("a.npy: {md5: abc}", "md5"),
        ("a.npy: {crc: abc}", "unknown field 'downloads.a.npy.crc'"),
    ],
)
def test_names_and_checksums_are_strict(
    place: Path, folder: Path, name: str, message: str
) -> None:
    path = write(place, folder, ("  images/*.zip: {}\n", f"  {name}\n"))
    with pytest.raises(SpecError, match=message):
        read_spec(path, "datasets")


def many(folder: Path, count: int = 450) -> None:
    for number in range(count):
        (folder / "more" / f"{number % 7}").mkdir(parents=True, exist_ok=True)
        (folder / "more" / f"{number % 7}" / f"{number}.txt").write_text(f"{number}")


@pytest.mark.slow
def test_many_files_are_pinned_in_a_table(
    place: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = write(
        place, folder, ("  images/*.zip: {}\n", "  images/*.zip: {}\n  more/*: {}\n")
    )
    many(folder)
    monkeypatch.chdir(place)
    (place / ".gitignore").write_text("/data/*/**\n")  # data are pinned, not committed
    for command in (
        "init -q",
        "add .",
        "-c user.name=a -c user.email=a@b commit -qm first",
    ):
        subprocess.run(["git", *command.split()], cwd=place, check=True)
    assert main(["check", "--write-schemas"]) == 0
    assert main(["pin", "Cells", "--from", str(folder)]) == 0
    table = place / "specs" / "datasets" / "Cells.files.jsonl"
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    assert (
        f"  files: {{table: Cells.files.jsonl, sha256: {digest}, rows: 452}}"
        in path.read_text()
    )
    assert "\nfiles:" not in path.read_text()
    assert main(["check", "--since", "HEAD"]) == 0
    capsys.readouterr()
    assert main(["show", "Cells"]) == 0
    assert "… 452 files in all, 0.00 GB" in capsys.readouterr().out
    assert main(["validate", "Cells"]) == 0
    before = (path.read_text(), table.read_text())
    assert main(["pin", "Cells", "--from", str(folder)]) == 0
    assert "452 files: already pinned and in place" in capsys.readouterr().out
    assert (path.read_text(), table.read_text()) == before
    shutil.rmtree(place / "data")
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(folder))
    assert main(["fetch", "Cells"]) == 0
    assert "452 files fetched" in "".join(capsys.readouterr())
    (place / "data" / "Cells" / "more" / "0" / "0.txt").write_text("1")
    assert main(["validate", "Cells", "--force"]) == 4
    assert "more/0/0.txt" in "".join(capsys.readouterr())
    table.write_text(table.read_text().replace("more/0/7.txt", "more/0/9.txt"))
    assert main(["check"]) == 1
    assert "Cells.files.jsonl:1:1: the table has SHA-256" in capsys.readouterr().out


def test_a_list_in_a_table_stays_there_when_it_becomes_short(
    place: Path, folder: Path
) -> None:
    path = write(
        place, folder, ("  images/*.zip: {}\n", "  images/*.zip: {}\n  more/*: {}\n")
    )
    many(folder)
    pin(open_catalog(place), "Cells", Downloads(folder=folder))
    for text in folder.rglob("*.txt"):
        if text.name != "1.txt":
            text.unlink()
    assert pin(open_catalog(place), "Cells", Downloads(folder=folder)).files == 3
    assert "rows: 3}" in path.read_text()
    assert len(open_catalog(place).dataset("Cells").files) == 3


def test_a_dry_run_writes_no_table(place: Path, folder: Path) -> None:
    path = write(
        place, folder, ("  images/*.zip: {}\n", "  images/*.zip: {}\n  more/*: {}\n")
    )
    many(folder)
    assert (
        pin(open_catalog(place), "Cells", Downloads(folder=folder), dry_run=True).files
        == 452
    )
    assert untouched(place, path)
    assert not (place / "specs" / "datasets" / "Cells.files.jsonl").exists()


# Fetched and pinned at once


def pictures(folder: Path) -> None:
    with zipfile.ZipFile(folder / "images" / "all.zip", "w") as archive:
        for number in range(4):
            archive.writestr(f"{number}.png", image(number))


def test_what_a_spec_names_is_fetched_pinned_and_described(
    place: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = "expectations:\n  stimuli: [{check: unique, column: stimulus_id}]\n"
    shape = "  assembly: [{check: shape, sizes: {neuroid: 6}}]\n"
    path = write(
        place, folder, ("images/*.zip", "images/all.zip"), (stated, ""), (shape, "")
    )
    pictures(folder)
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(folder))
    seen: list[str] = []
    done = fetch_and_pin(
        open_catalog(place), "Cells", progress=lambda name, *_: seen.append(name)
    )
    assert (done.files, done.placed) == (2, 2)
    spec = open_catalog(place).dataset("Cells")
    assert (
        sorted(spec.files) == ["images/all.zip", "responses.npy"]
        and spec.unavailable is None
    )
    checks = [
        one.check for one in (*spec.expectations.stimuli, *spec.expectations.assembly)
    ]
    assert {"unique", "shape", "repetitions"} <= set(checks), (
        "expectations are those that the files meet"
    )
    assert validate(open_catalog(place), "Cells").success
    assert not (place / ".cache" / "downloads" / "Cells").exists()
    text = path.read_text()
    assert (
        fetch_and_pin(open_catalog(place), "Cells").placed == 0
        and path.read_text() == text
    )


def test_expectations_that_a_spec_has_are_kept_when_it_is_fetched(
    place: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place, folder, ("images/*.zip", "images/all.zip"))
    pictures(folder)
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(folder))
    before = open_catalog(place).dataset("Cells").expectations
    fetch_and_pin(open_catalog(place), "Cells")
    assert open_catalog(place).dataset("Cells").expectations == before


def test_files_that_cannot_be_fetched_are_to_be_downloaded_and_pinned(
    place: Path, folder: Path
) -> None:
    path = write(place, folder)
    with pytest.raises(RequestError) as caught:
        fetch_and_pin(open_catalog(place), "Cells")
    assert str(caught.value) == (
        "data set 'Cells' cannot be fetched, 'images/*.zip' matches several files: download them, then run "
        "`neuroledger pin Cells --from FOLDER`"
    )
    path.write_text(
        SPEC.replace(SPEC[SPEC.index("downloads:") : SPEC.index("reader:")], "")
    )
    with pytest.raises(
        RequestError,
        match="cannot be fetched, its spec names no `downloads`: download them",
    ):
        fetch_and_pin(open_catalog(place), "Cells")
    assert untouched(place, path)


def test_benchmarks_that_stay_unavailable_are_remarked(
    place: Path, folder: Path
) -> None:
    write(place, folder)
    (place / "specs" / "benchmarks").mkdir()
    for id, dataset, more in (
        ("closed", "Cells", "unavailable: nobody knows the regions\n"),
        ("open", "Cells", ""),
        ("other", "Others", "unavailable: no data\n"),
    ):
        (place / "specs" / "benchmarks" / f"{id}.yaml").write_text(
            f"id: {id}\nversion: 1\ntitle: A benchmark\nparent: V4\ndataset: {dataset}\n"
            f"paradigm: {{name: recording, region: V4}}\nmetric: pls\nnormalise: none\n{more}"
        )
    done = pin(open_catalog(place), "Cells", Downloads(folder=folder))
    assert done.remarks == (
        "benchmark closed stays unavailable: nobody knows the regions",
    )


def test_of_many_unmet_expectations_the_first_five_are_reported(
    place: Path, folder: Path
) -> None:
    unmet = ", ".join(
        f"{{check: shape, sizes: {{neuroid: {number}}}}}" for number in range(10, 17)
    )
    path = write(place, folder, ("{check: shape, sizes: {neuroid: 6}}", unmet))
    with pytest.raises(
        DataError,
        match="was read from the downloads, with 7 errors; nothing was written",
    ) as caught:
        pin(open_catalog(place), "Cells", Downloads(folder=folder))
    shown = re.findall(r"length of 'neuroid': (\d+) declared", str(caught.value))
    assert shown == ["10", "11", "12", "13", "14"] and str(caught.value).endswith(
        "\n  … and 2 more"
    )
    assert untouched(place, path)
