"""Tasks with derived labels, several conditions and selected stimuli; accuracy over blocks and levels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine.measurement import apart
from neuroledger.errors import DataError, MetricError, RequestError
from neuroledger.families.behavior.paradigms.task import task
from neuroledger.families.behavior.psychophysics.threshold_similarity import (
    elevations_of_people,
)
from neuroledger.models.model import Perform
from neuroledger.spec.registry import get


class Odd:
    """Answers with the label of each stimulus, wrongly where its number is a multiple of 5; keeps what it was fitted to."""

    id = "odd"
    takes = frozenset({"images"})
    gives = frozenset({"decisions"})

    def __init__(self) -> None:
        self.fitted: list[list[str]] = []

    def answer(self, asked: Perform) -> xr.DataArray:
        fitting = asked.fitting_stimuli
        assert fitting is not None
        self.fitted.append(fitting.ids)
        choices = sorted(set(fitting.table[asked.task.label_column].astype(str)))
        truth = asked.stimuli.table[asked.task.label_column].astype(str).to_numpy()
        wrong = asked.stimuli.table["number"].to_numpy() % 5 == 0
        right = np.asarray([choices.index(one) for one in truth])
        chosen = np.where(wrong, (right + 1) % len(choices), right)
        values = np.eye(len(choices))[chosen]
        coords = {"stimulus_id": ("presentation", asked.stimuli.ids), "choice": choices}
        return xr.DataArray(values, dims=("presentation", "choice"), coords=coords)


def stimuli(name: str, count: int = 24) -> StimulusSet:
    number = np.arange(count)
    table = pd.DataFrame(
        {
            "stimulus_id": [f"{name}{i}" for i in number],
            "number": number,
            "side": np.array(["l", "r"])[number % 2],
            "other": np.array(["l", "r"])[number // 2 % 2],
            "level": np.array([1, 5, 11])[number // 2 % 3],
            "block": np.array(["first", "second"])[number // (count // 2)],
        }
    )
    return StimulusSet(name, table)


def asked(data: Dataset, model: Odd | None = None, **parameters: object):
    values = get("paradigm", "task").bind({"decide": "probabilities"} | parameters)
    return task(model or Odd(), data, **values)


DERIVE = {
    "image_label": {
        "column": "number",
        "modulo": 2,
        "values": {"0": "oddball", "1": "same"},
    }
}


def test_labels_are_derived_for_fitting_and_tested_stimuli() -> None:
    data = Dataset(stimuli("test"), None, extra_stimuli={"fit": stimuli("fit")})
    found = asked(data, fitting="fit", derive=DERIVE)
    assert found.target["truth"].values.tolist() == ["oddball", "same"] * 12
    assert found.source["choice"].values.tolist() == ["oddball", "same"]
    assert nl.metric("accuracy")(found.source, found.target).value == pytest.approx(
        19 / 24
    )
    with pytest.raises(RequestError, match="no column 'size' to derive"):
        asked(data, fitting="fit", derive={"image_label": {"column": "size"}})
    with pytest.raises(DataError, match="holds '1', which `values` does not name"):
        asked(
            data,
            fitting="fit",
            derive={
                "image_label": {"column": "number", "modulo": 2, "values": {"0": "odd"}}
            },
        )


def test_stimuli_are_chosen_where_two_columns_differ() -> None:
    data = Dataset(stimuli("test"), None, extra_stimuli={"fit": stimuli("fit")})
    found = asked(
        data,
        fitting="fit",
        label_column="side",
        test={"other": {"differs_from": "side"}},
    )
    assert (
        found.source["side"].values != found.source["other"].values
    ).all() and found.source.sizes["presentation"] == 12
    with pytest.raises(RequestError, match="no column 'size' to compare with"):
        asked(
            data,
            fitting="fit",
            label_column="side",
            test={"other": {"differs_from": "size"}},
        )


def test_trials_of_stimuli_that_are_not_tested_are_left_out() -> None:
    held = stimuli("test")
    trials = xr.DataArray(
        held.table["side"].to_numpy(dtype=str),
        dims="presentation",
        coords={
            "stimulus_id": ("presentation", held.ids),
            "subject": ("presentation", ["p"] * 24),
        },
    )
    data = Dataset(held, trials, extra_stimuli={"fit": stimuli("fit")})
    found = asked(data, fitting="fit", label_column="side", test={"block": "first"})
    assert (
        found.target.sizes["presentation"] == found.source.sizes["presentation"] == 12
    )


def test_each_condition_has_a_readout_of_its_own() -> None:
    people = xr.DataArray(
        [300.0, 280, 320, 600, np.nan, 640],
        dims="subject",
        coords={
            "subject": ("subject", list("abc") * 2),
            "condition": ("subject", ["baseline"] * 3 + ["test"] * 3),
        },
    )
    sets = {name: stimuli(name) for name in ("alone", "fit_alone", "fit_flanked")}
    model = Odd()
    found = asked(
        Dataset(stimuli("flanked"), people, extra_stimuli=sets),
        model,
        label_column="side",
        conditions={
            "baseline": {"stimuli": "alone", "fitting": "fit_alone"},
            "test": {"fitting": "fit_flanked"},
        },
    )
    assert [one[0] for one in model.fitted] == ["fit_alone0", "fit_flanked0"]
    assert (
        found.source["condition"].values.tolist() == ["baseline"] * 24 + ["test"] * 24
    )
    assert (
        found.source["stimulus_id"].values[24] == "flanked0" and found.target is people
    )
    assert elevations_of_people(people, baseline="baseline", test="test").tolist() == [
        2.0,
        2.0,
    ], "b has no threshold"
    with pytest.raises(
        MetricError, match="no condition 'nothing'; known: baseline, test"
    ):
        elevations_of_people(people, baseline="nothing", test="test")
    with pytest.raises(
        RequestError, match="no stimulus set 'lost' for the condition; known: alone"
    ):
        asked(
            Dataset(stimuli("flanked"), people, extra_stimuli=sets),
            label_column="side",
            conditions={"baseline": {"stimuli": "lost", "fitting": "fit_alone"}},
        )


def test_one_condition_of_people_is_compared_with_readouts_of_several() -> None:
    """A readout for each of two displays; the threshold without flankers, of those who were measured with them too."""
    people = xr.DataArray(
        [300.0, 280, 320, 600, np.nan, 640, 500, 510, np.nan],
        dims="subject",
        coords={
            "subject": ("subject", list("abc") * 3),
            "condition": ("subject", np.repeat(["alone", "few", "many"], 3)),
        },
    )
    sets = {name: stimuli(name) for name in ("fit_few", "fit_many")}
    conditions = {name: {"fitting": f"fit_{name}"} for name in ("few", "many")}
    given = {"label_column": "side", "conditions": conditions}
    data = Dataset(stimuli("plain"), people, extra_stimuli=sets)
    found = asked(data, people="alone", **given)
    assert found.target.values.tolist() == [300, 320, 300, 280]
    assert found.target["subject"].values.tolist() == ["a", "c", "a", "b"]
    parts = dict(apart(found, "condition"))
    assert list(parts) == ["few", "many"] and parts["many"].target.values.tolist() == [
        300,
        280,
    ]
    assert parts["few"].repeated is not None and parts[
        "few"
    ].repeated.values.tolist() == [300, 320]
    assert set(parts["many"].source["condition"].values.tolist()) == {"many"}
    assert parts["many"].source.sizes["presentation"] == 24
    with pytest.raises(
        DataError,
        match=r"no subject has a value in both 'few' and 'lost'; .* conditions are alone, few, many",
    ):
        asked(data, people="lost", **given)
    with pytest.raises(RequestError, match="needs `conditions` and an assembly"):
        asked(data, people="alone", label_column="side", fitting="fit_few")
    with pytest.raises(
        DataError, match="needs one value with 'subject' for each person"
    ):
        asked(
            Dataset(stimuli("plain"), people.drop_vars("subject"), extra_stimuli=sets),
            people="alone",
            **given,
        )


def trials(accuracy: dict[tuple[str, int], float], count: int = 20) -> xr.DataArray:
    rows = [
        (block, level, int(i < round(p * count)))
        for (block, level), p in accuracy.items()
        for i in range(count)
    ]
    block, level, right = zip(*rows, strict=True)
    coords = {
        "block": ("presentation", list(block)),
        "level": ("presentation", [f"{one}.0" for one in level]),
    }
    return xr.DataArray(list(right), dims="presentation", coords=coords)


def test_the_change_of_accuracy_is_integrated_over_the_levels() -> None:
    levels = [(block, level) for block in ("first", "second") for level in (1, 5, 11)]
    model = trials(dict(zip(levels, (0.5, 0.6, 0.7, 0.7, 0.7, 0.9), strict=True)))
    people = trials(dict(zip(levels, (0.8, 0.8, 0.8, 0.9, 0.8, 0.9), strict=True)))
    fields = {
        "over": "level",
        "block": "block",
        "blocks": ("first", "second"),
        "scale": 0.75,
    }
    own = 2 * (0.2 + 0.1) + 3 * (0.1 + 0.2)
    theirs = 2 * (0.1 + 0) + 3 * (0 + 0.1)
    found = nl.metric("accuracy_integral", **fields)(model, people)
    assert found.value == pytest.approx(np.exp(-0.75 * abs(own - theirs)))
    lapses = nl.metric("accuracy_integral", **fields, lapse=0.2)(model, people)
    assert lapses.value == pytest.approx(np.exp(-0.75 * abs(own - theirs / 0.8)))
    both = nl.metric(
        "accuracy_integral", **fields, lapse=0.2, lapses="both", decimals=1
    )(model, people)
    assert both.value == pytest.approx(
        np.exp(-0.75 * abs(round(own / 0.8, 1) - round(theirs / 0.8, 1)))
    )
    with pytest.raises(
        MetricError, match="the model gave no answers at level = 11 in block 'second'"
    ):
        nl.metric("accuracy_integral", **fields)(
            model.isel(presentation=slice(0, 100)), people
        )
    with pytest.raises(MetricError, match="people have no coordinate 'block'"):
        nl.metric("accuracy_integral", **fields)(model, people.drop_vars("block"))


def test_an_integral_varies_with_new_stimuli_and_new_people() -> None:
    fields = {"over": "level", "block": "block", "blocks": ("first", "second")}
    blocks, levels = (
        np.repeat(["first", "second"], 45),
        np.tile(np.repeat(["1", "5", "11"], 15), 2),
    )
    gain = np.where(blocks == "second", 0.8, 0.0) - 0.1 * levels.astype(float)
    scores = []
    for run in range(100):
        rng = np.random.default_rng([9, run])
        odds = 0.8 + gain + rng.standard_normal(90)
        skill = 0.6 * rng.standard_normal((10, 1)) * (1 + (blocks == "second"))
        right = rng.random((10, 90)) < 1 / (1 + np.exp(-odds - skill))
        own = rng.random(90) < 1 / (1 + np.exp(-(0.5 * odds + rng.standard_normal(90))))
        names = {
            "stimulus_id": np.array([f"{run}s{i}" for i in range(90)]),
            "block": blocks,
            "level": levels,
        }
        model = xr.DataArray(
            own * 1,
            dims="presentation",
            coords={k: ("presentation", v) for k, v in names.items()},
        )
        coords = {k: ("presentation", np.tile(v, 10)) for k, v in names.items()}
        coords["subject"] = (
            "presentation",
            np.repeat([f"{run}p{i}" for i in range(10)], 90),
        )
        people = xr.DataArray(right.ravel() * 1, dims="presentation", coords=coords)
        scores.append(
            nl.metric("accuracy_integral", **fields)(model, people).replace(
                population=str(run)
            )
        )
    assert scores[0].interval_covers.endswith("covers new stimuli and new subjects")
    truth = np.mean([score.value for score in scores])
    assert np.mean([score.low <= truth <= score.high for score in scores]) > 0.85
    unnamed = [
        side.drop_vars(["stimulus_id", "subject"], errors="ignore")
        for side in (model, people)
    ]
    assert np.isnan(nl.metric("accuracy_integral", **fields)(*unnamed).low)


def test_people_and_models_may_be_compared_over_conditions_of_different_stimuli() -> (
    None
):
    rng = np.random.default_rng(8)
    kinds = np.repeat(["plain", "noisy", "small"], 20)
    hard = {"plain": 0.9, "noisy": 0.5, "small": 0.2}
    right = rng.random(60) < [hard[kind] for kind in kinds]
    ids = [f"m{n}" for n in range(60)]
    model = xr.DataArray(
        np.where(right, "x", "y"),
        dims="presentation",
        coords={
            name: ("presentation", held)
            for name, held in (
                ("stimulus_id", ids),
                ("kind", kinds),
                ("image_label", ["x"] * 60),
            )
        },
    )
    tasks = np.tile(["A", "B", "C", "C2"], 50)
    said = np.where(
        rng.random(200) < [{"A": 0.8, "B": 0.6, "C": 0.5, "C2": 0.1}[t] for t in tasks],
        "x",
        "y",
    )
    coords = {
        "stimulus_id": [f"p{n % 30}" for n in range(200)],
        "subject": np.repeat(range(10), 20),
        "task": tasks,
        "truth": ["x"] * 200,
    }
    people = xr.DataArray(
        said,
        dims="presentation",
        coords={name: ("presentation", held) for name, held in coords.items()},
    )
    match = {
        "A": {"kind": "plain"},
        "B": {"kind": "noisy"},
        "C": {"kind": "small"},
        "C2": {"kind": "small"},
    }
    fields = {"variables": ["task"], "people": "pooled"}
    score = nl.metric("condition_accuracy", **fields, match=match)(model, people)
    own = [right[kinds == match[task]["kind"]].mean() for task in match]
    theirs = [(said[tasks == task] == "x").mean() for task in match]
    assert score.value == pytest.approx(np.corrcoef(own, theirs)[0, 1])
    assert (
        "subject" in score.uncertainty.factors and score.low < score.value < score.high
    )
    with pytest.raises(
        MetricError,
        match="does not say which stimuli of the model are of people's condition 'C2'",
    ):
        nl.metric("condition_accuracy", **fields, match={k: match[k] for k in "ABC"})(
            model, people
        )
    with pytest.raises(
        MetricError, match="no stimulus of the model is of people's condition 'A'"
    ):
        nl.metric("condition_accuracy", **fields, match=match | {"A": {"kind": "odd"}})(
            model, people
        )
    with pytest.raises(MetricError, match="have no column 'sort'"):
        nl.metric("condition_accuracy", **fields, match=match | {"A": {"sort": "odd"}})(
            model, people
        )
    with pytest.raises(MetricError, match="set `people: pooled`"):
        nl.metric("condition_accuracy", variables=["task"], match=match)(model, people)
