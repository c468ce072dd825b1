"""Store activations on disk by content, so that stimuli are presented to a model only once."""

from __future__ import annotations

import hashlib
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.data.memory import require_memory
from neuroledger.data.stimuli import StimulusSet
from neuroledger.display import Display, NoDisplay
from neuroledger.errors import StorageError
from neuroledger.models.activations import Probe, Store, batch_bytes
from neuroledger.models.model import LayeredModel, Model
from neuroledger.store.store import Store as Files
from neuroledger.store.store import Written, size_in_words, store_folder

__all__ = ["DiskStore", "attach", "open_store", "time_in_words"]


KIND: Final = "activations"
VALUES: Final = "values.bin"
FORMAT: Final = 2
INDEX_BYTES: Final = 512
"""Approximate size of the index of an entry."""
JOIN_IN_MEMORY: Final = 128 * 1024**2
JOINS: Final = 8
"""Number of joined regions that are cached."""
BIG_BYTES: Final = 1024**3
BIG_SECONDS: Final = 30.0


def open_store(root: Path, display: Display | None = None) -> DiskStore:
    """Open the store of activations of a repository."""
    return DiskStore(store_folder(root), display)


def attach(model: Model, store: Store | None) -> Model:
    """Return the model with ``store`` attached, if it has layers and no store yet."""
    if isinstance(model, LayeredModel) and model.store is None and store is not None:
        return replace(model, store=store)
    return model


