"""Formats of electrophysiology through neo: sampled signals become recordings, spikes become counts, marks become events."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.signals.recordings.beyond_ends import note_markers
from neuroledger.families.signals.recordings.signal_spans import Span
from neuroledger.spec.base import Frozen

__all__ = ["NeoFiles", "Stretch", "beside", "loaded", "opens", "read_neo", "sampled", "spike_times"]

Format = Literal["AlphaOmega", "Axograph", "Axon", "BCI2000", "Blackrock", "Elan", "Intan", "Micromed", "NeoMatlab",
                 "Neuralynx", "NeuroExplorer", "NeuroScope", "OpenEphys", "OpenEphysBinary", "Plexon", "RawMCS", "Spike2",
                 "SpikeGLX", "SpikeGadgets", "Tdt", "WinEdr", "WinWcp"]  # fmt: skip
# The file that stands for a recording. Formats that need a program of their maker, a library that neo downloads, or a pickle
# are left out, and so are those that MNE, pynwb or pyxdf read.
ENDINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "AlphaOmega": (".mpx",), "Axograph": (".axgx", ".axgd"), "Axon": (".abf",), "BCI2000": (".dat",),
    "Blackrock": (".nev", ".ns1", ".ns2", ".ns3", ".ns4", ".ns5", ".ns6"), "Elan": (".eeg",), "Intan": (".rhd", ".rhs"),
    "Micromed": (".trc",), "NeoMatlab": (".mat",), "Neuralynx": (".ncs", ".nev", ".nse", ".ntt"),
    "NeuroExplorer": (".nex",), "NeuroScope": (".xml",), "OpenEphys": (".continuous",), "OpenEphysBinary": (".oebin",),
    "Plexon": (".plx",), "RawMCS": (".raw",), "Spike2": (".smr",), "SpikeGLX": (".meta",), "SpikeGadgets": (".rec",),
    "Tdt": (".tbk", ".tsq"), "WinEdr": (".edr",), "WinWcp": (".wcp",),
}  # fmt: skip
FOLDERS: Final = frozenset({"AlphaOmega", "Neuralynx", "OpenEphys", "OpenEphysBinary", "SpikeGLX", "Tdt"})
"""Formats of which a recording is a whole folder."""


class NeoFiles(Frozen):
    """What the files are, and what is read of them.

    Attributes
    ----------
    format
        The name of neo's class without `IO`.
    signals
        Names of the signals that become channels, `*` for any characters; all, where they agree in rate and length.
    kind
        What these channels are; files do not say it.
    events
        Names of the channels of events and of epochs that are read, `*` for any characters; all without it. An event is
        described by its label, or by the name of its channel where it has none.
    """

    format: Format
    signals: tuple[str, ...] = ()
    kind: Literal["eeg", "ecog", "seeg", "emg", "eog", "ecg", "misc"] | None = None
    events: tuple[str, ...] = ()


class Stretch(NamedTuple):
    """One segment of a file, held open: what it lasts, its events from its first moment on, and its signals and spikes.

    `begin` is on the file's clock. `loaded` gives a signal or spike train with its values.
    """

    begin: float
    seconds: float
    spans: list[Span]
    signals: Sequence[Any]
    spikes: Sequence[Any]


def opens(format: str, name: str) -> bool:
    """Whether a file of this name stands for a recording of the format."""
    return PurePosixPath(name).suffix.lower() in ENDINGS.get(format, ())


def beside(format: str, name: str, names: Sequence[str]) -> list[str]:
    """The other files of a recording: all of its folder, or those with its name and another ending."""
    home = PurePosixPath(name).parent
    if format in FOLDERS:
        inside = "" if home == PurePosixPath(".") else f"{home}/"
        return [other for other in names if other != name and other.startswith(inside)]
    stem = PurePosixPath(name).with_suffix("")
    return [other for other in names if other != name and PurePosixPath(other).with_suffix("") == stem]


@contextmanager
def _quiet() -> Iterator[Any]:
    try:
        import neo
    except ImportError as error:
        raise UnavailableError("reading this format needs neo: pip install neuroledger[neo]") from error
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
    """The segments of a recording in order; values stay on the disk where neo can leave them there.

    Raises
    ------
    DataError
        The file is damaged or of another format, holds several blocks, or lacks events of this name.
    UnavailableError
        neo is not installed.
    """
    with _quiet() as neo, parsing(path, f"{what.format} by neo"):
        folder = what.format in FOLDERS
        kind = getattr(neo.io, f"{what.format}IO")
        opened = kind(**({"dirname": str(path.parent)} if folder else {"filename": str(path)}))
        blocks = getattr(opened, "block_count", lambda: 1)()
        if blocks != 1:
            raise DataError(f"{path.name} holds {blocks} blocks, and one is a recording: write them as files")
        block = opened.read_block(**({"lazy": True} if opened.support_lazy else {}))
        return [_stretch(segment, path, what) for segment in block.segments]


def _stretch(segment: Any, path: Path, what: NeoFiles) -> Stretch:
    channels = [*segment.events, *segment.epochs]
    wanted = _called(channels, what.events, path, "events")
    begin, end = _seconds(segment.t_start), _seconds(segment.t_stop)
    spans: list[Span] = []
    for channel in map(loaded, wanted):
        name, times = str(channel.name or ""), channel.rescale("s").magnitude.tolist()
        lasts = (
            channel.durations.rescale("s").magnitude.tolist()
            if hasattr(channel, "durations")
            else [0.0] * len(times)
        )
        said = [str(label).strip() for label in channel.labels] or [""] * len(times)
        spans += [
            Span(at - begin, long, text or name) for at, long, text in zip(times, lasts, said, strict=True)
        ]
    return Stretch(begin, end - begin, sorted(spans), segment.analogsignals, segment.spiketrains)


def _seconds(quantity: Any) -> float:
    return float(quantity.rescale("s").magnitude)


def loaded(thing: Any) -> Any:
    """A signal, spike train or channel of events with its values."""
    return thing.load() if hasattr(thing, "load") else thing


def _called(things: Sequence[Any], names: Sequence[str], path: Path, kind: str) -> list[Any]:
    known = [str(one.name or "") for one in things]
    lost = [said for said in names if not any(fnmatchcase(name, said) for name in known)]
    if lost:
        raise DataError(
            f"{path.name} has no {kind} called {', '.join(lost)}; it has {', '.join(known[:20]) or 'none'}"
        )
    if not names:
        return list(things)
    return [
        one for one, name in zip(things, known, strict=True) if any(fnmatchcase(name, said) for said in names)
    ]


def sampled(stretch: Stretch, path: Path, what: NeoFiles) -> Any:
    """The signals of a segment as MNE's `Raw`, voltages in volts, with its events as annotations.

    Raises
    ------
    DataError
        There are none, they differ in rate or length, two channels share a name, or it is not said what they are.
    """
    import mne

    chosen = _called(stretch.signals, what.signals, path, "signals")
    shown = "; ".join(
        f"{one.name} ({one.shape[1]} channels, {float(one.sampling_rate.rescale('Hz')):g} Hz, {one.shape[0]} samples)"
        for one in stretch.signals[:20]
    )
    if not chosen:
        raise DataError(
            f"{path.name} holds no sampled signal; count its spikes with `spikes: BIN` in the reader"
        )
    ways = {
        (round(float(one.sampling_rate.rescale("Hz")), 6), int(one.shape[0]), round(_seconds(one.t_start), 6))
        for one in chosen
    }
    if len(ways) != 1:
        raise DataError(
            f"{path.name}: signals of different rates or lengths are no channels of one recording; name those that are "
            f"read under `neo: {{signals: [NAME]}}`. It has {shown}"
        )
    if what.kind is None:
        raise DataError(
            f"{path.name} does not say what its channels are; say it in the reader, `neo: {{kind: seeg}}`. It has {shown}"
        )
    names: list[str] = []
    values: list[Floats] = []
    with _quiet(), parsing(path, f"{what.format} by neo"):
        for one in map(loaded, chosen):
            electric = one.units.dimensionality.simplified == _volt().dimensionality.simplified
            values += list((one.rescale("V") if electric else one).magnitude.T.astype(float))
            told = one.array_annotations.get("channel_names")
            names += [str(one.name)] if told is None and one.shape[1] == 1 else (
                [f"{one.name}_{number}" for number in range(one.shape[1])] if told is None else map(str, told)
            )  # fmt: skip
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(
            f"{path.name}: two channels are called {twice[0]}; name the `signals` that are read. It has {shown}"
        )
    rate, _, begin = ways.pop()
    raw = mne.io.RawArray(
        np.stack(values), mne.create_info(names, rate, what.kind, verbose="ERROR"), verbose="ERROR"
    )
    late = begin - stretch.begin
    inside = [span for span in stretch.spans if 0 <= span.onset - late <= raw.n_times / rate]
    raw.set_annotations(
        mne.Annotations(*zip(*((at - late, long, text) for at, long, text in inside), strict=True))
        if inside
        else None
    )
    note_markers(raw, [span.description for span in stretch.spans if span not in inside])
    return raw


def _volt() -> Any:
    import quantities

    return quantities.V


def spike_times(stretch: Stretch, path: Path, what: NeoFiles) -> dict[str, Floats]:
    """Seconds from the segment's first moment of each unit's spikes, by the unit's name.

    Raises
    ------
    DataError
        There are none, or two units share a name.
    """
    if not stretch.spikes:
        raise DataError(f"{path.name} holds no sorted spikes; leave out `spikes` to read its signals")
    with _quiet(), parsing(path, f"{what.format} by neo"):
        trains = [
            (str(train.name or f"unit_{number}"), loaded(train))
            for number, train in enumerate(stretch.spikes)
        ]
        found = {
            name: np.sort(train.rescale("s").magnitude.astype(float)) - stretch.begin
            for name, train in trains
        }
    if len(found) != len(trains):
        raise DataError(
            f"{path.name}: two units have one name; it has {', '.join(name for name, _ in trains)}"
        )
    return found
