"""Stimulus pairs share the declared factor; splits separate related stimuli; reverse regression is stratified."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, MetricError
from neuroledger.families.alignment.paradigms.recording import recording
from neuroledger.families.alignment.paradigms.stimulus_pairs import stimulus_pairs
from neuroledger.families.alignment.preparation import Mean
from neuroledger.models.model import Record
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.spec.registry import get
from neuroledger.stats.splits import draw


@dataclass
class Coding:
    """A model with 30 units for shape, 10 for texture and 10 of noise; its responses have only ids as coordinates."""

    table: pd.DataFrame
    id: str = "coding"
    takes = frozenset({"images"})
    gives = frozenset({"responses"})

    def answer(self, question: Record) -> xr.DataArray:
        rng = np.random.default_rng(3)
        parts = []
        for column, units in (("shape", 30), ("texture", 10)):
            labels = sorted(set(self.table[column]))
            codes = rng.normal(size=(len(labels), units))
            own = self.table.set_index("stimulus_id").loc[question.stimuli.ids, column]
            parts.append(codes[[labels.index(label) for label in own]])
        parts.append(rng.normal(size=(len(question.stimuli), 10)))
        coords = {"stimulus_id": ("presentation", question.stimuli.ids)}
        return xr.DataArray(
            np.hstack(parts), dims=("presentation", "neuroid"), coords=coords
        )


@pytest.fixture
def drawn() -> pd.DataFrame:
    rows = [(f"s{i}", f"t{i % 5}", f"o{i // 5}") for i in range(100)]
    return pd.DataFrame(rows, columns=["stimulus_id", "texture", "shape"])


FACTORS = {
    "shape": {"same": ["shape"], "differ": ["texture"]},
    "texture": {"same": ["texture"], "differ": ["shape"]},
}


def measured(table: pd.DataFrame, **changes: object):
    values = get("paradigm", "stimulus_pairs").bind(
        {"region": "IT", "factors": FACTORS} | changes
    )
    return stimulus_pairs(
        Coding(table), Dataset(StimulusSet("set", table), None), **values
    )


def test_partners_share_one_factor_and_differ_in_the_other(drawn: pd.DataFrame) -> None:
    measurement = measured(drawn)
    shape, texture = (
        drawn.set_index("stimulus_id")[name] for name in ("shape", "texture")
    )
    assert set(measurement.source["factor"].values.tolist()) == {"shape", "texture"}
    for pair, factor in zip(
        measurement.source["stimulus_id"].values,
        measurement.source["factor"].values,
        strict=True,
    ):
        a, b = pair.split("|")
        assert (shape[a] == shape[b]) == (factor == "shape")
        assert (texture[a] == texture[b]) == (factor == "texture")
    again, other = measured(drawn), measured(drawn, seed=1)
    assert again.source["stimulus_id"].equals(measurement.source["stimulus_id"])
    assert not other.source["stimulus_id"].equals(measurement.source["stimulus_id"])
    shares = {
        name: nl.metric("factor_dimensionality", factor=name)(
            measurement.source, measurement.target
        ).value
        for name in FACTORS
    }
    assert shares["shape"] > shares["texture"]


def test_the_difference_of_a_partner_is_drawn_before_the_partner() -> None:
    # One texture has many pictures of every shape, the others have one: all textures are equally likely to be drawn.
    rows = [("common", shape) for shape in "ab" for _ in range(40)] + [
        (t, s) for t in ("x", "y") for s in "ab"
    ]
    table = pd.DataFrame(rows, columns=["texture", "shape"])
    table.insert(0, "stimulus_id", [f"s{n}" for n in range(len(table))])
    sources = [measured(table, seed=seed).source for seed in range(30)]
    texture_of = table.set_index("stimulus_id")["texture"]
    pairs = [
        pair
        for source in sources
        for pair in source["stimulus_id"].values[source["factor"].values == "shape"]
    ]
    ids = [pair.split("|") for pair in pairs]
    partners = [texture_of[second] for first, second in ids if texture_of[first] == "x"]
    assert len(partners) > 20 and 0.2 < partners.count("y") / len(partners) < 0.8


def test_a_stimulus_without_a_partner_is_left_out_and_counted(
    drawn: pd.DataFrame,
) -> None:
    lonely = pd.concat(
        [drawn, pd.DataFrame([("alone", "t9", "o99")], columns=drawn.columns)],
        ignore_index=True,
    )
    measurement = measured(lonely)
    assert measurement.source.sizes["presentation"] == 100 and measurement.notes == (
        "1 of 101 stimuli have no partner and were left out",
    )
    with pytest.raises(DataError, match="no two stimuli of 'set' share a factor"):
        measured(drawn.iloc[:1])
    with pytest.raises(DataError, match="have no column 'colour'"):
        measured(drawn, factors={"colour": {"same": ["colour"], "differ": ["shape"]}})


def test_stimuli_of_the_test_part_are_not_trained_on() -> None:
    rng = np.random.default_rng(0)
    style = np.where(np.arange(60) % 3 == 0, "silhouette", "photo")
    assembly = xr.DataArray(
        rng.normal(size=(60, 2)),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", [f"s{i}" for i in range(60)]),
            "background": ("presentation", np.arange(60) % 20),
            "style": ("presentation", style),
        },
    )
    rule = {
        "name": "shuffle",
        "folds": 5,
        "test": 0.1,
        "disjoint": {"by": "background"},
    }
    for train, test in draw(SplitsSpec.model_validate(rule), assembly):
        assert not set(train % 20) & set(test % 20)
    rule["disjoint"] = {"by": "background", "except": {"style": ["silhouette"]}}
    for train, test in draw(SplitsSpec.model_validate(rule), assembly):
        bound = style != "silhouette"
        assert not set(train[bound[train]] % 20) & set(test[bound[test]] % 20)
        exempt = set(np.flatnonzero(~bound)) - set(test)
        assert exempt <= set(train), "silhouettes have no background to share"
    plain = SplitsSpec(name="shuffle", folds=5)
    numbers = assembly.assign_coords(
        background=(
            "presentation",
            np.asarray(assembly["background"].values).astype(float),
        )
    )
    _, shown = draw(SplitsSpec.model_validate(rule | {"disjoint": None}), numbers)[0]
    free = int(numbers["background"].values[shown[0]])
    for exempt in (
        free,
        float(free),
        str(free),
    ):  # formats in which a stimulus table may contain it
        other = rule | {
            "disjoint": {"by": "background", "except": {"background": [exempt]}}
        }
        train, test = draw(SplitsSpec.model_validate(other), numbers)[0]
        both = set(train % 20) & set(test % 20)
        assert both == {free}, "only the exempt background is in both parts"
    assert "disjoint" not in plain.model_dump(), (
        "absent fields do not change the identity of a spec"
    )
    assembly["background"] = ("presentation", np.zeros(60))
    with pytest.raises(
        MetricError, match="every train presentation shares a value of 'background'"
    ):
        draw(
            SplitsSpec.model_validate(rule | {"disjoint": {"by": "background"}}),
            assembly,
        )


def test_a_reverse_regression_is_stratified_by_coordinates_of_the_data() -> None:
    rng = np.random.default_rng(1)
    ids = [f"s{i}" for i in range(40)]
    signal = rng.normal(size=(40, 6))
    source = xr.DataArray(
        signal @ rng.normal(size=(6, 30)),
        dims=("presentation", "neuroid"),
        coords={"stimulus_id": ("presentation", ids)},
    )
    target = xr.DataArray(
        signal @ rng.normal(size=(6, 30)) + 0.1 * rng.normal(size=(40, 30)),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids),
            "object_name": ("presentation", ["a", "b", "c", "d"] * 10),
        },
    )
    score = nl.metric(
        "reverse_pls", splits={"stratify": "object_name"}, estimator={"components": 5}
    )(source, target)
    assert score.value > 0.8


def test_a_ceiling_between_subjects_and_a_score_on_their_mean(
    drawn: pd.DataFrame,
) -> None:
    rng = np.random.default_rng(2)
    voxels = xr.DataArray(
        rng.normal(size=(20, 8)),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": (
                "presentation",
                drawn["stimulus_id"].to_numpy()[:20].astype(str),
            ),
            "neuroid_id": ("neuroid", [f"v{i}" for i in range(8)]),
            "subject": ("neuroid", ["a"] * 4 + ["b"] * 4),
            "voxel": ("neuroid", [0, 1, 2, 3] * 2),
        },
    )
    measurement = recording(
        Coding(drawn),
        Dataset(StimulusSet("set", drawn), voxels),
        region="IT",
        prepare_target=(Mean(step="mean", over="neuroid", by="voxel"),),
    )
    np.testing.assert_allclose(
        measurement.target.values, (voxels.values[:, :4] + voxels.values[:, 4:]) / 2
    )
    assert (
        measurement.repeated is not None and measurement.repeated["subject"].size == 8
    )
