"""Every block of the documents is tried: Python runs, commands run or parse with their real arguments, YAML loads."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroledger.cli import main
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.document import parse
from tests.cli.words import refusal_of
from tests.docs import blocks
from tests.docs.blocks import agreed_blocks_of, blocks_of, blocks_to_agree
from tests.docs.stages import presupposed
from tests.docs.test_documents import DOCUMENTS

# Tried by tests of their own, in an order and in folders of their own.
ELSEWHERE = {"docs/extending.md"}
# Read only, and quick: run as they are shown. The other verbs are parsed, their ids looked up.
READING = {
    "list",
    "show",
    "leaderboard",
    "compare",
    "diagnose",
    "ranks",
    "pareto",
    "plot",
    "report",
    "check",
}
HERE = {
    "Digits.simulated.IT-ridge",
    "Digits.simulated.V4-pls",
    "Digits.simulated",
}  # what `score` and `validate` run on
PLACEHOLDER = re.compile(r"…|(?<![\w-])(?!SHA)[A-Z][A-Z_]{2,}(?![\w-])|path/to|\.\.\.")
DROPPED = re.compile(r"  - Digits\.simulated\.(?!IT-ridge$|V4-pls$)|includes:")
FILES = re.compile(r"(--table scores\.csv)|(--since)|(--root)")
COMMAND = re.compile(r"^(?:[A-Z_]+=\S+ )?neuroledger (.*)$")


def test_every_document_is_tried() -> None:
    with_python = {
        name
        for name in DOCUMENTS
        if any(b.language == "python" for b in blocks_of(Path(name)))
    }
    assert with_python - ELSEWHERE == set(PYTHON)


def test_every_block_that_tests_execute_was_agreed_to() -> None:
    wanted = blocks_to_agree(DOCUMENTS)
    new = [place for sha256, place in wanted.items() if sha256 not in blocks._agreed()]
    old = blocks._agreed() - wanted.keys()
    assert not new and not old, (
        f"read {new}, then run `python -m tests.docs.blocks` ({len(old)} are gone)"
    )


def test_a_block_that_nobody_agreed_to_is_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "# Page\n\n```python\nx = 1\n```\n\n```sh\nmake evil\n```\n"
    (tmp_path / "page.md").write_text(page)
    monkeypatch.setattr(blocks, "HERE", tmp_path)
    assert agreed_blocks_of("page.md") == [] and not list(commands("page.md"))
    assert not list(blocks.write_files("page.md", tmp_path))
    (first, _) = blocks_to_agree(["page.md"])
    monkeypatch.setattr(blocks, "_agreed", lambda: frozenset({first}))
    assert [block.text for block in agreed_blocks_of("page.md")] == ["x = 1\n"]
    (tmp_path / "page.md").write_text(page.replace("x = 1", "x = 2"))
    assert agreed_blocks_of("page.md") == []


PYTHON = [
    name
    for name in DOCUMENTS
    if name not in ELSEWHERE
    and any(
        block.language == "python"
        for block in blocks_of(Path(__file__).parents[2] / name)
    )
]


@pytest.fixture(scope="module")
def clone(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository with its data, in a folder where commands may write."""
    folder = tmp_path_factory.mktemp("clone") / "repository"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (
            name.split("/")[0]
            in {"specs", "results", "params.yaml", "dvc.yaml", "data"}
            and (repository / name).is_file()
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, folder / name)
    for path in (repository / "data").rglob("*.dvc"):
        held = path.with_suffix("")
        if held.is_file():
            shutil.copy2(held, folder / held.relative_to(repository))
    # What this machine validated already, it need not validate again.
    known = repository / ".cache" / "validated"
    if known.is_dir():
        shutil.copytree(known, folder / ".cache" / "validated")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # of the regular expressions of a spec, said by pandas
        patch.chdir(folder)
        catalog = open_catalog(folder)
        datasets = {
            catalog.benchmark(item.id).dataset
            for item in catalog.suite("core").benchmarks
        }
        assert main(["validate", *sorted(datasets)]) == 0
    return folder


