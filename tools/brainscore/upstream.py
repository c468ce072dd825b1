"""The content of Brain-Score's registry: benchmarks, assemblies and stimulus sets, one table row each."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
BUCKET = "https://brainscore-storage.s3.amazonaws.com"
FOLDER = "brainio-brainscore"


@dataclass(frozen=True)
class Listed:
    """One row of ``files.csv``: an assembly or a stimulus set as the registry pins it."""

    key: str
    identifier: str
    access: str
    stimuli: str
    merge: str
    files: dict[str, dict[str, str]]

    def name(self, suffix: str) -> str:
        """The name of the packaged file with the suffix (``nc``, ``csv``, ``zip``)."""
        prefix = "assy_" if suffix == "nc" else "stimulus_"
        return f"{prefix}{self.identifier.replace('.', '_')}.{suffix}"


def _files(row: dict[str, str], identifier: str) -> dict[str, dict[str, str]]:
    found = {}
    for suffix in ("nc", "csv", "zip"):
        if row[f"{suffix}_sha1"]:
            prefix = "assy_" if suffix == "nc" else "stimulus_"
            name = f"{prefix}{identifier.replace('.', '_')}.{suffix}"
            stated = {
                "url": f"{BUCKET}/{row['folder'] or FOLDER}/{name}",
                "sha1": row[f"{suffix}_sha1"],
            }
            if row[f"{suffix}_version"]:
                stated["version_id"] = row[f"{suffix}_version"]
            found[name] = stated
    return found


def _listed(kind: str) -> dict[str, Listed]:
    with (HERE / "files.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == kind]
    found = {}
    for row in rows:
        identifier = row["identifier"] or row["key"]
        found[row["key"]] = Listed(
            row["key"],
            identifier,
            row["access"],
            row["stimuli"],
            row["merge"],
            _files(row, identifier),
        )
    return found


def assemblies() -> dict[str, Listed]:
    """The 143 assemblies by registry key."""
    return _listed("assembly")


def stimulus_sets() -> dict[str, Listed]:
    """The stimulus sets with a checksum, by registry key and by the identifier in their file names."""
    sets = _listed("stimuli")
    return {listed.identifier: listed for listed in sets.values()} | sets


def benchmarks(
    table: str = "benchmarks.csv", by: str = "key"
) -> dict[str, dict[str, str]]:
    """The rows of a table of benchmarks by registry key, or by another of its columns."""
    with (HERE / table).open(encoding="utf-8", newline="") as file:
        return {row[by]: row for row in csv.DictReader(file)}
