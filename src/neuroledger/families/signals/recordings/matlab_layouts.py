"""Recordings in MATLAB files of any layout; a spec declares the places of samples, channels, rate and events."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from neuroledger.data.arrays import Floats
from neuroledger.data.file_names import Pattern, matching
from neuroledger.errors import DataError
from neuroledger.families.fields import AtLeastOne
from neuroledger.families.signals.clocks.timelines import note_rate
from neuroledger.families.signals.recordings.matlab_trees import (
    as_array,
    as_texts,
    found_at,
    parts_at,
    tree,
)
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    from mne.io import BaseRaw

__all__ = ["MatlabEvents", "MatlabLayout", "MatlabPart", "matlab_parts"]

Kind = Literal["eeg", "eog", "ecg", "emg", "seeg", "ecog", "misc"]
Axis = Literal["channel", "sample", "trial", "target"]
Positive = PositiveFloat
ORDER: Final[tuple[Axis, ...]] = ("target", "trial", "channel", "sample")


class MatlabEvents(Frozen):
    """Places of the events; a place is defined in `MatlabLayout`.

    Attributes
    ----------
    samples, milliseconds
        Place of the sample numbers or of the times of events. Both count from `count_from`: MATLAB's first sample is 1.
    channel
        Instead of times, a code at each sample: its place, or the columns of the samples that contain it, which are added
        (-1 is the last). An event begins where the code changes to a value other than 0.
    codes
        Place of the class of each event or trial: a number, a text, or one row per class with 1 at its events.
    names
        Place of the names of the codes 1, 2, and so on.
    file, parts
        Name of a separate file with the events, in the folder of the recording, and the place of the parts in it.
    delay, duration
        Seconds from the stated time to the event, and its duration in seconds.
    """

    samples: str | None = None
    milliseconds: str | None = None
    channel: str | tuple[int, ...] | None = None
    codes: str | None = None
    names: str | None = None
    file: str | None = None
    parts: str | None = None
    count_from: int = 1
    delay: float = 0.0
    duration: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _check_fields(self) -> MatlabEvents:
        ways = [
            name
            for name in ("samples", "milliseconds", "channel")
            if getattr(self, name) is not None
        ]
        if len(ways) > 1:
            raise ValueError(
                f"events need one of `samples`, `milliseconds` and `channel`, not {' and '.join(ways)}"
            )
        if ways and ways != ["channel"] and self.codes is None:
            raise ValueError(f"events by `{ways[0]}` need `codes`, their classes")
        if self.file is None and self.parts is not None:
            raise ValueError("`parts` of events need a `file` of events")
        return self


class MatlabLayout(Frozen):
    """Layout of MATLAB files of all versions, including 7.3 (HDF5).

    A place is the name of a variable and of fields in it, `cnt.x`; in a file with `parts`, of fields of a part.

    Attributes
    ----------
    samples
        Place of the samples; or several places, each with the description of its events, whose arrays are concatenated.
    axes
        The axes of the samples, in MATLAB's order. With `trial` or `target`, an array contains trials, which are
        concatenated; with `target`, the index on that axis identifies the stimulus. Trials in a cell array, as in
        FieldTrip, are arrays with the other axes, and may differ in length.
    parts
        Place of a struct or cell array whose elements are recordings; `take` are the numbers of those to read, from 1.
    numbered
        Whether the number of a part is that of a `session` or of a `run`.
    sampling_rate
        In Hz, or its place.
    channels
        Names of the channels, or their place.
    columns
        First and last channel among the columns of the samples, from 1; or these by patterns of file names.
    kinds
        Types of the channels, in order, with the number of channels of each.
    scale
        Factor of the values, if the publisher scaled them.
    events
        Places of the events; a trial without `codes` is described by its target.

    Concatenated arrays and trials were cut from longer recordings: the mean of each channel is subtracted in each of them,
    and filters cross the joints. A window that crosses a joint is refused.
    """

    samples: str | dict[str, str]
    axes: Annotated[tuple[Axis, ...], Field(min_length=2, max_length=4)]
    parts: str | None = None
    take: tuple[AtLeastOne, ...] = ()
    numbered: Literal["session", "run"] = "run"
    sampling_rate: Positive | str
    channels: tuple[str, ...] | str
    columns: tuple[int, int] | dict[Pattern, tuple[int, int]] | None = None
    kinds: dict[Kind, AtLeastOne] = Field(default_factory=dict)
    scale: Positive = 1.0
    events: MatlabEvents

    @model_validator(mode="after")
    def _check_fields(self) -> MatlabLayout:
        if len(set(self.axes)) != len(self.axes) or not {"channel", "sample"} <= set(
            self.axes
        ):
            raise ValueError(
                "`axes` must contain `channel` and `sample`, and each axis at most once"
            )
        if self.take and self.parts is None:
            raise ValueError("`take` needs `parts`")
        ways = (self.events.samples, self.events.milliseconds, self.events.channel)
        declared = any(way is not None for way in ways)
        if self.trials and (declared or not isinstance(self.samples, str)):
            raise ValueError(
                "an array of trials has `codes` of its trials, but no times of events"
            )
        if self.trials and self.events.codes is None and "target" not in self.axes:
            raise ValueError("trials need `codes`, their classes")
        if not self.trials and not declared:
            raise ValueError("events need `samples`, `milliseconds` or `channel`")
        return self

    @property
    def trials(self) -> bool:
        """Whether the samples are cut into trials."""
        return bool({"trial", "target"} & set(self.axes))


class MatlabPart(NamedTuple):
    """A recording in a file: its number, and MNE's `Raw` with the events as annotations."""

    number: int
    raw: BaseRaw


