"""Work side by side does each part once, passes errors on, and keeps to the number of threads that was asked for."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import xarray as xr
from threadpoolctl import threadpool_info

import neuroledger as nl
from neuroledger.data import threads
from neuroledger.data.sandbox import Limits, confined, confines
from neuroledger.data.threads import exclusive, limited, side_by_side
from neuroledger.families.alignment.similarity import gram
from neuroledger.stats.workspace import Workspace


@pytest.mark.parametrize("count", [0, 1, 2, 17])
def test_each_part_is_done_once(count):
    done = np.zeros(count, int)

    def work(part: int) -> None:
        done[part] += 1

    side_by_side(work, range(count))
    assert (done == 1).all()


@pytest.mark.parametrize("wrong", [0, 1, 4])
def test_an_error_in_any_part_reaches_the_caller(wrong):
    def work(part: int) -> None:
        if part == wrong:
            raise ValueError(f"part {part}")

    with pytest.raises(ValueError, match=f"part {wrong}"):
        side_by_side(work, range(5))


def test_a_single_thread_is_that_of_the_caller():
    seen = set()
    with limited(1):
        side_by_side(lambda part: seen.add(threading.get_ident()), range(8))
    assert seen == {threading.get_ident()}


def test_the_environment_can_grant_fewer_threads_than_there_are_processors():
    assert threads._count("1") == 1
    assert threads._count("10000") == threads._count(None) <= 8
    assert threads._count("many") == threads._count(None)


def test_a_workspace_keeps_a_metric_to_its_threads(monkeypatch):
    rng = np.random.default_rng(0)
    ids = {"stimulus_id": ("presentation", np.arange(40))}
    target = xr.DataArray(
        rng.standard_normal((40, 3)), dims=("presentation", "neuroid"), coords=ids
    )
    source = xr.DataArray(
        rng.standard_normal((40, 60)), dims=("presentation", "neuroid"), coords=ids
    )
    used = []

    def watched(K: np.ndarray) -> None:
        used.extend(pool["num_threads"] for pool in threadpool_info())
        mirror(K)

    mirror = gram.mirror_upper
    monkeypatch.setattr(gram, "mirror_upper", watched)
    before = [pool["num_threads"] for pool in threadpool_info()]
    nl.metric(
        "ridge", workspace=Workspace(threads=1), splits={"folds": 2, "stratify": None}
    )(source, target)
    assert set(used) == {1}
    assert [pool["num_threads"] for pool in threadpool_info()][: len(before)] == before


@pytest.mark.skipif(
    not confines(), reason="a reader has a process of its own on Linux only"
)
def test_a_confined_reader_does_not_wait_for_a_thread_of_its_parent(tmp_path):
    """A fork copies a lock that another thread holds, and not that thread."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with exclusive():
            held.set()
            done.wait(60)

    def read() -> int:
        with exclusive():
            return 1

    other = threading.Thread(target=hold)
    other.start()
    held.wait(60)
    try:
        assert confined(read, Limits(seconds=1), "a reading") == 1
    finally:
        done.set()
        other.join()


@pytest.mark.parametrize("given", [{}, {"OPENBLAS_THREAD_TIMEOUT": "20"}])
def test_idle_threads_of_openblas_sleep_soon_unless_somebody_wants_it_otherwise(given):
    """It is set before NumPy is loaded, because OpenBLAS reads it then."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if name != "OPENBLAS_THREAD_TIMEOUT"
    }
    program = "import os, sys, neuroledger; print('numpy' in sys.modules, os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env=plain | given,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["False", given.get("OPENBLAS_THREAD_TIMEOUT", "12")]
