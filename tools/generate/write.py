"""Deterministic writers: zip archives and tables without time stamps or owners."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

EPOCH = (1980, 1, 1, 0, 0, 0)


def archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a zip archive of stored (already compressed) files, sorted by name and dated 1980-01-01."""
    temporary = path.with_name(f".{path.name}.tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as zip_file:
        for name in sorted(files):
            member = zipfile.ZipInfo(name, EPOCH)
            member.external_attr = 0o644 << 16
            member.create_system = 3
            zip_file.writestr(member, files[name])
    temporary.replace(path)


def table(path: Path, rows: pd.DataFrame) -> None:
    """Write a CSV file in UTF-8 with Unix line ends."""
    temporary = path.with_name(f".{path.name}.tmp")
    rows.to_csv(temporary, index=False, lineterminator="\n", encoding="utf-8")
    temporary.replace(path)


def truth(path: Path, facts: Mapping[str, Any]) -> None:
    """Write the facts of a simulation as sorted, indented JSON."""
    path.write_text(
        json.dumps(facts, indent=1, sort_keys=True, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )
