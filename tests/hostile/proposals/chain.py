"""The second act: what a maintainer does after a clean review, on the merge, with canaries.

``python -m tests.hostile.proposals.chain [NAME…]`` merges every proposal whose review must be clean into a clone, and calls
everything there that the documents call safe or routine. Nothing of the proposal may be executed, nothing outside the clone
written, no secret read, no address asked, and no page may contain a live element.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from tests.engine.lab import Lab
from tests.hostile.proposals import guises, honest, tricks
from tests.hostile.proposals.corpus import PROPOSALS, Proposal, base, commit, git

assert tricks.SPEC and guises.BIBLIOGRAPHY and honest.HONEST  # importing them adds their proposals
REPOSITORY = Path(__file__).parents[3]
CLEAN = [proposal for proposal in PROPOSALS if proposal.verdict == "clean"]
SECRET = "SECRET"
# Programs that the verbs start themselves.
PROGRAMS = ("git", "ssh-keygen", "uname", "ldconfig", "gcc", "cc", "lscpu", "file")
# Exit codes that are answers of verbs that judge; 2 is a request that is wrong, and a crash is no answer at all. The other
# calls succeed, so that a chain that stops early is noticed.
ANSWERS = (0, 1, 3)
JUDGES = ("check", "validate", "run", "verify", "doctor")

# Runs in a process that has imported what the verbs need, and forks for each call, which is watched.
WORKER = """
import json, os, signal, sys, tempfile, traceback
import dvc.cli, mkdocs.__main__, pytest
import neuroledger.engine.run, neuroledger.engine.diff_since, neuroledger.report.site, neuroledger.data.gate.validate
import neuroledger.cli
from neuroledger.spec import registry
for kind in registry.FOLDERS:
    registry.discover(kind)
PROGRAMS, LIBRARIES = set(json.loads(sys.argv[1])), os.path.realpath(sys.argv[2])

