"""The content hash of prepared windows is shown, recorded with scores, and compared with a pinned hash."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import yaml

from neuroledger.cli import main
from neuroledger.data import assembly as assemblies
from neuroledger.data.assembly import content_sha256
from neuroledger.data.load import load_dataset
from neuroledger.spec.catalog import open_catalog
from tests.families.decoding.decoding_cases import windows


def write(root: Path, kind: str, **fields: object) -> None:
    folder = root / "specs" / kind
    folder.mkdir(parents=True, exist_ok=True)
    line = f"# yaml-language-server: $schema=../schema/{kind[:-1]}.json\n"
    (folder / f"{fields['id']}.yaml").write_text(
        line
        + yaml.safe_dump({"version": 1, "title": "A title", **fields}, sort_keys=False)
    )


@pytest.fixture
def place(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one data set of signals, kept in `prepared/` however small, and one benchmark."""
    root = tmp_path / "place"
    (root / "specs").mkdir(parents=True)
    shutil.copytree(repository / "specs" / "metrics", root / "specs" / "metrics")
    for name in (
        "specs/references.bib",
        "params.yaml",
        "specs/models/dummy.yaml",
        "specs/models/shrinkage_lda.yaml",
    ):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(repository / name, root / name)
    (root / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(root)
    monkeypatch.delenv("NEUROLEDGER_MIRROR", raising=False)
    for module in (
        "neuroledger.families.signals.recordings.window_store",
        "neuroledger.families.signals.readers.prepared_signals",
    ):
        monkeypatch.setattr(f"{module}.IN_MEMORY", 4000)
    (root / "data" / "Waves").mkdir(parents=True)
    assemblies.write(
        windows(subjects=4, trials=20, strength=3.0),
        root / "data" / "Waves" / "signals.nc",
    )
    declare(root)
    splits = {"name": "cross_subject", "folds": 4}
    paradigm = {"name": "decoding", "splits": splits}
    write(
        root,
        "benchmarks",
        id="Waves-b",
        parent="decoding",
        dataset="Waves",
        paradigm=paradigm,
        metric="balanced_accuracy",
    )
    return root


def declare(root: Path, **pinned: object) -> None:
    path = root / "data" / "Waves" / "signals.nc"
    content = path.read_bytes()
    pin = {
        "url": "https://example.org/x",
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    checks = [
        {"check": "values_finite"},
        *([{"check": "content", **pinned}] if pinned else []),
    ]
    write(
        root,
        "datasets",
        id="Waves",
        license="CC0-1.0",
        files={"signals.nc": pin},
        reader={"name": "prepared_signals"},
        expectations={"assembly": checks},
    )


def prepared(root: Path) -> dict[str, str]:
    record = json.loads(
        (root / "results" / "records" / "Waves-b" / "shrinkage_lda.json").read_text()
    )
    assert record["status"] == "scored", record["error"]
    found: dict[str, str] = record["score"]["facts"]["prepared_sha256"]
    return found


def test_the_content_hash_is_in_the_report_the_card_and_the_score(place, capsys):
    expected = content_sha256(windows(subjects=4, trials=20, strength=3.0))
    main(["show", "Waves"])
    assert "prepared content" not in capsys.readouterr().out  # nothing was prepared yet
    assert main(["validate", "Waves"]) == 0
    report = json.loads((place / "results" / "validation" / "Waves.json").read_text())
    assert report["contents"]["assembly"]["sha256"] == expected
    capsys.readouterr()
    main(["show", "Waves"])
    output = capsys.readouterr().out
    assert f"prepared content: sha256 {expected}" in output
    assert "prepared: 80 presentations × 3 channels × 16 samples, float64" in output
    assert main(["score", "shrinkage_lda", "Waves-b", "--record"]) == 0
    assert prepared(place) == {"value": expected[:12], "origin": "stated"}
    assert (place / ".cache" / "neuroledger" / "windows").is_dir()
    loaded = load_dataset(open_catalog(place), "Waves")
    assert (
        loaded.content == expected and "content_sha256" not in loaded.assembly.encoding
    )


def test_content_that_differs_from_its_pin_is_neither_validated_nor_scored(
    place, capsys, monkeypatch
):
    expected = content_sha256(windows(subjects=4, trials=20, strength=3.0))
    declare(place, sha256=expected)
    assert main(["validate", "Waves"]) == 0
    # The report says that all is well; on this machine, other windows come out.
    other = windows(subjects=4, trials=20, strength=3.0) * (1 + 1e-12)
    monkeypatch.setattr(
        "neuroledger.data.assembly.read_blocks",
        lambda *_: iter([other.assign_attrs(windows(subjects=4, trials=20).attrs)]),
    )
    shutil.rmtree(place / ".cache" / "neuroledger" / "windows")
    capsys.readouterr()
    assert main(["score", "shrinkage_lda", "Waves-b"]) != 0
    output = "".join(capsys.readouterr())
    assert (
        f"has the SHA-256 {content_sha256(other)}, and {expected} is pinned" in output
    )
    assert main(["validate", "Waves", "--force"]) != 0
    output = "".join(capsys.readouterr())
    assert (
        f"SHA-256 of values and coordinates: {expected} declared, found {content_sha256(other)}"
        in output
    )
    assert "prepare the data with the library versions" in output
