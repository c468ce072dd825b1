"""Fetch pinned files into data/ from a mirror folder, a public URL or the DVC remote; atomic, resumable, verified."""

from __future__ import annotations

import configparser
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

import urllib3
import yaml
from filelock import FileLock
from filelock import Timeout as Locked

from neuroledger.data.exchange import Exchange
from neuroledger.data.integrity import (
    compare,
    packaged_file,
    remembering,
    sha256_of_file,
    verify_file,
)
from neuroledger.data.s3 import address_of, credentials, region_of, signed
from neuroledger.errors import (
    DataError,
    IntegrityError,
    NeuroLedgerError,
    StorageError,
    UnavailableError,
    require_package,
)
from neuroledger.spec.base import SourceFile, Stated
from neuroledger.store.files import replacing

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

__all__ = [
    "check_response",
    "fetch_each",
    "fetch_files",
    "fetch_stated",
    "fetch_url",
    "ForbiddenError",
    "mirror_folder",
    "Progress",
    "reason_of",
    "RefusedError",
    "require_harmless_config",
    "resolve_url",
    "Transfer",
    "TransientError",
]

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes received so far, and the total bytes."""

Pin = SourceFile | Stated
BLOCK = 1 << 18
MOST: Final = 1 << 38
"""Size limit of a file without a stated size, in bytes: 256 GiB."""
ATTEMPTS = 5
TIMEOUT_S = 60
"""Seconds to wait for a server that sends nothing."""
GRACE_S = 300
SLOWEST = 1 << 14
"""Average bytes per second below which a transfer is cancelled, after ``GRACE_S`` seconds."""
LONGEST_WAIT_S = 60
REDIRECTS = 10
TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
MOVED: Final = frozenset({301, 302, 303, 307, 308})


def mirror_folder() -> Path | None:
    """The folder that ``NEUROLEDGER_MIRROR`` names, which is searched by SHA-256 before any download; None if unset.

    Raises
    ------
    StorageError
        The variable does not name a folder.
    """
    value = os.environ.get("NEUROLEDGER_MIRROR")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise StorageError(
            f"NEUROLEDGER_MIRROR is {value!r}, which is not a folder; unset it or correct it"
        )
    return folder


def fetch_files(
    root: Path,
    folder: Path,
    files: Mapping[str, SourceFile],
    *,
    progress: Progress | None = None,
    force: bool = False,
) -> list[Path]:
    """Fetch every pinned file into ``folder`` and return the paths that were fetched; verified files are left alone.

    Files of packages are verified where they are installed, and not copied. A file that cannot be fetched does not stop
    the others: when all have been tried, one error names every file that is missing.

    A file is written next to its final path, verified, and renamed, so that an existing file is replaced by the pinned
    bytes or not at all.

    Raises
    ------
    IntegrityError
        An existing file has other bytes (and ``force`` is not set), or a source returned other bytes than pinned.
    UnavailableError
        No source could be reached, and the message lists what was tried; or a file's package is not installed as
        pinned, and the message gives the command.
    """
    memory = root / ".cache"
    sources = _Sources(_Mirror(mirror_folder()))
    fetched: list[Path] = []

    def fetch_pinned(name: str) -> None:
        pin = files[name]
        if pin.package is not None:
            packaged_file(name, pin, memory=memory)
        elif _fetch_one(
            root, folder / name, name, pin, sources, progress or _silent, force
        ):
            fetched.append(folder / name)

    with remembering(memory):
        fetch_each(sorted(files), fetch_pinned)
    return fetched


def fetch_each(
    names: Sequence[str], fetch_one: Callable[[str], None], *, what: str = "files"
) -> None:
    """Fetch each of several files or data sets, also after one that cannot be fetched.

    Raises
    ------
    StorageError
        This disk cannot be written, which stops the others too.
    NeuroLedgerError
        Something could not be fetched; the message names everything that is missing, with its reason.
    """
    failed: dict[str, NeuroLedgerError] = {}
    for name in names:
        try:
            fetch_one(name)
        except NeuroLedgerError as error:
            if (
                type(error) is StorageError
            ):  # of this disk, which the other files need too
                raise
            failed[name] = error
    if failed:
        raise _one_error(failed, len(names), what)


def _fetch_one(
    root: Path,
    path: Path,
    name: str,
    pin: SourceFile,
    sources: _Sources,
    progress: Progress,
    force: bool,
) -> bool:
    """Fetch a file unless its pinned bytes are there; return whether it was fetched."""
    memory = root / ".cache"
    if _is_verified(path, pin, memory, force):
        return False
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _copy_from_mirror(sources.mirror, path, pin, name, progress):
            with _locked(root, pin, name):
                if not _is_verified(
                    path, pin, memory, force
                ):  # another process may have fetched it
                    _fetch(root, path, name, pin, progress, force, sources)
    verify_file(path, pin, memory=memory)
    return True


def _one_error(
    failed: Mapping[str, NeuroLedgerError], count: int, what: str
) -> NeuroLedgerError:
    """The only error as it is, or an error that lists several."""
    first, *more = failed.values()
    if not more:
        return first
    lines = [f"{len(failed)} of {count} {what} could not be fetched:"]
    lines += [f"{name}: {error}" for name, error in failed.items()]
    for kind in (IntegrityError, UnavailableError):
        if any(isinstance(error, kind) for error in failed.values()):
            return kind("\n".join(lines))
    return DataError("\n".join(lines))


def _is_verified(path: Path, pin: SourceFile, memory: Path, force: bool) -> bool:
    """Whether the file exists with the pinned bytes; one with other bytes is an error unless ``force`` is set."""
    if not path.exists():
        return False
    try:
        verify_file(path, pin, memory=memory)
    except IntegrityError as error:
        if force:
            return False
        raise IntegrityError(
            f"{error}; it was changed after it was fetched: move it away, or replace it with `fetch --force`"
        ) from None
    return True


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into one `StorageError` about this path."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}); free space on that disk or correct its permissions"
        ) from error


@contextmanager
def _locked(root: Path, pin: SourceFile, name: str) -> Iterator[None]:
    """Prevent other processes from fetching the same bytes at the same time."""
    locks = root / ".cache" / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    timeout = _time_limit(pin.size)
    try:
        with FileLock(locks / f"{pin.sha256}.lock", timeout=timeout):
            yield
    except Locked:
        raise UnavailableError(
            f"{name} is being fetched by another process, which has not finished in {timeout:.0f} s: end that "
            "process, then fetch again"
        ) from None


def _time_limit(size: int) -> float:
    """Seconds that the whole transfer of a file may take."""
    return GRACE_S + size / SLOWEST


def _silent(name: str, received: int, total: int) -> None:
    """Report nothing."""


def _fetch(
    root: Path,
    path: Path,
    name: str,
    pin: SourceFile,
    progress: Progress,
    force: bool,
    sources: _Sources,
) -> None:
    mirror = sources.mirror.folder
    if mirror is None:
        tried = []
    else:
        tried = [f"no file with these bytes in the mirror {mirror}"]
    if pin.dvc:
        try:
            _pull(root, path, force)
        except UnavailableError:
            source = _imported_from(path)
            if source is None:
                raise
            from_source = pin.model_copy(update={"url": source, "dvc": False})
            fetch_url(root, from_source, name, progress, tried, sources).replace(path)
        return
    if pin.by_hand:
        reason = f" ({'; '.join(tried)})" if tried else ""
        raise UnavailableError(
            f"{name} has no address{reason}: follow the data set's access_steps to get it, then set "
            "NEUROLEDGER_MIRROR to the folder that contains it and fetch again"
        )
    fetch_url(root, pin, name, progress, tried, sources).replace(path)


def fetch_url(
    root: Path,
    pin: Pin,
    name: str,
    progress: Progress,
    tried: list[str],
    sources: _Sources,
) -> Path:
    """Download the file from its URL into the download folder, and verify it."""
    url = resolve_url(pin)
    host = "/".join(
        url.split("/")[:3]
    )  # of any address, also of one that cannot be parsed
    try:
        return _download(
            root,
            url,
            pin,
            name,
            progress,
            attempts=1 if host in sources.silent else ATTEMPTS,
        )
    except TransientError as error:
        sources.silent.add(host)
        raise _unavailable(name, error, tried) from error
    except RefusedError as error:
        raise _unavailable(name, error, tried) from error


def _unavailable(name: str, error: RefusedError, tried: list[str]) -> UnavailableError:
    """The error of a file that no source returned: what was tried, and what to do."""
    tried.append(str(error))
    fix = "connect to the network"
    if isinstance(error, ForbiddenError):
        fix = (
            "access to it is restricted: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to "
            "credentials that may read it"
        )
    return UnavailableError(
        f"{name} could not be fetched ({'; '.join(tried)}); {fix}, or point NEUROLEDGER_MIRROR "
        "to a folder that contains the file"
    )


def fetch_stated(
    root: Path,
    folder: Path,
    stated: Mapping[str, Stated],
    *,
    progress: Progress | None = None,
) -> None:
    """Fetch files that are not pinned yet into ``folder``, and compare each with what its publisher states.

    In the mirror such a file is looked up by name, in any folder, and used if it matches the statement. A file in
    ``folder`` that matches already is kept, so that an interrupted fetch continues. A file that cannot be fetched does
    not stop the others: when all have been tried, one error names every file that is missing.

    Raises
    ------
    IntegrityError
        A source returned other bytes than stated.
    UnavailableError
        A file has no address, or its source could not be reached or refused it.
    """
    sources = _Sources(_Mirror(mirror_folder()))

    def fetch_unpinned(name: str) -> None:
        path = folder / name
        statement = stated[name]
        with _disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not _matches(path, statement):
                _fetch_unpinned(root, path, name, stated, progress or _silent, sources)

    fetch_each(list(stated), fetch_unpinned)


def _matches(path: Path, statement: Stated) -> bool:
    """Whether the file exists, as its publisher states it."""
    if not path.exists():
        return False
    try:
        compare(path, statement)
    except IntegrityError:
        return False
    return True


def _fetch_unpinned(
    root: Path,
    path: Path,
    name: str,
    stated: Mapping[str, Stated],
    progress: Progress,
    sources: _Sources,
) -> None:
    """Copy a file that is not pinned yet from the mirror, or download it."""
    statement = stated[name]
    mirror = sources.mirror.folder
    differences = []
    for candidate in [] if mirror is None else _called(mirror, name, stated):
        try:
            compare(candidate, statement)
        except IntegrityError as error:
            differences.append(str(error))
            continue
        with replacing(path) as temporary:
            shutil.copyfile(candidate, temporary)
        return
    if statement.url is None:
        reason = "; ".join(differences) or "its publisher states no address"
        raise UnavailableError(
            f"{name} cannot be fetched ({reason}): follow the data set's access_steps to get it, and point "
            "NEUROLEDGER_MIRROR to the folder that contains it"
        )
    fetch_url(root, statement, name, progress, differences, sources).replace(path)


def _called(mirror: Path, name: str, names: Iterable[str]) -> list[Path]:
    """The files in the mirror that may be this one: first those with its whole name; none with the name of another."""
    found = []
    for path in filter(Path.is_file, mirror.rglob(escape(Path(name).name))):
        whole = max(
            (other for other in names if path.as_posix().endswith(f"/{other}")),
            key=len,
            default="",
        )
        if whole in ("", name):
            found.append((whole == "", len(path.parts), path))
    return [path for _, _, path in sorted(found)]


class _Mirror:
    """The files below a folder: listed at the first search, hashed when a file of their size is searched."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._by_sha256: dict[str, Path] = {}

    @cached_property
    def _unhashed_by_size(self) -> dict[int, list[Path]]:
        paths: dict[int, list[Path]] = {}
        for path in self.folder.rglob("*") if self.folder is not None else ():
            if path.is_file():
                paths.setdefault(path.stat().st_size, []).append(path)
        return paths

    def find(self, pin: SourceFile) -> Path | None:
        """A file with the pinned bytes anywhere below the folder, or None: candidates by size, confirmed by SHA-256."""
        candidates = self._unhashed_by_size.get(pin.size, [])
        while candidates and pin.sha256 not in self._by_sha256:
            candidate = candidates.pop()
            self._by_sha256.setdefault(sha256_of_file(candidate), candidate)
        return self._by_sha256.get(pin.sha256)


