"""Fuzz every parser and every registered reader with damaged files; they must succeed or raise one clear error.

    python -m tests.hostile.fuzz --minutes 7.5        # prints the outcomes
    python -m tests.hostile.fuzz --each 2000 --seed 5 --only yaml --only reader:netcdf

Each parser and reader gets the same time, and at most ``--each`` inputs. An input depends only on the seed, the name of its
case and its number.

Parsers of text and tables run in the program's own process and may raise only the project's errors. Readers of third-party
formats run in a child process with limits, which translates any outcome of a library to one clear error; this is checked
for every input at which the library crashed, stalled or exceeded the limits.

The corpus of the readers consists of the files that their tests read (``collect``): the tests write simulated files in the
published layouts.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neuroledger.data.sandbox import Limits, confined
from neuroledger.errors import NeuroLedgerError
from neuroledger.spec import registry

__all__ = [
    "Case",
    "Outcome",
    "collect",
    "fuzz",
    "mutated",
    "parser_cases",
    "reader_cases",
]

ROOT: Final = Path(__file__).resolve().parents[2]
BATCH: Final = 200
SECONDS: Final = 10
SLICE: Final = 2
"""Seconds after which another case is continued."""
MEMORY: Final = 4 << 30
LARGEST: Final = 32 << 20
"""Largest size of a changed file in bytes; longer ones are truncated."""
TELLING: Final = (
    0,
    1,
    -1,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
)
WORDS: Final = (
    b"nan", b"inf", b"-1", b"1e999", b"0x10", b"null", b"\0", b"\xff\xfe", b"\xe2\x80\xae", b"../../x", b"{", b"[" * 40,
    b"&a", b"*a", b"!!python/object", b"<<: ", b"\r\n", b",", b'"', b"9" * 5000, b"%", b"\x1b[31m",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Files and the function that reads them; ``inside`` if the program runs it in its own process."""

    name: str
    files: dict[str, bytes]
    run: Callable[[Path], object]
    inside: bool


@dataclass(frozen=True)
class Outcome:
    """The outcome of one input: ``read``, ``refused``, ``translated``, ``contained``, or ``WRONG`` with the exception."""

    kind: str
    message: str = ""


