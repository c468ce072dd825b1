"""From a folder of downloads to a data set that `validate` and `run` accept: hashed, placed, and written into its spec."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic import ValidationError

from neuroledger.core import registry
from neuroledger.engine.fetch import folder_of
from neuroledger.engine.files import write_text
from neuroledger.engine.integrity import sha256_of_file, verify_file
from neuroledger.engine.pin.found import Found, Table, facts_of, files_below, people, recordings_in, sidecars
from neuroledger.engine.pin.text import with_entries, with_field, without
from neuroledger.errors import DataError, RequestError, SpecError
from neuroledger.spec.base import FILE_NAME, SourceFile
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import parse
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.load import explain, spec_of

__all__ = ["Downloads", "Pinned", "pin"]

READERS = ("mne_epochs", "bids_epochs", "prepared_signals")
# Coordinates that every window has, whatever the data set.
GIVEN = frozenset({"subject", "session", "run", "recording", "onset", "stimulus_id"})


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """Where the downloads lie and what their files cannot say themselves.

    Attributes
    ----------
    folder
        A BIDS folder, or any folder of recordings, with a table `recordings.tsv` where names do not tell whose they are.
    url_prefix
        Where the same files can be fetched from: the address of a file is this and its name in the folder. Without it,
        the files are pinned as brought by hand.
    label
        Column of the table that is to be decoded.
    events
        What the events are called here, by their description in the recordings.
    task
        Only recordings of this BIDS task.
    bids
        Read through mne-bids: events from `events.tsv`, channel types from `channels.tsv`.
    """

    folder: Path
    url_prefix: str | None = None
    label: str | None = None
    events: Mapping[str, str] | None = None
    task: str | None = None
    bids: bool = False


@dataclass(frozen=True)
class Pinned:
    """What pinning did, or would do: the spec's text before and after, the files, and remarks."""

    path: Path
    before: str
    after: str
    files: int
    placed: int
    subjects: int
    remarks: tuple[str, ...]


def pin(catalog: Catalog, id: str, downloads: Downloads, *, dry_run: bool = False) -> Pinned:
    """Hash the downloads of data set `id`, put them below `data/<id>/` and pin them in its spec.

    The spec keeps its comments and the order of its fields; `unavailable` goes. A second call with the same files
    changes nothing. Nothing is written before everything is found to be there. Files are linked where the disk can, and
    copied where it cannot.

    Raises
    ------
    RequestError
        The data set has no reader of recordings, or something is missing: files, people, what is to be decoded.
    SpecError
        The spec would not be valid.
    DataError
        A file of this name with other bytes lies in its place, or the disk refuses.
    """
    spec = catalog.dataset(id)
    path = catalog.entry("datasets", id).path
    if spec.reader is None or spec.reader.name not in READERS:
        raise RequestError(
            f"data set {id!r} has no reader of recordings: give it `reader: {{name: mne_epochs, window: …}}` "
            f"(one of {', '.join(READERS)})"
        )
    before = path.read_text(encoding="utf-8")
    names = files_below(downloads.folder)
    if spec.reader.name == "prepared_signals":
        wanted, text, subjects = _prepared(spec, names, downloads), before, 0
        remarks: list[str] = []
    else:
        wanted, text, subjects, remarks = _recorded(catalog, spec, names, before, downloads)
    pins = _pins(spec, wanted, downloads)
    text = with_entries(text, ("files",), pins, before="reader")
    text = without(text, "unavailable")
    _check(text, path, catalog.shown(path))
    places = {_place(name): downloads.folder / name for name in wanted}
    folder = folder_of(catalog.root, "datasets", id)
    _stop_on_others(folder, places, pins)
    placed = 0
    if not dry_run:
        placed = sum(_put(source, folder / name) for name, source in places.items())
        write_text(path, text)
    return Pinned(path, before, text, len(pins), placed, subjects, tuple(remarks))


def _prepared(spec: DatasetSpec, names: Sequence[str], downloads: Downloads) -> list[str]:
    """The files that `prepared_signals` was told to read."""
    told = spec.reader.parameters if spec.reader is not None else {}
    wanted = [told.get("file", "signals.nc"), *(told.get("embeddings") or {}).values()]
    wanted += [told["split_file"]] if told.get("split_file") else []
    lost = [name for name in wanted if name not in names]
    if lost:
        raise RequestError(
            f"{downloads.folder} lacks {', '.join(lost)}: {spec.id} is read from windows that are cut already, "
            "(presentation, channel, sample) as netCDF (docs/decoding.md)"
        )
    return [str(name) for name in wanted]


