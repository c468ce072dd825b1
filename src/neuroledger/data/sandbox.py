"""Run a function in a child process with limits on memory, time and files, and return plain data.

Untrusted files are parsed by C libraries, which a damaged file can crash, stall or make allocate terabytes. The child is a
fork: it starts in milliseconds, sees components that a program registered itself, and shares no state with the caller
afterwards. It is limited by ``setrlimit`` (memory, CPU time, core files) and, if the kernel supports them, by Landlock,
which allows only the given files, the installed libraries and one scratch folder, and by seccomp, which allows no socket.

The result returns through a memory file: arrays as raw bytes that the caller maps, everything else as a pickle whose
globals are a short list of NumPy, pandas and xarray constructors, so that even a child that a file took over cannot run
code in the caller. Unlike JSON, pickles preserve types exactly (mixed columns, text indexes).

Only Linux has all of this. On other systems the function runs in the calling process, and `confines` returns False.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import gc
import io
import json
import logging
import mmap
import os
import pickle
import platform
import re
import select
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from functools import lru_cache
from importlib import import_module
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

import numpy as np
import pandas as pd
import xarray as xr
from xarray.core.indexes import PandasIndex, PandasMultiIndex
from xarray.core.indexing import PandasIndexingAdapter

from neuroledger.data.arrays import Array
from neuroledger.data.clocks import Clock, Empty, Gap, LeftOut, RecordingClocks
from neuroledger.data.dataset import Dataset
from neuroledger.data.facts import Fact
from neuroledger.data.memory import available_bytes
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import (
    DataError,
    LimitError,
    NeuroLedgerError,
    PendingError,
    SpecError,
    StorageError,
    UnavailableError,
    causes_of,
    error_named,
    is_about_machine,
)

__all__ = ["Limits", "confined", "confines", "limits_for"]

T = TypeVar("T")
# What is called with the file of a memory map, and the map.
Mapped = Callable[[Path, Array], None]
log = logging.getLogger("neuroledger")

SECONDS: Final = "NEUROLEDGER_READER_SECONDS"
"""Environment variable that replaces the default limit of CPU seconds for one run of a reader."""
LONGER: Final = f"if the files need more time, set {SECONDS}"
BASE_SECONDS: Final = 300
BYTES_PER_SECOND: Final = 1 << 19
SPARE_SECONDS: Final = 60
WALL_FACTOR: Final = 20
"""Ratio of elapsed to CPU time beyond which a child counts as blocked; high enough for a slow network disk."""
MEMORY_SHARE: Final = 0.9
ALIGNMENT: Final = 64
NOTE_BYTES: Final = 4096

INSTALLATION: Final = re.compile(r"pip install 'neuroledger\[[a-z0-9]+\]'")
STOPPED: Final = frozenset(
    {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
)
"""Exit statuses of a process that another one stopped, such as the system for lack of memory."""
OUTSIDE: Final = frozenset(
    {
        errno.ENOENT,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EBADF,
    }
)

# The packages, functions and their modules that a result may name. All of them only build values from their arguments;
# none opens, imports or calls anything. Names of classes differ between versions of pandas, so `_classes` lists objects.
PACKAGES: Final = frozenset(
    {
        "builtins",
        "collections",
        "datetime",
        "neuroledger",
        "numpy",
        "pandas",
        "pathlib",
        "xarray",
    }
)
NAMES: Final = frozenset(
    {
        "__pyx_unpickle_NDArrayBacked",
        "_frombuffer",
        "_nat_unpickle",
        "_new_Index",
        "_reconstruct",
        "_unpickle_block",
        "scalar",
    }
)
BUILDERS: Final = frozenset(
    {
        "numpy.core.multiarray",
        "numpy._core.multiarray",
        "numpy.core.numeric",
        "numpy._core.numeric",
        "pandas._libs.arrays",
        "pandas._libs.internals",
        "pandas._libs.tslibs.nattype",
        "pandas.core.indexes.base",
    }
)


# Libraries that the caller imports before it forks again, once a child has imported them, so that not every child does.
LIBRARIES: Final = frozenset(
    {
        "av",
        "cftime",
        "dask",
        "h5py",
        "hdmf",
        "lazy_loader",
        "lz4",
        "mne",
        "mne_bids",
        "neo",
        "netCDF4",
        "nibabel",
        "nilearn",
        "openpyxl",
        "pandas",
        "pooch",
        "pynwb",
        "pyxdf",
        "quantities",
        "scipy",
        "sklearn",
        "soundfile",
        "xarray",
        "zarr",
        "zstandard",
    }
)
_TO_IMPORT: set[str] = set()


@lru_cache(maxsize=1)
def _classes() -> frozenset[type]:
    return frozenset(
        {
            bytearray,
            complex,
            frozenset,
            range,
            set,
            slice,
            OrderedDict,
            date,
            datetime,
            timedelta,
            timezone,
            type(Path()),
            PurePosixPath,
            Dataset,
            StimulusSet,
            np.ndarray,
            np.dtype,
            pd.DataFrame,
            pd.Series,
            pd.Index,
            pd.RangeIndex,
            pd.MultiIndex,
            pd.Categorical,
            pd.CategoricalDtype,
            pd.StringDtype,
            pd.arrays.StringArray,
            pd.arrays.IntegerArray,
            pd.Int64Dtype,
            pd.arrays.BooleanArray,
            pd.BooleanDtype,
            type(pd.NA),
            type(pd.DataFrame()._mgr),
            type(pd.Series(dtype=float)._mgr),
            xr.DataArray,
            xr.Variable,
            xr.IndexVariable,
            PandasIndex,
            PandasMultiIndex,
            PandasIndexingAdapter,
            RecordingClocks,
            Clock,
            Gap,
            LeftOut,
            Empty,
            Fact,
        }
    )


@dataclass(frozen=True)
class Limits:
    """Limits of a confined function.

    Attributes
    ----------
    readable
        Files that it may read, in addition to installed libraries; it may also list their folders.
    writable
        Folders below which it may write.
    seconds
        CPU time of the child, summed over threads.
    memory
        Bytes that it may allocate in addition to the caller's memory; None for no limit.
    """

    readable: Sequence[Path] = ()
    writable: Sequence[Path] = ()
    seconds: int = BASE_SECONDS
    memory: int | None = None


def confines() -> bool:
    """Whether `confined` uses a child process on this system."""
    return sys.platform == "linux"


def limits_for(files: Iterable[Path], writable: Sequence[Path] = ()) -> Limits:
    """Limits for parsing these files: most of the free memory, and CPU time that grows with their size.

    Raises
    ------
    LimitError
        ``NEUROLEDGER_READER_SECONDS`` is not a number of seconds.
    """
    readable = tuple(files)
    size = sum(path.stat().st_size for path in readable if path.exists())
    seconds = BASE_SECONDS + size // BYTES_PER_SECOND
    override = os.environ.get(SECONDS, "")
    if override:
        if not override.isdecimal() or len(override) >= 10 or int(override) == 0:
            raise LimitError(
                f"{SECONDS} is {override!r}, not a whole number of seconds: correct or unset it"
            )
        seconds = int(override)
    free = available_bytes()
    if free is None:
        memory = None
    else:
        memory = int(MEMORY_SHARE * free)
    return Limits(readable, tuple(writable), seconds, memory)


def confined(
    function: Callable[[], T],
    limits: Limits,
    what: str,
    mapped: Mapped | None = None,
) -> T:
    """Compute ``function()`` in a child process within limits, and return its result.

    ``what`` describes the work in error messages. Results are plain data, NumPy, pandas or xarray values, and
    `Dataset`; memory maps of files in ``limits`` are returned as memory maps, and ``mapped`` is called for each.

    Raises
    ------
    NeuroLedgerError
        `function` raised it.
    LimitError
        It reached a limit of memory or time, or was killed.
    StorageError, UnavailableError
        The disk failed, or a package is missing.
    DataError
        It raised another exception or crashed; the message names the file it opened last.
    """
    if not confines():
        try:
            return function()
        except Exception as error:
            raise _as_own_error(_described(error), what) from error
    while _TO_IMPORT:
        with suppress(Exception):
            import_module(_TO_IMPORT.pop())
    scratch = Path(tempfile.mkdtemp(prefix="neuroledger-"))
    libraries = _library_folders()
    result, (reading, writing), note = (
        os.memfd_create("neuroledger"),
        os.pipe(),
        mmap.mmap(-1, NOTE_BYTES),
    )
    child = 0
    try:
        try:
            child = os.fork()
        except OSError as error:
            raise LimitError(
                f"{what}: no process can be started ({error.strerror}); free memory"
            ) from error
        if child == 0:
            os.close(reading)
            _run_in_child(function, limits, libraries, scratch, result, writing, note)
        os.close(writing)
        writing = -1
        message = _read_message(reading, limits.seconds * WALL_FACTOR)
        if message is None:
            os.kill(child, signal.SIGKILL)
        status = _wait_for(child)
        child = 0
        value: T = _receive(message, status, result, note, limits, mapped, what)
        return value
    finally:
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            _wait_for(child)
        for descriptor in (reading, writing, result):
            if descriptor >= 0:
                os.close(descriptor)
        note.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _read_message(reading: int, seconds: float) -> bytes | None:
    """The child's whole message, complete when the child ends; None if it does not end in time."""
    deadline = time.monotonic() + seconds
    message = bytearray()
    poll = select.poll()
    poll.register(reading, select.POLLIN | select.POLLHUP)
    while (remaining := deadline - time.monotonic()) > 0:
        if poll.poll(min(remaining, 3600) * 1000):
            block = os.read(reading, 1 << 16)
            if not block:
                return bytes(message)
            message += block
    return None


