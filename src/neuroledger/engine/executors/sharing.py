"""What workers share: jobs, so that few of them compute the same ceiling, and the graphics cards of a machine."""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    MutableMapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import fmean
from typing import Final, Generic, NamedTuple, TypeVar

from neuroledger.engine.plan import Job, other_models
from neuroledger.errors import NeuroLedgerError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.registry import families, mentioning
from neuroledger.spec.shipped import DISTRIBUTION
from neuroledger.store.derived import derived_at, key_of

__all__ = [
    "GPUS",
    "Calls",
    "Done",
    "Needs",
    "Queue",
    "count_gpus",
    "gpu_of",
    "imports_of",
    "keep_memory",
    "machine_needs",
]

T = TypeVar("T")
Done = Iterator[tuple[Job, T]]
Group = tuple[str, str]
"""A data set and a benchmark."""

GPUS: Final = "CUDA_VISIBLE_DEVICES"

IMPORTED: Final = (
    "neuroledger.engine.run",
    "sklearn.model_selection",
    "h5py",
    "dask.array",
    "distributed",
)
"""What a worker takes seconds to import: its own modules, and those with which it opens files and computes scores."""


def _nothing(_: object) -> str:
    return ""


def _silent(_: str) -> None:
    """Say nothing."""


class Needs(NamedTuple):
    """What a job needs of a machine, as its specs declare: bytes of memory, graphics cards, seconds; 0 if not declared.

    Where no memory is declared, ``usual`` is what earlier runs took: of this job, if it was ``measured``, else at most of
    its benchmark or its data set. No law of data and model is assumed; it is no bound, and part of no record.
    """

    memory: int = 0
    gpus: int = 0
    seconds: float = 0.0
    usual: int = 0
    measured: bool = False

    @property
    def bytes(self) -> int:
        """The memory that is declared or usual; 0 if nothing is known."""
        return self.memory or self.usual

    def __str__(self) -> str:
        parts = []
        if self.memory:
            parts.append(f"{self.memory / 1e9:g} GB")
        elif self.usual:
            source = "measured in an earlier run" if self.measured else "estimated"
            parts.append(f"{self.usual / 1e9:.1f} GB ({source})")
        if self.gpus:
            parts.append(f"{self.gpus} GPU")
        if self.seconds:
            parts.append(f"{self.seconds / 60:g} min")
        return ", ".join(parts)

    def declared(self) -> Iterator[tuple[str, float]]:
        """Yield the names by which Dask workers declare them, and the amounts; usual memory in whole GB."""
        if self.bytes:
            yield "MEMORY", self.memory or math.ceil(self.usual / 1e9) * 10**9
        if self.gpus:
            yield "GPU", self.gpus


def machine_needs(catalog: Catalog, jobs: Iterable[Job]) -> dict[Job, Needs]:
    """Return what jobs declare to need, or usually took."""
    declared = {job: _declared(catalog, job) for job in jobs}
    keys = {
        job: _memory_keys(job) for job, needs in declared.items() if not needs.memory
    }
    known = derived_at(catalog.root).recall(
        key for each in keys.values() for key in each
    )
    for job, places in keys.items():
        found = [known[key] for key in places if key in known]
        if found:
            measured = places[0] in known
            declared[job] = declared[job]._replace(usual=found[0], measured=measured)
    return declared


def keep_memory(root: Path, job: Job, peak: int) -> None:
    """Remember how many bytes of memory a process had at most during a job."""
    own, *larger = _memory_keys(job)
    with suppress(NeuroLedgerError):
        derived = derived_at(root)
        known = derived.recall(larger)
        most = {key: max(peak, known.get(key, 0)) for key in larger}
        derived.remember({own: peak, **most})


def _memory_keys(job: Job) -> tuple[str, str, str]:
    """Return the keys of the memory that a job takes, and of the most that one of its benchmark or its data set takes."""
    kind = "memory of a job"
    return (
        key_of(kind, job.benchmark, job.model),
        key_of(kind, job.benchmark),
        key_of(kind, "", "", job.inputs.dataset.id),
    )


def _declared(catalog: Catalog, job: Job) -> Needs:
    """Return the most that the benchmark, the model and the controls of a job declare to need."""
    benchmark = catalog.benchmark(job.benchmark)
    models = map(catalog.model, {job.model, *other_models(benchmark)})
    fields = [benchmark.resources, *(model.resources for model in models)]
    declared = [each for each in fields if each is not None]
    return Needs(
        memory=max((each.bytes for each in declared), default=0),
        gpus=max((each.gpus for each in declared), default=0),
        seconds=max((each.seconds for each in declared), default=0.0),
    )


def imports_of(catalog: Catalog, jobs: Iterable[Job]) -> tuple[str, ...]:
    """Return the modules that workers of these jobs import; torch if the source of a builder names it.

    A wrong guess costs only time: a worker imports what it lacks.
    """
    specs = map(catalog.model, {job.model for job in jobs})
    builders = {spec.builder.name for spec in specs if spec.builder is not None}
    for family in families():
        if family.distribution == DISTRIBUTION:
            torch = set(mentioning(family, "builder", "torch"))
            for name in builders:
                if torch.intersection(mentioning(family, "builder", f'"{name}"')):
                    return (*IMPORTED, "torch")
    return IMPORTED


