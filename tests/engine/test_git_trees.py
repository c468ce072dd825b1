"""Commits and working trees: modes, sizes and contents, read without trusting the index."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from pathlib import Path

import pytest

from neuroledger.engine.diff_since import review
from neuroledger.errors import RequestError, SpecError
from neuroledger.store.git import git as asked
from neuroledger.store.git_trees import (
    FILE,
    LINK,
    MODULE,
    MOST_BYTES,
    Entry,
    Tree,
    committed,
    fork_point,
    is_shallow,
    working,
)


def git(root: Path, *words: str) -> str:
    who = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    return subprocess.run(
        ["git", *who, *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def blob(content: bytes) -> str:
    """The id that git gives, by its definition."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "folder").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"first\n")
    (root / "folder" / "run").write_bytes(b"x")
    (root / "folder" / "run").chmod(0o755)
    (root / "link").symlink_to("a.txt")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "start")
    return root


def test_a_commit_lists_files_with_mode_id_and_size(root: Path) -> None:
    tree = committed(root, "HEAD")
    assert dict(tree.entries) == {
        "a.txt": Entry(FILE, blob(b"first\n"), 6),
        "folder/run": Entry("100755", blob(b"x"), 1),
        "link": Entry(LINK, blob(b"a.txt"), 5),
    }
    assert tree.read("a.txt") == b"first\n" and tree.read("folder/run") == b"x"
    assert (
        tree.read("link") is None
        and tree.read("folder") is None
        and tree.read("nosuch") is None
    )


def test_contents_are_read_up_to_five_megabytes(tmp_path: Path) -> None:
    def tree(mode: str, size: int) -> Tree:
        return Tree(tmp_path, {"a": Entry(mode, "id", size)}, {"id": b"held"})

    assert (
        tree(FILE, MOST_BYTES).read("a") == b"held"
        and tree("100755", 4).read("a") == b"held"
    )
    assert tree(FILE, MOST_BYTES + 1).read("a") is None
    assert tree(MODULE, 0).read("a") is None and tree(LINK, 4).read("a") is None


def test_a_clean_working_tree_is_the_commit(root: Path) -> None:
    head = committed(root, "HEAD")
    assert working(head).entries == head.entries and not working(head).contents


def test_the_working_tree_is_read_from_the_disk(root: Path) -> None:
    head = committed(root, "HEAD")
    git(root, "update-index", "--assume-unchanged", "a.txt")
    (root / "a.txt").write_bytes(b"other\n")  # the index says that it is unchanged
    (root / "folder" / "run").chmod(0o644)
    (root / "link").unlink()
    (root / "new").write_bytes(b"new")
    (root / "dvc.lock").write_bytes(b"own")
    (root / ".gitignore").write_bytes(b"ignored\n")
    (root / "ignored").write_bytes(b"x")
    (root / "inner").mkdir()
    git(root / "inner", "init", "-q")
    git(root / "inner", "commit", "--allow-empty", "-qm", "x")
    git(root, "add", "-f", "new")
    tree = working(head)
    expected = {
        ".gitignore": Entry(FILE, blob(b"ignored\n"), 8),
        "a.txt": Entry(FILE, blob(b"other\n"), 6),
        "folder/run": Entry(FILE, blob(b"x"), 1),
        "inner": Entry(MODULE, "", 0),
        "new": Entry(FILE, blob(b"new"), 3),
    }
    assert dict(tree.entries) == expected
    assert (
        tree.read("a.txt") == b"other\n"
        and tree.read("new") == b"new"
        and tree.read("folder/run") == b"x"
    )


def test_the_lock_of_a_clone_counts_once_it_is_committed(root: Path) -> None:
    (root / "dvc.lock").write_bytes(b"own")
    assert "dvc.lock" not in working(committed(root, "HEAD")).entries
    git(root, "add", "dvc.lock")
    git(root, "commit", "-qm", "lock")
    (root / "dvc.lock").write_bytes(b"more")
    assert working(committed(root, "HEAD")).entries["dvc.lock"] == Entry(
        FILE, blob(b"more"), 4
    )


def test_files_behind_links_and_large_files_are_not_read(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "run").write_bytes(b"x")
    (root / "folder" / "run").unlink()
    (root / "folder").rmdir()
    (root / "folder").symlink_to(outside)
    large = b"a" * (MOST_BYTES + 1)
    (root / "large").write_bytes(large)
    (root / "most").write_bytes(large[1:])
    tree = working(committed(root, "HEAD"))
    assert tree.entries["folder/run"] == Entry(LINK, "", 0)
    assert tree.entries["folder"] == Entry(
        LINK, blob(os.fsencode(outside)), len(os.fsencode(outside))
    )
    assert (
        tree.entries["large"] == Entry(FILE, blob(large), len(large))
        and tree.read("large") is None
    )
    assert tree.read("most") == large[1:]


