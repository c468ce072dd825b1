"""The record of one job: request, inputs, status, scores, environment; written atomically, hashed, and signed by others."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from neuroledger.display import card, visible
from neuroledger.errors import DataError, Finding, MetricError, RequestError
from neuroledger.spec import registry
from neuroledger.spec.base import sha256_of
from neuroledger.spec.document import json_object
from neuroledger.stats.spread import unpack
from neuroledger.store.files import write_json, write_text

__all__ = [
    "Record", "environment", "read_all", "read_record", "record_of", "record_path", "relative", "sign",
    "signature_path", "signer_in", "signer_of", "signers_of", "write_record",
]  # fmt: skip

SCHEMA_VERSION: Final = 1
# What the inputs determine. The rest (where and how long) may differ between two runs of the same job.
PAYLOAD = (
    "schema_version", "id", "status", "model", "benchmark", "score", "scores", "controls", "request", "inputs", "error",
)  # fmt: skip

PACKAGES = (
    "neuroledger", "numpy", "scipy", "pandas", "xarray", "netCDF4", "scikit-learn", "torch", "pillow", "pydantic",
    "great-expectations", "dvc", "mne", "pyriemann",
)  # fmt: skip
# What a run writes itself: the records, and the lock in which DVC notes them.
WRITTEN = (":!results", ":!dvc.lock")
# Where files that git does not know yet determine scores.
SOURCES = ("specs", "src", "data", "params.yaml", "dvc.yaml")


# Whoever writes a record may write anything: what is shown or computed with is of the kinds below, and finite when squared.
Number = Annotated[float, Field(strict=True, ge=-1e100, le=1e100)]


class _Value(BaseModel):
    value: Number | None
    low: Number | None = None
    high: Number | None = None
    error: Number | None = None
    raw: Number | None = None
    scale: str = ""
    n: dict[str, Number] = {}

    @model_validator(mode="after")
    def _interval(self) -> Self:
        if (self.low is None) != (self.high is None) or (self.low or 0.0) > (self.high or 0.0):
            raise ValueError(f"from {self.low} to {self.high} is not an interval")
        return self


class _Ceiling(_Value):
    value: Number


class _Score(_Value):
    scale: str
    direction: Literal["higher", "lower"]
    ceiling: _Ceiling | None = None
    spread: dict[str, Any] | None = None
    notes: list[str] = []
    covers: str = ""


class _Control(BaseModel):
    role: Literal["positive", "negative"]
    value: Number | None
    bound: Number
    passed: StrictBool
    says: str

    @model_validator(mode="after")
    def _judged(self) -> Self:
        sign = 1 if self.role == "positive" else -1
        if self.passed and (self.value is None or sign * self.value < sign * self.bound):
            raise ValueError(f"{self.value} does not pass a {self.role} control with bound {self.bound}")
        return self


class _Asked(BaseModel):
    seed: Annotated[int, Field(strict=True, ge=0, le=1 << 64)] = 0
    limit: Annotated[int, Field(strict=True, gt=0)] | None = None
    device: Annotated[str, Field(max_length=100)] = "cpu"


class _Surroundings(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    commit: Annotated[str, Field(max_length=100)] | None = None
    dirty: bool | None = None
    packages: dict[str, str] = {}
    platform: str = ""
    processor: str = ""
    python: str = ""
    threads: str = ""


class Record(BaseModel):
    """What is kept of a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    """Identity: SHA-256 of everything that determines the outcome."""
    status: Literal["scored", "partial", "failed"]
    model: str
    benchmark: str
    score: dict[str, Any] | None
    """The headline score, or None: a failed job has no score."""
    scores: dict[str, dict[str, Any]]
    """Every metric's score by metric id, the headline among them."""
    controls: dict[str, dict[str, Any]]
    """Each control: role, value, bound, and whether it passed."""
    request: dict[str, Any]
    inputs: dict[str, Any]
    """Identities of specs, data, weights and components."""
    error: dict[str, str] | None
    environment: dict[str, Any]
    timing: dict[str, Annotated[float, Field(ge=0, le=1e12)]]
    payload_sha256: str = ""

    def payload(self) -> str:
        """SHA-256 of what the inputs determine."""
        return sha256_of({name: getattr(self, name) for name in PAYLOAD})

    @property
    def intact(self) -> bool:
        """Whether the record still has the content that it was written with."""
        return self.payload_sha256 == self.payload()

    def _repr_html_(self) -> str:
        score = self.score or {}
        rows: list[tuple[str, object]] = [("score", f"{score['value']:.4g}")] if score else []
        if score.get("low") is not None:
            rows += [
                ("95 % interval", f"{score['low']:.4g} – {score['high']:.4g}"),
                ("", score.get("covers", "")),
            ]
        if self.error:
            rows += [("error", self.error.get("message", ""))]
        rows += [(name, control["says"]) for name, control in self.controls.items()]
        rows += [("record", self.id[:12]), ("intact", "yes" if self.intact else "no: it was edited")]
        return card(f"{self.model} on {self.benchmark} ({self.status})", rows)