class _Sources:
    """Where the files of a set are searched: the mirror, and hosts, of which some did not answer."""

    def __init__(self, mirror: _Mirror) -> None:
        self.mirror = mirror
        self.silent: set[str] = set()
        """Hosts that failed for a file after every attempt; they are asked once for each further file."""


def _copy_from_mirror(
    mirror: _Mirror, path: Path, pin: SourceFile, name: str, progress: Progress
) -> bool:
    """Copy the pinned file from the mirror; returns whether the mirror has it."""
    source = mirror.find(pin)
    if source is None:
        return False
    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
        verify_file(temporary, pin)
    progress(name, pin.size, pin.size)
    return True


# Advice that DVC's own messages do not give.
DVC_HINTS: Final = {
    "missing-files": "; the remote does not have it: the person who added the file must run `dvc push`; if another "
    "remote has it, run `dvc pull --remote NAME`",
    "not a git repository": "; make a clone with git, or run `git init` in this folder",
}


# Options of a data set's own DVC repository that only name its source. All others (caches, links, other remotes'
# programs, plots, …) could change where DVC writes or what it runs.
CONFIG: Final[Mapping[str, frozenset[str]]] = {
    "core": frozenset({"remote", "analytics", "check_update", "autostage"}),
    "remote": frozenset(
        {
            "url",
            "verify",
            "region",
            "endpointurl",
            "profile",
            "version_aware",
            "allow_anonymous_login",
            "account_name",
            "projectname",
            "access_key_id",
            "secret_access_key",
            "session_token",
            "user",
            "password",
            "port",
            "account_key",
            "sas_token",
            "jobs",
            "timeout",
            "read_timeout",
            "connect_timeout",
        }
    ),
}