def mutated(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """The files with one of them changed: bits, numbers, words, cuts, repetitions, swaps; sometimes it is emptied."""
    changed = dict(files)
    name = rng.choice(sorted(changed))
    data = bytearray(changed[name])
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.randrange(len(data) + 1)
        # Prefer changes in headers.
        at = min(at, rng.choice((len(data), 64, 512, 4096)))
        kind_of_change = rng.randrange(9)
        if kind_of_change == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif kind_of_change == 1 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind_of_change == 2:
            number, size = rng.choice(TELLING), rng.choice((1, 2, 4, 8))
            data[at : at + size] = (number & (2 ** (8 * size) - 1)).to_bytes(
                size, rng.choice(("little", "big"))
            )
        elif kind_of_change == 3:
            data[at:at] = rng.choice(WORDS)
        elif kind_of_change == 4:
            del data[at:]
        elif kind_of_change == 5:
            del data[at : at + rng.randrange(1, 64)]
        elif kind_of_change == 6:
            data[at:at] = data[at : at + rng.randrange(1, 256)] * rng.randrange(1, 4)
        elif kind_of_change == 7:
            other = rng.randrange(len(data) + 1)
            size = rng.randrange(1, 32)
            data[at : at + size], data[other : other + size] = (
                data[other : other + size],
                data[at : at + size],
            )
        elif kind_of_change == 8 and rng.random() < 0.1:
            data = bytearray(files[rng.choice(sorted(files))])
        del data[LARGEST:]
    changed[name] = bytes(data)
    if rng.random() < 0.01:
        changed[name] = b""
    return changed


def parser_cases() -> Iterator[Case]:
    """Parsers that run in the program's own process, on files of this repository."""
    from neuroledger.data.gate.validation import read_report
    from neuroledger.data.images import decode
    from neuroledger.data.stimuli import StimulusSet, read_table, safe_members
    from neuroledger.engine.record import read_record
    from neuroledger.report.diagnosis import from_csv
    from neuroledger.spec.bibliography import read_bibliography
    from neuroledger.spec.kinds import KINDS
    from neuroledger.spec.load import read_params, read_spec

    def spec(kind: str, name: str) -> Callable[[Path], object]:
        return lambda folder: read_spec(folder / name, kind)

    for kind in KINDS:
        for path in sorted((ROOT / "specs" / kind).glob("*.yaml"))[:12]:
            files = {
                related.name: related.read_bytes()
                for related in path.parent.glob(f"{path.stem}.*")
                if related.is_file()
            }
            if sum(map(len, files.values())) < 1 << 16:
                yield Case(f"yaml:{kind}", files, spec(kind, path.name), inside=True)
    records = sorted((ROOT / "results" / "records").rglob("*.json"))[:30]
    for path in records:
        yield Case(
            "record",
            {"r.json": path.read_bytes()},
            lambda folder: read_record(folder / "r.json"),
            inside=True,
        )
    for path in sorted((ROOT / "results" / "validation").glob("*.json"))[:10]:
        yield Case(
            "report",
            {"r.json": path.read_bytes()},
            lambda folder: read_report(folder / "r.json"),
            inside=True,
        )
    bib = (ROOT / "specs" / "references.bib").read_bytes()[:6000]
    yield Case(
        "bibliography",
        {"r.bib": bib},
        lambda folder: read_bibliography(folder / "r.bib"),
        inside=True,
    )
    params = {"params.yaml": (ROOT / "params.yaml").read_bytes()}
    yield Case("params", params, read_params, inside=True)
    yield Case(
        "table",
        {"t.csv": b"model,a,b\n#metric,pls,rdm\nx,1,.5\ny,.25,failed\nz,,.125\n"},
        lambda folder: from_csv(folder / "t.csv"),
        inside=True,
    )
    data = ROOT / "data" / "Digits.simulated"
    if (data / "stimuli.zip").is_file():
        table = b"".join(
            (data / "stimuli.csv").read_bytes().splitlines(keepends=True)[:30]
        )
        yield Case(
            "stimulus table",
            {"s.csv": table},
            lambda folder: read_table(folder / "s.csv"),
            inside=True,
        )
        yield Case(
            "stimulus archive",
            _small_archive(data),
            _read_stimuli(StimulusSet, read_table),
            inside=True,
        )
        archive = _small_archive(data)
        yield Case(
            "archive",
            archive,
            lambda folder: safe_members(folder / "s.zip"),
            inside=True,
        )
    for name, image in _images().items():
        yield Case(
            "image",
            {name: image},
            lambda folder, n=name: decode((folder / n).read_bytes(), n),
            inside=True,
        )


def _small_archive(data: Path) -> dict[str, bytes]:
    import io
    import zipfile

    rows = (data / "stimuli.csv").read_text().splitlines()[:6]
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(data / "stimuli.zip") as archive,
        zipfile.ZipFile(buffer, "w") as small_archive,
    ):
        for name in archive.namelist():
            if any(name in row for row in rows):
                small_archive.writestr(name, archive.read(name))
    return {"s.csv": "\n".join(rows).encode() + b"\n", "s.zip": buffer.getvalue()}


def _read_stimuli(
    kind: Any, read_table: Callable[[Path], Any]
) -> Callable[[Path], object]:
    def run(folder: Path) -> object:
        stimuli = kind(
            id="s", table=read_table(folder / "s.csv"), archive=folder / "s.zip"
        )
        return [len(content) for content in stimuli.read(stimuli.ids)]

    return run


def _images() -> dict[str, bytes]:
    import io

    import numpy as np
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (9, 7, 3), dtype=np.uint8)
    images = {}
    for ending in ("png", "jpeg", "bmp", "gif", "tiff", "webp", "ppm"):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, ending)
        images[f"i.{ending}"] = file.getvalue()
    return images


def reader_tests() -> dict[str, list[str]]:
    """Test files of the families, with the registered readers for which they are run.

    For each reader, these are the two files that mention it or its module most often, or the one with its name.
    """
    texts = {
        path: path.read_text()
        for path in sorted(ROOT.glob("tests/families/**/test_*.py"))
    }
    readers_of_tests: dict[str, list[str]] = {}
    for name in registry.names("reader"):
        module = registry.get("reader", name).function.__module__
        pattern = re.compile(rf"\b(?:{name}|{re.escape(module)})\b")
        mentions = {path: len(pattern.findall(text)) for path, text in texts.items()}
        mentions |= {path: 1000 for path in texts if path.stem == f"test_{name}"}
        for path in sorted(mentions, key=lambda path: -mentions[path])[:2]:
            if mentions[path]:
                readers_of_tests.setdefault(
                    path.relative_to(ROOT).as_posix(), []
                ).append(name)
    return readers_of_tests


