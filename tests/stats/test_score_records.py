"""Scores in records, copies and text; packed draws; cached results within a memory limit."""

from __future__ import annotations

import math
import pickle
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
from neuroledger.stats.score import NOWHERE, Score, counts_in_words, mean_of, normalise, normalise_by_floor
from neuroledger.stats.spread import (
    DRAWS,
    Influence,
    Items,
    Spread,
    _exact,
    combined,
    covers,
    freedom,
    moved,
    multipliers,
    pack,
    unpack,
)  # fmt: skip
from neuroledger.stats.workspace import Memo, Workspace

IDS = [f"im{i:02d}" for i in range(40)]


def of_items(seed: int = 0, factor: str = "stimulus") -> Spread:
    """The spread of a mean over forty named items."""
    values = np.random.default_rng(seed).standard_normal(len(IDS))
    return Influence({factor: moved(IDS, (values - values.mean()) / len(IDS))}).spread("set")


def whole_score() -> Score:
    top = Score(0.8, low=0.7, high=0.9, error=0.05, scale="reliability", id="consistency", n={"split": 10})
    return Score(
        0.5, error=0.02, low=0.4, high=0.6, scale="correlation", unit="r", raw=0.63, ceiling=top, id="ridge",
        n={"stimulus": 40, "neuroid": 5}, status="partial", reason="one fold has no signal", notes=("two were left out",),
        spread=of_items(), direction="lower",
    )  # fmt: skip


def test_a_record_contains_every_field_of_a_score_and_its_ceiling() -> None:
    assert whole_score().to_dict() == {
        "value": 0.5, "low": 0.4, "high": 0.6, "error": 0.02, "scale": "correlation", "direction": "lower", "raw": 0.63,
        "ceiling": {
            "id": "consistency", "value": 0.8, "low": 0.7, "high": 0.9, "error": 0.05, "scale": "reliability",
            "n": {"split": 10},
        },
        "n": {"neuroid": 5, "stimulus": 40}, "unit": "r", "id": "ridge", "status": "partial",
        "reason": "one fold has no signal", "covers": "the 95 % interval covers new stimuli",
        "notes": ["two were left out"],
    }  # fmt: skip
    assert list(whole_score().to_dict()["n"]) == ["neuroid", "stimulus"]


def test_missing_fields_of_a_score_are_none_or_absent() -> None:
    assert Score(0.5).to_dict() == {
        "value": 0.5, "low": None, "high": None, "error": None, "scale": "score", "direction": "higher", "raw": 0.5,
        "ceiling": None, "n": {},
    }  # fmt: skip


def test_a_score_is_read_back_from_its_record() -> None:
    plain = whole_score().to_dict() | {"spread": pack(of_items())}
    back = Score.of_record(plain)
    names = ("value", "low", "high", "scale", "raw", "direction", "n", "id")
    assert [getattr(back, name) for name in names] == [plain[name] for name in names]
    assert back.spread is not None and back.spread.error == pytest.approx(of_items().error)
    bare = Score.of_record({"value": 0.25})
    assert (bare.scale, bare.direction, bare.id, bare.raw, bare.n) == ("score", "higher", "", 0.25, {})
    assert math.isnan(bare.low) and math.isnan(bare.high) and bare.spread is None
    half = Score.of_record({"value": 0.25, "low": 0.1})
    assert math.isnan(half.low), "an interval has two ends"


def test_a_score_is_formatted_as_one_line_and_as_a_table() -> None:
    score = whole_score()
    assert str(score) == (
        "0.5 [0.4, 0.6] r of ceiling · raw 0.63 · ceiling 0.8 · 40 stimuli · 5 neuroids · partial: one fold has no signal"
    ).replace("40 stimuli", counts_in_words({"stimulus": 40})[0])
    assert str(Score(0.5)) == "0.5 score" and repr(Score(0.5)) == "Score(0.5 score)"
    assert str(Score(math.nan, status="failed", reason="no rows")) == "failed: no rows"
    output = score._repr_html_()
    for text in (
        "ridge (partial)",
        "0.5",
        "0.4 – 0.6",
        "covers new stimuli",
        "correlation",
        "0.63",
        "0.8",
        "two were",
    ):
        assert text in output, text
    assert "score (scored)" in Score(0.5)._repr_html_() and "interval" not in Score(0.5)._repr_html_()


