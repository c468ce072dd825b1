"""Reading: contexts grow within a passage, surprisals give SyntaxGym's score, and Brain-Score subjects are reproducible."""

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger import models
from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import CeilingError, DataError, MetricError, ModelError
from neuroledger.families.alignment.ceilings.subject_predictivity import (
    asymptote,
    rise,
)
from neuroledger.families.signals.ceilings.reader_consistency import reader_consistency
from neuroledger.families.signals.models.language_readers import (
    TextReader,
    stored_readings,
)
from neuroledger.families.signals.paradigms.reading import in_context, reading
from neuroledger.families.signals.readers.text_suites import next_words, syntax_suite

STORY = pd.DataFrame(
    {
        "stimulus_id": ["b2", "a1", "a2", "b1"],
        "text": ["sat down", "the cat", "ran away", "a dog"],
        "passage_label": ["b", "a", "a", "b"],
    }
)


def letters() -> TextReader:
    """Responds with the lengths of text and context; its reading time is the number of letters read so far."""

    def read(contexts: Any, ids: Any, asked: str) -> Any:
        del ids
        if asked == "next_word":
            return [context.split()[-1] for context in contexts]
        if asked == "reading_times":
            return [
                np.nan if at == 0 else float(len(context))
                for at, context in enumerate(contexts)
            ]
        return [
            np.asarray([len(context), context.count("a")], dtype=float)
            for context in contexts
        ]

    return TextReader(id="letters", regions=("language_system",), read=read)


def test_a_passage_is_presented_in_the_order_of_the_table() -> None:
    shown = in_context(StimulusSet("story", STORY), "passage_label").table
    assert shown["context"].tolist() == [
        "sat down",
        "the cat",
        "the cat ran away",
        "sat down a dog",
    ]
    assert shown["part"].tolist() == [0, 0, 1, 1]
    with pytest.raises(DataError, match="no column 'chapter'"):
        in_context(StimulusSet("story", STORY), "chapter")


def test_responses_are_matched_with_recordings_of_the_same_text() -> None:
    coords = {
        "stimulus_id": ("presentation", ["a1", "a2", "b1"]),
        "neuroid_id": ("neuroid", ["n1", "n2"]),
    }
    brain = xr.DataArray(
        np.arange(6.0).reshape(3, 2), dims=("presentation", "neuroid"), coords=coords
    )
    data = Dataset(StimulusSet("story", STORY), brain)
    measurement = reading(letters(), data, give="responses", passage="passage_label")
    assert dict(
        zip(
            measurement.source["stimulus_id"].values,
            measurement.source.values[:, 0],
            strict=True,
        )
    ) == {
        "a1": 7.0,
        "a2": 16.0,
        "b1": 14.0,
    }
    alone = reading(letters(), data, give="responses")
    assert (
        alone.source.values[:, 0].tolist() != measurement.source.values[:, 0].tolist()
    )
    lost = brain.assign_coords(stimulus_id=("presentation", ["a1", "a2", "z9"]))
    with pytest.raises(DataError, match="1 stimuli of the assembly have no text"):
        reading(letters(), Dataset(StimulusSet("story", STORY), lost), give="responses")


