"""Events of a recording whose samples have time stamps: placed by the stamps, and noted at MNE's `Raw`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from neuroledger.families.signals.clocks.stamped_parts import (
    StampedPart,
    onset_of,
    timeline_of_parts,
)
from neuroledger.families.signals.clocks.timelines import note_timeline
from neuroledger.families.signals.recordings.beyond_ends import note_markers
from neuroledger.families.signals.recordings.signal_spans import Span, note_spans

if TYPE_CHECKING:
    from mne.io import BaseRaw

__all__ = ["set_stamped_events"]


def set_stamped_events(
    raw: BaseRaw, parts: Sequence[StampedPart], rate: float, events: Iterable[Span]
) -> None:
    """Set the events of MNE's `Raw` by the time stamps of its samples, and note its gaps.

    Parameters
    ----------
    parts
        The samples between gaps, with their times.
    rate
        Samples per second of `raw`.
    events
        Events with onsets (s) by the clock of the time stamps; those beyond the recording are noted as lost markers.
    """
    import mne

    timeline = timeline_of_parts(parts, rate)
    spans: list[Span] = []
    beyond: list[str] = []
    for event in events:
        onset = onset_of(event.onset, parts, timeline)
        if onset is None:
            beyond.append(event.description)
        else:
            spans.append(event._replace(onset=onset))
    spans.sort()
    if len(parts) > 1:
        # MNE has no clock for gaps.
        note_timeline(raw, timeline)
        note_spans(raw, spans)
    else:
        raw.set_annotations(
            mne.Annotations(*map(list, zip(*spans, strict=True))) if spans else None
        )
    note_markers(raw, beyond)
