"""Heartbeats cut from annotated electrocardiograms, as described for the widely used set of 187 values per beat."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field, PositiveFloat

from neuroledger.data.arrays import Floats, Integers, Singles, Strings
from neuroledger.data.clocks import Clock, RecordingClocks
from neuroledger.data.dataset import Dataset
from neuroledger.data.facts import Fact, Origin
from neuroledger.errors import DataError
from neuroledger.families.fields import OpenShare
from neuroledger.families.signals.clocks.cut_windows import span_of
from neuroledger.families.signals.recordings.wfdb import (
    Annotations,
    Header,
    read_annotations,
    read_header,
    read_lead,
)
from neuroledger.spec.registry import reader

__all__ = ["wfdb_beats"]

Share = OpenShare
Positive = PositiveFloat

# The mnemonics of heartbeats; others are rhythms, noise and waves.
BEATS = frozenset("NLRBAaJSVrFejnE/fQ?")
# Classes of ANSI/AAMI EC57, by the mnemonics of the database.
AAMI = {"N": "NLRej", "S": "AaJS", "V": "VE", "F": "F", "Q": "/fQ"}


class _Cutting(NamedTuple):
    """How beats are cut: sampling rate, values per beat, seconds of a section, median intervals, normalisation."""

    rate: float
    values: int
    window: float
    periods: float
    normalise: str


class _Record(NamedTuple):
    """The beats of one record: values ``(beat, value)``, their labels, sample numbers and parts, and the clocks."""

    values: Singles
    labels: Strings
    samples: Integers
    parts: Strings
    clocks: tuple[Clock, Clock]


@reader("wfdb_beats", version=1)
def wfdb_beats(
    files: Mapping[str, Path],
    *,
    parts: Mapping[str, tuple[str, ...]] | None = None,
    until: Share | None = None,
    classes: Mapping[str, str] = AAMI,
    people: tuple[tuple[str, ...], ...] = (),
    leads: tuple[str, ...] = ("MLII", "V5"),
    annotator: str = "atr",
    rate: Positive = 125.0,
    values: Annotated[int, Field(gt=1)] = 187,
    window: Positive = 10.0,
    periods: Positive = 1.2,
    normalise: Literal["window", "beat"] = "window",
) -> Dataset:
    """Beats ``(presentation, neuroid, time_bin)`` of one lead, each from its R peak on, padded with zeros [kachuee2018].

    The lead is resampled to ``rate``. In each section of ``window`` seconds, its amplitude is scaled to 0 … 1, and T is
    the median interval between its beats (of the whole record if it has none). A beat is the signal from its annotated
    peak on, ``periods`` · T long, followed by zeros. The last beat of a record is left out, because no other follows. The
    published description finds peaks by a threshold and does not describe how they were labelled; here, peaks are at the
    annotations.

    Parameters
    ----------
    files
        The header (.hea), signals and annotations of each record.
    parts
        Records of each part (train, test, …), by name; only these are read. The coordinate ``split`` is the part.
    until
        Instead of ``parts``: in each record, beats up to this share of its time are for training, later ones for test.
    classes
        The mnemonics of each class, as one string; other beats are left out. The default are the five classes of ANSI/AAMI
        EC57.
    people
        Groups of records that are of the same person.
    leads
        The first of these leads that a record has is used.
    annotator
        Suffix of the annotation files.
    rate, values
        Sampling rate after resampling (Hz), and number of samples of a beat.
    window, periods
        Length of a section in seconds, and of a beat in median intervals.
    normalise
        Whether 0 … 1 is the range of the section, or of each beat.

    Raises
    ------
    DataError
        A file is missing or damaged, a record has none of the leads, annotations are beyond its end, or a person's beats
        are in both the training and the test part.
    """
    headers = {
        PurePosixPath(name).stem: name for name in files if name.endswith(".hea")
    }
    if (parts is None) == (until is None):
        raise DataError(
            "give either `parts`, the records of each part, or `until`, the share of training in each"
        )
    part_of = {
        record: part for part, records in (parts or {}).items() for record in records
    }
    selected = part_of if parts is not None else dict.fromkeys(sorted(headers), "")
    if len(part_of) != sum(map(len, (parts or {}).values())):
        raise DataError("a record is in two parts; list each once")
    _require_separate_people(part_of, people)
    labels = {symbol: label for label, symbols in classes.items() for symbol in symbols}
    if len(labels) != sum(map(len, classes.values())):
        raise DataError("a mnemonic is in two classes; list each once")
    unknown = sorted(set(labels) - BEATS)
    if unknown:
        raise DataError(
            f"{' '.join(unknown)} is not the mnemonic of a heartbeat; use those of {''.join(sorted(BEATS))}"
        )
    cutting = _Cutting(rate, values, window, periods, normalise)
    records = []
    for name, part in selected.items():
        if name not in headers:
            raise DataError(f"record {name} has no header {name}.hea among the files")
        header = read_header(files[headers[name]])
        signal = _lead(files, headers[name], header, leads)
        annotations = _companion(files, headers[name], f"{name}.{annotator}")
        records.append(
            _beats(
                annotations,
                header,
                signal,
                labels,
                cutting,
                part if until is None else until,
            )
        )
    if not records:
        raise DataError(
            "there are no records to read: none of the files is a header (.hea)"
        )
    names = np.repeat(list(selected), [len(record.labels) for record in records])
    person = {record: group[0] for group in people for record in group}
    samples = np.concatenate([record.samples for record in records])
    starts = np.arange(values) * 1000.0 / rate
    assembly = xr.DataArray(
        np.concatenate([record.values for record in records])[:, None, :],
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": (
                "presentation",
                [f"{r}_{s:06d}" for r, s in zip(names, samples, strict=True)],
            ),
            "label": (
                "presentation",
                np.concatenate([record.labels for record in records]),
            ),
            "split": (
                "presentation",
                np.concatenate([record.parts for record in records]),
            ),
            "subject": (
                "presentation",
                np.array([person.get(str(name), str(name)) for name in names]),
            ),
            "recording": ("presentation", names),
            "neuroid_id": ("neuroid", ["ecg"]),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + 1000.0 / rate),
        },
        attrs={"units": "share of the range", "sampling_rate": rate},
    )
    clocks = tuple(
        RecordingClocks(
            recording=name,
            subject=person.get(name, name),
            clocks=record.clocks,
            windows=len(record.labels),
        )
        for name, record in zip(selected, records, strict=True)
    )
    return Dataset(stimuli=None, assembly=assembly, clocks=clocks)


def _require_separate_people(
    parts: Mapping[str, str], people: tuple[tuple[str, ...], ...]
) -> None:
    for records in people:
        sides = {
            parts[record]
            for record in records
            if parts.get(record) in ("train", "test")
        }
        if len(sides) > 1:
            raise DataError(
                f"records {' and '.join(records)} are of one person, but are in both the training and the test part: "
                "leave one out"
            )


def _beats(
    path: Path,
    header: Header,
    signal: Floats,
    labels: Mapping[str, str],
    cutting: _Cutting,
    part: str | float,
) -> _Record:
    """The beats of one record, all of one part, or of the training part up to a share of its time."""
    annotations = read_annotations(path)
    if annotations.rate is not None and annotations.rate != header.rate:
        raise DataError(
            f"{path.name} counts samples at {annotations.rate:g} Hz, but its record has {header.rate:g} Hz"
        )
    last = int(annotations.samples.max(initial=0))
    if last >= header.samples or int(annotations.samples.min(initial=0)) < 0:
        raise DataError(
            f"{path.name} has an annotation at sample {last}; its record has {header.samples} samples: "
            "the two do not belong together"
        )
    is_beat = np.isin(annotations.symbols, list(BEATS))
    peaks = annotations.samples[is_beat]
    symbols = annotations.symbols[is_beat]
    if len(peaks) < 2:
        raise DataError(
            f"{path.name} contains {len(peaks)} heartbeats; at least two are needed"
        )
    ratio = cutting.rate / header.rate
    resampled = _resampled(signal, Fraction(ratio).limit_denominator(10_000))
    beats = _cut(resampled, np.round(peaks * ratio).astype(np.int64), cutting)
    selected = np.array([symbol in labels for symbol in symbols])
    selected[-1] = False
    beat_labels = np.array([labels.get(symbol, "") for symbol in symbols])
    if isinstance(part, str):
        split = np.full(len(peaks), part)
    else:
        split = np.where(peaks < part * header.samples, "train", "test")
    clocks = _clocks(header, annotations, peaks)
    return _Record(
        beats[selected], beat_labels[selected], peaks[selected], split[selected], clocks
    )


def _clocks(
    header: Header, annotations: Annotations, peaks: Integers
) -> tuple[Clock, Clock]:
    """The clocks of a record's samples and heartbeats; annotations without a rate of their own count its samples."""
    samples = Clock(
        of="samples",
        unit=Fact("s", header.origin),
        start=0.0,
        stop=round(header.samples / header.rate, 6),
        rate=Fact(header.rate, header.origin),
        count=header.samples,
    )
    start, stop = span_of(peaks / header.rate)
    origin: Origin = "assumed" if annotations.rate is None else "stated"
    beats = Clock(
        of="events",
        unit=Fact("s", origin),
        start=start,
        stop=stop,
        count=len(peaks),
        aligned="by the numbers of samples",
    )
    return samples, beats


