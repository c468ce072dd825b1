"""Files to data/: from a mirror folder, a public url or the DVC remote; atomic, resumable, hash-checked."""

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import urllib3
import yaml
from filelock import FileLock
from filelock import Timeout as Locked

from neuroledger.data.integrity import compare, remembering, sha256_of_file, verify_file
from neuroledger.data.s3 import address_of, credentials, region_of, signed
from neuroledger.errors import DataError, Finding, IntegrityError, UnavailableError
from neuroledger.spec.base import SourceFile, Stated
from neuroledger.spec.catalog import Catalog
from neuroledger.store.files import replacing

__all__ = ["Progress", "absent", "fetch_files", "fetch_stated", "folder_of", "mirror_folder"]

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there and the bytes in all."""

Pin = SourceFile | Stated
BLOCK = 1 << 18
MOST: Final = 1 << 38
"""Bytes of a file whose size nobody states, at most: 256 GiB."""
ATTEMPTS = 5
TIMEOUT_S = 60
"""Longest silence of a server."""
GRACE_S = 300
SLOWEST = 1 << 14
"""Bytes per second below which a whole transfer is given up, after ``GRACE_S``."""
LONGEST_WAIT_S = 60
REDIRECTS = 10
TRANSIENT: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
MOVED: Final = frozenset({301, 302, 303, 307, 308})
KINDS = {"datasets": Path("data"), "models": Path("data") / "models"}


def absent(catalog: Catalog, kind: str, id: str) -> Finding | None:
    """What of a data set's or model's files is not here, with the command that fetches it; None where all are here."""
    pins = catalog.dataset(id).files if kind == "datasets" else catalog.model(id).weights
    folder = folder_of(catalog.root, kind, id)
    away = [name for name in pins if not (folder / name).exists()]
    if not away:
        return None
    size = sum(pins[name].size for name in away) / 1e6
    where = f"{'data set' if kind == 'datasets' else 'model'} {id!r}"
    what = f"{len(away)} of {len(pins)} files are not here, {size:,.1f} MB"
    return Finding("data.missing", "error", where, what, f"run `neuroledger fetch {id}`")


def folder_of(root: Path, kind: str, id: str) -> Path:
    """Where the files of a data set or model lie."""
    return root / KINDS[kind] / id


def mirror_folder() -> Path | None:
    """The folder ``NEUROLEDGER_MIRROR`` points to, where pinned files are looked up by SHA-256 before any download.

    Raises
    ------
    DataError
        The variable names something that is not a folder.
    """
    value = os.environ.get("NEUROLEDGER_MIRROR")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(f"NEUROLEDGER_MIRROR is {value!r}, which is not a folder; unset it or correct it")
    return folder


def fetch_files(
    root: Path,
    folder: Path,
    files: Mapping[str, SourceFile],
    *,
    progress: Progress | None = None,
    force: bool = False,
) -> list[Path]:
    """Bring every pinned file to ``folder``; what is there and right is left alone.

    A file is written beside its place, checked, and renamed: what was there is replaced by the right bytes or
    not at all. Returns the paths that were brought.

    Raises
    ------
    IntegrityError
        A file is there with other bytes (and ``force`` is not set), or a source gave other bytes than pinned.
    UnavailableError
        No source could be reached; the message lists what was tried.
    """
    memory = root / ".cache"
    mirror = _Mirror(mirror_folder())
    brought: list[Path] = []
    with remembering(memory):
        for name, pin in sorted(files.items()):
            path = folder / name
            if _is_right(path, pin, memory, force):
                continue
            with _written(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                if not _from_mirror(mirror, path, pin, name, progress or _silent):
                    with _alone(root, pin, name):
                        if not _is_right(path, pin, memory, force):  # another process may have been faster
                            _bring(root, path, name, pin, progress or _silent, force, mirror)
            verify_file(path, pin, memory=memory)
            brought.append(path)
    return brought


def _is_right(path: Path, pin: SourceFile, memory: Path, force: bool) -> bool:
    """Whether the file is there with the pinned bytes; a file with others is replaced with ``force`` only."""
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
def _written(path: Path) -> Iterator[None]:
    """Within it, a disk that refuses is one error."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}); free space on that disk or correct its permissions"
        ) from error


@contextmanager
def _alone(root: Path, pin: SourceFile, name: str) -> Iterator[None]:
    """Within it, no other process fetches the same bytes."""
    locks = root / ".cache" / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(locks / f"{pin.sha256}.lock", timeout=_patience(pin)):
            yield
    except Locked:
        raise UnavailableError(
            f"{name} is being fetched by another process, which has not finished in {_patience(pin):.0f} s: end that "
            "process, then fetch again"
        ) from None


