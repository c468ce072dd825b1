"""The pieces every kind of spec is made of, and a spec's identity: canonical JSON and its SHA-256."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

__all__ = [
    "Component", "Frozen", "ID_PATTERN", "Id", "Override", "PATTERNS", "Published", "Scale", "Sha256",
    "SourceFile", "Spec", "Stated", "canonical", "id_of", "is_file_name", "is_pattern", "sha256_of",
    "spec_sha256", "worded",
]  # fmt: skip

ID_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._+-]{0,119}[A-Za-z0-9_+-])?$"
URL_PATTERN = r"^(https|s3)://\S+$"
ENDPOINT_PATTERN = r"^(https://|http://(127\.0\.0\.1|localhost)(:\d+)?(/|$))\S*$"
REGION_PATTERN = r"^[a-z0-9-]{2,40}$"
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Md5 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Sha1 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,200}(/[A-Za-z0-9_][A-Za-z0-9._+-]{0,200})*")
# What DVC obeys wherever it lies: a stage is a command that `dvc repro` runs, a pointer says where `dvc pull` writes.
OBEYED = re.compile(r"(?:.*/)?(?:dvc\.(?:yaml|lock)|[^/]*\.dvc)(?:/.*)?", re.IGNORECASE)


def is_file_name(name: str) -> bool:
    """Whether a pinned file may have this name, which may have folders."""
    return FILE_NAME.fullmatch(name) is not None and OBEYED.fullmatch(name) is None


def _held(name: str) -> str:
    if OBEYED.fullmatch(name):
        raise ValueError(f"{name!r} is a name that DVC obeys: a stage or a pointer, never data")
    return name


# The same, with `*` and `?`, and what else files elsewhere may be called; never a way out of the folder.
DownloadName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\s./\\][^\n\t\\]{0,400}$", strip_whitespace=True),
    AfterValidator(_held),
]
FileName = Annotated[str, StringConstraints(pattern=rf"^{FILE_NAME.pattern}$"), AfterValidator(_held)]
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        ID_PATTERN: "an id: letters without accents, digits and . _ + -, first a letter or digit, and no point at its end",
        URL_PATTERN: "an address: https://… or s3://…, without spaces",
        ENDPOINT_PATTERN: "the address of an S3 service, https://…",
        REGION_PATTERN: "a region such as eu-west-1",
        r"^[0-9a-f]{64}$": "a SHA-256: 64 of the characters 0-9 and a-f, in lower case, as `sha256sum` prints it",
        r"^[0-9a-f]{32}$": "an MD5: 32 of the characters 0-9 and a-f, in lower case",
        r"^[0-9a-f]{40}$": "a SHA-1: 40 of the characters 0-9 and a-f, in lower case",
        rf"^{FILE_NAME.pattern}$": "a file name: letters without accents, digits and . _ + -, folders divided by /",
        r"^[0-9a-f]{6,64}$": "the beginning of a SHA-256: at least 6 of the characters 0-9 and a-f, in lower case",
        r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$": "a class by its place, `package.module.Class`",
    }
)
"""What a text should have been, in words, by the regular expression that it does not match."""

# Where an `s3://` address is served, and signed for: of importance for the transport alone, so absent where not given.
Endpoint = Annotated[
    Annotated[str, StringConstraints(pattern=ENDPOINT_PATTERN)] | None,
    Field(exclude_if=lambda value: value is None),
]
Region = Annotated[
    Annotated[str, StringConstraints(pattern=REGION_PATTERN)] | None,
    Field(exclude_if=lambda value: value is None),
]
Scale = Literal[
    "correlation", "reliability", "half_reliability", "explained_variance", "similarity", "consistency",
    "accuracy", "f1", "auroc", "fraction", "rate", "rank", "distance", "error", "score", "count", "bytes",
    "operations", "seconds", "per_second", "joules",
]  # fmt: skip
Direction = Literal["higher", "lower"]


class Frozen(BaseModel):
    """Plain, frozen data that refuses unknown fields."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False, strict=False
    )


