"""What determines the outcome of a job: the request, and the identities of specs, data, weights and components."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import ConfigDict, Field, JsonValue

from neuroledger.errors import DataError, RequestError
from neuroledger.models.devices import ON_DEMAND, Training, available
from neuroledger.spec.base import canonical
from neuroledger.stats.stored import Stored

__all__ = [
    "ComponentIdentity",
    "DatasetIdentity",
    "Inputs",
    "ModelIdentity",
    "Request",
    "SpecIdentity",
    "content_of",
    "named_device",
    "record_folder",
    "record_path",
]


Item = TypeVar("Item")
Listed = Annotated[tuple[Item, ...], Field(strict=False)]


class _Identity(Stored):
    """An identity is written as it was made, so that its hash stays: fields that were not given are left out.

    No type is converted: the plain data that an identity is read from are those that it is written as.
    """

    model_config = ConfigDict(strict=True)

    @cached_property
    def text(self) -> str:
        """The canonical JSON, by which it is hashed; that of a part that many identities share is made once."""
        return _joined(self._texts())

    def _texts(self) -> dict[str, str]:
        """Return the canonical JSON of each field that was given."""
        return {name: _text(getattr(self, name)) for name in self.model_fields_set}

    def _left_out(self) -> Collection[str]:
        return type(self).model_fields.keys() - self.model_fields_set

    def model_copy(
        self, *, update: Mapping[str, object] | None = None, deep: bool = False
    ) -> Self:
        """Return a copy with some fields changed, whose text is another one."""
        copied = super().model_copy(update=update, deep=deep)
        for name in ("text", "_shared_texts"):
            vars(copied).pop(name, None)
        return copied


def _joined(texts: Mapping[str, str]) -> str:
    """Return the canonical JSON of a mapping, from those of its values."""
    parts = [f'"{name}":{texts[name]}' for name in sorted(texts)]
    return f"{{{','.join(parts)}}}"


def _text(value: object) -> str:
    """Return the canonical JSON of a field."""
    if isinstance(value, _Identity):
        return value.text
    if isinstance(value, tuple):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, dict):
        parts = [f"{canonical(key)}:{_text(value[key])}" for key in sorted(value)]
        return f"{{{','.join(parts)}}}"
    return canonical(value)


class SpecIdentity(_Identity):
    """Identity of a spec."""

    id: str = ""
    """The id."""
    version: int | None = None
    """The version that the spec states."""
    spec_sha256: str = ""
    """SHA-256 of the spec with its defaults, without descriptive fields."""


class DatasetIdentity(SpecIdentity):
    """Identity of a data set."""

    files: dict[str, str | int] = Field({})
    """SHA-256 of each file; of more than a thousand files, their count and one sha256."""
    component: str = ""
    """Reader and its version, as name@version."""
    members: Listed[DatasetIdentity] = ()
    """The data sets that it consists of; left out of others."""


class ModelIdentity(SpecIdentity):
    """Identity of a model."""

    weights: dict[str, str] = Field({})
    """SHA-256 of each file of weights."""
    component: str = ""
    """Builder and its version, as name@version."""
    in_memory: str = ""
    """Type of a model in memory, which has no spec."""


class ComponentIdentity(_Identity):
    """Identity of a metric or ceiling."""

    id: str = ""
    """The id."""
    spec_sha256: str = ""
    """SHA-256 of the spec, with the changes of the benchmark."""
    parameters_sha256: str = ""
    """SHA-256 of the parameters, with the defaults of the function."""
    component: str = ""
    """Function and its version, as name@version."""


class Inputs(_Identity):
    """Everything that determines the outcome of a job."""

    schema_version: int = 1
    """Version of these fields."""
    benchmark: SpecIdentity = SpecIdentity()
    """The benchmark."""
    dataset: DatasetIdentity = DatasetIdentity()
    """The data set."""
    paradigm: str = ""
    """Paradigm and its version, as name@version."""
    metrics: Listed[ComponentIdentity] = ()
    """The metrics, the headline first."""
    ceiling: ComponentIdentity | None = None
    """The ceiling; null without one."""
    seed: int = 0
    """Seed of all random numbers."""
    limit: int | None = None
    """Number of stimuli of a limited run; null if all are used."""
    device: str = "cpu"
    """Kind of device."""
    preparation: dict[str, JsonValue] = Field({})
    """Parameters of the reader that the model's needs change; left out of models without needs."""
    controls: dict[str, ModelIdentity] = Field({})
    """Models on which every score of the benchmark depends: its controls and the dummy of its floor."""
    model: ModelIdentity = ModelIdentity()
    """The model; left out of what does not depend on it."""
    commitment: dict[str, Inputs] = Field({})
    """Inputs of each benchmark on which the model chooses its layers."""

    @property
    def sha256(self) -> str:
        """The identity of the job."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def sha256_with(self, changed: Mapping[str, object]) -> str:
        """Return the identity of a copy with some fields changed; the texts of the others are made once."""
        texts = self._shared_texts | {
            name: _text(value) for name, value in changed.items()
        }
        return hashlib.sha256(_joined(texts).encode()).hexdigest()

    @cached_property
    def _shared_texts(self) -> dict[str, str]:
        return self._texts()

    def changed_from(self, other: Inputs) -> list[str]:
        """Return the names of the fields that differ, sorted."""
        mine = self.model_dump(mode="json")
        others = other.model_dump(mode="json")
        return sorted(
            name for name in {*mine, *others} if mine.get(name) != others.get(name)
        )


@dataclass(frozen=True)
class Request:
    """Seed, limit and device of a run, which are part of the identity of a score, and how it trains, which is not.

    Decoders that were trained in another way than by default state it in the notes of their scores.
    """

    seed: int = 0
    limit: int | None = None
    device: str = "cpu"
    training: Training = ON_DEMAND

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise RequestError(
                f"seed {self.seed} is negative; choose a seed of 0 or more"
            )
        if self.training.workers < 0:
            raise RequestError(
                f"{self.training.workers} workers are fewer than none; choose 0 or more"
            )
        object.__setattr__(self, "device", named_device(self.device))


def named_device(name: str) -> str:
    """Return the fastest device of this machine for ``auto``, and any other valid name unchanged.

    Raises
    ------
    RequestError
        The name is not that of a device; whether a device can be used is checked later.
    """
    if re.fullmatch(r"auto|cpu|torch|mps|cuda(:\d+)?", name) is None:
        raise RequestError(
            f"unknown device {name!r}; use auto, cpu, cuda, cuda:1 or mps"
        )
    if name != "auto":
        return name
    try:
        return str(available(name))
    except ImportError:
        return "cpu"


def record_path(
    root: Path, benchmark: str, model: str, *, scratch: bool = False
) -> Path:
    """Return the path of a record; records of limited runs are in a scratch folder that git ignores."""
    return record_folder(root, benchmark, scratch) / f"{model}.json"


@lru_cache(maxsize=1024)
def record_folder(root: Path, benchmark: str, scratch: bool) -> Path:
    """Return the folder of the records of a benchmark."""
    return root / "results" / ("scratch" if scratch else "records") / benchmark


def content_of(path: Path) -> bytes:
    """Return the content of the file of a record.

    Raises
    ------
    DataError
        The file cannot be read, which says nothing about what it contains.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} cannot be read: {reason}") from error
