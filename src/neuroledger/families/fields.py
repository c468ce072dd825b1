"""Types of fields that many components declare, with their limits; those around zero are pydantic's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

__all__ = ["AtLeastOne", "AtLeastTwo", "BelowOne", "Names", "OpenShare", "Share"]

AtLeastOne = Annotated[int, Field(ge=1)]
AtLeastTwo = Annotated[int, Field(ge=2)]
Share = Annotated[float, Field(ge=0, le=1)]
# A share that is neither 0 nor 1.
OpenShare = Annotated[float, Field(gt=0, lt=1)]
# A share that can be 0, but not 1.
BelowOne = Annotated[float, Field(ge=0, lt=1)]
# At least one name.
Names = Annotated[tuple[str, ...], Field(min_length=1)]