def collect(
    folder: Path, tests: Mapping[str, Sequence[str]] | None = None, seconds: float = 400
) -> list[str]:
    """Run ``tests``, or those of readers, and store the files and parameters of each reader in ``folder``.

    Returns the readers, of these tests or of all that are registered, that read nothing: they have no test, their tests are
    skipped, or the time was not sufficient.
    """
    if tests is None:
        tests, expected = reader_tests(), set(registry.names("reader"))
    else:
        expected = {name for names in tests.values() for name in names}
    environment = {
        **os.environ,
        "NEUROLEDGER_CORPUS": str(folder),
        "NEUROLEDGER_CORPUS_READERS": json.dumps(
            {test: list(names) for test, names in tests.items()}
        ),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.hostile.recorder",
        "-p",
        "no:cacheprovider",
    ]
    command += [
        "-n",
        str(os.cpu_count()),
        "--dist",
        "loadfile",
        "--no-loadscope-reorder",
    ]
    command += [
        "-m",
        "not hub and not braindecode and not frameworks",
        "--continue-on-collection-errors",
    ]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [*command, *tests],
            cwd=ROOT,
            env=environment,
            timeout=seconds,
            capture_output=True,
            check=False,
        )
    return sorted(
        name for name in expected if not any((folder / name).glob("*/about.pickle"))
    )


def reader_cases(corpus: Path) -> Iterator[Case]:
    """The collected files as cases."""
    for place in sorted(corpus.glob("*/*")):
        about = place / "about.pickle"
        if not about.is_file():
            continue
        with about.open("rb") as file:
            name, names, parameters = pickle.load(file)
        files = {
            file_name: (place / str(number)).read_bytes()
            for number, file_name in enumerate(names)
        }
        yield Case(
            f"reader:{name}",
            files,
            functools.partial(_read, name, names, parameters),
            inside=False,
        )


def _read(
    name: str, names: Sequence[str], parameters: dict[str, Any], folder: Path
) -> object:
    return registry.get("reader", name).function(
        {file_name: folder / file_name for file_name in names}, **parameters
    )


def fuzz(
    cases: Sequence[Case], each: int, seed: int, *, until: float = float("inf")
) -> Counter[tuple[str, str, str]]:
    """Test ``each`` inputs of every case name, or as many as the time allows, which is shared equally.

    Returns counts by case, outcome and message.
    """
    by_name: dict[str, list[Case]] = {}
    for case in cases:
        by_name.setdefault(case.name, []).append(case)
    spent = dict.fromkeys(sorted(by_name), 0.0)
    done = dict.fromkeys(spent, 0)
    counts: Counter[tuple[str, str, str]] = Counter()
    while spent and time.monotonic() < until:
        name = min(spent, key=spent.__getitem__)
        began, first = time.monotonic(), done[name]
        numbers = range(first, min(first + BATCH, each))
        jobs = [
            (by_name[name][k % len(by_name[name])], f"{seed}:{name}:{k}")
            for k in numbers
        ]
        for (_, key), outcome in zip(
            jobs, _batch(jobs, min(until, began + SLICE)), strict=False
        ):
            counts[
                name,
                outcome.kind,
                f"{key} {outcome.message}" if outcome.kind == "WRONG" else "",
            ] += 1
            done[name] += 1
        spent[name] += time.monotonic() - began
        if done[name] == each:
            del spent[name]
    return counts


def _batch(
    jobs: Sequence[tuple[Case, str]], until: float = float("inf")
) -> Iterator[Outcome]:
    """Outcomes of the jobs in time; a child process runs them, and a new one continues if it died."""
    at = 0
    while at < len(jobs) and time.monotonic() < until:
        outcomes, died = _in_child(jobs[at:], until)
        yield from outcomes
        at += len(outcomes)
        if died:  # of this input
            yield _run_confined(*jobs[at])
            at += 1


