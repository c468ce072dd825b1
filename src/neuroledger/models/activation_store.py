"""Stimuli are presented to a model once: what it answered is kept on disk, by content, for all who ask again."""

from __future__ import annotations

import os
import shutil
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.memory import require_memory
from neuroledger.data.stimuli import StimulusSet
from neuroledger.display import Display, NoDisplay
from neuroledger.errors import DataError, RequestError
from neuroledger.models.activations import Probe, Store, batch_bytes
from neuroledger.models.model import LayeredModel, Model
from neuroledger.spec.identity import sha256_of
from neuroledger.store.cache_eviction import (
    entries,
    in_use,
    limit_bytes,
    make_room,
    process_folder,
    size_in_words,
)
from neuroledger.store.files import write_json

__all__ = ["DiskStore", "activations_folder", "attach", "open_store", "size_in_words", "time_in_words"]

Array = NDArray[Any]

FORMAT: Final = 1
SPARE_BYTES: Final = 512 * 1024**2
"""Disk that stays free, so that records can always be written."""
HEAD_BYTES: Final = 128
"""The head of a ``.npy`` file."""
JOIN_IN_MEMORY: Final = 128 * 1024**2
JOINS: Final = 8
"""How many joined regions are remembered."""
BIG_BYTES: Final = 1024**3
BIG_SECONDS: Final = 30.0


def open_store(root: Path, display: Display | None = None) -> DiskStore:
    """The store of a repository, in its :func:`activations_folder`."""
    return DiskStore(activations_folder(root), display)


def activations_folder(root: Path) -> Path:
    """``.cache/activations`` of a repository, or the folder that ``NEUROLEDGER_ACTIVATIONS`` names."""
    named = os.environ.get("NEUROLEDGER_ACTIVATIONS")
    return Path(named) if named else root / ".cache" / "activations"


def attach(model: Model, store: Store | None) -> Model:
    """The model with a place to keep its activations, where it has layers and no such place yet."""
    if isinstance(model, LayeredModel) and model.store is None and store is not None:
        return replace(model, store=store)
    return model


