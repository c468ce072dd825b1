"""Tests of declared partitions: held-out subjects, undivided trials, and gates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from sklearn.model_selection import LeaveOneGroupOut, StratifiedKFold

from neuroledger.errors import DataError, RequestError
from neuroledger.families.decoding.protocols.leakage_checks import (
    gate,
    partition_sha256,
    read_partition,
    write_partition,
)
from neuroledger.families.decoding.protocols.splits import Fold, SplitRule, draw_folds
from tests.families.decoding.decoding_cases import windows


def drawn(assembly, **fields):
    return draw_folds(TypeAdapter(SplitRule).validate_python(fields), assembly)


def test_one_subject_at_a_time_matches_scikit_learn():
    assembly = windows()
    folds = drawn(assembly, name="cross_subject")
    expected = LeaveOneGroupOut().split(np.zeros(40), groups=assembly["subject"].values)
    for fold, (train, test) in zip(folds, expected, strict=True):
        np.testing.assert_array_equal(fold.train, train)
        np.testing.assert_array_equal(fold.test, test)


def test_random_folds_are_scikit_learns():
    assembly = windows()
    folds = drawn(assembly, name="random", folds=5, stratify="label", seed=33)
    expected = StratifiedKFold(5, shuffle=True, random_state=33).split(
        np.zeros(40), assembly["label"].values
    )
    for fold, (_, test) in zip(folds, expected, strict=True):
        np.testing.assert_array_equal(fold.test, test)


def test_a_share_of_subjects_and_a_validation_part_of_subjects():
    assembly = windows(subjects=10)
    (fold,) = drawn(
        assembly,
        name="cross_subject",
        test=0.2,
        validation={"fraction": 0.25, "by": "subject", "seed": 33},
    )
    parts = [set(assembly["subject"].values[rows]) for rows in fold[:3]]
    assert [len(part) for part in parts] == [6, 2, 2]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])


@pytest.mark.parametrize("seed", range(5))
def test_a_validation_part_drawn_like_the_tested_one_keeps_the_shares_of_classes(seed):
    assembly = windows(subjects=20)
    group = np.where(
        np.unique(assembly["subject"].values, return_inverse=True)[1] % 5 == 0,
        "ill",
        "well",
    )
    assembly = assembly.assign_coords(group=("presentation", group))
    apart = {"fraction": 0.25, "by": "subject", "seed": seed}
    (fold,) = drawn(
        assembly,
        name="cross_subject",
        test=0.2,
        seed=seed,
        stratify="group",
        validation=apart,
    )
    ill = [
        len(set(assembly["subject"].values[rows[group[rows] == "ill"]]))
        for rows in fold[:3]
    ]
    assert ill == [2, 1, 1]
    single = {"fraction": 0.25, "seed": seed}
    (fold,) = drawn(
        assembly,
        name="random",
        test=0.2,
        seed=seed,
        stratify="group",
        validation=single,
    )
    share = [np.mean(group[rows] == "ill") for rows in fold[:3]]
    assert share == pytest.approx([0.2, 0.2, 0.2])


def test_sessions_are_held_out_in_every_subject():
    assembly = windows(sessions=2)
    folds = drawn(assembly, name="cross_session")
    assert [set(assembly["session"].values[fold.test]) for fold in folds] == [
        {"0"},
        {"1"},
    ]
    assert all(len(set(assembly["subject"].values[fold.test])) == 4 for fold in folds)


def test_concepts_are_held_out_from_everybody():
    assembly = windows().assign_coords(
        concept=("presentation", np.tile(list("vwxyz"), 8))
    )
    folds = drawn(assembly, name="leave_concept_out", by="concept", folds=5)
    for fold in folds:
        gate(folds, assembly, disjoint=["concept"])
        assert len(set(assembly["concept"].values[fold.test])) == 1


def test_blocks_keep_trials_whole_and_purge_their_neighbours():
    assembly = windows(subjects=1, trials=20, gap=1.0)
    folds = drawn(assembly, name="blocked", folds=5, trial="trial", purge=1.5)
    tested = np.sort(np.concatenate([fold.test for fold in folds]))
    np.testing.assert_array_equal(tested, np.arange(20))
    np.testing.assert_array_equal(folds[1].test, [4, 5, 6, 7])
    np.testing.assert_array_equal(folds[1].train, [0, 1, 2, *range(9, 20)])


def test_the_last_share_of_each_recording():
    assembly = windows(subjects=2, trials=10)
    (fold,) = drawn(assembly, name="within_subject", test=0.2)
    np.testing.assert_array_equal(fold.test, [8, 9, 18, 19])
    (purged,) = drawn(assembly, name="within_subject", test=0.2, purge=3.0)
    np.testing.assert_array_equal(purged.train, [*range(7), *range(10, 17)])


def test_named_sessions_must_occur():
    assembly = windows(sessions=2)
    (fold,) = drawn(assembly, name="within_subject", column="session", values=[1])
    assert set(assembly["session"].values[fold.test]) == {"1"}
    with pytest.raises(
        DataError, match="splits: session: no row has '2'; the values are 0, 1"
    ):
        drawn(assembly, name="within_subject", column="session", values=["1", "2"])


def test_declared_parts_come_from_the_data():
    assembly = windows()
    (fold,) = drawn(assembly, name="declared", column="subject", test=["S1"])
    assert set(assembly["subject"].values[fold.test]) == {"S1"}
    assert len(fold.train) == 30
    with pytest.raises(DataError, match="has no value S9"):
        drawn(assembly, name="declared", column="subject", test=["S9"])


def test_contradictions_are_requests_that_are_refused():
    with pytest.raises(RequestError, match="not both"):
        drawn(windows(), name="cross_subject", test=0.5, folds=2)
    with pytest.raises(DataError, match="no coordinate 'lab'"):
        drawn(windows(), name="cross_subject", by="lab")
    with pytest.raises(DataError, match="several values of 'label'"):
        drawn(windows(), name="cross_subject", test=0.5, stratify="label")


def test_the_gate_passes_what_is_apart():
    assembly = windows()
    gate(
        drawn(assembly, name="cross_subject"),
        assembly,
        disjoint=["subject"],
        labels=assembly["label"].values,
    )


def rows(*parts):
    return Fold(*(np.array(part, dtype=np.intp) for part in parts))


@pytest.mark.parametrize(
    ("fold", "options", "words"),
    [
        (rows(range(5), [], range(4, 10)), {}, "two parts or twice: 4"),
        (rows([], [], [1]), {}, "no train rows"),
        (rows([0], [], [99]), {}, "outside"),
        (
            rows(range(15), [], range(20, 40)),
            {"disjoint": ["session"]},
            "session on both sides: 0",
        ),
        (rows(range(25), [], range(30, 40)), {"disjoint": ["subject"]}, None),
        (
            rows(range(0, 40, 2), [], range(1, 40, 2)),
            {"labels": True},
            "tested but never trained: b",
        ),
    ],
)
def test_a_wrong_partition_is_stopped_with_what_is_wrong(fold, options, words):
    assembly = windows()
    if options.pop("labels", False):
        options = {"labels": assembly["label"].values}
    if words is None:
        gate([fold], assembly, **options)
        return
    with pytest.raises(DataError, match=words):
        gate([fold], assembly, **options)


def test_overlap_in_time_is_found_within_a_recording_only():
    overlapping = windows(subjects=2, trials=10, samples=16, rate=16.0, gap=0.5)
    within = rows(range(5), [], range(5, 10))
    with pytest.raises(
        DataError,
        match=r"1 tested windows overlap in time with trained ones: S00 at 2\.50–3\.50 s",
    ):
        gate([within], overlapping)
    gate([rows(range(10), [], range(10, 20))], overlapping)
    gate([within], overlapping, waive=["overlap"])
    gate([rows(range(4), [], range(6, 10))], overlapping)


def test_validation_rows_count_as_seen():
    overlapping = windows(subjects=1, trials=10, gap=0.5)
    with pytest.raises(DataError, match="overlap"):
        gate([rows([0, 1], [4], range(5, 10))], overlapping)


def test_equal_content_under_other_names_is_found():
    assembly = windows()
    assembly.values[35] = assembly.values[2]
    with pytest.raises(
        DataError, match="1 tested windows have the samples of a trained one"
    ):
        gate([rows(range(30), [], range(30, 40))], assembly)
    gate([rows(range(30), [], range(30, 40))], assembly, waive=["duplicates"])


@settings(max_examples=60, deadline=None)
@given(
    onsets=st.lists(st.floats(0, 30), min_size=4, max_size=14), cut=st.integers(1, 3)
)
def test_overlap_agrees_with_comparing_every_pair(onsets, cut):
    assembly = windows(subjects=1, trials=len(onsets) // 2 * 2)
    onset = np.array(onsets[: assembly.sizes["presentation"]])
    assembly = assembly.assign_coords(onset=("presentation", onset))
    fold = rows(range(cut), [], range(cut, len(onset)))
    half = 0.5 / 16
    overlaps = (onset[:cut, None] < onset[None, cut:] + 1 - half) & (
        onset[None, cut:] < onset[:cut, None] + 1 - half
    )
    if overlaps.any():
        with pytest.raises(
            DataError, match=f"{overlaps.any(axis=0).sum()} tested windows overlap"
        ):
            gate([fold], assembly)
    else:
        gate([fold], assembly)


def test_a_partition_file_comes_back_and_is_pinned(tmp_path):
    assembly = windows()
    keys = [f"E{i}" for i in range(40)]
    folds = drawn(assembly, name="cross_subject")
    digest = write_partition(tmp_path / "splits.json", folds, keys)
    assert digest == partition_sha256(folds, keys)
    again = read_partition(tmp_path / "splits.json", keys, sha256=digest)
    assert all(
        (a.test == b.test).all() and (a.train == b.train).all()
        for a, b in zip(folds, again, strict=True)
    )
    with pytest.raises(DataError, match="pinned is"):
        read_partition(tmp_path / "splits.json", keys, sha256="0" * 64)
    with pytest.raises(DataError, match="keys that no window has: E39"):
        read_partition(tmp_path / "splits.json", keys[:39])
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="not a partition"):
        read_partition(tmp_path / "bad.json", keys)


def test_a_digest_changes_with_the_partition_and_not_with_row_order():
    fold = rows([0, 1], [], [2])
    keys = ["a", "b", "c"]
    assert partition_sha256([fold], keys) == partition_sha256(
        [rows([1, 0], [], [2])], keys
    )
    assert partition_sha256([fold], keys) != partition_sha256(
        [rows([0, 2], [], [1])], keys
    )


@pytest.mark.parametrize(
    ("gap", "purge"), [(0.4, 0.0), (1.0, 0.0), (1.0, 1.5), (0.25, 0.5)]
)
def test_trained_windows_near_a_tested_one_are_left_out_and_no_others(
    gap: float, purge: float
) -> None:
    assembly = windows(subjects=2, trials=20, gap=gap)
    sentence = np.tile(np.repeat(np.arange(5), 4), 2).astype(str)
    assembly = assembly.assign_coords(sentence=("presentation", sentence))
    fields = {
        "name": "leave_concept_out",
        "by": "sentence",
        "folds": 5,
        "waive": ["overlap"],
    }
    onset, recording = assembly["onset"].values, assembly["recording"].values
    plain = drawn(assembly, **fields)
    for fold, before in zip(drawn(assembly, **fields, purge=purge), plain, strict=True):
        np.testing.assert_array_equal(fold.test, before.test)
        near = [  # windows last one second
            any(
                recording[row] == recording[one]
                and onset[row] + 1 + purge > onset[one] + 1e-3
                and onset[one] + 1 + purge > onset[row] + 1e-3
                for one in fold.test
            )
            for row in before.train
        ]
        np.testing.assert_array_equal(fold.train, before.train[~np.array(near)])
        gate([fold], assembly, disjoint=["sentence"])
    if gap < 1:
        with pytest.raises(DataError, match="overlap in time"):
            gate(plain, assembly)


def test_declared_parts_may_be_purged_too_and_validation_is_drawn_from_what_is_left() -> (
    None
):
    assembly = windows(subjects=2, trials=10, gap=0.5)
    part = np.tile(["train"] * 7 + ["test"] * 3, 2)
    assembly = assembly.assign_coords(part=("presentation", part))
    (fold,) = drawn(
        assembly, name="declared", column="part", purge=0, validation={"fraction": 0.5}
    )
    assert sorted([*fold.train, *fold.validation]) == [
        0,
        1,
        2,
        3,
        4,
        5,
        10,
        11,
        12,
        13,
        14,
        15,
    ]
    gate([fold], assembly)