class _Piece(NamedTuple):
    """Consecutive samples, (channel, sample), and the events in them by sample and description."""

    values: Floats
    events: list[tuple[float, str]]


def matlab_parts(
    path: Path,
    layout: MatlabLayout,
    files: Mapping[str, Path],
    name: str,
    window: tuple[float, float],
) -> Iterator[MatlabPart]:
    """Yield the recordings in one file, in order.

    Parameters
    ----------
    files, name
        All files by name, and the name of this one; events may be in a separate file.
    window
        Start and duration in seconds of the windows around events, which must not cross a joint.

    Raises
    ------
    DataError
        The file is damaged, or its content does not match the layout.
    """
    content = tree(path, _variables(layout, own=True))
    if layout.parts:
        parts = parts_at(content, layout.parts, name)
    else:
        parts = [content]
    event_parts = parts
    event_file = name
    if layout.events.file is not None:
        event_file = "/".join([*name.split("/")[:-1], layout.events.file])
        if event_file not in files:
            raise DataError(
                f"{name} has no events: {event_file} is not among the files"
            )
        event_content = tree(files[event_file], _variables(layout, own=False))
        if layout.events.parts is None:
            event_parts = [event_content] * len(parts)
        else:
            event_parts = parts_at(event_content, layout.events.parts, event_file)
            if len(event_parts) != len(parts):
                raise DataError(
                    f"{name} has {len(parts)} parts at {layout.parts!r}, but {event_file} has {len(event_parts)}"
                )
    numbers = layout.take or tuple(range(1, len(parts) + 1))
    if max(numbers, default=0) > len(parts):
        raise DataError(
            f"{name} has {len(parts)} parts at {layout.parts!r}, but no number {max(numbers)}"
        )
    for number in numbers:
        where = f"{name}, part {number}" if layout.parts else name
        yield MatlabPart(
            number,
            _raw(
                parts[number - 1],
                event_parts[number - 1],
                layout,
                where,
                event_file,
                name,
                window,
            ),
        )


def _variables(layout: MatlabLayout, *, own: bool) -> tuple[str, ...]:
    """The variables to read: those of the recording (`own`), or those of the file of events."""
    events = layout.events
    separate = layout.events.file is not None
    of_events = [events.samples, events.milliseconds, events.codes, events.names]
    of_events += [events.channel if isinstance(events.channel, str) else None]
    if own:
        places = (
            list(layout.samples)
            if isinstance(layout.samples, dict)
            else [layout.samples]
        )
        places += [
            at for at in (layout.sampling_rate, layout.channels) if isinstance(at, str)
        ]
        places_read = (
            [layout.parts]
            if layout.parts
            else [*places, *(() if separate else of_events)]
        )
    else:
        places_read = [events.parts] if events.parts else of_events
    return tuple(
        dict.fromkeys(at.split(".")[0] for at in places_read if at is not None)
    )


