"""One signature covers a set of records by a tree of hashes; earlier signatures of single records stay valid."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neuroledger.engine.checked import Evidence, Origin
from neuroledger.engine.record import (
    Record,
    payload_of,
    read_record,
    record_path,
    write_record,
)
from neuroledger.engine.records import evidence as module
from neuroledger.engine.records.evidence import message_of, signature_path, signer_of
from neuroledger.engine.records.refresh import refresh
from neuroledger.engine.records.signatures import (
    Signer,
    hashes_in,
    part_of_signed_set,
    root_in,
    sign,
    signer_in,
    signer_in_proposal,
)
from neuroledger.errors import RequestError
from neuroledger.store.git_trees import FILE, Entry, Tree
from tests.report.ledger import altered, record

pytestmark = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="needs ssh-keygen"
)
BENCHMARKS, MODELS = ("lab.IT", "lab.V4"), ("ant", "bee", "cat")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Private keys of people."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ann", "eve"):
        words = [
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-f",
            str(folder / name),
        ]
        subprocess.run(words, check=True)
    return {name: folder / name for name in ("ann", "eve")}


@pytest.fixture
def root(tmp_path: Path, keys: dict[str, Path]) -> Path:
    """A repository with six records, where ann may sign."""
    for each in records():
        write_record(record_path(tmp_path, each.benchmark, each.model), each)
    (tmp_path / "allowed_signers").write_text(
        f"ann@lab.org {keys['ann'].with_suffix('.pub').read_text()}"
    )
    return tmp_path


def records(value: float = 0.5) -> list[Record]:
    return [
        record(model, benchmark, value) for benchmark in BENCHMARKS for model in MODELS
    ]


def one_by_one(root: Path, item: Record, key: Path) -> Path:
    """Sign a record alone, as earlier versions did."""
    path = record_path(root, item.benchmark, item.model)
    message = root / "message"
    message.write_bytes(message_of(item))
    words = [
        "ssh-keygen",
        "-Y",
        "sign",
        "-q",
        "-f",
        str(key),
        "-n",
        module.NAMESPACE,
        str(message),
    ]
    subprocess.run(words, check=True, capture_output=True)
    return (root / "message.sig").rename(signature_path(path))


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operations of ssh-keygen from here on."""
    run, calls = subprocess.run, list[str]()

    def counting(words: list[str], **options: Any) -> Any:
        calls.append(" ".join(words[1:3]))
        return run(words, **options)

    monkeypatch.setattr(module.subprocess, "run", counting)
    module.signer_of_text.cache_clear()
    return calls


def files(root: Path) -> set[str]:
    """What signing wrote."""
    found = [*root.rglob("*.signed"), *root.rglob("*.sig")]
    return {path.relative_to(root).as_posix() for path in found}


