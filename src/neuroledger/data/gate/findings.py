"""What to do about each broken expectation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from neuroledger.spec.expectations import Check

__all__ = ["remedy"]

OTHERWISE: Final = "correct the values"
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


def remedy(expectation: Check, spec_path: str) -> str:
    """What to do about a broken expectation: correct the data, or the declaration if the data are right."""
    name = str(getattr(expectation, "check", ""))
    return f"{REMEDIES.get(name, OTHERWISE)}; if the data are right, correct `{name}` in {spec_path}"
