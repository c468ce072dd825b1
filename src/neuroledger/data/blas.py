"""A setting that OpenBLAS reads when it is loaded: threads that have nothing to do soon sleep."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

__all__ = ["prepare"]

# NumPy's and SciPy's OpenBLAS each keep threads of their own. After a call they wait actively, for 2^26 cycles by
# default: at the expense of the other library's threads, where calls of the two alternate. As a power of two.
WAIT = "12"


def prepare(environment: MutableMapping[str, str] = os.environ) -> None:
    """Set it where it is not set; without effect on a library that was loaded before."""
    environment.setdefault("OPENBLAS_THREAD_TIMEOUT", WAIT)
