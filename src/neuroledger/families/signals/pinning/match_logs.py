"""Recordings with logs in a folder of downloads: which are read, whose they are, and which log goes with each."""

from __future__ import annotations

from pydantic import ValidationError

from neuroledger.data.pin.downloads import Downloads, Recorded
from neuroledger.data.pin.install_files import place_of
from neuroledger.data.pin.select_files import files_below, only_files
from neuroledger.errors import DataError, RequestError, SpecError
from neuroledger.families.signals.pinning.recordings import expected
from neuroledger.families.signals.pinning.scan_downloads import NOT_RAW, OPENED, companions_of
from neuroledger.families.signals.recordings.recording_names import Naming, resolve
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.load import explain

__all__ = ["logged"]

SHOWN = 5


def logged(catalog: Catalog, spec: DatasetSpec, text: str, downloads: Downloads) -> Recorded:
    """Files to pin, and the recordings that the reader's `naming` finds among them.

    Raises
    ------
    RequestError
        There are none, one lacks a file, two are the same, or people are missing.
    """
    only_files(spec, downloads)
    names = files_below(downloads.folder, aside=NOT_RAW, opened=OPENED)
    told = spec.reader.parameters if spec.reader is not None else {}
    try:
        naming = Naming.model_validate(told.get("naming"))
    except ValidationError as error:
        document = catalog.entry("datasets", spec.id).document
        raise SpecError(explain(error, document, Naming, ("reader", "naming"))) from None
    try:
        found = resolve(naming, names)
    except DataError as error:
        raise RequestError(f"{downloads.folder}: {error}") from error
    if not found.entries:
        raise RequestError(
            f"{downloads.folder} holds no recording below {naming.folder} called {naming.recordings[0]} with a log below "
            f"{naming.log_folder}: name the folder that holds {naming.folder.split('/')[0]}"
        )
    expected(spec, {str(entry["subject"]) for entry in found.entries}, downloads)
    files: list[str] = []
    for entry in found.entries:
        name, log = str(entry["file"]), str(entry["log"])
        files += [name, *companions_of(downloads.folder, name, names), log]
        entry |= {"file": place_of(name), "log": place_of(log)}
    # One log may serve two recordings only where the spec says so.
    files = list(dict.fromkeys(files))
    subjects = len({entry["subject"] for entry in found.entries})
    return Recorded(files, text, subjects, _remarks(found.left_out), found.entries)


def _remarks(left_out: dict[str, str]) -> list[str]:
    """What is left out, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        by_reason.setdefault(reason, []).append(name)
    return [
        f"{len(names)} recordings left out, {reason}: {', '.join(names[:SHOWN])}{', …' if names[SHOWN:] else ''}"
        for reason, names in by_reason.items()
    ]
