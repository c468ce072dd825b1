"""All writers of files in the project, each with a function that prepares a folder and one that writes."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from PIL import Image

from neuroledger.cli.catalogue import scaffold
from neuroledger.cli.lab_files import reader_of
from neuroledger.data import assembly, fetch, package
from neuroledger.data.gate.validation import ValidationReport, read_report, write_report
from neuroledger.data.integrity import verify_file
from neuroledger.data.pin import downloads
from neuroledger.engine import check, samples
from neuroledger.engine.record import Record, read_record, write_record
from neuroledger.families.decoding.protocols.leakage_checks import write_partition
from neuroledger.families.decoding.protocols.splits import Fold
from neuroledger.families.signals.embeddings.embed import write_embeddings
from neuroledger.report import site
from neuroledger.spec.base import SourceFile
from neuroledger.spec.catalog import open_catalog
from neuroledger.stats.score import Score
from neuroledger.store.files import write_text
from neuroledger.store.hashes import hashed
from neuroledger.store.store import Store, Written
from tests.engine.lab import build

__all__ = ["OWN", "Writer", "all_writers"]

REPOSITORY = Path(__file__).resolve().parents[2]
OWN = (".lock", ".sqlite", ".sqlite-journal")
"""Suffixes of files that may differ: locks remain, and the cache of hashes is a database."""


@dataclass(frozen=True)
class Writer:
    """A writer: ``prepare`` creates the initial content of a folder, ``run`` writes."""

    name: str
    prepare: Callable[[Path], object]
    run: Callable[[Path], object]
    skips: tuple[str, ...] = ()
    worthless: bool = False
    """Whether the initial content is damaged, so that it may be removed before the new content is written."""
    in_steps: tuple[str, ...] = ()
    """Files that a run writes more than once, so that after a failure one of their earlier versions may be there."""
    content: Callable[[Path], bytes] = Path.read_bytes
    """The content of a file that two runs must share; by default all of it."""

    def ignored(self, path: Path) -> bool:
        """Whether the bytes of a file are not compared."""
        return (
            path.suffix in OWN or "processes" in path.parts or path.name in self.skips
        )


def _nothing(folder: Path) -> None:
    """An empty folder."""


@cache
def _records() -> list[Record]:
    return [
        read_record(path)
        for path in sorted((REPOSITORY / "results" / "records").glob("Digits*/*.json"))[
            :12
        ]
    ]


def _write_records(folder: Path, note: str = "new") -> None:
    for record in _records():
        request = record.request.model_copy(update={"device": note})
        changed = record.model_copy(update={"request": request})
        write_record(
            folder / "results" / "records" / record.benchmark / f"{record.model}.json",
            changed,
        )


@cache
def _reports() -> dict[str, ValidationReport]:
    reports = {
        path.name: read_report(path)
        for path in sorted((REPOSITORY / "results" / "validation").glob("*.json"))
    }
    return {
        name: report for name, report in list(reports.items())[:8] if report is not None
    }


def _write_reports(folder: Path) -> None:
    for name, report in _reports().items():
        write_report(folder / "results" / "validation" / name, report)


def _pinned() -> dict[str, bytes]:
    return {
        f"part{number}/file{number}.bin": bytes([number]) * 5000 for number in range(6)
    }


def _mirror(folder: Path) -> None:
    for name, content in _pinned().items():
        place = folder / "mirror" / name
        place.parent.mkdir(parents=True)
        place.write_bytes(content)


def _fetch(folder: Path) -> None:
    os.environ["NEUROLEDGER_MIRROR"] = str(folder / "mirror")
    pins = {
        name: SourceFile(
            size=5000,
            sha256=hashed(folder / "mirror" / name),
            url=f"https://example.org/{name}",
        )
        for name in _pinned()
    }
    fetch.fetch_files(folder, folder / "data" / "set", pins)
    for name, pin in pins.items():
        verify_file(folder / "data" / "set" / name, pin)


def _pin(folder: Path) -> None:
    for name in _pinned():
        downloads.put(folder / "mirror" / name, folder / "data" / "set" / name)


def _lab(folder: Path) -> None:
    lab = build(folder / "lab", REPOSITORY)
    lab.spec("datasets", "packed", license="CC0-1.0", unavailable="not yet", cite=[])
    images = folder / "images"
    images.mkdir()
    for number in range(6):
        Image.fromarray(np.full((4, 4), number, np.uint8)).save(
            images / f"{number}.png"
        )
    table = pd.DataFrame(
        {
            "stimulus_id": [f"s{n}" for n in range(6)],
            "filename": [f"{n}.png" for n in range(6)],
        }
    )
    table.to_csv(folder / "table.csv", index=False)
    values = [
        (f"s{n}", f"n{k}", r, n * k + r)
        for n in range(6)
        for k in range(3)
        for r in range(2)
    ]
    columns = ["stimulus_id", "neuroid_id", "repetition", "value"]
    pd.DataFrame(values, columns=columns).to_csv(folder / "responses.csv", index=False)


def _package(folder: Path) -> None:
    catalog = open_catalog(folder / "lab")
    terms = package.Terms(reader_of, "CC0-1.0", "public")
    package.package_stimuli(
        catalog, "fresh", folder / "table.csv", folder / "images", terms
    )
    responses = package.from_long_table(
        pd.read_csv(folder / "responses.csv", dtype={"stimulus_id": str})
    )
    package.package_assembly(open_catalog(folder / "lab"), "fresh", responses, terms)


def _zip(folder: Path) -> None:
    package._zip(
        pd.read_csv(folder / "table.csv"), folder / "images", folder / "stimuli.zip"
    )
    with zipfile.ZipFile(folder / "stimuli.zip") as archive:
        assert archive.testzip() is None


def _site(pages: int, folder: Path) -> None:
    """Run the writer of the site with small pages instead of a leaderboard's."""
    contents = {
        f"page{number}.html": f"<p>{number} of {pages}</p>" for number in range(pages)
    }
    gather, rendered = site.gather, site._contents
    try:
        world: Any = SimpleNamespace(boards=(), main=None)
        site.gather = lambda *_, **__: world  # type: ignore[assignment]
        site._contents = lambda *_: iter(contents.items())
        catalog: Any = None
        site.build_site(catalog, "lab", folder / "site", records=[])
    finally:
        site.gather, site._contents = gather, rendered


