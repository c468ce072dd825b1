"""What can be wrong with a suite beyond its fields: circles of suites, moved versions, groups that hold nothing."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from neuroledger.errors import CircleError, RequestError, SpecError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import SuiteSpec
from neuroledger.spec.suites import suites_of

__all__ = ["suite_problems"]

Found = tuple[tuple[str | int, ...], str, str]


def suite_problems(catalog: Catalog, suite: SuiteSpec) -> Iterator[Found]:
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
