"""Windows of many recordings are stored once under a key of their inputs, and equal those of `join`."""

import json
import os
import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import xarray as xr

from neuroledger.data import assembly as assemblies
from neuroledger.data import memory
from neuroledger.data.assembly import content_sha256, select
from neuroledger.errors import DataError, LimitError, RequestError
from neuroledger.families.signals.emg.sessions import WindowGrid
from neuroledger.families.signals.readers.prepared_signals import prepared_signals
from neuroledger.families.signals.recordings import window_store
from neuroledger.families.signals.recordings.window_store import join, stored
from neuroledger.families.signals.signals import signals
from neuroledger.spec import registry
from neuroledger.spec.components import ReaderContext
from neuroledger.store import store as kept_store
from neuroledger.store.store import store_at
from tests.families.decoding.decoding_cases import windows

PARAMETERS = {
    "window": WindowGrid(duration=1, stride=1),
    "core": 1.0,
    "first": None,
    "decimate": 1,
}


def part(name, count, dtype=np.float32, age=1.0, channels="abc", samples=8, **facts):
    values = np.random.default_rng(len(name) + count).standard_normal(
        (count, len(channels), samples)
    )
    events = {
        "stimulus_id": [f"{name}/{row}" for row in range(count)],
        "subject": [name] * count,
        "recording": [name] * count,
        "onset": np.arange(float(count)),
        "age": [age] * count,
        "number": np.arange(count),
        **{fact: [value] * count for fact, value in facts.items()},
    }
    return signals(
        values.astype(dtype),
        channels=list(channels),
        channel_types="eeg",
        sampling_rate=10.0,
        start=0.0,
        units="uV",
        events=events,
        attrs={"made": "by the test"},
    )


