"""A suite and those it includes, each ranked on its own; and the benchmarks that no suite lists."""

from __future__ import annotations

from neuroledger.errors import CircleError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import SuiteSpec, Weighted

__all__ = ["suites_of", "to_score", "unlisted"]

UNLISTED = "unlisted"


def suites_of(catalog: Catalog, id: str) -> tuple[SuiteSpec, ...]:
    """The suite ``id`` and the suites it includes, each once, those with benchmarks of their own only.

    Raises
    ------
    UnknownError, CircleError
        There is no such suite, or suites include each other in a circle.
    """
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
        dataset = catalog.dataset(spec.dataset)
        if (
            spec.unavailable is None
            and dataset.unavailable is None
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
