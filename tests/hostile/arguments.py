"""Call every verb with odd values for every argument, each in its own process; it must end in time without a traceback."""

from __future__ import annotations

import importlib
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroledger.cli import VERBS, main
from tests.cli.words import options_of
from tests.engine.lab import build

__all__ = ["Call", "calls", "odd_values", "run_call"]

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 60
LIBRARIES = (
    "great_expectations",
    "h5py",
    "matplotlib",
    "netCDF4",
    "pandas",
    "scipy.io",
    "sklearn",
    "torch",
    "xarray",
)
BYTES = 6 << 30
# Options that open a browser or serve forever.
LEFT_OUT = {("report", "--serve"), ("report", "--open")}
# Values of arguments, by the word that stands for them in the help.
PLAIN = {"ID": "lab", "BENCHMARK": "lab.V4-ridge", "MODEL": "pixels4"}
FAILED = {-signal.SIGALRM: f"no answer in {SECONDS} s", 70: "a traceback"}


@dataclass(frozen=True)
class Call:
    """One call of the command line, with a description of its odd argument."""

    odd: str
    words: tuple[str, ...]


def odd_values(place: Path) -> dict[str, str]:
    """Odd values by description; files are written to ``place``."""
    place.mkdir(parents=True, exist_ok=True)
    contents = {
        "empty.csv": b"",
        "binary.csv": bytes(range(256)) * 40,
        "binary.npy": b"\x93NUMPY" + bytes(range(256)),
        "binary.nc": b"\x89HDF\r\n\x1a\n" + bytes(range(256)) * 9,
        "binary.zip": b"PK\x03\x04" + bytes(99),
        "binary.json": b"\xff\xfe{",
        "deep.json": b"[" * 100_000,
        "binary.yaml": b"\x00\x01a: b",
        "notes.md": b"\xff# x\n",
        "binary.png": b"\x89PNG\r\n\x1a\n" + bytes(99),
        "binary.pt": b"\x80\x04cos\nsystem\n.",
        "binary.mat": b"MATLAB" * 40,
        "binary.safetensors": bytes(range(256)),
        "nan.csv": b"stimulus_id,a\nx,nan\nx,1e999\n",
        "binary.onnx": b"\x08" * 99,
    }
    for name, content in contents.items():
        (place / name).write_bytes(content)
    (place / "folder").mkdir(exist_ok=True)
    (place / "closed").mkdir(exist_ok=True)
    (place / "loop").unlink(missing_ok=True)
    (place / "loop").symlink_to("loop")
    if not (place / "pipe.csv").exists():
        os.mkfifo(place / "pipe.csv")
    values = {
        name: str(place / name)
        for name in (*contents, "folder", "loop", "pipe.csv", "missing.csv")
    }
    return values | {
        "nothing": "", "a blank": " ", "a dash": "-", "two dashes": "--", "zeros": "/dev/zero", "nowhere": "/dev/null",
        "the terminal": "/dev/stdin", "root": "/", "up": "../../..", "long": "x" * 5000, "a long path": "a/" * 3000,
        "letters": "ж\u202e\U0001f9e0", "half a letter": "\udcff", "a line break": "a\nb", "a control": "a\x01b",
        "negative": "-1", "large": "9" * 400, "not a number": "nan", "endless": "inf", "a pattern": "*[",
        "an equation": "a=b=c", "a colon": "::", "a comma": ",,,", "braces": "{{7*7}}{", "percent": "%s%n%(x)s",
        "quotes": "'\"`$(true)",
    }  # fmt: skip


def calls(values: dict[str, str]) -> Iterator[Call]:
    """Calls of every argument of every verb with each odd value, and plain values for other required arguments."""
    for verb in VERBS:
        parameters = options_of(verb)
        needed = [
            one
            for one in parameters
            if one.required or (_is_argument(one) and one.nargs == 1)
        ]
        for odd in parameters:
            flag = "" if _is_argument(odd) else odd.opts[-1]
            if getattr(odd, "is_flag", False) or (verb, flag) in LEFT_OUT:
                continue
            words = [verb]
            for other in needed:
                if other is not odd:
                    words += [] if _is_argument(other) else [other.opts[-1]]
                    words.append(_plain(other))
            for description, value in values.items():
                odd_word = f"{flag}={value}" if flag else value
                name = flag or odd.name
                yield Call(f"{verb} {name}: {description}", (*words, odd_word))


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _plain(parameter: Any) -> str:
    """A value that the command line takes."""
    choices = parameter.type_descriptor.choices
    return str(choices[0]) if choices else PLAIN.get(str(parameter.metavar), "lab")


def run_call(call: Call, root: Path) -> str:
    """Run a call in a copy of the repository ``root``; return the problem, or an empty text if there is none."""
    with tempfile.TemporaryDirectory() as place:
        work = Path(place) / "lab"
        shutil.copytree(root, work)
        output = Path(place) / "said"
        child = os.fork()
        if child == 0:
            _answer(call, work, output)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        text = output.read_text(errors="replace") if output.exists() else ""
    if status in FAILED:
        return f"{FAILED[status]}: {text[-1500:]}"
    if status < 0:
        return f"signal {-status}"
    return f"a traceback: {text[-1500:]}" if "Traceback (most" in text else ""


def _answer(call: Call, work: Path, output: Path) -> None:
    """Run the call in this process, and exit."""
    code = 70
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
        os.chdir(work)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        written = os.open(output, os.O_WRONLY | os.O_CREAT)
        os.dup2(written, 1)
        os.dup2(written, 2)
        sys.stdout = io.TextIOWrapper(
            os.fdopen(1, "wb", 0, closefd=False), "utf-8", write_through=True
        )
        sys.stderr = io.TextIOWrapper(
            os.fdopen(2, "wb", 0, closefd=False),
            "utf-8",
            "backslashreplace",
            write_through=True,
        )
        try:
            code = main(["--root", str(work), *call.words])
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else 1
        except BaseException:
            traceback.print_exc()
    finally:
        os._exit(code if 0 <= code < 256 else 71)


def enumerate_calls(sample: int | None = None, seed: int = 0) -> tuple[int, list[str]]:
    """The number of calls, and their problems."""
    for name in LIBRARIES:  # import once, instead of in every call
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "lab"
        build(root, REPOSITORY)
        chosen: Sequence[Call] = list(calls(odd_values(Path(place) / "odd")))
        if sample is not None:
            chosen = random.Random(seed).sample(chosen, sample)
        problems = [
            f"{call.odd}: {problem}"
            for call in chosen
            if (problem := run_call(call, root))
        ]
    return len(chosen), problems


if __name__ == "__main__":
    began = time.monotonic()
    tries, bad = enumerate_calls(
        int(sys.argv[1]) if len(sys.argv) > 1 else None,
        int(sys.argv[2]) if len(sys.argv) > 2 else 0,
    )
    sys.stdout.writelines(f"✗ {words}\n" for words in bad)
    sys.stdout.write(
        f"{tries:,} calls with an odd argument: {len(bad)} bad, {time.monotonic() - began:.0f} s\n"
    )
    raise SystemExit(bool(bad))