def _pull(root: Path, path: Path, force: bool) -> None:
    pointer = path.with_name(path.name + ".dvc")
    if not pointer.is_file():
        raise DataError(
            f"{pointer} is missing, although the spec says that DVC tracks the file; restore the pointer from git"
        )
    _require_plain_pointer(pointer, path.name)
    _require_harmless_configs(root, pointer)
    in_local_remote = _is_in_local_remote(root, pointer)
    # In the pointer's own folder: a data set with its own remote is a DVC repository inside this one.
    process = _run_dvc(pointer, "pull", *(["--force"] if force else []), pointer.name)
    if process.returncode == 0 and path.exists():
        return
    shown = pointer.relative_to(root)
    if "missing-files" in f"{process.stderr}{process.stdout}" and (
        in_local_remote or _is_in_cloud_remote(pointer)
    ):
        raise IntegrityError(
            f"the remote's object of {shown} has other bytes than its name states: it is damaged "
            "or was tampered with; somebody who has the right file must replace it with `dvc push`"
        )
    message = _last_lines(process.stderr or process.stdout)
    raise UnavailableError(f"`dvc pull {shown}` failed: {message}")


def _require_harmless_configs(root: Path, pointer: Path) -> None:
    """Check the configurations of DVC repositories between the pointer's folder and the root."""
    for folder in pointer.parents:
        if folder == root:
            return
        for config in sorted((folder / ".dvc").glob("config*")):
            require_harmless_config(config)


