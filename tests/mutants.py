"""Mutants: single changes of the kernel that the tests must notice.

    python -m tests.mutants                                    # every mutant of the kernel: hours
    python -m tests.mutants --only 'src/neuroledger/stats/*'   # of some modules
    python -m tests.mutants --every 20                         # of each function, mutants 1, 21, 41, …

A copy of the repository is mutated by mutmut in a temporary folder; nothing is written here. The share of mutants that
some test notices is printed by module, and the exit status is 1 where it is below ``--at-least``.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ("spec", "store", "data", "stats", "models", "engine", "report")
TESTS = (
    "spec",
    "store",
    "data",
    "stats",
    "models",
    "engine",
    "report",
    "cli",
    "families/decoding",
    "families/alignment",
)
LARGEST = 400  # no function has more mutants
NOTICED = frozenset({"killed", "timeout", "suspicious", "segfault", "caught by type check"})
RESULT = re.compile(r"^\s+(neuroledger\.\S+)\.\S+__mutmut_\d+: (.+)$", re.MULTILINE)


def main() -> int:
    """Mutate, run the tests, print the score."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", action="append", metavar="GLOB", help="modules to mutate; default: the kernel"
    )
    parser.add_argument(
        "--tests", action="append", metavar="PATH", help="tests to run; default: those of the kernel"
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="every N-th mutant of each function"
    )
    parser.add_argument(
        "--at-least", type=float, default=0.85, metavar="SHARE", help="exit 1 below it (%(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--survivors", action="store_true", help="list the mutants that no test noticed")
    options = parser.parse_args()
    only = options.only or [f"src/neuroledger/{name}/*" for name in KERNEL]
    tests = options.tests or [f"tests/{name}" for name in TESTS]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copied(Path(folder), only, tests)
        wanted = (
            [f"*__mutmut_{number}" for number in range(1, LARGEST, options.every)]
            if options.every > 1
            else []
        )
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(options.jobs), *wanted]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            print((done.stdout + done.stderr)[-4000:])
            return 2
        listing = [sys.executable, "-m", "mutmut", "results", "--all", "true"]
        listed = subprocess.run(listing, cwd=folder, capture_output=True, text=True, check=True).stdout
    return scored(listed, options.at_least, survivors=options.survivors)


def copied(folder: Path, only: list[str], tests: list[str]) -> None:
    """The tracked files and the data of the repository in ``folder``, with what mutmut is to do."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    data = [str(path.relative_to(ROOT)) for path in (ROOT / "data").rglob("*") if path.is_file()]
    for name in {*filter(None, tracked.split("\0")), *data}:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    others = sorted(path.name for path in folder.iterdir() if path.name not in ("src", "pyproject.toml"))
    settings = {
        "source_paths": ["src/"],
        "only_mutate": only,
        "pytest_add_cli_args_test_selection": tests,
        "pytest_add_cli_args": ["-x", "-p", "no:cacheprovider"],
        "also_copy": others,
    }
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n[tool.mutmut]\n" + "".join(f"{name} = {value!r}\n" for name, value in settings.items()))
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)


def interval(killed: int, tried: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share: a part of the mutants tells about all of them no more than that."""
    square = 1.96**2
    middle = (killed + square / 2) / (tried + square)
    half = math.sqrt(killed * (tried - killed) / max(1, tried) + square / 4) * 1.96 / (tried + square)
    return middle - half, middle + half


def scored(listed: str, at_least: float, *, survivors: bool) -> int:
    """Print killed of tried mutants by module; 0 where their share is high enough."""
    tried, killed = Counter[str](), Counter[str]()
    for module, status in RESULT.findall(listed):
        if status == "not checked":
            continue
        tried[module] += 1
        killed[module] += status in NOTICED
    for module in sorted(tried):
        print(f"{killed[module] / tried[module]:7.1%}  {killed[module]:5} of {tried[module]:5}  {module}")
    if survivors:
        print(*(line for line in listed.splitlines() if line.endswith(("survived", "no tests"))), sep="\n")
    share = killed.total() / max(1, tried.total())
    low, high = interval(killed.total(), tried.total())
    print(f"{share:7.1%}  {killed.total():5} of {tried.total():5}  all; of a sample: {low:.0%} to {high:.0%}")
    return int(share < at_least)


if __name__ == "__main__":
    raise SystemExit(main())