def record_path(root: Path, benchmark: str, model: str, *, scratch: bool = False) -> Path:
    """Where the record of a pair lies; limited runs go to a scratch folder that git ignores."""
    folder = "scratch" if scratch else "records"
    return root / "results" / folder / benchmark / f"{model}.json"


def write_record(path: Path, record: Record) -> bool:
    """Write the record; a file that already has the same payload is left byte for byte. True if it was written."""
    sealed = record.model_copy(update={"payload_sha256": record.payload()})
    if path.exists():
        try:
            old = read_record(path)
        except DataError:
            old = None
        if old is not None and old.intact and old.payload_sha256 == sealed.payload_sha256:
            return False
    return write_json(path, sealed.model_dump(mode="json"))


def record_of(plain: Any) -> Record:
    """The record of plain data.

    Raises
    ------
    ValueError
        A field is missing, unknown or of another type, or a number is not a finite one.
    """
    record = Record.model_validate(plain)
    for score in (record.score, *record.scores.values()):
        if score is not None:
            try:
                unpack(_Score.model_validate(score).spread)
            except MetricError as error:
                raise ValueError(str(error)) from error
    names = ("value", "low", "high", "scale", "direction", "ceiling")
    kept = [[one.get(name) for name in names] for one in record.scores.values()]
    if record.score is not None and [record.score.get(name) for name in names] not in kept:
        raise ValueError("its headline is none of its scores")
    for control in record.controls.values():
        _Control.model_validate(control)
    _Asked.model_validate(record.request)
    _Surroundings.model_validate(record.environment)
    if record.id != sha256_of(record.inputs):
        raise ValueError("its id is not that of its inputs")
    if not isinstance(record.inputs.get("benchmark", {}), dict):
        raise ValueError("the benchmark among its inputs is not an identity")
    if (record.score is None) != (record.status == "failed"):
        raise ValueError(f"status {record.status!r} does not fit its score")
    return record


def read_record(path: Path) -> Record:
    """Read one record.

    Raises
    ------
    DataError
        It is not a record.
    """
    try:
        return record_of(json_object(path.read_bytes()))
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise DataError(f"{path} is not a record ({first}); delete it and run again") from error


def read_all(folder: Path) -> Iterator[Record]:
    """Every record below ``folder``, sorted by path; a file that is not one is logged as a finding and left out."""
    for path in sorted(folder.rglob("*.json")):
        try:
            yield read_record(path)
        except DataError as error:
            finding = Finding("record.unreadable", "error", path.name, str(error))
            logging.getLogger("neuroledger").warning("%s", visible(str(finding)))


def environment(root: Path) -> dict[str, Any]:
    """Commit, whether what made the score differs from it, package versions, platform, processor and threads of BLAS.

    ``dirty`` is true where a tracked file is changed, or a spec, pin or source file is not in the commit; records, which a
    run writes itself, do not count. It is None where there is no git.
    """
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", *WRITTEN)
    fresh = _git(root, "ls-files", "--others", "--exclude-standard", "--", *SOURCES)
    return {
        "commit": commit,
        "dirty": None if changed is None else bool(changed or fresh),
        "packages": _versions(),
        "platform": f"{platform.system()}-{platform.machine()}",
        "processor": _processor(),
        "python": platform.python_version(),
        "threads": os.environ.get("OMP_NUM_THREADS") or str(os.cpu_count()),
    }


