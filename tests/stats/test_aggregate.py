"""Aggregation of samples, its error, and the influence of items, compared with plain arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.stats.differences import Joint, clearly_better
from neuroledger.stats.resampling import Cells, Fitted, SharedFit, aggregate, error_of, influence_of
from neuroledger.stats.spread import Influence, centred, moved

NAN = math.nan
TABLE = np.array([[1.0, 5.0, NAN], [2.0, NAN, NAN], [6.0, -3.0, NAN], [7.0, 8.0, NAN]])
SAMPLES = xr.DataArray(TABLE, dims=("split", "neuroid"))


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("mean", (1.0 + 5.0) / 2 + 2.0 + (6.0 - 3.0) / 2 + (7.0 + 8.0) / 2),
        ("median", 3.0 + 2.0 + 1.5 + 7.5),
        ("sum", 6.0 + 2.0 + 3.0 + 15.0),
        ("max", 5.0 + 2.0 + 6.0 + 8.0),
        ("min", 1.0 + 2.0 - 3.0 + 7.0),
        ("abs_mean", 3.0 + 2.0 + 1.5 + 7.5),
    ],
)
def test_missing_values_are_skipped_along_one_dimension_after_the_other(how: str, expected: float) -> None:
    assert aggregate(SAMPLES, [("neuroid", how), ("split", "sum")]) == pytest.approx(expected)
    whole = SAMPLES.isel(neuroid=[0])
    for name, plain in (("mean", 4.0), ("median", 4.0), ("sum", 16.0), ("max", 7.0), ("min", 1.0)):
        assert aggregate(whole, [("time_bin", "mean"), ("neuroid", "mean"), ("split", name)]) == plain
    assert math.isnan(aggregate(SAMPLES.isel(neuroid=[2]), [("neuroid", how), ("split", "mean")]))


def test_a_remaining_dimension_is_reported_with_the_declared_ones() -> None:
    with pytest.raises(
        MetricError, match=r"keep dimension neuroid .*\(`aggregate` names 'neuron', which they do not"
    ):
        aggregate(SAMPLES, [("neuron", "mean"), ("split", "mean")])
    with pytest.raises(MetricError, match=r"declare how to aggregate it$"):
        aggregate(SAMPLES, [("split", "mean")])


def test_an_error_is_the_deviation_after_the_preceding_steps() -> None:
    steps = [("neuroid", "mean"), ("split", "mean")]
    means = np.array([3.0, 2.0, 1.5, 7.5])
    assert error_of(SAMPLES, steps, "split", "std") == pytest.approx(means.std())
    assert error_of(SAMPLES, steps, "split", "sem") == pytest.approx(means.std() / 2)
    item = np.array([1.0, 5.0, 2.0, 6.0, -3.0, 7.0, 8.0])
    assert error_of(SAMPLES, steps, "neuroid", "sem") == pytest.approx(item.std() / np.sqrt(7))
    assert math.isnan(error_of(SAMPLES, steps, "time_bin", "std"))
    assert math.isnan(error_of(SAMPLES.isel(split=[0]), steps, "split", "std")), "one value has no deviation"


def left_out(values: np.ndarray, how: str) -> np.ndarray:
    """What each row of (row, column) adds to the reduction of the columns' means: (n - 1) times what its absence does."""
    reduce = {"mean": np.nanmean, "sum": np.nansum, "median": np.nanmedian, "max": np.nanmax}[how]
    whole = np.nanmean(reduce(values, axis=0))
    n = len(values)
    return np.array([whole - np.nanmean(reduce(np.delete(values, i, 0), axis=0)) for i in range(n)]) * (n - 1)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("missing", [False, True])
def test_the_influence_on_a_mean_is_that_of_leaving_the_item_out(axis: int, missing: bool) -> None:
    values = np.random.default_rng(5).standard_normal((9, 4))
    dims = ("stimulus", "split") if axis == 0 else ("split", "stimulus")
    if missing:
        values[3] = NAN  # an item that was never measured adds nothing
    samples = xr.DataArray(values if axis == 0 else values.T, dims=dims)
    result = influence_of(samples, [("stimulus", "mean"), ("split", "mean")])
    assert result is not None and list(result.factors) == ["stimulus"], "splits are no random factor"
    deviation = result.factors["stimulus"].deviation
    known = np.flatnonzero(np.isfinite(values[:, 0]))
    taken = left_out(values[known], "mean")
    n = len(known)
    expected = np.zeros(9)
    expected[known] = (taken - taken.mean()) / n
    scale = math.sqrt(9 / 8)
    np.testing.assert_allclose(deviation, scale * (expected - expected.mean()), atol=1e-12)