def _in_child(
    jobs: Sequence[tuple[Case, str]], until: float
) -> tuple[list[Outcome], bool]:
    """Outcomes of the jobs that were finished in time, and whether the next one killed the child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        with os.fdopen(writing, "wb") as stream:
            _work(jobs, stream, until)
        os._exit(0)
    os.close(writing)
    outcomes = []
    with os.fdopen(reading, "rb") as stream:
        while head := stream.read(4):
            outcomes.append(
                Outcome(*json.loads(stream.read(struct.unpack("<I", head)[0])))
            )
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return outcomes, status != 0


def _work(jobs: Sequence[tuple[Case, str]], stream: Any, until: float) -> None:
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    faulthandler.disable()
    warnings.simplefilter("ignore")
    bytes_used = (
        int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    )
    resource.setrlimit(resource.RLIMIT_AS, (bytes_used + MEMORY, bytes_used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for case, key in jobs:
        if time.monotonic() > until:
            return
        signal.alarm(SECONDS)
        outcome = _run_case(case, key, case.run)
        signal.alarm(0)
        plain = json.dumps([outcome.kind, outcome.message]).encode()
        stream.write(struct.pack("<I", len(plain)) + plain)
        stream.flush()


def _run_case(case: Case, key: str, run: Callable[[Path], object]) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        for name, data in mutated(case.files, random.Random(key)).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        run(folder)
    except NeuroLedgerError:
        return Outcome("refused")
    except MemoryError as error:
        return (
            Outcome("WRONG", f"MemoryError: {error}")
            if case.inside
            else Outcome("translated")
        )
    except Exception as error:
        if not case.inside:
            return Outcome(
                "translated"
            )  # the readers' process makes one clear error of it
        return Outcome("WRONG", f"{type(error).__name__}: {str(error)[:200]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Outcome("read")


def _run_confined(case: Case, key: str) -> Outcome:
    """Run an input that killed a plain child within the program's own limits: it must be one clear error."""
    if case.inside:
        return Outcome("WRONG", f"the process died or took more than {SECONDS} s")

    def run(folder: Path) -> object:
        limits = Limits(tuple(folder.rglob("*")), (folder,), SECONDS, MEMORY)
        return confined(lambda: case.run(folder), limits, case.name)

    outcome = _run_case(case, key, run)
    return (
        Outcome("WRONG", "no clear error from the readers' process")
        if outcome.kind == "translated"
        else (Outcome("contained") if outcome.kind == "refused" else outcome)
    )


def main() -> int:
    """Collect the corpus, fuzz, and print the outcomes; exit 1 if any is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile.fuzz", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--each",
        type=int,
        default=8000,
        help="inputs of each parser and reader (%(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="cases whose name begins with NAME",
    )
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="stop after this time (%(default)s)"
    )
    options = parser.parse_args()
    began = time.monotonic()
    missing: list[str] = []
    if os.access("/dev/shm", os.W_OK):
        tempfile.tempdir = "/dev/shm"  # files of one input live for milliseconds
    with tempfile.TemporaryDirectory(prefix="corpus-") as corpus:
        cases = list(parser_cases())
        if not options.only or any(name.startswith("reader") for name in options.only):
            missing = collect(Path(corpus))
            cases += reader_cases(Path(corpus))
        if options.only:
            cases = [
                case for case in cases if case.name.startswith(tuple(options.only))
            ]
        if not cases:
            parser.error("nothing to fuzz: no case has such a name")
        readers = {case.name for case in cases if not case.inside}
        print(f"{len(cases)} sets of files, {len(readers)} readers", flush=True)
        counts = _fuzz_in_processes(
            cases, options.each, options.seed, began + 60 * options.minutes
        )
    for name in sorted({name for name, _, _ in counts}):
        kinds = Counter(
            dict.fromkeys(("read", "refused", "translated", "contained", "WRONG"), 0)
        )
        for (of, kind, _), count in counts.items():
            kinds[kind] += count if of == name else 0
        print(
            f"{name:32}"
            + "".join(f"{kind} {count:7,}  " for kind, count in kinds.items())
        )
    wrong: dict[tuple[str, str], list[str]] = {}
    for name, kind, message in counts:
        if kind == "WRONG":
            key, _, exception = message.partition(" ")
            wrong.setdefault((name, exception.split(":")[0]), []).append(
                f"{key} {exception}"
            )
    for (name, exception), message in sorted(wrong.items()):
        print(f"WRONG {name}, {exception}: {len(message)} times, such as {message[0]}")
    if missing:
        print(
            f"MISSING nothing was read by, and nothing tried of: {', '.join(missing)}"
        )
    number = sum(map(len, wrong.values()))
    print(
        f"{counts.total():,} inputs, {number} wrong, {time.monotonic() - began:.0f} s"
    )
    return int(bool(wrong or missing))


def _fuzz_in_processes(
    cases: Sequence[Case], each: int, seed: int, until: float
) -> Counter[tuple[str, str, str]]:
    """Fuzz in several processes with different seeds."""
    workers = (
        os.cpu_count() or 1
    ) + 1  # one more, since others may wait for a confined reader
    pipes = []
    for number in range(workers):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            with os.fdopen(writing, "wb") as stream:
                pickle.dump(
                    fuzz(
                        cases, -(-each // workers), seed * workers + number, until=until
                    ),
                    stream,
                )
            os._exit(0)
        os.close(writing)
        pipes.append(reading)
    counts: Counter[tuple[str, str, str]] = Counter()
    for reading in pipes:
        with os.fdopen(reading, "rb") as stream:
            counts += pickle.load(stream)
        os.wait()
    return counts


if __name__ == "__main__":
    raise SystemExit(main())
