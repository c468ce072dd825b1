"""Activations are stored by content, atomically, and without holding all of them in memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from neuroledger.data.stimuli import StimulusSet
from neuroledger.display import NoDisplay
from neuroledger.errors import DataError, LimitError, ModelError, StorageError
from neuroledger.models import activation_store as present
from neuroledger.models.activation_store import DiskStore, attach, time_in_words
from neuroledger.models.activations import Trial
from neuroledger.models.model import LayeredModel
from neuroledger.spec.channels import STIMULI
from neuroledger.store import store as kept_in
from neuroledger.store.store import size_in_words
from tests.models.drawn_stimuli import drawn

LAYERS = tuple(f"layer{number:02d}" for number in range(60))


class Counting:
    """A model of 60 layers that counts how often each stimulus was shown, apart from looks at the first two."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.shown = 0
        self.fail_at = fail_at

    def __call__(
        self,
        stimuli: StimulusSet,
        ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> dict[str, NDArray[Any]]:
        if list(ids) != stimuli.ids[:2]:
            self.shown += len(ids)
            if self.fail_at is not None and self.shown >= self.fail_at:
                raise ModelError("out of order")
        numbers = np.array([int(name[1:]) for name in ids], dtype=np.float32)
        return {
            layer: numbers[:, None]
            + np.arange(4, dtype=np.float32)
            + LAYERS.index(layer)
            for layer in layers
        }


def model_of(extract: Any, store: Any, **options: Any) -> LayeredModel:
    regions = {
        region: LAYERS[start : start + 15]
        for region, start in (("V1", 0), ("V2", 15), ("V4", 30), ("IT", 45))
    }
    given: dict[str, Any] = {
        "identity": {"builder": "counting"},
        "regions": regions,
        "batch": 10,
        **options,
    }
    return LayeredModel(
        id="counting",
        takes=STIMULI,
        extract=extract,
        layers=LAYERS,
        store=store,
        **given,
    )


def test_sixty_layers_four_regions_two_assemblies_in_one_pass(tmp_path: Path) -> None:
    counting, stimuli = Counting(), drawn(35, size=(2, 2))
    model = model_of(counting, DiskStore(tmp_path))
    for _ in ("assembly of one lab", "assembly of another"):
        for region in ("V1", "V2", "V4", "IT"):
            response = model.record(stimuli, region)
            assert response.sizes["neuroid"] == 60
            assert response.values[34, 0] == 34 + LAYERS.index(
                str(response["layer"].values[0])
            )
    assert counting.shown == 35
    again = model_of(counting, DiskStore(tmp_path))
    again.record(stimuli, "IT")
    assert counting.shown == 35, "another process finds them too"


def test_the_key_contains_everything_that_determines_activations(
    tmp_path: Path,
) -> None:
    counting, store = Counting(), DiskStore(tmp_path)
    stimuli = drawn(20, size=(2, 2))
    model_of(counting, store).record(stimuli, "IT")
    for change in ({"identity": {"builder": "counting", "weights": "ff"}},):
        before = counting.shown
        model_of(counting, store, **change).record(stimuli, "IT")
        assert counting.shown == before + 20
    before = counting.shown
    model_of(counting, store).record(drawn(20, size=(2, 2), seed=9), "IT")
    model_of(counting, store).record(stimuli.select(stimuli.ids[:12]), "IT")
    assert counting.shown == before + 32


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="out of order"):
        model_of(Counting(fail_at=20), DiskStore(tmp_path)).record(
            drawn(35, size=(2, 2)), "IT"
        )
    assert not [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    ]


def test_an_incomplete_file_is_computed_again(tmp_path: Path) -> None:
    counting, stimuli = Counting(), drawn(20, size=(2, 2))
    model = model_of(counting, DiskStore(tmp_path))
    expected = model.record(stimuli, "V4").values.copy()
    for kept in (0, 40, -3):
        path = next(tmp_path.rglob("values.bin"))
        path.write_bytes(path.read_bytes()[:kept])
        for region in ("V1", "V2", "V4", "IT"):
            model.record(stimuli, region)
        assert np.array_equal(model.record(stimuli, "V4").values, expected)


def test_activations_that_do_not_fit_on_the_disk_are_refused_before_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    monkeypatch.setattr(
        shutil, "disk_usage", lambda _: Usage(0, 0, kept_in.SPARE_BYTES + 100)
    )
    counting = Counting()
    with pytest.raises(StorageError) as caught:
        model_of(counting, DiskStore(tmp_path)).record(drawn(35, size=(2, 2)), "IT")
    for words in (
        "35 presentations",
        "60 layers",
        "has space for",
        "--limit",
        "NEUROLEDGER_ACTIVATIONS",
    ):
        assert words in str(caught.value)
    assert counting.shown == 0


