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
    "ids_of",
    "pairs_of",
    "root_option",
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


def root_option(help: str) -> Any:
    """Return the option ``--root`` of a verb that explains it in its own words."""
    return typer.Option("--root", metavar="FOLDER", help=help)


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
    root_option(
        "repository folder (default: the one that contains the working directory)"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Suite = Annotated[
    str | None,
    typer.Option(
        "--suite",
        metavar="SUITE",
        help="id of a suite (default: the suite in params.yaml)",
        autocompletion=ids_of("suites"),
    ),
]
ModelId = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="id of a model", autocompletion=ids_of("models")
    ),
]
BenchmarkId = Annotated[
    str,
    typer.Argument(
        metavar="BENCHMARK",
        help="id of a benchmark",
        autocompletion=ids_of("benchmarks"),
    ),
]
Benchmarks = Annotated[
    list[str] | None,
    typer.Option(
        "--benchmark",
        metavar="B",
        help="only on this benchmark; may be repeated",
        autocompletion=ids_of("benchmarks"),
    ),
]
Records = Annotated[
    list[Path] | None,
    typer.Argument(metavar="RECORD", help="record files (default: all records)"),
]
Published = Annotated[
    bool,
    typer.Option("--published", help="use published figures instead of records"),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="random seed (default: params.yaml)"),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        help="use the first N stimuli only; such a score is partial and never ranked",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="cpu, cuda, cuda:1, mps (default: params.yaml)",
    ),
]
License = Annotated[
    str | None,
    typer.Option(
        "--license",
        metavar="SPDX",
        help="SPDX licence of the data, such as CC-BY-4.0; LicenseRef-unstated if none is stated",
    ),
]
Degrees = Annotated[
    float | None,
    typer.Option(
        "--degrees",
        metavar="D",
        help="size of the images in degrees of visual angle",
    ),
]
