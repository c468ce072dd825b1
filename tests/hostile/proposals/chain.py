"""The second act: what a maintainer does after a clean review, on the merge, with canaries.

``python -m tests.hostile.proposals.chain [NAME…]`` merges every proposal whose review must be clean into a clone, and calls
everything there that the documents call safe or routine. Nothing of the proposal may be executed, nothing outside the clone
written, no secret read, no address asked, and no page may contain a live element.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import yaml

from tests.engine.lab import Lab
from tests.hostile.proposals import guises, honest, tricks
from tests.hostile.proposals.corpus import PROPOSALS, RIDGE, Proposal, base, commit, git
from tests.hostile.proposals.scripts import Scripts
from tests.hostile.proposals.watched import Answer, Worker

assert (
    tricks.SPEC and guises.BIBLIOGRAPHY and honest.HONEST
)  # importing them adds their proposals
REPOSITORY = Path(__file__).parents[3]
CLEAN = [proposal for proposal in PROPOSALS if proposal.verdict == "clean"]
SECRET = "SECRET"
RECORD = f"results/records/{RIDGE}/pixels4.json"
# Exit codes that are answers of verbs that judge; 2 is a request that is wrong, and a crash is no answer at all. The other
# calls succeed, so that a chain that stops early is noticed.
ANSWERS = (0, 1, 3)
JUDGES = ("check", "validate", "run", "verify", "doctor")

# What the tests of a repository do when they are collected: import packages from its root. A data folder is none.
PROBE = """
import importlib, pathlib, sys
ROOT = pathlib.Path(__file__).parents[1]
for folder in [path for path in ROOT.glob("data/**/*") if path.is_dir()]:
    name = ".".join(folder.relative_to(ROOT).parts)
    if all(part.isidentifier() for part in name.split(".")):
        importlib.import_module(name)
def test_nothing(): ...
"""


class Live(HTMLParser):
    """The elements and attributes of a page that a browser would execute or load, beside the site's own scripts.

    ``brought`` are the texts of the proposal: a script whose body is in them is not the site's own.
    """

    def __init__(self, brought: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._brought = brought
        self._in_script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note handlers, addresses that are scripts, what is loaded from elsewhere, and embedded documents."""
        self._in_script = tag == "script"
        if tag in ("iframe", "object", "embed", "frame", "applet", "base"):
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            address = re.sub(r"[\s\x00-\x20]", "", value or "").lower()
            loaded = name in ("src", "srcset", "data", "poster", "background")
            loaded = loaded or (name == "href" and tag in ("link", "use"))
            scripted = address.startswith(
                ("javascript:", "vbscript:", "data:text/html")
            )
            foreign = loaded and address.startswith(("http:", "https:", "//", "ftp:"))
            if (
                name.startswith("on")
                or name in ("srcdoc", "formaction")
                or scripted
                or foreign
            ):
                self.found.append(f"<{tag} {name}={value}>")

    def handle_endtag(self, tag: str) -> None:
        """Leave a script."""
        self._in_script = False

    def handle_data(self, data: str) -> None:
        """Note a script that the proposal brought."""
        if self._in_script and data.strip() and data.strip() in self._brought:
            self.found.append(f"<script>{data.strip()[:60]}")


def live(folder: Path, brought: str) -> Iterator[str]:
    """Elements of the pages below a folder that are live and not the site's own."""
    for page in sorted(folder.rglob("*.html")):
        parser = Live(brought)
        parser.feed(page.read_text(encoding="utf-8"))
        yield from (f"{page.name}: {found}" for found in parser.found)


def obeyed(folder: Path) -> Iterator[str]:
    """Cells of published tables that a spreadsheet computes, and commands of TeX that no board contains."""
    for table in sorted(folder.rglob("*.csv")):
        cells = [
            cell for row in csv.reader(table.read_text().splitlines()) for cell in row
        ]
        yield from (
            f"{table.name}: {cell}"
            for cell in cells
            if re.match(r"[=@\t\r]|[+-](?![\d.])", cell)
        )
    for table in sorted(folder.rglob("*.tex")):
        text = table.read_text(encoding="utf-8")
        yield from (
            f"{table.name}: {found}"
            for found in re.findall(r"\^\^\S*|\\(?:input|include|write)\b", text)
        )


