"""Import of a published tree of recordings as a pinned spec, without a download of recordings."""

from __future__ import annotations

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
from neuroledger.data.pin.yaml_edit import (
    inline,
    listed,
    with_entries,
    with_field,
    without,
)
from neuroledger.errors import RequestError
from neuroledger.families.signals.pinning.scan_downloads import (
    NOT_RAW,
    Found,
    entry_of,
    facts_of,
    recordings_in,
    sidecars,
)
from neuroledger.families.signals.pinning.trees import PublishedTree, counts_of, joined
from neuroledger.spec.base import Frozen
from neuroledger.spec.bibliography import read_bibliography
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import parse
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.lists import LONG, address
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
# Windows beyond the ends of a recording are not cut, so a few events have none.
KEPT = 0.95
# Sidecars whose content does not change windows: mne-bids reads the power line frequency from `_eeg.json`.
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
    """Facts about a tree, for trees of which only a listing exists: licence, and trials by task and type."""

    license: str | None = None
    title: str | None = None
    authors: tuple[str, ...] = ()
    doi: str | None = None
    trials: dict[str, dict[str, int]] = Field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The recordings of a tree that become a data set, and their reader's parameters.

    Attributes
    ----------
    task
        BIDS tasks; optional if the tree has only one.
    events
        Labels by type of trial; by default, each type is its own label.
    named
        Patterns of files that MNE reads without BIDS, as in `pin --named`, each with facts.
    window
        Start and duration in seconds, for a new spec.
    datatype
        Folder of the recordings in BIDS.
    people
        With `named`: the tables and columns with facts about subjects, as in the reader.
    published, unread
        Instead of recordings: patterns of files that are pinned but not read, and the reason.
    defects, notes
        Further known defects of the data set, and notes.
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
    """The spec's file, the numbers of pinned files, bytes, people and trials, and the defects."""

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
    """Pin the recordings of a tree, or of several trees of one data set, as data set `id`; removes `unavailable`.

    The files are the recordings of the wanted tasks, their companions for MNE, and the sidecars that mne-bids reads. The
    spec expects the tree's number of people, and its number of trials of each label. Disagreements with an existing spec
    (licence, number of people), and identical files of two people, are listed in `defects`. Each of several trees has its
    own folder.

    Raises
    ------
    RequestError
        The tree has no such recordings, has several tasks and none is named, or has files without a SHA-256.
    SpecError
        The spec would not be valid.
    """
    if isinstance(trees, PublishedTree):
        tree = trees
    else:
        tree = joined(trees)
    stated = stated or _stated(tree)
    chosen = _chosen(tree, wanted)
    pins = _pins(tree, dict.fromkeys(chosen.files))
    people = len({item.subject for item in chosen.recordings})
    before: DatasetSpec | None = None
    if catalog.has("datasets", id):
        before = catalog.dataset(id)
        path = catalog.entry("datasets", id).path
        text = path.read_text(encoding="utf-8")
    else:
        path = catalog.root / "specs" / "datasets" / f"{id}.yaml"
        text = _new(id, tree, stated, wanted)
    trials = _trials(stated, chosen.task, wanted, before)
    expected_people = None
    if wanted.published:
        text = _with_reason(text, id, wanted)
    else:
        expected_people = people
        text = _with_reader(text, wanted, chosen, trials)
        text = _with_expectations(text, people, trials, tree)
    text, tables = _with_lists(text, id, tree, pins, wanted, chosen)
    defects = [
        *wanted.defects,
        *_disagreements(before, stated, tree, expected_people),
        *_same_bytes(tree, chosen.recordings),
    ]
    size = sum(pin["size"] for pin in pins)
    steps = [
        f"`neuroledger fetch {id}` brings {len(pins):,} files, {size / 1e9:.2f} GB, and verifies their SHA-256."
    ]
    if not wanted.published:
        steps.append(f"Then `neuroledger validate {id}` and `neuroledger run`.")
    note = _note(tree, people, trials)
    text = _with_sentences(text, wanted, before, defects, note, steps)
    if before is None and _cited(catalog, tree, stated):
        text = with_field(text, ("cite",), [tree.id], before="reader")
    document = parse(text, catalog.shown(path))
    spec_of(document, "datasets", stem=id, tables=lambda name: tables[name].encode())
    for name, content in tables.items():
        write_text(path.with_name(name), content)
    write_text(path, text)
    return Imported(path, len(pins), size, people, trials, tuple(defects))


class _Chosen(NamedTuple):
    """What is imported from a tree: tasks, recordings, and the names of all files to pin."""

    task: Sequence[str]
    recordings: list[Found]
    files: list[str]