def test_a_big_run_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lines(NoDisplay):
        def __init__(self) -> None:
            self.lines: list[str] = []
            self.done: list[int] = []

        def line(self, text: str) -> None:
            self.lines.append(text)

        def progress(self, label: str, done: int, total: int) -> None:
            self.done.append(done)

    display = Lines()
    monkeypatch.setattr(present, "BIG_BYTES", 10)
    model_of(Counting(), DiskStore(tmp_path, display)).record(
        drawn(25, size=(2, 2)), "IT"
    )
    assert "25 presentations of drawn, 60 layers: about" in display.lines[0]
    assert display.done == [10, 20, 25]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(DataError, match="NEUROLEDGER_ACTIVATIONS"):
        model_of(Counting(), DiskStore(blocked / "activations")).record(
            drawn(5, size=(2, 2)), "IT"
        )


def test_large_regions_are_joined_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stimuli = drawn(20, size=(2, 2))
    whole = model_of(Counting(), DiskStore(tmp_path)).record(stimuli, "V4").values
    monkeypatch.setattr(present, "JOIN_IN_MEMORY", 500)
    store = DiskStore(tmp_path)
    joined = model_of(Counting(), store).record(stimuli, "V4").values
    assert np.array_equal(joined, whole)
    assert not list(tmp_path.rglob("processes/*/*.tmp")), (
        "the file has no name any more"
    )
    written: list[Any] = []
    monkeypatch.setattr(store, "_join_on_disk", lambda *given: written.append(given))
    assert np.array_equal(
        model_of(Counting(), store).record(stimuli, "V4").values, whole
    )
    assert not written, "the next benchmark finds it joined"