def _patience(pin: SourceFile) -> float:
    """Seconds that the whole transfer of a file may take."""
    return GRACE_S + pin.size / SLOWEST


def _silent(name: str, there: int, total: int) -> None:
    """Report nothing."""


def _bring(
    root: Path, path: Path, name: str, pin: SourceFile, progress: Progress, force: bool, mirror: _Mirror
) -> None:
    tried = [] if mirror.folder is None else [f"no file with these bytes in the mirror {mirror.folder}"]
    if pin.dvc:
        try:
            _pull(root, path, force)
        except UnavailableError:
            source = _imported_from(path)
            if source is None:
                raise
            from_source = pin.model_copy(update={"url": source, "dvc": False})
            _arrived(root, from_source, name, progress, tried).replace(path)
        return
    if pin.by_hand:
        looked = f" ({'; '.join(tried)})" if tried else ""
        raise UnavailableError(
            f"{name} has no address to be fetched from{looked}: get it as the data set's access_steps say, then set "
            "NEUROLEDGER_MIRROR to the folder that holds it and fetch again"
        )
    _arrived(root, pin, name, progress, tried).replace(path)


def _arrived(root: Path, pin: Pin, name: str, progress: Progress, tried: list[str]) -> Path:
    """The file from its url, in the folder of downloads, checked."""
    try:
        return _download(root, _https(pin), pin, name, progress)
    except _RefusedError as error:
        tried.append(str(error))
        fix = "connect to the network"
        if isinstance(error, _ForbiddenError):
            fix = (
                "its owner gives it to some: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to "
                "credentials that may read it"
            )
        raise UnavailableError(
            f"{name} could not be fetched ({'; '.join(tried)}); {fix}, or point NEUROLEDGER_MIRROR "
            "to a folder that holds the file"
        ) from error


def fetch_stated(
    root: Path, folder: Path, stated: Mapping[str, Stated], *, progress: Progress | None = None
) -> None:
    """Bring files of which only what their publisher states is known to ``folder``, each compared with that.

    In the mirror such a file is found by its own name, and taken if it is what is stated. One that is in ``folder`` already
    and right is kept, so that a fetch that was interrupted goes on.

    Raises
    ------
    IntegrityError
        A source gave other bytes than stated.
    UnavailableError
        A file has no address, or its source could not be reached or refused it.
    """
    mirror = mirror_folder()
    for name, said in stated.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with suppress(IntegrityError):
                compare(path, said)
                continue
        found = [] if mirror is None else sorted(mirror.rglob(Path(name).name))
        wrong = []
        for candidate in (one for one in found if one.is_file()):
            try:
                compare(candidate, said)
            except IntegrityError as error:
                wrong.append(str(error))
                continue
            with _written(path), replacing(path) as temporary:
                shutil.copyfile(candidate, temporary)
            break
        else:
            if said.url is None:
                reason = "; ".join(wrong) or "its publisher states no address"
                raise UnavailableError(
                    f"{name} cannot be fetched ({reason}): get it as the data set's access_steps say, and point "
                    "NEUROLEDGER_MIRROR to the folder that holds it"
                )
            with _written(path):
                _arrived(root, said, name, progress or _silent, wrong).replace(path)


def _from_mirror(mirror: _Mirror, path: Path, pin: SourceFile, name: str, progress: Progress) -> bool:
    found = mirror.find(pin) if mirror.folder is not None else None
    if found is not None:
        _install(found, path, pin, name, progress)
    return found is not None


