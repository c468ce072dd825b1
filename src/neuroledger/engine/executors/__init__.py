"""Executors: jobs run in this process, in several processes, or on a Dask cluster; only the caller writes records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from neuroledger.engine.executors.processes import in_processes
from neuroledger.engine.executors.sharing import Calls, Done, Needs, count_gpus
from neuroledger.engine.plan import Job
from neuroledger.errors import RequestError, package_missing

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Calls", "Needs", "execute", "is_cluster"]

T = TypeVar("T")


def is_cluster(executor: str | Client) -> bool:
    """Whether jobs go to a Dask cluster, whose machines may differ from this one."""
    return not isinstance(executor, str) or executor.partition(":")[0] == "dask"


def execute(
    executor: str | Client,
    jobs: Sequence[Job],
    calls: Calls[T],
    *,
    device: str = "cpu",
) -> Done[T]:
    """Yield each job with the result of ``calls.work``, in the order in which jobs finish.

    Executors are ``local`` (this process, one job after the other), ``processes`` or ``processes:N`` (N processes on this
    machine, which share processors and GPUs evenly; by default one per processor, or per GPU for ``cuda``), ``dask`` (a
    Dask cluster on this machine), ``dask:ADDRESS`` (the scheduler there), ``dask:FILE`` (that of a scheduler file), and a
    client of ``distributed``. If the work raises in a worker, or a process dies twice, the result of the job is
    ``calls.failed(job, error)``.

    Raises
    ------
    RequestError
        The executor is unknown.
    UnavailableError
        Dask is not installed, the scheduler does not answer, or a worker has several threads.
    """
    if not isinstance(executor, str):
        return _on_cluster(executor, jobs, calls, device)
    name, _, detail = executor.partition(":")
    if name == "local" and not detail:
        return ((job, calls.work(job)) for job in jobs)
    if name == "processes":
        gpus = count_gpus() if device == "cuda" else 0
        return in_processes(_count(detail, gpus), list(jobs), calls, gpus)
    if name == "dask":
        return _on_cluster(detail, jobs, calls, device)
    raise RequestError(
        f"no executor {executor!r}; use local, processes[:N], dask[:ADDRESS] or dask:FILE"
    )


def _count(text: str, gpus: int) -> int:
    if not text:
        return gpus or os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise RequestError(
            f"processes:{text} is not a number of processes; write it as in processes:4"
        )
    return int(text)


def _on_cluster(
    target: str | Client, jobs: Sequence[Job], calls: Calls[T], device: str
) -> Done[T]:
    try:
        import_module("distributed")
    except ModuleNotFoundError as error:
        raise package_missing("distributed") from error
    from neuroledger.engine.executors.dask_cluster import on_cluster

    if not isinstance(target, str) and not hasattr(target, "submit"):
        raise RequestError(
            f"{type(target).__name__} is not an executor; use local, processes[:N], dask[:ADDRESS], or a Client of "
            "distributed"
        )
    return on_cluster(target, list(jobs), calls, device=device)
