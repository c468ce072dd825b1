"""Recordings in formats of electrophysiology (neo), cut into windows around events: signals or spike counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.arrays import Floats
from neuroledger.data.clocks import MOST_EMPTY, Clock, RecordingClocks
from neuroledger.data.dataset import Dataset
from neuroledger.data.facts import Fact
from neuroledger.data.file_names import Pattern
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.clock_facts import (
    clock_notes,
    clocks_of,
    note_clocks,
)
from neuroledger.families.signals.model_needs import composed
from neuroledger.families.signals.pinning.recordings import recorded
from neuroledger.families.signals.recordings.beyond_ends import (
    beyond_notes,
    note_left_out,
    require_few,
)
from neuroledger.families.signals.recordings.neo_files import (
    NeoFiles,
    Stretch,
    companion_files,
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
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader

__all__ = ["neo_epochs"]


@reader("neo_epochs", version=1, prepares=True, composes=composed, pins=recorded)
def neo_epochs(
    files: Mapping[str, Path],
    *,
    recordings: tuple[Recording, ...],
    neo: NeoFiles,
    window: Window,
    spikes: PositiveFloat | None = None,
    preprocessing: Preprocessing = UNTOUCHED,
    named: dict[Pattern, dict[str, str]] | None = None,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of all recordings, from a format that neo reads.

    Segments of a file are consecutive, and the coordinate `segment` numbers them; if their times overlap, they are
    unknown, and each segment is placed at the end of the previous one.

    Parameters
    ----------
    recordings
        The recordings with their subjects; `pin` lists them. If a recording is a folder, the file is one in it.
    neo
        Format of the files, and the signals and events to read.
    spikes
        Bin width in seconds: windows are counts of the sorted spikes of each unit, instead of sampled signals.
    preprocessing
        Preprocessing of sampled signals. Voltages have the unit that the file states.
    named
        For `pin`: patterns of the names of files in a plain folder, with `{subject}`, `{session}`, `{run}` and facts.

    Raises
    ------
    DataError
        A recording is not among the files, cannot be read, or lacks a signal, unit or event.
    UnavailableError
        neo or MNE is not installed.
    """
    if spikes is not None and preprocessing != UNTOUCHED:
        raise DataError(
            "`preprocessing` applies to sampled signals, not to `spikes`: remove one of them"
        )
    missing = [
        recording.file for recording in recordings if recording.file not in files
    ]
    if missing:
        raise DataError(
            f"recording {missing[0]!r} is not among the files: {', '.join(sorted(files))}"
        )

    def parts() -> Iterator[xr.DataArray | None]:
        for recording in recordings:
            path = files[recording.file]
            others = companion_files(neo.format, recording.file, sorted(files))
            sha256 = largest_digest(files, recording.file, others)
            free = 0.0
            segments = read_neo(path, neo)
            layout = _over_segments(window, segments, recording)
            for number, segment in enumerate(segments):
                if spikes is None:
                    raw = sampled(segment, path, neo)
                    part = windows_of(
                        raw, recording, layout, preprocessing, sha256=sha256
                    )
                else:
                    part = _spike_windows(
                        segment, recording, layout, neo, spikes, path, sha256
                    )
                begin = max(segment.begin - segments[0].begin, free)
                free = begin + segment.seconds
                if part is not None and len(segments) > 1:
                    encoding = part.encoding
                    part = part.assign_coords(
                        onset=("presentation", part["onset"].values + begin),
                        segment=(
                            "presentation",
                            np.full(part.sizes["presentation"], number),
                        ),
                    )
                    part.encoding = encoding
                yield part

    windows = stored(context, parts())
    return Dataset(
        stimuli=None,
        assembly=windows,
        clocks=clocks_of(windows),
        notes=(*clock_notes(windows), *beyond_notes(windows)),
    )