def test_the_merge_base_of_a_proposal(root: Path) -> None:
    start = git(root, "rev-parse", "HEAD")
    git(root, "checkout", "-q", "-b", "proposal")
    git(root, "commit", "--allow-empty", "-qm", "one")
    git(root, "checkout", "-q", "main")
    git(root, "commit", "--allow-empty", "-qm", "other")
    git(root, "tag", "of-main")
    git(root, "checkout", "-q", "proposal")
    for since in ("main", "of-main", start, start[:10], "HEAD~1", "refs/heads/main"):
        assert fork_point(root, since) == start
    assert fork_point(root, "HEAD") == git(root, "rev-parse", "HEAD")
    git(root, "checkout", "-q", "--orphan", "alone")
    git(root, "commit", "--allow-empty", "-qm", "alone")
    with pytest.raises(
        RequestError, match="'main' and the current branch have no commit in common"
    ):
        fork_point(root, "main")


def test_a_folder_without_a_repository_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path, root / "folder"):
        with pytest.raises(
            RequestError, match="is not the top folder of a git repository"
        ):
            fork_point(folder, "main")
    with pytest.raises(
        RequestError,
        match=r"no commit 'nosuch' in this repository; name a branch, a tag or a commit$",
    ):
        fork_point(root, "nosuch")
    assert not is_shallow(root)
    assert asked(root, "rev-parse", "nosuch", may_fail=True) == b""
    with pytest.raises(RequestError, match=r"git cat-file failed: .*nosuch"):
        asked(root, "cat-file", "blob", "nosuch")
    monkeypatch.setenv("PATH", str(root))
    with pytest.raises(RequestError, match="git is not installed"):
        committed(root, "HEAD")


def test_a_git_of_the_repository_itself_is_never_run(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "git").write_text("#!/bin/sh\ntouch ran\n")
    (root / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(RequestError, match="git is not installed"):
        committed(root, "HEAD")
    assert not (root / "ran").exists()


def test_git_environment_variables_are_ignored(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert set(committed(root, "HEAD").entries) == {"a.txt", "folder/run", "link"}


def raw_object(root: Path, kind: str, content: bytes) -> str:
    """Write an object as it is, without the checks of git, and return its id."""
    whole = f"{kind} {len(content)}\0".encode() + content
    id = hashlib.sha1(whole).hexdigest()
    place = root / ".git" / "objects" / id[:2] / id[2:]
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(zlib.compress(whole))
    return id


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("100644", "a.py"), ("100644", "a.py")], "two entries are called 'a.py'"),
        (
            [("100644", "a"), ("100644", "a.py"), ("40000", "a")],
            "two entries are called 'a'",
        ),
        ([("100644", "src/a.py")], "an entry 'src/a.py' of mode 100644"),
        ([("100644", "b.py"), ("100644", "a.py")], "not sorted"),
        ([("40000", "a"), ("100644", "a.py")], "not sorted"),
        ([("100644", "..")], "an entry '..' of mode 100644"),
        ([("040000", "a")], "an entry 'a' of mode 040000"),
        ([("100777", "a")], "an entry 'a' of mode 100777"),
    ],
)
def test_a_tree_that_git_does_not_write_is_refused(
    root: Path, entries: list[tuple[str, str]], words: str
) -> None:
    file = raw_object(root, "blob", b"x = 1\n")
    empty = raw_object(root, "tree", b"")
    rows = (
        f"{mode} {name}\0".encode()
        + bytes.fromhex(empty if mode.endswith("40000") else file)
        for mode, name in entries
    )
    inner = raw_object(root, "tree", b"".join(rows))
    outer = raw_object(root, "tree", b"40000 sub\0" + bytes.fromhex(inner))
    commit = git(root, "commit-tree", outer, "-p", "HEAD", "-m", "raw")
    with pytest.raises(SpecError, match=words) as caught:
        committed(root, commit)
    assert [(one.code, one.severity) for one in caught.value.findings] == [
        ("review.tree", "error")
    ]


def test_the_trees_of_honest_commits_are_in_the_order_of_git(root: Path) -> None:
    for name in ("a-b/x", "a.b", "a0", "a/x", "é/x", "Z"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"x")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "names")
    assert {"a-b/x", "a.b", "a0", "a/x", "é/x", "Z"} <= committed(
        root, "HEAD"
    ).entries.keys()


def test_a_proposal_with_a_malformed_tree_is_refused(root: Path) -> None:
    git(root, "branch", "base")
    file = bytes.fromhex(raw_object(root, "blob", b"x = 1\n"))
    tree = raw_object(root, "tree", b"100644 a\0" + file + b"100644 a\0" + file)
    git(
        root,
        "update-ref",
        "HEAD",
        git(root, "commit-tree", tree, "-p", "HEAD", "-m", "raw"),
    )
    assert review(root, "base").verdict == "refused"