def _last_lines(output: str) -> str:
    """The end of DVC's output, with advice if there is some."""
    lines = [line for line in output.splitlines() if line.strip()]
    message = " ".join(lines[-2:]) or "no message"
    hint = next((hint for sign, hint in DVC_HINTS.items() if sign in message), "")
    return message + hint


def _run_dvc(pointer: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    require_package("dvc")
    command = [sys.executable, "-P", "-m", "dvc", *arguments]
    return subprocess.run(
        command, cwd=pointer.parent, capture_output=True, text=True, check=False
    )


def _imported_from(path: Path) -> str | None:
    """The source address that `dvc import-url` wrote, or None; DVC itself only asks its remotes."""
    pointer = yaml.safe_load(
        path.with_name(path.name + ".dvc").read_text(encoding="utf-8")
    )
    sources = pointer.get("deps", [])
    if sources:
        return str(sources[0]["path"])
    return None


def _is_in_local_remote(root: Path, pointer: Path) -> bool:
    """Whether a remote that is a folder has the pointer's object; to be asked before DVC, which deletes damaged objects."""
    configs = (folder / ".dvc" / "config" for folder in pointer.parents)
    path = next((config for config in configs if config.is_file()), None)
    if path is None or not path.is_relative_to(root):
        return False
    try:
        config = _read_dvc_config(path)
        name = config["core"]["remote"]
        remote = path.parent / config[f"'remote \"{name}\"'"]["url"]
        md5 = str(yaml.safe_load(pointer.read_text(encoding="utf-8"))["outs"][0]["md5"])
    except (
        configparser.Error,
        yaml.YAMLError,
        LookupError,
        TypeError,
        UnicodeDecodeError,
    ):
        return False
    return (remote / "files" / "md5" / md5[:2] / md5[2:]).is_file()


def _is_in_cloud_remote(pointer: Path) -> bool:
    """Whether the remote reports that it has the pointer's object, which could not be fetched."""
    process = _run_dvc(pointer, "status", "--cloud", "--json", pointer.name)
    return '"deleted"' in process.stdout  # deleted locally, present in the remote


def _read_dvc_config(path: Path) -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None)
    config.read_string(
        "\n".join(
            line.strip() for line in path.read_text(encoding="utf-8").splitlines()
        )
    )
    return config


