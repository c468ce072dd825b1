"""A pytest plugin that stores the files that registered readers read in tests, as the corpus of `tests.hostile.fuzz`.

A test is skipped if the readers of its file have enough files already; a slow test if each of them has at least one set.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroledger.data import sandbox
from neuroledger.spec import registry

LARGEST = 32 << 20  # largest number of bytes stored for each reader
EACH = 12  # largest number of sets of files stored for each reader


def pytest_configure() -> None:
    """Wrap every reader as it is registered; this plugin is loaded before any reader is imported."""
    folder = Path(os.environ["NEUROLEDGER_CORPUS"])
    sandbox.confines = lambda: False  # a confined child could not write to the folder
    register = registry._register

    def registering(
        kind: str, name: str, version: int, **declared: Any
    ) -> Callable[..., Any]:
        decorate = register(kind, name, version, **declared)
        if kind != "reader":
            return decorate

        def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def reading(files: Any, **parameters: Any) -> Any:
                data = function(files, **parameters)
                _keep(folder / name, name, dict(files), parameters)
                return data

            return decorate(reading)

        return decorated

    registry._register = registering  # type: ignore[assignment]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move slow tests to the end of their file."""
    files = list(dict.fromkeys(item.path for item in items))
    items.sort(
        key=lambda item: (files.index(item.path), bool(item.get_closest_marker("slow")))
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that would add nothing."""
    place, readers_of_tests = (
        Path(os.environ["NEUROLEDGER_CORPUS"]),
        os.environ["NEUROLEDGER_CORPUS_READERS"],
    )
    enough = 1 if item.get_closest_marker("slow") else EACH
    names = json.loads(readers_of_tests).get(
        item.path.relative_to(item.config.rootpath).as_posix(), ()
    )
    if all(len(list((place / name).glob("*"))) >= enough for name in names):
        pytest.skip("its readers have enough to try")


def _keep(
    place: Path, name: str, files: dict[str, Path], parameters: dict[str, Any]
) -> None:
    if place.is_dir() and len(list(place.iterdir())) >= EACH:
        return
    stored = [*files.values(), *place.rglob("*")]
    if sum(path.stat().st_size for path in stored if path.is_file()) > LARGEST:
        return
    try:
        about = pickle.dumps((name, list(files), parameters))
    except (pickle.PicklingError, AttributeError, TypeError):
        return
    target = place / hashlib.sha256(about).hexdigest()[:16]
    if target.exists() or not all(path.is_file() for path in files.values()):
        return
    target.mkdir(parents=True)
    for number, path in enumerate(files.values()):
        (target / str(number)).write_bytes(path.read_bytes())
    (target / "about.pickle").write_bytes(about)
