"""Tables of samples (CSV, TSV, Parquet), with one row per sample and one column per channel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
import pandas as pd
from pydantic import Field, PositiveFloat, model_validator

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.data.parsing import parsing, require_even_rows
from neuroledger.errors import DataError, UnavailableError
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    from mne.io import RawArray

__all__ = ["TABLES", "SampleTable", "read_sample_table"]

TABLES: Final = frozenset({".csv", ".tsv", ".parquet"})
MOST_JITTER: Final = 0.5
"""Largest deviation of a step in the column of times, as a share of the time between two samples."""
NOTHING: Final = frozenset({"", "0", "nan", "none", "n/a", "na"})
Positive = PositiveFloat


class SampleTable(Frozen):
    """Layout of tables of samples.

    Attributes
    ----------
    sampling_rate
        In Hz.
    time
        Column of times in seconds, whose steps must agree with the rate.
    channels
        Columns that are channels; by default all except `time` and `event`, which must contain numbers.
    kind
        Type of the channels; `preprocessing: {types: …}` overrides it for single channels, and `{stated: uV}` declares
        their unit.
    event
        Column with the code or name of an event, which begins when the value changes and lasts until it changes again;
        empty cells, 0 and `none` are no event.
    separator
        Separator of fields; by default a comma, or a tab in files that end in `.tsv`.
    """

    sampling_rate: Positive
    time: str | None = None
    channels: tuple[str, ...] = ()
    kind: Literal["eeg", "eog", "ecg", "emg", "seeg", "ecog", "misc"] = "eeg"
    event: str | None = None
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None

    @model_validator(mode="after")
    def _check_columns(self) -> SampleTable:
        shared = {self.time, self.event} & set(self.channels)
        if shared or (self.time is not None and self.time == self.event):
            raise ValueError(
                f"column {next(iter(shared), self.time)!r} has two roles among `channels`, `time` and `event`: give it one"
            )
        return self


def read_sample_table(path: Path, table: SampleTable | None) -> RawArray:
    """A table as MNE's `Raw`, with unscaled values and the events as annotations.

    Raises
    ------
    DataError
        The layout is missing; or the table is damaged, lacks a column, has text or gaps among its samples, or has times
        that disagree with the rate.
    UnavailableError
        MNE, or pyarrow for Parquet, is not installed.
    """
    import mne

    if table is None:
        raise DataError(
            f"{path.name} is a table, which does not state its sampling rate: declare it in the reader, "
            "`table: {sampling_rate: 250}`"
        )
    frame = _frame(path, table)
    required = [
        *table.channels,
        *([table.time] if table.time else []),
        *([table.event] if table.event else []),
    ]
    missing = [name for name in required if name not in frame.columns]
    if missing:
        columns = ", ".join(map(str, frame.columns[:40]))
        raise DataError(
            f"{path.name} has no column {', '.join(missing)}; it has {columns}"
        )
    rest = [
        str(name) for name in frame.columns if name not in (table.time, table.event)
    ]
    channels = list(table.channels) or rest
    if not channels or not len(frame):
        raise DataError(f"{path.name} contains no samples")
    values = np.stack([_numbers(frame[name], name, path) for name in channels])
    if table.time is not None:
        _require_rate(_numbers(frame[table.time], table.time, path), table, path)
    info = mne.create_info(channels, table.sampling_rate, table.kind, verbose="ERROR")
    raw = mne.io.RawArray(values, info, verbose="ERROR")
    if table.event is not None:
        rows, lengths, texts = _events(frame[table.event])
        raw.set_annotations(
            mne.Annotations(
                rows / table.sampling_rate, lengths / table.sampling_rate, texts
            )
        )
    return raw


def _frame(path: Path, table: SampleTable) -> pd.DataFrame:
    if path.suffix.lower() == ".parquet":
        try:
            with parsing(path, "Parquet"):
                return pd.read_parquet(path)
        except ImportError as error:
            raise UnavailableError(
                "reading Parquet needs pyarrow", "pip install 'neuroledger[parquet]'"
            ) from error
    separator = table.separator or ("\t" if path.suffix.lower() == ".tsv" else ",")
    require_even_rows(path, separator)
    with parsing(path, "a table of samples"):
        return pd.read_csv(path, sep=separator, encoding="utf-8-sig", low_memory=False)


def _numbers(column: pd.Series[Any], name: str, path: Path) -> Floats:
    values = pd.to_numeric(column, errors="coerce").to_numpy(float)
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{path.name}: column {name!r} has {len(wrong)} values that are not numbers, first "
            f"{column.iloc[row]!r} in sample {row} (line {row + 2} of a text file): list the columns of samples under "
            "`table: {channels: …}`, or fill the gaps"
        )
    return floats(values)


def _require_rate(times: Floats, table: SampleTable, path: Path) -> None:
    steps = np.diff(times)
    if not len(steps):
        return
    mean = float((times[-1] - times[0]) / len(steps))
    irregular = np.flatnonzero(np.abs(steps * table.sampling_rate - 1.0) > MOST_JITTER)
    if abs(mean * table.sampling_rate - 1.0) > 1e-2 or len(irregular):
        first = (
            f", first after {times[irregular[0]] - times[0]:.3f} s"
            if len(irregular)
            else ""
        )
        raise DataError(
            f"{path.name}: by column {table.time!r} samples are {np.median(steps):.4g} s apart and there are "
            f"{len(irregular)} "
            f"gaps{first}; {table.sampling_rate:g} Hz are declared. Times are seconds; correct the rate, or cut the file "
            "at its gaps"
        )


def _events(column: pd.Series[Any]) -> tuple[Floats, Floats, list[str]]:
    """First row, number of rows and text of each event."""
    texts = np.array(list(map(_text, column.tolist())), dtype=object)
    begins = np.flatnonzero(np.r_[True, texts[1:] != texts[:-1]])
    ends: Array = np.r_[begins[1:], len(texts)]
    starts = [
        index for index, row in enumerate(begins) if texts[row].lower() not in NOTHING
    ]
    lengths = (ends - begins)[starts].astype(float)
    return (
        begins[starts].astype(float),
        lengths,
        [str(texts[begins[index]]) for index in starts],
    )


def _text(value: object) -> str:
    """A cell as text; codes that pandas converted to floats because of empty cells become integers again."""
    if isinstance(value, float):
        integer = np.isfinite(value) and value == int(value)
        if np.isnan(value):
            return ""
        if integer:
            return str(int(value))
        return f"{value:g}"
    if value is None or value is pd.NA:
        return ""
    return str(value).strip()
