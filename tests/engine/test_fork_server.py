"""Worker processes are forked by a server with one thread that imported once what they use, and end with their caller."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from neuroledger.data import memory
from neuroledger.engine.executors import processes
from neuroledger.engine.executors.processes import in_processes, start_method
from neuroledger.engine.executors.sharing import IMPORTED, Calls, Needs
from neuroledger.engine.plan import Job
from neuroledger.engine.records.inputs import Inputs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")

DEADLY = "deadly"


class Seen(NamedTuple):
    """What a job sees of its worker, and of the server that forked it."""

    pid: int
    server: int
    threads: int
    loaded: frozenset[str]
    environment: dict[str, str]
    cuda: bool


def seen(job: Job) -> Seen:
    if job.model == DEADLY:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)  # so that both workers get one
    server = os.getppid()
    torch = sys.modules.get("torch")
    return Seen(
        os.getpid(),
        server,
        len([*Path(f"/proc/{server}/task").iterdir()]),
        frozenset(sys.modules),
        dict(os.environ),
        torch is not None and torch.cuda.is_initialized(),
    )


def failed(job: Job, error: BaseException) -> None:
    """A job without a result."""


def jobs(*models: str) -> list[Job]:
    return [Job(model, f"b{n}", str(n), Inputs()) for n, model in enumerate(models)]


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").is_dir()


@pytest.mark.parametrize(
    "imports",
    [
        pytest.param(("pandas",), id="pandas"),
        pytest.param((*IMPORTED, "torch"), id="all", marks=pytest.mark.slow),
    ],
)
def test_a_server_with_one_thread_forks_all_workers_and_ends_with_them(
    imports: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    (tmp_path / "broken.py").write_text("raise OSError('no shared library')")
    monkeypatch.syspath_prepend(tmp_path)
    calls = Calls(seen, failed, imports=("no_such_module", "broken", *imports))
    before = dict(os.environ)
    given = [result for _, result in in_processes(2, jobs("a", "b"), calls)]
    workers = [each for each in given if each is not None]
    assert len({each.pid for each in workers}) == 2
    (server,) = {each.server for each in workers}
    assert server != os.getpid() and not runs(server)
    assert dict(os.environ) == before
    for each in workers:
        assert each.threads == 1 and not each.cuda and not runs(each.pid)
        assert each.loaded >= set(imports)
        limits = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
        assert {each.environment[name] for name in limits} == {"1"}
        only_server = {processes.SERVER, *processes.WITHOUT_THREADS} - limits
        assert not only_server & each.environment.keys()
        others = before.keys() - limits
        assert all(each.environment[name] == before[name] for name in others)


def test_a_killed_worker_is_replaced_and_its_job_tried_again() -> None:
    given = in_processes(1, jobs("a", DEADLY, "b"), Calls(seen, failed))
    results = {job.model: result for job, result in given}
    first, last = results["a"], results["b"]
    assert first is not None and last is not None and results[DEADLY] is None
    assert first.pid != last.pid and first.server == last.server


def test_workers_are_spawned_where_no_server_may_fork(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with start_method((), {}) as first, start_method((), {}) as second:
        assert (first, second) == ("forkserver", "spawn")
    monkeypatch.setattr(sys, "platform", "darwin")
    with start_method((), {}) as method:
        assert method == "spawn"


def when(_: Job) -> tuple[float, float]:
    began = time.monotonic()
    time.sleep(0.1)
    return began, time.monotonic()


@pytest.mark.parametrize("gigabytes", [1, 2])
def test_jobs_run_side_by_side_if_memory_holds_what_they_usually_take(
    gigabytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: gigabytes * 10**9)
    calls = Calls(when, failed, needs=lambda _: Needs(usual=10**9))
    given = sorted(
        result
        for _, result in in_processes(2, jobs(*"abcdef"), calls)
        if result is not None
    )
    assert len(given) == 6
    together = [late[0] < early[1] for early, late in pairwise(given)]
    assert any(together) == (gigabytes > 1)


CALLER = """
import os, time
from neuroledger.data import memory
from neuroledger.engine.executors.processes import in_processes
from neuroledger.engine.executors.sharing import Calls
from tests.engine.test_fork_server import failed, jobs

def told(job):
    if job.model == "second":
        time.sleep(900)
    return os.getpid(), os.getppid()

if __name__ == "__main__":
    for _, result in in_processes(1, jobs("first", "second"), Calls(told, failed)):
        print(*result, flush=True)
"""


def test_workers_and_server_end_when_their_caller_is_killed(tmp_path: Path) -> None:
    (tmp_path / "caller.py").write_text(CALLER)
    root = Path(__file__).parents[2]
    command = [sys.executable, str(tmp_path / "caller.py")]
    environment = os.environ | {"PYTHONPATH": f"{root}/src{os.pathsep}{root}"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    ) as caller:
        assert caller.stdout is not None
        processes = [int(pid) for pid in caller.stdout.readline().split()]
        assert len(processes) == 2 and all(map(runs, processes))
        caller.kill()
    until = time.monotonic() + 60
    while any(map(runs, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(runs, processes))
