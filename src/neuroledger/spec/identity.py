"""Content identity: canonical JSON and its SHA-256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

__all__ = ["canonical", "sha256_of", "spec_sha256"]

# What describes a thing without determining any number. What files must be is in their pins, not in `downloads`; and where
# a list is written is no part of what it says. Which channel `stimuli` belong to decides who can be scored, not the score.
DESCRIPTIVE = frozenset(
    {
        "title", "description", "cite", "tags", "notes", "published", "parent", "superseded_by", "downloads", "lists",
        "chance_level",
        "stimuli",
    }
)  # fmt: skip


def canonical(value: Any) -> str:
    """JSON with sorted keys, no spaces, no NaN: equal content gives equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def sha256_of(value: Any) -> str:
    """SHA-256 of the canonical JSON of plain data."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def spec_sha256(spec: BaseModel, *, without: frozenset[str] = DESCRIPTIVE) -> str:
    """Identity of a spec: its validated fields, defaults filled in, without those that only describe."""
    data: Mapping[str, Any] = spec.model_dump(mode="json", by_alias=True)
    return sha256_of({key: value for key, value in data.items() if key not in without})
