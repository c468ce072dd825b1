"""Options and arguments that several verbs share, each defined once with its help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "BenchmarkId",
    "Benchmarks",
    "Degrees",
    "Device",
    "Json",
    "License",
    "Limit",
    "ModelId",
    "Published",
    "Records",
    "Root",
    "Seed",
    "Suite",
    "argument",
    "flag",
    "ids_of",
    "option",
    "pairs_of",
]


def ids_of(*kinds: str) -> Callable[[typer.Context, str], list[str]]:
    """Return the function that completes an id of these kinds in a shell; it never fails."""

    def complete(context: typer.Context, incomplete: str) -> list[str]:
        from neuroledger.errors import NeuroLedgerError
        from neuroledger.spec.catalog import open_catalog

        try:
            catalog = open_catalog(context.params.get("root"))
        except (NeuroLedgerError, OSError):
            return []
        ids = [id for kind in kinds for id in catalog.ids(kind)]
        return [id for id in ids if id.startswith(incomplete)]

    return complete


def option(
    name: str,
    metavar: str | None,
    help: str,
    *,
    ids: tuple[str, ...] = (),
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """Return an option with a value; ``ids`` are the kinds of spec whose ids complete it in a shell.

    Without a ``metavar``, its choices are shown. A metavar in brackets permits to leave the value out.
    """
    completion = ids_of(*ids) if ids else complete
    return typer.Option(name, metavar=metavar, help=help, autocompletion=completion)


def flag(name: str, help: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=help)


def argument(
    metavar: str,
    help: str,
    *,
    ids: tuple[str, ...] = (),
    complete: Callable[[str], list[str]] | None = None,
) -> Any:
    """Return an argument; ``ids`` are the kinds of spec whose ids complete it in a shell."""
    completion = ids_of(*ids) if ids else complete
    return typer.Argument(metavar=metavar, help=help, autocompletion=completion)


def pairs_of(texts: list[str] | None, flag: str, form: str) -> dict[str, str]:
    """Return the pairs of a repeated option ``NAME=VALUE``, split at the last equals sign.

    Raises
    ------
    RequestError
        A text has no equals sign or no name; the message shows ``form``, a correct use.
    """
    from neuroledger.errors import RequestError

    pairs = dict(text.rpartition("=")[::2] for text in texts or ())
    if "" in pairs:
        raise RequestError(f"{flag} must be {form}")
    return pairs


Root = Annotated[
    Path | None,
    option(
        "--root",
        "FOLDER",
        "repository folder (default: the one that contains the working directory)",
    ),
]
Json = Annotated[bool, flag("--json", "print JSON")]
Suite = Annotated[
    str | None,
    option(
        "--suite",
        "SUITE",
        "id of a suite (default: the suite in params.yaml)",
        ids=("suites",),
    ),
]
ModelId = Annotated[
    str,
    argument("MODEL", "id of a model", ids=("models",)),
]
BenchmarkId = Annotated[
    str,
    argument("BENCHMARK", "id of a benchmark", ids=("benchmarks",)),
]
Benchmarks = Annotated[
    list[str] | None,
    option(
        "--benchmark",
        "B",
        "only on this benchmark; may be repeated",
        ids=("benchmarks",),
    ),
]
Records = Annotated[
    list[Path] | None,
    argument("RECORD", "record files (default: all records)"),
]
Published = Annotated[
    bool,
    flag("--published", "use published figures instead of records"),
]
Seed = Annotated[
    int | None,
    option("--seed", "N", "random seed (default: params.yaml)"),
]
Limit = Annotated[
    int | None,
    option(
        "--limit",
        "N",
        "use the first N stimuli only; such a score is partial and never ranked",
    ),
]
Device = Annotated[
    str | None,
    option("--device", "DEVICE", "cpu, cuda, cuda:1, mps (default: params.yaml)"),
]
License = Annotated[
    str | None,
    option(
        "--license",
        "SPDX",
        "SPDX licence of the data, such as CC-BY-4.0; LicenseRef-unstated if none is stated",
    ),
]
Degrees = Annotated[
    float | None,
    option("--degrees", "D", "size of the images in degrees of visual angle"),
]
