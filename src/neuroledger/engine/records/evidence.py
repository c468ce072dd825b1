"""Who stands for the numbers of a record: its author, or an allowed signer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["ALLOWED", "SELF_REPORTED", "Evidence", "Origin"]

ALLOWED: Final = "allowed_signers"
"""Name of the file of those whose signatures count."""


class Origin(StrEnum):
    """Where confidence in the numbers of a record comes from."""

    SELF_REPORTED = "self-reported"
    """The author of the record states them."""
    SIGNED = "signed"
    """An allowed signer recomputed them and signed the record."""
    RECOMPUTED = "recomputed here"
    """This call recomputed them."""


@dataclass(frozen=True)
class Evidence:
    """Who stands for the numbers of a record; ``signer`` is empty without a valid signature."""

    origin: Origin = Origin.SELF_REPORTED
    signer: str = ""

    def __post_init__(self) -> None:
        if (self.origin is Origin.SIGNED) != bool(
            self.signer
        ) and self.origin is not Origin.RECOMPUTED:
            raise ValueError(
                "numbers are signed by somebody, and those that nobody signed are self-reported"
            )

    def __str__(self) -> str:
        if self.origin is Origin.SIGNED:
            return f"recomputed and signed by {self.signer}"
        if self.origin is Origin.RECOMPUTED and self.signer:
            return f"recomputed here, and signed by {self.signer}"
        return str(self.origin.value)


SELF_REPORTED: Final = Evidence()