class DiskStore:
    """Activations on disk, one entry per layer.

    The key of an entry is the model's identity (builder and its version, weights, preprocessing, device), the contents
    of the stimuli, and the layer. The activations of a model in memory are deleted when the program ends.
    """

    def __init__(
        self, folder: Path, display: Display | None = None, limit: int | None = None
    ) -> None:
        self.files = Files(folder, limit)
        self.display = display or NoDisplay()
        self._joined: OrderedDict[tuple[tuple[str, int, int] | None, ...], Array] = (
            OrderedDict()
        )

    def get(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        layers: Sequence[str],
    ) -> dict[str, Array]:
        """Return the stored layers as memory maps (presentation, …)."""
        arrays: dict[str, Array] = {}
        for layer in layers:
            entry = self.files.get(
                KIND, _key(identity, stimuli, layer), own="process" in identity
            )
            if entry is None:
                continue
            shape = tuple(entry.about["shape"])
            kind = np.dtype(entry.about["dtype"])
            try:
                array = np.memmap(
                    entry.place / VALUES, dtype=kind, mode="r", shape=shape
                )
            except FileNotFoundError:  # another process deleted it to make room
                continue
            self.files.use(entry, array)
            arrays[layer] = array
        return arrays

    def computing(
        self, identity: Mapping[str, object], stimuli: StimulusSet
    ) -> AbstractContextManager[None]:
        """Return the lock between processes under which a pass of the model over the stimuli is computed."""
        return self.files.lock(KIND, _key(identity, stimuli, ""))

    def put(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        probe: Probe,
        rows: int,
        batches: Iterator[Mapping[str, Array]],
        *,
        model: str,
    ) -> dict[str, Array]:
        """Write the batches as they arrive, all layers or none, and return the layers as memory maps.

        Raises
        ------
        StorageError
            The activations do not fit on the disk; the message suggests what to change.
        StorageError
            The disk cannot be written.
        """
        try:
            self._announce(model, stimuli, probe, rows)
            self._write(model, identity, stimuli, probe, rows, batches)
        except OSError as error:
            raise StorageError(
                f"activations cannot be written to {self.files.folder} ({error.strerror or error}): free space, change "
                "permissions, or set NEUROLEDGER_ACTIVATIONS to another folder"
            ) from error
        return self.get(identity, stimuli, list(probe.shapes))

    def join(self, arrays: Sequence[Array]) -> Array:
        """Concatenate layers (presentation, feature) along the features; large results are written to an unlinked file.

        The last few results are cached by their source files, because each benchmark requests its region again.
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

    def _join_on_disk(
        self, arrays: Sequence[Array], shape: tuple[int, int], kind: np.dtype[Any]
    ) -> Array:
        path = self.files.scratch()
        step = max(1, JOIN_IN_MEMORY // (shape[1] * kind.itemsize))
        with path.open("wb") as file:
            for start in range(0, shape[0], step):
                part = np.concatenate(
                    [array[start : start + step] for array in arrays],
                    axis=1,
                    dtype=kind,
                )
                file.write(part.data)
        joined = np.memmap(path, dtype=kind, mode="r", shape=shape)
        path.unlink()
        return np.asarray(joined)

    def _write(
        self,
        model: str,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        probe: Probe,
        rows: int,
        batches: Iterator[Mapping[str, Array]],
    ) -> None:
        folders = {layer: self.files.scratch() for layer in probe.shapes}
        digests = {layer: hashlib.sha256() for layer in folders}
        presented = 0
        try:
            with ExitStack() as opened:
                files = {}
                for layer, folder in folders.items():
                    folder.mkdir()
                    files[layer] = opened.enter_context((folder / VALUES).open("wb"))
                for batch in batches:
                    for layer, values in batch.items():
                        content = np.ascontiguousarray(
                            values, dtype=probe.dtypes[layer]
                        ).data
                        digests[layer].update(content)
                        files[layer].write(content)
                    presented += len(next(iter(batch.values())))
                    self.display.progress(f"{model}: presenting", presented, rows)
            for layer, folder in folders.items():
                about = {
                    "shape": [rows, *probe.shapes[layer]],
                    "dtype": probe.dtypes[layer].str,
                }
                written = Written(about, {VALUES: digests[layer].hexdigest()})
                key = _key(identity, stimuli, layer)
                self.files.commit(KIND, key, folder, written, own="process" in identity)
        finally:
            for folder in folders.values():
                shutil.rmtree(folder, ignore_errors=True)

    def _announce(
        self, model: str, stimuli: StimulusSet, probe: Probe, rows: int
    ) -> None:
        needed = probe.bytes_per_stimulus * rows + INDEX_BYTES * len(probe.shapes)
        seconds = probe.seconds * rows
        size = (
            f"{model}: {rows:,} presentations of {stimuli.id or 'its stimuli'}, {len(probe.shapes)} layers: about "
            f"{time_in_words(seconds)}, {size_in_words(needed)} on disk, "
            f"{size_in_words(batch_bytes(probe))} of memory"
        )
        largest = max(probe.shapes, key=lambda at: int(np.prod(probe.shapes[at])))
        change = f"name fewer layers (the largest is {largest!r}), show fewer stimuli with --limit, or "
        if needed > self.files.limit:
            raise StorageError(
                f"{size}. The limit of the store is {size_in_words(self.files.limit)}: {change}raise "
                f"NEUROLEDGER_ACTIVATIONS_LIMIT, for example to `{size_in_words(2 * needed)}`"
            )
        room = self.files.make_room(needed)
        if needed > room:
            raise StorageError(
                f"{size}. {self.files.folder} has space for {size_in_words(max(0, room))}: {change}set "
                "NEUROLEDGER_ACTIVATIONS to a folder on a larger disk"
            )
        require_memory(
            batch_bytes(probe), size, "name fewer layers, or make the images smaller"
        )
        if needed > BIG_BYTES or seconds > BIG_SECONDS:
            self.display.line(size)


def _key(
    identity: Mapping[str, object], stimuli: StimulusSet, layer: str
) -> dict[str, object]:
    return {
        "format": FORMAT,
        "identity": dict(identity),
        "stimuli": stimuli.content_sha256,
        "layer": layer,
    }


def time_in_words(seconds: float) -> str:
    """Format a duration: ``90`` → ``1.5 min``."""
    if seconds < 90:
        if seconds >= 1:
            return f"{seconds:.0f} s"
        return "less than 1 s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _file_of(array: Array) -> tuple[str, int, int] | None:
    """Identify the file of a memory map by path, inode and time of modification; None for an array in memory."""
    name = getattr(array, "filename", None)
    if name is None:
        return None
    state = Path(name).stat()
    return str(name), state.st_ino, state.st_mtime_ns
