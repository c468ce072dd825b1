"""A suite and those it includes, each ranked on its own; benchmarks that no suite lists; and the faults of a suite."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from neuroledger.errors import CircleError, RequestError, SpecError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import SuiteSpec, Weighted

__all__ = ["suite_problems", "suites_of", "to_score", "unlisted"]

UNLISTED = "unlisted"


def suites_of(catalog: Catalog, id: str) -> tuple[SuiteSpec, ...]:
    """The suite ``id`` and the suites it includes, each once, those with benchmarks of their own only.

    ``unlisted`` names the benchmarks that no suite lists.

    Raises
    ------
    UnknownError, CircleError
        There is no such suite, or suites include each other in a circle.
    """
    if id == UNLISTED and not catalog.has("suites", id):
        fresh = unlisted(catalog, ())
        if fresh is None:
            raise RequestError(
                "every benchmark whose data are here is listed in a suite: name one of `neuroledger list suites`"
            )
        return (fresh,)
    found: dict[str, SuiteSpec] = {}

    def visit(id: str, above: tuple[str, ...]) -> None:
        if id in above:
            raise CircleError(f"suites include each other in a circle: {' → '.join((*above, id))}")
        spec = catalog.suite(id)
        if id not in found:
            found[id] = spec
        for inner in spec.includes:
            visit(inner, (*above, id))

    visit(id, ())
    return tuple(spec for spec in found.values() if spec.benchmarks)


def unlisted(catalog: Catalog, models: tuple[str, ...]) -> SuiteSpec | None:
    """The benchmarks that no suite lists and whose data travel with the repository, with the given models."""
    listed = {item.id for id in catalog.ids("suites") for item in catalog.suite(id).benchmarks}
    fresh = []
    for id in catalog.own("benchmarks"):
        if id in listed:
            continue
        spec = catalog.benchmark(id)
        dataset = catalog.about(spec.dataset)
        if (
            spec.unavailable is None
            and dataset.closed is None
            and "files" not in dataset.lists
            and all(p.dvc for p in dataset.files.values())
        ):
            fresh.append(Weighted(id=id))
    if not fresh:
        return None
    return SuiteSpec(
        id=UNLISTED,
        version=1,
        title="Benchmarks that no suite lists yet",
        benchmarks=tuple(fresh),
        models=models,
    )


def to_score(catalog: Catalog, id: str) -> tuple[SuiteSpec, ...]:
    """What a run of suite ``id`` scores when it is the repository's default: the suite, its parts, and what is new.

    What no suite lists yet is scored on the models of the first of these suites that scores the same data set or
    paradigm, so that a new benchmark meets the models it can be compared on.
    """
    suites = suites_of(catalog, id)
    paradigms: dict[str, tuple[str, ...]] = {}
    for suite in suites:
        for item in suite.benchmarks:
            paradigms.setdefault(catalog.benchmark(item.id).paradigm.name, suite.models)
    extra = unlisted(catalog, ())
    if extra is None:
        return suites
    groups: dict[tuple[str, ...], list[Weighted]] = {}
    for item in extra.benchmarks:
        models = paradigms.get(catalog.benchmark(item.id).paradigm.name, ())
        groups.setdefault(models, []).append(item)
    parts = [
        extra.model_copy(update={"benchmarks": tuple(items), "models": models})
        for models, items in groups.items()
    ]
    return (*suites, *parts)


def suite_problems(catalog: Catalog, suite: SuiteSpec) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Where in the suite's file something is wrong, what, and what to do."""
    try:
        suites_of(catalog, suite.id)
    except CircleError as error:
        yield ("includes",), str(error), "break it in one of the files"
    except (RequestError, SpecError):
        pass  # reported where that suite is checked
    known = set(catalog.ids("benchmarks"))
    for i, item in enumerate(suite.benchmarks):
        if item.version is not None and item.id in known:
            now = catalog.benchmark(item.id).version
            if now != item.version:
                words = f"the suite froze version {item.version} of {item.id!r}, which is at version {now}"
                yield ("benchmarks", i), words, "make a new version of the suite"
    parents = sorted({catalog.benchmark(item.id).parent for item in suite.benchmarks if item.id in known})
    for group in suite.hierarchy:
        if group not in parents and group not in suite.hierarchy.values():
            words = f"no benchmark of the suite has the parent {group!r}, and no group is in it"
            near = get_close_matches(group, parents, n=1)
            yield (
                ("hierarchy", group),
                words,
                f"did you mean {near[0]!r}?" if near else f"the parents are {', '.join(parents)}",
            )