def _recorded(
    catalog: Catalog, spec: DatasetSpec, names: Sequence[str], text: str, downloads: Downloads
) -> tuple[list[str], str, int, list[str]]:
    """Files to pin and the spec's text with their recordings, or with the task and facts that mne-bids is to read."""
    table = people(downloads.folder)
    told = spec.reader.parameters if spec.reader is not None else {}
    bids = downloads.bids or (spec.reader is not None and spec.reader.name == "bids_epochs")
    task = downloads.task or (told.get("task") if bids else None)
    found = recordings_in(downloads.folder, names, task=task, table=table)
    facts, remarks = facts_of(found, table, downloads.label)
    window = dict(told.get("window", {}))
    if downloads.events:
        window["labels"] = {**window.get("labels", {}), **downloads.events}
        text = with_field(text, ("reader", "window"), window)
    if not window.get("labels") and not window.get("stride"):
        raise RequestError(
            f"{spec.id} is cut around events: say what they mean with --event DESCRIPTION=LABEL (repeat it). "
            f"{_descriptions(downloads.folder / found[0].file)}"
        )
    subjects = {item.subject for item in found}
    _expected(spec, subjects, downloads)
    _decodable(catalog, spec, window, facts[0], told)
    files = [name for item in found for name in (item.file, *item.companions)]
    if bids:
        if "dataset_description.json" not in names:
            raise RequestError(f"{downloads.folder} has no dataset_description.json: it is no BIDS folder")
        if task is None:
            raise RequestError(
                "--bids needs --task: the name of the task whose recordings are read, as in task-NAME"
            )
        text = _by_bids(text, task, downloads, table, facts[0])
        return sorted({*files, *sidecars(names, found)}), text, len(subjects), remarks
    entries = {item.file: _entry(item, fact) for item, fact in zip(found, facts, strict=True)}
    return files, with_entries(text, ("reader", "recordings"), entries), len(subjects), remarks


def _entry(item: Found, facts: Mapping[str, str | float]) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": _place(item.file), "subject": item.subject}
    entry |= {name: value for name, value in (("session", item.session), ("run", item.run)) if value != "1"}
    return entry | ({"facts": dict(facts)} if facts else {})


def _by_bids(
    text: str, task: str, downloads: Downloads, table: Table | None, facts: Mapping[str, Any]
) -> str:
    """The text with a reader that leaves recordings to mne-bids."""
    text = with_field(text, ("reader", "name"), "bids_epochs")
    text = re.sub(r"^  recordings:.*\n(?:    .*\n)*", "", text, count=1, flags=re.MULTILINE)
    text = with_field(text, ("reader", "task"), task)
    columns = {re.sub(r"\W+", "_", c.strip()).strip("_").lower(): c for c in (table.columns if table else ())}
    kept = {name: column for name, column in columns.items() if name in facts}
    if downloads.label is not None:
        kept["label"] = downloads.label
    return with_field(text, ("reader", "facts"), kept) if kept else text


def _descriptions(path: Path) -> str:
    """What the events of a recording are called, where MNE is here to tell."""
    try:
        import mne

        raw = mne.io.read_raw(path, preload=False, verbose="ERROR")
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        return f"Its events could not be read from {path.name} ({error})."
    kinds = sorted(set(map(str, raw.annotations.description)))
    shown = ", ".join(repr(kind) for kind in kinds[:20]) + (", …" if kinds[20:] else "")
    return (
        f"{path.name} has {shown}"
        if kinds
        else f"{path.name} has no events; are they in events.tsv (--bids)?"
    )


def _expected(spec: DatasetSpec, subjects: set[str], downloads: Downloads) -> None:
    """As many people as the spec expects."""
    for check in spec.expectations.assembly:
        said = check.model_dump()
        about = said.get("check") == "distinct" and said.get("column") == "subject"
        if about and said.get("count") not in (None, len(subjects)):
            raise RequestError(
                f"{spec.id} expects {said['count']} subjects, {downloads.folder} holds {len(subjects)}: "
                "bring the rest, or correct the expectation in the spec"
            )


