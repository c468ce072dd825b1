"""The channels that all recordings of a data set have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    called_as_declared,
)

__all__ = ["with_shared"]


def with_shared(
    steps: Preprocessing, recordings: Callable[[], Iterable[tuple[str, Sequence[str]]]]
) -> tuple[Preprocessing, list[str]]:
    """The steps with `channels: shared` replaced by the channels of all recordings, and a note on those left out.

    Parameters
    ----------
    recordings
        Function that returns the file name and the channel names of each recording; only called for `shared`.

    Raises
    ------
    DataError
        No channel is in all recordings.
    """
    if steps.channels != "shared":
        return steps, []
    names_by_recording = [
        list(called_as_declared(names, steps, file).values())
        for file, names in recordings()
    ]
    first = (names_by_recording or [[]])[0]
    total = len(names_by_recording)
    counts = Counter(name.lower() for names in names_by_recording for name in names)
    spelling = {
        name.lower(): name for names in reversed(names_by_recording) for name in names
    }
    shared = tuple(name for name in first if counts[name.lower()] == total)
    if not shared:
        raise DataError(
            f"no channel is in all of the {total} recordings; the first has {', '.join(first)}"
        )
    left_out = [
        f"{spelling[name]} (in {count} of {total})"
        for name, count in counts.items()
        if count < total
    ]
    notes = []
    if left_out:
        first_names = ", ".join(sorted(left_out)[:12])
        notes = [
            f"{len(left_out)} channels that not every recording has are left out: {first_names}"
        ]
    return steps.model_copy(update={"channels": shared}), notes