def test_a_copy_keeps_unchanged_fields_and_drops_an_outdated_interval() -> None:
    score = whole_score().replace(samples=xr.DataArray([1.0, 2.0], dims="split"))
    names = (
        "value", "error", "scale", "direction", "unit", "raw", "ceiling", "n", "status", "reason", "notes", "id",
        "generalise", "population", "limits", "low", "high",
    )  # fmt: skip
    copy = score.replace()
    assert [getattr(copy, name) for name in names] == [getattr(score, name) for name in names]
    assert copy.samples is score.samples and copy.spread is score.spread
    named = score.replace(id="other")
    assert (named.id, named.low, named.high) == ("other", 0.4, 0.6)
    redrawn = score.replace(spread=of_items(1))
    assert redrawn.spread is not score.spread and (redrawn.low, redrawn.high) != (0.4, 0.6)
    assert math.isnan(score.replace(low=None, high=None).low)
    with pytest.raises(AttributeError, match=r"replace\(value=…\)"):
        score.value = 1.0


def test_a_copy_with_other_factors_gets_a_new_interval() -> None:
    values = np.random.default_rng(2).standard_normal(len(IDS)) / len(IDS)
    influence = Influence(
        {"stimulus": moved(IDS, values), "neuroid": moved(IDS[:10], 3 * values[:10])}, squares=False
    )
    score = Score(0.0, influence=influence, population="set", generalise=("stimulus",))
    both = score.replace(generalise=("stimulus", "neuroid"))
    assert both.low < score.low < score.high < both.high
    assert (
        score.replace(generalise=None).interval_covers
        == "the 95 % interval covers new stimuli and new neuroids"
    )


def test_pickling_computes_lazy_intervals_and_draws() -> None:
    requested: list[str] = []

    def influence() -> Influence:
        requested.append("influence")
        return Influence({"stimulus": moved(IDS, np.arange(40.0) / 1000)})

    score = Score(
        0.5, influence=influence, population="set", samples=lambda: xr.DataArray([1.0], dims="split"),
        limits=(0.0, 1.0),
    )  # fmt: skip
    there = pickle.loads(pickle.dumps(score))
    assert (there.low, there.high) == (score.low, score.high) and math.isfinite(there.low)
    assert there.samples.identical(score.samples) and requested == ["influence"]
    np.testing.assert_array_equal(there.spread.total, score.spread.total)
    drawn = pickle.loads(pickle.dumps(Score(0.5, replicates=lambda: np.linspace(0.4, 0.6, 21))))
    assert drawn.low == pytest.approx(0.405) and drawn.high == pytest.approx(0.595)
    few = Score(0.5, replicates=np.linspace(0.4, 0.6, 19))
    assert math.isnan(few.low), "percentiles need twenty draws"


def test_half_a_scale_between_dummy_and_perfection_is_a_half() -> None:
    raw = Score(0.75, error=0.1, low=0.6, high=0.9, limits=(0.0, 1.0), n={"fold": 5})
    result = normalise_by_floor(raw, dummy=0.5, perfect=1.0)
    assert (result.value, result.raw, result.limits) == (0.5, 0.75, (-1.0, 1.0))
    assert result.error == pytest.approx(0.2) and result.n == {"fold": 5, "dummy": 0.5}
    assert (result.low, result.high) == pytest.approx((0.2, 0.8))
    down = normalise_by_floor(raw.replace(direction="lower"), dummy=1.0, perfect=0.5)
    assert (down.value, down.direction, down.limits) == (0.5, "higher", (0.0, 2.0))
    assert (down.low, down.high) == pytest.approx((0.2, 0.8)) and down.error == pytest.approx(0.2)
    drawn = normalise_by_floor(Score(0.75, replicates=np.linspace(0.5, 1.0, 101)), 0.5, 1.0)
    assert (drawn.low, drawn.high) == pytest.approx((0.025, 0.975))
    varied = normalise_by_floor(Score(0.75, spread=of_items()), 0.5, 1.0)
    assert varied.spread is not None and varied.spread.error == pytest.approx(2 * of_items().error)
    for dummy, perfect in ((1.0, 1.0), (math.nan, 1.0)):
        with pytest.raises(MetricError, match="cannot normalise: the dummy scores"):
            normalise_by_floor(raw, dummy, perfect)


