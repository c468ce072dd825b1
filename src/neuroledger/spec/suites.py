"""Suites: included suites, groups and weights of benchmarks, benchmarks that no suite lists, and problems of a suite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from neuroledger.errors import CircleError, RequestError, SpecError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import Location
from neuroledger.spec.kinds import SuiteSpec, Weighted

__all__ = [
    "COMMENSURABLE",
    "Group",
    "groups_of",
    "suite_problems",
    "suites_of",
    "to_score",
    "unlisted",
    "weights_of",
]

# Scales from 0 (no agreement) to 1 (perfect), whose values can be averaged over benchmarks.
COMMENSURABLE: Final = frozenset(
    {
        "correlation",
        "reliability",
        "explained_variance",
        "similarity",
        "consistency",
        "accuracy",
        "fraction",
        "score",
    }
)

UNLISTED = "unlisted"

# Location in the spec, message and advice.
Problem = tuple[Location, str, str]


def suites_of(catalog: Catalog, id: str) -> tuple[SuiteSpec, ...]:
    """The suite ``id`` and all suites it includes, each once, without suites that have no benchmarks of their own.

    The id ``unlisted`` stands for the benchmarks that no suite lists.

    Raises
    ------
    UnknownError, CircleError
        There is no such suite, or suites include each other in a circle.
    """
    if id == UNLISTED and not catalog.has("suites", id):
        suite = unlisted(catalog, ())
        if suite is None:
            raise RequestError(
                "every benchmark with data in the repository is listed in a suite: give one of `neuroledger list suites`"
            )
        return (suite,)
    suites: dict[str, SuiteSpec] = {}

    def visit(id: str, above: tuple[str, ...]) -> None:
        if id in above:
            raise CircleError(
                f"suites include each other in a circle: {' → '.join((*above, id))}"
            )
        spec = catalog.suite(id)
        suites.setdefault(id, spec)
        for inner in spec.includes:
            visit(inner, (*above, id))

    visit(id, ())
    return tuple(spec for spec in suites.values() if spec.benchmarks)


def unlisted(catalog: Catalog, models: tuple[str, ...]) -> SuiteSpec | None:
    """A suite of the benchmarks that no suite lists and whose data are in the repository, or None if there are none."""
    listed = {
        item.id for id in catalog.ids("suites") for item in catalog.suite(id).benchmarks
    }
    new = [
        Weighted(id=id)
        for id in catalog.own("benchmarks")
        if id not in listed and _has_data_here(catalog, id)
    ]
    if not new:
        return None
    return SuiteSpec(
        id=UNLISTED,
        version=1,
        title="Benchmarks that no suite lists yet",
        benchmarks=tuple(new),
        models=models,
    )


def _has_data_here(catalog: Catalog, id: str) -> bool:
    """Whether the repository has all data of a benchmark."""
    spec = catalog.benchmark(id)
    if spec.unavailable is not None or catalog.closed(spec.dataset) is not None:
        return False
    dataset = catalog.about(spec.dataset)
    parts = map(catalog.about, dataset.members or [dataset.id])
    return all(
        "files" not in part.lists and all(pin.dvc for pin in part.files.values())
        for part in parts
    )


def to_score(catalog: Catalog, id: str) -> tuple[SuiteSpec, ...]:
    """The suites that a run of the default suite ``id`` scores: the suite, those it includes, and unlisted benchmarks.

    An unlisted benchmark is scored on the models of the first of these suites that uses the same paradigm, so that its
    models can be compared.
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


def suite_problems(catalog: Catalog, suite: SuiteSpec) -> Iterator[Problem]:
    """Yield location, message and advice for every problem of a suite."""
    try:
        suites_of(catalog, suite.id)
    except CircleError as error:
        yield ("includes",), str(error), "remove one of the includes"
    except (RequestError, SpecError):
        pass  # reported by the check of the included suite
    known = set(catalog.ids("benchmarks"))
    parents = set()
    for i, item in enumerate(suite.benchmarks):
        if item.id not in known:
            continue
        benchmark = catalog.benchmark(item.id)
        parents.add(benchmark.parent)
        if item.version not in (None, benchmark.version):
            words = f"the suite states version {item.version} of {item.id!r}, which is at version {benchmark.version}"
            yield ("benchmarks", i), words, "make a new version of the suite"
    yield from _hierarchy_problems(suite, sorted(parents))