def test_one_check_covers_all_records_of_a_set(
    root: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sign(root, records(), keys["ann"])
    assert path is not None and path.parent == root / "results" / "signatures"
    assert len(files(root)) == 3, "a root, and a list of each benchmark"
    calls = counted(monkeypatch)
    assert {signer_in(root, each) for each in records()} == {Signer("ann@lab.org")}
    assert calls == ["-Y find-principals", "-Y verify"]
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert signer_in(root, records()[0]) == Signer("ann@lab.org"), (
        "remembered by content"
    )


def test_many_records_need_a_handful_of_checks(
    root: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [
        record(f"model{number}", f"lab.B{number % 40}", 0.5) for number in range(2000)
    ]
    sign(root, many, keys["ann"])
    calls = counted(monkeypatch)
    assert {signer_in(root, each).name for each in many} == {"ann@lab.org"}
    assert len(calls) == 2


def test_a_set_covers_benchmark_model_and_payload_and_nothing_else(
    root: Path, keys: dict[str, Path]
) -> None:
    content = record("ant", "lab.V4", 0.5)
    assert signer_in(root, content) == Signer()
    sign(root, [content], keys["ann"])
    assert signer_in(root, content) == Signer("ann@lab.org")
    assert signer_in(root, record("ant", "lab.V4", 0.6)) == Signer(broken=True), (
        "edited"
    )
    for other in ({"model": "bee"}, {"benchmark": "lab.IT"}):
        assert signer_in(root, content.model_copy(update=other)) == Signer(), "copied"
    later = altered(content, timing={"wall_s": 5.0}, payload_sha256="0" * 64)
    assert signer_in(root, later) == Signer("ann@lab.org"), "timing is not signed"


def test_who_is_not_allowed_signs_nothing(root: Path, keys: dict[str, Path]) -> None:
    sign(root, records(), keys["eve"])
    assert {signer_in(root, each) for each in records()} == {Signer(broken=True)}
    sign(root, records(), keys["ann"])
    assert {signer_in(root, each) for each in records()} == {Signer("ann@lab.org")}
    (root / "allowed_signers").unlink()
    assert {signer_in(root, each) for each in records()} == {Signer()}


def test_sets_of_one_key_are_joined_and_what_they_replace_is_removed(
    root: Path, keys: dict[str, Path]
) -> None:
    first, *more = records()
    sign(root, [first], keys["ann"])
    sign(root, more, keys["ann"])
    assert len(files(root)) == 3 and {
        signer_in(root, each).name for each in records()
    } == {"ann@lab.org"}
    sign(root, records()[:2], keys["eve"])
    assert len(files(root)) == 5, "the set of somebody else stays"
    before = files(root)
    sign(root, more[:1], keys["ann"])
    assert files(root) == before, "signing again changes nothing"
    moved = record("ant", "lab.IT", 0.7)
    write_record(record_path(root, "lab.IT", "ant"), moved)
    assert signer_in(root, moved).broken
    sign(root, [moved], keys["ann"])
    assert signer_in(root, moved) == Signer("ann@lab.org") and len(files(root)) == 5


def test_what_others_write_into_a_set_is_not_signed_with_the_next_records(
    root: Path, keys: dict[str, Path]
) -> None:
    path = sign(root, records()[:1], keys["ann"])
    assert path is not None
    forged = record("ant", "lab.V4", 0.99)
    (listed,) = root.rglob("*.signed")
    row = f"{forged.payload()} ant\n"
    sha256 = hashlib.sha256(row.encode()).hexdigest()
    (root / "results" / "records" / "lab.V4" / f"{sha256}.signed").write_text(row)
    path.write_text(
        path.read_text().replace("-----BEGIN", f"{sha256} lab.V4\n-----BEGIN", 1)
    )
    sign(root, records()[1:2], keys["ann"])
    assert not signer_in(root, forged).name
    assert signer_in(root, records()[1]) == Signer("ann@lab.org")
    assert listed.name


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("lab.IT", "lab.IX"), lambda text: text.replace("ant", "ape"),
        lambda text: text + "\n", lambda text: "", lambda text: "x" * 100_000, lambda text: text.replace("A", "B"),
        lambda text: text.replace("\n", "\r\n"),
    ],
)  # fmt: skip
def test_a_damaged_set_signs_nothing(
    change: Callable[[str], str], root: Path, keys: dict[str, Path]
) -> None:
    sign(root, records()[:1], keys["ann"])
    for name in files(root):
        whole = (root / name).read_text()
        if change(whole) == whole:
            continue
        (root / name).write_bytes(change(whole).encode())
        if not name.endswith(".sig") or change(whole).rstrip() != whole.rstrip():
            assert not signer_in(root, records()[0]).name, name
        (root / name).write_text(whole)
    assert signer_in(root, records()[0]) == Signer("ann@lab.org")


def test_earlier_signatures_stay_valid_until_a_set_replaces_them(
    root: Path, keys: dict[str, Path]
) -> None:
    content = records()[0]
    path = record_path(root, content.benchmark, content.model)
    target = one_by_one(root, content, keys["ann"])
    allowed = root / "allowed_signers"
    assert (
        signer_in(root, content)
        == Signer("ann@lab.org")
        == Signer(signer_of(path, content, allowed) or "")
    )
    other = record(content.model, content.benchmark, 0.6)
    assert (
        signer_in(root, other) == Signer(broken=True)
        and signer_of(path, other, allowed) is None
    )
    shutil.copy(target, signature_path(record_path(root, "lab.V4", "bee")))
    assert signer_in(root, record("bee", "lab.V4", 0.5)) == Signer(broken=True), (
        "copied"
    )
    sign(root, [content], keys["ann"])
    assert not target.exists() and signer_in(root, content) == Signer("ann@lab.org")


