"""Store activations, or what comparisons need of them, on disk by content, so that stimuli are presented only once."""

from __future__ import annotations

import hashlib
import shutil
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.data.memory import available_bytes, require_memory
from neuroledger.data.stimuli import StimulusSet
from neuroledger.display import Display, NoDisplay
from neuroledger.errors import StorageError
from neuroledger.models.activations import (
    Form,
    Passes,
    Probe,
    Store,
    Summary,
    batch_bytes,
    collect,
)
from neuroledger.models.model import LayeredModel, Model
from neuroledger.store.shared import shared
from neuroledger.store.store import Entry, Written, size_in_words, store_folder
from neuroledger.store.store import Store as Files

__all__ = ["DiskStore", "attach", "open_store", "time_in_words"]


KIND: Final = "activations"
FORMS: Final = "layers"
VALUES: Final = "values.bin"
FIRST: Final = "first.npy"
FORMAT: Final = 2
INDEX_BYTES: Final = 512
"""Approximate size of the index of an entry."""
JOIN_IN_MEMORY: Final = 128 * 1024**2
JOINS: Final = 8
"""Number of joined regions that are cached."""
HELD: Final = 2 * 1024**3
"""Bytes of activations that are held in memory until they are summed up; more are in temporary files."""
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
        self.files = Files(folder, limit, shared())
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
        passes: Passes,
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
        needed = probe.bytes_per_stimulus * rows + INDEX_BYTES * len(probe.shapes)
        with self._writing():
            self._announce(model, stimuli, probe, rows, needed)
            self._write(model, identity, stimuli, probe, rows, passes())
        return self.get(identity, stimuli, list(probe.shapes))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"activations cannot be written to {self.files.folder} ({error.strerror or error}): free space, change "
                "permissions, or set NEUROLEDGER_ACTIVATIONS to another folder"
            ) from error

    def forms(
        self, identity: Mapping[str, object], stimuli: StimulusSet, layer: str
    ) -> Form | None:
        """Return what is known of a layer that was recorded before, or None."""
        key = _key(identity, stimuli, layer)
        own = "process" in identity
        found = self.files.get(FORMS, key, own=own)
        if found is not None:
            first = np.load(found.place / FIRST, allow_pickle=False) if own else None
            about = found.about
            asked = str(about.get("asked", ""))
            return Form(tuple(about["shape"]), np.dtype(about["dtype"]), first, asked)
        found = None if own else self.files.get(KIND, key)
        if found is not None:
            return Form(tuple(found.about["shape"][1:]), np.dtype(found.about["dtype"]))
        return None

    def keep_forms(
        self, identity: Mapping[str, object], stimuli: StimulusSet, probe: Probe
    ) -> None:
        """Keep what a probe found, in place of what is known.

        Raises
        ------
        StorageError
            The disk cannot be written.
        """
        own = "process" in identity
        asked = uuid4().hex
        for layer, shape in probe.shapes.items():
            about = _about(shape, probe.dtypes[layer])
            first = None
            if own:
                about["asked"] = asked
                first = probe.answers[layer]
            key = _key(identity, stimuli, layer)
            write = partial(_write_form, Written(about), first)
            self.files.put(FORMS, key, write, own=own)

    def summaries(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        layers: Sequence[str],
        made: Summary,
    ) -> dict[str, Entry | None]:
        """Return the summaries that are stored; None for a layer whose activations are stored instead."""
        found: dict[str, Entry | None] = {}
        own = "process" in identity
        for layer in layers:
            key = _key(identity, stimuli, layer)
            form = self.forms(identity, stimuli, layer)
            if form is not None and _is_narrow(form.shape, len(stimuli.table)):
                if self.files.get(KIND, key, own=own) is not None:
                    found[layer] = None
                continue
            entry = self.files.get(made.kind, _key_of_summary(key, made), own=own)
            if entry is not None:
                found[layer] = entry
        return found

    def sum_up(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        probe: Probe,
        rows: int,
        passes: Passes,
        made: Summary,
        *,
        model: str,
    ) -> None:
        """Hold the batches until all have arrived, and store the summary of each layer; no activations stay on disk.

        Beyond ``HELD`` bytes, or a quarter of the free memory, they are held in temporary files.

        Raises
        ------
        StorageError
            What is written does not fit on the disk, or the disk cannot be written.
        """
        whole = probe.bytes_per_stimulus * rows
        free = available_bytes()
        in_memory = whole <= (HELD if free is None else min(HELD, free // 4))
        needed = len(probe.shapes) * (8 * rows**2 + INDEX_BYTES)
        folder = self.files.scratch()
        with self._writing():
            if not in_memory:
                needed += whole
            self._announce(model, stimuli, probe, rows, needed)
            try:
                new = np.empty if in_memory else partial(_in_file, folder)

                def reported(
                    places: Mapping[str, Array] | None = None,
                ) -> Iterator[Mapping[str, Array]]:
                    return self._reported(passes(places), model, rows)

                arrays = collect(reported, probe, rows, new)
                for layer in probe.shapes:
                    values = arrays.pop(layer)
                    self.sum_up_kept(identity, stimuli, layer, values, made)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def sum_up_kept(
        self,
        identity: Mapping[str, object],
        stimuli: StimulusSet,
        layer: str,
        values: Array,
        made: Summary,
    ) -> None:
        """Store the summary of a layer from its activations, or these themselves if they are smaller."""
        key = _key(identity, stimuli, layer)
        own = "process" in identity
        if not _is_narrow(values.shape[1:], len(values)):
            flat = values.reshape(len(values), -1)
            write = partial(made.write, flat)
            self.files.put(made.kind, _key_of_summary(key, made), write, own=own)
        elif self.files.get(KIND, key, own=own) is None:
            self.files.put(KIND, key, partial(_write_values, values), own=own)

    def _reported(
        self, batches: Iterator[Mapping[str, Array]], model: str, rows: int
    ) -> Iterator[Mapping[str, Array]]:
        """Pass the batches on, and report the progress."""
        presented = 0
        for batch in batches:
            presented += len(next(iter(batch.values())))
            self.display.progress(f"{model}: presenting", presented, rows)
            yield batch
            del batch  # see `stream`

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
        try:
            with ExitStack() as opened:
                files = {}
                for layer, folder in folders.items():
                    folder.mkdir()
                    files[layer] = opened.enter_context((folder / VALUES).open("wb"))
                for batch in self._reported(batches, model, rows):
                    for layer, values in batch.items():
                        content = np.ascontiguousarray(
                            values, dtype=probe.dtypes[layer]
                        ).data
                        digests[layer].update(content)
                        files[layer].write(content)
            for layer, folder in folders.items():
                about = _about((rows, *probe.shapes[layer]), probe.dtypes[layer])
                written = Written(about, {VALUES: digests[layer].hexdigest()})
                key = _key(identity, stimuli, layer)
                self.files.commit(KIND, key, folder, written, own="process" in identity)
        finally:
            for folder in folders.values():
                shutil.rmtree(folder, ignore_errors=True)

    def _announce(
        self, model: str, stimuli: StimulusSet, probe: Probe, rows: int, needed: int
    ) -> None:
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


def _key_of_summary(key: Mapping[str, object], made: Summary) -> dict[str, object]:
    return {**key, "made_of": dict(made.made_of)}


def _is_narrow(shape: tuple[int, ...], rows: int) -> bool:
    """Whether a layer has at most as many features as presentations, so that its activations are its best summary."""
    return int(np.prod(shape)) <= rows


def _about(shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, object]:
    return {"shape": list(shape), "dtype": dtype.str}


def _write_form(written: Written, first: Array | None, folder: Path) -> Written:
    if first is not None:
        np.save(folder / FIRST, first, allow_pickle=False)
    return written


def _write_values(values: Array, folder: Path) -> Written:
    with (folder / VALUES).open("wb") as file:
        file.write(np.ascontiguousarray(values).data)
    return Written(_about(values.shape, values.dtype))


def _in_file(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array in a temporary file, which has no name any more."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / VALUES
    array = np.memmap(path, dtype=dtype, mode="w+", shape=shape)
    path.unlink()
    return array


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