def routine(root: Path, changed: set[str]) -> Iterator[tuple[str, list[str]]]:
    """The calls that the documents name, in their order: program and arguments."""
    at = ["--root", str(root)]
    yield "dvc", ["pull", "--quiet"]
    yield (
        "pytest",
        [
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(root),
            "probe",
        ],
    )
    yield "neuroledger", [*at, "check"]
    yield "neuroledger", [*at, "summary", "--since", "main"]
    yield "neuroledger", [*at, "validate", "--force"]
    yield "neuroledger", [*at, "run", "--suite", "lab"]
    yield "neuroledger", [*at, "verify"]
    if records := sorted(
        path
        for path in changed
        if path.startswith("results/records/") and path.endswith(".json")
    ):
        yield "neuroledger", [*at, "verify", "--recompute", *records]
    yield "neuroledger", [*at, "leaderboard", "--suite", "lab"]
    yield "neuroledger", [*at, "report", "--suite", "lab", "--out", "site"]
    yield "neuroledger", [*at, "doctor"]
    if any(path.endswith(".md") for path in changed):
        yield "mkdocs", ["build", "--quiet", "--site-dir", str(root / "site-docs")]


def prepare(root: Path) -> None:
    """Create the base repository, with the settings of DVC, of the site, and a test that imports from the root."""
    lab = base(root, REPOSITORY)
    git(root, "checkout", "-q", "main")
    shutil.copytree(
        REPOSITORY / ".dvc",
        root / ".dvc",
        ignore=shutil.ignore_patterns("tmp", "cache", "config.local"),
    )
    for file in (REPOSITORY / "docs").iterdir():
        if file.suffix in (".py", ".css", ".js"):
            shutil.copy(file, root / "docs" / file.name)
    shutil.copytree(REPOSITORY / "docs" / "theme", root / "docs" / "theme")
    site = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())
    site = {
        name: value
        for name, value in site.items()
        if name not in ("nav", "not_in_nav", "strict", "validation")
    }
    (root / "mkdocs.yml").write_text(yaml.safe_dump(site))
    (root / "docs" / "index.md").write_text("# A laboratory\n")
    (root / "probe").mkdir()
    (root / "probe" / "test_probe.py").write_text(PROBE)
    (root / ".gitignore").write_text(
        "results/scratch/\n/site/\n/site-docs/\n.cache/\nresults/validation/\n"
    )
    assert lab.root == root
    git(root, "add", "-A")
    git(root, "commit", "-m", "settings")
    git(root, "checkout", "-q", "-B", "proposal")


def proposed(proposal: Proposal, start: Path, scratch: Path) -> Path:
    """The folder of a proposal, as somebody hands it over: with its own settings of git, and without the data."""
    folder = scratch / f"{proposal.name}-proposal"
    shutil.copytree(start, folder, symlinks=True)
    proposal.change(Lab(folder))
    commit(Lab(folder))
    for pointer in folder.glob("data/*/*.dvc"):
        pointer.with_suffix("").unlink(missing_ok=True)
    return folder


def merged(folder: Path, clone: Path) -> set[str]:
    """Merge a proposal into a clone, and return the paths that changed."""
    git(
        folder.parent,
        "clone",
        "-q",
        "--no-local",
        "--branch",
        "main",
        str(folder),
        str(clone),
    )
    git(clone, "merge", "-q", "--no-ff", "-m", "merge", "origin/proposal")
    listed = subprocess.run(
        ["git", "diff", "--name-only", "-z", "main~1", "HEAD"],
        cwd=clone,
        check=True,
        capture_output=True,
        text=True,
    )
    git(clone, "checkout", "-q", "-b", "merged")
    git(clone, "branch", "-f", "main", "main~1")
    return {path for path in listed.stdout.split("\0") if path}