def _lead(
    files: Mapping[str, Path], header_name: str, header: Header, leads: tuple[str, ...]
) -> Floats:
    names = [lead.name for lead in header.leads]
    number = next((names.index(lead) for lead in leads if lead in names), None)
    if number is None:
        raise DataError(
            f"{header_name} has the leads {', '.join(names)}, none of {', '.join(leads)}: list one of them in `leads`"
        )
    signal = read_lead(
        _companion(files, header_name, header.leads[number].file), header, number
    )
    if np.isnan(signal).any():
        raise DataError(
            f"{header_name}: {int(np.isnan(signal).sum())} samples of lead {names[number]} have no value: choose "
            "another lead"
        )
    return signal


def _companion(files: Mapping[str, Path], header: str, file_name: str) -> Path:
    """A file in the folder of the header."""
    name = str(PurePosixPath(header).with_name(file_name))
    if name not in files:
        raise DataError(f"{header} needs {name}, which is not among the files")
    return files[name]


def _resampled(signal: Floats, ratio: Fraction) -> Floats:
    from scipy.signal import resample_poly

    if ratio == 1:
        return signal
    # Linear padding avoids a step at the edges.
    return np.asarray(
        resample_poly(signal, ratio.numerator, ratio.denominator, padtype="line")
    )