@pytest.fixture
def few_of_core(clone: Path) -> Iterator[None]:
    """The suite ``core`` with two of its benchmarks: `make repro` scores all of them, which takes long."""
    suite = clone / "specs" / "suites" / "core.yaml"
    text = suite.read_text(encoding="utf-8")
    kept = [line for line in text.splitlines(keepends=True) if not DROPPED.match(line)]
    assert len(kept) < len(text.splitlines())
    suite.write_text("".join(kept), encoding="utf-8")
    yield
    suite.write_text(text, encoding="utf-8")


@pytest.mark.filterwarnings("ignore:This pattern is interpreted:UserWarning")
@pytest.mark.parametrize("name", PYTHON)
def test_python_runs(
    repository: Path,
    clone: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """All blocks of a document, one after the other, with what its reader has."""
    monkeypatch.chdir(clone)
    if name == "README.md":
        request.getfixturevalue("few_of_core")
    # What a block registers belongs to a test, and is taken back as theirs is.
    names = {"__name__": "tests.documents", **presupposed(name)}
    for block in agreed_blocks_of(name):
        if block.language == "python" and not _sketch(block.text):
            code = compile(
                textwrap.dedent(block.text),
                f"{name}: {block.text.splitlines()[0]}",
                "exec",
            )
            exec(code, names)


def _sketch(text: str) -> bool:
    """Whether a block shows a line of a reader's own function, which it says."""
    return "# in a registered reader" in text


def commands(name: str) -> Iterator[str]:
    """Each line of the agreed shell blocks of a document, continued lines joined, comments taken off."""
    for block in agreed_blocks_of(name):
        if block.language in {"bash", "sh"}:
            for line in block.text.replace("\\\n", " ").splitlines():
                for part in re.sub(r"\s+#.*$|^#.*$", "", line).split("&&"):
                    if part.strip():
                        yield part.strip().removeprefix("do ").strip()


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in ELSEWHERE])
def test_commands_are_what_the_parser_takes(repository: Path, name: str) -> None:
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    for command in commands(name):
        found = COMMAND.match(command)
        if found and "…" not in command:
            words = [os.path.expandvars(word) for word in shlex.split(found.group(1))]
            why = refusal_of(words)
            assert why == "", f"{name}: `{command}` is refused ({why})"
        elif target := re.match(r"^make (\S+)", command):
            assert re.search(
                rf"^{re.escape(target.group(1))}:", makefile, re.MULTILINE
            ), f"{name}: {command}"
        elif not re.match(r"^(for|done)\b", command):
            done = subprocess.run(
                ["sh", "-n", "-c", command.replace("…", "")],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{name}: {command}: {done.stderr}"


def ready() -> Iterator[tuple[str, str]]:
    """The commands that need nothing but the repository itself."""
    for name in DOCUMENTS:
        for command in commands(name) if name not in ELSEWHERE else ():
            found = COMMAND.match(command)
            if found and not PLACEHOLDER.search(command) and not FILES.search(command):
                words = found.group(1).split()
                quick = words[0] in READING or (
                    words[0] == "run" and "--dry-run" in words
                )
                if quick or (
                    words[0] in {"score", "validate"} and HERE & set(words[1:])
                ):
                    yield name, found.group(1)


READY = sorted(set(ready()))


def test_many_commands_are_ready() -> None:
    assert len(READY) >= 12


# All pages are written and read by the tests of the report, of a smaller repository.
TRIED = [
    pytest.param(*one, marks=pytest.mark.slow if one[1].startswith("report") else ())
    for one in READY
]


@pytest.mark.parametrize(("name", "command"), TRIED, ids=lambda text: text[:60])
def test_a_command_runs_as_it_is_shown(
    clone: Path,
    name: str,
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(clone)
    status = main(shlex.split(command))
    assert status == 0, f"{name}: {command}\n{capsys.readouterr().err}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_yaml_is_read_by_the_strict_loader(repository: Path, name: str) -> None:
    for block in blocks_of(repository / name):
        if block.language == "yaml":
            parse(block.text, name)
