"""A package and a repository of somebody else's, made from docs/extending.md alone, in an empty folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.blocks import write_files


class Stranger(NamedTuple):
    """The folder in which every block of the page was run, and what the commands printed."""

    folder: Path
    printed: str
    environment: dict[str, str]

    def run(
        self, *words: str, also: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A command in the stranger's repository, with a further folder of installed packages."""
        environment = dict(self.environment)
        if also is not None:
            environment["PYTHONPATH"] += os.pathsep + str(also)
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.folder / "ours",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )


# The package is built and installed in an environment of its own, which takes most of a minute.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stranger(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    folder = tmp_path_factory.mktemp("stranger")
    site = folder / "installed"
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NEUROLEDGER_")
    }
    environment |= {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(repository / "src"), str(site)]),
        # The package is built here and installed beside the environment, without a download.
        "PIP_TARGET": str(site),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
        "GX_ANALYTICS_ENABLED": "false",
    }
    printed = ""
    for command in write_files("docs/extending.md", folder):
        done = subprocess.run(
            ["sh", "-e", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, command + done.stdout + done.stderr
        printed += done.stdout
    return Stranger(folder, printed, environment)


def test_the_strangers_benchmark_is_scored_with_all_its_controls(
    stranger: Stranger,
) -> None:
    record = json.loads(
        (
            stranger.folder / "ours/results/records/Ours.V1-drive/pixels16.json"
        ).read_text(encoding="utf-8")
    )
    assert record["status"] == "scored" and record["score"]["value"] > 0.9
    assert {name: control["role"] for name, control in record["controls"].items()} == {
        "noise": "negative", "itself": "positive", "permuted": "negative"
    }  # fmt: skip
    assert all(
        control["verdict"] == "passed" for control in record["controls"].values()
    )
    assert record["inputs"]["paradigm"] == "labkit_session@1"
    assert record["inputs"]["metrics"][0]["component"] == "labkit_drive@1"
    assert record["environment"]["packages"]["labkit"] == "0.1.0"


def test_the_strangers_commands_print_what_the_page_promises(
    stranger: Stranger,
) -> None:
    assert "4 spec files: no problems" in stranger.printed
    assert "5 of 5 expectations met" in stranger.printed
    assert "Partial least squares regression, cross-validated" in stranger.printed
    assert (
        "Correlation of each neuroid with the model's mean response" in stranger.printed
    )


def test_a_specs_path_is_shown_wherever_it_is(stranger: Stranger) -> None:
    shown = stranger.run("-m", "neuroledger", "show", "labkit_drive").stdout
    assert shown.rstrip().endswith(
        str(Path("labkit", "specs", "metrics", "labkit_drive.yaml"))
    )
    assert "labkit2026: Our Laboratory, 2026" in shown


def installed(folder: Path, name: str, **files: str) -> Path:
    """A folder of installed packages that holds one more, with the given files."""
    (folder / name).mkdir(parents=True)
    for file, text in {"__init__.py": '"""A plugin."""\n', **files}.items():
        (folder / name / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / name / file).write_text(text)
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    )
    (facts / "entry_points.txt").write_text(
        f"[neuroledger.families]\n{name} = {name}\n"
    )
    return folder


def test_a_broken_package_is_reported_by_its_name_and_the_rest_still_works(
    stranger: Stranger, tmp_path: Path
) -> None:
    also = installed(
        tmp_path, "brokenkit", **{"readers.py": "import a_module_that_nobody_wrote\n"}
    )
    checked = stranger.run("-m", "neuroledger", "check", also=also)
    reason = "the installed package brokenkit cannot be used: importing brokenkit raised ModuleNotFoundError"
    assert checked.returncode == 1
    assert checked.stdout.count(reason) == 1 and "Traceback" not in checked.stderr
    scored = stranger.run(
        "-m", "neuroledger", "score", "pixels16", "Ours.V1-drive", also=also
    )
    assert scored.returncode == 0, scored.stderr
    assert scored.stderr.count(reason) == 1
    assert reason in stranger.run("-m", "neuroledger", "doctor", also=also).stdout


def test_a_plugin_cannot_take_the_name_of_a_shipped_component(
    stranger: Stranger, tmp_path: Path
) -> None:
    code = (
        '"""Another ridge."""\n'
        "from neuroledger.spec.registry import metric\n\n"
        '@metric("regression", version=1)\ndef regression(source, target):\n    return source\n'
    )
    also = installed(tmp_path, "takingkit", **{"metrics.py": code})
    look = (
        "import neuroledger as nl; from neuroledger.spec import registry; registry.names('metric'); "
        "print(nl.metric('pls').component.function.__module__)"
    )
    done = stranger.run("-c", look, also=also)
    assert done.stdout.strip() == "neuroledger.families.alignment.metrics.regression"
    assert (
        "takingkit cannot be used" in done.stderr and "registered twice" in done.stderr
    )


def test_a_plugin_cannot_take_the_id_of_a_shipped_spec(
    stranger: Stranger, tmp_path: Path
) -> None:
    text = "id: pls\nversion: 1\ntitle: Another PLS\ncompare: {name: regression}\nscale: correlation\n"
    also = installed(tmp_path, "samekit", **{"specs/metrics/pls.yaml": text})
    done = stranger.run("-m", "neuroledger", "list", "metrics", also=also)
    assert done.returncode == 2 or done.returncode == 1
    words = done.stdout + done.stderr
    assert (
        "samekit:metrics/pls.yaml:1:1: id 'pls' is already taken by neuroledger:metrics/pls.yaml"
        in words
    )
