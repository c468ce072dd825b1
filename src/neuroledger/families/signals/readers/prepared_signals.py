"""Signals that are already cut into windows, in one netCDF file, with an optional split file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neuroledger.data import assembly
from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals import signals
from neuroledger.families.signals.clocks.cut_windows import clocks_of_windows
from neuroledger.families.signals.language.text_clusters import cluster_texts
from neuroledger.families.signals.model_needs import only_as_cut
from neuroledger.families.signals.recordings.signal_stimuli import read_embeddings
from neuroledger.families.signals.recordings.window_store import IN_MEMORY, stored
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader

__all__ = ["prepared_signals"]


def _reads(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """The files that the reader's fields name."""
    required = [parameters["file"], *(parameters["embeddings"] or {}).values()]
    required += [parameters["split_file"]] if parameters["split_file"] else []
    missing = [name for name in required if name not in names]
    if missing:
        raise RequestError(
            f"the folder lacks {', '.join(missing)}: the data set is read from windows that are already cut, "
            "(presentation, channel, sample) as netCDF (docs/signals.md)"
        )
    return list(map(str, required))


@reader(
    "prepared_signals", version=1, prepares=True, composes=only_as_cut, reads=_reads
)
def prepared_signals(
    files: Mapping[str, Path],
    *,
    file: str = "signals.nc",
    split_file: str | None = None,
    embeddings: dict[str, str] | None = None,
    cluster_by: str | None = None,
    threshold: float = 0.7,
    context: ReaderContext | None = None,
) -> Dataset:
    """The signals of `file`; `split_file` is a CSV with `event` and `split`, `embeddings` are netCDF files by name.

    `cluster_by` names a coordinate of texts; similar texts get the same value of the coordinate `sentence_cluster`.
    The split file assigns train, validation, test or none to every value of the coordinate `event`.

    Raises
    ------
    DataError
        A file is missing or does not contain signals, or the split file lacks an event.
    """
    for name in (
        file,
        *([split_file] if split_file else []),
        *(embeddings or {}).values(),
    ):
        if name not in files:
            raise DataError(
                f"{name!r} is not among the files: {', '.join(sorted(files))}"
            )
    blocks = assembly.read_blocks(files[file], "presentation", IN_MEMORY)
    parts = (signals.check(block, name=file) for block in blocks)
    windows = stored(context, parts)
    if split_file is not None:
        rows = table_rows(files[split_file], "event", "split", name=split_file)[1]
        table = {row["event"]: row["split"] for _, row in rows}
        if "event" not in windows.coords:
            raise DataError(
                f"{file} has no coordinate `event`, which the split file needs"
            )
        events = windows["event"].values.astype(str)
        missing = sorted(set(events.tolist()) - set(table))
        if missing:
            raise DataError(
                f"{split_file} lacks {len(missing)} events, first {missing[0]}"
            )
        windows = windows.assign_coords(
            split=("presentation", np.array([table[event] for event in events]))
        )
    if cluster_by is not None:
        if cluster_by not in windows.coords:
            raise DataError(
                f"{file} has no coordinate {cluster_by!r} of texts to cluster"
            )
        texts = list(map(str, windows[cluster_by].values))
        clusters = cluster_texts(texts, threshold=threshold)
        windows = windows.assign_coords(sentence_cluster=("presentation", clusters))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None, assembly=windows, extras=extras, clocks=clocks_of_windows(windows)
    )
