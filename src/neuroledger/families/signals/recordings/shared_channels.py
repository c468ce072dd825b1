"""The channels that all recordings of a data set have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.signal_preprocessing import Preprocessing, called_as_declared

__all__ = ["with_shared"]


def with_shared(
    steps: Preprocessing, recordings: Callable[[], Iterable[tuple[str, Sequence[str]]]]
) -> tuple[Preprocessing, list[str]]:
    """The steps with the channels that all recordings have in the place of `shared`, and a note of those left out.

    Parameters
    ----------
    recordings
        Name of the file and names of the channels of each recording; called where they are needed.

    Raises
    ------
    DataError
        No channel is in all recordings.
    """
    if steps.channels != "shared":
        return steps, []
    told = [list(called_as_declared(names, steps, file).values()) for file, names in recordings()]
    first, number = (told or [[]])[0], len(told)
    counts = Counter(name.lower() for plain in told for name in plain)
    shown = {name.lower(): name for plain in reversed(told) for name in plain}
    kept = tuple(name for name in first if counts[name.lower()] == number)
    if not kept:
        raise DataError(f"no channel is in all of the {number} recordings; the first has {', '.join(first)}")
    lost = [f"{shown[name]} (in {count} of {number})" for name, count in counts.items() if count < number]
    note = f"{len(lost)} channels that not every recording has are left out: {', '.join(sorted(lost)[:12])}"
    return steps.model_copy(update={"channels": kept}), [note] if lost else []
