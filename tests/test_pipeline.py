"""The pipeline is coarse, complete, and knows every file that a score of the core suite stands on."""

from __future__ import annotations

from pathlib import Path

import yaml

from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.load import read_params
from neuroledger.spec.suites import suites_of


def dependencies(repository: Path, stage: str) -> set[str]:
    return set(
        yaml.safe_load((repository / "dvc.yaml").read_text())["stages"][stage]["deps"]
    )


def test_the_validate_stage_depends_on_every_file_that_travels_with_the_repository(
    repository: Path,
) -> None:
    catalog = open_catalog(repository)
    files = {
        f"data/{id}/{name}"
        for id in catalog.ids("datasets")
        for name, pin in catalog.dataset(id).files.items()
        if pin.dvc
    }
    assert {
        name
        for name in dependencies(repository, "validate")
        if name.startswith("data/")
    } == files


def test_the_score_stage_depends_on_every_weight_that_travels_with_the_repository(
    repository: Path,
) -> None:
    catalog = open_catalog(repository)
    files = {
        f"data/models/{id}/{name}"
        for id in catalog.ids("models")
        for name, pin in catalog.model(id).weights.items()
        if pin.dvc
    }
    assert {
        name for name in dependencies(repository, "score") if name.startswith("data/")
    } == files


def test_the_default_suite_needs_nothing_but_the_clone(repository: Path) -> None:
    catalog = open_catalog(repository)
    for suite in suites_of(catalog, read_params(repository).suite):
        for item in suite.benchmarks:
            spec = catalog.dataset(catalog.benchmark(item.id).dataset)
            assert spec.unavailable is None and all(
                pin.dvc for pin in spec.files.values()
            ), spec.id
        for id in suite.models:
            assert all(
                pin.dvc or pin.package for pin in catalog.model(id).weights.values()
            ), id


def test_what_dvc_tracks_is_what_the_specs_pin(repository: Path) -> None:
    catalog = open_catalog(repository)
    pinned = {
        f"data/{id}/{name}"
        for id in catalog.ids("datasets")
        for name, pin in catalog.dataset(id).files.items()
        if pin.dvc
    } | {
        f"data/models/{id}/{name}"
        for id in catalog.ids("models")
        for name, pin in catalog.model(id).weights.items()
        if pin.dvc
    }
    pointers = {
        str(path.relative_to(repository).with_suffix(""))
        for path in (repository / "data").rglob("*.dvc")
    }
    assert pointers == pinned