def _chosen(tree: PublishedTree, wanted: Wanted) -> _Chosen:
    raw = [name for name in tree.files if _raw(name, wanted)]
    if wanted.people:
        about_people = matching(str(wanted.people["tables"]), raw)
    else:
        about_people = []
    if wanted.published:
        files = list(about_people)
        for pattern in wanted.published:
            files += matching(pattern, raw)
        if not files:
            patterns = " or ".join(wanted.published)
            raise RequestError(f"{tree.id} has no file {patterns}")
        return _Chosen((), [], files)
    if wanted.named:
        task = wanted.task
    else:
        task = wanted.task or _only_task(tree, raw)
    recordings = recordings_in(
        Path(tree.id), raw, task=task or None, named=wanted.named or {}
    )
    if not wanted.named:
        folder = f"/{wanted.datatype}/"
        recordings = [item for item in recordings if folder in item.file]
        if not recordings:
            raise RequestError(
                f"{tree.id} has no {wanted.datatype} recording of task {', '.join(task)}"
            )
    files = [name for item in recordings for name in item.files]
    files += about_people
    if not wanted.named:
        beside = sidecars(raw, recordings)
        files += [name for name in beside if not name.endswith(UNREAD)]
    return _Chosen(task, recordings, files)


def _with_reason(text: str, id: str, wanted: Wanted) -> str:
    """The spec's text with the reason why its files are not read."""
    default = "No reader reads these files as they were published: convert them."
    reason = (
        f"{wanted.unread or default} Then `neuroledger pin {id} --from FOLDER` pins "
        "what was converted."
    )
    return with_field(text, ("unread",), reason, before="reader")


def _with_lists(
    text: str,
    id: str,
    tree: PublishedTree,
    pins: Sequence[Mapping[str, object]],
    wanted: Wanted,
    chosen: _Chosen,
) -> tuple[str, dict[str, str]]:
    """The spec's text with the pinned files and the recordings, and the texts of its tables by name."""
    files = listed(f"{id}.files.jsonl", pins)
    used = {pin.get("at") for pin in pins}
    urls = {key: url for key, url in tree.urls.items() if key in used}
    lists = {"files": {**files.entry, "urls": urls}}
    tables = {files.name: files.text}
    if wanted.named:
        entries = _entries(chosen.recordings)
    else:
        entries = []
    if len(entries) > LONG:
        recordings = listed(f"{id}.recordings.jsonl", entries)
        lists["reader.recordings"] = recordings.entry
        tables[recordings.name] = recordings.text
        text = without(text, "reader", "recordings")
    elif entries:
        text = with_entries(text, ("reader", "recordings"), entries)
    text = without(without(text, "files"), "unavailable")
    return with_entries(text, ("lists",), lists, before="reader"), tables


def _with_sentences(
    text: str,
    wanted: Wanted,
    before: DatasetSpec | None,
    defects: Sequence[str],
    note: str,
    steps: Sequence[str],
) -> str:
    """The spec's text with its defects, notes and steps of access, after those that it has."""
    notes = [*wanted.notes, note]
    if before is not None:
        defects = [*before.defects, *defects]
        notes = [*before.notes, *notes]
    if before is not None and wanted.published:
        steps = [*steps, *before.access_steps]
    lists = {"defects": defects, "notes": notes, "access_steps": steps}
    for name, items in lists.items():
        text = _with_texts(text, name, list(dict.fromkeys(items)))
    return text


def _raw(name: str, wanted: Wanted) -> bool:
    parts = name.split("/")
    outside = not any(part.startswith(".") for part in parts)
    return outside and (
        bool(wanted.named or wanted.published) or parts[0] not in NOT_RAW
    )


def _only_task(tree: PublishedTree, raw: Sequence[str]) -> tuple[str, ...]:
    tasks = sorted(
        {
            match[1]
            for name in raw
            if (match := re.search(r"_task-([A-Za-z0-9+]+)_", name))
        }
    )
    if len(tasks) != 1:
        counts = counts_of(tree)
        summaries = (
            "; ".join(
                f"{task} ({_counted(counts.get(task, {})) or 'no events'})"
                for task in tasks
            )
            or "none"
        )
        raise RequestError(
            f"{tree.id} has {len(tasks)} tasks: {summaries}. Choose those to read by --task"
        )
    return tuple(tasks)


def _counted(trials: Mapping[str, int]) -> str:
    parts = [f"{count:,} {kind}" for kind, count in trials.items()]
    shown = ", ".join(parts[:12])
    if len(parts) > 12:
        return f"{shown} and {len(parts) - 12} more"
    return shown


