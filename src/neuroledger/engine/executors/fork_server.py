"""What the server that forks workers does before it forks the first; only this server imports the module."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress
from importlib import import_module

from neuroledger.engine.executors.processes import SERVER

__all__: list[str] = []


def _prepare(said: str) -> None:
    """Import modules, and restore the environment of the caller, which workers get."""
    asked = json.loads(said)
    sys.path[:] = asked["path"]
    for name in asked["imports"]:
        with suppress(Exception):  # a worker that needs it says what is wrong
            import_module(name)
    for name, value in asked["variables"].items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    gc.freeze()  # collections in workers then copy no page of what was imported


if SERVER in os.environ:
    _prepare(os.environ.pop(SERVER))