def relative(value: Any, root: Path) -> Any:
    """Plain data whose texts name files of the repository relative to it, and files of the user's below ``~``."""
    if isinstance(value, str):
        for folder, instead in ((root, ""), (root.resolve(), ""), (Path.home(), "~/")):
            if folder != folder.parent:
                value = value.replace(f"{folder}{os.sep}", instead)
        return value
    if isinstance(value, dict):
        return {key: relative(one, root) for key, one in value.items()}
    return [relative(one, root) for one in value] if isinstance(value, list | tuple) else value


@lru_cache
def _processor() -> str:
    """The kind of processor that BLAS computes for: other kinds add in another order."""
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    return " ".join(sorted({one["architecture"] for one in threadpool_info() if "architecture" in one}))


@lru_cache
def _versions() -> dict[str, str]:
    versions = {}
    for name in dict.fromkeys((*PACKAGES, *(family.distribution for family in registry.families()))):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


NAMESPACE: Final = "neuroledger-record"
SECONDS: Final = 60
ALLOWED: Final = "allowed_signers"


def signature_path(record: Path) -> Path:
    """Where the signature of a record is."""
    return record.with_name(f"{record.name}.sig")


def sign(path: Path, record: Record, key: Path) -> Path:
    """Sign what the inputs of the record at ``path`` determine, with a private SSH key (or a public one of an agent).

    Raises
    ------
    RequestError
        There is no such key, or ssh-keygen is missing or refuses.
    """
    if not key.is_file():
        raise RequestError(f"{key} is not a file; name an SSH key, such as one of `ssh-keygen -t ed25519`")
    with tempfile.TemporaryDirectory() as folder:
        message = Path(folder, "message")
        message.write_bytes(_message(record))
        done = _keygen("-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(message))
        if done.returncode:
            raise RequestError(f"ssh-keygen did not sign: {done.stderr.decode(errors='replace').strip()}")
        target = signature_path(path)
        write_text(target, message.with_name("message.sig").read_text(encoding="ascii"))
    return target


def signer_of(path: Path, record: Record, signers: Path) -> str | None:
    """Who signed the record at ``path`` as it is, of those in the file of allowed signers; None where nobody did.

    Raises
    ------
    RequestError
        There is no such file, or ssh-keygen is missing.
    """
    if not signers.is_file():
        raise RequestError(f"{signers} is not a file; name a file of allowed signers (`man ssh-keygen`)")
    signature = signature_path(path)
    if not signature.is_file():
        return None
    found = _keygen("-Y", "find-principals", "-s", str(signature), "-f", str(signers))
    for who in found.stdout.decode(errors="replace").splitlines() if not found.returncode else ():
        words = ("-Y", "verify", "-f", str(signers), "-I", who, "-n", NAMESPACE, "-s", str(signature))
        if not _keygen(*words, message=_message(record)).returncode:
            return who
    return None


def signers_of(root: Path) -> Path | None:
    """The repository's file of allowed signers, ``allowed_signers``; None where it has none."""
    return path if (path := root / ALLOWED).is_file() else None


def signer_in(root: Path, record: Record) -> str:
    """Who of the repository's allowed signers recomputed and signed a kept record; empty where nobody did."""
    path, signers = record_path(root, record.benchmark, record.model), signers_of(root)
    if signers is None or not signature_path(path).is_file():
        return ""
    return signer_of(path, record, signers) or ""


def _message(record: Record) -> bytes:
    """The pair and the hash of everything that its inputs determine, computed anew from the content."""
    return f"{record.benchmark}\n{record.model}\n{record.payload()}\n".encode()


def _keygen(*words: str, message: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise RequestError("ssh-keygen is not installed; it is part of OpenSSH")
    try:
        return subprocess.run(
            [program, *words], input=message, capture_output=True, check=False, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"ssh-keygen cannot be run: {error}") from error
