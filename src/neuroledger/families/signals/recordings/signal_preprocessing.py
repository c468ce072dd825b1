"""Preprocessing of recordings into windows; all steps are declared, run in a fixed order, and are part of the identity."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field, PositiveFloat

from neuroledger.data.arrays import Array
from neuroledger.data.clocks import Clock, LeftOut, RecordingClocks
from neuroledger.data.facts import Fact, Origin
from neuroledger.errors import DataError, package_missing, some_of
from neuroledger.families.signals.bands import named_by
from neuroledger.families.signals.clocks.channel_rates import at_one_rate
from neuroledger.families.signals.clocks.clock_facts import count_by_label, note_clocks
from neuroledger.families.signals.clocks.timelines import (
    Placed,
    Timed,
    Timeline,
    is_event,
    place,
    rate_of,
    timed_events,
    timeline_of,
)
from neuroledger.families.signals.recordings.beyond_ends import (
    lost_markers,
    note_left_out,
    require_few,
    unscaled,
)
from neuroledger.families.signals.recordings.signal_spans import (
    AnnotationFile,
    Span,
    annotated_spans,
    annotation_file_of,
    read_annotation_file,
    stimulus_spans,
)
from neuroledger.families.signals.recordings.signal_stimuli import (
    Events,
    require_compatible,
    rows_of,
    show,
)
from neuroledger.families.signals.recordings.signal_windows import (
    Window,
    WindowLayout,
    lay,
    within_recording,
)
from neuroledger.families.signals.recordings.window_store import join
from neuroledger.families.signals.signals import signals
from neuroledger.families.signals.units import require_plausible
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    from mne import BaseEpochs
    from mne.io import BaseRaw

__all__ = [
    "UNTOUCHED",
    "Notch",
    "Preprocessing",
    "Recording",
    "RecordingScale",
    "called_as_declared",
    "join",
    "metadata_of",
    "quiet_mne",
    "windows_of",
    "windows_of_epochs",
]

Positive = PositiveFloat
SCALES: Mapping[str, float] = {
    "V": 1.0,
    "mV": 1e3,
    "uV": 1e6,
    "T": 1.0,
    "fT": 1e15,
    "arbitrary": 1.0,
}


class Recording(Frozen):
    """One file of a data set with its subject; `facts` about it (age, diagnosis, release) become coordinates."""

    file: str
    subject: str
    session: str = "1"
    run: str = "1"
    facts: dict[str, str | float] = Field(default_factory=dict)

    @property
    def known(self) -> dict[str, str | float]:
        """Subject, session, run and the facts."""
        return {
            "subject": self.subject,
            "session": self.session,
            "run": self.run,
            **self.facts,
        }


class RecordingScale(Frozen):
    """Scaling by each channel's statistics over the whole recording, before the baseline is subtracted.

    `how` is `robust` (median and interquartile range) or `standard` (mean and standard deviation); a channel that does
    not vary is only centred. This is the order of NeuralBench.
    """

    of: Literal["recording"]
    before: Literal["baseline"] = "baseline"
    how: Literal["robust", "standard"] = "robust"


class Notch(Frozen):
    """Frequencies that are filtered out, with their multiples up to `harmonics` Hz."""

    at: Annotated[tuple[Positive, ...], Field(min_length=1)]
    harmonics: Positive


class Preprocessing(Frozen):
    """Steps of preprocessing, in the order in which they run; a step that is not declared is skipped.

    names, types, choice of channels → reference → notch → band filter → bands → resample → cut → baseline → scale → clamp.
    `strip` removes prefixes and suffixes of channel names (`EEG `, `-REF`), and `rename` renames channels that occur.
    `channels` are the channels to keep, in this order and regardless of case; `shared` keeps those that all recordings
    have, in the order of the first (in `mne_epochs`, `bids_epochs` and `matlab_epochs`). `drop` removes channels by name,
    `*` for any characters. In `pick`, `meg` is magnetometers and gradiometers without reference channels.
    `stated` is the unit of the values of a file that states no unit or a wrong one, for which MNE assumes volts. Implausible
    amplitudes are refused, unless `units` is `arbitrary`.
    Filters are MNE's finite impulse response filters; with `filter: iir`, they are its Butterworth filters of fourth order,
    applied forwards and backwards, as in MOABB. `bands` copies the recording for each band in Hz, channels of the first band
    first, named `C3 8-12 Hz`.
    `upsample: false` refuses recordings with fewer samples per second than `resample`.
    The baseline is in seconds from the event; `scale` uses each channel's own statistics over its recording's windows, or
    with `{of: recording, before: baseline}` over the whole recording before it is cut and the baseline is subtracted.
    """

    strip: tuple[str, ...] = ()
    rename: dict[str, str] = Field(default_factory=dict)
    channels: tuple[str, ...] | Literal["shared"] = ()
    types: dict[str, str] = Field(default_factory=dict)
    drop: tuple[str, ...] = ()
    pick: tuple[str, ...] = ("eeg",)
    reference: Literal["average"] | tuple[str, ...] | None = None
    notch: tuple[Positive, ...] | Notch = ()
    high_pass: Positive | None = None
    low_pass: Positive | None = None
    filter: Literal["fir", "iir"] = "fir"
    bands: tuple[tuple[Positive, Positive], ...] = ()
    resample: Positive | None = None
    upsample: Annotated[bool, Field(exclude_if=bool)] = True
    baseline: tuple[float, float] | None = None
    scale: Literal["robust", "standard"] | RecordingScale | None = None
    clamp: Positive | None = None
    units: Literal["V", "mV", "uV", "T", "fT", "arbitrary"] = "uV"
    stated: Literal["V", "mV", "uV"] = "V"


UNTOUCHED = Preprocessing()


@contextmanager
def quiet_mne() -> Iterator[ModuleType]:
    """Context in which MNE logs no warnings.

    Raises
    ------
    UnavailableError
        MNE is not installed.
    """
    try:
        import mne
    except ImportError as error:
        raise package_missing("mne") from error
    with warnings.catch_warnings(), mne.use_log_level("ERROR"):
        warnings.simplefilter("ignore")
        yield mne


def windows_of(
    raw: BaseRaw,
    recording: Recording,
    window: Window,
    steps: Preprocessing,
    *,
    sha256: str,
    columns: Mapping[str, Array] | None = None,
    partner: tuple[AnnotationFile, Mapping[str, Path]] | None = None,
    events: Events | None = None,
    rows: Sequence[Mapping[str, str]] | None = None,
) -> xr.DataArray | None:
    """Signals of one recording, (presentation, channel, sample); None if it has no windows and none are required.

    Parameters
    ----------
    raw
        MNE's `Raw`, modified in place.
    sha256
        Hash of the file, which becomes the coordinate `recording_sha256`.
    columns
        Further fields of the recording's annotations, one value per annotation, in the same order.
    partner
        The rule for a separate file of annotations, and all files by name.
    events
        Which events become windows and their stimuli, instead of the labels of `window`.
    rows
        The table of these events; by default, the recording's annotations.

    Raises
    ------
    DataError
        A declared channel or event does not occur, or no window is within the recording.
    """
    with quiet_mne():
        require_compatible(events, window)
        describe = window.described(recording.known, recording.file)
        timeline = timeline_of(raw)
        stated_rate = rate_of(raw)
        timed = timed_events(raw)
        if partner is not None:
            timed = Timed(
                "stated", f"a separate file, aligned: {partner[0].aligned or 'start'}"
            )
            spans = _partner_spans(
                raw, recording, window, *partner, describe, select=events is None
            )
        else:
            select = events is None and not window.some and bool(window.meant)
            is_known = None
            if select:
                is_known = _means(window, describe)
            # Before the recording is resampled: annotations may count its samples. A stimulus channel is seldom picked,
            # and its codes do not survive a filter.
            if rows is not None:
                codes = []
            else:
                codes = stimulus_spans(raw, is_known)
            spans = _renamed(annotated_spans(raw) + codes, describe)
        raw, pieces, remarks = _prepared(
            raw, timeline, steps, window.duration, recording.file
        )
        rate = float(raw.info["sfreq"])
        if steps.resample is None:
            stated_rate = replace(stated_rate, value=rate)  # of the picked channels
        if len(timeline.parts) > 1:
            seconds = timeline.seconds
        else:
            seconds = raw.n_times / rate
        markers = 0
        if partner is None and rows is None:
            # With `events`, columns decide which events count; a lost marker has no columns.
            is_meant: Callable[[str], bool] = bool
            if events is None:
                is_meant = _means(window, describe)
            markers = lost_markers(raw, is_meant)
        if events is None:
            layout = lay(
                window,
                spans,
                seconds,
                columns or {},
                recording.file,
                complete=partner is None,
            )
        else:
            if rows is None:
                table: Sequence[Mapping[str, str]] = rows_of(
                    spans, columns or {}, recording.file
                )
            else:
                table = rows
            layout = show(events, table, recording.file)
        if (window.countdown is not None or window.some) and not layout.onsets:
            return None
        fitted = _fitted(window, layout.onsets, timeline, pieces, rate, seconds)
        message = f"{recording.file}: no window of {window.duration:g} s is within the recording"
        if timeline.gaps:
            message += f", whose {len(timeline.parts)} parts last {_lasting(timeline)}"
        if not fitted.inside.any() and not window.some:
            raise DataError(message)
        by_events = (
            events is not None or window.stride is None or window.laid_over == "events"
        )
        counts = (0, 0, 0)
        if by_events:
            lost = require_few(
                fitted.first[fitted.expected],
                fitted.length,
                fitted.samples,
                markers,
                window.beyond,
                recording.file,
            )
            counts = (lost, int(fitted.expected.sum()), markers)
        if rows is not None:
            spans = onsets_as_spans(layout)
        clocks = _clocks_of(recording, timeline, stated_rate, spans, timed, remarks)
        left_out = fitted.left_out(layout, by_events=by_events)
        if not fitted.inside.any():
            if counts[0] and window.beyond < 1:
                raise DataError(f"{message}, and {counts[0]} reach beyond it")
            return None
        chosen = np.flatnonzero(fitted.inside)
        values = _cut(pieces, fitted, chosen, len(raw.ch_names))
        scaling = _scaling_of_recording(pieces, steps)
        del pieces
        missing = np.isnan(values).any(axis=(1, 2))
        if 0 < missing.sum() <= window.beyond * len(values):
            lacking = np.zeros(len(fitted.first), dtype=bool)
            lacking[chosen[missing]] = True
            left_out += count_by_label("with missing samples", layout.extra, lacking)
            values = values[~missing]
            chosen = chosen[~missing]
        known = {"windows": len(chosen), "left_out": tuple(left_out)}
        clocks = clocks.model_copy(update=known)
    offset = round(window.start * rate)
    windows = _as_signals(
        values, raw, recording, layout, chosen, offset, steps, sha256, scaling
    )
    return note_left_out(note_clocks(windows, clocks), recording.file, *counts)


def _means(window: Window, describe: Callable[[str], str]) -> Callable[[str], bool]:
    """Whether an event of a recording is one that the window is cut around, by its own text."""
    return lambda text: window.means(describe(text))


class _Fitted(NamedTuple):
    """Windows of a recording, and which of them can be cut.

    ``first`` and ``samples`` are by the clock of the recording, whose gaps count; ``within`` and ``expected`` are the
    windows, and the events, in the stretch that is declared.
    """

    placed: Placed
    first: Array
    length: int
    samples: int
    within: Array
    expected: Array

    @property
    def inside(self) -> Array:
        return np.asarray(self.placed.inside & self.within)

    def left_out(self, layout: WindowLayout, *, by_events: bool) -> list[LeftOut]:
        """The windows that cannot be cut, by reason and label; only events reach beyond the ends."""
        across = self.placed.across & self.expected & self.within
        beyond = (self.placed.before | self.placed.after) & self.expected & by_events
        return [
            *count_by_label("across a gap", layout.extra, across),
            *count_by_label("beyond the ends", layout.extra, beyond),
        ]


def _fitted(
    window: Window,
    onsets: Sequence[float],
    timeline: Timeline,
    pieces: Sequence[Array | None],
    rate: float,
    seconds: float,
) -> _Fitted:
    """Place the windows after these onsets (s) in the parts of a recording of this rate and length."""
    offset = round(window.start * rate)
    length = round(window.duration * rate)
    begins = np.array([part.begin for part in timeline.parts])
    sizes = np.array([0 if piece is None else piece.shape[1] for piece in pieces])
    placed = place(onsets, offset, length, rate, begins, sizes)
    first = np.array([round(onset * rate) + offset for onset in onsets], dtype=int)
    samples = round(seconds * rate)
    begin, end = window.within or (0.0, seconds)
    starts_within = first >= max(0, round(begin * rate))
    within = starts_within & (first + length <= min(samples, round(end * rate)))
    expected = np.ones(len(first), dtype=bool)
    if window.within is not None:
        moments = np.asarray(onsets)
        expected = (moments >= begin) & (moments <= end)
    return _Fitted(placed, first, length, samples, within, expected)


def _cut(
    pieces: Sequence[Array | None], fitted: _Fitted, chosen: Array, channels: int
) -> Array:
    """The values of the chosen windows, (window, channel, sample)."""
    values = np.empty((len(chosen), channels, fitted.length))
    parts = fitted.placed.part[chosen]
    starts = fitted.placed.first[chosen]
    for row, (number, at) in enumerate(zip(parts, starts, strict=True)):
        piece = pieces[number]
        assert piece is not None
        values[row] = piece[:, at : at + fitted.length]
    return values


def _lasting(timeline: Timeline) -> str:
    """How long the parts of a recording last."""
    lengths = [part.samples / timeline.rate for part in timeline.parts]
    return f"{min(lengths):.4g} to {max(lengths):.4g} s"


def onsets_as_spans(layout: WindowLayout) -> list[Span]:
    """The events of windows that a table lists, as spans without duration."""
    return [
        Span(onset, 0.0, name)
        for onset, name in zip(layout.onsets, layout.names, strict=True)
    ]


def _prepared(
    raw: BaseRaw, timeline: Timeline, steps: Preprocessing, shortest: float, file: str
) -> tuple[BaseRaw, list[Array | None], list[str]]:
    """The recording after all steps, the values of each of its parts (channel, sample), and remarks on its channels.

    Each part is filtered and resampled by itself, so that nothing crosses a gap; None for a part shorter than `shortest`
    seconds, which contains no window. The returned recording describes the channels of all parts.
    """
    if len(timeline.parts) == 1 and timeline.parts[0].samples == raw.n_times:
        raw, remarks = _prepare(raw, steps, file)
        return raw, [raw.get_data()], remarks
    values: list[Array | None] = []
    first: BaseRaw | None = None
    remarks = []
    for part in timeline.parts:
        if part.samples < shortest * timeline.rate - 0.5:
            values.append(None)
            continue
        last = (part.first + part.samples - 1) / timeline.rate
        cut = raw.copy().crop(part.first / timeline.rate, last)
        cut, remarks = _prepare(cut, steps, file)
        values.append(cut.get_data())
        if first is None:
            first = cut
    if first is None:
        raise DataError(
            f"{file}: its {len(timeline.parts)} parts last {_lasting(timeline)}, shorter than a window of {shortest:g} s"
        )
    return first, values, remarks


def _clocks_of(
    recording: Recording,
    timeline: Timeline,
    rate: Fact,
    spans: Sequence[Span],
    timed: Timed,
    remarks: Sequence[str],
) -> RecordingClocks:
    """The clocks of a recording's samples and events."""
    onsets = [span.onset for span in spans if is_event(span.description)]
    samples = Clock(
        of="samples",
        unit=Fact("s", rate.origin),
        start=round(timeline.parts[0].begin, 6),
        stop=round(timeline.seconds, 6),
        rate=rate,
        gaps=timeline.gaps,
        count=sum(part.samples for part in timeline.parts),
    )
    events = Clock(
        of="events",
        unit=Fact("s", timed.origin),
        start=round(min(onsets), 6) if onsets else None,
        stop=round(max(onsets), 6) if onsets else None,
        count=len(onsets),
        aligned=timed.aligned,
    )
    return RecordingClocks(
        recording=recording.file,
        subject=recording.subject,
        clocks=(samples, events),
        windows=0,
        notes=tuple(remarks),
    )


