"""The hierarchy of a suite: benchmarks in groups, groups in groups, and what each benchmark weighs in the whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

__all__ = ["Group", "groups_of", "weights_of"]


@dataclass(frozen=True)
class Group:
    """Some benchmarks of a suite with the share that each has in the group's mean; shares sum to 1.

    ``part_of`` is the group above, empty at the top.
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
    """The groups of a suite with a hierarchy, each before those in it; a single group at the top is the suite itself."""
    if not above:
        return
    names = _names(weights, parents, above)
    tops = [name for name in names if name not in above]

    def visit(name: str, depth: int) -> Iterator[Group]:
        if depth or len(tops) > 1:
            yield Group(name, above.get(name, ""), _shares(name, weights, parents, above))
        for inner in names:
            if above.get(inner) == name:
                yield from visit(inner, depth + 1)

    for name in tops:
        yield from visit(name, 0)


def _names(weights: Mapping[str, float], parents: Mapping[str, str], above: Mapping[str, str]) -> list[str]:
    """The groups that hold a benchmark that counts, themselves or through others, in the order they first appear."""
    found: dict[str, None] = {}
    for id in weights:
        name: str | None = parents[id]
        while name is not None:
            found.setdefault(name)
            name = above.get(name)
    return list(found)


def _shares(
    name: str, weights: Mapping[str, float], parents: Mapping[str, str], above: Mapping[str, str]
) -> dict[str, float]:
    parts: list[tuple[float, dict[str, float]]] = [
        (weight, {id: 1.0}) for id, weight in weights.items() if parents[id] == name
    ]
    inner = [group for group in _names(weights, parents, above) if above.get(group) == name]
    parts += [(1.0, _shares(group, weights, parents, above)) for group in inner]
    total = sum(weight for weight, _ in parts)
    return {id: weight * share / total for weight, held in parts for id, share in held.items()}
