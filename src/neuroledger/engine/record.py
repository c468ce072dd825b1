"""Records of jobs: request, inputs, status, scores and environment; written atomically, hashed and optionally signed."""

from __future__ import annotations

import logging
import os
import platform
import re
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
from neuroledger.engine.control import Control, control_of, in_words
from neuroledger.errors import DataError, Finding, MetricError, RequestError
from neuroledger.spec import registry
from neuroledger.spec.base import sha256_of
from neuroledger.spec.document import json_object
from neuroledger.stats.score import Score
from neuroledger.stats.stored_score import (
    judged_in,
    limits_in,
    score_of,
    uncertainty_in,
    version_in,
)
from neuroledger.store.files import write_json
from neuroledger.store.git import git

__all__ = [
    "Record",
    "environment",
    "key_of_text",
    "keygen",
    "message_of",
    "read_all",
    "read_record",
    "record_of",
    "record_path",
    "relative",
    "signature_path",
    "signer_of",
    "signer_of_text",
    "signers_of",
    "write_record",
]

SCHEMA_VERSION: Final = 1
# The fields that the inputs determine; environment and timing may differ between runs of the same job.
PAYLOAD = (
    "schema_version",
    "id",
    "status",
    "model",
    "benchmark",
    "score",
    "scores",
    "controls",
    "request",
    "inputs",
    "error",
)

PACKAGES = (
    "neuroledger",
    "numpy",
    "scipy",
    "pandas",
    "xarray",
    "netCDF4",
    "scikit-learn",
    "torch",
    "pillow",
    "pydantic",
    "great-expectations",
    "dvc",
    "mne",
    "pyriemann",
)
# Paths that a run writes itself: the records, and the DVC lock that lists them.
WRITTEN = (":!results", ":!dvc.lock")
# Paths where untracked files can change scores.
SOURCES = ("specs", "src", "data", "params.yaml", "dvc.yaml")


# Records are untrusted: numbers must be valid, and small enough that their squares are finite.
Number = Annotated[float, Field(strict=True, ge=-1e100, le=1e100)]


class _Interval(BaseModel):
    value: Number | None
    low: Number | None = None
    high: Number | None = None

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        if (self.low is None) != (self.high is None) or (self.low or 0.0) > (
            self.high or 0.0
        ):
            raise ValueError(f"{self.low} to {self.high} is not an interval")
        return self


class _Value(_Interval):
    error: Number | None = None
    raw: Number | None = None
    scale: str = ""
    n: dict[str, Number] = {}
    uncertainty: dict[str, Any] | None = None


class _Ceiling(_Value):
    value: Number


class _Score(_Value):
    scale: str
    direction: Literal["higher", "lower"]
    ceiling: _Ceiling | None = None
    spread: dict[str, Any] | None = None
    notes: list[str] = []
    covers: str = ""


class _Control(_Interval):
    """A control as it is stored; its verdict must follow from its numbers."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["positive", "negative"]
    bound: Number
    at_most: Number | None = None
    verdict: Literal["passed", "failed", "undecided"]
    shuffles: Annotated[int, Field(strict=True, ge=0)] = 0
    reason: str = ""


class _EarlierControl(BaseModel):
    """A control of a record from before controls had intervals: a verdict by value, and a text."""

    model_config = ConfigDict(extra="forbid")

    role: Literal["positive", "negative"]
    value: Number | None
    bound: Number
    passed: StrictBool
    says: str


class _Request(BaseModel):
    seed: Annotated[int, Field(strict=True, ge=0, le=1 << 64)] = 0
    limit: Annotated[int, Field(strict=True, gt=0)] | None = None
    device: Annotated[str, Field(max_length=100)] = "cpu"


class _Environment(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    commit: Annotated[str, Field(max_length=100)] | None = None
    dirty: bool | None = None
    packages: dict[str, str] = {}
    platform: str = ""
    processor: str = ""
    python: str = ""
    threads: str = ""


class Record(BaseModel):
    """The stored outcome of a job."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    """Identity of the job: the SHA-256 of ``inputs``."""
    status: Literal["scored", "partial", "failed"]
    model: str
    benchmark: str
    score: dict[str, Any] | None
    """The headline score, or None: a failed job has no score."""
    scores: dict[str, dict[str, Any]]
    """Every metric's score by metric id, the headline among them."""
    controls: dict[str, dict[str, Any]]
    """Each control as it is stored; :attr:`judged` has them as values, of earlier records too."""
    request: dict[str, Any]
    inputs: dict[str, Any]
    """Identities of specs, data, weights and components."""
    error: dict[str, str] | None
    environment: dict[str, Any]
    timing: dict[str, Annotated[float, Field(ge=0, le=1e12)]]
    payload_sha256: str = ""

    def payload(self) -> str:
        """Return the SHA-256 of the fields that the inputs determine."""
        return sha256_of({name: getattr(self, name) for name in PAYLOAD})

    @property
    def intact(self) -> bool:
        """Whether the content matches the stored hash."""
        return self.payload_sha256 == self.payload()

    @property
    def judged(self) -> dict[str, Control]:
        """The controls by name."""
        return {name: control_of(control) for name, control in self.controls.items()}

    def as_score(self) -> Score:
        """Return the headline score, without samples; its items belong to the population of the data set."""
        dataset = self.inputs.get("dataset")
        population = str(dataset.get("id", "")) if isinstance(dataset, dict) else ""
        return score_of(
            self.score or {}, population, f"{self.model} on {self.benchmark}"
        )

    def _repr_html_(self) -> str:
        score = self.score or {}
        rows: list[tuple[str, object]] = (
            [("score", f"{score['value']:.4g}")] if score else []
        )
        if score.get("low") is not None:
            rows += [
                ("95 % interval", f"{score['low']:.4g} – {score['high']:.4g}"),
                ("", score.get("covers", "")),
            ]
        if self.error:
            rows += [("error", self.error.get("message", ""))]
        rows += [
            (name, f"{control.verdict}: {in_words(control)}")
            for name, control in self.judged.items()
        ]
        rows += [
            ("record", self.id[:12]),
            ("intact", "yes" if self.intact else "no: it was edited"),
        ]
        return card(f"{self.model} on {self.benchmark} ({self.status})", rows)


