"""The parts that all kinds of spec share, and the identity of a spec: the SHA-256 of its canonical JSON."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from packaging.version import InvalidVersion, Version
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = [
    "Component",
    "Frozen",
    "ID_PATTERN",
    "Id",
    "Override",
    "PATTERNS",
    "Packaged",
    "Published",
    "Scale",
    "Sha256",
    "SourceFile",
    "Spec",
    "Stated",
    "canonical",
    "id_of",
    "is_file_name",
    "is_obeyed",
    "is_pattern",
    "sha256_of",
    "spec_sha256",
    "worded",
]

ID_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._+-]{0,119}[A-Za-z0-9_+-])?$"
URL_PATTERN = r"^(https|s3)://\S+$"
ENDPOINT_PATTERN = r"^(https://|http://(127\.0\.0\.1|localhost)(:\d+)?(/|$))\S*$"
REGION_PATTERN = r"^[a-z0-9-]{2,40}$"
PACKAGE_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$"
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Md5 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
Sha1 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
FILE_NAME = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,200}(/[A-Za-z0-9_][A-Za-z0-9._+-]{0,200})*"
)
# Names that a program obeys in any folder, whoever wrote the file: `dvc repro` runs stages, `dvc pull` writes where
# pointers say, Python imports modules and what is compiled for it, make and other tools read their settings, git takes a
# folder with HEAD for a repository, and Windows opens devices. Compared without regard to case.
OBEYED: Final = re.compile(
    r"(?:^|/)(?:dvc\.(?:yaml|lock)|[^/]*\.(?:dvc|py[cdiowxz]?|so(?:\.\d+)*|dll|dylib|egg|egg-link|ipynb|mk|com|exe|bat|cmd)"
    r"|(?:gnu)?makefile|justfile|rakefile|dockerfile|jenkinsfile|pipfile|cmakelists\.txt|mkdocs\.ya?ml|package\.json"
    r"|py(?:project|rightconfig)\.(?:toml|json)|(?:\.?ruff|uv|pixi)\.toml|(?:setup|tox|pytest|mypy)\.(?:cfg|ini)|head"
    r"|desktop\.ini|autorun\.inf|(?:con|prn|aux|nul|com\d|lpt\d)(?:\.[^/]*)?|[^/]*[^./]\.)(?:/|$)",
    re.IGNORECASE,
)


# Names in tables are asked for twice: as names of pins, and as keys of a spec.
@lru_cache(maxsize=1 << 16)
def is_obeyed(name: str) -> bool:
    """Whether a program or file system obeys a file or folder of this name, in any part of the path."""
    return OBEYED.search(name) is not None


def is_file_name(name: str) -> bool:
    """Whether a pinned file may have this name, which may include folders."""
    return FILE_NAME.fullmatch(name) is not None and not is_obeyed(name)


def _refuse_obeyed(name: str) -> str:
    if is_obeyed(name):
        words = "is a name that a program or file system obeys (a stage, a pointer, a module, settings), not data"
        raise ValueError(f"{name!r} {words}: rename the file")
    return name


# Names of downloads may contain `*`, `?` and characters that pinned files may not have.
DownloadName = Annotated[
    str,
    StringConstraints(pattern=r"^[^\s./\\][^\n\t\\]{0,400}$", strip_whitespace=True),
    AfterValidator(_refuse_obeyed),
]
FileName = Annotated[
    str,
    StringConstraints(pattern=rf"^{FILE_NAME.pattern}$"),
    AfterValidator(_refuse_obeyed),
]
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        ID_PATTERN: "an id: letters without accents, digits and . _ + -, beginning with a letter or digit, no final point",
        URL_PATTERN: "an address: https://… or s3://…, without spaces",
        ENDPOINT_PATTERN: "the address of an S3 service, https://…",
        REGION_PATTERN: "a region such as eu-west-1",
        PACKAGE_PATTERN: "the name of a package, as `pip install` takes it: letters, digits and . _ -",
        r"^[0-9a-f]{64}$": "a SHA-256: 64 of the characters 0-9 and a-f, in lower case, as `sha256sum` prints it",
        r"^[0-9a-f]{32}$": "an MD5: 32 of the characters 0-9 and a-f, in lower case",
        r"^[0-9a-f]{40}$": "a SHA-1: 40 of the characters 0-9 and a-f, in lower case",
        rf"^{FILE_NAME.pattern}$": "a file name: letters without accents, digits and . _ + -, folders divided by /",
        r"^[0-9a-f]{6,64}$": "the beginning of a SHA-256: at least 6 of the characters 0-9 and a-f, in lower case",
        r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$": "the import path of a class, `package.module.Class`",
    }
)
"""Descriptions of the expected text, by the regular expression that the text does not match."""

# The server and region of an `s3://` address: they only matter for the transport, so they are omitted if not given.
Endpoint = Annotated[
    Annotated[str, StringConstraints(pattern=ENDPOINT_PATTERN)] | None,
    Field(exclude_if=lambda value: value is None),
]
Region = Annotated[
    Annotated[str, StringConstraints(pattern=REGION_PATTERN)] | None,
    Field(exclude_if=lambda value: value is None),
]
Scale = Literal[
    "correlation",
    "reliability",
    "half_reliability",
    "explained_variance",
    "similarity",
    "consistency",
    "accuracy",
    "f1",
    "auroc",
    "fraction",
    "rate",
    "rank",
    "distance",
    "error",
    "score",
    "count",
    "bytes",
    "operations",
    "seconds",
    "per_second",
    "joules",
]
Direction = Literal["higher", "lower"]


class Frozen(BaseModel):
    """Plain, frozen data that refuses unknown fields."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False, strict=False
    )


