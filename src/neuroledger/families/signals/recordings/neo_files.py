"""Formats of electrophysiology that neo reads: sampled signals, spike times and events."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, package_missing
from neuroledger.families.signals.recordings.beyond_ends import note_markers
from neuroledger.families.signals.recordings.signal_spans import Span
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    import neo
    import quantities as pq
    from mne.io import RawArray
    from neo.core.baseneo import BaseNeo

__all__ = [
    "NeoFiles",
    "Stretch",
    "companion_files",
    "loaded",
    "opens",
    "read_neo",
    "sampled",
    "spike_times",
]

Format = Literal[
    "AlphaOmega",
    "Axograph",
    "Axon",
    "BCI2000",
    "Blackrock",
    "Elan",
    "Intan",
    "Micromed",
    "NeoMatlab",
    "Neuralynx",
    "NeuroExplorer",
    "NeuroScope",
    "OpenEphys",
    "OpenEphysBinary",
    "Plexon",
    "RawMCS",
    "Spike2",
    "SpikeGLX",
    "SpikeGadgets",
    "Tdt",
    "WinEdr",
    "WinWcp",
]
# Suffixes of the file that identifies a recording. Left out are formats that need the vendor's software, a library that neo
# downloads, or a pickle, and those that MNE, pynwb or pyxdf read.
ENDINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "AlphaOmega": (".mpx",),
    "Axograph": (".axgx", ".axgd"),
    "Axon": (".abf",),
    "BCI2000": (".dat",),
    "Blackrock": (".nev", ".ns1", ".ns2", ".ns3", ".ns4", ".ns5", ".ns6"),
    "Elan": (".eeg",),
    "Intan": (".rhd", ".rhs"),
    "Micromed": (".trc",),
    "NeoMatlab": (".mat",),
    "Neuralynx": (".ncs", ".nev", ".nse", ".ntt"),
    "NeuroExplorer": (".nex",),
    "NeuroScope": (".xml",),
    "OpenEphys": (".continuous",),
    "OpenEphysBinary": (".oebin",),
    "Plexon": (".plx",),
    "RawMCS": (".raw",),
    "Spike2": (".smr",),
    "SpikeGLX": (".meta",),
    "SpikeGadgets": (".rec",),
    "Tdt": (".tbk", ".tsq"),
    "WinEdr": (".edr",),
    "WinWcp": (".wcp",),
}
FOLDERS: Final = frozenset(
    {"AlphaOmega", "Neuralynx", "OpenEphys", "OpenEphysBinary", "SpikeGLX", "Tdt"}
)
"""Formats in which a recording is a folder."""


class NeoFiles(Frozen):
    """The format of the files, and the signals and events to read.

    Attributes
    ----------
    format
        The name of neo's class without `IO`.
    signals
        Names of the signals that become channels, `*` for any characters; by default all, which must agree in rate and
        length.
    kind
        Type of these channels, which files do not state.
    events
        Names of the channels of events and of epochs, `*` for any characters; by default all. The description of an event
        is its label, or the name of its channel if it has none.
    """

    format: Format
    signals: tuple[str, ...] = ()
    kind: Literal["eeg", "ecog", "seeg", "emg", "eog", "ecg", "misc"] | None = None
    events: tuple[str, ...] = ()


class Stretch(NamedTuple):
    """One segment of a file: its duration, its events with times from its start, and its signals and spikes.

    `begin` is in seconds on the file's clock. Signals and spike trains may be lazy; `loaded` returns them with values.
    """

    begin: float
    seconds: float
    spans: list[Span]
    signals: Sequence[neo.AnalogSignal]
    spikes: Sequence[neo.SpikeTrain]


def opens(format: str, name: str) -> bool:
    """Whether a file of this name identifies a recording of the format."""
    return PurePosixPath(name).suffix.lower() in ENDINGS.get(format, ())


def companion_files(format: str, name: str, names: Sequence[str]) -> list[str]:
    """The other files of a recording: all in its folder, or those with its name and another suffix."""
    home = PurePosixPath(name).parent
    if format in FOLDERS:
        if home == PurePosixPath("."):
            inside = ""
        else:
            inside = f"{home}/"
        return [other for other in names if other != name and other.startswith(inside)]
    stem = PurePosixPath(name).with_suffix("")
    return [
        other
        for other in names
        if other != name and PurePosixPath(other).with_suffix("") == stem
    ]


@contextmanager
def _quiet() -> Iterator[ModuleType]:
    try:
        import neo
    except ImportError as error:
        raise package_missing("neo") from error
    logger = logging.getLogger("neo")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield neo
    finally:
        logger.setLevel(level)


def read_neo(path: Path, what: NeoFiles) -> list[Stretch]:
    """The segments of a recording in order; values stay on disk if neo supports this.

    Raises
    ------
    DataError
        The file is damaged or of another format, contains several blocks, or lacks events of this name.
    UnavailableError
        neo is not installed.
    """
    with _quiet() as neo, parsing(path, f"{what.format} by neo"):
        folder = what.format in FOLDERS
        kind = getattr(neo.io, f"{what.format}IO")
        opened = kind(
            **({"dirname": str(path.parent)} if folder else {"filename": str(path)})
        )
        blocks = getattr(opened, "block_count", lambda: 1)()
        if blocks != 1:
            raise DataError(
                f"{path.name} contains {blocks} blocks, but a recording has one: write each to its own file"
            )
        options = {"lazy": True} if opened.support_lazy else {}
        block = opened.read_block(**options)
        return [_stretch(segment, path, what) for segment in block.segments]


def _stretch(segment: neo.Segment, path: Path, what: NeoFiles) -> Stretch:
    channels = [*segment.events, *segment.epochs]
    selected = _named(channels, what.events, path, "events")
    begin = _seconds(segment.t_start)
    end = _seconds(segment.t_stop)
    spans: list[Span] = []
    for channel in map(loaded, selected):
        name = str(channel.name or "")
        times = channel.rescale("s").magnitude.tolist()
        durations = (
            channel.durations.rescale("s").magnitude.tolist()
            if hasattr(channel, "durations")
            else [0.0] * len(times)
        )
        labels = [str(label).strip() for label in channel.labels] or [""] * len(times)
        spans += [
            Span(time - begin, duration, text or name)
            for time, duration, text in zip(times, durations, labels, strict=True)
        ]
    return Stretch(
        begin, end - begin, sorted(spans), segment.analogsignals, segment.spiketrains
    )


def _seconds(quantity: pq.Quantity) -> float:
    return float(quantity.rescale("s").magnitude)


Item = TypeVar("Item", bound="BaseNeo")


def loaded(thing: Item) -> Item:
    """A signal, spike train or channel of events with its values."""
    if not hasattr(thing, "load"):
        return thing
    whole: Item = thing.load()
    return whole


def _named(
    items: Sequence[Item], names: Sequence[str], path: Path, kind: str
) -> list[Item]:
    known = [str(item.name or "") for item in items]
    missing = [
        pattern
        for pattern in names
        if not any(fnmatchcase(name, pattern) for name in known)
    ]
    if missing:
        raise DataError(
            f"{path.name} has no {kind} named {', '.join(missing)}; it has {', '.join(known[:20]) or 'none'}"
        )
    if not names:
        return list(items)
    return [
        item
        for item, name in zip(items, known, strict=True)
        if any(fnmatchcase(name, pattern) for pattern in names)
    ]


def sampled(stretch: Stretch, path: Path, what: NeoFiles) -> RawArray:
    """The signals of a segment as MNE's `Raw`, voltages in volts, with its events as annotations.

    Raises
    ------
    DataError
        There are no signals, they differ in rate or length, two channels share a name, or `kind` is missing.
    """
    import mne

    chosen = _named(stretch.signals, what.signals, path, "signals")
    available = "; ".join(
        f"{signal.name} ({signal.shape[1]} channels, {float(signal.sampling_rate.rescale('Hz')):g} Hz, "
        f"{signal.shape[0]} samples)"
        for signal in stretch.signals[:20]
    )
    if not chosen:
        raise DataError(
            f"{path.name} contains no sampled signal; count its spikes with `spikes: BIN` in the reader"
        )
    samplings = {
        (
            round(float(signal.sampling_rate.rescale("Hz")), 6),
            int(signal.shape[0]),
            round(_seconds(signal.t_start), 6),
        )
        for signal in chosen
    }
    if len(samplings) != 1:
        raise DataError(
            f"{path.name}: its signals have different rates or lengths; select some by `neo: {{signals: [NAME]}}`. It has "
            f"{available}"
        )
    if what.kind is None:
        raise DataError(
            f"{path.name} does not state the type of its channels; declare it in the reader, `neo: {{kind: seeg}}`. It has "
            f"{available}"
        )
    names: list[str] = []
    values: list[Floats] = []
    with _quiet(), parsing(path, f"{what.format} by neo"):
        for signal in map(loaded, chosen):
            electric = (
                signal.units.dimensionality.simplified
                == _volt().dimensionality.simplified
            )
            values += list(
                (signal.rescale("V") if electric else signal).magnitude.T.astype(float)
            )
            channel_names = signal.array_annotations.get("channel_names")
            if channel_names is not None:
                names += map(str, channel_names)
            elif signal.shape[1] == 1:
                names.append(str(signal.name))
            else:
                names += [
                    f"{signal.name}_{number}" for number in range(signal.shape[1])
                ]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(
            f"{path.name}: two channels are named {repeated[0]}; select `signals` by name. It has {available}"
        )
    rate, _, begin = samplings.pop()
    raw = mne.io.RawArray(
        np.stack(values),
        mne.create_info(names, rate, what.kind, verbose="ERROR"),
        verbose="ERROR",
    )
    delay = begin - stretch.begin
    inside = [
        span for span in stretch.spans if 0 <= span.onset - delay <= raw.n_times / rate
    ]
    raw.set_annotations(
        mne.Annotations(
            *zip(
                *(
                    (span.onset - delay, span.duration, span.description)
                    for span in inside
                ),
                strict=True,
            )
        )
        if inside
        else None
    )
    note_markers(
        raw, [span.description for span in stretch.spans if span not in inside]
    )
    return raw


def _volt() -> pq.Quantity:
    import quantities

    return quantities.V


def spike_times(stretch: Stretch, path: Path, what: NeoFiles) -> dict[str, Floats]:
    """Times of each unit's spikes in seconds from the segment's start, by the unit's name.

    Raises
    ------
    DataError
        There are no spikes, or two units share a name.
    """
    if not stretch.spikes:
        raise DataError(
            f"{path.name} contains no sorted spikes; remove `spikes` to read its signals"
        )
    with _quiet(), parsing(path, f"{what.format} by neo"):
        trains = [
            (str(train.name or f"unit_{number}"), loaded(train))
            for number, train in enumerate(stretch.spikes)
        ]
        times = {
            name: np.sort(train.rescale("s").magnitude.astype(float)) - stretch.begin
            for name, train in trains
        }
    if len(times) != len(trains):
        raise DataError(
            f"{path.name}: two units have the same name; it has {', '.join(name for name, _ in trains)}"
        )
    return times
