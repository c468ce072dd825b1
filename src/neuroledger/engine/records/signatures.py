"""Signatures of sets of records: a tree of hashes with one signature at its root, so that few checks cover many records.

A record has the hash of its payload. The list of a benchmark, ``results/records/BENCHMARK/SHA256.signed``, names each model
with this hash. A root, ``results/signatures/NAME.sig``, names each benchmark with the hash of its list, and ends with the
signature of these lines. Files are named by their content, so that signatures of two proposals do not conflict; the next
signature of the same key joins them. Earlier signatures of single records, ``MODEL.json.sig``, stay valid.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

from neuroledger.engine.records.evidence import (
    ALLOWED,
    NAMESPACE,
    Signable,
    key_of_text,
    keygen,
    message_of,
    signature_path,
    signer_of,
    signer_of_text,
    signers_of,
)
from neuroledger.engine.records.inputs import record_path
from neuroledger.errors import DataError, Finding, RequestError
from neuroledger.spec.document import json_object
from neuroledger.store.files import write_text

if TYPE_CHECKING:
    from neuroledger.engine.record import Record
    from neuroledger.store.git_trees import Tree

__all__ = [
    "LIST_PATH",
    "NAMESPACE_OF_SETS",
    "ROOT_PATH",
    "Root",
    "Signer",
    "hashes_in",
    "part_of_signed_set",
    "root_in",
    "sign",
    "signature_of",
    "signer_in",
    "signer_in_proposal",
    "single_signature",
]

NAMESPACE_OF_SETS: Final = "neuroledger-set"
ROOT_PATH: Final = re.compile(r"results/signatures/[0-9a-f]{16}\.sig", re.ASCII)
LIST_PATH: Final = re.compile(
    r"results/records/([^/]+)/([0-9a-f]{64})\.signed", re.ASCII
)
REVIEWED: Final = "review.signature"
LINES: Final = re.compile(r"(?:[0-9a-f]{64} (?!\.)[\w.+-]+\n)+", re.ASCII)
BEGIN: Final = "-----BEGIN SSH SIGNATURE-----\n"


class Root(NamedTuple):
    """The root of a set: its text, which is signed, its signature, and the hash of the list of each benchmark."""

    text: str
    signature: str
    lists: Mapping[str, str]


class Signer(NamedTuple):
    """Who signed a record: an allowed signer, or nobody; ``broken`` if what claims to sign it does not."""

    name: str = ""
    broken: bool = False


@lru_cache(maxsize=1 << 12)
def hashes_in(content: str) -> Mapping[str, str]:
    """Parse lines of hashes: name → SHA-256.

    Raises
    ------
    ValueError
        The content is something else, or not sorted, or has a name twice.
    """
    rows = [line.split(" ") for line in content.splitlines()]
    if LINES.fullmatch(content):
        names = [name for _, name in rows]
    else:
        names = []
    if not names or names != sorted(set(names)):
        raise ValueError("not a list of hashes, sorted by name")
    return {name: sha256 for sha256, name in rows}


def root_in(content: str) -> Root:
    """Parse the file of a root.

    Raises
    ------
    ValueError
        The content is something else.
    """
    text, begin, rest = content.partition(BEGIN)
    return Root(text, begin + rest, hashes_in(text))


def signer_in(
    root: Path,
    record: Signable,
    signers: Path | None = None,
    *,
    path: Path | None = None,
) -> Signer:
    """Return who signed a record, by the file of allowed signers, by default that of the repository.

    A signature of this record alone is read beside its file, which may be at another ``path``.

    Raises
    ------
    RequestError
        The file of allowed signers does not exist, or ssh-keygen is missing.
    """
    signers = signers or signers_of(root)
    if signers is None:
        return Signer()
    path = path or record_path(root, record.benchmark, record.model)
    single = signer_of(path, record, signers)
    if single:
        return Signer(single)
    allowed = signers.read_bytes()
    payload = record.signed_sha256
    claimed = signature_path(path).is_file()
    for each in _roots(root):
        stated = _hashes_of(root, each, record.benchmark).get(record.model)
        claimed = claimed or stated is not None
        if stated == payload:
            signer = signer_of_text(
                each.text.encode(), each.signature.encode(), allowed, NAMESPACE_OF_SETS
            )
            if signer:
                return Signer(signer)
    return Signer(broken=claimed)


def sign(root: Path, records: Iterable[Record], key: Path) -> Path | None:
    """Sign records together, with a private SSH key or the public key of one in an agent; return the path of the root.

    What the same key signed before is joined with them. Nothing is signed anew that this key has not signed, because an
    earlier root counts only if its signature is valid.

    Raises
    ------
    RequestError
        The key file does not exist, or ssh-keygen is missing or fails.
    """
    new = [(record.benchmark, record.model, record.signed_sha256) for record in records]
    if not new:
        return None
    if not key.is_file():
        raise RequestError(
            f"{key} is not a file; pass an SSH key, for example one created with `ssh-keygen -t ed25519`"
        )
    earlier = [path for path, each in _root_files(root) if _is_of(each, key)]
    lists = _joined(root, earlier, new)
    rows: dict[str, str] = {}
    for benchmark, hashes in lists.items():
        text = _lines(hashes)
        rows[benchmark] = hashlib.sha256(text.encode()).hexdigest()
        write_text(_list_path(root, benchmark, rows[benchmark]), text)
    text = _lines(rows)
    path = (
        root
        / "results"
        / "signatures"
        / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.sig"
    )
    if path not in earlier:
        write_text(path, text + signature_of(text, key, NAMESPACE_OF_SETS))
    # The new root covers everything, so that whatever is removed from here on was superseded.
    for old in earlier:
        if old != path:
            old.unlink()
    for benchmark, model, _ in new:
        signature_path(record_path(root, benchmark, model)).unlink(missing_ok=True)
    _remove_unused(root, lists)
    return path


def _roots(root: Path) -> Iterator[Root]:
    for _, each in _root_files(root):
        yield each


def _root_files(root: Path) -> Iterator[tuple[Path, Root]]:
    """Each root of the repository; another file in its folder signs nothing."""
    for path in sorted((root / "results" / "signatures").glob("*.sig")):
        try:
            yield path, root_in(path.read_bytes().decode("ascii"))
        except ValueError:
            continue


def _list_path(root: Path, benchmark: str, sha256: str) -> Path:
    return root / "results" / "records" / benchmark / f"{sha256}.signed"


def _hashes_of(root: Path, each: Root, benchmark: str) -> Mapping[str, str]:
    """Model → hash of its payload, as a root states for a benchmark; empty if it states nothing or the list is not there."""
    sha256 = each.lists.get(benchmark)
    if sha256 is None:
        return {}
    return _list(_list_path(root, benchmark, sha256), sha256)


@lru_cache(maxsize=1 << 12)
def _known(path: Path, sha256: str, modified: int, size: int) -> Mapping[str, str]:
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        return {}
    return hashes_in(content.decode("ascii"))


def _list(path: Path, sha256: str) -> Mapping[str, str]:
    """The list at a path, if its content has this hash; read once while the file stays as it is."""
    try:
        status = path.stat()
        return _known(path, sha256, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError):
        return {}


def _joined(
    root: Path, earlier: list[Path], new: list[tuple[str, str, str]]
) -> dict[str, dict[str, str]]:
    """Benchmark → model → hash, of new records and of what earlier roots cover.

    If two roots state different hashes of a record, the one of the record as it is counts.
    """
    lists: dict[str, dict[str, str]] = {}
    for path in earlier:
        each = root_in(path.read_bytes().decode("ascii"))
        for benchmark in each.lists:
            for model, sha256 in _hashes_of(root, each, benchmark).items():
                other = lists.setdefault(benchmark, {}).setdefault(model, sha256)
                if other != sha256 and _payload_of(root, benchmark, model) == sha256:
                    lists[benchmark][model] = sha256
    for benchmark, model, sha256 in new:
        lists.setdefault(benchmark, {})[model] = sha256
    return lists


def _payload_of(root: Path, benchmark: str, model: str) -> str:
    from neuroledger.engine.record import read_record

    try:
        return read_record(record_path(root, benchmark, model)).signed_sha256
    except DataError:
        return ""


def _lines(hashes: Mapping[str, str]) -> str:
    return "".join(f"{hashes[name]} {name}\n" for name in sorted(hashes))


def _is_of(each: Root, key: Path) -> bool:
    """Whether a root has a valid signature of this key."""
    shown = keygen("-l", "-f", str(key)).stdout.decode(errors="replace")
    own = re.search(r"SHA256:\S+", shown)
    signed = key_of_text(each.text.encode(), each.signature.encode(), NAMESPACE_OF_SETS)
    return own is not None and own.group() == signed


def signature_of(text: str, key: Path, namespace: str) -> str:
    """Return the signature of a text by a private SSH key, or the public key of one in an agent.

    Raises
    ------
    RequestError
        The key file does not exist, or ssh-keygen is missing or fails.
    """
    if not key.is_file():
        raise RequestError(
            f"{key} is not a file; pass an SSH key, for example one created with `ssh-keygen -t ed25519`"
        )
    with tempfile.TemporaryDirectory() as folder:
        message = Path(folder, "message")
        message.write_text(text, encoding="ascii")
        done = keygen("-Y", "sign", "-q", "-f", str(key), "-n", namespace, str(message))
        if done.returncode:
            raise RequestError(
                f"ssh-keygen could not sign: {done.stderr.decode(errors='replace').strip()}"
            )
        return message.with_name("message.sig").read_text(encoding="ascii")


def _remove_unused(root: Path, benchmarks: Iterable[str]) -> None:
    """Remove lists of benchmarks that no root names."""
    used = {
        (benchmark, sha256)
        for each in _roots(root)
        for benchmark, sha256 in each.lists.items()
    }
    for benchmark in benchmarks:
        for path in (root / "results" / "records" / benchmark).glob("*.signed"):
            if (benchmark, path.stem) not in used:
                path.unlink()


# Signatures in a proposal, judged by the allowed signers of the base


def single_signature(
    base: Tree, now: Tree, changed: Mapping[str, str], path: str, record: Record | None
) -> Iterator[Finding]:
    """Yield the findings on the changed signature of one record; ``record`` is the one beside it, if it can be read."""
    state = changed[path]
    if state != "removed":
        if record is None:
            text = None
        else:
            text = message_of(record)
        yield from _worth(base, path, state, text, _text_in(now, path), NAMESPACE)
    elif path.removesuffix(".sig") in changed:
        yield Finding(REVIEWED, "note", path, "removed: a signature, with its record")
    elif record is not None and _is_in_a_set(now, record):
        yield Finding(
            REVIEWED, "note", path, "removed: a signature, for that of a set of records"
        )
    else:
        words = "the signature was removed, but not its record"
        yield Finding("review.removed", "warning", path, words)


def part_of_signed_set(
    base: Tree, now: Tree, changed: Mapping[str, str], path: str
) -> Iterator[Finding]:
    """Yield the findings on the changed root of a set of signed records, or on one of its lists."""
    state = changed[path]
    is_root = ROOT_PATH.fullmatch(path) is not None
    if state == "removed":
        lost = _no_longer_signed(base, now, path) if is_root else ""
        if lost:
            words = f"the signature of records was removed, but not the records, such as {lost}"
            yield Finding("review.removed", "warning", path, words)
        elif not is_root and _is_named_list(now, path):
            words = "the list of the signed records of a benchmark was removed, but not the signature of the set"
            yield Finding("review.removed", "warning", path, words)
        else:
            yield Finding(
                REVIEWED, "note", path, "removed: part of a set of signed records"
            )
    elif not (_is_whole_root(now, path) if is_root else _is_named_list(now, path)):
        words = (
            "not a part of a signed set: its content, its name and the set do not agree"
        )
        yield Finding(
            REVIEWED, "error", path, words, "write it with `neuroledger sign`"
        )
    elif is_root:
        root = root_in(_text_in(now, path))
        yield from _worth(
            base, path, state, root.text.encode(), root.signature, NAMESPACE_OF_SETS
        )
    else:
        yield Finding(
            REVIEWED,
            "note",
            path,
            f"{state}: hashes of records, of a set of signed records",
        )


def signer_in_proposal(base: Tree, now: Tree, record: Record) -> str:
    """Return who signed a record in a proposal, by the allowed signers of the base; empty without a valid signature."""
    allowed = base.read(ALLOWED)
    if allowed is None:
        return ""
    single = _text_in(
        now, f"results/records/{record.benchmark}/{record.model}.json.sig"
    )
    if single:
        texts = [(message_of(record), single, NAMESPACE)]
    else:
        texts = []
    for root in _roots_in(now):
        if (
            _hashes_in_proposal(now, root, record.benchmark).get(record.model)
            == record.signed_sha256
        ):
            texts.append((root.text.encode(), root.signature, NAMESPACE_OF_SETS))
    with suppress(RequestError):  # without ssh-keygen, nobody is known to have signed
        for text, signature, namespace in texts:
            if signer := signer_of_text(text, signature.encode(), allowed, namespace):
                return signer
    return ""


def _worth(
    base: Tree,
    path: str,
    state: str,
    text: bytes | None,
    signature: str,
    namespace: str,
) -> Iterator[Finding]:
    """Yield what a signature is worth: one of another text is refused, one of an unknown key needs a person."""
    try:
        matches = (
            text is not None
            and key_of_text(text, signature.encode(), namespace) is not None
        )
        if text is None or not matches:
            words = "the signature is of another text: it was copied, or what it signs was edited"
            fix = "remove it, or sign again with `neuroledger sign`"
            yield Finding(REVIEWED, "error", path, f"{state}: {words}", fix)
            return
        allowed = base.read(ALLOWED)
        if allowed is None:
            words = "a signature; the base has no allowed signers, so that it counts nowhere yet"
            yield Finding(REVIEWED, "note", path, f"{state}: {words}")
        elif signer := signer_of_text(text, signature.encode(), allowed, namespace):
            yield Finding(REVIEWED, "note", path, f"{state}: the signature of {signer}")
        else:
            words = "the signature of a key that is not among the allowed signers of the base"
            yield Finding(
                REVIEWED,
                "warning",
                path,
                f"{state}: {words}",
                "a maintainer may add the key",
            )
    except RequestError as error:
        yield Finding(
            REVIEWED, "note", path, f"{state}: a signature; not checked: {error}"
        )


def _is_whole_root(now: Tree, path: str) -> bool:
    """Whether a root is named by its text, and the proposal has every list that it names."""
    try:
        root = root_in(_text_in(now, path))
    except ValueError:
        return False
    named = (
        hashlib.sha256(root.text.encode()).hexdigest()[:16] == PurePosixPath(path).stem
    )
    return named and all(
        _hashes_in_proposal(now, root, benchmark) for benchmark in root.lists
    )


def _is_named_list(now: Tree, path: str) -> bool:
    """Whether a root of the proposal names a list."""
    found = LIST_PATH.fullmatch(path)
    return found is not None and any(
        root.lists.get(found[1]) == found[2] for root in _roots_in(now)
    )


def _roots_in(now: Tree) -> Iterator[Root]:
    for path in filter(ROOT_PATH.fullmatch, now.entries):
        with suppress(ValueError):
            yield root_in(_text_in(now, path))


def _hashes_in_proposal(now: Tree, root: Root, benchmark: str) -> Mapping[str, str]:
    """Model → hash of its payload, as a root states for a benchmark; empty if its list is missing or another."""
    sha256 = root.lists.get(benchmark, "")
    content = _text_in(now, f"results/records/{benchmark}/{sha256}.signed")
    if hashlib.sha256(content.encode()).hexdigest() != sha256:
        return {}
    try:
        return hashes_in(content)
    except ValueError:
        return {}


def _is_in_a_set(now: Tree, record: Record) -> bool:
    """Whether a root of the proposal states the hash of a record."""
    return record.signed_sha256 in _signed_payloads(
        now, _roots_in(now), record.benchmark
    ).get(record.model, ())


def _no_longer_signed(base: Tree, now: Tree, path: str) -> str:
    """Return the first record that a removed root covers, and that stays without a root; empty if there is none."""
    try:
        removed = root_in(_text_in(base, path))
    except ValueError:
        return ""
    roots = list(_roots_in(now))
    for benchmark in removed.lists:
        signed = _signed_payloads(now, roots, benchmark)
        for model, sha256 in _hashes_in_proposal(base, removed, benchmark).items():
            record = f"results/records/{benchmark}/{model}.json"
            covered = sha256 in signed.get(model, ()) or f"{record}.sig" in now.entries
            # The signature of earlier numbers is worth nothing, and nothing is lost with it.
            if (
                not covered
                and _payload_in(now, record) == _payload_in(base, record) == sha256
            ):
                return record
    return ""


def _payload_in(tree: Tree, path: str) -> str:
    from neuroledger.engine.record import record_of

    try:
        return record_of(json_object(tree.read(path))).signed_sha256
    except ValueError:
        return ""


def _signed_payloads(
    now: Tree, roots: Iterable[Root], benchmark: str
) -> dict[str, set[str]]:
    """Return the hashes that roots of a proposal state for each model of a benchmark."""
    hashes: dict[str, set[str]] = {}
    for root in roots:
        for model, sha256 in _hashes_in_proposal(now, root, benchmark).items():
            hashes.setdefault(model, set()).add(sha256)
    return hashes


def _text_in(tree: Tree, path: str) -> str:
    return (tree.read(path) or b"").decode("utf-8", "replace")
