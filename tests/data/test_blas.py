"""Idle threads of OpenBLAS sleep soon, unless somebody wants it otherwise."""

from __future__ import annotations

import subprocess
import sys

from neuroledger.data.blas import WAIT, prepare


def test_what_is_set_stays() -> None:
    given = {"OPENBLAS_THREAD_TIMEOUT": "20"}
    prepare(given)
    assert given == {"OPENBLAS_THREAD_TIMEOUT": "20"}
    fresh: dict[str, str] = {}
    prepare(fresh)
    assert fresh == {"OPENBLAS_THREAD_TIMEOUT": WAIT}


def test_it_is_set_before_numpy_is_loaded() -> None:
    program = "import os, sys, neuroledger; sys.exit('numpy' in sys.modules or not os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
