"""Calls of programs in forks of a process that has imported what they need; each call is watched by an audit hook.

Run as a program, this file reads jobs from its input, one a line: the folder that the call may write in, its program, words
and settings, and the files for its output and for what the hook sees.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["Answer", "Worker"]

SECONDS: Final = 240
# Programs that the verbs start themselves.
PROGRAMS: Final = (
    "git",
    "ssh-keygen",
    "uname",
    "ldconfig",
    "gcc",
    "cc",
    "lscpu",
    "file",
)
# Folders of the root with the maintainers' own code.
OWN_CODE: Final = ("probe/", "docs/hooks.py", "docs/safe.py", "docs/theme/")


class Answer(NamedTuple):
    """Exit code and output of a call, and what the hook saw."""

    code: int
    output: str
    seen: list[str]


class Worker:
    """The process with everything imported."""

    def __init__(self, scratch: Path, source: Path) -> None:
        self._scratch = Path(tempfile.mkdtemp(dir=scratch))
        settings = {
            "PYTHONPATH": str(source),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("NEUROLEDGER_")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            env=plain | settings,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def call(
        self,
        root: Path,
        program: str,
        words: Sequence[str],
        *,
        at: Path | None = None,
        learns: bool = False,
    ) -> Answer:
        """Call a program, which may write below ``root``, in the folder ``at`` (default: ``root``).

        After a call that ``learns``, the process imports what that call imported, so that later calls need not.
        """
        output, log, temporary = (
            self._scratch / name for name in ("output", "log", "tmp")
        )
        temporary.mkdir(exist_ok=True)
        for file in (output, log):
            file.unlink(missing_ok=True)
        settings = {
            "TMPDIR": str(temporary),
            "HOME": str(temporary),
            "DVC_SITE_CACHE_DIR": str(temporary / "dvc"),
        }
        job: dict[str, Any] = {
            "root": str(root),
            "at": str(at or root),
            "program": program,
            "words": [*words],
        }
        job |= {
            "settings": settings,
            "output": str(output),
            "log": str(log),
            "learns": learns,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        seen = log.read_text().splitlines() if log.exists() else []
        return Answer(
            code, output.read_text(errors="replace") if output.exists() else "", seen
        )

    def close(self) -> None:
        """End the process."""
        with self._process:  # closes the pipes
            self._process.kill()


def _watch(root: str, log: str, allowed: tuple[str, ...]) -> None:
    """Log what this process executes of ``root``, starts, connects to, writes outside ``allowed``, and reads of secrets."""

    def see(text: str) -> None:
        with os.fdopen(
            os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a"
        ) as file:
            file.write(text + "\n")

    def starts(event: str, arguments: Any) -> None:
        if event != "subprocess.Popen":
            see(f"{event} {arguments[0]!r}")
            return
        name = Path(os.fsdecode(arguments[0] or arguments[1][0])).name
        if name not in PROGRAMS and not name.startswith("python"):
            see(f"started {arguments[1]!r}")

    def connects(event: str, arguments: Any) -> None:
        local = event != "socket.getaddrinfo" and isinstance(arguments[1], (str, bytes))
        if not local:
            see(f"{event} {arguments[1:]!r}")

    def executes(_: str, arguments: Any) -> None:
        name = str(getattr(arguments[0], "co_filename", ""))
        if name.startswith(root + os.sep) and not name.startswith(
            tuple(f"{root}/{own}" for own in OWN_CODE)
        ):
            see(f"executed {name}")

    def opens(_: str, arguments: Any) -> None:
        if not isinstance(arguments[0], (str, bytes)):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        writes = isinstance(arguments[1], str) and bool(set(arguments[1]) & set("wax+"))
        compiled = path.endswith(".pyc") or "__pycache__" in path
        if path.endswith("/SECRET") or path.startswith(("/etc/passwd", "/etc/shadow")):
            see(f"read {path}")
        elif writes and not path.startswith(allowed) and not compiled:
            see(f"wrote {path}")

    watched: dict[str, Callable[[str, Any], None]] = {"exec": executes, "open": opens}
    watched |= dict.fromkeys(
        ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen"), starts
    )
    watched |= dict.fromkeys(
        ("socket.connect", "socket.getaddrinfo", "socket.bind"), connects
    )

    def hook(event: str, arguments: Any) -> None:
        if event in watched:
            watched[event](event, arguments)

    sys.addaudithook(hook)


def _called(program: str, words: list[str], root: str) -> int:
    """Call the program as its console script does, and return its exit code."""
    if (
        program != "pytest"
    ):  # as a program of an environment, whose folder is not that of the call
        sys.path[:] = [one for one in sys.path if one and os.path.realpath(one) != root]
    if program == "neuroledger":
        from neuroledger.cli import main

        return main(words)
    if program == "dvc":
        from dvc.cli import main as dvc

        return int(dvc(words))
    if program == "mkdocs":
        from mkdocs.__main__ import cli

        return cli.main(words, standalone_mode=False) or 0
    import pytest

    sys.path.insert(0, root)
    return int(pytest.main(words))


def _child(job: dict[str, Any]) -> None:
    """Do a job, and end."""
    code, root, known = 99, job["root"], set(sys.modules)
    try:
        signal.alarm(SECONDS)
        os.environ.update(job["settings"])
        temporary = tempfile.tempdir = job["settings"]["TMPDIR"]
        os.chdir(job["at"])
        for number in (1, 2):
            os.dup2(
                os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), number
            )
        _watch(
            root,
            job["log"],
            (root + os.sep, temporary, "/dev/", "/proc/", job["output"], job["log"]),
        )
        code = _called(job["program"], job["words"], root)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if job["learns"]:
            Path(job["log"]).write_text(
                "\n".join(name for name in sys.modules if name not in known)
            )
        os._exit(code)


def _learn(names: list[str]) -> None:
    """Import modules of the environment; those of the watched folder are not found."""
    for name in names:
        with contextlib.suppress(Exception):
            if importlib.util.find_spec(name.partition(".")[0]) is not None:
                importlib.import_module(name)


def _serve() -> None:
    """Do the jobs of the input, and answer each with an exit code."""
    from neuroledger.engine.check import schema_texts
    from neuroledger.spec import registry

    for kind in registry.FOLDERS:
        registry.discover(kind)
    for plugins in (False, True):
        schema_texts(
            plugins=plugins
        )  # describes the installed components, whose descriptions are remembered
    for line in sys.stdin:
        job = json.loads(line)
        gc.freeze()  # a collection in the fork would copy the memory of this process
        child = os.fork()
        if not child:
            _child(job)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if job["learns"]:
            log = Path(job["log"])
            _learn(log.read_text().splitlines())
            log.unlink()
        print(code, flush=True)


if __name__ == "__main__":
    _serve()
