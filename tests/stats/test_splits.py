"""Splits follow scikit-learn's rules, keep groups together, and report why they cannot be drawn."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)  # fmt: skip

from neuroledger.errors import MetricError
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats import splits
from neuroledger.stats.splits import draw, first_values, predefined


def rows(ids, **coords) -> xr.DataArray:
    labels = {"stimulus_id": ("presentation", np.asarray(ids))}
    labels |= {name: ("presentation", np.asarray(of)) for name, of in coords.items()}
    return xr.DataArray(
        np.zeros((len(ids), 1)), dims=("presentation", "neuroid"), coords=labels
    )


OBJECTS = np.arange(60) % 4
SIXTY = rows(
    [f"s{i}" for i in range(60)], object_name=OBJECTS, session=np.arange(60) % 7
)
RULES = [
    ({}, ShuffleSplit(10, train_size=0.9, random_state=1), None),
    (
        {"seed": 3, "folds": 4, "train": 0.7},
        ShuffleSplit(4, train_size=0.7, random_state=3),
        None,
    ),
    ({"test": 0.9}, ShuffleSplit(10, test_size=0.9, random_state=1), None),
    (
        {"train": 0.5, "test": 0.2},
        ShuffleSplit(10, train_size=0.5, test_size=0.2, random_state=1),
        None,
    ),
    (
        {"stratify": "object_name"},
        StratifiedShuffleSplit(10, train_size=0.9, random_state=1),
        OBJECTS,
    ),
    ({"name": "kfold", "folds": 5}, KFold(5, shuffle=True, random_state=1), None),
    (
        {"name": "kfold", "stratify": "object_name"},
        StratifiedKFold(10, shuffle=True, random_state=1),
        OBJECTS,
    ),
]


@pytest.mark.parametrize(("spec", "splitter", "labels"), RULES)
def test_rows_are_drawn_as_scikit_learn_draws_them(spec, splitter, labels):
    expected = list(splitter.split(np.zeros(60), labels))
    result = draw(SplitsSpec(**spec), SIXTY)
    assert len(result) == len(expected)
    for (train, test), split in zip(expected, result, strict=True):
        np.testing.assert_array_equal(split.train, train)
        np.testing.assert_array_equal(split.test, test)


def test_groups_stay_together_as_scikit_learn_keeps_them():
    groups = np.arange(60) % 7
    expected = list(
        GroupKFold(3, shuffle=True, random_state=1).split(np.zeros(60), groups=groups)
    )
    result = draw(SplitsSpec(name="group", folds=3, groups="session"), SIXTY)
    for (train, test), split in zip(expected, result, strict=True):
        np.testing.assert_array_equal(split.train, train)
        np.testing.assert_array_equal(split.test, test)
        assert not set(groups[split.train]) & set(groups[split.test])


def test_groups_stay_together_where_classes_are_balanced_too():
    groups = np.arange(60) % 7
    rule = StratifiedGroupKFold(3, shuffle=True, random_state=1)
    expected = list(rule.split(np.zeros(60), OBJECTS, groups))
    result = draw(
        SplitsSpec(name="group", folds=3, groups="session", stratify="object_name"),
        SIXTY,
    )
    for (train, test), split in zip(expected, result, strict=True):
        np.testing.assert_array_equal(split.train, train)
        np.testing.assert_array_equal(split.test, test)
        assert not set(groups[split.train]) & set(groups[split.test])


def test_each_value_is_left_out_once():
    splits = draw(SplitsSpec(name="leave_one_out", by="session"), SIXTY)
    assert [sorted(set(np.arange(60)[s.test] % 7)) for s in splits] == [
        [i] for i in range(7)
    ]


def test_a_coordinate_divides_the_rows():
    (split,) = draw(
        SplitsSpec(name="coordinate", coordinate="object_name", test_values=(2, 3)),
        SIXTY,
    )
    assert set(OBJECTS[split.train]) == {0, 1}
    assert set(OBJECTS[split.test]) == {2, 3}


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(6, 15), st.integers(0, 100), st.booleans())
def test_rows_of_one_stimulus_stay_together(repetitions, stimuli, seed, unique):
    ids = np.random.default_rng(seed).permutation(
        np.repeat(np.arange(stimuli), repetitions)
    )
    for split in draw(
        SplitsSpec(seed=seed, folds=3, train=0.6, unique=unique), rows(ids)
    ):
        assert not set(ids[split.train]) & set(ids[split.test])
        assert len(split.train) + len(split.test) == len(ids)


def test_unique_values_are_drawn_in_sorted_order():
    repetition = np.array([3, 3, 0, 1, 2, 0, 1, 2])
    result = draw(
        SplitsSpec(by="repetition", unique=True, train=0.5, folds=6),
        rows(np.arange(8), repetition=repetition),
    )
    expected = ShuffleSplit(6, train_size=0.5, random_state=1).split(np.arange(4))
    for split, (train, test) in zip(result, expected, strict=True):
        assert set(repetition[split.train]) == set(train)
        assert set(repetition[split.test]) == set(test)


def test_predefined_splits_are_train_then_test():
    (split,) = predefined(3, 2)
    assert split.train.tolist() == [0, 1, 2]
    assert split.test.tolist() == [3, 4]


def test_first_values_are_the_smallest():
    table = rows(np.arange(6), repetition=[2, 0, 1, 2, 0, 1])
    assert first_values(table, "repetition", 2)["repetition"].values.tolist() == [
        0,
        1,
        0,
        1,
    ]
    with pytest.raises(MetricError, match="the assembly has 3"):
        first_values(table, "repetition", 4)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"stratify": "category"}, "coordinate 'category'"),
        (
            {"name": "kfold", "folds": 100},
            "over 60 values of 'stimulus_id'.*; use fewer folds, another train share",
        ),
        ({"name": "group"}, "`groups` must name"),
        (
            {"name": "coordinate", "coordinate": "session", "test_values": (99,)},
            "no row has 99; its values are 0, 1",
        ),
        (
            {
                "name": "coordinate",
                "coordinate": "session",
                "test_values": tuple(range(7)),
            },
            "no rows in one part",
        ),
        ({"name": "coordinate"}, "need `coordinate`"),
        (
            {
                "name": "coordinate",
                "coordinate": "session",
                "test_values": (1,),
                "train_values": (0, 1),
            },
            "in both `train_values` and `test_values`",
        ),
        ({"name": "predefined"}, "pass source_train"),
    ],
)
def test_impossible_splits_report_the_reason(spec, reason):
    with pytest.raises(MetricError, match=reason):
        draw(SplitsSpec(**spec), SIXTY)


def test_what_is_left_out_is_tested_and_all_else_trains():
    for by in ({}, {"groups": "session"}):
        result = draw(SplitsSpec(name="leave_one_out", **by), SIXTY)
        assert len(result) == (7 if by else 60)
        for train, test in result:
            assert sorted([*train, *test]) == list(range(60)) and len(test) <= 9 < len(
                train
            )
            assert not by or len(set(np.arange(60)[test] % 7)) == 1


def test_rows_that_share_a_value_with_the_test_part_do_not_train():
    table = rows(
        [f"s{i}" for i in range(12)], scene=np.arange(12) % 6, plain=np.arange(12) >= 10
    )
    rule = {"name": "kfold", "folds": 6, "disjoint": {"by": "scene"}}
    for train, test in draw(SplitsSpec.model_validate(rule), table):
        assert not set(train % 6) & set(test % 6) and set(train % 6) | set(
            test % 6
        ) == set(range(6))
    rule["disjoint"] = {"by": "scene", "except": {"plain": ["True"]}}
    for train, test in draw(SplitsSpec.model_validate(rule), table):
        bound = [row for row in test if row < 10]
        expected = [
            row
            for row in range(12)
            if row not in test
            and (row >= 10 or row % 6 not in [item % 6 for item in bound])
        ]
        assert train.tolist() == expected
    alike = rows([f"s{i}" for i in range(4)], scene=np.zeros(4))
    with pytest.raises(
        MetricError, match="every train presentation shares a value of 'scene'"
    ):
        draw(
            SplitsSpec.model_validate(
                {"name": "kfold", "folds": 2, "disjoint": {"by": "scene"}}
            ),
            alike,
        )


def test_splits_that_are_given_are_row_numbers_or_masks():
    mask = np.array([True, False, True])
    result = splits.given([([0, 1], [2]), (mask, ~mask)], 3)
    assert [(train.tolist(), test.tolist()) for train, test in result] == [
        ([0, 1], [2]),
        ([0, 2], [1]),
    ]
    assert all(part.dtype == np.intp for split in result for part in split)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([], "`splits` contains no split"),
        (
            [([0], [1]), ([0], [])],
            r"splits\[1\]: the test part is not a list of row numbers",
        ),
        ([([], [1])], r"splits\[0\]: the train part is not a list"),
        ([([0.5], [1])], "the train part is not a list"),
        ([([[0]], [1])], "the train part is not a list"),
        ([([0], [3])], "the test part asks for row 3; there are 3 rows, from 0"),
        ([([-1], [2])], "the train part asks for row -1"),
    ],
)
def test_given_splits_with_invalid_rows_name_the_part(pairs, reason):
    with pytest.raises(MetricError, match=reason):
        splits.given(pairs, 3)


def test_an_unknown_coordinate_is_reported_with_the_known_ones():
    with pytest.raises(
        MetricError, match=r"the assembly has object_name, session, stimulus_id$"
    ):
        draw(SplitsSpec(by="image"), SIXTY)
    flat = SIXTY.assign_coords(grid=(("presentation", "neuroid"), np.zeros((60, 1))))
    with pytest.raises(
        MetricError, match="'grid', which lies along 2 dimensions, not one"
    ):
        draw(SplitsSpec(by="grid"), flat)
    with pytest.raises(MetricError, match=r"its values are 0, 1, 2, 3, 4, 5, 6$"):
        draw(
            SplitsSpec(name="coordinate", coordinate="session", test_values=(99,)),
            SIXTY,
        )


@pytest.mark.parametrize(
    ("values", "part", "absent", "hint"),
    [
        (["first", "second"], "test_values", "secnd", "did you mean 'second'"),
        (
            ["first", "second"],
            "train_values",
            "third session",
            "its values are first, second",
        ),
        ([1.0, 2.0], "test_values", "1", "did you mean 1.0"),
    ],
)
def test_a_value_that_no_row_has_is_refused_with_the_one_that_is_probably_meant(
    values, part, absent, hint
):
    given = {"test_values": [values[1]], "train_values": [values[0]]}
    given[part] = [*given[part], absent]
    spec = SplitsSpec(name="coordinate", coordinate="session", **given)
    with pytest.raises(MetricError, match=f"no row has '{absent}'.*{hint}"):
        draw(spec, rows(range(4), session=values * 2))
