"""Division of measurements by a coordinate, and notes on overlap with pretraining data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from neuroledger.engine.measurement import (
    Measurement,
    apart,
    recording_overlap,
)
from neuroledger.errors import DataError
from neuroledger.spec.kinds import Pretraining, overlap_notes
from neuroledger.stats.splits import Split


def rows(values: Any, **coords: Any) -> xr.DataArray:
    values = np.asarray(values, dtype=float)
    ids = {"stimulus_id": ("presentation", [f"s{i}" for i in range(len(values))])}
    return xr.DataArray(values, dims=("presentation", "neuroid"), coords=ids | coords)


def by_subject() -> Measurement:
    """Neuroids of two subjects: ``a`` was shown presentations 0 to 2, ``b`` all six."""
    subject = {"subject": ("neuroid", ["a", "b", "b"])}
    target = rows(np.arange(18).reshape(6, 3), **subject)
    target[3:, 0] = np.nan
    repeated = xr.concat([target, target + 100], "presentation")
    splits = [
        Split(np.array([0, 2, 4]), np.array([1, 3, 5])),
        Split(np.array([1, 5]), np.array([2, 3])),
    ]
    return Measurement(
        rows(np.zeros((6, 3)), **subject),
        target,
        repeated=repeated,
        splits=splits,
        notes=("n",),
    )


def test_each_part_has_its_own_neuroids_presentations_and_splits() -> None:
    (first, a), (second, b) = apart(by_subject(), "subject")
    assert (first, second) == ("a", "b")
    assert a.target.shape == (3, 1) and b.target.shape == (6, 2)
    assert a.source.shape == (6, 1) and b.source.shape == (6, 2)
    assert a.repeated is not None and a.repeated.values.ravel().tolist() == [
        0,
        3,
        6,
        100,
        103,
        106,
    ]
    assert b.repeated is not None and b.repeated.shape == (12, 2)
    assert a.splits is not None and [
        [part.tolist() for part in item] for item in a.splits
    ] == [
        [[0, 2], [1]],
        [[1], [2]],
    ]
    assert b.splits is not None and [part.tolist() for part in b.splits[0]] == [
        [0, 2, 4],
        [1, 3, 5],
    ]
    assert a.notes == b.notes == ("n",)


def test_a_part_without_rows_to_train_or_test_on_is_refused() -> None:
    measured = by_subject()
    alone = Measurement(
        measured.source,
        measured.target,
        splits=[Split(np.array([0, 1, 2]), np.array([3, 4, 5]))],
    )
    with pytest.raises(
        DataError, match="subject 'a' has no presentations in a train or test part"
    ):
        list(apart(alone, "subject"))


def test_a_condition_of_presentations_also_divides_the_source() -> None:
    condition = {"condition": ("presentation", ["y", "x", "y", "x", "y", "y"])}
    target = rows(np.arange(12).reshape(6, 2), **condition)
    for source, sizes in ((target * 2, [2, 4]), (rows(np.ones((6, 2))), [6, 6])):
        parts = dict(apart(Measurement(source, target), "condition"))
        assert [len(part.target) for part in parts.values()] == [2, 4]
        assert [len(part.source) for part in parts.values()] == sizes
    assert parts["x"].target["stimulus_id"].values.tolist() == ["s1", "s3"]


@pytest.mark.parametrize(
    "coords", [{}, {"subject": (("presentation", "neuroid"), np.full((2, 2), "a"))}]
)
def test_only_one_dimensional_coordinates_divide_a_measurement(
    coords: dict[str, Any],
) -> None:
    with pytest.raises(DataError, match="no coordinate 'subject'; correct `each`"):
        list(
            apart(
                Measurement(rows(np.ones((2, 2))), rows(np.ones((2, 2)), **coords)),
                "subject",
            )
        )


@pytest.mark.parametrize(
    ("pretrained", "dataset", "named"),
    [
        (["A", "B"], "B", "B"),
        (["A"], "A.motor", "A"),
        (["A.motor", "A"], "A", "A, A.motor"),
        (["A"], "Ab", None),
        ([Pretraining(dataset="A.one", recordings=())], "A", "A.one"),
        ([], "A", None),
    ],
)
def test_a_data_set_and_its_parts_are_the_same_data(
    pretrained: Any, dataset: str, named: str | None
) -> None:
    notes = overlap_notes(pretrained, dataset)
    assert notes == (
        ()
        if named is None
        else (f"pretraining overlap: the model was pretrained on {named}",)
    )


def test_recordings_overlap_by_content_not_by_name() -> None:
    known = Pretraining(dataset="A", recordings=tuple(f"{n:064x}" for n in range(5)))

    def present() -> dict[str, str]:
        return {f"r{n}": f"{n:064x}" for n in range(4, 8)} | {
            f"q{n}": f"{n:064x}" for n in range(3)
        }

    assert recording_overlap(["A", known], present) == (
        "pretraining overlap: 4 of 7 recordings by content (q0, q1, q2, …)",
    )
    assert recording_overlap([known], lambda: {"r": f"{3:064x}", "s": "f" * 64}) == (
        "pretraining overlap: 1 of 2 recordings by content (r)",
    )
    assert recording_overlap([known], lambda: {"s": "f" * 64}) == ()
    assert recording_overlap(["A"], lambda: pytest.fail("nothing states a hash")) == ()
