"""Tables of samples (CSV, TSV, Parquet): one row for each sample, one column for each channel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import Field, model_validator

from neuroledger.data.arrays import Floats
from neuroledger.data.parsing import parsing, require_even_rows
from neuroledger.errors import DataError, UnavailableError
from neuroledger.spec.base import Frozen

__all__ = ["TABLES", "SampleTable", "read_sample_table"]

TABLES: Final = frozenset({".csv", ".tsv", ".parquet"})
MOST_JITTER: Final = 0.5
"""Share of the time between two samples by which a step of the column of times may differ from the others."""
NOTHING: Final = frozenset({"", "0", "nan", "none", "n/a", "na"})
Positive = Annotated[float, Field(gt=0)]


class SampleTable(Frozen):
    """How tables of samples are laid out.

    Attributes
    ----------
    sampling_rate
        In Hz.
    time
        Column of seconds, whose steps then have to agree with the rate.
    channels
        Columns that are channels; all of numbers but `time` and `event`, where none are named.
    kind
        What the channels are; `preprocessing: {types: …}` says it of single ones, `{stated: uV}` in which unit they are.
    event
        Column with the code or name of an event: it begins where the value changes and lasts as long as it stays; empty
        cells, 0 and `none` are no event.
    separator
        Between the fields of a text; a tabulator in files that end in `.tsv`.
    """

    sampling_rate: Positive
    time: str | None = None
    channels: tuple[str, ...] = ()
    kind: Literal["eeg", "eog", "ecg", "emg", "seeg", "ecog", "misc"] = "eeg"
    event: str | None = None
    separator: Annotated[str, Field(min_length=1, max_length=1)] | None = None

    @model_validator(mode="after")
    def _apart(self) -> SampleTable:
        taken = {self.time, self.event} & set(self.channels)
        if taken or (self.time is not None and self.time == self.event):
            raise ValueError(
                f"column {next(iter(taken), self.time)!r} is one of `channels`, `time` and `event`, not two"
            )
        return self


def read_sample_table(path: Path, table: SampleTable | None) -> Any:
    """A table as MNE's `Raw`, its values as they are, with the events as annotations.

    Raises
    ------
    DataError
        Nothing is said of the layout, the table is damaged, lacks a column, holds text or gaps where there should be
        samples, or its times disagree with the rate.
    UnavailableError
        MNE, or what reads Parquet, is not installed.
    """
    import mne

    if table is None:
        raise DataError(
            f"{path.name} is a table, which does not say its sampling rate: say it in the reader, "
            "`table: {sampling_rate: 250}`"
        )
    frame = _frame(path, table)
    named = [*table.channels, *([table.time] if table.time else []), *([table.event] if table.event else [])]
    lost = [name for name in named if name not in frame.columns]
    if lost:
        shown = ", ".join(map(str, frame.columns[:40]))
        raise DataError(f"{path.name} has no column {', '.join(lost)}; it has {shown}")
    rest = [str(name) for name in frame.columns if name not in (table.time, table.event)]
    channels = list(table.channels) or rest
    if not channels or not len(frame):
        raise DataError(f"{path.name} holds no samples")
    values = np.stack([_numbers(frame[name], name, path) for name in channels])
    if table.time is not None:
        _require_rate(_numbers(frame[table.time], table.time, path), table, path)
    info = mne.create_info(channels, table.sampling_rate, table.kind, verbose="ERROR")
    raw = mne.io.RawArray(values, info, verbose="ERROR")
    if table.event is not None:
        rows, lengths, texts = _events(frame[table.event])
        raw.set_annotations(mne.Annotations(rows / table.sampling_rate, lengths / table.sampling_rate, texts))
    return raw


def _frame(path: Path, table: SampleTable) -> pd.DataFrame:
    if path.suffix.lower() == ".parquet":
        try:
            with parsing(path, "Parquet"):
                return pd.read_parquet(path)
        except ImportError as error:
            raise UnavailableError(
                "reading Parquet needs pyarrow: pip install neuroledger[parquet]"
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
            f"{path.name}: column {name!r} has {len(wrong)} values that are no numbers, first "
            f"{column.iloc[row]!r} in sample {row} (line {row + 2} of a text): name the columns of samples under "
            "`table: {channels: …}`, or repair the gaps"
        )
    return np.asarray(values, dtype=float)


def _require_rate(times: Floats, table: SampleTable, path: Path) -> None:
    steps = np.diff(times)
    if not len(steps):
        return
    mean = float((times[-1] - times[0]) / len(steps))
    wrong = np.flatnonzero(np.abs(steps * table.sampling_rate - 1.0) > MOST_JITTER)
    if abs(mean * table.sampling_rate - 1.0) > 1e-2 or len(wrong):
        first = f", first after {times[wrong[0]] - times[0]:.3f} s" if len(wrong) else ""
        raise DataError(
            f"{path.name}: by column {table.time!r} samples are {np.median(steps):.4g} s apart and there are {len(wrong)} "
            f"gaps{first}; {table.sampling_rate:g} Hz are declared. Times are seconds; correct the rate, or cut the file "
            "at its gaps"
        )


def _events(column: pd.Series[Any]) -> tuple[Floats, Floats, list[str]]:
    """First row of each event, how many rows it lasts, and what it says."""
    texts = np.array([_text(value) for value in column.tolist()], dtype=object)
    begins = np.flatnonzero(np.r_[True, texts[1:] != texts[:-1]])
    ends: npt.NDArray[Any] = np.r_[begins[1:], len(texts)]
    kept = [at for at, row in enumerate(begins) if texts[row].lower() not in NOTHING]
    lengths = (ends - begins)[kept].astype(float)
    return begins[kept].astype(float), lengths, [str(texts[begins[at]]) for at in kept]


def _text(value: Any) -> str:
    """A cell as text; codes that pandas made fractions, because cells are empty, are whole again."""
    if isinstance(value, float):
        whole = np.isfinite(value) and value == int(value)
        return "" if np.isnan(value) else str(int(value)) if whole else f"{value:g}"
    return "" if value is None or value is pd.NA else str(value).strip()
