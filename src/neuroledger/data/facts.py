"""Facts on which data or a score depend, with how each is known: stated by a file, declared in a spec, or assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict

__all__ = ["Fact", "Origin"]

Origin = Literal["stated", "declared", "assumed"]


@dataclass(frozen=True)
class Fact:
    """A value, such as a time step, a unit or a sampling rate, and how it is known."""

    # A record holds this class: unknown fields are refused when it is read.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", use_attribute_docstrings=True
    )

    value: float | int | str | bool
    """A number, a text or a truth value."""
    origin: Origin
    """stated by the file that was read, declared in a spec or by the caller, or assumed: a default that nobody
    confirmed.
    """

    def __str__(self) -> str:
        return f"{self.value} ({self.origin})"

    def to_dict(self) -> dict[str, object]:
        """Return plain data for a record."""
        return {"value": self.value, "origin": self.origin}
