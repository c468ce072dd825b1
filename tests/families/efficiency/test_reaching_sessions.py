"""Sessions of reaches: windows, velocities and parts compared with a plain computation, and errors for invalid files."""

from __future__ import annotations

import math
from pathlib import Path

import h5py
import numpy as np
import pytest

from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.efficiency.readers.reaching_sessions import reaching_sessions
from tests.families.efficiency.matlab73 import write_reaches

NAMES = ["M1 001", "M1 002", "S1 001"]
STEP = 0.004


def session(samples: int = 900, start: float = 37.5) -> dict:
    """Seven reaches (six changes of target) with spikes of three channels, the second without any sorted unit."""
    rng = np.random.default_rng(3)
    times = start + STEP * np.arange(samples)
    cursor = np.cumsum(rng.normal(size=(samples, 2)), axis=0)
    target = np.zeros((samples, 2))
    for number, at in enumerate((60, 200, 310, 500, 640, 800)):
        target[at:] = [number % 3 - 1.0, number]
    fired = [
        np.sort(rng.uniform(start - 0.5, times[-1] + 0.5, n))
        for n in (900, 400, 300, 700, 0, 50)
    ]
    fired[0] = np.sort(
        np.concatenate(
            [fired[0], times[100:104], [times[50] + 0.001, times[50] + 0.002]]
        )
    )
    none = np.empty(0)
    spikes = [
        [fired[0], fired[1], fired[2]],
        [fired[3], none, none],
        [fired[4], fired[5], none],
    ]
    return {
        "times": times,
        "cursor": cursor,
        "target": target,
        "spikes": spikes,
        "names": NAMES,
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_reaches(tmp_path / "indy_20160630_01.mat", **session())


def read(path: Path, **options):
    return reaching_sessions({path.name: path}, **options).assembly


def plainly(
    recording: dict, sample: int, back: int, width: int, *, presence: bool
) -> list[int]:
    """Count spikes of each channel in `width` steps of 4 ms that end `back` steps before a sample, spike by spike."""
    result = []
    for row in recording["spikes"]:
        spikes, total = np.concatenate(row), 0
        for k in range(
            sample - back - width, sample - back
        ):  # the step from sample k to sample k + 1
            begin, end = (
                recording["times"][0] + STEP * i if i < 0 else recording["times"][i]
                for i in (k, k + 1)
            )
            n = sum(1 for s in spikes if begin <= s < end)
            total += min(n, 1) if presence else n
        result.append(total)
    return result


@pytest.mark.parametrize("count", ["presence", "spikes"])
def test_windows_contain_the_spikes_before_each_sample(path, count):
    assembly = read(path, bin_width=28, bins=7, lag=8, count=count)
    recording = session()
    assert assembly.dims == (
        "presentation",
        "neuroid",
        "time_bin",
    ) and assembly.shape == (900, 3, 7)
    assert assembly.dtype == np.uint8
    assert assembly["time_bin_end"].values.tolist() == [
        -8 - 28 * k for k in range(6, -1, -1)
    ]
    assert assembly["time_bin_start"].values.tolist() == [
        -36 - 28 * k for k in range(6, -1, -1)
    ]
    for sample in (0, 1, 5, 51, 60, 103, 105, 899):
        for place in range(7):
            expected = plainly(
                recording, sample, 2 + 7 * (6 - place), 7, presence=count == "presence"
            )
            assert assembly.values[sample, :, place].tolist() == expected, (
                sample,
                place,
            )


def test_windows_are_views_of_one_array(path):
    assembly = read(path, bin_width=28, bins=50)
    low, high = np.lib.array_utils.byte_bounds(assembly.values)
    assert high - low <= 3 * (900 + 51 * 7) < assembly.size / 20
    assert not assembly.values.flags.owndata


def test_velocity_is_a_central_difference_in_millimetres_per_second(path):
    recording, result = session(), read(path)
    expected = [
        (recording["cursor"][i + 1] - recording["cursor"][i - 1]) / 0.008
        for i in range(1, 899)
    ]
    velocity = np.c_[result["velocity_x"].values, result["velocity_y"].values]
    np.testing.assert_allclose(velocity[1:-1], expected)
    np.testing.assert_allclose(
        velocity[0], (recording["cursor"][1] - recording["cursor"][0]) / 0.004
    )


def test_reaches_begin_at_target_changes_and_are_split_in_order(path):
    assembly = read(path)
    starts = np.flatnonzero(np.diff(assembly["reach"].values)) + 1
    assert starts.tolist() == [60, 200, 310, 500, 640, 800]
    # of seven reaches three to learn from, of the four others two each
    parts = assembly["split"].values
    assert [
        sorted(set(parts[assembly["reach"].values == r].tolist())) for r in range(7)
    ] == ([["train"]] * 3 + [["validate"]] * 2 + [["test"]] * 2)
    other = read(path, train=0.6, validation=0.2)["split"].values
    learnt = math.floor(0.6 * 7)
    assert len(set(assembly["reach"].values[other == "train"])) == learnt
    assert len(set(assembly["reach"].values[other == "validate"])) == math.floor(
        (7 - learnt) / 2
    )
    assert (
        assembly["session"].values[0] == "indy_20160630_01"
        and assembly["subject"].values.tolist() == ["indy"] * 3
    )
    assert assembly["region"].values.tolist() == ["M1", "M1", "S1"]
    assert len(set(assembly["stimulus_id"].values)) == 900


def test_long_reaches_are_left_out_of_their_part(path):
    assembly = read(path, longest_reach=760.0)
    assert np.unique(
        assembly["reach"].values[assembly["split"].values == "left out"]
    ).tolist() == [3]  # 190 samples
    split = read(path)["split"].values
    assert (assembly["split"].values == split)[assembly["reach"].values != 3].all()
    with pytest.raises(DataError, match="a part has no reach shorter than 40 ms"):
        read(path, longest_reach=40.0)


def test_a_stride_restarts_with_each_reach(path):
    every, some = (
        read(path, bin_width=8, bins=3),
        read(path, bin_width=8, bins=3, stride=28),
    )
    rows = [
        r
        for a, b in zip(
            [0, 60, 200, 310, 500, 640, 800],
            [60, 200, 310, 500, 640, 800, 900],
            strict=True,
        )
        for r in range(a, b, 7)
    ]
    assert (
        some["stimulus_id"].values.tolist()
        == every["stimulus_id"].values[rows].tolist()
    )
    assert np.array_equal(some.values, every.values[rows])


def test_units_sorted_and_unsorted(path):
    recording = session()
    sorted_ = read(path, units="sorted")
    assert sorted_["neuroid_id"].values.tolist() == [
        "M1 001 unit 1",
        "M1 001 unit 2",
        "S1 001 unit 1",
    ]
    every = read(path, units="all", count="spikes")
    assert every["neuroid_id"].values.tolist() == [
        "M1 001 unsorted",
        "M1 001 unit 1",
        "M1 001 unit 2",
        "M1 002 unsorted",
        "S1 001 unit 1",
    ]
    first, last = (
        recording["times"][0] - STEP,
        recording["times"][-1],
    )  # a window of one bin
    expected = [
        ((s >= first) & (s < last)).sum()
        for row in recording["spikes"]
        for s in row
        if len(s)
    ]
    assert every.values.sum(axis=(0, 2)).tolist() == expected
    merged = read(path, count="spikes")
    assert np.array_equal(merged.values[:, 0], every.values[:, :3].sum(axis=1))


def neurobench(
    recording: dict, ratio: int, steps: int, train: float
) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Return NeuroBench 2.3.0's samples of a session, from its description: windows, labels, and rows of the three parts."""
    times, n = recording["times"], len(recording["times"])
    edges = np.arange(times[0] - ratio * STEP, times[-1], STEP)
    fired = np.zeros((len(recording["spikes"]), len(edges)))
    for channel, row in enumerate(recording["spikes"]):
        for s in np.concatenate(row):
            for i in range(len(edges) - 1):
                if edges[i] <= s < edges[i + 1]:
                    fired[channel, i + 1] = 1
    sums = np.array(
        [fired[:, i : i + ratio].sum(axis=1) for i in range(len(edges) - ratio + 1)]
    )
    inputs = np.array([[sums[i - k * ratio] for k in range(steps)] for i in range(n)])
    cursor = recording["cursor"].astype(np.float32)
    labels = np.array(
        [cursor[min(i + 1, n - 1)] - cursor[max(i - 1, 0)] for i in range(n)]
    )
    labels[1:-1] /= 2
    changed = [
        i
        for i in range(n - 1)
        if (recording["target"][i + 1] != recording["target"][i]).any()
    ]
    reaches = list(zip([0, *changed], [*changed, n], strict=True))
    learnt = math.floor(train * len(reaches))
    checked = math.floor((len(reaches) - learnt) / 2)
    parts = [
        reaches[:learnt],
        reaches[learnt : learnt + checked],
        reaches[learnt + checked :],
    ]
    return inputs, labels, [[r for a, b in part for r in range(a, b)] for part in parts]


@pytest.mark.parametrize(("ratio", "steps"), [(1, 1), (7, 3)])
def test_neurobenchs_samples_are_reproduced(path, ratio, steps):
    inputs, labels, parts = neurobench(session(), ratio, steps, 0.5)
    assembly = read(path, bin_width=4 * ratio, bins=steps, mode="neurobench-2.3")
    assert np.array_equal(assembly.values, inputs.transpose(0, 2, 1))
    velocity = np.c_[assembly["velocity_x"].values, assembly["velocity_y"].values]
    np.testing.assert_allclose(velocity, labels, rtol=1e-6)
    for part, rows in zip(("train", "validate", "test"), parts, strict=True):
        assert np.flatnonzero(assembly["split"].values == part).tolist() == rows
    assert assembly["time_bin_end"].values[0] == -4
    strict = read(path, bin_width=4 * ratio, bins=1)
    assert np.array_equal(
        assembly.values[1:, :, 0], strict.values[:-1, :, 0]
    )  # a sample later than it could be
    with pytest.raises(DataError, match="`lag` is not supported"):
        read(path, lag=4, mode="neurobench-2.3")


def broken(tmp_path: Path, **changes) -> Path:
    return write_reaches(tmp_path / "loco_1.mat", **{**session(), **changes})


def test_times_out_of_order_and_gaps_are_refused(tmp_path):
    recording = session()
    swapped = recording["times"].copy()
    swapped[[10, 11]] = swapped[[11, 10]]
    with pytest.raises(
        DataError,
        match=r"loco_1.mat: times are not at intervals of 4 ms: sample 9 .*3 such intervals",
    ):
        read(broken(tmp_path, times=swapped))
    gap = recording["times"] + 1.0 * (np.arange(900) > 400)
    with pytest.raises(DataError, match="sample 400 is at"):
        read(broken(tmp_path, times=gap))


def test_no_reaches_or_too_few_are_refused(tmp_path):
    recording = session()
    with pytest.raises(DataError, match="has no reaches: 'target_pos' never changes"):
        read(broken(tmp_path, target=np.ones((900, 2))))
    with pytest.raises(DataError, match="2 reaches cannot be divided"):
        read(
            broken(
                tmp_path,
                target=np.where(np.arange(900) < 50, 0.0, 1.0)[:, None] * np.ones(2),
            )
        )
    lost = recording["cursor"].copy()
    lost[5, 1] = np.nan
    with pytest.raises(
        DataError, match="'cursor_pos' is not finite at 1 of 900 samples"
    ):
        read(broken(tmp_path, cursor=lost))
    with pytest.raises(
        DataError, match=r"'cursor_pos' is \(899, 2\) in MATLAB's order, not \(900, 2\)"
    ):
        read(broken(tmp_path, cursor=recording["cursor"][1:]))
    with pytest.raises(DataError, match="2 names for 3 channels"):
        read(broken(tmp_path, names=NAMES[:2]))
    with pytest.raises(
        DataError, match=r"channel 'M1 002' has spike times that are not finite"
    ):
        read(
            broken(
                tmp_path,
                spikes=[
                    row if i != 1 else [np.array([np.nan])] * 3
                    for i, row in enumerate(recording["spikes"])
                ],
            )
        )


def test_other_layouts_are_refused(path, tmp_path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(
        DataError,
        match=r"indy_20160630_01.mat cannot be read as HDF5 .*it is damaged or incomplete",
    ):
        read(path)
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(400))
    with pytest.raises(DataError, match="cannot be read as HDF5"):
        read(path)
    with h5py.File(path, "w") as file:
        file["something"] = 1
    with pytest.raises(DataError, match="has no variable 't'; it has something"):
        read(path)
    path.write_bytes(content)
    with h5py.File(path, "r+") as file:
        del file["spikes"]
        file["spikes"] = np.ones((3, 3))
    with pytest.raises(
        DataError, match=r"'spikes' is not a MATLAB 7\.3 cell array, but float64"
    ):
        read(path)
    with pytest.raises(DataError, match="one MATLAB file, not 2"):
        reaching_sessions({"a": path, "b": path})


def test_invalid_options_are_refused(path):
    for options, message in (
        ({"bin_width": 10.0}, "`bin_width` must be a multiple of 4 ms"),
        ({"stride": 2.0}, "`stride` must be a multiple of 4 ms"),
        ({"train": 0.8, "validation": 0.3}, "cannot be divided"),
    ):
        with pytest.raises(DataError, match=message):
            read(path, **options)


def test_a_missing_h5py_is_named(path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        UnavailableError, match=r"pip install 'neuroledger\[recordings\]'"
    ):
        read(path)
