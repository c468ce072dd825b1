"""Workspaces: arrays on devices, cached results, and limits of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuroledger.errors import UnavailableError
from neuroledger.stats.workspace import Memo, Workspace, device_of
from tests.devices import DEVICES


@pytest.mark.parametrize("device", DEVICES)
def test_values_return_from_a_device_unchanged_and_in_double_precision(
    device: str,
) -> None:
    if device != "cpu":
        pytest.importorskip("torch")
    workspace = Workspace(device)
    values = np.arange(6, dtype=np.float32).reshape(2, 3).T  # not contiguous
    there = workspace.put(values)
    assert str(there.dtype).endswith("float64") and tuple(there.shape) == (3, 2)
    back = workspace.take(there)
    assert isinstance(back, np.ndarray) and back.dtype == np.float64
    np.testing.assert_array_equal(back, values)
    rows = workspace.indices(np.array([2, 0]))
    np.testing.assert_array_equal(workspace.take(there[rows]), values[[2, 0]])
    empty = workspace.xp.zeros(2, **device_of(there))
    assert type(empty) is type(there)


@pytest.mark.parametrize("device", DEVICES[1:])
@pytest.mark.filterwarnings("error")
def test_read_only_memory_is_sent_without_a_warning_and_stays_as_it_is(
    device: str,
) -> None:
    """Stored activations are mapped read-only."""
    values = np.arange(3.0)
    values.flags.writeable = False
    workspace = Workspace(device)
    there: Any = workspace.put(values)
    there += 1
    assert workspace.take(there).tolist() == [1, 2, 3] and values.tolist() == [0, 1, 2]


def test_arrays_of_the_host_are_not_copied() -> None:
    workspace, values = Workspace(), np.arange(3.0)
    assert workspace.put(values) is values and workspace.take(values) is values
    assert workspace.xp is np and device_of(values) == {}
    rows = np.array([0, 1])
    assert workspace.indices(rows) is rows


def test_a_device_that_is_missing_is_reported() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    for device in ("cuda", "cuda:1"):
        with pytest.raises(
            UnavailableError,
            match=f"device '{device}' is not available here; use device 'cpu'",
        ):
            Workspace(device).put(np.ones(2))


def test_results_are_cached_by_name_device_precision_and_key() -> None:
    memo, calls = Memo(), list[str]()

    def once(workspace: Workspace, name: str, key: str) -> str:
        def compute() -> str:
            calls.append(f"{name}:{key}")
            return f"{name}:{key}:{len(calls)}"

        return str(workspace.once(name, key, compute, len))

    first = Workspace(memo=memo)
    assert (
        once(first, "gram", "a")
        == once(Workspace(memo=memo), "gram", "a")
        == "gram:a:1"
    )
    assert (
        once(first, "gram", "b") == "gram:b:2"
        and once(first, "norm", "a") == "norm:a:3"
    )
    assert once(Workspace(dtype="float32", memo=memo), "gram", "a") == "gram:a:4"
    assert once(Workspace("torch", memo=memo), "gram", "a") == "gram:a:5"
    assert (
        once(first, "gram", "") == "gram::6" and once(first, "gram", "") == "gram::7"
    ), "no key, no cache"
    assert len(memo) == 5


def test_threads_are_limited_only_inside_the_block() -> None:
    from threadpoolctl import threadpool_info

    def threads() -> list[int]:
        return [
            pool["num_threads"]
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        ]

    before = threads()
    with Workspace(threads=1).limits():
        assert set(threads()) <= {1}
    with Workspace().limits():
        assert threads() == before
    assert threads() == before
