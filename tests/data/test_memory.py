"""Memory is known where the system tells it, and what exceeds it is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.data import memory
from neuroledger.data.memory import available_bytes, require_memory
from neuroledger.errors import LimitError
from neuroledger.models.model import Task
from tests.models.drawn_stimuli import drawn
from tests.models.test_model import layered


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    (tmp_path / "meminfo").write_text("MemTotal:  900 kB\nMemAvailable:  500 kB\n")
    return tmp_path


def test_the_lesser_of_machine_and_group_counts(system: Path) -> None:
    assert available_bytes() == 500 * 1024
    (system / "memory.max").write_text("max\n")
    (system / "memory.current").write_text("90000\n")
    (system / "memory.stat").write_text("anon 60000\nfile 30000\n")
    assert available_bytes() == 500 * 1024
    (system / "memory.max").write_text("100000\n")
    assert available_bytes() == 40_000


def test_nothing_is_refused_where_nothing_is_known(system: Path) -> None:
    (system / "meminfo").unlink()
    assert available_bytes() is None
    require_memory(10**18, "this", "that")


def test_work_that_does_not_fit_into_memory_is_refused_with_advice(
    system: Path,
) -> None:
    (system / "meminfo").write_text("MemAvailable:  1 kB\n")
    with pytest.raises(
        LimitError,
        match=r"2 layers for 50 presentations, needs .* GiB are free: score it with",
    ):
        layered(regions={"IT": ("units", "maps")}).record(drawn(50), "IT")
    with pytest.raises(LimitError, match="50 presentations, needs"):
        layered().perform(Task("odd_one_out"), drawn(50))


def test_decisions_from_a_layer_that_is_too_large_are_refused(system: Path) -> None:
    (system / "meminfo").write_text("MemAvailable:  10 kB\n")
    with pytest.raises(
        LimitError,
        match=r"deciding from layer 'maps', 24 features for 48 stimuli.*smaller layer",
    ):
        layered(readout="maps").perform(Task("odd_one_out"), drawn(48))


def test_rows_of_a_view_are_taken_changed_and_put_together_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.arange(24.0).tofile(tmp_path / "x")
    held = np.memmap(tmp_path / "x", dtype=float, mode="r", shape=(8, 3))
    asked: list[list[int]] = []

    def doubled(taken: Any, rows: Any) -> Any:
        asked.append(rows.tolist())
        return taken * 2

    view = memory.LazyRows(held, np.array([7, 0, 3]), np.float32, doubled)
    assert (view.shape, view.ndim, len(view), view.dtype, view.nbytes) == (
        (3, 3),
        2,
        3,
        np.float32,
        36,
    )
    assert view[1:2].tolist() == [[0.0, 2.0, 4.0]] and view[
        np.array([2, 0])
    ].tolist() == [
        [18, 20, 22],
        [42, 44, 46],
    ]
    assert asked == [[0], [3, 7]] and view[:1].dtype == np.float32
    monkeypatch.setattr(memory, "BLOCK", 13)
    assert np.array_equal(np.asarray(view), held[[7, 0, 3]] * 2) and asked[3:] == [
        [7],
        [0],
        [3],
    ]
    assert np.asarray(view, dtype=np.int64).dtype == np.int64
    part = memory.part_of(view, np.array([2, 1]))
    assert (
        isinstance(part, memory.LazyRows)
        and part[:].tolist() == (held[[3, 0]] * 2).tolist()
    )
    plain = memory.LazyRows(held, np.array([1]))
    assert (
        plain.dtype == held.dtype
        and plain[:].tolist() == held[[1]].tolist()
        and not np.shares_memory(plain[:], held)
    )
    assert memory.part_of(np.arange(4), np.array([3, 1])).tolist() == [3, 1]


def test_blocks_cover_every_row_once_and_memory_maps_are_recognised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "BLOCK", 32)
    assert list(memory.row_blocks(np.zeros((5, 2)))) == [
        slice(0, 2),
        slice(2, 4),
        slice(4, 5),
    ]
    assert list(memory.row_blocks(np.zeros((3, 9)))) == [
        slice(0, 1),
        slice(1, 2),
        slice(2, 3),
    ]
    assert (
        list(memory.row_blocks(np.zeros(()))) == [slice(None)]
        and list(memory.row_blocks(np.zeros((0, 2)))) == []
    )
    assert list(memory.row_blocks(np.zeros((40, 0)))) == [slice(0, 32), slice(32, 40)]
    np.arange(4.0).tofile(tmp_path / "x")
    held = np.memmap(tmp_path / "x", dtype=float, mode="r")
    assert memory.mapped(held[1:].reshape(-1, 1)) is memory.mapped(held) is not None
    assert memory.mapped(np.zeros(3)) is None and memory.mapped("x") is None
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return len(made)

    assert [memory.found_once(held, "a", make) for _ in range(3)] == [1, 1, 1]
    assert (
        memory.found_once(held, "b", make) == 2
        and memory.found_once(held[1:], "a", make) == 3
    )
    assert (
        memory.found_once(held[::2], "a", make) == 4
        and memory.found_once(held, "a", make) == 1
    )
    assert [memory.found_once(np.zeros(3), "a", make) for _ in range(2)] == [5, 6]
    memory.release(held)
    assert held.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_the_error_states_needed_and_free_memory_and_what_fits_is_allowed(
    system: Path,
) -> None:
    (system / "meminfo").write_text(f"MemAvailable:  {3 * 1024**2} kB\n")
    require_memory(3 * 1024**3, "this", "halve it")
    with pytest.raises(LimitError) as caught:
        require_memory(5 * 1024**3, "this", "halve it")
    assert (
        str(caught.value)
        == "this needs about 5.0 GiB of memory, 3.0 GiB are free: halve it"
    )
    with pytest.raises(LimitError, match=r"about 3\.0 GiB"):
        require_memory(3 * 1024**3 + 1, "this", "halve it")


def test_an_array_is_allocated_if_it_fits(
    system: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = memory.empty_array((2, 3), np.float32, "this", "halve it")
    assert (array.shape, array.dtype) == ((2, 3), np.float32)
    (system / "meminfo").write_text("MemAvailable:  1 kB\n")
    assert memory.empty_array((16, 8), np.float64, "this", "halve it").nbytes == 1024
    with pytest.raises(LimitError, match="are free: halve it"):
        memory.empty_array((16, 9), np.float64, "this", "halve it")
    (system / "meminfo").unlink()

    def empty(*arguments: Any, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(np, "empty", empty)
    with pytest.raises(LimitError) as caught:
        memory.empty_array((1 << 30,), np.uint8, "this", "halve it")
    assert str(caught.value) == (
        "this needs about 1.0 GiB of memory, more than this process may take: halve it"
    )


def test_pages_of_a_memory_map_are_dropped_on_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advice: list[int] = []

    class Map:
        def madvise(self, option: int) -> None:
            advice.append(option)

    monkeypatch.setattr(memory, "mapped", lambda _: Map())
    memory.release("values")
    assert advice == [memory.mmap.MADV_DONTNEED]


def test_a_view_is_converted_to_the_requested_type_block_by_block() -> None:
    view = memory.LazyRows(np.arange(6.0).reshape(3, 2), np.array([2, 1]))
    whole = view.__array__(np.int16)
    assert whole.dtype == np.int16 and whole.tolist() == [[4, 5], [2, 3]]
