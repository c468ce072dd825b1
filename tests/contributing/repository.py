"""A bare remote with a minimal repository that has everything the workflows use, and clones of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from neuroledger.cli import main
from tests.contributing.actions import Runner, path_of, read
from tests.engine.lab import Lab, build
from tests.hostile.proposals.corpus import embedded, git, point

KEPT = (".ci", ".github", ".dvc", ".dvcignore", ".gitignore", ".gitattributes", "Makefile")
# Four stages as in the real pipeline, of this repository's own files.
STAGES = {
    "check": ("neuroledger check --output results/check.json", ["specs"], ["results/check.json"]),
    "validate": ("neuroledger validate", ["results/check.json"], ["results/validation"]),
    "score": ("neuroledger run", ["specs", "results/validation"], ["results/records"]),
    "report": ("neuroledger report --out site", ["results/records"], ["site", "results/leaderboard.json"]),
}
PROJECT = """[project]
name = "small"
version = "0"

[tool.pytest.ini_options]
addopts = "-p no:cacheprovider"

[tool.ruff]
line-length = 110

[tool.mypy]
files = ["tests"]
cache_dir = "/dev/null"

[tool.importlinter]
root_package = "tests"

[[tool.importlinter.contracts]]
name = "Helpers import no test"
type = "forbidden"
source_modules = ["tests.helper"]
forbidden_modules = ["tests.test_small"]
"""


@dataclass
class Remote:
    """The bare remote; clones use the environment of the running tests instead of one installed by ``make``."""

    bare: Path
    repository: Path

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
        self, folder: Path, branch: str, change: Callable[[Lab], None], *, start: str = "main"
    ) -> str:
        """Push a branch with a change, and return its commit."""
        lab = self.clone(folder, start)
        git(folder, "checkout", "--quiet", "-b", branch)
        change(lab)
        git(folder, "add", "-A")
        git(folder, "commit", "--quiet", "--allow-empty", "-m", branch)
        git(folder, "push", "--quiet", "origin", branch)
        return commit_of(folder)

    def runner(self, name: str, place: Path, branch: str, programs: Path) -> Runner:
        """A run of a workflow for the pull request of a branch; its ref is the merge of the branch into main."""
        place.mkdir(parents=True)
        merged, ref = place / "merge", f"refs/pull/{branch}/merge"
        git(self.bare, "clone", "--quiet", str(self.bare), str(merged))
        git(merged, "merge", "--quiet", "--no-ff", "-m", "merge", f"origin/{branch}")
        git(merged, "push", "--quiet", "--force", "origin", f"HEAD:{ref}")
        workflow = read(self.repository / ".github" / "workflows" / name)
        run = {"event": "pull_request", "head_sha": commit_of(self.bare, branch)}
        github = {
            "repository": "owner/name", "token": "secret-token", "base_ref": "main",
            "ref": ref if "pull_request" in workflow["on"] else "main",
            "event": {"workflow_run": run, "repository": {"default_branch": "main"}},
        }  # fmt: skip
        settings = {
            "PATH": path_of(programs), "HOME": str(place), "TMPDIR": str(place), "LC_ALL": "C.UTF-8",
            "DVC_SITE_CACHE_DIR": str(place / "dvc"), "PYTHONPATH": str(self.repository / "src"),
            "PYTHONDONTWRITEBYTECODE": "1", "NEUROLEDGER_DISPLAY": "none",
        }  # fmt: skip
        return Runner(workflow, place, github, self.clone, settings)


def commit_of(folder: Path, ref: str = "HEAD") -> str:
    words = ["git", "rev-parse", ref]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def scored(lab: Lab, *words: str) -> None:
    """Validate and score in a clone as a contributor would, with the data that `dvc pull` would download."""
    for pointer in lab.data.glob("*.dvc"):
        md5 = yaml.safe_load(pointer.read_text())["outs"][0]["md5"]
        shutil.copy(lab.root / ".dvcstore" / "files" / "md5" / md5[:2] / md5[2:], pointer.with_suffix(""))
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
    stages = {
        name: {
            "cmd": command,
            "deps": deps,
            "outs": [{out: {"cache": False, "persist": True}} for out in outs],
        }
        for name, (command, deps, outs) in STAGES.items()
    }
    (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False))
    (root / "pyproject.toml").write_text(PROJECT)
    (root / "requirements.txt").write_text("numpy==2.0.0 --hash=sha256:0\n")
    (root / "mkdocs.yml").write_text("site_name: Small\nsite_dir: site-docs\nuse_directory_urls: false\n")
    (root / "docs").mkdir()
    (root / "docs" / "index.md").write_text("# The small documents\n")
    (root / "tests").mkdir()
    (root / "tests" / "__init__.py").touch()
    (root / "tests" / "helper.py").write_text("HALF = 0.5\n")
    (root / "tests" / "test_small.py").write_text("def test_small() -> None:\n    assert 1 + 1 == 2\n")
    git(root, "init", "--quiet")
    scored(lab)
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "start")
    git(place, "clone", "--quiet", "--bare", str(root), str(place / "remote.git"))
    return Remote(place / "remote.git", repository)
