"""The domain readout draws as declared, equals scikit-learn, and recovers a known truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.linear_model import RidgeClassifierCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, MetricError
from neuroledger.families.alignment.paradigms.labelled_responses import (
    labelled_responses,
)
from neuroledger.models.model import Record
from neuroledger.spec.registry import get

LABELS = ["bear", "cat", "dog", "owl", "sheep"]
PENALTIES = [0.0001, 0.001, 0.01, 0.1, 1, 10]
PAIRED = {"by": "background", "domains": ["outline"]}


def table(each: int = 60) -> pd.DataFrame:
    rows = [
        (f"{style}{n}", style, LABELS[n % 5], n)
        for n in range(each)
        for style in ("photo", "sketch", "outline", "blank")
    ]
    return pd.DataFrame(rows, columns=["stimulus_id", "style", "object", "background"])


@dataclass
class Coding:
    """A model whose units code the object, with noise of the given deviation; one unit is constant."""

    stimuli: pd.DataFrame
    noise: float = 1.5
    seed: int = 3
    scale: float = 1.0
    id: str = "coding"
    takes = frozenset({"images"})
    gives = frozenset({"responses"})

    def answer(self, question: Record) -> xr.DataArray:
        codes = np.random.default_rng(3).normal(size=(len(LABELS), 30))
        rng = np.random.default_rng([3, self.seed])
        shown = self.stimuli.set_index("stimulus_id").loc[
            question.stimuli.ids, "object"
        ]
        values = codes[
            [LABELS.index(label) for label in shown]
        ] + self.noise * rng.normal(size=(len(shown), 30))
        values[:, 4] = 0.1
        coords = {"stimulus_id": ("presentation", question.stimuli.ids)}
        return xr.DataArray(
            self.scale * values, dims=("presentation", "neuroid"), coords=coords
        )


DOMAINS = {name: {"style": name} for name in ("photo", "sketch", "outline")}


def measured(model: Coding, **changes: object):
    values = {"region": "IT", "label_column": "object", "domains": DOMAINS} | changes
    bound = get("paradigm", "labelled_responses").bind(values)
    return labelled_responses(
        model, Dataset(StimulusSet("set", model.stimuli), None), **bound
    )


def peer(
    source: xr.DataArray, target: xr.DataArray, divisions: int, seed: int
) -> np.ndarray:
    """The same by scikit-learn's pipeline, whose draws use one generator."""
    X, y, style = source.values, target.values, target["domain"].values
    stream, all_shares = np.random.RandomState(seed), []
    for _ in range(divisions):
        own = np.flatnonzero(style == "photo")
        held_out, fitted = train_test_split(
            own, train_size=30, stratify=y[own], random_state=stream
        )
        other = np.flatnonzero(style == "sketch")
        drawn = train_test_split(
            other, train_size=30, stratify=y[other], random_state=stream
        )[0]
        partners = np.isin(
            target["background"].values, target["background"].values[held_out]
        )
        pairs = np.flatnonzero((style == "outline") & partners)
        readout = make_pipeline(StandardScaler(), RidgeClassifierCV(alphas=PENALTIES))
        readout.fit(X[fitted], y[fitted])
        shares = []
        for part in (held_out, drawn, pairs):
            values = readout.decision_function(X[part])
            right = values[
                np.arange(len(part)), np.searchsorted(readout.classes_, y[part])
            ]
            shares.append(((right[:, None] > values).sum(axis=1) / 4).mean())
        all_shares.append(shares)
    return np.asarray(all_shares)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("noise", [0.5, 4.0])
def test_divisions_and_shares_are_those_of_scikit_learn(
    noise: float, seed: int
) -> None:
    measurement = measured(Coding(table(), noise))
    metric = nl.metric(
        "domain_readout",
        fitted="photo",
        paired=PAIRED,
        divisions=12,
        compare={"seed": seed},
    )
    samples = metric(measurement.source, measurement.target).samples
    assert samples["domain"].values.tolist() == ["photo", "sketch", "outline"]
    np.testing.assert_allclose(
        samples.values,
        peer(measurement.source, measurement.target, 12, seed),
        atol=1e-12,
    )


def test_rows_are_matched_by_id_and_scale_does_not_count() -> None:
    plain, large = (measured(Coding(table(), scale=scale)) for scale in (1.0, 1e6))
    metric = nl.metric("domain_readout", fitted="photo", divisions=5)
    value = metric(plain.source, plain.target).value
    assert metric(plain.source[::-1], plain.target).value == value
    assert metric(large.source, large.target).value == pytest.approx(value, abs=1e-12)


def test_uncoded_labels_score_at_chance_and_coded_labels_are_perfect() -> None:
    metric = nl.metric("domain_readout", fitted="photo", divisions=40)
    clear = measured(Coding(table(), noise=0.1))
    assert metric(clear.source, clear.target).value == 1.0
    wrong = clear.target.copy(
        data=np.random.default_rng(0).permutation(clear.target.values)
    )
    assert metric(clear.source, wrong).value == pytest.approx(0.5, abs=0.08)
    silent = clear.source.copy(data=np.ones(clear.source.shape))
    assert metric(silent, clear.target).value == 0.5
    assert nl.metric(
        "domain_readout", fitted="photo", divisions=2, compat="brainscore"
    )(silent, clear.target).value == pytest.approx(0.0)


def test_two_responses_to_one_stimulus_are_refused() -> None:
    clear = measured(Coding(table()))
    twice = xr.concat([clear.source, 2 * clear.source[:1]], "presentation")
    with pytest.raises(MetricError, match="has several responses of the model"):
        nl.metric("domain_readout", fitted="photo", divisions=2)(twice, clear.target)