def record_path(
    root: Path, benchmark: str, model: str, *, scratch: bool = False
) -> Path:
    """Return the path of a record; records of limited runs are in a scratch folder that git ignores."""
    folder = "scratch" if scratch else "records"
    return root / "results" / folder / benchmark / f"{model}.json"


def write_record(path: Path, record: Record) -> bool:
    """Write the record unless the file already has the same payload; return whether it was written."""
    sealed = record.model_copy(update={"payload_sha256": record.payload()})
    if path.exists():
        try:
            old = read_record(path)
        except DataError:
            old = None
        if (
            old is not None
            and old.intact
            and old.payload_sha256 == sealed.payload_sha256
        ):
            return False
    return write_json(path, sealed.model_dump(mode="json"))


def record_of(plain: Any) -> Record:
    """Parse a record from plain data.

    Raises
    ------
    ValueError
        A field is missing, unknown or of another type, a number is not finite, or fields contradict each other.
    """
    record = Record.model_validate(plain)
    for score in (record.score, *record.scores.values()):
        if score is not None:
            try:
                _Score.model_validate(score)
                for part in filter(None, (score, score.get("ceiling"))):
                    uncertainty_in(part, "")
                    limits_in(part)
                    version_in(part)
                    judged_in(part)
            except MetricError as error:
                raise ValueError(str(error)) from error
    names = ("value", "low", "high", "scale", "direction", "ceiling")
    scores = [[score.get(name) for name in names] for score in record.scores.values()]
    if (
        record.score is not None
        and [record.score.get(name) for name in names] not in scores
    ):
        raise ValueError("its headline is not among its scores")
    for control in record.controls.values():
        _require_control(control)
    _Request.model_validate(record.request)
    _Environment.model_validate(record.environment)
    if record.id != sha256_of(record.inputs):
        raise ValueError("its id is not the hash of its inputs")
    if not isinstance(record.inputs.get("benchmark", {}), dict):
        raise ValueError("the benchmark in its inputs is not a mapping")
    if (record.score is None) != (record.status == "failed"):
        raise ValueError(f"status {record.status!r} contradicts its score")
    return record


def _require_control(plain: dict[str, Any]) -> None:
    """Return if a stored control is valid and its verdict follows from its numbers."""
    is_earlier = "verdict" not in plain
    (_EarlierControl if is_earlier else _Control).model_validate(plain)
    control = control_of(plain)
    if not control.follows and not (is_earlier and control.verdict == "failed"):
        raise ValueError(
            f"{control.verdict} does not follow for a {control.role} control: {in_words(control)}"
        )


def read_record(path: Path) -> Record:
    """Read a record.

    Raises
    ------
    DataError
        The file is unreadable or is not a record.
    """
    try:
        return record_of(json_object(path.read_bytes()))
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise DataError(
            f"{path} is not a record ({first}); delete it and run again"
        ) from error


def read_all(folder: Path) -> Iterator[Record]:
    """Yield every record below ``folder``, sorted by path; invalid files are logged as findings and left out."""
    for path in sorted(folder.rglob("*.json")):
        try:
            yield read_record(path)
        except DataError as error:
            finding = Finding("record.unreadable", "error", path.name, str(error))
            logging.getLogger("neuroledger").warning("%s", visible(str(finding)))


