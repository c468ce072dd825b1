"""XDF files: a stream of samples becomes a recording, and streams of markers its events, on one clock."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NotRequired, TypedDict

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, package_missing
from neuroledger.families.signals.clocks.stamped_parts import stamped_parts
from neuroledger.families.signals.clocks.timelines import note_events
from neuroledger.families.signals.recordings.signal_spans import Span
from neuroledger.families.signals.recordings.stamped_events import set_stamped_events
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    from mne.io import BaseRaw, RawArray

__all__ = ["Streams", "read_xdf"]

# Factors to volts, by the names of units that recorders write.
VOLTS: Final[Mapping[str, float]] = {
    "v": 1.0,
    "volt": 1.0,
    "volts": 1.0,
    "mv": 1e-3,
    "millivolt": 1e-3,
    "millivolts": 1e-3,
    "uv": 1e-6,
    "µv": 1e-6,
    "μv": 1e-6,
    "microvolt": 1e-6,
    "microvolts": 1e-6,
    "nv": 1e-9,
    "nanovolt": 1e-9,
    "nanovolts": 1e-9,
}
KINDS: Final = frozenset({"eeg", "eog", "ecg", "emg", "seeg", "ecog", "mag", "grad"})


class Streams(Frozen):
    """The streams of an XDF file to read, by name or type.

    Attributes
    ----------
    samples
        The stream that becomes the channels; by default, the only one of type EEG, or the only one of numbers at a
        constant rate.
    markers
        Streams of texts that become the events; by default all streams of texts.
    """

    samples: str | None = None
    markers: Annotated[tuple[str, ...], Field(max_length=32)] = ()


# XML elements as pyxdf gives them: a list of texts or of elements by name.
Description = Mapping[str, list[Any]]


class Stream(TypedDict):
    """A stream as pyxdf gives it, with the fields that are used here."""

    info: Description
    time_stamps: Floats
    time_series: Array | list[list[str]]
    clock_times: NotRequired[list[float]]


def read_xdf(path: Path, wanted: Streams | None = None) -> RawArray:
    """An XDF file as MNE's `Raw`, in volts if the file states a unit, with the markers as annotations.

    pyxdf aligns the clocks of all streams by the offsets in the file, also where a clock was reset. The recording is cut at
    gaps of its time stamps, between which samples are evenly spaced, and a marker is placed at the sample with its time.
    Values without a unit are not scaled (declare it by
    `preprocessing: {stated: uV}`).

    Raises
    ------
    DataError
        The file is damaged, the stream is missing or ambiguous, or its clock was set back or does not run evenly.
    UnavailableError
        pyxdf or MNE is not installed.
    """
    try:
        import pyxdf
    except ImportError as error:
        raise package_missing("pyxdf") from error
    import mne

    wanted = wanted or Streams()
    _require_xdf(path)
    problems = _Problems()
    logger = logging.getLogger(pyxdf.__name__)
    logger.addHandler(problems)
    try:
        with parsing(path, "XDF"):
            # Without dejittering: pyxdf would fit a line through gaps of seconds.
            streams, _ = pyxdf.load_xdf(str(path), dejitter_timestamps=False)
    finally:
        logger.removeHandler(problems)
    if problems.messages:
        # pyxdf continues after the damage, and windows would be cut at wrong times.
        raise DataError(
            f"{path.name} is a damaged XDF file ({problems.messages[0]}): it is damaged or incomplete"
        )
    samples = _samples(path.name, streams, wanted.samples)
    rate = float(_info(samples, "nominal_srate"))
    what = f"{path.name}: {_info(samples, 'name')!r}"
    parts = stamped_parts(floats(samples["time_stamps"]), rate, what)
    values = floats(samples["time_series"]).T
    names, types, units = _channels(samples, len(values))
    factors = np.array([VOLTS.get(unit.strip().lower(), 1.0) for unit in units])
    info = mne.create_info(names, rate, types, verbose="ERROR")
    raw = mne.io.RawArray(values * factors[:, None], info, verbose="ERROR")
    markers = _markers(path.name, streams, wanted.markers)
    set_stamped_events(raw, parts, rate, _events(markers))
    _note_alignment(raw, [samples, *markers])
    return raw


class _Problems(logging.Handler):
    """Collects the errors that pyxdf logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _require_xdf(path: Path) -> None:
    """Return if the file begins like XDF; pyxdf would not close other files."""
    with (
        parsing(path, "XDF"),
        gzip.open(path) if path.suffix == ".xdfz" else path.open("rb") as file,
    ):
        if file.read(4) != b"XDF:":
            raise ValueError("it does not begin with XDF:")