def windows_of_epochs(
    epochs: BaseEpochs,
    recording: Recording,
    window: Window,
    steps: Preprocessing,
    *,
    sha256: str,
    columns: Mapping[str, Array] | None = None,
) -> xr.DataArray:
    """Signals of a recording that is stored as epochs, (presentation, channel, sample): the window within each epoch.

    The label is that of the epoch's event. Filters are refused, because they distort the edges of short epochs.

    Parameters
    ----------
    epochs
        MNE's `Epochs`, modified in place.
    columns
        Further fields of the epochs, one value per epoch.

    Raises
    ------
    DataError
        A channel or event does not occur, the window reaches beyond the epochs, or a step needs a continuous recording.
    """
    unsupported = [
        name
        for name in ("notch", "high_pass", "low_pass", "bands")
        if getattr(steps, name)
    ]
    if isinstance(steps.scale, RecordingScale):
        raise DataError(
            f"{recording.file} contains epochs, not the recording they were cut from: use `scale: {steps.scale.how}`"
        )
    if unsupported:
        raise DataError(
            f"{recording.file} contains epochs, which are too short for filters: remove {', '.join(unsupported)}, or "
            "filter the recording before it is cut"
        )
    if window.stride is not None or window.within is not None:
        raise DataError(
            f"{recording.file} contains epochs: `stride` and `within` apply to continuous recordings only"
        )
    with quiet_mne():
        names = {code: name for name, code in epochs.event_id.items()}
        describe = window.described(recording.known, recording.file)
        spans = [
            Span(onset, 0.0, describe(names[int(code)]))
            for onset, code in zip(_onsets(epochs), epochs.events[:, 2], strict=True)
        ]
        epochs, _ = _prepare(epochs, steps, recording.file)
        rate = float(epochs.info["sfreq"])
        numbers = np.arange(len(spans))
        layout = lay(
            window, spans, np.inf, {**(columns or {}), "epoch": numbers}, recording.file
        )
        rows = np.array(layout.extra["epoch"], dtype=int)
        begin = round(window.start * rate)
        length = round(window.duration * rate)
        first_sample = begin - round(float(epochs.times[0]) * rate)
        if first_sample < 0 or first_sample + length > len(epochs.times):
            last = float(epochs.times[-1]) + 1 / rate
            raise DataError(
                f"{recording.file}: the window from {window.start:g} to {window.start + window.duration:g} s reaches "
                f"beyond its epochs, which last from {epochs.times[0]:g} to {last:g} s: shorten it"
            )
        values = epochs.get_data(copy=False)[
            rows, :, first_sample : first_sample + length
        ].astype(float)
    windows = _as_signals(
        values, epochs, recording, layout, np.arange(len(rows)), begin, steps, sha256
    )
    return note_clocks(windows, _clocks_of_epochs(epochs, recording, spans, len(rows)))