def test_an_error_goes_through_the_formula_by_its_slope() -> None:
    raw = Score(0.5, error=0.01, scale="correlation", limits=(-1.0, 1.0))
    top = Score(0.8, low=0.7, high=0.9, scale="reliability")
    result = normalise(raw, top)
    assert result.value == pytest.approx(0.25 / 0.8) and result.limits == pytest.approx((-1.25, 1.25))
    assert result.error == pytest.approx(2 * 0.5 / 0.8 * 0.01)
    large = normalise(Score(300.0, error=1.0), Score(400.0))
    assert large.value == 0.75 and large.error == pytest.approx(1 / 400) and large.limits == NOWHERE
    over = normalise(Score(3.0), Score(2.0))
    assert over.value == 1.5 and over.notes == (
        "above the ceiling (1.500 > 1): reported as it is, not clipped",
    )
    assert normalise(Score(2.0), Score(2.0)).notes == ()


# Draws


def test_draws_are_read_back_from_a_record() -> None:
    spread = Spread(
        {"stimulus": of_items().draws["stimulus"], "constant": np.zeros(DRAWS)},
        {"stimulus": 40, "constant": 3},
    )
    back = unpack(pack(spread))
    assert back is not None and back.items == {"stimulus": 40, "constant": 3}
    assert (back.draws["constant"] == 0).all()
    np.testing.assert_allclose(back.draws["stimulus"], spread.draws["stimulus"], rtol=2e-3, atol=1e-6)
    assert back.error == pytest.approx(spread.error, rel=1e-12)
    assert all(len(text) == math.ceil(2 * DRAWS / 3) * 4 for text in pack(spread)["draws"].values())
    assert unpack(None) is None and unpack({}) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda plain: plain["items"].clear(), "draws of no items"),
        (lambda plain: plain["items"].update(stimulus=0), "draws of no items"),
        (lambda plain: plain["items"].update(stimulus="many"), "invalid literal"),
        (lambda plain: plain["deviation"].clear(), "'stimulus'"),
        (lambda plain: plain["deviation"].update(stimulus=float("inf")), "not a finite number"),
        (lambda plain: plain["draws"].update(stimulus="AAAAAAAA"), "reshape"),
        (lambda plain: plain["draws"].update(stimulus="not base 64!"), "draws of a record cannot be read"),
        (lambda plain: plain.pop("draws"), "'draws'"),
    ],
)
def test_damaged_draws_raise_one_error(change, reason: str) -> None:
    plain = pack(of_items())
    change(plain)
    with pytest.raises(MetricError, match=reason) as raised:
        unpack(plain)
    assert "run it again" in str(raised.value)


def test_draws_have_the_variance_that_they_should() -> None:
    draws = np.array([3.0, -1.0, 2.0])
    assert (_exact(draws, 7.0) ** 2).mean() == pytest.approx(7.0)
    assert _exact(draws, 7.0)[0] / _exact(draws, 7.0)[1] == pytest.approx(-3.0)
    assert (_exact(np.zeros(3), 7.0) == 0).all()


def test_multipliers_belong_to_an_item_a_factor_and_a_population() -> None:
    item = multipliers("set", "stimulus", ["a", "b"])
    assert item.shape == (DRAWS, 2)
    np.testing.assert_array_equal(item[:, ::-1], multipliers("set", "stimulus", ["b", "a"]))
    for other in (multipliers("other", "stimulus", ["a"]), multipliers("set", "neuroid", ["a"])):
        assert abs(np.corrcoef(item[:, 0], other[:, 0])[0, 1]) < 0.2
    assert abs(item.mean()) < 0.1 and item.std() == pytest.approx(1, abs=0.1)