class DiskStore:
    """Activations in files, one ``.npy`` per layer, named by the hash of what determines them.

    That is: the model's identity (builder and its version, weights, preprocessing, device), the contents of the
    stimuli, and the layer. What a model in memory answered is kept until the program ends. Before a pass that would
    exceed ``limit`` bytes the least recently used files are removed, but none that a running process has open.
    """

    def __init__(self, folder: Path, display: Display | None = None, limit: int | None = None) -> None:
        self.folder = folder
        self.display = display or NoDisplay()
        self.limit = limit_bytes() if limit is None else limit
        self._in_use = in_use(folder)
        self._joined: OrderedDict[tuple[tuple[str, int, int] | None, ...], Array] = OrderedDict()

    def get(
        self, identity: Mapping[str, Any], stimuli: StimulusSet, layers: Sequence[str]
    ) -> dict[str, Array]:
        """The layers that are kept already, as memory maps (presentation, …)."""
        found = {}
        for layer in layers:
            path = self._path(identity, stimuli, layer)
            array = _open(path)
            if array is not None:
                found[layer] = array
                self._in_use.add(path, array)
        if found:
            self._in_use.write()
        return found

    def put(
        self,
        identity: Mapping[str, Any],
        stimuli: StimulusSet,
        probe: Probe,
        rows: int,
        batches: Iterator[Mapping[str, Array]],
        *,
        model: str,
    ) -> dict[str, Array]:
        """Write the batches as they come, whole layers or none, and return them as memory maps.

        Raises
        ------
        RequestError
            They do not fit on the disk; the message says what to change.
        DataError
            The disk cannot be written.
        """
        paths = {layer: self._path(identity, stimuli, layer) for layer in probe.shapes}
        try:
            self._announce(model, stimuli, probe, rows)
            self._write(model, paths, probe, rows, batches)
            for layer, path in paths.items():
                described = {"identity": dict(identity), "layer": layer, "stimuli": stimuli.content_sha256}
                write_json(path.with_suffix(".json"), described)
        except OSError as error:
            raise DataError(
                f"activations cannot be written to {self.folder} ({error.strerror or error}): free space or rights "
                "there, or name another folder in NEUROLEDGER_ACTIVATIONS"
            ) from error
        return self.get(identity, stimuli, list(paths))

    def join(self, arrays: Sequence[Array]) -> Array:
        """Layers (presentation, feature) side by side; on disk, without a name, where they are large.

        The last few are remembered by the files that they come from: a region is asked for once per benchmark.
        """
        kind = np.result_type(*arrays)
        shape = (len(arrays[0]), sum(array.shape[1] for array in arrays))
        if shape[0] * shape[1] * kind.itemsize <= JOIN_IN_MEMORY:
            return np.concatenate(arrays, axis=1, dtype=kind)
        key = tuple(_file_of(array) for array in arrays)
        if None in key:
            return self._join_on_disk(arrays, shape, kind)
        if key not in self._joined:
            self._joined[key] = self._join_on_disk(arrays, shape, kind)
        self._joined.move_to_end(key)
        while len(self._joined) > JOINS:
            self._joined.popitem(last=False)
        return self._joined[key]

    def _join_on_disk(self, arrays: Sequence[Array], shape: tuple[int, int], kind: np.dtype[Any]) -> Array:
        path = self._unfinished()
        step = max(1, JOIN_IN_MEMORY // (shape[1] * kind.itemsize))
        with path.open("wb") as file:
            _header(file, shape, kind)
            for start in range(0, shape[0], step):
                part = np.concatenate([array[start : start + step] for array in arrays], axis=1, dtype=kind)
                file.write(part.data)
        joined = np.load(path, mmap_mode="r", allow_pickle=False)
        path.unlink()
        return np.asarray(joined)

    def _write(
        self,
        model: str,
        paths: Mapping[str, Path],
        probe: Probe,
        rows: int,
        batches: Iterator[Mapping[str, Array]],
    ) -> None:
        unfinished = {layer: self._unfinished() for layer in paths}
        files: dict[str, BinaryIO] = {}
        done = 0
        try:
            for layer, path in unfinished.items():
                files[layer] = path.open("wb")
                _header(files[layer], (rows, *probe.shapes[layer]), probe.dtypes[layer])
            for batch in batches:
                for layer, values in batch.items():
                    files[layer].write(np.ascontiguousarray(values, dtype=probe.dtypes[layer]).data)
                done += len(next(iter(batch.values())))
                self.display.progress(f"{model}: presenting", done, rows)
            for layer, file in files.items():
                file.close()
                paths[layer].parent.mkdir(parents=True, exist_ok=True)
                unfinished[layer].replace(paths[layer])
        finally:
            for file in files.values():
                file.close()
            for path in unfinished.values():
                path.unlink(missing_ok=True)

    def _announce(self, model: str, stimuli: StimulusSet, probe: Probe, rows: int) -> None:
        needed = probe.bytes_per_stimulus * rows + HEAD_BYTES * len(probe.shapes)
        seconds = probe.seconds * rows
        self.folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder).free
        size = (
            f"{model}: {rows:,} presentations of {stimuli.id or 'its stimuli'}, {len(probe.shapes)} layers: about "
            f"{time_in_words(seconds)}, {size_in_words(needed)} on disk, "
            f"{size_in_words(batch_bytes(probe))} of memory"
        )
        self._make_room(
            needed, free, size, largest=max(probe.shapes, key=lambda at: int(np.prod(probe.shapes[at])))
        )
        require_memory(batch_bytes(probe), size, "name fewer layers, or make the images smaller")
        if needed > BIG_BYTES or seconds > BIG_SECONDS:
            self.display.line(size)

    def _make_room(self, needed: int, free: int, size: str, largest: str) -> None:
        """Remove what was used least recently where the limit, or the disk, would not hold ``needed`` bytes more."""
        change = f"name fewer layers (the largest is {largest!r}), show fewer stimuli with --limit, or "
        if needed > self.limit:
            raise RequestError(
                f"{size}. At most {size_in_words(self.limit)} of activations are kept: {change}raise "
                f"NEUROLEDGER_ACTIVATIONS_LIMIT, such as to `{size_in_words(2 * needed)}`"
            )
        kept = entries(self.folder, process_folder(self.folder))
        surplus = sum(entry.size for entry in kept) + needed - self.limit
        short = needed - (free - SPARE_BYTES)
        if max(surplus, short) > 0:
            free += make_room(kept, max(surplus, short), self._in_use.everywhere())
        if needed > free - SPARE_BYTES:
            raise RequestError(
                f"{size}. {self.folder} has {size_in_words(free)} free, of which {size_in_words(SPARE_BYTES)} stay "
                f"free: {change}name a folder on a larger disk in NEUROLEDGER_ACTIVATIONS"
            )

    def _unfinished(self) -> Path:
        """A new file where what a killed process leaves is removed by the next one."""
        own = process_folder(self.folder)
        own.mkdir(parents=True, exist_ok=True)
        return own / f"{uuid.uuid4().hex}.tmp"

    def _path(self, identity: Mapping[str, Any], stimuli: StimulusSet, layer: str) -> Path:
        key = sha256_of(
            {
                "format": FORMAT,
                "identity": dict(identity),
                "stimuli": stimuli.content_sha256,
                "layer": layer,
            }
        )
        home = process_folder(self.folder) if "process" in identity else self.folder
        return home / key[:2] / f"{key}.npy"


def time_in_words(seconds: float) -> str:
    """``90`` → ``1.5 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "less than 1 s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _file_of(array: Array) -> tuple[str, int, int] | None:
    """The file that a memory map shows, in its present state; None for an array in memory."""
    name = getattr(array, "filename", None)
    if name is None:
        return None
    state = Path(name).stat()
    return str(name), state.st_ino, state.st_mtime_ns


def _header(file: BinaryIO, shape: tuple[int, ...], kind: np.dtype[Any]) -> None:
    """The head of a ``.npy`` file of which the rows follow."""
    described = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, described)


def _open(path: Path) -> Array | None:
    """A memory map of the file, or None where it is missing or not whole (it is then made anew)."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False) if path.is_file() else None
    except (ValueError, EOFError, OSError):
        path.unlink(missing_ok=True)
        return None
