"""A bare remote with a minimal repository that has everything the scripts in .ci use, and clones of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from neuroledger.cli import main
from tests.engine.lab import Lab, build
from tests.hostile.proposals.corpus import embedded, git, point

KEPT = (".ci", ".dvc", ".dvcignore", ".gitignore", ".gitattributes")


@dataclass
class Remote:
    """The bare remote; clones use the environment of the running tests instead of one installed by ``make``."""

    bare: Path

    def clone(self, folder: Path, ref: str = "main") -> Lab:
        """Clone the remote at a ref or commit, with all branches as ``origin/…``, and link the environment."""
        git(self.bare, "clone", "--quiet", str(self.bare), str(folder))
        git(folder, "fetch", "--quiet", "origin", ref)
        git(folder, "checkout", "--quiet", "--detach", "FETCH_HEAD")
        environment = folder / ".venv"
        environment.mkdir()
        for name in ("bin", "lib", "pyvenv.cfg"):
            (environment / name).symlink_to(Path(sys.prefix) / name)
        (environment / ".ready").touch()
        return Lab(folder)

    def propose(
        self,
        folder: Path,
        branch: str,
        change: Callable[[Lab], None],
        *,
        start: str = "main",
    ) -> str:
        """Push a branch with a change, and return its commit."""
        lab = self.clone(folder, start)
        git(folder, "checkout", "--quiet", "-b", branch)
        change(lab)
        git(folder, "add", "-A")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", branch)
        git(folder, "push", "--quiet", "origin", branch)
        return commit_of(folder)


def commit_of(folder: Path, ref: str = "HEAD") -> str:
    words = ["git", "rev-parse", ref]
    return subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


def scored(lab: Lab, *words: str) -> None:
    """Validate and score in a clone as a contributor would, with the data that `dvc pull` would download."""
    for pointer in lab.data.glob("*.dvc"):
        md5 = yaml.safe_load(pointer.read_text())["outs"][0]["md5"]
        shutil.copy(
            lab.root / ".dvcstore" / "files" / "md5" / md5[:2] / md5[2:],
            pointer.with_suffix(""),
        )
    for arguments in (("validate",), ("run", *words)):
        assert main(["--root", str(lab.root), *arguments]) == 0


def remote(place: Path, repository: Path) -> Remote:
    """Create a bare remote of the small repository, with scores."""
    lab = build(place / "base", repository)
    root = lab.root
    for name in KEPT:
        copy = shutil.copytree if (repository / name).is_dir() else shutil.copy
        copy(repository / name, root / name)
    shutil.rmtree(root / ".dvc" / "tmp", ignore_errors=True)
    shutil.rmtree(root / ".dvc" / "cache", ignore_errors=True)
    for path in sorted(lab.data.glob("*")):
        point(lab, path)
    lab.dataset(files=embedded(lab))
    (root / "dvc.yaml").write_text("stages: {}\n")
    git(root, "init", "--quiet")
    scored(lab)
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "start")
    git(place, "clone", "--quiet", "--bare", str(root), str(place / "remote.git"))
    return Remote(place / "remote.git")
