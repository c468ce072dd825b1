"""A published tree of recordings into a pinned spec: addresses, hashes, people and trial counts, nothing downloaded."""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import Field

from neuroledger.data.file_names import matching
from neuroledger.data.pin.downloads import place_of
from neuroledger.data.pin.yaml_edit import inline, with_entries, with_field, without, without_recordings
from neuroledger.errors import RequestError
from neuroledger.families.signals.pinning.scan_downloads import (
    NOT_RAW,
    Found,
    facts_of,
    recordings_in,
    sidecars,
)
from neuroledger.families.signals.pinning.trees import PublishedTree, counts_of, together
from neuroledger.spec.base import Frozen
from neuroledger.spec.bibliography import read_bibliography
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import parse
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.lists import LONG, address, table_of
from neuroledger.spec.load import spec_of
from neuroledger.store.files import write_text

__all__ = ["Imported", "Stated", "Wanted", "import_tree"]

LICENCES = {
    "cc0": "CC0-1.0",
    "cc-0": "CC0-1.0",
    "pddl": "PDDL-1.0",
    "odbl-v1.0": "ODbL-1.0",
    "gpl-3.0": "GPL-3.0-only",
    "open-data-commons-attribution-license-v1.0": "ODC-By-1.0",
    "unknown": "LicenseRef-unstated",
    "n/a": "LicenseRef-unstated",
}
# Windows at an edge of a recording are not cut, so that a few events have none.
KEPT = 0.95
# Sidecars from which nothing is read that changes a window: mne-bids takes the power line frequency from `_eeg.json`.
UNREAD = (
    "_events.json",
    "_channels.json",
    "_electrodes.json",
    "_eeg.json",
    "_meg.json",
    "_scans.tsv",
    "_scans.json",
)


class Stated(Frozen):
    """What is known of a tree of which only a listing is at hand: licence, and trials by task and type."""

    license: str | None = None
    title: str | None = None
    authors: tuple[str, ...] = ()
    doi: str | None = None
    trials: dict[str, dict[str, int]] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which recordings of a tree become a data set, and how they are read.

    Attributes
    ----------
    task
        BIDS tasks; may be left out where the tree has one.
    events
        What is decoded, by the type of trial; every type by its own name where none are named.
    named
        Patterns of files that are read by MNE alone, as in `pin --named`, each with facts; in place of BIDS.
    window
        Start and duration in seconds, for a new spec.
    datatype
        Folder of the recordings in BIDS.
    people
        With `named`: the tables and columns with facts of the people, as in the reader.
    published, unread
        Patterns of files that are pinned as they are, and why no reader reads them; in place of recordings.
    defects, notes
        What else is known to be wrong with the data set, or worth a remark.
    """

    task: tuple[str, ...] = ()
    events: Mapping[str, str] | None = None
    named: Mapping[str, Mapping[str, str]] | None = None
    window: tuple[float, float] = (0.0, 1.0)
    datatype: Literal["eeg", "meg", "ieeg", "emg"] = "eeg"
    people: Mapping[str, Any] | None = None
    published: tuple[str, ...] = ()
    unread: str | None = None
    defects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Imported(NamedTuple):
    """The spec's file, what was pinned, and what disagrees."""

    path: Path
    files: int
    size: int
    people: int
    trials: dict[str, int]
    defects: tuple[str, ...]


