"""XDF files: one stream of samples becomes a recording, and the streams of markers its events, on one clock."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.signals.recordings.beyond_ends import note_markers
from neuroledger.spec.base import Frozen

__all__ = ["Streams", "read_xdf"]

# What one of a unit is in volts; names as recorders write them.
VOLTS: Final[Mapping[str, float]] = {
    "v": 1.0, "volt": 1.0, "volts": 1.0, "mv": 1e-3, "millivolt": 1e-3, "millivolts": 1e-3, "uv": 1e-6, "µv": 1e-6,
    "μv": 1e-6, "microvolt": 1e-6, "microvolts": 1e-6, "nv": 1e-9, "nanovolt": 1e-9, "nanovolts": 1e-9,
}  # fmt: skip
KINDS: Final = frozenset({"eeg", "eog", "ecg", "emg", "seeg", "ecog", "mag", "grad"})
MOST_DRIFT: Final = 0.05
"""Share by which the rate of an amplifier may differ from the one that it states."""
MOST_OFF: Final = 0.02
"""Seconds by which the samples of one second may be off an even rate; less than that is jitter of their stamps."""


class Streams(Frozen):
    """Which streams of an XDF file are read, by their name or their type.

    Attributes
    ----------
    samples
        The stream that becomes the channels; without it, the only one of type EEG, or the only one with numbers at a
        constant rate.
    markers
        Streams of texts that are the events; all of irregular rate that hold texts, where none is named.
    """

    samples: str | None = None
    markers: Annotated[tuple[str, ...], Field(max_length=32)] = ()


def read_xdf(path: Path, wanted: Streams | None = None) -> Any:
    """An XDF file as MNE's `Raw`, in volts where the file states a unit, with the markers as annotations.

    pyxdf aligns the clocks of all streams by the offsets that the file holds. Samples are taken to be even in time. A marker
    is placed at the sample with its time. Values without a unit are passed on as they are
    (`preprocessing: {stated: uV}` says what they are).

    Raises
    ------
    DataError
        The file is damaged, or has no such stream, several that could be meant, or samples are missing.
    UnavailableError
        pyxdf or MNE is not installed.
    """
    try:
        import pyxdf
    except ImportError as error:
        raise UnavailableError("reading XDF needs pyxdf: pip install neuroledger[xdf]") from error
    import mne

    wanted = wanted or Streams()
    _require_xdf(path)
    problems = _Problems()
    logger = logging.getLogger(pyxdf.__name__)
    logger.addHandler(problems)
    try:
        with parsing(path, "XDF"):
            # Stamps as they are: pyxdf would draw its line through gaps of seconds.
            streams, _ = pyxdf.load_xdf(str(path), dejitter_timestamps=False)
    finally:
        logger.removeHandler(problems)
    if problems.said:
        # pyxdf goes on behind the damage: windows would then be cut at wrong times.
        raise DataError(f"{path.name} is a damaged XDF file ({problems.said[0]}); fetch it again")
    samples = _samples(path.name, streams, wanted.samples)
    rate, times = _evenly(path.name, samples, np.asarray(samples["time_stamps"], dtype=float))
    values = np.asarray(samples["time_series"], dtype=float).T
    names, types, units = _channels(samples, len(values))
    factors = np.array([VOLTS.get(unit.strip().lower(), 1.0) for unit in units])
    info = mne.create_info(names, rate, types, verbose="ERROR")
    raw = mne.io.RawArray(values * factors[:, None], info, verbose="ERROR")
    onsets, texts, beyond = _markers(path.name, streams, wanted.markers, times, rate)
    raw.set_annotations(mne.Annotations(onsets, np.zeros(len(onsets)), texts))
    note_markers(raw, beyond)
    return raw


class _Problems(logging.Handler):
    """What pyxdf reports of damage."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def _require_xdf(path: Path) -> None:
    """Return if the file begins as XDF does; pyxdf leaves others open."""
    with parsing(path, "XDF"), gzip.open(path) if path.suffix == ".xdfz" else path.open("rb") as opened:
        if opened.read(4) != b"XDF:":
            raise ValueError("it does not begin with XDF:")


def _said(stream: Mapping[str, Any], key: str) -> str:
    value = stream["info"].get(key) or [""]
    return str(value[0] or "")


def _shown(streams: Sequence[Mapping[str, Any]]) -> str:
    said = [
        f"{_said(one, 'name')!r} (type {_said(one, 'type') or 'none'}, {_said(one, 'nominal_srate') or '0'} Hz)"
        for one in streams
    ]
    return ", ".join(said) or "no stream"


def _called(streams: Sequence[Mapping[str, Any]], wanted: str) -> list[Mapping[str, Any]]:
    by_name = [one for one in streams if _said(one, "name") == wanted]
    return by_name or [one for one in streams if _said(one, "type").lower() == wanted.lower()]


