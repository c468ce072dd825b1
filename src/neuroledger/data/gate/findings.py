"""What a validation found: each finding says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from neuroledger.spec.expectations import Check

__all__ = ["Finding", "Stage", "remedy"]

Stage = Literal["hash", "structure", "expectations"]

REMEDIES: Final[Mapping[str, str]] = {
    "unique": "give every row a value of its own, or drop the rows that repeat",
    "unique_together": "drop the rows that repeat, or name the column that tells them apart",
    "not_null": "fill in the missing values, or drop their rows",
    "row_count": "add or drop rows until the count is right",
    "columns": "add, rename or drop columns of the stimulus table",
    "files_exist": "add the files to the archive, or drop their rows from the table",
    "files_decode": "replace the damaged files, or convert them to the declared mode and size",
    "files_match_sha256": "put the right files into the archive, or correct the hashes in the table",
    "dims": "transpose or rename the dimensions in the reader",
    "shape": "find out which items are missing or surplus",
    "coords": "let the reader attach the coordinates, complete",
    "dtype": "let the reader convert the values",
    "values_finite": "drop the items with missing or infinite values, or declare the padding with `missing`",
    "values_between": "look for wrong units and artefacts",
    "values_vary": "drop the sites that recorded nothing",
    "content": "prepare the data with the library versions and on the platform that they were pinned with",
    "sampling_rate": "correct time_bin_start, or the attribute sampling_rate",
    "channels": "order and name the recording sites as declared",
    "units": "convert the values, and set the attribute units",
    "aligned": "use the same stimulus_id values in the stimulus table and in the assembly",
    "repetitions": "find out which presentations are missing or surplus",
}
OTHERWISE: Final = "correct the values"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a data set.

    Attributes
    ----------
    stage
        ``hash`` (bytes against pins), ``structure`` (reading and conventions) or ``expectations``.
    severity
        An ``error`` keeps the data set from being scored on, a ``warning`` does not.
    what, where, do
        What is wrong, in which file or table, and what to do about it.
    check, why
        The expectation that was broken, and the reason its author gave for it.
    """

    stage: Stage
    severity: Literal["error", "warning"]
    what: str
    where: str
    do: str
    check: str = ""
    why: str = ""

    def __str__(self) -> str:
        reason = f" ({self.why})" if self.why else ""
        return f"{self.severity}: {self.where}: {self.what}{reason}\n    {self.do}"


def remedy(expectation: Check, spec_path: str) -> str:
    """What to do about a broken expectation: mend the data, or correct the declaration if the data are right."""
    name = str(getattr(expectation, "check", ""))
    mend = REMEDIES.get(name, OTHERWISE)
    return f"{mend}; if the data are right, correct `{name}` in {spec_path}"