def _over_segments(
    window: Window, segments: Sequence[Stretch], recording: Recording
) -> Window:
    """The window for each segment; if there are several, a segment need not have all events of the file."""
    if len(segments) == 1 or window.some:
        return window
    describe = window.described(recording.known, recording.file)
    existing = {
        describe(span.description) for segment in segments for span in segment.spans
    }
    absent = sorted(
        name for name in window.labels if "*" not in name and name not in existing
    )
    if absent:
        raise DataError(
            f"{recording.file} has no event {', '.join(absent)}; it has {', '.join(sorted(existing)[:20])}. "
            "If recordings need not have every event, set `some: true` in `window`"
        )
    return window.model_copy(update={"some": True})


def _spike_windows(
    segment: Stretch,
    recording: Recording,
    window: Window,
    neo: NeoFiles,
    bin: float,
    path: Path,
    sha256: str,
) -> xr.DataArray | None:
    """Spike counts of each unit in the windows of a segment; None if it has no windows and none are required."""
    trains = spike_times(segment, path, neo)
    describe = window.described(recording.known, recording.file)
    spans = [
        span._replace(description=describe(span.description)) for span in segment.spans
    ]
    layout = lay(window, spans, segment.seconds, {}, recording.file)
    onsets = np.array(layout.onsets, dtype=float)
    inside = np.flatnonzero(
        (onsets + window.start >= 0)
        & (onsets + window.start + window.duration <= segment.seconds + 1e-9)
    )
    # In nanoseconds, because spikes have times rather than samples.
    first, length, complete = (
        np.round(np.asarray(seconds) * 1e9).astype(int)
        for seconds in (onsets + window.start, window.duration, segment.seconds + 1e-9)
    )
    lost = 0
    if window.stride is None or window.laid_over == "events":
        lost = require_few(
            first, int(length), int(complete), 0, window.beyond, recording.file
        )
    if not len(inside):
        if window.some and (not lost or window.beyond == 1):
            return None
        raise DataError(
            f"{recording.file}: no window of {window.duration:g} s is within the recording"
        )
    facts: dict[str, object] = {
        "stimulus_id": np.array(layout.names)[inside],
        "onset": onsets[inside],
        **{name: np.asarray(values)[inside] for name, values in layout.extra.items()},
        **{
            name: np.full(len(inside), getattr(recording, name))
            for name in ("subject", "session", "run")
        },
        **{name: np.full(len(inside), fact) for name, fact in recording.facts.items()},
        "recording": np.full(len(inside), recording.file),
        "recording_sha256": np.full(len(inside), sha256),
    }
    counts = spike_counts(
        list(trains.values()), onsets[inside], window.start, window.duration, bin
    )
    windows = signals(
        counts.astype(np.float32),
        channels=list(trains),
        channel_types="spikes",
        sampling_rate=1.0 / bin,
        start=window.start,
        units="count",
        events=facts,
    )
    clocks = _spike_clocks(segment, recording, trains, window, onsets[inside])
    return note_left_out(
        note_clocks(windows, clocks), recording.file, lost, len(onsets), 0
    )


def _spike_clocks(
    segment: Stretch,
    recording: Recording,
    trains: Mapping[str, Floats],
    window: Window,
    onsets: Floats,
) -> RecordingClocks:
    """The clocks of a segment's spikes and events, and the windows before the first or after the last spike."""
    filled = [times for times in trains.values() if len(times)]
    first = min((float(times.min()) for times in filled), default=None)
    last = max((float(times.max()) for times in filled), default=None)
    moments = [span.onset for span in segment.spans]
    spikes = Clock(
        of="spikes",
        unit=Fact("s", "stated"),
        start=first,
        stop=last,
        count=sum(map(len, trains.values())),
    )
    events = Clock(
        of="events",
        unit=Fact("s", "stated"),
        start=min(moments, default=None),
        stop=max(moments, default=None),
        count=len(moments),
    )
    begins = onsets + window.start
    outside = len(begins)
    if first is not None and last is not None:
        outside = int(((begins + window.duration <= first) | (begins > last)).sum())
    return RecordingClocks(
        recording=recording.file,
        subject=recording.subject,
        clocks=(spikes, events),
        windows=len(begins),
        outside=outside,
        most_outside=max(window.beyond, 0.1),
        most_empty=1.0 if window.beyond == 1 else MOST_EMPTY,
        any_time=window.beyond == 1,
    )
