"""The doctor reports problems with the command that fixes them, and changes nothing."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from neuroledger.cli.doctor import NEEDED, OPTIONAL, examine
from neuroledger.data.gate.validate import validate
from neuroledger.errors import SIGNS, Finding
from tests.engine.lab import Lab

CONFIG = """[core]
    remote = embedded
['remote "embedded"']
    url = ../.dvcstore
    verify = true
['remote "s3"']
    url = s3://bucket/neuroledger
    verify = true
['remote "careless"']
    url = ../elsewhere
"""


@pytest.fixture
def seen(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    (lab.root / ".dvc").mkdir()
    (lab.root / ".dvc" / "config").write_text(CONFIG)
    (lab.root / ".dvcstore").mkdir()
    (lab.root / ".dvcstore" / "object").write_bytes(b"x")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "NEUROLEDGER_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(lab.root))
    return lab


def by_topic(lab: Lab) -> dict[str, Finding]:
    return {observation.where: observation for observation in examine(lab.open())}


def test_the_state_of_data_changes_from_missing_to_valid(seen: Lab) -> None:
    not_validated = by_topic(seen)["data set lab"]
    assert (not_validated.severity, not_validated.fix) == (
        "error",
        "`neuroledger validate lab`",
    )
    validate(seen.open(), "lab")
    assert by_topic(seen)["data set lab"].severity == "ok"
    (seen.data / "stimuli.zip").unlink()
    missing = by_topic(seen)["data set lab"]
    assert (missing.severity, missing.fix) == ("error", "`neuroledger fetch lab`")
    assert missing.what == "1 of 3 files missing or of the wrong size"


def test_data_outside_the_default_suite_are_only_a_note(seen: Lab) -> None:
    fields = {
        "files": {
            "x.nc": {"url": "https://example.org/x", "size": 1, "sha256": "0" * 64}
        }
    }
    seen.spec(
        "datasets", "other", license="CC0-1.0", reader={"name": "netcdf"}, **fields
    )
    assert by_topic(seen)["data set other"].severity == "note"


def test_every_declared_package_is_checked(seen: Lab, repository: Path) -> None:
    declared = tomllib.loads(
        (repository / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    needed = {requirement.split(">")[0] for requirement in declared["dependencies"]}
    assert set(NEEDED) == needed
    # `hub` is made of others; `perf` and `dev` are for those who work on the project.
    extras = declared["optional-dependencies"].keys() - {"hub", "perf", "dev"}
    assert {extra for extra, _ in OPTIONAL.values()} == extras
    topics = by_topic(seen)
    assert all(name in topics for name in OPTIONAL)
    assert all(
        name in str(declared["optional-dependencies"][extra])
        for name, (extra, _) in OPTIONAL.items()
    )


def test_remotes(seen: Lab) -> None:
    found = by_topic(seen)
    assert found["remote embedded (default)"].severity == "ok"
    assert (
        found["remote s3"].severity == "note"
        and "AWS_PROFILE" in found["remote s3"].fix
    )
    assert found["remote careless"].severity == "error"
    assert found["remote careless"].fix == "`dvc remote modify careless verify true`"
    (seen.root / ".dvcstore" / "object").unlink()
    assert by_topic(seen)["remote embedded (default)"].fix == "`git checkout .dvcstore`"
    (seen.root / ".dvc" / "config").unlink()
    assert by_topic(seen)["remote"].severity == "error"


def test_a_mirror_that_is_not_a_folder(
    seen: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(seen.root / "nowhere"))
    assert by_topic(seen)["mirror"].fix == "`unset NEUROLEDGER_MIRROR`"


def test_packages_that_are_missing_or_differ_from_their_pins(
    seen: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    (seen.root / "requirements.txt").write_text("numpy==0.0.1\n")
    found = by_topic(seen)
    assert found["versions"].what.startswith("different from requirements.txt: numpy ")
    from neuroledger.cli import doctor

    known = doctor._version
    monkeypatch.setattr(
        doctor,
        "_version",
        lambda name: None if name in {"scipy", "mne"} else known(name),
    )
    found = by_topic(seen)
    assert (
        found["packages"].severity == "error"
        and found["packages"].what == "missing: scipy"
    )
    assert found["mne"].fix == '`pip install -e ".[eeg]"`'


def test_the_size_of_the_store_is_reported(
    seen: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NEUROLEDGER_ACTIVATIONS", raising=False)
    folder = seen.root / ".cache" / "neuroledger" / "activations" / "ab" / ("ab" * 32)
    folder.mkdir(parents=True)
    (folder / "index.json").write_text("")
    (folder / "values.bin").write_bytes(b"x" * 3 * 1024**2)
    assert by_topic(seen)["activations"].what.startswith(
        "3.0 MiB stored of at most 50.0 GiB"
    )
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_LIMIT", "1 MiB")
    found = by_topic(seen)["activations"]
    assert found.severity == "note" and "rm -r" in found.fix
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_LIMIT", "lots")
    assert by_topic(seen)["activations"].severity == "error"


def test_an_unknown_suite_in_params(seen: Lab) -> None:
    (seen.root / "params.yaml").write_text("suite: nosuch\n")
    found = by_topic(seen)["suite"]
    assert found.severity == "error" and "nosuch" in found.what


def test_nothing_is_written(seen: Lab) -> None:
    def held() -> dict[str, int]:
        return {
            str(p): p.stat().st_mtime_ns
            for p in Path(seen.root).rglob("*")
            if p.is_file()
        }

    before = held()
    examine(seen.open())
    assert held() == before
    assert os.access(seen.root, os.W_OK)


def test_each_line_says_what_to_do(seen: Lab) -> None:
    for observation in examine(seen.open()):
        assert (
            observation.severity == "ok"
            or observation.fix
            or observation.where == "gpu"
        ), observation
        assert set(observation.to_dict()) == {
            "code",
            "severity",
            "where",
            "what",
            "fix",
        }
        assert observation.severity in SIGNS
