"""Try every proposal end to end, each in a process of its own with canaries, and print what was counted."""

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
from tests.hostile.proposals import guises, tricks
from tests.hostile.proposals.corpus import COMMAND, PROPOSALS, Proposal, base, commit

assert tricks.SPEC and guises.BIBLIOGRAPHY  # importing them adds their proposals
REPOSITORY = Path(__file__).parents[3]
EXITS = {"clean": 0, "needs a person": 1, "refused": 3}
# Installed in the reviewing process: whatever it executes, imports, unpickles, opens or connects to is told.
WATCH = """
import os, sys
def watch(event, arguments):
    root, log = os.environ["WATCHED"], os.environ["WATCH_LOG"]
    said = None
    if event in ("os.system", "os.exec", "os.posix_spawn", "os.fork", "pickle.find_class", "socket.connect",
            "socket.getaddrinfo"):
        said = event
    elif event == "subprocess.Popen" and os.path.basename(os.fsdecode(arguments[0])) != "git":
        said = f"{event} {arguments[0]}"
    elif event == "exec" and str(getattr(arguments[0], "co_filename", "")).startswith(root):
        said = f"execute {arguments[0].co_filename}"
    elif event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.path.abspath(os.fsdecode(arguments[0]))
        writes = isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if writes and path not in (log, os.devnull) and not path.endswith(".pyc") and "__pycache__" not in path:
            said = f"write {path}"
        elif path.startswith(("/etc/passwd", "/dev/zero")):
            said = f"read {path}"
    if said:
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as file:
            file.write(said + "\\n")
sys.addaudithook(watch)
"""


# A process that has reviewed once: each further review is a fork of it, which saves the imports.
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
                os.dup2(os.open(job["said"][number - 1], os.O_WRONLY | os.O_CREAT), number)
            code = main(job["words"])
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Warm:
    """A process that reviews one proposal after the other, each in a fork of its own."""

    def __init__(self, scratch: Path, start: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(dir=scratch))
        settings = _settings(start, self._folder / "log", scratch / "hook")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", WARM], env=os.environ | settings, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._send(_words(start))

    def _send(self, said: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()

    def review(self, root: Path, settings: dict[str, str]) -> tuple[int, str, str]:
        """Exit code, output and errors of the review of ``root``."""
        said = [self._folder / "out", self._folder / "err"]
        for path in said:
            path.unlink(missing_ok=True)
        job = {"root": str(root), "settings": settings, "words": _words(root), "said": [*map(str, said)]}
        self._send(job)
        assert self._process.stdout is not None
        code = int(self._process.stdout.readline())
        return code, *(path.read_text(errors="replace") for path in said)  # type: ignore[return-value]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def _words(root: Path) -> list[str]:
    return ["check", "--since", "main", "--root", str(root), "--json"]


def _settings(root: Path, log: Path, hook: Path) -> dict[str, str]:
    paths = [str(hook), str(REPOSITORY / "src")]
    settings = {"WATCHED": str(root), "WATCH_LOG": str(log), "PYTHONPATH": os.pathsep.join(paths)}
    return settings | {"PYTHONDONTWRITEBYTECODE": "1"}


def _begins_python(root: Path) -> bool:
    """Whether files of a proposal could be run by the start of Python itself."""
    return any([*root.glob("*.py"), *root.glob("*.pth"), *root.glob("*-info"), *root.glob("src/*.pth")])


def tried(one: Proposal, start: Path, scratch: Path, warm: Warm | None = None) -> list[str]:
    """What went wrong with one proposal; nothing if it went as it must."""
    root = scratch / one.name
    shutil.copytree(start, root, symlinks=True)
    one.change(Lab(root))
    commit(Lab(root))
    (root / "CANARY").unlink(missing_ok=True)
    log = scratch / f"{one.name}.log"
    settings = _settings(root, log, scratch / "hook")
    if warm is None or _begins_python(root):
        done = subprocess.run(
            [sys.executable, "-P", "-m", "neuroledger", *_words(root)], cwd=root, env=os.environ | settings,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        code, out, err = warm.review(root, settings)
    wrong = []
    if code != EXITS[one.verdict]:
        wrong.append(f"exit {code}, must be {EXITS[one.verdict]}: {err[-300:]}")
    else:
        told = json.loads(out)
        if one.code and one.code not in {finding["code"] for finding in told["findings"]}:
            wrong.append(f"no {one.code}")
    if "Traceback" in err:
        wrong.append("traceback")
    if (root / "CANARY").exists() or Path("CANARY").exists():
        wrong.append(f"executed: {COMMAND}")
    wrong += log.read_text().splitlines() if log.exists() else []
    shutil.rmtree(root)
    return wrong


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
        free: SimpleQueue[Warm] = SimpleQueue()
        held = [Warm(scratch, start) for _ in range(count + 1)]
        for warm in held:
            free.put(warm)

        def attempt(one: Proposal) -> list[str]:
            warm = free.get()
            try:
                return tried(one, start, scratch, warm)
            finally:
                free.put(warm)

        with ThreadPoolExecutor(len(held)) as pool:
            for one, wrong in zip(PROPOSALS, pool.map(attempt, PROPOSALS), strict=True):
                failed += bool(wrong)
                for words in wrong:
                    sys.stdout.write(f"✗ {one.name}: {words}\n")
        for warm in held:
            warm.close()
    counted = {verdict: sum(one.verdict == verdict for one in PROPOSALS) for verdict in EXITS}
    told = ", ".join(f"{number} {verdict}" for verdict, number in counted.items())
    sys.stdout.write(
        f"{len(PROPOSALS)} proposals ({told}): {failed} not as expected, {time.monotonic() - began:.0f} s\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