def _raw(
    part: Any,
    event_part: Any,
    layout: MatlabLayout,
    where: str,
    event_file: str,
    name: str,
    window: tuple[float, float],
) -> Any:
    import mne

    rate = layout.sampling_rate
    if isinstance(rate, str):
        rates = as_array(found_at(part, rate, where), rate, where)
        if rates.size != 1:
            raise DataError(
                f"{where}: {rate!r} contains {rates.size} numbers, but one sampling rate is expected"
            )
        rate = float(rates.ravel()[0])
    if not (math.isfinite(rate) and rate > 0):
        raise DataError(f"{where}: the sampling rate is {rate:g} Hz")
    pieces = list(
        _pieces(part, event_part, layout, where, event_file, name, float(rate))
    )
    channels = layout.channels
    names = (
        as_texts(found_at(part, channels, where), channels, where)
        if isinstance(channels, str)
        else channels
    )
    count = len(pieces[0].values)
    if len(names) != count:
        raise DataError(f"{where}: {len(names)} names for {count} channels")
    kinds = [kind for kind, many in layout.kinds.items() for _ in range(many)] or [
        "eeg"
    ] * count
    if len(kinds) != count:
        raise DataError(
            f"{where}: `kinds` declares {len(kinds)} channels, but there are {count}"
        )
    joined = len(pieces) > 1 or layout.trials
    onsets = []
    texts = []
    position = 0
    for piece in pieces:
        length = piece.values.shape[1]
        for sample, text in piece.events:
            moment = sample / rate + layout.events.delay
            first = moment + window[0]
            last = moment + window[0] + window[1]
            if joined and (first < -0.5 / rate or last > (length + 0.5) / rate):
                raise DataError(
                    f"{where}: a window from {first:g} to {last:g} s crosses the ends of an array or trial of "
                    f"{length / rate:g} s: shorten the window, or correct `delay`"
                )
            onsets.append(position / rate + moment)
            texts.append(text)
        position += length
    values = [piece.values for piece in pieces]
    if joined:
        values = [array - array.mean(axis=1, keepdims=True) for array in values]
    samples = np.concatenate(values, axis=1) * layout.scale
    if not np.isfinite(samples).all():
        raise DataError(
            f"{where}: {int((~np.isfinite(samples)).sum())} samples are missing or infinite"
        )
    raw = mne.io.RawArray(
        samples,
        mne.create_info(list(names), rate, kinds, verbose="ERROR"),
        verbose="ERROR",
    )
    if not isinstance(layout.sampling_rate, str):
        note_rate(raw, "declared")
    raw.set_annotations(
        mne.Annotations(onsets, [layout.events.duration] * len(onsets), texts)
    )
    return raw


def _pieces(
    part: Any,
    event_part: Any,
    layout: MatlabLayout,
    where: str,
    event_file: str,
    name: str,
    rate: float,
) -> Iterator[_Piece]:
    """The arrays or trials of a recording with their events."""
    if layout.trials:
        yield from _trials(part, event_part, layout, where, event_file, name)
        return
    places = (
        layout.samples if isinstance(layout.samples, dict) else {layout.samples: None}
    )
    for place, description in places.items():
        values, all_columns = _channels(
            as_array(found_at(part, place, where), place, where),
            layout,
            place,
            where,
            name,
        )
        values = values.reshape(values.shape[-2:])
        events = _continuous(
            event_part,
            layout.events,
            all_columns.reshape(all_columns.shape[-2:]),
            event_file,
            rate,
        )
        yield _Piece(
            values,
            [
                (at, description if description is not None else text)
                for at, text in events
            ],
        )


def _channels(
    array: Floats, layout: MatlabLayout, place: str, where: str, name: str
) -> tuple[Floats, Floats]:
    """The channels in the order target, trial, channel, sample, and all columns in this order."""
    if array.ndim > len(layout.axes):
        raise DataError(
            f"{where}: {place!r} has the axes {array.shape}; {len(layout.axes)} are declared"
        )
    # MATLAB drops trailing axes of length one.
    array = array.reshape(array.shape + (1,) * (len(layout.axes) - array.ndim))
    all_columns = array.transpose(
        [layout.axes.index(axis) for axis in ORDER if axis in layout.axes]
    )
    columns = layout.columns
    if isinstance(columns, dict):
        matches = [
            pair for pattern, pair in columns.items() if matching(pattern, [name])
        ]
        if len(matches) != 1:
            raise DataError(
                f"{where}: its name matches {len(matches)} patterns of `columns`, not one"
            )
        columns = matches[0]
    if columns is None:
        return all_columns, all_columns
    first, last = columns
    count = len(all_columns.reshape(-1, *all_columns.shape[all_columns.ndim - 2 :])[0])
    if not 1 <= first <= last <= count:
        raise DataError(
            f"{where}: {place!r} has {count} columns, but {first} to {last} are declared"
        )
    return all_columns[..., first - 1 : last, :], all_columns