def _decodable(
    catalog: Catalog, spec: DatasetSpec, window: Mapping[str, Any], facts: Mapping[str, Any], told: Any
) -> None:
    """Everything that a benchmark on these data decodes, holds out or groups by is known of each window."""
    known = {*GIVEN, *facts, *window.get("until", {}), *told.get("event_fields", ())}
    known |= {"label"} if window.get("labels") else set()
    known |= {"trial"} if window.get("trial_starts_with") else set()
    for id in catalog.ids("benchmarks"):
        benchmark = catalog.benchmark(id)
        if benchmark.dataset != spec.id or benchmark.paradigm.name != "decoding":
            continue
        rules = benchmark.paradigm.parameters
        if rules.get("objective") == "retrieval":
            continue
        target, splits = rules.get("target", "label"), rules.get("splits", {})
        wanted = [target] if isinstance(target, str) else list(target)
        wanted += [splits[name] for name in ("by", "column", "stratify", "trial") if splits.get(name)]
        wanted += ["split"] if splits.get("name") == "declared" and "column" not in splits else []
        lost = [name for name in wanted if name not in known]
        if lost:
            raise RequestError(
                f"benchmark {id} needs {', '.join(lost)} of each window, and the downloads do not say it; they say "
                f"{', '.join(sorted(known))}. Name the column to decode with --label, or put a table recordings.tsv "
                f"(file, subject, {', '.join(lost)}) into the folder; what changes within a recording needs --event, or "
                "windows that you cut yourself (reader prepared_signals, docs/decoding.md)"
            )


def _pins(spec: DatasetSpec, wanted: Sequence[str], downloads: Downloads) -> dict[str, dict[str, Any]]:
    """Size, hash and source of each file; a file that is pinned with these bytes already keeps its source."""
    pins: dict[str, dict[str, Any]] = {}
    for name in wanted:
        source, place = downloads.folder / name, _place(name)
        size, digest = source.stat().st_size, sha256_of_file(source)
        if place in pins:
            raise RequestError(f"two files would be called {place}: rename one in {downloads.folder}")
        pin: dict[str, Any] = {"size": size, "sha256": digest}
        held = spec.files.get(place)
        if downloads.url_prefix is not None:
            pin = {"url": f"{downloads.url_prefix.rstrip('/')}/{quote(name)}", **pin}
            if held is not None and held.url == pin["url"] and held.sha256 == digest and held.version_id:
                pin["version_id"] = held.version_id
        elif held is not None and held.sha256 == digest:
            pin = _source(held) | pin
        pins[place] = pin
    return pins


def _source(held: SourceFile) -> dict[str, Any]:
    said = held.model_dump(exclude_defaults=True)
    return {name: value for name, value in said.items() if name not in ("size", "sha256")}


def _place(name: str) -> str:
    """The name below `data/<id>/`: that of the download, with characters that specs do not allow replaced."""
    parts = [
        "".join(c if c.isascii() and (c.isalnum() or c in "._+-") else "_" for c in part)
        for part in name.split("/")
    ]
    place = "/".join(part if part[0].isalnum() or part[0] == "_" else f"_{part}" for part in parts)
    if not FILE_NAME.fullmatch(place):
        raise RequestError(f"{name!r} cannot be the name of a pinned file: shorten it")
    return place


def _check(text: str, path: Path, shown: str) -> None:
    """The text is a valid spec whose reader takes its parameters."""
    document = parse(text, shown)
    spec = spec_of(document, "datasets", stem=path.stem)
    component = registry.get("reader", spec.reader.name)  # type: ignore[attr-defined]
    try:
        component.bind(spec.reader.parameters)  # type: ignore[attr-defined]
    except ValidationError as error:
        raise SpecError(explain(error, document, component.parameters, ("reader",))) from None


def _stop_on_others(folder: Path, places: Mapping[str, Path], pins: Mapping[str, Mapping[str, Any]]) -> None:
    for name in places:
        if (folder / name).exists():
            pinned = SourceFile(size=pins[name]["size"], sha256=pins[name]["sha256"])
            verify_file(folder / name, pinned, mend="move it away, then pin again")


def _put(source: Path, place: Path) -> bool:
    """Link or copy a file to its place; False where it is there already."""
    if place.exists():
        return False
    temporary = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)
        temporary.replace(place)
    except OSError as error:
        raise DataError(
            f"{place} cannot be written ({error.strerror}); free space or rights on that disk"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
    return True
