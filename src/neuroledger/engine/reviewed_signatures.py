"""Review of the signatures in a proposal, by the allowed signers of the base: a copied or broken one is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from neuroledger.engine.checked import SELF_REPORTED, Evidence, Origin
from neuroledger.engine.git_trees import Tree
from neuroledger.engine.record import ALLOWED, NAMESPACE, Record, key_of_text, message_of, signer_of_text
from neuroledger.engine.signatures import LIST_PATH, NAMESPACE_OF_SETS, ROOT_PATH, Root, hashes_in, root_in
from neuroledger.errors import Finding, RequestError

__all__ = ["evidence_in", "part_of_signed_set", "single_signature"]

CODE = "review.signature"


def single_signature(
    base: Tree, now: Tree, changed: Mapping[str, str], path: str, record: Record | None
) -> Iterator[Finding]:
    """Yield the findings on the changed signature of one record; ``record`` is the one beside it, if it can be read."""
    state = changed[path]
    if state != "removed":
        text = None if record is None else message_of(record)
        yield from _signature(base, path, state, text, _text(now, path), NAMESPACE)
    elif path.removesuffix(".sig") in changed:
        yield Finding(CODE, "note", path, "removed: a signature, with its record")
    elif _joined(changed):
        yield Finding(CODE, "note", path, "removed: a signature, for that of a set of records")
    else:
        words = "the signature was removed, but not its record"
        yield Finding("review.removed", "warning", path, words)


def part_of_signed_set(base: Tree, now: Tree, changed: Mapping[str, str], path: str) -> Iterator[Finding]:
    """Yield the findings on the changed root of a set of signed records, or on one of its lists."""
    state, is_root = changed[path], ROOT_PATH.fullmatch(path) is not None
    if state == "removed" and is_root and not _joined(changed):
        yield Finding("review.removed", "warning", path, "the signature of a set of records was removed")
    elif state == "removed":
        yield Finding(CODE, "note", path, "removed: part of a set of signed records")
    elif not (_is_whole_root(now, path) if is_root else _is_named_list(now, path)):
        words = "not a part of a signed set: its content, its name and the set do not agree"
        yield Finding(CODE, "error", path, words, "write it with `neuroledger sign`")
    elif is_root:
        root = root_in(_text(now, path))
        yield from _signature(base, path, state, root.text.encode(), root.signature, NAMESPACE_OF_SETS)
    else:
        yield Finding(CODE, "note", path, f"{state}: hashes of records, of a set of signed records")


def evidence_in(base: Tree, now: Tree, record: Record) -> Evidence:
    """Return who stands for the numbers of a record in a proposal, by the allowed signers of the base."""
    allowed = base.read(ALLOWED)
    if allowed is None:
        return SELF_REPORTED
    single = _text(now, f"results/records/{record.benchmark}/{record.model}.json.sig")
    texts = [(message_of(record), single, NAMESPACE)] if single else []
    for root in _roots(now):
        if _hashes(now, root, record.benchmark).get(record.model) == record.payload():
            texts.append((root.text.encode(), root.signature, NAMESPACE_OF_SETS))
    with suppress(RequestError):  # without ssh-keygen, nobody is known to have signed
        for text, signature, namespace in texts:
            if signer := signer_of_text(text, signature.encode(), allowed, namespace):
                return Evidence(Origin.SIGNED, signer)
    return SELF_REPORTED


def _signature(
    base: Tree, path: str, state: str, text: bytes | None, signature: str, namespace: str
) -> Iterator[Finding]:
    """Yield what a signature is worth: one of another text is refused, one of an unknown key needs a person."""
    try:
        matches = text is not None and key_of_text(text, signature.encode(), namespace) is not None
        if text is None or not matches:
            words = "the signature is of another text: it was copied, or what it signs was edited"
            fix = "remove it, or sign again with `neuroledger sign`"
            yield Finding(CODE, "error", path, f"{state}: {words}", fix)
            return
        allowed = base.read(ALLOWED)
        if allowed is None:
            words = "a signature; the base has no allowed signers, so that it counts nowhere yet"
            yield Finding(CODE, "note", path, f"{state}: {words}")
        elif signer := signer_of_text(text, signature.encode(), allowed, namespace):
            yield Finding(CODE, "note", path, f"{state}: the signature of {signer}")
        else:
            words = "the signature of a key that is not among the allowed signers of the base"
            yield Finding(CODE, "warning", path, f"{state}: {words}", "a maintainer may add the key")
    except RequestError as error:
        yield Finding(CODE, "note", path, f"{state}: a signature; not checked: {error}")


def _is_whole_root(now: Tree, path: str) -> bool:
    """Whether a root is named by its text, and the proposal has every list that it names."""
    try:
        root = root_in(_text(now, path))
    except ValueError:
        return False
    named = hashlib.sha256(root.text.encode()).hexdigest()[:16] == PurePosixPath(path).stem
    return named and all(_hashes(now, root, benchmark) for benchmark in root.lists)


def _is_named_list(now: Tree, path: str) -> bool:
    """Whether a root of the proposal names a list."""
    found = LIST_PATH.fullmatch(path)
    return found is not None and any(root.lists.get(found[1]) == found[2] for root in _roots(now))


def _roots(now: Tree) -> Iterator[Root]:
    for path in filter(ROOT_PATH.fullmatch, now.entries):
        with suppress(ValueError):
            yield root_in(_text(now, path))


def _hashes(now: Tree, root: Root, benchmark: str) -> Mapping[str, str]:
    """Model → hash of its payload, as a root states for a benchmark; empty if its list is missing or another."""
    sha256 = root.lists.get(benchmark, "")
    content = _text(now, f"results/records/{benchmark}/{sha256}.signed")
    if hashlib.sha256(content.encode()).hexdigest() != sha256:
        return {}
    try:
        return hashes_in(content)
    except ValueError:
        return {}


def _joined(changed: Mapping[str, str]) -> bool:
    """Whether the proposal adds the root of a set, which may join earlier ones."""
    return any(state == "added" and ROOT_PATH.fullmatch(path) for path, state in changed.items())


def _text(tree: Tree, path: str) -> str:
    return (tree.read(path) or b"").decode("utf-8", "replace")