def watch(root, log, allowed):
    def said(text):
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as file:
            file.write(text + "\\n")
    def hook(event, arguments):
        if event in ("os.system", "os.exec", "os.posix_spawn"):
            said(f"{event} {arguments[0]!r}")
        elif event == "subprocess.Popen":
            name = os.path.basename(os.fsdecode(arguments[0] or arguments[1][0]))
            if name not in PROGRAMS and not name.startswith("python"):
                said(f"started {arguments[1]!r}")
        elif event in ("socket.connect", "socket.getaddrinfo", "socket.bind"):
            if not (event != "socket.getaddrinfo" and isinstance(arguments[1], (str, bytes))):
                said(f"{event} {arguments[1:]!r}")
        elif event == "exec" and str(getattr(arguments[0], "co_filename", "")).startswith(root + os.sep):
            own = ("probe/", "docs/hooks.py", "docs/safe.py", "docs/theme/")  # the maintainers' own code
            if not arguments[0].co_filename.startswith(tuple(f"{root}/{place}" for place in own)):
                said(f"executed {arguments[0].co_filename}")
        elif event == "open" and isinstance(arguments[0], (str, bytes)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            writes = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
            if path.endswith("/SECRET") or path.startswith(("/etc/passwd", "/etc/shadow")):
                said(f"read {path}")
            elif writes and not path.startswith(allowed) and not path.endswith(".pyc") and "__pycache__" not in path:
                said(f"wrote {path}")
    sys.addaudithook(hook)

for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        code = 99
        try:
            signal.alarm(240)
            os.environ.update(job["settings"])
            tempfile.tempdir = job["settings"]["TMPDIR"]
            os.chdir(job["root"])
            for number in (1, 2):
                os.dup2(os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
            if job["program"] != "pytest":  # as a program of an environment, whose folder is not that of the call
                sys.path[:] = [one for one in sys.path if one and os.path.realpath(one) != job["root"]]
            root = job["root"]
            watch(root, job["log"], (root + os.sep, job["settings"]["TMPDIR"], "/dev/", "/proc/", job["output"], job["log"]))
            program, words = job["program"], job["words"]
            if program == "neuroledger":
                code = neuroledger.cli.main(["--root", root, *words])
            elif program == "dvc":
                code = dvc.cli.main(words)
            elif program == "mkdocs":
                code = mkdocs.__main__.cli.main(words, standalone_mode=False) or 0
            elif program == "pytest":
                sys.path.insert(0, root)
                code = int(pytest.main(words))
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

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
            scripted = address.startswith(("javascript:", "vbscript:", "data:text/html"))
            foreign = loaded and address.startswith(("http:", "https:", "//", "ftp:"))
            if name.startswith("on") or name in ("srcdoc", "formaction") or scripted or foreign:
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


def routine(root: Path, changed: set[str]) -> Iterator[tuple[str, list[str]]]:
    """The calls that the documents name, in their order: program and arguments."""
    yield "dvc", ["pull", "--quiet"]
    yield "pytest", ["--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", str(root), "probe"]
    yield "neuroledger", ["check"]
    yield "neuroledger", ["summary", "--since", "main"]
    yield "neuroledger", ["validate", "--force"]
    yield "neuroledger", ["run", "--suite", "lab"]
    yield "neuroledger", ["verify"]
    if records := sorted(
        path for path in changed if path.startswith("results/records/") and path.endswith(".json")
    ):
        yield "neuroledger", ["verify", "--recompute", *records]
    yield "neuroledger", ["leaderboard", "--suite", "lab"]
    yield "neuroledger", ["report", "--suite", "lab", "--out", "site"]
    yield "neuroledger", ["doctor"]
    if any(path.endswith(".md") for path in changed):
        yield "mkdocs", ["build", "--quiet", "--site-dir", str(root / "site-docs")]


class Worker:
    """A process with everything imported, which forks for each call."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = Path(tempfile.mkdtemp(dir=scratch))
        libraries = str(Path(sys.prefix))
        settings = {
            "PYTHONPATH": str(REPOSITORY / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        plain = {name: value for name, value in os.environ.items() if not name.startswith("NEUROLEDGER_")}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", WORKER, json.dumps(PROGRAMS), libraries],
            env=plain | settings, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def call(self, root: Path, program: str, words: list[str]) -> tuple[int, str, list[str]]:
        """Exit code, output, and what the canaries say."""
        output, log, temporary = (self._scratch / name for name in ("output", "log", "tmp"))
        temporary.mkdir(exist_ok=True)
        for file in (output, log):
            file.unlink(missing_ok=True)
        settings = {
            "TMPDIR": str(temporary),
            "HOME": str(temporary),
            "DVC_SITE_CACHE_DIR": str(temporary / "dvc"),
        }
        job: dict[str, Any] = {"root": str(root), "program": program, "words": words, "settings": settings}
        job |= {"output": str(output), "log": str(log)}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        said = log.read_text().splitlines() if log.exists() else []
        return code, output.read_text(errors="replace") if output.exists() else "", said

    def close(self) -> None:
        """End the process."""
        with self._process:  # closes the pipes
            self._process.kill()


def prepare(root: Path) -> None:
    """Create the base repository, with the settings of DVC, of the site, and a test that imports from the root."""
    lab = base(root, REPOSITORY)
    git(root, "checkout", "-q", "main")
    shutil.copytree(
        REPOSITORY / ".dvc", root / ".dvc", ignore=shutil.ignore_patterns("tmp", "cache", "config.local")
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
    (root / ".gitignore").write_text("results/scratch/\n/site/\n/site-docs/\n.cache/\nresults/validation/\n")
    assert lab.root == root
    git(root, "add", "-A")
    git(root, "commit", "-m", "settings")
    git(root, "checkout", "-q", "-B", "proposal")


def merged(proposal: Proposal, start: Path, scratch: Path) -> tuple[Path, set[str]]:
    """Merge a proposal into a clone, and return the clone and the paths that changed."""
    folder, clone = scratch / f"{proposal.name}-proposal", scratch / proposal.name
    shutil.copytree(start, folder, symlinks=True)
    proposal.change(Lab(folder))
    commit(Lab(folder))
    git(scratch, "clone", "-q", "--no-local", "--branch", "main", str(folder), str(clone))
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
    shutil.rmtree(folder)
    return clone, {path for path in listed.stdout.split("\0") if path}


def follow(proposal: Proposal, start: Path, scratch: Path, worker: Worker) -> list[str]:
    """Merge one proposal, call everything, and return the problems."""
    (scratch / SECRET).write_text("a secret of the machine\n")
    root, changed = merged(proposal, start, scratch)
    before = {path: path.read_bytes() for path in scratch.glob("*") if path.is_file()}
    problems = []
    for program, words in routine(root, changed):
        code, output, said = worker.call(root, program, words)
        name = " ".join([program, *words[:2]])
        problems += [f"{name}: {one}" for one in dict.fromkeys(said)]
        answers = ANSWERS if program == "neuroledger" and words[0] in JUDGES else (0,)
        if "Traceback" in output or code not in answers:
            problems.append(f"{name}: exit {code}: {output[-400:]}")
        if "\x1b" in output or "a secret of the machine" in output:
            problems.append(f"{name}: controls the terminal or tells a secret")
    texts = [root / path for path in sorted(changed) if (root / path).is_file()]
    brought = "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in texts)
    problems += [f"live: {one}" for folder in ("site", "site-docs") for one in live(root / folder, brought)]
    if (root / "CANARY").exists() or Path("CANARY").exists():
        problems.append("executed a command")
    if before != {path: path.read_bytes() for path in scratch.glob("*") if path.is_file()}:
        problems.append("wrote outside the clone")
    shutil.rmtree(root)
    return problems


def main(names: list[str]) -> int:
    """Follow all clean proposals, or those with these names; print the problems and the counts."""
    began, failed = time.monotonic(), 0
    chosen = [proposal for proposal in CLEAN if not names or proposal.name in names]
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place).resolve()
        start = scratch / "start"
        prepare(start)
        worker = Worker(scratch)
        for proposal in chosen:
            problems = follow(proposal, start, scratch, worker)
            failed += bool(problems)
            for problem in problems:
                sys.stdout.write(f"✗ {proposal.name}: {problem}\n")
        worker.close()
    took = time.monotonic() - began
    sys.stdout.write(
        f"{len(chosen)} clean proposals followed to the end: {failed} with problems, {took:.0f} s\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
