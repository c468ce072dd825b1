"""Every task of NeuralBench is the task that it declares, or says where it differs and carries no published figures."""

import copy

import pytest

from neuroledger.report.table import standings
from tests.families.decoding.conformance import (
    PAGE,
    REASONS,
    ROOT,
    TASK_FIELDS,
    compared,
    declared,
    differences,
    files,
    people_tested,
    spec,
)

TASKS = [id for id, _, _ in compared()]


def test_every_declared_task_is_here():
    missing = sorted(set(declared()) - set(TASKS))
    # The variant is the task's first data set again, under a second name.
    assert missing == ["neuralbench.fmri.image.Chang2019Bold5000"]
    assert len(TASKS) == 111


def test_every_difference_has_a_reason_and_no_reason_is_left_over():
    found = {
        (id, one.field) for id, differences, _ in compared() for one in differences
    }
    assert found == set(REASONS)


def test_no_published_figures_stand_beside_another_task():
    beside = [
        (id, one)
        for id, found, benchmark in compared()
        for one in found
        if one.field in TASK_FIELDS and benchmark.get("published")
    ]
    assert beside == []


CHANGES = {
    "window": lambda b, d: d["reader"]["window"].update(start=0.25),
    "outputs": lambda b, d: d["reader"]["window"]["labels"].update(x="third"),
    "baseline": lambda b, d: d["reader"]["preprocessing"].update(baseline=[0.0, 0.2]),
    "scale": lambda b, d: d["reader"]["preprocessing"].update(scale="robust"),
    "notch": lambda b, d: d["reader"]["preprocessing"].update(notch=[50.0]),
    "band": lambda b, d: d["reader"]["preprocessing"].update(low_pass=40.0),
    "rate": lambda b, d: d["reader"]["preprocessing"].update(resample=100.0),
    "clamp": lambda b, d: d["reader"]["preprocessing"].update(clamp=5.0),
    "split": lambda b, d: b["paradigm"]["splits"].update(seed=34),
    "training": lambda b, d: b["paradigm"].update(recipe={"patience": 3}),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_field_is_found(field):
    benchmark = copy.deepcopy(spec("benchmarks", "neuralbench.eeg.n170"))
    dataset = copy.deepcopy(spec("datasets", benchmark["dataset"]))
    facts = declared()["neuralbench.eeg.n170"]
    assert differences(benchmark, dataset, facts) == []
    CHANGES[field](benchmark, dataset)
    fields = {one.field for one in differences(benchmark, dataset, facts)}
    assert field in fields
    assert fields <= {field, "baseline"}, "a moved window moves its baseline"


def test_people_tested_follow_from_names_and_seed():
    benchmark = spec("benchmarks", "neuralbench.eeg.n170")
    people = people_tested(benchmark, spec("datasets", benchmark["dataset"]))
    assert len(people) == 8


def test_the_page_is_current():
    for name, text in files(PAGE.read_text("utf-8")).items():
        assert (ROOT / name).read_text("utf-8") == text, (
            "run `python -m tests.families.decoding.conformance`"
        )


def test_pretraining_on_the_data_of_core_tasks_is_known_where_neuralbench_flags_it():
    found = standings("neuralbench.core", published=True)
    flagged = {
        model: sorted(id.removeprefix("neuralbench.eeg.") for id in ids)
        for model, ids in found.pretrained.items()
    }
    temple = ["artifact", "clinical_event", "pathology"]
    assert flagged == {
        "BENDR": temple,
        "CBraMod": temple,
        "BIOT": ["clinical_event", "pathology", "seizure"],
        "LUNA": ["clinical_event"],
        "LaBraM": ["artifact"],
        "REVE": ["age", "artifact", "image", "psychopathology", "reaction_time", "sex"],
    }
    line = next(line for line in str(found).splitlines() if line.startswith("REVE"))
    assert line.endswith("the data of 6")
