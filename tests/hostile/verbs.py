"""Verbs that write files, and the stages of the pipeline, as writers whose file operations can fail."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from neuroledger.cli import main
from tests.engine.lab import build
from tests.families.alignment.test_imports import package
from tests.hostile.writers import Writer

__all__ = ["all_verbs"]

REPOSITORY = Path(__file__).resolve().parents[2]
RIDGE = "lab.V4-ridge"
PASSING = frozenset({"environment", "timing"})
"""Fields of a record that may differ between two runs of the same job."""
FOLDER, IMAGES = "mine", 20
ANSWERS = (
    "--license",
    "CC0-1.0",
    "--access",
    "public",
    "--region",
    "V4",
    "--order",
    "name",
)
STAGES = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


def _do(folder: Path, *words: str) -> None:
    """Run a verb in the laboratory; ``{}`` stands for the folder."""
    os.environ.pop("NEUROLEDGER_ACTIVATIONS", None)
    os.environ["NO_COLOR"] = "1"
    given = [word.replace("{}", str(folder)) for word in words]
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        contextlib.chdir(folder),
    ):
        status = main(
            given if "--root" in given else ["--root", str(folder / "lab"), *given]
        )
    if status:
        raise RuntimeError(
            f"{' '.join(given)}: exit status {status}: {said.getvalue()[-500:]}"
        )


def _verb(*words: str) -> Callable[[Path], None]:
    return lambda folder: _do(folder, *words)


def _lab(folder: Path) -> None:
    build(folder / "lab", REPOSITORY)
    _do(folder, "validate", "lab")


def _unvalidated(folder: Path) -> None:
    build(folder / "lab", REPOSITORY)


def _scored(folder: Path) -> None:
    _lab(folder)
    _do(folder, "run", "pixels4", "noise", "--benchmark", RIDGE)


def _scored_and_signed(folder: Path) -> None:
    """Scored, with a key, and one record signed before."""
    _scored(folder)
    key = folder / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True
    )
    allowed = f"ann@lab.org {key.with_suffix('.pub').read_text()}"
    (folder / "lab" / "allowed_signers").write_text(allowed)
    _do(
        folder,
        "sign",
        "--key",
        str(key),
        f"{folder}/lab/results/records/{RIDGE}/noise.json",
    )


def _edited_seed(folder: Path) -> None:
    """Scored, and with records of other inputs than those that a run with the standard seed replaces."""
    _lab(folder)
    _do(folder, "run", "pixels4", "--benchmark", RIDGE, "--seed", "1")


def _published_package(folder: Path) -> None:
    build(folder / "lab", REPOSITORY)
    package(folder / "files")


def _import(folder: Path) -> None:
    files = [str(path) for path in sorted((folder / "files").iterdir())]
    _do(folder, "import", "brainscore", "mine", *files)


def _recordings(folder: Path) -> None:
    """A folder as a laboratory has it: images, and responses that are linear in their pixels; and a repository."""
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (IMAGES, 4, 4), dtype=np.uint8)
    (folder / FOLDER / "images").mkdir(parents=True)
    for number, block in enumerate(blocks):
        image = Image.fromarray(np.kron(block, np.ones((4, 4), np.uint8)))
        image.save(folder / FOLDER / "images" / f"im{number:02}.png")
    signal = (blocks.reshape(IMAGES, 16) / 255.0 - 0.5) @ rng.normal(size=(16, 3))
    np.save(
        folder / FOLDER / "responses.npy", signal + rng.normal(size=signal.shape) * 0.1
    )
    (folder / "lab" / "specs").mkdir(parents=True)
    (folder / "lab" / "dvc.yaml").write_text("stages: {}\n")


def _commands() -> Iterator[list[str]]:
    """The words of each stage of the repository's pipeline."""
    for stage in STAGES.values():
        program, *words = stage["cmd"].split()
        assert program == "neuroledger"
        yield words


def _stages(folder: Path) -> None:
    """Run the commands of the pipeline in its order, as ``dvc repro`` does."""
    for words in _commands():
        _do(folder / "lab", "--root", str(folder / "lab"), *words)


def _content(path: Path) -> bytes:
    """What two runs share: of caches the names, of records everything but circumstances, of pages of a start the names."""
    if ".cache" in path.parts or any(part.startswith("site-") for part in path.parts):
        return b""
    content = path.read_bytes()
    if "records" in path.parts and path.suffix == ".json":
        with contextlib.suppress(ValueError):
            plain = json.loads(content)
            return json.dumps(
                {name: plain[name] for name in sorted(plain) if name not in PASSING}
            ).encode()
    return content


@cache
def warm() -> None:
    """Run the verbs once in this process, so that forked ones have the libraries that they use."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        _scored(folder)
        _do(folder, "report", "--out", f"{folder}/site")
        _do(folder, "calibrate", RIDGE, "--runs", "20")


@cache
def all_verbs() -> list[Writer]:
    """Each verb that writes files of a repository."""
    run = _verb("run", "pixels4", "--benchmark", RIDGE)
    parts = [
        ("verb run", _lab, _verb("run", "pixels4", "noise", "--benchmark", RIDGE)),
        ("verb run, over others", _edited_seed, run),
        (
            "verb run --force",
            _scored,
            _verb("run", "pixels4", "--benchmark", RIDGE, "--force"),
        ),
        ("verb sign", _scored_and_signed, _verb("sign", "--key", "{}/key")),
        ("verb validate", _unvalidated, _verb("validate", "lab")),
        ("verb report", _scored, _verb("report", "--out", "{}/site")),
        ("verb calibrate", _scored, _verb("calibrate", RIDGE, "--runs", "20")),
        (
            "verb start",
            _recordings,
            _verb("start", f"{{}}/{FOLDER}", "--no-questions", *ANSWERS),
        ),
        ("verb import", _published_package, _import),
        ("stages of the pipeline", _unvalidated, _stages),
    ]
    in_steps = {"verb start": (f"lab/specs/datasets/{FOLDER}.yaml",)}
    return [
        Writer(name, prepare, run, in_steps=in_steps.get(name, ()), content=_content)
        for name, prepare, run in parts
    ]
