"""Writing a file whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from neuroledger.errors import DataError

__all__ = ["write_json", "write_text"]


def write_text(path: Path, text: str) -> bool:
    """Write ``text`` to ``path`` through a file beside it; returns False when it already held just that.

    A kill at any moment leaves the old file or the new one.

    Raises
    ------
    DataError
        The disk is full or read-only; what was there is still there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True) if path.parent.is_dir() and os.access(
            path.parent, os.W_OK
        ) else None
        raise DataError(
            f"{path} cannot be written ({error.strerror}); free space or rights on that disk"
        ) from error
    return True


def write_json(path: Path, value: Any) -> bool:
    """Write plain data as JSON: sorted keys, two spaces, a newline at the end."""
    return write_text(
        path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    )
