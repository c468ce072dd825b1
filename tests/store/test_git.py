"""git obeys nothing that the configuration, attributes or hooks of a repository say, and nothing else calls git."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from neuroledger.errors import RequestError
from neuroledger.store.git import clone, git


def plain(root: Path, *words: str) -> None:
    who = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def hostile(root: Path, canary: Path) -> None:
    """Let everything in ``.git`` that names a program name one that touches ``canary``."""
    program = root / ".git" / "program"
    program.write_text(f"#!/bin/sh\ntouch {canary}\ncat\n")
    program.chmod(0o755)
    run = str(program)
    included = root / ".git" / "included"
    included.write_text(
        f'[filter "a=b"]\n\tclean = {run}\n\tsmudge = {run}\n\tprocess = {run}\n\trequired = true\n'
    )
    hooks = root / ".git" / "own-hooks"
    hooks.mkdir()
    for name in (
        "post-index-change",
        "pre-auto-gc",
        "reference-transaction",
        "post-checkout",
    ):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    with (root / ".git" / "config").open("a") as file:
        file.write(
            f"[include]\n\tpath = included\n[core]\n\tfsmonitor = {run}\n\thooksPath = {hooks}\n\tpager = {run}\n"
            f"\tsshCommand = {run}\n\teditor = {run}\n\tattributesFile = {root}/.git/attributes\n"
            f"\talternateRefsCommand = {run}\n"
            f"[diff]\n\texternal = {run}\n[pager]\n\tstatus = {run}\n[alias]\n\tstatus = !{run}\n\tx = !{run}\n"
            f'[filter "plain"]\n\tclean = {run}\n[diff "plain"]\n\ttextconv = {run}\n\tcommand = {run}\n'
            f"[gpg]\n\tprogram = {run}\n[log]\n\tshowSignature = true\n[credential]\n\thelper = !{run}\n"
            f"[uploadpack]\n\tpackObjectsHook = {run}\n[status]\n\tsubmoduleSummary = true\n"
        )
    attributes = "*.txt filter=a=b diff=plain\n*.md filter=plain diff=plain\n"
    (root / ".git" / "attributes").write_text(attributes)
    (root / ".git" / "info" / "attributes").write_text(attributes)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    for name in ("a.txt", "b.md", "c.x"):
        (root / name).write_text("first\n")
    plain(root, "init", "-q")
    plain(root, "add", "-A")
    plain(root, "commit", "-qm", "start")
    for name in ("a.txt", "b.md"):
        (root / name).write_text(
            "other\n"
        )  # of the same size, so that only its content tells
    return root


COMMANDS = (
    ("rev-parse", "HEAD"),
    ("status", "--porcelain"),
    ("ls-files", "--others", "--modified", "--exclude-standard"),
    ("log", "--name-only", "HEAD"),
    ("cat-file", "-p", "HEAD"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_git_obeys_no_program_of_the_repository(
    root: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    expected = git(root, *words, filters=True)
    hostile(root, tmp_path / "canary")
    assert git(root, *words, filters=True) == expected
    assert not (tmp_path / "canary").exists()


def test_the_same_configuration_is_obeyed_by_git_itself(
    root: Path, tmp_path: Path
) -> None:
    hostile(root, tmp_path / "canary")
    subprocess.run(["git", "status"], cwd=root, check=False, capture_output=True)
    assert (tmp_path / "canary").exists()


def test_an_alias_is_no_command(root: Path, tmp_path: Path) -> None:
    hostile(root, tmp_path / "canary")
    assert git(root, "status", "--porcelain", filters=True).count(b"M") == 2
    assert not (tmp_path / "canary").exists()


def test_variables_of_git_are_not_inherited(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("GIT_DIR", "/nowhere"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_EXTERNAL_DIFF", "false"),
    ):
        monkeypatch.setenv(name, value)
    assert len(git(root, "rev-parse", "HEAD").strip()) == 40


def test_a_git_of_the_repository_is_not_called(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "git").write_text("#!/bin/sh\ntouch canary\n")
    (root / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(RequestError, match="git is not installed"):
        git(root, "rev-parse", "HEAD")


def test_failures_name_the_command(root: Path) -> None:
    with pytest.raises(RequestError, match="git rev-parse failed: "):
        git(root, "rev-parse", "--verify", "nosuch")
    assert git(root, "rev-parse", "--verify", "nosuch", may_fail=True) == b""


@pytest.mark.parametrize(
    "address", ["ext::sh -c touch% canary", "file:///tmp", "git://127.0.0.1/x"]
)
def test_only_https_is_cloned(tmp_path: Path, address: str) -> None:
    with pytest.raises(RequestError, match="not allowed"):
        clone(address, tmp_path / "clone", seconds=20)


def test_every_other_module_calls_git_through_this_one(repository: Path) -> None:
    found = []
    for path in sorted((repository / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            first = node.elts[0] if isinstance(node, ast.List) and node.elts else None
            if isinstance(first, ast.Constant) and first.value == "git":
                found.append(path.name)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "shutil.which":
                found += [path.name] * (ast.unparse(node.args[0]) == "'git'")
    assert found == ["git.py"]
