"""Every file operation of every writer fails once: by death, a full disk, refusal, a broken disk, an interruption.

After each failure, what was there holds the old bytes or the new ones; the next run, in another process, succeeds; and no
file is left that a run without a failure does not leave. ``python -m tests.hostile.crash_points`` tries all of them and
prints how many there were.
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

from tests.hostile import writers
from tests.hostile.writers import Writer

__all__ = ["FAILURES", "Point", "enumerate_points", "operations_of", "try_point"]

LATER: Final = " from here on"
FAILURES: Final = (
    "die", "ENOSPC", "EACCES", "EIO", "interrupt", *(code + LATER for code in ("ENOSPC", "EACCES", "EIO")),
)  # fmt: skip
CALLS: Final = (
    "fsync", "replace", "rename", "unlink", "remove", "mkdir", "rmdir", "link", "symlink", "utime", "sendfile",
)  # fmt: skip
DEAD: Final = 77


@dataclass(frozen=True)
class Point:
    """One failure of one operation of one writer."""

    writer: str
    operation: int
    failure: str


class _File:
    """A file opened for writing, whose writes are operations too."""

    def __init__(self, file: Any, happens: Callable[[str, Callable[[], object]], None]) -> None:
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
    """Counts the operations on files below a folder, and lets one of them fail."""

    def __init__(self, root: Path, at: int | None = None, failure: str = "") -> None:
        self.root, self.at, self.failure = str(root), at, failure
        self.names: list[str] = []

    def happens(self, name: str, half: Callable[[], object] = lambda: None) -> None:
        """Operation number ``len(names)``: it may fail, a write after half of its bytes."""
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
        """Whether an operation is on something below the folder."""
        return isinstance(path, (str, Path)) and str(path).startswith(self.root)

    @contextmanager
    def installed(self) -> Iterator[_Injector]:
        """The file operations of Python, replaced."""
        plain: dict[str, Any] = {name: getattr(os, name) for name in CALLS}
        opened, lowly = io.open, os.open

        def opening(path: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if not self.concerns(path) or not set(mode) & set("wax+"):
                return opened(path, mode, *given, **named)
            self.happens("open")
            return _File(opened(path, mode, *given, **named), self.happens)

        def low(path: Any, flags: int, *given: Any, **named: Any) -> int:
            if self.concerns(path) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.happens("os.open")
            return lowly(path, flags, *given, **named)

        def wrapped(name: str) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                if name in ("fsync", "sendfile") or any(map(self.concerns, given[:2])) or "dir_fd" in named:
                    self.happens(name)
                return plain[name](*given, **named)

            return call

        try:
            builtins.open = io.open = opening  # type: ignore[assignment]
            os.open = low
            for name in CALLS:
                setattr(os, name, wrapped(name))
            yield self
        finally:
            builtins.open = io.open = opened
            os.open = lowly
            for name in CALLS:
                setattr(os, name, plain[name])


def _in_another_process(work: Callable[[], object]) -> int:
    """Exit status of a forked process that does the work: 0, `DEAD`, or 1 after an error."""
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
    """The content of every file that the writer answers for, by its place."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not writer.ignored(path.relative_to(root))
    }


def _prepared(writer: Writer, folder: Path) -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    """The writer's folder before, and the files before and after a run without a failure."""
    before = folder / "before"
    before.mkdir(parents=True)
    if _in_another_process(lambda: writer.prepare(before)) != 0:
        raise RuntimeError(f"{writer.name}: it cannot be prepared")
    after = folder / "after"
    shutil.copytree(before, after)
    if _in_another_process(lambda: writer.run(after)) != 0:
        raise RuntimeError(f"{writer.name}: it fails without a failure")
    return before, _files(before, writer), _files(after, writer)


def operations_of(writer: Writer, before: Path, folder: Path) -> list[str]:
    """The names of the file operations of a run without a failure."""
    shutil.copytree(before, folder)
    told = folder.with_suffix(".operations")

    def run() -> None:
        with _Injector(folder).installed() as injector:
            writer.run(folder)
        told.write_text("\n".join(injector.names))

    if _in_another_process(run) != 0:
        raise RuntimeError(f"{writer.name}: it fails without a failure")
    names = told.read_text().split("\n")
    shutil.rmtree(folder)
    told.unlink()
    return names if names != [""] else []


def try_point(
    point: Point, writer: Writer, before: Path, old: dict[str, bytes], new: dict[str, bytes], folder: Path
) -> str:
    """What is wrong after one failure; nothing where all is well."""
    shutil.copytree(before, folder)
    try:

        def run() -> None:
            with _Injector(folder, point.operation, point.failure).installed():
                writer.run(folder)

        _in_another_process(run)
        there = _files(folder, writer)
        for name in sorted(old.keys() | new.keys()):
            fine = (old.get(name), new.get(name), *((None,) if writer.worthless else ()))
            if there.get(name) not in fine:
                return f"{name} holds neither the old nor the new bytes"
        if _in_another_process(lambda: writer.run(folder)) != 0:
            return "the next run fails"
        there = _files(folder, writer)
        if wrong := sorted(name for name in new if there.get(name) != new[name]):
            return f"after the next run {wrong[0]} is not as it should be"
        if left := sorted(there.keys() - new.keys()):
            return f"{left[0]} is left behind"
        return ""
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def enumerate_points(
    only: tuple[str, ...] = (), *, sample: int | None = None, seed: int = 0
) -> tuple[Counter[str], list[tuple[Point, str]]]:
    """How many points of each writer were tried, and those after which something was wrong.

    ``sample`` is how many points of each writer are drawn with ``seed``; all of them unless given.
    """
    tried: Counter[str] = Counter()
    wrong: list[tuple[Point, str]] = []
    rng = random.Random(seed)
    for writer in writers.all_writers():
        if only and writer.name not in only:
            continue
        with tempfile.TemporaryDirectory(prefix="crash-points-") as place:
            folder = Path(place).resolve()
            before, old, new = _prepared(writer, folder)
            count = len(operations_of(writer, before, folder / "counted"))
            points = [Point(writer.name, at, failure) for at in range(count) for failure in FAILURES]
            for point in points if sample is None else rng.sample(points, min(sample, len(points))):
                said = try_point(point, writer, before, old, new, folder / "tried")
                tried[writer.name] += 1
                if said:
                    wrong.append((point, said))
    return tried, wrong


def main() -> int:
    """Try all points and print the counts."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("writers", nargs="*", help="only these")
    parser.add_argument("--sample", type=int, help="this many points of each writer")
    options = parser.parse_args()
    started = time.perf_counter()
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"  # death is simulated, so that no disk has to keep anything
    logging.disable(logging.WARNING)  # that an entry is damaged is what is tried
    tried: Counter[str] = Counter()
    wrong: list[tuple[Point, str]] = []
    names = options.writers or [writer.name for writer in writers.all_writers()]
    with multiprocessing.get_context("fork").Pool((os.cpu_count() or 1) + 1) as pool:
        parts = [pool.apply_async(enumerate_points, ((name,),), {"sample": options.sample}) for name in names]
        for name, part in zip(names, parts, strict=True):
            counted, found = part.get()
            tried += counted
            wrong += found
            print(f"{name:<30}{counted[name]:>7}", flush=True)
    for point, said in wrong[:40]:
        print(f"WRONG {point.writer}, operation {point.operation}, {point.failure}: {said}")
    print(
        f"{sum(tried.values()):,} crash points in {time.perf_counter() - started:.0f} s, {len(wrong)} wrong"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