class Maintainer:
    """Who calls everything: a worker, the scripts of continuous integration, and the base repository."""

    def __init__(self, scratch: Path) -> None:
        self.start = scratch / "start"
        prepare(self.start)
        self.worker = Worker(scratch, REPOSITORY / "src")
        self.scripts = Scripts(self.worker, scratch, REPOSITORY)
        learned = scratch / "learned"
        git(scratch, "clone", "-q", "--branch", "main", str(self.start), str(learned))
        for program, words in routine(learned, {RECORD, "docs/page.md"}):
            self.worker.call(learned, program, words, learns=True)
        shutil.rmtree(learned)

    def close(self) -> None:
        """End the processes."""
        self.scripts.close()
        self.worker.close()


def follow(proposal: Proposal, maintainer: Maintainer, scratch: Path) -> list[str]:
    """Review one proposal as continuous integration does, merge it, call everything, and return the problems."""
    (scratch / SECRET).write_text("a secret of the machine\n")
    folder, root = (
        proposed(proposal, maintainer.start, scratch),
        scratch / proposal.name,
    )
    before = {path: path.read_bytes() for path in scratch.glob("*") if path.is_file()}
    problems = []
    for script, answers in (("review", (0,)), ("recompute", ANSWERS)):
        answer = maintainer.scripts.call(script, "main", folder)
        problems += _problems(f".ci/{script}", answer, answers)
    changed = merged(folder, root)
    for program, words in routine(root, changed):
        name = " ".join([program, *words[:4]]).replace(f" --root {root}", "")
        judges = program == "neuroledger" and words[2] in JUDGES
        answer = maintainer.worker.call(root, program, words)
        problems += _problems(name, answer, ANSWERS if judges else (0,))
    texts = [root / path for path in sorted(changed) if (root / path).is_file()]
    brought = "\n".join(
        path.read_text(encoding="utf-8", errors="replace") for path in texts
    )
    problems += [
        f"live: {one}"
        for site in ("site", "site-docs")
        for one in live(root / site, brought)
    ]
    problems += [f"live: {one}" for one in obeyed(root / "site")]
    if any(
        (place / "CANARY").exists()
        for place in (root, folder, maintainer.scripts.folder, Path())
    ):
        problems.append("executed a command")
    if before != {
        path: path.read_bytes() for path in scratch.glob("*") if path.is_file()
    }:
        problems.append("wrote outside the clone")
    shutil.rmtree(root)
    shutil.rmtree(folder)
    return problems


def _problems(name: str, answer: Answer, answers: tuple[int, ...]) -> Iterator[str]:
    """What is wrong with a call that may end with one of the exit codes ``answers``."""
    yield from (f"{name}: {one}" for one in dict.fromkeys(answer.seen))
    if "Traceback" in answer.output or answer.code not in answers:
        yield f"{name}: exit {answer.code}: {answer.output[-400:]}"
    if "\x1b" in answer.output or "a secret of the machine" in answer.output:
        yield f"{name}: controls the terminal or tells a secret"


def main(names: list[str]) -> int:
    """Follow all clean proposals, or those with these names; print the problems and the counts."""
    began, failed = time.monotonic(), 0
    chosen = [proposal for proposal in CLEAN if not names or proposal.name in names]
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place).resolve()
        maintainer = Maintainer(scratch)
        for proposal in chosen:
            problems = follow(proposal, maintainer, scratch)
            failed += bool(problems)
            sys.stdout.writelines(
                f"✗ {proposal.name}: {problem}\n" for problem in problems
            )
            sys.stdout.flush()
        maintainer.close()
    took = time.monotonic() - began
    sys.stdout.write(
        f"{len(chosen)} clean proposals followed to the end: {failed} with problems, {took:.0f} s\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