def _pins(tree: PublishedTree, names: Mapping[str, None]) -> list[dict[str, Any]]:
    """One line for each file, with its full address if the template does not give it."""
    unhashed = [name for name in names if tree.files[name].sha256 is None]
    if unhashed:
        raise RequestError(
            f"{tree.id} states no SHA-256 for {len(unhashed)} files, first {unhashed[0]}: MD5 keys can be forged; "
            "download it and use `neuroledger pin`"
        )
    lines = []
    for name in names:
        file = tree.files[name]
        digest = str(file.sha256)
        pinned_name = place_of(name)
        at = file.at if file.at in tree.urls else f"{name.partition('/')[0]}.{file.at}"
        line: dict[str, object] = {
            "name": pinned_name,
            "at": at,
            "size": file.size,
            "sha256": digest,
        }
        url = address(tree.urls[at], name, file.size, digest)
        if file.suffix is not None and url.endswith(
            f"--{digest}{PurePosixPath(url).name.partition(digest)[2]}"
        ):
            url = url[: url.index(f"--{digest}") + 2 + len(digest)] + file.suffix
        if url != address(tree.urls[at], pinned_name, file.size, digest):
            del line["at"]
            line["url"] = url
        lines.append(line)
    return lines


def _stated(tree: PublishedTree) -> Stated:
    description = tree.description
    licence = description.get("License")
    doi = re.search(r"10\.\d{4,}/\S+", str(description.get("DatasetDOI", "")))
    authors = (
        description.get("Authors")
        if isinstance(description.get("Authors"), list)
        else []
    )
    return Stated(
        license=str(licence) if licence else None,
        title=str(description["Name"]) if description.get("Name") else None,
        authors=tuple(map(str, authors or [])),
        doi=doi[0] if doi else None,
        trials=counts_of(tree),
    )


def spdx(licence: str) -> str:
    """The SPDX identifier of a licence (`CC-BY-SA 4.0` is `CC-BY-SA-4.0`); `LicenseRef-unstated` for unknown licences."""
    written = re.sub(r"\s+", "-", licence.strip())
    try:
        return str(
            canonicalize_license_expression(LICENCES.get(written.lower(), written))
        )
    except InvalidLicenseExpression:
        return "LicenseRef-unstated"


def _cited(catalog: Catalog, tree: PublishedTree, stated: Stated) -> bool:
    """Whether the bibliography has the tree's entry, which is added if the tree states a title and authors."""
    path = catalog.root / "specs" / "references.bib"
    if tree.id in read_bibliography(path).references:
        return True
    if not (stated.title and stated.authors):
        return False
    safe = {
        name: re.sub(r"[{}\\@]", "", value)
        for name, value in {
            "author": " and ".join(stated.authors),
            "title": stated.title,
            "doi": stated.doi or "",
            "url": tree.page,
        }.items()
    }
    fields = "".join(
        f"  {name} = {{{value}}},\n" for name, value in safe.items() if value
    )
    if path.is_file():
        existing = path.read_text(encoding="utf-8")
    else:
        existing = ""
    write_text(path, f"{existing.rstrip()}\n\n@misc{{{tree.id},\n{fields}}}\n".lstrip())
    return True


def _trials(
    stated: Stated, task: Sequence[str], wanted: Wanted, before: DatasetSpec | None
) -> dict[str, int]:
    """Number of events of each label, by the tree's counts of trial types."""
    window = (
        before.reader.parameters.get("window", {}) if before and before.reader else {}
    )
    labels = wanted.events or window.get("labels") or {}
    counts: dict[str, int] = defaultdict(int)
    for name in task or stated.trials:
        for kind, count in stated.trials.get(name, {}).items():
            if not labels:
                counts[kind] += count
            elif kind in labels:
                counts[labels[kind]] += count
    return dict(counts)


def _disagreements(
    before: DatasetSpec | None, stated: Stated, tree: PublishedTree, people: int | None
) -> list[str]:
    if before is None:
        return []
    disagreements = []
    if stated.license and spdx(stated.license) != before.license:
        disagreements.append(
            f"Licence: {tree.id} states {stated.license}, this spec {before.license}; see "
            f"{before.source or tree.page}."
        )
    for check in before.expectations.assembly if people is not None else ():
        fields = check.model_dump()
        if (
            fields.get("check") == "distinct"
            and fields.get("column") == "subject"
            and fields.get("count") != people
        ):
            disagreements.append(
                f"People: {tree.id} holds {people}; {fields['count']} were expected here before."
            )
    return disagreements