@pytest.mark.parametrize("exponent", [-300, -160, -13, 13, 160, 300])
def test_the_units_of_the_responses_do_not_matter(exponent: int) -> None:
    noisy = measured(Coding(table(), noise=3.0))
    metric = nl.metric("domain_readout", fitted="photo", divisions=2)
    expected = metric(noisy.source, noisy.target).value
    assert 0.6 < expected < 0.99
    assert metric(noisy.source * 10.0**exponent, noisy.target).value == pytest.approx(
        expected, abs=0.005
    )


def test_the_interval_has_the_width_of_the_variation_over_stimuli() -> None:
    metric = nl.metric("domain_readout", fitted="photo", divisions=5, tested=20)
    measurements = [
        measured(Coding(table(40), noise=3.0, seed=seed)) for seed in range(25)
    ]
    scores = [
        metric(measurement.source, measurement.target) for measurement in measurements
    ]
    spread = np.std([score.value for score in scores], ddof=1)
    reported = np.median([(score.high - score.low) / 2 / 1.96 for score in scores])
    assert scores[0].n["stimuli"] == 120
    assert 0.7 < reported / spread < 2.5


def test_the_interval_near_one_is_longer_below() -> None:
    measurement = measured(Coding(table(), noise=1.5))
    metric = nl.metric("domain_readout", fitted="photo", tested=15, divisions=10)
    score = metric(measurement.source, measurement.target)
    assert 0.85 < score.value < 1
    assert score.value - score.low > 1.1 * (score.high - score.value)
    assert score.high < 1


def test_stimuli_are_shown_domain_by_domain_and_others_are_not() -> None:
    measurement = measured(Coding(table()))
    assert measurement.source.sizes["presentation"] == 180
    assert list(dict.fromkeys(measurement.target["domain"].values.tolist())) == list(
        DOMAINS
    )
    turned = measured(Coding(table()), domains=dict(reversed(DOMAINS.items())))
    assert list(dict.fromkeys(turned.target["domain"].values.tolist())) == list(
        reversed(DOMAINS)
    )
    assert (measurement.target["style"] == measurement.target["domain"]).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"domains": {"photo": {"colour": "red"}}},
            "have no column 'colour'; correct the domain 'photo'",
        ),
        (
            {"domains": {"old": {"style": "Photo"}}},
            r"domain 'old': style: no row has 'Photo' \(did you mean 'photo'",
        ),
        (
            {"domains": {"old": {"style": ["photo", "oil"]}}},
            "no row has 'oil'; the values are",
        ),
        (
            {"domains": {"none": {"style": "photo", "stimulus_id": "sketch2"}}},
            "no stimulus of 'set' is in the domain 'none'",
        ),
        (
            {"domains": {"one": {"style": "photo"}, "two": {"object": "cat"}}},
            "is in the domains 'one' and 'two'",
        ),
        (
            {"label_column": "name"},
            "no column 'name'; name another one as `label_column`",
        ),
    ],
)
def test_domains_that_do_not_fit_the_table_are_refused(
    changes: dict[str, object], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        measured(Coding(table()), **changes)


def test_a_missing_label_is_refused() -> None:
    model = Coding(table())
    holed = model.stimuli.assign(
        kind=model.stimuli["object"].mask(model.stimuli["stimulus_id"] == "sketch2")
    )
    with pytest.raises(DataError, match="1 stimuli have no 'kind', first 'sketch2'"):
        measured(Coding(holed), label_column="kind")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"fitted": "oil"},
            "the domain 'oil' cannot be used: the domains are photo, sketch, outline",
        ),
        (
            {"tested": 60},
            "all 60 stimuli of 'photo' are tested, so none is left to fit",
        ),
        ({"tested": 61}, "61 of the 60 stimuli of 'photo' cannot be drawn"),
        ({"tested": 2}, "2 of the 60 stimuli of 'photo' cannot be drawn"),
        (
            {"paired": {"by": "weight", "domains": ["outline"]}},
            "partners by 'weight' cannot be used",
        ),
        (
            {"paired": {"by": "background", "domains": ["photo"]}},
            "partners by 'background' cannot be used",
        ),
    ],
)
def test_divisions_that_cannot_be_drawn_are_refused(
    changes: dict[str, object], says: str
) -> None:
    measurement = measured(Coding(table()))
    with pytest.raises(MetricError, match=says):
        nl.metric("domain_readout", **{"fitted": "photo", "divisions": 2} | changes)(
            measurement.source, measurement.target
        )


def test_responses_that_do_not_fit_are_refused() -> None:
    measurement = measured(Coding(table()))
    metric = nl.metric("domain_readout", fitted="photo", divisions=2)
    with pytest.raises(MetricError, match="did not answer stimulus"):
        metric(measurement.source[:-1], measurement.target)
    with pytest.raises(MetricError, match="missing or infinite"):
        metric(
            measurement.source.where(measurement.source["stimulus_id"] != "photo3"),
            measurement.target,
        )
    with pytest.raises(MetricError, match="labels need the coordinate 'domain'"):
        metric(measurement.source, measurement.target.drop_vars("domain"))
    unknown = measurement.target.copy(
        data=np.where(
            measurement.target["domain"] == "sketch", "horse", measurement.target.values
        )
    )
    with pytest.raises(
        MetricError, match="the label 'horse' is tested and was never fitted"
    ):
        metric(measurement.source, unknown)