def _hierarchy_problems(suite: SuiteSpec, parents: Sequence[str]) -> Iterator[Problem]:
    """The groups of a hierarchy that neither a benchmark with one of the parents nor another group is in."""
    for group in suite.hierarchy:
        if group in parents or group in suite.hierarchy.values():
            continue
        words = (
            f"no benchmark of the suite has the parent {group!r}, and no group is in it"
        )
        near = get_close_matches(group, parents, n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        else:
            hint = f"the parents are {', '.join(parents)}"
        yield ("hierarchy", group), words, hint


@dataclass(frozen=True)
class Group:
    """A group of benchmarks, each with its share in the group's mean; shares sum to 1.

    ``part_of`` is the parent group, empty at the top.
    """

    name: str
    part_of: str
    shares: Mapping[str, float]


def weights_of(
    weights: Mapping[str, float], parents: Mapping[str, str], above: Mapping[str, str]
) -> dict[str, float]:
    """Share of each benchmark in the score of a suite; shares sum to 1.

    Parameters
    ----------
    weights
        Weight of each benchmark that counts, by id.
    parents
        The group that each benchmark is in.
    above
        The group that each group is in (a suite's ``hierarchy``). Where it is empty the score is the plain weighted
        mean; else it is a mean of means: a group is the weighted mean of its benchmarks and of the groups in it (which
        weigh 1 each), the suite is the mean of the groups at the top. A group without a benchmark that counts is left
        out.
    """
    if not above:
        total = sum(weights.values())
        return {id: weight / total for id, weight in weights.items()}
    tops = [name for name in _names(weights, parents, above) if name not in above]
    shares: dict[str, float] = {}
    for name in tops:
        for id, share in _shares(name, weights, parents, above).items():
            shares[id] = share / len(tops)
    return {id: shares[id] for id in weights}


def groups_of(
    weights: Mapping[str, float], parents: Mapping[str, str], above: Mapping[str, str]
) -> Iterator[Group]:
    """Yield the groups of a suite with a hierarchy, each before its subgroups.

    A single top group is the suite itself, and is omitted.
    """
    if not above:
        return
    names = _names(weights, parents, above)
    tops = [name for name in names if name not in above]

    def visit(name: str, depth: int) -> Iterator[Group]:
        if depth or len(tops) > 1:
            yield Group(
                name, above.get(name, ""), _shares(name, weights, parents, above)
            )
        for inner in names:
            if above.get(inner) == name:
                yield from visit(inner, depth + 1)

    for name in tops:
        yield from visit(name, 0)


def _names(
    weights: Mapping[str, float], parents: Mapping[str, str], above: Mapping[str, str]
) -> list[str]:
    """The groups that contain a benchmark with a weight, directly or in a subgroup, in the order of first occurrence."""
    names: dict[str, None] = {}
    for id in weights:
        name: str | None = parents[id]
        while name is not None:
            names.setdefault(name)
            name = above.get(name)
    return list(names)


def _shares(
    name: str,
    weights: Mapping[str, float],
    parents: Mapping[str, str],
    above: Mapping[str, str],
) -> dict[str, float]:
    parts: list[tuple[float, dict[str, float]]] = [
        (weight, {id: 1.0}) for id, weight in weights.items() if parents[id] == name
    ]
    inner = [
        group for group in _names(weights, parents, above) if above.get(group) == name
    ]
    parts += [(1.0, _shares(group, weights, parents, above)) for group in inner]
    total = sum(weight for weight, _ in parts)
    return {
        id: weight * share / total
        for weight, shares in parts
        for id, share in shares.items()
    }