@pytest.mark.parametrize("how", ["sum", "max", "min", "abs_mean"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_influence_on_other_reductions_is_that_of_leaving_the_item_out(how: str, axis: int) -> None:
    values = np.random.default_rng(8).standard_normal((3, 5)) + np.array([[2.0], [-2.0], [1.0]])
    whole = {"sum": np.sum, "max": np.max, "min": np.min}
    if how == "abs_mean":
        mean = values.mean(axis=1, keepdims=True)
        item = np.sign(mean) * (values - mean) / 5
    else:
        item = np.stack(
            [whole[how](values, 1) - whole[how](np.delete(values, i, 1), 1) for i in range(5)], axis=1
        )
    dims = ("split", "neuroid") if axis else ("neuroid", "split")
    result = influence_of(
        xr.DataArray(values if axis else values.T, dims=dims), [("neuroid", how), ("split", "mean")]
    )
    assert result is not None
    added = item.mean(axis=0)
    expected = math.sqrt(5 / 4) * (added - added.mean())
    np.testing.assert_allclose(result.factors["neuroid"].deviation, expected, atol=1e-12)


def test_the_variance_of_a_mean_over_items_is_that_of_textbooks() -> None:
    values = np.random.default_rng(6).standard_normal(25)
    samples = xr.DataArray(
        values, dims="stimulus", coords={"stimulus_id": ("stimulus", [f"s{i}" for i in range(25)])}
    )
    result = influence_of(samples, [("stimulus", "mean")])
    assert result is not None
    assert result.factors["stimulus"].variance == pytest.approx(values.var(ddof=1) / 25)
    assert influence_of(samples, []) is None, "a dimension is left"
    assert influence_of(samples.isel(stimulus=[0]), [("stimulus", "mean")]) is None, (
        "of one item nothing varies"
    )


def test_refit_increases_the_common_variance_of_a_factor() -> None:
    rng = np.random.default_rng(7)
    samples = xr.DataArray(rng.standard_normal((2, 3)), dims=("split", "neuroid"))
    ids, parts = np.array([f"s{i}" for i in range(6)]), rng.standard_normal((2, 3, 3)) / 6
    rows = [np.arange(3), np.arange(3, 6)]

    def variances(refit: float) -> tuple[float, float]:
        cells = Cells(ids, [(at, part) for at, part in zip(rows, parts, strict=True)], refit=refit)
        result = influence_of(samples, [("split", "mean"), ("neuroid", "mean")], cells)
        assert result is not None and list(result.factors) == ["stimulus", "neuroid"]
        assert set(result.crossed) == {("stimulus", "neuroid")}
        return result.factors["stimulus"].variance, result.factors["neuroid"].variance

    item = np.concatenate(parts).sum(axis=1) / 6  # of two splits and three neuroids, each counts a sixth
    assert variances(1.0)[0] == pytest.approx(6 / 5 * ((item - item.mean()) ** 2).sum())
    assert variances(2.25) == pytest.approx((2.25 * variances(1.0)[0], variances(1.0)[1]))


@pytest.mark.parametrize("leverage", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("interaction", [0.1, 2.0])
@pytest.mark.parametrize("how", ["mean", "median"])
def test_what_was_fitted_adds_to_the_variance_without_interactions_counted_twice(
    leverage: float, interaction: float, how: str
) -> None:
    rng = np.random.default_rng(8)
    ids = np.array([f"s{i}" for i in range(40)])
    samples = xr.DataArray(rng.standard_normal((2, 5)), dims=("split", "neuroid"))
    tested, cells = rng.standard_normal((40, 5)) / 40, rng.standard_normal((40, 5)) / 80
    rows, signed = rng.standard_normal(40) / 40, interaction * rng.standard_normal(40) / 40
    signed_cells = interaction * rng.standard_normal((40, 5)) / 40
    shared, shared_pairs, asked = rng.standard_normal(5) / 5, rng.standard_normal(5) / 20, []

    def fits(slopes: np.ndarray, signs: np.ndarray, columns: np.ndarray) -> Fitted:
        asked.append((slopes, signs, columns))
        return Fitted(
            rows, signed, cells, signed_cells, {"neuroid": SharedFit(shared, shared_pairs, 0.01)}, leverage
        )

    parts = [(np.arange(20), 2 * tested[:20]), (np.arange(20, 40), 2 * tested[20:])]
    steps = [("neuroid", how), ("split", "mean")]
    known = Cells(ids, parts, refit=1.7, fits=fits)
    found, alone = influence_of(samples, steps, known), influence_of(samples, steps, Cells(ids, parts))
    assert found is not None and alone is not None
    ((slopes, signs, columns),) = asked
    assert len(columns) == 5 and set(columns) <= {1.0, -1.0}
    assert slopes.shape == (2, 5) and slopes.sum() == pytest.approx(1)
    assert set(signs) == {1.0, -1.0} and 5 < (signs > 0).sum() < 35

    def variance(item: np.ndarray) -> float:
        return float(len(item) * item.var(ddof=1))

    by_test = np.concatenate([tested[:20] * 2 * slopes[0], tested[20:] * 2 * slopes[1]])
    derived, pairs = variance(by_test.sum(axis=1) + rows), variance(signed)
    # Refits to other stimuli add to what all neuroids share, not to the noise of each.
    common = max(variance(by_test.sum(axis=1)) - (centred(by_test) ** 2).sum(), 0)
    wanted = max(derived - pairs, derived / 3) + 0.4 * leverage * 0.7 * common
    assert found.factors["stimulus"].variance - min(pairs, wanted) == pytest.approx(wanted)
    # The draws of the interactions are subtracted where the factor is combined with others.
    only = found.only(["stimulus"])
    assert only is not None
    assert only.spread("p").variance == pytest.approx(wanted, rel=0.15)
    moved_by = found.factors["neuroid"].deviation - alone.factors["neuroid"].deviation
    np.testing.assert_allclose(moved_by, math.sqrt(5 / 4) * (shared - shared.mean()), atol=1e-12)
    # Pairs of a tested neuroid and one that shares its fit are contained in the influence of both.
    own = found.only(["neuroid"])
    assert own is not None
    draws = own.spread("p").draws
    pairs_of = float((draws["neuroid × neuroid"] ** 2).mean())
    assert pairs_of == pytest.approx(variance(shared_pairs), rel=0.3)
    total = float((draws["neuroid"] ** 2).mean())
    assert own.spread("p").variance == pytest.approx(max(total - pairs_of, total / 2))
    if how == "median":  # whose draws are recomputed
        draws = rng.standard_normal((7, 5))
        added = found.factors["neuroid"].draws(draws) - alone.factors["neuroid"].draws(draws)
        np.testing.assert_allclose(added, draws @ moved_by, atol=1e-12)
    single = centred(by_test + cells)
    once = max(1 - (centred(signed_cells) ** 2).sum() / (single**2).sum(), 1 / 3)
    # Tested stimuli interact with neuroids through the fits that these share, too.
    once += 0.01 / (single**2).sum()
    np.testing.assert_allclose(
        found.crossed["stimulus", "neuroid"], math.sqrt(once) * single[np.argsort(ids)], atol=1e-12
    )


def test_unknown_fits_leave_the_term_of_refitting() -> None:
    samples = xr.DataArray(np.arange(3.0)[None], dims=("split", "neuroid"))
    ids, parts = np.array(list("abcd")), [(np.arange(4), np.arange(12.0).reshape(4, 3))]
    steps = [("neuroid", "mean"), ("split", "mean")]
    unknown = influence_of(samples, steps, Cells(ids, parts, refit=1.5, fits=lambda *_: None))
    stated = influence_of(samples, steps, Cells(ids, parts, refit=1.5))
    assert unknown is not None and stated is not None
    assert unknown.factors["stimulus"].variance == stated.factors["stimulus"].variance
    assert set(unknown.crossed) == {("stimulus", "neuroid")}


def test_scores_with_different_factors_have_their_own_degrees_of_freedom() -> None:
    def of(factor: str, items: int, seed: int):
        values = np.random.default_rng(seed).standard_normal(items)
        return Influence({factor: moved([f"{factor}{i}" for i in range(items)], values / items)}).spread(
            "set"
        )

    stimuli, people = of("stimulus", 60, 1), of("subject", 60, 2)
    apart = 3.0 * (stimuli - people).error
    assert clearly_better([Joint(apart, stimuli), Joint(0.0, people)]).tolist() == [
        [False, True],
        [False, False],
    ]
    assert not clearly_better([Joint(apart / 3, stimuli), Joint(0.0, people)]).any()