def _array(number: int) -> xr.DataArray:
    rng = np.random.default_rng(number)
    return xr.DataArray(
        rng.normal(size=(6, 3)),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"s{n}" for n in range(6)]),
            "neuroid_id": ("neuroid", [f"n{n}" for n in range(3)]),
        },
    )


def _assemblies(folder: Path) -> None:
    for number in range(5):
        assembly.write(_array(number), folder / "data" / f"set{number}.nc")


def _embeddings(folder: Path) -> None:
    for number in range(3):
        table = xr.DataArray(
            np.full((4, 2), number, np.float32), dims=("stimulus", "feature")
        )
        write_embeddings(table, folder / f"table{number}.nc")


def _partitions(folder: Path) -> None:
    fold = Fold(np.arange(3), np.arange(3, 4), np.arange(4, 6))
    for number in range(4):
        write_partition(
            folder / f"part{number}.json", [fold], [f"s{number}{n}" for n in range(6)]
        )


def _old_partitions(folder: Path) -> None:
    for number in range(4):
        (folder / f"part{number}.json").write_text("[]\n")


def _samples(folder: Path) -> None:
    os.environ.pop("NEUROLEDGER_ACTIVATIONS", None)
    for number in range(3):
        score = Score(0.5, scale="correlation", samples=_array(number))
        samples.keep_samples(folder, f"{number:064x}", {"pls": score})
        assert samples.samples_of(folder, f"{number:064x}", "pls") is not None


def _entry(content: bytes, folder: Path) -> Written:
    for part in range(4):
        with (folder / f"part{part}.bin").open("wb") as file:
            for _ in range(3):
                file.write(content)
    return Written({"of": len(content)})


def _entries(folder: Path) -> None:
    store = Store(folder / "store")
    for number in range(4):
        entry = store.keep(
            "things", {"number": number}, partial(_entry, bytes([number]) * 500)
        )
        assert (entry.place / "part0.bin").read_bytes() == bytes([number]) * 1500


def _damaged(folder: Path) -> None:
    _entries(folder)
    for path in (folder / "store" / "things").rglob("part1.bin"):
        path.write_bytes(b"something else")


def _texts(count: int, folder: Path) -> None:
    for number in range(count):
        write_text(
            folder / f"folder{number % 3}" / f"file{number}.txt",
            f"{number} of {count}\n" * 50,
        )


def _old_texts(count: int, folder: Path) -> None:
    for number in range(count):
        path = folder / f"folder{number % 3}" / f"file{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("old\n")


def _scaffold(folder: Path) -> None:
    path = folder / "lab" / "specs" / "models" / "mine.yaml"
    if not path.exists():
        scaffold(open_catalog(folder / "lab"), "model", "mine")


@cache
def _schema_texts() -> dict[str, str]:
    return {
        path.name: path.read_text()
        for path in (REPOSITORY / "specs" / "schema").glob("*.json")
    }


def _write_schemas(folder: Path) -> None:
    """Run the writer of schemas with the existing texts, since computing them takes seconds."""
    plain = check.schema_texts
    try:
        check.schema_texts = lambda **_: dict(_schema_texts())
        check.write_schemas(folder / "lab")
    finally:
        check.schema_texts = plain


def _without_schemas(folder: Path) -> None:
    _lab(folder)
    for path in (folder / "lab" / "specs" / "schema").glob("*.json"):
        path.write_text("{}\n")


@cache
def all_writers() -> list[Writer]:
    """All writers with small content, into empty folders and over older content."""
    _schema_texts()
    with tempfile.TemporaryDirectory() as place:  # load the libraries before forking
        assembly.write(_array(0), Path(place) / "a.nc")
        assembly.read(Path(place) / "a.nc")
    return [
        Writer("records", _nothing, _write_records),
        Writer(
            "records, over others", partial(_write_records, note="old"), _write_records
        ),
        Writer("validation reports", _nothing, _write_reports),
        Writer("fetch from a mirror", _mirror, _fetch),
        Writer("pin", _mirror, _pin),
        Writer("package", _lab, _package, skips=("fresh.yaml",)),
        Writer("package stimuli", _lab, _zip),
        Writer("site", _nothing, partial(_site, 12)),
        Writer("site, smaller", partial(_site, 16), partial(_site, 12)),
        Writer("assemblies", _nothing, _assemblies),
        Writer("embeddings", _nothing, _embeddings),
        Writer("partitions, over others", _old_partitions, _partitions),
        Writer("samples", _nothing, _samples, skips=("index.json",)),
        Writer("entries of the store", _nothing, _entries),
        Writer("damaged entries of the store", _damaged, _entries, worthless=True),
        Writer("texts", _nothing, partial(_texts, 26)),
        Writer("texts, over others", partial(_old_texts, 26), partial(_texts, 26)),
        Writer("scaffold", _lab, _scaffold),
        Writer("schemas", _without_schemas, _write_schemas),
    ]
