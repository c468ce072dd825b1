"""What the repository states of a pinned data set, and the few of its recordings that a miniature has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from neuroledger.families.signals.pinning.scan_downloads import (
    Found,
    reads,
    recordings_in,
)
from neuroledger.spec.catalog import Catalog

__all__ = ["Published", "chosen", "pinned_sets", "published"]

Item = TypeVar("Item")
NOWHERE = Path("the pinned files")
PEOPLE = 8
RECORDINGS = 2
"""Of one person; more if the benchmark's split or the facts of names need them."""


@dataclass(frozen=True)
class Published:
    """A pinned data set.

    Attributes
    ----------
    spec, benchmark
        The fields of the spec of the set, and of the benchmark that decodes it, as declared.
    names
        Names of the pinned files.
    """

    id: str
    spec: Mapping[str, Any]
    benchmark: Mapping[str, Any]
    names: tuple[str, ...]

    @property
    def reader(self) -> Mapping[str, Any]:
        """The reader with its parameters."""
        fields: Mapping[str, Any] = self.spec["reader"]
        return fields

    @property
    def window(self) -> Mapping[str, Any]:
        """The windows."""
        fields: Mapping[str, Any] = self.reader["window"]
        return fields

    @property
    def splits(self) -> Mapping[str, Any]:
        """The rule of the benchmark's split."""
        fields: Mapping[str, Any] = self.benchmark["paradigm"].get("splits", {})
        return fields

    @property
    def facts_listed(self) -> bool:
        """Whether facts about recordings are in the spec only, as `pin` took them from a table of people."""
        return bool(self.reader.get("recordings")) and not self.reader.get("named")

    @property
    def target(self) -> str:
        """The coordinate that the benchmark decodes."""
        return str(self.benchmark["paradigm"].get("target", "label"))


def pinned_sets(catalog: Catalog, suite: str) -> list[str]:
    """Ids of the sets of EEG and MEG recordings with pinned files that benchmarks named `suite.…` decode."""
    found = set()
    for id in catalog.ids("benchmarks"):
        if not id.startswith(f"{suite}."):
            continue
        spec = catalog.dataset(catalog.benchmark(id).dataset)
        if spec.files and spec.modality in ("eeg", "meg") and spec.reader is not None:
            found.add(spec.id)
    return sorted(found)


def published(catalog: Catalog, id: str, suite: str) -> Published:
    """The declared fields of a pinned data set and of its benchmark."""
    benchmarks = [
        entry
        for name in catalog.ids("benchmarks")
        if name.startswith(f"{suite}.")
        and (entry := catalog.entry("benchmarks", name)).document.data["dataset"] == id
    ]
    spec = catalog.entry("datasets", id).document.data
    names = tuple(catalog.dataset(id).files)
    return Published(id, spec, benchmarks[0].document.data, names)


def chosen(one: Published) -> list[Found]:
    """A few recordings of a few people, which the declared split can divide.

    Raises
    ------
    RequestError
        The names of the pinned files do not state recordings and subjects as the reader declares.
    """
    bids = one.reader["name"] == "bids_epochs"
    events = (one.reader.get("matlab") or {}).get("events") or {}
    if one.facts_listed:
        recordings = [_listed(dict(entry)) for entry in one.reader["recordings"]]
    else:
        recordings = recordings_in(
            NOWHERE,
            one.names,
            task=one.reader.get("task") if bids else None,
            named=one.reader.get("named") or {},
            opened=reads(one.reader),
            events_file=events.get("file"),
            subjects=tuple(one.reader.get("subjects") or ()) if bids else (),
            sessions=tuple(one.reader.get("sessions") or ()) if bids else (),
        )
    of_person: dict[str, list[Found]] = {}
    for item in recordings:
        of_person.setdefault(item.subject, []).append(item)
    people = _people(one, of_person)
    return [
        item
        for turn, name in enumerate(people)
        for item in _recordings(one, of_person[name], turn)
    ]


def _listed(entry: Mapping[str, Any]) -> Found:
    """A recording that the spec lists, with its facts as texts."""
    identity = [str(entry.get(name, "1")) for name in ("subject", "session", "run")]
    facts = {name: str(value) for name, value in (entry.get("facts") or {}).items()}
    return Found(str(entry["file"]), (), *identity, facts)


def _people(one: Published, of_person: Mapping[str, Sequence[Found]]) -> list[str]:
    """People of all facts of names, such as a diagnosis or a release; those that the split tests twice."""
    groups: dict[tuple[str, ...], list[str]] = {}
    varying = [one.target, one.splits.get("column", "")]
    for name, items in of_person.items():
        facts = tuple(str(items[0].name_facts.get(fact)) for fact in varying)
        groups.setdefault(facts, []).append(name)
    # Each part of a stratified split has people of each label.
    least = 5 if one.splits.get("stratify") == one.target else 1
    share = max(least, PEOPLE // len(groups))
    test = one.splits.get("test")
    tested = set(test) if isinstance(test, list) else set()
    if one.splits.get("column") == "subject" and tested:
        # A rule that names people needs all of them.
        others = [name for name in of_person if name not in tested]
        return [
            *(name for name in of_person if name in tested),
            *spread(others, PEOPLE),
        ]
    return [
        name
        for facts, names in groups.items()
        for name in spread(names, 2 * share if tested & set(facts) else share)
    ]


def _recordings(one: Published, items: Sequence[Found], turn: int) -> list[Found]:
    """Of one person: those of the tested values and others, or of all combinations of facts."""
    column, values = (
        one.splits.get("column"),
        set(map(str, one.splits.get("values") or ())),
    )
    if column in ("session", "run") and values:
        tested = [item for item in items if getattr(item, column) in values]
        rest = [item for item in items if getattr(item, column) not in values]
        first = turn % max(1, len(tested))
        return [*tested[first : first + 1], *spread(rest, 1 + RECORDINGS)]
    kinds: dict[tuple[str, ...], list[Found]] = {}
    for item in items:
        task = re.search(r"_task-([A-Za-z0-9+]+)_", item.file)
        kind = (*item.name_facts.values(), task[1] if task else "")
        kinds.setdefault(kind, []).append(item)
    each = max(1, RECORDINGS // len(kinds))
    return [item for same in kinds.values() for item in spread(same, each)]


def spread(items: Iterable[Item], count: int) -> list[Item]:
    """At most `count` of the items, at equal distances."""
    listed = list(items)
    if len(listed) <= count:
        return listed
    return [listed[number * len(listed) // count] for number in range(count)]
