"""The people whom NeuralBench tests with the same seed: two draws of scikit-learn, the second in the order of the first."""

import numpy as np
import pandas as pd
import pytest
from pydantic import TypeAdapter
from sklearn.model_selection import train_test_split

from neuroledger.families.decoding.protocols.splits import SplitRule, draw_folds
from tests.families.decoding.decoding_cases import windows

PEOPLE = (21, 30, 62)
SEEDS = (33, 34, 35)


def published(people, seed, diagnosis=None):
    """Tested and validation people by the published procedure, on a table of events in order of appearance."""
    table = pd.DataFrame({"subject": people, "diagnosis": diagnosis or 0})
    groups = table.drop_duplicates()
    strata = None if diagnosis is None else groups["diagnosis"]
    rest, tested = train_test_split(
        groups.index, test_size=0.2, random_state=seed, stratify=strata
    )
    left = groups.loc[rest]
    strata = None if diagnosis is None else left["diagnosis"]
    _, validation = train_test_split(
        left.index, test_size=0.2 / 0.8, random_state=seed, stratify=strata
    )
    return set(groups.loc[tested, "subject"]), set(groups.loc[validation, "subject"])


def drawn(assembly, seed, **fields):
    rule = TypeAdapter(SplitRule).validate_python(
        {
            "name": "cross_subject",
            "test": 0.2,
            "seed": seed,
            "validation": {"fraction": 0.25, "by": "subject", "seed": seed},
            **fields,
        }
    )
    (fold,) = draw_folds(rule, assembly)
    subjects = assembly["subject"].values
    return set(subjects[fold.test]), set(subjects[fold.validation])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", PEOPLE)
def test_natural_order_draws_the_published_people(count, seed):
    assembly = windows(subjects=count, trials=2)
    in_order = [f"S{number}" for number in range(count)]
    assert drawn(assembly, seed, order="natural") == published(in_order, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_natural_order_keeps_the_published_shares_of_a_diagnosis(seed):
    assembly = windows(subjects=30, trials=2)
    ill = [number % 3 for number in range(30)]
    by_row = np.repeat([str(value) for value in ill], 2)
    assembly = assembly.assign_coords(diagnosis=("presentation", by_row))
    in_order = [f"S{number}" for number in range(30)]
    found = drawn(assembly, seed, order="natural", stratify="diagnosis")
    assert found == published(in_order, seed, [str(value) for value in ill])


def test_the_usual_order_tests_other_people_and_leaves_identities_alone():
    assembly = windows(subjects=21, trials=2)
    assert drawn(assembly, 33) != drawn(assembly, 33, order="natural")
    adapter = TypeAdapter(SplitRule)
    usual = adapter.validate_python({"name": "cross_subject", "test": 0.2})
    natural = usual.model_copy(update={"order": "natural"})
    assert "order" not in adapter.dump_python(usual, mode="json")
    assert adapter.dump_python(natural, mode="json")["order"] == "natural"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_validation_part_of_sessions_is_drawn_in_the_order_of_their_numbers(seed):
    assembly = windows(subjects=2, sessions=20, trials=2)
    test = ["16", "17", "18", "19"]
    rule = TypeAdapter(SplitRule).validate_python(
        {
            "name": "declared",
            "column": "session",
            "test": test,
            "order": "natural",
            "validation": {"fraction": 0.1875, "by": "session", "seed": seed},
        }
    )
    (fold,) = draw_folds(rule, assembly)
    sessions = [str(number) for number in range(16)]
    _, expected = train_test_split(
        np.array(sessions), test_size=0.1875, random_state=seed
    )
    found = set(assembly["session"].values[fold.validation])
    assert found == set(expected)
