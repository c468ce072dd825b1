"""Who stands for the numbers of a record: its author, or an allowed signer, whose SSH signature ssh-keygen checks."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

from neuroledger.errors import RequestError

__all__ = [
    "ALLOWED",
    "NAMESPACE",
    "SELF_REPORTED",
    "Evidence",
    "Origin",
    "Signable",
    "key_of_text",
    "keygen",
    "message_of",
    "signature_path",
    "signer_of",
    "signer_of_text",
    "signers_of",
]

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


class Signable(Protocol):
    """A record, or its summary: what a signature names."""

    @property
    def benchmark(self) -> str:
        """Id of the benchmark."""
        ...

    @property
    def model(self) -> str:
        """Id of the model."""
        ...

    @property
    def signed_sha256(self) -> str:
        """The hash of the payload that a signature covers."""
        ...


NAMESPACE: Final = "neuroledger-record"
SECONDS: Final = 60
FOLDER: Final = "neuroledger-signature-"


def signature_path(record: Path) -> Path:
    """Return the path of a record's signature."""
    return record.with_name(f"{record.name}.sig")


def signer_of(path: Path, record: Signable, signers: Path) -> str | None:
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
        place = Path(folder, "signature")
        allowed = Path(folder, "signers")
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
    if found and not done.returncode:
        return found.group()
    return None


def signers_of(root: Path) -> Path | None:
    """Return the path of the repository's ``allowed_signers``, or None."""
    if (path := root / ALLOWED).is_file():
        return path
    return None


def message_of(record: Signable) -> bytes:
    """Return the text to sign: benchmark, model, and the hash of the payload computed from the content of the file."""
    return f"{record.benchmark}\n{record.model}\n{record.signed_sha256}\n".encode()


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
