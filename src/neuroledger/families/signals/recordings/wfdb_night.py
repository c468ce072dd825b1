"""A night of sleep in PhysioNet's format: signals beside their header, and stages and arousals as annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.wfdb_format import read_annotations, read_header, read_leads

__all__ = ["night_spans", "read_night"]

# The last stage has no next one to end it; an epoch of sleep is 30 s long.
EPOCH = 30.0


def read_night(path: Path) -> Any:
    """The recording as MNE's `RawArray`, in volts where its units say so; all channels are typed `eeg`.

    A sample that is marked as missing is NaN.

    Raises
    ------
    DataError
        The header or the signals are not as the format has them.
    """
    import mne

    header = read_header(path)
    beside = path.with_name(header.leads[0].file)
    values = read_leads(beside, header)
    names = [lead.name or f"lead{number}" for number, lead in enumerate(header.leads)]
    return mne.io.RawArray(values, mne.create_info(names, header.rate, "eeg"), verbose="ERROR")


def night_spans(path: Path, name: str, rate: float) -> list[tuple[float, float, str]]:
    """Annotations as (onset, duration, text): `(x` to `x)` is one, any other text lasts until the next of its channel.

    Onset and duration are in seconds; the file counts samples at `rate` a second.

    Raises
    ------
    DataError
        The file ends within an annotation, or a span ends that never began, or never ends.
    """
    marks: dict[int, list[tuple[float, str]]] = {}
    notes = read_annotations(path)
    for sample, channel, text in zip(notes.samples, notes.channels, notes.texts, strict=True):
        if text:
            marks.setdefault(int(channel), []).append((int(sample) / rate, text))
    spans: list[tuple[float, float, str]] = []
    for found in marks.values():
        open_at: dict[str, float] = {}
        states = [(at, text) for at, text in found if not text.startswith("(") and not text.endswith(")")]
        ends = [at for at, _ in states[1:]] + [states[-1][0] + EPOCH] if states else []
        spans += [(at, end - at, text) for (at, text), end in zip(states, ends, strict=True)]
        for at, text in found:
            if text.startswith("("):
                open_at[text[1:]] = at
            elif text.endswith(")"):
                if text[:-1] not in open_at:
                    raise DataError(f"{name}: {text[:-1]!r} ends at {at:g} s and never began")
                begun = open_at.pop(text[:-1])
                spans.append((begun, at - begun, text[:-1]))
        if open_at:
            lost, at = next(iter(open_at.items()))
            raise DataError(f"{name}: {lost!r} begins at {at:g} s and never ends")
    return sorted(spans)