def _clocks_of_epochs(
    epochs: BaseEpochs, recording: Recording, spans: Sequence[Span], windows: int
) -> RecordingClocks:
    """The clocks of epochs: the rate of their samples, and the times of their events in the recording they were cut from."""
    onsets = [span.onset for span in spans]
    known: Origin = "assumed" if _unplaced(epochs) else "stated"
    rate = Fact(float(epochs.info["sfreq"]), "stated")
    samples = Clock(
        of="samples",
        unit=Fact("s", "stated"),
        rate=rate,
        count=len(spans) * len(epochs.times),
    )
    events = Clock(
        of="events",
        unit=Fact("s", known),
        start=round(min(onsets), 6) if onsets else None,
        stop=round(max(onsets), 6) if onsets else None,
        count=len(onsets),
        aligned="one epoch after another" if known == "assumed" else "the same clock",
    )
    return RecordingClocks(
        recording=recording.file,
        subject=recording.subject,
        clocks=(samples, events),
        windows=windows,
    )


def _onsets(epochs: BaseEpochs) -> list[float]:
    """Times of the epochs' events, in seconds of the recording that the epochs were cut from."""
    samples = epochs.events[:, 0].astype(float)
    if _unplaced(epochs):
        return [
            float(number) * len(epochs.times) / epochs.info["sfreq"]
            for number in range(len(samples))
        ]
    # An array with one element if MNE read it from a file.
    rate = float(np.max(getattr(epochs, "_raw_sfreq", None) or epochs.info["sfreq"]))
    return [float(sample) / rate for sample in samples]