def _trials(
    part: Any,
    event_part: Any,
    layout: MatlabLayout,
    where: str,
    event_file: str,
    name: str,
) -> Iterator[_Piece]:
    assert isinstance(layout.samples, str)
    found = found_at(part, layout.samples, where)
    if isinstance(found, list) and len(found) > 1 and "target" not in layout.axes:
        trials = _cells(found, layout, where, name)
    else:
        values, _ = _channels(
            as_array(found, layout.samples, where), layout, layout.samples, where, name
        )
        trials = {place: values[place] for place in np.ndindex(*values.shape[:-2])}
    texts: Sequence[str] = [str(place[0] + 1) for place in trials]
    if layout.events.codes is not None:
        texts = _descriptions(event_part, layout.events, event_file)
        if len(texts) != len(trials):
            raise DataError(
                f"{where}: {len(trials)} trials at {layout.samples!r}, {len(texts)} at {layout.events.codes!r}"
            )
    for trial, text in zip(trials.values(), texts, strict=True):
        yield _Piece(trial, [(0.0, text)])


def _cells(
    cells: Sequence[Any], layout: MatlabLayout, where: str, name: str
) -> dict[tuple[int, ...], Floats]:
    """The trials of a cell array, each an array with the axes except `trial`; lengths may differ."""
    inner = layout.model_copy(
        update={"axes": tuple(axis for axis in layout.axes if axis != "trial")}
    )
    trials: dict[tuple[int, ...], Floats] = {}
    for number, cell in enumerate(cells):
        place = f"{layout.samples}{{{number + 1}}}"
        values, _ = _channels(as_array(cell, place, where), inner, place, where, name)
        trials[(number,)] = values
    counts = sorted(set(map(len, trials.values())))
    if len(counts) > 1:
        raise DataError(
            f"{where}: trials at {layout.samples!r} have {counts[0]} to {counts[-1]} channels"
        )
    return trials


def _continuous(
    event_part: Any, events: MatlabEvents, all_columns: Floats, file: str, rate: float
) -> list[tuple[float, str]]:
    """Sample (from 0) and description of each event of a continuous array."""
    if events.channel is not None:
        if isinstance(events.channel, str):
            codes = as_array(
                found_at(event_part, events.channel, file), events.channel, file
            ).ravel()
        else:
            invalid = [
                number
                for number in events.channel
                if not 1 <= abs(number) <= len(all_columns)
            ]
            if invalid:
                raise DataError(
                    f"{file} has {len(all_columns)} columns, but no number {invalid[0]}"
                )
            codes = all_columns[
                [number - (number > 0) for number in events.channel]
            ].sum(axis=0)
        if len(codes) != all_columns.shape[1]:
            raise DataError(
                f"{file}: {len(codes)} codes of events for {all_columns.shape[1]} samples"
            )
        starts = np.flatnonzero((codes != 0) & (np.r_[0, codes[:-1]] != codes))
        names = _names(event_part, events, file)
        return [(float(at), _named(codes[at], names, events, file)) for at in starts]
    place = events.samples or str(events.milliseconds)
    times = found_at(event_part, place, file)
    if isinstance(times, np.ndarray) and not times.size:
        return []  # a part without trials, such as a baseline
    moments = as_array(times, place, file).ravel() - events.count_from
    texts = _descriptions(event_part, events, file)
    if len(texts) != len(moments):
        raise DataError(
            f"{file}: {len(moments)} events at {place!r}, {len(texts)} at {events.codes!r}"
        )
    factor = 1.0 if events.samples else rate / 1000.0
    if not np.isfinite(moments).all() or ((moments * factor) < 0).any():
        raise DataError(
            f"{file}: times of events at {place!r} are before the first sample, or not numbers"
        )
    return [
        (float(moment * factor), text)
        for moment, text in zip(moments, texts, strict=True)
    ]


def _descriptions(event_part: Any, events: MatlabEvents, file: str) -> list[str]:
    """The description of each event."""
    place = str(events.codes)
    descriptions = found_at(event_part, place, file)
    if isinstance(descriptions, str | list):
        return as_texts(descriptions, place, file)
    codes = as_array(descriptions, place, file)
    if codes.ndim == 2 and min(codes.shape) > 1:
        classes = (codes > 0).sum(axis=0)
        if (classes != 1).any():
            raise DataError(
                f"{file}: {int((classes != 1).sum())} events at {place!r} have no class or several; the row of "
                "each class must be 1 at its events"
            )
        codes = codes.argmax(axis=0) + 1.0
    names = _names(event_part, events, file)
    return [_named(code, names, events, file) for code in codes.ravel()]


def _names(event_part: Any, events: MatlabEvents, file: str) -> list[str]:
    if events.names is None:
        return []
    return as_texts(found_at(event_part, events.names, file), events.names, file)


def _named(code: float, names: Sequence[str], events: MatlabEvents, file: str) -> str:
    if not names:
        return f"{code:g}"
    if code != int(code) or not 1 <= code <= len(names):
        raise DataError(
            f"{file}: the code {code:g} has no name at {events.names!r}; it has {', '.join(names)}"
        )
    return names[int(code) - 1]