def import_tree(
    catalog: Catalog,
    trees: PublishedTree | Sequence[PublishedTree],
    id: str,
    wanted: Wanted,
    stated: Stated | None = None,
) -> Imported:
    """Pin the recordings of a tree, or of several that are one data set, as data set `id`; `unavailable` goes.

    The files are the recordings of the wanted tasks, what MNE needs beside them, and the sidecars that mne-bids reads.
    The spec expects the tree's people and trials of each label. What disagrees with a spec that was there (licence,
    number of people), and equal bytes under two people, are stated in `defects`. Each of several trees has its folder.

    Raises
    ------
    RequestError
        The tree has no such recordings, several tasks and none is named, or files without a SHA-256.
    SpecError
        The spec would not be valid.
    """
    tree = trees if isinstance(trees, PublishedTree) else together(trees)
    stated = stated or _stated(tree)
    raw = [name for name in tree.files if _raw(name, wanted)]
    task: Sequence[str] = ()
    found: list[Found] = []
    bids = not (wanted.named or wanted.published)
    if not wanted.published:
        task = wanted.task or (() if wanted.named else _only_task(tree, raw))
        found = recordings_in(Path(tree.id), raw, task=task or None, named=wanted.named or {})
    if bids:
        found = [item for item in found if f"/{wanted.datatype}/" in item.file]
        if not found:
            raise RequestError(f"{tree.id} has no {wanted.datatype} recording of task {', '.join(task)}")
    names = [name for item in found for name in item.files]
    if wanted.people:
        names += matching(str(wanted.people["tables"]), raw)
    names += [name for pattern in wanted.published for name in matching(pattern, raw)]
    if not names:
        raise RequestError(f"{tree.id} has no file {' or '.join(wanted.published)}")
    if bids:
        names += [name for name in sidecars(raw, found) if not name.endswith(UNREAD)]
    pins = _pins(tree, dict.fromkeys(names))
    people = {item.subject for item in found}
    before = catalog.dataset(id) if catalog.has("datasets", id) else None
    path = (
        catalog.entry("datasets", id).path if before else catalog.root / "specs" / "datasets" / f"{id}.yaml"
    )
    text = path.read_text(encoding="utf-8") if before else _new(id, tree, stated, wanted)
    trials = _trials(stated, task, wanted, before)
    defects = [
        *wanted.defects,
        *_disagreements(before, stated, tree, None if wanted.published else len(people)),
        *_same_bytes(tree, found),
    ]
    if wanted.published:
        why = wanted.unread or "No reader reads these files as they were published: convert them."
        why += f" Then `neuroledger pin {id} --from FOLDER` pins what was converted."
        text = with_field(text, ("unread",), why, before="reader")
    else:
        text = _read_by(text, wanted, task, found, trials, before)
        text = _expecting(text, len(people), trials, tree)
    table, rows = table_of(pins)
    listed = {
        "table": f"{id}.files.jsonl",
        "sha256": hashlib.sha256(table.encode()).hexdigest(),
        "rows": rows,
        "urls": {key: url for key, url in tree.urls.items() if any(pin.get("at") == key for pin in pins)},
    }
    lists = {"files": listed}
    entries = _entries(found) if wanted.named else []
    recordings = ""
    if len(entries) > LONG:
        recordings, count = table_of(entries)
        digest = hashlib.sha256(recordings.encode()).hexdigest()
        lists["reader.recordings"] = {"table": f"{id}.recordings.jsonl", "sha256": digest, "rows": count}
        text = _without_inner(without_recordings(text), "recordings")
    elif entries:
        text = with_entries(text, ("reader", "recordings"), {str(entry["file"]): entry for entry in entries})
    size = sum(pin["size"] for pin in pins)
    text = with_entries(without(without(text, "files"), "unavailable"), ("lists",), lists, before="reader")
    known = () if before is None else before.defects
    text = _block(text, "defects", list(dict.fromkeys([*known, *defects])))
    notes = [*(() if before is None else before.notes), *wanted.notes, _note(tree, len(people), trials)]
    text = _block(text, "notes", list(dict.fromkeys(notes)))
    steps = [
        f"`neuroledger fetch {id}` brings {rows:,} files, {size / 1e9:.2f} GB, and verifies their SHA-256."
    ]
    if wanted.published:
        steps += [step for step in (() if before is None else before.access_steps) if step not in steps]
    else:
        steps.append(f"Then `neuroledger validate {id}` and `neuroledger run`.")
    text = _block(text, "access_steps", steps)
    if before is None and _cited(catalog, tree, stated):
        text = with_field(text, ("cite",), [tree.id], before="reader")
    document = parse(text, catalog.shown(path))
    tables = {f"{id}.files.jsonl": table} | (
        {f"{id}.recordings.jsonl": recordings} if len(entries) > LONG else {}
    )
    spec_of(document, "datasets", stem=id, tables=lambda name: tables[name].encode())
    for name, content in tables.items():
        write_text(path.with_name(name), content)
    write_text(path, text)
    return Imported(path, rows, size, len(people), trials, tuple(defects))