def _unplaced(epochs: BaseEpochs) -> bool:
    """Whether the times of epochs are unknown; MNE numbers epochs made of arrays, which are placed one after another."""
    samples = epochs.events[:, 0]
    return len(samples) > 1 and bool((np.diff(samples) == 1).all())


def metadata_of(
    epochs: BaseEpochs, names: Sequence[str], file: str
) -> dict[str, Array]:
    """Columns of the metadata of epochs.

    Raises
    ------
    DataError
        The epochs have no metadata, or lack a column.
    """
    if epochs.metadata is None:
        known = []
    else:
        known = list(map(str, epochs.metadata.columns))
    missing = sorted(set(names) - set(known))
    if missing:
        raise DataError(
            f"{file}: its epochs have no metadata {', '.join(missing)}; they have {', '.join(known) or 'none'}"
        )
    columns = {name: epochs.metadata[name].to_numpy() for name in names}
    return {
        name: value if value.dtype.kind in "iufb" else value.astype(str)
        for name, value in columns.items()
    }


def _as_signals(
    window_values: Array,
    source: BaseRaw | BaseEpochs,
    recording: Recording,
    layout: WindowLayout,
    rows: Array,
    offset: int,
    steps: Preprocessing,
    sha256: str,
    scaling: tuple[Array, Array] | None = None,
) -> xr.DataArray:
    """Windows in MNE's units as signals, after conversion of units, baseline and scaling; `window_values` is modified.

    `rows` are the windows of the layout that were cut; `offset` is the number of samples from the event to the window.
    `scaling` is the centre and spread of each channel over the whole recording, in MNE's units, if these scale it.
    """
    import mne

    rate = float(source.info["sfreq"])
    _require_finite(window_values, source.ch_names, recording.file)
    factor = SCALES[steps.units] / SCALES[steps.stated]
    window_values *= factor
    types = [
        mne.channel_type(source.info, index) for index in range(len(source.ch_names))
    ]
    positions = np.array(
        [channel["loc"][:3] for channel in source.info["chs"]], dtype=float
    )
    spread = np.median(window_values.std(axis=2), axis=0)
    kinds = {
        kind: float(np.median(spread[np.array(types) == kind])) for kind in set(types)
    }
    require_plausible(kinds, steps.units, recording.file)
    if scaling is not None:
        centre, channel_spread = scaling
        window_values -= factor * centre[:, None]
        window_values /= factor * channel_spread[:, None]
    positions[~np.isfinite(positions).all(axis=1) | (positions == 0).all(axis=1)] = (
        np.nan
    )
    if steps.baseline is not None:
        times = (offset + np.arange(window_values.shape[2])) / rate
        _subtract_baseline(window_values, times, steps.baseline, recording.file)
    _scale(window_values, steps)
    facts = {
        "stimulus_id": np.array(layout.names)[rows],
        "onset": np.array(layout.onsets, dtype=float)[rows],
        **{name: np.asarray(values)[rows] for name, values in layout.extra.items()},
    }
    facts |= {
        name: np.full(len(rows), getattr(recording, name))
        for name in ("subject", "session", "run")
    }
    facts |= {name: np.full(len(rows), fact) for name, fact in recording.facts.items()}
    facts["recording"] = np.full(len(rows), recording.file)
    facts["recording_sha256"] = np.full(len(rows), sha256)
    return signals(
        window_values.astype(np.float32),
        channels=source.ch_names,
        channel_types=types,
        sampling_rate=rate,
        start=offset / rate,
        units="robust" if steps.scale else steps.units,
        events=facts,
        positions=positions,
    )