class Component(BaseModel):
    """A component by name, with its parameters; the engine binds it to a registered function."""

    model_config = ConfigDict(
        extra="allow", frozen=True, defer_build=True, allow_inf_nan=False
    )

    name: Id

    @property
    def parameters(self) -> dict[str, Any]:
        """All fields except ``name``."""
        return dict(self.model_extra or {})


class Override(Component):
    """A metric or ceiling by id, with fields that replace those of its spec."""


def id_of(wanted: str | Override) -> str:
    """The id of a metric or ceiling that is given by id alone or with overrides."""
    if isinstance(wanted, Override):
        return wanted.name
    return wanted


def _require_version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError(
            f"{text!r} is not a version of a Python package, such as 0.1.0"
        ) from None
    return text


class Packaged(Frozen):
    """A file of an installed Python package, which is located without importing the package.

    ``file`` is its path as in the package's list of files, below the folder that packages are installed in.
    """

    name: Annotated[str, StringConstraints(pattern=PACKAGE_PATTERN)]
    version: Annotated[str, AfterValidator(_require_version)]
    file: FileName

    @property
    def requirement(self) -> str:
        """The requirement that installs exactly this version."""
        return f"{self.name}=={self.version}"


class SourceFile(Frozen):
    """A pinned file: its SHA-256 and size, and its source: DVC (a url then states the origin), a url, a package, or none."""

    sha256: Sha256
    size: Annotated[int, Field(ge=0)]
    package: Annotated[
        Packaged | None, Field(exclude_if=lambda value: value is None)
    ] = None
    url: Annotated[str, StringConstraints(pattern=URL_PATTERN)] | None = None
    dvc: bool = False
    sha1: Sha1 | None = None
    version_id: str | None = None
    endpoint: Endpoint = None
    region: Region = None

    @property
    def by_hand(self) -> bool:
        """Whether the file must be obtained by hand: it has no url, is in no package, and DVC does not track it."""
        return self.url is None and self.package is None and not self.dvc

    @model_validator(mode="after")
    def _one_source(self) -> SourceFile:
        if self.package is not None and (self.dvc or self.url is not None):
            raise ValueError(
                "a file of a `package` has no other source: remove `dvc` and `url`"
            )
        return self


class Stated(Frozen):
    """A publisher's statement about a file that is not pinned yet: address, size and checksums, all optional.

    It is not a pin, because MD5 and SHA-1 can be forged. `neuroledger pin` compares a download with it.
    """

    url: Annotated[str, StringConstraints(pattern=URL_PATTERN)] | None = None
    size: Annotated[int, Field(ge=0)] | None = None
    md5: Md5 | None = None
    sha1: Sha1 | None = None
    sha256: Sha256 | None = None
    sha256_begins: (
        Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{6,64}$")] | None
    ) = None
    """First digits of the SHA-256, if the publisher states no more, as in the name of a checkpoint."""
    version_id: str | None = None
    endpoint: Endpoint = None
    region: Region = None


