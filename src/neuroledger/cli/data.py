"""fetch, validate, audit, package, pin, start: download, check and add data sets."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from neuroledger.cli.statuses import worst
from neuroledger.data.fetch import fetch_files, folder_of
from neuroledger.display import Display, choose, say, say_json, say_problem, say_table
from neuroledger.errors import NeuroLedgerError, PendingError, RequestError
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.suites import suites_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

SHOWN_CHANGES = 40


def fetch(options: argparse.Namespace) -> int:
    """Download and verify the files of data sets and models."""
    catalog = open_catalog(options.root)
    failures = pending = 0
    with choose() as display:
        for kind, id in _selection(catalog, options):
            spec = catalog.entry(kind, id).spec
            unpinned = (
                isinstance(spec, DatasetSpec)
                and spec.reader is not None
                and not spec.files
                and any(download.url for download in spec.downloads.values())
            )
            if getattr(spec, "unavailable", None) and not (
                unpinned and id in options.ids
            ):
                display.line(f"✗ {id}: unavailable: {spec.unavailable}")  # type: ignore[attr-defined]
                failures += id in options.ids
                continue
            if unpinned:
                from neuroledger.data.pin.pin import alone

                with alone(catalog.root):
                    failures += _fetch_and_pin(open_catalog(catalog.root), id, display)
                continue
            files = spec.files if isinstance(spec, DatasetSpec) else spec.weights  # type: ignore[attr-defined]
            try:
                fetched = fetch_files(
                    catalog.root,
                    folder_of(catalog.root, kind, id),
                    files,
                    progress=display.progress,
                    force=options.force,
                )
            except PendingError as error:
                display.line(f"pending: {id}: {error}")
                pending += 1
                continue
            except NeuroLedgerError as error:
                display.line(f"✗ {id}: {error}")
                failures += 1
                continue
            packaged = {
                pin.package.requirement
                for pin in files.values()
                if pin.package is not None
            }
            own = sum(pin.package is None for pin in files.values())
            if packaged:
                display.line(
                    f"✓ {id}: installed with the environment ({', '.join(sorted(packaged))}), verified"
                )
            if own:
                display.line(
                    f"✓ {id}: {len(fetched)} files fetched, {own - len(fetched)} already present, all verified"
                )
    return worst(failed=failures > 0, pending=pending > 0)


def _fetch_and_pin(catalog: Catalog, id: str, display: Display) -> int:
    """Fetch and pin the files that a spec lists, unless another process did so meanwhile; return 1 on failure."""
    from neuroledger.data.pin.pin import fetch_and_pin

    if catalog.dataset(id).files:
        display.line(f"✓ {id}: another process has fetched and pinned its files")
        return 0
    try:
        pinned = fetch_and_pin(catalog, id, progress=display.progress)
    except NeuroLedgerError as error:
        display.line(f"✗ {id}: {error}")
        return 1
    display.line(
        f"✓ {id}: {pinned.files} files fetched and pinned in {catalog.shown(pinned.path)}"
    )
    return 0


def _selection(catalog: Catalog, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Return the kind and id of each data set and model to fetch."""
    selection: list[tuple[str, str]] = []
    for id in options.ids:
        kinds = [
            entry.kind
            for entry in catalog.find(id)
            if entry.kind in {"datasets", "models"}
        ]
        if not kinds:
            raise RequestError(
                f"{id!r} is neither a data set nor a model: nothing to fetch"
            )
        selection += [(kind, id) for kind in kinds]
    if options.suite:
        for suite in suites_of(catalog, options.suite):
            for item in suite.benchmarks:
                benchmark = catalog.benchmark(item.id)
                controls = (*benchmark.controls.positive, *benchmark.controls.negative)
                selection += [
                    ("datasets", benchmark.dataset),
                    *(("models", id) for id in controls),
                ]
            selection += [("models", id) for id in suite.models]
    if not selection:
        raise RequestError(
            "nothing is selected: give ids of data sets or models, or --suite"
        )
    return list(dict.fromkeys(selection))


def validate(options: argparse.Namespace) -> int:
    """Validate data sets."""
    from neuroledger.data.gate.validate import is_here
    from neuroledger.data.gate.validate import validate as validate_dataset

    catalog = open_catalog(options.root)
    ids = list(options.ids)
    if options.suite:
        suites = suites_of(catalog, options.suite)
        ids += [
            catalog.benchmark(item.id).dataset
            for suite in suites
            for item in suite.benchmarks
        ]
    if not ids:
        ids = [
            id
            for id in catalog.ids("datasets")
            if catalog.about(id).closed is None and is_here(catalog, id)
        ]
    reports, pending = [], False
    for id in dict.fromkeys(ids):
        if (reason := catalog.about(id).closed) is not None:
            say(f"– {id}: unavailable: {reason}")
            continue
        try:
            report = validate_dataset(
                catalog, id, force=options.force, data_docs=options.data_docs
            )
        except PendingError as error:
            pending = True
            say_problem(f"pending: {id}: {error}")
            continue
        reports.append(report)
        if not options.json:
            say(str(report))
    if options.json:
        say_json([report.to_dict() for report in reports])
    invalid = not all(report.success for report in reports)
    return worst(failed=invalid and not options.allow_invalid, pending=pending)


