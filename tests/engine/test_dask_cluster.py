"""Jobs on a Dask cluster: how it is given, who computes what, and what becomes of jobs of lost or lacking workers."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

distributed = pytest.importorskip("distributed")
import dask  # noqa: E402

from neuroledger.display import NoDisplay  # noqa: E402
from neuroledger.engine import run as module  # noqa: E402
from neuroledger.engine.executors import (  # noqa: E402
    Calls,
    Needs,
    carried,
    dask_cluster,
    dask_worker,
    execute,
)
from neuroledger.engine.plan import Job, plan  # noqa: E402
from neuroledger.engine.record import read_record  # noqa: E402
from neuroledger.engine.records.inputs import (  # noqa: E402
    DatasetIdentity,
    Inputs,
    Request,
)
from neuroledger.engine.run import CarriedWork, Work, run  # noqa: E402
from neuroledger.errors import (  # noqa: E402
    PendingError,
    RequestError,
    StorageError,
    UnavailableError,
)
from neuroledger.spec.catalog import open_catalog  # noqa: E402
from neuroledger.store.shared import shared_url  # noqa: E402
from tests.engine.lab import Lab  # noqa: E402

HOLD = threading.Event()
"""Set when jobs that hold their worker may end; workers of these tests are threads of this process."""


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[Any]:
    """Two workers of one thread each in this process, of which one declares a graphics card."""
    options: dict[str, Any] = {"processes": False, "dashboard_address": ":0"}
    # A client that looks at workers while it is closed leaves an error to whichever test comes next.
    never = dask.config.set({"distributed.client.scheduler-info-interval": "1h"})
    with (
        never,
        distributed.LocalCluster(n_workers=0, threads_per_worker=1, **options) as made,
    ):
        address = made.scheduler_address
        workers = [
            made.sync(_start, address, name="plain"),
            made.sync(_start, address, name="card", resources={"GPU": 1}),
        ]
        yield made
        for worker in workers:
            made.sync(worker.close)
    # A worker that writes netCDF makes a client, which stays the default of its process.
    distributed.client._global_clients.clear()
    dask.config.config.pop("scheduler", None)


async def _start(address: str, **options: Any) -> Any:
    return await distributed.Worker(address, nthreads=1, **options)


@pytest.fixture(scope="module")
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster.scheduler_address, set_as_default=False) as made:
        yield made


@pytest.fixture
def held() -> Iterator[threading.Event]:
    HOLD.clear()
    yield HOLD
    HOLD.set()


def jobs(*models: str) -> list[Job]:
    """Jobs of these models on one benchmark."""
    return [
        Job(model, "b", f"{model}b", Inputs(dataset=DatasetIdentity(id="D")))
        for model in models
    ]


def done(job: Job) -> str:
    name = str(distributed.get_worker().name)
    if job.model == "slow":
        HOLD.wait(20)
    if job.model == "mistaken":
        raise ValueError("on purpose")
    if job.model == "lacking" and name == "plain":
        raise StorageError("no such folder")
    return f"{job.model} on {name}"


def told(job: Job, error: BaseException) -> str:
    command = getattr(error, "command", "")
    return f"{job.model}: {type(error).__name__}: {error}: {command}"


def results(executor: Any, *models: str, **calls: Any) -> dict[str, str]:
    found = execute(executor, jobs(*models), Calls(done, told, **calls))
    return {job.model: words for job, words in found}


def test_a_cluster_is_given_by_a_client_an_address_or_a_scheduler_file(
    client: Any, cluster: Any, tmp_path: Path
) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": cluster.scheduler_address}))
    for executor in (
        client,
        f"dask:{cluster.scheduler_address}",
        f"dask:{path}",
    ):
        assert {words[:4] for words in results(executor, "a", "b").values()} == {
            "a on",
            "b on",
        }
    assert client.status == "running", "a given client stays open"
    assert not any(
        name.startswith("neuroledger")
        for plugins in client.run(_plugins).values()
        for name in plugins
    )


def _plugins(dask_worker: Any) -> list[str]:
    return list(dask_worker.plugins)


def test_what_is_no_cluster_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.3)
    with pytest.raises(RequestError, match=r"no scheduler file .*none.json: start"):
        results(f"dask:{tmp_path}/none.json", "a")
    with pytest.raises(UnavailableError, match="no Dask scheduler answers"):
        results("dask:tcp://127.0.0.1:9", "a")
    with pytest.raises(RequestError, match="PosixPath is not an executor"):
        results(tmp_path, "a")
    asynchronous: Any = type("Asynchronous", (), {"submit": None, "asynchronous": True})
    with pytest.raises(RequestError, match="asynchronous"):
        results(asynchronous, "a")


def test_an_error_of_a_job_is_its_own_and_what_a_worker_lacks_another_may_have(
    client: Any,
) -> None:
    lines: list[str] = []
    found = results(client, "mistaken", "lacking", tell=lines.append)
    assert found["mistaken"].startswith("mistaken: ValueError: on purpose")
    assert found["lacking"] == "lacking on card"
    assert all(
        "b · lacking is tried again: no such folder (on " in line for line in lines
    )


def test_what_was_pending_on_a_worker_is_tried_on_another(client: Any) -> None:
    lines: list[str] = []
    found = results(
        client, "a", lacking=lambda words: f"not {words}", tell=lines.append
    )
    assert found["a"] in ("a on plain", "a on card")
    (line,) = lines
    assert line.startswith("b · a is tried again: not a on ")


def test_a_worker_that_no_longer_sees_the_folder_computes_nothing(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_worker, "sees", lambda marker: False)
    found = results(client, "a", folder=tmp_path)
    assert found["a"].startswith("a: UnavailableError: the worker ")
    assert f"does not see {tmp_path}" in found["a"] and not list(tmp_path.iterdir())


def test_a_job_runs_where_its_resources_are_declared(client: Any) -> None:
    needs = {"a": Needs(gpus=1), "b": Needs(), "c": Needs(gpus=1, memory=10)}
    found = results(client, "a", "b", "c", needs=lambda job: needs[job.model])
    assert found["a"] == "a on card" and found["c"] == "c on card"


def test_usual_memory_chooses_a_worker_and_refuses_no_job() -> None:
    required = dask_cluster._required
    usual = Needs(usual=1_300_000_000)
    assert required(usual, {"MEMORY": 8e9}) == (("MEMORY", 2e9),)
    assert required(usual, {"MEMORY": 1e9}) == (("MEMORY", 1e9),)
    assert required(usual, {}) == required(Needs(), {"MEMORY": 1e9}) == ()
    assert required(Needs(memory=16 * 10**9), {"MEMORY": 1e9}) == (("MEMORY", 16e9),)


def test_a_job_that_takes_too_long_and_a_cluster_without_workers_are_pending(
    client: Any, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "LOOK_S", 0.1)
    monkeypatch.setattr(dask_cluster, "CONNECT_S", 0.1)
    found = results(client, "slow", needs=lambda job: Needs(seconds=0.3))
    assert "LimitError: on " in found["slow"] and "(0.3 s)" in found["slow"]
    held.set()
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=":0"
        ) as empty,
        dask.config.set({dask_cluster.NO_WORKERS: "0.3s"}),
    ):
        found = results(f"dask:{empty.scheduler_address}", "a")
    assert "no worker took a job for" in found["a"]
    assert (
        f"run a --benchmark b --executor dask:{empty.scheduler_address}" in found["a"]
    )


def test_workers_that_come_later_and_leave_are_used(
    held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adaptive cluster begins without workers: it starts some for the tickets that wait."""
    monkeypatch.setattr(dask_cluster, "LOOK_S", 0.1)
    held.set()
    with distributed.LocalCluster(
        n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as adaptive:
        adaptive.adapt(minimum=0, maximum=2, interval="50ms", wait_count=1)
        with distributed.Client(adaptive, set_as_default=False) as own:
            found = results(own, "a", "b", "c")
    assert sorted(found) == ["a", "b", "c"]
    assert all(" on " in words for words in found.values())


class Deaf:
    """A client that notes what it sends to workers."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def run(
        self, _: Any, __: str, ___: int, job: Any, *, workers: list[str], **____: Any
    ) -> None:
        self.sent += [(worker, job) for worker in workers]


def test_a_ticket_that_is_repeated_after_its_worker_was_lost_keeps_its_job() -> None:
    lines: list[str] = []
    client = Deaf()
    calls: Any = Calls(done, told, tell=lines.append)
    run = dask_cluster._Run(client, calls, "", "cpu", None)
    first, second = jobs("a", "b")
    run.queues[()] = dask_cluster.Queue([first, second])
    for number in range(2):
        run.needs[number] = ()
        run.tickets[number] = client  # type: ignore[assignment]
    for ask in [(0, "gone"), (1, "idle"), (0, "other"), (7, "late")]:
        run._answer(dask_cluster._Ask(*ask, threads=1))
    assert client.sent == [
        ("gone", first),
        ("idle", None),
        ("other", first),
        ("late", None),
    ]
    assert lines == ["b · a is tried again: its worker gone was lost"]
    assert run._rest() == [first, second]


class Repeated:
    """A ticket whose worker was lost after it had ended, and which another worker repeats."""

    def __init__(self) -> None:
        self.status = "finished"
        self.awaited = 0

    def add_done_callback(self, _: Any) -> None:
        self.awaited += 1

    def result(self, timeout: float) -> Any:
        self.status = "pending"
        raise TimeoutError(f"not in {timeout} s")


def test_a_ticket_whose_result_was_lost_with_its_worker_is_waited_for_again() -> None:
    run: Any = dask_cluster._Run(Deaf(), Calls(done, told), "", "cpu", None)  # type: ignore[arg-type]
    ticket = run.tickets[0] = Repeated()
    (job,) = jobs("a")
    run.given[0] = dask_cluster._Given(job, "gone", 0.0)
    for times in (1, 2):
        assert list(run._ended(0)) == [] and ticket.awaited == times
    assert run.tickets == {0: ticket} and run._rest() == [job]


def killed_once(job: Job) -> str:
    mark = Path(job.benchmark)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{job.model} at last"


@pytest.mark.slow
def test_the_job_of_a_killed_worker_is_computed_by_another(tmp_path: Path) -> None:
    lines: list[str] = []
    job = Job("a", str(tmp_path / "mark"), "a", Inputs())
    calls = Calls(killed_once, told, tell=lines.append)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0"
    ) as cluster:
        found = list(execute(f"dask:{cluster.scheduler_address}", [job], calls))
    assert found == [(job, "a at last")]
    assert len(lines) == 1 and "is tried again: its worker tcp://" in lines[0]


def test_a_scheduler_that_ends_leaves_every_job_pending(
    cluster: Any, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "LOOK_S", 0.1)
    monkeypatch.setattr(dask_cluster, "GATHER_S", 0.2)
    scheduler = cluster.sync(_scheduler)
    worker = cluster.sync(_start, scheduler.address)
    own = distributed.Client(scheduler.address, set_as_default=False, timeout=1)

    def end() -> None:
        time.sleep(0.5)
        cluster.sync(scheduler.close)
        HOLD.set()

    thread = threading.Thread(target=end)
    thread.start()
    found = results(own, "slow", "b")
    thread.join()
    assert set(found) == {"slow", "b"}
    for model, words in found.items():
        assert "the scheduler " in words, words
        assert f"run {model} --benchmark b --executor dask:" in words
    own.close(timeout=1)
    cluster.sync(worker.close)


async def _scheduler() -> Any:
    return await distributed.Scheduler(
        protocol="inproc://", port=0, dashboard_address=":0"
    )


def test_a_worker_with_several_threads_is_refused_with_what_to_type() -> None:
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=4, processes=False, dashboard_address=":0"
        ) as broad,
        pytest.raises(
            UnavailableError,
            match=r"has 4 threads, of which only one .*--nworkers 4 --nthreads 1",
        ),
    ):
        results(f"dask:{broad.scheduler_address}", "a")


def test_an_encrypted_scheduler_is_reached_by_the_settings_of_dask(
    tmp_path: Path,
) -> None:
    pytest.importorskip("cryptography", reason="distributed makes certificates with it")
    security = distributed.Security.temporary()
    names = {"ca-file": security.tls_ca_file}
    for role in ("client", "worker", "scheduler"):
        names[f"{role}.cert"] = getattr(security, f"tls_{role}_cert")
        names[f"{role}.key"] = getattr(security, f"tls_{role}_key")
    settings: dict[str, Any] = {"distributed.comm.require-encryption": True}
    for name, text in names.items():
        path = tmp_path / f"{name}.pem"
        path.write_text(text)
        settings[f"distributed.comm.tls.{name}"] = str(path)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0",
        protocol="tls://", security=security,
    ) as secure:  # fmt: skip
        assert secure.scheduler_address.startswith("tls://")
        with dask.config.set(settings):
            found = results(f"dask:{secure.scheduler_address}", "a")
    assert found["a"].startswith("a on ")


def test_each_worker_process_of_a_machine_claims_another_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[str] = []
    for _ in range(3):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
        lock = dask_worker._HELD.pop("CUDA_VISIBLE_DEVICES", None)
        held.append(lock)  # type: ignore[arg-type]
        dask_worker.claim_gpu(tmp_path)
        held.append(os.environ["CUDA_VISIBLE_DEVICES"])
    names = [each for each in held if isinstance(each, str)]
    assert names[:2] == ["4", "6"] and names[2] in ("4", "6")
    dask_worker._HELD.clear()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    dask_worker.claim_gpu(tmp_path)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3", "Slurm has chosen it"


def recorded(lab: Lab, executor: Any = "local") -> dict[str, str]:
    """The payloads of the records of a laboratory, computed now; what is pending fails the test."""
    catalog = lab.open()
    request = Request()
    planned = plan(catalog, suites=[catalog.suite("lab")], request=request)
    for each in run(catalog, planned.jobs, request, NoDisplay(), executor=executor):
        assert each.pending is None, each.pending
    folder = lab.root / "results" / "records"
    return {path.name: read_record(path).payload() for path in folder.rglob("*.json")}


def test_workers_that_do_not_see_the_folder_score_the_same_in_one_of_their_own(
    valid: Lab, tmp_path: Path, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they score comes from what travelled: the caller's files are moved away before they begin."""
    away = Lab(shutil.copytree(valid.root, tmp_path / "away"))
    expected = recorded(valid)
    seen: list[Path] = []

    def hidden(self: Any, folder: Path, job: Job) -> Any:
        if (away.root / "data").exists():
            (away.root / "data").rename(tmp_path / "hidden")
        seen.append(self.carried.repository(folder))
        return score(self, folder, job)

    score = CarriedWork.__call__
    monkeypatch.setattr(CarriedWork, "__call__", hidden)
    monkeypatch.setattr(dask_worker, "sees", lambda marker: False)
    assert recorded(away, client) == expected
    assert seen and not any(root.is_relative_to(away.root) for root in seen)


@pytest.fixture
def bucket(valid: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 endpoint on this machine, whose bucket `lab` has the data of the laboratory."""
    folder = valid.data.parent

    class Objects(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Objects) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{running.server_address[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield address
        running.shutdown()


@pytest.mark.parametrize("source", ["mirror", "s3"])
def test_larger_files_are_fetched_by_their_hash(
    valid: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    source: str,
) -> None:
    if source == "mirror":
        monkeypatch.setenv("NEUROLEDGER_MIRROR", str(valid.data))
    files = {
        name: {**pin, "url": f"s3://lab/{name}"} for name, pin in valid.pins().items()
    }
    valid.dataset(files=files)
    catalog = valid.open()
    planned = plan(catalog, suites=[catalog.suite("lab")], request=Request())
    monkeypatch.setattr(carried, "MOST_BYTES", 4000)
    pack = carried.carry(catalog, planned.jobs)
    root = pack.repository(tmp_path / "worker")
    assert pack.repository(tmp_path / "worker") == root
    folder = root / "data" / "lab"
    assert {path.name for path in folder.iterdir()} == {"stimuli.csv"}
    carried.fetch_sources(open_catalog(root), planned.jobs[0])
    for name in files:
        assert (folder / name).read_bytes() == (valid.data / name).read_bytes()


def test_the_remote_of_a_repository_travels_with_its_place() -> None:
    config = b"[core]\n    remote = here\n['remote \"here\"']\n    url = ../store\n"
    assert carried._without_git(config, Path("/lab")).decode().splitlines() == [
        "[core]", "    no_scm = true", "    remote = here", "['remote \"here\"']", "    url = /lab/store",
    ]  # fmt: skip
    assert b"url = s3://lab/x" in carried._without_git(b"url = s3://lab/x", Path("/"))


def test_workers_share_activations_where_their_caller_does(
    valid: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = valid.open()
    jobs = plan(catalog, suites=[catalog.suite("lab")], request=Request()).jobs
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_SHARED", "s3://lab/activations")
    sent = module._carried_work(catalog, Request(), jobs)
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS_SHARED", "s3://own/of-the-worker")
    seen: list[str] = []

    def look(work: Work, job: Job) -> tuple[None, str]:
        seen.append(shared_url())
        return None, ""

    monkeypatch.setattr(Work, "__call__", look)
    sent(tmp_path, jobs[0])
    assert seen == ["s3://lab/activations"]
    assert shared_url() == "s3://own/of-the-worker"


def test_a_worker_with_other_specs_computes_nothing(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = valid.open()
    (job, *_) = plan(catalog, suites=[catalog.suite("lab")], request=Request()).jobs
    other = replace(job, id="0" * 64, shared=job.inputs.model_copy(update={"seed": 7}))
    with pytest.raises(PendingError, match="another seed than the caller: give it"):
        Work(valid.root, Request())(other)


@pytest.mark.slow
def test_files_of_the_dvc_remote_are_fetched_in_a_folder_without_git(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = open_catalog(repository)
    names = {
        "models": ["small_cnn.digits"],
        "benchmarks": ["Digits.simulated.IT-ridge"],
    }
    planned = plan(catalog, **names, request=Request())  # type: ignore[arg-type]
    monkeypatch.setattr(carried, "MOST_BYTES", 0)
    root = carried.carry(catalog, planned.jobs).repository(tmp_path)
    carried.fetch_sources(open_catalog(root), planned.jobs[0])
    assert (root / "data" / "Digits.simulated" / "responses.nc").is_file()
    assert (root / "data/models/small_cnn.digits/model.safetensors").is_file()