def _require_plain_pointer(pointer: Path, name: str) -> None:
    """Refuse a pointer unless it names one file in its own folder, and nothing that DVC would run or fetch elsewhere."""
    try:
        content = yaml.safe_load(pointer.read_text(encoding="utf-8"))
        (out,) = content["outs"]
        plain = (
            set(content) <= {"outs", "md5", "meta", "desc", "frozen", "deps"}
            and out["path"] == name
        )
        # `dvc import-url` writes one source address, and freezes the stage so that DVC does not check it again.
        sources = content.get("deps", [])
        plain &= not sources or (content.get("frozen") is True and len(sources) == 1)
        plain &= all(
            re.match(r"(https?|s3)://", source["path"]) is not None
            for source in sources
        )
    except (yaml.YAMLError, UnicodeDecodeError, LookupError, TypeError, ValueError):
        plain = False
    if not plain:
        raise DataError(
            f"{pointer} does not point to {name} in its folder alone: restore it from git, or track the file again with "
            f"`dvc add {name}`"
        )


def require_harmless_config(path: Path) -> None:
    """Refuse a configuration of a data set's own DVC repository that does more than name the source of its files."""
    try:
        config = _read_dvc_config(path)
    except (configparser.Error, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a DVC configuration ({error}): restore it from git"
        ) from error
    for section in config.sections():
        allowed = CONFIG.get(section.strip("'").partition(" ")[0], frozenset())
        for option in config[section]:
            if option not in allowed:
                raise DataError(
                    f"{path} sets {option!r} in [{section}], which could change where files are written: remove it; a data "
                    f"set's own configuration may only name its remote ({', '.join(sorted(CONFIG['remote'])[:5])}, …)"
                )


def resolve_url(pin: Pin) -> str:
    """Return the address of a pinned file at its version."""
    return address_of(str(pin.url), pin.version_id, pin.endpoint)


class RefusedError(Exception):
    """A server did not return the file; the message gives its address and the reason."""


class ForbiddenError(RefusedError):
    """The request is not authorised."""


