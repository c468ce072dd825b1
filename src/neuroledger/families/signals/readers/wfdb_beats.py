"""Heartbeats cut out of annotated electrocardiograms as the widely used set of 187 values a beat is described."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.wfdb import (
    Header,
    read_annotations,
    read_header,
    read_lead,
)
from neuroledger.spec.registry import reader

__all__ = ["wfdb_beats"]

Floats = npt.NDArray[np.float64]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]

# The mnemonics of heartbeats; the others stand for rhythms, noise and waves.
BEATS = frozenset("NLRBAaJSVrFejnE/fQ?")
# Classes of ANSI/AAMI EC57, by the mnemonics of the database.
AAMI = {"N": "NLRej", "S": "AaJS", "V": "VE", "F": "F", "Q": "/fQ"}


class _Cutting(NamedTuple):
    """How beats are cut: samples per second, how many, seconds of a stretch, median intervals, and what 0 … 1 is."""

    rate: float
    values: int
    window: float
    periods: float
    normalise: str


class _Record(NamedTuple):
    """The beats of one record: values ``(beat, value)``, their labels, sample numbers and parts."""

    values: npt.NDArray[np.float32]
    labels: npt.NDArray[np.str_]
    samples: npt.NDArray[np.int64]
    parts: npt.NDArray[np.str_]


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

    The lead is resampled to ``rate``. In each stretch of ``window`` seconds its amplitude is brought to 0 … 1, and T is
    the median interval of the beats there (of the whole record where there is none). A beat is the signal from its
    annotated peak on, ``periods`` · T long, and zeros behind. The last beat of a record, which no other follows, is left
    out. The published description finds peaks by a threshold and does not say how they got their labels; here they are
    where the annotations are.

    Parameters
    ----------
    files
        For each record its header (.hea), the signals that the header names, and the annotations.
    parts
        Records of each part (train, test, …), by name; only they are read. The coordinate ``split`` is the part.
    until
        In place of ``parts``: of every record, beats up to this share of its time are for training, later ones for test.
    classes
        The mnemonics of each class, in one word; beats of no class are left out. The default are the five of ANSI/AAMI EC57.
    people
        Records of one and the same person, where there are several.
    leads
        The first of these leads that a record has is taken.
    annotator
        Ending of the annotation files.
    rate, values
        Samples per second after resampling, and how many of them a beat has.
    window, periods
        Length of the stretches in seconds, and of a beat in median intervals.
    normalise
        Whether 0 … 1 is the range of the stretch, or of each beat.

    Raises
    ------
    DataError
        A file is missing or damaged, a record has none of the leads, annotations lie beyond its end, or one person's beats
        are both in the training and in the test part.
    """
    headers = {PurePosixPath(name).stem: name for name in files if name.endswith(".hea")}
    if (parts is None) == (until is None):
        raise DataError(
            "give either `parts`, the records of each part, or `until`, the share of training in each"
        )
    held = {record: part for part, records in (parts or {}).items() for record in records}
    wanted = held if parts is not None else dict.fromkeys(sorted(headers), "")
    if len(held) != sum(map(len, (parts or {}).values())):
        raise DataError("a record is in two parts; name each once")
    _apart(held, people)
    labels = {symbol: label for label, symbols in classes.items() for symbol in symbols}
    if len(labels) != sum(map(len, classes.values())):
        raise DataError("a mnemonic is in two classes; name each once")
    unknown = sorted(set(labels) - BEATS)
    if unknown:
        raise DataError(
            f"{' '.join(unknown)} stands for no heartbeat; the mnemonics are {''.join(sorted(BEATS))}"
        )
    cutting = _Cutting(rate, values, window, periods, normalise)
    cut = []
    for name, part in wanted.items():
        if name not in headers:
            raise DataError(f"record {name} has no header {name}.hea among the files")
        header = read_header(files[headers[name]])
        signal = _lead(files, headers[name], header, leads)
        annotations = _beside(files, headers[name], f"{name}.{annotator}")
        cut.append(_beats(annotations, header, signal, labels, cutting, part if until is None else until))
    if not cut:
        raise DataError("there are no records to read: none of the files is a header (.hea)")
    names = np.repeat(list(wanted), [len(record.labels) for record in cut])
    person = {record: own[0] for own in people for record in own}
    samples = np.concatenate([record.samples for record in cut])
    starts = np.arange(values) * 1000.0 / rate
    assembly = xr.DataArray(
        np.concatenate([record.values for record in cut])[:, None, :],
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", [f"{r}_{s:06d}" for r, s in zip(names, samples, strict=True)]),
            "label": ("presentation", np.concatenate([record.labels for record in cut])),
            "split": ("presentation", np.concatenate([record.parts for record in cut])),
            "subject": ("presentation", np.array([person.get(str(name), str(name)) for name in names])),
            "recording": ("presentation", names),
            "neuroid_id": ("neuroid", ["ecg"]),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + 1000.0 / rate),
        },
        attrs={"units": "share of the range", "sampling_rate": rate},
    )
    return Dataset(stimuli=None, assembly=assembly)