def _raw(name: str, wanted: Wanted) -> bool:
    parts = name.split("/")
    outside = not any(part.startswith(".") for part in parts)
    return outside and (bool(wanted.named or wanted.published) or parts[0] not in NOT_RAW)


def _only_task(tree: PublishedTree, raw: Sequence[str]) -> tuple[str, ...]:
    tasks = sorted({match[1] for name in raw if (match := re.search(r"_task-([A-Za-z0-9+]+)_", name))})
    if len(tasks) != 1:
        counted = counts_of(tree)
        shown = (
            "; ".join(f"{task} ({_counted(counted.get(task, {})) or 'no events'})" for task in tasks)
            or "none"
        )
        raise RequestError(f"{tree.id} has {len(tasks)} tasks: {shown}. Name those that are read with --task")
    return tuple(tasks)


def _counted(trials: Mapping[str, int]) -> str:
    shown = [f"{count:,} {kind}" for kind, count in trials.items()]
    return ", ".join(shown[:12]) + (f" and {len(shown) - 12} more" if shown[12:] else "")


def _pins(tree: PublishedTree, names: Mapping[str, None]) -> list[dict[str, Any]]:
    """One line for each file. Where an address does not follow from the template, it is written out."""
    unhashed = [name for name in names if tree.files[name].sha256 is None]
    if unhashed:
        raise RequestError(
            f"{tree.id} states no SHA-256 of {len(unhashed)} files, first {unhashed[0]}: MD5 keys can be forged; "
            "download it and use `neuroledger pin`"
        )
    lines = []
    for name in names:
        held = tree.files[name]
        digest, place = str(held.sha256), place_of(name)
        at = held.at if held.at in tree.urls else f"{name.partition('/')[0]}.{held.at}"
        line: dict[str, Any] = {"name": place, "at": at, "size": held.size, "sha256": digest}
        url = address(tree.urls[at], name, held.size, digest)
        if held.suffix is not None and url.endswith(
            f"--{digest}{PurePosixPath(url).name.partition(digest)[2]}"
        ):
            url = url[: url.index(f"--{digest}") + 2 + len(digest)] + held.suffix
        if url != address(tree.urls[at], place, held.size, digest):
            del line["at"]
            line["url"] = url
        lines.append(line)
    return lines


def _stated(tree: PublishedTree) -> Stated:
    said = tree.description
    licence = said.get("License")
    doi = re.search(r"10\.\d{4,}/\S+", str(said.get("DatasetDOI", "")))
    authors = said.get("Authors") if isinstance(said.get("Authors"), list) else []
    return Stated(
        license=str(licence) if licence else None,
        title=str(said["Name"]) if said.get("Name") else None,
        authors=tuple(str(author) for author in authors or []),
        doi=doi[0] if doi else None,
        trials=counts_of(tree),
    )


def spdx(licence: str) -> str:
    """A licence as SPDX writes it (`CC-BY-SA 4.0` is `CC-BY-SA-4.0`), `LicenseRef-unstated` for what SPDX does not know."""
    written = re.sub(r"\s+", "-", licence.strip())
    try:
        return str(canonicalize_license_expression(LICENCES.get(written.lower(), written)))
    except InvalidLicenseExpression:
        return "LicenseRef-unstated"


