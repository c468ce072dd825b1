"""The task paradigm: questions to the model, refusals, and matching of people and stimuli."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine import bound_metric as bind
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.families.behavior.models.stored_answers import (
    StoredAnswers,
    stored_probabilities,
)
from neuroledger.families.behavior.paradigms.task import task
from neuroledger.models.model import record
from tests.golden.behaviour_cases import object_trials, presentations
from tests.models.drawn_stimuli import of_images


@dataclass
class Asked:
    """A model that keeps what it was asked and answers from a table of probabilities."""

    table: xr.DataArray
    id: str = "asked"
    questions: list = field(default_factory=list)

    takes = frozenset({"images"})
    gives = frozenset({"decisions"})

    def answer(self, asked):
        return self.perform(
            asked.task, asked.stimuli, asked.fitting_stimuli, asked.trials
        )

    def perform(self, question, stimuli, fitting_stimuli=None, trials=1):
        self.questions.append(
            (
                question,
                stimuli.ids,
                None if fitting_stimuli is None else fitting_stimuli.ids,
                trials,
            )
        )
        if question.name == "odd_one_out":
            names = ["|".join(triplet) for triplet in question.triplets]
            return presentations(
                [triplet[0] for triplet in question.triplets], stimulus_id=names
            )
        shuffled = np.random.default_rng(0).permutation(len(stimuli))
        rows = [
            self.table["stimulus_id"].values.tolist().index(id)
            for id in np.array(stimuli.ids)[shuffled]
        ]
        return self.table.isel(presentation=rows)


def laboratory(seed=0):
    model, trials = object_trials(np.random.default_rng(seed))
    ids = [f"image{i:02d}" for i in range(12)]
    train = [f"train{i:02d}" for i in range(8)]
    table = pd.DataFrame(
        {
            "stimulus_id": ids + train,
            "image_label": [f"object{i % 4}" for i in range(20)],
            "split": ["test"] * 12 + ["train"] * 8,
        }
    )
    return Asked(model), Dataset(StimulusSet("images", table), trials, id="lab")


def test_probabilities_are_asked_for_the_tested_stimuli_only():
    model, data = laboratory()
    measured = task(
        model, data, decide="probabilities", fitting={"split": "train"}, trials=3
    )
    question, tested, fitted, trials = model.questions[0]
    assert question.name == "probabilities"
    assert sorted(tested) == [f"image{i:02d}" for i in range(12)]
    assert fitted == [f"train{i:02d}" for i in range(8)]
    assert trials == 3
    assert (
        measured.source["stimulus_id"].values.tolist() == tested
    )  # the model answered in another order
    assert measured.source["image_label"].values[1] == "object1"
    assert measured.repeated is measured.target


def test_scores_do_not_depend_on_the_order_of_answers():
    model, data = laboratory()
    measured = task(model, data, decide="probabilities", fitting={"split": "train"})
    assert (
        bind.metric("i1")(measured.source, measured.target).value
        == bind.metric("i1")(model.table, data.assembly).value
    )


def test_several_presentations_are_averaged():
    model, data = laboratory()
    twice = xr.concat(
        [model.table * 0.5, model.table * 1.5], "presentation"
    ).assign_coords(
        stimulus_id=("presentation", np.tile(model.table["stimulus_id"].values, 2))
    )

    class Trembling(Asked):
        def perform(self, question, stimuli, fitting_stimuli=None, trials=1):
            return twice

    measured = task(
        Trembling(model.table),
        data,
        decide="probabilities",
        fitting={"split": "train"},
        trials=2,
    )
    np.testing.assert_allclose(measured.source.values, model.table.values, atol=1e-12)


def test_fitting_on_tested_stimuli_is_refused():
    model, data = laboratory()
    with pytest.raises(RequestError, match="both fitted on and tested"):
        task(model, data, decide="probabilities", fitting={"split": "test"})


def test_conditions_that_name_an_absent_value_are_refused_with_a_near_miss():
    model, data = laboratory()
    for fitting in ({"split": "trian"}, {"split": ["train", "trian"]}):
        with pytest.raises(
            DataError,
            match=r"fitting split: no row has 'trian' \(did you mean 'train'\?\)",
        ):
            task(model, data, decide="probabilities", fitting=fitting)
    contrast = data.stimuli.table.assign(contrast=[3.0] * 12 + [1.5] * 8)
    numbered = replace(data, stimuli=StimulusSet("images", contrast))
    for wanted in (1.5, [1.5], "1.5"):
        task(
            model,
            numbered,
            decide="probabilities",
            fitting={"contrast": wanted},
            test={"contrast": 3},
        )
    with pytest.raises(DataError, match="test contrast: no row has '4'"):
        task(
            model,
            numbered,
            decide="probabilities",
            fitting={"contrast": 1.5},
            test={"contrast": [3, 4]},
        )


@pytest.mark.parametrize(
    ("fitting", "word"),
    [
        (None, "need `fitting`"),
        ("others", "no stimulus set 'others'"),
        ({"splits": "a"}, "no column"),
        ({"split": "train", "stimulus_id": "image00"}, "no stimulus of"),
    ],
)
def test_a_readout_needs_something_to_fit(fitting, word):
    model, data = laboratory()
    with pytest.raises(RequestError, match=word):
        task(model, data, decide="probabilities", fitting=fitting)


def test_without_people_the_truth_is_the_target():
    model, data = laboratory()
    measured = task(
        model,
        replace(data, assembly=None),
        decide="probabilities",
        fitting={"split": "train"},
    )
    expected = [f"object{i % 4}" for i in range(12)]
    assert measured.target.values.tolist() == expected
    right = model.table["choice"].values[model.table.values.argmax(axis=1)] == np.array(
        expected
    )
    assert bind.metric("accuracy")(
        measured.source, measured.target
    ).value == pytest.approx(right.mean())


def test_two_alternatives_are_chosen_between_for_each_trial():
    model, data = laboratory()
    measured = task(
        model,
        data,
        decide="probabilities",
        fitting={"split": "train"},
        alternatives=("sample_obj", "dist_obj"),
    )
    row, trial = 0, measured.target.isel(presentation=0)
    p = model.table.assign_coords(presentation=model.table["stimulus_id"].values)
    image = trial["stimulus_id"].item().split("|")[0]
    offered = [trial["sample_obj"].item(), trial["dist_obj"].item()]
    expected = max(
        offered,
        key=lambda name: (
            p.sel(presentation=image)
            .isel(choice=list(p["choice"].values).index(name))
            .item()
        ),
    )
    row = (
        measured.source["stimulus_id"]
        .values.tolist()
        .index(trial["stimulus_id"].item())
    )
    assert measured.source.values[row] == expected
    accuracy = bind.metric("accuracy")(measured.source, measured.target)
    assert 0.5 < accuracy.value <= 1


def test_triplets_are_shown_once_per_stimulus():
    model, data = laboratory()
    people = presentations(
        ["image00", "image05"],
        stimulus_id=["image00|image01|image02", "image03|image05|image00"],
    )
    measured = task(
        model, replace(data, assembly=people), decide="odd_one_out", similarity="cosine"
    )
    question, shown, _, _ = model.questions[0]
    assert question.similarity == "cosine"
    assert shown == ["image00", "image01", "image02", "image03", "image05"]
    assert bind.metric("accuracy")(measured.source, measured.target).value == 0.5
    with pytest.raises(DataError, match="three stimuli"):
        task(
            model,
            replace(data, assembly=presentations(["a"], stimulus_id=["a|b"])),
            decide="odd_one_out",
        )


def answered(**labels):
    return StoredAnswers(
        "m", presentations(list(labels.values()), stimulus_id=list(labels))
    )


def test_labels_default_to_those_of_the_people():
    people = presentations(
        ["cat", "cat"],
        stimulus_id=["s1", "s2"],
        truth=["cat", "dog"],
        subject=["a", "a"],
    )
    measured = task(
        answered(s1="cat", s2="dog"), Dataset(None, people, id="d"), decide="label"
    )
    assert bind.metric("accuracy")(measured.source, measured.target).value == 1.0


def test_a_stimulus_without_an_answer_is_an_error_of_the_model():
    people = presentations(["cat"], stimulus_id=["s9"], truth=["cat"], subject=["a"])
    with pytest.raises(ModelError, match="no stored answer"):
        task(answered(s1="cat"), Dataset(None, people, id="d"), decide="label")
    with pytest.raises(
        ModelError, match="does not give responses:IT; it gives decisions:label"
    ):
        record(
            answered(s1="cat"),
            StimulusSet("s", pd.DataFrame({"stimulus_id": ["a"]})),
            "IT",
        )


def test_stored_probabilities_of_real_networks(mirror, reference):
    """Model-side statistics with the surrogate truths of the reference: the most probable object of three networks."""
    import json

    from neuroledger.families.behavior.tasks.discrimination import (
        image_dprimes,
        rates_from_probabilities,
    )

    folder = mirror / "brainscore_i1i2"
    names = ("alexnet", "resnet18", "resnet34")
    models = [
        stored_probabilities(
            id=n, weights={"p.nc": folder / f"{n}-probabilities.nc"}
        ).answers
        for n in names
    ]
    cases = json.loads((reference / "brainscore_oracle" / "behavior.json").read_text())[
        "i1i2 nc files"
    ]
    for model in models[1:]:
        assert model["choice"].values.tolist() == models[0]["choice"].values.tolist()
        assert (
            model["stimulus_id"].values.tolist()
            == models[0]["stimulus_id"].values.tolist()
        )
    truth = np.mean([model.values for model in models], axis=0).argmax(axis=1)
    for name, model in zip(names, models, strict=True):
        assert list(model.shape) == cases[name]["shape"]
        rates = rates_from_probabilities(model.values, truth)
        for normalise, key in ((False, "i2_nanstd"), (True, "i2n_nanstd")):
            assert np.nanstd(
                image_dprimes(rates, truth, normalise=normalise)
            ) == pytest.approx(cases[name][key], abs=1e-6)
        plain = image_dprimes(rates, truth, normalise=False)
        assert np.nanmean(plain) == pytest.approx(cases[name]["i2_nanmean"], abs=1e-6)
        assert int((~np.isnan(plain)).sum()) == cases[name]["n_valid"]


def files(names, colours):
    """A stimulus set of one-coloured images, labelled x and y in turn."""
    drawn = {
        name: Image.fromarray(np.full((4, 4), colour, np.uint8))
        for name, colour in zip(names, colours, strict=True)
    }
    labels = [("x", "y")[row % 2] for row in range(len(names))]
    return of_images(drawn, id=names[0], columns={"image_label": labels})


def test_the_same_image_in_another_set_is_fitted_on_too():
    tested, other = files(["a", "b"], [10, 20]), files(["c", "d"], [30, 20])
    model = Asked(presentations(["x", "y"], stimulus_id=["a", "b"]))
    asked = {"decide": "probabilities", "fitting": "fit"}
    with pytest.raises(
        RequestError, match="1 stimuli are both fitted on and tested, first 'b'"
    ):
        task(
            model,
            Dataset(tested, None, id="lab", extra_stimuli={"fit": other}),
            **asked,
        )
    apart = files(["c", "d"], [30, 40])
    measured = task(
        model, Dataset(tested, None, id="lab", extra_stimuli={"fit": apart}), **asked
    )
    assert measured.source["stimulus_id"].values.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("column", "label", "kind", "words"),
    [
        (
            "kind",
            "x",
            RequestError,
            "have no column 'kind' with labels; they have stimulus_id, filename, image_label",
        ),
        (
            "image_label",
            None,
            DataError,
            "1 fitting stimuli have no 'image_label', first 'd'",
        ),
    ],
)
def test_fitting_stimuli_are_labelled(column, label, kind, words):
    fitting = files(["c", "d"], [30, 40])
    fitting = replace(fitting, table=fitting.table.assign(image_label=["x", label]))
    data = Dataset(
        files(["a", "b"], [10, 20]), None, id="lab", extra_stimuli={"fit": fitting}
    )
    model = Asked(presentations(["x", "y"], stimulus_id=["a", "b"]))
    with pytest.raises(kind, match=words):
        task(model, data, decide="probabilities", fitting="fit", label_column=column)


def test_triplets_may_be_named_by_three_coordinates():
    tested = files(["a", "b", "c"], [10, 20, 30])
    trials = presentations(["a", "c"], stimulus_id=["1", "2"]).assign_coords(
        {
            f"image_{n}": ("presentation", names)
            for n, names in enumerate((["a", "b"], ["b", "c"], ["c", "a"]))
        }
    )
    model = Asked(presentations(["a", "b", "c"], stimulus_id=["a", "b", "c"]))
    asked = {"decide": "odd_one_out", "alternatives": ("image_0", "image_1", "image_2")}
    measured = task(model, Dataset(tested, trials, id="lab"), **asked)
    assert measured.target["stimulus_id"].values.tolist() == ["a|b|c", "b|c|a"]
    assert measured.source.values.tolist() == ["a", "b"]
    with pytest.raises(DataError, match="have no coordinate 'image_3'"):
        task(
            model,
            Dataset(tested, trials, id="lab"),
            decide="odd_one_out",
            alternatives=("image_0", "image_3"),
        )


def test_stimuli_whose_ids_are_numbers_answer_triplets():
    tested = files(["0", "1", "2"], [10, 20, 30])
    trials = xr.DataArray(
        [1, 0],
        dims="presentation",
        coords={
            f"image_{n}": ("presentation", names)
            for n, names in enumerate(([0, 1], [1, 2], [2, 0]))
        }
        | {"stimulus_id": ("presentation", ["x", "y"])},
    )
    model = Asked(presentations(["0", "1", "2"], stimulus_id=["0", "1", "2"]))
    asked = {"decide": "odd_one_out", "alternatives": ("image_0", "image_1", "image_2")}
    measured = task(model, Dataset(tested, trials, id="lab"), **asked)
    assert measured.target.values.tolist() == ["1", "0"]
    expected = (measured.source.values == measured.target.values).mean()
    assert nl.metric("accuracy")(measured.source, measured.target).value == expected


def test_right_answers_have_the_columns_of_the_stimulus_table():
    tested = files(["a", "b"], [10, 20])
    tested = replace(tested, table=tested.table.assign(texture=["y", "x"]))
    model = Asked(presentations(["x", "y"], stimulus_id=["a", "b"]))
    measured = task(model, Dataset(tested, None, id="lab"), decide="label")
    assert measured.target["texture"].values.tolist() == ["y", "x"]


def test_a_class_that_was_never_fitted_is_refused():
    tested = files(["a", "b"], [10, 20])
    table = xr.DataArray(
        [[0.5, 0.5], [0.2, 0.8]],
        dims=("presentation", "choice"),
        coords={"stimulus_id": ("presentation", ["a", "b"]), "choice": ["x", "z"]},
    )
    data = Dataset(
        tested, None, id="lab", extra_stimuli={"fit": files(["c", "d"], [30, 40])}
    )
    with pytest.raises(
        DataError, match=r"1 of the right answers .* first 'y' \(fitted: x, z\)"
    ):
        task(Asked(table), data, decide="probabilities", fitting="fit")
