"""The documented command gives the pinned bytes, as often as it is run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def _tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_generator_is_deterministic_and_gives_the_pinned_bytes(repository, clone, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name in ("one", "two"):
        subprocess.run(
            [sys.executable, "-m", "data.generate", str(tmp_path / name)],
            cwd=repository,
            env=environment,
            check=True,
            capture_output=True,
        )
    one, two = _tree(tmp_path / "one"), _tree(tmp_path / "two")
    assert one == two
    pulled = _tree(clone / "data")
    differing = [name for name in pulled if name in one and pulled[name] != one[name]]
    assert differing == []