def _apart(parts: Mapping[str, str], people: tuple[tuple[str, ...], ...]) -> None:
    for records in people:
        sides = {parts[record] for record in records if parts.get(record) in ("train", "test")}
        if len(sides) > 1:
            raise DataError(
                f"records {' and '.join(records)} are of one person and lie both in the training and in the test part: "
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
    found = read_annotations(path)
    if found.rate is not None and found.rate != header.rate:
        raise DataError(f"{path.name} counts samples at {found.rate:g} Hz, its record has {header.rate:g} Hz")
    last = int(found.samples.max(initial=0))
    if last >= header.samples or int(found.samples.min(initial=0)) < 0:
        raise DataError(
            f"{path.name} has an annotation at sample {last}; its record has {header.samples} samples: "
            "the two do not belong together"
        )
    is_beat = np.isin(found.symbols, list(BEATS))
    at, symbols = found.samples[is_beat], found.symbols[is_beat]
    if len(at) < 2:
        raise DataError(f"{path.name} holds {len(at)} heartbeats: there is nothing to cut out")
    ratio = cutting.rate / header.rate
    resampled = _resampled(signal, Fraction(ratio).limit_denominator(10_000))
    cut = _cut(resampled, np.round(at * ratio).astype(np.int64), cutting)
    taken = np.array([symbol in labels for symbol in symbols])
    taken[-1] = False
    said = np.array([labels.get(symbol, "") for symbol in symbols])
    if isinstance(part, str):
        split = np.full(len(at), part)
    else:
        split = np.where(at < part * header.samples, "train", "test")
    return _Record(cut[taken], said[taken], at[taken], split[taken])


def _lead(files: Mapping[str, Path], header_name: str, header: Header, leads: tuple[str, ...]) -> Floats:
    own = [lead.name for lead in header.leads]
    number = next((own.index(lead) for lead in leads if lead in own), None)
    if number is None:
        raise DataError(
            f"{header_name} has the leads {', '.join(own)}, none of {', '.join(leads)}: name one of them in `leads`"
        )
    signal = read_lead(_beside(files, header_name, header.leads[number].file), header, number)
    if np.isnan(signal).any():
        raise DataError(
            f"{header_name}: {int(np.isnan(signal).sum())} samples of lead {own[number]} have no value: take another lead"
        )
    return signal


def _beside(files: Mapping[str, Path], header: str, wanted: str) -> Path:
    """A file in the folder of the header."""
    name = str(PurePosixPath(header).with_name(wanted))
    if name not in files:
        raise DataError(f"{header} needs {name}, which is not among the files")
    return files[name]


def _resampled(signal: Floats, ratio: Fraction) -> Floats:
    from scipy.signal import resample_poly

    if ratio == 1:
        return signal
    # What is added at the edges goes on along a line, so that the filter sees no step there.
    return np.asarray(resample_poly(signal, ratio.numerator, ratio.denominator, padtype="line"))


def _cut(signal: Floats, places: npt.NDArray[np.int64], cutting: _Cutting) -> npt.NDArray[np.float32]:
    """``(beat, value)``: the signal from each place on, within 0 … 1, zeros behind."""
    stretch = max(1, round(cutting.window * cutting.rate))
    edges = np.arange(0, len(signal), stretch)
    low, high = np.minimum.reduceat(signal, edges), np.maximum.reduceat(signal, edges)
    places = np.minimum(places, len(signal) - 1)
    home = places // stretch
    intervals = np.diff(places)
    inside = home[1:] == home[:-1]
    period = np.full(len(edges), float(np.median(intervals)))
    for number in np.unique(home[:-1][inside]):
        period[number] = np.median(intervals[inside & (home[:-1] == number)])
    lengths = np.minimum(np.round(cutting.periods * period[home]).astype(np.int64), cutting.values)
    index = places[:, None] + np.arange(cutting.values)
    there = (np.arange(cutting.values) < lengths[:, None]) & (index < len(signal))
    found = signal[np.minimum(index, len(signal) - 1)]
    if cutting.normalise == "window":
        bottom, top = low[home][:, None], high[home][:, None]
    else:
        bottom = np.where(there, found, np.inf).min(axis=1, keepdims=True)
        top = np.where(there, found, -np.inf).max(axis=1, keepdims=True)
    span = np.where(top > bottom, top - bottom, 1.0)
    shown = np.where(there, np.clip((found - bottom) / span, 0.0, 1.0), 0.0)
    return shown.astype(np.float32)
