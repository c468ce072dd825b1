"""The base of everything that a record stores: typed, frozen, without unknown fields, and written in one form only."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

__all__ = ["Count", "Number", "Stored"]

# Records are untrusted: numbers must be valid, and small enough that their squares are finite.
Number = Annotated[float, Field(strict=True, ge=-1e100, le=1e100)]
# A number that keeps its form: a count is written as an integer, a mean count as a float.
Count = Annotated[int, Field(strict=True, ge=-(10**100), le=10**100)] | Number


class Stored(BaseModel):
    """A stored value; a field of :attr:`OPTIONAL` that has its default is not written."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True
    )
    OPTIONAL: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        plain: dict[str, object] = handler(self)
        left_out = self._left_out()
        if not left_out:
            return plain
        return {
            name: content for name, content in plain.items() if name not in left_out
        }

    def _left_out(self) -> Collection[str]:
        """Return the fields that are not written."""
        fields = type(self).model_fields
        return [
            name
            for name in self.OPTIONAL
            if bool(getattr(self, name) == fields[name].default)
        ]
