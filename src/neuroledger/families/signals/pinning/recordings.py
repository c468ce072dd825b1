"""Recordings in a folder of downloads: their subjects and labels are written to the reader's fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from neuroledger.data.file_names import matching
from neuroledger.data.parsing import table_rows
from neuroledger.data.pin.downloads import (
    Downloads,
    Recorded,
    files_below,
    only_files,
    place_of,
)
from neuroledger.data.pin.yaml_edit import with_field, without
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError, RequestError, SpecError, some_of
from neuroledger.families.signals.pinning.foreseen import coordinates_of
from neuroledger.families.signals.pinning.scan_downloads import (
    NOT_RAW,
    Found,
    Table,
    beside_recording,
    companions_of,
    entry_of,
    facts_of,
    people,
    reads,
    recordings_in,
    same_bytes,
    sidecars,
)
from neuroledger.families.signals.recordings.formats import OPENED
from neuroledger.families.signals.recordings.matlab_layouts import (
    MatlabLayout,
    matlab_parts,
)
from neuroledger.families.signals.recordings.neo_files import NeoFiles, read_neo
from neuroledger.families.signals.recordings.open_recordings import (
    open_epochs,
    open_recording,
)
from neuroledger.families.signals.recordings.recording_names import Naming, resolve
from neuroledger.families.signals.recordings.sample_tables import SampleTable
from neuroledger.families.signals.recordings.signal_spans import (
    AnnotationFile,
    all_spans,
    read_annotation_file,
)
from neuroledger.families.signals.recordings.xdf_streams import Streams
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.load import explain

__all__ = ["expected", "logged", "recorded"]


def recorded(
    catalog: Catalog, spec: DatasetSpec, text: str, downloads: Downloads
) -> Recorded:
    """Files to pin, and the spec's text with their recordings, or with the task and facts for mne-bids.

    Raises
    ------
    RequestError
        Files, people, labels of events, or coordinates that benchmarks need are missing; all problems at once.
    """
    parameters = {} if spec.reader is None else spec.reader.parameters
    table = people(downloads.folder)
    opened = reads(parameters)
    names = _raw_files(downloads.folder, opened)
    bids = downloads.bids or (
        spec.reader is not None and spec.reader.name == "bids_epochs"
    )
    task = downloads.task
    only = {}
    if bids:
        task = task or parameters.get("task")
        for name in ("subjects", "sessions"):
            only[name] = tuple(parameters.get(name) or ())
    rule = _rule(catalog, spec, bids)
    patterns: dict[str, dict[str, str]] = {pattern: {} for pattern in downloads.named}
    patterns = patterns or dict(parameters.get("named") or {})
    neo = parameters.get("neo") or {}
    matlab = parameters.get("matlab") or {}
    recordings = recordings_in(
        downloads.folder,
        names,
        task=task,
        table=table,
        rule=rule,
        named=patterns,
        opened=opened,
        neo=neo.get("format"),
        events_file=(matlab.get("events") or {}).get("file"),
        **only,
    )
    problems = same_bytes(downloads.folder, recordings)
    facts: list[dict[str, str | float]] = [{} for _ in recordings]
    remarks: list[str] = []
    with _collecting(problems):
        facts, remarks = facts_of(recordings, table, downloads.label)
    by_name = [*patterns, *([rule.recording] if rule else [])]
    remarks += _left_out(by_name, list(filter(opened, names)), recordings)
    window = dict(parameters.get("window", {}))
    if downloads.named:
        text = with_field(text, ("reader", "named"), patterns)
    if downloads.events:
        window["labels"] = {**window.get("labels", {}), **downloads.events}
        text = with_field(text, ("reader", "window"), window)
    cut_by = [window.get(name) for name in ("labels", "marks", "stride")]
    if not any([*cut_by, parameters.get("events")]):
        first = recordings[0]
        description = (
            _in_table(downloads.folder, first)
            if bids
            else _descriptions(downloads.folder, first, rule, parameters)
        )
        problems.append(
            f"{spec.id} is cut around events: give their labels by --event DESCRIPTION=LABEL (repeat it). {description}"
        )
    subjects = {item.subject for item in recordings}
    files = [name for item in recordings for name in item.files]
    with _collecting(problems):
        expected(spec, subjects, downloads)
    with _collecting(problems):
        _require_coordinates(catalog, spec, window, facts[0], parameters)
    with _collecting(problems):
        files += _embeddings(parameters, names, downloads.folder, spec.id)
    if facts_of_people := parameters.get("people"):
        files += matching(facts_of_people["tables"], names)
    if bids:
        problems += _lacking_bids(downloads.folder, names, task)
    if problems:
        raise RequestError("\n".join(problems))
    entries = None
    if bids and task is not None:
        text = _with_bids_reader(text, task, downloads, table, facts[0])
        files = sorted({*files, *sidecars(names, recordings)})
    else:
        entries = list(map(entry_of, recordings, facts))
    return Recorded(files, text, len(subjects), remarks, entries)


def _lacking_bids(folder: Path, names: Sequence[str], task: object) -> Iterator[str]:
    """What mne-bids needs and is not there."""
    if "dataset_description.json" not in names:
        yield f"{folder} has no dataset_description.json: it is not a BIDS folder"
    if task is None:
        yield "--bids needs --task: the name of the task to read, as in task-NAME"


def _raw_files(folder: Path, opened: Callable[[str], bool]) -> list[str]:
    """The files that may belong to raw recordings.

    BIDS's `sourcedata` counts only if no recording is elsewhere: sets that were not converted are published there.
    """
    names = files_below(folder, aside=NOT_RAW, opened=OPENED)
    if any(opened(name) or ".ds/" in name for name in names):
        return names
    return files_below(folder, aside=NOT_RAW - {"sourcedata"}, opened=OPENED)


@contextmanager
def _collecting(problems: list[str]) -> Iterator[None]:
    """Context that adds a RequestError to the problems, so that all problems of a folder are reported at once."""
    try:
        yield
    except RequestError as error:
        problems.append(str(error))


def _embeddings(
    parameters: Mapping[str, Any], names: Sequence[str], folder: Path, id: str
) -> list[str]:
    """The tables of embeddings that go with the recordings."""
    tables = list(map(str, (parameters.get("embeddings") or {}).values()))
    missing = [name for name in tables if name not in names]
    if missing:
        raise RequestError(
            f"{folder} lacks {', '.join(missing)}, the embeddings of the stimuli of {id}: create it by "
            f"`neuroledger embed MODEL --images FOLDER --layer LAYER --out {folder / missing[0]}` (docs/signals.md)"
        )
    return tables


def _rule(catalog: Catalog, spec: DatasetSpec, bids: bool) -> AnnotationFile | None:
    """The rule for separate files of annotations, if the reader declares one."""
    annotations = (
        spec.reader.parameters.get("annotations") if spec.reader is not None else None
    )
    if annotations is None:
        return None
    if bids:
        raise RequestError(
            f"{spec.id} declares separate files under `annotations`, which mne-bids does not read: omit --bids"
        )
    try:
        return AnnotationFile.model_validate(annotations)
    except ValidationError as error:
        document = catalog.entry("datasets", spec.id).document
        raise SpecError(
            explain(error, document, AnnotationFile, ("reader", "annotations"))
        ) from None


def _left_out(
    patterns: Sequence[str], names: Sequence[str], recordings: Sequence[Found]
) -> list[str]:
    """A remark on recordings whose names match no pattern; empty if there are none."""
    matched = {name for item in recordings for name in item.files}
    rest = [name for name in names if name not in matched]
    if not patterns or not rest:
        return []
    return [
        f"{len(rest)} recordings do not match {' or '.join(patterns)} and are left out, first {rest[0]}"
    ]


def _with_bids_reader(
    text: str,
    task: str | Sequence[str],
    downloads: Downloads,
    table: Table | None,
    facts: Mapping[str, object],
) -> str:
    """The spec's text with the reader `bids_epochs`, which lists recordings itself."""
    text = with_field(text, ("reader", "name"), "bids_epochs")
    text = without(text, "reader", "recordings")
    text = with_field(text, ("reader", "task"), task)
    columns = {
        re.sub(r"\W+", "_", c.strip()).strip("_").lower(): c
        for c in (table.columns if table else ())
    }
    selected = {name: column for name, column in columns.items() if name in facts}
    if downloads.label is not None:
        selected["label"] = downloads.label
    if selected:
        return with_field(text, ("reader", "facts"), selected)
    return text


