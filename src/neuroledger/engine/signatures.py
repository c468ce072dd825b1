"""Signatures of records, made and verified by ``ssh-keygen`` as git does; a signature says who recomputed the numbers."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from neuroledger.engine.record import Record, record_path
from neuroledger.errors import RequestError
from neuroledger.store.files import write_text

__all__ = ["sign", "signature_path", "signer_in", "signer_of", "signers_of"]

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