def _wait_for(child: int) -> int:
    """The exit status of the child, negative for a signal."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # the caller ignores SIGCHLD
        return 0


def _receive(
    message: bytes | None,
    status: int,
    result: int,
    note: mmap.mmap,
    limits: Limits,
    mapped: Mapped | None,
    what: str,
) -> Any:
    name = note[:].rstrip(b"\0").decode("utf-8", errors="replace")
    if name:
        what = f"{what}: reading {name}"
    if message is None:
        raise LimitError(
            f"{what} did not end in {limits.seconds * WALL_FACTOR} s; {LONGER}"
        )
    if not message:
        raise _ended_early(what, status, limits)
    try:
        report = json.loads(message)
        if "error" in report:
            log.debug("%s: %s", what, report["trace"])
            raise _as_own_error(
                {name: str(text) for name, text in report["error"].items()}, what
            )
        _TO_IMPORT.update(
            name for name in report["imported"] if name.partition(".")[0] in LIBRARIES
        )
        return _unpack(
            result, report["buffers"], [*limits.readable, *limits.writable], mapped
        )
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        pickle.UnpicklingError,
        OSError,
    ) as error:
        raise DataError(
            f"{what} returned an invalid result ({type(error).__name__}: {error}): the file is damaged"
        ) from error


def _ended_early(what: str, status: int, limits: Limits) -> Exception:
    """The error for a process that ended without a result; a negative status is a signal."""
    if status == -signal.SIGXCPU:
        return LimitError(
            f"{what} took more than {limits.seconds} s of CPU time; {LONGER}"
        )
    cause = f"exit status {status}"
    if status < 0:
        cause = f"signal {signal.Signals(-status).name}"
    if status in STOPPED:
        return LimitError(
            f"{what}: its process was stopped ({cause}); free memory and try again"
        )
    return DataError(
        f"{what} crashed the process that parses it ({cause}): the file is damaged; fetch the file again"
    )


def _described(error: BaseException) -> dict[str, str]:
    """Describe an exception as plain data: its type, message and command, and the kind of a state of the machine."""
    text = error.message if isinstance(error, PendingError) else str(error)
    command = error.command if isinstance(error, PendingError) else ""
    machine = next(
        (kind for each in causes_of(error) if (kind := _machine_kind(each))), ""
    )
    return {
        "kind": type(error).__name__,
        "text": text,
        "command": command,
        "machine": machine,
    }


def _machine_kind(error: BaseException) -> str:
    """The name of the error that reports the same state of the machine; empty for a statement about the contents.

    A file that is absent or forbidden here is one that the contents name, since the declared files may be read.
    """
    if isinstance(error, PendingError) or not is_about_machine(error):
        return ""
    if isinstance(error, OSError):
        if error.errno in OUTSIDE:
            return ""
        return StorageError.__name__
    if isinstance(error, ImportError):
        return UnavailableError.__name__
    return LimitError.__name__


def _as_own_error(described: dict[str, str], what: str) -> NeuroLedgerError:
    """The child's exception: of the same class if it is this project's, of the machine's state, or a `DataError`."""
    kind = described["kind"]
    text = described["text"]
    if kind == SpecError.__name__:
        own = None
    else:
        own = error_named(kind)
    if own is not None and issubclass(own, PendingError):
        command = described["command"]
        # A file may have taken over the child: only the command that installs an extra is passed on.
        if INSTALLATION.fullmatch(command) is None:
            command = ""
        return own(text, command)
    machine = {
        each.__name__: each for each in (LimitError, StorageError, UnavailableError)
    }.get(described["machine"])
    if machine is not None:
        if own is None:
            text = f"{what} failed ({kind}: {text})"
        return machine(text)
    if own is not None:
        return own(text)
    return DataError(
        f"{what} failed ({kind}: {text}): a file is damaged or of another format"
    )


