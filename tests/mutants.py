"""Mutants: single changes of the kernel that the tests must notice.

    python -m tests.mutants                                    # every mutant of the kernel: hours
    python -m tests.mutants --only 'src/neuroledger/stats/*'   # of some modules
    python -m tests.mutants --every 20                         # of each function, mutants 1, 21, 41, …
    python -m tests.mutants --sample 300                       # a random sample of all mutants

A copy of the repository is mutated by mutmut in a temporary folder; nothing is written here. The share of mutants that
some test notices is printed by module, and the exit status is 1 where it is below ``--at-least``. Of a random sample,
the 95 % interval of the share of all mutants is printed too. Decorated functions have no mutants: mutmut skips them.
"""

from __future__ import annotations

import argparse
import math
import os
import random
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
# Mutated functions take more steps than these tests allow.
COUNTING = (
    "tests/spec/test_lists.py::test_every_row_of_a_long_list_costs_the_same_small_number_of_steps",
)
LARGEST = 400  # no function has more mutants
NOTICED = frozenset(
    {"killed", "timeout", "suspicious", "segfault", "caught by type check"}
)
RESULT = re.compile(r"^\s+(neuroledger\.\S+)\.\S+__mutmut_\d+: (.+)$", re.MULTILINE)


def main() -> int:
    """Mutate, run the tests, print the score."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="GLOB",
        help="modules to mutate; default: the kernel",
    )
    parser.add_argument(
        "--tests",
        action="append",
        metavar="PATH",
        help="tests to run; default: those of the kernel",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="every N-th mutant of each function",
    )
    which.add_argument(
        "--sample", type=int, metavar="N", help="a random sample of N of all mutants"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the random sample (%(default)s)"
    )
    parser.add_argument(
        "--at-least",
        type=float,
        default=0.85,
        metavar="SHARE",
        help="exit 1 below it (%(default)s)",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--survivors", action="store_true", help="list the mutants that no test noticed"
    )
    options = parser.parse_args()
    only = options.only or [f"src/neuroledger/{name}/*" for name in KERNEL]
    tests = options.tests or [f"tests/{name}" for name in TESTS]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copied(Path(folder), only, tests)
        wanted = []
        if options.sample:
            wanted = sample(
                generated(Path(folder), options.jobs), options.sample, options.seed
            )
        elif options.every > 1:
            wanted = [
                f"*__mutmut_{number}" for number in range(1, LARGEST, options.every)
            ]
        done = mutmut(Path(folder), "run", "--max-children", str(options.jobs), *wanted)
        if done.returncode:
            print((done.stdout + done.stderr)[-4000:])
            return 2
        listed = results(Path(folder))
    return scored(
        listed,
        options.at_least,
        survivors=options.survivors,
        sampled=bool(options.sample),
    )


def copied(folder: Path, only: list[str], tests: list[str]) -> None:
    """The tracked files and the data of the repository in ``folder``, with what mutmut is to do."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    data = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "data").rglob("*")
        if path.is_file()
    ]
    for name in {*filter(None, tracked.split("\0")), *data}:
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    others = sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in ("src", "pyproject.toml")
    )
    settings = {
        "source_paths": ["src/"],
        "only_mutate": only,
        "pytest_add_cli_args_test_selection": tests,
        "pytest_add_cli_args": [
            "-x",
            "-p",
            "no:cacheprovider",
            *(f"--deselect={test}" for test in COUNTING),
        ],
        "also_copy": others,
        "timeout_multiplier": 5.0,  # times the tests' usual duration; a mutant that takes longer never ends
        "timeout_constant": 5.0,
    }
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(
            "\n[tool.mutmut]\n"
            + "".join(f"{name} = {value!r}\n" for name, value in settings.items())
        )
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)


def mutmut(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command mutmut run in ``folder``."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )


def results(folder: Path) -> str:
    """One line for each mutant in ``folder``: its name and what became of it."""
    listed = mutmut(folder, "results", "--all", "true")
    listed.check_returncode()
    return listed.stdout


def generated(folder: Path, jobs: int) -> list[str]:
    """Names of all mutants, generated in ``folder`` by a run of none; what fails in it fails again in the next."""
    mutmut(folder, "run", "--max-children", str(jobs), "none")
    return [line.strip().partition(": ")[0] for line in results(folder).splitlines()]


def sample(names: list[str], size: int, seed: int) -> list[str]:
    """``size`` of ``names``, each as likely as any other; a larger sample of the same seed contains a smaller one."""
    return random.Random(seed).sample(sorted(names), len(names))[:size]


def interval(killed: int, tried: int) -> tuple[float, float]:
    """Wilson's 95 % interval of the share of all mutants, from a random sample of them."""
    square = 1.96**2
    middle = (killed + square / 2) / (tried + square)
    half = (
        math.sqrt(killed * (tried - killed) / max(1, tried) + square / 4)
        * 1.96
        / (tried + square)
    )
    return middle - half, middle + half


def scored(listed: str, at_least: float, *, survivors: bool, sampled: bool) -> int:
    """Print killed of tried mutants by module; 0 where their share is high enough."""
    tried, killed = Counter[str](), Counter[str]()
    for module, status in RESULT.findall(listed):
        if status == "not checked":
            continue
        tried[module] += 1
        killed[module] += status in NOTICED
    for module in sorted(tried):
        print(
            f"{killed[module] / tried[module]:7.1%}  {killed[module]:5} of {tried[module]:5}  {module}"
        )
    if survivors:
        for line in listed.splitlines():
            if line.endswith(("survived", "no tests")):
                print(line)
    share = killed.total() / max(1, tried.total())
    print(f"{share:7.1%}  {killed.total():5} of {tried.total():5}  all")
    if sampled:
        low, high = interval(killed.total(), tried.total())
        print(
            f"{low:7.1%} to {high:.1%}: the 95 % interval of the share of all mutants"
        )
    return int(share < at_least)


if __name__ == "__main__":
    raise SystemExit(main())