def _subtract_baseline(
    values: Array, times: Array, baseline: tuple[float, float], file: str
) -> None:
    """Subtract the mean of each channel between two times from windows (window, channel, sample), in place."""
    inside = (times >= baseline[0]) & (times <= baseline[1])
    if not inside.any():
        raise DataError(
            f"{file}: the baseline {baseline} is outside the window: change one of them"
        )
    values -= values[:, :, inside].mean(axis=2, keepdims=True)


def _partner_spans(
    raw: BaseRaw,
    recording: Recording,
    window: Window,
    rule: AnnotationFile,
    files: Mapping[str, Path],
    describe: Callable[[str], str],
    *,
    select: bool,
) -> list[Span]:
    """The annotations in the recording's separate file; with `select`, only those that the window or rule knows."""
    seconds = raw.n_times / float(raw.info["sfreq"])
    name = annotation_file_of(rule, recording.file, files)
    spans = _renamed(read_annotation_file(files[name], name, rule, raw), describe)
    if select:
        return within_recording(spans, window, rule, seconds, name)
    return spans


def _renamed(spans: Sequence[Span], describe: Callable[[str], str]) -> list[Span]:
    return [span._replace(description=describe(span.description)) for span in spans]


def _prepare(
    raw: BaseRaw, steps: Preprocessing, file: str
) -> tuple[BaseRaw, list[str]]:
    """The recording after all steps before the cut, which modify it, and remarks on its channels."""
    without_range = unscaled(raw)
    names = _choose_channels(raw, steps, file)
    dropped = [
        name for pattern in steps.drop for name in _matching(pattern, raw.ch_names)
    ]
    unknown = sorted({*steps.types, *dropped} - set(raw.ch_names))
    if unknown:
        raise DataError(
            f"{file} has no channel {', '.join(unknown)}; it has {', '.join(raw.ch_names[:40])}"
        )
    if steps.types:
        raw.set_channel_types(steps.types)
    raw.drop_channels(list(dict.fromkeys(dropped)))
    try:
        raw.pick(
            [
                kind
                for pick in steps.pick
                for kind in (("mag", "grad") if pick == "meg" else (pick,))
            ]
        )
    except ValueError as error:
        raise DataError(
            f"{file} has no channels of type {', '.join(steps.pick)}"
        ) from error
    unknown_unit = sorted(
        names[name] for name in without_range if names.get(name) in raw.ch_names
    )
    if unknown_unit:
        raise DataError(
            f"{file}: its header has no range of values for {', '.join(unknown_unit)}, so their unit is unknown: drop them, "
            f"`preprocessing: {{drop: [{', '.join(unknown_unit)}]}}`, or ask the publisher"
        )
    _require_rate(raw, steps, file)
    raw, remarks = at_one_rate(raw, names, steps.resample, file)
    # Only now, so that only picked channels are in memory.
    raw.load_data()
    if steps.reference is not None:
        reference = "average" if steps.reference == "average" else list(steps.reference)
        try:
            raw.set_eeg_reference(reference)
        except ValueError as error:
            raise DataError(
                f"{file} cannot be referenced to {reference}: {error}"
            ) from error
    half = float(raw.info["sfreq"]) / 2
    notches = _notches(steps.notch, half)
    if notches:
        raw.notch_filter(notches, picks="all")
    if steps.low_pass is not None and steps.low_pass >= half:
        raise DataError(
            f"{file} has {2 * half:g} samples per second, and nothing above {half:g} Hz to filter out: remove `low_pass`"
        )
    if steps.high_pass is not None or steps.low_pass is not None:
        # All picked channels: by default, MNE does not filter EMG, EOG and other types.
        raw.filter(steps.high_pass, steps.low_pass, picks="all", method=steps.filter)
    if steps.bands:
        _split(raw, steps, file)
    if steps.resample is not None and steps.resample != raw.info["sfreq"]:
        raw.resample(steps.resample)
    return raw, remarks