def _in_table(folder: Path, item: Found) -> str:
    """A message with the types of events in a recording's `events.tsv`, which mne-bids reads instead of its markers."""
    table = beside_recording(item.file, "events")
    if not (folder / table).is_file():
        return f"{item.file} has no events: {table} is missing."
    columns, rows = table_rows(folder / table, "onset", delimiter="\t", short=True)
    column = next((name for name in ("trial_type", "value") if name in columns), None)
    if column is None:
        return f"{table} has no column trial_type; it has {', '.join(columns)}."
    kinds = sorted({row[column].strip() for _, row in rows} - {"", "n/a"})
    return f"{table} has {some_of(list(map(repr, kinds)), 20)}"


def _descriptions(
    folder: Path,
    item: Found,
    rule: AnnotationFile | None,
    parameters: Mapping[str, Any],
) -> str:
    """A message with the descriptions of a recording's events, or the reason why they cannot be read."""
    if rule is None:
        name = item.file
    else:
        name = item.companions[-1]

    def read() -> list[str]:
        if parameters.get("epoched"):
            return sorted(open_epochs(folder / item.file).event_id)
        if parameters.get("matlab"):
            layout = MatlabLayout.model_validate(parameters["matlab"])
            files = {file: folder / file for file in item.files}
            parts = matlab_parts(
                folder / item.file, layout, files, item.file, (0.0, 0.0)
            )
            return sorted(
                {span.description for part in parts for span in all_spans(part.raw)}
            )
        if parameters.get("neo"):
            segments = read_neo(
                folder / item.file, NeoFiles.model_validate(parameters["neo"])
            )
            return sorted(
                {span.description for segment in segments for span in segment.spans}
            )
        table = parameters.get("table")
        streams = parameters.get("streams")
        raw = open_recording(
            folder / item.file,
            table=SampleTable.model_validate(table) if table else None,
            streams=Streams.model_validate(streams) if streams else None,
        )
        spans = (
            all_spans(raw)
            if rule is None
            else read_annotation_file(folder / name, name, rule, raw)
        )
        return sorted({span.description for span in spans})

    try:
        kinds = confined(read, limits_for(folder / part for part in item.files), name)
    except DataError as error:
        return f"Its events could not be read ({error})."
    if kinds:
        return f"{name} has {some_of(list(map(repr, kinds)), 20)}"
    return f"{name} has no events; if they are in events.tsv, use --bids"