# In the child


def _run_in_child(
    function: Callable[[], object],
    limits: Limits,
    libraries: Sequence[str],
    scratch: Path,
    result: int,
    writing: int,
    note: mmap.mmap,
) -> None:
    """Run the function, send its result or error, and end the process, so that no code of the caller runs in it."""
    try:
        gc.freeze()  # a collection would write to, and so copy, every page that is shared with the caller
        null = os.open(os.devnull, os.O_RDONLY)
        for descriptor in [
            int(entry.name) for entry in Path("/proc/self/fd").iterdir()
        ]:
            if descriptor not in {
                0,
                1,
                2,
                null,
                result,
                writing,
            }:  # connections and locks of the caller
                # Not closed: the number would be reused, and an object of the caller could close the new file.
                os.dup2(null, descriptor)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        try:
            _use_one_thread()
            _apply_limits(limits, libraries, scratch)
            _note_opened_files(limits.readable, note)
            count = len(sys.modules)
            buffers = _pack(
                function(), result, [*limits.readable, *limits.writable], scratch
            )
            # Only the new names: reading a name changes its reference count, and so copies its page.
            added = [*islice(reversed(sys.modules), max(0, len(sys.modules) - count))]
            report: dict[str, Any] = {"buffers": buffers, "imported": added}
        except BaseException as error:  # also KeyboardInterrupt and SystemExit, which only the caller can report
            report = {"error": _described(error), "trace": traceback.format_exc()}
        view = memoryview(json.dumps(report).encode())
        while view:
            view = view[os.write(writing, view) :]
    finally:
        os._exit(0)


