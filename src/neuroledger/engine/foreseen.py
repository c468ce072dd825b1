"""Problems of a pinned data set, and of benchmarks on it, that are known from specs and pins without the files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from neuroledger.errors import DataError, RequestError, SpecError
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.components import Foreseen, Place
from neuroledger.spec.kinds import BenchmarkSpec

__all__ = ["Problem", "benchmark_problems", "dataset_problems", "foreseen"]


class Problem(NamedTuple):
    """A code, the place of the field in the spec, what is wrong, and how to fix it."""

    code: str
    place: Place
    what: str
    fix: str


def foreseen(catalog: Catalog, id: str) -> Foreseen | None:
    """What a data set's pins and its reader's fields state; None if nothing is pinned or read, or its spec is wrong."""
    try:
        spec = catalog.dataset(id)
    except (RequestError, SpecError):
        return None  # reported as a reference, or for that spec
    if spec.reader is None or not spec.files or spec.closed is not None:
        return None
    if spec.unread is not None:
        return None
    try:
        reader = registry.get("reader", spec.reader.name)
        reader.bind(spec.reader.parameters)
    except (RequestError, ValidationError):
        return None  # reported as a component
    if reader.foresees is None:
        return None
    return reader.foresees(spec.files, spec.reader.parameters)


def dataset_problems(stated: Foreseen | None) -> Iterator[Problem]:
    """What a reader cannot read of the files that are pinned for it."""
    for place, what, fix in stated.problems if stated is not None else ():
        yield Problem("spec.recordings", ("reader", *place), what, fix)


def benchmark_problems(
    spec: BenchmarkSpec, stated: Foreseen | None
) -> Iterator[Problem]:
    """Coordinates that the data of a benchmark will not have, and copies of tested recordings on which it trains."""
    if spec.unavailable is not None or stated is None:
        return
    try:
        paradigm = registry.get("paradigm", spec.paradigm.name)
        paradigm.bind(spec.paradigm.parameters)
    except (RequestError, ValidationError):
        return  # reported as a component
    if paradigm.needs is None:
        return
    needed = paradigm.needs(spec.paradigm.parameters)
    missing = {
        place: name for place, name in needed.items() if name not in stated.coordinates
    }
    known = ", ".join(sorted(stated.coordinates))
    for place, name in missing.items():
        yield Problem(
            "spec.unlabelled",
            ("paradigm", *place),
            f"data set {spec.dataset!r} declares no {name!r} of its windows; it declares {known}",
            "declare it in the reader of the data set (labels of events, facts of names or tables), or name another",
        )
    if missing or paradigm.divides is None or spec.select:
        return
    try:
        folds = paradigm.divides(spec.paradigm.parameters, stated.recordings)
    except (DataError, RequestError):
        return  # depends on more than is known of recordings
    for words in _copied(stated.recordings, folds):
        yield Problem(
            "spec.copied-recording",
            ("paradigm", "splits"),
            words,
            "leave the copies out of the data set, and pin it again (docs/data.md)",
        )


def _copied(
    recordings: Sequence[Mapping[str, str]],
    folds: Sequence[tuple[list[int], list[int]]],
) -> Iterator[str]:
    """A message for each fold of which tested recordings have the bytes of trained ones."""
    for trained, tested in folds:
        first = {
            recordings[row]["sha256"]: recordings[row] for row in reversed(trained)
        }
        pairs = [
            (recordings[row], first[recordings[row]["sha256"]])
            for row in tested
            if recordings[row]["sha256"] in first
        ]
        if pairs:
            one, other = pairs[0]
            yield (
                f"{len(pairs)} of {len(tested)} tested recordings have the same bytes as one on which it trains, first "
                f"{one['recording']} of {one['subject']} and {other['recording']} of {other['subject']}"
            )
