"""The optional packages that bring architectures, imported where their builds and torch's fit, and where they nearly do."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any, Final

from neuroledger.models.torch_module import require

EXTRAS: Final = {"torchvision": "vision", "timm": "vision", "transformers": "language"}
"""Package → the extra of this project that installs it."""
COMPILED: Final = "torchvision._meta_registrations"
"""The part of torchvision that describes its compiled operators to torch, and cannot be imported without them."""


def hub_package(name: str) -> Any:
    """The package, imported.

    Networks that see images need none of torchvision's compiled operators (boxes of detectors). Where torchvision is
    of another build than torch, as its wheels from the package index are beside a torch for the CPU, it is imported
    without them; who calls one is told so by torchvision.

    Raises
    ------
    UnavailableError
        It, or torch, is not installed; the message names the extra that brings it.
    """
    require("torch", "torch")
    if importlib.util.find_spec("torchvision") is not None:
        _import_torchvision()
    return require(name, EXTRAS[name])


def _import_torchvision() -> None:
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # its compiled operators do not load; another fault appears again in the next import
        for name in [one for one in sys.modules if one.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.modules[COMPILED] = ModuleType(COMPILED)
    except ImportError:
        return
