"""From a continuous recording to windows: every step declared, in one fixed order, and part of the data set's identity."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field

from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.signals.bands import named_by
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
from neuroledger.families.signals.recordings.signal_stimuli import Events, alone, rows_of, show
from neuroledger.families.signals.recordings.signal_windows import Window, WindowLayout, lay, within_recording
from neuroledger.families.signals.recordings.window_store import join
from neuroledger.families.signals.signals import signals
from neuroledger.families.signals.units import require_plausible
from neuroledger.spec.base import Frozen

__all__ = [
    "UNTOUCHED",
    "Preprocessing",
    "Recording",
    "called_as_declared",
    "join",
    "metadata_of",
    "quiet_mne",
    "windows_of",
    "windows_of_epochs",
]

Array = npt.NDArray[Any]
Positive = Annotated[float, Field(gt=0)]
SCALES: Mapping[str, float] = {"V": 1.0, "mV": 1e3, "uV": 1e6, "T": 1.0, "fT": 1e15, "arbitrary": 1.0}


class Recording(Frozen):
    """One file of a data set and whose it is; `facts` about it (age, diagnosis, release) become coordinates."""

    file: str
    subject: str
    session: str = "1"
    run: str = "1"
    facts: dict[str, str | float] = Field(default_factory=dict)

    @property
    def known(self) -> dict[str, str | float]:
        """Whose it is, and the facts."""
        return {"subject": self.subject, "session": self.session, "run": self.run, **self.facts}


class Preprocessing(Frozen):
    """Steps in the order in which they are done; what is absent is not done.

    names, types, choice of channels → reference → notch → band filter → bands → resample → cut → baseline → scale → clamp.
    `strip` takes beginnings and endings off the channels' names (`EEG `, `-REF`), `rename` gives those that occur another
    one; `channels` are those that are kept, in this order, whatever the case of their letters, or those that all recordings
    have, in the order of the first (`shared`, of `mne_epochs`, `bids_epochs` and `matlab_epochs`). `drop` takes out channels
    by name, `*` for any characters; in `pick`, `meg` is magnetometers and gradiometers and no reference away from the head.
    `stated` is the unit of the values of a file that states none, or a wrong one: MNE takes them for volts. Amplitudes that
    no such channel has are refused, unless `units` is `arbitrary`.
    Filters are MNE's of finite impulse response, or with `filter: iir` its Butterworth filters of fourth order, forwards and
    backwards, as MOABB's. `bands` keeps the recording once for each band in Hz, channels of the first band first, named
    `C3 8-12 Hz`.
    The baseline is in seconds from the event; `scale` uses each channel's own statistics over its recording's windows.
    """

    strip: tuple[str, ...] = ()
    rename: dict[str, str] = Field(default_factory=dict)
    channels: tuple[str, ...] | Literal["shared"] = ()
    types: dict[str, str] = Field(default_factory=dict)
    drop: tuple[str, ...] = ()
    pick: tuple[str, ...] = ("eeg",)
    reference: Literal["average"] | tuple[str, ...] | None = None
    notch: tuple[Positive, ...] = ()
    high_pass: Positive | None = None
    low_pass: Positive | None = None
    filter: Literal["fir", "iir"] = "fir"
    bands: tuple[tuple[Positive, Positive], ...] = ()
    resample: Positive | None = None
    baseline: tuple[float, float] | None = None
    scale: Literal["robust", "standard"] | None = None
    clamp: Positive | None = None
    units: Literal["V", "mV", "uV", "T", "fT", "arbitrary"] = "uV"
    stated: Literal["V", "mV", "uV"] = "V"


UNTOUCHED = Preprocessing()


@contextmanager
def quiet_mne() -> Iterator[Any]:
    """MNE, silent; its remarks about files are not the reader's answer.

    Raises
    ------
    UnavailableError
        It is not installed.
    """
    try:
        import mne
    except ImportError as error:
        raise UnavailableError("reading recordings needs MNE: pip install neuroledger[eeg]") from error
    with warnings.catch_warnings(), mne.use_log_level("ERROR"):
        warnings.simplefilter("ignore")
        yield mne


def windows_of(
    raw: Any,
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
    """Signals of one recording, (presentation, channel, sample); None where it has no windows and need not.

    Parameters
    ----------
    raw
        MNE's `Raw`; it is changed.
    sha256
        Of the file, kept as the coordinate `recording_sha256` of every window.
    columns
        Further facts about the recording's annotations, one value for each in their order.
    partner
        The rule by which the recording's annotations lie in another one of the files.
    events
        Which events are windows and what they show, in place of the labels of `window`.
    rows
        The table of these events; the recording's annotations where there is none.

    Raises
    ------
    DataError
        A named channel or event does not occur, or no window lies within the recording.
    """
    with quiet_mne():
        alone(events, window)
        called = window.described(recording.known, recording.file)
        known = events is None and not window.some and bool(window.meant)
        meant = (lambda text: window.means(called(text))) if known else None
        # Before the recording is resampled: annotations may count its samples.
        beside = (
            None
            if partner is None
            else _beside(raw, recording, window, *partner, called, all_of_them=events is not None)
        )
        # A stimulus channel is seldom picked, and its codes do not survive a filter.
        codes = stimulus_spans(raw, meant) if beside is None and rows is None else []
        _prepare(raw, steps, recording.file)
        rate = float(raw.info["sfreq"])
        spans = _renamed(annotated_spans(raw) + codes, called) if beside is None else beside
        markers = 0
        if beside is None and rows is None:
            # Which events count without labels is said by columns that a lost marker does not have.
            markers = lost_markers(raw, (lambda text: window.means(called(text))) if events is None else bool)
        if events is not None:
            table = rows_of(spans, columns or {}, recording.file) if rows is None else rows
            laid = show(events, table, recording.file)
        else:
            complete = beside is None
            laid = lay(window, spans, raw.n_times / rate, columns or {}, recording.file, complete=complete)
        onsets = laid.onsets
        if (window.countdown is not None or window.some) and not onsets:
            return None
        before = round(window.start * rate)
        first = np.array([round(onset * rate) + before for onset in onsets], dtype=int)
        length = round(window.duration * rate)
        begin, end = window.within or (0.0, raw.n_times / rate)
        inside = (first >= max(0, round(begin * rate))) & (
            first + length <= min(raw.n_times, round(end * rate))
        )
        nowhere = f"{recording.file}: no window of {window.duration:g} s lies within the recording"
        if not inside.any() and not window.some:
            raise DataError(nowhere)
        wanted = np.ones(len(first), dtype=bool)
        if window.within is not None:
            wanted = (np.asarray(onsets) >= begin) & (np.asarray(onsets) <= end)
        by_events = events is not None or window.stride is None or window.laid_over == "events"
        lost, of = 0, int(wanted.sum())
        if by_events:
            lost = require_few(first[wanted], length, raw.n_times, markers, window.beyond, recording.file)
        if not inside.any():
            if lost and window.beyond < 1:
                raise DataError(f"{nowhere}, and {lost} reach beyond it")
            return None
        data = raw.get_data()
        cut = np.empty((int(inside.sum()), len(data), length))
        for row, at in enumerate(first[inside]):
            cut[row] = data[:, at : at + length]
        del data
    found = _as_declared(cut, raw, recording, laid, np.flatnonzero(inside), before, steps, sha256)
    return note_left_out(found, recording.file, lost, of, markers) if by_events else found


def windows_of_epochs(
    epochs: Any,
    recording: Recording,
    window: Window,
    steps: Preprocessing,
    *,
    sha256: str,
    columns: Mapping[str, Array] | None = None,
) -> xr.DataArray:
    """Signals of a recording that was cut into epochs before, (presentation, channel, sample): a part of each epoch.

    The label is that of the epoch's event. Filters are refused: at this length they distort the edges.

    Parameters
    ----------
    epochs
        MNE's `Epochs`; it is changed.
    columns
        Facts about the epochs, one value for each.

    Raises
    ------
    DataError
        A channel or event does not occur, the window reaches beyond the epochs, or the steps are those of a continuous
        recording.
    """
    wrong = [name for name in ("notch", "high_pass", "low_pass", "bands") if getattr(steps, name)]
    if wrong:
        raise DataError(
            f"{recording.file} holds epochs, which are too short for filters: leave out {', '.join(wrong)}, or filter "
            "before the recording is cut"
        )
    if window.stride is not None or window.within is not None:
        raise DataError(
            f"{recording.file} holds epochs: `stride` and `within` are about continuous recordings"
        )
    with quiet_mne():
        names = {code: name for name, code in epochs.event_id.items()}
        called = window.described(recording.known, recording.file)
        spans = [
            Span(onset, 0.0, called(names[int(code)]))
            for onset, code in zip(_onsets(epochs), epochs.events[:, 2], strict=True)
        ]
        _prepare(epochs, steps, recording.file)
        rate = float(epochs.info["sfreq"])
        number = np.arange(len(spans))
        laid = lay(window, spans, np.inf, {**(columns or {}), "epoch": number}, recording.file)
        rows = np.array(laid.extra["epoch"], dtype=int)
        begin, length = round(window.start * rate), round(window.duration * rate)
        at = begin - round(float(epochs.times[0]) * rate)
        if at < 0 or at + length > len(epochs.times):
            last = float(epochs.times[-1]) + 1 / rate
            raise DataError(
                f"{recording.file}: its epochs last from {epochs.times[0]:g} to {last:g} s; the window from "
                f"{window.start:g} to {window.start + window.duration:g} s reaches beyond them"
            )
        cut = epochs.get_data(copy=False)[rows, :, at : at + length].astype(float)
    return _as_declared(cut, epochs, recording, laid, np.arange(len(rows)), begin, steps, sha256)


def _onsets(epochs: Any) -> list[float]:
    """Seconds at which the events of epochs lie in the recording that they were cut from."""
    samples = epochs.events[:, 0].astype(float)
    if len(samples) > 1 and (np.diff(samples) == 1).all():
        # MNE numbers epochs made of arrays in this way: when they were is not known, so they follow each other.
        return [float(number) * len(epochs.times) / epochs.info["sfreq"] for number in range(len(samples))]
    # An array of one, where MNE read it from a file.
    rate = float(np.max(getattr(epochs, "_raw_sfreq", None) or epochs.info["sfreq"]))
    return [float(sample) / rate for sample in samples]


def metadata_of(epochs: Any, names: Sequence[str], file: str) -> dict[str, Array]:
    """Columns of the metadata of epochs.

    Raises
    ------
    DataError
        They have no metadata, or not such a column.
    """
    known = [] if epochs.metadata is None else list(map(str, epochs.metadata.columns))
    lost = sorted(set(names) - set(known))
    if lost:
        raise DataError(
            f"{file}: its epochs have no metadata {', '.join(lost)}; they have {', '.join(known) or 'none'}"
        )
    columns = {name: epochs.metadata[name].to_numpy() for name in names}
    return {
        name: value if value.dtype.kind in "iufb" else value.astype(str) for name, value in columns.items()
    }


def _as_declared(
    cut: Array,
    source: Any,
    recording: Recording,
    laid: WindowLayout,
    kept: Array,
    before: int,
    steps: Preprocessing,
    sha256: str,
) -> xr.DataArray:
    """Windows in MNE's units, which are changed, as signals: unit, baseline, scale, and what is known of each.

    `kept` are the windows of the layout that were cut, `before` the samples from the event to a window's first one.
    """
    import mne

    rate = float(source.info["sfreq"])
    _without_gaps(cut, source.ch_names, recording.file)
    cut *= SCALES[steps.units] / SCALES[steps.stated]
    types = [mne.channel_type(source.info, index) for index in range(len(source.ch_names))]
    places = np.array([channel["loc"][:3] for channel in source.info["chs"]], dtype=float)
    spread = np.median(cut.std(axis=2), axis=0)
    kinds = {kind: float(np.median(spread[np.array(types) == kind])) for kind in set(types)}
    require_plausible(kinds, steps.units, recording.file)
    places[~np.isfinite(places).all(axis=1) | (places == 0).all(axis=1)] = np.nan
    if steps.baseline is not None:
        times = (before + np.arange(cut.shape[2])) / rate
        chosen = (times >= steps.baseline[0]) & (times <= steps.baseline[1])
        if not chosen.any():
            raise DataError(f"{recording.file}: the baseline {steps.baseline} lies outside the window")
        cut -= cut[:, :, chosen].mean(axis=2, keepdims=True)
    _scale(cut, steps)
    facts = {
        "stimulus_id": np.array(laid.names)[kept],
        "onset": np.array(laid.onsets, dtype=float)[kept],
        **{name: np.asarray(values)[kept] for name, values in laid.extra.items()},
    }
    facts |= {name: np.full(len(kept), getattr(recording, name)) for name in ("subject", "session", "run")}
    facts |= {name: np.full(len(kept), fact) for name, fact in recording.facts.items()}
    facts["recording"] = np.full(len(kept), recording.file)
    facts["recording_sha256"] = np.full(len(kept), sha256)
    return signals(
        cut.astype(np.float32),
        channels=source.ch_names,
        channel_types=types,
        sampling_rate=rate,
        start=before / rate,
        units="robust" if steps.scale else steps.units,
        events=facts,
        positions=places,
    )


def _beside(
    raw: Any,
    recording: Recording,
    window: Window,
    rule: AnnotationFile,
    files: Mapping[str, Path],
    called: Callable[[str], str],
    *,
    all_of_them: bool = False,
) -> list[Span]:
    """What the file of annotations beside the recording says of it: what means something, or all."""
    seconds = raw.n_times / float(raw.info["sfreq"])
    name = annotation_file_of(rule, recording.file, files)
    spans = _renamed(read_annotation_file(files[name], name, rule, raw), called)
    return spans if all_of_them else within_recording(spans, window, rule, seconds, name)


def _renamed(spans: Sequence[Span], called: Callable[[str], str]) -> list[Span]:
    return [span._replace(description=called(span.description)) for span in spans]


def _prepare(raw: Any, steps: Preprocessing, file: str) -> None:
    """Everything before the cut, in place."""
    without = unscaled(raw)
    called = _name(raw, steps, file)
    dropped = [name for said in steps.drop for name in _called(said, raw.ch_names)]
    unknown = sorted({*steps.types, *dropped} - set(raw.ch_names))
    if unknown:
        raise DataError(f"{file} has no channel {', '.join(unknown)}; it has {', '.join(raw.ch_names[:40])}")
    if steps.types:
        raw.set_channel_types(steps.types)
    raw.drop_channels(list(dict.fromkeys(dropped)))
    try:
        raw.pick([kind for said in steps.pick for kind in (("mag", "grad") if said == "meg" else (said,))])
    except ValueError as error:
        raise DataError(f"{file} has no channels of type {', '.join(steps.pick)}") from error
    wrong = sorted(called[name] for name in without if called.get(name) in raw.ch_names)
    if wrong:
        raise DataError(
            f"{file}: its header gives {', '.join(wrong)} no range of values, so that their unit is unknown: drop them, "
            f"`preprocessing: {{drop: [{', '.join(wrong)}]}}`, or ask who published it"
        )
    # Only now: what is not picked is never in memory.
    raw.load_data()
    if steps.reference is not None:
        wanted = "average" if steps.reference == "average" else list(steps.reference)
        try:
            raw.set_eeg_reference(wanted)
        except ValueError as error:
            raise DataError(f"{file} cannot be referenced to {wanted}: {error}") from error
    half = float(raw.info["sfreq"]) / 2
    notches = [hertz for hertz in steps.notch if hertz < half]
    if notches:
        raw.notch_filter(notches, picks="all")
    if steps.low_pass is not None and steps.low_pass >= half:
        raise DataError(
            f"{file} has {2 * half:g} samples a second, and nothing above {half:g} Hz to filter out: leave out `low_pass`"
        )
    if steps.high_pass is not None or steps.low_pass is not None:
        # All that were picked: left to itself, MNE passes muscles, eyes and the rest by.
        raw.filter(steps.high_pass, steps.low_pass, picks="all", method=steps.filter)
    if steps.bands:
        _split(raw, steps, file)
    if steps.resample is not None and steps.resample != raw.info["sfreq"]:
        raw.resample(steps.resample)


def _split(raw: Any, steps: Preprocessing, file: str) -> None:
    """The recording once for each band, in place."""
    half = float(raw.info["sfreq"]) / 2
    wrong = [band for band in steps.bands if not band[0] < band[1] < half]
    if wrong:
        low, high = wrong[0]
        raise DataError(f"{file}: the band {low:g} to {high:g} Hz does not fit between 0 and {half:g} Hz")
    parts = []
    for low, high in steps.bands:
        part = raw.copy().filter(low, high, picks="all", method=steps.filter)
        parts.append(part.rename_channels({name: named_by(name, low, high) for name in raw.ch_names}))
    names = list(raw.ch_names)
    raw.add_channels(parts, force_update_info=True)
    raw.drop_channels(names)


def _called(said: str, names: Sequence[str]) -> list[str]:
    """The channels that a text stands for: with `*`, zero or more that match."""
    return [name for name in names if fnmatchcase(name, said)] if "*" in said else [said]


def called_as_declared(names: Sequence[str], steps: Preprocessing, file: str) -> dict[str, str]:
    """What channels are called after `strip` and `rename`, by their names in the file.

    Raises
    ------
    DataError
        Two would have one name.
    """
    plain = {}
    for name in names:
        short = name
        for part in steps.strip:
            short = short.removeprefix(part).removesuffix(part)
        short = short.strip() or name
        plain[name] = steps.rename.get(short, short)
    twice = {name for name in plain.values() if list(plain.values()).count(name) > 1}
    if twice:
        raise DataError(f"{file}: as `strip` and `rename` say, two channels are called {sorted(twice)[0]}")
    return plain


def _name(raw: Any, steps: Preprocessing, file: str) -> dict[str, str]:
    """Choose the channels, under the names that are declared; these names by those of the file."""
    plain = called_as_declared(raw.ch_names, steps, file)
    if steps.channels == "shared":
        raise DataError(f"{file}: `channels: shared` is not known to this reader: name the channels")
    if steps.channels:
        known = {short.lower(): name for name, short in plain.items()}
        lost = [name for name in steps.channels if name.lower() not in known]
        if lost:
            raise DataError(f"{file} has no channel {', '.join(lost)}; it has {', '.join(plain.values())}")
        raw.pick([known[name.lower()] for name in steps.channels])
        plain = {known[name.lower()]: name for name in steps.channels}
    changed = {name: short for name, short in plain.items() if name != short}
    if changed:
        raw.rename_channels(changed)
    return plain


def _without_gaps(cut: Array, channels: Sequence[str], file: str) -> None:
    """Return if every value of the windows (window, channel, sample) is a number."""
    wrong: Array = np.asarray(~np.isfinite(cut).all(axis=2))
    if wrong.any():
        names = [channels[at] for at in np.flatnonzero(wrong.any(axis=0)).tolist()]
        raise DataError(
            f"{file}: {int(wrong.any(axis=1).sum())} of {len(cut)} windows have missing or infinite values, in channels "
            f"{', '.join(names[:6])}{', …' if names[6:] else ''} (filters spread a gap over all of a channel): `drop` these "
            "channels, or leave the recording out"
        )


def _scale(cut: Array, steps: Preprocessing) -> None:
    """Scale and clamp the windows of a recording, in place."""
    if steps.scale == "robust":
        low, middle, high = np.percentile(cut, [25, 50, 75], axis=(0, 2))
        cut -= middle[:, None]
        cut /= np.where(high > low, high - low, 1.0)[:, None]
    elif steps.scale == "standard":
        spread = cut.std(axis=(0, 2))
        cut -= cut.mean(axis=(0, 2))[:, None]
        cut /= np.where(spread > 0, spread, 1.0)[:, None]
    if steps.clamp is not None:
        np.clip(cut, -steps.clamp, steps.clamp, out=cut)
