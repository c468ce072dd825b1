"""The reader that a data set declares, with its parameters, also as a model needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple, cast

from pydantic import ValidationError

from neuroledger.errors import Finding, RequestError, SpecError, UnavailableError
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog, Entry
from neuroledger.spec.components import Reader
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.load import explain
from neuroledger.store.derived import fact

__all__ = [
    "MemberProblem",
    "changed_parameters",
    "member_problems",
    "reader_parameters",
]


def reader_parameters(catalog: Catalog, id: str) -> tuple[Reader, dict[str, object]]:
    """The reader of a data set and its validated parameters.

    Raises
    ------
    UnavailableError
        The spec declares the data unavailable, or names no reader.
    SpecError
        The reader's parameters are invalid.
    """
    spec = catalog.dataset(id)
    if spec.reader is None or spec.closed is not None:
        raise UnavailableError(f"data set {id!r} is unavailable: {spec.closed}")
    component, parameters = _bound_reader(catalog.entry("datasets", id))
    problem = next(iter(member_problems(catalog, spec)), None)
    if problem is not None:
        where = catalog.shown(catalog.entry("datasets", id).path)
        raise SpecError(
            [Finding("spec.members", "error", where, problem.what, problem.fix)]
        )
    return component, dict(parameters)


class MemberProblem(NamedTuple):
    """A field of a data set that its members contradict, what is wrong, and how to fix it."""

    field: str
    what: str
    fix: str


def member_problems(catalog: Catalog, spec: DatasetSpec) -> Iterator[MemberProblem]:
    """Yield what is wrong in the members of a data set, all of which have a spec, or in its reader."""
    reader = spec.reader
    joins = reader is not None and _joins(catalog, reader.name)
    if reader is not None and joins != bool(spec.members):
        what = f"the reader {reader.name!r} reads {'members' if joins else 'files'}, and the data set has none"
        yield MemberProblem("reader", what, "name a reader of what the data set has")
    for member in map(catalog.about, spec.members):
        if member.members:
            what = f"{member.id} has members itself"
            yield MemberProblem("members", what, "list its members here")
        if member.access == "private" and spec.access != "private":
            what = f"its member {member.id} is private"
            yield MemberProblem("access", what, "write `access: private`")
        if member.simulated and not spec.simulated:
            what = f"its member {member.id} is simulated"
            yield MemberProblem("simulated", what, "write `simulated: true`")


def _joins(catalog: Catalog, reader: str) -> bool:
    """Whether a reader reads members."""

    def joins() -> bool:
        return registry.get("reader", reader).joins

    return fact(catalog.root, "joins", reader, joins)


@lru_cache(maxsize=256)
def _bound_reader(entry: Entry) -> tuple[Reader, Mapping[str, object]]:
    """The reader of an entry and its parameters, which may list thousands of recordings, validated once."""
    reader = cast("DatasetSpec", entry.spec).reader
    assert reader is not None
    component = registry.get("reader", reader.name)
    try:
        return component, component.bind(reader.parameters)
    except ValidationError as error:
        raise SpecError(
            explain(error, entry.document, component.parameters, ("reader",))
        ) from None


def changed_parameters(catalog: Catalog, id: str, needs: object) -> dict[str, object]:
    """The parameters of a data set's reader that a model's needs change, by name; none without needs.

    Those of the readers of members are by member.

    Raises
    ------
    RequestError
        The data set cannot be prepared in this way.
    """
    if needs is None:
        return {}
    members = catalog.dataset(id).members
    if members:
        changed = {
            member: changed_parameters(catalog, member, needs) for member in members
        }
        return {member: fields for member, fields in changed.items() if fields}
    component, parameters = reader_parameters(catalog, id)
    begin = f"data set {id!r} cannot be prepared as the model needs: "
    if component.composes is None:
        raise RequestError(
            f"{begin}its reader {component.name!r} prepares it in one way only; score a model without `needs`"
        )
    try:
        return component.composes(parameters, needs)
    except RequestError as error:
        raise RequestError(f"{begin}{error}") from error