def test_entries_of_models_in_memory_are_removed_with_the_process(
    tmp_path: Path,
) -> None:
    code = """
        import sys
        from pathlib import Path
        from neuroledger.models.activation_store import DiskStore
        from tests.models.test_present import Counting, model_of
        from tests.models.drawn_stimuli import drawn
        counting = Counting()
        model = model_of(counting, DiskStore(Path(sys.argv[1])), identity=lambda: {"process": "token"})
        model.record(drawn(12, size=(2, 2)), "V4")
        model.record(drawn(12, size=(2, 2)), "IT")
        assert counting.shown == 12, counting.shown
        assert list(Path(sys.argv[1]).rglob("values.bin"))
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("values.bin"))


def test_leftovers_of_a_killed_process_are_removed_and_its_pass_is_repeated(
    tmp_path: Path,
) -> None:
    code = """
        import os, signal, sys
        from pathlib import Path
        from neuroledger.models.activation_store import DiskStore
        from tests.models.test_present import Counting, model_of
        from tests.models.drawn_stimuli import drawn
        class Killed(Counting):
            def __call__(self, *given):
                if self.shown >= 20:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().__call__(*given)
        model_of(Killed(), DiskStore(Path(sys.argv[1]))).record(drawn(35, size=(2, 2)), "IT")
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    assert len(list(tmp_path.rglob("*.tmp"))) == len(LAYERS), (
        "it was killed amid the pass"
    )
    counting = Counting()
    response = model_of(counting, DiskStore(tmp_path)).record(
        drawn(35, size=(2, 2)), "IT"
    )
    assert counting.shown == 35
    assert response.values[34, 0] == 34 + 45
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_store_is_attached_where_there_is_none(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    bare = model_of(Counting(), None)
    attached = attach(bare, store)
    assert isinstance(attached, LayeredModel)
    assert attached.store is store
    assert bare.store is None
    assert attach(attached, DiskStore(tmp_path / "other")) is attached


def test_sizes_and_times_in_words() -> None:
    assert [size_in_words(n) for n in (12, 1536, 3 * 1024**3)] == [
        "12 B",
        "1.5 KiB",
        "3.0 GiB",
    ]
    assert [time_in_words(n) for n in (0.2, 30, 120, 7200)] == [
        "less than 1 s",
        "30 s",
        "2.0 min",
        "2.0 h",
    ]


def test_memory_does_not_grow_with_the_number_of_images(tmp_path: Path) -> None:
    code = """
        import resource, sys
        from pathlib import Path
        import numpy as np
        from neuroledger.models.model import LayeredModel
        from neuroledger.models.activation_store import DiskStore
        from tests.models.drawn_stimuli import drawn
        def extract(stimuli, ids, layers, trial):
            return {"wide": np.full((len(ids), 50_000), 1.0, dtype=np.float32)}
        seen = frozenset({"images"})
        model = LayeredModel(id="wide", takes=seen, extract=extract, layers=("wide",), identity={"b": 1}, batch=20,
                             store=DiskStore(Path(sys.argv[1])))
        def peak(count):
            model.activations(drawn(count, size=(1, 1), seed=count), ["wide"])
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first = peak(60)
        print(peak(600) - first)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 30_000, (
        "120 MB of activations may not be held in memory (KiB)"
    )


def test_a_batch_that_memory_cannot_hold_is_refused_before_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neuroledger.data.memory.available_bytes", lambda: 1000)
    counting = Counting()
    with pytest.raises(
        LimitError,
        match=r"of memory, .* are free: name fewer layers, or make the images smaller",
    ):
        model_of(counting, DiskStore(tmp_path)).record(drawn(35, size=(2, 2)), "IT")
    assert counting.shown == 0


class Announced(NoDisplay):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)


def test_a_small_run_is_silent_and_a_long_one_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    display = Announced()
    model_of(Counting(), DiskStore(tmp_path / "a", display)).record(
        drawn(5, size=(2, 2)), "IT"
    )
    assert display.lines == []
    monkeypatch.setattr(present, "BIG_SECONDS", 0.0)
    model_of(Counting(), DiskStore(tmp_path / "b", display)).record(
        drawn(5, size=(2, 2)), "IT"
    )
    assert len(display.lines) == 1 and display.lines[0].startswith(
        "counting: 5 presentations of drawn, 60 layers"
    )


def test_the_limit_of_the_store_is_refused_with_the_limit_that_suffices(
    tmp_path: Path,
) -> None:
    counting = Counting()
    # 60 layers of 5 × 4 numbers of 4 bytes, and 512 bytes of index for each: 35,520 bytes.
    with pytest.raises(StorageError) as caught:
        model_of(counting, DiskStore(tmp_path, limit=35_519)).record(
            drawn(5, size=(2, 2)), "IT"
        )
    for words in ("The limit of the store is 34.7 KiB: name fewer layers (the largest is 'layer00')",
                  "raise NEUROLEDGER_ACTIVATIONS_LIMIT, for example to `69.4 KiB`"):  # fmt: skip
        assert words in str(caught.value)
    assert counting.shown == 0
    model_of(counting, DiskStore(tmp_path, limit=35_520)).record(
        drawn(5, size=(2, 2)), "IT"
    )
    assert counting.shown == 5


def test_durations_change_their_unit_at_a_minute_and_a_half_and_an_hour_and_a_half() -> (
    None
):
    given = [time_in_words(seconds) for seconds in (0.99, 1, 89.4, 90, 5394, 5400)]
    assert given == ["less than 1 s", "1 s", "89 s", "1.5 min", "89.9 min", "1.5 h"]


@pytest.mark.parametrize("limit", [0, 10**9])
def test_joined_layers_have_the_wider_type(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(present, "JOIN_IN_MEMORY", limit)
    first, second = np.ones((3, 2), np.float32), np.full((3, 1), 0.1, np.float64)
    joined = DiskStore(tmp_path).join([first, second])
    assert joined.dtype == np.float64 and joined.tolist() == [[1.0, 1.0, 0.1]] * 3
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".tmp"
    ]


def test_the_eight_latest_joined_regions_are_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(present, "JOIN_IN_MEMORY", 0)
    store = DiskStore(tmp_path)
    joins: list[int] = []
    on_disk = store._join_on_disk
    monkeypatch.setattr(
        store, "_join_on_disk", lambda *given: joins.append(1) or on_disk(*given)
    )
    regions = []
    for number in range(9):
        np.save(tmp_path / f"{number}.npy", np.full((2, 2), float(number)))
        regions.append([np.load(tmp_path / f"{number}.npy", mmap_mode="r")])
    for region in regions[:8]:
        store.join(region)
    store.join(regions[0])
    assert len(joins) == 8
    store.join(regions[8])  # takes the place of the second, which was not used since
    assert store.join(regions[0]).tolist() == [[0.0, 0.0]] * 2 and len(joins) == 9
    assert store.join(regions[1]).tolist() == [[1.0, 1.0]] * 2 and len(joins) == 10


def test_layers_up_to_the_limit_are_joined_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(tmp_path)
    joins: list[int] = []
    monkeypatch.setattr(store, "_join_on_disk", lambda arrays, *_: joins.append(1))
    halves = [np.ones((4, 3), np.float32), np.ones((4, 3), np.float32)]  # 96 bytes
    for limit, expected in ((96, 0), (95, 1)):
        monkeypatch.setattr(present, "JOIN_IN_MEMORY", limit)
        store.join(halves)
        assert len(joins) == expected


def test_a_repository_has_its_store_of_activations(tmp_path: Path) -> None:
    store = present.open_store(tmp_path)
    assert isinstance(store, DiskStore) and store.files.folder == kept_in.store_folder(
        tmp_path
    )