class _Mirror:
    """The files below a folder, listed when the first one is looked for, and hashed once, when their size is asked for."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._unread: dict[int, list[Path]] | None = None
        self._read: dict[str, Path] = {}

    def find(self, pin: SourceFile) -> Path | None:
        """A file with the pinned bytes anywhere below the folder: candidates by size, the right one by SHA-256."""
        candidates = self._listed().get(pin.size, [])
        while candidates and pin.sha256 not in self._read:
            candidate = candidates.pop()
            self._read.setdefault(sha256_of_file(candidate), candidate)
        return self._read.get(pin.sha256)

    def _listed(self) -> dict[int, list[Path]]:
        if self._unread is None:
            self._unread = {}
            for path in self.folder.rglob("*") if self.folder is not None else ():
                if path.is_file():
                    self._unread.setdefault(path.stat().st_size, []).append(path)
        return self._unread


def _install(found: Path, path: Path, pin: SourceFile, name: str, progress: Progress) -> None:
    with replacing(path) as temporary:
        shutil.copyfile(found, temporary)
        verify_file(temporary, pin)
    progress(name, pin.size, pin.size)


# What DVC's last words leave unsaid.
DVC_HINTS: Final = {
    "missing-files": "; the remote does not hold it: who added the file runs `dvc push`, or, where another remote "
    "holds it, `dvc pull --remote NAME` brings it",
    "not a git repository": "; a clone made by git is needed, or `git init` in this folder",
}


# Options of a data set's own DVC repository that say where its files come from. All others (caches, links, other
# remotes' programs, plots, …) could change where DVC writes or what it runs.
CONFIG: Final[Mapping[str, frozenset[str]]] = {
    "core": frozenset({"remote", "analytics", "check_update", "autostage"}),
    "remote": frozenset({"url", "verify", "region", "endpointurl", "profile", "version_aware", "allow_anonymous_login",
                         "account_name", "projectname", "access_key_id", "secret_access_key", "session_token", "user",
                         "password", "port", "account_key", "sas_token", "jobs", "timeout",
                         "read_timeout", "connect_timeout"}),
}  # fmt: skip


def _pull(root: Path, path: Path, force: bool) -> None:
    pointer = path.with_name(path.name + ".dvc")
    if not pointer.is_file():
        raise DataError(
            f"{pointer} is missing: the file is said to be tracked by DVC; restore the pointer from git"
        )
    _require_plain(pointer, path.name)
    for folder in pointer.parents:
        if folder == root:
            break
        for config in sorted((folder / ".dvc").glob("config*")):
            _require_harmless(config)
    # From the pointer's own folder: a data set on a remote of its own is a DVC repository inside this one.
    held = _held_nearby(root, pointer)
    done = _dvc(pointer, "pull", *(["--force"] if force else []), pointer.name)
    if done.returncode != 0 or not path.exists():
        if "missing-files" in f"{done.stderr}{done.stdout}" and (held or _held_afar(pointer)):
            raise IntegrityError(
                f"the remote's object of {pointer.relative_to(root)} holds other bytes than its name says: it is damaged, "
                "or somebody tampered with it; who has the right file replaces it with `dvc push`"
            )
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        words = " ".join(lines[-2:]) or "no message"
        hint = next((hint for sign, hint in DVC_HINTS.items() if sign in words), "")
        raise UnavailableError(f"`dvc pull {pointer.relative_to(root)}` failed: {words}{hint}")


def _dvc(pointer: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "dvc", *words]
    return subprocess.run(command, cwd=pointer.parent, capture_output=True, text=True, check=False)


def _imported_from(path: Path) -> str | None:
    """The address from which `dvc import-url` took a file, if it did: DVC itself asks remotes alone."""
    pointer = yaml.safe_load(path.with_name(path.name + ".dvc").read_text(encoding="utf-8"))
    sources = pointer.get("deps", [])
    return str(sources[0]["path"]) if sources else None


def _held_nearby(root: Path, pointer: Path) -> bool:
    """Whether a remote that is a folder holds the pointer's object; DVC removes one of other bytes when it meets it."""
    config = next(
        (one / ".dvc" / "config" for one in pointer.parents if (one / ".dvc" / "config").is_file()), None
    )
    if config is None or not config.is_relative_to(root):
        return False
    read = configparser.ConfigParser(interpolation=None)
    try:
        read.read_string("\n".join(line.strip() for line in config.read_text(encoding="utf-8").splitlines()))
        name = read["core"]["remote"]
        place = config.parent / read[f"'remote \"{name}\"'"]["url"]
        md5 = str(yaml.safe_load(pointer.read_text(encoding="utf-8"))["outs"][0]["md5"])
    except (configparser.Error, yaml.YAMLError, LookupError, TypeError, UnicodeDecodeError):
        return False
    return (place / "files" / "md5" / md5[:2] / md5[2:]).is_file()


def _held_afar(pointer: Path) -> bool:
    """Whether the remote says that it holds the pointer's object, which could not be fetched."""
    done = _dvc(pointer, "status", "--cloud", "--json", pointer.name)
    return '"deleted"' in done.stdout  # from this machine, that is: the remote has it