def _cited(catalog: Catalog, tree: PublishedTree, stated: Stated) -> bool:
    """Whether the bibliography has the tree's entry; it is added where the tree states a title and authors."""
    path = catalog.root / "specs" / "references.bib"
    if tree.id in read_bibliography(path).references:
        return True
    if not (stated.title and stated.authors):
        return False
    safe = {name: re.sub(r"[{}\\@]", "", value) for name, value in {
        "author": " and ".join(stated.authors), "title": stated.title, "doi": stated.doi or "", "url": tree.page,
    }.items()}  # fmt: skip
    fields = "".join(f"  {name} = {{{value}}},\n" for name, value in safe.items() if value)
    held = path.read_text(encoding="utf-8") if path.is_file() else ""
    write_text(path, f"{held.rstrip()}\n\n@misc{{{tree.id},\n{fields}}}\n".lstrip())
    return True


def _trials(
    stated: Stated, task: Sequence[str], wanted: Wanted, before: DatasetSpec | None
) -> dict[str, int]:
    """Events of each label: those that the tree counts under the types of trial that are decoded."""
    window = before.reader.parameters.get("window", {}) if before and before.reader else {}
    labels = wanted.events or window.get("labels") or {}
    counted: dict[str, int] = defaultdict(int)
    for name in task or stated.trials:
        for kind, count in stated.trials.get(name, {}).items():
            if not labels:
                counted[kind] += count
            elif kind in labels:
                counted[labels[kind]] += count
    return dict(counted)


def _disagreements(
    before: DatasetSpec | None, stated: Stated, tree: PublishedTree, people: int | None
) -> list[str]:
    if before is None:
        return []
    found = []
    if stated.license and spdx(stated.license) != before.license:
        found.append(
            f"Licence: {tree.id} states {stated.license}, this spec {before.license}; see "
            f"{before.source or tree.page}."
        )
    for check in before.expectations.assembly if people is not None else ():
        said = check.model_dump()
        if (
            said.get("check") == "distinct"
            and said.get("column") == "subject"
            and said.get("count") != people
        ):
            found.append(f"People: {tree.id} holds {people}; {said['count']} were expected here before.")
    return found


def _same_bytes(tree: PublishedTree, found: Sequence[Found]) -> list[str]:
    """Recordings that hold the same bytes under two people."""
    first: dict[str, Found] = {}
    problems = []
    for item in found:
        digest = max((tree.files[name] for name in item.files), key=lambda held: held.size).sha256
        other = first.setdefault(str(digest), item)
        if other.subject != item.subject:
            problems.append(
                f"{other.file} and {item.file} hold the same bytes under two people: one has the wrong name."
            )
    return problems


def _read_by(
    text: str,
    wanted: Wanted,
    task: Sequence[str],
    found: Sequence[Found],
    trials: Mapping[str, int],
    before: DatasetSpec | None,
) -> str:
    """The text with a reader of these recordings."""
    told = dict(parse(text, "spec").data["reader"])
    window = dict(told.get("window") or {})
    if wanted.events:
        window["labels"] = dict(wanted.events)
    elif (
        trials
        and not any(window.get(name) for name in ("labels", "stride", "marks"))
        and not told.get("events")
    ):
        window["labels"] = {kind: kind for kind in trials}
    if window != told.get("window"):
        text = with_field(text, ("reader", "window"), window)
    if not wanted.named:
        text = with_field(text, ("reader", "name"), "bids_epochs")
        text = _without_inner(without_recordings(text), "recordings")
        text = with_field(text, ("reader", "task"), task[0] if len(task) == 1 else list(task))
        return text if wanted.datatype == "eeg" else with_field(text, ("reader", "datatype"), wanted.datatype)
    text = with_field(text, ("reader", "name"), "mne_epochs")
    if wanted.people:
        text = with_field(text, ("reader", "people"), dict(wanted.people))
    return with_field(text, ("reader", "named"), {k: dict(v) for k, v in (wanted.named or {}).items()})


