"""Fixtures of all tests: the repository, a small laboratory, and the folders of reference values and real data."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from neuroledger.data.gate.validate import validate
from neuroledger.spec import registry
from neuroledger.store.store import store_at
from tests.engine.lab import Lab, build
from tests.long import listed

REPOSITORY = Path(__file__).resolve().parents[1]

# A busy machine is no failure: by default, an example of more than 200 ms and inputs of more than a second are.
settings.register_profile(
    "patient", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("patient")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that are listed as slow."""
    slow = listed()
    for item in items:
        if item.nodeid in slow:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking what stays for the whole run: libraries, and thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout from which the tests run."""
    return REPOSITORY


@pytest.fixture(autouse=True)
def readers_store(tmp_path: Path) -> Iterator[None]:
    """Readers that are called directly store prepared data in the test's temporary folder."""
    with store_at(tmp_path):
        yield


@pytest.fixture
def lab(tmp_path: Path, repository: Path) -> Lab:
    """A small laboratory: a repository with a few specs and simulated data."""
    return build(tmp_path / "lab", repository)


@pytest.fixture(scope="session")
def _validated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small laboratory with validated data; tests use copies of it."""
    lab = build(tmp_path_factory.mktemp("validated") / "lab", REPOSITORY)
    validate(lab.open(), "lab")
    return lab.root


@pytest.fixture
def valid(tmp_path: Path, _validated: Path) -> Lab:
    """The small laboratory with validated data, ready to be scored."""
    return Lab(shutil.copytree(_validated, tmp_path / "lab"))


@pytest.fixture(autouse=True)
def _components_of_tests_stay_at_home(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Components that a test module registers on import are available to that module only."""
    home = request.module.__name__ if request.module else ""
    for key, component in list(registry._REGISTRY.items()):
        place = component.function.__module__
        if place.startswith("tests.") and place != home:
            monkeypatch.delitem(registry._REGISTRY, key)


@pytest.fixture(autouse=True)
def _modules_of_tests_stay_at_home(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Modules that a test writes and imports are gone after it: another test may write one of the same name."""
    count, last = len(sys.modules), next(reversed(sys.modules))
    yield
    if next(reversed(sys.modules)) == last:  # modules are in the order of their import
        return
    written = str(tmp_path_factory.getbasetemp())
    for name in [*islice(reversed(sys.modules), max(0, len(sys.modules) - count))]:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(written):
            del sys.modules[name]


@pytest.fixture(autouse=True)
def _torch_stays_as_found() -> Iterator[None]:
    """A test that leaves another setting of torch behind fails itself, not the test after it."""
    before = _settings_of_torch()
    yield
    after = _settings_of_torch()
    assert before.items() <= after.items(), "the test changed torch for all that follow"


def _settings_of_torch() -> dict[str, object]:
    """Return the settings that apply to a whole process; torch's defaults but for the threads before it is imported."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_dtype"):
        return {"deterministic": False, "dtype": "torch.float32", "gradients": True}
    return {
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
    }


def _folder(variable: str, default: Path) -> Path:
    folder = Path(os.environ.get(variable, default)).resolve()
    if not folder.is_dir():
        pytest.skip(f"needs the folder {variable} points to")
    return folder


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of reference values computed with other packages; tests that need it are skipped without it."""
    return _folder("NEUROLEDGER_REFERENCE", REPOSITORY.parent / "shared" / "reference")


@pytest.fixture(scope="session")
def mirror() -> Path:
    """The folder of original public data files; tests that need it are skipped without it."""
    return _folder("NEUROLEDGER_MIRROR", REPOSITORY.parent / "shared" / "data")
