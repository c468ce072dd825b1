"""What happens on a Dask worker: its threads and graphics card are set, and each ticket asks for a job and computes it."""

from __future__ import annotations

import ctypes
import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Generic, NamedTuple, TypeVar

from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin
from filelock import FileLock, Timeout

from neuroledger.data.threads import limit_process
from neuroledger.engine.executors.sharing import GPUS, count_gpus, gpu_of
from neuroledger.engine.plan import Job
from neuroledger.errors import PendingError, UnavailableError

__all__ = [
    "Answer",
    "JobPlugin",
    "Process",
    "claim_gpu",
    "deliver",
    "here",
    "probe",
    "ticket",
]

T = TypeVar("T")

ANSWER_S: Final = 120.0
"""Seconds that a worker waits for the caller to name a job."""

_HELD: dict[str, FileLock] = {}
"""The locks of the graphics cards that this process claimed; they end with it."""


class Process(NamedTuple):
    """A process on a machine."""

    host: str
    pid: int


class Answer(NamedTuple, Generic[T]):
    """The job that was computed for a ticket, and its result."""

    job: Job
    result: T


@dataclass
class JobPlugin(WorkerPlugin, Generic[T]):
    """The work of one run, sent to each worker once, also to those that come later.

    Attributes
    ----------
    name
        The run.
    work, elsewhere
        What computes a job: with the folder of the caller, and without it (None if every worker must see it).
    marker
        A file in the folder of the caller that only this run has; a worker that sees it has the same folder.
    device
        The device of the request.
    caller
        The process that called; a worker inside it keeps the threads of the caller.
    """

    name: str
    work: Callable[[Job], T]
    elsewhere: Callable[[Path, Job], T] | None
    marker: Path | None
    device: str
    caller: Process
    _inbox: dict[int, SimpleQueue[Job | None]] = field(default_factory=dict)

    def setup(self, worker: Worker) -> None:
        """Pin the threads of BLAS: as many as ``OMP_NUM_THREADS`` says, which Dask sets to 1, else those of the worker."""
        if here() == self.caller:
            return
        keep_freed_memory()
        granted = os.environ.get("OMP_NUM_THREADS", "")
        limit_process(int(granted) if granted.isdecimal() else worker.state.nthreads)

    def receive(self, number: int, job: Job | None) -> None:
        """Take the job that the caller sends for a ticket."""
        self._inbox.setdefault(number, SimpleQueue()).put(job)

    def compute(self, worker: Worker, number: int) -> Answer[T] | None:
        """Ask the caller for a job, and compute it; None if the caller has none for this worker.

        Raises
        ------
        PendingError
            The caller does not answer.
        UnavailableError
            This worker does not see the folder of the caller, which all workers saw when the run began.
        """
        asked = {
            "ticket": number,
            "worker": worker.address,
            "threads": worker.state.nthreads,
        }
        inbox = self._inbox.setdefault(number, SimpleQueue())
        worker.log_event(self.name, asked)
        try:
            job = inbox.get(timeout=ANSWER_S)
        except Empty:
            raise PendingError("the caller did not name a job") from None
        finally:
            self._inbox.pop(number, None)
        if job is None:
            return None
        if self.device.startswith("cuda"):
            claim_gpu()
        if self.elsewhere is None:
            if self.marker is not None and not sees(self.marker):
                raise UnavailableError(
                    f"the worker {worker.address} does not see {self.marker.parent}; others did when the run began"
                )
            return Answer(job, self.work(job))
        if sees(self.marker):
            return Answer(job, self.work(job))
        folder = Path(worker.local_directory) / "neuroledger"
        return Answer(job, self.elsewhere(folder, job))


def keep_freed_memory() -> None:
    """Let the allocator of glibc keep memory that arrays have freed, as it does in any other process.

    Dask's nanny sets ``MALLOC_TRIM_THRESHOLD_``, by which every array over 128 kB is new memory of the system: jobs then
    take twice the processor time. The values are those that glibc reaches by itself (mallopt(3)).
    """
    trim_threshold, mmap_threshold = -1, -3
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(mmap_threshold, 32 * 1024**2)
        libc.mallopt(trim_threshold, 64 * 1024**2)


def here() -> Process:
    """Return this process."""
    return Process(socket.gethostname(), os.getpid())


def ticket(run: str, number: int) -> Answer[object] | None:
    """Compute one job of a run on this worker, whichever the caller names when it begins."""
    worker = get_worker()
    plugin = _plugin(worker, run)
    if plugin is None:
        raise PendingError(f"the worker {worker.address} could not load the run")
    return plugin.compute(worker, number)


def deliver(run: str, number: int, job: Job | None, dask_worker: Worker) -> None:
    """Give a ticket of this worker its job."""
    plugin = _plugin(dask_worker, run)
    if plugin is not None:
        plugin.receive(number, job)


def _plugin(worker: Worker, run: str) -> JobPlugin[object] | None:
    found = worker.plugins.get(run)
    return found if isinstance(found, JobPlugin) else None


class Probed(NamedTuple):
    """What a worker answers before a run: whether it sees the folder of the caller, and which resources it declares."""

    sees: bool
    resources: dict[str, float]


def probe(marker: Path | None, dask_worker: Worker) -> Probed:
    """Return what the caller must know of this worker."""
    return Probed(sees(marker), dict(dask_worker.state.total_resources))


def sees(marker: Path | None) -> bool:
    """Whether this process sees the folder of the caller, by a file in it."""
    return marker is not None and marker.exists()


def claim_gpu(folder: Path | None = None) -> None:
    """Make one graphics card visible to this process: the first that no worker of this machine holds.

    A process that sees one card or none, as Slurm and dask-cuda arrange it, keeps it. If all are held, workers share them.
    """
    if GPUS in _HELD:
        return
    count = len(os.environ[GPUS].split(",")) if os.environ.get(GPUS) else count_gpus()
    if count < 2:
        return
    folder = folder or Path(tempfile.gettempdir()) / "neuroledger-gpus"
    folder.mkdir(mode=0o777, parents=True, exist_ok=True)
    names = [gpu_of(number, count) for number in range(count)]
    for name in names:
        lock = FileLock(folder / f"{name.replace('/', '_')}.lock")
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):
            continue
        _HELD[GPUS] = lock
        os.environ[GPUS] = name
        return
    os.environ[GPUS] = names[os.getpid() % count]