def test_the_shared_variance_of_crossed_factors_is_subtracted_once() -> None:
    assert combined({}) == 0.0 and combined({"a": 2.0}) == 2.0
    assert combined({"a": 2.0, "b": 3.0, "a × b": 1.0}) == 4.0
    assert combined({"a": 2.0, "b": 3.0, "a × b": 4.0}) == 3.0, "never below the largest of them"
    assert combined({"a": 2.0, "a × a": 0.5}) == 1.5 and combined({"a": 2.0, "a × a": 1.5}) == 1.0
    assert combined({"a": np.array([2.0, 1.0]), "b": np.array([1.0, 3.0])}).tolist() == [3.0, 4.0]
    assert freedom({"a": 2.0}, {"a": 11}) == pytest.approx(10.0)
    assert freedom({"a": 1.0, "b": 1.0}, {"a": 11, "b": 11}) == pytest.approx(20.0)
    assert freedom({}, {}) == math.inf and freedom({"a": 0.0}, {"a": 5}) == math.inf


def test_an_interval_stays_within_its_limits_and_p_is_one_where_nothing_varies() -> None:
    still = Spread({"stimulus": np.zeros(DRAWS)}, {"stimulus": 40})
    assert (still.p(0.0), still.p(0.1), still.interval(0.3)) == (1.0, 0.0, (0.3, 0.3))
    spread = of_items()
    low, high = spread.interval(0.0)
    assert low == -high and 2.0 < high / spread.error < 2.05  # Student's with 39 degrees of freedom: 2.023
    assert spread.interval(0.95, (0.0, 1.0))[1] == 1.0 and spread.interval(0.05, (0.0, 1.0))[0] == 0.0
    assert spread.p(high) == pytest.approx(0.05) and spread.p(-high) == pytest.approx(0.05)
    wide = Spread({"stimulus": 1.0 * multipliers("s", "stimulus", ["a"])[:, 0]}, {"stimulus": 1 << 30})
    assert 0.25 < wide.p(1.0) < 0.4, "a standard error of 1 is an ordinary one"


def test_the_interval_of_a_share_ends_where_wilsons_does() -> None:
    value, error = 0.2, 0.04
    draws = multipliers("", "x", ["a"])[:, 0]
    spread = Spread({"stimulus": _exact(draws, error**2)}, {"stimulus": 1 << 30}, squares=True)
    low, high = spread.interval(value)
    z = 1.959964
    # The mean whose own deviation, in proportion to its root, just reaches the value.
    assert low + z * error * math.sqrt(low / value) == pytest.approx(value, rel=1e-4)
    assert low > value - z * error and high > value + z * error
    above = Spread({"stimulus": _exact(draws, error**2)}, {"stimulus": 1 << 30}, squares=True)
    assert above.interval(2.0)[0] > 2.0 - z * error, "a mean of squares above one is none the less one"


def test_covered_factors_are_formatted_as_words() -> None:
    assert covers(["stimulus"]) == "new stimuli"
    assert covers(["neuroid", "stimulus"]) == "new stimuli and new neuroids"
    assert covers(["subject", "neuroid", "stimulus"]) == "new stimuli, new neuroids and new subjects"
    assert covers(["score", "resampled"]) == ""


def test_only_named_factors_are_drawn_and_unknown_ones_refused() -> None:
    both = Influence(
        {"stimulus": moved(IDS, np.arange(40.0)), "neuroid": Items(np.array(["a"]), np.array([1.0]))}
    )
    assert both.spread("set").factors == ("stimulus",), "of one item nothing can be drawn"
    assert both.only(["neuroid"]) is not None and both.only(["subject"]) is None
    with pytest.raises(MetricError, match="generalise over subject; it varies over stimulus, neuroid"):
        both.spread("set", ["subject"])


# Differences