PARTS = [
    None,
    part("one", 4),
    None,
    part("three", 5, age="n/a"),
    part("longer", 3, np.float64),
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A data set of one file in a repository, and no window that stays in memory."""
    monkeypatch.setattr(window_store, "IN_MEMORY", 0)
    monkeypatch.delenv("NEUROLEDGER_ACTIVATIONS", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("one")
    return {"a.csv": folder / "a.csv"}


def keep(files, parts=PARTS, of=None, **changed):
    """What `typing_sessions` returns where it makes these parts."""
    reader = registry.get("reader", "typing_sessions")
    context = ReaderContext(reader, files, {**PARAMETERS, **changed})
    return stored(context, parts, of=of)


def places(files):
    root = files["a.csv"].parents[2]
    return sorted(
        path.parent
        for path in (root / ".cache" / "neuroledger" / "windows").glob(
            "??/*/index.json"
        )
    )


@pytest.mark.parametrize(
    "parts", [PARTS, PARTS[:2], PARTS[::-1], PARTS[1:2] + PARTS[4:]]
)
def test_stored_windows_equal_joined_windows(files, parts):
    expected = join(parts)
    for _ in range(2):
        found = keep(files, iter(parts))
        xr.testing.assert_identical(found, expected)
        assert found.dtype == expected.dtype and list(found.coords) == list(
            expected.coords
        )
        assert all(
            found[name].dtype == expected[name].dtype for name in expected.coords
        )
        assert not found.values.flags.writeable
        assert (
            found.encoding["content_sha256"]
            == content_sha256(found)
            == content_sha256(expected)
        )


def test_parts_are_computed_once_and_again_when_an_input_changes(files, monkeypatch):
    begun = []

    def parts():
        begun.append(True)
        yield from PARTS

    keep(files, parts())
    (first,) = places(files)
    keep(files, parts())
    assert len(begun) == 1 and places(files) == [first]
    keep(files, parts(), core=2.0)
    assert len(begun) == 2 and len(places(files)) == 2 and first in places(files)
    files["a.csv"].write_text("two")
    keep(files, parts(), core=2.0)
    assert len(begun) == 3
    monkeypatch.setattr(
        window_store, "_version", lambda library: f"{library} of tomorrow"
    )
    keep(files, parts(), core=2.0)
    assert len(begun) == 4 and len(places(files)) == 4
    with pytest.raises(RequestError, match="only registered readers"):
        stored(None, parts())


def test_a_changed_entry_is_detected_and_computed_again(files):
    expected = keep(files).copy(deep=True)
    (place,) = places(files)
    with (place / "values.bin").open("r+b") as file:
        file.seek(100)
        file.write(b"something else")
    xr.testing.assert_identical(keep(files), expected)
    coordinate = next(place.glob("coordinate*.npy"))
    coordinate.write_bytes(coordinate.read_bytes()[:-1] + b"x")
    xr.testing.assert_identical(keep(files), expected)
    index = json.loads((place / "index.json").read_text())
    index["about"] = index["about"].replace("10.0", "20.0")
    (place / "index.json").write_text(json.dumps(index))
    xr.testing.assert_identical(keep(files), expected)
    os.utime(place / "values.bin")  # touched, with the same bytes
    xr.testing.assert_identical(keep(files, [pytest.fail]), expected)


def test_an_interrupted_write_leaves_no_files(files, monkeypatch):
    def parts():
        yield PARTS[1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep(files, parts())
    assert places(files) == []
    assert not [
        path
        for path in files["a.csv"].parents[2].rglob("*")
        if path.suffix in {".bin", ".tmp"}
    ]


def test_entries_in_the_folder_of_the_data_set_are_ignored(files):
    """What lies in the data set's own folder may come with a pull request."""
    expected = keep(files).copy(deep=True)
    (place,) = places(files)
    forged = files["a.csv"].parent / "prepared" / place.name
    shutil.copytree(place, forged)
    shutil.rmtree(place)
    content = (forged / "values.bin").read_bytes()
    (forged / "values.bin").write_bytes(bytes(reversed(content)))
    begun = []

    def parts():
        begun.append(True)
        yield from PARTS

    with store_at(files["a.csv"].parents[2]):
        xr.testing.assert_identical(keep(files, parts()), expected)
    assert begun and (forged / "values.bin").read_bytes() == bytes(reversed(content))


@pytest.mark.parametrize("in_memory", [0, 1 << 28])
def test_an_unreadable_recording_is_not_reported_as_a_full_disk(
    files, in_memory, monkeypatch
):
    monkeypatch.setattr(window_store, "IN_MEMORY", in_memory)

    def parts():
        yield PARTS[1]
        raise PermissionError(13, "Permission denied", "two.edf")

    with pytest.raises(
        DataError, match=r"a recording cannot be read .*Permission denied: 'two\.edf'"
    ):
        keep(files, parts())


def test_only_one_of_several_threads_computes_the_windows(files):
    begun = []

    def parts():
        yield PARTS[1]
        begun.append(True)
        yield PARTS[3]

    meet = Barrier(4, timeout=60)

    def ask(_):
        meet.wait()
        return keep(files, parts())

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(ask, range(4)):
            xr.testing.assert_identical(found, join(PARTS[1:4]))
    assert len(places(files)) == 1

    def with_another():
        yield PARTS[1]
        keep(files, core=3.0)
        yield PARTS[3]

    keep(files, with_another(), core=2.0)
    xr.testing.assert_identical(keep(files, [pytest.fail], core=3.0), join(PARTS))
    xr.testing.assert_identical(keep(files, [pytest.fail], core=2.0), join(PARTS[1:4]))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            part("two", 3, channels="abd"),
            "recordings two and one have different channels, lengths or rates",
        ),
        (
            part("two", 3, samples=9),
            "declare `drop`, `pick` and `resample` so that they agree",
        ),
        (
            part("two", 3, hand="left"),
            "recordings two and one have different facts: hand",
        ),
    ],
)
@pytest.mark.parametrize("in_memory", [0, 1 << 28])
def test_inconsistent_recordings_are_refused_in_memory_and_on_disk(
    files, other, words, in_memory, monkeypatch
):
    monkeypatch.setattr(window_store, "IN_MEMORY", in_memory)
    with pytest.raises(DataError, match=words):
        keep(files, [part("one", 4), None, other])
    with pytest.raises(DataError, match="no recording has a window"):
        keep(files, [None, None])


def test_few_windows_stay_in_memory_and_write_no_file(files, monkeypatch):
    monkeypatch.setattr(window_store, "IN_MEMORY", 1 << 28)
    xr.testing.assert_identical(keep(files), join(PARTS))
    assert [path.name for path in files["a.csv"].parent.iterdir()] == ["a.csv"]
    assert not (files["a.csv"].parents[2] / ".cache").exists()