def expected(spec: DatasetSpec, subjects: set[str], downloads: Downloads) -> None:
    """Return if the number of subjects is the one that the spec expects.

    Raises
    ------
    RequestError
        The numbers differ.
    """
    for check in spec.expectations.assembly:
        fields = check.model_dump()
        counts_subjects = (
            fields.get("check") == "distinct" and fields.get("column") == "subject"
        )
        if counts_subjects and fields.get("count") not in (None, len(subjects)):
            raise RequestError(
                f"{spec.id} expects {fields['count']} subjects, but {downloads.folder} contains {len(subjects)}: "
                "add the others, or correct the expectation in the spec"
            )


def _require_coordinates(
    catalog: Catalog,
    spec: DatasetSpec,
    window: Mapping[str, Any],
    facts: Mapping[str, object],
    parameters: Mapping[str, Any],
) -> None:
    """Return if windows have all coordinates that benchmarks on these data decode, hold out or group by."""
    known = coordinates_of(parameters, window, facts)
    embeddings = parameters.get("embeddings") or {}
    for id in catalog.ids("benchmarks"):
        benchmark = catalog.benchmark(id)
        needs = registry.get("paradigm", benchmark.paradigm.name).needs
        if benchmark.dataset != spec.id or needs is None:
            continue
        rules = benchmark.paradigm.parameters
        required = needs(rules)
        if rules.get("objective") == "retrieval":
            target = required.pop(("target",))
            if target not in embeddings:
                raise RequestError(
                    f"benchmark {id} retrieves {target!r}, but {spec.id} has no such `embeddings`: declare their table in "
                    f"its reader, `embeddings: {{{target}: FILE.nc}}`, and the stimulus of each window under `events`"
                )
        names = dict.fromkeys(required.values())
        missing = [name for name in names if name not in known]
        if missing:
            raise RequestError(
                f"benchmark {id} needs {', '.join(missing)} of each window, which the downloads do not state; they state "
                f"{', '.join(sorted(known))}. Give the column to decode by --label, or put a table recordings.tsv "
                f"(file, subject, {', '.join(missing)}) into the folder; values that change within a recording need "
                "--event, or windows that you cut yourself (reader prepared_signals, docs/signals.md)"
            )


SHOWN = 5


def logged(
    catalog: Catalog, spec: DatasetSpec, text: str, downloads: Downloads
) -> Recorded:
    """Files to pin, and the recordings that the reader's `naming` finds among them.

    Raises
    ------
    RequestError
        There are no recordings, one lacks a file, two are the same, or subjects are missing.
    """
    only_files(spec, downloads)
    names = files_below(downloads.folder, aside=NOT_RAW, opened=OPENED)
    if spec.reader is not None:
        parameters = spec.reader.parameters
    else:
        parameters = {}
    try:
        naming = Naming.model_validate(parameters.get("naming"))
    except ValidationError as error:
        document = catalog.entry("datasets", spec.id).document
        raise SpecError(
            explain(error, document, Naming, ("reader", "naming"))
        ) from None
    try:
        resolved = resolve(naming, names)
    except DataError as error:
        raise RequestError(f"{downloads.folder}: {error}") from error
    if not resolved.entries:
        raise RequestError(
            f"{downloads.folder} contains no recording below {naming.folder} that matches {naming.recordings[0]} and has a "
            f"log below {naming.log_folder}: give the folder that contains {naming.folder.split('/')[0]}"
        )
    expected(spec, {str(entry["subject"]) for entry in resolved.entries}, downloads)
    files: list[str] = []
    for entry in resolved.entries:
        name = str(entry["file"])
        log = str(entry["log"])
        files += [name, *companions_of(downloads.folder, name, names), log]
        entry |= {"file": place_of(name), "log": place_of(log)}
    # Two recordings may share a log, if the spec declares it.
    files = list(dict.fromkeys(files))
    subjects = len({entry["subject"] for entry in resolved.entries})
    return Recorded(
        files, text, subjects, _remarks(resolved.left_out), resolved.entries
    )


def _remarks(left_out: dict[str, str]) -> list[str]:
    """Remarks on the recordings that are left out, by reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        by_reason.setdefault(reason, []).append(name)
    return [
        f"{len(names)} recordings left out, {reason}: {some_of(names, SHOWN)}"
        for reason, names in by_reason.items()
    ]