def _notches(notch: tuple[float, ...] | Notch, half: float) -> list[float]:
    """The frequencies below half the sampling rate that are filtered out."""
    if not isinstance(notch, Notch):
        return [hertz for hertz in notch if hertz < half]
    multiples = {
        base * number
        for base in notch.at
        for number in range(1, int(notch.harmonics // base) + 1)
    }
    return sorted(hertz for hertz in multiples if hertz < half)


def _require_rate(raw: BaseRaw, steps: Preprocessing, file: str) -> None:
    """Refuse a recording with fewer samples per second than are declared, unless it may be resampled to more."""
    rate = float(raw.info["sfreq"])
    if not steps.upsample and steps.resample is not None and rate < steps.resample:
        raise DataError(
            f"{file} was recorded with {rate:g} samples per second, and {steps.resample:g} are needed"
        )


def _split(raw: BaseRaw, steps: Preprocessing, file: str) -> None:
    """Replace the channels by a filtered copy for each band, in place."""
    half = float(raw.info["sfreq"]) / 2
    invalid = [band for band in steps.bands if not band[0] < band[1] < half]
    if invalid:
        low, high = invalid[0]
        raise DataError(
            f"{file}: the band {low:g} to {high:g} Hz does not fit between 0 and {half:g} Hz"
        )
    parts = []
    for low, high in steps.bands:
        part = raw.copy().filter(low, high, picks="all", method=steps.filter)
        parts.append(
            part.rename_channels(
                {name: named_by(name, low, high) for name in raw.ch_names}
            )
        )
    names = list(raw.ch_names)
    raw.add_channels(parts, force_update_info=True)
    raw.drop_channels(names)


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that match a pattern with `*`; the pattern itself if it has none."""
    if "*" in pattern:
        return [name for name in names if fnmatchcase(name, pattern)]
    return [pattern]


def called_as_declared(
    names: Sequence[str], steps: Preprocessing, file: str
) -> dict[str, str]:
    """The names of channels after `strip` and `rename`, by their names in the file.

    Raises
    ------
    DataError
        Two channels would have the same name.
    """
    renamed = {}
    for name in names:
        short = name
        for part in steps.strip:
            short = short.removeprefix(part).removesuffix(part)
        short = short.strip() or name
        renamed[name] = steps.rename.get(short, short)
    repeated = {
        name for name in renamed.values() if list(renamed.values()).count(name) > 1
    }
    if repeated:
        raise DataError(
            f"{file}: after `strip` and `rename`, two channels are named {sorted(repeated)[0]}"
        )
    return renamed


def _choose_channels(raw: BaseRaw, steps: Preprocessing, file: str) -> dict[str, str]:
    """Pick and rename the channels in place; return their new names by those in the file."""
    renamed = called_as_declared(raw.ch_names, steps, file)
    if steps.channels == "shared":
        raise DataError(
            f"{file}: this reader does not support `channels: shared`: list the channels"
        )
    if steps.channels:
        known = {short.lower(): name for name, short in renamed.items()}
        missing = [name for name in steps.channels if name.lower() not in known]
        if missing:
            raise DataError(
                f"{file} has no channel {', '.join(missing)}; it has {', '.join(renamed.values())}"
            )
        raw.pick([known[name.lower()] for name in steps.channels])
        renamed = {known[name.lower()]: name for name in steps.channels}
    changed = {name: short for name, short in renamed.items() if name != short}
    if changed:
        raw.rename_channels(changed)
    return renamed


def _require_finite(values: Array, channels: Sequence[str], file: str) -> None:
    """Return if all values of the windows (window, channel, sample) are finite."""
    invalid: Array = np.asarray(~np.isfinite(values).all(axis=2))
    if invalid.any():
        names = [
            channels[index] for index in np.flatnonzero(invalid.any(axis=0)).tolist()
        ]
        raise DataError(
            f"{file}: {int(invalid.any(axis=1).sum())} of {len(values)} windows have missing or infinite values, in "
            f"channels {some_of(names, 6)} (filters spread a gap over the whole channel): "
            "`drop` these channels, or leave the recording out"
        )


def _scaling_of_recording(
    pieces: Sequence[Array | None], steps: Preprocessing
) -> tuple[Array, Array] | None:
    """Centre and spread of each channel over all parts of a recording, if these scale it."""
    if not isinstance(steps.scale, RecordingScale):
        return None
    known = [piece for piece in pieces if piece is not None]
    if len(known) == 1:
        whole = known[0]
    else:
        whole = np.concatenate(known, axis=1)
    return _centre_and_spread(whole, steps.scale.how, axis=1)


def _centre_and_spread(
    values: Array, how: Literal["robust", "standard"], axis: int | tuple[int, ...]
) -> tuple[Array, Array]:
    """Centre and spread of each channel; the spread of a channel that does not vary is 1."""
    if how == "robust":
        low, centre, high = np.percentile(values, [25, 50, 75], axis=axis)
        spread = high - low
    else:
        centre = values.mean(axis=axis)
        spread = values.std(axis=axis)
    return centre, np.where(spread > 0, spread, 1.0)


def _scale(values: Array, steps: Preprocessing) -> None:
    """Scale and clamp the windows of a recording, in place; scaling over the recording was applied before the baseline."""
    if isinstance(steps.scale, str):
        centre, spread = _centre_and_spread(values, steps.scale, axis=(0, 2))
        values -= centre[:, None]
        values /= spread[:, None]
    if steps.clamp is not None:
        np.clip(values, -steps.clamp, steps.clamp, out=values)