def test_windows_that_fit_into_memory_are_stored_and_not_computed_again(
    files, monkeypatch
):
    monkeypatch.setattr(window_store, "IN_MEMORY", 1 << 28)
    monkeypatch.setattr(window_store, "TINY", 0)
    first = keep(files, iter(PARTS))
    assert len(places(files)) == 1 and not first.values.flags.writeable
    xr.testing.assert_identical(first, join(PARTS))
    xr.testing.assert_identical(
        keep(files, iter([])), first
    )  # no part is asked for again
    shutil.rmtree(places(files)[0].parents[1])
    monkeypatch.setattr(kept_store.Store, "make_room", lambda store, size: 0)
    xr.testing.assert_identical(
        keep(files, iter(PARTS)), join(PARTS)
    )  # no room: they stay in memory


def test_a_full_disk_is_reported_after_the_first_part(files, monkeypatch):
    made = []

    def parts():
        for number in range(100):
            made.append(number)
            yield part(f"r{number}", 10)

    monkeypatch.setattr(kept_store, "SPARE_BYTES", 0)
    monkeypatch.setattr(
        "shutil.disk_usage", lambda _: type("Usage", (), {"free": 5000})()
    )
    with pytest.raises(
        DataError,
        match=r"the windows need about 0\.0 GiB more in .*free space, .*or reduce the recordings",
    ):
        keep(files, parts(), of=100)
    assert made == [0] and not places(files)


def test_windows_are_stored_in_the_store_of_their_repository(files, tmp_path):
    with store_at(tmp_path / "mine"):
        keep(files)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [".cache"]
    assert not (tmp_path / ".cache").exists()


def test_one_part_is_in_memory_at_a_time(files, monkeypatch):
    monkeypatch.setattr(memory, "BLOCK", 1 << 20)

    def parts():
        for number in range(12):
            made = part(
                f"r{number:02}", 128, channels=[f"c{k}" for k in range(32)], samples=128
            )  # 2.1 MB
            yield made
            del made

    tracemalloc.start()
    found = keep(files, parts(), of=12)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.nbytes == 12 * 128 * 32 * 128 * 4
    assert (
        peak < found.nbytes * 0.45
    )  # the test makes its parts in double precision first: three times one of them


def test_prepared_signals_larger_than_memory_are_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NEUROLEDGER_ACTIVATIONS", raising=False)
    whole = windows(subjects=4, trials=20)
    assemblies.write(whole, tmp_path / "signals.nc")
    files = {"signals.nc": tmp_path / "signals.nc"}
    usual = prepared_signals(files).assembly
    for module in (
        "neuroledger.families.signals.recordings.window_store",
        "neuroledger.families.signals.readers.prepared_signals",
    ):
        monkeypatch.setattr(f"{module}.IN_MEMORY", 4000)
    found = prepared_signals(files).assembly
    xr.testing.assert_identical(found, usual)
    assert (
        not found.values.flags.writeable
        and (tmp_path / ".cache" / "neuroledger" / "windows").is_dir()
    )


def test_adjacent_rows_are_selected_as_a_view_and_others_where_there_is_room(
    files, monkeypatch
):
    found = keep(files)
    inner = select(found, {"recording": "three"})
    assert (
        np.shares_memory(inner.values, found.values)
        and inner.sizes["presentation"] == 5
    )
    outer = {"recording": ["one", "longer"]}
    xr.testing.assert_identical(select(found, outer), select(join(PARTS), outer))
    monkeypatch.setattr(memory, "LARGE", 0)
    copy = select(found, outer)
    xr.testing.assert_identical(copy, select(join(PARTS), outer))
    assert memory.mapped(copy.values) is not None, "in the store, where it is large"
    monkeypatch.setattr(memory, "available_bytes", lambda: 100)
    monkeypatch.setattr(memory, "_in_unnamed_file", lambda *_: None)
    with pytest.raises(
        LimitError,
        match=r"a copy of the selected presentations needs about .*the spec's reader",
    ):
        select(found, outer)
