"""The reader that a data set declares, with its parameters, also as a model needs them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import cast

from pydantic import ValidationError

from neuroledger.errors import RequestError, SpecError, UnavailableError
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog, Entry
from neuroledger.spec.components import Reader
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.load import explain

__all__ = ["changed_parameters", "reader_parameters"]


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
    return component, dict(parameters)


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

    Raises
    ------
    RequestError
        The data set cannot be prepared in this way.
    """
    if needs is None:
        return {}
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