def _entries(found: Sequence[Found]) -> list[dict[str, Any]]:
    """The recordings as the reader of MNE lists them."""
    facts, _ = facts_of(found, None, None)
    entries = []
    for item, fact in zip(found, facts, strict=True):
        entry: dict[str, Any] = {"file": place_of(item.file), "subject": item.subject}
        entry |= {
            name: value for name, value in (("session", item.session), ("run", item.run)) if value != "1"
        }
        entries.append(entry | ({"facts": fact} if fact else {}))
    return entries


def _without_inner(text: str, name: str) -> str:
    """The text without a field of the reader."""
    return re.sub(rf"^  {name}: .*\n", "", text, count=1, flags=re.MULTILINE)


def _expecting(text: str, people: int, trials: Mapping[str, int], tree: PublishedTree) -> str:
    """The text with the tree's people and trials among what is expected of the assembly."""
    data = parse(text, "spec").data
    held = list((data.get("expectations") or {}).get("assembly") or [])
    kept = [
        check
        for check in held
        if not (
            check["check"] in ("distinct", "equal_set", "row_count")
            and check.get("column") in ("subject", "label", None)
        )
    ]
    kept.append({"check": "distinct", "column": "subject", "count": people})
    window = data["reader"].get("window") or {}
    if trials and window.get("labels") and not window.get("stride"):
        kept.append({"check": "equal_set", "column": "label", "values": list(trials)})
        kept += [
            {
                "check": "row_count",
                "where": {"label": label},
                "low": math.floor(KEPT * count),
                "high": count,
                "why": f"{count:,} events in {tree.id}",
            }
            for label, count in trials.items()
        ]
    return with_entries(text, ("expectations", "assembly"), {str(i): check for i, check in enumerate(kept)})


def _block(text: str, name: str, items: Sequence[str]) -> str:
    """The text with a list of texts, one a line, in front of the reader or of the lists."""
    text = without(text, name)
    if not items:
        return text
    lines = text.splitlines()
    at = next(i for i, line in enumerate(lines) if re.match(r"(lists|reader|files)\s*:", line))
    return (
        "\n".join([*lines[:at], f"{name}:", *(f"  - {_quoted(item)}" for item in items), *lines[at:]]) + "\n"
    )


def _quoted(text: str) -> str:
    written = inline(text)
    return written if written.startswith('"') else f'"{written}"'


def _note(tree: PublishedTree, people: int, trials: Mapping[str, int]) -> str:
    counted = f": {people} people" if people else ""
    counted += f"; events: {_counted(trials)}" if trials else ""
    return (
        f"Pinned from {tree.page} at commit {tree.commit[:10]}{counted}. "
        "Sizes and hashes are those of its annex keys and git."
    )


def _new(id: str, tree: PublishedTree, stated: Stated, wanted: Wanted) -> str:
    """The text of a spec that nobody wrote yet."""
    start, duration = wanted.window
    title = inline(f"{stated.title or tree.id}, from {tree.page}"[:200])
    author = f" Published by {', '.join(stated.authors)}." if stated.authors else ""
    cited = f" DOI {stated.doi}." if stated.doi else ""
    license = spdx(stated.license or "unknown")
    said = stated.license or "no licence"
    lines = [
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"id: {id}",
        "version: 1",
        f"title: {title if title.startswith(chr(34)) else chr(34) + title + chr(34)}",
        f"description: {_quoted(f'Data set {tree.id}.{author}{cited}')}",
        f"license: {license}",
        *([f"license_note: {_quoted(f'The tree states {said}.')}"] if "LicenseRef" in license else []),
        "species: Homo sapiens",
        f"modality: {wanted.datatype}",
        f'source: "{tree.page}"',
        "reader:",
        "  name: bids_epochs",
        f"  window: {inline({'start': start, 'duration': duration})}",
        f"  preprocessing: {{pick: [{wanted.datatype}]}}",
        "expectations:",
        "  assembly:",
        "    - {check: dims, dims: [presentation, channel, sample]}",
        "    - {check: values_finite}",
        "    - {check: values_vary, over: channel}",
    ]
    return "\n".join(lines) + "\n"