def environment(root: Path) -> dict[str, Any]:
    """Return commit, ``dirty``, package versions, platform, processor and number of BLAS threads.

    ``dirty`` is true if a tracked file is changed or a spec, pin or source file is untracked, except for records, which a
    run writes itself. It is None without git.
    """
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(
        root, "status", "--porcelain", "--untracked-files=no", "--", ".", *WRITTEN
    )
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
    """Return plain data with paths in texts made relative to the repository or to the home folder (``~``)."""
    if isinstance(value, str):
        for folder, instead in ((root, ""), (root.resolve(), ""), (Path.home(), "~/")):
            if folder != folder.parent:
                value = value.replace(f"{folder}{os.sep}", instead)
        return value
    if isinstance(value, dict):
        return {key: relative(item, root) for key, item in value.items()}
    return (
        [relative(item, root) for item in value]
        if isinstance(value, list | tuple)
        else value
    )


@lru_cache
def _processor() -> str:
    """Return the architecture for which BLAS computes, and the model, by which libraries of networks choose instructions."""
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    kinds = sorted(
        {pool["architecture"] for pool in threadpool_info() if "architecture" in pool}
    )
    return " ".join([*kinds, _model_of_processor()]).strip()


def _model_of_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return vendor, family and model, such as ``GenuineIntel 6.106``, or what the system calls its processor."""
    try:
        lines = [
            line.partition(":")
            for line in cpuinfo.read_text(encoding="utf-8").splitlines()
        ]
    except (OSError, ValueError):
        return platform.processor()
    first = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    parts = (
        first.get("vendor_id", ""),
        ".".join(first[n] for n in ("cpu family", "model") if n in first),
    )
    return " ".join(filter(None, parts)) or platform.processor()


@lru_cache
def _versions() -> dict[str, str]:
    versions = {}
    for name in dict.fromkeys(
        (*PACKAGES, *(family.distribution for family in registry.families()))
    ):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _git(root: Path, *words: str) -> str | None:
    """Return what git says of the working tree, or None if it cannot."""
    try:
        return (
            git(root, *words, filters=True, seconds=20)
            .decode("utf-8", "replace")
            .strip()
        )
    except RequestError:
        return None


NAMESPACE: Final = "neuroledger-record"
SECONDS: Final = 60
ALLOWED: Final = "allowed_signers"
FOLDER: Final = "neuroledger-signature-"


def signature_path(record: Path) -> Path:
    """Return the path of a record's signature."""
    return record.with_name(f"{record.name}.sig")


def signer_of(path: Path, record: Record, signers: Path) -> str | None:
    """Return the allowed signer whose signature of the record at ``path`` is valid, or None.

    Raises
    ------
    RequestError
        The file of allowed signers does not exist, or ssh-keygen is missing.
    """
    if not signers.is_file():
        raise RequestError(
            f"{signers} is not a file; pass a file of allowed signers (see `man ssh-keygen`)"
        )
    signature = signature_path(path)
    if not signature.is_file():
        return None
    return signer_of_text(
        message_of(record), signature.read_bytes(), signers.read_bytes(), NAMESPACE
    )


@lru_cache(maxsize=1 << 14)
def signer_of_text(
    text: bytes, signature: bytes, signers: bytes, namespace: str
) -> str | None:
    """Return the allowed signer, of the content of a file of allowed signers, whose signature of a text is valid, or None.

    The answer is remembered by content.
    """
    with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
        place, allowed = Path(folder, "signature"), Path(folder, "signers")
        place.write_bytes(signature)
        allowed.write_bytes(signers)
        search = keygen("-Y", "find-principals", "-s", str(place), "-f", str(allowed))
        for signer in (
            search.stdout.decode(errors="replace").splitlines()
            if not search.returncode
            else ()
        ):
            words = (
                "-Y",
                "verify",
                "-f",
                str(allowed),
                "-I",
                signer,
                "-n",
                namespace,
                "-s",
                str(place),
            )
            if not keygen(*words, message=text).returncode:
                return signer
    return None


@lru_cache(maxsize=1 << 14)
def key_of_text(text: bytes, signature: bytes, namespace: str) -> str | None:
    """Return the fingerprint of the key, of anybody, whose signature of a text is valid, or None; remembered by content."""
    with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
        place = Path(folder, "signature")
        place.write_bytes(signature)
        done = keygen(
            "-Y", "check-novalidate", "-n", namespace, "-s", str(place), message=text
        )
    found = re.search(r"SHA256:\S+", done.stdout.decode(errors="replace"))
    return found.group() if found and not done.returncode else None


def signers_of(root: Path) -> Path | None:
    """Return the path of the repository's ``allowed_signers``, or None."""
    return path if (path := root / ALLOWED).is_file() else None


def message_of(record: Record) -> bytes:
    """Return the text to sign: benchmark, model, and the hash of the payload computed from the content."""
    return f"{record.benchmark}\n{record.model}\n{record.payload()}\n".encode()


def keygen(*words: str, message: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run ``ssh-keygen``."""
    program = shutil.which("ssh-keygen")
    if program is None:
        raise RequestError("ssh-keygen is not installed; it is part of OpenSSH")
    try:
        return subprocess.run(
            [program, *words],
            input=message,
            capture_output=True,
            check=False,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"ssh-keygen cannot be run: {error}") from error
