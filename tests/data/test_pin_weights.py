"""Weights of a model are pinned from a folder of downloads: compared, placed and written into its spec, or nothing is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from neuroledger.data.pin.pin import Downloads, pin_weights
from neuroledger.errors import IntegrityError, RequestError, SpecError
from neuroledger.spec.catalog import open_catalog

CONTENT = {"a.bin": b"tensors", "b.bin": b"more tensors"}
SPEC = """\
# yaml-language-server: $schema=../schema/model.json
id: net
version: 1
title: A network   # a remark
builder: {name: pixels, size: 4}
downloads:
  a.bin: {url: https://example.org/a.bin, size: 7}
  b.bin: {url: https://example.org/b.bin}
license: MIT
unavailable: "Its hashes are stated nowhere."
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    root = tmp_path / "place"
    (root / "specs" / "models").mkdir(parents=True)
    (root / "dvc.yaml").write_text("stages: {}\n")
    return root


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "download"
    folder.mkdir()
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)
    return folder


def write(place: Path, *changes: tuple[str, str]) -> Path:
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = place / "specs" / "models" / "net.yaml"
    path.write_text(text)
    return path


def test_weights_are_placed_and_pinned_and_a_second_time_nothing_changes(
    place: Path, folder: Path
) -> None:
    path = write(place)
    held = place / "data" / "models" / "net"
    tried = pin_weights(
        open_catalog(place), "net", Downloads(folder=folder), dry_run=True
    )
    assert (
        (tried.files, tried.placed) == (2, 0)
        and not held.exists()
        and path.read_text() == SPEC
    )
    done = pin_weights(open_catalog(place), "net", Downloads(folder=folder))
    hashes = {
        name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()
    }
    pins = "".join(
        f"  {name}: {{url: https://example.org/{name}, size: {len(content)}, sha256: {hashes[name]}}}\n"
        for name, content in CONTENT.items()
    )
    expected = SPEC.replace("downloads:", f"weights:\n{pins}downloads:")
    expected = expected.replace('unavailable: "Its hashes are stated nowhere."\n', "")
    assert path.read_text() == done.after == tried.after == expected
    assert (done.path, done.before, done.files, done.placed) == (path, SPEC, 2, 2)
    assert (done.subjects, done.remarks) == (0, ())
    assert {one.name: one.read_bytes() for one in held.iterdir()} == CONTENT
    again = pin_weights(open_catalog(place), "net", Downloads(folder=folder))
    assert (again.before, again.after, again.placed) == (expected, expected, 0)


def test_pinned_weights_keep_the_version_and_place_of_their_source(
    place: Path, folder: Path
) -> None:
    sha1 = hashlib.sha1(CONTENT["a.bin"]).hexdigest()
    source = f"{{url: s3://lab/a.bin, version_id: v1, endpoint: https://s3.lab.org, region: eu-lab-1, sha1: {sha1}}}"
    path = write(place, ("{url: https://example.org/a.bin, size: 7}", source))
    pin_weights(open_catalog(place), "net", Downloads(folder=folder))
    pinned = open_catalog(place).model("net").weights["a.bin"]
    assert (
        pinned.url,
        pinned.version_id,
        pinned.endpoint,
        pinned.region,
        pinned.sha1,
    ) == (
        "s3://lab/a.bin",
        "v1",
        "https://s3.lab.org",
        "eu-lab-1",
        sha1,
    )
    path.write_text(SPEC)
    pin_weights(
        open_catalog(place),
        "net",
        Downloads(folder=folder, url_prefix="https://mirror.org/nets/"),
    )
    assert [one.url for one in open_catalog(place).model("net").weights.values()] == [
        "https://mirror.org/nets/a.bin",
        "https://mirror.org/nets/b.bin",
    ]


def test_names_are_quoted_in_the_url_of_a_prefix(place: Path, folder: Path) -> None:
    write(
        place,
        (
            "  b.bin: {url: https://example.org/b.bin}",
            "  b+2.bin: {url: https://example.org/b}",
        ),
    )
    (folder / "b.bin").rename(folder / "b+2.bin")
    pin_weights(
        open_catalog(place),
        "net",
        Downloads(folder=folder, url_prefix="https://mirror.org"),
    )
    assert (
        open_catalog(place).model("net").weights["b+2.bin"].url
        == "https://mirror.org/b%2B2.bin"
    )


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        (
            "size: 7",
            "size: 8",
            IntegrityError,
            "a.bin has 7 bytes where its publisher states 8",
        ),
        ("size: 7", f"sha1: {'0' * 40}", IntegrityError, "a.bin has SHA-1 "),
        (
            "  b.bin",
            "  c.bin",
            RequestError,
            "download lacks c.bin: download c.bin from https://example.org/b.bin",
        ),
        (
            "{url: https://example.org/b.bin}",
            "{size: 12}",
            SpecError,
            "b.bin has no source",
        ),
        ("size: 4", "sizes: 4", SpecError, "sizes"),
        (
            "builder: {name: pixels, size: 4}\n",
            "",
            SpecError,
            "a model needs a `builder`",
        ),
    ],
)
def test_weights_that_cannot_be_pinned_leave_spec_and_data_as_they_are(
    place: Path, folder: Path, old: str, new: str, error: type[Exception], words: str
) -> None:
    path = write(place, (old, new))
    before = path.read_text()
    with pytest.raises(error) as caught:
        pin_weights(open_catalog(place), "net", Downloads(folder=folder))
    assert words in str(caught.value)
    assert path.read_text() == before and not (place / "data").exists()


