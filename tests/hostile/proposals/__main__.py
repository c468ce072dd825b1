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

from tests.engine.lab import Lab
from tests.hostile.proposals import tricks
from tests.hostile.proposals.corpus import COMMAND, PROPOSALS, Proposal, base, commit

assert tricks.SPEC  # importing it adds its proposals
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


def tried(one: Proposal, start: Path, scratch: Path) -> list[str]:
    """What went wrong with one proposal; nothing if it went as it must."""
    root = scratch / one.name
    shutil.copytree(start, root, symlinks=True)
    one.change(Lab(root))
    commit(Lab(root))
    (root / "CANARY").unlink(missing_ok=True)
    hook = scratch / "hook"
    log = scratch / f"{one.name}.log"
    paths = [str(hook), str(REPOSITORY / "src")]
    settings = {"WATCHED": str(root), "WATCH_LOG": str(log), "PYTHONPATH": os.pathsep.join(paths)}
    settings["PYTHONDONTWRITEBYTECODE"] = "1"
    words = ["-P", "-m", "neuroledger", "check", "--since", "main", "--root", str(root), "--json"]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=root,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    wrong = []
    if done.returncode != EXITS[one.verdict]:
        wrong.append(f"exit {done.returncode}, must be {EXITS[one.verdict]}: {done.stderr[-300:]}")
    else:
        told = json.loads(done.stdout)
        if one.code and one.code not in {finding["code"] for finding in told["findings"]}:
            wrong.append(f"no {one.code}")
    if "Traceback" in done.stderr:
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
        with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
            for one, wrong in zip(
                PROPOSALS, pool.map(lambda one: tried(one, start, scratch), PROPOSALS), strict=True
            ):
                failed += bool(wrong)
                for words in wrong:
                    sys.stdout.write(f"✗ {one.name}: {words}\n")
    count = {verdict: sum(one.verdict == verdict for one in PROPOSALS) for verdict in EXITS}
    told = ", ".join(f"{number} {verdict}" for verdict, number in count.items())
    sys.stdout.write(
        f"{len(PROPOSALS)} proposals ({told}): {failed} not as expected, {time.monotonic() - began:.0f} s\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