def _no_needs(_: Job) -> Needs:
    return Needs()


@dataclass(frozen=True)
class Calls(Generic[T]):
    """What an executor calls.

    Attributes
    ----------
    work
        Computes a job. It must be picklable, except for ``local``.
    failed
        Returns the result of a job that no worker could compute, from the error.
    lacking
        Returns what the worker lacked by which a result was computed, so that another may try; empty if nothing.
    tell
        Receives the reason for which a job is tried again.
    needs
        Returns what a job needs of a machine.
    imports
        The modules that workers import in any case, if they are installed.
    folder
        A folder of the repository that is not in git, by which workers see whether they share it.
    elsewhere
        Returns the work for workers that do not see the folder of the caller, which is called with a folder of the
        worker and a job; None if they must see it.
    """

    work: Callable[[Job], T]
    failed: Callable[[Job, BaseException], T]
    lacking: Callable[[T], str] = _nothing
    tell: Callable[[str], None] = _silent
    needs: Callable[[Job], Needs] = _no_needs
    imports: Sequence[str] = ()
    folder: Path | None = None
    elsewhere: Callable[[], Callable[[Path, Job], T]] | None = None


class Queue:
    """Jobs in the order in which workers take them, so that few workers need the same data and the same ceiling.

    A worker takes the jobs of one benchmark, whose ceiling and controls it computes once; then another benchmark of the
    same data set; then one on which nobody works. It helps another worker only if this saves more time than to compute
    ceiling and controls again, as measured: the first job that a worker computes of a benchmark takes longer.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._left: dict[Group, deque[Job]] = {}
        self._own: dict[Hashable, Group] = {}
        self._known: set[tuple[Hashable, Group]] = set()
        self._first: dict[Group, list[float]] = {}
        self._later: dict[Group, list[float]] = {}
        for job in jobs:
            self.add(job)

    def add(self, job: Job) -> None:
        """Add a job."""
        self._left.setdefault(_group(job), deque()).append(job)

    def __iter__(self) -> Iterator[Job]:
        """Yield the jobs that nobody took."""
        for jobs in self._left.values():
            yield from jobs

    def __len__(self) -> int:
        """The number of jobs that nobody took."""
        return sum(map(len, self._left.values()))

    def take(self, worker: Hashable) -> Job | None:
        """Return the next job of a worker; None if there is none, or if others will end sooner without its help."""
        group = self._own.get(worker)
        if group is None or group not in self._left:
            group = self._chosen(worker)
        if group is None:
            return None
        self._own[worker] = group
        jobs = self._left[group]
        job = jobs.popleft()
        if not jobs:
            del self._left[group]
        return job

    def ended(self, worker: Hashable, job: Job, seconds: float) -> None:
        """Learn how long a worker needed for a job."""
        group = _group(job)
        if (worker, group) in self._known:
            durations = self._later
        else:
            durations = self._first
        durations.setdefault(group, []).append(seconds)
        self._known.add((worker, group))

    def leave(self, worker: Hashable) -> None:
        """Forget a worker that is gone; others may continue with its benchmark."""
        self._own.pop(worker, None)
        self._known = {known for known in self._known if known[0] != worker}

    def _chosen(self, worker: Hashable) -> Group | None:
        mine = self._own.get(worker, ("", ""))
        owners = Counter[Group]()
        workers = Counter[str]()
        for other, group in self._own.items():
            if other != worker:
                owners[group] += 1
                workers[group[0]] += 1

        def preference(group: Group) -> tuple[bool, int, int]:
            dataset, _ = group
            return dataset == mine[0], -workers[dataset], len(self._left[group])

        free = [group for group in self._left if not owners[group]]
        if free:
            return max(free, key=preference)
        most = 0.0
        best = None
        for group in self._left:
            saved = self._saved(group, owners[group])
            if saved > most:
                most = saved
                best = group
        return best

    def _saved(self, group: Group, helped: int) -> float:
        """Seconds by which all jobs of a benchmark end sooner if one more worker helps ``helped`` others."""
        later = self._later.get(group)
        if not later:
            return 0.0
        each = fmean(later)
        again = max(0.0, max(self._first[group]) - each)
        return len(self._left[group]) * each / (helped * (helped + 1)) - again


def _group(job: Job) -> Group:
    return job.shared.dataset.id, job.benchmark


def gpu_of(
    worker: int, count: int, environment: MutableMapping[str, str] = os.environ
) -> str:
    """Return the GPU of a worker, of ``count`` visible GPUs, as a value of ``CUDA_VISIBLE_DEVICES``.

    GPUs are assigned round-robin. If the variable is already set, only the GPUs that it names are assigned.
    """
    visible = [name for name in environment.get(GPUS, "").split(",") if name.strip()]
    if visible:
        return visible[worker % len(visible)]
    return str(worker % count)


def count_gpus() -> int:
    """Return the number of GPUs that torch sees; 0 without torch."""
    try:
        torch = import_module("torch")
    except ModuleNotFoundError:
        return 0
    return int(torch.cuda.device_count())
