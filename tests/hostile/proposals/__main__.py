"""Test every proposal end to end, each in a separate process with canaries, and print the counts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.engine.lab import Lab
from tests.hostile.proposals import guises, honest, tricks
from tests.hostile.proposals.corpus import COMMAND, PROPOSALS, Proposal, base, commit

assert (
    tricks.SPEC and guises.BIBLIOGRAPHY and honest.HONEST
)  # importing them adds their proposals
REPOSITORY = Path(__file__).parents[3]
EXITS = {"clean": 0, "needs a person": 1, "refused": 3}
# Installed in the reviewing process: logs everything it executes, imports, unpickles, opens for writing or connects to.
WATCH = """
import os, sys
def watch(event, arguments):
    root, log = os.environ["WATCHED"], os.environ["WATCH_LOG"]
    said = None
    if event in ("os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.find_class", "socket.connect",
            "socket.getaddrinfo"):
        said = event
    elif event == "subprocess.Popen" and os.path.basename(os.fsdecode(arguments[0])) not in ("git", "ssh-keygen"):
        said = f"{event} {arguments[0]}"
    elif event == "exec" and str(getattr(arguments[0], "co_filename", "")).startswith(root):
        said = f"execute {arguments[0].co_filename}"
    elif event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.path.abspath(os.fsdecode(arguments[0]))
        writes = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        own = path in (log, os.devnull) or path.endswith((".pyc", "/.cache/neuroledger/.gitignore")) or "__pycache__" in path
        if writes and not own and "/neuroledger-signature-" not in path:
            said = f"write {path}"
        elif path.startswith(("/etc/passwd", "/dev/zero")):
            said = f"read {path}"
    if said:
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as file:
            file.write(said + "\\n")
sys.addaudithook(watch)
"""


# A process that has reviewed once and forks for each further review, which saves the imports.
WARM = """
import contextlib, io, json, os, signal, sys, traceback
from neuroledger.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(json.loads(sys.stdin.readline()))
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(120)
            os.environ.update(job["settings"])
            os.chdir(job["root"])
            for number in (1, 2):
                os.dup2(os.open(job["output"][number - 1], os.O_WRONLY | os.O_CREAT), number)
            code = main(job["words"])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class ReviewProcess:
    """A process that reviews proposals, each in a fork of itself."""

    def __init__(self, scratch: Path, start: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=scratch))
        settings = _settings(start, self._folder / "log", scratch / "hook")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", WARM],
            env=os.environ | settings,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._send(_words(start))

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def review(self, root: Path, settings: dict[str, str]) -> tuple[int, str, str]:
        """Exit code, output and errors of the review of ``root``."""
        paths = [self._folder / "out", self._folder / "err"]
        for path in paths:
            path.unlink(missing_ok=True)
        job = {
            "root": str(root),
            "settings": settings,
            "words": _words(root),
            "output": [*map(str, paths)],
        }
        self._send(job)
        assert self._process.stdout is not None
        code = int(self._process.stdout.readline())
        return code, *(path.read_text(errors="replace") for path in paths)  # type: ignore[return-value]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def _words(root: Path) -> list[str]:
    return ["check", "--since", "main", "--root", str(root), "--json"]


def _settings(root: Path, log: Path, hook: Path) -> dict[str, str]:
    paths = [str(hook), str(REPOSITORY / "src")]
    settings = {
        "WATCHED": str(root),
        "WATCH_LOG": str(log),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    return settings | {"PYTHONDONTWRITEBYTECODE": "1"}


def _begins_python(root: Path) -> bool:
    """Whether Python could run files of the proposal at its start."""
    return any(
        [
            *root.glob("*.py"),
            *root.glob("*.pth"),
            *root.glob("*-info"),
            *root.glob("src/*.pth"),
        ]
    )


def run_proposal(
    proposal: Proposal, start: Path, scratch: Path, warm: ReviewProcess | None = None
) -> list[str]:
    """Review one proposal, and return the problems."""
    root = scratch / proposal.name
    shutil.copytree(start, root, symlinks=True)
    proposal.change(Lab(root))
    commit(Lab(root))
    (root / "CANARY").unlink(missing_ok=True)
    log = scratch / f"{proposal.name}.log"
    settings = _settings(root, log, scratch / "hook")
    if warm is None or _begins_python(root):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "neuroledger", *_words(root)],
            cwd=root,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        code, out, err = warm.review(root, settings)
    problems = []
    if code != EXITS[proposal.verdict]:
        problems.append(f"exit {code}, must be {EXITS[proposal.verdict]}: {err[-300:]}")
    else:
        report = json.loads(out)
        if proposal.code and proposal.code not in {
            finding["code"] for finding in report["findings"]
        }:
            problems.append(f"no {proposal.code}")
    if "Traceback" in err:
        problems.append("traceback")
    if (root / "CANARY").exists() or Path("CANARY").exists():
        problems.append(f"executed: {COMMAND}")
    problems += log.read_text().splitlines() if log.exists() else []
    shutil.rmtree(root)
    return problems


def main() -> int:
    began = time.monotonic()
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        scratch = Path(place).resolve()
        (scratch / "hook").mkdir()
        (scratch / "hook" / "sitecustomize.py").write_text(WATCH)
        start = scratch / "start"
        base(start, REPOSITORY)
        count = os.cpu_count() or 1
        free: SimpleQueue[ReviewProcess] = SimpleQueue()
        reviewers = [ReviewProcess(scratch, start) for _ in range(count + 1)]
        for warm in reviewers:
            free.put(warm)

        def attempt(proposal: Proposal) -> list[str]:
            warm = free.get()
            try:
                return run_proposal(proposal, start, scratch, warm)
            finally:
                free.put(warm)

        with ThreadPoolExecutor(len(reviewers)) as pool:
            for proposal, problems in zip(
                PROPOSALS, pool.map(attempt, PROPOSALS), strict=True
            ):
                failed += bool(problems)
                for problem in problems:
                    sys.stdout.write(f"✗ {proposal.name}: {problem}\n")
        for warm in reviewers:
            warm.close()
    counted = {
        verdict: sum(proposal.verdict == verdict for proposal in PROPOSALS)
        for verdict in EXITS
    }
    summary = ", ".join(f"{number} {verdict}" for verdict, number in counted.items())
    sys.stdout.write(
        f"{len(PROPOSALS)} proposals ({summary}): {failed} not as expected, {time.monotonic() - began:.0f} s\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
