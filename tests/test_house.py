"""The house keeps its own rules: layers, public names, file sizes, no word out of place."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import neuroledger


def test_public_names_exist_and_are_all_there_is() -> None:
    for name in neuroledger.__all__:
        assert getattr(neuroledger, name) is not None
    assert sorted(neuroledger._PUBLIC) == sorted(neuroledger.__all__)


def test_layers_point_down(repository: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_file_is_too_long_to_read_at_one_sitting(repository: Path) -> None:
    long = {
        str(path.relative_to(repository)): count
        for path in sorted((repository / "src").rglob("*.py"))
        if (count := len(path.read_text().splitlines())) > 800
    }
    assert not long


def test_every_module_opens_with_a_sentence(repository: Path) -> None:
    bare = [
        str(p)
        for p in sorted((repository / "src").rglob("*.py"))
        if not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert not bare


def test_the_project_names_no_place_of_any_one_machine(repository: Path) -> None:
    files = subprocess.run(
        ["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    here = "|".join(re.escape(str(path)) for path in (repository, repository.parent / "shared"))
    pattern = re.compile(rf"((?<![\w.])/home/\w+|/root/|/Users/\w+|{here})")
    found = []
    for name in files:
        path = repository / name
        if (
            path.suffix in {".py", ".md", ".yaml", ".toml", ".json", ".txt", ""}
            and path.is_file()
            and path.stat().st_size < 1_000_000
        ):
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            if path.name != "test_house.py" and pattern.search(text):
                found.append(name)
    assert not found