def test_one_error_names_every_weight_that_is_missing_or_differs(
    place: Path, folder: Path
) -> None:
    path = write(
        place,
        ("size: 7", "size: 8"),
        (
            "{url: https://example.org/b.bin}",
            "{url: https://example.org/b.bin, size: 1}",
        ),
    )
    with pytest.raises(IntegrityError) as differ:
        pin_weights(open_catalog(place), "net", Downloads(folder=folder))
    assert [line.split()[0] for line in str(differ.value).splitlines()] == [
        str(folder / name) for name in CONTENT
    ]
    for name in CONTENT:
        (folder / name).unlink()
    with pytest.raises(
        RequestError,
        match=r"lacks a\.bin, b\.bin: download a\.bin from .*; download b\.bin from",
    ):
        pin_weights(open_catalog(place), "net", Downloads(folder=folder))
    assert "unavailable" in path.read_text() and not (place / "data").exists()


def test_options_that_do_not_apply_and_models_without_downloads_are_refused(
    place: Path, folder: Path
) -> None:
    path = write(place)
    with pytest.raises(
        RequestError, match="--label only applies to recordings, but net is a model"
    ):
        pin_weights(open_catalog(place), "net", Downloads(folder=folder, label="age"))
    stated = SPEC[SPEC.index("downloads:") : SPEC.index("license:")]
    path.write_text(SPEC.replace(stated, ""))
    with pytest.raises(
        RequestError, match="model 'net' names no `downloads`: its weights are none"
    ):
        pin_weights(open_catalog(place), "net", Downloads(folder=folder))
    pinned = f"weights: {{a.bin: {{url: https://example.org/a.bin, size: 7, sha256: {'0' * 64}}}}}\n"
    path.write_text(SPEC.replace(stated, pinned))
    with pytest.raises(RequestError, match="its weights are pinned already"):
        pin_weights(open_catalog(place), "net", Downloads(folder=folder))


def test_a_file_in_the_place_of_weights_is_not_replaced(
    place: Path, folder: Path
) -> None:
    path = write(place)
    held = place / "data" / "models" / "net" / "a.bin"
    held.parent.mkdir(parents=True)
    held.write_bytes(b"another")
    with pytest.raises(IntegrityError, match="move it away, then pin again"):
        pin_weights(open_catalog(place), "net", Downloads(folder=folder))
    assert held.read_bytes() == b"another" and path.read_text() == SPEC
