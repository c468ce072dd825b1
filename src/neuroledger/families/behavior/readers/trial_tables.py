"""Trials of people in the tables of the model-vs-human toolbox."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from neuroledger.data.dataset import Dataset
from neuroledger.families.behavior.tasks.trial_tables import read_trial_tables
from neuroledger.spec.registry import reader

__all__ = ["trial_tables"]


@reader("trial_tables", version=2)
def trial_tables(files: Mapping[str, Path]) -> Dataset:
    """Read answers ``(presentation,)`` of all observers with ``stimulus_id``, ``subject``, ``condition`` and ``truth``.

    The tables do not contain the images, so only models with stored answers can be compared.

    Raises
    ------
    DataError
        A file is not a table of this format.
    """
    return Dataset(stimuli=None, assembly=read_trial_tables([files[name] for name in sorted(files)]))