def _require_plain(pointer: Path, name: str) -> None:
    """Return if a pointer names one file beside itself, and nothing that DVC would run or fetch from elsewhere."""
    try:
        said = yaml.safe_load(pointer.read_text(encoding="utf-8"))
        (out,) = said["outs"]
        plain = set(said) <= {"outs", "md5", "meta", "desc", "frozen", "deps"} and out["path"] == name
        # What `dvc import-url` writes: the one address that the file is from, which is not looked at again.
        sources = said.get("deps", [])
        plain &= not sources or (said.get("frozen") is True and len(sources) == 1)
        plain &= all(re.match(r"(https?|s3)://", one["path"]) is not None for one in sources)
    except (yaml.YAMLError, UnicodeDecodeError, LookupError, TypeError, ValueError):
        plain = False
    if not plain:
        raise DataError(
            f"{pointer} does not point to {name} beside it alone: restore it from git, or track the file anew with "
            f"`dvc add {name}`"
        )


def _require_harmless(path: Path) -> None:
    """Return if the configuration of a data set's own DVC repository only says where its files come from."""
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read_string("\n".join(line.strip() for line in path.read_text(encoding="utf-8").splitlines()))
    except (configparser.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a configuration of DVC ({error}): restore it from git") from error
    for section in config.sections():
        allowed = CONFIG.get(section.strip("'").partition(" ")[0], frozenset())
        for option in config[section]:
            if option not in allowed:
                raise DataError(
                    f"{path} sets {option!r} in [{section}], which could change where files are written: remove it; a data "
                    f"set's own configuration may only name its remote ({', '.join(sorted(CONFIG['remote'])[:5])}, …)"
                )


def _https(pin: Pin) -> str:
    return address_of(str(pin.url), pin.version_id, pin.endpoint)


class _RefusedError(Exception):
    """A server did not give the file; the message says which and why."""


class _ForbiddenError(_RefusedError):
    """Whoever asks has no right to it."""


class _TransientError(_RefusedError):
    """It may give it later."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


def _download(root: Path, url: str, pin: Pin, name: str, progress: Progress) -> Path:
    """Download to .cache/downloads, resuming where an earlier attempt stopped; checked before it is returned."""
    key = pin.sha256 or pin.sha1 or hashlib.sha256(url.encode()).hexdigest()
    partial = root / ".cache" / "downloads" / f"{key}.part"
    partial.parent.mkdir(parents=True, exist_ok=True)
    run = _Transfer(url, partial, pin, name, progress)
    failures = 0  # one after the other, without a byte in between
    while True:
        before = partial.stat().st_size if partial.exists() else 0
        try:
            _continue(run)
            break
        except _TransientError as error:
            moved = partial.exists() and partial.stat().st_size > before
            failures = 1 if moved else failures + 1
            wait = min(max(2.0**failures, error.wait), LONGEST_WAIT_S)
            if failures == ATTEMPTS or time.monotonic() + wait > run.deadline:
                raise
            time.sleep(wait)
    try:
        if isinstance(pin, SourceFile):
            verify_file(partial, pin)
        else:
            compare(partial, pin)
    except IntegrityError as error:
        partial.unlink()
        raise IntegrityError(f"{url} gave other bytes than {run.known} ({error}); nothing was kept") from None
    return partial


class _Transfer:
    """One file on its way: where it comes from and goes, and its size, which the server states if the spec does not."""

    def __init__(self, url: str, partial: Path, pin: Pin, name: str, progress: Progress) -> None:
        self.url, self.partial, self.pin, self.name, self.progress = url, partial, pin, name, progress
        self.known = "pinned" if isinstance(pin, SourceFile) else "stated"
        self.begun = time.monotonic()
        self.size = pin.size

    @property
    def deadline(self) -> float:
        return self.begun + GRACE_S + (MOST if self.size is None else self.size) / SLOWEST


def _continue(run: _Transfer) -> None:
    url, partial = run.url, run.partial
    there = partial.stat().st_size if partial.exists() else 0
    if run.size is not None and there > run.size:
        partial.unlink()
        there = 0
    if there == run.size and partial.exists():
        return
    try:
        answer, address = _answer(url, there, run.pin)
        try:
            there = _start(answer, address, there, run)
            with partial.open("ab" if there else "wb") as file:
                # As it arrives: a block that is filled drop by drop would keep us from looking at the clock.
                while block := answer.read1(BLOCK):
                    file.write(block)
                    there += len(block)
                    if there > (MOST if run.size is None else run.size):
                        raise IntegrityError(
                            f"{address} gives more than the {run.size or MOST:,} bytes that are {run.known}"
                        )
                    run.progress(run.name, there, run.size or there)
                    if time.monotonic() > run.deadline:
                        seconds = run.deadline - run.begun
                        raise _RefusedError(
                            f"{address}: {there:,} of {run.size or MOST:,} bytes in {seconds:.0f} s"
                        )
        finally:
            answer.close()
    except (urllib3.exceptions.LocationValueError, UnicodeError) as error:
        raise _RefusedError(f"{url}: not an address ({error})") from error
    except (
        urllib3.exceptions.HTTPError,
        http.client.HTTPException,
        ConnectionError,
        TimeoutError,
        ValueError,
    ) as error:
        raise _TransientError(f"{url}: {_reason(error)}") from error
    if run.size is not None and there < run.size:
        raise _TransientError(f"{url}: the connection ended after {there:,} of {run.size:,} bytes")


def _answer(url: str, there: int, pin: Pin) -> tuple[Any, str]:
    """The answer to a request for the bytes from ``there`` on, behind redirects, and the address that gave it.

    A request to S3 is signed where somebody has credentials, and repeated without if these have no right to the object.
    """
    secure, address = url.startswith("https://"), url
    plain = {"Accept-Encoding": "identity", **({"Range": f"bytes={there}-"} if there else {})}
    own, region = credentials(), pin.region
    for _ in range(REDIRECTS):
        parts = urlsplit(address)
        if parts.scheme not in ({"https"} if secure else {"https", "http"}) or not parts.hostname:
            raise _RefusedError(
                f"{url} leads to {address[:200]!r}, which is no {'https' if secure else 'web'} address"
            )
        proxy = urllib.request.getproxies().get(parts.scheme)
        through = proxy is not None and not urllib.request.proxy_bypass(parts.hostname)
        pool = urllib3.ProxyManager(str(proxy)) if through else urllib3.PoolManager()
        place = region_of(address, region)
        signs = own is not None and place is not None
        answer = pool.request(
            "GET",
            address,
            headers=signed(address, plain, own, place) if own is not None and place is not None else plain,
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
            timeout=urllib3.Timeout(TIMEOUT_S),
        )
        there_region = answer.headers.get("x-amz-bucket-region")
        if signs and there_region not in (None, place) and answer.status in {301, 307, 400, 403}:
            answer.close()
            region = there_region
            continue
        if signs and answer.status == 403:
            answer.close()
            own = None
            continue
        if answer.status not in MOVED:
            return answer, address
        answer.close()
        address = urljoin(address, answer.headers.get("Location", ""))
    raise _RefusedError(f"{url}: more than {REDIRECTS} redirects")


def _start(answer: Any, address: str, there: int, run: _Transfer) -> int:
    """Where in the file the answer begins: where we asked for, or at 0."""
    if answer.status == 416 or (answer.status == 206 and not _continues(answer, there, run.size)):
        run.partial.unlink(missing_ok=True)
        raise _TransientError(f"{address}: it does not continue at byte {there:,}")
    if answer.status in TRANSIENT:
        said = answer.headers.get("Retry-After", "")
        raise _TransientError(
            f"{address}: HTTP {answer.status}", float(said) if said.isdecimal() and len(said) < 6 else 0
        )
    if answer.status in {401, 403}:
        raise _ForbiddenError(f"{address}: HTTP {answer.status} {answer.reason or ''}".rstrip())
    if answer.status not in {200, 206}:
        raise _RefusedError(f"{address}: HTTP {answer.status} {answer.reason or ''}".rstrip())
    begin = there if answer.status == 206 else 0
    said = answer.headers.get("Content-Length", "")
    if said.isdecimal() and len(said) < 20:
        if run.size is None and int(said) + begin <= MOST:
            run.size = int(said) + begin
        elif int(said) > (MOST if run.size is None else run.size) - begin:
            raise IntegrityError(
                f"{address} gives more than the {run.size or MOST:,} bytes that are {run.known} ({begin + int(said):,})"
            )
    return begin


def _continues(answer: Any, there: int, size: int | None) -> bool:
    """Whether a partial answer is of the bytes asked for; a server that does not say is believed, and hashed."""
    said = answer.headers.get("Content-Range")
    if said is None:
        return True
    whole = ("/*",) if size is None else (f"/{size}", "/*")
    return said.startswith(f"bytes {there}-") and (size is None or said.endswith(whole))


def _reason(error: BaseException) -> str:
    """The innermost reason in one line: libraries wrap it several times."""
    inner = getattr(error, "reason", None) or error.__context__ or error
    said = " ".join(str(inner).split())
    return f"{type(inner).__name__}: {said[:200]}" if said else type(inner).__name__