class Component(BaseModel):
    """A component by name, with its parameters: data, until the engine binds it to a registered function."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True, allow_inf_nan=False)

    name: Id

    @property
    def parameters(self) -> dict[str, Any]:
        """The fields beside ``name``."""
        return dict(self.model_extra or {})


class Override(Component):
    """A metric or ceiling by id, with fields that replace those of its spec."""


def id_of(wanted: str | Override) -> str:
    """The id of a metric or ceiling that is named alone or with overrides."""
    return wanted.name if isinstance(wanted, Override) else wanted


class SourceFile(Frozen):
    """One pinned file: its bytes, and where they come from: DVC (a url beside it states the origin), a url, or hands."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0)]
    url: Annotated[str, StringConstraints(pattern=URL_PATTERN)] | None = None
    dvc: bool = False
    sha1: Sha1 | None = None
    version_id: str | None = None
    endpoint: Endpoint = None
    region: Region = None

    @property
    def by_hand(self) -> bool:
        """Whether no program can bring the file: it has no url, and DVC does not track it."""
        return self.url is None and not self.dvc


class Stated(Frozen):
    """What a publisher says of a file that nobody pinned yet: an address, a size, checksums, or only that it is there.

    None of it is a pin: MD5 and SHA-1 can be forged. `neuroledger pin` compares a download with it.
    """

    url: Annotated[str, StringConstraints(pattern=URL_PATTERN)] | None = None
    size: Annotated[int, Field(ge=0)] | None = None
    md5: Md5 | None = None
    sha1: Sha1 | None = None
    sha256: Sha256 | None = None
    sha256_begins: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{6,64}$")] | None = None
    """What of the SHA-256 the publisher states, such as the eight digits in the name of a checkpoint."""
    version_id: str | None = None
    endpoint: Endpoint = None
    region: Region = None


def is_pattern(name: str) -> bool:
    """Whether a name below `downloads` stands for many files: `*` for anything, folders too, `?` for one character."""
    return "*" in name or "?" in name


class Published(Frozen):
    """A figure from a publication: shown as published, never as a score of this repository."""

    model: str
    value: float
    error: float | None = None
    metric: str | None = None
    seeds: Annotated[int, Field(ge=1)] | None = None
    source: str
    note: str | None = None


class Spec(Frozen):
    """What every spec file begins with."""

    id: Id
    version: Annotated[int, Field(ge=1)]
    title: Annotated[str, StringConstraints(min_length=3, max_length=200)]
    description: str | None = None
    cite: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


# What belongs in a place, by the beginning of the validator's type of error.
_BELONGS = {
    "string_type": "text", "int": "a whole number", "float": "a number", "finite_number": "a finite number",
    "bool": "true or false", "dict_type": "a mapping of fields", "model": "a mapping of fields",
    "tuple_type": "a list", "list_type": "a list", "set_type": "a list", "is_instance": "another kind of value",
}  # fmt: skip
FEW_TAGS = 12
_BOUNDS = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}


def worded(item: Mapping[str, Any]) -> str:
    """One of the validator's errors in this project's words."""
    kind, context, given = item["type"], item.get("ctx", {}), item["input"]
    shown = repr(given) if isinstance(given, (str, int, float)) else "what is there"
    if kind == "extra_forbidden":
        return "there is no such field"
    if kind == "missing":
        return "it is missing"
    if kind in _BOUNDS:
        words = (
            kind.replace("_equal", " or equal").replace("_", " ").replace("than or equal", "than or equal to")
        )
        return f"{shown} is not {words} {context[_BOUNDS[kind]]}"
    if kind == "union_tag_invalid":
        known = str(context["expected_tags"]).replace("'", "")
        words = f"there is no {str(context['discriminator']).strip(chr(39))} {context['tag']!r}"
        return f"{words}; known are {known}" if known.count(",") < FEW_TAGS else words
    if kind == "union_tag_not_found":
        return f"the field {str(context['discriminator']).strip(chr(39))} is missing"
    if kind in ("literal_error", "enum"):
        return f"{shown} is not one of {context['expected'].replace(' or ', ', ')}"
    for begin, what in _BELONGS.items():
        if kind.startswith(begin):
            return f"{what} belongs here"
    return str(item["msg"]).removeprefix("Value error, ").replace("Input should be", "it is not")


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