def is_pattern(name: str) -> bool:
    """Whether a name below `downloads` is a pattern: `*` matches any text, including folders, `?` one character."""
    return "*" in name or "?" in name


class Published(Frozen):
    """A figure from a publication; it is shown as published, never as a score of this repository."""

    model: str
    value: float
    error: float | None = None
    metric: str | None = None
    seeds: Annotated[int, Field(ge=1)] | None = None
    source: str
    note: str | None = None


class Spec(Frozen):
    """Fields that all kinds of spec share."""

    id: Id
    version: Annotated[int, Field(ge=1)]
    title: Annotated[str, StringConstraints(min_length=3, max_length=200)]
    description: str | None = None
    cite: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


# The expected kind of value, by the beginning of pydantic's error type.
_EXPECTED = {
    "string_type": "text",
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a finite number",
    "bool": "true or false",
    "dict_type": "a mapping of fields",
    "model": "a mapping of fields",
    "tuple_type": "a list",
    "list_type": "a list",
    "set_type": "a list",
    "is_instance": "another kind of value",
}
FEW_TAGS = 12
_BOUNDS = {
    "greater_than": "gt",
    "greater_than_equal": "ge",
    "less_than": "lt",
    "less_than_equal": "le",
}


def worded(item: ErrorDetails) -> str:
    """The message for one of pydantic's errors."""
    kind = item["type"]
    context = item.get("ctx", {})
    value = item["input"]
    if isinstance(value, (str, int, float)):
        given_value = repr(value)
    else:
        given_value = "the value"
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _BOUNDS:
        words = (
            kind.replace("_equal", " or equal")
            .replace("_", " ")
            .replace("than or equal", "than or equal to")
        )
        return f"{given_value} is not {words} {context[_BOUNDS[kind]]}"
    if kind == "union_tag_invalid":
        known = str(context["expected_tags"]).replace("'", "")
        words = f"there is no {str(context['discriminator']).strip(chr(39))} {context['tag']!r}"
        if known.count(",") < FEW_TAGS:
            return f"{words}; known are {known}"
        return words
    if kind == "union_tag_not_found":
        return f"the field {str(context['discriminator']).strip(chr(39))} is missing"
    if kind in ("literal_error", "enum"):
        return (
            f"{given_value} is not one of {context['expected'].replace(' or ', ', ')}"
        )
    for prefix, expected in _EXPECTED.items():
        if kind.startswith(prefix):
            return f"expected {expected}"
    return (
        str(item["msg"])
        .removeprefix("Value error, ")
        .replace("Input should be", "it is not")
    )


_PLAIN = {"extra_forbidden": "there is no such field", "missing": "it is missing"}


# Fields that describe without affecting any number. The bytes of files are fixed by their pins, not by `downloads` or by
# where `lists` are written. The channel of `stimuli` decides which models can be scored, not their scores. `signatures` are
# shown only.
DESCRIPTIVE = frozenset(
    {
        "title",
        "description",
        "cite",
        "tags",
        "notes",
        "published",
        "parent",
        "superseded_by",
        "downloads",
        "lists",
        "chance_level",
        "stimuli",
        "made_from",
        "signatures",
    }
)


_ENCODER: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical(value: object) -> str:
    """JSON with sorted keys, without spaces and NaN, so that equal content gives equal text."""
    return _ENCODER.encode(value)


def sha256_of(value: object) -> str:
    """SHA-256 of the canonical JSON of plain data."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def spec_sha256(spec: BaseModel, *, without: frozenset[str] = DESCRIPTIVE) -> str:
    """Identity of a spec: SHA-256 of its validated fields with defaults, except descriptive fields."""
    data: Mapping[str, object] = spec.model_dump(mode="json", by_alias=True)
    return sha256_of({key: value for key, value in data.items() if key not in without})
