"""Stimuli as objects written for Brain-Score take them: a table of the peer's own class, and a file for each row."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import cast

import pandas as pd

from neuroledger.data.stimuli import StimulusSet

__all__ = ["PathTable", "as_files", "table_class"]

_PNG = b"\x89PNG\r\n\x1a\n"


class PathTable(pd.DataFrame):
    """A table of stimuli with the path of each one's file, as Brain-Score models read it."""

    _metadata = ["identifier", "stimulus_paths"]  # noqa: RUF012 (pandas reads the class attribute)

    identifier: str
    stimulus_paths: dict[str, Path]

    @property
    def _constructor(self) -> type[PathTable]:
        return type(self)

    def get_stimulus(self, stimulus_id: str) -> Path:
        """Path of one stimulus's file."""
        return self.stimulus_paths[stimulus_id]


def table_class() -> type[PathTable]:
    """The class of tables that Brain-Score's code takes for stimuli, in this process.

    Its activation extractor asks ``isinstance(stimuli, StimulusSet)`` and reads anything else as a list of paths. The
    class has lived in several packages (brainio, brainscore_core) and lies in copies of them: the table is one of every
    loaded class of tables with that name.
    """
    named = (
        vars(module).get("StimulusSet")
        for module in list(sys.modules.values())
        if hasattr(module, "__dict__")
    )
    found = dict.fromkeys(
        kind
        for kind in named
        if isinstance(kind, type) and issubclass(kind, pd.DataFrame) and kind is not PathTable
    )
    # a base beside a class derived from it has no order of resolution
    leaves = [
        kind for kind in found if not any(other is not kind and issubclass(other, kind) for other in found)
    ]
    return _derived(tuple(leaves))


@lru_cache
def _derived(kinds: tuple[type[pd.DataFrame], ...]) -> type[PathTable]:
    return cast(type[PathTable], type("StimulusSet", (PathTable, *kinds), {})) if kinds else PathTable


@contextmanager
def as_files(
    stimuli: StimulusSet, *, label_column: str | None = None, rows: Sequence[str] = ()
) -> Iterator[PathTable]:
    """The stimuli in a folder that lasts as long as the question, under a name that tells their content.

    ``rows``: the ids to show, in order and possibly several times; every stimulus once when empty. ``label_column`` is
    also given as ``image_label``, which is where the peer looks for labels.
    """
    columns = stimuli.table.assign(stimulus_id=stimuli.ids)
    # text as Python objects: what the peer's code was written for, whatever pandas makes of text by itself
    columns = columns.astype(
        {name: object for name in columns if pd.api.types.is_string_dtype(columns[name])}
    )
    if label_column is not None:
        columns["image_label"] = columns[label_column]
    if rows:
        place = {id: row for row, id in enumerate(stimuli.ids)}
        columns = columns.iloc[[place[id] for id in rows]].reset_index(drop=True)
    table = table_class()(columns)
    with tempfile.TemporaryDirectory(prefix="neuroledger-") as folder:
        table.stimulus_paths = _written(stimuli, Path(folder)) if "filename" in columns else {}
        asked = hashlib.sha256(" ".join(rows).encode()).hexdigest()[:8] if rows else "once"
        table.identifier = f"{stimuli.id}-{stimuli.content_sha256[:16]}-{asked}"
        yield table


def _written(stimuli: StimulusSet, folder: Path) -> dict[str, Path]:
    """Each stimulus's file, under its own name where names differ."""
    names = [PurePosixPath(str(name)).name for name in stimuli.table["filename"]]
    plain = len({PurePosixPath(name).stem for name in names}) == len(names)
    paths: dict[str, Path] = {}
    for number, (id, data) in enumerate(zip(stimuli.ids, stimuli.read(), strict=True)):
        name = PurePosixPath(names[number] if plain else f"{number:06d}{PurePosixPath(names[number]).suffix}")
        if data.startswith(_PNG):
            name = name.with_suffix(".png")  # placed on a screen, whatever it was before
        paths[id] = folder / str(name)
        paths[id].write_bytes(data)
    return paths
