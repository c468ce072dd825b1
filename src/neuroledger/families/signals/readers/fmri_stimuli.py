"""What is shown in the runs of a scanner, listed from their tables of events, before any image of a brain is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from neuroledger.families.signals.fmri.events import ScanEvents, lists, shown
from neuroledger.families.signals.fmri.runs import Rest, runs_among
from neuroledger.spec.registry import stimuli

__all__ = ["stimuli_of_scans"]


@stimuli("fmri_windows")
def stimuli_of_scans(
    files: Mapping[str, Path],
    *,
    events: ScanEvents,
    seconds: float,
    subjects: tuple[str, ...] = (),
    rest: Rest | None = None,
) -> pd.DataFrame:
    """Each stimulus once, in order of names; its file, and its text, are called as it is.

    Raises
    ------
    DataError
        There are no tables of events, or one is wrong.
    """
    runs = runs_among(sorted(files), events.file, events.file, subjects=subjects, rest=rest)
    held = lists(events, files)
    named = {name for run in runs for name in shown(files, run, events, held, seconds).names}
    names = sorted(named)
    return pd.DataFrame({"stimulus_id": names, "filename": names, "text": names})
