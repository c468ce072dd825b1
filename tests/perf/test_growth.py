"""The time of a command is that of all its processes, also of those that nobody waits for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BURNT = 1.0
"""Seconds of processor time."""
SERVER = """
import os
from neuroledger.engine.executors.processes import start_method
with start_method(["burning"], {}):
    os._exit(0)
"""
BURNING = f"""
import time
end = time.process_time() + {BURNT}
while time.process_time() < end:
    pass
"""
MEASURED = """
import sys
from pathlib import Path
from perf.growth import time_of
print(time_of(Path(sys.argv[1]), sys.argv[2]), time_of(Path(sys.argv[1]), sys.argv[2].replace("burning", "string")))
"""


def test_the_time_of_a_server_is_counted_although_its_caller_does_not_wait(
    tmp_path: Path,
) -> None:
    (tmp_path / "burning.py").write_text(BURNING)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path), SERVER],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    burning, idle = map(float, done.stdout.split())
    assert BURNT / 2 < burning - idle < 2 * BURNT
