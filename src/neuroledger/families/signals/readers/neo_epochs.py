"""Recordings in formats of electrophysiology (neo), cut into windows around their events: signals, or spike counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.dataset import Dataset
from neuroledger.data.file_names import Pattern
from neuroledger.errors import DataError
from neuroledger.families.signals.pinning.recordings import recorded
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes, note_left_out, require_few
from neuroledger.families.signals.recordings.neo_files import (
    NeoFiles,
    Stretch,
    beside,
    read_neo,
    sampled,
    spike_times,
)
from neuroledger.families.signals.recordings.recording_folders import largest_digest
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_windows import Window, lay
from neuroledger.families.signals.recordings.spike_counts import spike_counts
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.families.signals.signals import signals
from neuroledger.spec.registry import reader

__all__ = ["neo_epochs"]


@reader("neo_epochs", version=1, prepares=True, pins=recorded)
def neo_epochs(
    files: Mapping[str, Path],
    *,
    recordings: tuple[Recording, ...],
    neo: NeoFiles,
    window: Window,
    spikes: Annotated[float, Field(gt=0)] | None = None,
    preprocessing: Preprocessing = UNTOUCHED,
    named: dict[Pattern, dict[str, str]] | None = None,
) -> Dataset:
    """Windows of all recordings, from a format that neo reads.

    Segments of a file follow one another in time, and `segment` numbers them; where their own times overlap, the moment of
    each is unknown and counts on from the end of the one before.

    Parameters
    ----------
    recordings
        Whose each file is; `pin` lists them. Of a format in which a recording is a folder, the file is one in it.
    neo
        Format of the files, and which signals and events are read.
    spikes
        Seconds of a bin: windows are counts of the sorted spikes of each unit, in place of sampled signals.
    preprocessing
        Of sampled signals. Voltages have the unit that the file states.
    named
        For `pin`: how the files of a plain folder are called, with `{subject}`, `{session}`, `{run}` and facts.

    Raises
    ------
    DataError
        A recording is not among the files, cannot be read, or lacks a signal, unit or event.
    UnavailableError
        neo or MNE is not installed.
    """
    if spikes is not None and preprocessing != UNTOUCHED:
        raise DataError("`preprocessing` is about sampled signals, and `spikes` are counted")
    lost = [recording.file for recording in recordings if recording.file not in files]
    if lost:
        raise DataError(f"recording {lost[0]!r} is not among the files: {', '.join(sorted(files))}")

    def parts() -> Iterator[xr.DataArray | None]:
        for recording in recordings:
            path = files[recording.file]
            others = beside(neo.format, recording.file, sorted(files))
            sha256, free = largest_digest(files, recording.file, others), 0.0
            stretches = read_neo(path, neo)
            laid = _over_segments(window, stretches, recording)
            for number, stretch in enumerate(stretches):
                if spikes is None:
                    raw = sampled(stretch, path, neo)
                    found = windows_of(raw, recording, laid, preprocessing, sha256=sha256)
                else:
                    found = _counted(stretch, recording, laid, neo, spikes, path, sha256)
                begin = max(stretch.begin - stretches[0].begin, free)
                free = begin + stretch.seconds
                if found is not None and len(stretches) > 1:
                    noted = found.encoding
                    found = found.assign_coords(
                        onset=("presentation", found["onset"].values + begin),
                        segment=("presentation", np.full(found.sizes["presentation"], number)),
                    )
                    found.encoding = noted
                yield found

    windows = stored(parts())
    return Dataset(stimuli=None, assembly=windows, notes=beyond_notes(windows))


def _over_segments(window: Window, stretches: Sequence[Stretch], recording: Recording) -> Window:
    """The rule for each segment: of several, one need not have every event that the file has."""
    if len(stretches) == 1 or window.some:
        return window
    called = window.described(recording.known, recording.file)
    seen = {called(span.description) for stretch in stretches for span in stretch.spans}
    absent = sorted(name for name in window.labels if "*" not in name and name not in seen)
    if absent:
        raise DataError(
            f"{recording.file} has no event {', '.join(absent)}; it has {', '.join(sorted(seen)[:20])}. "
            "Where recordings need not have every event, state `some: true` in `window`"
        )
    return window.model_copy(update={"some": True})


def _counted(
    stretch: Stretch,
    recording: Recording,
    window: Window,
    what: NeoFiles,
    bin: float,
    path: Path,
    sha256: str,
) -> xr.DataArray | None:
    """Spike counts of each unit in the windows of a segment; None where it has no windows and need not."""
    trains = spike_times(stretch, path, what)
    called = window.described(recording.known, recording.file)
    spans = [span._replace(description=called(span.description)) for span in stretch.spans]
    laid = lay(window, spans, stretch.seconds, {}, recording.file)
    onsets = np.array(laid.onsets, dtype=float)
    kept = np.flatnonzero(
        (onsets + window.start >= 0) & (onsets + window.start + window.duration <= stretch.seconds + 1e-9)
    )
    # Counted in steps of a nanosecond: spikes have times, not samples.
    first, length, whole = (
        np.round(np.asarray(seconds) * 1e9).astype(int)
        for seconds in (onsets + window.start, window.duration, stretch.seconds + 1e-9)
    )
    lost = 0
    if window.stride is None or window.laid_over == "events":
        lost = require_few(first, int(length), int(whole), 0, window.beyond, recording.file)
    if not len(kept):
        if window.some and (not lost or window.beyond == 1):
            return None
        raise DataError(f"{recording.file}: no window of {window.duration:g} s lies within the recording")
    facts: dict[str, Any] = {
        "stimulus_id": np.array(laid.names)[kept],
        "onset": onsets[kept],
        **{name: np.asarray(values)[kept] for name, values in laid.extra.items()},
        **{name: np.full(len(kept), getattr(recording, name)) for name in ("subject", "session", "run")},
        **{name: np.full(len(kept), fact) for name, fact in recording.facts.items()},
        "recording": np.full(len(kept), recording.file),
        "recording_sha256": np.full(len(kept), sha256),
    }
    counts = spike_counts(list(trains.values()), onsets[kept], window.start, window.duration, bin)
    found = signals(
        counts.astype(np.float32), channels=list(trains), channel_types="spikes", sampling_rate=1.0 / bin,
        start=window.start, units="count", events=facts,
    )  # fmt: skip
    return note_left_out(found, recording.file, lost, len(onsets), 0)
