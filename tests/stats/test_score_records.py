"""Scores in copies and text, clear differences of a few, and cached results within a memory limit."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.stats import workspace
from neuroledger.stats.differences import (
    Difference,
    Joint,
    clearly_better,
    corrected,
    difference,
    joint_mean,
    overall,
    rank_sets,
)  # fmt: skip
from neuroledger.stats.score import (
    NOWHERE,
    Score,
    counts_in_words,
    mean_of,
    normalise,
    normalise_by_floor,
)
from neuroledger.stats.uncertainty import Uncertainty
from neuroledger.stats.workspace import Memo, Workspace
from tests.varying import exactly, mean_score, of_items


def of_seed(seed: int = 0) -> Uncertainty:
    """The uncertainty of a mean over forty named items."""
    return of_items(np.random.default_rng(seed).standard_normal(40))


def whole_score() -> Score:
    top = Score(
        0.8,
        varies=exactly(0.04),
        error=0.05,
        scale="reliability",
        id="consistency",
        n={"split": 10},
    )
    return Score(
        0.5, error=0.02, scale="correlation", unit="r", raw=0.63, ceiling=top, id="ridge",
        n={"stimulus": 40, "neuroid": 5}, status="partial", reason="one fold has no signal", notes=("two were left out",),
        varies=exactly(0.05, 40), direction="lower",
    )  # fmt: skip


def test_a_score_is_formatted_as_one_line_and_as_a_table() -> None:
    score = whole_score()
    assert str(score) == (
        "0.5 [0.3989, 0.6011] r of ceiling · raw 0.63 · ceiling 0.8 · 40 stimuli · 5 neuroids · "
        "partial: one fold has no signal"
    ).replace("40 stimuli", counts_in_words({"stimulus": 40})[0])
    assert str(Score(0.5)) == "0.5 score" and repr(Score(0.5)) == "Score(0.5 score)"
    output = score._repr_html_()
    for text in (
        "ridge (partial)",
        "0.5",
        "0.3989 – 0.6011",
        "covers new stimuli",
        "correlation",
        "0.63",
        "0.8",
        "two were",
    ):
        assert text in output, text
    assert (
        "score (scored)" in Score(0.5)._repr_html_()
        and "interval" not in Score(0.5)._repr_html_()
    )


def test_a_copy_keeps_unchanged_fields_and_drops_an_outdated_interval() -> None:
    score = whole_score().replace(samples=xr.DataArray([1.0, 2.0], dims="split"))
    names = (
        "value", "error", "scale", "direction", "unit", "raw", "ceiling", "n", "status", "reason", "notes", "id",
        "generalise", "population", "limits", "low", "high",
    )  # fmt: skip
    copy = score.replace()
    assert [getattr(copy, name) for name in names] == [
        getattr(score, name) for name in names
    ]
    assert copy.samples is score.samples and copy.uncertainty is score.uncertainty
    named = score.replace(id="other")
    assert (named.id, named.low, named.high) == ("other", score.low, score.high)
    again = score.replace(varies=exactly(0.1, 40))
    assert again.low < score.low < score.high < again.high
    assert math.isnan(score.replace(varies=None).low) and math.isnan(
        score.replace(varies=None).high
    )
    with pytest.raises(AttributeError, match="value"):
        score.value = 1.0  # type: ignore[misc]


def test_a_copy_with_other_factors_gets_a_new_interval() -> None:
    both = exactly(0.1) + exactly(0.3, 10, factor="neuroid")
    score = Score(0.0, varies=both, population="set", generalise=("stimulus",))
    wider = score.replace(generalise=("stimulus", "neuroid"))
    assert wider.low < score.low < score.high < wider.high
    words = "the 95 % interval covers new stimuli and new neuroids"
    assert score.replace(generalise=None).interval_covers == words
    assert score.replace(generalise=("subject",)).uncertainty is None, (
        "it does not vary over them"
    )


def test_an_uncertainty_is_computed_once_and_on_demand() -> None:
    requested: list[object] = []

    def varies(factors: Sequence[str] | None) -> Uncertainty:
        requested.append(factors)
        return exactly(0.05)

    score = Score(
        0.5, varies=varies, population="set", limits=(0.0, 1.0), generalise=["stimulus"]
    )
    assert requested == [] and score.generalise == ("stimulus",)
    there = pickle.loads(pickle.dumps(score))
    assert requested == [("stimulus",)]
    assert (there.low, there.high) == (score.low, score.high) and math.isfinite(
        there.low
    )
    assert there.uncertainty == score.uncertainty and requested == [("stimulus",)]
    assert (
        score.uncertainty is not None and score.uncertainty.parts[0].population == "set"
    )


def test_an_interval_says_what_it_covers() -> None:
    assert Score(0.5).interval_covers == "" == Score(0.5).varies_over
    known = Score(0.5, varies=exactly(0.1) + exactly(0.1, factor="neuroid"))
    assert (
        known.interval_covers == "the 95 % interval covers new stimuli and new neuroids"
    )
    several = known.replace(n={"subject": 3})
    assert several.varies_over == "new stimuli and new neuroids of the same subjects"
    declared = Score(0.5, varies=Uncertainty.alone("x", 0.1))
    assert declared.interval_covers == "the 95 % interval is the metric's own"


def test_half_a_scale_between_dummy_and_perfection_is_a_half() -> None:
    raw = Score(0.75, error=0.1, varies=exactly(0.05), limits=(0.0, 1.0), n={"fold": 5})
    result = normalise_by_floor(raw, dummy=0.5, perfect=1.0)
    assert (result.value, result.raw, result.limits) == (0.5, 0.75, (-1.0, 1.0))
    assert result.error == pytest.approx(0.2) and result.n == {"fold": 5, "dummy": 0.5}
    assert (result.low, result.high) == pytest.approx(
        (2 * raw.low - 1, 2 * raw.high - 1)
    )
    down = normalise_by_floor(raw.replace(direction="lower"), dummy=1.0, perfect=0.5)
    assert (down.value, down.direction, down.limits) == (0.5, "higher", (0.0, 2.0))
    assert (down.low, down.high) == pytest.approx(
        (2 - 2 * raw.high, 2 - 2 * raw.low)
    ) and down.error == pytest.approx(0.2)
    for dummy, perfect in ((1.0, 1.0), (math.nan, 1.0)):
        with pytest.raises(MetricError, match="cannot normalise: the dummy scores"):
            normalise_by_floor(raw, dummy, perfect)


def test_an_error_goes_through_the_formula_by_its_slope() -> None:
    raw = Score(0.5, error=0.01, scale="correlation", limits=(-1.0, 1.0))
    top = Score(0.8, scale="reliability")
    result = normalise(raw, top)
    assert result.value == pytest.approx(0.25 / 0.8) and result.limits == pytest.approx(
        (-1.25, 1.25)
    )
    assert result.error == pytest.approx(2 * 0.5 / 0.8 * 0.01)
    large = normalise(Score(300.0, error=1.0), Score(400.0))
    assert (
        large.value == 0.75
        and large.error == pytest.approx(1 / 400)
        and large.limits == NOWHERE
    )
    over = normalise(Score(3.0), Score(2.0))
    assert over.value == 1.5 and over.notes == (
        "above the ceiling (1.500 > 1): reported as it is, not clipped",
    )
    assert normalise(Score(2.0), Score(2.0)).notes == ()


# Differences


def test_p_is_corrected_within_families_and_untested_differences_are_unchanged() -> (
    None
):
    tested = [
        Difference(name, p=p)
        for name, p in (("a", 0.01), ("b", 0.04), ("c", 0.02), ("d", None))
    ]
    alone = corrected(tested, ["x", "x", "y", "y"])
    assert [item.p_corrected for item in alone] == [0.02, 0.04, 0.02, None]
    assert [item.p_corrected for item in corrected(tested)] == pytest.approx(
        [0.03, 0.04, 0.04, None]
    )
    assert [item.benchmark for item in alone] == list("abcd") and alone[3] is tested[3]


def test_a_score_better_by_more_than_the_variation_is_clearly_better() -> None:
    stimuli = [of_seed(seed) for seed in range(3)]
    error = (stimuli[0] - stimuli[1]).error
    entries = [
        Joint(0.0, stimuli[0]),
        Joint(8 * error, stimuli[1]),
        Joint(0.1 * error, stimuli[2]),
        Joint(9.9, None),
    ]
    better = clearly_better(entries)
    assert better[1].tolist() == [True, False, True, False] and better.sum() == 2
    assert (clearly_better(entries, higher=False) == better.T).all()
    assert not clearly_better(entries[:1]).any() and clearly_better(
        entries[:1]
    ).shape == (1, 1)
    assert rank_sets(better) == [(2, 4), (1, 2), (2, 4), (1, 4)]


def test_the_uncertainty_of_a_mean_includes_covariances() -> None:
    values = np.random.default_rng(0).standard_normal((2, 40))
    item, other = (mean_score(each) for each in values)
    mean = joint_mean([(0.5, item), (0.5, other)])
    assert mean.value == pytest.approx(values.mean()) and mean.uncertainty is not None
    assert mean.uncertainty.error == pytest.approx(
        values.mean(axis=0).std(ddof=1) / math.sqrt(40)
    )
    assert joint_mean([(0.5, item), (0.5, Score(0.8))]).uncertainty is None
    same = overall(Difference("mean", value=0.0), mean, mean)
    assert (same.low, same.high, same.p) == (0.0, 0.0, 1.0) and same.effect is None
    unknown = overall(Difference("mean", value=0.0), mean, Joint(0.1, None))
    assert (
        unknown.p is None
        and unknown.reason == "no interval: how some of the scores vary is not known"
    )


# Memory


def test_the_least_recently_used_result_is_evicted_beyond_the_limit() -> None:
    memo, created = Memo(limit=10), list[str]()

    def get(name: str, size: int) -> str:
        def compute() -> str:
            created.append(name)
            return name

        return memo.get((name,), compute, lambda value: size if value == name else 0)

    assert [get(name, 4) for name in ("a", "b", "a", "c", "a", "b")] == [
        "a",
        "b",
        "a",
        "c",
        "a",
        "b",
    ]
    assert created == ["a", "b", "c", "b"] and len(memo) == 2
    get("large", 99)
    assert len(memo) == 1, "what was computed last is kept, however large"
    assert (
        pickle.loads(pickle.dumps(memo)).limit == 10
        and len(pickle.loads(pickle.dumps(memo))) == 0
    )


def test_read_only_memory_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = list[tuple[int, ...]]()
    real = workspace.fingerprint

    def counted(values: np.ndarray) -> str:
        hashed.append(values.shape)
        return real(values)

    monkeypatch.setattr(workspace, "fingerprint", counted)
    memo, values = Memo(), np.arange(12.0)
    first = memo.fingerprint(values)
    values[0] = 5.0
    assert memo.fingerprint(values) != first and len(hashed) == 2
    values.flags.writeable = False
    frozen = memo.fingerprint(values)
    assert (
        memo.fingerprint(values) == frozen == memo.fingerprint(values[:])
        and len(hashed) == 3
    )
    assert (
        memo.fingerprint(values[:6]) != frozen
        and memo.fingerprint(values.reshape(3, 4)) != frozen
    )
    assert (
        Workspace(memo=Memo(limit=0)).key(values) == ""
        and Workspace(memo=memo).key(values) == frozen
    )


def test_a_hash_is_of_shape_type_and_values_whatever_the_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.arange(60.0).reshape(20, 3)
    whole = workspace.fingerprint(values)
    monkeypatch.setattr(workspace, "HASH_BLOCK", 50)
    assert (
        workspace.fingerprint(values)
        == whole
        == workspace.fingerprint(np.asfortranarray(values))
    )
    others = (
        values.reshape(3, 20),
        values.astype(np.float32),
        values[::-1],
        values + 1,
        values.astype("<i8"),
    )
    assert len({whole, *map(workspace.fingerprint, others)}) == 6


def test_a_whole_file_is_hashed_as_its_values_are(tmp_path: Path) -> None:
    values = np.arange(24.0).reshape(6, 4)
    values.tofile(tmp_path / "values")
    content = np.memmap(tmp_path / "values", dtype=np.float64, mode="r", shape=(6, 4))
    assert (
        Memo().fingerprint(content)
        == workspace.fingerprint(values)
        == Memo().fingerprint(content[:])
    )


def test_scores_on_different_scales_are_not_compared() -> None:
    result = difference(
        "b", Score(0.5, scale="correlation"), Score(0.4, scale="accuracy")
    )
    assert result.benchmark == "b" and result.p is None
    assert (
        result.reason
        == "the scores have scales correlation and accuracy: not comparable"
    )


def test_a_mean_of_parts_keeps_each_part_by_its_name() -> None:
    result = mean_of(
        {"one": Score(0.2, n={"neuroid": 3}), "two": Score(0.4, n={"neuroid": 4})},
        "subject",
    )
    assert result.value == pytest.approx(0.3) and result.n == {
        "neuroid": 7,
        "subject": 2,
    }
    assert result.samples is not None and result.samples.dims == ("subject",)
    assert result.samples.sel(subject="two").item() == 0.4