def _use_one_thread() -> None:
    """Let torch compute in this thread only: the threads of its pool do not exist in a fork, which would wait for them."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


def _apply_limits(limits: Limits, libraries: Sequence[str], scratch: Path) -> None:
    import resource

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(
        1, signal.SIGKILL, 0, 0, 0
    )  # PR_SET_PDEATHSIG: the child does not outlive its caller
    faulthandler.disable()
    tempfile.tempdir = str(scratch)
    # Libraries look for settings and write caches in these folders.
    folders = (
        "TMPDIR",
        "HOME",
        "_MNE_FAKE_HOME_DIR",
        "MPLCONFIGDIR",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "NUMBA_CACHE_DIR",
    )
    os.environ.update(dict.fromkeys(folders, str(scratch)))
    os.environ["JOBLIB_MULTIPROCESSING"] = (
        "0"  # joblib would warn that it cannot create semaphores
    )
    _lower_limit(resource.RLIMIT_CORE, 0)
    used = int(resource.getrusage(resource.RUSAGE_SELF).ru_utime)
    _lower_limit(
        resource.RLIMIT_CPU,
        used + limits.seconds,
        used + limits.seconds + SPARE_SECONDS,
    )
    if limits.memory is not None:
        # VmData counts private writable pages, but neither mapped files nor the address space that GPU drivers reserve.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        allocated = int(status.partition("VmData:")[2].split()[0]) << 10
        _lower_limit(resource.RLIMIT_DATA, allocated + limits.memory)
    _restrict_files(libc, limits, libraries, scratch)
    _refuse_sockets(libc)


def _lower_limit(kind: int, soft: int, hard: int | None = None) -> None:
    import resource

    current = resource.getrlimit(kind)[1]
    if hard is None:
        hard = soft
    hard = hard if current == resource.RLIM_INFINITY else min(hard, current)
    resource.setrlimit(kind, (min(soft, hard), hard))


READ_FILE = 4
READ_DIR = 8
EXECUTE = 1
DEVICE = 1 << 15
READABLE_ANYWHERE = (
    "/usr",
    "/lib",
    "/lib64",
    "/sys",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys",
    "/proc/self/maps",
    "/proc/self/status",
    "/proc/self/statm",
    "/proc/self/mountinfo",
    "/proc/self/cgroup",
)
# By processor: its number in the kernel, and the system calls that create a socket and an io_uring.
CALLS = {
    "x86_64": (0xC000003E, 41, 425, 0x40000029, 0x400001A9),
    "aarch64": (0xC00000B7, 198, 425),
}


def _restrict_files(
    libc: ctypes.CDLL, limits: Limits, libraries: Sequence[str], scratch: Path
) -> None:
    """Restrict files and network of this process with Landlock (system calls 444 to 446), as far as the kernel can."""
    version = libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    if version < 1:
        return
    every = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    # Files; TCP from version 4; abstract sockets and signals to other processes from version 6.
    rules = struct.pack("=QQQ", every, 3, 3)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    ruleset = libc.syscall(444, rules, ctypes.c_size_t(len(rules)), ctypes.c_uint(0))
    if ruleset < 0:
        return

    def allow(path: Path | str, rights: int) -> None:
        with suppress(OSError):
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
            if not Path(path).is_dir():
                rights &= ~(every & ~(1 | 2 | 4 | (1 << 14) | DEVICE))
            libc.syscall(
                445, ruleset, 1, struct.pack("=Qi", rights & every, descriptor), 0
            )
            os.close(descriptor)

    for path in dict.fromkeys([*READABLE_ANYWHERE, *libraries]):
        allow(path, READ_FILE | READ_DIR)
    for file in limits.readable:
        allow(file, READ_FILE)
    for folder in dict.fromkeys(file.parent for file in limits.readable):
        allow(folder, READ_DIR)
    allow("/dev/null", READ_FILE | 2)
    for folder in (scratch, *limits.writable):
        allow(folder, every & ~EXECUTE & ~DEVICE)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, which Landlock requires
    libc.syscall(446, ruleset, 0)
    os.close(ruleset)


def _refuse_sockets(libc: ctypes.CDLL) -> None:
    """Refuse sockets of every kind to this process with a seccomp filter; Landlock only covers TCP."""
    if (processor := CALLS.get(platform.machine())) is None or sys.maxsize < 1 << 32:
        return
    kind, *numbers = processor
    # Load the architecture and refuse calls of another one; load the call; refuse the listed numbers, allow all others.
    steps = [
        (0x20, 0, 0, 4),
        (0x15, 1, 0, kind),
        (0x06, 0, 0, 0x00050000 | errno.EACCES),
        (0x20, 0, 0, 0),
    ]
    for number in numbers:
        steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno.EACCES)]
    steps.append((0x06, 0, 0, 0x7FFF0000))
    program = ctypes.create_string_buffer(
        b"".join(struct.pack("=HBBI", *step) for step in steps)
    )
    descriptor = struct.pack("@HP", len(steps), ctypes.addressof(program))
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, which filters require
    libc.prctl(22, 2, descriptor, 0, 0)  # PR_SET_SECCOMP


def _library_folders() -> tuple[str, ...]:
    """Folders of installed code, without the working directory and its parents, which may be in sys.path too."""
    inside = f"{os.getcwd()}{os.sep}"  # noqa: PTH109 # compared with the entries of sys.path, which are text
    return _installed_folders(inside, tuple(sys.path), len(sys.modules))


@lru_cache(maxsize=8)
def _installed_folders(
    inside: str, path: tuple[str, ...], modules: int
) -> tuple[str, ...]:
    """Without links, which can lead out of a folder. Cached, because reading the modules copies pages in a child."""
    real = map(os.path.realpath, filter(None, path))
    installed = [entry for entry in real if not inside.startswith(f"{entry}{os.sep}")]
    packages = [
        file.removesuffix("/__init__.py")
        for name, module in list(sys.modules.items())
        if "." not in name
        and (file := getattr(module, "__file__", None) or "").endswith("/__init__.py")
    ]
    folders: list[str] = []
    for folder in sorted(
        {*map(os.path.realpath, (sys.prefix, sys.base_prefix, *packages)), *installed}
    ):
        if not folders or not folder.startswith(f"{folders[-1]}{os.sep}"):
            folders.append(folder)
    return tuple(folders)


def _note_opened_files(files: Sequence[Path], note: mmap.mmap) -> None:
    """Write the name of the last opened file to memory that the caller can still read after a crash."""
    names = {str(path): path.name.encode()[: NOTE_BYTES - 1] for path in files}

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in {"open", "neuroledger.open"} and arguments:
            name = names.get(str(arguments[0]))
            if name is not None:
                note[:] = name.ljust(NOTE_BYTES, b"\0")

    sys.addaudithook(hook)


# Transfer of the result


class _Packer(pickle.Pickler):
    """Pickle arrays in memory out of band, and memory maps of files that the caller may open as file name and offset."""

    def __init__(
        self,
        stream: io.BytesIO,
        allowed: Sequence[Path],
        scratch: Path,
        buffers: list[pickle.PickleBuffer],
    ) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.append)
        self._allowed = allowed
        self._scratch = scratch

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, np.memmap) and value.flags.c_contiguous:
            return np.asarray(value).__reduce_ex__(5)
        if isinstance(value, pd.arrays.ArrowStringArray):
            return _without_arrow(value).__reduce_ex__(5)
        return NotImplemented

    def persistent_id(self, value: object) -> object:
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return None
        base: object = value
        while isinstance(base, np.ndarray) and isinstance(base.base, np.ndarray):
            base = base.base
        if not isinstance(base, np.memmap) or base.filename is None:
            return None
        path = Path(base.filename)
        if (
            not _is_below(path, self._allowed)
            or _is_below(path, [self._scratch])
            or base.mode not in {"r", "c"}
        ):
            return None
        start = (
            value.__array_interface__["data"][0]
            - base.__array_interface__["data"][0]
            + base.offset
        )
        return str(path), value.dtype.str, start, value.shape, value.strides


def _without_arrow(
    texts: pd.arrays.ArrowStringArray,
) -> pd.api.extensions.ExtensionArray:
    """Return texts that pandas keeps in Arrow, as it does where pyarrow is installed, as an array of Python's strings.

    The pickle of an Arrow array calls functions of pyarrow, which a result may not name.
    """
    missing = texts.dtype.na_value
    if missing is pd.NA:
        kind = pd.StringDtype("python")
    else:
        kind = pd.StringDtype("python", na_value=missing)
    return texts.astype(kind)


class _Unpacker(pickle.Unpickler):
    """Unpickle a result of `_Packer`; refuses every global that is not listed above, and maps of other files."""

    def __init__(
        self,
        stream: io.BytesIO,
        allowed: Sequence[Path],
        mapped: Mapped | None,
        buffers: Iterable[memoryview],
    ) -> None:
        super().__init__(stream, buffers=buffers)
        self._allowed = allowed
        self._mapped = mapped

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in PACKAGES and "." not in name:
            value = super().find_class(module, name)
            if isinstance(value, type) and value in _classes():
                return value
            if value is pd.NA or (name in NAMES and module in BUILDERS):
                return value
        raise pickle.UnpicklingError(f"{module}.{name} is not part of a data set")

    def persistent_load(self, reference: Any) -> Any:
        path, dtype, start, shape, strides = reference
        if not _is_below(Path(path), self._allowed):
            raise pickle.UnpicklingError("a memory map of another file")
        buffer = np.memmap(path, dtype=np.uint8, mode="r")
        if self._mapped is not None:
            self._mapped(Path(path), buffer)
        return np.ndarray(shape, np.dtype(dtype), buffer, start, strides)


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    resolved = path.resolve()
    return any(resolved.is_relative_to(folder.resolve()) for folder in folders)


def _pack(
    value: object, result: int, allowed: Sequence[Path], scratch: Path
) -> list[list[int]]:
    """Write the value to the memory file; returns start and length of the pickle and of every buffer."""
    stream = io.BytesIO()
    buffers = list[pickle.PickleBuffer]()
    _Packer(stream, allowed, scratch, buffers).dump(value)
    parts = list[list[int]]()
    start = 0
    for part in [stream.getbuffer(), *(buffer.raw() for buffer in buffers)]:
        parts.append([start, part.nbytes])
        written = 0
        while written < part.nbytes:
            written += os.pwrite(
                result, part[written : written + (1 << 30)], start + written
            )
        start += -(-part.nbytes // ALIGNMENT) * ALIGNMENT
    os.ftruncate(result, max(start, 1))
    return parts


def _unpack(
    result: int, parts: list[list[int]], allowed: Sequence[Path], mapped: Mapped | None
) -> Any:
    # Private: arrays that are only read share the child's pages, and writing copies single pages.
    memory = memoryview(
        mmap.mmap(
            result, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        )
    )
    stream, *buffers = (memory[start : start + size] for start, size in parts)
    return _Unpacker(io.BytesIO(stream), allowed, mapped, buffers).load()