def test_reading_times_are_compared_with_the_average_reader() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "stimulus_id": [f"w{n}" for n in range(30)],
            "text": ["ab" * (n % 5 + 1) for n in range(30)],
        }
    )
    table["sentence"] = [n // 6 for n in range(30)]
    table["word"] = [n % 6 + 1 for n in range(30)]
    times = np.asarray(
        [
            len(text)
            for text in in_context(StimulusSet("t", table), "sentence").table["context"]
        ],
        float,
    )
    people = times[:, None] + rng.normal(0, 3, (30, 8))
    coords = {
        "stimulus_id": ("presentation", table["stimulus_id"]),
        "word": ("presentation", table["word"]),
        "neuroid_id": ("neuroid", [f"s{n}" for n in range(8)]),
    }
    data = Dataset(
        StimulusSet("t", table),
        xr.DataArray(people, dims=("presentation", "neuroid"), coords=coords),
    )
    asked: dict[str, Any] = {
        "give": "reading_times",
        "passage": "sentence",
        "average": "neuroid",
    }
    measurement = reading(letters(), data, score={"word": {"above": 1}}, **asked)
    metric = nl.metric("reading_correlation")
    keep = table["word"].to_numpy() > 1
    expected = np.corrcoef(times[keep], people[keep].mean(axis=1))[0, 1]
    assert metric(measurement.source, measurement.target).value == pytest.approx(
        expected, abs=1e-12
    )
    assert (
        measurement.repeated is not None and measurement.repeated.sizes["neuroid"] == 8
    )
    assert measurement.repeated.sizes["presentation"] == keep.sum()
    whole = reading(
        letters(), data, score={"word": {"above": 1}}, ceiling_from="all", **asked
    )
    assert whole.repeated is not None and whole.repeated.sizes["presentation"] == len(
        table
    )
    xr.testing.assert_equal(whole.target, measurement.target)
    # Brain-Score's number has no sign, ours has.
    assert metric(-measurement.source, measurement.target).value == pytest.approx(
        -expected, abs=1e-12
    )
    assert nl.metric("reading_correlation", compat="brainscore")(
        -measurement.source, measurement.target
    ).value == pytest.approx(expected, abs=1e-12)
    with pytest.raises(MetricError, match="several rows"):
        metric(
            measurement.source,
            xr.concat([measurement.target, measurement.target[:1]], "presentation"),
        )


def test_reader_consistency_reproduces_the_split_halves_of_brainscore() -> None:
    rng = np.random.default_rng(3)
    signal = rng.normal(size=40)
    people = xr.DataArray(
        signal[:, None] + rng.normal(0, 2, (40, 7)),
        dims=("presentation", "neuroid"),
        coords={"neuroid_id": ("neuroid", [f"s{n}" for n in range(7)])},
    )
    people[3, 2] = np.nan
    consistency = reader_consistency(people, draws="brainscore", absolute=True).values
    state, expected = np.random.RandomState(0), []
    for _ in range(10):
        first = state.choice(np.arange(7), size=3, replace=False)
        others = [n for n in range(7) if n not in first]
        r = abs(
            np.corrcoef(
                *(
                    np.nanmean(people.values[:, list(half)], axis=1)
                    for half in (first, others)
                )
            )[0, 1]
        )
        expected.append(2 * r / (1 + r))
    np.testing.assert_allclose(consistency, expected, atol=1e-12)
    with pytest.raises(CeilingError, match="at least two"):
        reader_consistency(people[:, :1])


def test_the_fitted_curve_over_subjects_recovers_its_asymptote() -> None:
    sizes = range(2, 8)
    rng = np.random.default_rng(1)
    samples = [
        (float(rise(np.asarray(n), 0.6, 2.5)) + rng.normal(0, 0.01, 40)).tolist()
        for n in sizes
    ]
    assert asymptote(samples, sizes, 30, 0) == pytest.approx(0.6, abs=0.02)
    assert np.isnan(asymptote([*samples[:-1], []], sizes, 30, 0))


def test_the_extrapolated_ceiling_exceeds_the_ceiling_of_the_recorded_subjects() -> (
    None
):
    rng = np.random.default_rng(2)
    shared = rng.normal(size=(80, 3))
    people = np.concatenate(
        [
            shared @ rng.normal(size=(3, 4)) + rng.normal(0, 1.5, (80, 4))
            for _ in range(4)
        ],
        axis=1,
    )
    coords = {
        "stimulus_id": ("presentation", [f"t{n:02d}" for n in range(80)]),
        "neuroid_id": ("neuroid", [f"n{n}" for n in range(16)]),
        "subject": ("neuroid", np.repeat(list("abcd"), 4)),
    }
    data = xr.DataArray(people, dims=("presentation", "neuroid"), coords=coords)
    here = nl.ceiling("subject_predictivity")(data).value
    beyond = nl.ceiling("extrapolated_predictivity", bootstraps=20)(data).value
    assert here < beyond <= 1
    with pytest.raises(CeilingError, match="at least three"):
        nl.ceiling("extrapolated_predictivity")(data[:, :8])


SUITE = {
    "meta": {"name": "agreement"}, "region_meta": {"1": "subject", "2": "verb"},
    "predictions": [{"type": "formula", "formula": "(2;%match%) < (2;%mismatch%)"},
                    {"type": "formula", "formula": "(*;%match%) < (*;%mismatch%)"}],
    "items": [{"item_number": n, "conditions": [
        {"condition_name": name,
         "regions": [{"region_number": 1, "content": "the cats"}, {"region_number": 2, "content": verb}]}
        for name, verb in (("match", "run"), ("mismatch", "runs" if n else "r"))]} for n in range(4)],
}  # fmt: skip


def test_a_syntaxgym_item_counts_only_if_all_criteria_hold(tmp_path: Path) -> None:
    path = tmp_path / "agreement.json"
    path.write_text(json.dumps(SUITE), encoding="utf-8")
    data = syntax_suite({"agreement.json": path})
    measurement = reading(
        letters(), data, give="reading_times", passage="sentence", unread=0.0
    )
    spec: dict[str, Any] = {
        "aggregate": [
            {"over": "formula", "with": "min"},
            {"over": "item", "with": "mean"},
        ]
    }
    # "the cats run" is shorter than "the cats runs", and longer than "the cats r", in item 0
    assert (
        nl.metric("formula", formulas=[], **spec)(
            measurement.source, measurement.target
        ).value
        == 0.75
    )
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="not a SyntaxGym suite"):
        syntax_suite({"agreement.json": path})
    with pytest.raises(MetricError, match="carry no 'criterion'"):
        nl.metric("formula", formulas=[], **spec)(
            measurement.source.drop_vars("criterion"), measurement.target
        )