def audit(options: argparse.Namespace) -> int:
    """Look for defects in the recordings of a data set."""
    from neuroledger.families.decoding.audit import audit_dataset, report_of
    from neuroledger.store.files import write_text

    catalog = open_catalog(options.root)
    findings = audit_dataset(catalog, options.id)
    page = report_of(catalog.dataset(options.id), findings)
    if options.json:
        say_json([finding.to_dict() for finding in findings])
    else:
        say(page)
    if options.out is not None:
        write_text(options.out, page)
    return 1 if any(finding.severity == "error" for finding in findings) else 0


def package(options: argparse.Namespace) -> int:
    """Convert files of a laboratory into a data set, or a checkpoint into the weights of a model."""
    from neuroledger.cli.lab_files import reader_of
    from neuroledger.data.package import Terms, package_assembly, package_stimuli

    catalog = open_catalog(options.root)
    if options.part == "model":
        return _package_model(catalog, options)
    terms = Terms(reader_of, options.license, options.access)
    if options.part == "stimuli" and options.source.is_dir():
        written = package_stimuli(
            catalog, options.id, _images(options.source), options.source, terms
        )
    elif not options.source.exists():
        raise RequestError(f"{options.source} does not exist")
    elif (
        options.part == "stimuli" and not options.source.is_file()
    ):  # a pipe or a device may never end
        raise RequestError(f"{options.source} is not a file")
    elif options.part == "stimuli":
        written = package_stimuli(
            catalog, options.id, options.source, options.files, terms
        )
    else:
        assembly = _responses(catalog, options)
        if (
            options.region
            and "region" not in assembly.coords
            and "neuroid" in assembly.dims
        ):
            assembly = assembly.assign_coords(
                region=("neuroid", [options.region] * assembly.sizes["neuroid"])
            )
        written = package_assembly(catalog, options.id, assembly, terms)
        if "region" not in assembly.coords:
            say(
                "the responses have no region, which benchmarks select by: package them again with --region V4 or similar"
            )
    for path in written:
        say(f"wrote {catalog.shown(path)}")
    say(
        f"pinned in specs/datasets/{options.id}.yaml; next: `neuroledger validate {options.id}`"
    )
    spec = open_catalog(options.root).dataset(options.id)
    if not (catalog.root / ".dvc").is_dir():
        say(
            "the files have no DVC pointers, because the repository does not use DVC: `dvc init`, then `dvc add` each file"
        )
    if spec.access == "private":
        say(
            "the data are private: push them to your own remote (`dvc push -r NAME`), never to the embedded remote"
        )
    if spec.license == "LicenseRef-unstated":
        say(
            "no licence is stated: others may not use the data until the spec has a `license`"
        )
    return 0


def _package_model(catalog: Catalog, options: argparse.Namespace) -> int:
    from neuroledger.cli.own_models import package_model

    pairs = [text.partition("=") for text in options.region_layer]
    if not all(layer for _, _, layer in pairs):
        raise RequestError("--region-layer must be REGION=LAYER, such as IT=layer4")
    fields = {
        "arguments": options.arguments,
        "preprocessing": options.preprocessing,
        "readout": options.readout,
        "logits": options.logits,
        "regions": {region: layer for region, _, layer in pairs},
    }
    fields = {name: value for name, value in fields.items() if value}
    for path in package_model(
        catalog, options.id, options.source, module=options.torch_class, fields=fields
    ):
        say(f"wrote {catalog.shown(path)}")
    say(
        f"next: `neuroledger check`, `neuroledger evaluate {options.id}`, `neuroledger run {options.id}`"
    )
    return 0


def _images(folder: Path) -> pd.DataFrame:
    """Return a table with one row per image of a folder."""
    import pandas as pd

    from neuroledger.cli.lab_files import survey

    content = survey(folder, ())
    if not content.images:
        raise RequestError(f"{folder} contains no images (png, jpg, bmp, tif)")
    return pd.DataFrame({"stimulus_id": content.ids, "filename": content.images})