def _cut(signal: Floats, peaks: Integers, cutting: _Cutting) -> Singles:
    """The beats ``(beat, value)``: the signal from each peak on, scaled to 0 … 1 and padded with zeros."""
    section = max(1, round(cutting.window * cutting.rate))
    edges = np.arange(0, len(signal), section)
    low = np.minimum.reduceat(signal, edges)
    high = np.maximum.reduceat(signal, edges)
    peaks = np.minimum(peaks, len(signal) - 1)
    section_of = peaks // section
    intervals = np.diff(peaks)
    inside = section_of[1:] == section_of[:-1]
    period = np.full(len(edges), float(np.median(intervals)))
    for number in np.unique(section_of[:-1][inside]):
        period[number] = np.median(intervals[inside & (section_of[:-1] == number)])
    lengths = np.minimum(
        np.round(cutting.periods * period[section_of]).astype(np.int64), cutting.values
    )
    index = peaks[:, None] + np.arange(cutting.values)
    valid = (np.arange(cutting.values) < lengths[:, None]) & (index < len(signal))
    beats = signal[np.minimum(index, len(signal) - 1)]
    if cutting.normalise == "window":
        bottom = low[section_of][:, None]
        top = high[section_of][:, None]
    else:
        bottom = np.where(valid, beats, np.inf).min(axis=1, keepdims=True)
        top = np.where(valid, beats, -np.inf).max(axis=1, keepdims=True)
    span = np.where(top > bottom, top - bottom, 1.0)
    scaled = np.where(valid, np.clip((beats - bottom) / span, 0.0, 1.0), 0.0)
    return scaled.astype(np.float32)
