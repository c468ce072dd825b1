"""The scripts of continuous integration beside a proposal; programs that they call are calls of a watched worker."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.hostile.proposals.watched import Answer, Worker

__all__ = ["Scripts"]

SECONDS = 300
# Stands for a program of the environment: asks for a call of it, and ends as that does.
STANDS_FOR = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    line.sendall(json.dumps([{program!r}, os.getcwd(), sys.argv[1:]]).encode() + b"\\n")
    code, output = json.loads(line.makefile().readline())
sys.stdout.write(output)
sys.exit(code)
"""


class Scripts:
    """A checkout of the trusted branch (``folder``), whose scripts are called."""

    def __init__(self, worker: Worker, scratch: Path, repository: Path) -> None:
        self._worker = worker
        self.folder = scratch / "trusted"
        programs = self.folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        shutil.copytree(repository / ".ci", self.folder / ".ci")
        address = str(scratch / "asked")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(address)
        self._socket.listen()
        self._socket.settimeout(0.1)
        for program in ("neuroledger", "dvc"):
            path = programs / program
            path.write_text(
                STANDS_FOR.format(
                    python=sys.executable, address=address, program=program
                )
            )
            path.chmod(0o755)
        python = programs / "python"
        python.write_text(
            f'#!/bin/sh\nPYTHONPATH={repository / "src"} exec {sys.executable} "$@"\n'
        )
        python.chmod(0o755)

    def call(self, script: str, base: str, proposal: Path) -> Answer:
        """Exit code and output of a script for a proposal, and what its programs did."""
        told, said = self.folder / "told", self.folder / "said"
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("NEUROLEDGER_")
        }
        with said.open("w") as output:
            process = subprocess.Popen(
                [self.folder / ".ci" / script, base, proposal],
                cwd=self.folder,
                env=plain
                | {"GITHUB_OUTPUT": str(told), "PYTHONDONTWRITEBYTECODE": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        seen: list[str] = []
        for line in self._asked(process):
            with line, line.makefile("rw") as file:
                program, folder, words = json.loads(file.readline())
                answer = self._worker.call(proposal, program, words, at=Path(folder))
                seen += answer.seen
                file.write(json.dumps([answer.code, answer.output]) + "\n")
        return Answer(process.returncode, said.read_text(errors="replace"), seen)

    def _asked(self, process: subprocess.Popen[Any]) -> Iterator[socket.socket]:
        """Connections of programs that the script calls, until it ends."""
        while process.poll() is None:
            try:
                line, _ = self._socket.accept()
            except TimeoutError:
                continue
            line.settimeout(SECONDS)
            yield line

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