def test_the_published_score_of_distilgpt2_is_reproduced(
    mirror: Path, tmp_path: Path
) -> None:
    folder = mirror / "syntaxgym_distilgpt2"
    totals = json.loads(
        (folder / "subordination_src-src_distilgpt2_region_totals.json").read_text(
            "utf-8"
        )
    )
    rows = [
        f"{n + 1}|{place},{value}"
        for n, item in enumerate(totals)
        for place, value in item.items()
    ]
    table = tmp_path / "surprisal.csv"
    table.write_text(
        "\n".join(["stimulus_id,surprisal", *rows]) + "\n", encoding="utf-8"
    )
    model = stored_readings(id="distilgpt2", weights={"surprisal.csv": table})
    suite = {"suite.json": folder / "subordination_src-src.json"}
    measurement = reading(
        model, syntax_suite(suite), give="reading_times", passage="sentence", unread=0.0
    )
    score = nl.metric("formula", formulas=[])(measurement.source, measurement.target)
    assert score.value == pytest.approx(13 / 23, abs=1e-12)
    with pytest.raises(ModelError, match="no stored reading time for stimulus"):
        table.write_text(
            "\n".join(["stimulus_id,surprisal", *rows[1:]]) + "\n", encoding="utf-8"
        )
        short = stored_readings(id="distilgpt2", weights={"surprisal.csv": table})
        reading(short, syntax_suite(suite), give="reading_times", passage="sentence")


def test_each_prefix_of_a_line_is_scored_by_its_next_word(tmp_path: Path) -> None:
    path = tmp_path / "wiki.raw"
    path.write_text(" = Cats = \n the cat sat down . \n\n one\n", encoding="utf-8")
    table = next_words({"wiki.raw": path}).stimuli
    assert table is not None
    rows = table.table[["text", "truth"]].to_numpy().tolist()
    assert ["the cat", "sat"] in rows and ["the", "cat"] in rows
    measurement = reading(letters(), next_words({"wiki.raw": path}), give="next_word")
    assert nl.metric("accuracy")(measurement.source, measurement.target).value == 0.0


