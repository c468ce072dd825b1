"""Further stimulus sets of a data set, such as those that a readout is fitted to: a table and a zip each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from neuroledger.data.stimuli import StimulusSet, read_table, safe_members
from neuroledger.errors import DataError

__all__ = ["StimulusFiles", "further_sets"]


class StimulusFiles(BaseModel):
    """Names, among the files of the spec, of a CSV of stimuli and of the zip that holds their files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stimuli: str
    archive: str | None = None


def further_sets(
    files: Mapping[str, Path], named: Mapping[str, StimulusFiles] | None
) -> dict[str, StimulusSet]:
    """The stimulus sets by the names that benchmarks call them by.

    Raises
    ------
    DataError
        A file is not declared under ``files``.
    """
    sets = {}
    for name, held in (named or {}).items():
        for file in (held.stimuli, held.archive):
            if file is not None and file not in files:
                raise DataError(
                    f"the stimulus set {name!r} needs the file {file!r}; the spec's `files` are {', '.join(sorted(files))}"
                )
        archive = files[held.archive] if held.archive is not None else None
        if archive is not None:
            safe_members(archive)
        sets[name] = StimulusSet(Path(held.stimuli).stem, read_table(files[held.stimuli]), archive)
    return sets
