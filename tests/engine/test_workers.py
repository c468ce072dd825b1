"""Executors give the same bytes with any number of threads, and isolate failures of workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("distributed")

from neuroledger.data.gate.validate import validate  # noqa: E402
from neuroledger.data.threads import exclusive, limit_process  # noqa: E402
from neuroledger.display import NoDisplay  # noqa: E402
from neuroledger.engine import executors  # noqa: E402
from neuroledger.engine import run as runs  # noqa: E402
from neuroledger.engine.executors import Calls, execute  # noqa: E402
from neuroledger.engine.executors.sharing import Queue, gpu_of  # noqa: E402
from neuroledger.engine.plan import Job, plan  # noqa: E402
from neuroledger.engine.records.inputs import DatasetIdentity, Inputs  # noqa: E402
from neuroledger.engine.run import run  # noqa: E402
from neuroledger.engine.session import Request  # noqa: E402
from neuroledger.models import torch_layers  # noqa: E402
from neuroledger.models.model import LayeredModel, of_layers  # noqa: E402
from neuroledger.models.preprocessing import Preprocessing  # noqa: E402
from neuroledger.models.torch_module import TorchOptions, assemble  # noqa: E402
from neuroledger.models.torch_weights import seeded  # noqa: E402
from neuroledger.spec.registry import builder  # noqa: E402
from neuroledger.store.store import Store  # noqa: E402
from tests.engine.lab import Lab  # noqa: E402

LAYERS = tuple(f"layer{number}" for number in range(6))
MODELS, REGIONS = 3, 2


class Convolution(torch.nn.Module):
    """A convolution that lets other threads run in the middle of its pass, as a large one does."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = torch.nn.Conv2d(3, 3, 3, padding=1)
        time.sleep(0.002)

    def forward(self, images: Any) -> Any:
        time.sleep(0.001)
        return torch.relu(self.filter(images)) + 0.1 * images


@builder(
    "convolutions_from_a_seed",
    version=1,
    takes={"images"},
    gives=partial(of_layers, layers=LAYERS),
)
def convolutions_from_a_seed(
    *,
    id: str,
    seed: int = 0,
    regions: Any = None,
    device: str = "cpu",
    store: Any = None,
) -> LayeredModel:
    """Layers whose weights torch's own generator draws, as those of torchvision's networks."""

    def make() -> Any:
        return torch.nn.Sequential(
            OrderedDict((layer, Convolution()) for layer in LAYERS)
        )

    options = TorchOptions(
        id=id,
        preprocessing=Preprocessing(resize=8),
        layers=LAYERS,
        regions=regions or {},
        weights={},
        seed=seed,
        batch=8,
        device=device,
        store=store,
    )
    described = {"builder": "convolutions_from_a_seed"}
    return assemble(seeded(make, seed), described, options)


@pytest.fixture
def networks(lab: Lab) -> Lab:
    """Three networks and two benchmarks that read different layers of them."""
    names = [f"net{number}" for number in range(MODELS)]
    for number, name in enumerate(names):
        lab.spec(
            "models",
            name,
            builder={"name": "convolutions_from_a_seed", "seed": number},
            regions={"V4": "layer2", "IT": "layer5"},
        )
    ids = [f"lab.{region}-ridge" for region in ("V4", "IT")]
    for id, region in zip(ids, ("V4", "IT"), strict=True):
        lab.benchmark(
            id,
            paradigm={"name": "recording", "region": region},
            controls={"negative": ["noise"]},
        )
    lab.spec("suites", "lab", benchmarks=ids, models=names)
    validate(lab.open(), "lab")
    return lab


