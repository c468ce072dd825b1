"""Memory is known where the system tells it, and what exceeds it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroledger.data import memory
from neuroledger.data.memory import available_bytes, require_memory
from neuroledger.errors import RequestError
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


def test_what_does_not_fit_is_refused_with_what_to_change(system: Path) -> None:
    (system / "meminfo").write_text("MemAvailable:  1 kB\n")
    with pytest.raises(
        RequestError, match=r"2 layers for 50 presentations, needs .* GiB are free: score it with"
    ):
        layered(regions={"IT": ("units", "maps")}).record(drawn(50), "IT")
    with pytest.raises(RequestError, match="50 presentations, needs"):
        layered().perform(Task("odd_one_out"), drawn(50))


def test_decisions_from_a_layer_that_is_too_large_are_refused(system: Path) -> None:
    (system / "meminfo").write_text("MemAvailable:  10 kB\n")
    with pytest.raises(
        RequestError, match=r"deciding from layer 'maps', 24 features for 48 stimuli.*smaller layer"
    ):
        layered(readout="maps").perform(Task("odd_one_out"), drawn(48))
