"""A repository with some of the real specs, for simulated downloads in the published layout."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import xarray as xr
import yaml

from neuroledger.cli import main
from neuroledger.data.load import load_dataset
from neuroledger.data.pin.yaml_edit import without
from neuroledger.spec.catalog import open_catalog


def unpinned(repository: Path, dataset: str) -> str:
    """The spec of a published data set as it was before its public tree was pinned: for downloads in the published layout.

    Where the tree is a conversion with another layout, the spec of the published files is in `as_published`.
    """
    own = Path(__file__).with_name("as_published") / f"{dataset}.yaml"
    if own.is_file():
        return own.read_text("utf-8")
    text = (repository / "specs" / "datasets" / f"{dataset}.yaml").read_text("utf-8")
    if "\nlists:" not in text:
        return text
    return without(without(text, "lists"), "unread") + 'unavailable: "not pinned"\n'


def place_of(root: Path, repository: Path, specs: Mapping[str, Sequence[str]]) -> Path:
    """A repository with these specs, word for word."""
    for kind, ids in specs.items():
        (root / "specs" / kind).mkdir(parents=True)
        for id in ids:
            if kind == "datasets":
                (root / "specs" / kind / f"{id}.yaml").write_text(
                    unpinned(repository, id), "utf-8"
                )
            else:
                shutil.copy(
                    repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
                )
    shutil.copy(repository / "specs" / "references.bib", root / "specs")
    shutil.copy(repository / "params.yaml", root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    return root


def spec_of(place: Path, dataset: str) -> dict[str, Any]:
    """The data set's spec as it lies there now."""
    found: dict[str, Any] = yaml.safe_load(
        (place / "specs/datasets" / f"{dataset}.yaml").read_text("utf-8")
    )
    return found


def pinned(place: Path, dataset: str, folder: Path) -> set[str]:
    """Names of the files that a pin by command pinned."""
    assert main(["--root", str(place), "pin", dataset, "--from", str(folder)]) == 0
    spec = spec_of(place, dataset)
    assert "unavailable" not in spec
    return set(spec["files"])


def scored(
    place: Path, benchmark: str, dataset: str, models: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Records by model after validate and run, by command."""
    root = ["--root", str(place)]
    assert main([*root, "validate", dataset]) == 0
    assert main([*root, "run", "--benchmark", benchmark, *models]) == 0
    records = [
        json.loads(path.read_text())
        for path in sorted((place / "results").rglob("*.json"))
    ]
    found = {
        record["model"]: record
        for record in records
        if record.get("benchmark") == benchmark
    }
    assert {record["status"] for record in found.values()} == {"scored"}, found
    return found


def windows(place: Path, dataset: str) -> xr.DataArray:
    """The windows as the repository reads them."""
    data = load_dataset(open_catalog(place), dataset)
    assert data.assembly is not None
    return data.assembly
