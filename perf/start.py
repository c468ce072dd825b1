"""``python -m perf.start``: processor time and memory of commands in this repository, with nothing remembered and again."""

from __future__ import annotations

import os
import tempfile
import time

from perf.executors import STORE
from perf.growth import REPOSITORY, Cost, cost

COMMANDS = (
    ("list", "benchmarks"),
    ("show", "Digits.simulated.IT-ridge"),
    ("check",),
    ("check", "specs/benchmarks"),
    ("run", "--dry-run"),
    ("leaderboard",),
    ("verify",),
)
SPEC = REPOSITORY / "specs" / "models" / "noise.yaml"
SETTLED_S = 2.5
"""Age of a file in s from which its state is remembered."""


def _touched(words: tuple[str, ...]) -> Cost:
    """Run a command after a spec was written again."""
    SPEC.touch()
    time.sleep(SETTLED_S)
    return cost(REPOSITORY, *words)


def main() -> None:
    """Run each command three times, and print what it took."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print("| command | first | again | a spec was touched |")
    print("|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory(prefix="store-") as store:
        os.environ[STORE] = store
        for words in COMMANDS:
            runs = [cost(REPOSITORY, *words) for _ in range(2)]
            runs.append(_touched(words))
            cells = [f"{each.seconds:.1f} s, {each.megabytes:.0f} MB" for each in runs]
            print(f"| `{' '.join(words)}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
