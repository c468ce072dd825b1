"""Where a download goes below data/: its name there, and the bytes linked or copied to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroledger.data.integrity import verify_file
from neuroledger.errors import RequestError
from neuroledger.spec.base import SourceFile, is_file_name
from neuroledger.store.files import replacing

__all__ = ["place_of", "put", "stop_on_others"]


def place_of(name: str) -> str:
    """The name below `data/<id>/`: that of the download, with characters that specs do not allow replaced."""
    parts = [
        "".join(c if c.isascii() and (c.isalnum() or c in "._+-") else "_" for c in part)
        for part in name.split("/")
    ]
    place = "/".join(part if part[0].isalnum() or part[0] == "_" else f"_{part}" for part in parts)
    if not is_file_name(place):
        raise RequestError(f"{name!r} cannot be the name of a pinned file: shorten it")
    return place


def stop_on_others(folder: Path, places: Mapping[str, Path], pins: Mapping[str, Mapping[str, Any]]) -> None:
    """Nothing else may lie where the downloads are to go.

    Raises
    ------
    IntegrityError
        A file of that name has other bytes.
    """
    for name in places:
        if (folder / name).exists():
            pinned = SourceFile(size=pins[name]["size"], sha256=pins[name]["sha256"])
            verify_file(folder / name, pinned, fix="move it away, then pin again")


def put(source: Path, place: Path) -> bool:
    """Link or copy a file to its place; False where it is there already."""
    if place.exists():
        return False
    with replacing(place) as temporary:
        try:
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)
    return True