def _same_bytes(tree: PublishedTree, recordings: Sequence[Found]) -> list[str]:
    """Descriptions of recordings with the same bytes under two people."""
    first: dict[str, Found] = {}
    problems = []
    for item in recordings:
        digest = max(
            (tree.files[name] for name in item.files), key=lambda file: file.size
        ).sha256
        other = first.setdefault(str(digest), item)
        if other.subject != item.subject:
            problems.append(
                f"{other.file} and {item.file} hold the same bytes under two people: one has the wrong name."
            )
    return problems


def _with_reader(
    text: str, wanted: Wanted, chosen: _Chosen, trials: Mapping[str, int]
) -> str:
    """The spec's text with a reader of these recordings."""
    parameters = dict(parse(text, "spec").data["reader"])
    window = dict(parameters.get("window") or {})
    if wanted.events:
        window["labels"] = dict(wanted.events)
    elif (
        trials
        and not any(window.get(name) for name in ("labels", "stride", "marks"))
        and not parameters.get("events")
    ):
        window["labels"] = {kind: kind for kind in trials}
    if window != parameters.get("window"):
        text = with_field(text, ("reader", "window"), window)
    if not wanted.named:
        text = with_field(text, ("reader", "name"), "bids_epochs")
        text = without(text, "reader", "recordings")
        text = with_field(
            text,
            ("reader", "task"),
            chosen.task[0] if len(chosen.task) == 1 else list(chosen.task),
        )
        if wanted.datatype == "eeg":
            return text
        return with_field(text, ("reader", "datatype"), wanted.datatype)
    text = with_field(text, ("reader", "name"), "mne_epochs")
    if wanted.people:
        text = with_field(text, ("reader", "people"), dict(wanted.people))
    return with_field(
        text, ("reader", "named"), {k: dict(v) for k, v in (wanted.named or {}).items()}
    )


def _entries(recordings: Sequence[Found]) -> list[dict[str, object]]:
    """The recordings as entries of the reader `mne_epochs`."""
    facts, _ = facts_of(recordings, None, None)
    return list(map(entry_of, recordings, facts))


def _with_expectations(
    text: str, people: int, trials: Mapping[str, int], tree: PublishedTree
) -> str:
    """The spec's text with expectations of the tree's numbers of people and trials."""
    data = parse(text, "spec").data
    existing = list((data.get("expectations") or {}).get("assembly") or [])
    checks = [
        check
        for check in existing
        if not (
            check["check"] in ("distinct", "equal_set", "row_count")
            and check.get("column") in ("subject", "label", None)
        )
    ]
    checks.append({"check": "distinct", "column": "subject", "count": people})
    window = data["reader"].get("window") or {}
    if trials and window.get("labels") and not window.get("stride"):
        checks.append({"check": "equal_set", "column": "label", "values": list(trials)})
        checks += [
            {
                "check": "row_count",
                "where": {"label": label},
                "low": math.floor(KEPT * count),
                "high": count,
                "why": f"{count:,} events in {tree.id}",
            }
            for label, count in trials.items()
        ]
    return with_entries(text, ("expectations", "assembly"), checks)


def _with_texts(text: str, name: str, items: Sequence[str]) -> str:
    """The spec's text with a list of texts, one per line, before the reader or the lists."""
    if not items:
        return without(text, name)
    return with_entries(text, (name,), items, before=("lists", "reader", "files"))


def _quoted(text: str) -> str:
    written = inline(text)
    if written.startswith('"'):
        return written
    return f'"{written}"'


def _note(tree: PublishedTree, people: int, trials: Mapping[str, int]) -> str:
    if people:
        summary = f": {people} people"
    else:
        summary = ""
    summary += f"; events: {_counted(trials)}" if trials else ""
    return (
        f"Pinned from {tree.page} at commit {tree.commit[:10]}{summary}. "
        "Sizes and hashes are those of its annex keys and git."
    )


def _new(id: str, tree: PublishedTree, stated: Stated, wanted: Wanted) -> str:
    """The text of a new spec."""
    start, duration = wanted.window
    title = inline(f"{stated.title or tree.id}, from {tree.page}"[:200])
    if stated.authors:
        author = f" Published by {', '.join(stated.authors)}."
    else:
        author = ""
    if stated.doi:
        cited = f" DOI {stated.doi}."
    else:
        cited = ""
    license = spdx(stated.license or "unknown")
    licence = stated.license or "no licence"
    lines = [
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"id: {id}",
        "version: 1",
        f"title: {title if title.startswith(chr(34)) else chr(34) + title + chr(34)}",
        f"description: {_quoted(f'Data set {tree.id}.{author}{cited}')}",
        f"license: {license}",
        *(
            [f"license_note: {_quoted(f'The tree states {licence}.')}"]
            if "LicenseRef" in license
            else []
        ),
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