def _info(stream: Stream, key: str) -> str:
    value = stream["info"].get(key) or [""]
    return str(value[0] or "")


def _description(streams: Sequence[Stream]) -> str:
    descriptions = [
        f"{_info(stream, 'name')!r} (type {_info(stream, 'type') or 'none'}, {_info(stream, 'nominal_srate') or '0'} Hz)"
        for stream in streams
    ]
    return ", ".join(descriptions) or "no stream"


def _named(streams: Sequence[Stream], name: str) -> list[Stream]:
    by_name = [stream for stream in streams if _info(stream, "name") == name]
    return by_name or [
        stream for stream in streams if _info(stream, "type").lower() == name.lower()
    ]


def _samples(file: str, streams: Sequence[Stream], name: str | None) -> Stream:
    """The stream that becomes the channels."""
    regular = [
        stream
        for stream in streams
        if float(_info(stream, "nominal_srate") or 0.0) > 0
        and _info(stream, "channel_format") != "string"
    ]
    if name is not None:
        candidates = _named(regular, name)
    else:
        candidates = [
            stream for stream in regular if _info(stream, "type").lower() == "eeg"
        ] or regular
    if len(candidates) != 1:
        raise DataError(
            f"{file} has {len(candidates)} streams of samples{'' if name is None else f' named {name!r}'}: it has "
            f"{_description(streams)}. Choose one in the reader, `streams: {{samples: NAME}}`"
        )
    if len(candidates[0]["time_stamps"]) < 2:
        raise DataError(
            f"{file}: the stream {_info(candidates[0], 'name')!r} contains no samples"
        )
    return candidates[0]


def _channels(stream: Stream, count: int) -> tuple[list[str], list[str], list[str]]:
    """Names, MNE types and units of the channels, with defaults for what the file does not state."""
    description = (stream["info"].get("desc") or [None])[0] or {}
    block = (description.get("channels") or [None])[0] or {}
    channels: list[Description] = [
        channel or {} for channel in block.get("channel") or []
    ]
    if len(channels) != count:
        channels = [{} for _ in range(count)]

    def text(channel: Description, key: str) -> str:
        return str((channel.get(key) or [""])[0] or "")

    names = [
        text(channel, "label") or f"channel{number}"
        for number, channel in enumerate(channels)
    ]
    if len(set(names)) != count:
        names = [f"{name}_{number}" for number, name in enumerate(names)]
    default = _info(stream, "type").lower()
    types = [(text(channel, "type") or default).lower() for channel in channels]
    return (
        names,
        [kind if kind in KINDS else "misc" for kind in types],
        [text(channel, "unit") for channel in channels],
    )


def _markers(
    file: str, streams: Sequence[Stream], names: Sequence[str]
) -> list[Stream]:
    """The streams of texts that become the events."""
    texts = [
        stream for stream in streams if _info(stream, "channel_format") == "string"
    ]
    missing = [name for name in names if not _named(texts, name)]
    if missing:
        raise DataError(
            f"{file} has no stream of markers {', '.join(missing)}; it has {_description(streams)}"
        )
    if names:
        return [stream for name in names for stream in _named(texts, name)]
    return texts


def _events(streams: Sequence[Stream]) -> Iterator[Span]:
    """Yield the markers by the common clock."""
    for stream in streams:
        for time, row in zip(stream["time_stamps"], stream["time_series"], strict=True):
            yield Span(float(time), 0.0, "/".join(map(str, row)))


def _note_alignment(raw: BaseRaw, streams: Sequence[Stream]) -> None:
    """Note how the clocks of streams are aligned, which is assumed where one has no measured offset."""
    measured = all(len(stream.get("clock_times", ())) for stream in streams)
    if measured:
        note_events(raw, "stated", "by the measured offsets of the streams' clocks")
    else:
        note_events(raw, "assumed", "streams without a measured offset of their clocks")
