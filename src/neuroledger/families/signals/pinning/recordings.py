"""Recordings in a folder of downloads: whose they are and what is decoded go into the reader's fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from neuroledger.data.parsing import table_rows
from neuroledger.data.pin.downloads import Downloads, Recorded, files_below, only_files, place_of
from neuroledger.data.pin.yaml_edit import with_field, without_recordings
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError, RequestError, SpecError
from neuroledger.families.signals.pinning.scan_downloads import (
    NOT_RAW,
    OPENED,
    Found,
    Table,
    beside_recording,
    companions_of,
    facts_of,
    people,
    reads,
    recordings_in,
    same_bytes,
    sidecars,
)
from neuroledger.families.signals.recordings.matlab_layouts import MatlabLayout, matlab_parts
from neuroledger.families.signals.recordings.neo_files import NeoFiles, read_neo
from neuroledger.families.signals.recordings.open_recordings import open_epochs, open_recording
from neuroledger.families.signals.recordings.recording_names import Naming, resolve
from neuroledger.families.signals.recordings.sample_tables import SampleTable
from neuroledger.families.signals.recordings.signal_spans import (
    AnnotationFile,
    all_spans,
    read_annotation_file,
)
from neuroledger.families.signals.recordings.xdf_streams import Streams
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.load import explain

__all__ = ["expected", "logged", "recorded"]


# Coordinates that every window has, whatever the data set.
GIVEN = frozenset({"subject", "session", "run", "recording", "onset", "stimulus_id"})


def recorded(catalog: Catalog, spec: DatasetSpec, text: str, downloads: Downloads) -> Recorded:
    """Files to pin and the spec's text with their recordings, or with the task and facts that mne-bids is to read.

    Raises
    ------
    RequestError
        Something is missing: files, people, what events mean, what is to be decoded.
    """
    told = spec.reader.parameters if spec.reader is not None else {}
    names = files_below(downloads.folder, aside=NOT_RAW, opened=OPENED)
    table = people(downloads.folder)
    opened = reads(told)
    bids = downloads.bids or (spec.reader is not None and spec.reader.name == "bids_epochs")
    task = downloads.task or (told.get("task") if bids else None)
    rule = _rule(catalog, spec, bids)
    only = {name: tuple(told.get(name) or ()) for name in ("subjects", "sessions")} if bids else {}
    named: dict[str, dict[str, str]] = {pattern: {} for pattern in downloads.named} or dict(
        told.get("named") or {}
    )
    neo = (told.get("neo") or {}).get("format")
    found = recordings_in(
        downloads.folder,
        names,
        task=task,
        table=table,
        rule=rule,
        named=named,
        opened=opened,
        neo=neo,
        events_file=((told.get("matlab") or {}).get("events") or {}).get("file"),
        **only,
    )
    problems = same_bytes(downloads.folder, found)
    facts: list[dict[str, str | float]] = [{} for _ in found]
    remarks: list[str] = []
    with _noted(problems):
        facts, remarks = facts_of(found, table, downloads.label)
    remarks += _left_out(
        [*named, *([rule.recording] if rule else [])], [name for name in names if opened(name)], found
    )
    if downloads.named:
        text = with_field(text, ("reader", "named"), named)
    window = dict(told.get("window", {}))
    if downloads.events:
        window["labels"] = {**window.get("labels", {}), **downloads.events}
        text = with_field(text, ("reader", "window"), window)
    laid = any(window.get(name) for name in ("labels", "marks", "stride")) or told.get("events")
    if not laid:
        problems.append(
            f"{spec.id} is cut around events: say what they mean with --event DESCRIPTION=LABEL (repeat it). "
            f"{_in_table(downloads.folder, found[0]) if bids else _descriptions(downloads.folder, found[0], rule, told)}"
        )
    subjects = {item.subject for item in found}
    files = [name for item in found for name in item.files]
    with _noted(problems):
        expected(spec, subjects, downloads)
    with _noted(problems):
        _decodable(catalog, spec, window, facts[0], told)
    with _noted(problems):
        files += _embeddings(told, names, downloads.folder, spec.id)
    if bids and "dataset_description.json" not in names:
        problems.append(f"{downloads.folder} has no dataset_description.json: it is no BIDS folder")
    if bids and task is None:
        problems.append(
            "--bids needs --task: the name of the task whose recordings are read, as in task-NAME"
        )
    if problems:
        raise RequestError("\n".join(problems))
    if bids and task is not None:
        text = _by_bids(text, task, downloads, table, facts[0])
        return Recorded(sorted({*files, *sidecars(names, found)}), text, len(subjects), remarks, None)
    entries = [_entry(item, fact) for item, fact in zip(found, facts, strict=True)]
    return Recorded(files, text, len(subjects), remarks, entries)


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """Within it, a refusal is noted, so that all problems of a folder are reported at once."""
    try:
        yield
    except RequestError as error:
        problems.append(str(error))


def _embeddings(told: Mapping[str, Any], names: Sequence[str], folder: Path, id: str) -> list[str]:
    """The tables of embeddings that go with the recordings."""
    wanted = [str(name) for name in (told.get("embeddings") or {}).values()]
    lost = [name for name in wanted if name not in names]
    if lost:
        raise RequestError(
            f"{folder} lacks {', '.join(lost)}, the embeddings of the stimuli of {id}: make it of a model with "
            f"`neuroledger embed MODEL --images FOLDER --layer LAYER --out {folder / lost[0]}` (docs/signals.md)"
        )
    return wanted


def _rule(catalog: Catalog, spec: DatasetSpec, bids: bool) -> AnnotationFile | None:
    """How the files with the annotations are called, if they lie beside the recordings."""
    told = spec.reader.parameters.get("annotations") if spec.reader is not None else None
    if told is None:
        return None
    if bids:
        raise RequestError(
            f"{spec.id} says under `annotations` which files hold them, and mne-bids reads others: leave out --bids"
        )
    try:
        return AnnotationFile.model_validate(told)
    except ValidationError as error:
        document = catalog.entry("datasets", spec.id).document
        raise SpecError(explain(error, document, AnnotationFile, ("reader", "annotations"))) from None


def _left_out(patterns: Sequence[str], names: Sequence[str], found: Sequence[Found]) -> list[str]:
    """Recordings with names that no pattern fits."""
    taken = {name for item in found for name in item.files}
    rest = [name for name in names if name not in taken]
    if not patterns or not rest:
        return []
    return [
        f"{len(rest)} recordings are not called {' or '.join(patterns)} and are left out, first {rest[0]}"
    ]


def _entry(item: Found, facts: Mapping[str, str | float]) -> dict[str, Any]:
    entry: dict[str, Any] = {"file": place_of(item.file), "subject": item.subject}
    entry |= {name: value for name, value in (("session", item.session), ("run", item.run)) if value != "1"}
    return entry | ({"facts": dict(facts)} if facts else {})


def _by_bids(
    text: str, task: str | Sequence[str], downloads: Downloads, table: Table | None, facts: Mapping[str, Any]
) -> str:
    """The text with a reader that leaves recordings to mne-bids."""
    text = with_field(text, ("reader", "name"), "bids_epochs")
    text = without_recordings(text)
    text = with_field(text, ("reader", "task"), task)
    columns = {re.sub(r"\W+", "_", c.strip()).strip("_").lower(): c for c in (table.columns if table else ())}
    kept = {name: column for name, column in columns.items() if name in facts}
    if downloads.label is not None:
        kept["label"] = downloads.label
    return with_field(text, ("reader", "facts"), kept) if kept else text


def _in_table(folder: Path, item: Found) -> str:
    """What the events of a recording are called in its table, which mne-bids reads in place of its markers."""
    table = beside_recording(item.file, "events")
    if not (folder / table).is_file():
        return f"{item.file} has no events: {table} is missing."
    columns, rows = table_rows(folder / table, "onset", delimiter="\t", short=True)
    column = next((name for name in ("trial_type", "value") if name in columns), None)
    if column is None:
        return f"{table} has no column trial_type; it has {', '.join(columns)}."
    kinds = sorted({row[column].strip() for _, row in rows} - {"", "n/a"})
    return f"{table} has {', '.join(repr(kind) for kind in kinds[:20])}{', …' if kinds[20:] else ''}"


def _descriptions(folder: Path, item: Found, rule: AnnotationFile | None, told: Mapping[str, Any]) -> str:
    """What the events of a recording are called, where MNE is here to tell."""
    name = item.file if rule is None else item.companions[-1]

    def read() -> list[str]:
        if told.get("epoched"):
            return sorted(open_epochs(folder / item.file).event_id)
        if told.get("matlab"):
            layout = MatlabLayout.model_validate(told["matlab"])
            near = {one: folder / one for one in item.files}
            parts = matlab_parts(folder / item.file, layout, near, item.file, (0.0, 0.0))
            return sorted({span.description for part in parts for span in all_spans(part.raw)})
        if told.get("neo"):
            stretches = read_neo(folder / item.file, NeoFiles.model_validate(told["neo"]))
            return sorted({span.description for stretch in stretches for span in stretch.spans})
        table, streams = told.get("table"), told.get("streams")
        raw = open_recording(
            folder / item.file,
            table=SampleTable.model_validate(table) if table else None,
            streams=Streams.model_validate(streams) if streams else None,
        )
        spans = all_spans(raw) if rule is None else read_annotation_file(folder / name, name, rule, raw)
        return sorted({span.description for span in spans})

    try:
        kinds = confined(read, limits_for(folder / part for part in item.files), name)
    except DataError as error:
        return f"Its events could not be read ({error})."
    shown = ", ".join(repr(kind) for kind in kinds[:20]) + (", …" if kinds[20:] else "")
    return f"{name} has {shown}" if kinds else f"{name} has no events; are they in events.tsv (--bids)?"


def expected(spec: DatasetSpec, subjects: set[str], downloads: Downloads) -> None:
    """Return if there are as many people as the spec expects.

    Raises
    ------
    RequestError
        There are not.
    """
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
    known |= {*window.get("marks", {}), *([window["countdown"]["name"]] if window.get("countdown") else [])}
    known |= {"trial"} if window.get("trial_starts_with") else set()
    events, embeddings = told.get("events") or {}, told.get("embeddings") or {}
    known |= set(events.get("coordinates") or ())
    for id in catalog.ids("benchmarks"):
        benchmark = catalog.benchmark(id)
        if benchmark.dataset != spec.id or benchmark.paradigm.name != "decoding":
            continue
        rules = benchmark.paradigm.parameters
        target, splits = rules.get("target", "label"), rules.get("splits", {})
        wanted = [target] if isinstance(target, str) else list(target)
        if rules.get("objective") == "retrieval":
            if target not in embeddings:
                raise RequestError(
                    f"benchmark {id} retrieves {target!r}, and {spec.id} has no such `embeddings`: name the table of them "
                    f"in its reader, `embeddings: {{{target}: FILE.nc}}`, and say under `events` what each window shows"
                )
            wanted = []
        wanted += [splits[name] for name in ("by", "column", "stratify", "trial") if splits.get(name)]
        wanted += ["split"] if splits.get("name") == "declared" and "column" not in splits else []
        lost = [name for name in wanted if name not in known]
        if lost:
            raise RequestError(
                f"benchmark {id} needs {', '.join(lost)} of each window, and the downloads do not say it; they say "
                f"{', '.join(sorted(known))}. Name the column to decode with --label, or put a table recordings.tsv "
                f"(file, subject, {', '.join(lost)}) into the folder; what changes within a recording needs --event, or "
                "windows that you cut yourself (reader prepared_signals, docs/signals.md)"
            )


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
