"""Let every file operation of every writer and verb fail once: death, a full disk, a denial, an I/O error, an interrupt.

After each failure, every file must have its old or its new bytes; the next run, in another process, must succeed; and no
additional file may remain. ``python -m tests.hostile.crash_points`` tries all crash points and prints their number.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import io
import logging
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.hostile import verbs, writers
from tests.hostile.writers import Writer

__all__ = ["FAILURES", "Point", "enumerate_points", "operations_of", "try_point"]

LATER: Final = " from here on"
FAILURES: Final = (
    "die",
    "ENOSPC",
    "EACCES",
    "EIO",
    "interrupt",
    *(code + LATER for code in ("ENOSPC", "EACCES", "EIO")),
)
CALLS: Final = (
    "fsync",
    "replace",
    "rename",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "link",
    "symlink",
    "utime",
    "sendfile",
)
DEAD: Final = 77


@dataclass(frozen=True)
class Point:
    """One failure of one operation of one writer."""

    writer: str
    operation: int
    failure: str


class _File:
    """A file opened for writing, whose writes count as operations."""

    def __init__(
        self, file: Any, happens: Callable[[str, Callable[[], object]], None]
    ) -> None:
        self._file, self._happens = file, happens

    def write(self, content: Any) -> Any:
        whole = content if isinstance(content, str) else memoryview(content).cast("B")
        self._happens("write", lambda: self._file.write(whole[: len(whole) // 2]))
        return self._file.write(content)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Injector:
    """Counts the operations on files in a folder, and lets one of them fail."""

    def __init__(self, root: Path, at: int | None = None, failure: str = "") -> None:
        self.root, self.at, self.failure = str(root), at, failure
        self.names: list[str] = []

    def happens(self, name: str, half: Callable[[], object] = lambda: None) -> None:
        """Count an operation, and fail if it is the selected one; a write fails after half of its bytes."""
        number = len(self.names)
        self.names.append(name)
        if self.at is None or number < self.at:
            return
        later = self.failure.endswith(LATER)
        if number > self.at and not later:
            return
        if number == self.at:
            with suppress(Exception):
                half()
        if self.failure == "die":
            os._exit(DEAD)
        if self.failure == "interrupt":
            raise KeyboardInterrupt
        code = getattr(errno, self.failure.split()[0])
        raise OSError(code, os.strerror(code))

    def concerns(self, path: Any) -> bool:
        """Whether a path is in the folder."""
        return isinstance(path, (str, Path)) and str(path).startswith(self.root)

    @contextmanager
    def installed(self) -> Iterator[_Injector]:
        """Replace Python's file operations within the context."""
        originals: dict[str, Any] = {name: getattr(os, name) for name in CALLS}
        io_open, os_open = io.open, os.open

        def opening(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if not self.concerns(path) or not set(mode) & set("wax+"):
                return io_open(path, mode, *args, **kwargs)
            self.happens("open")
            return _File(io_open(path, mode, *args, **kwargs), self.happens)

        def low(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if self.concerns(path) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.happens("os.open")
            return os_open(path, flags, *args, **kwargs)

        def wrapped(name: str) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if (
                    name in ("fsync", "sendfile")
                    or any(map(self.concerns, args[:2]))
                    or "dir_fd" in kwargs
                ):
                    self.happens(name)
                return originals[name](*args, **kwargs)

            return call

        try:
            builtins.open = io.open = opening  # type: ignore[assignment]
            os.open = low
            for name in CALLS:
                setattr(os, name, wrapped(name))
            yield self
        finally:
            builtins.open = io.open = io_open
            os.open = os_open
            for name in CALLS:
                setattr(os, name, originals[name])


def _in_another_process(work: Callable[[], object]) -> int:
    """Run the work in a forked process, and return its exit status: 0, `DEAD`, or 1 after an error."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except (Exception, KeyboardInterrupt):
        if os.environ.get("CRASH_POINTS_TRACE"):
            traceback.print_exc()
    finally:
        os._exit(code)


def _files(root: Path, writer: Writer) -> dict[str, bytes]:
    """The content of every file of the writer, by its relative path."""
    return {
        str(path.relative_to(root)): writer.content(path)
        for path in sorted(root.rglob("*"))
        if path.is_file() and not writer.ignored(path.relative_to(root))
    }


def _prepared(
    writer: Writer, folder: Path
) -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    """The prepared folder of a writer, and its files before and after a run without a failure."""
    before = folder / "before"
    before.mkdir(parents=True)
    if _in_another_process(lambda: writer.prepare(before)) != 0:
        raise RuntimeError(f"{writer.name}: the preparation fails")
    after = folder / "after"
    shutil.copytree(before, after)
    if _in_another_process(lambda: writer.run(after)) != 0:
        raise RuntimeError(f"{writer.name}: the run fails without an injected failure")
    return before, _files(before, writer), _files(after, writer)


def operations_of(writer: Writer, before: Path, folder: Path) -> list[str]:
    """The names of the file operations of a run without a failure."""
    shutil.copytree(before, folder)
    operations_file = folder.with_suffix(".operations")

    def run() -> None:
        with _Injector(folder).installed() as injector:
            writer.run(folder)
        operations_file.write_text("\n".join(injector.names))

    if _in_another_process(run) != 0:
        raise RuntimeError(f"{writer.name}: the run fails without an injected failure")
    names = operations_file.read_text().split("\n")
    shutil.rmtree(folder)
    operations_file.unlink()
    return names if names != [""] else []


def try_point(
    point: Point,
    writer: Writer,
    before: Path,
    old: dict[str, bytes],
    new: dict[str, bytes],
    folder: Path,
) -> str:
    """Run a writer with one failure; return the problem, or an empty text if there is none."""
    shutil.copytree(before, folder)
    try:

        def run() -> None:
            with _Injector(folder, point.operation, point.failure).installed():
                writer.run(folder)

        _in_another_process(run)
        files = _files(folder, writer)
        for name in sorted(old.keys() | new.keys()):
            lost = (
                writer.worthless or ".cache" in Path(name).parts
            )  # what a cache lacks is computed again
            fine = (old.get(name), new.get(name), *((None,) if lost else ()))
            if files.get(name) not in fine and name not in writer.in_steps:
                return f"{name} has neither the old nor the new bytes"
        # A failure that the run survived leaves nothing to mend; importing what is imported is refused.
        if files != new and _in_another_process(lambda: writer.run(folder)) != 0:
            return "the next run fails"
        files = _files(folder, writer)
        if differing := sorted(name for name in new if files.get(name) != new[name]):
            return f"after the next run {differing[0]} is not as it should be"
        if additional := sorted(files.keys() - new.keys()):
            return f"{additional[0]} is left behind"
        return ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def everything() -> list[Writer]:
    """All writers, and all verbs that write."""
    return [*writers.all_writers(), *verbs.all_verbs()]


def enumerate_points(
    only: tuple[str, ...] = (), *, sample: int | None = None, seed: int = 0
) -> tuple[Counter[str], list[tuple[Point, str]]]:
    """The number of tested points of each writer, and the points with problems.

    ``sample`` is the number of points of each writer that are drawn with ``seed``; default: all.
    """
    tested: Counter[str] = Counter()
    wrong: list[tuple[Point, str]] = []
    rng = random.Random(seed)
    for writer in everything():
        if only and writer.name not in only:
            continue
        if writer in verbs.all_verbs():
            verbs.warm()
        with tempfile.TemporaryDirectory(prefix="crash-points-") as place:
            folder = Path(place).resolve()
            before, old, new = _prepared(writer, folder)
            count = len(operations_of(writer, before, folder / "counted"))
            points = [
                Point(writer.name, at, failure)
                for at in range(count)
                for failure in FAILURES
            ]
            for point in (
                points
                if sample is None
                else rng.sample(points, min(sample, len(points)))
            ):
                problem = try_point(point, writer, before, old, new, folder / "tried")
                tested[writer.name] += 1
                if problem:
                    wrong.append((point, problem))
    return tested, wrong


def main() -> int:
    """Test all points and print the counts."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("writers", nargs="*", help="only these")
    parser.add_argument("--sample", type=int, help="this many points of each writer")
    parser.add_argument(
        "--of-verbs",
        type=int,
        default=100,
        help="this many points of each verb, which take seconds each",
    )
    options = parser.parse_args()
    started = time.perf_counter()
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = (
            "/dev/shm"  # process death is simulated, so that data need not reach a disk
        )
    logging.disable(logging.WARNING)  # warnings about damaged entries are expected
    tested: Counter[str] = Counter()
    wrong: list[tuple[Point, str]] = []
    names = options.writers or [writer.name for writer in everything()]
    with multiprocessing.get_context("fork").Pool((os.cpu_count() or 1) + 1) as pool:
        of_verbs = {verb.name: options.of_verbs for verb in verbs.all_verbs()}
        samples = {name: options.sample or of_verbs.get(name) for name in names}
        parts = [
            pool.apply_async(enumerate_points, ((name,),), {"sample": samples[name]})
            for name in names
        ]
        for name, part in zip(names, parts, strict=True):
            counted, found = part.get()
            tested += counted
            wrong += found
            print(f"{name:<30}{counted[name]:>7}", flush=True)
    for point, problem in wrong[:40]:
        print(
            f"WRONG {point.writer}, operation {point.operation}, {point.failure}: {problem}"
        )
    print(
        f"{sum(tested.values()):,} crash points in {time.perf_counter() - started:.0f} s, {len(wrong)} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