def test_p_is_corrected_within_families_and_untested_differences_are_unchanged() -> None:
    tested = [Difference(name, p=p) for name, p in (("a", 0.01), ("b", 0.04), ("c", 0.02), ("d", None))]
    alone = corrected(tested, ["x", "x", "y", "y"])
    assert [item.p_corrected for item in alone] == [0.02, 0.04, 0.02, None]
    assert [item.p_corrected for item in corrected(tested)] == pytest.approx([0.03, 0.04, 0.04, None])
    assert [item.benchmark for item in alone] == list("abcd") and alone[3] is tested[3]


def test_a_score_better_by_more_than_the_variation_is_clearly_better() -> None:
    stimuli = [of_items(seed) for seed in range(3)]
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
    assert not clearly_better(entries[:1]).any() and clearly_better(entries[:1]).shape == (1, 1)
    assert rank_sets(better) == [(2, 4), (1, 2), (2, 4), (1, 4)]


def test_the_spread_of_a_mean_includes_covariances() -> None:
    item, other = Score(0.4, spread=of_items(0)), Score(0.8, spread=of_items(1))
    mean = joint_mean([(0.5, item), (0.5, other)])
    assert mean.value == pytest.approx(0.6) and mean.spread is not None
    expected = 0.5 * (of_items(0).draws["stimulus"] + of_items(1).draws["stimulus"])
    np.testing.assert_allclose(mean.spread.draws["stimulus"], expected)
    assert joint_mean([(0.5, item), (0.5, Score(0.8))]).spread is None
    same = overall(Difference("mean", value=0.0), mean, mean)
    assert (same.low, same.high, same.p) == (0.0, 0.0, 1.0) and same.effect is None
    unknown = overall(Difference("mean", value=0.0), mean, Joint(0.1, None))
    assert unknown.p is None and unknown.reason == "no interval: how some of the scores vary is not known"


# Memory


def test_the_least_recently_used_result_is_evicted_beyond_the_limit() -> None:
    memo, created = Memo(limit=10), list[str]()

    def get(name: str, size: int) -> str:
        def compute() -> str:
            created.append(name)
            return name

        return memo.get((name,), compute, lambda value: size if value == name else 0)

    assert [get(name, 4) for name in ("a", "b", "a", "c", "a", "b")] == ["a", "b", "a", "c", "a", "b"]
    assert created == ["a", "b", "c", "b"] and len(memo) == 2
    get("large", 99)
    assert len(memo) == 1, "what was computed last is kept, however large"
    assert pickle.loads(pickle.dumps(memo)).limit == 10 and len(pickle.loads(pickle.dumps(memo))) == 0


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
    assert memo.fingerprint(values) == frozen == memo.fingerprint(values[:]) and len(hashed) == 3
    assert memo.fingerprint(values[:6]) != frozen and memo.fingerprint(values.reshape(3, 4)) != frozen
    assert Workspace(memo=Memo(limit=0)).key(values) == "" and Workspace(memo=memo).key(values) == frozen


def test_a_hash_is_of_shape_type_and_values_whatever_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.arange(60.0).reshape(20, 3)
    whole = workspace.fingerprint(values)
    monkeypatch.setattr(workspace, "HASH_BLOCK", 50)
    assert workspace.fingerprint(values) == whole == workspace.fingerprint(np.asfortranarray(values))
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
    assert Memo().fingerprint(content) == workspace.fingerprint(values) == Memo().fingerprint(content[:])


def test_scores_on_different_scales_are_not_compared() -> None:
    result = difference("b", Score(0.5, scale="correlation"), Score(0.4, scale="accuracy"))
    assert result.benchmark == "b" and result.p is None
    assert result.reason == "the scores have scales correlation and accuracy: not comparable"


def test_a_mean_of_parts_keeps_each_part_by_its_name() -> None:
    result = mean_of({"one": Score(0.2, n={"neuroid": 3}), "two": Score(0.4, n={"neuroid": 4})}, "subject")
    assert result.value == pytest.approx(0.3) and result.n == {"neuroid": 7, "subject": 2}
    assert result.samples is not None and result.samples.dims == ("subject",)
    assert result.samples.sel(subject="two").item() == 0.4
