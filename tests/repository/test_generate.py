"""The documented command gives the pinned bytes, as often as it is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neuroledger.data.assembly import read


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _generate(repository: Path, folder: Path) -> dict[str, bytes]:
    subprocess.run(
        [sys.executable, "-m", "data.generate", str(folder)],
        cwd=repository,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    return _tree(folder)


@pytest.mark.slow
def test_the_command_builds_every_pinned_file_again(repository, clone, tmp_path):
    """The pinned bytes; on a processor that rounds otherwise, the same bytes twice and the pinned values closely."""
    pytest.importorskip("torch")
    made, pinned = _generate(repository, tmp_path / "one"), _tree(clone / "data")
    assert set(pinned) <= set(made)
    others = sorted(name for name in pinned if made[name] != pinned[name])
    if not others:
        return
    assert _generate(repository, tmp_path / "two") == made
    for name in others:
        assert name.endswith((".nc", ".safetensors")), name
        if name.endswith(".nc"):
            one, two = read(tmp_path / "one" / name), read(clone / "data" / name)
            np.testing.assert_allclose(one.values, two.values, atol=2e-4)