@pytest.mark.parametrize(
    "text",
    [
        "", "x", f"{'0' * 64} ..\n", f"{'0' * 64} a/b\n", f"{'0' * 64} b\n{'0' * 64} a\n",
        f"{'0' * 64} a\n" * 2, f"{'0' * 63} a\n",
    ],
)  # fmt: skip
def test_lists_of_hashes_are_strict(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of hashes"):
        hashes_in(text)
    with pytest.raises(ValueError, match="not a list of hashes"):
        root_in(f"{text}-----BEGIN SSH SIGNATURE-----\n")


def test_files_and_programs_that_signing_needs_are_named(
    root: Path, keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, path = records()[0], record_path(root, "lab.IT", "ant")
    words = r"nokey is not a file; pass an SSH key, for example one created with `ssh-keygen -t ed25519`$"
    with pytest.raises(RequestError, match=words):
        sign(root, [content], root / "nokey")
    words = r"nosigners is not a file; pass a file of allowed signers \(see `man ssh-keygen`\)$"
    with pytest.raises(RequestError, match=words):
        signer_of(path, content, root / "nosigners")
    (root / "text").write_text("not a key")
    with pytest.raises(RequestError, match=r"^ssh-keygen could not sign: .+"):
        sign(root, [content], root / "text")
    assert not list(root.rglob("*.sig")) and sign(root, [], root / "nokey") is None

    def fails(*given: Any, **options: Any) -> Any:
        raise subprocess.TimeoutExpired("ssh-keygen", options["timeout"])

    with monkeypatch.context() as patch:
        patch.setattr(module.subprocess, "run", fails)
        with pytest.raises(
            RequestError,
            match=r"^ssh-keygen cannot be run: .*timed out after 60 seconds",
        ):
            sign(root, [content], keys["ann"])
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    with pytest.raises(
        RequestError, match=r"^ssh-keygen is not installed; it is part of OpenSSH$"
    ):
        sign(root, [content], keys["ann"])


def tree(root: Path, *folders: str) -> Tree:
    """The files below folders of a repository, as a review reads them."""
    names = [
        path
        for folder in folders
        for path in [root / folder, *(root / folder).rglob("*")]
        if path.is_file()
    ]
    contents = {path.relative_to(root).as_posix(): path.read_bytes() for path in names}
    entries = {
        name: Entry(FILE, name, len(content)) for name, content in contents.items()
    }
    return Tree(root, entries, contents)


def reviewed(base: Tree, now: Tree) -> list[tuple[str, str]]:
    """Severity and words of the findings on every part of the signed sets of a proposal."""
    changed = {path: "added" for path in now.entries if path not in base.entries}
    parts = [path for path in changed if path.endswith((".signed", ".sig"))]
    found = [
        each for path in parts for each in part_of_signed_set(base, now, changed, path)
    ]
    return sorted((finding.severity, finding.what) for finding in found)


def test_a_review_asks_the_allowed_signers_of_the_base(
    root: Path, keys: dict[str, Path]
) -> None:
    content = records()[0]
    base, nobody = tree(root, "allowed_signers"), tree(root, "nothing")
    sign(root, [content], keys["ann"])
    now = tree(root, "results", "allowed_signers")
    hashes = ("note", "added: hashes of records, of a set of signed records")
    assert reviewed(base, now) == [
        hashes,
        ("note", "added: the signature of ann@lab.org"),
    ]
    assert signer_in_proposal(base, now, content) == "ann@lab.org"
    assert signer_in_proposal(base, now, record("ant", "lab.IT", 0.6)) == ""
    assert signer_in_proposal(nobody, now, content) == ""
    words = "added: a signature; the base has no allowed signers, so that it counts nowhere yet"
    assert reviewed(nobody, now) == sorted([hashes, ("note", words)])
    for path in root.rglob("*.sig*"):
        path.unlink()
    sign(root, [content], keys["eve"])
    words = "added: the signature of a key that is not among the allowed signers of the base"
    assert reviewed(base, tree(root, "results")) == [hashes, ("warning", words)]


def test_who_signed_is_never_called_self_reported() -> None:
    for origin in Origin:
        for signer in ("", "ann@lab.org"):
            try:
                words = str(Evidence(origin, signer))
            except ValueError:
                assert (origin is Origin.SIGNED) != bool(signer)
                continue
            assert ("self-reported" in words) == (origin is Origin.SELF_REPORTED)
            assert not ("self-reported" in words and "signed by" in words)


def test_a_signature_covers_the_earlier_form_of_a_record_which_therefore_stays(
    root: Path, keys: dict[str, Path]
) -> None:
    path = record_path(root, "lab.V4", "ant")
    plain = json.loads(path.read_text())
    says = {"passed": True, "says": "0.010, must be at most 0.1"}
    plain["controls"] = {"noise": {"role": "negative", "value": 0.01, "bound": 0.1} | says}  # fmt: skip
    path.write_text(json.dumps(plain | {"payload_sha256": payload_of(plain)}))
    content = read_record(path)
    assert content.intact and content.payload() != payload_of(plain)
    sign(root, [content], keys["ann"])
    assert signer_in(root, content) == Signer("ann@lab.org")
    before = path.read_bytes()
    catalog: Any = SimpleNamespace(root=root, shown=str)
    codes = {finding.where: finding.code for finding in refresh(catalog)}
    assert codes[str(path.resolve())] == "record.interval-kept"
    assert path.read_bytes() == before
    shutil.rmtree(root / "results" / "signatures")
    (finding,) = refresh(catalog, [path])
    assert finding.code == "record.refreshed" and "keeps its values" in finding.what
    assert read_record(path).controls["noise"].verdict == "passed"
    assert not read_record(path).has_earlier_form
