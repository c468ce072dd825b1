"""The command line answers at once: nothing heavy is imported before it is needed."""

import inspect
import subprocess
import sys

import pytest

from neuroledger.cli import main
from neuroledger.spec import registry
from tests.engine.lab import Lab

HEAVY = {
    "numpy",
    "pandas",
    "xarray",
    "torch",
    "sklearn",
    "scipy",
    "great_expectations",
    "dvc",
    "mne",
    "matplotlib",
    "rich",
}


def imported_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_help_imports_nothing_heavy() -> None:
    code = "from neuroledger.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert not imported_by(code) & (HEAVY | {"pydantic", "yaml"})


def test_list_and_show_import_nothing_heavy() -> None:
    assert (
        not imported_by(
            "from neuroledger.cli import main\nmain(['list', 'metrics'])\nmain(['show', 'pls'])"
        )
        & HEAVY
    )


def test_planning_checking_and_verifying_what_is_known_import_nothing_heavy(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neuroledger.store.derived.SETTLED_NS", -1)
    monkeypatch.setattr(registry, "only_shipped", lambda: True)
    monkeypatch.setattr("neuroledger.store.derived._FACTS", {})
    code = "from neuroledger.store import derived; derived.SETTLED_NS = -1; from neuroledger.cli import main"
    for words in (["run", "--dry-run"], ["check"], ["verify"]):
        whole = [*words, "--root", str(lab.root)]
        main(whole)
        heavy = HEAVY - {"numpy"} if words == ["verify"] else HEAVY
        assert not imported_by(f"{code}; main({whole})") & heavy, words


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert not imported_by("import neuroledger") & (HEAVY | {"pydantic", "yaml"})


def test_knowing_every_component_imports_no_framework() -> None:
    code = "from neuroledger.spec import registry\nfor kind in registry.FOLDERS: registry.discover(kind)"
    heavy = {
        "torch",
        "mne",
        "great_expectations",
        "dvc",
        "matplotlib",
        "nibabel",
        "pynwb",
        "h5py",
    }
    assert not imported_by(code) & heavy


def test_one_component_is_found_without_the_others_of_its_kind() -> None:
    code = (
        "from neuroledger.spec import registry; "
        "found = registry.get('paradigm', 'recording'); "
        "assert found.name == 'recording'; "
        "assert len([key for key in registry._REGISTRY if key[0] == 'paradigm']) < 3"
    )
    assert not imported_by(code) & {"sklearn", "torch"}


def test_the_module_of_a_component_is_found_by_its_name() -> None:
    """But those that are registered in a loop, or outside a family, which are found by importing all of their kind."""
    elsewhere = set()
    for kind in registry.FOLDERS:
        for name in registry.names(kind, plugins=False):
            module = inspect.unwrap(registry.get(kind, name).function).__module__
            found = {
                each
                for family in registry.families()
                for each in registry.mentioning(family, kind, f'"{name}"')
            }
            if module not in found:
                elsewhere.add(module)
    assert elsewhere <= {"neuroledger.models.hub", "neuroledger.models.torch_module"}
