"""Test that the documented command builds the pinned bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neuroledger.data.assembly import read
from neuroledger.data.integrity import folder_of
from neuroledger.spec.catalog import Catalog


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _generate(repository: Path, folder: Path) -> dict[str, bytes]:
    for command in ("tools.generate", "tools.generate.receptor"):
        subprocess.run(
            [sys.executable, "-m", command, str(folder)],
            cwd=repository,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
        )
    return _tree(folder)


def _from_elsewhere(catalog: Catalog) -> set[str]:
    """Files in ``data`` whose specs state a URL, or that were recorded; no generator builds them."""
    found = set()
    for kind, id, _ in catalog.files():
        if kind in ("datasets", "models"):
            spec = catalog.entry(kind, id).spec
            folder = folder_of(catalog.root, kind, id).relative_to(
                catalog.root / "data"
            )
            pins = spec.files if kind == "datasets" else spec.weights
            recorded = kind == "datasets" and not spec.simulated
            found |= {
                str(folder / name) for name, pin in pins.items() if pin.url or recorded
            }
    return found


@pytest.mark.slow
def test_the_command_builds_every_pinned_file_again(
    repository, clone, catalog, tmp_path
):
    """All files that are not published elsewhere must have the pinned bytes.

    On a processor with other rounding, two runs must have the same bytes, and values close to the pinned ones.
    """
    pytest.importorskip("torch")
    made, pinned = _generate(repository, tmp_path / "one"), _tree(clone / "data")
    others = _from_elsewhere(catalog)
    assert pinned.keys() & others and not made.keys() & others
    pinned = {name: held for name, held in pinned.items() if name not in others}
    assert pinned.keys() <= made.keys()
    others = sorted(name for name in pinned if made[name] != pinned[name])
    if not others:
        return
    assert _generate(repository, tmp_path / "two") == made
    for name in others:
        assert name.endswith((".nc", ".safetensors")), name
        if name.endswith(".nc"):
            one, two = read(tmp_path / "one" / name), read(clone / "data" / name)
            np.testing.assert_allclose(one.values, two.values, atol=2e-4)