class TransientError(RefusedError):
    """The server may return the file later, after ``wait`` seconds."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


def _download(
    root: Path,
    url: str,
    pin: Pin,
    name: str,
    progress: Progress,
    *,
    attempts: int = ATTEMPTS,
) -> Path:
    """Download to .cache/downloads, resume an earlier attempt, and verify the file before returning its path."""
    key = pin.sha256 or pin.sha1 or hashlib.sha256(url.encode()).hexdigest()
    partial = root / ".cache" / "downloads" / f"{key}.part"
    partial.parent.mkdir(parents=True, exist_ok=True)
    transfer = Transfer(url, partial, pin, name, progress)
    failures = 0  # consecutive attempts that received nothing
    while True:
        before = transfer.received
        try:
            _continue(transfer)
            break
        except TransientError as error:
            failures = 1 if transfer.received > before else failures + 1
            wait = min(max(2.0**failures, error.wait), LONGEST_WAIT_S)
            if failures >= attempts or time.monotonic() + wait > transfer.deadline:
                raise
            time.sleep(wait)
    try:
        if isinstance(pin, SourceFile):
            verify_file(partial, pin)
        else:
            compare(partial, pin)
    except IntegrityError as error:
        partial.unlink()
        raise IntegrityError(
            f"{url} returned other bytes than {transfer.known} ({error}); the download was deleted"
        ) from None
    return partial


class Transfer:
    """One download: its source, its target, and its size, which the server states if the spec does not."""

    def __init__(
        self, url: str, partial: Path, pin: Pin, name: str, progress: Progress
    ) -> None:
        self.url = url
        self.partial = partial
        self.pin = pin
        self.name = name
        self.progress = progress
        self.known = "pinned" if isinstance(pin, SourceFile) else "stated"
        self.started = time.monotonic()
        self.size = pin.size

    @property
    def received(self) -> int:
        """Number of bytes that are here."""
        if self.partial.exists():
            return self.partial.stat().st_size
        return 0

    @property
    def limit(self) -> int:
        """Number of bytes at which the download is stopped."""
        return MOST if self.size is None else self.size

    @property
    def deadline(self) -> float:
        """Time of the monotonic clock at which the download is stopped."""
        return self.started + _time_limit(self.limit)


def _continue(transfer: Transfer) -> None:
    """Request the remaining bytes and append them to the partial file."""
    url = transfer.url
    received = _usable(transfer)
    if received == transfer.size and transfer.partial.exists():
        return
    # Until the headers have arrived, the size may be unknown; no server needs longer for them.
    with Exchange(min(transfer.deadline, time.monotonic() + GRACE_S)) as exchange:
        try:
            response, address = _request(url, received, transfer.pin, exchange)
            try:
                received = check_response(response, address, received, transfer)
                exchange.lasts(transfer.deadline)
                _receive(response, address, transfer, received)
            finally:
                response.close()
        except (urllib3.exceptions.LocationValueError, UnicodeError) as error:
            raise RefusedError(f"{url}: not an address ({error})") from error
        except (
            urllib3.exceptions.HTTPError,
            http.client.HTTPException,
            ConnectionError,
            TimeoutError,
            ValueError,
        ) as error:
            if not exchange.expired:
                raise TransientError(f"{url}: {reason_of(error)}") from error
        received = transfer.received
        if exchange.expired and received != transfer.size:
            seconds = time.monotonic() - transfer.started
            raise RefusedError(
                f"{url}: {received:,} of {transfer.limit:,} bytes in {seconds:.0f} s"
            )
    if transfer.size is not None and received < transfer.size:
        raise TransientError(
            f"{url}: the connection ended after {received:,} of {transfer.size:,} bytes"
        )


def _usable(transfer: Transfer) -> int:
    """The number of bytes in the partial file, which is deleted if it is too large."""
    received = transfer.received
    if transfer.size is not None and received > transfer.size:
        transfer.partial.unlink()
        return 0
    return received


def _receive(
    response: BaseHTTPResponse, address: str, transfer: Transfer, received: int
) -> None:
    """Append the body of a response to the partial file, of which the first ``received`` bytes are kept."""
    with transfer.partial.open("ab" if received else "wb") as file:
        # `read1` returns what has arrived, so that the progress is shown as it is.
        while block := response.read1(BLOCK):
            file.write(block)
            received += len(block)
            if received > transfer.limit:
                raise IntegrityError(
                    f"{address} sends more than the {transfer.limit:,} bytes that are {transfer.known}"
                )
            transfer.progress(transfer.name, received, transfer.size or received)


def _request(
    url: str, start: int, pin: Pin, exchange: Exchange
) -> tuple[BaseHTTPResponse, str]:
    """Request the bytes from ``start`` on, follow redirects, and return the response and its address.

    A request to S3 is signed if there are credentials, and repeated unsigned if these may not read the object.
    """
    address = url
    headers = _headers(start)
    own = credentials()
    stated_region = pin.region
    for _ in range(REDIRECTS):
        _require_web_address(address, url)
        region = region_of(address, stated_region)
        sent = signed(address, headers, own, region) if own and region else headers
        response = exchange.pool(_proxy_for(address)).request(
            "GET",
            address,
            headers=sent,
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
            timeout=urllib3.Timeout(TIMEOUT_S),
        )
        is_signed = sent is not headers
        bucket_region = response.headers.get("x-amz-bucket-region")
        is_elsewhere = bucket_region not in (None, region)
        if is_signed and is_elsewhere and response.status in {301, 307, 400, 403}:
            stated_region = bucket_region
        elif is_signed and response.status == 403:
            own = None
        elif response.status in MOVED:
            address = urljoin(address, response.headers.get("Location", ""))
        else:
            return response, address
        response.close()
    raise RefusedError(f"{url}: more than {REDIRECTS} redirects")


def _headers(start: int) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    return headers


def _require_web_address(address: str, url: str) -> None:
    """Refuse a redirection of ``url`` from https to http, or to another kind of address."""
    secure = url.startswith("https://")
    parts = urlsplit(address)
    schemes = {"https"} if secure else {"https", "http"}
    if parts.scheme not in schemes or not parts.hostname:
        raise RefusedError(
            f"{url} redirects to {address[:200]!r}, which is not {'an https' if secure else 'a web'} address"
        )


def _proxy_for(address: str) -> str | None:
    parts = urlsplit(address)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy is None or urllib.request.proxy_bypass(str(parts.hostname)):
        return None
    return proxy


def check_response(
    response: BaseHTTPResponse, address: str, start: int, transfer: Transfer
) -> int:
    """Check status and size of a response; returns the position of its first byte in the file: ``start``, or 0."""
    if response.status == 416 or (
        response.status == 206 and not _continues(response, start, transfer.size)
    ):
        transfer.partial.unlink(missing_ok=True)
        raise TransientError(
            f"{address}: the response does not continue at byte {start:,}"
        )
    _require_success(response, address)
    first = start if response.status == 206 else 0
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and len(length) < 20:
        total = first + int(length)
        if total > transfer.limit:
            raise IntegrityError(
                f"{address} sends more than the {transfer.limit:,} bytes that are {transfer.known} ({total:,})"
            )
        if transfer.size is None:
            transfer.size = total
    return first


def _require_success(response: BaseHTTPResponse, address: str) -> None:
    if response.status in TRANSIENT:
        wait = response.headers.get("Retry-After", "")
        raise TransientError(
            f"{address}: HTTP {response.status}",
            float(wait) if wait.isdecimal() and len(wait) < 6 else 0,
        )
    if response.status not in {200, 206}:
        error = ForbiddenError if response.status in {401, 403} else RefusedError
        raise error(
            f"{address}: HTTP {response.status} {response.reason or ''}".rstrip()
        )


def _continues(response: BaseHTTPResponse, start: int, size: int | None) -> bool:
    """Whether a partial response has the requested range; if the server does not state it, the hash decides later."""
    content_range = response.headers.get("Content-Range")
    if content_range is None:
        return True
    totals = ("/*",) if size is None else (f"/{size}", "/*")
    return content_range.startswith(f"bytes {start}-") and (
        size is None or content_range.endswith(totals)
    )


def reason_of(error: BaseException) -> str:
    """The innermost reason of an error in one line; libraries wrap it several times."""
    inner = getattr(error, "reason", None) or error.__context__ or error
    message = " ".join(str(inner).split())
    if message:
        return f"{type(inner).__name__}: {message[:200]}"
    return type(inner).__name__