def _samples(file: str, streams: Sequence[Mapping[str, Any]], wanted: str | None) -> Mapping[str, Any]:
    """The stream that becomes the channels."""
    even = [
        one
        for one in streams
        if float(_said(one, "nominal_srate") or 0.0) > 0 and _said(one, "channel_format") != "string"
    ]
    if wanted is not None:
        meant = _called(even, wanted)
    else:
        meant = [one for one in even if _said(one, "type").lower() == "eeg"] or even
    if len(meant) != 1:
        raise DataError(
            f"{file} has {len(meant)} streams of samples{'' if wanted is None else f' called {wanted!r}'}: it has "
            f"{_shown(streams)}. Say which one in the reader, `streams: {{samples: NAME}}`"
        )
    if len(meant[0]["time_stamps"]) < 2:
        raise DataError(f"{file}: the stream {_said(meant[0], 'name')!r} holds no samples")
    return meant[0]


def _evenly(file: str, stream: Mapping[str, Any], stamps: Floats) -> tuple[float, Floats]:
    """The stated rate, and the time of each sample on the straight line through the stamps, which jitter around it."""
    rate, name = float(_said(stream, "nominal_srate")), _said(stream, "name")
    number = np.arange(len(stamps), dtype=float)
    step, first = np.polyfit(number, stamps, 1)
    if not step > 0 or abs(step * rate - 1.0) > MOST_DRIFT:
        seen = (len(stamps) - 1) / max(float(stamps[-1] - stamps[0]), 1e-9)
        raise DataError(
            f"{file}: {name!r} states {rate:g} Hz, and its {len(stamps)} samples come at {seen:.4g} Hz: samples were lost, "
            "or the rate is wrong"
        )
    times = first + step * number
    # A late package is followed by early ones; after a gap, all are late.
    size = max(round(rate), 1)
    rest = stamps - times
    medians = np.array([np.median(rest[at : at + size]) for at in range(0, len(rest), size)])
    if np.abs(medians).max() > max(2.0 / rate, MOST_OFF):
        at = int(np.abs(np.diff(medians)).argmax())
        after = float(stamps[min((at + 1) * size, len(stamps) - 1)] - stamps[0])
        raise DataError(
            f"{file}: samples of {name!r} are missing or its clock jumped, by {np.diff(medians)[at]:+.3g} s at about "
            f"{after:.0f} s from the beginning: cut the recording there, or write its "
            " parts as files of their own"
        )
    return rate, times


def _channels(stream: Mapping[str, Any], count: int) -> tuple[list[str], list[str], list[str]]:
    """Names, types as MNE calls them, and units of the channels, as far as the file says them."""
    described = (stream["info"].get("desc") or [None])[0] or {}
    block = (described.get("channels") or [None])[0] or {}
    said: list[Mapping[str, Any]] = [one or {} for one in block.get("channel") or []]
    if len(said) != count:
        said = [{} for _ in range(count)]

    def text(channel: Mapping[str, Any], key: str) -> str:
        return str((channel.get(key) or [""])[0] or "")

    names = [text(channel, "label") or f"channel{number}" for number, channel in enumerate(said)]
    if len(set(names)) != count:
        names = [f"{name}_{number}" for number, name in enumerate(names)]
    whole = _said(stream, "type").lower()
    types = [(text(channel, "type") or whole).lower() for channel in said]
    return (
        names,
        [kind if kind in KINDS else "misc" for kind in types],
        [text(channel, "unit") for channel in said],
    )


def _markers(
    file: str, streams: Sequence[Mapping[str, Any]], wanted: Sequence[str], times: Floats, rate: float
) -> tuple[list[float], list[str], list[str]]:
    """Seconds from the first sample, counted in samples, and what each marker says, in order of time; those beyond."""
    texts = [one for one in streams if _said(one, "channel_format") == "string"]
    chosen = texts if not wanted else [one for name in wanted for one in _called(texts, name)]
    lost = [name for name in wanted if not _called(texts, name)]
    if lost:
        raise DataError(f"{file} has no stream of markers {', '.join(lost)}; it has {_shown(streams)}")
    found: list[tuple[float, str]] = []
    beyond: list[str] = []
    for stream in chosen:
        for time, row in zip(stream["time_stamps"], stream["time_series"], strict=True):
            # By the stamps, not by the rate: a clock that drifts by a hundredth shifts an hour's last events by 36 s.
            at = float(np.interp(time, times, np.arange(len(times)), left=-1.0, right=-1.0))
            said = "/".join(str(cell) for cell in row)
            if at >= 0:
                found.append((round(at) / rate, said))
            else:
                beyond.append(said)
    found.sort()
    return [onset for onset, _ in found], [text for _, text in found], beyond