def _responses(catalog: Catalog, options: argparse.Namespace) -> xr.DataArray:
    """Return the assembly of a file; an array needs its axes, and the packaged stimuli or a list of trials."""
    from neuroledger.cli.lab_files import (
        assembly_of,
        columns_of,
        read_file,
        stimuli_of,
        table_assembly,
    )
    from neuroledger.data.package import from_long_table
    from neuroledger.data.stimuli import read_table

    file = read_file(options.source)
    if file.assembly is not None:
        return file.assembly
    stimuli = folder_of(catalog.root, "datasets", options.id) / "stimuli.csv"
    ids = (
        list(map(str, read_table(stimuli)["stimulus_id"])) if stimuli.is_file() else []
    )
    if file.table is not None:
        columns = columns_of(file.table, ids)
        if columns is None or columns.kind not in ("long", "wide"):
            return from_long_table(file.table)
        rows = file.table[columns.stimulus].astype(str)
        presented = (
            stimuli_of(rows.to_numpy(), ids, None, options.source.name)
            if ids
            else list(rows)
        )
        return table_assembly(file.table, columns, presented)
    if not options.dims or (len(file.arrays) > 1 and options.variable is None):
        raise RequestError(
            f"{options.source.name} has arrays without named axes ({', '.join(file.arrays)}): give --dims stimulus,neuroid "
            "or trial,neuroid[,time_bin], and --variable for a mat file; `neuroledger start FOLDER` asks for them"
        )
    variable = options.variable or next(iter(file.arrays))
    if variable not in file.arrays:
        raise RequestError(
            f"{options.source.name} has no variable {variable!r}; it has {', '.join(file.arrays)}"
        )
    trials = None
    if options.trials is not None:
        trials = list(map(str, read_table(options.trials)["stimulus_id"]))
    if not ids and trials is None:
        raise RequestError(
            f"data set {options.id} has no stimuli, which are the rows of the array: package them first, or give --trials"
        )
    return assembly_of(
        file.arrays[variable],
        options.dims.split(","),
        ids,
        trials=trials,
        bins=options.time_bins,
    )


def start(options: argparse.Namespace) -> int:
    """Turn a folder of the user into a scored benchmark."""
    from neuroledger.cli import ANSWERS
    from neuroledger.cli.start import start as start_from

    answers = {
        name: getattr(options, name) for name in ANSWERS if getattr(options, name)
    }
    started = start_from(
        options.folder,
        id=options.id,
        title=options.title,
        models=options.models,
        coordinates=options.coordinates,
        degrees=options.degrees,
        root=options.root,
        out=options.out,
        tell=say,
        ask=input if sys.stdin.isatty() and not options.no_questions else None,
        **answers,
    )
    for path in started.written:
        say(f"wrote {path}")
    rows = [(r.benchmark, r.model, r.status, _number(r.value)) for r in started.records]
    say_table(("benchmark", "model", "state", "score"), rows)
    failed = {
        record.benchmark: record
        for record in started.records
        if record.status == "failed"
    }
    for record in failed.values():
        say(f"failed: {record.benchmark} · {record.model}: {record.reason}")
    say(f"page: {started.page}")
    if options.open:
        import webbrowser

        webbrowser.open(started.page.resolve().as_uri())
    return 1 if failed else 0


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def pin(options: argparse.Namespace) -> int:
    """Pin downloaded files in the spec of a data set, or of a model as its weights."""
    import difflib

    from neuroledger.data.pin.pin import Downloads, pin_weights
    from neuroledger.data.pin.pin import pin as pin_downloads

    events = dict(text.rpartition("=")[::2] for text in options.event)
    if "" in events:
        raise RequestError(
            "--event must be DESCRIPTION=LABEL, such as --event 'Stimulus/S  1=left'"
        )
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
    pinned = (pin_weights if model else pin_downloads)(
        catalog, options.id, downloads, dry_run=options.dry_run
    )
    path = catalog.shown(pinned.path)
    changes = list(
        difflib.unified_diff(
            pinned.before.splitlines(),
            pinned.after.splitlines(),
            path,
            path,
            "now",
            "pinned",
            0,
            "",
        )
    )
    limit = len(changes) if options.dry_run else SHOWN_CHANGES
    for line in changes[:limit]:
        say(line)
    if changes[limit:]:
        say(f"… and {len(changes) - limit} more changed lines")
    for remark in pinned.remarks:
        say(f"note: {remark}")
    files = f"{pinned.files} files" + (
        f" of {pinned.subjects} subjects" if pinned.subjects else ""
    )
    if options.dry_run:
        say(f"{files} would be pinned; nothing was written")
        return 0
    if not changes and not pinned.placed:
        say(f"{files}: already pinned and in place")
        return 0
    say(
        f"pinned {files}, placed {pinned.placed} of them in data/{'models/' * model}{options.id}/"
    )
    then = "" if model else f", `neuroledger validate {options.id}`, `neuroledger run`"
    say(f"next: `neuroledger check {path}`{then}")
    return 0