def scored(
    lab: Lab, executor: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Scores by job and hashes of activations by entry, from a store of its own."""
    monkeypatch.setenv("NEUROLEDGER_ACTIVATIONS", str(folder))
    runs._place.cache_clear()
    catalog, request = lab.open(), Request()
    jobs = plan(catalog, suites=[catalog.suite("lab")], request=request).jobs
    outcomes = run(catalog, jobs, request, NoDisplay(), executor=executor, force=True)
    assert all(outcome.record.error is None for outcome in outcomes), [
        o.record.error for o in outcomes
    ]
    scores = {f"{o.job.benchmark} {o.job.model}": o.record.scores for o in outcomes}
    entries = {
        item.place.name: (item.place / "values.bin").read_bytes()
        for item in Store(folder).entries()
        if item.place.parts[-3] == "activations"
    }
    assert len(scores) == (MODELS + 1) * REGIONS and len(entries) >= MODELS * len(
        LAYERS
    )
    return {**scores, **entries}


WRITERS = """
import sys
from pathlib import Path
import distributed, numpy as np, xarray as xr
from neuroledger.data.assembly import write

def keep(number):
    path = Path(sys.argv[1]) / f"{number}.nc"
    write(xr.DataArray(np.full((40, 20), float(number)), dims=("presentation", "neuroid")), path)
    return number

if __name__ == "__main__":
    with distributed.LocalCluster(n_workers=1, threads_per_worker=8, processes=False, dashboard_address=":0") as cluster:
        with distributed.Client(cluster) as client:
            kept = client.gather(client.map(keep, range(120)))
    assert kept == list(range(120))
    for number in kept:
        with xr.open_dataset(Path(sys.argv[1]) / f"{number}.nc") as held:
            assert (held["data"].values == number).all()
"""


def test_threads_of_a_dask_worker_write_assemblies_side_by_side_and_the_process_lives(
    tmp_path: Path,
) -> None:
    """HDF5 is not safe for threads, and under Dask xarray locks each file alone: without a lock this is a crash."""
    (tmp_path / "writers.py").write_text(WRITERS)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", tmp_path / "writers.py", tmp_path],
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr[-2000:].decode()


def test_models_that_are_built_and_run_in_threads_are_those_of_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And without the lock they are not, so that this test can fail."""
    from tests.models.drawn_stimuli import drawn

    stimuli = drawn(16, size=(8, 8))

    def answer(seed: int) -> dict[str, Any]:
        model = convolutions_from_a_seed(id="net", seed=seed % 4)
        return model.activations(stimuli, LAYERS)

    alone = [answer(seed) for seed in range(4)]

    def wrong() -> int:
        with ThreadPoolExecutor(4) as pool:
            result = list(pool.map(answer, range(12)))
        return sum(
            not np.array_equal(created[layer], alone[number % 4][layer])
            for number, created in enumerate(result)
            for layer in LAYERS
        )

    assert wrong() == 0
    shared = convolutions_from_a_seed(id="shared", seed=1)
    with ThreadPoolExecutor(4) as pool:
        for created in pool.map(
            lambda _: shared.activations(stimuli, LAYERS), range(8)
        ):
            assert all(
                np.array_equal(created[layer], alone[1][layer]) for layer in LAYERS
            )
    for module in (
        torch_layers,
        __import__("neuroledger.models.torch_weights", fromlist=["exclusive"]),
    ):
        monkeypatch.setattr(module, "exclusive", nullcontext)
    assert wrong() > 0


def raising(job: Job) -> str:
    if job.model == "bad":
        raise ValueError("on purpose")
    if job.model == "deadly":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{job.model} in {os.getpid()}"


def jobs_in_two(*models: str) -> list[Job]:
    """One job of each model, each on a benchmark of its own."""
    return [
        Job(id=f"{number:064x}", model=name, benchmark=f"b{number}", shared=Inputs())
        for number, name in enumerate(models)
    ]


def jobs_on(**datasets: list[str]) -> list[Job]:
    """Jobs of three models on each benchmark of each data set, model by model."""
    return [
        Job(
            model,
            benchmark,
            f"{model}{benchmark}",
            Inputs(dataset=DatasetIdentity(id=id)),
        )
        for id, benchmarks in datasets.items()
        for model in ("a", "b", "c")
        for benchmark in benchmarks
    ]


SHARED = 10.0
"""Seconds for a ceiling and controls."""


def taken(jobs: list[Job], workers: int) -> dict[int, list[str]]:
    """The benchmarks of the jobs of each worker, of a second each, if the first of a benchmark on a worker takes longer."""
    queue = Queue(jobs)
    order: dict[int, list[str]] = {worker: [] for worker in range(workers)}
    running: dict[int, tuple[float, float, Job]] = {}
    now = 0.0
    while True:
        for worker in sorted(set(order) - set(running)):
            job = queue.take(worker)
            if job is not None:
                first = job.benchmark not in order[worker]
                order[worker].append(job.benchmark)
                seconds = 1.0 + (SHARED if first else 0.0)
                running[worker] = (now + seconds, seconds, job)
        if not running:
            assert len(queue) == 0
            return order
        worker = min(running, key=lambda each: running[each][0])
        now, seconds, job = running.pop(worker)
        queue.ended(worker, job, seconds)


def test_a_worker_stays_with_a_benchmark_and_then_with_its_data_set() -> None:
    order = taken(jobs_on(D=["d1", "d2"], E=["e1", "e2"]), 2)
    assert order == {0: ["d1"] * 3 + ["d2"] * 3, 1: ["e1"] * 3 + ["e2"] * 3}


def test_a_worker_helps_only_if_this_saves_more_than_ceiling_and_controls_cost() -> (
    None
):
    one = jobs_on(D=["d1"])
    assert taken(one, 2) == {0: ["d1"] * 3, 1: []}
    assert min(map(len, taken(one * 20, 2).values())) > 5


def test_the_benchmark_of_a_worker_that_left_is_continued_by_another() -> None:
    queue = Queue(jobs_on(D=["d1"]))
    assert queue.take("gone") is not None
    assert queue.take("here") is None
    queue.leave("gone")
    assert queue.take("here") is not None and len(queue) == 1


@given(
    st.lists(st.sampled_from(["D", "E"]), max_size=12),
    st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
def test_each_job_is_taken_exactly_once(sets: list[str], turns: list[int]) -> None:
    jobs = [
        Job("m", f"b{n % 3}", str(n), Inputs(dataset=DatasetIdentity(id=id)))
        for n, id in enumerate(sets)
    ]
    queue = Queue(jobs)
    got = []
    for worker in turns:
        job = queue.take(worker)
        if job is not None:
            got.append(job)
            queue.ended(worker, job, 1.0)
        queue.leave(worker)
    assert sorted(job.id for job in got) == sorted(job.id for job in jobs)


def told(job: Job, error: BaseException) -> str:
    return f"{job.model}: {type(error).__name__}"


@pytest.mark.slow
def test_failed_and_lost_jobs_of_processes_are_reported_and_not_computed_here() -> None:
    result = dict(
        execute(
            "processes:2",
            jobs_in_two("good", "bad", "deadly", "better"),
            Calls(raising, told),
        )
    )
    message = {job.model: words for job, words in result.items()}
    assert (
        message["bad"] == "bad: ValueError"
        and message["deadly"] == "deadly: LimitError"
    )
    for model in ("good", "better"):
        assert (
            message[model].startswith(f"{model} in ")
            and str(os.getpid()) not in message[model]
        )


def test_a_job_that_fails_on_a_worker_is_pending_and_leaves_its_record(
    networks: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, request = networks.open(), Request()
    (job, *_) = plan(catalog, suites=[catalog.suite("lab")], request=request).jobs

    def lost(*given: Any, **_: Any) -> Any:
        failed = given[2].failed
        return iter([(job, failed(job, BrokenProcessPool("it was killed")))])

    monkeypatch.setattr(runs, "execute", lost)
    (outcome,) = run(catalog, [job], request, NoDisplay(), executor="processes:2")
    assert outcome.pending is not None and outcome.pending.code == "machine.worker"
    assert outcome.pending.reason == "on a worker: BrokenProcessPool: it was killed"
    assert not list((networks.root / "results" / "records").rglob("*.json"))


def test_workers_share_the_gpus_of_a_machine() -> None:
    assert [gpu_of(worker, 2, {}) for worker in range(5)] == ["0", "1", "0", "1", "0"]
    assert [
        gpu_of(worker, 3, {"CUDA_VISIBLE_DEVICES": "4,6,7"}) for worker in range(4)
    ] == [
        "4",
        "6",
        "7",
        "4",
    ]


def where(job: Job) -> tuple[str, str]:
    from neuroledger.data import threads

    time.sleep(0.5)  # so that both workers get one
    return os.environ.get(
        "CUDA_VISIBLE_DEVICES", ""
    ), f"{os.environ['OMP_NUM_THREADS']} {threads._process_limit[0]}"


@pytest.mark.slow
def test_each_process_gets_one_gpu_and_a_share_of_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(executors, "count_gpus", lambda: 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    result = dict(
        execute("processes", jobs_in_two("a", "b"), Calls(where, told), device="cuda")
    )
    assert sorted(gpu for gpu, _ in result.values()) == ["0", "1"]
    assert {threads for _, threads in result.values()} == {"2 2"}


def test_a_process_is_limited_to_its_threads() -> None:
    from threadpoolctl import threadpool_info

    before = {item["user_api"]: item["num_threads"] for item in threadpool_info()}
    try:
        limit_process(1)
        assert {
            item["num_threads"]
            for item in threadpool_info()
            if item["user_api"] == "blas"
        } == {1}
    finally:
        limit_process(before.get("blas", 1))
    with exclusive(), exclusive():
        pass
