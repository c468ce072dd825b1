"""fetch, validate: data to their place, and through the gate."""

from __future__ import annotations

import argparse

from neuroledger.cli.output import say, say_json
from neuroledger.data.fetch import fetch_files, folder_of
from neuroledger.display import choose
from neuroledger.errors import NeuroLedgerError, RequestError
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.suites import suites_of

SHOWN_CHANGES = 40


def fetch(options: argparse.Namespace) -> int:
    """Bring files of data sets and models."""
    catalog = open_catalog(options.root)
    wanted = _wanted(catalog, options)
    failures = 0
    with choose() as display:
        for kind, id in wanted:
            spec = catalog.entry(kind, id).spec
            if getattr(spec, "unavailable", None):
                display.line(f"✗ {id}: unavailable: {spec.unavailable}")  # type: ignore[attr-defined]
                failures += id in options.ids
                continue
            files = spec.files if isinstance(spec, DatasetSpec) else spec.weights  # type: ignore[attr-defined]
            try:
                brought = fetch_files(
                    catalog.root,
                    folder_of(catalog.root, kind, id),
                    files,
                    progress=display.progress,
                    force=options.force,
                )
            except NeuroLedgerError as error:
                display.line(f"✗ {id}: {error}")
                failures += 1
                continue
            if files:
                display.line(
                    f"✓ {id}: {len(brought)} files brought, {len(files) - len(brought)} were there, all verified"
                )
    return 1 if failures else 0


def _wanted(catalog: Catalog, options: argparse.Namespace) -> list[tuple[str, str]]:
    wanted: list[tuple[str, str]] = []
    for id in options.ids:
        kinds = [entry.kind for entry in catalog.find(id) if entry.kind in {"datasets", "models"}]
        if not kinds:
            raise RequestError(f"{id!r} is no data set and no model: nothing to fetch")
        wanted += [(kind, id) for kind in kinds]
    if options.suite:
        for suite in suites_of(catalog, options.suite):
            for item in suite.benchmarks:
                benchmark = catalog.benchmark(item.id)
                controls = (*benchmark.controls.positive, *benchmark.controls.negative)
                wanted += [("datasets", benchmark.dataset), *(("models", id) for id in controls)]
            wanted += [("models", id) for id in suite.models]
    if not wanted:
        raise RequestError("name data sets or models, or a --suite")
    return list(dict.fromkeys(wanted))


def validate(options: argparse.Namespace) -> int:
    """Examine data sets."""
    from neuroledger.data.gate.validate import is_here
    from neuroledger.data.gate.validate import validate as examine

    catalog = open_catalog(options.root)
    ids = list(options.ids)
    if options.suite:
        suites = suites_of(catalog, options.suite)
        ids += [catalog.benchmark(item.id).dataset for suite in suites for item in suite.benchmarks]
    if not ids:
        ids = [
            id
            for id in catalog.ids("datasets")
            if catalog.dataset(id).unavailable is None and is_here(catalog, id)
        ]
    reports = []
    for id in dict.fromkeys(ids):
        if catalog.dataset(id).unavailable is not None:
            say(f"– {id}: unavailable: {catalog.dataset(id).unavailable}")
            continue
        report = examine(catalog, id, force=options.force, data_docs=options.data_docs)
        reports.append(report)
        if not options.json:
            say(str(report))
    if options.json:
        say_json([report.to_dict() for report in reports])
    return 0 if options.allow_invalid or all(report.success for report in reports) else 1


def package(options: argparse.Namespace) -> int:
    """A lab's files into a data set."""
    from neuroledger.data.package import package_assembly, package_stimuli

    catalog = open_catalog(options.root)
    if not options.source.is_file():
        raise RequestError(f"{options.source} does not exist")
    if options.part == "stimuli":
        written = package_stimuli(catalog, options.id, options.source, options.files)
    else:
        written = package_assembly(catalog, options.id, options.source)
    for path in written:
        say(f"wrote {catalog.shown(path)}")
    say(
        f"pinned in specs/datasets/{options.id}.yaml; next: `neuroledger validate {options.id}`, then `dvc push`"
    )
    return 0


def pin(options: argparse.Namespace) -> int:
    """Downloads into a pinned data set, or into the weights of a model."""
    import difflib

    from neuroledger.data.pin.pin import Downloads
    from neuroledger.data.pin.pin import pin as pin_downloads
    from neuroledger.data.pin.weights import pin_weights

    events = dict(text.rpartition("=")[::2] for text in options.event)
    if "" in events:
        raise RequestError("--event is DESCRIPTION=LABEL, such as --event 'Stimulus/S  1=left'")
    catalog = open_catalog(options.root)
    downloads = Downloads(
        folder=options.source,
        url_prefix=options.url_prefix,
        label=options.label,
        events=events,
        named=tuple(options.named),
        task=options.task,
        bids=options.bids,
        renew=options.renew,
        check=not options.no_check,
    )
    model = options.id in catalog.ids("models")
    done = (pin_weights if model else pin_downloads)(catalog, options.id, downloads, dry_run=options.dry_run)
    shown = catalog.shown(done.path)
    changes = list(
        difflib.unified_diff(
            done.before.splitlines(), done.after.splitlines(), shown, shown, "now", "pinned", 0, ""
        )
    )
    limit = len(changes) if options.dry_run else SHOWN_CHANGES
    for line in changes[:limit]:
        say(line)
    if changes[limit:]:
        say(f"… and {len(changes) - limit} more changed lines")
    for remark in done.remarks:
        say(f"note: {remark}")
    people = f" of {done.subjects} subjects" if done.subjects else ""
    if options.dry_run:
        say(f"{done.files} files{people} would be pinned; nothing was written")
        return 0
    if not changes and not done.placed:
        say(f"{done.files} files{people}: pinned and in place already")
        return 0
    say(
        f"pinned {done.files} files{people}, {done.placed} of them put into data/{'models/' * model}{options.id}/"
    )
    then = "" if model else f", `neuroledger validate {options.id}`, `neuroledger run`"
    say(f"next: `neuroledger check {shown}`{then}")
    return 0
