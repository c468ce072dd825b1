"""Import every package of the peer's layouts, validate it, and export it for the peer to open."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from neuroledger.errors import NeuroLedgerError

__all__ = ["export_all", "lines"]

# Packages that the plain import refuses, with the rule; the catalogue's spec reads them.
REFUSED = {
    "Kar2019": "which contains the times of two decoders: the spec selects those of one"
}


def export_all(
    root: Path, packages: Path, asked: dict[str, Any], out: Path
) -> dict[str, str]:
    """Write ``out/KEY`` for each package of the folder; return the reasons for those that were refused."""
    from neuroledger.cli import main as command
    from neuroledger.families.alignment.brainscore_files import (
        export_brainscore,
        import_brainscore,
    )
    from neuroledger.spec.catalog import open_catalog

    shutil.rmtree(root, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    (root / "specs" / "datasets").mkdir(parents=True)
    for name, text in (
        ("dvc.yaml", "stages: {}\n"),
        ("params.yaml", "suite: parity\n"),
    ):
        (root / name).write_text(text, encoding="utf-8")
    failed: dict[str, str] = {}
    held = []
    for key in asked["packages"]:
        files = [packages / name for name in files_of(asked, key)]
        if not files or not all(path.is_file() for path in files):
            continue
        try:
            import_brainscore(open_catalog(root), key, files, access="private")
            held.append(key)
        except NeuroLedgerError as error:
            failed[key] = "import: " + " ".join(str(error).split())
    command(["--root", str(root), "validate", "--allow-invalid", *held])
    catalog = open_catalog(root)
    for key in held:
        try:
            export_brainscore(catalog, key, out / key)
        except NeuroLedgerError as error:
            failed[key] = "export: " + " ".join(str(error).split())
    return failed


def files_of(asked: dict[str, Any], key: str) -> list[str]:
    """The files of a package: an assembly and its stimuli, or either of them."""
    own = asked["assemblies"].get(key)
    stimuli = asked["stimuli"].get(asked["sets"].get(key) or ("" if own else key), {})
    return [name for name in (own, *stimuli.values()) if name]


def lines(verdicts: dict[str, str], failed: dict[str, str]) -> list[str]:
    """The section of the page about exported packages."""
    refused = {key: REFUSED[key] for key in failed if key in REFUSED}
    wrong = {
        key: said
        for key, said in (failed | verdicts).items()
        if said != "equal" and key not in refused
    }
    every = set(verdicts) | set(failed)
    table = [f"| {key} | {wrong[key]} |" for key in sorted(wrong)]
    return [
        "## Export",
        "",
        f"Each of {len(every)} packages was imported, validated and exported; the export and the original were opened by",
        "Brain-Score's loaders and compared. Values, coordinates, attributes, tables and stimulus files are the same in",
        f"{len(every) - len(wrong) - len(refused)} of them.",
        *(f"Refused: {key}, {rule}." for key, rule in refused.items()),
        "",
        *(["| package | differs |", "|---|---|", *table, ""] if wrong else []),
    ]
