"""Write the envelope that the receptor neuron heard as responses of a model: ``python -m tools.generate.receptor``.

It is computed from the embedded files of `Rokem2006.receptor`, and so is not among the simulated files of ``build``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import neuroledger as nl
from neuroledger.data import assembly


def write(folder: Path) -> Path:
    """Write ``models/Rokem2006.envelope/envelope.nc`` under ``folder``."""
    envelope = nl.load("Rokem2006.receptor").extras["envelope"]
    path = folder / "models" / "Rokem2006.envelope" / "envelope.nc"
    path.parent.mkdir(parents=True, exist_ok=True)
    assembly.write(assembly.check(envelope), path)
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1] if len(sys.argv) > 1 else "data")))