class Subject:
    """Written to Brain-Score's interface, with the lists that its own subjects collect in."""

    class Task:
        reading_times = "reading_times"

    class RecordingTarget:
        language_system = "language_system"

    def __init__(self) -> None:
        self.recordings: list[str] = []
        self.task: str | None = None
        self.digested: list[list[str]] = []

    def identifier(self) -> str:
        return "subject"

    def start_neural_recording(
        self, recording_target: str, recording_type: str
    ) -> None:
        self.recordings.append(recording_target)

    def start_behavioral_task(self, task: str) -> None:
        self.task = task

    def digest_text(self, text: list[str]) -> dict[str, Any]:
        seen = np.cumsum([len(part) for part in text]).astype(float)
        neural = (
            np.stack([seen * (n + 1) for n in range(2 * len(self.recordings))], axis=1)
            if self.recordings
            else None
        )
        return {
            "neural": None
            if neural is None
            else xr.DataArray(neural, dims=("presentation", "neuroid")),
            "behavior": None
            if self.task is None
            else xr.DataArray(seen, dims=("presentation",)),
        }


def test_brainscore_subjects_are_reproducible_and_left_unchanged() -> None:
    wrapped = Subject()
    before = copy.deepcopy(vars(wrapped))
    model = models.brainscore(wrapped)
    assert model.id == "subject"
    data = Dataset(StimulusSet("story", STORY), None)
    first = reading(model, data, give="responses", passage="passage_label").source
    again = reading(model, data, give="responses", passage="passage_label").source
    assert first.shape == (4, 2)
    xr.testing.assert_equal(first, again)
    times = reading(model, data, give="reading_times", passage="passage_label").source
    assert dict(zip(times["stimulus_id"].values, times.values, strict=True)) == {
        "b2": 8,
        "b1": 13,
        "a1": 7,
        "a2": 15,
    }
    assert vars(wrapped) == before


def read(
    run: int, words: int = 120, readers: int = 16
) -> tuple[xr.DataArray, xr.DataArray]:
    """Simulated reading times of people, and surprisals of a model that explain a part of them."""
    rng = np.random.default_rng([4, run])
    surprisal = rng.gamma(2, 1, words)
    slopes = 1 + 0.4 * rng.standard_normal(readers)
    times = 30 * (surprisal + 0.6 * rng.standard_normal(words))[:, None] * slopes
    ids = [f"{run}w{i:03d}" for i in range(words)]
    people = xr.DataArray(
        300 + times + 60 * rng.standard_normal((words, readers)),
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": ("presentation", ids),
            "neuroid_id": ("neuroid", [f"{run}r{i}" for i in range(readers)]),
        },
    )
    noisy = surprisal + 1.5 * rng.standard_normal(words)
    return xr.DataArray(
        noisy, dims="presentation", coords={"stimulus_id": ("presentation", ids)}
    ), people


@pytest.mark.parametrize("absolute", [False, True])
def test_the_deviation_of_a_word_is_the_change_without_it(absolute: bool) -> None:
    model, people = read(0, words=20)
    mean = people.mean("neuroid")
    metric = nl.metric(
        "reading_correlation",
        compare={"name": "reading_correlation", "absolute": absolute},
    )
    (words,) = metric(-model, mean).uncertainty.parts
    left = np.array(
        [
            metric(-model, mean.isel(presentation=np.arange(20) != i)).value
            for i in range(20)
        ]
    )
    np.testing.assert_allclose(
        words.values,
        np.sqrt(19 / 20) * (left.mean() - left),
        atol=1e-12,
    )


@pytest.mark.slow
def test_intervals_contain_the_correlation_of_new_words_and_readers() -> None:
    scores, ceilings = [], []
    for run in range(100):
        model, people = read(run)
        scores.append(
            nl.metric("reading_correlation")(model, people.mean("neuroid")).replace(
                population=str(run)
            )
        )
        ceilings.append(
            nl.ceiling("reader_consistency")(people).replace(population=str(run))
        )
    assert scores[0].interval_covers.endswith("covers new stimuli")
    assert ceilings[0].interval_covers.endswith("covers new stimuli and new subjects")
    for chosen in (scores, ceilings):
        truth = np.mean([score.value for score in chosen])
        assert np.mean([score.low <= truth <= score.high for score in chosen]) > 0.88
